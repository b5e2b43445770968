//! Phrases that texts must not have, each with the better one, and the length of lines of CHANGELOG.md. Texts for users
//! are the documentation, and output of the program in `tests/cli`; comments and strings of code are in the ratchet.
//! CONTRIBUTING.md has the note on style.

use super::code;
use std::fs;
use std::path::{Path, PathBuf};

/// Characters of a line of CHANGELOG.md: a change is one sentence, its details are in the documentation.
const CHANGELOG_CHARS_MAX: usize = 200;

/// What is written, in lower case, and what to write. Only phrases that are never right: a word is not found in others.
const PHRASES: [(&str, &str); 39] = [
    ("answer is no", "name what was found: loss, damage, a difference"),
    ("are told", "are reported"),
    ("are whole", "are complete, are intact"),
    ("begin anew", "restart"),
    ("begins anew", "restarts"),
    ("begun anew", "restarted"),
    ("come again", "repeat; of an error: is permanent"),
    ("comes again", "repeats; of an error: is permanent"),
    ("concerns nobody", "is not counted"),
    ("dies of", "crashes on"),
    ("for so long ago", "for 10 s ago"),
    ("go aside", "are moved to `NAME.aside`, are set aside"),
    ("go on with", "resume, continue"),
    ("goes aside", "is moved to `NAME.aside`, is set aside"),
    ("goes on with", "resumes, continues"),
    ("gone on with", "resumed"),
    ("in one's own words", "as text"),
    ("instruments that do not exist", "simulated instruments"),
    ("is as it was", "is unchanged"),
    ("is no json", "is not valid JSON"),
    ("is perhaps", "may be"),
    ("is said", "is reported"),
    ("is told", "is reported"),
    ("is whole", "is complete, is intact"),
    ("let go", "release, free, retire, delete"),
    ("lets go", "releases, frees, retires, deletes"),
    ("letting go", "releasing, freeing, deleting"),
    ("made anew", "made again, recreated"),
    ("made good", "repaired"),
    ("make good", "repair"),
    ("of which nobody", "that nothing"),
    ("stand aside", "be set aside"),
    ("stands aside", "is set aside"),
    ("who holds", "the holder of"),
    ("who may not", "a reader that cannot"),
    ("whoever is killed", "whatever is killed, whichever process is killed"),
    ("went aside", "were moved to `NAME.aside`, were set aside"),
    ("will not come back", "has ended"),
    ("written anew", "written again"),
];

/// Words that begin a sentence without a subject, unless it is a question.
const HEADLESS: [&str; 2] = ["Who ", "What "];

/// Texts that users read: pages, and what the program prints.
fn is_for_users(path: &Path) -> bool {
    let name = path.to_string_lossy();
    let page = name.ends_with(".md") && (name.starts_with("docs/") || name == "bench/README.md");
    let snapshot = name.ends_with(".txt") && name.starts_with("tests/cli/");
    page || snapshot || ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "GLOSSARY.md"].contains(&name.as_ref())
}

pub(super) fn check(root: &Path, files: &[PathBuf]) -> Vec<String> {
    let mut complaints = Vec::new();
    for path in files.iter().filter(|path| is_for_users(path)) {
        // A file that is gone from the tree: nothing to check.
        let Ok(text) = fs::read_to_string(root.join(path)) else { continue };
        complaints.extend(file(path, &text));
    }
    complaints
}

/// Complaints about one text.
fn file(path: &Path, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        let at = format!("{}:{}", path.display(), index + 1);
        if path == Path::new("CHANGELOG.md") && line.chars().count() > CHANGELOG_CHARS_MAX {
            complaints.push(format!("{at}: {} characters, at most {CHANGELOG_CHARS_MAX}", line.chars().count()));
        }
        let lower = line.to_lowercase();
        for (phrase, better) in PHRASES {
            if has_phrase(&lower, phrase) {
                complaints.push(format!("{at}: `{phrase}`; write: {better}"));
            }
        }
        in_code ^= line.trim_start().starts_with("```");
        if !in_code && let Some(sentence) = headless(line) {
            complaints.push(format!("{at}: `{sentence}...` has no noun as its subject"));
        }
    }
    complaints
}

/// The marks of a comment, at the beginning of a line.
const MARKS: [&str; 8] = ["///", "//!", "//", "/**", "/*", "*", "#", "\"\"\""];

/// Whether a file is code whose comments and strings are read: of the crates and of this program, of the Python
/// package, of the page and of the C++ part. The lists of this file are what it looks for.
pub(super) fn is_code(path: &Path) -> bool {
    let is_language = path.extension().and_then(|ext| ext.to_str()).is_some_and(|ext| {
        ["rs", "py", "js", "cpp", "hpp", "h"].contains(&ext) && !path.to_string_lossy().contains("/uPlot.")
    });
    let is_ours = ["crates", "python", "xtask"].into_iter().any(|folder| path.starts_with(folder));
    is_language && is_ours && path != Path::new("xtask/src/tidy/words.rs")
}

/// The lines, from 1, of which a comment or a string has a phrase, or a comment a sentence without a subject.
pub(super) fn in_code(path: &Path, text: &str) -> Vec<usize> {
    let is_python = path.extension().is_some_and(|ext| ext == "py");
    let prose = if is_python { text.to_owned() } else { code::prose(text) };
    let is_wrong = |line: &str| {
        let line = line.trim();
        let line = MARKS.into_iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or(line).trim_start();
        let lower = line.to_lowercase();
        PHRASES.into_iter().any(|(phrase, _)| has_phrase(&lower, phrase)) || headless(line).is_some()
    };
    (1..).zip(prose.lines()).filter(|(_, line)| is_wrong(line)).map(|(number, _)| number).collect()
}

/// Whether `line` has `phrase` as whole words.
fn has_phrase(line: &str, phrase: &str) -> bool {
    line.match_indices(phrase).any(|(at, _)| {
        let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !is_letter(line[..at].chars().next_back()) && !is_letter(line[at + phrase.len()..].chars().next())
    })
}

/// The first words of a sentence whose subject is a clause. Exempt are headings, labels (they end with a colon), and
/// cells of tables.
fn headless(line: &str) -> Option<&str> {
    if line.starts_with('#') {
        return None;
    }
    let begins = |at: usize| {
        let before = line[..at].trim_end_matches(['*', '_', ' ']);
        // The first of a line, of an item of a list, or after another sentence.
        before.is_empty() || before.ends_with(['.', ')', '?', '!', '-']) && before.len() < at
    };
    HEADLESS.into_iter().find_map(|word| {
        line.match_indices(word).find_map(|(at, _)| {
            let rest = &line[at..];
            let end = rest.find(['.', '?', ':', ';', '|']).map(|end| &rest[end..=end]);
            let first_words = rest.char_indices().nth(30).map_or(rest, |(end, _)| &rest[..end]);
            (begins(at) && !matches!(end, Some("?" | ":"))).then_some(first_words)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        file(Path::new(path), text)
    }

    #[test]
    fn a_phrase_is_found_with_the_better_one() {
        let text = "Rows are sorted.\nThe reader Lets go of it.\n";
        let said = complaints("docs/a.md", text);
        assert_eq!(said, ["docs/a.md:2: `lets go`; write: releases, frees, retires, deletes"]);
        assert!(complaints("docs/a.md", "The outlets gone, violet gold remains.\n").is_empty());
    }

    #[test]
    fn a_sentence_without_a_subject_is_found() {
        for bad in [
            "What is late is counted.",
            "* Who reads it waits.",
            "It ends. What came is kept, all of it.",
            "**Who writes** waits.",
        ] {
            assert_eq!(complaints("docs/a.md", bad).len(), 1, "{bad}");
        }
        for good in
            ["# What blocks what", "What is a run?", "What to do: begin.", "It says What.", "| `level` | What it is. |"]
        {
            assert!(complaints("docs/a.md", good).is_empty(), "{good}");
        }
        assert!(complaints("docs/a.md", "```\nWhat is typed is read.\n```\n").is_empty());
    }

    #[test]
    fn a_change_is_one_line() {
        assert_eq!(complaints("CHANGELOG.md", &"x".repeat(CHANGELOG_CHARS_MAX + 1)).len(), 1);
        assert!(complaints("CHANGELOG.md", &"x".repeat(CHANGELOG_CHARS_MAX)).is_empty());
        assert!(complaints("docs/a.md", &"x".repeat(CHANGELOG_CHARS_MAX + 1)).is_empty());
    }

    #[test]
    fn comments_and_strings_of_code_are_read_and_code_is_not() {
        let text = "//! What is late is counted.\n/// It lets go.\n\
                    fn lets() { go(\"it is told\") } // Who reads waits.\n\
                    let is_told = 1; // What is it?\n";
        assert_eq!(in_code(Path::new("crates/a/src/b.rs"), text), [1, 2, 3]);
        let python = "def f():\n    \"\"\"What it returns is kept.\"\"\"\n    # It is told.\n    return what\n";
        assert_eq!(in_code(Path::new("python/a.py"), python), [2, 3]);
        for yes in ["crates/a/src/b.rs", "crates/web/page/a.js", "crates/epics/shim/a.hpp", "python/beamport/a.py"] {
            assert!(is_code(Path::new(yes)), "{yes}");
        }
        for no in ["docs/a.py", "crates/web/page/uPlot.iife.min.js", "xtask/src/tidy/words.rs", "crates/a/Cargo.toml"] {
            assert!(!is_code(Path::new(no)), "{no}");
        }
    }

    #[test]
    fn texts_for_users_are_known() {
        for yes in ["README.md", "docs/how-to/a.md", "tests/cli/help.txt", "bench/README.md"] {
            assert!(is_for_users(Path::new(yes)), "{yes}");
        }
        for no in ["CONTRIBUTING.md", "crates/a.rs", "tests/cli/files/a.toml", "bench/runs/a.txt"] {
            assert!(!is_for_users(Path::new(no)), "{no}");
        }
    }
}
