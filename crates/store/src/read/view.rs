//! Reading a view: the payloads of its entries in the streams that it points into.

use crate::error::{Error, Result};
use crate::format::crc::crc32c_from_memory;
use crate::format::entry::Entry;
use crate::format::names::PARENTS;
use crate::format::parents::{ParentRow, beside, rows_of};
use crate::limits::VIEW_DEPTH_MAX;
use crate::outside::media::Media;
use crate::read::reader::{Check, Mapped, ReadOptions, Reader};
use std::path::Path;
use std::sync::Arc;

/// Where the payload of one message of a batch lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PayloadPlace {
    /// Which of the batch's segments; none of them where there are no bytes.
    pub(crate) segment: u32,
    /// Its first byte there.
    pub(crate) at: u64,
}

/// A payload that was found: where, and what proves it.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    pub(crate) place: PayloadPlace,
    pub(crate) salt: u32,
    pub(crate) length: u32,
    pub(crate) crc: u32,
}

/// The segments and places of one batch. Kept between batches, so that a batch allocates nothing.
#[derive(Default)]
pub(crate) struct Shown {
    pub(crate) segments: Vec<Arc<Mapped>>,
    pub(crate) places: Vec<PayloadPlace>,
    pub(crate) found: Vec<Found>,
    /// Which batch: a parent's reader remembers where it put its segment.
    pub(crate) round: u64,
}

impl Shown {
    pub(crate) fn begin(&mut self) {
        self.segments.clear();
        self.places.clear();
        self.found.clear();
        self.round += 1;
    }

    /// Releases the segments. Rounds go on: readers of parents compare them.
    pub(crate) fn release(&mut self) {
        *self = Self { round: self.round, ..Self::default() };
    }

    /// Gives each message that was found its place; how many are good before the first whose payload is not all there or,
    /// if that is asked for, does not verify.
    pub(crate) fn check(&mut self, sums: bool) -> usize {
        self.places.extend(self.found.iter().map(|found| found.place));
        let bytes = |found: &Found| {
            let segment = || self.segments.get(found.place.segment as usize);
            match (found.length, sums) {
                (0, _) => Some(&[][..]),
                (length, true) => segment()?.read(found.place.at, length.into()),
                (length, false) => segment()?.bytes(found.place.at, length.into()),
            }
        };
        let mut next = self.found.first().and_then(bytes);
        for (i, found) in self.found.iter().enumerate() {
            let Some(this) = next else { return i };
            next = self.found.get(i + 1).and_then(bytes);
            let behind = next.map_or(this.as_ptr_range().end, <[u8]>::as_ptr);
            if sums && crc32c_from_memory(this, behind) ^ found.salt != found.crc {
                return i;
            }
        }
        self.found.len()
    }
}

/// The streams that a view points into, as its reader follows them.
#[derive(Default)]
pub(crate) struct Parents {
    /// By row of the table: the row, and which of `readers`.
    rows: Vec<(ParentRow, Option<usize>)>,
    readers: Vec<Reader>,
}

impl Parents {
    /// Unpins what was read of the parents.
    pub(crate) fn release(&mut self) {
        self.readers.iter_mut().for_each(Reader::release);
    }

    /// Finds the payload that an entry of the view in `folder` points to. `depth`: how many views were followed before.
    #[inline]
    pub(crate) fn follow(
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
                let mut parent = Reader::open(media, &above, options).map_err(|e| not_there(&above, e))?;
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
    pub(crate) fn gone(&self, entries: &[Entry], left: u64) -> usize {
        let reader = |entry: &Entry| self.rows.get(usize::from(entry.parent).wrapping_sub(1)).and_then(|row| row.1);
        let Some(first) = entries.first() else { return 0 };
        let lost = |entry: &&Entry| reader(entry) == reader(first) && entry.parent_sequence < left;
        entries.iter().take_while(lost).count()
    }
}

/// Names the parent where its folder holds no stream, or one that has lost its header.
pub(crate) fn not_there(folder: &Path, error: Error) -> Error {
    match error {
        Error::Missing(_) => Error::Parent { folder: folder.to_path_buf(), what: "is not there".into() },
        Error::Headless(_) => Error::Parent { folder: folder.to_path_buf(), what: "has lost its header".into() },
        Error::Format { what, .. } => {
            Error::Parent { folder: folder.to_path_buf(), what: format!("is another: {what}") }
        }
        other => other,
    }
}
