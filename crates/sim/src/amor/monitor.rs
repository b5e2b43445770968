//! The monitor before the sample: `da00`, one histogram over time of flight each second.
//!
//! Its counts follow the beam, which the slits open further where the sample reflects less: counts of the detector over counts of the
//! monitor give the reflectivity up to one factor for all angles.

use super::optics::{Angles, CHOPPER_MONITOR, WAVELENGTH_RANGE, sample, spectrum, table};
use crate::plan::Config;
use crate::pulse::{PULSES_PER_SECOND, pulse_time};
use crate::random::Generator;
use crate::reflectivity::{time_of_flight, wavelength};
use crate::train::{Instrument, Pulse};
use flow::Fault;
use store::SchemaId;
use wire::da00::{self, Da00, Variable};

/// The content of each message.
pub(crate) const VARIABLES: [&str; 2] = ["signal", "tof"];

const RANDOM_STREAM: u64 = 2;

/// Time bins of the monitor.
pub(crate) const BINS: usize = 200;

/// The monitor of the reflectometer.
pub(crate) struct Monitor {
    origins: Vec<String>,
    angles: Angles,
    /// Counts of a mean pulse for each bin, at the first angle.
    mean: Vec<f64>,
    /// How much stronger the beam is at each angle than at the first.
    factors: Vec<f64>,
    edges: Vec<f64>,
    seed: u64,
    pulse: Option<i64>,
    number: i64,
    counts: Vec<i32>,
}

impl Monitor {
    pub(crate) fn new(config: &Config) -> Result<Self, Fault> {
        let sample = sample(config)?;
        let angles = Angles::new(config);
        let reflected: Vec<f64> =
            angles.degrees.iter().map(|a| table(*a, |q| sample.reflectivity(q)).reflected).collect();
        let factors = reflected.iter().map(|r| reflected[0] / r).collect();
        let (low, high) = (WAVELENGTH_RANGE.0, WAVELENGTH_RANGE.1);
        let time = |w: f64| time_of_flight(w, CHOPPER_MONITOR) * 1e9;
        let step = (time(high) - time(low)) / BINS as f64;
        let edges: Vec<f64> = (0..=BINS).map(|i| time(low) + step * i as f64).collect();
        let weights: Vec<f64> =
            edges.windows(2).map(|e| spectrum(wavelength((e[0] + e[1]) / 2.0 * 1e-9, CHOPPER_MONITOR))).collect();
        let norm = config.events_per_second() / PULSES_PER_SECOND as f64 / weights.iter().sum::<f64>();
        Ok(Self {
            origins: crate::origins(config),
            angles,
            mean: weights.iter().map(|w| w * norm).collect(),
            factors,
            edges,
            seed: config.seed,
            pulse: None,
            number: 0,
            counts: Vec::new(),
        })
    }
}

impl Instrument for Monitor {
    fn origins(&self) -> &[String] {
        &self.origins
    }

    /// The histogram of a second comes with its last pulse.
    fn begin(&mut self, pulse: Pulse) {
        let last = pulse.number.rem_euclid(PULSES_PER_SECOND) == PULSES_PER_SECOND - 1;
        self.pulse = last.then_some(pulse.number);
    }

    fn next(&mut self) -> Option<usize> {
        self.number = self.pulse.take()?;
        Some(0)
    }

    fn write(&mut self, _: u64, time: i64, payload: &mut Vec<u8>) -> Result<(SchemaId, usize), wire::Error> {
        let second = self.number - (PULSES_PER_SECOND - 1)..=self.number;
        let pulses: f64 = second.map(|n| self.factors[self.angles.at(pulse_time(n))]).sum();
        let mut generator = Generator::at(self.seed, RANDOM_STREAM, self.number);
        self.counts.clear();
        self.counts.extend(self.mean.iter().map(|m| generator.poisson(m * pulses).min(i32::MAX as u64) as i32));
        let axes = ["tof"];
        let variable = |name, unit, label| Variable {
            name,
            unit: Some(unit),
            label: Some(label),
            source: None,
            axes: axes.as_slice().into(),
            shape: (&[]).into(),
            data: (&[] as &[i32]).into(),
        };
        let (bins, edges) = ([BINS as i64], [BINS as i64 + 1]);
        let data = [
            Variable {
                shape: (&bins).into(),
                data: (&self.counts).into(),
                ..variable(VARIABLES[0], "counts", "counts of one second")
            },
            Variable {
                shape: (&edges).into(),
                data: (&self.edges).into(),
                ..variable(VARIABLES[1], "ns", "time of flight")
            },
        ];
        da00::write(payload, &Da00 { source_name: &self.origins[0], timestamp: time, data: data.as_slice().into() })?;
        Ok((SchemaId(da00::ID), BINS))
    }
}
