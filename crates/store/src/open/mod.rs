//! Opening a stream for writing: creates, resumes or recovers it. Decision 0001 gives the rules and their reasons.
//!
//! Order of a recovery from the medium: find the tail that checksums prove, sync the files it is in, write a commit
//! record (not clean), write the header with the new epoch and live place, and only then append. So a second power cut
//! at any point finds either the old or the new state.
//!
//! Failure behaviour: messages past the proven tail are cut, and [`Recovery::Cut`] names them; their sequences are used
//! again only in a new epoch, so no identity ever names two messages. A refusal of the system (EIO on a commit record,
//! too many open files) is an error, never a reason to cut.

mod build;
mod found;
pub(crate) mod remove;
pub(crate) mod share;

use crate::error::{Error, Result};
use crate::format::commit::Commit;
use crate::format::control_page::Head;
use crate::format::entry::salt_seed;
use crate::format::header::{Header, Level, REMOVED, hex};
use crate::format::names::{ORIGINS, PARENTS};
use crate::format::recovery::Recovery;
use crate::format::segments::segment_number;
use crate::limits::{FORMAT, STREAM_NAME_MAX};
use crate::live::place::{any_head, home_of, is_foreign, live_head, remove_live};
use crate::live::protocol::marked;
use crate::open::build::build;
use crate::open::found::{Standing, from_disk, from_live, up_to_mark};
use crate::outside::media::Media;
use crate::write::committer::Job;
use crate::write::options::{Drain, Options};
use crate::write::writer::Writer;
use std::path::Path;
use std::sync::Arc;

impl Writer {
    /// Opens the stream in `folder` for writing: creates a missing one, otherwise recovers it.
    pub fn open(media: &Arc<dyn Media>, folder: &Path, name: &str, options: &Options) -> Result<Self> {
        let mut writer = open(media, folder, name, options)?;
        if let (Some(drainer), Drain::Thread) = (writer.drainer.clone(), options.drain) {
            writer.job = Some(Job::start(folder, &drainer)?);
        }
        Ok(writer)
    }
}

fn open(media: &Arc<dyn Media>, folder: &Path, name: &str, options: &Options) -> Result<Writer> {
    if name.is_empty() || name.len() > STREAM_NAME_MAX || name.contains(['\n', '/']) {
        return Err(Error::Limit(format!("`{}` is not a stream name", name.escape_default())));
    }
    media.create_dir(folder).map_err(Error::io("make", folder))?;
    let lock_path = folder.join("lock");
    let lock = media.lock(&lock_path).map_err(|e| match e.kind() {
        std::io::ErrorKind::WouldBlock => Error::Locked(folder.to_path_buf()),
        _ => Error::io("lock", &lock_path)(e),
    })?;
    let m = media.as_ref();
    let known = match Header::read(m, folder) {
        Ok(header) => Some(header),
        Err(Error::Missing(_)) => None,
        Err(e) => return Err(e),
    };
    let boot = media.boot();
    let here = format!("{:016x} {}", home_of(m, folder)?, m.machine());
    let live_there = |h: &Header| Ok::<_, Error>(h.boot == boot && live_head(m, h, folder)?.is_some());
    let (mut header, recovery, standing, commit) = match known {
        Some(mut header) if header.level == Level::Disk => {
            let commit = Commit::must_read(m, folder, salt_seed(&header.uuid, 0))?;
            let is_of_another = match live_head(m, &header, folder) {
                // In a folder of shared memory that others may enter there is no place any more.
                Ok(head) => head.is_none() && header.live != folder && !header.live.starts_with(m.live_root()),
                Err(e) => e.is_denied(),
            };
            if commit.clean && is_of_another {
                // It is another user's, who ended in order: all is on the medium.
                header.live = m.live_root().join(hex(&m.random()));
            }
            let live = if live_there(&header)? { from_live(m, folder, &header, Some(commit)) } else { Ok(None) };
            let live = match live {
                Err(Error::Missing(_) | Error::Corrupt { .. }) => None,
                answer => answer?,
            };
            if let Some(standing) = live {
                let commit = up_to_mark(m, folder, &header, commit)?;
                (header, Recovery::Live, standing, Some(commit))
            } else {
                // The rest of the live place still says how far it went.
                let head = if header.boot == boot { live_head(m, &header, folder)? } else { None };
                let published = head.map_or(0, |map| marked(&Head::of(&map).count));
                let (standing, end) = from_disk(m, folder, &header, commit, header.boot == boot)?;
                // The newer of two records may be the one that does not hold: what came after it cannot be told.
                let is_doubtful = Commit::damaged(m, folder, salt_seed(&header.uuid, 0))?.is_some();
                let end = end.or(is_doubtful.then_some(standing.count));
                let (epoch, first, marked) = (header.epoch(), standing.count, commit.count);
                let recovery = match end {
                    Some(end) => Recovery::Cut { epoch, first, end: end.max(published), marked },
                    None if header.home.as_ref().is_some_and(|home| *home != here) => Recovery::Moved { epoch, first },
                    None => Recovery::Clean,
                };
                (header, recovery, standing, Some(commit))
            }
        }
        Some(header) if live_there(&header)? => {
            let standing = from_live(m, folder, &header, None)?.ok_or_else(|| Error::Missing(header.live.clone()))?;
            (header, Recovery::Live, standing, None)
        }
        // New, or a memory stream whose memory is gone: what it held cannot be told, so it is another stream.
        other => {
            if let Some(old) = other
                && !is_foreign(m, &old, folder)?
            {
                remove_live(m, &old.live, folder);
            }
            let header = fresh_header(m, folder, name, options)?;
            let standing = Standing { count: 0, first: 0, first_segment: 0, segment: 0, used: 0 };
            (header, Recovery::Fresh, standing, None)
        }
    };
    if header.level != options.level && recovery != Recovery::Fresh {
        return Err(Error::Limit(format!(
            "the stream {} has level {}, not {}",
            folder.display(),
            header.level.as_str(),
            options.level.as_str()
        )));
    }
    header.name = name.to_string();
    header.home = Some(here);
    if recovery != Recovery::Live && is_foreign(m, &header, folder)? {
        // The folder is a copy: the live place is that of its original.
        header.live = m.live_root().join(hex(&m.random()));
    }
    header.shared_memory = (header.live != folder).then(|| m.shared_memory());
    if let Recovery::Cut { epoch, first, .. } | Recovery::Moved { epoch, first } = recovery {
        let next = epoch.checked_add(1).ok_or_else(|| Error::Limit("the stream has used up its epochs".into()))?;
        // Where commit records are gone too, less may be believed than an earlier epoch began with: nothing of it is left.
        header.epochs.retain(|e| e.1 <= first);
        header.epochs.push((next, first));
        // A message at that sequence may repeat another stream.
        header.near.retain(|near| near.from < first);
    }
    let commit = Commit {
        generation: commit.map_or(0, |c| c.generation) + 1,
        count: if recovery == Recovery::Live { commit.map_or(0, |c| c.count) } else { standing.count },
        // What the medium keeps: after a kill retention may have been ahead of it.
        first: if recovery == Recovery::Live { commit.map_or(0, |c| c.first) } else { standing.first },
        epoch: header.epoch(),
        segment: if recovery == Recovery::Live { commit.map_or(0, |c| c.segment) } else { standing.segment },
        used: if recovery == Recovery::Live { commit.map_or(0, |c| c.used) } else { standing.used },
        first_segment: if recovery == Recovery::Live {
            commit.map_or(0, |c| c.first_segment)
        } else {
            standing.first_segment
        },
        clean: false,
    };
    let made = (recovery != Recovery::Live).then(|| header.clone());
    let writer = build(media, folder, header, (options, recovery), (standing, commit), lock);
    if let (Err(e), Some(header)) = (&writer, made)
        && !matches!(e, Error::Locked(_))
        && matches!(any_head(m, &header, folder), Ok(None))
    {
        // It never came to speak for the stream.
        remove_live(m, &header.live, folder);
    }
    writer
}

fn fresh_header(m: &dyn Media, folder: &Path, name: &str, options: &Options) -> Result<Header> {
    let uuid = m.random();
    let live = if m.in_memory(folder) && options.level == Level::Memory {
        folder.to_path_buf()
    } else {
        m.live_root().join(hex(&uuid))
    };
    let (segment_bytes, index_entries) = options.sizes();
    // Left-overs of an interrupted first opening or removal would be taken for this stream's. `head` and the name of a
    // removed header go last: without them what is left would be taken for messages.
    let mut stale = m.list(folder).map_err(Error::io("list", folder))?;
    stale.sort_by_key(|name| (name == REMOVED, name == "head"));
    for stale in stale {
        if ["commit", ORIGINS, PARENTS, "pins", "head", REMOVED].contains(&stale.as_str())
            || segment_number('p', &stale).is_some()
            || segment_number('i', &stale).is_some()
        {
            let path = folder.join(stale);
            m.unlink(&path).map_err(Error::io("remove", &path))?;
        }
    }
    Ok(Header {
        format: FORMAT,
        uuid,
        name: name.to_string(),
        level: options.level,
        clock: options.clock,
        index_entries,
        segment_bytes,
        created: m.now(),
        boot: m.boot(),
        live,
        home: None,
        shared_memory: None,
        epochs: vec![(1, 0)],
        near: Vec::new(),
    })
}
