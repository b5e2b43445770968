//! One of many detectors that look at the same source: single hits by chance, and coincidences in which several fire at once.
//!
//! A hit is a message (`ev44` of one event). Each detector is a source of its own, and they agree without talking: which
//! detectors take part in which coincidence, and when, follows from the seed and the number of the pulse. The hits between
//! two pulses are brought at the second.

use crate::plan::Config;
use crate::pulse::{PULSES_PER_SECOND, pulse_time};
use crate::random::Generator;
use crate::train::{Instrument, Pulse};
use store::SchemaId;
use wire::ev44::{self, Ev44};

/// Of the singles of the first detector; each has its own behind it.
const SINGLES: u64 = 1 << 32;
/// Of the coincidences, which all share.
const COINCIDENCES: u64 = 7;

/// One detector.
pub(crate) struct Detector {
    origins: Vec<String>,
    seed: u64,
    number: u32,
    detectors: u32,
    /// Of a pulse, on average.
    singles: f64,
    coincidences: f64,
    multiplicity: u32,
    jitter: i64,
    /// Hits of the pulse, the last first: how far before it, and which coincidence they are of; 0 = none.
    hits: Vec<(i64, i32)>,
    hit: (i64, i32),
    members: Vec<u32>,
}

/// The name of a detector.
pub(crate) fn name_of(number: u32) -> String {
    format!("detector{number:03}")
}

impl Detector {
    pub(crate) fn new(config: &Config) -> Self {
        let of_pulse = |rate: f64| rate / PULSES_PER_SECOND as f64;
        Self {
            origins: crate::origins(config),
            seed: config.seed,
            number: config.detector,
            detectors: config.detectors,
            singles: of_pulse(config.rate * config.scale),
            coincidences: of_pulse(config.coincidences),
            multiplicity: config.multiplicity.min(config.detectors),
            jitter: config.jitter_ns,
            hits: Vec::new(),
            hit: (0, 0),
            members: Vec::new(),
        }
    }

    /// Draws the coincidences of a pulse, as all detectors do; `self.hits` gets those of this one.
    fn draw(&mut self, pulse: i64, period: i64) {
        let mut shared = Generator::at(self.seed, COINCIDENCES, pulse);
        for coincidence in 1..=shared.poisson(self.coincidences) {
            let time = shared.below(period as u64) as i64;
            self.members.clear();
            while self.members.len() < self.multiplicity as usize {
                let member = shared.below(u64::from(self.detectors)) as u32 + 1;
                let late = shared.below(self.jitter as u64 + 1) as i64;
                if self.members.contains(&member) {
                    continue;
                }
                self.members.push(member);
                if member == self.number {
                    let before = (period - time - late).max(0);
                    self.hits.push((before, coincidence.min(i32::MAX as u64) as i32));
                }
            }
        }
    }
}

impl Instrument for Detector {
    fn origins(&self) -> &[String] {
        &self.origins
    }

    fn begin(&mut self, pulse: Pulse) {
        let period = pulse.time - pulse_time(pulse.number - 1);
        self.hits.clear();
        self.draw(pulse.number, period);
        let mut own = Generator::at(self.seed, SINGLES + u64::from(self.number), pulse.number);
        for _ in 0..own.poisson(self.singles) {
            self.hits.push((own.below(period as u64) as i64, 0));
        }
        self.hits.sort_unstable();
    }

    fn next(&mut self) -> Option<usize> {
        self.hit = self.hits.pop()?;
        Some(0)
    }

    fn shift(&self) -> i64 {
        -self.hit.0
    }

    fn lag(&self) -> i64 {
        // Until the next pulse.
        1_000_000_000 / PULSES_PER_SECOND + 1
    }

    fn write(&mut self, number: u64, time: i64, payload: &mut Vec<u8>) -> Result<(SchemaId, usize), wire::Error> {
        let (times, index, mark, pixel) = ([time], [0_i32], [self.hit.1], [self.number as i32]);
        let parts = Ev44 {
            source_name: &self.origins[0],
            message_id: number as i64,
            reference_time: (&times).into(),
            reference_time_index: (&index).into(),
            time_of_flight: (&mark).into(),
            pixel_id: (&pixel).into(),
        };
        ev44::write(payload, &parts)?;
        Ok((SchemaId(ev44::ID), 1))
    }
}
