//! A worker on several hosts: blocks of its inputs are handed out over the partitions of one topic, whose readers are
//! the hosts, as members of one group.
//!
//! | topic | partitions | records |
//! |---|---|---|
//! | `INSTRUMENT.WORKER.in` | P | blocks of the inputs, in turn ([`deal`]) |
//! | `INSTRUMENT.WORKER.order` | 1 | in which order blocks were handed out ([`order`]) |
//! | `INSTRUMENT.WORKER` | P | results: those of partition n are in partition n, in its order ([`results`]) |
//!
//! A host fills a stream in memory with its blocks ([`member`]), its worker runs as on one machine, and the results go
//! back in one transaction with the offsets of their blocks. A host that dies has returned a block or it has not: its
//! partitions go to others after the timeout of its session. Hosts that read the output follow the order, each by
//! itself, and all get the same messages in the same order ([`gather`]).

#[cfg(any(feature = "client", test))]
mod collate;
#[cfg(feature = "client")]
mod deal;
mod ends;
#[cfg(feature = "client")]
mod gather;
#[cfg(feature = "client")]
mod member;
#[cfg(any(feature = "client", test))]
mod order;
#[cfg(any(feature = "client", test))]
mod record;
#[cfg(feature = "client")]
mod results;
#[cfg(feature = "client")]
mod table;
#[cfg(test)]
mod tests;
#[cfg(feature = "client")]
mod transaction;

pub(crate) use self::ends::Ends;
#[cfg(feature = "client")]
pub(crate) use self::{deal::Deal, gather::Gather, member::Member, results::Results, table::Table};

#[cfg(feature = "client")]
use super::plan::Carrier;
#[cfg(feature = "client")]
use super::topics::ensure_shared;
#[cfg(feature = "client")]
use crate::{
    asking::Asking,
    client::{Claim, merged, owned},
    librdkafka::{Queue, Wake},
    plan::Plan,
    source::reading,
};
#[cfg(feature = "client")]
use flow::{Fault, Passes, edge::SharedWorker};
#[cfg(feature = "client")]
use settings::Setting;
#[cfg(feature = "client")]
use std::{sync::Arc, time::Instant};

/// The topics of a worker on several hosts.
#[cfg(feature = "client")]
pub(crate) struct Names {
    pub(crate) blocks: String,
    pub(crate) order: String,
    pub(crate) results: String,
}

#[cfg(feature = "client")]
impl Names {
    pub(crate) fn of(shared: &SharedWorker) -> Self {
        let results = Carrier::topic(&shared.instrument, &shared.name);
        Self { blocks: format!("{results}.in"), order: format!("{results}.order"), results }
    }
}

/// A client that asks for the topics of a worker. Fields are dropped from above: queues before the client.
#[cfg(feature = "client")]
pub(crate) struct Opened {
    pub(crate) answers: Queue,
    pub(crate) wake: Arc<Wake>,
    pub(crate) claim: Claim,
    pub(crate) reads: Plan,
    pub(crate) names: Names,
    carrier: Carrier,
    parts: u32,
}

/// The topics as they are.
#[cfg(feature = "client")]
pub(crate) struct WorkerTopics {
    /// Partitions of the blocks, and of the results.
    pub(crate) partitions: i32,
    /// The identity of the order, as brokers write it.
    pub(crate) order: String,
}

#[cfg(feature = "client")]
impl Opened {
    /// `name` and `kind`: of the stage, for faults. `more`: properties of the client.
    pub(crate) fn new(
        carrier: &Carrier,
        shared: &SharedWorker,
        (name, kind): (&str, &'static str),
        more: &[(&str, &str)],
    ) -> Result<Self, Fault> {
        let names = Names::of(shared);
        let topics = vec![names.blocks.clone(), names.order.clone(), names.results.clone()];
        let reads = Plan { kind, ..carrier.reads(name, topics) };
        let properties = merged(reading(&reads)?.into_iter().chain(owned(more)));
        let claim = Claim::new(properties, &reads.topics).map_err(|(name, text)| reads.side().refused(&name, text))?;
        let wake = Wake::new().map_err(|e| Fault::io(format!("{kind} `{name}` cannot start"), &e))?;
        let wake = Arc::new(wake);
        let answers = Queue::new(claim.client(), &wake);
        Ok(Self { answers, wake, claim, reads, names, carrier: carrier.clone(), parts: shared.parts })
    }

    pub(crate) fn asking(&self, until: Instant) -> Asking<'_> {
        Asking { plan: &self.reads, claim: &self.claim, answers: &self.answers, until }
    }

    /// Makes the topics that are missing, the order last: where that is there, all were.
    pub(crate) fn ensure(&self, until: Instant) -> Result<WorkerTopics, Fault> {
        let Names { order, blocks, results } = &self.names;
        let parts = i32::try_from(self.parts).unwrap_or(1).max(1);
        let there = self.asking(until).topics()?;
        let is_there = |name: &String| {
            there.iter().any(|topic| topic.name == *name && topic.wrong.is_none() && topic.partitions > 0)
        };
        if is_there(order) && !(is_there(blocks) && is_there(results)) {
            let what = format!("topics `{blocks}`, `{order}` and `{results}` belong together");
            let fault = Fault::new(what, "one of them was deleted, and offsets in the others are of it");
            let hint = "remove the others too: beamport makes them again, without what was under way";
            return Err(Fault { passes: Passes::Soon, ..fault.hint(hint) });
        }
        let mut found = Vec::new();
        for (topics, count) in [(vec![blocks.clone(), results.clone()], parts), (vec![order.clone()], 1)] {
            let plan = Plan { topics: Setting::by_default(topics), ..self.reads.clone() };
            found.extend(ensure_shared(&Asking { plan: &plan, ..self.asking(until) }, &self.carrier, count)?);
        }
        let of = |name: &String| found.iter().find(|topic| topic.name == *name);
        let count = |name: &String| of(name).map_or(0, |topic| topic.partitions);
        let (there, back) = (count(blocks), count(results));
        if there != back {
            let what = format!("topics `{blocks}` and `{results}` do not fit together");
            let cause = format!("they have {there} and {back} partitions");
            return Err(Fault::new(what, cause).hint("remove both, and start all hosts with the same file"));
        }
        let Some(order) = of(order).map(|topic| topic.id.clone()) else {
            return Err(Fault::new(format!("topic `{order}` was not found"), "the brokers do not name it"));
        };
        Ok(WorkerTopics { partitions: i32::try_from(there).unwrap_or(1).max(1), order })
    }
}
