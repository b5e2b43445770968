//! The numbers of a board: which have come, which are missing and why, and whether the board has restarted.
//!
//! Numbers are those of the datagrams. A number that is skipped opens a hole. A hole is filed as lost after the reorder
//! time; a late datagram fills it before. Which cause a lost number is given follows from counts: first as many as the
//! kernel dropped at the socket, then as many as damaged datagrams came, then the network.
//!
//! A number far ahead of the highest one is not believed before the next one continues it: a single datagram, of a
//! fault in a board or of a stranger, would otherwise be counted as the loss of any number of messages. Where no
//! checksum covers numbers, the same goes for one that looks like a restart. The caller keeps the datagram until then.
//!
//! Constraints: memory is bounded: a mark of 4 bytes for each of the last 65,536 numbers, and holes among the last
//! 4,096 alone, because the account of the stream (`flow`) accepts numbers that are late by that much. Older holes are
//! filed at once. No clock: the caller passes the time.

use crate::limits::{AHEAD, AHEAD_UNCHECKED, NUMBERS, WINDOW};
use std::collections::VecDeque;
use std::ops::Range;

/// The kind of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// A message to be appended: the next one, one beyond a hole, or one that fills a hole.
    New,
    /// The same datagram came before.
    Duplicate,
    /// It is so late that its hole is closed.
    Late,
    /// It is not believed yet: the next one says whether it is ([`Numbers::verdict`]).
    Doubt,
    /// The board counts from the beginning again.
    Restart,
}

/// Why numbers are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The kernel dropped them at the socket, which was full.
    Kernel,
    /// They came damaged, or with a number that was not believed.
    Damaged,
    /// They never came.
    Network,
    /// They were sent while no receiver listened.
    Absent,
}

impl Cause {
    /// The reason in the ledger.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Damaged => "damaged",
            Self::Network => "network",
            Self::Absent => "absent",
        }
    }
}

/// Numbers that are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// The numbers.
    pub(crate) numbers: Range<u64>,
    /// Source times of the messages before and behind them, ns since 1970 UTC.
    pub(crate) times: (i64, i64),
    /// Why.
    pub(crate) cause: Cause,
}

/// How a board counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// Where it begins again; `None`: never.
    pub wrap: Option<u64>,
    /// A checksum covers it.
    pub is_checked: bool,
}

/// A hole that is not filed yet.
#[derive(Clone, Debug)]
struct Hole {
    numbers: Range<u64>,
    times: (i64, i64),
    /// When it was seen, ns.
    since: i64,
    is_absent: bool,
}

/// Datagrams that did not become messages, as far as its counts have not become causes of holes.
///
/// What it counted and no hole followed was no message of the board: it expires once later numbers have come.
#[derive(Debug, Default)]
struct Unnumbered {
    total: u64,
    /// Counts that became causes, or expired.
    used: u64,
    /// Of these causes, those that no other numbering of the board knows of.
    new: u64,
    /// The total at some time, and the next number then: it expires when numbers have come for the reorder time.
    mark: Option<(u64, i64, u64)>,
}

impl Unnumbered {
    /// Takes up to `n` counts.
    fn take(&mut self, n: u64) -> u64 {
        let taken = n.min(self.total - self.used);
        self.used += taken;
        self.new += taken;
        taken
    }

    /// Lets counts expire that no hole has followed. It is called when the socket is empty, so that what is counted is
    /// older than all that comes later. `next`: the next number.
    fn expire(&mut self, now: i64, next: u64, reorder: i64) {
        match self.mark {
            Some((total, at, then)) if now.saturating_sub(at) >= reorder && next > then => {
                self.used = self.used.max(total);
                self.mark = None;
            }
            Some(_) => {}
            None if self.total > self.used => self.mark = Some((self.total, now, next)),
            None => {}
        }
    }
}

/// The numbers of one board.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// One past the highest number; none before the first datagram.
    next: Option<u64>,
    /// Lower numbers belong to an earlier life.
    floor: u64,
    /// Lowest number that is known to have been sent.
    first: u64,
    /// Of each of the last numbers, in the place of its remainder: 0 where it has not come, otherwise the checksum of
    /// its header.
    marks: Box<[u32]>,
    /// In the order of the numbers.
    holes: VecDeque<Hole>,
    kernel: Unnumbered,
    damaged: Unnumbered,
    /// Number and mark of the message before, if it was not believed.
    doubted: Option<(u64, u32)>,
    /// Whether the last number has continued one that was not believed.
    verdict: Option<bool>,
    /// A checksum covers numbers.
    is_checked: bool,
    /// Where the counter of the board begins again.
    wrap: Option<u64>,
    /// Time of the message with the highest number, ns since 1970 UTC.
    last_time: i64,
    /// The next number is the first since the receiver started.
    is_resumed: bool,
    /// ns
    reorder: i64,
}

impl Numbers {
    /// Of a board of which messages below `next` are in the stream. `reorder`: how long datagrams may be late, ns.
    pub(crate) fn new(next: Option<u64>, last_time: i64, reorder: i64, counter: Counter) -> Self {
        let floor = next.unwrap_or(0);
        Self {
            next,
            floor,
            first: floor,
            marks: vec![0; NUMBERS].into(),
            holes: VecDeque::new(),
            kernel: Unnumbered::default(),
            damaged: Unnumbered::default(),
            doubted: None,
            verdict: None,
            is_checked: counter.is_checked,
            wrap: counter.wrap,
            last_time,
            is_resumed: next.is_some(),
            reorder,
        }
    }

    /// Forgets the numbers of the life that has ended.
    pub(crate) fn restart(&mut self) {
        self.marks.fill(0);
        self.holes.clear();
        self.doubted = None;
        (self.next, self.floor, self.first, self.is_resumed) = (None, 0, 0, false);
    }

    /// One past the highest number.
    pub(crate) fn next(&self) -> Option<u64> {
        self.next
    }

    /// The number of a message of a board that gives none.
    pub(crate) fn count(&mut self) -> u64 {
        let number = self.next.unwrap_or(0);
        self.next = Some(number.saturating_add(1));
        number
    }

    /// The highest number.
    pub(crate) fn last(&self) -> Option<u64> {
        self.next.and_then(|next| next.checked_sub(1))
    }

    /// What became of a number that was not believed, once after the one behind it: whether that one has continued it.
    /// The message is then to be taken again, or refused.
    pub(crate) fn verdict(&mut self) -> Option<bool> {
        self.verdict.take()
    }

    /// No number comes that could continue one that is not believed. Whether there was one.
    pub(crate) fn dismiss(&mut self) -> bool {
        let was_doubted = self.doubted.take().is_some();
        self.damaged.total += u64::from(was_doubted);
        was_doubted
    }

    /// The kind of the number of a message. `mark`: the checksum of its header, by which a datagram that came twice is
    /// told from one of a board that has restarted. `time`: its source time. Before a number for which the answer is
    /// `New` is appended, [`Self::closes`] says whether holes have to be filed.
    pub(crate) fn take(&mut self, number: u64, mark: u32, time: i64, now: i64) -> Sign {
        let mark = mark.max(1);
        if self.doubted == Some((number, mark)) {
            return Sign::Duplicate;
        }
        let confirms = self.confirms(number);
        let sign = match self.next {
            // A life that the doubted one began.
            Some(next) if confirms && self.doubted.is_some_and(|(doubted, _)| !self.is_jump(doubted, next)) => {
                Sign::Restart
            }
            _ => self.judge(number, mark, time, now, confirms),
        };
        self.conclude(confirms);
        if sign == Sign::Doubt {
            self.doubted = Some((number, mark));
        }
        sign
    }

    /// Whether a number is that of a message behind a loss, and not of another life: it fits the width of the counter.
    fn is_jump(&self, number: u64, next: u64) -> bool {
        number >= next && self.wrap.is_none_or(|wrap| number - next < wrap / 256)
    }

    /// Whether a number continues the one that was not believed, rather than the highest one.
    fn confirms(&self, number: u64) -> bool {
        let Some(((doubted, _), next)) = self.doubted.zip(self.next) else { return false };
        let distance = number.abs_diff(doubted.saturating_add(1));
        number != doubted && distance < NUMBERS as u64 && distance < number.abs_diff(next)
    }

    fn conclude(&mut self, confirms: bool) {
        if self.doubted.take().is_some() {
            self.verdict = Some(confirms);
            self.damaged.total += u64::from(!confirms);
        }
    }

    fn judge(&mut self, number: u64, mark: u32, time: i64, now: i64, is_believed: bool) -> Sign {
        let at = number as usize % NUMBERS;
        let Some(next) = self.next else {
            (self.first, self.floor) = (number, 0);
            self.next = Some(number.saturating_add(1));
            (self.marks[at], self.last_time) = (mark, time);
            return Sign::New;
        };
        let restart = if self.is_checked { Sign::Restart } else { Sign::Doubt };
        if number >= next {
            if number - next >= self.ahead() && !is_believed {
                return Sign::Doubt;
            }
            self.open(next..number, time, now);
            self.forget(next..number);
            self.marks[at] = mark;
            (self.next, self.last_time) = (Some(number.saturating_add(1)), time);
            return Sign::New;
        }
        if number < self.floor || next - number > NUMBERS as u64 {
            return restart;
        }
        match self.marks[at] {
            0 if next - number > WINDOW => Sign::Late,
            0 if self.first.saturating_sub(number) >= self.ahead() => restart,
            0 => {
                self.fill(number, time, now);
                self.marks[at] = mark;
                Sign::New
            }
            known if known == mark => Sign::Duplicate,
            _ => restart,
        }
    }

    /// A number is not believed from so far ahead of the highest one on.
    fn ahead(&self) -> u64 {
        if self.is_checked { AHEAD } else { AHEAD_UNCHECKED }
    }

    /// The board says that its next message has this number, at this time.
    pub(crate) fn announce(&mut self, number: u64, time: i64, now: i64) -> Sign {
        let Some(next) = self.next else {
            (self.next, self.first, self.floor, self.last_time) = (Some(number), number, 0, time);
            return Sign::New;
        };
        if number < next {
            // A late announcement is older than the newest message.
            return if time > self.last_time { Sign::Restart } else { Sign::Late };
        }
        let confirms = self.confirms(number);
        if number - next >= self.ahead() && !confirms {
            // The next datagram says more.
            return Sign::Doubt;
        }
        if confirms {
            self.conclude(true);
        }
        self.open(next..number, time, now);
        self.forget(next..number);
        self.next = Some(number);
        Sign::New
    }

    /// A damaged datagram came: perhaps one of the missing ones.
    pub(crate) fn damage(&mut self) {
        self.damaged.total += 1;
    }

    /// The kernel has dropped this many more datagrams.
    pub(crate) fn drop_in_kernel(&mut self, n: u64) {
        self.kernel.total += n;
    }

    /// Counts of the kernel and of damaged datagrams that became causes since the last call.
    pub(crate) fn spent(&mut self) -> [u64; 2] {
        [&mut self.kernel, &mut self.damaged].map(|counter| std::mem::take(&mut counter.new))
    }

    /// These counts became causes in another numbering of the board.
    pub(crate) fn spend(&mut self, [kernel, damaged]: [u64; 2]) {
        self.kernel.used = self.kernel.total.min(self.kernel.used.saturating_add(kernel));
        self.damaged.used = self.damaged.total.min(self.damaged.used.saturating_add(damaged));
    }

    /// When the first hole is to be filed, ns; `None` where there is none.
    pub(crate) fn due(&self) -> Option<i64> {
        self.holes.front().map(|hole| hole.since.saturating_add(self.reorder))
    }

    /// Source time of the message before the first hole, ns since 1970 UTC: later ones may still come.
    pub(crate) fn complete_to(&self) -> Option<i64> {
        self.holes.front().map(|hole| hole.times.0)
    }

    /// Whether there are holes that the account can fill no more once the highest number is appended.
    pub(crate) fn closes(&self) -> bool {
        self.holes.front().is_some_and(|hole| hole.numbers.start < self.lowest())
    }

    /// Files those holes, and some of those behind them, so that this is not done for each message. The account
    /// corrects a hole that is filled later.
    pub(crate) fn close(&mut self, lost: &mut Vec<Lost>) {
        let lowest = self.lowest().saturating_add(WINDOW / 4);
        while let Some(front) = self.holes.front_mut().filter(|hole| hole.numbers.start < lowest) {
            let mut part = front.clone();
            part.numbers.end = part.numbers.end.min(lowest);
            front.numbers.start = part.numbers.end;
            if front.numbers.is_empty() {
                self.holes.pop_front();
            }
            self.explain(part, lost);
        }
    }

    /// Lower numbers are too late for the account.
    fn lowest(&self) -> u64 {
        self.next.unwrap_or(0).saturating_sub(WINDOW)
    }

    /// Files holes for which the reorder time is over. `is_drained`: all that had arrived was taken.
    pub(crate) fn find_lost(&mut self, now: i64, is_drained: bool, lost: &mut Vec<Lost>) {
        while self.due().is_some_and(|due| due <= now)
            && let Some(hole) = self.holes.pop_front()
        {
            self.explain(hole, lost);
        }
        if let (true, Some(next)) = (is_drained && self.holes.is_empty(), self.next) {
            self.kernel.expire(now, next, self.reorder);
            self.damaged.expire(now, next, self.reorder);
        }
    }

    fn open(&mut self, numbers: Range<u64>, time: i64, now: i64) {
        let is_absent = std::mem::take(&mut self.is_resumed);
        if !numbers.is_empty() {
            let times = (self.last_time, time);
            self.holes.push_back(Hole { numbers, times, since: now, is_absent });
        }
    }

    /// Numbers above the highest take the places of old ones.
    fn forget(&mut self, numbers: Range<u64>) {
        let low = numbers.start.max(numbers.end.saturating_sub(NUMBERS as u64));
        for number in low..numbers.end {
            self.marks[number as usize % NUMBERS] = 0;
        }
    }

    /// A number below the highest has come for the first time.
    fn fill(&mut self, number: u64, time: i64, now: i64) {
        if number < self.first {
            // It came before the first one that was seen, and so did those between.
            let numbers = number + 1..self.first;
            if !numbers.is_empty() {
                self.holes.push_front(Hole { numbers, times: (time, time), since: now, is_absent: false });
            }
            self.first = number;
            return;
        }
        let at = self.holes.partition_point(|hole| hole.numbers.end <= number);
        let Some(hole) = self.holes.get_mut(at).filter(|hole| hole.numbers.contains(&number)) else { return };
        let behind = number + 1..hole.numbers.end;
        hole.numbers.end = number;
        let rest = Hole { numbers: behind, ..hole.clone() };
        let is_empty = hole.numbers.is_empty();
        match (is_empty, rest.numbers.is_empty()) {
            (true, true) => drop(self.holes.remove(at)),
            (true, false) => self.holes[at] = rest,
            (false, true) => {}
            (false, false) => self.holes.insert(at + 1, rest),
        }
    }

    /// Gives the numbers of a hole their causes.
    fn explain(&mut self, hole: Hole, lost: &mut Vec<Lost>) {
        let Hole { mut numbers, times, is_absent, .. } = hole;
        let all = numbers.end - numbers.start;
        let mut name = |n: u64, cause: Cause| {
            if n > 0 {
                let first = numbers.start;
                numbers.start += n;
                lost.push(Lost { numbers: first..first + n, times, cause });
            }
        };
        if is_absent {
            return name(all, Cause::Absent);
        }
        let kernel = self.kernel.take(all);
        let damaged = self.damaged.take(all - kernel);
        name(kernel, Cause::Kernel);
        name(damaged, Cause::Damaged);
        name(all - kernel - damaged, Cause::Network);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Dice;

    const REORDER: i64 = 50;
    const CHECKED: Counter = Counter { wrap: None, is_checked: true };
    const PLAIN: Counter = Counter { wrap: Some(1 << 24), is_checked: false };

    fn lost_of(lost: &[Lost], cause: Cause) -> Vec<u64> {
        lost.iter().filter(|one| one.cause == cause).flat_map(|one| one.numbers.clone()).collect()
    }

    /// Takes a number, one unit of time after the one before.
    fn take(numbers: &mut Numbers, number: u64, now: i64, lost: &mut Vec<Lost>) -> Sign {
        let sign = numbers.take(number, (number as u32).wrapping_add(1), number as i64, now);
        if numbers.closes() {
            numbers.close(lost);
        }
        numbers.find_lost(now, true, lost);
        sign
    }

    #[test]
    fn a_late_number_fills_its_hole_until_the_hole_is_filed() {
        let (mut numbers, mut lost) = (Numbers::new(None, 0, REORDER, CHECKED), Vec::new());
        for (number, now) in [(0, 0), (4, 1), (2, 2)] {
            assert_eq!(take(&mut numbers, number, now, &mut lost), Sign::New);
        }
        assert_eq!((numbers.due(), lost.len()), (Some(51), 0));
        numbers.find_lost(51, true, &mut lost);
        assert_eq!(lost_of(&lost, Cause::Network), [1, 3]);
        assert_eq!(lost[1].times, (0, 4));
        // The account corrects a hole that was filed too early.
        assert_eq!(take(&mut numbers, 3, 60, &mut lost), Sign::New);
        assert_eq!(take(&mut numbers, 3, 61, &mut lost), Sign::Duplicate);
        assert_eq!(lost.len(), 2);
    }

    #[test]
    fn numbers_before_the_first_one_seen_are_holes_too() {
        let (mut numbers, mut lost) = (Numbers::new(None, 0, REORDER, CHECKED), Vec::new());
        for number in [5, 2, 6, 3] {
            assert_eq!(take(&mut numbers, number, 0, &mut lost), Sign::New);
        }
        numbers.find_lost(100, true, &mut lost);
        assert_eq!(lost_of(&lost, Cause::Network), [4]);
    }

    #[test]
    fn an_announced_number_shows_the_loss_before_it() {
        let (mut numbers, mut lost) = (Numbers::new(None, 0, REORDER, CHECKED), Vec::new());
        assert_eq!(numbers.announce(0, 0, 0), Sign::New);
        take(&mut numbers, 2, 0, &mut lost);
        assert_eq!(numbers.announce(5, 9, 0), Sign::New);
        assert_eq!(numbers.announce(5, 9, 0), Sign::New);
        // One that was late says nothing.
        assert_eq!(numbers.announce(2, 1, 0), Sign::Late);
        numbers.find_lost(100, true, &mut lost);
        assert_eq!(lost_of(&lost, Cause::Network), [0, 1, 3, 4]);
        assert_eq!(numbers.announce(0, 10, 0), Sign::Restart);
    }

    #[test]
    fn the_same_number_with_another_header_is_a_restart() {
        let mut numbers = Numbers::new(None, 0, REORDER, CHECKED);
        for number in 0..10 {
            assert_eq!(numbers.take(number, 1, 0, 0), Sign::New);
        }
        assert_eq!(numbers.take(3, 1, 0, 0), Sign::Duplicate);
        assert_eq!(numbers.take(3, 2, 0, 0), Sign::Restart);
        numbers.restart();
        assert_eq!((numbers.take(3, 2, 0, 0), numbers.next()), (Sign::New, Some(4)));
    }

    #[test]
    fn a_count_that_no_hole_follows_expires() {
        let (mut numbers, mut lost) = (Numbers::new(None, 0, REORDER, CHECKED), Vec::new());
        take(&mut numbers, 0, 0, &mut lost);
        // A datagram of somebody else.
        numbers.damage();
        numbers.find_lost(1, true, &mut lost);
        for number in 1..100 {
            take(&mut numbers, number, number as i64, &mut lost);
        }
        take(&mut numbers, 102, 102, &mut lost);
        numbers.drop_in_kernel(1);
        numbers.find_lost(1000, true, &mut lost);
        assert_eq!((lost_of(&lost, Cause::Kernel), lost_of(&lost, Cause::Damaged)), (vec![100], vec![]));
        assert_eq!(lost_of(&lost, Cause::Network), [101]);
    }

    #[test]
    fn a_count_explains_a_hole_in_one_numbering_alone() {
        let mut both = [Numbers::new(None, 0, REORDER, CHECKED), Numbers::new(None, 0, REORDER, CHECKED)];
        let mut lost = [Vec::new(), Vec::new()];
        for numbers in &mut both {
            numbers.take(0, 1, 0, 0);
            numbers.take(3, 1, 0, 0);
            numbers.drop_in_kernel(3);
            numbers.damage();
        }
        both[0].find_lost(100, true, &mut lost[0]);
        let spent = both[0].spent();
        both[1].spend(spent);
        both[1].find_lost(100, true, &mut lost[1]);
        let [first, second] = &lost;
        assert_eq!((spent, lost_of(first, Cause::Kernel)), ([2, 0], vec![1, 2]));
        assert_eq!((lost_of(second, Cause::Kernel), lost_of(second, Cause::Damaged)), (vec![1], vec![2]));
        assert_eq!((both[1].spent(), both[1].spent()), ([1, 1], [0, 0]));
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let (mut numbers, mut lost) = (Numbers::new(None, 0, REORDER, CHECKED), Vec::new());
        for number in [0, u64::MAX, u64::MAX - 1, u64::MAX, 1, u64::MAX] {
            take(&mut numbers, number, i64::MAX, &mut lost);
            numbers.announce(u64::MAX, i64::MAX, i64::MIN);
        }
        numbers.find_lost(i64::MAX, true, &mut lost);
    }

    /// What becomes of numbers: a message that is held is taken or refused with the next one.
    fn fates(numbers: &mut Numbers, all: &[(u64, Sign)]) -> (Vec<u64>, u64, Vec<Lost>) {
        let (mut taken, mut refused, mut lost, mut held) = (Vec::new(), 0, Vec::new(), None);
        for &(number, expected) in all {
            let sign = take(numbers, number, 0, &mut lost);
            assert_eq!(sign, expected, "{number}");
            let verdict = numbers.verdict();
            let before = verdict.and_then(|_| held.take());
            match sign {
                Sign::New => taken.push(number),
                Sign::Doubt => held = Some(number),
                Sign::Restart => {
                    numbers.find_lost(i64::MAX, false, &mut lost);
                    numbers.restart();
                    assert_eq!(take(numbers, number, 0, &mut lost), Sign::New);
                    taken.push(number);
                }
                Sign::Duplicate | Sign::Late => refused += 1,
            }
            match (before, verdict) {
                (Some(number), Some(true)) => {
                    assert_eq!(take(numbers, number, 0, &mut lost), Sign::New);
                    taken.push(number);
                }
                (Some(_), _) => refused += 1,
                (None, _) => {}
            }
        }
        refused += u64::from(numbers.dismiss());
        numbers.find_lost(i64::MAX, true, &mut lost);
        (taken, refused, lost)
    }

    #[test]
    fn a_number_far_ahead_is_believed_when_the_next_one_continues_it() {
        let (far, mut numbers) = (1 << 40, Numbers::new(None, 0, REORDER, CHECKED));
        let (taken, refused, lost) = fates(
            &mut numbers,
            &[
                (0, Sign::New),
                (far, Sign::Doubt),
                // The same datagram again is no confirmation, and neither is one that is far from it.
                (far, Sign::Duplicate),
                (2 * far, Sign::Doubt),
                (1, Sign::New),
                (AHEAD + 1, Sign::New),
                (far, Sign::Doubt),
                // Nothing is lost where it was right.
                (far + 2, Sign::New),
                (far + 1, Sign::New),
            ],
        );
        assert_eq!((taken, refused), (vec![0, 1, AHEAD + 1, far + 2, far, far + 1], 3));
        let of = |cause| lost.iter().filter(move |one| one.cause == cause);
        let sum = |cause| of(cause).map(|one| one.numbers.end - one.numbers.start).sum::<u64>();
        assert_eq!((sum(Cause::Damaged), sum(Cause::Network)), (2, far - 3 - 2));
        assert_eq!(numbers.next(), Some(far + 3));
    }

    #[test]
    fn a_flipped_bit_of_a_number_without_a_checksum_moves_nothing() {
        for bit in 0..24 {
            let (mut numbers, mut lost) = (Numbers::new(None, 0, REORDER, PLAIN), Vec::new());
            let (mut taken, mut held, mut restarts) = (Vec::new(), None, 0);
            for number in 100_000..110_000_u64 {
                let shown = if number == 105_000 { number ^ 1 << bit } else { number };
                // Each has a header of its own, whatever its number.
                let sign = numbers.take(shown, number as u32, number as i64, number as i64);
                let verdict = numbers.verdict();
                if let (Some(before), Some(true)) = (verdict.and_then(|_| held.take()), verdict) {
                    taken.push(before);
                }
                match sign {
                    Sign::New => taken.push(shown),
                    Sign::Doubt => held = Some(shown),
                    Sign::Restart => restarts += 1,
                    Sign::Duplicate | Sign::Late => {}
                }
                if numbers.closes() {
                    numbers.close(&mut lost);
                }
                numbers.find_lost(number as i64, true, &mut lost);
            }
            numbers.find_lost(i64::MAX, true, &mut lost);
            let missing = lost.iter().flat_map(|one| one.numbers.clone()).filter(|n| !taken.contains(n)).count();
            // Its own number is lost, and at most the one that it had in its place.
            assert!(restarts == 0 && missing <= 1 && taken.len() >= 9_998, "bit {bit}: {missing} {}", taken.len());
            assert_eq!(numbers.next(), Some(110_000), "bit {bit}");
        }
    }

    #[test]
    fn a_restart_without_a_checksum_is_believed_when_the_next_one_continues_it() {
        let mut numbers = Numbers::new(Some(9_000_000), 0, REORDER, PLAIN);
        // Switched on again, and once more before the counter was high: nothing of it is lost.
        let signs = [(0, Sign::Doubt), (1, Sign::Restart), (2, Sign::New), (3, Sign::New)];
        assert_eq!(fates(&mut numbers, &signs).0, [1, 0, 2, 3]);
        // Of 24 bits 0 looks like one far ahead: that is no loss of 6,777,216.
        let mut numbers = Numbers::new(Some(10_000_000), 0, REORDER, PLAIN);
        let ahead = 1 << 24;
        assert_eq!(numbers.take(ahead, 1, 0, 0), Sign::Doubt);
        assert_eq!((numbers.take(ahead + 1, 2, 0, 0), numbers.verdict()), (Sign::Restart, Some(true)));
        // A number that fits the width of the counter is.
        let mut numbers = Numbers::new(Some(10_000_000), 0, REORDER, PLAIN);
        let near = 10_060_000;
        let (taken, refused, lost) = fates(&mut numbers, &[(near, Sign::Doubt), (near + 1, Sign::New)]);
        assert_eq!((taken, refused), (vec![near + 1, near], 0));
        assert_eq!(lost_of(&lost, Cause::Absent).len(), 60_000);
    }

    /// Loss, duplicates, damage and reordering of any depth, against sets of numbers.
    #[test]
    fn each_number_is_new_once_or_lost_with_its_cause() {
        for seed in 0..60 {
            let mut dice = Dice::new(seed);
            let depth = dice.pick(&[1, 10, 200, 4000, 10_000]);
            let (loss, damage) = (dice.pick(&[2, 10, 1000]), dice.pick(&[5, 1000]));
            let total = 30_000_u64;
            // The arrivals, by the number before which each comes; `None` is a damaged datagram.
            let mut arrivals: Vec<(u64, Option<u64>)> = Vec::new();
            let mut truth = [0_u64; 2];
            for number in 0..total {
                if dice.one_in(loss) {
                    truth[0] += 1;
                } else if dice.one_in(damage) {
                    truth[1] += 1;
                    arrivals.push((number, None));
                } else {
                    for _ in 0..=u64::from(dice.one_in(10)) {
                        let late = if dice.one_in(20) { 1 + dice.below(depth) } else { 0 };
                        arrivals.push((number + late, Some(number)));
                    }
                }
            }
            arrivals.sort_by_key(|arrival| arrival.0);
            let (mut numbers, mut lost) = (Numbers::new(None, 0, 20_000, CHECKED), Vec::new());
            let mut came = vec![0_u32; total as usize];
            let mut late = 0;
            for (now, number) in arrivals {
                let Some(number) = number else {
                    numbers.damage();
                    continue;
                };
                match take(&mut numbers, number, now as i64, &mut lost) {
                    Sign::New => came[number as usize] += 1,
                    Sign::Duplicate => assert_eq!(came[number as usize], 1),
                    Sign::Late => late += 1,
                    sign => panic!("seed {seed}: {number} is {sign:?}"),
                }
            }
            numbers.announce(total, i64::MAX, total as i64);
            numbers.find_lost(i64::MAX, true, &mut lost);
            assert!(came.iter().all(|n| *n <= 1));
            let missing = came.iter().filter(|n| **n == 0).count() as u64;
            // Those before the first that arrived are not known to be missing.
            let named: u64 =
                lost.iter().map(|one| one.numbers.clone().filter(|n| came[*n as usize] == 0).count() as u64).sum();
            let unknown = came.iter().take_while(|n| **n == 0).count() as u64;
            assert_eq!(named + unknown, missing, "seed {seed}");
            if depth < 4000 {
                assert_eq!((missing, late), (truth[0] + truth[1], 0), "seed {seed}");
                let damaged = lost_of(&lost, Cause::Damaged).len() as u64;
                assert_eq!(damaged, truth[1], "seed {seed}");
            }
        }
    }
}
