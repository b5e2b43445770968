//! Runs while somebody sets the wall clock, on the pretend machine.

use beamport_testkit::Machine;
use flow::records::Run;
use flow::{Data, Fault, Intake, IntakeOptions, Outlet, Resume, RunKeeper, Source, Step, StreamView, ledger};
use std::sync::Arc;
use std::time::Duration;
use store::{Clock, Drain, Media, Meta, Options, SchemaId};

const SECOND: i64 = 1_000_000_000;

/// A board with a clock of its own, which nobody sets: a message in each step.
struct Board {
    /// Its time less the clock that nobody sets.
    ahead: i64,
    media: Arc<dyn Media>,
    number: u64,
}

impl Source for Board {
    fn start(&mut self, _now: i64, resume: &Resume) -> Result<(), Fault> {
        self.number = resume.next_seq("board");
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        let source_time = self.media.clock() + self.ahead;
        let meta = Meta {
            source_time,
            origin: out.origin("board")?,
            origin_seq: self.number,
            schema: SchemaId(*b"test"),
            flags: 0,
        };
        let _ = out.push(&meta, b"well")?;
        self.number += 1;
        Ok(Step::At(now + SECOND))
    }
}

/// An instrument with one board: what a mover does, step by step.
struct Instrument {
    machine: Machine,
    data: Data,
    keeper: RunKeeper,
    intake: Intake,
    /// Of the board's time.
    ahead: i64,
}

impl Instrument {
    fn start(clock: Clock) -> Self {
        let machine = Machine::new(1);
        let ahead = machine.now() - machine.clock();
        let (data, keeper, intake) = Self::open(&machine, ahead, clock);
        Self { machine, data, keeper, intake, ahead }
    }

    fn open(machine: &Machine, ahead: i64, clock: Clock) -> (Data, RunKeeper, Intake) {
        let data = Data { media: machine.start(), folder: "/disk/data".into(), drain: Drain::Caller };
        let keeper = RunKeeper::open(&data).unwrap();
        let options = IntakeOptions { stream: Options { clock, ..Options::disk(1 << 20) }, ahead_max: i64::MAX };
        let board = Board { ahead, media: data.media.clone(), number: 0 };
        let intake = Intake::start(&data, "board", Box::new(board), &options, machine.now()).unwrap();
        (data, keeper, intake)
    }

    /// A second passes `seconds` times, and a message comes in each.
    fn measure(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.intake.step(self.machine.now()).unwrap();
            self.intake.writer().drain().unwrap();
            self.machine.advance(SECOND);
            self.step();
        }
    }

    fn step(&mut self) {
        let now = self.machine.now();
        let _ = self.keeper.rests(now);
        self.keeper.step(now, &[StreamView::from(&self.intake)]).unwrap();
    }

    fn begin(&mut self, stop: Option<i64>) {
        let now = self.machine.now();
        self.keeper.begin("r", now, stop, Duration::from_secs(2), "{}", now).unwrap();
    }

    fn end(&mut self) -> Run {
        let now = self.machine.now();
        self.keeper.end("r", None, "asked", now).unwrap()
    }

    /// The mover is killed and comes back.
    fn restart(self, clock: Clock) -> Self {
        let Self { machine, data, keeper, intake, ahead } = self;
        drop((data, keeper, intake));
        let (data, keeper, intake) = Self::open(&machine, ahead, clock);
        Self { machine, data, keeper, intake, ahead }
    }

    fn run(&self) -> &Run {
        &self.keeper.runs()[0]
    }

    fn members(&self) -> u64 {
        flow::status::members::all(&self.data, self.run()).unwrap().iter().map(|stream| stream.messages).sum()
    }
}

#[test]
fn a_run_in_which_the_clock_is_set_back_keeps_what_came_and_says_so() {
    for back in [SECOND / 2, 5 * SECOND, 30 * SECOND, 3600 * SECOND] {
        for clock in [Clock::Epoch, Clock::None] {
            let mut it = Instrument::start(clock);
            it.measure(2);
            it.begin(None);
            it.measure(3);
            it.machine.set_wall_clock(-back);
            it.measure(5);
            it.end();
            // It is sealed after its settle time, not when the wall clock has come so far.
            it.measure(4);
            assert_eq!(it.run().state.name(), "sealed", "{back} {clock:?}");
            let account = ledger::account(&it.data, "r", &[]).unwrap();
            assert!(it.members() >= 8, "{back} {clock:?}: {account:?}");
            assert_eq!((it.run().clock_step, account.clock_step_ns), (-back, -back), "{clock:?}");
        }
    }
}

#[test]
fn a_run_resumed_with_a_clock_set_back_keeps_what_came_and_says_so() {
    for settling in [false, true] {
        let mut it = Instrument::start(Clock::Epoch);
        it.begin(None);
        it.measure(6);
        if settling {
            it.end();
        }
        it.machine.set_wall_clock(-3600 * SECOND);
        let mut it = it.restart(Clock::Epoch);
        it.measure(1);
        it.end();
        it.measure(4);
        assert_eq!(it.run().state.name(), "sealed", "{settling}");
        assert!(it.members() >= 6, "{settling}: {}", it.members());
        assert!((it.run().clock_step + 3600 * SECOND).abs() <= 2 * SECOND, "{}", it.run().clock_step);
    }
}

#[test]
fn a_declared_run_is_no_longer_than_it_was_to_be_where_the_clock_is_set_back() {
    let mut it = Instrument::start(Clock::Epoch);
    let stop = it.machine.now() + 6 * SECOND;
    it.begin(Some(stop));
    it.measure(3);
    it.machine.set_wall_clock(-3600 * SECOND);
    it.measure(3 + 2 + 1);
    assert_eq!((it.run().state.name(), it.run().stop, it.members()), ("sealed", stop, 6));
    assert_eq!(it.run().clock_step, -3600 * SECOND);
}

#[test]
fn a_run_begun_after_the_clock_was_set_back_ends_when_asked_and_says_so() {
    for restarts in [false, true] {
        let mut it = Instrument::start(Clock::Epoch);
        it.measure(10);
        it.machine.set_wall_clock(-3600 * SECOND);
        // The clocks of boards are right again.
        it.ahead -= 3600 * SECOND;
        let mut it = it.restart(Clock::Epoch);
        it.begin(None);
        it.measure(3);
        if restarts {
            it = it.restart(Clock::Epoch);
        }
        let now = it.machine.now();
        assert_eq!(it.end().stop, now, "arrivals of before are not of the run");
        it.measure(4);
        assert_eq!((it.run().state.name(), it.members()), ("sealed", 3));
        assert!(it.run().clock_step <= -3590 * SECOND, "{}", it.run().clock_step);
    }
}

#[test]
fn all_open_runs_end_behind_what_came_and_a_clock_that_stays_right_is_not_named() {
    let mut it = Instrument::start(Clock::Epoch);
    it.begin(None);
    it.measure(3);
    it.machine.set_wall_clock(-30 * SECOND);
    it.measure(2);
    assert!(it.keeper.end_all("interrupted", it.machine.now()).unwrap());
    it.measure(3);
    assert_eq!((it.run().state.name(), it.run().clock_step), ("sealed", -30 * SECOND));
    assert!(it.members() >= 5);

    let mut it = Instrument::start(Clock::Epoch);
    it.begin(None);
    it.measure(5);
    let now = it.machine.now();
    assert_eq!(it.end().stop, now);
    it.measure(3);
    assert_eq!((it.run().state.name(), it.run().clock_step, it.members()), ("sealed", 0, 5));
}

#[test]
fn a_clock_set_forward_is_named_and_set_back_again_too() {
    let mut it = Instrument::start(Clock::Epoch);
    it.begin(None);
    it.measure(3);
    it.machine.set_wall_clock(3600 * SECOND);
    it.measure(3);
    it.machine.set_wall_clock(-3600 * SECOND);
    it.measure(3);
    it.end();
    it.measure(4);
    assert_eq!((it.run().state.name(), it.run().clock_step), ("sealed", 3600 * SECOND));
    assert!(it.members() >= 9);
}
