//! Every module that is fed by a stream: what its group holds after messages of its schemas, after hostile ones, and after
//! going on with what another process left. Events, logs, monitors and alarms are in `writing.rs`, frames in `frames.rs`.

use crate::messages;
use crate::messages::{Made, START, any, events, give, image, job, made, others};
use beamport_nexus::template::{Layout, Level, Template};
use beamport_nexus::{Job, Nexus};
use flow::Sink;
use std::path::{Path, PathBuf};
use wire::Message;

/// A job of the stream `s`, with groups `NAME` of what follows: `("log", r#"{"module": "f144", ...}"#)`.
fn job_of(name: &str, groups: &[(&str, &str)]) -> Job {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("modules-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let groups: Vec<String> = groups
        .iter()
        .map(|(name, modules)| format!(r#"{{"type": "group", "name": "{name}", "children": [{modules}]}}"#))
        .collect();
    let text = format!(
        r#"{{"children": [{{"type": "group", "name": "entry", "attributes": {{"NX_class": "NXentry"}}, "children": [{}]}}]}}"#,
        groups.join(", ")
    );
    let template = Template::parse(text.as_bytes()).unwrap_or_else(|m| panic!("{m:?}"));
    Job { template, inputs: vec!["s".into()], ..job(&folder.join(format!("{name}.nxs"))) }
}

/// A text attribute of a group of the entry.
fn attribute(job: &Job, group: &str, name: &str) -> String {
    let file = hdf5_metno::File::open(&job.file).unwrap();
    let attribute = file.group(&format!("entry/{group}")).unwrap().attr(name).unwrap();
    attribute.read_scalar::<hdf5_metno::types::VarLenUnicode>().unwrap().as_str().to_owned()
}

/// Texts, or numbers, of a dataset or an attribute.
fn values(of: &hdf5_metno::Container) -> (Vec<String>, Vec<f64>) {
    use hdf5_metno::types::{TypeDescriptor, VarLenUnicode};
    match of.dtype().unwrap().to_descriptor().unwrap() {
        TypeDescriptor::VarLenUnicode => {
            let texts = of.read_raw::<VarLenUnicode>().unwrap();
            (texts.iter().map(|text| text.as_str().to_owned()).collect(), vec![])
        }
        _ => (vec![], of.read_raw::<f64>().unwrap()),
    }
}

/// The same of JSON.
fn values_of(json: &serde_json::Value) -> (Vec<String>, Vec<f64>) {
    match json {
        serde_json::Value::String(text) => (vec![text.clone()], vec![]),
        serde_json::Value::Array(list) => {
            let all: Vec<_> = list.iter().map(values_of).collect();
            (all.iter().flat_map(|one| one.0.clone()).collect(), all.iter().flat_map(|one| one.1.clone()).collect())
        }
        number => (vec![], vec![number.as_f64().unwrap()]),
    }
}

/// Compares what the template says of an object with the file: in `changed` are paths of what is another thing there.
fn compare(at: &str, said: &serde_json::Value, of: &hdf5_metno::Container, changed: &[&str]) {
    if changed.contains(&at) {
        return;
    }
    let (said, found) = (values_of(said), values(of));
    let is_near = |(one, other): (&f64, &f64)| (one - other).abs() <= 1e-6 * one.abs();
    assert_eq!(said.0, found.0, "{at}");
    assert!(said.1.len() == found.1.len() && said.1.iter().zip(&found.1).all(is_near), "{at}: {said:?} {found:?}");
}

fn walk_attributes(at: &str, node: &serde_json::Value, of: &hdf5_metno::Location, changed: &[&str]) {
    let mut said = std::collections::BTreeMap::new();
    for one in node["attributes"].as_array().into_iter().flatten() {
        let value = ["values", "value"].into_iter().find_map(|key| one.get(key)).unwrap();
        said.insert(one["name"].as_str().unwrap(), value);
    }
    said.extend(node["attributes"].as_object().into_iter().flatten().map(|(name, value)| (name.as_str(), value)));
    for (name, value) in said {
        let attribute = of.attr(name).unwrap_or_else(|e| panic!("{at}@{name}: {e}"));
        compare(&format!("{at}@{name}"), value, &attribute, changed);
    }
}

/// That the file has every group, dataset, link and attribute of the template, with its value.
fn walk(file: &hdf5_metno::File, at: &str, node: &serde_json::Value, changed: &[&str]) {
    let group = file.group(if at.is_empty() { "/" } else { at }).unwrap_or_else(|e| panic!("{at}: {e}"));
    walk_attributes(at, node, &group, changed);
    for child in node["children"].as_array().into_iter().flatten() {
        let config = &child["config"];
        let named = if child["module"].is_string() { config } else { child };
        let name = named["name"].as_str().unwrap_or_default();
        let path = format!("{at}/{name}");
        match child["module"].as_str() {
            None => walk(file, &path, child, changed),
            Some("dataset") => {
                let dataset = file.dataset(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
                if let Some(said) = config.get("values").or_else(|| config.get("value")) {
                    compare(&path, said, &dataset, changed);
                }
                walk_attributes(&path, child, &dataset, changed);
            }
            Some("link") => assert!(changed.contains(&path.as_str()) || group.link_exists(name), "{path}"),
            Some("mdat") => assert_eq!(config.get("items").is_some(), group.link_exists("start_time"), "{at}"),
            Some(_) => walk_attributes(at, child, &group, changed),
        }
    }
}

/// Writes a file without messages, and compares it with its template; the warnings.
fn walked(name: &str, text: &str, layout: Layout, changed: &[&str]) -> Vec<(String, String)> {
    let template = Template::parse_with(text.as_bytes(), &[], layout).unwrap_or_else(|m| panic!("{name}: {m:?}"));
    let inputs = template.streams();
    let warnings = template.warnings.iter().map(|one| (one.cause.clone(), one.hint.clone())).collect();
    let job = Job { template, inputs, ..job_of(&format!("walk-{name}-{layout:?}"), &[]) };
    Nexus::begin(job.clone(), false).unwrap().finish("{}").unwrap();
    let file = hdf5_metno::File::open(&job.file).unwrap();
    walk(&file, "", &serde_json::from_str(text).unwrap(), changed);
    warnings
}

/// The numbers of a dataset of the group.
fn numbers(job: &Job, dataset: &str) -> Vec<i64> {
    hdf5_metno::File::open(&job.file).unwrap().dataset(&format!("entry/{dataset}")).unwrap().read_raw().unwrap()
}

fn reals(job: &Job, dataset: &str) -> Vec<f64> {
    hdf5_metno::File::open(&job.file).unwrap().dataset(&format!("entry/{dataset}")).unwrap().read_raw().unwrap()
}

fn rows(job: &Job, dataset: &str) -> usize {
    hdf5_metno::File::open(&job.file).unwrap().dataset(&format!("entry/{dataset}")).unwrap().shape()[0]
}

fn has(job: &Job, dataset: &str) -> bool {
    hdf5_metno::File::open(&job.file).unwrap().dataset(&format!("entry/{dataset}")).is_ok()
}

fn told(aside: &[flow::Aside]) -> Vec<(u64, &'static str)> {
    aside.iter().map(|a| (a.sequence, a.reason)).collect()
}

/// Half of the messages, a resumed sink, the other half.
fn write_in_two(job: &Job, all: &[Made]) -> Vec<flow::Aside> {
    let half = all.len() / 2;
    let mut sink = Nexus::begin(job.clone(), false).unwrap();
    let mut aside = give(&mut sink, 0, 0, &all[..half]).unwrap();
    let state = sink.flush().unwrap();
    // A kill discards messages after the flush; they are delivered again.
    give(&mut sink, 0, half as u64, &all[half..]).unwrap();
    drop(sink);
    let mut sink = Nexus::resume(job.clone(), &state).unwrap();
    aside.extend(give(&mut sink, 0, half as u64, &all[half..]).unwrap());
    sink.finish("{}").unwrap();
    aside
}

fn frame(id: i32, time: i64, sides: &[i64], pixels: &[u16]) -> Made {
    let (dimensions, data) = (sides.into(), pixels.into());
    let attributes = wire::List::default();
    any(
        &Message::Ad00(wire::ad00::Ad00 { source_name: "camera", id, timestamp: time, dimensions, data, attributes }),
        time,
    )
}

fn f144(time: i64, value: f64) -> Made {
    any(&Message::F144(wire::f144::F144 { source_name: "a", timestamp: time, value: value.into() }), time)
}

fn f142(time: u64, value: wire::f142::Value<'_>, severity: wire::f142::AlarmSeverity) -> Made {
    let status = wire::f142::AlarmStatus::Low;
    any(&Message::F142(wire::f142::F142 { source_name: "a", value, timestamp: time, status, severity }), 0)
}

#[test]
fn a_module_takes_several_streams_and_goes_on_with_all() {
    let config = r#"{"module": "f144", "config": {"stream": ["s", "t"]}}"#;
    let job = Job { inputs: vec!["s".into(), "u".into(), "t".into()], ..job_of("streams", &[("log", config)]) };
    let all: Vec<Vec<Made>> = (0..3).map(|of| (0..6).map(|n| f144(START + 10 * n + of, of as f64)).collect()).collect();
    let mut sink = Nexus::begin(job.clone(), false).unwrap();
    let (mut state, mut places) = (String::new(), [0; 3]);
    for (turn, input) in [0, 2, 1, 2, 0, 1, 0, 2].into_iter().enumerate() {
        let next = (places[input] + 2).min(all[input].len());
        let aside = give(&mut sink, input, places[input] as u64, &all[input][places[input]..next]).unwrap();
        assert_eq!(aside.len(), if input == 1 { 2 } else { 0 }, "the stream `u` is nobody's");
        if turn == 3 {
            // A kill behind a commit: messages since then are delivered again.
            drop(sink);
            sink = Nexus::resume(job.clone(), &state).unwrap();
        } else {
            places[input] = next;
            state = sink.flush().unwrap();
        }
    }
    give(&mut sink, 2, places[2] as u64, &all[2][places[2]..]).unwrap();
    sink.finish("{}").unwrap();
    let mut times = numbers(&job, "log/time");
    let of = |stream: i64| times.iter().map(move |t| t - START).filter(move |t| t % 10 == stream).collect::<Vec<_>>();
    assert_eq!((of(0), of(2)), ((0..6).map(|n| 10 * n).collect(), (0..6).map(|n| 10 * n + 2).collect::<Vec<_>>()));
    times.sort_unstable();
    assert_eq!(times.len(), 12);
    let file = hdf5_metno::File::open(&job.file).unwrap();
    let names: Vec<hdf5_metno::types::VarLenUnicode> =
        file.group("entry/log").unwrap().attr("stream").unwrap().read_raw().unwrap();
    assert_eq!(names.iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["s", "t"]);
    let fault = Job { inputs: vec!["s".into()], ..job }.check(true).unwrap_err();
    assert!(fault.what.contains("`t`"), "{fault}");
}

/// A chopper whose group had become a log was not found by its class.
#[test]
fn a_module_overwrote_what_the_template_says_of_its_group() {
    let array = r#"{"module": "da00", "config": {"stream": "s", "variables": [{"name": "counts"}]}}"#;
    let groups = [
        ("chopper", "NXdisk_chopper", r#"{"module": "tdct", "config": {"stream": "s", "source": "c"}}"#),
        ("monitor", "NXmonitor", array),
        ("detector", "NXdetector", r#"{"module": "ev44", "config": {"stream": "s"}}"#),
        ("camera", "NXlog", r#"{"module": "ad00", "config": {"stream": "s"}}"#),
        ("motor", "NXpositioner", r#"{"module": "f144", "config": {"stream": "s", "enable_alarm_info": true}}"#),
    ];
    let group = |(name, class, module): &(&str, &str, &str)| {
        let said =
            format!(r#"{{"NX_class": "{class}", "writer_module": "mine", "source": "here", "signal": "there"}}"#);
        format!(r#"{{"type": "group", "name": "{name}", "attributes": {said}, "children": [{module}]}}"#)
    };
    let groups_text: Vec<String> = groups.iter().map(group).collect();
    let text =
        format!(r#"{{"children": [{{"type": "group", "name": "entry", "children": [{}]}}]}}"#, groups_text.join(","));
    for (name, layout) in [("nexus", Layout::Nexus), ("ess", Layout::Ess)] {
        let template = Template::parse_with(text.as_bytes(), &[], layout).unwrap_or_else(|m| panic!("{m:?}"));
        let job = Job { template, ..job_of(&format!("said-{name}"), &[]) };
        let counts = wire::da00::Variable {
            name: "counts",
            unit: None,
            label: None,
            source: None,
            axes: (&["x"][..]).into(),
            shape: (&[2_i64][..]).into(),
            data: (&[1_u8, 2]).into(),
        };
        let array = wire::da00::Da00 { source_name: "m", timestamp: 1, data: vec![counts].into() };
        let sent = [frame(1, 1, &[2], &[1, 2]), any(&Message::Da00(array), 1), f144(1, 1.0), events(0, 2)];
        // The rest of what a group says comes with the first message.
        assert_eq!(told(&write_in_two(&job, &sent)), []);
        for (group, class, _) in groups {
            let said = ["NX_class", "writer_module", "source", "signal"].map(|said| attribute(&job, group, said));
            assert_eq!(said, [class, "mine", "here", "there"], "{name} {group}");
        }
    }
}

#[test]
fn files_lacked_what_their_templates_say() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let read = |name: &str| std::fs::read_to_string(examples.join(name)).unwrap();
    let texts = [("amor", read("amor.nexus.json")), ("coincidence", read("coincidence.nexus.json"))];
    let own = [("rule", messages::TEMPLATE.to_owned())];
    for (name, text) in texts.iter().chain(&own) {
        for layout in [Layout::Nexus, Layout::Ess] {
            assert_eq!(walked(name, text, layout, &[]), [], "{name}");
        }
    }
}

/// Structures of NICOS and of generate-nexus-files: what is in them, what it is called, and what is made of it.
#[test]
fn what_the_ess_file_writer_takes_was_refused() {
    let group = |more: &str, children: &str| {
        format!(
            r#"{{"children": [{{"type": "group", "name": "entry", "attributes": {{"NX_class": "NXentry"}} {more}, "children": [
                {{"module": "dataset", "config": {{"name": "title", "dtype": "string", "values": "t"}}}} {children}]}}]}}"#
        )
    };
    let vector = |name: &str| {
        format!(
            r#", {{"module": "dataset", "config": {{"name": "{name}", "dtype": "double", "values": 1.5}}, "attributes": [
                {{"name": "vector", "dtype": "string", "values": [0.0, 0, 1]}}, {{"name": "units", "values": "m"}}]}}"#
        )
    };
    let motor = |settings: &str| {
        format!(
            r#", {{"type": "group", "name": "m", "children": [
                {{"module": "tdct", "config": {{"topic": "s", "source": "m" {settings}}}}}]}}"#
        )
    };
    let twice = r#", {"type": "group", "name": "twice", "attributes": [{"name": "x", "values": 1}, {"name": "x", "values": 2}]}"#;
    let ignored = "it is ignored";
    /// A name, a template, what its file has, and what is warned of.
    type Case<'a> = (&'a str, String, &'a [(&'a str, &'a str)], &'a [&'a str]);
    let cases: [Case<'_>; 15] = [
        (
            "vector",
            group("", &(vector("a") + &vector("b"))),
            &[(
                "the attribute `vector` has numbers of the type `string`; 2 places, this is the first",
                "numbers are written",
            )],
            &[],
        ),
        (
            "number-as-text",
            group("", r#", {"module": "dataset", "config": {"name": "n", "dtype": "int", "values": ["1", " 2"]}}"#),
            &[("a dataset has numbers given as texts", "numbers are written")],
            &["/entry/n"],
        ),
        (
            "sample",
            group("", r#", {"module": "dataset", "config": {"name": "thickness", "dtype": "string", "values": 1.5}}"#),
            &[("a dataset has numbers of the type `string`", "they are written as texts")],
            &["/entry/thickness"],
        ),
        ("twice", group("", twice), &[("the attribute `x` appears twice", "the last one is used")], &[]),
        (
            "key-twice",
            group(r#", "x": 1, "name": "other", "name": "entry""#, ""),
            &[("the key `name` appears twice", "the last one is used"), ("unknown key `x` of a group", ignored)],
            &[],
        ),
        (
            "units",
            group("", &motor(r#", "value_units": "ns""#)),
            &[("unknown key `value_units` of `tdct`", ignored)],
            &[],
        ),
        (
            "required",
            group(r#", "required_nexus": "x", "required_tracking": true"#, &motor(r#", "required_devices": []"#)),
            &[
                ("unknown key `required_nexus` of a group", ignored),
                ("unknown key `required_tracking` of a group", ignored),
                ("unknown key `required_devices` of `tdct`", ignored),
            ],
            &[],
        ),
        (
            "link",
            group("", r#", {"module": "link", "config": {"name": "l", "type": "NXlink", "source": "title"}}"#),
            &[],
            &[],
        ),
        (
            "nothing",
            group(
                "",
                r#", {"module": "link", "config": {"name": "l", "source": "../no"}},
                {"module": "link", "config": {"name": "k", "source": "l"}}"#,
            ),
            &[("a link is broken", "the link is left out")],
            &["/entry/l", "/entry/k"],
        ),
        ("config", group(r#", "config": {"name": "other"}"#, ""), &[("unknown key `config` of a group", ignored)], &[]),
        (
            "mdat",
            group("", r#", {"module": "mdat", "config": {}}"#),
            &[("`items` is missing", "neither `start_time` nor `end_time` is written here")],
            &[],
        ),
        (
            "truth",
            group(
                "",
                r#", {"module": "dataset", "config": {"name": "t", "values": [true, false]}, "attributes":
                [{"name": "a", "values": true}]}"#,
            ),
            &[
                ("an attribute has values `true` or `false`", "1 and 0 are written"),
                ("a dataset has values `true` or `false`", "1 and 0 are written"),
            ],
            &["/entry/t", "/entry/t@a"],
        ),
        (
            "tuning",
            group(
                "",
                r#", {"type": "group", "name": "log", "children": [{"module": "f144", "config": {"topic": "t",
                "source": "s", "cue_interval": "3", "chunk_size": "1024", "array_size": ["1", "2"]}}]}"#,
            ),
            &[("a setting has a number given as a text", "the number is used")],
            &[],
        ),
        (
            "depends",
            group("", r#", {"module": "dataset", "config": {"name": "depends_on", "values": "no/where"}}"#),
            &[("`depends_on` names nothing that exists", "it is written as it is")],
            &[],
        ),
        (
            "angle",
            group(
                "",
                r#", {"module": "dataset", "config": {"name": "r", "values": 1.5}, "attributes":
                {"transformation_type": "rotation", "units": "m"}}"#,
            ),
            &[("the units of `r`: `m` is not a unit of an angle", "it is written as it is")],
            &[],
        ),
    ];
    for (name, text, expected, changed) in cases {
        let found = walked(name, &text, Layout::Ess, changed);
        let found: Vec<(&str, &str)> = found.iter().map(|(cause, made)| (cause.as_str(), made.as_str())).collect();
        let starts =
            |((cause, made), (is, is_made)): (&(&str, &str), &(&str, &str))| cause.starts_with(is) && made == is_made;
        assert!(found.len() == expected.len() && found.iter().zip(expected).all(starts), "{name}: {found:?}");
        // Elsewhere what is not as it should be is a mistake.
        assert_eq!(Template::parse(text.as_bytes()).is_err(), !expected.is_empty(), "{name}");
    }
    let file = hdf5_metno::File::open(job_path("walk-truth-Ess")).unwrap();
    assert_eq!(values(&file.dataset("entry/t").unwrap()).1, [1.0, 0.0]);
    assert_eq!(values(&file.dataset("entry/t").unwrap().attr("a").unwrap()).1, [1.0]);
    let file = hdf5_metno::File::open(job_path("walk-vector-Ess")).unwrap();
    assert_eq!(values(&file.dataset("entry/a").unwrap().attr("vector").unwrap()).1, [0.0, 0.0, 1.0]);
    let file = hdf5_metno::File::open(job_path("walk-number-as-text-Ess")).unwrap();
    assert_eq!(values(&file.dataset("entry/n").unwrap()).1, [1.0, 2.0]);
    let file = hdf5_metno::File::open(job_path("walk-sample-Ess")).unwrap();
    assert_eq!(values(&file.dataset("entry/thickness").unwrap()).0, ["1.5"]);
    let placeholder = group("", r#", "$SAMPLE$""#);
    let mistakes = Template::parse_with(placeholder.as_bytes(), &[], Layout::Ess).unwrap_err();
    assert_eq!(mistakes.iter().map(|one| one.level).collect::<Vec<_>>(), [Level::Error], "{mistakes:?}");
}

fn job_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("modules-{name}/{name}.nxs"))
}

/// A reader that trusted `axes` of one dimension for data of two failed for the whole entry.
#[test]
fn axes_of_the_template_lacked_the_dimension_of_time() {
    let variables = r#""variables": [{"name": "signal"}], "constants": [{"name": "bins"}]"#;
    let said = r#""attributes": [{"name": "axes", "data": ["bins"]}]"#;
    let array = format!(r#"{{"module": "da00", "config": {{"stream": "s", {variables}, {said}}}}}"#);
    let histogram = r#"{"module": "hs01", "config": {"stream": "s"}, "attributes": {"axes": ["x", "y"]}}"#;
    for (name, layout) in [("nexus", Layout::Nexus), ("ess", Layout::Ess)] {
        let job = job_of(&format!("axes-{name}"), &[("array", &array), ("histogram", histogram)]);
        let text = format!(
            r#"{{"children": [{{"type": "group", "name": "entry", "children": [
                {{"type": "group", "name": "array", "children": [{array}]}},
                {{"type": "group", "name": "more", "children": [{}]}},
                {{"type": "group", "name": "histogram", "children": [{histogram}]}},
                {{"type": "group", "name": "log", "attributes": {{"NX_class": "NXlog"}}, "children": [
                    {{"module": "ad00", "config": {{"stream": "s"}}}}]}},
                {{"type": "group", "name": "value", "children": [
                    {{"module": "f144", "config": {{"stream": "s"}}}}]}}]}}]}}"#,
            array.replace(r#"["bins"]"#, r#"["bins", "other"]"#)
        );
        let template = Template::parse_with(text.as_bytes(), &[], layout).unwrap_or_else(|m| panic!("{m:?}"));
        let job = Job { template, ..job };
        let variable = |name, axes: &'static [&'static str], data: &'static [u8]| wire::da00::Variable {
            name,
            unit: None,
            label: None,
            source: None,
            axes: axes.into(),
            shape: (&[3_i64][..]).into(),
            data: data.into(),
        };
        let data = vec![variable("signal", &[], &[1, 2, 3]), variable("bins", &["bins"], &[1, 2, 3])];
        let array = wire::da00::Da00 { source_name: "m", timestamp: 1, data: data.into() };
        let sent = [any(&Message::Da00(array), 1), image(0, 2.0, true), frame(1, 1, &[2], &[1, 2]), f144(1, 1.0)];
        assert_eq!(told(&write_in_two(&job, &sent)), []);
        let file = hdf5_metno::File::open(&job.file).unwrap();
        let of = |group: &str, name: &str| values(&file.group(&format!("entry/{group}")).unwrap().attr(name).unwrap());
        assert_eq!(of("array", "axes").0, ["time", "bins"], "{name}");
        assert_eq!(of("array", "bins_indices").1, [1.0], "{name}");
        // Of another count than the dimensions they are none of theirs.
        assert_eq!(of("more", "axes").0, ["time", "."], "{name}");
        let rank = file.dataset("entry/histogram/data").unwrap().ndim();
        assert_eq!(of("histogram", "axes").0.len(), rank, "{name}");
        // An NXlog of frames has no other times than its own: a reader takes a name that ends in `_time` for a log.
        assert!(file.dataset("entry/log/value").is_ok() && file.dataset("entry/log/arrival_time").is_err(), "{name}");
        let units = ["value/value", "value/maximum_value", "log/value"]
            .map(|path| file.dataset(&format!("entry/{path}")).unwrap().attr("units").map(|units| values(&units).0));
        // The ESS file writer says that there is none.
        let no_unit = Some(vec![String::new()]);
        assert_eq!(
            units.map(Result::ok),
            if layout == Layout::Ess { [(); 3].map(|()| no_unit.clone()) } else { [const { None }; 3] }
        );
    }
}

#[test]
fn a_log_takes_both_schemas_and_the_alarms_of_the_older() {
    use wire::f142::{AlarmSeverity, Value};
    for (name, module) in [("f142", "f142"), ("f144", "f144")] {
        let config = r#"{"stream": "s", "source": "a", "enable_alarm_info": true, "dtype": "int32"}"#;
        let job = job_of(name, &[("log", &format!(r#"{{"module": "{module}", "config": {config}}}"#))]);
        let number = |value: f64| Value::Number(value.into());
        let all = [
            f142(1, number(5.0), AlarmSeverity::NoAlarm),
            f142(2, Value::Text("5"), AlarmSeverity::Major),
            f142(3, number(0.5), AlarmSeverity::NoChange),
            f144(4, 7.0),
            f142(5, number(6.0), AlarmSeverity::Invalid),
            f142(6, number(6.0), AlarmSeverity::NoChange),
            f142(u64::MAX, number(6.0), AlarmSeverity::NoChange),
            f142(7, Value::Texts((&["a"]).into()), AlarmSeverity::NoChange),
        ];
        let aside = write_in_two(&job, &all);
        // A value that is no number is set aside, though the alarm that came with it is written. Of a message with a
        // time past the year 2262 neither is written.
        assert_eq!(told(&aside), [(1, "unfit"), (2, "unfit"), (6, "unfit"), (7, "unfit")]);
        assert_eq!(numbers(&job, "log/value"), [5, 7, 6, 6]);
        assert_eq!(numbers(&job, "log/time"), [1, 4, 5, 6]);
        assert_eq!(numbers(&job, "log/alarm_time"), [1, 2, 5]);
        assert_eq!(numbers(&job, "log/alarm_severity"), [0, 2, 3]);
        assert_eq!(reals(&job, "log/maximum_value"), [7.0]);
    }
}

/// The dataset of values has the type of its first message; a commit before that one knows nothing of it.
#[test]
fn rows_that_no_commit_knows_leave_no_shape_and_no_type() {
    let samples = r#"{"module": "se00", "config": {"stream": "s"}}"#;
    let job = job_of("shapes", &[("h", r#"{"module": "hs01", "config": {"stream": "s"}}"#), ("v", samples)]);
    let mut sink = Nexus::begin(job.clone(), false).unwrap();
    let state = sink.flush().unwrap();
    give(&mut sink, 0, 0, &[image(0, 2.0, true), senv(100, 1.0, &[1, 2], None)]).unwrap();
    sink.flush().unwrap();
    drop(sink);
    let mut sink = Nexus::resume(job.clone(), &state).unwrap();
    assert_eq!((rows(&job, "h/data"), rows(&job, "v/value")), (0, 0));
    let wide = wire::Message::Se00(wire::se00::Se00 {
        name: "V",
        channel: 0,
        packet_timestamp: 9,
        time_delta: 1.0,
        timestamp_location: wire::se00::Location::Start,
        values: (&[0.5f64, 1.5]).into(),
        timestamps: None,
        message_counter: 0,
    });
    let flat = hs00(|_| ());
    assert_eq!(told(&give(&mut sink, 0, 0, &[flat, any(&wide, 9)]).unwrap()), []);
    sink.finish("{}").unwrap();
    assert_eq!(numbers(&job, "h/data"), [1, 2, 3]);
    assert_eq!(reals(&job, "v/value"), [0.5, 1.5]);
}

#[test]
fn axes_of_a_first_histogram_that_no_commit_knows_stayed_beside_those_of_another() {
    let job = job_of("axes-of-another", &[("h", r#"{"module": "hs01", "config": {"stream": "s"}}"#)]);
    let mut sink = Nexus::begin(job.clone(), false).unwrap();
    let state = sink.flush().unwrap();
    give(&mut sink, 0, 0, &[image(0, 2.0, true)]).unwrap();
    sink.flush().unwrap();
    drop(sink);
    assert!(has(&job, "h/axis_1") && has(&job, "h/errors"));
    let mut sink = Nexus::resume(job.clone(), &state).unwrap();
    assert_eq!(told(&give(&mut sink, 0, 0, &[hs00(|_| ())]).unwrap()), []);
    sink.finish("{}").unwrap();
    let group = hdf5_metno::File::open(&job.file).unwrap().group("entry/h").unwrap();
    assert_eq!(group.attr("axis_0_indices").unwrap().read_raw::<i64>().unwrap(), [1]);
    assert!(group.attr("axis_1_indices").is_err());
    assert!(!has(&job, "h/axis_1") && !has(&job, "h/errors"));
    assert_eq!(numbers(&job, "h/data"), [1, 2, 3]);
}

#[test]
fn an_alarm_module_alone_takes_alarms_of_values() {
    use wire::f142::{AlarmSeverity, Value};
    let job = job_of("alarms", &[("log", r#"{"module": "al00", "config": {"stream": "s"}}"#)]);
    let one = |time, severity| f142(time, Value::Text("x"), severity);
    let aside = write_in_two(&job, &[one(1, AlarmSeverity::Minor), one(2, AlarmSeverity::NoChange), f144(3, 1.0)]);
    assert_eq!(told(&aside), [(2, "unmatched")]);
    assert_eq!(numbers(&job, "log/alarm_severity"), [1]);
}

#[test]
fn a_repeated_value_is_written_once_and_told() {
    let job = job_of("repeated", &[("log", r#"{"module": "f144", "config": {"stream": "s"}}"#)]);
    let other = any(&Message::F144(wire::f144::F144 { source_name: "b", timestamp: 2, value: 9.0.into() }), 0);
    let all = [f144(1, 1.0), f144(2, 2.0), f144(2, 2.0), other, f144(2, 3.0), f144(1, 4.0), f144(2, 5.0)];
    let aside = write_in_two(&job, &all);
    // By origin; one that goes back in time, and comes forth again, does not repeat itself.
    assert_eq!(told(&aside), [(2, "repeated"), (4, "repeated")]);
    assert_eq!(reals(&job, "log/value"), [1.0, 2.0, 9.0, 4.0, 5.0]);
    assert_eq!(reals(&job, "log/average_value"), [21.0 / 5.0]);
}

#[test]
fn a_refused_value_is_not_repeated_by_the_next() {
    let module = r#"{"module": "f144", "config": {"stream": "s", "dtype": "int8"}}"#;
    let job = job_of("refused", &[("log", module)]);
    let aside = write_in_two(&job, &[f144(1, 1000.0), f144(1, 1.0)]);
    assert_eq!(told(&aside), [(0, "unfit")]);
    assert_eq!(numbers(&job, "log/value"), [1]);
}

fn ev42(time: u64, offsets: &[u32], pixels: &[u32]) -> Made {
    let facility = wire::ev42::Facility::Isis(wire::ev42::IsisData {
        period_number: 1,
        run_state: wire::ev42::RunState::Running,
        proton_charge: 1.0,
    });
    any(
        &Message::Ev42(wire::ev42::Ev42 {
            source_name: "bank0",
            message_id: 1,
            pulse_time: time,
            time_of_flight: offsets.into(),
            detector_id: pixels.into(),
            facility_specific_data: Some(facility),
        }),
        0,
    )
}

#[test]
fn events_of_both_schemas_stand_in_one_group() {
    let job = job_of("events", &[("e", r#"{"module": "ev44", "config": {"stream": "s", "source": "bank0"}}"#)]);
    let all = [
        ev42(START as u64, &[1, 2, 3], &[10, 11, u32::MAX]),
        ev42(START as u64 + 1, &[], &[]),
        ev42(START as u64 + 2, &[1], &[1, 2]),
        ev42(START as u64 + 3, &[u32::MAX], &[1]),
        events(4, 2),
        ev42(u64::MAX, &[1], &[1]),
        ev42(START as u64 + 5, &[7], &[]),
    ];
    let aside = write_in_two(&job, &all);
    assert_eq!(told(&aside), [(2, "broken"), (3, "unfit"), (5, "unfit")]);
    let pixels = [10, 11, i64::from(u32::MAX), 125, 126, 0];
    assert_eq!(numbers(&job, "e/event_id"), pixels);
    assert_eq!(numbers(&job, "e/event_time_offset"), [1, 2, 3, 1000, 1007, 7]);
    assert_eq!(numbers(&job, "e/event_index"), [0, 3, 3, 5]);
    assert_eq!(numbers(&job, "e/event_time_zero"), [START, START + 1, START + 4 * messages::PULSE, START + 5]);
}

#[test]
fn a_message_feeds_every_module_that_wants_it() {
    let job = job_of(
        "fan-out",
        &[
            ("one", r#"{"module": "ev44", "config": {"stream": "s", "source": "bank0"}}"#),
            ("all", r#"{"module": "ev42", "config": {"stream": "s"}}"#),
            ("narrow", r#"{"module": "f144", "config": {"stream": "s", "dtype": "int8"}}"#),
            ("wide", r#"{"module": "f144", "config": {"stream": "s"}}"#),
        ],
    );
    let aside = write_in_two(&job, &[events(0, 3), f144(1, 5.0), f144(2, 0.5), events(1, 2)]);
    assert_eq!(told(&aside), [], "what one of them takes is written");
    assert_eq!(numbers(&job, "one/event_time_zero").len(), 2);
    assert_eq!(numbers(&job, "all/event_id"), numbers(&job, "one/event_id"));
    assert_eq!((numbers(&job, "narrow/value"), reals(&job, "wide/value")), (vec![5], vec![5.0, 0.5]));
}

#[test]
fn the_modules_of_one_group_are_of_one_origin_and_class() {
    let log = r#"{"module": "tdct", "config": {"stream": "s", "source": "T", "enable_alarm_info": true, "enable_epics_con_info": true}}"#;
    let job = job_of("beside", &[("log", log)]);
    let mut alarm = messages::alarm(1);
    alarm.entry.source_time = 0;
    let state = any(
        &Message::Ep01(wire::ep01::Ep01 {
            timestamp: START,
            status: wire::ep01::ConnectionInfo::RemoteError,
            source_name: "T",
            service_id: Some("forwarder"),
        }),
        0,
    );
    let times = |times: &[u64]| {
        any(&Message::Tdct(wire::tdct::Tdct { name: "T", timestamps: times.into(), sequence_counter: 1 }), 0)
    };
    let all = [times(&[5, 7]), alarm, state, times(&[]), times(&[6, u64::MAX]), times(&[11_000_000_000])];
    let aside = write_in_two(&job, &all);
    assert_eq!(told(&aside), [(4, "unfit")]);
    assert_eq!(numbers(&job, "log/time"), [5, 7, 11_000_000_000]);
    assert_eq!(numbers(&job, "log/cue_index"), [0, 2]);
    assert_eq!(numbers(&job, "log/alarm_severity"), [1]);
    assert_eq!(numbers(&job, "log/connection_status"), [7]);
    assert_eq!(numbers(&job, "log/connection_status_time"), [START]);
}

fn senv(packet: u64, step: f64, values: &[u16], times: Option<&[u64]>) -> Made {
    any(
        &Message::Senv(wire::senv::Senv {
            name: "V",
            channel: 0,
            packet_timestamp: packet,
            time_delta: step,
            timestamp_location: wire::se00::Location::Start,
            values: values.into(),
            timestamps: times.map(Into::into),
            message_counter: 0,
        }),
        0,
    )
}

#[test]
fn samples_of_the_older_schema_have_times() {
    let job = job_of("senv", &[("log", r#"{"module": "se00", "config": {"stream": "s"}}"#)]);
    let all = [
        senv(100, 10.0, &[1, 2, 3], None),
        senv(200, 0.0, &[4, 5], Some(&[201, 205])),
        senv(300, f64::NAN, &[6], None),
        senv(301, 0.0, &[6], Some(&[1, 2])),
        senv(302, 0.0, &[6], Some(&[u64::MAX])),
        senv(u64::MAX, 0.0, &[6], None),
        senv(303, 1e300, &[7], None),
    ];
    let aside = write_in_two(&job, &all);
    assert_eq!(told(&aside), [(2, "broken"), (3, "broken"), (4, "unfit"), (5, "unfit")]);
    assert_eq!(numbers(&job, "log/value"), [1, 2, 3, 4, 5, 7]);
    assert_eq!(numbers(&job, "log/time"), [100, 110, 120, 201, 205, 303]);
}

/// A message may name more axes than it has dimensions: no axis of the file is named then.
#[test]
fn axes_that_are_not_those_of_the_array_are_not_in_the_file() {
    let array = |axes: &'static [&'static str]| {
        let signal = wire::da00::Variable {
            name: "signal",
            unit: None,
            label: None,
            source: None,
            axes: axes.into(),
            shape: (&[3i64]).into(),
            data: (&[1.0f64, 2.0, 3.0]).into(),
        };
        any(&Message::Da00(wire::da00::Da00 { source_name: "s", timestamp: START, data: (&[signal]).into() }), START)
    };
    let module = r#"{"module": "da00", "config": {"stream": "s", "variables": [{"name": "signal"}]}}"#;
    for (axes, said) in [(&["x"][..], true), (&["x", "y"], false)] {
        let job = job_of("axes", &[("array", module)]);
        assert!(told(&write_in_two(&job, &[array(axes)])).is_empty());
        let group = hdf5_metno::File::open(&job.file).unwrap().group("entry/array").unwrap();
        assert_eq!(group.attr("axes").is_ok(), said, "{axes:?}");
        assert_eq!(reals(&job, "array/signal"), [1.0, 2.0, 3.0]);
    }
}

#[test]
fn a_histogram_is_what_its_first_message_says() {
    let job = job_of("image", &[("h", r#"{"module": "hs01", "config": {"stream": "s"}}"#)]);
    let aside =
        write_in_two(&job, &[image(0, 2.0, true), image(1, 2.5, true), image(2, 2.0, false), image(3, 2.0, true)]);
    assert_eq!(told(&aside), [(1, "unfit"), (2, "unfit")]);
    let file = hdf5_metno::File::open(&job.file).unwrap();
    let group = file.group("entry/h").unwrap();
    for name in ["data", "errors"] {
        assert_eq!(group.dataset(name).unwrap().shape(), [2, 2, 3]);
    }
    // Whole numbers with errors are real ones in the file: scipp loads no others.
    assert_eq!(reals(&job, "h/data"), (0..6).chain(18..24).map(f64::from).collect::<Vec<_>>());
    assert_eq!(reals(&job, "h/errors")[7], 19f64.sqrt());
    assert_eq!(reals(&job, "h/axis_0"), [0.0, 1.0, 2.0]);
    assert_eq!(reals(&job, "h/axis_1"), [0.0, 0.5, 1.0, 1.5]);
    assert_eq!(numbers(&job, "h/time"), [START, START + 3_000_000_000]);
    let texts = |name: &str| {
        let values = group.attr(name).unwrap().read_raw::<hdf5_metno::types::VarLenUnicode>().unwrap();
        values.iter().map(|v| v.as_str().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(texts("axes"), ["time", "axis_0", "axis_1"]);
    assert_eq!(group.attr("axis_1_indices").unwrap().read_raw::<i64>().unwrap(), [2]);
    assert!(has(&job, "h/errors"));
}

/// A histogram of the older schema, of which one thing after the other is wrong.
fn hs00(change: impl Fn(&mut wire::hs00::Histogram<'_>)) -> Made {
    let counts = [1u64, 2, 3];
    let edges = [0f32, 1.0, 2.0, f32::NAN];
    let dimensions =
        [wire::hs00::Dimension { length: 3, unit: "m\0x", label: "a/b", bin_boundaries: Some((&edges).into()) }];
    let mut histogram = wire::hs00::Histogram {
        source: "h",
        timestamp: 5,
        dim_metadata: (&dimensions).into(),
        last_metadata_timestamp: 0,
        current_shape: (&[3]).into(),
        offset: (&[]).into(),
        data: Some((&counts).into()),
        errors: Some((&[0f64; 0]).into()),
        info: "",
    };
    change(&mut histogram);
    any(&Message::Hs00(histogram), 5)
}

#[test]
fn hostile_histograms_go_aside_and_leave_nothing() {
    let job = job_of("hostile", &[("h", r#"{"module": "hs00", "config": {"stream": "s"}}"#)]);
    static TWO: [u64; 2] = [1, 2];
    static FOUR: [f64; 4] = [0.0; 4];
    static ONES: [u32; 2000] = [1; 2000];
    let all = [
        hs00(|h| h.data = Some((&TWO).into())),
        hs00(|h| h.data = None),
        hs00(|h| h.errors = Some((&FOUR).into())),
        hs00(|h| h.current_shape = (&[4]).into()),
        hs00(|h| h.current_shape = (&[u32::MAX, u32::MAX, u32::MAX]).into()),
        hs00(|h| h.current_shape = (&[3, 1]).into()),
        hs00(|h| h.offset = (&[1]).into()),
        hs00(|h| h.timestamp = u64::MAX),
        hs00(|h| {
            (h.current_shape, h.dim_metadata) = ((&ONES[..9]).into(), Default::default());
            h.data = Some((&[1u64]).into());
        }),
        hs00(|h| {
            (h.current_shape, h.dim_metadata) = ((&ONES).into(), Default::default());
            h.data = Some((&[1u64]).into());
        }),
        hs00(|h| {
            (h.current_shape, h.data, h.dim_metadata) = ((&[0]).into(), Some((&[0u64; 0]).into()), Default::default())
        }),
        hs00(|h| {
            h.dim_metadata =
                vec![wire::hs00::Dimension { bin_boundaries: Some((&FOUR[..2]).into()), ..h.dim_metadata[0].clone() }]
                    .into()
        }),
        hs00(|_| ()),
        hs00(|h| h.dim_metadata = Default::default()),
        hs00(|_| ()),
    ];
    let aside = write_in_two(&job, &all);
    let reasons: Vec<&str> = aside.iter().map(|a| a.reason).collect();
    let wanted = [
        "broken", "unfit", "broken", "unfit", "broken", "broken", "unfit", "unfit", "unfit", "unfit", "unfit",
        "broken", "unfit",
    ];
    assert_eq!(reasons, wanted, "{aside:?}");
    assert_eq!(numbers(&job, "h/data"), [1, 2, 3, 1, 2, 3]);
    assert!(!has(&job, "h/errors"), "an empty array of errors is none");
    assert!(reals(&job, "h/axis_0")[3].is_nan());
}

#[test]
fn bytes_stand_one_after_the_other() {
    let raw = r#"{"module": "ar51", "config": {"stream": "s", "source": "raw"}}"#;
    let job = job_of("bytes", &[("raw", raw), ("text", r#"{"module": "json", "config": {"stream": "s"}}"#)]);
    let readout = |id, bytes: &[u8]| {
        let mut made =
            any(&Message::Ar51(wire::ar51::Ar51 { source_name: "raw", message_id: id, raw_data: bytes.into() }), id);
        made.entry.arrival_time = id + 1;
        made
    };
    let text = |text| any(&Message::Json(wire::json::JsonData { json: text }), 9);
    let aside = write_in_two(
        &job,
        &[readout(3, &[1, 2, 255]), readout(4, &[]), text("{\"ß\": 1}"), text(""), readout(7, &[9]), text("no JSON\0")],
    );
    assert_eq!(told(&aside), []);
    assert_eq!(numbers(&job, "raw/raw_data"), [1, 2, 255, 9]);
    assert_eq!(numbers(&job, "raw/raw_data_index"), [0, 3, 3]);
    assert_eq!(numbers(&job, "raw/message_id"), [3, 4, 7]);
    assert_eq!((numbers(&job, "raw/time"), numbers(&job, "raw/arrival_time")), (vec![3, 4, 7], vec![4, 5, 8]));
    assert_eq!(numbers(&job, "text/text_index"), [0, 9, 9]);
    let bytes: Vec<u8> = numbers(&job, "text/text").iter().map(|b| *b as u8).collect();
    assert_eq!(std::str::from_utf8(&bytes).unwrap(), "{\"ß\": 1}no JSON\0");
}

/// A group of each module, of all origins.
fn everything(name: &str) -> Job {
    let groups = ["ev44", "f144", "al00", "ep01", "tdct", "se00", "hs01", "ad00", "ar51", "json", "bpgr"]
        .map(|module| (module, format!(r#"{{"module": "{module}", "config": {{"stream": "s"}}}}"#)));
    let da00 = r#"{"module": "da00", "config": {"stream": "s", "variables": [{"name": "signal"}]}}"#;
    let mut groups: Vec<(&str, &str)> = groups.iter().map(|(name, module)| (*name, module.as_str())).collect();
    groups.push(("da00", da00));
    job_of(name, &groups)
}

/// Messages that other implementations wrote, by name.
fn vectors() -> Vec<(String, Made)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/wire");
    let mut all: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.retain(|path| path.extension().is_some_and(|end| end == "bin"));
    all.sort();
    assert!(all.len() > 150);
    let one = |path: &PathBuf| {
        (path.file_stem().unwrap().to_string_lossy().into_owned(), made(std::fs::read(path).unwrap(), START))
    };
    all.iter().map(one).collect()
}

/// Messages without numbers, without a variable of the template, or with a time that the file cannot hold; and valid
/// ones that are empty.
const WITHOUT_ROWS: [(&str, &str); 17] = [
    ("ad00_empty", "unfit"),
    ("ad00_text", "unfit"),
    ("da00_empty", "unfit"),
    ("da00_scalars", "unfit"),
    ("da00_types", "unfit"),
    ("ev42", "unfit"),
    ("ev42_empty", "unfit"),
    ("ev44_nothing", ""),
    ("f142_empty_array", "unfit"),
    ("f142_text", "unfit"),
    ("f142_texts", "unfit"),
    ("f142_zero", "unfit"),
    ("f144_empty_array", "unfit"),
    ("hs00_least", "unfit"),
    ("hs01_least", "unfit"),
    ("tdct", "unfit"),
    ("tdct_empty", ""),
];

/// Each vector in a file of its own, so that none is the repetition of another.
#[test]
fn messages_of_other_implementations_have_their_rows() {
    let groups = [
        ("ev44", "event_time_zero"),
        ("ev42", "event_time_zero"),
        ("f144", "value"),
        ("f142", "value"),
        ("al00", "alarm_time"),
        ("ep01", "connection_status"),
        ("tdct", "time"),
        ("se00", "value"),
        ("senv", "value"),
        ("da00", "signal"),
        ("hs01", "data"),
        ("hs00", "data"),
        ("ad00", "data"),
        ("ar51", "raw_data_index"),
        ("json", "text_index"),
        ("bpgr", "number"),
    ];
    let group = |schema: &str| match schema {
        "ev42" => "ev44".to_owned(),
        "f142" => "f144".to_owned(),
        "senv" => "se00".to_owned(),
        "hs00" => "hs01".to_owned(),
        same => same.to_owned(),
    };
    let job = everything("vectors");
    let (mut seen, mut without) = (std::collections::BTreeSet::new(), Vec::new());
    for (name, one) in vectors() {
        let schema = one.entry.schema.as_text();
        let aside = write_in_two(&job, std::slice::from_ref(&one));
        let reason = aside.first().map_or("", |a| a.reason);
        let Some((_, dataset)) = groups.iter().find(|(known, _)| *known == schema) else {
            assert_eq!(reason, "schema", "{name}");
            continue;
        };
        let rows = rows(&job, &format!("{}/{dataset}", group(&schema)));
        assert!(reason.is_empty() || rows == 0, "{name}: {reason}, and {rows} rows");
        if rows == 0 {
            without.push((name, reason));
        }
        seen.insert(schema);
    }
    assert_eq!(seen.len(), groups.len(), "{seen:?}");
    let without: Vec<(&str, &str)> = without.iter().map(|(name, reason)| (name.as_str(), *reason)).collect();
    assert_eq!(without, WITHOUT_ROWS);
}

/// Messages of every schema, with bytes changed and cut: an answer in a word, never a panic; and the file has a row for each
/// message that was taken.
fn damaged(name: &str, rounds: usize) {
    let job = everything(name);
    let mut sink = Nexus::begin(job.clone(), false).unwrap();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut originals: Vec<Made> = vectors().into_iter().map(|(_, made)| made).collect();
    originals.extend(others(3));
    let mut taken = std::collections::BTreeMap::<String, usize>::new();
    let (mut aside, mut all_taken) = (0, 0);
    for round in 0..rounds {
        let mut all = Vec::new();
        for original in originals.iter().filter(|o| o.payload.len() > 8 && o.payload.len() < 100_000) {
            let mut payload = original.payload.clone();
            for _ in 0..1 + round % 4 {
                let at = 8 + random(payload.len() - 8);
                payload[at] = [0, 1, 0x7f, 0x80, 0xff, random(256) as u8][random(6)];
            }
            if random(10) == 0 {
                payload.truncate(8 + random(payload.len() - 8));
            }
            all.push(made(payload, START));
        }
        let told = give(&mut sink, 0, 0, &all).unwrap();
        let mut left: Vec<bool> = vec![false; all.len()];
        for one in &told {
            assert!(["broken", "unfit", "schema", "repeated", "unmatched"].contains(&one.reason), "{one:?}");
            assert!(!std::mem::replace(&mut left[one.sequence as usize], true), "{one:?} twice");
        }
        for (one, _) in all.iter().zip(&left).filter(|(_, left)| !**left) {
            *taken.entry(one.entry.schema.as_text()).or_default() += 1;
        }
        (all_taken, aside) = (all_taken + all.len() - told.len(), aside + told.len());
    }
    let state = sink.flush().unwrap();
    drop(sink);
    Nexus::resume(job.clone(), &state).unwrap().finish("{}").unwrap();
    // Groups in which a message is a row, with the schemas that come into them.
    let one_each: [(&str, &[&str]); 8] = [
        ("f144/value", &["f144", "f142"]),
        ("ep01/connection_status", &["ep01"]),
        ("hs01/data", &["hs01", "hs00"]),
        ("ad00/data", &["ad00"]),
        ("ar51/raw_data_index", &["ar51"]),
        ("json/text_index", &["json"]),
        ("bpgr/number", &["bpgr"]),
        ("da00/signal", &["da00"]),
    ];
    for (dataset, schemas) in one_each {
        let messages: usize = schemas.iter().filter_map(|schema| taken.get(*schema)).sum();
        assert_eq!(rows(&job, dataset), messages, "{dataset}");
    }
    for (values, times) in [
        ("ev44/event_id", "ev44/event_time_offset"),
        ("ev44/event_index", "ev44/event_time_zero"),
        ("f144/value", "f144/time"),
        ("al00/alarm_severity", "al00/alarm_time"),
        ("se00/value", "se00/time"),
        ("tdct/cue_index", "tdct/cue_timestamp_zero"),
        ("hs01/data", "hs01/time"),
        ("ad00/data", "ad00/time"),
        ("da00/signal", "da00/time"),
        ("json/text_index", "json/time"),
    ] {
        assert_eq!(rows(&job, values), rows(&job, times), "{values}");
    }
    let index = numbers(&job, "ev44/event_index");
    assert!(index.is_sorted() && index.last().is_none_or(|last| *last as usize <= rows(&job, "ev44/event_id")));
    println!(
        "corrupt messages: {} injected of {} schemas, {all_taken} had their rows, {aside} went aside with a reason, 0 panics",
        all_taken + aside,
        taken.len(),
    );
    assert!(all_taken > 0 && aside > 0);
}

#[test]
fn damaged_messages_give_answers() {
    damaged("damaged", 40);
}

#[test]
#[ignore = "minutes"]
fn soak_damaged_messages_give_answers() {
    damaged("soak-damaged", 5_000);
}

#[test]
fn in_the_layout_of_ess_names_and_types_are_those_of_its_writer() {
    use beamport_nexus::template::Layout;
    let group = |name: &str, module: &str, more: &str| {
        format!(
            r#"{{"type": "group", "name": "{name}", "children": [{{"module": "{module}", "config": {{"stream": "s"{more}}}}}]}}"#
        )
    };
    let groups = [
        group("events", "ev44", ""),
        group("log", "f144", r#", "source": "a""#),
        group("quiet", "f144", r#", "source": "b", "enable_alarm_info": false, "enable_epics_con_info": false"#),
        group("frames", "ad00", ""),
        group("array", "da00", r#", "variables": [{"name": "event_id"}]"#),
    ];
    let text =
        format!(r#"{{"children": [{{"type": "group", "name": "entry", "children": [{}]}}]}}"#, groups.join(", "));
    let template = Template::parse_with(text.as_bytes(), &[], Layout::Ess).unwrap();
    assert_ne!(template.digest, Template::parse(text.as_bytes()).unwrap().digest);
    let job = Job { template, ..job_of("ess", &[]) };
    let alarm = |time, message| {
        let severity = wire::al00::Severity::Minor;
        any(&Message::Al00(wire::al00::Al00 { source_name: "a", timestamp: time, severity, message }), time)
    };
    let frame = |time| frame(1, time, &[2, 3], &[1, 2, 3, 4, 5, 6]);
    let all = [
        events(0, 2),
        f144(START + 5, 1.5),
        alarm(START + 6, ""),
        alarm(START + 7, &"x".repeat(300)),
        frame(START + 8),
        frame(START + 9),
        events(1, 1),
    ];
    assert_eq!(write_in_two(&job, &all), []);
    let file = hdf5_metno::File::open(&job.file).unwrap();
    let kind = |dataset: &str| {
        let dataset = file.dataset(&format!("entry/{dataset}")).unwrap();
        let since = dataset.attr("start").is_ok();
        (dataset.dtype().unwrap().to_descriptor().unwrap().to_string(), since, dataset.shape()[0])
    };
    let wanted = [
        ("events/event_id", "int32", false, 3),
        ("events/event_time_offset", "int32", false, 3),
        ("events/event_time_zero", "uint64", true, 2),
        ("events/event_index", "int64", false, 2),
        ("events/cue_index", "int64", false, 1),
        ("events/cue_timestamp_zero", "int64", true, 1),
        ("log/value", "float64", false, 1),
        ("log/time", "uint64", true, 1),
        ("log/alarm_time", "uint64", true, 2),
        ("log/alarm_severity", "int16", false, 2),
        ("log/alarm_message", "unicode (len 200)", false, 2),
        ("log/connection_status_time", "uint64", true, 0),
        ("frames/time", "uint64", true, 2),
        ("frames/value", "uint16", false, 2),
        ("frames/cue_index", "int64", false, 1),
        ("frames/cue_timestamp_zero", "int64", true, 1),
        ("array/event_id", "float64", false, 0),
    ];
    for (dataset, dtype, since, rows) in wanted {
        assert_eq!(kind(dataset), (dtype.to_owned(), since, rows), "{dataset}");
    }
    assert!(file.dataset("entry/quiet/alarm_time").is_err() && file.dataset("entry/frames/data").is_err());
    let frames = file.group("entry/frames").unwrap();
    assert!(frames.attr("axes").is_err() && frames.attr("topic").is_ok() && frames.attr("stream").is_err());
    assert_eq!(numbers(&job, "events/event_id"), [1, 2, 32]);
    assert_eq!(numbers(&job, "events/event_index"), [0, 2]);
    let message = file.dataset("entry/log/alarm_message").unwrap();
    let texts: Vec<hdf5_metno::types::FixedUnicode<200>> = message.read_raw().unwrap();
    assert_eq!(texts[0].as_str(), "NO ALARM MESSAGE");
    assert_eq!(texts[1].len(), 200);
}

/// The templates of ESS say so of logs whose statistics nobody reads.
#[test]
fn a_log_without_meta_data_has_no_least_greatest_and_mean() {
    let log = |more: &str| format!(r#"{{"module": "f144", "config": {{"stream": "s"{more}}}}}"#);
    let groups = [("bare", log(r#", "meta_data": false"#)), ("whole", log(r#", "meta_data": true"#))];
    let groups: Vec<(&str, &str)> = groups.iter().map(|(name, module)| (*name, module.as_str())).collect();
    let job = job_of("meta-data", &groups);
    assert_eq!(write_in_two(&job, &[f144(START, 1.0), f144(START + 1, 3.0)]), []);
    for name in ["minimum_value", "maximum_value", "average_value"] {
        assert!(has(&job, &format!("whole/{name}")) && !has(&job, &format!("bare/{name}")), "{name}");
    }
    assert_eq!(reals(&job, "whole/average_value"), [2.0]);
}

#[test]
fn cues_stand_every_so_many_seconds() {
    let log = |more: &str| format!(r#"{{"module": "f144", "config": {{"stream": "s"{more}}}}}"#);
    let groups = [("usual", log("")), ("often", log(r#", "cue_seconds": 1"#)), ("rare", log(r#", "cue_seconds": 60"#))];
    let groups: Vec<(&str, &str)> = groups.iter().map(|(name, module)| (*name, module.as_str())).collect();
    let job = job_of("cues", &groups);
    let all: Vec<Made> = (0..61).map(|n| f144(START + n * 1_000_000_000, 1.0)).collect();
    assert_eq!(write_in_two(&job, &all), []);
    let counts: Vec<usize> =
        ["usual", "often", "rare"].iter().map(|of| rows(&job, &format!("{of}/cue_index"))).collect();
    assert_eq!(counts, [7, 61, 2]);
    assert_eq!(numbers(&job, "rare/cue_index"), [0, 60]);
    // Whoever reads through cues must know how far they are from each other.
    let file = hdf5_metno::File::open(&job.file).unwrap();
    let said = |of: &str| {
        let attribute = file.dataset(&format!("entry/{of}/cue_timestamp_zero")).unwrap().attr("cue_seconds").ok()?;
        attribute.read_scalar::<hdf5_metno::types::VarLenUnicode>().ok().map(|text| text.to_string())
    };
    assert_eq!((said("usual"), said("often"), said("rare")), (None, Some("1".into()), Some("60".into())));
}

#[test]
fn frames_have_the_type_that_the_template_says() {
    let frames = |dtype: &str| format!(r#"{{"module": "ad00", "config": {{"stream": "s", "dtype": "{dtype}"}}}}"#);
    let groups = [("wide", frames("float64")), ("narrow", frames("uint8"))];
    let groups: Vec<(&str, &str)> = groups.iter().map(|(name, module)| (*name, module.as_str())).collect();
    let job = job_of("frame-types", &groups);
    let frame = |time, pixels: [u16; 2]| frame(1, time, &[2], &pixels);
    let all = [frame(START, [1, 2]), frame(START + 1, [300, 4]), frame(START + 2, [5, 255]), frame(START + 3, [6, 7])];
    // The frame that one group cannot hold stands in the other: it is done.
    assert_eq!(write_in_two(&job, &all), []);
    assert_eq!(reals(&job, "wide/data"), [1.0, 2.0, 300.0, 4.0, 5.0, 255.0, 6.0, 7.0]);
    assert_eq!(numbers(&job, "narrow/data"), [1, 2, 5, 255, 6, 7]);
    let file = hdf5_metno::File::open(&job.file).unwrap();
    let kind = |of: &str| file.dataset(&format!("entry/{of}/data")).unwrap().dtype().unwrap().to_descriptor().unwrap();
    assert_eq!((kind("wide").to_string(), kind("narrow").to_string()), ("float64".into(), "uint8".into()));
}

/// A job of one module in the layout of ESS.
fn ess_job(name: &str, module: &str) -> Job {
    use beamport_nexus::template::Layout;
    let text = format!(
        r#"{{"children": [{{"type": "group", "name": "entry", "children": [{{"type": "group", "name": "data", "children": [{module}]}}]}}]}}"#
    );
    let template = Template::parse_with(text.as_bytes(), &[], Layout::Ess).unwrap();
    Job { template, ..job_of(name, &[]) }
}

#[test]
fn with_the_layout_of_ess_a_smaller_frame_went_aside() {
    let frame = |n: i64, sides: [i64; 3], first: u16| {
        let pixels: Vec<u16> = (0..sides.iter().product::<i64>() as u16).map(|at| first + at).collect();
        frame(n as i32, START + n, &sides, &pixels)
    };
    let job = ess_job("padded", r#"{"module": "ad00", "config": {"stream": "s"}}"#);
    let all = [
        frame(0, [2, 2, 3], 1),
        frame(0, [2, 2, 3], 1),
        frame(1, [2, 1, 2], 20),
        frame(2, [1, 2, 3], 30),
        frame(3, [2, 2, 4], 40),
    ];
    assert_eq!(told(&write_in_two(&job, &all)), [(1, "repeated"), (4, "unfit")]);
    let wanted = [
        &(1..13).collect::<Vec<i64>>()[..],
        &[20, 21, 0, 0, 0, 0, 22, 23, 0, 0, 0, 0],
        &[30, 31, 32, 33, 34, 35, 0, 0, 0, 0, 0, 0],
    ];
    assert_eq!(numbers(&job, "data/value"), wanted.concat());
    assert!(!has(&job, "data/id"), "scippnexus takes what else is there for logs of their own");
    assert_eq!(numbers(&job, "data_metadata/id"), [0, 1, 2]);
}

/// punx crashes on `axes` at a dataset, and scippnexus guessed by the shape which dimensions of the signal another has.
#[test]
fn which_dimensions_the_parts_of_an_array_have_stands_at_the_group() {
    let variable = |name: &'static str, axes: &'static [&'static str], shape: &'static [i64]| wire::da00::Variable {
        name,
        unit: Some(""),
        label: None,
        source: None,
        axes: axes.into(),
        shape: shape.into(),
        data: (&[1.0_f64, 2.0, 3.0, 4.0][..shape.iter().product::<i64>() as usize]).into(),
    };
    let parts = [
        variable("signal", &["y", "x"], &[2, 2]),
        variable("signal_errors", &["y", "x"], &[2, 2]),
        variable("columns", &["x"], &[2]),
        variable("charge", &[], &[1]),
        variable("height", &["y", "x"], &[2, 2]),
        variable("colours", &["colour"], &[3]),
        variable("x", &["x"], &[2]),
    ];
    let message = Message::Da00(wire::da00::Da00 { source_name: "s", timestamp: START, data: (&parts).into() });
    let config = r#"{"module": "da00", "config": {"stream": "s",
        "variables": [{"name": "signal"}, {"name": "signal_errors"}, {"name": "columns"}, {"name": "charge"}],
        "constants": [{"name": "height"}, {"name": "colours"}, {"name": "x"}]}}"#;
    let job = job_of("parts", &[("array", config)]);
    assert!(told(&write_in_two(&job, &[any(&message, START)])).is_empty());
    let group = hdf5_metno::File::open(&job.file).unwrap().group("entry/array").unwrap();
    let places = |name: &str| group.attr(&format!("{name}_indices")).map(|a| a.read_raw::<i64>().unwrap()).ok();
    assert_eq!(places("columns"), Some(vec![0, 2]));
    assert_eq!(places("charge"), Some(vec![0]));
    assert_eq!(places("height"), Some(vec![1, 2]));
    assert_eq!(places("x"), Some(vec![2]));
    assert_eq!((places("signal_errors"), places("colours")), (None, None));
    for one in &parts {
        let dataset = group.dataset(one.name).unwrap();
        assert_eq!(dataset.attr("axes").is_ok(), one.name == "colours", "{}", one.name);
        assert!(dataset.attr("units").is_ok(), "{}", one.name);
    }
}

#[test]
fn with_the_layout_of_ess_an_array_without_all_its_variables_went_aside() {
    let variable = |name: &'static str, data| wire::da00::Variable {
        name,
        unit: None,
        label: None,
        source: None,
        axes: (&["x"]).into(),
        shape: (&[2_i64]).into(),
        data,
    };
    let message = |n: i64, data: &[wire::da00::Variable<'_>]| {
        any(&Message::Da00(wire::da00::Da00 { source_name: "m", timestamp: START + n, data: data.into() }), START + n)
    };
    let (real, signed, unsigned) = ([1.5_f64, 2.5], [3_i16, 4], [5_u32, 6]);
    let (real, signed) = (variable("real", (&real).into()), variable("signed", (&signed).into()));
    let unsigned = variable("unsigned", (&unsigned).into());
    let config = r#"{"module": "da00", "config": {"stream": "s", "variables": [{"name": "real"}, {"name": "signed"},
        {"name": "unsigned", "data_type": "uint32", "shape": [2], "axes": ["x"]}]}}"#;
    let job = ess_job("filled", config);
    let all = [
        message(0, &[real.clone(), unsigned.clone()]),
        message(1, &[real.clone(), signed.clone()]),
        message(1, &[real, signed.clone()]),
        message(2, &[unsigned]),
        message(3, &[variable("other", (&[1_u8, 2]).into())]),
        message(4, &[signed]),
    ];
    assert_eq!(told(&write_in_two(&job, &all)), [(0, "unfit"), (2, "repeated"), (4, "unfit")]);
    let real = reals(&job, "data/real");
    assert!(real[..2] == [1.5, 2.5] && real[2..].iter().all(|value| value.is_nan()) && real.len() == 6, "{real:?}");
    let largest = i64::from(i16::MAX);
    assert_eq!(numbers(&job, "data/signed"), [3, 4, largest, largest, 3, 4]);
    let largest = i64::from(u32::MAX);
    assert_eq!(numbers(&job, "data/unsigned"), [largest, largest, 5, 6, largest, largest]);
}

#[test]
fn with_the_layout_of_ess_pulses_without_events_had_rows() {
    let job = ess_job("empty-pulses", r#"{"module": "ev44", "config": {"stream": "s"}}"#);
    assert_eq!(write_in_two(&job, &[events(0, 0), events(1, 2), events(2, 0), events(3, 1), events(3, 1)]), []);
    assert_eq!(numbers(&job, "data/event_index"), [0, 2, 3], "events are not taken for repeated");
    assert_eq!(rows(&job, "data/event_time_zero"), 3);
}

#[test]
fn with_the_layout_of_ess_samples_had_the_width_of_the_first_message() {
    for (name, values, dtype) in [
        ("small", wire::Numbers::from(&[1_i16, 2]), "int64"),
        ("large", wire::Numbers::from(&[1_u64, 2]), "uint64"),
        ("real", wire::Numbers::from(&[0.5_f32, 2.0]), "float32"),
    ] {
        let message = wire::se00::Se00 {
            name: "B",
            channel: 0,
            packet_timestamp: START,
            time_delta: 1.0,
            timestamp_location: wire::se00::Location::Start,
            values,
            timestamps: None,
            message_counter: 0,
        };
        let job = ess_job(&format!("samples-{name}"), r#"{"module": "se00", "config": {"stream": "s"}}"#);
        assert_eq!(write_in_two(&job, &[any(&Message::Se00(message), START)]), []);
        let value = hdf5_metno::File::open(&job.file).unwrap().dataset("entry/data/value").unwrap();
        assert_eq!(value.dtype().unwrap().to_descriptor().unwrap().to_string(), dtype);
    }
}

#[test]
fn with_the_layout_of_ess_only_logs_began_before_the_run() {
    for (word, begins) in [("ad00", true), ("da00", true), ("tdct", true), ("f144", true), ("ev44", false)] {
        let more = if word == "da00" { r#", "variables": [{"name": "signal"}]"# } else { "" };
        let module = format!(r#"{{"module": "{word}", "config": {{"stream": "s"{more}}}}}"#);
        let sink = Nexus::begin(ess_job(&format!("before-{word}"), &module), false).unwrap();
        assert_eq!(sink.wants_before(0), begins, "{word}");
        let sink = Nexus::begin(job_of(&format!("not-before-{word}"), &[("data", &module)]), false).unwrap();
        assert_eq!(sink.wants_before(0), word == "f144", "{word}");
    }
}
