//! Reading a stream, from shared memory and from its folder.

pub(crate) mod attach;
pub(crate) mod batch;
pub(crate) mod entries;
pub(crate) mod mapped;
pub(crate) mod missing;
pub(crate) mod options;
pub(crate) mod reader;
mod shown;
pub(crate) mod stretch;
pub(crate) mod watch;
