//! A history of a worker from a seed: a source that appends, a runner, slots, and a witness who reads the output, each a
//! process of its own; what may happen to them, and the calm behind it in which all comes to its end.

use beamport_testkit::{Counts, Dice, Machine, PretendMedia, Slots};
use flow::{Data, Fault, SlotEnd, Stepped, UpstreamState, Work, WorkOptions, Worker};
use std::collections::BTreeSet;
use std::sync::Arc;
use store::{Drain, Level, Meta, Options, ReadOptions, Reader, SchemaId, Writer, flags};

pub(crate) const INPUT: &str = "raw";
pub(crate) const STAGE: &str = "peaks";
pub(crate) const ORIGINS: [&str; 3] = ["a", "b", "c"];
/// The error of a slot at a message that kills it.
pub(crate) const POISON: &str = "poison";
/// In the place of the number that code gives its results: the message is unchanged.
pub(crate) const SAME: u64 = u64::MAX;

/// The parts that histories of one kind add to those of any worker.
pub(crate) trait Kind: Sized {
    /// Code of a slot.
    type Code: Worker;

    /// The code of a slot that starts, which makes messages of so many bytes.
    fn code(work: &Work, bytes: usize) -> Self::Code;

    /// How often a slot that has no room tries again.
    fn tries(_history: &mut History<Self>) -> i64 {
        0
    }

    /// One change in so many steps of runner and slots is the last of its process.
    fn stops_one_in(&self) -> u64 {
        12
    }

    /// The runner is open.
    fn opened(_history: &mut History<Self>) {}

    /// Other work of the mover at a step of the runner.
    fn beside(_history: &mut History<Self>) -> Result<(), Fault> {
        Ok(())
    }

    /// Slots that do not live start.
    fn starts_slots(&self) -> bool {
        true
    }

    /// The runner is gone.
    fn runner_gone(&mut self) {}

    /// Something happens, one of eight things: a death, or what else there is.
    fn happens(history: &mut History<Self>, what: u64);

    /// Nothing is under way.
    fn rests(&self) -> bool {
        true
    }
}

/// One history.
pub(crate) struct History<K: Kind> {
    pub(crate) kind: K,
    pub(crate) seed: u64,
    machine: Machine,
    pub(crate) dice: Dice,
    folder: &'static str,
    pub(crate) level: Level,
    pub(crate) options: WorkOptions,
    pub(crate) payload: usize,
    writer_process: Arc<PretendMedia>,
    writer: Option<Writer>,
    runner_process: Arc<PretendMedia>,
    pub(crate) runner: Option<Work>,
    slots: Slots<K::Code>,
    /// Slots that were told to end.
    stopping: BTreeSet<u32>,
    witness_process: Arc<PretendMedia>,
    witness: Option<Reader>,
    /// Messages that were appended, and how many of them.
    appended: u64,
    most: u64,
    /// Numbers of the messages of the input, by sequence: a power cut takes some back.
    pub(crate) input: Vec<u64>,
    /// What the witness has read of the output: of which message, and what code says.
    pub(crate) seen: Vec<(u64, u64)>,
    pub(crate) deaths: u64,
    pub(crate) slots_dead: u64,
    pub(crate) cuts: u64,
    /// Slots stopped in user code.
    pub(crate) stopped_slots: u64,
    story: Vec<String>,
}

impl<K: Kind> History<K> {
    /// A history with up to `most` messages of `payload` bytes.
    pub(crate) fn new(seed: u64, mut dice: Dice, options: WorkOptions, payload: usize, kind: K) -> Self {
        let machine = Machine::new(seed);
        let level = options.output.level;
        let folder = if level == Level::Disk { "/disk/data" } else { "/live/data" };
        let most = dice.range(50, if payload > 10_000 { 120 } else { 300 });
        Self {
            kind,
            seed,
            dice,
            folder,
            level,
            options,
            payload,
            writer_process: machine.start(),
            writer: None,
            runner_process: machine.start(),
            runner: None,
            slots: Slots::new(folder, STAGE, &[INPUT]),
            stopping: BTreeSet::new(),
            witness_process: machine.start(),
            witness: None,
            machine,
            appended: 0,
            most,
            input: Vec::new(),
            seen: Vec::new(),
            deaths: 0,
            slots_dead: 0,
            cuts: 0,
            stopped_slots: 0,
            story: Vec::new(),
        }
    }

    fn data(&self, process: &Arc<PretendMedia>) -> Data {
        Data { media: process.clone(), folder: self.folder.into(), drain: Drain::Caller }
    }

    /// The data folder as somebody else sees it.
    pub(crate) fn witnessed(&self) -> Data {
        self.data(&self.witness_process)
    }

    pub(crate) fn say(&mut self, what: impl Into<String>) {
        let what = what.into();
        if std::env::var_os("BEAMPORT_SEED").is_some() {
            println!("{what}");
        }
        self.story.push(what);
    }

    pub(crate) fn fail(&self, what: impl std::fmt::Display) -> ! {
        let last = self.story.len().saturating_sub(40);
        let (states, accounts) = match &self.runner {
            Some(work) => (work.states(), work.accounts().cloned().collect()),
            None => (Vec::new(), Vec::new()),
        };
        let there = format!("{} of {}, {} seen, {states:?}, {accounts:?}", self.appended, self.most, self.seen.len());
        panic!("seed {}: {what}\n{:?}\n{}\n{there}", self.seed, self.options, self.story[last..].join("\n"))
    }

    /// The source: appends what there is room for.
    fn append(&mut self) {
        if self.writer.is_none() {
            let options = Options { level: self.level, ..Options::memory(1 << 20) };
            let mut writer = self.data(&self.writer_process).writer(INPUT, &options).unwrap_or_else(|e| self.fail(e));
            for name in ORIGINS {
                writer.origin(name).unwrap();
            }
            // Messages that a power cut removed are appended again, in another epoch.
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
            // Of another host's blocks some have one message.
            let begins = self.options.by_blocks && n % 11 < 2;
            let flags = if begins { flags::BLOCK } else { 0 };
            let meta = Meta { source_time: n as i64, origin: (n % 3) as u32, origin_seq: n / 3, schema, flags };
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
        // An earlier mover's slots are gone with it, or it waits for them.
        match Work::open(&data, STAGE, &[INPUT.into()], &self.options) {
            Ok(work) => {
                if self.witness.is_none() {
                    data.hold(STAGE, "witness", self.seen.len() as u64).unwrap_or_else(|e| self.fail(e));
                }
                self.say("runner opens");
                self.runner = Some(work);
                K::opened(self);
            }
            Err(e) if e.to_string().contains("another process writes") => self.kill_slots(),
            Err(_) if self.machine.stopped() => self.kill_runner(),
            Err(e) => self.fail(e),
        }
    }

    fn step_runner(&mut self) {
        self.open_runner();
        let now = self.machine.now();
        let Some(work) = &mut self.runner else { return };
        let mut fault =
            work.step(now, &[UpstreamState { frontier: now, ended: false, ..UpstreamState::NOTHING }]).err();
        fault = fault.or(K::beside(self).err());
        if self.kind.starts_slots() {
            fault = fault.or(self.start_slots().err());
        }
        if self.machine.stopped() {
            self.kill_runner();
        } else if let Some(fault) = fault {
            self.fail(fault);
        }
    }

    fn start_slots(&mut self) -> Result<(), Fault> {
        let Some(work) = &mut self.runner else { return Ok(()) };
        for one in self.slots.send_parameters(work)? {
            let code = K::code(work, self.payload);
            self.slots.start(&self.machine, one, &self.options, |_| Ok(code))?;
        }
        Ok(())
    }

    fn step_slot(&mut self) {
        let numbers = self.slots.numbers();
        let Some(&number) = numbers.get(self.dice.below(numbers.len() as u64) as usize) else { return };
        // Some wait for a while before they begin a message anew.
        let mut tries = K::tries(self);
        let stepped = self.slots.step(number, &mut |_| {
            tries -= 1;
            tries > 0
        });
        if std::env::var_os("BEAMPORT_SEED").is_some() {
            println!("slot {number}: {stepped:?}");
        }
        match stepped {
            _ if self.machine.stopped() => {
                self.stopped_slots += 1;
                self.kill_slot(number, "stopped at a change");
            }
            Ok(Stepped::Worked | Stepped::Idle | Stepped::Full) => {}
            Ok(Stepped::Ended) if self.stopping.contains(&number) => self.kill_slot(number, "told to end"),
            Ok(Stepped::Ended) => self.fail("a slot ended"),
            Err(e) if e.what == POISON => self.kill_slot(number, "poison"),
            Err(e) => self.fail(format!("slot {number}: {e}")),
        }
    }

    fn kill_slot(&mut self, number: u32, why: &str) {
        self.say(format!("slot {number} dies: {why}"));
        self.slots_dead += 1;
        self.stopping.remove(&number);
        self.slots.kill(&self.machine, number);
        if let Some(work) = &mut self.runner {
            let told = work.died(number, SlotEnd::Killed, why);
            told.unwrap_or_else(|e| self.fail(e));
        }
    }

    pub(crate) fn kill_some_slot(&mut self) {
        let numbers = self.slots.numbers();
        if let Some(number) = numbers.get(self.dice.below(numbers.len() as u64) as usize) {
            self.kill_slot(*number, "at random");
        }
    }

    pub(crate) fn kill_slots(&mut self) {
        self.stopping.clear();
        self.slots.kill_all(&self.machine);
    }

    /// Another number of slots, while it runs.
    pub(crate) fn change_slots(&mut self, slots: u32) {
        self.say(format!("{slots} slots"));
        let Some(work) = &mut self.runner else { return };
        let before = work.slots();
        work.set_slots(slots).and_then(|()| (slots..before).try_for_each(|slot| work.stop(slot))).unwrap();
        self.stopping.extend((slots..before).filter(|slot| self.slots.numbers().contains(slot)));
    }

    pub(crate) fn kill_runner(&mut self) {
        self.say("runner dies");
        self.deaths += 1;
        self.kind.runner_gone();
        // SAFETY: all maps of this process are in the runner.
        unsafe { self.machine.kill(&self.runner_process, self.runner.take()) };
        self.runner_process = self.machine.start();
        // Slots may live on for a while.
        if !self.dice.one_in(3) {
            self.kill_slots();
        }
    }

    pub(crate) fn cut(&mut self) {
        self.say("power cut");
        self.cuts += 1;
        self.stopping.clear();
        self.kind.runner_gone();
        let held = (self.runner.take(), self.writer.take(), self.witness.take(), self.slots.take());
        // SAFETY: all maps of all processes are in these.
        unsafe { self.machine.power_cut(held) };
        self.runner_process = self.machine.start();
        self.writer_process = self.machine.start();
        self.witness_process = self.machine.start();
    }

    /// A reader of the output, which holds it back.
    fn witness(&mut self) {
        if self.runner.is_none() {
            return;
        }
        if self.witness.is_none() {
            let options = ReadOptions { name: "witness".into(), kind: store::Kind::Counted, ..ReadOptions::default() };
            self.witness = Some(self.witnessed().reader(STAGE, options).unwrap_or_else(|e| self.fail(e)));
        }
        let Some(mut reader) = self.witness.take() else { return };
        reader.seek(self.seen.len() as u64);
        let _ = reader.reattach();
        loop {
            let batch = match reader.read(64) {
                Ok(batch) => batch,
                Err(e) => self.fail(format!("the output cannot be read at {}: {e}", self.seen.len())),
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
        self.witness = Some(reader);
    }

    /// Lives it to its end.
    pub(crate) fn live(&mut self) {
        self.append();
        // From here on the input waits for it.
        self.open_runner();
        for _ in 0..self.dice.range(100, 400) {
            self.machine.advance(1_000_000);
            let may_stop = self.dice.one_in(self.kind.stops_one_in());
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
                _ => {
                    let what = self.dice.below(8);
                    K::happens(self, what);
                }
            }
            self.machine.stop_after(None);
        }
        // No more faults, but for those that messages are.
        for turn in 0..20_000 {
            self.machine.advance(1_000_000);
            self.append();
            self.step_runner();
            for _ in 0..self.slots.numbers().len() {
                self.step_slot();
            }
            self.witness();
            if self.appended == self.most && self.kind.rests() && self.runner.as_ref().is_some_and(Work::is_idle) {
                break;
            }
            if turn == 19_999 {
                self.fail("it does not come to its end");
            }
        }
        self.witness();
    }

    /// The output is what was to be: in order, or where that is not kept, sorted.
    pub(crate) fn check_output(&self, mut expected: Vec<(u64, u64)>) {
        let mut seen = self.seen.clone();
        if !self.options.keep_order {
            // Blocks come as they come; each message is complete.
            seen.sort_unstable();
            expected.sort_unstable();
        }
        if seen != expected {
            let at = seen.iter().zip(&expected).position(|(a, b)| a != b).unwrap_or(seen.len().min(expected.len()));
            let near = |all: &[(u64, u64)]| format!("{:?}", &all[at.saturating_sub(3)..(at + 6).min(all.len())]);
            let (s, e) = (near(&seen), near(&expected));
            self.fail(format!("output of {} where {} were to be, at {at}: {s} for {e}", seen.len(), expected.len()));
        }
    }

    /// The counts of every kind.
    pub(crate) fn counts(&self) -> Counts {
        [("deaths", self.deaths), ("slots", self.slots_dead), ("cuts", self.cuts)].into()
    }
}
