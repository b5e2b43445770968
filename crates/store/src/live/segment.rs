//! One segment file of the writer: mapped whole, allocated in steps, reused when free.
//!
//! Constraints: a push writes only allocated bytes, because a write through a map into a hole of a full tmpfs is a
//! signal (SIGBUS) and not an error. A file grows by 16 KiB to 8 MiB, doubling, which bounds the stall of one append.
//! Pages of a reused file are warm: a fresh page costs ten times as much.
//!
//! Failure behaviour: no space is an `Error::Io` with ENOSPC before any byte is written.

use crate::error::{Error, Result};
use crate::limits::{GROW_BYTES_MAX, GROW_BYTES_MIN};
use crate::outside::media::{File, Map, Media, Open};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A segment file in the live place, as its writer holds it.
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
    pub(crate) map: Map,
    /// Bytes from the start that may be written through the map without a fault.
    allocated: AtomicU64,
    /// Payload bytes in use once the segment is closed; `u64::MAX` while it is written.
    pub(crate) closed_at: AtomicU64,
}

impl Segment {
    /// Makes or opens a segment of `bytes` (a multiple of 4096).
    pub(crate) fn open(media: &dyn Media, path: &Path, bytes: u64) -> Result<Self> {
        let file = media.open(path, Open::Create).map_err(Error::io("create", path))?;
        if file.len().map_err(Error::io("read", path))? < bytes {
            file.set_len(bytes).map_err(Error::io("grow", path))?;
        }
        let map = file.map(bytes as usize, true).map_err(Error::io("map", path))?;
        Ok(Self {
            path: path.to_path_buf(),
            file,
            map,
            allocated: AtomicU64::new(0),
            closed_at: AtomicU64::new(u64::MAX),
        })
    }

    /// Bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.map.len() as u64
    }

    /// Bytes that it occupies.
    pub(crate) fn occupied(&self) -> u64 {
        self.allocated.load(Ordering::Relaxed)
    }

    /// The first `end` bytes have been written before, so they are allocated.
    pub(crate) fn known(&self, end: u64) {
        self.allocated.fetch_max(end.next_multiple_of(4096).min(self.bytes()), Ordering::Relaxed);
    }

    /// Makes the first `end` bytes writable without a fault; `Error::Io` with ENOSPC where there is no room.
    #[inline]
    pub(crate) fn reserve(&self, end: u64) -> Result<()> {
        if end <= self.allocated.load(Ordering::Relaxed) { Ok(()) } else { self.grow(end) }
    }

    #[cold]
    fn grow(&self, end: u64) -> Result<()> {
        let have = self.allocated.load(Ordering::Relaxed);
        let step = have.clamp(GROW_BYTES_MIN, GROW_BYTES_MAX);
        let to = end.max(have + step).next_multiple_of(4096).min(self.bytes());
        self.file.allocate(have, to - have).map_err(Error::io("allocate", &self.path))?;
        self.allocated.store(to, Ordering::Relaxed);
        Ok(())
    }

    /// The bytes of a range that is no longer written.
    ///
    /// # Safety
    /// Nobody may write the range while the slice lives, save that a torn last block is written again later.
    pub(crate) unsafe fn slice(&self, from: u64, to: u64) -> &[u8] {
        assert!(from <= to && to <= self.bytes());
        // SAFETY: inside the map; the caller vouches for the rest.
        unsafe { std::slice::from_raw_parts(self.map.ptr().add(from as usize), (to - from) as usize) }
    }
}
