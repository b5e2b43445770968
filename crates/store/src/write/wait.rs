//! Waiting: until messages are safe, or until there may be room.

use crate::error::{Error, Result};
use crate::format::header::Level;
use crate::live::protocol::Bell;
use crate::write::writer::Writer;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Writer {
    /// How far messages are safe at a level: all below the returned sequence are.
    pub fn mark(&self, level: Level) -> u64 {
        match level {
            Level::Memory => self.cursor.published(),
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

    /// Whether `wait_room` would return at once: a counted reader or the disk has moved on since room was last looked
    /// for.
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
        if needed_from >= self.cursor.next() {
            return 0.0;
        }
        let mut needed = self.payload.used;
        let mut first = self.payload.first;
        for kept in self.chain.closed() {
            if first <= needed_from {
                break;
            }
            needed += kept.bytes;
            first = kept.first;
        }
        (needed as f64 / self.options.live_bytes as f64).min(1.0)
    }
}
