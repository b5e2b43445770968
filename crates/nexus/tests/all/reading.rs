//! What `beamport cat FILE` shows of a file: the rows of an interval, and no others.

use crate::messages;
use crate::messages::{START, events, give, made, packed, second, value};
use beamport_nexus::Nexus;
use beamport_nexus::cat::{Asked, cat};
use flow::Sink;
use serde_json::Value;
use std::path::{Path, PathBuf};

const S: i64 = 1_000_000_000;

fn file(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nexus-reading");
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

fn asked(file: &Path) -> Asked {
    Asked {
        file: file.into(),
        from: i64::MIN,
        to: i64::MAX,
        paths: Vec::new(),
        count: u64::MAX,
        events: false,
        json: true,
    }
}

fn shown(asked: &Asked) -> Vec<Value> {
    let mut out = Vec::new();
    cat(asked, &mut out).unwrap_or_else(|fault| panic!("{fault}"));
    String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Two minutes with all kinds of modules; every 30 s a pulse and a value that come 6 s late, behind a cue.
fn two_minutes(file: &Path, compression: Option<&str>) {
    let job = messages::job(file);
    let job = compression.map_or(job.clone(), |word| packed(job, word));
    let mut sink = Nexus::begin(job, true).unwrap();
    for n in 0..120 {
        second(&mut sink, n, if n % 7 == 3 { 0 } else { 40 }).unwrap();
        if n % 30 == 2 && n > 2 {
            give(&mut sink, 0, n * 100, &[events((n - 6) * 14 + 1, 11)]).unwrap();
            let mut late = value(0);
            let time = START + (n as i64 - 6) * S + 7;
            let message = wire::f144::F144 { source_name: "T", timestamp: time, value: 77.5.into() };
            wire::f144::write(&mut late.payload, &message).unwrap();
            give(&mut sink, 2, n * 100, &[made(late.payload, time)]).unwrap();
        }
        if n % 4 == 0 {
            sink.flush().unwrap();
        }
    }
    sink.finish("{}").unwrap();
}

#[test]
fn an_interval_shows_the_rows_of_its_times_and_no_others() {
    let mut first = Vec::new();
    for (name, compression) in [("plain", None), ("deflate", Some("deflate")), ("bits", Some("bitshuffle-lz4"))] {
        let path = file(&format!("{name}.nxs"));
        two_minutes(&path, compression);
        let all = shown(&asked(&path));
        let of = |group: &str| all.iter().filter(|row| row["path"] == group).count();
        assert_eq!(of("/entry/instrument/detector/events"), 120 * 14 + 3, "{name}");
        assert_eq!(of("/entry/instrument/monitor/data"), 120);
        let temperature: Vec<&Value> = all.iter().filter(|row| row["path"] == "/entry/sample/temperature").collect();
        let have = |key: &str| temperature.iter().filter(|row| !row["content"][key].is_null()).count();
        // The link from elsewhere to the values does not hide them.
        assert_eq!(have("value"), 1200 + 3);
        assert!(have("alarm_severity") > 0 && have("connection_status") > 0, "tables of their own");
        assert!(temperature.iter().any(|row| row["content"]["alarm_message"] == "zu heiß"));
        for (from, to) in [
            (0, 1),
            (3, 4),
            (0, 120),
            (26, 27),
            (56, 57),
            (29, 31),
            (40, 40),
            (55, 77),
            (119, 500),
            (-9, 0),
            (500, 600),
        ] {
            let (from, to) = (START + from * S, START + to * S);
            let wanted: Vec<&Value> =
                all.iter().filter(|row| (from..to).contains(&row["source_time"].as_i64().unwrap())).collect();
            let some = shown(&Asked { from, to, ..asked(&path) });
            assert_eq!(some.iter().collect::<Vec<_>>(), wanted, "{name}: from {from} to {to}");
        }
        if first.is_empty() { first = all } else { assert_eq!(all, first, "{name}") }
    }
}

#[test]
fn events_are_counted_by_the_pulse_or_shown_one_by_one() {
    let path = file("events.nxs");
    two_minutes(&path, Some("bitshuffle-lz4"));
    let paths = vec!["entry/instrument/detector".to_owned()];
    let (from, to) = (START + 50 * S, START + 53 * S);
    let pulses = shown(&Asked { from, to, paths: paths.clone(), ..asked(&path) });
    let counts: Vec<u64> = pulses.iter().map(|row| row["content"]["events"].as_u64().unwrap()).collect();
    // Second 52 has no events, and one pulse of 53 came late.
    let late = pulses.iter().position(|row| row["content"]["events"] == 11);
    assert_eq!((counts.len(), counts.iter().sum::<u64>(), late), (42, 28 * 40, None));
    let each = shown(&Asked { from, to, paths, events: true, ..asked(&path) });
    assert_eq!(each.len(), 28 * 40);
    assert_eq!(
        each[43]["content"],
        serde_json::json!({"event_id": 1 + ((50 * 14 + 2) * 31 + 3) % 128, "event_time_offset": 1021})
    );
    assert_eq!(each[43]["source_time"], pulses[1]["source_time"]);
}

#[test]
fn as_many_rows_as_were_asked_for() {
    let path = file("count.nxs");
    two_minutes(&path, None);
    let all = shown(&asked(&path));
    for count in [0, 1, 5, 1700, all.len() as u64] {
        assert_eq!(shown(&Asked { count, ..asked(&path) }), all[..count as usize]);
    }
    let mut out = Vec::new();
    cat(&Asked { json: false, count: 1, paths: vec!["/entry/sample/temperature".into()], ..asked(&path) }, &mut out)
        .unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "       0  2026-01-01T00:00:00.000000000Z  /entry/sample/temperature  value=280.0\n"
    );
}
