//! Index entries, by sequence.

use crate::error::{Error, Result};
use crate::format::entry::{ENTRY_BYTES, Entry};
use crate::format::segments::segment_numbers;
use crate::read::mapped::Mapped;
use crate::read::options::Check;
use crate::read::reader::Reader;

impl Reader {
    /// Index entries from `from` on, as many as lie in a row (at most `max`), not beyond what may be seen, nor beyond
    /// one that does not verify: that is an error when it is the first.
    pub fn entries(&mut self, from: u64, max: usize) -> Result<&[Entry]> {
        let mapped = self.entry_range(from, max)?;
        let Some((count, at)) = mapped else { return Ok(&[]) };
        let Some(index) = &self.index else { return Ok(&[]) };
        let bytes = index.read(at, count as u64 * ENTRY_BYTES as u64).ok_or_else(|| no_entry(index, at, from))?;
        let entries: &[Entry] = bytemuck::cast_slice(bytes);
        if self.options.check < Check::Entries {
            return Ok(entries);
        }
        match entries.iter().zip(from..).position(|(entry, sequence)| !entry.holds(self.salt(sequence))) {
            None => Ok(entries),
            Some(0) => Err(Error::Corrupt { path: index.path.clone(), at, sequence: from, what: "the entry" }),
            Some(good) => Ok(&entries[..good]),
        }
    }

    /// Maps the index segment of `from`; (number of entries, byte of the first) or none at the end.
    pub(super) fn entry_range(&mut self, from: u64, max: usize) -> Result<Option<(usize, u64)>> {
        if from >= self.end() && self.is_unwritten() {
            self.refresh()?;
        }
        let bounds = self.bounds();
        let end = self.end();
        if from < bounds.first {
            return Err(Error::Gone { first: bounds.first });
        }
        if from >= end || max == 0 {
            return Ok(None);
        }
        let per = self.header.index_entries;
        let Ok(number) = u32::try_from(from / per) else {
            return Err(Error::Lost { path: self.folder.clone(), first: from, end });
        };
        if self.index.as_ref().is_none_or(|i| i.number != number || self.outlived(i)) {
            self.index = None;
            self.index = Some(match self.map_segment(false, number) {
                Err(Error::Missing(path)) => {
                    let next = self.next_index(number)?.map_or(u64::MAX, |next| u64::from(next) * per);
                    return Err(Error::Lost { path, first: from, end: end.min(next) });
                }
                answer => answer?,
            });
        }
        let mut count = ((per - from % per).min(end - from)).min(max as u64) as usize;
        let at = self.header.entry_at(from);
        if self.held.is_none() {
            // What is to be copied is copied now: what the writer has given up meanwhile is elsewhere, or gone.
            let whole = self.index.as_ref().is_some_and(|index| index.fill(at + (count * ENTRY_BYTES) as u64));
            if !whole && self.drop_given_up() {
                return self.entry_range(from, max);
            }
        }
        if self.index.as_ref().is_some_and(|index| index.read(at, (count * ENTRY_BYTES) as u64).is_none()) {
            // Messages before a place that cannot be read, or before the end of a file that was cut, are shown.
            count = count.min((4096 - at % 4096) as usize / ENTRY_BYTES);
        }
        Ok(Some((count, at)))
    }

    /// The first index segment behind a missing one: what the files say, so that damage costs no more time than they
    /// do.
    fn next_index(&self, missing: u32) -> Result<Option<u32>> {
        let mut numbers = segment_numbers(self.media.as_ref(), &self.folder, 'i')?;
        if let Some(live) = self.live_place() {
            numbers.append(&mut segment_numbers(self.media.as_ref(), live, 'i')?);
        }
        Ok(numbers.into_iter().find(|number| *number > missing))
    }

    /// The `count` entries from byte `at` of the mapped index segment on.
    #[inline]
    pub(super) fn entries_at(&self, at: u64, count: usize) -> &[Entry] {
        let bytes = self.index.as_ref().and_then(|index| index.bytes(at, (count * ENTRY_BYTES) as u64));
        let entries: &[Entry] = bytemuck::cast_slice(bytes.unwrap_or_default());
        debug_assert_eq!(entries.len(), count, "a batch has an entry for each message that the reader passed");
        entries
    }
}

/// There is no entry where one should be: the file was cut off there, or cannot be read.
pub(super) fn no_entry(index: &Mapped, at: u64, sequence: u64) -> Error {
    Error::Corrupt { path: index.path.clone(), at, sequence, what: "the end of the index before the entry" }
}
