//! Blocks as they come from another host: any bytes, and valid blocks with changes.
//!
//! A changed block may be refused or lack messages, but shows none that differs from the original: every change must be
//! found by a checksum. A sender may also compute checksums of its own: then nothing can be compared, and each message
//! lies within the block.
//!
//! ```text
//! u8 kind, then: 0 a block; 1 a block whose head gets a valid checksum; 2 the same with its entries; 3 u8 which valid
//! block, changes of 4 B: u16 where, u8 what, u8 with what
//! ```

use crate::crc32c;
use crate::format::block::{Block, BlockBuilder, BlockHead, beat};
use crate::format::crc::crc32c_of_parts;
use crate::format::entry::{ENTRY_BYTES, Entry, SchemaId, flags, salt, salt_seed};
use crate::limits::{BLOCK_HEAD_BYTES, FUZZ_CHANGES_MAX};
use std::sync::OnceLock;

/// The outcome of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockSeen {
    /// It is different from the valid block from which it was made.
    pub is_changed: bool,
    /// Its head and its names were read.
    pub is_read: bool,
    /// Messages that verified.
    pub shown: usize,
    /// Messages that did not.
    pub missing: usize,
}

/// Number of messages of each valid block.
const COUNTS: [u64; 5] = [0, 1, 3, 12, 40];

/// Valid blocks: without messages, with one, with several of a few origins, some of them without a payload.
fn valid() -> &'static [Vec<u8>] {
    static BLOCKS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    BLOCKS.get_or_init(|| COUNTS.into_iter().map(made).collect())
}

/// A valid block of `count` messages.
fn made(count: u64) -> Vec<u8> {
    let (uuid, epoch, first) = ([0x5a; 16], 3, 1000 + count);
    if count == 0 {
        return beat(&BlockHead { uuid, epoch, count: 0, first, previous: first, frontier: -7 });
    }
    let mut builder = BlockBuilder::default();
    builder.begin(uuid, epoch, first, Vec::new());
    for number in 0..count {
        let payload: Vec<u8> = (0..number * 7 % 61).map(|at| (at * 3 + number) as u8).collect();
        let origin = (number % 3) as u32;
        let entry = Entry {
            source_time: number as i64 * 1000,
            arrival_time: number as i64 * 1000 + 1,
            origin_seq: number / 3,
            parent_sequence: 0,
            origin: origin + 70,
            schema: SchemaId(*b"test"),
            segment: 0,
            offset8: 0,
            length: payload.len() as u32,
            payload_crc: 0,
            flags: if number == 2 { flags::SUSPECT } else { 0 },
            parent: 0,
            crc: 0,
        };
        builder.push(&entry, crc32c(&payload), ["", "camera", "détecteur"][origin as usize], &payload);
    }
    builder.end(first - 1, count as i64 * 1000).1
}

/// Reads a case.
///
/// # Panics
///
/// If a message is not inside its block, was never in the block that was changed, or cannot be put into another block:
/// a bug.
pub fn block(bytes: &[u8]) -> BlockSeen {
    let Some((&kind, rest)) = bytes.split_first() else { return BlockSeen::default() };
    if kind % 4 == 3 {
        return changed(rest);
    }
    let mut bytes = rest.to_vec();
    if kind % 4 == 2 {
        seal_entries(&mut bytes);
    }
    if kind % 4 > 0 {
        seal_head(&mut bytes);
    }
    examine(&bytes, None)
}

/// Reads a valid block with changes.
fn changed(bytes: &[u8]) -> BlockSeen {
    let Some((&which, changes)) = bytes.split_first() else { return BlockSeen::default() };
    let original = &valid()[usize::from(which) % COUNTS.len()];
    let mut bytes = original.clone();
    for change in changes.chunks_exact(4).take(FUZZ_CHANGES_MAX) {
        let place = usize::from(u16::from_le_bytes([change[0], change[1]])) % bytes.len().max(1);
        match (change[2] % 16, bytes.get_mut(place)) {
            (0, _) => bytes.truncate(place),
            (1, _) => bytes.insert(place, change[3]),
            (2, Some(_)) => drop(bytes.remove(place)),
            (3, _) => bytes.extend_from_slice(&original[place.min(original.len())..]),
            (4..8, Some(byte)) => *byte = change[3],
            (_, Some(byte)) => *byte ^= 1 << (change[3] % 8),
            _ => {}
        }
    }
    BlockSeen { is_changed: bytes != *original, ..examine(&bytes, Some(original)) }
}

/// Reads all of a block and puts its messages into another. `original`: the block from which it was made.
fn examine(bytes: &[u8], original: Option<&[u8]>) -> BlockSeen {
    let Ok(block) = Block::read(bytes) else { return BlockSeen::default() };
    assert!(block.origins.len() <= block.len(), "a list of origins that the messages do not need");
    let original = original.map(|original| Block::read(original).expect("a valid block can be read"));
    if let Some(original) = &original {
        assert_eq!(block.head, original.head, "a changed head verifies");
        assert_eq!(block.origins, original.origins, "changed names verify");
    }
    let mut seen = BlockSeen { is_read: true, ..BlockSeen::default() };
    let within = bytes.as_ptr_range();
    for at in 0..block.len() {
        let Some(message) = block.message(at) else {
            seen.missing += 1;
            continue;
        };
        seen.shown += 1;
        let payload = message.payload.as_ptr_range();
        assert!(within.start <= payload.start && payload.end <= within.end, "a payload outside its block");
        assert_eq!(message.payload.len(), message.entry.length as usize);
        assert_eq!(message.sequence, block.head.first + at as u64);
        if let Some(original) = &original {
            let right = original.message(at).expect("all messages of a valid block verify");
            assert_eq!((message.entry, message.sum), (right.entry, right.sum), "a changed entry verifies");
            assert_eq!(message.payload, right.payload, "a changed payload verifies");
        }
        again(&block, at);
    }
    assert!(block.message(block.len()).is_none() && block.message(usize::MAX / ENTRY_BYTES - 1).is_none());
    seen
}

/// Puts a message into a block of its own: the same message comes out.
fn again(block: &Block<'_>, at: usize) {
    let message = block.message(at).expect("it was read before");
    let origin = block.origins[message.entry.origin as usize];
    let mut builder = BlockBuilder::default();
    builder.begin(block.head.uuid, block.head.epoch, message.sequence, Vec::new());
    builder.push(&message.entry, message.sum, origin, message.payload);
    let (head, bytes) = builder.end(block.head.previous.min(message.sequence), block.head.frontier);
    let other = Block::read(&bytes).expect("a block that was made can be read");
    let copy = other.message(0).expect("its message verifies");
    assert_eq!((other.head, other.origins[0]), (head, origin));
    assert_eq!((copy.sequence, copy.sum, copy.payload), (message.sequence, message.sum, message.payload));
    let place =
        |entry: Entry| Entry { parent_sequence: 0, origin: 0, segment: 0, offset8: 0, payload_crc: 0, crc: 0, ..entry };
    assert_eq!(place(copy.entry), place(message.entry));
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The beginnings of entries and names, as the head says.
fn places(bytes: &[u8]) -> Option<(usize, usize)> {
    if bytes.len() < BLOCK_HEAD_BYTES {
        return None;
    }
    let names = bytes.len().checked_sub(word(bytes, 56) as usize)?;
    let entries = names.checked_sub((word(bytes, 28) as usize).checked_mul(ENTRY_BYTES)?)?;
    (entries >= BLOCK_HEAD_BYTES).then_some((entries, names))
}

/// Gives the head a checksum that holds.
fn seal_head(bytes: &mut [u8]) {
    if let Some((_, names)) = places(bytes) {
        let sum = crc32c_of_parts(&[&bytes[..60], &bytes[names..]]);
        bytes[60..64].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Gives entries checksums that hold, where their last bytes are odd.
fn seal_entries(bytes: &mut [u8]) {
    let Some((entries, names)) = places(bytes) else { return };
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&bytes[8..24]);
    let seed = salt_seed(&uuid, word(bytes, 24));
    let first = u64::from(word(bytes, 32)) | u64::from(word(bytes, 36)) << 32;
    let (before, behind) = bytes.split_at_mut(entries);
    for (at, bytes) in behind[..names - entries].chunks_exact_mut(ENTRY_BYTES).enumerate() {
        if bytes[ENTRY_BYTES - 1] & 1 == 0 {
            continue;
        }
        let mut entry: Entry = bytemuck::pod_read_unaligned(bytes);
        let salt = salt(seed, first.wrapping_add(at as u64));
        let payload = before[BLOCK_HEAD_BYTES..].get(entry.offset() as usize..);
        let sum = payload.and_then(|payload| payload.get(..entry.length as usize)).map_or(0, crc32c);
        entry.payload_crc = sum ^ salt;
        entry.seal(salt);
        bytes.copy_from_slice(bytemuck::bytes_of(&entry));
    }
}
