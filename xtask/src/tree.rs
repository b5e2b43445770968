//! Where things are in the repository, and what this machine is.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Done;

/// The repository's root: the parent of `xtask`.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("/"))
}

/// cargo's target folder, which CI may move by `CARGO_TARGET_DIR`.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(moved) => root().join(moved),
        None => root().join("target"),
    }
}

/// A program that cargo built with the release profile.
pub(crate) fn program(name: &str) -> PathBuf {
    target().join("release").join(name)
}

/// A command of the repository's own Python environment.
pub(crate) fn venv(command: &str) -> PathBuf {
    root().join(".venv/bin").join(command)
}

/// Refuses to go on without root, naming the word that wants it.
pub(crate) fn need_root(word: &str) -> Done {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    // "Uid:\treal\teffective\t..."
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")).and_then(|ids| ids.split_whitespace().nth(1));
    if uid == Some("0") {
        return Ok(());
    }
    Err(format!(
        "`{word}` mounts small file systems to fill and cut them, which needs root\n\
         hint:  run it as root, or `cargo xtask test`, which needs none"
    ))
}

/// First line of what a command prints, or `unknown`: for reports only.
pub(crate) fn ask(program: &str, args: &[&str]) -> String {
    let answer = Command::new(program).args(args).current_dir(root()).output();
    let text = answer.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default();
    text.lines().next().map_or("unknown".into(), str::to_owned)
}
