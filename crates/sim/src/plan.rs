//! The plan of a simulated source, key by key, as an instrument file has it.
//!
//! The program reads TOML; this module reads the keys of one section as JSON values (numbers, text, lists), so that types, ranges and
//! hints are said in one place. Nothing is accepted that the model would ignore.

use crate::keys::{Kind, NUMBERS, Pattern};
use crate::limits;
use flow::Fault;
use serde_json::Value;
use settings::nearest;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use wire::DType;

/// How events are dealt out to messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Building {
    /// One message for each pulse, up to the limit of one message.
    Pulse,
    /// A new message at each pulse and after `events_max` events, as the ESS event formation units do.
    Size,
}

/// The fault of the clock of the source, for tests of the stages behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockFault {
    /// Nothing.
    None,
    /// Half a second before the message before.
    Backward,
    /// The time of the message before.
    Repeat,
    /// 2^62 ns: the year 2116.
    Future,
}

/// The configuration of one simulated source. `Config::new` has the defaults of a model, `set` changes one key.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Name of the model, one of [`crate::models`].
    pub model: String,
    /// Name of the origin in the stream and in the messages; None is the model's own.
    pub origin: Option<String>,
    /// Events (counts, samples) a second before `scale`.
    pub rate: f64,
    /// Seed of everything random.
    pub seed: u64,
    /// Factor on the rate.
    pub scale: f64,
    /// How events are dealt out to messages.
    pub message: Building,
    /// Events of one message at most; None is the default of `message`.
    pub events_max: Option<u32>,
    /// Bytes of `f144` metadata for each byte of events, 0 to 1.
    pub metadata: f64,
    /// End of the source after this many ns; None goes on.
    pub duration_ns: Option<i64>,
    /// Name of the sample of the reflectometer.
    pub sample: String,
    /// Sample angles in degrees, gone through in turn.
    pub angles: Vec<f64>,
    /// Time at each angle, ns.
    pub angle_step_ns: i64,
    /// Part of the events that is flat background, 0 to 1.
    pub background: f64,
    /// Time from the start of the source to the alarm, ns.
    pub alarm_after_ns: i64,
    /// Frequency of the alternating field, Hz.
    pub frequency: f64,
    /// Amplitude of the alternating field, T.
    pub amplitude: f64,
    /// The fault of the clock.
    pub clock_fault: ClockFault,
    /// One message in this many has the fault.
    pub clock_fault_every: u32,
    /// Frames a second, in thousandths.
    pub fps: f64,
    /// Lengths of a frame, slowest first; None is the default, or what the files have.
    pub shape: Option<Vec<u64>>,
    /// Type of the pixels; None is the default, or what the files have.
    pub dtype: Option<DType>,
    /// The picture of the frames.
    pub pattern: Pattern,
    /// Counts of the brightest pixels.
    pub counts: f64,
    /// Distinct frames; None is the default.
    pub frames: Option<u64>,
    /// Frames have the number of their pulse since 1970, not one of the source's own.
    pub by_pulse: bool,
    /// Process variables of the metadata of a camera.
    pub values: u32,
    /// From the time of the frame to that of its metadata, ns.
    pub offset_ns: i64,
    /// Up to so much later, by chance, ns.
    pub jitter_ns: i64,
    /// Which of the detectors it is, from 1 on.
    pub detector: u32,
    /// How many there are.
    pub detectors: u32,
    /// Coincidences a second on average.
    pub coincidences: f64,
    /// Detectors that take part in one.
    pub multiplicity: u32,
    /// Files from which a camera takes its frames, in turn; opened by the program. None: they are made.
    pub files: Vec<Recording>,
    /// The measured histogram of the model `histogram`, in the form of [`crate::histogram::Histogram::write`]; loaded by the program.
    pub histogram: Option<Vec<u8>>,
}

impl Config {
    /// The defaults of a model; an unknown name is an error that names the nearest.
    pub fn new(model: &str) -> Result<Self, Fault> {
        let model = crate::model(model)?;
        Ok(Self {
            model: model.name.to_owned(),
            origin: None,
            rate: model.rate,
            seed: 1,
            scale: 1.0,
            message: Building::Pulse,
            events_max: None,
            metadata: 0.0,
            duration_ns: None,
            sample: "nickel".to_owned(),
            angles: vec![0.6, 1.1, 1.9],
            angle_step_ns: 3_000_000_000,
            background: 0.01,
            alarm_after_ns: 4_000_000_000,
            frequency: 50.0,
            amplitude: 0.01,
            clock_fault: ClockFault::None,
            clock_fault_every: 50,
            fps: 10.0,
            shape: None,
            dtype: None,
            pattern: Pattern::Beam,
            counts: 100.0,
            frames: None,
            by_pulse: false,
            values: 1,
            offset_ns: 0,
            jitter_ns: if model.name == "detector" { 50 } else { 0 },
            detector: 1,
            detectors: 120,
            coincidences: 100.0,
            multiplicity: 4,
            files: Vec::new(),
            histogram: None,
        })
    }

    /// Sets one key from a value of the instrument file. A key that the model has not, and a value of the wrong type or range, are errors.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<(), Fault> {
        let model = crate::model(&self.model)?;
        let Some(key) = model.keys().find(|k| k.name == name) else {
            let fault = Fault::new(format!("model `{}` has no key `{name}`", model.name), "");
            return Err(match nearest(name, model.keys().map(|k| k.name)) {
                Some(near) => fault.hint(format!("did you mean `{near}`?")),
                None => fault,
            });
        };
        let wrong = |cause: String| Fault::new(format!("`{name}` of model `{}` cannot be {value}", model.name), cause);
        let number = |low: f64, high: f64| match value.as_f64() {
            Some(x) if x >= low && x <= high => Ok(x),
            _ => Err(wrong(format!("it takes a number from {low} to {high}"))),
        };
        // TOML writes 1e6 as a float; without a fraction it is a whole number all the same.
        let exact = |x: f64| (x.fract() == 0.0 && (0.0..=9e15).contains(&x)).then_some(x as u64);
        let whole = |low: u64, high: u64| match value.as_u64().or_else(|| value.as_f64().and_then(exact)) {
            Some(n) if (low..=high).contains(&n) => Ok(n),
            _ => Err(wrong(format!("it takes a whole number from {low} to {high}"))),
        };
        let time = |low: i64| match time_ns(value) {
            Some(ns) if ns >= low => Ok(ns),
            _ => Err(wrong(format!("it takes a time such as \"2 s\", at least {low} ns"))),
        };
        let choice = || match key.kind {
            Kind::Choice(list) => {
                let text = value.as_str().unwrap_or_default();
                list.iter().find(|c| **c == text).copied().ok_or_else(|| {
                    let fault = wrong(format!("it takes one of {}", list.join(", ")));
                    match nearest(text, list.iter().copied()) {
                        Some(near) => fault.hint(format!("did you mean `{near}`?")),
                        None => fault,
                    }
                })
            }
            _ => Err(wrong("it takes text".to_owned())),
        };
        match name {
            "rate" if key.kind == Kind::Whole => self.rate = whole(1, u64::from(limits::FIELD_SAMPLES_MAX))? as f64,
            "rate" => self.rate = number(0.0, limits::RATE_MAX)?,
            "origin" => {
                let text = value.as_str().filter(|t| !t.is_empty() && t.len() <= limits::ORIGIN_BYTES_MAX);
                self.origin = Some(
                    text.ok_or_else(|| wrong(format!("it takes a name of 1 to {} bytes", limits::ORIGIN_BYTES_MAX)))?
                        .to_owned(),
                );
            }
            "seed" => self.seed = whole(0, u64::MAX)?,
            "scale" => self.scale = number(0.0, limits::SCALE_MAX)?,
            "message" => self.message = if choice()? == "size" { Building::Size } else { Building::Pulse },
            "events_max" => self.events_max = Some(whole(1, u64::from(limits::EVENTS_PER_MESSAGE_MAX))? as u32),
            "metadata" => self.metadata = number(0.0, 1.0)?,
            "duration" => self.duration_ns = Some(time(1)?),
            "sample" => self.sample = choice()?.to_owned(),
            "angles" => {
                let list: Option<Vec<f64>> = value.as_array().and_then(|a| a.iter().map(Value::as_f64).collect());
                match list {
                    Some(list)
                        if !list.is_empty()
                            && list.len() <= limits::ANGLES_MAX
                            && list.iter().all(|a| *a > 0.0 && *a <= 10.0) =>
                    {
                        self.angles = list;
                    }
                    _ => {
                        return Err(wrong(format!(
                            "it takes 1 to {} angles above 0 and up to 10 degrees",
                            limits::ANGLES_MAX
                        )));
                    }
                }
            }
            "angle_step" => self.angle_step_ns = time(1_000_000)?,
            "background" => self.background = number(0.0, 1.0)?,
            "alarm_after" => self.alarm_after_ns = time(0)?,
            "frequency" => self.frequency = number(0.0, 1e7)?,
            "amplitude" => self.amplitude = number(0.0, 100.0)?,
            "fps" => {
                let fps = number(limits::FPS_MIN, limits::FPS_MAX)?;
                millihertz(fps).ok_or_else(|| wrong("it has more than three digits behind the point".to_owned()))?;
                self.fps = fps;
            }
            "shape" => {
                let lengths: Option<Vec<u64>> =
                    value.as_array().and_then(|list| list.iter().map(|v| v.as_u64().filter(|n| *n > 0)).collect());
                self.shape =
                    Some(lengths.filter(|list| (1..=limits::FRAME_DIMENSIONS_MAX).contains(&list.len())).ok_or_else(
                        || wrong(format!("it takes 1 to {} lengths above 0", limits::FRAME_DIMENSIONS_MAX)),
                    )?);
            }
            "dtype" => {
                let name = choice()?;
                self.dtype = DType::ALL.into_iter().find(|dtype| dtype.name() == name);
            }
            "pattern" => self.pattern = Pattern::of(choice()?).unwrap_or(self.pattern),
            "counts" => self.counts = number(0.0, limits::COUNTS_MAX)?,
            "frames" => self.frames = Some(whole(1, limits::FRAMES_PIXELS_MAX)?),
            "numbers" => self.by_pulse = choice()? == NUMBERS[1],
            "values" => self.values = whole(1, u64::from(limits::FRAME_VALUES_MAX))? as u32,
            "offset" => self.offset_ns = time(0)?,
            "jitter" => self.jitter_ns = time(0)?,
            "detector" => self.detector = whole(1, u64::from(limits::DETECTORS_MAX))? as u32,
            "detectors" => self.detectors = whole(1, u64::from(limits::DETECTORS_MAX))? as u32,
            "coincidences" => self.coincidences = number(0.0, limits::COINCIDENCES_MAX)?,
            "multiplicity" => self.multiplicity = whole(1, u64::from(limits::MULTIPLICITY_MAX))? as u32,
            "clock_fault" => {
                self.clock_fault = match choice()? {
                    "backward" => ClockFault::Backward,
                    "repeat" => ClockFault::Repeat,
                    "future" => ClockFault::Future,
                    _ => ClockFault::None,
                }
            }
            "clock_fault_every" => self.clock_fault_every = whole(1, u64::from(u32::MAX))? as u32,
            _ => return Err(wrong("nothing reads this key".to_owned())),
        }
        Ok(())
    }

    /// Events a second after scaling.
    pub fn events_per_second(&self) -> f64 {
        self.rate * self.scale
    }

    /// Events of one message at most.
    pub fn events_per_message(&self) -> u32 {
        let default = match self.message {
            Building::Pulse => limits::EVENTS_PER_MESSAGE_MAX,
            Building::Size => limits::EVENTS_PER_MESSAGE_ESS,
        };
        self.events_max.unwrap_or(default).clamp(1, limits::EVENTS_PER_MESSAGE_MAX)
    }

    /// The checks of `build` for fields that were set directly and not by `set`.
    pub(crate) fn check(&self) -> Result<(), Fault> {
        let wrong = |name: &str| Err(Fault::new(format!("`{name}` of model `{}` is out of range", self.model), ""));
        let mean = self.events_per_second();
        if !(0.0..=limits::RATE_MAX).contains(&self.rate) || !(0.0..=limits::RATE_MAX).contains(&mean) {
            return wrong("rate");
        }
        if self.angles.is_empty()
            || self.angles.len() > limits::ANGLES_MAX
            || !self.angles.iter().all(|a| *a > 0.0 && *a <= 10.0)
        {
            return wrong("angles");
        }
        if self.angle_step_ns < 1 {
            return wrong("angle_step");
        }
        if !(0.0..=1.0).contains(&self.background) {
            return wrong("background");
        }
        if !(0.0..=1.0).contains(&self.metadata) {
            return wrong("metadata");
        }
        if !self.frequency.is_finite() || !self.amplitude.is_finite() {
            return wrong("frequency");
        }
        if !(0.0..=limits::COUNTS_MAX).contains(&self.counts) {
            return wrong("counts");
        }
        if !(1..=limits::FRAME_VALUES_MAX).contains(&self.values) || self.offset_ns < 0 || self.jitter_ns < 0 {
            return wrong("values");
        }
        if !(1..=limits::DETECTORS_MAX).contains(&self.detectors) || !(1..=self.detectors).contains(&self.detector) {
            return wrong("detector");
        }
        let is_rate = (0.0..=limits::COINCIDENCES_MAX).contains(&self.coincidences);
        if !is_rate || !(1..=limits::MULTIPLICITY_MAX).contains(&self.multiplicity) {
            return wrong("coincidences");
        }
        Ok(())
    }
}

/// A rate in thousandths of a hertz; none where it is out of range or has more digits.
pub(crate) fn millihertz(fps: f64) -> Option<i64> {
    let whole = (fps * 1000.0).round();
    let fits = (limits::FPS_MIN..=limits::FPS_MAX).contains(&fps) && (fps * 1000.0 - whole).abs() < 1e-6 * whole;
    fits.then_some(whole as i64)
}

/// The bytes of a file that somebody else has opened.
pub trait Bytes: Send + Sync {
    /// How many there are.
    fn len(&self) -> u64;
    /// True if there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// A range of them; an error where it is not inside, or the medium no longer gives it.
    fn bytes(&self, at: u64, len: u64) -> Result<&[u8], Fault>;
}

impl Bytes for store::Foreign {
    fn len(&self) -> u64 {
        store::Foreign::len(self)
    }

    fn bytes(&self, at: u64, len: u64) -> Result<&[u8], Fault> {
        let what = || format!("the frames in {} cannot be had", self.path().display());
        store::Foreign::bytes(self, at, len)
            .map_err(|e| Fault::new(what(), e).hint("check whether the file was truncated"))
    }
}

impl Bytes for Vec<u8> {
    fn len(&self) -> u64 {
        Vec::len(self) as u64
    }

    fn bytes(&self, at: u64, len: u64) -> Result<&[u8], Fault> {
        let range = usize::try_from(at).ok().zip(usize::try_from(len).ok());
        let found = range.and_then(|(at, len)| self.get(at..)?.get(..len));
        found.ok_or_else(|| Fault::new("cannot read the frames", "the file has too few bytes"))
    }
}

/// A file with frames.
#[derive(Clone)]
pub struct Recording {
    /// Its name, for messages.
    pub name: String,
    /// Its content.
    pub bytes: Arc<dyn Bytes>,
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.name, self.bytes.len())
    }
}

impl PartialEq for Recording {
    /// The same file, opened once.
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.bytes, &other.bytes)
    }
}
/// A section of kind `sim`.
#[derive(Debug)]
pub struct Plan {
    /// The model with its keys set; a histogram and frames from files are not loaded.
    pub config: Config,
    /// NeXus file with the histogram to draw from.
    pub(crate) from: Option<PathBuf>,
    /// Files with the frames of a camera.
    pub(crate) files: Option<Vec<PathBuf>>,
    /// The same configuration with what the files hold.
    pub(crate) loaded: OnceLock<Config>,
}

impl Plan {
    /// The configuration that the source is built from.
    pub(crate) fn config(&self) -> &Config {
        self.loaded.get().unwrap_or(&self.config)
    }
}

/// A time in ns: a whole number of ns, or a number with one of ns, us, ms, s, min, h.
fn time_ns(value: &Value) -> Option<i64> {
    if let Some(ns) = value.as_i64() {
        return Some(ns);
    }
    let text = value.as_str()?.trim();
    let split = text.find(|c: char| c.is_ascii_alphabetic())?;
    let number: f64 = text[..split].trim().parse().ok()?;
    let unit = match &text[split..] {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        "h" => 3600e9,
        _ => return None,
    };
    let ns = number * unit;
    (ns.abs() < 9e18).then_some(ns.round() as i64)
}
