//! Streams on the real file system: append, read, recycle, reopen, cut.

use beamport_store::*;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
    fn memory(name: &str) -> Self {
        let path = PathBuf::from(format!("/dev/shm/beamport-test-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Ok(header) = Header::read(Os::shared().as_ref(), &self.0) {
            let _ = std::fs::remove_dir_all(header.live);
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn meta(n: u64) -> Meta {
    Meta { source_time: n as i64 * 1000, origin: 0, origin_seq: n, schema: SchemaId(*b"test"), flags: 0 }
}

fn payload(n: u64) -> Vec<u8> {
    let len = (n * 7919 % 5000) as usize;
    (0..len).map(|i| (n as usize * 31 + i) as u8).collect()
}

fn read_all(media: &Arc<dyn Media>, place: &Place, early: bool) -> Vec<(u64, Vec<u8>)> {
    let mut reader = Reader::open(media, &place.0, ReadOptions { early, ..Default::default() }).unwrap();
    let mut out = Vec::new();
    loop {
        let batch = reader.read(100).unwrap();
        if batch.is_empty() {
            return out;
        }
        out.extend(batch.iter().map(|m| (m.entry.origin_seq, m.payload.to_vec())));
    }
}

#[test]
fn what_is_appended_is_read() {
    let media = Os::shared();
    for (place, options) in
        [(Place::memory("rw"), Options::memory(64 << 20)), (Place::new("rw"), Options::disk(8 << 20))]
    {
        let mut writer = Writer::open(&media, &place.0, "s", &options).unwrap();
        assert_eq!(*writer.recovery(), Recovery::Fresh);
        for n in 0..3000 {
            loop {
                match writer.append(&meta(n), &payload(n)) {
                    Ok(sequence) => break assert_eq!(sequence, n),
                    Err(e) => assert!(e.is_full(), "{e}"),
                }
                writer.wait_room(Duration::from_millis(10));
            }
        }
        if options.level == Level::Disk {
            assert!(writer.wait(3000, Level::Disk, Duration::from_secs(60)).unwrap());
        }
        let all = read_all(&media, &place, false);
        assert_eq!(all.len(), 3000);
        for (n, (seq, bytes)) in all.iter().enumerate() {
            assert_eq!(*seq, n as u64);
            assert_eq!(*bytes, payload(n as u64));
        }
        drop(writer);
        assert_eq!(read_all(&media, &place, false).len(), 3000);
        let seen = verify(&media, &place.0, &mut |_, _| {}).unwrap();
        assert_eq!((seen.first, seen.count), (0, 3000));
        // Opened again it goes on where it was, in the same epoch.
        let mut writer = Writer::open(&media, &place.0, "s", &options).unwrap();
        let disk = options.level == Level::Disk;
        assert_eq!(*writer.recovery(), if disk { Recovery::Clean } else { Recovery::Live });
        assert_eq!(writer.append(&meta(3000), b"more").unwrap(), 3000);
        if options.level == Level::Disk {
            assert!(writer.wait(3001, Level::Disk, Duration::from_secs(60)).unwrap());
        }
        let all = read_all(&media, &place, false);
        assert_eq!(all[3000], (3000, b"more".to_vec()));
        assert_eq!(all[2999].1, payload(2999));
    }
}

#[test]
fn the_disk_alone_is_enough() {
    let media = Os::shared();
    let place = Place::new("cold");
    let mut writer = Writer::open(&media, &place.0, "s", &Options::disk(4 << 20)).unwrap();
    for n in 0..2000 {
        while writer.append(&meta(n), &payload(n)).is_err() {
            writer.wait_room(Duration::from_millis(10));
        }
    }
    assert!(writer.wait(2000, Level::Disk, Duration::from_secs(60)).unwrap());
    let header = writer.header().clone();
    // As after a power cut: the writer never closes, the live place is gone.
    let copy = Place::new("cold-copy");
    std::fs::create_dir_all(&copy.0).unwrap();
    for entry in std::fs::read_dir(&place.0).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.0.join(entry.file_name())).unwrap();
    }
    drop(writer);
    let text = std::fs::read_to_string(copy.0.join("stream")).unwrap();
    assert!(text.contains(&hex(&header.uuid)));
    assert!(!header.live.exists());
    assert_eq!(read_all(&media, &copy, false).len(), 2000);
    let mut writer = Writer::open(&media, &copy.0, "s", &Options::disk(4 << 20)).unwrap();
    assert!(matches!(writer.recovery(), Recovery::Cut { epoch: 1, first: 2000, end: 2000, .. }));
    assert_eq!(writer.append(&meta(2000), b"new epoch").unwrap(), 2000);
    assert!(writer.wait(2001, Level::Disk, Duration::from_secs(60)).unwrap());
    let all = read_all(&media, &copy, false);
    assert_eq!(all.len(), 2001);
    for (n, (_, bytes)) in all.iter().take(2000).enumerate() {
        assert_eq!(*bytes, payload(n as u64));
    }
    assert!(matches!(writer.header().check_identity(1, 2001), Err(Error::Rewound { epoch: 1, first: 0, end: 2000 })));
    assert!(writer.header().check_identity(2, 2000).is_ok());
}

#[test]
fn a_removed_stream_leaves_nothing_and_those_who_read_it_keep_what_they_have() {
    let media = Os::shared();
    for (place, options) in
        [(Place::memory("gone"), Options::memory(1 << 20)), (Place::new("gone"), Options::disk(1 << 20))]
    {
        remove(&media, &place.0).unwrap();
        let mut writer = Writer::open(&media, &place.0, "s", &options).unwrap();
        assert!(matches!(remove(&media, &place.0), Err(Error::Locked(_))));
        for n in 0..100 {
            writer.append(&meta(n), &payload(n)).unwrap();
        }
        let live = writer.header().live.clone();
        let mut reader = Reader::open(&media, &place.0, ReadOptions { early: true, ..Default::default() }).unwrap();
        let batch = reader.read(10).unwrap();
        drop(writer);
        remove(&media, &place.0).unwrap();
        assert!(!place.0.exists() && !live.exists());
        assert!(batch.iter().all(|m| m.payload == payload(m.sequence)) && batch.len() == 10);
        assert!(matches!(Reader::open(&media, &place.0, ReadOptions::default()), Err(Error::Missing(_))));
    }
}

#[test]
fn a_memory_stream_turns_round_and_never_shows_old_bytes() {
    let media = Os::shared();
    let place = Place::memory("ring");
    let mut writer = Writer::open(&media, &place.0, "s", &Options::memory(1 << 20)).unwrap();
    let mut reader = Reader::open(&media, &place.0, ReadOptions::default()).unwrap();
    let mut lost = 0;
    let mut next = 0;
    for n in 0..20_000 {
        writer.append(&meta(n), &payload(n)).unwrap();
        if n % 97 == 0 {
            loop {
                match reader.read(64) {
                    Ok(batch) if batch.is_empty() => break,
                    Ok(batch) => {
                        for m in batch.iter() {
                            assert_eq!(m.sequence, next);
                            assert_eq!(m.payload, payload(m.entry.origin_seq));
                            next += 1;
                        }
                    }
                    Err(Error::Gone { first }) => {
                        lost += first - next;
                        next = first;
                        reader.seek(first);
                    }
                    Err(e) => panic!("{e}"),
                }
            }
        }
    }
    assert_eq!(next, 19_982 / 97 * 97 + 1);
    assert!(lost < 10_000);
    let files = std::fs::read_dir(&place.0).unwrap().count();
    assert!(files < 40, "{files} files: segments are not recycled");
}

#[test]
fn a_batch_that_is_held_stays_as_it_is() {
    let media = Os::shared();
    let place = Place::memory("held");
    let mut writer = Writer::open(&media, &place.0, "s", &Options::memory(1 << 20)).unwrap();
    for n in 0..10 {
        writer.append(&meta(n), &payload(n)).unwrap();
    }
    let mut reader = Reader::open(&media, &place.0, ReadOptions::default()).unwrap();
    let batch = reader.read(10).unwrap();
    for n in 10..10_000 {
        writer.append(&meta(n), &payload(n)).unwrap();
    }
    for (n, m) in batch.iter().enumerate() {
        assert_eq!(m.payload, payload(n as u64));
    }
    assert!(writer.first_sequence() > 10);
}

#[test]
fn each_when_full_does_what_it_says() {
    let media = Os::shared();
    for when_full in [WhenFull::Wait, WhenFull::DropOldest, WhenFull::DropNewest] {
        let place = Place::memory("full");
        let options = Options { when_full, ..Options::memory(1 << 20) };
        let mut writer = Writer::open(&media, &place.0, "s", &options).unwrap();
        let named = ReadOptions { name: "slow".into(), kind: Kind::Counted, ..Default::default() };
        let mut reader = Reader::open(&media, &place.0, named).unwrap();
        let (mut taken, mut full, mut dropped) = (0, 0, 0);
        for n in 0..3000 {
            match writer.append(&meta(n), &[1; 1000]) {
                Ok(_) => taken += 1,
                Err(Error::Dropped) => dropped += 1,
                Err(e) if e.is_full() => full += 1,
                Err(e) => panic!("{e}"),
            }
        }
        match when_full {
            WhenFull::Wait => assert!(full > 0 && dropped == 0),
            WhenFull::DropNewest => assert!(full == 0 && dropped > 0 && taken + dropped == 3000),
            WhenFull::DropOldest => {
                assert_eq!((taken, full, dropped), (3000, 0, 0));
                assert!(matches!(reader.read(1), Err(Error::Gone { first }) if first > 0));
                continue;
            }
        }
        // Nothing that was taken is lost, and there is room again once the reader has moved on.
        let mut seen = 0;
        loop {
            let n = reader.read(100).unwrap().len() as u64;
            if n == 0 {
                break;
            }
            seen += n;
            reader.commit(seen);
        }
        assert_eq!(seen, taken);
        assert!(writer.append(&meta(9999), &[1; 1000]).is_ok());
    }
}

#[test]
fn a_second_writer_is_refused() {
    let media = Os::shared();
    let place = Place::new("two");
    let _writer = Writer::open(&media, &place.0, "s", &Options::disk(1 << 20)).unwrap();
    assert!(matches!(Writer::open(&media, &place.0, "s", &Options::disk(1 << 20)), Err(Error::Locked(_))));
}

#[test]
fn times_are_found_though_they_go_backwards() {
    let media = Os::shared();
    let place = Place::memory("times");
    let mut writer = Writer::open(&media, &place.0, "s", &Options::memory(16 << 20)).unwrap();
    let times: Vec<i64> = (0..5000i64).map(|n| n * 10 - (n % 7) * 1000 + i64::from(n == 777) * 1_000_000).collect();
    for (n, &time) in times.iter().enumerate() {
        writer.append(&Meta { source_time: time, ..meta(n as u64) }, b"x").unwrap();
    }
    let mut reader = Reader::open(&media, &place.0, ReadOptions::default()).unwrap();
    for (start, stop) in [(0, 100), (20_000, 21_000), (-10_000, 0), (900_000, 2_000_000), (60_000, 70_000)] {
        let inside = |t: &i64| *t >= start && *t < stop;
        let want = match times.iter().position(&inside) {
            Some(first) => (first as u64, times.iter().rposition(inside).unwrap() as u64 + 1),
            None => (5000, 5000),
        };
        assert_eq!(reader.time_range(start, stop).unwrap(), want, "{start}..{stop}");
    }
    for from in [0, 1, 300, 4999, 5000] {
        let mut next = from;
        let walked = reader.walk_times(from, &mut |span| {
            let here = &times[span.first as usize..span.next as usize];
            assert_eq!(
                (span.first, here.iter().min(), here.iter().max()),
                (next, Some(&span.earliest), Some(&span.latest))
            );
            next = span.next;
        });
        assert_eq!((walked.unwrap().lost(), next), (0, 5000));
    }
}

#[test]
fn one_flipped_bit_is_named_and_never_served() {
    let media = Os::shared();
    let place = Place::new("flip");
    let mut writer = Writer::open(&media, &place.0, "s", &Options::disk(1 << 20)).unwrap();
    for n in 0..50 {
        writer.append(&meta(n), &[n as u8; 300]).unwrap();
    }
    assert!(writer.wait(50, Level::Disk, Duration::from_secs(60)).unwrap());
    drop(writer);
    for (file, at, sequence) in [("p-00000000", 320 * 7 + 5, 7), ("i-00000000", 4096 + 64 * 9 + 3, 9)] {
        let path = place.0.join(file);
        let good = std::fs::read(&path).unwrap();
        let mut bad = good.clone();
        bad[at] ^= 4;
        std::fs::write(&path, &bad).unwrap();
        let seen = verify(&media, &place.0, &mut |_, _| {}).unwrap();
        assert_eq!((seen.wrong, seen.damage[0].first), (1, sequence));
        std::fs::write(&path, &good).unwrap();
    }
    assert_eq!(verify(&media, &place.0, &mut |_, _| {}).unwrap().count, 50);
}

#[test]
fn a_large_message_gets_a_segment_of_its_own() {
    let media = Os::shared();
    let place = Place::memory("large");
    let mut writer = Writer::open(&media, &place.0, "s", &Options::memory(1 << 20)).unwrap();
    writer.append(&meta(0), b"small").unwrap();
    let large: Vec<u8> = (0..5_000_000u32).map(|i| (i >> 3) as u8).collect();
    writer.append(&meta(1), &large).unwrap();
    let mut reader = Reader::open(&media, &place.0, ReadOptions::default()).unwrap();
    writer.append(&meta(2), b"after").unwrap();
    assert_eq!(reader.get(1).unwrap().unwrap().1, large);
    assert_eq!(reader.get(2).unwrap().unwrap().1, b"after");
}

#[test]
fn retention_keeps_a_disk_stream_small() {
    let media = Os::shared();
    let place = Place::new("retain");
    let options = Options { retain_bytes: Some(4 << 20), when_full: WhenFull::DropOldest, ..Options::disk(1 << 20) };
    let mut writer = Writer::open(&media, &place.0, "s", &options).unwrap();
    for n in 0..20_000 {
        while writer.append(&meta(n), &[n as u8; 1000]).is_err() {
            writer.wait_room(Duration::from_millis(5));
        }
    }
    assert!(writer.wait(20_000, Level::Disk, Duration::from_secs(60)).unwrap());
    let bytes: u64 = std::fs::read_dir(&place.0).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes < 6 << 20, "{bytes}");
    assert!(writer.first_sequence() > 10_000);
    let all = read_all(&media, &place, false);
    assert_eq!(all.last().unwrap().0, 19_999);
    assert_eq!(all.len() as u64, 20_000 - writer.first_sequence());
}

#[test]
fn a_reader_of_a_closed_stream_sees_what_a_later_writer_appends() {
    let media = Os::shared();
    let place = Place::new("again");
    let mut writer = Writer::open(&media, &place.0, "s", &Options::disk(1 << 20)).unwrap();
    for n in 0..10 {
        writer.append(&meta(n), &payload(n)).unwrap();
    }
    drop(writer);
    let mut reader = Reader::open(&media, &place.0, ReadOptions::default()).unwrap();
    assert_eq!(reader.read(100).unwrap().len(), 10);
    for round in 1..4 {
        let mut writer = Writer::open(&media, &place.0, "s", &Options::disk(1 << 20)).unwrap();
        for n in round * 10..round * 10 + 10 {
            writer.append(&meta(n), &payload(n)).unwrap();
        }
        assert!(writer.wait(round * 10 + 10, Level::Disk, Duration::from_secs(60)).unwrap());
        assert!(reader.wait(Duration::from_secs(60)).unwrap());
        let batch = reader.read(100).unwrap();
        assert_eq!(batch.len(), 10);
        for m in batch.iter() {
            assert_eq!(m.payload, payload(m.entry.origin_seq));
        }
    }
}

#[test]
fn a_copied_folder_leaves_its_original_alone() {
    let media = Os::shared();
    let (place, copy) = (Place::new("original"), Place::new("copy-of-it"));
    let mut writer = Writer::open(&media, &place.0, "s", &Options::disk(1 << 20)).unwrap();
    for n in 0..10 {
        writer.append(&meta(n), &payload(n)).unwrap();
    }
    drop(writer);
    std::fs::create_dir_all(&copy.0).unwrap();
    for entry in std::fs::read_dir(&place.0).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.0.join(entry.file_name())).unwrap();
    }
    assert_eq!(read_all(&media, &copy, false).len(), 10);
    let mut one = Writer::open(&media, &place.0, "s", &Options::disk(1 << 20)).unwrap();
    let mut two = Writer::open(&media, &copy.0, "s", &Options::disk(1 << 20)).unwrap();
    for n in 10..20 {
        one.append(&meta(n), &payload(n)).unwrap();
        two.append(&meta(n + 100), &payload(n + 100)).unwrap();
    }
    for writer in [&mut one, &mut two] {
        assert!(writer.wait(20, Level::Disk, Duration::from_secs(60)).unwrap());
    }
    drop((one, two));
    for (place, more) in [(&place, 0), (&copy, 100)] {
        assert_eq!(verify(&media, &place.0, &mut |_, _| {}).unwrap().count, 20);
        let all = read_all(&media, place, false);
        assert_eq!(all[15], (15 + more, payload(15 + more)));
    }
}

#[test]
fn a_reader_that_looks_now_and_then_slowed_the_writer() {
    let media = Os::shared();
    let place = Place::memory("released");
    let mut stream = Writer::open(&media, &place.0, "s", &Options::memory(1 << 20)).unwrap();
    for n in 0..10 {
        stream.append(&meta(n), &[1; 1000]).unwrap();
    }
    let pinned = || stream.pins().pinned(true, 0) || stream.pins().pinned(false, 0);
    let mut reader = Reader::open(&media, &place.0, ReadOptions::default()).unwrap();
    for _ in 0..2 {
        reader.seek(3);
        assert_eq!(reader.read(1).unwrap().get(3).unwrap().payload, [1; 1000]);
        assert!(pinned());
        reader.release();
        assert!(!pinned());
    }
}

#[test]
fn a_reader_of_a_view_that_was_released_had_used_up_its_quota() {
    let media = Os::shared();
    let (place, above) = (Place::memory("released-parent"), Place::memory("released-view"));
    let mut stream = Writer::open(&media, &place.0, "s", &Options::memory(1 << 20)).unwrap();
    stream.append(&meta(0), &[1; 1000]).unwrap();
    let mut view = Writer::open(&media, &above.0, "v", &Options::memory(1 << 20)).unwrap();
    let parent = view.parent(place.0.file_name().unwrap().to_str().unwrap()).unwrap();
    let mut reader = Reader::open(&media, &place.0, ReadOptions::default()).unwrap();
    view.push_view(parent, 0, reader.read(1).unwrap().get(0).unwrap().entry).unwrap();
    view.publish();
    let mut reader = Reader::open(&media, &above.0, ReadOptions::default()).unwrap();
    for _ in 0..100 {
        reader.seek(0);
        assert_eq!(reader.read(1).unwrap().get(0).unwrap().payload, [1; 1000]);
        reader.release();
    }
}
