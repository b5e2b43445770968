//! `[sink.NAME] kind = "kafka"`: its keys, and the plan that they make.

use crate::property::{self, Property};
use crate::section::{self, BROKERS, PROPERTIES, is_topic, share_a_broker, wrong_brokers};
#[cfg(not(feature = "client"))]
use crate::section::{UNBUILT, UNBUILT_HINT};
use flow::edge::{Conflict, LiveKind, LivePlan, SourcePlan};
use flow::{Fault, LiveSink};
use serde_json::{Map, Value as Json};
use settings::{Key, Refused, Section, Setting, key, required, shortened};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

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
    read,
};

/// How topics are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Create {
    pub(crate) partitions: i32,
    pub(crate) replication: i32,
}

/// What a section says.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
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

impl Plan {
    /// The topic of a stream; none where origins name it.
    pub(crate) fn topic_of(&self, stream: &str) -> Option<String> {
        (*self.topic != "origin").then(|| self.topic.replace("{stream}", stream))
    }

    /// The topic that a source reads and to which its messages would be sent again.
    fn looped(&self, source: &section::Plan) -> Option<String> {
        if !share_a_broker(&self.brokers, &source.brokers) {
            return None;
        }
        match self.topic_of(&source.name) {
            Some(topic) => source.topics.contains(&topic).then_some(topic),
            None => source.topics.first().cloned(),
        }
    }
}

impl LivePlan for Plan {
    fn secrets(&self) -> Vec<String> {
        property::variables(&self.properties)
    }

    #[cfg(feature = "client")]
    fn build(&self, inputs: &[String]) -> Result<Box<dyn LiveSink>, Fault> {
        for topic in inputs.iter().filter_map(|input| self.topic_of(input)) {
            if let Some(Refused { cause, hint }) = section::wrong_topic(&topic) {
                return Err(Fault::new(format!("sink `{}` cannot send to `{topic}`", self.name), cause).hint(hint));
            }
        }
        Ok(Box::new(super::send::Kafka::new(self.clone(), inputs)))
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
        Err(Fault::new(format!("sink `{name}` cannot be built"), UNBUILT).hint(UNBUILT_HINT))
    }
}

/// Reads a section.
fn read(name: &str, section: &mut Section<'_>) -> Option<Arc<dyn LivePlan>> {
    section::note_unbuilt(section);
    let brokers: Option<Setting<String>> = section.get(&BROKERS);
    if let Some(refused) = brokers.as_ref().and_then(|brokers| wrong_brokers(brokers)) {
        section.refuse(&BROKERS, refused);
    }
    let topic: Option<Setting<String>> = section.get(&TOPIC);
    if let Some(refused) = topic.as_ref().and_then(|topic| wrong_topic(topic)) {
        section.refuse(&TOPIC, refused);
    }
    let create: Option<Setting<Map<String, Json>>> = section.get(&CREATE);
    let create = match create.map(|create| read_create(&create)) {
        Some(Ok(create)) => Some(create),
        Some(Err(refused)) => {
            section.refuse(&CREATE, refused);
            None
        }
        None => None,
    };
    let missing = section.word(&MISSING, &[("wait", false), ("aside", true)]);
    let sets_aside = missing.is_some_and(|missing| missing.value);
    let properties = section::read_properties(section, &property::SINK);
    let is_careful = Arc::default();
    Some(Arc::new(Plan {
        name: name.to_owned(),
        brokers: brokers?,
        topic: topic?,
        create,
        sets_aside,
        properties,
        is_careful,
    }))
}

fn wrong_topic(topic: &str) -> Option<Refused> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn mistakes(section: &Json) -> Vec<String> {
        section::mistakes_of(section, |section| read("x", section))
    }

    #[test]
    fn a_section_that_is_right_has_no_mistake() {
        for topic in ["loki_{stream}", "origin", "one", "{stream}"] {
            let section = json!({"brokers": "one:9092", "topic": topic, "create": {"partitions": 4, "replication": 1},
                "properties": {"compression.type": "zstd", "sasl.password": "env:PASSWORD"}});
            assert_eq!(mistakes(&section), [""; 0]);
        }
    }

    #[test]
    fn each_mistake_is_named() {
        let section = json!({"brokers": "one:port", "topic": "loki/{stream}", "create": {"partitions": 0},
            "properties": {"acks": "1", "transactional.id": "x", "sasl.password": "hunter2"}});
        let found = mistakes(&section);
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
        assert!(mistakes(&json!({"brokers": "one"}))[0].contains("`topic` is missing"));
        let create = json!({"brokers": "one", "topic": "a", "create": {"partitions": 1, "replication": 1, "acks": 1}});
        assert!(mistakes(&create)[0].contains("`acks` is unknown there"));
    }

    #[test]
    fn a_sink_sent_to_the_topic_that_its_source_reads() {
        let written = |text: &str| Setting::by_default(text.to_owned());
        let source = section::Plan {
            name: "loop".into(),
            brokers: written("one:9092, two:9092"),
            topics: Setting::by_default(vec!["in".into(), "to_loop".into()]),
            start: Setting::by_default(section::Start::End),
            stop: None,
            wait: 0,
            properties: Vec::new(),
        };
        let causes = |brokers: &str, topic: &str| -> Vec<String> {
            let (name, brokers, topic) = ("out".into(), written(brokers), written(topic));
            let (create, properties, is_careful) = (None, Vec::new(), Arc::default());
            let plan = Plan { name, brokers, topic, create, sets_aside: false, properties, is_careful };
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
