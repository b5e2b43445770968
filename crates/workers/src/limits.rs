//! Bounds of this crate, each with its reason.

/// Values that are known of one name: an hour of 18 a second.
pub(crate) const KNOWN_MAX: usize = 65_536;

/// Bytes of texts and arrays that are known of one name: a slot is a process among others.
pub(crate) const KNOWN_BYTES_MAX: usize = 64 << 20;

/// The longest time to wait for a value, ns: beyond it a slot looks dead.
pub(crate) const WAIT_MAX: i64 = 10_000_000_000;

/// Longest sleep without a look whether a stream was taken up by another writer, ns.
pub(crate) const NAP: i64 = 20_000_000;
