//! The kinds `kafka`, of sources and of sinks: their keys, and how a section is read.

use crate::plan::{Create, Plan, SendPlan, Start, is_topic, wrong_brokers, wrong_topic};
use crate::property::{self, Property};
use flow::edge::{Conflict, LiveKind, LivePlan, SourceKind, SourcePlan};
use flow::{Fault, LiveSink, Source};
use serde_json::{Map, Value as Json};
use settings::{Key, Refused, Section, Setting, Time, key, required, shortened};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub(crate) static BROKERS: Key =
    required("brokers", "`HOST:PORT`, with commas between", "Some brokers of the cluster.");
static TOPICS: Key = required(
    "topics",
    "list of names",
    "The topics. Each partition is an origin `TOPIC/PARTITION`, and offsets are its numbers. A topic that does not \
     exist is waited for, and read from its first message.",
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
static MIRROR: Key = key(
    "mirror",
    "`true` or `false`",
    "false",
    "Messages that a sink `kafka` has sent keep the origin and the number that they had there, so that a merge by \
     number pairs them. Messages of other programs have those of their partition.",
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
    keys: &[&BROKERS, &TOPICS, &START, &STOP, &WAIT, &MIRROR, &PROPERTIES],
    read,
    more: None,
};

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
        let Self { kind, name, brokers, topics, start, stop, wait, properties, mirror } = self;
        let _ = (brokers, topics, start, stop, wait, properties, mirror);
        Err(unbuilt(kind, name))
    }
}

#[cfg(not(feature = "client"))]
const UNBUILT: &str = "this beamport was built without Kafka";
#[cfg(not(feature = "client"))]
const UNBUILT_HINT: &str = "`pip install .` builds it with Kafka, as does `cargo build` with `--features kafka`";

/// Reads a section.
fn read(name: &str, section: &mut Section<'_>) -> Option<Arc<dyn SourcePlan>> {
    note_unbuilt(section, "`kind = \"kafka\"`");
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
    let mirror: Setting<bool> = section.need(&MIRROR);
    let properties = read_properties(section, &property::SOURCE);
    Some(Arc::new(Plan {
        kind: "source",
        name: name.to_owned(),
        brokers,
        topics,
        start,
        stop: stop.map(|stop| stop.value.0),
        wait: i64::try_from(wait.as_nanos()).unwrap_or(i64::MAX),
        mirror: mirror.value,
        properties,
    }))
}

/// A section that this program cannot use, because it was built without Kafka, is a mistake.
pub(crate) fn note_unbuilt(section: &mut Section<'_>, what: &str) {
    #[cfg(not(feature = "client"))]
    section.mistake(section.line, format!("{what} cannot be used in {}", section.title), UNBUILT, UNBUILT_HINT);
    #[cfg(feature = "client")]
    let _ = (section, what);
}

/// A stage of a program without Kafka.
#[cfg(not(feature = "client"))]
pub(crate) fn unbuilt(kind: &str, name: &str) -> Fault {
    Fault::new(format!("{kind} `{name}` cannot be built"), UNBUILT).hint(UNBUILT_HINT)
}

/// The table `properties`. `ours`: those that the section may not set.
pub(crate) fn read_properties(section: &mut Section<'_>, ours: &property::Ours) -> Vec<Property> {
    let table: Option<Setting<Map<String, Json>>> = section.get(&PROPERTIES);
    match table.is_some() {
        true => section.table(PROPERTIES.name, |table| property::read(table, ours)),
        false => Vec::new(),
    }
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

static TOPIC: Key = required(
    "topic",
    "name with `{stream}`, or `origin`",
    "The topic of a message: `loki_{stream}` holds the name of its stream, and `origin` is what stands before the \
     first `/` of its origin.",
);
static CREATE: Key = key(
    "create",
    "table of `partitions` and `replication`",
    "",
    "Missing topics are created with this number of partitions and replicas; existing topics are not changed. \
     Without it the sink waits for them.",
);

static MISSING: Key = key(
    "missing",
    "`wait` or `aside`",
    "wait",
    "What happens to messages for a topic that does not exist, or that this user may not use: they wait, and all \
     behind them, or they go to `SINK.aside` while other topics get theirs.",
);

/// The kind `kafka`.
pub static SINK: LiveKind = LiveKind {
    name: "kafka",
    about: "Messages to topics of a Kafka cluster, each once and in the order of its origin.",
    keys: &[&BROKERS, &TOPIC, &CREATE, &MISSING, &PROPERTIES],
    read: read_sink,
};

impl LivePlan for SendPlan {
    fn secrets(&self) -> Vec<String> {
        property::variables(&self.properties)
    }

    #[cfg(feature = "client")]
    fn build(&self, inputs: &[String]) -> Result<Box<dyn LiveSink>, Fault> {
        for topic in inputs.iter().filter_map(|input| self.topic_of(input)) {
            if let Some(Refused { cause, hint }) = wrong_topic(&topic) {
                return Err(Fault::new(format!("sink `{}` cannot send to `{topic}`", self.name), cause).hint(hint));
            }
        }
        Ok(Box::new(crate::sink::Kafka::new(self.clone(), inputs)))
    }

    #[cfg(feature = "client")]
    fn probe(&self, inputs: &[String]) -> Option<Result<String, Fault>> {
        use crate::librdkafka::{Kind, Wrong};
        let topics: Vec<String> = inputs.iter().filter_map(|input| self.topic_of(input)).collect();
        let wrong = |topic: &str, wrong: &Wrong| {
            // The sink will create it.
            let is_made = wrong.kind == Kind::NoTopic && self.create.is_some();
            (!is_made).then(|| self.wrong(topic, wrong))
        };
        Some(crate::probe::probe(&self.side(), &topics, &wrong))
    }

    fn conflicts(&self, sources: &[(&str, &dyn SourcePlan)]) -> Vec<Conflict> {
        let looped = |(name, plan): &(&str, &dyn SourcePlan)| {
            let plan: &dyn Any = *plan;
            let topic = self.looped(plan.downcast_ref()?)?;
            let (sink, name) = (shortened(&self.name), shortened(name));
            Some(Conflict {
                origin: self.topic.origin,
                what: format!("wrong value of `topic` in [sink.{sink}]"),
                cause: format!("source `{name}` reads topic `{topic}`: each message would be sent again, without end"),
                hint: format!("give the sink another topic, or remove `{name}` from `inputs`"),
            })
        };
        sources.iter().filter_map(looped).collect()
    }

    #[cfg(not(feature = "client"))]
    fn build(&self, _: &[String]) -> Result<Box<dyn LiveSink>, Fault> {
        let Self { name, brokers, create, sets_aside, properties, is_careful, .. } = self;
        let made = create.map(|create| (create.partitions, create.replication));
        let _ = (brokers, made, sets_aside, properties, is_careful, self.topic_of(name));
        Err(unbuilt("sink", name))
    }
}

/// Reads a section of a sink.
fn read_sink(name: &str, section: &mut Section<'_>) -> Option<Arc<dyn LivePlan>> {
    note_unbuilt(section, "`kind = \"kafka\"`");
    let brokers: Option<Setting<String>> = section.get(&BROKERS);
    if let Some(refused) = brokers.as_ref().and_then(|brokers| wrong_brokers(brokers)) {
        section.refuse(&BROKERS, refused);
    }
    let topic: Option<Setting<String>> = section.get(&TOPIC);
    if let Some(refused) = topic.as_ref().and_then(|topic| wrong_pattern(topic)) {
        section.refuse(&TOPIC, refused);
    }
    let create = section.read(&CREATE, read_create);
    let missing = section.word(&MISSING, &[("wait", false), ("aside", true)]);
    let sets_aside = missing.is_some_and(|missing| missing.value);
    let properties = read_properties(section, &property::SINK);
    let is_careful = Arc::default();
    Some(Arc::new(SendPlan {
        name: name.to_owned(),
        brokers: brokers?,
        topic: topic?,
        create,
        sets_aside,
        properties,
        is_careful,
    }))
}

fn wrong_pattern(topic: &str) -> Option<Refused> {
    let plain = topic.replace("{stream}", "x");
    let hint =
        "write `topic = \"NAME_{stream}\"`, or `topic = \"origin\"`; names have letters, digits, `.`, `_` and `-`";
    (!is_topic(&plain)).then(|| Refused::new(format!("`{}` is not a topic name", shortened(topic)), hint))
}

fn read_create(table: &Map<String, Json>) -> Result<Create, Refused> {
    let hint = "write `create = { partitions = 4, replication = 1 }`";
    let number = |name: &str, most: i64| {
        let number = table.get(name).and_then(Json::as_i64).filter(|number| (1..=most).contains(number));
        let refused = || Refused::new(format!("`{name}` is not a number from 1 to {most}"), hint);
        number.and_then(|number| i32::try_from(number).ok()).ok_or_else(refused)
    };
    if let Some(other) = table.keys().find(|name| !["partitions", "replication"].contains(&name.as_str())) {
        return Err(Refused::new(format!("`{}` is unknown there", shortened(other)), hint));
    }
    Ok(Create { partitions: number("partitions", 4096)?, replication: number("replication", 100)? })
}

/// What reading a section found, for tests: texts of all mistakes but that of a program without Kafka.
#[cfg(test)]
fn mistakes_of<T>(section: &Json, read: impl Fn(&mut Section<'_>) -> Option<T>) -> Vec<String> {
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
                "stop": "2026-11-24T12:00:00Z", "mirror": true,
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

    fn mistakes_of_sink(section: &Json) -> Vec<String> {
        mistakes_of(section, |section| read_sink("x", section))
    }

    #[test]
    fn a_sink_that_is_right_has_no_mistake() {
        for topic in ["loki_{stream}", "origin", "one", "{stream}"] {
            let section = json!({"brokers": "one:9092", "topic": topic, "create": {"partitions": 4, "replication": 1},
                "properties": {"compression.type": "zstd", "sasl.password": "env:PASSWORD"}});
            assert_eq!(mistakes_of_sink(&section), [""; 0]);
        }
    }

    #[test]
    fn each_mistake_of_a_sink_is_named() {
        let section = json!({"brokers": "one:port", "topic": "loki/{stream}", "create": {"partitions": 0},
            "properties": {"acks": "1", "transactional.id": "x", "sasl.password": "hunter2"}});
        let found = mistakes_of_sink(&section);
        let expected = [
            "`one:port` is not an address",
            "`loki/{stream}` is not a topic name",
            "`partitions` is not a number from 1",
            "all replicas acknowledge",
            "the sink has no transactions",
            "it is a secret",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        assert!(!found.concat().contains("hunter2"), "{found:#?}");
        for part in expected {
            assert!(found.iter().any(|text| text.contains(part)), "{part}: {found:#?}");
        }
        assert!(mistakes_of_sink(&json!({"brokers": "one"}))[0].contains("`topic` is missing"));
        let create = json!({"brokers": "one", "topic": "a", "create": {"partitions": 1, "replication": 1, "acks": 1}});
        assert!(mistakes_of_sink(&create)[0].contains("`acks` is unknown there"));
    }

    #[test]
    fn a_sink_that_sends_to_the_topic_of_its_source_is_refused() {
        let written = |text: &str| Setting::by_default(text.to_owned());
        let source = Plan {
            kind: "source",
            name: "loop".into(),
            brokers: written("one:9092, two:9092"),
            topics: Setting::by_default(vec!["in".into(), "to_loop".into()]),
            start: Setting::by_default(Start::End),
            stop: None,
            wait: 0,
            mirror: false,
            properties: Vec::new(),
        };
        let causes = |brokers: &str, topic: &str| -> Vec<String> {
            let (name, brokers, topic) = ("out".into(), written(brokers), written(topic));
            let (create, properties, is_careful) = (None, Vec::new(), Arc::default());
            let plan = SendPlan { name, brokers, topic, create, sets_aside: false, properties, is_careful };
            plan.conflicts(&[("loop", &source)]).into_iter().map(|conflict| conflict.cause).collect()
        };
        for (topic, read) in [("in", "in"), ("to_{stream}", "to_loop"), ("origin", "in")] {
            // Port 9092 is the one of a broker without a port.
            let [cause] = &causes("three:9092,TWO", topic)[..] else { panic!("{topic}") };
            assert!(cause.contains(&format!("source `loop` reads topic `{read}`")), "{cause}");
            assert_eq!(causes("three:9092,two:9093", topic), [""; 0], "another cluster");
        }
        assert_eq!(causes("two", "out"), [""; 0]);
        assert_eq!(causes("two", "in_{stream}"), [""; 0]);
    }
}
