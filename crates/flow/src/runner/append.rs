//! Messages that a program appends itself, without a source: `beamport append`, `beamport make`, Python.
//!
//! A missing stream is created. A message without a number gets the next one of its origin. A source time too far ahead
//! is flagged, as that of a source.
//!
//! Constraints: one thread, no waiting; if there is no room, the caller waits and offers the message again.
//!
//! Failure behaviour: a stream that another process writes is refused with that process.

use crate::data::{Data, stream_fault};
use crate::ledger::origin_tails;
use crate::{Fault, Resume};
use std::collections::HashMap;
use std::time::Duration;
use store::{Clock, Error, Header, Level, Meta, Options, SchemaId, Writer, flags};

/// Shared memory of a stream that is made here: the default of the instrument file.
const LIVE_BYTES: u64 = 64 << 20;
/// A source time further ahead of now than this, ns, is flagged: the default of the instrument file, 10 min.
const AHEAD_MAX: i64 = 600_000_000_000;

/// The properties of a message beside its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Label<'a> {
    /// Source time, ns since 1970 UTC (or what the stream's clock counts).
    pub time: i64,
    /// Its maker.
    pub origin: &'a str,
    /// Its number from its maker; `None`: the next one of its origin.
    pub number: Option<u64>,
    /// Its schema.
    pub schema: SchemaId,
}

/// Appends messages to one stream.
pub struct Appender {
    data: Data,
    name: String,
    writer: Writer,
    resume: Resume,
    /// Row and next number of the origins that were used.
    origins: HashMap<String, (u32, u64)>,
}

impl Appender {
    /// Opens the stream `name`, and makes it if it is not there: at level `memory` where the data folder is in memory, else
    /// `disk`. `options` replaces this choice for a stream that is made.
    pub fn open(data: &Data, name: &str, options: Option<Options>) -> Result<Self, Fault> {
        if name.is_empty() || name.contains('/') || name.starts_with('.') || Data::is_book(name) {
            let cause = "the name is reserved, or leads out of the data folder";
            let what = format!("cannot append to `{}`", name.escape_default());
            return Err(Fault::new(what, cause).hint("choose a name of letters, digits, `_` and `-`"));
        }
        let known = Header::read(data.media.as_ref(), &data.stream(name)).ok();
        let of_level = |level, live_bytes| Options { level, ..Options::memory(live_bytes) };
        let new = || {
            let level = if data.media.in_memory(&data.folder) { Level::Memory } else { Level::Disk };
            options.unwrap_or_else(|| of_level(level, LIVE_BYTES))
        };
        // A segment is at least an eighth of the live place.
        let options = known.map_or_else(new, |header| of_level(header.level, LIVE_BYTES.max(8 * header.segment_bytes)));
        let options = Options { drain: data.drain, ..options };
        let writer = match Writer::open(&data.media, &data.stream(name), name, &options) {
            Ok(writer) => writer,
            Err(Error::Locked(_)) => return Err(held(data, name)),
            Err(e) => return Err(stream_fault(name, e)),
        };
        let resume = Resume { origins: origin_tails(data, name)?, ..Resume::default() };
        Ok(Self { data: data.clone(), name: name.to_owned(), writer, resume, origins: HashMap::new() })
    }

    /// Appends one message, whose payload is the parts one behind the other, without publishing it; returns its sequence, or
    /// `None` where there is no room now: [`Appender::wait_room`], then offer it again.
    pub fn push(&mut self, label: &Label<'_>, parts: &[&[u8]]) -> Result<Option<u64>, Fault> {
        let meta = self.meta(label)?;
        let answer = self.writer.push(&meta, parts);
        self.counted(label, &meta, answer)
    }

    fn meta(&mut self, label: &Label<'_>) -> Result<Meta, Fault> {
        let (row, next) = self.origin(label.origin)?;
        let number = label.number.unwrap_or(next);
        let flags = self.flags(label.time);
        Ok(Meta { source_time: label.time, origin: row, origin_seq: number, schema: label.schema, flags })
    }

    /// Counts a message that was appended.
    fn counted(&mut self, label: &Label<'_>, meta: &Meta, answer: store::Result<u64>) -> Result<Option<u64>, Fault> {
        match answer {
            Ok(sequence) => {
                if let Some(known) = self.origins.get_mut(label.origin) {
                    known.1 = known.1.max(meta.origin_seq.saturating_add(1));
                }
                Ok(Some(sequence))
            }
            Err(e) if e.is_full() && !matches!(e, Error::Io { .. }) => Ok(None),
            Err(e) => Err(stream_fault(&self.name, e)),
        }
    }

    /// Appends a message of `len` bytes that `write` puts into stream memory itself; else as [`Appender::push`]. The
    /// initial bytes of the room are undefined.
    pub fn push_written(
        &mut self,
        label: &Label<'_>,
        len: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<Option<u64>, Fault> {
        let meta = self.meta(label)?;
        let answer = self.writer.reserve(len).and_then(|mut room| {
            let (at, bytes) = room.rest();
            write(bytes);
            room.commit(&meta, at..at + len)
        });
        self.counted(label, &meta, answer)
    }

    /// Shows readers what was appended; mark `memory`.
    pub fn publish(&mut self) {
        self.writer.publish();
    }

    /// Waits for room or the time, whichever comes first.
    pub fn wait_room(&self, timeout: Duration) {
        self.writer.wait_room(timeout);
    }

    /// Publishes, and waits until everything below `sequence` is safe at `level` or the time has passed; true if it is.
    pub fn wait(&mut self, sequence: u64, level: Level, timeout: Duration) -> Result<bool, Fault> {
        self.writer.publish();
        self.writer.wait(sequence, level, timeout).map_err(|e| stream_fault(&self.name, e))
    }

    /// The number that the next message of an origin gets where it has none.
    pub fn next_number(&mut self, origin: &str) -> Result<u64, Fault> {
        Ok(self.origin(origin)?.1)
    }

    /// The sequence of the next message.
    pub fn next_sequence(&self) -> u64 {
        self.writer.next_sequence()
    }

    /// The stream's writer, for its header and marks.
    pub fn writer(&mut self) -> &mut Writer {
        &mut self.writer
    }

    fn origin(&mut self, name: &str) -> Result<(u32, u64), Fault> {
        if let Some(known) = self.origins.get(name) {
            return Ok(*known);
        }
        let row = self.writer.origin(name).map_err(|e| stream_fault(&self.name, e))?;
        let known = (row, self.resume.next_seq(name));
        self.origins.insert(name.to_owned(), known);
        Ok(known)
    }

    fn flags(&self, time: i64) -> u16 {
        let is_ahead =
            self.writer.header().clock == Clock::Epoch && time > self.data.media.now().saturating_add(AHEAD_MAX);
        if is_ahead { flags::AHEAD } else { 0 }
    }
}

/// Why nothing is appended to a stream that another process writes.
fn held(data: &Data, name: &str) -> Fault {
    let process = data.reader_early(name).ok().and_then(|reader| reader.writer());
    let process = process.map_or_else(|| "another process".to_owned(), |process| format!("process {}", process.pid));
    let cause = format!("{process} writes it in {}", data.folder.display());
    Fault::new(format!("cannot append to stream `{name}`"), cause)
        .hint("append to another stream; a running instrument takes messages only from `[source.NAME]` of its file")
}
