//! Mirrors: a stream whose messages are copies of those of another stream, its near one, and keep their numbers, times
//! and flags.
//!
//! Each entry has the sequence of its message in the near stream, and the header names the near stream with its epoch.
//! So the last entry tells where the mirror goes on, and cannot disagree with its messages.
//!
//! Constraint: the header is on the medium before the first message of another near stream is appended. That costs a
//! sync, once for each start of the near side that begins another stream or epoch.

use crate::error::{Error, Result};
use crate::format::crc::{EntryWords, crc32c, place_checked};
use crate::format::entry::{Meta, flags, salt};
use crate::format::header::{Identity, Near};
use crate::limits::{ALIGN_FROM, CLOCK_STEP_NS, NEAR_MAX};
use crate::write::writer::Writer;

/// A message of a near stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mirrored {
    /// Its facts, with the row that its origin has in the mirror, and all its flags.
    pub meta: Meta,
    /// When it arrived in the near stream, ns since 1970 UTC.
    pub arrival_time: i64,
    /// Where it stands there.
    pub near: Identity,
    /// CRC-32C of its payload, which has been compared with the bytes.
    pub crc: u32,
}

impl Writer {
    /// The newest message that the stream had of each near stream when it was opened, oldest stream first; nothing of a
    /// stream that is no mirror. A near stream whose messages retention has deleted has [`NEAR_GONE`].
    ///
    /// [`NEAR_GONE`]: crate::limits::NEAR_GONE
    pub fn mirrored(&self) -> &[Identity] {
        &self.mirrored
    }

    /// Appends a message of a near stream without publishing it; returns its sequence here. Its arrival is the near
    /// one, or that of the message before where it would fall.
    pub fn push_mirrored(&mut self, message: &Mirrored, payload: &[u8]) -> Result<u64> {
        debug_assert_eq!(message.crc, crc32c(payload), "the checksum is of other bytes");
        let Mirrored { meta, arrival_time, near, crc } = message;
        self.follow(near)?;
        let len = payload.len() as u64;
        let start = self.place_for(len, if payload.len() >= ALIGN_FROM { 64 } else { 8 })?;
        let before = self.cursor.arrival;
        let slot = self.slot()?;
        self.cursor.arrival = before.max(*arrival_time);
        let is_back = before.saturating_sub(*arrival_time) > CLOCK_STEP_NS;
        let meta_flags = meta.flags | if is_back { flags::CLOCK } else { 0 };
        let salt = salt(self.seed, self.cursor.next());
        let words: EntryWords = [
            meta.source_time as u64,
            self.cursor.arrival as u64,
            meta.origin_seq,
            near.sequence,
            u64::from(meta.origin) | u64::from(u32::from_le_bytes(meta.schema.0)) << 32,
            u64::from(self.payload.number) | (start / 8) << 32,
            len,
            u64::from(meta_flags),
        ];
        // SAFETY: as in `push_with`: both ranges were reserved, lie past everything published, and nobody else writes
        // this stream; the place of a message has whole lines, and the slot is aligned to 64 bytes.
        unsafe {
            let to = self.payload.segment.map.ptr().add(start as usize);
            place_checked(payload, *crc, to, &words, salt, self.entry_place(slot).cast::<EntryWords>());
        }
        Ok(self.count_in(slot, meta.source_time, start + len))
    }

    /// Writes into the header which stream and epoch the next message repeats, where that is new.
    fn follow(&mut self, near: &Identity) -> Result<()> {
        let next = self.cursor.next();
        let is_known = |known: &Near| known.from <= next && (known.uuid, known.epoch) == (near.uuid, near.epoch);
        if self.header.near.last().is_some_and(is_known) {
            return Ok(());
        }
        let first = self.first_sequence();
        let mut header = self.header.clone();
        // A process that was killed before it appended anything has left a line of what comes.
        header.near.retain(|known| known.from < next);
        if !header.near.last().is_some_and(is_known) {
            header.near.push(Near { from: next, uuid: near.uuid, epoch: near.epoch });
        }
        if header.near.len() > NEAR_MAX {
            // Lines of which no message is left. Others tell late messages of a former stream from those of a new one.
            let kept = header.near.partition_point(|known| known.from <= first).saturating_sub(1);
            header.near.drain(..kept);
        }
        if header.near.len() > NEAR_MAX {
            return Err(Error::Limit(format!(
                "its messages come from {NEAR_MAX} streams and epochs, and a mirror has no more: keep less of it \
                 (`retain`, `retain_age`)"
            )));
        }
        header.write(self.media.as_ref(), &self.folder)?;
        self.header = header;
        Ok(())
    }
}
