//! The position of a reader, and the one that is kept under its name.

use crate::error::{Error, Result};
use crate::live::pins::Pins;
use crate::read::reader::Reader;

impl Reader {
    /// Next sequence to be read.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Stands at another sequence.
    pub fn seek(&mut self, sequence: u64) {
        self.next = sequence;
    }

    /// True if the name existed: the reader resumes where it committed.
    pub fn resumed(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.is_named() && !held.new)
    }

    /// Position that was committed last.
    pub fn committed(&self) -> u64 {
        self.held.as_ref().map_or(self.next, |held| held.committed().0)
    }

    /// Keeps the position of a named reader: nothing below `next` is needed again.
    pub fn commit(&self, next: u64) {
        if let Some(held) = &self.held {
            held.commit(self.media.as_ref(), next, self.header.epoch_of(next.saturating_sub(1)));
        }
    }

    /// Keeps a position by its identity, which must be of the stream as it is now.
    pub fn commit_identity(&mut self, epoch: u32, next: u64) -> Result<()> {
        self.reattach()?;
        self.header.check_identity(epoch, next)?;
        if let Some(held) = &self.held {
            held.commit(self.media.as_ref(), next, epoch);
        }
        Ok(())
    }

    /// Removes a name for good, with its position; refused while a process reads under it. False if there is none.
    pub fn forget(&self, name: &str) -> Result<bool> {
        let m = self.media.as_ref();
        let pins = Pins::open(m, &self.folder)?;
        let alone = pins.lock(m, &self.folder)?;
        if let Some(reader) = pins.readers().into_iter().find(|r| r.name == name && pins.lives(m, r)) {
            return Err(Error::Taken { name: name.to_owned(), pid: reader.process.pid });
        }
        let found = !name.is_empty() && pins.free(m, name);
        drop(alone);
        if found {
            // Or a power cut brings back a place that nobody moves on any more. Where that fails it is no worse.
            let _ = pins.sync(m, &self.folder);
        }
        pins.moved(m);
        Ok(found)
    }
}
