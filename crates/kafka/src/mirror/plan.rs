//! The meaning of `[hosts]` with `carrier = "kafka"`: data alone.

use super::shared::Ends;
use crate::property::Property;
#[cfg(feature = "client")]
use crate::{
    librdkafka::{Kind, Wrong},
    plan::{Plan, Start},
    producer::{Producer, pairs},
    trouble::Side,
};
#[cfg(feature = "client")]
use flow::Fault;
use flow::edge::{Mirror, SharedWorker};
use settings::Setting;
use std::sync::Arc;
use std::time::Duration;

/// The section.
#[derive(Clone, Debug)]
pub(crate) struct Carrier {
    /// The brokers, as librdkafka takes them.
    pub(crate) brokers: Setting<String>,
    /// Replicas of each topic.
    pub(crate) replication: i32,
    /// How long topics hold messages.
    pub(crate) keep: Duration,
    /// Properties of the clients.
    pub(crate) properties: Vec<Property>,
}

#[cfg(feature = "client")]
impl Carrier {
    /// The topic of a stream.
    pub(crate) fn topic(instrument: &str, stream: &str) -> String {
        format!("{instrument}.{stream}")
    }

    /// A client that sends blocks, which have waited for others already: in order, and nothing behind a refused one.
    pub(crate) fn producer(&self, reads: &Plan) -> Result<Producer, Fault> {
        let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let user = [own("linger.ms", "0")].into_iter().chain(reads.side().pairs()?).collect();
        let all = pairs(&self.brokers, user).into_iter().chain([own("enable.gapless.guarantee", "true")]).collect();
        Producer::with(&all).map_err(|(name, text)| reads.side().refused(&name, text))
    }

    /// The fault of a sink of this name whose block was not sent.
    pub(crate) fn unsent(&self, name: &str, wrong: &Wrong) -> Fault {
        let reads = self.reads(name, Vec::new());
        match wrong.kind {
            Kind::TooLarge => Fault::new("a block is above the limits of its topic", &wrong.text)
                .hint("raise `max.message.bytes` of the topic, or remove the topic: beamport makes it again"),
            _ => Side { kind: "sink", ..reads.side() }.away(wrong),
        }
    }

    /// The plan of a reader of these topics, for its questions and its faults.
    pub(crate) fn reads(&self, name: &str, topics: Vec<String>) -> Plan {
        Plan {
            kind: "source",
            name: name.to_owned(),
            brokers: self.brokers.clone(),
            topics: Setting::by_default(topics),
            start: Setting::by_default(Start::Begin),
            stop: None,
            wait: 0,
            mirror: false,
            properties: self.properties.clone(),
        }
    }
}

/// The near side: a sink that sends streams of a host.
#[derive(Clone, Debug)]
pub(crate) struct NearPlan {
    /// Name of the sink.
    pub(crate) name: String,
    pub(crate) instrument: String,
    pub(crate) carrier: Carrier,
}

/// The far side: a source that fills a mirror.
#[derive(Clone, Debug)]
pub(crate) struct FarPlan {
    pub(crate) mirror: Mirror,
    pub(crate) instrument: String,
    pub(crate) carrier: Carrier,
}

/// The sink that hands out the inputs of a worker on several hosts.
#[derive(Clone, Debug)]
pub(crate) struct DealPlan {
    /// Name of the sink.
    pub(crate) name: String,
    pub(crate) shared: SharedWorker,
    pub(crate) carrier: Carrier,
}

/// The source that fills the output of such a worker.
#[derive(Clone, Debug)]
pub(crate) struct GatherPlan {
    pub(crate) shared: SharedWorker,
    pub(crate) carrier: Carrier,
}

/// The two ends of such a worker on one of its hosts, which share what they have under way.
#[derive(Clone, Debug)]
pub(crate) struct WorkPlan {
    pub(crate) ends: Arc<Ends>,
}

impl WorkPlan {
    pub(crate) fn new(shared: &SharedWorker, carrier: &Carrier, host: &str) -> Self {
        Self { ends: Arc::new(Ends::new(shared.clone(), carrier.clone(), host)) }
    }
}
