//! Reads every entry and payload of a stream and names each damaged place.
//!
//! Constraints: reads like any reader, beside a running writer, up to `count`; memory is bounded, since at most 100
//! places are named and further ones only counted. Nothing is written ([`crate::repair`] does that).
//!
//! Failure behaviour: damage is a result, not an error; only a refusal of the system ends the check.

use crate::error::{Error, Result};
use crate::format::commit::Commit;
use crate::format::entry::{ENTRY_BYTES, SchemaId, salt_seed};
use crate::format::header::Level;
use crate::format::names::{Names, ORIGINS, PARENTS};
use crate::format::segments::{TIME_ROW_BYTES, segment_name};
use crate::limits::{DAMAGE_NAMED_MAX, TIME_BLOCK};
use crate::outside::media::Media;
use crate::read::attach::Bounds;
use crate::read::missing::Missing;
use crate::read::options::{Check, ReadOptions};
use crate::read::reader::Reader;
use crate::read::stretch::Stretch;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Messages in a row that cannot be read, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// First.
    pub first: u64,
    /// One past the last.
    pub end: u64,
    /// The damaged file.
    pub path: PathBuf,
    /// File, place and check; of neighbours in one file those of the first.
    pub why: String,
}

/// The result of `verify`.
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
    /// Messages that cannot be read.
    pub wrong: u64,
    /// Their places, the first `DAMAGE_NAMED_MAX`.
    pub damage: Vec<Damage>,
    /// What is wrong beside messages: rows of the time table and of that of parents, a commit record of two. File and
    /// place.
    pub flaws: Vec<String>,
    /// Messages whose origin has no row in `origins`; all, if the stream has no rows.
    pub nameless: u64,
}

impl Damage {
    /// The missing range as damage; none where retention deleted it.
    pub fn of(missing: &Missing) -> Option<Self> {
        let (path, why) = match &missing.error {
            Error::Lost { path, .. } => (path, format!("{} is missing", path.display())),
            Error::Corrupt { path, .. } | Error::Format { path, .. } | Error::Parent { folder: path, .. } => {
                (path, missing.error.to_string())
            }
            _ => return None,
        };
        Some(Self { first: missing.first, end: missing.next, path: path.clone(), why })
    }

    /// Takes in what comes right behind, in the same file: of one that was cut off, one range is enough.
    pub fn join(&mut self, next: &Self) -> bool {
        let joins = self.end == next.first && self.path == next.path;
        if joins {
            self.end = next.end;
        }
        joins
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, end, why, .. } = self;
        match end - first {
            1 => write!(f, "message {first} is lost: {why}"),
            _ => write!(f, "messages {first} to {} are lost: {why}", end - 1),
        }
    }
}

impl Verified {
    fn lose(&mut self, damage: Damage) {
        self.wrong += damage.end - damage.first;
        let joined = self.damage.last_mut().is_some_and(|last| last.join(&damage));
        if !joined && self.damage.len() < DAMAGE_NAMED_MAX {
            self.damage.push(damage);
        }
    }
}

/// Reads all published messages of a stream and checks every byte that counts. `progress` gets (done, of) messages.
pub fn verify(media: &Arc<dyn Media>, folder: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Verified> {
    let options = ReadOptions { early: true, check: Check::All, ..ReadOptions::default() };
    let mut reader = Reader::open(media, folder, options)?;
    let bounds = reader.bounds();
    let mut seen = Verified { first: bounds.first, count: bounds.count, ..Verified::default() };
    reader.seek(bounds.first);
    let mut origins = reader.origins()?.len();
    while reader.position() < bounds.count {
        let at = reader.position();
        let batch = match reader.next((bounds.count - at).min(4096) as usize)? {
            Stretch::Messages(batch) => batch,
            Stretch::Missing(missing) => {
                match Damage::of(&missing) {
                    Some(found) => seen.lose(Damage { end: found.end.min(bounds.count), ..found }),
                    // Deleted by retention of a parent; messages deleted here meanwhile no longer belong to the stream.
                    None => seen.gone += missing.next.saturating_sub(reader.bounds().first.max(at)),
                }
                reader.seek(missing.next);
                continue;
            }
        };
        if batch.is_empty() {
            break;
        }
        if batch.entries.iter().any(|e| e.origin as usize >= origins) {
            // A row is added before the first message of its origin.
            origins = Names::read(media.as_ref(), folder, ORIGINS)?.names.len();
        }
        for entry in batch.entries {
            seen.nameless += u64::from(entry.origin as usize >= origins);
            seen.bytes += u64::from(entry.length) + ENTRY_BYTES as u64;
            match seen.schemas.iter_mut().find(|s| s.0 == entry.schema) {
                Some(known) => known.1 += 1,
                None => seen.schemas.push((entry.schema, 1)),
            }
        }
        progress(batch.next() - seen.first, seen.count - seen.first);
    }
    seen.flaws = flaws(media.as_ref(), folder, &mut reader, bounds)?;
    Ok(seen)
}

/// Damage beside messages.
fn flaws(m: &dyn Media, folder: &Path, reader: &mut Reader, bounds: Bounds) -> Result<Vec<String>> {
    let mut all = Vec::new();
    let header = reader.header().clone();
    // Numbers of a file that is damaged may be as large as they please.
    let next_block = |at: u64| at.checked_next_multiple_of(TIME_BLOCK).unwrap_or(u64::MAX);
    let mut at = next_block(bounds.first);
    let end = bounds.count.min(reader.rows_end());
    while at.checked_add(TIME_BLOCK).is_some_and(|next| next <= end) && all.len() < DAMAGE_NAMED_MAX {
        at = match reader.time_row(at) {
            Ok(Some(_)) => at + TIME_BLOCK,
            Ok(None) => {
                let name = segment_name('i', header.index_number(at)?);
                let place = at % header.index_entries / TIME_BLOCK * TIME_ROW_BYTES;
                all.push(format!("the row of the time table in {name} at {place} does not verify"));
                at + TIME_BLOCK
            }
            // Entries that are gone or lost need no row. A count that lies costs no more time than the files do.
            Err(e) => next_block(Missing::of(e, at)?.next),
        };
    }
    let parents = Names::read(m, folder, PARENTS)?;
    if parents.damaged {
        let (row, path) = (parents.names.len() + 1, folder.join(PARENTS));
        all.push(format!("row {row} of {} does not verify", path.display()));
    }
    // One that is being written may be seen half.
    if header.level == Level::Disk
        && !bounds.written
        && let Some(place) = Commit::damaged(m, folder, salt_seed(&header.uuid, 0))?
    {
        all.push(format!("the commit record in {} at {place} does not verify", folder.join("commit").display()));
    }
    Ok(all)
}
