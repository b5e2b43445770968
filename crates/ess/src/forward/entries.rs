//! The streams of the forwarder as PVs of the source `pvs`, and the instrument file in which it stands.
//!
//! Streams of one PV and topic share what is sent beside the values: alarms, connections and units are sent once, by
//! the first of them.
//!
//! Constraint: a password never comes into the instrument file; it travels in the environment of `beamport up`.

use super::{Protocol, Schema, Stream, Streams};
use crate::limits::{TAKEN_AGE, TAKEN_FREE};
use crate::options::ForwarderOptions;
use crate::plan::{STREAMS_FOLDER, properties, quoted};
use serde_json::{Map, Value, json};
use settings::Size;
use settings::units::{duration_text, size_text};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Name of the instrument file.
#[cfg(feature = "client")]
pub(crate) const FORWARDER_FILE: &str = "forwarder.toml";
/// Name of the source in it.
pub(crate) const SOURCE: &str = "pvs";

/// The identity of an entry of the source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) protocol: Protocol,
    pub(crate) pv: String,
    pub(crate) topic: String,
    /// A word of the source.
    pub(crate) schema: String,
}

/// Messages that are sent of an entry, beside its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choices {
    pub(crate) repeat: bool,
    pub(crate) alarms: bool,
    pub(crate) connections: bool,
    pub(crate) units: bool,
}

/// The PVs of the source.
pub(crate) type Entries = BTreeMap<Identity, Choices>;

/// The word of the source for the values of a stream; none where only what is beside them is sent.
fn word(schema: Schema) -> Option<&'static str> {
    match schema {
        Schema::F144 => Some("f144"),
        Schema::F142 => Some("f142"),
        Schema::NttableSe00 => Some("se00"),
        Schema::NttableSenv => Some("senv"),
        Schema::Tdct => Some("tdct"),
        Schema::Ad00 => Some("ad00"),
        Schema::Al00 | Schema::Ep01 | Schema::Un00 | Schema::NoOp => None,
    }
}

/// The entries of streams.
pub(crate) fn entries(streams: &Streams) -> Entries {
    let mut groups: BTreeMap<(Protocol, &str, &str), Vec<&Stream>> = BTreeMap::new();
    for stream in &streams.forwarded {
        groups.entry((stream.protocol, &stream.channel, &stream.topic)).or_default().push(stream);
    }
    let mut entries = Entries::new();
    for ((protocol, pv, topic), streams) in groups {
        let mut words: BTreeMap<&str, bool> = BTreeMap::new();
        for stream in &streams {
            if let Some(word) = word(stream.schema) {
                *words.entry(word).or_default() |= stream.is_periodic;
            }
        }
        if words.is_empty() {
            words.insert("none", streams.iter().any(|stream| stream.is_periodic));
        }
        // Those of `f142` hold their alarm.
        let mut beside = Choices {
            repeat: false,
            alarms: streams.iter().any(|stream| stream.schema != Schema::F142),
            connections: true,
            units: streams.iter().any(|stream| stream.schema == Schema::Un00),
        };
        for (word, repeat) in words {
            let (pv, topic) = (pv.to_owned(), topic.to_owned());
            entries.insert(Identity { protocol, pv, topic, schema: word.to_owned() }, Choices { repeat, ..beside });
            beside = Choices { repeat: false, alarms: false, connections: false, units: false };
        }
    }
    entries
}

impl Identity {
    /// As the source takes it.
    fn json(&self) -> Map<String, Value> {
        let name = format!("{}:{}", self.protocol.name().to_ascii_lowercase(), self.pv);
        let table = [("pv", name.as_str()), ("topic", self.topic.as_str()), ("schema", self.schema.as_str())];
        table.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect()
    }

    /// From a row of the source's status.
    pub(crate) fn of_status(row: &Value) -> Option<Self> {
        let text = |key: &str| row[key].as_str();
        let protocol = text("protocol")?;
        Some(Self {
            protocol: *Protocol::ALL.iter().find(|known| known.name().eq_ignore_ascii_case(protocol))?,
            pv: text("pv")?.to_owned(),
            topic: text("topic").unwrap_or_default().to_owned(),
            schema: text("schema")?.to_owned(),
        })
    }
}

fn added((identity, choices): (&Identity, &Choices)) -> Value {
    let Choices { repeat, alarms, connections, units } = *choices;
    let mut entry = identity.json();
    let words = [("repeat", repeat), ("alarms", alarms), ("connections", connections), ("units", units)];
    entry.extend(words.map(|(key, choice)| (key.to_owned(), choice.into())));
    Value::Object(entry)
}

/// The request that makes `wanted` of what the source has. It may be sent again: what is there already stays untouched.
pub(crate) fn request(wanted: &Entries) -> Value {
    let add: Vec<Value> = wanted.iter().map(added).collect();
    json!({"add": add, "replace": true})
}

/// The instrument file that `beamport up` runs.
pub(crate) fn instrument_file(options: &ForwarderOptions) -> String {
    let mut text = String::from("# Made by `beamport ess forwarder`. `beamport up` runs it, also by hand.\n\n");
    // Writing to a String cannot fail.
    let _ = writeln!(text, "instrument = \"forwarder\"\ndata = {}\n", quoted(STREAMS_FOLDER));
    let _ = writeln!(
        text,
        "# The PVs are kept beside the stream.\n[source.{SOURCE}]\nkind = \"pva\"\npvs = []\nunits = false"
    );
    if let Some(repeat) = options.repeat {
        let _ = writeln!(text, "repeat = {}", quoted(&duration_text(repeat)));
    }
    if let Some(period) = options.fake_period {
        let _ = writeln!(text, "fake_period = {}", quoted(&duration_text(period)));
    }
    let (age, free) = (duration_text(TAKEN_AGE), size_text(Size(TAKEN_FREE)));
    let _ = writeln!(text, "level = \"disk\"\nwhen_full = \"wait\"");
    let _ = writeln!(text, "retain_age = {}\nkeep_free = {}\n", quoted(&age), quoted(&free));
    let _ = writeln!(text, "[sink.kafka]\nkind = \"kafka\"\ninputs = [{}]\nearly = true", quoted(SOURCE));
    // A topic that is deleted holds up its own streams alone.
    let _ = writeln!(text, "brokers = {}\ntopic = \"origin\"\nmissing = \"aside\"", quoted(&options.output.brokers));
    let mut given = properties(&options.output.properties);
    // That of today's forwarder.
    given.push("\"message.max.bytes\" = 20000000".into());
    let _ = writeln!(text, "properties = {{ {} }}", given.join(", "));
    text
}
