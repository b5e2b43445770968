//! Duties: work for runs and files that the mover retries until it succeeds.
//!
//! It begins declared runs, files what sinks have finished, holds the positions of sinks that have not read yet, and
//! releases those of files that were given up. A fault is reported, and all of it is tried again after a pause; what a
//! kill leaves out is found again at the next start.

use super::child::Key;
use super::stage::{StageHandle, StageThread};
use super::{AGAIN, Mover};
use flow::records::Run;
use flow::{Fault, reader_name};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Instant;
use wire::bprn::State;

/// Work that is left.
#[derive(Default)]
pub(super) struct Remaining {
    /// A run is not sealed.
    pub(super) unsealed: bool,
    /// Files that are not finished.
    pub(super) files: Vec<Key>,
}

impl Remaining {
    /// True if nothing is left to do for a run.
    pub(super) fn has_none_of(&self, run: &Run) -> bool {
        run.state == State::Sealed && !self.files.iter().any(|(_, name)| *name == run.name)
    }
}

/// A run with nothing left to do.
pub(super) struct DoneRun {
    /// Messages that it lost; none where its account cannot be read.
    pub(super) lost: Option<u64>,
    /// It was done before this stop, and is none that the instrument file declares: a report of each would make a stop
    /// take as long as all of them.
    pub(super) is_earlier: bool,
}

/// Tasks that the mover retries until they succeed.
#[derive(Default)]
pub(super) struct Duties {
    /// Runs of the instrument file are not begun.
    pub(super) declare: bool,
    /// Files that were given up and whose places are held.
    pub(super) release: Vec<Key>,
    /// A file was finished.
    pub(super) file: bool,
    /// The work that is left has changed.
    pub(super) look: bool,
    /// Positions to be held for a file: the file and the stream.
    pub(super) hold: Vec<(Key, String)>,
    /// Not before this moment, after a fault.
    pub(super) next: Option<Instant>,
    /// Reports the fault.
    pub(super) fault: StageHandle,
}

impl Duties {
    pub(super) fn is_none(&self) -> bool {
        !(self.declare || self.file || self.look) && self.release.is_empty() && self.hold.is_empty()
    }
}

impl Mover {
    /// Named positions at the beginning of runs, so that `wait` waits for their sinks. Where a sink has committed, its
    /// own positions are kept since then.
    pub(super) fn places(&self, runs: &[Run]) -> Result<Vec<(Key, String)>, Fault> {
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
    pub(super) fn hold(&mut self) {
        let held = self.try_hold();
        self.duties.next = held.is_err().then(|| Instant::now() + AGAIN);
        self.duties.fault.set_fault(held.err());
        self.let_begin();
    }

    /// Lets the sources begin, once the positions of declared runs are held, and the mirrors, once those of the runs of
    /// the host that leads are.
    pub(super) fn let_begin(&self) {
        if self.duties.declare || !self.duties.hold.is_empty() {
            return;
        }
        let begun = self.asked.waits.swap(false, Ordering::Relaxed);
        if self.has_adopted() && self.asked.mirrors_wait.swap(false, Ordering::Relaxed) || begun {
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
    pub(super) fn do_duties(&mut self, left: &mut Remaining) {
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
    pub(super) fn file_away(&mut self) -> Result<(), Fault> {
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
    pub(super) fn done(&self) -> Result<BTreeSet<String>, Fault> {
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
    pub(super) fn log_runs(&mut self) {
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
    pub(super) fn leave_done_runs(&mut self) {
        for (name, run) in &mut self.done {
            run.is_earlier = !self.instrument.runs.iter().any(|declared| declared.name == *name);
        }
    }
}
