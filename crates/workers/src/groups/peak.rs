//! Groups where most members fired together: peaks of the multiplicity.
//!
//! The multiplicity of a message is the number of different members in the window that it begins: itself, and all behind it
//! that are later by less than the window. It begins a group if that is at least the least multiplicity, and no message in
//! its window has a larger one; of equal ones the first begins it. The group has all messages of the window, which then begin
//! no other. A message that begins none, and is in none, is alone.
//!
//! A time before that of the message before counts as that one's.

use super::finder::{Finder, Found, Pending};
use flow::{Fault, Waiting};
use std::collections::VecDeque;

/// A message that is not decided.
struct Seen {
    time: i64,
    member: u32,
    /// Where its window ends, counted over all messages, and its multiplicity; none: the window is open.
    window: Option<(u64, u32)>,
}

/// Finds peaks.
pub(super) struct Peak {
    window: i64,
    least: u32,
    seen: VecDeque<Seen>,
    /// Number of the first of them, counted over all.
    first: u64,
    /// The first whose window is open, and the first that is not in its window.
    open: u64,
    end: u64,
    /// Messages of each member between the two, and members that have any.
    counts: Vec<u32>,
    different: u32,
    newest: i64,
}

impl Peak {
    pub(super) fn new(window: i64, least: u32) -> Self {
        Self {
            window: window.max(1),
            least,
            seen: VecDeque::new(),
            first: 0,
            open: 0,
            end: 0,
            counts: Vec::new(),
            different: 0,
            newest: i64::MIN,
        }
    }

    fn at(&self, number: u64) -> Option<&Seen> {
        self.seen.get(number.checked_sub(self.first)? as usize)
    }

    fn push(&mut self, time: i64, member: u32) {
        self.newest = self.newest.max(time);
        self.seen.push_back(Seen { time: self.newest, member, window: None });
        if self.counts.len() <= member as usize {
            self.counts.resize(member as usize + 1, 0);
        }
    }

    /// Ends the windows that the newest message is behind.
    fn measure(&mut self) {
        while let Some(begin) = self.at(self.open).map(|seen| (seen.time, seen.member)) {
            let (behind, own) = (begin.0.saturating_add(self.window), begin.1 as usize);
            if self.newest < behind {
                return;
            }
            while let Some(member) = self.at(self.end).filter(|seen| seen.time < behind).map(|seen| seen.member) {
                let count = &mut self.counts[member as usize];
                self.different += u32::from(*count == 0);
                *count += 1;
                self.end += 1;
            }
            let window = Some((self.end, self.different));
            let at = (self.open - self.first) as usize;
            if let Some(seen) = self.seen.get_mut(at) {
                seen.window = window;
            }
            self.counts[own] -= 1;
            self.different -= u32::from(self.counts[own] == 0);
            self.open += 1;
        }
    }

    /// Decides about the first messages. Returns how many are released.
    fn decide(&mut self, found: &mut Found) -> usize {
        let mut done = 0;
        while let Some((end, multiplicity)) = self.seen.front().and_then(|seen| seen.window) {
            let in_window = (end - self.first) as usize;
            let mut gone = 1;
            if multiplicity >= self.least {
                // All that are in its window must have their own measured.
                let larger =
                    self.seen.range(1..in_window).position(|seen| seen.window.is_none_or(|w| w.1 > multiplicity));
                match larger.map(|at| at + 1) {
                    Some(at) if self.seen.get(at).is_some_and(|seen| seen.window.is_none()) => break,
                    Some(at) => {
                        gone = at;
                        found.alone += at as u64;
                    }
                    None => {
                        found.row(done, in_window);
                        gone = in_window;
                    }
                }
            } else {
                found.alone += 1;
            }
            self.seen.drain(..gone);
            (self.first, done) = (self.first + gone as u64, done + gone);
            // Released messages are in no window any more.
            debug_assert!(self.first <= self.open);
        }
        done
    }
}

impl Finder for Peak {
    fn find(&mut self, pending: Pending<'_>, found: &mut Found) -> Result<usize, Fault> {
        if let (Some(time), Some(member)) = (pending.times.last(), pending.members.last()) {
            self.push(*time, *member);
        }
        self.measure();
        Ok(self.decide(found))
    }

    fn pass_time(&mut self, time: i64, _pending: Pending<'_>, found: &mut Found) -> Result<usize, Fault> {
        self.newest = self.newest.max(time);
        self.measure();
        let done = self.decide(found);
        if time == i64::MAX {
            // All are decided. Messages after the end have their own times.
            self.resume(&[]);
        }
        Ok(done)
    }

    fn waiting(&self, pending: Pending<'_>) -> Waiting {
        let due = self.at(self.open).map_or(i64::MAX, |seen| seen.time.saturating_add(self.window));
        let oldest = pending.oldest();
        Waiting { messages: pending.len() as u64, oldest, due }
    }

    fn cut(&mut self, pending: Pending<'_>, found: &mut Found) -> usize {
        found.alone += pending.len() as u64;
        let newest = self.newest;
        self.resume(&[]);
        self.newest = newest;
        pending.len()
    }

    fn keep(&self, words: &mut Vec<u64>) {
        // The time that counts for the first message that is shown again.
        words.push(self.seen.front().map_or(self.newest, |seen| seen.time) as u64);
    }

    fn resume(&mut self, words: &[u64]) {
        *self = Self::new(self.window, self.least);
        self.newest = words.first().map_or(i64::MIN, |time| *time as i64);
    }
}
