//! `bpgp`: a gap, messages known to be missing, and why.

use crate::Error;
use crate::flat::{Message, Table, Writer};

/// The schema id.
pub const ID: [u8; 4] = *b"bpgp";

/// Messages known to be missing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gap<'a> {
    /// Name of the stream they are missing from.
    pub stream: &'a str,
    /// Who made them: a board, a bank, a PV; empty where that is not known.
    pub origin: &'a str,
    /// Number of the first missing message.
    pub first: u64,
    /// Number of the last missing message (the gap includes it).
    pub last: u64,
    /// Source time from which they are missing, ns since 1970 UTC.
    pub from: i64,
    /// Source time up to which they are missing, ns since 1970 UTC.
    pub to: i64,
    /// Why, one word: `full`, `kernel`, `unexplained`...
    pub reason: &'a str,
    /// Whether `first` and `last` are sequences of the stream; otherwise they are numbers of the origin.
    pub by_sequence: bool,
    /// How many of the numbers `first` to `last` are missing; 0: all of them.
    pub count: u64,
}

/// Verifies and reads a message.
pub fn read(bytes: &[u8]) -> Result<Gap<'_>, Error> {
    let message = Message::open(bytes, ID)?;
    read_table(message.root()?)
}

/// Writes a message into `out`, replacing what was there.
pub fn write(out: &mut Vec<u8>, parts: &Gap<'_>) -> Result<(), Error> {
    let mut writer = Writer::begin(out, ID);
    write_table(&mut writer, 0, parts);
    writer.finish()
}

/// The same table stands in commits.
pub(crate) fn read_table<'a>(table: Table<'_, 'a>) -> Result<Gap<'a>, Error> {
    Ok(Gap {
        stream: table.text_or_empty(0, "gap.stream")?,
        origin: table.text_or_empty(1, "gap.origin")?,
        first: table.number(2, 0, "gap.first")?,
        last: table.number(3, 0, "gap.last")?,
        from: table.number(4, 0, "gap.from")?,
        to: table.number(5, 0, "gap.to")?,
        reason: table.text_or_empty(6, "gap.reason")?,
        by_sequence: table.flag(7, "gap.by_sequence")?,
        count: table.number(8, 0, "gap.count")?,
    })
}

pub(crate) fn write_table(writer: &mut Writer<'_>, slot: usize, parts: &Gap<'_>) {
    let [stream, origin, first, last, from, to, reason, by_sequence, count] =
        writer.table(slot, [4, 4, 8, 8, 8, 8, 4, 1, 8]);
    writer.put(first, parts.first);
    writer.put(last, parts.last);
    writer.put(from, parts.from);
    writer.put(to, parts.to);
    writer.put(count, parts.count);
    writer.put(by_sequence, u8::from(parts.by_sequence));
    writer.text(stream, parts.stream);
    writer.text(origin, parts.origin);
    writer.text(reason, parts.reason);
}
