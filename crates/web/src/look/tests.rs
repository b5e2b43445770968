//! Looks at streams in a folder.

use super::*;
use flow::{Appender, Label};
use store::SchemaId;
use wire::ev44::Ev44;

const SECOND: i64 = 1_000_000_000;
/// Time of the first message of each test.
const START: i64 = 1_772_366_400 * SECOND;

/// A data folder that is removed at the end.
struct Folder(Data);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("beamport-look-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(Data::on_disk(folder))
    }

    /// Appends messages to a stream: schema, origin, source time and bytes of each.
    fn append(&self, stream: &str, messages: &[(&[u8; 4], &str, i64, Vec<u8>)]) {
        let mut appender = Appender::open(&self.0, stream, None).unwrap();
        for (schema, origin, time, bytes) in messages {
            let label = Label { time: *time, origin, number: None, schema: SchemaId(**schema) };
            while appender.push(&label, &[bytes]).unwrap().is_none() {
                appender.publish();
                appender.wait_room(std::time::Duration::from_millis(100));
            }
        }
        appender.publish();
    }

    fn look(&self, request: Value) -> Seen {
        look(&mut Looker::new(&self.0), request)
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

/// An answer: its panels and the bytes behind them.
struct Seen {
    panels: Vec<Value>,
    arrays: Vec<u8>,
}

fn look(looker: &mut Looker, request: Value) -> Seen {
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
    assert_eq!((&facts["view"], &facts["guessed"], &facts["shape"]), (&json!("events"), &json!(true), &json!([5, 4])));
    assert_eq!((&facts["messages"], &facts["events"], &facts["outside"]), (&json!(2), &json!(6), &json!(0)));
    assert_eq!((&facts["from"], &facts["to"]), (&json!(at(1)), &json!(at(2))));
    let mut counts = vec![0.0; 20];
    (counts[0], counts[1], counts[15], counts[16]) = (1.0, 3.0, 1.0, 1.0);
    assert_eq!(seen.array(0, "values"), counts);
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
