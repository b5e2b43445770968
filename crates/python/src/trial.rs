//! The runner of a worker in this process, for `beamport.testing`: the runner of an instrument, in a thread, with one
//! slot, which is the caller's thread.
//!
//! Constraints: the thread needs no GIL. Input and output lie in a data folder of their own, on disk, so that nothing
//! is dropped.
//!
//! Failure behaviour: a fault of the runner is raised by `close`, and tells the slot to end.

use crate::fault;
use crate::limits::TRIAL_NAP;
use flow::job::{SlotCode, SlotJob};
use flow::{CodeTraits, Data, Fault, RunKeeper, UpstreamState, Work, WorkOptions};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use store::{Level, Options};

/// Requests of the caller, and the progress of the runner.
#[derive(Default)]
struct Shared {
    /// All input is there.
    has_all: AtomicBool,
    /// It is to end now.
    stop: AtomicBool,
    /// Rounds of the runner in which nothing was left to be done.
    idle: AtomicU64,
    /// Parameters to be sent.
    parameters: Mutex<Option<String>>,
}

/// A worker on trial.
#[pyclass(frozen, module = "beamport._core", name = "_Trial")]
pub(crate) struct Trial {
    shared: Arc<Shared>,
    job: Vec<u8>,
    runner: Mutex<Option<JoinHandle<Result<(), Fault>>>>,
}

#[pymethods]
impl Trial {
    /// Starts the runner of the worker `stage` on the stream `input` of a data folder. `code`: batch
    /// and wishes of a `beamport._worker.Code`; `texts`: parameters, and metadata of the run of which all messages are
    /// members if the code follows runs, both JSON objects.
    #[new]
    fn open(
        py: Python<'_>,
        folder: PathBuf,
        stage: &str,
        input: &str,
        code: (u64, (bool, bool, bool, bool, bool)),
        texts: (String, String),
        live: u64,
    ) -> PyResult<Self> {
        let data = Data::on_disk(&folder);
        let (batch, (is_in_run, _, saves_state, _, follows_runs)) = code;
        let (parameters, metadata) = texts;
        if is_in_run {
            py.detach(|| begin_run(&data, &metadata)).map_err(|e| fault::error(py, e))?;
        }
        let inputs = [input.to_owned()];
        let code_traits = CodeTraits { batch, follows_runs, saves_state, takes_members: false };
        let slot = WorkOptions::memory(1, live);
        let options = WorkOptions { output: Options::disk(live), code_traits, parameters, ..slot };
        let work = py.detach(|| Work::open(&data, stage, &inputs, &options)).map_err(|e| fault::error(py, e))?;
        let mut work = work;
        let from = work.ready(0, store::process_id());
        work.send_parameters(0).map_err(|e| fault::error(py, e))?;
        let job = SlotJob {
            parent: store::process_id(),
            data: folder,
            stage: stage.to_owned(),
            maker: stage.to_owned(),
            number: 0,
            inputs: inputs.to_vec(),
            level: Level::Disk,
            live_bytes: live,
            from,
            by_key: false,
            kept: Vec::new(),
            slots: 1,
            cpu: None,
            code: SlotCode {
                call: String::new(),
                folder: PathBuf::new(),
                copied: None,
                parameters: serde_json::Value::Null,
            },
        };
        let job = serde_json::to_vec(&job).map_err(|e| PyValueError::new_err(e.to_string()))?;
        let shared = Arc::new(Shared::default());
        let of_runner = shared.clone();
        let runner = std::thread::Builder::new().name("trial".into()).spawn(move || run(&data, work, &of_runner));
        let runner = runner.map_err(|e| fault::error(py, Fault::io("cannot start a thread", &e)))?;
        Ok(Self { shared, job, runner: Mutex::new(Some(runner)) })
    }

    /// The job of its slot.
    #[getter]
    fn job(&self) -> &[u8] {
        &self.job
    }

    /// Waits until all that is in the input has been done; false where the trial was stopped.
    fn settle(&self, py: Python<'_>) -> bool {
        // The round that is under way may have looked before the last message was there.
        let wanted = self.shared.idle.load(Ordering::SeqCst) + 2;
        py.detach(|| {
            while self.shared.idle.load(Ordering::SeqCst) < wanted && !self.shared.stop.load(Ordering::SeqCst) {
                std::thread::sleep(TRIAL_NAP);
            }
        });
        !self.shared.stop.load(Ordering::SeqCst)
    }

    /// Sends parameters, a JSON object, before all input that follows.
    fn configure(&self, py: Python<'_>, parameters: String) {
        *self.shared.parameters.lock().unwrap_or_else(PoisonError::into_inner) = Some(parameters);
        let taken = || self.shared.parameters.lock().unwrap_or_else(PoisonError::into_inner).is_none();
        py.detach(|| {
            while !taken() && !self.shared.stop.load(Ordering::SeqCst) {
                std::thread::sleep(TRIAL_NAP);
            }
        });
    }

    /// No more input follows: the slot ends when all is done.
    fn finish(&self) {
        self.shared.has_all.store(true, Ordering::SeqCst);
    }

    /// Ends the runner, whatever it is doing, and raises its fault.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.stop.store(true, Ordering::SeqCst);
        let runner = self.runner.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(runner) = runner else { return Ok(()) };
        let ended = py.detach(|| runner.join());
        let ended = ended.map_err(|_| fault::error(py, Fault::new("the runner of the trial failed", "it panicked")))?;
        ended.map_err(|e| fault::error(py, e))
    }
}

/// Begins a run of which all messages are members.
fn begin_run(data: &Data, metadata: &str) -> Result<(), Fault> {
    let mut runs = RunKeeper::open(data)?;
    runs.begin("test", i64::MIN, i64::MAX, Duration::ZERO, metadata, data.media.now()).map(drop)
}

/// Runs until all is done, or until it is stopped.
fn run(data: &Data, mut work: Work, shared: &Shared) -> Result<(), Fault> {
    let ran = steps(data, &mut work, shared);
    // The slot waits for it.
    work.stop(0)?;
    while ran.is_ok() && !shared.stop.load(Ordering::SeqCst) {
        work.step(data.media.now(), &[ENDED])?;
        std::thread::sleep(TRIAL_NAP);
    }
    ran
}

const ENDED: UpstreamState = UpstreamState { frontier: i64::MAX, ended: true, ..UpstreamState::NOTHING };

fn steps(data: &Data, work: &mut Work, shared: &Shared) -> Result<(), Fault> {
    while !shared.stop.load(Ordering::SeqCst) {
        if let Some(parameters) = shared.parameters.lock().unwrap_or_else(PoisonError::into_inner).take() {
            work.configure(&parameters)?;
        }
        let has_all = shared.has_all.load(Ordering::SeqCst);
        let heard = if has_all { ENDED } else { UpstreamState::NOTHING };
        let did = work.step(data.media.now(), &[heard])?;
        if !did && work.is_idle() {
            if has_all {
                return Ok(());
            }
            shared.idle.fetch_add(1, Ordering::SeqCst);
        }
        if !did {
            work.wait(TRIAL_NAP)?;
        }
    }
    Ok(())
}
