//! CRC-32C: the checksum of entries and payloads.
//!
//! Short inputs go through the processor's own instruction without any dispatch per call (a 100 B message costs
//! about 10 ns); long ones through `crc-fast`, which folds 64 bytes at a time. Both give the same value.

use crate::limits::FUSE_BLOCK;
use crc_fast::{CrcAlgorithm, Digest};

/// Up to here the single instruction is as fast as folding.
const SHORT: usize = 512;

/// CRC-32C (Castagnoli) of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() <= SHORT && std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the feature has been seen.
        return unsafe { short(bytes) };
    }
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
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

/// Copies `parts` one after another to `to` and returns the CRC-32C of what was copied.
///
/// Copy and checksum go together in blocks that stay in the first-level cache, so memory is read once.
///
/// # Safety
/// `to` must be valid for writes of the sum of the lengths and must not overlap any part.
#[inline]
pub unsafe fn copy_crc(parts: &[&[u8]], to: *mut u8) -> u32 {
    if let [one] = parts
        && one.len() <= SHORT
    {
        // SAFETY: the caller vouches for `to`.
        unsafe { std::ptr::copy_nonoverlapping(one.as_ptr(), to, one.len()) };
        return crc32c(one);
    }
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    let mut at = 0;
    for part in parts {
        for block in part.chunks(FUSE_BLOCK) {
            // SAFETY: `at` counts bytes of the parts, whose sum the caller vouches for.
            unsafe { std::ptr::copy_nonoverlapping(block.as_ptr(), to.add(at), block.len()) };
            digest.update(block);
            at += block.len();
        }
    }
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_catalogue() {
        // Williams, "A painless guide to CRC error detection algorithms": CRC-32C of "123456789".
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn short_long_and_fused_agree() {
        let data: Vec<u8> = (0..100_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut to = vec![0u8; data.len()];
        for len in (0..600).chain([4096, 8191, 8192, 8193, 65_536, 99_999]) {
            let bytes = &data[..len];
            let want = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32;
            assert_eq!(crc32c(bytes), want, "{len}");
            let (a, b) = bytes.split_at(len / 3);
            for parts in [&[bytes][..], &[a, b][..]] {
                to[..len].fill(0);
                // SAFETY: `to` is larger and apart.
                assert_eq!(unsafe { copy_crc(parts, to.as_mut_ptr()) }, want, "{len}");
                assert_eq!(&to[..len], bytes);
            }
        }
    }
}
