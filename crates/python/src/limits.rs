//! Limits of the Python module, each with its reason.

use std::time::Duration;

/// Longest sleep before Python is asked for signals: Ctrl-C is felt as immediate.
pub(crate) const WAIT_STEP: Duration = Duration::from_millis(100);
/// Sleep of a thread that hands an iteration over to others that wait: long enough for one of them to wake up.
pub(crate) const HANDOVER: Duration = Duration::from_millis(1);
/// Sleep of the runner of a trial where nothing is to be done: a test does not feel it.
pub(crate) const TRIAL_NAP: Duration = Duration::from_micros(200);
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
/// Earlier members of a run that code is given again at most, and for how long: beside the time that a call may take.
pub(crate) const AGAIN_MAX: u64 = 65_536;
pub(crate) const AGAIN_TIME: Duration = Duration::from_secs(10);
/// Entries or messages read in one go.
pub(crate) const READ: usize = 1024;
/// Place of a state that there is not.
pub(crate) const NO_PLACE: u64 = u64::MAX;
/// The part of a slot's stream that a state may fill: that of the last answer, that of the next, and results.
pub(crate) const STATE_SHARE: u64 = 8;
/// The part of a slot's stream that results without an answer may fill, before the state is saved between two messages.
pub(crate) const UNANSWERED_SHARE: u64 = 4;
/// Sequence in the place of that of a message, where code of a source is called with none.
pub(crate) const OF_SOURCE: u64 = u64::MAX;
/// How often, and after which pauses, it is looked for the first commit of a worker that makes groups: for 1 s.
pub(crate) const MEMBERS_LOOKS: u32 = 200;
pub(crate) const MEMBERS_NAP: Duration = Duration::from_millis(5);
/// Shared memory of the stream of loose results of a slot, at most: they are few.
pub(crate) const LOOSE_LIVE_BYTES: u64 = 16 << 20;
