//! What sections of kind `kafka` say: data, without what is built of them.

use crate::limits::TOPIC_CHARS_MAX;
use crate::property::Property;
use serde_json::Value as Json;
use settings::units::{self, When};
use settings::{Refused, Setting, Take, Time, noun, shortened};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use toml_edit::Item;

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

/// The plan of a section of a source.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The noun for what reads, in faults.
    pub(crate) kind: &'static str,
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
    /// Messages of our own sinks keep origin and number.
    pub(crate) mirror: bool,
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

/// How topics are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Create {
    pub(crate) partitions: i32,
    pub(crate) replication: i32,
}

/// The plan of a section of a sink.
#[derive(Clone, Debug)]
pub(crate) struct SendPlan {
    /// Name of the sink.
    pub(crate) name: String,
    /// The brokers, as librdkafka takes them.
    pub(crate) brokers: Setting<String>,
    /// The topic.
    pub(crate) topic: Setting<String>,
    /// How topics that are missing are made.
    pub(crate) create: Option<Create>,
    /// Messages for missing topics are set aside.
    pub(crate) sets_aside: bool,
    /// Properties of the client.
    pub(crate) properties: Vec<Property>,
    /// A batch was refused for one of its messages: each is sent alone now, so that the one is known.
    pub(crate) is_careful: Arc<AtomicBool>,
}

impl SendPlan {
    /// The topic of a stream; none where origins name it.
    pub(crate) fn topic_of(&self, stream: &str) -> Option<String> {
        (*self.topic != "origin").then(|| self.topic.replace("{stream}", stream))
    }

    /// The topic that a source reads and to which its messages would be sent again.
    pub(crate) fn looped(&self, source: &Plan) -> Option<String> {
        if !share_a_broker(&self.brokers, &source.brokers) {
            return None;
        }
        match self.topic_of(&source.name) {
            Some(topic) => source.topics.contains(&topic).then_some(topic),
            None => source.topics.first().cloned(),
        }
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
