//! `sum`: data arrays (`da00`) are added since the stream began.
//!
//! The state is the last array itself, as that of a histogram since start. Each number of the sum follows from the one
//! before it and one message, so that it is the same to the last bit wherever a slot resumes: `errors` is the root of
//! the sum of squares of the errors before and those of the message.
//!
//! Failure behaviour: an array that does not fit is set aside, and the sum is as before.

use super::places::{StatePlaces, newest_array};
use super::{said, unreadable};
use flow::edge::{Needs, Sends, WorkerKind, WorkerPlace, WorkerPlan};
use flow::{Data, Fault, Made, Outputs, Stop, Worker, slot_stream, stream_fault};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Batch, Message};
use wire::da00::{Da00, Variable};
use wire::{DType, Numbers, Scalar};

/// `sum`
pub static SUM: WorkerKind = WorkerKind {
    name: "sum",
    about: "Adds data arrays (`da00`) since the stream began.",
    keys: &[],
    read: |_| Some(Arc::new(Plan)),
    notes: include_str!("../pages/sum.md"),
};

/// A sum has no parameters.
#[derive(Clone, Debug, PartialEq)]
struct Plan;

impl WorkerPlan for Plan {
    fn needs(&self) -> Needs {
        Needs {
            alone: Some("it adds all arrays since the start, so one slot must get all of them"),
            ..Needs::default()
        }
    }

    fn sends(&self, stage: &str) -> Option<Sends> {
        Some(Sends {
            maker: format!("worker `{stage}`"),
            schemas: vec!["da00".into()],
            variables: vec!["signal".into()],
            origins: vec![stage.to_owned()],
            units: Vec::new(),
        })
    }

    fn build(&self, place: &WorkerPlace) -> Result<Box<dyn Worker + Send>, Fault> {
        let WorkerPlace { data, stage, slot, .. } = place;
        Ok(Box::new(Adder {
            data: data.clone(),
            stream: slot_stream(stage, *slot),
            sum: Vec::new(),
            next: None,
            places: StatePlaces::open(data, stage, *slot, place.input())?,
            bytes: Vec::new(),
            said: BTreeMap::new(),
        }))
    }
}

/// Why a message cannot be added: a word and a text.
type Unfit = (&'static str, String);

/// How a variable is added.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    Plain,
    Squares,
    Axis,
}

impl Rule {
    fn of(name: &str) -> Self {
        match name {
            "signal" | "outside" | "variances" => Self::Plain,
            "errors" => Self::Squares,
            _ => Self::Axis,
        }
    }
}

/// The values of a variable.
#[derive(Clone, Debug, PartialEq)]
enum Values {
    Whole(Vec<i64>),
    Real(Vec<f64>),
    Same(DType, Vec<u8>),
}

/// A variable of the sum.
#[derive(Clone, Debug, PartialEq)]
struct Part {
    name: String,
    unit: Option<String>,
    label: Option<String>,
    source: Option<String>,
    axes: Vec<String>,
    shape: Vec<i64>,
    values: Values,
}

impl Part {
    fn of(variable: &Variable<'_>) -> Result<Self, Unfit> {
        let (data, text) = (&variable.data, |text: Option<&str>| text.map(str::to_owned));
        let values = match (Rule::of(variable.name), data.dtype()) {
            (Rule::Axis, dtype) => Values::Same(dtype, data.bytes().to_vec()),
            (_, DType::Text) => return Err(("signal", format!("`{}` is text", variable.name))),
            (Rule::Squares, _) | (_, DType::Float32 | DType::Float64) => {
                Values::Real(data.iter().map(Scalar::to_f64).collect())
            }
            _ => Values::Whole(data.iter().map(whole).collect::<Option<_>>().ok_or_else(|| overflow(variable.name))?),
        };
        Ok(Self {
            name: variable.name.to_owned(),
            unit: text(variable.unit),
            label: text(variable.label),
            source: text(variable.source),
            axes: variable.axes.iter().map(|axis| axis.to_string()).collect(),
            shape: variable.extent().iter().map(|length| *length as i64).collect(),
            values,
        })
    }

    /// The sum of two; the values of an axis are the same.
    fn plus(&self, other: &Self) -> Result<Self, Unfit> {
        let differs = || ("axes", format!("`{}` differs from that of the arrays before", self.name));
        if (&self.name, &self.unit, &self.axes, &self.shape) != (&other.name, &other.unit, &other.axes, &other.shape) {
            return Err(differs());
        }
        let is_squares = Rule::of(&self.name) == Rule::Squares;
        let values = match (&self.values, &other.values) {
            (Values::Whole(a), Values::Whole(b)) => {
                let sums = a.iter().zip(b).map(|(a, b)| a.checked_add(*b)).collect::<Option<_>>();
                Values::Whole(sums.ok_or_else(|| overflow(&self.name))?)
            }
            (Values::Real(a), Values::Real(b)) => {
                let add = |(a, b): (&f64, &f64)| if is_squares { (a * a + b * b).sqrt() } else { a + b };
                Values::Real(a.iter().zip(b).map(add).collect())
            }
            (same, other) if same == other => same.clone(),
            _ => return Err(differs()),
        };
        Ok(Self { values, ..self.clone() })
    }
}

fn overflow(name: &str) -> Unfit {
    ("overflow", format!("the sum of `{name}` is beyond 64 bits"))
}

fn whole(value: Scalar) -> Option<i64> {
    match value {
        Scalar::Int8(n) => Some(n.into()),
        Scalar::UInt8(n) => Some(n.into()),
        Scalar::Int16(n) => Some(n.into()),
        Scalar::UInt16(n) => Some(n.into()),
        Scalar::Int32(n) => Some(n.into()),
        Scalar::UInt32(n) => Some(n.into()),
        Scalar::Int64(n) => Some(n),
        Scalar::UInt64(n) => i64::try_from(n).ok(),
        Scalar::Float32(_) | Scalar::Float64(_) => None,
    }
}

/// The parts of an array.
fn parts_of(bytes: &[u8]) -> Result<Vec<Part>, Unfit> {
    let array = wire::da00::read(bytes).map_err(|e| ("unreadable", unreadable(e)))?;
    let parts = array.data.iter().map(|variable| Part::of(variable)).collect::<Result<Vec<_>, _>>()?;
    match parts.iter().any(|part| part.name == "signal") {
        true => Ok(parts),
        false => Err(("signal", "it has no variable `signal`".into())),
    }
}

/// A sum at work.
struct Adder {
    data: Data,
    stream: String,
    /// Empty before the first array.
    sum: Vec<Part>,
    /// The next message of the input that is to be added; none: what was added must be looked for.
    next: Option<u64>,
    /// Holds the arrays that are needed.
    places: StatePlaces,
    bytes: Vec<u8>,
    said: BTreeMap<&'static str, u64>,
}

impl Adder {
    /// The sum of all messages of the input below `before`, from the newest answer to such.
    fn find(&mut self, input: &[u8; 16], before: u64) -> Result<(), Fault> {
        let found = newest_array(&self.data, &self.stream, input, before).map_err(|e| stream_fault(&self.stream, e))?;
        let (at, bytes) = found.unwrap_or_default();
        self.sum = parts_of(&bytes).unwrap_or_default();
        self.next = Some(before);
        self.places.restart(at, before);
        Ok(())
    }

    /// Adds a message, or says why it cannot be added.
    fn add(&mut self, message: &Message<'_>) -> Result<(), Unfit> {
        if message.entry.schema.0 != wire::da00::ID {
            return Err(("schema", format!("it is {}, and a sum adds da00", message.entry.schema.as_text())));
        }
        let parts = parts_of(message.payload)?;
        if self.sum.is_empty() {
            self.sum = parts;
        } else if self.sum.len() == parts.len() {
            self.sum = self.sum.iter().zip(&parts).map(|(sum, part)| sum.plus(part)).collect::<Result<_, _>>()?;
        } else {
            return Err(("axes", format!("it has {} variables, and the sum {}", parts.len(), self.sum.len())));
        }
        *self.said.entry("arrays").or_default() += 1;
        Ok(())
    }

    /// Encodes the sum.
    fn array(&mut self, time: i64, maker: &str) -> Result<(), Fault> {
        let axes: Vec<Vec<&str>> = self.sum.iter().map(|part| part.axes.iter().map(String::as_str).collect()).collect();
        let variable = |(part, axes)| {
            let (part, axes): (&Part, &Vec<&str>) = (part, axes);
            Variable {
                name: &part.name,
                unit: part.unit.as_deref(),
                label: part.label.as_deref(),
                source: part.source.as_deref(),
                axes: axes.as_slice().into(),
                shape: (&part.shape).into(),
                data: match &part.values {
                    Values::Whole(values) => values.into(),
                    Values::Real(values) => values.into(),
                    Values::Same(dtype, bytes) => Numbers::new(*dtype, bytes).unwrap_or(Numbers::empty(*dtype)),
                },
            }
        };
        let variables: Vec<Variable<'_>> = self.sum.iter().zip(&axes).map(variable).collect();
        let array = Da00 { source_name: maker, timestamp: time, data: variables.as_slice().into() };
        wire::da00::write(&mut self.bytes, &array).map_err(|e| Fault::new("cannot encode a sum", e))
    }

    /// Pushes the sum as what was made of a message.
    fn push(&mut self, message: &Message<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        if self.sum.is_empty() {
            return Ok(());
        }
        self.array(message.entry.source_time, out.maker())?;
        let at = out.place();
        if let Err(stop) = out.push(message.entry, &Made::of(message.entry, wire::da00::ID), &[&self.bytes]) {
            // What was added of this batch is not in the stream: it is added anew.
            self.next = None;
            return Err(stop);
        }
        self.places.push(at, message.sequence + 1);
        Ok(())
    }
}

impl Worker for Adder {
    fn work(&mut self, batch: &Batch<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        let from = out.next().max(batch.first);
        // Behind what it has are messages that were never added; before it, what was given up.
        if self.next.is_none_or(|next| next > from) {
            self.find(&out.input(), from)?;
        }
        self.places.release();
        let mut last: Option<Message<'_>> = None;
        for message in batch.iter().filter(|message| message.sequence >= from) {
            if last.is_none() {
                out.begin(&message);
            }
            let Err((reason, text)) = self.add(&message) else {
                last = Some(message);
                continue;
            };
            if let Some(last) = last.take() {
                self.push(&last, out)?;
                out.done(&last);
                out.begin(&message);
            }
            // An array pushed before a message is set aside is in the stream, but not shown to readers.
            self.push(&message, out)?;
            if let Err(stop) = out.aside(&message, reason, &text) {
                self.next = None;
                return Err(stop);
            }
        }
        if let Some(last) = last {
            self.push(&last, out)?;
            out.done(&last);
        }
        self.next = Some(batch.next());
        Ok(())
    }

    fn looks_at_payloads(&self) -> bool {
        true
    }

    fn keeps(&self) -> bool {
        true
    }

    fn statistics(&mut self) -> String {
        said(&self.said)
    }
}
