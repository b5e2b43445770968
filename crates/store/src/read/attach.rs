//! Where a reader learns how far a stream extends: the control page of its live place, or its commit record.

use crate::error::Result;
use crate::format::commit::Commit;
use crate::format::control_page::{Head, STATE_CLOSED, STATE_WRITING};
use crate::format::entry::salt_seed;
use crate::format::header::{Header, Level};
use crate::live::place::live_head;
use crate::live::protocol::marked;
use crate::outside::media::{Map, Media};
use crate::read::entries::{Entries, tail};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The bounds of a stream now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Oldest sequence that is there.
    pub first: u64,
    /// One past the newest published.
    pub count: u64,
    /// One past the newest that is safe on disk (0 for memory streams).
    pub disk: u64,
    /// A writer lives.
    pub written: bool,
    /// The last writer ended in order: of a disk stream, everything is on the medium.
    pub closed: bool,
    /// Messages dropped by `drop-newest` since the writer opened.
    pub dropped: u64,
}

pub(super) enum Control {
    /// The control page of the live place.
    Live(Arc<Map>),
    /// No live place: the commit record, the end of what proves itself behind it, and how much of that is safe. Within
    /// one start of the machine that is what the record says: the rest may be in caches alone.
    Cold { commit: Commit, count: u64, disk: u64 },
}

#[inline]
pub(super) fn bounds_of(control: &Control) -> Bounds {
    match control {
        Control::Live(map) => {
            let head = Head::of(map);
            Bounds {
                first: head.first.load(Ordering::Acquire),
                disk: marked(&head.disk),
                count: marked(&head.count),
                written: head.state.load(Ordering::Acquire) == STATE_WRITING,
                closed: head.state.load(Ordering::Acquire) == STATE_CLOSED,
                dropped: head.dropped.load(Ordering::Relaxed),
            }
        }
        &Control::Cold { commit: Commit { first, clean, .. }, count, disk } => {
            Bounds { first, count, disk, written: false, closed: clean, dropped: 0 }
        }
    }
}

/// `seen` is what was there before: what proved itself then is not looked at again.
pub(super) fn attach(m: &dyn Media, folder: &Path, seen: Option<&Control>) -> Result<(Header, Control)> {
    let header = Header::read(m, folder)?;
    if header.boot == m.boot()
        && let Some(map) = seen_head(m, &header, folder)?
    {
        return Ok((header, Control::Live(Arc::new(map))));
    }
    if header.level == Level::Memory {
        return Ok((header, Control::Cold { commit: Commit::default(), count: 0, disk: 0 }));
    }
    let seed = salt_seed(&header.uuid, 0);
    let commit = match Commit::read(m, folder, seed)? {
        (Some(commit), _) => commit,
        _ => Commit::must_read(m, folder, seed)?,
    };
    let count = match seen {
        Some(Control::Cold { commit: known, count, .. }) if *known == commit => *count,
        _ if commit.clean => commit.count,
        _ => {
            let from = (commit.count, commit.segment, commit.used);
            tail(&mut Entries::to_read(m, folder, &header), folder, from, |_, _| {})?.0
        }
    };
    let disk = if header.boot == m.boot() { commit.count } else { count };
    Ok((header, Control::Cold { commit, count, disk }))
}

/// The control page as a reader may see it: one without access to the live place reads from the folder.
pub(super) fn seen_head(m: &dyn Media, header: &Header, folder: &Path) -> Result<Option<Map>> {
    match live_head(m, header, folder) {
        Err(e) if e.is_denied() => Ok(None),
        answer => answer,
    }
}
