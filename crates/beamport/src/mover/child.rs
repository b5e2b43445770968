//! The process that writes a NeXus file. It alone links libhdf5; its end is its own.
//!
//! ```text
//! beamport-nexus write --data DIR --sink NAME --run RUN --input STREAM... --template FILE --output FILE
//!                      [--flush-ms N] [--detached]
//! ```
//! It reads the streams itself (`flow::Feed`), keeps its commits in `NAME.commits` (not with `--detached`), waits while
//! the run goes on, and ends when the sealed run is in the file. The last line on stdout is
//! `{"file","size","sha256","account"}`. Exit 0 done, 2 a fault on stderr, 3 a fault that will come again. It dies with
//! its parent.
//!
//! A writer that dies or meets a fault is started again, after a pause that doubles. One that says its fault will come
//! again is not: the file is given up, its places are let go so that nobody waits for it, and `up` says so at its end.

use crate::file::{Instrument, SinkSection};
use flow::Fault;
use serde_json::Value;
use std::collections::HashMap;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Exit status of a writer whose fault will come again: a template with mistakes, a stream that is not there.
const WILL_FAIL_AGAIN: i32 = 3;
/// First pause before a writer is started again.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest pause before a writer is started again.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The program, beside our own.
pub fn program() -> Result<PathBuf, Fault> {
    let me = std::env::current_exe().map_err(|e| Fault::new("our own program cannot be found", e))?;
    let beside = me.with_file_name("beamport-nexus");
    if beside.is_file() {
        return Ok(beside);
    }
    Err(Fault::new("`beamport-nexus` is not there", format!("it is not beside {}", me.display()))
        .hint("install with `pip install .`, or build both with `cargo xtask build`"))
}

/// What a writer is asked to do.
#[derive(Clone, Debug)]
pub struct Job {
    /// Data folder.
    pub data: PathBuf,
    /// Name of the sink.
    pub sink: String,
    /// Run.
    pub run: String,
    /// Streams.
    pub inputs: Vec<String>,
    /// NeXus structure.
    pub template: PathBuf,
    /// The file to be written.
    pub output: PathBuf,
    /// Milliseconds between flushes.
    pub flush_ms: u128,
    /// No positions, no commits: a file beside the sink's own.
    pub detached: bool,
}

impl Job {
    /// The work of a sink on a run.
    pub fn of(sink: &SinkSection, data: &Path, instrument: &str, run: &str) -> Self {
        Self {
            data: data.to_path_buf(),
            sink: sink.name.clone(),
            run: run.to_string(),
            inputs: sink.inputs.value.clone(),
            template: sink.template.value.clone(),
            output: sink.path_of(instrument, run),
            flush_ms: sink.flush.as_millis(),
            detached: false,
        }
    }

    /// Starts the process; its answer goes to the end of `output`.
    pub fn start_into(&self, output: &mut std::fs::File) -> Result<Child, Fault> {
        if let Some(folder) = self.output.parent() {
            std::fs::create_dir_all(folder)
                .map_err(|e| Fault::new(format!("folder `{}` cannot be made", folder.display()), e))?;
        }
        let mut command = Command::new(program()?);
        command.arg("write").arg("--data").arg(&self.data).args(["--sink", &self.sink, "--run", &self.run]);
        for input in &self.inputs {
            command.args(["--input", input]);
        }
        command.arg("--template").arg(&self.template).arg("--output").arg(&self.output);
        command.args(["--flush-ms", &self.flush_ms.to_string()]);
        if self.detached {
            command.arg("--detached");
        }
        let out = output.try_clone().map_err(|e| Fault::new("the writer's answer cannot be kept", e))?;
        command.stdin(Stdio::null()).stdout(out).stderr(Stdio::inherit());
        command.spawn().map_err(|e| Fault::new(format!("the writer of sink `{}` cannot start", self.sink), e))
    }
}

/// A sink and a run.
pub(super) type Key = (String, String);

/// What a sink made of a run.
#[derive(Clone, Debug)]
pub struct Written {
    /// Sink.
    pub sink: String,
    /// Run.
    pub run: String,
    /// `{"file","size","sha256"}`.
    pub product: Value,
}

/// A file that was given up.
#[derive(Clone, Debug)]
pub struct Failed {
    /// Sink.
    pub sink: String,
    /// Run.
    pub run: String,
    /// Why.
    pub fault: Fault,
}

/// A writer at work on a run, or the pause before it is started again.
struct Working {
    child: Option<Child>,
    /// What it says; none until one was started.
    output: Option<std::fs::File>,
    pause: Duration,
    again: Instant,
}

impl Working {
    fn new() -> Self {
        Self { child: None, output: None, pause: PAUSE, again: Instant::now() }
    }

    fn start(&mut self, job: &Job) -> Result<Child, Fault> {
        let mut output = match self.output.take() {
            Some(output) => output,
            None => tempfile_in(&job.data)?,
        };
        let child = job.start_into(&mut output);
        self.output = Some(output);
        child
    }

    /// Each pause is twice the one before.
    fn wait(&mut self) {
        self.again = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    /// Starts the writer where one is due. How it ended, if it has.
    fn step(&mut self, job: impl FnOnce() -> Job) -> Result<Option<ExitStatus>, Fault> {
        match &mut self.child {
            None if Instant::now() >= self.again => match self.start(&job()) {
                Ok(child) => self.child = Some(child),
                // No room, too many processes: what a machine is short of now it may have later.
                Err(fault) => {
                    tracing::warn!("{fault}");
                    self.wait();
                }
            },
            None => {}
            Some(child) => {
                let ended = child.try_wait().map_err(|e| Fault::new("a writer is lost", e))?;
                if ended.is_some() {
                    self.child = None;
                }
                return Ok(ended);
            }
        }
        Ok(None)
    }

    /// The last line that it said, as JSON.
    fn answer(&mut self) -> Value {
        let mut text = String::new();
        if let Some(output) = &mut self.output {
            let _ = output.rewind().and_then(|()| output.read_to_string(&mut text));
        }
        text.lines().next_back().and_then(|line| serde_json::from_str(line).ok()).unwrap_or(Value::Null)
    }
}

/// The writers of all files that are being written.
#[derive(Default)]
pub(super) struct Children {
    working: HashMap<Key, Working>,
    /// What they have finished.
    pub(super) written: Vec<Written>,
    /// What was given up.
    pub(super) failed: Vec<Failed>,
}

impl Children {
    /// Starts, restarts and reaps the writers of these files. The files that are finished or given up since the last
    /// look.
    pub(super) fn look_after(&mut self, instrument: &Instrument, files: &[Key]) -> Result<Vec<Key>, Fault> {
        let mut ended = Vec::new();
        for key in files {
            let Some(sink) = instrument.sinks.iter().find(|s| s.name == key.0) else { continue };
            let job = || Job::of(sink, &instrument.data.value, &instrument.name, &key.1);
            let working = self.working.entry(key.clone()).or_insert_with(Working::new);
            let Some(status) = working.step(job)? else { continue };
            let (sink, run) = key.clone();
            if status.success() {
                let product = working.answer();
                self.written.push(Written { sink, run, product });
            } else if status.code() == Some(WILL_FAIL_AGAIN) {
                let fault = told(&sink, &run, &working.answer());
                tracing::error!("{fault}");
                self.failed.push(Failed { sink, run, fault });
            } else {
                tracing::warn!("the writer of sink `{sink}` for run `{run}` ended: {status}");
                working.wait();
                continue;
            }
            self.working.remove(key);
            ended.push(key.clone());
        }
        Ok(ended)
    }

    /// True if this file is given up.
    pub(super) fn has_failed(&self, sink: &str, run: &str) -> bool {
        self.failed.iter().any(|f| f.sink == sink && f.run == run)
    }

    /// True if a writer is at work on this file.
    pub(super) fn works_on(&self, sink: &str, run: &str) -> bool {
        let key = (sink.to_string(), run.to_string());
        self.working.get(&key).is_some_and(|working| working.child.is_some())
    }

    /// Ends all writers at once.
    pub(super) fn kill(&mut self) {
        for working in self.working.values_mut() {
            if let Some(child) = &mut working.child {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// The fault of a writer in the words of the run: `{"fault": {"what", "cause", "hint"}}`, else what stands on stderr.
fn told(sink: &str, run: &str, answer: &Value) -> Fault {
    let text = |key: &str| answer["fault"][key].as_str().unwrap_or_default();
    let cause = match (text("what"), text("cause")) {
        ("", _) => "the writer said why on stderr".to_string(),
        (what, "") => what.to_string(),
        (what, cause) => format!("{what}: {cause}"),
    };
    let again = format!("then write it with `beamport write {run} --output FILE`, or start `beamport up` again");
    let hint = if text("hint").is_empty() { again } else { format!("{}; {again}", text("hint")) };
    Fault::new(format!("sink `{sink}` cannot write run `{run}`"), cause).hint(hint)
}

/// A file without a name: what a child says is kept off the pipes that nobody empties.
fn tempfile_in(folder: &Path) -> Result<std::fs::File, Fault> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC).mode(0o600);
    options.open(folder).map_err(|e| Fault::new("a temporary file cannot be made", e))
}
