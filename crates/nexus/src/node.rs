//! The tree of a file: groups, datasets, links and modules, as the template and the static file have it.

use crate::hdf::filter::Filter;
use crate::hdf::value::Data;
use crate::module::{Attribute, Module, metadata_of};

/// A group.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Its attributes.
    pub attributes: Vec<Attribute>,
    /// Its content, in order.
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

/// An entry of a group.
#[derive(Clone, Debug)]
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
    /// A module, which reads streams.
    Module(Box<Module>),
}

impl Group {
    /// Name of the group of the attributes of its frames, beside it.
    pub(crate) fn metadata(&self) -> Option<String> {
        let has_metadata = |node: &Node| matches!(node, Node::Module(module) if module.kind.has_metadata);
        self.children.iter().any(has_metadata).then(|| metadata_of(&self.name))
    }
}
