//! Sharing a data folder with a group of users, and taking it back: what is there, and what will be made.
//!
//! Constraints: only the owner may do this, while nobody writes the streams.
//!
//! Failure behaviour: an interrupted call is repeated by the next one. A file that ends meanwhile is passed over.

use crate::error::{Error, Result};
use crate::format::header::Header;
use crate::live::place::may_be_live;
use crate::outside::group;
use crate::outside::media::Media;
use std::io::ErrorKind;
use std::path::Path;

/// Shares a data folder with a group; `None`: with none, if it was shared. It is made if it is missing.
pub fn share(media: &dyn Media, data: &Path, with: Option<u32>) -> Result<()> {
    group::make(data).map_err(Error::io("make", data))?;
    // Links inside are left as they are; the folder itself may be named by one.
    let data = &data.canonicalize().map_err(Error::io("find", data))?;
    if with.is_none() && group::shared_with(data).is_none() {
        return Ok(());
    }
    if with.is_some() {
        hand_over(data, with)?;
        group::open_to_group(data).map_err(Error::io("share", data))?;
        group::mark(data, with).map_err(Error::io("share", data))?;
    }
    for name in media.list(data).map_err(Error::io("list", data))? {
        let folder = data.join(&name);
        tree(media, &folder, with)?;
        let Ok(header) = Header::read(media, &folder) else { continue };
        if header.live != folder && may_be_live(media, &header.live, &folder) {
            tree(media, &header.live, with)?;
            if with.is_some() {
                media.share_live(&header.live, &folder).or_else(passed_over).map_err(Error::io("share", &folder))?;
            }
        }
    }
    if with.is_none() {
        hand_over(data, None)?;
        // The last step: a call that is interrupted before is repeated.
        group::mark(data, None).map_err(Error::io("share", data))?;
    }
    Ok(())
}

/// A file or a folder with all in it.
fn tree(media: &dyn Media, path: &Path, with: Option<u32>) -> Result<()> {
    hand_over(path, with)?;
    if std::fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir()) {
        for name in media.list(path).map_err(Error::io("list", path))? {
            tree(media, &path.join(name), with)?;
        }
    }
    Ok(())
}

fn hand_over(path: &Path, with: Option<u32>) -> Result<()> {
    group::hand_over(path, with).or_else(passed_over).map_err(Error::io("share", path))
}

/// A file that is gone needs no group.
fn passed_over(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }
}
