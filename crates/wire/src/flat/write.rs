//! Writing forward into a reused buffer, or into room that is there already: one `memcpy` per array, no allocation once
//! the buffer is warm.

use crate::error::Error;
use crate::limits::{LIST_LENGTH_MAX, MESSAGE_BYTES_MAX};
use crate::{Array, Number};

/// Where a message is written.
pub(crate) trait Out {
    /// Bytes written so far.
    fn len(&self) -> usize;
    /// Appends zeros up to `len` bytes.
    fn grow(&mut self, len: usize);
    /// Replaces bytes that were written.
    fn set(&mut self, at: usize, bytes: &[u8]);
    /// Appends bytes.
    fn extend(&mut self, bytes: &[u8]);
    /// Starts anew.
    fn clear(&mut self);
}

impl Out for Vec<u8> {
    #[inline]
    fn len(&self) -> usize {
        Vec::len(self)
    }
    #[inline]
    fn grow(&mut self, len: usize) {
        self.resize(len, 0);
    }
    #[inline]
    fn set(&mut self, at: usize, bytes: &[u8]) {
        self[at..at + bytes.len()].copy_from_slice(bytes);
    }
    #[inline]
    fn extend(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
    #[inline]
    fn clear(&mut self) {
        Vec::clear(self);
    }
}

/// Counts the bytes of a message without writing them.
#[derive(Default)]
pub(crate) struct Count(usize);

impl Out for Count {
    fn len(&self) -> usize {
        self.0
    }
    fn grow(&mut self, len: usize) {
        self.0 = len;
    }
    fn set(&mut self, _: usize, _: &[u8]) {}
    fn extend(&mut self, bytes: &[u8]) {
        self.0 += bytes.len();
    }
    fn clear(&mut self) {
        self.0 = 0;
    }
}

/// Room of a known size. Bytes that do not fit are counted and not written.
pub(crate) struct Room<'r> {
    bytes: &'r mut [u8],
    len: usize,
}

impl<'r> Room<'r> {
    pub(crate) fn new(bytes: &'r mut [u8]) -> Self {
        Room { bytes, len: 0 }
    }
}

impl Out for Room<'_> {
    fn len(&self) -> usize {
        self.len
    }
    fn grow(&mut self, len: usize) {
        if let Some(fresh) = self.bytes.get_mut(self.len..len) {
            fresh.fill(0);
        }
        self.len = len;
    }
    fn set(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.bytes.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }
    fn extend(&mut self, bytes: &[u8]) {
        let at = self.len;
        self.len += bytes.len();
        self.set(at, bytes);
    }
    fn clear(&mut self) {
        self.len = 0;
    }
}

/// A message being written. Positions returned are absolute; every slot of an offset that was asked for must
/// be given its string, array, list or table before `finish`.
pub(crate) struct Writer<'o, O: Out = Vec<u8>> {
    out: &'o mut O,
    fault: Option<Error>,
}

/// `at` or the next multiple of `align` (a power of two) after it.
fn aligned(at: usize, align: usize) -> usize {
    (at + align - 1) & !(align - 1)
}

impl<'o, O: Out> Writer<'o, O> {
    /// Empties the buffer and starts a message in it.
    pub(crate) fn begin(out: &'o mut O, id: [u8; 4]) -> Self {
        out.clear();
        out.extend(&[0; 4]);
        out.extend(&id);
        Writer { out, fault: None }
    }

    /// The root table; see [`Writer::table`].
    pub(crate) fn root<const N: usize>(&mut self, sizes: [u8; N]) -> [usize; N] {
        self.table(0, sizes)
    }

    /// Places a table, lets the slot at `slot` point to it and gives the positions of its fields.
    ///
    /// `sizes[id]` is the size in bytes of field `id`: 1, 2, 4 or 8, 0 = absent. Larger fields come first, so
    /// nothing needs padding inside; the table starts on 4 modulo 8 if it has a field of 8 bytes.
    pub(crate) fn table<const N: usize>(&mut self, slot: usize, sizes: [u8; N]) -> [usize; N] {
        let vtable_bytes = 4 + 2 * N;
        let least = self.out.len() + vtable_bytes;
        let at = if sizes.contains(&8) { aligned(least + 4, 8) - 4 } else { aligned(least, 4) };
        let vtable = at - vtable_bytes;

        let mut places = [0; N];
        let mut end = at + 4;
        for size in [8, 4, 2, 1] {
            for (place, _) in places.iter_mut().zip(sizes).filter(|(_, wanted)| *wanted == size) {
                *place = end;
                end += usize::from(size);
            }
        }
        self.out.grow(end);
        self.put(vtable, vtable_bytes as u16);
        self.put(vtable + 2, (end - at) as u16);
        for (id, place) in places.iter().enumerate().filter(|(_, place)| **place != 0) {
            self.put(vtable + 4 + 2 * id, (place - at) as u16);
        }
        self.put(at, vtable_bytes as i32);
        self.point(slot, at);
        places
    }

    /// A number at a position that `table` gave.
    pub(crate) fn put<T: Number>(&mut self, at: usize, value: T) {
        self.out.set(at, bytemuck::bytes_of(&value));
    }

    /// Lets the slot at `slot` point forward to `target`. A distance that does not fit means a message that
    /// `finish` refuses.
    fn point(&mut self, slot: usize, target: usize) {
        // The root is the one offset that counts from the start of the message, which is its own position.
        self.put(slot, (target - slot) as u32);
    }

    /// Appends the string for the slot at `slot`.
    pub(crate) fn text(&mut self, slot: usize, text: &str) {
        let at = aligned(self.out.len(), 4);
        self.out.grow(at);
        self.point(slot, at);
        self.out.extend(&(text.len() as u32).to_le_bytes());
        self.out.extend(text.as_bytes());
        self.out.extend(&[0]);
    }

    /// Appends the array for the slot at `slot`, its data on 8 bytes whatever its type.
    pub(crate) fn array<T: Number>(&mut self, slot: usize, array: Array<'_, T>) {
        self.bytes(slot, array.len(), array.bytes());
    }

    /// Appends a vector of `count` elements given as bytes.
    pub(crate) fn bytes(&mut self, slot: usize, count: usize, bytes: &[u8]) {
        self.vector(slot, count, 8);
        self.out.extend(bytes);
    }

    /// Appends what stands before the elements of a vector, which come right behind it and start on a multiple of
    /// `align` (a power of two, at least 4).
    pub(crate) fn vector(&mut self, slot: usize, count: usize, align: usize) {
        let at = aligned(self.out.len() + 4, align) - 4;
        self.out.grow(at);
        self.point(slot, at);
        self.out.extend(&(count as u32).to_le_bytes());
    }

    /// Appends a vector of `count` offsets for the slot at `slot`; gives the position of the first, the others
    /// follow every 4 bytes.
    pub(crate) fn list(&mut self, slot: usize, count: usize, field: &'static str) -> usize {
        if count > LIST_LENGTH_MAX {
            self.fault = Some(Error::TooMany { field, count });
        }
        let at = aligned(self.out.len(), 4);
        self.out.grow(at + 4 + 4 * count);
        self.point(slot, at);
        self.put(at, count as u32);
        at + 4
    }

    /// Appends a vector of strings for the slot at `slot`.
    pub(crate) fn texts(&mut self, slot: usize, texts: &[&str], field: &'static str) {
        let first = self.list(slot, texts.len(), field);
        for (at, text) in texts.iter().enumerate() {
            self.text(first + 4 * at, text);
        }
    }

    /// Notes that what was given cannot be written; `finish` will say so.
    pub(crate) fn refuse(&mut self, fault: Error) {
        self.fault = Some(fault);
    }

    /// Ends the message. On failure the buffer is left empty.
    pub(crate) fn finish(self) -> Result<(), Error> {
        let out = self.out;
        let end = Writer { out, fault: self.fault }.finish_before(0)?;
        out.grow(out.len() + end);
        Ok(())
    }

    /// Ends a message whose last `bytes` bytes are for others to put behind it, and says how many zeros follow
    /// them: its length is a multiple of 8, so that messages put one behind the other stay aligned. On failure the
    /// buffer is left empty.
    pub(crate) fn finish_before(self, bytes: usize) -> Result<usize, Error> {
        let written = self.out.len().saturating_add(bytes);
        let fault = match self.fault {
            None if written > MESSAGE_BYTES_MAX => Some(Error::TooLong { length: written }),
            fault => fault,
        };
        match fault {
            Some(fault) => {
                self.out.clear();
                Err(fault)
            }
            None => Ok(aligned(written, 8) - written),
        }
    }
}
