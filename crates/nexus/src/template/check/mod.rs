//! From JSON to a template: every mistake is collected, nothing is guessed.
//!
//! [`Check`] is the state of one check. Each file below adds the methods for one subject, and calls only those of the
//! files above it in this list:
//!
//! ```text
//! keys         one key of an object: known keys, texts, names, types
//! values       values: lists and rules, their types, shapes and limits
//! attributes   attributes, and the versions of template and static file
//! geometry     attributes that programs turn into geometry: units, `depends_on`
//! variables    variables and constants of a module
//! module       a module that reads streams
//! node         the tree: groups and their children
//! ```
//!
//! Failure: a refused part is a [`Mistake`] with its JSON pointer, and the check continues with the next part. A link
//! to a refused part is not a second mistake: the names of refused parts are kept for [`tree::check`].

mod attributes;
mod geometry;
mod keys;
mod module;
mod node;
mod values;
mod variables;

pub(crate) use attributes::attribute;

use super::json::Value;
use super::{Group, Layout, Level, Mistake, Module, Node, tree, words};
use crate::limits::{MISTAKES_MAX, NODES_MAX};
use crate::module::ModuleKind;
use crate::static_file::{Content, StaticFile};
use std::collections::{HashMap, HashSet};

/// Checks a whole template.
pub(super) fn template(
    value: &Value,
    content: Option<Result<Content, Vec<Mistake>>>,
    kinds: &[ModuleKind],
    layout: Layout,
) -> Result<(Group, Option<StaticFile>, Vec<Mistake>), Vec<Mistake>> {
    let mut check = Check { kinds: kinds.to_vec(), layout, ..Check::default() };
    let (mut content, mut static_file) = (content, None);
    // False where the objects that links can lead to are unknown.
    let is_whole = !matches!(content, Some(Err(_)));
    if let Some(Err(mistakes)) = &mut content {
        check.mistakes.append(mistakes);
    }
    let mut of_static = Group::default();
    let mut version = None;
    if let Some(Ok(content)) = content {
        (of_static, static_file, version) = (content.root, Some(content.file), content.version);
        check.of_static = content.things;
    }
    let mut root = Group::default();
    if let Some(map) = check.object("", value, "a template", words::TOP, &[]) {
        root.attributes = check.attributes("", map);
        check.versions(map, version, &mut root.attributes);
        root.children = check.children("", map, 0);
        if !map.has("children") {
            check.wrong("", "`children` is missing", "write at least {\"children\": []}");
        }
    }
    let mut root = tree::joined(of_static, root);
    group_counts(&mut root);
    if check.mistakes.len() < MISTAKES_MAX {
        let unsure = tree::Unsure { lost: &check.lost, refused: &check.refused, is_whole };
        let found = tree::check(&mut root, &unsure, &check.depends, layout == Layout::Ess, &mut check.mistakes);
        found.into_iter().for_each(|(pointer, cause, made)| check.warn(&pointer, cause, made));
    }
    let warnings = check.warnings.into_iter().map(Warning::into_mistake).collect::<Vec<_>>();
    if check.mistakes.is_empty() {
        return Ok((root, static_file, warnings));
    }
    check.mistakes.extend(warnings);
    Err(check.mistakes)
}

/// A difference between a template and its file: the first of the places, and how many there are.
struct Warning {
    first: Mistake,
    places: usize,
}

impl Warning {
    fn into_mistake(self) -> Mistake {
        let Self { mut first, places } = self;
        if places > 1 {
            first.cause += &format!("; {places} places, this is the first");
        }
        first
    }
}

/// Gives each module the attributes of the group around it, so that the module changes none of them. An attribute of
/// the module itself has precedence over that of the group.
fn group_counts(group: &mut Group) {
    let Group { attributes, children, from_static, .. } = group;
    let of_static = from_static.as_ref().map(|of_static| of_static.attributes.as_slice()).unwrap_or_default();
    for node in children {
        match node {
            Node::Group(inner) => group_counts(inner),
            Node::Module(module) => {
                let own: HashSet<String> = module.attributes.iter().map(|one| one.name.clone()).collect();
                module.attributes.extend(attributes.iter().filter(|one| !own.contains(&one.name)).cloned());
                module.of_static = of_static.to_vec();
            }
            _ => (),
        }
    }
}

/// The state of one check.
#[derive(Default)]
struct Check {
    layout: Layout,
    mistakes: Vec<Mistake>,
    warnings: Vec<Warning>,
    /// Path of the group that is being checked.
    here: String,
    /// Groups with a refused part of unknown name: the target of any link into them may be that part.
    lost: HashSet<String>,
    /// Paths of refused parts with a name.
    refused: Vec<String>,
    nodes: usize,
    modules: usize,
    /// Modules that the last log asks for beside itself.
    beside: Vec<Module>,
    /// Bytes of all fixed datasets.
    fixed_bytes: u64,
    /// The `depends_on`s, whose targets are checked at the end.
    depends: Vec<tree::Depends>,
    /// Pointers of the configs without `value_units`: a mistake of their units is at `unit`.
    by_unit: HashSet<String>,
    /// Kinds of modules, those of users last.
    kinds: Vec<ModuleKind>,
    /// The objects of the static file, by path.
    of_static: HashMap<String, &'static str>,
}

impl Check {
    /// Adds a mistake.
    fn wrong(&mut self, pointer: &str, cause: impl Into<String>, hint: impl Into<String>) {
        if self.mistakes.len() < MISTAKES_MAX {
            let (pointer, cause, hint) = (pointer.to_owned(), cause.into(), hint.into());
            self.mistakes.push(Mistake { pointer, cause, hint, ..Mistake::default() });
        }
    }

    /// Reports a form that only the ESS file writer accepts: with its layout a warning that describes what is written,
    /// in another layout a mistake. Returns true for the warning.
    fn wrong_but(&mut self, pointer: &str, cause: impl Into<String>, hint: impl Into<String>, made: &str) -> bool {
        if self.layout != Layout::Ess {
            self.wrong(pointer, cause, hint);
            return false;
        }
        self.warn(pointer, cause.into(), made);
        true
    }

    /// Adds a warning, or counts its place where the same warning is known.
    fn warn(&mut self, pointer: &str, cause: String, made: &str) {
        if let Some(known) = self.warnings.iter_mut().find(|one| one.first.cause == cause && one.first.hint == made) {
            known.places += 1;
        } else if self.warnings.len() < MISTAKES_MAX {
            let (pointer, hint) = (pointer.to_owned(), made.to_owned());
            let first = Mistake { level: Level::Warning, pointer, cause, hint, ..Mistake::default() };
            self.warnings.push(Warning { first, places: 1 });
        }
    }

    /// Whether forms are accepted that only the ESS file writer accepts.
    fn is_lenient(&self) -> bool {
        self.layout == Layout::Ess
    }

    /// Counts a node; false where there are too many.
    fn count(&mut self, at: &str) -> bool {
        self.nodes += 1;
        if self.nodes == NODES_MAX + 1 {
            self.wrong(
                at,
                format!("more than {NODES_MAX} groups, datasets and attributes"),
                "write large arrays as datasets",
            );
        }
        self.nodes <= NODES_MAX
    }
}
