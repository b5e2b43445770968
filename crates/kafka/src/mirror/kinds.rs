//! The carrier `kafka`: its keys, and how `[hosts]` is read.

use super::plan::{Carrier, DealPlan, FarPlan, GatherPlan, NearPlan, WorkPlan};
#[cfg(not(feature = "client"))]
use crate::kinds::unbuilt;
use crate::kinds::{BROKERS, PROPERTIES, note_unbuilt, read_properties};
use crate::plan::wrong_brokers;
use crate::property;
use flow::edge::{Bulletin, CarrierKind, CarrierPlan, LivePlan, Mirror, SharedWorker, SourcePlan};
use flow::{Fault, LiveSink, Source};
use settings::{Key, Section, Setting, key};
use std::sync::Arc;
use std::time::Duration;

static REPLICATION: Key = key(
    "replication",
    "number, 1 to 9",
    "1",
    "Replicas of the topics that beamport makes: with 3, messages survive a broker and a disk.",
);
static KEEP: Key = key(
    "keep",
    "duration",
    "6 h",
    "How long topics hold messages: a host that is away for longer loses what came before. Existing topics are not \
     changed.",
);

/// Kafka carries streams between hosts.
pub static CARRIER: CarrierKind = CarrierKind {
    name: "kafka",
    about: "Topics of an Apache Kafka cluster, one for each stream that another host reads.",
    keys: &[&BROKERS, &REPLICATION, &KEEP, &PROPERTIES],
    read,
    host_keys: &[],
    read_host: |_, _| None,
};

/// Reads `[hosts]`.
fn read(section: &mut Section<'_>) -> Option<Arc<dyn CarrierPlan>> {
    note_unbuilt(section, "`carrier = \"kafka\"`");
    let brokers: Setting<String> = section.need(&BROKERS);
    if let Some(refused) = wrong_brokers(&brokers) {
        section.refuse(&BROKERS, refused);
    }
    let replication = section.within(&REPLICATION, 1..=9);
    let keep: Setting<Duration> = section.need(&KEEP);
    let properties = read_properties(section, &property::CARRIER);
    let replication = replication.and_then(|n| i32::try_from(n.value).ok()).unwrap_or(1);
    Some(Arc::new(Carrier { brokers, replication, keep: keep.value, properties }))
}

impl CarrierPlan for Carrier {
    fn near(&self, name: &str, instrument: &str) -> Arc<dyn LivePlan> {
        Arc::new(NearPlan { name: name.to_owned(), instrument: instrument.to_owned(), carrier: self.clone() })
    }

    fn far(&self, mirror: &Mirror, instrument: &str) -> Arc<dyn SourcePlan> {
        Arc::new(FarPlan { mirror: mirror.clone(), instrument: instrument.to_owned(), carrier: self.clone() })
    }

    fn deal(&self, name: &str, shared: &SharedWorker) -> Arc<dyn LivePlan> {
        Arc::new(DealPlan { name: name.to_owned(), shared: shared.clone(), carrier: self.clone() })
    }

    fn work(&self, shared: &SharedWorker, host: &str) -> (Arc<dyn SourcePlan>, Arc<dyn LivePlan>) {
        let plan = WorkPlan::new(shared, self, host);
        (Arc::new(plan.clone()), Arc::new(plan))
    }

    fn gather(&self, shared: &SharedWorker) -> Arc<dyn SourcePlan> {
        Arc::new(GatherPlan { shared: shared.clone(), carrier: self.clone() })
    }

    fn holds(&self) -> (Duration, u32) {
        (self.keep, self.replication.unsigned_abs())
    }

    #[cfg(feature = "client")]
    fn bulletin(&self, instrument: &str, host: Option<&str>) -> Result<Box<dyn Bulletin>, Fault> {
        Ok(Box::new(super::bulletin::TopicBulletin::open(self, instrument, host)?))
    }

    #[cfg(not(feature = "client"))]
    fn bulletin(&self, instrument: &str, _: Option<&str>) -> Result<Box<dyn Bulletin>, Fault> {
        Err(unbuilt("bulletin", instrument))
    }

    fn secrets(&self) -> Vec<String> {
        property::variables(&self.properties)
    }
}

impl LivePlan for NearPlan {
    #[cfg(feature = "client")]
    fn build(&self, inputs: &[String]) -> Result<Box<dyn LiveSink>, Fault> {
        Ok(Box::new(super::near::Near::new(self.clone(), inputs)))
    }

    #[cfg(not(feature = "client"))]
    fn build(&self, _: &[String]) -> Result<Box<dyn LiveSink>, Fault> {
        let Self { name, instrument, carrier: Carrier { brokers, replication, keep, .. } } = self;
        let _ = (instrument, brokers, replication, keep);
        Err(unbuilt("sink", name))
    }

    fn secrets(&self) -> Vec<String> {
        self.carrier.secrets()
    }
}

impl SourcePlan for FarPlan {
    #[cfg(feature = "client")]
    fn build(&self) -> Result<Box<dyn Source>, Fault> {
        Ok(Box::new(super::far::Far::new(self.clone())))
    }

    #[cfg(not(feature = "client"))]
    fn build(&self) -> Result<Box<dyn Source>, Fault> {
        let Self { mirror, instrument, .. } = self;
        let _ = instrument;
        Err(unbuilt("source", &mirror.name))
    }

    fn secrets(&self) -> Vec<String> {
        self.carrier.secrets()
    }
}

impl LivePlan for DealPlan {
    #[cfg(feature = "client")]
    fn build(&self, inputs: &[String]) -> Result<Box<dyn LiveSink>, Fault> {
        Ok(Box::new(super::shared::Deal::new(self.clone(), inputs)))
    }

    #[cfg(not(feature = "client"))]
    fn build(&self, _: &[String]) -> Result<Box<dyn LiveSink>, Fault> {
        let Self { name, shared, carrier: _ } = self;
        let _ = shared;
        Err(unbuilt("sink", name))
    }

    fn secrets(&self) -> Vec<String> {
        self.carrier.secrets()
    }
}

impl SourcePlan for GatherPlan {
    #[cfg(feature = "client")]
    fn build(&self) -> Result<Box<dyn Source>, Fault> {
        Ok(Box::new(super::shared::Gather::new(self.clone())))
    }

    #[cfg(not(feature = "client"))]
    fn build(&self) -> Result<Box<dyn Source>, Fault> {
        Err(unbuilt("source", &self.shared.name))
    }

    fn secrets(&self) -> Vec<String> {
        self.carrier.secrets()
    }
}

impl SourcePlan for WorkPlan {
    #[cfg(feature = "client")]
    fn build(&self) -> Result<Box<dyn Source>, Fault> {
        Ok(Box::new(super::shared::Member::new(self.ends.clone())))
    }

    #[cfg(not(feature = "client"))]
    fn build(&self) -> Result<Box<dyn Source>, Fault> {
        Err(unbuilt("source", &self.ends.shared.name))
    }

    fn secrets(&self) -> Vec<String> {
        self.ends.carrier.secrets()
    }
}

impl LivePlan for WorkPlan {
    #[cfg(feature = "client")]
    fn build(&self, _: &[String]) -> Result<Box<dyn LiveSink>, Fault> {
        Ok(Box::new(super::shared::Results::new(self.ends.clone())))
    }

    #[cfg(not(feature = "client"))]
    fn build(&self, _: &[String]) -> Result<Box<dyn LiveSink>, Fault> {
        Err(unbuilt("sink", &self.ends.shared.name))
    }

    fn secrets(&self) -> Vec<String> {
        self.ends.carrier.secrets()
    }
}
