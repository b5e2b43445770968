//! Keys and the tables in which they stand.

/// One key of a section.
#[derive(Debug, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What it takes, in words: "duration", "size", "`disk` or `memory`".
    pub takes: &'static str,
    /// Its default as it would be written in the file; empty where there is none.
    pub default: &'static str,
    /// Without it the section is wrong.
    pub is_required: bool,
    /// Its meaning, in one sentence.
    pub about: &'static str,
}

/// A key that may be left out. `default`: as it would be written; empty where there is none.
#[must_use]
pub const fn key(name: &'static str, takes: &'static str, default: &'static str, about: &'static str) -> Key {
    Key { name, takes, default, is_required: false, about }
}

/// A key without which its section is wrong.
#[must_use]
pub const fn required(name: &'static str, takes: &'static str, about: &'static str) -> Key {
    Key { name, takes, default: "", is_required: true, about }
}

/// Keys that stand in the same sections.
#[derive(Debug, PartialEq, Eq)]
pub struct Table {
    /// Which sections these are: the heading on the reference page.
    pub title: &'static str,
    /// The keys, in the order of the reference page.
    pub keys: &'static [&'static Key],
}

/// A table of keys as it stands in `docs/reference/instrument-file.md`.
#[must_use]
pub fn reference(keys: &[&Key]) -> String {
    let mut page = String::from("| key | takes | default | meaning |\n|---|---|---|---|\n");
    for key in keys {
        let default = match (key.is_required, key.default) {
            (true, _) => "required".to_owned(),
            (false, "") => "-".to_owned(),
            (false, text) => format!("`{text}`"),
        };
        page.push_str(&format!("| `{}` | {} | {default} | {} |\n", key.name, key.takes, key.about));
    }
    page
}
