//! Sources that receive: what they keep for a restart, what they know to be safe or missing, on the pretend machine.

use beamport_testkit::{Counts, Dice, Machine, histories};
use flow::{Data, Fault, Intake, IntakeOptions, Outlet, Pushed, Resume, Silence, Source, Step, ledger};
use std::sync::{Arc, Mutex};
use store::{Drain, Level, Meta, Options, SchemaId};

const SECOND: i64 = 1_000_000_000;

/// The calls that a source received, over all its starts.
#[derive(Default)]
struct Seen {
    /// Number of the message from which the newest start went on.
    from: u64,
    /// Its state then, and the number of the next message by the numbers of the origin.
    resumed: Vec<(u64, u64)>,
    /// The newest number below which messages are safe.
    safe: u64,
}

/// Says `each` messages a step; its state is how many it has said.
struct Counter {
    seen: Arc<Mutex<Seen>>,
    next: u64,
    each: u64,
    misses: bool,
}

impl Source for Counter {
    fn start(&mut self, _: i64, resume: &Resume) -> Result<(), Fault> {
        let state = resume.state.parse().unwrap_or(0);
        self.next = resume.next_seq("board");
        let mut seen = self.seen.lock().unwrap();
        seen.resumed.push((state, self.next));
        (seen.from, seen.safe) = (self.next, 0);
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        let origin = out.origin("board")?;
        for _ in 0..self.each {
            assert_eq!(out.next_sequence(), self.next);
            let meta = Meta { source_time: now, origin, origin_seq: self.next, schema: SchemaId(*b"test"), flags: 0 };
            if out.push(&meta, b"12345678")? == Pushed::Full {
                break;
            }
            self.next += 1;
        }
        Ok(Step::At(now + 1))
    }

    fn state(&self) -> String {
        self.next.to_string()
    }

    fn safe(&mut self, below: u64) -> Result<(), Fault> {
        let mut seen = self.seen.lock().unwrap();
        assert!(below > seen.safe && below <= self.next, "{below} after {}, of {}", seen.safe, self.next);
        seen.safe = below;
        Ok(())
    }

    fn misses(&self) -> bool {
        self.misses
    }
}

fn data_of(machine: &Machine) -> (Arc<beamport_testkit::PretendMedia>, Data) {
    let media = machine.start();
    (media.clone(), Data { media, folder: "/disk/data".into(), drain: Drain::Caller })
}

fn options() -> IntakeOptions {
    IntakeOptions { stream: Options::disk(1 << 20), ahead_max: SECOND }
}

/// Two origins that say as much as chance has it, so that a number in the stream speaks of other messages in each life; the
/// state is what each has said.
struct Pair {
    resumed: Arc<Mutex<[u64; 2]>>,
    next: [u64; 2],
    dice: Dice,
    misses: bool,
}

impl Source for Pair {
    fn start(&mut self, _: i64, resume: &Resume) -> Result<(), Fault> {
        self.next = [resume.next_seq("a"), resume.next_seq("b")];
        let state: Vec<u64> = resume.state.split(' ').filter_map(|word| word.parse().ok()).collect();
        *self.resumed.lock().unwrap() = state.try_into().unwrap_or_default();
        let resumed = *self.resumed.lock().unwrap();
        assert!(resumed[0] <= self.next[0] && resumed[1] <= self.next[1], "{resumed:?} of {:?}", self.next);
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        let of = self.dice.below(2) as usize;
        let origin = out.origin(["a", "b"][of])?;
        for _ in 0..self.dice.range(1, 40) {
            let meta =
                Meta { source_time: now, origin, origin_seq: self.next[of], schema: SchemaId(*b"test"), flags: 0 };
            if out.push(&meta, b"12345678")? == Pushed::Taken {
                self.next[of] += 1;
            }
        }
        Ok(Step::At(now + 1))
    }

    fn state(&self) -> String {
        format!("{} {}", self.next[0], self.next[1])
    }

    fn misses(&self) -> bool {
        self.misses
    }
}

#[test]
fn the_state_of_a_start_was_not_kept_before_a_second_had_passed() {
    let machine = Machine::new(1);
    let seen = Arc::new(Mutex::new(Seen::default()));
    for _ in 0..2 {
        let (_, data) = data_of(&machine);
        let source = Counter { seen: seen.clone(), next: 0, each: 3, misses: false };
        let mut intake = Intake::start(&data, "s", Box::new(source), &options(), machine.now()).unwrap();
        machine.advance(1);
        intake.step(machine.now()).unwrap();
    }
    assert_eq!(seen.lock().unwrap().resumed, [(0, 0), (3, 3)]);
}

#[test]
fn a_state_of_messages_that_a_power_cut_took_came_back_when_others_had_their_numbers() {
    let test = "receive::a_state_of_messages_that_a_power_cut_took_came_back_when_others_had_their_numbers";
    let counts = histories(test, 400, |seed| {
        let mut dice = Dice::new(seed);
        let machine = Machine::new(seed);
        let resumed = Arc::new(Mutex::new([0; 2]));
        let misses = dice.one_in(2);
        let mut states = 0;
        for _ in 0..dice.range(3, 10) {
            let (process, data) = data_of(&machine);
            let source = Pair { resumed: resumed.clone(), next: [0; 2], dice: Dice::new(dice.word()), misses };
            let mut intake = Intake::start(&data, "s", Box::new(source), &options(), machine.now()).unwrap();
            states += u64::from(*resumed.lock().unwrap() != [0; 2]);
            for _ in 0..dice.range(1, 20) {
                machine.advance(dice.range(1, SECOND as u64) as i64);
                intake.step(machine.now()).unwrap();
                if dice.one_in(6) {
                    let _ = intake.writer().drain();
                }
            }
            // SAFETY: the intake has all maps of the machine.
            unsafe { if dice.one_in(2) { machine.power_cut(intake) } else { machine.kill(&process, intake) } }
        }
        Counts::from([("states given back", states)])
    });
    assert!(counts["states given back"] > 200, "{counts:?}");
}

/// One life after the other of a source whose machine is stopped anywhere.
fn history(seed: u64) -> Counts {
    let mut dice = Dice::new(seed);
    let (mut states, mut behind, mut ends, mut kills, mut cuts) = (0, 0, 0, 0, 0);
    let machine = Machine::new(seed);
    let seen = Arc::new(Mutex::new(Seen::default()));
    for _ in 0..dice.range(3, 8) {
        let (process, data) = data_of(&machine);
        let source = Counter { seen: seen.clone(), next: 0, each: dice.range(1, 40), misses: true };
        let mut intake = Intake::start(&data, "s", Box::new(source), &options(), machine.now()).unwrap();
        {
            let (state, next) = *seen.lock().unwrap().resumed.last().unwrap();
            // The state speaks of no message that is not there, and what is there is numbered on.
            assert!(state <= next, "seed {seed}: a state of {state} messages, {next} are there");
            assert_eq!(next, intake.writer().next_sequence(), "seed {seed}");
            states += u64::from(state > 0);
            behind += u64::from(0 < state && state < next);
        }
        for _ in 0..dice.range(1, 60) {
            machine.advance(dice.range(1, SECOND as u64) as i64);
            intake.step(machine.now()).unwrap();
            if dice.one_in(3) {
                let _ = intake.writer().drain();
            }
            let safe = seen.lock().unwrap().safe;
            assert!(safe <= intake.writer().mark(Level::Disk), "seed {seed}");
        }
        match dice.below(3) {
            0 => {
                intake.stop(machine.now()).unwrap();
                drop(intake);
                ends += 1;
            }
            // SAFETY: the intake has all maps of the process.
            1 => unsafe {
                machine.kill(&process, intake);
                kills += 1;
            },
            // SAFETY: the same, and there is no other process.
            _ => unsafe {
                machine.power_cut(intake);
                cuts += 1;
            },
        }
    }
    Counts::from([
        ("states given back", states),
        ("states behind the stream", behind),
        ("ends", ends),
        ("kills", kills),
        ("power cuts", cuts),
    ])
}

#[test]
fn a_state_that_is_given_back_is_never_ahead_of_the_stream() {
    let counts = histories("receive::a_state_that_is_given_back_is_never_ahead_of_the_stream", 200, history);
    for name in ["states given back", "states behind the stream", "ends", "kills", "power cuts"] {
        assert!(counts[name] > 50, "{name}: {}", counts[name]);
    }
}

#[test]
fn a_source_that_is_ended_keeps_its_newest_state() {
    let machine = Machine::new(1);
    let (_process, data) = data_of(&machine);
    let seen = Arc::new(Mutex::new(Seen::default()));
    for lives in 0..3 {
        let source = Counter { seen: seen.clone(), next: 0, each: 5, misses: true };
        let mut intake = Intake::start(&data, "s", Box::new(source), &options(), machine.now()).unwrap();
        assert_eq!(seen.lock().unwrap().resumed[lives as usize], (5 * lives, 5 * lives));
        intake.step(machine.now()).unwrap();
        intake.writer().drain().unwrap();
        intake.stop(machine.now()).unwrap();
    }
}

#[test]
fn a_source_hears_what_is_safe_once_it_is_on_the_disk() {
    let machine = Machine::new(1);
    let (_process, data) = data_of(&machine);
    let seen = Arc::new(Mutex::new(Seen::default()));
    let source = Counter { seen: seen.clone(), next: 0, each: 5, misses: true };
    let mut intake = Intake::start(&data, "s", Box::new(source), &options(), machine.now()).unwrap();
    for safe in [0, 5, 10] {
        intake.step(machine.now()).unwrap();
        assert_eq!(seen.lock().unwrap().safe, safe);
        intake.writer().drain().unwrap();
    }
}

/// Pushes four messages and names the numbers that are missing between them.
struct Lossy;

impl Source for Lossy {
    fn start(&mut self, _: i64, _: &Resume) -> Result<(), Fault> {
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        let origin = out.origin("board")?;
        for number in [0, 1, 5, 6] {
            let meta = Meta { source_time: now, origin, origin_seq: number, schema: SchemaId(*b"test"), flags: 0 };
            assert_eq!(out.push(&meta, b"12345678")?, Pushed::Taken);
        }
        out.missing(origin, 2..=4, now..=now, "network")?;
        out.silent(now - 10..=now - 5, Silence::Absent);
        assert!(out.missing(origin + 1, 0..=0, now..=now, "network").is_err());
        Ok(Step::Ended)
    }
}

#[test]
fn what_a_source_knows_to_be_missing_is_lost_with_its_reason_and_silence_counts_nothing() {
    let machine = Machine::new(1);
    let (_process, data) = data_of(&machine);
    let now = machine.now();
    Intake::start(&data, "s", Box::new(Lossy), &options(), now).unwrap().step(now).unwrap();
    let (entries, gaps) = ledger::entries(&data, "s").unwrap();
    let [entry] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!((entry.sent, entry.appended, entry.lost["network"], entry.closed), (7, 4, 3, true));
    assert!(gaps.iter().any(|gap| (gap.first, gap.last, gap.reason.as_str()) == (2, 4, "network")), "{gaps:?}");
    let absences = ledger::absences(&data, "s").unwrap();
    let [silence] = &absences[..] else { panic!("{absences:?}") };
    assert_eq!((silence.from, silence.to, silence.count()), (now - 10, now - 5, 0));
}

#[test]
fn an_outside_that_keeps_what_it_says_is_not_missed_while_nobody_listens() {
    for misses in [true, false] {
        let machine = Machine::new(1);
        let (_process, data) = data_of(&machine);
        let seen = Arc::new(Mutex::new(Seen::default()));
        for _ in 0..2 {
            let source = Counter { seen: seen.clone(), next: 0, each: 1, misses };
            let mut intake = Intake::start(&data, "s", Box::new(source), &options(), machine.now()).unwrap();
            intake.step(machine.now()).unwrap();
            machine.advance(SECOND);
        }
        assert_eq!(ledger::absences(&data, "s").unwrap().len(), usize::from(misses));
    }
}
