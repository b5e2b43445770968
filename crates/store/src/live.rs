//! The live place for a process that neither reads nor writes the stream and must detect its removal.
//!
//! The path is no proof: a writer removes its place at its end, and one that recovers a damaged place creates it again,
//! so that for a moment nothing exists. Both first write that to the control page that they remove.

use crate::error::{Error, Result};
use crate::layout::{HEAD_BYTES, Head, Header, STATE_CLOSED};
use crate::media::{Map, Media, Open};
use crate::recover::{live_head, live_page};
use std::path::{Path, PathBuf};
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

    /// False once its name does not lead to it: it was removed, or has another name. What cannot be looked at is there.
    pub fn is_there(&self, media: &dyn Media) -> bool {
        match media.open(&self.path, Open::Read) {
            Ok(file) => file.identity() == self.identity,
            Err(e) => e.kind() != std::io::ErrorKind::NotFound,
        }
    }

    /// True if a writer ended here, or gave it up to make it anew. What is neither there nor given up was taken away.
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
