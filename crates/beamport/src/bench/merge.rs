//! `beamport bench merge`: many streams brought into one order, against a walk over the entries that it has to see.

use super::Sizes;
use super::measure::{Figure, Series, Unit, timed};
use super::place::{Folder, wrong};
use super::store::{META, alternate, open};
use flow::{Data, Fault, Heard, Merge, MergeBy, MergeInput, MergeOptions};
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
}

impl Laps {
    fn new(folder: &Folder, count: u64) -> Result<Self, Fault> {
        let data = Data::on_disk(folder.path());
        // A lap and what the output keeps, twice.
        let room = (2 * 80 * (4 * count / INPUTS + RING_BYTES / 64)).next_multiple_of(1 << 20).max(8 << 20);
        let (mut writers, mut readers, mut inputs) = (Vec::new(), Vec::new(), Vec::new());
        for i in 0..INPUTS {
            let stream = format!("bank{i}");
            writers.push(open(&folder.path().join(&stream), &Options::memory(room))?);
            readers.push(data.reader(&stream, Default::default())?);
            inputs.push(MergeInput { stream, wait: WAIT });
        }
        let options = MergeOptions {
            stream: Options::memory(RING_BYTES),
            by: MergeBy::Time { slice: 1_000_000, ahead_max: 600_000_000_000 },
        };
        let merge = Merge::open(&data, "all", &inputs, &options)?;
        let from = vec![0; INPUTS as usize];
        Ok(Self { writers, readers, merge, begin: Instant::now(), time: META.source_time, count, from })
    }

    /// Brings the messages of a lap into the inputs: rates 1 to 7, times that are not in order within some messages.
    fn bring(&mut self) -> Result<(), Fault> {
        let weights: u64 = (0..INPUTS).map(|i| 1 + i % 7).sum();
        let span = self.count as i64 * PACE;
        for (i, writer) in (0..INPUTS).zip(&mut self.writers) {
            self.from[i as usize] = writer.next_sequence();
            let mine = self.count * (1 + i % 7) / weights;
            for n in 0..mine {
                let swing = (n * 7919 + i * 104_729) % 3 * PACE as u64;
                let source_time = self.time + span / mine as i64 * n as i64 + (swing + i) as i64;
                let origin_seq = writer.next_sequence();
                writer.push(&Meta { source_time, origin_seq, ..META }, &[&[0x5a; 8]]).map_err(wrong("append"))?;
            }
            writer.publish();
        }
        self.time += span;
        Ok(())
    }

    /// The merge follows until all of the lap is in the output.
    fn follow(&mut self) -> Result<(), Fault> {
        let heard = vec![Heard { frontier: self.time + WAIT, ended: false }; INPUTS as usize];
        let end = self.time / 1_000_000 * 1_000_000;
        while self.merge.frontier() < end {
            let clock = self.begin.elapsed().as_nanos() as i64;
            self.merge.step(self.time + WAIT, clock, &heard)?;
        }
        Ok(())
    }

    /// Every entry of the lap is proven and seen once.
    fn walk(&mut self) -> Result<(), Fault> {
        let mut sum = 0;
        for (reader, (&from, writer)) in self.readers.iter_mut().zip(self.from.iter().zip(&self.writers)) {
            let mut see = |entries: &[store::Entry]| {
                sum += entries.iter().map(|e| e.source_time as u64 ^ u64::from(e.length)).sum::<u64>();
            };
            reader.walk(from, writer.next_sequence(), &mut see).map_err(wrong("walk"))?;
        }
        std::hint::black_box(sum);
        Ok(())
    }
}

/// Runs the row; `tell` hears of it when it is done.
pub(super) fn run(sizes: &Sizes, rounds: u32, tell: &mut dyn FnMut(&Figure)) -> Result<Vec<Figure>, Fault> {
    let folder = Folder::in_memory()?;
    let count = sizes.small_messages / 5;
    let mut laps = Laps::new(&folder, count)?;
    // Around the ring of the output: what comes then is recycled.
    for _ in 0..(2 * RING_BYTES / 64).div_ceil(count).max(2) {
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
    let figure = Figure {
        name: "merge: 120 streams / walk of the entries",
        conditions: format!(
            "{count} messages a round of {INPUTS} streams, rates 1 to 7, 10 million a second of source time, in some disorder, waited for {} ms; into a view of recycled segments (ring {} MiB), a commit a slice of 1 ms or more; one thread, each entry of an input proven on both sides; /dev/shm, no fdatasync",
            WAIT / 1_000_000,
            RING_BYTES >> 20,
        ),
        unit: Unit::Millions,
        ours: Series { name: "merge by time", samples: ours },
        limits: vec![Series { name: "read and prove the same entries", samples: limit }],
        must: 0.1,
        aim: 0.25,
    };
    tell(&figure);
    Ok(vec![figure])
}
