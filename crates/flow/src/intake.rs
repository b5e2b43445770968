//! The runner of a source: calls it, appends what it brings, keeps account of what was dropped.
//!
//! Everything a step pushes is published at its end, at once. A message dropped by `when_full` becomes part of a gap
//! (origin, first, last, from, to), and gaps are committed to `NAME.commits` at the end of the step that made them:
//! `sent by the origin = appended + lost`, from facts on disk alone.
//!
//! The frontier is the time up to which the source has brought all it has: the clock of a step that left nothing
//! waiting. Runs settle by it, so an idle source does not hold them up and a blocked one does.

use crate::commits::commits_of;
use crate::data::{BOOK_HISTORY_BYTES, Data, settle, stream_fault};
use crate::ledger::origin_tails;
use crate::records::{Commit, Gap};
use crate::{Fault, Outlet, Pushed, Resume, Source, Step};
use std::time::Duration;
use store::{Error, Level, Meta, Options, SchemaId, Writer, flags};

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
    commits: Option<(Writer, u64)>,
    frontier: i64,
    ended: bool,
}

struct Outward<'a> {
    writer: &'a mut Writer,
    gaps: &'a mut Vec<Gap>,
    name: &'a str,
    latest: i64,
    blocked: bool,
}

impl Outlet for Outward<'_> {
    fn origin(&mut self, name: &str) -> Result<u32, Fault> {
        self.writer.origin(name).map_err(|e| stream_fault(self.name, e))
    }

    fn push(&mut self, meta: &Meta, payload: &[u8]) -> Result<Pushed, Fault> {
        let mut meta = *meta;
        if meta.source_time > self.latest {
            meta.flags |= flags::AHEAD;
        }
        match self.writer.push(&meta, &[payload]) {
            Ok(_) => Ok(Pushed::Taken),
            Err(Error::Dropped) => {
                let origin = self.writer.origins().get(meta.origin as usize).cloned().unwrap_or_default();
                drop_one(self.gaps, self.name, origin, &meta);
                Ok(Pushed::Taken)
            }
            Err(e) if e.is_full() => {
                self.blocked = true;
                Ok(Pushed::Full)
            }
            Err(e) => Err(stream_fault(self.name, e)),
        }
    }
}

/// Adds a dropped message to the gap that it continues, or begins one.
fn drop_one(gaps: &mut Vec<Gap>, stream: &str, origin: String, meta: &Meta) {
    let time = meta.source_time;
    match gaps.iter_mut().rev().find(|g| g.origin == origin) {
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
        let mut commits = None;
        if store::Header::read(data.media.as_ref(), &data.stream(&book)).is_ok() {
            let mut writer = data.book_of_newest(&book, BOOK_HISTORY_BYTES)?;
            settle(&mut writer, &book)?;
            let block = writer.next_sequence();
            commits = Some((writer, block));
        }
        let resume = Resume { origins: origin_tails(data, name)? };
        source.start(now, &resume)?;
        let (data, name) = (data.clone(), name.to_string());
        let (gaps, ahead_max) = (Vec::new(), options.ahead_max);
        Ok(Self { data, name, source, writer, ahead_max, gaps, commits, frontier: i64::MIN, ended: false })
    }

    /// Lets the source bring what is due at `now`. After `Step::At(now)` or earlier, `wait` before the next call.
    pub fn step(&mut self, now: i64) -> Result<Step, Fault> {
        let latest = now.saturating_add(self.ahead_max);
        let mut out =
            Outward { writer: &mut self.writer, gaps: &mut self.gaps, name: &self.name, latest, blocked: false };
        let step = self.source.step(now, &mut out)?;
        let blocked = out.blocked;
        self.writer.publish();
        if !self.gaps.is_empty() {
            self.commit_gaps(now)?;
        }
        self.ended = step == Step::Ended;
        if !blocked && step != Step::Again {
            self.frontier = self.frontier.max(self.source.frontier(now));
        }
        Ok(step)
    }

    fn commit_gaps(&mut self, now: i64) -> Result<(), Fault> {
        let book = commits_of(&self.name);
        if self.commits.is_none() {
            let writer = self.data.book_of_newest(&book, BOOK_HISTORY_BYTES)?;
            let block = writer.next_sequence();
            self.commits = Some((writer, block));
        }
        let Some((writer, block)) = &mut self.commits else { return Ok(()) };
        let commit = Commit {
            stage: self.name.clone(),
            run: String::new(),
            block: *block,
            time: now,
            inputs: Vec::new(),
            gaps: std::mem::take(&mut self.gaps),
            state: String::new(),
            finished: false,
        };
        let mut bytes = Vec::new();
        commit.write(&mut bytes)?;
        let meta = book_meta(now, *block, SchemaId(wire::bpcm::ID));
        match writer.append(&meta, &bytes) {
            Ok(_) => {
                *block += 1;
                // For one-threaded flows; elsewhere the book has a drainer of its own.
                let _ = writer.drain();
            }
            // Kept for the next step: the account is late, never wrong.
            Err(e) if e.is_full() => self.gaps = commit.gaps,
            Err(e) => return Err(stream_fault(&book, e)),
        }
        Ok(())
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

    /// Waits for room or the time, whichever comes first.
    pub fn wait_room(&self, timeout: Duration) {
        self.writer.wait_room(timeout);
    }

    /// All that was published is as safe as the stream's level promises.
    pub fn marked(&self) -> bool {
        match self.writer.header().level {
            Level::Memory => true,
            Level::Disk => self.writer.mark(Level::Disk) >= self.writer.next_sequence(),
        }
    }
}

/// The index entry of a message of our own books.
pub(crate) fn book_meta(now: i64, number: u64, schema: SchemaId) -> Meta {
    Meta { source_time: now, origin: 0, origin_seq: number, schema, flags: 0 }
}
