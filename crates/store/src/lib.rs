//! Streams on one machine: append, marks, cursors, recovery, verify.
//!
//! A stream is a folder of payload segments and a dense index of 64-byte entries. One process writes it; any number of
//! processes read it without copying. Decisions 0001 and 0002 have the promises, `docs/reference/stream-format.md` the
//! bytes.

/// The atomics of the protocol: tests put those of loom in their place.
mod atomic {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
mod abandoned;
mod committer;
mod crc;
mod drain;
mod entries;
mod entry;
mod error;
mod foreign;
#[doc(hidden)]
pub mod fuzz;
mod layout;
pub mod limits;
mod live;
pub mod media;
mod mend;
mod names;
mod os;
mod pins;
pub mod printed;
mod protocol;
mod reader;
mod recover;
mod repair;
mod reserve;
mod segment;
mod steady;
mod stretch;
mod verify;
mod view;
mod watch;
mod writer;

pub use abandoned::{abandoned, remove_abandoned};
pub use crc::crc32c;
pub use entry::{ENTRY_BYTES, Entry, Meta, SchemaId, flags, mix};
pub use error::{Error, Result, Trouble};
pub use foreign::Foreign;
pub use layout::{Clock, Header, Level, hex};
pub use limits::FORMAT;
pub use live::LivePlace;
pub use media::Media;
pub use os::{Os, end_if_forked, process_id};
pub use pins::{Kind, Pins, ReaderInfo};
pub use reader::{Batch, Bounds, Check, Mapped, ReadOptions, Reader, Start};
pub use recover::{Recovery, remove};
pub use repair::{Repaired, repair};
pub use reserve::Reserved;
pub use stretch::{Missing, Stretch, TimeSpan, Walked, Why};
pub use verify::{Damage, Verified, verify};
pub use view::{Parent, ParentRow};
pub use watch::Watch;
pub use writer::{Drain, Options, WhenFull, Writer};

/// One message as a reader sees it: nothing is copied, the payload points into stream memory.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Position in the stream.
    pub sequence: u64,
    /// Its index entry.
    pub entry: &'a Entry,
    /// The bytes.
    pub payload: &'a [u8],
}
