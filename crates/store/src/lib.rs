//! Streams on one machine: append, marks, cursors, recovery, verify.
//!
//! A stream is a folder of payload segments and a dense index of 64-byte entries. One process writes it; any number of
//! processes read it without copying. Decisions 0001 and 0002 have the promises, `docs/reference/stream-format.md` the
//! bytes.

/// The atomics of the protocol: tests put those of loom in their place.
mod atomic {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
mod check;
mod error;
mod format;
#[doc(hidden)]
pub mod fuzz;
pub mod limits;
mod live;
mod open;
mod outside;
pub mod printed;
mod read;
mod write;

pub use check::repair::{Repaired, repair};
pub use check::verify::{Damage, Verified, verify};
pub use error::{Error, Result, Trouble};
pub use format::block::{Block, BlockBuilder, BlockHead, BlockMessage, beat};
pub use format::crc::crc32c;
pub use format::entry::{ENTRY_BYTES, Entry, Meta, SchemaId, flags, mix, splitmix64};
pub use format::header::{Clock, Header, Identity, Level, Near, hex, unhex16};
pub use format::parents::ParentRow;
pub use format::recovery::Recovery;
pub use limits::FORMAT;
pub use live::abandoned::{abandoned, remove_abandoned};
pub use live::pins::{Kind, Pins, ReaderInfo};
pub use live::place::LivePlace;
pub use open::remove::remove;
pub use open::share::share;
pub use outside::foreign::Foreign;
pub use outside::group::{group_number, shared_with};
pub use outside::media::{self, Media};
pub use outside::os::{Os, end_if_forked, process_id};
pub use read::attach::Bounds;
pub use read::batch::Batch;
pub use read::mapped::Mapped;
pub use read::missing::{Missing, Why};
pub use read::options::{Check, ReadOptions, Start};
pub use read::reader::Reader;
pub use read::stretch::{Stretch, TimeSpan, Walked};
pub use read::watch::Watch;
pub use write::mirror::Mirrored;
pub use write::options::{Drain, Options, WhenFull};
pub use write::reserve::Reserved;
pub use write::view::Parent;
pub use write::writer::Writer;

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
