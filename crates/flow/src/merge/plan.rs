//! What a slice takes, written ahead of it into the state of its commit.

use crate::Fault;
use serde::{Deserialize, Serialize};

/// A slice as its commit says it. Together with `next` and what waits of each input, which stand in the commit, it says which messages are in the
/// output, which are aside and which wait: see decision 0009.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// The stream that it is written into.
    pub(super) output: [u8; 16],
    /// First time that is in it, ns since 1970 UTC.
    pub(super) from: i64,
    /// First time that is in it no more.
    pub(super) to: i64,
    /// Further beyond arrival a time is not believed, ns.
    pub(super) ahead_max: i64,
    /// First sequence of the stream aside, and one past the last.
    pub(super) aside: (u64, u64),
    /// By input, in the order of the commit.
    pub(super) shares: Vec<Share>,
}

/// What a slice takes from one input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Share {
    /// Lowest sequence that it may be in.
    pub(super) low: u64,
    /// Where the input stood before: what comes from there on and is older than `from` is late.
    pub(super) before: u64,
    /// Messages in the output.
    pub(super) took: u64,
    /// Messages aside.
    pub(super) strays: u64,
}

impl Plan {
    pub(super) fn read(state: &str) -> Result<Self, Fault> {
        serde_json::from_str(state)
            .map_err(|e| Fault::new("a commit of a merge cannot be read", e).hint("it was written by a later version"))
    }

    pub(super) fn write(&self) -> Result<String, Fault> {
        serde_json::to_string(self).map_err(|e| Fault::new("a commit of a merge cannot be written", e))
    }
}
