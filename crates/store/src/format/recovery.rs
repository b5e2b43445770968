//! The state in which a writer found its stream.

/// Result of opening for writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// A new stream.
    Fresh,
    /// The live place was intact: nothing can be missing.
    Live,
    /// Closed cleanly and recovered from the medium: nothing can be missing.
    Clean,
    /// As `Clean`, and the folder is not where it was written: possibly a copy of one that continues elsewhere. Its
    /// messages are of another epoch from here on, so that no number is given twice.
    Moved {
        /// The epoch that ended.
        epoch: u32,
        /// First sequence of the new epoch.
        first: u64,
    },
    /// Recovered from the medium alone: from `first` on, messages of `epoch` may have been cut.
    Cut {
        /// The epoch that ended.
        epoch: u32,
        /// Where it ends: first sequence of the new epoch.
        first: u64,
        /// One past the last message of which there is a trace. `first` if there is none: what was in memory alone
        /// leaves none.
        end: u64,
        /// One past the last message that was marked on the medium.
        marked: u64,
    },
}

impl std::fmt::Display for Recovery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fresh => f.write_str("new"),
            Self::Live => f.write_str("resumed, nothing lost"),
            Self::Clean => f.write_str("recovered from disk, nothing lost"),
            Self::Moved { epoch, first } => {
                write!(f, "moved or copied, nothing lost; epoch {epoch} ended at message {first}")
            }
            Self::Cut { epoch, first, end, .. } if first == end => {
                write!(
                    f,
                    "epoch {epoch} ended at message {first}; messages only in memory are lost; no others were found"
                )
            }
            Self::Cut { epoch, first, end, .. } => {
                write!(
                    f,
                    "messages {first} to {end} (exclusive) of epoch {epoch} were cut; the next epoch begins at {first}"
                )
            }
        }
    }
}
