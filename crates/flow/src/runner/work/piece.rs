//! Blocks on their way through the slots: what is still to be done, what is answered, what is shown.
//!
//! Constraints: held in memory only, at most a few per slot; a restart rebuilds them from the slots' streams and the
//! output.

use crate::records::Gap;
use crate::slot::{LOST, SAME};
use crate::worker::Waiting;
use std::collections::{BTreeMap, VecDeque};
use wire::bpdn::Answer;

/// Input, first message, and the one after the last.
pub(super) type Block = (usize, u64, u64);

/// Messages of a part of a block that are still to be done.
#[derive(Clone, Debug)]
pub(super) struct Todo {
    pub(super) first: u64,
    pub(super) next: u64,
    /// Of its only message, or of the batch: how often a slot died at it.
    pub(super) deaths: u32,
    /// A slot died here, and nobody knows at which message: each is done alone.
    pub(super) is_suspect: bool,
}

impl Todo {
    pub(super) fn new(first: u64, next: u64) -> Self {
        Self { first, next, deaths: 0, is_suspect: false }
    }

    /// It is given to a slot without other tasks, which gets none before it has answered.
    pub(super) fn is_alone(&self) -> bool {
        self.deaths > 0 || self.is_suspect
    }
}

/// An answer of a slot.
#[derive(Clone, Debug)]
pub(super) struct Answered {
    pub(super) slot: usize,
    /// Sequence of the answer in the slot's stream.
    pub(super) sequence: u64,
    pub(super) first: u64,
    pub(super) next: u64,
    pub(super) output_first: u64,
    /// Number of results of each message; empty: one each.
    pub(super) outputs: Vec<u32>,
    pub(super) aside: Vec<u32>,
    pub(super) gaps: Vec<Gap>,
    /// Of a message that killed its slots: reason and text.
    pub(super) killed: Option<(String, String)>,
    /// Answers among its outputs.
    pub(super) between: Vec<u64>,
    /// State of the code behind it; empty: none.
    pub(super) kept: Vec<u64>,
    /// Messages that wait behind it.
    pub(super) waiting: Waiting,
}

#[derive(Default)]
pub(super) struct Part {
    pub(super) answers: Vec<Answered>,
    pub(super) todo: VecDeque<Todo>,
    /// Tasks with slots, by number, with their messages.
    pub(super) given: Vec<(u64, Todo)>,
    /// The slot that gets it; none: any.
    pub(super) slot: Option<usize>,
}

/// A block of an input on its way through the slots.
pub(super) struct Piece {
    pub(super) input: usize,
    pub(super) epoch: u32,
    /// First message and one past the last, as it was cut: tasks and answers name it by these.
    pub(super) block: (u64, u64),
    /// First message that is not shown.
    pub(super) first: u64,
    pub(super) next: u64,
    pub(super) parts: Vec<Part>,
    /// Entries that are in the output already, of messages from `first` on.
    pub(super) pushed: u64,
    /// Messages that are aside already.
    pub(super) set_aside: usize,
    /// Where the first of them stands in the stream of messages aside.
    pub(super) aside_from: Option<u64>,
    /// Why they are.
    pub(super) reasons: BTreeMap<String, u64>,
    /// It has no messages: the input is complete up to this time.
    pub(super) time: Option<i64>,
    /// A block of another host begins with it: all before it is in a commit before it is shown.
    pub(super) begins: bool,
}

impl Piece {
    /// True if its next message is to be retried alone, and a slot that `is_there` could get it.
    pub(super) fn waits_alone(&self, is_there: impl Fn(usize) -> bool) -> bool {
        let is_bound = self.parts.len() > 1;
        let waits = |part: &Part| part.todo.front().is_some_and(Todo::is_alone);
        self.parts.iter().any(|part| waits(part) && (!is_bound || part.slot.is_none_or(&is_there)))
    }

    pub(super) fn new(input: usize, epoch: u32, block: (u64, u64), parts: Vec<Part>) -> Self {
        let (first, next) = block;
        Self {
            input,
            epoch,
            block,
            first,
            next,
            parts,
            pushed: 0,
            set_aside: 0,
            aside_from: None,
            reasons: BTreeMap::new(),
            time: None,
            begins: false,
        }
    }

    /// True if all of it is answered and shown.
    pub(super) fn is_whole(&self) -> bool {
        self.first == self.next && self.time.is_none()
    }

    /// All parts have answered up to here.
    pub(super) fn answered(&self) -> u64 {
        let of_part =
            |part: &Part| part.answers.iter().fold(self.first, |at, a| if a.first <= at { at.max(a.next) } else { at });
        self.parts.iter().map(of_part).min().unwrap_or(self.next)
    }

    /// Messages that were to go on as they are, are not there any more.
    pub(super) fn lose(&mut self, stream: &str, first: u64, next: u64, reason: &str) {
        for answer in self.parts.iter_mut().flat_map(|p| &mut p.answers) {
            for sequence in first..next {
                if answer.lets_pass(sequence) {
                    answer.outputs[(sequence - answer.first) as usize] = LOST;
                    answer.gaps.push(Gap { from: 0, to: 0, ..Gap::sequences(stream, sequence..=sequence, reason) });
                }
            }
        }
    }

    /// Forgets the messages up to `end`.
    pub(super) fn shown_to(&mut self, end: u64, entries: u64) {
        // A runner that started anew may have found more of it in the output.
        (self.first, self.pushed) = (end, self.pushed.saturating_sub(entries));
        (self.set_aside, self.aside_from, self.time) = (0, None, None);
        for part in &mut self.parts {
            part.answers.retain(|a| a.next > end);
        }
    }
}

/// Where outputs lie.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Lies {
    /// In the stream of a slot.
    Slot(usize),
    /// In an input: messages that go on as they are.
    Input(usize),
}

/// A row of messages that are output.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) lies: Lies,
    pub(super) first: u64,
    pub(super) count: u64,
}

/// What one message of a piece came to, where it is aside: the message in a slot's stream, or who died of it.
pub(super) enum Apart {
    Written { sequence: u64, slot: usize, at: u64 },
    Killed { sequence: u64, reason: String, text: String },
}

impl Apart {
    pub(super) fn sequence(&self) -> u64 {
        match self {
            Self::Written { sequence, .. } | Self::Killed { sequence, .. } => *sequence,
        }
    }
}

impl Answered {
    pub(super) fn from_wire(slot: usize, sequence: u64, answer: &Answer<'_>, recent: &VecDeque<u64>) -> Self {
        let between = recent.iter().copied().filter(|at| (answer.output_first..sequence).contains(at)).collect();
        Self {
            between,
            slot,
            sequence,
            first: answer.task.first,
            next: answer.task.next,
            output_first: answer.output_first,
            outputs: answer.outputs.iter().collect(),
            aside: answer.aside.iter().collect(),
            gaps: answer.gaps.iter().map(Gap::from_wire).collect(),
            killed: None,
            kept: answer.kept.iter().collect(),
            waiting: Waiting { messages: answer.waits, oldest: answer.oldest, due: answer.due },
        }
    }

    pub(super) fn killed(todo: &Todo, reason: &str, text: &str) -> Self {
        Self {
            slot: usize::MAX,
            sequence: 0,
            first: todo.first,
            next: todo.next,
            output_first: 0,
            outputs: vec![0; (todo.next - todo.first) as usize],
            aside: Vec::new(),
            gaps: Vec::new(),
            killed: Some((reason.to_owned(), text.to_owned())),
            between: Vec::new(),
            kept: Vec::new(),
            waiting: Waiting::default(),
        }
    }

    /// One output for each message, all in a row.
    pub(super) fn is_plain(&self) -> bool {
        self.outputs.is_empty() && self.aside.is_empty() && self.between.is_empty() && self.killed.is_none()
    }

    /// Where its outputs lie that are of no message.
    pub(super) fn of_time(&self) -> impl Iterator<Item = u64> {
        (self.output_first..self.outputs_end()).filter(|at| !self.between.contains(at))
    }

    /// Behind the last of its outputs.
    pub(super) fn outputs_end(&self) -> u64 {
        let made = if self.outputs.is_empty() {
            self.next - self.first
        } else {
            self.outputs.iter().filter(|n| **n < SAME).map(|n| u64::from(*n)).sum()
        };
        self.between.iter().fold(self.output_first + made, |end, at| end + u64::from(*at < end))
    }

    /// True if a message of the slot's stream was made for it.
    pub(super) fn holds(&self, sequence: u64) -> bool {
        self.killed.is_none() && (self.output_first..self.outputs_end()).contains(&sequence)
    }

    /// True if it lets a message of the input go on as it is.
    pub(super) fn lets_pass(&self, sequence: u64) -> bool {
        let at = sequence.checked_sub(self.first).and_then(|at| self.outputs.get(at as usize));
        self.killed.is_none() && at == Some(&SAME)
    }
}
