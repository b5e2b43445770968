//! CRC-32C of entries and payloads, alone or together with the copy of the payload.
//!
//! Constraints: memory is read once. Payloads of 8 KiB and more are copied and checksummed in blocks that stay in the
//! L1 cache, with stores that bypass the caches, because a completely written line need not be fetched first.
//!
//! Three implementations give the same value: the CRC instruction word by word for short inputs; `crc-fast` for long
//! ones on processors with AVX-512 (256 bytes a step); otherwise `crc32c`, three interleaved chains of the instruction,
//! which is 1.5 times as fast there as `crc-fast`.

use crate::limits::{FUSE_BLOCK, PAST_CACHES_CHECKED};
use crc_fast::{CrcAlgorithm, Digest};

/// Up to here the single instruction is as fast as folding.
const SHORT: usize = 256;
/// From here on a payload is written past the caches: smaller ones are read again soon, and mostly from a cache.
const PAST_CACHES: usize = 4096;

/// A piece of [`crc32c_from_memory`]: a multiple of the 384 B that `crc-fast` folds at a time, so that no piece ends
/// with single words.
const PIECE: usize = 1536;
/// How far ahead memory is asked for: a page, since the processor's own prefetching ends at each page.
const AHEAD: usize = 4096;

/// The words of an index entry: [`crate::Entry`] as eight numbers, so that it is made in registers.
pub(crate) type EntryWords = [u64; 8];

/// CRC-32C (Castagnoli) of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() <= SHORT && std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the feature has been seen.
        return unsafe { short(bytes) };
    }
    if folds_wide() { crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32 } else { crc32c::crc32c(bytes) }
}

/// True where folding is faster than the processor's instruction.
#[inline]
fn folds_wide() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx512vl") && std::arch::is_x86_feature_detected!("vpclmulqdq");
    #[cfg(not(target_arch = "x86_64"))]
    true
}

/// The checksum of what comes in pieces.
#[expect(clippy::large_enum_variant, reason = "lives on the stack for one message; a box would be an allocation each")]
enum Running {
    Folded(Digest),
    Chained(u32),
}

impl Running {
    #[inline]
    fn new() -> Self {
        if folds_wide() { Self::Folded(Digest::new(CrcAlgorithm::Crc32Iscsi)) } else { Self::Chained(0) }
    }

    #[inline]
    fn update(&mut self, piece: &[u8]) {
        match self {
            Self::Folded(digest) => digest.update(piece),
            Self::Chained(crc) => *crc = crc32c::crc32c_append(*crc, piece),
        }
    }

    #[inline]
    fn finish(&self) -> u32 {
        match self {
            Self::Folded(digest) => digest.finalize() as u32,
            Self::Chained(crc) => *crc,
        }
    }
}

/// CRC-32C of parts, as if they were one behind the other.
pub(crate) fn crc32c_of_parts(parts: &[&[u8]]) -> u32 {
    let mut sum = Running::new();
    parts.iter().for_each(|part| sum.update(part));
    sum.finish()
}

/// The same for bytes that come from memory and not from a cache, one message after another: what is read next, which
/// begins at `behind`, is asked for too, so that it is on its way while this one ends (8.8 kB: 28 GB/s instead of 21).
#[inline]
pub(crate) fn crc32c_from_memory(bytes: &[u8], behind: *const u8) -> u32 {
    if bytes.len() <= PIECE {
        return crc32c(bytes);
    }
    let mut sum = Running::new();
    for (i, piece) in bytes.chunks(PIECE).enumerate() {
        let ahead = i * PIECE + AHEAD;
        let from = match ahead.checked_sub(bytes.len()) {
            None => bytes.as_ptr().wrapping_add(ahead),
            Some(beyond) => behind.wrapping_add(beyond),
        };
        #[cfg(target_arch = "x86_64")]
        for line in (0..piece.len()).step_by(64) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch reads nothing and never faults, wherever it points.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(line).cast()) };
        }
        sum.update(piece);
    }
    sum.finish()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
#[inline]
fn short(bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};
    let mut crc = u64::from(u32::MAX);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        crc = _mm_crc32_u64(crc, u64::from_le_bytes(*word));
    }
    let mut crc = crc as u32;
    let (halves, rest) = rest.as_chunks::<4>();
    for half in halves {
        crc = _mm_crc32_u32(crc, u32::from_le_bytes(*half));
    }
    for &byte in rest {
        crc = _mm_crc32_u8(crc, byte);
    }
    !crc
}

/// Copies the parts of a payload one after another to `to` and writes its entry to `slot`: `words` with the salted
/// checksums of the payload (upper half of word 6) and of the entry (upper half of word 7) filled in.
///
/// # Safety
/// `to` must be valid for writes of the sum of the lengths, `slot` for those of an entry; neither overlaps a part. Nobody
/// may be told of the message before [`settle`].
#[inline]
pub(crate) unsafe fn place(parts: &[&[u8]], to: *mut u8, words: &EntryWords, salt: u32, slot: *mut EntryWords) {
    #[cfg(target_arch = "x86_64")]
    if let [one] = parts
        && one.len() <= SHORT
        && std::arch::is_x86_feature_detected!("sse4.2")
    {
        // SAFETY: the feature has been seen, the caller vouches for the rest.
        return unsafe { place_short(one, to, words, salt, slot) };
    }
    // SAFETY: the caller vouches for both places.
    unsafe {
        let mut words = *words;
        words[6] |= u64::from(copy_crc(parts, to) ^ salt) << 32;
        let bytes: [u8; 64] = bytemuck::cast(words);
        words[7] |= u64::from(crc32c(&bytes[..60]) ^ salt) << 32;
        slot.write(words);
    }
}

/// The same for one short part, in one call without a loop over memory in between.
///
/// # Safety
/// As for [`place`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
unsafe fn place_short(part: &[u8], to: *mut u8, words: &EntryWords, salt: u32, slot: *mut EntryWords) {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};
    let (mut crc, mut at) = (u64::from(u32::MAX), to);
    let (blocks, rest) = part.as_chunks::<8>();
    for block in blocks {
        crc = _mm_crc32_u64(crc, u64::from_le_bytes(*block));
        // SAFETY: `at` advances by what was written, and the caller vouches for the length of the part.
        unsafe {
            at.cast::<[u8; 8]>().write(*block);
            at = at.add(8);
        }
    }
    let mut crc = crc as u32;
    let (halves, rest) = rest.as_chunks::<4>();
    for half in halves {
        crc = _mm_crc32_u32(crc, u32::from_le_bytes(*half));
        // SAFETY: as above.
        unsafe {
            at.cast::<[u8; 4]>().write(*half);
            at = at.add(4);
        }
    }
    for &byte in rest {
        crc = _mm_crc32_u8(crc, byte);
        // SAFETY: as above.
        unsafe {
            at.write(byte);
            at = at.add(1);
        }
    }
    let mut words = *words;
    words[6] |= u64::from(!crc ^ salt) << 32;
    let mut own = u64::from(u32::MAX);
    for word in &words[..7] {
        own = _mm_crc32_u64(own, *word);
    }
    let own = !_mm_crc32_u32(own as u32, words[7] as u32);
    words[7] |= u64::from(own ^ salt) << 32;
    // SAFETY: the caller vouches for the slot.
    unsafe { slot.write(words) };
}

/// The same for one part whose checksum is known. Where `to` lies on a line of 64 bytes, whole lines are written, so
/// that none is fetched first.
///
/// # Safety
/// As for [`place`]; where `to` is a multiple of 64, it must be valid for writes up to the end of the last line.
#[inline]
pub(crate) unsafe fn place_checked(
    part: &[u8],
    crc: u32,
    to: *mut u8,
    words: &EntryWords,
    salt: u32,
    slot: *mut EntryWords,
) {
    // SAFETY: the caller vouches for both places.
    unsafe {
        match part.len() >= PAST_CACHES_CHECKED {
            true => copy_past_caches(part, to, true),
            false => std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len()),
        }
        let mut words = *words;
        words[6] |= u64::from(crc ^ salt) << 32;
        let bytes: [u8; 64] = bytemuck::cast(words);
        words[7] |= u64::from(crc32c(&bytes[..60]) ^ salt) << 32;
        slot.write(words);
    }
}

/// Orders all copies before what is stored next: those that go past the caches are not in the order of the program.
/// Once a publish and not once a message (8.8 kB: a fifth).
#[inline]
pub(crate) fn settle() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: an instruction of every x86-64, without operands.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Copies `parts` one after another to `to` and returns the CRC-32C of what was copied.
///
/// # Safety
/// `to` must be valid for writes of the sum of the lengths and must not overlap any part; nobody may be told of the copy
/// before [`settle`].
#[inline]
unsafe fn copy_crc(parts: &[&[u8]], to: *mut u8) -> u32 {
    if let [one] = parts
        && one.len() < PAST_CACHES
    {
        let crc = crc32c(one);
        // SAFETY: the caller vouches for `to`.
        unsafe { std::ptr::copy_nonoverlapping(one.as_ptr(), to, one.len()) };
        return crc;
    }
    let mut sum = Running::new();
    let mut at = 0;
    for part in parts {
        for block in part.chunks(FUSE_BLOCK) {
            // The checksum first brings the block in; the copy then only waits for its stores (10 % on a full ring).
            sum.update(block);
            // SAFETY: `at` counts bytes of the parts, whose sum the caller vouches for.
            unsafe { copy_past_caches(block, to.add(at), false) };
            at += block.len();
        }
    }
    sum.finish()
}

/// Copies without leaving the copy in the caches, where the processor and the place allow it. `is_last`: nothing
/// follows in the last line of 64 bytes, which is filled with zeros.
///
/// # Safety
/// `to` must be valid for writes of the length of `from`, with `is_last` up to the end of the line, and must not
/// overlap it. Nobody may be told of the copy before [`settle`].
#[inline]
unsafe fn copy_past_caches(from: &[u8], to: *mut u8, is_last: bool) {
    #[cfg(target_arch = "x86_64")]
    if to.addr().is_multiple_of(64) {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        let (lines, rest) = from.as_chunks::<64>();
        let mut at = to.cast::<__m128i>();
        let mut stream = |line: &[u8; 64]| {
            let line = line.as_ptr().cast::<__m128i>();
            // Word by word: closures over an array stay calls for each line, which pass the words through memory.
            // SAFETY: four times 16 bytes are a line; `at` is aligned, and the caller vouches for the length.
            unsafe {
                let (a, b) = (_mm_loadu_si128(line), _mm_loadu_si128(line.add(1)));
                let (c, d) = (_mm_loadu_si128(line.add(2)), _mm_loadu_si128(line.add(3)));
                _mm_stream_si128(at, a);
                _mm_stream_si128(at.add(1), b);
                _mm_stream_si128(at.add(2), c);
                _mm_stream_si128(at.add(3), d);
                at = at.add(4);
            }
        };
        lines.iter().for_each(&mut stream);
        if is_last && !rest.is_empty() {
            let mut line = [0; 64];
            line[..rest.len()].copy_from_slice(rest);
            return stream(&line);
        }
        // SAFETY: what is left of `from` goes behind the lines.
        return unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), at.cast(), rest.len()) };
    }
    // SAFETY: the caller vouches for both.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Entry;

    fn data() -> Vec<u8> {
        (0..100_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    #[test]
    fn the_check_value_of_the_catalogue() {
        // Williams, "A painless guide to CRC error detection algorithms": CRC-32C of "123456789".
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn short_long_and_fused_agree() {
        let data = data();
        let mut to = vec![0u8; data.len()];
        for len in (0..600).chain([4096, 8191, 8192, 8193, 16_384, 16_385, 65_536, 99_999]) {
            let bytes = &data[..len];
            let want = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32;
            assert_eq!((crc32c(bytes), crc32c_from_memory(bytes, to.as_ptr())), (want, want), "{len}");
            let (a, b) = bytes.split_at(len / 3);
            for parts in [&[bytes][..], &[a, b][..]] {
                to[..len].fill(0);
                // SAFETY: `to` is larger and apart.
                assert_eq!(unsafe { copy_crc(parts, to.as_mut_ptr()) }, want, "{len}");
                assert_eq!(&to[..len], bytes);
            }
        }
    }

    #[test]
    fn what_is_placed_holds_and_nothing_beside_it_changes() {
        let data = data();
        for len in (0..600).chain([8800, 99_999]) {
            let (payload, salt) = (&data[..len], 0x1234_5678 ^ len as u32);
            let words = [1, 2, 3, 0, 5, 6, len as u64, 0x8001];
            let (a, b) = payload.split_at(len / 3);
            for parts in [&[payload][..], &[a, b][..]] {
                let mut to = vec![0xeeu8; len + 16];
                let mut slot = [0; 8];
                // SAFETY: both places are large enough and apart.
                unsafe { place(parts, to.as_mut_ptr(), &words, salt, &mut slot) };
                let entry: Entry = bytemuck::cast(slot);
                assert!(entry.holds(salt) && entry.payload_holds(payload, salt), "{len}");
                assert_eq!((&to[..len], &to[len..]), (payload, &[0xee; 16][..]), "{len}");
                assert_eq!((entry.source_time, entry.length, entry.flags), (1, len as u32, 0x8001));
            }
        }
    }

    #[test]
    fn a_message_whose_checksum_is_known_is_placed_alike() {
        let data = data();
        let mut room = vec![0xee_u8; data.len() + 192];
        let line = room.as_ptr().align_offset(64);
        for len in (0..600).chain([4095, 4096, 8800, 99_999]) {
            let (payload, salt, words) =
                (&data[..len], 0x1234_5678 ^ len as u32, [1, 2, 3, 0, 5, 6, len as u64, 0x8001]);
            for (begin, places) in [(line, len.next_multiple_of(64)), (line + 8, len)] {
                room.fill(0xee);
                let mut slots = [[0; 8]; 2];
                // SAFETY: both places are large enough and apart.
                unsafe {
                    place_checked(payload, crc32c(payload), room[begin..].as_mut_ptr(), &words, salt, &mut slots[0]);
                    place(&[payload], vec![0; len].as_mut_ptr(), &words, salt, &mut slots[1]);
                }
                assert_eq!((&room[begin..begin + len], slots[0]), (payload, slots[1]), "{len}");
                // At most the last line is filled up.
                assert!(room[..begin].iter().chain(&room[begin + places..]).all(|byte| *byte == 0xee), "{len}");
            }
        }
    }
}
