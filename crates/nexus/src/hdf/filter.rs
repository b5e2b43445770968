//! Filters of chunks: what the bytes of a whole chunk become in the file.
//!
//! * `bitshuffle-lz4`: filter 32008, as the library bitshuffle and `hdf5plugin` write and read it. A chunk is its length
//!   (8 bytes, big endian) and the length of a block (4 bytes, big endian), then each block: its packed length (4 bytes,
//!   big endian) and LZ4. A block is bit planes: bit 0 of byte 0 of all elements, then bit 1... The last one is shorter, in
//!   steps of 8 elements; what is left of these follows as it is.
//! * `deflate`: filters 2 (shuffle: byte 0 of all elements, byte 1 of all...) and 1 (zlib), which every libhdf5 has.
//!
//! A chunk that does not become smaller stays as it is, and its mask says so ([`Filter::skipped`]).

use crate::limits::PACK_THREADS;
use std::io::Write;
use wire::bitshuffle::{self, bytes_together, turned};

/// Bytes of a block of bit planes: small enough for the second cache of a core, large enough for LZ4 to find something.
const BLOCK_BYTES: usize = 32 << 10;
/// Lengths before the blocks of a chunk.
const HEADER_BYTES: usize = 12;
/// Each further step of zlib costs more time than it saves room, for counts and times.
const LEVEL: u32 = 4;

/// How the chunks of a dataset are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Bit planes and LZ4.
    BitshuffleLz4,
    /// Byte planes and zlib.
    Deflate,
}

/// One filter in the form of libhdf5: its number, and its settings.
pub(crate) type Stage = (i32, Vec<u32>);

impl Filter {
    /// All, and what a template calls them.
    pub const NAMES: [(&'static str, Self); 2] = [("bitshuffle-lz4", Self::BitshuffleLz4), ("deflate", Self::Deflate)];

    /// The filters of a dataset whose elements have so many bytes.
    pub(crate) fn stages(self, element: usize) -> Vec<Stage> {
        let bytes = element as u32;
        match self {
            // Version 0.4 of the library, the size of an element, that of a block, and 2 for LZ4.
            Self::BitshuffleLz4 => vec![(32008, vec![0, 4, bytes, block_elements(element) as u32, 2])],
            Self::Deflate => vec![(2, vec![bytes]), (1, vec![LEVEL])],
        }
    }

    /// Mask of a chunk that went through none of them.
    pub(crate) fn skipped(self) -> u32 {
        match self {
            Self::BitshuffleLz4 => 1,
            Self::Deflate => 3,
        }
    }

    /// Packs chunks of `each` bytes, the first at the beginning of `out` and each `stride` bytes behind the one before, in
    /// several threads. The bytes that each has then; where it did not become smaller, what it had, and the bytes.
    pub(crate) fn pack_all(self, raw: &[u8], each: usize, element: usize, out: &mut [u8], stride: usize) -> Vec<usize> {
        let mut lengths = vec![0; raw.len() / each];
        let threads = PACK_THREADS.min(lengths.len());
        let mut shares: Vec<Vec<Task<'_>>> = (0..threads).map(|_| Vec::new()).collect();
        for (at, ((raw, out), length)) in
            raw.chunks_exact(each).zip(out.chunks_mut(stride)).zip(&mut lengths).enumerate()
        {
            shares[at % threads].push(Task { raw, out: &mut out[..each], length });
        }
        let work = |share: Vec<Task<'_>>| {
            let mut packer = Packer::new(self, element);
            for Task { raw, out, length } in share {
                *length = packer.pack(raw, out).unwrap_or_else(|| {
                    out.copy_from_slice(raw);
                    each
                });
            }
        };
        std::thread::scope(|scope| {
            let mine = shares.pop();
            for share in shares {
                scope.spawn(|| work(share));
            }
            mine.into_iter().for_each(work);
        });
        lengths
    }

    /// The bytes of a chunk again: so many; none where they are not what [`Filter::pack_all`] makes.
    pub(crate) fn unpack(self, packed: &[u8], element: usize, bytes: usize) -> Option<Vec<u8>> {
        match self {
            Self::BitshuffleLz4 => unpack_bits(packed, element, bytes),
            Self::Deflate => {
                let mut planes = Vec::with_capacity(bytes);
                let mut reader = flate2::read::ZlibDecoder::new(packed);
                std::io::copy(&mut std::io::Read::take(&mut reader, bytes as u64 + 1), &mut planes).ok()?;
                let mut out = vec![0; bytes];
                let whole = bytes - bytes % element;
                if planes.len() != bytes {
                    return None;
                }
                bytes_together(&planes[..whole], element, &mut out[..whole]);
                out[whole..].copy_from_slice(&planes[whole..]);
                Some(out)
            }
        }
    }
}

/// Elements of a block: a multiple of 8.
fn block_elements(element: usize) -> usize {
    bitshuffle::block_elements(BLOCK_BYTES, element)
}

/// A chunk that a thread packs.
struct Task<'a> {
    raw: &'a [u8],
    /// As long as `raw`.
    out: &'a mut [u8],
    length: &'a mut usize,
}

/// The memory that packing needs, used for one chunk after the other.
struct Packer {
    filter: Filter,
    element: usize,
    bytes: Vec<u8>,
    bits: Vec<u8>,
    packed: Vec<u8>,
    table: lz4_flex::block::CompressTable,
}

impl Packer {
    fn new(filter: Filter, element: usize) -> Self {
        Self { filter, element, bytes: Vec::new(), bits: Vec::new(), packed: Vec::new(), table: Default::default() }
    }

    /// Packs a chunk into `out`; none where it does not fit.
    fn pack(&mut self, raw: &[u8], out: &mut [u8]) -> Option<usize> {
        match self.filter {
            Filter::BitshuffleLz4 => self.pack_bits(raw, out),
            Filter::Deflate => {
                let (whole, rest) = raw.split_at(raw.len() - raw.len() % self.element);
                self.bytes.resize(whole.len(), 0);
                bytes_apart(whole, self.element, &mut self.bytes);
                let handle = out.len();
                let mut left = out;
                let mut writer = flate2::write::ZlibEncoder::new(&mut left, flate2::Compression::new(LEVEL));
                writer.write_all(&self.bytes).and_then(|()| writer.write_all(rest)).ok()?;
                writer.finish().ok()?;
                Some(handle - left.len())
            }
        }
    }

    fn pack_bits(&mut self, raw: &[u8], out: &mut [u8]) -> Option<usize> {
        let block = block_elements(self.element) * self.element;
        let (whole, rest) = raw.split_at(raw.len() - raw.len() % (8 * self.element));
        out.get_mut(..8)?.copy_from_slice(&(raw.len() as u64).to_be_bytes());
        out.get_mut(8..HEADER_BYTES)?.copy_from_slice(&(block as u32).to_be_bytes());
        let mut end = HEADER_BYTES;
        for block in whole.chunks(block) {
            self.bytes.resize(block.len(), 0);
            self.bits.resize(block.len(), 0);
            self.packed.resize(lz4_flex::block::get_maximum_output_size(block.len()), 0);
            bytes_apart(block, self.element, &mut self.bytes);
            let each = block.len() / self.element;
            for (plane, bits) in self.bytes.chunks_exact(each).zip(self.bits.chunks_exact_mut(each)) {
                bits_apart(plane, bits);
            }
            let length =
                lz4_flex::block::compress_into_with_table(&self.bits, &mut self.packed, &mut self.table).ok()?;
            out.get_mut(end..end + 4)?.copy_from_slice(&(length as u32).to_be_bytes());
            out.get_mut(end + 4..end + 4 + length)?.copy_from_slice(&self.packed[..length]);
            end += 4 + length;
        }
        out.get_mut(end..end + rest.len())?.copy_from_slice(rest);
        Some(end + rest.len())
    }
}

fn unpack_bits(packed: &[u8], element: usize, bytes: usize) -> Option<Vec<u8>> {
    let (header, left) = packed.split_at_checked(HEADER_BYTES)?;
    let block = u32::from_be_bytes(header[8..].try_into().ok()?) as usize;
    if header[..8] != (bytes as u64).to_be_bytes() {
        return None;
    }
    let mut out = vec![0; bytes];
    bitshuffle::unpack(left, element, Some(block), &mut out)?;
    Some(out)
}

/// Byte 0 of all elements, then byte 1 of all...
fn bytes_apart(raw: &[u8], element: usize, out: &mut [u8]) {
    let each = raw.len() / element;
    if each == 0 {
        return;
    }
    for (at, plane) in out.chunks_exact_mut(each).enumerate() {
        // As numbers: the compiler then takes many at a time.
        match element {
            1 => plane.copy_from_slice(raw),
            4 => plane
                .iter_mut()
                .zip(raw.as_chunks::<4>().0)
                .for_each(|(out, e)| *out = (u32::from_le_bytes(*e) >> (8 * at)) as u8),
            8 => plane
                .iter_mut()
                .zip(raw.as_chunks::<8>().0)
                .for_each(|(out, e)| *out = (u64::from_le_bytes(*e) >> (8 * at)) as u8),
            _ => plane.iter_mut().zip(raw.chunks_exact(element)).for_each(|(out, e)| *out = e[at]),
        }
    }
}

/// Bit 0 of all bytes, then bit 1 of all...: eight rows of an eighth of the length. The length is a multiple of 8.
fn bits_apart(plane: &[u8], out: &mut [u8]) {
    let each = plane.len() / 8;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this architecture has SSE2.
    let done = unsafe { many_bits_apart(plane, out) };
    #[cfg(not(target_arch = "x86_64"))]
    let done = 0;
    for (at, bytes) in plane.as_chunks::<8>().0.iter().enumerate().skip(done) {
        let turned = turned(u64::from_le_bytes(*bytes)).to_le_bytes();
        turned.iter().enumerate().for_each(|(bit, byte)| out[bit * each + at] = *byte);
    }
}

/// The same for 16 bytes at a time, as far as that goes; how many steps of 8 are done.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2")]
fn many_bits_apart(plane: &[u8], out: &mut [u8]) -> usize {
    use std::arch::x86_64::{_mm_add_epi8, _mm_movemask_epi8, _mm_set_epi64x};
    let mut rows = out.chunks_exact_mut((plane.len() / 8).max(1)).map(|row| row.as_chunks_mut::<2>().0);
    let [r0, r1, r2, r3, r4, r5, r6, r7] = std::array::from_fn(|_| rows.next().unwrap_or_default());
    let pairs = plane.as_chunks::<16>().0;
    let outs = r0.iter_mut().zip(r1).zip(r2).zip(r3).zip(r4).zip(r5).zip(r6).zip(r7);
    for (bytes, (((((((o0, o1), o2), o3), o4), o5), o6), o7)) in pairs.iter().zip(outs) {
        let number = u128::from_le_bytes(*bytes);
        let mut many = _mm_set_epi64x((number >> 64) as i64, number as i64);
        for out in [o7, o6, o5, o4, o3, o2, o1, o0] {
            *out = (_mm_movemask_epi8(many) as u16).to_le_bytes();
            many = _mm_add_epi8(many, many);
        }
    }
    pairs.len() * 2
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers below `most`, of so many bytes, and some bytes that are no whole one.
    fn numbers(count: usize, element: usize, most: u64, rest: usize) -> Vec<u8> {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        let mut out = Vec::new();
        for _ in 0..count {
            let number = (next() % most).to_le_bytes();
            out.extend((0..element).map(|at| if at < 8 { number[at] } else { 0 }));
        }
        out.extend((0..rest).map(|_| next() as u8));
        out
    }

    #[test]
    fn what_is_packed_is_unpacked_to_the_same_bytes() {
        for (_, filter) in Filter::NAMES {
            for element in [1, 2, 3, 4, 8, 256] {
                for (count, rest) in [(0, 0), (1, 0), (7, element - 1), (8, 0), (129, 0), (20_011, 0)] {
                    let raw = numbers(count, element, 200, rest);
                    if raw.is_empty() {
                        continue;
                    }
                    let mut out = vec![0; raw.len()];
                    let stride = raw.len();
                    let length = filter.pack_all(&raw, raw.len(), element, &mut out, stride)[0];
                    if length == raw.len() {
                        assert_eq!(out, raw, "{filter:?} {element} {count}");
                    } else {
                        assert_eq!(
                            filter.unpack(&out[..length], element, raw.len()).unwrap(),
                            raw,
                            "{element} {count}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn many_chunks_go_side_by_side_and_noise_stays_as_it_is() {
        for (_, filter) in Filter::NAMES {
            let small = numbers(5 * 4096, 4, 28_672, 0);
            let mut out = vec![0; 5 * 20_480];
            let lengths = filter.pack_all(&small, 16_384, 4, &mut out, 20_480);
            assert_eq!(lengths.len(), 5);
            for (at, length) in lengths.iter().enumerate() {
                assert!(*length < 16_384 * 3 / 4, "{filter:?}: {length}");
                let packed = &out[at * 20_480..][..*length];
                assert_eq!(filter.unpack(packed, 4, 16_384).unwrap(), small[at * 16_384..][..16_384]);
            }
            let noise = numbers(4096, 8, u64::MAX, 0);
            let lengths = filter.pack_all(&noise, noise.len(), 8, &mut out[..noise.len()], noise.len());
            assert_eq!(lengths, [noise.len()]);
            assert_eq!(out[..noise.len()], noise);
        }
    }

    #[test]
    fn damaged_chunks_are_refused_and_never_panic() {
        let raw = numbers(4096, 4, 1000, 0);
        for (_, filter) in Filter::NAMES {
            let mut out = vec![0; raw.len()];
            let length = filter.pack_all(&raw, raw.len(), 4, &mut out, raw.len())[0];
            for end in (0..length).step_by(7) {
                assert!(filter.unpack(&out[..end], 4, raw.len()).is_none(), "{filter:?} cut at {end}");
            }
            for at in 0..length.min(3000) {
                let mut damaged = out[..length].to_vec();
                damaged[at] ^= 0x41;
                let _ = filter.unpack(&damaged, 4, raw.len());
            }
        }
    }
}
