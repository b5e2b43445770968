//! The mover: one process that runs the native stages of an instrument and looks after its children.
//!
//! Threads: one for each receiver, merge, worker and live sink, one for the control socket, this one for runs and
//! children. A receiver steps one source or many. Nothing of record lives here: runs are in the stream `runs`, results
//! of sinks in their commits, positions in the streams. A mover that was killed resumes from these.

mod appended;
mod asks;
mod child;
mod code;
mod control;
mod cutover;
mod file_watch;
mod merges;
mod missing;
mod poller;
mod reader_names;
mod receiver;
mod relays;
pub mod slot;
mod sources;
mod stage;
mod stalls;
mod template;
mod through;
mod workers;

pub(crate) use child::tempfile_in;
pub use child::{Failed, Written, program, start_writer, version, writer};
pub use control::{Glance, ask, glance, is_running};
pub use missing::MissingStage;
pub use template::template_check;
pub use through::{Passing, pass};
pub use workers::{Declared, check_code};

use crate::file::{Instrument, SinkSection, Stage, Start, WorkerSection, nearest};
use crate::limits::{LEAVE_RUNS, RECORD_BYTES_MAX};
use asks::{Asks, Request};
use child::{Children, Key};
use control::{Command, Control, EdgeCommands, number, stop};
use cutover::{Pair, Underway};
use file_watch::FileWatch;
use flow::commits::{self, FinishedRuns};
use flow::edge::Provenance;
use flow::limits::BOOK_HISTORY_BYTES;
use flow::records::{Gap, Run, Stop};
use flow::{Book, Data, Fault, Keeps, Passes, RunKeeper, StreamView, reader_name};
use reader_names::ReaderNames;
use receiver::Asked;
use serde_json::{Value, json};
use settings::shortened;
use stage::{Order, StageHandle, StageThread, What};
use stalls::Stalls;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use wire::bprn::State;

/// How often the mover looks around.
const TICK: Duration = Duration::from_millis(10);
/// Pause before what failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a stage may take to open its stream, if it does not wait for room.
const START: Duration = Duration::from_secs(30);

/// How long a run waits for what is under way where nobody says: as in the instrument file.
const SETTLE: Duration = Duration::from_secs(2);

/// Work that is left.
#[derive(Default)]
struct Remaining {
    /// A run is not sealed.
    unsealed: bool,
    /// Files that are not finished.
    files: Vec<Key>,
}

impl Remaining {
    /// True if nothing is left to do for a run.
    fn has_none_of(&self, run: &Run) -> bool {
        run.state == State::Sealed && !self.files.iter().any(|(_, name)| *name == run.name)
    }
}

/// A run with nothing left to do.
struct DoneRun {
    /// Messages that it lost; none where its account cannot be read.
    lost: Option<u64>,
    /// It was done before this stop, and is none that the instrument file declares: a report of each would make a stop
    /// take as long as all of them.
    is_earlier: bool,
}

/// Tasks that the mover retries until they succeed.
#[derive(Default)]
struct Duties {
    /// Runs of the instrument file are not begun.
    declare: bool,
    /// Files that were given up and whose places are held.
    release: Vec<Key>,
    /// A file was finished.
    file: bool,
    /// The work that is left has changed.
    look: bool,
    /// Positions to be held for a file: the file and the stream.
    hold: Vec<(Key, String)>,
    /// Not before this moment, after a fault.
    next: Option<Instant>,
    /// Reports the fault.
    fault: StageHandle,
}

impl Duties {
    fn is_none(&self) -> bool {
        !(self.declare || self.file || self.look) && self.release.is_empty() && self.hold.is_empty()
    }
}

/// An instrument at work.
pub struct Mover {
    instrument: Instrument,
    data: Data,
    keeper: RunKeeper,
    /// One thread for each of `instrument.stages`, in the same order.
    threads: Vec<StageThread>,
    asked: Asked,
    control: Control,
    /// A cut-over that was asked for.
    underway: Option<Underway>,
    asks: Asks,
    book: Book,
    children: Children,
    file_watch: FileWatch,
    reader_names: ReaderNames,
    stalls: Stalls,
    /// Runs whose end and seal are still to be logged.
    unsealed: BTreeMap<String, State>,
    /// The runs that each of `instrument.sinks` has finished, in the same order.
    finished: Vec<FinishedRuns>,
    /// Files that may or may not be finished: the books no longer say.
    unknown_outcome: Vec<Key>,
    declared: bool,
    /// Runs that were sealed and written before this start: nothing is left to do or to say.
    done_before: BTreeSet<String>,
    /// Runs that were sealed and written since, by name.
    done: BTreeMap<String, DoneRun>,
    /// Messages that merges, workers and live sinks had lost before this start.
    lost_before: u64,
    /// Gaps of marked messages that recoveries had cut of the streams of stages before this start.
    cuts_before: Vec<Gap>,
    /// No run begins any more.
    ending: bool,
    duties: Duties,
    /// Reports what keeps runs from moving on.
    runs_fault: StageHandle,
}

impl Mover {
    /// Opens everything and starts the sources, whose plans are prepared. On a full device it tries again until there
    /// is room, or until `signals` says to end.
    pub fn start(instrument: Instrument, signals: &AtomicUsize) -> Result<Self, Fault> {
        let folder = instrument.data.value.clone();
        let fault = |e: std::io::Error| Fault::io(format!("cannot create data folder `{}`", folder.display()), &e);
        with_room(signals, || std::fs::create_dir_all(&folder).map_err(fault))?;
        // A writer that is missing or of another version is a permanent fault: it is reported at once.
        instrument.sinks.iter().try_for_each(|sink| writer(&sink.writer).map(drop))?;
        let data = Data::on_disk(&folder);
        file_watch::refuse_headless(&data, &instrument)?;
        let keeper = with_room(signals, || RunKeeper::open(&data))?;
        if let cut @ store::Recovery::Cut { first, end, marked, .. } = keeper.recovery() {
            // A step of a run that is not on the disk has not happened.
            match end.max(marked) > first {
                true => tracing::warn!("stream `{}` is damaged, runs are lost: {cut}", flow::RUNS),
                false => tracing::info!("stream `{}` is recovered from the disk, no run is lost", flow::RUNS),
            }
        }
        let unknown_outcome = unknown_outcome(&data, &instrument, keeper.runs())?;
        let book = with_room(signals, || Book::open(&data, "control", Keeps::Newest(BOOK_HISTORY_BYTES)))?;
        let control = with_room(signals, || Control::listen(&folder, EdgeCommands::new(&instrument)))?;
        let asked = Asked::default();
        asked.waits.store(instrument.runs.iter().any(|run| run.start.value != Start::Now), Ordering::Relaxed);
        let mut mover = Self {
            declared: !instrument.runs.is_empty(),
            instrument,
            data,
            keeper,
            threads: Vec::new(),
            asked,
            control,
            underway: None,
            asks: Asks::default(),
            book,
            children: Children::default(),
            file_watch: FileWatch::default(),
            reader_names: ReaderNames::default(),
            stalls: Stalls::default(),
            unsealed: BTreeMap::new(),
            finished: Vec::new(),
            unknown_outcome,
            done_before: BTreeSet::new(),
            done: BTreeMap::new(),
            lost_before: 0,
            cuts_before: Vec::new(),
            ending: false,
            duties: Duties::default(),
            runs_fault: StageHandle::default(),
        };
        for stage in mover.fed_stages() {
            // A book that cannot be read is the trouble of its stage.
            mover.lost_before += flow::ledger::lost(&flow::ledger::stage(&mover.data, &stage).unwrap_or_default());
        }
        mover.cuts_before = mover.all_cuts();
        ReaderNames::begin(&mover.data, &mover.instrument)?;
        mover.start_stages()?;
        mover.wait_for_streams(signals)?;
        with_room(signals, || mover.open_finished())?;
        // Files that were finished, but not yet filed when the mover was killed.
        with_room(signals, || mover.file_away())?;
        mover.done_before = mover.done()?;
        mover.unsealed = mover.keeper.unsealed().map(|run| (run.name.clone(), run.state)).collect();
        mover.unsealed.keys().for_each(|run| tracing::info!(run, "a run is resumed"));
        match mover.begin_declared() {
            Err(fault) if fault.passes == Passes::WithRoom => mover.duties.declare = true,
            answer => answer?,
        }
        mover.duties.look = true;
        mover.duties.hold = mover.places(mover.keeper.runs())?;
        mover.hold();
        Ok(mover)
    }

    fn open_finished(&mut self) -> Result<(), Fault> {
        let of = |sink: &SinkSection| FinishedRuns::open(&self.data, &sink.name);
        self.finished = self.instrument.sinks.iter().map(of).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Starts the stages in their order: each reads only stages before it.
    fn start_stages(&mut self) -> Result<(), Fault> {
        let inputs: BTreeSet<&str> =
            self.instrument.stages.iter().flat_map(Stage::inputs).map(String::as_str).collect();
        let is_read = |stream: &str| inputs.contains(stream);
        // They come first.
        self.threads = sources::start(&self.data, self.instrument.sources(), is_read, &self.asked)?;
        for stage in &self.instrument.stages {
            let handles = |inputs: &[String]| -> Vec<_> {
                inputs.iter().filter_map(|input| self.handle(input)).cloned().collect()
            };
            let (data, stop) = (&self.data, &self.asked.stop);
            let thread = match stage {
                Stage::Source(_) => continue,
                Stage::Merge(section) => merges::start(data, section, handles(&section.inputs), stop)?,
                Stage::Worker(section) => {
                    let inputs = (handles(&section.inputs), handles(&section.side_inputs));
                    workers::start(data, section, workers::options(section), inputs, stop)?
                }
                Stage::Live(section) => relays::start(data, section, handles(&section.inputs), stop)?,
            };
            self.threads.push(thread);
        }
        Ok(())
    }

    /// Streams exist before a run begins: its messages are held from the first one on. The outside of a live sink may
    /// be away.
    fn wait_for_streams(&mut self, signals: &AtomicUsize) -> Result<(), Fault> {
        let deadline = Instant::now() + START;
        for (stage, handle) in self.stages().filter(|(stage, _)| stage.fills_stream()) {
            while handle.view().is_none() {
                let trouble = handle.trouble();
                let (is_late, asked) = (Instant::now() > deadline, signals.load(Ordering::Relaxed) > 0);
                // A stage that failed is started again by its thread, which has reported why.
                let ends = match trouble.as_ref().map(|fault| fault.passes) {
                    Some(Passes::Never | Passes::Pending) => true,
                    Some(Passes::WithRoom) => asked,
                    Some(Passes::Soon) => is_late || asked,
                    None => is_late,
                };
                if ends {
                    self.asked.stop.store(true, Ordering::Relaxed);
                    let what = || format!("{} `{}` does not start", stage.kind(), stage.name());
                    let late = || Fault::new(what(), "timeout after 30 s");
                    return Err(trouble.unwrap_or_else(late));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    /// The stages that were started, with their handles.
    fn stages(&self) -> impl Iterator<Item = (&Stage, &StageHandle)> {
        self.instrument.stages.iter().zip(self.threads.iter().map(|thread| &thread.handle))
    }

    /// The handle of the stage that fills a stream.
    fn handle(&self, stream: &str) -> Option<&StageHandle> {
        self.stages().find(|(stage, _)| stage.name() == stream).map(|(_, handle)| handle)
    }

    /// The sections of workers that were started, with their handles.
    fn running_workers(&self) -> impl Iterator<Item = (&WorkerSection, &StageHandle)> {
        self.stages().filter_map(|(stage, handle)| Some((stage.worker()?, handle)))
    }

    fn begin_declared(&mut self) -> Result<(), Fault> {
        for section in self.instrument.runs.clone() {
            if self.keeper.runs().iter().any(|r| r.name == section.name) {
                continue;
            }
            let now = self.data.media.now();
            let start = match section.start.value {
                Start::Now => now,
                Start::At(time) => time.0,
            };
            let length = |d: Duration| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX);
            let stop = match (&section.stop, &section.duration) {
                (Some(stop), _) => Stop::at(stop.0, section.inclusive.value),
                (None, Some(duration)) => {
                    Stop::at(start.saturating_add(length(duration.value)), section.inclusive.value)
                }
                (None, None) => None.into(),
            };
            self.begin(&section.name, start, stop, section.settle.value, "{}")?;
        }
        Ok(())
    }

    /// Begins a run. It is written down first: places of a run that is not there would hold back its sources for ever,
    /// and those that a kill leaves out are held at the next start.
    pub fn begin(
        &mut self,
        name: &str,
        start: i64,
        stop: Stop,
        settle: Duration,
        metadata: &str,
    ) -> Result<Run, Fault> {
        let described = self.provenance()?;
        self.keeper.set_instrument(&described);
        let now = self.data.media.now();
        let run = self.keeper.begin(name, start, stop, settle, metadata, now)?;
        tracing::info!(run = name, "a run begins");
        self.unsealed.insert(run.name.clone(), State::Open);
        // It has begun, whatever keeps its places from being held now.
        match self.places(std::slice::from_ref(&run)) {
            Ok(places) => self.duties.hold.extend(places),
            Err(fault) => self.duties.fault.set_fault(Some(fault)),
        }
        self.hold();
        Ok(run)
    }

    /// What simulated sources know to be true, what each sink makes of which streams, and which code workers run: so it
    /// stands in the file, and the file can be written again.
    fn provenance(&self) -> Result<String, Fault> {
        let mut groups: BTreeMap<&str, serde_json::Map<String, Value>> = BTreeMap::new();
        for section in self.instrument.sources() {
            if let Some(Provenance { group, value }) = section.plan.provenance()? {
                groups.entry(group).or_default().insert(section.name.clone(), value);
            }
        }
        let groups = groups.into_iter().map(|(group, sources)| (group.to_owned(), sources.into()));
        let mut all: serde_json::Map<String, Value> = groups.collect();
        let first = self.instrument.sinks.iter().filter(|sink| sink.is_first());
        let sinks: serde_json::Map<String, Value> =
            first.map(|sink| (sink.name.clone(), sink.provenance(&self.instrument.name, &self.data.folder))).collect();
        // Code that has no hash is ready-made or installed.
        let code = |worker: &StageHandle| worker.code().filter(|code| code["hash"].is_string());
        let workers: serde_json::Map<String, Value> = self
            .running_workers()
            .filter_map(|(section, worker)| Some((section.name.clone(), code(worker)?)))
            .map(|(name, code)| (name, json!({"call": code["call"], "hash": code["hash"]})))
            .collect();
        for (name, made) in [("sinks", sinks), ("workers", workers)] {
            if !made.is_empty() {
                all.insert(name.into(), made.into());
            }
        }
        Ok(Value::from(all).to_string())
    }

    /// Named positions at the beginning of runs, so that `wait` waits for their sinks. Where a sink has committed, its own
    /// positions are kept since then.
    fn places(&self, runs: &[Run]) -> Result<Vec<(Key, String)>, Fault> {
        let mut places = Vec::new();
        for run in runs {
            for (sink, finished) in self.instrument.sinks.iter().zip(&self.finished) {
                let file = (sink.name.clone(), run.name.clone());
                let has_committed = finished.has(&run.name) || finished.newest(&run.name)?.is_some();
                if !has_committed && !self.unknown_outcome.contains(&file) {
                    places.extend(sink.inputs.value.iter().map(|stream| (file.clone(), stream.clone())));
                }
            }
        }
        Ok(places)
    }

    /// Holds the positions that are not held yet. A failure is retried.
    fn hold(&mut self) {
        let held = self.try_hold();
        self.duties.next = held.is_err().then(|| Instant::now() + AGAIN);
        self.duties.fault.set_fault(held.err());
        self.let_begin();
    }

    /// Lets the sources begin, once the positions of declared runs are held.
    fn let_begin(&self) {
        if !self.duties.declare && self.duties.hold.is_empty() && self.asked.waits.swap(false, Ordering::Relaxed) {
            self.threads.iter().for_each(StageThread::wake);
        }
    }

    fn try_hold(&mut self) -> Result<(), Fault> {
        while let Some(((sink, run), stream)) = self.duties.hold.last() {
            if let Some(run) = self.keeper.runs().iter().find(|known| known.name == *run) {
                flow::hold(&self.data, sink, run, std::slice::from_ref(stream))?;
            }
            self.duties.hold.pop();
        }
        Ok(())
    }

    /// Does what is still to be done. A fault is reported, and all of it is tried again.
    fn do_duties(&mut self, left: &mut Remaining) {
        if self.duties.is_none() || self.duties.next.is_some_and(|next| Instant::now() < next) {
            return;
        }
        let done = self.try_duties(left);
        self.duties.next = done.is_err().then(|| Instant::now() + AGAIN);
        self.duties.fault.set_fault(done.err());
        self.let_begin();
    }

    fn try_duties(&mut self, left: &mut Remaining) -> Result<(), Fault> {
        if self.duties.declare {
            self.begin_declared()?;
            (self.duties.declare, self.duties.look) = (false, true);
        }
        while let Some(file) = self.duties.release.last() {
            self.release(file)?;
            self.duties.release.pop();
        }
        if self.duties.file {
            self.file_away()?;
            self.duties.file = false;
        }
        if self.duties.look {
            *left = self.left()?;
            self.duties.look = false;
            self.see_done(left);
        }
        // Nobody waits for the places of a file that is finished or was given up.
        self.duties.hold.retain(|(file, _)| left.files.contains(file));
        self.try_hold()
    }

    /// Files what sinks have finished.
    fn file_away(&mut self) -> Result<(), Fault> {
        for (sink, finished) in self.instrument.sinks.iter().zip(&mut self.finished) {
            finished.file_away(&sink.inputs.value)?;
        }
        Ok(())
    }

    /// Releases the places of a file that was given up: nothing waits for it any more.
    fn release(&self, (sink, run): &Key) -> Result<(), Fault> {
        let inputs = self.instrument.sinks.iter().filter(|s| s.name == *sink).flat_map(|s| &s.inputs.value);
        for stream in inputs {
            self.data.release(stream, &reader_name(sink, run))?;
        }
        Ok(())
    }

    /// Runs that are not sealed, and files that are not finished and not given up.
    fn left(&self) -> Result<Remaining, Fault> {
        let mut left = Remaining { unsealed: self.keeper.unsealed().next().is_some(), files: Vec::new() };
        let is_done = |run: &&Run| self.done_before.contains(&run.name) || self.done.contains_key(&run.name);
        for run in self.keeper.runs().iter().filter(|run| !is_done(run)) {
            for (sink, finished) in self.instrument.sinks.iter().zip(&self.finished) {
                let is_finished =
                    finished.has(&run.name) || finished.newest(&run.name)?.is_some_and(|commit| commit.finished);
                let has_ended = is_finished && !self.children.works_on(&sink.name, &run.name);
                let file = (sink.name.clone(), run.name.clone());
                if !has_ended
                    && !self.children.has_failed(&sink.name, &run.name)
                    && !self.unknown_outcome.contains(&file)
                {
                    left.files.push(file);
                }
            }
        }
        Ok(left)
    }

    /// Runs with nothing left to do.
    fn done(&self) -> Result<BTreeSet<String>, Fault> {
        let left = self.left()?;
        let done = self.keeper.runs().iter().filter(|run| left.has_none_of(run));
        Ok(done.map(|run| run.name.clone()).collect())
    }

    /// Counts the losses of runs that are done now. They are those of the record: nothing is read again at the end.
    fn see_done(&mut self, left: &Remaining) {
        let is_new = |run: &&Run| {
            left.has_none_of(run) && !self.done_before.contains(&run.name) && !self.done.contains_key(&run.name)
        };
        let new: Vec<Run> = self.keeper.runs().iter().filter(is_new).cloned().collect();
        for run in new {
            let lost = match flow::ledger::account_of(&self.data, &run, &self.sinks()) {
                Ok(account) => {
                    let messages: u64 = account.entries.iter().map(|entry| entry.appended).sum();
                    let (lost, closed) = (account.lost, account.closed);
                    tracing::info!(run = run.name, messages, lost, closed, "a run is done");
                    Some(lost)
                }
                Err(fault) => {
                    tracing::warn!("{}", fault.leads_to(format!("the account of run `{}` is not known", run.name)));
                    None
                }
            };
            self.done.insert(run.name, DoneRun { lost, is_earlier: false });
        }
    }

    /// Logs how runs have moved on in their life since the last call.
    fn log_runs(&mut self) {
        let runs = self.keeper.runs();
        self.unsealed.retain(|name, state| {
            let Some(run) = runs.iter().find(|run| run.name == *name) else { return false };
            let before = std::mem::replace(state, run.state);
            if before == State::Open && run.state != State::Open {
                tracing::info!(run = name, reason = run.reason, "a run ends");
            }
            if run.state == State::Sealed {
                tracing::info!(run = name, "a run is sealed");
            }
            run.state != State::Sealed
        });
    }

    /// Leaves the runs that are done out of the report of this stop.
    fn leave_done_runs(&mut self) {
        for (name, run) in &mut self.done {
            run.is_earlier = !self.instrument.runs.iter().any(|declared| declared.name == *name);
        }
    }

    /// Works until all runs are sealed and written (where runs are declared), or `signals` says to end:
    /// 1 = end the open runs and finish, 2 = at once, [`LEAVE_RUNS`] = leave the runs as they are. `look` is called
    /// about every 10 ms.
    pub fn work(&mut self, signals: &AtomicUsize, look: &mut dyn FnMut(&Self)) -> Result<Vec<Written>, Fault> {
        let (mut ended, mut next) = (false, None);
        let mut left = Remaining::default();
        self.duties.look = true;
        self.do_duties(&mut left);
        loop {
            self.look_around()?;
            let mut now = self.data.media.now();
            let mut changed = false;
            match signals.load(Ordering::Relaxed) {
                0 => {}
                LEAVE_RUNS => {
                    self.leave_done_runs();
                    return Ok(std::mem::take(&mut self.children.written));
                }
                1 => {
                    if !std::mem::replace(&mut self.ending, true) {
                        self.leave_done_runs();
                    }
                    if !ended {
                        // Where the disk has no room this is tried again: the run stays open until it is written down.
                        ended = self.keeper.end_all("interrupted", now)?;
                        changed = true;
                    }
                }
                _ => {
                    self.children.kill();
                    return Err(stopped_at_once());
                }
            }
            while let Some(mut command) = next.take().or_else(|| self.control.commands.try_recv().ok()) {
                // The stop of a run that ends now: a writer may have what is behind an older time in its file.
                now = self.data.media.now();
                if let Some(answer) = command.done.take() {
                    self.record(&command, &answer, now);
                    let _ = command.answer.send(answer);
                    continue;
                }
                if !command.is_wanted() {
                    tracing::info!("dropped a command whose client has hung up: {}", command.request["command"]);
                    continue;
                }
                changed |= self.begin_command(command, now);
            }
            self.answer_commands(now);
            changed |= self.keep_runs(now)?;
            self.runs_fault.set_fault(self.keeper.trouble());
            self.supervise_writers(changed, &mut left);
            look(self);
            // A run whose files are incomplete is begun again from its sources, by who wants it whole.
            let ends = !left.unsealed || self.declared && self.children.failed.iter().any(|file| file.is_incomplete);
            let is_done = ends && left.files.is_empty() && self.duties.is_none();
            if is_done && (self.declared || ended) {
                return Ok(std::mem::take(&mut self.children.written));
            }
            // A command does not wait for the end of the pause.
            next = match self.control.commands.recv_timeout(TICK) {
                Ok(command) => Some(command),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    std::thread::sleep(TICK);
                    None
                }
            };
        }
    }

    /// Looks at what others may have changed: files, readers, the disk and the clock.
    fn look_around(&mut self) -> Result<(), Fault> {
        self.file_watch.refresh(&self.data, &self.instrument)?;
        self.reader_names.refresh(&self.data, &self.instrument);
        self.stalls.refresh(&self.data, self.threads.iter().filter_map(|thread| thread.handle.view()));
        Ok(())
    }

    /// Logs how runs have changed, starts the writers of files that are left, and does what follows from those that
    /// ended. `changed`: runs have.
    fn supervise_writers(&mut self, changed: bool, left: &mut Remaining) {
        if changed {
            self.log_runs();
        }
        let files = self.children.supervise(&self.instrument, &left.files);
        let failed = files.iter().filter(|(sink, run)| self.children.has_failed(sink, run));
        self.duties.release.extend(failed.cloned());
        self.duties.file |= !files.is_empty();
        self.duties.look |= changed || !files.is_empty();
        self.do_duties(left);
    }

    /// Moves runs on in their life; true where one has changed.
    fn keep_runs(&mut self, now: i64) -> Result<bool, Fault> {
        // Views of a thousand streams are not gathered a hundred times a second for nothing.
        let has_ended = |handle: &StageHandle| handle.view().is_some_and(|view| view.ended);
        if self.keeper.rests(now) && (self.keeper.unsealed().next().is_none() || !self.members().all(has_ended)) {
            return Ok(false);
        }
        let has_changed = match self.views() {
            Some(views) => !self.keeper.step(now, &views)?.is_empty(),
            None => false,
        };
        // A run that settles is sealed once every source has come so far; one that rests is asked.
        let wants = self.keeper.unsealed().any(|run| run.state == State::Settling);
        if self.asked.frontiers.swap(wants, Ordering::Relaxed) != wants {
            self.threads.iter().for_each(StageThread::wake);
        }
        Ok(has_changed)
    }

    /// Stages whose streams runs are made of: sources, and merges and workers that sinks take.
    fn members(&self) -> impl Iterator<Item = &StageHandle> {
        let is_taken = |stream: &str| self.instrument.sinks.iter().any(|s| s.inputs.iter().any(|i| i == stream));
        let stages = self.stages().filter(move |(stage, _)| stage.source().is_some() || is_taken(stage.name()));
        stages.map(|(_, handle)| handle)
    }

    /// Streams that runs are made of, which are none without a source. `None` until all of them are open.
    fn views(&self) -> Option<Vec<StreamView>> {
        self.members().map(StageHandle::view).collect()
    }

    /// Troubles of the stages, of the keeper of runs and of the writers of files.
    pub fn troubles(&self) -> Vec<Fault> {
        let stages = self.stages().filter_map(|(_, handle)| handle.trouble());
        let files = self.children.failed.iter().map(|f| f.fault.clone());
        let own = [self.keeper.trouble(), self.duties.fault.trouble(), self.file_watch.trouble()].into_iter().flatten();
        stages.chain(own).chain(self.children.troubles()).chain(files).collect()
    }

    /// The data folder.
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// All runs.
    pub fn runs(&self) -> &[Run] {
        self.keeper.runs()
    }

    /// Runs that this stop ended or finished, and those of the instrument file that were not done before this start.
    /// Until it stops: runs that were open or unfinished at this start, or began since.
    pub fn runs_at_work(&self) -> impl Iterator<Item = &Run> {
        let is_earlier = |run: &Run| self.done.get(&run.name).is_some_and(|done| done.is_earlier);
        self.keeper.runs().iter().filter(move |run| !self.done_before.contains(&run.name) && !is_earlier(run))
    }

    /// Runs that began since this start and were done before this stop: names, messages that were lost, and how many
    /// have an account that cannot be read.
    pub fn earlier_runs(&self) -> (Vec<String>, u64, usize) {
        let earlier = || self.done.iter().filter(|(_, run)| run.is_earlier);
        let unknown = earlier().filter(|(_, run)| run.lost.is_none()).count();
        let lost = earlier().filter_map(|(_, run)| run.lost).fold(0, u64::saturating_add);
        (earlier().map(|(name, _)| name.clone()).collect(), lost, unknown)
    }

    fn obey(&mut self, request: &Value, now: i64) -> Result<Value, Fault> {
        let text = |key: &str| request[key].as_str();
        match text("command") {
            Some("begin") => self.obey_begin(request, now),
            Some("end") => {
                let open: Vec<&Run> = self.keeper.runs().iter().filter(|r| r.state == State::Open).collect();
                let name = match (text("run"), open.as_slice()) {
                    (Some(name), _) => Ok(name.to_string()),
                    (None, [one]) => Ok(one.name.clone()),
                    (None, []) => {
                        Err(Fault::new("cannot end a run", "no run is open").hint("begin one with `beamport begin`"))
                    }
                    (None, many) => {
                        let names: Vec<&str> = many.iter().map(|r| r.name.as_str()).collect();
                        Err(Fault::new("the run to end is ambiguous", format!("open runs: {}", names.join(", ")))
                            .hint("name it: `beamport end RUN`"))
                    }
                };
                let stop = stop(request);
                name.and_then(|name| self.keeper.end(&name, stop?, "asked", now)).map(|run| as_value(&run))
            }
            Some("status") => {
                let troubles: Vec<String> = self.troubles().iter().map(ToString::to_string).collect();
                let said = |name: &String| {
                    let state = flow::WorkerState::newest(&self.data, name).ok().flatten()?;
                    Some((name.clone(), json!({"numbers": state.numbers, "statistics": state.slots})))
                };
                let workers: serde_json::Map<String, Value> =
                    self.instrument.workers().filter_map(|section| said(&section.name)).collect();
                let stages =
                    self.stages().map(|(stage, handle)| (stage.name().to_owned(), handle.to_json(stage.kind())));
                let running: serde_json::Map<String, Value> = stages.collect();
                Ok(json!({
                    "pid": std::process::id(),
                    "instrument": *self.instrument.name,
                    "troubles": troubles,
                    "workers": workers,
                    "running": running,
                }))
            }
            other => Err(Fault::new(format!("unknown command `{}`", other.unwrap_or_default()), "")
                .hint(format!("commands are {}", self.commands().join(", ")))),
        }
    }

    /// The words of commands.
    fn commands(&self) -> Vec<&'static str> {
        let ours = ["ask", "begin", "configure", "cutover", "end", "status"];
        ours.into_iter().chain(self.instrument.commands.iter().map(|kind| kind.name)).collect()
    }

    /// A command that a stage answers.
    fn ask_stage(&self, request: &Value) -> Option<Result<Request, Fault>> {
        match request["command"].as_str() {
            Some("configure") => Some(self.obey_configure(request)),
            Some("ask") => Some(self.obey_ask(request)),
            _ => None,
        }
    }

    /// `{"command": "ask", "source", "request"}`: what the source answers.
    fn obey_ask(&self, request: &Value) -> Result<Request, Fault> {
        let name = request["source"].as_str().unwrap_or_default();
        let mut stages = self.instrument.stages.iter().zip(&self.threads);
        match stages.find(|(stage, _)| stage.source().is_some() && stage.name() == name) {
            Some((_, thread)) => Ok(sources::ask(thread, name, request["request"].clone())),
            None => Err(sources::unknown(name, self.instrument.sources())),
        }
    }

    /// `{"command": "configure", "worker", "parameters", "slots"}`, the last two optional; or `"source"` with what the
    /// source takes.
    fn obey_configure(&self, request: &Value) -> Result<Request, Fault> {
        if !request["source"].is_null() {
            return self.obey_ask(&json!({"source": request["source"], "request": request}));
        }
        let parameters = match &request["parameters"] {
            Value::Null => serde_json::Map::new(),
            Value::Object(parameters) => parameters.clone(),
            _ => return Err(Fault::new("cannot configure a worker", "`parameters` is not a JSON object")),
        };
        self.change(request["worker"].as_str().unwrap_or_default(), parameters, number(request, "slots")?)
    }

    /// Changes a worker that runs; the answer is how it is now.
    fn change(
        &self,
        name: &str,
        parameters: serde_json::Map<String, Value>,
        slots: Option<i64>,
    ) -> Result<Request, Fault> {
        let what = || format!("cannot configure worker `{}`", shortened(name));
        let Some((section, handle)) = self.running_workers().find(|(section, _)| section.name == name) else {
            let names: Vec<&str> = self.instrument.workers().map(|section| section.name.as_str()).collect();
            let hint = match (nearest(name, names.iter().copied()), names.as_slice()) {
                (Some(near), _) => format!("did you mean `{near}`?"),
                (None, []) => "this instrument has no workers: add `[worker.NAME]` to its file".to_owned(),
                (None, names) => format!("workers are {}", shortened(&names.join(", "))),
            };
            return Err(Fault::new(what(), "no such worker").hint(hint));
        };
        let slots = slots.map(|slots| {
            u32::try_from(slots).ok().filter(|slots| (1..=flow::SLOTS_MAX).contains(slots)).ok_or_else(|| {
                Fault::new(what(), format!("{slots} slots"))
                    .hint(format!("a worker has 1 to {} slots", flow::SLOTS_MAX))
            })
        });
        let slots = slots.transpose()?;
        let set = section.set.value;
        if slots.is_some_and(|slots| u64::from(slots) < set) {
            let cause = format!("`set` is {set}: that many slots get the same messages");
            return Err(Fault::new(what(), cause).hint(format!("give it {set} slots or more")));
        }
        let (answer, answered) = channel();
        handle.order(Order { what: What::Change { parameters, slots }, answer });
        Ok(Request { stage: format!("worker `{name}`"), handle: handle.clone(), answered, key: None })
    }

    /// `{"command": "cutover", "shadow"}`: answered when it is done, while all else goes on.
    fn begin_cut_over(&mut self, command: Command, now: i64) {
        let name = command.request["shadow"].as_str().unwrap_or_default();
        let workers: Vec<_> = self.running_workers().collect();
        let begun = match (&self.underway, Pair::of(&workers, name)) {
            (Some(_), _) => {
                let fault = Fault::new("the command was refused", "another cut-over is under way");
                Err(Box::new((command, fault.hint("try again after its answer"))))
            }
            (None, Err(fault)) => Err(Box::new((command, fault))),
            (None, Ok(pair)) => Underway::begin(pair, command, &self.data, &self.asked.stop),
        };
        match begun {
            Ok(underway) => self.underway = Some(underway),
            Err(refused) => {
                let (command, fault) = *refused;
                let answer = Err(fault);
                self.record(&command, &answer, now);
                let _ = command.answer.send(answer);
            }
        }
    }

    /// Carries out a command, or begins one that is answered later; true where it may have changed a run.
    fn begin_command(&mut self, command: Command, now: i64) -> bool {
        if command.request["command"] == "cutover" {
            self.begin_cut_over(command, now);
            return false;
        }
        let answer = match self.ask_stage(&command.request) {
            Some(Ok(request)) => {
                self.asks.push(command, request);
                return false;
            }
            Some(Err(fault)) => Err(fault),
            None => self.obey(&command.request, now),
        };
        self.record(&command, &answer, now);
        let _ = command.answer.send(answer);
        true
    }

    /// Answers commands that were begun before.
    fn answer_commands(&mut self, now: i64) {
        for (command, answer) in self.asks.answered() {
            self.record(&command, &answer, now);
            let _ = command.answer.send(answer);
        }
        let Some(answer) = self.underway.as_mut().and_then(Underway::result) else { return };
        let Some(mut underway) = self.underway.take() else { return };
        underway.join();
        self.record(&underway.command, &answer, now);
        let _ = underway.command.answer.send(answer);
    }

    /// `{"command": "begin", "run", "start", "stop", "inclusive", "settle", "metadata", "slots"}`, each but the first optional.
    fn obey_begin(&mut self, request: &Value, now: i64) -> Result<Value, Fault> {
        let name = match &request["run"] {
            Value::Null => next_name(self.keeper.runs()),
            Value::String(name) if crate::file::is_run_name(name) => name.clone(),
            other => {
                // The name becomes part of a file name: the socket has the rule of the command line.
                let cut: String = other.to_string().chars().take(100).collect();
                return Err(Fault::new(format!("cannot begin run {cut}"), "invalid name")
                    .hint("write up to 64 letters, digits, `_` and `-`"));
            }
        };
        let is_declared = self.instrument.runs.iter().any(|run| run.name == name);
        if let Some(sink) = self.instrument.sinks.iter().find(|sink| sink.is_of_one_run() && !is_declared) {
            let cause = format!("sink `{}` writes one file, `{}`, of the declared run", sink.name, sink.file.value);
            return Err(Fault::new(format!("cannot begin run `{name}`"), cause)
                .hint("add `{run}` to its `file`, and restart `beamport up`"));
        }
        if let Some(path) = self.file_in_the_way(&name) {
            let cause = format!("its file `{}` exists already, and no file is overwritten", path.display());
            return Err(Fault::new(format!("cannot begin run `{name}`"), cause)
                .hint("move that file away, or begin a run of another name: `beamport begin NAME`"));
        }
        if self.ending {
            // Nobody would end it: the instrument would go on for ever.
            return Err(Fault::new(format!("cannot begin run `{name}`"), "the instrument is ending")
                .hint("restart it with `beamport up FILE` after it has ended"));
        }
        let slots = match &request["slots"] {
            Value::Null => serde_json::Map::new(),
            Value::Object(slots) => slots.clone(),
            _ => return Err(Fault::new(format!("cannot begin run `{name}`"), "`slots` is not a JSON object")),
        };
        let metadata = match &request["metadata"] {
            Value::Null if slots.is_empty() => "{}".into(),
            Value::Null => json!({"slots": slots}).to_string(),
            Value::Object(fields) => {
                let mut fields = fields.clone();
                if !slots.is_empty() {
                    fields.insert("slots".into(), slots.clone().into());
                }
                Value::Object(fields).to_string()
            }
            _ => return Err(Fault::new(format!("cannot begin run `{name}`"), "`metadata` is not a JSON object")),
        };
        let (start, stop) = (number(request, "start")?.unwrap_or(now), stop(request)?);
        let settle = number(request, "settle")?.unwrap_or(SETTLE.as_nanos() as i64);
        let settle = u64::try_from(settle)
            .map_err(|_| Fault::new(format!("cannot begin run `{name}`"), "`settle` is negative"))?;
        if self.keeper.runs().iter().all(|run| run.name != name) {
            // Before the run: what is wrong with them keeps it from beginning.
            for worker in slots.keys() {
                self.change(worker, serde_json::Map::new(), number(&request["slots"], worker)?)?;
            }
        }
        self.begin(&name, start, stop, Duration::from_nanos(settle), &metadata).map(|run| as_value(&run))
    }

    /// Every command that may change something stands in the stream `control`.
    fn record(&mut self, Command { request, from, .. }: &Command, answer: &Result<Value, Fault>, now: i64) {
        let command = request["command"].as_str().unwrap_or_default();
        let is_recorded = |name: &str| {
            let of_edge = self.instrument.commands.iter().find(|kind| kind.name == name);
            name != "status" && of_edge.is_none_or(|kind| kind.is_recorded)
        };
        if !is_recorded(command) {
            return;
        }
        let mut arguments = request.to_string();
        if arguments.len() > RECORD_BYTES_MAX {
            let begin: String = arguments.chars().take(RECORD_BYTES_MAX / 4).collect();
            arguments = json!({"command": command, "bytes": arguments.len(), "begin": begin}).to_string();
        }
        let answer = match answer {
            Ok(value) => {
                let mut value = value.clone();
                // Long, and in the stream `runs`.
                value.as_object_mut().and_then(|answer| answer.remove("instrument"));
                value.to_string()
            }
            Err(fault) => fault.to_string(),
        };
        let message = wire::bpct::Control { command, arguments: &arguments, from, time: now, answer: &answer };
        if let Err(fault) = self.book.append(&message) {
            tracing::warn!("a command is not recorded: {}", fault.cause);
        }
    }

    /// Stages that runs still need and the instrument file no longer has.
    pub fn missing(&self) -> Result<Vec<MissingStage>, Fault> {
        missing::missing(&self.data, &self.instrument, self.keeper.runs())
    }

    /// The instrument file.
    pub fn file(&self) -> String {
        self.instrument.file.display().to_string()
    }

    /// Files that were given up.
    pub fn failed(&self) -> &[Failed] {
        &self.children.failed
    }

    /// Names of the runs that the instrument file declares.
    pub fn declared_runs(&self) -> Vec<String> {
        self.instrument.runs.iter().map(|run| run.name.clone()).collect()
    }

    /// A file, or a folder of files, that a new run of this name would write and that is there.
    fn file_in_the_way(&self, run: &str) -> Option<PathBuf> {
        let is_new = self.keeper.runs().iter().all(|known| known.name != run);
        let of = |sink: &SinkSection| {
            let path = sink.path_of(&self.instrument.name.value, run);
            // Files of frames have a folder of their own, and patterns for names.
            let is_file = sink.template().is_some();
            if is_file { path } else { path.parent().map(Path::to_path_buf).unwrap_or(path) }
        };
        let mut paths = self.instrument.sinks.iter().filter(|_| is_new).map(of);
        paths.find(|path| path.symlink_metadata().is_ok())
    }

    /// Why code of workers never started: they have processed nothing since this start.
    pub fn silent(&self) -> Vec<Fault> {
        let workers = self.stages().filter(|(stage, _)| !matches!(stage, Stage::Source(_)));
        workers.filter_map(|(_, handle)| handle.silence()).collect()
    }

    /// Faults of sources that have received nothing of what they were to read since this start. The caller asks once
    /// the mover is dropped, when they have ended.
    pub fn absent(&self) -> impl Fn() -> Vec<Fault> + use<> {
        let sources = self.stages().filter(|(stage, _)| matches!(stage, Stage::Source(_)));
        let handles: Vec<StageHandle> = sources.map(|(_, handle)| handle.clone()).collect();
        move || handles.iter().filter_map(StageHandle::silence).collect()
    }

    /// Counts by the code of workers, by worker and slot, each slot since it started. The caller asks once the mover is
    /// dropped, when they have ended.
    pub fn statistics(&self) -> impl Fn() -> serde_json::Map<String, Value> + use<> {
        let workers = self.running_workers().map(|(section, handle)| (section.name.clone(), handle.clone()));
        let handles: Vec<(String, StageHandle)> = workers.collect();
        move || {
            let of = |(name, handle): &(String, StageHandle)| Some((name.clone(), handle.status()?));
            let has_counted = |(_, slots): &(String, Value)| slots.as_object().is_some_and(|slots| !slots.is_empty());
            handles.iter().filter_map(of).filter(has_counted).collect()
        }
    }

    /// Workers and live sinks with their inputs: those that have done nothing yet have no account.
    pub fn late_accounts(&self) -> Vec<(String, Vec<String>)> {
        let stages = self.instrument.stages.iter().filter(|stage| matches!(stage, Stage::Worker(_) | Stage::Live(_)));
        stages.map(|stage| (stage.name().to_owned(), stage.inputs().to_vec())).collect()
    }

    /// Names of the sinks that make files.
    pub fn sinks(&self) -> Vec<String> {
        self.instrument.sinks.iter().map(|s| s.name.clone()).collect()
    }

    /// Names of the stages that read others, in the order of the file.
    pub fn fed_stages(&self) -> Vec<String> {
        let stages = self.instrument.stages.iter().filter(|stage| stage.source().is_none());
        stages.map(|stage| stage.name().to_owned()).collect()
    }

    /// Gaps of marked messages that recoveries cut from the streams of stages at this start.
    pub fn cuts(&self) -> Vec<Gap> {
        self.all_cuts().into_iter().filter(|gap| !self.cuts_before.contains(gap)).collect()
    }

    /// Gaps that recoveries cut from the streams of stages. Those in an unreadable book are unknown.
    fn all_cuts(&self) -> Vec<Gap> {
        let streams = self.instrument.stages.iter().map(Stage::name);
        streams.flat_map(|stream| flow::ledger::cuts(&self.data, stream).unwrap_or_default()).collect()
    }

    /// Messages that these stages had lost before this start, of all their inputs.
    pub fn lost_before(&self) -> u64 {
        self.lost_before
    }
}

fn stopped_at_once() -> Fault {
    Fault::new("stopped at once", "interrupted twice").hint("the next `beamport up` resumes unfinished runs")
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.children.kill();
        self.asked.stop.store(true, Ordering::Relaxed);
        self.threads.iter().for_each(StageThread::wake);
        if let Some(underway) = &mut self.underway {
            underway.join();
        }
        // A stage ends before those that it reads.
        self.threads.iter_mut().rev().for_each(StageThread::join);
    }
}

/// Names what of the books cannot be read, and the files of which they do not say any more whether they are finished:
/// those are left alone.
fn unknown_outcome(data: &Data, instrument: &Instrument, runs: &[Run]) -> Result<Vec<Key>, Fault> {
    for damage in data.damage()? {
        tracing::warn!("{damage}");
    }
    let mut files = Vec::new();
    for sink in &instrument.sinks {
        for run in commits::unknown_outcome(data, &sink.name, runs)? {
            tracing::warn!(
                "whether sink `{0}` finished run `{run}` is unknown: write the file again with `beamport write {run}`",
                sink.name
            );
            files.push((sink.name.clone(), run));
        }
    }
    Ok(files)
}

/// Tries until there is room on the device, or until `signals` says to end.
fn with_room<T>(signals: &AtomicUsize, mut work: impl FnMut() -> Result<T, Fault>) -> Result<T, Fault> {
    loop {
        match work() {
            Err(fault) if fault.passes == Passes::WithRoom && signals.load(Ordering::Relaxed) == 0 => {
                tracing::warn!("{fault}");
                std::thread::sleep(AGAIN);
            }
            answer => return answer,
        }
    }
}

fn as_value(run: &Run) -> Value {
    serde_json::to_value(run).unwrap_or(Value::Null)
}

/// `1`, `2`, ...: the number after the highest that is there.
fn next_name(runs: &[Run]) -> String {
    let highest = runs.iter().filter_map(|r| r.name.parse::<u64>().ok()).max().unwrap_or(0);
    (highest + 1).to_string()
}
