//! The time by which a merge waits for its inputs, ns since 1970 UTC: that of the machine's clock, but never backward
//! and never suddenly forward, even if somebody sets that clock (decision 0009).
//!
//! Constraints: no clock of its own: the result follows from its two arguments, the wall clock and a clock that is
//! never set. A jump forward of more than 10 ms is followed only after the longest `wait` of the inputs.

/// A clock that is further ahead of the one that is never set than it was was set, ns: less is what lies between two looks.
const SET: i64 = 10_000_000;

/// How far time has come for a merge.
#[derive(Default)]
pub(super) struct Pace {
    /// Time and clock of the last step; none before the first.
    last: Option<(i64, i64)>,
    /// It is no earlier than this, ns since 1970 UTC.
    least: Option<i64>,
    /// At which clock the time was seen to have been set forward.
    set: Option<i64>,
}

impl Pace {
    /// Up to here time had come before a restart.
    pub(super) fn resume(&mut self, time: i64) {
        self.least = Some(time);
    }

    /// Time goes on: `now` in ns since 1970 UTC, `clock` of one that is never set. `wait`: the longest of all inputs.
    pub(super) fn step(&mut self, now: i64, clock: i64, wait: i64) -> i64 {
        let time = match self.last {
            None => now.max(self.least.unwrap_or(now)),
            Some((time, before)) => {
                let goes_on = time.saturating_add(clock.saturating_sub(before));
                if now <= goes_on.saturating_add(SET) {
                    self.set = None;
                    goes_on.max(now)
                } else if clock.saturating_sub(*self.set.get_or_insert(clock)) < wait {
                    goes_on
                } else {
                    self.set = None;
                    now
                }
            }
        };
        self.last = Some((time, clock));
        time
    }

    /// Until what was under way when the clock was set forward has come, the output goes no further than it would have.
    pub(super) fn limit(&self, reach: i64, wait: i64) -> i64 {
        match (self.set, self.last) {
            (Some(_), Some((time, _))) => reach.min(time.saturating_sub(wait)),
            _ => reach,
        }
    }
}
