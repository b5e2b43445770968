//! The messages of a view that one batch shows: their payloads lie in several segments.

use crate::format::crc::crc32c_from_memory;
use crate::read::batch::PayloadPlace;
use crate::read::mapped::Mapped;
use std::sync::Arc;

/// A payload that was found: where, and what proves it.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub(super) place: PayloadPlace,
    pub(super) salt: u32,
    pub(super) length: u32,
    pub(super) crc: u32,
}

/// The segments and places of one batch. Kept between batches, so that a batch allocates nothing.
#[derive(Default)]
pub(super) struct Shown {
    pub(super) segments: Vec<Arc<Mapped>>,
    pub(super) places: Vec<PayloadPlace>,
    pub(super) found: Vec<Found>,
    /// Which batch: a parent's reader remembers where it put its segment.
    pub(super) round: u64,
}

impl Shown {
    pub(super) fn begin(&mut self) {
        self.segments.clear();
        self.places.clear();
        self.found.clear();
        self.round += 1;
    }

    /// Releases the segments. Rounds go on: readers of parents compare them.
    pub(super) fn release(&mut self) {
        *self = Self { round: self.round, ..Self::default() };
    }

    /// Gives each message that was found its place; how many are good before the first whose payload is not all there
    /// or, if that is asked for, does not verify.
    pub(super) fn check(&mut self, sums: bool) -> usize {
        self.places.extend(self.found.iter().map(|found| found.place));
        let bytes = |found: &Found| {
            let segment = || self.segments.get(found.place.segment as usize);
            match (found.length, sums) {
                (0, _) => Some(&[][..]),
                (length, true) => segment()?.read(found.place.at, length.into()),
                (length, false) => segment()?.bytes(found.place.at, length.into()),
            }
        };
        let mut next = self.found.first().and_then(bytes);
        for (i, found) in self.found.iter().enumerate() {
            let Some(this) = next else { return i };
            next = self.found.get(i + 1).and_then(bytes);
            let behind = next.map_or(this.as_ptr_range().end, <[u8]>::as_ptr);
            if sums && crc32c_from_memory(this, behind) ^ found.salt != found.crc {
                return i;
            }
        }
        self.found.len()
    }
}
