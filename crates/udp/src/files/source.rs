//! `[source.NAME] kind = "file"`: a file of units, read as fast as its stream takes it.
//!
//! After a restart it goes on behind what its stream has: the state says which message of the stream is the first of
//! the block at a byte of the file.

use super::{Blocks, Format, Piece};
use crate::framing::{Stamp, hadaq};
use crate::limits::{FILE_STEP_BYTES, FILE_STEP_MESSAGES, FULL_PAUSE, GEB_TICK};
use flow::edge::{SourceKind, SourcePlan};
use flow::{Fault, Outlet, Pushed, Resume, Source, Step};
use serde_json::{Value, json};
use settings::units::Refused;
use settings::{Key, Section, Setting, Time, key, required};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::Meta;

static PATH: Key = required("path", "file", "The file to read.");
static FORMAT: Key = required("format", "`geb` or `hld`", "What it holds: [files of units](udp.md#files-of-units).");
static TICK: Key = key("tick", "duration", "10 ns", "Of `geb`: unit of the timestamps.");
static ZERO: Key = key("zero", "time", "1970-01-01T00:00:00Z", "Of `geb`: the time at which timestamps are 0.");

/// The kind `file`.
pub static FILE: SourceKind = SourceKind {
    name: "file",
    about: "A file of units of GRETINA and GRETA, or of events of HADES: [files of units](udp.md#files-of-units).",
    keys: &[&PATH, &FORMAT, &TICK, &ZERO],
    read,
    more: None,
};

/// The plan of a section.
#[derive(Clone, Debug)]
struct Plan {
    name: String,
    path: PathBuf,
    format: Format,
    /// ns
    tick: i64,
    /// ns since 1970 UTC
    zero: i64,
}

impl SourcePlan for Plan {
    fn build(&self) -> Result<Box<dyn Source>, Fault> {
        Ok(Box::new(FileSource { plan: self.clone(), open: None }))
    }
}

fn read(name: &str, section: &mut Section<'_>) -> Option<Arc<dyn SourcePlan>> {
    let path: Setting<PathBuf> = section.path(&PATH).unwrap_or_default();
    if !path.as_os_str().is_empty() && !path.is_file() {
        let hint = "correct the path: it is relative to the instrument file";
        section.refuse(&PATH, Refused::new(format!("no file {}", path.display()), hint));
    }
    let format = section.get::<Format>(&FORMAT).map_or(Format::Geb, |format| format.value);
    let tick = section.need::<Duration>(&TICK);
    if tick.is_zero() {
        section.refuse(&TICK, Refused::new("it is 0", "write a duration, like `\"10 ns\"`"));
    }
    let zero = section.need::<Time>(&ZERO);
    let tick = i64::try_from(tick.as_nanos()).unwrap_or(GEB_TICK);
    Some(Arc::new(Plan { name: name.to_owned(), path: path.value, format, tick, zero: zero.value.0 }))
}

/// A file as a source.
struct FileSource {
    plan: Plan,
    open: Option<Open>,
}

/// The state after a start.
struct Open {
    blocks: Blocks,
    /// Where the block begins whose messages are pushed.
    at: u64,
    /// Number in the stream of the first message of that block, and of the first message of the file; `None` before the
    /// first step.
    sequence: Option<(u64, u64)>,
    /// Messages from there on that the stream has already.
    skip: u64,
    /// Messages of that block, which begin at `pieces[done]`, and where the next block begins.
    pieces: Vec<(Piece, u64)>,
    /// The same without numbers.
    cut: Vec<Piece>,
    done: usize,
    next: Option<u64>,
    /// Numbers of each sender.
    hubs: BTreeMap<u16, Hub>,
}

/// Messages of one sender.
#[derive(Default)]
struct Hub {
    /// The number of the message before.
    last: Option<u64>,
    row: Option<u32>,
}

impl Source for FileSource {
    fn start(&mut self, _: i64, resume: &Resume) -> Result<(), Fault> {
        let Plan { path, format, .. } = &self.plan;
        let state: Value = serde_json::from_str(&resume.state).unwrap_or_default();
        // A state of another file says nothing of this one.
        let is_own = state["path"].as_str() == path.to_str();
        let number = |name: &str| state[name].as_u64().filter(|_| is_own);
        let last = state["last"].as_object().filter(|_| is_own).into_iter().flatten();
        let hub =
            |(hub, last): (&String, &Value)| Some((hub.parse().ok()?, Hub { last: Some(last.as_u64()?), row: None }));
        self.open = Some(Open {
            blocks: Blocks::open(path, *format)?,
            at: number("at").unwrap_or(0),
            sequence: number("sequence").zip(number("first")),
            skip: u64::MAX,
            pieces: Vec::new(),
            cut: Vec::new(),
            done: 0,
            next: None,
            hubs: last.filter_map(hub).collect(),
        });
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        let plan = &self.plan;
        self.open.as_mut().map_or(Ok(Step::Ended), |open| open.step(plan, now, out))
    }

    /// A file has brought nothing that can be waited for by the clock: it is done when it has ended.
    fn frontier(&self, _: i64) -> i64 {
        i64::MIN
    }

    fn state(&self) -> String {
        let Some((open, (sequence, first))) = self.open.as_ref().and_then(|open| Some((open, open.sequence?))) else {
            return String::new();
        };
        let last: serde_json::Map<String, Value> =
            open.hubs.iter().filter_map(|(hub, of)| Some((hub.to_string(), of.last?.into()))).collect();
        json!({"path": self.plan.path.to_str(), "at": open.at, "sequence": sequence, "first": first, "last": last})
            .to_string()
    }

    fn misses(&self) -> bool {
        false
    }

    fn status(&self) -> Value {
        self.open.as_ref().map_or(Value::Null, |open| json!({"byte": open.at}))
    }
}

impl Open {
    fn step(&mut self, plan: &Plan, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        if self.skip == u64::MAX {
            let next = out.next_sequence();
            let (sequence, _) = *self.sequence.get_or_insert((next, next));
            self.skip = out.next_sequence().saturating_sub(sequence);
            // The state is committed before the first message.
            return Ok(Step::Again);
        }
        let (mut messages, mut bytes) = (0, 0);
        while messages < FILE_STEP_MESSAGES && bytes < FILE_STEP_BYTES {
            if self.next.is_none() && !self.load(plan, out)? {
                return Ok(Step::Ended);
            }
            let Some((block, next)) = self.blocks.get(self.at)? else { return Ok(Step::Ended) };
            while let Some((piece, number)) = self.pieces.get(self.done) {
                if self.skip > 0 {
                    (self.skip, self.done) = (self.skip - 1, self.done + 1);
                    continue;
                }
                let source_time = time_of(piece.stamp, plan).ok_or_else(|| {
                    let what = format!("source `{}` cannot store a message of {}", plan.name, plan.path.display());
                    Fault::new(what, format!("its timestamp is out of range, at byte {}", self.at))
                        .hint("check `tick` and `zero`")
                })?;
                let origin = row_of(&mut self.hubs, piece.hub, plan, out)?;
                let (flags, schema) = (piece.flags, plan.format.schema());
                let meta = Meta { source_time, origin, origin_seq: *number, schema, flags };
                let payload = &block[piece.payload.clone()];
                if out.push(&meta, payload)? == Pushed::Full {
                    return Ok(Step::At(now.saturating_add(FULL_PAUSE)));
                }
                self.done += 1;
                messages += 1;
                bytes += payload.len();
            }
            let count = self.pieces.len() as u64;
            (self.at, self.sequence) = (next, self.sequence.map(|(sequence, first)| (sequence + count, first)));
            (self.next, self.done) = (None, 0);
            // A block may have no message.
            messages += 1;
        }
        Ok(Step::Again)
    }

    /// Finds the messages of the next block. False at the end of the file.
    fn load(&mut self, plan: &Plan, out: &mut dyn Outlet) -> Result<bool, Fault> {
        let Some((block, next)) = self.blocks.get(self.at)? else { return Ok(false) };
        self.cut.clear();
        plan.format.cut(block, &mut self.cut).map_err(|why| {
            let what = format!("{} is not a file of its format", plan.path.display());
            Fault::new(what, format!("{why}, at byte {}", self.at)).hint("check `format`")
        })?;
        self.pieces.clear();
        let counted = self.sequence.map_or(0, |(sequence, first)| sequence.saturating_sub(first));
        for piece in self.cut.drain(..) {
            let number = match piece.trigger {
                Some(trigger) => {
                    let last = &mut self.hubs.entry(piece.hub).or_default().last;
                    let number = hadaq::number(*last, trigger);
                    *last = number.or(*last);
                    number
                }
                None => Some(counted),
            };
            match number {
                Some(number) => self.pieces.push((piece, number)),
                None => {
                    let row = row_of(&mut self.hubs, piece.hub, plan, out)?;
                    out.count(row, "refused.late", 1)?;
                }
            }
        }
        self.next = Some(next);
        Ok(true)
    }
}

/// The row of the origin of a sender: the source, and the number of the hub where there are hubs.
fn row_of(hubs: &mut BTreeMap<u16, Hub>, hub: u16, plan: &Plan, out: &mut dyn Outlet) -> Result<u32, Fault> {
    let row = &mut hubs.entry(hub).or_default().row;
    Ok(match (*row, plan.format) {
        (Some(row), _) => row,
        (None, Format::Geb) => *row.insert(out.origin(&plan.name)?),
        (None, Format::Hld) => *row.insert(out.origin(&format!("{}.{hub:04x}", plan.name))?),
    })
}

/// ns since 1970 UTC; `None` where it cannot be stored.
fn time_of(stamp: Stamp, plan: &Plan) -> Option<i64> {
    match stamp {
        Stamp::Epoch(time) => Some(time),
        Stamp::Ticks(ticks) => plan.zero.checked_add(plan.tick.checked_mul(i64::try_from(ticks).ok()?)?),
        Stamp::Arrival => None,
    }
}
