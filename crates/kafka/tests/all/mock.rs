//! Sources at mock brokers: every offset once, whoever is away meanwhile.

use crate::cluster::Cluster;
use flow::{Data, Fault, Intake, IntakeOptions, Step};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use store::{Entry, Options};
use wire::{ev44, f144};

/// A guard against hanging: nothing here takes ten seconds.
const GUARD: Duration = Duration::from_secs(120);

/// A stream in a folder of its own, removed at the end.
pub(crate) struct Stream {
    pub(crate) data: Data,
    pub(crate) section: Value,
}

pub(crate) fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_nanos()).unwrap()
}

impl Stream {
    pub(crate) fn new(section: Value) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("beamport-kafka-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder: PathBuf = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self { data: Data::on_disk(folder), section }
    }

    pub(crate) fn start(&self) -> Result<Intake, Fault> {
        let read = |section: &mut settings::Section<'_>| (beamport_kafka::SOURCE.read)("x", section);
        let plan = settings::read_json(&self.section, read).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"));
        let options = IntakeOptions { stream: Options::memory(64 << 20), ahead_max: i64::MAX };
        Intake::start(&self.data, "x", plan.build()?, &options, now())
    }

    /// All that the stream has: origin, entry, payload.
    pub(crate) fn messages(&self) -> Vec<(String, Entry, Vec<u8>)> {
        let mut reader = self.data.reader_early("x").unwrap();
        let names = reader.origins().unwrap().to_vec();
        let mut all = Vec::new();
        loop {
            let batch = reader.read(1000).unwrap();
            if batch.is_empty() {
                return all;
            }
            all.extend(batch.iter().map(|m| (names[m.entry.origin as usize].clone(), *m.entry, m.payload.to_vec())));
        }
    }

    pub(crate) fn of(&self, origin: &str) -> Vec<(Entry, Vec<u8>)> {
        let mine = self.messages().into_iter().filter(|(name, ..)| name == origin);
        mine.map(|(_, entry, payload)| (entry, payload)).collect()
    }

    /// Offsets of an origin, in the order of the stream.
    pub(crate) fn offsets(&self, origin: &str) -> Vec<u64> {
        self.of(origin).iter().map(|(entry, _)| entry.origin_seq).collect()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        for name in self.data.streams(true).unwrap_or_default() {
            let _ = store::remove(&self.data.media, &self.data.stream(&name));
        }
        let _ = std::fs::remove_dir_all(&self.data.folder);
    }
}

/// Steps until something is so.
pub(crate) fn run(intake: &mut Intake, mut is_so: impl FnMut(&mut Intake) -> bool) {
    let until = Instant::now() + GUARD;
    while !is_so(intake) {
        assert!(Instant::now() < until, "it hangs: {:?}", intake.trouble());
        if intake.step(now()).unwrap() != Step::Again {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

pub(crate) fn has(count: u64) -> impl FnMut(&mut Intake) -> bool {
    move |intake| intake.writer().next_sequence() >= count
}

pub(crate) fn event(number: i64) -> Vec<u8> {
    let (mut bytes, time) = (Vec::new(), [1000 + number]);
    let parts = ev44::Ev44 {
        source_name: "bank0",
        message_id: number,
        reference_time: (&time).into(),
        reference_time_index: (&[0i32]).into(),
        time_of_flight: (&[1i32, 2, 3]).into(),
        pixel_id: (&[4i32, 5, 6]).into(),
    };
    ev44::write(&mut bytes, &parts).unwrap();
    bytes
}

pub(crate) fn value(number: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let value = f144::F144 { source_name: "temperature", timestamp: 7000 + number, value: 1.5.into() };
    f144::write(&mut bytes, &value).unwrap();
    bytes
}

/// Sends messages with these numbers to both topics, alternating between the partitions of the first.
fn send(cluster: &Cluster, numbers: std::ops::Range<i64>) {
    let (events, values): (Vec<_>, Vec<_>) = numbers.clone().map(|n| (event(n), value(n))).unzip();
    for partition in [0, 1] {
        let mine = numbers.clone().zip(&events).filter(|(n, _)| n % 2 == i64::from(partition));
        cluster.send("detector", partition, mine.map(|(_, event)| event.as_slice()));
    }
    cluster.send("devices", 0, values.iter().map(Vec::as_slice));
}

fn section(cluster: &Cluster, start: &str) -> Value {
    json!({"brokers": cluster.brokers(), "topics": ["detector", "devices"], "start": start})
}

fn two_topics() -> Cluster {
    Cluster::new(&[("detector", 2), ("devices", 1)])
}

/// Each message from `first` on is there once, with its own time, and in the order of its origin.
fn assert_whole(stream: &Stream, first: i64, count: i64) {
    for (origin, step, from) in [("detector/0", 2, 0), ("detector/1", 2, 1), ("devices/0", 1, 0)] {
        let all = stream.of(origin);
        let before = u64::try_from(first / step).unwrap();
        let offsets: Vec<u64> = all.iter().map(|(entry, _)| entry.origin_seq).collect();
        let expected: Vec<u64> = (before..before + u64::try_from(count / step).unwrap()).collect();
        assert_eq!(offsets, expected, "{origin}");
        for ((entry, payload), number) in all.iter().zip((first + from..).step_by(usize::try_from(step).unwrap())) {
            let (bytes, time, schema) = match step {
                2 => (event(number), 1000 + number, ev44::ID),
                _ => (value(number), 7000 + number, f144::ID),
            };
            assert_eq!((payload, entry.source_time, entry.schema.0), (&bytes, time, schema), "{origin} {number}");
        }
    }
    let (entries, _) = flow::ledger::entries(&stream.data, "x").unwrap();
    for entry in entries {
        assert!(
            entry.closed && entry.lost.is_empty() && entry.duplicate == 0 && entry.sent == entry.appended,
            "{entry:?}"
        );
    }
}

#[test]
fn every_offset_comes_once_though_source_and_broker_were_away() {
    let cluster = two_topics();
    send(&cluster, 0..100);
    let stream = Stream::new(section(&cluster, "end"));
    let mut intake = stream.start().unwrap();
    send(&cluster, 100..400);
    run(&mut intake, has(600));
    intake.stop(now()).unwrap();
    drop(intake);

    send(&cluster, 400..600);
    let mut intake = stream.start().unwrap();
    run(&mut intake, has(900));
    // Killed: what it has kept is older than what the stream has.
    drop(intake);
    let mut intake = stream.start().unwrap();
    send(&cluster, 600..800);
    run(&mut intake, has(1400));

    cluster.down();
    let away = now();
    run(&mut intake, |intake| intake.trouble().is_some());
    let trouble = intake.trouble().unwrap();
    assert!(trouble.what.contains("gets no answer") && trouble.hint.contains("`brokers`"), "{trouble}");
    assert!(intake.frontier() <= away + 1_000_000_000, "a run could seal without what nobody can read");
    cluster.up();
    send(&cluster, 800..1100);
    run(&mut intake, |intake| intake.writer().next_sequence() >= 2000 && intake.trouble().is_none());
    let known = now();
    run(&mut intake, |intake| intake.frontier() >= known);
    assert_whole(&stream, 100, 1000);
}

#[test]
fn what_is_no_flatbuffer_or_damaged_keeps_kafkas_time() {
    let cluster = two_topics();
    let stream = Stream::new(section(&cluster, "begin"));
    let before = now() / 1_000_000 * 1_000_000;
    let mut cut = event(1);
    cut.truncate(cut.len() / 2);
    let all: [&[u8]; 4] = [b"{\"a\": 12}", b"", &cut, b"x"];
    cluster.send("devices", 0, all);
    let mut intake = stream.start().unwrap();
    run(&mut intake, has(4));
    let found = stream.of("devices/0");
    let schemas: Vec<String> = found.iter().map(|(entry, _)| entry.schema.as_text()).collect();
    assert_eq!(schemas, ["????", "????", "ev44", "????"]);
    assert!(found.iter().all(|(entry, _)| (before..=now()).contains(&entry.source_time)), "{found:?}");
    assert_eq!(found.iter().map(|(_, payload)| payload.as_slice()).collect::<Vec<_>>(), all);
}

#[test]
fn a_new_stream_begins_where_the_section_says() {
    let cluster = two_topics();
    send(&cluster, 0..20);
    let mut section = section(&cluster, "end");
    for (start, expected) in [
        (json!("begin"), [vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 9], vec![0]]),
        (json!({"detector/0": 8}), [vec![8, 9], vec![10]]),
    ] {
        section["start"] = start;
        let stream = Stream::new(section.clone());
        let mut intake = stream.start().unwrap();
        let known = now();
        run(&mut intake, |intake| intake.frontier() >= known);
        assert_eq!(stream.offsets("detector/0"), expected[0]);
        // Others begin at their end: here is the first that comes.
        if expected[1] == [10] {
            assert_eq!(stream.offsets("detector/1"), [0; 0]);
        }
    }
}

#[test]
fn what_retention_took_while_the_source_was_away_is_lost_by_number() {
    let cluster = two_topics();
    send(&cluster, 0..20);
    let stream = Stream::new(section(&cluster, "begin"));
    let mut intake = stream.start().unwrap();
    run(&mut intake, has(40));
    intake.stop(now()).unwrap();
    drop(intake);
    // The broker keeps 5 MiB.
    let large = vec![7; 500_000];
    for _ in 0..30 {
        cluster.send("devices", 0, [large.as_slice()]);
    }
    let mut intake = stream.start().unwrap();
    let known = now();
    run(&mut intake, |intake| intake.frontier() >= known);
    let (entries, gaps) = flow::ledger::entries(&stream.data, "x").unwrap();
    let entry = entries.iter().find(|entry| entry.origin == "devices/0").unwrap();
    let offsets = stream.offsets("devices/0");
    let oldest = offsets[20];
    assert!(oldest > 20 && *offsets.last().unwrap() == 49, "{offsets:?}");
    assert_eq!((entry.sent, entry.lost.get("retention").copied(), entry.closed), (50, Some(oldest - 20), true));
    assert!(gaps.iter().any(|gap| (gap.first, gap.last) == (20, oldest - 1)), "{gaps:?}");
}

#[test]
fn a_source_that_retention_overtakes_starts_again_and_counts_what_it_took() {
    let cluster = two_topics();
    let mut section = section(&cluster, "begin");
    section["properties"] = json!({"queued.max.messages.kbytes": 1000, "max.partition.fetch.bytes": 600_000});
    let stream = Stream::new(section);
    let mut intake = stream.start().unwrap();
    // The source takes nothing meanwhile, the client about 1 MB, and the broker keeps 5 MiB.
    let large = vec![7; 500_000];
    for _ in 0..40 {
        cluster.send("devices", 0, [large.as_slice()]);
    }
    let until = Instant::now() + GUARD;
    let fault = loop {
        assert!(Instant::now() < until, "it hangs");
        match intake.step(now()) {
            Err(fault) => break fault,
            Ok(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    assert!(fault.what.contains("partition `devices/0`"), "{fault}");
    drop(intake);
    let mut intake = stream.start().unwrap();
    let known = now();
    run(&mut intake, |intake| intake.frontier() >= known);
    let (entries, _) = flow::ledger::entries(&stream.data, "x").unwrap();
    let entry = entries.iter().find(|entry| entry.origin == "devices/0").unwrap();
    let lost = entry.lost.get("retention").copied().unwrap_or(0);
    assert!(entry.closed && entry.sent == 40 && lost > 0 && entry.appended + lost == 40, "{entry:?}");
    assert_eq!(stream.offsets("devices/0").len() as u64, entry.appended);
}

#[test]
fn a_topic_that_was_made_again_begins_another_life() {
    let first = two_topics();
    send(&first, 0..20);
    let mut stream = Stream::new(section(&first, "begin"));
    let mut intake = stream.start().unwrap();
    run(&mut intake, has(40));
    intake.stop(now()).unwrap();
    drop(intake);
    drop(first);
    let second = two_topics();
    send(&second, 0..40);
    stream.section["brokers"] = second.brokers().into();
    let mut intake = stream.start().unwrap();
    run(&mut intake, has(80));
    drop(intake);
    let mut intake = stream.start().unwrap();
    send(&second, 40..50);
    run(&mut intake, has(140));
    assert_eq!(stream.offsets("devices/0"), (0..20).collect::<Vec<u64>>());
    assert_eq!(stream.offsets("devices/0#2"), (0..50).collect::<Vec<u64>>());
    let (entries, _) = flow::ledger::entries(&stream.data, "x").unwrap();
    assert!(entries.iter().all(|entry| entry.closed && entry.duplicate == 0 && entry.lost.is_empty()), "{entries:?}");
}

#[test]
fn two_sources_of_one_cluster_and_of_one_topic_have_all_each() {
    let cluster = two_topics();
    send(&cluster, 0..50);
    let sections = [["detector"].as_slice(), &["devices"], &["detector", "devices"]];
    let streams: Vec<Stream> = sections
        .iter()
        .map(|topics| Stream::new(json!({"brokers": cluster.brokers(), "topics": topics, "start": "begin"})))
        .collect();
    let mut intakes: Vec<Intake> = streams.iter().map(|stream| stream.start().unwrap()).collect();
    for (intake, count) in intakes.iter_mut().zip([50, 50, 100]) {
        run(intake, has(count));
    }
    assert_eq!(streams[2].messages().len(), 100);
}

#[test]
fn an_error_names_key_and_line() {
    let cluster = two_topics();
    let fault = |change: Value| {
        let mut section = section(&cluster, "end");
        change.as_object().unwrap().iter().for_each(|(name, value)| section[name] = value.clone());
        Stream::new(section).start().err().expect("it started").to_string()
    };
    let unset = fault(json!({"properties": {"sasl.password": "env:BEAMPORT_NOT_SET"}}));
    assert!(unset.contains("`sasl.password` (line") && unset.contains("BEAMPORT_NOT_SET"), "{unset}");
    let late = fault(json!({"start": {"devices/0": 5}}));
    assert!(late.contains("`devices/0` at offset 5") && late.contains("`start` (line"), "{late}");
    // It starts all the same: nobody waits for brokers, and the source is started again after its first step.
    cluster.down();
    let stream = Stream::new(section(&cluster, "end"));
    let mut intake = stream.start().unwrap();
    let away = intake.step(now()).expect_err("it read").to_string();
    assert!(away.contains("gets no answer") && away.contains("`brokers` (line"), "{away}");
    assert_eq!((intake.frontier(), intake.command(&json!({})).is_err()), (i64::MIN, true));
}

#[test]
fn a_start_in_a_partition_that_is_not_there_was_taken_silently() {
    let cluster = two_topics();
    let mut section = section(&cluster, "end");
    for (start, is_there) in [(json!({"detector/1": 0}), true), (json!({"detector/0": 0, "detector/2": 0}), false)] {
        section["start"] = start;
        let stream = Stream::new(section.clone());
        let mut intake = stream.start().unwrap();
        let known = now();
        run(&mut intake, |intake| intake.frontier() >= known);
        let told = intake.trouble().map(|trouble| trouble.to_string());
        assert_eq!(told.is_none(), is_there, "{told:?}");
        let parts = ["no partition `detector/2`", "`start` (line", "topic `detector` is 2"];
        assert!(is_there || parts.iter().all(|part| told.as_ref().unwrap().contains(part)), "{told:?}");
    }
}

#[test]
fn a_start_without_brokers_forgot_where_the_source_was() {
    let cluster = two_topics();
    send(&cluster, 0..20);
    let stream = Stream::new(section(&cluster, "end"));
    let mut intake = stream.start().unwrap();
    let known = now();
    run(&mut intake, |intake| intake.frontier() >= known);
    intake.stop(now()).unwrap();
    drop(intake);
    cluster.down();
    let mut intake = stream.start().unwrap();
    intake.stop(now()).unwrap();
    drop(intake);
    cluster.up();
    send(&cluster, 20..30);
    let mut intake = stream.start().unwrap();
    run(&mut intake, has(20));
    assert_eq!(stream.offsets("devices/0"), (20..30).collect::<Vec<u64>>());
}

#[test]
fn a_secret_never_comes_into_an_error() {
    let cluster = two_topics();
    let folder = std::env::temp_dir().join(format!("beamport-kafka-secret-{}", std::process::id()));
    std::fs::write(&folder, "hunter2\n").unwrap();
    let mut section = section(&cluster, "end");
    section["properties"] = json!({"socket.timeout.ms": format!("file:{}", folder.display())});
    let stream = Stream::new(section);
    let fault = stream.start().err().expect("it started").to_string();
    std::fs::remove_file(&folder).unwrap();
    assert!(fault.contains("`socket.timeout.ms` (line") && !fault.contains("hunter2"), "{fault}");
}

#[test]
fn a_source_ends_at_its_stop() {
    let cluster = two_topics();
    let mut section = section(&cluster, "begin");
    let stop = now() + 2_000_000_000;
    section["stop"] = settings::units::time_text(settings::Time(stop)).into();
    let stream = Stream::new(section);
    let mut intake = stream.start().unwrap();
    send(&cluster, 0..50);
    run(&mut intake, |intake| intake.ended());
    assert!(now() >= stop);
    assert_eq!(stream.messages().len(), 100);
}
