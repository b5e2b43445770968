//! Room that the outside writes into, and messages of every size, on the pretend machine and on the real one.

use beamport_store::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use testkit::{Dice, Machine};

fn meta(n: u64) -> Meta {
    Meta { source_time: n as i64, origin: 0, origin_seq: n, schema: SchemaId(*b"test"), flags: 0 }
}

fn payload(n: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (n as usize * 31 + i * 7) as u8).collect()
}

fn all(media: &Arc<dyn Media>, folder: &Path) -> Vec<Vec<u8>> {
    let mut reader = Reader::open(media, folder, ReadOptions { early: true, ..Default::default() }).unwrap();
    let mut all = Vec::new();
    loop {
        let batch = reader.read(1000).unwrap();
        if batch.is_empty() {
            return all;
        }
        all.extend(batch.iter().map(|m| m.payload.to_vec()));
    }
}

#[test]
fn a_block_received_whole_becomes_its_messages() {
    let machine = Machine::new(1);
    let media: Arc<dyn Media> = machine.start();
    let folder = Path::new("/live/s");
    let mut writer = Writer::open(&media, folder, "s", &Options::memory(1 << 20)).unwrap();
    writer.origin("a").unwrap();
    // Four buffers of 9000 bytes, three messages, one of them empty.
    let mut room = writer.reserve(36_000).unwrap();
    let (at, bytes) = room.rest();
    assert_eq!((at, bytes.len(), bytes.as_ptr() as usize % 64), (0, 36_000, 0));
    for (i, len) in [8800, 0, 17].into_iter().enumerate() {
        bytes[i * 9000..][..len].copy_from_slice(&payload(i as u64, len));
    }
    for (i, len) in [8800, 0, 17].into_iter().enumerate() {
        assert_eq!(room.commit(&meta(i as u64), i * 9000..i * 9000 + len).unwrap(), i as u64);
    }
    // The rest can be filled later; published before it is.
    assert_eq!(room.publish(), 3);
    let (at, bytes) = room.rest();
    assert_eq!((at, bytes.len()), (18_024, 36_000 - 18_024));
    bytes[..5].copy_from_slice(&payload(3, 5));
    assert!(matches!(room.commit(&meta(3), 18_023..18_029), Err(Error::Limit(_))), "begins at no multiple of 8");
    assert!(matches!(room.commit(&meta(3), 8..16), Err(Error::Limit(_))), "is taken already");
    assert!(matches!(room.commit(&meta(3), 18_024..36_001), Err(Error::Limit(_))), "is outside");
    room.commit(&meta(3), 18_024..18_029).unwrap();
    // Room that no commit used is used again.
    let sequence = writer.append(&meta(4), &payload(4, 3)).unwrap();
    let seen = all(&media, folder);
    assert_eq!(seen, [payload(0, 8800), vec![], payload(2, 17), payload(3, 5), payload(4, 3)]);
    let mut reader = Reader::open(&media, folder, ReadOptions::default()).unwrap();
    assert_eq!(reader.get(sequence).unwrap().unwrap().0.offset(), 18_032);
}

/// A writer that reserves, commits some and abandons some, against a `Vec`, through kills and power cuts.
fn rooms(seed: u64) -> (u64, u64) {
    let machine = Machine::new(seed);
    let mut dice = Dice::new(seed);
    let level = dice.pick(&[Level::Disk, Level::Memory]);
    let folder = PathBuf::from(if level == Level::Disk { "/disk/s" } else { "/live/s" });
    let when_full = WhenFull::DropOldest;
    let options = Options { level, when_full, drain: Drain::Caller, ..Options::memory(1 << 20) };
    let (mut faults, mut abandoned) = (0, 0);
    let mut log: Vec<Vec<u8>> = Vec::new();
    let mut process = machine.start();
    let mut media: Arc<dyn Media> = process.clone();
    let mut writer = Some(Writer::open(&media, &folder, "s", &options).unwrap());
    let mut safe = 0;
    for _ in 0..100 {
        let Some(w) = &mut writer else { break };
        w.origin("a").unwrap();
        match dice.below(12) {
            0..6 => {
                let len = if dice.one_in(8) { dice.range(100_000, 300_000) } else { dice.below(9000) } as usize;
                let Ok(mut room) = w.reserve(len) else { continue };
                for _ in 0..dice.below(5) {
                    let (at, bytes) = room.rest();
                    let skip = (dice.below(200) as usize).next_multiple_of(8);
                    // Where the taken part ends is no multiple of 8 only at the end of the room.
                    if !at.is_multiple_of(8) || skip > bytes.len() {
                        break;
                    }
                    let len = dice.below((bytes.len() - skip) as u64 + 1).min(dice.below(20_000)) as usize;
                    // An abandoned reservation is written to all the same.
                    bytes.fill(0xee);
                    bytes[skip..skip + len].copy_from_slice(&payload(log.len() as u64, len));
                    match room.commit(&meta(log.len() as u64), at + skip..at + skip + len) {
                        Ok(sequence) => {
                            assert_eq!(sequence, log.len() as u64);
                            log.push(payload(sequence, len));
                        }
                        Err(e) => assert!(e.is_full() || matches!(e, Error::Dropped), "{e}"),
                    }
                }
                abandoned += 1;
            }
            6 => {
                let bytes = payload(log.len() as u64, dice.below(600) as usize);
                if w.push(&meta(log.len() as u64), &[&bytes]).is_ok() {
                    log.push(bytes);
                }
            }
            7 | 8 => {
                w.drain().unwrap();
                safe = log.len();
            }
            9 | 10 => {
                w.publish();
                let first = w.first_sequence() as usize;
                assert_eq!(all(&media, &folder), log[first..], "seed {seed}");
            }
            _ => {
                w.publish();
                faults += 1;
                let cut = dice.one_in(2);
                // SAFETY: the writer is all that holds maps.
                unsafe {
                    if cut {
                        machine.power_cut(writer.take())
                    } else {
                        machine.kill(&process, writer.take())
                    };
                }
                process = machine.start();
                media = process.clone();
                let w = Writer::open(&media, &folder, "s", &options).unwrap();
                let count = w.next_sequence() as usize;
                if cut && level == Level::Memory {
                    (log, safe) = (Vec::new(), 0);
                }
                assert!(count >= safe && count <= log.len() && (cut || count == log.len()), "seed {seed}: {count}");
                log.truncate(count);
                writer = Some(w);
            }
        }
    }
    assert_eq!(machine.unallocated_write(), None, "seed {seed}");
    (faults, abandoned)
}

#[test]
fn rooms_survive_what_messages_survive() {
    many_rooms(200);
}

#[test]
#[ignore = "minutes"]
fn soak_rooms() {
    many_rooms(20_000);
}

fn many_rooms(seeds: u64) {
    let seeds: u64 = std::env::var("BEAMPORT_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(seeds);
    let (mut faults, mut abandoned) = (0, 0);
    for seed in 1..=seeds {
        let counts = rooms(seed);
        (faults, abandoned) = (faults + counts.0, abandoned + counts.1);
    }
    println!("injected {faults} kills and power cuts into {abandoned} rooms half used: 0 lost, 0 wrong");
    assert!(faults > seeds);
}

/// Appends and reads back messages around each limit of size: (bytes, whether reserved).
fn sizes(folder: &Path, level: Level, sizes: &[u64]) {
    let media = Os::shared();
    let _ = std::fs::remove_dir_all(folder);
    let options = Options { level, ..Options::memory(1 << 20) };
    let mut writer = Writer::open(&media, folder, "sizes", &options).unwrap();
    let live = writer.header().live.clone();
    writer.origin("a").unwrap();
    let mut reader = Reader::open(&media, folder, ReadOptions::default()).unwrap();
    for (n, &len) in sizes.iter().enumerate() {
        let n = n as u64;
        let mut room = loop {
            match writer.reserve(len as usize) {
                Ok(room) => break room,
                Err(e) => assert!(e.is_full(), "{e}"),
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        // Both ends and a step in between: what a whole gigabyte holds is for its checksum to say.
        let (_, bytes) = room.rest();
        for at in (0..bytes.len()).step_by(4099).chain(bytes.len().checked_sub(1)) {
            bytes[at] = (n as u8) ^ (at as u8);
        }
        room.commit(&meta(n), 0..len as usize).unwrap();
        writer.publish();
        if level == Level::Disk {
            assert!(writer.wait(n + 1, Level::Disk, std::time::Duration::from_secs(600)).unwrap());
        }
        let batch = reader.read(10).unwrap();
        let message = batch.iter().next().unwrap();
        assert_eq!((batch.len(), message.payload.len() as u64), (1, len));
        for at in (0..len as usize).step_by(4099).chain((len as usize).checked_sub(1)) {
            assert_eq!(message.payload[at], (n as u8) ^ (at as u8), "{len} at {at}");
        }
        reader.commit(n + 1);
    }
    let most = limits::PAYLOAD_BYTES_MAX as usize;
    assert!(matches!(writer.reserve(most + 1), Err(Error::Limit(_))));
    drop((reader, writer));
    let seen = verify(&media, folder, &mut |_, _| {}).unwrap();
    assert_eq!(seen.count, sizes.len() as u64);
    let _ = std::fs::remove_dir_all(live);
    let _ = std::fs::remove_dir_all(folder);
}

const SMALL: [u64; 16] =
    [0, 1, 7, 8, 9, 255, 256, 257, 4095, 4096, 65_535, 65_536, 131_072, 131_073, (1 << 20) + 1, 3 << 20];

#[test]
fn messages_of_every_size_come_back() {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sizes-{}", std::process::id()));
    sizes(&tmp, Level::Disk, &SMALL);
    sizes(Path::new(&format!("/dev/shm/beamport-test-sizes-{}", std::process::id())), Level::Memory, &SMALL);
}

#[test]
#[ignore = "needs 1 GiB of disk and of shared memory"]
fn soak_messages_of_a_gigabyte_come_back() {
    let most = limits::PAYLOAD_BYTES_MAX;
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("giga-{}", std::process::id()));
    sizes(&tmp, Level::Disk, &[0, most, 1, most - 7]);
    sizes(Path::new(&format!("/dev/shm/beamport-test-giga-{}", std::process::id())), Level::Memory, &[most, 3]);
    println!("messages of 0 B to 1 GiB: 0 injected, 6 appended, 6 read back, at disk and memory, 0 lost, 0 wrong");
}
