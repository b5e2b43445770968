//! Cut-over and shadows on the pretend machine: histories from a seed in which the code of a worker is changed again and
//! again while runner and slots are killed at any change of a byte, and the power goes.
//!
//! What is checked: the output holds what was made of each message once, in order; below each boundary the code before
//! made it, from there on the code behind, and the boundary is the one that was said; what was said is never taken back.

use super::history::{History, INPUT, Kind, POISON, SAME, STAGE};
use beamport_testkit::{Counts, Dice, Machine, histories};
use flow::{
    Data, Fault, Made, Outputs, Share, Slot, SlotEnd, SlotOptions, Stepped, Stop, UpstreamState, Work, WorkOptions,
    Worker, aside_of,
};
use std::collections::BTreeSet;
use store::{Batch, Drain, Level, Meta, Options, SchemaId};

const SEEDS: u64 = 300;

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
#[derive(Clone, Copy, Debug, Default)]
enum Cutting {
    #[default]
    No,
    Draining,
    Committing {
        block: u64,
        from: u64,
    },
    Replacing,
}

/// A worker whose code is changed while it runs.
#[derive(Default)]
struct Changed {
    cutting: Cutting,
    /// From which sequence on which version made the output; what was answered stands for ever.
    boundaries: Vec<(u64, u64)>,
    cutovers: u64,
    /// That took effect, and nobody had said so.
    unsaid: u64,
    /// That were given up with the death of the runner.
    given_up: u64,
    /// So many looks more at old code whose slots die at their start: none is started.
    dying: u32,
    /// That went on though blocks were with such slots.
    given_back: u64,
}

impl Kind for Changed {
    type Code = Maker;

    fn code(work: &Work, bytes: usize) -> Maker {
        Maker { version: version(work.code()), bytes }
    }

    fn stops_one_in(&self) -> u64 {
        // Where the commit is made that says so, more often.
        if matches!(self.cutting, Cutting::Committing { .. }) { 2 } else { 12 }
    }

    fn opened(history: &mut History<Self>) {
        let Some(work) = &history.runner else { return };
        let (now, since) = (version(work.code()), work.since()[0]["sequence"].as_u64());
        let said = history.kind.boundaries.last().copied();
        let last = said.map_or(0, |b| b.1);
        if now < last || now > last + 1 {
            history.fail(format!("code {now} where {last} was said"));
        }
        if now > last {
            history.kind.unsaid += 1;
            history.kind.boundaries.push((since.unwrap(), now));
        } else if let (Some(since), Some(known)) = (since, said) {
            assert_eq!(since, known.0, "seed {}: since when", history.seed);
        }
    }

    fn beside(history: &mut History<Self>) -> Result<(), Fault> {
        let Some(work) = &mut history.runner else { return Ok(()) };
        match history.kind.cutting {
            Cutting::No => {}
            Cutting::Draining if !work.is_quiet() => {
                if let Some(left) = history.kind.dying.checked_sub(1) {
                    work.give_back()?;
                    // Gaps before messages that were shown out of order are filled first, so that it needs slots after
                    // all.
                    history.kind.dying = left;
                    history.kind.given_back += u64::from(work.is_quiet());
                }
            }
            Cutting::Draining => {
                let new = version(work.code()) + 1;
                let is_balanced = history.options.share == Share::Balance;
                let slots = if is_balanced { history.dice.range(1, 3) as u32 } else { work.slots() };
                let from = work.cut_over(&code(new), &format!("{{\"v\":{new}}}"), slots)?;
                let (block, from) = (work.change(), from[0].sequence);
                history.kind.cutting = Cutting::Committing { block, from };
                history.say(format!("code {new} from {from} on, block {block}"));
            }
            Cutting::Committing { block, from } => {
                if work.is_safe(block) {
                    let now = version(work.code());
                    history.kind.boundaries.push((from, now));
                    history.kind.cutovers += 1;
                    history.kind.cutting = Cutting::Replacing;
                    history.say(format!("said: code {now} from {from} on"));
                }
            }
            Cutting::Replacing => {
                history.kill_slots();
                if let Some(work) = &mut history.runner {
                    for number in 0..3 {
                        work.died(number, SlotEnd::Killed, "replaced")?;
                    }
                    work.release_earlier(&[])?;
                    work.hold(false);
                }
                history.kind.cutting = Cutting::No;
            }
        }
        Ok(())
    }

    fn starts_slots(&self) -> bool {
        let is_dying = matches!(self.cutting, Cutting::Draining) && self.dying > 0;
        !is_dying && !matches!(self.cutting, Cutting::Committing { .. } | Cutting::Replacing)
    }

    fn runner_gone(&mut self) {
        self.given_up += u64::from(matches!(self.cutting, Cutting::Draining | Cutting::Committing { .. }));
        self.cutting = Cutting::No;
    }

    fn happens(history: &mut History<Self>, what: u64) {
        match what {
            0 if history.runner.is_some() => history.kill_runner(),
            1 => history.kill_some_slot(),
            2 if history.level == Level::Disk => history.cut(),
            3..=7 if matches!(history.kind.cutting, Cutting::No) => {
                if let Some(work) = &mut history.runner {
                    work.hold(true);
                    history.kind.cutting = Cutting::Draining;
                    history.kind.dying = if history.kind.cutovers % 2 == 1 { 20 } else { 0 };
                }
                if history.kind.dying > 0 {
                    history.kill_slots();
                    let died =
                        |work: &mut Work| (0..3).try_for_each(|number| work.died(number, SlotEnd::Killed, "at start"));
                    if history.runner.as_mut().is_some_and(|work| died(work).is_err()) {
                        history.kill_runner();
                    }
                }
            }
            _ => {}
        }
    }

    fn rests(&self) -> bool {
        matches!(self.cutting, Cutting::No)
    }
}

/// One history of a worker whose code is changed, from its seed.
fn of_changes(seed: u64) -> Counts {
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
    let mut history = History::new(seed, dice, options, payload, Changed::default());
    history.live();
    history.check()
}

impl History<Changed> {
    fn check(mut self) -> Counts {
        let data = self.witnessed();
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
            let version = self.kind.boundaries.iter().rev().find(|b| b.0 <= sequence).map_or(0, |b| b.1);
            match passes(*n) {
                true => expected.push((*n, SAME)),
                false => expected.extend((0..makes(*n)).map(|k| (*n, version * 10 + k))),
            }
        }
        if !self.options.keep_order {
            // Blocks come as they come, but not across a boundary.
            let bounds: Vec<u64> = self.kind.boundaries.iter().map(|b| b.0).collect();
            let place = |n: u64| bounds.iter().filter(|b| self.input[..**b as usize].contains(&n)).count();
            let places: Vec<usize> = self.seen.iter().map(|s| bounds.len() - place(s.0)).collect();
            assert!(places.is_sorted(), "seed {}: messages stand behind a boundary that are before it", self.seed);
        }
        self.check_output(expected);
        let row = flow::ledger::stage(&data, STAGE).unwrap().remove(0);
        if !row.closed || row.held > 0 || row.read != self.input.len() as u64 {
            self.fail(format!("the ledger says {row:?}"));
        }
        self.kill_slots();
        let Changed { cutovers, unsaid, given_up, given_back, .. } = self.kind;
        let mut counts = self.counts();
        counts +=
            [("cut-overs", cutovers), ("unsaid", unsaid), ("given up", given_up), ("given back", given_back)].into();
        counts
    }
}

fn lives(test: &str, seeds: u64) {
    let sum = histories(test, seeds, of_changes);
    println!(
        "histories of cut-overs: injected {} deaths of runners, {} of slots, {} power cuts into {}: {} cut-overs, {} \
         nobody had said, {} given up, {} with what dead slots had, 0 messages lost, 0 twice, 0 by the wrong code",
        sum["deaths"],
        sum["slots"],
        sum["cuts"],
        sum["histories"],
        sum["cut-overs"],
        sum["unsaid"],
        sum["given up"],
        sum["given back"]
    );
    let n = sum["histories"];
    let happens = sum["cut-overs"] > n && sum["unsaid"] > n / 60 && sum["given up"] > n / 4 && sum["cuts"] > n / 4;
    let happens = happens && sum["given back"] > n / 10;
    assert!(n < 100 || happens, "{sum:?}");
}

#[test]
fn whatever_dies_the_output_changes_its_maker_at_the_message_that_was_said() {
    lives("work::cutover::whatever_dies_the_output_changes_its_maker_at_the_message_that_was_said", SEEDS);
}

#[test]
#[ignore = "full counts: cargo xtask soak"]
fn soak_cutovers() {
    lives("work::cutover::soak_cutovers", 20_000);
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
        work.send_parameters(0).unwrap();
        Self { work, slot, maker: Maker { version: 1, bytes: 0 } }
    }

    fn step(&mut self, machine: &Machine) {
        machine.advance(1_000_000);
        self.work
            .step(machine.now(), &[UpstreamState { frontier: 0, ended: false, ..UpstreamState::NOTHING }])
            .unwrap();
        while self.slot.step(&mut self.maker, &mut |_| false).unwrap() == Stepped::Worked {}
        self.work
            .step(machine.now(), &[UpstreamState { frontier: 0, ended: false, ..UpstreamState::NOTHING }])
            .unwrap();
    }
}

#[test]
fn old_code_whose_slots_never_start_could_not_be_cut_over() {
    let machine = Machine::new(4);
    let data = Data { media: machine.start(), folder: "/live/data".into(), drain: Drain::Caller };
    let mut writer = data.writer(INPUT, &Options::memory(1 << 20)).unwrap();
    let origin = writer.origin("a").unwrap();
    let mut append = |numbers: std::ops::Range<u64>| {
        for at in numbers {
            let meta = Meta { source_time: 0, origin, origin_seq: at, schema: SchemaId(*b"test"), flags: 0 };
            writer.append(&meta, &1_u64.to_le_bytes()).unwrap();
        }
    };
    append(0..30);
    let mut place = Alone::open(&data, "old", &WorkOptions::memory(1, 1 << 20));
    while place.work.accounts().next().unwrap().next < 30 {
        place.step(&machine);
    }
    // From now on its slots take what they are given, and die.
    append(30..60);
    let step = |work: &mut Work| {
        machine.advance(1_000_000);
        work.step(machine.now(), &[UpstreamState { frontier: 0, ended: false, ..UpstreamState::NOTHING }]).unwrap();
    };
    for _ in 0..3 {
        step(&mut place.work);
        assert!(!place.work.is_idle());
        place.work.died(0, SlotEnd::Killed, "at start").unwrap();
        place.work.ready(0, 0);
    }
    place.work.hold(true);
    step(&mut place.work);
    place.work.give_back().unwrap();
    assert!(!place.work.is_quiet(), "a slot lives");
    place.work.died(0, SlotEnd::Killed, "at start").unwrap();
    step(&mut place.work);
    assert!(!place.work.is_quiet());
    place.work.give_back().unwrap();
    assert!(place.work.is_quiet());
    let from = place.work.cut_over(&code(2), "{}", 1).unwrap();
    assert_eq!((from[0].sequence, place.work.writer().next_sequence()), (30, 30));
    let block = place.work.change();
    while !place.work.is_safe(block) {
        step(&mut place.work);
    }
    // The first messages that the new code receives are those that the old slots had.
    place.work.hold(false);
    let Alone { mut work, slot, .. } = place;
    drop(slot);
    let from = work.ready(0, 0);
    let slot =
        SlotOptions { number: 0, inputs: vec![INPUT.into()], stream: Options::memory(1 << 20), from, by_key: false };
    let slot = Slot::open(&data, "old", slot).unwrap();
    work.send_parameters(0).unwrap();
    let mut place = Alone { work, slot, maker: Maker { version: 2, bytes: 0 } };
    while place.work.accounts().next().unwrap().next < 60 {
        place.step(&machine);
    }
    let mut reader = data.reader("old", store::ReadOptions { early: true, ..Default::default() }).unwrap();
    let batch = reader.read(100).unwrap();
    let by: Vec<u64> = batch.iter().map(|m| u64::from_le_bytes(m.payload[8..16].try_into().unwrap()) / 10).collect();
    assert_eq!(by, [vec![1; 30], vec![2; 30]].concat());
}

#[test]
fn what_was_answered_behind_a_message_that_nobody_answered_held_up_the_cut_over() {
    let machine = Machine::new(5);
    let data = Data { media: machine.start(), folder: "/live/data".into(), drain: Drain::Caller };
    let mut writer = data.writer(INPUT, &Options::memory(1 << 20)).unwrap();
    let origin = writer.origin("a").unwrap();
    for at in 0..8 {
        let meta = Meta { source_time: 0, origin, origin_seq: at, schema: SchemaId(*b"test"), flags: 0 };
        writer.append(&meta, &1_u64.to_le_bytes()).unwrap();
    }
    let options = WorkOptions { share: Share::RoundRobin, turn: 1, ..WorkOptions::memory(2, 1 << 20) };
    let inputs = vec![INPUT.to_owned()];
    let mut work = Work::open(&data, "old", &inputs, &options).unwrap();
    let slot_of = |work: &mut Work, number| {
        let from = work.ready(number, 0);
        work.send_parameters(number).unwrap();
        let stream = options.slot_options();
        Slot::open(&data, "old", SlotOptions { number, inputs: inputs.clone(), stream, from, by_key: false }).unwrap()
    };
    let step = |work: &mut Work| {
        machine.advance(1_000_000);
        work.step(machine.now(), &[UpstreamState { frontier: 0, ended: false, ..UpstreamState::NOTHING }]).unwrap();
    };
    // The first is given message 0 and does nothing, the second answers message 1.
    work.ready(0, 0);
    let mut slot = slot_of(&mut work, 1);
    step(&mut work);
    while slot.step(&mut Maker { version: 1, bytes: 0 }, &mut |_| false).unwrap() == Stepped::Worked {}
    step(&mut work);
    drop(slot);
    (0..2).for_each(|number| work.died(number, SlotEnd::Killed, "at start").unwrap());
    work.hold(true);
    step(&mut work);
    work.give_back().unwrap();
    assert!(work.is_quiet());
    assert_eq!(work.cut_over(&code(2), "{}", 2).unwrap()[0].sequence, 0);
    work.hold(false);
    let mut slots: Vec<Slot> = (0..2).map(|number| slot_of(&mut work, number)).collect();
    while work.accounts().next().unwrap().next < 8 {
        step(&mut work);
        for slot in &mut slots {
            while slot.step(&mut Maker { version: 2, bytes: 0 }, &mut |_| false).unwrap() == Stepped::Worked {}
        }
    }
    let mut reader = data.reader("old", store::ReadOptions { early: true, ..Default::default() }).unwrap();
    let batch = reader.read(100).unwrap();
    let by: Vec<u64> = batch.iter().map(|m| u64::from_le_bytes(m.payload[8..16].try_into().unwrap()) / 10).collect();
    assert_eq!(by, [2; 8]);
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
