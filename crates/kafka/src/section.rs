//! `[source.NAME] kind = "kafka"`: its keys, and the plan that they make.

use crate::limits::TOPIC_CHARS_MAX;
use crate::property::{self, Property};
use flow::edge::{SourceKind, SourcePlan};
use flow::{Fault, Source};
use serde_json::{Map, Value as Json};
use settings::units::{self, When};
use settings::{Key, Refused, Section, Setting, Take, Time, key, noun, required, shortened};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use toml_edit::Item;

pub(crate) static BROKERS: Key =
    required("brokers", "`HOST:PORT`, with commas between", "Some brokers of the cluster.");
static TOPICS: Key = required(
    "topics",
    "list of names",
    "The topics. Each partition is an origin `TOPIC/PARTITION`, and offsets are its numbers.",
);
static START: Key = key(
    "start",
    "`end`, `begin`, `-10 min`, a time, or a table of offsets",
    "end",
    "Where a new stream begins: `{ \"TOPIC/0\" = 1200 }` names offsets, other partitions begin at their end. \
     An existing stream resumes where it stands.",
);
static STOP: Key =
    key("stop", "time", "", "The source ends there: at the first message of this time by Kafka's clock.");
static WAIT: Key = key(
    "wait",
    "duration",
    "0 s",
    "How long after its source time a message may still come. A partition that shows no later message is complete up \
     to this long ago; one that does is complete up to that message, less the lag that its messages have shown.",
);
pub(crate) static PROPERTIES: Key = key(
    "properties",
    "table",
    "",
    "Properties of librdkafka. `\"env:NAME\"` and `\"file:PATH\"` name the place of a value that is a secret.",
);

/// The kind `kafka`.
pub static SOURCE: SourceKind = SourceKind {
    name: "kafka",
    about: "Topics of a Kafka cluster.",
    keys: &[&BROKERS, &TOPICS, &START, &STOP, &WAIT, &PROPERTIES],
    read,
    more: None,
};

/// Where a new stream begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Start {
    /// At the oldest messages.
    Begin,
    /// Behind the newest messages.
    #[default]
    End,
    /// At the first message of this time, by Kafka's clock.
    At(When),
    /// At these offsets, by origin; other partitions behind their newest message.
    Offsets(BTreeMap<String, u64>),
}

impl std::str::FromStr for Start {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        match text {
            "begin" => Ok(Self::Begin),
            "end" | "now" => Ok(Self::End),
            text => units::when(text).map(Self::At).map_err(|refused| {
                Refused::new(refused.cause, "write \"end\", \"begin\", \"-10 min\" or a time like 2026-03-01T12:00:00Z")
            }),
        }
    }
}

impl Take for Start {
    fn take(item: &Item) -> Result<Self, Refused> {
        if let Some(table) = item.as_table_like() {
            let offset = |(origin, item): (&str, &Item)| {
                let number = item.as_integer().and_then(|n| u64::try_from(n).ok());
                let refused = || {
                    let found = item.as_integer().map_or(noun(item).to_owned(), |number| number.to_string());
                    let cause = format!("the offset of `{}` is {found}, not a whole number from 0", shortened(origin));
                    Refused::new(cause, "write `start = { \"TOPIC/0\" = 1200 }`")
                };
                number.map(|number| (origin.to_owned(), number)).ok_or_else(refused)
            };
            return table.iter().map(offset).collect::<Result<_, _>>().map(Self::Offsets);
        }
        match item.as_datetime() {
            Some(_) => Time::take(item).map(|time| Self::At(When::At(time))),
            None => String::take(item)?.parse(),
        }
    }

    fn default_of(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn show(&self) -> Json {
        match self {
            Self::Begin => "begin".into(),
            Self::End | Self::At(When::Now) => "end".into(),
            Self::At(When::At(time)) => time.show(),
            Self::At(When::Ago(ago)) => format!("-{}", units::duration_text(*ago)).into(),
            Self::Offsets(offsets) => offsets.iter().map(|(origin, n)| (origin.clone(), Json::from(*n))).collect(),
        }
    }
}

/// What a section says.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Name of the source.
    pub(crate) name: String,
    /// The brokers, as librdkafka takes them.
    pub(crate) brokers: Setting<String>,
    /// The topics.
    pub(crate) topics: Setting<Vec<String>>,
    /// Where a new stream begins.
    pub(crate) start: Setting<Start>,
    /// Where the source ends, ns since 1970 UTC.
    pub(crate) stop: Option<i64>,
    /// How long after its source time a message may still come, ns.
    pub(crate) wait: i64,
    /// Properties of the client.
    pub(crate) properties: Vec<Property>,
}

#[cfg(feature = "client")]
impl Plan {
    /// The offset that `start` names for a partition.
    pub(crate) fn declared(&self, topic: &str, partition: usize) -> Option<u64> {
        match &self.start.value {
            Start::Offsets(offsets) => offsets.get(&format!("{topic}/{partition}")).copied(),
            _ => None,
        }
    }
}

impl SourcePlan for Plan {
    fn secrets(&self) -> Vec<String> {
        property::variables(&self.properties)
    }

    #[cfg(feature = "client")]
    fn build(&self) -> Result<Box<dyn Source>, Fault> {
        Ok(Box::new(crate::source::Kafka::new(self.clone())))
    }

    #[cfg(feature = "client")]
    fn probe(&self) -> Option<Result<String, Fault>> {
        use crate::trouble::Trouble;
        Some(crate::probe::probe(&self.side(), &self.topics, &|topic, wrong| Some(self.wrong(topic, None, wrong))))
    }

    #[cfg(not(feature = "client"))]
    fn build(&self) -> Result<Box<dyn Source>, Fault> {
        let Self { name, brokers, topics, start, stop, wait, properties } = self;
        let _ = (brokers, topics, start, stop, wait, properties);
        Err(Fault::new(format!("source `{name}` cannot be built"), UNBUILT).hint(UNBUILT_HINT))
    }
}

#[cfg(not(feature = "client"))]
pub(crate) const UNBUILT: &str = "this beamport was built without Kafka";
#[cfg(not(feature = "client"))]
pub(crate) const UNBUILT_HINT: &str =
    "`pip install .` builds it with Kafka, as does `cargo build` with `--features kafka`";

/// Reads a section.
fn read(name: &str, section: &mut Section<'_>) -> Option<Arc<dyn SourcePlan>> {
    note_unbuilt(section);
    let brokers: Setting<String> = section.need(&BROKERS);
    if let Some(refused) = wrong_brokers(&brokers) {
        section.refuse(&BROKERS, refused);
    }
    let topics: Setting<Vec<String>> = section.need(&TOPICS);
    if section.has(&TOPICS)
        && let Some(refused) = wrong_topics(&topics)
    {
        section.refuse(&TOPICS, refused);
    }
    let start: Setting<Start> = section.need(&START);
    if let Start::Offsets(offsets) = &start.value
        && let Some(refused) = wrong_offsets(offsets, &topics)
    {
        section.refuse(&START, refused);
    }
    let stop: Option<Setting<Time>> = section.get(&STOP);
    let wait: Setting<Duration> = section.need(&WAIT);
    let properties = read_properties(section, &property::SOURCE);
    Some(Arc::new(Plan {
        name: name.to_owned(),
        brokers,
        topics,
        start,
        stop: stop.map(|stop| stop.value.0),
        wait: i64::try_from(wait.as_nanos()).unwrap_or(i64::MAX),
        properties,
    }))
}

/// A section that this program cannot use, because it was built without Kafka, is a mistake.
pub(crate) fn note_unbuilt(section: &mut Section<'_>) {
    #[cfg(not(feature = "client"))]
    section.mistake(
        section.line,
        format!("`kind = \"kafka\"` cannot be used in {}", section.title),
        UNBUILT,
        UNBUILT_HINT,
    );
    #[cfg(feature = "client")]
    let _ = section;
}

/// The table `properties`. `ours`: those that the section may not set.
pub(crate) fn read_properties(section: &mut Section<'_>, ours: &property::Ours) -> Vec<Property> {
    let table: Option<Setting<Map<String, Json>>> = section.get(&PROPERTIES);
    match table.is_some() {
        true => section.table(PROPERTIES.name, |table| property::read(table, ours)),
        false => Vec::new(),
    }
}

/// Why a text is not a list of brokers.
#[must_use]
pub fn wrong_brokers(brokers: &str) -> Option<Refused> {
    let hint = "write `brokers = \"HOST:9092\"`, with a comma between two";
    // One that is missing has been reported.
    let wrong = |broker: &str| {
        let host = broker.rsplit_once(':').map_or(broker, |(host, _)| host);
        let port = broker.rsplit_once(':').map(|(_, port)| port);
        let is_address = !host.is_empty() && !broker.contains(char::is_whitespace);
        !is_address || port.is_some_and(|port| !broker.ends_with(']') && port.parse::<u16>().is_err())
    };
    let broker = brokers.split(',').find(|broker| wrong(broker.trim())).filter(|_| !brokers.is_empty())?;
    Some(Refused::new(format!("`{}` is not an address", shortened(broker.trim())), hint))
}

/// Whether a broker is in both lists: they name the same cluster then.
pub(crate) fn share_a_broker(one: &str, other: &str) -> bool {
    let addresses = |brokers: &str| -> Vec<String> {
        let of = |broker: &str| {
            let broker = broker.trim().to_ascii_lowercase();
            let has_port = broker.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            if has_port { broker } else { broker + ":9092" }
        };
        brokers.split(',').map(of).collect()
    };
    let known = addresses(one);
    addresses(other).iter().any(|broker| known.contains(broker))
}

/// Whether Kafka takes a name of a topic.
pub(crate) fn is_topic(topic: &str) -> bool {
    let is_plain = topic.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    is_plain && !["", ".", ".."].contains(&topic) && topic.len() <= TOPIC_CHARS_MAX
}

/// Why Kafka does not take a name of a topic.
#[must_use]
pub fn wrong_topic(topic: &str) -> Option<Refused> {
    let hint = format!("names of topics have letters, digits, `.`, `_` and `-`, at most {TOPIC_CHARS_MAX} of them");
    (!is_topic(topic)).then(|| Refused::new(format!("`{}` is not a topic name", shortened(topic)), hint))
}

fn wrong_topics(topics: &[String]) -> Option<Refused> {
    if topics.is_empty() {
        return Some(Refused::new("the list is empty", "write `topics = [\"NAME\"]`"));
    }
    if let Some(refused) = topics.iter().find_map(|topic| wrong_topic(topic)) {
        return Some(refused);
    }
    let twice = topics.iter().enumerate().find(|(at, topic)| topics[..*at].contains(topic))?.1;
    Some(Refused::new(format!("`{twice}` stands there twice"), "remove one of them"))
}

fn wrong_offsets(offsets: &BTreeMap<String, u64>, topics: &[String]) -> Option<Refused> {
    let is_ours = |origin: &str| {
        origin.rsplit_once('/').is_some_and(|(topic, partition)| {
            topics.iter().any(|known| known == topic)
                && partition.parse::<u16>().is_ok_and(|n| n.to_string() == partition)
        })
    };
    let wrong = offsets.keys().find(|origin| !is_ours(origin))?;
    let hint = "write `start = { \"TOPIC/0\" = 1200 }` with one of `topics`";
    Some(Refused::new(format!("`{}` is not a partition of a topic", shortened(wrong)), hint))
}

/// What reading a section found, for tests: texts of all mistakes but that of a program without Kafka.
#[cfg(test)]
pub(crate) fn mistakes_of<T>(section: &Json, read: impl Fn(&mut Section<'_>) -> Option<T>) -> Vec<String> {
    let all = settings::read_json(section, read).map(|_| Vec::new()).unwrap_or_else(|all| all);
    let unbuilt = |text: &String| !text.contains("without Kafka");
    all.iter().map(|m| format!("{}; {}; {}", m.what, m.cause, m.hint)).filter(unbuilt).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn mistakes(section: &Json) -> Vec<String> {
        mistakes_of(section, |section| read("x", section))
    }

    #[test]
    fn a_section_that_is_right_has_no_mistake() {
        let properties =
            json!({"security.protocol": "SASL_SSL", "sasl.password": "env:PASSWORD", "ssl.key.pem": "file:key"});
        for start in [json!("end"), json!("begin"), json!("-10 min"), json!("2026-11-24T12:00:00Z"), json!({"a/0": 12})]
        {
            let section = json!({"brokers": "one:9092, [::1]:9093", "topics": ["a", "b.c"], "start": start,
                "stop": "2026-11-24T12:00:00Z",
                "properties": properties});
            assert_eq!(mistakes(&section), [""; 0]);
        }
    }

    #[test]
    fn each_mistake_is_named() {
        let section = json!({"brokers": "one:port", "topics": ["a", "a"], "start": "yesterday",
            "properties": {"group.id": "x", "sasl.password": "hunter2", "ssl.key.password": "env:"}});
        let found = mistakes(&section);
        let expected = [
            "`one:port` is not an address",
            "`a` stands there twice",
            "`start`",
            "beamport sets it itself",
            "it is a secret",
            "no name stands",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        assert!(!found.concat().contains("hunter2"), "{found:#?}");
        for part in expected {
            assert!(found.iter().any(|text| text.contains(part)), "{part}: {found:#?}");
        }
        let offsets = json!({"brokers": "one", "topics": ["a"], "start": {"b/0": 1}});
        assert!(mistakes(&offsets)[0].contains("`b/0` is not a partition"));
        for (wrong, found) in [(json!(-5), "-5"), (json!("x"), "a text"), (json!(1.5), "a number")] {
            let offsets = json!({"brokers": "one", "topics": ["a"], "start": {"a/0": wrong}});
            let told = mistakes(&offsets)[0].clone();
            assert!(told.contains(&format!("the offset of `a/0` is {found}, not a whole number from 0")), "{told}");
        }
        assert!(mistakes(&json!({"topics": []}))[0].contains("`brokers` is missing"));
        assert!(mistakes(&json!({"brokers": "one", "topics": ["a/b"]}))[0].contains("`a/b` is not a topic name"));
    }
}
