//! The one writer of a stream.
//!
//! Constraints: one message costs a copy with its checksum and 64 bytes of index; no lock, no system call, no
//! allocation. Everything pushed since the last `publish` becomes visible at once with one release store. The order of
//! stores is payload, entry, mark, then a check for sleepers (`protocol`). Only a change to the next segment takes a
//! lock or can run out of space.
//!
//! Failure behaviour: lack of space is an `Error::Full` before any change; messages pushed before stay and are
//! published. Dropping the writer publishes and ends the drainer with a clean commit record; a killed writer loses only
//! unpublished messages.

use crate::error::{Error, Result, Trouble};
use crate::format::control_page::{Head, STATE_CLOSED, STATE_FAILED};
use crate::format::crc::{EntryWords, crc32c, place, place_checked, settle};
use crate::format::entry::{ENTRY_BYTES, Entry, Meta, flags, salt, salt_seed};
use crate::format::header::{Clock, Header, Level};
use crate::format::names::{Names, ORIGINS};
use crate::format::recovery::Recovery;
use crate::format::segments::{TIME_ROW_BYTES, segment_name, time_row};
use crate::limits::{
    ALIGN_FROM, ASK_EARLY, CLOCK_STEP_NS, INDEX_ENTRIES_MAX, INDEX_ENTRIES_MIN, LIVE_BYTES_MIN, ORIGIN_NAME_MAX,
    ORIGINS_MAX, PAYLOAD_BYTES_MAX, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, TIME_BLOCK,
};
use crate::live::pins::Pins;
use crate::live::place::remove_live;
use crate::live::protocol::{Bell, give_up, mark};
use crate::live::segment::Segment;
use crate::outside::media::{Map, Media};
use crate::outside::steady::Steady;
use crate::write::committer::Job;
use crate::write::drain::{Drainer, Ring};
use crate::write::view::View;
use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The answer to an append without room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// The append is refused with `Error::Full` until counted readers (or the disk) have advanced.
    Wait,
    /// The oldest segment is deleted, read or not. While the disk is behind, as `DropNewest`.
    DropOldest,
    /// The append is refused with `Error::Dropped`; the caller counts it.
    DropNewest,
}

/// The thread that copies the live place of a disk stream to the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// A thread of this process.
    Thread,
    /// The caller, with `Writer::drain`: for one-threaded simulation and measurements.
    Caller,
}

/// Options of a stream and its writer.
#[derive(Clone, Debug)]
pub struct Options {
    /// Mark at which messages are safe.
    pub level: Level,
    /// Unit of source times.
    pub clock: Clock,
    /// Answer to an append without room.
    pub when_full: WhenFull,
    /// Bytes of shared memory of the live place.
    pub live_bytes: u64,
    /// Bytes that the stream may keep on disk; none = until the disk is full.
    pub retain_bytes: Option<u64>,
    /// How long messages are kept from their arrival on, ns; none = as long as there is room.
    pub retain_age_ns: Option<i64>,
    /// Bytes that the stream leaves free on its disk.
    pub keep_free_bytes: Option<u64>,
    /// Bytes of stream memory that one reader may keep mapped; none = a quarter of `live_bytes`. Four of the largest
    /// messages are allowed in any case.
    pub pin_bytes: Option<u64>,
    /// The thread that drains.
    pub drain: Drain,
}

impl Options {
    /// A stream that survives the death of any process.
    pub fn memory(live_bytes: u64) -> Self {
        Self {
            level: Level::Memory,
            clock: Clock::Epoch,
            when_full: WhenFull::Wait,
            live_bytes,
            retain_bytes: None,
            retain_age_ns: None,
            keep_free_bytes: None,
            pin_bytes: None,
            drain: Drain::Thread,
        }
    }

    /// A stream that survives a power cut.
    pub fn disk(live_bytes: u64) -> Self {
        Self { level: Level::Disk, ..Self::memory(live_bytes) }
    }

    /// True if retention deletes messages from the disk.
    pub(crate) fn has_retention(&self) -> bool {
        self.retain_bytes.is_some() || self.retain_age_ns.is_some() || self.keep_free_bytes.is_some()
    }

    /// Sizes that follow from `live_bytes`: (bytes of a payload segment, entries of an index segment).
    pub(crate) fn sizes(&self) -> (u64, u64) {
        let eighth = 1 << (self.live_bytes.max(LIVE_BYTES_MIN) / 8).ilog2();
        let segment = u64::clamp(eighth, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        let entries = (segment / ENTRY_BYTES as u64).clamp(INDEX_ENTRIES_MIN, INDEX_ENTRIES_MAX);
        (segment, entries)
    }
}

/// Why there is no room while the medium is behind.
const BEHIND: &str = "the disk is slower than the source";
const HELD_BACK: &str = "a reader has not moved on";
/// Shortest and longest interval between two checks for messages that are too old, ns.
const LOOK_FOR_OLD_NS: (i64, i64) = (1_000_000, 10_000_000_000);

/// A payload segment that a stream keeps. Where messages have no bytes of their own it is a number without a file, and
/// closed after as many entries as have its size.
#[derive(Clone, Copy)]
pub(crate) struct Kept {
    pub(crate) number: u32,
    /// Its first message.
    pub(crate) first: u64,
    /// When that arrived, by the wall clock or `Writer::steady`, whichever was ahead.
    pub(crate) arrived: i64,
    /// Its bytes on the medium; of the one that is written not known yet.
    pub(crate) bytes: u64,
}

/// The one writer of a stream.
pub struct Writer {
    pub(crate) media: Arc<dyn Media>,
    pub(crate) folder: PathBuf,
    pub(crate) live: PathBuf,
    pub(crate) header: Header,
    pub(crate) options: Options,
    pub(crate) head: Arc<Map>,
    pub(crate) pins: Pins,
    pub(crate) ring: Arc<Ring>,
    pub(crate) origins: Names,
    /// Salt seed of the epoch that is written.
    pub(crate) seed: u64,
    /// Next sequence, pushed but unpublished ones counted.
    pub(crate) next: u64,
    pub(crate) published: u64,
    /// The credit word before it was last looked for room.
    pub(crate) credit: u32,
    pub(crate) arrival: i64,
    /// [`flags::CLOCK`] while `arrival` is not what the clock says.
    pub(crate) clock_flag: u16,
    /// The time by which messages become old.
    pub(crate) steady: Steady,
    pub(crate) payload: Arc<Segment>,
    pub(crate) payload_number: u32,
    pub(crate) used: u64,
    /// Sequence at which the payload segment began.
    pub(crate) payload_first: u64,
    pub(crate) index: Arc<Segment>,
    pub(crate) index_number: u32,
    /// Bytes before the entries of an index segment.
    pub(crate) table_bytes: u64,
    /// (minimum, maximum) of source time in the block that is filled.
    pub(crate) block: (i64, i64),
    /// Payload segments that are kept, oldest first, with the one that is written.
    pub(crate) chain: std::collections::VecDeque<Kept>,
    /// Bytes in all of them but the one that is written.
    pub(crate) kept_bytes: u64,
    /// When to look for messages that are too old.
    pub(crate) look_at: i64,
    /// The streams that this one points into, if it is a view.
    pub(crate) view: View,
    pub(crate) recovery: Recovery,
    pub(crate) drainer: Option<Arc<Mutex<Drainer>>>,
    pub(crate) job: Option<Arc<Job>>,
    pub(crate) _locks: [Box<dyn Any + Send + Sync>; 2],
}

impl Writer {
    /// The result of the recovery at opening.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// The header: identity, level, epochs.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The stream's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn head(&self) -> &Head {
        Head::of(&self.head)
    }

    /// Next sequence.
    pub fn next_sequence(&self) -> u64 {
        self.next
    }

    /// Lowest sequence still kept.
    pub fn first_sequence(&self) -> u64 {
        self.head().first.load(Ordering::Relaxed)
    }

    /// The row of an origin, made if it is new. A new row costs a small write; call once per origin.
    pub fn origin(&mut self, name: &str) -> Result<u32> {
        if let Some(row) = self.origins.row(name) {
            return Ok(row);
        }
        if name.len() > ORIGIN_NAME_MAX {
            return Err(Error::Limit(format!("the name of an origin has at most {ORIGIN_NAME_MAX} bytes")));
        }
        if self.origins.names.len() >= ORIGINS_MAX {
            return Err(Error::Limit(format!("a stream has at most {ORIGINS_MAX} origins")));
        }
        self.origins.add(self.media.as_ref(), &self.folder, ORIGINS, name)?;
        self.ring.lock().origins_dirty = true;
        fence(Ordering::SeqCst);
        self.ring.announce();
        Ok(self.origins.names.len() as u32 - 1)
    }

    /// Names of the origins, by row.
    pub fn origins(&self) -> &[String] {
        &self.origins.names
    }

    /// Appends and publishes one message; returns its sequence.
    pub fn append(&mut self, meta: &Meta, payload: &[u8]) -> Result<u64> {
        let sequence = self.push(meta, &[payload])?;
        self.publish();
        Ok(sequence)
    }

    /// Appends one message (the parts one after another) without publishing it; returns its sequence.
    /// With `Error::Full` and `Error::Dropped` what was pushed before has been published.
    #[inline]
    pub fn push(&mut self, meta: &Meta, parts: &[&[u8]]) -> Result<u64> {
        let len = parts.iter().map(|p| p.len()).sum();
        // SAFETY: as `push_with` asks.
        self.push_with(meta, len, |to, words, salt, slot| unsafe { place(parts, to, words, salt, slot) })
    }

    /// The same for a message whose checksum (CRC-32C) the caller has compared with these bytes: it is not computed
    /// again.
    #[inline]
    pub fn push_checked(&mut self, meta: &Meta, payload: &[u8], crc: u32) -> Result<u64> {
        debug_assert_eq!(crc, crc32c(payload), "the checksum is of other bytes");
        // SAFETY: as `push_with` asks; the place of a message has whole lines.
        self.push_with(meta, payload.len(), |to, words, salt, slot| unsafe {
            place_checked(payload, crc, to, words, salt, slot);
        })
    }

    /// Appends a message that `put` writes: `len` bytes of payload to a place, and its words, with the checksums filled
    /// in, to a slot.
    #[inline(always)]
    fn push_with(
        &mut self,
        meta: &Meta,
        len: usize,
        put: impl FnOnce(*mut u8, &EntryWords, u32, *mut EntryWords),
    ) -> Result<u64> {
        let start = self.place_for(len as u64, if len >= ALIGN_FROM { 64 } else { 8 })?;
        let slot = self.slot()?;
        let salt = salt(self.seed, self.next);
        // The fields of `Entry`, two to a word: built in registers. The checksums come with the copy.
        let words: EntryWords = [
            meta.source_time as u64,
            self.arrival as u64,
            meta.origin_seq,
            0,
            u64::from(meta.origin) | u64::from(u32::from_le_bytes(meta.schema.0)) << 32,
            u64::from(self.payload_number) | (start / 8) << 32,
            len as u64,
            u64::from(meta.flags | self.clock_flag),
        ];
        // SAFETY: both ranges were reserved, lie past everything published, and nobody else writes this stream; the
        // slot is aligned to 64 bytes. `publish` settles before it tells.
        let (to, at) =
            unsafe { (self.payload.map.ptr().add(start as usize), self.entry_place(slot).cast::<EntryWords>()) };
        put(to, &words, salt, at);
        Ok(self.count_in(slot, meta.source_time, start + len as u64))
    }

    /// Where the next `len` bytes of payload go: allocated, in this segment or a new one.
    #[inline(always)]
    pub(crate) fn place_for(&mut self, len: u64, align: u64) -> Result<u64> {
        // A power of two: the general rounding would divide.
        let mut start = (self.used + (align - 1)) & !(align - 1);
        if start + len > self.payload.bytes()
            || (self.next - self.payload_first) * ENTRY_BYTES as u64 >= self.header.segment_bytes
        {
            self.roll_payload(len)?;
            start = 0;
        }
        if let Err(why) = self.payload.reserve(start + len) {
            self.retry_with_room(why, |writer| writer.payload.reserve(start + len))?;
        }
        Ok(start)
    }

    /// Which entry of the index segment is next: allocated, and `arrival` is right for it.
    #[inline(always)]
    pub(crate) fn slot(&mut self) -> Result<u64> {
        let slot = self.next & (self.header.index_entries - 1);
        if (self.next >> self.header.index_entries.trailing_zeros()) as u32 != self.index_number {
            self.roll_index()?;
        }
        let end = self.table_bytes + (slot + 1) * ENTRY_BYTES as u64;
        if let Err(why) = self.index.reserve(end) {
            self.retry_with_room(why, |writer| writer.index.reserve(end))?;
        }
        if self.next == self.published {
            self.check_failed()?;
            let now = self.media.now();
            self.arrival = self.arrival.max(now);
            self.clock_flag = if self.arrival.saturating_sub(now) > CLOCK_STEP_NS { flags::CLOCK } else { 0 };
            if self.look_at < i64::MAX {
                self.look_for_old();
            }
        }
        Ok(slot)
    }

    /// # Safety
    /// The slot must be of the segment.
    #[inline(always)]
    unsafe fn entry_place(&self, slot: u64) -> *mut Entry {
        // SAFETY: the caller vouches for it.
        unsafe { self.index.map.ptr().add(self.table_bytes as usize).cast::<Entry>().add(slot as usize) }
    }

    /// Seals the entry of the next message, whose bytes are in place, and counts it in.
    #[inline(always)]
    pub(crate) fn put(&mut self, slot: u64, mut entry: Entry) -> u64 {
        entry.seal(salt(self.seed, self.next));
        // SAFETY: the slot was reserved, is aligned to 64 bytes, lies past everything published, and nobody else writes
        // this stream.
        unsafe { self.entry_place(slot).write(entry) };
        self.count_in(slot, entry.source_time, entry.end())
    }

    #[inline(always)]
    fn count_in(&mut self, slot: u64, source_time: i64, end: u64) -> u64 {
        debug_assert!(end <= self.payload.bytes(), "a message ends behind its segment");
        debug_assert!(self.used <= end, "messages of a segment overlap");
        debug_assert_eq!(slot, self.next % self.header.index_entries, "an entry in the place of another");
        self.block = (self.block.0.min(source_time), self.block.1.max(source_time));
        if (slot + 1).is_multiple_of(TIME_BLOCK) {
            self.seal_block(slot / TIME_BLOCK);
        }
        self.used = end;
        self.next += 1;
        self.next - 1
    }

    /// Makes everything pushed visible to readers; returns the mark `memory`.
    #[inline]
    pub fn publish(&mut self) -> u64 {
        if self.next != self.published {
            debug_assert!(self.published < self.next, "the mark `memory` never falls");
            debug_assert_eq!(self.head().count.load(Ordering::Relaxed), self.published, "one writer moves the mark");
            self.published = self.next;
            let head = self.head();
            settle();
            mark(&head.count, self.next);
            if (Bell { word: &head.count_word, asleep: self.pins.asleep(false) }).ring() {
                self.media.wake(&head.count_word);
            }
            // Behind the fence of the bell.
            self.ring.announce();
        }
        self.next
    }

    /// Writes the row of a full block of the time table.
    fn seal_block(&mut self, block: u64) {
        let row = time_row(self.block, salt(salt_seed(&self.header.uuid, 0), self.next / TIME_BLOCK * TIME_BLOCK));
        self.block = (i64::MAX, i64::MIN);
        let at = (block * TIME_ROW_BYTES) as usize;
        // SAFETY: before the entries, which are allocated; readers use a row only once its block is published.
        unsafe { std::ptr::copy_nonoverlapping(row.as_ptr(), self.index.map.ptr().add(at), row.len()) };
    }

    /// Publishes pushed messages and returns the error that `when_full` prescribes.
    fn full(&mut self, why: Error) -> Error {
        self.publish();
        match self.options.when_full {
            WhenFull::Wait => why,
            WhenFull::DropOldest | WhenFull::DropNewest => {
                self.head().dropped.fetch_add(1, Ordering::Relaxed);
                Error::Dropped
            }
        }
    }

    /// Repeats an `attempt` for which shared memory had no room: `drop-oldest` frees the oldest segment before each
    /// repetition, `drop-newest` drops and counts the message. Where nothing is left to free the cause is returned.
    #[cold]
    fn retry_with_room<T>(&mut self, mut why: Error, attempt: impl Fn(&mut Self) -> Result<T>) -> Result<T> {
        while why.is_full() && self.options.when_full == WhenFull::DropOldest && self.free_oldest() {
            match attempt(self) {
                Err(e) => why = e,
                done => return done,
            }
        }
        match (why.is_full(), self.options.when_full) {
            (true, WhenFull::DropNewest) => Err(self.full(why)),
            _ => Err(why),
        }
    }

    /// Unlinks warm segments, or, where there are none, the oldest one. False if nothing could be unlinked.
    fn free_oldest(&mut self) -> bool {
        if self.free_spares() {
            return true;
        }
        if self.header.level == Level::Memory
            && let Some(&Kept { number, first, .. }) = self.chain.get(1)
        {
            if first > self.published {
                // The oldest message that readers see must be published.
                self.publish();
            }
            self.retire_below(first, number);
        }
        let segments = |writer: &Self| {
            let ring = writer.ring.lock();
            ring.payload.len() + ring.index.len()
        };
        let before = segments(self);
        self.release_live_payload();
        self.release_live_index();
        self.free_spares();
        segments(self) < before
    }

    /// Unlinks the segments that are kept to be written again. False if there is none.
    fn free_spares(&self) -> bool {
        let mut ring = self.ring.lock();
        let mut spares = std::mem::take(&mut ring.spare_payload);
        spares.append(&mut ring.spare_index);
        spares.iter().for_each(|spare| drop(self.media.unlink(&spare.path)));
        !spares.is_empty()
    }

    /// True if a message for which there is no room is lost instead of waited for.
    pub fn drops(&self) -> bool {
        self.options.when_full != WhenFull::Wait
    }

    /// Names the reader that holds the oldest segment.
    #[cold]
    fn behind(&self) -> Error {
        let Some(reader) = self.pins.slowest() else { return Error::Full(HELD_BACK) };
        let pid = self.pins.lives(self.media.as_ref(), &reader).then_some(reader.process.pid);
        let (at, lag) = (reader.committed, self.next.saturating_sub(reader.committed));
        Error::Behind { name: reader.name, pid, at, lag }
    }

    #[cold]
    fn roll_payload(&mut self, len: u64) -> Result<()> {
        if len > PAYLOAD_BYTES_MAX {
            return Err(Error::Limit(format!("a message has at most {PAYLOAD_BYTES_MAX} bytes, not {len}")));
        }
        self.check_failed()?;
        let bytes = self.header.segment_bytes.max(len.next_multiple_of(4096));
        self.make_room(bytes)?;
        if len > self.header.segment_bytes / 2 {
            // Each such message is alone in its segment. Stored before the message is published, so that no reader of it
            // has the smaller quota.
            self.head().largest.fetch_max(bytes, Ordering::AcqRel);
        }
        if self.payload_first == self.next && self.used == 0 {
            // Nothing is in the segment: it becomes larger, so that numbers rise by one and recovery can tell what follows.
            let segment = match Segment::open(self.media.as_ref(), &self.payload.path, bytes) {
                Err(why) => self.retry_with_room(why, |w| Segment::open(w.media.as_ref(), &w.payload.path, bytes))?,
                Ok(segment) => segment,
            };
            let segment = Arc::new(segment);
            let mut ring = self.ring.lock();
            ring.payload.pop_back();
            ring.payload.push_back((self.payload_number, segment.clone()));
            self.payload = segment;
            return Ok(());
        }
        let number = self.payload_number + 1;
        let segment = match self.take_segment('p', number, bytes) {
            Err(why) => self.retry_with_room(why, |writer| writer.take_segment('p', number, bytes))?,
            Ok(segment) => segment,
        };
        debug_assert!(self.used <= self.payload.bytes(), "a segment is closed within its file");
        self.payload.closed_at.store(self.used, Ordering::Release);
        self.ring.lock().payload.push_back((number, segment.clone()));
        if self.header.level == Level::Disk {
            let behind = u64::from(number.saturating_sub(self.ring.drained_payload.load(Ordering::Acquire)));
            // A quarter of the live place waits for the medium: no pause between commits.
            if behind * self.header.segment_bytes * 4 >= self.options.live_bytes {
                self.ring.hurry();
            }
        }
        if let Some(closed) = self.chain.back_mut() {
            closed.bytes = self.used.next_multiple_of(4096);
            self.kept_bytes += closed.bytes;
        }
        (self.payload, self.payload_number, self.used) = (segment, number, 0);
        self.payload_first = self.next;
        // Never too early: a message that either clock calls young is kept.
        let arrived = self.steady.now(self.media.as_ref()).max(self.media.now());
        self.chain.push_back(Kept { number, first: self.next, arrived, bytes: 0 });
        if self.header.level == Level::Memory && self.chain.len() >= ASK_EARLY {
            // While this segment fills: what views keep takes some steps of theirs to come free. It is hardly counted yet.
            let (used, spare) = self.live_bytes(self.header.segment_bytes);
            if !spare && used + 2 * self.header.segment_bytes > self.options.live_bytes {
                self.ask_views();
            }
        }
        Ok(())
    }

    /// Asks views of this stream to release messages of its oldest segment.
    fn ask_views(&self) {
        if self.options.when_full != WhenFull::DropOldest
            && let Some(second) = self.chain.get(1)
        {
            self.pins.wanted().store(second.first, Ordering::Release);
        }
    }

    #[cold]
    fn roll_index(&mut self) -> Result<()> {
        self.check_failed()?;
        let number = self.header.index_number(self.next)?;
        self.view.index_closed(self.index_number, self.next, self.header.index_entries);
        self.release_live_index();
        let bytes = self.header.index_bytes();
        let segment = match self.take_segment('i', number, bytes) {
            Err(why) => self.retry_with_room(why, |writer| writer.take_segment('i', number, bytes))?,
            Ok(segment) => segment,
        };
        self.ring.lock().index.push_back((number, segment.clone()));
        (self.index, self.index_number) = (segment, number);
        self.block = (i64::MAX, i64::MIN);
        Ok(())
    }

    fn check_failed(&self) -> Result<()> {
        if self.head().state.load(Ordering::Acquire) == STATE_FAILED {
            let why = self.ring.lock().trouble.clone();
            return Err(Error::Failed(why.map_or_else(|| "a sync failed".into(), |why| why.text)));
        }
        Ok(())
    }

    /// A warm segment of this size, or a new one.
    fn take_segment(&mut self, kind: char, number: u32, bytes: u64) -> Result<Arc<Segment>> {
        let path = self.live.join(segment_name(kind, number));
        let spare = {
            let mut ring = self.ring.lock();
            let spares = if kind == 'p' { &mut ring.spare_payload } else { &mut ring.spare_index };
            spares.iter().position(|s| s.bytes() == bytes).map(|at| spares.swap_remove(at))
        };
        // A spare that an earlier roll left with other owners cannot be renamed in place: start a new file then.
        match spare.map(Arc::try_unwrap) {
            Some(Ok(mut segment)) => {
                self.media.rename(&segment.path, &path).map_err(Error::io("rename", &path))?;
                segment.path = path;
                segment.closed_at.store(u64::MAX, Ordering::Relaxed);
                return Ok(Arc::new(segment));
            }
            Some(Err(shared)) => drop(self.media.unlink(&shared.path)),
            None => {}
        }
        Ok(Arc::new(Segment::open(self.media.as_ref(), &path, bytes)?))
    }

    /// Bytes that the live place takes now, and whether a spare payload segment of this size is there.
    fn live_bytes(&self, spare_of: u64) -> (u64, bool) {
        let ring = self.ring.lock();
        let used = ring.payload.iter().chain(&ring.index).map(|s| s.1.occupied()).sum::<u64>()
            + ring.spare_payload.iter().chain(&ring.spare_index).map(|s| s.occupied()).sum::<u64>();
        (used, ring.spare_payload.iter().any(|s| s.bytes() == spare_of))
    }

    /// Frees old segments until a payload segment of `bytes` fits.
    fn make_room(&mut self, bytes: u64) -> Result<()> {
        // Before the first look: what moves on from here on wakes `wait_room`.
        self.credit = self.pins.credit().listen();
        if self.header.level == Level::Disk {
            self.retain(bytes)?;
            self.keep_free(bytes)?;
        }
        loop {
            let (used, spare) = self.live_bytes(bytes);
            if spare || used + bytes <= self.options.live_bytes {
                return Ok(());
            }
            // Warm segments of another size are in the way.
            if let Some(other) = self.ring.lock().spare_payload.pop() {
                let _ = self.media.unlink(&other.path);
                continue;
            }
            if self.ring.lock().payload.len() < 2 {
                return Ok(());
            }
            if self.header.level == Level::Memory {
                self.release_oldest()?;
            } else {
                let oldest = self.ring.lock().payload.front().map_or(0, |s| s.0);
                if oldest >= self.ring.drained_payload.load(Ordering::Acquire) {
                    self.ring.hurry();
                    let stuck = self.ring.lock().trouble.is_some();
                    let why = if stuck { "nothing can be written to the disk" } else { BEHIND };
                    return Err(self.full(Error::Full(why)));
                }
            }
            self.release_live_payload();
            self.release_live_index();
        }
    }

    /// Keeps a disk stream below `retain_bytes`, counting the segment that is to come.
    fn retain(&mut self, coming: u64) -> Result<()> {
        let Some(limit) = self.options.retain_bytes else { return Ok(()) };
        loop {
            let segments = self.kept_bytes + self.used;
            let index = (self.next - self.first_sequence()) * ENTRY_BYTES as u64;
            if segments + index + coming <= limit || self.chain.len() < 2 {
                return Ok(());
            }
            self.release_oldest()?;
        }
    }

    /// Leaves `keep_free_bytes` on the disk beside the segment that is to come: a disk that is really full takes no
    /// commit either, and other programs have to live.
    fn keep_free(&mut self, coming: u64) -> Result<()> {
        let Some(keep) = self.options.keep_free_bytes else { return Ok(()) };
        // Retired files must leave the disk before its free space is read again.
        if self.ring.kept.load(Ordering::Acquire) < self.first_sequence() {
            return Ok(());
        }
        let free = self.media.free(&self.folder).map_err(Error::io("ask for the room of", &self.folder))?;
        // Twice what comes: the room grows with each segment, and streams that see the same shortage of their disk do not
        // each make up for the whole of it.
        let mut missing = keep.saturating_add(coming).saturating_sub(free).min(coming.saturating_mul(2));
        while missing > 0 {
            let (Some(oldest), Some(then)) = (self.chain.front(), self.chain.get(1)) else {
                return Err(self.full(Error::Full("the disk has less free than `keep_free`")));
            };
            let bytes = oldest.bytes + (then.first - oldest.first) * ENTRY_BYTES as u64;
            self.release_oldest()?;
            missing = missing.saturating_sub(bytes);
            self.ring.hurry();
        }
        Ok(())
    }

    /// Checks for messages older than `retain_age_ns`, if the check is due.
    fn look_for_old(&mut self) {
        let now = self.steady.now(self.media.as_ref());
        // A clock that was set back has come from beyond the longest pause.
        if now >= self.look_at || self.look_at.saturating_sub(now) > LOOK_FOR_OLD_NS.1 {
            self.retire_old(now);
        }
    }

    /// Retires segments whose messages are all older than `retain_age_ns`. Age alone never blocks or drops: messages
    /// that a counted reader needs stay, except with `drop-oldest`, and so do messages that are not on the medium.
    #[cold]
    fn retire_old(&mut self, now: i64) {
        let Some(age) = self.options.retain_age_ns else {
            self.look_at = i64::MAX;
            return;
        };
        // A sixteenth of the age late at most, and no look at each message.
        self.look_at = now.saturating_add((age / 16).clamp(LOOK_FOR_OLD_NS.0, LOOK_FOR_OLD_NS.1));
        let oldest = now.saturating_sub(age);
        if !self.steady.is_stepping() && self.chain.get(1).is_some_and(|kept| kept.arrived > now) {
            // A message that arrived while the clock was ahead is no younger than now.
            self.chain.iter_mut().for_each(|kept| kept.arrived = kept.arrived.min(now));
        }
        let mut any = false;
        while let Some(&Kept { number, first, arrived, .. }) = self.chain.get(1) {
            let wanted = self.options.when_full != WhenFull::DropOldest
                && self.pins.lowest_committed().is_some_and(|committed| committed < first);
            let unsafe_yet = self.header.level == Level::Disk && first > self.head().disk.load(Ordering::Acquire);
            if arrived > oldest || wanted || unsafe_yet || first > self.published {
                break;
            }
            self.retire_below(first, number);
            any = true;
        }
        if any {
            self.release_live_payload();
            self.release_live_index();
        }
    }

    /// Retires the oldest payload segment, if `when_full` allows it.
    fn release_oldest(&mut self) -> Result<()> {
        let Some(&Kept { number, first, .. }) = self.chain.get(1) else {
            return Err(self.full(Error::Full("one segment is all there is")));
        };
        if self.options.when_full != WhenFull::DropOldest
            && self.pins.lowest_committed().is_some_and(|committed| committed < first)
        {
            self.ask_views();
            // Looking up the slow reader is too costly for each dropped message.
            let why = match self.options.when_full {
                WhenFull::Wait => self.behind(),
                _ => Error::Full(HELD_BACK),
            };
            return Err(self.full(why));
        }
        if self.header.level == Level::Disk && first > self.head().disk.load(Ordering::Acquire) {
            // Messages that are not on the medium are never deleted: retention waits for it.
            self.ring.hurry();
            return Err(self.full(Error::Full(BEHIND)));
        }
        if first > self.published {
            // The oldest message that readers see must be published.
            self.publish();
        }
        self.retire_below(first, number);
        Ok(())
    }

    /// Retires all messages below `first`, which is in payload segment `number`.
    pub(crate) fn retire_below(&mut self, first: u64, number: u32) {
        while self.chain.len() > 1
            && let Some(oldest) = self.chain.front().filter(|s| s.number < number)
        {
            self.kept_bytes -= oldest.bytes;
            self.chain.pop_front();
        }
        let index = (first / self.header.index_entries) as u32;
        let head = self.head();
        debug_assert!(head.first.load(Ordering::Relaxed) <= first, "retention never restores a message");
        debug_assert!(first <= self.published, "a message is published before it is retired");
        debug_assert!(head.first_payload.load(Ordering::Relaxed) <= number && number <= self.payload_number);
        head.first.store(first, Ordering::Release);
        head.first_payload.store(number, Ordering::Release);
        head.first_index.store(index, Ordering::Release);
        self.ring.lock().keep = (first, number, index);
        fence(Ordering::SeqCst);
        self.ring.announce();
    }

    /// Takes payload segments out of the live place that need not be there: read on (memory) or on the medium (disk).
    pub(crate) fn release_live_payload(&mut self) {
        let low = match self.header.level {
            Level::Memory => self.head().first_payload.load(Ordering::Relaxed),
            Level::Disk => self.ring.drained_payload.load(Ordering::Acquire),
        };
        give_up(&self.head().live_payload, low);
        let mut ring = self.ring.lock();
        while ring.payload.front().is_some_and(|s| s.0 < low) {
            let Some((number, segment)) = ring.payload.pop_front() else { break };
            // All that come free stay warm: a fresh page costs ten times a warm one, and `make_room` counts them.
            let ordinary = segment.bytes() == self.header.segment_bytes;
            if ordinary && !self.pins.pinned(true, number) {
                ring.spare_payload.push(segment);
            } else {
                let _ = self.media.unlink(&segment.path);
            }
        }
    }

    /// The same for index segments.
    pub(crate) fn release_live_index(&mut self) {
        let low = match self.header.level {
            Level::Memory => self.head().first_index.load(Ordering::Relaxed),
            Level::Disk => self.ring.drained_index.load(Ordering::Acquire),
        };
        give_up(&self.head().live_index, low);
        let mut ring = self.ring.lock();
        while ring.index.front().is_some_and(|s| s.0 < low) {
            let Some((number, segment)) = ring.index.pop_front() else { break };
            if ring.spare_index.len() < 16 && !self.pins.pinned(false, number) {
                ring.spare_index.push(segment);
            } else {
                let _ = self.media.unlink(&segment.path);
            }
        }
    }

    /// How far messages are safe at a level: all below the returned sequence are.
    pub fn mark(&self, level: Level) -> u64 {
        match level {
            Level::Memory => self.published,
            Level::Disk => self.head().disk.load(Ordering::Acquire),
        }
    }

    /// Waits until all below `sequence` is safe at `level`. False on time-out.
    pub fn wait(&mut self, sequence: u64, level: Level, timeout: Duration) -> Result<bool> {
        self.publish();
        if level == Level::Disk && self.header.level == Level::Memory {
            return Err(Error::Limit("a memory stream has no mark `disk`".into()));
        }
        if self.job.is_none() && !self.drain_little() {
            self.drain()?;
        }
        let deadline = std::time::Instant::now() + timeout;
        while self.mark(level) < sequence {
            self.check_failed()?;
            if self.drain_little() {
                continue;
            }
            self.ring.hurry();
            let bell = Bell { word: &self.head().disk_word, asleep: self.pins.asleep(true) };
            let seen = bell.listen();
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if self.mark(level) < sequence && !left.is_zero() {
                self.media.wait(bell.word, seen, Some(left.min(Duration::from_millis(100))));
            }
            if left.is_zero() {
                return Ok(self.mark(level) >= sequence);
            }
        }
        Ok(true)
    }

    /// Sleeps until there may be room again: a counted reader or the disk moved on, or the time is over.
    pub fn wait_room(&self, timeout: Duration) {
        self.media.wait(self.pins.credit().word, self.credit, Some(timeout));
    }

    /// Whether `wait_room` would return at once: a counted reader or the disk has moved on since room was last looked for.
    pub fn may_have_room(&self) -> bool {
        self.pins.credit().word.load(Ordering::Relaxed) != self.credit
    }

    /// The share of stream memory, 0 to 1, that cannot be freed yet: of a disk stream what is not on the disk, of a
    /// memory stream what the slowest counted reader still has to read. Memory is freed by the segment, so it rises by
    /// eighths.
    pub fn fill(&self) -> f64 {
        let needed_from = match self.header.level {
            Level::Disk => self.head().disk.load(Ordering::Acquire),
            Level::Memory => self.pins.lowest_committed().unwrap_or(u64::MAX),
        };
        if needed_from >= self.next {
            return 0.0;
        }
        let mut needed = self.used;
        let mut first = self.payload_first;
        for kept in self.chain.iter().rev().skip(1) {
            if first <= needed_from {
                break;
            }
            needed += kept.bytes;
            first = kept.first;
        }
        (needed as f64 / self.options.live_bytes as f64).min(1.0)
    }

    /// Why the mark `disk` does not move, if it does not.
    pub fn trouble(&self) -> Option<Trouble> {
        // Nothing else sets it, and a source asks after each step.
        self.drainer.as_ref().and_then(|_| self.ring.lock().trouble.clone())
    }

    /// One group commit (for `Drain::Caller`).
    pub fn drain(&mut self) -> Result<bool> {
        self.publish();
        self.drainer().map_or(Ok(false), |mut drainer| drainer.step(false, None))
    }

    fn drainer(&self) -> Option<MutexGuard<'_, Drainer>> {
        self.drainer.as_ref().map(|drainer| drainer.lock().unwrap_or_else(|p| p.into_inner()))
    }

    /// Puts what is left on the medium, if it is little and no commit runs. False: a committer has to.
    fn drain_little(&self) -> bool {
        let Some(Ok(mut drainer)) = self.drainer.as_ref().map(|drainer| drainer.try_lock()) else { return false };
        // The record follows: what is published is announced.
        drainer.little(self.published) && drainer.step(false, Some(self.origins.names.len())).is_ok()
    }

    /// The readers of this stream.
    pub fn pins(&self) -> &Pins {
        &self.pins
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.publish();
        if let Some(job) = self.job.take() {
            job.end();
        }
        if let Some(mut drainer) = self.drainer() {
            let _ = drainer.step(true, None);
        }
        // The mark alone is no proof that a record says so.
        let clean = self.drainer().is_some_and(|drainer| drainer.done.clean);
        let head = self.head();
        if self.header.level == Level::Disk
            && clean
            && head.state.load(Ordering::Acquire) != STATE_FAILED
            && head.disk.load(Ordering::Acquire) == self.published
        {
            // All is on the medium: the live place goes. A process that has the control page mapped sees that nothing
            // is here.
            head.live_payload.store(u32::MAX, Ordering::SeqCst);
            head.live_index.store(u32::MAX, Ordering::SeqCst);
            head.state.store(STATE_CLOSED, Ordering::Release);
            remove_live(self.media.as_ref(), &self.live, &self.folder);
        } else if head.state.load(Ordering::Acquire) != STATE_FAILED {
            head.state.store(STATE_CLOSED, Ordering::Release);
        }
    }
}
