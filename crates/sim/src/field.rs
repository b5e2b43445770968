//! Fast sample environment: the samples of an alternating magnetic field, `se00`, one packet for each pulse.
//!
//! Sample `i` counted since 1970 lies at i / rate seconds; a packet holds the samples from its pulse up to the next, so none is missing
//! and none comes twice, whatever the rate and however often the source begins again.

use crate::plan::Config;
use crate::pulse::PULSES_PER_SECOND;
use crate::random::Generator;
use crate::train::{Instrument, Pulse};
use flow::Fault;
use std::f64::consts::TAU;
use store::SchemaId;
use wire::se00::{self, Location, Se00};

const RANDOM_STREAM: u64 = 3;
const SECOND_NS: i128 = 1_000_000_000;

/// Origin of the field.
pub const ORIGIN: &str = "SE:FIELD01:B";

/// Noise of a sample over the amplitude of the field.
const NOISE: f64 = 0.001;

/// The digitised field.
pub(crate) struct Field {
    origins: Vec<String>,
    /// Samples a second.
    rate: i64,
    frequency: f64,
    amplitude: f64,
    seed: u64,
    pulse: Option<i64>,
    number: i64,
    samples: Vec<f64>,
}

impl Field {
    pub(crate) fn new(config: &Config) -> Result<Self, Fault> {
        Ok(Self {
            origins: crate::origins(config),
            rate: (config.rate as i64).clamp(1, i64::from(crate::limits::FIELD_SAMPLES_MAX)),
            frequency: config.frequency,
            amplitude: config.amplitude,
            seed: config.seed,
            pulse: None,
            number: 0,
            samples: Vec::new(),
        })
    }

    /// The first sample at or after a pulse: ceil(n rate / 14).
    fn first(&self, pulse: i64) -> i128 {
        -(-i128::from(pulse) * i128::from(self.rate)).div_euclid(i128::from(PULSES_PER_SECOND))
    }
}

impl Instrument for Field {
    fn origins(&self) -> &[String] {
        &self.origins
    }

    fn begin(&mut self, pulse: Pulse) {
        self.pulse = Some(pulse.number);
    }

    fn next(&mut self) -> Option<usize> {
        self.number = self.pulse.take()?;
        Some(0)
    }

    fn write(&mut self, number: u64, time: i64, payload: &mut Vec<u8>) -> Result<(SchemaId, usize), wire::Error> {
        let samples = self.first(self.number)..self.first(self.number + 1);
        let rate = i128::from(self.rate);
        // The time of the first sample; what the clock fault adds to the pulse is added here as well.
        let fault = i128::from(time) - i128::from(crate::pulse::pulse_time(self.number));
        let packet_timestamp = (samples.start * SECOND_NS).div_euclid(rate) + fault;
        let mut generator = Generator::at(self.seed, RANDOM_STREAM, self.number);
        self.samples.clear();
        for i in samples {
            // Seconds and their fraction apart, or the phase would lose its digits in 1.8e9 s.
            let (seconds, fraction) = (i.div_euclid(rate) as f64, i.rem_euclid(rate) as f64 / rate as f64);
            let turns = (seconds * self.frequency.fract()).fract() + fraction * self.frequency;
            let noise = NOISE * (generator.uniform() - 0.5);
            self.samples.push(self.amplitude * ((TAU * turns).sin() + noise));
        }
        let parts = Se00 {
            name: &self.origins[0],
            channel: 1,
            packet_timestamp: packet_timestamp.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64,
            time_delta: 1e9 / rate as f64,
            timestamp_location: Location::Start,
            values: (&self.samples).into(),
            timestamps: None,
            message_counter: number as i64,
        };
        se00::write(payload, &parts)?;
        Ok((SchemaId(se00::ID), self.samples.len()))
    }
}
