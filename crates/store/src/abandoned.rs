//! Abandoned live places: their stream's folder is gone, or another folder is there.
//!
//! A disk stream removes its live place at a clean end, and so does a start that fails. Only streams whose folder was
//! removed while the live place existed leave one.
//!
//! Constraints: a live place is judged only by a process that sees files under the same paths as its writer did (mount
//! namespace), and not while a writer holds its lock. Nothing is removed automatically: a folder that was moved while
//! no writer ran looks like a removed one, and messages that only memory holds would be lost.

use crate::layout::{HEAD_BYTES, HEAD_MAGIC, Head};
use crate::media::{Media, Open};
use crate::recover::home_of;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Abandoned live places.
pub fn abandoned(media: &dyn Media) -> Vec<PathBuf> {
    let root = media.live_root();
    let places = media.list(&root).unwrap_or_default().into_iter().map(|name| root.join(name));
    places.filter(|place| is_nobodys(media, place)).collect()
}

/// False also if it is unknown.
fn is_nobodys(media: &dyn Media, place: &Path) -> bool {
    let path = place.join("head");
    let Ok(file) = media.open(&path, Open::Read) else { return false };
    if file.len().is_ok_and(|len| len < HEAD_BYTES as u64) {
        return false;
    }
    let Ok(map) = file.map(HEAD_BYTES, false) else { return false };
    let head = Head::of(&map);
    let ours =
        head.magic.load(Ordering::Acquire) == HEAD_MAGIC && head.mounts.load(Ordering::Relaxed) == media.mounts();
    let home = head.home.load(Ordering::Relaxed);
    let gone = head.folder().is_some_and(|folder| home_of(media, &folder).is_ok_and(|now| now != home));
    ours && gone && media.lock(&path).is_ok()
}
