//! The header `beamport` of a message that a sink has sent: what names it for ever.
//!
//! 32 bytes, little endian: 16 of the stream's identity, 4 of the epoch, 4 of zeroes, 8 of the sequence.

use flow::Identity;
use std::ffi::CStr;

/// Its name.
pub(crate) const NAME: &CStr = c"beamport";

/// The bytes of an identity.
pub(crate) fn write(identity: &Identity) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(&identity.uuid);
    bytes[16..20].copy_from_slice(&identity.epoch.to_le_bytes());
    bytes[24..].copy_from_slice(&identity.sequence.to_le_bytes());
    bytes
}

/// The identity in a header; none where it is another one.
pub(crate) fn read(bytes: &[u8]) -> Option<Identity> {
    let bytes: &[u8; 32] = bytes.try_into().ok()?;
    let (uuid, rest) = bytes.split_first_chunk()?;
    let (epoch, rest) = rest.split_first_chunk()?;
    let (zeroes, rest) = rest.split_first_chunk::<4>()?;
    let (sequence, _) = rest.split_first_chunk()?;
    let identity = Identity { uuid: *uuid, epoch: u32::from_le_bytes(*epoch), sequence: u64::from_le_bytes(*sequence) };
    (*zeroes == [0; 4]).then_some(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_and_others_are_none() {
        let identity = Identity { uuid: *b"0123456789abcdef", epoch: 7, sequence: 1 << 40 };
        let mut bytes = write(&identity);
        assert_eq!(bytes, *b"0123456789abcdef\x07\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0");
        assert_eq!(read(&bytes), Some(identity));
        assert_eq!(read(&bytes[..31]), None);
        bytes[20] = 1;
        assert_eq!(read(&bytes), None);
    }
}
