//! What is known of each frame besides its pixels: values of process variables (`f144`) on the grid of the camera.
//!
//! Each frame has one value of each variable, at the time of the frame, or behind it by a fixed time and a random one,
//! as those of real devices are. The value says to which frame it belongs, so that a join can be checked: the number of
//! the frame on the grid modulo 1,000,000, and a thousandth for each variable.

use super::grid;
use crate::plan::Config;
use crate::pulse::Grid;
use crate::random::Generator;
use crate::train::{Instrument, Pulse};
use flow::Fault;
use store::SchemaId;
use wire::f144::{self, F144};

/// Random stream of the jitter of the first variable.
const RANDOM_STREAM: u64 = 1000;

/// Frames after which the values repeat.
const PERIOD: i64 = 1_000_000;

/// The metadata of a camera.
pub(crate) struct Metadata {
    origins: Vec<String>,
    grid: Grid,
    offset: i64,
    jitter: i64,
    seed: u64,
    pulse: i64,
    /// The variable that comes next.
    next: usize,
    /// The one that was announced.
    variable: usize,
}

impl Metadata {
    pub(crate) fn new(config: &Config) -> Result<Self, Fault> {
        Ok(Self {
            origins: crate::origins(config),
            grid: grid(config)?,
            offset: config.offset_ns,
            jitter: config.jitter_ns,
            seed: config.seed,
            pulse: 0,
            next: 0,
            variable: 0,
        })
    }
}

impl Instrument for Metadata {
    fn grid(&self) -> Grid {
        self.grid
    }

    fn origins(&self) -> &[String] {
        &self.origins
    }

    fn begin(&mut self, pulse: Pulse) {
        (self.pulse, self.next) = (pulse.number, 0);
    }

    fn next(&mut self) -> Option<usize> {
        if self.next >= self.origins.len() {
            return None;
        }
        (self.variable, self.next) = (self.next, self.next + 1);
        Some(self.variable)
    }

    fn shift(&self) -> i64 {
        if self.jitter == 0 {
            return self.offset;
        }
        let mut generator = Generator::at(self.seed, RANDOM_STREAM + self.variable as u64, self.pulse);
        self.offset.saturating_add(generator.below(self.jitter as u64) as i64)
    }

    fn write(&mut self, _: u64, time: i64, payload: &mut Vec<u8>) -> Result<(SchemaId, usize), wire::Error> {
        let value = self.pulse.rem_euclid(PERIOD) as f64 + self.variable as f64 / 1000.0;
        let origin = &self.origins[self.variable];
        f144::write(payload, &F144 { source_name: origin, timestamp: time, value: value.into() })?;
        Ok((SchemaId(f144::ID), 1))
    }
}
