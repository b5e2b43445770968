//! Messages with their payloads, each checked before it is returned.

use crate::error::{Error, Result};
use crate::format::crc::crc32c_from_memory;
use crate::format::entry::{ENTRY_BYTES, Entry};
use crate::read::batch::Batch;
use crate::read::options::Check;
use crate::read::reader::Reader;
use crate::read::reader::index::no_entry;

impl Reader {
    /// The next messages, at most `max`; empty if there are none now. Moves on behind them. One that does not verify
    /// ends the batch before it, and is an error when it is the first.
    pub fn read(&mut self, max: usize) -> Result<Batch<'_>> {
        let max = if self.held.is_some() { max } else { self.copy_ahead(max)? };
        self.read_mapped(max)
    }

    /// One message by sequence (does not move the position).
    pub fn get(&mut self, sequence: u64) -> Result<Option<(Entry, Vec<u8>)>> {
        let stand = self.next;
        self.next = sequence;
        let answer = self.read(1).map(|batch| batch.iter().next().map(|m| (*m.entry, m.payload.to_vec())));
        self.next = stand;
        answer
    }

    /// Copies what `read_mapped` will show; how many messages that is.
    fn copy_ahead(&mut self, max: usize) -> Result<usize> {
        loop {
            let from = self.next;
            let answer = self.read_mapped(max).map(|batch| batch.len());
            self.next = from;
            match answer {
                // Bytes that a writer gave up while they were copied are elsewhere now, or gone.
                Err(Error::Corrupt { .. }) if self.drop_given_up() => {}
                answer => return answer,
            }
        }
    }

    fn read_mapped(&mut self, max: usize) -> Result<Batch<'_>> {
        let from = self.next;
        let Some((mut count, at)) = self.entry_range(from, max)? else {
            return Ok(Batch::none(from));
        };
        let Some(index) = self.index.clone() else { return Ok(Batch::none(from)) };
        let bytes = index.read(at, (count * ENTRY_BYTES) as u64).ok_or_else(|| no_entry(&index, at, from))?;
        let entries: &[Entry] = bytemuck::cast_slice(bytes);
        let segment = entries[0].segment;
        if !entries[0].holds(self.salt(from)) {
            return Err(Error::Corrupt { path: index.path.clone(), at, sequence: from, what: "the entry" });
        }
        if entries[0].parent != 0 {
            return self.read_view(from, entries, at);
        }
        if self.payload.as_ref().is_none_or(|p| p.number != segment) {
            self.payload = None;
            match self.map_segment(true, segment) {
                Ok(mapped) => self.payload = Some(mapped),
                // Messages without bytes need no file, and a segment of such alone has none on the medium.
                Err(Error::Missing(_)) if entries[0].length == 0 => return self.empties(from, count, at),
                Err(Error::Missing(path)) => {
                    let lost = |(i, e): &(usize, &Entry)| e.segment == segment && e.holds(self.salt(from + *i as u64));
                    let lost = entries.iter().enumerate().take_while(lost).count().max(1);
                    return Err(Error::Lost { path, first: from, end: from + lost as u64 });
                }
                Err(e) => return Err(e),
            }
        }
        let Some(payload) = &self.payload else { return Ok(Batch::none(from)) };
        let mut total = 0;
        for (i, entry) in entries.iter().enumerate() {
            let sequence = from + i as u64;
            total += u64::from(entry.length);
            let salt = self.salt(sequence);
            let is_apart = entry.segment != segment || entry.parent != 0;
            let is_full = i > 0 && total > self.options.batch_bytes;
            // The first was proven above.
            if is_apart || is_full || (self.options.check >= Check::Entries && !entry.holds(salt)) {
                count = i;
                break;
            }
            // Whatever is checked, a payload is all there or it is none.
            let (place, length) = (entry.offset(), u64::from(entry.length));
            let good = match self.options.check {
                Check::All => payload.read(place, length).is_some_and(|bytes| {
                    crc32c_from_memory(bytes, bytes.as_ptr_range().end) ^ salt == entry.payload_crc
                }),
                Check::Nothing | Check::Entries => payload.bytes(place, length).is_some(),
            };
            if !good && i > 0 {
                count = i;
                break;
            }
            if !good {
                let path = payload.path.clone();
                return Err(Error::Corrupt { path, at: place, sequence, what: "the payload" });
            }
        }
        self.next = from + count as u64;
        let entries = self.entries_at(at, count);
        Ok(Batch { first: from, entries, segments: self.payload.as_slice(), places: &[] })
    }

    /// A batch of messages without bytes.
    fn empties(&mut self, from: u64, count: usize, at: u64) -> Result<Batch<'_>> {
        let entries = self.entries_at(at, count);
        let good = |(i, e): &(usize, &Entry)| {
            let salt = self.salt(from + *i as u64);
            e.length == 0 && e.parent == 0 && e.holds(salt) && e.payload_holds(&[], salt)
        };
        let count = entries.iter().enumerate().take_while(good).count();
        if count == 0 {
            let path = self.index.as_ref().map_or_else(|| self.folder.clone(), |i| i.path.clone());
            return Err(Error::Corrupt { path, at, sequence: from, what: "the entry" });
        }
        self.next = from + count as u64;
        Ok(Batch { first: from, entries: self.entries_at(at, count), segments: &[], places: &[] })
    }
}
