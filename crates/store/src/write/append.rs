//! Appending: payload, entry, mark, in this order.

use crate::error::Result;
use crate::format::crc::{EntryWords, crc32c, place, place_checked, settle};
use crate::format::entry::{ENTRY_BYTES, Entry, Meta, flags, salt, salt_seed};
use crate::format::segments::{TIME_ROW_BYTES, time_row};
use crate::limits::{ALIGN_FROM, CLOCK_STEP_NS, TIME_BLOCK};
use crate::live::protocol::{Bell, mark};
use crate::write::writer::Writer;
use std::sync::atomic::Ordering;

impl Writer {
    /// Appends and publishes one message; returns its sequence.
    pub fn append(&mut self, meta: &Meta, payload: &[u8]) -> Result<u64> {
        let sequence = self.push(meta, &[payload])?;
        self.publish();
        Ok(sequence)
    }

    /// Appends one message (the parts one after another) without publishing it; returns its sequence.
    /// With `Error::Full` and `Error::Dropped` what was pushed before has been published.
    #[inline]
    pub fn push(&mut self, meta: &Meta, parts: &[&[u8]]) -> Result<u64> {
        let len = parts.iter().map(|p| p.len()).sum();
        // SAFETY: as `push_with` asks.
        self.push_with(meta, len, |to, words, salt, slot| unsafe { place(parts, to, words, salt, slot) })
    }

    /// The same for a message whose checksum (CRC-32C) the caller has compared with these bytes: it is not computed
    /// again.
    #[inline]
    pub fn push_checked(&mut self, meta: &Meta, payload: &[u8], crc: u32) -> Result<u64> {
        debug_assert_eq!(crc, crc32c(payload), "the checksum is of other bytes");
        // SAFETY: as `push_with` asks; the place of a message has whole lines.
        self.push_with(meta, payload.len(), |to, words, salt, slot| unsafe {
            place_checked(payload, crc, to, words, salt, slot);
        })
    }

    /// Appends a message that `put` writes: `len` bytes of payload to a place, and its words, with the checksums filled
    /// in, to a slot.
    #[inline(always)]
    fn push_with(
        &mut self,
        meta: &Meta,
        len: usize,
        put: impl FnOnce(*mut u8, &EntryWords, u32, *mut EntryWords),
    ) -> Result<u64> {
        let start = self.place_for(len as u64, if len >= ALIGN_FROM { 64 } else { 8 })?;
        let slot = self.slot()?;
        let salt = salt(self.seed, self.cursor.next());
        // The fields of `Entry`, two to a word: built in registers. The checksums come with the copy.
        let words: EntryWords = [
            meta.source_time as u64,
            self.cursor.arrival as u64,
            meta.origin_seq,
            0,
            u64::from(meta.origin) | u64::from(u32::from_le_bytes(meta.schema.0)) << 32,
            u64::from(self.payload.number) | (start / 8) << 32,
            len as u64,
            u64::from(meta.flags | self.cursor.clock_flag),
        ];
        // SAFETY: both ranges were reserved, lie past everything published, and nobody else writes this stream; the
        // slot is aligned to 64 bytes. `publish` settles before it tells.
        let (to, at) = unsafe {
            (self.payload.segment.map.ptr().add(start as usize), self.entry_place(slot).cast::<EntryWords>())
        };
        put(to, &words, salt, at);
        Ok(self.count_in(slot, meta.source_time, start + len as u64))
    }

    /// Where the next `len` bytes of payload go: allocated, in this segment or a new one.
    #[inline(always)]
    pub(super) fn place_for(&mut self, len: u64, align: u64) -> Result<u64> {
        // A power of two: the general rounding would divide.
        let mut start = (self.payload.used + (align - 1)) & !(align - 1);
        if start + len > self.payload.segment.bytes()
            || (self.cursor.next() - self.payload.first) * ENTRY_BYTES as u64 >= self.header.segment_bytes
        {
            self.roll_payload(len)?;
            start = 0;
        }
        if let Err(why) = self.payload.segment.reserve(start + len) {
            self.retry_with_room(why, |writer| writer.payload.segment.reserve(start + len))?;
        }
        Ok(start)
    }

    /// Which entry of the index segment is next: allocated, and `arrival` is right for it.
    #[inline(always)]
    pub(super) fn slot(&mut self) -> Result<u64> {
        let slot = self.cursor.next() & (self.header.index_entries - 1);
        if (self.cursor.next() >> self.header.index_entries.trailing_zeros()) as u32 != self.index.number {
            self.roll_index()?;
        }
        let end = self.index.table_bytes + (slot + 1) * ENTRY_BYTES as u64;
        if let Err(why) = self.index.segment.reserve(end) {
            self.retry_with_room(why, |writer| writer.index.segment.reserve(end))?;
        }
        if self.cursor.next() == self.cursor.published() {
            self.check_failed()?;
            let now = self.media.now();
            self.cursor.arrival = self.cursor.arrival.max(now);
            self.cursor.clock_flag =
                if self.cursor.arrival.saturating_sub(now) > CLOCK_STEP_NS { flags::CLOCK } else { 0 };
            if self.look_at < i64::MAX {
                self.look_for_old();
            }
        }
        Ok(slot)
    }

    /// # Safety
    /// The slot must be of the segment.
    #[inline(always)]
    pub(super) unsafe fn entry_place(&self, slot: u64) -> *mut Entry {
        // SAFETY: the caller vouches for it.
        unsafe { self.index.segment.map.ptr().add(self.index.table_bytes as usize).cast::<Entry>().add(slot as usize) }
    }

    /// Seals the entry of the next message, whose bytes are in place, and counts it in.
    #[inline(always)]
    pub(super) fn put(&mut self, slot: u64, mut entry: Entry) -> u64 {
        entry.seal(salt(self.seed, self.cursor.next()));
        // SAFETY: the slot was reserved, is aligned to 64 bytes, lies past everything published, and nobody else writes
        // this stream.
        unsafe { self.entry_place(slot).write(entry) };
        self.count_in(slot, entry.source_time, entry.end())
    }

    #[inline(always)]
    pub(super) fn count_in(&mut self, slot: u64, source_time: i64, end: u64) -> u64 {
        debug_assert!(end <= self.payload.segment.bytes(), "a message ends behind its segment");
        debug_assert!(self.payload.used <= end, "messages of a segment overlap");
        debug_assert_eq!(slot, self.cursor.next() % self.header.index_entries, "an entry in the place of another");
        self.index.block = (self.index.block.0.min(source_time), self.index.block.1.max(source_time));
        if (slot + 1).is_multiple_of(TIME_BLOCK) {
            self.seal_block(slot / TIME_BLOCK);
        }
        self.payload.used = end;
        self.cursor.advance()
    }

    /// Makes everything pushed visible to readers; returns the mark `memory`.
    #[inline]
    pub fn publish(&mut self) -> u64 {
        if self.cursor.next() != self.cursor.published() {
            debug_assert_eq!(
                self.head().count.load(Ordering::Relaxed),
                self.cursor.published(),
                "one writer moves the mark"
            );
            self.cursor.publish();
            let head = self.head();
            settle();
            mark(&head.count, self.cursor.next());
            if (Bell { word: &head.count_word, asleep: self.pins.asleep(false) }).ring() {
                self.media.wake(&head.count_word);
            }
            // Behind the fence of the bell.
            self.ring.announce();
        }
        self.cursor.next()
    }

    /// Writes the row of a full block of the time table.
    fn seal_block(&mut self, block: u64) {
        let row = time_row(
            self.index.block,
            salt(salt_seed(&self.header.uuid, 0), self.cursor.next() / TIME_BLOCK * TIME_BLOCK),
        );
        self.index.block = (i64::MAX, i64::MIN);
        let at = (block * TIME_ROW_BYTES) as usize;
        // SAFETY: before the entries, which are allocated; readers use a row only once its block is published.
        unsafe { std::ptr::copy_nonoverlapping(row.as_ptr(), self.index.segment.map.ptr().add(at), row.len()) };
    }
}
