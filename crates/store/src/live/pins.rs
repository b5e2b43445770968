//! Readers of a stream: the `pins` file, its words and its places.
//!
//! ```text
//!   0 u32 1 = a process sleeps on mark memory    4 u32 on mark disk
//!   8 u32 credit word: changes when a counted reader advances while the writer waits    12 u32 1 = the writer waits
//!  16 u64 how far the writer would retire but for counted readers: views then release their oldest entries
//! 255 places of 256 B, from 256 on; 127 where the file has 32 KiB, which programs of format 1 made:
//!     0 u32 kind: 0 free, 1 taken but not ready, 2 anonymous, 3 counted, 4 live
//!     4 u32 pid   8 u64 start time of the process
//!    16 u64 committed: next sequence to be read   24 u32 its epoch   28 u32 messages above that a recovery cut
//!    32 u64 bytes of stream memory in its mapped segments
//!    40 [u8;64] name, zero-filled
//!   104 [u32;32] numbers of its mapped segments, those of index segments + 2^31; all ones = none
//!   232 u32 1 = its owner holds locks   240 u64 pid namespace of its owner
//!   248 i64 when it was first seen that its owner has ended, ns since 1970 UTC; 0 = it was not
//! ```
//!
//! **Life is a lock.** The reader of a name holds the lock of byte 2^40 + 2 x place, and the reader that pins segments
//! there the lock of the next byte (open file description locks). The kernel releases them when the process ends, in
//! whatever pid namespace it was; pid and start time are for people, and for places of programs that knew no locks. A
//! copy of the folder has no locks, so nobody lives in it.
//!
//! Segment numbers never repeat, so a dead reader's pin costs one unlinked file and then nothing: no check for liveness is
//! needed. A named place outlives its process: its position still holds back `wait`. A process that releases a name and
//! keeps views leaves its pins there, with start time 0; the next process with that name pins elsewhere. A name that is
//! removed while its reader lives leaves an anonymous place. Names are taken under the lock of the file, so that no two
//! processes take one.
//!
//! Failure behaviour: a reader without write access to the file takes no place and reads by copying, and so does an
//! anonymous reader if only the places for named readers are free.

use crate::error::{Error, Result};
use crate::limits::{LOCKS_FROM, PINNED_MAX, READER_NAME_MAX, READERS_MAX, READERS_MAX_1, READERS_NAMED};
use crate::live::protocol::{Bell, claim, claimed, unclaim};
use crate::outside::media::{Locks, Map, Media, Open, Process};
use crate::outside::os::process_id;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// No segment pinned.
const NOTHING: u32 = u32::MAX;
/// Added to the number of an index segment.
const INDEX: u32 = 1 << 31;
/// A name is taken in microseconds; only a process that was stopped meanwhile takes longer.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(2);
/// Bytes of the words, and of a place.
const PLACE_BYTES: usize = 256;
/// Bytes of the pins file.
const PINS_BYTES: usize = PLACE_BYTES * (1 + READERS_MAX);
/// The same of format 1.
const PINS_BYTES_1: usize = PLACE_BYTES * (1 + READERS_MAX_1);

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const ANONYMOUS: u32 = 2;
const COUNTED: u32 = 3;
const LIVE: u32 = 4;

/// Start time of a process that released a name and keeps pins in its place: no process has it.
const LEFT: u64 = 0;

/// The role of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It comes and goes; nothing waits for it.
    Anonymous,
    /// `wait` waits for its committed position; what it misses is lost.
    Counted,
    /// It follows the live end; what it misses is skipped.
    Live,
}

impl Kind {
    fn code(self) -> u32 {
        match self {
            Self::Anonymous => ANONYMOUS,
            Self::Counted => COUNTED,
            Self::Live => LIVE,
        }
    }
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
struct PinRow {
    kind: AtomicU32,
    pid: AtomicU32,
    start: AtomicU64,
    committed: AtomicU64,
    epoch: AtomicU32,
    cut: AtomicU32,
    kept: AtomicU64,
    name: [AtomicU64; 8],
    pinned: [AtomicU32; PINNED_MAX],
    locks: AtomicU32,
    _pad: u32,
    space: AtomicU64,
    gone_since: AtomicI64,
}

const _: () = assert!(std::mem::size_of::<PinRow>() == PLACE_BYTES);

/// One reader as `ls` and the writer see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReaderInfo {
    /// Its name; empty for an anonymous one.
    pub name: String,
    /// Counted, live or anonymous.
    pub kind: Kind,
    /// Its process.
    pub process: Process,
    /// Next sequence that it will read; nothing below is needed.
    pub committed: u64,
    /// Epoch of that position.
    pub epoch: u32,
    /// Messages that it had committed and a recovery cut, until it sets a new position.
    pub cut: u32,
    /// Payload segments that it has mapped.
    pub segments: usize,
    /// Their bytes in stream memory; segments on disk count 0.
    pub kept: u64,
    /// Pid namespace of its process; 0 where a program wrote the place that did not say it.
    pub space: u64,
    /// When it was first seen that its process has ended, ns since 1970 UTC, if anybody said so.
    pub gone_since: Option<i64>,
    /// Its place.
    row: usize,
}

/// The mapped pins file.
#[derive(Clone)]
pub struct Pins {
    map: Arc<Map>,
    /// None where the file is not there.
    locks: Option<Arc<dyn Locks>>,
    /// Places of the file.
    places: usize,
    /// Places can be taken.
    writable: bool,
    path: PathBuf,
}

/// Bytes that are mapped of a file of this length. One that is between the two lengths is growing.
fn mapped_bytes(len: u64) -> usize {
    if len >= PINS_BYTES as u64 { PINS_BYTES } else { PINS_BYTES_1 }
}

fn places_in(bytes: usize) -> usize {
    (bytes / PLACE_BYTES).saturating_sub(1)
}

/// The byte that the reader with the name of a place locks.
fn name_lock(row: usize) -> u64 {
    LOCKS_FROM + 2 * row as u64
}

/// The byte that the reader with the pins of a place locks.
fn pins_lock(row: usize) -> u64 {
    name_lock(row) + 1
}

impl Pins {
    /// Opens the file of a stream, made if it is not there.
    pub fn open(media: &dyn Media, folder: &Path) -> Result<Self> {
        Self::open_with(media, folder, PINS_BYTES_1)
    }

    /// The same for the writer of a stream. It alone adds the places of format 2, once the header says that format: a
    /// reader in a place that the writer does not look at would lose what it has mapped.
    pub(crate) fn open_for_writing(media: &dyn Media, folder: &Path, format: u32) -> Result<Self> {
        if format < 2 {
            return Self::open(media, folder);
        }
        // On a full disk the places that are there are enough to come back.
        Self::open_with(media, folder, PINS_BYTES).or_else(|_| Self::open(media, folder))
    }

    fn open_with(media: &dyn Media, folder: &Path, least: usize) -> Result<Self> {
        let path = folder.join("pins");
        let file = media.open(&path, Open::Create).map_err(Error::io("open", &path))?;
        let len = |()| file.len().map_err(Error::io("read", &path));
        if len(())? < least as u64 {
            file.allocate(0, least as u64).map_err(Error::io("allocate", &path))?;
        }
        let bytes = mapped_bytes(len(())?);
        let map = file.map(bytes, true).map_err(Error::io("map", &path))?;
        let locks = media.locks(&path, true).map_err(Error::io("open", &path))?;
        Ok(Self { map: Arc::new(map), locks: Some(locks), places: places_in(bytes), writable: true, path })
    }

    /// The same for a reader: where the file may not be written, it is looked at, or taken for empty.
    pub(crate) fn open_for_reading(media: &dyn Media, folder: &Path) -> Result<Self> {
        let refused = match Self::open(media, folder) {
            Err(Error::Io { source, .. }) if is_refusal(&source) => source,
            answer => return answer,
        };
        let path = folder.join("pins");
        let (map, bytes) = match media.open(&path, Open::Read) {
            Ok(file) => match file.len().map_or(0, |len| mapped_bytes(len).min(len as usize)) {
                bytes if bytes >= PINS_BYTES_1 => (file.map(bytes, false), bytes),
                _ => (Ok(Map::zeroed(PINS_BYTES_1)), PINS_BYTES_1),
            },
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => (Ok(Map::zeroed(PINS_BYTES_1)), PINS_BYTES_1),
            Err(_) => (Err(refused), 0),
        };
        let map = map.map_err(Error::io("open", &path))?;
        let (locks, places) = (media.locks(&path, false).ok(), places_in(bytes));
        Ok(Self { map: Arc::new(map), locks, places, writable: false, path })
    }

    /// True if places can be taken.
    pub(crate) fn writable(&self) -> bool {
        self.writable
    }

    /// Takes the lock of a byte. False if somebody else has it.
    fn lock_byte(&self, at: u64) -> Result<bool> {
        let Some(locks) = self.locks.as_ref().filter(|_| self.writable) else { return Ok(false) };
        locks.lock(at).map_err(Error::io("lock", &self.path))
    }

    fn unlock_byte(&self, at: u64) {
        if let Some(locks) = &self.locks {
            locks.unlock(at);
        }
    }

    /// True if the process of this reader lives, as far as that can be seen.
    pub fn lives(&self, media: &dyn Media, reader: &ReaderInfo) -> bool {
        let place = self.place(reader.row);
        let byte = if reader.kind == Kind::Anonymous { pins_lock(reader.row) } else { name_lock(reader.row) };
        // Locks of these pins themselves do not show.
        let is_locked = || self.locks.as_ref().is_some_and(|locks| locks.is_locked(byte).unwrap_or(false));
        reader.process.pid != 0 && (place.is_ours(media) || is_locked() || place.lives_without_lock(media))
    }

    /// Makes the named places durable. Positions may be old after a power cut; a place that is gone holds back nothing.
    pub(crate) fn sync(&self, media: &dyn Media, folder: &Path) -> Result<()> {
        if let Some(locks) = self.locks.as_ref().filter(|_| self.writable) {
            locks.sync().map_err(Error::io("sync", &self.path))?;
        }
        media.sync_dir(folder).map_err(Error::io("sync", folder))
    }

    fn words(&self) -> &Words {
        // SAFETY: the map holds at least PINS_BYTES_1, is page-aligned, and the type is all atomics.
        unsafe { &*self.map.ptr().cast::<Words>() }
    }

    fn place(&self, row: usize) -> &PinRow {
        assert!(row < self.places);
        // SAFETY: as above; the map holds all places.
        unsafe { &*self.map.ptr().add(PLACE_BYTES * (1 + row)).cast::<PinRow>() }
    }

    /// The flag of readers asleep on a mark.
    pub(crate) fn asleep(&self, disk: bool) -> &AtomicU32 {
        if disk { &self.words().asleep_disk } else { &self.words().asleep_memory }
    }

    /// The bell of counted readers that advance and of commits; the writer sleeps on it.
    pub(crate) fn credit(&self) -> Bell<'_> {
        Bell { word: &self.words().credit, asleep: &self.words().writer_waits }
    }

    /// Wakes a waiting writer: there may be room.
    pub(crate) fn moved(&self, media: &dyn Media) {
        if self.credit().ring() {
            media.wake(self.credit().word);
        }
    }

    /// The writer would retire messages below this sequence, but for counted readers.
    pub(crate) fn wanted(&self) -> &AtomicU64 {
        &self.words().wanted
    }

    /// True if a reader may have this segment mapped. Call after the lowest segment was advanced: see decision 0002.
    pub fn pinned(&self, payload: bool, number: u32) -> bool {
        let value = if payload { number } else { number | INDEX };
        (0..self.places).any(|row| {
            let place = self.place(row);
            place.kind.load(Ordering::Relaxed) != FREE && place.pinned.iter().any(|pin| claimed(pin) == value)
        })
    }

    /// All readers.
    pub fn readers(&self) -> Vec<ReaderInfo> {
        (0..self.places).filter_map(|row| self.info(row)).collect()
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
            // A name that was removed while what its reader had mapped is needed stands in the place still.
            name: if kind == Kind::Anonymous { String::new() } else { place.name() },
            kind,
            process: place.owner(),
            committed: place.committed.load(Ordering::Acquire),
            epoch: place.epoch.load(Ordering::Relaxed),
            cut: place.cut.load(Ordering::Relaxed),
            segments: place.pinned.iter().filter(|pin| claimed(pin) < INDEX).count(),
            kept: place.kept.load(Ordering::Relaxed),
            space: if place.locks.load(Ordering::Relaxed) == 1 { place.space.load(Ordering::Relaxed) } else { 0 },
            gone_since: Some(place.gone_since.load(Ordering::Relaxed)).filter(|since| *since != 0),
            row,
        })
    }

    /// Lowest position that counted readers have committed, or none if there are none.
    pub fn lowest_committed(&self) -> Option<u64> {
        self.counted().map(|row| self.place(row).committed.load(Ordering::Acquire)).min()
    }

    /// The counted reader that is furthest behind.
    pub fn slowest(&self) -> Option<ReaderInfo> {
        self.counted().filter_map(|row| self.info(row)).min_by_key(|reader| reader.committed)
    }

    fn counted(&self) -> impl Iterator<Item = usize> {
        (0..self.places).filter(|&row| self.place(row).kind.load(Ordering::Acquire) == COUNTED)
    }

    /// Sets positions past the end of a cut epoch back to it: later messages there are new. The place keeps the number
    /// of committed messages that were cut.
    pub(crate) fn rewind(&self, end: u64, epoch: u32) {
        for row in 0..self.places {
            let place = self.place(row);
            let committed = place.committed.load(Ordering::Acquire);
            if place.kind.load(Ordering::Acquire) >= COUNTED && committed > end {
                let cut = u32::try_from(committed - end).unwrap_or(u32::MAX);
                let before = place.cut.load(Ordering::Relaxed);
                place.cut.store(cut.saturating_add(before), Ordering::Relaxed);
                place.epoch.store(epoch, Ordering::Relaxed);
                place.committed.store(end, Ordering::Release);
            }
        }
    }

    /// Locks the taking of names for the lifetime of the result.
    pub(crate) fn lock(&self, media: &dyn Media, folder: &Path) -> Result<Box<dyn std::any::Any + Send + Sync>> {
        let path = folder.join("pins");
        let never = AtomicU32::new(0);
        let end = Instant::now() + LOCK_PATIENCE;
        loop {
            match media.lock(&path) {
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock && Instant::now() < end => {
                    media.wait(&never, 0, Some(LOCK_PAUSE));
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    let what = format!(
                        "another process that opens this stream has held the lock for {} s; it is stopped, or its disk \
                         does not answer",
                        LOCK_PATIENCE.as_secs()
                    );
                    return Err(Error::io("lock", &path)(std::io::Error::new(e.kind(), what)));
                }
                answer => return answer.map_err(Error::io("lock", &path)),
            }
        }
    }

    /// Records when it was seen that the process of a reader has ended: who looks later knows for how long at least.
    pub fn see_gone(&self, reader: &ReaderInfo, now: i64) {
        if self.writable {
            let _ = self.place(reader.row).gone_since.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Nothing waits any more for a counted reader whose process has ended; it keeps its position, and counts again
    /// when it comes back. False where there is none.
    pub fn stop_waiting(&self, media: &dyn Media, name: &str) -> Result<bool> {
        let is_its = |row: &usize| self.place(*row).name() == name;
        let Some(row) = self.counted().find(is_its) else { return Ok(false) };
        let place = self.place(row);
        // A returning reader takes the same lock before it writes the kind.
        if !self.lock_byte(name_lock(row))? {
            return Ok(false);
        }
        let is_dead = !place.is_ours(media) && !place.lives_without_lock(media);
        let change = || place.kind.compare_exchange(COUNTED, LIVE, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let is_done = is_dead && is_its(&row) && change();
        self.unlock_byte(name_lock(row));
        self.moved(media);
        Ok(is_done)
    }

    /// Removes a named reader for good: nothing waits for it any more.
    pub fn remove(&self, media: &dyn Media, name: &str) -> bool {
        let found = self.free(media, name);
        if found && let Some(locks) = &self.locks {
            // Or a power cut brings back a place that nobody moves on any more. Where that fails it is no worse.
            let _ = locks.sync();
        }
        found
    }

    /// [`Pins::remove`] without the sync, which may take long: for a caller that holds the lock.
    pub(crate) fn free(&self, media: &dyn Media, name: &str) -> bool {
        if !self.writable {
            return false;
        }
        let mut found = false;
        for row in 0..self.places {
            let place = self.place(row);
            if place.kind.load(Ordering::Acquire) >= COUNTED && place.name() == name {
                // A process that has mapped what it pins frees the place itself.
                let is_left = !place.is_ours(media) && self.lock_byte(pins_lock(row)).unwrap_or(false);
                let is_free = is_left && !place.lives_without_lock(media);
                place.kind.store(if is_free { FREE } else { ANONYMOUS }, Ordering::Release);
                if is_left {
                    self.unlock_byte(pins_lock(row));
                }
                found = true;
            }
        }
        // Without media nobody can be woken: a writer that sleeps sees it when its time is over.
        self.words().credit.fetch_add(1, Ordering::Release);
        found
    }

    /// Takes a place: the one that a named reader had before, else a free one, else one whose anonymous owner is gone.
    /// A name is taken under [`Pins::lock`]; `sole`: not even this process may have it twice.
    pub(crate) fn take(
        &self,
        media: &dyn Media,
        (name, kind, sole): (&str, Kind, bool),
        at: u64,
        epoch: u32,
    ) -> Result<Held> {
        if name.len() > READER_NAME_MAX {
            return Err(Error::Limit(format!("a reader's name has at most {READER_NAME_MAX} bytes: `{name}`")));
        }
        if kind != Kind::Anonymous
            && let Some(row) = (0..self.places)
                .find(|&row| self.place(row).kind.load(Ordering::Acquire) >= COUNTED && self.place(row).name() == name)
        {
            let place = self.place(row);
            let owner = place.owner();
            let is_ours = place.is_ours(media);
            let has_name = self.lock_byte(name_lock(row))?;
            let lives = !has_name || !is_ours && place.lives_without_lock(media);
            if lives && (sole || !is_ours) {
                self.unlock_byte(name_lock(row));
                return Err(Error::Taken { name: name.to_owned(), pid: owner.pid });
            }
            let elsewhere = if has_name && self.lock_byte(pins_lock(row))? {
                // Of a process that is dead.
                place.pinned.iter().for_each(|pin| unclaim(pin, NOTHING));
                place.kept.store(0, Ordering::Relaxed);
                None
            } else {
                // Two readers share the position, but each pins what it has mapped.
                let taken = self.take_row(media, ("", Kind::Anonymous), at, epoch, self.places);
                if taken.is_err() && has_name {
                    self.unlock_byte(name_lock(row));
                }
                Some(Box::new(taken?))
            };
            if has_name {
                place.set_owner(media);
                place.kind.store(kind.code(), Ordering::Release);
            }
            let mut held = Held::new(self.clone(), row, true, false);
            (held.owner, held.elsewhere) = (has_name, elsewhere);
            return Ok(held);
        }
        let rows = if kind == Kind::Anonymous { self.places - READERS_NAMED } else { self.places };
        self.take_row(media, (name, kind), at, epoch, rows)
    }

    /// Takes one of the first `rows` places: a free one, else one whose owner is gone, if nothing waits for that.
    fn take_row(
        &self,
        media: &dyn Media,
        (name, kind): (&str, Kind),
        at: u64,
        epoch: u32,
        rows: usize,
    ) -> Result<Held> {
        for most in [FREE, ANONYMOUS, LIVE] {
            for row in 0..rows {
                let place = self.place(row);
                let is_usable = || match place.kind.load(Ordering::Acquire) {
                    FREE => Some(FREE),
                    // Our own lock is no hindrance to us.
                    kind if kind > most || kind == COUNTED || place.is_ours(media) => None,
                    kind => (!place.lives_without_lock(media)).then_some(kind),
                };
                if is_usable().is_none() || !self.lock_byte(pins_lock(row))? {
                    continue;
                }
                // Nobody who knows locks changes it now.
                let needs_name = kind != Kind::Anonymous || is_usable() == Some(LIVE);
                let has_name = !needs_name || self.lock_byte(name_lock(row))?;
                let take = |was| place.kind.compare_exchange(was, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok();
                if !has_name || !is_usable().is_some_and(take) {
                    self.unlock_byte(pins_lock(row));
                    self.unlock_byte(name_lock(row));
                    continue;
                }
                place.set_owner(media);
                place.kept.store(0, Ordering::Relaxed);
                place.pinned.iter().for_each(|pin| pin.store(NOTHING, Ordering::Relaxed));
                place.committed.store(at, Ordering::Relaxed);
                place.epoch.store(epoch, Ordering::Relaxed);
                place.cut.store(0, Ordering::Relaxed);
                place.set_name(name);
                place.kind.store(kind.code(), Ordering::Release);
                if kind == Kind::Anonymous {
                    self.unlock_byte(name_lock(row));
                }
                return Ok(Held::new(self.clone(), row, kind != Kind::Anonymous, true));
            }
        }
        Err(Error::ReadersFull)
    }
}

impl PinRow {
    fn owner(&self) -> Process {
        Process { pid: self.pid.load(Ordering::Acquire), start: self.start.load(Ordering::Acquire) }
    }

    /// True if this process has it.
    fn is_ours(&self, media: &dyn Media) -> bool {
        let (locks, space) = (self.locks.load(Ordering::Relaxed), self.space.load(Ordering::Relaxed));
        self.owner() == media.process() && (locks == 0 || space == media.pid_space())
    }

    /// True if its owner is a process of a program that knew no locks, and lives.
    fn lives_without_lock(&self, media: &dyn Media) -> bool {
        self.locks.load(Ordering::Relaxed) == 0 && media.alive(self.owner())
    }

    /// This process has it, with locks.
    fn set_owner(&self, media: &dyn Media) {
        let me = media.process();
        self.space.store(media.pid_space(), Ordering::Relaxed);
        self.locks.store(1, Ordering::Relaxed);
        self.gone_since.store(0, Ordering::Relaxed);
        self.pid.store(me.pid, Ordering::Release);
        self.start.store(me.start, Ordering::Release);
    }

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
    /// The place belongs to this reader, which frees it.
    owner: bool,
    /// The name was released: only its pins belong to this reader.
    left: AtomicBool,
    /// The place was not there before.
    pub(crate) new: bool,
    /// The process that took it: a fork of it has the same memory, but not the place.
    pid: u32,
    /// Where its pins are if the place is another's already.
    elsewhere: Option<Box<Held>>,
    /// Every mapped segment; a few.
    mapped: Mutex<Vec<Pinned>>,
}

/// A segment that is mapped, once or more.
struct Pinned {
    payload: bool,
    number: u32,
    /// Where it stands in the place.
    slot: usize,
    maps: u32,
    /// Bytes of stream memory.
    bytes: u64,
}

impl Held {
    fn new(pins: Pins, row: usize, named: bool, new: bool) -> Self {
        let (pid, mapped) = (process_id(), Mutex::new(Vec::new()));
        Self { pins, row, named, owner: true, left: AtomicBool::new(false), new, pid, elsewhere: None, mapped }
    }

    /// True if it keeps a position.
    pub(crate) fn is_named(&self) -> bool {
        self.named
    }

    /// False in a fork of the process that took the place.
    pub(crate) fn mine(&self) -> bool {
        self.pid == process_id()
    }

    fn mapped(&self) -> MutexGuard<'_, Vec<Pinned>> {
        self.mapped.lock().unwrap_or_else(|p| p.into_inner())
    }

    /// Where its pins stand.
    fn place(&self) -> &PinRow {
        self.pins.place(self.elsewhere.as_ref().map_or(self.row, |held| held.row))
    }

    /// Pins a segment. The caller then checks that the segment is still there (decision 0002).
    pub(crate) fn pin(&self, payload: bool, number: u32) -> Result<()> {
        let mut mapped = self.mapped();
        if let Some(known) = mapped.iter_mut().find(|m| (m.payload, m.number) == (payload, number)) {
            known.maps += 1;
            return Ok(());
        }
        let Some(slot) = (0..PINNED_MAX).find(|slot| mapped.iter().all(|m| m.slot != *slot)) else {
            return Err(Error::Limit(format!(
                "process {} keeps {PINNED_MAX} segments of the stream, the most that one reader may: let go of views, \
                 or copy what is kept",
                self.pid
            )));
        };
        mapped.push(Pinned { payload, number, slot, maps: 1, bytes: 0 });
        if self.mine() {
            claim(&self.place().pinned[slot], if payload { number } else { number | INDEX });
        }
        Ok(())
    }

    /// Says how much stream memory a pinned payload segment is; an error if what is kept already is above the quota. One
    /// more may pass it: a message may be larger than any quota.
    pub(crate) fn weigh(&self, number: u32, bytes: u64, quota: u64) -> Result<()> {
        let mut mapped = self.mapped();
        let others = || mapped.iter().filter(|m| m.bytes > 0 && m.number != number);
        let kept: u64 = others().map(|m| m.bytes).sum();
        if kept > quota {
            let (name, segments) = (self.pins.place(self.row).name(), others().count());
            return Err(Error::Quota { name, pid: self.pid, segments, bytes: kept, quota });
        }
        if let Some(known) = mapped.iter_mut().find(|m| m.payload && m.number == number) {
            known.bytes = bytes;
        }
        self.publish(&mapped);
        Ok(())
    }

    /// Takes a pin back.
    pub(crate) fn unpin(&self, payload: bool, number: u32) {
        let mut mapped = self.mapped();
        let Some(at) = mapped.iter().position(|m| (m.payload, m.number) == (payload, number)) else { return };
        mapped[at].maps -= 1;
        if mapped[at].maps > 0 {
            return;
        }
        let slot = mapped.swap_remove(at).slot;
        if self.mine() {
            unclaim(&self.place().pinned[slot], NOTHING);
        }
        self.publish(&mapped);
    }

    /// Shows others how much is kept.
    fn publish(&self, mapped: &[Pinned]) {
        if self.mine() {
            self.place().kept.store(mapped.iter().map(|m| m.bytes).sum(), Ordering::Relaxed);
        }
    }

    /// Next sequence that the reader committed, with its epoch.
    pub(crate) fn committed(&self) -> (u64, u32) {
        let place = self.pins.place(self.row);
        (place.committed.load(Ordering::Acquire), place.epoch.load(Ordering::Relaxed))
    }

    /// Messages that the reader had committed and a recovery cut since.
    pub(crate) fn cut(&self) -> u32 {
        self.pins.place(self.row).cut.load(Ordering::Relaxed)
    }

    /// Releases the name, though the mapped memory is still needed: another reader may have the name.
    pub(crate) fn leave(&self) {
        if !self.named || !self.owner || !self.mine() || self.left.swap(true, Ordering::AcqRel) {
            return;
        }
        let place = self.pins.place(self.row);
        place.start.store(LEFT, Ordering::Release);
        if self.elsewhere.is_some() {
            place.pid.store(0, Ordering::Release);
        }
        self.pins.unlock_byte(name_lock(self.row));
    }

    /// Moves the committed position. A writer that waits for room hears of counted readers only: a slot says with each
    /// message where it is, and no room comes of that.
    pub(crate) fn commit(&self, media: &dyn Media, next: u64, epoch: u32) {
        let place = self.pins.place(self.row);
        place.cut.store(0, Ordering::Relaxed);
        place.epoch.store(epoch, Ordering::Relaxed);
        place.committed.store(next, Ordering::Release);
        if place.kind.load(Ordering::Relaxed) == COUNTED {
            self.pins.moved(media);
        }
    }
}

/// True if a file may be read, but not written.
fn is_refusal(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM | libc::EROFS))
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.mine() {
            return;
        }
        let place = self.pins.place(self.row);
        if self.elsewhere.is_none() {
            place.pinned.iter().for_each(|pin| unclaim(pin, NOTHING));
            place.kept.store(0, Ordering::Relaxed);
        }
        let has_name = self.owner && !self.left.load(Ordering::Acquire);
        if has_name {
            place.pid.store(0, Ordering::Release);
        }
        // A name that was removed meanwhile left the place to its pins.
        if self.elsewhere.is_none() && place.kind.load(Ordering::Acquire) == ANONYMOUS {
            place.kind.store(FREE, Ordering::Release);
        }
        if has_name {
            self.pins.unlock_byte(name_lock(self.row));
        }
        if self.elsewhere.is_none() {
            self.pins.unlock_byte(pins_lock(self.row));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Kind, Meta, Options, Os, ReadOptions, Reader, Writer};
    use std::sync::atomic::Ordering;

    /// A slot says with each message where it is: the camera before it was woken for each, and slept not at all.
    #[test]
    fn a_live_reader_woke_a_writer_that_waits_for_room_with_each_message() {
        let folder = std::env::temp_dir().join(format!("beamport-store-credit-{}", std::process::id()));
        let media = Os::shared();
        let mut writer = Writer::open(&media, &folder, "s", &Options::memory(1 << 20)).unwrap();
        let reader = |name: &str, kind| {
            let options = ReadOptions { name: name.to_owned(), kind, early: true, ..ReadOptions::default() };
            Reader::open(&media, &folder, options).unwrap()
        };
        let (counted, live) = (reader("counted", Kind::Counted), reader("live", Kind::Live));
        let (schema, flags) = (crate::SchemaId(*b"f144"), 0);
        let meta = Meta { source_time: 0, origin: 0, origin_seq: 0, schema, flags };
        while writer.append(&meta, &[0; 1000]).is_ok() {}
        let heard = |writer: &Writer| writer.pins().credit().word.load(Ordering::Acquire);
        let before = heard(&writer);
        (1..100).for_each(|n| live.commit(n));
        assert_eq!(heard(&writer), before);
        counted.commit(1);
        assert_ne!(heard(&writer), before);
        drop(writer);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
