//! The start of an instrument: data folder, books, stages, and the runs that its file declares.
//!
//! A full device delays the start until there is room. Every other fault ends it: the stages that have started stop
//! when the [`Mover`] is dropped.

use super::asks::Asks;
use super::child::{Children, Key, writer};
use super::control::{Control, EdgeCommands};
use super::duties::Duties;
use super::file_watch::{self, FileWatch};
use super::hosts::Hosts;
use super::reader_names::ReaderNames;
use super::receiver::Asked;
use super::stage::StageHandle;
use super::stalls::Stalls;
use super::stop_conditions::StopConditions;
use super::{AGAIN, Mover, merges, relays, sources, workers};
use crate::edges::Registry;
use crate::file::{HostPart, Instrument, SinkSection, Stage, Start};
use flow::commits::{self, FinishedRuns};
use flow::edge::Provenance;
use flow::limits::BOOK_HISTORY_BYTES;
use flow::records::{Run, Stop};
use flow::{Book, Data, Fault, Keeps, Passes, RunKeeper};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use wire::bprn::State;

/// How long a stage may take to open its stream, if it does not wait for room.
const START: Duration = Duration::from_secs(30);

/// Makes the data folder, and shares it with the group of the instrument file, or with none.
fn prepare(folder: &Path, group: Option<u32>, signals: &AtomicUsize) -> Result<(), Fault> {
    let fault = |e: std::io::Error| Fault::io(format!("cannot create data folder `{}`", folder.display()), &e);
    // Other users see nothing of a folder that is shared with a group.
    let mode = if group.is_some() { 0o750 } else { 0o777 };
    let make = || std::fs::DirBuilder::new().recursive(true).mode(mode).create(folder);
    with_room(signals, || make().map_err(fault))?;
    if group.is_some() {
        // The permissions of the group do not depend on the shell of the owner.
        // SAFETY: cannot fail.
        unsafe { libc::umask(0o027) };
    }
    // Another `up` that runs there keeps it as it is: this one ends at the lock of `runs`.
    if super::control::is_running(folder) {
        return Ok(());
    }
    store::share(store::Os::shared().as_ref(), folder, group).map_err(|error| {
        let what = format!("cannot share the data folder `{}` with its group", folder.display());
        let fault = Fault::new(what, &error);
        if error.is_denied() {
            fault.hint(
                "as the owner of the folder, be a member of the group: `sudo usermod -aG GROUP USER`, log in again",
            )
        } else {
            fault
        }
    })
}

impl Mover {
    /// Opens everything and starts the sources, whose plans are prepared. On a full device it tries again until there
    /// is room, or until `signals` says to end.
    pub fn start(instrument: Instrument, registry: &Registry, signals: &AtomicUsize) -> Result<Self, Fault> {
        let folder = instrument.data.value.clone();
        prepare(&folder, instrument.group, signals)?;
        // A writer that is missing or of another version is a permanent fault: it is reported at once.
        instrument.sinks.iter().try_for_each(|sink| writer(&sink.writer).map(drop))?;
        let data = Data::on_disk(&folder);
        file_watch::refuse_headless(&data, &instrument)?;
        let keeper = with_room(signals, || RunKeeper::open(&data))?;
        log_cut(&keeper);
        let unknown_outcome = unknown_outcome(&data, &instrument, keeper.runs())?;
        let book = with_room(signals, || Book::open(&data, "control", Keeps::Newest(BOOK_HISTORY_BYTES)))?;
        let control = with_room(signals, || Control::listen(&folder, EdgeCommands::new(&instrument)))?;
        let hosts = with_room(signals, || Hosts::start(&data, &instrument))?;
        if let Some(part) = &instrument.part {
            with_room(signals, || remove_shared(&data, part))?;
        }
        let asked = asked_of(&instrument);
        let mut mover = Self {
            declared: !instrument.runs.is_empty(),
            instrument,
            registry: registry.clone(),
            data,
            keeper,
            threads: Vec::new(),
            asked,
            control,
            underway: None,
            asks: Asks::default(),
            removing: BTreeSet::new(),
            book,
            children: Children::default(),
            file_watch: FileWatch::default(),
            reader_names: ReaderNames::default(),
            stalls: Stalls::default(),
            stop_conditions: StopConditions::default(),
            unsealed: BTreeMap::new(),
            finished: Vec::new(),
            hosts,
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
                Stage::Merge(section) => merges::start(data, section, handles(&section.inputs), &self.asked)?,
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

    pub(super) fn begin_declared(&mut self) -> Result<(), Fault> {
        // The host that leads begins them.
        if self.follows_lead() {
            return Ok(());
        }
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
    pub(super) fn provenance(&self) -> Result<String, Fault> {
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
        let is_listed = |code: &Value| code["hash"].is_string() || code["files"].is_object();
        let code = |worker: &StageHandle| worker.code().filter(is_listed);
        let listed = |code: Value| {
            let fields = ["call", "hash", "files"].into_iter().filter(|field| !code[field].is_null());
            fields.map(|field| (field.to_owned(), code[field].clone())).collect::<serde_json::Map<_, _>>()
        };
        let workers: serde_json::Map<String, Value> = self
            .running_workers()
            .filter_map(|(section, worker)| Some((section.name.clone(), code(worker)?)))
            .map(|(name, code)| (name, listed(code).into()))
            .collect();
        for (name, made) in [("sinks", sinks), ("workers", workers)] {
            if !made.is_empty() {
                all.insert(name.into(), made.into());
            }
        }
        Ok(Value::from(all).to_string())
    }
}

/// Removes the streams of workers that this host shares with others: what is in them belongs to blocks that others have
/// got since, or get.
fn remove_shared(data: &Data, part: &HostPart) -> Result<(), Fault> {
    for stream in data.streams(true)? {
        let is_of =
            |worker: &String| stream.strip_prefix(worker).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        if part.shared().any(is_of) {
            store::remove(&data.media, &data.stream(&stream)).map_err(|e| flow::stream_fault(&stream, e))?;
        }
    }
    Ok(())
}

/// Logs what a recovery has cut of the runs.
fn log_cut(keeper: &RunKeeper) {
    if let cut @ store::Recovery::Cut { first, end, marked, .. } = keeper.recovery() {
        // A step of a run that is not on the disk has not happened.
        match end.max(marked) > first {
            true => tracing::warn!("stream `{}` is damaged, runs are lost: {cut}", flow::RUNS),
            false => tracing::info!("stream `{}` is recovered from the disk, no run is lost", flow::RUNS),
        }
    }
}

/// The requests to the receivers: sources wait where a run that this host declares may have begun before its streams.
fn asked_of(instrument: &Instrument) -> Asked {
    let asked = Asked::default();
    let has_past = instrument.runs.iter().any(|run| run.start.value != Start::Now);
    let follows = instrument.part.as_ref().is_some_and(|part| part.lead.is_some());
    asked.waits.store(has_past && !follows, Ordering::Relaxed);
    asked.mirrors_wait.store(has_past || follows, Ordering::Relaxed);
    asked
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
