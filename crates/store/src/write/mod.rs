//! Writing a stream, and bringing it to the disk.

pub(crate) mod committer;
pub(crate) mod drain;
pub(crate) mod reserve;
pub(crate) mod view;
pub(crate) mod writer;
