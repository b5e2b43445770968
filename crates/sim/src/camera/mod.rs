//! A camera: frames (`ad00`) at a steady rate, made ahead or taken from files; and the metadata that goes with them
//! (`f144`), in a stream of its own.
//!
//! Constraints: a frame is copied once, into stream memory. All frames exist before the first step, in memory or in a
//! mapped file, and one head serves them all: a step sets number and time in it and computes no pixel. So the rate is
//! that of the copy, and a camera is a fair load.
//!
//! Which of its N distinct frames is shown follows from the time alone: frame n of the grid, counted since 1970, shows
//! n modulo N. A camera and its metadata that have one rate have one grid, and so the same times to the ns.
//!
//! Failure: a file that no longer gives its bytes ends the source with a fault; its runner begins it again later.

mod files;
mod metadata;
mod npy;
mod pattern;

pub use crate::keys::Pattern;
pub use crate::plan::{Bytes, Recording};
pub(crate) use metadata::Metadata;

use crate::limits;
use crate::plan::{Config, millihertz};
use crate::pulse::Grid;
use crate::train::{Instrument, Pulse};
use files::Recorded;
use flow::Fault;
use serde_json::{Value, json};
use store::SchemaId;
use wire::ad00::{self, Ad00, Attribute, Head};
use wire::{DType, Numbers};

/// Origin of the frames, and the beginning of those of the metadata.
pub const ORIGIN: &str = "camera";

/// Shape and type where the configuration and the files say nothing.
const SHAPE: [u64; 2] = [512, 512];
const DTYPE: DType = DType::UInt8;
/// Distinct frames where the configuration says nothing, if so many can be made.
const FRAMES: u64 = 16;

/// Bytes of a message beside its pixels, at most: names, shape and two attributes.
const HEAD_BYTES_MAX: u64 = 4096;

/// The form of every frame of a camera.
#[derive(Clone, Debug, PartialEq)]
struct Form {
    /// Lengths of the dimensions, slowest first.
    shape: Vec<u64>,
    dtype: DType,
}

/// Bytes of pixels a second; none where files say what a frame is.
pub(crate) fn bytes_per_second(config: &Config) -> Option<f64> {
    let bytes = form_of(config).bytes().ok().filter(|_| config.files.is_empty())?;
    Some(bytes as f64 * config.fps)
}

impl Form {
    /// Bytes of a frame; an error where it has none or too many.
    fn bytes(&self) -> Result<usize, Fault> {
        let bytes = self.shape.iter().try_fold(self.dtype.size() as u64, |all, length| all.checked_mul(*length));
        bytes.filter(|bytes| (1..=limits::FRAME_BYTES_MAX).contains(bytes)).map(|bytes| bytes as usize).ok_or_else(
            || {
                let cause = format!("a frame has 1 byte to {} MiB", limits::FRAME_BYTES_MAX >> 20);
                let what = format!("cannot create frames of shape {:?} and type {}", self.shape, self.dtype.name());
                Fault::new(what, cause).hint("write a smaller `shape`")
            },
        )
    }
}

/// The distinct frames.
enum Frames {
    /// Made ahead, one behind the other.
    Made(Vec<u8>),
    /// In files.
    Recorded(Recorded),
}

/// The camera.
pub(crate) struct Camera {
    origins: Vec<String>,
    grid: Grid,
    head: Head,
    frames: Frames,
    /// Bytes of the pixels of a frame.
    size: usize,
    /// How many distinct frames there are.
    count: u64,
    pulse: Option<i64>,
    /// Which of them is shown.
    shown: u64,
}

impl Camera {
    /// Makes its frames: some 30 ns a pixel where it draws lots.
    pub(crate) fn new(config: &Config) -> Result<Self, Fault> {
        let grid = grid(config)?;
        let origins = crate::origins(config);
        let (form, frames, count) = if config.files.is_empty() {
            let (form, count) = made(config)?;
            let bytes = pattern::make(config, &form.shape, form.dtype, count);
            (form, Frames::Made(bytes), count)
        } else {
            let (form, recorded) = Recorded::new(config)?;
            let count = recorded.frames();
            (form, Frames::Recorded(recorded), count)
        };
        let size = form.bytes()?;
        let mut camera = Self { origins, grid, head: Head::default(), frames, size, count, pulse: None, shown: 0 };
        let mut head = Head::default();
        let dimensions: Vec<i64> = form.shape.iter().map(|length| *length as i64).collect();
        let fps = [config.fps];
        let attributes = [
            Attribute {
                name: "fps",
                description: Some("frames per second"),
                source: Some("simulated"),
                data: (&fps).into(),
            },
            Attribute {
                name: "pattern",
                description: Some("what the pixels show"),
                source: Some("simulated"),
                data: Numbers::text(pattern_name(config)),
            },
        ];
        let wrong = |cause: String| Fault::new("cannot create the frames of model `camera`", cause);
        let data = Numbers::new(form.dtype, camera.pixels(0)?);
        let frame = Ad00 {
            source_name: &camera.origins[0],
            id: 0,
            timestamp: 0,
            dimensions: (&dimensions).into(),
            data: data.ok_or_else(|| wrong("they are not whole numbers of pixels".to_owned()))?,
            attributes: (&attributes).into(),
        };
        head.write(&frame).map_err(|e| wrong(e.to_string()))?;
        camera.head = head;
        Ok(camera)
    }

    /// The pixels of one of the distinct frames.
    fn pixels(&self, number: u64) -> Result<&[u8], Fault> {
        match &self.frames {
            Frames::Made(bytes) => {
                let at = number as usize * self.size;
                Ok(bytes.get(at..at + self.size).unwrap_or_default())
            }
            Frames::Recorded(recorded) => recorded.pixels(number),
        }
    }
}

impl Instrument for Camera {
    fn grid(&self) -> Grid {
        self.grid
    }

    fn origins(&self) -> &[String] {
        &self.origins
    }

    fn begin(&mut self, pulse: Pulse) {
        self.pulse = Some(pulse.number);
    }

    fn next(&mut self) -> Option<usize> {
        // At least one frame: `count` is checked.
        self.shown = self.pulse.take()?.rem_euclid(self.count.max(1) as i64) as u64;
        Some(0)
    }

    fn parts<'p>(&'p self, _: &'p [u8]) -> Result<[&'p [u8]; 3], Fault> {
        let parts = self.head.parts(self.pixels(self.shown)?);
        parts.ok_or_else(|| Fault::new("cannot send a frame of model `camera`", "its file has only a part of it"))
    }

    fn write(&mut self, number: u64, time: i64, _: &mut Vec<u8>) -> Result<(SchemaId, usize), wire::Error> {
        // The number of a frame has 31 bits, so that it is never negative: at 10,000 a second for two and a half days.
        self.head.set((number & 0x7fff_ffff) as i32, time);
        Ok((SchemaId(ad00::ID), 1))
    }
}

/// The grid of a camera and of its metadata.
fn grid(config: &Config) -> Result<Grid, Fault> {
    let millihertz = millihertz(config.fps).ok_or_else(|| {
        let cause = format!("the range is {} to {}, in steps of 0.001", limits::FPS_MIN, limits::FPS_MAX);
        Fault::new(format!("`fps` of model `{}` cannot be {}", config.model, config.fps), cause)
    })?;
    Ok(Grid::new(millihertz))
}

fn form_of(config: &Config) -> Form {
    let shape = config.shape.clone().unwrap_or_else(|| SHAPE.to_vec());
    Form { shape, dtype: config.dtype.unwrap_or(DTYPE) }
}

/// Form and number of the frames that are made; an error where they are too many or too large.
fn made(config: &Config) -> Result<(Form, u64), Fault> {
    let form = form_of(config);
    let pixels = form.bytes()? as u64 / form.dtype.size() as u64;
    let count = config.frames.unwrap_or((limits::FRAMES_PIXELS_MAX / pixels).clamp(1, FRAMES));
    if count == 0 || pixels.saturating_mul(count) > limits::FRAMES_PIXELS_MAX {
        let cause = format!("the limit is {} million pixels in memory", limits::FRAMES_PIXELS_MAX >> 20);
        let what = format!("cannot create {count} frames of shape {:?}", form.shape);
        let hint = if count > 1 { "write fewer `frames`" } else { "write a smaller `shape`" };
        return Err(Fault::new(what, cause).hint(format!("{hint}, or put them in `files`")));
    }
    Ok((form, count))
}

/// Bytes of a message with a frame, and somewhat more; none where only files say how large it is.
pub(crate) fn message_bytes(config: &Config) -> Option<u64> {
    let is_made = config.model == "camera" && config.files.is_empty();
    let (form, _) = is_made.then(|| made(config).ok()).flatten()?;
    Some(form.bytes().ok()? as u64 + HEAD_BYTES_MAX)
}

fn pattern_name(config: &Config) -> &'static str {
    if config.files.is_empty() { config.pattern.name() } else { "files" }
}

/// Whether the configuration of a camera or of its metadata can be built.
pub(crate) fn check(config: &Config) -> Result<(), Fault> {
    grid(config)?;
    match (config.model.as_str(), config.files.is_empty()) {
        ("camera", true) => made(config).map(drop),
        ("camera", false) => Recorded::new(config).map(|_| ()),
        _ => Ok(()),
    }
}

/// The content of the frames.
pub(crate) fn truth(config: &Config) -> Value {
    let mut truth = json!({"model": config.model, "seed": config.seed, "frames_per_second": config.fps});
    if config.model == "camera" {
        truth["pattern"] = pattern_name(config).into();
        if config.files.is_empty() {
            truth["shape"] = config.shape.clone().unwrap_or_else(|| SHAPE.to_vec()).into();
            truth["dtype"] = config.dtype.unwrap_or(DTYPE).name().into();
            truth["frames"] = made(config).map(|(_, count)| count).ok().into();
            truth["counts"] = config.counts.into();
        } else {
            truth["files"] = config.files.iter().map(|file| file.name.as_str()).collect();
        }
    } else {
        truth["values"] = config.values.into();
        truth["offset_ns"] = config.offset_ns.into();
        truth["jitter_ns"] = config.jitter_ns.into();
    }
    truth
}
