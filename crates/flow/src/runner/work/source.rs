//! One input of a worker: what is cut into blocks, done and committed.
//!
//! Constraints: the position in the stream moves only after the commit is safe. A shadow reads as a live reader:
//! nothing waits for it, and messages that retention deletes first are skipped.

use super::batches::RunEdges;
use super::cutover::Beside;
use crate::Fault;
use crate::data::{Data, stream_fault};
use crate::limits::{FRONTIER_BEHIND_MAX, LAG_BLOCKS};
use crate::merge::UpstreamState;
use crate::records::{CUT, Input, WAITS, epoch_end};
use crate::worker::Waiting;
use serde_json::Value;
use std::collections::BTreeMap;
use store::{Error, Kind, Parent, ReadOptions, Reader, Writer, flags};

pub(super) struct Source {
    pub(super) reader: Reader,
    /// For messages that go on as they are. None where the output is to survive what the input does not, too many views
    /// lie between, or the input waits for nobody: they are copied.
    pub(super) parent: Option<Parent>,
    pub(super) account: Input,
    /// Next message that is in no block.
    pub(super) cut: u64,
    /// Ranges that are in the output already, while older messages are not. No two of them touch: between them lie blocks
    /// that are under way, so there are no more of them than of those.
    pub(super) ahead: BTreeMap<u64, u64>,
    /// All up to this time is committed.
    pub(super) frontier: i64,
    /// All up to a time is there below a sequence.
    pub(super) coming: Option<(i64, u64)>,
    pub(super) ended: bool,
    /// All up to a time is published below a sequence; the newest such statement.
    pub(super) complete: (i64, u64),
    /// The input, or one before it, has no room for its next message.
    pub(super) is_blocked: bool,
    /// Committed, and its commit is safe.
    pub(super) committed: u64,
    /// A recovery has cut messages that were read, since the last commit was made.
    pub(super) is_cut: bool,
    /// What the code keeps, and the message that it is for: all before are in it.
    pub(super) kept: Option<(u64, Vec<u64>)>,
    /// Messages before it that wait for others. The account has them.
    pub(super) waiting: Waiting,
    /// The time that has passed last, and behind which message.
    pub(super) passed: Option<(u64, i64)>,
    lag: Lag,
    /// Arrival and source time of a message that came before the first frontier.
    early: Option<(i64, i64)>,
}

/// How far messages are behind the time up to which the input was said to be complete: for boards with a clock behind
/// that of the machine, whose time the frontier of their source is. The least of the last blocks, of which a message
/// with a wrong time is one.
#[derive(Default)]
struct Lag {
    /// ns, of the window before and of this one.
    before: Option<i64>,
    least: Option<i64>,
    count: u32,
}

impl Lag {
    /// The frontier of a live source is the time of the machine, less what its book waits for the disk: a message
    /// behind it is as far behind as behind its arrival. Other frontiers, of replays and topics, are source times.
    fn see(&mut self, frontier: i64, (arrival, source_time): (i64, i64)) {
        let is_behind = source_time < frontier && arrival.saturating_sub(frontier) <= FRONTIER_BEHIND_MAX;
        let behind = if is_behind { arrival } else { frontier }.saturating_sub(source_time);
        if self.count == LAG_BLOCKS {
            *self = Self { before: self.least, ..Self::default() };
        }
        self.count += 1;
        self.least = Some(self.least.map_or(behind, |least| least.min(behind)));
    }

    fn ns(&self) -> i64 {
        let least = self.before.into_iter().chain(self.least).min();
        least.unwrap_or(0).max(0)
    }
}

impl Source {
    /// The first message from `first` on, and below `next`, with which a block of another host begins.
    pub(super) fn block_begins(&mut self, first: u64, next: u64) -> Option<u64> {
        let mut at = first;
        while at < next {
            let entries = self.reader.entries(at, (next - at) as usize).ok().filter(|entries| !entries.is_empty())?;
            let found = entries.iter().position(|entry| entry.flags & flags::BLOCK != 0);
            if let Some(found) = found {
                return Some(at + found as u64);
            }
            at += entries.len() as u64;
        }
        None
    }

    pub(super) fn open(
        data: &Data,
        stage: &str,
        name: &str,
        (known, beside): (&[Input], Option<&Beside>),
        state: &Value,
        output: &mut Writer,
    ) -> Result<Self, Fault> {
        // Nobody waits for a shadow: it keeps a place, and what goes before it comes there is skipped.
        let kind = if beside.is_some() { Kind::Live } else { Kind::Counted };
        let reader = data.reader(name, ReadOptions { name: stage.to_owned(), kind, ..ReadOptions::default() })?;
        let header = reader.header();
        let (mut ahead, mut is_cut) = (BTreeMap::new(), false);
        let mut kept = super::kept_of(state, name);
        let account = match Input::resume(known, name, header) {
            Some(known) => {
                // Only what is marked is read: a recovery cuts it where the medium lost it.
                let mut account = known.clone();
                is_cut = account.step_back(header);
                for range in state["ahead"][name].as_array().into_iter().flatten() {
                    let (Some(first), Some(next)) = (range[0].as_u64(), range[1].as_u64()) else { continue };
                    // Earlier versions wrote ranges without their epoch.
                    let epoch = range[2].as_u64().and_then(|epoch| u32::try_from(epoch).ok());
                    let end = match epoch {
                        _ if account.next < known.next => first,
                        Some(epoch) => epoch_end(header, epoch).clamp(first, next),
                        None => next,
                    };
                    if end < next {
                        is_cut = true;
                        *account.counts.entry(CUT.into()).or_default() += next - end;
                    }
                    if first == end {
                        continue;
                    }
                    // Earlier versions wrote ranges that touch.
                    match ahead.values_mut().next_back().filter(|known| **known == first) {
                        Some(known) => *known = end,
                        None => drop(ahead.insert(first, end)),
                    }
                }
                if is_cut && kept.as_ref().is_some_and(|(_, kept)| kept.iter().any(|k| *k >= account.next)) {
                    kept = None;
                }
                account
            }
            None => {
                kept = None;
                let there = beside.and_then(|beside| beside.position(name, &header.uuid));
                let bounds = reader.bounds();
                Input::begin(name, header, there.map_or(bounds.first, |next| next.clamp(bounds.first, bounds.count)))
            }
        };
        reader.commit(account.next);
        let next = account.next;
        let account_waits = account.count(WAITS);
        let known_waiting = super::waiting_of(state, name).filter(|_| kept.is_some());
        let parent = match beside {
            // A view holds back what it points into.
            Some(_) => {
                data.release(name, &format!("view {stage}"))?;
                None
            }
            None => match output.parent(name) {
                Ok(parent) => Some(parent),
                Err(Error::Parent { .. }) => None,
                Err(e) => return Err(stream_fault(stage, e)),
            },
        };
        let mut source = Self {
            reader,
            parent,
            account,
            cut: next,
            ahead,
            frontier: i64::MIN,
            coming: None,
            ended: false,
            complete: (i64::MIN, 0),
            is_blocked: false,
            committed: next,
            is_cut,
            kept,
            waiting: Waiting { messages: account_waits, ..Waiting::default() },
            passed: None,
            lag: Lag::default(),
            early: None,
        };
        source.wait(known_waiting.unwrap_or_default());
        if let Some(newest) = next.checked_sub(1) {
            source.compare(newest);
        }
        Ok(source)
    }

    /// These messages wait now: they are held, and not done.
    pub(super) fn wait(&mut self, waiting: Waiting) {
        let seen = self.account.done + self.waiting.messages;
        self.waiting = Waiting { messages: waiting.messages.min(seen), ..waiting };
        self.account.done = seen - self.waiting.messages;
        self.account.set_count(WAITS, self.waiting.messages);
    }

    /// The time up to which the input is complete, if something is to be made of messages that wait for that: all
    /// before it is done and committed.
    pub(super) fn due_time(&self) -> Option<i64> {
        let is_at_end = self.ended && self.published() <= self.committed;
        let time = if is_at_end { i64::MAX } else { self.frontier.saturating_sub(self.lag.ns()) };
        let is_due = self.waiting.messages > 0 && (is_at_end || time >= self.waiting.due);
        let is_new = self.passed.is_none_or(|(next, before)| next < self.committed || before < time);
        (is_due && is_new && self.is_quiet()).then_some(time)
    }

    /// The time up to which the input is complete, if a run has ended by then, or the input has, and code that follows
    /// runs has not seen that.
    pub(super) fn run_due(&self, edges: &RunEdges) -> Option<i64> {
        let is_at_end = self.ended && self.published() <= self.committed;
        let time = if is_at_end { i64::MAX } else { self.frontier.saturating_sub(self.lag.ns()) };
        let is_due = match self.passed {
            Some((next, before)) if is_at_end => next < self.committed || before < time,
            Some((_, before)) => edges.last_stop(time).is_some_and(|stop| stop > before),
            None => is_at_end || edges.last_stop(time).is_some(),
        };
        is_due.then_some(time)
    }

    /// Before which time the output is complete, where code follows runs: its result of a run comes when that has
    /// ended.
    pub(super) fn runs_hold(&self, edges: &RunEdges) -> i64 {
        let passed = self.passed.map_or(i64::MIN, |(_, time)| time);
        edges.next_stop(passed).filter(|stop| *stop <= self.frontier).map_or(i64::MAX, |stop| stop.saturating_sub(1))
    }

    /// All that was cut is committed.
    pub(super) fn is_quiet(&self) -> bool {
        self.cut == self.committed && self.ahead.is_empty()
    }

    /// Behind the last message that was published. On disk the reader sees it later, and the frontier speaks of it.
    pub(super) fn published(&self) -> u64 {
        self.reader.bounds().count
    }

    /// Compares the last message of a new block with the frontier, which was said before the message came.
    pub(super) fn compare(&mut self, sequence: u64) {
        let Ok([entry]) = self.reader.entries(sequence, 1) else { return };
        let times = (entry.arrival_time, entry.source_time);
        match self.frontier {
            i64::MIN => self.early = Some(times),
            frontier => self.lag.see(frontier, times),
        }
    }

    /// All of it is done, and nothing can be made of what waits.
    pub(super) fn has_ended(&self) -> bool {
        self.ended && self.committed >= self.published() && self.due_time().is_none()
    }

    /// Updates end and frontier from the state of the stage that fills the input.
    pub(super) fn refresh(&mut self, view: &UpstreamState, looks: bool) -> Result<(), Fault> {
        // The frontier speaks of messages too that the reader does not see, where a writer has opened since: at the
        // first one, and where a group would be closed without them.
        let is_further = self.coming.is_none() && view.frontier > self.frontier;
        let is_first = is_further && self.frontier == i64::MIN;
        let is_due = looks || is_further && self.waiting.messages > 0;
        if is_first || is_due && self.reader.end() <= self.cut {
            self.reader.reattach().map_err(|e| stream_fault(&self.account.stream, e))?;
        }
        (self.ended, self.is_blocked) = (view.ended, view.is_blocked);
        let end = self.published();
        if view.frontier > self.complete.0 {
            self.complete = (view.frontier, end);
        }
        if self.coming.is_none() && view.frontier > self.frontier {
            self.coming = Some((view.frontier, end));
        }
        if let Some((time, sequence)) = self.coming
            && self.committed >= sequence
        {
            (self.frontier, self.coming) = (time, None);
            if let Some(times) = self.early.take() {
                self.lag.see(time, times);
            }
        }
        Ok(())
    }

    /// True if messages behind what was cut are in the output already.
    pub(super) fn has_ahead(&self) -> bool {
        self.ahead.values().next_back().is_some_and(|next| *next > self.cut)
    }

    /// Enters messages that are in the output.
    pub(super) fn enter(&mut self, mut first: u64, mut next: u64) {
        if let Some((&before, &end)) = self.ahead.range(..first).next_back()
            && end == first
        {
            self.ahead.remove(&before);
            first = before;
        }
        if let Some(end) = self.ahead.remove(&next) {
            next = end;
        }
        if first == self.account.next {
            self.account.next = next;
        } else {
            self.ahead.insert(first, next);
        }
    }

    /// The first message from `at` on that is not in the output already.
    pub(super) fn done_to(&self, at: u64) -> u64 {
        self.ahead.range(..=at).next_back().map_or(at, |range| at.max(*range.1))
    }

    /// True if a message is in the output already.
    pub(super) fn is_done(&self, sequence: u64) -> bool {
        sequence < self.account.next || self.ahead.range(..=sequence).next_back().is_some_and(|r| sequence < *r.1)
    }

    /// The end of the messages from `first` on that are not in the output, `next` at most.
    pub(super) fn open_end(&self, first: u64, next: u64) -> u64 {
        self.ahead.range(first..next).next().map_or(next, |range| *range.0)
    }

    /// The parts of a range that are not in the output.
    pub(super) fn open_ranges(&self, first: u64, next: u64) -> Vec<(u64, u64)> {
        let (mut ranges, mut at) = (Vec::new(), first);
        while at < next {
            if self.is_done(at) {
                at = self.ahead.range(..=at).next_back().map_or(self.account.next, |r| *r.1).max(at + 1);
                continue;
            }
            let end = self.open_end(at, next);
            ranges.push((at, end));
            at = end;
        }
        ranges
    }

    /// The message that a slot's user code was given last.
    pub(super) fn stand(&self, stream: &str, pid: u32) -> Option<u64> {
        let readers = self.reader.pins().readers();
        let place = readers.into_iter().find(|r| r.name == stream)?;
        (pid == 0 || place.process.pid == pid).then_some(place.committed)
    }
}
