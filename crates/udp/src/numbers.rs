//! The numbers of a board: which have come, which are missing and why, and whether the board has restarted.
//!
//! Numbers are those of the datagrams. A number that is skipped opens a hole. A hole is filed as lost after the reorder
//! time; a late datagram fills it before. Which cause a lost number is given follows from counts: first as many as the
//! kernel dropped at the socket, then as many as damaged datagrams came, then the network.
//!
//! A number far ahead of the highest one is not believed before another one near it has come: a single datagram, of a
//! fault in a board or of a stranger, would otherwise be counted as the loss of any number of messages.
//!
//! Constraints: memory is bounded: a mark of 4 bytes for each of the last 65,536 numbers, and holes among the last
//! 4,096 alone, because the account of the stream (`flow`) accepts numbers that are late by that much. Older holes are
//! filed at once. No clock: the caller passes the time.

use crate::limits::{AHEAD, NUMBERS, WINDOW};
use std::collections::VecDeque;
use std::ops::Range;

/// What a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// A message to be appended: the next one, one beyond a hole, or one that fills a hole.
    New,
    /// The same datagram came before.
    Duplicate,
    /// It is so late that its hole is closed.
    Late,
    /// It is so far ahead of the highest one that it is not believed yet.
    Ahead,
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

/// A hole that is not filed yet.
#[derive(Clone, Debug)]
struct Hole {
    numbers: Range<u64>,
    times: (i64, i64),
    /// When it was seen, ns.
    since: i64,
    is_absent: bool,
}

/// A counter of datagrams that did not become messages, as far as its counts have not become causes of holes.
///
/// What it counted and no hole followed was no message of the board: it expires once later numbers have come.
#[derive(Debug, Default)]
struct Counter {
    total: u64,
    /// Counts that became causes, or expired.
    used: u64,
    /// Of these causes, those that no other numbering of the board knows of.
    new: u64,
    /// The total at some time, and the next number then: it expires when numbers have come for the reorder time.
    mark: Option<(u64, i64, u64)>,
}

impl Counter {
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
    kernel: Counter,
    damaged: Counter,
    /// The number before, if it was not believed.
    doubted: Option<u64>,
    /// Time of the message with the highest number, ns since 1970 UTC.
    last_time: i64,
    /// The next number is the first since the receiver started.
    is_resumed: bool,
    /// ns
    reorder: i64,
}

impl Numbers {
    /// Of a board of which messages below `next` are in the stream. `reorder`: how long datagrams may be late, ns.
    pub(crate) fn new(next: Option<u64>, last_time: i64, reorder: i64) -> Self {
        let floor = next.unwrap_or(0);
        Self {
            next,
            floor,
            first: floor,
            marks: vec![0; NUMBERS].into(),
            holes: VecDeque::new(),
            kernel: Counter::default(),
            damaged: Counter::default(),
            doubted: None,
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

    /// What the number of a message is. `mark`: the checksum of its header, by which a datagram that came twice is
    /// told from one of a board that has restarted. `time`: its source time. Before a number for which the answer is
    /// `New` is appended, [`Self::closes`] says whether holes have to be filed.
    pub(crate) fn take(&mut self, number: u64, mark: u32, time: i64, now: i64) -> Sign {
        let mark = mark.max(1);
        let at = number as usize % NUMBERS;
        let Some(next) = self.next else {
            (self.first, self.floor) = (number, 0);
            self.next = Some(number.saturating_add(1));
            (self.marks[at], self.last_time) = (mark, time);
            return Sign::New;
        };
        if number >= next {
            if !self.believes(number, next) {
                return Sign::Ahead;
            }
            self.open(next..number, time, now);
            self.forget(next..number);
            self.marks[at] = mark;
            (self.next, self.last_time) = (Some(number.saturating_add(1)), time);
            return Sign::New;
        }
        if number < self.floor || next - number > NUMBERS as u64 {
            return Sign::Restart;
        }
        match self.marks[at] {
            0 if next - number > WINDOW => Sign::Late,
            0 => {
                self.fill(number, time, now);
                self.marks[at] = mark;
                Sign::New
            }
            known if known == mark => Sign::Duplicate,
            _ => Sign::Restart,
        }
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
        if !self.believes(number, next) {
            return Sign::Ahead;
        }
        self.open(next..number, time, now);
        self.forget(next..number);
        self.next = Some(number);
        Sign::New
    }

    /// Whether a number that is not below the highest one is that of a message. One that is not believed is taken for
    /// the number of a message that is missing, in a damaged datagram.
    fn believes(&mut self, number: u64, next: u64) -> bool {
        let is_near = |known: u64| (1..NUMBERS as u64).contains(&known.abs_diff(number));
        let is_believed = number - next < AHEAD || self.doubted.is_some_and(is_near);
        self.doubted = (!is_believed).then_some(number);
        self.damaged.total += u64::from(!is_believed);
        is_believed
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
    pub(crate) fn file(&mut self, now: i64, is_drained: bool, lost: &mut Vec<Lost>) {
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

    fn lost_of(lost: &[Lost], cause: Cause) -> Vec<u64> {
        lost.iter().filter(|one| one.cause == cause).flat_map(|one| one.numbers.clone()).collect()
    }

    /// Takes a number, one unit of time after the one before.
    fn take(numbers: &mut Numbers, number: u64, now: i64, lost: &mut Vec<Lost>) -> Sign {
        let sign = numbers.take(number, (number as u32).wrapping_add(1), number as i64, now);
        if numbers.closes() {
            numbers.close(lost);
        }
        numbers.file(now, true, lost);
        sign
    }

    #[test]
    fn a_late_number_fills_its_hole_until_the_hole_is_filed() {
        let (mut numbers, mut lost) = (Numbers::new(None, 0, REORDER), Vec::new());
        for (number, now) in [(0, 0), (4, 1), (2, 2)] {
            assert_eq!(take(&mut numbers, number, now, &mut lost), Sign::New);
        }
        assert_eq!((numbers.due(), lost.len()), (Some(51), 0));
        numbers.file(51, true, &mut lost);
        assert_eq!(lost_of(&lost, Cause::Network), [1, 3]);
        assert_eq!(lost[1].times, (0, 4));
        // The account corrects a hole that was filed too early.
        assert_eq!(take(&mut numbers, 3, 60, &mut lost), Sign::New);
        assert_eq!(take(&mut numbers, 3, 61, &mut lost), Sign::Duplicate);
        assert_eq!(lost.len(), 2);
    }

    #[test]
    fn numbers_before_the_first_one_seen_are_holes_too() {
        let (mut numbers, mut lost) = (Numbers::new(None, 0, REORDER), Vec::new());
        for number in [5, 2, 6, 3] {
            assert_eq!(take(&mut numbers, number, 0, &mut lost), Sign::New);
        }
        numbers.file(100, true, &mut lost);
        assert_eq!(lost_of(&lost, Cause::Network), [4]);
    }

    #[test]
    fn an_announced_number_shows_the_loss_before_it() {
        let (mut numbers, mut lost) = (Numbers::new(None, 0, REORDER), Vec::new());
        assert_eq!(numbers.announce(0, 0, 0), Sign::New);
        take(&mut numbers, 2, 0, &mut lost);
        assert_eq!(numbers.announce(5, 9, 0), Sign::New);
        assert_eq!(numbers.announce(5, 9, 0), Sign::New);
        // One that was late says nothing.
        assert_eq!(numbers.announce(2, 1, 0), Sign::Late);
        numbers.file(100, true, &mut lost);
        assert_eq!(lost_of(&lost, Cause::Network), [0, 1, 3, 4]);
        assert_eq!(numbers.announce(0, 10, 0), Sign::Restart);
    }

    #[test]
    fn the_same_number_with_another_header_is_a_restart() {
        let mut numbers = Numbers::new(None, 0, REORDER);
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
        let (mut numbers, mut lost) = (Numbers::new(None, 0, REORDER), Vec::new());
        take(&mut numbers, 0, 0, &mut lost);
        // A datagram of somebody else.
        numbers.damage();
        numbers.file(1, true, &mut lost);
        for number in 1..100 {
            take(&mut numbers, number, number as i64, &mut lost);
        }
        take(&mut numbers, 102, 102, &mut lost);
        numbers.drop_in_kernel(1);
        numbers.file(1000, true, &mut lost);
        assert_eq!((lost_of(&lost, Cause::Kernel), lost_of(&lost, Cause::Damaged)), (vec![100], vec![]));
        assert_eq!(lost_of(&lost, Cause::Network), [101]);
    }

    #[test]
    fn a_count_explains_a_hole_in_one_numbering_alone() {
        let mut both = [Numbers::new(None, 0, REORDER), Numbers::new(None, 0, REORDER)];
        let mut lost = [Vec::new(), Vec::new()];
        for numbers in &mut both {
            numbers.take(0, 1, 0, 0);
            numbers.take(3, 1, 0, 0);
            numbers.drop_in_kernel(3);
            numbers.damage();
        }
        both[0].file(100, true, &mut lost[0]);
        let spent = both[0].spent();
        both[1].spend(spent);
        both[1].file(100, true, &mut lost[1]);
        let [first, second] = &lost;
        assert_eq!((spent, lost_of(first, Cause::Kernel)), ([2, 0], vec![1, 2]));
        assert_eq!((lost_of(second, Cause::Kernel), lost_of(second, Cause::Damaged)), (vec![1], vec![2]));
        assert_eq!((both[1].spent(), both[1].spent()), ([1, 1], [0, 0]));
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let (mut numbers, mut lost) = (Numbers::new(None, 0, REORDER), Vec::new());
        for number in [0, u64::MAX, u64::MAX - 1, u64::MAX, 1, u64::MAX] {
            take(&mut numbers, number, i64::MAX, &mut lost);
            numbers.announce(u64::MAX, i64::MAX, i64::MIN);
        }
        numbers.file(i64::MAX, true, &mut lost);
    }

    #[test]
    fn a_number_far_ahead_is_believed_when_one_near_it_follows() {
        let (mut numbers, mut lost) = (Numbers::new(None, 0, REORDER), Vec::new());
        let far = 1 << 40;
        for (number, sign) in [
            (0, Sign::New),
            (far, Sign::Ahead),
            // The same datagram again is no confirmation, and neither is one that is far from it.
            (far, Sign::Ahead),
            (2 * far, Sign::Ahead),
            (1, Sign::New),
            // One of the board has come between.
            (2 * far + 1, Sign::Ahead),
            (3, Sign::New),
            (AHEAD + 3, Sign::New),
        ] {
            assert_eq!(take(&mut numbers, number, 0, &mut lost), sign, "{number}");
        }
        assert_eq!(numbers.announce(far, 0, 0), Sign::Ahead);
        assert_eq!(take(&mut numbers, far + 2, 0, &mut lost), Sign::New);
        // What came between the two is late, and not the beginning of another life.
        assert_eq!(take(&mut numbers, far + 1, 0, &mut lost), Sign::New);
        numbers.file(100, true, &mut lost);
        let of = |cause| lost.iter().filter(move |one| one.cause == cause);
        let sum = |cause| of(cause).map(|one| one.numbers.end - one.numbers.start).sum::<u64>();
        assert_eq!((sum(Cause::Damaged), sum(Cause::Network)), (5, far - 3 - 5));
        assert_eq!(numbers.next(), Some(far + 3));
    }

    /// Loss, duplicates, damage and reordering of any depth, against sets of numbers.
    #[test]
    fn each_number_is_new_once_or_lost_with_its_cause() {
        for seed in 0..60 {
            let mut dice = Dice::new(seed);
            let depth = dice.pick(&[1, 10, 200, 4000, 10_000]);
            let (loss, damage) = (dice.pick(&[2, 10, 1000]), dice.pick(&[5, 1000]));
            let total = 30_000_u64;
            // What arrives, by the number before which it does; `None` is a damaged datagram.
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
            let (mut numbers, mut lost) = (Numbers::new(None, 0, 20_000), Vec::new());
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
            numbers.file(i64::MAX, true, &mut lost);
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
