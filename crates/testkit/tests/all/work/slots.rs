//! The tasks of slots that are slow, hang, or come late.

use super::history::{INPUT, STAGE};
use beamport_testkit::{Machine, PretendMedia, Slots};
use flow::{
    Data, Fault, Merge, MergeBy, MergeInput, MergeOptions, Outputs, Overdue, SlotEnd, Stepped, Stop, UpstreamState,
    Work, WorkOptions, Worker,
};
use std::ops::Range;
use std::sync::Arc;
use store::media::Open;
use store::{Batch, Drain, Meta, Options, SchemaId, Writer};

const MS: i64 = 1_000_000;
const SECOND: i64 = 1000 * MS;
/// More tasks than the stream of tasks holds.
const MANY: u64 = 5000;

/// User code that lets messages go on as they are, and never comes back from those numbered in `hangs_at`.
struct Passes {
    hangs_at: Vec<u64>,
    /// From this message on all are set aside.
    is_broken_from: u64,
    /// Those are set aside in any slot.
    bad: Range<u64>,
}

impl Default for Passes {
    fn default() -> Self {
        Self { hangs_at: Vec::new(), is_broken_from: u64::MAX, bad: 0..0 }
    }
}

impl Worker for Passes {
    fn work(&mut self, batch: &Batch<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        for message in batch.iter().collect::<Vec<_>>() {
            out.begin(&message);
            if self.hangs_at.contains(&message.sequence) {
                // To the runner, a slot that stopped here looks like one that computes here.
                return Err(Fault::new("hangs", message.sequence).into());
            }
            if message.sequence >= self.is_broken_from || self.bad.contains(&message.sequence) {
                out.aside(&message, "error", "no")?;
            } else {
                out.same(&message)?;
            }
        }
        Ok(())
    }

    fn looks_at_payloads(&self) -> bool {
        false
    }

    fn keeps(&self) -> bool {
        false
    }
}

/// A worker in memory with its slots, each in a process of its own.
struct Bench {
    machine: Machine,
    input: Writer,
    work: Work,
    data: Data,
    slots: Slots<Passes>,
    options: WorkOptions,
    _processes: [Arc<PretendMedia>; 2],
}

impl Bench {
    fn new(options: WorkOptions) -> Self {
        Self::with("/live/data", &Options::memory(4 << 20), options)
    }

    fn with(folder: &str, input: &Options, options: WorkOptions) -> Self {
        let machine = Machine::new(1);
        let processes = [machine.start(), machine.start()];
        let at =
            |process: &Arc<PretendMedia>| Data { media: process.clone(), folder: folder.into(), drain: Drain::Caller };
        let mut input = at(&processes[0]).writer(INPUT, input).unwrap();
        input.origin("a").unwrap();
        let work = Work::open(&at(&processes[1]), STAGE, &[INPUT.into()], &options).unwrap();
        let slots = Slots::new(folder, STAGE, &[INPUT]);
        let data = at(&processes[0]);
        Self { machine, input, work, data, slots, options, _processes: processes }
    }

    fn append(&mut self, messages: u64) {
        for _ in 0..messages {
            let origin_seq = self.input.next_sequence();
            let meta = Meta { source_time: 0, origin: 0, origin_seq, schema: SchemaId(*b"test"), flags: 0 };
            self.input.append(&meta, &[0; 8]).unwrap();
        }
        self.input.drain().unwrap();
    }

    /// Lets the slots and the runner do what there is.
    fn run(&mut self) {
        for _ in 0..20 {
            for slot in self.slots.numbers() {
                self.step_slot(slot);
            }
            self.step_runner();
        }
    }

    /// Starts the slots that do not live.
    fn start(&mut self, hangs_at: &[u64]) {
        for one in self.slots.send_parameters(&mut self.work).unwrap() {
            let code = Passes { hangs_at: hangs_at.to_vec(), ..Passes::default() };
            self.slots.start(&self.machine, one, &self.options, |_| Ok(code)).unwrap();
        }
    }

    fn step_runner(&mut self) {
        self.machine.advance(MS);
        let now = self.machine.now();
        self.work.step(now, &[UpstreamState { frontier: now, ended: false, ..UpstreamState::NOTHING }]).unwrap();
    }

    /// Lets a slot do all that it has.
    fn step_slot(&mut self, slot: u32) {
        while self.slots.step(slot, &mut |_| false).unwrap() == Stepped::Worked {}
    }

    fn newest_commit_bytes(&self) -> usize {
        self.data.book_messages(&format!("{STAGE}.commits")).unwrap().pop().unwrap().len()
    }

    /// The next message of the input that is not done.
    fn next(&self) -> u64 {
        self.work.accounts().next().unwrap().next
    }
}

#[test]
fn a_step_of_the_wall_clock_ended_busy_slots_and_spared_hung_ones() {
    let mut bench = Bench::new(WorkOptions { turn: 1, ..WorkOptions::memory(4, 1 << 20) });
    bench.append(8);
    bench.start(&[0, 1, 2, 3, 4, 5, 6, 7]);
    bench.step_runner();
    for slot in bench.slots.numbers() {
        // The greeting, then the message from which it does not come back.
        let _ = bench.slots.step(slot, &mut |_| false);
        assert!(bench.slots.step(slot, &mut |_| false).is_err());
    }
    assert!(bench.work.overdue().is_empty());
    bench.machine.set_wall_clock(3600 * SECOND);
    bench.machine.advance(SECOND);
    assert_eq!(bench.work.overdue(), [], "they are at their messages for a second");
    bench.machine.set_wall_clock(-7200 * SECOND);
    bench.machine.advance(bench.options.time_max);
    assert_eq!(
        bench.work.overdue(),
        [0, 1, 2, 3].map(|slot| (slot, Overdue::Code)),
        "they are at their messages for 31 seconds"
    );
    assert_eq!(bench.next(), 0);
}

#[test]
fn a_task_that_was_overwritten_while_its_slot_was_busy_was_never_done() {
    let mut bench = Bench::new(WorkOptions { turn: 1, keep_order: false, ..WorkOptions::memory(2, 1 << 20) });
    bench.append(1);
    bench.start(&[0]);
    bench.step_runner();
    let slow = 0;
    bench.append(MANY);
    bench.step_runner();
    assert_eq!(bench.work.states()[slow as usize].tasks, 2);
    while bench.slots.step(slow, &mut |_| false).is_ok() {}
    for _ in 0..MANY {
        bench.step_slot(1);
        bench.step_runner();
    }
    assert_eq!(bench.next(), 0);
    let bytes = bench.newest_commit_bytes();
    assert!(bytes < 4096, "a commit of {bytes} bytes: what is done ahead is two ranges");
    bench.slots.worker(slow).unwrap().hangs_at.clear();
    for _ in 0..100 {
        bench.step_slot(slow);
        bench.step_slot(1);
        bench.step_runner();
    }
    assert_eq!(bench.next(), 1 + MANY);
}

#[test]
fn a_slot_that_came_late_held_tasks_that_nobody_did() {
    let mut bench = Bench::new(WorkOptions { turn: 1, keep_order: false, ..WorkOptions::memory(2, 1 << 20) });
    // The process of slot 1 starts, and does not come yet.
    let late = (1, bench.work.ready(1, 0));
    bench.work.send_parameters(1).unwrap();
    let first = (0, bench.work.ready(0, 0));
    let code = || Ok(Passes::default());
    bench.slots.start(&bench.machine, first, &bench.options, |_| code()).unwrap();
    bench.append(20);
    for _ in 0..40 {
        bench.step_slot(0);
        bench.step_runner();
    }
    assert_eq!(bench.next(), 20, "a slot that has not come is given nothing");
    bench.slots.start(&bench.machine, late, &bench.options, |_| code()).unwrap();
    bench.append(2);
    bench.step_runner();
    assert_eq!(bench.work.states().iter().map(|state| state.tasks).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn a_worker_of_an_input_that_a_recovery_had_cut_never_started_again() {
    for keep_order in [true, false] {
        let options = WorkOptions { turn: 1, keep_order, ..WorkOptions::memory(2, 1 << 20) };
        let mut bench = Bench::with("/disk/data", &Options::disk(1 << 20), options);
        bench.start(&[]);
        bench.append(30);
        bench.run();
        assert_eq!(bench.next(), 30);
        let Bench { machine, input, work, data, mut slots, options, _processes } = bench;
        drop(work);
        slots.kill_all(&machine);
        let header = input.header().clone();
        drop(input);
        let file = data.media.open(&data.stream(INPUT).join("i-00000000"), Open::Write).unwrap();
        file.set_len(header.index_bytes() - (header.index_entries - 10) * 64).unwrap();

        let mut input = data.writer(INPUT, &Options::disk(1 << 20)).unwrap();
        assert_eq!(input.next_sequence(), 10);
        input.origin("a").unwrap();
        let work = Work::open(&data, STAGE, &[INPUT.into()], &options).unwrap();
        let mut bench = Bench { machine, input, work, data, slots, options, _processes };
        bench.start(&[]);
        bench.append(5);
        bench.run();
        assert_eq!(bench.next(), 15);
        // Its end brings its commits to the disk.
        drop(bench.work);
        let row = flow::ledger::stage(&bench.data, STAGE).unwrap().remove(0);
        assert_eq!((row.read, row.done, row.held, row.closed), (35, 35, 0, true), "{row:?}");
    }
}

#[test]
fn a_slot_that_never_came_was_waited_for_without_end() {
    let mut bench = Bench::new(WorkOptions::memory(1, 1 << 20));
    bench.work.ready(0, 0);
    bench.step_runner();
    assert_eq!(bench.work.overdue(), []);
    bench.machine.advance(bench.options.time_max + 121 * SECOND);
    assert_eq!(bench.work.overdue(), [(0, Overdue::Code)]);
}

/// One slot works on `messages`; where it ends a fresh one with the code `next` comes. How many slots ended.
fn replaced(bench: &mut Bench, messages: u64, first: Passes, next: impl Fn() -> Passes) -> u64 {
    bench.append(messages);
    let (mut ended, mut code) = (0, Some(first));
    while bench.next() < messages {
        for one in bench.slots.send_parameters(&mut bench.work).unwrap() {
            let code = code.take().unwrap_or_else(&next);
            bench.slots.start(&bench.machine, one, &bench.options, |_| Ok(code)).unwrap();
        }
        bench.step_runner();
        if bench.slots.step(0, &mut |_| false).is_err() {
            bench.slots.kill(&bench.machine, 0);
            bench.work.died(0, SlotEnd::Killed, "").unwrap();
            ended += 1;
        }
    }
    ended
}

#[test]
fn a_slot_that_its_own_code_had_broken_put_all_that_followed_aside() {
    let mut bench = Bench::new(WorkOptions { turn: 7, ..WorkOptions::memory(1, 1 << 20) });
    let broken = Passes { is_broken_from: 10, ..Passes::default() };
    assert_eq!(replaced(&mut bench, 100, broken, Passes::default), 1);
    let account = bench.work.accounts().next().unwrap();
    let aside = account.counts["aside.error"];
    assert!((1..=16).contains(&aside), "{account:?}");
    assert_eq!(account.done + aside, 100, "{account:?}");
}

#[test]
fn messages_that_fail_in_a_fresh_slot_too_go_aside() {
    let mut bench = Bench::new(WorkOptions { turn: 7, ..WorkOptions::memory(1, 1 << 20) });
    let bad = || Passes { bad: 20..80, ..Passes::default() };
    assert_eq!(replaced(&mut bench, 100, bad(), bad), 1);
    let account = bench.work.accounts().next().unwrap();
    assert_eq!((account.counts["aside.error"], account.done), (60, 40), "{account:?}");
}

#[test]
fn a_merge_by_number_gave_up_ids_that_a_slot_held() {
    let slow = 0;
    let mut bench = Bench::new(WorkOptions { turn: 1, keep_order: false, ..WorkOptions::memory(4, 1 << 20) });
    let by = MergeBy::Number { parts: 1, cache: 4096 };
    let inputs = [MergeInput { stream: STAGE.into(), wait: 2 * SECOND, ..MergeInput::default() }];
    let options = MergeOptions { stream: Options::memory(1 << 20), by };
    let mut merge = Merge::open(&bench.data, "ordered", &inputs, &options).unwrap();
    bench.start(&[0]);
    let mut shown = 0;
    for n in 0..800 {
        bench.append(1);
        // Message 0 takes 5 s in its slot, and the one that the slot has besides waits for it.
        if n == 500 {
            bench.slots.worker(slow).unwrap().hangs_at.clear();
        }
        for slot in bench.slots.numbers() {
            while bench.slots.step(slot, &mut |_| false).is_ok_and(|stepped| stepped == Stepped::Worked) {}
        }
        bench.machine.advance(9 * MS);
        bench.step_runner();
        let heard = UpstreamState::from(&bench.work.view());
        merge.step(bench.machine.now(), bench.machine.clock(), &[heard]).unwrap();
        shown = merge.writer().next_sequence();
        assert!(n >= 500 || shown == 0, "{shown} are shown at {n}");
    }
    let aside = bench.data.reader_early(&flow::aside_of("ordered")).unwrap().bounds().count;
    assert!(shown > 700 && aside == 0, "{shown} are in order, {aside} aside");
}
