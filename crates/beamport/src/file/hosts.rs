//! `[hosts]`, `[host.NAME]`, `[mirror.NAME]` and the key `host`: which stage runs on which machine, and the part of an
//! instrument that one host runs.
//!
//! A stage that reads a stream of another host gets a mirror of it: a source with the name of the stream, which the
//! part adds. Streams that other hosts read go into one live sink, `hosts`. The first host leads: its runs are those of
//! the instrument, and the others adopt them from a mirror of its stream `runs`.

use super::stream::MirrorKeys;
use super::{Instrument, LiveSection, SourceSection, Stage, WorkerSection, keys, nearest};
use super::{parts, shared};
use flow::edge::{CarrierKind, CarrierPlan, HostKeys, Mirror, SourcePlan};
use flow::hosts::HostsLayout;
use flow::{Fault, RUNS};
use serde_json::{Value, json};
use settings::units::Refused;
use settings::{Mistakes, Page, Section, Setting, Shown, shortened};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::Clock;

/// Name of the live sink that sends streams to other hosts. Where each host has one of its own they are `hosts.NAME`.
pub const SINK: &str = "hosts";
/// Name of the mirror of the runs of the host that leads.
pub const LEAD_RUNS: &str = "lead.runs";
/// Kind of the sources that the part of a host adds.
pub const MIRROR: &str = "mirror";

/// Whether a live sink of this name sends streams to other hosts.
#[must_use]
pub fn is_hosts_sink(name: &str) -> bool {
    name.strip_prefix(SINK).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The hosts of an instrument.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// Line of `[hosts]`.
    pub line: u32,
    /// The carrier of streams between them.
    pub carrier: Arc<dyn CarrierPlan>,
    /// In the order of the file: the first leads.
    pub all: Vec<HostSection>,
    /// Hosts of stages and sinks that name one.
    pub(super) of: HashMap<String, Setting<String>>,
    /// How streams are kept where other hosts read them.
    pub(super) mirrors: Vec<MirrorSection>,
    /// The stages in the file of the parts that are made of them, by name of the part.
    pub(crate) parts: BTreeMap<String, String>,
    /// Parts of which another one has the name.
    pub(super) parts_twice: Vec<String>,
    /// The workers of which there are parts, as they are in the file.
    pub(super) on_parts: Vec<WorkerSection>,
    pub(super) shown: Vec<Shown>,
}

/// `[mirror.NAME]`.
#[derive(Clone, Debug)]
pub struct MirrorSection {
    /// Name of the stream.
    pub name: String,
    /// Line of its header.
    pub line: u32,
    pub(super) keys: MirrorKeys,
    pub(super) shown: Vec<Shown>,
}

/// `[host.NAME]`.
#[derive(Clone, Debug)]
pub struct HostSection {
    /// Its name.
    pub name: String,
    /// Line of its header.
    pub line: u32,
    /// Its data folder, where it has another than the instrument.
    pub data: Option<Setting<PathBuf>>,
    /// Keys of the carrier.
    pub(super) keys: Option<HostKeys>,
    pub(super) shown: Vec<Shown>,
}

/// The part of an instrument that one host runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPart {
    /// Name of the host.
    pub name: String,
    /// The host whose runs it adopts; none where it leads itself.
    pub lead: Option<String>,
    /// The hosts, and the streams of others that are mirrored on this one.
    pub layout: HostsLayout,
    /// The workers on several hosts, by name; those with a part on each of them, too.
    pub workers: BTreeMap<String, WorkerHosts>,
    /// It has no runs, and ends with the host that leads: that ends with the runs of the file.
    pub ends_with_lead: bool,
    /// The inputs of each worker whose output is gathered here, with their hosts.
    pub dealt: BTreeMap<String, Vec<(String, String)>>,
    /// The host of each stage and sink of the instrument, by name.
    pub stages: BTreeMap<String, String>,
    /// The sinks of other hosts that write one file, of the declared run, with its name.
    pub files_of_one_run: BTreeMap<String, String>,
}

/// The hosts of a worker that runs on several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerHosts {
    /// Their names.
    pub hosts: Vec<String>,
    /// Its parameters and slots as they are in the file, which a change is for.
    pub file: Value,
    /// Each host has a part of it, and of the stages before it.
    pub is_on_parts: bool,
}

impl WorkerHosts {
    fn of(worker: &WorkerSection, is_on_parts: bool) -> Self {
        let on = worker.hosts.as_ref().map_or(&[][..], |hosts| &hosts.0);
        let slots: serde_json::Map<String, Value> =
            on.iter().map(|(host, slots)| (host.clone(), json!(slots))).collect();
        Self {
            hosts: on.iter().map(|(host, _)| host.clone()).collect(),
            file: json!({"parameters": worker.parameters.0, "slots": slots}),
            is_on_parts,
        }
    }
}

impl HostPart {
    /// The workers that this host shares with others: it does nothing else, and keeps nothing of record.
    pub fn shared(&self) -> impl Iterator<Item = &String> {
        let is_shared = |worker: &WorkerHosts| !worker.is_on_parts && worker.hosts.contains(&self.name);
        self.workers.iter().filter(move |(_, worker)| is_shared(worker)).map(|(name, _)| name)
    }

    /// Name of the stage of this host that runs a worker on several; none where it has none.
    #[must_use]
    pub fn stage_of(&self, worker: &str) -> Option<String> {
        let of = self.workers.get(worker).filter(|of| of.hosts.contains(&self.name))?;
        Some(if of.is_on_parts { parts::part_of(worker, &self.name) } else { worker.to_owned() })
    }

    /// The worker on several hosts that a command of the control socket changes.
    #[must_use]
    pub fn shared_worker<'a>(&self, request: &'a Value) -> Option<&'a str> {
        let name = request["stage"].as_str().or_else(|| request["worker"].as_str());
        name.filter(|name| request["command"] == "configure" && self.workers.contains_key(*name))
    }
}

/// A stream that a host reads and another one fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Crossing<'a> {
    /// Name of the stream.
    pub stream: &'a str,
    /// The host that fills it.
    pub near: &'a str,
    /// The host that reads it.
    pub far: &'a str,
}

/// Reads `[host.NAME]`.
pub(super) fn read(name: &str, section: &mut Section<'_>, carrier: Option<&CarrierKind>) -> HostSection {
    let folder = section.folder;
    let data: Option<Setting<String>> = section.get(&keys::HOST_DATA);
    let data = data.map(|data| data.map(|data| folder.join(data).components().collect()));
    let keys = carrier.and_then(|kind| (kind.read_host)(name, section));
    HostSection { name: name.to_owned(), line: section.line, data, keys, shown: section.end() }
}

/// Reads `[mirror.NAME]`.
pub(super) fn read_mirror(name: &str, section: &mut Section<'_>) -> MirrorSection {
    let (line, keys) = (section.line, MirrorKeys::read(section));
    MirrorSection { name: name.to_owned(), line, keys, shown: section.end() }
}

impl Hosts {
    /// Gives the carrier the keys of the hosts.
    pub(super) fn join(&mut self) {
        let keys: Vec<_> = self.all.iter().map(|host| (host.name.clone(), host.keys.clone())).collect();
        self.carrier = self.carrier.joined(&keys).unwrap_or_else(|| self.carrier.clone());
    }

    /// The host of a stage or sink.
    pub fn host_of(&self, name: &str) -> &str {
        let lead = self.all.first().map_or("", |host| &host.name);
        self.of.get(name).map_or(lead, |host| host.as_str())
    }

    /// Places a part of a stage in the file on a host.
    pub(super) fn place_part(&mut self, part: &str, host: &str, of: &str) {
        self.of.insert(part.to_owned(), Setting::by_default(host.to_owned()));
        if self.parts.insert(part.to_owned(), of.to_owned()).is_some() {
            self.parts_twice.push(part.to_owned());
        }
    }

    /// Whether a section of the file is of a stream: it is that stream, or its part.
    fn is_of(&self, section: &str, stream: &str) -> bool {
        section == stream || self.parts.get(stream).is_some_and(|of| of == section)
    }
}

/// Notes what does not fit together.
pub(super) fn check(page: &Page, mistakes: &mut Mistakes, instrument: &Instrument, hosts: &Hosts) {
    if hosts.all.is_empty() {
        let hint = "write `[host.NAME]` for each machine: the first one leads";
        mistakes.push(page.mistake(hosts.line, "the instrument has no hosts", "`[hosts]` stands without any", hint));
        return;
    }
    let names: Vec<&str> = hosts.all.iter().map(|host| host.name.as_str()).collect();
    let mut named: Vec<&Setting<String>> = hosts.of.values().collect();
    named.sort_by_key(|host| host.line_or(hosts.line));
    for host in named.into_iter().filter(|host| !names.contains(&host.as_str())) {
        let what = format!("`host = \"{}\"` names no host", shortened(host));
        let hint = match nearest(host, names.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("write one of {}", shortened(&names.join(", "))),
        };
        mistakes.push(page.mistake(host.line_or(hosts.line), what, "", hint));
    }
    if !parts::check(page, mistakes, instrument, hosts) {
        return;
    }
    let instrument = &instrument.clone().divide();
    let Some(hosts) = &instrument.hosts else { return };
    check_carrier(page, mistakes, instrument, hosts);
    let crossings = instrument.crossings();
    for mirror in &hosts.mirrors {
        let stream = instrument.stage(&mirror.name).and_then(Stage::stream);
        let is_read = crossings.iter().any(|crossing| hosts.is_of(&mirror.name, crossing.stream))
            || instrument.shared_workers().any(|worker| worker.name == mirror.name);
        let Some(stream) = stream.filter(|_| is_read) else {
            let what = format!("[mirror.{}] is of no stream that another host reads", shortened(&mirror.name));
            let names: Vec<&str> = crossings.iter().map(|crossing| crossing.stream).collect();
            let hint = match nearest(&mirror.name, names.iter().copied()) {
                Some(near) => format!("did you mean `[mirror.{near}]`?"),
                None => format!("streams that go to other hosts are {}", shortened(&names.join(", "))),
            };
            mistakes.push(page.mistake(mirror.line, what, "", hint));
            continue;
        };
        for (key, Refused { cause, hint }) in stream.mirrored(&mirror.keys).1 {
            let what = format!("wrong value of `{}` in [mirror.{}]", key.name, mirror.name);
            mistakes.push(page.mistake(mirror.line, what, cause, hint));
        }
    }
    for worker in instrument.shared_workers() {
        shared::check(page, mistakes, instrument, hosts, worker);
    }
    for section in instrument.sources().filter(|section| section.clock.value != Clock::Epoch) {
        let is_shared = instrument.shared_workers().any(|worker| worker.inputs.contains(&section.name));
        if is_shared || crossings.iter().any(|crossing| crossing.stream == section.name) {
            let what = format!("stream `{}` cannot go to another host", shortened(&section.name));
            let cause = "its messages belong to runs by their arrival, which each host has its own";
            mistakes.push(page.mistake(section.line, what, cause, "write `clock = \"epoch\"`, or read it on its host"));
        }
    }
}

/// Notes what the carrier cannot do.
fn check_carrier(page: &Page, mistakes: &mut Mistakes, instrument: &Instrument, hosts: &Hosts) {
    let lead = hosts.all.first().filter(|_| hosts.all.len() > 1);
    let crossings = instrument.crossings();
    for host in &hosts.all {
        let is_lead = lead.is_some_and(|lead| lead.name == host.name);
        let sent = crossings.iter().find(|crossing| crossing.near == host.name);
        let what = match sent {
            _ if is_lead => "has the runs of all hosts".to_owned(),
            Some(Crossing { stream, far, .. }) => format!("sends `{}` to host `{}`", shortened(stream), shortened(far)),
            None => continue,
        };
        if let Some(Refused { cause, hint }) = hosts.carrier.unreachable(&host.name) {
            let what = format!("host `{}` {what}, and the others cannot reach it", shortened(&host.name));
            mistakes.push(page.mistake(host.line, what, cause, hint));
        }
    }
    if let Some(cause) = hosts.carrier.refuses_workers() {
        for worker in instrument.shared_workers() {
            let line = worker.hosts.as_ref().map_or(worker.line, |on| on.line_or(worker.line));
            let what = format!("worker `{}` cannot be on several hosts", shortened(&worker.name));
            mistakes.push(page.mistake(line, what, cause, "write `host` and `slots`, or `carrier = \"kafka\"`"));
        }
    }
}

impl Instrument {
    /// The streams that go from host to host as they are.
    #[must_use]
    pub fn crossings(&self) -> Vec<Crossing<'_>> {
        let Some(hosts) = &self.hosts else { return Vec::new() };
        let mut all: Vec<Crossing<'_>> = Vec::new();
        let stages = self.stages_by_stream();
        let from = |stream: &str| stages.get(stream).filter(|stage| !stage.is_on_each_reader());
        for (name, inputs) in self.reads() {
            let far = hosts.host_of(name);
            // Of a merge of all parts, what it reads.
            let parts = |stream: &String| stages.get(stream.as_str())?.merge().filter(|merge| merge.is_on_each_reader);
            let inputs = inputs.into_iter().flat_map(|stream| match parts(stream) {
                Some(merge) => merge.inputs.iter().collect(),
                None => vec![stream],
            });
            let from_others = inputs.filter_map(|stream| {
                let near = hosts.host_of(from(stream)?.name());
                (near != far).then_some(Crossing { stream, near, far })
            });
            all.extend(from_others);
        }
        // Each host of a worker has the streams that its code looks at beside its inputs.
        for worker in self.shared_workers() {
            for (far, _) in worker.hosts.iter().flat_map(|hosts| &hosts.0) {
                let beside = worker.side_inputs.iter().filter_map(|stream| {
                    let near = hosts.host_of(from(stream)?.name());
                    Some(Crossing { stream, near, far })
                });
                all.extend(beside);
            }
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The part of a host.
    pub fn part(self, name: &str) -> Result<Self, Fault> {
        self.divide().part_of_divided(name)
    }

    fn part_of_divided(mut self, name: &str) -> Result<Self, Fault> {
        let file = self.file.display().to_string();
        let what = || format!("`--host {}` cannot be used", shortened(name));
        let Some(mut hosts) = self.hosts.clone() else {
            return Err(Fault::new(what(), format!("{file} has no section `[hosts]`")).hint("omit `--host`"));
        };
        let Some(host) = hosts.all.iter().find(|host| host.name == name).cloned() else {
            let names: Vec<&str> = hosts.all.iter().map(|host| host.name.as_str()).collect();
            let hint = format!("hosts of the file: {}", shortened(&names.join(", ")));
            return Err(Fault::new(what(), "there is no such host").hint(hint));
        };
        if let Some(data) = &host.data {
            self.data = data.clone();
        }
        if let Some(carrier) = hosts.carrier.of_host(name, &self.data) {
            hosts.carrier = carrier;
            self.hosts = Some(hosts.clone());
        }
        let is_of_workers = self.is_of_workers(name);
        let is_lead = hosts.all.first().is_some_and(|lead| lead.name == name);
        let lead = hosts.all.first().filter(|_| !is_lead && !is_of_workers).map(|lead| lead.name.clone());
        let shared: Vec<WorkerSection> = self.shared_workers().cloned().collect();
        let crossings: Vec<(String, String, String)> = self
            .crossings()
            .into_iter()
            .map(|Crossing { stream, near, far }| (stream.to_owned(), near.to_owned(), far.to_owned()))
            .collect();
        let layout = self.layout(&hosts, name, &crossings);
        let own = self.stages.iter().filter(|stage| !stage.is_on_each_reader()).map(Stage::name);
        let named = own.chain(self.sinks.iter().map(|sink| sink.name.as_str()));
        let stages = named.map(|stage| (stage.to_owned(), hosts.host_of(stage).to_owned())).collect();
        let of_one_run = self.sinks.iter().filter(|sink| sink.is_of_one_run() && hosts.host_of(&sink.name) != name);
        let files_of_one_run = of_one_run.map(|sink| (sink.name.clone(), sink.file.value.clone())).collect();
        let mirrors = self.mirrors(&hosts, lead.as_deref(), &layout);
        let senders = self.senders(&hosts, name, &crossings);
        let own: Vec<Stage> = shared.iter().flat_map(|worker| self.of_shared(&hosts, worker, name, &layout)).collect();
        let here = self.stages.iter().filter(|stage| !is_of_workers && self.is_on(&hosts, name, stage));
        self.stages = here.cloned().collect();
        self.sinks.retain(|sink| !is_of_workers && hosts.host_of(&sink.name) == name);
        self.stages.extend(mirrors.into_iter().map(Stage::Source));
        self.keep_parts_as_their_mirrors();
        self.stages.extend(own);
        self.stages.extend(senders.into_iter().map(Stage::Live));
        self.sort_stages();
        if !is_lead {
            self.page = None;
        }
        let ends_with_lead = is_of_workers && !self.runs.is_empty();
        if is_of_workers {
            self.runs.clear();
        }
        let of = |input: &String| (input.clone(), hosts.host_of(input).to_owned());
        let gathered = shared.iter().filter(|worker| layout.gathered.contains(&worker.name));
        let dealt = gathered.map(|worker| (worker.name.clone(), worker.inputs.iter().map(of).collect())).collect();
        let workers = shared.iter().map(|worker| (worker, false));
        let workers = workers.chain(hosts.on_parts.iter().map(|worker| (worker, true)));
        let of =
            |(worker, is_on_parts): (&WorkerSection, bool)| (worker.name.clone(), WorkerHosts::of(worker, is_on_parts));
        let workers = workers.map(of).collect();
        let name = name.to_owned();
        let part = HostPart { name, lead, layout, workers, ends_with_lead, dealt, stages, files_of_one_run };
        self.part = Some(part);
        Ok(self)
    }

    /// Whether the part of a host has a stage of the file, or of what is made of it.
    fn is_on(&self, hosts: &Hosts, host: &str, stage: &Stage) -> bool {
        match stage.is_on_each_reader() {
            true => stage.merge().is_some() && self.readers_of(hosts, stage.name()).iter().any(|reader| reader == host),
            false => hosts.host_of(stage.name()) == host,
        }
    }

    /// The hosts as one of them sees them. `crossings`: streams with the hosts that fill and read them.
    fn layout(&self, hosts: &Hosts, name: &str, crossings: &[(String, String, String)]) -> HostsLayout {
        let all = || hosts.all.iter().map(|host| host.name.clone());
        let shared = self.shared_workers().map(|worker| &worker.name);
        let here = crossings.iter().filter(|(_, _, far)| far == name);
        HostsLayout {
            host: name.to_owned(),
            hosts: all().filter(|host| !self.is_of_workers(host)).collect(),
            workers: all().filter(|host| self.is_of_workers(host)).collect(),
            gathered: shared.filter(|worker| self.is_gathered(hosts, worker, name)).cloned().collect(),
            mirrors: here.map(|(stream, near, _)| (stream.clone(), near.clone())).collect(),
        }
    }

    /// The sinks that send streams of a host to others: one, or one for each of these.
    fn senders(&self, hosts: &Hosts, name: &str, crossings: &[(String, String, String)]) -> Vec<LiveSection> {
        let is_lead = hosts.all.first().is_some_and(|lead| lead.name == name);
        let sent = |far: Option<&str>| {
            let here = crossings.iter().filter(|(_, near, to)| near == name && far.is_none_or(|far| far == to));
            let mut sent: Vec<String> = here.map(|(stream, ..)| stream.clone()).collect();
            sent.extend((is_lead && hosts.all.len() > 1).then(|| RUNS.to_owned()));
            sent.sort_unstable();
            sent.dedup();
            sent
        };
        let section = |name: String, inputs: Vec<String>, plan| LiveSection {
            name,
            line: hosts.line,
            inputs: Setting::by_default(inputs),
            early: Setting::by_default(false),
            plan,
            shown: Vec::new(),
        };
        let to_each = hosts.all.iter().filter(|far| far.name != name).filter_map(|far| {
            let own = format!("{SINK}.{}", far.name);
            let plan = hosts.carrier.near_to(&own, &self.name, &far.name)?;
            Some(section(own, sent(Some(&far.name)), plan))
        });
        let mut all: Vec<LiveSection> = to_each.collect();
        if all.is_empty() {
            all.push(section(SINK.to_owned(), sent(None), hosts.carrier.near(SINK, &self.name)));
        }
        all.retain(|section| !section.inputs.is_empty());
        all
    }

    /// The sources of the mirrors of a host, with that of the runs of the host that leads.
    fn mirrors(&self, hosts: &Hosts, lead: Option<&str>, layout: &HostsLayout) -> Vec<SourceSection> {
        let streams = layout.mirrors.iter().filter_map(|(stream, near)| self.mirror(hosts, stream, near));
        let runs = lead.map(|lead| {
            let mirror = Mirror { name: LEAD_RUNS.to_owned(), stream: RUNS.to_owned(), host: lead.to_owned() };
            mirror_section(hosts, &self.name, &mirror, super::stream::of_book(), Clock::Epoch)
        });
        streams.chain(runs).collect()
    }

    /// The source of a mirror of a stream of another host; none where nothing fills it.
    fn mirror(&self, hosts: &Hosts, stream: &str, near: &str) -> Option<SourceSection> {
        let stage = self.stage(stream)?;
        let keys = hosts.mirrors.iter().find(|mirror| hosts.is_of(&mirror.name, stream)).map(|of| of.keys.clone());
        let (section, _) = stage.stream()?.mirrored(&keys.unwrap_or_default());
        let mirror = Mirror { name: stream.to_owned(), stream: stream.to_owned(), host: near.to_owned() };
        let clock = stage.source().map_or(Clock::Epoch, |source| source.clock.value);
        Some(mirror_section(hosts, &self.name, &mirror, section, clock))
    }
}

fn mirror_section(
    hosts: &Hosts,
    instrument: &str,
    mirror: &Mirror,
    stream: super::StreamSection,
    clock: Clock,
) -> SourceSection {
    source_of(hosts, &mirror.name, hosts.carrier.far(mirror, instrument), stream, clock)
}

/// A source that the part of a host adds.
pub(super) fn source_of(
    hosts: &Hosts,
    name: &str,
    plan: Arc<dyn SourcePlan>,
    stream: super::StreamSection,
    clock: Clock,
) -> SourceSection {
    SourceSection {
        name: name.to_owned(),
        line: hosts.line,
        kind: MIRROR,
        plan,
        stream,
        clock: Setting::by_default(clock),
        ahead_max: Setting::by_default(Duration::MAX),
        receiver: None,
        shown: Vec::new(),
        is_wrong: false,
    }
}
