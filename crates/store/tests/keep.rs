//! The cost of a stream and its left-overs, on the real file system.

use beamport_store::*;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A folder of one test, removed with the live places of the streams in it.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("keep-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn stream(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for stream in std::fs::read_dir(&self.0).into_iter().flatten().flatten() {
            if let Ok(header) = Header::read(Os::shared().as_ref(), &stream.path()) {
                let _ = std::fs::remove_dir_all(header.live);
            }
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn meta(n: u64) -> Meta {
    Meta { source_time: n as i64 * 1000, origin: 0, origin_seq: n, schema: SchemaId(*b"test"), flags: 0 }
}

/// Bytes that the files in a folder occupy.
fn occupied(folder: &Path) -> u64 {
    std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().metadata().unwrap().blocks() * 512).sum()
}

#[test]
fn an_idle_stream_took_megabytes_for_its_time_table() {
    let media = Os::shared();
    let place = Place::new("idle");
    let folder = place.stream("s");
    let mut writer = Writer::open(&media, &folder, "s", &Options::disk(1 << 30)).unwrap();
    for n in 0..300 {
        writer.append(&meta(n), &n.to_le_bytes()).unwrap();
    }
    assert!(writer.wait(300, Level::Disk, Duration::from_secs(60)).unwrap());
    let live = occupied(&writer.header().live);
    assert!(live <= 64 << 10, "{live} B of shared memory");
    let index = std::fs::metadata(folder.join("i-00000000")).unwrap().blocks() * 512;
    assert!(index <= 64 << 10, "{index} B on the disk");
    // The table is there and finds what it is for.
    let mut reader = Reader::open(&media, &folder, ReadOptions::default()).unwrap();
    assert_eq!(reader.time_range(5000, 7000).unwrap(), (5, 7));
}

/// A disk stream, closed, of `count` messages of 1000 bytes.
fn closed(folder: &Path, count: u64) {
    let media = Os::shared();
    let mut writer = Writer::open(&media, folder, "s", &Options::disk(1 << 20)).unwrap();
    for n in 0..count {
        while let Err(e) = writer.append(&meta(n), &[n as u8; 1000]) {
            assert!(e.is_full(), "{e}");
            writer.wait_room(Duration::from_millis(10));
        }
    }
    assert!(writer.wait(count, Level::Disk, Duration::from_secs(60)).unwrap());
}

#[test]
fn a_missing_file_hid_what_stands_behind_it() {
    let media = Os::shared();
    let place = Place::new("missing");
    let folder = place.stream("s");
    closed(&folder, 5000);
    let per = Header::read(media.as_ref(), &folder).unwrap().index_entries;
    assert!(per < 2500, "three index segments");
    let seen = |lost: &[(u64, u64)]| {
        let mut reader = Reader::open(&media, &folder, ReadOptions::default()).unwrap();
        let mut numbers = Vec::new();
        let mut see = |entries: &[Entry]| numbers.extend(entries.iter().map(|e| e.origin_seq));
        assert_eq!(reader.walk(0, 5000, &mut see).unwrap().lost, lost);
        numbers
    };
    // An entry that does not verify, alone, and then the whole file.
    let path = folder.join(format!("i-{:08x}", 1));
    let good = std::fs::read(&path).unwrap();
    let mut bad = good.clone();
    bad[4096 + 5 * 64] ^= 1;
    std::fs::write(&path, &bad).unwrap();
    assert_eq!(seen(&[(per + 5, per + 6)]), (0..5000).filter(|n| *n != per + 5).collect::<Vec<_>>());
    std::fs::remove_file(&path).unwrap();
    assert_eq!(seen(&[(per, 2 * per)]), (0..per).chain(2 * per..5000).collect::<Vec<_>>());
    let mut reader = Reader::open(&media, &folder, ReadOptions::default()).unwrap();
    reader.seek(per);
    assert!(matches!(reader.read(10), Err(Error::Lost { first, end, .. }) if (first, end) == (per, 2 * per)));
    // A block that cannot be read and touches a range of time may belong to it, elsewhere it does not.
    assert_eq!(reader.time_range(0, 5000).unwrap(), (0, 5));
    assert_eq!(reader.time_range((per - 5) as i64 * 1000, per as i64 * 1000).unwrap(), (per - 5, 2 * per));
    assert_eq!(verify(&media, &folder, &mut |_, _| {}).unwrap().damage[0].first, per);
    std::fs::write(&path, &good).unwrap();
    // Payloads: the index says how many are lost with them.
    let segment = |reader: &mut Reader, n: u64| reader.entries(n, 1).unwrap()[0].segment;
    let second = (0..5000).find(|n| segment(&mut reader, *n) == 1).unwrap();
    let third = (0..5000).find(|n| segment(&mut reader, *n) == 2).unwrap();
    std::fs::remove_file(folder.join("p-00000001")).unwrap();
    reader.seek(second);
    match reader.read(5000) {
        Err(Error::Lost { first, end, .. }) => assert_eq!((first, end), (second, third)),
        other => panic!("{:?}", other.err()),
    }
}

#[test]
fn a_payload_past_the_end_of_its_file_was_shown_as_none() {
    let media = Os::shared();
    let place = Place::new("short");
    let folder = place.stream("s");
    closed(&folder, 50);
    std::fs::OpenOptions::new().write(true).open(folder.join("p-00000000")).unwrap().set_len(4096).unwrap();
    for check in [Check::Nothing, Check::Entries, Check::All] {
        let mut reader = Reader::open(&media, &folder, ReadOptions { check, ..ReadOptions::default() }).unwrap();
        reader.seek(40);
        assert!(matches!(reader.read(1), Err(Error::Corrupt { sequence: 40, .. })), "{check:?}");
    }
}

#[test]
fn live_places_of_closed_streams_stayed_until_the_machine_started_anew() {
    let media = Os::shared();
    let place = Place::new("closed");
    let folder = place.stream("s");
    let mut writer = Writer::open(&media, &folder, "s", &Options::disk(1 << 20)).unwrap();
    writer.append(&meta(0), b"zero").unwrap();
    assert!(writer.wait(1, Level::Disk, Duration::from_secs(60)).unwrap());
    let live = writer.header().live.clone();
    assert!(live.join("head").exists());
    let mut reader = Reader::open(&media, &folder, ReadOptions::default()).unwrap();
    let segment = reader.read(1).unwrap().segments()[0].clone();
    drop(writer);
    assert!(!live.exists());
    // An earlier reader keeps its mapping and continues; a later one reads from the disk.
    assert_eq!(segment.bytes(0, 4).unwrap(), b"zero");
    assert!(!reader.wait(Duration::from_millis(1)).unwrap());
    let mut cold = Reader::open(&media, &folder, ReadOptions::default()).unwrap();
    assert_eq!(cold.live_place(), None);
    assert_eq!(cold.read(9).unwrap().len(), 1);
    let mut writer = Writer::open(&media, &folder, "s", &Options::disk(1 << 20)).unwrap();
    assert_eq!(*writer.recovery(), Recovery::Clean);
    writer.append(&meta(1), b"one").unwrap();
    assert!(writer.wait(2, Level::Disk, Duration::from_secs(60)).unwrap());
    for reader in [&mut reader, &mut cold] {
        assert!(reader.wait(Duration::from_secs(60)).unwrap());
        assert_eq!(reader.read(9).unwrap().iter().next().unwrap().payload, b"one");
    }
}

#[test]
fn a_start_that_failed_left_its_live_place() {
    let media = Os::shared();
    let place = Place::new("failed");
    let folder = place.stream("s");
    let before = |media: &dyn Media| media.list(&media.live_root()).unwrap();
    // The header cannot be put in place: a folder has its name.
    std::fs::create_dir_all(folder.join("stream.new")).unwrap();
    let there = before(media.as_ref());
    assert!(Writer::open(&media, &folder, "s", &Options::disk(1 << 20)).is_err());
    let new: Vec<String> = before(media.as_ref()).into_iter().filter(|name| !there.contains(name)).collect();
    // Other tests run at the same time: theirs have an owner.
    let ours = |name: &&String| {
        let head = std::fs::read(media.live_root().join(name).join("head")).unwrap_or_default();
        head.windows(6).any(|w| w == b"failed")
    };
    assert_eq!(new.iter().find(ours), None);
}

#[test]
fn live_places_of_removed_folders_are_named_and_no_others() {
    let media = Os::shared();
    let place = Place::new("left");
    let open = |name: &str| {
        let mut writer = Writer::open(&media, &place.stream(name), name, &Options::memory(1 << 20)).unwrap();
        writer.append(&meta(0), b"one").unwrap();
        writer
    };
    let [gone, replaced, held, kept] = ["gone", "replaced", "held", "kept"].map(|name| {
        let writer = open(name);
        (writer.header().live.clone(), writer)
    });
    // One is still written, though its folder went; the others ended.
    let (held, writer) = held;
    let [gone, replaced, kept] = [gone, replaced, kept].map(|(live, writer)| {
        drop(writer);
        live
    });
    for name in ["gone", "held", "replaced"] {
        std::fs::remove_dir_all(place.stream(name)).unwrap();
    }
    let new = open("replaced");
    assert!([&gone, &replaced, &held, &kept].iter().all(|live| live.join("head").exists()));
    // A process that another test starts has all locks until it is another program.
    let late = Instant::now() + Duration::from_secs(10);
    let mut seen = abandoned(media.as_ref());
    while ![&gone, &replaced].iter().all(|live| seen.contains(live)) {
        assert!(Instant::now() < late, "{seen:?}");
        std::thread::sleep(Duration::from_millis(5));
        seen = abandoned(media.as_ref());
    }
    assert!([&held, &kept, &new.header().live].iter().all(|live| !seen.contains(live)));
    drop(writer);
    assert!(abandoned(media.as_ref()).contains(&held));
    for live in [gone, replaced, held] {
        removed(&live);
    }
}

/// Removes an abandoned place. A process that another test starts has all locks until it is another program.
fn removed(live: &Path) {
    let late = Instant::now() + Duration::from_secs(10);
    while !remove_abandoned(Os::shared().as_ref(), live).unwrap() {
        assert!(Instant::now() < late, "{}", live.display());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!live.exists());
}

#[test]
fn a_live_place_whose_folder_is_there_or_was_renamed_or_is_written_stays() {
    let media = Os::shared();
    let place = Place::new("stays");
    let open = |folder: &Path| {
        let mut writer = Writer::open(&media, folder, "s", &Options::memory(1 << 20)).unwrap();
        writer.append(&meta(0), b"one").unwrap();
        writer
    };
    let stays = |live: &Path| {
        assert!(!remove_abandoned(media.as_ref(), live).unwrap() && live.join("head").exists(), "{}", live.display());
    };
    let data = place.stream("data");
    let folder = data.join("s");
    let writer = open(&folder);
    let live = writer.header().live.clone();
    stays(&live);
    drop(writer);
    stays(&live);
    // The stream has another name, then its data folder has.
    std::fs::rename(&folder, data.join("t")).unwrap();
    stays(&live);
    std::fs::rename(data.join("t"), &folder).unwrap();
    let moved = place.stream("moved");
    std::fs::rename(&data, &moved).unwrap();
    stays(&live);
    // A process with other mounts made it: what it sees is not known here.
    let head = live.join("head");
    let page = std::fs::read(&head).unwrap();
    let mounts = media.mounts().to_le_bytes();
    let at = page.windows(8).position(|word| word == mounts).unwrap();
    let mut other = page.clone();
    other[at] ^= 1;
    std::fs::write(&head, &other).unwrap();
    std::fs::remove_dir_all(&moved).unwrap();
    stays(&live);
    std::fs::write(&head, &page).unwrap();
    removed(&live);
}

/// Bytes of the files in a stream's live place.
fn live_bytes(folder: &Path) -> u64 {
    occupied(&Header::read(Os::shared().as_ref(), folder).unwrap().live)
}

#[test]
fn who_keeps_more_than_his_quota_is_named_and_nothing_he_keeps_changes() {
    let media = Os::shared();
    let place = Place::new("quota");
    let folder = place.stream("s");
    let options = Options { when_full: WhenFull::DropOldest, ..Options::memory(1 << 20) };
    let mut writer = Writer::open(&media, &folder, "s", &options).unwrap();
    let mut reader = Reader::open(&media, &folder, ReadOptions::default()).unwrap();
    let mut kept: Vec<(std::sync::Arc<Mapped>, u64, u64)> = Vec::new();
    let mut n = 0;
    // It keeps a view of each segment, until the next one would be too many.
    let refused = loop {
        writer.append(&meta(n), &[n as u8; 1000]).unwrap();
        n += 1;
        match reader.read(1) {
            Ok(batch) if kept.last().is_none_or(|k| !std::sync::Arc::ptr_eq(&k.0, &batch.segments()[0])) => {
                kept.push((batch.segments()[0].clone(), batch.place(0).1, batch.first));
            }
            Ok(_) => {}
            Err(e) => break e,
        }
    };
    let segment = reader.header().segment_bytes;
    let process = media.process().pid;
    match &refused {
        Error::Quota { pid, segments: 3, bytes, quota, .. } => {
            assert_eq!((*pid, *bytes, *quota), (process, 3 * segment, (1 << 20) / 4));
        }
        other => panic!("{other}"),
    }
    assert!(refused.to_string().contains(&format!("process {process}")), "{refused}");
    let seen = writer.pins().readers();
    assert_eq!((seen.len(), seen[0].segments, seen[0].kept), (1, 3, 3 * segment));
    // The writer goes round and round, and nobody's memory grows.
    for n in n..n + 20_000 {
        writer.append(&meta(n), &[n as u8; 1000]).unwrap();
    }
    assert!(live_bytes(&folder) < (1 << 20) + (256 << 10), "{} B", live_bytes(&folder));
    for (segment, at, n) in &kept {
        assert_eq!(segment.bytes(*at, 1000).unwrap(), [*n as u8; 1000], "message {n}");
    }
    // It may take a released segment again.
    kept.clear();
    let first = reader.bounds().first;
    reader.seek(first);
    assert_eq!(reader.read(1).unwrap().len(), 1);
}

#[test]
fn a_reader_that_kept_one_message_larger_than_its_quota_could_not_map_the_next() {
    let media = Os::shared();
    // Larger than a segment, and so large that a segment holds one.
    for (bytes, name) in [(300 << 10, "large"), (100 << 10, "alone")] {
        let place = Place::new(&format!("quota-{name}"));
        let folder = place.stream("s");
        let options = Options { when_full: WhenFull::DropOldest, ..Options::memory(1 << 20) };
        let payload = |n: u64| vec![n as u8; bytes];
        let mut writer = Writer::open(&media, &folder, "s", &options).unwrap();
        let mut reader = Reader::open(&media, &folder, ReadOptions::default()).unwrap();
        let mut kept: Vec<(std::sync::Arc<Mapped>, u64, u64)> = Vec::new();
        let mut keep = |writer: &mut Writer, reader: &mut Reader, n: u64| {
            writer.append(&meta(n), &payload(n)).unwrap();
            let batch = reader.read(1)?;
            kept.push((batch.segments()[0].clone(), batch.place(0).1, n));
            for (segment, at, n) in &kept {
                assert_eq!(segment.bytes(*at, bytes as u64).unwrap(), payload(*n), "message {n}");
            }
            Ok::<_, Error>(())
        };
        // Four may be kept while a fifth is read, and then it is as with any other quota.
        for n in 0..5 {
            keep(&mut writer, &mut reader, n).unwrap_or_else(|e| panic!("{name}, message {n}: {e}"));
        }
        let refused = keep(&mut writer, &mut reader, 5).unwrap_err();
        assert!(matches!(refused, Error::Quota { segments: 5, .. }), "{name}: {refused}");
        // A writer that takes the stream up again still has large messages in memory.
        kept.truncate(1);
        drop(writer);
        let mut writer = Writer::open(&media, &folder, "s", &options).unwrap();
        let mut reader = Reader::open(&media, &folder, ReadOptions::default()).unwrap();
        reader.seek(reader.end());
        let (mut last, end) = (None, reader.end());
        for n in end..end + 4 {
            writer.append(&meta(n), &payload(n)).unwrap();
            let read = reader.read(1).map(|batch| batch.segments()[0].clone());
            last = Some(read.unwrap_or_else(|e| panic!("{name}, message {n}: {e}")));
        }
        drop(last);
    }
}

#[test]
fn a_reader_that_may_not_write_pins_was_refused() {
    let media = Os::shared();
    for (level, name) in [(Level::Memory, "pinless-memory"), (Level::Disk, "pinless-disk")] {
        let place = Place::new(name);
        let folder = place.stream("s");
        let options = Options { level, when_full: WhenFull::DropOldest, ..Options::memory(1 << 20) };
        let mut writer = Writer::open(&media, &folder, "s", &options).unwrap();
        for n in 0..100 {
            writer.append(&meta(n), &[n as u8; 1000]).unwrap();
        }
        if level == Level::Disk {
            assert!(writer.wait(100, Level::Disk, Duration::from_secs(60)).unwrap());
        }
        // Readable for all, writable for nobody; root of this thread becomes somebody else.
        let live = writer.header().live.clone();
        let places = [place.0.clone(), folder.clone(), live.clone(), media.live_root()];
        let open_up = || {
            use std::os::unix::fs::PermissionsExt;
            for place in &places {
                std::fs::set_permissions(place, PermissionsExt::from_mode(0o755)).unwrap();
                for file in std::fs::read_dir(place).unwrap().flatten().filter(|f| f.path().is_file()) {
                    let mode = if file.file_name() == "pins" { 0o444 } else { 0o644 };
                    let _ = std::fs::set_permissions(file.path(), PermissionsExt::from_mode(mode));
                }
            }
        };
        open_up();
        let (folder, writer) = (&folder, &mut writer);
        std::thread::scope(|scope| {
            let (to_reader, of_writer) = std::sync::mpsc::channel::<u64>();
            let (to_writer, of_reader) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || {
                // SAFETY: changes who this one thread is to file systems.
                unsafe { libc::setfsuid(65534) };
                let media = Os::shared();
                let named = ReadOptions { name: "r".into(), kind: Kind::Counted, ..ReadOptions::default() };
                assert!(Reader::open(&media, folder, named).is_err());
                let mut reader = Reader::open(&media, folder, ReadOptions::default()).unwrap();
                let mut kept = Vec::new();
                let mut seen = 0;
                for end in of_writer {
                    while reader.position() < end {
                        let at = reader.position();
                        let batch = match reader.read(16) {
                            Ok(batch) => batch,
                            Err(Error::Gone { first }) => {
                                reader.seek(first);
                                continue;
                            }
                            Err(e) => panic!("{e}"),
                        };
                        for message in batch.iter() {
                            assert_eq!(message.payload, [message.entry.origin_seq as u8; 1000]);
                            seen += 1;
                        }
                        kept.push((batch.segments()[0].clone(), batch.place(0).1, batch.first));
                        assert!(reader.position() > at || reader.wait(Duration::from_secs(60)).unwrap());
                    }
                    to_writer.send(()).unwrap();
                }
                // A copy is as good as a pin.
                for (segment, at, n) in kept {
                    assert_eq!(segment.bytes(at, 1000).unwrap(), [n as u8; 1000]);
                }
                assert!(seen >= 100 + 400, "{seen}");
            });
            to_reader.send(100).unwrap();
            of_reader.recv().unwrap();
            for round in 1..5 {
                for n in round * 3000..(round + 1) * 3000 {
                    while writer.append(&meta(n + 100 - 3000), &[(n + 100 - 3000) as u8; 1000]).is_err() {
                        writer.wait_room(Duration::from_millis(1));
                    }
                }
                let end = writer.next_sequence();
                if level == Level::Disk {
                    assert!(writer.wait(end, Level::Disk, Duration::from_secs(60)).unwrap());
                }
                open_up();
                to_reader.send(end).unwrap();
                of_reader.recv().unwrap();
            }
            drop(to_reader);
        });
        std::fs::set_permissions(media.live_root(), std::os::unix::fs::PermissionsExt::from_mode(0o750)).unwrap();
    }
}

/// Pushes until a stream has been filled many times over; it drops what it must.
fn fill(writer: &mut Writer, to: u64, push: &mut dyn FnMut(&mut Writer, u64) -> Result<u64>) {
    let mut n = 0;
    while n < to {
        match push(writer, n) {
            Ok(_) => n += 1,
            // Nothing goes before it is on the medium.
            Err(Error::Dropped) => _ = writer.wait(n, Level::Disk, Duration::from_secs(60)).unwrap(),
            Err(e) => panic!("{e}"),
        }
    }
    writer.publish();
    assert!(writer.wait(n, Level::Disk, Duration::from_secs(60)).unwrap());
}

#[test]
fn a_stream_of_small_messages_kept_half_of_retain_and_one_of_large_messages_twice_as_much() {
    const RETAIN: u64 = 8 << 20;
    let media = Os::shared();
    let place = Place::new("retain");
    let options = Options { retain_bytes: Some(RETAIN), when_full: WhenFull::DropOldest, ..Options::disk(1 << 20) };
    for len in [8_u64, 1000, 300_000] {
        let folder = place.stream(&format!("s{len}"));
        let judge = |writer: &Writer, slack: u64| {
            let kept = (writer.next_sequence() - writer.first_sequence()) * (64 + len);
            assert!((RETAIN - slack..=RETAIN).contains(&kept), "{kept} B of messages of {len} B are kept");
        };
        let mut writer = Writer::open(&media, &folder, "s", &options).unwrap();
        let count = 3 * RETAIN / (len + 64);
        let bytes = vec![7; len as usize];
        fill(&mut writer, count, &mut |writer, n| writer.append(&meta(n), &bytes));
        // Whole segments go, and one is on its way.
        let segment = (128 << 10).max(len);
        judge(&writer, 4 * segment);
        // Spare files of segments that went wait to be written again.
        let occupied = occupied(&folder);
        assert!(occupied <= RETAIN + 8 * segment, "{occupied} B on the disk for messages of {len} B");
        // The same after a restart.
        drop(writer);
        let mut writer = Writer::open(&media, &folder, "s", &options).unwrap();
        fill(&mut writer, RETAIN / 8 / (len + 64), &mut |writer, n| writer.append(&meta(n), &bytes));
        judge(&writer, 5 * segment);
    }
}

#[test]
fn a_view_kept_half_of_what_it_was_told_to_keep() {
    const RETAIN: u64 = 2 << 20;
    let media = Os::shared();
    let place = Place::new("retain-view");
    let options = Options { retain_bytes: Some(RETAIN), when_full: WhenFull::DropOldest, ..Options::disk(1 << 20) };
    let mut parent = Writer::open(&media, &place.stream("parent"), "parent", &Options::disk(64 << 20)).unwrap();
    let count = 3 * RETAIN / 64;
    for n in 0..count {
        parent.append(&meta(n), &n.to_le_bytes()).unwrap();
    }
    assert!(parent.wait(count, Level::Disk, Duration::from_secs(60)).unwrap());
    let mut view = Writer::open(&media, &place.stream("view"), "view", &options).unwrap();
    let of = view.parent("parent").unwrap();
    let mut reader = Reader::open(&media, &place.stream("parent"), ReadOptions::default()).unwrap();
    let entries: Vec<Entry> = {
        let mut all = Vec::new();
        reader.walk(0, count, &mut |some| all.extend_from_slice(some)).unwrap();
        all
    };
    fill(&mut view, count, &mut |view, n| view.push_view(of, n, &entries[n as usize]));
    let kept = (view.next_sequence() - view.first_sequence()) * 64;
    assert!((RETAIN * 3 / 4..=RETAIN).contains(&kept), "{kept} B of entries are kept");
}

#[test]
fn messages_older_than_retain_age_go_and_those_that_a_reader_wants_stay() {
    use testkit::Machine;
    for level in [Level::Memory, Level::Disk] {
        let machine = Machine::new(1);
        let process = machine.start();
        let media: std::sync::Arc<dyn Media> = process.clone();
        let options =
            Options { level, retain_age_ns: Some(60_000_000_000), drain: Drain::Caller, ..Options::memory(4 << 20) };
        let mut writer = Writer::open(&media, Path::new("/disk/s"), "s", &options).unwrap();
        let mut n = 0;
        let mut minute = |writer: &mut Writer| {
            for _ in 0..640 {
                writer.append(&meta(n), &[0; 1000]).unwrap();
                n += 1;
            }
            if level == Level::Disk {
                writer.drain().unwrap();
            }
            machine.advance(50_000_000_000);
        };
        minute(&mut writer);
        minute(&mut writer);
        assert_eq!(writer.first_sequence(), 0, "nothing is older than a minute");
        minute(&mut writer);
        // In steps of segments of 512 messages.
        assert_eq!(writer.first_sequence(), 512);
        // A counted reader that has not moved on holds what it wants.
        let named = ReadOptions { name: "r".into(), kind: Kind::Counted, ..ReadOptions::default() };
        let reader = Reader::open(&media, Path::new("/disk/s"), named).unwrap();
        minute(&mut writer);
        assert_eq!(writer.first_sequence(), 512);
        reader.commit(4 * 640);
        minute(&mut writer);
        assert_eq!(writer.first_sequence(), 3 * 512);
    }
}

#[test]
fn the_room_that_is_to_be_kept_free_is_kept_free() {
    use testkit::Machine;
    const KEEP: u64 = 4 << 20;
    for when_full in [WhenFull::Wait, WhenFull::DropOldest] {
        let machine = Machine::new(1);
        machine.room(16 << 20, u64::MAX);
        let process = machine.start();
        let media: std::sync::Arc<dyn Media> = process.clone();
        let options =
            Options { keep_free_bytes: Some(KEEP), when_full, drain: Drain::Caller, ..Options::disk(1 << 20) };
        let mut writer = Writer::open(&media, Path::new("/disk/s"), "s", &options).unwrap();
        let named = ReadOptions { name: "r".into(), kind: Kind::Counted, ..ReadOptions::default() };
        let mut reader = Reader::open(&media, Path::new("/disk/s"), named).unwrap();
        let (mut n, mut refused) = (0, 0);
        for _ in 0..60_000 {
            match writer.append(&meta(n), &[n as u8; 1000]) {
                Ok(_) => n += 1,
                Err(e) => {
                    assert!(e.is_full(), "{e}");
                    refused += 1;
                }
            }
            if n % 50 == 0 || refused > 0 {
                writer.drain().unwrap();
            }
            if refused == 3 {
                break;
            }
        }
        let free = media.free(Path::new("/disk")).unwrap();
        assert!(free >= KEEP - (512 << 10), "{free} B are free");
        if when_full == WhenFull::DropOldest {
            assert_eq!((n, refused), (60_000, 0));
            continue;
        }
        // The reader that it waits for has lost nothing, and what it reads makes room without a new start.
        assert_eq!((writer.first_sequence(), refused), (0, 3));
        let mut seen = 0;
        while reader.position() < n {
            seen += reader.read(1000).unwrap().len() as u64;
        }
        assert_eq!(seen, n);
        reader.commit(n);
        let more = n + 1000;
        for _ in 0..3000 {
            n += u64::from(writer.append(&meta(n), &[n as u8; 1000]).is_ok());
            writer.drain().unwrap();
        }
        assert!(n > more, "{n}");
        println!("injected: a disk with less than `keep_free` left, {refused} appends refused, 0 of {n} messages lost");
    }
}

#[test]
fn a_view_leaves_the_room_that_is_to_be_kept_free() {
    const KEEP: u64 = 4 << 20;
    const COUNT: u64 = 200_000;
    for keep_free_bytes in [None, Some(KEEP)] {
        let machine = testkit::Machine::new(1);
        let process = machine.start();
        let media: std::sync::Arc<dyn Media> = process.clone();
        let disk = Options { drain: Drain::Caller, ..Options::disk(32 << 20) };
        let mut parent = Writer::open(&media, Path::new("/disk/parent"), "parent", &disk).unwrap();
        for n in 0..COUNT {
            parent.append(&meta(n), &n.to_le_bytes()).unwrap();
        }
        parent.drain().unwrap();
        let mut reader = Reader::open(&media, Path::new("/disk/parent"), ReadOptions::default()).unwrap();
        let mut entries: Vec<Entry> = Vec::new();
        reader.walk(0, COUNT, &mut |some| entries.extend_from_slice(some)).unwrap();
        // Room for half of the entries of the view beside what is to stay free.
        machine.room(machine.used().0 + KEEP + COUNT * 64 / 2, u64::MAX);
        let options = Options { keep_free_bytes, when_full: WhenFull::DropOldest, ..Options::disk(1 << 20) };
        let options = Options { drain: Drain::Caller, ..options };
        let mut view = Writer::open(&media, Path::new("/disk/view"), "view", &options).unwrap();
        let of = view.parent("parent").unwrap();
        let mut least = u64::MAX;
        for (n, entry) in (0..).zip(&entries) {
            let pushed = view.push_view(of, n, entry);
            if keep_free_bytes.is_some() {
                pushed.unwrap();
            }
            if n % 500 == 0 {
                view.publish();
                let _ = view.drain();
                least = least.min(media.free(Path::new("/disk")).unwrap());
            }
        }
        assert_eq!(least >= KEEP - (512 << 10), keep_free_bytes.is_some(), "{least} B were free");
        assert_eq!(view.first_sequence() > 0, keep_free_bytes.is_some());
    }
}

#[test]
fn each_stream_of_a_disk_made_up_for_the_whole_of_its_shortage() {
    let machine = testkit::Machine::new(1);
    let process = machine.start();
    let media: std::sync::Arc<dyn Media> = process.clone();
    let options = Options { keep_free_bytes: Some(1 << 20), drain: Drain::Caller, ..Options::disk(1 << 20) };
    let open = |name: &str| Writer::open(&media, &Path::new("/disk").join(name), name, &options).unwrap();
    let mut streams = ["a", "b", "c", "d"].map(open);
    let push = |writer: &mut Writer, count: u64| {
        for n in 0..count {
            writer.append(&meta(n), &[n as u8; 4000]).unwrap();
            writer.drain().unwrap();
        }
    };
    streams.iter_mut().for_each(|stream| push(stream, 1000));
    // Another program leaves 512 KiB less than is to be kept free; then each stream goes on for a segment of 128 KiB.
    machine.room(machine.used().0 + (512 << 10), u64::MAX);
    streams.iter_mut().for_each(|stream| push(stream, 32));
    for stream in &streams {
        assert!((1..200).contains(&stream.first_sequence()), "{} of 1032", stream.first_sequence());
    }
}

const HOUR: i64 = 3_600_000_000_000;

/// A stream on a pretend machine that keeps its messages for a day.
struct Day {
    machine: testkit::Machine,
    process: std::sync::Arc<testkit::PretendMedia>,
    options: Options,
    stream: Option<Writer>,
    next: u64,
}

impl Day {
    fn new(level: Level) -> Self {
        let machine = testkit::Machine::new(1);
        let process = machine.start();
        let how = if level == Level::Disk { Options::disk(16 << 20) } else { Options::memory(16 << 20) };
        let options = Options { retain_age_ns: Some(24 * HOUR), drain: Drain::Caller, ..how };
        let mut day = Self { machine, process, options, stream: None, next: 0 };
        day.open();
        day
    }

    fn open(&mut self) {
        let media: std::sync::Arc<dyn Media> = self.process.clone();
        self.stream = Some(Writer::open(&media, Path::new("/disk/s"), "s", &self.options).unwrap());
    }

    fn restart(&mut self) {
        // SAFETY: the writer is the only object.
        unsafe { self.machine.kill(&self.process, self.stream.take()) };
        self.process = self.machine.start();
        self.open();
    }

    fn push(&mut self, count: u64) {
        let stream = self.stream.as_mut().unwrap();
        for _ in 0..count {
            stream.append(&meta(self.next), &[0; 64_000]).unwrap();
            self.next += 1;
        }
        stream.drain().unwrap();
    }

    /// Two messages each half hour: a segment takes eight hours.
    fn pass(&mut self, hours: u64) {
        for _ in 0..2 * hours {
            self.push(2);
            self.machine.advance(HOUR / 2);
        }
    }

    fn first(&self) -> u64 {
        self.stream.as_ref().unwrap().first_sequence()
    }

    fn newest(&self) -> Entry {
        let media: std::sync::Arc<dyn Media> = self.process.clone();
        let early = ReadOptions { early: true, ..ReadOptions::default() };
        let mut reader = Reader::open(&media, Path::new("/disk/s"), early).unwrap();
        reader.entries(self.next - 1, 1).unwrap()[0]
    }
}

#[test]
fn one_message_while_the_clock_was_ahead_took_a_day_of_messages() {
    for level in [Level::Memory, Level::Disk] {
        let mut day = Day::new(level);
        day.pass(4);
        day.machine.set_wall_clock(48 * HOUR);
        day.push(1);
        assert_eq!((day.first(), day.newest().flags), (0, 0));
        day.restart();
        day.push(1);
        assert_eq!(day.first(), 0, "opened while the clock is ahead");
        day.machine.set_wall_clock(-48 * HOUR);
        day.push(1);
        // It does not fall, and is marked as what the clock did not say.
        assert_eq!(day.newest().flags, flags::CLOCK);
        assert!(day.newest().arrival_time > day.machine.now() + 47 * HOUR);
        day.pass(10);
        day.restart();
        day.pass(10);
        assert_eq!(day.first(), 0, "nothing is a day old");
        day.pass(28);
        assert!((1..day.next - 24 * 4).contains(&day.first()), "{} of {}", day.first(), day.next);
        assert!(day.first() > day.next - 36 * 4, "{} of {}", day.first(), day.next);
        day.pass(4);
        assert_eq!(day.newest().flags, 0, "real time has come to where the clock was");
    }
}

#[test]
fn a_clock_that_was_set_back_stopped_retention_by_age() {
    let mut day = Day::new(Level::Disk);
    day.pass(40);
    let before = day.first();
    assert!(before > 0);
    day.machine.set_wall_clock(-100 * HOUR);
    day.pass(40);
    assert!(day.first() > day.next - 40 * 4, "{} of {}", day.first(), day.next);
    day.machine.set_wall_clock(100 * HOUR);
    day.push(1);
    assert!(day.first() < day.next - 20 * 4, "a step is not believed at once");
}

fn numbers(folder: &Path) -> Vec<u64> {
    let early = ReadOptions { early: true, ..ReadOptions::default() };
    let mut reader = Reader::open(&Os::shared(), folder, early).unwrap();
    let bounds = reader.bounds();
    if bounds.first == bounds.count {
        return Vec::new();
    }
    reader.entries(bounds.first, bounds.count as usize).unwrap().iter().map(|e| e.origin_seq).collect()
}

fn copied(from: &Path, to: &Path) {
    assert!(std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

#[test]
fn a_memory_stream_that_was_moved_read_as_empty_and_its_next_writer_wiped_it() {
    let root = Path::new("/dev/shm").join(format!("beamport-test-moved-{}", std::process::id()));
    let (old, new) = (root.join("old"), root.join("new"));
    std::fs::create_dir_all(&root).unwrap();
    let open = |folder: &Path| Writer::open(&Os::shared(), folder, "s", &Options::memory(1 << 20)).unwrap();
    let mut writer = open(&old);
    writer.append(&meta(0), b"zero").unwrap();
    drop(writer);
    std::fs::rename(&old, &new).unwrap();
    assert_eq!(numbers(&new), [0]);
    let mut writer = open(&new);
    assert_eq!(writer.recovery(), &Recovery::Live);
    writer.append(&meta(1), b"one").unwrap();
    drop(writer);
    assert_eq!(numbers(&new), [0, 1]);
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
fn a_copy_went_on_in_the_epoch_of_its_original() {
    let place = Place::new("copy");
    let (folder, copy) = (place.stream("s"), place.stream("copy"));
    let open = |folder: &Path| Writer::open(&Os::shared(), folder, "s", &Options::disk(1 << 20)).unwrap();
    let mut writer = open(&folder);
    writer.append(&meta(0), b"zero").unwrap();
    drop(writer);
    copied(&folder, &copy);
    let writer = open(&copy);
    assert_eq!(writer.recovery(), &Recovery::Moved { epoch: 1, first: 1 });
    assert_eq!((writer.header().epoch_of(0), writer.header().epoch_of(1)), (1, 2));
    drop(writer);
    assert_eq!(numbers(&copy), [0]);
    // Once: it is at home now, and so is the original. A header of an earlier version says nothing of a home.
    assert_eq!(open(&copy).recovery(), &Recovery::Clean);
    let header = open(&folder).header().clone();
    assert_eq!(header.epochs, [(1, 0)]);
    Header { home: None, ..header }.write(&Os, &folder).unwrap();
    let writer = open(&folder);
    assert_eq!((writer.recovery(), writer.header().home.is_some()), (&Recovery::Clean, true));
}

#[test]
fn the_header_of_a_folder_from_elsewhere_led_to_files_of_others() {
    let place = Place::new("elsewhere");
    let (folder, others) = (place.stream("s"), place.stream("others"));
    let open = |folder: &Path, options: &Options| Writer::open(&Os::shared(), folder, "s", options).unwrap();
    for options in [Options::disk(1 << 20), Options::memory(1 << 20)] {
        let header = open(&folder, &options).header().clone();
        std::fs::create_dir_all(&others).unwrap();
        std::fs::write(others.join("p-00000000"), b"mine").unwrap();
        let _ = std::fs::remove_dir_all(&header.live);
        Header { live: others.clone(), ..header }.write(&Os, &folder).unwrap();
        let writer = open(&folder, &options);
        assert!(writer.header().live.starts_with(Os.live_root()), "{}", writer.header().live.display());
        drop(writer);
        assert_eq!(std::fs::read(others.join("p-00000000")).unwrap(), b"mine");
        assert_eq!(std::fs::read_dir(&others).unwrap().count(), 1);
        remove(&Os::shared(), &folder).unwrap();
    }
}
