//! Abandoned live places: their stream's folder is gone, or another folder is there.
//!
//! A disk stream removes its live place at a clean end, and so does a start that fails. Only streams whose folder was
//! removed while the live place existed leave one.
//!
//! Constraints: a live place is judged only by a process that sees files under the same paths as its writer did (mount
//! namespace), and not while a writer holds its lock. Nothing is removed automatically: a folder that was moved while
//! no writer ran looks like a removed one, and messages that only memory holds would be lost. A place of which the
//! folder was renamed within its parent, or with its data folder, is seen there and is not abandoned.

use crate::format::control_page::{HEAD_BYTES, HEAD_MAGIC, Head};
use crate::format::header::Header;
use crate::live::place::home_of;
use crate::outside::media::{Media, Open};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Abandoned live places.
pub fn abandoned(media: &dyn Media) -> Vec<PathBuf> {
    let root = media.live_root();
    let places = media.list(&root).unwrap_or_default().into_iter().map(|name| root.join(name));
    places.filter(|place| is_nobodys(media, place)).collect()
}

/// Removes a live place if it is abandoned; false if it is not, or not any more.
pub fn remove_abandoned(media: &dyn Media, place: &Path) -> io::Result<bool> {
    if !is_nobodys(media, place) {
        return Ok(false);
    }
    // Held while it goes, and judged once more: nobody begins to write there meanwhile.
    let Ok(_lock) = media.lock(&place.join("head")) else { return Ok(false) };
    if !is_of_no_folder(media, place) {
        return Ok(false);
    }
    remove(media, place).map(|()| true)
}

/// Its control page goes last: what is left after a failure is still judged by it.
fn remove(media: &dyn Media, place: &Path) -> io::Result<()> {
    for name in media.list(place)?.iter().filter(|name| *name != "head") {
        media.unlink(&place.join(name))?;
    }
    media.unlink(&place.join("head"))?;
    media.remove_dir(place)
}

/// False also if it is unknown.
fn is_nobodys(media: &dyn Media, place: &Path) -> bool {
    is_of_no_folder(media, place) && media.lock(&place.join("head")).is_ok()
}

/// True if the folder of a live place, as its control page names it, is gone or another one. False also if it is
/// unknown.
fn is_of_no_folder(media: &dyn Media, place: &Path) -> bool {
    let Ok(file) = media.open(&place.join("head"), Open::Read) else { return false };
    if file.len().is_ok_and(|len| len < HEAD_BYTES as u64) {
        return false;
    }
    let Ok(map) = file.map(HEAD_BYTES, false) else { return false };
    let head = Head::of(&map);
    let ours =
        head.magic.load(Ordering::Acquire) == HEAD_MAGIC && head.mounts.load(Ordering::Relaxed) == media.mounts();
    let home = head.home.load(Ordering::Relaxed);
    let is_gone = |folder: &Path| home_of(media, folder).is_ok_and(|now| now != home);
    ours && head.folder().is_some_and(|folder| is_gone(&folder) && !is_renamed(media, &folder, place, home))
}

/// True if the folder of a live place is beside its old path under another name, or in a data folder that is. The
/// identity of its lock is not enough: file systems give the number of a removed file to the next one.
fn is_renamed(media: &dyn Media, folder: &Path, place: &Path, home: u64) -> bool {
    // A header that cannot be read may be that of the folder.
    let names_it = |folder: &Path| Header::read(media, folder).map_or(true, |header| header.live == place);
    let is_it = |folder: &Path| home_of(media, folder).is_ok_and(|now| now == home) && names_it(folder);
    let beside = |folder: &Path| {
        let names = media.list(folder).unwrap_or_default();
        names.into_iter().map(|name| folder.join(name)).collect::<Vec<_>>()
    };
    let (Some(data), Some(name)) = (folder.parent(), folder.file_name()) else { return false };
    let above = data.parent().map(beside).unwrap_or_default();
    beside(data).iter().any(|folder| is_it(folder)) || above.iter().any(|data| is_it(&data.join(name)))
}
