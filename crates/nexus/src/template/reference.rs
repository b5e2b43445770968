//! The page `docs/reference/nexus.md`: every module with its schemas, keys and datasets, made from what the writer does.
//! Part of the tests: `BLESS=1 cargo test -p beamport-nexus reference` renews the page below its introduction.

use super::{Layout, Module, Node, Template, words};
use crate::hdf::column::Design;
use crate::hdf::filter::Filter;
use crate::hdf::h5::Cell;
use crate::module::{self, ALARMS, CONNECTION, KINDS, ModuleKind};
use settings::Key;

/// The keys of the `config` of every module: name, value, default, meaning.
const KEYS: &[(&str, &str, &str, &str)] = &[
    ("stream", "name, or a list of names", "required", "The streams to read; each must be one of the sink's `inputs`."),
    ("topic", "the same", "-", "`stream` in ESS templates; if both are given, `stream` is used."),
    ("source", "text", "all of the stream", "The origin (`source_name`) of the messages."),
    ("compression", "a name, or an object of names by dataset", "none", "Compression of chunks."),
    ("writer_module", "text", "-", "Accepted, ignored: see `module`."),
];

/// Keys of modules without a stream, and of a variable of `da00`: whose, then as in [`KEYS`].
const KEYS_OF: &[(&str, &str, &str, &str, &str)] = &[
    ("dataset", "name", "text", "required", "Its name."),
    ("dataset", "values", "a value, or a nested list", "-", "Its values; this, `range` or `linspace`."),
    ("dataset", "value", "the same", "-", "Synonym of `values`."),
    ("dataset", "dtype", "a type", "`double`, or `string` of a text", "Its type."),
    ("dataset", "type", "a type", "-", "Synonym of `dtype`."),
    ("dataset", "range", "`first`, `step`, `shape`", "-", "Consecutive whole numbers."),
    ("dataset", "linspace", "`first`, `last`, `shape`", "-", "Evenly spaced numbers."),
    ("dataset", "compression", "a name", "none", "Compression of an array of numbers."),
    ("link", "name", "text", "required", "Its name."),
    ("link", "source", "a path", "required", "Its target, relative to its group or, with `/`, to the root."),
    ("link", "file", "a path", "none", "The file of the target, in the folder of this file or below."),
    ("mdat", "items", "list of names", "required", "`start_time`, `end_time` or both, of the run."),
    ("variable", "name", "text", "required", "Its name in the message and in the file."),
    ("variable", "unit", "text", "that of the message", "Attribute `units`."),
    ("variable", "label", "text", "that of the message", "Attribute `long_name`."),
    ("variable", "source", "text", "-", "Accepted, ignored: variables are identified by name."),
    ("variable", "data_type", "a type", "that of the message", "Its type in the file."),
    ("variable", "axes", "list of names", "those of the message", "Names of its dimensions, without time."),
    ("variable", "shape", "list of lengths", "that of the message", "Lengths of its dimensions, without time."),
    ("variable", "data", "a list, or `first`, `last`, `size`", "from the first message", "Values of a constant."),
];

/// The tables of the page.
fn reference() -> String {
    let mut out = String::from("## Keys of every module with a stream\n\n");
    let lines = words::STREAM.iter().map(|name| KEYS.iter().find(|line| line.0 == *name));
    // A key without a line is one that the test below finds.
    keys(&mut out, lines.map(|line| *line.unwrap_or(&("", "-", "-", "-"))));
    let tuning: Vec<String> = words::TUNING.iter().map(|word| format!("`{word}`")).collect();
    out += &format!(
        "\nThese keys of ESS templates are accepted with valid values; the writer ignores them, except those in the table of a log: {}. The distance of cues is set in time (`cue_seconds`), not in events or messages (`cue_interval`).\n",
        tuning.join(" ")
    );
    let packed: Vec<String> = Filter::NAMES.iter().map(|(name, _)| format!("`{name}`")).collect();
    out += &format!("Compressions are {}.\n", packed.join(" and "));
    let obsolete: Vec<String> = words::OBSOLETE.iter().map(|word| format!("`{word}`")).collect();
    out += &format!(
        "Old keys of ESS templates that are accepted and ignored, in datasets, attributes and variables: {}.\n",
        obsolete.join(" ")
    );
    out += GROUPS;
    out += "\n## Modules without a stream\n";
    for (word, names) in [("dataset", words::DATASET), ("link", words::LINK), ("mdat", words::TIMES)] {
        out += &format!("\n`{word}`:\n\n");
        keys_of(&mut out, word, names);
    }
    for kind in KINDS {
        let module = module_of(kind, Layout::Nexus);
        one(&mut out, &module);
        as_ess(&mut out, &module, &module_of(kind, Layout::Ess));
    }
    out
}

/// The attributes of the groups.
const GROUPS: &str = "
The group of a module has the attributes `NX_class`, `stream` (a name or a list of names; `topic` with `layout = \"ess\"`), `writer_module` (the first word of its section) and, if the template names one, `source`. An `NXdata` also has `signal`, `axes` and `NAME_indices`. A module never changes an attribute that the template gives its group.
";

/// A module of a kind, without any settings.
fn module_of(kind: &ModuleKind, layout: Layout) -> Module {
    let word = kind.word;
    let text = |more: &str| format!(r#"{{"children": [{{"module": "{word}", "config": {{"stream": "s"{more}}}}}]}}"#);
    let parsed = Template::parse_with(text("").as_bytes(), &[], layout)
        .or_else(|_| Template::parse_with(text(r#", "variables": []"#).as_bytes(), &[], layout));
    let children = parsed.map(|template| template.root.children).unwrap_or_default();
    let found = children.into_iter().find_map(|node| match node {
        Node::Module(module) if module.word() == word => Some(*module),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("a word of the list is a module: {word}"))
}

fn one(out: &mut String, module: &Module) {
    let kind = &module.kind;
    let title: Vec<String> = kind.words().map(|word| format!("`{word}`")).collect();
    let schemas: Vec<String> = kind.schemas.iter().map(|id| format!("`{}`", id.escape_ascii())).collect();
    *out += &format!("\n## {}\n\nSchemas {}; the group is `{}`.", title.join(", "), schemas.join(" "), module.class());
    if module.holds_on() {
        *out += " It begins with the last message before the run.";
    }
    *out += "\n\n";
    let neighbours: &[&Key] = if kind.has_neighbours { &[&ALARMS, &CONNECTION] } else { &[] };
    let mut own = kind.keys.iter().chain(neighbours).peekable();
    if own.peek().is_some() {
        keys(out, own.map(|key| (key.name, key.takes, default_of(key), key.about)));
        *out += "\n";
    }
    if kind.keys.iter().any(|key| key.name == "variables") {
        *out += "Of a variable or a constant:\n\n";
        keys_of(out, "variable", words::VARIABLE);
        *out += "\n";
    }
    *out += "| dataset | type | attributes |\n|---|---|---|\n";
    let designs = module::columns(module);
    for design in &designs {
        *out += &format!("{}\n", row(kind, design));
    }
    for name in module.datasets().iter().filter(|name| designs.iter().all(|design| name_of(design) != **name)) {
        let late = kind.about.late.iter().find(|(late, ..)| late == name);
        let (_, when, attributes) = late.unwrap_or_else(|| panic!("`{name}` of `{}` has no line in `late`", kind.word));
        *out += &format!("| `{name}` | {when} | {attributes} |\n");
    }
    tell(out, kind.about.rules);
    if let Some(time) = module::time_of(module) {
        *out += &format!("\nIn a complete file, rows are sorted by `{time}`.\n");
    }
}

fn default_of(key: &Key) -> &'static str {
    if key.is_required { "required" } else { key.default }
}

/// Appends the differences in the layout of ESS.
fn as_ess(out: &mut String, module: &Module, ess: &Module) {
    let of = |module: &Module| -> Vec<String> {
        module::columns(module).iter().map(|design| row(&module.kind, design)).collect()
    };
    let known = of(module);
    let other: Vec<String> = of(ess).into_iter().filter(|row| !known.contains(row)).collect();
    if other.is_empty() {
        return;
    }
    let class = if ess.class() == module.class() { String::new() } else { format!("; the group is `{}`", ess.class()) };
    *out += &format!(
        "\nWith `layout = \"ess\"`{class}:\n\n| dataset | type | attributes |\n|---|---|---|\n{}\n",
        other.join("\n")
    );
    let names: Vec<String> = module::columns(ess).iter().map(|design| name_of(design).to_owned()).collect();
    let gone: Vec<String> = module::columns(module)
        .iter()
        .map(name_of)
        .filter(|name| !names.iter().any(|n| n == name))
        .map(|n| format!("`{n}`"))
        .collect();
    if !gone.is_empty() {
        *out += &format!("\nThere is no {} then.\n", gone.join(" "));
    }
    let mut said = ess.kind.about.rules_ess.to_vec();
    if ess.holds_on() && !module.holds_on() {
        said.push("It begins with the last message before the run.");
    }
    tell(out, &said);
}

fn tell(out: &mut String, rules: &[&str]) {
    if !rules.is_empty() {
        *out += &format!("\n{}\n", rules.join(" "));
    }
}

fn row(kind: &ModuleKind, design: &Design) -> String {
    let said = |(name, value): &(&str, super::Data)| {
        format!("`{name}`: {}", value.as_text().map_or("-".into(), |text| format!("`{text}`")))
    };
    // The unit of a value is what the template says.
    let is_of_template = kind.keys.iter().any(|key| key.name == "value_units") && name_of(design) == "value";
    let is_known = |(name, _): &&(&str, super::Data)| !(is_of_template && *name == "units");
    let mut attributes: Vec<String> = design.attributes.iter().filter(is_known).map(said).collect();
    let late = kind.about.late_attributes.iter().filter(|(name, _)| *name == name_of(design));
    attributes.extend(late.map(|(_, attribute)| (*attribute).to_owned()));
    if is_of_template {
        attributes.push("`units`: `value_units`".to_owned());
    }
    let attributes = if attributes.is_empty() { "-".to_owned() } else { attributes.join(", ") };
    format!("| `{}` | {} | {attributes} |", name_of(design), type_of(kind, design))
}

fn name_of(design: &Design) -> &str {
    design.path.rsplit('/').next().unwrap_or_default()
}

fn type_of(kind: &ModuleKind, design: &Design) -> String {
    match design.cell {
        _ if kind.about.typed_by_message.contains(&name_of(design)) => "that of the first message".into(),
        Cell::Number(dtype) => format!("`{}`", dtype.name()),
        Cell::Chars(bytes) => format!("text of {bytes} bytes"),
    }
}

fn keys<'a>(out: &mut String, lines: impl Iterator<Item = (&'a str, &'a str, &'a str, &'a str)>) {
    *out += "| key | takes | default | meaning |\n|---|---|---|---|\n";
    for (name, takes, default, about) in lines {
        *out += &format!("| `{name}` | {takes} | {default} | {about} |\n");
    }
}

fn keys_of(out: &mut String, of: &str, names: &[&str]) {
    *out += "| key | takes | default | meaning |\n|---|---|---|---|\n";
    for name in names {
        let is_it = |line: &&(&str, &str, &str, &str, &str)| line.0 == of && line.1 == *name;
        let (_, _, takes, default, about) = KEYS_OF.iter().find(is_it).unwrap_or(&("", "", "-", "-", "-"));
        *out += &format!("| `{name}` | {takes} | {default} | {about} |\n");
    }
}

#[test]
fn every_key_is_explained() {
    let of =
        [("dataset", words::DATASET), ("link", words::LINK), ("mdat", words::TIMES), ("variable", words::VARIABLE)];
    for (whose, key) in of.iter().flat_map(|(whose, keys)| keys.iter().map(move |key| (whose, key))) {
        let is_it = KEYS_OF.iter().any(|(of, known, ..)| of == whose && known == key);
        assert!(is_it, "`{key}` of {whose} has no line in KEYS_OF");
    }
    for key in words::STREAM {
        assert!(KEYS.iter().any(|(known, ..)| known == key), "`{key}` has no line in KEYS");
    }
}

#[test]
fn the_page_is_what_the_writer_does() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/nexus.md");
    let text = std::fs::read_to_string(path).unwrap();
    let begin = text.find("\n## ").map_or(text.len(), |at| at + 1);
    let wanted = format!("{}{}", &text[..begin], reference());
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, wanted).unwrap();
    } else {
        assert_eq!(text, wanted, "BLESS=1 cargo test -p beamport-nexus reference");
    }
}
