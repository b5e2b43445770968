//! `kind = "replay"`: a recorded stream of a run, played again with its own source times, numbers and origins.
//!
//! Payloads are copied from stream to stream as they are. At `1x` messages come as far apart as their source times;
//! after a restart it goes on behind what its stream already holds.

use flow::edge::{Conflict, Outline, SourceKind, SourcePlan};
use flow::{Data, Fault, Outlet, Pushed, Resume, Source, Step, stream_fault};
use settings::{Key, Refused, Section, Setting, Take, is_run_name, key, plain, required, shortened, wrong_run_name};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use store::{Meta, Reader};
use toml_edit::Item;

static RUN: Key = required("run", "name of a run", "The run to replay.");
static FROM_DATA: Key = required("from_data", "folder", "The data folder of the recorded run.");
static STREAM: Key = key("stream", "name of a stream", "", "The stream to replay. Default: the name of the section.");
static SPEED: Key =
    key("speed", "`1x`, `10x`, ... or `max`", "1x", "Original speed, a multiple of it, or as fast as possible.");

/// The kind `replay`.
pub(super) static SOURCE: SourceKind = SourceKind {
    name: "replay",
    about: "A recorded stream of a run, replayed.",
    keys: &[&RUN, &FROM_DATA, &STREAM, &SPEED],
    read,
    more: None,
};

/// Messages of one step at most.
const STEP_MESSAGES: usize = 512;

/// How fast something recorded is played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// So many times as fast as it was.
    Times(f64),
    /// As fast as the machine can.
    Max,
}

impl Default for Speed {
    fn default() -> Self {
        Self::Times(1.0)
    }
}

impl std::str::FromStr for Speed {
    type Err = Refused;

    /// `1x`, `0.5x`, `10x` or `max`.
    fn from_str(text: &str) -> Result<Self, Refused> {
        let refused = || Refused::new(format!("`{}` is not a speed", shortened(text)), "write `1x`, `10x` or `max`");
        if text == "max" {
            return Ok(Self::Max);
        }
        let times: f64 = text.strip_suffix('x').ok_or_else(refused)?.parse().map_err(|_| refused())?;
        // Slower than 1:1000 or faster than 1e6 is a slip of the finger; `max` is there for the latter.
        if (1e-3..=1e6).contains(&times) { Ok(Self::Times(times)) } else { Err(refused()) }
    }
}

impl Take for Speed {
    fn take(item: &Item) -> Result<Self, Refused> {
        String::take(item).map_err(|refused| Refused::new(refused.cause, "write \"1x\", \"10x\" or \"max\""))?.parse()
    }
    fn default_of(text: &str) -> Option<Self> {
        text.parse().ok()
    }
    fn show(&self) -> serde_json::Value {
        match self {
            Self::Times(times) => format!("{times}x").into(),
            Self::Max => "max".into(),
        }
    }
}

/// A section of kind `replay`.
#[derive(Clone, Debug)]
struct Plan {
    run: String,
    from_data: Setting<PathBuf>,
    stream: String,
    speed: Speed,
}

impl SourcePlan for Plan {
    fn build(&self) -> Result<Box<dyn Source>, Fault> {
        let Self { run, from_data, stream, speed } = self.clone();
        Ok(Box::new(Replay::new(from_data.value, run, stream, speed)))
    }

    /// A stream has one writer, and a replay into the stream that it reads would never end.
    fn conflicts(&self, name: &str, outline: &Outline<'_>) -> Vec<Conflict> {
        if self.stream != name || plain(&self.from_data) != plain(outline.data) {
            return Vec::new();
        }
        vec![Conflict {
            origin: self.from_data.origin,
            what: format!("source `{}` replays a stream into itself", shortened(name)),
            cause: "`from_data` is this instrument's own data folder".into(),
            hint: "give `data` another folder, or the section another name".into(),
        }]
    }
}

fn read(name: &str, section: &mut Section<'_>) -> Option<Arc<dyn SourcePlan>> {
    let run: Setting<String> = section.need(&RUN);
    if !run.is_empty() && !is_run_name(&run) {
        section.refuse(&RUN, wrong_run_name(&run));
    }
    let from_data = section.path(&FROM_DATA).unwrap_or_default();
    if !from_data.as_os_str().is_empty() && !from_data.is_dir() {
        let hint = "record a run first with `beamport up`, or correct the path: it is relative to the instrument file";
        section.refuse(&FROM_DATA, Refused::new(format!("no folder {}", from_data.display()), hint));
    }
    let stream = match section.get::<String>(&STREAM) {
        Some(stream) => stream.value,
        None => section.note(&STREAM, Setting::by_default(name.to_owned())).value,
    };
    let speed = section.need(&SPEED).value;
    Some(Arc::new(Plan { run: run.value, from_data, stream, speed }))
}

/// A recorded stream as a source.
pub(crate) struct Replay {
    from_data: PathBuf,
    run: String,
    stream: String,
    /// Nanoseconds of source time per nanosecond; 0 = as fast as it goes.
    speed: f64,
    resume: Resume,
    open: Option<Playing>,
}

struct Playing {
    reader: Reader,
    run: flow::records::Run,
    end: u64,
    clock: store::Clock,
    /// When it began to play; the start of the run stands for that moment, so that streams keep step.
    began: i64,
    origins: HashMap<u32, u32>,
}

impl Replay {
    /// A recorded stream of the run `run` in another data folder.
    pub(crate) fn new(from_data: PathBuf, run: String, stream: String, speed: Speed) -> Self {
        let speed = match speed {
            Speed::Times(times) => times,
            Speed::Max => 0.0,
        };
        Self { from_data, run, stream, speed, resume: Resume::default(), open: None }
    }
}

impl Source for Replay {
    fn start(&mut self, now: i64, resume: &Resume) -> Result<(), Fault> {
        self.resume = resume.clone();
        let data = Data::on_disk(&self.from_data);
        let run = flow::runs::run(&data, &self.run)?;
        let mut reader = data.reader_early(&self.stream)?;
        let fault = |e| stream_fault(&self.stream, e);
        let clock = reader.header().clock;
        let bounds = reader.bounds();
        let ranges = || run.streams.iter().filter(|r| r.stream == self.stream);
        let sealed = run.state == wire::bprn::State::Sealed;
        let end = if sealed { ranges().map(|r| r.next).max().unwrap_or(0) } else { bounds.count };
        let first = match ranges().map(|r| r.first).min() {
            Some(first) => first,
            None => reader.time_range(run.start, run.stop).map_err(fault)?.0,
        };
        if first < bounds.first {
            return Err(Fault::new(
                format!("cannot replay run `{}` from stream `{}`", self.run, self.stream),
                format!("retention took messages {first} to {}", bounds.first),
            ));
        }
        reader.seek(first);
        self.open = Some(Playing { reader, run, end, clock, began: now, origins: HashMap::new() });
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        let Some(playing) = &mut self.open else { return Ok(Step::Ended) };
        let from = playing.reader.position();
        if from >= playing.end {
            return Ok(Step::Ended);
        }
        let max = (playing.end - from).min(STEP_MESSAGES as u64) as usize;
        let names: Vec<String> = playing.reader.origins().map_err(|e| stream_fault(&self.stream, e))?.to_vec();
        let batch = playing.reader.read(max).map_err(|e| stream_fault(&self.stream, e))?;
        let (mut at, mut next) = (from, Step::Again);
        for message in batch.iter() {
            let entry = message.entry;
            let time = playing.clock.time_of(entry);
            let name = names.get(entry.origin as usize).map_or("", String::as_str);
            if playing.run.holds(time) && entry.origin_seq >= self.resume.next_seq(name) {
                if self.speed > 0.0 {
                    let since = time.saturating_sub(playing.run.start) as f64;
                    let due = playing.began.saturating_add((since / self.speed) as i64);
                    if due > now {
                        next = Step::At(due);
                        break;
                    }
                }
                let origin = match playing.origins.get(&entry.origin) {
                    Some(row) => *row,
                    None => {
                        let row = out.origin(name)?;
                        playing.origins.insert(entry.origin, row);
                        row
                    }
                };
                let meta = Meta {
                    source_time: entry.source_time,
                    origin,
                    origin_seq: entry.origin_seq,
                    schema: entry.schema,
                    flags: entry.flags,
                };
                if out.push(&meta, message.payload)? == Pushed::Full {
                    next = Step::At(now + 1_000_000);
                    break;
                }
            }
            at += 1;
        }
        playing.reader.seek(at);
        Ok(if at >= playing.end { Step::Ended } else { next })
    }

    /// A recording has brought nothing that can be waited for by the clock: it is done when it has ended.
    fn frontier(&self, _now: i64) -> i64 {
        i64::MIN
    }
}
