//! The devices around the sample: `f144` values and one `al00` alarm, one stream with an origin for each process variable.
//!
//! Values that change slowly come once a second and when they change; the chopper phase comes with every pulse.

use super::DEVICES;
use super::optics::Angles;
use crate::plan::Config;
use crate::pulse::{PULSES_PER_SECOND, pulse_time};
use crate::random::Generator;
use crate::train::{Instrument, Pulse};
use flow::Fault;
use std::f64::consts::TAU;
use store::SchemaId;
use wire::al00::{self, Al00, Severity};
use wire::f144::{self, F144};

/// Random stream of the first device; each has its own.
const RANDOM_STREAM: u64 = 16;

/// Places in `DEVICES`.
const TEMPERATURE: usize = 0;
const MU: usize = 1;
const SLITS: std::ops::RangeInclusive<usize> = 3..=6;
const MAGNET: usize = 7;
const PHASE: usize = 8;

/// Gaps of the slits in mm at a sample angle of one degree: they open with the sine of the angle, so that the footprint stays.
const GAPS: [f64; 4] = [1.0, 2.5, 3.0, 8.0];
/// Temperature of the sample, the limit of its alarm, and what a failing heater adds, in K.
pub(crate) const TEMPERATURE_K: f64 = 296.0;
pub(crate) const LIMIT_K: f64 = 300.0;
const EXCESS_K: f64 = 8.0;
/// How long the heater fails, in s.
const FAILURE_S: f64 = 60.0;

/// The value of one message.
#[derive(Clone, Copy)]
enum Word {
    Value(usize),
    Alarm(bool),
}

/// The devices of the reflectometer.
pub(crate) struct Devices {
    origins: Vec<String>,
    angles: Angles,
    alarm_after_s: f64,
    seed: u64,
    pulse: Pulse,
    /// The messages that this pulse still has to send, last first.
    words: Vec<Word>,
    word: Word,
}

impl Devices {
    pub(crate) fn new(config: &Config) -> Result<Self, Fault> {
        Ok(Self {
            origins: crate::origins(config),
            angles: Angles::new(config),
            alarm_after_s: config.alarm_after_ns as f64 * 1e-9,
            seed: config.seed,
            pulse: Pulse { number: 0, time: 0, since: 0 },
            words: Vec::new(),
            word: Word::Value(PHASE),
        })
    }

    /// Temperature without noise: a slow drift, and a heater that fails from `alarm_after` on for a minute. It passes the limit within
    /// 50 ms of `alarm_after`, where the steep part of the failure stands at half.
    fn temperature(&self, since: i64) -> f64 {
        let t = since as f64 / PULSES_PER_SECOND as f64;
        let step = |at: f64| 0.5 * (1.0 + ((t - at) / 0.5).tanh());
        let drift = 0.2 * (TAU * t / 75.0).sin().powi(2);
        TEMPERATURE_K + drift + EXCESS_K * (step(self.alarm_after_s) - step(self.alarm_after_s + FAILURE_S))
    }

    fn value(&self, device: usize) -> f64 {
        let Pulse { number, time, since } = self.pulse;
        let noise = Generator::at(self.seed, RANDOM_STREAM + device as u64, number).normal();
        let mu = self.angles.degrees[self.angles.at(time)];
        match device {
            TEMPERATURE => self.temperature(since) + 0.01 * noise,
            MAGNET => {
                // A triangle of 5 A and 20 s, read with 1 mA of noise.
                let phase = time.rem_euclid(20_000_000_000) as f64 * 1e-9 / 20.0;
                20.0 * ((phase - 0.5).abs() - 0.25) + 0.001 * noise
            }
            PHASE => 12.87 + 0.02 * noise,
            MU => mu,
            d if SLITS.contains(&d) => GAPS[d - SLITS.start()] * mu.to_radians().sin() / 1_f64.to_radians().sin(),
            _ => 2.0 * mu,
        }
    }
}

impl Instrument for Devices {
    fn origins(&self) -> &[String] {
        &self.origins
    }

    fn begin(&mut self, pulse: Pulse) {
        self.pulse = pulse;
        self.words.clear();
        let all = pulse.since == 0 || pulse.number.rem_euclid(PULSES_PER_SECOND) == 0;
        let moved = self.angles.at(pulse.time) != self.angles.at(pulse_time(pulse.number - 1));
        let hot = self.temperature(pulse.since) >= LIMIT_K;
        let alarm = hot != (self.temperature(pulse.since - 1) >= LIMIT_K);
        if alarm {
            self.words.push(Word::Alarm(hot));
        }
        for device in (0..DEVICES.len()).rev() {
            let due = match device {
                PHASE => true,
                TEMPERATURE => all || alarm,
                MAGNET => all || pulse.number.rem_euclid(PULSES_PER_SECOND / 2) == 0,
                _ => all || moved,
            };
            if due {
                self.words.push(Word::Value(device));
            }
        }
    }

    fn next(&mut self) -> Option<usize> {
        self.word = self.words.pop()?;
        Some(match self.word {
            Word::Value(device) => device,
            Word::Alarm(_) => TEMPERATURE,
        })
    }

    fn write(&mut self, _: u64, time: i64, payload: &mut Vec<u8>) -> Result<(SchemaId, usize), wire::Error> {
        match self.word {
            Word::Value(device) => {
                let value = self.value(device).into();
                f144::write(payload, &F144 { source_name: &self.origins[device], timestamp: time, value })?;
                Ok((SchemaId(f144::ID), 1))
            }
            Word::Alarm(hot) => {
                let source_name = &self.origins[TEMPERATURE];
                let (severity, message) = match hot {
                    true => (Severity::Major, "sample temperature above 300 K"),
                    false => (Severity::Ok, "sample temperature below 300 K"),
                };
                al00::write(payload, &Al00 { source_name, timestamp: time, severity, message })?;
                Ok((SchemaId(al00::ID), 1))
            }
        }
    }
}
