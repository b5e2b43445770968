//! The camera: its rate, its frames, what comes from files, and the metadata beside it.

use crate::tape;
use crate::tape::{START, config, record, record_from};
use beamport_sim as sim;
use flow::{Resume, Step};
use serde_json::json;
use sim::Config;
use sim::camera::Recording;
use sim::pulse::Grid;
use std::sync::Arc;
use wire::{DType, ad00};

const SECOND: i64 = 1_000_000_000;

/// A camera of a few pixels.
fn small(keys: &[(&str, serde_json::Value)]) -> Config {
    let mut all = vec![("shape", json!([6, 8])), ("frames", json!(5))];
    all.extend(keys.iter().cloned());
    config("camera", &all)
}

#[test]
fn frames_come_at_their_rate_each_at_its_own_time() {
    for fps in [0.5, 29.97, 1000.0, 12_345.678] {
        let seconds = if fps < 1.0 { 100 } else { 10 };
        let tape = record(&small(&[("fps", json!(fps))]), seconds);
        let grid = Grid::new((fps * 1000.0_f64).round() as i64);
        let first = grid.at(START) + 1;
        for (n, (meta, payload)) in tape.messages.iter().enumerate() {
            let frame = ad00::read(payload).unwrap();
            assert_eq!(meta.source_time, grid.time(first + n as i64), "{fps}");
            assert_eq!((frame.timestamp, frame.id), (meta.source_time, n as i32));
            assert_eq!(meta.origin_seq, n as u64);
        }
        let rate = tape.messages.len() as f64 / seconds as f64;
        assert!((rate / fps - 1.0).abs() < 0.01 + 1.0 / (fps * seconds as f64), "{fps}: {rate}");
    }
}

#[test]
fn frames_missed_are_made_up_for_in_bounded_steps() {
    let mut source = sim::build(&config("camera", &[("fps", json!(1000))])).unwrap();
    source.start(START, &Resume::default()).unwrap();
    let mut tape = tape::Recorder::new();
    source.step(START + SECOND / 100, &mut tape).unwrap();
    // Nearly a second without a step: 262 kB a frame, 8 MiB a step.
    let (mut steps, mut before) = (0, tape.bytes());
    while source.step(START + SECOND, &mut tape).unwrap() == Step::Again {
        assert!(tape.bytes() - before <= sim::limits::BYTES_PER_STEP + (1 << 19));
        (steps, before) = (steps + 1, tape.bytes());
    }
    assert_eq!(tape.messages.len(), 1000);
    assert!(steps > 20, "{steps}");
}

#[test]
fn every_type_pattern_and_layout_is_a_good_frame() {
    for pattern in ["beam", "spots", "noise", "gradient", "constant", "turns"] {
        for dtype in DType::ALL.into_iter().filter(|dtype| *dtype != DType::Text) {
            for shape in [json!([7]), json!([6, 8]), json!([2, 6, 8])] {
                let keys = [
                    ("pattern", json!(pattern)),
                    ("dtype", json!(dtype.name())),
                    ("shape", shape.clone()),
                    ("counts", json!(2)),
                ];
                let tape = record(&small(&keys), 1);
                let frames: Vec<_> = tape.of(b"ad00").map(|(_, payload)| ad00::read(payload).unwrap()).collect();
                assert_eq!(frames.len(), 10);
                for (n, frame) in frames.iter().enumerate() {
                    assert_eq!(json!(frame.shape()), shape);
                    assert_eq!(frame.data.dtype(), dtype);
                    // Five distinct frames, shown in turn.
                    assert_eq!(frame.data, frames[n % 5].data);
                }
                // Of turns, what lies below 0 shows in types with a sign alone.
                let differs = frames[0].data != frames[1].data;
                assert!(differs == (pattern != "constant") || pattern == "turns", "{pattern} {} {shape}", dtype.name());
                let attributes: Vec<_> = frames[0].attributes.iter().map(|a| (a.name, a.data.as_text())).collect();
                assert_eq!(attributes, [("fps", None), ("pattern", Some(pattern))]);
            }
        }
    }
}

#[test]
fn counts_have_the_mean_and_scatter_that_are_asked_for() {
    let keys = [("pattern", json!("noise")), ("dtype", json!("float64")), ("counts", json!(30)), ("frames", json!(20))];
    let tape = record(&config("camera", &[&keys[..], &[("shape", json!([64, 64]))]].concat()), 2);
    let pixels: Vec<f64> = tape
        .of(b"ad00")
        .flat_map(|(_, payload)| ad00::read(payload).unwrap().data.iter().map(|v| v.to_f64()).collect::<Vec<_>>())
        .collect();
    let n = pixels.len() as f64;
    let mean = pixels.iter().sum::<f64>() / n;
    let variance = pixels.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
    assert!((mean - 30.0).abs() < 5.0 * (30.0 / n).sqrt(), "{mean}");
    assert!((variance / 30.0 - 1.0).abs() < 5.0 * (2.0 / n).sqrt(), "{variance}");
    // More than the type can hold stops at its end.
    let bright = record(&small(&[("pattern", json!("constant")), ("counts", json!(1e6))]), 1);
    assert!(bright.of(b"ad00").all(|(_, p)| ad00::read(p).unwrap().data.bytes().iter().all(|pixel| *pixel == 255)));
}

#[test]
fn equal_seeds_give_equal_frames_and_others_do_not() {
    for pattern in ["beam", "spots", "noise", "turns"] {
        let one = record(&small(&[("pattern", json!(pattern))]), 2);
        assert_eq!(one.messages, record(&small(&[("pattern", json!(pattern))]), 2).messages);
        assert_ne!(one.messages, record(&small(&[("pattern", json!(pattern)), ("seed", json!(2))]), 2).messages);
    }
}

#[test]
fn turns_of_a_beam_have_its_orbit_as_their_mean() {
    let keys = [
        ("pattern", json!("turns")),
        ("dtype", json!("float64")),
        ("counts", json!(1000)),
        ("frames", json!(4)),
        ("shape", json!([2, 28, 2700])),
    ];
    let tape = record(&config("camera", &keys), 1);
    let (_, payload) = tape.of(b"ad00").next().unwrap();
    let frame = ad00::read(payload).unwrap();
    let number = tape.messages[0].0.source_time / (SECOND / 10);
    let positions: Vec<f64> = frame.data.iter().map(|v| v.to_f64()).collect();
    for (row, turns) in positions.chunks(2700).enumerate() {
        let part = number.rem_euclid(4) as f64 / 4.0;
        let orbit = 1000.0 * (std::f64::consts::TAU * (0.37 * (row % 28) as f64 + part)).sin();
        let mean = turns.iter().sum::<f64>() / 2700.0;
        assert!((mean - orbit).abs() < 2.0, "monitor {row}: {mean} {orbit}");
        let swing = turns.iter().map(|x| (x - orbit).powi(2)).sum::<f64>() / 2700.0;
        assert!((swing / (100f64.powi(2) / 2.0 + 10f64.powi(2)) - 1.0).abs() < 0.1, "{swing}");
    }
}

#[test]
fn cameras_that_count_by_pulse_share_their_numbers_whenever_they_begin() {
    let keys = [("numbers", json!("pulse")), ("fps", json!(10))];
    let numbers = |begin: i64| -> Vec<(u64, i64, i32)> {
        let mut source = sim::build(&small(&keys)).unwrap();
        source.start(begin, &Resume::default()).unwrap();
        let mut tape = tape::Recorder::new();
        source.step(START + 2 * SECOND, &mut tape).unwrap();
        let id = |payload: &[u8]| ad00::read(payload).unwrap().id;
        tape.messages.iter().map(|(m, payload)| (m.origin_seq, m.source_time, id(payload))).collect()
    };
    let (early, late) = (numbers(START), numbers(START + SECOND / 2));
    assert_eq!(early[early.len() - late.len()..], late[..]);
    assert!(
        late.iter()
            .all(|(number, time, id)| *number as i64 == time / (SECOND / 10) && *id as u64 == number & 0x7fff_ffff)
    );
}

#[test]
fn a_restart_goes_on_with_the_numbers_and_the_frames() {
    for config in [small(&[("fps", json!(33.3))]), config("camera-metadata", &[("jitter", json!("1 ms"))])] {
        let whole = record(&config, 9);
        let mut parts = record(&config, 4);
        let again = record_from(&config, START + 4 * SECOND, 5, &parts.resume());
        assert!(!again.messages.is_empty());
        parts.append(again);
        assert_eq!(parts.by_name(), whole.by_name());
    }
}

#[test]
fn numbers_of_frames_never_become_negative() {
    let config = small(&[]);
    let origins =
        vec![flow::ResumeOrigin { name: "camera".to_owned(), next_seq: (1 << 31) - 2, last_time: START, life: 1 }];
    let tape = record_from(&config, START, 1, &Resume { origins, ..Resume::default() });
    let ids: Vec<i32> = tape.of(b"ad00").map(|(_, payload)| ad00::read(payload).unwrap().id).collect();
    assert_eq!(ids[..4], [i32::MAX - 1, i32::MAX, 0, 1]);
}

#[test]
fn metadata_has_the_times_of_the_frames_and_says_to_which_it_belongs() {
    let frames = record(&small(&[("fps", json!(40))]), 5);
    let times: Vec<i64> = frames.messages.iter().map(|(meta, _)| meta.source_time).collect();
    let value = |payload: &[u8]| match wire::f144::read(payload).unwrap().value {
        wire::f144::Value::Scalar(value) => value.to_f64(),
        wire::f144::Value::Array(_) => panic!("an array"),
    };
    let exact = record(&config("camera-metadata", &[("fps", json!(40)), ("values", json!(3))]), 5);
    assert_eq!(exact.names, ["camera:PV001", "camera:PV002", "camera:PV003"]);
    assert_eq!(exact.messages.len(), 3 * times.len());
    let grid = Grid::new(40_000);
    for (n, messages) in exact.messages.chunks(3).enumerate() {
        for (variable, (meta, payload)) in messages.iter().enumerate() {
            assert_eq!((meta.source_time, meta.origin as usize, meta.origin_seq), (times[n], variable, n as u64));
            assert_eq!(wire::f144::read(payload).unwrap().timestamp, meta.source_time);
            assert_eq!(value(payload), (grid.at(times[n]) % 1_000_000) as f64 + variable as f64 / 1000.0);
        }
    }
    let keys = [("fps", json!(40)), ("offset", json!("2 ms")), ("jitter", json!("1 ms")), ("origin", json!("X"))];
    let late = record(&config("camera-metadata", &keys), 5);
    assert_eq!(late.names, ["X:PV001"]);
    let shifts: Vec<i64> = late.messages.iter().zip(&times).map(|((meta, _), time)| meta.source_time - time).collect();
    assert!(shifts.iter().all(|shift| (2_000_000..3_000_000).contains(shift)));
    assert!(shifts.iter().max() > shifts.iter().min());
}

fn recording(name: &str, bytes: Vec<u8>) -> Recording {
    Recording { name: name.to_owned(), bytes: Arc::new(bytes) }
}

/// A numpy file.
fn npy(descr: &str, shape: &str, numbers: &[u8]) -> Vec<u8> {
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
    bytes.extend_from_slice(numbers);
    bytes
}

fn of_files(files: Vec<Recording>, keys: &[(&str, serde_json::Value)]) -> Config {
    Config { files, ..config("camera", keys) }
}

#[test]
fn frames_of_files_are_shown_in_turn() {
    // A stack of three, a single frame, and plain numbers of two.
    let stack: Vec<u8> = (0..3 * 12).collect();
    let files = || {
        vec![
            recording("stack.npy", npy("<u2", "(3, 2, 3)", &stack)),
            recording("one.npy", npy("<u2", "(2, 3)", &[100; 12])),
            recording("plain.raw", [[110; 12], [120; 12]].concat()),
        ]
    };
    let keys = [("shape", json!([2, 3])), ("dtype", json!("uint16")), ("fps", json!(20))];
    let config = of_files(files(), &keys);
    let tape = record(&config, 2);
    let distinct = [&stack[..12], &stack[12..24], &stack[24..], &[100; 12], &[110; 12], &[120; 12]];
    let grid = Grid::new(20_000);
    for (meta, payload) in tape.of(b"ad00") {
        let frame = ad00::read(payload).unwrap();
        assert_eq!((frame.shape(), frame.data.dtype()), (vec![2, 3], DType::UInt16));
        assert_eq!(frame.data.bytes(), distinct[(grid.at(meta.source_time) % 6) as usize]);
    }
    assert_eq!(tape.messages.len(), 40);
    let truth = sim::truth(&config).unwrap();
    assert_eq!(truth["files"], json!(["stack.npy", "one.npy", "plain.raw"]));
    // Without `shape` a stack is recognised by its dimensions.
    let alone = record(&of_files(files().drain(..2).collect(), &[]), 1);
    assert_eq!(ad00::read(&alone.messages[0].1).unwrap().shape(), [2, 3]);
    let layers = of_files(files().drain(..1).collect(), &[("shape", json!([3, 2, 3]))]);
    assert_eq!(ad00::read(&record(&layers, 1).messages[0].1).unwrap().shape(), [3, 2, 3]);
}

#[test]
fn files_without_frames_are_refused_with_a_reason() {
    let keys = [("shape", json!([2, 3])), ("dtype", json!("uint16"))];
    let good = || recording("a.npy", npy("<u2", "(2, 3)", &[0; 12]));
    for (files, keys, cause) in [
        (vec![recording("a.raw", vec![0; 24])], &keys[..1], "type is unknown"),
        (vec![recording("a.raw", vec![0; 25])], &keys[..], "25 bytes"),
        (vec![recording("a.raw", Vec::new())], &keys[..], "0 bytes"),
        (vec![recording("a.npy", npy("<c8", "(2, 3)", &[0; 48]))], &keys[..0], "<c8"),
        (vec![recording("a.npy", npy("<u2", "(2, 3)", &[0; 11]))], &keys[..0], "ends before"),
        (vec![recording("a.npy", npy("<u2", "(0, 2, 3)", &[]))], &keys[..0], "ends before"),
        (vec![recording("a.npy", npy("<u2", "(9, 2, 3)", &[0; 12]))], &keys[..0], "ends before"),
        (vec![recording("a.npy", npy("<u2", "(4, 3)", &[0; 24]))], &keys[..], "its shape is [4, 3]"),
        (vec![recording("a.npy", npy("<u4", "(2, 3)", &[0; 24]))], &keys[..], "uint32"),
        (vec![recording("a.npy", npy("<u4", "(2, 0)", &[]))], &keys[..0], "1 byte"),
        (vec![good(), recording("b.npy", npy("<u2", "(3, 3)", &[0; 18]))], &keys[..0], "[3, 3]"),
        (vec![good(); 300], &keys[..0], "300"),
    ] {
        let config = of_files(files, keys);
        let Err(fault) = sim::build(&config) else { panic!("{cause}") };
        assert!(fault.to_string().contains(cause), "{cause}: {fault}");
    }
}

#[test]
fn frames_that_cannot_be_made_are_refused_before_any_is() {
    for (keys, hint) in [
        (vec![("shape", json!([100_000, 100_000]))], "shape"),
        (vec![("shape", json!([u64::MAX, 3]))], "shape"),
        (vec![("shape", json!([4096, 4096])), ("frames", json!(9))], "fewer `frames`"),
        (vec![("shape", json!([16384, 16384]))], "smaller `shape`"),
        (vec![("frames", json!(1u64 << 27))], "frames"),
    ] {
        let Err(fault) = sim::build(&config("camera", &keys)) else { panic!("{keys:?}") };
        assert!(fault.hint.contains(hint), "{fault}");
    }
    assert!(Config::new("camera").unwrap().set("fps", &json!(1.0 / 3.0)).is_err());
    assert!(Config::new("camera").unwrap().set("fps", &json!(23.976)).is_ok());
    let unset: [fn(&mut Config); 4] =
        [|c| c.fps = f64::NAN, |c| c.counts = -1.0, |c| c.shape = Some(vec![0]), |c| c.frames = Some(0)];
    for change in unset {
        let mut config = Config::new("camera").unwrap();
        change(&mut config);
        assert!(sim::build(&config).is_err());
    }
}
