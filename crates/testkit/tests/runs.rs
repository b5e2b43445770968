//! The life of runs, on the pretend machine.

use beamport_testkit::{Machine, PretendMedia};
use flow::{Data, Fault, Intake, IntakeOptions, Outlet, Resume, RunKeeper, Source, Step, StreamView, ledger};
use std::sync::Arc;
use std::time::Duration;
use store::{Drain, Meta, Options, SchemaId};

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
    assert!(fault.cause.contains("another time") && !fault.hint.is_empty(), "{fault}");
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
    assert!(fault.cause.contains("before that"), "{fault}");
    // Ended late without a time: its stop is what it was to be.
    assert_eq!(keeper.end("r", None, "asked", now + 5 * SECOND).unwrap().stop, now + SECOND);
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

#[test]
fn a_book_of_newest_messages_stays_small_and_keeps_the_last() {
    let machine = Machine::new(1);
    for folder in ["/disk/data", "/live/data"] {
        let data = Data { media: machine.start(), folder: folder.into(), drain: Drain::Caller };
        let mut book = data.book_of_newest("file.7.commits", 1 << 20).unwrap();
        for n in 0..4000_u64 {
            let schema = SchemaId(*b"bpcm");
            let meta = Meta { source_time: 0, origin: 0, origin_seq: n, schema, flags: 0 };
            book.append(&meta, &[n as u8; 1000]).unwrap();
            assert!(book.wait(n + 1, book.header().level, Duration::ZERO).unwrap());
        }
        let kept = data.book_messages("file.7.commits").unwrap();
        assert!((500..1200).contains(&kept.len()), "{folder}: {}", kept.len());
        assert_eq!(kept.last().unwrap(), &vec![(3999 % 256) as u8; 1000]);
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
