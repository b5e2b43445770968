//! Simulated instruments: sources like any other, for trying things out, for tests and for measurements.
//!
//! Constraints: no clock, no file, no thread. The messages of a source are a function of its configuration (with the
//! seed) and the number of the pulse, counted from 1970 at 14 Hz (of a camera: the number of the frame, at its own
//! rate); so two sources agree without talking, and a restart goes on where the grid is.
//!
//! [`models`] lists what there is with every key, [`Config`] holds one configuration, [`build`] makes a source of it and [`truth`] says
//! what was put into its data.

pub mod alias;
pub mod amor;
pub mod camera;
mod detector;
pub mod ess;
mod events;
mod field;
pub mod histogram;
mod keys;
mod kinds;
pub mod limits;
mod plan;
pub mod pulse;
pub mod random;
pub mod reflectivity;
#[cfg(test)]
mod statistics;
mod train;
mod written;

pub use field::ORIGIN as FIELD_ORIGIN;
pub use keys::{Key, Kind};
pub use kinds::SOURCE;
pub use plan::{Building, ClockFault, Config, Plan};

use flow::{Fault, Source};
use keys::{
    ALARM, ANGLES, BACKGROUND, CAMERA, COINCIDENCES, COMMON, COUNTED, EVENTS, FIELD, FRAMES, FRAMES_METADATA, METADATA,
    SAMPLE, key,
};
use serde_json::{Value, json};
use train::Train;

/// One model: a simulated instrument, or a part of one that fills a stream of its own.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// Its name in the instrument file.
    pub name: &'static str,
    /// Its description, a sentence.
    pub about: &'static str,
    /// Default of `rate`.
    rate: f64,
    groups: &'static [&'static [Key]],
}

impl Model {
    /// Its keys, with defaults and units; `model` itself is not among them.
    pub fn keys(&self) -> impl Iterator<Item = &'static Key> + use<> {
        self.groups.iter().flat_map(|g| g.iter())
    }

    /// Schemas of its messages, whatever its keys say: it makes no others.
    pub fn schemas(&self) -> &'static [&'static str] {
        match self.name {
            "amor-monitor" => &["da00"],
            "amor-devices" => &["f144", "al00"],
            "field" => &["se00"],
            "camera" => &["ad00"],
            "camera-metadata" => &["f144"],
            "amor" | "histogram" | "detector" => &["ev44"],
            _ => &["ev44", "f144"],
        }
    }

    /// Names of the variables of its labelled arrays; none where it makes no such.
    pub fn variables(&self) -> &'static [&'static str] {
        if self.name == "amor-monitor" { &amor::MONITOR_VARIABLES } else { &[] }
    }

    /// Its origins with their units, where each has one.
    pub fn devices(&self) -> impl Iterator<Item = (&'static str, &'static str)> + use<> {
        let all = if self.name == "amor-devices" { amor::DEVICES } else { &[] };
        all.iter().map(|(name, _, unit)| (*name, *unit))
    }
}

const ABOUT_RATE: &str = "mean events per second, before `scale`";

macro_rules! ess {
    ($name:literal, $rate:literal, $text:literal, $about:literal) => {
        Model {
            name: $name,
            about: $about,
            rate: $rate,
            groups: &[&[key("rate", Kind::Number, $text, "events/s", ABOUT_RATE)], COUNTED, EVENTS, METADATA, COMMON],
        }
    };
}

/// The models, in the order in which a person would read them.
pub fn models() -> &'static [Model] {
    const MODELS: &[Model] = &[
        Model {
            name: "amor",
            about: "reflectometer like AMOR: neutron events of a layered sample, ev44",
            rate: 1e6,
            groups: &[
                &[key("rate", Kind::Number, "1000000", "events/s", ABOUT_RATE)],
                COUNTED,
                EVENTS,
                SAMPLE,
                ANGLES,
                BACKGROUND,
                COMMON,
            ],
        },
        Model {
            name: "amor-monitor",
            about: "monitor of `amor`, before the sample: a time-of-flight histogram each second, da00",
            rate: 1e5,
            groups: &[
                &[key(
                    "rate",
                    Kind::Number,
                    "100000",
                    "counts/s",
                    "counts per second at the first angle, before `scale`",
                )],
                COUNTED,
                SAMPLE,
                ANGLES,
                COMMON,
            ],
        },
        Model {
            name: "amor-devices",
            about: "devices of `amor`: temperature, angles, slits, magnet and chopper as f144, one alarm as al00",
            rate: 0.0,
            groups: &[ANGLES, ALARM, COMMON],
        },
        Model {
            name: "histogram",
            about: "neutron events drawn from a measured histogram, ev44",
            rate: 1e6,
            groups: &[&[key("rate", Kind::Number, "1000000", "events/s", ABOUT_RATE)], COUNTED, EVENTS, COMMON],
        },
        ess!("cspec", 10e6, "10000000", "ESS cold chopper spectrometer as load, 80 MB/s"),
        ess!("estia", 500e6, "500000000", "ESS focusing reflectometer as load, 4 GB/s"),
        ess!("freia", 100e6, "100000000", "ESS liquids reflectometer as load, 800 MB/s"),
        ess!("loki", 37e6, "37000000", "ESS broad-band small-angle instrument as load, 300 MB/s"),
        ess!("nmx", 5e6, "5000000", "ESS macromolecular diffractometer as load, 40 MB/s"),
        ess!("skadi", 37e6, "37000000", "ESS small-angle instrument as load, 300 MB/s"),
        ess!("trex", 10e6, "10000000", "ESS bispectral chopper spectrometer as load, 80 MB/s"),
        Model {
            name: "detector",
            about: "one of many detectors: single hits, and coincidences with the other detectors, ev44",
            rate: 100.0,
            groups: &[
                &[key("rate", Kind::Number, "100", "hits/s", "mean single hits per second, before `scale`")],
                COUNTED,
                COINCIDENCES,
                COMMON,
            ],
        },
        Model {
            name: "field",
            about: "fast sample environment: samples of an alternating magnetic field, se00",
            rate: 10_000.0,
            groups: &[FIELD, COMMON],
        },
        Model {
            name: "camera",
            about: "camera: generated frames, or frames from files, at a constant rate, ad00",
            rate: 0.0,
            groups: &[FRAMES, CAMERA, COMMON],
        },
        Model {
            name: "camera-metadata",
            about: "values that belong to the frames of a camera of the same `fps`, f144",
            rate: 0.0,
            groups: &[FRAMES, FRAMES_METADATA, COMMON],
        },
    ];
    MODELS
}

/// The model of a name; otherwise an error that names the nearest.
pub fn model(name: &str) -> Result<&'static Model, Fault> {
    if let Some(model) = models().iter().find(|m| m.name == name) {
        return Ok(model);
    }
    let names = || models().iter().map(|m| m.name);
    let fault = Fault::new(format!("unknown model `{name}`"), "");
    Err(match settings::nearest(name, names()) {
        Some(near) => fault.hint(format!("did you mean `{near}`?")),
        None => fault.hint(format!("`model` takes one of {}", names().collect::<Vec<_>>().join(", "))),
    })
}

/// Names of the origins whose messages a source makes.
#[must_use]
pub fn origins(config: &Config) -> Vec<String> {
    let one = |own: String| vec![config.origin.clone().unwrap_or(own)];
    match config.model.as_str() {
        // One for both, so that a file template serves both.
        "amor" | "histogram" => one(amor::DETECTOR.into()),
        "amor-monitor" => one(amor::MONITOR.into()),
        "amor-devices" => amor::DEVICES.iter().map(|(name, ..)| (*name).to_owned()).collect(),
        "detector" => one(detector::name_of(config.detector)),
        "field" => one(field::ORIGIN.into()),
        "camera" => one(camera::ORIGIN.into()),
        "camera-metadata" => {
            let base = config.origin.as_deref().unwrap_or(camera::ORIGIN);
            (1..=config.values).map(|number| format!("{base}:PV{number:03}")).collect()
        }
        name => {
            let count = if config.metadata > 0.0 { ess::METADATA_ORIGINS } else { 0 };
            let upper = name.to_uppercase();
            let metadata = (1..=count).map(|number| format!("{upper}:META:PV{number:03}"));
            one(format!("{name}_detector")).into_iter().chain(metadata).collect()
        }
    }
}

/// Bytes of the largest message that a model makes, where its configuration alone says so: that of a camera.
pub fn message_bytes(config: &Config) -> Option<u64> {
    camera::message_bytes(config)
}

/// Makes the source that a configuration describes. Tables are computed here: some 20 ms for each sample angle, a pool of up to 16 MiB,
/// or all frames of a camera.
pub fn build(config: &Config) -> Result<Box<dyn Source>, Fault> {
    check(config)?;
    let model = model(&config.model)?;
    if let Some(profile) = ess::profile(model.name) {
        return Ok(Box::new(Train::new(ess::Load::new(profile, config)?, config)));
    }
    Ok(match model.name {
        "amor" => {
            let counter = events::Counter::new(amor::Detector::new(config)?, config);
            Box::new(Train::new(counter, config))
        }
        "amor-monitor" => Box::new(Train::new(amor::Monitor::new(config)?, config)),
        "amor-devices" => Box::new(Train::new(amor::Devices::new(config)?, config)),
        "histogram" => {
            let drawing = histogram::Measured::new(&measured(config)?)?;
            Box::new(Train::new(events::Counter::new(drawing, config), config))
        }
        "detector" => Box::new(Train::new(detector::Detector::new(config), config)),
        "camera" => Box::new(Train::new(camera::Camera::new(config)?, config)),
        "camera-metadata" => Box::new(Train::new(camera::Metadata::new(config)?, config)),
        _ => Box::new(Train::new(field::Field::new(config)?, config)),
    })
}

/// Bytes that a stream of this source takes on the disk each second, on average: messages and index. None where
/// files or a histogram say that, and are not loaded yet. It runs the source for some 30 ms.
pub fn bytes_per_second(config: &Config) -> Option<f64> {
    written::bytes_per_second(config)
}

fn check(config: &Config) -> Result<(), Fault> {
    config.check()?;
    if config.model.starts_with("camera") { camera::check(config) } else { Ok(()) }
}

fn measured(config: &Config) -> Result<histogram::Histogram, Fault> {
    let bytes = config.histogram.as_deref();
    let bytes = bytes.ok_or_else(|| Fault::new("model `histogram` has no histogram", "its program loaded none"));
    histogram::Histogram::read(bytes?)
}

/// What was put into the data of a source, for the metadata of the file: everything that an analysis could find again.
pub fn truth(config: &Config) -> Result<Value, Fault> {
    check(config)?;
    let model = model(&config.model)?;
    Ok(match model.name {
        "amor" | "amor-monitor" => amor::truth(config)?,
        "amor-devices" => amor::devices_truth(config),
        "histogram" => {
            let histogram = measured(config)?;
            let total: u64 = histogram.counts.iter().map(|c| u64::from(*c)).sum();
            json!({"model": model.name, "seed": config.seed, "events_per_second": config.events_per_second(),
                   "shape": histogram.shape, "counts": total, "pixels": {"number": "1 + slow * length of fast + fast"}})
        }
        "camera" | "camera-metadata" => camera::truth(config),
        "detector" => {
            json!({"model": model.name, "seed": config.seed, "detector": config.detector, "detectors": config.detectors,
                   "singles_per_second": config.events_per_second(), "multiplicity": config.multiplicity,
                   "coincidences_per_second": config.coincidences, "jitter_ns": config.jitter_ns})
        }
        "field" => {
            json!({"model": model.name, "seed": config.seed, "samples_per_second": config.rate,
                          "frequency_hertz": config.frequency, "amplitude_tesla": config.amplitude})
        }
        _ => {
            json!({"model": model.name, "seed": config.seed, "events_per_second": config.events_per_second(),
                    "metadata": config.metadata, "pixels": ess::profile(model.name).map(|p| p.pixels)})
        }
    })
}
