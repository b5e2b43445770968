//! The account of one origin, in bounded memory, while its messages arrive.
//!
//! Numbers may be late by up to 4,096 below the highest one: for each number in this window the tally knows whether it
//! arrived or why it is missing (one byte each). Below the window there are only counts, and missing numbers stay
//! missing. The same code counts at the entry of a stream and in the ledger, so counting can continue from a committed
//! total.
//!
//! Invariant: `next - first + duplicate = appended + the sum of lost and skipped`.

use crate::limits::{REASONS_MAX, REORDER_WINDOW};
use std::ops::RangeInclusive;
use wire::bpcm::{Count, Open, Total};

/// The word for missing numbers that no gap explains.
pub(crate) const UNEXPLAINED: &str = "lost.unexplained";
/// The word for reasons beyond [`REASONS_MAX`].
const OTHER: &str = "lost.other";
/// State of a number in the window that came, or that was never counted.
const HERE: u8 = 0;
const WINDOW: usize = REORDER_WINDOW as usize;

/// The word under which a reason is counted: one without a prefix is `lost`.
pub(crate) fn word_of(reason: &str) -> String {
    let has_prefix = ["lost.", "skipped.", "refused."].iter().any(|prefix| reason.starts_with(prefix));
    if has_prefix { reason.to_owned() } else { format!("lost.{reason}") }
}

/// Numbers that were counted as missing: how many of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missed {
    /// First of them.
    pub(crate) first: u64,
    /// Last of them.
    pub(crate) last: u64,
    /// How many.
    pub(crate) count: u64,
}

impl Missed {
    /// Whether all numbers of the range are missing.
    pub(crate) fn is_listed(&self) -> bool {
        self.count == self.last - self.first + 1
    }
}

/// The account of one origin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Lowest number.
    pub(crate) first: u64,
    /// One past the highest; `first` where no number was seen.
    pub(crate) next: u64,
    /// Source time of the newest message, ns since 1970 UTC.
    pub(crate) last_time: i64,
    /// Messages in the stream.
    pub(crate) appended: u64,
    /// Numbers that came more than once.
    pub(crate) duplicate: u64,
    /// Missing numbers and refused messages by their full word. A number in the window has the index of its word + 1.
    counts: Vec<(String, u64)>,
    /// States of the numbers `next - WINDOW` to `next - 1`, each in the place of its remainder; none while all are
    /// [`HERE`].
    window: Option<Box<[u8]>>,
    /// Numbers in the window that are missing.
    missing: u32,
}

impl Tally {
    /// The messages that are counted under this word.
    pub(crate) fn count(&self, word: &str) -> u64 {
        self.counts.iter().find(|count| count.0 == word).map_or(0, |count| count.1)
    }

    /// All words and their counts.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&str, u64)> {
        self.counts.iter().filter(|count| count.1 > 0).map(|(word, n)| (word.as_str(), *n))
    }

    /// Numbers that were sent, as far as is known.
    pub(crate) fn sent(&self) -> u64 {
        self.next - self.first
    }

    /// Whether `sent + duplicate = appended + skipped + lost`, the equation of the ledger at the entry.
    pub(crate) fn is_balanced(&self) -> bool {
        let missing = self.counts().filter(|(word, _)| !word.starts_with("refused.")).map(|(_, n)| u128::from(n));
        u128::from(self.sent()) + u128::from(self.duplicate) == u128::from(self.appended) + missing.sum::<u128>()
    }

    /// Whether a number lies further below the highest one than messages come late.
    pub(crate) fn falls(&self, number: u64) -> bool {
        self.next > self.first && number < self.next.saturating_sub(REORDER_WINDOW)
    }

    /// Counts a message that was appended.
    pub(crate) fn see(&mut self, number: u64, time: i64) {
        self.appended += 1;
        self.last_time = time;
        if number == u64::MAX {
            // There is none past it: it counts as there twice.
            self.duplicate += 1;
        } else if self.next == self.first {
            (self.first, self.next) = (number, number + 1);
        } else if number >= self.next {
            if number > self.next {
                self.miss(number - self.next, UNEXPLAINED);
            }
            self.advance(1, HERE);
        } else if number < self.first {
            self.set_below(number + 1..=self.first - 1, UNEXPLAINED);
            self.first = number;
        } else {
            self.see_late(number);
        }
    }

    /// Counts messages of the next `n` numbers that were appended and that retention has taken since.
    pub(crate) fn see_retired(&mut self, n: u64) {
        self.appended += n;
        self.advance(n, HERE);
    }

    /// Counts messages that have no number.
    pub(crate) fn add(&mut self, word: &str, n: u64) {
        let code = self.code(word);
        self.raise(code, n);
    }

    /// Counts numbers as missing for this reason: those that neither came nor are counted under another word.
    pub(crate) fn lose(&mut self, numbers: RangeInclusive<u64>, reason: &str) -> Option<Missed> {
        let word = word_of(reason);
        let (low, high) = (*numbers.start(), (*numbers.end()).min(u64::MAX - 1));
        if low > high {
            return None;
        }
        let mut missed: Option<Missed> = None;
        let mut note = |first: u64, last: u64, count: u64| match &mut missed {
            None => missed = Some(Missed { first, last, count }),
            Some(missed) => (missed.last, missed.count) = (last, missed.count + count),
        };
        if self.next == self.first {
            (self.first, self.next) = (low, low);
        }
        let (first, next) = (self.first, self.next);
        if low < first {
            let last = high.min(first - 1);
            if last + 1 < first {
                self.set_below(last + 1..=first - 1, UNEXPLAINED);
            }
            self.set_below(low..=last, &word);
            self.first = low;
            note(low, last, last - low + 1);
        }
        for number in low.max(first).max(next.saturating_sub(REORDER_WINDOW))..next.min(high + 1) {
            if self.explain(number, &word) {
                note(number, number, 1);
            }
        }
        if high >= next {
            if low > next {
                self.miss(low - next, UNEXPLAINED);
            }
            let from = self.next;
            self.miss(high + 1 - from, &word);
            note(from, high, high + 1 - from);
        }
        missed
    }

    /// Counts `count` of these numbers as missing for this reason, where nobody knows any more which: those of the
    /// window that nothing else explains, newest first, and then older ones.
    pub(crate) fn lose_some(&mut self, numbers: RangeInclusive<u64>, count: u64, reason: &str) {
        let word = word_of(reason);
        let (low, high) = (*numbers.start(), (*numbers.end()).min(u64::MAX - 1));
        if self.next == self.first {
            (self.first, self.next) = (low, low);
        }
        if high >= self.next {
            self.miss(high + 1 - self.next, UNEXPLAINED);
        }
        let mut left = count;
        for number in (low.max(self.first).max(self.next.saturating_sub(REORDER_WINDOW))..=high).rev() {
            if left == 0 {
                return;
            }
            left -= u64::from(self.explain(number, &word));
        }
        // Not more than there are below the window.
        let unexplained = self.code(UNEXPLAINED);
        let states = self.window.iter().flat_map(|window| window.iter());
        let inside = states.filter(|state| **state == unexplained).count() as u64;
        let moved = left.min(self.count(UNEXPLAINED) - inside);
        if moved > 0 {
            self.counts[unexplained as usize - 1].1 -= moved;
            self.add(&word, moved);
        }
    }

    /// A number below the highest: it is there twice, or it was missing until now.
    fn see_late(&mut self, number: u64) {
        let at = number as usize % WINDOW;
        match &mut self.window {
            Some(window) if self.next - number <= REORDER_WINDOW && window[at] != HERE => {
                self.counts[window[at] as usize - 1].1 -= 1;
                window[at] = HERE;
                self.found();
            }
            _ => self.duplicate += 1,
        }
    }

    /// Gives a number of the window that nothing explains a reason. False if it came, or has one.
    fn explain(&mut self, number: u64, word: &str) -> bool {
        let at = number as usize % WINDOW;
        let Some(state) = self.window.as_ref().map(|window| window[at]).filter(|state| *state != HERE) else {
            return false;
        };
        if self.counts[state as usize - 1].0 != UNEXPLAINED || word == UNEXPLAINED {
            return false;
        }
        let code = self.code(word);
        self.counts[state as usize - 1].1 -= 1;
        self.counts[code as usize - 1].1 += 1;
        if let Some(window) = &mut self.window {
            window[at] = code;
        }
        true
    }

    /// Adds to a count, at most up to `u64::MAX`: numbers from outside may leave gaps as large as they like.
    fn raise(&mut self, code: u8, n: u64) {
        let count = &mut self.counts[code as usize - 1].1;
        *count = count.saturating_add(n);
    }

    /// Counts the next `n` numbers as missing.
    fn miss(&mut self, n: u64, word: &str) {
        let code = self.code(word);
        self.raise(code, n);
        self.advance(n, code);
    }

    /// Counts numbers below the first one as missing.
    fn set_below(&mut self, numbers: RangeInclusive<u64>, word: &str) {
        if numbers.is_empty() {
            return;
        }
        let (low, high) = numbers.into_inner();
        let code = self.code(word);
        self.raise(code, (high - low).saturating_add(1));
        for number in low.max(self.next.saturating_sub(REORDER_WINDOW))..=high {
            self.set(number, code);
        }
    }

    /// Moves the window on over numbers of one state.
    fn advance(&mut self, n: u64, code: u8) {
        if code != HERE || self.window.is_some() {
            let end = self.next + n;
            for number in end - n.min(REORDER_WINDOW)..end {
                self.set(number, code);
            }
        }
        self.next += n;
    }

    fn set(&mut self, number: u64, code: u8) {
        let window = self.window.get_or_insert_with(|| vec![HERE; WINDOW].into());
        let state = &mut window[number as usize % WINDOW];
        self.missing += u32::from(code != HERE);
        if std::mem::replace(state, code) != HERE {
            self.found();
        }
    }

    /// One number less is missing in the window.
    fn found(&mut self) {
        self.missing -= 1;
        if self.missing == 0 {
            self.window = None;
        }
    }

    /// The state of numbers with this word.
    fn code(&mut self, word: &str) -> u8 {
        let at = self.counts.iter().position(|count| count.0 == word).unwrap_or_else(|| {
            if self.counts.len() >= REASONS_MAX && word != OTHER && word != UNEXPLAINED {
                return usize::from(self.code(OTHER)) - 1;
            }
            self.counts.push((word.to_owned(), 0));
            self.counts.len() - 1
        });
        at as u8 + 1
    }

    /// About how many bytes it takes in a commit, beside its name.
    pub(crate) fn bytes(&self) -> u64 {
        let window = if self.window.is_some() { 1 + self.counts.len() as u64 } else { 0 };
        90 + 60 * self.counts.len() as u64 + window * (REORDER_WINDOW / 8)
    }

    /// The numbers of the window that are missing, by word: bit 0 is `next - 1`.
    pub(crate) fn open(&self) -> Vec<(&str, Vec<u8>)> {
        let Some(window) = &self.window else { return Vec::new() };
        let mut open: Vec<(&str, Vec<u8>)> = Vec::new();
        let mut of_code = vec![usize::MAX; self.counts.len() + 1];
        for back in 0..REORDER_WINDOW.min(self.next - self.first) {
            let state = window[(self.next - 1 - back) as usize % WINDOW] as usize;
            if state == usize::from(HERE) {
                continue;
            }
            if of_code[state] == usize::MAX {
                of_code[state] = open.len();
                open.push((self.counts[state - 1].0.as_str(), Vec::new()));
            }
            let bits = &mut open[of_code[state]].1;
            bits.resize(back as usize / 8 + 1, 0);
            bits[back as usize / 8] |= 1 << (back % 8);
        }
        open
    }

    /// As a total says. Numbers that it cannot mean are left out.
    pub(crate) fn read(total: &Total<'_>) -> Self {
        let mut tally = Self {
            first: total.first,
            next: total.next.max(total.first),
            last_time: total.last_time,
            appended: total.appended,
            duplicate: total.duplicate,
            ..Self::default()
        };
        for Count { name, value } in total.counts.iter() {
            let code = tally.code(name);
            let count = &mut tally.counts[code as usize - 1].1;
            *count = count.saturating_add(*value);
        }
        for Open { reason, bits } in total.open.iter() {
            let code = tally.code(reason);
            let mut left = tally.counts[code as usize - 1].1;
            for (at, byte) in bits.iter().enumerate().take(WINDOW / 8) {
                for bit in (0..8).filter(|bit| byte >> bit & 1 == 1) {
                    let back = 8 * at as u64 + bit;
                    if left > 0 && back < tally.next - tally.first {
                        tally.set(tally.next - 1 - back, code);
                        left -= 1;
                    }
                }
            }
        }
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn counted(tally: &Tally) -> u64 {
        tally.counts().filter(|(word, _)| !word.starts_with("refused.")).map(|(_, n)| n).sum()
    }

    fn closes(tally: &Tally) {
        let sides = [[tally.sent(), tally.duplicate], [tally.appended, counted(tally)]];
        let [sent, known] = sides.map(|side| side.into_iter().map(u128::from).sum::<u128>());
        assert_eq!(sent, known, "{tally:?}");
    }

    fn again(tally: &Tally) -> Tally {
        let counts: Vec<Count<'_>> = tally.counts().map(|(name, value)| Count { name, value }).collect();
        let open = tally.open();
        let open: Vec<Open<'_>> =
            open.iter().map(|(reason, bits)| Open { reason, bits: bits.as_slice().into() }).collect();
        Tally::read(&Total {
            origin: "",
            first: tally.first,
            next: tally.next,
            last_time: tally.last_time,
            appended: tally.appended,
            duplicate: tally.duplicate,
            counts: counts.as_slice().into(),
            open: open.as_slice().into(),
        })
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let mut tally = Tally::default();
        for number in [u64::MAX - 1, u64::MAX, u64::MAX, 0] {
            tally.see(number, 0);
            closes(&tally);
        }
        tally.lose(0..=u64::MAX, "network");
        tally.lose(u64::MAX..=u64::MAX, "network");
        closes(&tally);
    }

    #[test]
    fn words_beyond_the_limit_are_counted_as_other() {
        let mut tally = Tally::default();
        for n in 0..1000 {
            tally.lose(n..=n, &format!("reason{n}"));
        }
        closes(&tally);
        assert!(tally.counts().count() <= REASONS_MAX + 2);
        assert_eq!(tally.count(OTHER), 1000 - REASONS_MAX as u64);
    }

    /// Numbers in any order within the window, with reasons, against sets of numbers; through bytes and back now and
    /// then.
    #[test]
    fn a_tally_says_what_sets_of_numbers_say() {
        let mut word = 7_u64;
        let mut dice = move |n: u64| {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (word >> 33) % n
        };
        let mut late = 0;
        for _ in 0..300 {
            let mut tally = Tally::default();
            let (mut came, mut lost) = (BTreeSet::new(), [BTreeSet::new(), BTreeSet::new()]);
            let (mut messages, mut high) = (0, dice(5000));
            for _ in 0..dice(4000) {
                let number = if dice(3) == 0 { high.saturating_sub(dice(40)) } else { high + 1 + dice(8) / 6 };
                if dice(9) == 0 {
                    let (at, last) = (dice(2) as usize, number + dice(5));
                    let new: Vec<u64> = (number..=last)
                        .filter(|n| !came.contains(n) && lost.iter().all(|of: &BTreeSet<u64>| !of.contains(n)))
                        .collect();
                    let missed = tally.lose(number..=last, ["network", "skipped.slow"][at]);
                    assert_eq!(missed.map_or(0, |m| m.count), new.len() as u64);
                    assert_eq!(missed.map(|m| (m.first, m.last)), new.first().map(|n| (*n, new[new.len() - 1])));
                    lost[at].extend(new);
                    high = high.max(last);
                } else {
                    tally.see(number, 0);
                    lost.iter_mut().for_each(|of| late += u64::from(of.remove(&number)));
                    came.insert(number);
                    messages += 1;
                    high = high.max(number);
                }
                if dice(50) == 0 {
                    let read = again(&tally);
                    assert_eq!(again(&read), read);
                    tally = read;
                }
            }
            closes(&tally);
            let all = came.iter().chain(lost.iter().flatten());
            let (low, high) = (all.clone().min().copied(), all.max().copied());
            let Some((low, high)) = low.zip(high) else { continue };
            assert_eq!((tally.first, tally.next), (low, high + 1));
            assert_eq!((tally.appended, tally.duplicate), (messages, messages - came.len() as u64));
            let of = ["lost.network", "skipped.slow"].map(|word| tally.count(word));
            assert_eq!(of, [lost[0].len() as u64, lost[1].len() as u64]);
        }
        assert!(late > 100, "{late}");
    }

    #[test]
    fn half_of_all_numbers_lost_is_counted_in_a_window() {
        let mut tally = Tally::default();
        for n in 0..200_000 {
            tally.see(2 * n, 0);
            tally.lose(2 * n + 1..=2 * n + 1, "network");
        }
        closes(&tally);
        assert_eq!((tally.sent(), tally.count("lost.network")), (400_000, 200_000));
        assert!(tally.falls(400_000 - REORDER_WINDOW - 1) && !tally.falls(400_000 - REORDER_WINDOW));
        assert!(tally.bytes() < 2000);
    }
}
