//! A module that reads streams: its streams, its keys, those of its kind, and the modules beside it.

use super::Check;
use super::keys::{kind_of, said};
use crate::hdf::filter::Filter;
use crate::hdf::names::{join, short};
use crate::hdf::value::DataType;
use crate::limits::{CUE_EVERY_NS, CUE_SECONDS_MAX, MODULES_MAX, NAME_BYTES_MAX, STREAMS_MAX};
use crate::module::{self, CUE_SECONDS, ModuleKind, Settings};
use crate::template::json::{Object, Value, first_of};
use crate::template::{Attribute, Layout, Module, Node, Variable, words};
use settings::{Key, nearest};
use wire::DType;

impl Check {
    /// A module of the kind `word`.
    pub(super) fn stream_module(
        &mut self,
        at: &str,
        config: &Value,
        word: &str,
        mut attributes: Vec<Attribute>,
    ) -> Option<Node> {
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
            // A module without streams still has its group and its names: links are checked against them.
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

    /// Checks the keys that tune the ESS writer, also those that ours does not use: their values must be of the types
    /// that the ESS writer accepts.
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

    /// Time between two cues of a module, ns.
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
                // `unused` reports it.
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

    /// The compressions: one for all datasets, or by the name of the dataset.
    pub(super) fn compression(&mut self, at: &str, config: &Object) -> Vec<(Option<String>, Filter)> {
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

    /// Checks that each name under `compression` is a dataset of the module, or of its neighbours. The datasets of
    /// frames are unknown before the first frame.
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
}

/// `config` of one module, for its kind.
struct ModuleSettings<'c> {
    check: &'c mut Check,
    at: &'c str,
    config: &'c Object,
    kind: ModuleKind,
    number: Option<DType>,
    units: String,
    /// The attributes of the module.
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
