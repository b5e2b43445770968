//! Faults that happened once, on a machine that forgets data that were not synced. Each test is named after its fault.

use beamport_store::media::{File, Open};
use beamport_store::*;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use testkit::{Machine, PretendMedia};

const FOLDER: &str = "/disk/s";

fn options() -> Options {
    Options { drain: Drain::Caller, ..Options::disk(1 << 20) }
}

fn writer(process: &Arc<PretendMedia>, options: &Options) -> Result<Writer> {
    let media: Arc<dyn Media> = process.clone();
    Writer::open(&media, Path::new(FOLDER), "s", options)
}

fn meta(n: u64) -> Meta {
    Meta { source_time: n as i64, origin: 0, origin_seq: n, schema: SchemaId(*b"test"), flags: 0 }
}

/// Appends a message and waits until it is safe.
fn promise(stream: &mut Writer, meta: &Meta, payload: &[u8]) {
    let sequence = stream.append(meta, payload).unwrap();
    assert!(stream.wait(sequence + 1, Level::Disk, Duration::from_secs(60)).unwrap());
}

/// Those of both commit records.
fn generations(process: &Arc<PretendMedia>) -> [u64; 2] {
    let media: Arc<dyn Media> = process.clone();
    let file = media.open(&Path::new(FOLDER).join("commit"), Open::Read).unwrap();
    [0, 4096].map(|place| {
        let mut bytes = [0; 8];
        file.read_at(&mut bytes, place).unwrap();
        u64::from_le_bytes(bytes)
    })
}

fn counted(process: &Arc<PretendMedia>) -> Reader {
    let media: Arc<dyn Media> = process.clone();
    let named = ReadOptions { name: "file".into(), kind: Kind::Counted, ..ReadOptions::default() };
    Reader::open(&media, Path::new(FOLDER), named).unwrap()
}

fn numbers(process: &Arc<PretendMedia>, early: bool) -> Vec<u64> {
    let media: Arc<dyn Media> = process.clone();
    let mut reader = Reader::open(&media, Path::new(FOLDER), ReadOptions { early, ..ReadOptions::default() }).unwrap();
    let mut all = Vec::new();
    loop {
        let batch = reader.read(100).unwrap();
        if batch.is_empty() {
            return all;
        }
        all.extend(batch.iter().map(|m| m.entry.origin_seq));
    }
}

#[test]
fn a_reader_removed_for_good_came_back_with_the_power() {
    for seed in 0..20 {
        let machine = Machine::new(seed);
        let process = machine.start();
        let mut stream = writer(&process, &options()).unwrap();
        stream.origin("o").unwrap();
        drop(counted(&process));
        assert!(stream.pins().remove(process.as_ref(), "file"));
        // SAFETY: the writer is the only object.
        unsafe { machine.power_cut(stream) };
        let process = machine.start();
        assert_eq!(writer(&process, &options()).unwrap().pins().readers(), []);
    }
}

#[test]
fn the_place_of_a_counted_reader_was_gone_with_the_power() {
    for seed in 0..20 {
        let machine = Machine::new(seed);
        let process = machine.start();
        let stream = writer(&process, &options()).unwrap();
        let reader = counted(&process);
        // SAFETY: these are all objects.
        unsafe { machine.power_cut((stream, reader)) };
        let process = machine.start();
        assert_eq!(writer(&process, &options()).unwrap().pins().readers().len(), 1);
    }
}

#[test]
fn a_stream_without_commit_records_was_taken_for_empty() {
    let machine = Machine::new(1);
    let process = machine.start();
    let mut stream = writer(&process, &options()).unwrap();
    stream.origin("o").unwrap();
    stream.append(&meta(0), b"promised").unwrap();
    stream.drain().unwrap();
    // SAFETY: the writer is the only object.
    unsafe { machine.power_cut(stream) };
    let process = machine.start();
    let path = Path::new(FOLDER).join("commit");
    machine.flip(&path, 20).unwrap();
    machine.flip(&path, 4096 + 20).unwrap();
    assert!(matches!(writer(&process, &options()), Err(Error::Format { .. })));
    // Nothing was cut: with the records back, all is there.
    machine.flip(&path, 20).unwrap();
    machine.flip(&path, 4096 + 20).unwrap();
    assert_eq!(writer(&process, &options()).unwrap().next_sequence(), 1);
}

#[test]
fn what_was_marked_without_a_record_of_its_own_is_there_after_a_power_cut() {
    for seed in 0..20 {
        let machine = Machine::new(seed);
        let process = machine.start();
        let mut stream = writer(&process, &options()).unwrap();
        stream.origin("o").unwrap();
        let record = || {
            let media: Arc<dyn Media> = process.clone();
            let mut bytes = vec![0; 8192];
            media.open(&Path::new(FOLDER).join("commit"), Open::Read).unwrap().read_at(&mut bytes, 0).unwrap();
            bytes
        };
        let mut append = |n| {
            promise(&mut stream, &meta(n), b"promised");
        };
        append(0);
        let known = record();
        append(1);
        append(2);
        assert_eq!(record(), known);
        // SAFETY: the writer is the only object.
        unsafe { machine.power_cut(stream) };
        let process = machine.start();
        // For who reads before a writer comes, too.
        assert_eq!(numbers(&process, false), [0, 1, 2]);
        let stream = writer(&process, &options()).unwrap();
        assert!(matches!(stream.recovery(), Recovery::Cut { epoch: 1, first: 3, end: 3, .. }));
    }
}

#[test]
fn what_was_marked_in_a_stream_that_names_no_origin_went_with_the_power() {
    for seed in 0..20 {
        let machine = Machine::new(seed);
        let process = machine.start();
        let mut stream = writer(&process, &options()).unwrap();
        for n in 0..3 {
            promise(&mut stream, &Meta { origin: if n == 2 { 7 } else { 0 }, ..meta(n) }, b"promised");
        }
        // SAFETY: the writer is the only object.
        unsafe { machine.power_cut(stream) };
        let process = machine.start();
        assert_eq!(numbers(&process, false), [0, 1, 2]);
        assert_eq!(writer(&process, &options()).unwrap().next_sequence(), 3);
    }
}

#[test]
fn a_clean_end_without_its_record_took_the_live_place() {
    for drain in [Drain::Caller, Drain::Thread] {
        let machine = Machine::new(1);
        let process = machine.start();
        let mut stream = writer(&process, &Options { drain, ..options() }).unwrap();
        for n in 0..3 {
            promise(&mut stream, &meta(n), b"promised");
        }
        machine.fail_write_after(Some(0));
        drop(stream);
        machine.fail_write_after(None);
        let stream = writer(&process, &options()).unwrap();
        assert_eq!((stream.recovery(), stream.next_sequence()), (&Recovery::Live, 3), "{drain:?}");
    }
}

#[test]
fn a_sector_that_nobody_uses_cut_what_was_marked_before_it() {
    for (file, at) in [("i-00000000", 8192), ("p-00000000", 8192), ("p-00000000", 4096)] {
        let machine = Machine::new(1);
        let process = machine.start();
        let mut stream = writer(&process, &options()).unwrap();
        stream.origin("o").unwrap();
        for n in 0..3 {
            promise(&mut stream, &meta(n), &[n as u8; 3000]);
        }
        // SAFETY: the writer is the only object.
        unsafe { machine.power_cut(stream) };
        let process = machine.start();
        machine.bad_sector(&Path::new(FOLDER).join(file), at).unwrap();
        let media: Arc<dyn Media> = process.clone();
        let reader = Reader::open(&media, Path::new(FOLDER), ReadOptions::default()).unwrap();
        assert_eq!(reader.end(), 3, "{file} {at}");
        drop(reader);
        // A message on it is there and is named as any other that cannot be read.
        let stream = writer(&process, &options()).unwrap();
        assert_eq!(stream.next_sequence(), 3, "{file} {at}");
        drop(stream);
        machine.good_sectors();
        assert_eq!(numbers(&process, false), [0, 1, 2]);
    }
}

#[test]
fn a_reader_called_safe_what_was_in_caches_alone() {
    let machine = Machine::new(1);
    let process = machine.start();
    let mut stream = writer(&process, &options()).unwrap();
    stream.origin("o").unwrap();
    stream.append(&meta(0), b"promised").unwrap();
    stream.drain().unwrap();
    stream.append(&meta(1), b"written").unwrap();
    machine.fail_sync_after(Some(0));
    assert!(stream.drain().is_err());
    machine.fail_sync_after(None);
    let live = stream.header().live.clone();
    // SAFETY: the writer is the only object.
    unsafe { machine.kill(&process, stream) };
    let process = machine.start();
    let media: Arc<dyn Media> = process.clone();
    for name in media.list(&live).unwrap() {
        media.unlink(&live.join(name)).unwrap();
    }
    let reader = Reader::open(&media, Path::new(FOLDER), ReadOptions::default()).unwrap();
    assert_eq!((reader.bounds().disk, reader.bounds().count, reader.end()), (1, 2, 1));
}

#[test]
fn a_repaired_record_said_clean_of_a_stream_that_was_opened_again() {
    let machine = Machine::new(1);
    let process = machine.start();
    let mut stream = writer(&process, &options()).unwrap();
    stream.origin("o").unwrap();
    stream.append(&meta(0), b"promised").unwrap();
    drop(stream);
    let path = Path::new(FOLDER).join("commit");
    let mut stream = writer(&process, &options()).unwrap();
    stream.append(&meta(1), b"seen by a reader").unwrap();
    let [a, b] = generations(&process);
    // SAFETY: the writer is the only object.
    unsafe { machine.power_cut(stream) };
    let process = machine.start();
    machine.bad_sector(&path, if a > b { 0 } else { 4096 }).unwrap();
    let media: Arc<dyn Media> = process.clone();
    repair(&media, Path::new(FOLDER), &mut |_, _| ()).unwrap();
    let stream = writer(&process, &options()).unwrap();
    assert!(matches!(stream.recovery(), Recovery::Cut { epoch: 1, first: 1, end: 1, .. }));
}

#[test]
fn a_medium_that_failed_once_cost_what_was_marked() {
    for looks in 0..40 {
        let machine = Machine::new(looks);
        let process = machine.start();
        let mut stream = writer(&process, &options()).unwrap();
        stream.origin("o").unwrap();
        for n in 0..3 {
            promise(&mut stream, &meta(n), b"promised");
        }
        // SAFETY: the writer is the only object.
        unsafe { machine.power_cut(stream) };
        let process = machine.start();
        machine.fail_look_after(Some(looks));
        let opened = writer(&process, &options()).map(|stream| stream.next_sequence());
        machine.fail_look_after(None);
        assert!(matches!(opened, Ok(3) | Err(Error::Io { .. })), "{opened:?}");
        assert_eq!(writer(&process, &options()).unwrap().next_sequence(), 3);
    }
}

#[test]
fn messages_not_yet_published_reached_the_medium() {
    // A drain copies whole blocks, and what is pushed past the end of its last one would verify after a power cut.
    let machine = Machine::new(1);
    let process = machine.start();
    let mut stream = writer(&process, &options()).unwrap();
    stream.origin("o").unwrap();
    for n in 0..3 {
        stream.append(&meta(n), b"published").unwrap();
    }
    stream.drain().unwrap();
    stream.push(&meta(3), &[b"not published"]).unwrap();
    stream.push(&meta(4), &[b"not published"]).unwrap();
    // SAFETY: the writer is the only object; what it pushed is forgotten with it.
    unsafe { machine.kill(&process, stream) };
    let process = machine.start();
    let mut stream = writer(&process, &options()).unwrap();
    assert_eq!(stream.next_sequence(), 3);
    // The second entry that the dead writer pushed stands in the live index, past the end of what this one publishes.
    stream.append(&meta(5), b"another").unwrap();
    stream.drain().unwrap();
    let file: Arc<dyn File> =
        (process.clone() as Arc<dyn Media>).open(&Path::new(FOLDER).join("i-00000000"), Open::Read).unwrap();
    let mut entry = [0; ENTRY_BYTES];
    file.read_at(&mut entry, 4096 + 4 * ENTRY_BYTES as u64).unwrap();
    assert_eq!(entry, [0; ENTRY_BYTES]);
}

#[test]
fn a_new_stream_had_a_header_and_no_commit_records_after_a_power_cut() {
    for seed in 0..60 {
        for changes in 5..25 {
            let machine = Machine::new(seed);
            let process = machine.start();
            machine.stop_after(Some(changes));
            let stream = writer(&process, &options());
            // SAFETY: the writer is the only object.
            unsafe { machine.power_cut(stream) };
            let process = machine.start();
            let stream = writer(&process, &options());
            assert!(stream.is_ok(), "stopped after {changes}, seed {seed}: {:?}", stream.err());
        }
    }
}

#[test]
fn a_parent_row_left_by_a_dead_writer_was_gone_with_the_power() {
    for seed in 0..40 {
        for changes in 0..6 {
            let machine = Machine::new(seed);
            let mut process = machine.start();
            let view = |process: &Arc<PretendMedia>| {
                let media: Arc<dyn Media> = process.clone();
                let mut view = Writer::open(&media, Path::new("/disk/v"), "v", &options()).unwrap();
                let parent = view.parent("s").unwrap();
                (view, parent)
            };
            let mut stream = writer(&process, &options()).unwrap();
            stream.origin("o").unwrap();
            stream.append(&meta(0), b"one").unwrap();
            stream.drain().unwrap();
            let (entry, _) = counted(&process).get(0).unwrap().unwrap();
            let (mut first, parent) = view(&process);
            machine.stop_after(Some(changes));
            let _ = first.push_view(parent, 0, &entry);
            // SAFETY: these are all objects.
            unsafe { machine.kill(&process, (stream, first)) };
            process = machine.start();
            let stream = writer(&process, &options()).unwrap();
            let (mut second, parent) = view(&process);
            let at = second.push_view(parent, 0, &entry).unwrap();
            second.drain().unwrap();
            assert_eq!(second.mark(Level::Disk), at + 1);
            // SAFETY: these are all objects.
            unsafe { machine.power_cut((stream, second)) };
            let media: Arc<dyn Media> = machine.start();
            let mut reader = Reader::open(&media, Path::new("/disk/v"), ReadOptions::default()).unwrap();
            let shown = reader.get(at).unwrap_or_else(|e| panic!("stopped after {changes}, seed {seed}: {e}"));
            assert_eq!(shown.unwrap().1, b"one");
        }
    }
}

#[test]
fn a_live_place_with_a_segment_missing_did_not_open() {
    let machine = Machine::new(1);
    let process = machine.start();
    let mut stream = writer(&process, &options()).unwrap();
    stream.origin("o").unwrap();
    for n in 0..3 {
        stream.append(&meta(n), b"safe").unwrap();
    }
    stream.drain().unwrap();
    stream.append(&meta(3), b"in memory alone").unwrap();
    // SAFETY: the writer is the only object.
    unsafe { machine.kill(&process, stream) };
    let process = machine.start();
    for name in machine.names("/live").iter().filter(|n| n.to_string_lossy().contains("/p-")) {
        process.unlink(name).unwrap();
    }
    let stream = writer(&process, &options()).unwrap();
    assert!(matches!(stream.recovery(), Recovery::Cut { epoch: 1, first: 3, end: 4, .. }));
    drop(stream);
    assert_eq!(numbers(&process, false), [0, 1, 2]);
}

#[test]
fn messages_without_bytes_had_no_segment_on_the_medium() {
    let machine = Machine::new(1);
    let process = machine.start();
    let mut stream = writer(&process, &options()).unwrap();
    stream.origin("o").unwrap();
    for n in 0..3 {
        stream.append(&meta(n), b"").unwrap();
    }
    drop(stream);
    assert_eq!(numbers(&process, false), [0, 1, 2]);
}

#[test]
fn appends_and_drains_went_on_after_a_failed_sync() {
    let machine = Machine::new(1);
    let process = machine.start();
    let mut stream = writer(&process, &options()).unwrap();
    stream.append(&meta(0), b"one").unwrap();
    machine.fail_sync_after(Some(0));
    assert!(matches!(stream.drain(), Err(Error::Failed(_))));
    assert!(matches!(stream.drain(), Err(Error::Failed(_))));
    assert!(matches!(stream.append(&meta(1), b"two"), Err(Error::Failed(_))));
    assert_eq!(stream.mark(Level::Disk), 0);
    drop(stream);
    let mut stream = writer(&process, &options()).unwrap();
    assert_eq!((stream.recovery(), stream.next_sequence()), (&Recovery::Live, 1));
    stream.drain().unwrap();
    assert_eq!(stream.mark(Level::Disk), 1);
}

#[test]
fn retention_took_what_was_not_safe_yet() {
    let machine = Machine::new(1);
    let process = machine.start();
    let small = Options { retain_bytes: Some(300_000), when_full: WhenFull::DropOldest, ..options() };
    let mut stream = writer(&process, &small).unwrap();
    for n in 0..2000 {
        match stream.append(&meta(n), &[7; 1000]) {
            Ok(_) => {}
            Err(Error::Dropped) => {
                assert!(stream.first_sequence() <= stream.mark(Level::Disk));
                stream.drain().unwrap();
            }
            Err(e) => panic!("{e}"),
        }
        assert!(stream.first_sequence() <= stream.mark(Level::Disk));
    }
    assert!(stream.first_sequence() > 0);
}

/// Pushes messages of 4 KiB until `count` more were taken; a drain follows each refusal. Panics after ten times as many.
fn push_all(stream: &mut Writer, count: u64) {
    let (mut taken, mut refused) = (0, 0);
    while taken < count {
        match stream.append(&meta(taken), &[7; 4096]) {
            Ok(_) => taken += 1,
            Err(e) if e.is_full() && refused < 10 * count => refused += 1,
            Err(e) => panic!("{taken} of {count} messages taken: {e}"),
        }
        // `trouble` says why it cannot write.
        let _ = stream.drain();
    }
}

#[test]
fn what_was_let_go_of_on_a_full_disk_was_never_freed() {
    let keep_free = Options { keep_free_bytes: Some(1 << 20), ..options() };
    let retain = Options { retain_bytes: Some(2 << 20), ..options() };
    for (options, is_killed) in [(&keep_free, false), (&keep_free, true), (&retain, false), (&retain, true)] {
        let machine = Machine::new(1);
        let process = machine.start();
        machine.room(4 << 20, u64::MAX);
        let mut stream = writer(&process, options).unwrap();
        push_all(&mut stream, 1000);
        let (first, before) = (stream.first_sequence(), machine.used().0);
        assert!(first > 0);
        // Another program takes all that is left.
        machine.room(before, u64::MAX);
        if is_killed {
            // SAFETY: the writer is the only object.
            unsafe { machine.kill(&process, stream) };
            let process = machine.start();
            stream = writer(&process, options).unwrap();
            assert_eq!(stream.recovery(), &Recovery::Live);
        }
        push_all(&mut stream, 1000);
        assert!(stream.first_sequence() > first + 500, "{options:?}");
        assert_eq!(stream.trouble(), None);
        // Nothing is on the disk twice, and nothing that was released.
        stream.wait(stream.next_sequence(), Level::Disk, Duration::from_secs(60)).unwrap();
        assert!(machine.used().0 <= before, "{} of {before} bytes", machine.used().0);
    }
}

#[test]
fn what_a_damaged_newer_record_said_was_not_missed() {
    let machine = Machine::new(1);
    let process = machine.start();
    let mut stream = writer(&process, &options()).unwrap();
    promise(&mut stream, &meta(0), b"promised");
    drop(stream);
    let [even, odd] = generations(&process);
    let older = if even < odd { 0 } else { 4096 };
    machine.flip(&Path::new(FOLDER).join("commit"), older + 20).unwrap();
    // Which of them was the newer one cannot be told any more.
    let stream = writer(&process, &options()).unwrap();
    assert!(matches!(stream.recovery(), Recovery::Cut { epoch: 1, first: 1, end: 1, .. }));
}

#[test]
fn the_name_of_a_new_stream_was_not_synced() {
    static SYNCED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    let machine = Machine::new(1);
    machine.ignore_sync(Some(|name, is_folder| {
        SYNCED.fetch_or(is_folder && name == "/disk", std::sync::atomic::Ordering::Relaxed);
        false
    }));
    drop(writer(&machine.start(), &options()).unwrap());
    assert!(SYNCED.load(std::sync::atomic::Ordering::Relaxed));
}

#[test]
fn a_second_opening_on_a_full_disk_was_refused() {
    let machine = Machine::new(1);
    let process = machine.start();
    let mut stream = writer(&process, &options()).unwrap();
    stream.origin("o").unwrap();
    stream.append(&meta(0), b"one").unwrap();
    stream.drain().unwrap();
    // SAFETY: the writer is the only object.
    unsafe { machine.kill(&process, stream) };
    let (disk, _) = machine.used();
    machine.room(disk, u64::MAX);
    let process = machine.start();
    let stream = writer(&process, &options()).unwrap();
    assert_eq!((stream.recovery(), stream.next_sequence()), (&Recovery::Live, 1));
}

#[test]
fn a_second_reader_of_a_name_took_the_pins_of_the_first() {
    let machine = Machine::new(1);
    let process = machine.start();
    let mut stream = writer(&process, &options()).unwrap();
    for n in 0..100 {
        stream.append(&meta(n), &[n as u8; 1000]).unwrap();
    }
    stream.drain().unwrap();
    let mut reader = counted(&process);
    let batch = reader.read(100).unwrap();
    // As a feed does that restarts.
    drop(counted(&process));
    for n in 100..5000 {
        if stream.append(&meta(n), &[0xff; 1000]).is_err() {
            stream.drain().unwrap();
        }
    }
    for (n, m) in batch.iter().enumerate() {
        assert!(m.payload.iter().all(|&b| b == n as u8), "message {n} was written over");
    }
}

/// EIO for one opening, length, reading, mapping or listing, each in its turn: too many open files look the same.
#[test]
fn a_live_place_that_could_not_be_looked_at_was_taken_for_gone() {
    let (mut failed, mut opened) = (0, 0);
    for level in [Level::Disk, Level::Memory] {
        let machine = Machine::new(1);
        let options = Options { level, ..options() };
        let mut process = machine.start();
        let mut stream = writer(&process, &options).unwrap();
        stream.origin("o").unwrap();
        for n in 0..3000 {
            stream.append(&meta(n), &[n as u8; 100]).unwrap();
            if n == 1000 {
                stream.drain().unwrap();
            }
        }
        let uuid = stream.header().uuid;
        let mut stream = Some(stream);
        let mut looks = 0;
        loop {
            // SAFETY: the writer is the only object.
            unsafe { machine.kill(&process, stream.take()) };
            process = machine.start();
            machine.fail_look_after(Some(looks));
            match writer(&process, &options) {
                Err(Error::Io { source, .. }) => {
                    assert_eq!(source.raw_os_error(), Some(libc::EIO));
                    failed += 1;
                }
                answer => {
                    opened += 1;
                    let whole = answer.unwrap();
                    assert_eq!((whole.recovery(), whole.next_sequence()), (&Recovery::Live, 3000), "look {looks}");
                    assert_eq!(whole.header().uuid, uuid);
                    stream = Some(whole);
                }
            }
            looks += 1;
            let all_went = looks > 300;
            machine.fail_look_after(None);
            if all_went {
                break;
            }
        }
        drop(stream);
        assert_eq!(numbers(&process, true), (0..3000).collect::<Vec<_>>());
    }
    println!(
        "files that could not be looked at when a killed stream was opened: {failed} injected and refused with a name, {opened} opened, 0 lost"
    );
    assert!(failed > 40, "{failed}");
}

#[test]
#[ignore = "minutes"]
fn soak_looks_and_sectors() {
    a_live_place_that_could_not_be_looked_at_was_taken_for_gone();
    sectors(10_000);
}

/// Messages on a page that the medium does not give are named; all others are read, and with the page back all are
/// there.
#[test]
fn a_sector_that_cannot_be_read_is_named() {
    sectors(100);
}

fn sectors(streams: u64) {
    let (mut bad, mut named, mut read, mut refused) = (0, 0, 0, 0);
    for seed in 0..streams {
        let machine = Machine::new(seed);
        let mut dice = testkit::Dice::new(seed);
        let process = machine.start();
        let mut stream = writer(&process, &options()).unwrap();
        stream.origin("o").unwrap();
        let payload = |n: u64| vec![n as u8; (n * 37 % 700) as usize];
        for n in 0..2500 {
            while stream.append(&meta(n), &payload(n)).is_err() {
                stream.drain().unwrap();
            }
        }
        if dice.one_in(2) {
            drop(stream);
        } else {
            stream.drain().unwrap();
            // SAFETY: the writer is the only object.
            unsafe { machine.power_cut(stream) };
        }
        let process = machine.start();
        let media: Arc<dyn Media> = process.clone();
        let files = machine.names("/disk");
        let files: Vec<_> = files.iter().filter(|path| !path.ends_with("lock") && !path.ends_with("pins")).collect();
        for _ in 0..dice.range(1, 3) {
            let file = dice.pick(&files);
            machine.bad_sector(file, dice.below(media.open(file, Open::Read).unwrap().len().unwrap())).unwrap();
            bad += 1;
        }
        let look = || {
            let (mut seen, mut lost) = (0, 0);
            // Where the newest record cannot be read, what is behind the other is there, and not yet called safe.
            let options = ReadOptions { early: true, ..ReadOptions::default() };
            let opened = Reader::open(&media, Path::new(FOLDER), options);
            let mut reader = match opened {
                Ok(reader) => reader,
                Err(Error::Io { source, path, .. }) => {
                    assert!(source.raw_os_error() == Some(libc::EIO) && path.starts_with(FOLDER));
                    return None;
                }
                Err(e) => panic!("seed {seed}: {e}"),
            };
            while reader.position() < reader.end() {
                let at = reader.position();
                match reader.read(1000) {
                    Ok(batch) => {
                        for m in batch.iter() {
                            assert!(m.entry.origin_seq == m.sequence && m.payload == payload(m.sequence));
                            seen += 1;
                        }
                    }
                    Err(Error::Corrupt { path, .. }) => {
                        assert!(path.starts_with(FOLDER));
                        lost += 1;
                        reader.seek(at + 1);
                    }
                    Err(e) => panic!("seed {seed}: {e}"),
                }
            }
            Some((seen, lost, reader.end()))
        };
        if let Some((seen, lost, end)) = look() {
            // A page holds 64 entries, or what of messages lies in it.
            assert!(
                seen + lost == end as usize && lost <= 3 * 64 + 3 * 40,
                "seed {seed}: {seen} of {end}, {lost} lost"
            );
            (named, read) = (named + lost, read + seen);
            match verify(&media, Path::new(FOLDER), &mut |_, _| ()) {
                Ok(all) => assert_eq!((all.wrong, all.count), (lost as u64, end), "seed {seed}"),
                Err(e) => assert!(matches!(e, Error::Io { .. }), "seed {seed}: {e}"),
            }
        }
        // A writer is refused with the name of the file, or continues and removes nothing that was promised.
        match writer(&process, &options()) {
            Ok(writer) => assert!(writer.next_sequence() >= 2500, "seed {seed}: {:?}", writer.recovery()),
            Err(Error::Io { path, .. }) => {
                assert!(path.starts_with(FOLDER));
                refused += 1;
            }
            Err(e) => panic!("seed {seed}: {e}"),
        }
        machine.good_sectors();
        drop(writer(&process, &options()).unwrap());
        let (seen, lost, end) = look().unwrap();
        assert_eq!((seen, lost, end), (2500, 0, 2500), "seed {seed}");
    }
    println!(
        "sectors that cannot be read: {bad} injected into {streams} streams, {named} messages named, {read} read, {refused} \
         openings refused with the name of the file, 0 lost once they can be read, 0 wrong"
    );
}

#[test]
fn a_record_that_cannot_be_read_kept_readers_from_a_stream_that_the_other_describes() {
    for clean in [false, true] {
        for newest in [false, true] {
            let machine = Machine::new(7);
            let process = machine.start();
            let mut stream = writer(&process, &options()).unwrap();
            stream.origin("o").unwrap();
            for n in 0..500 {
                stream.append(&meta(n), &[n as u8; 100]).unwrap();
                if n % 100 == 0 {
                    stream.drain().unwrap();
                }
            }
            stream.drain().unwrap();
            if clean {
                drop(stream);
            } else {
                // SAFETY: the writer is the only object.
                unsafe { machine.power_cut(stream) };
            }
            let process = machine.start();
            let media: Arc<dyn Media> = process.clone();
            let path = Path::new(FOLDER).join("commit");
            let [a, b] = generations(&process);
            let (older, newer) = if a < b { (0, 4096) } else { (4096, 0) };
            machine.bad_sector(&path, if newest { newer } else { older }).unwrap();
            let all: Vec<u64> = (0..500).collect();
            assert_eq!(numbers(&process, false), all);
            assert!(matches!(writer(&process, &options()), Err(Error::Io { path: at, .. }) if at == path));
            let seen = verify(&media, Path::new(FOLDER), &mut |_, _| ()).unwrap();
            assert_eq!((seen.count, seen.wrong, seen.flaws.len()), (500, 0, 1), "{seen:?}");
            let done = repair(&media, Path::new(FOLDER), &mut |_, _| ()).unwrap();
            assert!(done.commit && done.left.flaws.is_empty(), "{done:?}");
            assert_eq!(writer(&process, &options()).unwrap().next_sequence(), 500);
            assert_eq!(numbers(&process, false), all);
        }
    }
}

#[test]
fn a_live_place_that_was_made_anew_looked_like_one_that_was_taken_away() {
    let machine = Machine::new(1);
    let place = |process: &Arc<PretendMedia>| LivePlace::open(process.as_ref(), Path::new(FOLDER)).unwrap();
    let process = machine.start();
    let mut stream = writer(&process, &options()).unwrap();
    stream.origin("o").unwrap();
    stream.append(&meta(0), b"only in memory").unwrap();
    let live = stream.header().live.clone();
    let held = place(&process).unwrap();
    assert!(held.is_there(process.as_ref()) && !held.is_given_up());
    // Killed; what is left is not whole.
    // SAFETY: the writer is the only object.
    unsafe { machine.kill(&process, stream) };
    let process = machine.start();
    let held = place(&process).unwrap();
    process.unlink(&live.join("p-00000000")).unwrap();
    let stream = writer(&process, &options()).unwrap();
    assert!(!held.is_there(process.as_ref()) && held.is_given_up(), "a writer that recovers says so before");
    let held = place(&process).unwrap();
    assert!(held.is_there(process.as_ref()) && !held.is_given_up());
    drop(stream);
    assert!(
        !held.is_there(process.as_ref()) && held.is_given_up() && place(&process).is_none(),
        "one that ends takes it along"
    );
    let _stream = writer(&process, &options()).unwrap();
    let held = place(&process).unwrap();
    process.rename(&live.join("head"), &live.join("taken")).unwrap();
    assert!(!held.is_there(process.as_ref()) && !held.is_given_up(), "somebody took it away, and has it still");
    process.unlink(&live.join("taken")).unwrap();
    assert!(!held.is_there(process.as_ref()) && !held.is_given_up(), "somebody took it away");
}

/// Between the look at the oldest message and the look at its entry the writer begins a segment.
#[test]
fn a_search_by_time_ended_with_an_error_when_retention_moved_meanwhile() {
    let machine = Machine::new(1);
    let (process, other) = (machine.start(), machine.start());
    let media: Arc<dyn Media> = process.clone();
    let folder = Path::new("/live/s");
    let options = Options { drain: Drain::Caller, ..Options::memory(1 << 20) };
    let mut stream = Writer::open(&media, folder, "s", &options).unwrap();
    for n in 0..2000 {
        stream.append(&meta(n), &[0; 1000]).unwrap();
    }
    let before = stream.first_sequence();
    let other: Arc<dyn Media> = other;
    let mut reader = Reader::open(&other, folder, ReadOptions::default()).unwrap();
    let stream = Arc::new(std::sync::Mutex::new(stream));
    let writer = stream.clone();
    machine.before_open("i-", move || {
        let mut writer = writer.lock().unwrap();
        for n in 2000..2500 {
            writer.append(&meta(n), &[0; 1000]).unwrap();
        }
    });
    let found = reader.time_range(0, 2000).unwrap();
    let first = stream.lock().unwrap().first_sequence();
    assert!(first > before, "retention did not move");
    // Entries that were read before retention moved may be in it.
    assert!((before..=first).contains(&found.0) && found.1 == 2000, "{found:?}");
}

/// Another program fills shared memory.
#[test]
fn full_shared_memory_stopped_streams_that_drop() {
    let folder = Path::new("/live/s");
    for when_full in [WhenFull::DropNewest, WhenFull::DropOldest] {
        let machine = Machine::new(1);
        let media: Arc<dyn Media> = machine.start();
        let options = Options { when_full, drain: Drain::Caller, ..Options::memory(1 << 20) };
        let mut stream = Writer::open(&media, folder, "s", &options).unwrap();
        for n in 0..500 {
            stream.append(&meta(n), &[0; 1000]).unwrap();
        }
        machine.room(u64::MAX, machine.used().1);
        let (mut taken, mut dropped) = (0, 0);
        for n in 500..2000 {
            match stream.append(&meta(n), &[0; 1000]) {
                Ok(_) => taken += 1,
                Err(Error::Dropped) => dropped += 1,
                Err(e) => panic!("{when_full:?}: message {n}: {e}"),
            }
        }
        let reader = Reader::open(&media, folder, ReadOptions::default()).unwrap();
        assert_eq!(reader.bounds().dropped, dropped);
        if when_full == WhenFull::DropOldest {
            assert_eq!((taken, dropped), (1500, 0));
            assert!(stream.first_sequence() > 1000);
        } else {
            assert!(dropped > 1300, "{dropped}");
            assert_eq!(stream.first_sequence(), 0);
        }
        machine.room(u64::MAX, u64::MAX);
        stream.append(&meta(2000), &[0; 1000]).unwrap();
    }
}

/// A kill at each step of a removal leaves the stream, or a folder in which a stream can be made.
#[test]
fn a_removal_that_was_cut_short_left_a_stream_without_its_header() {
    let (mut cut, mut whole) = (0, 0);
    for changes in 0.. {
        let machine = Machine::new(1);
        let process = machine.start();
        let mut stream = writer(&process, &options()).unwrap();
        stream.origin("o").unwrap();
        for n in 0..3000 {
            promise(&mut stream, &meta(n), &[0; 1000]);
        }
        drop(stream);
        let media: Arc<dyn Media> = process.clone();
        machine.stop_after(Some(changes));
        let removed = beamport_store::remove(&media, Path::new(FOLDER));
        let stopped = machine.stopped();
        // SAFETY: nothing of the process is left.
        unsafe { machine.kill(&process, ()) };
        let process = machine.start();
        match writer(&process, &options()).unwrap().recovery() {
            Recovery::Fresh => cut += 1,
            found => {
                assert_eq!(*found, Recovery::Clean);
                whole += 1;
            }
        }
        if removed.is_ok() && !stopped {
            break;
        }
    }
    assert!(cut > 5 && whole > 0, "{cut} {whole}");
}

#[test]
fn of_1024_readers_each_reads_all_and_a_sink_has_a_place() {
    let machine = Machine::new(1);
    let process = machine.start();
    let mut stream = writer(&process, &options()).unwrap();
    for n in 0..200 {
        promise(&mut stream, &meta(n), &[n as u8; 100]);
    }
    let other: Arc<dyn Media> = machine.start();
    let anonymous = |_| Reader::open(&other, Path::new(FOLDER), ReadOptions::default()).unwrap();
    let mut many: Vec<Reader> = (0..1024).map(anonymous).collect();
    for reader in &mut many {
        let batch = reader.read(1000).unwrap();
        assert!(batch.len() == 200 && batch.iter().all(|m| *m.payload == [m.sequence as u8; 100]));
    }
    // The readers of a sink, a view and a slot.
    let mut sink = counted(&process);
    assert_eq!(sink.read(1000).unwrap().len(), 200);
    sink.commit(200);
    assert_eq!(stream.pins().slowest().unwrap().committed, 200);
    assert_eq!(stream.pins().readers().len(), limits::READERS_MAX - limits::READERS_NAMED + 1);
}

#[test]
fn a_stream_without_its_header_was_begun_anew_over_its_messages() {
    let machine = Machine::new(1);
    let process = machine.start();
    let media: Arc<dyn Media> = process.clone();
    let mut stream = writer(&process, &options()).unwrap();
    for n in 0..100 {
        promise(&mut stream, &meta(n), b"bytes");
    }
    drop(stream);
    media.unlink(&Path::new(FOLDER).join("stream")).unwrap();
    let before = machine.names(FOLDER);
    assert!(matches!(writer(&process, &options()), Err(Error::Headless(_))));
    assert!(matches!(Reader::open(&media, Path::new(FOLDER), ReadOptions::default()), Err(Error::Headless(_))));
    assert_eq!(machine.names(FOLDER), before);
}
