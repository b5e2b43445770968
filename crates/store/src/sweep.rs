//! Live places that are nobody's: their folder is gone, or another stands there.
//!
//! A disk stream that ends cleanly takes its live place with it, and so does a start that fails. What is left is of
//! streams whose folder was removed while a place was there. A place is only judged by a process that sees files under
//! the same paths as its writer did, and never removed while a writer holds it.
//!
//! A folder that was moved while nobody writes looks like one that is gone: what only memory had of it goes.

use crate::layout::{HEAD_BYTES, HEAD_MAGIC, Head};
use crate::media::{Media, Open};
use crate::recover::{home_of, remove_live};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Live places that are nobody's.
pub fn abandoned(media: &dyn Media) -> Vec<PathBuf> {
    let root = media.live_root();
    let places = media.list(&root).unwrap_or_default().into_iter().map(|name| root.join(name));
    places.filter(|place| owner(media, place).is_some()).collect()
}

/// Removes a live place if it is nobody's. True if it went.
pub fn sweep(media: &dyn Media, place: &Path) -> bool {
    // Looked at before, so that no lock of ours is in the way of a writer that starts; and once more with it.
    let lock = owner(media, place).and_then(|_| media.lock(&place.join("head")).ok());
    let folder = lock.as_ref().and_then(|_| owner(media, place));
    if let Some(folder) = &folder {
        remove_live(media, place, folder);
    }
    folder.is_some()
}

/// The folder that a place was made for, where that is gone or another. None if the place is somebody's, or if that cannot
/// be told.
fn owner(media: &dyn Media, place: &Path) -> Option<PathBuf> {
    let file = media.open(&place.join("head"), Open::Read).ok()?;
    if file.len().ok()? < HEAD_BYTES as u64 {
        return None;
    }
    let map = file.map(HEAD_BYTES, false).ok()?;
    let head = Head::of(&map);
    let folder = head.folder()?;
    let ours =
        head.magic.load(Ordering::Acquire) == HEAD_MAGIC && head.mounts.load(Ordering::Relaxed) == media.mounts();
    (ours && home_of(media, &folder) != head.home.load(Ordering::Relaxed)).then_some(folder)
}
