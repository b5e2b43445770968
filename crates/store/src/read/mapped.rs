//! A mapped segment, and the reasons why its bytes neither change nor raise a signal: a pin or a copy, and pieces that
//! are read before they are touched.

use crate::error::{Error, Result};
use crate::format::commit::Commit;
use crate::format::control_page::Head;
use crate::format::entry::salt_seed;
use crate::live::pins::Held;
use crate::live::protocol::is_kept;
use crate::outside::media::{File, Map, Media};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex};

/// A mapped segment: pinned for as long as this lives.
pub struct Mapped {
    pub(super) map: Arc<Map>,
    /// The file.
    pub path: PathBuf,
    pub(super) number: u32,
    pub(super) payload: bool,
    /// How often the stream had been opened for writing when it was mapped.
    pub(super) opened: u64,
    pub(super) hold: Hold,
    /// How much of what lies in the folder is in memory; none for the live place and for copies.
    pub(super) brought: Option<Brought>,
}

impl Mapped {
    /// A range of its bytes, or none if the file is shorter.
    pub fn bytes(&self, at: u64, len: u64) -> Option<&[u8]> {
        let end = at.checked_add(len)?;
        if end > self.map.len() as u64 || !self.fill(end) {
            return None;
        }
        // SAFETY: inside the map; published bytes of a pinned segment are never written again, nor are copied ones.
        Some(unsafe { std::slice::from_raw_parts(self.map.ptr().add(at as usize), len as usize) })
    }

    /// The same for bytes that are read here and now: none also where the medium does not give them.
    #[inline]
    pub(super) fn read(&self, at: u64, len: u64) -> Option<&[u8]> {
        let bytes = self.bytes(at, len)?;
        self.brought.as_ref().is_none_or(|brought| brought.has(&self.map, at, len)).then_some(bytes)
    }

    /// Has the first `end` bytes copied, where this is a copy. False if they are no longer to be had.
    pub(super) fn fill(&self, end: u64) -> bool {
        let Hold::Copy(copied) = &self.hold else { return true };
        let mut filled = copied.filled.lock().unwrap_or_else(|p| p.into_inner());
        if end <= *filled {
            return true;
        }
        let (from, len) = (*filled, (end - *filled) as usize);
        // SAFETY: inside our own memory; `bytes` shows nothing beyond `filled`.
        let to = unsafe { std::slice::from_raw_parts_mut(self.map.ptr().add(from as usize), len) };
        if copied.file.read_at(to, from).is_ok_and(|n| n == len) && self.is_kept() {
            *filled = end;
        }
        end <= *filled
    }

    /// False for a copy of what the writer has given up meanwhile.
    pub(super) fn is_kept(&self) -> bool {
        let Hold::Copy(Copied { kept_by, .. }) = &self.hold else { return true };
        let (page, live) = match kept_by {
            KeptBy::Page(page, live) => (page, live),
            KeptBy::Record(record) => return record.must_keep(self.payload, self.number).is_ok(),
        };
        let head = Head::of(page);
        let low = match (live, self.payload) {
            (true, true) => &head.live_payload,
            (true, false) => &head.live_index,
            (false, true) => &head.first_payload,
            (false, false) => &head.first_index,
        };
        is_kept(low, self.number)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        if let Hold::Pin(held) = &self.hold {
            held.unpin(self.payload, self.number);
        }
    }
}

/// The reason why the bytes of a segment do not change.
pub(super) enum Hold {
    /// A pin.
    Pin(Arc<Held>),
    /// They are a copy, for a reader that may not write `pins`.
    Copy(Copied),
}

/// A segment that is copied as far as it is needed.
pub(super) struct Copied {
    pub(super) file: Arc<dyn File>,
    pub(super) filled: Mutex<u64>,
    /// Data that were read before the writer gave it up are valid.
    pub(super) kept_by: KeptBy,
}

/// Where it stands which segments a stream keeps.
pub(super) enum KeptBy {
    /// On the control page; whether the file lies in the live place.
    Page(Arc<Map>, bool),
    /// In the commit record: there is no live place, or it is in the shared memory of another container.
    Record(Record),
}

/// The commit record of a stream.
pub(super) struct Record {
    pub(super) media: Arc<dyn Media>,
    pub(super) folder: PathBuf,
    pub(super) uuid: [u8; 16],
    pub(super) index_entries: u64,
}

impl Record {
    /// An error where the stream keeps a segment no more. The drainer writes the record before it looks at pins: who
    /// pins a segment and then finds it kept has it.
    pub(super) fn must_keep(&self, payload: bool, number: u32) -> Result<()> {
        let seed = salt_seed(&self.uuid, 0);
        // Pairs with the fence of the drainer between its record and its look at pins.
        fence(Ordering::SeqCst);
        let Some(commit) = Commit::read(self.media.as_ref(), &self.folder, seed)?.0 else { return Ok(()) };
        let index = commit.first / self.index_entries;
        let low = if payload { u64::from(commit.first_segment) } else { index };
        if u64::from(number) < low { Err(Error::Gone { first: commit.first }) } else { Ok(()) }
    }
}

/// Pieces of a file that were brought into memory: one that cannot be read is found before it is touched.
pub(super) struct Brought {
    file: Arc<dyn File>,
    /// A bit a piece.
    pieces: Box<[AtomicU64]>,
}

/// Bytes of such a piece: what the kernel reads around a page that is touched.
const PIECE_BYTES: u64 = 128 << 10;

impl Brought {
    pub(super) fn new(file: Arc<dyn File>, len: usize) -> Self {
        let words = (len as u64).div_ceil(PIECE_BYTES).div_ceil(64);
        Self { file, pieces: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    fn is_in(&self, piece: u64) -> bool {
        let word = self.pieces.get((piece / 64) as usize);
        word.is_none_or(|word| word.load(Ordering::Relaxed) >> (piece % 64) & 1 == 1)
    }

    /// False where a byte of a range, which is inside the map, cannot be read.
    #[inline]
    fn has(&self, map: &Map, at: u64, len: u64) -> bool {
        len == 0
            || (at / PIECE_BYTES..=(at + len - 1) / PIECE_BYTES).all(|piece| self.is_in(piece))
            || self.bring(map, at, len)
    }

    #[cold]
    fn bring(&self, map: &Map, at: u64, len: u64) -> bool {
        for piece in at / PIECE_BYTES..=(at + len - 1) / PIECE_BYTES {
            let from = piece * PIECE_BYTES;
            let whole = PIECE_BYTES.min(map.len() as u64 - from);
            if self.is_in(piece) {
                continue;
            }
            if self.file.bring(map, from, whole).is_ok() {
                if let Some(word) = self.pieces.get((piece / 64) as usize) {
                    word.fetch_or(1 << (piece % 64), Ordering::Relaxed);
                }
                continue;
            }
            // The data around the place that cannot be read are there.
            let (low, high) = (at.max(from), (at + len).min(from + whole));
            if self.file.bring(map, low, high - low).is_err() {
                return false;
            }
        }
        true
    }
}
