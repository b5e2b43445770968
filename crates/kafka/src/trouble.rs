//! Faults of brokers and topics, in words that name the key, its line, and what can be done.

use crate::client::Pairs;
use crate::librdkafka::{Kind, Wrong};
use crate::plan::Plan;
use crate::property::{NAMES, NOT_TAKEN, Property};
use flow::{Fault, Passes};
use settings::{Origin, Setting};

/// Faults of a source.
pub(crate) trait Trouble {
    /// A topic, or a partition of it, cannot be read.
    fn wrong(&self, topic: &str, partition: Option<i32>, wrong: &Wrong) -> Fault;
    /// The same where it will not pass by itself.
    fn lasting(&self, topic: &str, wrong: &Wrong) -> Option<Fault>;
    /// The same of one partition.
    fn lasting_at(&self, topic: &str, partition: i32, wrong: &Wrong) -> Option<Fault>;
    /// A topic is not there yet.
    fn no_topic(&self, topic: &str) -> Fault;
    /// A topic that was read before is there again.
    fn came_back(&self, topic: &str) -> Fault;
    /// There are more partitions than a source takes.
    fn too_many(&self, count: usize) -> Fault;
    /// `start` names a partition that its topic, of the given number of partitions, does not have.
    fn no_partition(&self, topic: &str, partition: &str, count: usize) -> Fault;
    /// There is another topic of the same name.
    fn made_again(&self, topic: &str) -> Fault;
    /// The stream holds messages that the topic has not.
    fn beyond(&self, topic: &str, partition: usize, next: u64, end: u64) -> Fault;
}

/// "`key` (line 4)", or the key alone where nobody wrote it.
pub(crate) fn key(name: &str, origin: Origin) -> String {
    match origin {
        Origin::Line(line) => format!("`{name}` (line {line})"),
        Origin::Default => format!("`{name}`"),
    }
}

/// The section that speaks to a cluster, for the words of an error.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    /// `source`, `sink` or `bulletin`.
    pub(crate) kind: &'static str,
    /// Its name.
    pub(crate) name: &'a str,
    pub(crate) brokers: &'a Setting<String>,
    pub(crate) properties: &'a [Property],
}

impl Side<'_> {
    /// The first of these properties that the section has, with its line; otherwise the first of them.
    pub(crate) fn property(&self, names: &[&str]) -> String {
        let known = names.iter().find_map(|name| self.properties.iter().find(|known| known.name == *name));
        match known {
            Some(known) => key(&known.name, Origin::Line(known.line)),
            None => format!("`{}` in `properties`", names.first().unwrap_or(&"")),
        }
    }

    /// Brokers do not answer, for this reason as far as it is known.
    pub(crate) fn away(&self, wrong: &Wrong) -> Fault {
        let &Self { kind, name, brokers, .. } = self;
        let what = format!("{kind} `{name}` gets no answer from {}", brokers.as_str());
        let hint = match wrong.kind {
            Kind::UnknownUser => {
                let user = self.property(&["sasl.username"]);
                format!("correct {user}, or {}", self.property(&["sasl.password", "sasl.mechanism"]))
            }
            Kind::NoTls => format!("look at {}", self.property(&["ssl.ca.location", "security.protocol"])),
            _ => format!("the {kind} waits; if the cluster is up, correct {}", key("brokers", brokers.origin)),
        };
        let cause = if wrong.kind == Kind::TimedOut { "no broker has answered".to_owned() } else { wrong.text.clone() };
        Fault { passes: Passes::Soon, ..Fault::new(what, cause).hint(hint) }
    }

    /// Names and values of the properties, wherever these stand.
    pub(crate) fn pairs(&self) -> Result<Pairs, Fault> {
        let pair = |property: &Property| match property.resolve() {
            Ok(value) => Ok((property.name.clone(), value)),
            Err(cause) => {
                let name = key(&property.name, Origin::Line(property.line));
                Err(Fault::new(format!("{} `{}` has no value of {name}", self.kind, self.name), cause)
                    .hint("set the variable before `beamport up`, or make the file readable for its user"))
            }
        };
        self.properties.iter().map(pair).collect()
    }

    /// librdkafka refuses a property, or all together.
    pub(crate) fn refused(&self, name: &str, text: String) -> Fault {
        let known = self.properties.iter().find(|known| known.name == name);
        let Some(property) = known else {
            let brokers = key("brokers", self.brokers.origin);
            let what = format!("{} `{}` cannot make a client of {brokers}", self.kind, self.name);
            return Fault::new(what, text).hint("look at the values in `properties`");
        };
        let property_name = key(name, Origin::Line(property.line));
        let what = format!("{} `{}` cannot use {property_name}", self.kind, self.name);
        let cause = if property.is_open() { text } else { NOT_TAKEN.into() };
        Fault::new(what, cause).hint(NAMES)
    }
}

impl Plan {
    pub(crate) fn side(&self) -> Side<'_> {
        Side { kind: self.kind, name: &self.name, brokers: &self.brokers, properties: &self.properties }
    }
}

impl Trouble for Plan {
    fn wrong(&self, topic: &str, partition: Option<i32>, wrong: &Wrong) -> Fault {
        let name = partition.map_or(format!("topic `{topic}`"), |number| format!("partition `{topic}/{number}`"));
        let what = format!("{} `{}` cannot read {name}", self.kind, self.name);
        let topics = key("topics", self.topics.origin);
        let hint = match wrong.kind {
            Kind::NoTopic => return self.no_topic(topic),
            Kind::Forbidden => {
                format!("allow this user to describe and read the topic, or remove it from {topics}")
            }
            Kind::TooLarge => {
                format!("raise {}", self.side().property(&["receive.message.max.bytes", "fetch.max.bytes"]))
            }
            Kind::OffsetGone => "the source starts again with the oldest message that is there".into(),
            _ => String::new(),
        };
        let passes = if is_lasting(wrong.kind) { Passes::Never } else { Passes::Soon };
        Fault { passes, ..Fault::new(what, &wrong.text).hint(hint) }
    }

    fn lasting(&self, topic: &str, wrong: &Wrong) -> Option<Fault> {
        is_lasting(wrong.kind).then(|| self.wrong(topic, None, wrong))
    }

    fn lasting_at(&self, topic: &str, partition: i32, wrong: &Wrong) -> Option<Fault> {
        is_lasting(wrong.kind).then(|| self.wrong(topic, Some(partition), wrong))
    }

    fn no_topic(&self, topic: &str) -> Fault {
        let topics = key("topics", self.topics.origin);
        let what = format!("source `{}` cannot read topic `{topic}`", self.name);
        let hint = format!("correct {topics}, or make the topic: the source waits for it, and reads all of it");
        Fault { passes: Passes::Soon, ..Fault::new(what, format!("topic `{topic}` does not exist")).hint(hint) }
    }

    fn came_back(&self, topic: &str) -> Fault {
        let what = format!("source `{}` starts again", self.name);
        let fault = Fault::new(what, format!("topic `{topic}` was deleted, and is there again"));
        Fault { passes: Passes::Soon, ..fault }
    }

    fn too_many(&self, count: usize) -> Fault {
        let most = crate::limits::PARTITIONS_MAX;
        let what = format!("source `{}` cannot read {count} partitions", self.name);
        let hint = format!("share out {} among several sources", key("topics", self.topics.origin));
        Fault::new(what, format!("one source takes {most} at most")).hint(hint)
    }

    fn no_partition(&self, topic: &str, partition: &str, count: usize) -> Fault {
        let start = key("start", self.start.origin);
        let what = format!("source `{}` has no partition `{topic}/{partition}`", self.name);
        let cause = format!("{start} names it; the number of partitions of topic `{topic}` is {count}");
        let hint = format!("correct {start}; a partition that is added later is read from the offset in it");
        Fault { passes: Passes::Soon, ..Fault::new(what, cause).hint(hint) }
    }

    fn made_again(&self, topic: &str) -> Fault {
        let what = format!("source `{}` reads topic `{topic}` no longer", self.name);
        Fault::new(what, "the topic was deleted and made again")
            .hint("the source starts again with the first message of the new topic")
    }

    fn beyond(&self, topic: &str, partition: usize, next: u64, end: u64) -> Fault {
        let what = format!("source `{}` cannot resume partition `{topic}/{partition}` at offset {next}", self.name);
        Fault::new(
            what,
            format!("the partition ends at {end}: its brokers have lost messages, or `start` names a later offset"),
        )
        .hint(format!(
            "correct {}, or give the source another name: it begins a new stream then",
            key("start", self.start.origin)
        ))
    }
}

/// Whether an error stays until somebody does something; others are answered by librdkafka, which tries again.
fn is_lasting(kind: Kind) -> bool {
    matches!(kind, Kind::NoTopic | Kind::Forbidden | Kind::OffsetGone | Kind::TooLarge | Kind::Damaged)
}
