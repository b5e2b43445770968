//! Tests of the reflectometer's physics, from the events back to the sample.

use super::optics::{
    CHOPPER_DETECTOR, DIVERGENCE, SIGMA_ANGLE, SIGMA_WAVELENGTH, WAVELENGTHS, X_PIXELS, Y_PIXELS, columns, divergence,
    row_offset, spectrum, table, time_edges, wavelength_edges,
};
use super::{Detector, truth};
use crate::events::Drawing;
use crate::plan::Config;
use crate::random::Generator;
use crate::reflectivity::{Sample, by_matrices, momentum_transfer, wavelength};
use crate::statistics::{agrees, chi_squared};
use crate::train::Pulse;

const MU: f64 = 1.1;

/// Events of the nickel film at one angle.
fn events(count: usize, background: f64, seed: u64) -> (Vec<i32>, Vec<i32>) {
    let mut config = Config::new("amor").unwrap();
    (config.angles, config.background) = (vec![MU], background);
    let mut detector = Detector::new(&config).unwrap();
    detector.aim(Pulse { number: 0, time: 0, since: 0 });
    let (mut times, mut pixels) = (Vec::new(), Vec::new());
    detector.draw(&mut Generator::new(seed), count, &mut times, &mut pixels);
    (times, pixels)
}

#[test]
fn marginals_of_the_events_are_those_of_the_table() {
    let (times, pixels) = events(2_000_000, 0.1, 31);
    let sample = Sample::named("nickel").unwrap();
    let counted = table(MU, |q| sample.reflectivity(q)).counted;
    let norm: f64 = counted.iter().sum();
    let edges = time_edges(CHOPPER_DETECTOR);
    let range = edges[WAVELENGTHS] - edges[0];
    let column_weights = columns();
    let column_norm: f64 = column_weights.iter().sum();
    let rows: Vec<f64> =
        counted.chunks_exact(WAVELENGTHS).map(|r| 0.9 * r.iter().sum::<f64>() / norm + 0.1 / Y_PIXELS as f64).collect();
    let bins: Vec<f64> = (0..WAVELENGTHS)
        .map(|k| {
            let reflected: f64 = counted.iter().skip(k).step_by(WAVELENGTHS).sum();
            0.9 * reflected / norm + 0.1 * (edges[k + 1] - edges[k]) / range
        })
        .collect();
    let across: Vec<f64> = column_weights.iter().map(|w| 0.9 * w / column_norm + 0.1 / X_PIXELS as f64).collect();
    let (mut by_row, mut by_bin, mut by_column) =
        (vec![0_u64; Y_PIXELS], vec![0_u64; WAVELENGTHS], vec![0_u64; X_PIXELS]);
    for (time, pixel) in times.iter().zip(&pixels) {
        by_row[(*pixel as usize - 1) % Y_PIXELS] += 1;
        by_column[(*pixel as usize - 1) / Y_PIXELS] += 1;
        let bin = edges.partition_point(|e| *e <= f64::from(*time) + 0.5) - 1;
        by_bin[bin] += 1;
    }
    assert!(agrees(chi_squared(&by_row, &rows)), "rows {:?}", chi_squared(&by_row, &rows));
    assert!(agrees(chi_squared(&by_bin, &bins)), "times {:?}", chi_squared(&by_bin, &bins));
    assert!(agrees(chi_squared(&by_column, &across)), "columns {:?}", chi_squared(&by_column, &across));
}

/// What a user does with the file: events into bins of q, divided by what the beam alone would give there. The expectation is made
/// another way than the data: reflectivity by matrices, folded in q with the resolution of each pixel and wavelength.
#[test]
fn reflectivity_comes_back_from_the_events() {
    const BINS: usize = 70;
    let (q_low, q_high) = (0.010_f64, 0.060_f64);
    let bin_of = |q: f64| {
        let place = (q / q_low).ln() / (q_high / q_low).ln() * BINS as f64;
        (0.0..BINS as f64).contains(&place).then_some(place as usize)
    };
    // Rows whose divergence is far from the edges of the beam.
    let rows: Vec<usize> = (0..Y_PIXELS).filter(|y| row_offset(*y).to_degrees().abs() < DIVERGENCE.0 - 0.12).collect();
    let grazing = |y: usize| MU.to_radians() + row_offset(y);

    let count = 4_000_000;
    let (times, pixels) = events(count, 0.0, 32);
    let mut measured = [0_u64; BINS];
    for (time, pixel) in times.iter().zip(&pixels) {
        let y = (*pixel as usize - 1) % Y_PIXELS;
        let q = momentum_transfer(grazing(y), wavelength(f64::from(*time) * 1e-9, CHOPPER_DETECTOR));
        if let (Some(bin), true) = (bin_of(q), rows.contains(&y)) {
            measured[bin] += 1;
        }
    }

    let sample = Sample::named("nickel").unwrap();
    let grid = 1e-5;
    let exact: Vec<f64> = (0..12_000).map(|i| by_matrices(&sample, f64::from(i).max(0.5) * grid)).collect();
    let at = |q: f64| {
        let place = (q / grid).clamp(0.0, 11_998.0);
        exact[place as usize] + place.fract() * (exact[place as usize + 1] - exact[place as usize])
    };
    let folded = |q: f64, sigma: f64| {
        let (mut sum, mut norm) = (0.0, 0.0);
        for i in -20..=20 {
            let x = f64::from(i) / 5.0;
            let weight = (-0.5 * x * x).exp();
            (sum, norm) = (sum + weight * at(q + x * sigma), norm + weight);
        }
        sum / norm
    };
    let edges = wavelength_edges();
    let (mut beam, mut smooth, mut sharp, mut all) = ([0.0; BINS], [0.0; BINS], [0.0; BINS], 0.0);
    for y in 0..Y_PIXELS {
        for edge in edges.windows(2) {
            let middle = (edge[0] * edge[1]).sqrt();
            let flux = divergence(row_offset(y)) * spectrum(middle) * (edge[1] - edge[0]);
            all += flux;
            let q = momentum_transfer(grazing(y), middle);
            let (Some(bin), true) = (bin_of(q), rows.contains(&y)) else {
                continue;
            };
            let sigma = q * (SIGMA_WAVELENGTH.powi(2) + (SIGMA_ANGLE.to_radians() / grazing(y).tan()).powi(2)).sqrt();
            beam[bin] += flux;
            smooth[bin] += flux * folded(q, sigma);
            sharp[bin] += flux * at(q);
        }
    }
    // Neutrons of the beam for one of the table's norm: all events over the part that is reflected, as the truth says it.
    let mut config = Config::new("amor").unwrap();
    config.angles = vec![MU];
    let part = truth(&config).unwrap()["angles"][0]["reflected_part"].as_f64().unwrap();
    let neutrons = count as f64 / part / all;
    let (mut used, mut without_resolution, mut plateau) = (0, 0, 0);
    for bin in 0..BINS {
        if measured[bin] < 400 {
            continue;
        }
        used += 1;
        let r = measured[bin] as f64 / (beam[bin] * neutrons);
        let noise = 5.0 * r / (measured[bin] as f64).sqrt();
        let (expected, ideal) = (smooth[bin] / beam[bin], sharp[bin] / beam[bin]);
        // 3 %: folding in q is the first order of what folding in wavelength and angle does.
        assert!((r - expected).abs() < noise + 0.03 * expected, "bin {bin}: {r} expected {expected}");
        without_resolution += u32::from((r - ideal).abs() > noise + 0.03 * ideal);
        let q = q_low * (q_high / q_low).powf((bin as f64 + 0.5) / BINS as f64);
        if q < 0.019 {
            plateau += 1;
            assert!((r - 1.0).abs() < noise + 0.01, "total reflection at {q}: {r}");
        }
    }
    assert!(used > BINS / 2 && plateau >= 5, "{used} bins, {plateau} of total reflection");
    assert!(without_resolution >= 8, "the test must see the resolution: {without_resolution}");
}

#[test]
fn angles_share_one_absolute_scale() {
    let mut config = Config::new("amor").unwrap();
    config.background = 0.2;
    let truth = truth(&config).unwrap();
    let angles = truth["angles"].as_array().unwrap();
    assert_eq!(angles.len(), 3);
    let mut before = 2.0;
    for angle in angles {
        let part = angle["reflected_part"].as_f64().unwrap();
        assert!(part > 0.0 && part < before, "a steeper angle reflects less");
        before = part;
        assert!((angle["beam_per_second"].as_f64().unwrap() * part / 8e5 - 1.0).abs() < 1e-12);
    }
    let (q, r) = (&truth["reflectivity"]["q_per_angstrom"], &truth["reflectivity"]["r"]);
    assert_eq!(q.as_array().unwrap().len(), r.as_array().unwrap().len());
    // The truth is not the fold: below the edge of the substrate everything is reflected.
    let below = q.as_array().unwrap().iter().filter(|q| q.as_f64().unwrap() < 0.013).count();
    assert!(r.as_array().unwrap()[..below].iter().all(|r| (r.as_f64().unwrap() - 1.0).abs() < 1e-9));
}
