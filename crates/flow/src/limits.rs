//! Every bound of this crate that is not one of a single algorithm, each with its reason.

use std::time::Duration;

/// Shared memory of a book on disk: a few messages a second.
pub const BOOK_LIVE_BYTES: u64 = 1 << 20;

/// What a book keeps in memory alone, where nothing should be discarded: 60,000 runs.
pub(crate) const BOOK_MEMORY_BYTES: u64 = 64 << 20;

/// What a book keeps in which only the newest record counts: a few of the largest.
pub(crate) const BOOK_NEWEST_BYTES: u64 = 1 << 20;

/// What a book keeps whose oldest records matter least, gaps of sources and commands: half a million.
pub const BOOK_HISTORY_BYTES: u64 = 64 << 20;

/// How long the disk may take for all that a book holds when it is opened.
pub(crate) const BOOK_PATIENCE: Duration = Duration::from_secs(10);

/// A worker that has published no statistics for so long, ns, does nothing: three of their pauses.
pub(crate) const STATISTICS_STALE_NS: i64 = 3_000_000_000;

/// The ledger of a stream is asked again after so many times what the answer took: 5 % of the time at most.
pub(crate) const LEDGER_PAUSE: i64 = 20;

/// Slots of one worker: each takes two of the 127 places for readers of an input.
pub const SLOTS_MAX: u32 = 32;

/// Between two moments of the statistics of a worker, ns: often enough for people, seldom enough to cost nothing.
pub(crate) const STATISTICS_PAUSE: i64 = 1_000_000_000;
