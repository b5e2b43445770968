//! Workers that are ready-made: `call = "histogram"`, a name without a colon.
//!
//! Each is a [`flow::edge::WorkerKind`]: its parameters, and what it makes of messages. They run in slots as Python code
//! does, each slot a process of the program itself.
//!
//! Failure behaviour: a message that a worker cannot handle is set aside with a reason of one word and a text. The
//! state of a worker between messages is in streams: the next slot finds it there after a kill (`histogram.rs`,
//! `again.rs`).

mod again;
mod attach;
mod beside;
mod copy;
mod expression;
mod filter;
mod groups;
mod histogram;
mod limits;
mod places;
mod span;
mod sum;
mod tiles;

pub use attach::ATTACH;
pub use copy::COPY;
pub use filter::FILTER;
pub use groups::{Finder, Found, GROUPS, Grouping, Pending};
pub use histogram::HISTOGRAM;
pub use places::StatePlaces;
pub use sum::SUM;
pub use tiles::{SPLIT, STITCH};

use std::collections::BTreeMap;

/// Numbers of a worker as its statistics give them.
fn said(numbers: &BTreeMap<&'static str, u64>) -> String {
    serde_json::to_string(numbers).unwrap_or_default()
}

/// The text of a message that cannot be read.
fn unreadable(error: wire::Error) -> String {
    format!("it cannot be read: {error}")
}
