//! An entry of a list of PVs: `"A:B"`, `"ca:A:B"`, `{ pv = "A:B", schema = "tdct", topic = "loki_choppers" }`; and
//! patterns that choose entries.

use crate::limits::{PV_BYTES_MAX, TOPIC_BYTES_MAX};
use serde_json::{Map, Value, json};
use settings::{Refused, Word, shortened, unknown_word};
use std::borrow::Cow;

/// How a PV is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Protocol {
    #[default]
    Pva,
    Ca,
    /// A simulated PV: random integers once a second.
    Fake,
}

impl Word for Protocol {
    const ALL: &'static [(&'static str, Self)] = &[("pva", Self::Pva), ("ca", Self::Ca), ("fake", Self::Fake)];
}

/// The schema of the values of a PV.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Schema {
    /// The schema of its type.
    #[default]
    Auto,
    F144,
    F142,
    Se00,
    Senv,
    Tdct,
    Ad00,
    Bppv,
    /// Nothing: only alarms, connections and units.
    None,
}

impl Word for Schema {
    const ALL: &'static [(&'static str, Self)] = &[
        ("auto", Self::Auto),
        ("f144", Self::F144),
        ("f142", Self::F142),
        ("se00", Self::Se00),
        ("senv", Self::Senv),
        ("tdct", Self::Tdct),
        ("ad00", Self::Ad00),
        ("bppv", Self::Bppv),
        ("none", Self::None),
    ];
}

/// The identity of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) protocol: Protocol,
    pub(crate) pv: String,
    pub(crate) schema: Schema,
    pub(crate) topic: Option<String>,
}

/// One entry. Choices that it does not make are those of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) identity: Identity,
    pub(crate) repeat: Option<bool>,
    pub(crate) alarms: Option<bool>,
    pub(crate) connections: Option<bool>,
    pub(crate) units: Option<bool>,
    /// Nobody misses it where it is not there.
    pub(crate) optional: bool,
}

const HINT: &str = "write `\"NAME\"`, or `{ pv = \"NAME\", schema = \"f144\" }`";
const KEYS: [&str; 8] = ["pv", "schema", "topic", "repeat", "alarms", "connections", "units", "optional"];

/// A name without its prefix, and the protocol that this names: `ca:A:B`, or `ca://A:B` as other clients write it.
fn split(name: &str) -> (Option<Protocol>, &str) {
    let known = name.split_once(':').and_then(|(word, rest)| Some((Protocol::of(word)?, rest)));
    let known = known.map(|(protocol, rest)| (protocol, rest.strip_prefix("//").unwrap_or(rest)));
    known.map_or((None, name), |(protocol, rest)| (Some(protocol), rest))
}

/// Reads the name of a PV: the protocol that its prefix names, and the rest.
pub(crate) fn read_name(name: &str) -> Result<(Option<Protocol>, &str), Refused> {
    let (prefix, pv) = split(name);
    wrong_pv(pv).map_or(Ok((prefix, pv)), Err)
}

fn wrong_pv(pv: &str) -> Option<Refused> {
    let refused = |cause: String| Some(Refused::new(cause, "correct the name"));
    if pv.is_empty() {
        return refused("the name of the PV is empty".into());
    }
    if pv.len() > PV_BYTES_MAX {
        return refused(format!("`{}` has more than {PV_BYTES_MAX} bytes", shortened(pv)));
    }
    if pv.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return refused(format!("`{}` contains a space or a control character", shortened(pv)));
    }
    let life = pv.rsplit_once('#').map(|(_, number)| number);
    if life.is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit())) {
        return refused(format!("`{}` ends in `#` and a number, which names the lives of an origin", shortened(pv)));
    }
    None
}

fn wrong_topic(topic: &str) -> Option<Refused> {
    let is_plain = topic.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    let is_topic = is_plain && !["", ".", ".."].contains(&topic) && topic.len() <= TOPIC_BYTES_MAX;
    let hint = format!("names of topics have letters, digits, `.`, `_` and `-`, at most {TOPIC_BYTES_MAX} of them");
    (!is_topic).then(|| Refused::new(format!("`{}` is not a topic name", shortened(topic)), hint))
}

fn text_of<'a>(table: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, Refused> {
    match table.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Refused::new(format!("`{key}` of an entry is not a text"), HINT)),
    }
}

fn choice_of(table: &Map<String, Value>, key: &str) -> Result<Option<bool>, Refused> {
    match table.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(choice)) => Ok(Some(*choice)),
        Some(_) => Err(Refused::new(format!("`{key}` of an entry is not true or false"), HINT)),
    }
}

fn schema_of(table: &Map<String, Value>) -> Result<Option<Schema>, Refused> {
    let word = text_of(table, "schema")?;
    let unknown = |word: &str| unknown_word(word, Schema::ALL.iter().map(|(known, _)| *known));
    word.map(|word| Schema::of(word).ok_or_else(|| unknown(word))).transpose()
}

/// The table of an entry or a pattern; a text is that of `pv` alone.
fn table_of(value: &Value) -> Option<Cow<'_, Map<String, Value>>> {
    match value {
        Value::String(_) => Some(Cow::Owned(Map::from_iter([("pv".to_owned(), value.clone())]))),
        Value::Object(table) => Some(Cow::Borrowed(table)),
        _ => None,
    }
}

impl Entry {
    /// Reads one. `protocol`: of a name without a prefix.
    pub(crate) fn of_json(value: &Value, protocol: Protocol) -> Result<Self, Refused> {
        let table = &*table_of(value).ok_or_else(|| Refused::new("an entry is not a text or a table", HINT))?;
        if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
            let hint = format!("an entry has {}", KEYS.map(|key| format!("`{key}`")).join(", "));
            return Err(Refused::new(format!("unknown key `{}` of an entry", shortened(key)), hint));
        }
        let name = text_of(table, "pv")?.ok_or_else(|| Refused::new("an entry has no `pv`", HINT))?;
        let (prefix, pv) = read_name(name)?;
        let topic = text_of(table, "topic")?;
        if let Some(refused) = topic.and_then(wrong_topic) {
            return Err(refused);
        }
        Ok(Self {
            identity: Identity {
                protocol: prefix.unwrap_or(protocol),
                pv: pv.to_owned(),
                schema: schema_of(table)?.unwrap_or_default(),
                topic: topic.map(str::to_owned),
            },
            repeat: choice_of(table, "repeat")?,
            alarms: choice_of(table, "alarms")?,
            connections: choice_of(table, "connections")?,
            units: choice_of(table, "units")?,
            optional: choice_of(table, "optional")?.unwrap_or(false),
        })
    }

    /// The inverse, with the prefix of the protocol.
    pub(crate) fn to_json(&self) -> Value {
        let mut table = json!({"pv": self.identity.name()});
        if self.identity.schema != Schema::Auto {
            table["schema"] = self.identity.schema.word().into();
        }
        if let Some(topic) = &self.identity.topic {
            table["topic"] = topic.as_str().into();
        }
        let choices = [
            ("repeat", self.repeat),
            ("alarms", self.alarms),
            ("connections", self.connections),
            ("units", self.units),
            ("optional", self.optional.then_some(true)),
        ];
        for (key, choice) in choices {
            if let Some(choice) = choice {
                table[key] = choice.into();
            }
        }
        table
    }
}

impl Identity {
    /// `pva:A:B`.
    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.protocol.word(), self.pv)
    }

    /// The origin of its messages.
    pub(crate) fn origin(&self) -> String {
        self.topic.as_ref().map_or_else(|| self.pv.clone(), |topic| format!("{topic}/{}", self.pv))
    }

    /// The identity as one text, a key of the state.
    pub(crate) fn key(&self) -> String {
        format!("{} {} {}", self.name(), self.schema.word(), self.topic.as_deref().unwrap_or(""))
    }
}

/// Chooses entries; what it does not name matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pattern {
    protocol: Option<Protocol>,
    pv: Option<String>,
    topic: Option<String>,
    schema: Option<Schema>,
}

impl Pattern {
    /// From a text, the pattern of the name, or an object with `pv`, `topic` and `schema`.
    pub(crate) fn of_json(value: &Value) -> Result<Self, Refused> {
        let hint = "write a pattern like `\"MOTOR:*\"`, or `{\"pv\": PATTERN, \"topic\": PATTERN, \"schema\": WORD}`";
        let table = &*table_of(value).ok_or_else(|| Refused::new("a pattern is not a text or an object", hint))?;
        if let Some(key) = table.keys().find(|key| !["pv", "topic", "schema"].contains(&key.as_str())) {
            return Err(Refused::new(format!("unknown key `{}` of a pattern", shortened(key)), hint));
        }
        let (protocol, pv) = text_of(table, "pv")?.map_or((None, None), |name| {
            let (protocol, pv) = split(name);
            (protocol, Some(pv.to_owned()))
        });
        let topic = text_of(table, "topic")?.map(str::to_owned);
        Ok(Self { protocol, pv, topic, schema: schema_of(table)? })
    }

    /// The only name that it may choose; `None` where it has wildcards or chooses any.
    pub(crate) fn exact(&self) -> Option<&str> {
        self.pv.as_deref().filter(|pv| !pv.contains(['*', '?']))
    }

    pub(crate) fn matches(&self, identity: &Identity) -> bool {
        let fits = |pattern: &Option<String>, text: &str| {
            pattern.as_ref().is_none_or(|pattern| matches(pattern.as_bytes(), text.as_bytes()))
        };
        self.protocol.is_none_or(|protocol| protocol == identity.protocol)
            && self.schema.is_none_or(|schema| schema == identity.schema)
            && fits(&self.pv, &identity.pv)
            && fits(&self.topic, identity.topic.as_deref().unwrap_or(""))
    }
}

/// Whether a text has the form of a pattern: `*` stands for any bytes, `?` for one. At most pattern times text steps.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // The newest star, and where in the text what follows it was tried.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(one) if *one == b'?' || *one == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match &mut star {
                Some((at, tried)) => {
                    *tried += 1;
                    (p, t) = (*at + 1, *tried);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|one| *one == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(value: Value) -> Result<Entry, String> {
        Entry::of_json(&value, Protocol::Pva).map_err(|refused| refused.cause)
    }

    #[test]
    fn entries_read_back() {
        for value in [
            json!({"pv": "pva:A:B"}),
            json!({"pv": "ca:A:B.RBV", "schema": "tdct", "topic": "loki_choppers"}),
            json!({"pv": "fake:E", "schema": "none", "repeat": true, "alarms": false, "connections": true}),
            json!({"pv": "ca:F", "optional": true}),
        ] {
            let read = entry(value.clone()).unwrap();
            assert_eq!(read.to_json(), value);
        }
        let (short, long) = (entry(json!("A:B")).unwrap(), entry(json!({"pv": "pva:A:B", "schema": "auto"})).unwrap());
        assert_eq!(short, long);
        assert_eq!(short, entry(json!("pva://A:B")).unwrap());
        assert_eq!(entry(json!("ca://A:B")).unwrap(), entry(json!("ca:A:B")).unwrap());
        assert_eq!(short.identity.origin(), "A:B");
        let topic = entry(json!({"pv": "ca:A:B", "topic": "loki_motion"})).unwrap();
        assert_eq!(topic.identity.origin(), "loki_motion/A:B");
        assert_eq!(topic.identity.protocol, Protocol::Ca);
    }

    #[test]
    fn each_mistake_is_named() {
        for (value, cause) in [
            (json!(""), "is empty"),
            (json!("ca:"), "is empty"),
            (json!(7), "not a text or a table"),
            (json!("a b"), "a space"),
            (json!("cam#2"), "lives of an origin"),
            (json!("x".repeat(501)), "more than 500 bytes"),
            (json!({"schema": "f144"}), "no `pv`"),
            (json!({"pv": "A", "schema": "f145"}), "unknown word `f145`"),
            (json!({"pv": "A", "topic": "a/b"}), "not a topic name"),
            (json!({"pv": "A", "repeat": 1}), "not true or false"),
            (json!({"pv": "A", "unit": true}), "unknown key `unit`"),
        ] {
            let found = entry(value.clone()).unwrap_err();
            assert!(found.contains(cause), "{value}: {found}");
        }
    }

    #[test]
    fn patterns_choose_by_name_topic_and_schema() {
        let one = entry(json!({"pv": "LOKI:MOT:1.RBV", "schema": "f144", "topic": "loki_motion"})).unwrap().identity;
        let chosen = |value: Value| Pattern::of_json(&value).unwrap().matches(&one);
        for value in [
            json!("*"),
            json!("LOKI:*"),
            json!("*.RBV"),
            json!("LOKI:MOT:?.RBV"),
            json!("*MOT*RBV"),
            json!("pva:LOKI:MOT:1.RBV"),
            json!({}),
            json!({"topic": "loki_*", "schema": "f144"}),
        ] {
            assert!(chosen(value.clone()), "{value}");
        }
        for value in [
            json!(""),
            json!("LOKI"),
            json!("LOKI:MOT:??.RBV"),
            json!("ca:*"),
            json!({"topic": ""}),
            json!({"schema": "f142"}),
        ] {
            assert!(!chosen(value.clone()), "{value}");
        }
        assert!(Pattern::of_json(&json!({"channel": "*"})).is_err());
    }
}
