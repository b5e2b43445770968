//! Long, many, and far: what a stream of a billion messages, a folder of ten thousand streams, and sequences of
//! 2^40 cost. Sequences that nobody can write begin there: the first opening is made by hand, as the format says.

use beamport_store::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn media() -> Arc<dyn Media> {
    Os::shared()
}

fn meta(n: u64) -> Meta {
    Meta { source_time: n as i64, origin: 0, origin_seq: n, schema: SchemaId(*b"test"), flags: 0 }
}

/// A folder on the disk of the build; what it holds goes with it, shared memory too.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let place = Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id())));
        std::fs::create_dir_all(&place.0).unwrap();
        place
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for entry in std::fs::read_dir(&self.0).into_iter().flatten().flatten() {
            if let Ok(header) = Header::read(&Os, &entry.path()) {
                let _ = std::fs::remove_dir_all(header.live);
            }
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Memory of this process that is no file, in bytes.
fn anonymous() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|l| l.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

fn mix(z: u64) -> u64 {
    let mut z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn salt(uuid: &[u8; 16], epoch: u32, n: u64) -> u32 {
    let word = |at: usize| u64::from_le_bytes(uuid[at..at + 8].try_into().unwrap());
    (mix(mix(word(0) ^ mix(word(8) ^ mix(u64::from(epoch) + 1))) ^ n) >> 32) as u32
}

/// A cold disk stream whose `first..count` are promised, without a byte of them.
fn make(folder: &Path, name: &str, first: u64, count: u64, segments: (u32, u32)) -> Header {
    std::fs::create_dir_all(folder).unwrap();
    let header = Header {
        format: FORMAT,
        uuid: *b"0123456789abcdef",
        name: name.into(),
        level: Level::Disk,
        clock: Clock::Epoch,
        index_entries: 65536,
        segment_bytes: 64 << 20,
        created: 1,
        boot: [0; 16],
        live: Os.live_root().join(format!("large-{}-{first}", std::process::id())),
        home: None,
        shared_memory: None,
        epochs: vec![(1, first)],
        near: Vec::new(),
    };
    header.write(&Os, folder).unwrap();
    std::fs::write(folder.join("origins"), format!("{:08x} o\n", crc32c(b"o"))).unwrap();
    let mut record = [0; 64];
    record[0] = 1;
    record[8..16].copy_from_slice(&count.to_le_bytes());
    record[16..24].copy_from_slice(&first.to_le_bytes());
    record[24] = 1;
    record[28..32].copy_from_slice(&segments.1.to_le_bytes());
    record[40..44].copy_from_slice(&segments.0.to_le_bytes());
    record[44] = 1;
    let crc = crc32c(&record[..60]) ^ salt(&header.uuid, 0, 1);
    record[60..].copy_from_slice(&crc.to_le_bytes());
    let mut both = vec![0; 4096 + 64];
    both[4096..].copy_from_slice(&record);
    std::fs::write(folder.join("commit"), both).unwrap();
    header
}

#[test]
fn sequences_begin_at_a_billion_and_at_two_to_the_forty() {
    let mut sum = 0;
    for first in [1_000_000_000, 1 << 40, (1 << 48) - 65_536] {
        let place = Place::new("far");
        let folder = place.0.join("s");
        // A writer takes the index up where it stands: at the start of a segment there is none yet.
        let first = first / 65536 * 65536;
        make(&folder, "s", first, first, (7, 7));
        let options = Options { drain: Drain::Caller, ..Options::disk(1 << 20) };
        let mut writer = Writer::open(&media(), &folder, "s", &options).unwrap();
        assert_eq!(writer.next_sequence(), first);
        for n in first..first + 70_000 {
            match writer.append(&meta(n), &n.to_le_bytes()) {
                Ok(at) => assert_eq!(at, n),
                // Numbers of index segments have 32 bits.
                Err(Error::Limit(why)) => {
                    assert!(n == 1 << 48 && why.contains("281474976710656"), "{n}: {why}");
                    break;
                }
                Err(e) => {
                    assert!(e.is_full(), "{e}");
                    writer.drain().unwrap();
                    assert_eq!(writer.append(&meta(n), &n.to_le_bytes()).unwrap(), n);
                }
            }
        }
        let end = writer.next_sequence();
        drop(writer);
        let seen = verify(&media(), &folder, &mut |_, _| ()).unwrap();
        assert_eq!((seen.first, seen.count, seen.wrong), (first, end, 0));
        let mut reader = Reader::open(&media(), &folder, ReadOptions::default()).unwrap();
        assert_eq!(reader.get(first + 9).unwrap().unwrap().1, (first + 9).to_le_bytes());
        assert_eq!(reader.time_range(first as i64 + 5, first as i64 + 9).unwrap(), (first + 5, first + 9));
        sum += end - first;
    }
    println!(
        "sequences from 1e9, 2^40 and up to 2^48: 0 injected, {sum} messages appended and verified, 0 lost, 0 wrong"
    );
}

#[test]
#[ignore = "its line in the report"]
fn soak_sequences_far_away() {
    sequences_begin_at_a_billion_and_at_two_to_the_forty();
}

#[test]
#[ignore = "minutes"]
fn soak_a_billion_messages() {
    const COUNT: u64 = 1_000_000_000;
    // All of them would be 72 GB. Over a hundred million are kept.
    const KEPT_BYTES: u64 = 8 << 30;
    let place = Place::new("long");
    let folder = place.0.join("s");
    let options = Options { retain_bytes: Some(KEPT_BYTES), ..Options::disk(256 << 20) };
    let mut writer = Writer::open(&media(), &folder, "s", &options).unwrap();
    let began = Instant::now();
    for n in 0..COUNT {
        while let Err(e) = writer.push(&meta(n), &[&n.to_le_bytes()]) {
            assert!(e.is_full(), "{e}");
            writer.wait_room(Duration::from_millis(10));
        }
        if n % 256 == 0 {
            writer.publish();
        }
    }
    assert!(writer.wait(COUNT, Level::Disk, Duration::from_secs(600)).unwrap());
    let wrote = began.elapsed();
    drop(writer);
    let began = Instant::now();
    let mut reader = Reader::open(&media(), &folder, ReadOptions::default()).unwrap();
    assert_eq!(reader.get(COUNT - 1).unwrap().unwrap().1, (COUNT - 1).to_le_bytes());
    let opened = began.elapsed();
    let first = reader.bounds().first;
    let mut at = first;
    loop {
        let batch = reader.read(usize::MAX).unwrap();
        if batch.is_empty() {
            break;
        }
        for m in batch.iter() {
            assert!(m.sequence == at && m.payload == at.to_le_bytes(), "{at}");
            at += 1;
        }
    }
    assert!(at == COUNT && first < COUNT - 100_000_000, "{first} to {at}");
    let began = Instant::now();
    drop(Writer::open(&media(), &folder, "s", &options).unwrap());
    println!(
        "a stream of {COUNT} messages, of which {} were kept and read: 0 injected, 0 lost, 0 wrong; {:.1} M/s to the mark \
         `disk`, opened and its last message read in {:.1} ms, opened for writing and closed in {:.0} ms, {} MB of memory",
        COUNT - first,
        COUNT as f64 * 1e-6 / wrote.as_secs_f64(),
        opened.as_secs_f64() * 1e3,
        began.elapsed().as_secs_f64() * 1e3,
        anonymous() >> 20
    );
}

#[test]
#[ignore = "minutes"]
fn soak_ten_thousand_streams_in_a_folder() {
    let place = Place::new("many");
    let (mut opening, mut reading) = (Duration::ZERO, Duration::ZERO);
    let options = Options { drain: Drain::Caller, ..Options::disk(1 << 20) };
    for n in 0..10_000 {
        let folder = place.0.join(format!("s{n}"));
        let began = Instant::now();
        let mut writer = Writer::open(&media(), &folder, "s", &options).unwrap();
        opening += began.elapsed();
        writer.append(&meta(n), b"one").unwrap();
    }
    for n in 0..10_000 {
        let began = Instant::now();
        let mut reader = Reader::open(&media(), &place.0.join(format!("s{n}")), ReadOptions::default()).unwrap();
        assert_eq!(reader.get(0).unwrap().unwrap().0.origin_seq, n);
        reading += began.elapsed();
    }
    println!(
        "10000 streams in one folder: 0 injected, 0 lost; made in {:.2} ms each, opened and read in {:.2} ms each",
        opening.as_secs_f64() * 0.1,
        reading.as_secs_f64() * 0.1
    );
}

/// A stream of 100 GB, of which the disk holds the index alone: payloads are holes, and read as zeroes.
#[test]
#[ignore = "the other process"]
fn as_reader_of_a_hundred_gigabytes() {
    if std::env::var_os("BEAMPORT_TEST_ALONE").is_none() {
        return;
    }
    const BYTES: usize = 1 << 20;
    const EACH: u64 = 64;
    const COUNT: u64 = 100_000;
    let place = Place::new("wide");
    let folder = place.0.join("s");
    let header = make(&folder, "s", 0, COUNT, (0, (COUNT / EACH) as u32));
    let zero = crc32c(&vec![0; BYTES]);
    let table = 65536 / 8;
    for index in 0..COUNT.div_ceil(65536) {
        let mut file = vec![0; table];
        for sequence in index * 65536..COUNT.min((index + 1) * 65536) {
            let salt = salt(&header.uuid, 1, sequence);
            let mut entry = [0_u8; 64];
            entry[0..8].copy_from_slice(&sequence.to_le_bytes());
            entry[16..24].copy_from_slice(&sequence.to_le_bytes());
            entry[40..44].copy_from_slice(&((sequence / EACH) as u32).to_le_bytes());
            entry[44..48].copy_from_slice(&((sequence % EACH) as u32 * (BYTES as u32 / 8)).to_le_bytes());
            entry[48..52].copy_from_slice(&(BYTES as u32).to_le_bytes());
            entry[52..56].copy_from_slice(&(zero ^ salt).to_le_bytes());
            let crc = crc32c(&entry[..60]) ^ salt;
            entry[60..].copy_from_slice(&crc.to_le_bytes());
            file.extend(entry);
        }
        std::fs::write(folder.join(format!("i-{index:08x}")), file).unwrap();
    }
    for number in 0..=COUNT / EACH {
        let file = std::fs::File::create(folder.join(format!("p-{number:08x}"))).unwrap();
        file.set_len(64 << 20).unwrap();
    }
    let before = anonymous();
    let began = Instant::now();
    let mut reader =
        Reader::open(&media(), &folder, ReadOptions { check: Check::Entries, ..ReadOptions::default() }).unwrap();
    let opened = began.elapsed();
    // Every segment is mapped; to check the bytes too would fill the page cache with zeroes.
    for sequence in (0..COUNT).step_by(EACH as usize) {
        reader.seek(sequence);
        let batch = reader.read(1).unwrap();
        assert_eq!(batch.iter().next().unwrap().payload.len(), BYTES);
    }
    let grown = anonymous().saturating_sub(before);
    assert!(grown < 50 << 20, "{} MiB", grown >> 20);
    println!(
        "a reader of a stream of 100 GB: 0 injected, opened in {:.1} ms, {} KiB of its own",
        opened.as_secs_f64() * 1e3,
        grown >> 10
    );
}

/// In a process of its own: what the tests beside it take is not the reader's.
#[test]
fn a_reader_of_a_hundred_gigabytes_is_small() {
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "--nocapture", "as_reader_of_a_hundred_gigabytes"])
        .env("BEAMPORT_TEST_ALONE", "1")
        .status();
    assert!(status.unwrap().success());
}

#[test]
#[ignore = "its line in the report"]
fn soak_a_reader_of_a_hundred_gigabytes() {
    a_reader_of_a_hundred_gigabytes_is_small();
}

/// A stream of `count` messages on the medium of which no record speaks and no memory is left, as after a power cut; and
/// the place of message `at` there.
fn unrecorded(folder: &Path, len: usize, count: u64, at: u64) -> (PathBuf, u64) {
    let mut writer = Writer::open(&media(), folder, "s", &Options::disk(256 << 20)).unwrap();
    writer.origin("o").unwrap();
    let before = std::fs::read(folder.join("commit")).unwrap();
    let payload = vec![7; len];
    for n in 0..count {
        while let Err(e) = writer.push(&meta(n), &[&payload]) {
            assert!(e.is_full(), "{e}");
            writer.wait_room(Duration::from_millis(10));
        }
    }
    assert!(writer.wait(count, Level::Disk, Duration::from_secs(600)).unwrap());
    let mut reader = Reader::open(&media(), folder, ReadOptions::default()).unwrap();
    let entry = reader.entries(at, 1).unwrap()[0];
    drop((reader, writer));
    let header = Header::read(&Os, folder).unwrap();
    let _ = std::fs::remove_dir_all(&header.live);
    // As after a start of the machine: nothing of it is in doubt because of the page cache.
    Header { boot: [0; 16], ..header }.write(&Os, folder).unwrap();
    std::fs::write(folder.join("commit"), before).unwrap();
    (folder.join(format!("p-{:08x}", entry.segment)), entry.offset())
}

#[test]
fn a_long_tail_is_proven_side_by_side_and_ends_where_it_is_damaged() {
    const COUNT: u64 = 500_000;
    for damaged in [None, Some(70_000), Some(300_001), Some(COUNT - 1)] {
        let place = Place::new("long-tail");
        let folder = place.0.join("s");
        let (file, at) = unrecorded(&folder, 24, COUNT, damaged.unwrap_or(0));
        if damaged.is_some() {
            use std::os::unix::fs::FileExt;
            std::fs::File::options().write(true).open(file).unwrap().write_all_at(&[9], at + 3).unwrap();
        }
        let end = damaged.unwrap_or(COUNT);
        let writer = Writer::open(&media(), &folder, "s", &Options::disk(256 << 20)).unwrap();
        assert_eq!(writer.next_sequence(), end);
        assert!(matches!(writer.recovery(), Recovery::Cut { first, end: COUNT, .. } if *first == end), "{damaged:?}");
        let mut reader = Reader::open(&media(), &folder, ReadOptions::default()).unwrap();
        let (mut next, mut time) = (0, 0);
        while next < end {
            let batch = reader.read(1000).unwrap();
            assert!(batch.iter().all(|m| m.payload == [7; 24]));
            next = batch.next();
            time = batch.entries.last().unwrap().source_time;
        }
        // The table of times was made again with it.
        assert_eq!((next, time), (end, end as i64 - 1));
        assert_eq!(reader.time_range(end as i64 - 5, i64::MAX).unwrap(), (end - 5, end));
    }
}

/// A gigabyte that no commit record speaks for: the power went before the first record of it.
#[test]
#[ignore = "a minute"]
fn soak_a_gigabyte_of_unsynced_tail() {
    for (len, count) in [(100, 6_000_000_u64), (8800, 115_000)] {
        let place = Place::new("tail");
        let folder = place.0.join("s");
        unrecorded(&folder, len, count, 0);
        let began = Instant::now();
        let writer = Writer::open(&media(), &folder, "s", &Options::disk(256 << 20)).unwrap();
        let seconds = began.elapsed().as_secs_f64();
        assert_eq!(writer.next_sequence(), count);
        println!(
            "a tail of {:.2} GB in messages of {len} B that no record speaks for: 1 injected, 0 lost, recovered in {:.2} s, \
             {:.2} s per GB",
            (count * (len as u64 + 64)) as f64 * 1e-9,
            seconds,
            seconds * 1e9 / (count * (len as u64 + 64)) as f64
        );
    }
}
