//! The live place of a stream: its control page, its segments in shared memory, and the pins of its readers.

pub(crate) mod abandoned;
pub(crate) mod pins;
pub(crate) mod place;
pub(crate) mod protocol;
pub(crate) mod segment;
