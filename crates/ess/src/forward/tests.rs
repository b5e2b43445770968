use super::entries::{Choices, Entries, Identity, entries, instrument_file, request};
use super::status::{Figures, status};
use super::*;
use crate::options::ForwarderOptions;
use crate::reply::Service;
use serde_json::{Value, json};
use std::time::Duration;
use wire::x5f2;

/// Streams of an `fc00`.
fn message(change: UpdateType, streams: &[(&str, &str, &str, Protocol, i32)]) -> Vec<u8> {
    let of = |&(channel, schema, topic, protocol, periodic): &(&'static str, &'static str, &'static str, _, _)| {
        fc00::Stream { channel, schema, topic, protocol, periodic }
    };
    let rows: Vec<(&'static str, &'static str, &'static str, Protocol, i32)> =
        streams.iter().map(|(a, b, c, protocol, periodic)| (leak(a), leak(b), leak(c), *protocol, *periodic)).collect();
    let rows: Vec<fc00::Stream<'static>> = rows.iter().map(of).collect();
    let mut out = Vec::new();
    fc00::write(&mut out, &fc00::ConfigUpdate { config_change: change, streams: (&rows).into() }).unwrap();
    out
}

fn leak(text: &str) -> &'static str {
    text.to_owned().leak()
}

fn stream(channel: &str, schema: Schema, topic: &str) -> Stream {
    let (channel, topic) = (channel.to_owned(), topic.to_owned());
    Stream { protocol: Protocol::Pva, channel, topic, schema, is_periodic: false }
}

/// Applies a message, and returns the texts of what was skipped.
fn apply(streams: &mut Streams, message: &[u8]) -> Vec<String> {
    let (change, mut skipped) = read_change(message).unwrap().unwrap();
    skipped.extend(streams.apply(change));
    skipped.iter().map(ToString::to_string).collect()
}

fn names(streams: &Streams) -> Vec<String> {
    streams.forwarded.iter().map(|one| format!("{} {} {}", one.channel, one.schema.word(), one.topic)).collect()
}

const PVA: Protocol = Protocol::Pva;

#[test]
fn streams_of_another_forwarder_stay_stored_until_a_command_removes_them() {
    let rows = [
        ("A", "f144", "motion", PVA, 0),
        ("with space", "f144", "motion", PVA, 1),
        ("B", "f999", "motion", Protocol::Ca, 0),
    ];
    let stored = message(UpdateType::Add, &rows);
    let (mut streams, skipped) = Streams::of_stored(&stored).unwrap();
    assert_eq!((streams.forwarded.len(), streams.foreign.len(), skipped.len()), (1, 2, 2), "{skipped:?}");
    assert_eq!(Streams::of_stored(&streams.stored()).unwrap().0, streams);
    apply(&mut streams, &message(UpdateType::Add, &[("C", "f144", "motion", PVA, 0)]));
    assert_eq!((streams.forwarded.len(), streams.foreign.len()), (2, 2));
    apply(&mut streams, &message(UpdateType::Remove, &[("with*", "", "", PVA, 0)]));
    apply(&mut streams, &message(UpdateType::Remove, &[("", "f999", "", PVA, 0)]));
    assert_eq!((streams.forwarded.len(), streams.foreign.len()), (2, 0));
    let (mut streams, _) = Streams::of_stored(&stored).unwrap();
    apply(&mut streams, &message(UpdateType::Replace, &[("D", "f144", "motion", PVA, 0)]));
    assert_eq!((streams.forwarded.len(), streams.foreign.len()), (1, 0));
}

#[test]
fn commands_change_the_set() {
    let mut streams = Streams::default();
    let add = [("A", "f144", "motion", PVA, 0), ("B", "tdct", "choppers", PVA, 1), ("A", "f144", "motion", PVA, 0)];
    assert_eq!(apply(&mut streams, &message(UpdateType::Add, &add)), [""; 0]);
    assert_eq!(names(&streams), ["A f144 motion", "B tdct choppers"], "an identical one is one");
    apply(&mut streams, &message(UpdateType::Add, &[("A", "f144", "motion", PVA, 1), ("A", "f142", "motion", PVA, 0)]));
    assert_eq!(streams.forwarded.len(), 4);
    apply(&mut streams, &message(UpdateType::Remove, &[("A", "f144", "", PVA, 0)]));
    assert_eq!(names(&streams), ["A f142 motion", "B tdct choppers"]);
    apply(&mut streams, &message(UpdateType::Replace, &[("C", "al00", "motion", Protocol::Ca, 0)]));
    assert_eq!(names(&streams), ["C al00 motion"]);
    apply(&mut streams, &message(UpdateType::RemoveAll, &[]));
    assert_eq!(streams, Streams::default());
}

#[test]
fn the_predecessor_of_fc00_is_read() {
    let streams = [rf5k::Stream { channel: "A", schema: "f142", topic: "motion", protocol: Protocol::Fake }];
    let mut out = Vec::new();
    let update = rf5k::ConfigUpdate { config_change: rf5k::UpdateType::Add, streams: (&streams).into() };
    rf5k::write(&mut out, &update).unwrap();
    let mut set = Streams::default();
    assert_eq!(apply(&mut set, &out), [""; 0]);
    let expected = Stream { protocol: Protocol::Fake, ..stream("A", Schema::F142, "motion") };
    assert_eq!(set.forwarded.into_iter().collect::<Vec<_>>(), [expected]);
}

#[test]
fn streams_that_are_wrong_are_skipped_and_named() {
    let mut streams = Streams::default();
    let long = "x".repeat(501);
    let rows = [
        ("A", "f144", "motion", PVA, 0),
        ("", "f144", "motion", PVA, 0),
        ("B", "f144", "", PVA, 0),
        ("C", "f145", "motion", PVA, 0),
        ("D", "f144", "a/b", PVA, 0),
        ("E*", "f144", "motion", PVA, 0),
        ("F", "nttable_se00", "motion", Protocol::Ca, 0),
        (long.as_str(), "f144", "motion", PVA, 0),
        ("G#2", "f144", "motion", PVA, 0),
        ("H", "", "motion", PVA, 0),
        ("Z", "ad00", "motion", PVA, 0),
    ];
    let skipped = apply(&mut streams, &message(UpdateType::Add, &rows));
    assert_eq!(names(&streams), ["A f144 motion", "Z ad00 motion"]);
    let expected = [
        "streams/1/channel: it is empty",
        "streams/2/topic: `B`: it is empty",
        "streams/3/schema: `C`: unknown word `f145`",
        "streams/4/topic: `D`: `a/b` is not a topic name",
        "streams/5/channel: `E*`: it has a space, a control character or a wildcard",
        "streams/6/schema: `F`: unknown word `nttable_se00`",
        "streams/7/channel: ",
        "streams/8/channel: `G#2`: it ends in `#` and a number",
        "streams/9/schema: `H`: ",
    ];
    assert_eq!(skipped.len(), expected.len(), "{skipped:#?}");
    for (text, part) in skipped.iter().zip(expected) {
        assert!(text.starts_with(part), "{part}: {text}");
    }
    let skipped = apply(&mut streams, &message(UpdateType::Remove, &[("", "", "", PVA, 0), ("Z", "", "", PVA, 0)]));
    assert!(skipped.len() == 1 && skipped[0].contains("are empty"), "{skipped:?}");
    assert_eq!(names(&streams), ["A f144 motion"]);
}

#[test]
fn more_streams_than_the_most_are_named() {
    let of = |n: usize| Stream { channel: n.to_string(), ..stream("", Schema::F144, "motion") };
    let mut streams = Streams::default();
    assert_eq!(streams.apply(Change::Add((0..STREAMS_MAX).map(of).collect())), []);
    let skipped = streams.apply(Change::Add(vec![of(0), of(STREAMS_MAX)]));
    assert!(skipped.len() == 1 && skipped[0].what.contains("one more than 20000"), "{skipped:?}");
    // Its own storage message is read back.
    assert_eq!(Streams::of_stored(&streams.stored()), Some((streams, vec![])));
}

#[test]
fn patterns_are_those_of_fnmatch() {
    // Each line as Python's `fnmatch.fnmatchcase` answers it.
    let chosen = |pattern: &str, text: &str| matches(&tokens(pattern), text);
    for (pattern, text) in [
        ("*", ""),
        ("A*", "A"),
        ("A*C", "ABBC"),
        ("*B*", "ABC"),
        ("?:MOT?", "A:MOT1"),
        ("M[12].RBV", "M2.RBV"),
        ("M[!12].RBV", "M3.RBV"),
        ("M[0-9]", "M7"),
        ("[]x]", "]"),
        ("[!]x]", "a"),
        ("a[b", "a[b"),
        ("a[]", "a[]"),
        ("*a*a*a*b", "aaaaaaaaab"),
        ("\u{fc}?", "\u{fc}\u{1f600}"),
        ("[a-]", "-"),
    ] {
        assert!(chosen(pattern, text), "{pattern} {text}");
    }
    for (pattern, text) in [
        ("", "a"),
        ("A", "AB"),
        ("?", ""),
        ("?", "ab"),
        ("a", "A"),
        ("M[!12]", "M1"),
        ("M[9-0]", "M5"),
        ("*a*a*a*b", "aaaaaaaaaa"),
        ("[!]]", "]"),
    ] {
        assert!(!chosen(pattern, text), "{pattern} {text}");
    }
}

#[test]
fn wildcards_are_in_channel_and_topic_but_not_in_the_schema() {
    let all =
        [stream("M:1", Schema::F144, "motion"), stream("M:2", Schema::Tdct, "chops"), stream("T", Schema::F144, "se")];
    let left = |channel: &str, schema: &str, topic: &str| {
        let mut streams = Streams { forwarded: all.iter().cloned().collect(), ..Streams::default() };
        apply(&mut streams, &message(UpdateType::Remove, &[(channel, schema, topic, Protocol::Ca, 0)]));
        names(&streams).iter().map(|name| name[..1].to_owned()).collect::<String>()
            + &streams.forwarded.len().to_string()
    };
    assert_eq!(left("M:*", "", ""), "T1");
    assert_eq!(left("M:?", "f144", ""), "MT2");
    assert_eq!(left("", "", "*o*"), "T1");
    assert_eq!(left("*", "f14*", ""), "MMT3");
    assert_eq!(left("", "f144", "s?"), "MM2");
}

#[test]
fn a_message_of_another_schema_is_no_command() {
    assert_eq!(read_change(b""), Ok(None));
    assert_eq!(read_change(&[7; 100]), Ok(None));
    assert!(read_change(b"\x04\0\0\0fc00").is_err());
    assert_eq!(Streams::of_stored(&message(UpdateType::Remove, &[("A", "", "", PVA, 0)])), None);
    let empty = Streams::default();
    assert_eq!(Streams::of_stored(&empty.stored()), Some((empty, vec![])));
}

/// Changes bytes of good commands at random; the forwarder reads whatever comes of it.
fn hostile(count: u64) {
    let rows = [("A:B", "f144", "motion", PVA, 1), ("C", "tdct", "chops", Protocol::Ca, 0), ("[a", "", "*", PVA, 0)];
    let mut messages: Vec<Vec<u8>> = [UpdateType::Add, UpdateType::Remove, UpdateType::RemoveAll, UpdateType::Replace]
        .map(|change| message(change, &rows))
        .to_vec();
    let old = [rf5k::Stream { channel: "A", schema: "f142", topic: "motion", protocol: Protocol::Fake }];
    let mut out = Vec::new();
    let update = rf5k::ConfigUpdate { config_change: rf5k::UpdateType::Add, streams: (&old).into() };
    rf5k::write(&mut out, &update).unwrap();
    messages.push(out);
    let mut seed = 1_u64;
    let mut draw = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let mut streams = Streams::default();
    let mut read = [0_u64; 3];
    for n in 0..count {
        let mut bytes = messages[draw(messages.len())].clone();
        for _ in 0..=draw(4) {
            // The id is left, so that it is read on.
            let at = draw(bytes.len());
            if !(4..8).contains(&at) {
                bytes[at] = if draw(2) == 0 { draw(256) as u8 } else { bytes[at] ^ 1 << draw(8) };
            }
        }
        if draw(8) == 0 {
            bytes.truncate(draw(bytes.len()));
        }
        match read_change(&bytes) {
            Ok(Some((change, _))) => {
                streams.apply(change);
                read[0] += 1;
            }
            Ok(None) => read[1] += 1,
            Err(mistake) => {
                assert!(mistake.to_string().len() < 1000);
                read[2] += 1;
            }
        }
        if n % 1000 == 0 {
            assert_eq!(Streams::of_stored(&streams.stored()), Some((streams.clone(), vec![])));
        }
    }
    assert!(read.iter().all(|count| *count > 0), "{read:?}");
    println!("malformed fc00 and rf5k: {count} injected, {} read, {} damaged, 0 panics", read[0], read[2]);
}

#[test]
fn malformed_commands_are_read_without_a_panic() {
    hostile(20_000);
}

#[test]
#[ignore = "a minute"]
fn soak_malformed_commands_are_read_without_a_panic() {
    hostile(1_000_000);
}

fn set(streams: &[Stream]) -> Streams {
    Streams { forwarded: streams.iter().cloned().collect(), ..Streams::default() }
}

/// An entry in one line: what is sent, and what beside it.
fn lines(entries: &Entries) -> Vec<String> {
    let line = |(identity, choices): (&Identity, &Choices)| {
        let Identity { protocol, pv, topic, schema } = identity;
        let words =
            [("repeat", choices.repeat), ("al", choices.alarms), ("ep", choices.connections), ("un", choices.units)];
        let words: Vec<&str> = words.iter().filter(|(_, is_so)| *is_so).map(|(word, _)| *word).collect();
        format!("{} {pv} {topic} {schema}: {}", protocol.name(), words.join(" "))
    };
    entries.iter().map(line).collect()
}

#[test]
fn alarms_connections_and_units_of_a_pv_are_sent_once_to_a_topic() {
    let periodic = Stream { is_periodic: true, ..stream("A", Schema::Tdct, "m") };
    let streams = set(&[
        stream("A", Schema::F144, "m"),
        periodic,
        stream("A", Schema::Al00, "m"),
        stream("A", Schema::F142, "other"),
        stream("B", Schema::Un00, "m"),
        stream("B", Schema::NoOp, "m"),
        stream("C", Schema::F142, "m"),
        stream("C", Schema::Al00, "m"),
        stream("D", Schema::NttableSe00, "m"),
        stream("D", Schema::NttableSenv, "n"),
    ]);
    let expected = [
        "PVA A m f144: al ep",
        "PVA A m tdct: repeat",
        "PVA A other f142: ep",
        "PVA B m none: al ep un",
        "PVA C m f142: al ep",
        "PVA D m se00: al ep",
        "PVA D n senv: al ep",
    ];
    assert_eq!(lines(&entries(&streams)), expected);
}

#[test]
fn one_request_makes_the_whole_list() {
    let mut all: Vec<Stream> =
        (0..20_000).map(|n| stream(&format!("LOKI:MOTOR:{n}.RBV"), Schema::F144, "motion")).collect();
    all[3].is_periodic = true;
    let made = request(&entries(&set(&all)));
    // The limit of the control socket.
    assert!(made.to_string().len() < 32 << 20);
    assert_eq!((made["replace"].as_bool(), made["add"].as_array().map(Vec::len)), (Some(true), Some(20_000)));
    let row = made["add"].as_array().unwrap().iter().find(|row| row["pv"] == "pva:LOKI:MOTOR:3.RBV");
    let expected = json!({"pv": "pva:LOKI:MOTOR:3.RBV", "topic": "motion", "schema": "f144",
                          "repeat": true, "alarms": true, "connections": true, "units": false});
    assert_eq!(row, Some(&expected));
    assert_eq!(request(&Entries::new())["add"], json!([]));
}

#[test]
fn the_status_has_the_rows_of_today_and_an_object_of_our_own() {
    let streams =
        set(&[stream("A", Schema::F144, "m"), stream("A", Schema::Al00, "m"), stream("B", Schema::Tdct, "m")]);
    let row = |pv: &str, topic: Value| {
        json!({"pv": pv, "protocol": "pva", "schema": "f144", "topic": topic,
               "connected": true, "lost": 3, "skipped": 2})
    };
    let figures = Figures::of_status(&json!({"streams": [row("A", "m".into()), row("B", Value::Null)]}));
    let (id, host) = ("7".to_owned(), "here".to_owned());
    let service = Service { id, host, pid: 7, interval: Duration::from_secs(4) };
    let message = status(&service, &streams, &figures, Some("no answer"));
    let x5f2 = x5f2::read(&message).unwrap();
    assert_eq!((x5f2.software_name, x5f2.update_interval, x5f2.service_id), ("Forwarder", 4000, "7"));
    let json: Value = serde_json::from_str(x5f2.status_json).unwrap();
    let row = |name: &str, schema: &str| {
        let topic = "m";
        json!({"channel_name": name, "protocol": "PVA", "output_topic": topic, "schema": schema})
    };
    let known = json!({"connected": true, "lost": 3, "skipped": 2});
    let unknown = json!({"connected": false, "lost": 0, "skipped": 0});
    let expected = json!({
        "streams": [row("A", "f144"), row("A", "al00"), row("B", "tdct")],
        "beamport": {"trouble": "no answer", "streams": [known, known, unknown]},
    });
    assert_eq!(json, expected);
}

#[test]
fn the_instrument_file_is_one_source_and_one_sink_without_a_password() {
    let given = [
        ("config-topic", "one/commands"),
        ("status-topic", "one/status"),
        ("output-broker", r"SASL_SSL+PLAIN\me@one:9092"),
        ("output-broker-sasl-password", "hunter2"),
        ("pv-update-period", "10000"),
        ("fake-pv-period", "50"),
    ];
    let given = given.map(|(name, value)| (name.to_owned(), vec![value.to_owned()])).into();
    let options = ForwarderOptions::read(&given, &|_| None, &std::env::temp_dir()).unwrap();
    let text = instrument_file(&options);
    assert!(!text.contains("hunter2"), "{text}");
    let page: toml_edit::DocumentMut = text.parse().unwrap();
    let source = &page["source"]["pvs"];
    assert_eq!((source["repeat"].as_str(), source["fake_period"].as_str()), (Some("10 s"), Some("50 ms")));
    let sink = &page["sink"]["kafka"];
    assert_eq!((sink["topic"].as_str(), sink["early"].as_bool()), (Some("origin"), Some(true)));
    assert_eq!(sink["missing"].as_str(), Some("aside"));
    let properties = &sink["properties"];
    assert_eq!(properties["sasl.password"].as_str(), Some("env:BEAMPORT_KAFKA_3"));
    assert_eq!(properties["security.protocol"].as_str(), Some("SASL_SSL"));
    let environment = crate::plan::environment_of(&options.output.properties);
    assert_eq!(environment, [("BEAMPORT_KAFKA_3".to_owned(), "hunter2".to_owned())]);
}
