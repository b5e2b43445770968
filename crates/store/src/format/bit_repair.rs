//! Finds wrong bits with CRC-32C, as an error-correcting code for pieces short enough that the answer is unique.
//!
//! Up to 5,243 bits (checksum included) any two valid pieces differ in at least 6 bits (Koopman 2002), so one or two
//! wrong bits have exactly one explanation. Three or more may look like two others: with 512 bits in 1 of 33,000 cases.
//! That is why a repaired entry must be confirmed by the checksum of its payload.

use crate::format::crc::crc32c;

/// Bytes of a piece that can be mended, so that two wrong bits have one explanation.
const MENDED_BYTES_MAX: usize = 5243 / 8 - 4;

/// What each wrong bit does to the checksum: those of the piece in order, then those of the checksum itself.
fn traces(len: usize) -> Vec<u32> {
    let mut piece = vec![0; len];
    let zero = crc32c(&piece);
    let of_piece = (0..len * 8).map(|bit| {
        piece[bit / 8] ^= 1 << (bit % 8);
        let trace = crc32c(&piece) ^ zero;
        piece[bit / 8] = 0;
        trace
    });
    let mut traces: Vec<u32> = of_piece.collect();
    traces.extend((0..32).map(|bit| 1_u32 << bit));
    traces
}

/// The one or two wrong bits of `piece` and its stored checksum: bit `8 i + j` is bit j of byte i, those from
/// `8 len` on are the checksum's. None if there is no such explanation, or nothing to explain.
pub(crate) fn wrong_bits(piece: &[u8], stored: u32) -> Option<Vec<usize>> {
    let difference = crc32c(piece) ^ stored;
    if difference == 0 || piece.len() > MENDED_BYTES_MAX {
        return None;
    }
    let traces = traces(piece.len());
    if let Some(bit) = traces.iter().position(|&t| t == difference) {
        return Some(vec![bit]);
    }
    let mut places: Vec<(u32, usize)> = traces.iter().copied().zip(0..).collect();
    places.sort_unstable();
    let second = |first: u32| places.binary_search_by_key(&(first ^ difference), |p| p.0).ok().map(|at| places[at].1);
    traces.iter().enumerate().find_map(|(bit, &trace)| second(trace).map(|other| vec![bit, other]))
}

/// The piece with its wrong bits turned, and its checksum.
pub(crate) fn mended(piece: &[u8], stored: u32) -> Option<(Vec<u8>, u32)> {
    let (mut piece, mut crc) = (piece.to_vec(), stored);
    for bit in wrong_bits(&piece, stored)? {
        match piece.get_mut(bit / 8) {
            Some(byte) => *byte ^= 1 << (bit % 8),
            None => crc ^= 1 << (bit - piece.len() * 8),
        }
    }
    Some((piece, crc))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_one_or_two_wrong_bits_are_found_again() {
        let good: Vec<u8> = (0..60).map(|i: u8| i.wrapping_mul(37)).collect();
        let crc = crc32c(&good);
        assert_eq!(mended(&good, crc), None);
        let bits = good.len() * 8 + 32;
        for a in 0..bits {
            for b in [a, (a * 7 + 13) % bits] {
                let (mut piece, mut stored) = (good.clone(), crc);
                for bit in if a == b { vec![a] } else { vec![a, b] } {
                    if bit < 480 { piece[bit / 8] ^= 1 << (bit % 8) } else { stored ^= 1 << (bit - 480) }
                }
                assert_eq!(mended(&piece, stored), Some((good.clone(), crc)), "{a} {b}");
            }
        }
    }

    #[test]
    fn a_piece_written_over_is_not_mended() {
        let mut mended_anyway = 0;
        for seed in 0..2000_u32 {
            let piece: Vec<u8> =
                (0..60).map(|i| (seed.wrapping_mul(2_654_435_761).rotate_left(i) >> 7) as u8).collect();
            mended_anyway += u32::from(wrong_bits(&piece, seed.wrapping_mul(40_503)).is_some());
        }
        // 1 of 33,000 by chance: an entry needs its payload to confirm it.
        assert!(mended_anyway <= 2, "{mended_anyway}");
    }
}
