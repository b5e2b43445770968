//! How a stream is read.

use crate::live::pins::Kind;
use std::time::Duration;

/// Checks before a reader returns a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// None: for times and counts only.
    Nothing,
    /// Index entries.
    Entries,
    /// Index entries and payloads.
    All,
}

/// First position of a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// Where it committed last; without a position, at the oldest message.
    #[default]
    Committed,
    /// Where it committed last; a new name here.
    New(u64),
    /// Here, which is then committed in any case.
    Here(u64),
}

/// How a stream is read.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Name under which the position is kept; empty = anonymous.
    pub name: String,
    /// The role of the reader.
    pub kind: Kind,
    /// Where it begins.
    pub start: Start,
    /// The name is this reader's alone, in this process too, and a position that a recovery cut is an error. Without
    /// it, readers of one process share a position, which is set back to where the epoch ended.
    pub strict: bool,
    /// Read past the mark `disk` of a disk stream.
    pub early: bool,
    /// The checks.
    pub check: Check,
    /// Bytes of payload in one batch at most (a single message may be larger).
    pub batch_bytes: u64,
    /// How long [`crate::Reader::wait`] looks without sleeping, at most [`crate::limits::SPIN_MAX`]. A wake-up is saved
    /// if the message comes meanwhile; a processor is used up while it does not.
    pub spin: Duration,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            name: String::new(),
            kind: Kind::Anonymous,
            start: Start::Committed,
            strict: false,
            early: false,
            check: Check::All,
            batch_bytes: 4 << 20,
            spin: Duration::ZERO,
        }
    }
}
