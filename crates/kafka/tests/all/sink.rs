//! Sinks at mock brokers: every message once and in the order of its origin, whoever dies or is away meanwhile.

use crate::cluster::{Cluster, Found};
use flow::{Data, Fault, Relay, RelayOptions, Step, ledger};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use store::{Meta, Options, SchemaId, Writer};

/// A guard against hanging: nothing here takes ten seconds.
const GUARD: Duration = Duration::from_secs(120);
const ORIGINS: [&str; 4] = ["bank/0", "bank/1", "devices/temperature", "devices"];
/// Source time of the first message, ns.
const TIME: i64 = 1_760_000_000_000_000_000;

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_nanos()).unwrap()
}

/// A stream with the name `counts` in a folder of its own, removed at the end.
struct Stream {
    data: Data,
    writer: Option<Writer>,
    count: u64,
    section: Value,
}

impl Stream {
    fn new(section: Value) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("beamport-kafka-sink-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder: PathBuf = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let data = Data::on_disk(folder);
        let mut writer = data.writer("counts", &Options::memory(64 << 20)).unwrap();
        ORIGINS.iter().for_each(|origin| assert!(writer.origin(origin).is_ok()));
        Self { data, writer: Some(writer), count: 0, section }
    }

    fn append(&mut self, count: u64, payload: &[u8]) {
        let writer = self.writer.as_mut().unwrap();
        for n in self.count..self.count + count {
            let origin = (n * 7 % ORIGINS.len() as u64) as u32;
            let source_time = TIME + n as i64 * 1_000_000;
            let meta = Meta { source_time, origin, origin_seq: n, schema: SchemaId(*b"test"), flags: 0 };
            writer.push(&meta, &[&n.to_le_bytes(), payload]).unwrap();
        }
        writer.publish();
        self.count += count;
    }

    fn open(&self) -> Result<Relay, Fault> {
        let read = |section: &mut settings::Section<'_>| (beamport_kafka::SINK.read)("out", section);
        let plan = settings::read_json(&self.section, read).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"));
        self.open_plan(plan.as_ref())
    }

    fn open_plan(&self, plan: &dyn flow::edge::LivePlan) -> Result<Relay, Fault> {
        let inputs = ["counts".to_owned()];
        Relay::open(&self.data, "out", &inputs, plan.build(&inputs)?, RelayOptions::default(), now())
    }

    /// All that partitions of topics hold is all that the stream holds but for `less`, each once and in the order of
    /// its origin.
    fn assert_once(&self, found: &[Vec<Found>], less: u64) {
        let uuid = self.data.reader_early("counts").unwrap().header().uuid;
        let mut last: BTreeMap<&[u8], u64> = BTreeMap::new();
        let mut all = Vec::new();
        for message in found.iter().flatten() {
            let number = u64::from_le_bytes(message.payload[..8].try_into().unwrap());
            assert_eq!(message.header[..16], uuid);
            assert_eq!(message.header[24..], number.to_le_bytes());
            let origin = ORIGINS[(number * 7 % 4) as usize];
            assert_eq!(message.origin, [number.to_le_bytes().as_slice(), origin.as_bytes()].concat());
            let is_split = self.section["topic"] == "origin";
            let key = origin.split_once('/').filter(|_| is_split).map_or(origin, |(_, key)| key);
            assert_eq!(message.key, key.as_bytes());
            assert_eq!(message.time, TIME / 1_000_000 + number as i64);
            let before = last.insert(&message.key, number);
            assert!(before.is_none_or(|before| before < number), "{number} came behind {before:?}");
            all.push(number);
        }
        all.sort_unstable();
        let count = all.len() as u64;
        all.dedup();
        assert_eq!((all.len() as u64, count), (self.count - less, self.count - less), "of {}", self.count);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.writer = None;
        for name in self.data.streams(true).unwrap_or_default() {
            let _ = store::remove(&self.data.media, &self.data.stream(&name));
        }
        let _ = std::fs::remove_dir_all(&self.data.folder);
    }
}

/// Steps until something is so.
fn run(relay: &mut Relay, mut is_so: impl FnMut(&mut Relay) -> bool) {
    let until = Instant::now() + GUARD;
    while !is_so(relay) {
        assert!(Instant::now() < until, "it hangs: {:?} {}", relay.trouble(), relay.status());
        if relay.step(now()).unwrap() != Step::Again {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn done(relay: &Relay) -> u64 {
    relay.accounts().next().map_or(0, |account| account.done)
}

fn topics(cluster: &Cluster, topic: &str, partitions: i32) -> Vec<Vec<Found>> {
    (0..partitions).map(|partition| cluster.read(topic, partition)).collect()
}

fn section(cluster: &Cluster, topic: &str) -> Value {
    json!({"brokers": cluster.brokers(), "topic": topic})
}

#[test]
fn every_message_is_in_its_topic_once_though_sink_and_broker_were_away() {
    let cluster = Cluster::new(&[("loki_counts", 3)]);
    let mut stream = Stream::new(section(&cluster, "loki_{stream}"));
    stream.append(500, b"");
    let mut relay = stream.open().unwrap();
    run(&mut relay, |relay| done(relay) > 0);
    for turn in 0..6u64 {
        stream.append(300, &[7; 100]);
        // It dies with messages that are acknowledged and in no commit; once before it has looked back.
        run(&mut relay, |relay| turn == 2 || relay.status()["sent"].as_u64() > Some(0));
        drop(relay);
        relay = stream.open().unwrap();
        if turn == 3 {
            cluster.down();
            stream.append(300, b"");
            run(&mut relay, |relay| relay.trouble().is_some());
            let trouble = relay.trouble().unwrap();
            assert!(trouble.what.contains("`out` gets no answer") && trouble.hint.contains("`brokers`"), "{trouble}");
            cluster.up();
        }
    }
    run(&mut relay, |relay| relay.is_idle() && relay.trouble().is_none());
    stream.assert_once(&topics(&cluster, "loki_counts", 3), 0);
    let stages = ledger::stages(&stream.data).unwrap();
    assert!(stages.iter().all(|row| row.closed), "{stages:?}");
}

#[test]
fn a_sink_that_stops_hands_over_what_it_has() {
    let cluster = Cluster::new(&[("loki_counts", 1)]);
    let mut stream = Stream::new(section(&cluster, "loki_{stream}"));
    stream.append(2000, b"");
    let mut relay = stream.open().unwrap();
    run(&mut relay, |relay| done(relay) > 0);
    let before = done(&relay);
    relay.stop(GUARD).unwrap();
    while !relay.close().unwrap() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(before <= done(&relay));
    assert_eq!(cluster.read("loki_counts", 0).len() as u64, done(&relay));
    drop(relay);
    let mut relay = stream.open().unwrap();
    run(&mut relay, |relay| relay.is_idle());
    stream.assert_once(&topics(&cluster, "loki_counts", 1), 0);
}

#[test]
fn a_topic_that_is_missing_is_named_with_key_and_line_and_awaited() {
    let cluster = Cluster::new(&[]);
    let mut stream = Stream::new(section(&cluster, "loki_{stream}"));
    stream.append(100, b"");
    let mut relay = stream.open().unwrap();
    run(&mut relay, |relay| relay.trouble().is_some());
    let trouble = relay.trouble().unwrap();
    assert!(trouble.what.contains("topic `loki_counts`") && trouble.hint.contains("`topic` (line"), "{trouble}");
    cluster.make("loki_counts", 2);
    run(&mut relay, |relay| relay.is_idle() && relay.trouble().is_none());
    stream.assert_once(&topics(&cluster, "loki_counts", 2), 0);
}

#[test]
fn a_missing_topic_kept_others_from_being_opened() {
    let cluster = Cluster::new(&[("loki_values", 1)]);
    let mut stream = Stream::new(section(&cluster, "loki_{stream}"));
    stream.append(10, b"");
    let mut other = stream.data.writer("values", &Options::memory(8 << 20)).unwrap();
    let origin = other.origin("devices").unwrap();
    let meta = Meta { source_time: TIME, origin, origin_seq: 0, schema: SchemaId(*b"test"), flags: 0 };
    other.append(&meta, b"x").unwrap();
    let read = |section: &mut settings::Section<'_>| (beamport_kafka::SINK.read)("out", section);
    let plan = settings::read_json(&stream.section, read).unwrap();
    let inputs = ["counts".to_owned(), "values".to_owned()];
    let sink = plan.build(&inputs).unwrap();
    let mut relay = Relay::open(&stream.data, "out", &inputs, sink, RelayOptions::default(), now()).unwrap();
    run(&mut relay, |relay| relay.accounts().nth(1).is_some_and(|account| account.done == 1));
    assert!(relay.trouble().unwrap().what.contains("topic `loki_counts`"));
    assert_eq!(done(&relay), 0);
}

#[test]
fn origins_name_topics_and_one_that_cannot_is_aside() {
    let cluster = Cluster::new(&[("bank", 2), ("devices", 1)]);
    let mut stream = Stream::new(section(&cluster, "origin"));
    let writer = stream.writer.as_mut().unwrap();
    let origin = writer.origin("no topic/0").unwrap();
    let meta = Meta { source_time: 1, origin, origin_seq: 0, schema: SchemaId(*b"test"), flags: 0 };
    writer.append(&meta, &0u64.to_le_bytes()).unwrap();
    stream.count = 1;
    stream.append(399, b"");
    for _ in 0..2 {
        let mut relay = stream.open().unwrap();
        run(&mut relay, |relay| relay.is_idle());
        let account = relay.accounts().next().unwrap();
        assert_eq!(account.counts.get("aside.topic").copied(), Some(1));
        drop(relay);
        let mut found = topics(&cluster, "bank", 2);
        found.push(cluster.read("devices", 0));
        let is_of_bank = |message: &Found| matches!(&message.key[..], b"0" | b"1");
        assert!(found[..2].iter().flatten().all(is_of_bank));
        stream.assert_once(&found, 1);
        stream.append(0, b"");
    }
}

#[test]
fn a_value_that_is_sent_again_has_the_time_of_its_arrival() {
    let cluster = Cluster::new(&[("loki_counts", 1)]);
    let mut stream = Stream::new(section(&cluster, "loki_{stream}"));
    let before = now() / 1_000_000;
    for (number, flags) in [(0, 0), (1, store::flags::REPEAT)] {
        let meta = Meta { source_time: TIME, origin: 0, origin_seq: number, schema: SchemaId(*b"test"), flags };
        stream.writer.as_mut().unwrap().append(&meta, b"x").unwrap();
    }
    let mut relay = stream.open().unwrap();
    run(&mut relay, |relay| relay.is_idle());
    let found = cluster.read("loki_counts", 0);
    assert_eq!((found.len(), found[0].time), (2, TIME / 1_000_000));
    assert!((before..=now() / 1_000_000).contains(&found[1].time), "{}", found[1].time);
}

#[test]
fn a_message_that_is_too_large_is_aside_and_others_are_sent() {
    let cluster = Cluster::new(&[("loki_counts", 2)]);
    for properties in [json!({"message.max.bytes": 5000}), json!({"queue.buffering.max.kbytes": 5})] {
        let mut section = section(&cluster, "loki_{stream}");
        section["properties"] = properties;
        let mut stream = Stream::new(section);
        let (uuid, before) = (stream.data.reader_early("counts").unwrap().header().uuid, stream.count);
        assert_eq!(before, 0);
        stream.append(20, b"");
        stream.append(1, &[7; 9000]);
        stream.append(20, b"");
        let mut relay = stream.open().unwrap();
        run(&mut relay, |relay| relay.is_idle());
        assert_eq!(relay.accounts().next().unwrap().counts.get("aside.size").copied(), Some(1));
        let mut found = topics(&cluster, "loki_counts", 2);
        found.iter_mut().for_each(|partition| partition.retain(|message| message.header[..16] == uuid));
        stream.assert_once(&found, 1);
    }
}

#[test]
fn a_batch_that_was_refused_for_one_message_is_sent_one_by_one() {
    let cluster = Cluster::new(&[("loki_counts", 1)]);
    let mut stream = Stream::new(section(&cluster, "loki_{stream}"));
    stream.append(100, b"");
    let read = |section: &mut settings::Section<'_>| (beamport_kafka::SINK.read)("out", section);
    let plan = settings::read_json(&stream.section, read).unwrap();
    cluster.refuse_as_too_large(1);
    let mut relay = stream.open_plan(plan.as_ref()).unwrap();
    let fault = refused(&mut relay);
    assert!(fault.cause.contains("loki_counts") && fault.cause.contains("too large"), "{fault}");
    drop(relay);
    // Alone, one is refused again.
    cluster.refuse_as_too_large(1);
    let mut relay = stream.open_plan(plan.as_ref()).unwrap();
    run(&mut relay, |relay| relay.is_idle());
    assert_eq!(relay.accounts().next().unwrap().counts.get("aside.size").copied(), Some(1));
    assert_eq!(relay.status()["one_by_one"], true);
    // A minute without a refusal.
    relay.step(now() + 61_000_000_000).unwrap();
    assert_eq!(relay.status()["one_by_one"], false);
    stream.append(100, b"");
    run(&mut relay, |relay| relay.is_idle());
    stream.assert_once(&topics(&cluster, "loki_counts", 1), 1);
}

/// Steps until the sink ends with a fault.
fn refused(relay: &mut Relay) -> Fault {
    let until = Instant::now() + GUARD;
    loop {
        assert!(Instant::now() < until, "it hangs");
        match relay.step(now()) {
            Err(fault) => return fault,
            Ok(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

#[test]
fn batches_behind_a_refused_one_came_before_its_messages() {
    let cluster = Cluster::new(&[("loki_counts", 1)]);
    let mut section = section(&cluster, "loki_{stream}");
    section["properties"] = json!({"batch.num.messages": "10", "max.in.flight": "1"});
    let mut stream = Stream::new(section);
    let read = |section: &mut settings::Section<'_>| (beamport_kafka::SINK.read)("out", section);
    let plan = settings::read_json(&stream.section, read).unwrap();
    stream.append(10, b"");
    let mut relay = stream.open_plan(plan.as_ref()).unwrap();
    run(&mut relay, |relay| done(relay) == 10);
    cluster.refuse_as_too_large(1);
    stream.append(200, b"");
    // Messages of the client go out while the sink does not look.
    let mut is_refused = false;
    while !is_refused && relay.status()["waiting"].as_u64() < Some(100) {
        is_refused = relay.step(now()).is_err();
    }
    std::thread::sleep(Duration::from_millis(300));
    if !is_refused {
        refused(&mut relay);
    }
    drop(relay);
    let mut relay = stream.open_plan(plan.as_ref()).unwrap();
    run(&mut relay, |relay| relay.is_idle());
    stream.assert_once(&topics(&cluster, "loki_counts", 1), 0);
}

#[test]
fn what_others_send_to_the_topic_does_not_matter() {
    let cluster = Cluster::new(&[("loki_counts", 1)]);
    cluster.send("loki_counts", 0, [b"before".as_slice()]);
    let mut stream = Stream::new(section(&cluster, "loki_{stream}"));
    stream.append(100, b"");
    let mut relay = stream.open().unwrap();
    run(&mut relay, |relay| done(relay) > 0);
    drop(relay);
    cluster.send("loki_counts", 0, [b"between".as_slice(); 50]);
    stream.append(100, b"");
    let mut relay = stream.open().unwrap();
    run(&mut relay, |relay| relay.is_idle());
    let mut found = topics(&cluster, "loki_counts", 1);
    found[0].retain(|message| !message.header.is_empty());
    stream.assert_once(&found, 0);
}

#[test]
fn a_probe_says_what_there_is_or_what_is_wrong() {
    let cluster = Cluster::new(&[("loki_counts", 3)]);
    let probe = |section: &Value, input: &str| {
        let read = |section: &mut settings::Section<'_>| (beamport_kafka::SINK.read)("out", section);
        settings::read_json(section, read).unwrap().probe(&[input.to_owned()]).unwrap()
    };
    let mut section = section(&cluster, "loki_{stream}");
    assert_eq!(probe(&section, "counts").unwrap(), "2 brokers, 1 topic, 3 partitions");
    let missing = probe(&section, "values").unwrap_err().to_string();
    assert!(missing.contains("topic `loki_values`") && missing.contains("`topic` (line"), "{missing}");
    section["create"] = json!({"partitions": 1, "replication": 1});
    assert_eq!(probe(&section, "values").unwrap(), "2 brokers, 1 topic, 0 partitions");
    section["topic"] = "origin".into();
    assert_eq!(probe(&section, "values").unwrap(), "2 brokers");
    let source = json!({"brokers": cluster.brokers(), "topics": ["loki_counts"]});
    let read = |section: &mut settings::Section<'_>| (beamport_kafka::SOURCE.read)("in", section);
    let source = settings::read_json(&source, read).unwrap();
    assert_eq!(source.probe().unwrap().unwrap(), "2 brokers, 1 topic, 3 partitions");
    cluster.down();
    let away = probe(&section, "counts").unwrap_err().to_string();
    assert!(away.contains("`out` gets no answer") && away.contains("`brokers` (line"), "{away}");
}
