//! Bit planes packed by LZ4, as the library bitshuffle writes them: in HDF5 (filter 32008), and in frames of
//! areaDetector (codec `bslz4`).
//!
//! A block is its packed length (4 bytes, big endian) and LZ4 of bit planes: bit 0 of byte 0 of all elements, then bit
//! 1... The last block is shorter, in steps of 8 elements; what is left of these follows as it is.
//!
//! Constraints: memory is bounded by the size of a block.

use crate::limits::{BLOCK_BYTES, BLOCK_ELEMENTS_MIN};

/// Elements of a block of at most `bytes`: a multiple of 8, at least [`BLOCK_ELEMENTS_MIN`]. `element`: size of one.
pub fn block_elements(bytes: usize, element: usize) -> usize {
    (bytes / element / 8 * 8).max(BLOCK_ELEMENTS_MIN)
}

/// Unpacks elements of `element` bytes into `out`, which has the size of all of them. `block`: bytes of a block, a
/// multiple of 8 elements; `None` for the size that the library chooses. `None` if the blocks are damaged, or unpack to
/// another size than that of `out`.
pub fn unpack(packed: &[u8], element: usize, block: Option<usize>, out: &mut [u8]) -> Option<()> {
    let block = block.unwrap_or_else(|| block_elements(BLOCK_BYTES, element.max(1)) * element);
    if element == 0 || block == 0 || !block.is_multiple_of(8 * element) {
        return None;
    }
    let (whole, rest) = out.split_at_mut(out.len() - out.len() % (8 * element));
    let (mut left, mut bits, mut planes) = (packed, Vec::new(), Vec::new());
    for part in whole.chunks_mut(block) {
        let (length, behind) = left.split_first_chunk::<4>()?;
        let (lz4, behind) = behind.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        bits.resize(part.len(), 0);
        planes.resize(part.len(), 0);
        if lz4_flex::block::decompress_into(lz4, &mut bits).ok()? != part.len() {
            return None;
        }
        let each = part.len() / element;
        for (bits, plane) in bits.chunks_exact(each).zip(planes.chunks_exact_mut(each)) {
            bits_together(bits, plane);
        }
        bytes_together(&planes, element, part);
        left = behind;
    }
    if left.len() != rest.len() {
        return None;
    }
    rest.copy_from_slice(left);
    Some(())
}

/// The inverse of byte 0 of all elements, then byte 1 of all...
pub fn bytes_together(planes: &[u8], element: usize, out: &mut [u8]) {
    let each = planes.len() / element;
    if each == 0 {
        return;
    }
    if element == 1 {
        return out.copy_from_slice(planes);
    }
    for (at, plane) in planes.chunks_exact(each).enumerate() {
        out.chunks_exact_mut(element).zip(plane).for_each(|(out, byte)| out[at] = *byte);
    }
}

/// The inverse of bit 0 of all bytes, then bit 1 of all...: eight rows of an eighth of the length.
fn bits_together(rows: &[u8], out: &mut [u8]) {
    let each = rows.len() / 8;
    for (at, bytes) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let row = u64::from_le_bytes(std::array::from_fn(|bit| rows[bit * each + at]));
        *bytes = turned(row).to_le_bytes();
    }
}

/// Bit `i` of byte `j` becomes bit `j` of byte `i` (Warren, *Hacker's Delight*, 7-3).
pub fn turned(mut x: u64) -> u64 {
    for (by, mask) in [(7, 0x00aa_00aa_00aa_00aa), (14, 0x0000_cccc_0000_cccc), (28, 0x0000_0000_f0f0_f0f0)] {
        let swap = (x ^ (x >> by)) & mask;
        x ^= swap ^ (swap << by);
    }
    x
}
