//! The process that writes a NeXus file. It alone links libhdf5; its end is its own.
//!
//! `beamport-nexus write` reads its job ([`flow::WriterJob`]) from stdin, and the streams itself (`flow::Feed`). It
//! keeps its commits in `NAME.RUN.commits`, unless it is `detached`, waits while the run goes on, and ends when the
//! sealed run is in the file. The last line on stdout is
//! `{"file","size","blake3","files","bytes","content","account"}`. Exit 0 done, 2 a fault on stderr, 3 a permanent
//! fault. It dies with its parent.
//!
//! A writer that dies or meets a fault is restarted, after a pause that doubles. One that reports a permanent fault is
//! not: the file is given up, its places are released so that nothing waits for it, and `up` reports it at its end. The
//! same holds where the program beside ours is of another version: that is asked before each start, since it may have
//! been replaced while we run, and the protocol between the two may differ then.

use crate::file::Instrument;
use flow::job::{Work, Writer};
use flow::{Fault, WriterJob};
use serde_json::Value;
use std::collections::HashMap;
use std::io::{self, Read, Seek, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Exit status of a writer with a permanent fault: a template with mistakes, a stream that is missing.
const WILL_FAIL_AGAIN: i32 = 3;
/// First pause before a writer is started again.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest pause before a writer is started again.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Why a writer is of no use.
const UNFIT: &str = "`beamport-nexus` does not fit this `beamport`";

/// The program beside our own, which is of our version.
pub fn program() -> Result<PathBuf, Fault> {
    let program = beside()?;
    version().map(|_| program)
}

/// A writer's program, which is of our version.
pub fn writer(writer: &Writer) -> Result<PathBuf, Fault> {
    let program = path_of(writer)?;
    let fault = |e| Fault::new(UNFIT, format!("{} does not run: {e}", program.display()));
    version_of(&program).map_err(fault)??;
    Ok(program)
}

/// The program of a writer: what its sink names, or the one beside our own.
fn path_of(writer: &Writer) -> Result<PathBuf, Fault> {
    writer.program.clone().map_or_else(beside, Ok)
}

/// What the program beside our own says it is, `beamport-nexus VERSION (HDF5 VERSION)`: of our version.
pub fn version() -> Result<String, Fault> {
    let program = beside()?;
    version_of(&program).map_err(|e| Fault::new(UNFIT, format!("{} does not run: {e}", program.display())))?
}

/// Asks a program for its version. The inner fault is permanent; the outer error is transient.
fn version_of(program: &Path) -> io::Result<Result<String, Fault>> {
    let ours = env!("CARGO_PKG_VERSION");
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output()?;
    let said: String = String::from_utf8_lossy(&output.stdout).trim().chars().take(100).collect();
    let cause = if !output.status.success() {
        format!("{} does not run: {}", program.display(), output.status)
    } else if said.split_whitespace().nth(1) == Some(ours) {
        return Ok(Ok(said));
    } else {
        format!("{} says `{said}`, and this is beamport {ours}", program.display())
    };
    Ok(Err(Fault::new(UNFIT, cause).hint("install both from the same source: `pip install .`")))
}

/// The program beside our own, whatever it is.
fn beside() -> Result<PathBuf, Fault> {
    let me = std::env::current_exe().map_err(|e| Fault::new("our own program cannot be found", e))?;
    let beside = me.with_file_name("beamport-nexus");
    if beside.is_file() {
        return Ok(beside);
    }
    Err(Fault::new("`beamport-nexus` is not there", format!("it is not beside {}", me.display()))
        .hint("install both: `pip install .`"))
}

/// Makes the folder that the file goes to; of files of frames the one in which they get a folder, which the writer
/// makes. The inner fault is permanent: something else has its name.
fn make_folder(job: &WriterJob) -> Result<Result<(), Fault>, Fault> {
    let above = match job.work {
        Work::Template(_) => 1,
        Work::Frames { .. } => 2,
    };
    let Some(folder) = job.output.ancestors().nth(above) else { return Ok(Ok(())) };
    let Err(e) = std::fs::create_dir_all(folder) else { return Ok(Ok(())) };
    let fault = Fault::new(format!("folder `{}` cannot be made", folder.display()), &e);
    match e.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            Ok(Err(fault.hint("remove what has its name, or choose another folder")))
        }
        _ => Err(fault),
    }
}

/// Starts a writer, whose program the caller has checked to be of our version; its answer goes to the end of `output`.
/// The folder for its file is there. The inner fault is permanent.
pub fn start_writer(job: &WriterJob, output: &std::fs::File) -> Result<Result<Child, Fault>, Fault> {
    let fault = |e| Fault::new(format!("cannot start the writer of sink `{}`", job.sink), e);
    let mut job = job.clone();
    job.writer.python.get_or_insert_with(crate::code::python);
    let text = match serde_json::to_vec(&job) {
        Ok(text) => text,
        Err(e) => return Ok(Err(fault(io::Error::from(e)).hint("rename the folder or file that is not valid UTF-8"))),
    };
    let mut command = Command::new(path_of(&job.writer)?);
    command.arg("write").stdin(Stdio::piped()).stdout(output.try_clone().map_err(fault)?);
    let name = format!("sink `{}` of run `{}`", job.sink, job.run);
    let mut child = store::printed::spawn(command, &name, false).map_err(fault)?;
    let stdin = child.stdin.take();
    // The job of a sink with many inputs is longer than an argument may be (128 KiB on Linux) and than a pipe holds, and
    // a program that does not read it must not stop us. The thread ends when the child has read it, or is dead: a writer
    // without its whole job says so.
    let hand_over = move || stdin.map(|mut stdin| stdin.write_all(&text));
    let thread = std::thread::Builder::new().name("job".into()).spawn(hand_over);
    if let Err(e) = thread {
        // Without a job it does nothing.
        let _ = child.kill().and_then(|()| child.wait());
        return Err(fault(e));
    }
    Ok(Ok(child))
}

/// A sink and a run.
pub(super) type Key = (String, String);

/// The files that a sink made of a run.
#[derive(Clone, Debug)]
pub struct Written {
    /// Sink.
    pub sink: String,
    /// Run.
    pub run: String,
    /// `{"file","size","blake3","content"}`.
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
    /// The streams no longer hold all that it needs, and no part of it is wanted (key `whole`).
    pub is_incomplete: bool,
}

/// How a writer ended.
enum Ended {
    /// The file is made; its answer.
    Done(Value),
    /// With a permanent fault; `true`: its streams no longer hold all of the file.
    Never(Fault, bool),
    /// It died, or met a fault that may go away.
    Fallen(ExitStatus),
}

/// A writer at work on a run, or the pause before it is started again.
struct Working {
    child: Option<Child>,
    /// Its stdout; none until one was started.
    output: Option<std::fs::File>,
    /// Bytes of it that were looked at.
    heard: u64,
    /// The trouble that it reports.
    trouble: Option<Fault>,
    pause: Duration,
    again: Instant,
}

impl Working {
    fn new() -> Self {
        Self { child: None, output: None, heard: 0, trouble: None, pause: PAUSE, again: Instant::now() }
    }

    /// The inner fault is permanent.
    fn start(&mut self, job: &WriterJob) -> Result<Result<Child, Fault>, Fault> {
        if let Err(fault) = make_folder(job)? {
            return Ok(Err(fault));
        }
        let output = match self.output.take() {
            Some(output) => output,
            None => tempfile_in(&job.data)?,
        };
        start_writer(job, self.output.insert(output))
    }

    /// The file has no writer now, for this reason: what a machine is short of it may have later.
    fn suffer(&mut self, fault: Fault) {
        tracing::warn!("{fault}");
        self.trouble = Some(fault);
        self.wait();
    }

    /// Each pause is twice the one before.
    fn wait(&mut self) {
        self.again = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    /// Starts the writer where one is due. How it ended, if it has.
    fn step(&mut self, job: impl FnOnce() -> WriterJob) -> Option<Ended> {
        if let Some(child) = &mut self.child {
            let status = match child.try_wait() {
                Ok(Some(status)) => status,
                Ok(None) => {
                    self.listen();
                    return None;
                }
                Err(e) => {
                    // Two must not write the same file.
                    let _ = child.kill();
                    self.child = None;
                    self.suffer(Fault::new("a writer is lost", e));
                    return None;
                }
            };
            // Its last trouble is why it ended, and stays until its successor works.
            self.listen();
            self.child = None;
            return Some(match status.code() {
                Some(0) => Ended::Done(self.answer()),
                Some(WILL_FAIL_AGAIN) => {
                    let answer = self.answer();
                    Ended::Never(told(&answer), answer["incomplete"] == true)
                }
                _ => Ended::Fallen(status),
            });
        }
        if Instant::now() < self.again {
            return None;
        }
        // One that cannot even be asked now is started in vain and tried again.
        let job = job();
        if let Some(Err(fault)) = path_of(&job.writer).ok().and_then(|program| version_of(&program).ok()) {
            return Some(Ended::Never(fault, false));
        }
        match self.start(&job) {
            Ok(Ok(child)) => (self.child, self.trouble) = (Some(child), None),
            Ok(Err(fault)) => return Some(Ended::Never(fault, false)),
            Err(fault) => self.suffer(fault),
        }
        None
    }

    /// Hears what it says of its troubles while it works.
    fn listen(&mut self) {
        let Some(output) = &self.output else { return };
        let length = output.metadata().map_or(0, |found| found.len());
        if length <= self.heard {
            return;
        }
        // Without moving the place where it writes, which is ours too.
        let mut bytes = vec![0; usize::try_from(length - self.heard).unwrap_or_default()];
        let Ok(()) = output.read_exact_at(&mut bytes, self.heard) else { return };
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else { return };
        self.heard += end as u64 + 1;
        for line in bytes[..end].split(|byte| *byte == b'\n') {
            let said: Value = serde_json::from_slice(line).unwrap_or_default();
            if let Some(trouble) = said.get("trouble") {
                self.trouble = (!trouble.is_null()).then(|| Fault::of_json(trouble));
            }
        }
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
    /// Files that they have finished.
    pub(super) written: Vec<Written>,
    /// Files that were given up.
    pub(super) failed: Vec<Failed>,
}

impl Children {
    /// Starts, restarts and reaps the writers of these files. The files that are finished or given up since the last
    /// look. A file that cannot have a writer now is that file's trouble, and nobody else's.
    pub(super) fn supervise(&mut self, instrument: &Instrument, files: &[Key]) -> Vec<Key> {
        let mut ended = Vec::new();
        for key in files {
            let Some(sink) = instrument.sinks.iter().find(|s| s.name == key.0) else { continue };
            let job = || sink.job(&instrument.data.value, &instrument.name, &key.1);
            let working = self.working.entry(key.clone()).or_insert_with(Working::new);
            let Some(ended_as) = working.step(job) else { continue };
            let (sink, run) = key.clone();
            match ended_as {
                Ended::Done(product) => {
                    log_file(&sink, &run, &product);
                    self.written.push(Written { sink, run, product });
                }
                Ended::Never(fault, is_incomplete) => {
                    let fault = given_up(&sink, &run, fault);
                    tracing::error!("{fault}");
                    self.failed.push(Failed { sink, run, fault, is_incomplete });
                }
                Ended::Fallen(status) => {
                    tracing::warn!("the writer of sink `{sink}` for run `{run}` ended: {status}");
                    working.wait();
                    continue;
                }
            }
            self.working.remove(key);
            ended.push(key.clone());
        }
        ended
    }

    /// The troubles that writers report now.
    pub(super) fn troubles(&self) -> impl Iterator<Item = Fault> {
        self.working.values().filter_map(|working| working.trouble.clone())
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

/// Logs a file that is finished, with what proves it.
fn log_file(sink: &str, run: &str, product: &Value) {
    let text = |key: &str| product[key].as_str();
    // Of files of frames the product is their list.
    let bytes = product["bytes"].as_u64().filter(|_| !product["files"].is_null()).or(product["size"].as_u64());
    tracing::info!(sink, run, file = text("file"), bytes, blake3 = text("blake3"), "a file is finished");
}

/// The fault that a writer told, `{"fault": {"what", "cause", "hint"}}`, else where it stands.
fn told(answer: &Value) -> Fault {
    match Fault::of_json(&answer["fault"]) {
        fault if fault.what.is_empty() => Fault::new("the writer said why on stderr", ""),
        fault => fault,
    }
}

/// A permanent fault of a writer, as a fault of the run.
fn given_up(sink: &str, run: &str, fault: Fault) -> Fault {
    let again = format!("then write it with `beamport write {run} --output FILE`, or start `beamport up` again");
    let hint = if fault.hint.is_empty() { again } else { format!("{}; {again}", fault.hint) };
    fault.leads_to(format!("sink `{sink}` cannot write run `{run}`")).hint(hint)
}

/// A file without a name: what a child says is kept off the pipes that nobody empties.
pub(crate) fn tempfile_in(folder: &Path) -> Result<std::fs::File, Fault> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC).mode(0o600);
    options.open(folder).map_err(|e| Fault::new("a temporary file cannot be made", e))
}
