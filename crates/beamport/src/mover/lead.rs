//! The runs of the host that leads, which the others adopt, and the end of a host, for which the carrier must have all
//! that others read.

use super::hosts::Hosts;
use super::{Mover, sources};
use crate::file::{HOSTS_SINK, LEAD_RUNS, Stage, is_hosts_sink};
use flow::records::Run;
use flow::{Fault, Passes};
use serde_json::{Value, json};
use std::sync::atomic::Ordering;
use std::sync::mpsc::TryRecvError;
use store::ReaderInfo;
use wire::bprn::State;

impl Mover {
    /// Begins and ends runs as the host that leads does. True where one has changed, and why one cannot.
    pub(super) fn adopt_runs(&mut self, now: i64) -> (bool, Option<Fault>) {
        let Some(of) = self.hosts.as_ref().and_then(Hosts::lead_runs_now) else { return (false, None) };
        match self.hosts.as_mut().map(|hosts| hosts.refresh_lead(&of)) {
            Some(Ok(true)) => {}
            None | Some(Ok(false)) => return (false, None),
            Some(Err(fault)) => return (false, Some(fault)),
        }
        // A file of theirs can be written again: with the sinks of this host.
        match self.provenance() {
            Ok(described) => self.keeper.set_instrument(&described),
            Err(fault) => return (false, Some(fault)),
        }
        let Some(hosts) = &mut self.hosts else { return (false, None) };
        let Some(lead) = &hosts.lead else { return (false, None) };
        let (mut has_changed, mut new, mut why) = (false, Vec::new(), None);
        let mut has_room = true;
        // Runs of before this host had a folder, with messages that may be gone; those of the file it is to have.
        let created = self.keeper.created();
        let is_declared = |run: &Run| self.instrument.runs.iter().any(|declared| declared.name == run.name);
        let is_past = |run: &Run| run.state == State::Sealed && run.time < created && !is_declared(run);
        // While that host is away nobody says whether earlier ones are those of this instrument.
        let is_doubtful = |run: &Run| !of.is_live && run.start < created;
        let runs = match lead.runs_of(of.uuid.as_ref()) {
            Ok(runs) => runs,
            Err(fault) => return (false, Some(fault)),
        };
        for run in runs.into_iter().filter(|run| !is_past(run) && !is_doubtful(run)) {
            let is_new = self.keeper.runs().iter().all(|known| known.name != run.name);
            match self.keeper.follow_lead(run, now) {
                Ok(true) => {
                    has_changed = true;
                    new.extend(self.keeper.runs().iter().find(|known| is_new && known.name == run.name).cloned());
                }
                Ok(false) => {}
                Err(fault) if fault.passes == Passes::WithRoom => {
                    has_room = false;
                    break;
                }
                Err(fault) => why = Some(fault),
            }
        }
        // A run that could not be adopted is tried again.
        if why.is_none() && has_room {
            hosts.lead_steps = lead.steps();
            hosts.lead_runs = Some(of);
        }
        new.iter().for_each(|run| self.adopt(run));
        (has_changed, why)
    }

    /// Holds the places of a run that was adopted.
    fn adopt(&mut self, run: &Run) {
        tracing::info!(run = run.name, "a run of the host that leads is adopted");
        self.unsealed.insert(run.name.clone(), State::Open);
        match self.places(std::slice::from_ref(run)) {
            Ok(places) => self.duties.hold.extend(places),
            Err(fault) => self.duties.fault.set_fault(Some(fault)),
        }
        self.hold();
    }

    /// Lets the mirrors begin once the runs of the host that leads are read to their end and adopted: the short ring of
    /// a mirror would replace messages of a run that this host does not have yet.
    pub(super) fn begin_mirrors(&mut self) {
        let Some(hosts) = &mut self.hosts else { return };
        if !self.asked.mirrors_wait.load(Ordering::Relaxed) || hosts.lead.is_none() {
            return;
        }
        if hosts.has_read_lead && hosts.lead_runs_now().is_some() {
            // Since the end was read, runs have been adopted once.
            hosts.has_adopted = true;
            self.let_begin();
            return;
        }
        match hosts.asked_lead.as_ref().map(|request| request.answered.try_recv()) {
            Some(Err(TryRecvError::Empty)) => {}
            Some(Ok(Ok(Value::Bool(true)))) => hosts.has_read_lead = true,
            _ => {
                let mut stages = self.instrument.stages.iter().zip(&self.threads);
                let lead = stages.find(|(stage, _)| stage.name() == LEAD_RUNS);
                hosts.asked_lead = lead.map(|(_, thread)| sources::ask(thread, LEAD_RUNS, json!({"is_at_end": true})));
            }
        }
    }

    /// Whether the runs of the host that leads, as they were at the start of this one, are adopted.
    pub(super) fn has_adopted(&self) -> bool {
        self.hosts.as_ref().is_none_or(|hosts| hosts.lead.is_none() || hosts.has_adopted)
    }

    /// Whether this host adopts the runs of another.
    pub fn follows_lead(&self) -> bool {
        self.hosts.as_ref().is_some_and(|hosts| hosts.lead.is_some())
    }

    /// Whether every run that the file declares has begun: the host that leads begins them.
    pub(super) fn knows_declared(&self) -> bool {
        let is_known = |name: &str| self.keeper.runs().iter().any(|run| run.name == name);
        !self.follows_lead() || self.instrument.runs.iter().all(|run| is_known(&run.name))
    }

    /// Whether this host has nothing left to do, and the carrier has all that its streams held for other hosts then.
    /// `is_done`: it has nothing else to do.
    pub(super) fn is_carried(&mut self, is_done: bool) -> Result<bool, Fault> {
        let carried = self.hosts.as_mut().and_then(|hosts| hosts.to_carry.take());
        if !is_done {
            return Ok(false);
        }
        let mut left = match carried {
            Some(left) => left,
            None => {
                let sinks = self.instrument.stages.iter().filter(|stage| is_hosts_sink(stage.name()));
                let end = |stream: &String| Ok((stream.clone(), self.data.reader_early(stream)?.bounds().count));
                sinks.flat_map(Stage::inputs).map(end).collect::<Result<_, Fault>>()?
            }
        };
        while let Some((stream, end)) = left.last() {
            // One of several sinks is for a host that may be away: nobody waits for that.
            let far = |reader: &ReaderInfo| reader.name.strip_prefix(HOSTS_SINK)?.strip_prefix('.').map(str::to_owned);
            let is_away = |reader: &ReaderInfo| {
                let far = far(reader);
                far.is_some_and(|far| self.hosts.as_ref().is_some_and(|hosts| hosts.is_away(&far)))
            };
            let is_behind =
                |reader: &ReaderInfo| is_hosts_sink(&reader.name) && reader.committed < *end && !is_away(reader);
            if self.data.reader_early(stream)?.pins().readers().iter().any(is_behind) {
                break;
            }
            left.pop();
        }
        let is_carried = left.is_empty();
        if let Some(hosts) = &mut self.hosts {
            hosts.to_carry = Some(left);
        }
        Ok(is_carried)
    }
}
