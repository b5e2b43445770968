//! One input of a relay: messages given to the sink, missing ranges, and how far the outside has acknowledged.
//!
//! Constraints: memory is bounded ([`RELAY_LOST_MAX`] ranges, [`RELAY_ASIDES_MAX`] messages to set aside); at these
//! numbers it reads no further until an earlier message is acknowledged.

use super::{Apart, is_skip, note};
use crate::data::{Data, stream_fault};
use crate::limits::{RELAY_ASIDES_MAX, RELAY_BATCH_MESSAGES, RELAY_LOST_MAX};
use crate::live::{LiveBatch, LiveSink};
use crate::records::{Gap, Input as Account, reason_of};
use crate::{Aside, Fault};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use store::{Check, Kind, Level, Missing, ReadOptions, Reader, Stretch, Watch};

/// Messages that can no longer be read and are in no commit yet.
struct Lost {
    first: u64,
    next: u64,
    reason: &'static str,
}

pub(super) struct Inlet {
    pub(super) reader: Reader,
    /// The account up to what is confirmed.
    pub(super) account: Account,
    /// One past the newest message that the sink has taken or that is known to be missing.
    pub(super) next: u64,
    /// Bytes of payloads that were taken since the last commit.
    pub(super) uncommitted: u64,
    /// So many messages are offered at once: twice as many as were taken last.
    most: usize,
    lost: VecDeque<Lost>,
    /// Messages that are not sent, by sequence, with the reason.
    aside: BTreeMap<u64, &'static str>,
    origins: Vec<String>,
    /// Rows of the table of origins that were asked for.
    rows: usize,
    epochs: Vec<(u32, u64)>,
    /// There are messages that the sink, or the relay, has no room for now.
    is_refused: bool,
    /// Becomes readable with the next message; opened at the first rest.
    watch: Option<Watch>,
    /// The message for which the watch waits, and the runner waits for its descriptor.
    awaited: Option<u64>,
    /// The frontier of the stage that fills the stream, and one past the messages that it had published then.
    coming: Option<(i64, u64)>,
}

impl Inlet {
    /// Opens an input where its last commit stands; a stream that none speaks of, with its oldest message, or where a
    /// relay before the first commit began.
    pub(super) fn open(
        data: &Data,
        sink: &str,
        stream: &str,
        known: &[Account],
        (early, check): (bool, Check),
    ) -> Result<Self, Fault> {
        let name = sink.to_owned();
        let options = ReadOptions { name, kind: Kind::Counted, check, early, ..ReadOptions::default() };
        let mut reader = data.reader(stream, options)?;
        let header = reader.header();
        let account = match Account::resume(known, stream, header) {
            Some(known) => {
                let mut account = known.clone();
                account.step_back(header);
                account
            }
            None => Account::begin(stream, header, reader.position()),
        };
        let (next, epochs) = (account.next, header.epochs.clone());
        reader.seek(next);
        reader.commit(next);
        Ok(Self {
            reader,
            account,
            next,
            uncommitted: 0,
            most: RELAY_BATCH_MESSAGES,
            lost: VecDeque::new(),
            aside: BTreeMap::new(),
            origins: Vec::new(),
            rows: 0,
            epochs,
            is_refused: false,
            watch: None,
            awaited: None,
            coming: None,
        })
    }

    /// Offers the next messages to the sink. True if there may be more of them at once.
    pub(super) fn give(
        &mut self,
        number: usize,
        sink: &mut dyn LiveSink,
        offered: &mut Vec<Aside>,
    ) -> Result<bool, Fault> {
        self.is_refused = self.lost.len() >= RELAY_LOST_MAX || self.aside.len() >= RELAY_ASIDES_MAX;
        if self.is_refused {
            return Ok(false);
        }
        loop {
            self.learn_epochs()?;
            self.reader.seek(self.next);
            let Self { reader, account, origins, epochs, .. } = self;
            let batch = match reader.next(self.most).map_err(|e| stream_fault(&account.stream, e))? {
                Stretch::Messages(batch) if batch.is_empty() => {
                    reader.refresh().map_err(|e| stream_fault(&account.stream, e))?;
                    return Ok(false);
                }
                Stretch::Messages(batch) => batch,
                Stretch::Missing(missing) => {
                    self.lose(&missing);
                    return Ok(true);
                }
            };
            let row = batch.entries.iter().map(|entry| entry.origin as usize).max().unwrap_or(0);
            if row >= self.rows {
                self.learn_origins(row);
                continue;
            }
            offered.clear();
            let live = LiveBatch { stream: &account.stream, uuid: account.uuid, messages: &batch, epochs, origins };
            let took = sink.write(number, &live, offered)?;
            let Some(taken) = batch.entries.get(..took) else {
                let cause = format!("it took {took} of {} messages of `{}`", batch.len(), account.stream);
                return Err(Fault::new("`write` is wrong", cause));
            };
            self.uncommitted += taken.iter().map(|entry| u64::from(entry.length)).sum::<u64>();
            self.next += took as u64;
            self.most = (took * 2).clamp(1, RELAY_BATCH_MESSAGES);
            self.is_refused = took == 0;
            offered.drain(..).try_for_each(|aside| self.set_aside(aside))?;
            return Ok(took > 0);
        }
    }

    /// The stage that fills the stream has come to this source time, and what it has published until then is there.
    pub(super) fn advance(&mut self, frontier: i64) -> Result<(), Fault> {
        if self.coming.is_none() {
            self.reader.refresh().map_err(|e| stream_fault(&self.account.stream, e))?;
            self.coming = Some((frontier, self.reader.bounds().count));
        }
        Ok(())
    }

    /// The frontier up to which the sink has taken all, once where it has moved on.
    pub(super) fn reached(&mut self) -> Option<i64> {
        self.coming.take_if(|(_, count)| self.next >= *count).map(|(frontier, _)| frontier)
    }

    /// Keeps a message that is not sent until it is committed.
    pub(super) fn set_aside(&mut self, Aside { sequence, reason }: Aside) -> Result<(), Fault> {
        if !(self.account.next..self.next).contains(&sequence) {
            let cause =
                format!("it sets message {sequence} of `{}` aside, which it does not have", self.account.stream);
            return Err(Fault::new("a message cannot be set aside", cause));
        }
        self.aside.insert(sequence, reason);
        Ok(())
    }

    /// The names of origins, once a message has one of a row that is not known. A table that is damaged has no name for
    /// it, and is not read again for each message.
    fn learn_origins(&mut self, row: usize) {
        if let Ok(names) = self.reader.origins() {
            self.origins = names.to_vec();
        }
        self.rows = self.origins.len().max(row + 1);
    }

    /// The epochs of the stream, where a recovery has begun one. One that has cut messages which the sink has taken
    /// makes the relay open again.
    fn learn_epochs(&mut self) -> Result<(), Fault> {
        let header = self.reader.header();
        if header.epochs == self.epochs {
            return Ok(());
        }
        let known = self.epochs.iter().rev().find(|epoch| epoch.1 < self.next.max(1)).map_or(0, |epoch| epoch.0);
        if let Err(e) = header.check_identity(known, self.next) {
            return Err(stream_fault(&self.account.stream, e));
        }
        self.epochs.clone_from(&header.epochs);
        Ok(())
    }

    /// Passes over messages that cannot be read.
    fn lose(&mut self, missing: &Missing) {
        let (first, next, reason) = (missing.first, missing.next, reason_of(missing));
        match self.lost.back_mut() {
            Some(last) if last.next == first && last.reason == reason => last.next = next,
            _ => self.lost.push_back(Lost { first, next, reason }),
        }
        self.next = next;
    }

    /// Enters into the account what is confirmed: all that the sink has taken below `below`, and what is missing beside
    /// it. True if that is more than before.
    pub(super) fn enter(
        &mut self,
        number: usize,
        below: u64,
        gaps: &mut Vec<Gap>,
        apart: &mut VecDeque<Apart>,
    ) -> bool {
        let first = self.account.next;
        let mut end = below.max(first);
        let mut others = 0;
        let counts = &mut self.account.counts;
        while let Some(lost) = self.lost.front().filter(|lost| lost.first <= end) {
            let count = lost.next - lost.first;
            *counts.entry(format!("lost.{}", lost.reason)).or_default() += count;
            note(gaps, &self.account.stream, lost.first, lost.next, lost.reason);
            (others, end) = (others + count, end.max(lost.next));
            self.lost.pop_front();
        }
        let later = self.aside.split_off(&end);
        for (sequence, reason) in std::mem::replace(&mut self.aside, later) {
            others += 1;
            if is_skip(reason) {
                *counts.entry(reason.to_owned()).or_default() += 1;
                continue;
            }
            *counts.entry(format!("aside.{reason}")).or_default() += 1;
            apart.push_back(Apart { input: number, sequence, reason });
        }
        self.account.done += end - first - others;
        self.account.stand_at(end, self.reader.header());
        end > first
    }

    /// What no commit covers yet takes a quarter of a memory stream or more: its source may have to wait for the next
    /// commit.
    pub(super) fn holds_much(&self) -> bool {
        let header = self.reader.header();
        header.level == Level::Memory && self.uncommitted >= header.segment_bytes * 2
    }

    /// All that is entered is marked.
    pub(super) fn is_marked(&self) -> bool {
        self.reader.header().level == Level::Memory || self.account.next <= self.reader.bounds().disk
    }

    /// All that the stream holds is entered.
    pub(super) fn is_at_end(&self) -> bool {
        self.account.next >= self.reader.bounds().count
    }

    /// The sink has messages that are not entered yet.
    pub(super) fn is_under_way(&self) -> bool {
        self.account.next < self.next
    }

    /// There are messages without room now: its next message is nothing to wait for.
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Before the runner sleeps: a descriptor that becomes readable with the next message, if the runner does not wait
    /// for it already.
    pub(super) fn rest(&mut self) -> Result<Option<RawFd>, Fault> {
        if self.is_refused || self.awaited == Some(self.next) {
            return Ok(None);
        }
        let Self { reader, watch, account, .. } = self;
        let fault = |e| stream_fault(&account.stream, e);
        reader.seek(self.next);
        let watch = match watch {
            Some(watch) => watch,
            None => watch.insert(reader.watch().map_err(fault)?),
        };
        watch.rest(reader).map_err(fault)?;
        self.awaited = Some(self.next);
        Ok(Some(watch.as_fd().as_raw_fd()))
    }

    /// The runner does not wait for the descriptor any more.
    pub(super) fn woken(&mut self) {
        self.awaited = None;
    }
}
