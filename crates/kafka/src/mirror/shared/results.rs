//! The sink that returns the results of a worker on one of its hosts, block by block.
//!
//! It reads the commits of the worker, its output and its messages aside. The worker makes a commit at the end of each
//! block ([`store::flags::BLOCK`]), which says how far its output has come and what was not done, so the results of a
//! block are what lies between two commits.
//!
//! Constraints: a payload is copied once, into its record. Results that wait for their transaction have a bound, and so
//! have those of one block: more of them are lost, and counted as `lost.size`.
//!
//! Failure behaviour: where the sink starts again, and where commits do not tell which results belong to a block, all
//! blocks that are here are given up, and worked on by whoever gets their partitions.

use super::ends::Ends;
use super::record::{Content, ResultKey};
use super::table::{Counts, Entry};
use super::transaction::{Finished, Returns};
use crate::limits::{REST, RESULTS_BLOCKS_MAX, RESULTS_BYTES_MAX};
use flow::limits::{BLOCK_BYTES, CARRIED_BYTES_MAX};
use flow::mirror::payload_sum;
use flow::records::Commit;
use flow::{Aside, Confirmed, Fault, LiveBatch, LiveSink};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;
use store::{BlockBuilder, BlockHead, Message, beat, flags};

/// An input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    Commits,
    Output,
    Aside,
}

impl Input {
    /// The input of a number.
    fn of(input: usize) -> Self {
        match input {
            0 => Self::Commits,
            1 => Self::Output,
            _ => Self::Aside,
        }
    }
}

/// One past the newest message of each input that was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Places {
    commits: u64,
    output: u64,
    aside: u64,
}

/// The sink.
pub(crate) struct Results {
    ends: Arc<Ends>,
    name: String,
    returns: Option<Returns>,
    /// Commits of which the results are not all here, oldest first.
    commits: VecDeque<Step>,
    /// How far the worker was in its input with the newest commit that was applied, and its counts then.
    applied: (u64, Counts),
    /// Messages aside that belong to no block yet, with their sequences. The worker has set a message aside once its
    /// count is above the sequence.
    aside: VecDeque<(u64, Vec<u8>)>,
    /// Results of which no commit speaks yet.
    beyond: Beyond,
    taken: Places,
    block: Making,
    /// Blocks under way.
    under_way: usize,
    bytes: usize,
    messages: u64,
}

/// Which results belong to the block that is being made, though no commit speaks of them yet: one message may have more
/// of them than the output holds, and the worker makes no commit before it has shown them all.
///
/// A commit is appended before any result behind it is shown. The relay offers the commits that were there when it last
/// found none, so it has offered all of before a moment once it has found none twice since then.
#[derive(Default)]
struct Beyond {
    /// How far the output was offered, now and at the end of the last steps, newest first.
    seen: u64,
    before: [u64; 3],
    /// A commit was offered in this step; the number of steps before it in which none was.
    has_commit: bool,
    quiet: u32,
}

impl Beyond {
    /// One past the newest result that belongs to no later block than the present one.
    fn end(&self) -> u64 {
        if self.quiet >= 2 { self.before[2] } else { 0 }
    }

    /// A step of the relay ends.
    fn step(&mut self) {
        self.quiet = if self.has_commit { 0 } else { self.quiet.saturating_add(1) };
        self.before = [self.seen, self.before[0], self.before[1]];
        self.has_commit = false;
    }
}

/// A commit of the worker.
struct Step {
    /// All messages of the input below are done.
    input: u64,
    /// One past the newest message of the output that belongs to them.
    output: u64,
    counts: Counts,
}

impl Step {
    /// That of a commit; none of one that has no input.
    fn of(commit: &Commit) -> Option<Self> {
        let input = commit.inputs.first().filter(|_| commit.run.is_empty())?;
        // Other counts are of messages that are not dealt with yet.
        let counts = input.counts.iter().filter(|(name, _)| name.contains('.'));
        let counts = counts.map(|(name, n)| (name.clone(), *n)).collect();
        Some(Self { input: input.next, output: commit.output_next, counts })
    }

    /// Messages that the worker had set aside by then.
    fn aside(&self) -> u64 {
        let of_aside = self.counts.iter().filter(|(name, _)| name.starts_with("aside."));
        of_aside.fold(0, |sum, (_, n)| sum.saturating_add(*n))
    }
}

/// The results of a block so far.
#[derive(Default)]
struct Making {
    builder: BlockBuilder,
    /// Complete records.
    records: Vec<(Content, Vec<u8>)>,
    /// Results in those and in the builder.
    count: u64,
    is_begun: bool,
    counts: Counts,
    /// Its results are more than can be returned: they are lost.
    is_too_large: bool,
}

impl Results {
    pub(crate) fn new(ends: Arc<Ends>) -> Self {
        let name = format!("{}.out", ends.shared.name);
        Self {
            ends,
            name,
            returns: None,
            commits: VecDeque::new(),
            applied: Default::default(),
            aside: VecDeque::new(),
            beyond: Beyond::default(),
            taken: Places::default(),
            block: Making::default(),
            under_way: 0,
            bytes: 0,
            messages: 0,
        }
    }

    /// Applies the commits whose results are all here.
    fn apply(&mut self) -> Result<(), Fault> {
        self.close_empty()?;
        while let Some(step) = self.commits.front() {
            let aside = step.aside();
            if step.output > self.taken.output || aside > self.taken.aside {
                return Ok(());
            }
            let Some(Step { input, counts, .. }) = self.commits.pop_front() else { return Ok(()) };
            for (name, n) in &counts {
                let before = self.applied.1.get(name).copied().unwrap_or(0);
                if *n > before {
                    *self.block.counts.entry(name.clone()).or_default() += n - before;
                }
            }
            while self.aside.front().is_some_and(|(sequence, _)| *sequence < aside) {
                self.aside.pop_front().into_iter().for_each(|(_, payload)| self.block.set_aside(payload));
            }
            self.ends.table().apply(input, &counts);
            self.applied = (input, counts);
            loop {
                let front = self.ends.table().front();
                let Some(entry) = front.filter(|entry| entry.next <= input) else { break };
                if entry.next < input && entry.first < entry.next {
                    // A commit across the end of a block: which results are whose is not known, so nobody gets them.
                    self.ends.table().set_broken();
                }
                self.close(entry)?;
            }
        }
        Ok(())
    }

    /// Closes the blocks of which no message is in the input, up to the newest commit: the results that are here are
    /// those of the next one.
    fn close_empty(&mut self) -> Result<(), Fault> {
        loop {
            let front = self.ends.table().front();
            let is_empty = |entry: &Entry| entry.first == entry.next && entry.next <= self.applied.0;
            let Some(entry) = front.filter(is_empty) else { return Ok(()) };
            let present = std::mem::take(&mut self.block);
            self.close(entry)?;
            self.block = present;
        }
    }

    /// Hands over the results of the oldest block, which are complete.
    fn close(&mut self, entry: Entry) -> Result<(), Fault> {
        let records = std::mem::take(&mut self.block).end(&entry);
        let finished = Finished { entry, records };
        self.bytes += finished.bytes();
        self.under_way += 1;
        self.ends.table().close();
        match &self.returns {
            Some(returns) => returns.give(finished),
            None => Err(Fault::new(format!("sink `{}` has not started", self.name), "")),
        }
    }

    /// Whether a result is known to belong to no later block than the one that is made.
    fn is_of_block(&mut self, sequence: u64) -> Result<bool, Fault> {
        let known = self.commits.back().map_or(0, |step| step.output).max(self.taken.output);
        if sequence >= known.max(self.beyond.end()) {
            return Ok(false);
        }
        let is_behind = |step: &Step| step.output <= sequence;
        if self.commits.front().is_some_and(is_behind) {
            self.apply()?;
        }
        // It waits for a message aside.
        Ok(!self.commits.front().is_some_and(is_behind))
    }

    fn receive_done(&mut self) {
        let Some(returns) = &self.returns else { return };
        for bytes in returns.done() {
            self.bytes = self.bytes.saturating_sub(bytes);
            self.under_way = self.under_way.saturating_sub(1);
        }
    }
}

impl LiveSink for Results {
    fn start(&mut self, _now: i64, _: &str) -> Result<(), Fault> {
        // The thread of a sink before this one has ended with it.
        self.returns = Some(Returns::start(&self.ends, &self.name)?);
        self.applied = self.ends.table().begin_sink();
        Ok(())
    }

    fn write(&mut self, input: usize, batch: &LiveBatch<'_>, _: &mut Vec<Aside>) -> Result<usize, Fault> {
        let (mut count, from) = (0, Input::of(input));
        // While transactions fail the worker waits, too.
        if self.bytes > RESULTS_BYTES_MAX || self.under_way > RESULTS_BLOCKS_MAX {
            return Ok(0);
        }
        for message in batch.iter() {
            let next = message.sequence + 1;
            match from {
                Input::Commits => {
                    self.beyond.has_commit = true;
                    self.commits.extend(Step::of(&Commit::read(message.payload)?));
                    self.taken.commits = next;
                }
                Input::Output => {
                    if !self.is_of_block(message.sequence)? {
                        break;
                    }
                    self.block.push(&message, batch.origin(&message), batch);
                    self.messages += 1;
                    self.taken.output = next;
                }
                Input::Aside => {
                    self.aside.push_back((message.sequence, message.payload.to_vec()));
                    self.taken.aside = next;
                }
            }
            count += 1;
        }
        if from == Input::Output {
            let end = batch.iter().last().map_or(0, |message| message.sequence + 1);
            self.beyond.seen = self.beyond.seen.max(end);
        }
        self.apply()?;
        Ok(count)
    }

    fn step(&mut self, now: i64) -> Result<i64, Fault> {
        self.receive_done();
        self.apply()?;
        self.beyond.step();
        Ok(now.saturating_add(REST))
    }

    fn confirmed(&mut self) -> Result<Confirmed, Fault> {
        self.receive_done();
        // They are copied; a sink that starts again gives up the blocks that are here.
        let Places { commits, output, aside } = self.taken;
        Ok(Confirmed { below: vec![commits, output, aside], ..Confirmed::default() })
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.returns.as_ref().map(Returns::descriptor)
    }

    fn status(&self) -> Value {
        let table = self.ends.table();
        json!({
            "messages": self.messages,
            "waiting": self.under_way,
            "returned": table.returned,
            "dropped": table.dropped,
        })
    }

    fn trouble(&self) -> Option<Fault> {
        self.returns.as_ref()?.trouble()
    }
}

impl Making {
    /// Bytes of its records.
    fn bytes(&self) -> usize {
        self.records.iter().map(|(_, record)| record.len()).sum::<usize>() + self.builder.bytes()
    }

    /// Adds a message of the output.
    fn push(&mut self, message: &Message<'_>, origin: &str, batch: &LiveBatch<'_>) {
        let len = message.payload.len();
        if self.is_too_large || self.bytes() + len + 2 * BLOCK_BYTES > CARRIED_BYTES_MAX {
            *self = Self { is_too_large: true, counts: std::mem::take(&mut self.counts), ..Self::default() };
            return;
        }
        if self.is_begun && !self.builder.has_room(len, origin, BLOCK_BYTES) {
            self.end_record();
        }
        if !self.is_begun {
            self.builder.begin([0; 16], 0, self.count, Vec::new());
            self.is_begun = true;
        }
        let of = batch.identity(message);
        let sum = payload_sum(message, (of.uuid, of.epoch));
        let entry = store::Entry { flags: message.entry.flags & !flags::BLOCK, ..*message.entry };
        self.builder.push(&entry, sum, origin, message.payload);
        self.count += 1;
    }

    fn end_record(&mut self) {
        let first = self.builder.first();
        let (_, bytes) = self.builder.end(first, i64::MIN);
        self.records.push((Content::Output, bytes));
        self.is_begun = false;
    }

    /// Adds a message that the worker has set aside: it is a record. One for which there is no room is only counted.
    fn set_aside(&mut self, payload: Vec<u8>) {
        if self.bytes() + payload.len() + BLOCK_BYTES <= CARRIED_BYTES_MAX {
            self.records.push((Content::Aside, payload));
        }
    }

    /// The records of the block: keys and values.
    fn end(mut self, entry: &Entry) -> Vec<(Vec<u8>, Vec<u8>)> {
        if self.is_begun {
            self.end_record();
        }
        if self.is_too_large {
            self.counts = Counts::from([("lost.size".to_owned(), u64::from(entry.head.count))]);
        } else if entry.damaged > 0 {
            *self.counts.entry("lost.damaged".to_owned()).or_default() += entry.damaged;
        }
        if self.records.is_empty() {
            self.records.push((Content::Output, beat(&BlockHead::default())));
        }
        let last = self.records.len() - 1;
        let key = |at: usize, content: Content| ResultKey {
            content,
            is_last: at == last,
            offset: entry.offset,
            life: entry.life,
            read: entry.head.count,
            made: u32::try_from(self.count).unwrap_or(u32::MAX),
            counts: if at == last { self.counts.clone() } else { Counts::new() },
        };
        let keys: Vec<_> =
            self.records.iter().enumerate().map(|(at, (content, _))| key(at, *content).bytes()).collect();
        keys.into_iter().zip(self.records.into_iter().map(|(_, bytes)| bytes)).collect()
    }
}
