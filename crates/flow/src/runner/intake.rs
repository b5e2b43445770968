//! The runner of a source: steps it, appends its messages, accounts for dropped ones.
//!
//! Constraints: all messages of a step are published at its end, at once. The gaps of a step (origin, first, last,
//! from, to) are committed to `NAME.commits` at its end, so the account follows from facts on disk alone. The same
//! commits hold the source's state and the message count that it belongs to; a start returns the newest state whose
//! messages all exist, because after a power cut the book may be ahead of the stream. Such commits are replaced before
//! the first message, or they would be accepted once other messages have those numbers.
//!
//! The book and the stream of what is no message are opened on a thread of their own: a receiver never waits for a
//! disk.
//!
//! The frontier is the clock of the last step that left nothing waiting: runs seal by it, so an idle source does not
//! delay them and a blocked one does. A source that starts on a stream with messages was absent since the last sign of
//! life: a gap that counts nothing.

use crate::aside::{self, Like, Row, Unhandled};
use crate::beside::Beside;
use crate::book::{Book, Keeps};
use crate::commits::commits_of;
use crate::cuts::cut;
use crate::data::{Data, stream_fault, unwritten};
use crate::limits::{
    ASIDE_BYTES, BOOK_HISTORY_BYTES, BOOK_IDLE, HELD_PATIENCE, SOURCE_ASIDE_BYTES, STATE_PAUSE, STRAYS_MAX,
    STRAYS_OF_WORKER_MAX, TABLE_PAUSE, TOTALS_CREDIT_MAX, TOTALS_RATE, TOTALS_SHARE, UNMARKED_PAUSE,
};
use crate::origins::Origins;
use crate::records::{Commit, Gap, Totals};
use crate::room::{Blocked, Refusal};
use crate::totals::{self, Entries};
use crate::{Fault, OriginAccounts, Outlet, Passes, Pushed, Silence, Source, Step, StreamView};
use serde_json::Value;
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::os::fd::RawFd;
use std::time::Duration;
use store::{Clock, Drain, Error, Level, Meta, Mirrored, Options, Writer, flags};

/// How a source's stream is kept.
#[derive(Clone, Debug)]
pub struct IntakeOptions {
    /// The stream.
    pub stream: Options,
    /// Further beyond arrival a source time is flagged `ahead`, ns.
    pub ahead_max: i64,
}

/// A source at work on its stream.
pub struct Intake {
    data: Data,
    name: String,
    source: Box<dyn Source>,
    writer: Writer,
    ahead_max: i64,
    origins: Origins,
    /// The stream of input that is no message, once there is some; `strays` is the part that is not in it yet.
    aside: Beside<Writer>,
    strays: Vec<Row>,
    /// The book, while there is something to commit now and then: it has a thread and files.
    commits: Beside<Book>,
    /// When something was committed, ns of `Media::clock`.
    committed: i64,
    /// Commits for which the book has had no room, oldest first: parts of totals are one behind the other in it.
    waiting: VecDeque<Commit>,
    /// Gaps that each table repeats.
    lasting: Vec<Gap>,
    pace: Pace,
    frontier: i64,
    /// The next frontier, once this record of the book is safe.
    coming: Option<(u64, i64)>,
    ended: bool,
    /// A commit says that nothing more will come.
    is_finished: bool,
    no_room: Option<Fault>,
    held: Option<Held>,
    /// The state in the newest commit.
    state: String,
    /// Index entries that the start has read.
    walked: u64,
    /// When the state was last asked for, ns of `Media::clock`.
    asked: i64,
    /// When the source was last stepped, ns of `Media::clock`.
    stepped: i64,
    /// Not all that is to be committed found room.
    is_late: bool,
    /// The last step found no room for a message.
    is_blocked: bool,
    /// The source knows that messages below are safe.
    safe: u64,
}

/// A reader that makes the source wait: its name, its position, and since when (ns of `Media::clock`).
struct Held(String, u64, i64);

struct StreamOutlet<'a> {
    strays: &'a mut Vec<Row>,
    strays_max: usize,
    writer: &'a mut Writer,
    origins: &'a mut Origins,
    name: &'a str,
    latest: i64,
    blocked: Blocked,
    /// All before this step is safe, and the sequence with which the step begins.
    settled: Option<u64>,
}

impl OriginAccounts for StreamOutlet<'_> {
    fn origin(&mut self, name: &str) -> Result<u32, Fault> {
        let row = self.writer.origin(name).map_err(|e| stream_fault(self.name, e))?;
        self.origins.grow(self.writer.origins().len());
        Ok(row)
    }

    fn missing(
        &mut self,
        origin: u32,
        numbers: RangeInclusive<u64>,
        times: RangeInclusive<i64>,
        reason: &str,
    ) -> Result<(), Fault> {
        self.origins.miss(self.name, origin, numbers, times, reason)
    }

    fn count(&mut self, origin: u32, what: &str, n: u64) -> Result<(), Fault> {
        self.origins.refuse(self.name, origin, what, n)
    }
}

impl StreamOutlet<'_> {
    /// Appends a message of `len` bytes with `push`, and accounts for it.
    fn append(
        &mut self,
        meta: &Meta,
        len: usize,
        push: impl FnOnce(&mut Writer, &Meta) -> store::Result<u64>,
    ) -> Result<Pushed, Fault> {
        self.origins.known(self.name, meta.origin)?;
        let mut meta = *meta;
        if meta.source_time > self.latest {
            meta.flags |= flags::AHEAD;
        }
        if let Some(name) = self.origins.begins(meta.origin, meta.origin_seq, self.writer.origins()) {
            let row = self.writer.origin(&name);
            if !self.blocked.begin(self.name, self.origins, meta.origin, row)? {
                return Ok(Pushed::Full);
            }
        }
        meta.origin = self.origins.newest(meta.origin);
        self.enter(&meta, len, push)
    }

    /// Appends a message as it is, and accounts for it.
    fn enter(
        &mut self,
        meta: &Meta,
        len: usize,
        push: impl FnOnce(&mut Writer, &Meta) -> store::Result<u64>,
    ) -> Result<Pushed, Fault> {
        match push(self.writer, meta) {
            Ok(_) => self.origins.see(meta, len),
            Err(e) => match self.blocked.answer(self.name, self.writer.drops(), e)? {
                Refusal::Dropped => self.origins.drop_one(meta),
                Refusal::Waits => return Ok(Pushed::Full),
            },
        }
        Ok(Pushed::Taken)
    }
}

impl Outlet for StreamOutlet<'_> {
    fn push_parts(&mut self, meta: &Meta, parts: &[&[u8]]) -> Result<Pushed, Fault> {
        let len = parts.iter().map(|part| part.len()).sum();
        self.append(meta, len, |writer, meta| writer.push(meta, parts))
    }

    fn push_checked(&mut self, meta: &Meta, payload: &[u8], crc: u32) -> Result<Pushed, Fault> {
        self.append(meta, payload.len(), |writer, meta| writer.push_checked(meta, payload, crc))
    }

    /// Its origins have the names that they have in the near stream, those of later lives too, and its times were
    /// compared with a clock there.
    fn push_mirrored(&mut self, mirrored: &Mirrored, payload: &[u8]) -> Result<Pushed, Fault> {
        self.origins.known(self.name, mirrored.meta.origin)?;
        self.enter(&mirrored.meta, payload.len(), |writer, _| writer.push_mirrored(mirrored, payload))
    }

    fn is_settled(&self) -> bool {
        self.settled == Some(self.writer.next_sequence()) && !self.origins.has_gaps()
    }

    fn missing_near(&mut self, sequences: RangeInclusive<u64>, reason: &str) {
        self.origins.silence(Gap::sequences(self.name, sequences, reason));
    }

    fn next_sequence(&self) -> u64 {
        self.writer.next_sequence()
    }

    fn silent(&mut self, times: RangeInclusive<i64>, why: Silence) {
        self.origins.silence(Gap::interval(self.name, self.writer.next_sequence(), times, why.word()));
    }

    fn aside(&mut self, reason: &str, text: &str, time: i64, bytes: &[u8]) {
        let (uuid, epoch, sequence) = Default::default();
        let unhandled = Unhandled { stage: self.name, reason, text, stream: "", uuid, epoch, sequence, origin: "" };
        let mut row = Row { bytes: Vec::new(), time, number: 0 };
        let is_full = self.strays.len() >= self.strays_max;
        if !is_full && unhandled.encode(&mut row.bytes, "", time, bytes).is_ok() {
            self.strays.push(row);
        }
    }

    fn fill(&self) -> f64 {
        self.writer.fill()
    }
}

impl Intake {
    /// Opens the stream `name` for writing and starts the source where the stream ends. `now` in ns since 1970 UTC.
    pub fn start(
        data: &Data,
        name: &str,
        mut source: Box<dyn Source>,
        options: &IntakeOptions,
        now: i64,
    ) -> Result<Self, Fault> {
        let mut writer = data.writer(name, &options.stream)?;
        // Gaps of before are believed once they are marked, so that no number is given twice.
        let book = commits_of(name);
        if data.has(&book)? {
            Book::settle_closed(data, &book, Keeps::Newest(BOOK_HISTORY_BYTES))?;
        }
        let next = writer.next_sequence();
        let mut entries = totals::read(data, name)?;
        let is_newest = entries.commits.last().is_none_or(|commit| commit.output_next <= next);
        let resume = totals::resume(data, &writer, &entries, source.needs_tail())?;
        source.start(now, &resume).map_err(|fault| of_source(name, fault))?;
        let absence = if source.misses() { absence(data, name, entries.commits.last(), now)? } else { None };
        let clock = data.media.clock();
        // A power cut may take the row of an origin of which the book has gaps.
        for origin in entries.tallies.keys() {
            writer.origin(origin).map_err(|e| stream_fault(name, e))?;
        }
        let mut origins = Origins::new(writer.origins(), &mut entries);
        let new = cut(&writer, u64::MAX);
        let lasting = totals::lasting(&entries, name, new.clone());
        absence.into_iter().chain(new).for_each(|gap| origins.silence(gap));
        let mut intake = Self {
            pace: Pace::new(&writer, &entries, clock),
            data: data.clone(),
            name: name.to_owned(),
            source,
            writer,
            ahead_max: options.ahead_max,
            origins,
            aside: Beside::default(),
            strays: Vec::new(),
            commits: Beside::default(),
            committed: clock,
            waiting: VecDeque::new(),
            lasting,
            frontier: i64::MIN,
            coming: None,
            ended: false,
            is_finished: false,
            no_room: None,
            held: None,
            state: resume.state,
            walked: entries.walked,
            // The state that the start made, such as what the source found, is committed with the first step.
            asked: clock.saturating_sub(STATE_PAUSE),
            stepped: clock,
            is_late: false,
            is_blocked: false,
            safe: 0,
        };
        if !is_newest {
            intake.replace(now)?;
        } else {
            let needs_table = entries.needs_table && next > 0 || entries.walked > intake.pace.segment;
            intake.commit_start(now, needs_table)?;
        }
        Ok(intake)
    }

    /// Commits what the start has found. A start may wait for the disk, a step may not.
    fn commit_start(&mut self, now: i64, needs_table: bool) -> Result<(), Fault> {
        if !needs_table && !self.origins.has_gaps() {
            return Ok(());
        }
        self.write_into(true)?;
        let wanted = if needs_table { Wanted::Table } else { Wanted::Nothing };
        self.is_late = !self.commit(now, false, wanted)?;
        let _ = self.commits.get().map(Book::settle);
        Ok(())
    }

    /// Commits the state and the totals with which the source goes on, in the place of newer ones whose messages a
    /// power cut took.
    fn replace(&mut self, now: i64) -> Result<(), Fault> {
        self.write_into(true)?;
        self.commit(now, false, Wanted::Table)?;
        if !self.settle()? {
            let fault = Fault::new(format!("the state of source `{}` cannot be committed", self.name), "no room");
            return Err(Fault { passes: Passes::WithRoom, ..fault });
        }
        self.commits.get().map_or(Ok(()), Book::settle)
    }

    /// All that was appended and committed is as safe as the stream's level promises, and nothing is left to commit.
    fn is_settled(&mut self) -> bool {
        let newest = self.commits.get().and_then(|book| Some((book.next_sequence().checked_sub(1)?, book)));
        let is_written = self.waiting.is_empty() && !self.origins.has_gaps();
        is_written && newest.is_none_or(|(newest, book)| book.is_safe(newest)) && self.marked()
    }

    /// The source, and where it puts its messages at `now`.
    fn outlet(&mut self, now: i64) -> (&mut dyn Source, StreamOutlet<'_>) {
        let settled = self.is_settled().then(|| self.writer.next_sequence());
        let out = StreamOutlet {
            settled,
            strays: &mut self.strays,
            strays_max: if self.source.sets_aside_for_worker() { STRAYS_OF_WORKER_MAX } else { STRAYS_MAX },
            writer: &mut self.writer,
            origins: &mut self.origins,
            name: &self.name,
            latest: now.saturating_add(self.ahead_max),
            blocked: Blocked::default(),
        };
        (&mut *self.source, out)
    }

    /// Lets the source bring what is due at `now`. After `Step::At(now)` or earlier, `wait` before the next call.
    pub fn step(&mut self, now: i64) -> Result<Step, Fault> {
        let clock = self.data.media.clock();
        let (source, mut out) = self.outlet(now);
        let step = source.step(now, &mut out).map_err(|fault| of_source(out.name, fault))?;
        let Blocked { is_blocked, no_room, behind } = out.blocked;
        self.no_room = no_room;
        self.held = match (behind, self.held.take()) {
            (Some(Error::Behind { name, pid, at, lag }), held) => {
                let since = held.filter(|h| (&h.0, h.1) == (&name, at)).map_or(clock, |h| h.2);
                // Not long enough, and it is the ordinary course.
                if clock.saturating_sub(since) >= HELD_PATIENCE {
                    let error = Error::Behind { name: name.clone(), pid, at, lag };
                    self.no_room = Some(stream_fault(&self.name, error));
                }
                Some(Held(name, at, since))
            }
            _ => None,
        };
        self.writer.publish();
        (self.stepped, self.is_blocked) = (clock, is_blocked);
        let ends = step == Step::Ended && !self.is_finished;
        let wanted = self.pace.wanted(&self.writer, &mut self.origins, clock);
        let has_news = self.has_news(clock);
        if wanted != Wanted::Nothing || self.origins.has_gaps() || ends || has_news {
            // Refused messages have no time but that of the totals that count them: runs have them by it.
            let is_refused = has_news && self.origins.is_refused();
            let wanted = if ends || is_refused { wanted.max(Wanted::Changed) } else { wanted };
            self.is_late = !self.commit(now, ends, wanted)?;
        } else if self.is_late {
            self.is_late = !self.write()?;
        } else if clock.saturating_sub(self.committed) >= BOOK_IDLE {
            self.commits.close(&self.data);
        }
        self.set_aside(false);
        self.ended = step == Step::Ended;
        let safe = self.safe();
        if safe > self.safe {
            self.source.safe(safe).map_err(|fault| of_source(&self.name, fault))?;
            self.safe = safe;
        }
        let is_idle = !is_blocked && step != Step::Again;
        let reached = if is_idle { self.source.frontier(now) } else { self.source.reached() };
        self.advance(reached);
        Ok(step)
    }

    /// Moves the frontier on, once all that was lost until then can be read in the book: a run must not be sealed
    /// before. A disk that takes nothing holds up no merge: runs are not sealed on it either.
    fn advance(&mut self, reached: i64) {
        let (mut is_short, mut unsafe_newest) = (self.no_room.is_some(), None);
        if let Some(book) = self.commits.get() {
            is_short |= book.writer().trouble().is_some();
            if let Some((_, coming)) = self.coming.take_if(|(sequence, _)| book.is_safe(*sequence)) {
                self.frontier = self.frontier.max(coming);
            }
            unsafe_newest = book.next_sequence().checked_sub(1).filter(|newest| !book.is_safe(*newest));
        }
        match unsafe_newest.filter(|_| !is_short) {
            Some(newest) if !self.is_late => drop(self.coming.get_or_insert((newest, reached))),
            None if !self.is_late || is_short => self.frontier = self.frontier.max(reached),
            _ => {}
        }
    }

    /// Ends the source, and commits its state and what it still says of missing messages. `now` in ns since 1970 UTC.
    pub fn stop(&mut self, now: i64) -> Result<(), Fault> {
        let (source, mut out) = self.outlet(now);
        source.stop(now, &mut out).map_err(|fault| of_source(out.name, fault))?;
        self.set_aside(true);
        self.settle()?;
        // A little of the index is read faster than a book is made.
        let is_long = self.writer.next_sequence().saturating_sub(self.pace.below) >= self.pace.segment;
        let has_totals =
            self.origins.is_refused() || self.origins.is_changed() && (is_long || self.commits.get().is_some());
        if has_totals || self.origins.has_gaps() || self.source.state() != self.state {
            self.write_into(true)?;
            self.commit(now, false, Wanted::Changed)?;
            self.settle()?;
        }
        Ok(())
    }

    /// Asks the source: see [`Source::command`]. A state that the request changed is committed before the answer.
    pub fn command(&mut self, request: &Value) -> Result<Value, Fault> {
        let answer = self.source.command(request).map_err(|fault| of_source(&self.name, fault))?;
        if self.source.state() != self.state {
            self.write_into(true)?;
            self.commit(self.data.media.now(), false, Wanted::Nothing)?;
            self.settle()?;
        }
        Ok(answer)
    }

    /// What the source shows of itself: see [`Source::status`].
    pub fn status(&self) -> Value {
        self.source.status()
    }

    /// Whether there is a state, or there are refused messages, that the newest commit does not say; asked now and
    /// then. `clock`: ns of `Media::clock`.
    fn has_news(&mut self, clock: i64) -> bool {
        if clock.saturating_sub(self.asked) < STATE_PAUSE {
            return false;
        }
        self.asked = clock;
        self.origins.is_refused() || self.source.state() != self.state
    }

    /// Messages below this number are as safe as the stream's level promises.
    fn safe(&self) -> u64 {
        match self.writer.header().level {
            Level::Memory => self.writer.next_sequence(),
            Level::Disk => self.writer.mark(Level::Disk),
        }
    }

    /// Commits gaps, state and, as far as they are wanted or there is room for them, totals. `finished`: nothing more
    /// will come, so that nobody is missed after a restart. False if there is no room for all of it now: the next step
    /// tries again.
    fn commit(&mut self, now: i64, finished: bool, wanted: Wanted) -> Result<bool, Fault> {
        // A source may rely on it that its first state is there before its first message, and a run on the account of
        // one that has ended.
        let waits = finished || self.commits.get().is_none() && self.source.state() != self.state;
        if !self.write_into(waits)? {
            return Ok(false);
        }
        let names = self.writer.origins();
        let is_table = wanted == Wanted::Table;
        let has_totals = is_table
            || self.origins.is_changed()
                && (wanted == Wanted::Changed
                    || self.origins.is_joined()
                    || self.pace.credit >= self.origins.totals_bytes(false, names) as i64);
        let parts = if has_totals { self.origins.totals(is_table, names) } else { vec![Vec::new()] };
        let count = parts.len() as u32;
        let mut gaps = self.origins.gaps(&self.name, names);
        if is_table {
            gaps.extend_from_slice(&self.lasting);
        }
        let (state, inputs) = (self.source.state(), self.source.inputs());
        for (part, rows) in parts.into_iter().enumerate() {
            self.waiting.push_back(Commit {
                stage: self.name.clone(),
                run: String::new(),
                block: 0,
                time: now,
                inputs: inputs.clone(),
                // They are in the first part.
                gaps: std::mem::take(&mut gaps),
                output_first: 0,
                output_next: self.writer.next_sequence(),
                state: state.clone(),
                finished,
                totals: has_totals.then_some(Totals { part: part as u32, parts: count, is_table, rows }),
            });
        }
        if has_totals {
            self.pace.said(self.writer.next_sequence(), is_table, self.data.media.clock());
            self.origins.clear_changed();
        }
        self.origins.clear_gaps();
        self.state = state;
        self.is_finished |= finished;
        if !waits {
            return self.write();
        }
        let is_written = self.settle()?;
        let _ = self.commits.get().map(Book::settle);
        Ok(is_written)
    }

    /// Appends what came and was no message to `NAME.aside`: in memory, and a help for people, which stops nothing if
    /// it fails. `waits`: until that is open.
    fn set_aside(&mut self, waits: bool) {
        if self.strays.is_empty() {
            return;
        }
        let name = self.name.clone();
        let clock = Clock::Epoch;
        let like = match self.source.sets_aside_for_worker() {
            true => Like { level: self.writer.header().level, clock, bytes: ASIDE_BYTES },
            false => Like { level: Level::Memory, clock, bytes: SOURCE_ASIDE_BYTES },
        };
        match self.aside.open(&self.data, waits, move |data| aside::open(data, &name, like)) {
            Ok(None) => {}
            Ok(Some(writer)) => self.strays.drain(..).for_each(|row| {
                let _ = aside::push(writer, &self.name, &row);
            }),
            Err(_) => self.strays.clear(),
        }
    }

    /// Appends the commits that wait to the book. False if there is no room for all of them now, or the book is not
    /// open yet: the account is late, never wrong.
    fn write(&mut self) -> Result<bool, Fault> {
        self.write_into(false)
    }

    /// The same; `waits`: until the book is open.
    fn write_into(&mut self, waits: bool) -> Result<bool, Fault> {
        let name = commits_of(&self.name);
        let open = move |data: &Data| Book::open(data, &name, Keeps::Newest(BOOK_HISTORY_BYTES));
        let book = match self.commits.open(&self.data, waits, open) {
            Ok(Some(book)) => book,
            Ok(None) => return Ok(false),
            // What was dropped for want of room is kept for the next step: there is none for the book either.
            Err(fault) if fault.passes == Passes::WithRoom => {
                self.no_room = Some(fault);
                return Ok(false);
            }
            Err(fault) => return Err(fault),
        };
        while let Some(commit) = self.waiting.front_mut() {
            commit.block = book.next_sequence();
            let before = book.written();
            self.committed = self.data.media.clock();
            match book.append(&*commit) {
                Ok(_) => self.pace.wrote(book.written() - before, commit.totals.as_ref()),
                Err(fault) if fault.passes == Passes::WithRoom => break,
                Err(fault) => return Err(fault),
            }
            self.waiting.pop_front();
        }
        // Elsewhere a thread drains the book: a receiver must not wait for a disk.
        if self.data.drain == Drain::Caller {
            let _ = book.writer_mut().drain();
        }
        Ok(self.waiting.is_empty())
    }

    /// Appends the commits that wait as fast as the disk takes them. False if they find no room.
    fn settle(&mut self) -> Result<bool, Fault> {
        while !self.waiting.is_empty() && !self.write_into(true)? {
            let left = self.waiting.len();
            match self.commits.get().map(Book::settle) {
                Some(Ok(())) => {}
                Some(Err(fault)) if fault.passes != Passes::WithRoom => return Err(fault),
                _ => return Ok(false),
            }
            if !self.write_into(true)? && self.waiting.len() == left {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Name of the stream.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Index entries that the start has read to know where each origin is: what came behind the newest totals.
    pub fn walked(&self) -> u64 {
        self.walked
    }

    /// The stream's writer, for marks and its header.
    pub fn writer(&mut self) -> &mut Writer {
        &mut self.writer
    }

    /// The source has brought everything up to this time, ns since 1970 UTC.
    pub fn frontier(&self) -> i64 {
        self.frontier
    }

    /// The source has come to its end.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Why the source waits or its messages are not marked, where that is no ordinary course: a device without room, a
    /// reader that has not moved on for long.
    pub fn trouble(&self) -> Option<Fault> {
        let unwritten = || unwritten(&self.writer, "messages wait in memory");
        let of_source = || Some(of_source(&self.name, self.source.trouble()?));
        self.no_room.clone().or_else(unwritten).or_else(of_source)
    }

    /// What the source was to read and has had nothing of: see [`Source::absent`].
    pub fn absent(&self) -> Option<Fault> {
        self.source.absent()
    }

    /// What the source waits for beside the time: see [`Source::descriptor`].
    pub fn descriptor(&self) -> Option<RawFd> {
        self.source.descriptor()
    }

    /// Least time between two wakes by the descriptor: see [`Source::pause`].
    pub fn pause(&self) -> Duration {
        self.source.pause()
    }

    /// How long the source may rest at most, whatever it has asked for, ns: until its messages are marked and its state is
    /// committed there is work after a step. `None`: the source alone says when it is due.
    pub fn rest_max(&self) -> Option<i64> {
        if self.is_late || self.coming.is_some() || !self.strays.is_empty() || !self.marked() {
            return Some(UNMARKED_PAUSE);
        }
        // The state may have changed since it was asked for.
        let is_asked = self.ended || self.asked >= self.stepped;
        (!is_asked).then(|| (self.asked + STATE_PAUSE - self.stepped).max(0))
    }

    /// The last step found no room for a message.
    pub fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// A reader or the disk has moved on since the last step that found no room.
    pub fn may_have_room(&self) -> bool {
        self.writer.may_have_room()
    }

    /// Waits for room or the time, whichever comes first.
    pub fn wait_room(&self, timeout: Duration) {
        self.writer.wait_room(timeout);
    }

    /// Brings a view of this source up to date; only the first time it takes memory.
    pub fn show(&self, view: &mut Option<StreamView>) {
        match view {
            Some(view) => {
                (view.frontier, view.ended, view.marked) = (self.frontier, self.ended, self.marked());
                (view.safe, view.is_blocked, view.lost_to) = (self.safe(), self.is_blocked, self.origins.lost_to);
            }
            None => *view = Some(self.into()),
        }
    }

    /// All that was published is as safe as the stream's level promises.
    pub fn marked(&self) -> bool {
        self.safe() >= self.writer.next_sequence()
    }
}

/// Which totals a commit has to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wanted {
    /// Those for which there is room.
    Nothing,
    /// Of all that changed.
    Changed,
    /// Of all.
    Table,
}

/// When totals are committed.
struct Pace {
    /// Messages of an index segment.
    segment: u64,
    /// The newest totals speak of what is below.
    below: u64,
    /// The index segment of the newest table, and when it was made, ns of `Media::clock`.
    table: (u64, i64),
    /// Commits since the newest table.
    commits: u64,
    /// Bytes of the book behind the newest table.
    book_bytes: u64,
    /// Bytes that totals of what changed may take.
    credit: i64,
    /// Bytes that tables may take, so that what changes does not take the room of every table.
    saved: i64,
    /// When `credit` was looked at, ns of `Media::clock`, and the remainder of a byte.
    looked: i64,
}

impl Pace {
    fn new(writer: &Writer, entries: &Entries, clock: i64) -> Self {
        let segment = writer.header().index_entries;
        let table = (entries.total_below / segment, clock);
        let (commits, book_bytes) = (entries.commits.len() as u64, entries.book_bytes);
        let below = entries.total_below;
        Self { segment, below, table, commits, book_bytes, credit: 0, saved: 0, looked: clock }
    }

    /// Totals are to be committed.
    fn said(&mut self, below: u64, is_table: bool, clock: i64) {
        self.below = below;
        if is_table {
            (self.table, self.commits) = ((below / self.segment, clock), 0);
        }
    }

    /// A commit of `bytes` bytes is in the book.
    fn wrote(&mut self, bytes: u64, totals: Option<&Totals>) {
        let is_table = totals.is_some_and(|totals| totals.is_table);
        let rows = totals.iter().flat_map(|totals| &totals.rows);
        let taken = rows.map(|(name, tally)| tally.bytes() as i64 + name.len() as i64).sum::<i64>();
        if is_table {
            self.saved -= taken;
            self.book_bytes = 0;
        } else {
            self.credit -= taken;
            self.book_bytes += bytes;
            self.commits += 1;
        }
    }

    /// Which totals are due at `clock`, ns of `Media::clock`.
    fn wanted(&mut self, writer: &Writer, origins: &mut Origins, clock: i64) -> Wanted {
        let next = writer.next_sequence();
        let millis = clock.saturating_sub(self.looked).max(0) / 1_000_000;
        self.looked += millis * 1_000_000;
        let share = origins.bytes / TOTALS_SHARE;
        origins.bytes -= share * TOTALS_SHARE;
        let earned = share as i64 + millis.saturating_mul(TOTALS_RATE as i64) / 1000;
        self.credit = self.credit.saturating_add(earned / 2).min(TOTALS_CREDIT_MAX);
        self.saved = self.saved.saturating_add(earned - earned / 2);
        let is_old = clock.saturating_sub(self.table.1) >= TABLE_PAUSE && self.commits > 0;
        if !is_old && next / self.segment <= self.table.0 {
            self.saved = self.saved.min(TOTALS_CREDIT_MAX);
        } else if self.saved >= 90 * writer.origins().len() as i64
            // The first question is cheap: a row takes more than that.
            && self.saved >= origins.totals_bytes(true, writer.origins()) as i64
        {
            return Wanted::Table;
        }
        // The book discards its oldest commits: the newest table must not be among them.
        if self.book_bytes > BOOK_HISTORY_BYTES / 2 {
            return Wanted::Table;
        }
        // Messages must be in totals before retention takes them. It never takes any from the newer half of the stream.
        let first = writer.first_sequence();
        if first > 0 && origins.is_changed() && (next - self.below.min(next)) * 2 > next - first {
            return Wanted::Changed;
        }
        Wanted::Nothing
    }
}

/// A fault of the source of a stream.
fn of_source(name: &str, fault: Fault) -> Fault {
    fault.of_stage("source", name)
}

/// The gap of the interval up to `now` in which a stream with messages had no source. `last`: the newest commit.
fn absence(data: &Data, name: &str, last: Option<&Commit>, now: i64) -> Result<Option<Gap>, Fault> {
    let mut reader = data.reader_early(name)?;
    let next = reader.bounds().count;
    let newest = match next.checked_sub(1).filter(|newest| *newest >= reader.bounds().first) {
        Some(newest) => reader.entries(newest, 1).map_err(|e| stream_fault(name, e))?.first().map(|e| e.arrival_time),
        None => None,
    };
    let sign = newest.max(last.map(|commit| commit.time));
    let Some(from) = sign.filter(|_| next > 0 && last.is_none_or(|commit| !commit.finished)) else { return Ok(None) };
    // Clocks may have been set back since.
    Ok(Some(Gap::interval(name, next, from..=now.max(from), Silence::Absent.word())))
}

impl From<&Intake> for StreamView {
    fn from(intake: &Intake) -> Self {
        Self {
            name: intake.name().to_string(),
            frontier: intake.frontier(),
            ended: intake.ended(),
            marked: intake.marked(),
            safe: intake.safe(),
            is_blocked: intake.is_blocked(),
            lost_to: intake.origins.lost_to,
            ..Self::default()
        }
    }
}
