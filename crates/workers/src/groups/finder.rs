//! What finds groups, built-in or of the user: a [`Finder`] is shown each message and says which groups it closes.
//!
//! Constraints: a finder decides by what it was shown and nothing else, no clock and no chance, so that the same
//! messages give the same groups however they came and whoever was killed between. When the input is complete up to a
//! time it closes the groups that the next message, which has this time or a later one, would close: of an input in
//! the order of time the groups are the same. It keeps no message; what is pending is kept for it, in rows that it
//! looks at.

use flow::{Fault, Waiting};

/// Messages that are needed still, oldest first, in the order of the stream.
#[derive(Clone, Copy, Debug)]
pub struct Pending<'a> {
    /// Source times, ns since 1970 UTC.
    pub times: &'a [i64],
    /// Of which member each is: its place in `members`, or without those the row of its origin.
    pub members: &'a [u32],
    /// The numbers that their origins gave them.
    pub numbers: &'a [u64],
    /// The byte that their source put into their flags (`store::flags::byte_of_source`).
    pub tags: &'a [u8],
}

impl Pending<'_> {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// The part of its group that a message is; `pieces`: of each member.
    pub(super) fn part(&self, place: usize, pieces: u64) -> Option<usize> {
        Some(part_of(*self.members.get(place)?, *self.numbers.get(place)?, pieces) as usize)
    }

    /// The oldest source time, ns since 1970 UTC; `i64::MAX` of none.
    #[must_use]
    pub fn oldest(&self) -> i64 {
        self.times.iter().min().copied().unwrap_or(i64::MAX)
    }
}

/// The part of its group that a message is: its piece, counted over all members, each of which has `pieces`.
pub(super) fn part_of(member: u32, number: u64, pieces: u64) -> u64 {
    u64::from(member) * pieces + number % pieces
}

/// Groups that a finder says are closed, in their order.
#[derive(Debug, Default)]
pub struct Found {
    /// Places of their messages among the pending, group by group.
    places: Vec<u32>,
    /// Of each group: its number if it has one of its own, and where its places end.
    groups: Vec<(Option<u64>, usize)>,
    /// Messages that came behind their group.
    pub late: u64,
    /// Released messages that were in no group.
    pub alone: u64,
    /// Messages that are in no group because their tag is not that of their group.
    pub tag: u64,
}

impl Found {
    /// A group of messages that lie in a row.
    pub fn row(&mut self, first: usize, count: usize) {
        self.places.extend((first..first + count).map(|place| place as u32));
        self.groups.push((None, self.places.len()));
    }

    /// One more message of the group that is ended next, by its place among the pending. Places rise.
    pub fn add(&mut self, place: usize) {
        self.places.push(place as u32);
    }

    /// Ends a group. `number`: its own, if it has one.
    pub fn end(&mut self, number: Option<u64>) {
        self.groups.push((number, self.places.len()));
    }

    /// How many groups.
    #[must_use]
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// A group: its number, and the places of its messages.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<(Option<u64>, &[u32])> {
        let (number, end) = *self.groups.get(at)?;
        let begin = at.checked_sub(1).and_then(|before| self.groups.get(before)).map_or(0, |group| group.1);
        Some((number, self.places.get(begin..end)?))
    }

    pub(super) fn clear(&mut self) {
        self.places.clear();
        self.groups.clear();
        (self.late, self.alone, self.tag) = (0, 0, 0);
    }
}

/// Finds groups.
pub trait Finder: Send {
    /// Looks at what is pending; since the last call one message came, the last (or [`Finder::every`] of them). Enters the
    /// groups that are closed by it, and answers how many of the oldest pending are needed no more.
    fn find(&mut self, pending: Pending<'_>, found: &mut Found) -> Result<usize, Fault>;

    /// A member counts from the beginning again: the message that comes next is the first of another life of it.
    /// Enters the groups that are closed by that.
    fn restart(&mut self, _member: u32, _pending: Pending<'_>, _found: &mut Found) {}

    /// It is called at messages whose sequence and one is a multiple of this: a call may be dear.
    fn every(&self) -> u64 {
        1
    }

    /// The input is complete up to `time`: later messages have this time or a later one. Enters the groups that are
    /// closed by that, and answers how many of the oldest pending are needed no more. `i64::MAX`: the input has
    /// ended, and all that is pending (never nothing) is closed as it is.
    fn pass_time(&mut self, time: i64, pending: Pending<'_>, found: &mut Found) -> Result<usize, Fault> {
        Ok(if time == i64::MAX { self.cut(pending, found) } else { 0 })
    }

    /// What of the pending waits to be in a group, and when [`Finder::pass_time`] closes one.
    fn waiting(&self, pending: Pending<'_>) -> Waiting {
        let oldest = pending.oldest();
        Waiting { messages: pending.len() as u64, oldest, due: i64::MAX }
    }

    /// More is pending than may be. Enters what is to be closed for that, and answers how many of the oldest are needed no
    /// more, which is at least one.
    fn cut(&mut self, pending: Pending<'_>, found: &mut Found) -> usize {
        found.row(0, pending.len());
        pending.len()
    }

    /// What it needs beside what is pending to go on in another process: few words, they stand in each answer.
    fn keep(&self, _words: &mut Vec<u64>) {}

    /// Forgets all, and resumes from the kept words (empty: from the beginning). The messages pending then are shown to
    /// it again.
    fn resume(&mut self, _words: &[u64]) {}
}
