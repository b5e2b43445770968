//! Simulated PVs, `fake:NAME`: a random integer of 0 to 100 once a second.

use crate::value::{Elements, Form, Kind, Update, What};
use wire::DType;

/// Draws their values.
#[derive(Debug)]
pub(crate) struct Fakes {
    state: u64,
}

impl Fakes {
    pub(crate) fn new(seed: i64) -> Self {
        Self { state: seed as u64 }
    }

    /// The next value (splitmix64).
    pub(crate) fn draw(&mut self) -> i32 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % 101) as i32
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
    fn values_are_0_to_100() {
        let mut fakes = Fakes::new(7);
        let drawn: Vec<i32> = (0..10_000).map(|_| fakes.draw()).collect();
        assert!(drawn.iter().all(|value| (0..=100).contains(value)));
        assert!(drawn.contains(&0) && drawn.contains(&100));
    }
}
