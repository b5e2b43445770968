//! Mirrors: what an entry keeps of the near stream, and where a mirror goes on after kills and power cuts.

use beamport_store::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use testkit::{Dice, Machine};

const A: [u8; 16] = [0xaa; 16];
const B: [u8; 16] = [0xbb; 16];

/// Message `sequence` of a near stream: its payload begins with uuid, epoch and sequence.
fn message(near: Identity) -> (Mirrored, Vec<u8>) {
    let Identity { uuid, epoch, sequence } = near;
    let mut payload = uuid.to_vec();
    payload.extend(epoch.to_le_bytes());
    payload.extend(sequence.to_le_bytes());
    payload.resize(28 + sequence as usize % 300, 7);
    let meta = Meta {
        source_time: sequence as i64 * 100,
        origin: 0,
        origin_seq: sequence * 3,
        schema: SchemaId(*b"test"),
        flags: flags::SUSPECT | flags::of_source(9),
    };
    let crc = crc32c(&payload);
    (Mirrored { meta, arrival_time: 1_000_000 + sequence as i64, near, crc }, payload)
}

fn near(uuid: [u8; 16], epoch: u32, sequence: u64) -> Identity {
    Identity { uuid, epoch, sequence }
}

fn push(writer: &mut Writer, near: Identity) -> Result<u64> {
    let (message, payload) = message(near);
    writer.push_mirrored(&message, &payload)
}

/// The near identity of each message, as header and entries say; payloads must say the same.
fn mirrored(media: &Arc<dyn Media>, folder: &Path) -> Vec<Identity> {
    let mut reader = Reader::open(media, folder, ReadOptions { early: true, ..Default::default() }).unwrap();
    let header = reader.header().clone();
    let mut all = Vec::new();
    loop {
        let batch = reader.read(1000).unwrap();
        if batch.is_empty() {
            return all;
        }
        for m in batch.iter() {
            let Near { uuid, epoch, .. } = header.near_of(m.sequence).unwrap();
            let near = near(uuid, epoch, m.entry.parent_sequence);
            assert_eq!(m.payload, message(near).1, "{near:?}");
            all.push(near);
        }
    }
}

#[test]
fn an_entry_keeps_what_the_near_stream_says_of_its_message() {
    let machine = Machine::new(1);
    let media: Arc<dyn Media> = machine.start();
    let folder = Path::new("/disk/s");
    let mut writer = Writer::open(&media, folder, "s", &Options::disk(1 << 20)).unwrap();
    writer.origin("camera").unwrap();
    assert_eq!(writer.mirrored(), []);
    for sequence in 5..9 {
        push(&mut writer, near(A, 2, sequence)).unwrap();
    }
    writer.publish();
    let mut reader = Reader::open(&media, folder, ReadOptions { early: true, ..Default::default() }).unwrap();
    let (entry, payload) = reader.get(1).unwrap().unwrap();
    let (wanted, bytes) = message(near(A, 2, 6));
    assert_eq!(payload, bytes);
    assert_eq!(Meta { flags: entry.flags, ..Meta::of(&entry, 0) }, wanted.meta);
    assert_eq!((entry.arrival_time, entry.parent_sequence, entry.parent), (wanted.arrival_time, 6, 0));
    assert_eq!(reader.header().near_of(3), Some(Near { from: 0, uuid: A, epoch: 2 }));
}

#[test]
fn arrival_never_falls_and_a_step_back_is_flagged() {
    let machine = Machine::new(1);
    let media: Arc<dyn Media> = machine.start();
    let folder = Path::new("/live/s");
    let mut writer = Writer::open(&media, folder, "s", &Options::memory(1 << 20)).unwrap();
    writer.origin("camera").unwrap();
    for (sequence, arrival_time) in [(0, 5_000_000_000), (1, 4_999_999_999), (2, 1), (3, 6_000_000_000)] {
        let (message, payload) = message(near(A, 1, sequence));
        writer.push_mirrored(&Mirrored { arrival_time, ..message }, &payload).unwrap();
    }
    writer.publish();
    let mut reader = Reader::open(&media, folder, ReadOptions { early: true, ..Default::default() }).unwrap();
    let seen = reader.read(4).unwrap();
    let seen: Vec<_> = seen.iter().map(|m| (m.entry.arrival_time, m.entry.flags & flags::CLOCK)).collect();
    assert_eq!(seen, [(5_000_000_000, 0), (5_000_000_000, 0), (5_000_000_000, flags::CLOCK), (6_000_000_000, 0)]);
}

#[test]
fn a_mirror_knows_the_newest_message_of_each_near_stream() {
    let machine = Machine::new(1);
    let media: Arc<dyn Media> = machine.start();
    let folder = Path::new("/disk/s");
    let open = || Writer::open(&media, folder, "s", &Options::disk(1 << 20)).unwrap();
    let mut writer = open();
    writer.origin("camera").unwrap();
    for (uuid, epoch, sequences) in [(A, 1, 0..4), (A, 2, 2..6), (B, 1, 0..2)] {
        for sequence in sequences {
            push(&mut writer, near(uuid, epoch, sequence)).unwrap();
        }
    }
    drop(writer);
    assert_eq!(open().mirrored(), [near(A, 2, 5), near(B, 1, 1)]);
}

/// A mirror that follows a list of near messages through kills and power cuts: it always goes on behind what it has.
fn follows(seed: u64) -> u64 {
    let (machine, mut dice) = (Machine::new(seed), Dice::new(seed));
    let level = dice.pick(&[Level::Disk, Level::Memory]);
    let folder = PathBuf::from(if level == Level::Disk { "/disk/s" } else { "/live/s" });
    let options = Options { level, drain: Drain::Caller, ..Options::memory(4 << 20) };
    // Another stream or another epoch begins now and then.
    let mut list = Vec::new();
    let (mut uuid, mut epoch, mut sequence) = ([0; 16], 1, 0);
    for _ in 0..400 {
        if dice.one_in(20) {
            epoch += 1;
        }
        if dice.one_in(40) {
            uuid[0] += 1;
            (epoch, sequence) = (1, 0);
        }
        list.push(near(uuid, epoch, sequence));
        sequence += 1;
    }
    let mut faults = 0;
    let mut process = machine.start();
    let mut media: Arc<dyn Media> = process.clone();
    loop {
        let mut writer = Writer::open(&media, &folder, "s", &options).unwrap();
        writer.origin("camera").unwrap();
        let mut next = match writer.mirrored().last() {
            Some(last) => list.iter().position(|one| one == last).unwrap() + 1,
            None => 0,
        };
        assert_eq!(mirrored(&media, &folder), list[..next], "seed {seed}");
        let fault = dice.below(120);
        for _ in 0..fault {
            match (dice.below(8), list.get(next)) {
                (0, _) => _ = writer.publish(),
                (1, _) if level == Level::Disk => _ = writer.drain().unwrap(),
                (_, Some(one)) => {
                    push(&mut writer, *one).unwrap();
                    next += 1;
                }
                _ => {}
            }
        }
        if next == list.len() {
            drop(writer);
            assert_eq!(mirrored(&media, &folder), list, "seed {seed}");
            return faults;
        }
        faults += 1;
        // SAFETY: the writer is all that holds maps.
        unsafe {
            if level == Level::Disk && dice.one_in(2) {
                machine.power_cut(writer)
            } else {
                machine.kill(&process, writer)
            }
        }
        process = machine.start();
        media = process.clone();
    }
}

#[test]
fn a_mirror_goes_on_behind_what_it_has_through_kills_and_power_cuts() {
    let faults: u64 = (0..300).map(follows).sum();
    assert!(faults > 300, "{faults}");
}
