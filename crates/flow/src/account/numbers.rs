//! The numbers that an origin has in a run, and those that it lacks, from the index.

use crate::Fault;
use crate::data::{Data, stream_fault};
use crate::limits::{HOLES_MAX, MARGIN, REORDER_WINDOW};
use crate::records::Run;
use std::collections::BTreeMap;

/// Runs of numbers that an origin has not (yet) brought: first -> last.
#[derive(Default)]
pub(crate) struct Numbers {
    pub(crate) first: Option<u64>,
    pub(crate) next: u64,
    pub(crate) holes: BTreeMap<u64, u64>,
    /// Numbers in holes that are too many to be held: below `folded_below`.
    pub(crate) folded: u64,
    pub(crate) folded_below: u64,
    pub(crate) appended: u64,
    pub(crate) duplicate: u64,
}

impl Numbers {
    pub(crate) fn see(&mut self, number: u64) {
        self.appended += 1;
        let first = *self.first.get_or_insert(number);
        if self.appended == 1 {
            self.next = number.saturating_add(1);
        } else if number == self.next && number != u64::MAX {
            self.next = number + 1;
        } else if number > self.next {
            self.hole(self.next, number - 1);
            self.next = number.saturating_add(1);
        } else if number < first {
            // Came before the first one seen: the span grows downwards.
            if first - number > 1 {
                self.hole(number + 1, first - 1);
            }
            self.first = Some(number);
        } else {
            self.fill(number);
        }
    }

    /// Adds a hole. Where there are too many, the lowest is counted and no longer held.
    pub(crate) fn hole(&mut self, first: u64, last: u64) {
        self.holes.insert(first, last);
        if self.holes.len() > HOLES_MAX
            && let Some((first, last)) = self.holes.pop_first()
        {
            self.folded = self.folded.saturating_add((last - first).saturating_add(1));
            self.folded_below = self.folded_below.max(last.saturating_add(1));
        }
    }

    /// Takes at most `most` of `first..=last` out of the holes; how many numbers were in one.
    pub(crate) fn take(&mut self, first: u64, last: u64, most: u64) -> u64 {
        let mut left = most;
        let over: Vec<(u64, u64)> =
            self.holes.range(..=last).filter(|(_, high)| **high >= first).map(|(low, high)| (*low, *high)).collect();
        for (low, high) in over.into_iter().rev() {
            if left == 0 {
                break;
            }
            let (from, to) = (low.max(first), high.min(last));
            let from = if to - from < left { from } else { to - (left - 1) };
            self.holes.remove(&low);
            if low < from {
                self.holes.insert(low, from - 1);
            }
            if high > to {
                self.holes.insert(to + 1, high);
            }
            left = left.saturating_sub((to - from).saturating_add(1));
        }
        if first < self.folded_below {
            let folded = self.folded.min(left);
            self.folded -= folded;
            left -= folded;
        }
        most - left
    }

    pub(crate) fn has_holes(&self) -> bool {
        !self.holes.is_empty() || self.folded > 0
    }

    /// A number below the newest: it fills a hole, or it is there twice.
    pub(crate) fn fill(&mut self, number: u64) {
        match self.holes.range(..=number).next_back().map(|(a, b)| (*a, *b)) {
            Some((low, high)) if number <= high => {
                self.holes.remove(&low);
                if low < number {
                    self.holes.insert(low, number - 1);
                }
                if number < high {
                    self.holes.insert(number + 1, high);
                }
            }
            _ => self.duplicate += 1,
        }
    }
}

/// The messages of an origin beside a run that the stream still has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Beside {
    /// One past the highest number before the start.
    pub(crate) before: u64,
    /// The lowest number from the stop on.
    pub(crate) after: Option<u64>,
}

/// The numbers of an origin in a run and beside it, from the index.
#[derive(Default)]
pub(crate) struct Walked {
    pub(crate) members: Numbers,
    pub(crate) beside: Beside,
    /// Numbers between those of members that the stream has, or had, outside of what was walked.
    pub(crate) elsewhere: u64,
    /// The number of the first member.
    begin: u64,
}

impl Walked {
    /// Explains holes by `deleted` messages, which retention took from the run before the first member that is left: as
    /// far as messages may come in another order, one of them can have any missing number. How many it explains.
    pub(crate) fn explain_deleted(&mut self, deleted: u64) -> u64 {
        let explained = match deleted {
            0 => 0,
            _ => self.members.take(0, self.begin.saturating_add(REORDER_WINDOW), deleted),
        };
        self.elsewhere += explained;
        explained
    }
}

/// The numbers of each origin of a stream that are in a run, over ranges of sequences. Where some are missing, or a gap
/// may touch the run (`has_gaps`), also which messages outside the run explain that: those of the ranges, and
/// [`MARGIN`] before them. Messages after the seal are not read: the account of a sealed run does not change.
pub(crate) fn numbers(
    data: &Data,
    stream: &str,
    spans: &[(u64, u64)],
    run: &Run,
    has_gaps: bool,
) -> Result<BTreeMap<String, Walked>, Fault> {
    let mut reader = data.reader_early(stream)?;
    let fault = |e| stream_fault(stream, e);
    let (bounds, clock) = (reader.bounds(), reader.header().clock);
    let mut by_row: BTreeMap<u32, Walked> = BTreeMap::new();
    let mut see = |entries: &[store::Entry]| {
        for entry in entries.iter().filter(|entry| run.holds(clock.time_of(entry))) {
            let walked = by_row.entry(entry.origin).or_default();
            if walked.members.appended == 0 {
                walked.begin = entry.origin_seq;
            }
            walked.members.see(entry.origin_seq);
        }
    };
    for (from, to) in spans {
        reader.walk(*from.max(&bounds.first), *to.min(&bounds.count), &mut see).map_err(fault)?;
    }
    if has_gaps || by_row.values().any(|walked| walked.members.has_holes()) {
        let mut see = |entries: &[store::Entry]| {
            for entry in entries {
                let (time, number) = (clock.time_of(entry), entry.origin_seq);
                if run.holds(time) {
                    continue;
                }
                let walked = by_row.entry(entry.origin).or_default();
                walked.elsewhere += walked.members.take(number, number, 1);
                let Beside { before, after } = &mut walked.beside;
                match time < run.start {
                    true => *before = (*before).max(number.saturating_add(1)),
                    false => *after = Some(after.map_or(number, |after| after.min(number))),
                }
            }
        };
        let mut from = spans.iter().map(|span| span.0).min().unwrap_or(0).saturating_sub(MARGIN).max(bounds.first);
        for (_, to) in spans {
            reader.walk(from, *to.min(&bounds.count), &mut see).map_err(fault)?;
            from = from.max(*to);
        }
    }
    let names = reader.origins().map_err(fault)?;
    Ok(by_row
        .into_iter()
        .map(|(row, walked)| (names.get(row as usize).cloned().unwrap_or_else(|| format!("#{row}")), walked))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The same account by one set of all missing numbers.
    #[derive(Default)]
    struct Model {
        span: Option<(u64, u64)>,
        missing: BTreeSet<u64>,
        appended: u64,
        duplicate: u64,
        taken: u64,
    }

    impl Model {
        fn see(&mut self, number: u64) {
            self.appended += 1;
            let (first, next) = *self.span.get_or_insert((number, number));
            if number >= next {
                self.missing.extend(next..number);
                self.span = Some((first, number + 1));
            } else if number < first {
                self.missing.extend(number + 1..first);
                self.span = Some((number, next));
            } else if !self.missing.remove(&number) {
                self.duplicate += 1;
            }
        }

        /// The highest numbers are explained first.
        fn take(&mut self, first: u64, last: u64, most: u64) -> u64 {
            let most = usize::try_from(most).unwrap();
            let taken: Vec<u64> = self.missing.range(first..=last).rev().take(most).copied().collect();
            self.missing.retain(|number| !taken.contains(number));
            self.taken += taken.len() as u64;
            taken.len() as u64
        }
    }

    fn dice(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut state = seed;
        move |below| store::splitmix64(&mut state) % below
    }

    /// Numbers forward, backward, twice and far ahead, from `low` on, and explanations of any range, against [`Model`].
    fn compare(seed: u64, low: u64) -> Model {
        let (mut dice, mut numbers, mut model) = (dice(seed), Numbers::default(), Model::default());
        let (width, jump) = (1 + dice(300), 1 + dice(40));
        let mut newest = low + dice(1000);
        for step in 0..dice(400) {
            match dice(10) {
                0..4 => newest += 1,
                4 => newest += dice(jump),
                5 => {
                    let (first, most) = (low + dice(newest - low + 2), dice(20));
                    let last = first + dice(width);
                    let taken = model.take(first, last, most);
                    assert_eq!(numbers.take(first, last, most), taken, "seed {seed}, step {step}");
                }
                _ => {}
            }
            let number = if dice(2) == 0 { newest } else { newest.saturating_sub(dice(width)).max(low) };
            numbers.see(number);
            model.see(number);
            let held: Vec<u64> = numbers.holes.iter().flat_map(|(first, last)| *first..=*last).collect();
            assert!(held.iter().eq(&model.missing), "seed {seed}, step {step}: {:?}", numbers.holes);
            assert_eq!(numbers.first.zip(Some(numbers.next)), model.span, "seed {seed}, step {step}");
            let counts = (numbers.appended, numbers.duplicate, numbers.folded);
            assert_eq!(counts, (model.appended, model.duplicate, 0), "seed {seed}, step {step}");
            assert_eq!(numbers.has_holes(), !model.missing.is_empty());
        }
        if let Some((first, next)) = model.span {
            let missing = model.missing.len() as u64 + model.taken;
            assert_eq!(next - first + numbers.duplicate, numbers.appended + missing, "seed {seed}");
        }
        model
    }

    #[test]
    fn holes_are_the_numbers_that_a_set_lacks() {
        let (mut taken, mut duplicate, mut missing) = (0, 0, 0);
        for seed in 0..400 {
            // Numbers from 0, and those just below the largest.
            let low = if seed % 2 == 0 { 0 } else { u64::MAX - 50_000 };
            let model = compare(seed, low);
            (taken, duplicate) = (taken + model.taken, duplicate + model.duplicate);
            missing += model.missing.len();
        }
        assert!(taken > 1000 && duplicate > 1000 && missing > 1000, "{taken} {duplicate} {missing}");
    }

    #[test]
    fn folded_holes_are_counted_and_explained_once() {
        let mut numbers = Numbers::default();
        let mut dice = dice(3);
        let mut missing = 0;
        let mut number = 0;
        for _ in 0..HOLES_MAX + 50_000 {
            numbers.see(number);
            let hole = 1 + dice(5);
            missing += hole;
            number += hole + 1;
        }
        numbers.see(number);
        let held = |numbers: &Numbers| numbers.holes.iter().map(|(first, last)| last - first + 1).sum::<u64>();
        assert!(numbers.holes.len() == HOLES_MAX && numbers.folded > 0);
        assert_eq!(numbers.folded + held(&numbers), missing);
        // A range above all that was folded explains held holes alone.
        let folded = numbers.folded;
        let above = numbers.take(numbers.folded_below, number, 1000);
        assert_eq!((above, numbers.folded), (1000, folded));
        // Of all that is left, held holes are explained first.
        let before = held(&numbers);
        assert_eq!(numbers.take(0, number, before), before);
        assert_eq!((held(&numbers), numbers.folded), (0, folded));
        let rest = numbers.take(0, number, u64::MAX);
        assert_eq!((rest, above + before + rest), (folded, missing));
        assert!(!numbers.has_holes() && numbers.duplicate == 0);
    }
}
