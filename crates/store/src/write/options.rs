//! Options of a stream and its writer.

use crate::format::entry::ENTRY_BYTES;
use crate::format::header::{Clock, Level};
use crate::limits::{INDEX_ENTRIES_MAX, INDEX_ENTRIES_MIN, LIVE_BYTES_MIN, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN};

/// The answer to an append without room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// The append is refused with `Error::Full` until counted readers (or the disk) have advanced.
    Wait,
    /// The oldest segment is deleted, read or not. While the disk is behind, as `DropNewest`.
    DropOldest,
    /// The append is refused with `Error::Dropped`; the caller counts it.
    DropNewest,
}

/// The thread that copies the live place of a disk stream to the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// A thread of this process.
    Thread,
    /// The caller, with `Writer::drain`: for one-threaded simulation and measurements.
    Caller,
}

/// Options of a stream and its writer.
#[derive(Clone, Debug)]
pub struct Options {
    /// Mark at which messages are safe.
    pub level: Level,
    /// Unit of source times.
    pub clock: Clock,
    /// Answer to an append without room.
    pub when_full: WhenFull,
    /// Bytes of shared memory of the live place.
    pub live_bytes: u64,
    /// Bytes that the stream may keep on disk; none = until the disk is full.
    pub retain_bytes: Option<u64>,
    /// How long messages are kept from their arrival on, ns; none = as long as there is room.
    pub retain_age_ns: Option<i64>,
    /// Bytes that the stream leaves free on its disk.
    pub keep_free_bytes: Option<u64>,
    /// Bytes of stream memory that one reader may keep mapped; none = a quarter of `live_bytes`. Four of the largest
    /// messages are allowed in any case.
    pub pin_bytes: Option<u64>,
    /// The thread that drains.
    pub drain: Drain,
}

impl Options {
    /// A stream that survives the death of any process.
    pub fn memory(live_bytes: u64) -> Self {
        Self {
            level: Level::Memory,
            clock: Clock::Epoch,
            when_full: WhenFull::Wait,
            live_bytes,
            retain_bytes: None,
            retain_age_ns: None,
            keep_free_bytes: None,
            pin_bytes: None,
            drain: Drain::Thread,
        }
    }

    /// A stream that survives a power cut.
    pub fn disk(live_bytes: u64) -> Self {
        Self { level: Level::Disk, ..Self::memory(live_bytes) }
    }

    /// True if retention deletes messages from the disk.
    pub(crate) fn has_retention(&self) -> bool {
        self.retain_bytes.is_some() || self.retain_age_ns.is_some() || self.keep_free_bytes.is_some()
    }

    /// Sizes that follow from `live_bytes`: (bytes of a payload segment, entries of an index segment).
    pub(crate) fn sizes(&self) -> (u64, u64) {
        let eighth = 1 << (self.live_bytes.max(LIVE_BYTES_MIN) / 8).ilog2();
        let segment = u64::clamp(eighth, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        let entries = (segment / ENTRY_BYTES as u64).clamp(INDEX_ENTRIES_MIN, INDEX_ENTRIES_MAX);
        (segment, entries)
    }
}
