//! The meaning of `[hosts]` with `carrier = "kafka"`: data alone.

use super::shared::Ends;
#[cfg(feature = "client")]
use crate::plan::{Plan, Start};
use crate::property::Property;
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
