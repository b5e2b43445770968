//! Records of results: the value is a block of the format of streams, the key says to which block of the inputs it
//! belongs.
//!
//! The results of one block are one record or more, in one transaction. Sequences of the messages in them count the
//! results of that block, from 0; identity and epoch are those of the block's messages.

use crate::limits::{RESULT_HEAD_BYTES, RESULT_MAGIC};
use serde_json::Value;
use std::collections::BTreeMap;

/// The content of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Messages of the output.
    Output,
    /// Messages that the worker has set aside.
    Aside,
}

/// The key of a record of results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResultKey {
    pub(crate) content: Content,
    /// No more records of this block follow.
    pub(crate) is_last: bool,
    /// The offset of the block in its partition.
    pub(crate) offset: u64,
    /// The process that handed it out.
    pub(crate) life: u64,
    /// Messages of the block.
    pub(crate) read: u32,
    /// Results of the block, in all its records.
    pub(crate) made: u32,
    /// Those of its messages that are not done, by `kind.reason`; only in the last record.
    pub(crate) counts: BTreeMap<String, u64>,
}

impl ResultKey {
    /// Its bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(RESULT_HEAD_BYTES);
        bytes.extend_from_slice(&RESULT_MAGIC.0);
        bytes.extend_from_slice(&RESULT_MAGIC.1.to_le_bytes());
        bytes.push(u8::from(self.content == Content::Aside));
        bytes.push(u8::from(self.is_last));
        bytes.extend_from_slice(&self.offset.to_le_bytes());
        bytes.extend_from_slice(&self.read.to_le_bytes());
        bytes.extend_from_slice(&self.made.to_le_bytes());
        bytes.extend_from_slice(&self.life.to_le_bytes());
        if !self.counts.is_empty() {
            let counts: serde_json::Map<String, Value> =
                self.counts.iter().map(|(name, n)| (name.clone(), (*n).into())).collect();
            bytes.extend_from_slice(Value::from(counts).to_string().as_bytes());
        }
        bytes
    }

    /// Reads a key; none where these bytes are none.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (head, text) = bytes.split_first_chunk::<RESULT_HEAD_BYTES>()?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if head[..4] != RESULT_MAGIC.0
            || u16::from_le_bytes([head[4], head[5]]) != RESULT_MAGIC.1
            || head[6] > 1
            || head[7] > 1
        {
            return None;
        }
        let counts = match text {
            [] => BTreeMap::new(),
            text => serde_json::from_slice(text).ok()?,
        };
        let counts: BTreeMap<String, u64> = counts;
        let sum = counts.values().try_fold(0u64, |sum, n| sum.checked_add(*n))?;
        if sum > u64::from(word(16)) {
            return None;
        }
        Some(Self {
            content: if head[6] == 1 { Content::Aside } else { Content::Output },
            is_last: head[7] == 1,
            offset: long(8),
            life: long(24),
            read: word(16),
            made: word(20),
            counts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_back_and_other_bytes_are_none() {
        let counts = BTreeMap::from([("aside.error".to_owned(), 2), ("skipped.filtered".to_owned(), 7)]);
        let key = ResultKey {
            content: Content::Aside,
            is_last: true,
            offset: 1 << 40,
            life: 7 << 50,
            read: 119,
            made: 1 << 20,
            counts,
        };
        assert_eq!(ResultKey::read(&key.bytes()), Some(key.clone()));
        let plain = ResultKey { content: Content::Output, is_last: false, counts: BTreeMap::new(), ..key.clone() };
        assert_eq!(ResultKey::read(&plain.bytes()), Some(plain.clone()));
        for at in [0, 4, 6, 7] {
            let mut bytes = plain.bytes();
            bytes[at] = 9;
            assert_eq!(ResultKey::read(&bytes), None, "{at}");
        }
        assert_eq!(ResultKey::read(&key.bytes()[..30]), None);
        assert_eq!(ResultKey::read(b""), None);
    }
}
