//! Synchronisation of writer and readers without a lock: marks, sleep, pins.
//!
//! Constraints: only these lines decide which loads and stores may be reordered; no other code of the crate orders
//! shared words against one another. The file is compiled twice: in the crate with the atomics of `std`, and in
//! `tests/protocol.rs` with those of loom, which tries the orders that weakly ordered processors (aarch64) allow.
//! x86-64 hides a missing fence; loom finds it.

use crate::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Moves a mark: what was written before is seen by who sees the mark with [`marked`].
#[inline]
pub(crate) fn mark(mark: &AtomicU64, next: u64) {
    mark.store(next, Ordering::Release);
}

/// Where a mark stands: all below is written and stays.
#[inline]
pub(crate) fn marked(mark: &AtomicU64) -> u64 {
    mark.load(Ordering::Acquire)
}

/// A futex word, and the flag of those who sleep on it.
///
/// A flag and not a count: a sleeper that is killed costs one wake for nothing, a count would cost one at each ring for
/// ever. It is lowered before the word changes, so who raised it in between sleeps on an old word and does not sleep.
#[derive(Clone, Copy)]
pub(crate) struct Bell<'a> {
    pub(crate) word: &'a AtomicU32,
    pub(crate) asleep: &'a AtomicU32,
}

impl Bell<'_> {
    /// Before going to sleep. After this look once more for what is awaited; if it has not come, sleep on `word` unless
    /// it no longer holds what this returned.
    pub(crate) fn listen(self) -> u32 {
        let seen = self.word.load(Ordering::Acquire);
        self.asleep.store(1, Ordering::Relaxed);
        // Pairs with the fence in `ring`: the flag is seen there, or what was awaited is seen here.
        fence(Ordering::SeqCst);
        seen
    }

    /// After what is awaited has come. True: wake all who sleep on `word`.
    #[inline]
    pub(crate) fn ring(self) -> bool {
        fence(Ordering::SeqCst);
        self.asleep.load(Ordering::Relaxed) != 0 && self.change()
    }

    #[cold]
    fn change(self) -> bool {
        self.asleep.store(0, Ordering::Relaxed);
        // Release: who sees the new word before raising the flag raises it after it was lowered.
        self.word.fetch_add(1, Ordering::Release);
        true
    }
}

/// A reader claims a segment, before it looks with [`stands`] whether it is there.
#[inline]
pub(crate) fn claim(pin: &AtomicU32, value: u32) {
    pin.store(value, Ordering::Relaxed);
}

/// A reader has read what it wanted: its claim becomes another, or none.
#[inline]
pub(crate) fn unclaim(pin: &AtomicU32, value: u32) {
    pin.store(value, Ordering::Release);
}

/// Whether a claimed segment is still there. If so the writer will see the claim before it writes the segment again.
#[inline]
pub(crate) fn is_kept(low: &AtomicU32, number: u32) -> bool {
    // Pairs with the fence in `give_up`: the claim is seen there, or `low` is seen here.
    fence(Ordering::SeqCst);
    number >= low.load(Ordering::Acquire)
}

/// The writer gives up all segments below `to`. Then it looks with [`claimed`] which of them may be written again.
#[inline]
pub(crate) fn give_up(low: &AtomicU32, to: u32) {
    low.fetch_max(to, Ordering::Release);
    fence(Ordering::SeqCst);
}

/// The claim of a reader.
#[inline]
pub(crate) fn claimed(pin: &AtomicU32) -> u32 {
    pin.load(Ordering::Acquire)
}
