//! The control page of a live place, which its writer and its readers share.

use crate::limits::KEPT_MIN;
use crate::outside::media::Map;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes of the control page.
pub(crate) const HEAD_BYTES: usize = 4096;

/// First eight bytes of a control page.
pub(crate) const HEAD_MAGIC: u64 = u64::from_le_bytes(*b"BEAMHEAD");

/// The control page: written by the writer alone, mapped read-only by readers.
#[repr(C)]
pub(crate) struct Head {
    /// [`HEAD_MAGIC`], stored last when the page is made.
    pub magic: AtomicU64,
    /// [`FORMAT`].
    pub format: AtomicU32,
    /// Epoch that is written now.
    pub epoch: AtomicU32,
    /// The stream's identity.
    pub uuid: [AtomicU64; 2],
    _pad0: [u64; 4],
    /// Mark `memory`: messages below are published.
    pub count: AtomicU64,
    /// Changes with each publish: readers sleep on it.
    pub count_word: AtomicU32,
    _pad1: [u32; 13],
    /// Mark `disk`: messages below are on the medium.
    pub disk: AtomicU64,
    /// Changes with each commit: readers sleep on it.
    pub disk_word: AtomicU32,
    _pad2: [u32; 13],
    /// Lowest sequence that is still there.
    pub first: AtomicU64,
    /// Lowest payload segment that is still there, in any place.
    pub first_payload: AtomicU32,
    /// Lowest index segment that is still there, in any place.
    pub first_index: AtomicU32,
    /// Lowest payload segment in the live place.
    pub live_payload: AtomicU32,
    /// Lowest index segment in the live place.
    pub live_index: AtomicU32,
    _pad3: [u64; 5],
    /// The writer: 0 none (it ended, or gave this place up), 1 writing, 2 stopped by a failed sync.
    pub state: AtomicU32,
    /// Process of the writer.
    pub pid: AtomicU32,
    /// Its start time.
    pub pid_start: AtomicU64,
    /// Grows with each opening for writing: segments mapped before may be other files now.
    pub opened: AtomicU64,
    /// Messages dropped by `drop-newest` since the writer opened (a cache for `top`; the truth is in the gaps).
    pub dropped: AtomicU64,
    /// Identity of the stream's `lock` file: a copied folder must not take the live place of its original for its own.
    pub home: AtomicU64,
    /// Processes with this number (`Media::mounts`) find the stream under `folder`.
    pub mounts: AtomicU64,
    /// Bytes of stream memory that one reader may keep pinned, where messages are small.
    pub quota: AtomicU64,
    /// Bytes of the largest payload segment that one message fills: a reader may keep four of them. 0: there was none.
    pub largest: AtomicU64,
    _pad4: [u64; 24],
    /// Path of the stream's folder, zero-filled; a longer one is left out, and the live place is then not told from one that is used.
    pub folder: [AtomicU64; FOLDER_WORDS],
}

/// Words of `Head::folder`.
const FOLDER_WORDS: usize = 448;

/// `Head::state`: nobody writes.
pub(crate) const STATE_CLOSED: u32 = 0;

/// `Head::state`: a writer is there (or was killed).
pub(crate) const STATE_WRITING: u32 = 1;

/// `Head::state`: an fdatasync failed.
pub(crate) const STATE_FAILED: u32 = 2;

const _: () = assert!(std::mem::size_of::<Head>() == HEAD_BYTES);

impl Head {
    /// The control page that a map holds.
    pub(crate) fn of(map: &Map) -> &Self {
        assert!(map.len() >= HEAD_BYTES);
        // SAFETY: the map is page-aligned and large enough, and the type is all atomics and padding.
        unsafe { &*map.ptr().cast::<Self>() }
    }

    /// Bytes of stream memory that one reader may keep pinned: code that reads message after message holds the last one
    /// while it takes the next, however large they are.
    pub(crate) fn keeps(&self) -> u64 {
        let largest = self.largest.load(Ordering::Acquire).saturating_mul(KEPT_MIN);
        self.quota.load(Ordering::Relaxed).max(largest)
    }

    /// The path in `folder`; none where it was too long.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        let words = self.folder.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes());
        let bytes: Vec<u8> = words.take_while(|&b| b != 0).collect();
        (!bytes.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(&bytes)))
    }

    /// Sets `folder`.
    pub(crate) fn set_folder(&self, path: &Path) {
        let mut bytes = [0; FOLDER_WORDS * 8];
        if let Some(to) = bytes.get_mut(..path.as_os_str().len()) {
            to.copy_from_slice(path.as_os_str().as_bytes());
        }
        for (word, chunk) in self.folder.iter().zip(bytes.as_chunks::<8>().0) {
            word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
        }
    }
}
