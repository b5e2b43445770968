//! What is recorded of streams and runs, and where: records, books, commits, runs.

pub(crate) mod aside;
pub(crate) mod beside;
pub mod book;
pub mod commits;
pub(crate) mod data;
pub(crate) mod extent;
pub mod records;
pub mod runs;
pub(crate) mod statistics;
pub(crate) mod tally;
