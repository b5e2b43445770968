//! Limits of the Python module, each with its reason.

use std::time::Duration;

/// Longest sleep before Python is asked for signals: Ctrl-C is felt as immediate.
pub(crate) const WAIT_STEP: Duration = Duration::from_millis(100);
/// Messages of one batch: their entries are copied, 1 MiB at most.
pub(crate) const BATCH_MESSAGES_MAX: u64 = 1 << 14;
/// Index entries looked at in one step of a search from the end: 256 KiB.
pub(crate) const ENTRIES: u64 = 1 << 12;
/// Readers kept open per stream for the next iteration: one a thread is usual.
pub(crate) const READERS_KEPT_MAX: usize = 4;
/// How often a search starts anew because retention took what it was looking at.
pub(crate) const SEARCHES_MAX: usize = 8;
/// Bytes of the buffer for messages being serialised that a thread keeps: the largest usual messages, frames of a
/// camera.
pub(crate) const SCRATCH_BYTES_KEPT_MAX: usize = 16 << 20;
/// Bytes of a message from which on it is written into stream memory itself: below, room that begins on a line of the cache
/// would waste more than the copy costs.
pub(crate) const DIRECT_BYTES_MIN: usize = 4096;
/// Sequence in the place of that of a message, where code of a source is called with none.
pub(crate) const OF_SOURCE: u64 = u64::MAX;
