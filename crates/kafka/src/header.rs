//! The headers of a message that a sink has sent.
//!
//! `beamport` names it for ever: 32 bytes, little endian, 16 of the stream's identity, 4 of the epoch, 4 of zeroes, and
//! 8 of the sequence. `beamport-origin` says where it was made: 8 bytes with its number, little endian, and the name of
//! its origin in UTF-8. A sink of an older program sends the first alone.

use crate::limits::ORIGIN_BYTES_MAX;
use flow::Identity;
use std::ffi::CStr;

/// The name of the header with the identity.
pub(crate) const NAME: &CStr = c"beamport";
/// The name of the header with the origin.
pub(crate) const ORIGIN: &CStr = c"beamport-origin";

/// The headers of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent<'a> {
    pub(crate) identity: Identity,
    pub(crate) origin: Option<SentOrigin<'a>>,
}

/// The origin of a message in the stream from which it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SentOrigin<'a> {
    /// Its number there.
    pub(crate) number: u64,
    /// The name, as it came: 1 to [`ORIGIN_BYTES_MAX`] bytes, perhaps no text.
    pub(crate) name: &'a [u8],
}

impl<'a> Sent<'a> {
    /// From the values of both headers; none where the first is missing, or another one.
    pub(crate) fn read(identity: Option<&[u8]>, origin: impl FnOnce() -> Option<&'a [u8]>) -> Option<Self> {
        let identity = read(identity?)?;
        Some(Self { identity, origin: origin().and_then(read_origin) })
    }
}

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

/// Puts the bytes of an origin in the place of those in `bytes`.
pub(crate) fn write_origin(number: u64, name: &str, bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(name.as_bytes());
}

/// The origin in a header; none where no stream could have it.
fn read_origin(bytes: &[u8]) -> Option<SentOrigin<'_>> {
    let (number, name) = bytes.split_first_chunk()?;
    let is_name = (1..=ORIGIN_BYTES_MAX).contains(&name.len());
    is_name.then(|| SentOrigin { number: u64::from_le_bytes(*number), name })
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

    #[test]
    fn an_origin_reads_back_and_one_that_no_stream_could_have_is_none() {
        let mut bytes = b"of before".to_vec();
        write_origin(258, "Å/cam", &mut bytes);
        assert_eq!(bytes, b"\x02\x01\0\0\0\0\0\0\xc3\x85/cam");
        assert_eq!(read_origin(&bytes), Some(SentOrigin { number: 258, name: "Å/cam".as_bytes() }));
        assert_eq!((read_origin(&bytes[..8]), read_origin(b"")), (None, None));
        write_origin(1, &"x".repeat(ORIGIN_BYTES_MAX + 1), &mut bytes);
        assert_eq!(read_origin(&bytes), None);
        let identity = Identity { uuid: [1; 16], epoch: 1, sequence: 2 };
        let header = write(&identity);
        assert_eq!(Sent::read(Some(&header), || Some(b"short")), Some(Sent { identity, origin: None }));
        assert_eq!(Sent::read(None, || Some(b"12345678cam")), None);
    }
}
