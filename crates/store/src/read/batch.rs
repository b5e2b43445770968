//! Messages in a row, as a reader returns them.

use crate::Message;
use crate::format::entry::Entry;
use crate::read::mapped::Mapped;
use std::sync::Arc;

/// Some messages in a row, pointing into stream memory.
pub struct Batch<'a> {
    /// Sequence of the first.
    pub first: u64,
    /// Index entries, one a message.
    pub entries: &'a [Entry],
    pub(super) segments: &'a [Arc<Mapped>],
    /// Of a batch with view entries, one a message; else all lie in the one segment where their entries say.
    pub(super) places: &'a [PayloadPlace],
}

impl<'a> Batch<'a> {
    /// Number of messages.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are none now.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// One past the last sequence.
    pub fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// The messages.
    pub fn iter(&self) -> impl Iterator<Item = Message<'a>> + '_ {
        self.entries.iter().enumerate().map(|(at, entry)| self.message(at, entry))
    }

    /// The message of a sequence, if it is in the batch.
    pub fn get(&self, sequence: u64) -> Option<Message<'a>> {
        let at = usize::try_from(sequence.checked_sub(self.first)?).ok()?;
        Some(self.message(at, self.entries.get(at)?))
    }

    #[inline]
    fn message(&self, i: usize, entry: &'a Entry) -> Message<'a> {
        let (segment, at) = match self.places.get(i) {
            None => (self.segments.first(), entry.offset()),
            Some(place) => (self.segments.get(place.segment as usize), place.at),
        };
        let payload = segment.and_then(|s| s.bytes(at, u64::from(entry.length)));
        Message { sequence: self.first + i as u64, entry, payload: payload.unwrap_or_default() }
    }

    /// The segments that the payloads lie in: holding one keeps what is in it as it is.
    pub fn segments(&self) -> &'a [Arc<Mapped>] {
        self.segments
    }

    /// Where the payload of a message of the batch lies: which of the segments (none where there are no bytes), and its
    /// first byte there.
    pub fn place(&self, at: usize) -> (usize, u64) {
        match (self.places.get(at), self.entries.get(at)) {
            (Some(place), _) => (place.segment as usize, place.at),
            (None, Some(entry)) => (0, entry.offset()),
            (None, None) => (usize::MAX, 0),
        }
    }

    /// No messages.
    pub(super) fn none(first: u64) -> Self {
        Self { first, entries: &[], segments: &[], places: &[] }
    }
}

/// Where the payload of one message of a batch lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct PayloadPlace {
    /// Which of the batch's segments; none of them where there are no bytes.
    pub(super) segment: u32,
    /// Its first byte there.
    pub(super) at: u64,
}
