//! Grids of times: the pulses of the source, 14 a second, and the frames of a camera.
//!
//! Each is counted since 1970, so that every simulated instrument shares it and a restart meets it again.

/// Pulses a second, as at the ESS.
pub const PULSES_PER_SECOND: i64 = 14;

/// Thousandths of ns in a second: rates are in thousandths of a hertz.
const SECOND: i128 = 1_000_000_000_000;

/// Times that repeat at a rate: number `n` has the time floor(n / rate), ns since 1970 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// The rate, in thousandths of a hertz; above 0.
    millihertz: i64,
}

impl Grid {
    /// The pulses of the source.
    pub const PULSES: Self = Self { millihertz: PULSES_PER_SECOND * 1000 };

    /// A rate in thousandths of a hertz; what is below one is taken for one.
    pub fn new(millihertz: i64) -> Self {
        Self { millihertz: millihertz.max(1) }
    }

    /// Time of a number, ns since 1970 UTC.
    pub fn time(self, number: i64) -> i64 {
        (i128::from(number) * SECOND).div_euclid(i128::from(self.millihertz)) as i64
    }

    /// The newest number at or before a time in ns since 1970 UTC.
    pub fn at(self, time: i64) -> i64 {
        ((i128::from(time) + 1) * i128::from(self.millihertz) - 1).div_euclid(SECOND) as i64
    }
}

/// Time of a pulse: floor(n * 1e9 / 14) ns since 1970 UTC. Every fourteenth falls on a whole second.
pub fn pulse_time(number: i64) -> i64 {
    Grid::PULSES.time(number)
}

/// Number of the newest pulse at or before a time in ns since 1970 UTC.
pub fn pulse_at(time: i64) -> i64 {
    Grid::PULSES.at(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_and_time_agree_everywhere() {
        for n in (0..2000).chain(25_000_000_000..25_000_002_000) {
            let t = pulse_time(n);
            assert_eq!(pulse_at(t), n);
            assert_eq!(pulse_at(t - 1), n - 1);
            assert!((71_428_571..=71_428_572).contains(&(pulse_time(n + 1) - t)));
        }
        assert_eq!(pulse_time(14 * 1_790_000_000), 1_790_000_000 * 1_000_000_000);
        assert_eq!(pulse_at(-1), -1);
    }

    #[test]
    fn number_and_time_agree_at_every_rate() {
        for millihertz in [1, 999, 14_000, 29_970, 1_000_000, 999_999_999, 1_000_000_000] {
            let grid = Grid::new(millihertz);
            for around in [0, 1_790_000_000_300_000_000] {
                for n in grid.at(around) - 1000..grid.at(around) + 1000 {
                    let t = grid.time(n);
                    assert_eq!((grid.at(t), grid.at(t - 1)), (n, n - 1), "{millihertz}");
                }
            }
        }
        // A camera and one ten times as fast meet at every tenth frame.
        let (slow, fast) = (Grid::new(29_970), Grid::new(299_700));
        assert!((0..5000).all(|n| slow.time(n) == fast.time(10 * n)));
    }
}
