//! The crate map: which crates there are, which way the arrows point, and that ARCHITECTURE.md says so.
//!
//! The map is the table in ARCHITECTURE.md whose head begins with `crate`: one row a crate, its name in backquotes in
//! the first cell. A column `depends on`, where there is one, lists our crates in backquotes (or nothing).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const MAP: &str = "ARCHITECTURE.md";

/// The crates that a crate may depend on. Arrows point one way; an edge knows no other edge; a crate exists to forbid
/// the dependencies that it lacks. A new crate gets its line here, and the reason in ARCHITECTURE.md.
const ARROWS: [(&str, &[&str]); 18] = [
    ("settings", &[]),
    ("wire", &[]),
    ("store", &[]),
    ("flow", &["settings", "wire", "store"]),
    ("sim", &["settings", "wire", "store", "flow"]),
    ("workers", &["settings", "wire", "store", "flow"]),
    ("nexus", &["settings", "wire", "store", "flow"]),
    ("kafka", &["settings", "wire", "store", "flow"]),
    ("epics", &["settings", "wire", "store", "flow"]),
    ("udp", &["settings", "wire", "store", "flow"]),
    ("link", &["settings", "wire", "store", "flow"]),
    ("web", &["settings", "wire", "store", "flow"]),
    ("https", &["settings", "store", "flow"]),
    ("ess", &["settings", "wire", "store", "flow", "kafka", "epics", "sim"]),
    // Never nexus: HDF5 is linked by the program beamport-nexus alone.
    (
        "beamport",
        &[
            "settings", "wire", "store", "flow", "sim", "workers", "kafka", "epics", "udp", "link", "web", "https",
            "ess",
        ],
    ),
    // Measures the programs from outside: it starts them, and links none of them.
    ("bench", &["wire", "store", "flow", "workers"]),
    // Starts the program for everything else, so that no HDF5 meets the one of h5py.
    ("python", &["wire", "store", "flow", "workers"]),
    ("testkit", &["wire", "store", "flow", "sim"]),
];

/// The one crate that may be a development dependency, of any crate, and never more.
const DEVELOPMENT: &str = "testkit";

pub(super) fn check(root: &Path) -> Vec<String> {
    let mut complaints = Vec::new();
    let real = real(root, &mut complaints);
    arrows(&real, &mut complaints);
    match fs::read_to_string(root.join(MAP)) {
        Ok(text) => map(&text, &real, &mut complaints),
        Err(e) => complaints.push(format!("{MAP}: {e}")),
    }
    complaints
}

/// Our crates that one crate needs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Needs {
    always: BTreeSet<String>,
    in_tests: BTreeSet<String>,
}

/// The crates in `crates/`, by folder, and what their Cargo.toml say.
fn real(root: &Path, complaints: &mut Vec<String>) -> BTreeMap<String, Needs> {
    let mut real = BTreeMap::new();
    let folders = fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    let mut names: Vec<String> = folders.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    for name in &names {
        let path = format!("crates/{name}/Cargo.toml");
        match fs::read_to_string(root.join(&path)) {
            Ok(text) => {
                real.insert(name.clone(), needs(&text, &names));
            }
            Err(e) => complaints.push(format!("{path}: {e}")),
        }
        let src = root.join("crates").join(name).join("src");
        for file in ["lib.rs", "main.rs"].map(|file| src.join(file)) {
            if let Ok(text) = fs::read_to_string(&file)
                && !text.starts_with("//! ")
            {
                complaints.push(format!("{}: begins without //! documentation", relative(root, &file)));
            }
        }
    }
    real
}

fn relative(root: &Path, file: &Path) -> String {
    file.strip_prefix(root).unwrap_or(file).display().to_string()
}

/// Reads the dependency tables; our own Cargo.toml have one dependency a line.
fn needs(toml: &str, ours: &[String]) -> Needs {
    let mut needs = Needs::default();
    let mut table = "";
    for line in toml.lines() {
        let line = line.trim();
        if let Some(head) = line.strip_prefix('[') {
            table = head.trim_end_matches(']');
            continue;
        }
        let name = line.split(['=', '.', ' ']).next().unwrap_or("").trim_matches('"');
        let name = name.strip_prefix("beamport-").unwrap_or(name);
        if !ours.iter().any(|our| our == name) {
            continue;
        }
        if table.ends_with("dev-dependencies") {
            needs.in_tests.insert(name.to_owned());
        } else if table.ends_with("dependencies") {
            needs.always.insert(name.to_owned());
        }
    }
    needs
}

fn arrows(real: &BTreeMap<String, Needs>, complaints: &mut Vec<String>) {
    for (name, needs) in real {
        let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| known == name) else {
            complaints.push(format!("crates/{name}: has no arrows; give it a line in xtask/src/tidy/crates.rs"));
            continue;
        };
        for other in &needs.always {
            if !allowed.contains(&other.as_str()) {
                complaints.push(format!("crates/{name}/Cargo.toml: `{name}` must not depend on `{other}`"));
            }
        }
        for other in &needs.in_tests {
            if other != DEVELOPMENT {
                complaints
                    .push(format!("crates/{name}/Cargo.toml: only `{DEVELOPMENT}` helps in tests, not `{other}`"));
            }
        }
    }
}

/// Compares the table in ARCHITECTURE.md with the crates.
fn map(text: &str, real: &BTreeMap<String, Needs>, complaints: &mut Vec<String>) {
    let rows = rows(text);
    if rows.is_empty() {
        complaints.push(format!("{MAP}: has no table whose head begins with `crate`"));
        return;
    }
    for name in real.keys().filter(|name| !rows.contains_key(*name)) {
        complaints.push(format!("{MAP}: crate `{name}` is not in the map"));
    }
    for (name, said) in &rows {
        let Some(needs) = real.get(name) else {
            complaints.push(format!("{MAP}: crate `{name}` is in the map but not in crates/"));
            continue;
        };
        if let Some(said) = said
            && *said != needs.always
        {
            complaints.push(format!("{MAP}: crate `{name}` depends on {:?}, the map says {said:?}", needs.always));
        }
    }
}

/// Rows of the crate map: the crate, and what its column `depends on` says, if there is one.
fn rows(text: &str) -> BTreeMap<String, Option<BTreeSet<String>>> {
    let mut rows = BTreeMap::new();
    // Which column says `depends on`, while inside the table.
    let mut inside: Option<Option<usize>> = None;
    for line in text.lines() {
        let Some(row) = line.trim().strip_prefix('|') else {
            inside = None;
            continue;
        };
        let cells: Vec<&str> = row.trim_end_matches('|').split('|').map(str::trim).collect();
        match inside {
            None if cells.first().is_some_and(|cell| cell.eq_ignore_ascii_case("crate")) => {
                inside = Some(cells.iter().position(|cell| cell.eq_ignore_ascii_case("depends on")));
            }
            Some(column) => {
                if let Some(name) = cells.first().and_then(|cell| quoted(cell).into_iter().next()) {
                    let said = column.and_then(|column| cells.get(column));
                    rows.insert(name, said.map(|cell| quoted(cell).into_iter().collect()));
                }
            }
            None => (),
        }
    }
    rows
}

/// Words in backquotes.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(edges: &[(&str, &str)]) -> BTreeMap<String, Needs> {
        let names: Vec<String> = edges.iter().map(|(name, _)| (*name).to_owned()).collect();
        edges.iter().map(|(name, toml)| ((*name).to_owned(), needs(toml, &names))).collect()
    }

    #[test]
    fn an_arrow_that_points_back_is_refused() {
        let real = tree(&[("wire", ""), ("store", "[dependencies]\nwire.workspace = true\nlibc = \"0.2\"\n")]);
        let mut complaints = Vec::new();
        arrows(&real, &mut complaints);
        assert_eq!(complaints, ["crates/store/Cargo.toml: `store` must not depend on `wire`"]);
    }

    #[test]
    fn only_the_testkit_helps_in_tests() {
        let toml = "[dev-dependencies]\ntestkit.workspace = true\nbeamport-sim = { path = \"../sim\" }\n";
        let real = tree(&[("testkit", ""), ("sim", ""), ("nexus", toml)]);
        let mut complaints = Vec::new();
        arrows(&real, &mut complaints);
        assert_eq!(complaints, ["crates/nexus/Cargo.toml: only `testkit` helps in tests, not `sim`"]);
    }

    #[test]
    fn the_map_is_the_crates() {
        let real = tree(&[("wire", ""), ("store", ""), ("flow", "[dependencies]\nwire = \"1\"\nstore = \"1\"\n")]);
        let text = "| crate | depends on | forbids |\n|---|---|---|\n| `wire` | | clocks |\n\
                    | `flow` | `wire` | files |\n| `gone` | | |\n\n| word | means |\n|---|---|\n| `run` | a |\n";
        let mut complaints = Vec::new();
        map(text, &real, &mut complaints);
        assert_eq!(complaints.len(), 3, "{complaints:?}");
        assert!(complaints[0].contains("`store` is not in the map"));
        assert!(complaints[1].contains("`flow` depends on"));
        assert!(complaints[2].contains("`gone` is in the map but not"));
    }
}
