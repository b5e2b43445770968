//! What goes wrong with brokers and topics, in words that name the key, its line, and what can be done.

use crate::librdkafka::{Kind, Wrong};
use crate::property::{NAMES, NOT_TAKEN, Property};
use crate::section::Plan;
use flow::{Fault, Passes};
use settings::Origin;

/// Faults of a source.
pub(crate) trait Trouble {
    /// Brokers do not answer, for this reason as far as it is known.
    fn away(&self, wrong: &Wrong) -> Fault;
    /// A topic, or a partition of it, cannot be read.
    fn wrong(&self, topic: &str, partition: Option<i32>, wrong: &Wrong) -> Fault;
    /// The same where it will not pass by itself.
    fn lasting(&self, topic: &str, wrong: &Wrong) -> Option<Fault>;
    /// The same of one partition.
    fn lasting_at(&self, topic: &str, partition: i32, wrong: &Wrong) -> Option<Fault>;
    /// The value of a property cannot be read.
    fn unreadable(&self, property: &Property, cause: String) -> Fault;
    /// librdkafka refuses a property, or all together.
    fn refused(&self, name: &str, text: String) -> Fault;
    /// There are more partitions than a source takes.
    fn too_many(&self, count: usize) -> Fault;
    /// There is another topic of the same name.
    fn made_again(&self, topic: &str) -> Fault;
    /// The stream holds messages that the topic has not.
    fn beyond(&self, topic: &str, partition: usize, next: u64, end: u64) -> Fault;
}

/// "`key` (line 4)", or the key alone where nobody wrote it.
fn key(name: &str, origin: Origin) -> String {
    match origin {
        Origin::Line(line) => format!("`{name}` (line {line})"),
        Origin::Default => format!("`{name}`"),
    }
}

impl Plan {
    /// The first of these properties that the section has, with its line; otherwise the first of them.
    fn property(&self, names: &[&str]) -> String {
        let known = names.iter().find_map(|name| self.properties.iter().find(|known| known.name == *name));
        match known {
            Some(known) => key(&known.name, Origin::Line(known.line)),
            None => format!("`{}` in `properties`", names.first().unwrap_or(&"")),
        }
    }
}

impl Trouble for Plan {
    fn away(&self, wrong: &Wrong) -> Fault {
        let what = format!("source `{}` gets no answer from {}", self.name, self.brokers.as_str());
        let hint = match wrong.kind {
            Kind::UnknownUser => {
                let user = self.property(&["sasl.username"]);
                format!("correct {user}, or {}", self.property(&["sasl.password", "sasl.mechanism"]))
            }
            Kind::NoTls => format!("look at {}", self.property(&["ssl.ca.location", "security.protocol"])),
            _ => format!("the source waits; if the cluster is up, correct {}", key("brokers", self.brokers.origin)),
        };
        let cause = if wrong.kind == Kind::TimedOut { "no broker has answered".to_owned() } else { wrong.text.clone() };
        Fault { passes: Passes::Soon, ..Fault::new(what, cause).hint(hint) }
    }

    fn wrong(&self, topic: &str, partition: Option<i32>, wrong: &Wrong) -> Fault {
        let name = partition.map_or(format!("topic `{topic}`"), |number| format!("partition `{topic}/{number}`"));
        let what = format!("source `{}` cannot read {name}", self.name);
        let topics = key("topics", self.topics.origin);
        let hint = match wrong.kind {
            Kind::NoTopic => {
                format!("correct {topics}, or make the topic: the source waits for it")
            }
            Kind::Forbidden => {
                format!("allow this user to describe and read the topic, or remove it from {topics}")
            }
            Kind::TooLarge => {
                format!("raise {}", self.property(&["receive.message.max.bytes", "fetch.max.bytes"]))
            }
            Kind::OffsetGone => "the source starts again with the oldest message that is there".into(),
            _ => String::new(),
        };
        Fault::new(what, &wrong.text).hint(hint)
    }

    fn lasting(&self, topic: &str, wrong: &Wrong) -> Option<Fault> {
        is_lasting(wrong.kind).then(|| self.wrong(topic, None, wrong))
    }

    fn lasting_at(&self, topic: &str, partition: i32, wrong: &Wrong) -> Option<Fault> {
        is_lasting(wrong.kind).then(|| self.wrong(topic, Some(partition), wrong))
    }

    fn unreadable(&self, property: &Property, cause: String) -> Fault {
        let name = key(&property.name, Origin::Line(property.line));
        Fault::new(format!("source `{}` has no value of {name}", self.name), cause)
            .hint("set the variable before `beamport up`, or make the file readable for its user")
    }

    fn refused(&self, name: &str, text: String) -> Fault {
        let known = self.properties.iter().find(|known| known.name == name);
        let Some(property) = known else {
            let what =
                format!("source `{}` cannot make a client of {}", self.name, key("brokers", self.brokers.origin));
            return Fault::new(what, text).hint("look at the values in `properties`");
        };
        let what = format!("source `{}` cannot use {}", self.name, key(name, Origin::Line(property.line)));
        let cause = if property.is_open() { text } else { NOT_TAKEN.into() };
        Fault::new(what, cause).hint(NAMES)
    }

    fn too_many(&self, count: usize) -> Fault {
        let most = crate::limits::PARTITIONS_MAX;
        let what = format!("source `{}` cannot read {count} partitions", self.name);
        let hint = format!("share out {} among several sources", key("topics", self.topics.origin));
        Fault::new(what, format!("one source takes {most} at most")).hint(hint)
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
