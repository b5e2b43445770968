//! What may only become fewer: long functions, long files, long lines, numbers that are limits but do not stand in
//! `limits.rs`, and lines of comments and strings with words that the note on style forbids. `ratchet.txt` has those
//! that there are: a function and a file by name, lines and numbers as a count for each crate. A new one is a
//! complaint, and so is one that has gone and is still listed: the list is always exact.
//!
//! `cargo xtask tidy --write` renews the list. It follows what moved, and refuses what grew.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{code, words};
use crate::Done;

/// Lines of a function: what fits on a screen.
const FUNCTION_LINES_MAX: usize = 70;
/// Lines of a file: what is read in one sitting.
const FILE_LINES_MAX: usize = 800;
/// Columns of a line; rustfmt leaves longer comments and strings as they are.
const COLUMNS_MAX: usize = 120;

/// Where the list is.
const LIST: &str = "xtask/src/tidy/ratchet.txt";
const HEAD: &str = "\
# Functions above 70 lines, files above 800, lines above 120 columns, constants outside of limits.rs (numbers and
# durations of shipped crates), and lines of comments and strings with words that CONTRIBUTING forbids may only become
# fewer. `cargo xtask tidy --write` renews this list and raises nothing.
";
/// Crates that no wheel holds: their constants are nobody's limits.
const NOT_SHIPPED: [&str; 2] = ["bench", "testkit"];
/// Types of constants that can be limits.
const NUMBERS: [&str; 15] =
    ["u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f32", "f64", "Duration"];

/// A kind of exception that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Columns,
    Constants,
    File,
    Function,
    Words,
}

const KINDS: [Kind; 5] = [Kind::Columns, Kind::Constants, Kind::File, Kind::Function, Kind::Words];

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Columns => "columns",
            Self::Constants => "constants",
            Self::File => "file",
            Self::Function => "function",
            Self::Words => "words",
        }
    }

    /// Whether the list names each, instead of a count.
    fn is_named(self) -> bool {
        matches!(self, Self::File | Self::Function)
    }

    /// Describes an exception too many, and its remedy.
    fn cure(self) -> String {
        match self {
            Self::Columns => format!("lines above {COLUMNS_MAX} columns: break them"),
            Self::Constants => "constants outside of limits.rs: move them there, each with its reason".into(),
            Self::File => format!("more than {FILE_LINES_MAX} lines: move a part into a module of its own"),
            Self::Function => format!("more than {FUNCTION_LINES_MAX} lines: split it"),
            Self::Words => "lines of comments and strings with words that CONTRIBUTING's note on style forbids".into(),
        }
    }
}

/// How many there are of a kind under a name: a crate, a file, or a file and a function in it.
type Counts = BTreeMap<(Kind, String), usize>;

/// The exceptions, and their places.
#[derive(Debug, Default)]
struct Found {
    counts: Counts,
    /// File and line of each.
    places: BTreeMap<(Kind, String), Vec<(PathBuf, usize)>>,
}

impl Found {
    fn add(&mut self, kind: Kind, name: &str, path: &Path, line: usize) {
        let key = (kind, name.to_owned());
        *self.counts.entry(key.clone()).or_default() += 1;
        self.places.entry(key).or_default().push((path.to_owned(), line));
    }
}

/// Complaints about what is not as the list has it.
pub(super) fn check(root: &Path, files: &[PathBuf]) -> Vec<String> {
    match fs::read_to_string(root.join(LIST)) {
        Ok(text) => compare(&listed(&text), &found(root, files), &added(root)),
        Err(e) => vec![format!("{LIST}: {e}")],
    }
}

/// Renews the list, if nothing grew.
pub(super) fn write(root: &Path, files: &[PathBuf]) -> Done {
    let text = fs::read_to_string(root.join(LIST)).map_err(|e| format!("{LIST}: {e}"))?;
    let (kept, found) = (listed(&text), found(root, files));
    if !grown(&kept, &found.counts).is_empty() {
        // The check that follows names the places.
        return Ok(());
    }
    fs::write(root.join(LIST), printed(&found.counts)).map_err(|e| format!("{LIST}: {e}"))
}

/// The list as text: one entry a line.
fn printed(counts: &Counts) -> String {
    let mut text = HEAD.to_owned();
    for ((kind, name), count) in counts {
        text += &match (kind.is_named(), count) {
            (true, 1) => format!("{} {name}\n", kind.word()),
            _ => format!("{} {name} {count}\n", kind.word()),
        };
    }
    text
}

fn listed(text: &str) -> Counts {
    let mut counts = Counts::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((word, rest)) = line.split_once(' ') else { continue };
        let Some(kind) = KINDS.into_iter().find(|kind| kind.word() == word) else { continue };
        let number = rest.rsplit_once(' ').and_then(|(name, number)| Some((name, number.parse().ok()?)));
        let (name, count) = number.unwrap_or((rest, 1));
        counts.insert((kind, name.to_owned()), count);
    }
    counts
}

/// What grew, whatever moved: the kinds of which there are more in all, and functions whose name the list has nowhere.
fn grown(kept: &Counts, now: &Counts) -> Vec<(Kind, String)> {
    let total = |counts: &Counts, of: Kind| -> usize {
        counts.iter().filter(|((kind, _), _)| *kind == of).map(|(_, count)| count).sum()
    };
    let last_word = |name: &str| name.rsplit(' ').next().unwrap_or_default().to_owned();
    let is_known = |function: &str| {
        kept.keys().any(|(kind, name)| *kind == Kind::Function && last_word(name) == last_word(function))
    };
    let more = |key: &(Kind, String)| now[key] > kept.get(key).copied().unwrap_or(0);
    let of_more = |kind: Kind| total(now, kind) > total(kept, kind);
    now.keys()
        .filter(|key| more(key) && (of_more(key.0) || key.0 == Kind::Function && !is_known(&key.1)))
        .cloned()
        .collect()
}

/// `added`: lines that came since the list was renewed, to find those that count.
fn compare(kept: &Counts, found: &Found, added: &BTreeMap<PathBuf, Vec<usize>>) -> Vec<String> {
    let grown = grown(kept, &found.counts);
    let mut complaints: Vec<String> = grown.iter().flat_map(|key| complain(key, kept, found, added)).collect();
    let names = kept.keys().chain(found.counts.keys());
    let is_other = |key: &&(Kind, String)| kept.get(*key) != found.counts.get(*key) && !grown.contains(*key);
    let mut others: Vec<_> = names.filter(is_other).collect();
    others.sort();
    others.dedup();
    for key in others {
        let count = |counts: &Counts| counts.get(key).copied().unwrap_or(0);
        complaints.push(format!(
            "{LIST}: `{} {}` is {} now, {} in the list; `cargo xtask tidy --write` renews it",
            key.0.word(),
            key.1,
            count(&found.counts),
            count(kept)
        ));
    }
    complaints
}

/// One complaint for a name, or one for each line that came to a count.
fn complain(key: &(Kind, String), kept: &Counts, found: &Found, added: &BTreeMap<PathBuf, Vec<usize>>) -> Vec<String> {
    let (kind, name) = key;
    let places = &found.places[key];
    if kind.is_named() {
        let (path, line) = &places[0];
        let what = name.rsplit_once(' ').map(|(_, function)| format!("`{function}` has ")).unwrap_or_default();
        return vec![format!("{}:{line}: {what}{}", path.display(), kind.cure())];
    }
    let is_new = |(path, line): &&(PathBuf, usize)| added.get(path).is_some_and(|lines| lines.contains(line));
    let new: Vec<String> =
        places.iter().filter(is_new).map(|(path, line)| format!("{}:{line}", path.display())).collect();
    let before = kept.get(key).copied().unwrap_or(0);
    let mut text = format!("crates/{name}: {} {}; at most {before}", found.counts[key], kind.cure());
    if !new.is_empty() {
        text += &format!("; new: {}", new.join(", "));
    }
    vec![text]
}

/// Everything that counts in these files.
fn found(root: &Path, files: &[PathBuf]) -> Found {
    let mut found = Found::default();
    let is_rust = |path: &Path| path.extension().is_some_and(|ext| ext == "rs");
    for path in files.iter().filter(|path| is_rust(path) || words::is_code(path)) {
        // A file that is gone from the tree.
        let Ok(text) = fs::read_to_string(root.join(path)) else { continue };
        if is_rust(path) {
            count(path, &text, &mut found);
        }
        if words::is_code(path) {
            for line in words::in_code(path, &text) {
                found.add(Kind::Words, &crate_of(path), path, line);
            }
        }
    }
    found
}

/// The crate of a file, or its folder at the root.
fn crate_of(path: &Path) -> String {
    let mut parts = path.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
    parts.find(|part| part != "crates").unwrap_or_default()
}

fn count(path: &Path, text: &str, found: &mut Found) {
    let name = path.display().to_string();
    let krate = crate_of(path);
    let lines = text.lines().count();
    if lines > FILE_LINES_MAX {
        found.add(Kind::File, &name, path, lines);
    }
    for (index, line) in text.lines().enumerate() {
        if line.chars().count() > COLUMNS_MAX {
            found.add(Kind::Columns, &krate, path, index + 1);
        }
    }
    let plain = code::plain(text);
    for function in code::functions(&plain).iter().filter(|function| function.lines > FUNCTION_LINES_MAX) {
        found.add(Kind::Function, &format!("{name} {}", function.name), path, function.line);
    }
    let is_shipped = path.starts_with("crates") && !NOT_SHIPPED.contains(&krate.as_str());
    let is_source = path.components().nth(2).is_some_and(|folder| folder.as_os_str() == "src") && !code::is_test(path);
    if is_shipped && is_source && path.file_stem().is_some_and(|stem| stem != "limits") {
        for (index, line) in code::without_tests(&plain).lines().enumerate() {
            if is_number(line) {
                found.add(Kind::Constants, &krate, path, index + 1);
            }
        }
    }
}

/// Whether a line defines a constant that can be a limit.
fn is_number(line: &str) -> bool {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) => rest.trim_start_matches(|c| c != ' ').trim_start(),
        None => line,
    };
    let Some((name, value)) = line.strip_prefix("const ").and_then(|rest| rest.split_once(": ")) else { return false };
    let of_type = value.split([' ', ';']).next().unwrap_or_default();
    let of_type = of_type.rsplit("::").next().unwrap_or_default();
    name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_') && NUMBERS.contains(&of_type)
}

/// Lines of each file that came since the list was last renewed in a commit. Where git does not answer, none.
fn added(root: &Path) -> BTreeMap<PathBuf, Vec<usize>> {
    let git = |args: &[&str]| {
        let answer = Command::new("git").args(args).current_dir(root).output().ok()?;
        answer.status.success().then(|| String::from_utf8_lossy(&answer.stdout).into_owned())
    };
    let commit = git(&["log", "-1", "--format=%H", "--", LIST]).unwrap_or_default();
    let commit = commit.trim();
    let args = ["diff", "--unified=0", "--no-color", "--no-ext-diff", "--src-prefix=a/", "--dst-prefix=b/", commit];
    let diff = if commit.is_empty() { None } else { git(&args) };
    added_in(&diff.unwrap_or_default())
}

fn added_in(diff: &str) -> BTreeMap<PathBuf, Vec<usize>> {
    let mut added: BTreeMap<PathBuf, Vec<usize>> = BTreeMap::new();
    let mut path = PathBuf::new();
    for line in diff.lines() {
        if let Some(name) = line.strip_prefix("+++ b/") {
            path = name.into();
        } else if let Some(rest) = line.strip_prefix("@@ -") {
            // `@@ -FROM,COUNT +FROM,COUNT @@`; a count of one is left out.
            let new = rest.split(" +").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
            let (from, count) = new.split_once(',').unwrap_or((new, "1"));
            let (from, count): (usize, usize) = (from.parse().unwrap_or(0), count.parse().unwrap_or(0));
            added.entry(path.clone()).or_default().extend(from..from + count);
        }
    }
    added
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(lines: usize) -> String {
        format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    fn of(files: &[(&str, &str)]) -> Found {
        let mut found = Found::default();
        for (path, text) in files {
            count(Path::new(path), text, &mut found);
        }
        found
    }

    fn complaints(list: &str, files: &[(&str, &str)]) -> Vec<String> {
        compare(&listed(list), &of(files), &BTreeMap::new())
    }

    #[test]
    fn a_function_of_71_lines_is_found_and_one_of_70_is_not() {
        assert_eq!(complaints("", &[("crates/a/src/b.rs", &function(70))]), [""; 0]);
        let found = complaints("", &[("crates/a/src/b.rs", &function(71))]);
        assert_eq!(found, ["crates/a/src/b.rs:1: `f` has more than 70 lines: split it"]);
        assert_eq!(complaints("function crates/a/src/b.rs f\n", &[("crates/a/src/b.rs", &function(71))]), [""; 0]);
    }

    #[test]
    fn a_file_of_801_lines_is_found() {
        let text = "\n".repeat(801);
        let found = complaints("", &[("crates/a/tests/b.rs", &text), ("crates/a/src/b.rs", &text[1..])]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/a/tests/b.rs:801: more than 800 lines"), "{found:?}");
    }

    #[test]
    fn columns_are_characters_and_not_bytes() {
        let text = format!("// {}\n// {}\n", "ä".repeat(117), "ä".repeat(118));
        assert_eq!(of(&[("xtask/src/b.rs", &text)]).counts[&(Kind::Columns, "xtask".into())], 1);
    }

    #[test]
    fn constants_count_where_they_can_be_limits_of_what_is_shipped() {
        let text = "pub(crate) const A_MAX: u64 = 1;\nconst B: std::time::Duration = C;\nconst D: &str = \"e\";\n\
                    pub const fn f() {}\nconst E: [u8; 2] = [1; 2];\n#[cfg(test)]\nmod tests {\n\
                    \x20   const F: u8 = 1;\n}\n";
        let count = |path: &str| of(&[(path, text)]).counts.get(&(Kind::Constants, "a".into())).copied();
        assert_eq!(count("crates/a/src/b.rs"), Some(2));
        assert_eq!(count("crates/a/src/limits.rs"), None);
        assert_eq!(count("crates/a/src/b/tests.rs"), None);
        assert_eq!(count("crates/a/tests/b.rs"), None);
        assert_eq!(of(&[("crates/bench/src/b.rs", text)]).counts.len(), 0);
    }

    #[test]
    fn growth_is_refused_with_the_lines_that_came() {
        let text = "const A: u8 = 1;\nconst B: u8 = 1;\n";
        let added = added_in("--- a/crates/a/src/b.rs\n+++ b/crates/a/src/b.rs\n@@ -1,0 +2 @@\n+const B\n");
        let (kept, found) = (listed("constants a 1\n"), of(&[("crates/a/src/b.rs", text)]));
        let complaints = compare(&kept, &found, &added);
        assert_eq!(complaints.len(), 1);
        assert!(
            complaints[0].starts_with("crates/a: 2 constants")
                && complaints[0].ends_with("at most 1; new: crates/a/src/b.rs:2"),
            "{complaints:?}"
        );
    }

    #[test]
    fn what_has_gone_leaves_the_list() {
        let found = complaints("columns a 1\nfile crates/a/src/b.rs\n", &[("crates/a/src/b.rs", "\n")]);
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|text| text.contains("`cargo xtask tidy --write`")), "{found:?}");
        assert!(grown(&listed("columns a 2\n"), &listed("columns a 1\n")).is_empty());
    }

    #[test]
    fn what_moves_is_renewed_and_what_is_new_is_not() {
        let now = listed("columns b 2\nfunction crates/b/src/d.rs f\n");
        assert!(grown(&listed("columns a 2\nfunction crates/a/src/c.rs f\n"), &now).is_empty());
        // One has gone, another came.
        let kept = listed("columns b 1\ncolumns a 1\nfunction crates/a/src/c.rs g\n");
        assert_eq!(grown(&kept, &now), [(Kind::Function, "crates/b/src/d.rs f".to_owned())]);
        assert_eq!(grown(&listed("columns a 1\nfunction crates/b/src/d.rs f\n"), &now).len(), 1);
    }

    #[test]
    fn a_list_is_read_as_it_is_printed() {
        let text = "columns a 3\nconstants a 2\nfile crates/a/src/b.rs\nfunction crates/a/src/b.rs f\n\
                    function crates/a/src/b.rs g 2\n";
        assert_eq!(printed(&listed(text)), format!("{HEAD}{text}"));
    }
}
