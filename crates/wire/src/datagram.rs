//! The header of the datagrams of the framing `beamport`: 64 bytes, little endian, before the payload.
//!
//! It is no FlatBuffer, because boards make it in hardware. Layout: docs/reference/udp.md. The checksums are CRC-32C;
//! the caller passes the function, because this crate has none.

use crate::limits::{HEADER_BYTES, HEADER_CHECKED_BYTES as CHECKED};

/// The first bytes: a word, the version, and how many bytes the header has.
pub const MAGIC: [u8; 6] = *b"BPRT\x01\x40";

/// Bits of [`Header::flags`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Flag {
    /// The timestamp is ns since 1970 UTC.
    Epoch = 1,
}

/// The type of a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Type {
    /// A message.
    #[default]
    Data,
    /// The board sends nothing more; `sequence` is the number that its next message would have.
    End,
    /// A request to the boards to send less, or again as much as they like.
    Throttle,
    /// A sign of life; `sequence` is the number of the next message.
    Beat,
    /// Another number.
    Other(u16),
}

impl Type {
    fn of(number: u16) -> Self {
        match number {
            1 => Self::Data,
            2 => Self::End,
            3 => Self::Throttle,
            4 => Self::Beat,
            other => Self::Other(other),
        }
    }

    fn number(self) -> u16 {
        match self {
            Self::Data => 1,
            Self::End => 2,
            Self::Throttle => 3,
            Self::Beat => 4,
            Self::Other(number) => number,
        }
    }
}

/// The header of a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The type of the datagram.
    pub kind: Type,
    /// Chosen by the sender.
    pub subtype: u16,
    /// Chosen by the sender: the number of the detector, for example.
    pub stream: u16,
    /// [`Flag`]; the other bits are 0.
    pub flags: u32,
    /// Time of the measurement, ns since 1970 UTC with [`Flag::Epoch`], otherwise ticks of the board.
    pub timestamp: u64,
    /// Number of the message.
    pub sequence: u64,
    /// Bytes of the payload.
    pub payload_bytes: u32,
    /// CRC-32C of the payload.
    pub payload_crc: u32,
    /// Number of the run, chosen by the sender.
    pub run: u32,
    /// Schema id of the payload.
    pub schema: [u8; 4],
    /// CRC-32C of the bytes before it, as it was read; [`Header::to_bytes`] computes it.
    pub header_crc: u32,
}

/// Why bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// They do not begin with [`MAGIC`].
    Magic,
    /// They are fewer than [`HEADER_BYTES`].
    Length,
    /// The checksum of the header is wrong.
    Checksum,
}

impl Header {
    /// Whether the timestamp is ns since 1970 UTC.
    pub fn is_epoch(&self) -> bool {
        self.flags & Flag::Epoch as u32 != 0
    }

    /// Reads the header of a datagram.
    pub fn read(bytes: &[u8], crc32c: impl Fn(&[u8]) -> u32) -> Result<Self, Refusal> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(Refusal::Length)?;
        if !bytes.starts_with(&MAGIC) {
            return Err(Refusal::Magic);
        }
        let header_crc = u32::from_le_bytes(part(bytes, CHECKED));
        if crc32c(&bytes[..CHECKED]) != header_crc {
            return Err(Refusal::Checksum);
        }
        Ok(Self {
            kind: Type::of(u16::from_le_bytes(part(bytes, 6))),
            subtype: u16::from_le_bytes(part(bytes, 8)),
            stream: u16::from_le_bytes(part(bytes, 10)),
            flags: u32::from_le_bytes(part(bytes, 12)),
            timestamp: u64::from_le_bytes(part(bytes, 16)),
            sequence: u64::from_le_bytes(part(bytes, 24)),
            payload_bytes: u32::from_le_bytes(part(bytes, 32)),
            payload_crc: u32::from_le_bytes(part(bytes, 36)),
            run: u32::from_le_bytes(part(bytes, 40)),
            schema: part(bytes, 48),
            header_crc,
        })
    }

    /// The bytes of the header, with its checksum.
    pub fn to_bytes(&self, crc32c: impl Fn(&[u8]) -> u32) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        put(0, &MAGIC);
        put(6, &self.kind.number().to_le_bytes());
        put(8, &self.subtype.to_le_bytes());
        put(10, &self.stream.to_le_bytes());
        put(12, &self.flags.to_le_bytes());
        put(16, &self.timestamp.to_le_bytes());
        put(24, &self.sequence.to_le_bytes());
        put(32, &self.payload_bytes.to_le_bytes());
        put(36, &self.payload_crc.to_le_bytes());
        put(40, &self.run.to_le_bytes());
        put(48, &self.schema);
        let crc = crc32c(&bytes[..CHECKED]);
        bytes[CHECKED..CHECKED + 4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

/// `N` bytes from a place on that has them.
fn part<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}
