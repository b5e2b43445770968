//! Damage of what lies on the medium: bits turned, files cut, files gone. Each is named or harmless, no wrong byte is
//! served, and data that can be proven are repaired.

use beamport_store::*;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use testkit::Dice;

/// A stream at rest, and what it holds.
struct Case {
    folder: PathBuf,
    messages: Vec<Vec<u8>>,
}

fn media() -> Arc<dyn Media> {
    Os::shared()
}

fn options() -> Options {
    Options { drain: Drain::Caller, ..Options::disk(1 << 20) }
}

fn meta(n: u64) -> Meta {
    Meta { source_time: 1000 + n as i64, origin: (n % 3) as u32, origin_seq: n, schema: SchemaId(*b"test"), flags: 0 }
}

fn bytes(n: u64, len: usize) -> Vec<u8> {
    let word = Dice::new(n).word().to_le_bytes();
    (0..len).map(|i| word[i % 8].wrapping_add((i / 8) as u8)).collect()
}

impl Case {
    /// A closed disk stream of `count` messages in a folder of its own.
    fn new(name: &str, count: u64) -> Self {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let folder = PathBuf::from(format!("/dev/shm/beamport-{name}-{}-{number}", std::process::id())).join("s");
        std::fs::create_dir_all(&folder).unwrap();
        let mut case = Self { folder, messages: Vec::new() };
        let mut writer = case.writer();
        let mut dice = Dice::new(count);
        for name in ["a", "b", "c"] {
            writer.origin(name).unwrap();
        }
        for n in 0..count {
            let len = if dice.one_in(20) { dice.below(9000) } else { dice.below(300) } as usize;
            case.push(&mut writer, bytes(n, len));
        }
        case
    }

    fn writer(&self) -> Writer {
        Writer::open(&media(), &self.folder, "s", &options()).unwrap()
    }

    fn push(&mut self, writer: &mut Writer, payload: Vec<u8>) {
        let n = self.messages.len() as u64;
        while let Err(e) = writer.append(&meta(n), &payload) {
            assert!(e.is_full(), "{e}");
            writer.drain().unwrap();
        }
        self.messages.push(payload);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn files(&self, kind: &str) -> Vec<PathBuf> {
        let mut names: Vec<PathBuf> = std::fs::read_dir(&self.folder).unwrap().map(|e| e.unwrap().path()).collect();
        names.retain(|p| p.file_name().unwrap().to_str().unwrap().starts_with(kind) && p.extension().is_none());
        names.sort();
        names
    }

    /// The machine's memory is gone.
    fn forget(&self) {
        if let Ok(header) = Header::read(&Os, &self.folder) {
            let _ = std::fs::remove_dir_all(header.live);
        }
    }

    /// The messages of `0..count` that can be read; every message that is served is judged.
    fn readable(&self) -> Vec<bool> {
        let mut reader = Reader::open(&media(), &self.folder, ReadOptions::default()).unwrap();
        let mut seen = vec![false; reader.bounds().count as usize];
        while reader.position() < seen.len() as u64 {
            match reader.next(usize::MAX).unwrap() {
                Stretch::Messages(batch) => {
                    assert!(!batch.is_empty());
                    for m in batch.iter() {
                        let n = m.sequence;
                        let same = m.payload == self.messages[n as usize] && m.entry.origin_seq == n;
                        assert!(same && m.entry.source_time == meta(n).source_time, "message {n} is wrong");
                        seen[n as usize] = true;
                    }
                }
                Stretch::Missing(missing) => {
                    assert!(matches!(missing.why, Why::Corrupt | Why::File), "{missing:?}");
                    reader.seek(missing.next);
                }
            }
        }
        seen
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        self.forget();
        let _ = std::fs::remove_dir_all(self.folder.parent().unwrap());
    }
}

fn turn(path: &Path, bit: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, bit / 8).unwrap();
    file.write_all_at(&[byte[0] ^ 1 << (bit % 8)], bit / 8).unwrap();
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

/// Messages of a stream that is read once for each bit: a full index segment and the beginning of another.
const FEW: u64 = 2200;

/// Bits of payload segments: each is in one message, which is named, or between messages.
fn payload_flips(count: u64) {
    let case = Case::new("flips", FEW);
    let files = case.files("p-");
    assert!(files.len() > 3);
    let whole: Vec<bool> = vec![true; FEW as usize];
    let (mut dice, mut named, mut between) = (Dice::new(count), 0, 0);
    for _ in 0..count {
        let file = dice.pick(&files.iter().collect::<Vec<_>>());
        let bit = dice.below(length(file) * 8);
        turn(file, bit);
        let seen = case.readable();
        match seen.iter().filter(|s| !**s).count() {
            0 => between += 1,
            1 => named += 1,
            n => panic!("{n} messages for one bit"),
        }
        turn(file, bit);
    }
    assert_eq!(case.readable(), whole);
    assert!(named > count / 2);
    println!(
        "single bits of sealed payload segments: {count} injected, {named} named, {between} between messages, \
         0 wrong bytes served"
    );
}

#[test]
fn each_wrong_bit_of_a_payload_is_named() {
    payload_flips(2000);
}

#[test]
#[ignore = "minutes"]
fn soak_payload_bits() {
    payload_flips(100_000);
}

/// Bits of index segments: named or harmless, and repaired byte for byte.
fn index_flips(count: u64) {
    let case = Case::new("index", FEW);
    let files = case.files("i-");
    assert_eq!(files.len(), 2);
    let good: Vec<Vec<u8>> = files.iter().map(|f| std::fs::read(f).unwrap()).collect();
    let (mut dice, mut named, mut harmless, mut mended) = (Dice::new(count), 0, 0, 0);
    for _ in 0..count {
        let which = dice.below(files.len() as u64) as usize;
        let bits: Vec<u64> = (0..dice.range(1, 3)).map(|_| dice.below(length(&files[which]) * 8)).collect();
        bits.iter().for_each(|&bit| turn(&files[which], bit));
        let lost = case.readable().iter().filter(|s| !**s).count();
        assert!(lost <= bits.len());
        named += u64::from(lost > 0);
        harmless += u64::from(lost == 0);
        if lost > 0 {
            let repaired = repair(&media(), &case.folder, &mut |_, _| ()).unwrap();
            assert_eq!((repaired.entries, repaired.left.wrong), (lost as u64, 0), "{bits:?}");
            assert_eq!(repaired.copies.len(), 1);
            assert!(case.readable().iter().all(|s| *s));
            mended += 1;
            std::fs::remove_file(&repaired.copies[0]).unwrap();
        }
        // Bits of the time table and behind the end are harmless; they are put back here.
        std::fs::write(&files[which], &good[which]).unwrap();
    }
    println!(
        "one or two bits of index segments: {count} injected, {named} named, {harmless} harmless, {mended} made good \
         again, 0 wrong bytes served"
    );
}

#[test]
fn each_wrong_bit_of_an_index_is_named_and_made_good() {
    index_flips(500);
}

#[test]
#[ignore = "minutes"]
fn soak_index_bits() {
    index_flips(100_000);
}

/// Every length to which the files of the last three messages can be cut, with the messages behind the commit record
/// (`promised` false) or below it.
fn truncations(promised: bool) -> u64 {
    let mut case = Case::new("cut", 40);
    let mut writer = case.writer();
    let before = std::fs::read(case.path("commit")).unwrap();
    for len in [100, 300, 9] {
        case.push(&mut writer, bytes(case.messages.len() as u64, len));
    }
    drop(writer);
    case.forget();
    if !promised {
        // As if the power went before the last record.
        std::fs::write(case.path("commit"), before).unwrap();
    }
    let kept = case.folder.with_file_name("kept");
    copy(&case.folder, &kept);
    let mut points = 0;
    let payload = case.files("p-").last().unwrap().file_name().unwrap().to_str().unwrap().to_string();
    let table = 4096;
    let ranges = [(payload, 0, 600), ("i-00000000".to_string(), table + 40 * 64, table + 43 * 64)];
    for (name, low, high) in ranges {
        for end in low..=high {
            let whole = length(&kept.join(&name));
            if end > whole {
                break;
            }
            std::fs::remove_dir_all(&case.folder).unwrap();
            copy(&kept, &case.folder);
            let file = std::fs::OpenOptions::new().write(true).open(case.path(&name)).unwrap();
            file.set_len(end).unwrap();
            drop(file);
            let mut writer = Writer::open(&media(), &case.folder, "s", &options()).unwrap();
            let count = writer.next_sequence();
            let entries_left = if name.starts_with('i') { 40 + (end - low) / 64 } else { 43 };
            assert!((40..=entries_left).contains(&count), "{count} of {entries_left} at {end} of {name}");
            if promised && name.starts_with('p') {
                assert_eq!(count, 43, "what was promised is not cut because its payload is damaged: it is named");
            }
            match writer.recovery() {
                Recovery::Cut { first, end, .. } => assert!(*first == count && *end >= count),
                _ => assert_eq!(count, 43),
            }
            // It goes on, and what comes is read beside what is left.
            writer.append(&meta(count), b"after").unwrap();
            drop(writer);
            case.messages.insert(count as usize, b"after".to_vec());
            let (cut, seen) = (case.messages.len(), case.readable());
            case.messages.remove(count as usize);
            assert!(seen.len() as u64 == count + 1 && seen.len() <= cut);
            let lost = seen.iter().filter(|s| !**s).count();
            assert!(seen[..40].iter().all(|s| *s) && seen[count as usize] && (lost == 0 || promised), "{seen:?}");
            case.forget();
            points += 1;
        }
    }
    points
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

#[test]
fn every_truncation_of_the_last_three_messages() {
    let (behind, below) = (truncations(false), truncations(true));
    println!(
        "files cut at each byte of the last three messages: {behind} behind the commit record and {below} below it \
         injected, opened by themselves each time, 0 wrong bytes served"
    );
}

/// The report also has lines for checks that are always exhaustive.
#[test]
#[ignore = "its lines in the report"]
fn soak_damage_in_full() {
    every_truncation_of_the_last_three_messages();
    a_header_with_a_wrong_bit_is_made_good();
    a_row_of_the_time_table_and_one_commit_record_are_named_and_made_again();
    messages_whose_origin_has_no_name_any_more_are_counted();
    a_file_that_was_cut_under_its_reader_killed_it();
}

#[test]
fn a_header_with_a_wrong_bit_is_made_good() {
    let case = Case::new("header", 100);
    case.forget();
    let good = std::fs::read(case.path("stream")).unwrap();
    let (mut refused, mut mended) = (0, 0);
    for bit in 0..good.len() as u64 * 8 {
        turn(&case.path("stream"), bit);
        if Header::read(&Os, &case.folder).is_err() {
            refused += 1;
            let repaired = repair(&media(), &case.folder, &mut |_, _| ()).unwrap();
            assert!(repaired.header && repaired.left.wrong == 0);
            mended += 1;
            std::fs::remove_file(&repaired.copies[0]).unwrap();
        }
        assert_eq!(Header::read(&Os, &case.folder).unwrap().name, "s");
        std::fs::write(case.path("stream"), &good).unwrap();
    }
    println!("single bits of a header: {refused} injected, {mended} made good again");
    assert!(refused > 1000);
}

#[test]
fn commit_records_that_are_gone_are_made_again() {
    let case = Case::new("commit", 5000);
    case.forget();
    for length in [0, 4096 + 64] {
        std::fs::write(case.path("commit"), vec![0; length]).unwrap();
        assert!(Writer::open(&media(), &case.folder, "s", &options()).is_err());
        let repaired = repair(&media(), &case.folder, &mut |_, _| ()).unwrap();
        assert!(repaired.commit);
        assert_eq!((repaired.left.count, repaired.left.wrong), (5000, 0));
    }
    drop(Writer::open(&media(), &case.folder, "s", &options()).unwrap());
    assert!(case.readable().iter().all(|s| *s));
}

#[test]
fn a_newest_commit_record_of_zeros_is_named_and_made_again() {
    let case = Case::new("zeroed-commit", 300);
    // The first record stands alone until there is a second; from then on none does.
    drop(case.writer());
    case.forget();
    let mut bytes = std::fs::read(case.path("commit")).unwrap();
    let generation = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    assert!(generation(0).min(generation(4096)) > 0, "there are two records");
    let newest = if generation(0) > generation(4096) { 0 } else { 4096 };
    bytes[newest..newest + 64].fill(0);
    std::fs::write(case.path("commit"), &bytes).unwrap();
    let seen = verify(&media(), &case.folder, &mut |_, _| ()).unwrap();
    assert_eq!(seen.flaws.len(), 1, "{:?}", seen.flaws);
    assert!(seen.flaws[0].contains(&format!("commit at {newest} does not verify")), "{:?}", seen.flaws);
    let repaired = repair(&media(), &case.folder, &mut |_, _| ()).unwrap();
    assert!(repaired.commit);
    assert_eq!((repaired.left.count, repaired.left.wrong, repaired.left.flaws), (300, 0, Vec::new()));
    // A stream with one record has lost none.
    let fresh = Case::new("fresh-commit", 0);
    assert_eq!(verify(&media(), &fresh.folder, &mut |_, _| ()).unwrap().flaws, Vec::<String>::new());
}

#[test]
fn a_table_of_origins_of_zeros_is_damage_for_its_first_row_too() {
    let case = Case::new("zeroed-origins", 30);
    case.forget();
    let length = std::fs::metadata(case.path("origins")).unwrap().len();
    std::fs::write(case.path("origins"), vec![0; length as usize]).unwrap();
    let mut reader = Reader::open(&media(), &case.folder, ReadOptions::default()).unwrap();
    assert_eq!(reader.origins().unwrap(), Vec::<String>::new());
    let damage = reader.origin_damage(0).map(|e| e.to_string()).unwrap_or_default();
    assert!(damage.contains("row 0 does not verify"), "{damage:?}");
    std::fs::remove_file(case.path("origins")).unwrap();
    reader.origins().unwrap();
    assert!(reader.origin_damage(0).is_none(), "a stream without a table has messages without a name");
}

#[test]
fn a_commit_file_that_was_cut_off_was_not_named() {
    let case = Case::new("cut-commit", 100);
    // As after a crash within the same boot: the newest record may be the one that is cut off.
    case.forget();
    let good = std::fs::read(case.path("commit")).unwrap();
    for length in [314, 3870, 4057, 4096 + 63] {
        std::fs::write(case.path("commit"), &good[..length]).unwrap();
        let Ok(seen) = verify(&media(), &case.folder, &mut |_, _| ()) else { continue };
        assert!(seen.flaws.len() == 1 && seen.flaws[0].contains("commit"), "{length} B: {:?}", seen.flaws);
    }
    std::fs::write(case.path("commit"), &good).unwrap();
    assert_eq!(verify(&media(), &case.folder, &mut |_, _| ()).unwrap().flaws, Vec::<String>::new());
}

#[test]
fn a_named_pipe_in_place_of_a_file_stopped_its_reader_for_ever() {
    let case = Case::new("pipe", 100);
    case.forget();
    for name in ["stream", "commit", "origins", "pins", "i-00000000", "p-00000000"] {
        let (path, aside) = (case.path(name), case.folder.join("aside"));
        std::fs::rename(&path, &aside).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        // The point is that all of these return.
        let verified = verify(&media(), &case.folder, &mut |_, _| ());
        let opened = Reader::open(&media(), &case.folder, ReadOptions::default()).and_then(|mut reader| {
            reader.origins()?;
            reader.read(1).map(|batch| batch.len())
        });
        let written = Writer::open(&media(), &case.folder, "s", &options()).map(drop);
        assert!(verified.is_err() || opened.is_err() || written.is_err(), "nothing names the pipe at `{name}`");
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&aside, &path).unwrap();
    }
    assert_eq!(verify(&media(), &case.folder, &mut |_, _| ()).unwrap().wrong, 0);
}

#[test]
fn a_row_of_the_time_table_and_one_commit_record_are_named_and_made_again() {
    let case = Case::new("flaws", 5000);
    case.forget();
    let seen = || verify(&media(), &case.folder, &mut |_, _| ()).unwrap();
    assert!(seen().flaws.is_empty() && seen().nameless == 0, "{:?}", seen());
    for (name, byte) in [("i-00000000", 3), ("i-00000000", 32 + 21), ("commit", 9), ("commit", 4096 + 9)] {
        let good = std::fs::read(case.path(name)).unwrap();
        turn(&case.path(name), byte * 8);
        let flaws = seen().flaws;
        assert!(flaws.len() == 1 && flaws[0].contains(name), "{flaws:?}");
        let repaired = repair(&media(), &case.folder, &mut |_, _| ()).unwrap();
        assert_eq!((repaired.rows, repaired.commit), (u64::from(name != "commit"), name == "commit"));
        assert!(repaired.left.flaws.is_empty() && repaired.copies.len() == 1);
        if name != "commit" {
            assert_eq!(std::fs::read(case.path(name)).unwrap(), good);
        }
    }
    println!("wrong bits in 2 time rows and 2 commit records: 4 injected, 4 named and made good again");
    assert_eq!(seen().count, 5000);
    drop(Writer::open(&media(), &case.folder, "s", &options()).unwrap());
    assert!(case.readable().iter().all(|s| *s));
}

#[test]
fn messages_whose_origin_has_no_name_any_more_are_counted() {
    let case = Case::new("nameless", 300);
    case.forget();
    let nameless = || verify(&media(), &case.folder, &mut |_, _| ()).unwrap().nameless;
    assert_eq!(nameless(), 0);
    let whole = std::fs::read(case.path("origins")).unwrap();
    // The second of three rows: it and the rows behind it have no name until it is repaired.
    turn(&case.path("origins"), 11 * 8);
    assert_eq!(nameless(), 200);
    // Any bit of a complete row, its end too, is found by the checksum of the row.
    let mut mended = 0;
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(case.path("origins"), &bytes).unwrap();
        let done = repair(&media(), &case.folder, &mut |_, _| {}).unwrap();
        let torn = bit / 8 == whole.len() - 1;
        assert_eq!(done.left.nameless, if torn { 100 } else { 0 }, "bit {bit}");
        mended += done.names;
        for copy in done.copies {
            assert_eq!(std::fs::read(&copy).unwrap(), bytes);
            std::fs::remove_file(copy).unwrap();
        }
    }
    std::fs::remove_file(case.path("origins")).unwrap();
    assert_eq!(nameless(), 300);
    println!(
        "injected {} wrong bits in a table of origins, {mended} rows made good, and 1 table removed: no message lost, 300 \
         nameless",
        whole.len() * 8
    );
}

#[test]
fn a_page_that_is_gone_is_named_and_stays_so() {
    let case = Case::new("page", 5000);
    case.forget();
    for kind in ["p-", "i-"] {
        let file = &case.files(kind)[0];
        let good = std::fs::read(file).unwrap();
        let mut bad = good.clone();
        bad[8192..12288].fill(0);
        std::fs::write(file, &bad).unwrap();
        let lost = case.readable().iter().filter(|s| !**s).count() as u64;
        let repaired = repair(&media(), &case.folder, &mut |_, _| ()).unwrap();
        assert!(lost > 0 && repaired.left.wrong == lost && repaired.entries == 0);
        assert!(repaired.left.damage.iter().all(|d| d.end > d.first && d.why.contains(file.to_str().unwrap())));
        std::fs::write(file, &good).unwrap();
    }
}

#[test]
fn a_stream_that_is_written_is_not_repaired() {
    let case = Case::new("written", 10);
    let writer = case.writer();
    assert!(matches!(repair(&media(), &case.folder, &mut |_, _| ()), Err(Error::Locked(_))));
    drop(writer);
}

#[test]
fn damage_on_the_medium_is_made_good_from_the_live_place() {
    let mut case = Case::new("second", 10);
    let mut writer = case.writer();
    for len in [500, 40, 7000] {
        case.push(&mut writer, bytes(case.messages.len() as u64, len));
    }
    writer.drain().unwrap();
    // As a kill leaves it: the live place stands.
    let (kept, live) = (case.folder.with_file_name("live"), writer.header().live.clone());
    copy(&live, &kept);
    drop(writer);
    copy(&kept, &live);
    let file = case.files("p-").pop().unwrap();
    let mut bad = std::fs::read(&file).unwrap();
    bad[0..400].fill(0);
    std::fs::write(&file, bad).unwrap();
    let repaired = repair(&media(), &case.folder, &mut |_, _| ()).unwrap();
    assert_eq!((repaired.payloads, repaired.left.wrong), (1, 0));
    case.forget();
    assert!(case.readable().iter().all(|s| *s));
}

/// What a reader has mapped ends where somebody cuts the file: a signal, if nobody looks before it is touched.
#[test]
fn a_file_that_was_cut_under_its_reader_killed_it() {
    let place = Case::new("under", 10);
    let folder = place.folder.with_file_name("t");
    let options = Options { drain: Drain::Caller, ..Options::disk(8 << 20) };
    let mut writer = Writer::open(&media(), &folder, "t", &options).unwrap();
    for n in 0..400 {
        writer.append(&meta(n), &bytes(n, 8000)).unwrap();
    }
    drop(writer);
    let file = folder.join("p-00000001");
    let mut reader = Reader::open(&media(), &folder, ReadOptions::default()).unwrap();
    reader.seek(150);
    reader.read(1).unwrap();
    reader.seek(0);
    std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(300_000).unwrap();
    let (mut good, mut named) = (0, 0);
    while reader.position() < 400 {
        let at = reader.position();
        match reader.read(1) {
            Ok(batch) => {
                assert!(batch.iter().all(|m| m.payload == bytes(m.sequence, 8000)));
                good += batch.len();
            }
            Err(Error::Corrupt { path, .. }) => {
                assert_eq!(path, file);
                named += 1;
                reader.seek(at + 1);
            }
            Err(e) => panic!("{e}"),
        }
    }
    assert!(good > 250 && named > 50, "{good} good, {named} named");
    println!("a file cut under its reader: 1 injected, {named} messages named, {good} read, 0 wrong");
}
