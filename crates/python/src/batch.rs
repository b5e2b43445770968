//! Some messages in a row, and their columns.

use crate::block::Block;
use crate::fault;
use crate::memory::{View, unpicklable};
use crate::message::{Message, no_field, unreadable};
use crate::numpy;
use crate::owned::{Ours, bytes_of};
use flow::Fault;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;
use std::sync::Arc;
use wire::{DType, Field};

/// Some messages in a row: a sequence of `Message`, with columns over all of them.
///
/// `len(batch)`, `batch[0]`, `batch[-1]` and `for m in batch` are as for a list. How many messages one batch has is
/// for the stream to say: at most 16384, of at most 4 MiB together or one larger.
#[pyclass(frozen, module = "beamport", sequence)]
pub(crate) struct Batch {
    block: Arc<Block>,
}

impl Batch {
    pub(crate) fn new(block: Arc<Block>) -> Self {
        Self { block }
    }
}

/// One field of many messages, put together.
enum Column<'a> {
    /// Arrays that lie in stream memory.
    Numbers(DType, Vec<&'a [u8]>),
    /// Single numbers, as their type and 8 bytes each.
    Singles(DType, Vec<u8>),
}

/// Why a column cannot be made.
enum Unfit {
    Unreadable(usize, wire::Error),
    NoField(usize),
    NoNumbers(usize),
    Mixed(usize, String, String),
}

/// New memory with the parts one after another.
fn gathered<'py>(py: Python<'py>, parts: &[&[u8]]) -> PyResult<Bound<'py, PyByteArray>> {
    PyByteArray::new_with(py, parts.iter().map(|part| part.len()).sum(), |mut rest| {
        for part in parts {
            let (here, behind) = rest.split_at_mut(part.len());
            here.copy_from_slice(part);
            rest = behind;
        }
        Ok(())
    })
}

fn single(field: &Field<'_>) -> Option<(DType, [u8; 8])> {
    Some(match field {
        Field::Int(value) => (DType::Int64, value.to_le_bytes()),
        Field::UInt(value) => (DType::UInt64, value.to_le_bytes()),
        Field::Float(value) => (DType::Float64, value.to_le_bytes()),
        _ => return None,
    })
}

impl Block {
    /// One of its messages.
    pub(crate) fn message(&self, at: usize) -> Option<Message> {
        let (entry, sequence) = (self.entries.get(at)?, self.sequences.get(at)?);
        let origin = self.origins.get(entry.origin as usize).cloned().unwrap_or_else(|| "".into());
        let &(segment, place) = self.places.get(at)?;
        // Messages without bytes lie nowhere.
        let pinned = self.segments.get(segment).cloned().unwrap_or_else(|| Arc::new(Ours::new(None)));
        Some(Message::new(*sequence, *entry, (pinned, place), origin))
    }

    fn payload(&self, at: usize) -> &[u8] {
        let (segment, place) = self.places[at];
        self.segments.get(segment).map_or(&[], |s| bytes_of(s, place, self.entries[at].length.into()))
    }

    fn column(&self, name: &str) -> Result<Option<Column<'_>>, Unfit> {
        let mut column: Option<Column<'_>> = None;
        for at in 0..self.entries.len() {
            let fields = wire::fields(self.payload(at)).map_err(|e| Unfit::Unreadable(at, e))?;
            let Some((_, field)) = fields.iter().find(|f| f.0 == name) else { return Err(Unfit::NoField(at)) };
            let described = |d: DType, one: bool| format!("{} {}", if one { "one" } else { "an array of" }, d.name());
            let one = single(field);
            let (dtype, bytes) = match (field, one) {
                (_, Some((dtype, _))) => (dtype, &[][..]),
                (Field::Array { dtype, bytes, .. }, _) => (*dtype, *bytes),
                _ => return Err(Unfit::NoNumbers(at)),
            };
            let column = column.get_or_insert_with(|| match one {
                Some(_) => Column::Singles(dtype, Vec::new()),
                None => Column::Numbers(dtype, Vec::new()),
            });
            match (column, one) {
                (Column::Singles(d, all), Some((_, value))) if *d == dtype => all.extend_from_slice(&value),
                (Column::Numbers(d, all), None) if *d == dtype => all.push(bytes),
                (Column::Singles(d, _), _) => {
                    return Err(Unfit::Mixed(at, described(*d, true), described(dtype, one.is_some())));
                }
                (Column::Numbers(d, _), _) => {
                    return Err(Unfit::Mixed(at, described(*d, false), described(dtype, one.is_some())));
                }
            }
        }
        Ok(column)
    }

    fn unfit(&self, py: Python<'_>, name: &str, unfit: &Unfit) -> PyErr {
        let what = format!("cannot concatenate `{name}`");
        let (at, cause, hint) = match unfit {
            Unfit::Unreadable(at, e) => return unreadable(py, self.sequences[*at], &self.entries[*at], e),
            Unfit::NoField(at) => {
                let entry = &self.entries[*at];
                return no_field(py, entry, name, &wire::fields(self.payload(*at)).unwrap_or_default());
            }
            Unfit::NoNumbers(at) => (
                at,
                "has no numbers there".to_owned(),
                format!("go through the messages: `[m[\"{name}\"] for m in batch]`"),
            ),
            Unfit::Mixed(at, before, now) => (
                at,
                format!("has {now} there, the messages before have {before}"),
                "read one kind alone: `batches(origin=...)`".to_owned(),
            ),
        };
        let cause = format!("message {} ({}) {cause}", self.sequences[*at], self.entries[*at].schema);
        fault::error(py, Fault::new(what, cause).hint(hint))
    }
}

#[pymethods]
impl Batch {
    /// Source times, ns since 1970 UTC: read-only int64 array, shape `(len(batch),)`, a column of `entries`.
    #[getter]
    fn times<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.entries(py)?.get_item("source_time")
    }

    /// What the index says, copied when the batch was read: read-only structured array, shape `(len(batch),)`, with the columns `source_time`,
    /// `arrival_time` (ns since 1970 UTC), `origin_seq`, `origin` (row of `Stream.origins`), `schema`, `length`
    /// (bytes) and `flags`.
    #[getter]
    fn entries<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        numpy::array(py, View::of_entries(&self.block), &[self.block.entries.len()], numpy::entry_dtype(py)?)
    }

    /// Positions in the stream: read-only uint64 array, shape `(len(batch),)`.
    #[getter]
    fn sequences<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let shape = [self.block.sequences.len()];
        numpy::array(py, View::of_sequences(&self.block), &shape, numpy::dtype(py, DType::UInt64)?)
    }

    /// Copies a numeric field of all messages into one new, writable array, one message after another.
    ///
    /// Shape `(sum of lengths,)` for fields that are arrays, `(len(batch),)` for single numbers (int64, uint64 or
    /// float64). Raises `Error` where a message has no such field, no numbers in it, or another type than those
    /// before. To look without copying: `m["pixel_id"]` of each message.
    fn concat<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        for segment in &self.block.segments {
            segment.check(py, "a batch")?;
        }
        let column = py.detach(|| self.block.column(name)).map_err(|unfit| self.block.unfit(py, name, &unfit))?;
        let (dtype, memory) = match &column {
            Some(Column::Numbers(dtype, parts)) => (*dtype, gathered(py, parts)?),
            Some(Column::Singles(dtype, bytes)) => (*dtype, PyByteArray::new(py, bytes)),
            None => (DType::Float64, PyByteArray::new(py, &[])),
        };
        py.import("numpy")?.getattr("frombuffer")?.call1((memory, numpy::dtype(py, dtype)?))
    }

    fn __len__(&self) -> usize {
        self.block.entries.len()
    }

    fn __getitem__(&self, at: isize) -> PyResult<Message> {
        let len = self.block.entries.len();
        let place = if at < 0 { len.checked_add_signed(at) } else { usize::try_from(at).ok() };
        let message = place.and_then(|place| self.block.message(place));
        message.ok_or_else(|| PyIndexError::new_err(format!("batch of {len} messages has no message {at}")))
    }

    fn __repr__(&self) -> String {
        let (first, last) = (self.block.sequences.first().unwrap_or(&0), self.block.sequences.last().unwrap_or(&0));
        format!("<beamport.Batch of {} messages, {first} to {last}>", self.block.entries.len())
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        Err(unpicklable(py, "a batch"))
    }
}
