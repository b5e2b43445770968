//! `beamport-bench store`: append, disk and reading, each against the limit of this machine in the same rounds.

use super::limit::{Pages, Pass, Recycled, Ring, SEGMENT_BYTES};
use super::marks;
use super::measure::{Figure, Series, Unit, alternate, timed};
use super::place::{Folder, wrong};
use super::reading::Reading;
use super::sizes::Sizes;
use super::view;
use super::waiting;
use super::writers::{BATCH, JUMBO_BYTES, append, open};
use flow::Fault;
use std::path::Path;
use std::time::Duration;
use store::{Level, Options, WhenFull};

/// Measures one figure in so many rounds.
type Row = fn(&Sizes, u32) -> Result<Figure, Fault>;

/// Runs all rows; `tell` hears of each as it is done.
pub(crate) fn run(sizes: &Sizes, rounds: u32, tell: &mut dyn FnMut(&Figure)) -> Result<Vec<Figure>, Fault> {
    let rows: [Row; 11] = [
        |sizes, rounds| append_over_memcpy(sizes, rounds, "append 1 MiB / memcpy", 1 << 20, 1, (0.8, 1.0)),
        |sizes, rounds| append_over_memcpy(sizes, rounds, "append 8.8 kB / memcpy", JUMBO_BYTES, BATCH, (0.7, 0.9)),
        append_small,
        disk,
        marks::durable_small,
        marks::commit_of_one,
        read,
        marks::both_at_once,
        view::push,
        view::read,
        waiting::company,
    ];
    let mut figures = Vec::new();
    for row in rows {
        let figure = row(sizes, rounds)?;
        tell(&figure);
        figures.push(figure);
    }
    for figure in waiting::hops(sizes, rounds)? {
        tell(&figure);
        figures.push(figure);
    }
    Ok(figures)
}

fn append_over_memcpy(
    sizes: &Sizes,
    rounds: u32,
    name: &'static str,
    bytes: usize,
    batch: u64,
    (must, aim): (f64, f64),
) -> Result<Figure, Fault> {
    let folder = Folder::in_memory()?;
    let piece = Pages::filled(bytes).map_err(wrong("no memory for the message"))?;
    let piece = piece.bytes();
    let count = sizes.round_bytes / bytes as u64;
    let mut writer = open(&folder.path().join("stream"), &Options::memory(sizes.ring_bytes))?;
    let mut ring = Ring::new(folder.path(), (sizes.ring_bytes / SEGMENT_BYTES as u64) as usize)
        .map_err(wrong("the ring of the limit cannot be made"))?;
    // Two laps: after them every segment has been written, released and taken again.
    append(&mut writer, piece, 2 * sizes.ring_bytes / bytes as u64, batch).map_err(wrong("append"))?;
    let total = count * bytes as u64;
    let (ours, limit) = alternate(
        rounds,
        || timed(total, count, || append(&mut writer, piece, count, batch)).map_err(wrong("append")),
        || {
            timed(total, count, || {
                ring.memcpy(piece, count);
                Ok(())
            })
        },
    )?;
    Ok(Figure {
        name: name.into(),
        conditions: format!(
            "{} MiB a round into recycled /dev/shm segments (ring {} MiB, pages touched), source in cache; CRC in, index in, publish every {batch}; no fdatasync",
            total >> 20,
            sizes.ring_bytes >> 20,
        ),
        unit: Unit::Gigabytes,
        ours: Series { name: "append", samples: ours },
        limits: vec![Series { name: "glibc memcpy of the same pieces", samples: limit }],
        must,
        aim,
    })
}

fn append_small(sizes: &Sizes, rounds: u32) -> Result<Figure, Fault> {
    let folder = Folder::in_memory()?;
    let piece = [0x5a; 100];
    let mut writer = open(&folder.path().join("stream"), &Options::memory(sizes.ring_bytes))?;
    // An entry and a payload on 8 bytes: 168 B a message.
    append(&mut writer, &piece, 2 * sizes.ring_bytes / 168, BATCH).map_err(wrong("append"))?;
    let mut ours = Series::new("append");
    for _ in 0..rounds {
        let count = sizes.small_messages;
        let work = || append(&mut writer, &piece, count, BATCH);
        ours.samples.push(timed(count * piece.len() as u64, count, work).map_err(wrong("append"))?);
    }
    Ok(Figure {
        name: "append 100 B".into(),
        conditions: format!(
            "{} messages a round, one thread, into recycled /dev/shm segments (ring {} MiB); CRC in, index in, publish every {BATCH}; no fdatasync",
            sizes.small_messages,
            sizes.ring_bytes >> 20,
        ),
        unit: Unit::Millions,
        ours,
        limits: Vec::new(),
        must: 20.0,
        aim: 50.0,
    })
}

fn disk(sizes: &Sizes, rounds: u32) -> Result<Figure, Fault> {
    let folder = Folder::on_disk()?;
    let piece = Pages::filled(1 << 20).map_err(wrong("no memory for the message"))?;
    let piece = piece.bytes();
    let mut limits = TwoWrites::new(folder.path(), (sizes.disk_bytes / SEGMENT_BYTES as u64) as usize)?;
    let options =
        Options { retain_bytes: Some(sizes.disk_bytes), when_full: WhenFull::Wait, ..Options::disk(sizes.live_bytes) };
    let mut writer = open(&folder.path().join("stream"), &options)?;
    let count = sizes.disk_round_bytes / piece.len() as u64;
    let bytes = count * piece.len() as u64;
    let mut write = |count| -> Result<(), Fault> {
        append(&mut writer, piece, count, 1).map_err(wrong("append"))?;
        let end = writer.next_sequence();
        match writer.wait(end, Level::Disk, Duration::from_secs(120)) {
            Ok(true) => Ok(()),
            Ok(false) => Err(flow::not_written("the mark `disk` does not come", writer.trouble())),
            Err(error) => Err(wrong("the mark `disk`")(error)),
        }
    };
    write(2 * sizes.disk_bytes / piece.len() as u64)?;
    let mut ours = Series::new("disk stream until the mark");
    for round in 0..rounds {
        limits.round(round, piece, (bytes, count), || {
            ours.samples.push(timed(bytes, count, || write(count))?);
            Ok(())
        })?;
    }
    Ok(Figure {
        name: "disk, 1 MiB / the better of two writes".into(),
        conditions: format!(
            "{} MiB a round; recycled files of 64 MiB ({} MiB in all), fdatasync in (each 64 MiB and at the end), live ring {} MiB; CRC in for the stream, out for the limits",
            bytes >> 20,
            sizes.disk_bytes >> 20,
            sizes.live_bytes >> 20,
        ),
        unit: Unit::Gigabytes,
        ours,
        limits: limits.series.into(),
        must: 0.75,
        aim: 0.95,
    })
}

/// What writing on the disk costs without anybody of us: through the page cache and past it.
pub(crate) struct TwoWrites {
    files: [Recycled; 2],
    pub(crate) series: [Series; 2],
}

impl TwoWrites {
    pub(crate) fn new(folder: &Path, segments: usize) -> Result<Self, Fault> {
        let recycled = |name: &str, direct| {
            Recycled::new(folder, name, segments, direct).map_err(wrong("the files of the limit cannot be made"))
        };
        Ok(Self {
            files: [recycled("w", false)?, recycled("d", true)?],
            series: [Series::new("pwrite + fdatasync"), Series::new("O_DIRECT + fdatasync")],
        })
    }

    /// A round of both, which write `piece` until they have `(bytes, messages)`, and of `ours`; who goes first changes.
    pub(crate) fn round(
        &mut self,
        round: u32,
        piece: &[u8],
        (bytes, messages): (u64, u64),
        mut ours: impl FnMut() -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut steps = [0, 1, 2];
        steps.rotate_left(round as usize % 3);
        for step in steps {
            if step == 2 {
                ours()?;
                continue;
            }
            let files = &mut self.files[step];
            let sample =
                timed(bytes, messages, || files.write(piece, bytes)).map_err(wrong("the limit on the disk"))?;
            self.series[step].samples.push(sample);
        }
        Ok(())
    }
}

fn read(sizes: &Sizes, rounds: u32) -> Result<Figure, Fault> {
    let folder = Folder::in_memory()?;
    let stream = folder.path().join("stream");
    let piece = Pages::filled(JUMBO_BYTES).map_err(wrong("no memory for the message"))?;
    let count = sizes.read_messages;
    let bytes = count * JUMBO_BYTES as u64;
    // Room for all of it: each message takes its payload on 64 bytes and an entry; no segment is released.
    let ring_bytes = (count * (JUMBO_BYTES as u64 + 128)).next_multiple_of(64 << 20) + (256 << 20);
    let mut writer = open(&stream, &Options::memory(ring_bytes))?;
    append(&mut writer, piece.bytes(), count, BATCH).map_err(wrong("append"))?;
    let pass = Pass::new(&stream).map_err(wrong("the limit cannot map the segments"))?;
    let mut reading = Reading::start(&stream)?;
    let first = reading.lap(bytes, count)?;
    let (ours, limit) = alternate(
        rounds,
        || reading.lap(bytes, count),
        || {
            timed(bytes, count, || {
                std::hint::black_box(pass.run(bytes));
                Ok(())
            })
        },
    )?;
    Ok(Figure {
        name: "read and check / CRC pass".into(),
        conditions: format!(
            "{count} messages of {JUMBO_BYTES} B ({} MiB, index {} MiB) in /dev/shm, another process, every entry and payload checked, pages mapped by an earlier lap (that lap: {:.2} GB/s); no fdatasync",
            bytes >> 20,
            (count * 64) >> 20,
            bytes as f64 * 1e-9 / first.seconds,
        ),
        unit: Unit::Gigabytes,
        ours: Series { name: "reader in another process", samples: ours },
        limits: vec![Series { name: "CRC-32C over the same segments", samples: limit }],
        must: 0.7,
        aim: 0.95,
    })
}
