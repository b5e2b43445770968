//! Readers of a stream: the `pins` file, its words and its places.
//!
//! ```text
//!   0 u32 1 = somebody sleeps on mark memory    4 u32 on mark disk
//!   8 u32 credit word: changes when a counted reader moves on and the writer waits    12 u32 1 = the writer waits
//!  16 u64 how far the writer would let go but for counted readers: views then let go of what they keep
//! 128 places of 128 B:
//!     0 u32 kind: 0 free, 1 taken but not ready, 2 anonymous, 3 counted, 4 live
//!     4 u32 pid   8 u64 start time of the process
//!    16 u64 pinned payload segments: lowest | highest << 32 (NOTHING = none)
//!    24 u64 pinned index segments, the same
//!    32 u64 committed: next sequence to be read   40 u32 its epoch   44 u32 0
//!    48 [u8;64] name, zero-filled
//! ```
//!
//! Segment numbers never repeat, so a pin that a dead reader left behind costs one unlinked file and then nothing:
//! pins need no test of life. A named place outlives its process: its position goes on holding back `wait`.

use crate::error::{Error, Result};
use crate::limits::{READER_NAME_MAX, READERS_MAX};
use crate::media::{File, Map, Media, Open, Process};
use crate::protocol::{Bell, claim, claimed, unclaim};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// No segment pinned.
pub(crate) const NOTHING: u64 = u64::MAX;
/// Bytes of the pins file.
pub(crate) const PINS_BYTES: usize = 128 + 128 * READERS_MAX;

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const ANONYMOUS: u32 = 2;
const COUNTED: u32 = 3;
const LIVE: u32 = 4;

/// What a reader is to the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It comes and goes; nothing waits for it.
    Anonymous,
    /// `wait` waits for its committed position; what it misses is lost.
    Counted,
    /// It follows the live end; what it misses is skipped.
    Live,
}

#[repr(C)]
struct Words {
    asleep_memory: AtomicU32,
    asleep_disk: AtomicU32,
    credit: AtomicU32,
    writer_waits: AtomicU32,
    wanted: AtomicU64,
}

#[repr(C)]
struct Place {
    kind: AtomicU32,
    pid: AtomicU32,
    start: AtomicU64,
    payload: AtomicU64,
    index: AtomicU64,
    committed: AtomicU64,
    epoch: AtomicU32,
    _zero: AtomicU32,
    name: [AtomicU64; 8],
    _pad: [u64; 2],
}

const _: () = assert!(std::mem::size_of::<Place>() == 128);

/// One reader as `ls` and the writer see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReaderInfo {
    /// Its name; empty for an anonymous one.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Its process.
    pub process: Process,
    /// Next sequence that it will read; nothing below is needed.
    pub committed: u64,
    /// Epoch of that position.
    pub epoch: u32,
}

/// The mapped pins file.
#[derive(Clone)]
pub struct Pins {
    map: Arc<Map>,
    file: Arc<dyn File>,
}

impl Pins {
    /// Opens the file of a stream, made if it is not there.
    pub fn open(media: &dyn Media, folder: &Path) -> Result<Self> {
        let path = folder.join("pins");
        let file = media.open(&path, Open::Create).map_err(Error::io("open", &path))?;
        if file.len().map_err(Error::io("read", &path))? < PINS_BYTES as u64 {
            file.allocate(0, PINS_BYTES as u64).map_err(Error::io("allocate", &path))?;
        }
        let map = file.map(PINS_BYTES, true).map_err(Error::io("map", &path))?;
        Ok(Self { map: Arc::new(map), file })
    }

    /// Makes the named places durable. Positions may be old after a power cut; a place that is gone holds back nothing.
    pub(crate) fn sync(&self, media: &dyn Media, folder: &Path) -> Result<()> {
        self.file.sync().map_err(Error::io("sync", &folder.join("pins")))?;
        media.sync_dir(folder).map_err(Error::io("sync", folder))
    }

    fn words(&self) -> &Words {
        // SAFETY: the map holds PINS_BYTES, is page-aligned, and the type is all atomics.
        unsafe { &*self.map.ptr().cast::<Words>() }
    }

    fn place(&self, row: usize) -> &Place {
        assert!(row < READERS_MAX);
        // SAFETY: as above; rows stay inside PINS_BYTES.
        unsafe { &*self.map.ptr().add(128 + 128 * row).cast::<Place>() }
    }

    /// The flag of readers asleep on a mark.
    pub(crate) fn asleep(&self, disk: bool) -> &AtomicU32 {
        if disk { &self.words().asleep_disk } else { &self.words().asleep_memory }
    }

    /// What rings when a counted reader moves on, or the disk did; the writer sleeps on it.
    pub(crate) fn credit(&self) -> Bell<'_> {
        Bell { word: &self.words().credit, asleep: &self.words().writer_waits }
    }

    /// Tells a waiting writer that there may be room.
    pub(crate) fn moved(&self, media: &dyn Media) {
        if self.credit().ring() {
            media.wake(self.credit().word);
        }
    }

    /// Messages below would be let go of, but for counted readers.
    pub(crate) fn wanted(&self) -> &AtomicU64 {
        &self.words().wanted
    }

    /// True if a reader may have this segment mapped. Call after the lowest segment was advanced: see decision 0002.
    pub fn pinned(&self, payload: bool, number: u32) -> bool {
        (0..READERS_MAX).any(|row| {
            let place = self.place(row);
            let range = claimed(if payload { &place.payload } else { &place.index });
            range != NOTHING && place.kind.load(Ordering::Relaxed) != FREE && {
                let (low, high) = (range as u32, (range >> 32) as u32);
                low <= number && number <= high
            }
        })
    }

    /// All readers.
    pub fn readers(&self) -> Vec<ReaderInfo> {
        (0..READERS_MAX).filter_map(|row| self.info(row)).collect()
    }

    fn info(&self, row: usize) -> Option<ReaderInfo> {
        let place = self.place(row);
        let kind = match place.kind.load(Ordering::Acquire) {
            ANONYMOUS => Kind::Anonymous,
            COUNTED => Kind::Counted,
            LIVE => Kind::Live,
            _ => return None,
        };
        Some(ReaderInfo {
            name: place.name(),
            kind,
            process: Process { pid: place.pid.load(Ordering::Relaxed), start: place.start.load(Ordering::Relaxed) },
            committed: place.committed.load(Ordering::Acquire),
            epoch: place.epoch.load(Ordering::Relaxed),
        })
    }

    /// Lowest position that counted readers have committed, or none if there are none.
    pub fn lowest_committed(&self) -> Option<u64> {
        (0..READERS_MAX)
            .filter(|&row| self.place(row).kind.load(Ordering::Acquire) == COUNTED)
            .map(|row| self.place(row).committed.load(Ordering::Acquire))
            .min()
    }

    /// Sets positions back that lie past the end of an epoch that was cut: nobody has read what comes there now.
    pub(crate) fn rewind(&self, end: u64, epoch: u32) {
        for row in 0..READERS_MAX {
            let place = self.place(row);
            if place.kind.load(Ordering::Acquire) >= COUNTED && place.committed.load(Ordering::Acquire) > end {
                place.epoch.store(epoch, Ordering::Relaxed);
                place.committed.store(end, Ordering::Release);
            }
        }
    }

    /// Removes a named reader for good: nothing waits for it any more.
    pub fn remove(&self, name: &str) -> bool {
        let mut found = false;
        for row in 0..READERS_MAX {
            let place = self.place(row);
            if place.kind.load(Ordering::Acquire) >= COUNTED && place.name() == name {
                place.kind.store(FREE, Ordering::Release);
                found = true;
            }
        }
        // Without media nobody can be woken: a writer that sleeps sees it when its time is over.
        self.words().credit.fetch_add(1, Ordering::Release);
        if found {
            // Or a power cut brings back a place that nobody moves on any more. Where that fails it is no worse.
            let _ = self.file.sync();
        }
        found
    }

    /// Takes a place: the one that a named reader had before, else a free one, else one whose anonymous owner is gone.
    pub(crate) fn take(&self, media: &dyn Media, name: &str, kind: Kind, at: u64, epoch: u32) -> Result<Held> {
        if name.len() > READER_NAME_MAX {
            return Err(Error::Limit(format!("a reader's name has at most {READER_NAME_MAX} bytes: `{name}`")));
        }
        let me = media.process();
        let code = match kind {
            Kind::Anonymous => ANONYMOUS,
            Kind::Counted => COUNTED,
            Kind::Live => LIVE,
        };
        if kind != Kind::Anonymous
            && let Some(row) = (0..READERS_MAX)
                .find(|&row| self.place(row).kind.load(Ordering::Acquire) >= COUNTED && self.place(row).name() == name)
        {
            let place = self.place(row);
            let owner = Process { pid: place.pid.load(Ordering::Acquire), start: place.start.load(Ordering::Acquire) };
            if owner.pid != 0 && owner != me && media.alive(owner) {
                return Err(Error::Limit(format!("process {} already reads as `{name}`", owner.pid)));
            }
            if owner == me {
                // Two readers of one name in one process share the position, but each pins what it has mapped.
                let mut held = Held::new(self.clone(), row, true, false);
                held.elsewhere = Some(Box::new(self.take(media, "", Kind::Anonymous, at, epoch)?));
                return Ok(held);
            }
            place.pid.store(me.pid, Ordering::Release);
            place.start.store(me.start, Ordering::Release);
            place.kind.store(code, Ordering::Release);
            return Ok(Held::new(self.clone(), row, true, false));
        }
        for take_dead in [false, true] {
            for row in 0..READERS_MAX {
                let place = self.place(row);
                let was = place.kind.load(Ordering::Acquire);
                let owner =
                    Process { pid: place.pid.load(Ordering::Relaxed), start: place.start.load(Ordering::Relaxed) };
                let usable = was == FREE || (take_dead && was <= ANONYMOUS && !media.alive(owner));
                if !usable || place.kind.compare_exchange(was, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                    continue;
                }
                place.pid.store(me.pid, Ordering::Relaxed);
                place.start.store(me.start, Ordering::Relaxed);
                place.payload.store(NOTHING, Ordering::Relaxed);
                place.index.store(NOTHING, Ordering::Relaxed);
                place.committed.store(at, Ordering::Relaxed);
                place.epoch.store(epoch, Ordering::Relaxed);
                place.set_name(name);
                place.kind.store(code, Ordering::Release);
                return Ok(Held::new(self.clone(), row, kind != Kind::Anonymous, true));
            }
        }
        Err(Error::Limit(format!("a stream has at most {READERS_MAX} readers")))
    }
}

impl Place {
    fn name(&self) -> String {
        let bytes: Vec<u8> = self
            .name
            .iter()
            .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
            .take_while(|&b| b != 0)
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn set_name(&self, name: &str) {
        let mut bytes = [0; READER_NAME_MAX];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        for (word, chunk) in self.name.iter().zip(bytes.as_chunks::<8>().0) {
            word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
        }
    }
}

/// A place that this process holds, with the segments that it has mapped.
pub(crate) struct Held {
    pins: Pins,
    row: usize,
    /// Stays after this process: its position is wanted.
    named: bool,
    /// The place was not there before.
    pub(crate) new: bool,
    /// The process that took it: a fork of it has the same memory, but not the place.
    pid: u32,
    /// Where its pins are if the place is another's already.
    elsewhere: Option<Box<Held>>,
    /// (payload, number) of every mapped segment; a few.
    mapped: Mutex<Vec<(bool, u32)>>,
}

impl Held {
    fn new(pins: Pins, row: usize, named: bool, new: bool) -> Self {
        Self { pins, row, named, new, pid: std::process::id(), elsewhere: None, mapped: Mutex::new(Vec::new()) }
    }

    /// False in a fork of the process that took the place.
    pub(crate) fn mine(&self) -> bool {
        self.pid == std::process::id()
    }

    /// Pins a segment. The caller then checks that the segment is still there (decision 0002).
    pub(crate) fn pin(&self, payload: bool, number: u32) {
        let mut mapped = self.mapped.lock().unwrap_or_else(|p| p.into_inner());
        mapped.push((payload, number));
        if self.mine() {
            claim(self.word(payload), range(&mapped, payload));
        }
    }

    /// Takes a pin back.
    pub(crate) fn unpin(&self, payload: bool, number: u32) {
        let mut mapped = self.mapped.lock().unwrap_or_else(|p| p.into_inner());
        if let Some(at) = mapped.iter().position(|&m| m == (payload, number)) {
            mapped.swap_remove(at);
        }
        if self.mine() {
            unclaim(self.word(payload), range(&mapped, payload));
        }
    }

    /// Where its pins of one kind stand.
    fn word(&self, payload: bool) -> &AtomicU64 {
        let place = self.pins.place(self.elsewhere.as_ref().map_or(self.row, |held| held.row));
        if payload { &place.payload } else { &place.index }
    }

    /// Next sequence that the reader committed, with its epoch.
    pub(crate) fn committed(&self) -> (u64, u32) {
        let place = self.pins.place(self.row);
        (place.committed.load(Ordering::Acquire), place.epoch.load(Ordering::Relaxed))
    }

    /// Moves the committed position.
    pub(crate) fn commit(&self, media: &dyn Media, next: u64, epoch: u32) {
        let place = self.pins.place(self.row);
        place.epoch.store(epoch, Ordering::Relaxed);
        place.committed.store(next, Ordering::Release);
        self.pins.moved(media);
    }
}

/// Lowest and highest number of the mapped segments of one kind.
fn range(mapped: &[(bool, u32)], payload: bool) -> u64 {
    let numbers = || mapped.iter().filter(|m| m.0 == payload).map(|m| m.1);
    match (numbers().min(), numbers().max()) {
        (Some(low), Some(high)) => u64::from(low) | u64::from(high) << 32,
        _ => NOTHING,
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.elsewhere.is_some() || !self.mine() {
            return;
        }
        let place = self.pins.place(self.row);
        unclaim(&place.payload, NOTHING);
        unclaim(&place.index, NOTHING);
        place.pid.store(0, Ordering::Release);
        if !self.named {
            place.kind.store(FREE, Ordering::Release);
        }
    }
}
