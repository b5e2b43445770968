//! The end of a stream: where its writer appends the next message.

use crate::live::segment::Segment;
use std::sync::Arc;

/// The next message: its sequence and its time of arrival.
pub(crate) struct Cursor {
    next: u64,
    published: u64,
    pub(super) arrival: i64,
    /// [`crate::flags::CLOCK`] while `arrival` is not what the clock says.
    pub(super) clock_flag: u16,
}

impl Cursor {
    /// Behind `count` messages, all published, the last of which arrived at `arrival`.
    pub(crate) fn new(count: u64, arrival: i64) -> Self {
        Self { next: count, published: count, arrival, clock_flag: 0 }
    }

    /// Next sequence, pushed but unpublished ones counted.
    #[inline(always)]
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// One past the newest published message.
    #[inline(always)]
    pub(super) fn published(&self) -> u64 {
        self.published
    }

    /// Counts the next message; returns its sequence.
    #[inline(always)]
    pub(super) fn advance(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Counts everything pushed as published.
    #[inline(always)]
    pub(super) fn publish(&mut self) {
        debug_assert!(self.published < self.next, "the mark `memory` never falls");
        self.published = self.next;
    }
}

/// The payload segment that is written.
pub(crate) struct PayloadEnd {
    pub(crate) segment: Arc<Segment>,
    pub(crate) number: u32,
    /// Bytes in it.
    pub(crate) used: u64,
    /// Sequence at which it began.
    pub(crate) first: u64,
}

/// The index segment that is written.
pub(crate) struct IndexEnd {
    pub(crate) segment: Arc<Segment>,
    pub(crate) number: u32,
    /// Bytes before the entries of an index segment.
    pub(crate) table_bytes: u64,
    /// (minimum, maximum) of source time in the block that is filled.
    pub(crate) block: (i64, i64),
}
