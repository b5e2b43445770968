//! How much each row moves, in a measurement that counts and in a quick one.

use crate::place::{free_memory_bytes, last_cache_bytes};

/// How much each row moves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Memory streams and the rings of their limits.
    pub(crate) ring_bytes: u64,
    /// Bytes of one round of the append rows.
    pub(crate) round_bytes: u64,
    /// Messages of one round of 100 B.
    pub(crate) small_messages: u64,
    /// Bytes of files that the disk stream and each of its limits turn in.
    pub(crate) disk_bytes: u64,
    /// Bytes of one round on the disk.
    pub(crate) disk_round_bytes: u64,
    /// Live ring of the disk stream.
    pub(crate) live_bytes: u64,
    /// Messages that the other process reads.
    pub(crate) read_messages: u64,
    /// Messages of a round that are committed one by one.
    pub(crate) commits: u64,
    /// Round trips of a round between two processes.
    pub(crate) hops: u64,
    /// Events of one file.
    pub(crate) nexus_events: u64,
}

impl Sizes {
    /// Figures that count: rounds of a tenth of a second at least, everything larger than the caches.
    pub(crate) fn full() -> Self {
        let cache = last_cache_bytes();
        // An index a fifth larger than the last cache, if the payloads take no more than half of the memory.
        let index_larger = cache / 64 * 6 / 5;
        let fits = free_memory_bytes() / 2 / 8960;
        Self {
            ring_bytes: (8 * cache).next_multiple_of(512 << 20).max(1 << 30),
            round_bytes: 3 << 30,
            small_messages: 20_000_000,
            disk_bytes: 2 << 30,
            disk_round_bytes: 2 << 30,
            live_bytes: 512 << 20,
            read_messages: index_larger.min(fits).max(10_000),
            commits: 500,
            hops: 20_000,
            nexus_events: 60_000_000,
        }
    }

    /// To see that it works.
    pub(crate) fn quick() -> Self {
        Self {
            ring_bytes: 512 << 20,
            round_bytes: 256 << 20,
            small_messages: 1_000_000,
            disk_bytes: 256 << 20,
            disk_round_bytes: 128 << 20,
            live_bytes: 128 << 20,
            read_messages: 20_000,
            commits: 50,
            hops: 500,
            nexus_events: 1_000_000,
        }
    }
}
