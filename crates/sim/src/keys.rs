//! The keys of the models: names, kinds, defaults, units, and a line of text each. The reference page and the checks are made of them.

use crate::camera::Pattern;
use crate::reflectivity::SAMPLES;

/// What a key holds.
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

/// One key of a model.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name in the instrument file.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// Its default as text; empty where there is none.
    pub default: &'static str,
    /// Unit of its values; empty for none.
    pub unit: &'static str,
    /// What it does.
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
    key("duration", Kind::Time, "", "", "the source ends after this time; without it, it goes on"),
    key(
        "clock_fault",
        Kind::Choice(&["none", "backward", "repeat", "future"]),
        "none",
        "",
        "what is wrong with the source's clock",
    ),
    key("clock_fault_every", Kind::Whole, "50", "messages", "one message in this many has the clock fault"),
];

/// Keys of every model that counts.
pub(crate) const COUNTED: &[Key] = &[
    key("origin", Kind::Text, "", "", "name of the origin; default as the model says"),
    key("scale", Kind::Number, "1", "", "factor on the rate"),
];

/// Keys of every model with events.
pub(crate) const EVENTS: &[Key] = &[
    key(
        "message",
        Kind::Choice(&["pulse", "size"]),
        "pulse",
        "",
        "a message for each pulse, or a new one after `events_max` events too",
    ),
    key(
        "events_max",
        Kind::Whole,
        "",
        "events",
        "events of one message at most; default 1048576 by pulse, 12400 by size",
    ),
];

/// The sample of the reflectometer.
pub(crate) const SAMPLE: &[Key] = &[key("sample", Kind::Choice(SAMPLES), "nickel", "", "the layered sample")];

/// The program of angles of the reflectometer.
pub(crate) const ANGLES: &[Key] = &[
    key("angles", Kind::Numbers, "[0.6, 1.1, 1.9]", "deg", "sample angles, gone through in turn"),
    key("angle_step", Kind::Time, "3 s", "", "time at each angle"),
];

/// Background of the reflectometer.
pub(crate) const BACKGROUND: &[Key] =
    &[key("background", Kind::Number, "0.01", "", "part of the events that is flat background, 0 to 1")];

/// Metadata of the ESS profiles.
pub(crate) const METADATA: &[Key] =
    &[key("metadata", Kind::Number, "0", "", "bytes of f144 metadata for each byte of events, 0 to 1")];

/// The alarm of the reflectometer's devices.
pub(crate) const ALARM: &[Key] =
    &[key("alarm_after", Kind::Time, "4 s", "", "from the start of the source to the temperature alarm")];

/// The detectors.
pub(crate) const COINCIDENCES: &[Key] = &[
    key("detector", Kind::Whole, "1", "", "which detector it is, from 1 on"),
    key("detectors", Kind::Whole, "120", "", "how many there are; all have the same in this and the next three"),
    key("coincidences", Kind::Number, "100", "/s", "coincidences a second on average, of all detectors"),
    key("multiplicity", Kind::Whole, "4", "detectors", "how many take part in a coincidence"),
    key("jitter", Kind::Time, "50 ns", "", "up to so much later, by chance"),
];

/// The alternating field.
pub(crate) const FIELD: &[Key] = &[
    key("origin", Kind::Text, "", "", "name of the origin; default as the model says"),
    key("rate", Kind::Whole, "10000", "samples/s", "samples a second"),
    key("frequency", Kind::Number, "50", "Hz", "frequency of the field"),
    key("amplitude", Kind::Number, "0.01", "T", "amplitude of the field"),
];

/// Names of the types that pixels can have.
const DTYPES: &[&str] =
    &["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"];

/// A camera and its metadata: they agree when they have one rate.
pub(crate) const FRAMES: &[Key] = &[
    key("origin", Kind::Text, "", "", "name of the origin; default as the model says"),
    key("fps", Kind::Number, "10", "frames/s", "frames a second, in thousandths: 0.001 to 1000000"),
];

/// The camera.
pub(crate) const CAMERA: &[Key] = &[
    key("shape", Kind::Numbers, "", "pixels", "lengths of a frame, slowest first; default [512, 512], or of `files`"),
    key("dtype", Kind::Choice(DTYPES), "", "", "type of the pixels; default uint8, or of `files`"),
    key("pattern", Kind::Choice(Pattern::NAMES), "beam", "", "what the frames show"),
    key("counts", Kind::Number, "100", "", "counts of the brightest pixels, on average where they are by chance"),
    key(
        "frames",
        Kind::Whole,
        "",
        "frames",
        "distinct frames, made at the start and shown in turn; by default 16, and of large ones as many as have 128 Mi pixels",
    ),
    key(
        "numbers",
        Kind::Choice(NUMBERS),
        NUMBERS[0],
        "",
        "of frames: each source's own, or those of the pulse, which sources of one `fps` share",
    ),
];

/// How frames are numbered.
pub(crate) const NUMBERS: &[&str] = &["own", "pulse"];

/// The metadata of a camera.
pub(crate) const FRAMES_METADATA: &[Key] = &[
    key("values", Kind::Whole, "1", "", "process variables, each with one value a frame"),
    key("offset", Kind::Time, "0 s", "", "from the time of the frame to that of its values"),
    key("jitter", Kind::Time, "0 s", "", "up to so much later, by chance"),
];
