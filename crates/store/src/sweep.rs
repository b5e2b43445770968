//! Live places that are nobody's: their folder is gone, or another stands there.
//!
//! A disk stream that ends cleanly takes its live place with it, and so does a start that fails. What is left is of
//! streams whose folder was removed while a place was there. A place is only judged by a process that sees files under
//! the same paths as its writer did, and never while a writer holds it.
//!
//! A folder that was moved while nobody writes looks like one that is gone: what only memory had of it goes.

use crate::layout::{HEAD_BYTES, HEAD_MAGIC, Head};
use crate::media::{Media, Open};
use crate::recover::{home_of, remove_live};
use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Live places that are nobody's.
pub fn abandoned(media: &dyn Media) -> Vec<PathBuf> {
    places(media).filter(|place| claim(media, place).is_some()).collect()
}

/// Removes live places that are nobody's; returns those that went.
pub fn sweep(media: &dyn Media) -> Vec<PathBuf> {
    let mut swept = Vec::new();
    for place in places(media) {
        if let Some((folder, _lock)) = claim(media, &place) {
            remove_live(media, &place, &folder);
            swept.push(place);
        }
    }
    swept
}

fn places(media: &dyn Media) -> impl Iterator<Item = PathBuf> {
    let root = media.live_root();
    media.list(&root).unwrap_or_default().into_iter().map(move |name| root.join(name))
}

/// The folder that a place was made for, and a lock that keeps writers out. None if it is somebody's, or if that cannot
/// be told.
fn claim(media: &dyn Media, place: &Path) -> Option<(PathBuf, Box<dyn Any + Send + Sync>)> {
    let path = place.join("head");
    let file = media.open(&path, Open::Read).ok()?;
    if file.len().ok()? < HEAD_BYTES as u64 {
        return None;
    }
    let lock = media.lock(&path).ok()?;
    let map = file.map(HEAD_BYTES, false).ok()?;
    let head = Head::of(&map);
    let folder = head.folder()?;
    let ours =
        head.magic.load(Ordering::Acquire) == HEAD_MAGIC && head.mounts.load(Ordering::Relaxed) == media.mounts();
    (ours && home_of(media, &folder) != head.home.load(Ordering::Relaxed)).then_some((folder, lock))
}
