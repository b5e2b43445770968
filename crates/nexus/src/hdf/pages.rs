//! Bytes that begin on a page of memory, as direct writes and reads want them; memory is kept and used again.

/// Alignment of direct writes in file and memory.
pub(crate) const PAGE: usize = 4096;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(4096))]
struct Page([u8; PAGE]);

#[derive(Default)]
pub(crate) struct Pages {
    pages: Vec<Page>,
    len: usize,
}

impl Pages {
    pub(crate) fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.pages)[..self.len]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.pages)[..self.len]
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes for which there is memory.
    pub(crate) fn capacity(&self) -> usize {
        self.pages.len() * PAGE
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// So many bytes, of any value.
    pub(crate) fn resize(&mut self, bytes: usize) {
        if bytes > self.capacity() {
            self.pages.resize(bytes.div_ceil(PAGE), Page([0; PAGE]));
        }
        self.len = bytes;
    }

    /// The first bytes go, the others move up.
    pub(crate) fn cut_front(&mut self, bytes: usize) {
        let len = self.len;
        bytemuck::cast_slice_mut::<Page, u8>(&mut self.pages).copy_within(bytes..len, 0);
        self.len -= bytes;
    }

    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        if end > self.capacity() {
            let pages = end.div_ceil(PAGE).max(self.pages.len() * 2);
            self.pages.resize(pages, Page([0; PAGE]));
        }
        bytemuck::cast_slice_mut::<Page, u8>(&mut self.pages)[self.len..end].copy_from_slice(bytes);
        self.len = end;
    }
}
