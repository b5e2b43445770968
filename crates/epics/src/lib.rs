//! EPICS process variables as sources, `kind = "pva"` and `kind = "ca"`; as a sink, `kind = "pva-put"`; and the
//! commands `put` and `get`.
//!
//! Constraints: no thread of its own. PVXS and libca, in a library that is loaded when a source wants it
//! (`library.rs`), receive updates on their threads and signal a descriptor; a step takes them in batches and makes
//! messages of them. An origin is a PV; the crate numbers its messages, but for frames, which have their own numbers.
//!
//! Failure behaviour: a missing library is a mistake in `check` and a fault at the start. A PV that nobody serves, an
//! IOC that dies, a server that refuses: messages `ep01`, figures in the status, and nothing else; the client libraries
//! reconnect. Updates that the client's queue overwrote are a gap of exactly as many numbers.

mod channel;
mod codec;
mod command;
mod entry;
mod fake;
mod frames;
mod get;
mod kinds;
mod library;
mod limits;
mod links;
mod message;
mod origin;
mod pending;
mod plan;
mod put;
mod put_value;
mod pvs;
mod sink;
mod source;
mod state;
mod value;

pub use kinds::{CA, GET, PUT, PVA, SINK};
pub use library::version;
