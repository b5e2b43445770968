//! How much of the inputs' memory pending messages keep: a stream in memory whose reader keeps all of it stands still, and
//! with it what would close the group.
//!
//! All messages from the first pending one on are kept, those between too; what a view shows is kept where it lies.
//!
//! Constraints: what is found follows from the messages from the first pending one on and nothing else, so that the slot that
//! starts anew comes to the same. Streams on disk are not counted: there they are read from, and what is counted is bounded
//! by what streams in memory hold.

use flow::Data;
use std::collections::VecDeque;
use store::{ENTRY_BYTES, Entry, Level, Reader};

/// A message that is kept.
struct Kept {
    sequence: u64,
    /// Bytes of its payload.
    length: u32,
    /// Row of the table of parents, or 0.
    parent: u16,
}

/// A stream.
#[derive(Clone, Copy)]
struct Ring {
    /// Bytes that may be kept.
    most: u64,
    bytes: u64,
}

/// The memory that the pending messages of one input hold.
#[derive(Default)]
pub(super) struct Held {
    /// The input, and what it shows, by the row of its table of parents; as far as they were seen. None: it is on disk.
    rings: Vec<Option<Ring>>,
    kept: VecDeque<Kept>,
}

impl Held {
    /// Shows a message, the first pending one being `first`. True if the pending ones keep too much.
    pub(super) fn see(&mut self, data: &Data, input: &str, entry: &Entry, sequence: u64, first: u64) -> bool {
        if usize::from(entry.parent) >= self.rings.len() {
            self.open_rings(data, input, entry.parent);
        }
        let rows = [0, usize::from(entry.parent)];
        let of = |held: &Self, row: usize| held.rings.get(row).copied().flatten();
        if rows.iter().all(|row| of(self, *row).is_none()) {
            return false;
        }
        let kept = Kept { sequence, length: entry.length, parent: entry.parent };
        self.weigh(&kept, u64::wrapping_add);
        self.kept.push_back(kept);
        while self.kept.front().is_some_and(|oldest| oldest.sequence < first)
            && let Some(oldest) = self.kept.pop_front()
        {
            self.weigh(&oldest, u64::wrapping_sub);
        }
        rows.iter().filter_map(|row| of(self, *row)).any(|ring| ring.bytes > ring.most)
    }

    /// Adds a message to what the streams keep, or takes it out.
    fn weigh(&mut self, kept: &Kept, change: fn(u64, u64) -> u64) {
        let lies = usize::from(kept.parent);
        let mut change = |row: usize, bytes: u64| {
            if let Some(Some(ring)) = self.rings.get_mut(row) {
                ring.bytes = change(ring.bytes, bytes);
            }
        };
        change(lies, ENTRY_BYTES as u64 + u64::from(kept.length).next_multiple_of(8));
        if lies > 0 {
            change(0, ENTRY_BYTES as u64);
        }
    }

    /// Looks at the streams up to a row. One that cannot be opened has no messages any more that could be kept.
    fn open_rings(&mut self, data: &Data, input: &str, row: u16) {
        let open = |name: &str| data.reader(name, Default::default()).ok();
        let reader = open(input);
        let parents = reader.as_ref().and_then(|reader| reader.parents().ok()).unwrap_or_default();
        for at in self.rings.len()..=usize::from(row) {
            self.rings.push(match at.checked_sub(1) {
                None => reader.as_ref().and_then(Ring::of),
                Some(parent) => parents.get(parent).and_then(|parent| open(&parent.name)).as_ref().and_then(Ring::of),
            });
        }
    }
}

impl Ring {
    fn of(reader: &Reader) -> Option<Self> {
        // Half of the stream's memory, where it does not say otherwise.
        let is_ring = reader.header().level == Level::Memory && reader.quota() > 0;
        is_ring.then(|| Self { most: 2 * reader.quota(), bytes: 0 })
    }
}
