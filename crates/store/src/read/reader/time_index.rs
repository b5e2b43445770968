//! The time table of an index segment: which messages may lie in a range of source times.

use crate::error::Result;
use crate::format::entry::{Entry, salt, salt_seed};
use crate::format::segments::{TIME_ROW_BYTES, time_row};
use crate::limits::TIME_BLOCK;
use crate::read::attach::Control;
use crate::read::missing::{Missing, Why};
use crate::read::reader::Reader;

impl Reader {
    /// The smallest range of sequences outside of which no message has a source time in `[start, stop)`.
    /// Inside it, times are in any order: look at each entry.
    pub fn time_range(&mut self, start: i64, stop: i64) -> Result<(u64, u64)> {
        let bounds = self.bounds();
        let end = self.end();
        let mut range: Option<(u64, u64)> = None;
        // A block that cannot be read and touches the range may belong to it.
        let mut unread: Option<u64> = None;
        let mut at = bounds.first;
        while at < end {
            let block_end = ((at / TIME_BLOCK + 1) * TIME_BLOCK).min(end);
            let full =
                block_end.is_multiple_of(TIME_BLOCK) && block_end - at == TIME_BLOCK && block_end <= self.rows_end();
            let row = if full { self.time_row(at) } else { Ok(None) };
            let entries = match row {
                Ok(Some((min, max))) if max < start || min >= stop => {
                    (at, unread) = (block_end, None);
                    continue;
                }
                Ok(_) => self.entries(at, (block_end - at) as usize),
                Err(e) => Err(e),
            };
            match entries {
                Ok([]) => break,
                Ok(entries) => {
                    let inside = |e: &&Entry| e.source_time >= start && e.source_time < stop;
                    let first = entries.iter().position(|e| inside(&e)).map(|i| at + i as u64);
                    let last = entries.iter().rposition(|e| inside(&e)).map(|i| at + i as u64);
                    if let (Some(first), Some(last)) = (first, last) {
                        range = Some((range.map_or(unread.unwrap_or(first), |r| r.0), last + 1));
                    }
                    unread = None;
                    at += entries.len() as u64;
                }
                Err(e) => {
                    let missing = Missing::of(e, at)?;
                    // Behind retention that moved on meanwhile nothing is unread.
                    if missing.why != Why::Retention {
                        unread = unread.or(Some(at));
                        range = range.map(|r| if r.1 == at { (r.0, missing.next) } else { r });
                    }
                    at = missing.next;
                }
            }
        }
        Ok(range.unwrap_or((end, end)))
    }

    /// Rows of blocks that end above this say nothing: behind the record of a stream that nobody recovered stand those
    /// of what a recovery cut before.
    pub(crate) fn rows_end(&self) -> u64 {
        if let Control::Cold { commit, .. } = &self.control { commit.count } else { u64::MAX }
    }

    /// The proven row of the time table for the full block that begins at `at`, or none: then its entries must be seen.
    pub(crate) fn time_row(&mut self, at: u64) -> Result<Option<(i64, i64)>> {
        if self.entry_range(at, 1)?.is_none() {
            return Ok(None);
        }
        let per = self.header.index_entries;
        let place = at % per / TIME_BLOCK * TIME_ROW_BYTES;
        let seed = salt_seed(&self.header.uuid, 0);
        let Some(row) = self.index.as_ref().and_then(|i| i.read(place, TIME_ROW_BYTES)) else { return Ok(None) };
        let i64_at = |at: usize| i64::from_le_bytes(row[at..at + 8].try_into().unwrap_or_default());
        let range = (i64_at(0), i64_at(8));
        Ok((row[..24] == time_row(range, salt(seed, at))[..24]).then_some(range))
    }
}
