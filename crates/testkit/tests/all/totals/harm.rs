//! What can harm totals: tables of many parts, a damaged book, a trimmed one, streams without room, kills inside a
//! commit.

use super::*;
use flow::RunKeeper;
use std::path::PathBuf;
use std::time::Duration;

/// Each of its origins says one message a step, and leaves out every fourth number where it is `lossy`.
struct Crowd {
    origins: u64,
    next: u64,
    is_lossy: bool,
}

impl Crowd {
    fn new(origins: u64) -> Self {
        Self { origins, next: 0, is_lossy: false }
    }
}

impl Source for Crowd {
    fn start(&mut self, _: i64, resume: &Resume) -> Result<(), Fault> {
        self.next = resume.next_seq("bank-0");
        assert!(resume.origins.iter().all(|origin| origin.next_seq == self.next), "{} said", self.next);
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        self.next += u64::from(self.is_lossy && self.next % 4 == 3);
        for n in 0..self.origins {
            let origin = out.origin(&format!("bank-{n}"))?;
            let meta = Meta { source_time: now, origin, origin_seq: self.next, schema: SchemaId(*b"test"), flags: 0 };
            assert_eq!(out.push(&meta, b"")?, Pushed::Taken);
        }
        self.next += 1;
        Ok(Step::At(now + 1))
    }
}

fn commits(data: &Data) -> Vec<Commit> {
    data.book_messages(&commits_of("s")).unwrap().iter().map(|bytes| Commit::read(bytes).unwrap()).collect()
}

/// Parts of the tables in the book.
fn table_parts(data: &Data) -> Vec<(u32, u32)> {
    let totals = commits(data).into_iter().filter_map(|commit| commit.totals);
    totals.filter(|totals| totals.is_table).map(|totals| (totals.part, totals.parts)).collect()
}

fn disk(live_bytes: u64) -> IntakeOptions {
    IntakeOptions { stream: Options::disk(live_bytes), ahead_max: SECOND }
}

/// A step, with all of the stream on the disk after it.
fn step(machine: &Machine, intake: &mut Intake, ns: i64) {
    machine.advance(ns);
    intake.step(machine.now()).unwrap();
    intake.writer().drain().unwrap();
}

#[test]
fn totals_of_several_parts_were_begun_again_and_again_while_the_disk_was_behind() {
    let machine = Machine::new(1);
    let said = |data: &Data, each: u64| {
        let (entries, _) = ledger::entries(data, "s").unwrap();
        assert_eq!(entries.len(), 21_000);
        assert!(entries.iter().all(|entry| entry.closed && entry.sent == each && entry.appended == each));
    };
    let (process, data) = data_of(&machine);
    let mut intake = Intake::start(&data, "s", Box::new(Crowd::new(21_000)), &disk(8 << 20), machine.now()).unwrap();
    step(&machine, &mut intake, SECOND);
    intake.stop(machine.now()).unwrap();
    // SAFETY: the intake has all maps of the machine.
    unsafe { machine.kill(&process, intake) };
    said(&data_of(&machine).1, 1);

    // The book has room for a part at once, as while the disk is behind.
    let (process, data) = data_of(&machine);
    let mut intake = Intake::start(&data, "s", Box::new(Crowd::new(21_000)), &disk(8 << 20), machine.now()).unwrap();
    assert_eq!(intake.walked(), 0);
    step(&machine, &mut intake, 7000 * SECOND);
    let begun = commits(&data).len();
    for _ in 0..6 {
        step(&machine, &mut intake, 1000);
    }
    assert_eq!(table_parts(&data)[..3], [(0, 3), (1, 3), (2, 3)]);
    assert!(commits(&data).len() < begun + 6, "no part is repeated");
    // SAFETY: as above.
    unsafe { machine.kill(&process, intake) };
    let (_process, data) = data_of(&machine);
    said(&data, 8);
    let intake = Intake::start(&data, "s", Box::new(Crowd::new(21_000)), &disk(8 << 20), machine.now()).unwrap();
    assert!(intake.walked() <= 6 * 21_000, "{}", intake.walked());
}

#[test]
fn a_table_larger_than_the_room_that_is_kept_was_never_made() {
    let machine = Machine::new(1);
    let (_process, data) = data_of(&machine);
    // Totals of origins that miss numbers are large.
    let crowd = Crowd { is_lossy: true, ..Crowd::new(4000) };
    let mut intake = Intake::start(&data, "s", Box::new(crowd), &disk(4 << 20), machine.now()).unwrap();
    for pause in [1, 2500, 2500, 2500, 2500, 2500, 1, 1, 1, 1, 1, 1] {
        step(&machine, &mut intake, pause * SECOND);
    }
    let parts = table_parts(&data);
    assert!(parts.len() > 4 && parts.last().is_some_and(|(part, parts)| part + 1 == *parts), "{parts:?}");
}

#[test]
fn a_thousand_idle_sources_had_a_thousand_open_books() {
    /// Pushes a message and loses one in its first step.
    struct Once(bool);

    impl Source for Once {
        fn start(&mut self, _: i64, _: &Resume) -> Result<(), Fault> {
            Ok(())
        }

        fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
            let origin = out.origin("board")?;
            if std::mem::take(&mut self.0) {
                let meta = Meta { source_time: now, origin, origin_seq: 0, schema: SchemaId(*b"test"), flags: 0 };
                assert_eq!(out.push(&meta, b"12345678")?, Pushed::Taken);
                out.missing(origin, 1..=1, now..=now, "network")?;
            }
            Ok(Step::At(now + 1))
        }

        fn misses(&self) -> bool {
            false
        }
    }

    let machine = Machine::new(1);
    let (_process, data) = data_of(&machine);
    let is_open = || data.reader_early(&commits_of("s")).is_ok_and(|reader| !reader.bounds().closed);
    let start = |source: Box<dyn Source>| Intake::start(&data, "s", source, &disk(1 << 20), machine.now()).unwrap();
    let mut intake = start(Box::new(Many { next: 0, each: 1 }));
    step(&machine, &mut intake, SECOND);
    intake.stop(machine.now()).unwrap();
    drop(intake);
    assert!(commits(&data).is_empty(), "no totals of a message that is read as fast");
    let mut intake = start(Box::new(Once(true)));
    step(&machine, &mut intake, SECOND);
    assert!(is_open());
    step(&machine, &mut intake, 59 * SECOND);
    assert!(is_open());
    step(&machine, &mut intake, SECOND);
    assert!(!is_open());
    drop(intake);
    let mut intake = start(Box::new(Once(false)));
    step(&machine, &mut intake, SECOND);
    assert!(!is_open());
    let (entries, _) = ledger::entries(&data, "s").unwrap();
    assert_eq!((entries[0].sent, entries[0].appended, entries[0].lost["network"]), (2, 2, 1));
}

/// One of many origins loses a message each step.
struct Losing(u64);

impl Source for Losing {
    fn start(&mut self, _: i64, _: &Resume) -> Result<(), Fault> {
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        let names = if self.0 == 0 { 500 } else { 1 };
        for n in 0..names {
            let origin = out.origin(&format!("board-{n}"))?;
            let meta = Meta { source_time: now, origin, origin_seq: self.0, schema: SchemaId(*b"test"), flags: 0 };
            assert_eq!(out.push(&meta, b"12345678")?, Pushed::Taken);
            out.missing(origin, self.0 + 1..=self.0 + 1, now..=now, "network")?;
        }
        self.0 += 2;
        Ok(Step::At(now + 1))
    }
}

#[test]
fn totals_of_what_changes_took_the_room_of_every_table() {
    let machine = Machine::new(1);
    let (_process, data) = data_of(&machine);
    let mut intake = Intake::start(&data, "s", Box::new(Losing(0)), &disk(64 << 20), machine.now()).unwrap();
    for _ in 0..1500 {
        step(&machine, &mut intake, SECOND);
    }
    assert!(!table_parts(&data).is_empty());
    let (entries, _) = ledger::entries(&data, "s").unwrap();
    assert_eq!(entries.iter().map(|entry| entry.lost["network"]).sum::<u64>(), 1999);
}

/// One byte of a commit of the book is another, on the medium.
fn damage(machine: &Machine, data: &Data, sequence: u64) {
    let entry = data.reader_early(&commits_of("s")).unwrap().entries(sequence, 1).unwrap()[0];
    let file = PathBuf::from("/disk/data/s.commits").join(format!("p-{:08x}", entry.segment));
    machine.flip(&file, entry.offset() + u64::from(entry.length) / 2).unwrap();
}

/// A clean life of the source, with all it says on the disk.
fn life(machine: &Machine, data: &Data, dice: &mut Dice, ns: i64) {
    let resumed = Arc::new(Mutex::new(Next::new()));
    let source = Device { dice: Dice::new(dice.word()), next: Next::new(), resumed, is_tidy: false };
    let mut intake = Intake::start(data, "s", Box::new(source), &disk(1 << 20), machine.now()).unwrap();
    for _ in 0..dice.range(1, 12) {
        step(machine, &mut intake, dice.range(1, ns as u64) as i64);
    }
    intake.stop(machine.now()).unwrap();
}

/// Damages commits; the account is as before, or says that something is unknown, and goes on saying that.
fn damaged(seed: u64) -> Counts {
    let mut dice = Dice::new(seed);
    let machine = Machine::new(seed);
    let (_process, data) = data_of(&machine);
    // With long pauses there are tables, before and behind which there is damage.
    let ns = dice.pick(&[SECOND, 400 * SECOND]);
    for _ in 0..dice.range(1, 4) {
        life(&machine, &data, &mut dice, ns);
    }
    compare(&data, &format!("seed {seed}"));
    let (before, _) = ledger::entries(&data, "s").unwrap();
    let commits = data.reader_early(&commits_of("s")).unwrap().bounds().count;
    let hits: BTreeSet<u64> = (0..dice.range(1, 3)).map(|_| dice.below(commits)).collect();
    hits.iter().for_each(|sequence| damage(&machine, &data, *sequence));
    let is_unknown = |at: &str| {
        let (entries, gaps) = ledger::entries(&data, "s").unwrap();
        let says = gaps.iter().any(|gap| gap.reason == "unknown");
        assert!(entries.iter().all(|entry| entry.closed != says), "{at}: {entries:?}");
        (says, entries)
    };
    let at = format!("seed {seed}, {hits:?} of {commits} damaged");
    let (unknown, after) = is_unknown(&at);
    if unknown {
        let came = |entries: &[ledger::Entry]| -> Vec<(String, u64, u64)> {
            let of = |e: &ledger::Entry| (e.origin.clone(), e.appended, e.duplicate);
            entries.iter().filter(|e| e.appended > 0).map(of).collect()
        };
        assert_eq!(came(&after), came(&before), "{at}");
    } else {
        assert_eq!(after, before, "{at}");
    }
    for again in 0..2 {
        life(&machine, &data, &mut dice, ns);
        assert_eq!(is_unknown(&format!("{at}, again {again}")).0, unknown, "{at}, again {again}");
    }
    Counts::from([("damaged", hits.len() as u64), ("unknown", u64::from(unknown)), ("exact", u64::from(!unknown))])
}

#[test]
fn what_a_damaged_commit_held_was_forgotten_with_the_next_table() {
    let test = "totals::harm::what_a_damaged_commit_held_was_forgotten_with_the_next_table";
    let counts = histories(test, 200, damaged);
    println!(
        "{test}: injected {} damaged commits into {} histories: {} accounts as before, {} that say they are unknown, \
         0 wrong",
        counts["damaged"], counts["histories"], counts["exact"], counts["unknown"]
    );
    assert!(counts["exact"] > 20 && counts["unknown"] > 20, "{counts:?}");
}

#[test]
fn the_edges_of_a_run_whose_gaps_the_book_has_let_go_of_were_lost_in_silence() {
    /// Drops the second of two messages each step; its state is large.
    struct Large(u64, String);

    impl Source for Large {
        fn start(&mut self, _: i64, _: &Resume) -> Result<(), Fault> {
            Ok(())
        }

        fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
            let origin = out.origin("board")?;
            let meta = Meta { source_time: now, origin, origin_seq: self.0, schema: SchemaId(*b"test"), flags: 0 };
            assert_eq!(out.push(&meta, b"12345678")?, Pushed::Taken);
            out.missing(origin, self.0 + 1..=self.0 + 1, now..=now, "network")?;
            self.0 += 2;
            Ok(Step::At(now + 1))
        }

        fn state(&self) -> String {
            self.1.clone()
        }
    }

    let machine = Machine::new(1);
    let (process, data) = data_of(&machine);
    let source = Large(0, "x".repeat(100_000));
    let mut intake = Intake::start(&data, "s", Box::new(source), &disk(1 << 20), machine.now()).unwrap();
    let mut keeper = RunKeeper::open(&data).unwrap();
    let mut run = |name: &str, intake: &mut Intake| {
        let start = machine.now();
        keeper.begin(name, start, None, Duration::ZERO, "{}", start).unwrap();
        (0..10).for_each(|_| step(&machine, intake, SECOND));
        keeper.end(name, machine.now() + 1, "asked", machine.now()).unwrap();
        step(&machine, intake, SECOND);
        keeper.step(machine.now(), &[(&*intake).into()]).unwrap();
        assert_eq!(flow::runs::run(&data, name).unwrap().state.name(), "sealed");
    };
    run("early", &mut intake);
    let account = |name: &str| ledger::account(&data, name, &[]).unwrap();
    assert_eq!((account("early").entries[0].sent, account("early").closed), (20, true));
    (0..700).for_each(|_| step(&machine, &mut intake, SECOND));
    run("late", &mut intake);
    let book = data.reader_early(&commits_of("s")).unwrap().bounds();
    assert!(book.first > 20, "the book has let go of its oldest commits");
    // Losses behind the last message of the early run are not known any more, and the account reports that.
    let early = account("early");
    assert!(!early.closed && early.unknown().eq(["s"]), "{early:?}");
    let late = account("late");
    assert!(late.closed && late.unknown().next().is_none(), "{late:?}");
    assert_eq!((late.entries[0].sent, late.entries[0].lost["network"]), (22, 11));
    // The stream's own account begins from totals, and is exact.
    let next = 2 * intake.writer().next_sequence();
    // SAFETY: readers and keeper are not used any more.
    unsafe { machine.kill(&process, (intake, keeper)) };
    let (_process, data) = data_of(&machine);
    let (entries, _) = ledger::entries(&data, "s").unwrap();
    assert_eq!((entries[0].sent, entries[0].lost["network"], entries[0].closed), (next, next / 2, true));
}

/// Says messages of eight bytes at a rate that changes, of more and more origins.
struct Paced {
    dice: Dice,
    next: BTreeMap<u32, u64>,
}

impl Source for Paced {
    fn start(&mut self, _: i64, _: &Resume) -> Result<(), Fault> {
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        for _ in 0..self.dice.range(1, 60) {
            let origin = out.origin(&format!("board-{}", self.dice.below(100)))?;
            let next = self.next.entry(origin).or_default();
            // Holes keep the window of an origin open, so that its total is large.
            *next += 1 + u64::from(self.dice.one_in(50));
            let meta = Meta { source_time: now, origin, origin_seq: *next, schema: SchemaId(*b"test"), flags: 0 };
            assert_eq!(out.push(&meta, &[0; 200])?, Pushed::Taken);
        }
        Ok(Step::At(now + 1))
    }
}

#[test]
fn totals_take_one_percent_of_their_stream_or_a_kilobyte_a_second() {
    for (seed, pause) in [(1, SECOND), (2, 10 * SECOND), (3, SECOND / 50), (4, 100 * SECOND)] {
        let machine = Machine::new(seed);
        let (_process, data) = data_of(&machine);
        let source = Paced { dice: Dice::new(seed), next: BTreeMap::new() };
        let mut intake = Intake::start(&data, "s", Box::new(source), &disk(64 << 20), machine.now()).unwrap();
        let began = machine.now();
        for _ in 0..5000 {
            step(&machine, &mut intake, pause);
        }
        let book = data.book_messages(&commits_of("s")).unwrap();
        let taken: u64 = book.iter().map(|bytes| (bytes.len() + store::ENTRY_BYTES) as u64).sum();
        let stream = intake.writer().next_sequence() * (200 + store::ENTRY_BYTES as u64);
        let may = stream / 100 + ((machine.now() - began) / SECOND) as u64 * 1000;
        assert!(table_parts(&data).len() > 1, "pause {pause}");
        assert!(taken <= may, "pause {pause}: {taken} bytes of totals, {may} allowed");
    }
}

/// Pushes numbered messages of many sizes.
struct Busy {
    dice: Dice,
    next: u64,
}

impl Source for Busy {
    fn start(&mut self, _: i64, resume: &Resume) -> Result<(), Fault> {
        assert_eq!(resume.next_seq("board"), self.next);
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        let origin = out.origin("board")?;
        for _ in 0..self.dice.range(1, 30) {
            let messages = self.dice.range(1, 20) as usize;
            let each = 8 * self.dice.range(1, 300) as usize;
            for _ in 0..messages {
                let mut bytes = vec![0; each];
                bytes[..8].copy_from_slice(&self.next.to_le_bytes());
                let schema = SchemaId(*b"test");
                let meta = Meta { source_time: now, origin, origin_seq: self.next, schema, flags: 0 };
                assert_eq!(out.push(&meta, &bytes)?, Pushed::Taken);
                self.next += 1;
            }
        }
        Ok(Step::At(now + 1))
    }
}

/// A stream that drops what finds no room: each message is in the stream or lost, and never both.
fn dropping(seed: u64) -> Counts {
    let mut dice = Dice::new(seed);
    let machine = Machine::new(seed);
    let when_full = dice.pick(&[WhenFull::DropNewest, WhenFull::DropOldest]);
    let level = dice.pick(&[store::Level::Disk, store::Level::Memory]);
    let options = IntakeOptions { stream: Options { when_full, level, ..Options::memory(1 << 20) }, ahead_max: SECOND };
    let (mut said, mut lost) = (0, 0);
    for life in 0..3 {
        let (process, data) = data_of(&machine);
        let source = Arc::new(Mutex::new(Busy { dice: Dice::new(dice.word()), next: said }));
        let mut intake = Intake::start(&data, "s", Box::new(Shared(source.clone())), &options, machine.now()).unwrap();
        if dice.one_in(2) {
            data.hold("s", "reader", intake.writer().first_sequence()).unwrap();
        }
        for _ in 0..dice.range(2, 20) {
            machine.advance(dice.range(1, SECOND as u64) as i64);
            if dice.one_in(4) {
                let (disk, live) = machine.used();
                machine.room(disk + (4 << 20), live + dice.below(100_000));
            }
            intake.step(machine.now()).unwrap();
            if dice.one_in(3) {
                let _ = intake.writer().drain();
            }
        }
        machine.room(u64::MAX, u64::MAX);
        // Gaps that could not be written are written once there is room.
        for _ in 0..3 {
            machine.advance(SECOND);
            intake.step(machine.now()).unwrap();
            intake.writer().drain().unwrap();
        }
        (said, lost) = (source.lock().unwrap().next, 0);
        let appended = intake.writer().next_sequence();
        let at = format!("seed {seed}, life {life}, {when_full:?}, {level:?}");
        // SAFETY: the intake has all maps of the machine.
        unsafe { machine.kill(&process, intake) };
        let (entries, _) = ledger::entries(&data_of(&machine).1, "s").unwrap();
        let [entry] = &entries[..] else { panic!("{at}: {entries:?}") };
        lost += entry.lost.get("full").copied().unwrap_or(0);
        assert_eq!((entry.sent, entry.appended, entry.closed), (said, appended, true), "{at}: {entry:?}");
        assert_eq!((entry.lost.values().sum::<u64>(), entry.duplicate), (said - appended, 0), "{at}: {entry:?}");
        assert_eq!(lost, said - appended, "{at}: {entry:?}");
    }
    let kind = if when_full == WhenFull::DropNewest { "newest" } else { "oldest" };
    Counts::from([("said", said), ("lost", lost), (kind, u64::from(lost > 0)), ("kills", 3)])
}

/// A source that the test looks at.
struct Shared<S>(Arc<Mutex<S>>);

impl<S: Source> Source for Shared<S> {
    fn start(&mut self, now: i64, resume: &Resume) -> Result<(), Fault> {
        self.0.lock().unwrap().start(now, resume)
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        self.0.lock().unwrap().step(now, out)
    }

    fn state(&self) -> String {
        self.0.lock().unwrap().state()
    }
}

#[test]
fn what_finds_no_room_in_a_stream_that_drops_is_counted_once() {
    let test = "totals::harm::what_finds_no_room_in_a_stream_that_drops_is_counted_once";
    let counts = histories(test, 200, dropping);
    println!(
        "{test}: injected {} kills and streams without room into {} histories: {} messages, {} lost as full, \
         0 unaccounted",
        counts["kills"], counts["histories"], counts["said"], counts["lost"]
    );
    assert!(counts["newest"] > 20 && counts["oldest"] > 20, "{counts:?}");
}

/// Dies at any change of a file, also while it is asked for its state and while its totals are committed.
struct Mortal {
    machine: Arc<Machine>,
    device: Device,
    dice: Mutex<Dice>,
    deaths: Arc<Mutex<u64>>,
}

impl Source for Mortal {
    fn start(&mut self, now: i64, resume: &Resume) -> Result<(), Fault> {
        self.device.start(now, resume)
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        self.device.step(now, out)
    }

    fn state(&self) -> String {
        let mut dice = self.dice.lock().unwrap();
        if dice.one_in(12) {
            *self.deaths.lock().unwrap() += 1;
            self.machine.stop_after(Some(dice.below(8)));
        }
        self.device.state()
    }
}

/// Steps a source until it has died inside of a step, or for long enough; what it had said with its last whole commit.
fn steps(machine: &Machine, intake: &mut Intake, source: &Mutex<Mortal>, dice: &mut Dice) -> Option<Next> {
    let mut committed = None;
    for _ in 0..dice.range(1, 20) {
        machine.advance(dice.range(1, SECOND as u64) as i64);
        if dice.one_in(10) {
            machine.stop_after(Some(dice.below(20)));
        }
        let stepped = intake.step(machine.now());
        if machine.stopped() {
            break;
        }
        stepped.unwrap();
        machine.stop_after(None);
        committed = Some(source.lock().unwrap().device.next.clone());
        if dice.one_in(4) {
            let _ = intake.writer().drain();
        }
    }
    committed
}

fn mortal(seed: u64) -> Counts {
    let mut dice = Dice::new(seed);
    let machine = Arc::new(Machine::new(seed));
    let (resumed, deaths) = (Arc::new(Mutex::new(Next::new())), Arc::new(Mutex::new(0)));
    let is_tidy = dice.one_in(2);
    let when_full = dice.pick(&[WhenFull::Wait, WhenFull::DropNewest]);
    let options = IntakeOptions { stream: Options { when_full, ..Options::disk(1 << 20) }, ahead_max: SECOND };
    let (mut kills, mut cuts, mut totals, mut inside) = (0, 0, 0, 0);
    // Numbers that a killed process had committed; empty after a power cut.
    let mut committed = Next::new();
    for life in 0..dice.range(3, 9) {
        let (process, data) = data_of(&machine);
        let device = Device { dice: Dice::new(dice.word()), next: Next::new(), resumed: resumed.clone(), is_tidy };
        let (own, deaths) = (Mutex::new(Dice::new(dice.word())), deaths.clone());
        let source = Arc::new(Mutex::new(Mortal { machine: machine.clone(), device, dice: own, deaths }));
        let at = format!("seed {seed}, life {life}");
        if dice.one_in(5) {
            machine.stop_after(Some(dice.below(30)));
        }
        let started = Intake::start(&data, "s", Box::new(Shared(source.clone())), &options, machine.now());
        let mut intake = match started {
            Ok(intake) => Some(intake),
            Err(_) if machine.stopped() => None,
            Err(fault) => panic!("{at}: {fault}"),
        };
        if let Some(intake) = intake.as_mut().filter(|_| !machine.stopped()) {
            machine.stop_after(None);
            compare(&data, &at);
            let resumed = resumed.lock().unwrap().clone();
            for (name, next) in committed.iter().filter(|_| is_tidy) {
                assert!(resumed[name] >= *next, "{at}: `{name}` goes on with {}, {next} was said", resumed[name]);
            }
            totals += u64::from(intake.walked() < intake.writer().next_sequence());
            committed = steps(&machine, intake, &source, &mut dice).unwrap_or(committed);
            inside += u64::from(machine.stopped());
        }
        // SAFETY: the intake has all maps of the machine.
        unsafe {
            if dice.one_in(2) {
                machine.power_cut(intake);
                (cuts, committed) = (cuts + 1, Next::new());
            } else {
                machine.kill(&process, intake);
                kills += 1;
            }
        }
        machine.stop_after(None);
    }
    let deaths = *deaths.lock().unwrap();
    Counts::from([("kills", kills), ("cuts", cuts), ("inside", inside), ("states", deaths), ("from totals", totals)])
}

#[test]
fn a_source_that_dies_inside_its_commit_keeps_its_account() {
    let test = "totals::harm::a_source_that_dies_inside_its_commit_keeps_its_account";
    let counts = histories(test, 200, mortal);
    println!(
        "{test}: injected {} kills and {} power cuts into {} histories of sources, {} of them inside a step and {} \
         begun in `state()`: 0 accounts wrong, 0 numbers given twice",
        counts["kills"], counts["cuts"], counts["histories"], counts["inside"], counts["states"]
    );
    for name in ["kills", "cuts", "inside", "states", "from totals"] {
        assert!(counts[name] > 100, "{name}: {}", counts[name]);
    }
}
