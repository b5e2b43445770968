//! Workers and their slots on the pretend machine: histories from a seed (`work/history.rs`) in which runner and slots are
//! killed at any change of a byte, messages kill whoever looks at them, streams are small and full, and the power goes. With
//! code that is changed meanwhile: `work/cutover.rs`.
//!
//! What is checked: the output holds what was made of each message once, in order; nothing that was shown is taken back;
//! what could not be handled is aside, once; the account closes.

mod cutover;
mod history;
mod slots;

use beamport_testkit::{Counts, Dice, Machine, PretendMedia, Slots, histories};
use flow::{
    Data, Fault, Made, Outputs, Share, Slot, SlotEnd, SlotOptions, Stepped, Stop, UpstreamState, Work, WorkOptions,
    Worker, aside_of, commits_of,
};
use history::{History, INPUT, Kind, POISON, SAME, STAGE};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::{Batch, Drain, Level, Meta, Options, SchemaId};

const SEEDS: u64 = 400;

/// The fate of message `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nature {
    Makes(u64),
    /// It goes on as it is.
    Same,
    Filtered,
    Aside,
    Kills,
}

fn nature(n: u64) -> Nature {
    match n {
        n if n % 17 == 5 => Nature::Aside,
        n if n % 41 == 7 => Nature::Kills,
        n if n % 5 == 2 => Nature::Filtered,
        n if n % 7 < 3 => Nature::Same,
        n => Nature::Makes(n % 4),
    }
}

/// User code: reports what it made of which message, and crashes on some.
struct Maker {
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
            let made = Made::of(message.entry, *b"made");
            let make = |out: &mut Outputs<'_>, k: u64| {
                let parts = [&n.to_le_bytes()[..], &k.to_le_bytes(), &vec![n as u8; self.bytes]];
                out.push(message.entry, &made, &parts)
            };
            match nature(n) {
                Nature::Makes(count) => {
                    for k in 0..count {
                        make(out, k)?;
                    }
                    out.done(&message);
                }
                Nature::Filtered => out.filtered(&message),
                Nature::Same => out.same(&message)?,
                Nature::Aside => {
                    make(out, 0)?;
                    out.aside(&message, "error", "as it was to be")?;
                }
                Nature::Kills => {
                    make(out, 0)?;
                    return Err(Fault::new(POISON, n).into());
                }
            }
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

/// Any worker: its slots are as many as they are, now and then others.
#[derive(Default)]
struct Any {
    changes: u64,
}

impl Kind for Any {
    type Code = Maker;

    fn code(_work: &Work, bytes: usize) -> Maker {
        Maker { bytes }
    }

    fn tries(history: &mut History<Self>) -> i64 {
        history.dice.below(3) as i64
    }

    fn happens(history: &mut History<Self>, what: u64) {
        match what {
            0..=1 if history.runner.is_some() => history.kill_runner(),
            2..=4 => history.kill_some_slot(),
            5 if history.level == Level::Disk => history.cut(),
            // How often a message is done follows from the number of slots elsewhere.
            6 if history.options.share == Share::Balance && history.options.set == 1 && history.runner.is_some() => {
                history.kind.changes += 1;
                let slots = history.dice.range(1, 5) as u32;
                history.change_slots(slots);
            }
            _ => {}
        }
    }
}

/// One history of any worker, from its seed.
fn of_any(seed: u64) -> Counts {
    let mut dice = Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let level = dice.pick(&[Level::Memory, Level::Disk]);
    let slots = dice.range(1, 4) as u32;
    let options = WorkOptions {
        output: Options { level, ..Options::memory(1 << 20) },
        share: dice.pick(&[Share::Balance, Share::Balance, Share::RoundRobin, Share::All, Share::Key]),
        set: if slots.is_multiple_of(2) && dice.one_in(3) { 2 } else { 1 },
        turn: if dice.one_in(3) { dice.range(1, 7) } else { 0 },
        keep_order: !dice.one_in(4),
        ..WorkOptions::memory(slots, 1 << 20)
    };
    let by_blocks = level == Level::Memory && options.keep_order && options.share == Share::Balance && dice.one_in(2);
    let options = WorkOptions { by_blocks, ..options };
    // Large ones fill the rings, which turn many times.
    let payload = dice.pick(&[0, 0, 3000, 40_000]);
    let mut history = History::new(seed, dice, options, payload, Any::default());
    history.live();
    history.check()
}

impl History<Any> {
    fn check(mut self) -> Counts {
        let copies = match self.options.share {
            Share::All => u64::from(self.options.slots),
            Share::Key => 1,
            _ => u64::from(self.options.set),
        };
        let data = self.witnessed();
        let (mut found, mut blamed) = (Vec::new(), 0);
        for bytes in data.book_messages(&aside_of(STAGE)).unwrap_or_default() {
            let aside = flow::records::Apart::read(&bytes).unwrap();
            found.push((aside.sequence, aside.reason));
            let n = u64::from_le_bytes(aside.payload[..8].try_into().unwrap());
            assert_eq!(n, self.input[aside.sequence as usize]);
        }
        found.sort();
        let mut expected = Vec::new();
        let mut apart = BTreeSet::new();
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for (sequence, n) in (0_u64..).zip(&self.input) {
            let is_killed = found.binary_search(&(sequence, "killed".to_owned())).is_ok();
            match nature(*n) {
                // Stopped twice at any change of a byte while user code was at it, it is taken for one that kills.
                nature if is_killed && nature != Nature::Kills && self.stopped_slots >= 2 => {
                    blamed += 1;
                    *counts.entry("aside.killed").or_default() += 1;
                    apart.insert((sequence, "killed".to_owned()));
                }
                Nature::Makes(count) => {
                    *counts.entry("done").or_default() += 1;
                    for _ in 0..copies {
                        expected.extend((0..count).map(|k| (*n, k)));
                    }
                }
                Nature::Same => {
                    *counts.entry("done").or_default() += 1;
                    expected.extend((0..copies).map(|_| (*n, SAME)));
                }
                Nature::Filtered => *counts.entry("skipped.filtered").or_default() += 1,
                Nature::Aside => {
                    *counts.entry("aside.error").or_default() += 1;
                    apart.insert((sequence, "error".to_owned()));
                }
                Nature::Kills => {
                    *counts.entry("aside.killed").or_default() += 1;
                    apart.insert((sequence, "killed".to_owned()));
                }
            }
        }
        self.check_output(expected);
        let account = self.runner.as_ref().unwrap().accounts().next().unwrap().clone();
        let mut entered: BTreeMap<&str, u64> = account.counts.iter().map(|(k, v)| (k.as_str(), *v)).collect();
        entered.insert("done", account.done);
        entered.retain(|_, value| *value > 0);
        counts.retain(|_, value| *value > 0);
        if entered != counts || account.next != self.input.len() as u64 {
            self.fail(format!("the account is {entered:?} to {}, not {counts:?}", account.next));
        }
        let row = flow::ledger::stage(&data, STAGE).unwrap().remove(0);
        if !row.closed || row.held > 0 || row.done != account.done || row.read != self.input.len() as u64 {
            self.fail(format!("the ledger says {row:?} of {account:?}"));
        }
        if found != apart.iter().cloned().collect::<Vec<_>>() {
            self.fail(format!("aside are {found:?}, not {apart:?}"));
        }
        let blocks = self.check_blocks(&data);
        self.kill_slots();
        let mut counts = self.counts();
        counts += [
            ("messages", self.input.len() as u64),
            ("made", self.seen.len() as u64),
            ("aside", apart.len() as u64),
            ("changes", self.kind.changes),
            ("blamed", blamed),
            ("blocks", blocks),
        ]
        .into();
        counts
    }

    /// No commit is of messages of two blocks of another host; how many blocks end with one.
    fn check_blocks(&self, data: &Data) -> u64 {
        if !self.options.by_blocks {
            return 0;
        }
        let read = |bytes: Vec<u8>| flow::records::Commit::read(&bytes).unwrap().inputs[0].next;
        let ends: Vec<u64> = data.book_messages(&commits_of(STAGE)).unwrap().into_iter().map(read).collect();
        let begins = (0_u64..).zip(&self.input).filter(|(_, n)| **n % 11 < 2).map(|(sequence, _)| sequence);
        let begins: Vec<u64> = begins.collect();
        for pair in ends.windows(2) {
            if let Some(within) = begins.iter().find(|begin| pair[0] < **begin && **begin < pair[1]) {
                self.fail(format!("a commit goes from {} to {}, and a block begins with {within}", pair[0], pair[1]));
            }
        }
        begins.iter().filter(|begin| ends.contains(begin)).count() as u64
    }
}

/// Lets everything go on as it is.
struct Passes;

impl Worker for Passes {
    fn work(&mut self, batch: &Batch<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        for message in batch.iter() {
            out.begin(&message);
            out.same(&message)?;
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

#[test]
fn what_a_slot_let_pass_and_retention_took_before_it_was_shown_is_lost_once() {
    let machine = Machine::new(7);
    let process = machine.start();
    let data = Data { media: process, folder: "/live/data".into(), drain: Drain::Caller };
    let input = Options { when_full: store::WhenFull::DropOldest, ..Options::memory(1 << 20) };
    let mut writer = data.writer(INPUT, &input).unwrap();
    let origin = writer.origin("a").unwrap();
    let meta = Meta { source_time: 0, origin, origin_seq: 0, schema: SchemaId(*b"test"), flags: 0 };
    let options = WorkOptions { turn: 8, ..WorkOptions::memory(1, 1 << 20) };
    let mut work = Work::open(&data, STAGE, &[INPUT.into()], &options).unwrap();
    let from = work.ready(0, 0);
    let inputs = vec![INPUT.into()];
    let slot = SlotOptions { number: 0, inputs, stream: options.slot_options(), from, by_key: false };
    let mut slot = Slot::open(&data, STAGE, slot).unwrap();
    work.send_parameters(0).unwrap();
    let heard = [UpstreamState { frontier: 0, ended: false, ..UpstreamState::NOTHING }];
    let mut rounds = |work: &mut Work, all: u64| {
        while slot.step(&mut Passes, &mut |_| false).unwrap() == Stepped::Worked {}
        for _ in 0..if all == 0 { 1 } else { 10_000 } {
            machine.advance(1_000_000);
            work.step(machine.now(), &heard).unwrap();
            while all > 0 && slot.step(&mut Passes, &mut |_| false).unwrap() == Stepped::Worked {}
            if work.accounts().all(|input| input.next == all) {
                break;
            }
        }
    };
    for _ in 0..30 {
        writer.append(&meta, &[1; 3000]).unwrap();
    }
    rounds(&mut work, 0);
    // The slot has tasks, and now does them; then its answers are overtaken.
    rounds(&mut work, 0);
    for _ in 0..2000 {
        writer.append(&meta, &[2; 3000]).unwrap();
    }
    rounds(&mut work, 2030);
    let account = work.accounts().next().unwrap().clone();
    let lost = account.counts["lost.full"];
    assert!(lost >= 1600 && account.done >= 16, "{account:?}");
    assert_eq!((account.next, account.done + lost), (2030, 2030), "{account:?}");
    assert_eq!(work.writer().next_sequence(), account.done);
}

/// Its results depend on earlier messages; for one of them there is no room at first.
struct InOrder {
    began: Vec<u64>,
    no_room_for: Option<u64>,
}

impl Worker for InOrder {
    fn work(&mut self, batch: &Batch<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        for message in batch.iter() {
            out.begin(&message);
            self.began.push(message.sequence);
            if self.no_room_for == Some(message.sequence) {
                self.no_room_for = None;
                return Err(Stop::Full);
            }
            out.same(&message)?;
        }
        Ok(())
    }

    fn looks_at_payloads(&self) -> bool {
        true
    }

    fn keeps(&self) -> bool {
        true
    }
}

#[test]
fn a_slot_that_keeps_something_went_on_behind_a_message_for_which_there_was_no_room() {
    let machine = Machine::new(7);
    let process = machine.start();
    let data = Data { media: process, folder: "/live/data".into(), drain: Drain::Caller };
    let mut writer = data.writer(INPUT, &Options::memory(1 << 20)).unwrap();
    let origin = writer.origin("a").unwrap();
    let meta = Meta { source_time: 0, origin, origin_seq: 0, schema: SchemaId(*b"test"), flags: 0 };
    let options = WorkOptions { turn: 1, ..WorkOptions::memory(1, 1 << 20) };
    let mut work = Work::open(&data, STAGE, &[INPUT.into()], &options).unwrap();
    let from = work.ready(0, 0);
    let slot =
        SlotOptions { number: 0, inputs: vec![INPUT.into()], stream: options.slot_options(), from, by_key: false };
    let mut slot = Slot::open(&data, STAGE, slot).unwrap();
    work.send_parameters(0).unwrap();
    for _ in 0..10 {
        writer.append(&meta, &[1; 100]).unwrap();
    }
    let mut code = InOrder { began: Vec::new(), no_room_for: Some(5) };
    for _ in 0..100 {
        machine.advance(1_000_000);
        work.step(machine.now(), &[UpstreamState { frontier: 0, ended: false, ..UpstreamState::NOTHING }]).unwrap();
        // It has two tasks, and does both before the runner looks.
        slot.step(&mut code, &mut |_| false).unwrap();
        slot.step(&mut code, &mut |_| false).unwrap();
    }
    assert_eq!(code.began, [0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9]);
    assert_eq!(work.writer().next_sequence(), 10);
}

fn lives(test: &str, seeds: u64) {
    let sum = histories(test, seeds, of_any);
    println!(
        "histories of workers: injected {} deaths of runners, {} of slots, {} power cuts into {}: {} messages, {} made of \
         them, {} aside ({} of them blamed), {} changes of slots, 0 lost, 0 twice, 0 out of order",
        sum["deaths"],
        sum["slots"],
        sum["cuts"],
        sum["histories"],
        sum["messages"],
        sum["made"],
        sum["aside"],
        sum["blamed"],
        sum["changes"]
    );
    // Histories in which nothing happens prove nothing.
    let n = sum["histories"];
    let happens = sum["blocks"] > n
        && sum["deaths"] > n
        && sum["slots"] > 10 * n
        && sum["cuts"] > n / 2
        && sum["blamed"] < n / 20;
    assert!(n < 100 || happens, "{sum:?}");
}

/// Makes many messages of each.
struct Many;

const MANY: u64 = 9000;

impl Worker for Many {
    fn work(&mut self, batch: &Batch<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        for message in batch.iter().collect::<Vec<_>>() {
            out.begin(&message);
            for k in 0..MANY {
                out.push(message.entry, &Made { origin_seq: k, ..Made::of(message.entry, *b"made") }, &[])?;
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

#[test]
fn what_a_block_had_shown_before_there_was_no_room_was_shown_again_after_a_death() {
    let machine = Machine::new(7);
    let (process, runner) = (machine.start(), machine.start());
    let at = |process: &Arc<PretendMedia>| Data {
        media: process.clone(),
        folder: "/live/data".into(),
        drain: Drain::Caller,
    };
    let data = at(&process);
    let mut writer = data.writer(INPUT, &Options::memory(1 << 20)).unwrap();
    let origin = writer.origin("a").unwrap();
    let meta = Meta { source_time: 0, origin, origin_seq: 0, schema: SchemaId(*b"test"), flags: 0 };
    let options = WorkOptions { turn: 1, slot_live_bytes: 8 << 20, ..WorkOptions::memory(1, 1 << 20) };
    let mut slots = Slots::new("/live/data", STAGE, &[INPUT]);
    let mut work = Work::open(&at(&runner), STAGE, &[INPUT.into()], &options).unwrap();
    let step = |work: &mut Work, slots: &mut Slots<Many>| {
        for one in slots.send_parameters(work).unwrap() {
            slots.start(&machine, one, &options, |_| Ok(Many)).unwrap();
        }
        machine.advance(1_000_000);
        // Two answers at a time: the commit of the one is made while the other has no room.
        slots.step(0, &mut |_| false).unwrap();
        slots.step(0, &mut |_| false).unwrap();
        work.step(machine.now(), &[UpstreamState { frontier: 0, ended: false, ..UpstreamState::NOTHING }]).unwrap();
    };
    // Its output is held, and has no room for three times as many.
    data.hold(STAGE, "witness", 0).unwrap();
    for n in 0..3 {
        writer.append(&Meta { source_time: n, ..meta }, &[1; 100]).unwrap();
    }
    for _ in 0..50 {
        step(&mut work, &mut slots);
    }
    let shown = work.writer().next_sequence();
    assert!(shown > MANY && !shown.is_multiple_of(MANY) && shown < 3 * MANY, "{shown}");
    // SAFETY: all maps of this process are in the runner.
    unsafe { machine.kill(&runner, work) };
    slots.kill_all(&machine);
    let mut work = Work::open(&at(&machine.start()), STAGE, &[INPUT.into()], &options).unwrap();
    let mut reader = data.reader_early(STAGE).unwrap();
    let mut seen = Vec::new();
    for _ in 0..100 {
        loop {
            let batch = reader.read(1000).unwrap();
            if batch.is_empty() {
                break;
            }
            seen.extend(batch.iter().map(|m| (m.entry.source_time, m.entry.origin_seq)));
        }
        data.hold(STAGE, "witness", seen.len() as u64).unwrap();
        step(&mut work, &mut slots);
    }
    assert_eq!(seen.len() as u64, 3 * MANY);
    assert!(seen.is_sorted());
    assert!(work.is_idle());
}

#[test]
fn whatever_dies_the_output_of_each_message_is_there_once_and_in_order() {
    lives("work::whatever_dies_the_output_of_each_message_is_there_once_and_in_order", SEEDS);
}

#[test]
#[ignore = "full counts: cargo xtask soak"]
fn soak_workers_and_slots() {
    lives("work::soak_workers_and_slots", 20_000);
}

/// A worker with one slot that has nothing to do, in memory.
fn opened(machine: &Machine, options: &WorkOptions) -> (Data, Arc<PretendMedia>, Work) {
    let process = machine.start();
    let data = Data { media: process.clone(), folder: "/live/data".into(), drain: Drain::Caller };
    let work = Work::open(&data, STAGE, &[INPUT.into()], options).unwrap();
    (data, process, work)
}

#[test]
fn a_change_while_it_runs_counts_after_a_restart_until_the_file_says_something_new() {
    let machine = Machine::new(1);
    let process = machine.start();
    let data = Data { media: process, folder: "/live/data".into(), drain: Drain::Caller };
    drop(data.writer(INPUT, &Options::memory(1 << 20)).unwrap());
    let mut options = WorkOptions { parameters: r#"{"a":1}"#.into(), ..WorkOptions::memory(2, 1 << 20) };
    let (_, _process, mut work) = opened(&machine, &options);
    assert_eq!((work.slots(), work.parameters()), (2, r#"{"a":1}"#));
    // A change of nothing is safe at once, where no message comes.
    assert!(work.is_safe(work.change()));
    work.set_slots(3).unwrap();
    work.configure(r#"{"a":2}"#).unwrap();
    let block = work.change();
    assert!(!work.is_safe(block));
    while !work.is_safe(block) {
        machine.advance(1_000_000);
        work.step(machine.now(), &[UpstreamState::NOTHING]).unwrap();
    }
    drop(work);
    let (_, _process, work) = opened(&machine, &options);
    assert_eq!((work.slots(), work.parameters()), (3, r#"{"a":2}"#));
    drop(work);
    options.parameters = r#"{"a":1,"b":0}"#.into();
    let (_, _process, work) = opened(&machine, &options);
    assert_eq!((work.slots(), work.parameters()), (2, r#"{"a":1,"b":0}"#));
}

#[test]
fn slots_and_their_numbers_stand_in_the_stream_of_statistics() {
    struct Counting;
    impl Worker for Counting {
        fn work(&mut self, batch: &Batch<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
            for message in batch.iter().collect::<Vec<_>>() {
                out.begin(&message);
                out.filtered(&message);
            }
            Ok(())
        }
        fn looks_at_payloads(&self) -> bool {
            true
        }
        fn keeps(&self) -> bool {
            false
        }
        fn statistics(&mut self) -> String {
            r#"{"spots": 3, "mean": 0.5}"#.into()
        }
    }
    let machine = Machine::new(1);
    let process = machine.start();
    let data = Data { media: process, folder: "/live/data".into(), drain: Drain::Caller };
    let mut writer = data.writer(INPUT, &Options::memory(1 << 20)).unwrap();
    writer.origin("a").unwrap();
    let options = WorkOptions::memory(2, 1 << 20);
    let (data, _process, mut work) = opened(&machine, &options);
    let step = |work: &mut Work| {
        machine.advance(1_100_000_000);
        work.step(machine.now(), &[UpstreamState::NOTHING]).unwrap();
        flow::WorkerState::newest(&data, STAGE).unwrap().unwrap()
    };
    let state = step(&mut work);
    assert_eq!((state.number("slots"), state.number("away"), state.number("living")), (2, 2, 0));
    let from = work.ready(0, 0);
    work.send_parameters(0).unwrap();
    let state = step(&mut work);
    assert_eq!((state.number("away"), state.number("starting"), state.number("living")), (1, 1, 0));
    let inputs = vec![INPUT.into()];
    let slot = SlotOptions { number: 0, inputs, stream: options.slot_options(), from, by_key: false };
    let mut slot = Slot::open(&data, STAGE, slot).unwrap();
    let meta = Meta { source_time: 0, origin: 0, origin_seq: 0, schema: SchemaId(*b"test"), flags: 0 };
    for n in 0..5_u64 {
        writer.append(&meta, &n.to_le_bytes()).unwrap();
    }
    for _ in 0..20 {
        machine.advance(1_000_000);
        work.step(machine.now(), &[UpstreamState::NOTHING]).unwrap();
        slot.step(&mut Counting, &mut |_| false).unwrap();
    }
    let state = step(&mut work);
    assert_eq!((state.number("starting"), state.number("living"), state.number("messages")), (0, 1, 5));
    assert_eq!((state.number("filtered"), state.number("aside"), state.number("restarts")), (5, 0, 0));
    assert_eq!(state.slots[&0]["spots"], 3);
    assert_eq!(state.slots[&0]["mean"], 0.5);
    work.died(0, SlotEnd::Killed, "").unwrap();
    let state = step(&mut work);
    assert_eq!((state.number("restarts"), state.number("away")), (1, 2));
}
