//! Room in the live place: which segments come out of it, and the answer where none can.

use crate::error::{Error, Result};
use crate::format::header::Level;
use crate::live::protocol::give_up;
use crate::write::chain::KeptSegment;
use crate::write::options::WhenFull;
use crate::write::writer::Writer;
use std::sync::atomic::Ordering;

/// Why there is no room while the medium is behind.
pub(super) const BEHIND: &str = "the disk is slower than the source";
/// Why there is no room while a counted reader needs the oldest segment.
pub(super) const HELD_BACK: &str = "a reader has not moved on";

impl Writer {
    /// Frees old segments until a payload segment of `bytes` fits.
    pub(super) fn make_room(&mut self, bytes: u64) -> Result<()> {
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

    /// Bytes that the live place takes now, and whether a spare payload segment of this size is there.
    pub(super) fn live_bytes(&self, spare_of: u64) -> (u64, bool) {
        let ring = self.ring.lock();
        let used = ring.payload.iter().chain(&ring.index).map(|s| s.1.occupied()).sum::<u64>()
            + ring.spare_payload.iter().chain(&ring.spare_index).map(|s| s.occupied()).sum::<u64>();
        (used, ring.spare_payload.iter().any(|s| s.bytes() == spare_of))
    }

    /// Repeats an `attempt` for which shared memory had no room: `drop-oldest` frees the oldest segment before each
    /// repetition, `drop-newest` drops and counts the message. Where nothing is left to free the cause is returned.
    #[cold]
    pub(super) fn retry_with_room<T>(&mut self, mut why: Error, attempt: impl Fn(&mut Self) -> Result<T>) -> Result<T> {
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

    /// Publishes pushed messages and returns the error that `when_full` prescribes.
    pub(super) fn full(&mut self, why: Error) -> Error {
        self.publish();
        match self.options.when_full {
            WhenFull::Wait => why,
            WhenFull::DropOldest | WhenFull::DropNewest => {
                self.head().dropped.fetch_add(1, Ordering::Relaxed);
                Error::Dropped
            }
        }
    }

    /// True if a message for which there is no room is lost instead of waited for.
    pub fn drops(&self) -> bool {
        self.options.when_full != WhenFull::Wait
    }

    /// Names the reader that holds the oldest segment.
    #[cold]
    pub(super) fn behind(&self) -> Error {
        let Some(reader) = self.pins.slowest() else { return Error::Full(HELD_BACK) };
        let pid = self.pins.lives(self.media.as_ref(), &reader).then_some(reader.process.pid);
        let (at, lag) = (reader.committed, self.cursor.next().saturating_sub(reader.committed));
        Error::Behind { name: reader.name, pid, at, lag }
    }

    /// Unlinks warm segments, or, where there are none, the oldest one. False if nothing could be unlinked.
    fn free_oldest(&mut self) -> bool {
        if self.free_spares() {
            return true;
        }
        if self.header.level == Level::Memory
            && let Some(&KeptSegment { number, first, .. }) = self.chain.second()
        {
            if first > self.cursor.published() {
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

    /// Asks views of this stream to release messages of its oldest segment.
    pub(super) fn ask_views(&self) {
        if self.options.when_full != WhenFull::DropOldest
            && let Some(second) = self.chain.second()
        {
            self.pins.wanted().store(second.first, Ordering::Release);
        }
    }

    /// Takes payload segments out of the live place that need not be there: read on (memory) or on the medium (disk).
    pub(super) fn release_live_payload(&mut self) {
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
    pub(super) fn release_live_index(&mut self) {
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
}
