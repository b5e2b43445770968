//! What sections of EPICS say: data, without what is built of them.

use crate::entry::{Entry, Identity, Protocol};
use crate::limits::PVS_MAX;
use settings::{Refused, Word};
use std::collections::HashSet;
use std::time::Duration;

/// How a PV is subscribed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subscription {
    /// Updates that client and server keep; with 0 only the connection is watched.
    pub(crate) queue: u32,
    /// The server waits for the client.
    pub(crate) pipeline: bool,
    /// Without the value.
    pub(crate) is_beside: bool,
}

/// Where PVs are searched for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Network {
    /// The protocol of names without a prefix. The addresses are those of its client; the other one, like a client
    /// without addresses, has those of the EPICS environment.
    pub(crate) protocol: Protocol,
    pub(crate) addresses: Option<String>,
    pub(crate) name_servers: Option<String>,
}

/// The plan of a section of a source.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Name of the source.
    pub(crate) name: String,
    /// Where its PVs are searched for.
    pub(crate) network: Network,
    /// The PVs of the file.
    pub(crate) entries: Vec<Entry>,
    pub(crate) queue: u32,
    pub(crate) pipeline: bool,
    /// Compressed frames are decoded.
    pub(crate) decode: bool,
    /// How long a frame may be late, ns.
    pub(crate) reorder: i64,
    pub(crate) repeat: Option<Duration>,
    /// Messages that are sent beside the values; `None` where the section does not say.
    pub(crate) alarms: Option<bool>,
    pub(crate) connections: Option<bool>,
    pub(crate) units: Option<bool>,
    /// ns between two values of a simulated PV.
    pub(crate) fake_period: i64,
}

impl Plan {
    /// How a PV is subscribed. `is_beside`: its values are not sent.
    pub(crate) fn subscription(&self, is_beside: bool) -> Subscription {
        Subscription { queue: self.queue, pipeline: self.pipeline, is_beside }
    }
}

/// A PV that is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) origin: String,
    pub(crate) protocol: Protocol,
    pub(crate) pv: String,
}

impl Target {
    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.protocol.word(), self.pv)
    }
}

/// The plan of a section of a sink `pva-put`.
#[derive(Clone, Debug)]
pub(crate) struct FeedbackPlan {
    pub(crate) name: String,
    pub(crate) network: Network,
    pub(crate) targets: Vec<Target>,
    pub(crate) every: Duration,
}

/// Why PVs cannot be one list.
pub(crate) fn wrong_list(entries: &[Entry]) -> Option<Refused> {
    if entries.len() > PVS_MAX {
        let hint = "share out the PVs among several sources";
        return Some(Refused::new(format!("it has {} PVs; one source takes {PVS_MAX} at most", entries.len()), hint));
    }
    let mut known: HashSet<&Identity> = HashSet::new();
    let twice = entries.iter().find(|entry| !known.insert(&entry.identity))?;
    Some(Refused::new(format!("`{}` is listed twice", twice.identity.name()), "remove one of them"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::Value as Json;

    /// A plan with these PVs.
    pub(crate) fn plan(entries: &[Json]) -> Plan {
        let entries = entries.iter().map(|entry| Entry::of_json(entry, Protocol::Pva).unwrap());
        Plan {
            name: "pvs".into(),
            network: Network::default(),
            entries: entries.collect(),
            queue: 100,
            pipeline: false,
            decode: true,
            reorder: 1_000_000_000,
            repeat: None,
            alarms: None,
            connections: None,
            units: None,
            fake_period: 1_000_000_000,
        }
    }
}
