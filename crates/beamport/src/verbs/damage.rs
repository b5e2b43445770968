//! What of a stream cannot be read: the messages behind an error of the store.
//!
//! A byte that does not verify costs its message, a segment that is missing costs all messages in it. Neither ends a verb:
//! the range is named, and the rest is read.

use serde::Serialize;
use std::fmt;
use store::{Error, Reader};

/// Messages that are lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Damage {
    /// First sequence.
    pub first: u64,
    /// Last sequence.
    pub last: u64,
    /// Which file is damaged, and how.
    pub why: String,
}

impl Damage {
    /// What an error of reading costs, at or behind the reader's place and below `end`; none if it is no damage. The reader
    /// stands anywhere then.
    pub(crate) fn behind(reader: &mut Reader, error: &Error, end: u64) -> Option<Self> {
        match error {
            Error::Corrupt { path, sequence, .. } => {
                let mut last = *sequence;
                loop {
                    reader.seek(last + 1);
                    match reader.read(1) {
                        // Of a file that was cut off, one range is enough.
                        Err(Error::Corrupt { path: same, .. }) if same == *path && last + 1 < end => last += 1,
                        _ => break,
                    }
                }
                Some(Self { first: *sequence, last, why: error.to_string() })
            }
            Error::Lost { path, first, end: known } => {
                let mut next = *known;
                while next < end {
                    reader.seek(next);
                    match reader.read(usize::try_from(end - next).unwrap_or(usize::MAX)) {
                        Err(Error::Lost { path: same, end: known, .. }) if same == *path => next = known,
                        _ => break,
                    }
                }
                Some(Self { first: *first, last: next.min(end) - 1, why: format!("{} is missing", path.display()) })
            }
            _ => None,
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last - self.first {
            0 => write!(f, "message {} is lost: {}", self.first, self.why),
            _ => write!(f, "messages {} to {} are lost: {}", self.first, self.last, self.why),
        }
    }
}
