//! The live place for a process that neither reads nor writes the stream and must detect its removal.
//!
//! The path is no proof: a writer removes its place at its end, and one that recovers a damaged place creates it again,
//! so that for a moment nothing exists. Both first write that to the control page that they remove.

use crate::error::{Error, Result};
use crate::format::control_page::{HEAD_BYTES, HEAD_MAGIC, Head, STATE_CLOSED};
use crate::format::header::{Header, Level};
use crate::format::segments::segment_number;
use crate::limits::{FORMAT, FORMAT_OLDEST};
use crate::outside::files::open_if_there;
use crate::outside::media::{File, Map, Media, Open};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The live place of a stream, held by its control page.
pub struct LivePlace {
    path: PathBuf,
    /// The file of the control page: no other one has this identity while the page is mapped.
    identity: u64,
    page: Map,
}

impl LivePlace {
    /// That of the stream in this folder; none if there is none now.
    pub fn open(media: &dyn Media, folder: &Path) -> Result<Option<Self>> {
        let header = Header::read(media, folder)?;
        let path = header.live.join("head");
        Ok(live_page(media, &header, folder)?.map(|(file, page)| Self { path, identity: file.identity(), page }))
    }

    /// False once its name does not lead to it: it was removed, or has another name. A place that cannot be examined is
    /// there.
    pub fn is_there(&self, media: &dyn Media) -> bool {
        match media.open(&self.path, Open::Read) {
            Ok(file) => file.identity() == self.identity,
            Err(e) => e.kind() != std::io::ErrorKind::NotFound,
        }
    }

    /// True if a writer ended here, or gave it up to make it again. A place that is neither there nor given up was
    /// removed.
    pub fn is_given_up(&self) -> bool {
        Head::of(&self.page).state.load(Ordering::Acquire) == STATE_CLOSED
    }
}

/// Says on the control page of a live place that it goes, before it does.
pub(crate) fn give_up(media: &dyn Media, header: &Header, folder: &Path) -> Result<()> {
    if live_head(media, header, folder)?.is_none() {
        return Ok(());
    }
    let path = header.live.join("head");
    let file = media.open(&path, Open::Write).map_err(Error::io("open", &path))?;
    let page = file.map(HEAD_BYTES, true).map_err(Error::io("map", &path))?;
    Head::of(&page).state.store(STATE_CLOSED, Ordering::Release);
    Ok(())
}

impl Header {
    /// Reads the header of a folder. A memory stream whose control page lies in its folder is its own live place, under
    /// whatever path: the folder may have been moved.
    pub fn read(media: &dyn Media, folder: &Path) -> Result<Self> {
        let header = Self::read_stored(media, folder)?;
        if header.level == Level::Memory && header.live != folder {
            let moved = Self { live: folder.to_path_buf(), ..header.clone() };
            if live_head(media, &moved, folder)?.is_some() {
                return Ok(moved);
            }
        }
        Ok(header)
    }
}

/// The control page of a header's live place, if it is there and belongs to this stream. An error says that it could not
/// be looked at (too many open files, say): that is no proof that it is gone, and what is in memory alone would go.
pub(crate) fn live_head(m: &dyn Media, header: &Header, folder: &Path) -> Result<Option<Map>> {
    Ok(live_page(m, header, folder)?.map(|(_, map)| map))
}

/// The same with its file.
pub(crate) fn live_page(m: &dyn Media, header: &Header, folder: &Path) -> Result<Option<(Arc<dyn File>, Map)>> {
    let Some((file, map)) = any_head(m, header, folder)? else { return Ok(None) };
    let is_ours = Head::of(&map).home.load(Ordering::Relaxed) == home_of(m, folder)?;
    Ok(is_ours.then_some((file, map)))
}

/// What tells a folder from its copies: its lock file.
pub(crate) fn home_of(m: &dyn Media, folder: &Path) -> Result<u64> {
    Ok(open_if_there(m, &folder.join("lock"), Open::Read)?.map_or(0, |file| file.identity()))
}

/// True if a header may name this live place: the folder itself, or one of a user's. The header of a folder from elsewhere
/// must not lead to other files, which an opening would replace.
pub(crate) fn may_be_live(m: &dyn Media, live: &Path, folder: &Path) -> bool {
    let root = m.live_root();
    let of_a_user = |parent: &Path| {
        let prefix = root.file_name().and_then(|name| name.to_str()?.rsplit_once('-')).map(|(prefix, _)| prefix);
        let name = parent.file_name().and_then(|name| name.to_str());
        parent.parent() == root.parent() && prefix.zip(name).is_some_and(|(prefix, name)| name.starts_with(prefix))
    };
    live == folder || live.parent().is_some_and(|parent| parent == root || of_a_user(parent))
}

/// True if the live place that a header names belongs to another folder, or is no place for one.
pub(crate) fn is_foreign(m: &dyn Media, header: &Header, folder: &Path) -> Result<bool> {
    if !may_be_live(m, &header.live, folder) {
        return Ok(true);
    }
    let Some((_, map)) = any_head(m, header, folder)? else { return Ok(false) };
    Ok(Head::of(&map).home.load(Ordering::Relaxed) != home_of(m, folder)?)
}

/// The control page of a stream of this identity, whoever's it is.
pub(crate) fn any_head(m: &dyn Media, header: &Header, folder: &Path) -> Result<Option<(Arc<dyn File>, Map)>> {
    let path = header.live.join("head");
    if !may_be_live(m, &header.live, folder) {
        return Ok(None);
    }
    let Some(file) = open_if_there(m, &path, Open::Read)? else { return Ok(None) };
    if file.len().map_err(Error::io("read", &path))? < HEAD_BYTES as u64 {
        return Ok(None);
    }
    let map = file.map(HEAD_BYTES, false).map_err(Error::io("map", &path))?;
    let head = Head::of(&map);
    let ours = head.magic.load(Ordering::Acquire) == HEAD_MAGIC
        && (FORMAT_OLDEST..=FORMAT).contains(&head.format.load(Ordering::Relaxed))
        && uuid_words(&header.uuid) == [head.uuid[0].load(Ordering::Relaxed), head.uuid[1].load(Ordering::Relaxed)];
    Ok(ours.then_some((file, map)))
}

pub(crate) fn uuid_words(uuid: &[u8; 16]) -> [u64; 2] {
    let [a, b] = uuid.as_chunks::<8>().0 else { return [0; 2] };
    [u64::from_le_bytes(*a), u64::from_le_bytes(*b)]
}

/// Removes the files of a stream in its live place, and the place if it is not its folder. Left-overs cost memory only.
pub(crate) fn remove_live(m: &dyn Media, live: &Path, folder: &Path) {
    for name in m.list(live).unwrap_or_default() {
        if name == "head" || segment_number('p', &name).is_some() || segment_number('i', &name).is_some() {
            let _ = m.unlink(&live.join(name));
        }
    }
    if live != folder {
        let _ = m.remove_dir(live);
    }
}
