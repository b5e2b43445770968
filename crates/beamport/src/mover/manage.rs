//! `{"command": "worker", "action", "worker"}`: workers of a running instrument are paused, resumed, added and removed,
//! their statistics reset, and their messages aside retried.
//!
//! A worker is added as the instrument file has it now; one that is removed keeps its stream and its position, and
//! adding it once more resumes there. Each change lasts until the instrument ends: the next start reads the file.

use super::asks::Request;
use super::stage::{Order, StageThread, What};
use super::{Mover, workers};
use crate::file::{self, SinkSection, Stage, nearest};
use flow::Fault;
use serde_json::Value;
use settings::shortened;
use std::sync::mpsc::channel;
use wire::bprn::State;

/// The actions, sorted by word.
const ACTIONS: [&str; 6] = ["add", "pause", "remove", "reset", "resume", "retry"];

impl Mover {
    /// `{"command": "worker", "action", "worker"}`.
    pub(super) fn obey_worker(&mut self, request: &Value) -> Result<Request, Fault> {
        let name = request["worker"].as_str().unwrap_or_default();
        let action = request["action"].as_str().unwrap_or_default();
        let what = match action {
            "add" => return self.add_worker(name),
            "pause" => What::Pause(true),
            "remove" => What::Remove,
            "reset" => What::Reset,
            "resume" => What::Pause(false),
            "retry" => What::Retry,
            other => {
                return Err(Fault::new("the command was refused", format!("unknown action `{}`", shortened(other)))
                    .hint(format!("actions are {}", ACTIONS.join(", "))));
            }
        };
        if let What::Remove = what {
            self.may_remove(name)?;
        }
        let (_, handle) = self.running_worker(action, name)?;
        let handle = handle.clone();
        if let What::Remove = what {
            self.removing.insert(name.to_owned());
        }
        let (answer, answered) = channel();
        handle.order(Order { what, answer });
        Ok(Request { stage: format!("worker `{name}`"), handle, answered, key: None })
    }

    /// Refuses to remove a worker whose output others need.
    fn may_remove(&self, name: &str) -> Result<(), Fault> {
        let takes = |inputs: &[String]| inputs.iter().any(|input| input == name);
        let mut stages = self.instrument.stages.iter().filter(|stage| stage.name() != name);
        let is_user =
            |stage: &&Stage| takes(stage.inputs()) || stage.worker().is_some_and(|worker| takes(&worker.side_inputs));
        let stage = stages.find(is_user).map(|stage| format!("{} `{}`", stage.kind(), stage.name()));
        let of_sink = |sink: &&SinkSection| sink.inputs.iter().any(|input| input == name);
        let user = stage.or_else(|| self.instrument.sinks.iter().find(of_sink).map(|s| format!("sink `{}`", s.name)));
        match user {
            Some(user) => Err(Fault::new(format!("cannot remove worker `{name}`"), format!("{user} needs its output"))
                .hint(format!("pause it: `beamport worker pause {name}`, or restart `beamport up` without both"))),
            None => Ok(()),
        }
    }

    /// Starts a worker that the instrument file has got since.
    fn add_worker(&mut self, name: &str) -> Result<Request, Fault> {
        let what = || format!("cannot add worker `{}`", shortened(name));
        let path = &self.instrument.file;
        if self.instrument.part.is_some() {
            return Err(Fault::new(what(), "the instrument runs on several hosts")
                .hint("restart `beamport up` on the host of the worker"));
        }
        if self.ending {
            return Err(Fault::new(what(), "the instrument is ending").hint("restart it with `beamport up FILE`"));
        }
        if self.instrument.stages.iter().any(|stage| stage.name() == name) {
            return Err(Fault::new(what(), "a stage of this name runs already")
                .hint(format!("remove it first: `beamport worker remove {}`", shortened(name))));
        }
        // The writer of files is not asked: no sink changes.
        let read = file::read(path, &self.registry, &|_, _| crate::edges::TemplateAnswer::default());
        let instrument = read.map_err(|mistakes| {
            let first = mistakes.first().map(ToString::to_string).unwrap_or_default();
            Fault::new(what(), first).hint(format!("`beamport check {}` shows all mistakes", path.display()))
        })?;
        let names = || instrument.workers().map(|section| section.name.as_str());
        let Some(section) = instrument.workers().find(|section| section.name == name) else {
            let cause = format!("{} has no section `[worker.{}]`", path.display(), shortened(name));
            let hint = match nearest(name, names()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "write the section into the file, then add the worker".to_owned(),
            };
            return Err(Fault::new(what(), cause).hint(hint));
        };
        let handles = |inputs: &[String]| -> Result<Vec<_>, Fault> {
            let of = |input: &String| {
                self.handle(input).cloned().ok_or_else(|| {
                    Fault::new(what(), format!("its input `{input}` does not run"))
                        .hint("a worker that fills it is added first; for a source, restart `beamport up`")
                })
            };
            inputs.iter().map(of).collect()
        };
        let inputs = (handles(&section.inputs.value)?, handles(&section.side_inputs)?);
        let thread = workers::start(&self.data, section, workers::options(section), inputs, &self.asked.stop)?;
        let (answer, answered) = channel();
        thread.handle.order(Order { what: What::Report, answer });
        let request = Request { stage: format!("worker `{name}`"), handle: thread.handle.clone(), answered, key: None };
        self.instrument.stages.push(Stage::Worker(Box::new(section.clone())));
        self.threads.push(thread);
        Ok(request)
    }

    /// Takes out workers that have ended by command.
    pub(super) fn take_removed(&mut self) {
        if self.removing.is_empty() {
            return;
        }
        let is_removed =
            |(stage, thread): &(&Stage, &StageThread)| stage.worker().is_some() && thread.handle.is_removed();
        while let Some(at) = self.instrument.stages.iter().zip(&self.threads).position(|both| is_removed(&both)) {
            let name = self.instrument.stages.remove(at).name().to_owned();
            self.threads.remove(at).join();
            self.file_watch.forget(&name);
            self.removing.remove(&name);
        }
    }

    /// Resumes all workers: the instrument ends, and its runs wait for them.
    pub(super) fn resume_paused(&self) {
        for (_, handle) in self.running_workers().filter(|(_, handle)| handle.is_paused()) {
            handle.order(Order { what: What::Pause(false), answer: channel().0 });
        }
    }

    /// Workers that are paused and for which a run waits.
    pub(super) fn paused_troubles(&self) -> impl Iterator<Item = Fault> {
        let run = self.keeper.unsealed().find(|run| run.state == State::Settling).map(|run| run.name.clone());
        let paused = self.running_workers().filter(|(_, handle)| handle.is_paused());
        paused.filter_map(move |(section, _)| {
            let (run, name) = (run.as_ref()?, &section.name);
            Some(
                Fault::new(format!("worker `{name}` is paused"), format!("run `{run}` waits for it"))
                    .hint(format!("resume it: `beamport worker resume {name}`")),
            )
        })
    }
}
