//! `attach`: frames (`ad00`) get the values that other streams have at their time, once, before they are handed out.
//!
//! ```toml
//! call = "attach"
//! inputs = ["camera"]
//!
//! [worker.joined.parameters]
//! take = "nearest"                # or hold (the default), interpolate
//! tolerance = "1 ms"
//! wait = "100 ms"
//! unmatched = "keep"              # or drop
//! values.x = "motor_x"
//! values.temperature = { stream = "devices", source = "T1", take = "interpolate", tolerance = "2 s", offset = "-3 ms" }
//! ```
//! Each name becomes an attribute of the frame (`m.metadata` in Python), of the type that the value has, be it a number, a
//! text or an array; what is interpolated is a double. A frame is held until its values are there, for `wait` after its arrival at most. One that misses a value
//! goes on without it, or is dropped and counted as `filtered`; either way it is counted as `unmatched`, and the value by its
//! name as `missing.NAME`.
//!
//! Constraints: the pixels are copied once, into the message that has the attributes. One slot, which keeps what it needs
//! of the streams beside as a counted reader of each.

use super::beside::{self, Beside, How, Named, Sample};
use super::span::Span;
use super::tiles::frame_of;
use flow::edge::{Needs, WorkerKind, WorkerPlace, WorkerPlan};
use flow::{Data, Fault, Made, Outputs, Stop, Worker};
use settings::{Key, Section, key, required};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use store::{Batch, ReadOptions, Reader};
use wire::ad00::{self, Ad00, Attribute};

static VALUES: Key = required(
    "values",
    "table",
    "What to attach: `x = \"motor_x\"`, or `x = { stream = \"motors\", source = \"X\" }` if several process variables share a stream; `take`, `tolerance` and `offset` there apply to this value only.",
);
static TAKE: Key = key(
    "take",
    "`hold`, `nearest` or `interpolate`",
    "hold",
    "The newest value that is not later than the frame; the nearest in time; linear interpolation between the values before and after.",
);
static TOLERANCE: Key =
    key("tolerance", "time", "", "Largest difference between the times of value and frame. Default: any.");
static OFFSET: Key = key("offset", "time", "0 s", "Added to the times of values, for devices with a late clock.");
static WAIT: Key = key("wait", "time up to `10 s`", "100 ms", "How long to wait for values after a frame's arrival.");
static UNMATCHED: Key = key(
    "unmatched",
    "`keep` or `drop`",
    "keep",
    "Whether a frame with a missing value is passed on without it, or dropped and counted as `filtered`.",
);

/// `attach`
pub static ATTACH: WorkerKind = WorkerKind {
    name: "attach",
    about: "Attaches to each frame (`ad00`) values of other streams at its time.",
    keys: &[&VALUES, &TAKE, &TOLERANCE, &OFFSET, &WAIT, &UNMATCHED],
    read: |section| Some(Arc::new(Plan::read(section))),
    notes: include_str!("../pages/attach.md"),
};

/// The values to attach.
#[derive(Clone, Debug)]
struct Plan {
    values: Vec<Named>,
    wait: i64,
    keeps_unmatched: bool,
}

impl Plan {
    fn read(section: &mut Section<'_>) -> Self {
        let how = section.word(&TAKE, &How::WORDS).map_or(How::Hold, |how| how.value);
        let offset = Span::ns(section, &OFFSET).unwrap_or(0);
        let tolerance = beside::tolerance(section, &TOLERANCE).unwrap_or(i64::MAX);
        let (name, stream) = (String::new(), String::new());
        let usual = Named { name, stream, source: None, offset, how, tolerance };
        let values = Named::read_all(section, &VALUES, &usual);
        let wait = beside::wait_of(section, &WAIT);
        let unmatched = section.word(&UNMATCHED, &[("keep", true), ("drop", false)]);
        Self { values, wait, keeps_unmatched: unmatched.is_none_or(|keeps| keeps.value) }
    }
}

impl WorkerPlan for Plan {
    fn needs(&self) -> Needs {
        let streams = self.values.iter().map(|named| named.stream.clone()).collect();
        let alone = Some("it keeps messages of the other streams");
        Needs { streams, alone, holds_back: true, ..Needs::default() }
    }

    fn build(&self, place: &WorkerPlace) -> Result<Box<dyn Worker + Send>, Fault> {
        Ok(Box::new(Attaching::new(&place.data, &place.stage, place.input(), self.clone())?))
    }
}

/// Attaching, at work.
struct Attaching {
    plan: Plan,
    data: Data,
    stage: String,
    beside: Beside,
    /// To see how far the worker has committed.
    input: Reader,
    /// (message, what was needed of the streams for it), for what is not committed.
    needed: VecDeque<(u64, Vec<u64>)>,
    /// Each value, of the frame at work.
    found: Vec<Option<Sample>>,
    head: ad00::Head,
    frames: u64,
    unmatched: u64,
    missing: Vec<u64>,
}

impl Attaching {
    fn new(data: &Data, stage: &str, input: &str, plan: Plan) -> Result<Self, Fault> {
        let beside = Beside::open(data, Some(&format!("keeps {stage}")), &plan.values)?;
        let input = data.reader(input, ReadOptions { early: true, ..ReadOptions::default() })?;
        Ok(Self {
            data: data.clone(),
            stage: stage.to_owned(),
            beside,
            input,
            needed: VecDeque::new(),
            found: Vec::new(),
            head: ad00::Head::default(),
            frames: 0,
            unmatched: 0,
            missing: vec![0; plan.values.len()],
            plan,
        })
    }

    /// Releases the values before those needed at the last commit: nothing asks for them again.
    fn release(&mut self) {
        let runner = self.input.pins().readers().into_iter().find(|r| r.name == self.stage);
        let committed = runner.map_or(0, |r| r.committed);
        while self.needed.get(1).is_some_and(|needed| needed.0 <= committed) {
            self.needed.pop_front();
        }
        if let Some((message, needed)) = self.needed.front()
            && *message <= committed
        {
            self.beside.release(needed);
        }
    }

    /// Finds the values of a frame. How many are not there.
    fn find(&mut self, time: i64, arrival: i64) -> Result<usize, Fault> {
        let mut left = beside::left(&self.data, self.plan.wait, arrival);
        self.found.clear();
        for which in 0..self.plan.values.len() {
            let value = self.beside.at(which, time, &mut left)?;
            self.found.push(value);
        }
        Ok(self.found.iter().filter(|found| found.is_none()).count())
    }

    /// Appends the frame with its values.
    fn give(&mut self, of: &store::Entry, frame: &Ad00<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        let mut rooms = vec![[0; 8]; self.found.len()];
        let values = self.plan.values.iter().zip(&self.found).zip(&mut rooms);
        let fresh = values.filter_map(|((named, found), room)| {
            Some(Attribute {
                name: &named.name,
                description: Some(""),
                source: Some(named.source.as_deref().unwrap_or(&named.stream)),
                data: found.as_ref()?.data(room)?,
            })
        });
        let is_other = |a: &&Attribute<'_>| self.plan.values.iter().all(|named| named.name != a.name);
        let attributes: Vec<Attribute<'_>> = frame.attributes.iter().filter(is_other).cloned().chain(fresh).collect();
        let frame = Ad00 { attributes: attributes.as_slice().into(), ..frame.clone() };
        self.head.write(&frame).map_err(|e| Fault::new("cannot encode a frame", e))?;
        let parts = self.head.parts(frame.data.bytes()).unwrap_or_default();
        out.push(of, &Made::of(of, ad00::ID), &parts)
    }
}

impl Worker for Attaching {
    fn work(&mut self, batch: &Batch<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        for message in batch.iter() {
            if !out.wants(&message) {
                continue;
            }
            out.begin(&message);
            let entry = message.entry;
            let frame = match frame_of(&message) {
                Ok(frame) => frame,
                Err((reason, text)) => {
                    out.aside(&message, reason, &text)?;
                    continue;
                }
            };
            let missing = self.find(entry.source_time, entry.arrival_time)?;
            if missing == 0 || self.plan.keeps_unmatched {
                self.give(entry, &frame, out)?;
                out.done(&message);
            } else {
                out.filtered(&message);
            }
            self.frames += 1;
            self.unmatched += u64::from(missing > 0);
            self.missing.iter_mut().zip(&self.found).for_each(|(count, found)| *count += u64::from(found.is_none()));
        }
        if let Some(last) = batch.entries.last() {
            self.needed.push_back((batch.next(), self.beside.needed(last.source_time)));
            self.release();
        }
        Ok(())
    }

    fn rest(&mut self) {
        self.release();
    }

    fn looks_at_payloads(&self) -> bool {
        true
    }

    fn keeps(&self) -> bool {
        false
    }

    fn statistics(&mut self) -> String {
        let mut numbers =
            BTreeMap::from([("frames".to_owned(), self.frames), ("unmatched".to_owned(), self.unmatched)]);
        let missing = self.plan.values.iter().zip(&self.missing).filter(|m| *m.1 > 0);
        numbers.extend(missing.map(|(named, count)| (format!("missing.{}", named.name), *count)));
        serde_json::to_string(&numbers).unwrap_or_default()
    }
}
