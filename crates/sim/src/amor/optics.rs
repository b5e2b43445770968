//! What the reflectometer does to neutrons: from spectrum, divergence, sample and resolution to a table of where they are counted.
//!
//! One table for each sample angle, rows of the detector times logarithmic bins of wavelength; drawing from it costs the same whatever
//! the physics is. The page `docs/concepts/amor-physics.md` has the formulas and what is left out.

use crate::plan::Config;
use crate::reflectivity::{Sample, momentum_transfer, time_of_flight};
use flow::Fault;

/// Pixels across the beam, the slow index of the pixel number.
pub const X_PIXELS: usize = 128;
/// Pixels in the scattering direction, the fast index: row `y` sees larger angles as `y` grows.
pub const Y_PIXELS: usize = 256;
/// Height of a pixel in m.
pub const Y_PITCH: f64 = 0.742_187_5e-3;
/// Width of a pixel in m.
pub const X_PITCH: f64 = 1.343_75e-3;
/// Flight path from the chopper, where neutrons start with the pulse, to the detector in m.
pub const CHOPPER_DETECTOR: f64 = 8.98;
/// From the sample to the detector in m.
pub const SAMPLE_DETECTOR: f64 = 4.085;
/// From the chopper to the monitor, half a metre before the sample, in m.
pub const CHOPPER_MONITOR: f64 = 4.395;
/// Wavelength bins of a table, equal steps of the logarithm.
pub const WAVELENGTHS: usize = 512;
/// Shortest and longest wavelength of a table in Å.
pub const WAVELENGTH_RANGE: (f64, f64) = (3.2, 14.0);
/// Band that the choppers let through, half height, in Å.
pub const BAND: (f64, f64) = (3.6, 12.8);
/// Softness of the band's edges in Å.
pub const BAND_EDGE: f64 = 0.08;
/// Temperature of the cold moderator in K.
pub const MODERATOR_K: f64 = 40.0;
/// Half of the divergence of the beam on the sample in degrees, and the softness of its edges.
pub const DIVERGENCE: (f64, f64) = (0.75, 0.03);
/// Standard deviation of the measured wavelength over wavelength (blind choppers make it constant).
pub const SIGMA_WAVELENGTH: f64 = 0.015;
/// Standard deviation of the angle that the detector measures, in degrees.
pub const SIGMA_ANGLE: f64 = 0.02;

/// The pixel number, from 1 to 32768, of column x and row y: x slow, y fast, as the histograms of the real instrument lie in memory.
#[inline]
pub fn pixel(x: usize, y: usize) -> i32 {
    (1 + x * Y_PIXELS + y) as i32
}

/// A step from 0 to 1 at `x = 0`.
fn rise(x: f64, softness: f64) -> f64 {
    0.5 * (1.0 + (x / softness).tanh())
}

/// Neutrons per Å before the sample, of any norm: Maxwell's spectrum times the band of the choppers. Flux per wavelength of a moderator
/// at temperature T is a^2 / lambda^5 exp(-a / lambda^2) with a = h^2 / (2 m k T) = 949 Å^2 K / T (Windsor, Pulsed Neutron Scattering, 1981).
pub fn spectrum(wavelength: f64) -> f64 {
    let a = 949.0 / MODERATOR_K;
    let maxwell = a * a / wavelength.powi(5) * (-a / (wavelength * wavelength)).exp();
    maxwell * rise(wavelength - BAND.0, BAND_EDGE) * rise(BAND.1 - wavelength, BAND_EDGE)
}

/// Angle in rad of a detector row against the middle of the detector, which stands at twice the sample angle.
pub fn row_offset(y: usize) -> f64 {
    ((y as f64 + 0.5 - Y_PIXELS as f64 / 2.0) * Y_PITCH / SAMPLE_DETECTOR).atan()
}

/// Part of the beam that arrives with this divergence (rad) against its middle, of any norm.
pub fn divergence(offset: f64) -> f64 {
    let offset = offset.to_degrees();
    rise(offset + DIVERGENCE.0, DIVERGENCE.1) * rise(DIVERGENCE.0 - offset, DIVERGENCE.1)
}

/// Part of the reflected beam in each column.
pub fn columns() -> Vec<f64> {
    (0..X_PIXELS).map(|x| rise(x as f64 - 25.5, 2.0) * rise(102.5 - x as f64, 2.0)).collect()
}

/// Edges of the wavelength bins in Å, one more than there are bins.
pub fn wavelength_edges() -> Vec<f64> {
    let (low, high) = WAVELENGTH_RANGE;
    (0..=WAVELENGTHS).map(|k| low * (high / low).powf(k as f64 / WAVELENGTHS as f64)).collect()
}

/// Edges of the same bins as times of flight in ns.
pub fn time_edges(path: f64) -> Vec<f64> {
    wavelength_edges().iter().map(|w| time_of_flight(*w, path) * 1e9).collect()
}

/// The table of one sample angle.
#[derive(Clone, Debug)]
pub struct Table {
    /// Counted neutrons of any norm, row by row: `[y * WAVELENGTHS + k]`, as measured (with resolution).
    pub counted: Vec<f64>,
    /// Part of the beam on the sample that is reflected into the detector.
    pub reflected: f64,
}

/// The table of a sample angle in degrees, for any reflectivity of q.
pub fn table(angle: f64, reflectivity: impl Fn(f64) -> f64) -> Table {
    let mu = angle.to_radians();
    let edges = wavelength_edges();
    let bins: Vec<(f64, f64)> = edges
        .windows(2)
        .map(|e| {
            let middle = (e[0] * e[1]).sqrt();
            (middle, spectrum(middle) * (e[1] - e[0]))
        })
        .collect();
    let mut counted = vec![0.0; Y_PIXELS * WAVELENGTHS];
    let (mut beam, mut reflected) = (0.0, 0.0);
    for (y, row) in counted.chunks_exact_mut(WAVELENGTHS).enumerate() {
        let offset = row_offset(y);
        let part = divergence(offset);
        // Below the horizon of the sample nothing is reflected; what is weaker than 1e-9 of the beam is not worth computing.
        let grazing = mu + offset;
        for (cell, &(wavelength, flux)) in row.iter_mut().zip(&bins) {
            beam += part * flux;
            if grazing > 0.0 && part > 1e-9 {
                *cell = part * flux * reflectivity(momentum_transfer(grazing, wavelength));
                reflected += *cell;
            }
        }
    }
    let step = (WAVELENGTH_RANGE.1 / WAVELENGTH_RANGE.0).ln() / WAVELENGTHS as f64;
    let row_degrees = (Y_PITCH / SAMPLE_DETECTOR).to_degrees();
    let counted = blur(&counted, SIGMA_WAVELENGTH / step, SIGMA_ANGLE / row_degrees);
    Table { counted, reflected: reflected / beam }
}

/// Gaussian resolution along both axes, standard deviations in cells; what leaves the grid is lost.
fn blur(cells: &[f64], sigma_k: f64, sigma_y: f64) -> Vec<f64> {
    let kernel = |sigma: f64| -> Vec<f64> {
        let reach = (4.0 * sigma).ceil() as i32;
        let values: Vec<f64> = (-reach..=reach).map(|i| (-0.5 * (f64::from(i) / sigma).powi(2)).exp()).collect();
        let sum: f64 = values.iter().sum();
        values.iter().map(|v| v / sum).collect()
    };
    let along_k = kernel(sigma_k);
    let mut half = vec![0.0; cells.len()];
    for (from, to) in cells.chunks_exact(WAVELENGTHS).zip(half.chunks_exact_mut(WAVELENGTHS)) {
        if from.iter().all(|c| *c == 0.0) {
            continue;
        }
        spread(&along_k, WAVELENGTHS, |k, to_k, weight| to[to_k] += weight * from[k]);
    }
    let mut whole = vec![0.0; cells.len()];
    spread(&kernel(sigma_y), Y_PIXELS, |y, to_y, weight| {
        let from = &half[y * WAVELENGTHS..][..WAVELENGTHS];
        let to = &mut whole[to_y * WAVELENGTHS..][..WAVELENGTHS];
        for (t, f) in to.iter_mut().zip(from) {
            *t += weight * f;
        }
    });
    whole
}

/// Calls `add(from, to, weight)` for every pair of places on a line that a kernel joins.
fn spread(kernel: &[f64], length: usize, mut add: impl FnMut(usize, usize, f64)) {
    let reach = kernel.len() / 2;
    for from in 0..length {
        for (i, &weight) in kernel.iter().enumerate() {
            if let Some(to) = (from + i).checked_sub(reach).filter(|to| *to < length) {
                add(from, to, weight);
            }
        }
    }
}

/// The program of sample angles: which one holds at which time. A function of time alone, so detector, monitor and devices agree.
#[derive(Clone, Debug)]
pub struct Angles {
    /// Angles in degrees.
    pub degrees: Vec<f64>,
    step_ns: i64,
}

impl Angles {
    /// As configured.
    pub fn new(config: &Config) -> Self {
        Self { degrees: config.angles.clone(), step_ns: config.angle_step_ns.max(1) }
    }

    /// Place in the list of the angle at a time, ns since 1970 UTC.
    pub fn at(&self, time: i64) -> usize {
        time.div_euclid(self.step_ns).rem_euclid(self.degrees.len().max(1) as i64) as usize
    }
}

/// The sample that a configuration names.
pub(crate) fn sample(config: &Config) -> Result<Sample, Fault> {
    Sample::named(&config.sample).ok_or_else(|| {
        let fault = Fault::new(format!("unknown sample `{}`", config.sample), "");
        fault.hint(format!("`sample` takes one of {}", crate::reflectivity::SAMPLES.join(", ")))
    })
}
