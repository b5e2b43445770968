//! Writers: a stream that a Python program makes, and what it appends to it.
//!
//! Constraints: an array is copied once, from where it lies into stream memory; messages of less than
//! [`DIRECT_BYTES_MIN`] go by way of a buffer that is kept. While a writer waits, other Python threads run. A value
//! becomes the message that it is where the code of a source yields it.
//!
//! Failure behaviour: every error from outside is a `beamport.Error`; what was appended before it stays.

use crate::fault;
use crate::limits::{DIRECT_BYTES_MIN, OF_SOURCE, WAIT_STEP};
use crate::memory::{Exported, unpicklable};
use crate::message::{Message as Made, of_bytes};
use crate::named::{Beside, Named};
use crate::owned::Ours;
use crate::results::{Call, Own, Place, Results, Undone, walk};
use crate::time::nanoseconds;
use flow::{Appender, Data, Fault, Label, Stop};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyMapping, PyString};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use store::{Entry, Options, SchemaId};
use wire::Message;

/// Writes a stream: appends messages at its end. `Data.create` opens one.
///
/// One process writes a stream at a time, and one thread a writer. `with` closes it at the end; what was appended is
/// then as safe as the level of the stream promises.
///
/// Example:
///     >>> import beamport, os
///     >>> data = beamport.open(os.environ["BEAMPORT_DATA"])
///     >>> with data.create("pressure") as stream:
///     ...     stream.append("f144", {"source_name": "P1", "timestamp": 1_772_366_400_000_000_000, "value": 1.5})
///     ...
///     0
///     >>> data["pressure"].origins
///     ['P1']
#[pyclass(module = "beamport._core", name = "Writer")]
pub(crate) struct Writer {
    data: Data,
    name: String,
    appender: Option<Ours<Appender>>,
    /// For messages that are small.
    scratch: Vec<u8>,
}

#[pymethods]
impl Writer {
    #[new]
    #[pyo3(signature = (folder, name, level=None, live=64 << 20))]
    fn open(py: Python<'_>, folder: PathBuf, name: &str, level: Option<&str>, live: u64) -> PyResult<Self> {
        let options = match level {
            None => None,
            Some("disk") => Some(Options::disk(live)),
            Some("memory") => Some(Options::memory(live)),
            Some(other) => {
                let what = format!("cannot create stream `{name}`");
                let fault = Fault::new(what, format!("`{other}` is not a level"));
                return Err(fault::error(py, fault.hint("write `disk` or `memory`")));
            }
        };
        let data = Data::on_disk(folder);
        let appender = py.detach(|| Appender::open(&data, name, options)).map_err(|fault| fault::error(py, fault))?;
        Ok(Self { data, name: name.to_owned(), appender: Some(Ours::new(appender)), scratch: Vec::new() })
    }

    /// Append one message; returns its sequence. Waits for room where readers hold the stream back.
    ///
    /// content: its schema (`"ev44"`), with `fields`; the message as bytes, as `beamport.wire.serialise_...` makes
    ///     it; a message; or a value: a number, an array, a `dict` or `beamport.result(...)`, as a source yields it.
    /// fields: values by the names of the schema, with numpy arrays, numbers, texts, and dictionaries for tables. A
    ///     time and a `source_name` that are left out are `time` (or now) and `origin`. Or, with a schema that beamport
    ///     does not know, bytes.
    /// time: source time, as `since` of `Stream.read` takes it. Default: the time in the message, else now.
    /// origin: who made it. Default: the name in the message (`source_name`, `name`, `source` or `key`); of a value the
    ///     name of the stream.
    /// origin_seq: its number from its maker. Default: one more than the newest of the origin.
    #[pyo3(signature = (content, fields=None, *, time=None, origin=None, origin_seq=None))]
    fn append(
        &mut self,
        py: Python<'_>,
        content: &Bound<'_, PyAny>,
        fields: Option<&Bound<'_, PyAny>>,
        time: Option<&Bound<'_, PyAny>>,
        origin: Option<&str>,
        origin_seq: Option<u64>,
    ) -> PyResult<u64> {
        let now = self.data.media.now();
        let time = time.map(|time| nanoseconds(py, time, "time", now)).transpose()?;
        let given = Given { time, origin, origin_seq };
        let schema = content.cast::<PyString>().ok();
        match (schema, fields.map(|fields| fields.cast::<PyMapping>())) {
            (Some(schema), Some(Ok(fields))) => {
                let beside = Beside { time: time.unwrap_or(now), origin };
                let named = Named::of(schema.to_str()?, fields, &beside)?;
                named.with(|message| self.append_message(py, &named, message, &given))
            }
            (Some(schema), Some(Err(_))) => {
                let schema = schema.to_str()?;
                let Ok(id) = <[u8; 4]>::try_from(schema.as_bytes()) else {
                    return Err(self.refused(py, format!("`{schema}` is not a schema id of four letters")));
                };
                let exported = fields.map(Exported::of).transpose()?;
                self.append_bytes(py, exported.as_ref().map_or(&[], Exported::bytes), Some(id), &given)
            }
            (Some(schema), None) => Err(self.refused(py, format!("schema `{schema}` is given without `fields`"))),
            (None, Some(_)) => Err(self.refused(py, "`fields` are given without a schema".to_owned())),
            (None, None) => match payload(content)? {
                Some(payload) => self.append_bytes(py, payload.bytes(), None, &given),
                None => self.append_value(py, content, &given),
            },
        }
    }

    /// Wait until all that was appended is as safe as the level of the stream promises; False after `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn wait(&mut self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let began = Instant::now();
        let timeout = timeout.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO));
        let appender = self.appender(py)?;
        let (next, level) = (appender.next_sequence(), appender.writer().header().level);
        loop {
            let left = timeout.map_or(WAIT_STEP, |timeout| timeout.saturating_sub(began.elapsed()).min(WAIT_STEP));
            let is_safe = py.detach(|| appender.wait(next, level, left)).map_err(|fault| fault::error(py, fault))?;
            if is_safe {
                return Ok(true);
            }
            if timeout.is_some_and(|timeout| began.elapsed() >= timeout) {
                return Ok(false);
            }
            if let Some(why) = appender.writer().trouble() {
                let fault = flow::not_written(format!("stream `{}` is not written to disk", self.name), Some(why));
                return Err(fault::error(py, fault));
            }
            py.check_signals()?;
        }
    }

    /// Name of the stream.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// What its messages survive: `"memory"` the death of any process, `"disk"` a power cut.
    #[getter]
    fn level(&mut self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(self.appender(py)?.writer().header().level.as_str())
    }

    /// The sequence of the next message.
    #[getter]
    fn count(&mut self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.appender(py)?.next_sequence())
    }

    /// The sequence below which messages are as safe as the level promises.
    #[getter]
    fn mark(&mut self, py: Python<'_>) -> PyResult<u64> {
        let writer = self.appender(py)?.writer();
        let level = writer.header().level;
        Ok(writer.mark(level))
    }

    /// Wait as `wait` does, then end the stream for now. Another process may write it from here on.
    fn close(&mut self, py: Python<'_>) -> PyResult<()> {
        let waited = match &self.appender {
            Some(appender) if appender.is_ours() => self.wait(py, None).map(drop),
            _ => Ok(()),
        };
        let appender = self.appender.take();
        py.detach(|| drop(appender));
        waited
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_why))]
    fn __exit__(&mut self, py: Python<'_>, _why: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        let state = if self.appender.is_some() { "" } else { ", closed" };
        format!("<beamport.Writer '{}' of '{}'{state}>", self.name, self.data.folder.display())
    }

    fn __reduce__(&self, py: Python<'_>) -> PyResult<()> {
        Err(unpicklable(py, "a writer"))
    }
}

/// Make a message that is in no stream yet, for a worker to return or a source to yield: of any schema, with time and
/// origin of its own.
///
/// schema: the schema id, four letters. Of a schema that beamport does not know `fields` are bytes.
/// fields: values by the names of the schema, as `Writer.append` takes them; or the bytes of the message, such as a
///     numpy record.
/// time: source time, as `since` of `Stream.read` takes it. Default: the time in the message, else now.
/// origin: name of its origin. Default: the name in the message; without one, that of the message that it is made of.
/// origin_seq: its number from its maker. Default: of a source the next one of the origin, else 0.
///
/// Example:
///     >>> import beamport
///     >>> m = beamport.message("f144", {"source_name": "T", "timestamp": 7, "value": 1.5}, origin_seq=3)
///     >>> (m.value, m.origin, m.source_time, m.origin_seq)
///     (1.5, 'T', 7, 3)
#[pyfunction]
#[pyo3(signature = (schema, fields, *, time=None, origin=None, origin_seq=None))]
pub(crate) fn message(
    py: Python<'_>,
    schema: &str,
    fields: &Bound<'_, PyAny>,
    time: Option<&Bound<'_, PyAny>>,
    origin: Option<&str>,
    origin_seq: Option<u64>,
) -> PyResult<Made> {
    let refused = |cause: String| {
        let fault = Fault::new("cannot make a message", cause);
        fault::error(py, fault.hint("write `beamport.message(\"f144\", {\"source_name\": ...})`"))
    };
    let id = <[u8; 4]>::try_from(schema.as_bytes());
    let id = id.map_err(|_| refused(format!("`{schema}` is not a schema id of four letters")))?;
    let now = store::Media::now(store::Os::shared().as_ref());
    let time = time.map(|time| nanoseconds(py, time, "time", now)).transpose()?;
    let mut written = Vec::new();
    if let Ok(fields) = fields.cast::<PyMapping>() {
        let named = Named::of(schema, fields, &Beside { time: time.unwrap_or(now), origin })?;
        named.with(|message| message.write(&mut written).map_err(|error| named.unfit(&error)))?;
    } else {
        written.extend_from_slice(Exported::of(fields)?.bytes());
    }
    let read = wire::read(&written).ok().filter(|_| wire::schema_id(&written) == Some(id));
    let time = time.or_else(|| read.as_ref().and_then(Message::time)).unwrap_or(now);
    let origin = origin.or_else(|| read.as_ref().and_then(Message::maker)).unwrap_or_default();
    let mut made = of_bytes(&written, (0, time, now), (origin, origin_seq.unwrap_or(0)), (&id, 0))?;
    made.is_numbered = origin_seq.is_some();
    Ok(made)
}

/// The caller's arguments beside the message.
struct Given<'a> {
    /// Source time, ns since 1970 UTC.
    time: Option<i64>,
    origin: Option<&'a str>,
    origin_seq: Option<u64>,
}

impl Writer {
    fn appender(&mut self, py: Python<'_>) -> PyResult<&mut Appender> {
        let cause = "the writer is closed";
        let closed = || Fault::new(format!("cannot append to stream `{}`", self.name), cause);
        match &mut self.appender {
            Some(appender) => {
                appender.check(py, "a writer")?;
                Ok(appender)
            }
            None => Err(fault::error(py, closed().hint("reopen it with `data.create(...)`"))),
        }
    }

    fn refused(&self, py: Python<'_>, cause: String) -> PyErr {
        let fault = Fault::new(format!("cannot append to stream `{}`", self.name), cause);
        fault::error(py, fault.hint(
                "write `append(\"f144\", {\"source_name\": ...})` or `append(payload)`; a text or an array of bytes as a \
                 value: `append(beamport.result(value))`",
            ))
    }

    /// Time and origin of a message: as said, else what it says itself.
    fn label<'l>(&self, given: &Given<'l>, message: Option<&Message<'l>>, schema: [u8; 4]) -> Label<'l> {
        let time = given.time.or_else(|| message.and_then(Message::time)).unwrap_or_else(|| self.data.media.now());
        let origin = given.origin.or_else(|| message.and_then(Message::maker)).unwrap_or_default();
        Label { time, origin, number: given.origin_seq, schema: SchemaId(schema) }
    }

    fn append_message(
        &mut self,
        py: Python<'_>,
        named: &Named<'_>,
        message: &Message<'_>,
        given: &Given<'_>,
    ) -> PyResult<u64> {
        let len = message.written_len().map_err(|error| named.unfit(&error))?;
        let label = self.label(given, Some(message), named.id());
        if len >= DIRECT_BYTES_MIN {
            return self.push(py, |appender| {
                // It was counted a moment ago, and the interpreter is held: nothing has changed since.
                appender.push_written(&label, len, |room| {
                    let _ = message.write_into(room);
                })
            });
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let written = message.write(&mut scratch).map_err(|error| named.unfit(&error));
        let answer = written.and_then(|()| self.push(py, |appender| appender.push(&label, &[&scratch])));
        self.scratch = scratch;
        answer
    }

    fn append_bytes(
        &mut self,
        py: Python<'_>,
        payload: &[u8],
        schema: Option<[u8; 4]>,
        given: &Given<'_>,
    ) -> PyResult<u64> {
        let message = wire::read(payload).ok();
        let said = wire::schema_id(payload).filter(|id| id.iter().all(u8::is_ascii_graphic));
        let Some(id) = schema.or(said) else {
            return Err(self.refused(py, format!("its {} bytes do not begin as a message does", payload.len())));
        };
        let label = self.label(given, message.as_ref(), id);
        self.push(py, |appender| appender.push(&label, &[payload]))
    }

    /// Appends a value as one message.
    fn append_value(&mut self, py: Python<'_>, value: &Bound<'_, PyAny>, given: &Given<'_>) -> PyResult<u64> {
        let mut leaves = Vec::new();
        let now = given.time.unwrap_or_else(|| self.data.media.now());
        let mut entry: Entry = bytemuck::Zeroable::zeroed();
        (entry.source_time, entry.arrival_time) = (now, now);
        let walked = walk(&call(&none(&entry)), value, 0, &mut |_, leaf| {
            leaves.push(leaf);
            Ok(())
        });
        let done = walked.and_then(|()| match leaves.as_slice() {
            [leaf] => {
                let own = Own::of(leaf, entry.source_time)?;
                entry.source_time = given.time.or(own.time).unwrap_or(now);
                let origin = given.origin.or(own.name.as_deref()).unwrap_or(&self.name).to_owned();
                let number = given.origin_seq.or(own.origin_seq);
                let next = self.appender(py)?.next_number(&origin).map_err(|fault| fault::error(py, fault))?;
                entry.origin_seq = number.unwrap_or(next);
                let mut out = One { py, writer: self, origin: &origin, number, given, sequence: Ok(0) };
                let pushed = Results::default().push(&call(&none(&entry)), 0, leaf, &mut out);
                match pushed {
                    Ok(()) | Err(Undone::Stop(Stop::Full)) => out.sequence.map_err(Undone::Raised),
                    Err(undone) => Err(undone),
                }
            }
            [] => Err(PyTypeError::new_err("`None` is no message: append a value").into()),
            several => {
                let cause = format!("the value is {} messages: append each of them", several.len());
                Err(PyTypeError::new_err(cause).into())
            }
        });
        done.map_err(|undone| match undone {
            Undone::Raised(raised) => raised,
            Undone::Stop(Stop::Fault(wrong)) => fault::error(py, wrong),
            Undone::Stop(Stop::Full) => self.refused(py, "there is no room".to_owned()),
        })
    }

    /// Offers a message until there is room for it, and publishes it.
    fn push(
        &mut self,
        py: Python<'_>,
        mut offer: impl FnMut(&mut Appender) -> Result<Option<u64>, Fault>,
    ) -> PyResult<u64> {
        let appender = self.appender(py)?;
        loop {
            if let Some(sequence) = offer(appender).map_err(|fault| fault::error(py, fault))? {
                appender.publish();
                return Ok(sequence);
            }
            py.check_signals()?;
            py.detach(|| appender.wait_room(WAIT_STEP));
        }
    }
}

/// The message in place of those that code is called with, of which a value has none.
fn none(entry: &Entry) -> [store::Message<'_>; 1] {
    [store::Message { sequence: OF_SOURCE, entry, payload: &[] }]
}

fn call<'m>(none: &'m [store::Message<'m>; 1]) -> Call<'m> {
    Call { messages: none, rows: &[0] }
}

/// The bytes of a whole message: bytes, a view of bytes, or an array of them of one dimension. `None`: it is a value.
fn payload(content: &Bound<'_, PyAny>) -> PyResult<Option<Exported>> {
    if content.cast::<Made>().is_ok() {
        return Ok(None);
    }
    let Ok(exported) = Exported::of(content) else { return Ok(None) };
    let buffer = exported.buffer();
    Ok((buffer.item_size() == 1 && buffer.dimensions() == 1).then_some(exported))
}

/// One message at the end of a stream.
struct One<'w, 'py> {
    py: Python<'py>,
    writer: &'w mut Writer,
    /// Name of its origin where it has none.
    origin: &'w str,
    number: Option<u64>,
    given: &'w Given<'w>,
    sequence: PyResult<u64>,
}

impl One<'_, '_> {
    fn append(&mut self, label: &Label<'_>, parts: &[&[u8]]) -> Result<(), Stop> {
        self.sequence = self.writer.push(self.py, |appender| appender.push(label, parts));
        self.sequence.as_ref().map(drop).map_err(|_| Stop::Full)
    }
}

impl Place for One<'_, '_> {
    fn maker(&self) -> &str {
        self.origin
    }

    fn push(&mut self, _of: &Entry, made: &flow::Made, name: Option<&str>, parts: &[&[u8]]) -> Result<(), Stop> {
        let origin = self.given.origin.or(name).unwrap_or(self.origin);
        let label = Label { time: made.source_time, origin, number: self.number, schema: made.schema };
        self.append(&label, parts)
    }

    fn push_own(&mut self, origin: &str, made: &flow::Made, is_numbered: bool, parts: &[&[u8]]) -> Result<(), Stop> {
        let time = self.given.time.unwrap_or(made.source_time);
        let origin = self.given.origin.unwrap_or(if origin.is_empty() { self.origin } else { origin });
        let number = self.given.origin_seq.or(is_numbered.then_some(made.origin_seq));
        self.append(&Label { time, origin, number, schema: made.schema }, parts)
    }
}
