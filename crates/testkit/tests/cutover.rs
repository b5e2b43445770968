//! Cut-over and shadows on the pretend machine: histories from a seed in which the code of a worker is changed again and
//! again while runner and slots are killed at any change of a byte, and the power goes.
//!
//! What is checked: the output holds what was made of each message once, in order; below each boundary the code before
//! made it, from there on the code behind, and the boundary is the one that was said; what was said is never taken back.

use beamport_testkit::{Dice, Machine, PretendMedia};
use flow::{
    Data, Fault, Heard, Made, Outputs, Share, Slot, SlotOptions, Stepped, Stop, Work, WorkOptions, Worker, aside_of,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::{Batch, Drain, Level, Meta, Options, ReadOptions, Reader, SchemaId, Writer};

const INPUT: &str = "raw";
const STAGE: &str = "peaks";
const SEEDS: u64 = 300;
const POISON: &str = "poison";
/// In the place of which code made it: nobody did.
const SAME: u64 = u64::MAX;

fn makes(n: u64) -> u64 {
    [1, 1, 2, 0, 1, 1, 3][(n % 7) as usize]
}

fn passes(n: u64) -> bool {
    n % 11 == 4
}

fn kills(n: u64) -> bool {
    n % 43 == 9
}

/// User code, of a version: says what it made of which message.
struct Maker {
    version: u64,
    bytes: usize,
}

impl Worker for Maker {
    fn work(&mut self, batch: &Batch<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        for message in batch.iter().collect::<Vec<_>>() {
            if !out.wants(&message) {
                continue;
            }
            out.begin(&message);
            let n = u64::from_le_bytes(message.payload[..8].try_into().unwrap());
            if passes(n) {
                out.same(&message)?;
                continue;
            }
            for k in 0..makes(n) {
                let made = Made::of(message.entry, *b"made");
                let word = self.version * 10 + k;
                out.push(message.entry, &made, &[&n.to_le_bytes(), &word.to_le_bytes(), &vec![n as u8; self.bytes]])?;
            }
            if kills(n) {
                return Err(Fault::new(POISON, n).into());
            }
            out.done(&message);
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

fn code(version: u64) -> String {
    format!("{{\"call\":{version}}}")
}

fn version(code: &str) -> u64 {
    let value: serde_json::Value = serde_json::from_str(code).unwrap();
    value["call"].as_u64().unwrap()
}

/// How far a cut-over is.
#[derive(Clone, Copy, Debug)]
enum Cutting {
    No,
    Draining,
    Committing { block: u64, from: u64 },
    Replacing,
}

struct Running {
    process: Arc<PretendMedia>,
    slot: Slot,
    maker: Maker,
}

struct History {
    seed: u64,
    machine: Machine,
    dice: Dice,
    folder: &'static str,
    level: Level,
    options: WorkOptions,
    payload: usize,
    writer_process: Arc<PretendMedia>,
    writer: Option<Writer>,
    runner_process: Arc<PretendMedia>,
    runner: Option<Work>,
    slots: BTreeMap<u32, Running>,
    witness_process: Arc<PretendMedia>,
    witness: Option<Reader>,
    appended: u64,
    most: u64,
    /// Numbers of the messages of the input, by sequence.
    input: Vec<u64>,
    /// What the witness has read of the output: number and word.
    seen: Vec<(u64, u64)>,
    cutting: Cutting,
    /// From which sequence on which version made the output; what was answered stands for ever.
    boundaries: Vec<(u64, u64)>,
    answered: usize,
    tally: Tally,
    stopped_slots: u64,
    story: Vec<String>,
}

#[derive(Default, Debug)]
struct Tally {
    deaths: u64,
    slots_dead: u64,
    cuts: u64,
    cutovers: u64,
    /// That took effect, and nobody had said so.
    unsaid: u64,
    /// That were given up with the death of the runner.
    given_up: u64,
}

impl History {
    fn new(seed: u64) -> Self {
        let machine = Machine::new(seed);
        let mut dice = Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xc07);
        let level = dice.pick(&[Level::Memory, Level::Disk]);
        let slots = dice.range(1, 3) as u32;
        let options = WorkOptions {
            output: Options { level, ..Options::memory(1 << 20) },
            share: dice.pick(&[Share::Balance, Share::RoundRobin, Share::Key]),
            turn: if dice.one_in(3) { dice.range(1, 7) } else { 0 },
            keep_order: !dice.one_in(4),
            code: code(0),
            ..WorkOptions::memory(slots, 1 << 20)
        };
        let payload = dice.pick(&[0, 3000, 30_000]);
        let most = dice.range(60, if payload > 10_000 { 120 } else { 300 });
        Self {
            seed,
            dice,
            folder: if level == Level::Disk { "/disk/data" } else { "/live/data" },
            level,
            options,
            payload,
            writer_process: machine.start(),
            writer: None,
            runner_process: machine.start(),
            runner: None,
            slots: BTreeMap::new(),
            witness_process: machine.start(),
            witness: None,
            machine,
            appended: 0,
            most,
            input: Vec::new(),
            seen: Vec::new(),
            cutting: Cutting::No,
            boundaries: Vec::new(),
            answered: 0,
            tally: Tally::default(),
            stopped_slots: 0,
            story: Vec::new(),
        }
    }

    fn data(&self, process: &Arc<PretendMedia>) -> Data {
        Data { media: process.clone(), folder: self.folder.into(), drain: Drain::Caller }
    }

    fn say(&mut self, what: impl Into<String>) {
        self.story.push(what.into());
    }

    fn fail(&self, what: impl std::fmt::Display) -> ! {
        let last = self.story.len().saturating_sub(40);
        let there = format!("{} of {}, {} seen, {:?}", self.appended, self.most, self.seen.len(), self.cutting);
        panic!("seed {}: {what}\n{:?}\n{}\n{there}", self.seed, self.options, self.story[last..].join("\n"))
    }

    fn append(&mut self) {
        if self.writer.is_none() {
            let options = Options { level: self.level, ..Options::memory(1 << 20) };
            let mut writer = self.data(&self.writer_process).writer(INPUT, &options).unwrap_or_else(|e| self.fail(e));
            for name in ["a", "b"] {
                writer.origin(name).unwrap();
            }
            // What a power cut took back is said again under other sequences.
            self.input.truncate(writer.next_sequence() as usize);
            self.appended = self.input.len() as u64;
            self.writer = Some(writer);
        }
        let Some(writer) = &mut self.writer else { return };
        for _ in 0..self.dice.range(1, 12) {
            if self.appended == self.most {
                break;
            }
            let n = self.appended;
            let schema = SchemaId(*b"test");
            let meta = Meta { source_time: n as i64, origin: (n % 2) as u32, origin_seq: n / 2, schema, flags: 0 };
            match writer.push(&meta, &[&n.to_le_bytes(), &vec![n as u8; self.payload]]) {
                Ok(_) => {
                    self.appended += 1;
                    self.input.push(n);
                }
                Err(e) if e.is_full() => break,
                Err(e) => panic!("seed {}: {e}", self.seed),
            }
        }
        writer.publish();
        if self.level == Level::Disk {
            let _ = writer.drain();
        }
    }

    fn open_runner(&mut self) {
        if self.runner.is_some() || self.writer.is_none() {
            return;
        }
        let data = self.data(&self.runner_process);
        match Work::open(&data, STAGE, &[INPUT.into()], &self.options) {
            Ok(work) => {
                if self.witness.is_none() {
                    data.hold(STAGE, "witness", self.seen.len() as u64).unwrap_or_else(|e| self.fail(e));
                }
                self.say(format!("runner opens with {} since {}", work.code(), work.since()));
                let (now, last) = (version(work.code()), self.boundaries.last().map_or(0, |b| b.1));
                let since = work.since()[0]["sequence"].as_u64();
                if now < last || now > last + 1 {
                    self.fail(format!("code {now} where {last} was said"));
                }
                if now > last {
                    self.tally.unsaid += 1;
                    self.boundaries.push((since.unwrap(), now));
                    self.answered += 1;
                } else if let (Some(since), Some(known)) = (since, self.boundaries.last()) {
                    assert_eq!(since, known.0, "seed {}: since when", self.seed);
                }
                self.runner = Some(work);
            }
            Err(e) if e.to_string().contains("another process writes") => self.kill_slots(),
            Err(_) if self.machine.stopped() => self.kill_runner(),
            Err(e) => self.fail(e),
        }
    }

    /// What the mover does beside the steps.
    fn cut_over(&mut self) -> Result<(), Fault> {
        let Some(work) = &mut self.runner else { return Ok(()) };
        match self.cutting {
            Cutting::No => {}
            Cutting::Draining if !work.is_quiet() => {}
            Cutting::Draining => {
                let new = version(work.code()) + 1;
                let slots =
                    if self.options.share == Share::Balance { self.dice.range(1, 3) as u32 } else { work.slots() };
                let from = work.cut_over(&code(new), &format!("{{\"v\":{new}}}"), slots)?;
                let (block, from) = (work.change(), from[0].sequence);
                self.cutting = Cutting::Committing { block, from };
                self.say(format!("code {new} from {from} on, block {block}"));
            }
            Cutting::Committing { block, from } => {
                if work.is_safe(block) {
                    let now = version(work.code());
                    self.boundaries.push((from, now));
                    self.answered = self.boundaries.len();
                    self.tally.cutovers += 1;
                    self.cutting = Cutting::Replacing;
                    self.say(format!("said: code {now} from {from} on"));
                }
            }
            Cutting::Replacing => {
                self.kill_slots();
                if let Some(work) = &mut self.runner {
                    for number in 0..3 {
                        work.died(number, "killed", "replaced")?;
                    }
                    work.let_go(&[])?;
                    work.hold(false);
                }
                self.cutting = Cutting::No;
            }
        }
        Ok(())
    }

    fn step_runner(&mut self) {
        self.open_runner();
        let now = self.machine.now();
        let Some(work) = &mut self.runner else { return };
        let mut fault = work.step(now, &[Heard { frontier: now, ended: false }]).err();
        fault = fault.or(self.cut_over().err());
        let Some(work) = &mut self.runner else { return };
        let replaces = matches!(self.cutting, Cutting::Committing { .. } | Cutting::Replacing);
        let missing = (0..work.slots()).filter(|n| !replaces && !self.slots.contains_key(n)).collect::<Vec<u32>>();
        for number in missing {
            let Some(work) = &mut self.runner else { return };
            let process = self.machine.start();
            let from = work.ready(number, 0);
            let maker = Maker { version: version(work.code()), bytes: self.payload };
            fault = fault.or(work.greet(number).err());
            let options = SlotOptions {
                number,
                inputs: vec![INPUT.into()],
                stream: self.options.slot_options(),
                from,
                by_key: self.options.share == Share::Key,
            };
            let data = Data { media: process.clone(), folder: self.folder.into(), drain: Drain::Caller };
            if self.machine.stopped() {
                break;
            }
            match Slot::open(&data, STAGE, options) {
                Ok(slot) => drop(self.slots.insert(number, Running { process, slot, maker })),
                Err(_) if self.machine.stopped() => break,
                Err(e) => self.fail(format!("slot {number}: {e}")),
            }
        }
        if self.machine.stopped() {
            self.kill_runner();
        } else if let Some(fault) = fault {
            self.fail(fault);
        }
    }

    fn step_slot(&mut self) {
        let numbers: Vec<u32> = self.slots.keys().copied().collect();
        let Some(&number) = numbers.get(self.dice.below(numbers.len() as u64) as usize) else { return };
        let Some(running) = self.slots.get_mut(&number) else { return };
        let stepped = running.slot.step(&mut running.maker, &mut |_| false);
        if self.level == Level::Disk {
            let _ = running.slot.writer().drain();
        }
        match stepped {
            _ if self.machine.stopped() => {
                self.stopped_slots += 1;
                self.kill_slot(number, "stopped at a change");
            }
            Ok(Stepped::Worked | Stepped::Idle | Stepped::Full) => {}
            Ok(Stepped::Ended) => self.fail("a slot ended"),
            Err(e) if e.what == POISON => self.kill_slot(number, "poison"),
            Err(e) => self.fail(format!("slot {number}: {e}")),
        }
    }

    fn kill_slot(&mut self, number: u32, why: &str) {
        self.say(format!("slot {number} dies: {why}"));
        self.tally.slots_dead += 1;
        if let Some(Running { process, slot, .. }) = self.slots.remove(&number) {
            // SAFETY: all maps of this process are in the slot.
            unsafe { self.machine.kill(&process, slot) };
        }
        if let Some(work) = &mut self.runner {
            let told = work.died(number, "killed", why);
            told.unwrap_or_else(|e| self.fail(e));
        }
    }

    fn kill_slots(&mut self) {
        for (_, Running { process, slot, .. }) in std::mem::take(&mut self.slots) {
            // SAFETY: all maps of this process are in the slot.
            unsafe { self.machine.kill(&process, slot) };
        }
    }

    fn given_up(&mut self) {
        self.tally.given_up += u64::from(matches!(self.cutting, Cutting::Draining | Cutting::Committing { .. }));
        self.cutting = Cutting::No;
    }

    fn kill_runner(&mut self) {
        self.say("runner dies");
        self.tally.deaths += 1;
        self.given_up();
        // SAFETY: all maps of this process are in the runner.
        unsafe { self.machine.kill(&self.runner_process, self.runner.take()) };
        self.runner_process = self.machine.start();
        // Slots may live on for a while.
        if !self.dice.one_in(3) {
            self.kill_slots();
        }
    }

    fn cut(&mut self) {
        self.say("power cut");
        self.tally.cuts += 1;
        self.given_up();
        let slots: Vec<Slot> = std::mem::take(&mut self.slots).into_values().map(|r| r.slot).collect();
        // SAFETY: all maps of all processes are in these.
        unsafe { self.machine.power_cut((self.runner.take(), self.writer.take(), self.witness.take(), slots)) };
        self.runner_process = self.machine.start();
        self.writer_process = self.machine.start();
        self.witness_process = self.machine.start();
    }

    /// A reader of the output, which holds it back.
    fn witness(&mut self) {
        if self.runner.is_none() {
            return;
        }
        let data = self.data(&self.witness_process);
        if self.witness.is_none() {
            let options = ReadOptions { name: "witness".into(), kind: store::Kind::Counted, ..ReadOptions::default() };
            self.witness = Some(data.reader(STAGE, options).unwrap_or_else(|e| self.fail(e)));
        }
        let Some(reader) = &mut self.witness else { return };
        reader.seek(self.seen.len() as u64);
        let _ = reader.look_again();
        loop {
            let batch = match reader.read(64) {
                Ok(batch) => batch,
                Err(e) => panic!("seed {}: the output cannot be read: {e}", self.seed),
            };
            if batch.is_empty() {
                break;
            }
            for message in batch.iter() {
                let word = |at: usize| u64::from_le_bytes(message.payload[at..at + 8].try_into().unwrap());
                let is_same = message.entry.schema == SchemaId(*b"test");
                self.seen.push((word(0), if is_same { SAME } else { word(8) }));
            }
        }
        reader.commit(self.seen.len() as u64);
    }

    fn run(mut self) -> Tally {
        self.append();
        // From here on the input waits for it.
        self.open_runner();
        for _ in 0..self.dice.range(150, 400) {
            self.machine.advance(1_000_000);
            // Where the commit is made that says so, more often.
            let commits = matches!(self.cutting, Cutting::Committing { .. });
            let may_stop = self.dice.one_in(if commits { 2 } else { 12 });
            let changes = self.dice.below(60);
            match self.dice.below(20) {
                0..=3 => self.append(),
                4..=9 => {
                    if may_stop && self.runner.is_some() {
                        self.machine.stop_after(Some(changes));
                    }
                    self.step_runner();
                }
                10..=16 => {
                    if may_stop {
                        self.machine.stop_after(Some(changes));
                    }
                    self.step_slot();
                }
                17..=18 => self.witness(),
                _ => match self.dice.below(8) {
                    0 if self.runner.is_some() => self.kill_runner(),
                    1 => {
                        let numbers: Vec<u32> = self.slots.keys().copied().collect();
                        if let Some(number) = numbers.get(self.dice.below(numbers.len() as u64) as usize).copied() {
                            self.kill_slot(number, "at random");
                        }
                    }
                    2 if self.level == Level::Disk => self.cut(),
                    3..=7 if matches!(self.cutting, Cutting::No) => {
                        if let Some(work) = &mut self.runner {
                            work.hold(true);
                            self.cutting = Cutting::Draining;
                        }
                    }
                    _ => {}
                },
            }
            self.machine.stop_after(None);
        }
        // No more faults, but for those that messages are.
        for turn in 0..20_000 {
            self.machine.advance(1_000_000);
            self.append();
            self.step_runner();
            for _ in 0..self.slots.len() {
                self.step_slot();
            }
            self.witness();
            let is_idle = self.runner.as_ref().is_some_and(Work::is_idle) && matches!(self.cutting, Cutting::No);
            if self.appended == self.most && is_idle {
                break;
            }
            if turn == 19_999 {
                self.fail("it does not come to its end");
            }
        }
        self.witness();
        self.check()
    }

    fn check(mut self) -> Tally {
        let data = self.data(&self.witness_process);
        let mut killed = BTreeSet::new();
        for bytes in data.book_messages(&aside_of(STAGE)).unwrap_or_default() {
            let aside = flow::records::Apart::read(&bytes).unwrap();
            let n = self.input[aside.sequence as usize];
            // Stopped twice at any change of a byte while user code was at it, it is taken for one that kills.
            assert!(killed.insert(aside.sequence) && (kills(n) && !passes(n) || self.stopped_slots >= 2));
        }
        let mut expected = Vec::new();
        for (sequence, n) in (0_u64..).zip(&self.input) {
            if killed.contains(&sequence) {
                continue;
            }
            assert!(!kills(*n) || passes(*n), "seed {}: {n} is not aside", self.seed);
            let version = self.boundaries.iter().rev().find(|b| b.0 <= sequence).map_or(0, |b| b.1);
            match passes(*n) {
                true => expected.push((*n, SAME)),
                false => expected.extend((0..makes(*n)).map(|k| (*n, version * 10 + k))),
            }
        }
        let mut seen = self.seen.clone();
        if !self.options.keep_order {
            // Blocks come as they come, but not across a boundary.
            let bounds: Vec<u64> = self.boundaries.iter().map(|b| b.0).collect();
            let place = |n: u64| bounds.iter().filter(|b| self.input[..**b as usize].contains(&n)).count();
            let places: Vec<usize> = seen.iter().map(|s| bounds.len() - place(s.0)).collect();
            assert!(places.is_sorted(), "seed {}: messages stand behind a boundary that are before it", self.seed);
            seen.sort_unstable();
            expected.sort_unstable();
        }
        if seen != expected {
            let at = seen.iter().zip(&expected).position(|(a, b)| a != b).unwrap_or(seen.len().min(expected.len()));
            let near = |all: &[(u64, u64)]| format!("{:?}", &all[at.saturating_sub(3)..(at + 6).min(all.len())]);
            let (s, e) = (near(&seen), near(&expected));
            let count = format!("{} where {} were to be", seen.len(), expected.len());
            self.fail(format!("output of {count}, at {at}: {s} for {e}; boundaries {:?}", self.boundaries));
        }
        let row = flow::ledger::stage(&data, STAGE).unwrap().remove(0);
        if !row.closed || row.held > 0 || row.read != self.input.len() as u64 {
            self.fail(format!("the ledger says {row:?}"));
        }
        self.kill_slots();
        self.tally
    }
}

#[test]
fn whatever_dies_the_output_changes_its_maker_at_the_message_that_was_said() {
    let seeds = match std::env::var("BEAMPORT_SEED").map(|seed| seed.parse::<u64>()) {
        Ok(Ok(seed)) => seed..seed + 1,
        _ => 0..SEEDS,
    };
    let is_one = seeds.end - seeds.start == 1;
    let sum = histories(seeds);
    println!(
        "cut-overs: injected {} deaths of runners, {} of slots, {} power cuts: {sum:?}",
        sum.deaths, sum.slots_dead, sum.cuts
    );
    let is_enough = sum.cutovers > SEEDS && sum.unsaid > 5 && sum.given_up > SEEDS / 4 && sum.cuts > SEEDS / 4;
    assert!(is_one || is_enough, "{sum:?}");
}

#[test]
#[ignore = "full counts: cargo xtask soak"]
fn soak_cutovers() {
    let sum = histories(0..20_000);
    println!(
        "histories of cut-overs: injected {} deaths of runners, {} of slots, {} power cuts into 20000: {} cut-overs, {} \
         nobody had said, {} given up, 0 messages lost, 0 twice, 0 by the wrong code",
        sum.deaths, sum.slots_dead, sum.cuts, sum.cutovers, sum.unsaid, sum.given_up
    );
}

fn histories(seeds: std::ops::Range<u64>) -> Tally {
    let mut sum = Tally::default();
    for seed in seeds {
        let tally = History::new(seed).run();
        sum.deaths += tally.deaths;
        sum.slots_dead += tally.slots_dead;
        sum.cuts += tally.cuts;
        sum.cutovers += tally.cutovers;
        sum.unsaid += tally.unsaid;
        sum.given_up += tally.given_up;
    }
    sum
}

/// A worker with one slot of a version, in memory.
struct Alone {
    work: Work,
    slot: Slot,
    maker: Maker,
}

impl Alone {
    fn open(data: &Data, stage: &str, options: &WorkOptions) -> Self {
        let mut work = Work::open(data, stage, &[INPUT.into()], options).unwrap();
        let from = work.ready(0, 0);
        let inputs = vec![INPUT.into()];
        let slot = SlotOptions { number: 0, inputs, stream: options.slot_options(), from, by_key: false };
        let slot = Slot::open(data, stage, slot).unwrap();
        work.greet(0).unwrap();
        Self { work, slot, maker: Maker { version: 1, bytes: 0 } }
    }

    fn step(&mut self, machine: &Machine) {
        machine.advance(1_000_000);
        self.work.step(machine.now(), &[Heard { frontier: 0, ended: false }]).unwrap();
        while self.slot.step(&mut self.maker, &mut |_| false).unwrap() == Stepped::Worked {}
        self.work.step(machine.now(), &[Heard { frontier: 0, ended: false }]).unwrap();
    }
}

#[test]
fn a_shadow_begins_where_the_other_stands_and_what_it_was_too_slow_for_is_skipped() {
    let machine = Machine::new(3);
    let data = Data { media: machine.start(), folder: "/live/data".into(), drain: Drain::Caller };
    let mut writer = data.writer(INPUT, &Options::memory(1 << 20)).unwrap();
    let origin = writer.origin("a").unwrap();
    // One that neither passes, nor kills, and makes one.
    let n = 1_u64;
    let mut appended = 0;
    let mut append = |messages: u64| {
        for _ in 0..messages {
            let schema = SchemaId(*b"test");
            let meta = Meta { source_time: 0, origin, origin_seq: appended, schema, flags: 0 };
            match writer.append(&meta, &[&n.to_le_bytes()[..], &[0; 3000]].concat()) {
                Ok(_) => appended += 1,
                Err(e) if e.is_full() => return appended,
                Err(e) => panic!("{e}"),
            }
        }
        appended
    };
    let old = WorkOptions::memory(1, 1 << 20);
    let new = WorkOptions { shadow: Some("old".into()), ..old.clone() };
    append(30);
    let mut first = Alone::open(&data, "old", &old);
    while first.work.accounts().next().unwrap().next < 30 {
        first.step(&machine);
    }
    let mut second = Alone::open(&data, "new", &new);
    assert_eq!(second.work.accounts().next().unwrap().first, 30);
    assert_eq!(flow::WorkerNow::newest(&data, "old").unwrap().unwrap().shadow, None);
    append(10);
    for _ in 0..20 {
        first.step(&machine);
        second.step(&machine);
    }
    assert_eq!(second.work.accounts().next().unwrap().done, 10);
    assert_eq!(flow::WorkerNow::newest(&data, "new").unwrap().unwrap().shadow.as_deref(), Some("old"));
    // Only the first goes on: the input does not wait for the other.
    let mut all = 40;
    while all < 3000 {
        let now = append(50);
        assert!(now > all, "the input waits for a shadow");
        all = now;
        while first.work.accounts().next().unwrap().next < all {
            first.step(&machine);
        }
    }
    while second.work.accounts().next().unwrap().next < all {
        second.step(&machine);
    }
    let account = second.work.accounts().next().unwrap().clone();
    let slow = account.counts["skipped.slow"];
    assert!(slow > 2000, "{account:?}");
    assert_eq!(account.done + slow, all - 30, "{account:?}");
    assert!(account.counts.keys().all(|name| !name.starts_with("lost")), "{account:?}");
    let row = flow::ledger::stage(&data, "new").unwrap().remove(0);
    assert!(row.closed && row.lost.is_empty() && row.skipped["slow"] == slow, "{row:?}");
    // The worker itself was given all.
    assert_eq!(first.work.accounts().next().unwrap().done, all);
}
