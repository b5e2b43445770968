//! `f144`, and the numbers of `f142`, as NXlog: values, times, cues; least, greatest and mean at the end.
//!
//! An array of numbers is a row; the first message says how long, and later ones of another length are unfit.

use super::keys::{CUE_SECONDS, DTYPE, TYPE, UNIT, VALUE_UNITS};
use super::kind::{About, Module, ModuleKind, Plan, When};
use super::{Cues, Fixed, Order, Rows, SCHEMA, Target, UNFIT, convert, log_designs, unit};
use crate::hdf::column::{Column, Design};
use crate::hdf::h5::Cell;
use crate::hdf::value::Data;
use serde_json::{Value, json};
use settings::{Key, key};
use std::hint::black_box;
use std::sync::Arc;
use store::Entry;
use wire::{DType, Message, Scalar, f142, f144};

const VALUE: usize = 0;
const TIME: usize = 1;
const CUE: usize = 2;

static META_DATA: Key = key(
    "meta_data",
    "`true` or `false`",
    "`true`",
    "Whether to write `minimum_value`, `maximum_value` and `average_value` at the end.",
);

pub(super) static F144: ModuleKind = ModuleKind {
    synonyms: &["f142"],
    origin: Some(|message| match message {
        Message::F144(m) => Some(m.source_name),
        Message::F142(m) => Some(m.source_name),
        _ => None,
    }),
    keys: &[&DTYPE, &TYPE, &VALUE_UNITS, &UNIT, &CUE_SECONDS, &META_DATA],
    holds_on: When::Always,
    repeats: When::Always,
    has_neighbours: true,
    about: About {
        rules: &["A log of arrays has no `minimum_value`, `maximum_value` and `average_value`."],
        late: &[
            ("minimum_value", AT_THE_END, UNITS_OF_VALUE),
            ("maximum_value", AT_THE_END, UNITS_OF_VALUE),
            ("average_value", AT_THE_END, UNITS_OF_VALUE),
        ],
        ..About::NONE
    },
    ..ModuleKind::new("f144", &[wire::f144::ID, wire::f142::ID], "NXlog", |settings| {
        Some(Arc::new(LogPlan {
            dtype: settings.number().unwrap_or(DType::Float64),
            units: settings.units().to_owned(),
            has_meta_data: settings.flag(&META_DATA) != Some(false),
        }))
    })
};

const AT_THE_END: &str = "`float64`, once, at the end";
const UNITS_OF_VALUE: &str = "`units`: those of `value`";

#[derive(Debug)]
struct LogPlan {
    /// Type of the values in the file.
    dtype: DType,
    /// Their unit; empty where unknown.
    units: String,
    /// Least, greatest and mean are written at the end.
    has_meta_data: bool,
}

impl Plan for LogPlan {
    fn datasets(&self, _module: &Module) -> Vec<&str> {
        let mut names = vec!["value", "time", "cue_index", "cue_timestamp_zero"];
        if self.has_meta_data {
            names.extend(["minimum_value", "maximum_value", "average_value"]);
        }
        names
    }

    fn begin(&self, path: &str, module: &Module) -> (Vec<Design>, Box<dyn Rows>) {
        let &Self { dtype, ref units, has_meta_data } = self;
        let mut designs = log_designs(path, Some(dtype), units);
        // The ESS file writer writes empty units too.
        let of_values = if module.is_ess() { vec![("units", Data::text(units))] } else { unit(units) };
        designs[VALUE].attributes.clone_from(&of_values);
        (designs, Box::new(Log::new(dtype, of_values, has_meta_data)))
    }

    fn units(&self) -> Option<&str> {
        Some(&self.units)
    }
}

struct Log {
    dtype: DType,
    /// Of the values, and of least, greatest and mean.
    units: Vec<(&'static str, Data)>,
    /// Whether least, greatest and mean are wanted.
    meta_data: bool,
    cues: Cues,
    /// Over the numbers that are numbers.
    least: f64,
    greatest: f64,
    sum: f64,
    count: u64,
    bytes: Vec<u8>,
}

impl Log {
    fn new(dtype: DType, units: Vec<(&'static str, Data)>, meta_data: bool) -> Self {
        Self {
            dtype,
            meta_data,
            units,
            cues: Cues::default(),
            least: f64::INFINITY,
            greatest: f64::NEG_INFINITY,
            sum: 0.0,
            count: 0,
            bytes: Vec::new(),
        }
    }

    fn add(&mut self, columns: &mut [Column], value: &f144::Value<'_>, time: i64) -> Result<(), &'static str> {
        self.bytes.clear();
        let row: &[u64] = match *value {
            f144::Value::Scalar(value) => {
                if !convert::put(&mut self.bytes, value, self.dtype) {
                    return Err(UNFIT);
                }
                &[]
            }
            f144::Value::Array(values) => {
                // A row without values has no bytes, and a dataset of such rows no chunks.
                if values.is_empty() || !values.iter().all(|value| convert::put(&mut self.bytes, value, self.dtype)) {
                    return Err(UNFIT);
                }
                &[values.len() as u64]
            }
        };
        if !columns[VALUE].become_rows_of(Cell::Number(self.dtype), row) {
            return Err(UNFIT);
        }
        if let f144::Value::Scalar(value) = *value {
            self.see(value);
        }
        self.cues.see(columns, CUE, time, columns[TIME].rows());
        columns[VALUE].extend(&self.bytes);
        columns[TIME].extend(&time.to_le_bytes());
        Ok(())
    }

    fn see(&mut self, value: Scalar) {
        let value = value.to_f64();
        if !value.is_nan() {
            self.least = self.least.min(value);
            self.greatest = self.greatest.max(value);
            self.sum += value;
            self.count += 1;
        }
    }
}

impl Rows for Log {
    fn fetch(&self) {
        black_box((self.dtype, self.cues.last, self.least, self.count, self.bytes.len()));
    }

    fn take(&mut self, place: &mut Target<'_>, message: &Message<'_>, _: &Entry) -> Result<(), &'static str> {
        match message {
            Message::F144(m) => self.add(place.columns, &m.value, m.timestamp),
            Message::F142(m) => match &m.value {
                f142::Value::Number(value) => {
                    self.add(place.columns, value, i64::try_from(m.timestamp).map_err(|_| UNFIT)?)
                }
                f142::Value::Text(_) | f142::Value::Texts(_) => Err(UNFIT),
            },
            _ => Err(SCHEMA),
        }
    }

    fn last_words(&self, path: &str) -> Vec<Fixed> {
        if self.count == 0 || !self.meta_data {
            return Vec::new();
        }
        let mean = self.sum / self.count as f64;
        [("minimum_value", self.least), ("maximum_value", self.greatest), ("average_value", mean)]
            .into_iter()
            .map(|(name, value)| {
                (format!("{path}/{name}"), Data::number(DType::Float64, &value.to_le_bytes()), self.units.clone())
            })
            .collect()
    }

    /// Reals as their bits: JSON text would round them, and a resumed file must not differ.
    fn order(&self) -> Option<Order> {
        Some(Order::of_rows(TIME, Some(CUE)))
    }

    fn cues(&mut self) -> Option<&mut Cues> {
        Some(&mut self.cues)
    }

    fn state(&self) -> Value {
        json!([self.cues.state(), self.count, self.least.to_bits(), self.greatest.to_bits(), self.sum.to_bits()])
    }

    fn resume(&mut self, state: &Value) -> Option<()> {
        self.cues.resume(&state[0])?;
        self.count = state[1].as_u64()?;
        self.least = f64::from_bits(state[2].as_u64()?);
        self.greatest = f64::from_bits(state[3].as_u64()?);
        self.sum = f64::from_bits(state[4].as_u64()?);
        Some(())
    }
}
