//! From JSON to a template: every mistake is collected, nothing is guessed.

use super::json::{Object, Value};
use super::values::infer;
use super::{Attribute, Group, Layout, Level, Mistake, Module, Node, Variable, tree, units, words};
use crate::hdf::filter::Filter;
use crate::hdf::names::{bad_name, file_beside, join, short};
use crate::hdf::value::{Data, DataType, TYPES, Values};
use crate::limits::{
    ATTRIBUTE_BYTES_MAX, CUE_EVERY_NS, CUE_SECONDS_MAX, DEPTH_MAX, MISTAKES_MAX, MODULES_MAX, NAME_BYTES_MAX,
    NODES_MAX, ROW_BYTES_MAX, STREAMS_MAX,
};
use crate::module::{self, CUE_SECONDS, ModuleKind, Settings};
use crate::static_file::{Content, StaticFile, TEMPLATE_VERSION};
use settings::{Key, nearest};
use std::collections::{HashMap, HashSet};
use wire::DType;

/// Checks a whole template.
pub(super) fn template(
    value: &Value,
    content: Option<Result<Content, Vec<Mistake>>>,
    kinds: &[ModuleKind],
    layout: Layout,
) -> Result<(Group, Option<StaticFile>, Vec<Mistake>), Vec<Mistake>> {
    let mut check = Check { kinds: kinds.to_vec(), layout, ..Check::default() };
    let (mut content, mut static_file) = (content, None);
    // Whether it is known what links can lead to.
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
    let warnings = check.warnings.into_iter().map(Warning::told).collect::<Vec<_>>();
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
    fn told(self) -> Mistake {
        let Self { mut first, places } = self;
        if places > 1 {
            first.cause += &format!("; {places} places, this is the first");
        }
        first
    }
}

/// Gives each module the attributes of the group around it, so that it changes none of them. One that the module says
/// itself counts before that of the group.
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

#[derive(Default)]
pub(super) struct Check {
    layout: Layout,
    mistakes: Vec<Mistake>,
    warnings: Vec<Warning>,
    /// Path of the group that is read.
    here: String,
    /// Groups in which something was refused: what links want of them may be that.
    lost: HashSet<String>,
    /// Paths of what was refused and has a name.
    refused: Vec<String>,
    nodes: usize,
    modules: usize,
    /// Modules that the one just read asks for beside itself.
    beside: Vec<Module>,
    pub(super) fixed_bytes: u64,
    /// The `depends_on`s, whose targets are checked at the end.
    depends: Vec<tree::Depends>,
    /// Configs that say their unit as `unit`.
    by_unit: HashSet<String>,
    /// Kinds of modules, those of users last.
    kinds: Vec<ModuleKind>,
    /// The objects of the static file, by path.
    of_static: HashMap<String, &'static str>,
}

/// The effect of a warning about what readers may stumble over.
const AS_IT_IS: &str = "it is written as it is";

/// The rule for names.
const NAME_HINT: &str = "a name is one step of a path, such as `detector`";

/// The value of an attribute, if it can be one.
pub(crate) fn attribute(value: &serde_json::Value) -> Option<Data> {
    let (value, _) = super::json::read(value.to_string().as_bytes()).ok()?;
    Check::default().attribute_value("", &value, None)
}

impl Check {
    pub(super) fn wrong(&mut self, pointer: &str, cause: impl Into<String>, hint: impl Into<String>) {
        if self.mistakes.len() < MISTAKES_MAX {
            let (pointer, cause, hint) = (pointer.to_owned(), cause.into(), hint.into());
            self.mistakes.push(Mistake { pointer, cause, hint, ..Mistake::default() });
        }
    }

    /// What the ESS file writer takes: a warning that says what is made of it, one for each cause. In another layout it is a
    /// mistake. True where the template is taken.
    pub(super) fn wrong_but(
        &mut self,
        pointer: &str,
        cause: impl Into<String>,
        hint: impl Into<String>,
        made: &str,
    ) -> bool {
        if self.layout != Layout::Ess {
            self.wrong(pointer, cause, hint);
            return false;
        }
        self.warn(pointer, cause.into(), made);
        true
    }

    pub(super) fn warn(&mut self, pointer: &str, cause: String, made: &str) {
        if let Some(known) = self.warnings.iter_mut().find(|one| one.first.cause == cause && one.first.hint == made) {
            known.places += 1;
        } else if self.warnings.len() < MISTAKES_MAX {
            let (pointer, hint) = (pointer.to_owned(), made.to_owned());
            let first = Mistake { level: Level::Warning, pointer, cause, hint, ..Mistake::default() };
            self.warnings.push(Warning { first, places: 1 });
        }
    }

    /// Whether what the ESS file writer takes is taken.
    pub(super) fn is_lenient(&self) -> bool {
        self.layout == Layout::Ess
    }

    /// An object, with a mistake for each key that is neither known nor ignored.
    pub(super) fn object<'v>(
        &mut self,
        at: &str,
        value: &'v Value,
        what: &str,
        known: &[&str],
        ignored: &[&str],
    ) -> Option<&'v Object> {
        let Some(map) = value.as_object() else {
            self.wrong(at, format!("{what} is an object, this is {}", kind_of(value)), "write it as {...}");
            return None;
        };
        for key in &map.twice {
            self.wrong_but(
                &join(at, key),
                format!("the key `{}` appears twice", short(key)),
                "remove one",
                "the last one is used",
            );
        }
        for (key, _) in map.members() {
            if known.contains(&key) || ignored.contains(&key) {
                continue;
            }
            let hint = match nearest(key, known.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("{what} has: {}", known.join(", ")),
            };
            let cause = format!("unknown key `{}` of {what}", short(key));
            if !self.is_lenient() {
                self.wrong(&join(at, key), format!("unknown key `{}`", short(key)), hint);
            } else {
                let perhaps = if hint.starts_with("did you mean") { format!("; {hint}") } else { String::new() };
                self.warn(&join(at, key), cause, &format!("it is ignored{perhaps}"));
            }
        }
        Some(map)
    }

    /// A text under one of two keys.
    fn text<'v>(&mut self, at: &str, map: &'v Object, keys: [&str; 2]) -> Option<&'v str> {
        let (key, value) = first_of(map, keys)?;
        if value.as_str().is_none() {
            let hint = format!("write a text in quotes: \"{key}\": \"...\"");
            self.wrong(&join(at, key), format!("`{key}` is a text, this is {}", kind_of(value)), hint);
        }
        let text = value.as_str()?;
        if text.contains('\0') {
            self.wrong(&join(at, key), "a text with a NUL byte, where HDF5 would cut it", "remove it");
            return None;
        }
        Some(text)
    }

    /// The name of a node. One that has none is checked all the same, under a name that no other has; what links want of
    /// its group may be that node.
    fn name_or_any(&mut self, at: &str, map: &Object) -> String {
        self.name(at, map).unwrap_or_else(|| {
            self.lost.insert(self.here.clone());
            format!("?{}", self.nodes)
        })
    }

    /// A name that must be there and must be one name.
    fn name(&mut self, at: &str, map: &Object) -> Option<String> {
        if !map.has("name") {
            self.wrong(at, "`name` is missing", "add \"name\": \"...\"");
            return None;
        }
        let name = self.text(at, map, ["name", "name"])?;
        match bad_name(name) {
            None => Some(name.to_owned()),
            Some(cause) => {
                self.wrong(&join(at, "name"), cause, NAME_HINT);
                None
            }
        }
    }

    pub(super) fn data_type(&mut self, at: &str, map: &Object, keys: [&str; 2]) -> Option<DataType> {
        let (key, _) = first_of(map, keys)?;
        let word = self.text(at, map, keys)?;
        let found = TYPES.iter().find(|(name, _)| *name == word).map(|(_, t)| *t);
        if found.is_none() {
            let hint = match nearest(word, TYPES.iter().map(|(name, _)| *name)) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("types are: {}", TYPES[..11].iter().map(|(n, _)| *n).collect::<Vec<_>>().join(", ")),
            };
            self.wrong(&join(at, key), format!("unknown type `{}`", short(word)), hint);
        }
        found
    }

    /// The versions that a template and its static file say, as attributes of the root; both must be of one version.
    fn versions(&mut self, map: &Object, of_static: Option<Option<String>>, attributes: &mut Vec<Attribute>) {
        for key in [TEMPLATE_VERSION, "dynamic_version"] {
            let Some(value) = map.get(key) else { continue };
            let text = match value {
                Value::Text(text) if !text.contains('\0') => text.to_string(),
                Value::Number(_) => value.plain().to_string(),
                other => {
                    self.wrong(
                        &join("", key),
                        format!("`{key}` is a text, this is {}", kind_of(other)),
                        format!("write \"{key}\": \"...\""),
                    );
                    continue;
                }
            };
            if let Some(other) =
                of_static.as_ref().filter(|other| key == TEMPLATE_VERSION && other.as_ref() != Some(&text))
            {
                let cause = match other {
                    Some(other) => {
                        format!("the static file is of version `{}`, this is `{}`", short(other), short(&text))
                    }
                    None => "the `template_version` of the static file is not text".to_owned(),
                };
                self.wrong(&join("", key), cause, "use the static file of this template");
            }
            if !attributes.iter().any(|known| known.name == key) {
                attributes.push(Attribute { name: key.to_owned(), value: Data::text(text) });
            }
        }
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

    fn attributes(&mut self, at: &str, map: &Object) -> Vec<Attribute> {
        self.attributes_with(at, map, words::ATTRIBUTE)
    }

    /// Attributes, which in a list have these keys.
    fn attributes_with(&mut self, at: &str, map: &Object, known: &[&str]) -> Vec<Attribute> {
        let mut out: Vec<Attribute> = Vec::new();
        let at = join(at, "attributes");
        match map.get("attributes") {
            None | Some(Value::Null) => (),
            Some(Value::Object(pairs)) => {
                for name in &pairs.twice {
                    let cause = format!("the attribute `{}` appears twice", short(name));
                    self.wrong_but(&join(&at, name), cause, "remove one", "the last one is used");
                }
                for (name, value) in pairs.members() {
                    let at = join(&at, name);
                    if let Some(cause) = bad_name(name) {
                        self.wrong(&at, cause, NAME_HINT);
                    }
                    if let Some(value) = self.attribute_value(&at, value, None) {
                        out.push(Attribute { name: name.to_owned(), value });
                    }
                }
            }
            Some(Value::List(list)) => {
                let mut names = HashSet::new();
                for (i, one) in list.iter().enumerate() {
                    let at = join(&at, i);
                    let Some(one) = self.object(&at, one, "an attribute", known, words::OBSOLETE) else {
                        continue;
                    };
                    let name = self.name(&at, one);
                    // Of an unknown type it is looked at as if it had none.
                    let typed = if one.has("data_type") { ["data_type"; 2] } else { ["dtype", "type"] };
                    let dtype = self.data_type(&at, one, typed);
                    let found = first_of(one, ["values", "value"]);
                    let found = found.or_else(|| first_of(one, ["data"; 2]).filter(|(key, _)| known.contains(key)));
                    let Some((key, value)) = found else {
                        self.wrong(&at, "`values` is missing", "add \"values\": ...");
                        continue;
                    };
                    let what = format!("the attribute `{}`", short(name.as_deref().unwrap_or_default()));
                    let (numbers, dtype) = self.numbers_of(&join(&at, key), value, dtype, &what);
                    let value = self.attribute_value(&join(&at, key), numbers.as_ref().unwrap_or(value), dtype);
                    if let (Some(name), Some(value)) = (name, value) {
                        if !names.insert(name.clone()) {
                            let cause = format!("the attribute `{}` appears twice", short(&name));
                            self.wrong_but(&at, cause, "remove one", "the last one is used");
                            out.retain(|known| known.name != name);
                        }
                        out.push(Attribute { name, value });
                    }
                }
            }
            Some(other) => {
                let cause = format!("`attributes` is an object or a list, this is {}", kind_of(other));
                self.wrong(&at, cause, "write them as \"attributes\": {\"units\": \"m\"}");
            }
        }
        if out.iter().any(|one| one.name == "NX_class" && one.value.as_text().is_none()) {
            self.wrong(&at, "`NX_class` is one text", "write \"NX_class\": \"NXdetector\", or another class");
        }
        out
    }

    fn attribute_value(&mut self, at: &str, value: &Value, dtype: Option<DataType>) -> Option<Data> {
        if !self.count(at) {
            return None;
        }
        let truths = self.truths_as_numbers(at, value, dtype, "an attribute");
        let value = truths.as_ref().unwrap_or(value);
        let inferred = dtype.unwrap_or_else(|| infer(value));
        let data = self.data(at, value, inferred)?;
        let bytes = match &data.values {
            Values::Texts(texts) => texts.iter().map(|t| t.len() + 32).sum(),
            Values::Bytes(bytes) => bytes.len(),
            _ => 0,
        };
        if bytes > ATTRIBUTE_BYTES_MAX {
            self.wrong(
                at,
                format!("an attribute of {bytes} bytes; the limit is {ATTRIBUTE_BYTES_MAX}"),
                "make it a dataset",
            );
            return None;
        }
        if data.shape.contains(&0) {
            self.wrong(at, "an attribute without values", "remove it, or give it a value");
            return None;
        }
        Some(data)
    }

    fn children(&mut self, at: &str, map: &Object, depth: usize) -> Vec<Node> {
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
                // First, so that the group says of itself what the log says.
                let node = Node::Module(Box::new(module));
                self.claim(&at, &node, depth, &mut names);
                out.insert(0, node);
            }
        }
        out
    }

    /// Keeps what a refused child would have been called: links to that are no second mistake. Where it does not say, it may
    /// have been anything.
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

    fn refuse_times(&mut self) {
        self.refused.extend(["start_time", "end_time"].map(|name| format!("{}/{name}", self.here)));
    }

    /// The names that a node takes in its group: each stands once, and one is ours.
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
        // With children it is a group, whatever it says that it is: they are looked at.
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
        let (node_at, at) = (at, &join(at, "config"));
        match module {
            "dataset" => {
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
                // Without values it stands for itself: links may lead to it, and its name is taken.
                let value = value.unwrap_or_else(|| Data::text(""));
                Some(Node::Dataset { name, value, attributes, compression })
            }
            "link" => {
                // NICOS says that a link is an NXlink.
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
                    // Resolved by `tree`, which knows where the link stands.
                    Some(source) => Node::Link { name, target: vec![source.to_owned()], pointer: at.clone() },
                    // To nobody knows where.
                    None => Node::Outside { name, file: String::new(), target: String::new() },
                })
            }
            "mdat" => {
                let config = self.object(at, config, "`mdat`", words::TIMES, words::STREAM)?;
                self.times(at, config)
            }
            word => {
                self.depends_of(node_at, &attributes, true);
                self.stream_module(at, config, word, attributes)
            }
        }
    }

    fn depends_of(&mut self, at: &str, attributes: &[Attribute], is_of_group: bool) {
        if let Some(on) = text_of(attributes, "depends_on") {
            self.depends_on(&join(at, "attributes"), on, is_of_group);
        }
    }

    /// Keeps for later what can only be seen of the whole.
    fn depends_on(&mut self, at: &str, on: &str, is_of_group: bool) {
        let (group, on, pointer) = (self.here.clone(), on.to_owned(), at.to_owned());
        self.depends.push(tree::Depends { group, is_of_group, on, pointer });
    }

    /// That what readers turn into geometry is measured in lengths and angles.
    fn units(&mut self, at: &str, name: &str, attributes: &[Attribute]) {
        let wanted = text_of(attributes, "transformation_type").and_then(units::wanted_of_transformation);
        let wanted = wanted.or_else(|| units::wanted_of_name(name));
        if let (Some(wanted), Some(unit)) = (wanted, text_of(attributes, "units"))
            && let Some((cause, hint)) = units::refused(unit, wanted)
        {
            let cause = format!("the units of `{}`: {cause}", short(name));
            self.wrong_but(&join(at, "attributes"), cause, hint, AS_IT_IS);
        }
    }

    /// The same of a log that moves something: its group says what it is, and the log in which unit.
    fn units_of_logs(&mut self, attributes: &[Attribute], children: &[Node]) {
        let wanted = text_of(attributes, "transformation_type").and_then(units::wanted_of_transformation);
        for module in
            children.iter().filter_map(|node| if let Node::Module(module) = node { Some(module) } else { None })
        {
            let Some(units) = module.plan.units() else { continue };
            let key = if self.by_unit.contains(&module.pointer) { "unit" } else { "value_units" };
            let at = join(&module.pointer, key);
            let of_group = text_of(&module.attributes, "units").or_else(|| text_of(attributes, "units"));
            if let Some(other) = of_group.filter(|other| !units.is_empty() && *other != units) {
                let cause = format!("the values are in `{}`, but the group says `{}`", short(units), short(other));
                self.wrong_but(&at, cause, "make them equal, or remove one", "both are written unchanged");
            } else if let Some(wanted) = wanted
                && !units.is_empty()
                && let Some((cause, hint)) = units::refused(units, wanted)
            {
                self.wrong_but(&at, cause, hint, AS_IT_IS);
            }
        }
    }

    /// A link into another file, which need not be there yet. Who opens the file opens that one too: it lies in the same
    /// folder or below, so that both can be moved together and no template reaches for the files of others.
    fn outside(&mut self, at: &str, config: &Object, name: String, source: Option<&str>) -> Node {
        let file = self.text(at, config, ["file", "file"]);
        for (key, cause, hint) in file_beside(file, source) {
            self.wrong(&join(at, key), cause, hint);
        }
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        Node::Outside { name, file: text(file), target: text(source) }
    }

    fn times(&mut self, at: &str, config: &Object) -> Option<Node> {
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

    fn stream_module(&mut self, at: &str, config: &Value, word: &str, mut attributes: Vec<Attribute>) -> Option<Node> {
        self.modules += 1;
        if self.modules == MODULES_MAX + 1 {
            let hint = "write the rest with another sink";
            self.wrong(at, format!("more than {MODULES_MAX} modules with a stream"), hint);
        }
        let kind = *self.kinds.iter().find(|known| known.words().any(|known| known == word))?;
        let own = kind.key_names();
        let known: Vec<&str> = words::STREAM.iter().chain(&own).copied().collect();
        let config = self.object(at, config, &format!("`{word}`"), &known, words::TUNING)?;
        // A user's module may have keys of the same names, which are its own.
        self.unused(at, config, if kind.user.is_some() { &own } else { &[] });
        let cue_every = self.cue_every(at, config, &own);
        let streams = self.streams(at, config);
        let source = self.text(at, config, ["source", "source"]).map(str::to_owned);
        let (number, units) = match kind.user {
            Some(_) => (None, String::new()),
            None => (self.number_type(at, config, word), self.units_of_values(at, config)),
        };
        let compression = self.compression(at, config);
        let nameless = |schema: &&[u8; 4]| !module::has_origin(**schema);
        if let Some(schema) = kind.schemas.iter().find(nameless).filter(|_| config.has("source")) {
            let cause = format!("messages of `{}` have no origin", schema.escape_ascii());
            self.wrong(&join(at, "source"), cause, "remove `source`; all of the streams are taken");
        }
        let mut settings = ModuleSettings { check: self, at, config, kind, number, units, attributes: &mut attributes };
        let plan = (kind.read)(&mut settings)?;
        let module = Module {
            kind,
            plan,
            // Without streams it still has its group and its names.
            streams: streams.unwrap_or_default(),
            source,
            attributes,
            of_static: Vec::new(),
            compression,
            cue_every,
            layout: self.layout,
            pointer: at.to_owned(),
        };
        self.packed(at, &module);
        self.beside(at, config, &module);
        Some(Node::Module(Box::new(module)))
    }

    /// The type of the values of a module.
    fn number_type(&mut self, at: &str, config: &Object, word: &str) -> Option<DType> {
        let key = first_of(config, ["dtype", "type"]).map(|(key, _)| key);
        match (self.data_type(at, config, ["dtype", "type"]), key) {
            (Some(DataType::Number(dtype)), _) => Some(dtype),
            (Some(DataType::Text), Some(key)) => {
                let hint = "write a type of numbers, such as \"double\"";
                self.wrong(&join(at, key), format!("`{word}` holds numbers"), hint);
                None
            }
            _ => None,
        }
    }

    /// The unit of the values of a module.
    fn units_of_values(&mut self, at: &str, config: &Object) -> String {
        let units = self.text(at, config, ["value_units", "unit"]).unwrap_or_default().to_owned();
        if !config.has("value_units") {
            self.by_unit.insert(at.to_owned());
        }
        if let (Some(one), Some(other)) =
            (config.get("value_units").and_then(Value::as_str), self.text(at, config, ["unit", "unit"]))
            && one != other
        {
            let cause = format!("`value_units` is `{}` and `unit` is `{}`", short(one), short(other));
            self.wrong(&join(at, "unit"), cause, "remove one of them");
        }
        units
    }

    /// Keys that are the same in all templates hold what the ESS writer takes for them, also where ours does not use it.
    fn unused(&mut self, at: &str, config: &Object, own: &[&str]) {
        self.text(at, config, ["writer_module", "writer_module"]);
        let is_whole = |value: &Value, least: f64| value.as_f64().is_some_and(|n| n >= least && n.fract() == 0.0);
        let are_whole = |value: &Value| match value {
            Value::List(list) => !list.is_empty() && list.iter().all(|one| is_whole(one, 1.0)),
            one => is_whole(one, 1.0),
        };
        for key in words::TUNING.iter().filter(|key| !own.contains(key)) {
            let Some(value) = config.get(key) else { continue };
            let number = self.number_in_text(&join(at, key), value);
            let value = number.as_ref().unwrap_or(value);
            let (is_right, noun, example) = match *key {
                "chunk_size" => (are_whole(value), "a whole number from 1 on, or a list of them", "1024"),
                "array_size" => (are_whole(value), "a list of whole numbers from 1 on", "[1024, 1024]"),
                "cue_interval" => (is_whole(value, 0.0), "a whole number", "1000"),
                _ => (matches!(value, Value::Bool(_)), "true or false", "true"),
            };
            if !is_right {
                let cause = match value.as_str() {
                    Some(text) => format!("`{key}` is {noun}, this is the text `{}`", short(text)),
                    None => format!("`{key}` is {noun}, this is {}", said(value)),
                };
                self.wrong(&join(at, key), cause, format!("write \"{key}\": {example}, or remove it"));
            }
        }
        if config.has("stream")
            && let Some(topic) = config.get("topic")
            && !(topic.as_str().is_some() || topic.as_list().is_some_and(|l| l.iter().all(|t| t.as_str().is_some())))
        {
            let cause = format!("`topic` is a text or a list of texts, this is {}", kind_of(topic));
            self.wrong(&join(at, "topic"), cause, "remove it: `stream` replaces it");
        }
    }

    /// How often a module says which time begins where.
    fn cue_every(&mut self, at: &str, config: &Object, own: &[&str]) -> u64 {
        let Some(value) = config.get(CUE_SECONDS.name).filter(|_| own.contains(&CUE_SECONDS.name)) else {
            return CUE_EVERY_NS;
        };
        match value.as_f64().filter(|seconds| *seconds > 0.0 && *seconds <= CUE_SECONDS_MAX) {
            Some(seconds) => ((seconds * 1e9).round() as u64).max(1),
            None => {
                let cause = format!(
                    "`{}` is a number above 0 and at most {CUE_SECONDS_MAX}, this is {}",
                    CUE_SECONDS.name,
                    said(value)
                );
                self.wrong(
                    &join(at, CUE_SECONDS.name),
                    cause,
                    "write seconds of source time, such as \"cue_seconds\": 10",
                );
                CUE_EVERY_NS
            }
        }
    }

    /// Adds the modules that the ESS writer puts beside a log where the template asks for them; in its own layout,
    /// unless the template refuses them.
    fn beside(&mut self, at: &str, config: &Object, log: &Module) {
        if !log.kind.has_neighbours {
            return;
        }
        for (key, kind, plan) in module::neighbours() {
            match config.get(key.name) {
                None if self.layout == Layout::Nexus => (),
                Some(Value::Bool(false)) => (),
                None | Some(Value::Bool(true)) => {
                    let pointer = join(at, key.name);
                    self.beside.push(Module { kind, plan, attributes: Vec::new(), pointer, ..log.clone() });
                }
                // Told as what is not used.
                Some(_) => (),
            }
        }
    }

    /// The streams of a module: one name, or a list of them.
    fn streams(&mut self, at: &str, config: &Object) -> Option<Vec<String>> {
        let Some((key, value)) = first_of(config, ["stream", "topic"]) else {
            self.wrong(at, "`stream` is missing", "add \"stream\": the name of one of the sink's inputs");
            return None;
        };
        let at = join(at, key);
        let names: Vec<&Value> = match value {
            Value::List(list) => list.iter().collect(),
            one => vec![one],
        };
        let mut out: Vec<String> = Vec::new();
        for name in &names {
            match name.as_str() {
                None => {
                    let cause = format!("`{key}` is a text or a list of texts, this has {}", kind_of(name));
                    self.wrong(&at, cause, "write the name of one of the sink's inputs in quotes");
                }
                Some(name) if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') => {
                    let hint = "write the name of one of the sink's inputs";
                    self.wrong(&at, "the name of a stream has 1 to 255 bytes, none of them NUL", hint);
                }
                Some(name) if out.iter().any(|known| known == name) => {
                    self.wrong(&at, format!("the stream `{}` appears twice", short(name)), "remove one");
                }
                Some(_) if out.len() == STREAMS_MAX => {
                    let hint = "share them out to several groups with a module each";
                    self.wrong(&at, format!("more than {STREAMS_MAX} streams of one module"), hint);
                    return None;
                }
                Some(name) => out.push(name.to_owned()),
            }
        }
        if names.is_empty() {
            self.wrong(&at, "a list without streams", "name one of the sink's inputs");
        }
        (out.len() == names.len() && !out.is_empty()).then_some(out)
    }

    /// One for all datasets of a module, or an object with one for each that is named.
    fn compression(&mut self, at: &str, config: &Object) -> Vec<(Option<String>, Filter)> {
        let at = join(at, "compression");
        let named: Vec<(Option<String>, &Value)> = match config.get("compression") {
            None | Some(Value::Null) => return Vec::new(),
            Some(Value::Object(map)) => map.members().map(|(name, value)| (Some(name.to_owned()), value)).collect(),
            Some(value) => vec![(None, value)],
        };
        let mut out = Vec::new();
        for (name, value) in named {
            let at = name.as_ref().map_or_else(|| at.clone(), |name| join(&at, name));
            let word = value.as_str().unwrap_or_default();
            match Filter::NAMES.iter().find(|(known, _)| *known == word) {
                Some((_, filter)) => out.push((name, *filter)),
                None => {
                    let known = Filter::NAMES.map(|(name, _)| name);
                    let hint = match nearest(word, known.iter().copied()) {
                        Some(meant) => format!("did you mean `{meant}`?"),
                        None => format!("there are: {}", known.join(", ")),
                    };
                    self.wrong(
                        &at,
                        match value.as_str() {
                            Some(word) => format!("unknown compression `{}`", short(word)),
                            None => format!("a compression is a text, this is {}", kind_of(value)),
                        },
                        hint,
                    );
                }
            }
        }
        out
    }

    /// Checks that each dataset that is to be packed is one of the module, or of its neighbours. The datasets of frames
    /// are known only when frames come.
    fn packed(&mut self, at: &str, module: &Module) {
        let neighbours = module::neighbours().map(|(_, kind, plan)| Module { kind, plan, ..module.clone() });
        let beside = neighbours.iter().filter(|_| module.kind.has_neighbours).flat_map(Module::datasets);
        let names: Vec<&str> = module.datasets().into_iter().chain(beside).collect();
        let packed = module.compression.iter().filter_map(|(name, _)| name.as_deref());
        for name in packed.filter(|name| !names.contains(name) && !module.kind.has_metadata) {
            let hint = match nearest(name, names.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("its datasets are: {}", names.join(", ")),
            };
            let at = join(&join(at, "compression"), name);
            self.wrong(&at, format!("the module has no dataset `{}`", short(name)), hint);
        }
    }

    fn variables(&mut self, at: &str, config: &Object, key: &str) -> Vec<Variable> {
        let at = join(at, key);
        let list = match config.get(key) {
            None => return Vec::new(),
            Some(Value::List(list)) => list,
            Some(other) => {
                let cause = format!("`{key}` is a list, this is {}", kind_of(other));
                self.wrong(&at, cause, format!("write \"{key}\": [{{\"name\": \"signal\"}}]"));
                self.lost.insert(self.here.clone());
                return Vec::new();
            }
        };
        let mut out = Vec::new();
        for (i, one) in list.iter().enumerate() {
            let at = join(&at, i);
            if !self.count(&at) {
                break;
            }
            let Some(one) = self.object(&at, one, "a variable", words::VARIABLE, words::OBSOLETE) else {
                continue;
            };
            let name = self.name_or_any(&at, one);
            let dtype = self.data_type(&at, one, ["data_type", "data_type"]);
            if dtype == Some(DataType::Text) && key == "variables" {
                let hint = "write a type of numbers, such as \"double\", or make it one of `constants`";
                self.wrong(&join(&at, "data_type"), "a growing dataset holds numbers", hint);
            }
            let axes = one.get("axes").map(|axes| {
                let list: Option<Vec<String>> = axes.as_list().and_then(|l| {
                    l.iter().map(|a| a.as_str().filter(|a| !a.contains('\0')).map(str::to_owned)).collect()
                });
                list.unwrap_or_else(|| {
                    self.wrong(&join(&at, "axes"), "`axes` is a list of texts", "write \"axes\": [\"x\", \"tof\"]");
                    Vec::new()
                })
            });
            let shape = one.get("shape").and_then(|s| self.shape(&join(&at, "shape"), Some(s), 1, ROW_BYTES_MAX / 8));
            if let (Some(axes), Some(shape)) = (&axes, &shape)
                && axes.len() != shape.len()
            {
                self.wrong(
                    &at,
                    format!("{} axes and {} lengths", axes.len(), shape.len()),
                    "one name for each dimension",
                );
            }
            let data = one.get("data").and_then(|data| {
                if key == "variables" {
                    self.wrong(
                        &join(&at, "data"),
                        "a variable has its values from messages",
                        "constants may have `data`",
                    );
                    return None;
                }
                self.constant(&join(&at, "data"), data, dtype, shape.as_ref())
            });
            let (unit, label) = (self.text(&at, one, ["unit", "unit"]), self.text(&at, one, ["label", "label"]));
            self.text(&at, one, ["source", "source"]);
            out.push(Variable {
                name,
                unit: unit.map(str::to_owned),
                label: label.map(str::to_owned),
                dtype,
                axes,
                shape,
                data,
            });
        }
        out
    }
}

/// `config` of one module, for its kind.
struct ModuleSettings<'c> {
    check: &'c mut Check,
    at: &'c str,
    config: &'c Object,
    kind: ModuleKind,
    number: Option<DType>,
    units: String,
    /// Those of the group, as far as the module names them.
    attributes: &'c mut Vec<Attribute>,
}

impl Settings for ModuleSettings<'_> {
    fn number(&self) -> Option<DType> {
        self.number
    }

    fn units(&self) -> &str {
        &self.units
    }

    fn has(&self, key: &Key) -> bool {
        self.config.has(key.name)
    }

    fn flag(&self, key: &Key) -> Option<bool> {
        match self.config.get(key.name) {
            Some(Value::Bool(value)) => Some(*value),
            _ => None,
        }
    }

    fn variables(&mut self, key: &Key) -> Vec<Variable> {
        self.check.variables(self.at, self.config, key.name)
    }

    fn attributes(&mut self, _key: &Key) -> &[Attribute] {
        let more = self.check.attributes_with(self.at, self.config, words::ARRAY_ATTRIBUTE);
        self.attributes.extend(more);
        self.attributes
    }

    fn members(&self, keys: &[&str]) -> serde_json::Map<String, serde_json::Value> {
        let own = self.config.members().filter(|(key, _)| keys.contains(key));
        own.map(|(key, value)| (key.to_owned(), value.plain())).collect()
    }

    fn kind(&self) -> &ModuleKind {
        &self.kind
    }

    fn wrong(&mut self, key: &str, cause: String, hint: String) {
        let at = if key.is_empty() { self.at.to_owned() } else { join(self.at, key) };
        self.check.wrong(&at, cause, hint);
    }

    fn wrong_but(&mut self, key: &str, cause: String, hint: &str, written: &str) {
        self.check.wrong_but(&join(self.at, key), cause, hint, written);
    }
}

pub(super) fn first_of<'v, 'k>(map: &'v Object, keys: [&'k str; 2]) -> Option<(&'k str, &'v Value)> {
    keys.into_iter().find_map(|key| map.get(key).map(|value| (key, value)))
}

/// An attribute that is a text.
fn text_of<'a>(attributes: &'a [Attribute], name: &str) -> Option<&'a str> {
    attributes.iter().find(|a| a.name == name).and_then(|a| a.value.as_text())
}

/// A value in a word: a number as it is.
fn said(value: &Value) -> String {
    value.as_number().map_or_else(|| kind_of(value).to_owned(), ToString::to_string)
}

pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::Text(_) => "a text",
        Value::List(_) | Value::Numbers(_) => "a list",
        Value::Object(_) => "an object",
    }
}
