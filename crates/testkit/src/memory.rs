//! Memory of one pretend file: never moves while the file grows, so that maps of it stay valid.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

/// Bytes that a pretend file may have at most. Above the largest `M_MMAP_THRESHOLD` (32 MiB), so that the allocator
/// maps fresh zero pages and only those that are touched cost anything.
pub(crate) const FILE_BYTES_MAX: u64 = 48 << 20;
/// The step of allocation, of dirtiness and of loss.
pub(crate) const PAGE: usize = 4096;

/// Page-aligned zeroed memory, given back when dropped.
pub(crate) struct Memory {
    raw: *mut u8,
    start: *mut u8,
}

// SAFETY: plain memory; who accesses it when is the affair of the code under test, as with real shared memory.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

fn layout() -> Layout {
    // Alignment 16 makes the allocator use calloc (fresh zero pages); we align ourselves.
    Layout::from_size_align(FILE_BYTES_MAX as usize + PAGE, 16).unwrap_or(Layout::new::<u128>())
}

impl Memory {
    pub(crate) fn new() -> Self {
        // SAFETY: the layout is not empty.
        let raw = unsafe { alloc_zeroed(layout()) };
        if raw.is_null() {
            handle_alloc_error(layout());
        }
        let pad = raw.align_offset(PAGE);
        // SAFETY: a page more than needed was allocated.
        Self { raw, start: unsafe { raw.add(pad) } }
    }

    pub(crate) fn ptr(&self) -> *mut u8 {
        self.start
    }

    /// The bytes of a range, copied.
    pub(crate) fn read(&self, at: usize, out: &mut [u8]) {
        assert!(at + out.len() <= FILE_BYTES_MAX as usize);
        // SAFETY: inside the memory; one thread runs the simulation.
        unsafe { std::ptr::copy_nonoverlapping(self.start.add(at), out.as_mut_ptr(), out.len()) };
    }

    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= FILE_BYTES_MAX as usize);
        // SAFETY: as in `read`; `copy` because a caller may write from a map of the same file.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.start.add(at), bytes.len()) };
    }

    /// Zeroes from `at` to `to`.
    pub(crate) fn zero(&self, at: usize, to: usize) {
        assert!(at <= to && to <= FILE_BYTES_MAX as usize);
        // SAFETY: as in `read`.
        unsafe { std::ptr::write_bytes(self.start.add(at), 0, to - at) };
    }

    /// True if the page equals `other` (zero-extended).
    pub(crate) fn page_is(&self, page: usize, other: &[u8]) -> bool {
        static ZERO: [u8; PAGE] = [0; PAGE];
        assert!((page + 1) * PAGE <= FILE_BYTES_MAX as usize);
        // SAFETY: inside the memory; one thread runs the simulation.
        let bytes = unsafe { std::slice::from_raw_parts(self.start.add(page * PAGE), PAGE) };
        let (head, tail) = bytes.split_at(other.len().min(PAGE));
        head == &other[..head.len()] && tail == &ZERO[..tail.len()]
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.raw, layout()) };
    }
}
