//! The slices of time that a part of a merge on several hosts has.

use serde::{Deserialize, Serialize};

/// Slices of time that go to the parts of a merge in turn: part `part` of `parts` has those with
/// `floor(time / length) mod parts = part`, and the messages around them for its workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeSlices {
    /// Length of a slice, ns, at least 1.
    pub length: i64,
    /// Number of parts, at least 1.
    pub parts: u32,
    /// The part, from 0.
    pub part: u32,
    /// A part also has what lies within this time of its slices, ns: less than `length`.
    pub overlap: i64,
}

impl TimeSlices {
    /// The share of all time that the part has, 0 to 1.
    #[must_use]
    pub fn share(&self) -> f64 {
        let own = self.length.saturating_add(self.overlap.saturating_mul(2)) as f64;
        (own / self.length.max(1) as f64 / f64::from(self.parts.max(1))).min(1.0)
    }

    /// Whether the part has the messages of a source time, ns since 1970 UTC.
    #[must_use]
    pub fn contains(&self, time: i64) -> bool {
        let length = self.length.max(1);
        let (slice, within) = (time.div_euclid(length), time.rem_euclid(length));
        let is_own = |slice: i64| slice.rem_euclid(i64::from(self.parts.max(1))) == i64::from(self.part);
        is_own(slice)
            || within < self.overlap && is_own(slice.wrapping_sub(1))
            || length - within <= self.overlap && is_own(slice.wrapping_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_one_part_and_near_a_border_in_two() {
        for parts in 1..=4 {
            let of = |part, overlap| TimeSlices { length: 10, parts, part, overlap };
            for time in -100..100 {
                let owners: Vec<u32> = (0..parts).filter(|&part| of(part, 0).contains(time)).collect();
                assert_eq!(owners, [time.div_euclid(10).rem_euclid(i64::from(parts)) as u32]);
                for part in 0..parts {
                    let is_near = (time - 2..=time + 2).any(|near| of(part, 0).contains(near));
                    assert_eq!(of(part, 2).contains(time), is_near, "{parts} {part} {time}");
                }
            }
        }
    }

    #[test]
    fn a_part_has_its_slices_and_what_lies_around_them() {
        let share = |parts, overlap| TimeSlices { length: 10, parts, part: 0, overlap }.share();
        assert_eq!([share(1, 0), share(2, 0), share(4, 1), share(1, 5)], [1.0, 0.5, 0.3, 1.0]);
    }

    #[test]
    fn the_ends_of_time_belong_to_a_part() {
        for time in [i64::MIN, i64::MAX] {
            let of = |part| TimeSlices { length: 1, parts: 3, part, overlap: 0 };
            assert_eq!((0..3).filter(|&part| of(part).contains(time)).count(), 1);
        }
    }
}
