//! A program of its own: `beamport` with one more ready-made worker, which multiplies the numbers of f144.

use beamport::Registry;
use flow::edge::{WorkerKind, WorkerPlace, WorkerPlan};
use flow::{Fault, Made, Outputs, Stop, Worker};
use settings::{Key, Setting, required};
use std::process::ExitCode;
use std::sync::Arc;
use store::Batch;
use wire::Scalar;
use wire::f144::{self, F144};

static FACTOR: Key = required("factor", "number", "What each value is multiplied by.");

static SCALE: WorkerKind = WorkerKind {
    name: "scale",
    about: "Numbers (`f144`) are multiplied by a factor.",
    keys: &[&FACTOR],
    read: |section| {
        let factor: Setting<f64> = section.get(&FACTOR)?;
        Some(Arc::new(Plan { factor: factor.value }))
    },
    notes: "",
};

/// The parameters of a section.
#[derive(Debug)]
struct Plan {
    factor: f64,
}

impl WorkerPlan for Plan {
    fn build(&self, _: &WorkerPlace) -> Result<Box<dyn Worker + Send>, Fault> {
        Ok(Box::new(Scaling { factor: self.factor, bytes: Vec::new() }))
    }
}

/// The worker in its slot.
struct Scaling {
    factor: f64,
    bytes: Vec<u8>,
}

impl Worker for Scaling {
    fn work(&mut self, batch: &Batch<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        for message in batch.iter() {
            if !out.wants(&message) {
                continue;
            }
            out.begin(&message);
            let Ok(F144 { source_name, timestamp, value: f144::Value::Scalar(value) }) = f144::read(message.payload)
            else {
                out.aside(&message, "schema", "it is not a number of f144")?;
                continue;
            };
            let value = f144::Value::Scalar(Scalar::Float64(value.to_f64() * self.factor));
            f144::write(&mut self.bytes, &F144 { source_name, timestamp, value })
                .map_err(|e| Fault::new("cannot write a number", e))?;
            out.push(message.entry, &Made::of(message.entry, f144::ID), &[&self.bytes])?;
            out.done(&message);
        }
        Ok(())
    }

    fn looks_at_payloads(&self) -> bool {
        true
    }

    fn keeps(&self) -> bool {
        false
    }
}

fn main() -> ExitCode {
    beamport::run(&Registry::builtin().worker(&SCALE))
}
