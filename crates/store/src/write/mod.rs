//! Writing a stream, and bringing it to the disk.

mod append;
pub(crate) mod chain;
pub(crate) mod committer;
pub(crate) mod cursor;
pub(crate) mod drain;
pub(crate) mod mirror;
pub(crate) mod options;
pub(crate) mod reserve;
mod retain;
mod roll;
mod room;
pub(crate) mod view;
mod wait;
pub(crate) mod writer;
