//! Messages set aside: a message that a stage could not handle is appended to `STAGE.aside` as `bpas`, with its bytes,
//! the reason (one word) and a text.
//!
//! Constraints: the stream keeps the newest 64 MiB, of a source 4 MiB, enough to find a cause; the counts are in the
//! commits of the stage.
//!
//! Failure behaviour: without room the message stays with the stage, which tries again and commits only afterwards. If
//! its bytes are no longer readable, only identity and reason are appended.

use crate::Fault;
use crate::data::{Data, aside_of, stream_fault};
use crate::limits::BOOK_LIVE_BYTES;
use store::{Clock, Entry, Level, Meta, Options, Reader, SchemaId, WhenFull, Writer};

/// A message that a stage could not handle, and why.
pub(crate) struct Unhandled<'a> {
    pub(crate) stage: &'a str,
    /// One word.
    pub(crate) reason: &'a str,
    /// For people: a traceback, a signal.
    pub(crate) text: &'a str,
    /// The input that the message is in.
    pub(crate) stream: &'a str,
    pub(crate) uuid: [u8; 16],
    pub(crate) epoch: u32,
    pub(crate) sequence: u64,
    /// Name of its origin.
    pub(crate) origin: &'a str,
}

/// A message for `STAGE.aside`.
pub(crate) struct Row {
    pub(crate) bytes: Vec<u8>,
    /// Its source time, ns since 1970 UTC.
    pub(crate) time: i64,
    /// Its number at its origin.
    pub(crate) number: u64,
}

impl Unhandled<'_> {
    /// Encodes it as `bpas`: `kind` is its schema, `time` its source time.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, kind: &str, time: i64, payload: &[u8]) -> Result<(), Fault> {
        let &Self { stage, reason, text, stream, uuid, epoch, sequence, origin } = self;
        let payload = payload.into();
        let aside =
            wire::bpas::Aside { stage, reason, text, stream, uuid, epoch, sequence, kind, time, payload, origin };
        wire::bpas::write(out, &aside).map_err(|e| Fault::new("a message cannot be set aside", e))
    }

    /// The same with its bytes from the input, where they are still there; else its time is `now`, ns since 1970 UTC.
    pub(crate) fn read(&self, input: &mut Reader, now: i64) -> Result<Row, Fault> {
        let (entry, payload) = match input.get(self.sequence) {
            Ok(Some((entry, payload))) => (Some(entry), payload),
            _ => (None, Vec::new()),
        };
        let kind = entry.map(|entry: Entry| entry.schema.as_text()).unwrap_or_default();
        let (time, number) = entry.map_or((now, 0), |entry| (entry.source_time, entry.origin_seq));
        let origin = entry.map(|entry| input.origin(entry.origin).to_owned()).unwrap_or_default();
        let mut bytes = Vec::new();
        Unhandled { origin: &origin, ..*self }.encode(&mut bytes, &kind, time, &payload)?;
        Ok(Row { bytes, time, number })
    }
}

/// How a stream of messages aside is kept: level and clock are those of what its stage reads, or fills.
#[derive(Clone, Copy)]
pub(crate) struct Like {
    pub(crate) level: Level,
    pub(crate) clock: Clock,
    /// Bytes that it keeps.
    pub(crate) bytes: u64,
}

/// Opens `STAGE.aside`, and creates it if it is missing.
pub(crate) fn open(data: &Data, stage: &str, Like { level, clock, bytes }: Like) -> Result<Writer, Fault> {
    let bounded = match level {
        Level::Memory => Options { when_full: WhenFull::DropOldest, ..Options::memory(bytes) },
        Level::Disk => Options { retain_bytes: Some(bytes), ..Options::disk(BOOK_LIVE_BYTES) },
    };
    data.writer(&aside_of(stage), &Options { clock, ..bounded })
}

/// Appends a message to `STAGE.aside`, which is opened with the first. An error that [`crate::Passes::WithRoom`]: there
/// is no room for it now.
pub(crate) fn append(
    writer: &mut Option<Writer>,
    data: &Data,
    stage: &str,
    like: Like,
    row: &Row,
) -> Result<(), Fault> {
    let writer = match writer {
        Some(writer) => writer,
        None => writer.insert(open(data, stage, like)?),
    };
    push(writer, stage, row)
}

/// The same, where it is open.
pub(crate) fn push(writer: &mut Writer, stage: &str, row: &Row) -> Result<(), Fault> {
    let appended = writer.origin(stage).and_then(|origin| {
        let schema = SchemaId(wire::bpas::ID);
        let meta = Meta { source_time: row.time, origin, origin_seq: row.number, schema, flags: 0 };
        writer.append(&meta, &row.bytes)
    });
    appended.map(drop).map_err(|e| stream_fault(&aside_of(stage), e))
}
