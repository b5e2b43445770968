//! The page `docs/reference/nexus.md`: every module with its schemas, keys and datasets, made from what the writer does.
//! Part of the tests: `BLESS=1 cargo test -p beamport-nexus reference` renews the page below its introduction.

use super::{Kind, Layout, MODULES, Module, Node, Template, words};
use crate::column::Design;
use crate::filter::Filter;
use crate::h5::Cell;
use crate::module;

/// What each key of `config` takes, what it is without the line, and what it means.
const KEYS: &[(&str, &str, &str, &str)] = &[
    ("stream", "name, or a list of names", "required", "The streams to read; each must be one of the sink's `inputs`."),
    ("topic", "the same", "-", "`stream` in ESS templates; if both are given, `stream` is used."),
    ("source", "text", "all of the stream", "The origin (`source_name`) of the messages."),
    ("compression", "a name, or an object of names by dataset", "none", "Compression of chunks."),
    ("writer_module", "text", "-", "Accepted, ignored: see `module`."),
    (
        "dtype",
        "a type",
        "`double` (`f144`); that of the first message (`se00`, `ad00`)",
        "Type of `value` (`data` of frames) in the file; values out of its range are `unfit`.",
    ),
    ("type", "a type", "-", "Synonym of `dtype`."),
    ("value_units", "text", "none", "Attribute `units` of `value`."),
    ("unit", "text", "-", "Synonym of `value_units`."),
    ("cue_seconds", "number above 0", "`10`", "Source time between two cues, in s, if the layout has cues."),
    (
        "meta_data",
        "`true` or `false`",
        "`true`",
        "Whether to write `minimum_value`, `maximum_value` and `average_value` at the end.",
    ),
    (
        "enable_alarm_info",
        "`true` or `false`",
        "`false`; `true` with `layout = \"ess\"`",
        "Whether to add `al00` of the same origin.",
    ),
    (
        "enable_epics_con_info",
        "`true` or `false`",
        "`false`; `true` with `layout = \"ess\"`",
        "Whether to add `ep01` of the same origin.",
    ),
    (
        "variables",
        "list of objects",
        "required",
        "Variables that grow by a row per message: `name`, and `unit`, `label`, `data_type`, `axes`, `shape` to override those of the message.",
    ),
    ("constants", "list of objects", "none", "Variables that are written once; the same keys, and `data`."),
    (
        "attributes",
        "attributes",
        "none",
        "More attributes of the group; a list may use the ESS form, with `data` and `data_type`.",
    ),
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
    keys(&mut out, words::STREAM);
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
    let mut done: Vec<&str> = Vec::new();
    for (word, _) in MODULES {
        let module = module_of(word, Layout::Nexus);
        let kind = &module.kind;
        if done.contains(&kind.name()) {
            continue;
        }
        done.push(kind.name());
        let same: Vec<&str> = MODULES
            .iter()
            .map(|(w, _)| *w)
            .filter(|w| module_of(w, Layout::Nexus).kind.name() == kind.name())
            .collect();
        one(&mut out, &same, &module);
        as_ess(&mut out, &module, &module_of(word, Layout::Ess));
    }
    out
}

/// What stands at the groups.
const GROUPS: &str = "
The group of a module has the attributes `NX_class`, `stream` (a name or a list of names; `topic` with `layout = \"ess\"`), `writer_module` (the first word of its section) and, if the template names one, `source`. An `NXdata` also has `signal`, `axes` and `NAME_indices`. A module never changes an attribute that the template gives its group.
";

/// The module that a word means, without any settings.
fn module_of(word: &str, layout: Layout) -> Module {
    let text = |more: &str| format!(r#"{{"children": [{{"module": "{word}", "config": {{"stream": "s"{more}}}}}]}}"#);
    let parsed = Template::parse_with(text("").as_bytes(), &[], layout)
        .or_else(|_| Template::parse_with(text(r#", "variables": []"#).as_bytes(), &[], layout));
    let schemas = MODULES.iter().find(|(known, _)| *known == word).map(|(_, schemas)| *schemas);
    let is_it = |module: &Module| Some(module.kind.schemas()) == schemas;
    let children = parsed.map(|template| template.root.children).unwrap_or_default();
    let found = children.into_iter().find_map(|node| match node {
        Node::Module(module) if is_it(&module) => Some(module),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("a word of the table is a module: {word}"))
}

fn one(out: &mut String, words: &[&str], module: &Module) {
    let kind = &module.kind;
    let title: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    let schemas: Vec<String> = kind.schemas().iter().map(|id| format!("`{}`", id.escape_ascii())).collect();
    *out += &format!("\n## {}\n\nSchemas {}; the group is `{}`.", title.join(", "), schemas.join(" "), module.class());
    if module.holds_on() {
        *out += " It begins with the last message before the run.";
    }
    *out += "\n\n";
    let mut own: Vec<&str> = words::settings(kind.name()).to_vec();
    if kind.asks_beside() {
        own.extend([words::ALARMS, words::CONNECTION]);
    }
    if !own.is_empty() {
        keys(out, &own);
        *out += "\n";
    }
    if matches!(kind, Kind::Da00 { .. }) {
        *out += "Of a variable or a constant:\n\n";
        keys_of(out, "variable", words::VARIABLE);
        *out += "\n";
    }
    *out += "| dataset | type | attributes |\n|---|---|---|\n";
    let designs = module::columns(module);
    let names = module.datasets();
    for design in &designs {
        *out += &format!("{}\n", row(kind, design));
    }
    for name in names.iter().filter(|name| designs.iter().all(|design| name_of(design) != **name)) {
        let (when, said) = match *name {
            name if name.ends_with("_value") => ("`float64`, once, at the end", "`units`: those of `value`"),
            "errors" => ("with the first message", "`units`: `counts`"),
            name if name.starts_with("axis_") => {
                ("with the first message", "`units`, `long_name`: those of the message")
            }
            _ => ("with the first message", "-"),
        };
        *out += &format!("| `{name}` | {when} | {said} |\n");
    }
    tell(out, &rules(module));
    if let Some(time) = module::time_of(module) {
        *out += &format!("\nIn a complete file, rows are sorted by `{time}`.\n");
    }
}

/// What is other in the layout of ESS.
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
    let mut said = rules(ess);
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

/// What a table of datasets does not say.
fn rules(module: &Module) -> Vec<&'static str> {
    let is_ess = module.layout == Layout::Ess;
    match (&module.kind, is_ess) {
        (Kind::F144 { .. }, false) => {
            vec!["A log of arrays has no `minimum_value`, `maximum_value` and `average_value`."]
        }
        (Kind::Al00 | Kind::Ep01, false) => vec![
            "Put it in the group of the log of its origin: alone it is an `NXlog` without `value`, which scippnexus loads as a plain group.",
        ],
        (Kind::Tdct, false) => {
            vec!["Name the group `top_dead_center`: chexus requires a `value` in an `NXlog` with another name."]
        }
        (Kind::Da00 { .. }, false) => vec![
            "Whole numbers with errors (`NAME_errors`, or `errors` of the signal) are `float64` unless `data_type` sets another type: scipp supports errors of real numbers only.",
            "`NAME_indices` of the group lists the dimensions of the signal that a dataset has; a dataset has `axes` only if the signal lacks one of its dimensions.",
        ],
        (Kind::Ad00 { .. }, false) => vec![
            "`data` has the attribute `interpretation`: `scalar`, `spectrum` or `image`, by the dimensions of a frame.",
            "Attributes of frames are datasets of the group `NAME_metadata` beside it; real numbers have an empty `units`, because frames have none.",
        ],
        (Kind::Ad00 { .. }, true) => vec![
            "`NAME_metadata` also has `id`, `arrival_time` and `source`.",
            "A frame with the time of the previous one is `repeated`. A frame smaller than the first is padded with zeros; a larger one is `unfit`, because chunks have the shape of the first (the ESS file writer extends the dataset).",
            "`value` has the type of the first frame, not `double`: no digit is lost, and 16-bit data take a quarter of the space.",
        ],
        (Kind::Ev44, true) => vec![
            "A message without events adds no row.",
            "Events without pixels have `event_id` 0 (the ESS file writer makes `event_id` shorter than `event_time_offset`, which no tool can load).",
        ],
        (Kind::Da00 { .. }, true) => vec![
            "A message with the time of the previous one is `repeated`.",
            "A variable that a message lacks is NaN, or the largest number of an integer type; the message is `unfit` if type and shape of the variable are unknown, or if it has no variable at all.",
        ],
        (Kind::Se00 { .. }, true) => vec![
            "Without `dtype`, integers of up to 32 bits are `int64`; other types stay unchanged, because `int64` cannot hold all of their values.",
        ],
        _ => Vec::new(),
    }
}

fn row(kind: &Kind, design: &Design) -> String {
    let said = |(name, value): &(&str, super::Data)| {
        format!("`{name}`: {}", value.as_text().map_or("-".into(), |text| format!("`{text}`")))
    };
    // A text that the template gives is not known here.
    let is_known =
        |(_, value): &&(&str, super::Data)| !matches!((kind, value.as_text()), (Kind::F144 { .. }, Some("")));
    let mut attributes: Vec<String> = design.attributes.iter().filter(is_known).map(said).collect();
    if *kind == Kind::Hs01 && name_of(design) == "data" {
        attributes.push("`units`: `counts`".to_owned());
    }
    if matches!(kind, Kind::F144 { .. } | Kind::Se00 { .. }) && name_of(design) == "value" {
        attributes.push("`units`: `value_units`".to_owned());
    }
    let attributes = if attributes.is_empty() { "-".to_owned() } else { attributes.join(", ") };
    format!("| `{}` | {} | {attributes} |", name_of(design), type_of(kind, design))
}

fn name_of(design: &Design) -> &str {
    design.path.rsplit('/').next().unwrap_or_default()
}

fn type_of(kind: &Kind, design: &Design) -> String {
    let of_messages = match kind {
        Kind::Se00 { .. } => &["value"][..],
        Kind::Hs01 => &["data", "errors"],
        Kind::Ad00 { .. } => &["data", "value"],
        _ => &[],
    };
    match design.cell {
        _ if of_messages.contains(&name_of(design)) => "that of the first message".into(),
        Cell::Number(dtype) => format!("`{}`", dtype.name()),
        Cell::Chars(bytes) => format!("text of {bytes} bytes"),
    }
}

fn keys(out: &mut String, names: &[&str]) {
    *out += "| key | takes | default | meaning |\n|---|---|---|---|\n";
    for name in names {
        // A key without a line here is one that the test below finds.
        let (_, takes, default, about) = KEYS.iter().find(|(key, ..)| key == name).unwrap_or(&("", "-", "-", "-"));
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
    let settings = MODULES.iter().flat_map(|(word, _)| words::settings(word));
    for key in words::STREAM.iter().chain(settings).chain(&[words::ALARMS, words::CONNECTION]) {
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
