//! What an edge implements: sources, sinks, live sinks, workers, and the kinds that build them.

pub mod edge;
pub(crate) mod live;
pub(crate) mod room;
pub(crate) mod sink;
pub(crate) mod slot;
pub(crate) mod source;
pub(crate) mod worker;
