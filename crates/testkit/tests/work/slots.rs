//! What becomes of the tasks of slots that are slow, hang, or come late.

use super::history::{INPUT, STAGE};
use beamport_testkit::{Machine, PretendMedia, Slots};
use flow::{Data, Fault, Heard, Outputs, Stop, Work, WorkOptions, Worker};
use std::sync::Arc;
use store::{Batch, Drain, Meta, Options, SchemaId, Writer};

const MS: i64 = 1_000_000;
const SECOND: i64 = 1000 * MS;

/// User code that filters all messages, and never comes back from those numbered in `hangs_at`.
struct Filters {
    hangs_at: Vec<u64>,
}

impl Worker for Filters {
    fn work(&mut self, batch: &Batch<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        for message in batch.iter().collect::<Vec<_>>() {
            out.begin(&message);
            if self.hangs_at.contains(&message.sequence) {
                // To the runner, a slot that stopped here looks like one that computes here.
                return Err(Fault::new("hangs", message.sequence).into());
            }
            out.filtered(&message);
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
    slots: Slots<Filters>,
    options: WorkOptions,
    _processes: [Arc<PretendMedia>; 2],
}

impl Bench {
    fn new(options: WorkOptions) -> Self {
        let machine = Machine::new(1);
        let processes = [machine.start(), machine.start()];
        let at = |process: &Arc<PretendMedia>| Data {
            media: process.clone(),
            folder: "/live/data".into(),
            drain: Drain::Caller,
        };
        let mut input = at(&processes[0]).writer(INPUT, &Options::memory(4 << 20)).unwrap();
        input.origin("a").unwrap();
        let work = Work::open(&at(&processes[1]), STAGE, &[INPUT.into()], &options).unwrap();
        let slots = Slots::new("/live/data", STAGE, &[INPUT]);
        Self { machine, input, work, slots, options, _processes: processes }
    }

    fn append(&mut self, messages: u64) {
        for _ in 0..messages {
            let origin_seq = self.input.next_sequence();
            let meta = Meta { source_time: 0, origin: 0, origin_seq, schema: SchemaId(*b"test"), flags: 0 };
            self.input.append(&meta, &[0; 8]).unwrap();
        }
    }

    /// Starts the slots that do not live.
    fn start(&mut self, hangs_at: &[u64]) {
        for one in self.slots.greet(&mut self.work).unwrap() {
            let code = Filters { hangs_at: hangs_at.to_vec() };
            self.slots.start(&self.machine, one, &self.options, |_| Ok(code)).unwrap();
        }
    }

    fn step_runner(&mut self) {
        self.machine.advance(MS);
        let now = self.machine.now();
        self.work.step(now, &[Heard { frontier: now, ended: false }]).unwrap();
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
    assert_eq!(bench.work.overdue(), [0; 0], "they are at their messages for a second");
    bench.machine.set_wall_clock(-7200 * SECOND);
    bench.machine.advance(bench.options.time_max);
    assert_eq!(bench.work.overdue(), [0, 1, 2, 3], "they are at their messages for 31 seconds");
    assert_eq!(bench.next(), 0);
}
