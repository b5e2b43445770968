//! How far the clock of the sources is behind that of the machine.
//!
//! The time up to which an input is complete is that of the machine, less what its source or merge waits. Boards whose
//! clock is behind send messages that are older than this time: a group of theirs would be closed as soon as there is a
//! pause between its messages. So the time that passes for a group is less by the lag of the newest messages.
//!
//! Constraints: the lag follows from the messages, which have their times of arrival.

use crate::limits::LAG_WINDOW;
use store::Entry;

/// The least lag of the last 64 to 128 messages.
pub(super) struct Lag {
    /// ns, of the window before and of this one.
    before: i64,
    least: i64,
    count: u32,
}

impl Default for Lag {
    fn default() -> Self {
        Self { before: i64::MAX, least: i64::MAX, count: 0 }
    }
}

impl Lag {
    pub(super) fn see(&mut self, entry: &Entry) {
        if self.count == LAG_WINDOW {
            *self = Self { before: self.least, ..Self::default() };
        }
        self.count += 1;
        self.least = self.least.min(entry.arrival_time.saturating_sub(entry.source_time));
    }

    /// Nanoseconds; 0 where the clock of the sources is not behind, or no message was seen.
    pub(super) fn ns(&self) -> i64 {
        let least = self.before.min(self.least);
        if least == i64::MAX { 0 } else { least.max(0) }
    }
}
