//! Room on the disk, asked for before libhdf5 writes: a full disk is then an error value and never its crash.
//!
//! libhdf5 cannot survive a write that fails (it ends with SIGSEGV when it closes the file). So every byte that it may
//! write lies below a place that `fallocate` has already given to the file; where the file system cannot do that, the
//! free space is asked for. What was asked for too much is given back when the file is finished.
//!
//! Chunks of growing datasets are written here as well, past libhdf5, without the page cache where that pays.

use crate::limits::ROOM_STEP_BYTES;
use flow::Fault;
use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Writes shorter than this go through the page cache: a direct one waits for the device each time.
const DIRECT_BYTES_MIN: usize = 256 << 10;
/// Alignment of direct writes in file and memory.
const PAGE: usize = 4096;

/// The file beside libhdf5's own handle.
#[derive(Debug)]
pub(crate) struct Room {
    path: PathBuf,
    file: File,
    /// Opened past the page cache, where the file system can.
    direct: Option<File>,
    /// Below here the file has its blocks.
    reserved: u64,
    step: u64,
    /// The last refusal was for want of room: it may heal.
    short: Cell<bool>,
}

impl Room {
    pub(crate) fn open(path: &Path) -> Result<Self, Fault> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(|e| Fault::new(format!("{} cannot be opened", path.display()), e))?;
        let direct = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path).ok();
        Ok(Self {
            path: path.to_path_buf(),
            file,
            direct,
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

    fn allot(&mut self, end: u64) -> Result<(), Fault> {
        let from = self.reserved;
        let (offset, length) = (from as libc::off_t, (end - from) as libc::off_t);
        loop {
            // SAFETY: our own open file; the call reads no memory.
            let answer = unsafe { libc::fallocate(self.file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, offset, length) };
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
        if unsafe { libc::fstatvfs(self.file.as_raw_fd(), &raw mut stat) } != 0 {
            return Err(self.no_room(&std::io::Error::last_os_error()));
        }
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        let needed = end - self.reserved;
        if free < needed + needed / 2 {
            return Err(self.no_room(&std::io::Error::from_raw_os_error(libc::ENOSPC)));
        }
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
        Fault::new(format!("there is no room for {}", self.path.display()), error)
            .hint("make room; writing goes on by itself, and until then the streams keep the data")
    }

    /// Writes a piece of a chunk. `bytes` is best on a page in memory.
    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.reserve(at + bytes.len() as u64)?;
        let mut rest = (at, bytes);
        let aligned = at.is_multiple_of(PAGE as u64) && bytes.as_ptr().addr().is_multiple_of(PAGE);
        if let (Some(direct), true, true) = (&self.direct, aligned, bytes.len() >= DIRECT_BYTES_MIN) {
            let whole = bytes.len() - bytes.len() % PAGE;
            match direct.write_all_at(&bytes[..whole], at) {
                Ok(()) => rest = (at + whole as u64, &bytes[whole..]),
                // Some file systems open so and write not.
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => self.direct = None,
                Err(e) => return Err(self.no_room(&e)),
            }
        }
        self.file.write_all_at(rest.1, rest.0).map_err(|e| self.no_room(&e))
    }

    /// After libhdf5 has set the length of the file, what was allotted past it may be gone.
    pub(crate) fn forget(&mut self, end: u64) {
        self.reserved = self.reserved.min(end);
    }

    /// Makes the file durable.
    pub(crate) fn sync(&self) -> Result<(), Fault> {
        self.file.sync_all().map_err(|e| Fault::new(format!("{} cannot be made durable", self.path.display()), e))
    }

    /// Whether something was refused for want of room since this was asked last.
    pub(crate) fn was_short(&self) -> bool {
        self.short.take()
    }

    /// Reads bytes back.
    pub(crate) fn read(&self, at: u64, bytes: usize) -> Result<Vec<u8>, Fault> {
        let mut out = vec![0; bytes];
        let read = self.file.read_exact_at(&mut out, at);
        read.map_err(|e| Fault::new(format!("{} cannot be read", self.path.display()), e))?;
        Ok(out)
    }

    /// Gives back what was allotted past the end.
    pub(crate) fn trim(&self) -> Result<(), Fault> {
        let trimmed = self.file.metadata().and_then(|m| self.file.set_len(m.len()));
        trimmed.map_err(|e| Fault::new(format!("{} cannot be closed", self.path.display()), e))
    }
}
