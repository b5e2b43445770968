//! Reading a view: the payloads of its entries in the streams that it points into.

use crate::error::{Error, Result};
use crate::format::control_page::Head;
use crate::format::entry::{ENTRY_BYTES, Entry};
use crate::format::names::PARENTS;
use crate::format::parents::{ParentRow, beside, rows_of};
use crate::limits::{BATCH_SEGMENTS_MAX, VIEW_DEPTH_MAX};
use crate::live::protocol::is_kept;
use crate::outside::media::Media;
use crate::read::attach::Control;
use crate::read::batch::{Batch, PayloadPlace};
use crate::read::options::{Check, ReadOptions};
use crate::read::reader::Reader;
use crate::read::shown::{Found, Shown};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Reader {
    /// The streams that this one points into, in all their epochs; none for a stream that is no view.
    pub fn parents(&self) -> Result<Vec<ParentRow>> {
        rows_of(self.media.as_ref(), &self.folder)
    }

    /// A batch that begins with a view entry: what it shows lies in several segments, of this stream and of others.
    pub(super) fn read_view(&mut self, from: u64, entries: &[Entry], at: u64) -> Result<Batch<'_>> {
        let mut shown = std::mem::take(&mut self.shown);
        shown.begin();
        let (mut total, mut trouble) = (0, None);
        // All places first: while one payload is checked, the next one, which lies elsewhere, is on its way.
        for (entry, sequence) in entries.iter().zip(from..) {
            total += u64::from(entry.length);
            let full = total > self.options.batch_bytes || shown.segments.len() >= BATCH_SEGMENTS_MAX;
            if sequence > from && full {
                break;
            }
            match self.found(entry, sequence, &mut shown) {
                Ok(found) => shown.found.push(found),
                Err(e) => {
                    trouble = Some(e);
                    break;
                }
            }
        }
        let good = shown.check(self.options.check == Check::All);
        if let Some(found) = shown.found.get(good) {
            let (place, what) = (shown.places[good], "the payload");
            let path =
                shown.segments.get(place.segment as usize).map_or_else(|| self.folder.clone(), |s| s.path.clone());
            trouble = Some(Error::Corrupt { path, at: found.place.at, sequence: from, what });
        }
        shown.places.truncate(good);
        let count = good;
        self.shown = shown;
        // Messages before the wrong one are good; it is named when it is the first.
        if let (0, Some(error)) = (count, trouble) {
            return Err(match error {
                Error::Gone { first } => Error::Gone { first: from + self.parents.gone(entries, first).max(1) as u64 },
                // A caller can only continue behind a message of this stream.
                Error::Corrupt { path, at, what, .. } => Error::Corrupt { path, at, sequence: from, what },
                Error::Lost { path, .. } => Error::Lost { path, first: from, end: from + 1 },
                other => other,
            });
        }
        self.next = from + count as u64;
        let Shown { segments, places, .. } = &self.shown;
        debug_assert_eq!(places.len(), count, "a batch over several segments has a place for each message");
        Ok(Batch { first: from, entries: self.entries_at(at, count), segments, places })
    }

    /// Where the payload of an entry lies, in this stream or in one that it points into.
    #[inline]
    fn found(&mut self, entry: &Entry, sequence: u64, shown: &mut Shown) -> Result<Found> {
        let salt = self.salt(sequence);
        if self.options.check >= Check::Entries && !entry.holds(salt) {
            let at = self.header.entry_at(sequence);
            let path = self.index.as_ref().map_or_else(|| self.folder.clone(), |i| i.path.clone());
            return Err(Error::Corrupt { path, at, sequence, what: "the entry" });
        }
        if entry.parent != 0 {
            let how = (self.options.check, self.depth);
            return self.parents.follow(&self.media, &self.folder, how, entry, shown);
        }
        let segment = if entry.length == 0 { u32::MAX } else { self.placed_in(entry.segment, shown)? };
        let place = PayloadPlace { segment, at: entry.offset() };
        Ok(Found { place, salt, length: entry.length, crc: entry.payload_crc })
    }

    /// Where a payload segment of this stream is among those of a batch; put there if it is not.
    #[inline]
    fn placed_in(&mut self, number: u32, shown: &mut Shown) -> Result<u32> {
        if self.placed.0 == shown.round && self.payload.as_ref().is_some_and(|p| p.number == number) {
            return Ok(self.placed.1);
        }
        if self.placed.0 != shown.round {
            self.placed_bytes = 0;
        }
        if let Control::Live(head) = &self.control
            && is_kept(&Head::of(head).live_payload, number)
        {
            let quota = Head::of(head).quota.load(Ordering::Relaxed);
            // Who keeps one batch while the next is read is within the quota: this one ends here.
            if self.placed_bytes > 0 && self.placed_bytes + self.header.segment_bytes > quota {
                return Err(Error::Limit("a batch of a view shows more than the quota of one stream".into()));
            }
            self.placed_bytes += self.header.segment_bytes;
        }
        if self.payload.as_ref().is_none_or(|p| p.number != number) {
            self.payload = None;
            self.payload = Some(self.map_segment(true, number).map_err(|e| match e {
                Error::Missing(path) => Error::Lost { path, first: 0, end: 0 },
                other => other,
            })?);
        }
        shown.segments.extend(self.payload.clone());
        self.placed = (shown.round, shown.segments.len() as u32 - 1);
        Ok(self.placed.1)
    }

    /// The payload of a message of this stream, for a view that points to it.
    #[inline]
    fn locate(&mut self, epoch: u32, sequence: u64, shown: &mut Shown) -> Result<Found> {
        let per = self.header.index_entries;
        let number = (sequence >> per.trailing_zeros()) as u32;
        if sequence >= self.seen || self.index.as_ref().is_none_or(|i| i.number != number) {
            self.reach(sequence).map_err(|e| e.of_parent(&self.folder))?;
        }
        let of = self.seeds.iter().rev().find(|s| s.0 <= sequence).map_or(0, |s| s.1);
        if of != epoch {
            let what =
                format!("was rewound: its message {sequence} is of epoch {of}, the view points to epoch {epoch}");
            return Err(Error::Parent { folder: self.folder.clone(), what });
        }
        let at = self.header.entry_at(sequence);
        let bytes = self.index.as_ref().and_then(|i| i.read(at, ENTRY_BYTES as u64));
        let Some(&[entry]) = bytes.map(bytemuck::cast_slice::<u8, Entry>) else {
            let path = self.index.as_ref().map_or_else(|| self.folder.clone(), |i| i.path.clone());
            return Err(Error::Corrupt { path, at, sequence, what: "the end of the index before the entry" });
        };
        // What a parent that is a view itself has lost is one message here: its own numbers say nothing above.
        self.found(&entry, sequence, shown).map_err(|e| match e {
            Error::Gone { .. } if entry.parent != 0 => Error::Gone { first: sequence + 1 },
            other => other,
        })
    }

    /// Maps the index segment of a message that a view points to.
    #[cold]
    fn reach(&mut self, sequence: u64) -> Result<()> {
        if sequence >= self.bounds().count {
            self.reattach()?;
        }
        let count = self.bounds().count;
        if sequence >= count {
            let what = format!("was rewound: it ends at {count}, the view points to message {sequence}");
            return Err(Error::Parent { folder: self.folder.clone(), what });
        }
        self.entry_range(sequence, 1)?;
        self.seen = count;
        Ok(())
    }

    fn set_depth(&mut self, depth: u32) {
        self.depth = depth;
    }
}

/// The streams that a view points into, as its reader follows them.
#[derive(Default)]
pub(super) struct Parents {
    /// By row of the table: the row, and which of `readers`.
    rows: Vec<(ParentRow, Option<usize>)>,
    readers: Vec<Reader>,
}

impl Parents {
    /// Unpins what was read of the parents.
    pub(super) fn release(&mut self) {
        self.readers.iter_mut().for_each(Reader::release);
    }

    /// Finds the payload that an entry of the view in `folder` points to. `depth`: how many views were followed before.
    #[inline]
    pub(super) fn follow(
        &mut self,
        media: &Arc<dyn Media>,
        folder: &Path,
        (check, depth): (Check, u32),
        entry: &Entry,
        shown: &mut Shown,
    ) -> Result<Found> {
        let row = usize::from(entry.parent).wrapping_sub(1);
        match self.follow_row(media, folder, (check, depth), row, entry, shown) {
            Err(_) if self.row_changed(media.as_ref(), folder, row) => {
                self.follow_row(media, folder, (check, depth), row, entry, shown)
            }
            found => found,
        }
    }

    /// Reads the table again. True if the row has another text than when its parent was opened.
    #[cold]
    fn row_changed(&mut self, media: &dyn Media, folder: &Path, row: usize) -> bool {
        let read = rows_of(media, folder).ok().and_then(|mut rows| (row < rows.len()).then(|| rows.swap_remove(row)));
        match (self.rows.get_mut(row), read) {
            (Some(known), Some(read)) if known.0 != read => {
                *known = (read, None);
                true
            }
            _ => false,
        }
    }

    #[inline]
    fn follow_row(
        &mut self,
        media: &Arc<dyn Media>,
        folder: &Path,
        (check, depth): (Check, u32),
        row: usize,
        entry: &Entry,
        shown: &mut Shown,
    ) -> Result<Found> {
        let (at, epoch) = match self.rows.get(row) {
            Some(&(ref known, Some(at))) => (at, known.epoch),
            _ => self.learn(media, folder, (check, depth), row)?,
        };
        let found = self.readers[at].locate(epoch, entry.parent_sequence, shown)?;
        if found.length != entry.length || found.crc != entry.payload_crc {
            let what = format!("has another message {} than the view points to", entry.parent_sequence);
            return Err(Error::Parent { folder: self.readers[at].folder().to_path_buf(), what });
        }
        Ok(found)
    }

    /// Reads the table and opens the parent of a row.
    #[cold]
    fn learn(
        &mut self,
        media: &Arc<dyn Media>,
        folder: &Path,
        (check, depth): (Check, u32),
        row: usize,
    ) -> Result<(usize, u32)> {
        if row >= self.rows.len() {
            let known = self.rows.len();
            self.rows.extend(rows_of(media.as_ref(), folder)?.into_iter().skip(known).map(|row| (row, None)));
        }
        let Some((known, reader)) = self.rows.get_mut(row) else {
            let what = format!("no row {} for an entry of the view", row.wrapping_add(1));
            return Err(Error::Format { path: folder.join(PARENTS), what });
        };
        let above = beside(folder, &known.name);
        if depth >= VIEW_DEPTH_MAX {
            let what = format!("is too far away: views of views are followed {VIEW_DEPTH_MAX} deep");
            return Err(Error::Parent { folder: above, what });
        }
        let at = match self.readers.iter().position(|r| r.header().uuid == known.uuid && r.folder() == above) {
            Some(at) => at,
            None => {
                let options = ReadOptions { early: true, check, ..ReadOptions::default() };
                let mut parent = Reader::open(media, &above, options).map_err(|e| e.of_parent(&above))?;
                if parent.header().uuid != known.uuid {
                    return Err(Error::Parent { folder: above, what: "was recreated: its messages are gone".into() });
                }
                parent.set_depth(depth + 1);
                self.readers.push(parent);
                self.readers.len() - 1
            }
        };
        *reader = Some(at);
        Ok((at, known.epoch))
    }

    /// How many of the entries from the first on point to what that parent no longer has: its oldest message is `left`.
    pub(super) fn gone(&self, entries: &[Entry], left: u64) -> usize {
        let reader = |entry: &Entry| self.rows.get(usize::from(entry.parent).wrapping_sub(1)).and_then(|row| row.1);
        let Some(first) = entries.first() else { return 0 };
        let lost = |entry: &&Entry| reader(entry) == reader(first) && entry.parent_sequence < left;
        entries.iter().take_while(lost).count()
    }
}
