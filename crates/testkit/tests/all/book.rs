//! Books on the pretend machine: what they keep, what they do without room, and which record is the newest.

use beamport_testkit::Machine;
use flow::commits::FinishedRuns;
use flow::records::Commit;
use flow::{Book, Data, Keeps, Passes, last_commit};
use std::path::PathBuf;
use std::time::Duration;
use store::{Drain, Meta, SchemaId};

const BOOK: &str = "file.7.commits";

fn data(machine: &Machine, folder: &str) -> Data {
    Data { media: machine.start(), folder: folder.into(), drain: Drain::Caller }
}

fn commit(block: u64, state: String) -> Commit {
    let (stage, run) = ("file".into(), "7".into());
    let (inputs, gaps) = (Vec::new(), Vec::new());
    let (output_first, output_next, finished, totals) = (0, 0, false, None);
    Commit { stage, run, block, time: 1, inputs, gaps, output_first, output_next, state, finished, totals }
}

#[test]
fn a_book_of_newest_messages_stays_small_and_keeps_the_last() {
    let machine = Machine::new(1);
    for folder in ["/disk/data", "/live/data"] {
        let data = Data { media: machine.start(), folder: folder.into(), drain: Drain::Caller };
        let mut book = Book::open(&data, "file.7.commits", Keeps::Newest(1 << 20)).unwrap();
        for n in 0..4000_u64 {
            let schema = SchemaId(*b"bpcm");
            let meta = Meta { source_time: 0, origin: 0, origin_seq: n, schema, flags: 0 };
            book.writer_mut().append(&meta, &[n as u8; 1000]).unwrap();
            assert!(book.wait(n, Duration::ZERO).unwrap());
        }
        let kept = data.book_messages("file.7.commits").unwrap();
        assert!((500..1200).contains(&kept.len()), "{folder}: {}", kept.len());
        assert_eq!(kept.last().unwrap(), &vec![(3999 % 256) as u8; 1000]);
    }
}

#[test]
fn a_record_without_room_is_appended_later_and_leaves_no_hole() {
    let machine = Machine::new(1);
    let data = data(&machine, "/disk/data");
    let mut book = Book::open(&data, BOOK, Keeps::All).unwrap();
    machine.room(machine.used().0, u64::MAX);
    let refused = (0..).find_map(|block| book.append(&commit(block, "a".repeat(50_000))).err().map(|f| (block, f)));
    let (block, fault) = refused.unwrap();
    assert_eq!(fault.passes, Passes::WithRoom, "{fault}");
    assert!(!book.is_safe(block - 1) && book.settle().is_err());
    machine.room(u64::MAX, u64::MAX);
    assert_eq!(book.append(&commit(block, "b".into())).unwrap(), block);
    assert!(book.wait(block, Duration::from_secs(10)).unwrap());
    assert_eq!(last_commit(&data, "file", "7").unwrap().unwrap(), commit(block, "b".into()));
}

#[test]
fn the_newest_commit_is_the_newest_that_verifies_and_is_of_the_run() {
    let machine = Machine::new(1);
    let data = data(&machine, "/disk/data");
    assert_eq!(last_commit(&data, "file", "7").unwrap(), None, "without a book");
    let mut book = Book::open(&data, "file.commits", Keeps::All).unwrap();
    for (block, run) in [(0, "7"), (1, "7"), (2, "8")] {
        let sequence = book.append(&Commit { run: run.into(), ..commit(block, "{}".into()) }).unwrap();
        assert!(book.wait(sequence, Duration::from_secs(10)).unwrap());
    }
    drop(book);
    let newest = || last_commit(&data, "file", "7").unwrap().map(|commit| commit.block);
    assert_eq!(newest(), Some(1));
    let entry = data.reader_early("file.commits").unwrap().entries(1, 1).unwrap()[0];
    let file = PathBuf::from("/disk/data/file.commits").join(format!("p-{:08x}", entry.segment));
    machine.flip(&file, entry.offset() + 9).unwrap();
    assert_eq!(newest(), Some(0));
    assert_eq!(last_commit(&data, "file", "9").unwrap(), None);
}

#[test]
fn finished_runs_are_filed_once_whatever_the_disk_does_and_take_no_segment_each() {
    let machine = Machine::new(1);
    let data = data(&machine, "/disk/data");
    let mut finished = FinishedRuns::open(&data, "file").unwrap();
    for number in 0..40 {
        let run = number.to_string();
        let finish = |finished: bool| Commit { run: run.clone(), finished, ..commit(1, "{}".into()) };
        let book = flow::commits::commits_of_run("file", &run);
        let mut of_run = Book::open(&data, &book, Keeps::Newest(1 << 20)).unwrap();
        let sequence = of_run.append(&finish(false)).unwrap();
        assert!(of_run.wait(sequence, Duration::from_secs(10)).unwrap());
        finished.file_away(&[]).unwrap();
        assert!(!finished.has(&run) && !finished.newest(&run).unwrap().unwrap().finished);
        let sequence = of_run.append(&finish(true)).unwrap();
        assert!(of_run.wait(sequence, Duration::from_secs(10)).unwrap());
        drop(of_run);
        if number == 20 {
            // On a full disk it is filed later, and once.
            machine.room(machine.used().0, u64::MAX);
            let _ = finished.file_away(&[]);
            machine.room(u64::MAX, u64::MAX);
        }
        finished.file_away(&[]).unwrap();
        assert!(finished.has(&run) && finished.newest(&run).unwrap().is_none());
    }
    drop(finished);
    let runs: Vec<String> =
        data.book_messages("file.commits").unwrap().iter().map(|m| Commit::read(m).unwrap().run).collect();
    assert_eq!(runs, (0..40).map(|n| n.to_string()).collect::<Vec<_>>());
    let segments = data.media.list(&PathBuf::from("/disk/data/file.commits")).unwrap();
    assert!(segments.iter().filter(|name| name.starts_with("p-")).count() <= 2, "{segments:?}");
    let again = FinishedRuns::open(&data, "file").unwrap();
    assert!(again.has("0") && again.has("39") && !again.has("40"));
}

#[test]
fn a_commit_that_was_filed_before_a_kill_is_not_filed_again() {
    let machine = Machine::new(1);
    let killed = machine.start();
    let data = Data { media: killed.clone(), folder: "/disk/data".into(), drain: Drain::Caller };
    let finish = Commit { finished: true, ..commit(1, "{}".into()) };
    let mut of_run = Book::open(&data, BOOK, Keeps::Newest(1 << 20)).unwrap();
    let sequence = of_run.append(&finish).unwrap();
    assert!(of_run.wait(sequence, Duration::from_secs(10)).unwrap());
    drop(of_run);
    // Appended, without its mark.
    let mut filed = Book::open(&data, "file.commits", Keeps::All).unwrap();
    filed.append(&finish).unwrap();
    // SAFETY: all maps of this process are in the book.
    unsafe { machine.kill(&killed, filed) };
    let data = self::data(&machine, "/disk/data");
    let mut finished = FinishedRuns::open(&data, "file").unwrap();
    assert!(finished.has("7"));
    finished.file_away(&[]).unwrap();
    drop(finished);
    assert_eq!(data.book_messages("file.commits").unwrap().len(), 1);
    assert!(!data.has(BOOK).unwrap());
}
