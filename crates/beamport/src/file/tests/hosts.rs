//! Tests of `[hosts]`, `[host.NAME]` and `host`, and of the parts that they make.

use super::super::merge::PartInput;
use super::*;
use flow::Source;
use flow::edge::{Bulletin, CarrierKind, CarrierPlan, Mirror, SharedWorker};
use flow::hosts::HostsLayout;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug)]
struct Pigeons;

/// The far side: it has the mirror in its words.
#[derive(Debug)]
struct Letter(String);

impl CarrierPlan for Pigeons {
    fn near(&self, _: &str, _: &str) -> Arc<dyn LivePlan> {
        Arc::new(Nowhere)
    }

    fn far(&self, mirror: &Mirror, instrument: &str) -> Arc<dyn SourcePlan> {
        Arc::new(Letter(format!("{}: {instrument}.{} of {}", mirror.name, mirror.stream, mirror.host)))
    }

    fn deal(&self, _: &str, _: &SharedWorker) -> Arc<dyn LivePlan> {
        Arc::new(Nowhere)
    }

    fn work(&self, shared: &SharedWorker, host: &str) -> (Arc<dyn SourcePlan>, Arc<dyn LivePlan>) {
        (Arc::new(Letter(format!("{} of {} parts on {host}", shared.name, shared.parts))), Arc::new(Nowhere))
    }

    fn gather(&self, shared: &SharedWorker) -> Arc<dyn SourcePlan> {
        Arc::new(Letter(format!("{}.{} of {}", shared.instrument, shared.name, shared.inputs.join(" and "))))
    }

    fn holds(&self) -> (Duration, u32) {
        (Duration::from_secs(3600), 2)
    }

    fn bulletin(&self, instrument: &str, _: Option<&str>) -> Result<Box<dyn Bulletin>, Fault> {
        Err(Fault::new("birds read no bulletin", instrument))
    }
}

impl SourcePlan for Letter {
    fn build(&self) -> Result<Box<dyn Source>, Fault> {
        Err(Fault::new(&self.0, ""))
    }
}

static PIGEONS: CarrierKind = CarrierKind {
    name: "pigeons",
    about: "Birds.",
    keys: &[],
    read: |_| Some(Arc::new(Pigeons)),
    host_keys: &[],
    read_host: |_, _| None,
};

const FILE: &str = r#"instrument = "loki"
data = "streams"
[hosts]
carrier = "pigeons"
[host.daq]
[host.store]
data = "/srv/loki"
[source.x]
kind = "sim"
model = "detector"
host = "daq"
[source.y]
kind = "sim"
model = "detector"
level = "memory"
live = "128 MiB"
when_full = "drop-newest"
host = "store"
[merge.all]
kind = "time"
inputs = ["x", "y"]
host = "store"
[worker.w]
call = "histogram"
inputs = ["all"]
parameters = { pixels = 4 }
[run.first]
"#;

fn parsed(text: &str) -> Result<Instrument, Vec<Mistake>> {
    super::super::parse(text, Path::new("/f/a.toml"), &Registry::builtin().carrier(&PIGEONS), &unasked)
}

fn part(name: &str) -> Instrument {
    parsed(FILE).unwrap().part(name).unwrap()
}

/// The part of a host that mirrors one stream of another.
fn part_of(name: &str, lead: Option<&str>, mirrored: &str, near: &str) -> HostPart {
    let owned = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let layout = HostsLayout {
        host: name.to_owned(),
        hosts: ["daq", "store"].map(str::to_owned).to_vec(),
        mirrors: owned(&[(mirrored, near)]),
        ..HostsLayout::default()
    };
    HostPart {
        name: name.to_owned(),
        lead: lead.map(str::to_owned),
        layout,
        workers: BTreeMap::new(),
        ends_with_lead: false,
        dealt: BTreeMap::new(),
        stages: owned(&[("all", "store"), ("w", "daq"), ("x", "daq"), ("y", "store")]),
        files_of_one_run: BTreeMap::new(),
    }
}

fn names(instrument: &Instrument) -> Vec<&str> {
    instrument.stages.iter().map(Stage::name).collect()
}

fn wrong(text: &str) -> Vec<String> {
    let mistakes = parsed(text).map(drop).unwrap_err();
    mistakes.iter().map(|mistake| format!("{}: {}; {}", mistake.line, mistake.what, mistake.hint)).collect()
}

#[test]
fn a_host_runs_its_stages_mirrors_what_they_read_and_sends_what_others_read() {
    let whole = parsed(FILE).unwrap();
    let crossing = |stream, near, far| Crossing { stream, near, far };
    assert_eq!(whole.crossings(), [crossing("all", "store", "daq"), crossing("x", "daq", "store")]);
    // `w` names no host: it is on the first.
    let daq = part("daq");
    assert_eq!(names(&daq), ["x", "all", "w", "hosts"]);
    assert_eq!(daq.live_sinks().next().unwrap().inputs.value, ["runs", "x"]);
    assert_eq!(daq.part, Some(part_of("daq", None, "all", "store")));
    assert_eq!(*daq.data, Path::new("/f/streams"));
    let store = part("store");
    assert_eq!(names(&store), ["y", "x", "lead.runs", "all", "hosts"]);
    assert_eq!(store.live_sinks().next().unwrap().inputs.value, ["all"]);
    assert_eq!(store.part, Some(part_of("store", Some("daq"), "x", "daq")));
    assert_eq!(*store.data, Path::new("/srv/loki"));
    let words: Vec<String> = store.sources().filter_map(|source| source.plan.build().err()).map(|f| f.what).collect();
    assert_eq!(words, ["x: loki.x of daq", "lead.runs: loki.runs of daq"]);
}

#[test]
fn a_mirror_has_the_keys_of_its_stream_but_loses_nothing_by_them() {
    let text = FILE.replace(
        "parameters = { pixels = 4 }",
        "parameters = { pixels = 4 }\n[worker.v]\ncall = \"histogram\"\ninputs = [\"y\"]\nparameters = { pixels = 4 }",
    );
    let daq = parsed(&text).unwrap().part("daq").unwrap();
    let mirror = |name: &str| daq.sources().find(|source| source.name == name).unwrap().stream.clone();
    let y = mirror("y");
    assert_eq!((y.level(), y.live.0, y.when_full.value), (Level::Memory, 128 << 20, WhenFull::Wait));
    // The view has 16 MiB: it has no payloads.
    assert_eq!((mirror("all").level(), mirror("all").live.0), (Level::Memory, 64 << 20));
}

#[test]
fn a_file_of_hosts_reads_back_as_it_is_shown() {
    let shown = parsed(FILE).unwrap().show();
    let again = parsed(&shown).unwrap_or_else(|mistakes| panic!("{shown}\n{mistakes:?}"));
    assert_eq!(again.crossings(), parsed(FILE).unwrap().crossings());
    assert_eq!(*again.part("store").unwrap().data, Path::new("/srv/loki"));
}

#[test]
fn wrong_hosts_are_named_with_their_lines() {
    assert_eq!(
        wrong(&FILE.replace("host = \"daq\"", "host = \"dac\"")),
        ["11: `host = \"dac\"` names no host; did you mean `daq`?"]
    );
    let none = FILE.replace("[host.daq]\n", "").replace("[host.store]\ndata = \"/srv/loki\"\n", "");
    assert!(wrong(&none)[0].starts_with("3: the instrument has no hosts"), "{:?}", wrong(&none));
    let without = FILE.replace("[hosts]\ncarrier = \"pigeons\"\n", "");
    assert!(wrong(&without).iter().any(|text| text.contains("unknown key `host`")), "{:?}", wrong(&without));
    assert!(
        wrong(&FILE.replace("pigeons", "pigeon"))[0].contains("did you mean")
            || !wrong(&FILE.replace("pigeons", "pigeon")).is_empty()
    );
    let ticks = FILE.replace("host = \"daq\"", "clock = \"none\"\nhost = \"daq\"");
    assert!(
        wrong(&ticks).iter().any(|text| text.contains("stream `x` cannot go to another host")),
        "{:?}",
        wrong(&ticks)
    );
    let taken = FILE.replace("[worker.w]", "[worker.hosts]");
    assert!(wrong(&taken)[0].contains("wrong name of [worker.hosts]"), "{:?}", wrong(&taken));
    // A host that the file does not have.
    let fault = parsed(FILE).unwrap().part("desk").unwrap_err();
    assert!(fault.hint.contains("daq, store"), "{fault}");
    let fault = super::super::parse(
        "instrument = \"a\"\n[source.x]\nkind = \"sim\"\nmodel = \"detector\"\n",
        Path::new("a.toml"),
        &Registry::builtin(),
        &unasked,
    );
    assert!(fault.unwrap().part("a").unwrap_err().cause.contains("no section `[hosts]`"));
}

#[test]
fn a_mirror_is_kept_as_its_section_says() {
    let section = "[mirror.y]\nlevel = \"disk\"\nlive = \"8 MiB\"\nretain = \"1 GiB\"\nwhen_full = \"drop-oldest\"\n";
    let text = FILE.replace("inputs = [\"all\"]", "inputs = [\"y\"]") + section;
    let daq = parsed(&text).unwrap().part("daq").unwrap();
    let y = daq.sources().find(|source| source.name == "y").unwrap().stream.clone();
    assert_eq!((y.level(), y.live.0, y.when_full.value), (Level::Disk, 8 << 20, WhenFull::DropOldest));
    assert_eq!(y.retain.map(|retain| retain.0), Some(1 << 30));
    let shown = parsed(&text).unwrap().show();
    assert!(parsed(&shown).is_ok() && shown.contains("[mirror.y]"), "{shown}");
    // It is the mirror of no other stream.
    let of_all = |name: &str| wrong(&text.replace("[mirror.y]", &format!("[mirror.{name}]")));
    assert_eq!(of_all("yy"), ["28: [mirror.yy] is of no stream that another host reads; did you mean `[mirror.y]`?"]);
    assert_eq!(
        wrong(&text.replace("1 GiB", "1 MiB")),
        ["28: wrong value of `retain` in [mirror.y]; write at least 8 MiB, or a smaller `live`"]
    );
}

/// The same instrument with a worker on two more hosts.
fn with_workers(hosts: &str, keys: &str) -> String {
    let file = FILE.replace("[host.store]", "[host.n1]\n[host.\"n{2..3}\"]\n[host.store]");
    format!("{file}[worker.points]\ncall = \"copy\"\ninputs = [\"x\", \"y\"]\nhosts = {hosts}\n{keys}")
}

#[test]
fn a_worker_on_several_hosts_has_a_part_on_each_of_them_and_where_it_is_read() {
    let text = with_workers(
        "{ n1 = 2, \"n{2..3}\" = 4 }",
        "[merge.more]\nkind = \"time\"\ninputs = [\"points\"]\nhost = \"store\"\n",
    );
    let part = |host: &str| parsed(&text).unwrap().part(host).unwrap();
    let n2 = part("n2");
    assert_eq!(names(&n2), ["points.in", "points", "points.out"]);
    let worker = n2.workers().next().unwrap();
    assert_eq!((worker.slots.value, worker.by_blocks, worker.output.level()), (4, true, Level::Memory));
    assert_eq!(worker.inputs.value, ["points.in"]);
    assert_eq!(n2.live_sinks().next().unwrap().inputs.value, ["points.commits", "points", "points.aside"]);
    let words = |part: &Instrument| -> Vec<String> {
        part.sources().filter_map(|source| source.plan.build().err()).map(|fault| fault.what).collect()
    };
    assert_eq!(words(&n2), ["points of 10 parts on n2"]);
    let own = n2.part.as_ref().unwrap();
    assert!(own.shared().eq(["points"]) && own.lead.is_none() && own.ends_with_lead);
    assert_eq!((own.layout.hosts.len(), own.layout.workers.len(), n2.runs.len()), (2, 3, 0));
    // Each host hands out what it has; `points` is where it is read.
    let daq = part("daq");
    let of_daq = daq.part.as_ref().unwrap();
    assert_eq!((of_daq.shared().count(), of_daq.workers["points"].hosts.len()), (0, 3));
    assert_eq!(names(&daq), ["x", "all", "w", "hosts", "points.in"]);
    assert_eq!(daq.live_sinks().find(|sink| sink.name == "points.in").unwrap().inputs.value, ["x"]);
    let store = part("store");
    assert_eq!(names(&store), ["y", "x", "lead.runs", "points", "all", "more", "hosts", "points.in"]);
    assert!(words(&store).contains(&"loki.points of x and y".to_owned()), "{:?}", words(&store));
    assert!(store.is_gathered_here("points") && !daq.is_gathered_here("points"));
    // Where nobody reads it, the first host has it.
    let alone = parsed(&with_workers("{ n1 = 1 }", "")).unwrap();
    assert!(alone.clone().part("daq").unwrap().is_gathered_here("points"));
    assert!(!alone.part("store").unwrap().is_gathered_here("points"));
    let kept = with_workers("{ n1 = 1 }", "[mirror.points]\nlevel = \"memory\"\n");
    let daq = parsed(&kept).unwrap().part("daq").unwrap();
    assert_eq!(daq.sources().find(|source| source.name == "points").unwrap().stream.level(), Level::Memory);
    let shown = parsed(&text).unwrap().show();
    let again = parsed(&shown).unwrap_or_else(|mistakes| panic!("{shown}\n{mistakes:?}"));
    assert_eq!(names(&again.part("n3").unwrap()), ["points.in", "points", "points.out"]);
}

#[test]
fn what_a_worker_on_several_hosts_cannot_have_is_named() {
    let is_wrong = |hosts: &str, keys: &str, what: &str| {
        let mistakes = wrong(&with_workers(hosts, keys));
        assert!(mistakes.iter().any(|mistake| mistake.contains(what)), "{what}: {mistakes:?}");
    };
    is_wrong("{ n4 = 2 }", "", "names no host: `n4`");
    is_wrong("{ daq = 2 }", "", "worker `points` cannot share host `daq`");
    is_wrong("{ store = 2 }", "", "worker `points` cannot share host `store`");
    is_wrong("{ n1 = 0 }", "", "write 1 to 32");
    is_wrong("{ n1 = 1, \"n{1..2}\" = 1 }", "", "wrong value of `hosts`");
    is_wrong("{}", "", "wrong value of `hosts`");
    is_wrong("[]", "", "wrong value of `hosts`");
    is_wrong("\"n1\"", "", "write `[\"n1\"]`, or the number of slots: `{ \"n1\" = 8 }`");
    is_wrong("{ n1 = 2 }", "host = \"n1\"\n", "has `host` and `hosts`");
    is_wrong("{ n1 = 2 }", "slots = 3\n", "has `slots` and `hosts`");
    is_wrong("{ n1 = 2 }", "share = \"key\"\n", "cannot be on several hosts");
    let twice = "[worker.more]\ncall = \"copy\"\ninputs = [\"points\"]\nhosts = { n2 = 1 }\n";
    is_wrong("{ n1 = 2 }", twice, "worker `more` cannot read `points`");
    let histogram = "call = \"histogram\"\nparameters = { pixels = 4, of = \"start\" }";
    let state = with_workers("{ n1 = 2 }", "").replace("call = \"copy\"", histogram);
    assert!(wrong(&state).iter().any(|mistake| mistake.contains("cannot be on several hosts")), "{:?}", wrong(&state));
}

/// An instrument with two builders.
const BUILDERS: &str = r#"instrument = "greta"
[hosts]
carrier = "pigeons"
[host.fb1]
[host.fb2]
[host.b1]
[host.b2]
[host.store]
[source."d{1..2}"]
kind = "sim"
model = "detector"
[source."d{3..4}"]
kind = "sim"
model = "detector"
host = "fb2"
[source.aux]
kind = "sim"
model = "detector"
host = "b2"
[merge.events]
kind = "time"
inputs = ["d{1..4}", "aux"]
hosts = ["b1", "b2"]
slice = "20 ms"
overlap = "1 ms"
wait = "1 s"
[worker.groups]
call = "groups"
inputs = ["events"]
hosts = ["b1", "b2"]
parameters = { find = "gap", gap = "1 us", members = ["d{1..4}", "aux"] }
[merge.more]
kind = "time"
inputs = ["groups", "aux"]
host = "store"
"#;

#[test]
fn builders_have_parts_of_a_merge_and_of_the_workers_behind_it() {
    let part = |host: &str| parsed(BUILDERS).unwrap().part(host).unwrap();
    let inputs = |of: &Instrument, name: &str| of.stage(name).unwrap().inputs().to_vec();
    // Each host with inputs merges them for each builder.
    let fb2 = part("fb2");
    assert_eq!(names(&fb2), ["d3", "d4", "lead.runs", "events-fb2-b1", "events-fb2-b2", "hosts"]);
    assert_eq!(inputs(&fb2, "events-fb2-b2"), ["d3", "d4"]);
    let merge = fb2.merges().nth(1).unwrap();
    let slices = flow::TimeSlices { length: 20_000_000, parts: 2, part: 1, overlap: 1_000_000 };
    assert!(
        merge.part_inputs.values().all(|part| *part == PartInput { slices: Some(slices), ..PartInput::default() }),
        "{merge:?}"
    );
    assert_eq!(merge.wait_of("d3"), Duration::from_secs(1));
    // A builder merges what comes, by what its hosts say, and what it has itself, by its own wait.
    let b2 = part("b2");
    assert_eq!(
        names(&b2),
        ["aux", "events-fb1-b2", "events-fb2-b2", "lead.runs", "events-b2-b1", "events-b2", "groups-b2", "hosts"]
    );
    assert_eq!(inputs(&b2, "events-b2"), ["events-fb1-b2", "events-fb2-b2", "aux"]);
    let merge = b2.merges().nth(1).unwrap();
    let by_frontier: Vec<bool> = merge.inputs.iter().map(|input| merge.part_inputs[input].by_frontier).collect();
    assert_eq!(by_frontier, [true, true, false]);
    let waits: Vec<u64> = merge.inputs.iter().map(|input| merge.wait_of(input).as_secs()).collect();
    assert_eq!(waits, [0, 0, 1]);
    assert_eq!(inputs(&b2, "groups-b2"), ["events-b2"]);
    // Its messages name the section of the file.
    assert_eq!(b2.workers().next().unwrap().maker, "groups");
    // `b1` has `aux` from its host, as a builder needs it.
    assert_eq!(inputs(&part("b1"), "events-b1"), ["events-fb1-b1", "events-fb2-b1", "events-b2-b1"]);
    // Elsewhere the name means all parts.
    let store = part("store");
    assert_eq!(names(&store), ["aux", "groups-b1", "groups-b2", "lead.runs", "groups", "more"]);
    assert_eq!(inputs(&store, "groups"), ["groups-b1", "groups-b2"]);
    let groups = store.merges().next().unwrap();
    let slices = flow::TimeSlices { overlap: 0, ..slices };
    // A builder that has lost its folder makes its part again.
    let of_part = PartInput { slices: Some(slices), by_frontier: true, is_made_again: true };
    assert_eq!(groups.part_inputs["groups-b2"], of_part);
    assert_eq!(groups.wait_of("groups-b2"), Duration::from_secs(1));
    // So a host that is away makes nothing late.
    let more = store.merges().nth(1).unwrap();
    assert_eq!(
        more.part_inputs,
        BTreeMap::from([("groups".to_owned(), PartInput { by_frontier: true, ..PartInput::default() })])
    );
    assert_eq!(part("fb1").part.unwrap().stages["groups-b2"], "b2");
    let shown = parsed(BUILDERS).unwrap().show();
    let again = parsed(&shown).unwrap_or_else(|mistakes| panic!("{shown}\n{mistakes:?}"));
    assert_eq!(names(&again.part("b2").unwrap()), names(&b2));
}

#[test]
fn inputs_that_hosts_have_in_turn_keep_the_order_of_the_file() {
    let text = BUILDERS.replace("[\"d{1..4}\", \"aux\"]\nhosts", "[\"d1\", \"d3\", \"d2\", \"aux\"]\nhosts");
    let part = |host: &str| parsed(&text).unwrap().part(host).unwrap();
    let inputs = part("b1").stage("events-b1").unwrap().inputs().to_vec();
    assert_eq!(inputs, ["events-fb1-b1", "events-fb2-b1", "events-fb1-b1-2", "events-b2-b1"]);
    assert_eq!(part("fb1").stage("events-fb1-b1-2").unwrap().inputs(), ["d2"]);
}

#[test]
fn a_mirror_of_a_stage_with_parts_is_that_of_each_part() {
    let text = format!("{BUILDERS}[mirror.groups]\nlevel = \"memory\"\nlive = \"96 MiB\"\n");
    let store = parsed(&text).unwrap_or_else(|mistakes| panic!("{mistakes:?}")).part("store").unwrap();
    let live = |name: &str| store.stage(name).unwrap().stream().unwrap().clone();
    assert_eq!((live("groups-b1").live.0, live("groups-b2").level()), (96 << 20, Level::Memory));
    // It points into them.
    assert_eq!(live("groups").level(), Level::Memory);
}

#[test]
fn what_builders_cannot_have_is_named() {
    let is_wrong = |from: &str, to: &str, what: &str| {
        let text = BUILDERS.replace(from, to);
        assert_ne!(text, BUILDERS, "{from}");
        let mistakes = wrong(&text);
        assert!(mistakes.iter().any(|mistake| mistake.contains(what)), "{what}: {mistakes:?}");
    };
    let of_merge = "hosts = [\"b1\", \"b2\"]\nslice";
    is_wrong(of_merge, "hosts = [\"b1\", \"b3\"]\nslice", "names no host: `b3`");
    is_wrong(of_merge, "hosts = [\"b1\", \"b1\"]\nslice", "names `b1` twice");
    is_wrong(of_merge, "hosts = []\nslice", "names no host");
    is_wrong(of_merge, "hosts = \"b1\"\nslice", "write a list: `[\"b1\"]`");
    is_wrong(of_merge, "host = \"b1\"\nhosts = [\"b1\", \"b2\"]\nslice", "has `host` and `hosts`");
    is_wrong("overlap = \"1 ms\"", "overlap = \"11 ms\"", "`overlap` of merge `events` is too long");
    is_wrong("overlap = \"1 ms\"\n", "", "`overlap` of merge `events` is too short");
    is_wrong("gap = \"1 us\"", "gap = \"2 ms\"", "`overlap` of merge `events` is too short");
    is_wrong("overlap = \"1 ms\"", "output = \"copy\"", "cannot be a copy");
    is_wrong("slice = \"20 ms\"", "slice = \"0 s\"", "has no slices");
    let many = "[host.\"m{1..900}\"]\n[host.b1]";
    let of_many = BUILDERS.replace("[host.b1]", many).replace(of_merge, "hosts = [\"m{1..900}\"]\nslice");
    assert!(wrong(&of_many).iter().any(|mistake| mistake.contains("has too many parts")), "{:?}", wrong(&of_many));
    is_wrong("hosts = [\"b1\", \"b2\"]\nparameters", "hosts = [\"b1\"]\nparameters", "has other hosts than `events`");
    let taken = "[source.events-b1]\nkind = \"sim\"\nmodel = \"detector\"\n[source.aux]";
    let read_twice = BUILDERS.replace("[host.b1]", "[host.b1]\n[host.fb1-b1]");
    let read_twice = read_twice.replace("hosts = [\"b1\", \"b2\"]", "hosts = [\"b1\", \"fb1-b1\"]");
    assert!(wrong(&read_twice).iter().any(|mistake| mistake.contains("a part of `events` needs the name")));
    is_wrong("[source.aux]", taken, "a part of `events` needs the name `events-b1`");
    let (time, number) = ["time", "number"].map(|kind| format!("kind = \"{kind}\"\ninputs = [\"d{{1..4}}\"")).into();
    let number = BUILDERS.replace(&time, &number).replace("slice = \"20 ms\"\noverlap = \"1 ms\"\n", "");
    let found = wrong(&number);
    assert!(found.iter().any(|mistake| mistake.contains("merge `events` cannot be on several hosts")), "{found:?}");
    let alone = BUILDERS.replace("hosts = [\"b1\", \"b2\"]\nslice", "host = \"b1\"\nslice");
    assert!(wrong(&alone).iter().any(|mistake| mistake.contains("unknown key `overlap`")), "{:?}", wrong(&alone));
}

#[test]
fn a_carrier_without_a_broker_has_a_sink_for_each_host_and_needs_their_addresses() {
    let text = FILE.replace("pigeons", "https").replace("[source.x]", "[host.desk]\n[source.x]");
    let text = text.replace("inputs = [\"all\"]", "inputs = [\"all\"]\nhost = \"store\"");
    let mistakes = parsed(&text).unwrap_err();
    let (line, what) = (mistakes[0].line, mistakes[0].to_string());
    assert!(line == 5 && mistakes.len() == 1 && what.contains("the others cannot reach it"), "{mistakes:?}");
    let reached = text.replace("[host.daq]", "[host.daq]\nurl = \"http://localhost:9400\"");
    let part = parsed(&reached).unwrap().part("daq").unwrap();
    let sinks = part.stages.iter().filter(|stage| is_hosts_sink(stage.name()));
    let sinks: Vec<(&str, &[String])> = sinks.map(|stage| (stage.name(), stage.inputs())).collect();
    assert_eq!(sinks, [("hosts.store", &["runs".into(), "x".into()][..]), ("hosts.desk", &["runs".to_owned()])]);
    let secure = reached.replace("http://", "https://");
    let what = format!("{:?}", parsed(&secure).unwrap_err());
    assert!(what.contains("has https, and the host no certificate"), "{what}");
    let open = reached.replace("localhost", "10.0.0.1");
    assert!(format!("{:?}", parsed(&open).unwrap_err()).contains("insecure = true"));
    assert!(parsed(&open.replace(":9400\"", ":9400\"\ninsecure = true")).is_ok());
}
