//! `beamport compare` on the outputs of two workers at their own pace: it reports all that differs, and nothing else.

use beamport::compare::{Comparison, compare};
use flow::{Data, Made, Outputs, Slot, SlotOptions, Stepped, Stop, UpstreamState, Work, WorkOptions, Worker};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use store::{Batch, Meta, Options, SchemaId, WhenFull, Writer};

/// A hang guard.
const GUARD: Duration = Duration::from_secs(60);
const TURN: u64 = 5;

/// A data folder that is gone at the end, live places and all.
struct Place(Data);

impl Place {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("compare-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(Data::on_disk(path))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for name in self.0.streams(true).unwrap_or_default() {
            if let Ok(header) = store::Header::read(self.0.media.as_ref(), &self.0.stream(&name)) {
                let _ = std::fs::remove_dir_all(header.live);
            }
        }
        let _ = std::fs::remove_dir_all(&self.0.folder);
    }
}

/// What a worker makes of message `n`: values.
type Makes = fn(u64) -> Vec<f64>;

struct Maker {
    stage: &'static str,
    makes: Makes,
}

impl Worker for Maker {
    fn work(&mut self, batch: &Batch<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        let mut bytes = Vec::new();
        for message in batch.iter().collect::<Vec<_>>() {
            if !out.wants(&message) {
                continue;
            }
            out.begin(&message);
            let n = u64::from_le_bytes(message.payload[..8].try_into().unwrap());
            let values = (self.makes)(n);
            for value in &values {
                let timestamp = message.entry.source_time;
                let value = wire::f144::F144 { source_name: self.stage, timestamp, value: (*value).into() };
                wire::f144::write(&mut bytes, &value).unwrap();
                out.push(message.entry, &Made::of(message.entry, wire::f144::ID), &[&bytes])?;
            }
            if values.is_empty() { out.filtered(&message) } else { out.done(&message) }
        }
        Ok(())
    }

    fn looks_at_payloads(&self) -> bool {
        true
    }

    fn keeps(&self) -> bool {
        false
    }
}

/// A worker with one slot, in this process.
struct Alone {
    work: Work,
    slot: Slot,
    maker: Maker,
}

impl Alone {
    fn open(data: &Data, stage: &'static str, shadow: Option<&str>, makes: Makes) -> Self {
        let shadow = shadow.map(str::to_owned);
        let options = WorkOptions { turn: TURN, shadow, ..WorkOptions::memory(1, 1 << 20) };
        let mut work = Work::open(data, stage, &["raw".into()], &options).unwrap();
        let from = work.ready(0, 0);
        let inputs = vec!["raw".into()];
        let slot = SlotOptions { number: 0, inputs, stream: options.slot_options(), from, by_key: false };
        let slot = Slot::open(data, stage, slot).unwrap();
        work.send_parameters(0).unwrap();
        Self { work, slot, maker: Maker { stage, makes } }
    }

    fn step(&mut self) {
        let now = self.work.writer().header().uuid[0];
        self.work.step(i64::from(now), &[UpstreamState::NOTHING]).unwrap();
        while self.slot.step(&mut self.maker, &mut |_| false).unwrap() == Stepped::Worked {}
        self.work.step(i64::from(now), &[UpstreamState::NOTHING]).unwrap();
    }

    fn next(&self) -> u64 {
        self.work.accounts().next().unwrap().next
    }

    fn to(&mut self, end: u64) {
        let began = Instant::now();
        while self.next() < end {
            assert!(began.elapsed() < GUARD, "{} of {end}", self.next());
            self.step();
        }
    }
}

/// Appends messages; numbers of an origin restart every 100 messages.
fn append(writer: &mut Writer, from: u64, count: u64, bytes: usize) {
    for n in from..from + count {
        let meta = Meta {
            source_time: n as i64,
            origin: (n % 2) as u32,
            origin_seq: n / 2 % 50,
            schema: SchemaId(*b"test"),
            flags: 0,
        };
        writer.append(&meta, &[&n.to_le_bytes()[..], &vec![0; bytes]].concat()).unwrap();
    }
}

fn input(data: &Data, options: &Options) -> Writer {
    let mut writer = data.writer("raw", options).unwrap();
    for name in ["a", "b"] {
        writer.origin(name).unwrap();
    }
    writer
}

fn old(n: u64) -> Vec<f64> {
    match n % 10 {
        3 => vec![],
        4 => vec![n as f64, 1.0],
        _ => vec![n as f64],
    }
}

fn new(n: u64) -> Vec<f64> {
    match n {
        n if n % 30 == 7 => vec![n as f64 + 2.0],
        n if n % 30 == 11 => vec![],
        n if n % 30 == 13 => vec![5.0],
        n if n % 30 == 14 => vec![n as f64],
        n => old(n),
    }
}

/// Same, different, only old, only new, of the first messages.
fn wanted(end: u64) -> (u64, u64, u64, u64) {
    let mut sum = (0, 0, 0, 0);
    for n in 0..end {
        let (a, b) = (old(n), new(n));
        let both = a.len().min(b.len());
        let same = a.iter().zip(&b).filter(|(a, b)| a == b).count();
        sum.0 += same as u64;
        sum.1 += (both - same) as u64;
        sum.2 += (a.len() - both) as u64;
        sum.3 += (b.len() - both) as u64;
    }
    sum
}

fn counts(all: &Comparison) -> (u64, u64, u64, u64) {
    (all.same, all.different, all.only_old, all.only_new)
}

/// Until the commits are where they are read.
fn settled(data: &Data, last: Option<u64>, is_so: &dyn Fn(&Comparison) -> bool) -> Comparison {
    let began = Instant::now();
    loop {
        let all = compare(data, ("old", "new"), last, &|| true).unwrap();
        if is_so(&all) {
            return all;
        }
        assert!(began.elapsed() < GUARD, "{all:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_is_told_is_what_differs_as_far_as_both_have_come() {
    let place = Place::new("both");
    let data = &place.0;
    let mut writer = input(data, &Options::memory(1 << 20));
    let (mut a, mut b) = (Alone::open(data, "old", None, old), Alone::open(data, "new", None, new));
    assert_eq!(compare(data, ("old", "new"), None, &|| true).unwrap().same, 0);
    let mut end = 0;
    for round in 0..12 {
        append(&mut writer, end, 40, 0);
        end += 40;
        // Now the one is ahead, and now the other, in the middle of a turn too.
        let (first, second) = if round % 2 == 0 { (end, end - 23) } else { (end - 11, end) };
        a.to(first);
        b.to(second);
        // Of whole turns.
        let least = a.next().min(b.next());
        let near = least - TURN..=least;
        let all = settled(data, None, &|all| near.clone().any(|known| wanted(known) == counts(all)));
        assert!(all.waiting > 0);
        for difference in &all.first {
            let (at, number) = (u64::from(difference.origin == "b"), difference.number);
            let all_with = (0..end).filter(|n| n % 2 == at && n / 2 % 50 == number);
            assert!(all_with.clone().any(|n| old(n) != new(n)), "{difference:?}");
        }
    }
    a.to(end);
    b.to(end);
    let all = settled(data, None, &|all| all.waiting == 0);
    assert_eq!(counts(&all), wanted(end), "{all:?}");
    let most = (0..end).filter(|n| n % 30 == 7).map(|_| 2.0_f64).fold(0.0, f64::max);
    assert_eq!(all.difference_max, Some(most));
    assert_eq!((all.first.len(), all.skipped), (10, 0));
    let first = &all.first[0];
    assert_eq!((first.origin.as_str(), first.number, first.what.as_str(), first.by), ("b", 3, "values", Some(2.0)));
    // Of the newest only; it begins with a block.
    let last = settled(data, Some(100), &|all| all.waiting == 0);
    assert!((70..=115).contains(&last.same), "{last:?}");
    // A worker beside itself, the program, and streams that no worker fills.
    let told = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_beamport"));
        let answer = command.arg("compare").args(words).env("BEAMPORT_DATA", &data.folder).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (answer.status.code(), text(answer.stdout), text(answer.stderr))
    };
    let same = told(&["old", "old", "--json"]);
    assert_eq!(same.0, Some(0), "{same:?}");
    let (status, text, _) = told(&["old", "new"]);
    assert!(status == Some(1) && text.contains("  b 3: values differ by 2 at most\n"), "{text}");
    let (status, _, fault) = told(&["old", "raw"]);
    assert!(status == Some(2) && fault.contains("it is not the stream of a worker"), "{fault}");
}

#[test]
fn what_a_shadow_was_too_slow_for_is_no_difference() {
    let place = Place::new("slow");
    let data = &place.0;
    let mut writer = input(data, &Options { when_full: WhenFull::DropOldest, ..Options::memory(1 << 20) });
    append(&mut writer, 0, 30, 2000);
    let mut a = Alone::open(data, "old", None, old);
    a.to(30);
    let mut b = Alone::open(data, "new", Some("old"), old);
    let mut end = 30;
    let mut grow = |a: &mut Alone, count: u64| {
        for _ in 0..count / 10 {
            append(&mut writer, end, 10, 2000);
            end += 10;
            a.to(end);
        }
        end
    };
    let near = grow(&mut a, 100);
    b.to(near);
    // It falls behind by more than the input keeps, and catches up.
    let far = grow(&mut a, 3000);
    b.to(far);
    let last = grow(&mut a, 100);
    b.to(last);
    let account = b.work.accounts().next().unwrap().clone();
    let slow = account.counts["skipped.slow"];
    assert!(slow > 1000, "{account:?}");
    let all = settled(data, None, &|all| all.waiting == 0);
    assert!(all.is_same() && all.same > 200, "{all:?}");
    // One of ten makes none, and one two.
    assert!(all.skipped >= slow - 2 * TURN && all.skipped <= slow + 4 * TURN, "{slow}: {all:?}");
}
