//! The outside of the store: files, maps, waiting, time. The same code runs on the operating system ([`Os`]) and on
//! testkit's simulated disk, which discards unsynced data at a power cut.
//!
//! Constraints: a map stays valid until it is dropped, even if the file is renamed or unlinked; `sync` returns only
//! when earlier writes are on the medium; names are durable only after `sync_dir`.

use std::any::Any;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

pub use crate::limits::LOCKS_FROM;

/// Who a process is: the pid alone is used again, with its start time it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Start time in the units of the system.
    pub start: u64,
}

/// A piece of memory that is a file. Sent between threads; unmapped when dropped.
pub struct Map {
    ptr: *mut u8,
    len: usize,
    /// Keeps the memory alive: its drop unmaps.
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: a map is plain memory; every access to it goes through atomics or through ranges that the publish
// protocol gives to one side only (see `writer` and `reader`).
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// A map over memory that `owner` keeps alive.
    ///
    /// # Safety
    /// `ptr..ptr+len` must stay valid for reads (and for writes, if the map was asked for writing) until `owner` is dropped.
    pub unsafe fn new(ptr: *mut u8, len: usize, owner: Box<dyn Any + Send + Sync>) -> Self {
        Self { ptr, len, _owner: owner }
    }

    /// Memory of our own, all zero; pages that are not touched cost nothing.
    pub(crate) fn zeroed(len: usize) -> Self {
        let layout = std::alloc::Layout::from_size_align(len.max(1), 4096).unwrap_or(std::alloc::Layout::new::<u64>());
        // SAFETY: the layout has a size; a null pointer ends the process as any allocation that fails does.
        let ptr = unsafe { std::alloc::alloc_zeroed(layout) };
        if ptr.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        // SAFETY: allocated with room for `len` until the owner gives it back.
        unsafe { Self::new(ptr, len, Box::new(Allocated(ptr as usize, layout))) }
    }

    /// First byte.
    pub fn ptr(&self) -> *mut u8 {
        self.ptr
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Memory that goes back where it came from.
struct Allocated(usize, std::alloc::Layout);

impl Drop for Allocated {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and nothing refers to it any more.
        unsafe { std::alloc::dealloc(self.0 as *mut u8, self.1) };
    }
}

/// One open file.
pub trait File: Send + Sync {
    /// Bytes.
    fn len(&self) -> io::Result<u64>;
    /// True if it has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Sets the length; new bytes read as zero and are not yet allocated.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Allocates a range, so that writing it through a map cannot fail; extends the file if it is shorter.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Reads up to `buf.len()` bytes; short only at the end.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// The same of whole 4 KiB blocks, past the page cache where the file system can: several times as fast for what was
    /// written past it. `buf` lies on 4 KiB.
    fn read_blocks(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buf, offset)
    }
    /// Writes all bytes.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Writes whole 4 KiB blocks past the page cache where the file system can (else like `write_at`).
    fn write_blocks(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Data (and the length) to the medium: fdatasync.
    fn sync(&self) -> io::Result<()>;
    /// Maps the first `len` bytes, shared.
    fn map(&self, len: usize, write: bool) -> io::Result<Map>;
    /// Brings a range of a map of the file into memory, so that a sector that cannot be read, or an end that somebody cut
    /// off, is an error here and not a signal at the first touch.
    fn bring(&self, map: &Map, at: u64, len: u64) -> io::Result<()>;
    /// An identity that stays the same when the file is renamed, and differs between files.
    fn identity(&self) -> u64;
    /// False once no name leads to it: its memory lives only as long as its maps.
    fn linked(&self) -> bool;
}

/// Locks of single bytes of one file, which the kernel gives back when the process that holds them ends: in each pid
/// namespace it is right about who lives, whatever numbers processes have.
///
/// Constraints: a lock belongs to this value, not to the process: another value of the same process is refused too. A
/// child that is forked has none of its parent's locks and takes its own.
pub trait Locks: Send + Sync {
    /// Takes the lock of a byte, which may lie behind the end of the file. False if somebody else has it.
    fn lock(&self, at: u64) -> io::Result<bool>;
    /// Gives it back.
    fn unlock(&self, at: u64);
    /// True if somebody else has the lock of this byte.
    fn is_locked(&self, at: u64) -> io::Result<bool>;
    /// Data of the file to the medium.
    fn sync(&self) -> io::Result<()>;
}

/// A block as O_DIRECT wants it.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(4096))]
pub(crate) struct Block(pub(crate) [u8; 4096]);

/// [`File::read_at`] of a medium that may fail once and give the bytes then.
pub(crate) fn read_again(file: &dyn File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut answer = file.read_at(buf, offset);
    for _ in 1..crate::limits::READ_TRIES {
        if answer.is_err() {
            answer = file.read_at(buf, offset);
        }
    }
    answer
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// Existing, for reading.
    Read,
    /// Existing, for reading and writing.
    Write,
    /// New or existing, for reading and writing.
    Create,
}

/// The outside.
pub trait Media: Send + Sync {
    /// Opens a file.
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>>;
    /// Gives a file another name, replacing what had it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a name.
    fn unlink(&self, path: &Path) -> io::Result<()>;
    /// Names in a folder; empty if there is none.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Makes a folder and its parents, mode 0750.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// Removes an empty folder.
    fn remove_dir(&self, dir: &Path) -> io::Result<()>;
    /// Makes names in a folder durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// The locks of single bytes of an existing file. `write`: to take them; else to see them only.
    fn locks(&self, path: &Path, write: bool) -> io::Result<Arc<dyn Locks>>;
    /// Takes the lock of a file for as long as the returned value lives; `WouldBlock` if somebody has it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Any + Send + Sync>>;
    /// Sleeps until `word` is woken, unless it no longer holds `expected`.
    fn wait(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>);
    /// Wakes all who sleep on `word`.
    fn wake(&self, word: &AtomicU32);
    /// A new eventfd of this process, low, that never blocks.
    fn event(&self) -> io::Result<OwnedFd>;
    /// Nanoseconds since 1970 UTC. The operator and NTP set it: no duration follows from it.
    fn now(&self) -> i64;
    /// Nanoseconds of the monotonic clock, from any origin: for time-outs and pauses.
    fn clock(&self) -> i64;
    /// This process.
    fn process(&self) -> Process;
    /// True if that process lives.
    fn alive(&self, process: Process) -> bool;
    /// An identity of the namespace of pids.
    fn pid_space(&self) -> u64;
    /// Sixteen bytes that differ between starts of the machine.
    fn boot(&self) -> [u8; 16];
    /// What differs between machines, also where their disks are copies: text without blanks.
    fn machine(&self) -> String;
    /// Sixteen random bytes.
    fn random(&self) -> [u8; 16];
    /// Processes with the same number see the same files under the same paths.
    fn mounts(&self) -> u64;
    /// Processes with the same number have the same shared memory.
    fn shared_memory(&self) -> u64;
    /// Where live places of disk streams are made: a folder in shared memory.
    fn live_root(&self) -> std::path::PathBuf;
    /// Gives a live place to the group with which the data folder of its stream is shared.
    fn share_live(&self, _live: &Path, _folder: &Path) -> io::Result<()> {
        Ok(())
    }
    /// Bytes that may still be written to the file system of a folder.
    fn free(&self, dir: &Path) -> io::Result<u64>;
    /// Bytes that the files of a folder take on their device, without those of folders inside it; 0 if there is no such
    /// folder.
    fn occupied(&self, dir: &Path) -> io::Result<u64>;
    /// True if the folder lies in memory already, so that it can be its own live place.
    fn in_memory(&self, dir: &Path) -> bool;
}
