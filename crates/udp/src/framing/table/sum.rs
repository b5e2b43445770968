//! Checksums of units.

use super::field::Field;
use settings::Word;
use std::ops::Range;

/// How a checksum is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    /// CRC-32C (iSCSI, SCTP).
    #[default]
    Crc32c,
    /// CRC-32 of Ethernet and zlib.
    Crc32,
    /// CRC-16 of X.25 and HDLC.
    Crc16,
    /// The sum of words of 16 bits in ones' complement, big endian (RFC 1071).
    Internet,
    /// The sum of all bytes.
    Sum,
}

impl Word for Kind {
    const ALL: &'static [(&'static str, Self)] = &[
        ("crc32c", Self::Crc32c),
        ("crc32", Self::Crc32),
        ("crc16", Self::Crc16),
        ("internet", Self::Internet),
        ("sum", Self::Sum),
    ];
}

/// A checksum of a unit.
#[derive(Clone, Debug)]
pub(crate) struct Sum {
    pub(super) kind: Kind,
    pub(super) field: Field,
    /// First byte that it covers, and the one behind the last; negative, and 0 of the latter: from the end.
    pub(super) from: i64,
    pub(super) to: i64,
}

impl Sum {
    /// The bytes that it covers.
    fn range(&self, length: usize) -> Option<Range<usize>> {
        let place = |at: i64| match at {
            0.. => usize::try_from(at).ok(),
            _ => length.checked_sub(usize::try_from(at.unsigned_abs()).ok()?),
        };
        let (from, to) = (place(self.from)?, if self.to == 0 { length } else { place(self.to)? });
        (from <= to && to <= length).then_some(from..to)
    }

    /// The right sum, with its own bytes as zeros where it covers them; none where the unit is too short.
    pub(super) fn of(&self, unit: &[u8]) -> Option<u64> {
        let range = self.range(unit.len())?;
        let own = self.field.range(unit.len())?;
        let sum = if own.start < range.end && range.start < own.end {
            let mut bytes = unit.to_vec();
            bytes.get_mut(own)?.fill(0);
            self.kind.sum(&bytes[range])
        } else {
            self.kind.sum(&unit[range])
        };
        Some(sum & (u64::MAX >> (64 - self.field.bits)))
    }
}

impl Kind {
    fn sum(self, bytes: &[u8]) -> u64 {
        match self {
            Self::Crc32c => store::crc32c(bytes).into(),
            Self::Crc32 => crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, bytes),
            Self::Crc16 => crc_fast::checksum(crc_fast::CrcAlgorithm::Crc16IbmSdlc, bytes),
            Self::Internet => {
                let word = |pair: &[u8]| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u64::from(*low));
                let mut sum: u64 = bytes.chunks(2).map(word).sum();
                while sum >> 16 > 0 {
                    sum = (sum & 0xffff) + (sum >> 16);
                }
                !sum & 0xffff
            }
            Self::Sum => bytes.iter().map(|byte| u64::from(*byte)).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_their_standards() {
        let check = |kind: Kind| kind.sum(b"123456789");
        assert_eq!([check(Kind::Crc32c), check(Kind::Crc32), check(Kind::Crc16)], [0xe306_9283, 0xcbf4_3926, 0x906e]);
        // The example of RFC 1071.
        assert_eq!(Kind::Internet.sum(&[0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6, 0xf7]), 0x220d);
        assert_eq!(check(Kind::Sum), (0x31..=0x39).sum::<u64>());
    }
}
