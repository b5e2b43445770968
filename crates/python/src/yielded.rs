//! What the code of a source yields, as messages of a stream from which the source takes them: for
//! `python -m beamport._source`.
//!
//! Constraints: a value is copied once, into stream memory. While there is no room the code waits, and the interpreter
//! is released. Between the messages are notes for the source, with schemas of their own (`flow::job::Note`).
//!
//! Failure behaviour: a value that no message can hold is returned as its exception; nothing of it is appended, or, of
//! a list, what stands before it.

use crate::fault;
use crate::limits::{LOOSE_LIVE_BYTES, OF_SOURCE, WAIT_STEP};
use crate::owned::Ours;
use crate::results::{Call, Leaf, Own, Place, Results, Undone, walk};
use flow::job::Note;
use flow::{Data, Fault, Made, SlotJob, SourceJob, Stop, loose_stream, stream_fault};
use pyo3::prelude::*;
use std::collections::HashMap;
use store::{Entry, Meta, Options, SchemaId, WhenFull, Writer};

/// The stream of what the code of a source yields, for `beamport._source` alone: it may change with any version.
#[pyclass(module = "beamport._core", name = "_Yielded")]
pub(crate) struct Yielded {
    out: Out,
    results: Results,
}

#[pymethods]
impl Yielded {
    /// Opens the stream of a job, a JSON text of `beamport up`. `numbers`: the next number of each origin.
    #[new]
    fn open(py: Python<'_>, job: &[u8], numbers: HashMap<String, u64>) -> PyResult<Self> {
        let job: SourceJob = serde_json::from_slice(job)
            .map_err(|e| fault::error(py, Fault::new("only `beamport up` starts the code of sources", e)))?;
        let options = Options { when_full: WhenFull::Wait, ..Options::memory(job.live_bytes) };
        let writer = Data::on_disk(&job.data).writer(&job.stream, &options).map_err(|e| fault::error(py, e))?;
        let out = Out { writer: Ours::new(writer), job, numbers, number: None, raised: None };
        Ok(Self { out, results: Results::default() })
    }

    /// Opens the stream of loose results of a slot, of its job.
    #[staticmethod]
    fn loose(py: Python<'_>, job: &[u8]) -> PyResult<Self> {
        let job: SlotJob = serde_json::from_slice(job)
            .map_err(|e| fault::error(py, Fault::new("only `beamport up` starts slots", e)))?;
        let stream = loose_stream(&job.stage, job.number);
        let live_bytes = job.live_bytes.min(LOOSE_LIVE_BYTES);
        let options = Options { level: job.level, when_full: WhenFull::Wait, ..Options::memory(live_bytes) };
        let data = Data::on_disk(&job.data);
        let writer = py.detach(|| data.writer(&stream, &options)).map_err(|e| fault::error(py, e))?;
        // Several slots count each for itself.
        let source = if job.slots == 1 { job.maker } else { format!("{}.slot{}", job.maker, job.number) };
        let numbers = HashMap::from([(source.clone(), writer.next_sequence())]);
        let SlotJob { parent, data, code, .. } = job;
        let job = SourceJob { parent, data, source, stream, live_bytes, code };
        let out = Out { writer: Ours::new(writer), job, numbers, number: None, raised: None };
        Ok(Self { out, results: Results::default() })
    }

    /// Appends the messages of a value; `time`: when it was yielded, ns since 1970 UTC. Returns the exception of what
    /// no message can hold.
    fn give(&mut self, py: Python<'_>, value: &Bound<'_, PyAny>, time: i64) -> PyResult<Option<Py<PyAny>>> {
        self.out.writer.check(py, "what a source yields")?;
        let mut entry: Entry = bytemuck::Zeroable::zeroed();
        (entry.source_time, entry.arrival_time) = (time, time);
        let none = [store::Message { sequence: OF_SOURCE, entry: &entry, payload: &[] }];
        let mut leaves = Vec::new();
        let walked = walk(&Call { messages: &none, rows: &[0] }, value, 0, &mut |_, leaf| {
            leaves.push(leaf);
            Ok(())
        });
        let done = walked.and_then(|()| leaves.iter().try_for_each(|leaf| self.push(leaf, entry)));
        match done {
            Ok(()) => Ok(None),
            Err(Undone::Raised(raised)) => Ok(Some(raised.into_value(py).into_any())),
            Err(Undone::Stop(Stop::Full)) => Err(self.out.raised.take().unwrap_or_else(|| {
                fault::error(py, Fault::new("what a source yields finds no room", "its stream is full"))
            })),
            Err(Undone::Stop(Stop::Fault(wrong))) => Err(fault::error(py, wrong)),
        }
    }

    /// Appends a note for the source.
    fn note(&mut self, py: Python<'_>, kind: &str, text: &str, time: i64) -> PyResult<()> {
        let kind = Note::named(kind).ok_or_else(|| fault::error(py, Fault::new("cannot note", "no such kind")))?;
        let made = Made { source_time: time, schema: SchemaId(kind.schema()), origin_seq: 0, flags: 0 };
        let appended = self.out.append("", &made, &[text.as_bytes()]);
        appended.map_err(|stop| match (stop, self.out.raised.take()) {
            (Stop::Fault(wrong), _) => fault::error(py, wrong),
            (Stop::Full, Some(raised)) => raised,
            (Stop::Full, None) => fault::error(py, Fault::new("cannot note", "the stream is full")),
        })
    }

    /// Makes all that was appended visible to the source, at once.
    fn publish(&mut self) {
        self.out.writer.publish();
    }

    /// The next number of each origin.
    fn numbers(&self) -> HashMap<String, u64> {
        self.out.numbers.clone()
    }

    /// Sets the next number of each origin.
    fn set_numbers(&mut self, numbers: HashMap<String, u64>) {
        self.out.numbers = numbers;
    }
}

impl Yielded {
    /// Appends one message: its time is that of the yield, and its number the next one, unless the code gives others.
    fn push(&mut self, leaf: &Leaf<'_>, mut entry: Entry) -> Result<(), Undone> {
        let own = Own::of(leaf, entry.source_time)?;
        entry.source_time = own.time.unwrap_or(entry.source_time);
        self.out.number = own.origin_seq;
        let origin = own.name.unwrap_or_else(|| self.out.job.source.clone());
        entry.origin_seq = self.out.next_number(&origin);
        let none = [store::Message { sequence: OF_SOURCE, entry: &entry, payload: &[] }];
        self.results.push(&Call { messages: &none, rows: &[0] }, 0, leaf, &mut self.out)
    }
}

/// Where messages go.
struct Out {
    writer: Ours<Writer>,
    job: SourceJob,
    /// The next number of each origin that was used.
    numbers: HashMap<String, u64>,
    /// The number that the code gives the message which is made now.
    number: Option<u64>,
    /// The exception of a signal that came while it waited for room.
    raised: Option<PyErr>,
}

impl Out {
    /// The number of the message of an origin that is made now.
    fn next_number(&self, origin: &str) -> u64 {
        self.number.unwrap_or_else(|| self.numbers.get(origin).copied().unwrap_or(0))
    }

    /// Appends, and waits for room as long as there is none.
    fn append(&mut self, origin: &str, made: &Made, parts: &[&[u8]]) -> Result<(), Stop> {
        let fault = |e| Stop::Fault(stream_fault(&self.job.stream, e));
        let row = self.writer.origin(origin).map_err(fault)?;
        let meta = Meta {
            source_time: made.source_time,
            origin: row,
            origin_seq: made.origin_seq,
            schema: made.schema,
            flags: made.flags,
        };
        loop {
            match self.writer.push(&meta, parts) {
                Ok(_) => return Ok(()),
                Err(e) if e.is_full() && !matches!(e, store::Error::Io { .. }) => {}
                Err(e) => return Err(Stop::Fault(stream_fault(&self.job.stream, e))),
            }
            let writer = &*self.writer;
            let signalled = Python::attach(|py| {
                py.detach(|| writer.wait_room(WAIT_STEP));
                py.check_signals()
            });
            if let Err(raised) = signalled {
                self.raised = Some(raised);
                return Err(Stop::Full);
            }
        }
    }

    fn append_message(&mut self, origin: &str, made: &Made, parts: &[&[u8]]) -> Result<(), Stop> {
        self.append(origin, made, parts)?;
        let next = made.origin_seq.saturating_add(1);
        match self.numbers.get_mut(origin) {
            Some(known) => *known = next.max(*known),
            None => drop(self.numbers.insert(origin.to_owned(), next)),
        }
        Ok(())
    }
}

impl Place for Out {
    fn maker(&self) -> &str {
        &self.job.source
    }

    fn number(&self, _of: &Entry, source_name: &str) -> u64 {
        self.next_number(source_name)
    }

    fn push(&mut self, _of: &Entry, made: &Made, name: Option<&str>, parts: &[&[u8]]) -> Result<(), Stop> {
        let origin = name.unwrap_or(&self.job.source).to_owned();
        self.append_message(&origin, made, parts)
    }

    fn push_own(&mut self, origin: &str, made: &Made, is_numbered: bool, parts: &[&[u8]]) -> Result<(), Stop> {
        let origin = if origin.is_empty() { &self.job.source } else { origin }.to_owned();
        let origin_seq = if is_numbered { made.origin_seq } else { self.next_number(&origin) };
        self.append_message(&origin, &Made { origin_seq, ..*made }, parts)
    }
}
