//! The schemas as text (`schemas/*.fbs`) and their table in the documentation say what the code reads and writes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use beamport_wire::{Field, Fields, KNOWN, fields};

#[expect(clippy::disallowed_methods, reason = "schemas and vectors are files; the crate itself reads none")]
fn bytes_of(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()))
}

fn text_of(path: &Path) -> String {
    String::from_utf8(bytes_of(path)).expect("UTF-8")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A field as the text has it.
struct Line {
    name: String,
    kind: String,
    id: usize,
}

/// The tables of a schema and the names of its unions. Enough of the language for our own files.
fn parse(text: &str) -> (BTreeMap<String, Vec<Line>>, Vec<String>) {
    let code: String = text.lines().map(|line| line.split("//").next().unwrap_or("").trim().to_owned() + " ").collect();
    let (mut tables, mut unions) = (BTreeMap::new(), Vec::new());
    for block in code.split('}') {
        let Some((head, body)) = block.split_once('{') else { continue };
        let head = head.rsplit(';').next().unwrap_or(head).trim();
        match head.split_whitespace().collect::<Vec<_>>()[..] {
            ["union", name] => unions.push(name.to_owned()),
            ["table", name] => {
                let lines = body.split(';').filter(|line| !line.trim().is_empty()).map(line_of).collect();
                tables.insert(name.to_owned(), lines);
            }
            // Its fields stand one behind the other.
            ["struct", name] => {
                let lines = body.split(';').filter(|line| !line.trim().is_empty()).enumerate();
                tables
                    .insert(name.to_owned(), lines.map(|(id, line)| line_of(&format!("{line} (id: {id})"))).collect());
            }
            _ => assert!(head.starts_with("enum "), "{head}"),
        }
    }
    (tables, unions)
}

/// `name: kind = default (id: 3, required)`
fn line_of(line: &str) -> Line {
    let (name, rest) = line.split_once(':').unwrap_or_else(|| panic!("{line}"));
    let (kind, attributes) = rest.split_once('(').unwrap_or_else(|| panic!("{line}: no id"));
    let digits: String = attributes
        .split("id:")
        .nth(1)
        .unwrap_or_else(|| panic!("{line}: no id"))
        .trim()
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    Line {
        name: name.trim().to_owned(),
        kind: kind.split('=').next().unwrap_or(kind).trim().to_owned(),
        id: digits.parse().unwrap_or_else(|_| panic!("{line}: no id")),
    }
}

/// Names in the text against names in the code, through all tables of a message.
fn compare(place: &str, table: &str, tables: &BTreeMap<String, Vec<Line>>, found: &Fields<'_>) {
    // A union has the fields of one of its tables.
    let names_of = |lines: &[Line]| lines.iter().map(|line| line.name.clone()).collect::<Vec<_>>();
    let member = || tables.values().find(|lines| names_of(lines).iter().eq(found.iter().map(|(name, _)| name)));
    let lines = tables.get(table).or_else(member).unwrap_or_else(|| panic!("{place}: {table}"));
    // The type of a da00 array is part of the array in the code.
    let wanted: Vec<&str> = lines.iter().map(|line| line.name.as_str()).filter(|name| *name != "data_type").collect();
    let names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, wanted, "{place}: {table}");
    for (name, field) in found {
        let kind = &lines.iter().find(|line| line.name == *name).expect("compared above").kind;
        let inner = kind.trim_matches(['[', ']']);
        match field {
            Field::List(entries) => {
                assert!(kind.starts_with('['), "{place}: {name}");
                for entry in entries {
                    compare(place, inner, tables, entry);
                }
            }
            Field::Table(entry) => compare(place, inner, tables, entry),
            // A string, the text of a da00 variable, or the word for the value of an enum.
            Field::Text(_) => {
                assert!(kind == "string" || kind == "[ubyte]" || !kind.starts_with('['), "{place}: {name}");
            }
            Field::Texts(_) => assert!(kind == "[string]" || kind == "Value", "{place}: {name}"),
            Field::Uuid(_) => assert_eq!(kind, "[ubyte]", "{place}: {name}"),
            Field::Bool(_) => assert_eq!(kind, "bool", "{place}: {name}"),
            Field::None => {}
            Field::Int(_) | Field::UInt(_) | Field::Float(_) | Field::Array { .. } => {
                assert_ne!(kind, "string", "{place}: {name}: {field:?}");
            }
        }
    }
}

/// Number of field slots in the root table's vtable of a message.
fn slots(bytes: &[u8]) -> usize {
    let word = |at: usize| i32::from_le_bytes(*bytes[at..].first_chunk().expect("inside"));
    let root = word(0);
    let vtable = (root - word(root as usize)) as usize;
    let length = u16::from_le_bytes(*bytes[vtable..].first_chunk().expect("inside"));
    (usize::from(length) - 4) / 2
}

#[test]
fn the_text_of_each_schema_says_what_the_code_does() {
    let mut named: Vec<PathBuf> = std::fs::read_dir(root().join("schemas"))
        .expect("the schemas are in the repository")
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|end| end == "fbs"))
        .collect();
    named.sort();
    assert_eq!(named.len(), KNOWN.len(), "{named:?}");

    for id in KNOWN {
        let id = String::from_utf8_lossy(&id).into_owned();
        let text = text_of(&root().join(format!("schemas/{id}.fbs")));
        assert!(text.contains(&format!("file_identifier \"{id}\";")), "{id}");
        let start = text.split("root_type ").nth(1).and_then(|rest| rest.split(';').next());
        let start = start.unwrap_or_else(|| panic!("{id}: no root_type"));
        let (tables, unions) = parse(&text);
        for (name, lines) in &tables {
            let mut next = 0;
            for line in lines {
                // A union takes two ids, the first for its tag.
                next += usize::from(unions.contains(&line.kind));
                assert_eq!(line.id, next, "{id}: {name}.{}", line.name);
                next += 1;
            }
        }

        let ours = root().join("tests/vectors/wire/ours");
        let mut compared = 0;
        for entry in std::fs::read_dir(ours).expect("vectors") {
            let path = entry.expect("a readable folder").path();
            let bytes = bytes_of(&path);
            if bytes[4..8] != *id.as_bytes() {
                continue;
            }
            let last = tables[start].last().expect("a field");
            assert_eq!(slots(&bytes), last.id + 1, "{}", path.display());
            compare(&path.display().to_string(), start, &tables, &fields(&bytes).expect("ours"));
            compared += 1;
        }
        assert!(compared > 0, "{id}: no vector");
    }
}

#[test]
fn the_documentation_names_every_schema_and_field() {
    let text = text_of(&root().join("docs/reference/schemas.md"));
    for id in KNOWN {
        let id = String::from_utf8_lossy(&id).into_owned();
        let head = format!("### `{id}`");
        let section = text.split(&head).nth(1).unwrap_or_else(|| panic!("no section {head}"));
        let section = section.split("\n### ").next().unwrap_or(section);
        let (tables, _) = parse(&text_of(&root().join(format!("schemas/{id}.fbs"))));
        for (table, lines) in tables {
            // The one-field boxes of unions are named by their type alone.
            if lines.len() == 1 {
                continue;
            }
            for line in lines {
                assert!(section.contains(&format!("`{}`", line.name)), "{id}: {table}.{}", line.name);
            }
        }
    }
}
