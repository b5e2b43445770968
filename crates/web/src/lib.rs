//! The page of an instrument: a server for browsers, programs and Prometheus.
//!
//! Purpose: what the streams of a data folder hold, now and before, as a page and as [panels](look) that are reduced to
//! the pixels that are shown; the state of the instrument as JSON and as metrics.
//!
//! Constraints: a process of its own, which reads as an anonymous reader: it holds back no source, and never writes a
//! stream. Async code is in `server.rs` alone: it only moves requests and answers. Two threads read streams, one for
//! [panels](look), one for the status; each takes one request after another from a queue of bounded length.
//!
//! Failure behaviour: a wrong request is answered with a fault; a full queue with status 503. A thread that panics ends
//! the process, which the program starts again.

mod answer;
mod books;
mod desk;
mod doors;
mod limits;
mod look;
mod metrics;
mod page;
mod section;
mod server;
mod tokens;

pub use books::{SETTINGS, TEMPLATE_END, TEMPLATE_START};
pub use limits::TEXT_BYTES_MAX;
pub use section::{KEYS, Plan, read};
pub use server::{Served, serve};
pub use tokens::{Tokens, location};

use flow::Fault;
use serde_json::{Map, Value};

/// The running instrument of a data folder, as the program reaches it.
pub trait Instrument: Send + Sync {
    /// What it reports of itself: `running`, `troubles`; empty lists where it does not run.
    fn glance(&self) -> Map<String, Value>;

    /// Has it carry out a command.
    fn command(&self, request: &Value) -> Result<Value, Fault>;
}
