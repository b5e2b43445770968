//! The bytes between hosts: positions as text, and blocks behind their lengths. `docs/reference/https.md` describes
//! both.

use crate::limits::LENGTH_BYTES;
use flow::Identity;
use flow::limits::CARRIED_BYTES_MAX;
use store::{hex, unhex16};

/// The place of a reader in a stream: the message that it needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    /// The stream.
    pub(crate) uuid: [u8; 16],
    /// The epoch of the message before.
    pub(crate) epoch: u32,
    /// Sequence of the next message.
    pub(crate) next: u64,
}

impl Position {
    /// Behind a message.
    pub(crate) fn behind(message: &Identity) -> Self {
        Self { uuid: message.uuid, epoch: message.epoch, next: message.sequence.saturating_add(1) }
    }

    /// `UUID/EPOCH/SEQUENCE`.
    pub(crate) fn text(&self) -> String {
        format!("{}/{}/{}", hex(&self.uuid), self.epoch, self.next)
    }

    /// Reads what [`Position::text`] has made.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let (uuid, epoch, next) = (parts.next()?, parts.next()?, parts.next()?);
        let position = Self { uuid: unhex16(uuid)?, epoch: epoch.parse().ok()?, next: next.parse().ok()? };
        parts.next().is_none().then_some(position)
    }
}

/// Blocks out of bytes that come in pieces of any size.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    head: Vec<u8>,
    /// Bytes that the block has, once its length is known.
    length: Option<usize>,
    block: Vec<u8>,
}

impl Frames {
    /// Takes bytes from the beginning of `piece`, up to the end of the next block, and returns that. `None`: all of the
    /// piece was taken. An error says what is wrong. Empty blocks only say that the sender is there.
    pub(crate) fn next(&mut self, piece: &mut &[u8]) -> Result<Option<Vec<u8>>, String> {
        while !piece.is_empty() {
            let length = match self.length {
                Some(length) => length,
                None => {
                    self.head.extend_from_slice(cut(piece, LENGTH_BYTES - self.head.len()));
                    let Ok(head) = <[u8; LENGTH_BYTES]>::try_from(self.head.as_slice()) else { continue };
                    let length = u64::from_le_bytes(head);
                    let length = usize::try_from(length).ok().filter(|length| *length <= CARRIED_BYTES_MAX);
                    let length = length.ok_or("a block is longer than any, so these are not the bytes of blocks")?;
                    self.head.clear();
                    if length == 0 {
                        return Ok(Some(Vec::new()));
                    }
                    self.block = Vec::with_capacity(length.min(flow::limits::BLOCK_BYTES));
                    *self.length.insert(length)
                }
            };
            self.block.extend_from_slice(cut(piece, length - self.block.len()));
            if self.block.len() == length {
                self.length = None;
                return Ok(Some(std::mem::take(&mut self.block)));
            }
        }
        Ok(None)
    }
}

/// Cuts at most `most` bytes off the beginning.
fn cut<'a>(piece: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (first, rest) = piece.split_at(most.min(piece.len()));
    *piece = rest;
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_reads_back_and_a_wrong_one_does_not() {
        let position = Position { uuid: [7; 16], epoch: 3, next: 1 << 60 };
        assert_eq!(Position::read(&position.text()), Some(position));
        let text = position.text();
        for wrong in ["", "/", "a/1/2", &text[1..], &format!("{text}/1"), &text.replace("/3/", "/x/")] {
            assert_eq!(Position::read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn blocks_come_whole_however_their_bytes_are_cut() {
        let blocks: [&[u8]; 4] = [b"first", b"", b"second block", b"x"];
        let mut bytes = Vec::new();
        for block in blocks {
            bytes.extend_from_slice(&(block.len() as u64).to_le_bytes());
            bytes.extend_from_slice(block);
        }
        for size in 1..bytes.len() {
            let (mut frames, mut found) = (Frames::default(), Vec::new());
            for mut piece in bytes.chunks(size) {
                while let Some(block) = frames.next(&mut piece).unwrap() {
                    found.push(block);
                }
            }
            assert_eq!(found, blocks, "pieces of {size}");
        }
    }

    #[test]
    fn a_length_that_no_block_has_is_an_error_before_memory_is_taken() {
        for length in [u64::MAX, CARRIED_BYTES_MAX as u64 + 1, u64::from_le_bytes(*b"HTTP/1.1")] {
            assert!(Frames::default().next(&mut &length.to_le_bytes()[..]).is_err());
        }
    }
}
