//! Bounds of this crate, each with its reason.

/// Values that are known of one name: an hour of 18 a second.
pub(crate) const KNOWN_MAX: usize = 65_536;

/// Bytes of texts and arrays that are known of one name: a slot is a process among others.
pub(crate) const KNOWN_BYTES_MAX: usize = 64 << 20;

/// The longest time to wait for a value, ns: beyond it a slot looks dead.
pub(crate) const WAIT_MAX: i64 = 10_000_000_000;

/// Longest sleep without a look whether a stream was taken up by another writer, ns.
pub(crate) const NAP: i64 = 20_000_000;

/// Members of groups at most: finders keep a bit of each for each open group.
pub(crate) const MEMBERS_MAX: usize = 65_536;
/// Members at most, each with its pieces: 128 KiB for each open group.
pub(crate) const PARTS_MAX: u64 = 1 << 20;
/// Messages that are pending at most: 32 MiB of what is kept of each.
pub(crate) const PENDING_MAX: i64 = 1 << 20;
/// Bytes of a frame of pieces at most: a quarter of the largest stream memory that is usual.
pub(crate) const FRAME_MAX: u64 = 1 << 30;
/// Dimensions of a frame of pieces at most.
pub(crate) const DIMENSIONS_MAX: usize = 8;
/// Bits of the word for the finder in what groups keep; above them is how many origins were seen.
pub(crate) const KIND_BITS: u32 = 8;
