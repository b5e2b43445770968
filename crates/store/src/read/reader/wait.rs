//! Waiting for messages.

use crate::error::Result;
use crate::format::control_page::Head;
use crate::limits::{SPIN_LOOKS, SPIN_MAX};
use crate::live::protocol::{Bell, marked};
use crate::outside::media::{Map, Media};
use crate::read::attach::Control;
use crate::read::reader::Reader;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

impl Reader {
    /// Waits until there is something to read. False if the time was over first.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        let deadline = Instant::now() + timeout;
        if !self.options.spin.is_zero() && self.spin(timeout) {
            return Ok(true);
        }
        loop {
            if self.end() > self.next {
                return Ok(true);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            self.nap(left)?;
        }
    }

    /// Looks at the mark again and again, as long as asked for. True if there is something to read.
    fn spin(&self, timeout: Duration) -> bool {
        let Control::Live(map) = &self.control else { return false };
        let (_, mark) = self.awaited(map);
        let until = Instant::now() + self.options.spin.min(SPIN_MAX).min(timeout);
        loop {
            for _ in 0..SPIN_LOOKS {
                if marked(mark) > self.next {
                    return true;
                }
                std::hint::spin_loop();
            }
            if Instant::now() >= until {
                return false;
            }
        }
    }

    /// The bell of this reader, and the mark that it waits for.
    fn awaited<'a>(&self, map: &'a Map) -> (&'a AtomicU32, &'a AtomicU64) {
        let head = Head::of(map);
        if self.waits_for_disk() { (&head.disk_word, &head.disk) } else { (&head.count_word, &head.count) }
    }

    /// Sleeps until there is something to read, or for no reason, or for `most`. Then looks for a new writer.
    pub(in crate::read) fn nap(&mut self, most: Duration) -> Result<()> {
        if let Control::Live(map) = &self.control {
            let (word, _) = self.awaited(map);
            // A reader that cannot announce its sleep is not woken.
            let (seen, longest) = if self.pins.writable() {
                let asleep = self.pins.asleep(self.waits_for_disk());
                (Bell { word, asleep }.listen(), Duration::from_millis(250))
            } else {
                (word.load(Ordering::Acquire), Duration::from_millis(10))
            };
            if self.end() <= self.next {
                self.media.wait(word, seen, Some(most.min(longest)));
            }
        } else {
            // Not `sleep`: the thread of a watch can be told to end.
            std::thread::park_timeout(most.min(Duration::from_millis(50)));
        }
        self.refresh()
    }

    /// Wakes all who sleep on a control page: they look and go on sleeping.
    pub(in crate::read) fn wake_all(media: &dyn Media, map: &Map) {
        let head = Head::of(map);
        media.wake(&head.count_word);
        media.wake(&head.disk_word);
    }

    /// The control page that it looks at.
    pub(in crate::read) fn place(&self) -> Option<Arc<Map>> {
        if let Control::Live(map) = &self.control { Some(map.clone()) } else { None }
    }
}
