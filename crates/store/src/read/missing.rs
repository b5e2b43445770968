//! Messages that are missing, and why.

use crate::error::{Error, Result};
use crate::format::names::PARENTS;

/// Why messages are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Retention took them.
    Retention,
    /// Bytes do not verify.
    Corrupt,
    /// A file is not there.
    File,
    /// A stream that a view points into is not there, or no longer what it was.
    Parent,
}

/// Messages in a row that cannot be read.
#[derive(Debug)]
pub struct Missing {
    /// First.
    pub first: u64,
    /// One past the last that is known to be missing; above `first`.
    pub next: u64,
    /// The reason why they are missing.
    pub why: Why,
    /// Where.
    pub error: Error,
}

impl Missing {
    /// The messages that an error of reading at `first` costs; other errors are returned.
    pub fn of(error: Error, first: u64) -> Result<Self> {
        let (next, why) = match &error {
            Error::Gone { first: left } => (*left, Why::Retention),
            Error::Corrupt { .. } => (0, Why::Corrupt),
            Error::Lost { end, .. } => (*end, Why::File),
            // The next message of a view may point elsewhere.
            Error::Parent { .. } => (0, Why::Parent),
            Error::Format { path, .. } if path.ends_with(PARENTS) => (0, Why::Parent),
            _ => return Err(error),
        };
        Ok(Self { first, next: next.max(first.saturating_add(1)), why, error })
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.next - self.first
    }
}
