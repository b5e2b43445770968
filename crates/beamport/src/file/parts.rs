//! Merges on several hosts (key `hosts`), which are event builders: each host has a part of the merge, the messages of
//! its slices of time, and so have the workers with the same hosts behind it. Elsewhere the name of such a stage means
//! all its parts, merged by time.
//!
//! [`Instrument::divide`] replaces these stages by ordinary ones, each on one host:
//!
//! * `NAME-HOST-BUILDER` on each host that has inputs: they are merged there, and only the slices of that builder, with
//!   what lies around them, go to it.
//! * `NAME-BUILDER` on each builder: the part, merged of these and of the inputs that the builder has itself.
//! * NAME on each host that reads it: a merge of all parts, which takes of each what lies in its own slices.
//!
//! A result counts with the part in whose slices its time lies: a group with that in which its first message lies.

use super::hosts::Hosts;
use super::merge::{MergeKind, PartInput};
use super::{Instrument, MergeSection, Stage, StreamSection, WorkerSection, nearest, stream};
use crate::limits;
use flow::TimeSlices;
use settings::units::{Size, duration_text};
use settings::{Mistakes, Page, Setting, shortened};
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;
use store::{Level, WhenFull};

/// The hosts of a divided stage.
struct Divided {
    hosts: Vec<String>,
    /// Its slices, as those of part 0.
    slices: TimeSlices,
    /// How far results of workers may be out of order.
    wait: Duration,
}

/// Name of the part of a stage on one of its hosts.
pub(super) fn part_of(stage: &str, host: &str) -> String {
    format!("{stage}-{host}")
}

/// Name of what a host sends a builder. `number`: from 0, of several.
fn share_of(stage: &str, host: &str, builder: &str, number: usize) -> String {
    match number {
        0 => format!("{stage}-{host}-{builder}"),
        _ => format!("{stage}-{host}-{builder}-{}", number + 1),
    }
}

/// Notes what a merge on several hosts, and workers on its parts, cannot have. False: something is wrong.
pub(super) fn check(page: &Page, mistakes: &mut Mistakes, instrument: &Instrument, hosts: &Hosts) -> bool {
    let before = mistakes.list.len();
    let mut divided: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for stage in &instrument.stages {
        let mut refuse = |line: u32, what: String, cause: &str, hint: String| {
            mistakes.push(page.mistake(line, what, cause, hint));
        };
        match stage {
            Stage::Merge(merge) => {
                let Some(on) = &merge.hosts else { continue };
                check_merge(hosts, merge, &mut refuse);
                check_number(instrument, hosts, merge, &mut refuse);
                divided.insert(&merge.name, on.iter().map(String::as_str).collect());
            }
            Stage::Worker(worker) => {
                let Some(input) = worker.inputs.iter().find(|input| divided.contains_key(input.as_str())) else {
                    continue;
                };
                let Some(on) = &worker.hosts else { continue };
                let names: Vec<&str> = on.0.iter().map(|(host, _)| host.as_str()).collect();
                let of = |input: &String| divided.get(input.as_str()).is_none_or(|hosts| *hosts == names);
                if !worker.inputs.iter().all(of) {
                    let what = format!("worker `{}` has other hosts than `{}`", worker.name, shortened(input));
                    let list: Vec<String> = divided[input.as_str()].iter().map(|host| format!("\"{host}\"")).collect();
                    let hint = format!("write `hosts = [{}]`, or one `host`", list.join(", "));
                    refuse(on.line_or(worker.line), what, "each of its parts is where one of its inputs is", hint);
                }
                if worker.shadow.is_some() || instrument.workers().any(|w| w.shadow.as_deref() == Some(&worker.name)) {
                    let what = format!("worker `{}` cannot be on several hosts", worker.name);
                    refuse(on.line_or(worker.line), what, "a shadow runs on one machine", "write `host`".into());
                }
                check_overlap(instrument, worker, names.len(), &mut refuse);
                divided.insert(&worker.name, names);
            }
            Stage::Source(_) | Stage::Live(_) => {}
        }
    }
    if mistakes.list.len() == before && !divided.is_empty() {
        check_names(page, mistakes, instrument);
    }
    mistakes.list.len() == before
}

fn check_merge(hosts: &Hosts, merge: &MergeSection, refuse: &mut dyn FnMut(u32, String, &str, String)) {
    let Some(on) = &merge.hosts else { return };
    let name = shortened(&merge.name);
    let line = on.line_or(merge.line);
    if let Some(host) = hosts.of.get(&merge.name) {
        let what = format!("merge `{name}` has `host` and `hosts`");
        refuse(host.line_or(line), what, "it runs on one or on several", "remove one of them".into());
    }
    let mut seen = HashSet::new();
    for host in on.iter() {
        let known = || hosts.all.iter().map(|known| known.name.as_str());
        if !known().any(|known| known == host) {
            let hint = match nearest(host, known()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("write `[host.{}]`", shortened(host)),
            };
            refuse(line, format!("`hosts` of merge `{name}` names no host: `{}`", shortened(host)), "", hint);
        }
        if !seen.insert(host) {
            let what = format!("`hosts` of merge `{name}` names `{}` twice", shortened(host));
            refuse(line, what, "", "remove one of them".into());
        }
    }
    if on.is_empty() {
        let hint = "name the hosts that build its parts, like `[\"b1\", \"b2\"]`".to_owned();
        refuse(line, format!("`hosts` of merge `{name}` names no host"), "", hint);
    }
    let MergeKind::Time { slice, overlap, .. } = &merge.kind else {
        let hint = "write kind = \"time\", or one `host`".to_owned();
        refuse(line, format!("merge `{name}` cannot be on several hosts"), "its parts are slices of time", hint);
        return;
    };
    if slice.is_zero() {
        let what = format!("merge `{name}` has no slices");
        refuse(slice.line_or(line), what, "its parts are slices of time", "write `slice`".into());
    } else if overlap.value * 2 > slice.value {
        let what = format!("`overlap` of merge `{name}` is too long");
        let cause = format!("{} around slices of {}", duration_text(overlap.value), duration_text(slice.value));
        refuse(overlap.line_or(line), what, &cause, "write at most half of `slice`, or longer slices".into());
    }
    if merge.copied.is_some() {
        let what = format!("merge `{name}` cannot be a copy");
        let cause = "its parts are copies already wherever they are read";
        refuse(line, what, cause, "remove `output`".into());
    }
}

/// Notes an `overlap` that is too short for what a worker on parts must see around a message.
fn check_overlap(
    instrument: &Instrument,
    worker: &WorkerSection,
    parts: usize,
    refuse: &mut dyn FnMut(u32, String, &str, String),
) {
    for merge in instrument.merges().filter(|merge| parts > 1 && worker.inputs.contains(&merge.name)) {
        let MergeKind::Time { overlap, .. } = &merge.kind else { continue };
        let around = Duration::from_nanos(worker.around.unsigned_abs());
        if merge.hosts.is_some() && overlap.value < around {
            let what = format!("`overlap` of merge `{}` is too short", shortened(&merge.name));
            let (around, own) = (duration_text(around), duration_text(overlap.value));
            let cause = format!("worker `{}` looks {around} around a message, and `overlap` is {own}", worker.name);
            let hint = "write at least the length of the longest group and of the pause that ends it".to_owned();
            refuse(overlap.line_or(merge.line), what, &cause, hint);
        }
    }
}

/// Notes more parts than a program should have to list.
fn check_number(
    instrument: &Instrument,
    hosts: &Hosts,
    merge: &MergeSection,
    refuse: &mut dyn FnMut(u32, String, &str, String),
) {
    let builders = merge.hosts.as_ref().map_or(0, |on| on.len());
    let shares = shares(merge, hosts, &instrument.stages).len();
    if builders * (shares + 1) > limits::MERGE_PARTS_MAX {
        let what = format!("merge `{}` has too many parts", shortened(&merge.name));
        let cause = format!(
            "{builders} builders of inputs on {shares} hosts, each a view; at most {}",
            limits::MERGE_PARTS_MAX
        );
        let hint = "name fewer builders, or list the inputs of a host one behind the other".to_owned();
        refuse(merge.inputs.line_or(merge.line), what, &cause, hint);
    }
}

/// Notes names of parts that are too long, or in use.
fn check_names(page: &Page, mistakes: &mut Mistakes, instrument: &Instrument) {
    let whole = instrument.clone().divide();
    let mut known: HashSet<&str> = instrument.stages.iter().map(Stage::name).collect();
    known.extend(instrument.sinks.iter().map(|sink| sink.name.as_str()));
    let Some(hosts) = &whole.hosts else { return };
    let mut named: HashSet<&str> = HashSet::new();
    for (part, of) in &hosts.parts {
        let is_too_long = part.len() > limits::MERGE_NAME_CHARS_MAX;
        let is_twice = hosts.parts_twice.contains(part);
        // One mistake for each section of the file.
        if (is_too_long || is_twice || known.contains(part.as_str())) && named.insert(of) {
            let line = instrument.stage(of).map_or(1, Stage::line);
            let cause = match (is_too_long, is_twice) {
                (true, _) => format!("it has more than {} characters", limits::MERGE_NAME_CHARS_MAX),
                (false, true) => "so does another part: names of hosts with `-` may be read in two ways".to_owned(),
                (false, false) => "the name is in use".to_owned(),
            };
            let what = format!("a part of `{}` needs the name `{}`", shortened(of), shortened(part));
            mistakes.push(page.mistake(line, what, cause, format!("give `{}` another name, or a host", shortened(of))));
        }
    }
}

impl Instrument {
    /// Replaces merges on several hosts, and the workers on their parts, by stages that are on one host each.
    #[must_use]
    pub fn divide(mut self) -> Self {
        let Some(mut hosts) = self.hosts.take() else { return self };
        if self.merges().next().is_some() {
            let mut divided = BTreeMap::new();
            let mut stages = Vec::with_capacity(self.stages.len());
            for stage in std::mem::take(&mut self.stages) {
                match stage {
                    Stage::Merge(mut merge) if merge.hosts.is_none() => {
                        if merge.part_inputs.is_empty() {
                            wait_for_hosts(&mut merge, &stages);
                        }
                        stages.push(Stage::Merge(merge));
                    }
                    Stage::Merge(merge) => {
                        divide_merge(merge, &mut hosts, &mut divided, &mut stages);
                    }
                    Stage::Worker(worker) if is_on_parts(&worker, &divided) => {
                        divide_worker(*worker, &mut hosts, &mut divided, &mut stages);
                    }
                    stage => stages.push(stage),
                }
            }
            self.stages = stages;
        }
        self.hosts = Some(hosts);
        self
    }

    /// A merge of all parts points into their mirrors, and survives no more than they do.
    pub(super) fn keep_parts_as_their_mirrors(&mut self) {
        let in_memory = |stage: &Stage| stage.stream().is_some_and(|stream| stream.level() == Level::Memory);
        let in_memory: HashSet<String> =
            self.stages.iter().filter(|stage| in_memory(stage)).map(|stage| stage.name().to_owned()).collect();
        for stage in &mut self.stages {
            let Stage::Merge(merge) = stage else { continue };
            if merge.is_on_each_reader && merge.inputs.iter().any(|input| in_memory.contains(input)) {
                merge.output = stream::in_memory(merge.output.live.value);
            }
        }
    }
}

/// A merge waits for inputs that are made on several hosts until these say how far they have come: a host that is away
/// makes nothing late.
fn wait_for_hosts(merge: &mut MergeSection, stages: &[Stage]) {
    if !matches!(merge.kind, MergeKind::Time { .. }) {
        return;
    }
    let of_hosts = stages.iter().filter(|stage| stage.is_on_each_reader());
    let inputs = of_hosts.filter(|stage| merge.inputs.iter().any(|input| input == stage.name()));
    let of = |stage: &Stage| (stage.name().to_owned(), PartInput { by_frontier: true, ..PartInput::default() });
    merge.part_inputs = inputs.map(of).collect();
}

/// Whether a worker has a part on each host of its input.
fn is_on_parts(worker: &WorkerSection, divided: &BTreeMap<String, Divided>) -> bool {
    worker.hosts.is_some() && worker.inputs.iter().any(|input| divided.contains_key(input))
}

/// Inputs of a merge in a row that are on one host; none: each builder has them itself.
struct Share {
    host: Option<String>,
    inputs: Vec<String>,
    /// The least level of them.
    level: Level,
}

/// The inputs of a merge by the hosts that have them, in the order of the file: so equal times keep their order.
fn shares(merge: &MergeSection, hosts: &Hosts, stages: &[Stage]) -> Vec<Share> {
    let mut shares: Vec<Share> = Vec::new();
    for input in merge.inputs.iter() {
        let stage = stages.iter().find(|stage| stage.name() == input);
        let is_anywhere = stage.is_some_and(|stage| stage.is_on_each_reader());
        let host = (!is_anywhere).then(|| hosts.host_of(input).to_owned());
        let level = stage.and_then(Stage::stream).map_or(Level::Memory, StreamSection::level);
        match shares.last_mut().filter(|share| share.host == host) {
            Some(share) => {
                share.inputs.push(input.clone());
                share.level = share.level.min(level);
            }
            None => shares.push(Share { host, inputs: vec![input.clone()], level }),
        }
    }
    shares
}

/// Adds the stages of a merge on several hosts.
fn divide_merge(
    merge: MergeSection,
    hosts: &mut Hosts,
    divided: &mut BTreeMap<String, Divided>,
    stages: &mut Vec<Stage>,
) {
    let builders = merge.hosts.as_ref().map_or_else(Vec::new, |hosts| hosts.value.clone());
    let MergeKind::Time { slice, overlap, .. } = &merge.kind else { return };
    let ns = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    let parts = u32::try_from(builders.len()).unwrap_or(u32::MAX);
    let slices = TimeSlices { length: ns(slice.value), parts, part: 0, overlap: ns(overlap.value) };
    let of = Divided { hosts: builders.clone(), slices, wait: merge.wait.value };
    let shares = shares(&merge, hosts, stages);
    for (part, builder) in (0..).zip(&builders) {
        let slices = TimeSlices { part, ..slices };
        let mut own = MergeSection {
            name: part_of(&merge.name, builder),
            hosts: None,
            inputs: Setting::by_default(Vec::new()),
            ..merge.clone()
        };
        for (at, share) in shares.iter().enumerate() {
            let Some(host) = share.host.as_ref().filter(|host| *host != builder) else {
                // Parts of other stages are waited for, as their hosts are.
                let by_frontier = share.host.is_none();
                let of = |input: &String| {
                    (input.clone(), PartInput { slices: Some(slices), by_frontier, is_made_again: false })
                };
                own.part_inputs.extend(share.inputs.iter().map(of));
                own.inputs.value.extend(share.inputs.iter().cloned());
                continue;
            };
            let number = shares[..at].iter().filter(|other| other.host.as_ref() == Some(host)).count();
            let name = share_of(&merge.name, host, builder, number);
            let of = |input: &String| (input.clone(), PartInput { slices: Some(slices), ..PartInput::default() });
            stages.push(Stage::Merge(MergeSection {
                name: name.clone(),
                hosts: None,
                inputs: Setting::by_default(share.inputs.clone()),
                part_inputs: share.inputs.iter().map(of).collect(),
                output: sent(&merge.output, share.level),
                ..merge.clone()
            }));
            hosts.place_part(&name, host, &merge.name);
            let part = PartInput { slices: Some(slices), by_frontier: true, is_made_again: false };
            own.part_inputs.insert(name.clone(), part);
            if let MergeKind::Time { waits, .. } = &mut own.kind {
                // It comes in order.
                waits.value.0.insert(name.clone(), Duration::ZERO);
            }
            own.inputs.value.push(name);
        }
        let (host, own_name) = (builder.clone(), own.name.clone());
        stages.push(Stage::Merge(own));
        hosts.place_part(&own_name, &host, &merge.name);
    }
    let whole = all_parts(&merge.name, merge.line, &of, merge.output.clone(), Duration::ZERO);
    divided.insert(merge.name.clone(), of);
    stages.push(Stage::Merge(whole));
}

/// Adds the parts of a worker, and the merge of them.
fn divide_worker(
    worker: WorkerSection,
    hosts: &mut Hosts,
    divided: &mut BTreeMap<String, Divided>,
    stages: &mut Vec<Stage>,
) {
    let Some(of) = worker.inputs.iter().find_map(|input| divided.get(input)) else { return };
    let of = Divided { hosts: of.hosts.clone(), ..*of };
    for (host, slots) in worker.hosts.iter().flat_map(|hosts| &hosts.0) {
        let input = |input: &String| match divided.contains_key(input) {
            true => part_of(input, host),
            false => input.clone(),
        };
        let name = part_of(&worker.name, host);
        stages.push(Stage::Worker(Box::new(WorkerSection {
            name: name.clone(),
            hosts: None,
            slots: Setting::by_default(*slots),
            inputs: Setting::by_default(worker.inputs.iter().map(input).collect()),
            ..worker.clone()
        })));
        hosts.place_part(&name, host, &worker.name);
    }
    hosts.on_parts.push(worker.clone());
    // Results come in the order in which they are made.
    let whole = all_parts(&worker.name, worker.line, &of, worker.output, of.wait);
    divided.insert(worker.name, of);
    stages.push(Stage::Merge(whole));
}

/// The merge of all parts of a stage. `wait`: how far they are out of order.
fn all_parts(name: &str, line: u32, of: &Divided, output: StreamSection, wait: Duration) -> MergeSection {
    let inputs: Vec<String> = of.hosts.iter().map(|host| part_of(name, host)).collect();
    let part = |(part, input): (u32, &String)| {
        let slices = TimeSlices { part, overlap: 0, ..of.slices };
        (input.clone(), PartInput { slices: Some(slices), by_frontier: true, is_made_again: true })
    };
    let part_inputs = (0..).zip(&inputs).map(part).collect();
    MergeSection {
        name: name.to_owned(),
        line,
        inputs: Setting::by_default(inputs),
        hosts: None,
        part_inputs,
        is_on_each_reader: true,
        wait: Setting::by_default(wait),
        kind: MergeKind::Time {
            waits: Setting::by_default(Default::default()),
            slice: Setting::by_default(Duration::from_nanos(of.slices.length.unsigned_abs())),
            overlap: Setting::by_default(Duration::ZERO),
            // The merges before have set those aside.
            ahead_max: Setting::by_default(Duration::MAX),
        },
        output,
        copied: None,
        shown: Vec::new(),
    }
}

/// The stream that a host sends a builder: a view of its inputs, of their level, that is kept until the builder has it.
fn sent(output: &StreamSection, level: Level) -> StreamSection {
    let kept = if level == Level::Disk { Size(limits::COPIED_VIEW_BYTES) } else { output.live.value };
    StreamSection {
        level: Some(Setting::by_default(level)),
        when_full: Setting::by_default(WhenFull::Wait),
        live: output.live.clone(),
        retain: Some(Setting::by_default(kept.max(output.live.value))),
        retain_age: None,
        keep_free: None,
    }
}
