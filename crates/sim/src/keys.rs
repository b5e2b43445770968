//! The keys of the models: names, kinds, defaults, units, and a line of text each. The reference page and the checks are made of them.

use crate::reflectivity::SAMPLES;

/// The type of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number.
    Number,
    /// A whole number.
    Whole,
    /// Text, one of these.
    Choice(&'static [&'static str]),
    /// Text.
    Text,
    /// A time: text with a unit (`"2 s"`) or a whole number of ns.
    Time,
    /// A list of numbers.
    Numbers,
}

/// A picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// The profile of a beam that goes round in a circle.
    Beam,
    /// Diffraction spots that light up and fade.
    Spots,
    /// Poisson counts without a picture.
    Noise,
    /// A ramp along the rows that moves on, without noise.
    Gradient,
    /// Every pixel the same.
    Constant,
    /// Position monitors (rows) of a beam, turn by turn (columns).
    Turns,
}

impl Pattern {
    /// All of them, in the order of their names below.
    const ALL: [Self; 6] = [Self::Beam, Self::Spots, Self::Noise, Self::Gradient, Self::Constant, Self::Turns];
    /// Their names.
    pub(crate) const NAMES: &'static [&'static str] = &["beam", "spots", "noise", "gradient", "constant", "turns"];

    /// Its name in the instrument file.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|pattern| pattern.name() == name)
    }

    pub(crate) fn draws_lots(self) -> bool {
        matches!(self, Self::Beam | Self::Spots | Self::Noise)
    }
}

/// One key of a model.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name in the instrument file.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Its default as text; empty where there is none.
    pub default: &'static str,
    /// Unit of its values; empty for none.
    pub unit: &'static str,
    /// Its effect.
    pub about: &'static str,
}

pub(crate) const fn key(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    unit: &'static str,
    about: &'static str,
) -> Key {
    Key { name, kind, default, unit, about }
}

/// Keys of every model.
pub(crate) const COMMON: &[Key] = &[
    key("seed", Kind::Whole, "1", "", "seed of everything random; equal seeds give equal data"),
    key("duration", Kind::Time, "", "", "the source ends after this time; default: never"),
    key(
        "clock_fault",
        Kind::Choice(&["none", "backward", "repeat", "future"]),
        "none",
        "",
        "fault of the source's clock",
    ),
    key("clock_fault_every", Kind::Whole, "50", "messages", "one message in this many has the clock fault"),
];

/// Keys of every model that counts.
pub(crate) const COUNTED: &[Key] = &[
    key("origin", Kind::Text, "", "", "name of the origin; default: that of the model"),
    key("scale", Kind::Number, "1", "", "factor on the rate"),
];

/// Keys of every model with events.
pub(crate) const EVENTS: &[Key] = &[
    key(
        "message",
        Kind::Choice(&["pulse", "size"]),
        "pulse",
        "",
        "a message per pulse, or additional ones after `events_max` events",
    ),
    key(
        "events_max",
        Kind::Whole,
        "",
        "events",
        "most events of a message; default: 1,048,576 by pulse, 12,400 by size",
    ),
];

/// The sample of the reflectometer.
pub(crate) const SAMPLE: &[Key] = &[key("sample", Kind::Choice(SAMPLES), "nickel", "", "the layered sample")];

/// The program of angles of the reflectometer.
pub(crate) const ANGLES: &[Key] = &[
    key("angles", Kind::Numbers, "[0.6, 1.1, 1.9]", "deg", "sample angles, used in turn"),
    key("angle_step", Kind::Time, "3 s", "", "time at each angle"),
];

/// Background of the reflectometer.
pub(crate) const BACKGROUND: &[Key] =
    &[key("background", Kind::Number, "0.01", "", "fraction of events that are flat background, 0 to 1")];

/// Metadata of the ESS profiles.
pub(crate) const METADATA: &[Key] =
    &[key("metadata", Kind::Number, "0", "", "bytes of f144 metadata per byte of events, 0 to 1")];

/// The alarm of the reflectometer's devices.
pub(crate) const ALARM: &[Key] =
    &[key("alarm_after", Kind::Time, "4 s", "", "from the start of the source to the temperature alarm")];

/// The detectors.
pub(crate) const COINCIDENCES: &[Key] = &[
    key("detector", Kind::Whole, "1", "", "number of this detector, from 1 on"),
    key(
        "detectors",
        Kind::Whole,
        "120",
        "",
        "number of detectors; set this and the next three keys equally in all of them",
    ),
    key("coincidences", Kind::Number, "100", "/s", "mean coincidences per second, of all detectors"),
    key("multiplicity", Kind::Whole, "4", "detectors", "detectors per coincidence"),
    key("jitter", Kind::Time, "50 ns", "", "largest random delay"),
];

/// The alternating field.
pub(crate) const FIELD: &[Key] = &[
    key("origin", Kind::Text, "", "", "name of the origin; default: that of the model"),
    key("rate", Kind::Whole, "10000", "samples/s", "samples per second"),
    key("frequency", Kind::Number, "50", "Hz", "frequency of the field"),
    key("amplitude", Kind::Number, "0.01", "T", "amplitude of the field"),
];

/// Names of the types that pixels can have.
const DTYPES: &[&str] =
    &["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"];

/// A camera and its metadata: they agree when they have one rate.
pub(crate) const FRAMES: &[Key] = &[
    key("origin", Kind::Text, "", "", "name of the origin; default: that of the model"),
    key("fps", Kind::Number, "10", "frames/s", "frames per second, in steps of 0.001: 0.001 to 1000000"),
];

/// The camera.
pub(crate) const CAMERA: &[Key] = &[
    key(
        "shape",
        Kind::Numbers,
        "",
        "pixels",
        "shape of a frame, slowest dimension first; default: [512, 512], or that of `files`",
    ),
    key("dtype", Kind::Choice(DTYPES), "", "", "type of the pixels; default: uint8, or that of `files`"),
    key("pattern", Kind::Choice(Pattern::NAMES), "beam", "", "content of the frames"),
    key("counts", Kind::Number, "100", "", "counts of the brightest pixels; the mean if they are random"),
    key(
        "frames",
        Kind::Whole,
        "",
        "frames",
        "distinct frames, made at the start and sent in turn; default: 16, fewer if they exceed 128 Mi pixels",
    ),
    key(
        "numbers",
        Kind::Choice(NUMBERS),
        NUMBERS[0],
        "",
        "frame numbers: counted by each source, or by the pulse, which sources with the same `fps` share",
    ),
];

/// How frames are numbered.
pub(crate) const NUMBERS: &[&str] = &["own", "pulse"];

/// The metadata of a camera.
pub(crate) const FRAMES_METADATA: &[Key] = &[
    key("values", Kind::Whole, "1", "", "number of process variables, each with one value per frame"),
    key("offset", Kind::Time, "0 s", "", "time of the values minus time of the frame"),
    key("jitter", Kind::Time, "0 s", "", "largest random delay"),
];
