//! The mover: one process that runs the native stages of an instrument and looks after its children.
//!
//! Threads: one for each receiver, merge, worker and live sink, one for the control socket, this one for runs and
//! children. A receiver steps one source or many. Nothing of record lives here: runs are in the stream `runs`, results
//! of sinks in their commits, positions in the streams. A mover that was killed resumes from these.
//!
//! Here are the state, the loop and the views of both. `start` opens everything, `commands` has the commands of
//! clients, `duties` the work for runs and files that is retried.

mod appended;
mod asks;
mod bulletin;
mod child;
mod code;
mod commands;
mod control;
mod cutover;
mod duties;
mod file_watch;
mod hosts;
mod lead;
mod manage;
mod merges;
mod missing;
mod poller;
mod reader_names;
mod receiver;
mod relays;
mod shared;
pub mod slot;
mod sources;
mod stage;
mod stalls;
mod start;
mod stop_conditions;
mod template;
mod through;
mod worker_loop;
mod workers;

pub(crate) use child::tempfile_in;
pub use child::{Failed, Written, program, start_writer, version, writer};
pub use control::{Glance, ask, glance, is_running};
pub use missing::MissingStage;
pub use template::template_check;
pub use through::{Passing, pass};
pub use workers::{Declared, check_code};

use crate::edges::Registry;
use crate::file::{Instrument, Stage, WorkerSection, is_hosts_sink};
use crate::limits::LEAVE_RUNS;
use asks::Asks;
use child::{Children, Key};
use control::{Command, Control};
use cutover::Underway;
use duties::{DoneRun, Duties, Remaining};
use file_watch::FileWatch;
use flow::commits::FinishedRuns;
use flow::records::{Gap, Run};
use flow::{Book, Data, Fault, RunKeeper, StreamView};
use hosts::Hosts;
use reader_names::ReaderNames;
use receiver::Asked;
use serde_json::Value;
use stage::{StageHandle, StageThread};
use stalls::Stalls;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;
use stop_conditions::StopConditions;
use wire::bprn::State;

/// How often the mover looks around.
const TICK: Duration = Duration::from_millis(10);
/// Pause before what failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// An instrument at work.
pub struct Mover {
    instrument: Instrument,
    /// Reads the instrument file once more.
    registry: Registry,
    data: Data,
    keeper: RunKeeper,
    /// One thread for each of `instrument.stages`, in the same order.
    threads: Vec<StageThread>,
    asked: Asked,
    control: Control,
    /// A cut-over under way, with its command.
    underway: Option<(Command, Underway)>,
    asks: Asks,
    /// Workers that end by command.
    removing: BTreeSet<String>,
    book: Book,
    children: Children,
    file_watch: FileWatch,
    reader_names: ReaderNames,
    stalls: Stalls,
    stop_conditions: StopConditions,
    /// Runs whose end and seal are still to be logged.
    unsealed: BTreeMap<String, State>,
    /// The runs that each of `instrument.sinks` has finished, in the same order.
    finished: Vec<FinishedRuns>,
    /// The other hosts, where the instrument runs on several.
    hosts: Option<Hosts>,
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
                1 => changed |= self.end_runs(&mut ended, now)?,
                _ => {
                    self.children.kill();
                    return Err(stopped_at_once());
                }
            }
            while let Some(mut command) = next.take().or_else(|| self.control.commands.try_recv().ok()) {
                // The stop of a run that ends now: a writer may have what is behind an older time in its file.
                now = self.data.media.now();
                if let Some(answer) = command.done.take() {
                    self.answer(&command, answer, now);
                    continue;
                }
                if !command.is_wanted() {
                    tracing::info!("dropped a command whose client has hung up: {}", command.request["command"]);
                    continue;
                }
                changed |= self.begin_command(command, now);
            }
            self.answer_commands(now);
            self.take_removed();
            changed |= self.keep_hosts(now)?;
            let (has_adopted, fault) = self.adopt_runs(now);
            changed |= has_adopted;
            self.begin_mirrors();
            changed |= self.end_met_runs();
            changed |= self.keep_runs(now)?;
            self.runs_fault.set_fault(fault.or_else(|| self.keeper.trouble()));
            self.supervise_writers(changed, &mut left);
            look(self);
            // To repair a run with incomplete files, the user replays it from the sources.
            let has_ended =
                !left.unsealed || self.declared && self.children.failed.iter().any(|file| file.is_incomplete);
            let is_done = has_ended && left.files.is_empty() && self.duties.is_none() && self.knows_declared();
            let ends = self.declared || ended || self.hosts.as_ref().is_some_and(Hosts::ends_with_lead);
            let may_end = is_done && ends && self.hosts_are_done();
            if self.is_carried(may_end)? {
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

    /// Ends the open runs. True where that may have changed one.
    fn end_runs(&mut self, ended: &mut bool, now: i64) -> Result<bool, Fault> {
        if !std::mem::replace(&mut self.ending, true) {
            self.leave_done_runs();
            self.resume_paused();
        }
        if *ended {
            return Ok(false);
        }
        // Where the disk has no room this is tried again: the run stays open until it is written down.
        *ended = self.keeper.end_all("interrupted", now)?;
        Ok(true)
    }

    /// Ends the runs whose `stop_when` is met; true where one has.
    fn end_met_runs(&mut self) -> bool {
        if self.follows_lead() {
            return false;
        }
        let stages = self.instrument.stages.iter().map(Stage::name).filter(|name| !Data::is_book(name));
        let met = self.stop_conditions.met(&self.data, &self.instrument.runs, self.keeper.runs(), stages);
        let mut changed = false;
        for (run, reason) in met {
            // Read again: a writer may have what has arrived by now in its file.
            let now = self.data.media.now();
            match self.keeper.end(&run, None, &reason, now) {
                Ok(_) => changed = true,
                // The values stay as they are, and the run ends at the next look.
                Err(fault) => tracing::warn!(run, "{fault}"),
            }
        }
        changed
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
        let of_hosts =
            |stage: &Stage, stream: &str| is_hosts_sink(stage.name()) && stage.inputs().iter().any(|i| i == stream);
        let is_taken = move |stream: &str| {
            let is_sent = || self.instrument.stages.iter().any(|stage| of_hosts(stage, stream));
            self.instrument.sinks.iter().any(|s| s.inputs.iter().any(|i| i == stream)) || is_sent()
        };
        let is_source = |stage: &Stage| stage.source().is_some() && !Data::is_book(stage.name());
        let stages = self.stages().filter(move |(stage, _)| is_source(stage) || is_taken(stage.name()));
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
        let own = own.chain(self.paused_troubles());
        stages.chain(own).chain(self.children.troubles()).chain(files).chain(self.host_troubles()).collect()
    }

    /// The data folder.
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// The stages in the file of the parts on several hosts, by name of the part.
    pub fn parts(&self) -> BTreeMap<String, String> {
        self.instrument.hosts.as_ref().map(|hosts| hosts.parts.clone()).unwrap_or_default()
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
        let is_fed = |stage: &&Stage| stage.source().is_none() || self.instrument.is_gathered_here(stage.name());
        let stages = self.instrument.stages.iter().filter(is_fed);
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
        self.say_ended();
        self.asked.stop.store(true, Ordering::Relaxed);
        self.threads.iter().for_each(StageThread::wake);
        if let Some((_, underway)) = &mut self.underway {
            underway.join();
        }
        // A stage ends before those that it reads.
        self.threads.iter_mut().rev().for_each(StageThread::join);
    }
}
