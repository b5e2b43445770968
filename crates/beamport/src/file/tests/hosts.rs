//! Tests of `[hosts]`, `[host.NAME]` and `host`, and of the parts that they make.

use super::*;
use flow::Source;
use flow::edge::{Bulletin, CarrierKind, CarrierPlan, Mirror};
use flow::hosts::HostsLayout;
use std::collections::BTreeMap;

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

    fn bulletin(&self, instrument: &str, _: Option<&str>) -> Result<Box<dyn Bulletin>, Fault> {
        Err(Fault::new("birds read no bulletin", instrument))
    }
}

impl SourcePlan for Letter {
    fn build(&self) -> Result<Box<dyn Source>, Fault> {
        Err(Fault::new(&self.0, ""))
    }
}

static PIGEONS: CarrierKind =
    CarrierKind { name: "pigeons", about: "Birds.", keys: &[], read: |_| Some(Arc::new(Pigeons)) };

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
    };
    let stages = owned(&[("all", "store"), ("w", "daq"), ("x", "daq"), ("y", "store")]);
    HostPart { name: name.to_owned(), lead: lead.map(str::to_owned), layout, stages, files_of_one_run: BTreeMap::new() }
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
