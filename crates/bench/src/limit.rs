//! The limits: what the machine itself can do, as plain programs. Each touches the same bytes in pieces of the same
//! size as the product beside it, in memory or files of the same state.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Bytes of a segment of the limits: as the store's own.
pub(crate) const SEGMENT_BYTES: usize = 64 << 20;

/// Memory that starts on a page.
pub(crate) struct Pages {
    ptr: *mut u8,
    len: usize,
}

impl Pages {
    fn map(file: Option<&File>, len: usize) -> io::Result<Self> {
        let flags = if file.is_some() { libc::MAP_SHARED } else { libc::MAP_PRIVATE | libc::MAP_ANONYMOUS };
        let descriptor = file.map_or(-1, AsRawFd::as_raw_fd);
        // SAFETY: a new map; the kernel picks the place.
        let ptr =
            unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, descriptor, 0) };
        if ptr == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self { ptr: ptr.cast(), len }) }
    }

    /// Memory of this process, filled with bytes that differ.
    pub(crate) fn filled(len: usize) -> io::Result<Self> {
        let mut pages = Self::map(None, len)?;
        for (i, word) in pages.bytes_mut().chunks_mut(8).enumerate() {
            let value = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
            word.copy_from_slice(&value[..word.len()]);
        }
        Ok(pages)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for `len` bytes for as long as `self` lives; only `&mut self` writes.
        unsafe { std::slice::from_raw_parts(self.ptr, self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.ptr, self.len) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and nothing borrows it any more.
        unsafe { libc::munmap(self.ptr.cast(), self.len) };
    }
}

/// Shared memory in segments, as a memory stream has it: files in `/dev/shm`, all pages touched, written round and round.
pub(crate) struct Ring {
    segments: Vec<Pages>,
    number: usize,
    used: usize,
}

impl Ring {
    pub(crate) fn new(folder: &Path, segments: usize) -> io::Result<Self> {
        let segments = (0..segments).map(|number| {
            let path = folder.join(format!("m-{number:08x}"));
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
            file.set_len(SEGMENT_BYTES as u64)?;
            let mut pages = Pages::map(Some(&file), SEGMENT_BYTES)?;
            pages.bytes_mut().fill(1);
            Ok(pages)
        });
        Ok(Self { segments: segments.collect::<io::Result<_>>()?, number: 0, used: 0 })
    }

    /// The limit of an append: glibc `memcpy` of `count` pieces, each starting on 64 bytes as the store's do.
    pub(crate) fn memcpy(&mut self, piece: &[u8], count: u64) {
        for _ in 0..count {
            if self.used + piece.len() > SEGMENT_BYTES {
                self.number = (self.number + 1) % self.segments.len();
                self.used = 0;
            }
            // SAFETY: room was made; the piece is no part of the ring.
            unsafe {
                let to = self.segments[self.number].ptr.add(self.used);
                libc::memcpy(to.cast(), piece.as_ptr().cast(), piece.len());
            }
            self.used = (self.used + piece.len()).next_multiple_of(64);
        }
    }
}

/// Files on the disk that were written whole before, and are written again round and round.
pub(crate) struct Recycled {
    files: Vec<File>,
    at: usize,
}

impl Recycled {
    pub(crate) fn new(folder: &Path, name: &str, segments: usize, direct: bool) -> io::Result<Self> {
        let flags = if direct { libc::O_DIRECT } else { 0 };
        let fill = Pages::filled(4 << 20)?;
        let files = (0..segments).map(|number| {
            let path = folder.join(format!("{name}-{number:08x}"));
            let file = OpenOptions::new().read(true).write(true).create_new(true).custom_flags(flags).open(path)?;
            for at in (0..SEGMENT_BYTES).step_by(fill.len) {
                file.write_all_at(fill.bytes(), at as u64)?;
            }
            file.sync_all()?;
            Ok(file)
        });
        Ok(Self { files: files.collect::<io::Result<_>>()?, at: 0 })
    }

    /// The limit of a disk stream: `bytes` in writes of `piece`, with fdatasync at the end of each segment.
    /// `bytes` and the segment are multiples of the piece.
    pub(crate) fn write(&mut self, piece: &[u8], bytes: u64) -> io::Result<()> {
        for _ in 0..bytes / piece.len() as u64 {
            let (number, offset) = (self.at / SEGMENT_BYTES, self.at % SEGMENT_BYTES);
            let file = &self.files[number];
            file.write_all_at(piece, offset as u64)?;
            self.at = (self.at + piece.len()) % (self.files.len() * SEGMENT_BYTES);
            if offset + piece.len() == SEGMENT_BYTES {
                file.sync_data()?;
            }
        }
        if self.at.is_multiple_of(SEGMENT_BYTES) { Ok(()) } else { self.files[self.at / SEGMENT_BYTES].sync_data() }
    }
}

/// What a new file costs: `bytes` in writes of `piece` past the page cache, by two threads into room that was asked for
/// before, then fdatasync.
pub(crate) fn write_new(path: &Path, piece: &[u8], bytes: u64) -> io::Result<()> {
    let open = OpenOptions::new().write(true).create_new(true).custom_flags(libc::O_DIRECT).open(path)?;
    // SAFETY: our own open file; the call reads no memory.
    if unsafe { libc::fallocate(open.as_raw_fd(), 0, 0, bytes as libc::off_t) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let lane = |first: usize| {
        let mut places = (0..bytes).step_by(piece.len()).skip(first).step_by(2);
        places.try_for_each(|place| open.write_all_at(piece, place))
    };
    std::thread::scope(|threads| {
        let other = threads.spawn(|| lane(1));
        lane(0)?;
        other.join().map_err(|_| io::Error::other("a thread of the limit died"))?
    })?;
    open.sync_data()
}

/// The limit of a reader: one pass of the checksum over the payload segments of a stream, `bytes` in all.
pub(crate) struct Pass {
    segments: Vec<Pages>,
}

impl Pass {
    /// Maps the payload segments in `folder` and touches them.
    pub(crate) fn new(folder: &Path) -> io::Result<Self> {
        let mut names: Vec<_> = std::fs::read_dir(folder)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("p-")))
            .collect();
        names.sort();
        let segments = names.iter().map(|path| {
            let file = OpenOptions::new().read(true).write(true).open(path)?;
            let len = file.metadata()?.len() as usize;
            Pages::map(Some(&file), len)
        });
        let pass = Self { segments: segments.collect::<io::Result<_>>()? };
        pass.run(u64::MAX);
        Ok(pass)
    }

    /// Bytes passed over and a value that depends on all of them.
    pub(crate) fn run(&self, mut bytes: u64) -> (u64, u32) {
        let mut seen = (0, 0);
        for segment in &self.segments {
            let part = &segment.bytes()[..(segment.len as u64).min(bytes) as usize];
            bytes -= part.len() as u64;
            seen = (seen.0 + part.len() as u64, seen.1 ^ store::crc32c(part));
        }
        seen
    }
}
