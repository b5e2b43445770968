//! `da00` as NXdata: each variable a dataset with one more index, time; each constant once.
//!
//! A message whose shape, names or axes are not those of the first is unfit as a whole: a histogram under the wrong axis
//! is worse than one that stands aside. In the layout of ESS a variable that a message lacks is filled.
//!
//! A number alone, which comes as one value without axes, is a row without dimensions.

use super::{Cues, Fixed, Late, Order, Place, Rows, SCHEMA, UNFIT, convert, design, first_index, ns_since, number};
use crate::column::{Column, Design};
use crate::h5::Cell;
use crate::limits::{CHUNK_BYTES_MIN, ROW_BYTES_MAX};
use crate::template::{Data, DataType, Values, Variable};
use serde_json::{Value, json};
use store::Entry;
use wire::da00::{self, Da00};
use wire::{DType, Message};

pub(super) const TIME: usize = 0;
pub(super) const CUE: usize = 1;
const FIRST: usize = 3;

pub(super) fn designs(path: &str, variables: &[Variable]) -> Vec<Design> {
    let mut all = vec![
        design(path, "time", DType::Int64, ns_since("start")),
        design(path, "cue_index", DType::UInt64, Vec::new()),
        design(path, "cue_timestamp_zero", DType::Int64, ns_since("start")),
    ];
    all.extend(variables.iter().map(|variable| variable_design(path, variable, part(variables, variable))));
    all
}

pub(super) fn variable_design(path: &str, variable: &Variable, part: Part) -> Design {
    let dtype = number(variable.dtype).unwrap_or(DType::Float64);
    let mut one = design(path, &variable.name, dtype, attributes(variable, None, part));
    one.row = variable.shape.clone().unwrap_or_default();
    one.least = CHUNK_BYTES_MIN;
    one
}

/// Unit, label and axes, from the template or else the message. What the group says of its signal and its axes stands
/// there alone: `axes` of a dataset is the form before 2014, at which punx stumbles.
fn attributes(variable: &Variable, message: Option<&da00::Variable<'_>>, part: Part) -> Vec<(&'static str, Data)> {
    let mut out = Vec::new();
    let unit = variable.unit.as_deref().or(message.and_then(|m| m.unit));
    let label = variable.label.as_deref().or(message.and_then(|m| m.label));
    let axes = axes(variable, message);
    out.extend(unit.filter(|u| !u.is_empty()).map(|u| ("units", text(u))));
    out.extend(label.filter(|l| !l.is_empty()).map(|l| ("long_name", text(l))));
    if let Some(mut axes) = axes {
        if part == Part::Beside {
            axes.insert(0, "time".into());
        }
        let is_said = part == Part::Signal || part == Part::Constant && axes == [variable.name.as_str()];
        if !axes.is_empty() && !is_said {
            out.push(("axes", Data::texts(axes)));
        }
    }
    out
}

/// What a dataset is in its group.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Part {
    Signal,
    /// Another one with a row a message.
    Beside,
    Constant,
}

fn part(variables: &[Variable], variable: &Variable) -> Part {
    if signal(variables) == Some(variable) { Part::Signal } else { Part::Beside }
}

/// A text of a message: HDF5 ends it at a NUL.
fn text(text: &str) -> Data {
    Data::text(text.split('\0').next().unwrap_or_default())
}

/// From the template, or else the message, unless that names more or fewer than it has: a file would say them wrong.
fn axes(variable: &Variable, message: Option<&da00::Variable<'_>>) -> Option<Vec<String>> {
    let message = message.filter(|m| m.axes.len() == m.shape.len());
    let sent = || message.map(|m| m.axes.iter().map(|a| a.split('\0').next().unwrap_or_default().to_owned()).collect());
    variable.axes.clone().or_else(sent)
}

/// `signal` and `axes` of the NXdata, as far as the template says.
pub(super) fn group_attributes(variables: &[Variable], constants: &[Variable]) -> Vec<(String, Data)> {
    let Some(signal) = signal(variables) else { return Vec::new() };
    let mut out = vec![("signal".to_owned(), Data::text(&signal.name))];
    if let Some(axes) = &signal.axes {
        out.extend(nxdata_axes(axes, constants));
    }
    out
}

fn signal(variables: &[Variable]) -> Option<&Variable> {
    variables.iter().find(|v| v.name == "signal").or(variables.first())
}

/// `axes` of the group, and for each constant that is an axis the index of its dimension.
fn nxdata_axes(axes: &[String], constants: &[Variable]) -> Vec<(String, Data)> {
    let all: Vec<String> = std::iter::once("time".to_owned()).chain(axes.iter().cloned()).collect();
    let mut out = vec![first_index("time")];
    for constant in constants {
        if let Some(at) = all.iter().position(|axis| *axis == constant.name) {
            out.push((format!("{}_indices", constant.name), Data::number(DType::Int64, &(at as i64).to_le_bytes())));
        }
    }
    out.push(("axes".to_owned(), Data::texts(all)));
    out
}

pub(super) struct Arrays {
    pub(super) variables: Vec<Variable>,
    pub(super) constants: Vec<Variable>,
    /// Variables that a message lacks are filled.
    fills: bool,
    pub(super) cues: Cues,
    /// Checksum of the constants that the messages bring, once the first has come.
    brought: Option<u32>,
    bytes: Vec<u8>,
}

impl Arrays {
    pub(super) fn new(variables: &[Variable], constants: &[Variable], fills: bool) -> Self {
        Self {
            variables: variables.to_vec(),
            constants: constants.to_vec(),
            fills,
            cues: Cues::default(),
            brought: None,
            bytes: Vec::new(),
        }
    }

    /// Whether a message has said what the template did not.
    pub(super) fn is_known(&self) -> bool {
        self.brought.is_some()
    }

    pub(super) fn add(&mut self, place: &mut Place<'_>, message: &Da00<'_>) -> Result<(), &'static str> {
        let Place { path, columns, late } = place;
        let find = |name: &str| message.data.iter().find(|v| v.name == name);
        if !self.variables.is_empty() && self.variables.iter().all(|variable| find(&variable.name).is_none()) {
            return Err(UNFIT);
        }
        let constants: Vec<(&Variable, &da00::Variable<'_>)> =
            self.constants.iter().filter(|c| c.data.is_none()).filter_map(|c| Some((c, find(&c.name)?))).collect();
        let brought =
            constants.iter().fold(0, |crc, (_, v)| crc ^ store::crc32c(v.data.bytes()).rotate_left(crc % 31 + 1));
        if self.brought.is_some_and(|known| known != brought) {
            return Err(UNFIT);
        }
        let mut fixed = Vec::new();
        for (constant, sent) in &constants {
            let value = constant_data(constant, sent).ok_or(UNFIT)?;
            fixed.push(Late::Dataset((
                format!("{path}/{}", constant.name),
                value,
                attributes(constant, Some(sent), Part::Constant),
            )));
        }
        // All rows are made before the first is added.
        let mut rows: Vec<(usize, DType, Vec<u64>, std::ops::Range<usize>)> = Vec::new();
        self.bytes.clear();
        for (at, variable) in self.variables.iter().enumerate() {
            let column = &columns[FIRST + at];
            let dtype = match column.design.cell {
                Cell::Number(known) if column.rows() > 0 => Some(known),
                _ => number(variable.dtype),
            };
            let wanted = if column.rows() > 0 { Some(&column.design.row) } else { variable.shape.as_ref() };
            let Some(sent) = find(&variable.name) else {
                let (true, Some(dtype), Some(shape)) = (self.fills, dtype, wanted) else { return Err(UNFIT) };
                let from = self.bytes.len();
                self.bytes.extend(missing(dtype).repeat(shape.iter().product::<u64>() as usize));
                rows.push((FIRST + at, dtype, shape.clone(), from..self.bytes.len()));
                continue;
            };
            let mut shape: Vec<u64> = sent.extent().iter().map(|l| *l as u64).collect();
            // A file that was begun before has it as the messages do.
            let is_number = shape == [1] && axes(variable, Some(sent)).is_none_or(|axes| axes.is_empty());
            if is_number && wanted.is_none_or(Vec::is_empty) {
                shape.clear();
            }
            let dtype = dtype.unwrap_or(sent.data.dtype());
            if wanted.is_some_and(|wanted| *wanted != shape)
                || shape.contains(&0)
                || sent.data.bytes().len() as u64 * 8 > ROW_BYTES_MAX * 8
            {
                return Err(UNFIT);
            }
            let mut made = Vec::new();
            let bytes = convert::all(&mut made, &sent.data, dtype).ok_or(UNFIT)?;
            let from = self.bytes.len();
            self.bytes.extend_from_slice(bytes);
            rows.push((FIRST + at, dtype, shape, from..self.bytes.len()));
        }
        if self.brought.is_none() {
            late.extend(fixed);
            self.first(columns, late, path, message);
            let numbers = rows.iter().filter(|(_, _, shape, _)| shape.is_empty());
            let beside = numbers.map(|(at, ..)| &self.variables[at - FIRST]);
            for variable in beside.filter(|one| part(&self.variables, one) == Part::Beside) {
                let (name, value) = first_index(&variable.name);
                late.push(Late::Attribute((*path).to_owned(), name, value));
            }
        }
        self.brought = Some(brought);
        let row = columns[TIME].rows();
        self.cues.see(columns, CUE, message.timestamp, row);
        columns[TIME].extend(&message.timestamp.to_le_bytes());
        for (at, dtype, shape, range) in rows {
            // True: rows are there only in the shape just compared.
            columns[at].become_rows_of(Cell::Number(dtype), &shape);
            columns[at].extend(&self.bytes[range]);
        }
        Ok(())
    }

    /// What the first message says beyond the template.
    fn first(&self, columns: &mut [Column], late: &mut Vec<Late>, path: &str, message: &Da00<'_>) {
        for (at, variable) in self.variables.iter().enumerate() {
            let sent = message.data.iter().find(|v| v.name == variable.name);
            columns[FIRST + at].describe(attributes(variable, sent, part(&self.variables, variable)));
            if signal(&self.variables) == Some(variable)
                && variable.axes.is_none()
                && let Some(axes) = axes(variable, sent)
            {
                let named = nxdata_axes(&axes, &self.constants);
                late.extend(named.into_iter().map(|(name, value)| Late::Attribute(path.to_owned(), name, value)));
            }
        }
    }
}

impl Rows for Arrays {
    fn take(&mut self, place: &mut Place<'_>, message: &Message<'_>, _: &Entry) -> Result<(), &'static str> {
        let Message::Da00(message) = message else { return Err(SCHEMA) };
        self.add(place, message)
    }

    fn order(&self) -> Option<Order> {
        Some(Order::of_rows(TIME, Some(CUE)))
    }

    fn cues(&mut self) -> Option<&mut Cues> {
        Some(&mut self.cues)
    }

    fn state(&self) -> Value {
        json!([self.cues.state(), self.brought])
    }

    fn take_up(&mut self, state: &Value) -> Option<()> {
        self.cues.take_up(&state[0])?;
        if !state[1].is_null() {
            self.brought = Some(u32::try_from(state[1].as_u64()?).ok()?);
        }
        Some(())
    }
}

/// What stands for an element that is not known, as the ESS file writer has it.
fn missing(dtype: DType) -> Vec<u8> {
    match dtype {
        DType::Float32 => f32::NAN.to_le_bytes().to_vec(),
        DType::Float64 => f64::NAN.to_le_bytes().to_vec(),
        DType::UInt8 | DType::UInt16 | DType::UInt32 | DType::UInt64 => vec![u8::MAX; dtype.size()],
        _ => {
            let mut largest = vec![u8::MAX; dtype.size()];
            largest.iter_mut().skip(dtype.size() - 1).for_each(|sign| *sign = 0x7f);
            largest
        }
    }
}

/// A constant as the message has it, in the template's type and shape.
fn constant_data(constant: &Variable, sent: &da00::Variable<'_>) -> Option<Data> {
    if let Some(text) = sent.data.as_text() {
        return (!text.contains('\0')).then(|| Data::text(text));
    }
    let shape: Vec<u64> = sent.extent().iter().map(|l| *l as u64).collect();
    if constant.shape.as_ref().is_some_and(|wanted| *wanted != shape) {
        return None;
    }
    let dtype = number(constant.dtype).unwrap_or(sent.data.dtype());
    let mut made = Vec::new();
    let bytes = convert::all(&mut made, &sent.data, dtype)?.to_vec();
    Some(Data { dtype: DataType::Number(dtype), shape, values: Values::Bytes(bytes) })
}

/// Constants whose values the template says.
pub(crate) fn fixed_constants(path: &str, constants: &[Variable]) -> Vec<Fixed> {
    constants
        .iter()
        .filter_map(|c| Some((format!("{path}/{}", c.name), c.data.clone()?, attributes(c, None, Part::Constant))))
        .collect()
}
