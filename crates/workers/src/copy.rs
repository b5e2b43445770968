//! `copy`: each message as it is, in memory of the worker's own: the output needs none of what its inputs need, and may
//! survive what they do not. `output = "copy"` of a merge is this worker behind it (decision 0009).
//!
//! Constraints: one copy a message, past no decoder.

use super::said;
use flow::edge::{WorkerKind, WorkerPlace, WorkerPlan};
use flow::{Fault, Outputs, Stop, Worker};
use std::sync::Arc;
use store::Batch;

/// `copy`
pub static COPY: WorkerKind = WorkerKind {
    name: "copy",
    about: "Copies messages unchanged.",
    keys: &[],
    read: |_| Some(Arc::new(Plan)),
    notes: include_str!("../pages/copy.md"),
};

#[derive(Debug)]
struct Plan;

impl WorkerPlan for Plan {
    fn build(&self, _: &WorkerPlace) -> Result<Box<dyn Worker + Send>, Fault> {
        Ok(Box::<Copying>::default())
    }
}

/// The worker, with its counts.
#[derive(Default)]
struct Copying {
    messages: u64,
    bytes: u64,
}

impl Worker for Copying {
    fn work(&mut self, batch: &Batch<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        for message in batch.iter() {
            if !out.wants(&message) {
                continue;
            }
            out.begin(&message);
            out.copy(&message)?;
            self.messages += 1;
            self.bytes += message.payload.len() as u64;
        }
        Ok(())
    }

    fn looks_at_payloads(&self) -> bool {
        true
    }

    fn keeps(&self) -> bool {
        false
    }

    fn statistics(&mut self) -> String {
        said(&[("messages", self.messages), ("bytes", self.bytes)].into())
    }
}
