//! Retention: by bytes, by age, by free space. It retires whole payload segments, oldest first, and none that a counted
//! reader needs, except with `drop-oldest`.

use crate::error::{Error, Result};
use crate::format::entry::ENTRY_BYTES;
use crate::format::header::Level;
use crate::write::chain::KeptSegment;
use crate::write::options::WhenFull;
use crate::write::room::{BEHIND, HELD_BACK};
use crate::write::writer::Writer;
use std::sync::atomic::{Ordering, fence};

/// Shortest and longest interval between two checks for messages that are too old, ns.
const LOOK_FOR_OLD_NS: (i64, i64) = (1_000_000, 10_000_000_000);

impl Writer {
    /// Keeps a disk stream below `retain_bytes`, counting the segment that is to come.
    pub(super) fn retain(&mut self, coming: u64) -> Result<()> {
        let Some(limit) = self.options.retain_bytes else { return Ok(()) };
        loop {
            let segments = self.chain.closed_bytes() + self.payload.used;
            let index = (self.cursor.next() - self.first_sequence()) * ENTRY_BYTES as u64;
            if segments + index + coming <= limit || self.chain.len() < 2 {
                return Ok(());
            }
            self.release_oldest()?;
        }
    }

    /// Leaves `keep_free_bytes` on the disk beside the segment that is to come: a disk that is really full takes no
    /// commit either, and other programs have to live.
    pub(super) fn keep_free(&mut self, coming: u64) -> Result<()> {
        let Some(keep) = self.options.keep_free_bytes else { return Ok(()) };
        // Retired files must leave the disk before its free space is read again.
        if self.ring.kept.load(Ordering::Acquire) < self.first_sequence() {
            return Ok(());
        }
        let free = self.media.free(&self.folder).map_err(Error::io("ask for the room of", &self.folder))?;
        // Twice what comes: the room grows with each segment, and streams that see the same shortage of their disk do
        // not each make up for the whole of it.
        let mut missing = keep.saturating_add(coming).saturating_sub(free).min(coming.saturating_mul(2));
        while missing > 0 {
            let (Some(oldest), Some(then)) = (self.chain.oldest(), self.chain.second()) else {
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
    #[inline]
    pub(super) fn look_for_old(&mut self) {
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
        if !self.steady.is_stepping() && self.chain.second().is_some_and(|kept| kept.arrived > now) {
            // A message that arrived while the clock was ahead is no younger than now.
            self.chain.limit_arrivals(now);
        }
        let mut any = false;
        while let Some(&KeptSegment { number, first, arrived, .. }) = self.chain.second() {
            let wanted = self.options.when_full != WhenFull::DropOldest
                && self.pins.lowest_committed().is_some_and(|committed| committed < first);
            let unsafe_yet = self.header.level == Level::Disk && first > self.head().disk.load(Ordering::Acquire);
            if arrived > oldest || wanted || unsafe_yet || first > self.cursor.published() {
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
    pub(super) fn release_oldest(&mut self) -> Result<()> {
        let Some(&KeptSegment { number, first, .. }) = self.chain.second() else {
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
        if first > self.cursor.published() {
            // The oldest message that readers see must be published.
            self.publish();
        }
        self.retire_below(first, number);
        Ok(())
    }

    /// Retires all messages below `first`, which is in payload segment `number`.
    pub(super) fn retire_below(&mut self, first: u64, number: u32) {
        self.chain.retire_below(number);
        let index = (first / self.header.index_entries) as u32;
        let head = self.head();
        debug_assert!(head.first.load(Ordering::Relaxed) <= first, "retention never restores a message");
        debug_assert!(first <= self.cursor.published(), "a message is published before it is retired");
        debug_assert!(head.first_payload.load(Ordering::Relaxed) <= number && number <= self.payload.number);
        head.first.store(first, Ordering::Release);
        head.first_payload.store(number, Ordering::Release);
        head.first_index.store(index, Ordering::Release);
        self.ring.lock().keep = (first, number, index);
        fence(Ordering::SeqCst);
        self.ring.announce();
    }
}
