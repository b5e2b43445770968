//! One index entry: 64 bytes, little endian, the unit of everything that orders, searches and counts.
//!
//! ```text
//!  0  i64 source time, ns since 1970 UTC (or ticks, as the stream declares)
//!  8  i64 arrival time, ns since 1970 UTC, monotone within the stream
//! 16  u64 origin sequence: the number its maker gave it
//! 24  u64 parent sequence (view entries; else 0): see `view`
//! 32  u32 origin: row of the stream's origin table
//! 36  [u8;4] schema id
//! 40  u32 payload segment            (view entries: where the next payload of this stream's own would begin)
//! 44  u32 payload offset in units of 8 bytes
//! 48  u32 payload length in bytes    (view entries: of the parent's payload, as the checksum)
//! 52  u32 CRC-32C of the payload, xor salt(uuid, epoch, sequence)
//! 56  u16 quality flags
//! 58  u16 parent: row of the stream's table of parents, counted from 1 (0: the payload is here)
//! 60  u32 CRC-32C of bytes 0..60, xor salt(uuid, epoch, sequence)
//! ```
//!
//! The sequence is not stored: it is the position, and the salt proves it.

use crate::format::crc::crc32c;
use bytemuck::{Pod, Zeroable};

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 64;

/// The four letters that say how a payload is to be read, for example `ev44`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Pod, Zeroable)]
#[repr(transparent)]
pub struct SchemaId(pub [u8; 4]);

impl SchemaId {
    /// The id as text, `?` for a byte that is not printable ASCII.
    pub fn as_text(&self) -> String {
        self.0.iter().map(|&b| if b.is_ascii_graphic() { b as char } else { '?' }).collect()
    }
}

impl std::fmt::Display for SchemaId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.as_text())
    }
}

impl std::fmt::Debug for SchemaId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.as_text())
    }
}

/// Quality flags of a message.
pub mod flags {
    /// The source time lies further beyond arrival than the source may be ahead (`ahead_max`).
    pub const AHEAD: u16 = 1;
    /// The source said that the piece of data is suspect.
    pub const SUSPECT: u16 = 2;
    /// The arrival time is that of an earlier message, as the machine's clock was set back: set by the store.
    pub const CLOCK: u16 = 4;
    /// The source sends its last value again: content and source time are those of an earlier message.
    pub const REPEAT: u16 = 8;
    /// The first message of a block that a host has got to work on: a worker makes no block across it, and a commit of
    /// all that lies before it. Messages leave the host without it.
    pub const BLOCK: u16 = 16;
    /// A byte in bits 8 to 15, which a source uses as it likes; the store keeps them.
    pub const fn of_source(byte: u8) -> u16 {
        (byte as u16) << 8
    }

    /// The byte of a source in bits 8 to 15.
    pub const fn byte_of_source(flags: u16) -> u8 {
        (flags >> 8) as u8
    }

    /// The word of each flag that is set.
    pub fn words(flags: u16) -> Vec<&'static str> {
        let all = [(AHEAD, "ahead"), (SUSPECT, "suspect"), (CLOCK, "clock"), (REPEAT, "repeat")];
        all.into_iter().filter(|(flag, _)| flags & flag != 0).map(|(_, word)| word).collect()
    }
}

/// The facts about a message that its maker gives; the store adds place, arrival and checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Nanoseconds since 1970 UTC from the source itself.
    pub source_time: i64,
    /// Row of the stream's origin table, from `Writer::origin`.
    pub origin: u32,
    /// The number its maker gave the message; consecutive per origin where loss is to be seen.
    pub origin_seq: u64,
    /// How the payload is to be read.
    pub schema: SchemaId,
    /// Quality, see [`flags`].
    pub flags: u16,
}

impl Meta {
    /// The facts of an entry about its message, for a copy in another stream in which its maker has this row.
    pub fn of(entry: &Entry, origin: u32) -> Self {
        let &Entry { source_time, origin_seq, schema, flags, .. } = entry;
        // The copy has an arrival of its own.
        Self { source_time, origin, origin_seq, schema, flags: flags & !flags::CLOCK }
    }
}

/// One index entry; the module says the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Entry {
    /// Nanoseconds since 1970 UTC from the source.
    pub source_time: i64,
    /// Nanoseconds since 1970 UTC when it was appended, monotone within the stream.
    pub arrival_time: i64,
    /// The number its maker gave the message.
    pub origin_seq: u64,
    /// Sequence in the parent stream (view entries).
    pub parent_sequence: u64,
    /// Row of the origin table.
    pub origin: u32,
    /// How the payload is to be read.
    pub schema: SchemaId,
    /// Number of the payload segment.
    pub segment: u32,
    /// Place of the payload in the segment, in units of 8 bytes.
    pub offset8: u32,
    /// Bytes of payload.
    pub length: u32,
    /// Salted CRC-32C of the payload.
    pub payload_crc: u32,
    /// Quality, see [`flags`].
    pub flags: u16,
    /// Row of the table of parents, counted from 1; 0 where the payload is in this stream.
    pub parent: u16,
    /// Salted CRC-32C of the 60 bytes before.
    pub crc: u32,
}

const _: () = assert!(std::mem::size_of::<Entry>() == ENTRY_BYTES);

/// The part of the salt that a stream and an epoch share; mixed with the sequence by [`salt`].
pub(crate) fn salt_seed(uuid: &[u8; 16], epoch: u32) -> u64 {
    let (a, b) = uuid.split_at(8);
    let a = u64::from_le_bytes(a.try_into().unwrap_or_default());
    let b = u64::from_le_bytes(b.try_into().unwrap_or_default());
    mix(a ^ mix(b ^ mix(u64::from(epoch) + 1)))
}

/// The salt of one position: all 32 bits depend on all of (uuid, epoch, sequence).
#[inline]
pub(crate) fn salt(seed: u64, sequence: u64) -> u32 {
    (mix(seed ^ sequence) >> 32) as u32
}

/// The generator splitmix64: advances `state` and returns its next 64 bits, the same on every machine.
pub fn splitmix64(state: &mut u64) -> u64 {
    let word = mix(*state);
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word
}

/// The finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection in which each input bit moves half of the output bits.
#[inline]
pub fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Entry {
    /// Payload place in bytes.
    #[inline]
    pub fn offset(&self) -> u64 {
        u64::from(self.offset8) * 8
    }

    /// Where the payload ends and the next may begin. A view entry has no bytes of its own here: they are its parent's.
    #[inline]
    pub fn end(&self) -> u64 {
        self.offset() + if self.parent == 0 { u64::from(self.length) } else { 0 }
    }

    /// Sets the entry's own checksum for a position.
    #[inline]
    pub fn seal(&mut self, salt: u32) {
        self.crc = self.own_crc() ^ salt;
    }

    /// True if the entry was written for this position, stream and epoch and no bit has changed.
    #[inline]
    pub fn holds(&self, salt: u32) -> bool {
        self.own_crc() ^ salt == self.crc
    }

    /// True if `payload` is what was appended at this position.
    #[inline]
    pub fn payload_holds(&self, payload: &[u8], salt: u32) -> bool {
        crc32c(payload) ^ salt == self.payload_crc
    }

    /// CRC-32C of the payload, without the salt of this position of a stream and epoch: that of the parent for a view
    /// entry.
    #[inline]
    pub fn payload_sum(&self, uuid: &[u8; 16], epoch: u32, sequence: u64) -> u32 {
        self.payload_crc ^ salt(salt_seed(uuid, epoch), sequence)
    }

    #[inline]
    fn own_crc(&self) -> u32 {
        crc32c(&bytemuck::bytes_of(self)[..60])
    }
}
