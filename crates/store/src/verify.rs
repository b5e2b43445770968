//! Reads everything and names the first wrong byte.

use crate::entry::{ENTRY_BYTES, SchemaId};
use crate::error::{Error, Result};
use crate::media::Media;
use crate::reader::{Check, ReadOptions, Reader};
use std::path::Path;
use std::sync::Arc;

/// What `verify` saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// First sequence.
    pub first: u64,
    /// One past the last.
    pub count: u64,
    /// Messages of a view that a parent's retention has taken.
    pub gone: u64,
    /// Bytes read: entries and payloads.
    pub bytes: u64,
    /// Schema ids in order of appearance, with the number of messages.
    pub schemas: Vec<(SchemaId, u64)>,
}

/// Reads all published messages of a stream and checks every byte that counts. `progress` gets (done, of) messages.
pub fn verify(media: &Arc<dyn Media>, folder: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Verified> {
    let options = ReadOptions { early: true, check: Check::All, ..ReadOptions::default() };
    let mut reader = Reader::open(media, folder, options)?;
    let bounds = reader.bounds();
    let mut seen = Verified { first: bounds.first, count: bounds.count, ..Verified::default() };
    reader.seek(bounds.first);
    while reader.position() < bounds.count {
        let batch = match reader.read((bounds.count - reader.position()).min(4096) as usize) {
            Ok(batch) => batch,
            // Retention took the oldest while we read, here or in a parent: go on with what is there.
            Err(Error::Gone { first }) => {
                seen.gone += first.saturating_sub(reader.bounds().first.max(reader.position()));
                reader.seek(first);
                continue;
            }
            Err(e) => return Err(e),
        };
        if batch.is_empty() {
            break;
        }
        for entry in batch.entries {
            seen.bytes += u64::from(entry.length) + ENTRY_BYTES as u64;
            match seen.schemas.iter_mut().find(|s| s.0 == entry.schema) {
                Some(known) => known.1 += 1,
                None => seen.schemas.push((entry.schema, 1)),
            }
        }
        progress(batch.next() - seen.first, seen.count - seen.first);
    }
    Ok(seen)
}
