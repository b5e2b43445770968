//! Views against what they cannot beat: pushing one against a walk over the entries that it points to, reading one
//! against a pass over the bytes that it shows.

use super::limit::{Pages, Pass};
use super::measure::{Figure, Sample, Series, Unit, alternate, timed};
use super::place::{Folder, wrong};
use super::sizes::Sizes;
use super::writers::{BATCH, JUMBO_BYTES, append, open};
use flow::Fault;
use std::path::Path;
use store::{Error, Options, Os, Parent, ReadOptions, Reader, Writer};

/// Is shown (which parent, first sequence, entries).
type See<'a> = dyn FnMut(usize, u64, &[store::Entry]) -> Result<(), Error> + 'a;

/// Banks of a large detector, each a stream.
const PARENTS: u64 = 120;

/// Parents with `count` messages of `piece` each, and a view that knows them.
fn web(
    folder: &Path,
    parents: u64,
    count: u64,
    piece: &[u8],
    ring_bytes: u64,
) -> Result<(Vec<Reader>, Writer, Vec<Parent>), Fault> {
    // Room for all of it: no segment is released.
    let room = (count * (piece.len() as u64 + 136)).next_multiple_of(1 << 20) * 5 / 4 + (8 << 20);
    let mut readers = Vec::new();
    let mut view = open(&folder.join("view"), &Options::memory(ring_bytes))?;
    let mut known = Vec::new();
    for i in 0..parents {
        let name = format!("bank{i}");
        let mut writer = open(&folder.join(&name), &Options::memory(room))?;
        writer.origin("bank").map_err(wrong("the origin"))?;
        append(&mut writer, piece, count, BATCH).map_err(wrong("append"))?;
        let reader = Reader::open(&Os::shared(), &folder.join(&name), ReadOptions::default());
        readers.push(reader.map_err(wrong("a parent cannot be read"))?);
        known.push(view.parent(&name).map_err(wrong("a parent"))?);
    }
    Ok((readers, view, known))
}

pub(super) fn push(sizes: &Sizes, rounds: u32) -> Result<Figure, Fault> {
    let folder = Folder::in_memory()?;
    let count = sizes.small_messages / 4;
    let (mut readers, mut view, known) = web(folder.path(), 2, count, &[0x5a; 8], sizes.ring_bytes)?;
    // All entries of the parents, in turns of a batch; each is proven before it is seen.
    let walk = |readers: &mut [Reader], see: &mut See<'_>| {
        for from in (0..count).step_by(BATCH as usize) {
            for (i, reader) in readers.iter_mut().enumerate() {
                let entries = reader.entries(from, BATCH.min(count - from) as usize)?;
                see(i, from, entries)?;
            }
        }
        Ok::<(), Error>(())
    };
    let mut lap = |readers: &mut [Reader]| {
        walk(readers, &mut |i, from, entries| {
            for (entry, sequence) in entries.iter().zip(from..) {
                view.push_view(known[i], sequence, entry)?;
            }
            view.publish();
            Ok(())
        })
    };
    // Twice around the view's ring: what comes then is recycled.
    for _ in 0..(2 * sizes.ring_bytes / 64).div_ceil(2 * count) {
        lap(&mut readers).map_err(wrong("push_view"))?;
    }
    let readers = std::cell::RefCell::new(readers);
    let (ours, limit) = alternate(
        rounds,
        || timed(2 * count * 64, 2 * count, || lap(&mut readers.borrow_mut())).map_err(wrong("push_view")),
        || {
            let mut sum = 0;
            let walked = timed(2 * count * 64, 2 * count, || {
                walk(&mut readers.borrow_mut(), &mut |_, _, entries| {
                    sum += entries.iter().map(|e| e.source_time as u64 ^ u64::from(e.length)).sum::<u64>();
                    Ok(())
                })
            });
            std::hint::black_box(sum);
            walked.map_err(wrong("walk"))
        },
    )?;
    Ok(Figure {
        name: "view: push / walk of the entries".into(),
        conditions: format!(
            "{} entries a round of 2 parents in turns of {BATCH}, one thread, each entry of a parent proven on both sides; into recycled index segments (ring {} MiB), publish every {BATCH}; no fdatasync",
            2 * count,
            sizes.ring_bytes >> 20,
        ),
        unit: Unit::Millions,
        ours: Series { name: "read, prove and push_view", samples: ours },
        limits: vec![Series { name: "read and prove the same entries", samples: limit }],
        must: 0.1,
        aim: 0.3,
    })
}

pub(super) fn read(sizes: &Sizes, rounds: u32) -> Result<Figure, Fault> {
    let folder = Folder::in_memory()?;
    let piece = Pages::filled(JUMBO_BYTES).map_err(wrong("no memory for the message"))?;
    let count = (sizes.read_messages / PARENTS).max(1);
    let (mut readers, mut view, known) = web(folder.path(), PARENTS, count, piece.bytes(), 512 << 20)?;
    for sequence in 0..count {
        for (parent, reader) in known.iter().zip(&mut readers) {
            let entries = reader.entries(sequence, 1).map_err(wrong("walk"))?;
            view.push_view(*parent, sequence, &entries[0]).map_err(wrong("push_view"))?;
        }
    }
    view.publish();
    drop(readers);
    let passes: Result<Vec<Pass>, _> =
        (0..PARENTS).map(|i| Pass::new(&folder.path().join(format!("bank{i}")))).collect();
    let passes = passes.map_err(wrong("the limit cannot map the segments"))?;
    let (messages, bytes) = (count * PARENTS, count * PARENTS * JUMBO_BYTES as u64);
    let mut reader = Reader::open(&Os::shared(), &folder.path().join("view"), ReadOptions::default())
        .map_err(wrong("the view cannot be read"))?;
    let mut lap = || -> Result<Sample, Fault> {
        let mut seen = 0;
        reader.seek(0);
        let sample = timed(bytes, messages, || {
            loop {
                let batch = reader.read(usize::MAX)?;
                if batch.is_empty() {
                    return Ok(());
                }
                seen += batch.iter().map(|m| m.payload.len() as u64).sum::<u64>();
            }
        });
        let sample = sample.map_err(wrong::<Error>("reading"))?;
        if seen == bytes { Ok(sample) } else { Err(Fault::new("bench: the view did not show all", seen)) }
    };
    lap()?;
    let (ours, limit) = alternate(rounds, &mut lap, || {
        timed(bytes, messages, || {
            for pass in &passes {
                std::hint::black_box(pass.run(bytes / PARENTS));
            }
            Ok(())
        })
    })?;
    Ok(Figure {
        name: "view: read and check / CRC pass".into(),
        conditions: format!(
            "{messages} messages of {JUMBO_BYTES} B of {PARENTS} parents, message by message ({} MiB) in /dev/shm, one thread; every entry of the view, of the parent and every payload checked, pages mapped; no fdatasync",
            bytes >> 20,
        ),
        unit: Unit::Gigabytes,
        ours: Series { name: "reader of the view", samples: ours },
        limits: vec![Series { name: "CRC-32C over the segments of the parents", samples: limit }],
        must: 0.5,
        aim: 0.9,
    })
}
