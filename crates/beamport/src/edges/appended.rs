//! `kind = "appended"`: a stream that another process fills: `beamport append`, or Python's `create`.
//!
//! The program makes the stream where it is missing, as its section says, and follows it.

use flow::edge::{SourceKind, SourcePlan};
use flow::{Fault, Source};
use std::sync::Arc;

/// The kind `appended`.
pub(super) static SOURCE: SourceKind = SourceKind {
    name: "appended",
    about: "A stream that another process fills, with `beamport append` or Python's `create`.",
    keys: &[],
    read: |_, _| Some(Arc::new(Appended)),
    more: None,
};

#[derive(Debug)]
struct Appended;

impl SourcePlan for Appended {
    fn build(&self) -> Result<Box<dyn Source>, Fault> {
        Err(Fault::new("a source `appended` brings nothing", "another process fills its stream"))
    }

    fn fills_stream(&self) -> bool {
        false
    }
}
