//! A writer of NeXus files with a module of its own: `program = "path/to/counters"` of a sink starts it.
//!
//! The text of docs/how-to/add-a-writer-module.md; `crates/nexus/tests/all/outside.rs` runs it.

use beamport_nexus::{Dataset, Filler, Given, Module, Rows, Wrong};
use serde_json::{Map, Value, json};
use std::process::ExitCode;
use wire::DType;

/// Counters of a scaler: eight bytes of head, then four numbers.
struct Counters;

impl Module for Counters {
    fn word(&self) -> &str {
        "counters"
    }

    fn schemas(&self) -> &[[u8; 4]] {
        const { &[*b"cnt0"] }
    }

    fn keys(&self) -> &[&str] {
        &["scale"]
    }

    fn filler(&self, settings: &Map<String, Value>) -> Result<Box<dyn Filler>, Vec<Wrong>> {
        let scale = settings.get("scale").map_or(Some(1.0), Value::as_f64);
        let scale = scale.ok_or_else(|| vec![Wrong::new("scale", "it is no number", "write one, like 2.5")])?;
        Ok(Box::new(Counting { scale, sum: 0.0 }))
    }
}

/// Indices of the datasets in the list below.
const TIME: usize = 0;
const COUNTS: usize = 1;
const SUM: usize = 2;

struct Counting {
    scale: f64,
    /// Of all counts so far.
    sum: f64,
}

impl Filler for Counting {
    fn datasets(&self) -> Vec<Dataset> {
        vec![
            Dataset::times("time"),
            Dataset::numbers("counts", DType::UInt32).row(&[4]),
            Dataset::numbers("sum", DType::Float64).with("units", "counts"),
        ]
    }

    fn take(&mut self, message: &Given<'_>, rows: &mut Rows<'_>) -> Result<(), &'static str> {
        let counts: Vec<u32> =
            message.bytes[8..].chunks_exact(4).filter_map(|b| Some(u32::from_le_bytes(b.try_into().ok()?))).collect();
        if counts.len() != 4 {
            return Err("broken");
        }
        self.sum += self.scale * counts.iter().map(|&count| f64::from(count)).sum::<f64>();
        rows.push(TIME, &[message.entry.source_time]);
        rows.push(COUNTS, &counts);
        rows.push(SUM, &[self.sum]);
        Ok(())
    }

    // Floats as their bits: JSON text would round them.
    fn state(&self) -> Value {
        json!(self.sum.to_bits())
    }

    fn resume(&mut self, state: &Value) -> Option<()> {
        if !state.is_null() {
            self.sum = f64::from_bits(state.as_u64()?);
        }
        Some(())
    }
}

fn main() -> ExitCode {
    beamport_nexus::program(&[&Counters])
}
