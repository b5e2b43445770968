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
      {"module": "f144", "config": {"stream": "devices", "source": "T", "value_units": "K", "enable_epics_con_info": true}},
      {"module": "al00", "config": {"stream": "devices", "source": "T"}}]},
    {"type": "group", "name": "field", "children": [
      {"module": "se00", "config": {"stream": "devices", "source": "B", "value_units": "T"}}]},
    {"type": "group", "name": "pressure", "children": [
      {"module": "f142", "config": {"stream": "devices", "source": "P", "value_units": "bar", "enable_alarm_info": true}}]},
    {"type": "group", "name": "voltage", "children": [{"module": "senv", "config": {"stream": "devices", "source": "V"}}]}]},
  {"type": "group", "name": "older", "children": [
    {"type": "group", "name": "chopper", "children": [{"module": "tdct", "config": {"stream": "devices", "source": "chopper"}}]},
    {"type": "group", "name": "events", "children": [{"module": "ev42", "config": {"stream": "devices", "source": "bank1"}}]},
    {"type": "group", "name": "image", "children": [{"module": "hs01", "config": {"stream": "devices", "source": "image"}}]},
    {"type": "group", "name": "raw", "children": [{"module": "ar51", "config": {"stream": "devices", "source": "raw"}}]},
    {"type": "group", "name": "text", "children": [{"module": "json", "config": {"stream": "devices"}}]}]},
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

/// A message of any schema.
pub(crate) fn any(message: &wire::Message<'_>, time: i64) -> Made {
    let mut bytes = Vec::new();
    message.write(&mut bytes).unwrap();
    made(bytes, time)
}

/// What older senders send, and raw data: a message of each schema.
pub(crate) fn others(n: u64) -> Vec<Made> {
    let time = START + n as i64 * 1_000_000_000;
    let at = time as u64;
    let pulses: Vec<u64> = (0..14).map(|i| at + i * PULSE as u64).collect();
    let samples: Vec<i16> = (0..4).map(|i| n as i16 * 4 + i).collect();
    let offsets: Vec<u32> = (0..n as u32 % 50).map(|i| 5000 + i).collect();
    let raw: Vec<u8> = (0..n as u8 % 40).collect();
    let severity = match n % 5 {
        0 => wire::f142::AlarmSeverity::Major,
        1 => wire::f142::AlarmSeverity::NoAlarm,
        _ => wire::f142::AlarmSeverity::NoChange,
    };
    let all = [
        wire::Message::Ep01(wire::ep01::Ep01 {
            timestamp: time,
            status: wire::ep01::ConnectionInfo::Connected,
            source_name: "T",
            service_id: None,
        }),
        wire::Message::F142(wire::f142::F142 {
            source_name: "P",
            value: wire::f142::Value::Number(1.5f64.into()),
            timestamp: at,
            status: wire::f142::AlarmStatus::HiHi,
            severity,
        }),
        wire::Message::Senv(wire::senv::Senv {
            name: "V",
            channel: 0,
            packet_timestamp: at,
            time_delta: 2.5e8,
            timestamp_location: wire::se00::Location::Start,
            values: (&samples).into(),
            timestamps: None,
            message_counter: n,
        }),
        wire::Message::Tdct(wire::tdct::Tdct { name: "chopper", timestamps: (&pulses).into(), sequence_counter: n }),
        wire::Message::Ev42(wire::ev42::Ev42 {
            source_name: "bank1",
            message_id: n,
            pulse_time: at,
            time_of_flight: (&offsets).into(),
            detector_id: (&offsets).into(),
            facility_specific_data: None,
        }),
        wire::Message::Ar51(wire::ar51::Ar51 { source_name: "raw", message_id: n as i64, raw_data: (&raw).into() }),
        wire::Message::Json(wire::json::JsonData { json: &format!("{{\"n\": {n}}}") }),
    ];
    all.iter().map(|message| any(message, time)).chain([image(n, 2.0, true)]).collect()
}

/// A histogram of 2 by 3 bins.
pub(crate) fn image(n: u64, edge: f32, with_errors: bool) -> Made {
    let time = START + n as i64 * 1_000_000_000;
    let counts: Vec<i32> = (0..6).map(|i| n as i32 * 6 + i).collect();
    let errors: Vec<f64> = counts.iter().map(|c| f64::from(*c).sqrt()).collect();
    let (rows, columns) = ([0.0, 1.0, edge], [0.0f64, 0.5, 1.0, 1.5]);
    let dimension =
        |length, unit, label, edges| wire::hs01::Dimension { length, unit, label, bin_boundaries: Some(edges) };
    let dimensions = [dimension(2, "", "row", (&rows).into()), dimension(3, "us", "time of flight", (&columns).into())];
    let histogram = wire::hs01::Histogram {
        source: "image",
        timestamp: time,
        dim_metadata: (&dimensions).into(),
        last_metadata_timestamp: 0,
        current_shape: (&[2, 3]).into(),
        offset: (&[0, 0]).into(),
        data: Some((&counts).into()),
        errors: with_errors.then(|| (&errors).into()),
        info: "",
    };
    any(&wire::Message::Hs01(histogram), time)
}

/// One second of the instrument, `n` counting seconds: all inputs.
pub(crate) fn second(sink: &mut Nexus, n: u64, events_each: usize) -> Result<(), Fault> {
    let pulses: Vec<Made> = (0..14).map(|i| events(n * 14 + i, events_each)).collect();
    assert!(give(sink, 0, n * 14, &pulses)?.is_empty());
    assert!(give(sink, 1, n, &[monitor(n, 1000.0)])?.is_empty());
    let devices: Vec<Made> =
        (0..10).map(|i| value(n * 10 + i)).chain([alarm(n), samples(n)]).chain(others(n)).collect();
    assert!(give(sink, 2, n * 20, &devices)?.is_empty());
    Ok(())
}
