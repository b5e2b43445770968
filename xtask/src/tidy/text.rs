//! Rules for every file that is text: its end, its words, its name, and the length of README.md.

use std::fs;
use std::path::{Path, PathBuf};

/// Lines of README.md: what fits on two screens is read.
const README_LINES_MAX: usize = 80;

/// How the names of files begin that are kept as their package has them; `check` compares the bytes.
const VENDORED: &str = "crates/web/page/uPlot.";

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 8] = ["util", "utils", "common", "manager", "helper", "helpers", "base", "misc"];

/// Words after which a name of ours follows, and the ends of names that say nothing.
const KEYWORDS: [&str; 5] = ["mod ", "struct ", "enum ", "trait ", "class "];
const EMPTY_ENDS: [&str; 4] = ["Manager", "Helper", "Utils", "Base"];

/// Texts that do not belong in the repository, in halves so that this file is not its own first complaint.
const BANNED: [(&str, &str, &str); 8] = [
    ("TO", "DO", "unfinished: finish it, or write it into an issue"),
    ("FIX", "ME", "unfinished: finish it, or write it into an issue"),
    ("artifact", "ory", "names a registry host"),
    ("index.crates", ".io", "names a registry host"),
    ("pypi", ".org", "names a registry host"),
    ("files.python", "hosted", "names a registry host"),
    ("registry.npm", "js", "names a registry host"),
    ("/wo", "rk/", "names a folder of one machine"),
];

/// The files that may send SIGSTOP: their functions wait for the stop.
const STOPS: [&str; 3] = ["tests/signals.py", "crates/store/tests/processes.rs", "xtask/src/tidy/text.rs"];

/// The only registry that Cargo.lock may name: cargo's own word for the default one.
const SOURCE: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";

pub(super) fn check(root: &Path, files: &[PathBuf]) -> Vec<String> {
    let mut complaints = Vec::new();
    for path in files {
        // A file that is gone from the tree, a link, or bytes that are no text: nothing to say.
        let Ok(bytes) = fs::read(root.join(path)) else {
            continue;
        };
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        };
        if !text.contains('\0') && !path.to_string_lossy().starts_with(VENDORED) {
            complaints.extend(file(path, &text));
        }
    }
    complaints
}

/// Complaints about one file.
fn file(path: &Path, text: &str) -> Vec<String> {
    let name = path.display();
    let mut complaints = Vec::new();
    if path == Path::new("Cargo.lock") {
        for line in text.lines().filter(|line| line.starts_with("source = ") && *line != SOURCE) {
            complaints.push(format!("{name}: a dependency from elsewhere than crates.io: {line}"));
        }
        return complaints;
    }
    if !text.is_empty() && !text.ends_with('\n') {
        complaints.push(format!("{name}: does not end with a newline"));
    }
    if path == Path::new("README.md") && text.lines().count() > README_LINES_MAX {
        complaints.push(format!("{name}: {} lines, at most {README_LINES_MAX}", text.lines().count()));
    }
    let stem = path.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
    if path.components().map(|part| part.as_os_str().to_string_lossy()).chain([stem]).any(|part| is_empty_name(&part)) {
        complaints.push(format!("{name}: the name does not say what is inside"));
    }
    let code = path.extension().is_some_and(|ext| ext == "rs" || ext == "py");
    for (index, line) in text.lines().enumerate() {
        let at = index + 1;
        for (half, other, why) in BANNED {
            if has_word(line, &format!("{half}{other}")) {
                complaints.push(format!("{name}:{at}: {why}"));
            }
        }
        // A process may stop itself.
        let stops = code && line.contains("SIGSTOP") && !line.contains("getpid()");
        if stops && !STOPS.iter().any(|file| path == Path::new(file)) {
            complaints.push(format!("{name}:{at}: the process runs on for a while; `signals.stop` waits for its stop"));
        }
        if code && let Some(named) = empty_name_in(line) {
            complaints.push(format!("{name}:{at}: `{named}` does not say what it is"));
        }
    }
    complaints
}

fn is_empty_name(name: &str) -> bool {
    EMPTY_NAMES.contains(&name)
}

/// Whether `line` has `word`, and not as the middle of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_ascii_alphanumeric())
    })
}

/// The name that a line of code gives to something, if it says nothing.
fn empty_name_in(line: &str) -> Option<&str> {
    let mut line = line.trim_start();
    if let Some(rest) = line.strip_prefix("pub") {
        // `pub`, or `pub(crate)` and its like.
        line = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(rest, |(_, rest)| rest).trim_start();
    }
    let rest = KEYWORDS.into_iter().find_map(|keyword| line.strip_prefix(keyword))?;
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    (is_empty_name(name) || EMPTY_ENDS.iter().any(|end| name.ends_with(end))).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> usize {
        file(Path::new(path), text).len()
    }

    #[test]
    fn a_tidy_file_has_no_complaints() {
        assert_eq!(complaints("crates/store/src/segment.rs", "//! Segments.\npub(crate) struct Segment;\n"), 0);
        assert_eq!(complaints("docs/reference/cli.md", "The database of the base unit.\n"), 0);
    }

    #[test]
    fn each_rule_bites() {
        assert_eq!(complaints("a.md", "no newline"), 1);
        assert_eq!(complaints("crates/flow/src/utils.rs", "\n"), 1);
        assert_eq!(complaints("python/beamport/common/x.py", "\n"), 1);
        assert_eq!(complaints("a.rs", "pub(crate) struct StreamManager;\n"), 1);
        assert_eq!(complaints("a.rs", "pub mod helpers;\n"), 1);
        assert_eq!(complaints("a.rs", &format!("// {}{}: later\n", "TO", "DO")), 1);
        assert_eq!(complaints("a.py", "os.kill(pid, signal.SIGSTOP)\n"), 1);
        assert_eq!(complaints("a.py", "os.kill(os.getpid(), signal.SIGSTOP)\n"), 0);
        assert_eq!(complaints("README.md", &"line\n".repeat(README_LINES_MAX + 1)), 1);
        assert_eq!(complaints("Cargo.lock", "source = \"git+https://example.org/x\"\n"), 1);
        assert_eq!(complaints("a.md", &format!("see {}{}main\n", "/wo", "rk/")), 1);
    }

    #[test]
    fn a_word_inside_another_is_left_alone() {
        assert!(!has_word("frame/work/main", &format!("{}{}", "/wo", "rk/")));
        assert_eq!(empty_name_in("struct Database;"), None);
    }
}
