//! A slot with user code, for `python -m beamport._slot`.
//!
//! Constraints: one message a call, and the code sees a view of it; a result is copied once, into stream memory. The
//! interpreter is held from the first message of a batch to its last, and released while there is nothing to do.
//!
//! Failure behaviour: an exception sets the message aside with its traceback, and the next one comes. An exception that
//! is not an `Exception` (`SystemExit`, `KeyboardInterrupt`) ends the slot; the worker's supervisor starts another.

use crate::batch::Batch;
use crate::block::Block;
use crate::fault;
use crate::finder::Finding;
use crate::memory::bytes_of_buffer;
use crate::message::Message;
use crate::owned::{Ours, pinned};
use flow::{Data, Fault, Made, Outputs, Slot, SlotJob, Stepped, Stop};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyString, PyType};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::ad00::{Ad00, Head};
use wire::{DType, Numbers};

/// Longest sleep without a look at whether it is to end.
const NAP: Duration = Duration::from_millis(250);
/// Lists in lists that a worker may return.
const LISTS_MAX: u32 = 32;

/// A slot of a worker, for `beamport._slot` alone: it may change with any version.
#[pyclass(module = "beamport._core", name = "_Slot")]
pub(crate) struct PySlot {
    slot: Ours<Slot>,
    data: Data,
    job: SlotJob,
}

#[pymethods]
impl PySlot {
    /// Opens the slot of a job, a JSON text of `beamport up`.
    #[new]
    fn open(py: Python<'_>, job: &[u8]) -> PyResult<Self> {
        let job: SlotJob = serde_json::from_slice(job)
            .map_err(|e| fault::error(py, Fault::new("only `beamport up` starts slots", e)))?;
        let data = Data::on_disk(&job.data);
        let slot = Slot::of_job(&data, &job).map_err(|e| fault::error(py, e))?;
        Ok(Self { slot: Ours::new(slot), data, job })
    }

    /// Works until asked to end. `call` gets a message (with `batch` > 1 a `Batch` of at most that length); `configure`
    /// new parameters as JSON text, and returns the new `call` or none; `statistics` returns JSON text.
    fn run(
        &mut self,
        py: Python<'_>,
        call: Py<PyAny>,
        batch: usize,
        configure: Py<PyAny>,
        statistics: Py<PyAny>,
    ) -> PyResult<()> {
        let slot = &mut *self.slot;
        let mut calling = Calling {
            stage: &self.job.stage,
            call,
            configure,
            statistics,
            batch: batch.max(1),
            origins: Arc::new([]),
            head: Head::default(),
            headed: None,
            bytes: Vec::new(),
            raised: None,
        };
        // Behind what it made readers move on, or nobody: it waits as long as that takes.
        let done = work(py, slot, &mut calling, true);
        done.map_err(|fault| fault.map_or_else(|raised| raised, |fault| calling.raised(py, fault)))
    }

    /// The same for a finder of groups. `make` gets parameters as JSON text, and returns what is to be called and how
    /// often.
    fn run_finder(&mut self, py: Python<'_>, make: Py<PyAny>) -> PyResult<()> {
        let slot = &mut *self.slot;
        let input = self.job.inputs.first().map_or("", String::as_str);
        let mut finding = Finding::new(&self.data, &self.job.stage, input, make);
        // Without room the message is begun again instead of waiting: the slot itself may hold what is in the way.
        let done = work(py, slot, &mut finding, false);
        done.map_err(|fault| fault.map_or_else(|raised| raised, |fault| finding.raised(py, fault)))
    }
}

/// Works until asked to end, or something is wrong. `waits`: it waits in the middle of a message for room.
fn work(
    py: Python<'_>,
    slot: &mut Slot,
    worker: &mut (dyn flow::Worker + Send),
    waits: bool,
) -> Result<(), Result<Fault, PyErr>> {
    loop {
        let stepped = py.detach(|| {
            // A task of another slot wakes this one too: the interpreter has nothing to do with that.
            let until = Instant::now() + NAP;
            loop {
                let stepped = slot.step(worker, &mut |writer| {
                    writer.wait_room(NAP);
                    waits
                })?;
                match stepped {
                    Stepped::Idle if slot.wait(NAP)? && Instant::now() < until => continue,
                    Stepped::Full => slot.wait_room(NAP),
                    Stepped::Idle | Stepped::Worked | Stepped::Ended => {}
                }
                return Ok(stepped);
            }
        });
        match stepped {
            Ok(Stepped::Ended) => return Ok(()),
            Ok(_) => py.check_signals().map_err(Err)?,
            Err(fault) => return Err(Ok(fault)),
        }
    }
}

/// User code as a worker.
struct Calling<'s> {
    stage: &'s str,
    call: Py<PyAny>,
    configure: Py<PyAny>,
    statistics: Py<PyAny>,
    batch: usize,
    origins: Arc<[Arc<str>]>,
    /// The head of the last frame that was made: most are alike.
    head: Head,
    headed: Option<(DType, Vec<i64>)>,
    bytes: Vec<u8>,
    /// The exception that ends the slot.
    raised: Option<PyErr>,
}

/// Why a message was not done.
enum Undone {
    Raised(PyErr),
    Stop(Stop),
}

impl From<PyErr> for Undone {
    fn from(raised: PyErr) -> Self {
        Self::Raised(raised)
    }
}

impl From<Stop> for Undone {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl flow::Worker for Calling<'_> {
    fn work(&mut self, batch: &store::Batch<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        if self.origins.len() != out.origin_names().len() {
            self.origins = out.origin_names().iter().map(|name| name.as_str().into()).collect();
        }
        let block = Arc::new(Block {
            entries: batch.entries.to_vec(),
            sequences: (batch.first..batch.next()).collect(),
            places: (0..batch.len()).map(|at| batch.place(at)).collect(),
            segments: batch.segments().iter().map(pinned).collect(),
            origins: self.origins.clone(),
        });
        let messages: Vec<store::Message<'_>> = batch.iter().collect();
        let wanted: Vec<usize> = (0..messages.len()).filter(|at| out.wants(&messages[*at])).collect();
        // Where a segment of memory ends a batch ends; those behind it are cut where they would have been.
        let before = wanted.first().map_or(0, |at| messages[*at].sequence.saturating_sub(out.block_first()));
        let rest = self.batch - (before % self.batch as u64) as usize;
        let (head, tail) = wanted.split_at(rest.min(wanted.len()));
        let mut all = std::iter::once(head).chain(tail.chunks(self.batch));
        Python::attach(|py| all.try_for_each(|rows| self.rows(py, &block, &messages, rows, out)))
    }

    fn looks_at_payloads(&self) -> bool {
        true
    }

    fn keeps(&self) -> bool {
        false
    }

    fn configure(&mut self, parameters: &str) -> Result<(), Fault> {
        Python::attach(|py| match self.configure.call1(py, (parameters,)) {
            Ok(call) if call.is_none(py) => Ok(()),
            Ok(call) => {
                self.call = call;
                Ok(())
            }
            Err(raised) => {
                let fault = Fault::new(format!("worker `{}` rejects its parameters", self.stage), &raised);
                self.raised = Some(raised);
                Err(fault)
            }
        })
    }

    fn statistics(&mut self) -> String {
        // Statistics that cannot be had are none: the data is worth more.
        Python::attach(|py| self.statistics.call0(py).and_then(|text| text.extract(py)).unwrap_or_default())
    }
}

impl Calling<'_> {
    /// The exception that ends the slot, for the caller.
    fn raised(&mut self, py: Python<'_>, fault: Fault) -> PyErr {
        self.raised.take().unwrap_or_else(|| fault::error(py, fault))
    }

    /// Gives some messages to the user's code, together where it accepts batches. A refused batch is tried in halves,
    /// so that one message does not take others with it.
    fn rows(
        &mut self,
        py: Python<'_>,
        block: &Arc<Block>,
        messages: &[store::Message<'_>],
        rows: &[usize],
        out: &mut Outputs<'_>,
    ) -> Result<(), Stop> {
        let (Some(&first), Some(&last)) = (rows.first(), rows.last()) else { return Ok(()) };
        out.begin(&messages[first]);
        let called = match self.batch {
            1 => block.message(last).map(|message| self.call.call1(py, (message,))),
            _ => Some(self.call.call1(py, (Batch::new(Arc::new(block.part(rows))),))),
        };
        // One slot is enough for a message: a child that it forked comes no further.
        store::end_if_forked();
        let given = match called {
            Some(Ok(value)) if rows.len() == 1 && is_same(&messages[last], value.bind(py)) => {
                return out.same(&messages[last]);
            }
            Some(Ok(value)) => self.give(&messages[last], value.bind(py), 0, out),
            Some(Err(raised)) => Err(raised.into()),
            None => Ok(()),
        };
        match given {
            Ok(()) => {
                out.done(&messages[last]);
                Ok(())
            }
            Err(Undone::Stop(stop)) => Err(stop),
            Err(Undone::Raised(_)) if rows.len() > 1 => {
                out.undo()?;
                let (low, high) = rows.split_at(rows.len() / 2);
                self.rows(py, block, messages, low, out)?;
                self.rows(py, block, messages, high, out)
            }
            Err(Undone::Raised(raised)) => out.aside(&messages[last], "error", &traceback(py, &raised)),
        }
    }

    /// Appends what user code made of a message.
    fn give(
        &mut self,
        of: &store::Message<'_>,
        value: &Bound<'_, PyAny>,
        depth: u32,
        out: &mut Outputs<'_>,
    ) -> Result<(), Undone> {
        let py = value.py();
        if value.is_none() {
            return Ok(());
        }
        if let Ok(message) = value.cast::<Message>() {
            let (entry, bytes) = message.get().raw(py)?;
            let made = Made {
                source_time: entry.source_time,
                schema: entry.schema,
                origin_seq: entry.origin_seq,
                flags: entry.flags,
            };
            return Ok(out.push(of.entry, &made, &[bytes])?);
        }
        if let Ok(variables) = value.cast::<PyDict>() {
            return self.give_dict(of, variables, out);
        }
        if is_array(value)? || value.hasattr("__float__")? && !value.is_instance_of::<PyString>() {
            return self.give_array(of, value, out);
        }
        if value.is_instance_of::<PyString>() || value.is_instance_of::<PyBytes>() {
            return Err(not_made(value).into());
        }
        let Ok(several) = value.try_iter() else { return Err(not_made(value).into()) };
        if depth == LISTS_MAX {
            return Err(PyTypeError::new_err(format!("a worker returned lists nested {LISTS_MAX} deep")).into());
        }
        for one in several {
            // A generator is code of the user, too.
            store::end_if_forked();
            self.give(of, &one?, depth + 1, out)?;
        }
        Ok(())
    }

    /// An array becomes a frame (`ad00`), a number a value (`f144`).
    fn give_array(
        &mut self,
        of: &store::Message<'_>,
        value: &Bound<'_, PyAny>,
        out: &mut Outputs<'_>,
    ) -> Result<(), Undone> {
        let array = Plain::of(value)?;
        let pixels = array.bytes()?;
        let data = Numbers::new(array.dtype, pixels).ok_or_else(|| not_made(value))?;
        let entry = of.entry;
        if array.shape.is_empty() {
            let Some(scalar) = data.get(0) else { return Err(not_made(value).into()) };
            let value = wire::f144::Value::Scalar(scalar);
            let value = wire::f144::F144 { source_name: out.maker(), timestamp: entry.source_time, value };
            wire::f144::write(&mut self.bytes, &value).map_err(coded)?;
            return Ok(out.push(entry, &Made::of(entry, wire::f144::ID), &[&self.bytes])?);
        }
        // Frames keep the number and the attributes of the frame that they are made of.
        let frame = match entry.schema.0 {
            wire::ad00::ID => wire::ad00::read(of.payload).ok(),
            _ => None,
        };
        let id = frame.as_ref().map_or(entry.origin_seq as i32, |frame| frame.id);
        // What is known of it stays known: where a tile belongs, for one.
        let attributes = frame.map(|frame| frame.attributes).unwrap_or_default();
        let is_bare = attributes.is_empty();
        if !is_bare || self.headed.as_ref() != Some(&(array.dtype, array.shape.clone())) {
            let frame = Ad00 {
                source_name: out.maker(),
                id,
                timestamp: entry.source_time,
                dimensions: array.shape.as_slice().into(),
                data,
                attributes,
            };
            self.head.write(&frame).map_err(coded)?;
            self.headed = is_bare.then(|| (array.dtype, array.shape.clone()));
        }
        self.head.set(id, entry.source_time);
        let Some(parts) = self.head.parts(pixels) else { return Err(not_made(value).into()) };
        Ok(out.push(entry, &Made::of(entry, wire::ad00::ID), &parts)?)
    }

    /// A dict of arrays and numbers becomes a data array (`da00`), a variable a name.
    fn give_dict(
        &mut self,
        of: &store::Message<'_>,
        variables: &Bound<'_, PyDict>,
        out: &mut Outputs<'_>,
    ) -> Result<(), Undone> {
        let py = variables.py();
        let mut arrays: Vec<(String, Plain<'_>)> = Vec::new();
        for (name, value) in variables {
            let key = || format!("a worker made a dict with the key {name}: keys are names, texts like \"x\"");
            let name: String = name.extract().map_err(|_| PyTypeError::new_err(key()))?;
            let array = Plain::of(&value).map_err(|e| match e.is_instance_of::<PyTypeError>(py) {
                true => PyTypeError::new_err(format!("`{name}` of a dict: {}", e.value(py))),
                false => e,
            })?;
            arrays.push((name, array));
        }
        let axes: Vec<Vec<String>> =
            arrays.iter().map(|(_, a)| (0..a.shape.len()).map(|axis| format!("dim_{axis}")).collect()).collect();
        let axes: Vec<Vec<&str>> = axes.iter().map(|names| names.iter().map(String::as_str).collect()).collect();
        let mut data = Vec::new();
        for ((name, array), axes) in arrays.iter().zip(&axes) {
            let bytes = array.bytes()?;
            let values = Numbers::new(array.dtype, bytes);
            data.push(wire::da00::Variable {
                name,
                unit: None,
                label: None,
                source: None,
                axes: axes.as_slice().into(),
                shape: array.shape.as_slice().into(),
                data: values.ok_or_else(|| PyTypeError::new_err(format!("`{name}` is not an array of numbers")))?,
            });
        }
        let message = wire::da00::Da00 {
            source_name: out.maker(),
            timestamp: of.entry.source_time,
            data: data.as_slice().into(),
        };
        wire::da00::write(&mut self.bytes, &message).map_err(coded)?;
        Ok(out.push(of.entry, &Made::of(of.entry, wire::da00::ID), &[&self.bytes])?)
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
        static ASARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let asarray = ASARRAY.import(py, "beamport._worker", "_plain")?;
        let array = asarray.call1((value,))?;
        let name: String = array.getattr("dtype")?.getattr("name")?.extract()?;
        let dtype = DType::ALL.into_iter().find(|d| *d != DType::Text && d.name() == name);
        let dtype = dtype.ok_or_else(|| not_made(value))?;
        let shape = array.getattr("shape")?.extract()?;
        // In a row, without a copy: an array of no dimensions has no buffer.
        Ok(Self { array: array.call_method1("reshape", (-1,))?, dtype, shape })
    }

    fn bytes(&self) -> PyResult<&[u8]> {
        bytes_of_buffer(&self.array)
    }
}

/// True where user code gives back what it was given: that is not copied.
fn is_same(given: &store::Message<'_>, value: &Bound<'_, PyAny>) -> bool {
    let Ok(message) = value.cast::<Message>() else { return false };
    let raw = message.get().raw(value.py());
    raw.is_ok_and(|(entry, bytes)| entry == given.entry && std::ptr::eq(bytes, given.payload))
}

fn is_array(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    static NDARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    value.is_instance(NDARRAY.import(value.py(), "numpy", "ndarray")?)
}

fn not_made(value: &Bound<'_, PyAny>) -> PyErr {
    let kind = value.get_type().name().map(|n| n.to_string()).unwrap_or_default();
    let dtype = value.getattr("dtype").map(|dtype| format!(" of dtype `{dtype}`")).unwrap_or_default();
    PyTypeError::new_err(format!(
        "a worker made a `{kind}`{dtype}; it returns or yields nothing, numbers, arrays of numbers, dicts of these, or messages"
    ))
}

fn coded(cause: wire::Error) -> PyErr {
    PyTypeError::new_err(format!("cannot encode the result of a worker: {cause}"))
}

/// The traceback as Python prints it.
fn traceback(py: Python<'_>, raised: &PyErr) -> String {
    let lines = py
        .import("traceback")
        .and_then(|module| module.getattr("format_exception"))
        .and_then(|format| format.call1((raised.get_type(py), raised.value(py), raised.traceback(py))))
        .and_then(|lines| lines.extract::<Vec<String>>());
    lines.map_or_else(|_| raised.to_string(), |lines| lines.concat())
}
