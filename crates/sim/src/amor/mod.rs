//! A reflectometer like AMOR at SINQ, behind a source of 14 pulses a second.
//!
//! Three models, one stream each: the detector (`ev44`), the monitor before the sample (`da00`), and the devices around them (`f144`,
//! `al00`). They share the grid of pulses and the program of sample angles and need no word between them. Distances and pixel sizes are
//! those of a measurement at the real instrument; the truth behind the data is given by [`truth`].

mod detector;
mod devices;
mod monitor;
pub mod optics;
#[cfg(test)]
mod physics;

pub(crate) use detector::Detector;
pub(crate) use devices::Devices;
pub(crate) use monitor::{Monitor, VARIABLES as MONITOR_VARIABLES};

use crate::plan::Config;
use flow::Fault;
use optics::{Angles, sample, table};
use serde_json::{Value, json};

/// Origin of the detector's events.
pub const DETECTOR: &str = "amor_detector";
/// Origin of the monitor's histograms.
pub const MONITOR: &str = "amor_monitor";
/// Origins of the devices, in the order of their rows: what they are, and their unit.
pub const DEVICES: &[(&str, &str, &str)] = &[
    ("AMOR:SE:TEMP01", "sample temperature", "K"),
    ("AMOR:MOT:MU", "sample angle", "deg"),
    ("AMOR:MOT:NU", "detector angle, twice the sample angle", "deg"),
    ("AMOR:SLIT1:GAP", "gap of the first slit before the sample", "mm"),
    ("AMOR:SLIT2:GAP", "gap of the second slit before the sample", "mm"),
    ("AMOR:SLIT3:GAP", "gap of the third slit before the sample", "mm"),
    ("AMOR:SLIT4:GAP", "gap of the slit after the sample", "mm"),
    ("AMOR:SE:MAG01:CURRENT", "current of the sample magnet", "A"),
    ("AMOR:CHOP1:PHASE", "phase between the choppers", "deg"),
];

/// Points of the reflectivity in the truth, and the largest q in 1/Å.
const TRUTH_POINTS: usize = 600;
const TRUTH_Q_MAX: f64 = 0.15;

/// Everything that was put into the data of the detector and the monitor: sample, reflectivity on a grid of q, resolution, background,
/// spectrum, geometry, angles with the intensity of the beam at each, seed and rate.
pub fn truth(config: &Config) -> Result<Value, Fault> {
    config.check()?;
    let sample = sample(config)?;
    let q: Vec<f64> = (1..=TRUTH_POINTS).map(|i| TRUTH_Q_MAX * i as f64 / TRUTH_POINTS as f64).collect();
    let r: Vec<f64> = q.iter().map(|q| sample.reflectivity(*q)).collect();
    let layers: Vec<Value> = sample
        .layers
        .iter()
        .enumerate()
        .map(|(i, l)| {
            // A substrate has no end.
            let thickness = (i + 1 < sample.layers.len()).then_some(l.thickness);
            json!({"material": l.name, "sld_per_angstrom2": l.sld, "absorption_per_angstrom2": l.absorption, "thickness_angstrom": thickness, "roughness_above_angstrom": l.roughness})
        })
        .collect();
    let (rate, monitor) = (config.events_per_second(), config.model == "amor-monitor");
    let angles = Angles::new(config).degrees;
    let reflected: Vec<f64> = angles.iter().map(|a| table(*a, |q| sample.reflectivity(q)).reflected).collect();
    let angles: Vec<Value> = angles
        .iter()
        .zip(&reflected)
        .map(|(a, part)| match monitor {
            true => json!({"mu_degrees": a, "reflected_part": part, "counts_per_second": rate * reflected[0] / part}),
            false => json!({"mu_degrees": a, "reflected_part": part, "beam_per_second": rate * (1.0 - config.background) / part}),
        })
        .collect();
    Ok(json!({
        "model": config.model,
        "seed": config.seed,
        "events_per_second": (!monitor).then_some(rate),
        "background_part": (!monitor).then_some(config.background),
        "sample": {"name": sample.name, "layers": layers},
        "reflectivity": {"q_per_angstrom": q, "r": r, "made_by": "Parratt 1954, Nevot and Croce 1980, without resolution and background"},
        "resolution": {"sigma_wavelength_over_wavelength": optics::SIGMA_WAVELENGTH, "sigma_angle_degrees": optics::SIGMA_ANGLE},
        "angles": angles,
        "angle_step_ns": config.angle_step_ns,
        "angle_at": "angles[floor(pulse time / angle_step_ns) mod number of angles]",
        "spectrum": {"moderator_kelvin": optics::MODERATOR_K, "band_angstrom": [optics::BAND.0, optics::BAND.1], "band_edge_angstrom": optics::BAND_EDGE},
        "divergence_degrees": {"half_width": optics::DIVERGENCE.0, "edge": optics::DIVERGENCE.1},
        "geometry": {"chopper_detector_m": optics::CHOPPER_DETECTOR, "sample_detector_m": optics::SAMPLE_DETECTOR, "chopper_monitor_m": optics::CHOPPER_MONITOR, "x_pitch_m": optics::X_PITCH, "y_pitch_m": optics::Y_PITCH},
        "pixels": {"x": optics::X_PIXELS, "y": optics::Y_PIXELS, "number": "1 + x * 256 + y"},
    }))
}

/// What the devices do: names with units, the angles, the alarm.
pub(crate) fn devices_truth(config: &Config) -> Value {
    let devices: Vec<Value> =
        DEVICES.iter().map(|(name, about, unit)| json!({"name": name, "about": about, "unit": unit})).collect();
    json!({
        "model": config.model,
        "seed": config.seed,
        "devices": devices,
        "angles_degrees": config.angles,
        "angle_step_ns": config.angle_step_ns,
        "alarm": {"name": DEVICES[0].0, "limit_kelvin": devices::LIMIT_K, "after_start_ns": config.alarm_after_ns},
    })
}
