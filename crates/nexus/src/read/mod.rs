//! Reading files: what is in them, and where in them a time is.

pub mod cat;
pub mod search;
pub(crate) mod watch;
