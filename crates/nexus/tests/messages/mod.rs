//! Messages of an instrument that does not exist, made by rule, so that a file can be compared with what was sent.

use beamport_nexus::template::Template;
use beamport_nexus::{Job, Nexus};
use flow::{Aside, Fault, Sink};
use std::path::Path;
use store::{Entry, Message, SchemaId};

/// Begin of every run here: 2026-01-01.
pub(crate) const START: i64 = 1_767_225_600_000_000_000;
/// Between pulses, ns.
pub(crate) const PULSE: i64 = 71_428_571;

pub(crate) const TEMPLATE: &str = r#"{"children": [{"type": "group", "name": "entry",
  "attributes": {"NX_class": "NXentry"}, "children": [
  {"module": "mdat", "config": {"items": ["start_time", "end_time"]}},
  {"module": "dataset", "config": {"name": "title", "values": "made by rule"}},
  {"type": "group", "name": "instrument", "attributes": {"NX_class": "NXinstrument"}, "children": [
    {"module": "dataset", "config": {"name": "name", "values": "none"}},
    {"type": "group", "name": "detector", "attributes": {"NX_class": "NXdetector"}, "children": [
      {"module": "dataset", "config": {"name": "depends_on", "values": "."}},
      {"module": "dataset", "config": {"name": "detector_number", "dtype": "int32", "range": {"first": 1, "shape": [8, 16]}}},
      {"type": "group", "name": "events", "children": [{"module": "ev44", "config": {"stream": "detector", "source": "bank0"}}]}]},
    {"type": "group", "name": "monitor", "attributes": {"NX_class": "NXmonitor"}, "children": [
      {"module": "dataset", "config": {"name": "depends_on", "values": "."}},
      {"type": "group", "name": "data", "children": [{"module": "da00", "config": {"stream": "monitor", "source": "mon",
        "variables": [{"name": "signal", "unit": "counts", "axes": ["tof"], "shape": [5], "data_type": "int32"}],
        "constants": [{"name": "tof", "unit": "ns", "axes": ["tof"], "shape": [6], "data_type": "float64"}]}}]}]}]},
  {"type": "group", "name": "sample", "attributes": {"NX_class": "NXsample"}, "children": [
      {"module": "dataset", "config": {"name": "depends_on", "values": "."}},
    {"type": "group", "name": "temperature", "children": [
      {"module": "f144", "config": {"stream": "devices", "source": "T", "value_units": "K"}},
      {"module": "al00", "config": {"stream": "devices", "source": "T"}}]},
    {"type": "group", "name": "field", "children": [
      {"module": "se00", "config": {"stream": "devices", "source": "B", "value_units": "T"}}]}]},
  {"module": "link", "config": {"name": "temperature", "source": "sample/temperature"}},
  {"module": "link", "config": {"name": "values", "source": "sample/temperature/value"}}]}]}"#;

/// A message with its own bytes.
pub(crate) struct Made {
    pub(crate) entry: Entry,
    pub(crate) payload: Vec<u8>,
}

pub(crate) fn made(payload: Vec<u8>, time: i64) -> Made {
    let mut entry: Entry = bytemuck::Zeroable::zeroed();
    entry.source_time = time;
    entry.schema = SchemaId(wire::schema_id(&payload).unwrap_or_default());
    Made { entry, payload }
}

pub(crate) fn give(sink: &mut Nexus, input: usize, first: u64, all: &[Made]) -> Result<Vec<Aside>, Fault> {
    let messages: Vec<Message<'_>> = all
        .iter()
        .zip(first..)
        .map(|(m, sequence)| Message { sequence, entry: &m.entry, payload: &m.payload })
        .collect();
    let mut aside = Vec::new();
    sink.write(input, &messages, &mut aside)?;
    Ok(aside)
}

pub(crate) fn job(file: &Path) -> Job {
    Job {
        file: file.to_path_buf(),
        template: Template::parse(TEMPLATE.as_bytes()).unwrap(),
        inputs: vec!["detector".into(), "monitor".into(), "devices".into()],
        run: "first".into(),
        run_id: "00112233445566778899aabbccddeeff".into(),
        start: START,
        metadata: r#"{"truth": {"thickness": 30.5}}"#.into(),
    }
}

/// The same with chunks that are packed.
#[allow(dead_code, reason = "not every test packs")]
pub(crate) fn packed(job: Job, compression: &str) -> Job {
    let text = TEMPLATE.replace("\"stream\"", &format!("\"compression\": \"{compression}\", \"stream\""));
    Job { template: Template::parse(text.as_bytes()).unwrap(), ..job }
}

/// Events of message `n`: one pulse, `count` events.
pub(crate) fn events(n: u64, count: usize) -> Made {
    let time = START + n as i64 * PULSE;
    let offsets: Vec<i32> = (0..count as i32).map(|i| 1000 + i * 7).collect();
    let pixels: Vec<i32> = (0..count as u64).map(|i| 1 + ((n * 31 + i) % 128) as i32).collect();
    let times = [time];
    let mut bytes = Vec::new();
    let message = wire::ev44::Ev44 {
        source_name: "bank0",
        message_id: n as i64,
        reference_time: (&times).into(),
        reference_time_index: (&[0_i32]).into(),
        time_of_flight: (&offsets).into(),
        pixel_id: (&pixels).into(),
    };
    wire::ev44::write(&mut bytes, &message).unwrap();
    made(bytes, time)
}

pub(crate) fn value(n: u64) -> Made {
    let time = START + n as i64 * 1_000_000;
    let mut bytes = Vec::new();
    let value = wire::f144::Value::from(280.0 + (n % 100) as f64 * 0.1);
    wire::f144::write(&mut bytes, &wire::f144::F144 { source_name: "T", timestamp: time, value }).unwrap();
    made(bytes, time)
}

pub(crate) fn alarm(n: u64) -> Made {
    let time = START + n as i64 * 1_000_000_000;
    let mut bytes = Vec::new();
    let alarm = wire::al00::Al00 {
        source_name: "T",
        timestamp: time,
        severity: wire::al00::Severity::Minor,
        message: "zu heiß",
    };
    wire::al00::write(&mut bytes, &alarm).unwrap();
    made(bytes, time)
}

pub(crate) fn samples(n: u64) -> Made {
    let time = START + n as i64 * 1_000_000_000;
    let values: Vec<f32> = (0..10).map(|i| (n as f32 + i as f32 / 10.0).sin()).collect();
    let mut bytes = Vec::new();
    let message = wire::se00::Se00 {
        name: "B",
        channel: 0,
        packet_timestamp: time,
        time_delta: 1e8,
        timestamp_location: wire::se00::Location::Start,
        values: (&values).into(),
        timestamps: None,
        message_counter: n as i64,
    };
    wire::se00::write(&mut bytes, &message).unwrap();
    made(bytes, time)
}

pub(crate) fn monitor(n: u64, edges: f64) -> Made {
    let time = START + n as i64 * 1_000_000_000;
    let counts: Vec<i32> = (0..5).map(|i| n as i32 * 10 + i).collect();
    let tof: Vec<f64> = (0..6).map(|i| f64::from(i) * edges).collect();
    let variable = |name, shape, data| wire::da00::Variable {
        name,
        unit: Some("counts"),
        label: None,
        source: None,
        axes: (&["tof"]).into(),
        shape,
        data,
    };
    let data =
        [variable("signal", (&[5_i64]).into(), (&counts).into()), variable("tof", (&[6_i64]).into(), (&tof).into())];
    let mut bytes = Vec::new();
    wire::da00::write(&mut bytes, &wire::da00::Da00 { source_name: "mon", timestamp: time, data: (&data).into() })
        .unwrap();
    made(bytes, time)
}

/// One second of the instrument, `n` counting seconds: all inputs.
pub(crate) fn second(sink: &mut Nexus, n: u64, events_each: usize) -> Result<(), Fault> {
    let pulses: Vec<Made> = (0..14).map(|i| events(n * 14 + i, events_each)).collect();
    assert!(give(sink, 0, n * 14, &pulses)?.is_empty());
    assert!(give(sink, 1, n, &[monitor(n, 1000.0)])?.is_empty());
    let devices: Vec<Made> = (0..10).map(|i| value(n * 10 + i)).chain([alarm(n), samples(n)]).collect();
    assert!(give(sink, 2, n * 12, &devices)?.is_empty());
    Ok(())
}
