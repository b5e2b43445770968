//! From messages to rows: what each schema becomes under `layout = "nexus"`.
//!
//! Names, types and attributes are those that scippnexus loads and that Mantid's rules ask for: times are ns with
//! exactly one attribute that says from when (`offset` in NXevent_data, `start` in NXlog).
//!
//! A message is taken whole or not at all: everything that can be wrong is looked at before the first row is added.

mod alarms;
pub(crate) use alarms::cut;
mod arrays;
mod bytes;
mod connections;
mod convert;
mod ess;
mod events;
mod frames;
pub(crate) use frames::metadata_of;
mod groups;
mod histograms;
mod keys;
pub(crate) use keys::{ALARMS, CONNECTION, CUE_SECONDS};
mod kind;
pub use kind::{Attribute, Module, Variable};
pub(crate) use kind::{ModuleKind, Plan, Settings};
mod log;
mod repeats;
mod samples;
mod times;
pub mod user;
mod user_rows;
pub(crate) use user_rows::kind_of;

use crate::hdf::column::{Column, Design};
use crate::hdf::filter::Filter;
use crate::hdf::h5::{Cell, File};
use crate::hdf::handle::FileHandle;
use crate::hdf::value::{Data, DataType, Values};
use crate::limits::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, CUE_CHUNK_BYTES_MIN, CUE_EVERY_NS, LOG_CHUNK_BYTES_MIN};
use crate::sort::Table;
pub(crate) use crate::sort::order::Order;
use crate::sort::order::Watch;
use flow::Fault;
use repeats::Repeats;
use serde_json::{Value, json};
use settings::Key;
use std::hint::black_box;
use std::sync::Arc;
use store::Entry;
use user::Given;
use wire::{DType, Message};

/// The kinds of modules of beamport, in the order of the reference page.
pub(crate) static KINDS: [&ModuleKind; 12] = [
    &events::EV44,
    &log::F144,
    &alarms::AL00,
    &connections::EP01,
    &times::TDCT,
    &samples::SE00,
    &arrays::DA00,
    &histograms::HS01,
    &frames::AD00,
    &bytes::AR51,
    &bytes::JSON,
    &groups::BPGR,
];

/// All kinds, with those of users.
pub(crate) fn with_users(users: &[&'static dyn user::Module]) -> Vec<ModuleKind> {
    KINDS.iter().map(|kind| **kind).chain(users.iter().map(|user| kind_of(*user))).collect()
}

/// The kind of beamport that reads a schema.
pub(crate) fn kind_of_schema(schema: [u8; 4]) -> Option<&'static ModuleKind> {
    KINDS.into_iter().find(|kind| kind.schemas.contains(&schema))
}

/// The name of the origin of a message, as the message has it: empty where its schema has none, `None` where no module
/// of beamport reads it.
pub(crate) fn origin<'m>(schema: [u8; 4], message: &Message<'m>) -> Option<&'m str> {
    kind_of_schema(schema)?.origin.map_or(Some(""), |origin| origin(message))
}

/// Whether messages of a schema have the name of their origin.
pub(crate) fn has_origin(schema: [u8; 4]) -> bool {
    kind_of_schema(schema).is_some_and(|kind| kind.origin.is_some())
}

/// The modules that may be in the group of a log, each with the key that asks for it.
pub(crate) fn neighbours() -> [(&'static Key, ModuleKind, Arc<dyn Plan>); 2] {
    [
        (&ALARMS, alarms::AL00, Arc::new(alarms::AlarmsPlan)),
        (&CONNECTION, connections::EP01, Arc::new(connections::ConnectionsPlan)),
    ]
}

/// A message that looks right and whose arrays contradict each other.
pub(crate) const BROKEN: &str = "broken";
/// A value that the dataset in the file cannot hold: its type, its shape, or an axis that changed.
pub(crate) const UNFIT: &str = "unfit";
/// A message of a schema that nothing makes rows of.
pub(crate) const SCHEMA: &str = "schema";
/// A message of a log with the time of the one before it of its origin: an EPICS forwarder sends the last value again.
pub(crate) const REPEATED: &str = "repeated";
/// A frame that this file cannot hold and another one could; said only where there is one ([`Filling::set_frames_max`]).
pub(crate) const ANOTHER: &str = "another";

/// Attribute of `cue_timestamp_zero`: how often cues stand, seconds as a text, where it is not every 10.
pub(crate) const CUE_ATTRIBUTE: &str = "cue_seconds";

/// Beginning of time in the file.
const EPOCH: &str = "1970-01-01T00:00:00Z";

/// Columns of a module that are fetched before its message: those of a log.
const FETCHED_COLUMNS: usize = 4;

/// A fixed dataset: path, values, attributes.
pub(crate) type Fixed = (String, Data, Vec<(&'static str, Data)>);

/// Something fixed that is known only when the first message came.
pub(crate) enum Late {
    /// An attribute of a group or dataset: path, name, value.
    Attribute(String, String, Data),
    /// A dataset.
    Dataset(Fixed),
    /// A dataset of a group that no message has, path and name: one that rows of before a restart left is removed.
    Absent(String, String),
}

/// A module at work: its columns and what it remembers.
pub(crate) struct Filling {
    /// Path of the group.
    pub(crate) path: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) messages: u64,
    /// Has rows that are not in the file; kept by the sink's queue, as is `due`.
    pub(crate) touched: bool,
    /// Has enough rows to be written before the next flush.
    pub(crate) due: bool,
    /// The chunks are chosen.
    fitted: bool,
    pub(crate) late: Vec<Late>,
    /// Where messages may repeat.
    repeats: Option<Repeats>,
    /// Where rows are sorted at the end.
    watch: Option<Watch>,
    is_outside: bool,
    /// Of the module: some columns come with messages.
    compression: Vec<(Option<String>, Filter)>,
    /// Attributes of the group that the template and the static file set.
    said: Said,
    rows: Box<dyn Rows>,
}

/// Makes rows of messages, by the kind of module, and remembers state from one message to the next.
pub(crate) trait Rows {
    /// Adds the rows of a message, or says in a word why not; then nothing was added.
    fn take(&mut self, place: &mut Target<'_>, message: &Message<'_>, entry: &Entry) -> Result<(), &'static str>;

    /// See [`Filling::fetch`].
    fn fetch(&self) {}

    /// See [`Filling::take_all`].
    fn take_all(&mut self, _columns: &mut [Column], messages: &[Given<'_>]) -> Result<usize, Fault> {
        Ok(messages.len())
    }

    /// What became of the next message of those that [`Rows::take_all`] was given; `None` where [`Rows::take`] takes them.
    fn answered(&mut self) -> Option<Result<(), &'static str>> {
        None
    }

    /// See [`Filling::is_beside`].
    fn is_beside(&self, _message: &Message<'_>) -> bool {
        false
    }

    /// What [`Rows::resume`] needs; null where the rows say it all.
    fn state(&self) -> Value {
        Value::Null
    }

    fn resume(&mut self, _state: &Value) -> Option<()> {
        Some(())
    }

    /// The columns that came with messages, after those that were there from the beginning.
    fn late_designs(&self, _path: &str) -> Vec<Design> {
        Vec::new()
    }

    /// By which times its rows are sorted, when all have come; none where they stay as they came.
    fn order(&self) -> Option<Order> {
        None
    }

    /// See [`Filling::set_frames_max`].
    fn set_frames_max(&mut self, _max: u64) {}

    /// Its cues, if it has some.
    fn cues(&mut self) -> Option<&mut Cues> {
        None
    }

    /// Datasets that are known only at the end.
    fn last_words(&self, _path: &str) -> Vec<Fixed> {
        Vec::new()
    }
}

/// Where rows go.
pub(crate) struct Target<'a> {
    /// Path of the group.
    path: &'a str,
    columns: &'a mut Vec<Column>,
    late: &'a mut Vec<Late>,
}

impl Filling {
    /// Makes what the module has from the beginning: columns and attributes of its group.
    pub(crate) fn make(file: &File, path: &str, module: &Module) -> Result<Self, Fault> {
        for (name, value) in group_attributes(path, module) {
            file.set_attribute(path, &name, &value)?;
        }
        if module.kind.has_metadata {
            let metadata = metadata_of(path);
            file.make_group(&metadata)?;
            file.set_attribute(&metadata, "NX_class", &Data::text("NXcollection"))?;
        }
        let (designs, rows) = begin(path, module);
        let designs = finished(designs, module);
        file.headers_together(designs.len());
        let columns = designs.into_iter().map(|design| Column::make(file, design));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        columns.iter().try_for_each(|column| column.label(file))?;
        Ok(Self {
            path: path.to_owned(),
            columns,
            messages: 0,
            touched: false,
            due: false,
            fitted: false,
            late: Vec::new(),
            repeats: repeats(module),
            watch: rows.order().map(Watch::of),
            is_outside: module.kind.user.is_some(),
            compression: module.compression.clone(),
            said: Said::of(module),
            rows,
        })
    }

    /// Takes up what an earlier process left, as its state says.
    pub(crate) fn resume(
        file: &File,
        handle: &FileHandle,
        path: &str,
        module: &Module,
        state: &Value,
    ) -> Result<Self, Fault> {
        let other = || Fault::new(format!("`{path}` cannot be gone on with"), "the state is not of this template");
        let known = state["rows"].as_array().ok_or_else(other)?;
        let (designs, mut rows) = begin(path, module);
        let mut designs = finished(designs, module);
        rows.resume(&state["memory"]).ok_or_else(other)?;
        let mut late = rows.late_designs(path);
        late.iter_mut().for_each(|design| pack(design, &module.compression));
        designs.append(&mut late);
        let mut repeats = repeats(module);
        if let Some(repeats) = &mut repeats {
            repeats.resume(&state["repeats"]).ok_or_else(other)?;
        }
        if known.len() != designs.len() {
            return Err(other());
        }
        let mut columns = Vec::new();
        for (mut design, state) in designs.into_iter().zip(known) {
            if let Some(shape) = state[1].as_array() {
                design.row = shape.iter().map(Value::as_u64).collect::<Option<_>>().ok_or_else(other)?;
                let dtype = DType::ALL.into_iter().find(|d| state[2] == d.name()).ok_or_else(other)?;
                design.cell = Cell::Number(dtype);
            }
            columns.push(Column::resume(file, handle, design, state[0].as_u64().ok_or_else(other)?)?);
        }
        let messages = state["messages"].as_u64().ok_or_else(other)?;
        let fitted = columns.iter().any(|column| column.rows() > 0);
        if !fitted {
            columns.iter_mut().for_each(Column::make_anew);
        }
        let mut watch = rows.order().map(Watch::of);
        if let Some(watch) = &mut watch {
            watch.resume(&state["order"], &columns).ok_or_else(other)?;
        }
        let is_outside = module.kind.user.is_some();
        let (path, late, compression) = (path.to_owned(), Vec::new(), module.compression.clone());
        Ok(Self {
            path,
            columns,
            messages,
            touched: false,
            due: false,
            fitted,
            late,
            repeats,
            watch,
            is_outside,
            compression,
            said: Said::of(module),
            rows,
        })
    }

    /// What [`Filling::resume`] needs.
    pub(crate) fn state(&self) -> Value {
        let rows: Vec<Value> = self
            .columns
            .iter()
            .map(|column| match column.design.cell {
                Cell::Number(dtype) => json!([column.rows(), column.design.row, dtype.name()]),
                Cell::Chars(_) => json!([column.rows()]),
            })
            .collect();
        let repeats = self.repeats.as_ref().map(Repeats::state);
        let (memory, order) = (self.rows.state(), self.watch.as_ref().map(Watch::state));
        json!({"messages": self.messages, "rows": rows, "memory": memory, "repeats": repeats, "order": order})
    }

    /// The state goes into a commit: the rows of now are those of the next process too.
    pub(crate) fn commit(&mut self) {
        if let Some(watch) = &mut self.watch {
            watch.commit(&self.columns);
        }
    }

    /// What is to be sorted: none where all rows stand in order.
    pub(crate) fn unsorted(&self) -> Option<Table> {
        let watch = self.watch.as_ref().filter(|watch| watch.is_due(&self.columns))?;
        Some(Table { order: watch.order, designs: self.columns.iter().map(|column| column.design.clone()).collect() })
    }

    /// Whether a column has enough to be written.
    pub(crate) fn is_due(&self) -> bool {
        self.columns.iter().any(Column::is_due)
    }

    /// Chooses the chunks of all columns when the first rows came. True if the datasets were recreated, all of them, so
    /// that their headers stay in one page, or those that came late; links to them must then be set again.
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
        self.rows.set_frames_max(max);
        // Files of frames are ended one after the other, before a commit knows all rows.
        self.watch = None;
    }

    /// Gives messages to a module from outside, which accepts many at once, and returns how many it accepted.
    /// [`Filling::take`] returns the result of each, in this order.
    pub(crate) fn take_all(&mut self, messages: &[Given<'_>]) -> Result<usize, Fault> {
        self.rows.take_all(&mut self.columns, messages)
    }

    /// Adds the rows of a message of an origin, or says in a word why not. `None`: one of a schema that `wire` does not know.
    pub(crate) fn take(
        &mut self,
        origin: &str,
        message: Option<&Message<'_>>,
        entry: &Entry,
    ) -> Result<(), &'static str> {
        if let Some(answer) = self.rows.answered() {
            self.messages += u64::from(answer.is_ok());
            return answer;
        }
        let message = message.ok_or(SCHEMA)?;
        let time = self.repeats.as_ref().and_then(|_| message.time());
        if let (Some(repeats), Some(time)) = (&self.repeats, time)
            && repeats.has(origin, time)
        {
            return Err(REPEATED);
        }
        let before = self.watch.as_ref().map(|watch| self.columns[watch.order.time].rows());
        let known = self.columns.len();
        let mut place = Target { path: &self.path, columns: &mut self.columns, late: &mut self.late };
        let answer = self.rows.take(&mut place, message, entry);
        self.columns.iter_mut().skip(known).for_each(|column| pack(&mut column.design, &self.compression));
        answer?;
        self.late.retain_mut(|late| match late {
            Late::Attribute(object, name, value) if *object == self.path => self.said.take(name, value),
            Late::Absent(_, name) => !self.said.kept.contains(&indices_of(name)),
            _ => true,
        });
        if let (Some(watch), Some(before)) = (&mut self.watch, before) {
            watch.see(&self.columns, before);
        }
        if let (Some(repeats), Some(time)) = (&mut self.repeats, time) {
            repeats.note(origin, time);
        }
        self.messages += 1;
        Ok(())
    }

    /// Loads what [`Filling::take`] will read of the filling itself; nothing waits for it.
    pub(crate) fn fetch(&self) {
        black_box((self.messages, self.columns.len(), self.late.len(), self.rows.fetch()));
        black_box(self.watch.as_ref().map(Watch::fetch));
    }

    /// The same of its first columns, whose places must be known by then.
    pub(crate) fn fetch_columns(&self) {
        self.columns.iter().take(FETCHED_COLUMNS).for_each(Column::fetch);
    }

    /// Whether it is one from outside: [`Filling::take_all`] is for these.
    pub(crate) fn is_outside(&self) -> bool {
        self.is_outside
    }

    /// Whether it takes only what such a message says beside its value.
    pub(crate) fn is_beside(&self, message: &Message<'_>) -> bool {
        self.rows.is_beside(message)
    }

    /// Datasets that are known only at the end.
    pub(crate) fn last_words(&self) -> Vec<Fixed> {
        self.rows.last_words(&self.path)
    }
}

/// What a module has at its beginning: its columns, empty, and what makes their rows.
fn begin(path: &str, module: &Module) -> (Vec<Design>, Box<dyn Rows>) {
    let (designs, mut rows) = module.plan.begin(path, module);
    if let Some(cues) = rows.cues() {
        cues.every = module.cue_every;
    }
    (designs, rows)
}

/// The columns that a module has from the beginning, for the page that lists them.
#[cfg(test)]
pub(crate) fn columns(module: &Module) -> Vec<Design> {
    finished(begin("", module).0, module)
}

/// Name of the times by which its rows are sorted, for the same page.
#[cfg(test)]
pub(crate) fn time_of(module: &Module) -> Option<String> {
    let (designs, rows) = begin("", module);
    rows.order().map(|order| designs[order.time].path.trim_start_matches('/').to_owned())
}

/// Returns the memory for repeated messages: of our logs; at ESS wherever a message has a time, but for events.
fn repeats(module: &Module) -> Option<Repeats> {
    module.kind.repeats.is(module.layout).then(|| Repeats::of(module.source.as_ref()))
}

/// With the names of the layout, and the filters that the template names.
fn finished(mut designs: Vec<Design>, module: &Module) -> Vec<Design> {
    if module.is_ess() {
        ess::dress(&mut designs, module);
    }
    if module.cue_every != CUE_EVERY_NS {
        // Whoever reads looks so much further on both sides of an interval.
        let seconds = Data::text((module.cue_every as f64 / 1e9).to_string());
        let zeros = designs.iter_mut().filter(|design| design.path.ends_with("/cue_timestamp_zero"));
        zeros.for_each(|design| design.attributes.push((CUE_ATTRIBUTE, seconds.clone())));
    }
    designs.iter_mut().for_each(|design| pack(design, &module.compression));
    designs
}

/// With the filter that the template names for it, or for all.
fn pack(design: &mut Design, compression: &[(Option<String>, Filter)]) {
    let dataset = design.path.rsplit('/').next();
    let of = |wanted: Option<&str>| compression.iter().find(|(name, _)| name.as_deref() == wanted);
    design.filter = of(dataset).or_else(|| of(None)).map(|(_, filter)| *filter);
    if design.filter.is_some() {
        // Small chunks do not become smaller.
        design.least = design.least.max(CHUNK_BYTES_MIN);
    }
}

fn number(dtype: Option<DataType>) -> Option<DType> {
    match dtype {
        Some(DataType::Number(dtype)) => Some(dtype),
        _ => None,
    }
}

/// The names that an attribute `axes` gives the dimensions of the data, without that of time, which every module has.
pub(crate) fn named_axes(value: &Data) -> Option<Vec<String>> {
    let Values::Texts(texts) = &value.values else { return None };
    Some(texts.iter().filter(|name| *name != "time").cloned().collect())
}

/// Attributes of the group of a module that the template and the static file set.
struct Said {
    /// Names of the attributes that the module does not change.
    kept: Vec<String>,
    /// Names of the dimensions of the data, without that of time.
    axes: Option<Vec<String>>,
}

impl Said {
    fn of(module: &Module) -> Self {
        let mut kept: Vec<String> =
            module.attributes.iter().map(|one| &one.name).chain(&module.of_static).cloned().collect();
        let mut axes = None;
        let has_axes = module.kind.class == "NXdata" && module.kind.user.is_none();
        if let Some(said) = module.attributes.iter().find(|one| one.name == "axes" && has_axes) {
            axes = named_axes(&said.value);
            // Places of dimensions are counted with that of time, which the module adds.
            let knows_time =
                matches!(&said.value.values, Values::Texts(texts) if texts.iter().any(|name| name == "time"));
            kept.retain(|name| name != "axes" && (knows_time || !name.ends_with("_indices")));
        }
        Self { kept, axes }
    }

    /// Whether an attribute of the module is written: not one that the template says; `axes` with its names, where there is
    /// one for each dimension.
    fn take(&self, name: &str, value: &mut Data) -> bool {
        if let (Some(axes), "axes") = (&self.axes, name)
            && value.count() == axes.len() as u64 + 1
        {
            *value = Data::texts(std::iter::once("time".to_owned()).chain(axes.iter().cloned()).collect());
        }
        self.kept.iter().all(|kept| kept != name)
    }
}

/// Attributes of the group: those of the template and of the static file count.
fn group_attributes(path: &str, module: &Module) -> Vec<(String, Data)> {
    let mut out = vec![
        ("NX_class".to_owned(), Data::text(module.class())),
        ("stream".to_owned(), streams(module)),
        ("writer_module".to_owned(), Data::text(module.word())),
    ];
    if let Some(source) = &module.source {
        out.push(("source".to_owned(), Data::text(source)));
    }
    out.extend(module.plan.attributes(module));
    if module.is_ess() {
        ess::dress_group(&mut out);
    }
    let said = Said::of(module);
    out.retain_mut(|(name, value)| said.take(name, value));
    let own = module.attributes.iter().filter(|one| out.iter().all(|(name, _)| *name != one.name));
    let own: Vec<(String, Data)> = own.map(|Attribute { name, value }| (name.clone(), value.clone())).collect();
    out.extend(own);
    // The root of a file stays one.
    out.retain(|(name, _)| !(path.is_empty() && name == "NX_class"));
    out
}

/// The name of the stream, or the names of several.
fn streams(module: &Module) -> Data {
    match module.streams.as_slice() {
        [one] => Data::text(one),
        several => Data::texts(several.to_vec()),
    }
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
pub(crate) fn ns_since(word: &'static str) -> Vec<(&'static str, Data)> {
    vec![("units", Data::text("ns")), (word, Data::text(EPOCH))]
}

/// `value`, `time` and cues of an NXlog.
fn log_designs(path: &str, dtype: Option<DType>, units: &str) -> Vec<Design> {
    let mut value = design(path, "value", dtype.unwrap_or(DType::Float64), unit(units));
    value.least = LOG_CHUNK_BYTES_MIN;
    let mut time = design(path, "time", DType::Int64, ns_since("start"));
    time.least = LOG_CHUNK_BYTES_MIN;
    [value, time].into_iter().chain(cue_designs(path)).collect()
}

fn cue_designs(path: &str) -> [Design; 2] {
    [
        design(path, "cue_index", DType::UInt64, Vec::new()),
        design(path, "cue_timestamp_zero", DType::Int64, ns_since("start")),
    ]
    .map(|cue| Design { least: CUE_CHUNK_BYTES_MIN, ..cue })
}

/// The attribute of an NXdata that says which dimensions of the signal a dataset has.
pub(crate) fn indices_of(name: &str) -> String {
    format!("{name}_indices")
}

/// Says that a dataset has the first dimension of the signal of its NXdata.
fn first_index(name: &str) -> (String, Data) {
    (indices_of(name), Data::number(DType::Int64, &0_i64.to_le_bytes()))
}

fn unit(units: &str) -> Vec<(&'static str, Data)> {
    if units.is_empty() { Vec::new() } else { vec![("units", Data::text(units))] }
}

/// Every so often, where in the data which time begins.
pub(crate) struct Cues {
    last: Option<i64>,
    /// How often, ns.
    every: u64,
}

impl Default for Cues {
    fn default() -> Self {
        Self { last: None, every: CUE_EVERY_NS }
    }
}

impl Cues {
    /// Adds a cue to the columns at `at` (index) and `at + 1` (time) if the last one is long ago, in either direction:
    /// clocks step back as well.
    fn see(&mut self, columns: &mut [Column], at: usize, time: i64, row: u64) {
        if self.last.is_some_and(|last| last.abs_diff(time) < self.every) {
            return;
        }
        self.last = Some(time);
        columns[at].extend(&row.to_le_bytes());
        columns[at + 1].extend(&time.to_le_bytes());
    }

    fn state(&self) -> Value {
        json!(self.last)
    }

    fn resume(&mut self, state: &Value) -> Option<()> {
        if !state.is_null() {
            self.last = Some(state.as_i64()?);
        }
        Some(())
    }
}
