//! Coincidences: which boards send at once, and when.
//!
//! Constraints: each thread draws all of them, and keeps those of its own boards; so the boards of all threads agree
//! without talking.

use super::dice::Dice;
use crate::limits::{EVENTS_ROUND, JITTER};

/// The coincidences of the boards of a file.
#[derive(Clone, Debug)]
pub(super) struct Array {
    dice: Dice,
    multiplicity: usize,
    /// Sums of the rates of the boards up to each of them.
    sums: Vec<f64>,
    /// Places of the boards among all of the file.
    places: Vec<usize>,
    /// Of the next one, from 0.
    number: u64,
    /// When it takes place, ns since the start.
    time: u64,
    members: Vec<usize>,
}

impl Array {
    /// Of boards with these places and rates (messages a second).
    pub(super) fn new(seed: u64, multiplicity: usize, boards: &[(usize, f64)]) -> Self {
        let mut sum = 0.0;
        let add = |(_, rate): &(usize, f64)| {
            sum += rate;
            sum
        };
        let sums = boards.iter().map(add).collect();
        let multiplicity = multiplicity.min(boards.len());
        let places = boards.iter().map(|(place, _)| *place).collect();
        let mut array = Self {
            dice: Dice::new(seed, u64::MAX),
            multiplicity,
            sums,
            places,
            number: 0,
            time: 0,
            members: Vec::new(),
        };
        array.time = array.draw_time();
        array
    }

    /// When the next one takes place: within the first half of its turn, so that two never overlap.
    fn draw_time(&mut self) -> u64 {
        let rate = self.sums.last().copied().unwrap_or(1.0) / self.multiplicity.max(1) as f64;
        let within = (self.dice.word() >> 11) as f64 / (1_u64 << 54) as f64;
        ((self.number as f64 + within) * 1e9 / rate) as u64
    }

    /// Passes the place of each member of the coincidences up to a time, ns since the start, and when the member sends.
    /// At most some hundred coincidences; true if these are all.
    pub(super) fn advance(&mut self, until: u64, mut sends: impl FnMut(usize, u64)) -> bool {
        for _ in 0..EVENTS_ROUND {
            if self.time > until {
                return true;
            }
            self.members.clear();
            while self.members.len() < self.multiplicity {
                let all = self.sums.last().copied().unwrap_or_default();
                let at = (self.dice.word() >> 11) as f64 / (1_u64 << 53) as f64 * all;
                let member = self.sums.partition_point(|sum| *sum <= at).min(self.sums.len() - 1);
                if !self.members.contains(&member) {
                    self.members.push(member);
                    sends(self.places[member], self.time + self.dice.below(JITTER + 1));
                }
            }
            self.number += 1;
            self.time = self.draw_time();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn members_are_different_boards_by_their_rates() {
        let boards = [(3, 100.0), (5, 100.0), (6, 400.0), (9, 200.0)];
        let mut array = Array::new(1, 2, &boards);
        let (mut counts, mut times): (BTreeMap<usize, u64>, Vec<u64>) = Default::default();
        while !array.advance(100_000_000_000, |place, time| {
            *counts.entry(place).or_default() += 1;
            times.push(time);
        }) {}
        // 800 messages a second, two at once.
        assert_eq!(times.len(), 80_000);
        for pair in times.chunks(2) {
            assert!(pair[0].abs_diff(pair[1]) <= JITTER);
        }
        assert!(times.windows(2).skip(1).step_by(2).all(|pair| pair[1] > pair[0] + JITTER));
        assert_eq!(counts.keys().copied().collect::<Vec<_>>(), [3, 5, 6, 9]);
        assert!(counts[&6] > counts[&9] && counts[&9] > counts[&3], "{counts:?}");
    }
}
