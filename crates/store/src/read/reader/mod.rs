//! Readers: any number of processes that map the same pages and copy nothing.
//!
//! Constraints: a reader pins each segment that it maps (decision 0002), so the bytes of a batch stay unchanged until
//! its owner drops it, whatever the writer does. It keeps maps of recycled files, by file identity, so a reader in step
//! with the writer maps each page once. For entries of a view it has one reader per parent (`view`). It never waits for
//! other readers.
//!
//! Failure behaviour: bytes that do not verify are `Error::Corrupt` with file and position and are never returned as
//! data; messages that retention deleted are `Error::Gone` with the oldest available sequence; pinned bytes above the
//! quota fail the next mapping of this reader with `Error::Quota`.

mod index;
mod map;
mod messages;
mod open;
mod origins;
mod position;
mod time_index;
mod view;
mod wait;

use crate::error::{Error, Result};
use crate::format::control_page::{Head, STATE_CLOSED};
use crate::format::entry::salt;
use crate::format::header::{Header, Level};
use crate::format::names::Names;
use crate::live::pins::{Held, Pins};
use crate::outside::media::{File, Locks, Map, Media, Process};
use crate::read::attach::{Bounds, Control, bounds_of};
use crate::read::mapped::Mapped;
use crate::read::options::ReadOptions;
use crate::read::shown::Shown;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use view::Parents;

/// A map, and its file to see whether a name still leads to it.
type KeptMap = (Arc<Map>, Arc<dyn File>);

/// A reader's place in a stream.
pub struct Reader {
    media: Arc<dyn Media>,
    folder: PathBuf,
    header: Header,
    control: Control,
    pins: Pins,
    /// None where `pins` may not be written, or has no place left: segments are copied instead of pinned.
    held: Option<Arc<Held>>,
    options: ReadOptions,
    next: u64,
    /// (first sequence, epoch, salt seed), rising.
    seeds: Vec<(u64, u32, u64)>,
    index: Option<Arc<Mapped>>,
    payload: Option<Arc<Mapped>>,
    /// Entries below have been seen in `index`: it need not be looked at again for them.
    seen: u64,
    /// The streams that this one points into, and what the last batch showed of them.
    parents: Parents,
    shown: Shown,
    /// How many views led here.
    depth: u32,
    /// In which batch of a view, and where in it, `payload` was shown last.
    placed: (u64, u32),
    /// Stream memory that this batch shows of it.
    placed_bytes: u64,
    /// Maps by file identity, also of files that no batch needs now.
    maps: Mutex<HashMap<u64, KeptMap>>,
    origins: Names,
    looked: Instant,
}

impl Reader {
    /// The header of the stream.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The stream's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub(in crate::read) fn media(&self) -> &Arc<dyn Media> {
        &self.media
    }

    /// The live place, if it is there and belongs to this folder.
    pub fn live_place(&self) -> Option<&Path> {
        matches!(self.control, Control::Live(_)).then_some(self.header.live.as_path())
    }

    /// An error where the messages of a memory stream lie in the shared memory of another container: this reader sees
    /// none of them.
    pub fn is_here(&self) -> Result<()> {
        let is_elsewhere = |number| number != self.media.shared_memory();
        let is_cold = matches!(self.control, Control::Cold { .. }) && self.header.boot == self.media.boot();
        match is_cold && self.header.level == Level::Memory && self.header.shared_memory.is_some_and(is_elsewhere) {
            true => Err(Error::Elsewhere(self.header.live.clone())),
            false => Ok(()),
        }
    }

    /// The process that writes, if it lives.
    pub fn writer(&self) -> Option<Process> {
        let Control::Live(map) = &self.control else { return None };
        let head = Head::of(map);
        let process = Process { pid: head.pid.load(Ordering::Relaxed), start: head.pid_start.load(Ordering::Relaxed) };
        // In another pid namespace it has another number; the lock is seen everywhere.
        let has_lock = |locks: Arc<dyn Locks>| locks.is_locked(0).unwrap_or(false);
        let lives = || self.media.locks(&self.header.live.join("head"), false).is_ok_and(has_lock);
        (head.state.load(Ordering::Acquire) != STATE_CLOSED && lives()).then_some(process)
    }

    /// True if the stream that this reader sees has no writer: a new writer has another control page.
    #[inline]
    fn is_unwritten(&self) -> bool {
        match &self.control {
            Control::Live(map) => Head::of(map).state.load(Ordering::Acquire) == STATE_CLOSED,
            Control::Cold { .. } => true,
        }
    }

    /// How often the stream was opened for writing.
    #[inline]
    fn opened(&self) -> u64 {
        match &self.control {
            Control::Live(map) => Head::of(map).opened.load(Ordering::SeqCst),
            Control::Cold { .. } => 0,
        }
    }

    /// Other readers of the stream.
    pub fn pins(&self) -> &Pins {
        &self.pins
    }

    /// Bytes of stream memory that one reader may keep by holding on to what it has read, as the writer was told (large
    /// messages raise it); 0 where the stream is not live.
    pub fn quota(&self) -> u64 {
        match &self.control {
            Control::Live(head) => Head::of(head).quota.load(Ordering::Relaxed),
            _ => 0,
        }
    }

    /// The bounds of the stream now.
    #[inline]
    pub fn bounds(&self) -> Bounds {
        bounds_of(&self.control)
    }

    /// True if it sees only what is safe on disk.
    #[inline]
    fn waits_for_disk(&self) -> bool {
        self.header.level == Level::Disk && !self.options.early
    }

    /// One past the last message that this reader may see now.
    #[inline]
    pub fn end(&self) -> u64 {
        let bounds = self.bounds();
        if self.waits_for_disk() { bounds.disk } else { bounds.count }
    }

    #[inline]
    fn salt(&self, sequence: u64) -> u32 {
        let seed = self.seeds.iter().rev().find(|s| s.0 <= sequence).map_or(0, |s| s.2);
        salt(seed, sequence)
    }

    /// Releases the segments that were read last: until the next call they are not pinned, and a writer can use their
    /// memory again. For a reader that looks at a message now and then.
    pub fn release(&mut self) {
        (self.index, self.payload, self.seen) = (None, None, 0);
        self.shown.release();
        self.parents.release();
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        (self.index, self.payload, self.shown) = (None, None, Shown::default());
        // Views may keep the place for long; the name is free for the next reader.
        if let Some(held) = self.held.take_if(|held| Arc::strong_count(held) > 1) {
            held.leave();
        }
    }
}
