//! Ours meets ours: sources that read what sinks of ours have sent, at mock brokers.

use crate::cluster::Cluster;
use crate::mock::{Stream, has, now, run, value};
use beamport_kafka::{Message, Producer};
use flow::ledger::Entry;
use flow::{Intake, Relay, RelayOptions};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use store::{Meta, Options, SchemaId};

/// Messages as a sink sends them: stream, sequence, and the number that its origin `cam` gave it.
type Row = (u8, u64, u64);

/// A producer of such messages to partition 0 of a topic.
struct Sender {
    producer: Producer,
    topic: usize,
}

impl Sender {
    fn new(cluster: &Cluster, topic: &str) -> Self {
        let mut producer = Producer::new(&cluster.brokers(), &[]).unwrap();
        let topic = producer.topic(topic).unwrap();
        Self { producer, topic }
    }

    fn send(&mut self, rows: impl IntoIterator<Item = Row>) {
        for (stream, sequence, number) in rows {
            let identity = [&[stream; 16], [1, 0, 0, 0, 0, 0, 0, 0].as_slice(), &sequence.to_le_bytes()].concat();
            let origin = [&number.to_le_bytes(), b"cam".as_slice()].concat();
            let payload = value(i64::try_from(number).unwrap());
            let headers = [(c"beamport", identity.as_slice()), (c"beamport-origin", &origin)];
            let message = Message { partition: Some(0), payload: &payload, headers: &headers, ..Message::default() };
            self.producer.send(self.topic, &message).unwrap();
        }
        let mut each = |report: beamport_kafka::Report| assert!(report.offset.is_ok(), "{report:?}");
        assert!(self.producer.flush(Duration::from_secs(60), &mut each).unwrap());
    }
}

fn stream(cluster: &Cluster, topics: &[&str], more: Value) -> Stream {
    let mut section = json!({"brokers": cluster.brokers(), "topics": topics, "start": "begin"});
    more.as_object().unwrap().iter().for_each(|(name, value)| section[name] = value.clone());
    Stream::new(section)
}

/// Steps until all that is there now has come.
fn until_even(intake: &mut Intake) {
    let known = now();
    run(intake, |intake| intake.frontier() >= known);
}

/// The accounts of origins, each of which closes.
fn accounts(stream: &Stream) -> BTreeMap<String, Entry> {
    let (entries, _) = flow::ledger::entries(&stream.data, "x").unwrap();
    assert!(entries.iter().all(|entry| entry.closed), "{entries:?}");
    entries.into_iter().map(|entry| (entry.origin.clone(), entry)).collect()
}

fn skipped(entry: &Entry) -> Vec<(&str, u64)> {
    entry.skipped.iter().map(|(word, count)| (word.as_str(), *count)).collect()
}

fn rows(sequences: std::ops::Range<u64>) -> impl Iterator<Item = Row> {
    sequences.map(|n| (1, n, 100 + n))
}

#[test]
fn what_a_sink_sent_twice_comes_once_and_is_counted() {
    let cluster = Cluster::new(&[("cam", 1)]);
    let mut sender = Sender::new(&cluster, "cam");
    let stream = stream(&cluster, &["cam"], json!({}));
    let mut intake = stream.start().unwrap();
    sender.send(rows(0..10));
    run(&mut intake, has(10));
    // Killed: the state that is kept is that of the start, and the doubles are of what came since.
    drop(intake);
    sender.send(rows(5..12).chain(rows(8..14)));
    let mut intake = stream.start().unwrap();
    run(&mut intake, has(14));
    drop(intake);
    let mut intake = stream.start().unwrap();
    until_even(&mut intake);
    intake.stop(now()).unwrap();
    drop(intake);
    sender.send(rows(13..15));
    let mut intake = stream.start().unwrap();
    until_even(&mut intake);
    intake.stop(now()).unwrap();
    let account = &accounts(&stream)["cam/0"];
    assert_eq!((account.sent, account.appended, skipped(account)), (25, 15, vec![("double", 10)]));
    let doubles = (10..15).chain(17..21).chain([23]);
    let offsets: Vec<u64> = (0..25).filter(|n| !doubles.clone().any(|double| double == *n)).collect();
    assert_eq!(stream.offsets("cam/0"), offsets);
}

#[test]
fn with_mirror_messages_keep_origin_and_number_whoever_is_killed() {
    let cluster = Cluster::new(&[("cam", 1)]);
    let mut sender = Sender::new(&cluster, "cam");
    let stream = stream(&cluster, &["cam"], json!({"mirror": true}));
    let mut intake = stream.start().unwrap();
    let mut numbers = Vec::new();
    for turn in 0..6 {
        let from = 10 * turn;
        sender.send(rows(from..from + 10));
        numbers.extend(100 + from..110 + from);
        // Another producer, and the last ones once more.
        cluster.send("cam", 0, [b"other".as_slice()]);
        sender.send(rows(from + 8..from + 10));
        if turn == 3 {
            until_even(&mut intake);
            intake.stop(now()).unwrap();
        } else {
            run(&mut intake, has(10 * turn + turn));
        }
        drop(intake);
        intake = stream.start().unwrap();
    }
    until_even(&mut intake);
    intake.stop(now()).unwrap();
    assert_eq!(stream.offsets("cam"), numbers);
    // Offsets without those of other origins: one of the other producer and two doubles, each time.
    assert_eq!(stream.offsets("cam/0"), (0..6).map(|turn| 3 * turn).collect::<Vec<u64>>());
    let accounts = accounts(&stream);
    let (cam, partition) = (&accounts["cam"], &accounts["cam/0"]);
    assert_eq!((cam.sent, cam.appended, cam.duplicate, cam.lost.len()), (60, 60, 0, 0));
    assert_eq!((partition.sent, partition.appended, skipped(partition)), (18, 6, vec![("double", 12)]));
    assert!(partition.lost.is_empty() && cam.skipped.is_empty());
}

#[test]
fn messages_behind_the_state_of_a_killed_mirror_are_not_there_twice() {
    let cluster = Cluster::new(&[("cam", 1)]);
    let mut sender = Sender::new(&cluster, "cam");
    let stream = stream(&cluster, &["cam"], json!({"mirror": true}));
    // The state that is kept is that of the start: no hole has been committed since. The near side has some twice.
    let mut sent = Vec::new();
    for (turn, numbers) in (0..).zip([[5, 6, 6, 7], [8, 9, 8, 10], [11, 11, 11, 12]]) {
        let mut intake = stream.start().unwrap();
        sender.send((4 * turn..).zip(numbers).map(|(sequence, number)| (1, sequence, number)));
        sent.extend(numbers);
        run(&mut intake, has(4 * turn + 4));
        drop(intake);
    }
    let mut intake = stream.start().unwrap();
    until_even(&mut intake);
    intake.stop(now()).unwrap();
    assert_eq!(stream.offsets("cam"), sent);
    let cam = &accounts(&stream)["cam"];
    assert_eq!((cam.sent, cam.appended, cam.duplicate), (8, 12, 4));
}

#[test]
fn holes_of_the_near_side_and_of_retention_are_told_apart() {
    let cluster = Cluster::new(&[("cam", 1)]);
    let mut sender = Sender::new(&cluster, "cam");
    let stream = stream(&cluster, &["cam"], json!({"mirror": true}));
    let mut intake = stream.start().unwrap();
    // The near side has lost two of its own.
    sender.send(rows(0..10).chain([(1, 10, 112)]));
    until_even(&mut intake);
    intake.stop(now()).unwrap();
    drop(intake);
    sender.send((11..21).map(|n| (1, n, 102 + n)));
    // The broker keeps 5 MiB.
    let large = vec![7; 500_000];
    for _ in 0..30 {
        cluster.send("cam", 0, [large.as_slice()]);
    }
    sender.send([(1, 21, 123)]);
    let mut intake = stream.start().unwrap();
    until_even(&mut intake);
    let accounts = accounts(&stream);
    let (cam, partition) = (&accounts["cam"], &accounts["cam/0"]);
    assert_eq!((cam.sent, cam.appended, cam.lost.get("near")), (24, 12, Some(&2)));
    assert_eq!(skipped(cam), [("retention", 10)]);
    let lost = partition.lost.get("retention").copied().unwrap_or(0);
    assert!(lost > 10 && partition.appended + lost == 40 && partition.sent == 40, "{partition:?}");
}

#[test]
fn a_stream_that_a_sink_sends_comes_as_it_is() {
    let cluster = Cluster::new(&[("loki_counts", 3)]);
    let far = stream(&cluster, &["loki_counts"], json!({"mirror": true}));
    let near = Stream::new(json!({"brokers": cluster.brokers(), "topic": "loki_{stream}"}));
    let mut writer = near.data.writer("counts", &Options::memory(64 << 20)).unwrap();
    let origins = ["bank/0", "bank/1#2", "monitor"];
    origins.iter().for_each(|origin| assert!(writer.origin(origin).is_ok()));
    for n in 0..300 {
        let (origin, schema) = ((n % 3) as u32, SchemaId(*b"test"));
        let meta = Meta { source_time: 1_000_000, origin, origin_seq: 1000 + n, schema, flags: 0 };
        writer.push(&meta, &[b"x"]).unwrap();
    }
    writer.publish();
    let read = |section: &mut settings::Section<'_>| (beamport_kafka::SINK.read)("out", section);
    let plan = settings::read_json(&near.section, read).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"));
    let inputs = ["counts".to_owned()];
    let sink = plan.build(&inputs).unwrap();
    let mut relay = Relay::open(&near.data, "out", &inputs, sink, RelayOptions::default(), now()).unwrap();
    let mut intake = far.start().unwrap();
    run(&mut intake, |intake| {
        relay.step(now()).unwrap();
        intake.writer().next_sequence() >= 300
    });
    for (at, origin) in (0..).zip(origins) {
        assert_eq!(far.offsets(origin), (1000 + at..1300).step_by(3).collect::<Vec<u64>>(), "{origin}");
    }
    assert_eq!(accounts(&far).len(), 3);
}

#[test]
fn a_topic_that_is_not_there_is_waited_for_and_read_from_its_beginning() {
    let cluster = Cluster::new(&[("there", 1)]);
    for start in [json!("end"), json!("-10 min")] {
        let name = format!("late{}", start.as_str().unwrap().len());
        let stream = stream(&cluster, &["there", &name], json!({"start": start}));
        let mut intake = stream.start().unwrap();
        run(&mut intake, |intake| intake.trouble().is_some());
        let trouble = intake.trouble().unwrap().to_string();
        let parts = [format!("topic `{name}` does not exist"), "`topics` (line".into(), "waits for it".into()];
        assert!(parts.iter().all(|part| trouble.contains(part)), "{trouble}");
        // The other one is read meanwhile, and no run is sealed.
        let before = stream.offsets("there/0").len() as u64;
        cluster.send("there", 0, [b"x".as_slice()]);
        run(&mut intake, has(before + 1));
        let until = now() + 500_000_000;
        run(&mut intake, |_| now() > until);
        assert_eq!(intake.frontier(), i64::MIN);
        intake.stop(now()).unwrap();
        drop(intake);
        // The topic is made, and has messages, while nobody looks.
        cluster.make(&name, 2);
        cluster.send(&name, 1, [b"y".as_slice(), b"z"]);
        let mut intake = stream.start().unwrap();
        until_even(&mut intake);
        assert_eq!((intake.trouble(), stream.offsets(&format!("{name}/1"))), (None, vec![0, 1]));
        intake.stop(now()).unwrap();
    }
}

#[test]
fn a_topic_that_is_made_while_its_source_waits_is_read_at_once() {
    let cluster = Cluster::new(&[]);
    let stream = stream(&cluster, &["late"], json!({"start": "end"}));
    let mut intake = stream.start().unwrap();
    run(&mut intake, |intake| intake.trouble().is_some());
    cluster.make("late", 2);
    cluster.send("late", 0, [b"x".as_slice()]);
    cluster.send("late", 1, [b"y".as_slice()]);
    run(&mut intake, has(2));
    until_even(&mut intake);
    assert_eq!((stream.offsets("late/0"), stream.offsets("late/1"), intake.trouble()), (vec![0], vec![0], None));
}
