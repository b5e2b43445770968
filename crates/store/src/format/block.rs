//! Blocks: messages of one stream in one piece of bytes, as they travel between hosts.
//! `docs/reference/stream-format.md` has the bytes.
//!
//! A block is complete in itself: it has the names of its origins, so that a reader may begin with any. Its entries
//! have the form and the salts of the stream's own index, so a message is proven by the same checksums on its way.
//!
//! Constraint: a payload is copied once, into the block; entries and names follow the payloads, because their number is
//! known only when the block is complete.
//!
//! Failure behaviour: [`Block::read`] takes any bytes. A head that does not verify is an error with a text; a message
//! that does not verify is left out alone.

use crate::format::crc::{crc32c, crc32c_of_parts};
use crate::format::entry::{ENTRY_BYTES, Entry, salt, salt_seed};
use crate::limits::{BLOCK_HEAD_BYTES, BLOCK_MESSAGES_MAX, BLOCK_VERSION, NEAR_GONE, ORIGIN_NAME_MAX};
use std::collections::HashMap;

/// The head of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockHead {
    /// Identity of the near stream.
    pub uuid: [u8; 16],
    /// Epoch of the messages.
    pub epoch: u32,
    /// Messages in it; 0 where it brings the frontier alone.
    pub count: u32,
    /// Sequence of the first message; of a block without messages that of the next one.
    pub first: u64,
    /// One past the last sequence of this stream that was put before this block to where it is read. Below `first`
    /// where the near side had lost what lies between.
    pub previous: u64,
    /// Messages up to this source time are in this block or before it, ns since 1970 UTC.
    pub frontier: i64,
}

impl BlockHead {
    /// One past the last sequence.
    pub fn next(&self) -> u64 {
        self.first + u64::from(self.count)
    }
}

/// Makes a block of messages that follow each other without a break, in one epoch.
#[derive(Debug, Default)]
pub struct BlockBuilder {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    rows: Vec<u8>,
    /// Rows of the block by the row of the origin in the stream.
    row_of: HashMap<u32, u32>,
    /// The row that was used last: by that in the stream.
    last: Option<(u32, u32)>,
    head: BlockHead,
    seed: u64,
}

impl BlockBuilder {
    /// Begins a block, in the memory of one before. `first`: of its first message.
    pub fn begin(&mut self, uuid: [u8; 16], epoch: u32, first: u64, mut memory: Vec<u8>) {
        memory.clear();
        memory.resize(BLOCK_HEAD_BYTES, 0);
        let seed = salt_seed(&uuid, epoch);
        self.entries.clear();
        self.rows.clear();
        self.row_of.clear();
        self.bytes = memory;
        (self.last, self.seed) = (None, seed);
        self.head = BlockHead { uuid, epoch, first, ..BlockHead::default() };
    }

    /// Its first sequence.
    pub fn first(&self) -> u64 {
        self.head.first
    }

    /// One past its last sequence.
    pub fn next(&self) -> u64 {
        self.head.next()
    }

    /// Identity and epoch of its messages.
    pub fn of(&self) -> ([u8; 16], u32) {
        (self.head.uuid, self.head.epoch)
    }

    /// Messages in it.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it has no message.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes that it has when it ends now.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.entries.len() * ENTRY_BYTES + self.rows.len()
    }

    /// Whether a message fits into a block of at most `most` bytes; the first always does.
    pub fn has_room(&self, payload: usize, origin: &str, most: usize) -> bool {
        let more = payload.next_multiple_of(8) + ENTRY_BYTES + 2 + origin.len();
        self.is_empty() || self.len() < BLOCK_MESSAGES_MAX && self.bytes() + more <= most
    }

    /// Adds the next message. `entry`: as the stream has it; `sum`: CRC-32C of its payload; `origin`: its name.
    pub fn push(&mut self, entry: &Entry, sum: u32, origin: &str, payload: &[u8]) {
        let salt = salt(self.seed, self.head.next());
        let row = match self.last {
            Some((known, row)) if known == entry.origin => row,
            _ => self.row(entry.origin, origin),
        };
        let offset = self.bytes.len() - BLOCK_HEAD_BYTES;
        self.bytes.extend_from_slice(payload);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let mut entry = Entry {
            parent_sequence: 0,
            origin: row,
            segment: 0,
            offset8: (offset / 8) as u32,
            payload_crc: sum ^ salt,
            parent: 0,
            ..*entry
        };
        entry.seal(salt);
        self.entries.push(entry);
        self.head.count += 1;
    }

    fn row(&mut self, known: u32, name: &str) -> u32 {
        let new = self.row_of.len() as u32;
        let row = *self.row_of.entry(known).or_insert(new);
        if row == new {
            let mut len = name.len().min(ORIGIN_NAME_MAX);
            while !name.is_char_boundary(len) {
                len -= 1;
            }
            self.rows.extend_from_slice(&(len as u16).to_le_bytes());
            self.rows.extend_from_slice(&name.as_bytes()[..len]);
        }
        self.last = Some((known, row));
        row
    }

    /// Ends the block: its bytes.
    pub fn end(&mut self, previous: u64, frontier: i64) -> (BlockHead, Vec<u8>) {
        self.head.previous = previous;
        self.head.frontier = frontier;
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.extend_from_slice(bytemuck::cast_slice(&self.entries));
        bytes.extend_from_slice(&self.rows);
        write_head(&self.head, &self.rows, &mut bytes);
        let head = self.head;
        self.entries.clear();
        (self.head.first, self.head.count) = (head.next(), 0);
        (head, bytes)
    }
}

/// A block without messages, which brings the frontier alone.
pub fn beat(head: &BlockHead) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK_HEAD_BYTES];
    write_head(&BlockHead { count: 0, ..*head }, &[], &mut bytes);
    bytes
}

fn write_head(head: &BlockHead, rows: &[u8], bytes: &mut [u8]) {
    let at = &mut bytes[..BLOCK_HEAD_BYTES];
    at[..4].copy_from_slice(b"BBLK");
    at[4..6].copy_from_slice(&BLOCK_VERSION.to_le_bytes());
    at[8..24].copy_from_slice(&head.uuid);
    at[24..28].copy_from_slice(&head.epoch.to_le_bytes());
    at[28..32].copy_from_slice(&head.count.to_le_bytes());
    at[32..40].copy_from_slice(&head.first.to_le_bytes());
    at[40..48].copy_from_slice(&head.previous.to_le_bytes());
    at[48..56].copy_from_slice(&head.frontier.to_le_bytes());
    at[56..60].copy_from_slice(&(rows.len() as u32).to_le_bytes());
    let sum = sum(&at[..60], rows);
    at[60..64].copy_from_slice(&sum.to_le_bytes());
}

/// The checksum of a head: of its first 60 bytes and the names of origins.
fn sum(head: &[u8], rows: &[u8]) -> u32 {
    crc32c_of_parts(&[head, rows])
}

/// A block that was read.
#[derive(Debug)]
pub struct Block<'a> {
    /// Its head.
    pub head: BlockHead,
    /// Names of its origins.
    pub origins: Vec<&'a str>,
    payloads: &'a [u8],
    entries: &'a [u8],
    seed: u64,
}

/// A message of a block.
#[derive(Clone, Copy, Debug)]
pub struct BlockMessage<'a> {
    /// Its sequence in the near stream.
    pub sequence: u64,
    /// Its entry; `origin` is a row of [`Block::origins`].
    pub entry: Entry,
    /// CRC-32C of the payload.
    pub sum: u32,
    /// The bytes.
    pub payload: &'a [u8],
}

impl<'a> Block<'a> {
    /// Reads the head and the names; messages are verified when they are asked for. An error says what is wrong.
    pub fn read(bytes: &'a [u8]) -> Result<Self, String> {
        let (head, rest) = bytes
            .split_first_chunk::<BLOCK_HEAD_BYTES>()
            .ok_or_else(|| format!("{} bytes are no block", bytes.len()))?;
        if head[..4] != *b"BBLK" {
            return Err("it does not begin as a block".into());
        }
        let version = u16::from_le_bytes([head[4], head[5]]);
        if version != BLOCK_VERSION {
            return Err(format!("it has version {version} of blocks, and this program reads {BLOCK_VERSION}"));
        }
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let (count, rows) = (word(28) as usize, word(56) as usize);
        let ends = count.checked_mul(ENTRY_BYTES).and_then(|entries| entries.checked_add(rows));
        let payloads = ends.and_then(|ends| rest.len().checked_sub(ends)).ok_or("it is shorter than its head says")?;
        if count > BLOCK_MESSAGES_MAX {
            return Err(format!("it has {count} messages, more than {BLOCK_MESSAGES_MAX}"));
        }
        let (payloads, rest) = rest.split_at(payloads);
        let (entries, rows) = rest.split_at(count * ENTRY_BYTES);
        if sum(&head[..60], rows) != word(60) {
            return Err("its checksum does not hold".into());
        }
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&head[8..24]);
        let head = BlockHead {
            uuid,
            epoch: word(24),
            count: count as u32,
            first: long(32),
            previous: long(40),
            frontier: long(48) as i64,
        };
        let next = head.first.checked_add(count as u64).filter(|next| *next <= NEAR_GONE);
        if next.is_none() || head.previous > head.first {
            return Err("its sequences do not follow each other".into());
        }
        let seed = salt_seed(&head.uuid, head.epoch);
        Ok(Self { head, origins: names(rows, count)?, payloads, entries, seed })
    }

    /// Messages in it.
    pub fn len(&self) -> usize {
        self.head.count as usize
    }

    /// Whether it has no message.
    pub fn is_empty(&self) -> bool {
        self.head.count == 0
    }

    /// The message at a place, from 0; none where it does not verify.
    pub fn message(&self, at: usize) -> Option<BlockMessage<'a>> {
        let entry = self.entries.get(at * ENTRY_BYTES..(at + 1) * ENTRY_BYTES)?;
        let entry: Entry = bytemuck::pod_read_unaligned(entry);
        let sequence = self.head.first + at as u64;
        let salt = salt(self.seed, sequence);
        let begin = usize::try_from(entry.offset()).ok()?;
        let payload = self.payloads.get(begin..begin.checked_add(entry.length as usize)?)?;
        let sum = crc32c(payload);
        let is_right = entry.holds(salt)
            && sum ^ salt == entry.payload_crc
            && entry.parent == 0
            && self.origins.len() > entry.origin as usize;
        is_right.then_some(BlockMessage { sequence, entry, sum, payload })
    }
}

/// The names of origins of a block of `count` messages. Each has a message, so hostile bytes cannot make a list that is
/// much longer than they are.
fn names(mut rows: &[u8], count: usize) -> Result<Vec<&str>, String> {
    let mut names = Vec::new();
    while let Some((len, rest)) = rows.split_first_chunk::<2>() {
        if names.len() == count {
            return Err("it has more origins than messages".into());
        }
        let len = usize::from(u16::from_le_bytes(*len));
        let name = rest.get(..len).filter(|_| len <= ORIGIN_NAME_MAX).ok_or("the name of an origin is too long")?;
        names.push(std::str::from_utf8(name).map_err(|_| "the name of an origin is not text")?);
        rows = &rest[len..];
    }
    if rows.is_empty() { Ok(names) } else { Err("the names of its origins end within one".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::entry::{Meta, SchemaId, mix};

    fn entry(number: u64, origin: u32, payload: &[u8]) -> Entry {
        let mut entry: Entry = bytemuck::Zeroable::zeroed();
        let meta =
            Meta { source_time: number as i64 * 10, origin, origin_seq: number, schema: SchemaId(*b"test"), flags: 1 };
        entry.source_time = meta.source_time;
        entry.arrival_time = meta.source_time + 5;
        (entry.origin_seq, entry.origin, entry.schema, entry.flags) = (number, origin, meta.schema, meta.flags);
        entry.length = payload.len() as u32;
        entry
    }

    /// A block of messages 7 to 7 + `count`, of two origins.
    fn block(count: u64) -> Vec<u8> {
        let mut builder = BlockBuilder::default();
        builder.begin([3; 16], 2, 7, Vec::new());
        for number in 0..count {
            let payload = vec![number as u8; number as usize];
            let origin = (number % 2) as u32 + 40;
            builder.push(
                &entry(number, origin, &payload),
                crc32c(&payload),
                ["even", "odd"][origin as usize - 40],
                &payload,
            );
        }
        let bytes = builder.bytes();
        let (head, block) = builder.end(5, 1234);
        assert_eq!((block.len(), head.next()), (bytes, 7 + count));
        block
    }

    #[test]
    fn a_block_reads_back_with_all_that_an_entry_says() {
        for count in [0, 1, 2, 30] {
            let bytes = block(count);
            let block = Block::read(&bytes).unwrap();
            let head =
                BlockHead { uuid: [3; 16], epoch: 2, count: count as u32, first: 7, previous: 5, frontier: 1234 };
            assert_eq!(block.head, head);
            for at in 0..count {
                let message = block.message(at as usize).unwrap();
                assert_eq!((message.sequence, message.payload), (7 + at, &vec![at as u8; at as usize][..]));
                let written = entry(at, 0, message.payload);
                let Entry { source_time, arrival_time, origin_seq, schema, flags, .. } = message.entry;
                assert_eq!((source_time, arrival_time), (written.source_time, written.arrival_time));
                assert_eq!((origin_seq, schema, flags), (written.origin_seq, written.schema, written.flags));
                assert_eq!(block.origins[message.entry.origin as usize], ["even", "odd"][at as usize % 2]);
            }
            assert!(block.message(count as usize).is_none());
        }
        let head = BlockHead { uuid: [3; 16], epoch: 2, count: 0, first: 9, previous: 9, frontier: 99 };
        assert_eq!(Block::read(&beat(&head)).unwrap().head, head);
    }

    #[test]
    fn a_changed_bit_is_seen_where_it_is() {
        let bytes = block(6);
        let payloads = 8 * 5 + BLOCK_HEAD_BYTES;
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let at = bit / 8;
            match Block::read(&damaged) {
                // The head or a name.
                Err(_) => assert!(at < BLOCK_HEAD_BYTES || at >= payloads + 6 * ENTRY_BYTES, "{bit}"),
                Ok(block) => {
                    let right = (0..6).filter(|at| block.message(*at).is_some()).count();
                    // Bytes between payloads belong to none.
                    let least = if at < payloads { 5..=6 } else { 5..=5 };
                    assert!(least.contains(&right), "{bit}: {right}");
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        let whole = block(9);
        let mut state = 1;
        for round in 0..20_000_u64 {
            state = mix(state ^ round);
            let mut bytes = whole[..(state as usize >> 8) % (whole.len() + 1)].to_vec();
            for change in 0..state % 4 {
                let word = mix(state ^ change << 32);
                let place = word as usize % bytes.len().max(1);
                if let Some(byte) = bytes.get_mut(place) {
                    *byte = (word >> 40) as u8;
                }
            }
            // A head that verifies, whatever it says.
            if let Some(head) = bytes.get(..60).filter(|_| bytes.len() >= 64 && round % 2 == 0) {
                let rows = u32::from_le_bytes([head[56], head[57], head[58], head[59]]) as usize;
                let rows = bytes.len().checked_sub(rows).filter(|at| *at >= 64).map(|at| sum(head, &bytes[at..]));
                if let Some(sum) = rows {
                    bytes[60..64].copy_from_slice(&sum.to_le_bytes());
                }
            }
            if let Ok(block) = Block::read(&bytes) {
                for at in 0..=block.len() {
                    let _ = block.message(at);
                }
            }
        }
    }
}
