//! From messages to rows: what each schema becomes under `layout = "nexus"`.
//!
//! Names, types and attributes are those that scippnexus loads and that Mantid's rules ask for: times are ns with
//! exactly one attribute that says from when (`offset` in NXevent_data, `start` in NXlog).
//!
//! A message is taken whole or not at all: everything that can be wrong is looked at before the first row is added.

mod alarms;
mod arrays;
pub(crate) use arrays::fixed_constants;
mod convert;
mod events;
mod frames;
mod groups;
mod log;
mod samples;

use crate::column::{Column, Design};
use crate::h5::{Cell, File};
use crate::limits::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, CUE_EVERY_NS};
use crate::room::Room;
use crate::template::{Attribute, Data, DataType, Kind, Module};
use flow::Fault;
use serde_json::{Value, json};
use wire::{DType, Message};

/// A message that looks right and whose arrays contradict each other.
pub(crate) const BROKEN: &str = "broken";
/// A value that the dataset in the file cannot hold: its type, its shape, or an axis that changed.
pub(crate) const UNFIT: &str = "unfit";
/// A frame that this file cannot hold and another one could; said only where there is one ([`Filling::set_frames_max`]).
pub(crate) const ANOTHER: &str = "another";

/// Beginning of time in the file.
const EPOCH: &str = "1970-01-01T00:00:00Z";

/// A fixed dataset: path, values, attributes.
pub(crate) type Fixed = (String, Data, Vec<(&'static str, Data)>);

/// Something fixed that is known only when the first message came.
pub(crate) enum Late {
    /// An attribute of a group or dataset: path, name, value.
    Attribute(String, String, Data),
    /// A dataset.
    Dataset(Fixed),
}

/// A module at work: its columns and what it remembers.
pub(crate) struct Filling {
    /// Path of the group.
    pub(crate) path: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) messages: u64,
    /// Has rows that are not in the file.
    pub(crate) touched: bool,
    /// The chunks are chosen.
    fitted: bool,
    pub(crate) late: Vec<Late>,
    memory: Memory,
}

enum Memory {
    Events(events::Events),
    Log(log::Log),
    Alarms,
    Samples(samples::Samples),
    Arrays(arrays::Arrays),
    Frames(frames::Frames),
    Groups,
}

impl Filling {
    /// Makes what the module has from the beginning: columns and attributes of its group.
    pub(crate) fn make(file: &File, path: &str, module: &Module) -> Result<Self, Fault> {
        for (name, value) in group_attributes(path, module) {
            file.set_attribute(path, &name, &value)?;
        }
        if module.kind == Kind::Ad00 {
            let metadata = format!("{path}/{}", frames::METADATA);
            file.make_group(&metadata)?;
            file.set_attribute(&metadata, "NX_class", &Data::text("NXcollection"))?;
        }
        let designs = packed(designs(path, &module.kind), module);
        file.headers_together(designs.len());
        let columns = designs.into_iter().map(|design| Column::make(file, design));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        columns.iter().try_for_each(|column| column.label(file))?;
        Ok(Self {
            path: path.to_owned(),
            columns,
            messages: 0,
            touched: false,
            fitted: false,
            late: Vec::new(),
            memory: memory(&module.kind),
        })
    }

    /// Takes up what an earlier process left, as its state says.
    pub(crate) fn take_up(file: &File, room: &Room, path: &str, module: &Module, state: &Value) -> Result<Self, Fault> {
        let other = || Fault::new(format!("`{path}` cannot be gone on with"), "the state is not of this template");
        let rows = state["rows"].as_array().ok_or_else(other)?;
        let mut memory = memory(&module.kind);
        let known = &state["memory"];
        let took = match &mut memory {
            Memory::Events(events) => events.take_up(known),
            Memory::Log(log) => log.take_up(known),
            Memory::Alarms | Memory::Groups => Some(()),
            Memory::Samples(samples) => samples.take_up(known),
            Memory::Arrays(arrays) => arrays.take_up(known),
            Memory::Frames(frames) => frames.take_up(known),
        };
        took.ok_or_else(other)?;
        let mut designs = packed(designs(path, &module.kind), module);
        if let Memory::Frames(frames) = &memory {
            designs.extend(frames.late_designs(path));
        }
        if rows.len() != designs.len() {
            return Err(other());
        }
        let mut columns = Vec::new();
        for (mut design, state) in designs.into_iter().zip(rows) {
            if let Some(shape) = state[1].as_array() {
                design.row = shape.iter().map(Value::as_u64).collect::<Option<_>>().ok_or_else(other)?;
                let dtype = DType::ALL.into_iter().find(|d| state[2] == d.name()).ok_or_else(other)?;
                design.cell = Cell::Number(dtype);
            }
            columns.push(Column::take_up(file, room, design, state[0].as_u64().ok_or_else(other)?)?);
        }
        let messages = state["messages"].as_u64().ok_or_else(other)?;
        let fitted = columns.iter().any(|column| column.rows() > 0);
        Ok(Self { path: path.to_owned(), columns, messages, touched: false, fitted, late: Vec::new(), memory })
    }

    /// What [`Filling::take_up`] needs.
    pub(crate) fn state(&self) -> Value {
        let rows: Vec<Value> = self
            .columns
            .iter()
            .map(|column| match column.design.cell {
                Cell::Number(dtype) => json!([column.rows(), column.design.row, dtype.name()]),
                Cell::Chars(_) => json!([column.rows()]),
            })
            .collect();
        let memory = match &self.memory {
            Memory::Events(events) => events.state(),
            Memory::Log(log) => log.state(),
            Memory::Alarms | Memory::Groups => Value::Null,
            Memory::Samples(samples) => samples.state(),
            Memory::Arrays(arrays) => arrays.state(),
            Memory::Frames(frames) => frames.state(),
        };
        json!({"messages": self.messages, "rows": rows, "memory": memory})
    }

    /// Whether a column has enough to be written.
    pub(crate) fn is_due(&self) -> bool {
        self.columns.iter().any(Column::is_due)
    }

    /// Chooses the chunks of all columns when the first rows came. True if the datasets were made anew, all of them, so that
    /// their headers stay in one page, or those that came late; links to them must then be set again.
    pub(crate) fn fit(&mut self, file: &File) -> Result<bool, Fault> {
        if self.columns.iter().all(|column| column.rows() == 0) {
            return Ok(false);
        }
        if self.fitted {
            let mut made = false;
            for column in self.columns.iter_mut().filter(|column| column.chunk_rows() == 0) {
                column.remake(file, column.suiting())?;
                column.label(file)?;
                made = true;
            }
            return Ok(made);
        }
        let suiting: Vec<u64> = self.columns.iter().map(Column::suiting).collect();
        let anew = self.columns.iter().zip(&suiting).any(|(column, rows)| column.chunk_rows() != *rows);
        if anew {
            file.headers_together(self.columns.len());
            for (column, rows) in self.columns.iter_mut().zip(suiting) {
                column.remake(file, rows)?;
            }
            self.columns.iter().try_for_each(|column| column.label(file))?;
        }
        self.fitted = true;
        Ok(anew)
    }

    /// From so many frames on every further one is [`ANOTHER`], and so is one that the file cannot hold beside the others.
    pub(crate) fn set_frames_max(&mut self, max: u64) {
        if let Memory::Frames(frames) = &mut self.memory {
            frames.set_max(max);
        }
    }

    /// Adds the rows of a message, or says in a word why not.
    pub(crate) fn take(&mut self, message: &Message<'_>, entry: &store::Entry) -> Result<(), &'static str> {
        match (&mut self.memory, message) {
            (Memory::Events(events), Message::Ev44(m)) => events.take(&mut self.columns, m)?,
            (Memory::Log(log), Message::F144(m)) => log.take(&mut self.columns, m)?,
            (Memory::Alarms, Message::Al00(m)) => alarms::take(&mut self.columns, m),
            (Memory::Samples(samples), Message::Se00(m)) => samples.take(&mut self.columns, m)?,
            (Memory::Arrays(arrays), Message::Da00(m)) => {
                arrays.take(&mut self.columns, &mut self.late, &self.path, m)?
            }
            (Memory::Frames(frames), Message::Ad00(m)) => {
                frames.take(&mut self.columns, &mut self.late, &self.path, m, entry.arrival_time)?
            }
            (Memory::Groups, Message::Bpgr(m)) => groups::take(&mut self.columns, m, entry.origin_seq),
            _ => return Err("schema"),
        }
        self.messages += 1;
        self.touched = true;
        Ok(())
    }

    /// Datasets that are known only at the end.
    pub(crate) fn last_words(&self) -> Vec<Fixed> {
        match &self.memory {
            Memory::Log(log) => log.last_words(&self.path),
            _ => Vec::new(),
        }
    }
}

fn memory(kind: &Kind) -> Memory {
    match kind {
        Kind::Ev44 => Memory::Events(events::Events::default()),
        Kind::F144 { dtype, units } => {
            Memory::Log(log::Log::new(number(Some(*dtype)).unwrap_or(DType::Float64), units))
        }
        Kind::Al00 => Memory::Alarms,
        Kind::Se00 { dtype, .. } => Memory::Samples(samples::Samples::new(number(*dtype))),
        Kind::Da00 { variables, constants } => Memory::Arrays(arrays::Arrays::new(variables, constants)),
        Kind::Ad00 => Memory::Frames(frames::Frames::default()),
        Kind::Bpgr => Memory::Groups,
    }
}

fn designs(path: &str, kind: &Kind) -> Vec<Design> {
    match kind {
        Kind::Ev44 => events::designs(path),
        Kind::F144 { dtype, units } => log_designs(path, number(Some(*dtype)), units),
        Kind::Al00 => alarms::designs(path),
        Kind::Se00 { dtype, units } => log_designs(path, number(*dtype), units),
        Kind::Da00 { variables, .. } => arrays::designs(path, variables),
        Kind::Ad00 => frames::designs(path),
        Kind::Bpgr => groups::designs(path),
    }
}

/// With the filters that the template names.
fn packed(mut designs: Vec<Design>, module: &Module) -> Vec<Design> {
    for design in &mut designs {
        design.filter = design.path.rsplit('/').next().and_then(|name| module.filter(name));
    }
    designs
}

fn number(dtype: Option<DataType>) -> Option<DType> {
    match dtype {
        Some(DataType::Number(dtype)) => Some(dtype),
        _ => None,
    }
}

/// Attributes of the group: the template's own win.
fn group_attributes(path: &str, module: &Module) -> Vec<(String, Data)> {
    let mut out = vec![
        ("NX_class".to_owned(), Data::text(module.kind.class())),
        ("stream".to_owned(), Data::text(&module.stream)),
        ("writer_module".to_owned(), Data::text(module.kind.name())),
    ];
    if let Some(source) = &module.source {
        out.push(("source".to_owned(), Data::text(source)));
    }
    if module.kind == Kind::Ad00 {
        out.extend(frames::group_attributes(0));
    }
    if let Kind::Da00 { variables, constants } = &module.kind {
        out.extend(arrays::group_attributes(path, variables, constants));
    }
    for Attribute { name, value } in &module.attributes {
        out.retain(|(known, _)| known != name);
        out.push((name.clone(), value.clone()));
    }
    out
}

/// A column of numbers.
fn design(path: &str, name: &str, dtype: DType, attributes: Vec<(&'static str, Data)>) -> Design {
    Design {
        path: format!("{path}/{name}"),
        cell: Cell::Number(dtype),
        row: Vec::new(),
        attributes,
        least: CHUNK_BYTES_MIN,
        most: CHUNK_BYTES_MAX,
        filter: None,
    }
}

/// `ns` and from when: `offset` or `start`, never both (scippnexus then gives up on times).
fn ns_since(word: &'static str) -> Vec<(&'static str, Data)> {
    vec![("units", Data::text("ns")), (word, Data::text(EPOCH))]
}

/// `value`, `time` and cues of an NXlog.
fn log_designs(path: &str, dtype: Option<DType>, units: &str) -> Vec<Design> {
    let mut value = design(path, "value", dtype.unwrap_or(DType::Float64), unit(units));
    value.least = CHUNK_BYTES_MIN;
    vec![
        value,
        design(path, "time", DType::Int64, ns_since("start")),
        design(path, "cue_index", DType::UInt64, Vec::new()),
        design(path, "cue_timestamp_zero", DType::Int64, ns_since("start")),
    ]
}

fn unit(units: &str) -> Vec<(&'static str, Data)> {
    if units.is_empty() { Vec::new() } else { vec![("units", Data::text(units))] }
}

/// Every so often, where in the data which time begins.
#[derive(Default)]
struct Cues {
    last: Option<i64>,
}

impl Cues {
    /// Adds a cue to the columns at `at` (index) and `at + 1` (time) if the last one is long ago, in either direction:
    /// clocks step back as well.
    fn see(&mut self, columns: &mut [Column], at: usize, time: i64, row: u64) {
        if self.last.is_some_and(|last| last.abs_diff(time) < CUE_EVERY_NS) {
            return;
        }
        self.last = Some(time);
        columns[at].extend(&row.to_le_bytes());
        columns[at + 1].extend(&time.to_le_bytes());
    }

    fn state(&self) -> Value {
        json!(self.last)
    }

    fn take_up(&mut self, state: &Value) -> Option<()> {
        if !state.is_null() {
            self.last = Some(state.as_i64()?);
        }
        Some(())
    }
}
