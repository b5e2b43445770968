//! Parts that are made again: a builder has lost its data folder, and its mirror gets the same messages a second time.

use super::{MS, NAME, SECOND};
use beamport_testkit::{Dice, Machine, PretendMedia};
use flow::{Data, Merge, MergeBy, MergeInput, MergeOptions, UpstreamState, aside_of, ledger};
use std::collections::BTreeSet;
use std::sync::Arc;
use store::{Drain, Entry, Identity, Meta, Mirrored, Options, ReadOptions, SchemaId, Writer, crc32c};

const MESSAGES: usize = 300;

/// A part on a builder, as its mirror gets it.
struct Part {
    name: &'static str,
    /// The messages that the builder makes, in this order: times and numbers.
    made: Vec<(i64, u64)>,
    /// How far times are out of order.
    wait: i64,
    /// How often it has lost its folder.
    lost: u8,
    /// How many of them it has sent since.
    sent: usize,
}

impl Part {
    fn new(dice: &mut Dice, name: &'static str, begin: i64, wait: i64) -> Self {
        let mut time = begin;
        let mut made = Vec::new();
        for number in 0..MESSAGES as u64 {
            time += dice.below(4) as i64 * MS;
            made.push((time - dice.below(wait as u64 + 1) as i64 / MS * MS, number));
        }
        Self { name, made, wait, lost: 0, sent: 0 }
    }

    /// Sends at most `most` messages.
    fn send(&mut self, writer: &mut Writer, most: usize, now: i64) {
        let end = (self.sent + most).min(self.made.len());
        for (sequence, &(source_time, origin_seq)) in (self.sent..).zip(&self.made[self.sent..end]) {
            let payload = self.name.as_bytes();
            let meta = Meta { source_time, origin: 0, origin_seq, schema: SchemaId(*b"test"), flags: 0 };
            let near = Identity { uuid: [self.lost + 1; 16], epoch: 1, sequence: sequence as u64 };
            let message = Mirrored { meta, arrival_time: now, near, crc: crc32c(payload) };
            writer.push_mirrored(&message, payload).unwrap();
        }
        self.sent = end;
        writer.publish();
    }

    /// The time up to which all is sent.
    fn frontier(&self) -> i64 {
        self.made[self.sent..].iter().map(|made| made.0).min().unwrap_or(i64::MAX)
    }
}

fn data(process: &Arc<PretendMedia>) -> Data {
    Data { media: process.clone(), folder: "/live/data".into(), drain: Drain::Caller }
}

fn open(process: &Arc<PretendMedia>, parts: &[Part]) -> (Vec<Writer>, Merge) {
    let of = |part: &Part| {
        let mut writer = data(process).writer(part.name, &Options::memory(8 << 20)).unwrap();
        writer.origin("maker").unwrap();
        writer
    };
    let input = |part: &Part| MergeInput {
        stream: part.name.into(),
        wait: part.wait,
        by_frontier: true,
        is_made_again: true,
        ..MergeInput::default()
    };
    let writers = parts.iter().map(of).collect();
    let inputs: Vec<MergeInput> = parts.iter().map(input).collect();
    let by = MergeBy::Time { slice: 10 * MS, ahead_max: 3600 * SECOND };
    let options = MergeOptions { stream: Options::memory(8 << 20), by };
    (writers, Merge::open(&data(process), NAME, &inputs, &options).unwrap())
}

/// Builders send, lose their folders and begin again while the merge dies now and then.
fn history(seed: u64) {
    let (mut dice, machine) = (Dice::new(seed), Machine::new(seed));
    let begin = machine.now();
    let waits = [0, dice.below(30) as i64 * MS];
    let names = ["events-b1", "groups-b2"];
    let mut parts: Vec<Part> =
        names.iter().zip(waits).map(|(name, wait)| Part::new(&mut dice, name, begin, wait)).collect();
    let expected: BTreeSet<(usize, i64, u64)> =
        (0..).zip(&parts).flat_map(|(n, part)| part.made.iter().map(move |made| (n, made.0, made.1))).collect();
    let mut process = machine.start();
    let (mut writers, mut merge) = open(&process, &parts);
    let mut lost = 0;
    while lost < 6 || parts.iter().any(|part| part.sent < MESSAGES) {
        machine.advance(dice.range(1, 200) as i64 * MS);
        for (part, writer) in parts.iter_mut().zip(&mut writers) {
            if lost < 6 && dice.one_in(20) {
                (part.lost, part.sent, lost) = (part.lost + 1, 0, lost + 1);
            } else if dice.one_in(2) {
                part.send(writer, dice.range(1, 30) as usize, machine.now());
            }
        }
        let heard = |part: &Part| UpstreamState { frontier: part.frontier(), ..UpstreamState::NOTHING };
        let heard: Vec<UpstreamState> = parts.iter().map(heard).collect();
        for _ in 0..dice.below(4) {
            merge.step(machine.now(), machine.now(), &heard).unwrap();
        }
        if dice.one_in(15) {
            // SAFETY: all maps of this process are in these objects.
            unsafe { machine.kill(&process, (writers, merge)) };
            process = machine.start();
            (writers, merge) = open(&process, &parts);
        }
    }
    for _ in 0..100 {
        machine.advance(10 * MS);
        let ended = UpstreamState { frontier: i64::MAX, ..UpstreamState::NOTHING };
        merge.step(machine.now(), machine.now(), &[ended; 2]).unwrap();
    }
    assert!(merge.ended(), "seed {seed}");
    let of = |name: &str| {
        let mut reader = data(&process).reader(name, ReadOptions { early: true, ..ReadOptions::default() }).unwrap();
        let rows = reader.parents().unwrap();
        let place = |entry: &Entry| names.iter().position(|name| *name == rows[usize::from(entry.parent) - 1].name);
        let entries = reader.entries(0, 10 * MESSAGES).unwrap();
        let of = |entry: &Entry| (place(entry).unwrap(), entry.source_time, entry.origin_seq);
        entries.iter().map(of).collect::<Vec<_>>()
    };
    let shown = of(NAME);
    assert!(shown.is_sorted_by_key(|shown| shown.1), "seed {seed}");
    assert_eq!(shown.len(), expected.len(), "seed {seed}: some are missing, or there twice");
    assert_eq!(shown.into_iter().collect::<BTreeSet<_>>(), expected, "seed {seed}");
    assert!(of(&aside_of(NAME)).is_empty(), "seed {seed}");
    for row in ledger::stage(&data(&process), NAME).unwrap() {
        assert!(row.closed && row.lost.is_empty() && row.done == MESSAGES as u64, "seed {seed}: {row:?}");
        assert_eq!(row.read, row.done + row.skipped.get("again").copied().unwrap_or(0), "seed {seed}: {row:?}");
    }
}

#[test]
fn a_builder_that_has_lost_its_folder_makes_nothing_twice() {
    (0..200).for_each(history);
}
