//! Messages that Python holds, without their objects.

use crate::owned::Pinned;
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
