//! The runner of a source: calls it, appends what it brings, keeps account of what was dropped.
//!
//! Everything a step pushes is published at its end, at once. A message dropped by `when_full` becomes part of a gap
//! (origin, first, last, from, to), and gaps are committed to `NAME.commits` at the end of the step that made them:
//! `sent by the origin = appended + lost`, from facts on disk alone.
//!
//! A source that starts where a stream has messages already was absent since the last sign of life of the one before:
//! the last message, or the last commit. That is a gap of its own kind, in which nothing is counted.
//!
//! What a source needs to go on after a restart stands in the same commits, with the number of messages that the stream
//! held then. A start gives back the newest state whose messages are all there: after a power cut the book may hold more
//! than the stream. What the book holds beyond that is replaced before the first message comes, because it would be believed
//! again once other messages have those numbers.
//!
//! The frontier is the time up to which the source has brought all it has: the clock of a step that left nothing
//! waiting. Runs settle by it, so an idle source does not hold them up and a blocked one does.

use crate::book::{Book, Keeps, newest_commit};
use crate::commits::commits_of;
use crate::cuts::cut;
use crate::data::{Data, stream_fault, unwritten};
use crate::ledger::origin_tails;
use crate::limits::BOOK_HISTORY_BYTES;
use crate::records::{ABSENT, Commit, Gap};
use crate::{Fault, Outlet, Passes, Pushed, Resume, Source, Step, StreamView};
use std::ops::RangeInclusive;
use std::os::fd::RawFd;
use std::time::Duration;
use store::{Error, Level, Meta, Options, Writer, flags};

/// A reader may stand still for so long, ns: sinks are started anew, and analyses think.
const HELD_PATIENCE: i64 = 5_000_000_000;

/// How long a source may rest whose messages are not marked, or whose commit found no room, ns: it is told soon after the
/// mark what is safe.
const UNMARKED_PAUSE: i64 = 20_000_000;

/// The state of a source is committed at most so often, ns: it is a message of the book each time.
const STATE_PAUSE: i64 = 1_000_000_000;

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
    gaps: Vec<Gap>,
    commits: Option<Book>,
    frontier: i64,
    ended: bool,
    no_room: Option<Fault>,
    held: Option<Held>,
    /// The state in the newest commit.
    state: String,
    /// When the state was last asked for, ns of `Media::clock`.
    asked: i64,
    /// When the source was last stepped, ns of `Media::clock`.
    stepped: i64,
    /// The newest commit found no room.
    is_late: bool,
    /// The last step found no room for a message.
    is_blocked: bool,
    /// What the source knows to be safe.
    safe: u64,
}

/// A reader that makes the source wait: its name, where it stands, and since when (ns of `Media::clock`).
struct Held(String, u64, i64);

struct Outward<'a> {
    writer: &'a mut Writer,
    gaps: &'a mut Vec<Gap>,
    name: &'a str,
    latest: i64,
    blocked: bool,
    no_room: Option<Fault>,
    behind: Option<Error>,
}

impl Outlet for Outward<'_> {
    fn origin(&mut self, name: &str) -> Result<u32, Fault> {
        self.writer.origin(name).map_err(|e| stream_fault(self.name, e))
    }

    fn push_parts(&mut self, meta: &Meta, parts: &[&[u8]]) -> Result<Pushed, Fault> {
        let mut meta = *meta;
        if meta.source_time > self.latest {
            meta.flags |= flags::AHEAD;
        }
        match self.writer.push(&meta, parts) {
            Ok(_) => Ok(Pushed::Taken),
            Err(Error::Dropped) => {
                let origin = self.writer.origins().get(meta.origin as usize).cloned().unwrap_or_default();
                drop_one(self.gaps, self.name, origin, &meta);
                Ok(Pushed::Taken)
            }
            // Shared memory is full, and the oldest segment gave none.
            Err(e) if e.is_full() && self.writer.drops() => {
                self.no_room = Some(stream_fault(self.name, e));
                let origin = self.writer.origins().get(meta.origin as usize).cloned().unwrap_or_default();
                drop_one(self.gaps, self.name, origin, &meta);
                Ok(Pushed::Taken)
            }
            Err(e) if e.is_full() => {
                self.blocked = true;
                // A full stream is the ordinary course; a device without room for what was promised is not.
                match e {
                    Error::Io { .. } => self.no_room = Some(stream_fault(self.name, e)),
                    Error::Behind { .. } => self.behind = Some(e),
                    _ => {}
                }
                Ok(Pushed::Full)
            }
            Err(e) => Err(stream_fault(self.name, e)),
        }
    }

    fn next_sequence(&self) -> u64 {
        self.writer.next_sequence()
    }

    fn missing(
        &mut self,
        origin: u32,
        numbers: RangeInclusive<u64>,
        times: RangeInclusive<i64>,
        reason: &str,
    ) -> Result<(), Fault> {
        let Some(origin) = self.writer.origins().get(origin as usize).cloned() else {
            return Err(Fault::new(format!("stream `{}` has no origin {origin}", self.name), ""));
        };
        if !numbers.is_empty() {
            self.gaps.push(Gap {
                stream: self.name.to_owned(),
                origin,
                first: *numbers.start(),
                last: *numbers.end(),
                from: *times.start(),
                to: *times.end(),
                reason: reason.to_owned(),
                by_sequence: false,
            });
        }
        Ok(())
    }

    fn silent(&mut self, times: RangeInclusive<i64>) {
        self.gaps.push(unheard(self.name, self.writer.next_sequence(), times));
    }
}

/// Adds a dropped message to the gap that it continues, or begins one.
fn drop_one(gaps: &mut Vec<Gap>, stream: &str, origin: String, meta: &Meta) {
    let time = meta.source_time;
    match gaps.iter_mut().rev().find(|g| g.origin == origin && !g.by_sequence) {
        Some(gap) if gap.last.checked_add(1) == Some(meta.origin_seq) => {
            gap.last = meta.origin_seq;
            (gap.from, gap.to) = (gap.from.min(time), gap.to.max(time));
        }
        _ => gaps.push(Gap {
            stream: stream.to_string(),
            origin,
            first: meta.origin_seq,
            last: meta.origin_seq,
            from: time,
            to: time,
            reason: "full".into(),
            by_sequence: false,
        }),
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
        let writer = data.writer(name, &options.stream)?;
        // Gaps of before are believed once they are marked, so that no number is given twice.
        let book = commits_of(name);
        let commits = match data.has(&book)? {
            true => Some(Book::open_settled(data, &book, Keeps::Newest(BOOK_HISTORY_BYTES))?),
            false => None,
        };
        let (state, is_newest) = state_of(data, name, writer.next_sequence())?;
        let resume = Resume { origins: origin_tails(data, name)?, state };
        source.start(now, &resume)?;
        let absence = if source.misses() { absence(data, name, now)? } else { None };
        let gaps = absence.into_iter().chain(cut(&writer, u64::MAX)).collect();
        let asked = data.media.clock();
        let (data, name, ahead_max) = (data.clone(), name.to_string(), options.ahead_max);
        let mut intake = Self {
            data,
            name,
            source,
            writer,
            ahead_max,
            gaps,
            commits,
            frontier: i64::MIN,
            ended: false,
            no_room: None,
            held: None,
            state: resume.state,
            asked,
            stepped: asked,
            is_late: false,
            is_blocked: false,
            safe: 0,
        };
        if !is_newest {
            intake.replace_state(now)?;
        }
        Ok(intake)
    }

    /// Commits the state with which the source goes on, in the place of newer ones whose messages a power cut took.
    fn replace_state(&mut self, now: i64) -> Result<(), Fault> {
        if !self.commit(now, false)? {
            let fault = Fault::new(format!("the state of source `{}` cannot be committed", self.name), "no room");
            return Err(Fault { passes: Passes::WithRoom, ..fault });
        }
        self.commits.as_mut().map_or(Ok(()), Book::settle)
    }

    /// Lets the source bring what is due at `now`. After `Step::At(now)` or earlier, `wait` before the next call.
    pub fn step(&mut self, now: i64) -> Result<Step, Fault> {
        let latest = now.saturating_add(self.ahead_max);
        let clock = self.data.media.clock();
        let (writer, gaps, name) = (&mut self.writer, &mut self.gaps, &self.name);
        let mut out = Outward { writer, gaps, name, latest, blocked: false, no_room: None, behind: None };
        let step = self.source.step(now, &mut out)?;
        let blocked = out.blocked;
        self.no_room = out.no_room;
        self.held = match (out.behind, self.held.take()) {
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
        (self.stepped, self.is_blocked) = (clock, blocked);
        let ends = step == Step::Ended && !self.ended;
        if !self.gaps.is_empty() || ends || self.is_late || self.has_new_state(clock) {
            self.is_late = !self.commit(now, ends)?;
            self.asked = clock;
        }
        self.ended = step == Step::Ended;
        let safe = self.safe();
        if safe > self.safe {
            self.source.safe(safe)?;
            self.safe = safe;
        }
        if !blocked && step != Step::Again {
            self.frontier = self.frontier.max(self.source.frontier(now));
        }
        Ok(step)
    }

    /// Commits the state of a source that is ended from outside. `now` in ns since 1970 UTC.
    pub fn stop(&mut self, now: i64) -> Result<(), Fault> {
        if self.source.state() != self.state {
            self.commit(now, false)?;
        }
        Ok(())
    }

    /// Whether the state differs from that of the newest commit; asked now and then. `clock`: ns of `Media::clock`.
    fn has_new_state(&mut self, clock: i64) -> bool {
        if clock.saturating_sub(self.asked) < STATE_PAUSE {
            return false;
        }
        self.asked = clock;
        self.source.state() != self.state
    }

    /// Messages below this number are as safe as the stream's level promises.
    fn safe(&self) -> u64 {
        match self.writer.header().level {
            Level::Memory => self.writer.next_sequence(),
            Level::Disk => self.writer.mark(Level::Disk),
        }
    }

    /// Commits gaps and state. `finished`: nothing more will come, so that nobody is missed after a restart.
    /// False if there is no room for it now: it is tried again with the next step that has something to commit.
    fn commit(&mut self, now: i64, finished: bool) -> Result<bool, Fault> {
        if self.commits.is_none() {
            match Book::open(&self.data, &commits_of(&self.name), Keeps::Newest(BOOK_HISTORY_BYTES)) {
                Ok(book) => self.commits = Some(book),
                // What was dropped for want of room is kept for the next step: there is none for the book either.
                Err(fault) if fault.passes == Passes::WithRoom => {
                    self.no_room = Some(fault);
                    return Ok(false);
                }
                Err(fault) => return Err(fault),
            }
        }
        let Some(book) = &mut self.commits else { return Ok(false) };
        let commit = Commit {
            stage: self.name.clone(),
            run: String::new(),
            block: book.next_sequence(),
            time: now,
            inputs: Vec::new(),
            gaps: std::mem::take(&mut self.gaps),
            output_first: 0,
            output_next: self.writer.next_sequence(),
            state: self.source.state(),
            finished,
        };
        match book.append(&commit) {
            Ok(_) => {
                self.state = commit.state;
                // For one-threaded flows; elsewhere the book has a drainer of its own.
                let _ = book.writer_mut().drain();
            }
            // Kept for the next step: the account is late, never wrong.
            Err(fault) if fault.passes == Passes::WithRoom => {
                self.gaps = commit.gaps;
                return Ok(false);
            }
            Err(fault) => return Err(fault),
        }
        Ok(true)
    }

    /// Name of the stream.
    pub fn name(&self) -> &str {
        &self.name
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
        self.no_room.clone().or_else(unwritten).or_else(|| self.source.trouble())
    }

    /// What the source waits for beside the time: see [`Source::descriptor`].
    pub fn descriptor(&self) -> Option<RawFd> {
        self.source.descriptor()
    }

    /// How long the source may rest at most, whatever it has asked for, ns: until its messages are marked and its state is
    /// committed there is work after a step. `None`: the source alone says when it is due.
    pub fn rest_max(&self) -> Option<i64> {
        if self.is_late || !self.marked() {
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

    /// All that was published is as safe as the stream's level promises.
    pub fn marked(&self) -> bool {
        self.safe() >= self.writer.next_sequence()
    }
}

/// The newest state in the book of a source that speaks of no message beyond `next`, and whether there is no newer one.
fn state_of(data: &Data, name: &str, next: u64) -> Result<(String, bool), Fault> {
    let mut is_newest = true;
    let commit = newest_commit(data, &commits_of(name), &mut |commit| {
        let is_there = commit.output_next <= next;
        is_newest &= is_there;
        is_there
    })?;
    Ok((commit.map_or_else(String::new, |commit| commit.state), is_newest))
}

/// A time in which a stream, which has `next` messages, heard nothing of the outside.
fn unheard(name: &str, next: u64, times: RangeInclusive<i64>) -> Gap {
    let (from, to) = times.into_inner();
    Gap {
        stream: name.to_owned(),
        origin: String::new(),
        first: next,
        last: next.wrapping_sub(1),
        from,
        to,
        reason: ABSENT.into(),
        by_sequence: true,
    }
}

/// The time in which nobody brought anything to a stream that has messages, up to `now`.
fn absence(data: &Data, name: &str, now: i64) -> Result<Option<Gap>, Fault> {
    let mut reader = data.reader_early(name)?;
    let next = reader.bounds().count;
    let newest = match next.checked_sub(1).filter(|newest| *newest >= reader.bounds().first) {
        Some(newest) => reader.entries(newest, 1).map_err(|e| stream_fault(name, e))?.first().map(|e| e.arrival_time),
        None => None,
    };
    let last = newest_commit(data, &commits_of(name), &mut |_| true)?;
    let sign = newest.max(last.as_ref().map(|commit| commit.time));
    let Some(from) = sign.filter(|_| next > 0 && last.is_none_or(|commit| !commit.finished)) else { return Ok(None) };
    // Clocks may have been set back since.
    Ok(Some(unheard(name, next, from..=now.max(from))))
}

impl From<&Intake> for StreamView {
    fn from(intake: &Intake) -> Self {
        Self {
            name: intake.name().to_string(),
            frontier: intake.frontier(),
            ended: intake.ended(),
            marked: intake.marked(),
            begun: 0,
            done: 0,
        }
    }
}
