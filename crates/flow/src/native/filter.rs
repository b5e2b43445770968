//! `filter`: passes the messages on of which an expression is true; the others are counted as `filtered`.
//!
//! ```toml
//! call = "filter"
//! inputs = ["detector"]
//! parameters = { keep = "events > 0 and abs(phase - 12.5) < 1", values = { phase = "chopper" }, wait = "100 ms" }
//! ```
//! A name under `values` is a stream of `f144`, or `{ stream = "devices", source = "PHASE" }`: its value is the newest one
//! whose time is not after that of the message. A message is held until that stream has said something later, or for
//! `wait` after its arrival: so long a value may be on its way.
//!
//! Constraints: of each stream beside the newest 65,536 values are known. A message of which the expression asks for what
//! is not there goes aside, as `unknown`.

use super::expression::{Asked, Expression, Kind, Value};
use super::parameters::Parameters;
use super::{Needs, unreadable};
use crate::Fault;
use crate::data::{Data, stream_fault};
use crate::slot::{Outputs, Stop, Worker};
use std::collections::VecDeque;
use std::time::Duration;
use store::{Batch, Error, Message, ReadOptions, Reader};
use wire::{Numbers, Scalar};

/// Values of a stream beside that are known: an hour of 18 a second.
const KNOWN_MAX: usize = 65_536;
/// How long a value may be on its way, where nobody says, ns.
const WAIT: i64 = 100_000_000;
/// The longest such time, ns: beyond it a slot looks dead.
const WAIT_MAX: i64 = 10_000_000_000;

/// What a message says of itself.
const NAMES: [(&str, Kind); 13] = [
    ("time", Kind::Number),
    ("arrival", Kind::Number),
    ("number", Kind::Number),
    ("bytes", Kind::Number),
    ("flags", Kind::Number),
    ("schema", Kind::Text),
    ("origin", Kind::Text),
    ("source", Kind::Text),
    ("events", Kind::Number),
    ("pulses", Kind::Number),
    ("value", Kind::Number),
    ("id", Kind::Number),
    ("pixels", Kind::Number),
];

/// A stream beside the input.
#[derive(Clone, Debug, PartialEq)]
struct Named {
    name: String,
    stream: String,
    source: Option<String>,
}

/// What a filter is to do.
pub(super) struct Plan {
    keep: Expression,
    values: Vec<Named>,
    wait: i64,
}

impl Plan {
    pub(super) fn read(given: &mut Parameters<'_>) -> Option<Self> {
        let mut values = Vec::new();
        match given.value("values") {
            None => {}
            Some(serde_json::Value::Object(named)) => {
                for (name, value) in named {
                    let text = |key: &str| value[key].as_str().map(str::to_owned);
                    let is_name = name.starts_with(|c: char| c.is_alphabetic())
                        && name.chars().all(|c| c.is_alphanumeric() || c == '_');
                    if !is_name || NAMES.iter().any(|n| n.0 == name) {
                        let hint = "write a word of letters, digits and `_` that is not one of a message's own";
                        given.mistake("values", format!("`{name}` cannot stand in an expression"), hint);
                    }
                    match value.as_str().map(str::to_owned).or_else(|| text("stream")) {
                        Some(stream) => values.push(Named { name: name.clone(), stream, source: text("source") }),
                        None => {
                            let hint = "write the name of a stream, or `{ stream = \"devices\", source = \"PHASE\" }`";
                            given.mistake("values", format!("`{name}` is {value}"), hint);
                        }
                    }
                }
            }
            Some(other) => {
                given.mistake("values", format!("it is {other}"), "write a table, like `{ phase = \"chopper\" }`");
            }
        }
        let wait = given.time("wait").unwrap_or(WAIT);
        if !(0..=WAIT_MAX).contains(&wait) {
            given.mistake("wait", "it is too long, or negative", "write a time up to `\"10 s\"`");
        }
        let own = NAMES.iter().map(|(name, kind)| ((*name).to_owned(), *kind));
        let names: Vec<_> = own.chain(values.iter().map(|v: &Named| (v.name.clone(), Kind::Number))).collect();
        match given.value("keep").map(|keep| keep.as_str().ok_or(keep)) {
            None => given.mistake("keep", "it is not there", "write which messages to keep: `keep = \"events > 0\"`"),
            Some(Err(other)) => {
                given.mistake("keep", format!("it is {other}"), "write an expression, like `\"events > 0\"`");
            }
            Some(Ok(text)) => match Expression::read(text, &names) {
                Ok(keep) => return Some(Self { keep, values, wait }),
                Err(wrong) => {
                    let cause = format!("character {}: {}", wrong.at + 1, wrong.cause);
                    given.mistake("keep", cause, wrong.hint);
                }
            },
        }
        None
    }

    pub(super) fn needs(&self) -> Needs {
        let streams = self.values.iter().map(|v| (format!("values.{}", v.name), v.stream.clone())).collect();
        Needs { streams, ..Needs::default() }
    }
}

/// A stream beside, as far as it was read.
struct Beside {
    named: Named,
    reader: Reader,
    /// (time, value), by time.
    known: VecDeque<(i64, f64)>,
    newest: i64,
    is_placed: bool,
}

/// A filter at work.
pub(super) struct Filter {
    keep: Expression,
    wait: i64,
    besides: Vec<Beside>,
    data: Data,
}

impl Filter {
    pub(super) fn new(data: &Data, plan: Plan) -> Result<Self, Fault> {
        let beside = |named: Named| {
            let reader = data.reader(&named.stream, ReadOptions { early: true, ..ReadOptions::default() })?;
            Ok(Beside { named, reader, known: VecDeque::new(), newest: i64::MIN, is_placed: false })
        };
        let besides = plan.values.into_iter().map(beside).collect::<Result<_, Fault>>()?;
        Ok(Self { keep: plan.keep, wait: plan.wait, besides, data: data.clone() })
    }
}

impl Worker for Filter {
    fn work(&mut self, batch: &Batch<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        let Self { keep, wait, besides, data } = self;
        for message in batch.iter() {
            if !out.wants(&message) {
                continue;
            }
            out.begin(&message);
            // Counted down by what was waited, not by the clock: that may be set back.
            let arrival = message.entry.arrival_time;
            let mut left = arrival.saturating_add(*wait).saturating_sub(data.media.now()).clamp(0, *wait);
            let origin = out.origin_names().get(message.entry.origin as usize).cloned().unwrap_or_default();
            let mut lookup = |asked: Asked<'_>| match asked {
                Asked::Name(name) => match besides.iter_mut().find(|b| b.named.name == name) {
                    Some(beside) => beside.at(message.entry.source_time, &mut left).map(Value::Number),
                    None => own(&message, &origin, name),
                },
                Asked::Attribute(name) => attribute(&message, name),
            };
            match keep.is_true(&mut lookup) {
                Ok(true) => {
                    out.same(&message)?;
                }
                Ok(false) => out.filtered(&message),
                Err(why) => out.aside(&message, "unknown", &why)?,
            }
        }
        Ok(())
    }
}

impl Beside {
    /// The value at a time. `left`: ns that may be waited for it; what was waited is taken off.
    fn at(&mut self, time: i64, left: &mut i64) -> Result<f64, String> {
        const NAP: i64 = 20_000_000;
        let failed = |stream: &str, error| stream_fault(stream, error).to_string();
        if !self.is_placed {
            // What counts at the first message may be long ago.
            let until = self.reader.time_range(i64::MIN, time.saturating_add(1));
            let (_, next) = until.map_err(|e| failed(&self.named.stream, e))?;
            self.reader.seek(next.saturating_sub(KNOWN_MAX as u64).max(self.reader.bounds().first));
            self.is_placed = true;
        }
        loop {
            self.read(time).map_err(|e| failed(&self.named.stream, e))?;
            if self.newest > time || *left <= 0 {
                break;
            }
            let nap = NAP.min(*left);
            *left -= nap;
            self.reader.wait(Duration::from_nanos(nap as u64)).map_err(|e| failed(&self.named.stream, e))?;
            self.reader.look_again().map_err(|e| failed(&self.named.stream, e))?;
        }
        let after = self.known.partition_point(|known| known.0 <= time);
        match after.checked_sub(1).and_then(|at| self.known.get(at)) {
            Some((_, value)) => Ok(*value),
            None => Err(format!(
                "`{}` has no value: stream `{}` has none at {time} ns or before",
                self.named.name, self.named.stream
            )),
        }
    }

    /// Reads on until there is something later than a time, or nothing more.
    fn read(&mut self, time: i64) -> store::Result<()> {
        while self.newest <= time {
            let from = self.reader.position();
            match self.reader.read(256) {
                Ok(batch) if batch.is_empty() => break,
                Ok(batch) => {
                    for message in batch.iter() {
                        let Ok(value) = wire::f144::read(message.payload) else { continue };
                        let wire::f144::Value::Scalar(number) = value.value else { continue };
                        if self.named.source.as_ref().is_some_and(|source| source != value.source_name) {
                            // It may be silent while others speak: they say how far the stream is all the same.
                            self.newest = self.newest.max(message.entry.source_time);
                            continue;
                        }
                        let at = message.entry.source_time;
                        self.newest = self.newest.max(at);
                        let place = self.known.partition_point(|known| known.0 <= at);
                        self.known.insert(place, (at, number.to_f64()));
                        if self.known.len() > KNOWN_MAX {
                            self.known.pop_front();
                        }
                    }
                }
                Err(Error::Gone { first }) => self.reader.seek(first),
                Err(Error::Corrupt { sequence, .. }) => self.reader.seek(sequence.max(from) + 1),
                Err(Error::Lost { end, .. }) => self.reader.seek(end.max(from + 1)),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// What a message says of itself.
fn own(message: &Message<'_>, origin: &str, name: &str) -> Result<Value, String> {
    let (entry, payload) = (message.entry, message.payload);
    let schema = entry.schema.as_text();
    let number = |value: f64| Ok(Value::Number(value));
    let absent = || Err(format!("a message of schema {schema} has no `{name}`"));
    match name {
        "time" => number(entry.source_time as f64),
        "arrival" => number(entry.arrival_time as f64),
        "number" => number(entry.origin_seq as f64),
        "bytes" => number(f64::from(entry.length)),
        "flags" => number(f64::from(entry.flags)),
        "schema" => Ok(Value::Text(schema)),
        "origin" => Ok(Value::Text(origin.to_owned())),
        _ => match entry.schema.0 {
            wire::ev44::ID => {
                let events = wire::ev44::read(payload).map_err(unreadable)?;
                match name {
                    "source" => Ok(Value::Text(events.source_name.to_owned())),
                    "events" => number(events.events() as f64),
                    "pulses" => number(events.reference_time.len() as f64),
                    _ => absent(),
                }
            }
            wire::f144::ID => {
                let value = wire::f144::read(payload).map_err(unreadable)?;
                match (name, value.value) {
                    ("source", _) => Ok(Value::Text(value.source_name.to_owned())),
                    ("value", wire::f144::Value::Scalar(scalar)) => number(scalar.to_f64()),
                    _ => absent(),
                }
            }
            wire::ad00::ID => {
                let frame = wire::ad00::read(payload).map_err(unreadable)?;
                match name {
                    "source" => Ok(Value::Text(frame.source_name.to_owned())),
                    "id" => number(f64::from(frame.id)),
                    "pixels" => number(frame.data.len() as f64),
                    _ => absent(),
                }
            }
            wire::da00::ID if name == "source" => {
                wire::da00::read(payload).map(|data| Value::Text(data.source_name.to_owned())).map_err(unreadable)
            }
            _ => absent(),
        },
    }
}

/// An attribute of a frame: a number, or text.
fn attribute(message: &Message<'_>, name: &str) -> Result<Value, String> {
    if message.entry.schema.0 != wire::ad00::ID {
        return Err(format!("a message of schema {} has no attributes", message.entry.schema.as_text()));
    }
    let frame = wire::ad00::read(message.payload).map_err(unreadable)?;
    let found = frame.attributes.iter().find(|attribute| attribute.name == name).map(|a| value_of(&a.data));
    match found {
        Some(Some(value)) => Ok(value),
        Some(None) => Err(format!("attribute `{name}` is no single number and no text")),
        None => Err(format!("the frame has no attribute `{name}`")),
    }
}

fn value_of(data: &Numbers<'_>) -> Option<Value> {
    match data.as_text() {
        Some(text) => Some(Value::Text(text.to_owned())),
        None if data.len() == 1 => data.get(0).map(Scalar::to_f64).map(Value::Number),
        None => None,
    }
}
