//! Messages that Python holds, without their objects.

use crate::owned::{Pinned, pinned};
use std::sync::Arc;
use store::Entry;

/// Some messages: a copy of their entries (64 bytes each), and the segments with their payloads.
pub(crate) struct Block {
    pub(crate) entries: Vec<Entry>,
    pub(crate) sequences: Vec<u64>,
    /// Where each payload lies: which of the segments, and its first byte there.
    pub(crate) places: Vec<(usize, u64)>,
    pub(crate) segments: Vec<Pinned>,
    pub(crate) origins: Arc<[Arc<str>]>,
}

impl Block {
    /// Without messages. `origins`: names by the rows of their stream.
    pub(crate) fn new(origins: Arc<[Arc<str>]>) -> Self {
        Self { entries: Vec::new(), sequences: Vec::new(), places: Vec::new(), segments: Vec::new(), origins }
    }

    /// Adds the messages of a batch of the same stream; returns how many.
    pub(crate) fn add(&mut self, batch: &store::Batch<'_>) -> usize {
        let before = self.segments.len();
        self.segments.extend(batch.segments().iter().map(pinned));
        self.places.extend((0..batch.len()).map(|at| {
            let (segment, place) = batch.place(at);
            (before + segment, place)
        }));
        self.sequences.extend(batch.first..batch.next());
        self.entries.extend_from_slice(batch.entries);
        batch.len()
    }

    /// Some of its messages.
    pub(crate) fn part(&self, rows: &[usize]) -> Self {
        Self {
            entries: rows.iter().map(|at| self.entries[*at]).collect(),
            sequences: rows.iter().map(|at| self.sequences[*at]).collect(),
            places: rows.iter().map(|at| self.places[*at]).collect(),
            segments: self.segments.clone(),
            origins: self.origins.clone(),
        }
    }
}
