//! The program against its reference pages. Flags and keys are defined once, in the program, which prints the
//! tables made from them: `beamport reference PAGE`. A page is an introduction written by hand and then those tables,
//! byte for byte; the first heading of second order is where they begin.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::verdict;
use crate::{Done, tree};

/// The pages that the program makes, as `docs/reference/PAGE.md`.
const PAGES: [&str; 3] = ["cli", "instrument-file", "workers"];

/// Compares every page with what the program at `beamport` prints.
pub(crate) fn check(beamport: &Path) -> Done {
    let mut complaints = Vec::new();
    for page in PAGES {
        let path = path(page);
        let tables = tables(beamport, page)?;
        match fs::read_to_string(tree::root().join(&path)) {
            Ok(text) => complaints.extend(difference(&text, &tables).map(|what| format!("{path}: {what}"))),
            Err(e) => complaints.push(format!("{path}: {e}")),
        }
    }
    if !complaints.is_empty() {
        complaints.push("hint:  `cargo xtask tidy --write` renews the pages".into());
    }
    verdict(complaints)
}

/// Writes the tables into the pages, below their introductions.
pub(crate) fn write(beamport: &Path) -> Done {
    for page in PAGES {
        let path = tree::root().join(path(page));
        let tables = tables(beamport, page)?;
        let text = fs::read_to_string(&path)
            .map_err(|e| format!("{}: {e}\nhint:  write its title and introduction first", path.display()))?;
        fs::write(&path, format!("{}{tables}", introduction(&text))).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

fn path(page: &str) -> String {
    format!("docs/reference/{page}.md")
}

fn tables(beamport: &Path, page: &str) -> Done<String> {
    let asked = Command::new(beamport).args(["reference", page]).output();
    let answer = asked.map_err(|e| format!("{}: {e}", beamport.display()))?;
    if !answer.status.success() {
        let cause = String::from_utf8_lossy(&answer.stderr).into_owned();
        return Err(format!("`beamport reference {page}` failed: {}", cause.trim()));
    }
    String::from_utf8(answer.stdout).map_err(|e| format!("`beamport reference {page}`: {e}"))
}

/// The text above the tables.
fn introduction(text: &str) -> &str {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if line.starts_with("## ") {
            return &text[..at];
        }
        at += line.len();
    }
    text
}

/// The first line in which a page is not what the program says.
fn difference(text: &str, tables: &str) -> Option<String> {
    let above = introduction(text);
    let below = &text[above.len()..];
    if below == tables {
        return None;
    }
    let first = above.lines().count() + 1;
    let same = below.lines().zip(tables.lines()).take_while(|(ours, theirs)| ours == theirs).count();
    let ours = below.lines().nth(same).unwrap_or("nothing");
    let theirs = tables.lines().nth(same).unwrap_or("nothing");
    Some(format!("line {}: is `{ours}`, the program says `{theirs}`", first + same))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLES: &str = "## demo\n\n| `--rate` | events |\n";

    #[test]
    fn a_page_is_an_introduction_and_the_tables() {
        assert_eq!(difference(&format!("# Command line\n\nWords.\n\n{TABLES}"), TABLES), None);
    }

    #[test]
    fn a_flag_that_is_not_on_the_page_is_named_with_its_line() {
        let text = "# Command line\n\n## demo\n\n";
        let what = difference(text, TABLES).unwrap_or_default();
        assert_eq!(what, "line 5: is `nothing`, the program says `| `--rate` | events |`");
    }

    #[test]
    fn a_flag_that_is_gone_is_named_too() {
        let what = difference(&format!("{TABLES}| `--old` | gone |\n"), TABLES).unwrap_or_default();
        assert!(what.contains("`--old`") && what.contains("`nothing`"), "{what}");
    }

    #[test]
    fn an_introduction_ends_at_the_first_table() {
        assert_eq!(introduction("# A\nb\n## c\n## d\n"), "# A\nb\n");
        assert_eq!(introduction("# A\n### b\n"), "# A\n### b\n");
    }
}
