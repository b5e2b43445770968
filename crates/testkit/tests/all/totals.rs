//! Accounts that begin from totals, against all that is on disk, through kills and power cuts on the pretend machine.

use beamport_testkit::{Counts, Dice, Machine, histories};
use flow::records::{Commit, Gap};
use flow::{Data, Fault, Intake, IntakeOptions, Outlet, Pushed, Resume, Silence, Source, Step, commits_of, ledger};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use store::{Drain, Meta, Options, SchemaId, WhenFull};

mod harm;

const SECOND: i64 = 1_000_000_000;
const NAMES: [&str; 3] = ["a", "b", "c"];

/// The next number of each origin.
type Next = BTreeMap<&'static str, u64>;

/// Says what chance has it: in order, late, twice, with numbers left out and named or not, with or without a checksum.
struct Device {
    dice: Dice,
    next: Next,
    resumed: Arc<Mutex<Next>>,
    /// In order, without holes.
    is_tidy: bool,
}

impl Device {
    fn number(&mut self, name: &'static str) -> u64 {
        let kind = if self.is_tidy { 99 } else { self.dice.below(100) };
        let next = self.next.entry(name).or_default();
        match kind {
            0..6 => next.saturating_sub(self.dice.range(1, 30)),
            6..10 => {
                *next += self.dice.range(2, 9);
                *next - 1
            }
            _ => {
                *next += 1;
                *next - 1
            }
        }
    }

    fn offer(&mut self, out: &mut dyn Outlet, meta: &Meta) -> Result<(), Fault> {
        let payload = meta.origin_seq.to_le_bytes();
        let _ = match self.dice.one_in(2) {
            true => out.push(meta, &payload)?,
            false => out.push_checked(meta, &payload, store::crc32c(&payload))?,
        };
        Ok(())
    }
}

impl Source for Device {
    fn start(&mut self, _: i64, resume: &Resume) -> Result<(), Fault> {
        self.next = NAMES.into_iter().map(|name| (name, resume.next_seq(name))).collect();
        *self.resumed.lock().unwrap() = self.next.clone();
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        // Origins appear at any time.
        let name = self.dice.pick(&NAMES[..1 + self.dice.clone().below(3) as usize]);
        let origin = out.origin(name)?;
        for _ in 0..self.dice.range(1, 400) {
            let number = self.number(name);
            let schema = SchemaId(*b"test");
            self.offer(out, &Meta { source_time: now, origin, origin_seq: number, schema, flags: 0 })?;
            if !self.is_tidy && self.dice.one_in(20) {
                let from = self.next[name].saturating_sub(self.dice.below(30));
                let last = from + self.dice.below(9);
                let reason = self.dice.pick(&["network", "lost.kernel", "skipped.slow"]);
                out.missing(origin, from..=last, now..=now, reason)?;
                let next = self.next.entry(name).or_default();
                *next = (*next).max(last + 1);
            }
        }
        if !self.is_tidy && self.dice.one_in(9) {
            self.next.insert(name, 0);
        }
        Ok(Step::At(now + 1))
    }

    fn state(&self) -> String {
        format!("{:?}", self.next)
    }
}

fn data_of(machine: &Machine) -> (Arc<beamport_testkit::PretendMedia>, Data) {
    let media = machine.start();
    (media.clone(), Data { media, folder: "/disk/data".into(), drain: Drain::Caller })
}

/// Index and gaps of an origin, number by number.
#[derive(Default)]
struct Seen {
    messages: u64,
    came: BTreeSet<u64>,
    lost: BTreeMap<String, BTreeSet<u64>>,
    /// Some gap does not say which numbers are missing.
    is_joined: bool,
    first: Option<u64>,
    next: u64,
}

impl Seen {
    fn widen(&mut self, first: u64, last: u64) {
        self.first = Some(self.first.map_or(first, |known| known.min(first)));
        self.next = self.next.max(last + 1);
    }
}

/// Walks all of the index and the book.
fn walk(data: &Data) -> BTreeMap<String, Seen> {
    let mut all: BTreeMap<String, Seen> = BTreeMap::new();
    let mut reader = data.reader_early("s").unwrap();
    let names = reader.origins().unwrap().to_vec();
    let end = reader.bounds().count;
    let mut see = |entries: &[store::Entry]| {
        for entry in entries {
            let seen = all.entry(names[entry.origin as usize].clone()).or_default();
            seen.messages += 1;
            seen.came.insert(entry.origin_seq);
            seen.widen(entry.origin_seq, entry.origin_seq);
        }
    };
    reader.walk(0, end, &mut see).unwrap();
    let gaps = data.book_messages(&commits_of("s")).unwrap().into_iter();
    let gaps: Vec<Gap> = gaps.flat_map(|bytes| Commit::read(&bytes).unwrap().gaps).collect();
    for gap in gaps.into_iter().filter(|gap| !gap.by_sequence) {
        let seen = all.entry(gap.origin.clone()).or_default();
        seen.widen(gap.first, gap.last);
        seen.is_joined |= gap.is_joined();
        let named: BTreeSet<u64> = seen.lost.values().flatten().copied().collect();
        let new = (gap.first..=gap.last).filter(|n| !seen.came.contains(n) && !named.contains(n));
        let word = gap.reason.strip_prefix("lost.").unwrap_or(&gap.reason).to_owned();
        seen.lost.entry(word).or_default().extend(new.collect::<Vec<_>>());
    }
    all
}

/// Compares the ledger with the walk; how many origins gaps were exact by reason.
fn compare(data: &Data, at: &str) -> u64 {
    let seen = walk(data);
    let (entries, _) = ledger::entries(data, "s").unwrap();
    let known: Vec<&String> = entries.iter().map(|entry| &entry.origin).collect();
    assert_eq!(known, seen.keys().collect::<Vec<_>>(), "{at}");
    let mut exact = 0;
    for entry in &entries {
        let seen = &seen[&entry.origin];
        let came = seen.came.len() as u64;
        let sent = seen.next - seen.first.unwrap();
        assert!(entry.closed, "{at}: {entry:?}");
        assert_eq!(
            (entry.sent, entry.appended, entry.duplicate),
            (sent, seen.messages, seen.messages - came),
            "{at}: {entry:?}"
        );
        if seen.is_joined {
            continue;
        }
        let mut reasons: BTreeMap<String, u64> =
            seen.lost.iter().map(|(word, numbers)| (word.clone(), numbers.len() as u64)).collect();
        reasons.insert("unexplained".into(), sent - came - reasons.values().sum::<u64>());
        reasons.retain(|_, n| *n > 0);
        let skipped = entry.skipped.iter().map(|(word, n)| (format!("skipped.{word}"), *n));
        let all: BTreeMap<String, u64> = entry.lost.clone().into_iter().chain(skipped).collect();
        assert_eq!(all, reasons, "{at}: {entry:?}");
        exact += 1;
    }
    exact
}

fn history(seed: u64) -> Counts {
    let mut dice = Dice::new(seed);
    let machine = Machine::new(seed);
    let resumed = Arc::new(Mutex::new(Next::new()));
    let when_full = dice.pick(&[WhenFull::Wait, WhenFull::DropNewest]);
    let options = IntakeOptions { stream: Options { when_full, ..Options::disk(1 << 20) }, ahead_max: SECOND };
    let (mut exact, mut kills, mut cuts, mut totals) = (0, 0, 0, 0);
    for life in 0..dice.range(3, 7) {
        let (process, data) = data_of(&machine);
        let (dice_of, resumed_of) = (Dice::new(dice.word()), resumed.clone());
        let source = Device { dice: dice_of, next: Next::new(), resumed: resumed_of, is_tidy: false };
        let mut intake = Intake::start(&data, "s", Box::new(source), &options, machine.now()).unwrap();
        let at = format!("seed {seed}, life {life}");
        exact += compare(&data, &at);
        totals += u64::from(intake.walked() < intake.writer().next_sequence());
        for _ in 0..dice.range(1, 30) {
            machine.advance(dice.range(1, SECOND as u64) as i64);
            intake.step(machine.now()).unwrap();
            if dice.one_in(4) {
                let _ = intake.writer().drain();
            }
        }
        // SAFETY: the intake has all maps of the machine.
        unsafe {
            if dice.one_in(2) {
                machine.power_cut(intake);
                cuts += 1;
            } else {
                machine.kill(&process, intake);
                kills += 1;
            }
        }
    }
    Counts::from([("exact", exact), ("kills", kills), ("power cuts", cuts), ("from totals", totals)])
}

#[test]
fn an_account_from_totals_is_that_of_a_walk_over_everything() {
    let counts = histories("totals::an_account_from_totals_is_that_of_a_walk_over_everything", 200, history);
    for name in ["exact", "kills", "power cuts", "from totals"] {
        assert!(counts[name] > 100, "{name}: {}", counts[name]);
    }
}

/// A source without a hole whose messages retention takes: none is ever lost, and none is forgotten.
fn retained(seed: u64) -> Counts {
    let mut dice = Dice::new(seed);
    let machine = Machine::new(seed);
    let resumed = Arc::new(Mutex::new(Next::new()));
    let stream = Options { retain_bytes: Some(1 << 20), when_full: WhenFull::DropOldest, ..Options::disk(1 << 20) };
    let options = IntakeOptions { stream, ahead_max: SECOND };
    let mut taken = 0;
    for life in 0..4 {
        let (process, data) = data_of(&machine);
        let (dice_of, resumed_of) = (Dice::new(dice.word()), resumed.clone());
        let source = Device { dice: dice_of, next: Next::new(), resumed: resumed_of, is_tidy: true };
        let mut intake = Intake::start(&data, "s", Box::new(source), &options, machine.now()).unwrap();
        for _ in 0..dice.range(1, 120) {
            machine.advance(1_000_000);
            intake.step(machine.now()).unwrap();
            let _ = intake.writer().drain();
        }
        taken += u64::from(intake.writer().first_sequence() > 0);
        let next = intake.writer().next_sequence();
        let (entries, _) = ledger::entries(&data, "s").unwrap();
        let at = format!("seed {seed}, life {life}: {entries:?}");
        assert!(entries.iter().all(|entry| entry.closed && entry.lost.is_empty() && entry.duplicate == 0), "{at}");
        assert_eq!(entries.iter().map(|entry| entry.appended).sum::<u64>(), next, "{at}");
        // SAFETY: the intake has all maps of the machine.
        unsafe { machine.kill(&process, intake) };
    }
    Counts::from([("retention", taken)])
}

#[test]
fn what_retention_took_is_still_counted() {
    let counts = histories("totals::what_retention_took_is_still_counted", 100, retained);
    assert!(counts["retention"] > 100, "{}", counts["retention"]);
}

/// Pushes `each` messages of eight bytes a step.
struct Many {
    next: u64,
    each: u64,
}

impl Source for Many {
    fn start(&mut self, _: i64, resume: &Resume) -> Result<(), Fault> {
        self.next = resume.next_seq("board");
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        let origin = out.origin("board")?;
        for _ in 0..self.each {
            let schema = SchemaId(*b"test");
            let meta = Meta { source_time: now, origin, origin_seq: self.next, schema, flags: 0 };
            if out.push(&meta, b"12345678")? == Pushed::Full {
                break;
            }
            self.next += 1;
        }
        Ok(Step::At(now + 1))
    }
}

#[test]
fn a_start_reads_what_came_behind_the_newest_totals() {
    let machine = Machine::new(1);
    let options = IntakeOptions { stream: Options::disk(1 << 20), ahead_max: SECOND };
    for life in 0..3 {
        let (process, data) = data_of(&machine);
        let source = Many { next: 0, each: 1000 };
        let mut intake = Intake::start(&data, "s", Box::new(source), &options, machine.now()).unwrap();
        let segment = intake.writer().header().index_entries;
        let next = intake.writer().next_sequence();
        assert!(next >= 150_000 * life && intake.walked() <= 2 * segment, "{} of {next} read", intake.walked());
        for _ in 0..200 {
            machine.advance(1_000_000);
            intake.step(machine.now()).unwrap();
            intake.writer().drain().unwrap();
        }
        // SAFETY: the intake has all maps of the machine.
        unsafe { machine.kill(&process, intake) };
    }
}

/// Says these numbers, one a step.
struct Numbers(Vec<u64>);

impl Source for Numbers {
    fn start(&mut self, _: i64, _: &Resume) -> Result<(), Fault> {
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        let origin = out.origin("board")?;
        for number in std::mem::take(&mut self.0) {
            let schema = SchemaId(*b"test");
            let meta = Meta { source_time: now, origin, origin_seq: number, schema, flags: 0 };
            assert_eq!(out.push(&meta, b"12345678")?, Pushed::Taken);
        }
        out.count(origin, "refused.size", 3)?;
        assert!(out.count(origin, "lost.size", 3).is_err());
        out.silent(now - 5..=now, Silence::Throttled);
        assert!((0.0..=1.0).contains(&out.fill()));
        Ok(Step::Ended)
    }
}

#[test]
fn numbers_that_fall_far_begin_another_life_and_what_has_no_number_is_outside_the_account() {
    let machine = Machine::new(1);
    let (_process, data) = data_of(&machine);
    let options = IntakeOptions { stream: Options::disk(1 << 20), ahead_max: SECOND };
    // Late within the window, then a device that restarts its numbers and loses a message, twice.
    let source = Numbers(vec![10_000, 10_003, 10_001, 5_903, 0, 2, 20_000, 0, 1]);
    Intake::start(&data, "s", Box::new(source), &options, machine.now()).unwrap().step(machine.now()).unwrap();
    let (entries, _) = ledger::entries(&data, "s").unwrap();
    let of = |entry: &ledger::Entry| (entry.origin.clone(), entry.sent, entry.appended, entry.closed);
    let lives: Vec<_> = entries.iter().map(of).collect();
    let board = |name: &str, sent, appended| (name.to_owned(), sent, appended, true);
    let found = [board("board", 4, 3), board("board#2", 1, 1), board("board#3", 20_001, 3), board("board#4", 2, 2)];
    assert_eq!(lives, found);
    assert_eq!(entries.iter().map(|entry| entry.refused.values().sum::<u64>()).sum::<u64>(), 3);
    let intervals = ledger::absences(&data, "s").unwrap();
    assert_eq!(intervals.iter().map(|gap| gap.reason.as_str()).collect::<Vec<_>>(), ["throttled"]);
    // A source that starts again continues the newest life.
    let source = Many { next: 0, each: 1 };
    let mut intake = Intake::start(&data, "s", Box::new(source), &options, machine.now()).unwrap();
    intake.step(machine.now()).unwrap();
    let (entries, _) = ledger::entries(&data, "s").unwrap();
    assert_eq!(entries.last().map(of), Some(board("board#4", 3, 3)));
}
