//! The template: what a NeXus file holds and which streams go where, in the ESS `nexus_structure` dialect.
//!
//! `docs/reference/nexus-template.md` describes the dialect, `nexus.md` the modules. A template is read and checked as
//! a whole, and every mistake is reported at once with its JSON pointer. Unknown input is refused: a file that silently
//! lacks a dataset is worse than a run that does not begin.
//!
//! Failure: text from outside gives a [`Template`] or mistakes; memory is bounded by [`crate::limits`].

mod check;
mod json;
mod reads;
#[cfg(test)]
mod reference;
mod share;
mod tree;
mod units;
mod words;

pub use crate::hdf::value::{Data, DataType, Values};
pub use crate::module::{Attribute, Module, Variable};
pub use crate::node::{Group, Node, StaticGroup};
pub(crate) use check::attribute;
pub use flow::checked::{Level, Mistake};
pub use flow::job::Layout;

use crate::clock;
use crate::hdf::names::bad_name;
use crate::limits::TEMPLATE_BYTES_MAX;
use crate::module::user::Module as UserModule;
use crate::module::{KINDS, with_users};
use crate::static_file::{Content, StaticFile};
use flow::Fault;
use flow::checked::Checked;
use std::collections::HashSet;
use std::path::Path;
use words::{WITHOUT_STREAM, foreign};

/// A template without mistakes.
#[derive(Clone, Debug, Default)]
pub struct Template {
    /// The root of the file; its name is empty.
    pub root: Group,
    /// SHA-256 of the text, hexadecimal, the layout, where it is not `nexus`, and the BLAKE3 of the static file, where there
    /// is one: a file is resumed only with the template it began with.
    pub digest: String,
    /// The static file that its files begin with a copy of.
    pub static_file: Option<StaticFile>,
    /// Differences between its text and its files, each cause once.
    pub warnings: Vec<Mistake>,
    /// Names and types of its files.
    pub layout: Layout,
}

impl Template {
    /// Reads a template, or says all that is wrong with it.
    pub fn parse(text: &[u8]) -> Result<Self, Vec<Mistake>> {
        Self::parse_with(text, &[], Layout::Nexus)
    }

    /// The same of a template that may name modules from outside, for a file of this layout.
    pub fn parse_with(text: &[u8], modules: &[&'static dyn UserModule], layout: Layout) -> Result<Self, Vec<Mistake>> {
        Self::read(text, "the text", None, modules, layout)
    }

    /// Reads a template from a file, with the static file beside it, where there is one.
    pub fn open(
        path: &Path,
        static_file: Option<&Path>,
        modules: &[&'static dyn UserModule],
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
        modules: &[&'static dyn UserModule],
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
        modules: &[&'static dyn UserModule],
        layout: Layout,
    ) -> Result<Self, Vec<Mistake>> {
        let (value, digest) = json_of(from, name).map_err(|mistake| vec![mistake])?;
        Self::of(&value, digest, static_file, modules, layout)
    }

    fn of(
        value: &json::Value,
        mut digest: String,
        static_file: Option<&Path>,
        modules: &[&'static dyn UserModule],
        layout: Layout,
    ) -> Result<Self, Vec<Mistake>> {
        if layout == Layout::Ess {
            digest += " ess";
        }
        let content = static_file.map(StaticFile::read);
        if let Some(Ok(Content { digest: of_file, .. })) = &content {
            digest += &format!(" static {of_file}");
        }
        let (root, static_file, warnings) = check::template(value, content, &with_users(modules), layout)?;
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

/// Why these cannot be the modules of a program.
pub(crate) fn wrong_modules(modules: &[&'static dyn UserModule]) -> Option<Fault> {
    for (at, module) in modules.iter().enumerate() {
        let word = module.word();
        let cause = if is_word(word) {
            "a module of that name already exists".to_owned()
        } else if modules[..at].iter().any(|other| other.word() == word) {
            "two modules have that name".to_owned()
        } else if let Some(cause) = bad_name(word) {
            cause
        } else if module.schemas().is_empty() {
            "it takes no schema".to_owned()
        } else if (1..module.schemas().len()).any(|at| module.schemas()[..at].contains(&module.schemas()[at])) {
            "a schema appears twice in it".to_owned()
        } else {
            continue;
        };
        return Some(Fault::new(format!("cannot add module `{word}`"), cause).hint("rename it"));
    }
    None
}

/// Whether a module of beamport has this word, or had it.
fn is_word(word: &str) -> bool {
    WITHOUT_STREAM.contains(&word)
        || KINDS.iter().any(|kind| kind.words().any(|known| known == word))
        || foreign(word).is_some()
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
    // The line is reported in front.
    let cause = error.to_string();
    let cause = cause.split(" at line ").next().unwrap_or_default();
    let cause = format!("{what}: {cause}, at column {}", error.column());
    let line = u32::try_from(error.line()).unwrap_or(u32::MAX);
    Mistake { line, cause, hint, ..Mistake::default() }
}

#[cfg(test)]
mod tests;
