//! `cargo xtask tidy`: the rules of the house that no compiler knows. Each rule is a function from a tree to
//! complaints; a complaint names the file, what is wrong, and what would be right.

mod code;
mod crates;
mod layers;
mod ratchet;
mod reference;
mod text;
mod words;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Done, build, tree};

pub(crate) use reference::check as check_reference;

/// Checks the sources, then the reference pages; `--write` renews the pages and the ratchet's list first.
pub(crate) fn run(args: &[String]) -> Done {
    build::cargo(["build", "--quiet", "-p", "beamport"]).run()?;
    let beamport = tree::target().join("debug/beamport");
    match args {
        [] => (),
        [only] if only == "--write" => {
            reference::write(&beamport)?;
            ratchet::write(tree::root(), &files(tree::root())?)?;
        }
        _ => return Err("`tidy` takes nothing, or --write".into()),
    }
    sources(tree::root())?;
    reference::check(&beamport)
}

/// Everything that can be checked without building.
pub(crate) fn sources(root: &Path) -> Done {
    let files = files(root)?;
    let mut complaints = crates::check(root);
    complaints.extend(text::check(root, &files));
    complaints.extend(words::check(root, &files));
    complaints.extend(layers::check(root, &files));
    complaints.extend(ratchet::check(root, &files));
    verdict(complaints)
}

fn verdict(complaints: Vec<String>) -> Done {
    if complaints.is_empty() {
        return Ok(());
    }
    let mut text = format!("{} not tidy:", complaints.len());
    for complaint in complaints {
        text.push_str("\n  ");
        text.push_str(&complaint);
    }
    Err(text)
}

/// What is, or would be, in the repository: paths relative to the root, sorted.
fn files(root: &Path) -> Done<Vec<PathBuf>> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("git: {e}"))?;
    if !listed.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&listed.stderr).trim()));
    }
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let mut files: Vec<PathBuf> = text.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from).collect();
    files.sort();
    files.dedup();
    Ok(files)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_house_is_tidy() {
        if let Err(text) = super::sources(crate::tree::root()) {
            panic!("{text}");
        }
    }
}
