//! Removing a stream.

use crate::error::{Error, Result};
use crate::format::header::{Header, REMOVED};
use crate::live::place::{is_foreign, remove_live};
use crate::outside::media::Media;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

/// Removes a stream without a writer; a missing one is no error. Readers keep what they have mapped. Cut short at any
/// point, the stream is complete or absent; called again, it removes the rest of its files.
pub fn remove(media: &Arc<dyn Media>, folder: &Path) -> Result<()> {
    let m = media.as_ref();
    let names = m.list(folder).map_err(Error::io("list", folder))?;
    if names.is_empty() {
        let _ = m.remove_dir(folder);
        return Ok(());
    }
    let lock = folder.join("lock");
    let _lock = m.lock(&lock).map_err(|e| match e.kind() {
        std::io::ErrorKind::WouldBlock => Error::Locked(folder.to_path_buf()),
        _ => Error::io("lock", &lock)(e),
    })?;
    match Header::read(m, folder) {
        Ok(header) => {
            if header.live != folder && !is_foreign(m, &header, folder)? {
                remove_live(m, &header.live, folder);
            }
            // Its files without a header would be damage.
            m.rename(&folder.join("stream"), &folder.join(REMOVED)).map_err(Error::io("rename", folder))?;
            m.sync_dir(folder).map_err(Error::io("sync", folder))?;
        }
        Err(Error::Missing(_) | Error::Headless(_)) => {}
        Err(e) => return Err(e),
    }
    for name in names.iter().filter(|name| !["stream", "lock", REMOVED].contains(&name.as_str())) {
        m.unlink(&folder.join(name)).map_err(Error::io("remove", folder))?;
    }
    // Only now, durably: a power cut must not bring files back without this name.
    m.sync_dir(folder).map_err(Error::io("sync", folder))?;
    match m.unlink(&folder.join(REMOVED)) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(Error::io("remove", folder)(e)),
        _ => {}
    }
    // The lock goes last: until then nobody makes a stream here.
    m.unlink(&lock).map_err(Error::io("remove", folder))?;
    // A reader that came at this moment may have left its pins.
    let _ = m.remove_dir(folder);
    Ok(())
}
