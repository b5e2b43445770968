//! The payload segments that a stream keeps: the list by which retention decides.

use std::collections::VecDeque;

/// A payload segment that a stream keeps. Where messages have no bytes of their own it is a number without a file, and
/// closed after as many entries as have its size.
#[derive(Clone, Copy)]
pub(crate) struct KeptSegment {
    pub(crate) number: u32,
    /// Its first message.
    pub(crate) first: u64,
    /// When that arrived, by the wall clock or `Writer::steady`, whichever was ahead.
    pub(crate) arrived: i64,
    /// Its bytes on the medium; of the one that is written not known yet.
    pub(crate) bytes: u64,
}

/// Segments that are kept, oldest first, with the one that is written.
pub(crate) struct Chain {
    list: VecDeque<KeptSegment>,
    /// Bytes in all of them but the one that is written.
    closed_bytes: u64,
}

impl Chain {
    /// The last of the list is the one that is written.
    pub(crate) fn new(list: VecDeque<KeptSegment>) -> Self {
        let closed_bytes = list.iter().map(|kept| kept.bytes).sum();
        Self { list, closed_bytes }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Bytes in all segments but the one that is written.
    pub(super) fn closed_bytes(&self) -> u64 {
        self.closed_bytes
    }

    pub(super) fn oldest(&self) -> Option<&KeptSegment> {
        self.list.front()
    }

    /// The segment behind the oldest: that one can be retired only if there is another.
    pub(super) fn second(&self) -> Option<&KeptSegment> {
        self.list.get(1)
    }

    /// The closed segments, newest first.
    pub(super) fn closed(&self) -> impl Iterator<Item = &KeptSegment> {
        self.list.iter().rev().skip(1)
    }

    /// Number of the segment that has the payload of a message; none below the oldest.
    pub(super) fn segment_of(&self, sequence: u64) -> Option<u32> {
        self.list.iter().rev().find(|kept| kept.first <= sequence).map(|kept| kept.number)
    }

    /// Adds the segment that is written from now on. `bytes`: those of the one before on the medium.
    pub(super) fn roll(&mut self, bytes: u64, next: KeptSegment) {
        if let Some(closed) = self.list.back_mut() {
            closed.bytes = bytes;
            self.closed_bytes += bytes;
        }
        self.list.push_back(next);
    }

    /// Lowers arrivals to `now`.
    pub(super) fn limit_arrivals(&mut self, now: i64) {
        self.list.iter_mut().for_each(|kept| kept.arrived = kept.arrived.min(now));
    }

    /// Removes segments below `number`, but never the one that is written.
    pub(super) fn retire_below(&mut self, number: u32) {
        while self.list.len() > 1
            && let Some(oldest) = self.list.front().filter(|kept| kept.number < number)
        {
            self.closed_bytes -= oldest.bytes;
            self.list.pop_front();
        }
    }
}
