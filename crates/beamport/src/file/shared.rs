//! Workers on several hosts (key `hosts`): each of them runs the worker on blocks of its inputs, which the hosts of
//! these hand out, and its output is gathered on each host that reads it. Hosts of workers do nothing else and keep
//! nothing of record.

use super::hosts::{Hosts, source_of};
use super::{Instrument, LiveSection, Stage, WorkerSection, nearest};
use crate::limits;
use flow::edge::{LivePlan, SharedWorker};
use flow::hosts::HostsLayout;
use flow::{Share, aside_of, commits_of};
use settings::units::Size;
use settings::{Mistakes, Page, Setting, shortened};
use std::sync::Arc;
use store::Clock;

/// Notes what a worker on several hosts cannot have.
pub(super) fn check(
    page: &Page,
    mistakes: &mut Mistakes,
    instrument: &Instrument,
    hosts: &Hosts,
    worker: &WorkerSection,
) {
    let Some(on) = &worker.hosts else { return };
    let name = shortened(&worker.name);
    let line = on.line_or(worker.line);
    let mut refuse = |line: u32, what: String, cause: &str, hint: String| {
        mistakes.push(page.mistake(line, what, cause, hint));
    };
    if let Some(host) = hosts.of.get(&worker.name) {
        let what = format!("worker `{name}` has `host` and `hosts`");
        refuse(host.line_or(line), what, "it runs on one or on several", "remove one of them".into());
    }
    if worker.slots.origin != super::Origin::Default {
        let hint = "remove `slots`: `hosts` gives the slots on each host".to_owned();
        refuse(worker.slots.line_or(line), format!("worker `{name}` has `slots` and `hosts`"), "", hint);
    }
    check_hosts(instrument, hosts, worker, &mut |what, cause, hint| refuse(line, what, cause, hint));
    let whole = "its code keeps what it needs of earlier messages, and blocks go to different hosts";
    let reasons = [
        (worker.is_whole() || worker.alone(&worker.parameters.0).is_some(), whole),
        (matches!(worker.share.value, Share::All | Share::Key), "`share` is for the slots of one machine"),
        (worker.shadow.is_some(), "a shadow runs beside its worker, on one machine"),
        (
            instrument.workers().any(|other| other.shadow.as_deref() == Some(&worker.name)),
            "another worker shadows it, and a shadow runs on one machine",
        ),
    ];
    if let Some((_, cause)) = reasons.iter().find(|(is_wrong, _)| *is_wrong) {
        let hint = "write `host` and `slots`".to_owned();
        refuse(line, format!("worker `{name}` cannot be on several hosts"), cause, hint);
    }
    let made = worker
        .inputs
        .iter()
        .chain(&worker.side_inputs)
        .find(|input| instrument.stage(input).is_some_and(Stage::is_on_each_reader));
    if let Some(input) = made {
        let what = format!("worker `{name}` cannot read `{}`", shortened(input));
        let cause = "that is made on several hosts, too: no single host has it";
        refuse(worker.inputs.line_or(line), what, cause, "do both in one worker, or one of them on one host".into());
    }
}

/// Notes hosts of a worker that the file does not have, or that do something else.
fn check_hosts(
    instrument: &Instrument,
    hosts: &Hosts,
    worker: &WorkerSection,
    refuse: &mut dyn FnMut(String, &str, String),
) {
    let name = shortened(&worker.name);
    for (host, _) in worker.hosts.iter().flat_map(|on| &on.0) {
        let Some(at) = hosts.all.iter().position(|known| known.name == *host) else {
            let names = hosts.all.iter().map(|known| known.name.as_str());
            let hint = match nearest(host, names) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("write `[host.{}]`", shortened(host)),
            };
            refuse(format!("`hosts` of worker `{name}` names no host: `{}`", shortened(host)), "", hint);
            continue;
        };
        let is_on = |stage: &&str| hosts.of.get(*stage).map_or(at == 0, |of| of.as_str() == host);
        let stages = instrument.stages.iter().filter(|stage| !stage.is_on_each_reader()).map(Stage::name);
        let mut names = stages.chain(instrument.sinks.iter().map(|sink| sink.name.as_str()));
        let cause = match names.find(is_on) {
            Some(stage) if at != 0 => {
                format!("`{}` runs there, and a host of workers keeps nothing", shortened(stage))
            }
            _ if at == 0 => "the first host leads, and a host of workers keeps nothing".to_owned(),
            _ => continue,
        };
        let hint = "give it hosts of its own; several of them may be on one machine".to_owned();
        refuse(format!("worker `{name}` cannot share host `{}`", shortened(host)), &cause, hint);
    }
}

impl Instrument {
    /// The workers on several hosts.
    pub fn shared_workers(&self) -> impl Iterator<Item = &WorkerSection> + Clone {
        self.workers().filter(|worker| worker.hosts.is_some())
    }

    /// The hosts that only share the work of workers.
    pub(super) fn is_of_workers(&self, host: &str) -> bool {
        self.shared_workers().any(|worker| worker.hosts.iter().flat_map(|hosts| &hosts.0).any(|(name, _)| name == host))
    }

    /// The stages and sinks of one host each, with all that they read.
    pub(super) fn reads(&self) -> Vec<(&str, Vec<&String>)> {
        let stages = self.stages.iter().filter(|stage| !stage.is_on_each_reader()).map(|stage| {
            let beside = stage.worker().map_or(&[][..], |worker| &worker.side_inputs);
            (stage.name(), stage.inputs().iter().chain(beside).collect())
        });
        let sinks = self.sinks.iter().map(|sink| (sink.name.as_str(), sink.inputs.value.iter().collect()));
        stages.chain(sinks).collect()
    }

    /// The hosts on which a stream is read, beside those that share a worker.
    pub(super) fn readers_of(&self, hosts: &Hosts, stream: &str) -> Vec<String> {
        let reads = self.reads().into_iter().filter(|(_, inputs)| inputs.iter().any(|input| *input == stream));
        reads.map(|(name, _)| hosts.host_of(name).to_owned()).collect()
    }

    /// Whether this part gathers the output of a worker on several hosts under this name.
    #[must_use]
    pub fn is_gathered_here(&self, name: &str) -> bool {
        self.part.as_ref().is_some_and(|part| part.layout.is_gathered(name))
    }

    /// The hosts that have the output of a worker on several hosts.
    #[must_use]
    pub fn gathered_on(&self, worker: &str) -> Vec<&str> {
        let all = self.hosts.iter().flat_map(|hosts| hosts.all.iter().map(move |host| (hosts, host.name.as_str())));
        all.filter(|(hosts, host)| self.is_gathered(hosts, worker, host)).map(|(_, host)| host).collect()
    }

    /// Whether a host has the output of a worker on several hosts: it reads that, or it leads and nobody does.
    pub(super) fn is_gathered(&self, hosts: &Hosts, worker: &str, host: &str) -> bool {
        let readers = self.readers_of(hosts, worker);
        let is_lead = hosts.all.first().is_some_and(|lead| lead.name == host);
        readers.iter().any(|reader| reader == host) || readers.is_empty() && is_lead
    }

    /// The stages that a host has for a worker on several hosts: the sink that hands out its inputs, the source that
    /// gathers its results, or the worker itself between its two ends.
    pub(super) fn of_shared(
        &self,
        hosts: &Hosts,
        worker: &WorkerSection,
        name: &str,
        layout: &HostsLayout,
    ) -> Vec<Stage> {
        let on = worker.hosts.as_ref().map_or(&[][..], |hosts| &hosts.0);
        let shared = SharedWorker {
            name: worker.name.clone(),
            instrument: self.name.value.clone(),
            inputs: worker.inputs.value.clone(),
            parts: worker.partitions() as u32,
        };
        let live = |name: String, inputs: Vec<String>, plan: Arc<dyn LivePlan>| {
            let (inputs, early) = (Setting::by_default(inputs), Setting::by_default(true));
            Stage::Live(LiveSection { name, line: worker.line, inputs, early, plan, shown: Vec::new() })
        };
        let blocks = format!("{}.in", worker.name);
        let Some((_, slots)) = on.iter().find(|(host, _)| host == name) else {
            let dealt: Vec<String> =
                worker.inputs.iter().filter(|input| hosts.host_of(input) == name).cloned().collect();
            let plan = hosts.carrier.deal(&blocks, &shared);
            let mut stages: Vec<Stage> = (!dealt.is_empty()).then(|| live(blocks, dealt, plan)).into_iter().collect();
            if layout.gathered.contains(&worker.name) {
                let keys = hosts.mirrors.iter().find(|mirror| mirror.name == worker.name).map(|of| of.keys.clone());
                let (stream, _) = worker.output.mirrored(&keys.unwrap_or_default());
                stages.push(Stage::Source(source_of(
                    hosts,
                    &worker.name,
                    hosts.carrier.gather(&shared),
                    stream,
                    Clock::Epoch,
                )));
            }
            return stages;
        };
        let (source, sink) = hosts.carrier.work(&shared, name);
        let input =
            self.stage_streams(&worker.inputs).map(|stream| stream.live.0).fold(limits::LIVE_BYTES_MIRROR, u64::max);
        let mut own = worker.clone();
        own.inputs = Setting::by_default(vec![blocks.clone()]);
        own.slots = Setting::by_default(*slots);
        own.by_blocks = true;
        own.order = Setting::by_default(super::Order::Keep);
        own.output = super::stream::in_memory(worker.output.live.value);
        let results = vec![commits_of(&worker.name), worker.name.clone(), aside_of(&worker.name)];
        vec![
            Stage::Source(source_of(hosts, &blocks, source, super::stream::in_memory(Size(input)), Clock::Epoch)),
            Stage::Worker(Box::new(own)),
            live(format!("{}.out", worker.name), results, sink),
        ]
    }

    fn stage_streams<'a>(&'a self, names: &'a [String]) -> impl Iterator<Item = &'a super::StreamSection> {
        names.iter().filter_map(|name| self.stage(name)?.stream())
    }
}
