//! Streams on one machine: append, marks, cursors, recovery, verify.
pub mod entry;
pub use entry::{Entry, Meta, SchemaId, flags};

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
