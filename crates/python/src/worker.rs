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
use crate::owned::{Ours, pinned};
use crate::results::{Call, Results, Undone};
use flow::{Data, Fault, Outputs, Slot, SlotJob, Stepped, Stop};
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest sleep without a look at whether it is to end.
const NAP: Duration = Duration::from_millis(250);

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
            results: Results::default(),
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
    results: Results,
    /// The exception that ends the slot.
    raised: Option<PyErr>,
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
        let call = Call { messages, rows };
        let given = match called {
            Some(Ok(value)) => self.results.give(&call, value.bind(py), out),
            Some(Err(raised)) => Err(raised.into()),
            None => Ok(()),
        };
        match given {
            Ok(()) => Ok(()),
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
