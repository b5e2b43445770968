//! Simulated PVs, `fake:NAME`: a random integer of 0 to 100, each `fake_period`.

use crate::value::{Elements, Form, Kind, Update, What};
use std::collections::BTreeSet;
use wire::DType;

/// Draws their values.
#[derive(Debug, Default)]
pub(crate) struct Fakes {
    state: u64,
    /// ns between two values.
    period: i64,
    /// Their slots.
    pub(crate) places: BTreeSet<usize>,
    /// When values are due; `i64::MAX` without PVs.
    due: i64,
    /// The slot that gets the next value, while not all have theirs.
    next: usize,
}

impl Fakes {
    pub(crate) fn new(period: i64, now: i64) -> Self {
        Self { state: now as u64, period, due: now, ..Self::default() }
    }

    /// When the next value is due, ns since 1970 UTC.
    pub(crate) fn due(&self) -> i64 {
        if self.places.is_empty() { i64::MAX } else { self.due }
    }

    /// The slot whose value is due now.
    pub(crate) fn next(&mut self, now: i64) -> Option<usize> {
        // The clock of the machine may have been set back.
        if now < self.due() && self.due.saturating_sub(now) <= self.period {
            return None;
        }
        if let Some(place) = self.places.range(self.next..).next() {
            self.next = place + 1;
            return Some(*place);
        }
        // Values for which there was no time are left out.
        self.due = Some(self.due.saturating_add(self.period))
            .filter(|due| (now..=now + self.period).contains(due))
            .unwrap_or(now + self.period);
        self.next = 0;
        None
    }

    /// The next value (splitmix64).
    pub(crate) fn draw(&mut self) -> i32 {
        (store::splitmix64(&mut self.state) % 101) as i32
    }
}

/// The update with a value.
pub(crate) fn update(id: u64, time: i64, value: &[u8; 4]) -> Update<'_> {
    Update {
        form: Form::Scalar,
        time: Some(time),
        has_value: true,
        has_alarm: true,
        has_units: true,
        value: Elements { kind: Kind::Number(DType::Int32), count: 1, bytes: value },
        ..Update::of(id, What::Value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pv_has_one_value_a_period() {
        let mut fakes = Fakes::new(100, 1000);
        assert_eq!((fakes.due(), fakes.next(1000)), (i64::MAX, None));
        fakes.places.extend([2, 5]);
        let mut at = |now: i64| (std::iter::from_fn(|| fakes.next(now)).collect::<Vec<_>>(), fakes.due());
        assert_eq!(at(1010), (vec![2, 5], 1100));
        assert_eq!(at(1099), (vec![], 1100));
        assert_eq!(at(1100), (vec![2, 5], 1200));
        // Periods that were missed are left out.
        assert_eq!(at(1750), (vec![2, 5], 1850));
        // The clock was set back.
        assert_eq!(at(500), (vec![2, 5], 600));
        // A PV that is removed before its turn.
        let mut fakes = Fakes::new(100, 0);
        fakes.places.extend([2, 5, 7]);
        assert_eq!(fakes.next(0), Some(2));
        fakes.places.remove(&5);
        assert_eq!((fakes.next(0), fakes.next(0)), (Some(7), None));
    }

    #[test]
    fn values_are_0_to_100() {
        let mut fakes = Fakes::new(1, 7);
        let drawn: Vec<i32> = (0..10_000).map(|_| fakes.draw()).collect();
        assert!(drawn.iter().all(|value| (0..=100).contains(value)));
        assert!(drawn.contains(&0) && drawn.contains(&100));
    }
}
