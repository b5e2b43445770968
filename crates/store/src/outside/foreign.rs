//! A file of another program, mapped for reading: for example recorded frames that a source sends again.
//!
//! Constraints: the file is never written, and memory holds no more of it than the page cache keeps.
//!
//! Failure behaviour: a range past the end, a file that has been cut, and an unreadable sector are error values,
//! because each range is read into memory before it is handed out. A process that cuts the file between that read and
//! the copy, a few microseconds, still ends this process with a signal, as with any map.

use crate::error::{Error, Result};
use crate::outside::media::{File, Map, Media, Open};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A mapped file of others.
pub struct Foreign {
    file: Arc<dyn File>,
    map: Map,
    path: PathBuf,
}

impl Foreign {
    /// Maps a file as long as it is now. An empty file has no bytes to map and is refused.
    pub fn open(media: &dyn Media, path: &Path) -> Result<Self> {
        let failed = |doing| move |source| Error::Io { doing, path: path.to_path_buf(), source };
        let file = media.open(path, Open::Read).map_err(failed("open"))?;
        let len = file.len().map_err(failed("open"))?;
        let empty = || failed("map")(io::Error::new(io::ErrorKind::UnexpectedEof, "it is empty"));
        let len = usize::try_from(len).ok().filter(|len| *len > 0).ok_or_else(empty)?;
        let map = file.map(len, false).map_err(failed("map"))?;
        Ok(Self { file, map, path: path.to_path_buf() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes that it had when it was opened.
    pub fn len(&self) -> u64 {
        self.map.len() as u64
    }

    /// Never: an empty file is refused.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// A range of its bytes, in memory.
    pub fn bytes(&self, at: u64, len: u64) -> Result<&[u8]> {
        let failed = |source| Error::Io { doing: "read", path: self.path.clone(), source };
        let short = || failed(io::Error::new(io::ErrorKind::UnexpectedEof, "it is shorter"));
        if at.checked_add(len).is_none_or(|end| end > self.len()) {
            return Err(short());
        }
        self.file.bring(&self.map, at, len).map_err(failed)?;
        // SAFETY: inside the map, which lives as long as `self`. Plain bytes: what another process may write there
        // meanwhile is shown as other bytes, and nothing here relies on what they are.
        Ok(unsafe { std::slice::from_raw_parts(self.map.ptr().add(at as usize), len as usize) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Os;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("beamport-foreign-{}-{name}", std::process::id()))
    }

    #[test]
    fn ranges_inside_are_shown_and_others_are_errors() {
        let path = path("ranges");
        let bytes: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
        std::fs::write(&path, &bytes).expect("written");
        let file = Foreign::open(&Os, &path).expect("a file");
        assert_eq!((file.len(), file.is_empty()), (10_000, false));
        for (at, len) in [(0, 10_000), (4095, 2), (9_999, 1), (10_000, 0), (0, 0)] {
            assert_eq!(file.bytes(at, len).expect("inside"), &bytes[at as usize..(at + len) as usize]);
        }
        for (at, len) in [(0, 10_001), (10_001, 0), (u64::MAX, 1), (1, u64::MAX)] {
            assert!(file.bytes(at, len).is_err(), "{at} {len}");
        }
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(file.bytes(0, 3).expect("still mapped"), &[0, 1, 2]);
    }

    #[test]
    fn an_end_that_was_cut_off_is_an_error_and_no_signal() {
        let path = path("cut");
        std::fs::write(&path, vec![7; 1 << 20]).expect("written");
        let file = Foreign::open(&Os, &path).expect("a file");
        std::fs::OpenOptions::new().write(true).open(&path).and_then(|f| f.set_len(8192)).expect("cut");
        assert_eq!(file.bytes(4096, 4096).expect("left"), &[7; 4096]);
        let refused = file.bytes(8192, 4096);
        std::fs::remove_file(&path).expect("removed");
        assert!(refused.is_err());
    }

    #[test]
    fn what_is_no_file_or_empty_is_refused() {
        let path = path("empty");
        assert!(Foreign::open(&Os, &path).is_err());
        std::fs::write(&path, []).expect("written");
        let refused = Foreign::open(&Os, &path);
        std::fs::remove_file(&path).expect("removed");
        assert!(refused.is_err());
        assert!(Foreign::open(&Os, &std::env::temp_dir()).is_err());
    }
}
