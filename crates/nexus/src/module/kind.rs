//! What a module of a template is: a [`ModuleKind`] for each schema, and a [`Plan`] for each group that names it.
//!
//! A kind is a file of this folder with a static, and a line in the list [`KINDS`](super::KINDS); a module of a user
//! ([`super::user`]) becomes a kind of the same form.

use super::user;
use super::{Fixed, Rows};
use crate::hdf::column::Design;
use crate::hdf::filter::Filter;
use crate::hdf::value::{Data, DataType};
use flow::job::Layout;
use settings::Key;
use std::sync::Arc;
use wire::{DType, Message};

/// A kind of module: a schema, and what it becomes in a file.
#[derive(Clone, Copy)]
pub(crate) struct ModuleKind {
    /// Its word in templates.
    pub(crate) word: &'static str,
    /// Words that mean the same: a facility that moves from one schema to its successor has nothing to change.
    pub(crate) synonyms: &'static [&'static str],
    /// The schemas of the messages that it reads.
    pub(crate) schemas: &'static [[u8; 4]],
    /// The name of the origin of a message, as the message has it; none where these messages have no such name.
    pub(crate) origin: Option<Origin>,
    /// NX_class of its group, where the template names none.
    pub(crate) class: &'static str,
    /// Keys of `config` beside those of every module.
    pub(crate) keys: &'static [&'static Key],
    /// The last message before a run is the first of its file.
    pub(crate) holds_on: When,
    /// A message with the time of the one before it of its origin is a repetition.
    pub(crate) repeats: When,
    /// Alarms and states of the connection of its origin may be in the same group.
    pub(crate) has_neighbours: bool,
    /// Attributes of messages are in a group beside its own ([`METADATA`]).
    pub(crate) has_metadata: bool,
    /// Datasets beside times and cues have names that come from the user, or from messages.
    pub(crate) has_free_names: bool,
    /// Texts of the reference page beside the tables.
    #[cfg_attr(not(test), allow(dead_code, reason = "a test makes the page"))]
    pub(crate) about: About,
    /// Reads `config`; none where it has a mistake that leaves no plan.
    pub(crate) read: fn(&mut dyn Settings) -> Option<Arc<dyn Plan>>,
    /// The module of a user that it stands for.
    pub(crate) user: Option<&'static dyn user::Module>,
}

/// The name of the origin of a message.
type Origin = for<'m> fn(&Message<'m>) -> Option<&'m str>;

/// In which layouts of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Never,
    InEss,
    Always,
}

impl When {
    pub(crate) fn is(self, layout: Layout) -> bool {
        self == Self::Always || self == Self::InEss && layout == Layout::Ess
    }
}

/// Texts of the reference page.
#[cfg_attr(not(test), allow(dead_code, reason = "a test makes the page"))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    /// Rules that the table of the datasets does not show.
    pub(crate) rules: &'static [&'static str],
    /// The same with `layout = "ess"`.
    pub(crate) rules_ess: &'static [&'static str],
    /// Datasets whose type is that of the first message.
    pub(crate) typed_by_message: &'static [&'static str],
    /// Datasets with attributes that come with the first message.
    pub(crate) late_attributes: &'static [(&'static str, &'static str)],
    /// Datasets that are not there from the beginning: name, when they are written, attributes.
    pub(crate) late: &'static [(&'static str, &'static str, &'static str)],
}

impl About {
    /// Nothing.
    pub(crate) const NONE: Self =
        Self { rules: &[], rules_ess: &[], typed_by_message: &[], late_attributes: &[], late: &[] };
}

impl ModuleKind {
    /// A kind without keys of its own.
    pub(crate) const fn new(
        word: &'static str,
        schemas: &'static [[u8; 4]],
        class: &'static str,
        read: fn(&mut dyn Settings) -> Option<Arc<dyn Plan>>,
    ) -> Self {
        Self {
            word,
            synonyms: &[],
            schemas,
            origin: None,
            class,
            keys: &[],
            holds_on: When::Never,
            repeats: When::Never,
            has_neighbours: false,
            has_metadata: false,
            has_free_names: false,
            about: About::NONE,
            read,
            user: None,
        }
    }

    /// All its words.
    pub(crate) fn words(&self) -> impl Iterator<Item = &'static str> + use<> {
        std::iter::once(self.word).chain(self.synonyms.iter().copied())
    }

    /// Names of its keys.
    pub(crate) fn key_names(&self) -> Vec<&'static str> {
        let of_user = self.user.map(|user| user.keys()).unwrap_or_default();
        self.keys.iter().map(|key| key.name).chain(of_user.iter().copied()).collect()
    }
}

impl std::fmt::Debug for ModuleKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word)
    }
}

/// `config` of a module, as its kind reads it. Mistakes are noted with their place.
pub(crate) trait Settings {
    /// Type of the values in the file.
    fn number(&self) -> Option<DType>;

    /// Unit of the values; empty where there is none.
    fn units(&self) -> &str;

    /// Whether a key is given.
    fn has(&self, key: &Key) -> bool;

    /// A key that is true or false.
    fn flag(&self, key: &Key) -> Option<bool>;

    /// A list of variables.
    fn variables(&mut self, key: &Key) -> Vec<Variable>;

    /// The attributes that the template gives the group, with those of a key.
    fn attributes(&mut self, key: &Key) -> &[Attribute];

    /// Notes a mistake at a key; at the whole where the key is empty.
    fn wrong(&mut self, key: &str, cause: String, hint: String);

    /// The same of what the ESS file writer accepts: in its layout a warning, which says what is written.
    fn wrong_but(&mut self, key: &str, cause: String, hint: &str, written: &str);

    /// Keys and values of a user's module.
    fn members(&self, keys: &[&str]) -> serde_json::Map<String, serde_json::Value>;

    /// The kind that is read.
    fn kind(&self) -> &ModuleKind;
}

/// The datasets that one group gets from its streams.
pub(crate) trait Plan: std::fmt::Debug + Send + Sync {
    /// NX_class of the group, where the template names none.
    fn class(&self, module: &Module) -> &'static str {
        module.kind.class
    }

    /// Names of all datasets that it can make.
    fn datasets(&self, module: &Module) -> Vec<&str>;

    /// The columns that are there from the beginning, and what makes their rows.
    fn begin(&self, path: &str, module: &Module) -> (Vec<Design>, Box<dyn Rows>);

    /// Datasets that are written once, when the file begins.
    fn fixed(&self, _path: &str) -> Vec<Fixed> {
        Vec::new()
    }

    /// Attributes of the group beside those of every module.
    fn attributes(&self, _module: &Module) -> Vec<(String, Data)> {
        Vec::new()
    }

    /// The unit of its values, as the template has it.
    fn units(&self) -> Option<&str> {
        None
    }
}

/// A group of a template that is filled from streams.
#[derive(Clone, Debug)]
pub struct Module {
    /// Its kind, by schema.
    pub(crate) kind: ModuleKind,
    /// Its plan, from its settings.
    pub(crate) plan: Arc<dyn Plan>,
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
    /// Its word in templates.
    pub fn word(&self) -> &'static str {
        self.kind.word
    }

    /// The NX_class of the group that it fills, where the template says none.
    pub fn class(&self) -> &'static str {
        self.plan.class(self)
    }

    /// True if what was said before a run still holds when it begins; at ESS so does all but events.
    pub(crate) fn holds_on(&self) -> bool {
        self.kind.holds_on.is(self.layout)
    }

    /// Names of the datasets that it makes in its group.
    pub fn datasets(&self) -> Vec<&str> {
        self.plan.datasets(self)
    }

    pub(crate) fn is_ess(&self) -> bool {
        self.layout == Layout::Ess
    }
}

/// An attribute of a group or dataset.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Data,
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
