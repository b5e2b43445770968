//! Books: the streams that hold beamport's records, one message per record.
//!
//! `STAGE.commits`, `SINK.RUN.commits`, `runs` and `control` are books. One process writes a book; any process may read
//! it up to its mark, because a record that a power cut can remove does not count yet.
//!
//! Constraints: a few records per second. A book's size is bounded if its oldest records matter least ([`Keeps`]); in
//! memory every book discards its oldest.
//!
//! Failure behaviour: lack of room for a record is an error that [`Passes::WithRoom`], and the book is unchanged:
//! append it again later. A record that does not verify is skipped, and [`Data::damage`] names it.

use crate::data::{Data, RUNS, each_batch, not_written, stream_fault};
use crate::limits::{BOOK_LIVE_BYTES, BOOK_MEMORY_BYTES, BOOK_PATIENCE};
use crate::records::{Commit, Run};
use crate::{Fault, Passes};
use serde::Serialize;
use std::fmt;
use std::time::Duration;
use store::{Level, Meta, Options, ReadOptions, SchemaId, Stretch, Writer};

/// A record of a book.
pub trait Record {
    /// Schema of its message.
    const SCHEMA: SchemaId;

    /// When it was made, ns since 1970 UTC.
    fn time(&self) -> i64;

    /// Its number among the records of its maker. `None`: its sequence in the book.
    fn number(&self) -> Option<u64> {
        None
    }

    /// Its message, which replaces what `out` holds.
    fn encode(&self, out: &mut Vec<u8>) -> Result<(), Fault>;
}

impl Record for Commit {
    const SCHEMA: SchemaId = SchemaId(wire::bpcm::ID);

    fn time(&self) -> i64 {
        self.time
    }

    fn number(&self) -> Option<u64> {
        Some(self.block)
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.write(out)
    }
}

impl Record for Run {
    const SCHEMA: SchemaId = SchemaId(wire::bprn::ID);

    fn time(&self) -> i64 {
        self.time
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.write(out, 0)
    }
}

/// A step of a run, and the distance to the earlier message that has the metadata of its instrument; 0: it has them.
pub(crate) struct RunStep<'a>(pub(crate) &'a Run, pub(crate) u32);

impl Record for RunStep<'_> {
    const SCHEMA: SchemaId = SchemaId(wire::bprn::ID);

    fn time(&self) -> i64 {
        self.0.time
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.0.write(out, self.1)
    }
}

impl Record for wire::bpct::Control<'_> {
    const SCHEMA: SchemaId = SchemaId(wire::bpct::ID);

    fn time(&self) -> i64 {
        self.time
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), Fault> {
        wire::bpct::write(out, self).map_err(|e| Fault::new("a command cannot be coded", e))
    }
}

/// Which records a book keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// Every record, as long as the data folder is on a disk.
    All,
    /// The newest records, up to this number of bytes.
    Newest(u64),
}

/// A book that is open for writing.
pub struct Book {
    writer: Writer,
    bytes: Vec<u8>,
    /// Bytes of the records that were appended.
    written: u64,
}

impl Book {
    /// Opens a book, and creates it if it is missing: on disk, or in memory where the data folder is in memory.
    pub fn open(data: &Data, name: &str, keeps: Keeps) -> Result<Self, Fault> {
        let options = match (keeps, data.media.in_memory(&data.folder)) {
            (Keeps::All, true) => Options::memory(BOOK_MEMORY_BYTES),
            (Keeps::Newest(bytes), true) => Options::memory(bytes),
            (Keeps::All, false) => Options::disk(BOOK_LIVE_BYTES),
            (Keeps::Newest(bytes), false) => Options { retain_bytes: Some(bytes), ..Options::disk(BOOK_LIVE_BYTES) },
        };
        let mut writer = data.writer(name, &options)?;
        // Records have a name for who made them: without one a message that is waited for does not prove itself, and each
        // mark costs one more flush.
        match writer.origin("beamport") {
            Err(e) if !e.is_full() => Err(stream_fault(name, e)),
            _ => Ok(Self { writer, bytes: Vec::new(), written: 0 }),
        }
    }

    /// Opens a book, and waits until all that it holds is as safe as its level promises: only then is it believed.
    pub fn open_settled(data: &Data, name: &str, keeps: Keeps) -> Result<Self, Fault> {
        let mut book = Self::open(data, name, keeps)?;
        book.settle()?;
        Ok(book)
    }

    /// Makes all that a book holds as safe as its level promises, and leaves the book closed.
    pub(crate) fn settle_closed(data: &Data, name: &str, keeps: Keeps) -> Result<(), Fault> {
        let reader = data.reader_early(name)?;
        let bounds = reader.bounds();
        let is_safe = reader.header().level == Level::Memory || bounds.closed && bounds.disk >= bounds.count;
        if is_safe { Ok(()) } else { Self::open_settled(data, name, keeps).map(drop) }
    }

    /// Waits until all that the book holds is as safe as its level promises.
    pub fn settle(&mut self) -> Result<(), Fault> {
        match self.next_sequence().checked_sub(1) {
            Some(newest) if !self.wait(newest, BOOK_PATIENCE)? => Err(self.unwritten()),
            _ => Ok(()),
        }
    }

    /// Appends a record and shows it to readers; its sequence. An error that [`Passes::WithRoom`]: there is no room for it now.
    pub fn append(&mut self, record: &impl Record) -> Result<u64, Fault> {
        let number = record.number().unwrap_or_else(|| self.next_sequence());
        self.append_numbered(record, number)
    }

    /// The same with a number in place of its own.
    pub(crate) fn append_numbered<R: Record>(&mut self, record: &R, number: u64) -> Result<u64, Fault> {
        record.encode(&mut self.bytes)?;
        let meta = own_meta(record.time(), number, R::SCHEMA);
        let sequence = self.writer.append(&meta, &self.bytes);
        let sequence = sequence.map_err(|e| stream_fault(&self.writer.header().name, e))?;
        self.written += (self.bytes.len() + store::ENTRY_BYTES) as u64;
        Ok(sequence)
    }

    /// Bytes of the records that were appended since the book was opened, with their index entries.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// True if the record of this sequence is as safe as the level of the book promises.
    pub fn is_safe(&self, sequence: u64) -> bool {
        self.writer.header().level == Level::Memory || self.writer.mark(Level::Disk) > sequence
    }

    /// Waits until the record of this sequence is as safe as the level of the book promises. False when the time is over;
    /// the disk has been asked for it then.
    pub fn wait(&mut self, sequence: u64, patience: Duration) -> Result<bool, Fault> {
        if self.is_safe(sequence) {
            return Ok(true);
        }
        let answer = self.writer.wait(sequence + 1, Level::Disk, patience);
        answer.map_err(|e| stream_fault(&self.writer.header().name, e))
    }

    /// Says that records do not reach the disk, and why.
    fn unwritten(&self) -> Fault {
        let what = format!("stream `{}` is not written down", self.writer.header().name);
        Fault { passes: Passes::WithRoom, ..not_written(what, self.writer.trouble()) }
    }

    /// Sequence of the next record.
    pub fn next_sequence(&self) -> u64 {
        self.writer.next_sequence()
    }

    /// The writer of the stream, for its header, its recovery and why its mark does not move.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// The writer of the stream, for group commits of its own.
    pub fn writer_mut(&mut self) -> &mut Writer {
        &mut self.writer
    }
}

/// The index entry of a message of beamport's own streams. `time` in ns since 1970 UTC.
pub(crate) fn own_meta(time: i64, number: u64, schema: SchemaId) -> Meta {
    Meta { source_time: time, origin: 0, origin_seq: number, schema, flags: 0 }
}

/// The newest commit of a book, below its mark, that verifies and is `wanted`; `None` if there is none, or no such book.
pub(crate) fn newest_commit(
    data: &Data,
    book: &str,
    wanted: &mut dyn FnMut(&Commit) -> bool,
) -> Result<Option<Commit>, Fault> {
    let mut read = || {
        let mut reader = data.reader(book, ReadOptions::default())?;
        let first = reader.bounds().first;
        for sequence in (first..reader.end()).rev() {
            reader.seek(sequence);
            let Stretch::Messages(batch) = reader.next(1).map_err(|e| stream_fault(book, e))? else { continue };
            let Some(message) = batch.get(sequence) else { continue };
            let commit = Commit::read(message.payload)?;
            if wanted(&commit) {
                return Ok(Some(commit));
            }
        }
        Ok(None)
    };
    match read() {
        Err(_) if data.is_removed(book) => Ok(None),
        answer => answer,
    }
}

impl Data {
    /// Payloads of all messages of a book up to its mark, oldest first; none if there is no such stream. Those that do not
    /// verify are passed over: [`Data::damage`] names them.
    pub fn book_messages(&self, name: &str) -> Result<Vec<Vec<u8>>, Fault> {
        self.book_and_lost(name).map(|(messages, _)| messages)
    }

    /// The same, with how many do not verify.
    pub(crate) fn book_and_lost(&self, name: &str) -> Result<(Vec<Vec<u8>>, u64), Fault> {
        let read = || {
            let mut reader = self.reader(name, ReadOptions::default())?;
            let mut all = Vec::new();
            let lost = each_batch(&mut reader, u64::MAX, &mut |batch| {
                all.extend(batch.iter().map(|message| message.payload.to_vec()));
                Ok(true)
            })?;
            Ok((all, lost.iter().map(|l| l.end - l.start).sum()))
        };
        match read() {
            Err(_) if self.is_removed(name) => Ok((Vec::new(), 0)),
            answer => answer,
        }
    }

    /// True if there is no such stream, or it was removed while it was read: what a book held is in another one then.
    pub(crate) fn is_removed(&self, name: &str) -> bool {
        matches!(store::Header::read(self.media.as_ref(), &self.stream(name)), Err(store::Error::Missing(_)))
    }

    /// Lists the unreadable messages of books, by stream. Every other message of them counts as before.
    pub fn damage(&self) -> Result<Vec<BookDamage>, Fault> {
        let mut all = Vec::new();
        for book in self.streams(true)?.into_iter().filter(|name| name == RUNS || name.ends_with(".commits")) {
            match store::verify(&self.media, &self.stream(&book), &mut |_, _| ()) {
                Ok(seen) => all.extend(seen.damage.into_iter().map(|d| BookDamage {
                    book: book.clone(),
                    first: d.first,
                    last: d.end - 1,
                    why: d.why,
                })),
                // Removed while it was read: its newest record is in another book.
                Err(_) if store::Header::read(self.media.as_ref(), &self.stream(&book)).is_err() => {}
                Err(e) => return Err(stream_fault(&book, e)),
            }
        }
        Ok(all)
    }
}

/// Messages of a book that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BookDamage {
    /// The book.
    pub book: String,
    /// First sequence.
    pub first: u64,
    /// Last sequence.
    pub last: u64,
    /// File, place and check.
    pub why: String,
}

impl fmt::Display for BookDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { book, first, last, why } = self;
        match last - first {
            0 => write!(f, "message {first} of `{book}` is lost: {why}"),
            _ => write!(f, "messages {first} to {last} of `{book}` are lost: {why}"),
        }
    }
}
