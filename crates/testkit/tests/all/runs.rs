//! The life of runs, on the pretend machine.

use beamport_testkit::{Dice, Machine, PretendMedia};
use flow::records::{Run, Stop};
use flow::{
    Aside, Data, Fault, Feed, Intake, IntakeOptions, Outlet, Product, Resume, RunKeeper, Sink, Source, Step,
    StreamView, ledger,
};
use std::sync::Arc;
use std::time::Duration;
use store::{Clock, Drain, Kind, Message, Meta, Options, ReadOptions, SchemaId};

const SECOND: i64 = 1_000_000_000;

fn keeper(process: &Arc<PretendMedia>) -> RunKeeper {
    let data = Data { media: process.clone(), folder: "/disk/data".into(), drain: Drain::Caller };
    RunKeeper::open(&data).unwrap()
}

fn begun(keeper: &mut RunKeeper, start: i64, stop: Option<i64>, now: i64) {
    keeper.begin("r", start, stop, Duration::from_secs(2), "{}", now).unwrap();
}

#[test]
fn a_second_end_at_another_time_is_refused() {
    let machine = Machine::new(1);
    let (process, now) = (machine.start(), machine.now());
    let mut keeper = keeper(&process);
    begun(&mut keeper, now, None, now);
    let run = keeper.end("r", now + SECOND, "asked", now + SECOND).unwrap();
    assert_eq!(run.stop, now + SECOND);
    let fault = keeper.end("r", now + 2 * SECOND, "asked", now + 2 * SECOND).unwrap_err();
    assert!(fault.cause.contains("another stop") && !fault.hint.is_empty(), "{fault}");
    // Asked again, the answer is the run as it ended.
    assert_eq!(keeper.end("r", now + SECOND, "asked", now + 3 * SECOND).unwrap(), run);
    assert_eq!(keeper.end("r", None, "asked", now + 3 * SECOND).unwrap(), run);
}

#[test]
fn a_run_does_not_end_later_than_it_was_to() {
    let machine = Machine::new(1);
    let (process, now) = (machine.start(), machine.now());
    let mut keeper = keeper(&process);
    begun(&mut keeper, now, Some(now + SECOND), now);
    let fault = keeper.end("r", now + 2 * SECOND, "asked", now).unwrap_err();
    assert!(fault.cause.contains("earlier stop"), "{fault}");
    // Ended late without a time: its stop is what it was to be.
    assert_eq!(keeper.end("r", None, "asked", now + 5 * SECOND).unwrap().stop, now + SECOND);
}

#[test]
fn a_message_at_the_very_stop_belongs_to_an_inclusive_run() {
    let machine = Machine::new(1);
    let (process, now) = (machine.start(), machine.now());
    let mut keeper = self::keeper(&process);
    let stop = now + SECOND;
    for (name, inclusive) in [("declared", true), ("asked", true), ("other", false)] {
        let declared = if name == "declared" { Stop::at(stop, inclusive) } else { None.into() };
        keeper.begin(name, now, declared, Duration::ZERO, "{}", now).unwrap();
        let asked = if name == "declared" { None.into() } else { Stop::at(stop, inclusive) };
        let run = keeper.end(name, asked, "asked", now + 2 * SECOND).unwrap();
        assert_eq!((run.holds(stop), run.holds(stop + 1)), (inclusive, false), "{name}");
        assert_eq!((run.end(), run.inclusive), (stop, inclusive), "{name}");
        // It goes into the book of runs.
        let mut message = Vec::new();
        run.write(&mut message, 0).unwrap();
        assert_eq!(Run::read(&message).unwrap(), (run, 0), "{name}");
    }
    // Ended earlier, and without a time: nobody asked for that very moment.
    keeper.begin("early", now, Stop::at(stop, true), Duration::ZERO, "{}", now).unwrap();
    let run = keeper.end("early", None, "asked", now + 7).unwrap();
    assert_eq!((run.stop, run.inclusive), (now + 7, false));
}

#[test]
fn a_run_that_has_not_begun_ends_empty_and_at_once() {
    for all in [false, true] {
        let machine = Machine::new(1);
        let (process, now) = (machine.start(), machine.now());
        let mut keeper = keeper(&process);
        begun(&mut keeper, now + 3600 * SECOND, None, now);
        if all {
            assert!(keeper.end_all("interrupted", now).unwrap());
        } else {
            keeper.end("r", None, "asked", now).unwrap();
        }
        let run = keeper.runs()[0].clone();
        assert_eq!((run.stop, run.holds(run.start)), (run.start, false));
        keeper.step(now + SECOND, &[] as &[StreamView]).unwrap();
        assert_eq!(keeper.runs()[0].state.name(), "sealed");
    }
}

/// Says something once in a while.
#[derive(Default)]
struct Seldom {
    said: Option<i64>,
    number: u64,
}

impl Source for Seldom {
    fn start(&mut self, _now: i64, resume: &Resume) -> Result<(), Fault> {
        self.number = resume.next_seq("it");
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        if self.said.is_none_or(|said| now >= said + 60 * SECOND) {
            let (origin, origin_seq) = (out.origin("it")?, self.number);
            let meta = Meta { source_time: now, origin, origin_seq, schema: SchemaId(*b"test"), flags: 0 };
            let _ = out.push(&meta, b"well")?;
            (self.said, self.number) = (Some(now), self.number + 1);
        }
        Ok(Step::At(now + SECOND))
    }
}

/// Says a message of 20 kB in each step, and that the number behind it is lost.
struct Lossy(u64);

impl Source for Lossy {
    fn start(&mut self, _: i64, _: &Resume) -> Result<(), Fault> {
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        let origin = out.origin("it")?;
        let meta = Meta { source_time: now, origin, origin_seq: self.0, schema: SchemaId(*b"test"), flags: 0 };
        let _ = out.push(&meta, &[0; 20_000])?;
        out.missing(origin, self.0 + 1..=self.0 + 1, now..=now, "network")?;
        self.0 += 2;
        Ok(Step::At(now + SECOND))
    }
}

#[test]
fn an_origin_had_an_account_for_each_gap_once_retention_had_its_messages() {
    let machine = Machine::new(1);
    let data = Data { media: machine.start(), folder: "/disk/data".into(), drain: Drain::Caller };
    let options = Options { when_full: store::WhenFull::DropOldest, ..Options::memory(1 << 20) };
    let options = IntakeOptions { stream: options, ahead_max: 600 * SECOND };
    let mut intake = Intake::start(&data, "s", Box::new(Lossy(0)), &options, machine.now()).unwrap();
    let mut keeper = RunKeeper::open(&data).unwrap();
    begun(&mut keeper, machine.now(), None, machine.now());
    let mut steps = |n: u32| {
        for _ in 0..n {
            machine.advance(SECOND);
            intake.step(machine.now()).unwrap();
        }
        StreamView::from(&intake)
    };
    steps(10);
    keeper.end("r", machine.now() + 1, "asked", machine.now() + 1).unwrap();
    keeper.step(machine.now(), &[steps(5)]).unwrap();
    steps(200);
    let account = ledger::account(&data, "r", &[]).unwrap();
    let entries: Vec<_> = account.entries.iter().map(|e| (e.origin.as_str(), e.appended, e.lost.clone())).collect();
    assert_eq!(entries[1..], [("it", 0, [("network".to_owned(), 10)].into())], "{entries:?}");
    assert_eq!((entries[0].0, account.gaps.len(), account.lost), ("", 10, 10));
}

fn seldom(data: &Data, now: i64) -> Intake {
    let options = IntakeOptions { stream: Options::disk(1 << 20), ahead_max: 600 * SECOND };
    Intake::start(data, "seldom", Box::new(Seldom::default()), &options, now).unwrap()
}

/// A step of everything at this moment; what `ledger::account` then says of times without a source.
fn absent(machine: &Machine, data: &Data, keeper: &mut RunKeeper, intake: &mut Intake) -> Vec<(i64, i64)> {
    let now = machine.now();
    intake.step(now).unwrap();
    intake.writer().drain().unwrap();
    keeper.step(now, &[StreamView::from(&*intake)]).unwrap();
    ledger::account(data, "r", &[]).unwrap().absences().map(|g| (g.from, g.to)).collect()
}

#[test]
fn an_absence_after_the_seal_is_not_of_the_run_though_the_source_said_little_in_it() {
    let machine = Machine::new(1);
    let process = machine.start();
    let data = Data { media: process.clone(), folder: "/disk/data".into(), drain: Drain::Caller };
    let mut keeper = keeper(&process);
    let (start, stop) = (machine.now(), machine.now() + 20 * SECOND);
    begun(&mut keeper, start, Some(stop), start);
    let mut intake = seldom(&data, start);
    absent(&machine, &data, &mut keeper, &mut intake);
    // Away for 5 s of the run: the last sign of life is the message.
    drop(intake);
    machine.advance(5 * SECOND);
    let mut intake = seldom(&data, machine.now());
    absent(&machine, &data, &mut keeper, &mut intake);
    machine.advance(25 * SECOND);
    let away = absent(&machine, &data, &mut keeper, &mut intake);
    assert_eq!(keeper.runs()[0].state.name(), "sealed");
    assert_eq!(away.len(), 1);
    assert!(away[0].1 - away[0].0 >= 5 * SECOND && away[0].1 < stop, "{away:?}");
    // Away for a day after the seal; the last message lies in the run.
    drop(intake);
    machine.advance(86_400 * SECOND);
    let mut intake = seldom(&data, machine.now());
    assert_eq!(absent(&machine, &data, &mut keeper, &mut intake), away);
    assert_eq!(ledger::absences(&data, "seldom").unwrap().len(), 2);
}

/// Reads a backlog of messages of one second each, of which the first is from this time; it never comes to its end.
struct Backlog(i64);

impl Source for Backlog {
    fn start(&mut self, _: i64, _: &Resume) -> Result<(), Fault> {
        Ok(())
    }

    fn step(&mut self, _: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        let (origin, origin_seq) = (out.origin("it")?, out.next_sequence());
        let meta = Meta { source_time: self.0, origin, origin_seq, schema: SchemaId(*b"test"), flags: 0 };
        let _ = out.push(&meta, b"0000test")?;
        self.0 += SECOND;
        Ok(Step::Again)
    }

    fn reached(&self) -> i64 {
        self.0 - SECOND
    }
}

#[test]
fn a_run_of_the_past_waited_until_all_that_came_after_it_was_read() {
    let machine = Machine::new(1);
    let data = Data { media: machine.start(), folder: "/disk/data".into(), drain: Drain::Caller };
    let mut keeper = RunKeeper::open(&data).unwrap();
    let start = machine.now() - 3600 * SECOND;
    keeper.begin("r", start, Stop::at(start + 9 * SECOND, true), Duration::from_secs(2), "{}", machine.now()).unwrap();
    let options = IntakeOptions { stream: Options::memory(1 << 20), ahead_max: i64::MAX };
    let mut intake = Intake::start(&data, "s", Box::new(Backlog(start)), &options, machine.now()).unwrap();
    let mut steps = 0;
    while keeper.unsealed().next().is_some() {
        assert_eq!(intake.step(machine.now()).unwrap(), Step::Again);
        keeper.step(machine.now(), &[(&intake).into()]).unwrap();
        steps += 1;
        assert!(steps <= 14, "the source has an hour more");
    }
    // Ten messages are of the run; the stop and its two seconds are over with the thirteenth.
    assert_eq!((steps, keeper.runs()[0].streams[0].next), (13, 10));
}

/// Counts what it is given.
struct Count(u64);

impl Sink for Count {
    fn write(&mut self, _input: usize, messages: &[Message<'_>], _aside: &mut Vec<Aside>) -> Result<(), Fault> {
        self.0 += messages.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> Result<String, Fault> {
        Ok("{}".into())
    }

    fn finish(&mut self, _account: &str) -> Result<Product, Fault> {
        Ok(Product { file: "f".into(), size: 0, blake3: String::new(), files: 1, bytes: 0 })
    }
}

#[test]
fn a_run_by_arrival_had_no_members_and_no_loss_after_the_clock_was_ahead() {
    let machine = Machine::new(1);
    let data = Data { media: machine.start(), folder: "/disk/data".into(), drain: Drain::Caller };
    let mut stream = data.writer("s", &Options { clock: Clock::None, ..Options::disk(1 << 20) }).unwrap();
    let mut append = |count: u64| {
        for _ in 0..count {
            let (origin, origin_seq) = (stream.origin("it").unwrap(), stream.next_sequence());
            let meta = Meta { source_time: 0, origin, origin_seq, schema: SchemaId(*b"test"), flags: 0 };
            stream.append(&meta, b"well").unwrap();
            stream.drain().unwrap();
            machine.advance(SECOND / 10);
        }
    };
    let mut keeper = RunKeeper::open(&data).unwrap();
    append(5);
    let start = machine.now();
    keeper.begin("r", start, None, Duration::from_secs(1), "{}", start).unwrap();
    append(10);
    machine.set_wall_clock(3600 * SECOND);
    append(1);
    machine.set_wall_clock(-3600 * SECOND);
    append(20);
    let stop = machine.now();
    keeper.end("r", stop, "asked", stop).unwrap();
    machine.advance(2 * SECOND);
    let view =
        StreamView { name: "s".into(), frontier: machine.now(), ended: false, marked: true, ..StreamView::default() };
    keeper.step(machine.now(), &[view]).unwrap();
    assert_eq!(keeper.runs()[0].state.name(), "sealed");
    let (mut feed, _) = Feed::open(&data, "file", "r", &["s".to_owned()], true).unwrap();
    let mut sink = Count(0);
    while !feed.step(&mut sink).unwrap().complete {}
    let account = feed.accounts().next().unwrap();
    assert_eq!((sink.0, account.counts.get("lost.clock")), (10, Some(&20)), "{:?}", account.counts);
    // The one that came while the clock was ahead, and those from before the run.
    assert_eq!(account.counts.get("skipped.outside"), Some(&6));
    feed.flush(&mut sink, machine.now()).unwrap();
    let account = ledger::account(&data, "r", &["file".to_owned()]).unwrap();
    let row = &account.rows[0];
    assert_eq!((row.read, row.done, row.lost.get("clock")), (30, 10, Some(&20)));
}

/// An open run `r` that began ten minutes ago, and a stream `s` of which it has all.
fn held(machine: &Machine) -> (Data, RunKeeper, store::Writer) {
    let data = Data { media: machine.start(), folder: "/disk/data".into(), drain: Drain::Caller };
    let mut keeper = RunKeeper::open(&data).unwrap();
    let stream = data.writer("s", &Options::memory(1 << 20)).unwrap();
    keeper.begin("r", machine.now() - 600 * SECOND, None, Duration::ZERO, "{}", machine.now()).unwrap();
    (data, keeper, stream)
}

/// Appends a message of this time, counted from now.
fn append_at(machine: &Machine, stream: &mut store::Writer, time: i64) {
    let (origin, origin_seq) = (stream.origin("it").unwrap(), stream.next_sequence());
    let meta = Meta { source_time: machine.now() + time, origin, origin_seq, schema: SchemaId(*b"test"), flags: 0 };
    stream.append(&meta, b"0000test").unwrap();
    stream.drain().unwrap();
}

/// A feed of run `r` that holds messages for so long.
fn holding(data: &Data, hold: Duration) -> (Feed, Count) {
    let (mut feed, _) = Feed::open(data, "file", "r", &["s".to_owned()], false).unwrap();
    feed.hold(hold);
    (feed, Count(0))
}

#[test]
fn a_stop_of_a_moment_ago_was_before_messages_that_the_sink_had() {
    let machine = Machine::new(1);
    let (data, mut keeper, mut stream) = held(&machine);
    let (mut feed, mut sink) = holding(&data, Duration::from_secs(1));
    let (mut plain, mut other) = holding(&data, Duration::ZERO);
    // History is given at once.
    append_at(&machine, &mut stream, -500 * SECOND);
    assert_eq!((feed.step(&mut sink).unwrap().messages, sink.0), (1, 1));
    append_at(&machine, &mut stream, 0);
    machine.advance(SECOND / 2);
    append_at(&machine, &mut stream, 0);
    assert_eq!((feed.step(&mut sink).unwrap().messages, sink.0), (0, 1));
    assert_eq!((plain.step(&mut other).unwrap().messages, other.0), (3, 3));
    machine.advance(SECOND / 2 + 1);
    assert_eq!((feed.step(&mut sink).unwrap().messages, sink.0), (1, 2), "what is older than a second");
    // A stop between the two that came now.
    keeper.end("r", machine.now() - 3 * SECOND / 4, "asked", machine.now()).unwrap();
    assert!(plain.step(&mut other).unwrap().overrun, "without `hold` the file is written again");
    let step = feed.step(&mut sink).unwrap();
    assert_eq!((step.messages, step.overrun, sink.0), (1, false, 2), "the last one is behind the stop");
}

#[test]
fn a_message_of_the_future_is_not_held_longer_than_others() {
    let machine = Machine::new(1);
    let (data, _keeper, mut stream) = held(&machine);
    let (mut feed, mut sink) = holding(&data, Duration::from_secs(1));
    append_at(&machine, &mut stream, 3600 * SECOND);
    append_at(&machine, &mut stream, -60 * SECOND);
    assert_eq!(feed.step(&mut sink).unwrap().messages, 0);
    machine.advance(SECOND + 1);
    assert_eq!((feed.step(&mut sink).unwrap().messages, sink.0), (2, 2));
}

#[test]
#[ignore = "half a minute"]
fn soak_a_day_of_a_clock_that_is_set() {
    const AGE: i64 = 2 * 3600 * SECOND;
    let mut steps = 0;
    for seed in 0..200 {
        let machine = Machine::new(seed);
        let mut dice = Dice::new(seed);
        let data = Data { media: machine.start(), folder: "/disk/data".into(), drain: Drain::Caller };
        let options = Options { retain_age_ns: Some(AGE), ..Options::disk(1 << 20) };
        let mut stream = data.writer("s", &options).unwrap();
        let named = ReadOptions { name: "r".into(), kind: Kind::Counted, ..ReadOptions::default() };
        let mut reader = data.reader("s", named).unwrap();
        let mut half_hour = 1800 * SECOND;
        let (mut seen, mut ends, mut arrival, mut back) = (0, 0, i64::MIN, None);
        // A message a second.
        for n in 0..86_400_u64 {
            let (origin, schema) = (stream.origin("it").unwrap(), SchemaId(*b"test"));
            stream
                .append(&Meta { source_time: machine.now(), origin, origin_seq: n, schema, flags: 0 }, &[7; 200])
                .unwrap();
            machine.advance(SECOND);
            if n % 60 == 0 {
                stream.drain().unwrap();
                reader.refresh().unwrap();
                loop {
                    let batch = reader.read(1000).unwrap();
                    for message in batch.iter() {
                        assert_eq!(message.entry.origin_seq, seen);
                        assert!(message.entry.arrival_time >= arrival, "arrival fell");
                        (seen, arrival) = (seen + 1, message.entry.arrival_time);
                    }
                    if batch.is_empty() {
                        break;
                    }
                }
                reader.commit(seen);
            }
            if let Some((_, step)) = back.filter(|back: &(u64, i64)| back.0 <= n) {
                machine.set_wall_clock(-step);
                back = None;
            }
            // Far for less than a minute, or half an hour to and fro for longer.
            if n == ends {
                if dice.one_in(2) {
                    let step = dice.pick(&[-30 * 24, -48, -1, 1, 48, 30 * 24]) * 3600 * SECOND;
                    machine.set_wall_clock(step);
                    back = Some((n + dice.below(50), step));
                } else {
                    half_hour = -half_hour;
                    machine.set_wall_clock(half_hour);
                }
                (ends, steps) = (n + 60 + dice.below(7200), steps + 1);
            }
            let kept = n.saturating_sub(stream.first_sequence()) as i64 * SECOND;
            assert!(n < 14_400 || kept > AGE / 2, "seed {seed}: only {} s are kept", kept / SECOND);
            assert!(kept < 4 * AGE, "seed {seed}: {} s are kept", kept / SECOND);
        }
        stream.drain().unwrap();
        let (entries, _) = ledger::entries(&data, "s").unwrap();
        assert!(entries.len() == 1 && entries[0].closed && entries[0].lost.is_empty(), "{entries:?}");
    }
    println!("injected: {steps} steps of the clock in 200 days of messages, 0 messages lost");
}

/// Begins and ends runs of no stream, until they are sealed.
fn seal_runs(keeper: &mut RunKeeper, names: std::ops::Range<u32>, now: i64) {
    for number in names {
        let name = format!("r{number}");
        keeper.begin(&name, now, None, Duration::ZERO, r#"{"title": "t"}"#, now).unwrap();
        keeper.end(&name, now + 1, "asked", now + 1).unwrap();
        keeper.step(now + 2, &[]).unwrap();
    }
    assert_eq!(keeper.unsealed().count(), 0);
}

/// Metadata of an instrument; `letters` is the length of the text in them.
fn described(letters: usize) -> String {
    format!(r#"{{"sinks": {{"file": {{"template": "{}"}}}}}}"#, "t".repeat(letters))
}

#[test]
fn metadata_of_an_instrument_are_written_once_for_its_runs_and_are_those_of_each() {
    let machine = Machine::new(1);
    for folder in ["/disk/data", "/live/data"] {
        let in_memory = folder == "/live/data";
        let (process, now) = (machine.start(), machine.now());
        let data = Data { media: process, folder: folder.into(), drain: Drain::Caller };
        let mut keeper = RunKeeper::open(&data).unwrap();
        keeper.set_instrument(&described(10_000));
        seal_runs(&mut keeper, 0..100, now);
        drop(keeper);
        // Of another start with the same metadata, and with others.
        let mut keeper = RunKeeper::open(&data).unwrap();
        keeper.set_instrument(&described(10_000));
        seal_runs(&mut keeper, 100..200, now);
        keeper.set_instrument(&described(5));
        seal_runs(&mut keeper, 200..201, now);
        drop(keeper);
        let bytes: usize = data.book_messages(flow::RUNS).unwrap().iter().map(Vec::len).sum();
        // 600 steps. In memory the book discards its oldest messages, so each has them.
        let copies = bytes / 10_000;
        assert!(if in_memory { copies >= 600 } else { (4..=25).contains(&copies) }, "{folder}: {copies}");
        let runs = flow::runs::runs(&data).unwrap();
        for (number, run) in runs.iter().enumerate() {
            let letters = if number < 200 { 10_000 } else { 5 };
            let metadata = run.all_metadata();
            assert_eq!(metadata["sinks"]["file"]["template"].as_str().map(str::len), Some(letters), "{number}");
            assert_eq!((&metadata["title"], run.sinks()), (&"t".into(), vec!["file".to_owned()]));
        }
    }
}

#[test]
fn a_run_whose_metadata_of_the_instrument_do_not_verify_says_so_and_others_have_theirs() {
    let machine = Machine::new(1);
    let (process, now) = (machine.start(), machine.now());
    let data = Data { media: process, folder: "/disk/data".into(), drain: Drain::Caller };
    let mut keeper = RunKeeper::open(&data).unwrap();
    keeper.set_instrument(&described(100));
    seal_runs(&mut keeper, 0..3, now);
    keeper.begin("open", now, None, Duration::ZERO, "{}", now).unwrap();
    keeper.set_instrument(&described(7));
    keeper.begin("r3", now, None, Duration::ZERO, "{}", now).unwrap();
    drop(keeper);
    let entry = data.reader_early(flow::RUNS).unwrap().entries(0, 1).unwrap()[0];
    let file = std::path::PathBuf::from("/disk/data/runs").join(format!("p-{:08x}", entry.segment));
    machine.flip(&file, entry.offset() + 9).unwrap();
    let mut view = flow::RunsView::new(&data);
    let runs = view.refresh().unwrap().to_vec();
    let doubts = |view: &flow::RunsView| -> Vec<_> {
        view.runs().iter().map(|run| (run.name.clone(), view.doubt(run).is_some())).collect()
    };
    let expected = [("r0", true), ("r1", true), ("r2", true), ("open", true), ("r3", false)];
    let expected = expected.map(|(name, is_doubtful)| (name.to_owned(), is_doubtful));
    assert_eq!(doubts(&view), expected);
    assert!(view.doubt(&runs[0]).unwrap().contains("message 0 of `runs`"));
    assert!(runs[0].description_fault().is_some() && runs[0].sinks().is_empty());
    assert_eq!(runs[4].sinks(), ["file"]);
    // Its later steps do not say that there are none.
    let mut keeper = RunKeeper::open(&data).unwrap();
    keeper.end("open", now + 1, "asked", now + 1).unwrap();
    keeper.end("r3", now + 1, "asked", now + 1).unwrap();
    keeper.step(now + 2, &[]).unwrap();
    view.refresh().unwrap();
    assert_eq!(doubts(&view), expected);
    assert_eq!(view.runs()[4].sinks(), ["file"]);
}

#[test]
fn what_the_user_says_of_a_run_names_no_sinks_of_its_instrument() {
    let machine = Machine::new(1);
    let (process, now) = (machine.start(), machine.now());
    let mut keeper = keeper(&process);
    keeper.set_instrument(&described(1));
    let said = r#"{"sinks": {"evil": {}}, "workers": {"w": {}}}"#;
    let run = keeper.begin("r", now, None, Duration::ZERO, said, now).unwrap();
    assert_eq!((run.sinks(), run.description().contains("workers")), (vec!["file".to_owned()], false));
}
