//! Files of a folder: replaced as a whole, copied before they are changed, opened where they are there.

use crate::error::{Error, Result};
use crate::outside::media::{File, Media, Open, read_again};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Writes a file as a whole: a new file beside, synced, then renamed over the old.
pub(crate) fn replace(media: &dyn Media, folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let (new, path) = (folder.join(format!("{name}.new")), folder.join(name));
    let file = media.open(&new, Open::Create).map_err(Error::io("create", &new))?;
    file.set_len(0).map_err(Error::io("write", &new))?;
    file.write_at(bytes, 0).map_err(Error::io("write", &new))?;
    file.sync().map_err(Error::io("sync", &new))?;
    media.rename(&new, &path).map_err(Error::io("rename", &path))?;
    media.sync_dir(folder).map_err(Error::io("sync", folder))
}

/// Opens a file; none if there is no such file, an error if that cannot be told.
pub(crate) fn open_if_there(m: &dyn Media, path: &Path, how: Open) -> Result<Option<Arc<dyn File>>> {
    match m.open(path, how) {
        Ok(file) => Ok(Some(file)),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(Error::io("open", path)(e)),
    }
}

/// Copies a damaged file beside itself before anything is changed in it: `NAME.damaged-K`, which nobody reads.
pub(crate) fn keep_copy(m: &dyn Media, folder: &Path, name: &str) -> Result<PathBuf> {
    let names = m.list(folder).map_err(Error::io("list", folder))?;
    let free = (1..).map(|k: u32| format!("{name}.damaged-{k}")).find(|n| !names.contains(n)).unwrap_or_default();
    let (from, to) = (folder.join(name), folder.join(free));
    let source = m.open(&from, Open::Read).map_err(Error::io("open", &from))?;
    let copy = m.open(&to, Open::Create).map_err(Error::io("create", &to))?;
    let (mut bytes, mut at) = (vec![0; 1 << 20], 0);
    let len = source.len().map_err(Error::io("read", &from))?;
    while at < len {
        let n = match read_again(source.as_ref(), &mut bytes, at) {
            Ok(0) => break,
            Ok(n) => n,
            Err(_) => {
                // Block by block: what the medium does not give is zero in the copy.
                let piece = &mut bytes[..(1 << 20).min(len - at) as usize];
                for (i, block) in piece.chunks_mut(4096).enumerate() {
                    if read_again(source.as_ref(), block, at + (i * 4096) as u64).is_err() {
                        block.fill(0);
                    }
                }
                piece.len()
            }
        };
        copy.write_at(&bytes[..n], at).map_err(Error::io("write", &to))?;
        at += n as u64;
    }
    copy.sync().map_err(Error::io("sync", &to))?;
    m.sync_dir(folder).map_err(Error::io("sync", folder))?;
    Ok(to)
}
