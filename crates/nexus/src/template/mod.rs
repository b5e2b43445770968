//! The template: what a NeXus file holds and which streams go where, in the ESS `nexus_structure` dialect.
//!
//! `docs/reference/nexus-template.md` says the dialect, `nexus.md` the modules. A template is read whole, checked whole, and every mistake is told
//! at once with its JSON pointer. What is not understood is refused: a file that silently lacks a dataset is worse than
//! a run that does not begin.
//!
//! Failure: text from outside gives a [`Template`] or mistakes; memory is bounded by [`crate::limits`].

mod check;
mod data;
mod json;
mod reads;
#[cfg(test)]
mod reference;
mod share;
mod tree;
mod units;
mod values;
mod words;

pub(crate) use check::{attribute, bad_name, file_beside, join, named_axes};
pub use data::{Data, DataType, Values};
pub use flow::checked::{Level, Mistake};
pub use flow::job::Layout;
pub(crate) use words::is_word;

use crate::clock;
use crate::filter::Filter;
use crate::limits::TEMPLATE_BYTES_MAX;
use crate::outside::Module as OutsideModule;
use crate::static_file::{Content, StaticFile};
use flow::checked::Checked;
use std::collections::HashSet;
use std::path::Path;

/// A template without mistakes.
#[derive(Clone, Debug, Default)]
pub struct Template {
    /// The root of the file; its name is empty.
    pub root: Group,
    /// SHA-256 of the text, hexadecimal, the layout, where it is not `nexus`, and the BLAKE3 of the static file, where there
    /// is one: a file is resumed only with the template it began with.
    pub digest: String,
    /// What its files begin with a copy of.
    pub static_file: Option<StaticFile>,
    /// What its text says otherwise than its files will, each cause once.
    pub warnings: Vec<Mistake>,
    /// Names and types of its files.
    pub layout: Layout,
}

/// A group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its attributes.
    pub attributes: Vec<Attribute>,
    /// What is in it, in order.
    pub children: Vec<Node>,
    /// Where the static file has it, too: what it says of itself there.
    pub from_static: Option<StaticGroup>,
}

/// A group of the static file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StaticGroup {
    /// Its NX_class.
    pub class: Option<String>,
    /// Names of all its attributes.
    pub attributes: Vec<String>,
}

/// An attribute of a group or dataset.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Data,
}

/// What stands in a group.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// A group.
    Group(Group),
    /// A dataset with its attributes.
    Dataset {
        /// Its name.
        name: String,
        /// Its values.
        value: Data,
        /// Its attributes.
        attributes: Vec<Attribute>,
        /// How it is packed.
        compression: Option<Filter>,
    },
    /// A hard link.
    Link {
        /// Its name.
        name: String,
        /// What it stands for: names from the root.
        target: Vec<String>,
        /// Where it stands in the template, JSON pointer.
        pointer: String,
    },
    /// A link to what another file has.
    Outside {
        /// Its name.
        name: String,
        /// The other file: a path from the folder of this one, and inside it.
        file: String,
        /// What it stands for there: a path from the root.
        target: String,
    },
    /// A dataset of the static file, at the same path there, or a type.
    Static {
        /// Its name.
        name: String,
    },
    /// A link of the static file that names a path, whatever is there.
    Soft {
        /// Its name.
        name: String,
        /// The path.
        target: String,
    },
    /// Begin and end of the run.
    Times {
        /// Whether `start_time` is written here.
        start: bool,
        /// Whether `end_time` is written here.
        end: bool,
    },
    /// What comes from a stream.
    Module(Module),
}

/// What a group takes out of streams.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// The schema and its settings.
    pub kind: Kind,
    /// Names of the streams, one or more.
    pub streams: Vec<String>,
    /// Name of the origin; all of the streams' where `None`.
    pub source: Option<String>,
    /// Attributes of the group that the template says, at the group or at the module.
    pub attributes: Vec<Attribute>,
    /// Names of further attributes that the static file gives the group.
    pub of_static: Vec<String>,
    /// How chunks are packed: of the dataset with this name, and of all where there is none.
    pub compression: Vec<(Option<String>, Filter)>,
    /// Source time between two cues, ns, where it has cues.
    pub cue_every: u64,
    /// Names and types of its datasets.
    pub layout: Layout,
    /// Where it stands in the template, JSON pointer.
    pub pointer: String,
}

impl Module {
    /// The NX_class of the group that it fills, where the template says none.
    pub fn class(&self) -> &'static str {
        if self.is_log_of_frames() { "NXlog" } else { self.kind.class() }
    }

    /// True if frames are `value` of an NXlog: with the layout of ESS, and in a group that is one.
    pub(crate) fn is_log_of_frames(&self) -> bool {
        let is_class = |one: &Attribute| one.name == "NX_class" && one.value.as_text() == Some("NXlog");
        matches!(self.kind, Kind::Ad00 { .. }) && (self.layout == Layout::Ess || self.attributes.iter().any(is_class))
    }

    /// True if what was said before a run still holds when it begins; at ESS so does all but events.
    pub(crate) fn holds_on(&self) -> bool {
        let is_of_ess = matches!(self.kind, Kind::Tdct | Kind::Da00 { .. } | Kind::Ad00 { .. });
        self.kind.holds_on() || self.layout == Layout::Ess && is_of_ess
    }

    /// Names of the datasets that it makes in its group.
    pub fn datasets(&self) -> Vec<&str> {
        let mut names = self.kind.datasets();
        if self.is_log_of_frames() {
            names = vec!["value", "time", "cue_index", "cue_timestamp_zero"];
        }
        names
    }
}

/// Modules with a stream: the word of the template, and the schemas that such a module takes. Where two schemas mean the
/// same, both words do: a facility that moves from one to the other has nothing to change.
pub(crate) const MODULES: &[(&str, &[[u8; 4]])] = &[
    ("ev44", &[wire::ev44::ID, wire::ev42::ID]),
    ("ev42", &[wire::ev44::ID, wire::ev42::ID]),
    ("f144", &[wire::f144::ID, wire::f142::ID]),
    ("f142", &[wire::f144::ID, wire::f142::ID]),
    ("al00", &[wire::al00::ID, wire::f142::ID]),
    ("ep01", &[wire::ep01::ID]),
    ("tdct", &[wire::tdct::ID]),
    ("se00", &[wire::se00::ID, wire::senv::ID]),
    ("senv", &[wire::se00::ID, wire::senv::ID]),
    ("da00", &[wire::da00::ID]),
    ("hs01", &[wire::hs01::ID, wire::hs00::ID]),
    ("hs00", &[wire::hs01::ID, wire::hs00::ID]),
    ("ad00", &[wire::ad00::ID]),
    ("ar51", &[wire::ar51::ID]),
    ("json", &[wire::json::ID]),
    ("bpgr", &[wire::bpgr::ID]),
];

/// What the name of a group of frames has more where their attributes stand, in a group beside it.
pub(crate) const METADATA: &str = "_metadata";

/// Names of the edges of a histogram's bins, by dimension; more dimensions than these it has not.
pub(crate) const AXES: [&str; 8] = ["axis_0", "axis_1", "axis_2", "axis_3", "axis_4", "axis_5", "axis_6", "axis_7"];

/// What a module reads, with its settings.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Events: `ev44`, `ev42`.
    Ev44,
    /// A log of values: `f144`, `f142`.
    F144 {
        /// Type of the values in the file.
        dtype: DataType,
        /// Their unit; empty where unknown.
        units: String,
        /// Whether least, greatest and mean stand at the end.
        meta_data: bool,
    },
    /// Alarms: `al00`, and those in `f142`.
    Al00,
    /// States of a connection.
    Ep01,
    /// Times at which something happened.
    Tdct,
    /// A log of samples: `se00`, `senv`.
    Se00 {
        /// Type of the values in the file; that of the first message where `None`.
        dtype: Option<DataType>,
        /// Their unit; empty where unknown.
        units: String,
    },
    /// Labelled arrays.
    Da00 {
        /// One more row a message.
        variables: Vec<Variable>,
        /// Written once.
        constants: Vec<Variable>,
    },
    /// Histograms: `hs01`, `hs00`.
    Hs01,
    /// Frames.
    Ad00 {
        /// Type of the pixels in the file; that of the first frame where `None`.
        dtype: Option<DataType>,
    },
    /// Raw readout.
    Ar51,
    /// Texts.
    Json,
    /// Groups.
    Bpgr,
    /// What a module from outside takes.
    Outside(FromOutside),
}

/// A module from outside with its settings.
#[derive(Clone)]
pub struct FromOutside {
    /// The module.
    pub module: &'static dyn OutsideModule,
    /// Its own settings.
    pub settings: serde_json::Map<String, serde_json::Value>,
    /// Names of the datasets that it makes.
    pub datasets: Vec<String>,
}

impl PartialEq for FromOutside {
    fn eq(&self, other: &Self) -> bool {
        self.module.word() == other.module.word() && self.settings == other.settings
    }
}

impl std::fmt::Debug for FromOutside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.module.word(), self.settings)
    }
}

/// A variable or constant of `da00`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Variable {
    /// Its name in the message and in the file.
    pub name: String,
    /// Unit; that of the message where `None`.
    pub unit: Option<String>,
    /// Text for a plot; that of the message where `None`.
    pub label: Option<String>,
    /// Type in the file; that of the message where `None`.
    pub dtype: Option<DataType>,
    /// Names of the dimensions; those of the message where `None`.
    pub axes: Option<Vec<String>>,
    /// Lengths of the dimensions; those of the message where `None`.
    pub shape: Option<Vec<u64>>,
    /// The values, where the template says them.
    pub data: Option<Data>,
}

impl Kind {
    /// The word of the template: its first schema.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Ev44 => "ev44",
            Kind::F144 { .. } => "f144",
            Kind::Al00 => "al00",
            Kind::Ep01 => "ep01",
            Kind::Tdct => "tdct",
            Kind::Se00 { .. } => "se00",
            Kind::Da00 { .. } => "da00",
            Kind::Hs01 => "hs01",
            Kind::Ad00 { .. } => "ad00",
            Kind::Ar51 => "ar51",
            Kind::Json => "json",
            Kind::Bpgr => "bpgr",
            Kind::Outside(from) => from.module.word(),
        }
    }

    /// The schemas that it takes.
    pub(crate) fn schemas(&self) -> &'static [[u8; 4]] {
        if let Kind::Outside(from) = self {
            return from.module.schemas();
        }
        MODULES.iter().find(|(word, _)| *word == self.name()).map(|(_, schemas)| *schemas).unwrap_or_default()
    }

    /// Whether the template may ask for alarms and states of the connection beside it.
    pub(crate) fn asks_beside(&self) -> bool {
        matches!(self, Kind::F144 { .. } | Kind::Tdct | Kind::Se00 { .. })
    }

    /// The NX_class of its group where scippnexus reads it.
    fn class(&self) -> &'static str {
        match self {
            Kind::Ev44 => "NXevent_data",
            Kind::F144 { .. } | Kind::Al00 | Kind::Ep01 | Kind::Tdct | Kind::Se00 { .. } => "NXlog",
            Kind::Da00 { .. } | Kind::Hs01 | Kind::Ad00 { .. } => "NXdata",
            Kind::Ar51 | Kind::Json | Kind::Bpgr => "NXcollection",
            Kind::Outside(from) => from.module.class(),
        }
    }

    /// True if what was said before a run still holds when it begins.
    fn holds_on(&self) -> bool {
        matches!(self, Kind::F144 { .. } | Kind::Se00 { .. } | Kind::Al00 | Kind::Ep01)
    }

    /// Names of its datasets where scippnexus reads them.
    pub(crate) fn datasets(&self) -> Vec<&str> {
        match self {
            Kind::Ev44 => vec![
                "event_id",
                "event_time_offset",
                "event_time_zero",
                "event_index",
                "cue_index",
                "cue_timestamp_zero",
            ],
            Kind::F144 { meta_data, .. } => {
                let mut names = vec!["value", "time", "cue_index", "cue_timestamp_zero"];
                if *meta_data {
                    names.extend(["minimum_value", "maximum_value", "average_value"]);
                }
                names
            }
            Kind::Al00 => vec!["alarm_time", "alarm_severity", "alarm_message"],
            Kind::Ep01 => vec!["connection_status_time", "connection_status"],
            Kind::Tdct => vec!["time", "cue_index", "cue_timestamp_zero"],
            Kind::Se00 { .. } => vec!["value", "time", "cue_index", "cue_timestamp_zero"],
            Kind::Hs01 => {
                let mut names = vec!["time", "cue_index", "cue_timestamp_zero", "data", "errors"];
                names.extend(AXES);
                names
            }
            Kind::Ar51 => vec!["raw_data", "raw_data_index", "time", "arrival_time", "message_id"],
            Kind::Json => vec!["text", "text_index", "time", "arrival_time"],
            Kind::Bpgr => {
                vec!["number", "time", "first", "count", "missing_index", "missing", "member_index", "member"]
            }
            Kind::Outside(from) => from.datasets.iter().map(String::as_str).collect(),
            Kind::Ad00 { .. } => vec!["data", "id", "time", "arrival_time", "source"],
            Kind::Da00 { variables, constants } => {
                let mut names = vec!["time", "cue_index", "cue_timestamp_zero"];
                names.extend(variables.iter().chain(constants).map(|v| v.name.as_str()));
                names
            }
        }
    }
}

impl Group {
    /// Name of the group of the attributes of its frames, beside it.
    pub(crate) fn metadata(&self) -> Option<String> {
        let is_of_frames =
            |node: &Node| matches!(node, Node::Module(module) if matches!(module.kind, Kind::Ad00 { .. }));
        self.children.iter().any(is_of_frames).then(|| format!("{}{METADATA}", self.name))
    }
}

impl Template {
    /// Reads a template, or says all that is wrong with it.
    pub fn parse(text: &[u8]) -> Result<Self, Vec<Mistake>> {
        Self::parse_with(text, &[], Layout::Nexus)
    }

    /// The same of a template that may name modules from outside, for a file of this layout.
    pub fn parse_with(
        text: &[u8],
        modules: &[&'static dyn OutsideModule],
        layout: Layout,
    ) -> Result<Self, Vec<Mistake>> {
        Self::read(text, "the text", None, modules, layout)
    }

    /// Reads a template from a file, with the static file beside it, where there is one.
    pub fn open(
        path: &Path,
        static_file: Option<&Path>,
        modules: &[&'static dyn OutsideModule],
        layout: Layout,
    ) -> Result<Self, Vec<Mistake>> {
        let name = path.display().to_string();
        let file = std::fs::File::open(path).map_err(|e| vec![unreadable(&name, &e)])?;
        Self::read(file, &name, static_file, modules, layout)
    }

    /// Checks a template for `check`: its mistakes, those of the copy of its static file among them, and its modules.
    pub fn checked(
        path: &Path,
        static_file: Option<&Path>,
        modules: &[&'static dyn OutsideModule],
        layout: Layout,
    ) -> Checked {
        let name = path.display().to_string();
        let read = std::fs::File::open(path).map_err(|e| unreadable(&name, &e)).and_then(|file| json_of(file, &name));
        let (value, digest) = match read {
            Ok(read) => read,
            Err(mistake) => return Checked { mistakes: vec![mistake], modules: Vec::new() },
        };
        let reads = reads::modules(&value);
        let template = Self::of(&value, digest, static_file, modules, layout);
        let mistakes =
            template.map_or_else(|mistakes| mistakes, |template| [template.try_copies(), template.warnings].concat());
        Checked { mistakes, modules: reads }
    }

    fn read(
        from: impl std::io::Read,
        name: &str,
        static_file: Option<&Path>,
        modules: &[&'static dyn OutsideModule],
        layout: Layout,
    ) -> Result<Self, Vec<Mistake>> {
        let (value, digest) = json_of(from, name).map_err(|mistake| vec![mistake])?;
        Self::of(&value, digest, static_file, modules, layout)
    }

    fn of(
        value: &json::Value,
        mut digest: String,
        static_file: Option<&Path>,
        modules: &[&'static dyn OutsideModule],
        layout: Layout,
    ) -> Result<Self, Vec<Mistake>> {
        if layout == Layout::Ess {
            digest += " ess";
        }
        let content = static_file.map(StaticFile::read);
        if let Some(Ok(Content { digest: of_file, .. })) = &content {
            digest += &format!(" static {of_file}");
        }
        let (root, static_file, warnings) = check::template(value, content, modules, layout)?;
        Ok(Self { root, digest, static_file, warnings, layout })
    }

    /// A time of the run, ns since 1970 UTC, as text. The ESS file writer has milliseconds, and programs that read its
    /// files may have a format for them: `%f` of Python reads six digits at most.
    pub(crate) fn time_text(&self, ns: i64) -> String {
        match self.layout {
            Layout::Nexus => clock::iso8601(ns),
            Layout::Ess => clock::iso8601_ms(ns),
        }
    }

    /// Every module with the path of its group, in order.
    pub fn modules(&self) -> Vec<(String, &Module)> {
        fn walk<'a>(group: &'a Group, path: &str, out: &mut Vec<(String, &'a Module)>) {
            for node in &group.children {
                match node {
                    Node::Group(inner) => walk(inner, &format!("{path}/{}", inner.name), out),
                    Node::Module(module) => out.push((path.to_owned(), module)),
                    _ => (),
                }
            }
        }
        let mut out = Vec::new();
        walk(&self.root, "", &mut out);
        out
    }

    /// Names of the streams that modules read, in order.
    pub fn streams(&self) -> Vec<String> {
        let mut known = HashSet::new();
        let all = self.modules().into_iter().flat_map(|(_, module)| &module.streams);
        all.filter(|stream| known.insert(stream.as_str())).cloned().collect()
    }

    /// Copies all of the static file once, to nowhere: what of it cannot be copied.
    pub(crate) fn try_copies(&self) -> Vec<Mistake> {
        self.static_file.as_ref().map(|file| file.try_copies(&self.root)).unwrap_or_default()
    }

    /// Path of the first NXentry, or of the root.
    pub fn entry(&self) -> String {
        let is_entry = |group: &Group| {
            let said = group.attributes.iter().find(|a| a.name == "NX_class").map(|a| a.value.as_text());
            let of_static = || group.from_static.as_ref().and_then(|group| group.class.as_deref());
            said.unwrap_or_else(of_static) == Some("NXentry")
        };
        let found = self.root.children.iter().find_map(|node| match node {
            Node::Group(group) if is_entry(group) => Some(format!("/{}", group.name)),
            _ => None,
        });
        found.unwrap_or_default()
    }
}

/// The text as JSON, and its digest. A pipe or a device never ends: what is read does.
fn json_of(from: impl std::io::Read, name: &str) -> Result<(json::Value, String), Mistake> {
    json::read(from).map_err(|unread| match unread {
        json::Unread::TooLong => too_large(),
        json::Unread::Io(error) => unreadable(name, &error),
        json::Unread::Json(error) => not_json(&error),
    })
}

fn unreadable(name: &str, error: &std::io::Error) -> Mistake {
    Mistake {
        cause: format!("{name}: {error}"),
        hint: "write a path of a JSON file, relative to the instrument file".into(),
        ..Mistake::default()
    }
}

fn too_large() -> Mistake {
    Mistake {
        cause: format!("the template has more than {TEMPLATE_BYTES_MAX} bytes"),
        hint: "write large arrays as `range` or `linspace`".into(),
        ..Mistake::default()
    }
}

fn not_json(error: &serde_json::Error) -> Mistake {
    let hint = if error.to_string().contains("recursion") {
        format!("groups nest at most {} deep", crate::limits::DEPTH_MAX)
    } else if error.is_data() {
        "write large arrays as `range` or `linspace`, or make files of parts and link to them".into()
    } else if error.is_syntax() {
        "JSON has no comments, no NaN, no Infinity and no comma before a closing bracket".into()
    } else {
        "the text ends too early".into()
    };
    let what = if error.is_data() { "it cannot be read" } else { "it is not valid JSON" };
    // The line is told in front.
    let cause = error.to_string();
    let cause = cause.split(" at line ").next().unwrap_or_default();
    let cause = format!("{what}: {cause}, at column {}", error.column());
    let line = u32::try_from(error.line()).unwrap_or(u32::MAX);
    Mistake { line, cause, hint, ..Mistake::default() }
}

#[cfg(test)]
mod tests;
