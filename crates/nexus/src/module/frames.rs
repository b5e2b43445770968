//! `ad00` as NXdata: `data` with one more index, the frame; with it a row a frame of `id`, `time`, `arrival_time` and
//! `source`, and of each attribute in a group beside, `NAME_metadata`: an NXdata with a group in it is no array to scippnexus.
//!
//! In the layout of ESS the group is an NXlog of `value` and `time`, and all else stands beside.
//!
//! * A chunk is a frame, so that a reader touches what it asks for. Frames below a page share one.
//! * An attribute is a dataset for each type and length that it comes with: nothing is converted and nothing refused. The
//!   first has the attribute's name, later ones `NAME_2`... A frame that has no such attribute has NaN, an empty text, or 0
//!   there; for whole numbers, where 0 may be a value, `NAME_missing` then says which.
//! * A frame of another shape or type than the first is unfit, or for another file ([`ANOTHER`]). In the layout of ESS a
//!   smaller one has zeros behind its pixels.
//!
//! Failure: the datasets of a module show as many rows as each other after every write while their headers lie in one page:
//! that is, with up to seven attributes, five in an NXlog. With more, a writer killed in the middle of a flush leaves attributes that are one
//! flush behind; the next one brings them up.

use super::keys::{CUE_SECONDS, DTYPE, TYPE};
use super::kind::{About, Module, ModuleKind, Plan, When};
use super::{
    ANOTHER, Cues, Late, Order, Rows, SCHEMA, Target, UNFIT, alarms, convert, cue_designs, design, first_index,
    ns_since,
};
use crate::hdf::column::{Column, Design};
use crate::hdf::h5::Cell;
use crate::hdf::value::Data;
use crate::limits::{
    BACKFILL_BYTES_MAX, CHUNK_BYTES_MIN, METADATA_MAX, NAME_BYTES_MAX, RANK_MAX, ROW_BYTES_MAX, TEXT_BYTES,
};
use serde_json::{Value, json};
use std::sync::Arc;
use store::Entry;
use wire::ad00::{Ad00, Attribute};
use wire::{DType, Message};

/// Suffix of the group that holds the attributes of frames, beside the group of the frames.
const METADATA: &str = "_metadata";

pub(super) static AD00: ModuleKind = ModuleKind {
    origin: Some(|message| match message {
        Message::Ad00(m) => Some(m.source_name),
        _ => None,
    }),
    keys: &[&DTYPE, &TYPE, &CUE_SECONDS],
    holds_on: When::InEss,
    repeats: When::InEss,
    has_metadata: true,
    about: About {
        rules: &[
            "`data` has the attribute `interpretation`: `scalar`, `spectrum` or `image`, by the dimensions of a frame.",
            "Attributes of frames are datasets of the group `NAME_metadata` beside it; real numbers have an empty \
             `units`, because frames have none.",
        ],
        rules_ess: &[
            "`NAME_metadata` also has `id`, `arrival_time` and `source`.",
            "A frame with the time of the previous one is `repeated`. A frame smaller than the first is padded with \
             zeros; a larger one is `unfit`, because chunks have the shape of the first (the ESS file writer extends \
             the dataset).",
            "`value` has the type of the first frame, not `double`: no digit is lost, and 16-bit data take a quarter \
             of the space.",
        ],
        typed_by_message: &["data", "value"],
        ..About::NONE
    },
    ..ModuleKind::new("ad00", &[wire::ad00::ID], "NXdata", |settings| {
        Some(Arc::new(FramesPlan { dtype: settings.number() }))
    })
};

#[derive(Debug)]
struct FramesPlan {
    /// Type of the pixels in the file; that of the first frame where `None`.
    dtype: Option<DType>,
}

impl Plan for FramesPlan {
    fn class(&self, module: &Module) -> &'static str {
        if is_log(module) { "NXlog" } else { module.kind.class }
    }

    fn datasets(&self, module: &Module) -> Vec<&str> {
        if is_log(module) {
            vec!["value", "time", "cue_index", "cue_timestamp_zero"]
        } else {
            vec!["data", "id", "time", "arrival_time", "source"]
        }
    }

    fn begin(&self, path: &str, module: &Module) -> (Vec<Design>, Box<dyn Rows>) {
        let is_log = is_log(module);
        let mut designs = designs(path, is_log);
        if module.is_ess() {
            // The ESS file writer writes empty units too.
            designs[DATA].attributes.push(("units", Data::text("")));
        }
        (designs, Box::new(Frames::new(is_log, self.dtype)))
    }

    fn attributes(&self, module: &Module) -> Vec<(String, Data)> {
        if is_log(module) { Vec::new() } else { group_attributes(0) }
    }
}

/// True if frames are `value` of an NXlog: with the layout of ESS, and in a group that is one.
fn is_log(module: &Module) -> bool {
    let is_class = |one: &super::Attribute| one.name == "NX_class" && one.value.as_text() == Some("NXlog");
    module.is_ess() || module.attributes.iter().any(is_class)
}

/// The group of the attributes of the frames that stand at `path`.
pub(crate) fn metadata_of(path: &str) -> String {
    format!("{path}{METADATA}")
}

const DATA: usize = 0;
const ID: usize = 1;
const TIME: usize = 2;
const ARRIVAL: usize = 3;
const SOURCE: usize = 4;
/// In an NXlog.
const CUE: usize = 5;

fn designs(path: &str, is_log: bool) -> Vec<Design> {
    let mut data = design(path, if is_log { "value" } else { "data" }, DType::Float64, Vec::new());
    data.most = CHUNK_BYTES_MIN;
    // To scippnexus a name that ends in `_time` is a log of its own in an NXlog.
    let beside = if is_log { metadata_of(path) } else { path.to_owned() };
    let mut source = design(&beside, "source", DType::UInt8, Vec::new());
    source.cell = Cell::Chars(TEXT_BYTES);
    let mut all = vec![
        data,
        design(&beside, "id", DType::Int32, Vec::new()),
        design(path, "time", DType::Int64, ns_since("start")),
        design(&beside, "arrival_time", DType::Int64, ns_since("start")),
        source,
    ];
    if is_log {
        all.extend(cue_designs(path));
    }
    all
}

/// Names beside `data` with a row a frame.
const OF_FRAMES: [&str; 4] = ["time", "id", "arrival_time", "source"];

/// `signal` and `axes` of the NXdata, of frames of so many dimensions. Of each dataset it says whose dimension it has: by
/// its length a reader cannot tell where there are as many frames as rows of pixels.
fn group_attributes(rank: usize) -> Vec<(String, Data)> {
    let axes = std::iter::once("time").chain(std::iter::repeat_n(".", rank)).map(str::to_owned).collect();
    let mut all = vec![("signal".to_owned(), Data::text("data")), ("axes".to_owned(), Data::texts(axes))];
    all.extend(OF_FRAMES.map(first_index));
    all
}

/// Type and length of an attribute's values.
#[derive(Clone, Debug, PartialEq)]
struct Form {
    /// [`DType::Text`]: one text.
    dtype: DType,
    /// Numbers of a row; 1 is a plain number.
    length: u64,
}

impl Form {
    /// None for a list without numbers: it says nothing.
    fn of(attribute: &Attribute<'_>) -> Option<Self> {
        let dtype = attribute.data.dtype();
        let length = if dtype == DType::Text { 1 } else { attribute.data.len() as u64 };
        (length > 0).then_some(Self { dtype, length })
    }

    fn row_bytes(&self) -> u64 {
        if self.dtype == DType::Text { TEXT_BYTES as u64 } else { self.length * self.dtype.size() as u64 }
    }

    /// The row of a frame without the attribute.
    fn fill(&self) -> Vec<u8> {
        match self.dtype {
            DType::Float32 => f32::NAN.to_le_bytes().repeat(self.length as usize),
            DType::Float64 => f64::NAN.to_le_bytes().repeat(self.length as usize),
            _ => vec![0; self.row_bytes() as usize],
        }
    }

    /// Whether its fill may be a value as well.
    fn is_whole(&self) -> bool {
        !matches!(self.dtype, DType::Text | DType::Float32 | DType::Float64)
    }
}

/// One dataset of the group of attributes.
struct Field {
    /// The attribute's name.
    name: String,
    form: Form,
    /// Name of the dataset.
    dataset: String,
    column: usize,
    /// Column that says which frames have none.
    missing: Option<usize>,
    /// Kept, as it is needed again and again.
    fill: Vec<u8>,
}

impl Field {
    fn design(&self, path: &str, attributes: Vec<(&'static str, Data)>) -> Design {
        let mut one = design(&metadata_of(path), &self.dataset, self.form.dtype, attributes);
        if self.form.dtype == DType::Text {
            one.cell = Cell::Chars(TEXT_BYTES);
        }
        if self.form.length > 1 {
            one.row = vec![self.form.length];
        }
        one
    }

    fn missing_design(&self, path: &str) -> Design {
        let about =
            ("description", Data::text("1 where the frame has no such attribute and the value stands for nothing"));
        design(&metadata_of(path), &missing_name(&self.dataset), DType::UInt8, vec![about])
    }
}

#[derive(Default)]
struct Frames {
    /// In an NXlog, which has cues, and no signal and no axes.
    is_log: bool,
    /// Type in the file; that of the first frame where the template does not say.
    dtype: Option<DType>,
    /// Used again: the pixels of a frame in that type.
    pixels: Vec<u8>,
    cues: Cues,
    fields: Vec<Field>,
    /// For each field, which attribute of the frame at hand it takes.
    found: Vec<Option<usize>>,
    /// Attributes of the frame at hand that no field takes.
    new: Vec<usize>,
    /// Frames of this file; none: any number.
    max: Option<u64>,
    /// Used again: a frame with zeros behind it.
    padded: Vec<u8>,
}

impl Frames {
    fn new(is_log: bool, dtype: Option<DType>) -> Self {
        Self { is_log, dtype, ..Self::default() }
    }

    /// The word for a frame that these rows cannot take.
    fn other(&self) -> &'static str {
        if self.max.is_some() { ANOTHER } else { UNFIT }
    }

    fn add_frame(&mut self, place: &mut Target<'_>, frame: &Ad00<'_>, arrival: i64) -> Result<(), &'static str> {
        let Target { path, columns, late } = place;
        let dtype = self.dtype.unwrap_or(frame.data.dtype());
        let row_bytes = frame.data.len() as u64 * dtype.size() as u64;
        // No pixels are no row.
        if frame.data.dtype() == DType::Text || row_bytes == 0 || row_bytes > ROW_BYTES_MAX {
            return Err(UNFIT);
        }
        if frame.dimensions.len() > RANK_MAX || frame.attributes.len() > METADATA_MAX {
            return Err(UNFIT);
        }
        let rows = columns[DATA].rows();
        let shape = || frame.dimensions.iter().map(|length| length as u64);
        let known = &columns[DATA].design;
        let is_as_known = known.row.iter().copied().eq(shape());
        let is_smaller =
            known.row.len() == shape().count() && known.row.iter().zip(shape()).all(|(most, l)| l <= *most);
        if rows > 0 && (known.cell != Cell::Number(dtype) || !(is_as_known || self.is_log && is_smaller)) {
            return Err(self.other());
        }
        if self.max.is_some_and(|max| rows >= max) {
            return Err(ANOTHER);
        }
        self.look_up(frame);
        let new = self.new.iter().filter_map(|at| Form::of(&frame.attributes[*at]));
        let row_bytes = new.map(|form| form.row_bytes());
        if row_bytes.clone().any(|bytes| bytes > ROW_BYTES_MAX) {
            return Err(UNFIT);
        }
        if self.fields.len() + self.new.len() > METADATA_MAX || row_bytes.sum::<u64>() * rows > BACKFILL_BYTES_MAX {
            return Err(if rows > 0 { self.other() } else { UNFIT });
        }
        let mut pixels = std::mem::take(&mut self.pixels);
        let bytes = convert::all(&mut pixels, &frame.data, dtype).ok_or(UNFIT)?;

        if rows == 0 {
            self.first(columns, late, path, frame, dtype);
        }
        if self.is_log {
            self.cues.see(columns, CUE, frame.timestamp, rows);
        }
        if rows > 0 && !is_as_known {
            let (smaller, data): (Vec<u64>, _) = (shape().collect(), &mut columns[DATA]);
            self.padded.clear();
            self.padded.resize(data.row_bytes(), 0);
            pad(&mut self.padded, &data.design.row, bytes, &smaller, dtype.size());
            data.extend(&self.padded);
        } else {
            columns[DATA].extend(bytes);
        }
        self.pixels = pixels;
        columns[ID].extend(&frame.id.to_le_bytes());
        columns[TIME].extend(&frame.timestamp.to_le_bytes());
        columns[ARRIVAL].extend(&arrival.to_le_bytes());
        columns[SOURCE].extend(&alarms::cell(frame.source_name));
        for at in std::mem::take(&mut self.new) {
            self.add(columns, path, &frame.attributes[at], rows);
            self.found.push(Some(at));
        }
        for (field, found) in self.fields.iter_mut().zip(&self.found) {
            match found {
                Some(at) => put(&mut columns[field.column], &frame.attributes[*at]),
                None => {
                    columns[field.column].extend(&field.fill);
                    if field.form.is_whole() && field.missing.is_none() {
                        field.missing = Some(columns.len());
                        columns.push(Column::late(field.missing_design(path), &[0], rows));
                    }
                }
            }
            if let Some(missing) = field.missing {
                columns[missing].extend(&[u8::from(found.is_none())]);
            }
        }
        Ok(())
    }

    /// Finds the field of each attribute. Cameras send them in one order, so mostly the next field is the one.
    fn look_up(&mut self, frame: &Ad00<'_>) {
        self.found.clear();
        self.found.resize(self.fields.len(), None);
        self.new.clear();
        let mut next = 0;
        for (at, attribute) in frame.attributes.iter().enumerate() {
            let Some(form) = Form::of(attribute) else { continue };
            let fits = |i: &usize| {
                let field = &self.fields[*i];
                self.found[*i].is_none() && field.name == attribute.name && field.form == form
            };
            match (next..self.fields.len()).chain(0..next).find(fits) {
                Some(i) => {
                    self.found[i] = Some(at);
                    next = i + 1;
                }
                None => self.new.push(at),
            }
        }
    }

    /// Sets the shape, type and attributes of the data, from the first frame.
    fn first(&self, columns: &mut [Column], late: &mut Vec<Late>, path: &str, frame: &Ad00<'_>, dtype: DType) {
        let shape: Vec<u64> = frame.dimensions.iter().map(|length| length as u64).collect();
        columns[DATA].become_rows_of(Cell::Number(dtype), &shape);
        let interpretation = match shape.len() {
            0 => "scalar",
            1 => "spectrum",
            _ => "image",
        };
        let mut said = columns[DATA].design.attributes.clone();
        said.retain(|(name, _)| *name != "interpretation");
        said.push(("interpretation", Data::text(interpretation)));
        columns[DATA].describe(said);
        let named = if self.is_log { Vec::new() } else { group_attributes(shape.len()) };
        late.extend(named.into_iter().map(|(name, value)| Late::Attribute(path.to_owned(), name, value)));
    }

    /// A dataset for an attribute that came first with the frame at row `rows`.
    fn add(&mut self, columns: &mut Vec<Column>, path: &str, attribute: &Attribute<'_>, rows: u64) {
        let Some(form) = Form::of(attribute) else { return };
        let dataset = self.free_name(attribute.name);
        let fill = form.fill();
        let mut field =
            Field { name: attribute.name.to_owned(), form, dataset, column: columns.len(), missing: None, fill };
        let said = [("name", Some(attribute.name).filter(|name| *name != field.dataset))]
            .into_iter()
            .chain([("description", attribute.description), ("source", attribute.source)]);
        let said = said.filter_map(|(word, text)| Some((word, clean(text?)))).filter(|(_, text)| !text.is_empty());
        let mut attributes: Vec<_> = said.map(|(word, text)| (word, Data::text(text))).collect();
        // Nobody says one. Readers ask each real number for its unit.
        if matches!(field.form.dtype, DType::Float32 | DType::Float64) {
            attributes.push(("units", Data::text("")));
        }
        columns.push(Column::late(field.design(path, attributes), &field.fill, rows));
        if rows > 0 && field.form.is_whole() {
            field.missing = Some(columns.len());
            columns.push(Column::late(field.missing_design(path), &[1], rows));
        }
        self.fields.push(field);
    }

    /// A name for a dataset that no other has.
    fn free_name(&self, name: &str) -> String {
        let plain = cut(&name.replace(['/', '\0'], "_"), NAME_BYTES_MAX - ROOM_OF_NAME).to_owned();
        let plain = if matches!(plain.as_str(), "" | "." | "..") { "_".to_owned() } else { plain };
        let is_taken = |name: &String| {
            let of =
                |f: &Field| f.dataset == *name || missing_name(&f.dataset) == *name || f.dataset == missing_name(name);
            self.fields.iter().any(of) || (self.is_log && OF_FRAMES.contains(&name.as_str()))
        };
        let numbered = (2..).map(|n| format!("{plain}_{n}"));
        std::iter::once(plain.clone()).chain(numbered).find(|name| !is_taken(name)).unwrap_or_default()
    }
}

impl Rows for Frames {
    fn take(&mut self, place: &mut Target<'_>, message: &Message<'_>, entry: &Entry) -> Result<(), &'static str> {
        let Message::Ad00(frame) = message else { return Err(SCHEMA) };
        self.add_frame(place, frame, entry.arrival_time)
    }

    fn order(&self) -> Option<Order> {
        Some(Order::of_rows(TIME, self.is_log.then_some(CUE)))
    }

    fn set_frames_max(&mut self, max: u64) {
        self.max = Some(max);
    }

    /// The datasets that came with frames, in the order of their columns.
    fn late_designs(&self, path: &str) -> Vec<Design> {
        let mut all: Vec<(usize, Design)> = Vec::new();
        for field in &self.fields {
            all.push((field.column, field.design(path, Vec::new())));
            all.extend(field.missing.map(|column| (column, field.missing_design(path))));
        }
        all.sort_by_key(|(column, _)| *column);
        all.into_iter().map(|(_, design)| design).collect()
    }

    fn cues(&mut self) -> Option<&mut Cues> {
        Some(&mut self.cues)
    }

    fn state(&self) -> Value {
        let of = |f: &Field| json!([f.name, f.dataset, f.form.dtype.name(), f.form.length, f.column, f.missing]);
        json!([self.cues.state(), self.fields.iter().map(of).collect::<Vec<_>>()])
    }

    fn resume(&mut self, state: &Value) -> Option<()> {
        let of = |known: &Value| {
            let place = |at: usize| known[at].as_u64().and_then(|n| usize::try_from(n).ok());
            let dtype = [DType::Text].into_iter().chain(DType::ALL).find(|d| known[2] == d.name())?;
            let form = Form { dtype, length: known[3].as_u64()? };
            let fill = if form.row_bytes() <= ROW_BYTES_MAX { form.fill() } else { return None };
            Some(Field {
                name: known[0].as_str()?.to_owned(),
                dataset: known[1].as_str()?.to_owned(),
                form,
                column: place(4)?,
                missing: if known[5].is_null() { None } else { Some(place(5)?) },
                fill,
            })
        };
        self.cues.resume(&state[0])?;
        self.fields = state[1].as_array()?.iter().map(of).collect::<Option<_>>()?;
        Some(())
    }
}

/// Bytes of a dataset's name that stay free for `_2` and `_missing`.
const ROOM_OF_NAME: usize = 32;

fn missing_name(dataset: &str) -> String {
    format!("{dataset}_missing")
}

/// Puts the pixels of a frame where they stand in a larger one.
fn pad(out: &mut [u8], larger: &[u64], bytes: &[u8], smaller: &[u64], size: usize) {
    match (larger, smaller) {
        ([_, larger @ ..], [_, smaller @ ..]) if !smaller.is_empty() => {
            let of = |shape: &[u64]| shape.iter().product::<u64>() as usize * size;
            for (out, bytes) in out.chunks_exact_mut(of(larger)).zip(bytes.chunks_exact(of(smaller))) {
                pad(out, larger, bytes, smaller, size);
            }
        }
        _ => out[..bytes.len()].copy_from_slice(bytes),
    }
}

/// The value of an attribute that has the form of the column.
fn put(column: &mut Column, attribute: &Attribute<'_>) {
    if attribute.data.dtype() == DType::Text {
        column.extend(&alarms::cell(&String::from_utf8_lossy(attribute.data.bytes())));
    } else {
        column.extend(attribute.data.bytes());
    }
}

/// What HDF5 can hold of a text as an attribute: it ends at a NUL, and it is not long.
fn clean(text: &str) -> &str {
    cut(text.split('\0').next().unwrap_or_default(), 4096)
}

fn cut(text: &str, bytes: usize) -> &str {
    let mut length = text.len().min(bytes);
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    &text[..length]
}
