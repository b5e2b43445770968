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
use crate::hooks::{Hooks, Wishes};
use crate::members::Members;
use crate::owned::Ours;
use crate::results::{Call, Results, Undone};
use flow::{Data, Fault, Outputs, RunsView, Slot, SlotJob, Stepped, Stop};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest sleep without a look at whether it is to end.
const NAP: Duration = Duration::from_millis(250);

/// A slot of a worker, for `beamport._slot` alone: it may change with any version.
#[pyclass(module = "beamport._core", name = "_Slot")]
pub(crate) struct PySlot {
    slot: Ours<Slot>,
    data: Data,
    job: SlotJob,
    present: PresentRun,
}

/// The message at hand, and the run to which it belongs: for `beamport.slot.run`.
#[pyclass(module = "beamport._core", name = "_PresentRun", frozen)]
#[derive(Clone)]
pub(crate) struct PresentRun {
    /// Source time of the message, ns since 1970 UTC.
    time: Arc<AtomicI64>,
    runs: Arc<Mutex<RunsView>>,
}

#[pymethods]
impl PresentRun {
    /// The run to which the message at hand belongs, of several the one that began last, as JSON; none outside of runs.
    fn read(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let time = self.time.load(Ordering::Relaxed);
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let all = runs.refresh().map_err(|fault| fault::error(py, fault))?;
        let newest = all.iter().filter(|run| run.holds(time)).max_by_key(|run| run.start);
        Ok(newest.and_then(|run| serde_json::to_string(run).ok()))
    }
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
        let runs = Arc::new(Mutex::new(RunsView::early(&data)));
        let present = PresentRun { time: Arc::new(AtomicI64::new(i64::MIN)), runs };
        Ok(Self { slot: Ours::new(slot), data, job, present })
    }

    /// Works until asked to end. `code` is a `beamport._worker.Code`; `statistics` returns JSON text.
    fn run(&mut self, py: Python<'_>, code: Py<PyAny>, statistics: Py<PyAny>) -> PyResult<()> {
        let bound = code.bind(py);
        let (follows_runs, per_run, saves_state, is_class, ends_runs) = bound.getattr("wishes")?.extract()?;
        let wishes = Wishes { follows_runs, per_run, saves_state, is_class, ends_runs };
        let hooks = match is_class || follows_runs {
            true => Some(Hooks::new(&self.data, &self.job, wishes).map_err(|fault| fault::error(py, fault))?),
            false => None,
        };
        let members = bound.getattr("members")?.extract::<bool>()?.then(|| Members::new(&self.data));
        let mut calling = Calling {
            stage: &self.job.stage,
            call: bound.getattr("call")?.unbind(),
            batch: bound.getattr("batch")?.extract::<usize>()?.max(1),
            code,
            statistics,
            hooks,
            members,
            present: self.present.clone(),
            origins: Arc::new([]),
            results: Results::default(),
            raised: None,
        };
        // Behind what it made readers move on, or nobody: it waits as long as that takes.
        let done = work(py, &mut self.slot, &mut calling, true);
        done.map_err(|fault| fault.map_or_else(|raised| raised, |fault| calling.raised(py, fault)))
    }

    /// The run to which the message at hand belongs, the one that began last, as JSON; none outside of runs.
    #[getter]
    fn runs(&self) -> PresentRun {
        self.present.clone()
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
    /// A `beamport._worker.Code`, and what is to be called of it.
    code: Py<PyAny>,
    call: Py<PyAny>,
    statistics: Py<PyAny>,
    batch: usize,
    /// None for code that neither follows runs nor keeps anything.
    hooks: Option<Hooks>,
    /// None for code that is given messages alone.
    members: Option<Members>,
    present: PresentRun,
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
        let mut block = Block::new(self.origins.clone());
        block.add(batch);
        let block = Arc::new(block);
        let messages: Vec<store::Message<'_>> = batch.iter().collect();
        let wanted: Vec<usize> = (0..messages.len()).filter(|at| out.wants(&messages[*at])).collect();
        // Where a segment of memory ends a batch ends; those behind it are cut where they would have been.
        let before = wanted.first().map_or(0, |at| messages[*at].sequence.saturating_sub(out.block_first()));
        let rest = self.batch - (before % self.batch as u64) as usize;
        let (head, tail) = wanted.split_at(rest.min(wanted.len()));
        let all = std::iter::once(head).chain(tail.chunks(self.batch));
        Python::attach(|py| {
            self.with_hooks(py, |hooks, code| hooks.prepare(code, out))?;
            for rows in all {
                let mut rest = rows;
                while !rest.is_empty() {
                    // Messages of different runs are not given together.
                    let (these, others) = rest.split_at(self.of_same_runs(&messages, rest));
                    rest = others;
                    self.rows(py, &block, &messages, these, out)?;
                    self.with_hooks(py, |hooks, code| hooks.relieve(code, out))?;
                }
            }
            self.with_hooks(py, |hooks, code| hooks.save(code, out, false))
        })
    }

    fn pass_time(&mut self, time: i64, out: &mut Outputs<'_>) -> Result<(), Stop> {
        Python::attach(|py| {
            self.with_hooks(py, |hooks, code| hooks.prepare(code, out))?;
            let Some(hooks) = &mut self.hooks else { return Ok(()) };
            let (code, number) = (self.code.bind(py), out.next());
            let results =
                hooks.pass_time(code, time, number).map_err(|raised| stopped(&mut self.raised, self.stage, raised))?;
            for (entry, value) in results {
                let message = store::Message { sequence: number, entry: &entry, payload: &[] };
                let call = Call { messages: &[message], rows: &[0] };
                match self.results.give_own(&call, &value, out) {
                    Ok(()) => {}
                    Err(Undone::Stop(stop)) => return Err(stop),
                    Err(Undone::Raised(raised)) => {
                        code.call_method1("fail", (raised,))
                            .map_err(|raised| stopped(&mut self.raised, self.stage, raised))?;
                    }
                }
            }
            self.with_hooks(py, |hooks, code| hooks.save(code, out, true))
        })
    }

    fn looks_at_payloads(&self) -> bool {
        true
    }

    fn keeps(&self) -> bool {
        self.hooks.as_ref().is_some_and(Hooks::keeps)
    }

    fn configure(&mut self, parameters: &str) -> Result<(), Fault> {
        let changed = |py: Python<'_>| {
            self.code.call_method1(py, "change", (parameters,))?;
            self.code.getattr(py, "call")
        };
        Python::attach(|py| match changed(py) {
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

    fn reset(&mut self) -> Result<(), Fault> {
        Python::attach(|py| {
            self.code.call_method0(py, "reset").map(drop).map_err(|raised| {
                let fault = Fault::new(format!("worker `{}` fails in `reset`", self.stage), &raised);
                self.raised = Some(raised);
                fault
            })
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

    /// Calls hooks where the code has any. An exception there ends the slot.
    fn with_hooks(
        &mut self,
        py: Python<'_>,
        call: impl FnOnce(&mut Hooks, &Bound<'_, PyAny>) -> Result<(), Undone>,
    ) -> Result<(), Stop> {
        let Some(hooks) = &mut self.hooks else { return Ok(()) };
        match call(hooks, self.code.bind(py)) {
            Ok(()) => Ok(()),
            Err(Undone::Stop(stop)) => Err(stop),
            Err(Undone::Raised(raised)) => Err(stopped(&mut self.raised, self.stage, raised)),
        }
    }

    /// How many of these messages, from the first on, belong to the same runs.
    fn of_same_runs(&mut self, messages: &[store::Message<'_>], rows: &[usize]) -> usize {
        let Some(hooks) = self.hooks.as_mut().filter(|hooks| hooks.follows_runs()) else { return rows.len() };
        let Some(first) = rows.first().map(|row| hooks.time(messages[*row].entry)) else { return 0 };
        let runs = hooks.runs_at(first).to_vec();
        let differs = |row: &usize| hooks.runs_at(hooks.time(messages[*row].entry)) != runs;
        rows.iter().position(differs).unwrap_or(rows.len())
    }

    /// Calls the code with some messages, and appends its results.
    fn called(
        &mut self,
        py: Python<'_>,
        block: &Arc<Block>,
        call: Call<'_>,
        out: &mut Outputs<'_>,
    ) -> Result<(), Undone> {
        let Call { messages, rows } = call;
        if let (Some(hooks), Some(first)) = (&mut self.hooks, rows.first().map(|row| &messages[*row])) {
            let time = hooks.time(first.entry);
            if !hooks.enter(self.code.bind(py), (time, first.sequence))? {
                rows.iter().for_each(|row| out.filtered(&messages[*row]));
                return Ok(());
            }
        }
        let called = match (self.batch, rows.first()) {
            (1, Some(row)) => match (block.message(*row), &mut self.members) {
                (Some(message), None) => self.call.call1(py, (message,)),
                (Some(group), Some(members)) => {
                    let messages = members.of(out.input_name(), &messages[*row])?;
                    self.call.call1(py, (group, messages))
                }
                (None, _) => return Ok(()),
            },
            _ => self.call.call1(py, (Batch::new(Arc::new(block.part(rows))),)),
        };
        // One slot is enough for a message: a child that it forked comes no further.
        store::end_if_forked();
        self.results.give(&call, called?.bind(py), out)
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
        self.present.time.store(messages[last].entry.source_time, Ordering::Relaxed);
        let given = self.called(py, block, Call { messages, rows }, out);
        match given {
            Ok(()) => Ok(()),
            Err(Undone::Stop(stop)) => Err(stop),
            Err(Undone::Raised(_)) if rows.len() > 1 => {
                // The next answer speaks of all messages before these.
                self.with_hooks(py, |hooks, code| hooks.save(code, out, false))?;
                out.undo()?;
                let (low, high) = rows.split_at(rows.len() / 2);
                self.rows(py, block, messages, low, out)?;
                self.rows(py, block, messages, high, out)
            }
            Err(Undone::Raised(raised)) => out.aside(&messages[last], "error", &traceback(py, &raised)),
        }
    }
}

/// The fault of an exception that ends a slot, which is kept for the caller.
fn stopped(kept: &mut Option<PyErr>, stage: &str, raised: PyErr) -> Stop {
    let fault = Fault::new(format!("a slot of worker `{stage}` ends"), &raised);
    *kept = Some(raised);
    fault.into()
}

/// The traceback as Python prints it, with a hint for a usual mistake.
fn traceback(py: Python<'_>, raised: &PyErr) -> String {
    let lines = py
        .import("beamport._advice")
        .and_then(|module| module.getattr("formatted"))
        .and_then(|format| format.call1((raised.get_type(py), raised.value(py), raised.traceback(py))))
        .and_then(|lines| lines.extract::<Vec<String>>());
    lines.map_or_else(|_| raised.to_string(), |lines| lines.concat())
}
