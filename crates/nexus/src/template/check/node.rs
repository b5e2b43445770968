//! The tree: groups and their children, and the nodes that read no stream: datasets, links, times of the run.

use super::Check;
use super::keys::kind_of;
use crate::hdf::names::{bad_name, file_beside, join, short};
use crate::hdf::value::{Data, DataType};
use crate::limits::{DEPTH_MAX, MISTAKES_MAX};
use crate::module::ModuleKind;
use crate::template::json::{Object, Value};
use crate::template::{Attribute, Group, Node, words};
use settings::nearest;
use std::collections::HashSet;

impl Check {
    /// The children of a group, with the modules that its logs ask for.
    pub(super) fn children(&mut self, at: &str, map: &Object, depth: usize) -> Vec<Node> {
        let at = join(at, "children");
        let list = match map.get("children") {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::List(list)) => list,
            Some(other) => {
                let cause = format!("`children` is a list, this is {}", kind_of(other));
                self.wrong(&at, cause, "write \"children\": [...]");
                self.lost.insert(self.here.clone());
                return Vec::new();
            }
        };
        if depth > DEPTH_MAX {
            self.wrong(&at, format!("groups nest deeper than {DEPTH_MAX}"), "nest fewer groups");
            self.lost.insert(self.here.clone());
            return Vec::new();
        }
        let mut out = Vec::with_capacity(list.len());
        let mut names = HashSet::new();
        for (i, child) in list.iter().enumerate() {
            let at = join(&at, i);
            if !self.count(&at) || self.mistakes.len() >= MISTAKES_MAX {
                self.lost.insert(self.here.clone());
                break;
            }
            match self.node(&at, child, depth) {
                Some(node) => {
                    self.claim(&at, &node, depth, &mut names);
                    out.push(node);
                }
                None => self.refuse(child),
            }
        }
        for module in std::mem::take(&mut self.beside) {
            let stands = |node: &Node| matches!(node, Node::Module(known) if known.word() == module.word());
            if !out.iter().any(stands) {
                // First, so that attributes of the log replace its own in the group.
                let node = Node::Module(Box::new(module));
                self.claim(&at, &node, depth, &mut names);
                out.insert(0, node);
            }
        }
        out
    }

    /// Keeps the name of a refused child: links to it are no second mistake. A child without a name could have had any.
    fn refuse(&mut self, child: &Value) {
        let map = child.as_object();
        let config = map.and_then(|map| map.get("config")).and_then(Value::as_object);
        let name = config.or(map).and_then(|map| map.get("name")).and_then(Value::as_str);
        if map.and_then(|map| map.get("module")).and_then(Value::as_str) == Some("mdat") {
            self.refuse_times();
        } else if let Some(name) = name.filter(|name| bad_name(name).is_none()) {
            self.refused.push(format!("{}/{name}", self.here));
        } else {
            self.lost.insert(self.here.clone());
        }
    }

    /// Keeps the names that `mdat` can write.
    fn refuse_times(&mut self) {
        self.refused.extend(["start_time", "end_time"].map(|name| format!("{}/{name}", self.here)));
    }

    /// Reserves the names of a node in its group: each appears once, and `beamport` is reserved.
    fn claim(&mut self, at: &str, node: &Node, depth: usize, names: &mut HashSet<String>) {
        let metadata = if let Node::Group(group) = node { group.metadata() } else { None };
        let (at, wanted) = match node {
            Node::Group(Group { name, .. }) => {
                (at, std::iter::once(name.as_str()).chain(metadata.as_deref()).collect())
            }
            Node::Dataset { name, .. }
            | Node::Link { name, .. }
            | Node::Outside { name, .. }
            | Node::Static { name }
            | Node::Soft { name, .. } => (at, vec![name.as_str()]),
            Node::Times { start, end } => (
                at,
                [(start, "start_time"), (end, "end_time")].into_iter().filter(|(is, _)| **is).map(|(_, n)| n).collect(),
            ),
            Node::Module(module) => (module.pointer.as_str(), module.datasets()),
        };
        for name in wanted {
            if !names.insert(name.to_owned()) {
                let cause = format!("`{}` appears twice in `{}/`", short(name), short(&self.here));
                self.wrong(at, cause, "rename or remove one");
            }
            let of_static = self.of_static.get(&format!("{}/{name}", self.here)).copied();
            if let Some(thing) = of_static.filter(|thing| *thing != "group" || !matches!(node, Node::Group(_))) {
                let cause = format!("the static file has a {thing} `{}/{}` already", short(&self.here), short(name));
                self.wrong(at, cause, "rename or remove one; only groups may be in both");
            }
            if depth <= 1 && name == "beamport" {
                let cause = format!("`{}/beamport` is reserved", short(&self.here));
                self.wrong(at, cause, "choose another name: beamport writes its account there");
            }
        }
    }

    /// A child of a group. None where it is refused.
    fn node(&mut self, at: &str, value: &Value, depth: usize) -> Option<Node> {
        let Some(map) = value.as_object() else {
            let hint = "a child has \"type\": \"group\" or \"module\": ...";
            self.wrong(at, format!("a child is an object, this is {}", kind_of(value)), hint);
            return None;
        };
        if map.has("module") {
            return self.module_node(at, map, value);
        }
        let kind = map.get("type").and_then(Value::as_str);
        match kind {
            Some("group") => (),
            Some(old @ ("dataset" | "stream" | "link")) => {
                self.wrong(
                    &join(at, "type"),
                    format!("`\"type\": \"{old}\"` is the form before 2021"),
                    "write {\"module\": ..., \"config\": {...}}",
                );
                return None;
            }
            Some(other) => {
                let hint = match nearest(other, ["group"]) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => "a child has \"type\": \"group\" or \"module\": ...".to_owned(),
                };
                self.wrong(&join(at, "type"), format!("unknown type `{}`", short(other)), hint);
            }
            None => {
                self.wrong(at, "neither a group nor a module", "a child has \"type\": \"group\" or \"module\": ...");
            }
        }
        // A node with children is checked as a group, whatever its type.
        if kind != Some("group") && !map.has("children") {
            return None;
        }
        self.object(at, value, "a group", words::GROUP, &[]);
        let name = self.name_or_any(at, map);
        let attributes = self.attributes(at, map);
        let length = self.here.len();
        self.here.extend(["/", &name]);
        self.depends_of(at, &attributes, true);
        let children = self.children(at, map, depth + 1);
        self.here.truncate(length);
        self.units_of_logs(&attributes, &children);
        Some(Node::Group(Group { name, attributes, children, from_static: None }))
    }

    /// A child with `module`.
    fn module_node(&mut self, at: &str, map: &Object, value: &Value) -> Option<Node> {
        self.object(at, value, "a module", words::NODE, &[]);
        let module = self.text(at, map, ["module", "module"]);
        let attributes = self.attributes(at, map);
        let module = module?;
        let of_streams = self.kinds.iter().flat_map(ModuleKind::words);
        let known: Vec<&str> = words::WITHOUT_STREAM.into_iter().chain(of_streams).collect();
        if !known.contains(&module) {
            let hint = match (words::foreign(module), nearest(module, known.iter().copied())) {
                (Some(instead), _) => instead.to_owned(),
                (None, Some(meant)) => format!("did you mean `{meant}`?"),
                (None, None) => {
                    format!("modules are: {}; `modules` and `program` of the sink add others", known.join(", "))
                }
            };
            self.wrong(&join(at, "module"), format!("unknown module `{}`", short(module)), hint);
            return None;
        }
        let Some(config) = map.get("config") else {
            self.wrong(at, "`config` is missing", format!("a `{module}` needs \"config\": {{...}}"));
            return None;
        };
        match module {
            "dataset" => self.dataset_node(at, config, attributes),
            "link" => self.link(&join(at, "config"), config),
            "mdat" => self.times(&join(at, "config"), config),
            word => {
                self.depends_of(at, &attributes, true);
                self.stream_module(&join(at, "config"), config, word, attributes)
            }
        }
    }

    /// A dataset with its values; `node_at` is the pointer of the node around its `config`.
    fn dataset_node(&mut self, node_at: &str, config: &Value, attributes: Vec<Attribute>) -> Option<Node> {
        let at = &join(node_at, "config");
        let config = self.object(at, config, "a dataset", words::DATASET, words::OBSOLETE)?;
        let name = self.name_or_any(at, config);
        let value = self.dataset(at, config);
        self.units(node_at, &name, &attributes);
        self.depends_of(node_at, &attributes, false);
        if let Some(on) = value.as_ref().filter(|_| name == "depends_on").and_then(Data::as_text) {
            self.depends_on(at, on, false);
        }
        let compression = self.compression(at, config);
        let is_list = |value: &Data| matches!(value.dtype, DataType::Number(_)) && !value.shape.is_empty();
        if !compression.is_empty() && !value.as_ref().is_none_or(is_list) {
            let hint = "remove it: only arrays of numbers can be compressed";
            self.wrong(&join(at, "compression"), "a single value or text cannot be compressed", hint);
        }
        if compression.iter().any(|(name, _)| name.is_some()) {
            let hint = "write the name of a compression, like \"bitshuffle-lz4\"";
            self.wrong(&join(at, "compression"), "a dataset has one compression", hint);
        }
        let compression = compression.first().map(|(_, filter)| *filter);
        // A placeholder for refused values: links may lead to the dataset, and its name is used.
        let value = value.unwrap_or_else(|| Data::text(""));
        Some(Node::Dataset { name, value, attributes, compression })
    }

    /// A link in this file, or with `file` into another one.
    fn link(&mut self, at: &str, config: &Value) -> Option<Node> {
        // NICOS writes `"type": "NXlink"` into the config of a link.
        let config = self.object(at, config, "a link", words::LINK, &["type"])?;
        let name = self.name_or_any(at, config);
        if !config.has("source") {
            self.wrong(at, "`source` is missing", "add \"source\": the path of its target");
        }
        let source = self.text(at, config, ["source", "source"]);
        if config.has("file") {
            return Some(self.outside(at, config, name, source));
        }
        Some(match source {
            // Resolved by `tree`, which knows the group of the link.
            Some(source) => Node::Link { name, target: vec![source.to_owned()], pointer: at.to_owned() },
            // A placeholder that reserves the name.
            None => Node::Outside { name, file: String::new(), target: String::new() },
        })
    }

    /// A link into another file, which need not exist yet. A program that opens the file opens that one too: it must be
    /// in the same folder or below, so that both can be moved together and no template reaches the files of others.
    fn outside(&mut self, at: &str, config: &Object, name: String, source: Option<&str>) -> Node {
        let file = self.text(at, config, ["file", "file"]);
        for (key, cause, hint) in file_beside(file, source) {
            self.wrong(&join(at, key), cause, hint);
        }
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        Node::Outside { name, file: text(file), target: text(source) }
    }

    /// The times of the run that `mdat` writes.
    fn times(&mut self, at: &str, config: &Value) -> Option<Node> {
        let config = self.object(at, config, "`mdat`", words::TIMES, words::STREAM)?;
        let hint = "\"items\": [\"start_time\", \"end_time\"]";
        if self.is_lenient() && !config.has("items") {
            self.warn(at, "`items` is missing".into(), "neither `start_time` nor `end_time` is written here");
            return Some(Node::Times { start: false, end: false });
        }
        let Some(Value::List(items)) = config.get("items") else {
            self.wrong(at, "`items` is missing or not a list", hint);
            return None;
        };
        let (mut start, mut end) = (false, false);
        for (i, item) in items.iter().enumerate() {
            match item.as_str() {
                Some("start_time") => start = true,
                Some("end_time") => end = true,
                other => {
                    let hint = match other.and_then(|word| nearest(word, ["start_time", "end_time"])) {
                        Some(meant) => format!("did you mean `{meant}`?"),
                        None => hint.to_owned(),
                    };
                    self.wrong(&join(&join(at, "items"), i), "neither `start_time` nor `end_time`", hint);
                    self.refuse_times();
                }
            }
        }
        Some(Node::Times { start, end })
    }
}
