//! The writes of libhdf5: held in memory until a flush, then written so that the file is valid after every single
//! write.
//!
//! A file driver of our own stands between libhdf5 and the file. libhdf5 writes at a flush, in the order of addresses;
//! a process killed in between would leave datasets longer than the index of their chunks (a reader then sees rows that
//! nobody wrote), or columns of different lengths. So nothing of it reaches the file before [`Metadata::apply`]:
//!
//! 1. Blocks that nothing on disk names yet: new objects, new nodes, small data. Then a sync, with it the rows.
//! 2. Blocks that are there already, those first that only add: the superblock (how long the file is), heaps, then trees
//!    from the root down (a node that was split loses its half only when its parent knows the other).
//! 3. Object headers: they say how many rows there are. All that lie in one page go in one write.
//!
//! A node that was split loses its half only after [`SPLIT_REST`], since a reader may come to it much later than to its
//! parent; when the file is closed, all do. After a kill [`chunk_tree::mend`](crate::hdf::chunk_tree::mend) shortens them.
//!
//! * A write inside one page happens or does not: the kernel looks for a kill between pages only.
//! * So [`Metadata::allot`] puts no small block across pages, object headers in pages of their own, and those of one module
//!   together ([`Metadata::together`]): its columns are equally long at every moment.
//! * Released blocks are not used again (file space strategy `NONE`): an old block stays what old pointers to it say.
//! * [`Apply::Laid`] leaves the headers of step 3 held back: new datasets appear, empty, and no row with them.
//!   [`Apply::Cut`] turns the order round, since rows go before the chunks do.
//!
//! Not covered: a block larger than a page that changes in place (a heap of texts), and groups of more than
//! [`NAMES_IN_HEADER`](crate::limits::NAMES_IN_HEADER) names, which are a tree and a heap. Those change when something is
//! made, not when rows come.
//!
//! Failure: libhdf5 never sees a write fail. No room is a [`Fault`] of `apply`, and the same call goes on when there is.
//! Reads come from the file, with what is held laid over it.

use crate::hdf::chunk_tree;
use crate::hdf::h5::{Hid, call};
use crate::hdf::handle::{FileHandle, PAGE};
use crate::limits::{AHEAD_BYTES_MIN, AHEAD_PART, METADATA_BLOCK_BYTES, SPLIT_NODES_MAX, SPLIT_REST};
use flow::Fault;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

const PAGE_BYTES: u64 = PAGE as u64;

/// The purpose of a block; the numbers are libhdf5's (`H5FD_mem_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Super,
    Tree,
    Data,
    GlobalHeap,
    LocalHeap,
    Header,
}

impl Kind {
    fn of(number: c_int) -> Self {
        match number {
            2 => Kind::Tree,
            3 => Kind::Data,
            4 => Kind::GlobalHeap,
            5 => Kind::LocalHeap,
            6 => Kind::Header,
            // 0 (`default`) is not used for blocks.
            _ => Kind::Super,
        }
    }
}

struct Piece {
    kind: Kind,
    bytes: Vec<u8>,
}

impl Piece {
    /// Place among the blocks that are there already.
    fn rank(&self) -> u32 {
        match self.kind {
            Kind::Super => 0,
            Kind::Data | Kind::LocalHeap | Kind::GlobalHeap => 1,
            // `TREE`, type, level; leaves are level 0. The nodes of names (`SNOD`) hang below them.
            Kind::Tree if self.bytes.starts_with(b"TREE") => 2 + 255 - u32::from(self.bytes[5]),
            Kind::Tree => 300,
            Kind::Header => 400,
        }
    }
}

/// What [`Metadata::apply`] is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Apply {
    /// Datasets became longer, or something was added.
    Grown,
    /// Something was added; how many rows there are stays as it is on disk.
    Laid,
    /// Datasets became shorter.
    Cut,
    /// libhdf5 has closed the file: nothing is held back.
    Closed,
}

/// Where small blocks go: on from here, up to there.
#[derive(Default)]
struct BlockCursor {
    at: u64,
    end: u64,
}

/// The held writes of one open file.
pub(crate) struct Metadata {
    file: File,
    /// Length of the file when it was opened.
    length: u64,
    /// Where libhdf5 would put the next byte.
    end: u64,
    pieces: BTreeMap<u64, Piece>,
    /// Bytes of the pieces.
    held_bytes: u64,
    /// Blocks that nothing on disk names: begin to end.
    fresh: BTreeMap<u64, u64>,
    headers: BlockCursor,
    others: BlockCursor,
    /// Nodes that were split and still have all entries on disk.
    split: BTreeMap<u64, Split>,
    /// How often [`Metadata::apply`] told the file all of it.
    applied: u64,
    /// Bytes of chunks that libhdf5 hands over now are written past it; the next of them may have a place already.
    past: Option<Past>,
}

/// A node that was split.
#[derive(Clone)]
struct Split {
    since: Instant,
    /// The bytes that are written in its place, once.
    instead: Option<Vec<u8>>,
}

/// Chunks that are written past libhdf5.
#[derive(Default)]
struct Past {
    /// Place and bytes of the next one, where it has one.
    next: Option<(u64, u64)>,
    /// Where the last one lies.
    lies: Option<u64>,
}

/// Shared by the driver and the sink.
pub(crate) type Held = Arc<Mutex<Metadata>>;

/// Nothing panics while it holds the lock, except out of memory, which ends the process.
pub(crate) fn lock(held: &Held) -> MutexGuard<'_, Metadata> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Metadata {
    fn new(file: File) -> std::io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(Self {
            file,
            length,
            end: 0,
            pieces: BTreeMap::new(),
            held_bytes: 0,
            fresh: BTreeMap::new(),
            headers: BlockCursor::default(),
            others: BlockCursor::default(),
            split: BTreeMap::new(),
            applied: 0,
            past: None,
        })
    }

    /// Everything that libhdf5 knows of lies below.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// How often all that libhdf5 knew came into the file: what it gave back before is free to be written on since.
    pub(crate) fn applied(&self) -> u64 {
        self.applied
    }

    /// From here on libhdf5 says only where chunks lie, and how long they are; the next one of `bytes` lies at `place`.
    pub(crate) fn begin_past(&mut self, place: Option<u64>, bytes: u64) {
        self.past = Some(Past { next: place.map(|place| (place, bytes)), lies: None });
    }

    /// Holds the writes of libhdf5 again; returns the place of the last chunk.
    pub(crate) fn end_past(&mut self) -> Option<u64> {
        self.past.take().and_then(|past| past.lies)
    }

    /// Bytes that wait in memory.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// The object headers that come next, `bytes` of them, lie in one page.
    pub(crate) fn together(&mut self, bytes: u64) {
        if self.headers.at % PAGE_BYTES + bytes > PAGE_BYTES {
            self.headers.at = self.headers.at.next_multiple_of(PAGE_BYTES);
        }
    }

    /// A place for a block that libhdf5 wants.
    fn allot(&mut self, kind: Kind, bytes: u64) -> u64 {
        if kind == Kind::Data
            && let Some(past) = &mut self.past
            && let Some((place, _)) = past.next.take_if(|(_, wanted)| *wanted == bytes)
        {
            return place;
        }
        let at = if bytes > PAGE_BYTES || (kind == Kind::Data && bytes == PAGE_BYTES) {
            // Chunks are written past the page cache, which wants pages.
            let at = self.end.next_multiple_of(PAGE_BYTES);
            self.end = at + bytes;
            at
        } else {
            let place = if kind == Kind::Header { &mut self.headers } else { &mut self.others };
            let mut at = place.at.next_multiple_of(8);
            if at % PAGE_BYTES + bytes > PAGE_BYTES {
                at = at.next_multiple_of(PAGE_BYTES);
            }
            // Never up to the very end: libhdf5 lengthens a block that ends where the file ends, and across pages.
            if at + bytes >= place.end {
                at = self.end.next_multiple_of(PAGE_BYTES);
                self.end = at + METADATA_BLOCK_BYTES;
                place.end = self.end;
            }
            place.at = at + bytes;
            at
        };
        if kind != Kind::Data {
            self.fresh.insert(at, at + bytes);
        }
        at
    }

    fn is_fresh(&self, at: u64) -> bool {
        self.fresh.range(..=at).next_back().is_some_and(|(_, end)| at < *end)
    }

    fn hold(&mut self, kind: Kind, at: u64, bytes: &[u8]) {
        let end = at + bytes.len() as u64;
        let mut piece = Piece { kind, bytes: bytes.to_vec() };
        let mut first = at;
        // A block that is written in other parts than before: one piece of both.
        for other in self.overlapping(at, end) {
            let Some(old) = self.take_piece(other) else { continue };
            let (begin, finish) =
                (other.min(first), (other + old.bytes.len() as u64).max(first + piece.bytes.len() as u64));
            let mut whole = vec![0; (finish - begin) as usize];
            for (at, part) in [(other, &old.bytes), (first, &piece.bytes)] {
                whole[(at - begin) as usize..][..part.len()].copy_from_slice(part);
            }
            (first, piece.bytes) = (begin, whole);
        }
        self.held_bytes += piece.bytes.len() as u64;
        self.split.remove(&first);
        self.pieces.insert(first, piece);
    }

    fn take_piece(&mut self, at: u64) -> Option<Piece> {
        let piece = self.pieces.remove(&at)?;
        self.held_bytes -= piece.bytes.len() as u64;
        Some(piece)
    }

    /// Begins of the pieces that have bytes between `at` and `end`.
    fn overlapping(&self, at: u64, end: u64) -> Vec<u64> {
        let before = self.pieces.range(..at).next_back().filter(|(first, p)| *first + p.bytes.len() as u64 > at);
        before.into_iter().chain(self.pieces.range(at..end)).map(|(first, _)| *first).collect()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> std::io::Result<()> {
        let mut done = 0;
        while done < out.len() {
            match self.file.read_at(&mut out[done..], at + done as u64) {
                // Past the end of the file there is nothing yet.
                Ok(0) => {
                    out[done..].fill(0);
                    break;
                }
                Ok(bytes) => done += bytes,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => (),
                Err(e) => return Err(e),
            }
        }
        let end = at + out.len() as u64;
        for first in self.overlapping(at, end) {
            let bytes = &self.pieces[&first].bytes;
            let (from, to) = (first.max(at), (first + bytes.len() as u64).min(end));
            out[(from - at) as usize..(to - at) as usize]
                .copy_from_slice(&bytes[(from - first) as usize..(to - first) as usize]);
        }
        Ok(())
    }

    /// Writes what is held; what that is, libhdf5 says at its own flush, before.
    ///
    /// The superblock says that the file ends a little later, where it has room: libhdf5 refuses a reader all that lies behind
    /// the end that it read when it opened the file, and a file that grows may do so until it looks at a dataset.
    pub(crate) fn apply(&mut self, handle: &mut FileHandle, what: Apply) -> Result<(), Fault> {
        handle.reserve(self.end)?;
        if what != Apply::Cut
            && let Some(first) = self.pieces.get_mut(&0)
        {
            let ahead = self.end + (self.end / AHEAD_PART).max(AHEAD_BYTES_MIN);
            put_end(&mut first.bytes, ahead.min(handle.reserved()).max(self.end));
        }
        let is_new = |at: &u64, piece: &Piece| what != Apply::Cut && (piece.kind == Kind::Data || self.is_fresh(*at));
        let (new, mut placed): (Vec<_>, Vec<_>) = self.pieces.iter().partition(|(at, piece)| is_new(at, piece));
        for (at, piece) in &new {
            handle.put(**at, &piece.bytes)?;
        }
        handle.sync()?;
        placed.retain(|(_, piece)| what != Apply::Laid || piece.kind != Kind::Header);
        let mut split = self.held_back(handle, what, &placed)?;
        placed.retain(|(at, _)| split.get(at).is_none_or(|node| node.instead.is_some()));
        placed.sort_by_key(|(at, piece)| match (what, piece.kind) {
            (Apply::Cut, Kind::Header) => (0, **at),
            _ => (1 + piece.rank(), **at),
        });
        let mut rest = &placed[..];
        while let [(at, piece), ..] = rest {
            let page = **at / PAGE_BYTES;
            let in_page = |(other, p): &&(&u64, &Piece)| {
                p.kind == Kind::Header && (**other + p.bytes.len() as u64 - 1) / PAGE_BYTES == page
            };
            let count = rest.iter().take_while(in_page).count();
            let last = &rest[count.max(1) - 1];
            if count > 1 {
                let mut whole = handle.read(**at, (last.0 - **at) as usize + last.1.bytes.len())?;
                for (other, part) in &rest[..count] {
                    whole[(*other - **at) as usize..][..part.bytes.len()].copy_from_slice(&part.bytes);
                }
                handle.put(**at, &whole)?;
            } else {
                let instead = split.get_mut(at).and_then(|node| node.instead.take());
                handle.put(**at, instead.as_ref().unwrap_or(&piece.bytes))?;
            }
            rest = &rest[count.max(1)..];
        }
        let done: Vec<u64> = new.iter().chain(&placed).map(|(at, _)| **at).collect();
        for at in done.into_iter().filter(|at| !split.contains_key(at)) {
            self.take_piece(at);
        }
        self.split = split;
        self.fresh.clear();
        self.applied += u64::from(what != Apply::Laid);
        Ok(())
    }

    /// Those of the nodes that lose entries now and on disk later.
    fn held_back(
        &self,
        handle: &FileHandle,
        what: Apply,
        placed: &[(&u64, &Piece)],
    ) -> Result<BTreeMap<u64, Split>, Fault> {
        let (mut out, now) = (BTreeMap::new(), Instant::now());
        if matches!(what, Apply::Cut | Apply::Closed) {
            return Ok(out);
        }
        for (at, piece) in placed {
            let node = match self.split.get(at) {
                Some(node) => node.clone(),
                None if chunk_tree::head(&piece.bytes).is_none() => continue,
                None => {
                    let before = handle.read(**at, piece.bytes.len())?;
                    let Some(whole) = chunk_tree::with_tail(&before, &piece.bytes) else { continue };
                    Split { since: now, instead: (whole != before).then_some(whole) }
                }
            };
            if now.duration_since(node.since) < SPLIT_REST {
                out.insert(**at, node);
            }
        }
        while out.len() > SPLIT_NODES_MAX {
            let Some(oldest) = out.iter().min_by_key(|(_, node)| node.since).map(|(at, _)| *at) else { break };
            out.remove(&oldest);
        }
        Ok(out)
    }

    /// Has a file that libhdf5 has closed say where it ends, and ends it there.
    pub(crate) fn trim(&self, handle: &mut FileHandle) -> Result<(), Fault> {
        let mut first = handle.read(0, SUPERBLOCK_BYTES)?;
        put_end(&mut first, self.end);
        handle.put(0, &first)?;
        handle.sync()?;
        handle.trim(self.end)
    }
}

const SUPERBLOCK_BYTES: usize = 48;

/// Sets the end of the file in a superblock of version 2 or 3 (HDF5 File Format Specification, II.A: addresses of 8 bytes,
/// that of the end is the third, and the last word is a sum over all before). Ours have no other.
fn put_end(superblock: &mut [u8], end: u64) {
    unsafe extern "C" {
        /// Jenkins' lookup3, as libhdf5 has it for its own blocks.
        fn H5_checksum_lookup3(bytes: *const c_void, length: usize, begin: u32) -> u32;
    }
    if superblock.len() < SUPERBLOCK_BYTES || !matches!(superblock[8], 2 | 3) || superblock[9] != 8 {
        return;
    }
    superblock[28..36].copy_from_slice(&end.to_le_bytes());
    // SAFETY: a function of the library that only reads so many bytes.
    let sum = unsafe { H5_checksum_lookup3(superblock.as_ptr().cast(), SUPERBLOCK_BYTES - 4, 0) };
    superblock[44..SUPERBLOCK_BYTES].copy_from_slice(&sum.to_le_bytes());
}

/// `H5FD_class_t` of HDF5 2.2; the binding has that of 1.12, in which the fields lie elsewhere.
#[repr(C)]
struct Class {
    version: c_uint,
    value: c_int,
    name: *const c_char,
    address_max: u64,
    close_degree: c_int,
    unused_1: [Option<extern "C" fn()>; 4],
    list_bytes: usize,
    unused_2: [Option<extern "C" fn()>; 3],
    transfer_bytes: usize,
    unused_3: [Option<extern "C" fn()>; 2],
    open: unsafe extern "C" fn(*const c_char, c_uint, Hid, u64) -> *mut OpenFile,
    close: unsafe extern "C" fn(*mut OpenFile) -> c_int,
    compare: Option<extern "C" fn()>,
    query: unsafe extern "C" fn(*const OpenFile, *mut c_ulong) -> c_int,
    type_map: Option<extern "C" fn()>,
    alloc: unsafe extern "C" fn(*mut OpenFile, c_int, Hid, u64) -> u64,
    free: unsafe extern "C" fn(*mut OpenFile, c_int, Hid, u64, u64) -> c_int,
    get_end: unsafe extern "C" fn(*const OpenFile, c_int) -> u64,
    set_end: unsafe extern "C" fn(*mut OpenFile, c_int, u64) -> c_int,
    get_length: unsafe extern "C" fn(*const OpenFile, c_int) -> u64,
    get_handle: unsafe extern "C" fn(*mut OpenFile, Hid, *mut *mut c_void) -> c_int,
    read: unsafe extern "C" fn(*mut OpenFile, c_int, Hid, u64, usize, *mut c_void) -> c_int,
    write: unsafe extern "C" fn(*mut OpenFile, c_int, Hid, u64, usize, *const c_void) -> c_int,
    unused_4: [Option<extern "C" fn()>; 10],
    free_lists: [c_int; 7],
}

/// `H5FD_t`: the part of an open file that is libhdf5's.
#[repr(C)]
struct OpenFile {
    driver: Hid,
    class: *const Class,
    number: c_ulong,
    access: c_uint,
    features: c_ulong,
    address_max: u64,
    address_base: u64,
    threshold: u64,
    alignment: u64,
    paged: bool,
}

/// An open file: what libhdf5 has a pointer to.
#[repr(C)]
struct Handle {
    theirs: OpenFile,
    held: Held,
}

// SAFETY: constants, and a pointer to a text that lives as long as the program.
unsafe impl Sync for Class {}

static CLASS: Class = Class {
    version: 1,
    // Numbers from 256 on are free for programs.
    value: 511,
    name: c"beamport".as_ptr(),
    address_max: i64::MAX as u64,
    // Weak, as that of the drivers of the library.
    close_degree: 1,
    unused_1: [None; 4],
    list_bytes: 0,
    unused_2: [None; 3],
    transfer_bytes: 0,
    unused_3: [None; 2],
    open,
    close,
    compare: None,
    query,
    type_map: None,
    alloc,
    free,
    get_end,
    set_end,
    get_length,
    get_handle,
    read,
    write,
    unused_4: [None; 10],
    free_lists: [0; 7],
};

const DONE: c_int = 0;
const FAILED: c_int = -1;

/// The number under which libhdf5 knows the driver.
pub(crate) fn driver() -> Result<Hid, Fault> {
    static DRIVER: OnceLock<Hid> = OnceLock::new();
    if let Some(id) = DRIVER.get() {
        return Ok(*id);
    }
    let class = (&raw const CLASS).cast();
    // SAFETY: the class has the layout that this version of libhdf5 (its version stands in it) asks for.
    let id =
        call(|| "cannot register the file driver".into(), || unsafe { hdf5_metno_sys::h5fd::H5FDregister(class) })?;
    Ok(*DRIVER.get_or_init(|| id))
}

/// The held writes of a file that was opened with the driver.
pub(crate) fn of_file(file: Hid) -> Result<Held, Fault> {
    let mut handle = std::ptr::null_mut();
    let list = hdf5_metno_sys::h5p::H5P_DEFAULT;
    call(
        || "the file has no driver".into(),
        // SAFETY: an open file and a place for the answer.
        || unsafe { hdf5_metno_sys::h5f::H5Fget_vfd_handle(file, list, &raw mut handle) },
    )?;
    // SAFETY: `get_handle` below gave the address of the handle's own share, which lives while the file is open.
    Ok(unsafe { (*handle.cast::<Held>()).clone() })
}

unsafe extern "C" fn open(name: *const c_char, flags: c_uint, _: Hid, _: u64) -> *mut OpenFile {
    // SAFETY: libhdf5 gives a valid name.
    let name = std::ffi::OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes());
    let create = flags & hdf5_metno_sys::h5f::H5F_ACC_CREAT != 0;
    let truncate = flags & hdf5_metno_sys::h5f::H5F_ACC_TRUNC != 0;
    // A link at the name of a file leads to what is not ours.
    let mut how = OpenOptions::new();
    how.read(true).write(true).create(create).truncate(truncate).custom_flags(libc::O_NOFOLLOW);
    let file = how.open(name);
    let Ok(metadata) = file.and_then(Metadata::new) else { return std::ptr::null_mut() };
    let theirs = OpenFile {
        driver: 0,
        class: &raw const CLASS,
        number: 0,
        access: flags,
        features: 0,
        address_max: i64::MAX as u64,
        address_base: 0,
        threshold: 0,
        alignment: 1,
        paged: false,
    };
    Box::into_raw(Box::new(Handle { theirs, held: Arc::new(Mutex::new(metadata)) })).cast()
}

/// The handle of a file that libhdf5 has open.
///
/// # Safety
/// `file` came from `open` and was not closed.
unsafe fn held<'a>(file: *const OpenFile) -> MutexGuard<'a, Metadata> {
    // SAFETY: as above; libhdf5's part is the first field.
    lock(unsafe { &(*file.cast::<Handle>()).held })
}

unsafe extern "C" fn close(file: *mut OpenFile) -> c_int {
    // SAFETY: the last that libhdf5 does with it.
    drop(unsafe { Box::from_raw(file.cast::<Handle>()) });
    DONE
}

unsafe extern "C" fn query(_: *const OpenFile, flags: *mut c_ulong) -> c_int {
    // No aggregation: every block asks for a place of its own.
    if !flags.is_null() {
        // SAFETY: a place for the answer.
        unsafe { *flags = c_ulong::from(hdf5_metno_sys::h5fd::H5FD_FEAT_DEFAULT_VFD_COMPATIBLE) };
    }
    DONE
}

unsafe extern "C" fn alloc(file: *mut OpenFile, kind: c_int, _: Hid, bytes: u64) -> u64 {
    // SAFETY: an open file of ours, here and below.
    unsafe { held(file) }.allot(Kind::of(kind), bytes)
}

unsafe extern "C" fn free(_: *mut OpenFile, _: c_int, _: Hid, _: u64, _: u64) -> c_int {
    // Not used again.
    DONE
}

unsafe extern "C" fn get_end(file: *const OpenFile, _: c_int) -> u64 {
    // SAFETY: as above.
    unsafe { held(file) }.end
}

unsafe extern "C" fn set_end(file: *mut OpenFile, kind: c_int, end: u64) -> c_int {
    // SAFETY: as above.
    let mut held = unsafe { held(file) };
    // A chunk that was given back at the end: its place is not used again.
    if Kind::of(kind) != Kind::Data || end > held.end {
        held.end = end;
    }
    DONE
}

unsafe extern "C" fn get_length(file: *const OpenFile, _: c_int) -> u64 {
    // SAFETY: as above.
    unsafe { held(file) }.length
}

unsafe extern "C" fn get_handle(file: *mut OpenFile, _: Hid, out: *mut *mut c_void) -> c_int {
    // SAFETY: as above, and a place for the answer.
    unsafe { *out = (&raw mut (*file.cast::<Handle>()).held).cast() };
    DONE
}

unsafe extern "C" fn read(file: *mut OpenFile, _: c_int, _: Hid, at: u64, bytes: usize, out: *mut c_void) -> c_int {
    // SAFETY: as above, and as many bytes of libhdf5's own.
    let (held, out) = unsafe { (held(file), std::slice::from_raw_parts_mut(out.cast::<u8>(), bytes)) };
    if held.read(at, out).is_ok() { DONE } else { FAILED }
}

unsafe extern "C" fn write(
    file: *mut OpenFile,
    kind: c_int,
    _: Hid,
    at: u64,
    bytes: usize,
    from: *const c_void,
) -> c_int {
    // SAFETY: as above.
    let mut held = unsafe { held(file) };
    if let Some(past) = &mut held.past
        && Kind::of(kind) == Kind::Data
    {
        past.lies = Some(at);
    } else if bytes > 0 {
        // SAFETY: as many bytes of libhdf5's own.
        held.hold(Kind::of(kind), at, unsafe { std::slice::from_raw_parts(from.cast::<u8>(), bytes) });
    }
    DONE
}
