//! Results of user code as messages: each belongs to one message of the call.
//!
//! Constraints: numbers and arrays, the usual results, are encoded here, and an array is copied once, into stream
//! memory. `beamport._result` describes all other results, or refuses them with what to write.
//!
//! Failure behaviour: a result that no message can hold, or that belongs to none of the messages of the call, is an
//! exception, and the caller undoes what was pushed.

use crate::limits::OF_SOURCE;
use crate::memory::bytes_of_buffer;
use crate::message::Message;
use crate::time::nanoseconds;
use flow::{Ended, Fault, Made, Outputs, Stop};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyFloat, PyInt, PyString, PyTuple, PyType};
use store::Entry;
use wire::ad00::{Ad00, Attribute, Head};
use wire::{DType, Numbers, da00, f142, f144};

/// Lists in lists that a worker may return.
const LISTS_MAX: u32 = 32;

/// Why a message was not done.
pub(crate) enum Undone {
    Raised(PyErr),
    Stop(Stop),
}

impl From<PyErr> for Undone {
    fn from(raised: PyErr) -> Self {
        Self::Raised(raised)
    }
}

impl From<Fault> for Undone {
    fn from(fault: Fault) -> Self {
        Self::Stop(fault.into())
    }
}

impl From<Stop> for Undone {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

/// Where messages made of a result go: the outputs of a slot, or what the code of a source yields.
pub(crate) trait Place {
    /// The source of a message that names none.
    fn maker(&self) -> &str;
    /// The number of the message that is made now: that of `of`, or the next one of its source.
    fn number(&self, of: &Entry, source_name: &str) -> u64 {
        let _ = source_name;
        of.origin_seq
    }
    /// Appends a message made of `of`. `name`: of its source, where the code gives one.
    fn push(&mut self, of: &Entry, made: &Made, name: Option<&str>, parts: &[&[u8]]) -> Result<(), Stop>;
    /// Appends a message of the code's own, which had a number or not.
    fn push_own(&mut self, origin: &str, made: &Made, is_numbered: bool, parts: &[&[u8]]) -> Result<(), Stop>;
}

impl Place for Outputs<'_> {
    fn maker(&self) -> &str {
        Outputs::maker(self)
    }

    fn push(&mut self, of: &Entry, made: &Made, _name: Option<&str>, parts: &[&[u8]]) -> Result<(), Stop> {
        Outputs::push(self, of, made, parts)
    }

    fn push_own(&mut self, origin: &str, made: &Made, _is_numbered: bool, parts: &[&[u8]]) -> Result<(), Stop> {
        Outputs::push_of(self, origin, made, parts)
    }
}

/// The messages that user code was called with: some rows of a block.
#[derive(Clone, Copy)]
pub(crate) struct Call<'m> {
    pub(crate) messages: &'m [store::Message<'m>],
    pub(crate) rows: &'m [usize],
}

impl<'m> Call<'m> {
    /// Whether the code is that of a source, which is called with no message.
    fn is_of_source(&self) -> bool {
        self.at(0).sequence == OF_SOURCE
    }

    fn at(&self, row: usize) -> &'m store::Message<'m> {
        &self.messages[self.rows[row]]
    }

    /// Results that name no message belong to the last.
    fn last(&self) -> usize {
        self.rows.len() - 1
    }

    /// The exception of a result whose message user code was not called with.
    fn foreign(&self, of: &Bound<'_, Message>) -> PyErr {
        if self.is_of_source() {
            return PyValueError::new_err(
                "a source is called with no message: leave `of` out, or yield the message itself",
            );
        }
        let (first, last) = (self.at(0).sequence, self.at(self.last()).sequence);
        PyValueError::new_err(format!(
            "a result is `of` message {}, and the code was called with {first} to {last}: return it in the call that \
             has its message, or make a message of your own with `beamport.message(...)`",
            of.get().sequence
        ))
    }

    /// The row of a message that user code was called with.
    fn row(&self, message: &Bound<'_, Message>) -> PyResult<Option<usize>> {
        let (entry, bytes) = message.get().raw(message.py())?;
        let is_it = |row: &usize| {
            let given = self.at(*row);
            entry == given.entry && std::ptr::eq(bytes, given.payload)
        };
        // Results mostly come in the order of the messages; a batch has few.
        Ok((0..self.rows.len()).find(is_it))
    }
}

/// One message to be made.
pub(crate) enum Leaf<'py> {
    /// A message that becomes one as it is.
    Message(Bound<'py, Message>),
    /// Numbers: an array becomes a frame (`ad00`), a single one a value (`f144`).
    Numbers(Bound<'py, PyAny>),
    /// As `beamport._result.said` describes it: whether the code named the message that it belongs to, kind, name,
    /// content, attributes; and the result, if it has a time or a number of its own.
    Said(Bound<'py, PyTuple>, Option<Bound<'py, PyAny>>),
}

/// Name, time and number that code gives what it makes without a message.
#[derive(Default)]
pub(crate) struct Own {
    pub(crate) name: Option<String>,
    /// Source time, ns since 1970 UTC.
    pub(crate) time: Option<i64>,
    pub(crate) origin_seq: Option<u64>,
}

impl Own {
    /// Those of a message to be made; `now`: ns since 1970 UTC.
    pub(crate) fn of(leaf: &Leaf<'_>, now: i64) -> PyResult<Self> {
        let Leaf::Said(said, own) = leaf else { return Ok(Self::default()) };
        let name = said.get_item(2)?.extract()?;
        let Some(own) = own else { return Ok(Self { name, ..Self::default() }) };
        let py = own.py();
        let time = own.getattr(intern!(py, "time"))?;
        let time = if time.is_none() { None } else { Some(nanoseconds(py, &time, "time", now)?) };
        Ok(Self { name, time, origin_seq: own.getattr(intern!(py, "origin_seq"))?.extract()? })
    }
}

/// Encodes the results of a worker.
#[derive(Default)]
pub(crate) struct Results {
    /// The head of the last frame that was made: most are alike.
    head: Head,
    headed: Option<(DType, Vec<i64>)>,
    bytes: Vec<u8>,
}

impl Results {
    /// Appends what user code returned for the messages of a call, and ends these.
    pub(crate) fn give(
        &mut self,
        call: &Call<'_>,
        value: &Bound<'_, PyAny>,
        out: &mut Outputs<'_>,
    ) -> Result<(), Undone> {
        if call.rows.len() > 1 {
            return self.give_several(call, value, out);
        }
        let of = call.at(0);
        if let Ok(message) = value.cast::<Message>()
            && call.row(message)?.is_some()
        {
            return Ok(out.same(of)?);
        }
        walk(call, value, 0, &mut |row, leaf| self.push(call, row, &leaf, out))?;
        out.done(of);
        Ok(())
    }

    /// Appends what user code returned where it was called with no message: `call` has one in its place.
    pub(crate) fn give_own(
        &mut self,
        call: &Call<'_>,
        value: &Bound<'_, PyAny>,
        out: &mut Outputs<'_>,
    ) -> Result<(), Undone> {
        walk(call, value, 0, &mut |row, leaf| self.push(call, row, &leaf, out))
    }

    /// Results of several messages stand in the order of these, whatever the order in which they were returned.
    fn give_several(&mut self, call: &Call<'_>, value: &Bound<'_, PyAny>, out: &mut Outputs<'_>) -> Result<(), Undone> {
        let mut leaves = Vec::new();
        walk(call, value, 0, &mut |row, leaf| {
            leaves.push((row, leaf));
            Ok(())
        })?;
        leaves.sort_by_key(|(row, _)| *row);
        let mut ended = Vec::with_capacity(call.rows.len());
        let mut rest = leaves.as_slice();
        for row in 0..call.rows.len() {
            let (these, others) = rest.split_at(rest.partition_point(|(of, _)| *of <= row));
            rest = others;
            let end = match these {
                [(_, Leaf::Message(message))] if call.row(message)? == Some(row) && !out.copies() => Ended::Same,
                _ => {
                    these.iter().try_for_each(|(_, leaf)| self.push(call, row, leaf, out))?;
                    Ended::Made(these.len() as u32)
                }
            };
            ended.push((call.at(row).sequence, end));
        }
        out.done_each(&ended);
        Ok(())
    }

    /// Appends one message that belongs to that of a row.
    pub(crate) fn push(
        &mut self,
        call: &Call<'_>,
        row: usize,
        leaf: &Leaf<'_>,
        out: &mut dyn Place,
    ) -> Result<(), Undone> {
        let of = call.at(row);
        match leaf {
            Leaf::Message(message) => {
                let (_, bytes) = message.get().raw(message.py())?;
                push_as(call, message, of, &[bytes], out)
            }
            Leaf::Numbers(value) => self.numbers(of, &Plain::of(value)?, None, &[], out),
            Leaf::Said(said, _) => self.said(call, of, said, out),
        }
    }

    /// An array becomes a frame (`ad00`), a number a value (`f144`). Frames keep number and attributes of the frame
    /// that they are made of, such as where a tile belongs; `more` attributes replace those of the same name.
    fn numbers(
        &mut self,
        of: &store::Message<'_>,
        array: &Plain<'_>,
        name: Option<&str>,
        more: &[Attribute<'_>],
        out: &mut dyn Place,
    ) -> Result<(), Undone> {
        let pixels = array.bytes()?;
        let data = Numbers::new(array.dtype, pixels).ok_or_else(|| coded("its bytes are no numbers"))?;
        let entry = of.entry;
        let source_name = name.unwrap_or(out.maker());
        if let ([], Some(scalar)) = (array.shape.as_slice(), data.get(0)) {
            let value = f144::F144 { source_name, timestamp: entry.source_time, value: f144::Value::Scalar(scalar) };
            f144::write(&mut self.bytes, &value).map_err(coded)?;
            return Ok(out.push(entry, &Made::of(entry, f144::ID), name, &[&self.bytes])?);
        }
        let frame = match entry.schema.0 {
            wire::ad00::ID => wire::ad00::read(of.payload).ok(),
            _ => None,
        };
        let id = frame.as_ref().map_or_else(|| out.number(entry, source_name) as i32, |frame| frame.id);
        let known = frame.as_ref().map(|frame| frame.attributes.clone()).unwrap_or_default();
        let attributes = joined(&known, more);
        let is_bare = attributes.is_empty() && name.is_none();
        if !is_bare || self.headed.as_ref() != Some(&(array.dtype, array.shape.clone())) {
            let frame = Ad00 {
                source_name,
                id,
                timestamp: entry.source_time,
                dimensions: array.shape.as_slice().into(),
                data,
                attributes: attributes.as_slice().into(),
            };
            self.head.write(&frame).map_err(coded)?;
            self.headed = is_bare.then(|| (array.dtype, array.shape.clone()));
        }
        self.head.set(id, entry.source_time);
        let parts = self.head.parts(pixels).ok_or_else(|| coded("its pixels do not fit its shape"))?;
        Ok(out.push(entry, &Made::of(entry, wire::ad00::ID), name, &parts)?)
    }

    /// The parts of a frame with more attributes; its pixels are copied once, into stream memory.
    fn frame<'m>(&'m mut self, bytes: &'m [u8], name: Option<&str>, more: &[Attribute<'_>]) -> PyResult<[&'m [u8]; 3]> {
        let frame = wire::ad00::read(bytes).map_err(coded)?;
        let (pixels, attributes) = (frame.data.bytes(), joined(&frame.attributes, more));
        let source_name = name.unwrap_or(frame.source_name);
        let attributes = attributes.as_slice().into();
        self.head.write(&Ad00 { source_name, attributes, ..frame.clone() }).map_err(coded)?;
        self.headed = None;
        self.head.parts(pixels).ok_or_else(|| coded("its pixels do not fit its shape"))
    }

    /// Appends a result as `beamport._result` describes it.
    fn said(
        &mut self,
        call: &Call<'_>,
        of: &store::Message<'_>,
        said: &Bound<'_, PyTuple>,
        out: &mut dyn Place,
    ) -> Result<(), Undone> {
        let said: Said<'_> = said.extract()?;
        let (is_named, kind, name, content, attributes) = said;
        let name = name.as_deref();
        let held = attributes.iter().map(NamedValue::of).collect::<PyResult<Vec<_>>>()?;
        let attributes = held.iter().map(NamedValue::attribute).collect::<PyResult<Vec<_>>>()?;
        let entry = of.entry;
        let source_name = name.unwrap_or(out.maker());
        let schema = match kind.as_str() {
            "frame" => {
                let message: &Bound<'_, Message> = content.cast().map_err(PyErr::from)?;
                let (_, bytes) = message.get().raw(message.py())?;
                let parts = self.frame(bytes, name, &attributes)?;
                return match is_named {
                    true => Ok(out.push(of.entry, &Made::of(of.entry, wire::ad00::ID), name, &parts)?),
                    false => push_as(call, message, of, &parts, out),
                };
            }
            "numbers" => return self.numbers(of, &Plain::of(&content)?, name, &attributes, out),
            "variables" => {
                let variables: Vec<VariableSaid<'_>> = content.extract()?;
                self.variables(source_name, entry.source_time, &variables)?;
                da00::ID
            }
            "json" => {
                let text: String = content.extract()?;
                wire::json::write(&mut self.bytes, &wire::json::JsonData { json: &text }).map_err(coded)?;
                wire::json::ID
            }
            _ => {
                let texts: Vec<String> = content.extract()?;
                let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                let value = match (kind.as_str(), texts.as_slice()) {
                    ("text", [text]) => f142::Value::Text(text),
                    _ => f142::Value::Texts(texts.as_slice().into()),
                };
                let value = f142::F142 {
                    source_name,
                    value,
                    timestamp: entry.source_time as u64,
                    status: f142::AlarmStatus::NoAlarm,
                    severity: f142::AlarmSeverity::NoAlarm,
                };
                f142::write(&mut self.bytes, &value).map_err(coded)?;
                f142::ID
            }
        };
        Ok(out.push(entry, &Made::of(entry, schema), name, &[&self.bytes])?)
    }

    /// Encodes a data array (`da00`).
    fn variables(&mut self, source_name: &str, timestamp: i64, said: &[VariableSaid<'_>]) -> PyResult<()> {
        let held =
            said.iter().map(|(name, _, _, _, value)| NamedValue::new(name, value)).collect::<PyResult<Vec<_>>>()?;
        let axes: Vec<Vec<&str>> =
            said.iter().map(|(_, _, _, axes, _)| axes.iter().map(String::as_str).collect()).collect();
        let mut variables = Vec::with_capacity(said.len());
        for (((name, unit, label, _, _), held), axes) in said.iter().zip(&held).zip(&axes) {
            variables.push(da00::Variable {
                name,
                unit: unit.as_deref(),
                label: label.as_deref(),
                source: None,
                axes: axes.as_slice().into(),
                shape: held.shape().into(),
                data: held.numbers()?,
            });
        }
        let message = da00::Da00 { source_name, timestamp, data: variables.as_slice().into() };
        da00::write(&mut self.bytes, &message).map_err(coded)
    }
}

/// Appends a message as it is, or with another payload: with its own time, number and origin.
fn push_as(
    call: &Call<'_>,
    message: &Bound<'_, Message>,
    of: &store::Message<'_>,
    parts: &[&[u8]],
    out: &mut dyn Place,
) -> Result<(), Undone> {
    let (entry, _) = message.get().raw(message.py())?;
    let made =
        Made { source_time: entry.source_time, schema: entry.schema, origin_seq: entry.origin_seq, flags: entry.flags };
    let origin = message.get().origin_name();
    match call.row(message)?.is_some() || origin.is_empty() {
        true if call.is_of_source() => Ok(out.push_own("", &made, message.get().is_numbered, parts)?),
        true => Ok(out.push(of.entry, &made, None, parts)?),
        false => Ok(out.push_own(origin, &made, message.get().is_numbered, parts)?),
    }
}

/// Gives each message of what user code returned to `each`, with the row of the message that it belongs to.
pub(crate) fn walk<'py>(
    call: &Call<'_>,
    value: &Bound<'py, PyAny>,
    depth: u32,
    each: &mut dyn FnMut(usize, Leaf<'py>) -> Result<(), Undone>,
) -> Result<(), Undone> {
    let py = value.py();
    if value.is_none() {
        return Ok(());
    }
    if let Ok(message) = value.cast::<Message>() {
        let row = call.row(message)?.unwrap_or(call.last());
        return each(row, Leaf::Message(message.clone()));
    }
    if value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyInt>() || is_array(value)? {
        return each(call.last(), Leaf::Numbers(value.clone()));
    }
    static SAID: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let said = SAID.import(py, "beamport._result", "said")?.call1((value,))?;
    if let Ok(said) = said.cast::<PyTuple>() {
        let (of, is_named) = (said.get_item(0)?, said.get_item(1)?.is_truthy()?);
        let row = match of.cast::<Message>() {
            Ok(of) => {
                call.row(of)?.map_or_else(|| if is_named { Err(call.foreign(of)) } else { Ok(call.last()) }, Ok)?
            }
            Err(_) => call.last(),
        };
        let own = own_of(value)?;
        if own.is_some() && !call.is_of_source() {
            return Err(PyTypeError::new_err(
                "the result of a worker has time and number of its message: leave `time` and `origin_seq` out, or \
                 make a message of your own with `beamport.message(...)`",
            )
            .into());
        }
        return each(row, Leaf::Said(said.get_slice(1, said.len()), own));
    }
    if depth == LISTS_MAX {
        return Err(PyTypeError::new_err(format!("the code returned lists nested {LISTS_MAX} deep")).into());
    }
    for one in value.try_iter()? {
        // A generator is code of the user, too.
        store::end_if_forked();
        walk(call, &one?, depth + 1, each)?;
    }
    Ok(())
}

/// A result that has a time or a number of its own.
fn own_of<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    static RESULT: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = value.py();
    if !value.is_instance(RESULT.import(py, "beamport._result", "Result")?)? {
        return Ok(None);
    }
    let has = |name| Ok::<_, PyErr>(!value.getattr(name)?.is_none());
    Ok((has(intern!(py, "time"))? || has(intern!(py, "origin_seq"))?).then(|| value.clone()))
}

/// The description of `beamport._result.said` behind the message that it is of.
type Said<'py> = (bool, String, Option<String>, Bound<'py, PyAny>, Vec<Described<'py>>);
/// A variable of a data array: name, unit, label, names of its dimensions, and text or an array.
type VariableSaid<'py> = (String, Option<String>, Option<String>, Vec<String>, Bound<'py, PyAny>);
/// An attribute: its name, and text or an array.
type Described<'py> = (String, Bound<'py, PyAny>);

/// Text or numbers, kept while a message borrows from them.
struct NamedValue<'a, 'py> {
    name: &'a str,
    value: Content<'py>,
}

enum Content<'py> {
    /// The text, and the number of its bytes as a data array has them for shape.
    Text(String, [i64; 1]),
    Numbers(Plain<'py>),
}

impl<'a, 'py> NamedValue<'a, 'py> {
    fn of(said: &'a Described<'py>) -> PyResult<Self> {
        Self::new(&said.0, &said.1)
    }

    fn new(name: &'a str, value: &Bound<'py, PyAny>) -> PyResult<Self> {
        let value = match value.cast::<PyString>() {
            Ok(text) => {
                let text: String = text.extract()?;
                let bytes = text.len() as i64;
                Content::Text(text, [bytes])
            }
            Err(_) => Content::Numbers(Plain::of(value)?),
        };
        Ok(Self { name, value })
    }

    fn shape(&self) -> &[i64] {
        match &self.value {
            Content::Text(_, bytes) => bytes,
            Content::Numbers(array) => &array.shape,
        }
    }

    fn numbers(&self) -> PyResult<Numbers<'_>> {
        let numbers = match &self.value {
            Content::Text(text, _) => Numbers::new(DType::Text, text.as_bytes()),
            Content::Numbers(array) => Numbers::new(array.dtype, array.bytes()?),
        };
        numbers.ok_or_else(|| coded(format!("`{}` is not an array of numbers", self.name)))
    }

    fn attribute(&self) -> PyResult<Attribute<'_>> {
        Ok(Attribute { name: self.name, description: None, source: None, data: self.numbers()? })
    }
}

/// A numpy array in C order, of a type that the wire has.
struct Plain<'py> {
    array: Bound<'py, PyAny>,
    dtype: DType,
    shape: Vec<i64>,
}

impl<'py> Plain<'py> {
    fn of(value: &Bound<'py, PyAny>) -> PyResult<Self> {
        let py = value.py();
        static PLAIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let array = PLAIN.import(py, "beamport._result", "plain")?.call1((value,))?;
        let name: String = array.getattr(intern!(py, "dtype"))?.getattr(intern!(py, "name"))?.extract()?;
        let dtype = DType::ALL.into_iter().find(|d| *d != DType::Text && d.name() == name);
        let dtype = dtype.ok_or_else(|| coded(format!("no message holds numbers of dtype `{name}`")))?;
        let shape = array.getattr(intern!(py, "shape"))?.extract()?;
        // In a row, without a copy: an array of no dimensions has no buffer.
        Ok(Self { array: array.call_method1(intern!(py, "reshape"), (-1,))?, dtype, shape })
    }

    fn bytes(&self) -> PyResult<&[u8]> {
        bytes_of_buffer(&self.array)
    }
}

/// Attributes, and `more` in place of those with the same name.
fn joined<'a>(known: &wire::List<'a, Attribute<'a>>, more: &[Attribute<'a>]) -> Vec<Attribute<'a>> {
    let is_kept = |one: &Attribute<'_>| more.iter().all(|other| other.name != one.name);
    known.iter().filter(|one| is_kept(one)).cloned().chain(more.iter().cloned()).collect()
}

fn is_array(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    static NDARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    value.is_instance(NDARRAY.import(value.py(), "numpy", "ndarray")?)
}

fn coded(cause: impl std::fmt::Display) -> PyErr {
    PyTypeError::new_err(format!("cannot encode what the code made: {cause}"))
}
