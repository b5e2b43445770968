//! `hs01` and `hs00` as NXdata: `data` with one more index, the message; `errors` where they come; time; the edges of the
//! bins of each dimension as `axis_0`, `axis_1`... with the label as `long_name`.
//!
//! A histogram is a `da00` whose variables its first message says ([`Arrays`]): shape, edges, and whether there are errors
//! must then stay what they were. The datasets have names of ours, as a label is any text and may be the name of another.

use super::arrays::{self, Arrays, ERRORS, NO_AXIS};
use super::keys::CUE_SECONDS;
use super::kind::{About, Module, ModuleKind, Plan, Variable};
use super::{BROKEN, Cues, Late, Order, Rows, SCHEMA, Target, UNFIT};
use crate::hdf::column::{Column, Design};
use crate::hdf::value::Data;
use serde_json::{Value, json};
use std::sync::Arc;
use store::Entry;
use wire::da00::{self, Da00};
use wire::{List, Message, Numbers, hs00, hs01};

const DATA: &str = "data";

fn variable(name: &str) -> Variable {
    Variable { name: name.to_owned(), ..Variable::default() }
}

/// Names of the edges of the bins, by dimension; a histogram has no more dimensions than these.
const AXES: [&str; 8] = ["axis_0", "axis_1", "axis_2", "axis_3", "axis_4", "axis_5", "axis_6", "axis_7"];

const FIRST: &str = "with the first message";
const OF_MESSAGE: &str = "`units`, `long_name`: those of the message";

pub(super) static HS01: ModuleKind = ModuleKind {
    synonyms: &["hs00"],
    origin: Some(|message| match message {
        Message::Hs01(m) => Some(m.source),
        Message::Hs00(m) => Some(m.source),
        _ => None,
    }),
    keys: &[&CUE_SECONDS],
    has_free_names: true,
    about: About {
        typed_by_message: &[DATA, ERRORS],
        late_attributes: &[(DATA, "`units`: `counts`")],
        late: &[
            (ERRORS, FIRST, "`units`: `counts`"),
            (AXES[0], FIRST, OF_MESSAGE),
            (AXES[1], FIRST, OF_MESSAGE),
            (AXES[2], FIRST, OF_MESSAGE),
            (AXES[3], FIRST, OF_MESSAGE),
            (AXES[4], FIRST, OF_MESSAGE),
            (AXES[5], FIRST, OF_MESSAGE),
            (AXES[6], FIRST, OF_MESSAGE),
            (AXES[7], FIRST, OF_MESSAGE),
        ],
        ..About::NONE
    },
    ..ModuleKind::new("hs01", &[wire::hs01::ID, wire::hs00::ID], "NXdata", |_| Some(Arc::new(HistogramsPlan)))
};

#[derive(Debug)]
struct HistogramsPlan;

impl Plan for HistogramsPlan {
    fn datasets(&self, _module: &Module) -> Vec<&str> {
        let mut names = vec!["time", "cue_index", "cue_timestamp_zero", DATA, ERRORS];
        names.extend(AXES);
        names
    }

    fn begin(&self, path: &str, _module: &Module) -> (Vec<Design>, Box<dyn Rows>) {
        (arrays::designs(path, &[variable(DATA)]), Box::new(Histograms::new()))
    }

    /// The attributes of the NXdata that are known before the first message.
    fn attributes(&self, _module: &Module) -> Vec<(String, Data)> {
        arrays::group_attributes(&[variable(DATA)], &[])
    }
}

struct Histograms {
    arrays: Arrays,
}

/// A histogram of either schema.
struct Histogram<'a> {
    time: i64,
    shape: Vec<i64>,
    dimensions: Vec<Dimension<'a>>,
    data: Numbers<'a>,
    errors: Option<Numbers<'a>>,
}

struct Dimension<'a> {
    unit: &'a str,
    label: &'a str,
    edges: Option<Numbers<'a>>,
    /// Of the edges.
    shape: [i64; 1],
}

/// The two schemas differ in the types of their whole numbers only.
macro_rules! histogram {
    ($message:expr) => {{
        let message = $message;
        let length = |length| i64::try_from(length).map_err(|_| UNFIT);
        let shape: Vec<i64> = message.current_shape.iter().map(length).collect::<Result<_, _>>()?;
        // A part of a larger histogram.
        if message.offset.iter().any(|first| first != 0) {
            return Err(UNFIT);
        }
        let mut dimensions = Vec::new();
        for (at, one) in message.dim_metadata.iter().enumerate() {
            if shape.get(at) != Some(&length(one.length)?) {
                return Err(if message.dim_metadata.len() == shape.len() { UNFIT } else { BROKEN });
            }
            let edges = one.bin_boundaries.filter(|edges| !edges.is_empty());
            let count = edges.map_or(0, |edges| edges.len() as i64);
            dimensions.push(Dimension { unit: one.unit, label: one.label, edges, shape: [count] });
        }
        Histogram {
            time: i64::try_from(message.timestamp).map_err(|_| UNFIT)?,
            shape,
            dimensions,
            data: message.data.ok_or(UNFIT)?,
            // Senders without errors send an empty array.
            errors: message.errors.filter(|errors| !errors.is_empty()),
        }
    }};
}

impl Histogram<'_> {
    fn check(&self) -> Result<(), &'static str> {
        let cells = self.shape.iter().try_fold(1_usize, |all, length| all.checked_mul(usize::try_from(*length).ok()?));
        if cells != Some(self.data.len()) || self.errors.is_some_and(|errors| errors.len() != self.data.len()) {
            return Err(BROKEN);
        }
        if !self.dimensions.is_empty() && self.dimensions.len() != self.shape.len() {
            return Err(BROKEN);
        }
        // One edge more than there are bins, or the middle of each.
        let of_another = self.dimensions.iter().zip(&self.shape).any(|(dimension, bins)| {
            dimension.edges.is_some() && ![*bins, bins.saturating_add(1)].contains(&dimension.shape[0])
        });
        if of_another {
            return Err(BROKEN);
        }
        if self.data.is_empty() || self.shape.len() > AXES.len() { Err(UNFIT) } else { Ok(()) }
    }
}

impl Histograms {
    fn new() -> Self {
        Self { arrays: Arrays::new(&[variable(DATA)], &[], false) }
    }

    fn add(&mut self, place: &mut Target<'_>, histogram: &Histogram<'_>) -> Result<(), &'static str> {
        histogram.check()?;
        let has_edges = |at: usize| histogram.dimensions.get(at).is_some_and(|one| one.edges.is_some());
        let axes: Vec<&str> =
            (0..histogram.shape.len()).map(|at| if has_edges(at) { AXES[at] } else { NO_AXIS }).collect();
        let make = |name, unit, axes, shape, data| da00::Variable {
            name,
            unit: Some(unit),
            label: None,
            source: None,
            axes: List::Borrowed(axes),
            shape,
            data,
        };
        let mut data = vec![make(DATA, "counts", &axes[..], (&histogram.shape).into(), histogram.data)];
        data.extend(
            histogram.errors.map(|errors| make(ERRORS, "counts", &axes[..], (&histogram.shape).into(), errors)),
        );
        for (at, dimension) in histogram.dimensions.iter().enumerate() {
            let Some(edges) = dimension.edges else { continue };
            let mut one = make(AXES[at], dimension.unit, &AXES[at..=at], (&dimension.shape).into(), edges);
            one.label = Some(dimension.label);
            data.push(one);
        }
        let message = Da00 { source_name: "", timestamp: histogram.time, data: data.into() };

        if self.arrays.is_known() {
            // Edges that were not there would else be looked past.
            let (errors, constants) = (self.arrays.variables.len() > 1, self.arrays.constants.len());
            let edges = histogram.dimensions.iter().filter(|one| one.edges.is_some()).count();
            if errors != histogram.errors.is_some() || constants != edges {
                return Err(UNFIT);
            }
            return self.arrays.add(place, &message);
        }
        let known = place.columns.len();
        self.arrays.constants = axes.iter().filter(|axis| **axis != NO_AXIS).map(|axis| variable(axis)).collect();
        if histogram.errors.is_some() {
            self.arrays.variables.push(variable(ERRORS));
            place.columns.push(Column::late(arrays::variable_design(place.path, &variable(ERRORS)), &[], 0));
        }
        let answer = self.arrays.add(place, &message);
        if answer.is_err() {
            // It was not the first after all.
            *self = Self::new();
            place.columns.truncate(known);
            return answer;
        }
        // A histogram that was the first before a restart, and came behind the last commit, may have had others.
        let has = |name: &str| self.arrays.variables.iter().chain(&self.arrays.constants).any(|one| one.name == name);
        let absent = AXES.into_iter().chain([ERRORS]).filter(|name| !has(name));
        place.late.extend(absent.map(|name| Late::Absent(place.path.to_owned(), name.to_owned())));
        answer
    }
}

impl Rows for Histograms {
    fn take(&mut self, place: &mut Target<'_>, message: &Message<'_>, _: &Entry) -> Result<(), &'static str> {
        match message {
            Message::Hs01(message) => self.add(place, &of_hs01(message)?),
            Message::Hs00(message) => self.add(place, &of_hs00(message)?),
            _ => Err(SCHEMA),
        }
    }

    fn order(&self) -> Option<Order> {
        Some(Order::of_rows(arrays::TIME, Some(arrays::CUE)))
    }

    fn late_designs(&self, path: &str) -> Vec<Design> {
        self.arrays.variables.iter().skip(1).map(|variable| arrays::variable_design(path, variable)).collect()
    }

    fn cues(&mut self) -> Option<&mut Cues> {
        Some(&mut self.arrays.cues)
    }

    fn state(&self) -> Value {
        let axes: Vec<&str> = self.arrays.constants.iter().map(|axis| axis.name.as_str()).collect();
        json!([self.arrays.state(), self.arrays.variables.len() > 1, axes])
    }

    fn resume(&mut self, state: &Value) -> Option<()> {
        self.arrays.resume(&state[0])?;
        if state[1].as_bool()? {
            self.arrays.variables.push(variable(ERRORS));
        }
        self.arrays.constants =
            state[2].as_array()?.iter().map(|axis| axis.as_str().map(variable)).collect::<Option<_>>()?;
        Some(())
    }
}

fn of_hs01<'a>(message: &hs01::Histogram<'a>) -> Result<Histogram<'a>, &'static str> {
    Ok(histogram!(message))
}

fn of_hs00<'a>(message: &hs00::Histogram<'a>) -> Result<Histogram<'a>, &'static str> {
    Ok(histogram!(message))
}
