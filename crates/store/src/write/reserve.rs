//! Reserved stream memory that the caller fills itself.
//!
//! Constraints: no copy, no allocation; the commit computes the checksum while the bytes are still in the cache. A
//! reservation may be larger than its messages: each commit turns a range into one message, ranges rise and begin at
//! multiples of 8 bytes, and uncommitted bytes are discarded without a trace. Committed messages are published like
//! pushed ones.
//!
//! Failure behaviour: lack of space is refused before any change, like a push. A refused commit leaves the bytes in
//! place and can be retried. A process that dies has appended only published messages.

use crate::error::{Error, Result};
use crate::format::crc::crc32c;
use crate::format::entry::{Entry, Meta, salt};
use crate::write::writer::Writer;
use std::ops::Range;

/// Room for messages, in stream memory; see [`Writer::reserve`].
pub struct Reserved<'a> {
    writer: &'a mut Writer,
    /// Its first byte in the payload segment.
    start: u64,
    len: usize,
    /// Bytes from its beginning that commits have taken, with what they passed over.
    taken: usize,
}

impl Writer {
    /// Room for `len` bytes of payload, aligned to 64 bytes: one message of unknown size, or several.
    /// With `Error::Full` and `Error::Dropped` what was pushed before has been published.
    pub fn reserve(&mut self, len: usize) -> Result<Reserved<'_>> {
        let start = self.place_for(len as u64, 64)?;
        Ok(Reserved { writer: self, start, len, taken: 0 })
    }
}

impl Reserved<'_> {
    /// The bytes that no commit has used yet, and where in the room they begin. Their content is unknown.
    pub fn rest(&mut self) -> (usize, &mut [u8]) {
        // SAFETY: reserved, past everything published (which the commits took), and the writer is borrowed: nobody else
        // writes. The drainer may copy the block that these bytes share with the last message; it writes it again later.
        let bytes = unsafe {
            let first = self.writer.payload.segment.map.ptr().add(self.start as usize + self.taken);
            std::slice::from_raw_parts_mut(first, self.len - self.taken)
        };
        (self.taken, bytes)
    }

    /// Appends a range of the room as one message without publishing it; returns its sequence.
    pub fn commit(&mut self, meta: &Meta, range: Range<usize>) -> Result<u64> {
        let Range { start, end } = range;
        if !start.is_multiple_of(8) || start < self.taken || end < start || end > self.len {
            return Err(Error::Limit(format!(
                "bytes {start} to {end} are no message of a room of {} bytes of which {} are taken: \
                 messages rise and begin on multiples of 8",
                self.len, self.taken
            )));
        }
        let slot = self.writer.slot()?;
        let offset = self.start + start as u64;
        // SAFETY: reserved, and nobody writes while `self` is borrowed.
        let bytes = unsafe {
            std::slice::from_raw_parts(self.writer.payload.segment.map.ptr().add(offset as usize), end - start)
        };
        let entry = Entry {
            source_time: meta.source_time,
            arrival_time: self.writer.cursor.arrival,
            origin_seq: meta.origin_seq,
            parent_sequence: 0,
            origin: meta.origin,
            schema: meta.schema,
            segment: self.writer.payload.number,
            offset8: (offset / 8) as u32,
            length: bytes.len() as u32,
            payload_crc: crc32c(bytes) ^ salt(self.writer.seed, self.writer.cursor.next()),
            flags: meta.flags | self.writer.cursor.clock_flag,
            parent: 0,
            crc: 0,
        };
        self.taken = end.next_multiple_of(8).min(self.len);
        Ok(self.writer.put(slot, entry))
    }

    /// Makes what was committed visible to readers, while more comes in behind it; returns the mark `memory`.
    pub fn publish(&mut self) -> u64 {
        self.writer.publish()
    }
}
