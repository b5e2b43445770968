//! Groups by trigger number: messages with one number belong together.
//!
//! A number that wraps is unwrapped by nearness to the newest. A group is closed when it is complete, and when its
//! first message is more than `wait` behind the newest time, whatever others are open; the lowest is where more than
//! `open` are. A message that belongs to no open group, and whose number is not above that of all closed ones, is late,
//! until `wait` after the first message of the newest closed group: then numbers restarted, or a wrong one was ahead of
//! all.
//!
//! With `same = "tag"` a group has the tag of most of its messages, when it is closed; the others are in none.

use super::finder::{Finder, Found, Pending, part_of};
use flow::{Fault, Waiting};
use std::collections::VecDeque;

/// None, in a row of links.
const NONE: u64 = u64::MAX;

/// A group that is open.
struct Open {
    number: u64,
    /// Source time of its first message.
    time: i64,
    /// Its first and last message, counted over all.
    first: u64,
    last: u64,
    messages: u64,
    /// Which members it has, a bit each, and how many.
    members: Vec<u64>,
    different: usize,
    /// Numbers began anew since it was opened.
    is_former: bool,
}

impl Open {
    /// Whether it has a message of a member, which has `pieces` of them in a whole group.
    fn has(&self, member: u32, pieces: u64) -> bool {
        let first = part_of(member, 0, pieces);
        let bit = |part: u64| self.members.get(part as usize / 64).is_some_and(|word| word & (1 << (part % 64)) != 0);
        (first..first + pieces).any(bit)
    }
}

/// Finds groups by number.
pub(super) struct Trigger {
    /// Messages that a member has in a group.
    pieces: u64,
    wrap: u64,
    most: usize,
    wait: i64,
    /// How many make a group whole.
    whole: Option<usize>,
    /// Messages of a group have the same tag.
    same_tag: bool,
    /// The newest number, unwrapped.
    newest: Option<u64>,
    newest_time: i64,
    /// No group of this number or a higher one was closed.
    floor: u64,
    /// The newest first message of all groups that were closed.
    closed_time: i64,
    /// Until this time none is over.
    check_at: i64,
    /// By number.
    open: VecDeque<Open>,
    /// Of each pending message: the next of its group, counted over all; of one that is late or the last: none.
    links: VecDeque<u64>,
    /// The first pending message, counted over all.
    first: u64,
    /// Messages that are shown again, and the groups that were open: number, which of those messages is the first,
    /// and whether numbers began anew since.
    again: u64,
    known: Vec<(u64, u64, bool)>,
    /// Memory of groups that are closed.
    spare: Vec<Vec<u64>>,
}

impl Trigger {
    /// `wrap`: 0 for never. `most`: groups that are open. `wait`: ns. `whole`: members and pieces of a whole group.
    pub(super) fn new((wrap, most, wait): (u64, usize, i64), whole: Option<usize>, same_tag: bool) -> Self {
        Self {
            pieces: 1,
            wrap,
            most,
            wait,
            whole,
            same_tag,
            newest: None,
            newest_time: i64::MIN,
            floor: 0,
            closed_time: i64::MIN,
            check_at: i64::MAX,
            open: VecDeque::new(),
            links: VecDeque::new(),
            first: 0,
            again: 0,
            known: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// The numbers count the `pieces` messages that a member has in a group; `wrap` is a multiple.
    pub(super) fn of_pieces(self, pieces: u64) -> Self {
        Self { pieces, wrap: self.wrap / pieces, ..self }
    }

    /// The number as it would be if it had never wrapped; none: it is before the first.
    fn unwrapped(&mut self, number: u64) -> Option<u64> {
        if self.wrap == 0 {
            return Some(number);
        }
        let number = number % self.wrap;
        let Some(newest) = self.newest else {
            self.newest = Some(number);
            return Some(number);
        };
        let ahead = (number + self.wrap - newest % self.wrap) % self.wrap;
        let found = match ahead <= self.wrap / 2 {
            true => newest.checked_add(ahead),
            false => newest.checked_sub(self.wrap - ahead),
        };
        self.newest = self.newest.max(found);
        found
    }

    /// The next number is taken as if it were the first.
    fn begin_anew(&mut self) {
        (self.newest, self.floor) = (None, 0);
        self.open.iter_mut().for_each(|open| open.is_former = true);
    }

    /// Enters a message into its group, and answers its place among the open. None if it is late.
    fn enter(&mut self, number: u64, time: i64, member: u32) -> Option<usize> {
        self.links.push_back(NONE);
        let known = self.unwrapped(number);
        let is_open = |number: &u64| self.open.binary_search_by_key(number, |open| open.number).is_ok();
        let known = known.filter(|number| *number >= self.floor || is_open(number));
        let number = match known {
            Some(number) => number,
            None if time.saturating_sub(self.closed_time) <= self.wait => return None,
            None => {
                self.begin_anew();
                self.unwrapped(number)?
            }
        };
        Some(self.put(number, time, member))
    }

    /// Enters a message that was there before into its group, if that was open.
    fn enter_again(&mut self, number: u64, time: i64, member: u32) {
        let at = self.links.len() as u64;
        self.links.push_back(NONE);
        self.again -= 1;
        let is_its = |known: &&(u64, u64, bool)| match self.wrap {
            0 => known.0 == number && known.1 <= at,
            wrap => known.0 % wrap == number % wrap && known.1 <= at,
        };
        if let Some((number, _, is_former)) = self.known.iter().rev().find(is_its).copied() {
            let place = self.put(number, time, member);
            self.open[place].is_former = is_former;
        }
    }

    /// Puts the newest message into its group, and answers its place among the open.
    fn put(&mut self, number: u64, time: i64, member: u32) -> usize {
        let at = self.first + self.links.len() as u64 - 1;
        let place = self.open.partition_point(|open| open.number < number);
        if self.open.get(place).is_none_or(|open| open.number != number) {
            let mut members = self.spare.pop().unwrap_or_default();
            members.clear();
            self.check_at = self.check_at.min(time.saturating_add(self.wait));
            self.open.insert(
                place,
                Open { number, time, first: at, last: at, messages: 0, members, different: 0, is_former: false },
            );
        }
        let Some(open) = self.open.get_mut(place) else { return place };
        if open.last != at
            && let Some(link) = self.links.get_mut((open.last - self.first) as usize)
        {
            *link = at;
        }
        open.last = at;
        open.messages += 1;
        let (word, bit) = (member as usize / 64, 1 << (member % 64));
        if open.members.len() <= word {
            open.members.resize(word + 1, 0);
        }
        open.different += usize::from(open.members[word] & bit == 0);
        open.members[word] |= bit;
        place
    }

    /// Places of the messages of a group among the pending.
    fn places(&self, first: u64) -> impl Iterator<Item = usize> {
        let place_of = |at: u64| (at != NONE).then(|| (at - self.first) as usize);
        std::iter::successors(place_of(first), move |place| place_of(self.links.get(*place).copied().unwrap_or(NONE)))
    }

    /// The tag that most messages of a group have; of equal ones the first.
    fn tag_of(&self, first: u64, tags: &[u8]) -> u8 {
        let own = || self.places(first).filter_map(|place| tags.get(place).copied());
        let tag = own().next().unwrap_or(0);
        if own().all(|other| other == tag) {
            return tag;
        }
        let mut counts = [0_usize; 256];
        own().for_each(|tag| counts[usize::from(tag)] += 1);
        let most = counts.iter().copied().max();
        own().find(|tag| Some(counts[usize::from(*tag)]) == most).unwrap_or(tag)
    }

    /// Closes a group, by its place among the open. `tags`: of what is pending.
    fn close(&mut self, place: usize, tags: &[u8], found: &mut Found) {
        let Some(open) = self.open.remove(place) else { return };
        let tag = self.same_tag.then(|| self.tag_of(open.first, tags));
        for place in self.places(open.first) {
            match tag.is_none_or(|tag| tags.get(place) == Some(&tag)) {
                true => found.add(place),
                false => found.tag += 1,
            }
        }
        found.end(Some(open.number));
        self.closed_time = self.closed_time.max(open.time);
        if !open.is_former {
            self.floor = self.floor.max(open.number.saturating_add(1));
        }
        self.spare.push(open.members);
    }

    /// The newest time is no older than this. Closes the groups that have waited for too long. True if there were any.
    fn close_over(&mut self, time: i64, tags: &[u8], found: &mut Found) -> bool {
        self.newest_time = self.newest_time.max(time);
        if self.newest_time <= self.check_at {
            return false;
        }
        let (mut place, before) = (0, found.len());
        while let Some(open) = self.open.get(place) {
            match self.newest_time.saturating_sub(open.time) > self.wait {
                true => self.close(place, tags, found),
                false => place += 1,
            }
        }
        let oldest = self.open.iter().map(|open| open.time).min();
        self.check_at = oldest.map_or(i64::MAX, |time| time.saturating_add(self.wait));
        found.len() > before
    }

    /// Messages before the first of an open group are needed no more.
    fn release(&mut self) -> usize {
        let end = self.first + self.links.len() as u64;
        let needed = self.open.iter().map(|open| open.first).min().unwrap_or(end);
        let done = (needed - self.first) as usize;
        self.links.drain(..done);
        self.first = needed;
        done
    }
}

impl Finder for Trigger {
    fn find(&mut self, pending: Pending<'_>, found: &mut Found) -> Result<usize, Fault> {
        let last = pending.times.last().zip(pending.members.last()).zip(pending.numbers.last());
        let Some(((time, member), number)) = last else { return Ok(0) };
        let (number, member) = (number / self.pieces, part_of(*member, *number, self.pieces) as u32);
        if self.again > 0 {
            self.enter_again(number, *time, member);
            return Ok(0);
        }
        // Before it is entered: a group that waits no longer does not wait for it.
        let mut closed = self.close_over(*time, pending.tags, found);
        match self.enter(number, *time, member) {
            None => found.late += 1,
            Some(place) if self.open.get(place).is_some_and(|open| self.whole == Some(open.different)) => {
                closed = true;
                self.close(place, pending.tags, found);
            }
            Some(_) => {}
        }
        while self.open.len() > self.most {
            closed = true;
            self.close(0, pending.tags, found);
        }
        // Only then, or where nothing is open, is anything needed no more.
        Ok(if closed || self.open.is_empty() { self.release() } else { 0 })
    }

    fn restart(&mut self, member: u32, pending: Pending<'_>, found: &mut Found) {
        // New messages of the same number belong to another group.
        let mut place = 0;
        while let Some(open) = self.open.get(place) {
            match open.has(member, self.pieces) {
                true => self.close(place, pending.tags, found),
                false => place += 1,
            }
        }
        self.begin_anew();
    }

    fn pass_time(&mut self, time: i64, pending: Pending<'_>, found: &mut Found) -> Result<usize, Fault> {
        if time == i64::MAX {
            return Ok(self.cut(pending, found));
        }
        Ok(if self.close_over(time, pending.tags, found) { self.release() } else { 0 })
    }

    fn waiting(&self, _pending: Pending<'_>) -> Waiting {
        let messages = self.open.iter().map(|open| open.messages).sum();
        let oldest = self.open.iter().map(|open| open.time).min().unwrap_or(i64::MAX);
        Waiting { messages, oldest, due: oldest.saturating_add(self.wait).saturating_add(1) }
    }

    fn cut(&mut self, pending: Pending<'_>, found: &mut Found) -> usize {
        while !self.open.is_empty() {
            self.close(0, pending.tags, found);
        }
        self.release()
    }

    fn keep(&self, words: &mut Vec<u64>) {
        let newest = self.newest.map_or(0, |newest| newest.saturating_add(1));
        words.extend([self.floor, newest, self.newest_time as u64, self.closed_time as u64, self.links.len() as u64]);
        let place = |open: &Open| (open.first - self.first) << 1 | u64::from(open.is_former);
        words.extend(self.open.iter().flat_map(|open| [open.number, place(open)]));
    }

    fn resume(&mut self, words: &[u64]) {
        let pieces = self.pieces;
        *self = Self { pieces, ..Self::new((self.wrap, self.most, self.wait), self.whole, self.same_tag) };
        if let [floor, newest, time, closed_time, again, open @ ..] = words {
            self.known = open.chunks_exact(2).map(|pair| (pair[0], pair[1] >> 1, pair[1] & 1 == 1)).collect();
            (self.floor, self.newest, self.again) = (*floor, newest.checked_sub(1), *again);
            (self.newest_time, self.closed_time) = (*time as i64, *closed_time as i64);
        }
    }
}
