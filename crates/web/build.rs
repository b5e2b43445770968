//! Lists the files of the page, which are compiled in: each is served at its path below `page`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let page = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("page");
    println!("cargo::rerun-if-changed=page");
    let mut files = Vec::new();
    list(&page, &mut files)?;
    files.sort();
    let mut text = String::from("[\n");
    for file in &files {
        let path = file.strip_prefix(&page).unwrap_or(file).display();
        let _ = writeln!(text, "    (\"{path}\", include_bytes!(\"{}\").as_slice()),", file.display());
    }
    text.push_str("]\n");
    fs::write(PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("page.rs"), text)
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
