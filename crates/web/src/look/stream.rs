//! The streams of panels, kept open, and the message that a panel shows.

use super::panel::Panel;
use super::times::Times;
use crate::limits::{AUTO_MAX, BATCH, COMPARE, READERS_MAX, SEARCH_MAX, SLICE};
use flow::{Data, Fault, stream_fault};
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;
use store::{Clock, Entry, Message, Missing, ReadOptions, Reader, Stretch, Why};

/// The hint against retention.
const RETAIN: &str = "show a later moment; a larger `retain` keeps more";

/// Whether messages of a schema can be drawn.
pub(super) type Shows<'a> = dyn Fn([u8; 4]) -> bool + 'a;

/// The message of a panel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) sequence: u64,
    pub(super) epoch: u32,
    pub(super) entry: Entry,
}

/// Streams by name.
pub(super) struct Streams {
    open: HashMap<String, Stream>,
    most: usize,
}

/// A stream that is read.
pub(super) struct Stream {
    name: String,
    pub(super) reader: Reader,
    pub(super) times: Times,
    used: Instant,
    /// When its header was compared last.
    compared: Instant,
    /// The messages that this look could not read.
    pub(super) lost: Lost,
}

/// Messages that cannot be read, and why the first of them cannot. Messages that retention deleted do not belong to
/// them.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// Ranges: first, and one past the last.
    ranges: BTreeMap<u64, u64>,
    cause: String,
}

impl Lost {
    /// Adds those of a range below `end`.
    fn add(&mut self, missing: &Missing, end: u64) {
        if missing.why == Why::Retention {
            return;
        }
        if self.cause.is_empty() {
            self.cause = missing.error.to_string();
        }
        self.put(missing.first, missing.next.min(end));
    }

    fn put(&mut self, first: u64, next: u64) {
        let known = self.ranges.entry(first).or_default();
        *known = next.max(*known);
    }

    /// Adds those of another.
    pub(super) fn join(&mut self, other: &Self) {
        if self.cause.is_empty() {
            self.cause.clone_from(&other.cause);
        }
        other.ranges.iter().for_each(|(first, next)| self.put(*first, *next));
    }

    /// The fault of the panel; none where all were read.
    pub(super) fn fault(&self) -> Option<Fault> {
        let (mut count, mut end) = (0, 0);
        for (first, next) in &self.ranges {
            count += next.saturating_sub(end.max(*first));
            end = end.max(*next);
        }
        let what = match count {
            0 => return None,
            1 => "a message cannot be read, and is not shown".to_owned(),
            count => format!("{count} messages cannot be read, and are not shown"),
        };
        Some(Fault::new(what, &self.cause).hint("run `beamport verify` to list each wrong byte"))
    }
}

impl Streams {
    pub(super) fn new(most: usize) -> Self {
        Self { open: HashMap::new(), most: most.clamp(1, READERS_MAX) }
    }

    /// Opens a stream, or takes it from the last time.
    pub(super) fn open(&mut self, data: &Data, name: &str) -> Result<&mut Stream, Fault> {
        if Data::is_book(name) {
            return Err(Fault::new(
                format!("`{name}` is no stream of an instrument"),
                "beamport keeps its books there",
            )
            .hint("the status has runs, stages and readers"));
        }
        self.open_book(data, name)
    }

    /// The same for a book too.
    pub(super) fn open_book(&mut self, data: &Data, name: &str) -> Result<&mut Stream, Fault> {
        if let Some(stream) = self.open.get_mut(name)
            && stream.compared.elapsed() >= COMPARE
        {
            stream.compared = Instant::now();
            // Another stream, or none, is there now.
            if stream.reader.reattach().is_err() {
                self.open.remove(name);
            }
        }
        if !self.open.contains_key(name) {
            let oldest = self.open.iter().min_by_key(|(_, stream)| stream.used).map(|(name, _)| name.clone());
            if let Some(oldest) = oldest.filter(|_| self.open.len() >= self.most) {
                self.open.remove(&oldest);
            }
            let reader = data.reader(name, ReadOptions { early: true, ..ReadOptions::default() })?;
            reader.is_here().map_err(|e| flow::stream_fault(name, e))?;
            let now = Instant::now();
            let stream = Stream {
                name: name.to_owned(),
                reader,
                times: Times::default(),
                used: now,
                compared: now,
                lost: Lost::default(),
            };
            self.open.insert(name.to_owned(), stream);
        }
        let stream = self.opened(name)?;
        stream.used = Instant::now();
        stream.lost = Lost::default();
        Ok(stream)
    }

    /// A stream that is open, with what it lost since it was opened for this look.
    pub(super) fn opened(&mut self, name: &str) -> Result<&mut Stream, Fault> {
        self.open.get_mut(name).ok_or_else(|| Fault::new(format!("stream `{name}` cannot be read"), ""))
    }
}

impl Streams {
    /// Unpins what was read: a writer that finds its oldest segment pinned needs new memory, which slows it.
    pub(super) fn release(&mut self) {
        self.open.values_mut().for_each(|stream| stream.reader.release());
    }
}

impl Stream {
    pub(super) fn uuid(&self) -> [u8; 16] {
        self.reader.header().uuid
    }

    pub(super) fn origin(&mut self, row: u32) -> String {
        self.reader.origin(row).to_owned()
    }

    /// The epoch of a message.
    pub(super) fn epoch(&self, sequence: u64) -> u32 {
        self.reader.header().epochs.iter().rev().find(|(_, first)| *first <= sequence).map_or(0, |(epoch, _)| *epoch)
    }

    /// The message that a panel shows: its number, or the newest one up to a moment. `shows`: whether messages of a
    /// schema can be drawn as the panel asks.
    pub(super) fn find(&mut self, panel: &Panel, shows: &Shows<'_>, at: Option<i64>) -> Result<Found, Fault> {
        let bounds = self.reader.bounds();
        let what = format!("stream `{}` has no such message", self.name);
        let none = |cause: &str, hint: &str| Err(Fault::new(what.as_str(), cause).hint(hint));
        if let Some(sequence) = panel.sequence {
            if sequence < bounds.first {
                return none("retention has deleted it", RETAIN);
            }
            return match self.entry(sequence)? {
                Some(entry) => self.step(panel, shows, sequence, entry),
                None => none(&format!("the newest is {}", bounds.count.saturating_sub(1)), ""),
            };
        }
        if bounds.count == bounds.first {
            return none("it is empty", "");
        }
        let end = match at {
            None => self.reader.end(),
            Some(at) => self.end_at(at)?,
        };
        // A message whose entry is damaged has no time: the one behind the end may be of the moment.
        let next = end.max(bounds.first);
        self.entries((next, next + 1), &mut |_, _| ())?;
        if end <= bounds.first {
            return Err(self.lost.fault().unwrap_or_else(|| self.before(bounds.first)));
        }
        let origins = self.rows(panel)?;
        let is_auto = panel.is_auto();
        let low = bounds.first.max(end.saturating_sub(if is_auto { AUTO_MAX } else { SEARCH_MAX }));
        // Values come with alarms and units between them: those are shown where there is nothing else.
        let (mut newest, mut other) = (None, None);
        let mut high = end;
        while high > low && newest.is_none() {
            let from = low.max(high.saturating_sub(SLICE));
            self.entries((from, high), &mut |sequence, entry| {
                if origins.as_ref().is_some_and(|rows| !rows.contains(&entry.origin)) {
                    return;
                }
                if shows(entry.schema.0) {
                    newest = Some((sequence, *entry));
                } else if other.is_none_or(|(known, _)| known < sequence) {
                    other = Some((sequence, *entry));
                }
            })?;
            high = from;
        }
        if let Some((sequence, entry)) = newest.or(other.filter(|_| is_auto)) {
            return Ok(self.found(sequence, entry));
        }
        match self.lost.fault() {
            Some(fault) => Err(fault),
            None if is_auto => none("there is none of this origin, or before this moment", ""),
            None => {
                let what = format!("no message of stream `{}` can be shown as `{}`", self.name, panel.view);
                Err(Fault::new(what, "they have other schemas").hint("choose the view `auto`"))
            }
        }
    }

    /// Nothing is there up to a moment. `first`: the oldest message that is there.
    pub(super) fn before(&self, first: u64) -> Fault {
        let what = format!("stream `{}` has no message of this moment", self.name);
        match first {
            0 => Fault::new(what, "all that are there came after it"),
            _ => Fault::new(what, format!("retention has deleted the messages before number {first}")).hint(RETAIN),
        }
    }

    /// The message itself, or the one of the same origin before or after it.
    fn step(&mut self, panel: &Panel, shows: &Shows<'_>, sequence: u64, entry: Entry) -> Result<Found, Fault> {
        if panel.step == 0 {
            return Ok(self.found(sequence, entry));
        }
        let is_on = panel.step > 0;
        let device = flow::device_of(self.reader.origin(entry.origin)).to_owned();
        let of_device = self.rows_of(&device)?;
        let (bounds, end) = (self.reader.bounds(), self.reader.end());
        let low = bounds.first.max(sequence.saturating_sub(SEARCH_MAX));
        let high = end.min(sequence.saturating_add(SEARCH_MAX));
        let (mut from, mut to) = if is_on { (sequence + 1, sequence + 1) } else { (sequence, sequence) };
        while if is_on { to < high } else { from > low } {
            (from, to) = if is_on { (to, high.min(to + SLICE)) } else { (low.max(from.saturating_sub(SLICE)), from) };
            let mut beside = None;
            self.entries((from, to), &mut |sequence, other| {
                let fits = panel.is_auto() || shows(other.schema.0);
                let is_same = other.origin == entry.origin || of_device.contains(&other.origin);
                if fits && is_same && !(is_on && beside.is_some()) {
                    beside = Some((sequence, *other));
                }
            })?;
            if let Some((sequence, entry)) = beside {
                return Ok(self.found(sequence, entry));
            }
        }
        let cause = if is_on { "it is the newest of its origin" } else { "it is the oldest of its origin" };
        Err(Fault::new(format!("stream `{}` has no such message", self.name), cause))
    }

    /// The rows of an origin and of all lives of a device with its name.
    fn rows_of(&mut self, name: &str) -> Result<Vec<u32>, Fault> {
        let origins = self.reader.origins().map_err(|e| stream_fault(&self.name, e))?;
        let is_of = |origin: &str| origin == name || flow::device_of(origin) == name;
        Ok((0..).zip(origins).filter(|(_, origin)| is_of(origin)).map(|(row, _)| row).collect())
    }

    /// The rows of the origin that a panel asks for, all lives of a device; none where it asks for all.
    fn rows(&mut self, panel: &Panel) -> Result<Option<Vec<u32>>, Fault> {
        let Some(name) = &panel.origin else { return Ok(None) };
        let rows = self.rows_of(name)?;
        match rows.is_empty() {
            false => Ok(Some(rows)),
            // Of a trend it is the name in the messages.
            true if panel.is_auto() => Ok(None),
            true => Err(Fault::new(format!("stream `{}` has no origin `{name}`", self.name), "no message names it")),
        }
    }

    /// Shows the entries of a range that can be read, with their numbers.
    pub(super) fn entries(&mut self, (low, high): (u64, u64), see: &mut dyn FnMut(u64, &Entry)) -> Result<(), Fault> {
        let mut at = low;
        while at < high {
            let most = usize::try_from(high - at).unwrap_or(BATCH);
            match self.reader.next_entries(at, most).map_err(|e| stream_fault(&self.name, e))? {
                Stretch::Messages([]) => break,
                Stretch::Messages(entries) => {
                    entries.iter().zip(at..).for_each(|(entry, sequence)| see(sequence, entry));
                    at += entries.len() as u64;
                }
                Stretch::Missing(missing) => {
                    self.lost.add(&missing, high);
                    at = missing.next;
                }
            }
        }
        Ok(())
    }

    /// The messages before a number that have a schema that `shows` and a time in `(from, to]`, in their order: the
    /// newest ones whose bytes do not exceed the limit, at least one.
    pub(super) fn window(
        &mut self,
        panel: &Panel,
        shows: &Shows<'_>,
        (from, to): (i64, i64),
        (before, bytes_max): (u64, u64),
    ) -> Result<Vec<(u64, i64)>, Fault> {
        let origins = self.rows(panel)?;
        let is_epoch = self.reader.header().clock == Clock::Epoch;
        let start = from.saturating_add(1);
        let (low, high) = if is_epoch { self.time_range((start, to))? } else { (self.end_at(from)?, before) };
        let high = high.min(before);
        let low = low.max(high.saturating_sub(SEARCH_MAX));
        let mut found: Vec<(u64, i64, u32)> = Vec::new();
        self.entries((low, high), &mut |sequence, entry| {
            let time = if is_epoch { entry.source_time } else { entry.arrival_time };
            let is_wanted = origins.as_ref().is_none_or(|rows| rows.contains(&entry.origin));
            let is_wanted = is_wanted && shows(entry.schema.0);
            if is_wanted && (start..=to).contains(&time) {
                found.push((sequence, time, entry.length));
            }
        })?;
        let mut bytes = 0;
        let fits = |(_, _, length): &&(u64, i64, u32)| {
            bytes += u64::from(*length);
            bytes <= bytes_max
        };
        let count = found.iter().rev().take_while(fits).count().max(found.len().min(1));
        Ok(found.drain(found.len() - count..).map(|(sequence, time, _)| (sequence, time)).collect())
    }

    /// Shows the messages at the beginning of a range that can be read at once; where the rest begins.
    pub(super) fn batch(&mut self, (low, high): (u64, u64), see: &mut dyn FnMut(&Message<'_>)) -> Result<u64, Fault> {
        self.reader.seek(low);
        match self.reader.next((high - low) as usize).map_err(|e| stream_fault(&self.name, e))? {
            Stretch::Messages(batch) if batch.is_empty() => Ok(high),
            Stretch::Messages(batch) => {
                batch.iter().for_each(|message| see(&message));
                Ok(batch.next())
            }
            Stretch::Missing(missing) => {
                self.lost.add(&missing, high);
                Ok(missing.next)
            }
        }
    }

    /// Shows messages, given in order, as far as they can be read.
    pub(super) fn each(&mut self, messages: &[u64], see: &mut dyn FnMut(&Message<'_>)) -> Result<(), Fault> {
        let mut at = 0;
        while let Some(&first) = messages.get(at) {
            let row = messages[at..].iter().zip(first..).take(BATCH).take_while(|(sequence, next)| *sequence == next);
            self.reader.seek(first);
            match self.reader.next(row.count()).map_err(|e| stream_fault(&self.name, e))? {
                Stretch::Messages(batch) if batch.is_empty() => break,
                Stretch::Messages(batch) => {
                    batch.iter().for_each(|message| see(&message));
                    at += batch.len();
                }
                Stretch::Missing(missing) => {
                    let asked = messages[at..].iter().zip(first..).take_while(|(sequence, next)| *sequence == next);
                    self.lost.add(&missing, first + asked.count() as u64);
                    at += messages[at..].iter().take_while(|sequence| **sequence < missing.next).count();
                }
            }
        }
        Ok(())
    }

    /// The time that a panel goes by: the source time, or the arrival where source times are ticks.
    pub(super) fn time(&self, entry: &Entry) -> i64 {
        if self.reader.header().clock == Clock::Epoch { entry.source_time } else { entry.arrival_time }
    }

    fn found(&self, sequence: u64, entry: Entry) -> Found {
        Found { sequence, epoch: self.epoch(sequence), entry }
    }

    pub(super) fn entry(&mut self, sequence: u64) -> Result<Option<Entry>, Fault> {
        match self.reader.entries(sequence, 1) {
            Ok(entries) => Ok(entries.first().copied()),
            Err(e) => Err(stream_fault(&self.name, e)),
        }
    }

    /// One past the newest message up to a moment, by its source time; by its arrival where source times are ticks.
    pub(super) fn end_at(&mut self, at: i64) -> Result<u64, Fault> {
        if self.reader.header().clock == Clock::Epoch {
            self.refresh_times()?;
            return self.times.end_at(&mut self.reader, at).map_err(|e| stream_fault(&self.name, e));
        }
        let (mut low, mut high) = (self.reader.bounds().first, self.reader.end());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.entry(middle)? {
                Some(entry) if entry.arrival_time <= at => low = middle + 1,
                _ => high = middle,
            }
        }
        Ok(low)
    }

    /// The smallest range that holds all messages with a source time from `from` to `to`.
    pub(super) fn time_range(&mut self, times: (i64, i64)) -> Result<(u64, u64), Fault> {
        self.refresh_times()?;
        self.times.range(&mut self.reader, times).map_err(|e| stream_fault(&self.name, e))
    }

    /// Up to when values hold: none while a process writes, else the source time of the newest message.
    pub(super) fn until(&mut self) -> Option<i64> {
        if self.reader.writer().is_some() {
            return None;
        }
        self.newest().map(|entry| entry.source_time)
    }

    /// The entry of the newest message; none where there is none, or it cannot be read.
    pub(super) fn newest(&mut self) -> Option<Entry> {
        let newest = self.reader.end().checked_sub(1)?;
        self.entry(newest).ok().flatten()
    }

    /// Reads the source times that came since the last time.
    pub(super) fn refresh_times(&mut self) -> Result<(), Fault> {
        self.times.refresh(&mut self.reader).map_err(|e| stream_fault(&self.name, e))
    }

    /// The result of `see` for the bytes of a message.
    pub(super) fn payload<T>(
        &mut self,
        sequence: u64,
        see: &mut dyn FnMut(&[u8]) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.reader.seek(sequence);
        match self.reader.read(1) {
            Ok(batch) => match batch.iter().next() {
                Some(message) => see(message.payload),
                None => Err(Fault::new(format!("message {sequence} is not there any more"), "")),
            },
            Err(e) => Err(stream_fault(&self.name, e)),
        }
    }
}
