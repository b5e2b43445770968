//! `beamport-bench store`, second part: what marks and company cost. Small messages until they are safe, one message until
//! it is safe, and a writer with a reader at its heels.

use super::limit::{Pages, Recycled};
use super::measure::{Figure, Sample, Series, Unit, alternate, timed};
use super::place::{Folder, wrong};
use super::reading::{Reading, SPIN};
use super::sizes::Sizes;
use super::writers::{BATCH, JUMBO_BYTES, append, open};
use flow::Fault;
use std::time::Duration;
use store::{Level, Options, WhenFull, Writer};

/// A message that is committed alone: two blocks.
const COMMITTED_BYTES: usize = 8192;
/// The allowed cost of a commit, in times of one write and fdatasync.
const COMMIT_OF_ONE: f64 = 2.5;
/// Retention of the streams of this part, in segments.
const SEGMENTS: usize = 4;

fn until_safe(writer: &mut Writer) -> Result<(), Fault> {
    let end = writer.next_sequence();
    match writer.wait(end, Level::Disk, Duration::from_secs(120)) {
        Ok(true) => Ok(()),
        Ok(false) => Err(flow::not_written("the mark `disk` does not come", writer.trouble())),
        Err(error) => Err(wrong("the mark `disk`")(error)),
    }
}

fn durable(sizes: &Sizes) -> Options {
    Options { retain_bytes: Some(sizes.disk_bytes), when_full: WhenFull::Wait, ..Options::disk(sizes.live_bytes) }
}

/// 100 B, published in batches, until the mark `disk` of the last.
pub(crate) fn durable_small(sizes: &Sizes, rounds: u32) -> Result<Figure, Fault> {
    let folder = Folder::on_disk()?;
    let piece = [0x5a; 100];
    let mut writer = open(&folder.path().join("stream"), &durable(sizes))?;
    let mut write = |count| -> Result<(), Fault> {
        append(&mut writer, &piece, count, BATCH).map_err(wrong("append"))?;
        until_safe(&mut writer)
    };
    // Two laps: rings and files have been written, released and taken again.
    write(2 * sizes.disk_bytes / 168)?;
    let mut ours = Series::new("disk stream until the mark");
    for _ in 0..rounds {
        let count = sizes.small_messages;
        ours.samples.push(timed(count * piece.len() as u64, count, || write(count))?);
    }
    Ok(Figure {
        name: "disk, 100 B".into(),
        conditions: format!(
            "{} messages a round, publish every {BATCH}, recycled files ({} MiB in all), live ring {} MiB; CRC and index in, fdatasync in until the mark `disk` of the last",
            sizes.small_messages,
            sizes.disk_bytes >> 20,
            sizes.live_bytes >> 20,
        ),
        unit: Unit::Millions,
        ours,
        limits: Vec::new(),
        must: 3.0,
        aim: 10.0,
    })
}

/// One message at a time, each waited for.
pub(crate) fn commit_of_one(sizes: &Sizes, rounds: u32) -> Result<Figure, Fault> {
    let folder = Folder::on_disk()?;
    let piece = Pages::filled(COMMITTED_BYTES).map_err(wrong("no memory for the message"))?;
    let piece = piece.bytes();
    let mut files = Recycled::new(folder.path(), "w", SEGMENTS, false).map_err(wrong("the files of the limit"))?;
    let mut writer = open(&folder.path().join("stream"), &Options { retain_bytes: Some(64 << 20), ..durable(sizes) })?;
    let count = sizes.commits;
    let bytes = count * COMMITTED_BYTES as u64;
    let mut each = |count: u64| -> Result<(), Fault> {
        for _ in 0..count {
            append(&mut writer, piece, 1, 1).map_err(wrong("append"))?;
            until_safe(&mut writer)?;
        }
        Ok(())
    };
    each(count)?;
    let (ours, limit) = alternate(
        rounds,
        || timed(bytes, count, || each(count)),
        || {
            let one = timed(bytes, count, || (0..count).try_for_each(|_| files.write(piece, COMMITTED_BYTES as u64)));
            let one = one.map_err(wrong("the limit on the disk"))?;
            Ok(Sample { seconds: one.seconds * COMMIT_OF_ONE, ..one })
        },
    )?;
    Ok(Figure {
        name: "commit of one / 2.5 fdatasync".into(),
        conditions: format!(
            "{count} messages of {COMMITTED_BYTES} B a round, each appended and waited for at mark `disk`; the limit writes and syncs one file, its time multiplied by {COMMIT_OF_ONE}",
        ),
        unit: Unit::Millions,
        ours: Series { name: "append, wait for the mark", samples: ours },
        limits: vec![Series { name: "pwrite + fdatasync, 2.5 times its time", samples: limit }],
        must: 1.0,
        aim: 1.5,
    })
}

/// A writer and a reader in another process that checks each byte, at once; the writer waits for it where the ring is full.
pub(crate) fn both_at_once(sizes: &Sizes, rounds: u32) -> Result<Figure, Fault> {
    let folder = Folder::in_memory()?;
    let stream = folder.path().join("stream");
    let piece = Pages::filled(JUMBO_BYTES).map_err(wrong("no memory for the message"))?;
    let mut writer = open(&stream, &Options::memory(sizes.ring_bytes))?;
    let mut reading = Reading::start(&stream)?;
    let count = sizes.round_bytes / JUMBO_BYTES as u64;
    let bytes = count * JUMBO_BYTES as u64;
    let mut ours = Series::new("writer, reader at its heels");
    for round in 0..rounds + 2 {
        reading.follow(count)?;
        let sample = timed(bytes, count, || -> Result<(), Fault> {
            append(&mut writer, piece.bytes(), count, BATCH).map_err(wrong("append"))?;
            reading.done(bytes, count).map(|_| ())
        })?;
        // Two laps: pages of the ring are touched on both sides.
        if round >= 2 {
            ours.samples.push(sample);
        }
    }
    Ok(Figure {
        name: "write, read and check at once, 8.8 kB".into(),
        conditions: format!(
            "{count} messages a round through a ring of {} MiB in /dev/shm, publish every {BATCH}, a counted reader in another process checks every entry and payload and looks for {} us before it sleeps; until it has seen the last; no fdatasync",
            sizes.ring_bytes >> 20,
            SPIN.as_micros(),
        ),
        unit: Unit::Millions,
        ours,
        limits: Vec::new(),
        must: 1.3,
        aim: 1.8,
    })
}
