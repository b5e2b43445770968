//! The plan of a slice: which messages it takes, as JSON in the state of its commit, written before the slice.
//!
//! A restart derives the whole slice from it, so the output is never read back beyond its newest entry.

use super::TimeSlices;
use super::again::Again;
use super::input::By;
use super::number::{Course, Numbers};
use crate::Fault;
use serde::{Deserialize, Serialize};

/// A slice as its commit says it. Together with `next` and what waits of each input, which stand in the commit, it says which messages are in the
/// output, which are aside and which wait: see decision 0009.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// The stream that it is written into.
    pub(super) output: [u8; 16],
    /// First key that is in it: a time, ns since 1970 UTC, or a number in its round.
    pub(super) from: i64,
    /// First key that is in it no more.
    pub(super) to: i64,
    /// By time: further beyond arrival a time is not believed, ns.
    pub(super) ahead_max: Option<i64>,
    /// By number: its rounds, and what is missing so far.
    pub(super) numbers: Option<Numbers>,
    /// First sequence of the stream aside, and one past the last.
    pub(super) aside: (u64, u64),
    /// By input, in the order of the commit.
    pub(super) shares: Vec<Share>,
}

/// The share of one input in a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Share {
    /// Lowest sequence that it may be in.
    pub(super) low: u64,
    /// Where the input stood before: what comes from there on and lies before `from` is late.
    pub(super) before: u64,
    /// Messages in the output.
    pub(super) took: u64,
    /// Messages aside.
    pub(super) strays: u64,
    /// By number: those of which an id has too many, which are aside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) surplus: Vec<u64>,
    /// By number: how its numbers went, from `low` on.
    #[serde(default, skip_serializing_if = "Course::is_empty")]
    pub(super) course: Course,
    /// By time: the messages of the input that are merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) slices: Option<TimeSlices>,
    /// By time: where its stage began to make the same messages again.
    #[serde(default, skip_serializing_if = "Again::is_empty")]
    pub(super) again: Again,
}

impl Plan {
    pub(super) fn read(state: &str) -> Result<Self, Fault> {
        serde_json::from_str(state).map_err(|e| {
            Fault::new("cannot read a commit of a merge", e).hint("use the version of beamport that wrote it")
        })
    }

    /// By what it orders, as it stood then; none if it says neither.
    pub(super) fn by(&self) -> Result<By, Fault> {
        match (self.ahead_max, &self.numbers) {
            (Some(ahead_max), None) => Ok(By::Time(ahead_max)),
            (None, Some(numbers)) => numbers.check().map(|()| By::Number(numbers.clone())),
            _ => Err(Fault::new("cannot read a commit of a merge", "it does not name its order")),
        }
    }

    /// The key of an entry of the slice.
    pub(super) fn key_of(&self, entry: &store::Entry) -> Option<i64> {
        match &self.numbers {
            None => Some(entry.source_time),
            Some(numbers) => numbers.key_within(entry.origin_seq, self.from, self.to),
        }
    }

    pub(super) fn write(&self) -> Result<String, Fault> {
        serde_json::to_string(self).map_err(|e| Fault::new("cannot write a commit of a merge", e))
    }
}
