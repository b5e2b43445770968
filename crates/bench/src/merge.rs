//! `beamport-bench merge`: many streams brought into one order, against a walk over the entries that it has to see; and
//! built into groups of which the messages are copied out, against the copying alone. All of ours in one thread.

use super::limit::Ring;
use super::measure::{Figure, Series, Unit, alternate, timed};
use super::place::{Folder, wrong};
use super::sizes::Sizes;
use super::writers::{META, named};
use flow::edge::WorkerPlace;
use flow::{
    Data, Fault, Merge, MergeBy, MergeInput, MergeOptions, Native, Slot, SlotOptions, UpstreamState, Work, WorkOptions,
};
use serde_json::json;
use std::cell::RefCell;
use std::time::Instant;
use store::{Meta, Options, Reader, Writer};

/// Detectors of a large array, each a stream.
const INPUTS: u64 = 120;
/// Source time between two messages of all inputs together, ns: 10 million a second.
const PACE: i64 = 100;
/// How long each input is waited for, and so how far the merge stands behind the newest message, ns of source time.
const WAIT: i64 = 5_000_000;
/// What the output holds: 2^20 entries.
const RING_BYTES: u64 = 64 << 20;
/// The same where messages have bytes.
const GROUPS_RING_BYTES: u64 = 16 << 20;
/// A message to an event builder: a decomposed trace.
const GROUPS_BYTES: usize = 512;
/// Shared memory that the messages of groups are copied into.
const COPIES_BYTES: u64 = 256 << 20;

/// How many of so many messages are of input `i`: rates are 1 to 7.
fn share(i: u64, of: u64) -> u64 {
    let rate = |i: u64| 1 + i % 7;
    of * rate(i) / (0..INPUTS).map(rate).sum::<u64>()
}

/// Streams whose messages a merge follows, a lap at a time.
struct Laps {
    writers: Vec<Writer>,
    readers: Vec<Reader>,
    merge: Merge,
    begin: Instant,
    /// Source time at which the next lap begins.
    time: i64,
    /// Messages of a lap.
    count: u64,
    /// Where each input stood when the lap began.
    from: Vec<u64>,
    /// The payload of each message.
    payload: Vec<u8>,
}

impl Laps {
    /// Inputs with messages of `len` bytes, of which `count` are a lap, and a merge with an output of `ring` bytes.
    fn new(folder: &Folder, count: u64, len: usize, ring: u64) -> Result<Self, Fault> {
        let data = Data::on_disk(folder.path());
        // A lap, and what the output keeps, twice: then they have gone round before the first round.
        let held = 2 * (count + ring / 64);
        let (mut writers, mut readers, mut inputs) = (Vec::new(), Vec::new(), Vec::new());
        for i in 0..INPUTS {
            let stream = format!("bank{i}");
            let room = share(i, held) * (72 + len as u64);
            let room = room.next_multiple_of(1 << 20).max(4 << 20);
            // Each is a member of its own.
            writers.push(named(&folder.path().join(&stream), &stream, &Options::memory(room))?);
            readers.push(data.reader(&stream, Default::default())?);
            inputs.push(MergeInput { stream, wait: WAIT, ..MergeInput::default() });
        }
        let options = MergeOptions {
            stream: Options::memory(ring),
            by: MergeBy::Time { slice: 1_000_000, ahead_max: 600_000_000_000 },
        };
        let merge = Merge::open(&data, "all", &inputs, &options)?;
        let from = vec![0; INPUTS as usize];
        let payload = vec![0x5a; len];
        Ok(Self { writers, readers, merge, begin: Instant::now(), time: META.source_time, count, from, payload })
    }

    /// Brings the messages of a lap into the inputs: rates 1 to 7, times that are not in order within some messages.
    fn bring(&mut self) -> Result<(), Fault> {
        let span = self.count as i64 * PACE;
        for (i, writer) in (0..INPUTS).zip(&mut self.writers) {
            self.from[i as usize] = writer.next_sequence();
            let mine = share(i, self.count);
            for n in 0..mine {
                let swing = (n * 7919 + i * 104_729) % 3 * PACE as u64;
                let source_time = self.time + span / mine as i64 * n as i64 + (swing + i) as i64;
                let origin_seq = writer.next_sequence();
                writer.push(&Meta { source_time, origin_seq, ..META }, &[&self.payload]).map_err(wrong("append"))?;
            }
            writer.publish();
        }
        self.time += span;
        Ok(())
    }

    /// The merge follows until all of the lap is in the output.
    fn follow(&mut self) -> Result<(), Fault> {
        while !self.step()? {}
        Ok(())
    }

    /// A step of the merge. True once all of the lap is in the output.
    fn step(&mut self) -> Result<bool, Fault> {
        let heard =
            vec![UpstreamState { frontier: self.time + WAIT, ended: false, ..UpstreamState::NOTHING }; INPUTS as usize];
        let clock = self.begin.elapsed().as_nanos() as i64;
        self.merge.step(self.time + WAIT, clock, &heard)?;
        Ok(self.merge.frontier() >= self.time / 1_000_000 * 1_000_000)
    }

    /// Every entry of the lap is proven and seen once.
    fn walk(&mut self) -> Result<(), Fault> {
        let mut sum = 0;
        for (reader, (&from, writer)) in self.readers.iter_mut().zip(self.from.iter().zip(&self.writers)) {
            let mut see = |entries: &[store::Entry]| {
                sum = entries.iter().fold(sum, |sum, e| sum ^ e.source_time as u64 ^ u64::from(e.length));
            };
            reader.walk(from, writer.next_sequence(), &mut see).map_err(wrong("walk"))?;
        }
        std::hint::black_box(sum);
        Ok(())
    }
}

/// The same with an event builder behind: groups of what falls into one window, their messages copied out.
struct Builder {
    laps: Laps,
    work: Work,
    slot: Slot,
    native: Native,
}

impl Builder {
    fn new(folder: &Folder, count: u64) -> Result<Self, Fault> {
        const STAGE: &str = "built";
        let laps = Laps::new(folder, count, GROUPS_BYTES, GROUPS_RING_BYTES)?;
        let (data, inputs) = (Data::on_disk(folder.path()), vec!["all".to_owned()]);
        let parameters = json!({"find": "window", "window": "2 us", "multiplicity": 2, "make": "messages"});
        let options = WorkOptions { parameters: parameters.to_string(), ..WorkOptions::memory(1, COPIES_BYTES) };
        let mut work = Work::open(&data, STAGE, &inputs, &options)?;
        let from = work.ready(0, 0);
        work.send_parameters(0)?;
        let stream = options.slot_options();
        let asked = SlotOptions { number: 0, inputs: inputs.clone(), stream, from, by_key: false };
        let slot = Slot::open(&data, STAGE, asked)?;
        let place = WorkerPlace { data, stage: STAGE.to_owned(), slot: 0, inputs };
        let native = Native::new(&workers::GROUPS, place, &parameters)?;
        Ok(Self { laps, work, slot, native })
    }

    /// Until all of the lap that the merge shows has been looked at, and its groups are in the output.
    fn follow(&mut self) -> Result<(), Fault> {
        let heard = [UpstreamState { frontier: self.laps.time, ended: false, ..UpstreamState::NOTHING }];
        let mut is_merged = false;
        while !(is_merged && self.work.is_idle()) {
            is_merged = self.laps.step()?;
            self.work.step(self.laps.time, &heard)?;
            while self.slot.step(&mut self.native, &mut |_| false)? == flow::Stepped::Worked {
                self.work.step(self.laps.time, &heard)?;
            }
        }
        Ok(())
    }

    /// Messages in the output so far.
    fn built(&mut self) -> u64 {
        self.work.writer().next_sequence()
    }
}

/// Runs the rows; `tell` hears of each as it is done.
pub(super) fn run(sizes: &Sizes, rounds: u32, tell: &mut dyn FnMut(&Figure)) -> Result<Vec<Figure>, Fault> {
    let figures = vec![ordered(sizes, rounds)?, grouped(sizes, rounds)?];
    figures.iter().for_each(tell);
    Ok(figures)
}

/// Groups, copied out.
fn grouped(sizes: &Sizes, rounds: u32) -> Result<Figure, Fault> {
    let folder = Folder::in_memory()?;
    let count = sizes.small_messages / 20;
    let mut builder = Builder::new(&folder, count)?;
    let bytes = count * GROUPS_BYTES as u64;
    // Around the memory of the inputs, and that which the copies go into.
    for _ in 0..(2 * COPIES_BYTES).div_ceil(bytes).max(3) {
        builder.laps.bring()?;
        builder.follow()?;
    }
    let piece = vec![0x5a; GROUPS_BYTES];
    let mut ring = Ring::new(folder.path(), 4).map_err(wrong("a ring for the limit"))?;
    let builder = RefCell::new(builder);
    let (ours, limit) = alternate(
        rounds,
        || {
            let mut builder = builder.borrow_mut();
            builder.laps.bring()?;
            let before = builder.built();
            let sample = timed(bytes, count, || builder.follow())?;
            // A group that is open at the end comes with the next lap.
            let built = builder.built() - before;
            if built < count * 9 / 10 {
                return Err(Fault::new("bench: groups are missing", format!("{built} messages of {count}")));
            }
            Ok(sample)
        },
        || {
            timed(bytes, count, || {
                ring.memcpy(&piece, count);
                Ok(())
            })
        },
    )?;
    Ok(Figure {
        name: "merge, groups and copies of 120 streams / memcpy of the payload".into(),
        conditions: format!(
            "{count} messages of {GROUPS_BYTES} B a round of {INPUTS} streams, as in the row above; windows of 2 us, groups of two streams or more, each message of a group checked and copied into recycled segments; merge, runner and slot in one thread; /dev/shm, no fdatasync"
        ),
        unit: Unit::Millions,
        ours: Series { name: "merge, groups, copies", samples: ours },
        limits: vec![Series { name: "glibc memcpy of the same pieces", samples: limit }],
        must: 0.3,
        aim: 0.7,
    })
}

/// One order.
fn ordered(sizes: &Sizes, rounds: u32) -> Result<Figure, Fault> {
    let folder = Folder::in_memory()?;
    let count = sizes.small_messages / 5;
    let mut laps = Laps::new(&folder, count, 8, RING_BYTES)?;
    // Around the rings: what comes then is recycled.
    for _ in 0..(2 * RING_BYTES / 64).div_ceil(count).max(3) {
        laps.bring()?;
        laps.follow()?;
    }
    let laps = RefCell::new(laps);
    let (ours, limit) = alternate(
        rounds,
        || {
            let mut laps = laps.borrow_mut();
            laps.bring()?;
            timed(count * 64, count, || laps.follow())
        },
        || timed(count * 64, count, || laps.borrow_mut().walk()),
    )?;
    Ok(Figure {
        name: "merge: 120 streams / walk of the entries".into(),
        conditions: format!(
            "{count} messages a round of {INPUTS} streams, rates 1 to 7, 10 million a second of source time, in some disorder, waited for {} ms; into a view of recycled segments (ring {} MiB), a commit a slice of 1 ms or more; one thread, each entry of an input proven on both sides; /dev/shm, no fdatasync",
            WAIT / 1_000_000,
            RING_BYTES >> 20,
        ),
        unit: Unit::Millions,
        ours: Series { name: "merge by time", samples: ours },
        limits: vec![Series { name: "read and prove the same entries", samples: limit }],
        must: 0.1,
        aim: 0.3,
    })
}
