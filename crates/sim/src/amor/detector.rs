//! The detector: events drawn from the table of the sample angle of the moment.

use super::optics::{
    Angles, CHOPPER_DETECTOR, WAVELENGTHS, X_PIXELS, Y_PIXELS, columns, pixel, sample, table, time_edges,
};
use crate::alias::Alias;
use crate::events::Drawing;
use crate::plan::Config;
use crate::random::Generator;
use crate::train::Pulse;
use flow::Fault;

/// Where the events of the reflectometer fall.
pub(crate) struct Detector {
    angles: Angles,
    tables: Vec<Alias>,
    columns: Alias,
    /// First ns of each wavelength bin and its length.
    times: Vec<(f64, f64)>,
    /// An event whose random bits are below this is background.
    background_below: u64,
    angle: usize,
}

impl Detector {
    pub(crate) fn new(config: &Config) -> Result<Self, Fault> {
        let sample = sample(config)?;
        let angles = Angles::new(config);
        let tables = angles
            .degrees
            .iter()
            .map(|a| {
                let weights = table(*a, |q| sample.reflectivity(q)).counted;
                Alias::new(&weights).ok_or_else(|| Fault::new(format!("no reflection at {a} degrees"), ""))
            })
            .collect::<Result<_, _>>()?;
        let columns = Alias::new(&columns()).ok_or_else(|| Fault::new("the beam misses the detector", ""))?;
        let edges = time_edges(CHOPPER_DETECTOR);
        Ok(Self {
            angles,
            tables,
            columns,
            times: edges.windows(2).map(|e| (e[0], e[1] - e[0])).collect(),
            background_below: (config.background * u64::MAX as f64) as u64,
            angle: 0,
        })
    }
}

impl Drawing for Detector {
    fn aim(&mut self, pulse: Pulse) {
        self.angle = self.angles.at(pulse.time);
    }

    fn draw(&self, generator: &mut Generator, count: usize, times: &mut Vec<i32>, pixels: &mut Vec<i32>) {
        let table = &self.tables[self.angle];
        let first = self.times[0].0;
        let range = self.times[WAVELENGTHS - 1].0 + self.times[WAVELENGTHS - 1].1 - first;
        // The state in registers for the whole loop.
        let mut random = generator.clone();
        for _ in 0..count {
            let (time, pixel_id) = if random.bits() < self.background_below {
                let anywhere = random.below((X_PIXELS * Y_PIXELS) as u64) as i32;
                (first + range * random.uniform(), 1 + anywhere)
            } else {
                let cell = table.draw(&mut random);
                let (start, length) = self.times[cell % WAVELENGTHS];
                (start + length * random.uniform(), pixel(self.columns.draw(&mut random), cell / WAVELENGTHS))
            };
            times.push(time as i32);
            pixels.push(pixel_id);
        }
        *generator = random;
    }
}
