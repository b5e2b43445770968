//! The file beside libhdf5: room on the disk, and everything that is written.
//!
//! Room is reserved before anything is written (`fallocate`; where the file system cannot do that, by the free space),
//! so a full disk is an error value and nothing is half written. Excess room is released at the end.
//!
//! Chunks of growing datasets go through [`Lanes`]; the rest through the page cache.

use crate::hdf::hash_tree::Tree;
use crate::hdf::lanes::{Handles, Lanes, Load};
pub(crate) use crate::hdf::pages::PAGE;
use crate::hdf::pages::Pages;
use crate::limits::ROOM_STEP_BYTES;
use flow::Fault;
use std::cell::Cell;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file beside libhdf5's own handle.
pub(crate) struct FileHandle {
    path: PathBuf,
    file: Arc<Handles>,
    lanes: Lanes,
    /// Below here the file has its blocks.
    reserved: u64,
    step: u64,
    /// The last refusal was for want of room: it may heal.
    short: Cell<bool>,
}

impl FileHandle {
    pub(crate) fn open(path: &Path) -> Result<Self, Fault> {
        let cached = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(|e| Fault::new(format!("cannot open {}", path.display()), e))?;
        let direct = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path).ok();
        let file = Arc::new(Handles::new(cached, direct));
        Ok(Self {
            path: path.to_path_buf(),
            lanes: Lanes::new(file.clone()),
            file,
            reserved: 0,
            step: ROOM_STEP_BYTES.0,
            short: Cell::new(false),
        })
    }

    /// The file has another name now; its handles are the same.
    pub(crate) fn renamed(&mut self, path: &Path) {
        self.path = path.to_path_buf();
    }

    /// Makes sure that the file can be written up to `end`.
    pub(crate) fn reserve(&mut self, end: u64) -> Result<(), Fault> {
        if end <= self.reserved {
            return Ok(());
        }
        self.within_limit(end)?;
        // A little ahead, so that this is rare; on a nearly full disk only what is needed.
        let ahead = end + self.step;
        let wanted = if self.within_limit(ahead).is_ok() { ahead } else { end };
        self.step = (self.step * 2).min(ROOM_STEP_BYTES.1);
        self.allot(wanted).or_else(|_| self.allot(end))?;
        self.short.set(false);
        Ok(())
    }

    /// Up to here the file has its room.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved
    }

    fn allot(&mut self, end: u64) -> Result<(), Fault> {
        let from = self.reserved;
        let (offset, length) = (from as libc::off_t, (end - from) as libc::off_t);
        loop {
            // The length grows as well: direct writes behind the end of a file wait for each other.
            // SAFETY: our own open file; the call reads no memory.
            let answer = unsafe { libc::fallocate(self.file.cached.as_raw_fd(), 0, offset, length) };
            if answer == 0 {
                self.reserved = end;
                return Ok(());
            }
            let error = std::io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => (),
                Some(libc::EOPNOTSUPP | libc::ENOSYS) => return self.ask_free(end),
                _ => return Err(self.no_room(&error)),
            }
        }
    }

    /// For file systems that cannot allot: whether as much and half as much again is free.
    fn ask_free(&mut self, end: u64) -> Result<(), Fault> {
        // SAFETY: a plain struct of numbers, filled by the call.
        let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
        // SAFETY: our own open file and a place for the answer.
        if unsafe { libc::fstatvfs(self.file.cached.as_raw_fd(), &raw mut stat) } != 0 {
            return Err(self.no_room(&std::io::Error::last_os_error()));
        }
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        let needed = end - self.reserved;
        if free < needed + needed / 2 {
            return Err(self.no_room(&std::io::Error::from_raw_os_error(libc::ENOSPC)));
        }
        let length = self.file.cached.metadata().map(|m| m.len().max(end));
        length.and_then(|length| self.file.cached.set_len(length)).map_err(|e| self.no_room(&e))?;
        self.reserved = end;
        Ok(())
    }

    /// The process may have a limit on the size of files (`ulimit -f`).
    fn within_limit(&self, end: u64) -> Result<(), Fault> {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a place for the answer.
        let known = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) } == 0;
        if known && limit.rlim_cur != libc::RLIM_INFINITY && end > limit.rlim_cur {
            return Err(self.no_room(&std::io::Error::from_raw_os_error(libc::EFBIG)));
        }
        Ok(())
    }

    fn no_room(&self, error: &std::io::Error) -> Fault {
        self.short.set(true);
        Fault::new(format!("no space for {}", self.path.display()), error)
            .hint("free some space: writing then resumes; until then the streams keep the data")
    }

    /// The file at `path` beside this one cannot be written.
    pub(crate) fn refused(&self, path: &Path, error: &std::io::Error) -> Fault {
        if matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG)) {
            self.short.set(true);
            return Fault::new(format!("no space for {}", path.display()), error)
                .hint("free some space: writing then resumes; until then the streams keep the data");
        }
        Fault::new(format!("cannot write {}", path.display()), error)
    }

    /// Writes rows now that the file does not count yet.
    pub(crate) fn put_rows(&mut self, at: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.reserve(at + bytes.len() as u64)?;
        self.file.put(at, bytes).map_err(|e| self.no_room(&e))
    }

    /// Writes now.
    pub(crate) fn put(&mut self, at: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.put_rows(at, bytes)?;
        #[cfg(test)]
        crate::hdf::look::look_between(&self.path);
        Ok(())
    }

    /// Writes soon; the load is taken in any case, an error is of an earlier one.
    pub(crate) fn give(&mut self, load: Load) -> Result<(), Fault> {
        self.lanes.give(load).map_err(|e| self.no_room(&e))
    }

    /// Waits for what was given.
    pub(crate) fn settle(&self) -> Result<(), Fault> {
        self.lanes.settle().map_err(|e| self.no_room(&e))
    }

    /// An empty buffer.
    pub(crate) fn buffer(&self) -> Pages {
        self.lanes.buffer()
    }

    /// Makes the file durable.
    pub(crate) fn sync(&self) -> Result<(), Fault> {
        self.file.cached.sync_data().map_err(|e| Fault::new(format!("cannot sync {}", self.path.display()), e))
    }

    /// Whether something was refused for want of room since this was asked last.
    pub(crate) fn was_short(&self) -> bool {
        self.short.take()
    }

    /// Reads bytes back.
    pub(crate) fn read(&self, at: u64, bytes: usize) -> Result<Vec<u8>, Fault> {
        let mut out = vec![0; bytes];
        self.read_into(at, &mut out)?;
        Ok(out)
    }

    /// Reads bytes back: all of them.
    pub(crate) fn read_into(&self, at: u64, out: &mut [u8]) -> Result<(), Fault> {
        let read = self.file.cached.read_exact_at(out, at);
        read.map_err(|e| Fault::new(format!("cannot read {}", self.path.display()), e))
    }

    /// Bytes of the file now.
    pub(crate) fn length(&self) -> Result<u64, Fault> {
        let known = self.file.cached.metadata();
        known.map(|m| m.len()).map_err(|e| Fault::new(format!("cannot read {}", self.path.display()), e))
    }

    /// Returns the known hashes of the file, when everything is written.
    pub(crate) fn take_tree(&self) -> Tree {
        self.file.take_tree()
    }

    /// Ends the file there: what was allotted beyond is given back.
    pub(crate) fn trim(&self, end: u64) -> Result<(), Fault> {
        let trimmed = self.file.cached.set_len(end);
        trimmed.map_err(|e| Fault::new(format!("cannot close {}", self.path.display()), e))
    }
}
