//! Modules that come from outside: what a user's schema becomes, in Rust ([`Module`], [`program`](crate::program())) or in
//! Python (`program/python.rs`).
//!
//! A [`Module`] is a word of templates; for each group that names it, it makes a [`Filler`], which turns messages into
//! rows. Constraints: datasets are numbers or texts of fixed size, all there from the beginning, so that a commit can
//! set them back and a reader sees whole rows. A filler remembers between messages only what its `state` says: that is
//! in each commit, and the next process resumes from it.
//!
//! Failure: rows are checked before the first of a message is added, so that a message is added as a whole or not at
//! all. Where code panics, its message is set aside and the next one follows.

use super::UNFIT;
use crate::hdf::column::Column;
pub use crate::hdf::h5::Cell;
use crate::hdf::names::bad_name;
use crate::hdf::value::Data;
use crate::limits::{DATASETS_MAX, RANK_MAX, ROW_BYTES_MAX, TEXT_BYTES_MAX};
use flow::Fault;
use serde_json::{Map, Value};
use std::collections::VecDeque;
use store::Entry;
use wire::{Array, DType, Number};

/// A message that user code panicked at, or raised an exception.
pub(crate) const ERROR: &str = "error";

/// A kind of module: a word of templates.
///
/// One of these lives as long as the process, and makes a [`Filler`] for each group that names it.
pub trait Module: Sync {
    /// Its word in a template: `{"module": WORD, "config": {...}}`.
    fn word(&self) -> &str;

    /// The schemas of the messages that it takes. Messages of ids that `wire` knows come verified, others as they are.
    fn schemas(&self) -> &[[u8; 4]];

    /// The `NX_class` of its group, where the template names none.
    fn class(&self) -> &str {
        "NXcollection"
    }

    /// The keys that `config` may have beside those of every module (`stream`, `source`, `compression`).
    fn keys(&self) -> &[&str] {
        &[]
    }

    /// Makes the filler of one group. `settings` are those of `config` that [`Module::keys`] names. It is called when a
    /// template is checked and again when its file begins or is resumed, and returns the same.
    fn filler(&self, settings: &Map<String, Value>) -> Result<Box<dyn Filler>, Vec<Wrong>>;
}

/// A setting that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Key of `config`; empty for all of it.
    pub key: String,
    /// The mistake.
    pub cause: String,
    /// The remedy.
    pub hint: String,
}

impl Wrong {
    /// A mistake at a key.
    pub fn new(key: impl Into<String>, cause: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { key: key.into(), cause: cause.into(), hint: hint.into() }
    }
}

/// A module at work on one group.
pub trait Filler {
    /// The datasets of the group, which are there from the beginning. [`Rows`] counts them as they stand here.
    fn datasets(&self) -> Vec<Dataset>;

    /// Adds the rows of a message; or says in a word why not, and none are added. The word stands in the account.
    fn take(&mut self, message: &Given<'_>, rows: &mut Rows<'_>) -> Result<(), &'static str>;

    /// Processes several messages, and answers each in turn ([`Rows::answer`]). Returns how many it accepted: one or
    /// more, all unless there are too many to keep. A filler that asks another process asks once for all. A fault ends
    /// the writer.
    fn take_all(&mut self, messages: &[Given<'_>], rows: &mut Rows<'_>) -> Result<usize, Fault> {
        for (at, message) in messages.iter().enumerate() {
            if rows.is_much() {
                return Ok(at);
            }
            let taking = std::panic::AssertUnwindSafe(|| self.take(message, rows));
            let answer = std::panic::catch_unwind(taking).unwrap_or(Err(ERROR));
            rows.answer(answer);
        }
        Ok(messages.len())
    }

    /// What [`Filler::resume`] needs, after all messages that were taken; null where it remembers nothing.
    fn state(&self) -> Value {
        Value::Null
    }

    /// Goes on as `state` says. `None`: the state is not one of this module.
    fn resume(&mut self, _state: &Value) -> Option<()> {
        Some(())
    }

    /// Datasets that are known only at the end. It is asked at the beginning too, for their names: others are not written.
    fn last(&self) -> Vec<Last> {
        Vec::new()
    }
}

/// A dataset that grows by rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// Its name.
    pub name: String,
    /// Type of the elements.
    pub cell: Cell,
    /// Shape of one row; empty for one element.
    pub row: Vec<u64>,
    /// Its attributes.
    pub attributes: Vec<(&'static str, Data)>,
}

impl Dataset {
    /// Numbers, one a row.
    pub fn numbers(name: impl Into<String>, dtype: DType) -> Self {
        Self { name: name.into(), cell: Cell::Number(dtype), row: Vec::new(), attributes: Vec::new() }
    }

    /// Texts of so many bytes at most, one a row; longer ones are cut at a letter.
    pub fn texts(name: impl Into<String>, bytes: usize) -> Self {
        Self { cell: Cell::Chars(bytes), ..Self::numbers(name, DType::UInt8) }
    }

    /// Rows of a shape.
    #[must_use]
    pub fn row(mut self, shape: &[u64]) -> Self {
        self.row = shape.to_vec();
        self
    }

    /// With an attribute, such as `units`.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.attributes.push((name, Data::text(value)));
        self
    }

    /// ns since 1970 UTC, given as `i64`. In the file they are as scippnexus and Mantid read times; with `layout = "ess"`
    /// as the ESS file writer has them, without a sign.
    pub fn times(name: impl Into<String>) -> Self {
        Self { attributes: crate::module::ns_since("start"), ..Self::numbers(name, DType::Int64) }
    }

    /// Bytes of one row, where they are a number.
    fn row_bytes(&self) -> Option<u64> {
        self.row.iter().try_fold(self.cell.bytes() as u64, |bytes, length| bytes.checked_mul(*length))
    }

    /// Why it cannot be.
    fn wrong(&self) -> Option<String> {
        let named = |what: String| Some(format!("dataset `{}`: {what}", self.name));
        match self.cell {
            _ if bad_name(&self.name).is_some() => bad_name(&self.name),
            Cell::Number(DType::Text) => named("text has a size".into()),
            Cell::Chars(bytes) if !(1..=TEXT_BYTES_MAX).contains(&bytes) => {
                named(format!("texts of {bytes} bytes; 1 to {TEXT_BYTES_MAX} can be"))
            }
            _ if self.row.len() > RANK_MAX => named(format!("{} dimensions; {RANK_MAX} can be", self.row.len())),
            _ => match self.row_bytes() {
                Some(1..=ROW_BYTES_MAX) => None,
                _ => named(format!("a row has 1 to {ROW_BYTES_MAX} bytes, this shape is {:?}", self.row)),
            },
        }
    }
}

/// Names of all datasets that a filler makes, or why these cannot be.
pub(crate) fn names(filler: &dyn Filler) -> Result<Vec<String>, String> {
    let datasets = filler.datasets();
    if let Some(cause) = wrong_datasets(&datasets) {
        return Err(cause);
    }
    let mut names: Vec<String> = datasets.into_iter().map(|dataset| dataset.name).collect();
    for last in filler.last() {
        if let Some(cause) = bad_name(&last.name) {
            return Err(cause);
        }
        names.push(last.name);
    }
    Ok(names)
}

/// Why these cannot be the datasets of a module.
pub(crate) fn wrong_datasets(datasets: &[Dataset]) -> Option<String> {
    if datasets.is_empty() || datasets.len() > DATASETS_MAX {
        return Some(format!("{} datasets; a module has 1 to {DATASETS_MAX}", datasets.len()));
    }
    let twice = |(at, one): (usize, &Dataset)| datasets[..at].iter().any(|other| other.name == one.name);
    datasets.iter().find_map(Dataset::wrong).or_else(|| {
        let (_, one) = datasets.iter().enumerate().find(|(at, one)| twice((*at, one)))?;
        Some(format!("the dataset `{}` appears twice", one.name))
    })
}

/// Something fixed, written when the run is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Last {
    /// Name of the dataset.
    pub name: String,
    /// Its value.
    pub value: Data,
    /// Its attributes.
    pub attributes: Vec<(&'static str, Data)>,
}

/// A message for a module from outside.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// The stream that it came from.
    pub stream: &'a str,
    /// Its sequence there.
    pub sequence: u64,
    /// Name of the origin; empty where its schema names none, or is not known to `wire`.
    pub origin: &'a str,
    /// What its stream says of it: times, numbers, flags, schema.
    pub entry: &'a Entry,
    /// Its bytes: `wire::read(bytes)`, or `read` of its schema.
    pub bytes: &'a [u8],
}

/// The rows of messages on their way into the datasets of a module.
pub struct Rows<'a> {
    pub(super) columns: &'a mut [Column],
    /// Of each dataset, the type in which the filler gives it; that in the file may have no sign.
    pub(super) cells: &'a [Cell],
    pub(super) answers: &'a mut VecDeque<Result<(), &'static str>>,
    /// Of the message that is looked at, by dataset.
    pub(super) new: &'a mut Vec<Vec<u8>>,
    /// Something that was pushed does not fit.
    pub(super) unfit: bool,
    pub(super) taken_bytes: usize,
}

impl Rows<'_> {
    /// Adds rows of numbers to the dataset with this place in [`Filler::datasets`]. Numbers of another type than the
    /// dataset's, or not of whole rows, make the message `unfit`.
    pub fn push<'v, T: Number>(&mut self, dataset: usize, values: impl Into<Array<'v, T>>) {
        let fits = self.cells.get(dataset) == Some(&Cell::Number(T::DTYPE));
        self.push_bytes(dataset, if fits { Some(values.into().bytes()) } else { None });
    }

    /// Adds a text.
    pub fn push_text(&mut self, dataset: usize, text: &str) {
        let Some(&Cell::Chars(size)) = self.cells.get(dataset) else { return self.push_bytes(dataset, None) };
        let mut cell = crate::module::cut(text, size).as_bytes().to_vec();
        cell.resize(size, 0);
        self.push_bytes(dataset, Some(&cell));
    }

    /// Adds rows as they are in memory, little-endian; `None` is what does not fit.
    pub(crate) fn push_bytes(&mut self, dataset: usize, bytes: Option<&[u8]>) {
        let row = self.columns.get(dataset).map_or(0, Column::row_bytes);
        match (bytes, self.new.get_mut(dataset)) {
            (Some(bytes), Some(new)) if bytes.len() % row == 0 && (new.len() + bytes.len()) as u64 <= ROW_BYTES_MAX => {
                new.extend_from_slice(bytes);
            }
            _ => self.unfit = true,
        }
    }

    /// Rows of a dataset, those of the message that is looked at counted.
    pub fn count(&self, dataset: usize) -> u64 {
        let new = self.new.get(dataset).map_or(0, Vec::len);
        self.columns.get(dataset).map_or(0, |column| column.rows() + (new / column.row_bytes()) as u64)
    }

    /// Says what became of the next message: what was pushed for it is added, or forgotten.
    pub fn answer(&mut self, answer: Result<(), &'static str>) {
        let answer = answer.and(if self.unfit { Err(UNFIT) } else { Ok(()) });
        for (column, new) in self.columns.iter_mut().zip(self.new.iter_mut()) {
            if answer.is_ok() && !new.is_empty() {
                self.taken_bytes += new.len();
                column.extend(new);
            }
            new.clear();
        }
        self.unfit = false;
        self.answers.push_back(answer);
    }

    /// Whether what was taken should be written before more is.
    pub fn is_much(&self) -> bool {
        self.taken_bytes >= crate::limits::GATHER_BYTES
    }
}
