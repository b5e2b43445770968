//! Reading a stream, from shared memory and from its folder.

pub(crate) mod entries;
pub(crate) mod reader;
pub(crate) mod stretch;
pub(crate) mod view;
pub(crate) mod watch;
