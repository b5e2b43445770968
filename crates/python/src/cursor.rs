//! A reader's place in a stream as Python iterates over it: by time or sequence, of one origin or schema, once or
//! following the live end.
//!
//! Without `follow` the end is where the stream ended when reading began, so an iteration that is slower than its
//! source still comes to its end.

use crate::block::Block;
use crate::fault;
use crate::limits::{BATCH_MESSAGES_MAX, SEARCHES_MAX, WAIT_STEP};
use crate::owned::{Ours, pinned};
use crate::position::{self, From, Position};
use crate::reader_pool::ReaderPool;
use flow::Fault;
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Clock, Entry, Reader, Start, Watch};

/// The part of a stream that is wanted.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// First time, ns since 1970 UTC.
    pub(crate) since: i64,
    /// First time that is wanted no more.
    pub(crate) until: i64,
    /// Where to begin; a name that was there before goes on where it committed.
    pub(crate) start: Option<From>,
    /// Name under which the position is kept.
    pub(crate) name: Option<String>,
    /// First sequence that is wanted no more; negative = from the end.
    pub(crate) stop: Option<i64>,
    /// No sequence outside of these, whatever the others say: the range of a sealed run.
    pub(crate) within: Option<(u64, u64)>,
    /// Wait at the end.
    pub(crate) follow: bool,
    /// Past the mark `disk`.
    pub(crate) early: bool,
    /// Of this origin alone.
    pub(crate) origin: Option<String>,
    /// Of this schema alone.
    pub(crate) schema: Option<[u8; 4]>,
    /// Longest wait for a message.
    pub(crate) timeout: Option<Duration>,
}

impl Wanted {
    fn has_times(&self) -> bool {
        self.since != i64::MIN || self.until != i64::MAX
    }
}

/// The result of a look without waiting.
pub(crate) enum Look {
    Block(Arc<Block>),
    /// What was there is not wanted: look again.
    Passed,
    /// Nothing now.
    Nothing,
    /// Nothing, and there will be nothing.
    End,
}

/// An iteration that is under way.
pub(crate) struct Cursor {
    place: Arc<ReaderPool>,
    /// Given back to `place` at the end.
    reader: Option<Ours<Reader>>,
    wanted: Wanted,
    next: u64,
    /// Where it ends; none while it follows.
    end: Option<u64>,
    /// The caller did not say where to start, and nothing was delivered: what retention takes was not asked for.
    drifts: bool,
    /// The stream that was opened, and the epoch of `next`.
    identity: ([u8; 16], u32),
    /// Times are those of arrival, because the source's own mean nothing.
    by_arrival: bool,
    origins: Arc<[Arc<str>]>,
    last: Instant,
}

impl Drop for Cursor {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.take()
            && self.wanted.name.is_none()
        {
            self.place.give(self.wanted.early, reader);
        }
    }
}

/// A place given as in a Python slice.
pub(crate) fn place_of(asked: i64, first: u64, end: u64) -> u64 {
    match u64::try_from(asked) {
        Ok(sequence) => sequence,
        Err(_) => end.saturating_sub(asked.unsigned_abs()).max(first),
    }
}

impl Cursor {
    pub(crate) fn open(py: Python<'_>, place: &Arc<ReaderPool>, wanted: Wanted) -> PyResult<Self> {
        let failed = |e| fault::of_store(py, "read", &place.folder, &e);
        let mut reader = place.take(wanted.early).map_err(failed)?;
        let (first, end) = (reader.bounds().first, reader.end());
        let by_arrival = reader.header().clock != Clock::Epoch;
        let (low, high) = wanted.within.unwrap_or((0, u64::MAX));
        let mut next = match &wanted.start {
            None | Some(From::Beginning) => first,
            Some(From::End) => end,
            Some(From::Sequence(start)) => place_of(*start, first, end),
            Some(From::Time(time)) => {
                let found = py.detach(|| search(&mut reader, *time, i64::MAX, by_arrival));
                found.map_err(|e| fault::of_store(py, "searched", &place.folder, &e))?.0
            }
            Some(From::Position(position)) => {
                position.check(py, &place.folder, reader.header(), first, reader.bounds().count)?;
                position.sequence
            }
        };
        next = next.max(low);
        let mut drifts = low == 0
            && match &wanted.start {
                None | Some(From::Beginning | From::Time(_)) => true,
                Some(From::Sequence(start)) => *start < 0,
                Some(From::End | From::Position(_)) => false,
            };
        if let Some(name) = &wanted.name {
            let start = match &wanted.start {
                None | Some(From::Beginning) if low == 0 => Start::Committed,
                Some(From::Position(_)) => Start::Here(next),
                _ => Start::New(next),
            };
            place.give(wanted.early, reader);
            reader = place.named(name, wanted.early, start).map_err(failed)?;
            drifts &= !reader.resumed();
            next = reader.position();
        }
        let epoch = match &wanted.start {
            Some(From::Position(position)) => position.epoch,
            _ if wanted.name.is_some() => reader.header().epoch_of(next.saturating_sub(1)),
            _ => reader.header().epoch_of(next),
        };
        let stop = wanted.stop.map_or(u64::MAX, |stop| place_of(stop, first, end)).min(high);
        let identity = (reader.header().uuid, epoch);
        let mut cursor = Self {
            place: place.clone(),
            reader: Some(reader),
            next,
            end: (!wanted.follow || stop != u64::MAX).then(|| if wanted.follow { stop } else { stop.min(end) }),
            drifts,
            by_arrival,
            identity,
            origins: Arc::new([]),
            last: Instant::now(),
            wanted,
        };
        cursor.know_origin(py)?;
        if cursor.wanted.has_times() {
            cursor.find(py)?;
        }
        Ok(cursor)
    }

    /// Refuses an origin that the stream does not have; while following it may still come.
    fn know_origin(&mut self, py: Python<'_>) -> PyResult<()> {
        let (Some(origin), Some(reader), false) = (&self.wanted.origin, &mut self.reader, self.wanted.follow) else {
            return Ok(());
        };
        let names = reader.origins().map_err(|e| fault::of_store(py, "read", &self.place.folder, &e))?;
        if names.contains(origin) {
            return Ok(());
        }
        let names = names.to_vec();
        if let Some(damage) = reader.origins_damage() {
            return Err(fault::of_store(py, "read", &self.place.folder, &damage));
        }
        let name = self.place.folder.file_name().unwrap_or_default().to_string_lossy();
        Err(fault::missing(py, &format!("stream `{name}` has no origin"), origin, names))
    }

    /// Narrows the range of sequences to where the wanted times are.
    fn find(&mut self, py: Python<'_>) -> PyResult<()> {
        let (since, until, by_arrival) = (self.wanted.since, self.wanted.until, self.by_arrival);
        let Some(reader) = &mut self.reader else { return Ok(()) };
        let found = py.detach(|| search(reader, since, until, by_arrival));
        let (low, high) = found.map_err(|e| fault::of_store(py, "searched", &self.place.folder, &e))?;
        self.next = self.next.max(low);
        if let (Some(end), false) = (&mut self.end, self.wanted.follow) {
            *end = (*end).min(high);
        }
        Ok(())
    }

    /// The next messages that are wanted, or none at the end.
    pub(crate) fn step(&mut self, py: Python<'_>) -> PyResult<Option<Arc<Block>>> {
        loop {
            py.check_signals()?;
            match self.look(py)? {
                Look::Block(block) => return Ok(Some(block)),
                Look::Passed => {}
                Look::Nothing if self.wait(py)? => {}
                Look::Nothing | Look::End => return Ok(None),
            }
        }
    }

    /// Looks once at what is there.
    pub(crate) fn look(&mut self, py: Python<'_>) -> PyResult<Look> {
        let name = || self.place.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match &self.reader {
            Some(reader) => reader.check(py, &format!("reading of `{}`", name()))?,
            None => return Ok(Look::End),
        }
        if self.end.is_some_and(|end| self.next >= end) {
            return Ok(Look::End);
        }
        let from = self.next;
        let read = py.detach(|| self.read());
        match read {
            Ok(Some(block)) => {
                (self.drifts, self.last) = (false, Instant::now());
                return Ok(Look::Block(block));
            }
            Ok(None) if self.next > from => {}
            Ok(None) if !self.wanted.follow || self.place.now() >= self.wanted.until => return Ok(Look::End),
            Ok(None) => return Ok(Look::Nothing),
            Err(store::Error::Gone { first }) if self.drifts => self.next = first,
            Err(store::Error::Gone { first }) => return Err(self.gone(py, first)),
            Err(e) => return Err(fault::of_store(py, "read", &self.place.folder, &e)),
        }
        Ok(Look::Passed)
    }

    /// How long a wait for the next message may last; none for ever.
    pub(crate) fn patience(&self) -> Option<Duration> {
        let timeout = self.wanted.timeout.map(|timeout| timeout.saturating_sub(self.last.elapsed()));
        let until = (self.wanted.until != i64::MAX).then(|| {
            let left = self.wanted.until.saturating_sub(self.place.now());
            Duration::from_nanos(u64::try_from(left).unwrap_or(0))
        });
        timeout.into_iter().chain(until).min()
    }

    /// A descriptor that is readable while there may be more.
    pub(crate) fn watch(&self, py: Python<'_>) -> PyResult<Watch> {
        if !self.wanted.follow {
            return Err(refused(py, "a descriptor is for waiting, and this does not wait", "add `follow=True`"));
        }
        let Some(reader) = &self.reader else { return Err(refused(py, "it has ended", "read again")) };
        reader.check(py, "an iteration")?;
        reader.watch().map_err(|e| fault::of_store(py, "read", &self.place.folder, &e))
    }

    /// Lowers the descriptor if nothing more is there, and makes sure that the stream is still the same.
    pub(crate) fn rest(&mut self, py: Python<'_>, watch: &mut Watch) -> PyResult<()> {
        if self.end.is_some_and(|end| self.next >= end) {
            watch.raise();
            return Ok(());
        }
        let Some(reader) = &mut self.reader else { return Ok(()) };
        reader.seek(self.next);
        let rested = py.detach(|| watch.rest(reader));
        let moved = rested.map_err(|e| fault::of_store(py, "read", &self.place.folder, &e))?;
        if moved { self.still_the_same(py) } else { Ok(()) }
    }

    /// Waits a little for more. False when there is nothing to wait for.
    pub(crate) fn wait(&mut self, py: Python<'_>) -> PyResult<bool> {
        let left = match self.wanted.timeout {
            Some(timeout) => timeout.saturating_sub(self.last.elapsed()),
            None => WAIT_STEP,
        };
        if left.is_zero() {
            return Ok(false);
        }
        let Some(reader) = &mut self.reader else { return Ok(false) };
        reader.seek(self.next);
        let waited = py.detach(|| reader.wait(left.min(WAIT_STEP)));
        let arrived = waited.map_err(|e| fault::of_store(py, "read", &self.place.folder, &e))?;
        let checked = if arrived { self.still_one_life(py) } else { self.still_the_same(py) };
        checked.map(|()| true)
    }

    /// Refuses to go on in another stream.
    fn still_the_same(&self, py: Python<'_>) -> PyResult<()> {
        let header = self.place.header().map_err(|e| fault::of_store(py, "read", &self.place.folder, &e))?;
        // A reader takes a recreated stream in the same place for its own.
        if header.uuid != self.identity.0 {
            let what = format!("reading of {} cannot go on", self.place.folder.display());
            let fault = Fault::new(what, "the stream was recreated meanwhile");
            return Err(fault::error(py, fault.hint("start again: `read(follow=True)`")));
        }
        self.still_one_life(py)
    }

    /// Refuses to go on where a power cut has taken back what an early reader has seen.
    fn still_one_life(&self, py: Python<'_>) -> PyResult<()> {
        let Some(reader) = &self.reader else { return Ok(()) };
        let checked = reader.header().check_identity(self.identity.1, self.next);
        checked.map_err(|e| fault::of_store(py, "read", &self.place.folder, &e))
    }

    /// Reads once and takes what is wanted; moves on past the rest.
    fn read(&mut self) -> store::Result<Option<Arc<Block>>> {
        let Some(reader) = &mut self.reader else { return Ok(None) };
        let room = self.end.map_or(BATCH_MESSAGES_MAX, |end| end - self.next).min(BATCH_MESSAGES_MAX);
        // One epoch at a time, so that each place in what is read has a name.
        let later = reader.header().epochs.iter().map(|e| e.1).find(|first| *first > self.next);
        let room = room.min(later.map_or(u64::MAX, |first| first - self.next));
        reader.seek(self.next);
        let batch = reader.read(room as usize)?;
        if batch.is_empty() {
            return Ok(None);
        }
        let (first, entries) = (batch.first, batch.entries.to_vec());
        let places: Vec<(usize, u64)> = (0..entries.len()).map(|at| batch.place(at)).collect();
        let segments = batch.segments().iter().map(pinned).collect();
        self.next = batch.next();
        self.identity.1 = reader.header().epoch_of(self.next - 1);
        let newest = entries.iter().map(|e| e.origin).max().unwrap_or(0) as usize;
        if newest >= self.origins.len() {
            self.origins = reader.origins()?.iter().map(|name| name.as_str().into()).collect();
            if let Some(damage) = reader.origin_damage(newest as u32) {
                self.next = first;
                return Err(damage);
            }
        }
        let row = match &self.wanted.origin {
            Some(origin) => match self.origins.iter().position(|name| **name == **origin) {
                Some(row) => Some(row as u32),
                None => return Ok(None),
            },
            None => None,
        };
        // Without times all are wanted, the last nanosecond there is as well.
        let has_times = self.wanted.has_times();
        let wanted = |entry: &Entry| {
            let time = if self.by_arrival { entry.arrival_time } else { entry.source_time };
            (!has_times || (self.wanted.since..self.wanted.until).contains(&time))
                && row.is_none_or(|row| entry.origin == row)
                && self.wanted.schema.is_none_or(|schema| entry.schema.0 == schema)
        };
        let rows = (first..).zip(places).zip(entries).filter(|(_, entry)| wanted(entry));
        let ((sequences, places), entries): ((Vec<u64>, Vec<_>), Vec<Entry>) = rows.unzip();
        if entries.is_empty() {
            return Ok(None);
        }
        Ok(Some(Arc::new(Block { entries, sequences, places, segments, origins: self.origins.clone() })))
    }
}

/// The range of sequences outside of which no message has a time in `[since, until)`.
fn search(reader: &mut Reader, since: i64, until: i64, by_arrival: bool) -> store::Result<(u64, u64)> {
    let mut tries = 0;
    loop {
        let found = if by_arrival { arrivals(reader, since, until) } else { reader.time_range(since, until) };
        match found {
            // Retention took the block that was searched.
            Err(store::Error::Gone { .. }) if tries < SEARCHES_MAX => tries += 1,
            found => return found,
        }
    }
}

/// The range of sequences with arrival in `[since, until)`: arrival rises, so each end is found by halving.
fn arrivals(reader: &mut Reader, since: i64, until: i64) -> store::Result<(u64, u64)> {
    let mut find = |time: i64| {
        let (mut low, mut high) = (reader.bounds().first, reader.end());
        while low < high {
            let middle = low + (high - low) / 2;
            match reader.entries(middle, 1)?.first() {
                Some(entry) if entry.arrival_time < time => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    };
    Ok((find(since)?, find(until)?))
}

impl Cursor {
    /// The position behind all that was read.
    pub(crate) fn position(&self) -> Position {
        Position { uuid: self.identity.0, epoch: self.identity.1, sequence: self.next }
    }

    /// True if its position is kept under a name, and more can be committed when it has come to its end.
    pub(crate) fn is_named(&self) -> bool {
        self.wanted.name.is_some()
    }

    /// The reader, if it keeps its position and is this process's.
    fn named(&mut self, py: Python<'_>) -> PyResult<&mut Reader> {
        match &mut self.reader {
            Some(reader) if self.wanted.name.is_some() => {
                reader.check(py, "an iteration")?;
                Ok(reader)
            }
            _ => Err(refused(py, "it keeps no position", "give it a name: `read(name=\"analysis\")`")),
        }
    }

    /// Next sequence that is committed, and how many messages there are from there on.
    pub(crate) fn committed(&mut self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let reader = self.named(py)?;
        let committed = reader.committed();
        Ok((committed, reader.bounds().count.saturating_sub(committed)))
    }

    /// Keeps a position: that which was asked for, which is not behind `at`, or `at`.
    pub(crate) fn commit(&mut self, py: Python<'_>, asked: Option<&Bound<'_, PyAny>>, at: Position) -> PyResult<()> {
        let place = self.place.clone();
        let reader = self.named(py)?;
        let position = match asked {
            Some(asked) => Position::read(asked).ok_or_else(|| position::no_position(py))?,
            None => at.clone(),
        };
        let failed = |e| fault::of_store(py, "committed", &place.folder, &e);
        // Another stream, or another epoch of it, may stand here now.
        let header = place.header().map_err(failed)?;
        position.check(py, &place.folder, &header, 0, u64::MAX)?;
        if position.sequence > at.sequence {
            let cause = format!("message {} was not read yet", position.sequence - 1);
            return Err(fault::error(py, Fault::new("cannot commit this", cause)));
        }
        py.detach(|| reader.commit_identity(position.epoch, position.sequence)).map_err(failed)
    }

    /// The error where messages that were to be read are gone.
    fn gone(&self, py: Python<'_>, first: u64) -> PyErr {
        match &self.reader {
            Some(reader) if self.wanted.name.is_some() => position::gone(py, reader.header(), self.next, first),
            _ => fault::of_store(py, "read", &self.place.folder, &store::Error::Gone { first }),
        }
    }
}

/// A fault of how `read` was asked.
pub(crate) fn refused(py: Python<'_>, cause: impl std::fmt::Display, hint: &str) -> PyErr {
    fault::error(py, Fault::new("cannot read this", cause).hint(hint))
}
