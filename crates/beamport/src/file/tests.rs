//! Tests of the instrument file as a whole: the meaning of good files, the errors of wrong ones, the effect of hostile
//! ones.

mod hostile;
mod hosts;

use super::*;
use crate::edges::SinkKind;
use flow::checked::{ConfigText, StreamModule};
use flow::edge::{LiveKind, LivePlan, SourcePlan};
use flow::job::{Compression, Work};
use flow::{Fault, LiveSink};
use settings::Section;
use settings::units::{Size, Time};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use store::{Level, WhenFull};

/// The folder of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A folder of a test, gone at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("beamport-file-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn parse(text: &str, path: &Path, check: &TemplateCheck<'_>) -> Result<Instrument, Vec<Mistake>> {
    super::parse(text, path, &Registry::builtin(), check)
}

fn read(path: &Path, check: &TemplateCheck<'_>) -> Result<Instrument, Vec<Mistake>> {
    super::read(path, &Registry::builtin(), check)
}

/// The plan of the first source, which is simulated.
fn simulated(instrument: &Instrument) -> &sim::Plan {
    let plan: &dyn SourcePlan = &*instrument.sources().next().unwrap().plan;
    (plan as &dyn std::any::Any).downcast_ref().unwrap()
}

fn good(text: &str) -> Instrument {
    parse(text, Path::new("/nowhere/a.toml"), &unasked).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"))
}

fn wrong(text: &str) -> Vec<Mistake> {
    parse(text, Path::new("/nowhere/a.toml"), &unasked).expect_err("a wrong file was taken")
}

/// The one mistake of a text.
fn only(text: &str) -> (u32, String, String) {
    let mistakes = wrong(text);
    assert_eq!(mistakes.len(), 1, "{mistakes:#?}");
    (mistakes[0].line, format!("{}; {}", mistakes[0].what, mistakes[0].cause), mistakes[0].hint.clone())
}

/// A module in the first child of a template, as `beamport-nexus check` tells of it.
fn module(at: &str, word: &str, key: &str, stream: &str) -> StreamModule {
    StreamModule {
        pointer: format!("/children/{at}/config"),
        module: word.into(),
        key: key.into(),
        streams: vec![stream.into()],
        ..StreamModule::default()
    }
}

/// Reads a text with a template that has these modules.
fn with_modules(text: &str, path: &Path, modules: &[StreamModule]) -> Result<Instrument, Vec<Mistake>> {
    parse(text, path, &|_, _| TemplateAnswer { modules: modules.to_vec(), ..TemplateAnswer::default() })
}

fn config_text(key: &str, text: &str) -> ConfigText {
    ConfigText { key: key.into(), text: text.into() }
}

const SOURCE: &str = "instrument = \"a\"\n[source.x]\nkind = \"sim\"\nmodel = \"amor\"\n";

/// Copies the examples beside a data folder in which something was recorded.
fn examples(folder: &Folder) -> Vec<PathBuf> {
    std::fs::create_dir_all(folder.0.join("beamport-data/amor")).unwrap();
    let mut files = Vec::new();
    for entry in
        std::fs::read_dir(root().join("examples")).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_file())
    {
        let copy = folder.0.join(entry.file_name());
        std::fs::copy(entry.path(), &copy).unwrap();
        // Without Kafka the program refuses its section; without the libraries of EPICS too.
        let is_one_of = |names: &[&str]| names.iter().any(|name| copy.ends_with(name));
        let is_readable = (cfg!(feature = "kafka")
            || !is_one_of(&["greta-cluster.toml", "kafka.toml", "two-hosts.toml"]))
            && (epics::version().is_ok() || !is_one_of(&["epics.toml", "feedback.toml"]));
        if is_readable && copy.extension().is_some_and(|end| end == "toml") {
            files.push(copy);
        }
    }
    files.sort();
    files
}

#[test]
fn the_examples_have_no_mistake() {
    let folder = Folder::new("examples");
    let files = examples(&folder);
    assert!(files.len() >= 4);
    for file in &files {
        read(file, &unasked).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"));
    }
    let amor = read(&folder.0.join("amor.toml"), &unasked).unwrap();
    assert_eq!(
        amor.sources().map(|source| source.name.as_str()).collect::<Vec<_>>(),
        ["detector", "monitor", "devices"]
    );
    assert_eq!(*amor.sinks[0].inputs, ["detector", "monitor", "devices"]);
    assert_eq!(amor.sinks[0].path_of("amor", "first"), folder.0.join("beamport-data/amor/files/amor_first.nxs"));
    assert_eq!(amor.runs[0].duration.as_ref().map(|duration| duration.value), Some(Duration::from_secs(10)));
    assert_eq!(*amor.runs[0].start, Start::Now);
    let detector = simulated(&amor);
    assert_eq!((detector.config.model.as_str(), detector.config.rate), ("amor", 1e6));
}

#[test]
#[cfg(not(feature = "kafka"))]
fn a_program_without_kafka_says_how_to_have_one_with_it() {
    let text = std::fs::read_to_string(root().join("examples/kafka.toml")).unwrap();
    let (line, what, hint) = only(&text);
    assert!(text.lines().nth(line as usize - 1).unwrap() == "[source.detector]", "{line}");
    assert!(what.contains("`kind = \"kafka\"`") && what.contains("built without Kafka"), "{what}");
    assert!(hint.contains("`pip install .`"), "{hint}");
}

#[test]
fn streams_and_origins_of_the_template_are_those_of_the_models() {
    let folder = Folder::new("origins");
    examples(&folder);
    let text = std::fs::read_to_string(folder.0.join("amor.nexus.json")).unwrap();
    let mut sources = BTreeSet::new();
    let mut nodes = vec![serde_json::from_str::<serde_json::Value>(&text).unwrap()];
    while let Some(node) = nodes.pop() {
        nodes.extend(node["children"].as_array().cloned().unwrap_or_default());
        if let Some(stream) = node["config"]["stream"].as_str() {
            sources.insert((stream.to_owned(), node["config"]["source"].as_str().unwrap().to_owned()));
        }
    }
    let devices = sim::amor::DEVICES.iter().map(|device| ("devices".to_owned(), device.0.to_owned()));
    let expected: BTreeSet<_> = devices
        .chain([("detector".into(), sim::amor::DETECTOR.into()), ("monitor".into(), sim::amor::MONITOR.into())])
        .collect();
    assert_eq!(sources, expected);
}

#[test]
fn files_of_a_camera_are_there_and_of_a_camera() {
    let folder = Folder::new("frames");
    std::fs::write(folder.0.join("a.npy"), b"to be looked at when it is mapped").unwrap();
    let read = |model: &str, files: &str| {
        let text = format!("instrument = \"a\"\n[source.x]\nkind = \"sim\"\nmodel = \"{model}\"\nfiles = {files}\n");
        parse(&text, &folder.0.join("camera.toml"), &unasked)
    };
    let good = read("camera", "[\"a.npy\"]").unwrap();
    // How large its frames are stands in the file.
    assert_eq!(simulated(&good).message_bytes(), None);
    for (model, files, cause) in [
        ("camera", "[\"a.npy\", \"b.npy\"]", "no file"),
        ("camera", "[\".\"]", "no file"),
        ("camera", "[]", "the list is empty"),
        ("camera", "\"a.npy\"", "expected a list"),
        ("amor", "[\"a.npy\"]", "has no frames"),
    ] {
        let mistakes = read(model, files).unwrap_err();
        let [mistake] = &mistakes[..] else { panic!("{mistakes:#?}") };
        assert_eq!(mistake.line, 5);
        assert!(mistake.cause.contains(cause) && !mistake.hint.is_empty(), "{mistake}");
    }
}

#[test]
fn frames_of_4096_x_4096_pixels_were_refused_with_the_defaults() {
    let camera = |more: &str| {
        format!("instrument = \"a\"\n[source.x]\nkind = \"sim\"\nmodel = \"camera\"\nshape = [4096, 4096]\n{more}\n")
    };
    for (more, live) in [("", 65 << 20), ("dtype = \"uint16\"", 129 << 20), ("dtype = \"float64\"", 513 << 20)] {
        let instrument = good(&camera(more));
        // Room for four, and they can be made.
        assert_eq!(instrument.sources().next().unwrap().stream.live.value.0, live, "{more}");
        assert_eq!(sim::truth(&simulated(&instrument).config).unwrap()["frames"], 8);
        let shown = instrument.show();
        assert_eq!(good(&shown).sources().next().unwrap().stream.live.value.0, live, "{shown}");
    }
    let (line, what, hint) = only(&camera("live = \"32 MiB\""));
    assert!(line == 6 && what.contains("two frames of 16781312 B"), "{line} {what}");
    assert_eq!(hint, "write `live = \"65 MiB\"`");
    assert_eq!(good(&camera("live = \"33 MiB\"")).sources().next().unwrap().stream.live.value.0, 33 << 20);
}

#[test]
fn what_show_prints_reads_back_to_the_same() {
    let folder = Folder::new("show");
    for file in examples(&folder) {
        let first = read(&file, &unasked).unwrap();
        let text = first.show();
        let second = parse(&text, &file, &unasked).unwrap_or_else(|mistakes| panic!("{text}{mistakes:#?}"));
        // Only the origins differ: what was a default is written down now.
        let values = |instrument: &Instrument| {
            let mut json = instrument.show_json().to_string();
            while let Some(at) = json.find("\"line\":") {
                let end = json[at..].find([',', '}']).map_or(json.len(), |end| at + end);
                json.replace_range(at..end, "");
            }
            json
        };
        assert_eq!(values(&first), values(&second));
        assert!(
            text.contains("# default") && text.contains(&format!("# {}:", file.file_name().unwrap().display())),
            "{text}"
        );
    }
}

#[test]
fn a_merge_that_is_copied_is_a_view_and_a_worker_and_reads_back_as_it_was_written() {
    let merge = "[merge.all]\nkind = \"time\"\ninputs = [\"x\"]\noutput = \"copy\"\nlevel = \"disk\"\n";
    let file = good(&format!("{SOURCE}level = \"memory\"\n{merge}"));
    let (merge, worker) = (file.merges().next().unwrap(), file.workers().next().unwrap());
    // A view survives no more than what it points into; the copy does.
    assert_eq!((merge.name.as_str(), merge.output.level()), ("all.view", Level::Memory));
    assert_eq!((worker.name.as_str(), worker.output.level()), ("all", Level::Disk));
    assert_eq!((worker.call.as_str(), worker.inputs.value.as_slice()), ("copy", &["all.view".to_owned()][..]));
    let shown = file.show();
    assert!(shown.contains("[merge.all]") && !shown.contains("worker") && !shown.contains("all.view"), "{shown}");
    let names: Vec<String> = good(&shown).stages.iter().map(|stage| stage.name().to_owned()).collect();
    assert_eq!(names, ["x", "all.view", "all"]);
}

#[test]
fn defaults_and_values_have_their_origin() {
    let file = good(&format!("{SOURCE}live = \"1 MiB\"\nlevel = \"memory\"\n"));
    let source = &file.sources().next().unwrap().stream;
    let level = source.level.as_ref().unwrap();
    assert_eq!((source.live.value, source.live.origin), (Size(1 << 20), Origin::Line(5)));
    assert_eq!((level.value, level.origin), (Level::Memory, Origin::Line(6)));
    assert_eq!((source.when_full.value, source.when_full.origin), (WhenFull::Wait, Origin::Default));
    // A memory stream retains its live end.
    assert_eq!(source.retain.as_ref().map(|retain| retain.value), Some(Size(1 << 20)));
    assert_eq!(*file.data, Path::new("/nowhere/beamport-data/a"));
    assert_eq!(*file.sources().next().unwrap().ahead_max, Duration::from_secs(600));
}

#[test]
fn relative_paths_begin_at_the_instrument_file() {
    let file = good(&format!("data = \"streams\"\n{SOURCE}"));
    assert_eq!(*file.data, Path::new("/nowhere/streams"));
    let file = good(&format!("data = \"/var/lib/a\"\n{SOURCE}"));
    assert_eq!(*file.data, Path::new("/var/lib/a"));
}

#[test]
fn inline_and_dotted_sections_are_sections() {
    let file = good(
        "instrument = \"a\"\nsource.x = {kind = \"sim\", model = \"amor\"}\nsource.y.kind = \"sim\"\nsource.y.model = \"amor\"\n",
    );
    assert_eq!(
        file.sources().map(|source| (source.name.as_str(), source.line)).collect::<Vec<_>>(),
        [("x", 2), ("y", 3)]
    );
}

#[test]
fn times_may_stand_with_or_without_quotes() {
    for start in ["2026-03-01T12:00:00Z", "\"2026-03-01T12:00:00Z\"", "2026-03-01T13:00:00+01:00"] {
        let file = good(&format!("{SOURCE}[run.r]\nstart = {start}\n"));
        assert_eq!(*file.runs[0].start, Start::At(Time(1_772_366_400_000_000_000)), "{start}");
    }
}

#[test]
fn a_misspelt_key_is_one_mistake_and_not_two() {
    let (line, what, hint) = only("instrument = \"a\"\n[source.x]\nkind = \"sim\"\nmodle = \"amor\"\n");
    assert_eq!(
        (line, what.as_str(), hint.as_str()),
        (4, "unknown key `modle` in [source.x]; ", "did you mean `model`?")
    );
}

#[test]
fn single_mistakes_are_told_with_line_and_hint() {
    let table: &[(&str, u32, &str, &str)] = &[
        ("live = 64\n", 5, "has no unit", "\"64 MiB\""),
        ("live = \"1 kB\"\n", 5, "1 kB of live memory", "1 MiB to 1 TiB"),
        ("live = \"4 TiB\"\n", 5, "out of range", "1 MiB to 1 TiB"),
        ("level = \"memory\"\nretain = \"1 GB\"\n", 6, "at most `live`", "live = \"1 GB\""),
        ("retain = \"1 MiB\"\n", 5, "less than `live`", "64 MiB"),
        ("level = \"replicated\"\n", 5, "unknown word `replicated`", "\"disk\""),
        ("when_full = \"drop_oldest\"\n", 5, "unknown word", "did you mean `drop-oldest`?"),
        ("speed = \"2x\"\n", 5, "unknown key `speed`", "kind = \"replay\""),
        ("data = \"x\"\n", 5, "unknown key `data`", "Above the sections"),
        ("angle_step = 3\n", 5, "has no unit", "\"3 s\""),
        ("from = \"no.nxs\"\n", 5, "no file /nowhere/no.nxs", "relative to the instrument file"),
        ("seed = true\n", 5, "it takes a whole number", "remove it for `1`"),
        ("[source.x.y]\n", 5, "unknown key `y`", "known keys"),
        ("[run]\nstart = \"now\"\n", 6, "which has no name", "[run.NAME]"),
        ("[[run.r]]\n", 5, "double brackets", "[run.NAME]"),
        ("[run.\"a b\"]\n", 5, "wrong name", "write a name like"),
        ("[run.r]\nstart = \"2026-03-01T12:00:00\"\n", 6, "time zone", "2026-03-01T12:00:00Z"),
        ("[run.r]\nstop = \"2026-03-01T12:00:00Z\"\nduration = \"1 s\"\n", 7, "a stop and a duration", "remove"),
        (
            "[run.r]\nstart = 2026-03-01T12:00:00Z\nstop = 2026-03-01T12:00:00Z\n",
            7,
            "ends before it starts",
            "later `stop`",
        ),
        ("[run.r]\nduration = \"0 s\"\n", 6, "ends before it starts", "write a length"),
        ("[run.r]\ninclusive = true\n", 6, "inclusive but has no stop", "add `stop`"),
        ("[sinks.file]\n", 5, "unknown section `sinks`", "[sink.NAME]"),
        ("[link.all]\n", 5, "unknown section `link`", "did you mean `[sink.NAME]`?"),
        ("[worker.w]\ncall = \"mean\"\ninputs = [\"x\"]\n", 6, "nor a function", "mine.py:function"),
        ("[worker.w]\ncall = \"no.py:mean\"\ninputs = [\"x\"]\n", 6, "no file", "beside the instrument file"),
        ("[worker.w]\ncall = \"a:b\"\ninputs = [\"x\"]\nslots = 33\n", 8, "33 slots", "write 1 to 32"),
        (
            "[worker.w]\ncall = \"a:b\"\ninputs = [\"x\"]\nset = 2\n",
            8,
            "cannot get the same messages",
            "divides `slots`",
        ),
        (
            "[worker.w]\ncall = \"a:b\"\ninputs = [\"x\"]\nslots = 3\nset = 2\n",
            9,
            "2 slots cannot get the same messages: `slots` is 3",
            "divides `slots`",
        ),
        ("[worker.w]\ncall = \"a:b\"\ninputs = [\"w\"]\n", 7, "fills it", "streams are x"),
        ("[worker.x]\ncall = \"a:b\"\ninputs = [\"x\"]\n", 5, "has the name of a source", "rename one"),
        ("[worker.w]\ncall = \"a:b\"\ninputs = [\"x\"]\nparameters = 3\n", 8, "expected a table", "parameters]"),
        ("[worker.w]\ncall = \"a:b\"\ninputs = [\"x\"]\ncpus = [-1]\n", 8, "a CPU number", "[0, 1]"),
        ("[worker.w]\ncall = \"a:b\"\nshadow = \"v\"\n", 7, "no worker of this name", "below it"),
        ("[worker.w]\ncall = \"a:b\"\nshadow = \"w\"\n", 7, "no worker of this name", "below it"),
        ("[merge.all]\nkind = \"time\"\n", 5, "`inputs` is missing", "list of streams"),
        ("[merge.all]\nkind = \"time\"\ninputs = [\"all\"]\n", 7, "or stage above fills it", "x"),
        ("[merge.all]\nkind = \"time\"\ninputs = [\"x\", \"x\"]\n", 7, "takes `x` twice", "one of them"),
        ("[merge.all]\nkind = \"time\"\ninputs = []\n", 7, "has no inputs", "two streams"),
        ("[merge.x]\nkind = \"time\"\ninputs = [\"x\"]\n", 5, "the name of a source", "rename one"),
        ("[merge.all]\nkind = \"attach\"\ninputs = [\"x\"]\n", 6, "unknown word `attach`", "\"time\""),
        (
            "[merge.all]\nkind = \"number\"\ninputs = [\"x\"]\nslice = \"10 ms\"\n",
            8,
            "unknown key `slice`",
            "`slice` belongs to [merge.NAME], kind = \"time\"",
        ),
        (
            "[merge.all]\nkind = \"time\"\ninputs = [\"x\"]\nparts = 2\n",
            8,
            "unknown key `parts`",
            "`parts` belongs to [merge.NAME], kind = \"number\"",
        ),
        ("[merge.all]\nkind = \"number\"\ninputs = [\"x\"]\nparts = 0\n", 8, "0 is out of range", "1 to 1024"),
        ("[merge.all]\nkind = \"number\"\ninputs = [\"x\"]\ncache = 0\n", 8, "0 is out of range", "1 to 1048576"),
        ("[merge.all]\nkind = \"time\"\ninputs = [\"x\"]\noutput = \"move\"\n", 8, "unknown word `move`", "\"view\""),
        (
            "[merge.all]\nkind = \"time\"\ninputs = [\"x\"]\nwaits = { y = \"1 s\" }\n",
            8,
            "is not an input",
            "name an input",
        ),
        ("[merge.all]\nkind = \"time\"\ninputs = [\"x\"]\nwaits = { x = 1 }\n", 8, "has no unit", "\"1 s\""),
        ("[merge.all]\nkind = \"time\"\ninputs = [\"x\"]\nslice = \"1 min\"\n", 8, "not a valid slice", "\"1 s\""),
        ("[source.runs]\nkind = \"sim\"\nmodel = \"amor\"\n", 5, "is reserved", "another name"),
        ("[source.\"x.commits\"]\nkind = \"sim\"\nmodel = \"amor\"\n", 5, "reserved", "x-commits"),
        ("[source.y]\nkind = \"opcua\"\nnode = \"A\"\n", 6, "unknown word `opcua`", "\"sim\""),
        (
            "[source.y]\nkind = \"replay\"\nrun = \"r\"\nfrom_data = \"gone\"\n",
            8,
            "no folder /nowhere/gone",
            "beamport up",
        ),
    ];
    for (text, line, what, hint) in table {
        let found = only(&format!("{SOURCE}{text}"));
        assert_eq!(found.0, *line, "{text}{found:?}");
        assert!(found.1.contains(what) && found.2.contains(hint), "{text}{found:?}");
    }
    assert_eq!(only("instrument = \"a\"\n").1, "no source is defined; no section [source.NAME]");
    assert_eq!(only(&SOURCE.replace("\"a\"", "\"AMOR 2\"")).2, "write `amor-2`");
}

#[test]
fn a_copy_above_a_worker_stands_before_it() {
    // The mover starts them in this order, and took the thread of the one for that of the other.
    let text = format!(
        "{SOURCE}[merge.all]\nkind = \"time\"\ninputs = [\"x\"]\noutput = \"copy\"\n\
         [worker.w]\ncall = \"a:b\"\ninputs = [\"all\"]\n"
    );
    let names: Vec<String> = good(&text).workers().map(|worker| worker.name.clone()).collect();
    assert_eq!(names, ["all", "w"]);
}

#[test]
fn a_shadow_has_what_it_does_not_say_from_the_worker_that_it_is_beside() {
    let old =
        "[worker.old]\ncall = \"a:b\"\ninputs = [\"x\"]\nslots = 4\nset = 2\norder = \"any\"\ntime_max = \"3 s\"\n";
    let new = "[worker.new]\ncall = \"a:c\"\nshadow = \"old\"\ntime_max = \"5 s\"\n";
    let instrument = good(&format!("{SOURCE}{old}{new}"));
    let shadow = instrument.workers().nth(1).unwrap();
    assert_eq!((shadow.inputs.value.as_slice(), shadow.slots.value, shadow.set.value), (&["x".to_owned()][..], 4, 2));
    assert_eq!((shadow.order.value, shadow.time_max.value), (super::Order::Any, Duration::from_secs(5)));
    // The shown file reads back.
    let again = good(&instrument.show());
    let shown = again.workers().nth(1).unwrap();
    assert_eq!((shown.slots.value, shown.inputs.as_slice()), (4, &["x".to_owned()][..]));
    let line = u32::try_from(format!("{SOURCE}{old}").lines().count()).unwrap();
    for (text, at, what, hint) in [
        ("inputs = [\"x\"]\n", 5, "has its own inputs", "remove `inputs`"),
        ("slots = 1\n", 3, "cannot get the same messages", "multiple of `set`"),
        ("[worker.last]\ncall = \"a:c\"\nshadow = \"new\"\n", 7, "itself a shadow", "\"old\""),
        ("[worker.last]\ncall = \"a:c\"\nshadow = \"odl\"\n", 7, "no worker of this name", "did you mean `old`?"),
        (
            "[worker.last]\ncall = \"attach\"\nshadow = \"old\"\nslots = 1\nset = 1\nparameters = { values = { y = \"x\" } }\n",
            7,
            "cannot run as a shadow",
            "remove `shadow`",
        ),
        ("[worker.last]\ncall = \"stitch\"\nshadow = \"old\"\n", 7, "cannot run as a shadow", "remove `shadow`"),
    ] {
        let found = only(&format!("{SOURCE}{old}{new}{text}"));
        assert_eq!(found.0, line + at, "{text}{found:?}");
        assert!(found.1.contains(what) && found.2.contains(hint), "{text}{found:?}");
    }
}

#[test]
fn a_merge_has_the_least_level_of_its_inputs_and_waits_of_its_own() {
    let text = format!(
        "{SOURCE}[source.y]\nkind = \"sim\"\nmodel = \"amor\"\nlevel = \"memory\"\n\
        [merge.all]\nkind = \"time\"\ninputs = [\"x\", \"y\"]\nwait = \"50 ms\"\nwaits = {{ y = \"10 s\" }}\n\
        [merge.again]\nkind = \"time\"\ninputs = [\"all\", \"x\"]\n"
    );
    let instrument = good(&text);
    let [Stage::Source(_), Stage::Source(_), Stage::Merge(all), Stage::Merge(again)] = instrument.stages.as_slice()
    else {
        panic!("{:?}", instrument.stages)
    };
    assert_eq!((all.wait_of("x"), all.wait_of("y")), (Duration::from_millis(50), Duration::from_secs(10)));
    assert_eq!(all.output.level(), Level::Memory);
    let MergeKind::Time { slice, .. } = &again.kind else { panic!("{again:?}") };
    assert_eq!((slice.value, again.output.live.value), (Duration::from_millis(10), Size(16 << 20)));
    // The shown file reads back.
    let shown = instrument.show();
    assert!(shown.contains("waits = { y = \"10 s\" }"), "{shown}");
    assert_eq!(good(&shown).show_json()["sections"][2]["settings"]["level"]["value"], "memory", "{shown}");
    let disk = text.replace("wait = \"50 ms\"", "level = \"disk\"");
    let found = only(&disk);
    assert!(found.1.contains("points into `y`") && found.2.contains("remove `level`"), "{found:?}");
}

#[test]
fn a_file_whose_templates_read_no_stream_needs_no_source() {
    let text = "instrument = \"a\"\n[sink.f]\nkind = \"nexus\"\ntemplate = \"a.json\"\n";
    let folder = Folder::new("static");
    folder.put("a.json", "{\"children\": []}");
    let path = folder.0.join("a.toml");
    let instrument = with_modules(text, &path, &[]).unwrap();
    assert_eq!((instrument.stages.len(), instrument.sinks[0].inputs.len()), (0, 0));
    let mistakes = with_modules(text, &path, &[module("0", "ev44", "stream", "x")]).unwrap_err();
    assert!(mistakes.iter().any(|mistake| mistake.what == "no source is defined"), "{mistakes:#?}");
}

#[test]
fn mistakes_of_sinks_are_told() {
    let folder = Folder::new("sinks");
    folder.put("good.json", "{\"children\": []}");
    folder.put("stream.json", "");
    let check = |path: &Path, _: &Writer| TemplateAnswer {
        modules: Vec::from_iter(path.ends_with("stream.json").then(|| module("0", "ev44", "stream", "x"))),
        ..TemplateAnswer::default()
    };
    let sink = |name: &str, lines: &str| format!("[sink.{name}]\nkind = \"nexus\"\n{lines}\n");
    let table: Vec<(String, u32, &str, &str)> = vec![
        (sink("f", "template = \"good.json\"\ninputs = [\"y\"]"), 8, "no source fills that stream", "streams are x"),
        (sink("f", "template = \"stream.json\"\ninputs = []"), 8, "no inputs", "take all"),
        (sink("f", "template = \"good.json\"\ninputs = \"x\""), 8, "expected a list, found a text", "write a list"),
        (sink("f", "template = \"good.json\"\nfile = \"../{run}.nxs\""), 8, "leaves its folder", "plain file name"),
        (sink("f", "template = \"good.json\"\nfile = \"a.nxs\""), 8, "the same for every run", "{run}"),
        (sink("f", "template = \"good.json\"\nfile = \"{runs}.nxs\""), 8, "unknown placeholder", "{run}"),
        (sink("f", "template = \"good.json\"\nflush = \"1 ms\""), 8, "too short", "10 ms"),
        (sink("f", "template = \"good.json\"\nhold = \"2 min\""), 8, "too long", "1 min"),
        (sink("f", "template = \"good.json\"\nlayout = \"esss\""), 8, "esss", "ess"),
        (sink("f", "template = \"no.json\""), 7, "No such file", "relative to the instrument file"),
        (sink("f", "template = \".\""), 7, "not a plain file", "relative to the instrument file"),
        (sink("f", ""), 5, "`template` is missing", "add `template"),
        (sink("x", "template = \"good.json\""), 5, "name of a source", "rename one"),
        (
            sink("f", "template = \"good.json\"")
                + &sink("g", "template = \"good.json\"\nfolder = \"./q/../beamport-data/a/files\""),
            8,
            "write the same file",
            "{sink}",
        ),
    ];
    let path = folder.0.join("a.toml");
    for (text, line, what, hint) in table {
        let mistakes = parse(&format!("{SOURCE}{text}"), &path, &check).expect_err(&text);
        assert_eq!(mistakes.len(), 1, "{text}{mistakes:#?}");
        let found = format!("{mistakes:?}");
        assert!(mistakes[0].line == line && found.contains(what) && mistakes[0].hint.contains(hint), "{text}{found}");
    }
}

#[test]
fn a_template_may_know_streams_by_other_names() {
    let folder = Folder::new("topics");
    folder.put("t.json", "{\"children\": [\n{\"config\": {\"topic\": \"loki.detector\"}}]}");
    let parsed = |topics: &str, name: &str| {
        let sink = format!("[sink.f]\nkind = \"nexus\"\ntemplate = \"t.json\"\ntopics = {topics}\n");
        let text = format!("{SOURCE}[source.y]\nkind = \"sim\"\nmodel = \"field\"\n{sink}");
        with_modules(&text, &folder.0.join("z.toml"), &[module("0", "ev44", "topic", name)])
    };
    let instrument = parsed("{ x = \"loki.detector\" }", "loki.detector").unwrap();
    let sink = &instrument.sinks[0];
    assert!(sink.has_place_for("x") && !sink.has_place_for("loki.detector"));
    assert_eq!((sink.writer.topic_of("x"), sink.writer.topic_of("y")), ("loki.detector", "y"));
    assert_eq!(sink.provenance("a", Path::new("/data"))["topics"]["x"], "loki.detector");
    // The name of one stream may be that of another in the template.
    let swapped = parsed("{ x = \"y\", y = \"x\" }", "y").unwrap();
    assert!(swapped.sinks[0].has_place_for("x"));
    for (topics, name, what, hint) in [
        ("{ x = \"loki.detector\" }", "x", "`topics` gives that stream the name `loki.detector`", "\"loki.detector\""),
        ("{ x = \"loki.detector\" }", "loki.detectr", "no source fills stream", "did you mean `loki.detector`?"),
        ("{ z = \"loki.detector\" }", "x", "`z` is not one of its inputs", "x, y"),
        ("{ x = \"y\" }", "y", "`y` is the name of `x` and of stream `y`", "name `y` in `topics` too"),
        ("{ x = \"a\", y = \"a\" }", "a", "`a` appears twice", "topics = {"),
        ("{ x = 1 }", "x", "the name of `x` is not a text", "topics = {"),
        ("[\"x\"]", "x", "expected a table", "table of texts"),
    ] {
        let mistakes = parsed(topics, name).expect_err(topics);
        let found = format!("{mistakes:#?}");
        assert!(mistakes.len() == 1 && found.contains(what) && mistakes[0].hint.contains(hint), "{topics}{found}");
    }
}

#[test]
fn mistakes_in_a_template_come_behind_those_of_the_file() {
    let folder = Folder::new("hook");
    folder.put("t.json", "{}");
    let check = |path: &Path, _: &Writer| {
        assert!(path.ends_with("t.json"));
        let what = "unknown module `ev45`".into();
        let mistakes = vec![Mistake { file: "a.json".into(), line: 1, what, ..Mistake::default() }];
        TemplateAnswer { mistakes, ..TemplateAnswer::default() }
    };
    let text = format!("{SOURCE}[sink.f]\nkind = \"nexus\"\ntemplate = \"t.json\"\nflush = 1\n");
    let mistakes = parse(&text, &folder.0.join("z.toml"), &check).unwrap_err();
    assert_eq!(mistakes.iter().map(|mistake| mistake.line).collect::<Vec<_>>(), [8, 1], "{mistakes:#?}");
}

#[test]
fn a_warning_about_a_template_kept_the_file_from_being_used() {
    let folder = Folder::new("warning");
    folder.put("t.json", "{}");
    let check = |path: &Path, _: &Writer| {
        let warning = Mistake {
            level: Severity::Warning,
            file: path.display().to_string(),
            what: "the template is not followed exactly".into(),
            ..Mistake::default()
        };
        TemplateAnswer { mistakes: vec![warning], ..TemplateAnswer::default() }
    };
    let text = format!("{SOURCE}[sink.f]\nkind = \"nexus\"\ntemplate = \"t.json\"\n");
    let instrument = parse(&text, &folder.0.join("z.toml"), &check).unwrap();
    assert_eq!(instrument.warnings.len(), 1);
    assert!(instrument.warnings[0].to_string().starts_with("warning: "), "{}", instrument.warnings[0]);
    // A warning is listed beside mistakes and does not count as one.
    let mistakes = parse(&format!("{text}flush = 1\n"), &folder.0.join("z.toml"), &check).unwrap_err();
    let levels: Vec<Severity> = mistakes.iter().map(|mistake| mistake.level).collect();
    assert_eq!(levels, [Severity::Error, Severity::Warning], "{mistakes:#?}");
}

#[test]
fn one_wrong_key_of_a_source_was_told_again_for_each_module() {
    let folder = Folder::new("once");
    folder.put("t.json", "{}");
    let of_nobody = |n: usize| StreamModule {
        source: Some(format!("nobody{n}")),
        ..module(&n.to_string(), "f144", "stream", "pvs")
    };
    let modules: Vec<StreamModule> = (0..3).map(of_nobody).collect();
    let source = "[source.pvs]\nkind = \"sim\"\nmodel = \"camera-metadata\"\n";
    let sink = "[sink.f]\nkind = \"nexus\"\ntemplate = \"t.json\"\ninputs = [\"pvs\"]\n";
    let of = |more: &str| {
        let text = format!("instrument = \"a\"\n{source}{more}{sink}");
        with_modules(&text, &folder.0.join("z.toml"), &modules).unwrap_err()
    };
    assert_eq!(of("").len(), 3);
    let wrong = of("values = 5000000\n");
    assert_eq!(wrong.len(), 1, "{wrong:#?}");
}

#[test]
fn a_template_that_names_a_stream_nobody_brings_is_refused() {
    let folder = Folder::new("streams");
    folder.put(
        "t.json",
        "{\"children\": [\n{\"module\": \"ev44\", \"config\": {\"stream\": \"x\"}},\n{\"module\": \"f144\", \"config\": {\"topic\": \"devcies\"}}]}",
    );
    let second = "[source.devices]\nkind = \"sim\"\nmodel = \"amor-devices\"\n";
    let modules = [module("0", "ev44", "stream", "x"), module("1", "f144", "topic", "devcies")];
    let told = |more: &str, inputs: &str| {
        let text = format!("{SOURCE}{more}[sink.f]\nkind = \"nexus\"\ntemplate = \"t.json\"\n{inputs}");
        let mistakes = with_modules(&text, &folder.0.join("z.toml"), &modules).unwrap_err();
        assert!(mistakes.iter().all(|m| m.pointer.is_empty() || m.pointer.contains("/config/")), "{mistakes:#?}");
        mistakes.into_iter().map(|m| (!m.pointer.is_empty(), m.line, m.what, m.hint)).collect::<Vec<_>>()
    };
    let nobody = "no source fills stream `devcies`";
    assert_eq!(told("", ""), [(true, 3, nobody.into(), "streams are x".into())]);
    assert_eq!(told(second, ""), [(true, 3, nobody.into(), "did you mean `devices`?".into())]);
    assert_eq!(
        told(second, "inputs = [\"devices\"]\n"),
        [
            (true, 2, "sink `f` does not take stream `x`".into(), "add `x` to `inputs`".into()),
            (true, 3, nobody.into(), "did you mean `devices`?".into()),
        ]
    );
    // One mistake in the inputs is reported once, and hides no other.
    let all = told(second, "inputs = [\"y\"]\n");
    assert!(all.len() == 2 && all[1] == (true, 3, nobody.into(), "did you mean `devices`?".into()), "{all:?}");
}

#[test]
fn a_module_for_which_nothing_comes_is_refused() {
    let folder = Folder::new("nothing-comes");
    folder.put("t.json", "{}");
    let devices = "instrument = \"a\"\n[source.devices]\nkind = \"sim\"\nmodel = \"amor-devices\"\n";
    let text = format!("{devices}[sink.f]\nkind = \"nexus\"\ntemplate = \"t.json\"\n");
    let told = |word: &str, source: &str, units: Option<ConfigText>| {
        let source = (!source.is_empty()).then(|| source.to_owned());
        let module = StreamModule { source, units, ..module("0/children/0", word, "stream", "devices") };
        let mistakes = with_modules(&text, &folder.0.join("z.toml"), &[module]).err().unwrap_or_default();
        mistakes.into_iter().map(|m| (format!("{} {}", m.what, m.pointer), m.hint)).collect::<Vec<_>>()
    };
    let at = "/children/0/children/0/config";
    let kelvin = Some(config_text("value_units", "K"));
    for (word, source, units) in
        [("f144", "AMOR:SE:TEMP01", kelvin), ("f142", "", None), ("al00", "AMOR:SE:TEMP01", None), ("mine", "", None)]
    {
        assert_eq!(told(word, source, units), [], "{word}");
    }
    assert_eq!(told("ev44", "", None)[0].0, format!("stream `devices` has nothing for the module `ev44` {at}/stream"));
    let (what, hint) = told("f144", "AMOR:SE:TENP01", None).remove(0);
    assert_eq!(
        (what, hint),
        (
            format!("stream `devices` has no origin `AMOR:SE:TENP01` {at}/source"),
            "did you mean `AMOR:SE:TEMP01`?".into()
        )
    );
    // Events, too, have an origin.
    let of_events = |source: &str, keys: &str| {
        let module = StreamModule { source: Some(source.into()), ..module("0", "ev44", "stream", "d") };
        let text = format!(
            "instrument = \"a\"\n[source.d]\nkind = \"sim\"\nmodel = \"amor\"\n{keys}[sink.f]\nkind = \"nexus\"\ntemplate = \"t.json\"\n"
        );
        let mistakes = with_modules(&text, &folder.0.join("z.toml"), &[module]).err().unwrap_or_default();
        mistakes.into_iter().map(|m| m.hint).collect::<Vec<_>>()
    };
    assert_eq!(of_events("nope", ""), ["write `amor_detector`"]);
    assert_eq!(of_events("amor_detector", "origin = \"other\"\n"), ["write `other`"]);
    assert!(of_events("amor_detector", "").is_empty() && of_events("other", "origin = \"other\"\n").is_empty());
    for (key, unit) in [("value_units", "degC"), ("unit", "mm")] {
        let (what, hint) = told("f144", "AMOR:SE:TEMP01", Some(config_text(key, unit))).remove(0);
        assert_eq!(what, format!("the values of `AMOR:SE:TEMP01` are not in `{unit}` {at}/{key}"));
        assert_eq!(hint, format!("write \"{key}\": \"K\""));
    }
}

#[test]
fn what_a_ready_made_worker_never_sends_is_refused() {
    let folder = Folder::new("worker-sends");
    folder.put("t.json", "{}");
    let told = |worker: &str, module: StreamModule| {
        let text = format!(
            "{SOURCE}[worker.w]\ninputs = [\"x\"]\n{worker}\n\
             [sink.f]\nkind = \"nexus\"\ntemplate = \"t.json\"\ninputs = [\"w\"]\n"
        );
        let mistakes = with_modules(&text, &folder.0.join("z.toml"), &[module]).err().unwrap_or_default();
        mistakes.into_iter().map(|m| (m.pointer, m.what, m.hint)).collect::<Vec<_>>()
    };
    let spectrum = "call = \"histogram\"\nparameters = { to = \"71 ms\", bins = 7 }";
    let of = |variable: &str| StreamModule {
        variables: vec![config_text("variables/0/name", variable)],
        source: Some("w".into()),
        ..module("0", "da00", "stream", "w")
    };
    assert_eq!(told(spectrum, of("time_of_flight")), []);
    // It has no axis of pixels.
    let wrong = told(spectrum, of("pixel_id"));
    assert!(wrong.len() == 1 && wrong[0].1.contains("no variable `pixel_id`"), "{wrong:?}");
    assert_eq!(told("call = \"histogram\"\nparameters.pixels = 4", of("pixel_id")), []);
    let wrong = told(spectrum, StreamModule { source: Some("v".into()), ..of("signal") });
    assert!(wrong.len() == 1 && wrong[0].1.contains("no origin `v`") && wrong[0].2 == "write `w`", "{wrong:?}");
    let wrong = told(spectrum, module("0", "ev44", "stream", "w"));
    assert!(wrong.len() == 1 && wrong[0].1.contains("nothing for the module `ev44`"), "{wrong:?}");
    let groups = |make: &str| format!("call = \"groups\"\nparameters = {{ gap = \"1 us\", make = \"{make}\" }}");
    assert_eq!(told(&groups("rows"), module("0", "bpgr", "stream", "w")), []);
    assert_eq!(told(&groups("rows"), module("0", "ev44", "stream", "w")).len(), 1);
    // Those of the input: that is not asked.
    assert_eq!(told(&groups("messages"), module("0", "ev44", "stream", "w")), []);
}

#[test]
fn a_variable_that_is_never_sent_is_refused() {
    let folder = Folder::new("never-sent");
    folder.put("t.json", "{}");
    let text = "instrument = \"a\"\n[source.m]\nkind = \"sim\"\nmodel = \"amor-monitor\"\n[sink.f]\nkind = \"nexus\"\ntemplate = \"t.json\"\n";
    let told = |variables: &[ConfigText]| {
        let module = StreamModule { variables: variables.to_vec(), ..module("0", "da00", "stream", "m") };
        let mistakes = with_modules(text, &folder.0.join("z.toml"), &[module]).err().unwrap_or_default();
        mistakes.into_iter().map(|m| (m.pointer, m.hint)).collect::<Vec<_>>()
    };
    let signal = config_text("variables/0/name", "signal");
    assert_eq!(told(&[signal.clone(), config_text("variables/1/name", "tof")]), []);
    assert_eq!(
        told(&[signal.clone(), config_text("variables/1/name", "signol")]),
        [("/children/0/config/variables/1/name".to_owned(), "did you mean `signal`?".to_owned())]
    );
    let at = "/children/0/config/constants/0/name".to_owned();
    assert_eq!(told(&[signal, config_text("constants/0/name", "nosuch")])[0].0, at);
}

#[test]
fn sinks_with_one_template_asked_for_it_each() {
    let folder = Folder::new("asked-once");
    folder.put("t.json", "{}");
    let asked = std::cell::Cell::new(0);
    let check = |_: &Path, _: &Writer| {
        asked.set(asked.get() + 1);
        TemplateAnswer::default()
    };
    let sink = |name: &str, more: &str| {
        format!("[sink.{name}]\nkind = \"nexus\"\ntemplate = \"t.json\"\nfolder = \"{name}\"\n{more}")
    };
    let text = [SOURCE, &sink("f", ""), &sink("g", "writers = 4\n"), &sink("h", "layout = \"ess\"\n")].concat();
    parse(&text, &folder.0.join("z.toml"), &check).unwrap();
    // The layout says what is a mistake.
    assert_eq!(asked.get(), 2);
}

/// What the file asks for and what the template itself has wrong: one look says all of it, with lines.
#[test]
fn mistakes_of_streams_and_of_the_template_come_together() {
    let folder = Folder::new("together");
    folder.put(
        "t.json",
        r#"{"children": [
{"module": "f144", "config": {"stream": "devces", "source": 7}},
{"module": "f144", "config": {"stream": "devices", "source": "AMOR:SE:TEMP02"}},
{"module": "ev44", "config": {"stream": 7, "topic": "x"}},
{"module": "ev44", "config": {"stream": "devices"}},
{"module": "f144", "config": {"stream": "devices", "source": "AMOR:SE:TEMP01",
    "value_units": "mm", "chunk_size": "abc"}}]}"#,
    );
    let own = |path: &Path, _: &Writer| {
        let of = |pointer: &str| Mistake {
            file: path.display().to_string(),
            pointer: pointer.into(),
            what: "own".into(),
            ..Mistake::default()
        };
        let temperature = |at: &str, n: u8| StreamModule {
            source: Some(format!("AMOR:SE:TEMP0{n}")),
            ..module(at, "f144", "stream", "devices")
        };
        TemplateAnswer {
            mistakes: vec![of("/children/4/config/chunk_size"), of("/children/2/config/stream"), of("")],
            modules: vec![
                module("0", "f144", "stream", "devces"),
                temperature("1", 2),
                StreamModule { streams: Vec::new(), ..module("2", "ev44", "stream", "") },
                module("3", "ev44", "stream", "devices"),
                StreamModule { units: Some(config_text("value_units", "mm")), ..temperature("4", 1) },
            ],
        }
    };
    let text = format!(
        "{SOURCE}[source.devices]\nkind = \"sim\"\nmodel = \"amor-devices\"\n[sink.f]\nkind = \"nexus\"\ntemplate = \"t.json\"\n"
    );
    let mistakes = parse(&text, &folder.0.join("z.toml"), &own).unwrap_err();
    let told: Vec<(u32, &str, &str)> =
        mistakes.iter().map(|m| (m.line, m.pointer.as_str(), m.what.split(' ').next().unwrap_or_default())).collect();
    assert_eq!(
        told,
        [
            (0, "", "own"),
            (2, "/children/0/config/stream", "no"),
            (3, "/children/1/config/source", "stream"),
            (4, "/children/2/config/stream", "own"),
            (5, "/children/3/config/stream", "stream"),
            (7, "/children/4/config/chunk_size", "own"),
            (7, "/children/4/config/value_units", "the"),
        ],
        "{mistakes:#?}"
    );
}

#[test]
fn a_replay_into_itself_is_refused() {
    let folder = Folder::new("itself");
    std::fs::create_dir_all(folder.0.join("streams")).unwrap();
    let text = "instrument = \"a\"\ndata = \"streams\"\n[source.x]\nkind = \"replay\"\nrun = \"r\"\nfrom_data = \"./streams\"\n";
    let mistakes = parse(text, &folder.0.join("a.toml"), &unasked).unwrap_err();
    assert_eq!((mistakes.len(), mistakes[0].line), (1, 6), "{mistakes:#?}");
    assert!(parse(&format!("{text}stream = \"y\"\n"), &folder.0.join("a.toml"), &unasked).is_ok());
}

#[test]
fn a_mistake_of_syntax_does_not_hide_the_others_and_invents_none() {
    // Line 1 is broken: that `instrument` is missing must not be reported too.
    let mistakes = wrong(
        "instrument = a\n[source.x]\nkind = \"sim\"\nmodel = \"amor\"\nlive = 3\n[source.y\nkind = 1\n[sink.f]\nkind = \"nexus\"\ntemplate = \"no\"\ninputs = [\"y\"]\n",
    );
    assert_eq!(mistakes.iter().map(|mistake| mistake.line).collect::<Vec<_>>(), [1, 5, 6, 10], "{mistakes:#?}");
}

#[test]
fn what_is_no_file_is_told_and_not_waited_for() {
    let folder = Folder::new("nofile");
    let refused = |path: &Path| read(path, &unasked).unwrap_err()[0].to_string();
    assert!(refused(&folder.0).contains("not a plain file"));
    assert!(refused(&folder.0.join("none.toml")).contains("No such file"));
    assert!(refused(Path::new("/dev/zero")).contains("not a plain file"));
    let pipe = std::ffi::CString::new(folder.0.join("pipe").to_str().unwrap()).unwrap();
    // SAFETY: the path is a valid C string that outlives the call.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
    assert!(refused(&folder.0.join("pipe")).contains("not a plain file"));
    std::fs::write(folder.0.join("long.toml"), vec![b'#'; (1 << 20) + 1]).unwrap();
    assert!(refused(&folder.0.join("long.toml")).contains("too long"));
    std::fs::write(folder.0.join("latin.toml"), b"a = 1\n# \xe9\n").unwrap();
    assert!(refused(&folder.0.join("latin.toml")).contains("latin.toml:2: the file is not text"));
}

#[test]
fn the_reference_page_has_every_key_and_no_other() {
    let registry = Registry::builtin();
    let page = std::fs::read_to_string(root().join("docs/reference/instrument-file.md")).unwrap();
    assert!(
        page.ends_with(&reference(&registry)),
        "docs/reference/instrument-file.md differs from `beamport reference instrument-file`: replace everything below its introduction"
    );
}

/// All tables: of sections, and of kinds.
fn tables() -> Vec<&'static [&'static Key]> {
    let registry = Registry::builtin();
    let sources = registry.sources().iter().map(|kind| kind.keys);
    let sinks = registry.sinks().iter().map(|kind| kind.keys());
    // `copy` has no parameters.
    let workers = registry.workers().iter().map(|kind| kind.keys).filter(|keys| !keys.is_empty());
    let carriers = registry.carriers().iter().map(|kind| kind.keys);
    let hosts = registry.carriers().iter().map(|kind| kind.host_keys).filter(|keys| !keys.is_empty());
    let carriers = carriers.chain(hosts);
    keys::TABLES.iter().map(|table| table.keys).chain(sources).chain(sinks).chain(workers).chain(carriers).collect()
}

/// The keys that a reader asks for in a section of these lines.
fn asked(lines: &str, read: &dyn Fn(&mut Section<'_>)) -> BTreeSet<&'static str> {
    let page = Page::new("a.toml".into(), lines);
    let document = settings::parse(&page, lines).document.unwrap();
    let mut mistakes = Mistakes::default();
    let mut section = Section {
        page: &page,
        folder: Path::new("/nowhere"),
        elsewhere: &|_| None,
        title: "[a.x]".into(),
        line: 1,
        table: document.as_table(),
        mistakes: &mut mistakes,
        has_holes: false,
        shown: Vec::new(),
        asked: Vec::new(),
    };
    read(&mut section);
    section.asked.into_iter().collect()
}

#[test]
fn each_kind_asks_for_the_keys_that_it_declares() {
    let registry = Registry::builtin();
    let around = Around { data: Path::new("/nowhere/data"), template_check: &unasked };
    // Its reader may give up early in none of them: a value that is wrong hides no other key.
    let check = |name: &str, keys: &[&'static Key], read: &dyn Fn(&mut Section<'_>)| {
        let declared: BTreeSet<&str> = keys.iter().map(|key| key.name).collect();
        let full: String = declared.iter().map(|key| format!("{key} = \"x\"\n")).collect();
        assert_eq!(asked("", read), declared, "an empty section of kind {name}");
        assert_eq!(asked(&full, read), declared, "a full section of kind {name}");
    };
    for kind in registry.sources() {
        check(kind.name, kind.keys, &|section| {
            (kind.read)("x", section);
            section.asked.retain(|key| kind.more.is_none_or(|more| (more.owner)(key).is_none()));
        });
    }
    for kind in registry.sinks() {
        check(kind.name(), kind.keys(), &|section| match kind {
            SinkKind::Files(kind) => drop((kind.read)("x", section, &around)),
            SinkKind::Live(kind) => drop((kind.read)("x", section)),
        });
    }
    for kind in registry.carriers() {
        check(kind.name, kind.keys, &|section| drop((kind.read)(section)));
        check(kind.name, kind.host_keys, &|section| drop((kind.read_host)("x", section)));
    }
    for kind in registry.workers() {
        check(kind.name, kind.keys, &|section| {
            (kind.read)(section);
        });
    }
}

#[test]
fn a_mistake_in_a_parameter_has_its_own_line() {
    let worker = |lines: &str| format!("{SOURCE}[worker.w]\ncall = \"histogram\"\ninputs = [\"x\"]\n{lines}");
    let (line, what, hint) = only(&worker("[worker.w.parameters]\npixels = 4\nof = \"year\"\n"));
    assert!(line == 10 && what.contains("`of` in [worker.w.parameters]; unknown word"), "{line} {what}");
    assert_eq!(hint, "write one of \"pulse\", \"start\"");
    let (line, what, hint) = only(&worker("parameters.pixels = 4\nparameters.pixel = 4\n"));
    assert!(line == 9 && what.contains("unknown key `pixel` in [worker.w.parameters]"), "{line} {what}");
    assert_eq!(hint, "did you mean `pixels`?");
    // A key of the worker among its parameters, and the reverse.
    let (line, _, hint) = only(&worker("pixels = 3\nparameters.pixels = 4\n"));
    assert_eq!((line, hint.as_str()), (8, "`pixels` belongs to [worker.NAME.parameters], call = \"histogram\""));
    let (line, _, hint) = only(&worker("parameters.pixels = 4\nparameters.slots = 2\n"));
    assert_eq!((line, hint.as_str()), (9, "`slots` belongs to [worker.NAME]"));
    let attach = "[worker.w.parameters.values.y]\nstream = \"x\"\ntake = \"first\"\n";
    let (line, what, _) = only(&worker(attach).replace("histogram", "attach"));
    assert!(line == 10 && what.contains("`take` in [worker.w.parameters.values.y]"), "{line} {what}");
}

#[test]
fn parameters_are_shown_one_by_one_with_their_origins() {
    let text = format!("{SOURCE}[worker.w]\ncall = \"histogram\"\ninputs = [\"x\"]\nparameters = {{ pixels = 4 }}\n");
    let shown = good(&text).show();
    let row = |start: &str| shown.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{shown}"));
    assert!(row("parameters.pixels = 4").ends_with("# a.toml:8"), "{shown}");
    assert!(row("parameters.first_pixel = 1").ends_with("# default"), "{shown}");
    assert!(!shown.contains("parameters ="), "{shown}");
    let json = good(&text).show_json();
    assert_eq!(json["sections"][1]["settings"]["parameters.of"], serde_json::json!({"value": "pulse", "line": null}));
    // It reads back.
    assert_eq!(good(&shown).workers().next().unwrap().parameters.0["of"], "pulse", "{shown}");
}

#[test]
fn the_reference_page_of_workers_has_every_parameter_and_no_other() {
    let page = std::fs::read_to_string(root().join("docs/reference/workers.md")).unwrap();
    assert!(
        page.ends_with(&workers_reference(&Registry::builtin())),
        "docs/reference/workers.md differs from `beamport reference workers`: replace everything below its introduction"
    );
}

#[test]
fn a_program_may_know_another_ready_made_worker() {
    #[derive(Debug)]
    struct Plan;
    impl flow::edge::WorkerPlan for Plan {
        fn needs(&self) -> flow::edge::Needs {
            flow::edge::Needs { alone: Some("it counts"), ..Default::default() }
        }
        fn build(&self, place: &flow::edge::WorkerPlace) -> Result<Box<dyn flow::Worker + Send>, flow::Fault> {
            workers::COPY.plan(&serde_json::json!({})).map_or_else(|_| unreachable!(), |plan| plan.build(place))
        }
    }
    static LEAST: Key = settings::required("least", "number, 1 to 9", "Its own.");
    static OTHER: flow::edge::WorkerKind = flow::edge::WorkerKind {
        name: "other",
        about: "Another one.",
        keys: &[&LEAST],
        read: |section| section.within(&LEAST, 1..=9).map(|_| std::sync::Arc::new(Plan) as _),
        notes: "",
    };
    let registry = Registry::builtin().worker(&OTHER);
    let file = |lines: &str| {
        let text = format!("{SOURCE}[worker.w]\ncall = \"other\"\ninputs = [\"x\"]\n{lines}\n");
        super::parse(&text, Path::new("/nowhere/a.toml"), &registry, &unasked)
    };
    let told = |lines: &str| {
        let mistakes = file(lines).unwrap_err();
        mistakes.iter().map(|mistake| (mistake.line, mistake.to_string())).collect::<Vec<_>>()
    };
    assert!(file("parameters.least = 3").is_ok());
    let wrong = told("parameters.least = 10");
    assert!(wrong.len() == 1 && wrong[0].0 == 8 && wrong[0].1.contains("10 is out of range"), "{wrong:?}");
    let wrong = told("parameters.least = 3\nslots = 2");
    assert!(wrong.len() == 1 && wrong[0].0 == 9 && wrong[0].1.contains("it counts"), "{wrong:?}");
    assert!(told("")[0].1.contains("`least` is missing in [worker.w.parameters]"));
    assert!(workers_reference(&registry).contains("## other\n\nAnother one.\n\n| key |"));
}

/// A live sink that goes nowhere.
#[derive(Debug)]
struct Nowhere;

impl LivePlan for Nowhere {
    fn build(&self, _: &[String]) -> Result<Box<dyn LiveSink>, Fault> {
        Err(Fault::new("nowhere", "to be found"))
    }
}

static NOWHERE: LiveKind =
    LiveKind { name: "nowhere", about: "Nothing.", keys: &[], read: |_, _| Some(Arc::new(Nowhere)) };

/// Reads a file whose program knows the live sink.
fn with_nowhere(text: &str, path: &Path) -> Result<Instrument, Vec<Mistake>> {
    let registry = Registry::builtin().sink(&NOWHERE);
    super::parse(text, path, &registry, &unasked)
}

#[test]
fn a_live_sink_is_a_stage_that_fills_no_stream_and_reads_any() {
    let sink = "[sink.out]\nkind = \"nowhere\"\ninputs = [\"all\", \"x\"]\nearly = true\n";
    let merge = "[merge.all]\nkind = \"time\"\ninputs = [\"x\"]\n";
    let source = "[source.x]\nkind = \"sim\"\nmodel = \"detector\"\n";
    // It may be above what it reads.
    let text = format!("instrument = \"a\"\n{sink}{merge}{source}");
    let path = Path::new("a.toml");
    let instrument = with_nowhere(&text, path).unwrap();
    let names: Vec<&str> = instrument.stages.iter().map(Stage::name).collect();
    assert_eq!(names, ["x", "all", "out"]);
    let live = instrument.live_sinks().next().unwrap();
    assert_eq!((live.inputs.value.join(","), live.early.value, instrument.sinks.len()), ("all,x".into(), true, 0));
    assert!(instrument.stage("out").is_none() && instrument.stage("all").is_some());
    let shown = instrument.show();
    assert!(shown.contains("[sink.out]") && shown.contains("early = true"), "{shown}");
    assert_eq!(with_nowhere(&shown, path).unwrap().live_sinks().count(), 1);

    let of = |text: &str| -> Vec<_> {
        let mistakes = with_nowhere(text, path).unwrap_err();
        mistakes.into_iter().map(|mistake| (mistake.line, mistake.what)).collect()
    };
    let wrong = text.replace("[\"all\", \"x\"]", "[\"x\", \"x\", \"y\"]").replace("[sink.out]", "[sink.all]");
    let expected =
        [(2, "sink `all` has the name of a merge"), (4, "sink `all` takes `x` twice"), (4, "sink `all` takes `y`")];
    assert_eq!(of(&wrong), expected.map(|(line, what)| (line, what.to_owned())));
    // Nobody reads a sink.
    let wrong = format!("{text}[merge.two]\nkind = \"time\"\ninputs = [\"out\"]\n");
    assert_eq!(of(&wrong), [(14, "merge `two` takes `out`".to_owned())]);
    let wrong = text.replace("inputs = [\"all\", \"x\"]\n", "");
    assert_eq!(of(&wrong), [(2, "`inputs` is missing in [sink.out]".to_owned())]);
}

#[test]
fn check_said_good_of_a_sink_that_sends_to_the_topic_of_its_source() {
    let text = "instrument = \"a\"\n[source.x]\nkind = \"kafka\"\nbrokers = \"one:9092\"\ntopics = [\"loop\"]\n\
                [sink.out]\nkind = \"kafka\"\ninputs = [\"x\"]\nbrokers = \"one:9092\"\ntopic = \"loop\"\n";
    let told = |text: &str| -> Vec<_> {
        let mistakes = parse(text, Path::new("a.toml"), &unasked).err().unwrap_or_default();
        let loops = mistakes.into_iter().filter(|mistake| mistake.cause.contains("reads topic `loop`"));
        loops.map(|mistake| (mistake.line, mistake.what)).collect()
    };
    assert_eq!(told(text), [(10, "wrong value of `topic` in [sink.out]".to_owned())]);
    assert_eq!(told(&text.replace("topic = \"loop\"", "topic = \"other\"")), []);
}

#[test]
fn a_family_is_as_many_sections_each_with_its_own_items() {
    let text = "instrument = \"a\"\n[source.\"d{08..10}\"]\nkind = \"sim\"\nmodel = \"detector\"\ndetector = \"{1..3}\"\n\
                origin = \"x{1..3}y\"\n[merge.all]\nkind = \"time\"\ninputs = [\"d{08..10}\"]\n";
    let instrument = good(text);
    let names: Vec<&str> = instrument.sources().map(|source| source.name.as_str()).collect();
    assert_eq!(names, ["d08", "d09", "d10"]);
    assert_eq!(*instrument.merges().next().unwrap().inputs, ["d08", "d09", "d10"]);
    let plans: Vec<_> = instrument.sources().map(|source| source.plan.sends().unwrap().origins).collect();
    assert_eq!(plans, [["x1y"], ["x2y"], ["x3y"]]);
    // `check --show` prints them one by one, and its output reads back.
    let shown = instrument.show();
    assert!(shown.contains("[source.d09]") && !shown.contains(".."), "{shown}");
    assert_eq!(good(&shown).sources().count(), 3);
}

#[test]
fn mistakes_in_a_family_are_told_once() {
    let family = |more: &str| {
        format!("instrument = \"a\"\n[source.\"d{{1..3}}\"]\nkind = \"sim\"\nmodel = \"detector\"\n{more}\n")
    };
    let (line, what, _) = only(&family("detector = \"{1..4}\""));
    assert!(line == 5 && what.contains("4 items") && what.contains("has 3"), "{what}");
    let (line, what, _) = only(&family("detectr = 1"));
    assert!(line == 5 && what.contains("unknown key `detectr`"), "{what}");
    let (_, what, _) = only(&family("[source.d2]\nkind = \"sim\"\nmodel = \"detector\""));
    assert!(what.contains("given twice"), "{what}");
    for header in ["d{3..1}", "d{1..99999}", "d{a..b}"] {
        let (line, what, hint) = only(&family("").replace("d{1..3}", header));
        assert!(line == 2 && what.contains("wrong name of") && hint.contains("{001..120}"), "{what}; {hint}");
    }
}

#[test]
fn ranges_of_a_hostile_file_do_not_fill_the_memory() {
    let keys = "kind = \"time\"\ninputs = [\"d{1..9999}\", \"e{1..99999}\"]\nwait = \"{1..9000} s\"\n";
    let text =
        format!("instrument = \"a\"\n[source.x]\nkind = \"sim\"\nmodel = \"amor\"\n[merge.\"m{{1..9000}}\"]\n{keys}");
    let mistakes = wrong(&text);
    assert!(mistakes.iter().any(|m| m.cause.contains("are possible")), "{}", mistakes[0]);
}

#[test]
fn a_program_may_know_another_kind_of_source() {
    static SLOW: Key = settings::key("slow", "duration", "1 s", "A key of its own.");
    static OTHER: flow::edge::SourceKind = flow::edge::SourceKind {
        name: "other",
        about: "Another one.",
        keys: &[&SLOW],
        read: |_, section| {
            let _: Setting<Duration> = section.need(&SLOW);
            None
        },
        more: None,
    };
    let registry = Registry::builtin().source(&OTHER);
    let text = "instrument = \"a\"\n[source.x]\nkind = \"other\"\nslow = 1\nfast = 2\n[source.y]\nkind = \"othr\"\n";
    let mistakes = super::parse(text, Path::new("/nowhere/a.toml"), &registry, &unasked).unwrap_err();
    let told: Vec<(u32, &str)> = mistakes.iter().map(|mistake| (mistake.line, mistake.hint.as_str())).collect();
    assert_eq!(told[0], (4, "write a text with a unit, like `\"1 s\"`"));
    assert!(told[1].0 == 5 && told[1].1.contains("slow"), "{told:?}");
    assert_eq!(told[2], (7, "did you mean `other`?"));
    assert!(reference(&registry).contains("| `other` | Another one. |") && reference(&registry).contains("`slow`"));
}

#[test]
fn the_keys_of_a_stream_are_the_same_for_sources_merges_and_workers() {
    let keys = "level = \"disk\"\nwhen_full = \"drop-oldest\"\nlive = \"2 MiB\"\nretain = \"1 GB\"\nretain_age = \"1 h\"\n\
                keep_free = \"2 GB\"\n";
    let merge = "[merge.m]\nkind = \"time\"\ninputs = [\"x\"]\n";
    let worker = "[worker.w]\ncall = \"copy\"\ninputs = [\"x\"]\n";
    let file = good(&format!("{SOURCE}{keys}{merge}{keys}{worker}{keys}"));
    assert_eq!(file.stages.len(), 3);
    for stage in &file.stages {
        let options = stage.stream().unwrap().options();
        assert_eq!(
            (options.level, options.when_full, options.live_bytes),
            (Level::Disk, WhenFull::DropOldest, 2 << 20)
        );
        assert_eq!((options.retain_bytes, options.keep_free_bytes), (Some(1_000_000_000), Some(2_000_000_000)));
        assert_eq!(options.retain_age_ns, Some(3_600_000_000_000), "{}", stage.name());
    }
    for stage in [merge, worker] {
        let file = |keys: &str| format!("{SOURCE}level = \"memory\"\n{stage}{keys}\n");
        // The level follows from the inputs.
        let (line, what, hint) = only(&file("keep_free = \"1 GB\""));
        assert!(
            line == 9 && what.contains("wrong value of `keep_free`") && hint.contains("level = \"disk\""),
            "{what}"
        );
        let (line, what, _) = only(&file("retain = \"1 GB\""));
        assert!(line == 9 && what.contains("at most `live`, 16 MiB"), "{what}");
        let shown = good(&file("")).show();
        assert_eq!(shown.matches("retain = \"16 MiB\"").count(), 1, "{shown}");
        let (_, what, hint) = only(&file("level = \"memory\"\nkeep_free = \"1 GB\""));
        assert!(what.contains("needs no disk") && hint.contains("remove it"), "{what}");
        let (_, what, hint) = only(&file("when_full = \"drop-newest\""));
        assert!(what.contains("unknown word `drop-newest`") && hint.contains("drop-oldest"), "{what}; {hint}");
    }
    let (_, what, _) = only(&format!("{SOURCE}{merge}retain = \"1 MiB\"\n"));
    assert!(what.contains("less than `live`, 16 MiB"), "{what}");
}

#[test]
fn every_default_can_be_read_by_its_own_key() {
    // A default that its parser refuses would turn up as a missing value; all sections are read here with nothing but what is required.
    let folder = Folder::new("defaults");
    folder.put("t.json", "{}");
    std::fs::create_dir_all(folder.0.join("d")).unwrap();
    let workers = "[source.v]\nkind = \"file\"\npath = \"t.json\"\nformat = \"geb\"\n\
                   [worker.a]\ncall = \"attach\"\ninputs = [\"x\"]\nparameters.values.y = \"m\"\n\
                   [worker.b]\ncall = \"filter\"\ninputs = [\"x\"]\nparameters.keep = \"events > 0\"\n\
                   [worker.c]\ncall = \"groups\"\ninputs = [\"x\"]\nparameters.find = \"trigger\"\n\
                   [worker.i]\ncall = \"groups\"\ninputs = [\"x\"]\nparameters.members = [\"x\"]\n\
                   parameters.gap = \"1 us\"\nparameters.make = \"frames\"\nparameters.shape = [2]\n\
                   [worker.d]\ncall = \"histogram\"\ninputs = [\"x\"]\nparameters.pixels = 3\n\
                   [worker.e]\ncall = \"stitch\"\ninputs = [\"x\"]\n\
                   [worker.h]\ncall = \"groups\"\ninputs = [\"x\"]\nparameters.find = \"a:b\"\n";
    let text = format!(
        "{SOURCE}[source.y]\nkind = \"replay\"\nrun = \"r\"\nfrom_data = \"d\"\n[source.z]\nkind = \"pva\"\npvs = [\"fake:A\"]\n[source.u]\nkind = \"udp\"\nlisten = \"127.0.0.1:9001\"\nframing = \"raw\"\nboards = {{ rate = 10 }}\n[merge.m]\nkind = \"time\"\ninputs = [\"x\"]\n[merge.n]\nkind = \"number\"\ninputs = [\"x\"]\n[worker.w]\ncall = \"a:b\"\ninputs = [\"m\"]\n{}[sink.f]\nkind = \"nexus\"\ntemplate = \"t.json\"\n[sink.g]\nkind = \"files\"\ninputs = [\"x\"]\n[sink.live]\nkind = \"nowhere\"\ninputs = [\"x\"]\n[run.r]\n\
         [hosts]\ncarrier = \"https\"\n[host.h]\n",
        workers
    );
    let file = with_nowhere(&text, &folder.0.join("a.toml")).unwrap();
    let text = file.show();
    let shown: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.split(" = ").next())
        .map(|key| key.trim_start_matches("parameters."))
        .collect();
    // Their sections are refused where the libraries of EPICS or Kafka are missing.
    let carried = [kafka::CARRIER.keys, keys::BUILDERS.keys];
    let unbuilt = [epics::SINK.keys, kafka::SOURCE.keys, kafka::SINK.keys].into_iter().chain(carried);
    let unbuilt: Vec<_> = unbuilt.collect();
    let built = tables().into_iter().filter(|keys| !unbuilt.contains(keys));
    for key in built.flatten().filter(|key| !key.default.is_empty()) {
        assert!(shown.contains(key.name), "`{}` has a default that is not used", key.name);
    }
}

#[test]
fn keys_stand_once_in_each_place() {
    for table in tables() {
        let names: Vec<&str> = table.iter().map(|key| key.name).collect();
        assert_eq!(names.len(), names.iter().collect::<BTreeSet<_>>().len(), "{names:?}");
    }
    // A key of a kind that had the name of a key of every source could never be set.
    let every: BTreeSet<&str> = keys::SOURCE.keys.iter().map(|key| key.name).collect();
    for kind in Registry::builtin().sources() {
        assert!(kind.keys.iter().all(|key| !every.contains(key.name)), "{}", kind.name);
        assert!(kind.more.is_none_or(|more| every.iter().all(|key| (more.owner)(key).is_none())), "{}", kind.name);
    }
}

const FILES: &str = "[sink.images]\nkind = \"files\"\ninputs = [\"x\"]\n";

#[test]
fn files_of_frames_have_a_folder_for_each_run() {
    let sink = |more: &str| good(&format!("{SOURCE}{FILES}{more}")).sinks.remove(0);
    let plain = sink("");
    let work = |compression| Work::Frames { max: 1000, compression };
    assert_eq!((&plain.work, plain.flush.value), (&work(Compression::None), Duration::from_secs(1)));
    assert_eq!(sink("compression = \"deflate\"\n").work, work(Compression::Deflate));
    let files = plain.path_of("a", "first");
    assert!(files.ends_with("files/a_first_images/{stream}_{number}.h5"), "{}", files.display());
    let other = sink("folder = \"/data\"\nfile = \"{run}/{number}\"\nframes = 1\n");
    assert_eq!(other.path_of("a", "first"), Path::new("/data/first/{number}"));
}

#[test]
fn wrong_files_of_frames_are_told() {
    for (lines, cause, hint) in [
        ("frames = 0", "files of 0 frames", "1 to 1000000"),
        ("file = \"{run}.h5\"", "not a folder and a file", "{instrument}_{run}/{stream}_{number}.h5"),
        ("file = \"a/{number}\"", "same for every run", "{run}"),
        ("file = \"{run}/a.h5\"", "same for every file", "{number}"),
        ("file = \"{run}/../{number}\"", "not a folder and a file", ""),
        ("file = \"../{run}{number}\"", "begins with a dot", ""),
        ("file = \"{run}/.{number}\"", "is not a name for files", ""),
        ("file = \"{run}/{number}{day}\"", "unknown placeholder", ""),
        ("file = \"{run}{stream}/{number}\"", "unknown placeholder", ""),
        ("compression = \"gzip\"", "gzip", "bitshuffle-lz4"),
        ("template = \"t.json\"", "unknown key `template`", ""),
        ("flush = \"1 ms\"", "too short", ""),
    ] {
        let (_, told, help) = only(&format!("{SOURCE}{FILES}{lines}\n"));
        assert!(told.contains(cause) && help.contains(hint), "{lines}: {told}; {help}");
    }
    let two = "[source.y]\nkind = \"sim\"\nmodel = \"amor\"\n";
    let both = FILES.replace("[\"x\"]", "[\"x\", \"y\"]");
    let (_, told, help) = only(&format!("{SOURCE}{two}{both}file = \"{{run}}/{{number}}\"\n"));
    assert!(told.contains("same for every stream") && help.contains("{stream}"), "{told}; {help}");
    let same = "file = \"{run}/a{number}\"\n";
    let other = FILES.replace("images", "others");
    let (_, told, _) = only(&format!("{SOURCE}{FILES}{same}{other}{}", same.replace('a', "b")));
    assert!(told.contains("write the same file"), "{told}");
    let (_, told, _) = only(&format!("{SOURCE}[sink.images]\nkind = \"files\"\n"));
    assert!(told.contains("`inputs` is missing"), "{told}");
}

#[test]
fn two_sources_that_listen_at_one_address_are_a_mistake() {
    let udp = |name: &str, listen: &str, more: &str| {
        format!("[source.{name}]\nkind = \"udp\"\nframing = \"raw\"\nlisten = \"{listen}\"\n{more}")
    };
    let found = |first: &str, second: &str, more: [&str; 2]| {
        let text = format!("instrument = \"x\"\n{}{}", udp("a", first, more[0]), udp("b", second, more[1]));
        parse(&text, Path::new("a.toml"), &|_, _| TemplateAnswer::default()).err().unwrap_or_default()
    };
    for (first, second) in
        [("127.0.0.1:9001", "127.0.0.1:9001"), ("0.0.0.0:9001", "10.0.0.1:9001"), ("[::1]:9001", "[::]:9001")]
    {
        let mistakes = found(first, second, ["", ""]);
        assert_eq!(mistakes.len(), 1, "{mistakes:#?}");
        assert_eq!(mistakes[0].line, 9, "{mistakes:#?}");
        assert_eq!(mistakes[0].what, format!("source `b` cannot listen at {second}"));
        assert_eq!(mistakes[0].cause, format!("source `a` listens at {first}"));
    }
    let apart = ["interface = \"eth0\"\n", "interface = \"eth1\"\n"];
    assert_eq!(found("0.0.0.0:9001", "0.0.0.0:9001", apart), []);
    assert_eq!(found("127.0.0.1:9001", "127.0.0.1:9002", ["", ""]), []);
    assert_eq!(found("127.0.0.1:9001", "127.0.0.2:9001", ["", ""]), []);
}
