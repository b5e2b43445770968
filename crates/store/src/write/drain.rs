//! Group commit of a disk stream, from the live place to the medium.
//!
//! Order: payload and index blocks, fdatasync of each file, fsync of the folder if a name is new, commit record, its
//! fdatasync, mark. So a record never covers bytes that are not on the medium. At most 256 KiB in files that a record
//! covers already are marked without a record if a process waits: their checksums prove them (`recover::tail`), and the
//! record follows within 50 ms. Blocks bypass the page cache (O_DIRECT); the last, partial block of 4 KiB is written
//! again with the next commit.
//!
//! Failure behaviour: on a full disk, files that retention gave up are removed and the commit is tried once more; then
//! the fault is reported and the commit retried later, since nothing was marked. A failed sync stops the stream for
//! good: the kernel may already have marked the pages clean.

use crate::error::{Error, Result, Trouble};
use crate::format::commit::Commit;
use crate::format::control_page::{Head, STATE_FAILED};
use crate::format::entry::{ENTRY_BYTES, Entry};
use crate::format::segments::{TIME_ROW_BYTES, segment_name, segment_number, table_bytes};
use crate::limits::{GROW_BYTES_MAX, GROW_BYTES_MIN, TIME_BLOCK, WRITE_BYTES_MAX};
use crate::live::pins::Pins;
use crate::live::protocol::{Bell, mark};
use crate::live::segment::Segment;
use crate::outside::media::{Block, File, Map, Media, Open};
use crate::write::committer::Job;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

/// Payload bytes of one commit at most (a whole segment always): the live place comes free in steps, so that the
/// writer fills one part while the medium takes the other.
const COMMIT_BYTES_MAX: u64 = 128 << 20;

/// What a writer that waits for the mark puts on the medium itself: its thread woken and waking it would cost as much.
const LITTLE_BYTES: u64 = 256 << 10;
const LITTLE_MESSAGES: u64 = 1024;

/// What writer and drainer share: the segments in the live place.
#[derive(Default)]
pub(crate) struct Ring {
    state: Mutex<RingState>,
    /// The committer of the stream, where that is not the caller.
    job: OnceLock<Weak<Job>>,
    /// Something is new that a commit will see.
    is_announced: AtomicBool,
    /// Segments below are on the medium, whole.
    pub(crate) drained_payload: AtomicU32,
    pub(crate) drained_index: AtomicU32,
    /// Lowest sequence that the newest commit record keeps.
    pub(crate) kept: AtomicU64,
}

#[derive(Default)]
pub(crate) struct RingState {
    pub(crate) payload: VecDeque<(u32, Arc<Segment>)>,
    pub(crate) index: VecDeque<(u32, Arc<Segment>)>,
    /// Free segments, warm.
    pub(crate) spare_payload: Vec<Arc<Segment>>,
    pub(crate) spare_index: Vec<Arc<Segment>>,
    /// (first sequence, first payload segment, first index segment) that retention keeps.
    pub(crate) keep: (u64, u32, u32),
    /// Why the mark does not move.
    pub(crate) trouble: Option<Trouble>,
    pub(crate) origins_dirty: bool,
}

impl Ring {
    pub(crate) fn lock(&self) -> MutexGuard<'_, RingState> {
        self.state.lock().unwrap_or_else(|p| p.into_inner())
    }

    pub(crate) fn set_job(&self, job: &Arc<Job>) {
        // One writer has one job.
        let _ = self.job.set(Arc::downgrade(job));
    }

    /// Something is new, and there was a fence behind it: a commit sees it, within 50 ms or when the last one is over.
    #[inline]
    pub(crate) fn announce(&self) {
        if !self.is_announced.load(Ordering::Relaxed) {
            self.announce_first();
        }
    }

    #[cold]
    fn announce_first(&self) {
        if !self.is_announced.swap(true, Ordering::AcqRel)
            && let Some(job) = self.job.get().and_then(Weak::upgrade)
        {
            job.announce();
        }
    }

    /// A commit begins, and sees what is new now.
    pub(crate) fn see(&self) {
        self.is_announced.store(false, Ordering::Relaxed);
        // Pairs with the fence behind what is new: this commit sees it, or it is announced anew.
        fence(Ordering::SeqCst);
    }

    /// Somebody waits for the mark: no pause before the next commit.
    pub(crate) fn hurry(&self) {
        if let Some(job) = self.job.get().and_then(Weak::upgrade) {
            job.hurry();
        }
    }
}

/// Writes a stream's live place out. One per disk stream, used by the thread that commits it and by the writer where
/// that waits.
pub(crate) struct Drainer {
    pub(crate) media: Arc<dyn Media>,
    pub(crate) folder: PathBuf,
    pub(crate) head: Arc<Map>,
    pub(crate) pins: Pins,
    pub(crate) ring: Arc<Ring>,
    pub(crate) index_entries: u64,
    /// Salt seed of epoch 0: commit records.
    pub(crate) seed: u64,
    /// The state on the medium.
    pub(crate) done: Commit,
    /// The count of the newest record: what is beyond proves itself.
    pub(crate) recorded: u64,
    pub(crate) files: BTreeMap<(char, u32), (Arc<dyn File>, u64)>,
    /// Segment files that retention gave up, with the record generation after which they may be written again.
    pub(crate) released: VecDeque<(char, u32, u64)>,
    /// Lowest numbers of payload and index segments that the folder may have; `None` until it was looked at.
    pub(crate) lowest: [Option<u32>; 2],
    /// The folder has names that are not on the medium.
    pub(crate) names_dirty: bool,
}

impl Drainer {
    fn head(&self) -> &Head {
        Head::of(&self.head)
    }

    /// Group commits until all that is published now is on the medium. False if there was nothing to do.
    pub(crate) fn once(&mut self, clean: bool, brief: Option<usize>) -> Result<bool> {
        if self.head().state.load(Ordering::Acquire) == STATE_FAILED {
            return Err(Error::Failed("a sync failed before".into()));
        }
        let count = self.head().count.load(Ordering::Acquire);
        let mut any = false;
        loop {
            let end = self.commit_end(count)?;
            let origins_dirty = std::mem::take(&mut self.ring.lock().origins_dirty);
            let mut answer = self.commit(end, clean && end == count, origins_dirty, brief);
            if answer.as_ref().is_err_and(Error::is_full) && self.free_released()? {
                answer = self.commit(end, clean && end == count, origins_dirty, brief);
            }
            // A commit that failed has not synced the origins either.
            self.ring.lock().origins_dirty |= origins_dirty && answer.is_err();
            any |= answer?;
            if end == count {
                return Ok(any);
            }
        }
    }

    /// Where a commit ends: at `count`, or at the end of a segment before where that would be too much at once.
    fn commit_end(&self, count: u64) -> Result<u64> {
        let done = self.done.count;
        if count <= done {
            return Ok(count);
        }
        let step = match self.live('p', self.done.segment) {
            Some(segment) => (COMMIT_BYTES_MAX / segment.bytes()).max(1),
            None => 1,
        };
        let last = self.done.segment.saturating_add(step as u32);
        // Segment numbers rise with sequence: the first entry past `last` is where the commit ends.
        let (mut low, mut high) = (done, count);
        if self.entry(count - 1)?.segment <= last {
            return Ok(count);
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry(middle)?.segment <= last { low = middle + 1 } else { high = middle }
        }
        // One message that skipped segments is a commit of its own.
        Ok(low.max(done + 1))
    }

    /// One group commit of all below `count`. False if there was nothing to do.
    /// `brief`: without a record, if one of a moment ago says enough for a recovery; with the rows that `origins` has.
    fn commit(&mut self, count: u64, clean: bool, origins_dirty: bool, brief: Option<usize>) -> Result<bool> {
        let keep = self.ring.lock().keep;
        // Retention may be ahead of the medium; a record never begins past its own end.
        let moved = keep.0 > self.done.first && keep.0 <= count;
        let behind = brief.is_none() && self.recorded < self.done.count;
        if count == self.done.count && !moved && !clean && !origins_dirty && !behind {
            return Ok(false);
        }
        let mut record = Commit { generation: self.done.generation + 1, clean, ..self.done };
        record.epoch = self.head().epoch.load(Ordering::Relaxed);
        let mut touched = Vec::new();
        if count > self.done.count {
            let last = self.entry(count - 1)?;
            let end = last.end();
            for number in self.done.segment..=last.segment {
                let Some(segment) = self.live('p', number) else { continue };
                let from = if number == self.done.segment { self.done.used } else { 0 };
                let to = if number == last.segment { end } else { segment.closed_at.load(Ordering::Acquire) };
                if from < to {
                    self.copy(&segment, 'p', number, from, to.min(segment.bytes()))?;
                    touched.push(('p', number));
                }
            }
            let (low, high) = (self.done.count / self.index_entries, (count - 1) / self.index_entries);
            for number in low..=high {
                let Some(segment) = self.live('i', number as u32) else { continue };
                let base = number * self.index_entries;
                let from = self.done.count.max(base) - base;
                let to = count.min(base + self.index_entries) - base;
                let (table, bytes) = (table_bytes(self.index_entries), ENTRY_BYTES as u64);
                self.copy(&segment, 'i', number as u32, table + from * bytes, table + to * bytes)?;
                // Rows of the blocks that became full.
                let (first, last) = (from / TIME_BLOCK * TIME_ROW_BYTES, to / TIME_BLOCK * TIME_ROW_BYTES);
                self.copy(&segment, 'i', number as u32, first, last)?;
                touched.push(('i', number as u32));
            }
            (record.count, record.segment, record.used) = (count, last.segment, end);
        }
        if moved {
            (record.first, record.first_segment) = (keep.0, keep.1);
        }
        for &(kind, number) in &touched {
            if let Some((file, _)) = self.files.get(&(kind, number)) {
                self.sync_path(file.as_ref(), &self.folder.join(segment_name(kind, number)))?;
            }
        }
        if origins_dirty {
            let path = self.folder.join("origins");
            let file = self.media.open(&path, Open::Write).map_err(Error::io("open", &path))?;
            file.sync().map_err(|e| self.failed(&path, &e))?;
            self.names_dirty = true;
        }
        // A recovery of the live place expects every segment there from that of the record on.
        let same_index = record.count / self.index_entries == self.recorded / self.index_entries;
        let same = same_index && record.segment == self.done.segment;
        // A message without a name does not prove itself: its row may be one that was lost.
        let named = |rows| (self.done.count..count).all(|n| self.entry(n).is_ok_and(|e| (e.origin as usize) < rows));
        let brief = same && !moved && !clean && !origins_dirty && !self.names_dirty && brief.is_some_and(named);
        if self.names_dirty {
            self.media.sync_dir(&self.folder).map_err(|e| self.failed(&self.folder, &e))?;
            self.names_dirty = false;
        }
        // A recovery believes the record: it never goes back, and covers no message that was not published.
        debug_assert!(self.done.count <= record.count && record.count <= self.head().count.load(Ordering::Acquire));
        debug_assert!(self.done.first <= record.first);
        if brief {
            record.generation = self.done.generation;
        } else {
            self.write_record(record)?;
            self.recorded = record.count;
        }
        self.done = record;
        self.ring.kept.store(record.first, Ordering::Release);
        self.ring.drained_payload.store(record.segment, Ordering::Release);
        self.ring.drained_index.store((record.count / self.index_entries) as u32, Ordering::Release);
        self.files.retain(|&(kind, number), _| {
            if kind == 'p' { number >= record.segment } else { u64::from(number) >= record.count / self.index_entries }
        });
        if moved {
            self.release(keep);
        }
        let head = self.head();
        mark(&head.disk, record.count);
        if (Bell { word: &head.disk_word, asleep: self.pins.asleep(true) }).ring() {
            self.media.wake(&head.disk_word);
        }
        self.pins.moved(self.media.as_ref());
        Ok(true)
    }

    /// Frees the files that retention gave up, before a commit that found no room is tried again: an ordinary commit frees
    /// them after it has written. False if there were none.
    fn free_released(&mut self) -> Result<bool> {
        let keep = self.ring.lock().keep;
        if keep.0 > self.done.first && keep.0 <= self.done.count {
            let (generation, epoch) = (self.done.generation + 1, self.head().epoch.load(Ordering::Relaxed));
            let (first, first_segment) = (keep.0, keep.1);
            let record = Commit { generation, epoch, first, first_segment, clean: false, ..self.done };
            self.write_record(record)?;
            (self.done, self.recorded) = (record, record.count);
            self.ring.kept.store(record.first, Ordering::Release);
        }
        // Below what the record keeps; a file that waits to be written again is of no use where nothing can be written.
        let low = [('p', self.done.first_segment), ('i', (self.done.first / self.index_entries) as u32)];
        self.released.clear();
        self.lowest = [None; 2];
        let mut any = false;
        for name in self.media.list(&self.folder).map_err(Error::io("list", &self.folder))? {
            if low.iter().any(|&(kind, low)| segment_number(kind, &name).is_some_and(|number| number < low)) {
                any |= self.media.unlink(&self.folder.join(name)).is_ok();
            }
        }
        if any {
            self.media.sync_dir(&self.folder).map_err(|e| self.failed(&self.folder, &e))?;
            self.names_dirty = false;
            self.pins.moved(self.media.as_ref());
        }
        Ok(any)
    }

    /// Writes and syncs a commit record.
    pub(crate) fn write_record(&self, record: Commit) -> Result<()> {
        debug_assert!(record.first <= record.count, "a record begins within its messages");
        let path = self.folder.join("commit");
        let file = self.media.open(&path, Open::Create).map_err(Error::io("open", &path))?;
        file.write_at(&record.to_bytes(self.seed), Commit::place(record.generation))
            .map_err(Error::io("write", &path))?;
        self.sync_path(file.as_ref(), &path)
    }

    fn sync_path(&self, file: &dyn File, path: &std::path::Path) -> Result<()> {
        file.sync().map_err(|e| self.failed(path, &e))
    }

    /// After a failed sync the kernel may call dirty pages clean: what the medium holds is unknown until it is read again.
    fn failed(&self, path: &std::path::Path, error: &std::io::Error) -> Error {
        self.fail();
        Error::Failed(format!("sync of {} failed: {error}", path.display()))
    }

    /// Nothing is committed any more, and the writer hears of it.
    pub(crate) fn fail(&self) {
        self.head().state.store(STATE_FAILED, Ordering::Release);
    }

    fn live(&self, kind: char, number: u32) -> Option<Arc<Segment>> {
        let ring = self.ring.lock();
        let list = if kind == 'p' { &ring.payload } else { &ring.index };
        list.iter().find(|s| s.0 == number).map(|s| s.1.clone())
    }

    fn entry(&self, sequence: u64) -> Result<Entry> {
        let number = (sequence / self.index_entries) as u32;
        let segment = self.live('i', number).ok_or_else(|| Error::Failed(format!("index segment {number} is gone")))?;
        let at = table_bytes(self.index_entries) + sequence % self.index_entries * ENTRY_BYTES as u64;
        // SAFETY: the entry is published; nobody writes it any more.
        Ok(bytemuck::pod_read_unaligned(unsafe { segment.slice(at, at + ENTRY_BYTES as u64) }))
    }

    /// Copies a range, widened to whole blocks.
    fn copy(&mut self, segment: &Segment, kind: char, number: u32, from: u64, end: u64) -> Result<()> {
        if from >= end {
            return Ok(());
        }
        let (from, to) = (from & !4095, end.next_multiple_of(4096).min(segment.bytes()));
        let path = self.folder.join(segment_name(kind, number));
        if !self.files.contains_key(&(kind, number)) {
            // Never over a file that holds something of a commit.
            if from == if kind == 'i' { table_bytes(self.index_entries) } else { 0 }
                && let Some(old) = self.reusable(kind)
            {
                let _ = self.media.rename(&self.folder.join(segment_name(kind, old)), &path);
            }
            let file = self.media.open(&path, Open::Create).map_err(Error::io("create", &path))?;
            let len = file.len().map_err(Error::io("read", &path))?;
            self.files.insert((kind, number), (file, len));
            // Stays set until the folder is synced, whatever fails before.
            self.names_dirty = true;
        }
        let Some((file, len)) = self.files.get_mut(&(kind, number)) else { return Ok(()) };
        if to > *len {
            let step = (*len).clamp(GROW_BYTES_MIN, GROW_BYTES_MAX);
            let grown = to.max((*len + step).min(segment.bytes()));
            file.allocate(*len, grown - *len).map_err(Error::io("allocate", &path))?;
            *len = grown;
        }
        // Entries past `end` are pushed but not published. On the medium they would verify, and after a kill another
        // message of this epoch stands in their place: so the rest of the last index block goes out as zeroes.
        let whole = if kind == 'i' { end & !4095 } else { to };
        // SAFETY: published bytes; the rest of a last payload block may change under us and is written again then.
        let bytes = unsafe { segment.slice(from, whole) };
        for (i, piece) in bytes.chunks(WRITE_BYTES_MAX).enumerate() {
            file.write_blocks(piece, from + (i * WRITE_BYTES_MAX) as u64).map_err(Error::io("write", &path))?;
        }
        if whole < end {
            let mut block = Block([0; 4096]);
            // SAFETY: published bytes.
            block.0[..(end - whole) as usize].copy_from_slice(unsafe { segment.slice(whole, end) });
            file.write_blocks(&block.0, whole).map_err(Error::io("write", &path))?;
        }
        Ok(())
    }

    /// A released file of this kind that no record and no reader needs.
    fn reusable(&mut self, kind: char) -> Option<u32> {
        let at = self.released.iter().position(|r| r.0 == kind && r.2 <= self.done.generation)?;
        self.released.remove(at).map(|r| r.1)
    }

    /// Files below what retention keeps: written again soon, or unlinked where a reader has them mapped.
    fn release(&mut self, keep: (u64, u32, u32)) {
        // Pairs with the fence of a reader that has claimed a segment: it sees what is lowest now, or its pin is seen here.
        fence(Ordering::SeqCst);
        // No more wait than will be written next: retention has counted those already.
        let newest = {
            let ring = self.ring.lock();
            [ring.payload.back().map_or(0, |s| s.0), ring.index.back().map_or(0, |s| s.0)]
        };
        let written = [self.done.segment, (self.done.count / self.index_entries) as u32];
        for (i, (kind, low)) in [('p', keep.1), ('i', keep.2)].into_iter().enumerate() {
            let wanted = newest[i].saturating_sub(written[i]) as usize + 2;
            // The folder is looked at once: it may have as many files as a year.
            let lowest = self.lowest[i].or_else(|| self.lowest_in_folder(kind)).unwrap_or(low);
            let mut next = low.max(lowest);
            for number in lowest..low {
                if self.released.iter().any(|r| (r.0, r.1) == (kind, number)) {
                    continue;
                }
                let waiting = self.released.iter().filter(|r| r.0 == kind).count();
                if waiting < wanted && !self.pins.pinned(kind == 'p', number) && self.has(kind, number) {
                    self.released.push_back((kind, number, self.done.generation));
                } else if !self.remove(kind, number) {
                    // Once more with the next release.
                    next = next.min(number);
                }
            }
            self.lowest[i] = Some(next);
        }
    }

    /// Whether a segment has a file: messages without bytes need none.
    fn has(&self, kind: char, number: u32) -> bool {
        self.media.open(&self.folder.join(segment_name(kind, number)), Open::Read).is_ok()
    }

    fn lowest_in_folder(&self, kind: char) -> Option<u32> {
        let names = self.media.list(&self.folder).unwrap_or_default();
        names.iter().filter_map(|name| segment_number(kind, name)).min()
    }

    /// Removes the file of a segment, unless there is none. False if it is still there.
    fn remove(&self, kind: char, number: u32) -> bool {
        let path = self.folder.join(segment_name(kind, number));
        self.media.unlink(&path).map_or_else(|e| e.kind() == std::io::ErrorKind::NotFound, |()| true)
    }

    /// [`Drainer::once`], with what comes of it told to the writer.
    pub(crate) fn step(&mut self, clean: bool, brief: Option<usize>) -> Result<bool> {
        let answer = self.once(clean, brief);
        self.ring.lock().trouble = answer.as_ref().err().map(Trouble::from);
        answer
    }

    /// True if what is below `count` and not on the medium is little: a commit that takes no longer than a flush.
    pub(crate) fn little(&self, count: u64) -> bool {
        let end = if count > self.done.count { self.entry(count - 1).ok() } else { None };
        count <= self.done.count + LITTLE_MESSAGES
            && end.is_some_and(|e| {
                e.segment == self.done.segment && e.end().saturating_sub(self.done.used) <= LITTLE_BYTES
            })
    }
}
