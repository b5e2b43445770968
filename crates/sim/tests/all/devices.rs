//! What stands around the detector: devices, alarm, monitor, field.

use crate::tape::{START, config, record};
use beamport_sim as sim;
use serde_json::json;
use sim::pulse::{pulse_at, pulse_time};

const SECOND: i64 = 1_000_000_000;

#[test]
fn the_alarm_comes_exactly_once_in_ten_seconds() {
    for seed in 0..20 {
        let config = config("amor-devices", &[("seed", json!(seed))]);
        let tape = record(&config, 10);
        let alarms: Vec<_> = tape.of(b"al00").map(|(m, p)| (m.source_time, wire::al00::read(p).unwrap())).collect();
        let [(time, alarm)] = alarms[..] else { panic!("{} alarms", alarms.len()) };
        assert_eq!((alarm.source_name, alarm.severity), (sim::amor::DEVICES[0].0, wire::al00::Severity::Major));
        assert!((time - START - 4 * SECOND).abs() < SECOND / 4, "{}", time - START);
        // The temperature tells the same story.
        let hot =
            |p: &[u8]| matches!(wire::f144::read(p).unwrap().value, wire::f144::Value::Scalar(v) if v.to_f64() > 300.1);
        let temperatures = tape.of(b"f144").filter(|(m, _)| tape.names[m.origin as usize] == alarm.source_name);
        for (meta, payload) in temperatures.filter(|(m, _)| (m.source_time - time).abs() > SECOND / 5) {
            assert_eq!(hot(payload), meta.source_time > time);
        }
    }
    let long = record(&config("amor-devices", &[]), 200);
    let words: Vec<_> = long.of(b"al00").map(|(_, p)| wire::al00::read(p).unwrap().severity.name()).collect();
    assert_eq!(words, ["MAJOR", "OK"]);
}

#[test]
fn devices_tell_the_angle_that_the_detector_has() {
    let config = config("amor-devices", &[("angles", json!([0.5, 1.5])), ("angle_step", json!("700 ms"))]);
    let tape = record(&config, 5);
    let angles = sim::amor::optics::Angles::new(&config);
    let mut changes = 0;
    let mut known = None;
    let mus: Vec<(i64, f64)> = tape
        .of(b"f144")
        .filter(|(m, _)| tape.names[m.origin as usize] == "AMOR:MOT:MU")
        .map(|(m, p)| match wire::f144::read(p).unwrap().value {
            wire::f144::Value::Scalar(v) => (m.source_time, v.to_f64()),
            wire::f144::Value::Array(_) => panic!("an array"),
        })
        .collect();
    let mut next = mus.iter().peekable();
    for n in pulse_at(START) + 1..pulse_at(START + 5 * SECOND) {
        let time = pulse_time(n);
        while let Some((_, value)) = next.next_if(|(at, _)| *at <= time) {
            changes += i32::from(known.is_some_and(|k| k != *value));
            known = Some(*value);
        }
        assert_eq!(known, Some(angles.degrees[angles.at(time)]));
    }
    assert!(changes >= 6);
    // Everything is known from the first pulse on.
    let first = tape.messages[0].0.source_time;
    assert_eq!(tape.messages.iter().filter(|(m, _)| m.source_time == first).count(), sim::amor::DEVICES.len());
}

#[test]
fn the_monitor_counts_the_beam() {
    let config = config("amor-monitor", &[("angles", json!([0.6, 1.9])), ("angle_step", json!("10 s"))]);
    let truth = sim::truth(&config).unwrap();
    let tape = record(&config, 40);
    assert_eq!(tape.messages.len(), 40);
    let angles = sim::amor::optics::Angles::new(&config);
    let (mut counts, mut seconds) = ([0.0; 2], [0.0; 2]);
    for (meta, payload) in tape.of(b"da00") {
        let message = wire::da00::read(payload).unwrap();
        let [signal, tof] = &message.data[..] else { panic!("{} variables", message.data.len()) };
        assert_eq!((signal.name, tof.name, tof.unit), ("signal", "tof", Some("ns")));
        assert_eq!(tof.data.len(), signal.data.len() + 1);
        let sum: f64 = signal.data.iter().map(|v| v.to_f64()).sum();
        // Seconds in which the angle changed belong to both; the grid of steps is that of whole seconds here, so there are none.
        counts[angles.at(meta.source_time)] += sum;
        seconds[angles.at(meta.source_time)] += 1.0;
    }
    for i in 0..2 {
        let expected = truth["angles"][i]["counts_per_second"].as_f64().unwrap() * seconds[i];
        assert!(
            seconds[i] >= 10.0 && (counts[i] - expected).abs() < 5.0 * expected.sqrt(),
            "angle {i}: {} expected {expected}",
            counts[i]
        );
    }
    assert!((truth["angles"][0]["counts_per_second"].as_f64().unwrap() - 1e5).abs() < 1e-6);
}

#[test]
fn the_field_alternates_without_a_gap() {
    // 9973 samples a second do not divide by 14 pulses.
    let config = config("field", &[("rate", json!(9973)), ("frequency", json!(37.5)), ("amplitude", json!(0.02))]);
    let tape = record(&config, 4);
    let mut samples: Vec<f64> = Vec::new();
    let mut times: Vec<f64> = Vec::new();
    for (meta, payload) in tape.of(b"se00") {
        let message = wire::se00::read(payload).unwrap();
        assert_eq!(message.message_counter as u64, meta.origin_seq);
        assert!((0..200_000).contains(&(message.packet_timestamp - meta.source_time)));
        for (i, value) in message.values.iter().enumerate() {
            times.push((message.packet_timestamp - START) as f64 + i as f64 * message.time_delta);
            samples.push(value.to_f64());
        }
    }
    assert!((samples.len() as i64 - 4 * 9973).abs() <= 1);
    let step = 1e9 / 9973.0;
    assert!(times.windows(2).all(|t| (t[1] - t[0] - step).abs() < 2.0), "no sample is missing and none comes twice");
    let crossings = samples.windows(2).filter(|s| s[0] < 0.0 && s[1] >= 0.0).count();
    assert!((149..=151).contains(&crossings), "{crossings}");
    let highest = samples.iter().copied().fold(0.0, f64::max);
    assert!((highest / 0.02 - 1.0).abs() < 0.01);
}
