//! `histogram`: events (`ev44`) are counted into bins; what comes out are data arrays (`da00`).
//!
//! ```toml
//! call = "histogram"
//! inputs = ["detector"]
//! parameters = { of = "start", from = "0 ms", to = "71 ms", bins = 710, shape = [64, 256], first_pixel = 1 }
//! ```
//! Axes, slowest first: `y` and `x` (with `shape = [rows, columns]`: pixel = `first_pixel` + row * columns + column) or
//! `pixel_id` (with `pixels = NUMBER`), then `time_of_flight` (with `bins`). Bin i holds from + i (to - from) / bins <= t
//! < from + (i + 1) (to - from) / bins, in whole numbers. `signal` has the counts, `outside` the events that are in no
//! bin, so that their sum is the number of events.
//!
//! `of = "pulse"`: one array a pulse, with its time. `of = "start"`: one array a block of messages, with all events since
//! the stream began; `turn` makes the blocks larger.
//!
//! **The state of a histogram since start** is the last array itself: it is in the slot's stream, before the answer
//! that names the messages in it. A slot that starts, or receives messages again, looks for the answer that goes
//! farthest before its first one, and resumes from the array of that answer. So each event is counted once, whichever
//! process is killed at any time. The slot holds the arrays that are needed for that: it is a named reader of its own
//! stream. One slot and one input, since with two none would have all.
//!
//! Messages that cannot be counted are set aside: `schema`, `unreadable`, `pixels` (it has none, and the bins ask for
//! them).

use super::places::{StatePlaces, newest_array};
use super::span::Span;
use super::{said, unreadable};
use flow::edge::{Needs, Sends, WorkerKind, WorkerPlace, WorkerPlan};
use flow::{Data, Fault, Made, Outputs, Stop, Worker, slot_stream, stream_fault};
use settings::{Key, Refused, Section, Take, key};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Batch, Message};
use toml_edit::Item;
use wire::DType;
use wire::da00::Variable;
use wire::ev44::Ev44;

/// Bins at most: 128 MiB of counts.
const CELLS_MAX: i64 = 16 << 20;
/// Arrays since start that a slot's stream must have room for: held, on its way, and given up.
const ROOM: u64 = 8;

static OF: Key = key(
    "of",
    "`pulse` or `start`",
    "pulse",
    "An array per pulse, with its time; or per block of messages, with all events since the stream began.",
);
static FROM: Key = key("from", "time", "", "Start of the first time-of-flight bin. Default: `0 ns`.");
static TO: Key = key("to", "time", "", "End of the last bin. An edge belongs to the bin above it, `to` to none.");
static BINS: Key = key("bins", "number, 1 to 16777216", "", "Number of equal time-of-flight bins.");
static PIXELS: Key = key("pixels", "number, 1 to 16777216", "", "Length of the pixel axis.");
static SHAPE: Key =
    key("shape", "`[rows, columns]`", "", "Axes `y` and `x` instead: pixel = `first_pixel` + row * columns + column.");
static FIRST_PIXEL: Key = key("first_pixel", "number", "1", "Lowest pixel number.");

/// `histogram`
pub static HISTOGRAM: WorkerKind = WorkerKind {
    name: "histogram",
    about: "Counts events (`ev44`) into bins; the output has data arrays (`da00`).",
    keys: &[&OF, &FROM, &TO, &BINS, &PIXELS, &SHAPE, &FIRST_PIXEL],
    read: |section| Some(Arc::new(Plan::read(section))),
    notes: include_str!("../pages/histogram.md"),
};

/// The parameters of a histogram.
#[derive(Clone, Debug, PartialEq)]
struct Plan {
    since_start: bool,
    /// (from, to, bins), ns.
    time: Option<(i64, i64, i64)>,
    /// Lengths of the axes of pixels; none: pixels are not looked at.
    shape: Vec<i64>,
    first_pixel: i64,
}

/// Rows and columns.
#[derive(Clone, Debug, PartialEq)]
struct Shape(Vec<i64>);

impl Take for Shape {
    fn take(item: &Item) -> Result<Self, Refused> {
        let lengths: Option<Vec<i64>> =
            item.as_array().and_then(|all| all.iter().map(toml_edit::Value::as_integer).collect());
        let lengths = lengths.filter(|all| all.len() == 2 && all.iter().all(|n| (1..=CELLS_MAX).contains(n)));
        let refused = || Refused::new("it is not two numbers, each 1 or more", "write `[rows, columns]`");
        lengths.map(Self).ok_or_else(refused)
    }
    fn default_of(_: &str) -> Option<Self> {
        None
    }
    fn show(&self) -> serde_json::Value {
        self.0.as_slice().into()
    }
}

impl Plan {
    fn read(section: &mut Section<'_>) -> Self {
        let before = section.mistakes.list.len();
        let of = section.word(&OF, &[("pulse", false), ("start", true)]);
        let time = time(section);
        let pixels = section.within(&PIXELS, 1..=CELLS_MAX);
        let mut shape: Vec<i64> = pixels.iter().map(|pixels| pixels.value).collect();
        if let Some(lengths) = section.get::<Shape>(&SHAPE) {
            if section.has(&PIXELS) {
                section.refuse(&SHAPE, Refused::new("`pixels` gives the axis already", "remove one of them"));
            }
            shape = lengths.value.0;
        }
        let first_pixel = section.within(&FIRST_PIXEL, i64::from(i32::MIN)..=i64::from(i32::MAX));
        let first_pixel = first_pixel.map_or(1, |pixel| pixel.value);
        let plan = Self { since_start: of.is_some_and(|of| of.value), time, shape, first_pixel };
        // After another mistake it may not be known what is to be counted.
        let is_clear = section.mistakes.list.len() == before && !section.has_holes;
        if is_clear && plan.time.is_none() && plan.shape.is_empty() {
            let hint = "add `to` and `bins`, `pixels` or `shape`";
            section.refuse(&BINS, Refused::new("there is nothing to count into", hint));
        } else if is_clear && plan.cells().is_none() {
            let cause = format!("there are more than {CELLS_MAX} bins");
            section.refuse(&BINS, Refused::new(cause, "take larger ones"));
        }
        plan
    }

    /// How many bins there are.
    fn cells(&self) -> Option<usize> {
        let mut lengths = self.shape.iter().copied().chain(self.time.map(|t| t.2));
        let cells = lengths.try_fold(1_i64, |all, n| all.checked_mul(n)).filter(|cells| *cells <= CELLS_MAX)?;
        usize::try_from(cells).ok()
    }
}

/// The bins of the time of flight: from, to (ns) and how many; `None` where there are none, or after a mistake.
fn time(section: &mut Section<'_>) -> Option<(i64, i64, i64)> {
    let has_any = [&FROM, &TO, &BINS].map(|key| section.has(key)).contains(&true);
    let (has_to, has_bins) = (section.has(&TO), section.has(&BINS));
    let (has_from, from, to) = (section.has(&FROM), Span::ns(section, &FROM), Span::ns(section, &TO));
    let bins = section.within(&BINS, 1..=CELLS_MAX);
    if has_any && !(has_to && has_bins) {
        let hint = "a time of flight has `to` and `bins`: write `to = \"71 ms\"` and `bins = 710`";
        section.missing(if has_to { &BINS } else { &TO }, hint);
    }
    let from = if has_from { from? } else { 0 };
    let (to, bins) = (to?, bins?.value);
    if from >= to {
        section.refuse(&TO, Refused::new("it is not after `from`", "write a later time"));
        return None;
    }
    if from < -(1 << 31) || to > 1 << 31 {
        let cause = "a time of flight is a number of 32 bits, in ns";
        section.refuse(&TO, Refused::new(cause, "write times up to `\"2147 ms\"`"));
        return None;
    }
    Some((from, to, bins))
}

impl WorkerPlan for Plan {
    fn needs(&self) -> Needs {
        let bytes = self.cells().unwrap_or(0) as u64 * 8 + 4096 + self.time.map_or(0, |t| t.2 as u64 * 8);
        Needs {
            alone: self.since_start.then_some("it counts all events since the start, so one slot must get all of them"),
            bytes: bytes * if self.since_start { ROOM } else { 2 },
            ..Needs::default()
        }
    }

    fn sends(&self, stage: &str) -> Option<Sends> {
        let time = self.time.map(|_| "time_of_flight");
        let pixels = (self.shape.len() == 1).then_some("pixel_id");
        let variables = ["signal", "outside"].into_iter().chain(time).chain(pixels);
        Some(Sends {
            maker: format!("worker `{stage}`"),
            schemas: vec!["da00".into()],
            variables: variables.map(str::to_owned).collect(),
            origins: vec![stage.to_owned()],
            units: Vec::new(),
        })
    }

    fn build(&self, place: &WorkerPlace) -> Result<Box<dyn Worker + Send>, Fault> {
        Ok(Box::new(Histogram::new(place, self.clone())?))
    }
}

/// Counts of events.
#[derive(Clone, Debug, Default, PartialEq)]
struct Counts {
    cells: Vec<i64>,
    outside: i64,
}

/// A histogram at work.
struct Histogram {
    data: Data,
    stream: String,
    plan: Plan,
    edges: Vec<f64>,
    counts: Counts,
    /// The next message of the input that is to be counted; none: what was counted must be looked for.
    next: Option<u64>,
    /// Holds the arrays that are needed.
    places: Option<StatePlaces>,
    bytes: Vec<u8>,
    said: BTreeMap<&'static str, u64>,
}

impl Histogram {
    fn new(place: &WorkerPlace, plan: Plan) -> Result<Self, Fault> {
        let WorkerPlace { data, stage, slot, .. } = place;
        let stream = slot_stream(stage, *slot);
        let places = match plan.since_start {
            true => Some(StatePlaces::open(data, stage, *slot, place.input())?),
            false => None,
        };
        let cells = plan.cells().unwrap_or(0);
        let edges = plan.time.map_or_else(Vec::new, |(from, to, bins)| {
            (0..=bins).map(|i| (from * bins + i * (to - from)) as f64 / bins as f64).collect()
        });
        Ok(Self {
            data: data.clone(),
            stream,
            edges,
            counts: Counts { cells: vec![0; cells], outside: 0 },
            plan,
            next: None,
            places,
            bytes: Vec::new(),
            said: BTreeMap::new(),
        })
    }

    /// Adds events; the bins have as many as there are.
    fn add(&mut self, events: &Ev44<'_>, range: std::ops::Range<usize>) {
        let Counts { cells, outside } = &mut self.counts;
        let pixels: i64 = self.plan.shape.iter().product();
        let (has_pixels, first) = (!self.plan.shape.is_empty(), self.plan.first_pixel);
        let times = events.time_of_flight.iter().skip(range.start).take(range.len());
        let mut ids = events.pixel_id.iter().skip(range.start);
        for t in times {
            let mut cell = 0;
            if has_pixels {
                let pixel = ids.next().map_or(-1, |id| i64::from(id) - first);
                if !(0..pixels).contains(&pixel) {
                    *outside += 1;
                    continue;
                }
                cell = pixel;
            }
            if let Some((from, to, bins)) = self.plan.time {
                let t = i64::from(t);
                if t < from || t >= to {
                    *outside += 1;
                    continue;
                }
                // Below 2^33 * 2^24.
                cell = cell * bins + (t - from) * bins / (to - from);
            }
            match cells.get_mut(cell as usize) {
                Some(cell) => *cell += 1,
                None => *outside += 1,
            }
        }
    }

    /// The message of what is counted.
    fn array(&mut self, time: i64, maker: &str) -> Result<(), Fault> {
        let (names, mut shape): (&[&str], Vec<i64>) = match self.plan.shape.len() {
            0 => (&[], Vec::new()),
            1 => (&["pixel_id"], self.plan.shape.clone()),
            _ => (&["y", "x"], self.plan.shape.clone()),
        };
        let mut axes: Vec<&str> = names.to_vec();
        if let Some((_, _, bins)) = self.plan.time {
            axes.push("time_of_flight");
            shape.push(bins);
        }
        let plain =
            |name, unit, axes, shape, data| Variable { name, unit, label: None, source: None, axes, shape, data };
        let edges_shape = [self.edges.len() as i64];
        let ids: Vec<i64> = match self.plan.shape.as_slice() {
            [pixels] => (0..*pixels).map(|n| n + self.plan.first_pixel).collect(),
            _ => Vec::new(),
        };
        let ids_shape = [ids.len() as i64];
        let outside = [self.counts.outside];
        let one: [i64; 0] = [];
        let mut data = vec![
            plain("signal", Some("counts"), axes.as_slice().into(), (&shape).into(), (&self.counts.cells).into()),
            plain("outside", Some("counts"), (&[]).into(), (&one).into(), (&outside).into()),
        ];
        if !self.edges.is_empty() {
            let axes = (&["time_of_flight"]).into();
            data.push(plain("time_of_flight", Some("ns"), axes, (&edges_shape).into(), (&self.edges).into()));
        }
        if !ids.is_empty() {
            data.push(plain("pixel_id", None, (&["pixel_id"]).into(), (&ids_shape).into(), (&ids).into()));
        }
        let array = wire::da00::Da00 { source_name: maker, timestamp: time, data: data.as_slice().into() };
        wire::da00::write(&mut self.bytes, &array).map_err(|e| Fault::new("cannot encode a histogram", e))
    }

    /// The counts of an array that was made with the same plan.
    fn counts_of(&self, bytes: &[u8]) -> Option<Counts> {
        let array = wire::da00::read(bytes).ok()?;
        let of = |name: &str| array.data.iter().find(|variable| variable.name == name);
        let signal = of("signal")?;
        let mut shape = self.plan.shape.clone();
        shape.extend(self.plan.time.map(|t| t.2));
        let edges = of("time_of_flight").and_then(|v| v.data.typed::<f64>()).map_or_else(Vec::new, |e| e.to_vec());
        let is_same = signal.data.dtype() == DType::Int64 && signal.shape.iter().eq(shape) && edges == self.edges;
        let first = of("pixel_id").and_then(|v| v.data.typed::<i64>()).and_then(|ids| ids.first());
        if !is_same || first.is_some_and(|first| first != self.plan.first_pixel) {
            return None;
        }
        let outside = of("outside")?.data.typed::<i64>()?.first()?;
        Some(Counts { cells: signal.data.typed::<i64>()?.to_vec(), outside })
    }

    /// Counts of all messages of the input below `before`, from the newest answer to such.
    fn find(&mut self, input: &[u8; 16], before: u64) -> Result<(), Fault> {
        self.counts = Counts { cells: vec![0; self.counts.cells.len()], outside: 0 };
        self.next = Some(before);
        let found = newest_array(&self.data, &self.stream, input, before).map_err(|e| stream_fault(&self.stream, e))?;
        let at = match found {
            Some((at, bytes)) => {
                // Counts of other bins cannot be taken over: these begin at 0.
                if let Some(counts) = self.counts_of(&bytes) {
                    self.counts = counts;
                }
                at
            }
            None => 0,
        };
        if let Some(places) = &mut self.places {
            places.restart(at, before);
        }
        Ok(())
    }

    /// Says all that was counted, as what was made of a message.
    fn tell(&mut self, message: &Message<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        self.array(message.entry.source_time, out.maker())?;
        let at = out.place();
        if let Err(stop) = out.push(message.entry, &Made::of(message.entry, wire::da00::ID), &[&self.bytes]) {
            // What was counted of this batch is not said: it is counted anew.
            self.next = None;
            return Err(stop);
        }
        if let Some(places) = &mut self.places {
            places.push(at, message.sequence + 1);
        }
        Ok(())
    }

    fn since_start(&mut self, batch: &Batch<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        let from = out.next().max(batch.first);
        // Behind what it has are messages that were never counted; before it, what was given up.
        if self.next.is_none_or(|next| next > from) {
            self.find(&out.input(), from)?;
        }
        if let Some(places) = &mut self.places {
            places.release();
        }
        let mut last: Option<Message<'_>> = None;
        for message in batch.iter().filter(|message| message.sequence >= from) {
            if last.is_none() {
                out.begin(&message);
            }
            match check(&self.plan, &message) {
                Ok(events) => {
                    self.count(&events, 0..events.events());
                    last = Some(message);
                }
                Err((reason, text)) => {
                    if let Some(last) = last.take() {
                        self.tell(&last, out)?;
                        out.done(&last);
                        out.begin(&message);
                    }
                    // An array pushed before a message is set aside is in the stream, but not shown to readers.
                    self.tell(&message, out)?;
                    if let Err(stop) = out.aside(&message, reason, &text) {
                        self.next = None;
                        return Err(stop);
                    }
                }
            }
        }
        if let Some(last) = last {
            self.tell(&last, out)?;
            out.done(&last);
        }
        self.next = Some(batch.next());
        Ok(())
    }

    fn count(&mut self, events: &Ev44<'_>, range: std::ops::Range<usize>) {
        *self.said.entry("events").or_default() += range.len() as u64;
        let before = self.counts.outside;
        self.add(events, range);
        *self.said.entry("outside").or_default() += (self.counts.outside - before) as u64;
    }
}

/// The events of a message, or why they cannot be counted.
fn check<'m>(plan: &Plan, message: &Message<'m>) -> Result<Ev44<'m>, (&'static str, String)> {
    if message.entry.schema.0 != wire::ev44::ID {
        return Err(("schema", format!("it is {}, and a histogram counts ev44", message.entry.schema.as_text())));
    }
    let events = wire::ev44::read(message.payload).map_err(|e| ("unreadable", unreadable(e)))?;
    events.check().map_err(|e| ("unreadable", unreadable(e)))?;
    if !plan.shape.is_empty() && events.pixel_id.is_empty() && events.events() > 0 {
        return Err(("pixels", "its events have no pixels".into()));
    }
    Ok(events)
}

impl Worker for Histogram {
    fn work(&mut self, batch: &Batch<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        if self.plan.since_start {
            return self.since_start(batch, out);
        }
        for message in batch.iter() {
            if !out.wants(&message) {
                continue;
            }
            out.begin(&message);
            let events = match check(&self.plan, &message) {
                Ok(events) => events,
                Err((reason, text)) => {
                    out.aside(&message, reason, &text)?;
                    continue;
                }
            };
            for (time, range) in events.pulses() {
                self.counts.cells.fill(0);
                self.counts.outside = 0;
                self.count(&events, range);
                self.array(time, out.maker())?;
                let made = Made { source_time: time, ..Made::of(message.entry, wire::da00::ID) };
                out.push(message.entry, &made, &[&self.bytes])?;
            }
            out.done(&message);
        }
        Ok(())
    }

    fn looks_at_payloads(&self) -> bool {
        true
    }

    fn keeps(&self) -> bool {
        self.plan.since_start
    }

    fn statistics(&mut self) -> String {
        said(&self.said)
    }
}
