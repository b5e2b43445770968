//! Requests of the mover to the source of a mirror, as [`crate::edge::CarrierPlan::far`] describes them.

use crate::Fault;
use serde_json::Value;

/// A request to the source of a mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MirrorRequest {
    /// Whether it has had, at some time since its start, all that the carrier had.
    IsAtEnd,
    /// The stream counts as complete up to this time without its host, ns since 1970 UTC.
    Absent(i64),
}

impl MirrorRequest {
    /// Reads a request.
    pub fn read(request: &Value) -> Result<Self, Fault> {
        match request["absent"].as_i64() {
            _ if request["is_at_end"] == true => Ok(Self::IsAtEnd),
            Some(until) => Ok(Self::Absent(until)),
            None => Err(Fault::new("a mirror was asked for something unknown", request)),
        }
    }
}
