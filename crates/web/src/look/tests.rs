//! Looks at streams in a folder.

use super::*;
use flow::{Appender, Label};
use store::SchemaId;
use wire::ev44::Ev44;

const SECOND: i64 = 1_000_000_000;
/// Time of the first message of each test.
const START: i64 = 1_772_366_400 * SECOND;

/// A data folder that is removed at the end.
pub(super) struct Folder(pub(super) Data);

impl Folder {
    pub(super) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("beamport-look-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(Data::on_disk(folder))
    }

    /// Appends messages to a stream: schema, origin, source time and bytes of each.
    fn append(&self, stream: &str, messages: &[(&[u8; 4], &str, i64, Vec<u8>)]) -> Appender {
        let mut appender = Appender::open(&self.0, stream, None).unwrap();
        push(&mut appender, messages);
        appender
    }

    fn look(&self, request: Value) -> Seen {
        look(&mut Looker::new(&self.0, 16), request)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let live: Vec<_> = self
            .0
            .streams(true)
            .unwrap_or_default()
            .into_iter()
            .filter_map(|name| {
                self.0.reader_early(&name).ok().and_then(|reader| reader.live_place().map(std::path::Path::to_owned))
            })
            .collect();
        live.iter().for_each(|place| drop(std::fs::remove_dir_all(place)));
        let _ = std::fs::remove_dir_all(&self.0.folder);
    }
}

fn push(appender: &mut Appender, messages: &[(&[u8; 4], &str, i64, Vec<u8>)]) {
    for (schema, origin, time, bytes) in messages {
        let label = Label { time: *time, origin, number: None, schema: SchemaId(**schema) };
        while appender.push(&label, &[bytes]).unwrap().is_none() {
            appender.publish();
            appender.wait_room(std::time::Duration::from_millis(100));
        }
    }
    appender.publish();
}

/// An answer: its panels and the bytes behind them.
pub(super) struct Seen {
    pub(super) panels: Vec<Value>,
    arrays: Vec<u8>,
}

pub(super) fn look(looker: &mut Looker, request: Value) -> Seen {
    let request = Request::read(request.to_string().as_bytes()).unwrap();
    let body = looker.look(&request).unwrap();
    let length = u32::from_le_bytes(body[4..8].try_into().unwrap()) as usize;
    let mut text: Value = serde_json::from_slice(&body[8..8 + length]).unwrap();
    let panels = text["panels"].as_array_mut().map(std::mem::take).unwrap();
    Seen { panels, arrays: body[(8 + length).next_multiple_of(8)..].to_vec() }
}

impl Seen {
    /// The array of a panel, as float64.
    fn array(&self, panel: usize, name: &str) -> Vec<f64> {
        let array = &self.panels[panel]["arrays"][name];
        let offset = array["offset"].as_u64().unwrap() as usize;
        let count: u64 = array["shape"].as_array().unwrap().iter().map(|length| length.as_u64().unwrap()).product();
        let numbers = wire::DType::ALL.into_iter().find(|dtype| dtype.name() == array["dtype"]).unwrap();
        let bytes = &self.arrays[offset..offset + count as usize * numbers.size()];
        wire::Numbers::new(numbers, bytes).unwrap().iter().map(wire::Scalar::to_f64).collect()
    }
}

fn ev44(time: i64, pixels: &[i32], times: &[i32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let times_of = [time];
    let events = Ev44 {
        source_name: "detector",
        message_id: 0,
        reference_time: (&times_of).into(),
        reference_time_index: (&[0]).into(),
        time_of_flight: times.into(),
        pixel_id: pixels.into(),
    };
    wire::ev44::write(&mut bytes, &events).unwrap();
    bytes
}

#[test]
fn events_are_an_image_and_a_spectrum() {
    let folder = Folder::new("events");
    let at = |n: i64| START + n * SECOND / 2;
    let message = |n: i64, pixels: &[i32], times: &[i32]| (b"ev44", "detector", at(n), ev44(at(n), pixels, times));
    folder.append(
        "detector",
        &[
            message(0, &[1, 1, 1], &[5, 5, 5]),
            message(1, &[1, 2, 16], &[10, 20, 71]),
            message(2, &[2, 2, 17], &[30, 30, 99]),
        ],
    );
    let seen = folder.look(json!({"panels": [
        {"stream": "detector"},
        {"stream": "detector", "shape": [2, 8], "window": 100},
        {"stream": "detector", "view": "spectrum", "width": 10},
    ]}));
    let facts = &seen.panels[0];
    // Nothing says how the pixels lie: they are no picture.
    assert_eq!((&facts["view"], &facts["region"]), (&json!("pixels"), &json!([1, 0, 18, 0])));
    assert_eq!((&facts["messages"], &facts["events"], &facts["outside"]), (&json!(2), &json!(6), &json!(0)));
    assert_eq!((&facts["from"], &facts["to"]), (&json!(at(1)), &json!(at(2))));
    let mut counts = vec![0.0; 17];
    (counts[0], counts[1], counts[15], counts[16]) = (1.0, 3.0, 1.0, 1.0);
    assert_eq!(seen.array(0, "y"), counts);
    assert_eq!((seen.array(0, "x")[0], seen.array(0, "x").last()), (1.0, Some(&18.0)));
    let facts = &seen.panels[1];
    assert_eq!((&facts["messages"], &facts["outside"], &facts["shape"]), (&json!(1), &json!(1), &json!([2, 8])));
    assert_eq!(seen.array(1, "values")[..3], [0.0, 2.0, 0.0]);
    let before = folder.look(json!({"at": START + 1, "panels": [{"stream": "detector", "view": "events"}]}));
    assert_eq!((&before.panels[0]["events"], &before.panels[0]["sequence"]), (&json!(3), &json!(0)));
    let facts = &seen.panels[2];
    assert_eq!(facts["axis"], json!({"name": "time_of_flight", "unit": "ns", "edges": true}));
    assert_eq!(seen.array(2, "x").last(), Some(&100.0));
    assert_eq!(seen.array(2, "y"), [0.0, 1.0, 1.0, 2.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0]);
}

#[test]
fn a_monitor_without_pixels_is_a_spectrum() {
    let folder = Folder::new("monitor");
    folder.append("monitor", &[(b"ev44", "monitor", START, ev44(START, &[], &[1, 2, 3]))]);
    let seen = folder.look(json!({"panels": [{"stream": "monitor", "width": 4}]}));
    assert_eq!(seen.panels[0]["view"], "spectrum");
    assert_eq!(seen.array(0, "y"), [0.0, 1.0, 1.0, 1.0]);
}

fn variable<'a>(
    name: &'a str,
    axes: &'a [&'a str],
    shape: &'a [i64],
    data: impl Into<wire::Numbers<'a>>,
) -> wire::da00::Variable<'a> {
    let unit = Some(if name == "tof" { "us" } else { "counts" });
    let (axes, shape, data) = (axes.into(), shape.into(), data.into());
    wire::da00::Variable { name, unit, label: None, source: None, axes, shape, data }
}

fn da00(variables: &[wire::da00::Variable<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let array = wire::da00::Da00 { source_name: "monitor", timestamp: START, data: variables.into() };
    wire::da00::write(&mut bytes, &array).unwrap();
    bytes
}

#[test]
fn an_array_of_one_dimension_is_a_curve_with_errors() {
    let folder = Folder::new("curve");
    let bytes = da00(&[
        variable("tof", &["tof"], &[5], &[0.0, 1.0, 2.0, 4.0, 8.0]),
        variable("errors", &["tof"], &[4], &[3.0_f32, 4.0, 0.0, 1.0]),
        variable("signal", &["tof"], &[4], &[9_i32, 16, 0, 1]),
    ]);
    folder.append("monitor", &[(b"da00", "monitor", START, bytes)]);
    let seen = folder.look(json!({"panels": [
        {"stream": "monitor"},
        {"stream": "monitor", "width": 2},
        {"stream": "monitor", "region": [2, 0, 9, 0], "view": "curve"},
        {"stream": "monitor", "region": [4, 0, 9, 0]},
    ]}));
    let facts = &seen.panels[0];
    assert_eq!((&facts["view"], &facts["name"], &facts["unit"]), (&json!("curve"), &json!("signal"), &json!("counts")));
    assert_eq!(facts["axis"], json!({"name": "tof", "label": null, "unit": "us", "edges": true}));
    assert_eq!(seen.array(0, "x"), [0.0, 1.0, 2.0, 4.0, 8.0]);
    assert_eq!((seen.array(0, "y"), seen.array(0, "errors")), (vec![9.0, 16.0, 0.0, 1.0], vec![3.0, 4.0, 0.0, 1.0]));
    assert_eq!(seen.array(1, "x"), [0.0, 2.0, 8.0]);
    assert_eq!((seen.array(1, "y"), seen.array(1, "errors")), (vec![12.5, 0.5], vec![2.5, 0.5]));
    assert_eq!((seen.array(2, "x"), seen.array(2, "y")), (vec![2.0, 4.0, 8.0], vec![0.0, 1.0]));
    assert_eq!(seen.panels[3]["fault"]["what"], "the region is outside of the curve");
}

#[test]
fn an_array_of_more_dimensions_is_an_image_of_y_and_x() {
    let folder = Folder::new("cube");
    // Rows and columns first, as the worker `histogram` has them: times of flight are added up.
    let bytes = da00(&[
        variable("signal", &["y", "x", "tof"], &[2, 3, 2], &[1_i64, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]),
        variable("tof", &["tof"], &[3], &[0.0, 1.0, 2.0]),
        variable("x", &["x"], &[3], &[10_i32, 20, 30]),
    ]);
    folder.append("detector", &[(b"da00", "detector", START, bytes)]);
    let seen = folder.look(json!({"panels": [{"stream": "detector"}, {"stream": "detector", "view": "curve"}]}));
    let facts = &seen.panels[0];
    assert_eq!((&facts["view"], &facts["shape"], &facts["high"]), (&json!("image"), &json!([2, 3]), &json!(12.0)));
    assert_eq!(facts["axes"][1], json!({"name": "x", "label": null, "unit": "counts", "edges": false}));
    assert_eq!(seen.array(0, "values"), [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
    assert_eq!((seen.array(0, "y"), seen.array(0, "x")), (vec![0.0, 1.0], vec![10.0, 20.0, 30.0]));
    assert_eq!(seen.array(1, "y"), [21.0, 21.0]);
}

#[test]
fn an_image_has_the_errors_of_its_pixels() {
    let folder = Folder::new("errors");
    let bytes = da00(&[
        variable("signal", &["y", "x"], &[2, 4], &[1_i32, 2, 3, 4, 5, 6, 7, 8]),
        variable("errors", &["y", "x"], &[2, 4], &[3.0_f64, 4.0, 0.0, 1.0, 0.0, 0.0, 0.0, 2.0]),
    ]);
    folder.append("detector", &[(b"da00", "detector", START, bytes)]);
    let panel = |reduce: &str| json!({"stream": "detector", "width": 2, "height": 1, "reduce": reduce});
    let seen = folder.look(json!({"panels": [
        {"stream": "detector", "region": [1, 0, 3, 2]}, panel("mean"), panel("sum"), panel("max"),
    ]}));
    assert_eq!(seen.array(0, "errors"), [4.0, 0.0, 0.0, 0.0]);
    assert_eq!(seen.panels[1]["arrays"]["errors"]["shape"], json!([1, 2]));
    assert_eq!(seen.array(1, "errors")[0], 5.0 / 4.0);
    assert_eq!(seen.array(2, "errors")[0], 5.0);
    assert_eq!(seen.array(3, "errors"), [0.0, 2.0]);
}

#[test]
fn a_histogram_has_edges_and_a_value_is_a_message() {
    let folder = Folder::new("histogram");
    let dimension = |label, length, edges: &'static [f64]| wire::hs01::Dimension {
        length,
        unit: "mm",
        label,
        bin_boundaries: Some(edges.into()),
    };
    let dimensions = [dimension("height", 1, &[0.0, 9.0]), dimension("width", 2, &[1.0, 2.0, 4.0])];
    let histogram = wire::hs01::Histogram {
        source: "counter",
        timestamp: START,
        dim_metadata: (&dimensions).into(),
        last_metadata_timestamp: 0,
        current_shape: (&[1, 2]).into(),
        offset: (&[]).into(),
        data: Some((&[5_i32, 6]).into()),
        errors: None,
        info: "",
    };
    let mut bytes = Vec::new();
    wire::hs01::write(&mut bytes, &histogram).unwrap();
    folder.append("counter", &[(b"hs01", "counter", START, bytes)]);
    folder.append("one", &[(b"da00", "one", START, da00(&[variable("signal", &[], &[], &[5_i32])]))]);
    let seen = folder.look(json!({"panels": [{"stream": "counter"}, {"stream": "one"}]}));
    let facts = &seen.panels[0];
    assert_eq!(facts["axes"][1], json!({"name": "width", "label": "width", "unit": "mm", "edges": true}));
    assert_eq!((seen.array(0, "values"), seen.array(0, "x")), (vec![5.0, 6.0], vec![1.0, 2.0, 4.0]));
    assert_eq!(seen.panels[1]["view"], "message");
}

fn f144(source_name: &str, time: i64, value: wire::f144::Value<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    wire::f144::write(&mut bytes, &wire::f144::F144 { source_name, timestamp: time, value }).unwrap();
    bytes
}

#[test]
fn a_trend_has_alarms_connections_and_the_unit_from_before() {
    use wire::al00::{Al00, Severity};
    use wire::ep01::{ConnectionInfo, Ep01};
    let folder = Folder::new("trend");
    let mut messages = Vec::new();
    let mut add = |schema: &'static [u8; 4], time: i64, write: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        write(&mut bytes);
        messages.push((schema, "topic-0", time, bytes));
    };
    let unit = wire::un00::Un00 { source_name: "T", timestamp: START, units: Some("K") };
    add(b"un00", START, &|out| wire::un00::write(out, &unit).unwrap());
    let alarm =
        |second: i64, severity| Al00 { source_name: "T", timestamp: START + second * SECOND, severity, message: "hot" };
    add(b"al00", START, &|out| wire::al00::write(out, &alarm(0, Severity::Major)).unwrap());
    // Few of many messages are numbers.
    for n in 0..5000 {
        add(b"json", START + n, &|out| wire::json::write(out, &wire::json::JsonData { json: "{}" }).unwrap());
    }
    for second in 100..110 {
        let time = START + second * SECOND;
        add(b"f144", time, &|out| *out = f144("T", time, (second as f64).into()));
        add(b"f144", time, &|out| *out = f144("wave", time, (&[1_i16, 2, 6][..]).into()));
        if second == 104 {
            add(b"al00", time, &|out| wire::al00::write(out, &alarm(104, Severity::Ok)).unwrap());
        }
        let status = match second {
            106 => ConnectionInfo::Disconnected,
            108 => ConnectionInfo::Connected,
            _ => continue,
        };
        let connection = Ep01 { timestamp: time, status, source_name: "T", service_id: None };
        add(b"ep01", time, &|out| wire::ep01::write(out, &connection).unwrap());
    }
    let mut devices = folder.append("devices", &messages);
    let to = START + 109 * SECOND;
    let panel = json!({"stream": "devices", "view": "trend", "width": 10, "window": 10 * SECOND - 1});
    let mut looker = Looker::new(&folder.0, 16);
    let seen = look(&mut looker, json!({"at": to, "panels": [panel]}));
    let [first, second] = seen.panels[0]["series"].as_array().unwrap().as_slice() else { panic!("two series") };
    assert_eq!((&first["origin"], &first["unit"], &first["count"]), (&json!("T"), &json!("K"), &json!(10)));
    assert_eq!((&first["last"], &first["last_time"]), (&json!(109.0), &json!(to)));
    let alarm = json!({"from": START, "to": START + 104 * SECOND, "severity": "MAJOR", "message": "hot"});
    assert_eq!(first["alarms"], json!([alarm]));
    let loss = json!({"from": START + 106 * SECOND, "to": START + 108 * SECOND, "status": "DISCONNECTED"});
    assert_eq!(first["lost"], json!([loss]));
    assert_eq!((&second["origin"], &second["length"], &second["last"]), (&json!("wave"), &json!(3), &json!(3.0)));
    assert_eq!(seen.array(0, "last0"), (100..110).map(f64::from).collect::<Vec<_>>());
    // The next look has what came since, and one into the past what was before.
    let next = to + SECOND;
    push(&mut devices, &[(b"f144", "topic-0", next, f144("T", next, 7.5.into()))]);
    let panel = json!({"stream": "devices", "origin": "T", "width": 2, "window": 2 * SECOND - 1});
    let seen = look(&mut looker, json!({"at": next, "panels": [panel]}));
    assert_eq!((&seen.panels[0]["view"], seen.array(0, "last0")), (&json!("trend"), vec![109.0, 7.5]));
    let seen = look(&mut looker, json!({"at": to - 5 * SECOND, "panels": [panel]}));
    assert_eq!(seen.array(0, "last0"), [103.0, 104.0]);
}

#[test]
fn a_trend_has_each_value_between_messages_of_other_kinds() {
    let folder = Folder::new("mixed");
    let time = |n: i64| START + n * SECOND;
    let value = |n: i64| (b"f144", "T", time(n), f144("T", time(n), (n as f64).into()));
    let other = |n: i64, length: usize| (b"junk", "T", time(n), vec![0; length]);
    let small: Vec<_> = (0..10).flat_map(|n| [value(n), other(n, 100)]).collect();
    let mut appender = folder.append("values", &small);
    let mut looker = Looker::new(&folder.0, 16);
    let mut counts = |to: i64| {
        let panel = json!({"stream": "values", "view": "trend", "width": 1, "window": time(to) - START});
        let seen = look(&mut looker, json!({"at": time(to), "panels": [panel]}));
        let series = &seen.panels[0]["series"][0];
        (series["count"].as_u64().unwrap(), series["last"].as_f64().unwrap(), seen.array(0, "max0"))
    };
    assert_eq!(counts(9), (10, 9.0, vec![9.0]));
    // From the first large one on they are not read.
    let large: Vec<_> = (10..20).flat_map(|n| [other(n, 100_000), value(n), other(n, 100)]).collect();
    push(&mut appender, &large);
    assert_eq!(counts(19), (20, 19.0, vec![19.0]));
    // Over the end of a block.
    let many: Vec<_> = (20..1500).map(value).collect();
    push(&mut appender, &many);
    assert_eq!(counts(1499), (1500, 1499.0, vec![1499.0]));
    assert_eq!(counts(14), (15, 14.0, vec![14.0]));
}

#[test]
fn alarms_are_found_anywhere_in_a_stream() {
    use wire::al00::{Al00, Severity};
    let folder = Folder::new("alarms");
    let mut messages = Vec::new();
    let mut add = |time: i64, severity| {
        let mut bytes = Vec::new();
        wire::al00::write(&mut bytes, &Al00 { source_name: "T", timestamp: time, severity, message: "hot" }).unwrap();
        messages.push((b"al00", "T", time, bytes));
    };
    let second = |n: i64| START + n * SECOND;
    for (at, severity) in [(0, Severity::Major), (1, Severity::Major), (2, Severity::Ok), (3, Severity::Minor)] {
        add(second(at), severity);
    }
    // More messages than one look searches.
    let between = crate::limits::LOOK_BACK * crate::limits::BLOCK * 2;
    for n in 0..between as i64 {
        messages.push((b"json", "T", second(10) + n, b"{}".to_vec()));
    }
    let mut bytes = Vec::new();
    let alarm = Al00 { source_name: "T", timestamp: second(20), severity: Severity::Invalid, message: "gone" };
    wire::al00::write(&mut bytes, &alarm).unwrap();
    messages.push((b"al00", "T", second(20), bytes));
    folder.append("devices", &messages);
    let mut looker = Looker::new(&folder.0, 16);
    // Where the next one begins, with what severity, and after how many looks.
    let mut find = |at: i64, step: i64| {
        let mut panel = json!({"stream": "devices", "view": "alarm", "step": step});
        for looks in 1.. {
            let seen = look(&mut looker, json!({"at": at, "panels": [panel]}));
            let [answer] = &seen.panels[..] else { panic!("one panel") };
            let found = &answer["found"];
            if !found.is_null() {
                return Some((found["from"].as_i64()?, found["severity"].as_str()?.to_owned(), looks));
            }
            assert!(answer["reached"].is_i64() || answer["reached"].is_u64(), "{answer}");
            panel["sequence"] = answer["sequence"].as_u64()?.into();
        }
        None
    };
    assert_eq!(find(second(-1), 1), Some((second(0), "MAJOR".into(), 1)));
    // A repeated state continues; the page shows a moment just behind the one that it was sent to.
    assert_eq!(find(second(0), 1), Some((second(3), "MINOR".into(), 1)));
    assert_eq!(find(second(3) + 512, 1), Some((second(20), "INVALID".into(), 3)));
    assert_eq!(find(second(20), 1), None);
    assert_eq!(find(second(3) + 512, -1), Some((second(0), "MAJOR".into(), 1)));
    assert_eq!(find(second(20), -1).map(|found| (found.0, found.1)), Some((second(3), "MINOR".into())));
    assert_eq!(find(second(2), -1), Some((second(0), "MAJOR".into(), 1)));
    assert_eq!(find(second(0), -1), None);
    // Any moment may be asked for.
    assert_eq!((find(i64::MIN, -1), find(i64::MAX, 1)), (None, None));
    assert_eq!(find(i64::MIN, 1).map(|found| found.0), Some(second(0)));
}

#[test]
fn values_hold_no_longer_than_their_stream_is_written() {
    let folder = Folder::new("until");
    let value = |n: i64| {
        (b"f144", "T1", START + n * SECOND, f144("T1", START + n * SECOND, wire::f144::Value::Scalar(1.5.into())))
    };
    let appender = folder.append("devices", &[value(0), value(2)]);
    let asked = json!({"at": START + 9 * SECOND, "panels": [{"stream": "devices", "view": "trend", "width": 4}]});
    let mut looker = Looker::new(&folder.0, 16);
    let seen = look(&mut looker, asked.clone());
    assert_eq!(seen.panels[0]["until"], Value::Null);
    drop(appender);
    let seen = look(&mut looker, asked);
    assert_eq!(seen.panels[0]["until"], START + 2 * SECOND);
}

#[test]
fn groups_name_the_members_that_are_missing() {
    let folder = Folder::new("groups");
    let row = |n: i64, count: u32, missing: &[u32]| {
        let time = START + n * SECOND;
        let group = wire::bpgr::Group { first: 0, count, missing: missing.into(), time, members: (&[]).into() };
        let mut bytes = Vec::new();
        wire::bpgr::write(&mut bytes, &group).unwrap();
        (b"bpgr", "groups", time, bytes)
    };
    folder.append("built", &[row(0, 9, &[]), row(100, 3, &[]), row(101, 2, &[1]), row(102, 1, &[0, 1])]);
    let panel = json!({"panels": [{"stream": "built"}]});
    let seen = folder.look(panel.clone());
    let facts = &seen.panels[0];
    assert_eq!((&facts["view"], &facts["groups"], &facts["incomplete"]), (&json!("groups"), &json!(3), &json!(2)));
    assert_eq!(seen.array(0, "multiplicity"), [0.0, 1.0, 1.0, 1.0]);
    assert_eq!(facts["missing"][0], json!({"member": "member 1", "count": 2}));
    let file = "[worker.built.parameters]\nmembers = [\"m{01..02}\"]\n";
    std::fs::write(folder.0.folder.join(crate::books::SETTINGS), file).unwrap();
    let seen = folder.look(panel.clone());
    assert_eq!(seen.panels[0]["missing"][0], json!({"member": "m02", "count": 2}));
    // As the runner of the worker sends them to its slot.
    let task = wire::bptk::Task {
        command: "configure",
        number: 0,
        slot: 0,
        input: 0,
        uuid: [0; 16],
        epoch: 0,
        block_first: 0,
        block_next: 0,
        first: 0,
        next: 0,
        part: 0,
        parts: 1,
        arguments: r#"{"find": "gap", "members": ["d{01..02}", "veto"]}"#,
    };
    let mut bytes = Vec::new();
    wire::bptk::write(&mut bytes, &task).unwrap();
    let mut tasks = folder.0.writer("built.tasks", &store::Options::memory(4 << 20)).unwrap();
    let schema = SchemaId(wire::bptk::ID);
    let origin = tasks.origin("built").unwrap();
    tasks.append(&store::Meta { source_time: 0, origin, origin_seq: 0, schema, flags: 0 }, &bytes).unwrap();
    tasks.publish();
    let seen = folder.look(panel);
    assert_eq!(seen.panels[0]["missing"][1], json!({"member": "d01", "count": 1}));
}

fn meta(source_time: i64) -> store::Meta {
    store::Meta { source_time, origin: 0, origin_seq: 0, schema: SchemaId(*b"json"), flags: 0 }
}

/// A sealed run of a stream, as the keeper of runs records it.
fn sealed(folder: &Folder, stream: &str, (start, stop): (i64, i64), next: u64) {
    let header = folder.0.reader_early(stream).unwrap().header().clone();
    let (uuid, epoch) = (header.uuid, header.epochs.last().unwrap().0);
    let range =
        flow::records::Range { stream: stream.into(), uuid, epoch, first: 0, next, by_arrival: false, ended: false };
    let run = flow::records::Run {
        name: "first".into(),
        id: [1; 16],
        state: wire::bprn::State::Sealed,
        start,
        stop,
        settle: 0,
        time: stop,
        metadata: "{}".into(),
        streams: vec![range],
        reason: String::new(),
        inclusive: false,
        clock_step: 0,
        instrument: "".into(),
        undescribed: None,
    };
    let mut book = flow::Book::open(&folder.0, flow::RUNS, flow::Keeps::All).unwrap();
    book.append(&run).unwrap();
    book.settle().unwrap();
}

#[test]
fn a_lane_shows_each_message_and_how_late_it_was_at_its_time() {
    let folder = Folder::new("lane");
    // Arrival is now: messages of some seconds ago are late by these.
    let to = folder.0.media.now();
    let at = |seconds: i64| to - seconds * SECOND;
    let message = |seconds: i64| (b"f144", "T", at(seconds), f144("T", at(seconds), 1.0.into()));
    folder.append("devices", &[message(95), message(85), message(5), message(85), message(45)]);
    let mut aside = folder.0.writer("devices.aside", &store::Options::disk(4 << 20)).unwrap();
    for seconds in [95, 5] {
        aside.push(&meta(at(seconds)), &[b"x"]).unwrap();
    }
    aside.publish();
    sealed(&folder, "devices", (at(99), at(50)), 3);
    let panel = json!({"stream": "devices", "view": "times", "width": 10, "window": 100 * SECOND});
    let seen = folder.look(json!({"at": to, "panels": [panel]}));
    assert_eq!(seen.array(0, "counts"), [1.0, 2.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
    // Two messages a long time apart are not everywhere between.
    assert_eq!(seen.array(0, "aside"), [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    // One of the two that came behind the seal is a member of the run.
    assert_eq!(seen.array(0, "late"), [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    let lateness = seen.array(0, "lateness");
    let known: Vec<usize> = (0..10).filter(|part| !lateness[*part].is_nan()).collect();
    assert_eq!(known, [0, 1, 5, 9]);
    let least = |part: usize, seconds: i64| lateness[part] >= (seconds * SECOND) as f64;
    assert!(least(0, 95) && least(1, 85) && least(5, 45) && least(9, 5), "{lateness:?}");
    assert!(lateness.windows(2).filter(|pair| pair[0] <= pair[1]).count() == 0, "{lateness:?}");
}

#[test]
fn a_fast_stream_is_late_where_its_blocks_are() {
    let folder = Folder::new("fast");
    let to = folder.0.media.now();
    // Two blocks within a tenth of a second, 50 s apart.
    let message = |at: i64| (b"f144", "T", at, f144("T", at, 1.0.into()));
    let block = |seconds: i64| (0..256).map(move |n| to - seconds * SECOND + n * 1_000_000);
    folder.append("fast", &block(75).chain(block(25)).map(message).collect::<Vec<_>>());
    let panel = json!({"stream": "fast", "view": "times", "width": 10, "window": 100 * SECOND});
    let mut looker = Looker::new(&folder.0, 16);
    // The second look has the lateness of each block from the first.
    for _ in 0..2 {
        let seen = look(&mut looker, json!({"at": to, "panels": [panel]}));
        let (counts, lateness) = (seen.array(0, "counts"), seen.array(0, "lateness"));
        assert_eq!((counts[2].round(), counts[7].round()), (256.0, 256.0), "{counts:?}");
        assert!(counts.iter().sum::<f64>() < 512.1, "{counts:?}");
        assert!(lateness[2] >= 74.0 * SECOND as f64 && lateness[7] < lateness[2], "{lateness:?}");
    }
}

#[test]
fn messages_in_ticks_are_in_their_lane_by_arrival() {
    let folder = Folder::new("ticks");
    let options = store::Options { clock: store::Clock::Ticks, ..store::Options::disk(4 << 20) };
    let mut writer = folder.0.writer("board", &options).unwrap();
    for tick in 0..300 {
        writer.push(&meta(tick), &[b"x"]).unwrap();
    }
    writer.publish();
    let now = folder.0.media.now();
    let panel = json!({"stream": "board", "view": "times", "width": 1, "window": 60 * SECOND});
    let seen = folder.look(json!({"at": now, "panels": [panel]}));
    assert_eq!(seen.array(0, "counts"), [300.0]);
    assert_eq!(seen.panels[0]["arrays"]["lateness"], Value::Null);
}

#[test]
fn the_message_before_and_after_is_of_the_same_origin() {
    let folder = Folder::new("step");
    let value = |origin, n: i64| (b"f144", origin, START + n, f144(origin, START + n, (n as f64).into()));
    folder.append("devices", &[value("a", 0), value("b", 1), value("a", 2), value("b", 3), value("a", 4)]);
    let mut looker = Looker::new(&folder.0, 16);
    let mut step = |sequence: u64, step: i8| {
        let panel = json!({"stream": "devices", "view": "message", "sequence": sequence, "step": step});
        let seen = look(&mut looker, json!({"panels": [panel]}));
        (seen.panels[0]["sequence"].as_u64(), seen.panels[0]["fault"]["cause"].clone())
    };
    assert_eq!((step(2, 0).0, step(2, 1).0, step(2, -1).0), (Some(2), Some(4), Some(0)));
    assert_eq!(step(4, 1).1, "it is the newest of its origin");
    assert_eq!(step(1, -1).1, "it is the oldest of its origin");
    let seen = folder.look(json!({"at": START + 3, "panels": [{"stream": "devices", "view": "message"}]}));
    assert_eq!(seen.panels[0]["fields"]["value"], 3.0);
}

#[test]
fn a_panel_that_is_shown_again_is_the_same() {
    let folder = Folder::new("again");
    let bytes = |n: i32| ev44(START, &[n, 1, 8], &[1, 2, 3]);
    folder.append("a", &[(b"ev44", "a", START, bytes(2))]);
    folder.append("b", &[(b"ev44", "b", START, bytes(3))]);
    let mut looker = Looker::new(&folder.0, 16);
    let (a, b) = (json!({"stream": "a", "shape": [2, 4]}), json!({"stream": "b", "shape": [3, 3]}));
    let first = look(&mut looker, json!({"panels": [a, b]}));
    let again = look(&mut looker, json!({"panels": [b, a]}));
    assert_eq!(
        (first.array(0, "values"), first.array(1, "values")),
        (again.array(1, "values"), again.array(0, "values"))
    );
    assert_eq!(first.panels[1]["identity"], again.panels[0]["identity"]);
    assert_eq!(again.panels[1]["events"], 3);
    let other = look(&mut looker, json!({"panels": [{"stream": "a", "shape": [4, 2]}]}));
    assert_eq!(other.panels[0]["shape"], json!([4, 2]));
}

/// CPU time of this thread: other work on the machine does not count.
fn cpu() -> std::time::Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    std::time::Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// The cost of a page of two images and six trends, against reading the bytes of the same messages once.
#[test]
#[ignore = "a measurement: cargo test --release -p beamport-web cost -- --ignored --nocapture"]
fn the_cost_of_a_page() {
    const VALUES: i64 = 1_000_000;
    let folder = Folder::new("cost");
    let mut names = Vec::new();
    for n in 0..6 {
        names.push(format!("trend{n}"));
        let message =
            |n: i64| (b"f144", "T", START + n * 1000, f144("LAB:SE:TEMP", START + n * 1000, (n as f64).into()));
        for part in 0..10 {
            let range = part * VALUES / 10..(part + 1) * VALUES / 10;
            folder.append(&names[n], &range.map(message).collect::<Vec<_>>());
        }
    }
    let pixels: Vec<u16> = (0..2048 * 2048).map(|n| (n * 7 % 65_521) as u16).collect();
    for name in ["camera0", "camera1"] {
        names.push(name.to_owned());
        let mut bytes = Vec::new();
        let frame = wire::ad00::Ad00 {
            source_name: name,
            id: 1,
            timestamp: START,
            dimensions: (&[2048, 2048]).into(),
            data: (&pixels).into(),
            attributes: (&[]).into(),
        };
        wire::ad00::write(&mut bytes, &frame).unwrap();
        folder.append(name, &[(b"ad00", name, START, bytes)]);
    }
    let bare = || {
        let start = cpu();
        let (mut bytes, mut sum) = (0, 0_u64);
        for name in &names {
            let options = store::ReadOptions { early: true, check: store::Check::Nothing, ..Default::default() };
            let mut reader = folder.0.reader(name, options).unwrap();
            loop {
                let batch = reader.read(4096).unwrap();
                if batch.is_empty() {
                    break;
                }
                for message in batch.iter() {
                    bytes += message.payload.len();
                    let (words, _) = message.payload.as_chunks::<8>();
                    sum = words.iter().fold(sum, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
                }
            }
        }
        println!("bare pass over {} MB: {:?} ({sum:x})", bytes / 1_000_000, cpu() - start);
    };
    let mut looker = Looker::new(&folder.0, 16);
    let mut look = |panels: &[&String], round: i64| {
        // Another width each time: nothing was drawn before.
        let panel = |name: &&String| json!({"stream": name, "window": VALUES * 1000, "width": 512 - round});
        let panels: Vec<Value> = panels.iter().map(panel).collect();
        let request = json!({"at": START + VALUES * 1000 + round, "panels": panels}).to_string();
        let request = Request::read(request.as_bytes()).unwrap();
        let start = cpu();
        looker.look(&request).unwrap();
        cpu() - start
    };
    for round in 0..5 {
        bare();
        println!("look {round}: {:?}", look(&names.iter().collect::<Vec<_>>(), 2 * round));
        for name in [&names[0], &names[6]] {
            println!("    {name} alone: {:?}", look(&[name], 2 * round + 1));
        }
    }
}

/// Streams of each view.
pub(super) fn all_views(name: &str) -> Folder {
    let folder = Folder::new(name);
    let at = |n: i64| START + n * SECOND / 10;
    let events: Vec<_> =
        (0..20).map(|n| (b"ev44", "detector", at(n), ev44(at(n), &[1, 2, i32::MAX], &[5, 6, i32::MAX]))).collect();
    folder.append("detector", &events);
    let numbers: Vec<_> = (0..20).map(|n| (b"f144", "T", at(n), f144("T", at(n), (n as f64).into()))).collect();
    folder.append("devices", &numbers);
    let curve = da00(&[variable("signal", &["tof"], &[4], &[9_i32, 16, 0, 1])]);
    folder.append("monitor", &[(b"da00", "monitor", START, curve)]);
    let image = da00(&[variable("signal", &["y", "x"], &[2, 3], &[1_i64, 2, 3, 4, 5, 6])]);
    folder.append("camera", &[(b"da00", "camera", START, image)]);
    let group = wire::bpgr::Group { first: 0, count: 3, missing: (&[]).into(), time: START, members: (&[]).into() };
    let mut bytes = Vec::new();
    wire::bpgr::write(&mut bytes, &group).unwrap();
    folder.append("built", &[(b"bpgr", "groups", START, bytes)]);
    folder
}

/// Words of all views, and `auto`.
pub(super) fn all_views_and_auto() -> Vec<&'static str> {
    VIEWS.iter().map(|kind| kind.word).chain([AUTO]).collect()
}

#[test]
fn numbers_at_their_limits_do_not_overflow() {
    let folder = all_views("limits");
    let mut looker = Looker::new(&folder.0, 16);
    let others = [
        json!({}),
        json!({"width": u32::MAX, "height": 1}),
        json!({"width": 0, "height": 0}),
        json!({"region": [0, 0, u32::MAX, u32::MAX]}),
        json!({"region": [u32::MAX, u32::MAX, 0, 0]}),
        json!({"region": [1, 1, 2, 2], "reduce": "sum", "width": 1}),
        json!({"window": i64::MAX}),
        json!({"window": 1}),
        json!({"shape": [u32::MAX, u32::MAX], "first_pixel": i32::MIN}),
        json!({"shape": [0, 0], "first_pixel": i32::MAX}),
        json!({"shape": [1, 1], "first_pixel": i32::MIN}),
        json!({"sequence": u64::MAX, "step": 1}),
        json!({"sequence": 0, "step": -128}),
        json!({"origin": "\u{0}", "known": "/".repeat(1000)}),
    ];
    let streams = ["detector", "devices", "monitor", "camera", "built"];
    let views = all_views_and_auto();
    for at in [Some(i64::MIN), Some(i64::MAX), Some(0), Some(START + 1), None] {
        for (stream, view) in streams.into_iter().flat_map(|stream| views.iter().map(move |view| (stream, *view))) {
            let panels = others.each_ref().map(|other| {
                let mut panel = json!({"stream": stream, "view": view, "width": 30, "height": 30});
                panel.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
                panel
            });
            let seen = look(&mut looker, json!({"at": at, "panels": panels}));
            for (panel, asked) in seen.panels.iter().zip(&panels) {
                let fault = panel["fault"]["what"].as_str();
                assert!(fault.is_none_or(|what| !what.is_empty()), "{asked}: {panel}");
            }
        }
    }
}

#[test]
fn a_wrong_panel_is_a_fault_of_it_alone() {
    let folder = all_views("wrong");
    let seen = folder.look(json!({"panels": [
        {"stream": "camera", "width": 1e10},
        {"stream": "camera", "width": -1},
        {"stream": "camera", "region": [0, 0, 5_000_000_000_u64, 1]},
        {"stream": "camera", "window": 0},
        {"stream": "camera", "colour": "red"},
        {"stream": 7},
        {"view": "image"},
        [],
        null,
        {"stream": "camera"},
    ]}));
    let (right, wrong) = seen.panels.split_last().unwrap();
    assert_eq!(right["view"], "image");
    for panel in wrong {
        assert_eq!(panel["fault"]["what"], "the panel is wrong", "{panel}");
    }
}

#[test]
fn messages_that_are_damaged_are_counted_where_they_are_left_out() {
    let folder = all_views("damaged");
    for stream in ["detector", "devices"] {
        let path = std::fs::read_dir(folder.0.stream(stream))
            .unwrap()
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("p-")));
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path.unwrap()).unwrap();
        use std::os::unix::fs::FileExt as _;
        let mut bytes = [0; 1];
        // In the first message.
        file.read_exact_at(&mut bytes, 40).unwrap();
        file.write_all_at(&[!bytes[0]], 40).unwrap();
    }
    let seen = folder.look(json!({"panels": [
        {"stream": "detector", "shape": [4, 4], "window": 10 * SECOND},
        {"stream": "detector", "view": "spectrum", "window": 10 * SECOND},
        {"stream": "devices", "view": "trend", "window": 10 * SECOND},
        {"stream": "detector", "shape": [4, 4], "window": 1},
        {"stream": "detector", "view": "message", "sequence": 0},
    ], "at": START + 2 * SECOND}));
    for panel in &seen.panels[..3] {
        assert_eq!(panel["unreadable"]["what"], "a message cannot be read, and is not shown", "{panel}");
        assert!(panel["unreadable"]["cause"].as_str().unwrap().contains("p-"), "{panel}");
    }
    assert_eq!((&seen.panels[0]["messages"], &seen.panels[2]["series"][0]["count"]), (&json!(19), &json!(19)));
    assert_eq!(seen.panels[3]["unreadable"], Value::Null);
    assert!(seen.panels[4]["fault"]["hint"].as_str().unwrap().contains("beamport verify"));
}
