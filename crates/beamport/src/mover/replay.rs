//! `kind = "replay"`: a recorded stream of a run, played again with its own source times, numbers and origins.
//!
//! Payloads are copied from stream to stream as they are. At `1x` messages come as far apart as their source times;
//! after a restart it goes on behind what its stream already holds.

use crate::file::Speed;
use flow::{Data, Fault, Outlet, Pushed, Resume, Source, Step, stream_fault};
use std::collections::HashMap;
use std::path::PathBuf;
use store::{Meta, Reader};

/// Messages of one step at most.
const STEP_MESSAGES: usize = 512;

/// A recorded stream as a source.
pub(super) struct Replay {
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
    pub(super) fn new(from_data: PathBuf, run: String, stream: String, speed: Speed) -> Self {
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
                format!("run `{}` cannot be replayed from stream `{}`", self.run, self.stream),
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
