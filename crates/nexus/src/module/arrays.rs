//! `da00` as NXdata: each variable a dataset with one more index, time; each constant once.
//!
//! A message whose shape, names or axes are not those of the first is unfit as a whole: a histogram under the wrong
//! axis is worse than one that is set aside. In the layout of ESS a variable that a message lacks is filled.
//!
//! A number alone, which comes as one value without axes, is a row without dimensions.

use super::keys::CUE_SECONDS;
use super::kind::{About, Attribute, Module, ModuleKind, Plan, Settings, Variable, When};
use super::{
    Cues, Fixed, Late, Order, Rows, SCHEMA, Target, UNFIT, convert, design, first_index, named_axes, ns_since, number,
};
use crate::hdf::column::{Column, Design};
use crate::hdf::h5::Cell;
use crate::hdf::names::short;
use crate::hdf::value::{Data, DataType, Values};
use crate::limits::{CHUNK_BYTES_MIN, ROW_BYTES_MAX};
use serde_json::{Value, json};
use settings::{Key, key, required};
use std::sync::Arc;
use store::Entry;
use wire::da00::{self, Da00};
use wire::{DType, Message};

static VARIABLES: Key = required(
    "variables",
    "list of objects",
    "Variables that grow by a row per message: `name`, and `unit`, `label`, `data_type`, `axes`, `shape` to override \
     those of the message.",
);
static CONSTANTS: Key =
    key("constants", "list of objects", "none", "Variables that are written once; the same keys, and `data`.");
static ATTRIBUTES: Key = key(
    "attributes",
    "attributes",
    "none",
    "More attributes of the group; a list may use the ESS form, with `data` and `data_type`.",
);

pub(super) static DA00: ModuleKind = ModuleKind {
    origin: Some(|message| match message {
        Message::Da00(m) => Some(m.source_name),
        _ => None,
    }),
    keys: &[&VARIABLES, &CONSTANTS, &ATTRIBUTES, &CUE_SECONDS],
    holds_on: When::InEss,
    repeats: When::InEss,
    has_free_names: true,
    about: About {
        rules: &[
            "Whole numbers with errors (`NAME_errors`, or `errors` of the signal) are `float64` unless `data_type` \
             sets another type: scipp supports errors of real numbers only.",
            "`NAME_indices` of the group lists the dimensions of the signal that a dataset has; a dataset has `axes` \
             only if the signal lacks one of its dimensions.",
        ],
        rules_ess: &[
            "A message with the time of the previous one is `repeated`.",
            "A variable that a message lacks is NaN, or the largest number of an integer type; the message is `unfit` \
             if type and shape of the variable are unknown, or if it has no variable at all.",
        ],
        ..About::NONE
    },
    ..ModuleKind::new("da00", &[wire::da00::ID], "NXdata", |settings| Some(Arc::new(ArraysPlan::read(settings))))
};

#[derive(Debug)]
struct ArraysPlan {
    /// One more row a message.
    variables: Vec<Variable>,
    /// Written once.
    constants: Vec<Variable>,
}

impl ArraysPlan {
    fn read(settings: &mut dyn Settings) -> Self {
        let attributes = settings.attributes(&ATTRIBUTES).to_vec();
        let variables = settings.variables(&VARIABLES);
        let constants = settings.variables(&CONSTANTS);
        if !settings.has(&VARIABLES) {
            let hint = "name what the messages carry: \"variables\": [{\"name\": \"signal\"}]";
            settings.wrong("", "`variables` is missing".into(), hint.into());
        }
        Self { variables: with_axes(settings, variables, &attributes), constants }
    }
}

/// The variables; the signal has the names of its dimensions from the attribute `axes`, where it has none itself.
fn with_axes(settings: &mut dyn Settings, mut variables: Vec<Variable>, attributes: &[Attribute]) -> Vec<Variable> {
    let named = attributes.iter().find(|one| one.name == "axes").and_then(|one| named_axes(&one.value));
    let of_signal = variables.iter().position(|one| one.name == "signal").unwrap_or(0);
    if let (Some(named), Some(signal)) = (named, variables.get_mut(of_signal)) {
        let count = signal.axes.as_ref().map(Vec::len).or(signal.shape.as_ref().map(Vec::len));
        let known = count.unwrap_or(named.len());
        if known == named.len() {
            signal.axes.get_or_insert(named);
        } else {
            let cause = format!("`axes` names {} dimensions, and `{}` has {known}", named.len(), short(&signal.name));
            let hint = "name one for each dimension; that of time is added";
            settings.wrong_but("attributes", cause, hint, "the names of the variable hold");
        }
    }
    variables
}

impl Plan for ArraysPlan {
    fn datasets(&self, _module: &Module) -> Vec<&str> {
        let mut names = vec!["time", "cue_index", "cue_timestamp_zero"];
        names.extend(self.variables.iter().chain(&self.constants).map(|v| v.name.as_str()));
        names
    }

    fn begin(&self, path: &str, module: &Module) -> (Vec<Design>, Box<dyn Rows>) {
        let rows = Arrays::new(&self.variables, &self.constants, module.is_ess());
        (designs(path, &self.variables), Box::new(rows))
    }

    fn fixed(&self, path: &str) -> Vec<Fixed> {
        fixed_constants(path, &self.constants)
    }

    fn attributes(&self, _module: &Module) -> Vec<(String, Data)> {
        group_attributes(&self.variables, &self.constants)
    }
}

pub(super) const TIME: usize = 0;
pub(super) const CUE: usize = 1;
const FIRST: usize = 3;

/// The dataset of the errors of the signal; those of another stand in `NAME_errors`.
pub(super) const ERRORS: &str = "errors";
/// The name of a dimension without edges.
pub(super) const NO_AXIS: &str = ".";

pub(super) fn designs(path: &str, variables: &[Variable]) -> Vec<Design> {
    let mut all = vec![
        design(path, "time", DType::Int64, ns_since("start")),
        design(path, "cue_index", DType::UInt64, Vec::new()),
        design(path, "cue_timestamp_zero", DType::Int64, ns_since("start")),
    ];
    all.extend(variables.iter().map(|variable| variable_design(path, variable)));
    all
}

pub(super) fn variable_design(path: &str, variable: &Variable) -> Design {
    let dtype = number(variable.dtype).unwrap_or(DType::Float64);
    let mut one = design(path, &variable.name, dtype, attributes(variable, None));
    one.row = variable.shape.clone().unwrap_or_default();
    one.least = CHUNK_BYTES_MIN;
    one
}

/// Unit and label, from the template or else the message. Axes stand in the group alone, where there is a way
/// ([`Arrays::place_of`]): `axes` of a dataset is the form before 2014, at which punx stumbles.
fn attributes(variable: &Variable, message: Option<&da00::Variable<'_>>) -> Vec<(&'static str, Data)> {
    let mut out = Vec::new();
    let unit = variable.unit.as_deref().or(message.and_then(|m| m.unit));
    let label = variable.label.as_deref().or(message.and_then(|m| m.label));
    // Readers ask each real number for its unit, if only to hear that it has none.
    let is_real = message.is_some_and(|m| matches!(m.data.dtype(), DType::Float32 | DType::Float64));
    out.extend(unit.filter(|u| is_real || !u.is_empty()).map(|u| ("units", text(u))));
    out.extend(label.filter(|l| !l.is_empty()).map(|l| ("long_name", text(l))));
    out
}

/// A text of a message: HDF5 ends it at a NUL.
fn text(text: &str) -> Data {
    Data::text(text.split('\0').next().unwrap_or_default())
}

/// From the template, or else the message, unless that names more or fewer than it has: a file would say them wrong.
fn axes(variable: &Variable, message: Option<&da00::Variable<'_>>) -> Option<Vec<String>> {
    let named = message.filter(|m| m.axes.len() == m.shape.len());
    let sent = || named.map(|m| m.axes.iter().map(|a| a.split('\0').next().unwrap_or_default().to_owned()).collect());
    // Names that are not as many as the dimensions would be those of others.
    let fits = |axes: &Vec<String>| {
        message.is_none_or(|m| axes.len() == m.shape.len() || axes.is_empty() && m.extent() == [1])
    };
    variable.axes.clone().filter(fits).or_else(sent)
}

fn in_time(mut axes: Vec<String>) -> Vec<String> {
    axes.insert(0, "time".into());
    axes
}

fn indices(places: &[usize]) -> Data {
    let values = Values::Bytes(places.iter().flat_map(|at| (*at as i64).to_le_bytes()).collect());
    let shape = if places.len() == 1 { Vec::new() } else { vec![places.len() as u64] };
    Data { dtype: DataType::Number(DType::Int64), shape, values }
}

/// `signal` and `axes` of the NXdata, as far as the template says.
pub(super) fn group_attributes(variables: &[Variable], constants: &[Variable]) -> Vec<(String, Data)> {
    let Some(signal) = signal(variables) else { return Vec::new() };
    let mut out = vec![("signal".to_owned(), Data::text(&signal.name))];
    if let Some(axes) = &signal.axes {
        // Which dimensions the constants have is known with the shape; else the first message says it.
        out.extend(nxdata_axes(axes, if signal.shape.is_some() { constants } else { &[] }));
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

    pub(super) fn add(&mut self, place: &mut Target<'_>, message: &Da00<'_>) -> Result<(), &'static str> {
        let Target { path, columns, late } = place;
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
            let attributes = self.described(constant, Some(sent), message);
            fixed.push(Late::Dataset((format!("{path}/{}", constant.name), value, attributes)));
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
            let dtype = dtype.unwrap_or_else(|| self.dtype_of(variable, sent.data.dtype()));
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

    /// Readers that know of errors (scipp) want real numbers beside them.
    fn dtype_of(&self, variable: &Variable, sent: DType) -> DType {
        let errors = format!("{}_{ERRORS}", variable.name);
        let is_signal = signal(&self.variables) == Some(variable);
        let has_errors = self.variables.iter().any(|v| v.name == errors || is_signal && v.name == ERRORS);
        if has_errors && !matches!(sent, DType::Float32 | DType::Float64) { DType::Float64 } else { sent }
    }

    /// Notes what the first message has beyond the template.
    fn first(&self, columns: &mut [Column], late: &mut Vec<Late>, path: &str, message: &Da00<'_>) {
        let is_sent = |one: &Variable| message.data.iter().any(|v| v.name == one.name);
        for (at, variable) in self.variables.iter().enumerate() {
            let sent = message.data.iter().find(|v| v.name == variable.name);
            columns[FIRST + at].describe(self.described(variable, sent, message));
            if signal(&self.variables) == Some(variable)
                && let Some(sent) = sent
                && let Some(axes) = axes(variable, Some(sent))
                    .or_else(|| variable.axes.is_some().then(|| vec![NO_AXIS.to_owned(); sent.shape.len()]))
                && (variable.shape.is_none() || variable.axes.as_ref() != Some(&axes))
            {
                let named = nxdata_axes(&axes, &self.constants);
                late.extend(named.into_iter().map(|(name, value)| Late::Attribute(path.to_owned(), name, value)));
            }
        }
        for one in self.variables.iter().chain(&self.constants).filter(|one| one.data.is_some() || is_sent(one)) {
            match self.place_of(one, message) {
                Some(Dimensions::OfSignal(places)) => {
                    late.push(Late::Attribute(path.to_owned(), format!("{}_indices", one.name), places));
                }
                Some(Dimensions::Others(own)) if one.data.is_some() => {
                    late.push(Late::Attribute(format!("{path}/{}", one.name), "axes".to_owned(), own));
                }
                _ => (),
            }
        }
    }

    /// Returns the attributes of a dataset itself.
    fn described(
        &self,
        one: &Variable,
        sent: Option<&da00::Variable<'_>>,
        message: &Da00<'_>,
    ) -> Vec<(&'static str, Data)> {
        let mut out = attributes(one, sent);
        if let Some(Dimensions::Others(own)) = self.place_of(one, message) {
            out.push(("axes", own));
        }
        out
    }

    /// Which dimensions one beside the signal has, where it has not all of them and not the one that is named after it.
    fn place_of(&self, one: &Variable, message: &Da00<'_>) -> Option<Dimensions> {
        let find = |variable: &Variable| message.data.iter().find(|v| v.name == variable.name);
        let signal = signal(&self.variables).filter(|signal| *signal != one)?;
        let all = in_time(axes(signal, find(signal))?);
        // A number alone has none.
        let is_number = |sent: &&da00::Variable<'_>| sent.axes.is_empty() && sent.extent() == [1];
        let mut own = axes(one, find(one)).or_else(|| find(one).filter(is_number).map(|_| Vec::new()))?;
        if self.variables.contains(one) {
            own = in_time(own);
        }
        if own.is_empty() || own == all || own == [one.name.as_str()] {
            return None;
        }
        let place = |axis: &String| all.iter().position(|known| known == axis && axis != NO_AXIS);
        let places: Option<Vec<usize>> = own.iter().map(place).collect();
        Some(
            places
                .map_or_else(|| Dimensions::Others(Data::texts(own)), |places| Dimensions::OfSignal(indices(&places))),
        )
    }
}

/// Where it stands which dimensions a dataset has.
enum Dimensions {
    /// `NAME_indices` of the group.
    OfSignal(Data),
    /// `axes` of the dataset: of a dimension that the signal has not NXdata knows no other way.
    Others(Data),
}

impl Rows for Arrays {
    fn take(&mut self, place: &mut Target<'_>, message: &Message<'_>, _: &Entry) -> Result<(), &'static str> {
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

    fn resume(&mut self, state: &Value) -> Option<()> {
        self.cues.resume(&state[0])?;
        if !state[1].is_null() {
            self.brought = Some(u32::try_from(state[1].as_u64()?).ok()?);
        }
        Some(())
    }
}

/// Returns the bytes of an unknown element, as the ESS file writer has them.
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
fn fixed_constants(path: &str, constants: &[Variable]) -> Vec<Fixed> {
    constants
        .iter()
        .filter_map(|c| Some((format!("{path}/{}", c.name), c.data.clone()?, attributes(c, None))))
        .collect()
}
