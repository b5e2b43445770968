//! Readers in another container, with a shared memory of its own: they have the folder of a stream and not its live
//! place.

use beamport_store::*;
use std::path::Path;
use std::sync::Arc;
use testkit::{Dice, Machine, PretendMedia};

fn writer(process: &Arc<PretendMedia>, folder: &str, options: &Options) -> Writer {
    let media: Arc<dyn Media> = process.clone();
    let mut writer = Writer::open(&media, Path::new(folder), "s", options).unwrap();
    writer.origin("o").unwrap();
    writer
}

fn reader(process: &Arc<PretendMedia>, folder: &str) -> Reader {
    let media: Arc<dyn Media> = process.clone();
    let options = ReadOptions { early: true, batch_bytes: 1 << 16, check: Check::All, ..ReadOptions::default() };
    Reader::open(&media, Path::new(folder), options).unwrap()
}

fn append(writer: &mut Writer, numbers: std::ops::Range<u64>) {
    for n in numbers {
        let meta = Meta { source_time: n as i64, origin: 0, origin_seq: n, schema: SchemaId(*b"test"), flags: 0 };
        writer.append(&meta, &payload(n)).unwrap();
    }
    writer.drain().unwrap();
}

fn payload(number: u64) -> Vec<u8> {
    (0..8000).map(|at| (number * 7 + at) as u8).collect()
}

/// Retention deletes segments and writes their files again while readers look at them.
#[test]
fn views_of_a_reader_in_another_shared_memory_stay_as_they_are() {
    let (mut read, mut gone) = (0, 0);
    for seed in 0..60 {
        let machine = Machine::new(seed);
        let (here, there) = (machine.start(), machine.start_with_own_memory());
        let options = Options { drain: Drain::Caller, retain_bytes: Some(2 << 20), ..Options::disk(1 << 20) };
        let mut stream = writer(&here, "/disk/s", &options);
        append(&mut stream, 0..40);
        let mut dice = Dice::new(seed);
        let mut readers: Vec<Reader> = (0..3).map(|_| reader(&there, "/disk/s")).collect();
        assert!(readers.iter().all(|reader| reader.live_place().is_none() && reader.is_here().is_ok()));
        let (mut next, mut held) = (40, Vec::new());
        for _ in 0..150 {
            if dice.one_in(2) {
                let count = dice.range(1, 60);
                append(&mut stream, next..next + count);
                next += count;
            }
            let reader = &mut readers[dice.below(3) as usize];
            match reader.read(5) {
                Ok(batch) if batch.is_empty() => reader.refresh().unwrap(),
                Ok(batch) => {
                    read += batch.len();
                    for message in batch.iter() {
                        assert_eq!(message.payload, payload(message.entry.origin_seq), "seed {seed}");
                    }
                    let places: Vec<_> =
                        (0..batch.len()).map(|at| (batch.entries[at].origin_seq, batch.place(at).1)).collect();
                    held.push((batch.segments()[0].clone(), places));
                }
                Err(Error::Gone { first }) => {
                    gone += 1;
                    let at = reader.position();
                    assert!(first > at, "seed {seed}: {first} at {at}");
                    reader.seek(first);
                }
                Err(e) => panic!("seed {seed}: {e}"),
            }
            if held.len() > 4 {
                held.remove(dice.below(4) as usize);
            }
            for (segment, places) in &held {
                for (number, at) in places {
                    assert_eq!(segment.bytes(*at, 8000), Some(&*payload(*number)), "seed {seed}: changed under a pin");
                }
            }
        }
    }
    assert!(read > 1000 && gone > 100, "{read} read, {gone} gone");
}

#[test]
fn a_memory_stream_in_another_shared_memory_is_an_error_and_not_empty() {
    let machine = Machine::new(1);
    let (here, there) = (machine.start(), machine.start_with_own_memory());
    let options = Options { drain: Drain::Caller, ..Options::memory(1 << 20) };
    let mut stream = writer(&here, "/disk/s", &options);
    append(&mut stream, 0..10);
    assert!(reader(&here, "/disk/s").is_here().is_ok());
    let answer = reader(&there, "/disk/s").is_here();
    assert!(matches!(&answer, Err(Error::Elsewhere(_))), "{answer:?}");
    // The next start is there: the messages of the first are gone, and those of the second are found.
    drop(stream);
    let mut stream = writer(&there, "/disk/s", &options);
    append(&mut stream, 0..10);
    assert!(reader(&there, "/disk/s").is_here().is_ok());
    assert!(reader(&here, "/disk/s").is_here().is_err());
    // After a start of the machine there is none anywhere.
    // SAFETY: the writer is all that maps memory.
    unsafe { machine.power_cut(stream) };
    assert!(reader(&machine.start(), "/disk/s").is_here().is_ok());
}
