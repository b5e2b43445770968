//! An input whose stage makes the same messages again after it has lost its data folder: a part of a merge on several
//! hosts, or of a worker behind it.
//!
//! Such an input is a mirror. Its messages of another near stream repeat those of the near stream before. The merge
//! takes messages before a certain time from the earlier stream, and all others from the later one: each message
//! counts once. That time is the one up to which the earlier stream was complete.

use super::input::{Input, LOOK};
use super::{By, Data};
use crate::Fault;
use crate::data::stream_fault;
use serde::{Deserialize, Serialize};
use store::{Entry, Stretch};

/// The count of messages that are there twice.
pub(super) const SKIPPED_AGAIN: &str = "skipped.again";

/// Where the messages of an input were made again, oldest first: the first sequence, and the source time from which on
/// they count, ns since 1970 UTC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Again(Vec<(u64, i64)>);

impl Again {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the message counts in another of the streams that have it.
    #[inline]
    pub(super) fn skips(&self, sequence: u64, entry: &Entry) -> bool {
        self.0.iter().any(|&(first, time)| (sequence >= first) == (entry.source_time < time))
    }
}

impl Input {
    /// The number of entries, of the next `most`, before the stage begins to make messages again. Where the next entry
    /// is the first of these, the messages before it are settled.
    pub(super) fn up_to_again(&mut self, data: &Data, most: usize, from: i64, by: &mut By) -> Result<usize, Fault> {
        let fault = |e| stream_fault(&self.account.stream, e);
        let at = self.account.next;
        let (mut is_first, mut len) = (false, most);
        if let Stretch::Messages(entries) = self.reader.next_entries(at, most.min(LOOK)).map_err(fault)? {
            let follows = |near: Option<u64>, entry: &Entry| near.is_some_and(|near| near + 1 == entry.parent_sequence);
            is_first = entries.first().is_some_and(|entry| !follows(self.near.1, entry));
            // Entries of one near stream follow each other, but for what was lost.
            let pairs = || entries.iter().zip(entries.iter().skip(1));
            len = pairs().take_while(|(one, next)| follows(Some(one.parent_sequence), next)).count() + 1;
            len = len.min(most);
            self.near.1 = entries.get(len - 1).map_or(self.near.1, |entry| Some(entry.parent_sequence));
        }
        if is_first {
            // The header names a near stream before the first of its messages is there.
            let near = data.reader_early(&self.account.stream)?.header().near_of(at).map(|near| near.uuid);
            let before = std::mem::replace(&mut self.near.0, near);
            let is_known = self.again.0.last().is_some_and(|&(first, _)| first >= at);
            if before.is_some() && before != near && !is_known {
                self.begin_again(data, at, from, by)?;
            }
        }
        Ok(len)
    }

    /// The messages from `at` on are made again.
    fn begin_again(&mut self, data: &Data, at: u64, from: i64, by: &mut By) -> Result<(), Fault> {
        let waited = self.waiting();
        // A restart forgets the frontiers that the stage has reported: the time never falls.
        let before = self.again.0.last().map_or(from, |again| again.1.max(from));
        self.again.0.push((at, self.brought().max(before)));
        let low = self.low_waiting();
        let (strays, gaps) = (std::mem::take(&mut self.strays), std::mem::take(&mut self.gaps));
        self.blocks.clear();
        let waiting = self.look_back(data, (low, at), from, by)?;
        (self.strays, self.gaps) = (strays, gaps);
        self.count_again(waited.saturating_sub(waiting));
        Ok(())
    }

    pub(super) fn count_again(&mut self, count: u64) {
        if count > 0 {
            *self.account.counts.entry(SKIPPED_AGAIN.into()).or_default() += count;
        }
    }
}
