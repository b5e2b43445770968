//! The wall clock for retention by age, ns since 1970 UTC, which follows a set clock only after a minute.
//!
//! Constraints: until a new time has held for 60 s on the monotonic clock, time continues at the old one, because one
//! read of a wrong clock must not make a day of messages too old. `flow::merge::pace` is stricter: the time of a merge
//! never goes back. Here it must, or a clock that was once ahead would make every later message too old.

use crate::limits::{CLOCK_HOLDS_NS, CLOCK_STEP_NS};
use crate::outside::media::Media;

pub(crate) struct Steady {
    /// Believed time and the reading of the clock that nobody sets, at the last comparison of both.
    time: i64,
    clock: i64,
    /// How far the wall clock was set, and the reading of the other clock when that was seen; none while they agree.
    step: Option<(i64, i64)>,
}

impl Steady {
    /// Where messages are kept, the wall clock has to hold for a minute first: it may be ahead since before the start.
    pub(crate) fn new(media: &dyn Media, keeps_messages: bool) -> Self {
        Self { time: if keeps_messages { i64::MIN } else { media.now() }, clock: media.clock(), step: None }
    }

    /// True while the wall clock was set and is not believed yet.
    pub(crate) fn is_stepping(&self) -> bool {
        self.step.is_some()
    }

    /// The time now.
    #[inline]
    pub(crate) fn now(&mut self, media: &dyn Media) -> i64 {
        let now = media.now();
        // The clocks are compared once in `CLOCK_STEP_NS`, not at each message.
        if self.step.is_none() && (0..CLOCK_STEP_NS).contains(&now.saturating_sub(self.time)) {
            return now;
        }
        self.compare(now, media.clock())
    }

    #[cold]
    fn compare(&mut self, now: i64, clock: i64) -> i64 {
        let goes_on = self.time.saturating_add(clock.saturating_sub(self.clock));
        let step = now.saturating_sub(goes_on);
        let is_step = |step: i64| step.unsigned_abs() > CLOCK_STEP_NS as u64;
        self.step = match self.step {
            _ if !is_step(step) => None,
            Some((known, since)) if !is_step(step.saturating_sub(known)) => Some((known, since)),
            _ => Some((step, clock)),
        };
        let is_believed = self.step.is_none_or(|(_, since)| clock.saturating_sub(since) >= CLOCK_HOLDS_NS);
        if is_believed {
            self.step = None;
        }
        (self.time, self.clock) = (if is_believed { now } else { goes_on }, clock);
        self.time
    }
}
