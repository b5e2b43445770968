//! The pulses of the source: 14 Hz, counted since 1970, so that every simulated instrument shares one grid and a restart meets it again.

/// Pulses a second, as at the ESS.
pub const PULSES_PER_SECOND: i64 = 14;

const SECOND_NS: i128 = 1_000_000_000;

/// Time of a pulse: floor(n * 1e9 / 14) ns since 1970 UTC. Every fourteenth falls on a whole second.
pub fn pulse_time(number: i64) -> i64 {
    (i128::from(number) * SECOND_NS).div_euclid(i128::from(PULSES_PER_SECOND)) as i64
}

/// Number of the newest pulse at or before a time in ns since 1970 UTC.
pub fn pulse_at(time: i64) -> i64 {
    ((i128::from(time) + 1) * i128::from(PULSES_PER_SECOND) - 1).div_euclid(SECOND_NS) as i64
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
}
