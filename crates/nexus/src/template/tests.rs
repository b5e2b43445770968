use super::*;
use crate::module::{CUE_SECONDS, KINDS, ModuleKind, Settings};
use serde_json::{Value, json};
use settings::Key;
use std::cell::RefCell;
use std::collections::BTreeSet;
use wire::DType;

fn parse(value: &Value) -> Result<Template, Vec<Mistake>> {
    Template::parse(value.to_string().as_bytes())
}

fn group(name: &str, children: &Value) -> Value {
    json!({"type": "group", "name": name, "children": children})
}

fn amor() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/amor.nexus.json");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn the_example_is_right() {
    let template = Template::parse(amor().as_bytes()).map_err(|m| format!("{m:#?}")).unwrap();
    let modules = template.modules();
    assert!(modules.iter().any(|(path, m)| path == "/entry/instrument/detector/data" && m.word() == "ev44"));
    assert_eq!(template.entry(), "/entry");
}

#[test]
fn a_mistake_of_the_whole_text_has_no_colon_in_front() {
    let told = Template::parse(b"{").unwrap_err()[0].told();
    assert!(!told.starts_with(':') && !told.is_empty(), "{told}");
    let told = parse(&json!({"children": [{"type": "group", "nam": "entry"}]})).unwrap_err()[0].told();
    assert!(told.starts_with("/children/0"), "{told}");
}

#[test]
fn all_mistakes_at_once_each_with_its_pointer() {
    let mistakes = parse(&json!({"children": [
    {"type": "group", "nam": "entry", "children": [
        {"module": "datset", "config": {}},
        {"module": "dataset", "config": {"name": "a/b", "values": 1}},
        {"module": "dataset", "config": {"name": "x", "dtype": "dubble", "values": 1}},
        {"module": "f144", "config": {"source": 3}},
        {"module": "dataset", "config": {"name": "n", "dtype": "int8", "values": [1, 300]}},
    ]}]}))
    .unwrap_err();
    let told: Vec<(&str, &str)> = mistakes.iter().map(|m| (m.pointer.as_str(), m.hint.as_str())).collect();
    assert!(told.contains(&("/children/0/nam", "did you mean `name`?")), "{told:?}");
    assert!(told.contains(&("/children/0/children/0/module", "did you mean `dataset`?")), "{told:?}");
    assert!(told.contains(&("/children/0/children/2/config/dtype", "did you mean `double`?")), "{told:?}");
    for pointer in [
        "/children/0",
        "/children/0/children/1/config/name",
        "/children/0/children/3/config",
        "/children/0/children/3/config/source",
        "/children/0/children/4/config/values",
    ] {
        assert!(told.iter().any(|t| t.0 == pointer), "{pointer}: {told:?}");
    }
    assert_eq!(mistakes.len(), 8, "{mistakes:#?}");
}

/// Each kind of mistake that a template can have: the content of a group, the pointer of the mistake, and a word of the
/// report.
const MISTAKES: &[(&str, &str, &str)] = &[
    // Unknown keys, and keys that stand twice.
    (r#"{"module": "dataset", "confg": {}}"#, "/confg", "did you mean `config`"),
    (
        r#"{"module": "f144", "config": {"stream": "s", "value_unit": "K"}}"#,
        "/config/value_unit",
        "did you mean `value_units`",
    ),
    (r#"{"type": "group", "name": "a", "childrn": []}"#, "/childrn", "did you mean `children`"),
    (r#"{"module": "f144", "config": {"stream": "s", "stream": "t"}}"#, "/config/stream", "appears twice"),
    // Types.
    (
        r#"{"module": "dataset", "config": {"name": "a", "dtype": "flot", "values": 1}}"#,
        "/config/dtype",
        "did you mean `float`",
    ),
    (
        r#"{"module": "dataset", "config": {"name": "a", "dtype": "uint8", "values": [1, 256]}}"#,
        "/config/values",
        "256 does not fit uint8",
    ),
    (
        r#"{"module": "dataset", "config": {"name": "a", "values": [[1, 2], [3]]}}"#,
        "/config/values",
        "rows of 2 and of 1",
    ),
    (
        r#"{"module": "dataset", "config": {"name": "a", "dtype": "string", "values": [1, 2]}}"#,
        "/config/values",
        "a number where a text",
    ),
    (
        r#"{"module": "dataset", "config": {"name": "a", "dtype": "int32", "values": "NaN"}}"#,
        "/config/values",
        "a text where a number",
    ),
    (r#"{"module": "f144", "config": {"stream": "s", "dtype": "string"}}"#, "/config/dtype", "holds numbers"),
    // Streams.
    (r#"{"module": "ev44", "config": {}}"#, "/config", "`stream` is missing"),
    (r#"{"module": "ev44", "config": {"stream": 7}}"#, "/config/stream", "is a text"),
    // Keys of the ESS writer that ours does not use.
    (r#"{"module": "ev44", "config": {"stream": "s", "chunk_size": "abc"}}"#, "/config/chunk_size", "a whole number"),
    (r#"{"module": "ev44", "config": {"stream": "s", "chunk_size": 0}}"#, "/config/chunk_size", "this is 0"),
    (r#"{"module": "f144", "config": {"stream": "s", "cue_interval": "x"}}"#, "/config/cue_interval", "the text `x`"),
    (r#"{"module": "f144", "config": {"stream": "s", "cue_interval": -1}}"#, "/config/cue_interval", "this is -1"),
    (r#"{"module": "ad00", "config": {"stream": "s", "array_size": [1, "x"]}}"#, "/config/array_size", "a list"),
    (r#"{"module": "f144", "config": {"stream": "s", "meta_data": "no"}}"#, "/config/meta_data", "true or false"),
    (
        r#"{"module": "ev44", "config": {"stream": "s", "enable_alarm_info": 1}}"#,
        "/config/enable_alarm_info",
        "this is 1",
    ),
    (r#"{"module": "ev44", "config": {"stream": "s", "writer_module": 1}}"#, "/config/writer_module", "is a text"),
    (r#"{"module": "ev44", "config": {"stream": "s", "topic": 1}}"#, "/config/topic", "is a text"),
    (
        r#"{"module": "ev44", "config": {"stream": "s", "compression": {"event_idd": "deflate"}}}"#,
        "/config/compression/event_idd",
        "no dataset `event_idd`",
    ),
    (r#"{"type": "group", "name": "a", "attributes": {"NX_class": 5}}"#, "/attributes", "`NX_class` is one text"),
    // Schemas.
    (r#"{"module": "f145", "config": {"stream": "s"}}"#, "/module", "did you mean `f144`"),
    (r#"{"module": "NDAr", "config": {"stream": "s"}}"#, "/module", "ad00"),
    // Names.
    (r#"{"type": "group", "name": "twice"}, {"type": "group", "name": "twice"}"#, "/1", "appears twice"),
    (
        r#"{"module": "f144", "config": {"stream": "s"}}, {"module": "dataset", "config": {"name": "time", "values": 1}}"#,
        "/1",
        "`time` appears twice",
    ),
    (r#"{"module": "dataset", "config": {"name": "beamport", "values": 1}}"#, "", "is reserved"),
    // Units.
    (
        r#"{"module": "f144", "config": {"stream": "s", "value_units": "K", "unit": "C"}}"#,
        "/config/unit",
        "`value_units` is `K`",
    ),
    (
        r#"{"module": "f144", "attributes": {"units": "mK"}, "config": {"stream": "s", "value_units": "K"}}"#,
        "/config/value_units",
        "the group says `mK`",
    ),
    (
        r#"{"module": "dataset", "attributes": {"units": "deg"}, "config": {"name": "x_pixel_offset", "values": 1}}"#,
        "/attributes",
        "not a unit of a length",
    ),
    (
        r#"{"module": "dataset", "attributes": {"units": "mmm"}, "config": {"name": "y_pixel_size", "values": 1}}"#,
        "/attributes",
        "did you mean `mm`",
    ),
    (
        r#"{"module": "dataset", "attributes": {"units": "m", "transformation_type": "rotation"}, "config": {"name": "mu", "values": 1}}"#,
        "/attributes",
        "such as deg",
    ),
    (
        r#"{"type": "group", "name": "mu", "attributes": {"transformation_type": "rotation"}, "children": [{"module": "f144", "config": {"stream": "s", "value_units": "mm"}}]}"#,
        "/children/0/config/value_units",
        "not a unit of an angle",
    ),
    // Paths that leave the file or its folder.
    (
        r#"{"module": "link", "config": {"name": "l", "source": "../../../x"}}"#,
        "/config/source",
        "leads out of the file",
    ),
    (r#"{"module": "link", "config": {"name": "l", "source": "../entri"}}"#, "/config/source", "did you mean `/entry`"),
    (
        r#"{"module": "link", "config": {"name": "l", "source": "/x", "file": "../other.nxs"}}"#,
        "/config/file",
        "without `..`",
    ),
    (
        r#"{"module": "link", "config": {"name": "l", "source": "/x", "file": "/etc/passwd"}}"#,
        "/config/file",
        "beside this one",
    ),
    (r#"{"module": "dataset", "config": {"name": "../a", "values": 1}}"#, "/config/name", "holds a `/`"),
];

#[test]
fn every_kind_of_mistake_has_its_pointer_and_a_suggestion() {
    let whole = |children: &str| {
        format!(
            r#"{{"children": [{{"type": "group", "name": "entry", "children": [{children}]}}, {{"type": "group", "name": "other"}}]}}"#
        )
    };
    let at = |pointer: &str, first: usize| {
        let inside = pointer
            .strip_prefix("/1")
            .filter(|rest| rest.is_empty())
            .map_or(format!("{first}{pointer}"), |_| format!("{}", first + 1));
        format!("/children/0/children/{inside}")
    };
    for (children, pointer, word) in MISTAKES {
        let mistakes = Template::parse(whole(children).as_bytes()).unwrap_err();
        let told: Vec<String> = mistakes.iter().map(|m| format!("{}: {}; {}", m.pointer, m.cause, m.hint)).collect();
        let wanted = at(pointer, 0);
        assert!(
            told.iter().any(|t| t.starts_with(&format!("{wanted}: ")) && t.contains(word)),
            "{wanted} {word}: {told:#?}"
        );
        assert!(mistakes.iter().all(|m| !m.hint.is_empty()), "{mistakes:#?}");
    }
    // All of them in one template, each in a group of its own: nothing hides another. (`beamport` is reserved above only.)
    let all: Vec<String> = MISTAKES
        .iter()
        .enumerate()
        .filter(|(_, (_, _, word))| *word != "is reserved")
        .map(|(i, (children, ..))| format!(r#"{{"type": "group", "name": "g{i}", "children": [{children}]}}"#))
        .collect();
    let mistakes = Template::parse(whole(&all.join(", ")).as_bytes()).unwrap_err();
    for (i, _) in all.iter().enumerate() {
        let at = format!("/children/0/children/{i}/");
        assert!(mistakes.iter().any(|m| m.pointer.starts_with(&at)), "{at}: {mistakes:#?}");
    }
}

/// A chain of places that ends in nothing leaves a detector without one.
#[test]
fn what_depends_on_nothing_is_told() {
    let with = |dataset: &str, of_axis: &str, of_group: &str| {
        let axis =
            json!({"module": "dataset", "attributes": {"depends_on": of_axis}, "config": {"name": "x", "values": 1}});
        let moves = json!([axis, {"type": "group", "name": "y", "attributes": {"depends_on": of_group}}]);
        let detector = json!([
            {"module": "dataset", "config": {"name": "depends_on", "values": dataset}},
            group("transformations", &moves)]);
        let other = json!({"module": "link", "config": {"name": "o", "file": "o.nxs", "source": "/a"}});
        parse(&json!({"children": [group("entry", &json!([group("detector", &detector), other]))]}))
    };
    for (dataset, of_axis, of_group) in [
        (".", ".", "."),
        ("transformations/x", "y", "x"),
        ("/entry/detector/transformations/y", "/entry/detector/transformations/y", "../transformations/x"),
        ("./transformations/x", "../../detector/transformations/y", "/entry/o/x"),
        ("/entry/o", "", "x"),
    ] {
        let told = with(dataset, of_axis, of_group);
        assert!(told.is_ok(), "{dataset} {of_axis} {of_group}: {told:?}");
    }
    let told = with("transformations/z", "../x/y", "/entry/detektor/transformations/x").unwrap_err();
    let at = "/children/0/children/0/children";
    let told: Vec<(&str, &str)> = told.iter().map(|m| (m.pointer.as_str(), m.hint.as_str())).collect();
    assert_eq!(
        told,
        [
            (format!("{at}/0/config").as_str(), "did you mean `/entry/detector/transformations/x`?"),
            (format!("{at}/1/children/0/attributes").as_str(), told[1].1),
            (format!("{at}/1/children/1/attributes").as_str(), "did you mean `/entry/detector/transformations/x`?"),
        ]
    );
}

#[test]
fn what_the_ess_writer_takes_is_taken() {
    let one = |module: &str, config: Value| {
        let template = parse(&json!({"children": [{"module": module, "config": config}]})).unwrap();
        let Node::Module(module) = template.root.children[0].clone() else { panic!() };
        module
    };
    let frames = one("ad00", json!({"stream": "s", "type": "uint16", "array_size": [2, 2]}));
    assert!(format!("{:?}", frames.plan).contains("UInt16"), "{:?}", frames.plan);
    let attributes = json!([
        {"name": "t", "data": "v"},
        {"name": "n", "data_type": "int16", "data": [1, 2], "unit": "m"},
        {"name": "u", "values": 3}]);
    let array = one("da00", json!({"stream": "s", "variables": [], "attributes": attributes}));
    let shapes: Vec<_> = array.attributes.iter().map(|a| (a.name.as_str(), a.value.count())).collect();
    assert_eq!(shapes, [("t", 1), ("n", 2), ("u", 1)]);
    assert_eq!(array.attributes[1].value.bytes().unwrap().len(), 4);
    // Elsewhere an attribute has no `data`.
    let wrong = json!({"children": [{"type": "group", "name": "a", "attributes": [{"name": "t", "data": "v"}]}]});
    assert!(parse(&wrong).unwrap_err().iter().any(|m| m.cause == "unknown key `data`"));
}

#[test]
fn cues_stand_as_often_as_the_template_says() {
    let every = |config: Value| {
        let mut whole = config;
        whole["stream"] = json!("s");
        parse(&json!({"children": [{"module": "f144", "config": whole}]}))
            .map(|template| template.modules()[0].1.cue_every)
    };
    assert_eq!(every(json!({})).unwrap(), 10_000_000_000);
    assert_eq!(every(json!({"cue_seconds": 0.5, "cue_interval": 3})).unwrap(), 500_000_000);
    for wrong in [json!(0), json!(-1), json!("10"), json!(1e12), json!(null)] {
        let told = every(json!({"cue_seconds": wrong})).unwrap_err();
        assert_eq!((told.len(), told[0].pointer.as_str()), (1, "/children/0/config/cue_seconds"), "{told:?}");
    }
}

#[test]
fn keys_of_the_ess_writer_that_ours_does_not_use_are_taken() {
    for config in [
        json!({"chunk_size": 1024, "cue_interval": 100_000_000, "meta_data": true}),
        json!({"chunk_size": [1, 128, 128], "array_size": [128, 128], "cue_interval": 0}),
        json!({"chunk_size": 1e6, "array_size": 7, "enable_alarm_info": false, "writer_module": "x", "topic": ["a"]}),
    ] {
        let mut whole = config.clone();
        whole["stream"] = json!("s");
        let told = parse(&json!({"children": [{"module": "ad00", "config": whole}]}));
        assert!(told.is_ok(), "{config}: {told:?}");
    }
}

/// Side by side, so that each could hide the others. In the second group something is wrong that has no name.
#[test]
fn a_mistake_hides_no_other() {
    let text = r#"{"children": [{"type": "group", "name": "entry", "attributes": 3, "children": [
        {"module": "dataset", "attributes": {"units": "deg"},
         "config": {"name": "x_pixel_size", "dtype": "dubble", "values": [[1, 2], [3]], "compression": "gzip"}},
        {"module": "link", "config": {"name": "l", "source": "nowhere"}},
        {"module": "link", "config": {"name": "m", "source": "x_pixel_size"}},
        {"module": "link", "config": {"name": "n", "source": "l"}},
        {"module": "link", "config": {"name": "l"}},
        {"module": "link", "config": {"name": "o", "file": "../a", "source": "b"}},
        {"module": "mdat", "config": {"items": ["start", "end_time"]}},
        {"type": "grup", "name": "g", "children": [
            {"module": "ev44", "config": {"stream": 7, "dtype": "int"}},
            {"module": "link", "config": {"name": "l", "source": "../../x"}}]},
        {"module": "datset", "config": {"name": "d", "values": 1}},
        {"type": "group", "name": "log", "attributes": {"transformation_type": "rotation"}, "children": [
            {"module": "f144", "config": {"unit": "mm", "dtype": "flot", "source": 3, "enable_alarm_info": 1}},
            {"module": "ev44", "config": {"stream": []}}]},
        {"module": "link", "config": {"name": "p", "source": "start_time"}},
        {"module": "link", "config": {"name": "q", "source": "d"}}]},
      {"type": "group", "name": "other", "children": [
        {"type": "group", "children": [
            {"module": "link", "config": {"name": "l", "source": "nowhere"}},
            {"module": "link", "config": {"name": "a", "name": "b", "source": "l", "source": "l"}}]},
        {"module": 7, "attributes": {"a/b": [1, "x"]}},
        {"module": "datset", "attributes": [{"name": "a", "dtype": "strng", "values": [1, [2]]}], "config": {"name": 1}}
    ]}]}"#;
    let mistakes = Template::parse(text.as_bytes()).unwrap_err();
    let told: Vec<(&str, &str)> =
        mistakes.iter().map(|m| (m.pointer.strip_prefix("/children/").unwrap_or("?"), m.cause.as_str())).collect();
    let wanted = [
        ("0/attributes", "an object or a list"),
        ("0/children/0/config/dtype", "unknown type `dubble`"),
        ("0/children/0/config/values", "rows of 2 and of 1"),
        ("0/children/0/attributes", "not a unit of a length"),
        ("0/children/0/config/compression", "unknown compression"),
        ("0/children/1/config/source", "there is no `/entry/nowhere`"),
        ("0/children/4/config", "`source` is missing"),
        ("0/children/4", "`l` appears twice"),
        ("0/children/5/config/file", "beside this one"),
        ("0/children/5/config/source", "not a path from the root"),
        ("0/children/6/config/items/0", "neither"),
        ("0/children/7/type", "unknown type `grup`"),
        ("0/children/7/children/0/config/stream", "is a text"),
        ("0/children/7/children/0/config/dtype", "unknown key"),
        ("0/children/7/children/1/config/source", "there is no `/x`"),
        ("0/children/8/module", "unknown module"),
        ("0/children/9/children/0/config", "`stream` is missing"),
        ("0/children/9/children/0/config/dtype", "unknown type `flot`"),
        ("0/children/9/children/0/config/source", "is a text"),
        ("0/children/9/children/0/config/enable_alarm_info", "true or false"),
        ("0/children/9/children/0/config/unit", "not a unit of an angle"),
        ("0/children/9/children/1/config/stream", "a list without streams"),
        ("0/children/9/children/1/config", "`cue_index` appears twice"),
        ("0/children/9/children/1/config", "`cue_timestamp_zero` appears twice"),
        ("0/children/9/children/1/config", "the group is NXlog"),
        ("1/children/0", "`name` is missing"),
        ("1/children/0/children/0/config/source", "/nowhere`"),
        ("1/children/0/children/1/config/name", "appears twice"),
        ("1/children/0/children/1/config/source", "appears twice"),
        ("1/children/1/module", "is a text"),
        ("1/children/1/attributes/a~1b", "holds a `/`"),
        ("1/children/1/attributes/a~1b", "where a number is expected"),
        ("1/children/2/module", "unknown module"),
        ("1/children/2/attributes/0/dtype", "unknown type `strng`"),
        ("1/children/2/attributes/0/values", "side by side"),
    ];
    for (pointer, cause) in wanted {
        assert!(told.iter().any(|(at, why)| *at == pointer && why.contains(cause)), "{pointer} {cause}: {told:#?}");
    }
    assert_eq!(told.len(), wanted.len(), "{told:#?}");
    assert!(mistakes.iter().all(|m| !m.hint.is_empty()), "{mistakes:#?}");
}

/// A link whose target was refused is no second mistake.
#[test]
fn a_link_to_what_was_refused_is_no_second_mistake() {
    let refused = json!({"module": "dataset", "config": {"name": "a", "dtype": "flot", "values": 1}});
    let link = |source| json!({"module": "link", "config": {"name": "l", "source": source}});
    let mistakes = parse(&json!({"children": [group("g", &json!([refused])), link("g/a")]})).unwrap_err();
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    let mistakes = parse(&json!({"children": [group("g", &json!([refused])), link("h/a")]})).unwrap_err();
    assert_eq!(mistakes.len(), 2, "{mistakes:?}");
}

#[test]
fn a_module_names_one_stream_or_several() {
    let of = |stream: Value| parse(&json!({"children": [{"module": "tdct", "config": {"stream": stream}}]}));
    let names = |template: Template| template.streams();
    assert_eq!(names(of(json!("a")).unwrap()), ["a"]);
    assert_eq!(names(of(json!(["a", "b"])).unwrap()), ["a", "b"]);
    let many: Vec<String> = (0..=crate::limits::STREAMS_MAX).map(|n| n.to_string()).collect();
    for (wrong, why) in [
        (json!([]), "without streams"),
        (json!(["a", "a"]), "twice"),
        (json!(["a", 1]), "a number"),
        (json!({"a": 1}), "an object"),
        (json!([""]), "1 to 255"),
        (json!(many), "more than"),
    ] {
        let mistakes = of(wrong).unwrap_err();
        assert!(mistakes.len() == 1 && mistakes[0].cause.contains(why), "{why}: {mistakes:?}");
        assert_eq!(mistakes[0].pointer, "/children/0/config/stream");
    }
}

#[test]
fn both_forms_of_attributes_and_obsolete_keys() {
    let template = parse(&json!({"children": [
        {"module": "dataset", "attributes": {"units": "m", "n": 3, "x": 0.5, "axes": ["a", "b"]},
         "config": {"name": "a", "type": "int", "value": [[1, 2], [3, 4]], "size": [2, 2], "string_size": 9, "space": "simple"}},
        {"module": "dataset", "attributes": [{"name": "units", "dtype": "string", "value": "m"}],
         "config": {"name": "b", "values": "text"}}]}))
    .unwrap();
    let Node::Dataset { value, attributes, .. } = &template.root.children[0] else { panic!() };
    assert_eq!((value.shape.clone(), value.bytes().unwrap().len()), (vec![2, 2], 16));
    assert_eq!(attributes.len(), 4);
    let Node::Dataset { value, .. } = &template.root.children[1] else { panic!() };
    assert_eq!(value.as_text(), Some("text"));
}

#[test]
fn rules_for_large_arrays() {
    let one = |config: Value| {
        let template = parse(&json!({"children": [{"module": "dataset", "config": config}]}))?;
        let Node::Dataset { value, .. } = &template.root.children[0] else { panic!() };
        Ok::<_, Vec<Mistake>>(value.bytes().unwrap().into_owned())
    };
    let bytes = one(json!({"name": "a", "dtype": "int32", "range": {"first": 1, "shape": [128, 256]}})).unwrap();
    assert_eq!(bytes.len(), 128 * 256 * 4);
    assert_eq!(bytes[(3 * 256 + 7) * 4..][..4], (1 + 256 * 3 + 7_i32).to_le_bytes());
    let bytes = one(json!({"name": "a", "linspace": {"first": -0.1, "last": 0.3, "shape": [5]}})).unwrap();
    assert_eq!(bytes[32..], 0.3_f64.to_le_bytes());
    assert_eq!(bytes[..8], (-0.1_f64).to_le_bytes());
    for wrong in [
        json!({"name": "a", "dtype": "int8", "range": {"first": 1, "shape": [128]}}),
        json!({"name": "a", "dtype": "uint8", "range": {"first": 5, "step": -1, "shape": [7]}}),
        json!({"name": "a", "dtype": "int32", "range": {"first": 1, "shape": [u64::MAX, 2]}}),
        json!({"name": "a", "dtype": "int32", "range": {"first": 1, "shape": [0]}}),
        json!({"name": "a", "dtype": "int32", "range": {"first": 1, "shape": [1 << 28]}}),
        json!({"name": "a", "dtype": "int32", "linspace": {"first": 1, "last": 2, "shape": [4]}}),
        json!({"name": "a", "linspace": {"first": 1, "last": 2, "shape": [1]}}),
        json!({"name": "a", "linspace": {"first": 1, "last": 2, "shape": [3]}, "values": 3}),
    ] {
        assert!(one(wrong.clone()).is_err(), "{wrong}");
    }
}

#[test]
fn links_lead_to_things_inside_the_file_or_are_refused() {
    let with = |source: &str| {
        parse(&json!({"children": [
            group("a", &json!([group("b", &json!([{"module": "link", "config": {"name": "l", "source": source}}])),
                               {"module": "dataset", "config": {"name": "d", "values": 1}}])),
            group("c", &json!([{"module": "link", "config": {"name": "to_d", "source": "/a/d"}}]))]}))
    };
    for good in ["../d", "/a/d", "../../c", "/c/to_d", "./.././d"] {
        assert!(with(good).is_ok(), "{good}: {:?}", with(good));
    }
    for bad in [
        "",
        "../../../x",
        "../nothing",
        "..",
        "/a",
        "/",
        "d/x",
        "/etc/passwd",
        "other.nxs:/entry",
        "file:///x",
        "l",
        "../d\0",
    ] {
        assert!(with(bad).is_err(), "{bad}");
    }
    let mutual = parse(&json!({"children": [
        group("a", &json!([{"module": "link", "config": {"name": "l", "source": "../b"}}])),
        group("b", &json!([{"module": "link", "config": {"name": "l", "source": "../a"}}]))]}));
    assert!(mutual.unwrap_err()[0].cause.contains("contain itself"));
}

#[test]
fn a_link_to_a_link_names_the_thing_itself() {
    let template = parse(&json!({"children": [
        {"module": "link", "config": {"name": "l", "source": "m"}},
        {"module": "link", "config": {"name": "m", "source": "a"}},
        group("a", &json!([]))]}))
    .unwrap();
    let Node::Link { target, .. } = &template.root.children[0] else { panic!() };
    assert_eq!(target, &["a"]);
}

#[test]
fn a_link_to_another_file_stays_in_the_folder_of_this_one() {
    let with = |file: &Value, source: &str| {
        parse(&json!({"children": [{"module": "link", "config": {"name": "l", "source": source, "file": file}}]}))
    };
    for file in ["other.nxs", "raw/bank_1.h5"] {
        let template = with(&json!(file), "/entry/data").unwrap();
        let wanted = Node::Outside { name: "l".into(), file: file.into(), target: "/entry/data".into() };
        assert_eq!(format!("{:?}", template.root.children), format!("{:?}", [wanted]));
    }
    for file in
        ["", "/etc/passwd", "../other.nxs", "a/../../b", "a//b", ".", "s3:x", "\\\\host\\x", "a\0b", &"x".repeat(300)]
    {
        let mistakes = with(&json!(file), "/entry/data").unwrap_err();
        assert_eq!(mistakes[0].pointer, "/children/0/config/file", "{file:?}");
    }
    assert!(with(&json!(3), "/entry").is_err());
    for source in ["entry", "/", "", "/a/../b", "/a\0"] {
        assert_eq!(
            with(&json!("other.nxs"), source).unwrap_err()[0].pointer,
            "/children/0/config/source",
            "{source:?}"
        );
    }
}

#[test]
fn names_stand_once() {
    for children in [
        json!([group("a", &json!([])), group("a", &json!([]))]),
        json!([{"module": "f144", "config": {"stream": "s"}}, {"module": "dataset", "config": {"name": "value", "values": 1}}]),
        json!([{"module": "f144", "config": {"stream": "s"}}, {"module": "ev44", "config": {"stream": "s"}}]),
        json!([{"module": "mdat", "config": {"items": ["start_time", "end_time"]}}, {"module": "mdat", "config": {"items": ["end_time"]}}]),
        json!([group("beamport", &json!([]))]),
    ] {
        assert!(parse(&json!({ "children": children })).is_err(), "{children}");
    }
}

#[test]
fn one_word_takes_every_schema_of_its_meaning() {
    for (kind, word) in KINDS.iter().flat_map(|kind| kind.words().map(move |word| (kind, word))) {
        let settings = if word == "da00" { json!({"stream": "s", "variables": []}) } else { json!({"stream": "s"}) };
        let template = parse(&json!({"children": [{"module": word, "config": settings}]})).unwrap();
        let (_, module) = template.modules()[0];
        assert_eq!(module.word(), kind.word, "{word}");
        assert!(kind.schemas.iter().any(|id| id == word.as_bytes()), "{word}");
    }
}

/// A `config` that notes which keys its kind asks for.
struct KeysAsked {
    kind: ModuleKind,
    names: RefCell<BTreeSet<&'static str>>,
}

impl KeysAsked {
    fn note(&self, names: &[&'static str]) {
        self.names.borrow_mut().extend(names);
    }
}

impl Settings for KeysAsked {
    fn number(&self) -> Option<DType> {
        self.note(&["dtype", "type"]);
        None
    }

    fn units(&self) -> &str {
        self.note(&["value_units", "unit"]);
        ""
    }

    fn has(&self, key: &Key) -> bool {
        self.note(&[key.name]);
        false
    }

    fn flag(&self, key: &Key) -> Option<bool> {
        self.note(&[key.name]);
        None
    }

    fn variables(&mut self, key: &Key) -> Vec<Variable> {
        self.note(&[key.name]);
        Vec::new()
    }

    fn attributes(&mut self, key: &Key) -> &[Attribute] {
        self.note(&[key.name]);
        &[]
    }

    fn members(&self, _keys: &[&str]) -> serde_json::Map<String, Value> {
        serde_json::Map::new()
    }

    fn kind(&self) -> &ModuleKind {
        &self.kind
    }

    fn wrong(&mut self, _key: &str, _cause: String, _hint: String) {}

    fn wrong_but(&mut self, _key: &str, _cause: String, _hint: &str, _written: &str) {}
}

#[test]
fn every_kind_asks_for_the_keys_that_it_declares() {
    for kind in KINDS {
        let mut asked = KeysAsked { kind: *kind, names: RefCell::default() };
        assert!((kind.read)(&mut asked).is_some(), "`{}` without settings", kind.word);
        // The check of the template reads this one for all kinds.
        let declared = kind.key_names().into_iter().filter(|name| *name != CUE_SECONDS.name);
        assert_eq!(asked.names.into_inner(), declared.collect(), "`{}`", kind.word);
    }
}

#[test]
fn what_a_log_asks_for_stands_beside_it() {
    let with = |config: Value| parse(&json!({"children": [{"module": "f144", "config": config}]}));
    let names =
        |template: &Template| template.modules().iter().map(|(_, m)| (m.word(), m.source.clone())).collect::<Vec<_>>();
    let both = json!({"topic": "s", "source": "T", "enable_alarm_info": true, "enable_epics_con_info": true});
    let source = || Some("T".to_owned());
    let wanted = [("ep01", source()), ("al00", source()), ("f144", source())];
    assert_eq!(names(&with(both.clone()).unwrap()), wanted);
    let none = json!({"topic": "s", "source": "T", "enable_alarm_info": false});
    assert_eq!(names(&with(none).unwrap()), wanted[2..]);
    let mistakes = with(json!({"topic": "s", "enable_alarm_info": "yes"})).unwrap_err();
    assert_eq!(mistakes[0].pointer, "/children/0/config/enable_alarm_info");
    // One that stands there already is not made twice, wherever it stands.
    let alarms = json!({"module": "al00", "config": {"stream": "s", "source": "T"}});
    let log = json!({"module": "f142", "config": both});
    for children in [json!([alarms, log]), json!([log, alarms])] {
        let template = parse(&json!({ "children": children })).unwrap();
        let mut names: Vec<&str> = template.modules().iter().map(|(_, m)| m.word()).collect();
        names.sort_unstable();
        assert_eq!(names, ["al00", "ep01", "f144"]);
    }
    // For others it only tunes the ESS writer.
    assert!(
        parse(&json!({"children": [{"module": "ev44", "config": {"stream": "s", "enable_alarm_info": true}}]})).is_ok()
    );
}

#[test]
fn a_group_is_of_one_class() {
    let alarms = json!({"module": "al00", "config": {"stream": "s"}});
    let events = json!({"module": "ev44", "config": {"stream": "s"}});
    let mistakes = parse(&json!({"children": [events, alarms]})).unwrap_err();
    assert_eq!((mistakes[0].pointer.as_str(), mistakes.len()), ("/children/1/config", 1));
    assert!(mistakes[0].cause.contains("NXevent_data") && mistakes[0].hint.contains("`al00`"), "{mistakes:?}");
}

#[test]
fn what_has_no_origin_is_not_asked_for_by_origin() {
    for word in ["json", "bpgr"] {
        let of = |config| parse(&json!({"children": [{"module": word, "config": config}]}));
        assert!(of(json!({"stream": "s"})).is_ok());
        assert_eq!(of(json!({"stream": "s", "source": "x"})).unwrap_err()[0].pointer, "/children/0/config/source");
    }
}

#[test]
fn the_predecessors_are_named() {
    let hint = |word| parse(&json!({"children": [{"module": word, "config": {}}]})).unwrap_err()[0].hint.clone();
    assert!(hint("NDAr").contains("ad00") && hint("ep00").contains("ep01"));
    assert!(hint("f145").contains("f14"), "{}", hint("f145"));
    assert!(hint("pu00").contains("hs01"), "all are listed: {}", hint("pu00"));
}

#[test]
fn deep_and_wide_templates_end_soon() {
    let deep = format!(
        "{}{}",
        r#"{"children":[{"type":"group","name":"g","children":["#.repeat(10_000),
        "]}]}".repeat(10_000)
    );
    assert!(Template::parse(deep.as_bytes()).is_err());
    let inner = (0..40).fold(json!([]), |inner, _| json!([group("g", &inner)]));
    assert!(parse(&json!({ "children": inner })).unwrap_err()[0].cause.contains("nest deeper"));

    let wide: Vec<Value> = (0..100_000).map(|i| group(&format!("g{i}"), &json!([]))).collect();
    assert!(parse(&json!({ "children": wide })).is_ok());
    let wrong: Vec<Value> = (0..100_000).map(|_| json!({"typ": 1})).collect();
    assert_eq!(parse(&json!({ "children": wrong })).unwrap_err().len(), crate::limits::MISTAKES_MAX);
}

#[test]
fn what_is_not_json_says_where() {
    for text in [
        "",
        "{",
        "[]",
        "3",
        "null",
        "{\"children\": NaN}",
        "{\"children\": [,]}",
        "\u{feff}{}",
        "{\"children\": 1e999}",
    ] {
        let mistakes = Template::parse(text.as_bytes()).unwrap_err();
        assert!(!mistakes.is_empty() && !mistakes[0].cause.is_empty(), "{text}");
    }
    assert!(Template::parse(&[0xff, 0xfe, 0x00]).is_err());
}

/// Every value of the example replaced, in turn, by each of the usual surprises: an answer, never a panic.
#[test]
fn mutated_templates_give_answers() {
    let original: Value = serde_json::from_str(&amor()).unwrap();
    let surprises = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1e308),
        json!(u64::MAX),
        json!(""),
        json!(".."),
        json!("a/b"),
        json!("\0"),
        json!("x".repeat(300)),
        json!([]),
        json!({}),
        json!([[1], [1, 2]]),
        json!([["a"]]),
    ];
    fn pointers(value: &Value, at: String, out: &mut Vec<String>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(k, v)| pointers(v, crate::hdf::names::join(&at, k), out)),
            Value::Array(list) => {
                list.iter().enumerate().for_each(|(i, v)| pointers(v, crate::hdf::names::join(&at, i), out))
            }
            _ => (),
        }
        out.push(at);
    }
    let mut all = Vec::new();
    pointers(&original, String::new(), &mut all);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut refused = 0;
    for round in 0..3000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut changed = original.clone();
        let pointer = &all[(state >> 33) as usize % all.len()];
        let surprise = &surprises[round % surprises.len()];
        *changed.pointer_mut(pointer).unwrap() = surprise.clone();
        if let Err(mistakes) = parse(&changed) {
            refused += 1;
            assert!(mistakes.iter().all(|m| !m.cause.is_empty()), "{pointer} = {surprise}");
        }
    }
    assert!(refused > 1500, "{refused}");
}

#[test]
fn what_cannot_be_packed_is_told() {
    let with = |config: serde_json::Value| {
        let text = json!({"children": [{"module": "dataset", "config": config}]}).to_string();
        Template::parse(text.as_bytes()).map_or_else(|all| all.into_iter().map(|m| m.told()).collect(), |_| Vec::new())
    };
    let at = |told: &str| vec![format!("/children/0/config/compression: {told}")];
    assert!(with(json!({"name": "a", "values": [1, 2], "compression": "deflate"})).is_empty());
    let cause = "a single value or text cannot be compressed";
    assert_eq!(with(json!({"name": "a", "values": 1, "compression": "deflate"})), at(cause));
    assert_eq!(with(json!({"name": "a", "dtype": "string", "values": ["x"], "compression": "deflate"})), at(cause));
    let named = json!({"name": "a", "values": [1, 2], "compression": {"a": "deflate"}});
    assert_eq!(with(named), at("a dataset has one compression"));
    assert_eq!(with(json!({"name": "a", "values": [1], "compression": "gzip"})), at("unknown compression `gzip`"));
}

#[test]
fn a_link_to_itself_was_told_to_mean_itself() {
    let link = |name: &str, source: &str| {
        format!(r#"{{"module": "link", "config": {{"name": "{name}", "source": "{source}"}}}}"#)
    };
    for links in [link("l", "l"), link("l", "other") + ", " + &link("other", "l")] {
        let text = format!(r#"{{"children": [{{"type": "group", "name": "entry", "children": [{links}]}}]}}"#);
        for mistake in Template::parse(text.as_bytes()).unwrap_err() {
            assert!(mistake.cause.ends_with("is a broken link"), "{}", mistake.cause);
            assert!(!mistake.hint.contains("is meant"), "{}", mistake.hint);
        }
    }
}
