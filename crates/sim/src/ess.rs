//! Instruments of the ESS as load: right rates, message sizes and numbers, no physics.
//!
//! The fastest give 500 million events a second, more than can be drawn one by one on a core. So a pool of events is drawn once, and
//! each message is two stretches of it, one of times and one of pixels, from places that the seed and the pulse choose. The number of
//! events of each pulse is Poisson, times and pixels are in range and flat on average; but events repeat, so these models are for
//! throughput and bookkeeping and not for tests of analysis.

use crate::events::{Packing, write_events};
use crate::limits;
use crate::plan::Config;
use crate::pulse::PULSES_PER_SECOND;
use crate::random::Generator;
use crate::train::{Instrument, Pulse};
use flow::Fault;
use store::SchemaId;
use wire::{ev44, f144};

/// Random stream of the events, and of the metadata.
const RANDOM_STREAM: u64 = 1;
const METADATA_STREAM: u64 = 2;

/// Bytes of an event in `ev44`: time of flight and pixel number.
const EVENT_BYTES: f64 = 8.0;

/// Origins among which metadata is dealt out.
pub(crate) const METADATA_ORIGINS: usize = 64;

/// Times of flight reach the next pulse.
const TIME_MAX_NS: u64 = 71_428_571;

/// Events of a pool: at least what mixes well, at most 16 MiB and twice the largest message.
const POOL_EVENTS: (usize, usize) = (1 << 16, 2 * limits::EVENTS_PER_MESSAGE_MAX as usize);

/// One instrument as load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// Events a second on average at full power.
    pub events_per_second: f64,
    /// The data rate that goes with it, in MB/s.
    pub megabytes_per_second: f64,
    /// Pixels, numbered from 1. Of the right order; nothing here depends on the geometry.
    pub pixels: u32,
}

/// The profiles: average rates of events and data at 5 MW from the ESS data-acquisition design tables.
pub const PROFILES: &[Profile] = &[
    Profile { name: "cspec", events_per_second: 10e6, megabytes_per_second: 80.0, pixels: 750_000 },
    Profile { name: "estia", events_per_second: 500e6, megabytes_per_second: 4000.0, pixels: 98_304 },
    Profile { name: "freia", events_per_second: 100e6, megabytes_per_second: 800.0, pixels: 65_536 },
    Profile { name: "loki", events_per_second: 37e6, megabytes_per_second: 300.0, pixels: 1_500_000 },
    Profile { name: "nmx", events_per_second: 5e6, megabytes_per_second: 40.0, pixels: 4_915_200 },
    Profile { name: "skadi", events_per_second: 37e6, megabytes_per_second: 300.0, pixels: 400_000 },
    Profile { name: "trex", events_per_second: 10e6, megabytes_per_second: 80.0, pixels: 500_000 },
];

/// The profile of a name.
pub fn profile(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|p| p.name == name)
}

/// A profile at work.
pub(crate) struct Load {
    /// The detector first, then the process variables of the metadata.
    origins: Vec<String>,
    mean: f64,
    seed: u64,
    metadata: f64,
    /// Bytes of one metadata message.
    metadata_bytes: f64,
    generator: Generator,
    packing: Packing,
    times: Vec<i32>,
    pixels: Vec<i32>,
    pulse: i64,
    count: usize,
    metadata_left: u64,
    /// Place of the metadata origin in `origins`; 0 for events.
    origin: usize,
}

impl Load {
    pub(crate) fn new(profile: &Profile, config: &Config) -> Result<Self, Fault> {
        let mean = config.events_per_second() / PULSES_PER_SECOND as f64;
        let size = ((mean * 4.0) as usize).clamp(POOL_EVENTS.0, POOL_EVENTS.1);
        let mut generator = Generator::at(config.seed, RANDOM_STREAM, -1);
        let origins = crate::origins(config);
        let mut sample = Vec::new();
        if let Some(name) = origins.get(1) {
            f144::write(&mut sample, &f144::F144 { source_name: name, timestamp: 0, value: 0.0.into() })
                .map_err(|e| Fault::new(format!("cannot create `metadata` of model `{}`", profile.name), e))?;
        }
        Ok(Self {
            origins,
            mean,
            seed: config.seed,
            metadata: config.metadata,
            metadata_bytes: sample.len().max(1) as f64,
            times: (0..size).map(|_| generator.below(TIME_MAX_NS) as i32).collect(),
            pixels: (0..size).map(|_| 1 + generator.below(u64::from(profile.pixels)) as i32).collect(),
            generator,
            packing: Packing::new(config).at_most(size),
            pulse: 0,
            count: 0,
            metadata_left: 0,
            origin: 0,
        })
    }
}

impl Instrument for Load {
    fn origins(&self) -> &[String] {
        &self.origins
    }

    fn begin(&mut self, pulse: Pulse) {
        self.generator = Generator::at(self.seed, RANDOM_STREAM, pulse.number);
        self.pulse = pulse.number;
        let events = self.generator.poisson(self.mean);
        self.packing.begin(events);
        // The fraction of a message that is left over is given by chance, so that the average holds at any rate.
        let messages = self.metadata * EVENT_BYTES * events as f64 / self.metadata_bytes;
        self.metadata_left = (messages + self.generator.uniform()).floor() as u64;
    }

    fn next(&mut self) -> Option<usize> {
        if let Some(count) = self.packing.next() {
            (self.count, self.origin) = (count, 0);
            return Some(0);
        }
        self.metadata_left = self.metadata_left.checked_sub(1)?;
        self.origin = 1
            + (self.metadata_left as usize + self.pulse.rem_euclid(METADATA_ORIGINS as i64) as usize)
                % METADATA_ORIGINS;
        Some(self.origin)
    }

    fn write(&mut self, number: u64, time: i64, payload: &mut Vec<u8>) -> Result<(SchemaId, usize), wire::Error> {
        let origin = &self.origins[self.origin];
        if self.origin > 0 {
            let value = Generator::at(self.seed, METADATA_STREAM + self.origin as u64, number as i64).uniform();
            f144::write(payload, &f144::F144 { source_name: origin, timestamp: time, value: value.into() })?;
            return Ok((SchemaId(f144::ID), 1));
        }
        let room = self.times.len() - self.count;
        let (t, p) = (self.generator.below(room as u64 + 1) as usize, self.generator.below(room as u64 + 1) as usize);
        write_events(payload, origin, number, time, &self.times[t..t + self.count], &self.pixels[p..p + self.count])?;
        Ok((SchemaId(ev44::ID), self.count))
    }
}
