//! Relays: the runner of a live sink ([`LiveSink`]). It reads the inputs as a counted reader, so that their sources
//! wait, and moves these positions behind acknowledged messages.
//!
//! Order of each commit: the sink reports what the outside has acknowledged; messages that it cannot send are appended
//! to `SINK.aside`; the commit (account, state) is appended to `SINK.commits`; once all that is as safe as the inputs
//! are, the positions move. A disk stream is read up to the mark `disk`, so that no power cut removes a sent message;
//! with `early` a commit waits for the mark instead.
//!
//! Constraints: a step never waits for the disk; no lock, copy or allocation per message; bounded memory. Between steps
//! the runner sleeps until an input has a message, the sink's descriptor is readable, or a time has come.
//!
//! Failure behaviour: a restart resumes from the newest commit and offers later messages again, in order. Messages that
//! retention has deleted are lost. Without room for a commit the positions stay, and the next step retries.

mod inlet;

use crate::aside::{self, Like, Unhandled};
use crate::book::{Book, Keeps, newest_commit};
use crate::commits::commits_of;
use crate::data::{Data, aside_of, each_batch, unwritten};
use crate::limits::{
    ASIDE_BYTES, BOOK_HISTORY_BYTES, RELAY_COMMIT_PAUSE, RELAY_GAPS_MAX, RELAY_INPUTS_MAX, RELAY_MARK_PAUSE,
    RELAY_ROOM_PAUSE,
};
use crate::live::{Confirmed, LiveSink, Refused};
use crate::records::{Commit, Gap, Input};
use crate::{Aside, Fault, Passes, Step};
use inlet::Inlet;
use serde_json::Value;
use std::collections::{BTreeSet, VecDeque};
use std::os::fd::RawFd;
use std::time::Duration;
use store::{Check, Level, Writer};

/// How a relay reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayOptions {
    /// Send messages of disk streams before they are marked: sooner, and after a power cut the outside may have
    /// messages that the stream has no more.
    pub early: bool,
}

/// A message to set aside.
struct Apart {
    input: usize,
    sequence: u64,
    reason: &'static str,
}

/// A commit on its way to the book.
struct Pending {
    commit: Commit,
    /// Messages to set aside before the commit is appended.
    apart: VecDeque<Apart>,
    /// Sequence in the book, once it is there.
    appended: Option<u64>,
}

/// A live sink at work.
pub struct Relay {
    data: Data,
    name: String,
    sink: Box<dyn LiveSink>,
    inputs: Vec<Inlet>,
    early: bool,
    book: Book,
    /// Number of the next commit.
    block: u64,
    /// The state in the newest commit.
    state: String,
    aside: Option<Writer>,
    /// Stream, epoch and sequence of the messages in `SINK.aside` that no commit counts yet: a relay before this one
    /// put them there.
    known_aside: BTreeSet<(String, u32, u64)>,
    /// From which sequence on they are there.
    known_from: u64,
    pending: Option<Pending>,
    /// When the sink was last asked for what is confirmed, ns of `Media::clock`.
    asked: i64,
    offered: Vec<Aside>,
    no_room: Option<Fault>,
}

impl Relay {
    /// Opens the inputs and the book of the sink `name`, and starts the sink from the newest commit. From here on the
    /// sources of the inputs wait for the sink, also if the outside is away and this fails. `now` in ns since 1970 UTC.
    pub fn open(
        data: &Data,
        name: &str,
        inputs: &[String],
        sink: Box<dyn LiveSink>,
        options: RelayOptions,
        now: i64,
    ) -> Result<Self, Fault> {
        let opened = Self::open_and_start(data, name, inputs, sink, options, now);
        opened.map_err(|fault| of_sink(name, fault))
    }

    fn open_and_start(
        data: &Data,
        name: &str,
        inputs: &[String],
        sink: Box<dyn LiveSink>,
        options: RelayOptions,
        now: i64,
    ) -> Result<Self, Fault> {
        if inputs.is_empty() || inputs.len() > RELAY_INPUTS_MAX {
            let cause = format!("it has {} inputs, one to {RELAY_INPUTS_MAX} are possible", inputs.len());
            return Err(Fault::new(format!("sink `{name}` cannot work"), cause));
        }
        let book_name = commits_of(name);
        let book = Book::open_settled(data, &book_name, Keeps::Newest(BOOK_HISTORY_BYTES))?;
        let last = newest_commit(data, &book_name, &mut |_| true)?;
        if last.as_ref().is_some_and(|commit| !commit.run.is_empty()) {
            let fault =
                Fault::new(format!("sink `{name}` cannot work"), format!("`{book_name}` is that of files of runs"));
            return Err(fault.hint("give the sink another name"));
        }
        let known = last.as_ref().map_or(&[][..], |commit| &commit.inputs);
        let check = if sink.looks_at_payloads() { Check::All } else { Check::Entries };
        let open = |stream: &String| Inlet::open(data, name, stream, known, (options.early, check));
        let open = inputs.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        // The source of a stream that is no input any more need not wait; one that is gone has no position.
        let former = last.iter().flat_map(|commit| &commit.inputs).filter(|known| !inputs.contains(&known.stream));
        former.for_each(|known| drop(data.release(&known.stream, name)));
        let mut relay = Self {
            data: data.clone(),
            name: name.to_owned(),
            sink,
            inputs: open,
            early: options.early,
            book,
            block: last.as_ref().map_or(0, |commit| commit.block + 1),
            state: last.as_ref().map_or_else(String::new, |commit| commit.state.clone()),
            aside: None,
            known_aside: BTreeSet::new(),
            known_from: 0,
            pending: None,
            asked: data.media.clock(),
            offered: Vec::new(),
            no_room: None,
        };
        let is_first = last.is_none();
        relay.resume_aside(last.map_or(0, |commit| commit.output_next))?;
        if is_first {
            // The account shows what waits, also while the outside is away.
            if relay.append(&relay.commit(now, Vec::new(), String::new()))?.is_some() {
                relay.book.settle()?;
            }
        }
        relay.sink.start(now, &relay.state)?;
        Ok(relay)
    }

    /// A commit of the accounts as they are. `now` in ns since 1970 UTC.
    fn commit(&self, now: i64, gaps: Vec<Gap>, state: String) -> Commit {
        Commit {
            stage: self.name.clone(),
            run: String::new(),
            block: self.block,
            time: now,
            inputs: self.inputs.iter().map(|input| input.account.clone()).collect(),
            gaps,
            output_first: 0,
            output_next: 0,
            state,
            finished: false,
            totals: None,
        }
    }

    /// Finds the messages that were set aside behind the last commit.
    fn resume_aside(&mut self, from: u64) -> Result<(), Fault> {
        let name = aside_of(&self.name);
        if !self.data.has(&name)? {
            return Ok(());
        }
        self.aside = Some(aside::open(&self.data, &self.name, self.like())?);
        let mut reader = self.data.reader_early(&name)?;
        // One in memory may be another stream since a power cut, which the last commit survived.
        let from = if reader.header().level == Level::Memory { 0 } else { from };
        reader.seek(from.max(reader.bounds().first));
        let (inputs, known) = (&self.inputs, &mut self.known_aside);
        // It may have messages of an earlier stream of the same name and the same sequences.
        let is_of_input = |aside: &wire::bpas::Aside<'_>| {
            inputs.iter().map(|input| input.reader.header()).any(|of| of.name == aside.stream && of.uuid == aside.uuid)
        };
        each_batch(&mut reader, u64::MAX, &mut |batch| {
            let asides = batch.iter().filter_map(|message| wire::bpas::read(message.payload).ok());
            let asides = asides.filter(is_of_input);
            known.extend(asides.map(|aside| (aside.stream.to_owned(), aside.epoch, aside.sequence)));
            Ok(true)
        })?;
        self.known_from = from;
        Ok(())
    }

    /// Level, clock and size of the stream of messages aside.
    fn like(&self) -> Like {
        let level = if self.is_on_disk() { Level::Disk } else { Level::Memory };
        Like { level, clock: self.inputs[0].reader.header().clock, bytes: ASIDE_BYTES }
    }

    /// An input survives a power cut: so does what is committed of it.
    fn is_on_disk(&self) -> bool {
        self.inputs.iter().any(|input| input.reader.header().level == Level::Disk)
    }

    /// Gives messages to the sink, at most one batch of each input, and commits what is confirmed. `now` in ns since
    /// 1970 UTC. After `Step::At` the runner sleeps until that time, or until one of the descriptors of [`Relay::rest`]
    /// is readable.
    pub fn step(&mut self, now: i64) -> Result<Step, Fault> {
        self.give_and_commit(now).map_err(|fault| of_sink(&self.name, fault))
    }

    fn give_and_commit(&mut self, now: i64) -> Result<Step, Fault> {
        self.no_room = None;
        let mut took = false;
        for at in 0..self.inputs.len() {
            took |= self.inputs[at].give(at, self.sink.as_mut(), &mut self.offered)?;
        }
        for at in 0..self.inputs.len() {
            if let Some(frontier) = self.inputs[at].reached() {
                self.sink.reach(at, frontier, self.inputs[at].next);
            }
        }
        let when = self.sink.step(now)?;
        // The step may have made room.
        for (at, input) in self.inputs.iter_mut().enumerate().filter(|(_, input)| input.is_refused()) {
            took |= input.give(at, self.sink.as_mut(), &mut self.offered)?;
        }
        self.settle()?;
        let is_asked = self.pending.is_none() && self.is_due();
        if is_asked {
            self.prepare(now)?;
            self.settle()?;
        }
        if took {
            return Ok(Step::Again);
        }
        Ok(Step::At(when.min(now.saturating_add(self.rest_max(is_asked))).max(now)))
    }

    /// How long the relay may sleep where nothing wakes it, ns. `is_asked`: the sink has said after its last step what
    /// is confirmed.
    fn rest_max(&self, is_asked: bool) -> i64 {
        let is_stuck = |input: &Inlet| input.is_refused() || input.is_under_way() && input.holds_much();
        let is_stuck = self.no_room.is_some() || self.inputs.iter().any(is_stuck);
        let room = if is_stuck { RELAY_ROOM_PAUSE } else { i64::MAX };
        if self.pending.is_some() {
            return if self.no_room.is_some() { room } else { RELAY_MARK_PAUSE };
        }
        if is_asked && !self.inputs.iter().any(Inlet::is_under_way) {
            return room;
        }
        let due = self.asked.saturating_add(RELAY_COMMIT_PAUSE).saturating_sub(self.data.media.clock());
        due.clamp(0, room)
    }

    /// Whether the sink is to be asked for what is confirmed.
    fn is_due(&self) -> bool {
        let clock = self.data.media.clock();
        clock.saturating_sub(self.asked) >= RELAY_COMMIT_PAUSE || self.inputs.iter().any(Inlet::holds_much)
    }

    /// Makes a commit of what is confirmed, if that is more than the last one says.
    fn prepare(&mut self, now: i64) -> Result<(), Fault> {
        self.asked = self.data.media.clock();
        let Confirmed { below, refused, state } = self.sink.confirmed()?;
        for Refused { input, sequence, reason } in refused {
            let Some(inlet) = self.inputs.get_mut(input) else {
                return Err(Fault::new("`confirmed` is wrong", format!("there is no input {input}")));
            };
            inlet.set_aside(Aside { sequence, reason })?;
        }
        let (mut gaps, mut apart) = (Vec::new(), VecDeque::new());
        let mut is_new = state != self.state;
        for (at, input) in self.inputs.iter_mut().enumerate() {
            let below = below.get(at).copied().unwrap_or(0);
            if below > input.next {
                let cause =
                    format!("it confirms message {} of `{}`, which it does not have", below - 1, input.account.stream);
                return Err(Fault::new("`confirmed` is wrong", cause));
            }
            is_new |= input.enter(at, below, &mut gaps, &mut apart);
        }
        if !is_new {
            return Ok(());
        }
        gaps.truncate(RELAY_GAPS_MAX);
        let commit = self.commit(now, gaps, state);
        self.pending = Some(Pending { commit, apart, appended: None });
        Ok(())
    }

    /// Moves the commit on: messages aside, the book, the positions.
    fn settle(&mut self) -> Result<(), Fault> {
        let Some(mut pending) = self.pending.take() else { return Ok(()) };
        let is_settled = self.settle_one(&mut pending)?;
        if !is_settled {
            self.pending = Some(pending);
            return Ok(());
        }
        for input in &mut self.inputs {
            input.reader.commit(input.account.next);
            input.uncommitted = 0;
        }
        self.state = pending.commit.state;
        Ok(())
    }

    /// True once the commit is as safe as the inputs.
    fn settle_one(&mut self, pending: &mut Pending) -> Result<bool, Fault> {
        if self.early && !self.inputs.iter().all(Inlet::is_marked) {
            return Ok(false);
        }
        while let Some(apart) = pending.apart.front() {
            if !self.set_apart(apart, pending.commit.time)? {
                return Ok(false);
            }
            pending.apart.pop_front();
        }
        let on_disk = self.is_on_disk();
        if let Some(aside) = &mut self.aside {
            aside.publish();
            let end = aside.next_sequence();
            if on_disk && !asked(aside, end) {
                return Ok(false);
            }
        }
        let appended = match pending.appended {
            Some(appended) => appended,
            None => {
                self.forget_known();
                let aside_next = self.aside.as_ref().map_or(0, Writer::next_sequence);
                let known = if self.known_aside.is_empty() { aside_next } else { self.known_from };
                (pending.commit.output_first, pending.commit.output_next) = (known, known);
                let Some(appended) = self.append(&pending.commit)? else { return Ok(false) };
                *pending.appended.insert(appended)
            }
        };
        Ok(!on_disk || self.book.wait(appended, Duration::ZERO).unwrap_or(false))
    }

    /// Messages aside that are behind the positions of the new commit are counted by it, or were sent after all.
    fn forget_known(&mut self) {
        let inputs = &self.inputs;
        self.known_aside.retain(|(stream, _, sequence)| {
            let input = inputs.iter().map(|input| &input.account).find(|input| input.stream == *stream);
            input.is_some_and(|input| *sequence >= input.next)
        });
    }

    /// Appends a commit to the book; `None` if there is no room for it now.
    fn append(&mut self, commit: &Commit) -> Result<Option<u64>, Fault> {
        match self.book.append(commit) {
            Ok(sequence) => {
                self.block += 1;
                Ok(Some(sequence))
            }
            Err(fault) if fault.passes == Passes::WithRoom => {
                self.no_room = Some(fault);
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Moves a message aside. False if there is no room for it now.
    fn set_apart(&mut self, apart: &Apart, now: i64) -> Result<bool, Fault> {
        let Apart { input, sequence, reason } = *apart;
        let like = self.like();
        let Inlet { reader, account, .. } = &mut self.inputs[input];
        let epoch = reader.header().epoch_of(sequence);
        if self.known_aside.contains(&(account.stream.clone(), epoch, sequence)) {
            return Ok(true);
        }
        let unhandled = Unhandled {
            stage: &self.name,
            reason,
            text: "",
            stream: &account.stream,
            uuid: account.uuid,
            epoch,
            sequence,
            origin: "",
        };
        let row = unhandled.read(reader, now)?;
        match aside::append(&mut self.aside, &self.data, &self.name, like, &row) {
            Ok(()) => Ok(true),
            Err(fault) if fault.passes == Passes::WithRoom => {
                self.no_room = Some(fault);
                Ok(false)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Ends the sink: it hands over what it has taken and hears acknowledgements for `patience` at most.
    /// [`Relay::close`] then commits them; what is not acknowledged is sent at the next start.
    pub fn stop(&mut self, patience: Duration) -> Result<(), Fault> {
        self.sink.stop(patience).map_err(|fault| of_sink(&self.name, fault))
    }

    /// Commits what the outside has acknowledged, after the last step. True when nothing is left to commit; false while
    /// the book has no room or its mark is missing: call it again after a pause.
    pub fn close(&mut self) -> Result<bool, Fault> {
        self.commit_last().map_err(|fault| of_sink(&self.name, fault))
    }

    fn commit_last(&mut self) -> Result<bool, Fault> {
        self.no_room = None;
        self.settle()?;
        // The commit on its way may say less than the sink knows now.
        if self.pending.is_none() {
            self.prepare(self.data.media.now())?;
            self.settle()?;
        }
        Ok(self.pending.is_none())
    }

    /// Whether the sink needs the frontiers of its inputs.
    pub fn follows_frontiers(&self) -> bool {
        self.sink.follows_frontiers()
    }

    /// The stage that fills input `stream` has come to this source time: the sink gets it with the last message before
    /// it. The caller has read it before this call.
    pub fn advance(&mut self, stream: &str, frontier: i64) -> Result<(), Fault> {
        let input = self.inputs.iter_mut().find(|input| input.account.stream == stream);
        input.map_or(Ok(()), |input| input.advance(frontier)).map_err(|fault| of_sink(&self.name, fault))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Accounts by input, up to the newest commit or the one on its way to the book.
    pub fn accounts(&self) -> impl Iterator<Item = &Input> {
        self.inputs.iter().map(|input| &input.account)
    }

    /// All that the inputs hold is acknowledged and committed.
    pub fn is_idle(&self) -> bool {
        self.pending.is_none() && self.inputs.iter().all(Inlet::is_at_end)
    }

    /// Whether the outside has left: see [`LiveSink::has_left`].
    pub fn has_left(&self) -> bool {
        self.sink.has_left()
    }

    /// The fault that keeps messages from the outside, where it is more than ordinary waiting.
    pub fn trouble(&self) -> Option<Fault> {
        let unwritten = || unwritten(self.book.writer(), "the streams keep what is not committed");
        let fault = self.no_room.clone().or_else(unwritten).or_else(|| self.sink.trouble())?;
        Some(of_sink(&self.name, fault))
    }

    /// How the sink does: see [`LiveSink::status`].
    pub fn status(&self) -> Value {
        self.sink.status()
    }

    /// Before the runner sleeps: calls `arm` with a number and a descriptor for each input, and for the sink, whose
    /// descriptor is to be waited for once. An input whose descriptor the runner waits for already is left out, and one
    /// whose messages the sink does not take.
    pub fn rest(&mut self, arm: &mut dyn FnMut(usize, RawFd)) -> Result<(), Fault> {
        for (at, input) in self.inputs.iter_mut().enumerate() {
            if let Some(descriptor) = input.rest()? {
                arm(at, descriptor);
            }
        }
        if let Some(descriptor) = self.sink.descriptor() {
            arm(self.inputs.len(), descriptor);
        }
        Ok(())
    }

    /// The descriptor of this number was readable.
    pub fn woken(&mut self, at: usize) {
        if let Some(input) = self.inputs.get_mut(at) {
            input.woken();
        }
    }
}

/// A fault of the sink or of what it needs, with its name.
fn of_sink(name: &str, fault: Fault) -> Fault {
    fault.of_stage("sink", name)
}

/// Whether a disk stream is marked up to `end`; the disk is asked for it.
fn asked(writer: &mut Writer, end: u64) -> bool {
    writer.mark(Level::Disk) >= end || writer.wait(end, Level::Disk, Duration::ZERO).unwrap_or(false)
}

/// Whether a reason says that a message is left out by the sink's own policy.
fn is_skip(reason: &str) -> bool {
    reason.starts_with("skipped.")
}

/// Adds what is missing of an input to the gaps of the next commit.
fn note(gaps: &mut Vec<Gap>, stream: &str, first: u64, next: u64, reason: &str) {
    Gap::sequences(stream, first..=next - 1, reason).add_to(gaps);
}
