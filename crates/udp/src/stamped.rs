//! Source times from what boards give their messages: times, or ticks of a counter that begins again.

use crate::framing::{Stamp, nearest};
use crate::plan::Plan;
use crate::zero::ZeroWord;
use flow::Fault;

/// The time of the message before, ns since 1970 UTC, from which a counter that begins again is continued.
pub(crate) struct Stamped(pub(crate) Option<i64>);

impl Stamped {
    /// The source time of a stamp, ns since 1970 UTC; `None` where it is outside of what can be stored, or the unit of
    /// ticks is unknown.
    pub(crate) fn time_of(&mut self, stamp: Stamp, plan: &Plan, now: i64) -> Result<Option<i64>, Fault> {
        let (ticks, tick) = match (stamp, plan.tick) {
            (Stamp::Epoch(time), _) => return Ok(Some(time)),
            (Stamp::Arrival, _) => return Ok(Some(now)),
            (Stamp::Ticks(_), None) => return Ok(None),
            (Stamp::Ticks(ticks), Some(tick)) => (ticks, tick),
        };
        let zero = match (plan.zero, plan.first.get()) {
            (ZeroWord::At(time), _) => time.0,
            (ZeroWord::First, Some(first)) => first.time(now)?,
            (ZeroWord::First, None) => return Err(Fault::new("the zero of timestamps is unknown", "no data folder")),
        };
        let time = self.time_from((zero, tick), ticks, (plan.wrap, now));
        self.0 = time.or(self.0);
        Ok(time)
    }

    /// The time of a timestamp, from that at which it was zero and the length of a tick, ns. Of a counter that begins
    /// again after `wrap` ticks it is the one nearest to the message before, or to `now`.
    fn time_from(&self, (zero, tick): (i64, i64), ticks: u64, (wrap, now): (Option<u64>, i64)) -> Option<i64> {
        let ticks = match (wrap.filter(|wrap| ticks < *wrap), self.0) {
            (Some(wrap), last) => {
                // Of the first one it is the turn nearest to its arrival.
                let last = last.unwrap_or(now);
                let since = u64::try_from(i128::from(last) - i128::from(zero)).unwrap_or(0) / tick.unsigned_abs();
                nearest(since, ticks, wrap).unwrap_or(ticks)
            }
            _ => ticks,
        };
        zero.checked_add(tick.checked_mul(i64::try_from(ticks).ok()?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_continue_where_their_counter_begins_again() {
        let (wrap, period, zero) = (Some(1 << 48), 10 << 48, 1_772_366_400_000_000_000);
        let time = |ticks, last: Option<i64>| {
            let now = zero + 3 * period + 100;
            let time = Stamped(last.map(|last| zero + last)).time_from((zero, 10), ticks, (wrap, now));
            time.map(|time| time - zero)
        };
        // The first one is of the turn of its arrival, or the one before or behind it.
        let end = (1 << 48) - 1;
        assert_eq!([time(7, None), time(end, None)], [3 * period + 70, 3 * period - 10].map(Some));
        // From the first turn of the counter to the third, and back where a message is late.
        assert_eq!([time(0, Some(period - 10)), time(5, Some(period))], [period, period + 50].map(Some));
        assert_eq!(time(end, Some(period)), Some(10 * end as i64));
        assert_eq!(time(3, Some(2 * period - 70)), Some(2 * period + 30));
        // Before the zero there is no turn.
        assert_eq!([time(end, Some(0)), time(end, Some(-5))], [Some(10 * end as i64); 2]);
        // One that is no value of such a counter is taken as it is.
        assert_eq!(time(1 << 48, Some(5)), Some(period));
        let of = |zero, tick, ticks, wrap| Stamped(Some(0)).time_from((zero, tick), ticks, (wrap, 0));
        assert_eq!(of(0, 1, 1 << 62, None), Some(1 << 62));
        assert_eq!([of(0, 1, u64::MAX, None), of(i64::MAX, 1, 1, wrap), of(0, i64::MAX, 2, wrap)], [None; 3]);
    }
}
