//! The whole command line as people see it: what is typed, what comes out, the exit status.
//!
//! Each `tests/cli/NAME.txt` begins with `$ beamport ...`, run in a copy of `tests/cli/files`; then follow
//! stdout, stderr and the exit status. `BLESS=1 cargo test -p beamport --test all cli` writes them anew.

use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cli")
}

/// Words of a command line; single quotes hold words together.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (n, part) in line.split('\'').enumerate() {
        match n % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

/// Runs a line such as `$ beamport check a.toml` and tells it as a snapshot does.
fn told(line: &str, place: &Path) -> String {
    let words =
        words(line.strip_prefix("$ beamport").unwrap_or_else(|| panic!("`{line}` does not begin with `$ beamport`")));
    let mut command = Command::new(env!("CARGO_BIN_EXE_beamport"));
    // Nothing of the machine that runs the test may change the answer.
    command.args(words).current_dir(place).env_clear();
    let output = command.output().expect("beamport starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(&place.display().to_string(), "[FOLDER]");
    let status = output.status.code().map_or("killed".to_owned(), |code| code.to_string());
    format!(
        "{line}\n--- stdout\n{}--- stderr\n{}--- exit status {status}\n",
        text(&output.stdout),
        text(&output.stderr)
    )
}

/// A copy of the files of the snapshots, so that nothing that runs can change them.
fn copied(name: &str) -> PathBuf {
    let place = std::env::temp_dir().join(format!("beamport-cli-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&place).unwrap();
    for entry in std::fs::read_dir(folder().join("files")).unwrap().map(Result::unwrap) {
        std::fs::copy(entry.path(), place.join(entry.file_name())).unwrap();
    }
    pretend_writer(&place.join("writer"));
    place.canonicalize().unwrap()
}

/// Stands in for `beamport-nexus`, whose answers are tested with it: it finds one mistake in each template.
fn pretend_writer(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let version = format!("beamport-nexus {} (a pretended one)", env!("CARGO_PKG_VERSION"));
    let mistake = flow::checked::Mistake {
        line: 3,
        cause: "it is not valid JSON: key must be a string, at column 39".into(),
        hint: "remove the comma".into(),
        ..flow::checked::Mistake::default()
    };
    let answer = flow::checked::Checked { mistakes: vec![mistake], modules: Vec::new() };
    let answer = serde_json::to_string(&answer).unwrap();
    let script = format!("#!/bin/sh\n[ \"$1\" = --version ] && echo '{version}' || echo '{answer}'\n");
    std::fs::write(path, script).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn snapshots() -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|end| end == "txt")).collect();
    files.sort();
    files
}

#[test]
fn the_command_line_answers_as_written_down() {
    let place = copied("answers");
    let files = snapshots();
    assert!(files.len() >= 20, "only {} snapshots", files.len());
    let mut different = Vec::new();
    for file in &files {
        let expected = std::fs::read_to_string(file).unwrap();
        let now = told(expected.lines().next().unwrap_or_default(), &place);
        if now != expected && std::env::var_os("BLESS").is_some() {
            std::fs::write(file, &now).unwrap();
        } else if now != expected {
            different.push(format!("{} says\n{expected}but the program says\n{now}", file.display()));
        }
    }
    std::fs::remove_dir_all(&place).unwrap();
    assert!(
        different.is_empty(),
        "{}\nif the program is right: BLESS=1 cargo test -p beamport --test all cli",
        different.join("\n")
    );
}

#[test]
fn the_help_of_every_verb_is_written_down() {
    let lines: Vec<String> = snapshots()
        .iter()
        .map(|file| std::fs::read_to_string(file).unwrap().lines().next().unwrap_or_default().to_owned())
        .collect();
    for (name, _) in beamport::cli::leaves() {
        let line = format!("$ beamport {name} --help");
        assert!(lines.contains(&line), "no file in tests/cli begins with `{line}`");
    }
}

#[test]
fn every_file_of_the_snapshots_is_used() {
    let texts: Vec<String> = snapshots().iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    for entry in std::fs::read_dir(folder().join("files")).unwrap().map(Result::unwrap) {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(texts.iter().any(|text| text.contains(&name)), "tests/cli/files/{name} is used nowhere");
    }
}

#[test]
fn the_reference_page_has_every_flag_and_no_other() {
    let page = std::fs::read_to_string(folder().join("../../docs/reference/cli.md")).unwrap();
    let reference = beamport::cli::reference();
    assert!(
        page.ends_with(&reference),
        "docs/reference/cli.md differs from `beamport reference cli`: replace everything below its introduction"
    );
    for (name, verb) in beamport::cli::leaves() {
        let section =
            reference.split("\n## ").find(|part| part.trim_start_matches("## ").starts_with(&format!("{name}\n")));
        let section = section.unwrap_or_else(|| panic!("no section for {name}"));
        let shown = verb.get_arguments().filter(|arg| !arg.is_hide_set());
        for long in shown.filter_map(clap::Arg::get_long).filter(|long| *long != "help") {
            assert!(section.contains(&format!("`--{long}")), "{name} --{long}");
        }
    }
}
