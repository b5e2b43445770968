//! `cargo xtask fuzz [TARGET]`: libFuzzer on the functions in `fuzz/fuzz_targets`, under a nightly toolchain.
//!
//! The same functions run from seeds on the stable toolchain as ordinary tests; this is for the long search. The
//! compiler flags are what the tool `cargo fuzz` uses, so that nothing has to be installed but the toolchain.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::step::Step;
use crate::{Done, tree};

const FOLDER: &str = "fuzz/fuzz_targets";

/// Coverage counters that libFuzzer reads, and the address sanitiser.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Zsanitizer=address -Cdebug-assertions -Ccodegen-units=1";

/// Seconds for each target when none is named: enough to find what is easy to find.
const EACH_S: u32 = 60;

pub(crate) fn run(args: &[String]) -> Done {
    let targets = targets()?;
    let (wanted, options): (Vec<&String>, &[String]) = match args.split_first() {
        Some((name, rest)) if targets.contains(name) => (vec![name], rest),
        Some((name, _)) => {
            return Err(format!("no target `{name}`; there are: {}", targets.join(", ")));
        }
        None => (targets.iter().collect(), &[]),
    };
    let triple = host()?;
    for name in wanted {
        // What the search learned is kept beside the targets, out of the repository: it begins there next time.
        let corpus = kept("corpus", name)?;
        // libFuzzer takes this as the beginning of file names.
        let found = format!("-artifact_prefix={}/", kept("artifacts", name)?.display());
        let mut step = Step::new("cargo")
            .args(["+nightly", "run", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target", &triple])
            .args(["--bin", name, "--"])
            .args([corpus.as_os_str(), found.as_ref()])
            .args(options)
            .env("RUSTFLAGS", FLAGS)
            .env("CARGO_TARGET_DIR", tree::target().join("fuzz"));
        if args.is_empty() {
            step = step.args([format!("-max_total_time={EACH_S}")]);
        }
        step.run()?;
    }
    Ok(())
}

/// A folder of one target, made if it is not there.
fn kept(what: &str, target: &str) -> Done<PathBuf> {
    let folder = tree::root().join("fuzz").join(what).join(target);
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(folder)
}

/// Names of the targets: one file each.
fn targets() -> Done<Vec<String>> {
    let entries = fs::read_dir(tree::root().join(FOLDER)).map_err(|e| format!("{FOLDER}: {e}"))?;
    let names = entries.flatten().filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".rs")?.to_owned()));
    let mut names: Vec<String> = names.collect();
    names.sort();
    if names.is_empty() { Err(format!("{FOLDER} is empty")) } else { Ok(names) }
}

/// The nightly compiler's own triple: naming it keeps FLAGS off build scripts.
fn host() -> Done<String> {
    let none = "no nightly toolchain\nhint:  `rustup toolchain install nightly`";
    let asked = Command::new("rustc").args(["+nightly", "-vV"]).output().map_err(|e| format!("rustc: {e}"))?;
    let text = String::from_utf8_lossy(&asked.stdout).into_owned();
    text.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned).ok_or(none.into())
}
