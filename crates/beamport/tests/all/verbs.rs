//! The verbs on streams made with the store: what they print, and their exit status.

use flow::job::{Compression, Elsewhere, Layout, Snapshot, Work, Writer};
use flow::{
    Book, Data, Intake, IntakeOptions, Keeps, Outlet, Pushed, Resume, RunKeeper, Source, Step, StreamView, WriterJob,
};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use store::{Clock, Level, Meta, Options, SchemaId};

/// 2026-03-01T12:00:00Z.
const START: i64 = 1_772_366_400_000_000_000;
const SECOND: i64 = 1_000_000_000;
/// A hang guard: nothing here takes a second.
const GUARD: Duration = Duration::from_secs(60);

/// A data folder that is gone at the end, live places and all.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("verbs-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn data(&self, name: &str) -> Data {
        let folder = self.0.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Data::on_disk(folder)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for folder in std::fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let data = Data::on_disk(folder.path());
            for name in data.streams(true).unwrap_or_default() {
                if let Ok(header) = store::Header::read(data.media.as_ref(), &data.stream(&name)) {
                    let _ = std::fs::remove_dir_all(header.live);
                }
            }
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn command(data: &Data, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_beamport"));
    command.args(words).env("BEAMPORT_DATA", &data.folder).stdin(Stdio::null());
    command
}

fn told(data: &Data, words: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command(data, words).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (out, err) = (text(stdout), text(stderr));
    let wrong = testkit::wrong_in(&out);
    assert!(wrong.is_empty(), "{words:?}: {wrong:#?}");
    (status.code().unwrap(), out, err)
}

fn json(data: &Data, words: &[&str], status: i32) -> Value {
    let (code, out, err) = told(data, words);
    assert_eq!(code, status, "{words:?}: {out}{err}");
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{words:?} said {out:?}{err:?}: {e}"))
}

fn f144(name: &str, time: i64, value: f64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let message = wire::f144::F144 { source_name: name, timestamp: time, value: value.into() };
    wire::f144::write(&mut bytes, &message).unwrap();
    bytes
}

/// Two devices, a message of each every 100 ms, in an order in which times step back; numbers in `left_out` never come.
struct Devices {
    next: u64,
    count: u64,
    left_out: std::ops::Range<u64>,
}

impl Source for Devices {
    fn start(&mut self, _now: i64, _resume: &Resume) -> Result<(), flow::Fault> {
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, flow::Fault> {
        while self.next < self.count {
            let pair = self.next / 2;
            let (name, late) = if self.next.is_multiple_of(2) { ("temperature", 0) } else { ("angle", 150_000_000) };
            let time = START + pair as i64 * 100_000_000 - late;
            let meta = Meta {
                source_time: time,
                origin: out.origin(name)?,
                origin_seq: pair,
                schema: SchemaId(wire::f144::ID),
                flags: 0,
            };
            if !self.left_out.contains(&pair) && out.push(&meta, &f144(name, time, pair as f64))? == Pushed::Full {
                return Ok(Step::At(now + 1_000_000));
            }
            self.next += 1;
        }
        Ok(Step::Ended)
    }
}

fn options(level: Level, clock: Clock) -> IntakeOptions {
    let stream = Options { level, clock, ..Options::disk(4 << 20) };
    IntakeOptions { stream, ahead_max: i64::MAX }
}

/// Fills a stream and says how it stands.
fn fill(data: &Data, name: &str, count: u64, left_out: std::ops::Range<u64>, options: &IntakeOptions) -> StreamView {
    let now = data.media.now();
    let mut intake = Intake::start(data, name, Box::new(Devices { next: 0, count, left_out }), options, now).unwrap();
    let end = std::time::Instant::now() + GUARD;
    while !(intake.ended() && intake.marked()) {
        intake.step(now).unwrap();
        assert!(std::time::Instant::now() < end);
        std::thread::sleep(Duration::from_millis(1));
    }
    StreamView::from(&intake)
}

/// A sealed run of the ten seconds from `START`.
fn seal(data: &Data, name: &str, views: &[StreamView]) {
    seal_from(data, name, START, views);
}

fn seal_from(data: &Data, name: &str, start: i64, views: &[StreamView]) {
    let mut keeper = RunKeeper::open(data).unwrap();
    let now = data.media.now();
    let settle = Duration::from_nanos((now - start) as u64);
    keeper.begin(name, start, Some(start + 10 * SECOND), settle, "{\"title\": \"Ni\"}", now).unwrap();
    keeper.end(name, start + 10 * SECOND, "asked", now).unwrap();
    let end = std::time::Instant::now() + GUARD;
    while keeper.unsealed().next().is_some() {
        keeper.step(now, views).unwrap();
        assert!(std::time::Instant::now() < end);
    }
}

/// 400 messages of two origins, 20 s; the run `7` takes its first ten.
fn measured(place: &Place, name: &str) -> Data {
    let data = place.data(name);
    let view = fill(&data, "devices", 400, 0..0, &options(Level::Disk, Clock::Epoch));
    seal(&data, "7", &[view]);
    data
}

#[test]
fn ls_lists_streams_and_runs() {
    let place = Place::new("ls");
    let data = measured(&place, "a");
    let answer = json(&data, &["ls", "--json"], 0);
    let stream = &answer["streams"][0];
    assert_eq!(answer["streams"].as_array().unwrap().len(), 1, "books are no streams of the user");
    assert_eq!((&stream["name"], &stream["messages"]), (&"devices".into(), &400.into()));
    let payloads: usize =
        (0..400_u64).map(|n| f144(if n.is_multiple_of(2) { "temperature" } else { "angle" }, START, 0.0).len()).sum();
    assert_eq!(stream["bytes"], payloads);
    assert_eq!((&stream["lost"], &stream["late"], &stream["fill"]), (&0.into(), &0.into(), &0.0.into()));
    assert_eq!(stream["writer"], Value::Null);
    let run = &answer["runs"][0];
    assert_eq!((&run["name"], &run["state"], &run["closed"]), (&"7".into(), &"sealed".into(), &true.into()));
    // 100 of the one origin; of the other, which lies 150 ms behind, two fall before the start and two more come in.
    assert_eq!(run["messages"], 200);
    let (status, out, err) = told(&data, &["ls"]);
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(out.contains("devices  disk        400") && out.contains("2026-03-01T12:00:00.000Z  10.0 s"), "{out}");
}

#[test]
fn what_an_origin_left_out_is_lost() {
    let place = Place::new("lost");
    let data = place.data("a");
    fill(&data, "devices", 400, 20..25, &options(Level::Disk, Clock::Epoch));
    let answer = json(&data, &["ls", "--json"], 0);
    assert_eq!(answer["streams"][0]["lost"], 10);
    assert_eq!(answer["streams"][0]["messages"], 390);
}

#[test]
fn what_comes_behind_the_seal_is_late() {
    let place = Place::new("late");
    let data = measured(&place, "a");
    let mut writer = data.writer("devices", &Options::disk(4 << 20)).unwrap();
    for (n, time) in [(200, START + SECOND), (201, START + 60 * SECOND)] {
        let meta = Meta { source_time: time, origin: 0, origin_seq: n, schema: SchemaId(wire::f144::ID), flags: 0 };
        writer.append(&meta, &f144("temperature", time, 0.0)).unwrap();
    }
    drop(writer);
    let answer = json(&data, &["ls", "--json"], 0);
    assert_eq!((&answer["streams"][0]["late"], &answer["runs"][0]["late"]), (&1.into(), &1.into()));
    assert_eq!(answer["runs"][0]["messages"], 200);
}

#[test]
fn a_reader_that_is_behind_shows_its_lag() {
    let place = Place::new("lag");
    let data = measured(&place, "a");
    data.hold("devices", "nexus:7", 100).unwrap();
    let answer = json(&data, &["ls", "--json"], 0);
    let stream = &answer["streams"][0];
    assert_eq!(stream["lag"], 300);
    let readers = stream["readers"].as_array().unwrap();
    assert_eq!(readers.len(), 1, "the one that looks is no reader: {readers:?}");
    assert_eq!((&readers[0]["name"], &readers[0]["kind"]), (&"nexus:7".into(), &"counted".into()));
    let (status, out, _) = told(&data, &["top"]);
    assert_eq!(status, 0);
    assert!(out.contains("nexus:7  devices  counted  300"), "{out}");
}

#[test]
fn top_answers_once_on_request() {
    let place = Place::new("once");
    let data = measured(&place, "a");
    let answer = json(&data, &["top", "--once", "--json"], 0);
    assert_eq!(answer["streams"][0]["name"], "devices", "{answer}");
    let (status, out, _) = told(&data, &["top", "--once"]);
    assert!(status == 0 && out.contains("devices"), "{out}");
}

#[test]
fn cat_prints_a_line_a_message() {
    let place = Place::new("cat");
    let data = measured(&place, "a");
    let (status, out, err) = told(&data, &["cat", "devices"]);
    assert_eq!((status, err.as_str()), (0, ""));
    assert_eq!(out.lines().count(), 400);
    assert_eq!(out.lines().nth(2), Some("       2  2026-03-01T12:00:00.100000000Z  temperature  f144  value=1.0"));
    let (_, out, _) = told(&data, &["cat", "devices", "--count", "3", "--json"]);
    let all: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(all.len(), 3);
    assert_eq!((&all[1]["sequence"], &all[1]["origin"]), (&1.into(), &"angle".into()));
    assert_eq!((&all[1]["source_time"], &all[1]["content"]["value"]), (&(START - 150_000_000).into(), &0.0.into()));
}

#[test]
fn cat_showed_an_origin_whose_row_is_damaged_as_none_and_said_nothing() {
    let place = Place::new("cat-origin");
    let data = measured(&place, "a");
    let table = data.stream("devices").join("origins");
    let mut bytes = std::fs::read(&table).unwrap();
    // A bit of the name in the second row, `angle`.
    let second = bytes.iter().position(|b| *b == b'\n').unwrap() + 12;
    bytes[second] ^= 1;
    std::fs::write(&table, &bytes).unwrap();
    let (status, out, err) = told(&data, &["cat", "devices"]);
    assert_eq!((status, out.lines().count(), err.lines().count()), (1, 400, 1), "{err}");
    assert!(err.contains("origins is not readable: row 1 does not verify"), "{err}");
    assert!(out.lines().next().unwrap().contains("  temperature  "), "{out}");
    assert!(out.lines().nth(1).unwrap().contains("  ?  "), "{out}");
    let (status, out, _) = told(&data, &["cat", "devices", "--count", "2", "--json"]);
    assert_eq!(status, 1);
    let origins: Vec<Value> =
        out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["origin"].clone()).collect();
    assert_eq!(origins, ["temperature".into(), Value::Null]);
}

#[test]
fn cat_takes_messages_by_their_source_time_in_whatever_order() {
    let place = Place::new("cat-time");
    let data = measured(&place, "a");
    let (_, out, _) =
        told(&data, &["cat", "devices", "--from", "2026-03-01T12:00:01Z", "--to", "2026-03-01T12:00:02Z", "--json"]);
    let times: Vec<i64> =
        out.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()["source_time"].as_i64().unwrap()).collect();
    assert_eq!(times.len(), 20);
    assert!(times.iter().all(|t| (START + SECOND..START + 2 * SECOND).contains(t)));
    assert!(!times.is_sorted(), "the source steps back, and the order of the stream is kept");
    let (status, out, _) = told(&data, &["cat", "devices", "--from", "2030-01-01T00:00:00Z"]);
    assert_eq!((status, out.as_str()), (0, ""));
}

#[test]
fn cat_follows_until_its_output_is_closed() {
    let place = Place::new("follow");
    let data = measured(&place, "a");
    let from = ["cat", "devices", "--follow", "--json", "--from", "2026-03-01T12:00:19.9Z"];
    let mut child = command(&data, &from).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(first["sequence"], 398);
    let mut writer = data.writer("devices", &Options::disk(4 << 20)).unwrap();
    let meta =
        Meta { source_time: START + 30 * SECOND, origin: 0, origin_seq: 200, schema: SchemaId(*b"f144"), flags: 0 };
    writer.append(&meta, &f144("temperature", START, 7.0)).unwrap();
    assert!(writer.wait(401, Level::Disk, GUARD).unwrap());
    let next: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!((&next["sequence"], &next["content"]["value"]), (&400.into(), &7.0.into()));
    // Nothing more comes: the follower must find out by itself that nobody reads.
    drop(lines);
    assert_eq!(ended(&mut child), 0);
}

#[test]
fn a_follower_ends_at_ctrl_c() {
    let place = Place::new("ctrl-c");
    let data = measured(&place, "a");
    let mut child = command(&data, &["cat", "devices", "--follow", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().is_ok());
    // SAFETY: a signal to a child that has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    assert!(lines.all(|line| serde_json::from_str::<Value>(&line.unwrap()).is_ok()), "the last line is whole");
    assert_eq!(ended(&mut child), 0);
}

#[test]
fn a_second_ctrl_c_ends_a_follower_whose_output_is_stuck() {
    let place = Place::new("stuck");
    let data = place.data("a");
    fill(&data, "devices", 4000, 0..0, &options(Level::Disk, Clock::Epoch));
    // Nobody empties the pipe, and there is more than it holds.
    let mut child = command(&data, &["cat", "devices", "--follow", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 1];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
    let end = std::time::Instant::now() + GUARD;
    while child.try_wait().unwrap().is_none() {
        // SAFETY: a signal to a child that has not been waited for.
        unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
        assert!(std::time::Instant::now() < end);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(child.wait().unwrap().code(), Some(2));
}

fn ended(child: &mut std::process::Child) -> i32 {
    let end = std::time::Instant::now() + GUARD;
    while std::time::Instant::now() < end {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    panic!("it goes on");
}

#[test]
fn cat_shows_bytes_of_an_unknown_schema() {
    let place = Place::new("hex");
    let data = place.data("a");
    let mut writer = data.writer("raw", &Options { clock: Clock::None, ..Options::memory(4 << 20) }).unwrap();
    let origin = writer.origin("\u{1b}[31mboard").unwrap();
    let meta = Meta { source_time: 0, origin, origin_seq: 0, schema: SchemaId(*b"xyz1"), flags: store::flags::SUSPECT };
    writer.append(&meta, &[0xab; 40]).unwrap();
    let (_, out, _) = told(&data, &["cat", "raw"]);
    let tail = format!("Z  \\u{{1b}}[31mboard  xyz1  suspect 40 B: {}...\n", "ab".repeat(32));
    assert!(out.starts_with("       0  arrived 20") && out.ends_with(&tail), "{out}");
    let message = json(&data, &["cat", "raw", "--json"], 0);
    assert_eq!((&message["bytes"], &message["hex"]), (&40.into(), &"ab".repeat(32).into()));
    assert_eq!(message["flags"], serde_json::json!(["suspect"]));
}

/// Turns a bit of a payload in the disk files of a stream.
fn damage(data: &Data, stream: &str, at: u64) -> PathBuf {
    let path = data.stream(stream).join("p-00000000");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[at as usize] ^= 4;
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_wrong_byte_is_named() {
    let place = Place::new("corrupt");
    let data = measured(&place, "a");
    let (status, out, err) = told(&data, &["verify"]);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    let answer = json(&data, &["verify", "--json"], 0);
    let names: Vec<&str> =
        answer["streams"].as_array().unwrap().iter().map(|s| s["stream"].as_str().unwrap()).collect();
    assert_eq!(names, ["devices", "devices.commits", "runs"], "books are verified too");
    assert_eq!((&answer["streams"][0]["messages"], &answer["ok"]), (&400.into(), &true.into()));
    let entry = data.reader_early("devices").unwrap().get(250).unwrap().unwrap().0;
    let path = damage(&data, "devices", entry.offset() + 3);
    let (status, out, _) = told(&data, &["verify"]);
    assert_eq!(status, 1);
    let named = format!("wrong byte in {} at {}: the payload of message 250", path.display(), entry.offset());
    assert!(out.contains(&named), "{out}");
    assert_eq!(json(&data, &["verify", "devices", "--json"], 1)["ok"], false);
    assert_eq!(json(&data, &["verify", "runs", "--json"], 0)["ok"], true);
    // All others are printed, and it is named.
    let (status, out, err) = told(&data, &["cat", "devices"]);
    assert_eq!((status, out.lines().count()), (1, 399), "{err}");
    assert!(err.starts_with("message 250 is lost: wrong byte in") && err.lines().count() == 1, "{err}");
    let times = ["cat", "devices", "--from", "2026-03-01T12:00:12Z", "--to", "2026-03-01T12:00:13Z"];
    assert_eq!(told(&data, &times).1.lines().count(), 19);
}

#[test]
fn a_missing_segment_is_a_range_that_is_lost() {
    let place = Place::new("missing-segment");
    let data = place.data("a");
    fill(&data, "devices", 24_000, 0..0, &options(Level::Disk, Clock::Epoch));
    let mut reader = data.reader_early("devices").unwrap();
    let segment = |reader: &mut store::Reader, n| reader.get(n).unwrap().unwrap().0.segment;
    assert!(segment(&mut reader, 23_999) >= 2, "the test needs three segments of payloads");
    let first = (0..).find(|n| segment(&mut reader, *n) == 1).unwrap();
    let last = (first..).find(|n| segment(&mut reader, *n + 1) == 2).unwrap();
    drop(reader);
    std::fs::remove_file(data.stream("devices").join("p-00000001")).unwrap();
    let (status, out, err) = told(&data, &["cat", "devices"]);
    assert_eq!((status, out.lines().count() as u64), (1, 24_000 - (last + 1 - first)), "{err}");
    assert!(
        err.starts_with(&format!("messages {first} to {last} are lost: ")) && err.ends_with("p-00000001 is missing\n")
    );
    let found = &json(&data, &["verify", "--json"], 1)["streams"][0];
    assert_eq!((&found["ok"], &found["lost"]), (&false.into(), &(last + 1 - first).into()), "{found}");
    assert_eq!((&found["ranges"][0]["first"], &found["ranges"][0]["last"]), (&first.into(), &last.into()));
    // A missing index costs all messages in it, and what is left of the payloads is not guessed.
    let per = store::Header::read(data.media.as_ref(), &data.stream("devices")).unwrap().index_entries;
    std::fs::remove_file(data.stream("devices").join("i-00000000")).unwrap();
    let (status, out, _) = told(&data, &["verify", "devices"]);
    assert_eq!(status, 1);
    assert!(out.contains(&format!("devices: messages 0 to {} are lost: ", per - 1)), "{out}");
    let rest = format!("devices: messages {} to {last} are lost: ", per.max(first));
    assert!(per > last || out.contains(&rest), "{out}");
}

#[test]
fn a_stream_of_more_segments_than_files_may_be_open_lost_its_end_in_a_repair() {
    let place = Place::new("many");
    let data = place.data("a");
    let mut writer = data.writer("raw", &Options::disk(1 << 20)).unwrap();
    writer.origin("a").unwrap();
    for number in 0..800 {
        let meta = Meta { source_time: START, origin: 0, origin_seq: number, schema: SchemaId(*b"test"), flags: 0 };
        while let Err(e) = writer.append(&meta, &[7; 30_000]) {
            assert!(e.is_full(), "{e}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    drop(writer);
    let folder = data.stream("raw");
    let segments =
        std::fs::read_dir(&folder).unwrap().flatten().filter(|f| f.file_name().as_encoded_bytes()[0] == b'p');
    assert!(segments.count() > 140, "of one file each");
    std::fs::write(folder.join("commit"), vec![0; 4096 + 64]).unwrap();
    let script = format!("ulimit -n 128; exec {} verify raw --repair --json", env!("CARGO_BIN_EXE_beamport"));
    let output = Command::new("sh").args(["-c", &script]).env("BEAMPORT_DATA", &data.folder).output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    let stream = &answer["streams"][0];
    assert_eq!(
        (&stream["messages"], &stream["ok"]),
        (&800.into(), &true.into()),
        "{answer} {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let copy = folder.join("commit.damaged-1").display().to_string();
    assert_eq!(stream["copies"], serde_json::json!([copy]), "what was there is kept, and named");
}

/// Takes everything.
struct Taker(u64);

impl flow::Sink for Taker {
    fn write(
        &mut self,
        _: usize,
        messages: &[store::Message<'_>],
        _: &mut Vec<flow::Aside>,
    ) -> Result<(), flow::Fault> {
        self.0 += messages.len() as u64;
        Ok(())
    }
    fn flush(&mut self) -> Result<String, flow::Fault> {
        Ok("{}".into())
    }
    fn finish(&mut self, _: &str) -> Result<flow::Product, flow::Fault> {
        Ok(flow::Product { file: String::new(), size: 0, blake3: String::new(), files: 1, bytes: 0 })
    }
}

#[test]
fn a_missing_segment_is_lost_to_a_file_and_does_not_end_it() {
    let place = Place::new("missing-fed");
    let data = place.data("a");
    let view = fill(&data, "devices", 24_000, 0..0, &options(Level::Disk, Clock::Epoch));
    seal_from(&data, "7", START, &[view]);
    let members = flow::runs::run(&data, "7").unwrap().streams[0].next;
    std::fs::remove_file(data.stream("devices").join("p-00000000")).unwrap();
    let (mut feed, _) = flow::Feed::open(&data, "file", "7", &["devices".into()], false).unwrap();
    let mut taker = Taker(0);
    let end = std::time::Instant::now() + GUARD;
    while !feed.step(&mut taker).unwrap().complete {
        assert!(std::time::Instant::now() < end);
    }
    let account = feed.accounts().next().unwrap();
    let lost = account.counts["lost.missing"];
    println!("injected 1 missing segment: {lost} of {members} messages lost, and counted");
    assert!(lost > 0 && account.next == members);
    // The list names all that is missing, the counts only what was of the run.
    let outside = account.counts.get("skipped.outside").copied().unwrap_or(0);
    assert_eq!((feed.gaps()[0].reason.as_str(), feed.gaps()[0].first), ("missing", 0));
    assert!((lost..=lost + outside).contains(&(feed.gaps()[0].last + 1)));
    assert_eq!(taker.0 + lost + outside, members);
}

#[test]
fn write_of_a_run_whose_stream_is_not_there_does_not_blame_retention() {
    let place = Place::new("missing-write");
    let data = measured(&place, "a");
    let header = store::Header::read(data.media.as_ref(), &data.stream("devices")).unwrap();
    std::fs::remove_dir_all(data.stream("devices")).unwrap();
    let _ = std::fs::remove_dir_all(header.live);
    std::fs::write(data.folder.join("a.nexus.json"), "{}").unwrap();
    let out = place.0.join("out.nxs").display().to_string();
    let (status, _, err) = told(&data, &["write", "7", "--output", &out]);
    assert_eq!(status, 2);
    assert!(err.contains("its stream `devices` is not in") && !err.contains("retention"), "{err}");
}

#[test]
fn a_stream_that_a_run_names_is_missed() {
    let place = Place::new("missing-stream");
    let data = measured(&place, "a");
    let header = store::Header::read(data.media.as_ref(), &data.stream("devices")).unwrap();
    std::fs::remove_dir_all(data.stream("devices")).unwrap();
    let _ = std::fs::remove_dir_all(header.live);
    let (status, out, err) = told(&data, &["verify"]);
    assert_eq!((status, err.as_str()), (1, ""), "{out}");
    assert!(out.contains("devices") && out.contains("is missing"), "{out}");
    assert_eq!(json(&data, &["verify", "devices", "--json"], 1)["streams"][0]["ok"], false);
    // Another stream in its place is not the one of the run.
    fill(&data, "devices", 400, 0..0, &options(Level::Disk, Clock::Epoch));
    let (status, out, _) = told(&data, &["verify"]);
    assert!(status == 1 && out.contains("another stream than"), "{out}");
}

/// The command without the rights that root has over files of others.
fn without_rights(command: &mut Command) -> &mut Command {
    use std::os::unix::process::CommandExt as _;
    // SAFETY: two system calls between fork and exec. Where they are refused, there are no such rights to lose.
    unsafe {
        command.pre_exec(|| {
            // CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.
            libc::prctl(libc::PR_CAPBSET_DROP, 1, 0, 0, 0);
            libc::prctl(libc::PR_CAPBSET_DROP, 2, 0, 0, 0);
            Ok(())
        })
    }
}

#[test]
fn what_may_not_be_read_is_an_error_with_a_hint_and_no_damage() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new("rights");
    let data = measured(&place, "a");
    let mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    for folder in [data.stream("devices"), data.folder.clone()] {
        mode(&folder, 0);
        for verb in ["verify", "ls", "cat"] {
            let words: &[&str] = if verb == "cat" { &["cat", "devices"] } else { &[verb] };
            let output = without_rights(&mut command(&data, words)).output().unwrap();
            let err = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{verb}: {err}");
            assert!(err.contains("ermission denied") && (verb == "ls" || err.contains("hint:")), "{verb}: {err}");
        }
        mode(&folder, 0o750);
    }
}

#[test]
fn an_answer_that_cannot_be_printed_is_an_error() {
    let place = Place::new("unprintable");
    let data = measured(&place, "a");
    let file = place.0.join("a").join("lab.toml");
    let text = "instrument = \"lab\"\n[source.x]\nkind = \"sim\"\nmodel = \"amor-devices\"\nlive = \"1 MiB\"\n[run.r]\nduration = \"10 ms\"\nsettle = \"10 ms\"\n";
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let into = place.0.join("b").display().to_string();
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let verbs: &[&[&str]] = &[
        &["--help"],
        &["--version"],
        &["cat", "--help"],
        &["reference", "cli"],
        &["check", file],
        &["check", file, "--json"],
        &["ls"],
        &["ls", "--json"],
        &["cat", "devices"],
        &["cat", "devices", "--count", "1"],
        &["top"],
        &["verify"],
        &["verify", "--json"],
        &["doctor"],
        &["replay", "7", "--into", &into, "--speed", "max"],
        &["up", file],
    ];
    for words in verbs {
        let output = command(&data, words).stdout(full()).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {err}");
        assert!(err.contains("error: cannot print the answer\ncause: No space left"), "{words:?}: {err}");
    }
    // A fault that cannot be printed is still one, whether there is no room or no reader.
    for words in
        [&["cat", "nothing"][..], &["check", "/nowhere.toml"], &["up", "/nowhere.toml"], &["begin", "x"], &["lss"]]
    {
        assert_eq!(command(&data, words).stderr(full()).status().unwrap().code(), Some(2), "{words:?}");
        let mut child = command(&data, words).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stderr.take());
        assert_eq!(ended(&mut child), 2, "{words:?}");
    }
}

#[test]
fn a_demonstration_that_cannot_begin_leaves_nothing_and_speaks_of_its_flag() {
    let place = Place::new("demo");
    let data = place.data("a");
    let folder = place.0.join("never");
    let (status, out, err) = told(&data, &["demo", "--from", "/nowhere.nxs", "--data", folder.to_str().unwrap()]);
    assert_eq!((status, out.as_str()), (2, ""), "{err}");
    assert!(err.starts_with("error: `--from` is invalid\ncause: no file /nowhere.nxs\nhint:"), "{err}");
    assert!(!folder.exists());
}

#[test]
fn demonstrations_side_by_side_do_not_clear_each_other() {
    let place = Place::new("demos");
    let data = place.data("a");
    let folder = place.0.join("demo");
    std::fs::create_dir(&folder).unwrap();
    // As the one that works there holds it.
    let held = std::fs::File::open(&folder).unwrap();
    held.try_lock().unwrap();
    let (status, _, err) = told(&data, &["demo", "--data", folder.to_str().unwrap()]);
    assert_eq!(status, 2);
    assert!(err.contains("is in use\ncause: another `beamport demo` works there\nhint:"), "{err}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}

/// Spoils the header of a stream; what only the header knew goes at the end.
struct Spoilt(PathBuf);

impl Spoilt {
    fn new(data: &Data, stream: &str) -> Self {
        let header = store::Header::read(data.media.as_ref(), &data.stream(stream)).unwrap();
        std::fs::write(data.stream(stream).join("stream"), "beamport-stream 1\n").unwrap();
        Self(header.live)
    }
}

impl Drop for Spoilt {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_stream_without_a_readable_header_is_not_passed_over() {
    let place = Place::new("header");
    let data = measured(&place, "a");
    let _spoilt = Spoilt::new(&data, "devices");
    let (status, out, err) = told(&data, &["ls"]);
    assert_eq!(status, 2);
    assert!(err.contains("cannot read stream `devices`"), "{err}");
    // The run is listed all the same, and its missing account is reported.
    assert!(out.contains("7    sealed"), "{out}");
    assert!(err.contains("run `7` has no account"), "{err}");
    assert_eq!(json(&data, &["verify", "--json"], 1)["streams"][0]["ok"], false);
}

#[test]
fn a_replay_holds_the_same_members() {
    let place = Place::new("replay");
    let data = measured(&place, "a");
    let again = Data::on_disk(place.0.join("b"));
    let into = again.folder.display().to_string();
    let report = json(&data, &["replay", "7", "--into", &into, "--speed", "max", "--json"], 0);
    assert_eq!((&report["same"], &report["state"]), (&true.into(), &"sealed".into()));
    let row = &report["streams"][0];
    assert_eq!(
        (&row["messages"], &row["again_messages"], &row["sha256"]),
        (&200.into(), &200.into(), &row["again_sha256"])
    );
    let (old, new) = (flow::runs::run(&data, "7").unwrap(), flow::runs::run(&again, "7").unwrap());
    assert_eq!((new.start, new.stop, &new.metadata), (old.start, old.stop, &old.metadata));
    let listed = json(&again, &["ls", "--json"], 0);
    assert_eq!((&listed["streams"][0]["messages"], &listed["runs"][0]["closed"]), (&200.into(), &true.into()));
    // A folder that holds the streams is never added to.
    let (status, _, err) = told(&data, &["replay", "7", "--into", &into]);
    assert_eq!(status, 2);
    assert!(err.contains("stream `devices` already exists"), "{err}");
}

#[test]
fn a_replay_by_arrival_cannot_hold_the_same_members_and_says_so() {
    let place = Place::new("arrival");
    let data = place.data("a");
    let view = fill(&data, "devices", 400, 0..0, &options(Level::Disk, Clock::None));
    let last = data.reader_early("devices").unwrap().get(399).unwrap().unwrap().0.arrival_time;
    seal_from(&data, "7", last + 1 - 10 * SECOND, &[view]);
    let into = place.0.join("b").display().to_string();
    let report = json(&data, &["replay", "7", "--into", &into, "--speed", "max", "--json"], 1);
    let row = &report["streams"][0];
    assert_eq!((&row["messages"], &row["again_messages"]), (&400.into(), &0.into()), "they arrived behind its stop");
    assert_eq!((&row["by_arrival"], &row["same"], &report["same"]), (&true.into(), &false.into(), &false.into()));
    assert_eq!(json(&Data::on_disk(&into), &["verify", "devices", "--json"], 0)["streams"][0]["messages"], 400);
}

/// A copy of the program with another writer beside it.
fn with_writer(place: &Place, script: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = place.0.join("programs");
    std::fs::create_dir_all(&folder).unwrap();
    let (program, writer) = (folder.join("beamport"), folder.join("beamport-nexus"));
    if !program.exists() {
        std::fs::copy(env!("CARGO_BIN_EXE_beamport"), &program).unwrap();
    }
    let version = format!("beamport-nexus {} (a pretended one)", env!("CARGO_PKG_VERSION"));
    let script = format!("#!/bin/sh\n[ \"$1\" = --version ] && {{ echo '{version}'; exit 0; }}\n{script}\n");
    std::fs::write(&writer, script).unwrap();
    std::fs::set_permissions(&writer, std::fs::Permissions::from_mode(0o755)).unwrap();
    program
}

/// A script that begins the file of the job on its stdin.
const OUTPUT: &str = r#"file=$(sed 's/.*"output":"\([^"]*\)".*/\1/'); echo half >"$file""#;

#[test]
fn a_writer_that_fails_or_is_interrupted_leaves_no_half_file() {
    let place = Place::new("half");
    let data = measured(&place, "a");
    std::fs::write(data.folder.join("amor.nexus.json"), "{}").unwrap();
    let file = place.0.join("x.nxs");
    let write = |script: &str| {
        let mut command = Command::new(with_writer(&place, &format!("{OUTPUT}; {script}")));
        command.args(["write", "7", "--json", "--output", &file.display().to_string()]);
        command.env("BEAMPORT_DATA", &data.folder).stdin(Stdio::null());
        command
    };
    let output = write("echo 'error: no room' >&2; exit 2").output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(err.contains("error: no room\n") && err.contains("the writer ended: exit status: 2"), "{err}");
    assert!(!file.exists());
    // As the real one it leaves Ctrl-C to its parent.
    let part = place.0.join("x.nxs.part");
    let begun = |script: &str| {
        let child = write(script).stderr(Stdio::piped()).spawn().unwrap();
        let end = std::time::Instant::now() + GUARD;
        while !part.join("x.nxs").exists() {
            assert!(std::time::Instant::now() < end);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!file.exists(), "it has its name before it is whole");
        child
    };
    let mut child = begun("trap '' INT; exec sleep 600");
    let second = write("exit 2").output().unwrap();
    assert!(String::from_utf8(second.stderr).unwrap().contains("another process writes it"));
    // SAFETY: a signal to a child that has not been waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    assert_eq!(ended(&mut child), 2);
    assert!(!file.exists() && !part.exists());
    // Killed, it leaves a part, which the next one replaces.
    let mut child = begun("exec sleep 5");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!file.exists() && part.exists());
    let output = write("echo '{\"file\":\"x\",\"size\":5,\"blake3\":\"0\",\"account\":{\"closed\":true,\"lost\":3}}'")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "what was lost decides the exit status");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["account"]["lost"], 3);
    assert_eq!(answer["file"], file.display().to_string());
    assert!(file.exists() && !part.exists());
}

#[test]
fn a_job_longer_than_an_argument_or_a_pipe_reaches_its_writer_whole() {
    use std::io::{Read as _, Seek as _};
    let place = Place::new("job");
    let writer = with_writer(&place, "exec cat").with_file_name("beamport-nexus");
    let mut job = WriterJob {
        data: place.0.clone(),
        sink: "file".into(),
        run: "7".into(),
        inputs: (0..20_000).map(|n| format!("detector-{n:06}")).collect(),
        work: Work::Frames { max: 5, compression: Compression::BitshuffleLz4 },
        output: place.0.join("{stream}_{number}.h5"),
        flush: Duration::from_millis(10),
        hold: Duration::from_secs(1),
        whole: true,
        detached: true,
        snapshot: Some(Snapshot { time: 5, ends: vec![u64::MAX] }),
        elsewhere: Elsewhere { streams: vec![("detector".into(), "7.2.nxs".into())], run_file: Some("7.nxs".into()) },
        writer: Writer {
            layout: Layout::Ess,
            topics: [("detector-000001".into(), "loki_detector".into())].into(),
            program: Some(writer),
            python: Some("p".into()),
            ..Writer::default()
        },
    };
    let mut answer = std::fs::File::create_new(place.0.join("answer")).unwrap();
    let mut child = beamport::mover::start_writer(&job, &answer).unwrap().unwrap();
    assert!(child.wait().unwrap().success());
    let mut text = String::new();
    answer.rewind().and_then(|()| answer.read_to_string(&mut text)).unwrap();
    assert!(text.len() > 128 << 10);
    // Which program it is, the program knows.
    job.writer.program = None;
    assert_eq!(serde_json::from_str::<WriterJob>(&text).unwrap(), job);
    // It inherited secrets that the instrument file names by `env:`.
    let mut told = |secrets: &[&str]| {
        let writer =
            with_writer(&place, "cat >/dev/null; echo ${CARGO_PKG_NAME-hidden}").with_file_name("beamport-nexus");
        job.writer.program = Some(writer);
        store::printed::hide_variables(secrets.iter().map(|name| (*name).to_owned()));
        let answer = std::fs::File::create(place.0.join("answer")).unwrap();
        assert!(beamport::mover::start_writer(&job, &answer).unwrap().unwrap().wait().unwrap().success());
        std::fs::read_to_string(place.0.join("answer")).unwrap()
    };
    assert_ne!(told(&[]), "hidden\n");
    assert_eq!(told(&["CARGO_PKG_NAME"]), "hidden\n");
}

#[test]
fn a_path_that_is_not_utf_8_is_refused_with_a_hint() {
    use std::os::unix::ffi::OsStrExt as _;
    let place = Place::new("bytes");
    let data = measured(&place, "a");
    std::fs::write(data.folder.join("amor.nexus.json"), "{}").unwrap();
    let mut command = Command::new(with_writer(&place, "exit 2"));
    command.args(["write", "7", "--output"]).arg(place.0.join(std::ffi::OsStr::from_bytes(b"\xff.nxs")));
    let output = command.env("BEAMPORT_DATA", &data.folder).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{err}");
    assert!(err.contains("path contains invalid UTF-8") && err.contains("hint:  rename"), "{err}");
}

#[test]
fn a_template_is_not_checked_without_the_program_that_reads_templates() {
    let place = Place::new("no-writer");
    let program = with_writer(&place, "exit 2");
    std::fs::write(place.0.join("t.json"), "{}").unwrap();
    let text = "instrument = \"lab\"\n[source.field]\nkind = \"sim\"\nmodel = \"field\"\n\
                [sink.file]\nkind = \"nexus\"\ntemplate = \"t.json\"\n";
    std::fs::write(place.0.join("lab.toml"), text).unwrap();
    std::fs::write(place.0.join("m.json"), "[]").unwrap();
    let err = |words: &[&str]| {
        let output = Command::new(&program).args(words).current_dir(&place.0).stdin(Stdio::null()).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains("t.json: ") && err.contains("\nhint:  "), "{err}");
        err
    };
    let check: &[&str] = &["check", "lab.toml"];
    let make: &[&str] = &["make", "t.json", "m.json", "--output", "x.nxs"];
    // It answers nothing.
    for words in [check, make] {
        let err = err(words);
        assert!(err.contains("t.json: cannot check the template\ncause: the answer of `beamport-nexus`"), "{err}");
    }
    std::fs::remove_file(program.with_file_name("beamport-nexus")).unwrap();
    for words in [check, make] {
        let err = err(words);
        assert!(err.contains("t.json: `beamport-nexus` is not there\ncause: it is not beside "), "{err}");
        assert!(err.contains("hint:  install both: `pip install .`"), "{err}");
    }
}

#[test]
fn a_writer_of_another_version_was_started_again_for_ever() {
    let place = Place::new("version");
    let data = measured(&place, "a");
    std::fs::write(data.folder.join("amor.nexus.json"), "{}").unwrap();
    let program = with_writer(&place, "exit 2");
    let (writer, instrument) = (program.with_file_name("beamport-nexus"), place.0.join("i.toml"));
    let ours = std::fs::read_to_string(&writer).unwrap();
    let theirs = "#!/bin/sh\necho beamport-nexus 0.0.1\n";
    std::fs::write(&writer, theirs).unwrap();
    std::fs::write(
        &instrument,
        format!(
            "instrument = \"lab\"\ndata = \"{0}/up\"\n[source.field]\nkind = \"sim\"\nmodel = \"field\"\n\
             [sink.file]\nkind = \"nexus\"\ninputs = [\"field\"]\ntemplate = \"{0}/a/amor.nexus.json\"\n\
             file = \"{{run}}.nxs\"\n[run.one]\nduration = \"100 ms\"\nsettle = \"10 ms\"\n",
            place.0.display()
        ),
    )
    .unwrap();
    let mut up = Command::new(&program);
    up.arg("up").arg(&instrument).stdin(Stdio::null());
    let mut write = Command::new(&program);
    write.args(["write", "7", "--output", &place.0.join("x.nxs").display().to_string()]);
    write.env("BEAMPORT_DATA", &data.folder).stdin(Stdio::null());
    for command in [&mut up, &mut write] {
        let output = command.output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains("`beamport-nexus` does not fit this `beamport`\ncause: "), "{err}");
        assert!(err.contains("beamport-nexus says `beamport-nexus 0.0.1`, and this is beamport "), "{err}");
        assert!(err.contains("hint:  install both from the same source: `pip install .`"), "{err}");
        assert!(!place.0.join("x.nxs").exists());
    }
    // One that was replaced while we run: the file is given up.
    let replaced = place.0.join("other");
    std::fs::write(&replaced, theirs).unwrap();
    let fails = format!(
        "[ \"$1\" = check ] && {{ echo '{{\"mistakes\":[],\"modules\":[]}}'; exit 0; }}\nmv '{}' '{}'; exit 2\n",
        replaced.display(),
        writer.display()
    );
    let script = ours.replace("exit 2\n", &fails);
    std::fs::write(&writer, script).unwrap();
    std::fs::set_permissions(&replaced, std::fs::metadata(&writer).unwrap().permissions()).unwrap();
    let output = up.output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(2), "{out}{err}");
    assert!(err.contains("the writer of sink `file` for run `one` ended: exit status: 2"), "{err}");
    let told = "error: sink `file` cannot write run `one`\ncause: `beamport-nexus` does not fit this `beamport`: ";
    assert!(out.contains(told) && out.contains("`beamport write one --output FILE`"), "{out}{err}");
}

#[test]
fn a_changed_member_changes_the_hash() {
    let place = Place::new("hash");
    let data = measured(&place, "a");
    let run = flow::runs::run(&data, "7").unwrap();
    let hash = |data: &Data| beamport::verbs::members::hash(data, &run, "devices", &mut |_| {}).unwrap();
    // The same messages of each origin in another order of origins.
    let other = place.data("b");
    let mut writer = other.writer("devices", &Options::memory(4 << 20)).unwrap();
    let mut last = place.data("c").writer("devices", &Options::memory(4 << 20)).unwrap();
    for (name, late) in [("angle", 150_000_000), ("temperature", 0)] {
        let rows = (writer.origin(name).unwrap(), last.origin(name).unwrap());
        for n in 0..200_u64 {
            let time = START + n as i64 * 100_000_000 - late;
            let meta =
                Meta { source_time: time, origin: rows.0, origin_seq: n, schema: SchemaId(wire::f144::ID), flags: 0 };
            writer.append(&meta, &f144(name, time, n as f64)).unwrap();
            let value = if n == 50 { 50.000_001 } else { n as f64 };
            last.append(&Meta { origin: rows.1, ..meta }, &f144(name, time, value)).unwrap();
        }
    }
    let whole = |data: &Data| {
        let mut run = run.clone();
        let header = data.reader_early("devices").unwrap().header().clone();
        (run.streams[0].uuid, run.streams[0].first, run.streams[0].next) = (header.uuid, 0, 400);
        beamport::verbs::members::hash(data, &run, "devices", &mut |_| {}).unwrap()
    };
    assert_eq!(whole(&other), hash(&data));
    assert_eq!(hash(&data).0, 200);
    assert_ne!(whole(&place.data("c")).1, hash(&data).1);
}

#[test]
fn runs_whose_messages_are_gone_are_refused_with_the_ranges() {
    let place = Place::new("gone");
    let data = place.data("a");
    let small = IntakeOptions {
        stream: Options { when_full: store::WhenFull::DropOldest, ..Options::memory(1 << 20) },
        ahead_max: i64::MAX,
    };
    let view = fill(&data, "devices", 400, 0..0, &small);
    seal(&data, "7", &[view]);
    std::fs::write(data.folder.join("amor.nexus.json"), "{\"children\": []}").unwrap();
    // Then so much comes that the run's messages go.
    let mut writer = data.writer("devices", &small.stream).unwrap();
    for n in 200..4200_u64 {
        let meta =
            Meta { source_time: START + 100 * SECOND, origin: 0, origin_seq: n, schema: SchemaId(*b"test"), flags: 0 };
        writer.append(&meta, &[7; 1000]).unwrap();
    }
    drop(writer);
    let file = place.0.join("a.nxs").display().to_string();
    let into = place.0.join("b").display().to_string();
    for words in [["write", "7", "--output", &file], ["replay", "7", "--into", &into]] {
        let (status, _, err) = told(&data, &words);
        assert_eq!(status, 2, "{err}");
        assert!(err.contains("cause: retention took messages ") && err.contains(" of `devices`"), "{err}");
    }
    assert!(!Path::new(&file).exists() && !Path::new(&into).exists());
}

#[test]
fn write_refuses_what_it_cannot_do_whole() {
    let place = Place::new("write");
    let data = measured(&place, "a");
    let refused = |words: &[&str], part: &str| {
        let (status, out, err) = told(&data, words);
        assert_eq!((status, out.as_str()), (2, ""), "{err}");
        assert!(err.contains(part), "{err}");
    };
    let file = place.0.join("x.nxs").display().to_string();
    refused(&["write", "8", "--output", &file], "no run `8`");
    refused(&["write", "7", "--output", &file], "0 files `*.nexus.json`");
    refused(&["write", "7", "--output", &file, "--template", "none.json"], "cannot read template `none.json`");
    std::fs::write(&file, "mine").unwrap();
    refused(&["write", "7", "--output", &file], "a file of that name exists");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    let mut keeper = RunKeeper::open(&data).unwrap();
    keeper.begin("8", START, None, Duration::ZERO, "{}", data.media.now()).unwrap();
    refused(&["write", "8", "--output", "y.nxs"], "it is open");
    refused(&["replay", "8", "--into", "y"], "it is open");
}

#[test]
fn begin_and_end_ask_the_mover() {
    let place = Place::new("begin");
    let data = place.data("a");
    let (status, _, err) = told(&data, &["begin"]);
    assert_eq!(status, 2);
    assert!(err.contains("no instrument is running in"), "{err}");
    let text = format!(
        "instrument = \"amor\"\ndata = \"{}\"\n[source.devices]\nkind = \"sim\"\nmodel = \"amor-devices\"\nlive = \"4 MiB\"\n",
        data.folder.display()
    );
    let file = place.0.join("amor.toml");
    std::fs::write(&file, text).unwrap();
    let mut up = command(&data, &["up", &file.display().to_string()]).stdout(Stdio::null()).spawn().unwrap();
    let end = std::time::Instant::now() + GUARD;
    while !data.folder.join("control.sock").exists() {
        assert!(std::time::Instant::now() < end && up.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(10));
    }
    let run = json(&data, &["begin", "--metadata", "{\"title\": \"Ni\"}", "--json"], 0);
    assert_eq!((&run["name"], &run["state"]), (&"1".into(), &"open".into()));
    assert!(run["metadata"].as_str().unwrap().contains("Ni"));
    let (status, out, err) = told(&data, &["begin", "nickel-2", "--start", "-2 s", "--duration", "1 h"]);
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(out.starts_with("run `nickel-2` is open: from 20") && out.ends_with("(1 h 00 min)\n"), "{out}");
    let (status, _, err) = told(&data, &["end"]);
    assert_eq!(status, 2);
    assert!(err.contains("open runs: 1, nickel-2"), "{err}");
    assert_eq!(json(&data, &["end", "nickel-2", "--json"], 0)["state"], "settling");
    assert_eq!(json(&data, &["end", "--json"], 0)["name"], "1");
    // A look at it while it runs.
    let mut top = command(&data, &["top", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(top.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    loop {
        let look: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(look["streams"][0]["writer"], up.id());
        // A mover that has just started may not have got to its first message.
        if look["streams"][0]["messages_per_s"].as_f64().unwrap() > 0.0 {
            break;
        }
        assert!(std::time::Instant::now() < end, "{look}");
    }
    drop(lines);
    assert_eq!(ended(&mut top), 0);
    // SAFETY: a signal to a child that has not been waited for.
    unsafe { libc::kill(up.id() as i32, libc::SIGINT) };
    ended(&mut up);
}

#[test]
fn a_run_whose_file_exists_already_does_not_begin() {
    let place = Place::new("exists");
    let data = place.data("a");
    let program = with_writer(
        &place,
        "[ \"$1\" = check ] && { echo '{\"mistakes\":[],\"modules\":[]}'; exit 0; }\nexec sleep 60",
    );
    let (template, file) = (place.0.join("amor.nexus.json"), place.0.join("amor.toml"));
    std::fs::write(&template, "{}").unwrap();
    let text = format!(
        "instrument = \"amor\"\ndata = \"{}\"\n[source.devices]\nkind = \"sim\"\nmodel = \"amor-devices\"\n\
         live = \"4 MiB\"\n[sink.file]\nkind = \"nexus\"\ninputs = [\"devices\"]\ntemplate = \"{}\"\n\
         file = \"{{run}}.nxs\"\n",
        data.folder.display(),
        template.display()
    );
    std::fs::write(&file, text).unwrap();
    let files = data.folder.join("files");
    std::fs::create_dir_all(&files).unwrap();
    std::fs::write(files.join("1.nxs"), "of before").unwrap();
    let mut up = Command::new(&program);
    let mut up = up.arg("up").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let end = std::time::Instant::now() + GUARD;
    while !data.folder.join("control.sock").exists() {
        assert!(std::time::Instant::now() < end && up.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(10));
    }
    let (status, _, err) = told(&data, &["begin"]);
    assert!(status == 2 && err.contains("1.nxs` exists already") && err.contains("beamport begin NAME"), "{err}");
    assert_eq!(json(&data, &["begin", "two", "--json"], 0)["state"], "open");
    up.kill().unwrap();
    up.wait().unwrap();
}

#[test]
fn a_run_begins_while_the_place_of_its_sink_cannot_be_held_and_it_is_held_later() {
    let place = Place::new("hold");
    let data = place.data("a");
    let program = with_writer(
        &place,
        "[ \"$1\" = check ] && { echo '{\"mistakes\":[],\"modules\":[]}'; exit 0; }\nexec sleep 60",
    );
    let (template, file) = (place.0.join("amor.nexus.json"), place.0.join("amor.toml"));
    std::fs::write(&template, "{}").unwrap();
    let text = format!(
        "instrument = \"amor\"\ndata = \"{}\"\n[source.devices]\nkind = \"sim\"\nmodel = \"amor-devices\"\n\
         live = \"4 MiB\"\n[sink.file]\nkind = \"nexus\"\ninputs = [\"devices\"]\ntemplate = \"{}\"\n\
         file = \"{{run}}.nxs\"\n",
        data.folder.display(),
        template.display()
    );
    std::fs::write(&file, text).unwrap();
    let mut up = Command::new(&program);
    let mut up = up.arg("up").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    let end = std::time::Instant::now() + GUARD;
    let mut until = |what: &dyn Fn() -> bool| {
        while !what() {
            assert!(std::time::Instant::now() < end && up.try_wait().unwrap().is_none());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    until(&|| data.folder.join("control.sock").exists() && data.stream("devices").join("pins").exists());
    // A reader that was stopped while it took a name.
    let lock = data.media.lock(&data.stream("devices").join("pins")).unwrap();
    assert_eq!(json(&data, &["begin", "r", "--json"], 0)["state"], "open");
    let troubles = || beamport::mover::ask(&data.folder, &serde_json::json!({"command": "status"})).unwrap();
    until(&|| troubles()["troubles"].to_string().contains("devices"));
    let held = || data.reader_early("devices").unwrap().pins().readers().iter().any(|r| r.name == "file:r");
    assert!(!held());
    drop(lock);
    until(&held);
    until(&|| troubles()["troubles"].as_array().unwrap().is_empty());
    up.kill().unwrap();
    up.wait().unwrap();
}

#[test]
fn doctor_finds_streams_that_cannot_be_read() {
    let place = Place::new("doctor");
    let data = measured(&place, "a");
    let finding = |answer: &Value, name: &str, word: &str| {
        let all = answer["findings"].as_array().unwrap().clone();
        all.into_iter().any(|f| f["name"] == name && f["found"].as_str().unwrap().contains(word))
    };
    let (_, out, _) = told(&data, &["doctor", "--json"]);
    let answer: Value = serde_json::from_str(&out).unwrap();
    for name in [
        "processor",
        "kernel",
        "futex",
        "file system",
        "direct writes",
        "free disk",
        "shared memory",
        "open files",
        "file size",
        "clock",
        "beamport-nexus",
    ] {
        assert!(finding(&answer, name, ""), "{name} is not looked at");
    }
    assert!(finding(&answer, "streams", "3 in "), "{answer}");
    let _spoilt = Spoilt::new(&data, "devices");
    let answer = json(&data, &["doctor", "--json"], 1);
    assert_eq!(answer["ok"], false);
    assert!(finding(&answer, "streams", "cannot read `devices`"));
}

#[test]
fn a_limit_on_memory_that_ends_processes_was_nothing_to_doctor() {
    let place = Place::new("doctor-memory");
    let program = env!("CARGO_BIN_EXE_beamport");
    let script = format!("ulimit -v 2000000; exec {program} doctor");
    let done = std::process::Command::new("sh").args(["-c", &script]).current_dir(&place.0).output().unwrap();
    let out = String::from_utf8(done.stdout).unwrap();
    assert!(out.contains("WRONG  address space   at most 2.05 GB"), "{out}");
    assert!(out.contains("`ulimit -v unlimited`"), "{out}");
}

#[test]
fn doctor_names_what_the_limits_of_the_shell_forbid() {
    let place = Place::new("limits");
    let data = measured(&place, "a");
    let program = env!("CARGO_BIN_EXE_beamport");
    let script = format!("ulimit -f 100; ulimit -n 128; exec {program} doctor");
    let output = Command::new("sh").args(["-c", &script]).env("BEAMPORT_DATA", &data.folder).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("WRONG  open files      at most 128"), "{text}");
    assert!(text.contains("WRONG  file size"), "{text}");
}

#[test]
fn a_slot_on_a_processor_that_is_not_there_was_nothing_to_doctor() {
    let place = Place::new("pinned");
    std::fs::create_dir_all(&place.0).unwrap();
    let file = place.0.join("pinned.toml");
    let text = "instrument = \"x\"\n[source.c]\nkind = \"sim\"\nmodel = \"camera\"\nfps = 10\nshape = [4, 4]\n[worker.w]\ncall = \"copy\"\ninputs = [\"c\"]\n";
    for (cpus, is_wrong) in [("[0]", false), ("[0, 1023]", true), ("[5000]", true)] {
        std::fs::write(&file, format!("{text}cpus = {cpus}\n")).unwrap();
        let program = env!("CARGO_BIN_EXE_beamport");
        let done = std::process::Command::new(program).arg("doctor").arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert_eq!(said.contains("which would not start"), is_wrong, "{cpus}: {said}");
        assert!(!is_wrong || done.status.code() == Some(1));
    }
}

#[test]
fn doctor_says_which_live_places_are_left_over() {
    let place = Place::new("left");
    let data = measured(&place, "a");
    let folder = data.stream("left");
    let writer = store::Writer::open(&data.media, &folder, "left", &store::Options::disk(1 << 20)).unwrap();
    let live = writer.header().live.clone();
    // The file that a killed writer leaves behind.
    let left = std::fs::read(live.join("head")).unwrap();
    drop(writer);
    std::fs::create_dir_all(&live).unwrap();
    std::fs::write(live.join("head"), left).unwrap();
    let (_, out, _) = told(&data, &["doctor", "--json"]);
    assert!(!out.contains(&live.display().to_string()), "{out}");
    std::fs::remove_dir_all(&folder).unwrap();
    let (_, out, _) = told(&data, &["doctor", "--json"]);
    let named = out.contains(&live.display().to_string()) || out.contains(" more");
    assert!(named, "{out}");
    std::fs::remove_dir_all(&live).unwrap();
}

#[test]
fn output_that_nobody_reads_is_no_error() {
    let place = Place::new("pipe");
    let data = measured(&place, "a");
    let program = env!("CARGO_BIN_EXE_beamport");
    let script = format!("{program} cat devices --json; echo $? >&2");
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .env("BEAMPORT_DATA", &data.folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "0\n");
}

#[test]
fn a_watch_counts_what_is_held_while_retention_takes_the_oldest() {
    let place = Place::new("watch");
    let data = place.data("a");
    let ring = Options { when_full: store::WhenFull::DropOldest, ..Options::memory(1 << 20) };
    let mut writer = data.writer("raw", &ring).unwrap();
    let mut watch = flow::status::Watch::new(&data);
    let (mut number, mut has_wrapped) = (0_u64, false);
    // Steps that end within blocks, at their ends, and beyond several of them.
    for step in [1, 10, 4085, 1, 3000, 9000, 20_000, 0, 5, 70_000, 4096] {
        for _ in 0..step {
            let meta = Meta { source_time: START, origin: 0, origin_seq: number, schema: SchemaId(*b"test"), flags: 0 };
            writer.append(&meta, &vec![7; (number % 97) as usize]).unwrap();
            number += 1;
        }
        let status = watch.status(data.media.now(), false).unwrap();
        let stream = &status.streams[0];
        let (first, count) = (writer.first_sequence(), writer.next_sequence());
        assert_eq!((stream.first, stream.count, stream.messages), (first, count, count - first));
        assert_eq!(stream.bytes, (first..count).map(|n| n % 97).sum::<u64>(), "{first} to {count}");
        assert_eq!(stream.writer, Some(std::process::id()));
        has_wrapped |= first > 0;
    }
    assert!(has_wrapped);
    // A reader that stands at the oldest message needs all of it, one at the newest nothing.
    data.hold("raw", "slow", writer.first_sequence()).unwrap();
    let full = watch.status(data.media.now(), false).unwrap().streams[0].fill;
    data.hold("raw", "slow", writer.next_sequence()).unwrap();
    let empty = watch.status(data.media.now(), false).unwrap().streams[0].fill;
    assert!(full > 0.2 && full <= 1.0 && empty == 0.0, "{full} {empty}");
}

#[test]
fn the_ids_that_a_merge_by_number_did_not_have_are_listed() {
    let place = Place::new("missing");
    let data = place.data("a");
    let mut writer = data.writer("raw", &Options::memory(8 << 20)).unwrap();
    let by = flow::MergeBy::Number { parts: 2, cache: 1 << 16 };
    let options = flow::MergeOptions { stream: Options::memory(8 << 20), by };
    let input = flow::MergeInput { stream: "raw".into(), wait: 0, ..flow::MergeInput::default() };
    let mut merge = flow::Merge::open(&data, "frames", &[input], &options).unwrap();
    // Two of each but of every third, of which there is one, and of every fifth, of which there is none.
    let ids = 6000;
    let end = std::time::Instant::now() + GUARD;
    let mut clock = 0;
    let mut step = |merge: &mut flow::Merge, ended| {
        clock += 10_000_000;
        merge
            .step(
                START + clock,
                clock,
                &[flow::UpstreamState { frontier: i64::MIN, ended, ..flow::UpstreamState::NOTHING }],
            )
            .unwrap();
        assert!(std::time::Instant::now() < end);
    };
    for id in (0..ids).filter(|id| id % 5 != 4) {
        // Not all in one slice: its commit lists a thousand.
        if id % 500 == 0 {
            step(&mut merge, false);
            step(&mut merge, false);
        }
        for _ in 0..if id % 3 == 1 { 1 } else { 2 } {
            let meta = Meta { source_time: START, origin: 0, origin_seq: id, schema: SchemaId(*b"test"), flags: 0 };
            writer.append(&meta, b"frame").unwrap();
        }
    }
    while !merge.ended() {
        step(&mut merge, true);
    }
    drop(merge);
    let listed = &json(&data, &["ls", "--json"], 0)["missing"][0];
    let missing = (0..ids - 1).filter(|id| id % 5 == 4).count();
    let halves = (0..ids).filter(|id| id % 5 != 4 && id % 3 == 1).count();
    assert_eq!(listed["stage"], "frames");
    assert_eq!((&listed["missing"], &listed["incomplete"]), (&missing.into(), &halves.into()));
    // The newest thousand of them by name.
    let gaps = listed["gaps"].as_array().unwrap();
    assert_eq!((gaps.len(), &gaps[999]["first"], &gaps[999]["reason"]), (1000, &5998.into(), &"incomplete.1".into()));
    let (_, text, _) = told(&data, &["ls"]);
    assert!(text.contains(" ids without 1 of their parts (..., 5983, 5986, 5992, 5995, 5998)\n"), "{text}");
    assert!(text.contains(" 1,199 ids missing (..., 5974, 5979, 5984, 5989, 5994)\n"), "{text}");
}

#[test]
fn a_stream_that_was_empty_at_the_first_look_had_no_rate_at_the_second() {
    let place = Place::new("rate");
    let data = place.data("a");
    let mut writer = data.writer("raw", &Options::memory(1 << 20)).unwrap();
    let mut watch = flow::status::Watch::new(&data);
    assert_eq!(watch.status(data.media.now(), false).unwrap().streams[0].messages_per_s, None);
    let meta = Meta { source_time: START, origin: 0, origin_seq: 0, schema: SchemaId(*b"test"), flags: 0 };
    writer.append(&meta, b"first").unwrap();
    assert!(watch.status(data.media.now(), false).unwrap().streams[0].messages_per_s.unwrap() > 0.0);
}

/// Turns a bit of the first payload of a stream at rest.
fn turn_first(data: &Data, stream: &str) {
    use std::os::unix::fs::FileExt as _;
    let path = data.stream(stream).join("p-00000000");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 20).unwrap();
    file.write_all_at(&[byte[0] ^ 4], 20).unwrap();
    println!("injected 1 wrong bit in message 0 of `{stream}`: that message lost");
}

#[test]
fn a_wrong_bit_in_the_book_of_runs_costs_one_message_and_not_the_folder() {
    let place = Place::new("bit-runs");
    let data = measured(&place, "a");
    seal_from(
        &data,
        "8",
        START + 10 * SECOND,
        &[StreamView {
            name: "devices".into(),
            frontier: i64::MAX,
            ended: true,
            marked: true,
            ..StreamView::default()
        }],
    );
    turn_first(&data, "runs");
    // Its first step is gone; the later ones say all.
    let (status, out, err) = told(&data, &["ls"]);
    assert_eq!(status, 0, "{err}");
    assert!(out.contains("\n7    sealed") && out.contains("\n8    sealed"), "{out}");
    assert!(err.contains("warning: message 0 of `runs` is lost: wrong byte in"), "{err}");
    let (status, out, _) = told(&data, &["doctor"]);
    assert_eq!(status, 1);
    assert!(out.contains("message 0 of `runs` is lost"), "{out}");
    let (status, _, err) = told(&data, &["write", "7", "--output", &place.0.join("o.nxs").display().to_string()]);
    assert_eq!(status, 2);
    assert!(err.contains("warning: message 0 of `runs`") && err.contains("nexus.json"), "it went on: {err}");
    // The life of runs goes on.
    RunKeeper::open(&data).unwrap().begin("9", START, None, Duration::ZERO, "{}", START).unwrap();
}

#[test]
fn a_run_whose_newest_step_may_be_damaged_is_named() {
    let place = Place::new("bit-step");
    let data = place.data("a");
    let mut keeper = RunKeeper::open(&data).unwrap();
    keeper.begin("7", START, None, Duration::ZERO, "{}", START).unwrap();
    keeper.end("7", START + SECOND, "asked", START + SECOND).unwrap();
    drop(keeper);
    let mut reader = data.reader_early("runs").unwrap();
    let at = reader.entries(1, 1).unwrap()[0].offset() + 8;
    drop(reader);
    let path = data.stream("runs").join("p-00000000");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[at as usize] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let (status, out, err) = told(&data, &["ls"]);
    assert_eq!(status, 2, "{out}{err}");
    assert!(out.contains("7    open"), "{out}");
    assert!(err.contains("run `7`") && err.contains("may be message 1 of `runs`"), "{err}");
}

#[test]
fn commits_of_a_source_that_do_not_verify_leave_the_account_open() {
    let place = Place::new("bit-gaps");
    let data = measured(&place, "a");
    assert!(flow::ledger::account(&data, "7", &[]).unwrap().closed);
    let commit = flow::records::Commit {
        stage: "devices".into(),
        run: String::new(),
        block: 0,
        time: START,
        inputs: Vec::new(),
        gaps: Vec::new(),
        output_first: 0,
        output_next: 0,
        state: String::new(),
        finished: false,
        totals: None,
    };
    let mut book = Book::open(&data, "devices.commits", Keeps::All).unwrap();
    let sequence = book.append(&commit).unwrap();
    assert!(book.wait(sequence, GUARD).unwrap());
    drop(book);
    assert!(flow::ledger::account(&data, "7", &[]).unwrap().closed);
    turn_first(&data, "devices.commits");
    let account = flow::ledger::account(&data, "7", &[]).unwrap();
    assert!(!account.closed && account.entries.iter().all(|e| !e.closed), "{account:?}");
    assert_eq!(account.unknown().collect::<Vec<_>>(), ["devices"]);
    let run = &json(&data, &["ls", "--json"], 0)["runs"][0];
    assert_eq!(run["closed"], false);
}

#[test]
fn a_wrong_bit_in_what_a_sink_has_filed_leaves_it_untold_whether_a_run_is_written() {
    let place = Place::new("bit-filed");
    let data = measured(&place, "a");
    let (mut feed, _) = flow::Feed::open(&data, "file", "7", &["devices".into()], true).unwrap();
    let mut taker = Taker(0);
    while !feed.step(&mut taker).unwrap().complete {}
    feed.finish(&mut taker, "{}", START).unwrap();
    drop(feed);
    flow::commits::FinishedRuns::open(&data, "file").unwrap().file_away(&["devices".into()]).unwrap();
    let runs = flow::runs::runs(&data).unwrap();
    assert!(flow::commits::unknown_outcome(&data, "file", &runs).unwrap().is_empty());
    turn_first(&data, "file.commits");
    assert_eq!(flow::commits::unknown_outcome(&data, "file", &runs).unwrap(), ["7"]);
    assert!(told(&data, &["ls"]).2.contains("message 0 of `file.commits`"));
}

#[test]
fn verify_names_a_table_of_origins_that_is_gone_and_hints_at_repair_where_it_helps() {
    let place = Place::new("flaws");
    let data = measured(&place, "a");
    assert_eq!(told(&data, &["verify"]).0, 0);
    let path = data.stream("devices").join("commit");
    let mut records = std::fs::read(&path).unwrap();
    records.iter_mut().for_each(|byte| *byte ^= 1);
    std::fs::write(&path, records).unwrap();
    let (status, out, err) = told(&data, &["verify"]);
    assert_eq!(status, 1, "{out}{err}");
    assert!(out.contains("neither of its two records") && err.contains("verify --repair"), "{out}{err}");
    let (status, out, err) = told(&data, &["verify", "--repair"]);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("repaired: commit records"), "{out}");
    std::fs::remove_file(data.stream("devices").join("origins")).unwrap();
    let (status, out, _) = told(&data, &["verify"]);
    assert_eq!(status, 1, "{out}");
    assert!(
        out.contains("the origin of 400 messages is unknown") && out.contains("devices/origins is damaged"),
        "{out}"
    );
    std::fs::remove_file(data.stream("devices").join("stream")).unwrap();
    let (status, out, _) = told(&data, &["verify"]);
    assert_eq!(status, 1, "{out}");
    assert!(out.contains("devices has messages, but its header `stream` is missing"), "{out}");
    println!("injected 2 wrong commit records, 1 table and 1 header removed: no message lost but by the header");
}

#[test]
fn who_holds_what_is_listed_and_can_be_let_go() {
    let place = Place::new("pins");
    let data = place.data("d");
    fill(&data, "devices", 100, 0..0, &options(Level::Disk, Clock::Epoch));
    assert_eq!(told(&data, &["ls", "--pins"]), (0, format!("no readers in {}\n", data.folder.display()), "".into()));
    let named = |name: &str| store::ReadOptions { name: name.into(), kind: store::Kind::Counted, ..Default::default() };
    let mut reader = data.reader("devices", named("analysis")).unwrap();
    let held = reader.read(40).unwrap().segments()[0].clone();
    reader.commit(40);
    data.hold("devices", "file:7", 90).unwrap();
    let answer = json(&data, &["ls", "--pins", "--json"], 0);
    let [analysis, sink] = answer["pins"].as_array().unwrap().as_slice() else { panic!("{answer}") };
    assert_eq!((&analysis["stream"], &analysis["reader"]), (&"devices".into(), &"analysis".into()));
    assert_eq!((&analysis["pid"], &analysis["alive"]), (&std::process::id().into(), &true.into()));
    assert_eq!((&analysis["committed"], &analysis["lag"], &analysis["segments"]), (&40.into(), &60.into(), &1.into()));
    assert!(analysis["program"].is_string() && analysis["lag_ns"].as_i64().unwrap() > 2_000_000_000, "{analysis}");
    assert_eq!((&sink["reader"], &sink["alive"], &sink["lag"]), (&"file:7".into(), &false.into(), &10.into()));
    let (_, out, _) = told(&data, &["ls", "--pins"]);
    assert!(out.contains("beamport forget devices 'file:7'"), "{out}");
    // A reader that reads is not forgotten, and one that is forgotten is gone.
    let (status, _, err) = told(&data, &["forget", "devices", "analysis"]);
    assert_eq!(status, 2);
    assert!(err.contains(&format!("process {} reads as `analysis`", std::process::id())), "{err}");
    assert_eq!(told(&data, &["forget", "devices", "file:7"]), (0, String::new(), String::new()));
    let (status, _, err) = told(&data, &["forget", "devices", "file:7"]);
    assert_eq!((status, err.contains("cause: it has `analysis`")), (2, true), "{err}");
    drop((reader, held));
    assert_eq!(told(&data, &["forget", "devices", "analysis"]).0, 0);
    assert_eq!(data.reader_early("devices").unwrap().pins().lowest_committed(), None);
}

#[test]
fn a_source_says_who_makes_it_wait() {
    let place = Place::new("held");
    let data = place.data("d");
    let stream = Options { when_full: store::WhenFull::Wait, ..Options::memory(1 << 20) };
    let options = IntakeOptions { stream, ahead_max: i64::MAX };
    let devices = Devices { next: 0, count: 100_000, left_out: 0..0 };
    let now = data.media.now();
    let mut intake = Intake::start(&data, "devices", Box::new(devices), &options, now).unwrap();
    data.hold("devices", "analysis", 7).unwrap();
    intake.step(now).unwrap();
    // Readers may think for a moment: some seconds of a clock that is never set.
    assert_eq!(intake.trouble(), None);
    let end = std::time::Instant::now() + GUARD;
    let fault = loop {
        intake.step(now).unwrap();
        if let Some(fault) = intake.trouble() {
            break fault;
        }
        assert!(std::time::Instant::now() < end);
        intake.wait_room(Duration::from_millis(10));
    };
    assert!(fault.cause.contains("reader `analysis` (no process now) has not moved on from message 7"), "{fault}");
    assert_eq!(fault.hint, "if this reader will not return: `beamport forget devices 'analysis'`");
    assert_eq!(told(&data, &["forget", "devices", "analysis"]).0, 0);
    intake.step(now).unwrap();
    assert_eq!(intake.trouble(), None);
}

#[test]
fn doctor_says_when_the_disk_will_be_full() {
    let place = Place::new("forecast");
    let data = place.data("d");
    let mut writer = data.writer("detector", &Options::disk(4 << 20)).unwrap();
    let origin = writer.origin("o").unwrap();
    let (schema, mut sent) = (SchemaId(*b"test"), 0);
    let begin = std::time::Instant::now();
    // A rate is that of a second at least.
    while begin.elapsed() < Duration::from_millis(1200) {
        let meta = Meta { source_time: 0, origin, origin_seq: sent, schema, flags: 0 };
        sent += u64::from(writer.append(&meta, &[1; 10_000]).is_ok());
        std::thread::sleep(Duration::from_millis(10));
    }
    let (_, out, _) = told(&data, &["doctor", "--json"]);
    let answer: Value = serde_json::from_str(&out).unwrap();
    let forecast = &answer["forecast"];
    let rate = forecast["bytes_per_s"].as_f64().unwrap();
    assert!(rate > 0.0 && rate <= sent as f64 * 10_064.0, "{forecast}");
    let free = forecast["free_bytes"].as_f64().unwrap();
    let full_in = forecast["full_in_s"].as_f64().unwrap_or(free / rate);
    assert!((full_in * rate / free - 1.0).abs() < 0.01, "{forecast}");
    assert_eq!(forecast["streams"][0]["stream"], "detector");
    let findings = answer["findings"].as_array().unwrap();
    assert!(
        findings.iter().any(|f| f["name"] == "disk full" && f["found"].as_str().unwrap().contains("/s into")),
        "{out}"
    );
}

/// Every file of a folder with its bytes, but for locks and places of readers.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.retain(|path| !path.ends_with("pins") && !path.ends_with("lock"));
    all.sort();
    all.into_iter().map(|path| (path.clone(), std::fs::read(&path).unwrap())).collect()
}

/// An instrument of the source `devices` and its merge `all`.
fn instrument(place: &Place, data: &Data) -> String {
    let file = place.0.join("i.toml");
    let text = format!(
        "instrument = \"lab\"\ndata = \"{}\"\n[source.devices]\nkind = \"sim\"\nmodel = \"amor-devices\"\n\
         [source.field]\nkind = \"sim\"\nmodel = \"field\"\n\
         [merge.all]\nkind = \"time\"\ninputs = [\"devices\", \"field\"]\n[run.next]\nduration = \"100 ms\"\nsettle = \"10 ms\"\n",
        data.folder.display()
    );
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

#[test]
fn a_stream_without_its_header_was_begun_anew_over_its_messages() {
    let place = Place::new("headless");
    let data = measured(&place, "a");
    let meta = Meta { source_time: START, origin: 0, origin_seq: 0, schema: SchemaId(*b"test"), flags: 0 };
    for name in ["control", "devices.commits"] {
        let mut book = Book::open(&data, name, Keeps::All).unwrap();
        let sequence = book.writer_mut().append(&meta, b"{}").unwrap();
        assert!(book.wait(sequence, GUARD).unwrap());
    }
    {
        let mut view = data.writer("all", &Options::disk(1 << 20)).unwrap();
        let mut from = data.reader_early("devices").unwrap();
        let parent = view.parent("devices").unwrap();
        for m in from.read(10).unwrap().iter() {
            view.push_view(parent, m.sequence, m.entry).unwrap();
        }
        assert!(view.wait(1, Level::Disk, GUARD).unwrap());
    }
    let instrument = instrument(&place, &data);
    for name in ["devices", "all", "runs", "control", "devices.commits"] {
        let folder = data.stream(name);
        let header = place.0.join("header");
        std::fs::rename(folder.join("stream"), &header).unwrap();
        let before = contents(&folder);
        let what = format!("{name} has messages, but its header `stream` is missing");
        for (words, status) in [(&["verify"][..], 1), (&["ls"], 2), (&["doctor"], 1), (&["up", &instrument], 2)] {
            let (code, out, err) = told(&data, words);
            assert_eq!(code, status, "{name}: {words:?}: {out}{err}");
            let said = format!("{out}{err}").split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(said.contains(&what), "{name}: {words:?}: {out}{err}");
        }
        assert!(told(&data, &["up", &instrument]).2.contains("hint:  restore the file `stream`"), "{name}");
        assert_eq!(contents(&folder), before, "{name}");
        std::fs::rename(&header, folder.join("stream")).unwrap();
    }
    assert_eq!(told(&data, &["verify"]).0, 0);
}

#[test]
fn all_runs_were_forgotten_without_a_word() {
    let place = Place::new("forgotten");
    let data = measured(&place, "a");
    std::fs::remove_file(data.stream("runs").join("i-00000000")).unwrap();
    let instrument = instrument(&place, &data);
    assert_eq!(told(&data, &["verify"]).0, 1);
    assert!(told(&data, &["ls"]).2.contains("`runs`"));
    let (_, _, err) = told(&data, &["up", &instrument]);
    assert!(err.contains("stream `runs` is damaged, runs are lost: messages 0 to "), "{err}");
}

#[test]
fn a_run_whose_sinks_do_not_verify_is_not_written_by_a_guess() {
    let place = Place::new("undescribed");
    let data = flow::Data::on_disk(place.0.join("a"));
    let mut keeper = flow::RunKeeper::open(&data).unwrap();
    keeper.set_instrument(r#"{"sinks": {"file": {"template": "t.json"}}}"#);
    for (name, start) in [("first", 10), ("second", 20)] {
        keeper.begin(name, start, None, Duration::ZERO, "{}", start).unwrap();
        keeper.end(name, start + 1, "asked", start + 1).unwrap();
        keeper.step(start + 2, &[]).unwrap();
    }
    drop(keeper);
    turn_first(&data, "runs");
    let (_, _, said) = told(&data, &["write", "second", "--output", "no.nxs"]);
    assert!(said.contains("the sinks of run `second` are not known"), "{said}");
    assert!(said.contains("message 0 of `runs`") && said.contains("--template FILE"), "{said}");
    let (_, _, said) = told(&data, &["ls", "second"]);
    assert!(said.contains("the sinks of run `second` are not known"), "{said}");
}
