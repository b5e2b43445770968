//! Specular neutron reflectivity of a layered sample, and the kinematics of a time-of-flight reflectometer.
//!
//! Units: lengths in Å, momentum transfer q in 1/Å, scattering length density in 1/Å^2, angles in rad, times in s, flight paths in m.
//! Recursion: Parratt, Phys. Rev. 95 (1954) 359. Roughness: Névot and Croce, Rev. Phys. Appl. 15 (1980) 761.

use std::f64::consts::PI;
use std::ops::{Add, Div, Mul, Sub};

/// Planck's constant over the neutron mass, in Å m/s: wavelength = this * time / path (CODATA 2018).
pub const H_OVER_M: f64 = 3_956.034_0;

/// De Broglie wavelength in Å of a neutron that takes `time` s for `path` m.
pub fn wavelength(time: f64, path: f64) -> f64 {
    H_OVER_M * time / path
}

/// Time of flight in s of a wavelength in Å over `path` m.
pub fn time_of_flight(wavelength: f64, path: f64) -> f64 {
    wavelength * path / H_OVER_M
}

/// Momentum transfer in 1/Å of specular reflection at a grazing angle in rad.
pub fn momentum_transfer(angle: f64, wavelength: f64) -> f64 {
    4.0 * PI * angle.sin() / wavelength
}

/// One layer, counted from the surface; the last one of a sample is the substrate.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Its layers.
    pub name: &'static str,
    /// Scattering length density in 1/Å^2.
    pub sld: f64,
    /// Its imaginary part (absorption) in 1/Å^2, not negative.
    pub absorption: f64,
    /// Thickness in Å; that of the substrate is not used.
    pub thickness: f64,
    /// Root mean square roughness in Å of the interface above it.
    pub roughness: f64,
}

/// A layered sample under air or vacuum.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The name by which a configuration asks for it.
    pub name: &'static str,
    /// Layers from the surface down; the last is the substrate.
    pub layers: Vec<Layer>,
}

/// Names of the samples that [`Sample::named`] knows.
pub const SAMPLES: &[&str] = &["nickel", "silicon", "supermirror"];

// Scattering length densities of the bulk materials at natural isotope content, from the coherent scattering lengths of
// Sears, Neutron News 3 (1992) 26, and tabulated densities.
const NICKEL: f64 = 9.41e-6;
const TITANIUM: f64 = -1.93e-6;
const SILICON: f64 = 2.07e-6;
const SILICA: f64 = 3.47e-6;
const GLASS: f64 = 3.64e-6;

impl Sample {
    /// `nickel`: 500 Å of nickel on glass, whose fringes are the classical test; `silicon`: a wafer under its native oxide;
    /// `supermirror`: ten bilayers of nickel and titanium on glass, with a Bragg peak near 0.046 1/Å.
    pub fn named(name: &str) -> Option<Self> {
        let layer = |name, sld, thickness, roughness| Layer { name, sld, absorption: 0.0, thickness, roughness };
        Some(match name {
            "nickel" => {
                Self { name: "nickel", layers: vec![layer("Ni", NICKEL, 500.0, 5.0), layer("glass", GLASS, 0.0, 4.0)] }
            }
            "silicon" => {
                Self { name: "silicon", layers: vec![layer("SiO2", SILICA, 15.0, 3.0), layer("Si", SILICON, 0.0, 3.0)] }
            }
            "supermirror" => {
                let bilayer = [layer("Ni", NICKEL, 70.0, 4.0), layer("Ti", TITANIUM, 70.0, 4.0)];
                let mut layers: Vec<Layer> = bilayer.iter().cloned().cycle().take(20).collect();
                layers.push(layer("glass", GLASS, 0.0, 4.0));
                Self { name: "supermirror", layers }
            }
            _ => return None,
        })
    }

    /// Reflectivity |r|^2 at momentum transfer q, without resolution or background. 1 at and below q = 0.
    pub fn reflectivity(&self, q: f64) -> f64 {
        if q <= 0.0 {
            return 1.0;
        }
        let half = q / 2.0;
        // Normal component of the wave vector inside a layer: k^2 = (q/2)^2 - 4 pi sld.
        let wave = |layer: Option<&Layer>| match layer {
            None => Complex { re: half, im: 0.0 },
            Some(l) => Complex { re: half * half - 4.0 * PI * l.sld, im: 4.0 * PI * l.absorption }.root(),
        };
        let mut below = wave(self.layers.last());
        let mut amplitude = Complex::ZERO;
        for (i, layer) in self.layers.iter().enumerate().rev() {
            let above = wave(i.checked_sub(1).and_then(|i| self.layers.get(i)));
            let rough = (above * below * Complex::real(-2.0 * layer.roughness * layer.roughness)).exp();
            let fresnel = (above - below) / (above + below) * rough;
            let joined = (fresnel + amplitude) / (Complex::real(1.0) + fresnel * amplitude);
            // Seen from the top of the layer above: there and back through its thickness.
            let thickness = i.checked_sub(1).and_then(|i| self.layers.get(i)).map_or(0.0, |l| l.thickness);
            amplitude = joined * (above * Complex { re: 0.0, im: 2.0 * thickness }).exp();
            below = above;
        }
        amplitude.norm()
    }

    /// Largest q of total reflection by the densest layer or the substrate: q_c = 4 sqrt(pi sld). 0 where nothing reflects totally.
    pub fn critical_q(&self) -> f64 {
        let densest = self.layers.iter().map(|l| l.sld).fold(0.0, f64::max);
        4.0 * (PI * densest).sqrt()
    }
}

/// A complex number, as much of it as the recursion needs.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Complex {
    re: f64,
    im: f64,
}

impl Complex {
    const ZERO: Self = Self { re: 0.0, im: 0.0 };

    fn real(re: f64) -> Self {
        Self { re, im: 0.0 }
    }

    fn norm(self) -> f64 {
        self.re * self.re + self.im * self.im
    }

    fn exp(self) -> Self {
        let (sin, cos) = self.im.sin_cos();
        let size = self.re.exp();
        Self { re: size * cos, im: size * sin }
    }

    /// The root in the first quadrant for an imaginary part that is not negative: the wave that decays downwards.
    fn root(self) -> Self {
        let size = self.re.hypot(self.im);
        Self { re: ((size + self.re) / 2.0).max(0.0).sqrt(), im: ((size - self.re) / 2.0).max(0.0).sqrt() }
    }
}

impl Add for Complex {
    type Output = Self;
    fn add(self, o: Self) -> Self {
        Self { re: self.re + o.re, im: self.im + o.im }
    }
}

impl Sub for Complex {
    type Output = Self;
    fn sub(self, o: Self) -> Self {
        Self { re: self.re - o.re, im: self.im - o.im }
    }
}

impl Mul for Complex {
    type Output = Self;
    fn mul(self, o: Self) -> Self {
        Self { re: self.re * o.re - self.im * o.im, im: self.re * o.im + self.im * o.re }
    }
}

impl Div for Complex {
    type Output = Self;
    fn div(self, o: Self) -> Self {
        let norm = o.norm();
        Self { re: (self.re * o.re + self.im * o.im) / norm, im: (self.im * o.re - self.re * o.im) / norm }
    }
}

/// Abelès' matrices (Ann. Phys. 12 (1950) 504): the same physics by another way, against which the recursion is tested.
#[cfg(test)]
pub(crate) fn by_matrices(sample: &Sample, q: f64) -> f64 {
    type Matrix = [[Complex; 2]; 2];
    let times = |a: Matrix, b: Matrix| -> Matrix {
        std::array::from_fn(|i| std::array::from_fn(|j| a[i][0] * b[0][j] + a[i][1] * b[1][j]))
    };
    let one = Complex::real(1.0);
    let i = Complex { re: 0.0, im: 1.0 };
    let k: Vec<Complex> = std::iter::once((0.0, 0.0))
        .chain(sample.layers.iter().map(|l| (l.sld, l.absorption)))
        .map(|(sld, absorption)| Complex { re: q * q / 4.0 - 4.0 * PI * sld, im: 4.0 * PI * absorption }.root())
        .collect();
    let mut total: Matrix = [[one, Complex::ZERO], [Complex::ZERO, one]];
    for (n, layer) in sample.layers.iter().enumerate() {
        let (a, b) = (k[n], k[n + 1]);
        let r = (a - b) / (a + b) * (Complex::real(-2.0 * layer.roughness.powi(2)) * a * b).exp();
        let thickness = if n == 0 { 0.0 } else { sample.layers[n - 1].thickness };
        let beta = i * a * Complex::real(thickness);
        let (plus, minus) = (beta.exp(), (Complex::ZERO - beta).exp());
        // Written with the phase of the layer above the interface: C = [[e^-ib, r e^-ib], [r e^ib, e^ib]] and amplitude C21 / C11.
        total = times(total, [[minus, r * minus], [r * plus, plus]]);
    }
    (total[1][0] / total[0][0]).norm()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bare(sld: f64, roughness: f64) -> Sample {
        Sample { name: "bare", layers: vec![Layer { name: "bulk", sld, absorption: 0.0, thickness: 0.0, roughness }] }
    }

    #[test]
    fn substrate_alone_is_fresnel() {
        let sample = bare(NICKEL, 0.0);
        let qc = sample.critical_q();
        for i in 1..400 {
            let q = qc * (1.0 + f64::from(i) * 0.02);
            let inner = (q * q - qc * qc).sqrt();
            let fresnel = ((q - inner) / (q + inner)).powi(2);
            assert!((sample.reflectivity(q) / fresnel - 1.0).abs() < 1e-10, "q {q}");
        }
    }

    #[test]
    fn everything_is_reflected_below_the_critical_edge() {
        for sample in [bare(NICKEL, 0.0), bare(SILICON, 5.0), Sample::named("nickel").unwrap()] {
            // The film is tested up to the edge of its substrate: between the two edges neutrons tunnel.
            let edge = 4.0 * (PI * sample.layers.last().unwrap().sld).sqrt();
            for i in 0..100 {
                let q = edge * f64::from(i) / 100.0;
                assert!(
                    (sample.reflectivity(q) - 1.0).abs() < 1e-9,
                    "{} q {q}: {}",
                    sample.name,
                    sample.reflectivity(q)
                );
            }
            assert!(sample.reflectivity(4.0 * edge) < 0.1);
        }
    }

    #[test]
    fn far_above_the_edge_it_falls_with_the_fourth_power() {
        let sample = bare(SILICON, 0.0);
        let qc = sample.critical_q();
        for q in [0.1, 0.2, 0.4] {
            let porod = (qc / (2.0 * q)).powi(4);
            assert!((sample.reflectivity(q) / porod - 1.0).abs() < 2.0 * (qc / q).powi(2));
        }
        // Névot and Croce: a rough surface loses exp(-q q' sigma^2), q' the momentum transfer inside.
        let rough = bare(SILICON, 4.0);
        let q = 0.2_f64;
        let inside = (q * q - qc * qc).sqrt();
        assert!((rough.reflectivity(q) / sample.reflectivity(q) / (-q * inside * 16.0).exp() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn fringes_of_a_film_are_two_pi_over_its_thickness() {
        let sample = Sample::named("nickel").unwrap();
        let step = 1e-5;
        let value = |i: usize| sample.reflectivity(i as f64 * step);
        let minima: Vec<f64> = (8_000..16_000)
            .filter(|&i| value(i) < value(i - 1) && value(i) <= value(i + 1))
            .map(|i| i as f64 * step)
            .collect();
        assert!(minima.len() >= 6, "{minima:?}");
        // Inside the film the momentum transfer is shortened by the critical edge of nickel.
        let qc = sample.critical_q();
        let inside = |q: f64| (q * q - qc * qc).sqrt();
        for pair in minima.windows(2) {
            let spacing = inside(pair[1]) - inside(pair[0]);
            assert!((spacing / (2.0 * PI / 500.0) - 1.0).abs() < 0.01, "{spacing}");
        }
    }

    #[test]
    fn recursion_agrees_with_matrices() {
        let mut absorbing = Sample::named("supermirror").unwrap();
        absorbing.layers[4].absorption = 2e-7;
        absorbing.layers[20].absorption = 1e-8;
        for sample in SAMPLES.iter().map(|n| Sample::named(n).unwrap()).chain([absorbing]) {
            for i in 1..2000 {
                let q = f64::from(i) * 1e-4;
                let (a, b) = (sample.reflectivity(q), by_matrices(&sample, q));
                assert!((a - b).abs() < 1e-9 * b + 1e-14, "{} q {q}: {a} {b}", sample.name);
            }
        }
    }

    #[test]
    fn kinematics_of_thermal_neutrons() {
        // 2200 m/s is 1.798 Å by definition of the thermal neutron.
        assert!((wavelength(1.0 / 2200.0, 1.0) - 1.798).abs() < 5e-4);
        assert!((time_of_flight(wavelength(0.012, 8.98), 8.98) - 0.012).abs() < 1e-15);
        assert!((momentum_transfer(PI / 6.0, 4.0 * PI) - 0.5).abs() < 1e-12);
    }
}
