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
//! Constraints: those of `beside.rs`. A message without a value that the expression needs is set aside as `unknown`.

use super::beside::{self, Beside, How, Named, Sample};
use super::expression::{Asked, Expression, Kind, Value};
use super::unreadable;
use flow::edge::{Needs, WorkerKind, WorkerPlace, WorkerPlan};
use flow::{Data, Fault, Outputs, Stop, Worker, device_of};
use settings::{Key, Refused, Section, Setting, key, required, shortened};
use std::sync::Arc;
use store::{Batch, Message};
use wire::{Numbers, Scalar};

/// A message's own properties.
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

static KEEP: Key = required("keep", "expression", "Which messages to pass on.");
static VALUES: Key = key(
    "values",
    "table",
    "{}",
    "Names for values of other streams (`f144`): `{ phase = \"chopper\" }`, or `{ phase = { stream = \"chopper\", source = \"PHASE\" } }` if several process variables share a stream.",
);
static WAIT: Key =
    key("wait", "time up to `10 s`", "100 ms", "How long to wait for such values after a message's arrival.");

/// `filter`
pub static FILTER: WorkerKind = WorkerKind {
    name: "filter",
    about: "Passes on messages for which an expression is true.",
    keys: &[&KEEP, &VALUES, &WAIT],
    read: |section| Some(Arc::new(Plan::read(section)?)),
    notes: include_str!("../pages/filter.md"),
};

/// The parameters of a filter.
#[derive(Clone, Debug)]
struct Plan {
    keep: Expression,
    values: Vec<Named>,
    wait: i64,
}

impl Plan {
    fn read(section: &mut Section<'_>) -> Option<Self> {
        let (name, stream, source) = (String::new(), String::new(), None);
        let usual = Named { name, stream, source, offset: 0, how: How::Hold, tolerance: i64::MAX };
        let values = Named::read_all(section, &VALUES, &usual);
        for Named { name, .. } in &values {
            let is_name =
                name.starts_with(|c: char| c.is_alphabetic()) && name.chars().all(|c| c.is_alphanumeric() || c == '_');
            if !is_name || NAMES.iter().any(|n| n.0 == name) {
                let cause = format!("`{}` cannot be used in an expression", shortened(name));
                let hint = "write a word of letters, digits and `_` that is not one of a message's own";
                section.refuse(&VALUES, Refused::new(cause, hint));
            }
        }
        let wait = beside::wait_of(section, &WAIT);
        let own = NAMES.iter().map(|(name, kind)| ((*name).to_owned(), *kind));
        let names: Vec<_> = own.chain(values.iter().map(|v: &Named| (v.name.clone(), Kind::Number))).collect();
        let keep: Setting<String> = section.get(&KEEP)?;
        match Expression::read(&keep, &names) {
            Ok(keep) => Some(Self { keep, values, wait }),
            Err(wrong) => {
                let cause = format!("character {}: {}", wrong.at + 1, wrong.cause);
                section.refuse(&KEEP, Refused::new(cause, wrong.hint));
                None
            }
        }
    }
}

impl WorkerPlan for Plan {
    fn needs(&self) -> Needs {
        Needs { streams: self.values.iter().map(|named| named.stream.clone()).collect(), ..Needs::default() }
    }

    fn build(&self, place: &WorkerPlace) -> Result<Box<dyn Worker + Send>, Fault> {
        Ok(Box::new(Filter::new(&place.data, self.clone())?))
    }
}

/// A filter at work.
struct Filter {
    keep: Expression,
    wait: i64,
    values: Vec<Named>,
    beside: Beside,
    data: Data,
}

impl Filter {
    fn new(data: &Data, plan: Plan) -> Result<Self, Fault> {
        let beside = Beside::open(data, None, &plan.values)?;
        Ok(Self { keep: plan.keep, wait: plan.wait, values: plan.values, beside, data: data.clone() })
    }
}

impl Worker for Filter {
    fn work(&mut self, batch: &Batch<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        let Self { keep, wait, values, beside, data } = self;
        for message in batch.iter() {
            if !out.wants(&message) {
                continue;
            }
            out.begin(&message);
            let mut left = beside::left(data, *wait, message.entry.arrival_time);
            let origin = out.origin_names().get(message.entry.origin as usize).cloned().unwrap_or_default();
            let mut lookup = |asked: Asked<'_>| match asked {
                Asked::Name(name) => match values.iter().position(|v| v.name == name) {
                    Some(which) => value(beside, &values[which], which, message.entry.source_time, &mut left),
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

    fn looks_at_payloads(&self) -> bool {
        true
    }

    fn keeps(&self) -> bool {
        false
    }
}

/// The value of a stream beside at a time.
fn value(beside: &mut Beside, named: &Named, which: usize, time: i64, left: &mut i64) -> Result<Value, String> {
    let found = beside.at(which, time, left).map_err(|fault| fault.to_string())?;
    match found {
        Some(Sample::Number(number)) => Ok(Value::Number(number.to_f64())),
        Some(Sample::Text(text)) => Ok(Value::Text(text.as_ref().to_owned())),
        Some(Sample::Array(..)) => Err(format!("`{}` is an array: stream `{}`", named.name, named.stream)),
        None => {
            Err(format!("`{}` has no value: stream `{}` has none at {time} ns or before", named.name, named.stream))
        }
    }
}

/// A message's own properties.
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
        "origin" => Ok(Value::Text(device_of(origin).to_owned())),
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
            wire::f142::ID if name == "source" => {
                wire::f142::read(payload).map(|text| Value::Text(text.source_name.to_owned())).map_err(unreadable)
            }
            // Other schemas have no source: such a message is not the one that is looked for.
            _ if name == "source" => Ok(Value::Text(String::new())),
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
        Some(None) => Err(format!("attribute `{name}` is neither a single number nor a text")),
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
