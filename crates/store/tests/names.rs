//! Names of readers: one process reads under a name, resumes where it committed, and gets an error about what it had
//! read and is no more.

use beamport_store::*;
use std::path::Path;
use std::sync::Arc;
use testkit::{Machine, PretendMedia};

const FOLDER: &str = "/disk/s";

fn options() -> Options {
    Options { drain: Drain::Caller, ..Options::disk(1 << 20) }
}

fn writer(process: &Arc<PretendMedia>) -> Writer {
    let media: Arc<dyn Media> = process.clone();
    let mut writer = Writer::open(&media, Path::new(FOLDER), "s", &options()).unwrap();
    writer.origin("o").unwrap();
    writer
}

fn append(writer: &mut Writer, numbers: std::ops::Range<u64>) {
    for n in numbers {
        let meta = Meta { source_time: n as i64, origin: 0, origin_seq: n, schema: SchemaId(*b"test"), flags: 0 };
        writer.append(&meta, &[n as u8; 1000]).unwrap();
    }
    writer.drain().unwrap();
}

fn reader(process: &Arc<PretendMedia>, start: Start, strict: bool) -> Result<Reader> {
    let media: Arc<dyn Media> = process.clone();
    let options = ReadOptions {
        name: "me".into(),
        kind: Kind::Counted,
        start,
        strict,
        early: true,
        batch_bytes: 1 << 16,
        ..ReadOptions::default()
    };
    Reader::open(&media, Path::new(FOLDER), options)
}

fn strict(process: &Arc<PretendMedia>) -> Result<Reader> {
    reader(process, Start::Committed, true)
}

#[test]
fn a_name_is_one_readers_alone() {
    let machine = Machine::new(1);
    let (a, b) = (machine.start(), machine.start());
    let mut stream = writer(&a);
    append(&mut stream, 0..10);
    let first = strict(&a).unwrap();
    let pid = a.process().pid;
    for other in [&a, &b] {
        match strict(other).map(|_| ()) {
            Err(Error::Taken { name, pid: owner }) => assert_eq!((name.as_str(), owner), ("me", pid)),
            other => panic!("{other:?}"),
        }
    }
    // Those who share a position, sinks of one mover, may in one process.
    drop(reader(&a, Start::Committed, false).unwrap());
    assert!(matches!(reader(&b, Start::Committed, false).map(|_| ()), Err(Error::Taken { .. })));
    assert!(matches!(strict(&b).map(|_| ()), Err(Error::Taken { .. })), "one that shared it has let it go");
    first.commit(4);
    drop(first);
    assert_eq!(strict(&b).unwrap().position(), 4);
    assert_eq!(strict(&a).unwrap().position(), 4);
}

#[test]
fn a_name_is_free_while_views_of_its_last_reader_stay() {
    let machine = Machine::new(1);
    let (a, b) = (machine.start(), machine.start());
    let mut stream = writer(&a);
    append(&mut stream, 0..300);
    let mut first = strict(&a).unwrap();
    let view = first.read(10).unwrap().segments()[0].clone();
    first.commit(10);
    let pinned = |stream: &Writer| stream.pins().readers().iter().map(|r| r.segments).sum::<usize>();
    drop(first);
    assert_eq!(pinned(&stream), 1);
    let mut second = strict(&b).unwrap();
    assert_eq!(second.position(), 10);
    // It pins elsewhere: the view's segment stays as it is, whoever comes and goes.
    second.seek(250);
    let other = second.read(10).unwrap().segments()[0].clone();
    assert_eq!(pinned(&stream), 2);
    drop((second, other));
    assert_eq!(pinned(&stream), 1);
    assert!(stream.pins().pinned(true, 0));
    drop(view);
    assert_eq!(pinned(&stream), 0);
    assert!(strict(&a).is_ok() && strict(&b).is_ok(), "the view took the name with it");
}

#[test]
fn a_name_begins_where_it_is_asked_to_and_goes_on_where_it_was() {
    let machine = Machine::new(1);
    let process = machine.start();
    let mut stream = writer(&process);
    append(&mut stream, 0..10);
    let at = |start| reader(&process, start, true).unwrap().position();
    assert_eq!(at(Start::New(6)), 6);
    assert_eq!(stream.pins().lowest_committed(), Some(6), "from now on it is waited for");
    for start in [Start::New(2), Start::Committed] {
        assert_eq!(at(start), 6);
    }
    assert_eq!(at(Start::Here(3)), 3);
    assert_eq!(at(Start::Committed), 3);
    assert!(stream.pins().remove(process.as_ref(), "me"));
    assert_eq!(at(Start::Committed), 0);
}

#[test]
fn what_was_read_and_is_no_more_is_named() {
    let machine = Machine::new(1);
    let process = machine.start();
    let mut stream = writer(&process);
    append(&mut stream, 0..4);
    for n in 4..7 {
        let meta = Meta { source_time: n, origin: 0, origin_seq: n as u64, schema: SchemaId(*b"test"), flags: 0 };
        stream.append(&meta, b"not on the medium").unwrap();
    }
    let early = strict(&process).unwrap();
    early.commit(7);
    // A new place is made durable, and the others with it.
    let media: Arc<dyn Media> = process.clone();
    let named = ReadOptions { name: "other".into(), kind: Kind::Counted, ..ReadOptions::default() };
    let other = Reader::open(&media, Path::new(FOLDER), named).unwrap();
    // SAFETY: these are all objects.
    unsafe { machine.power_cut((stream, early, other, media)) };
    let process = machine.start();
    let mut stream = writer(&process);
    assert_eq!(stream.next_sequence(), 4);
    append(&mut stream, 4..10);
    let cut: Vec<_> = stream.pins().readers().into_iter().map(|r| (r.name, r.committed, r.cut)).collect();
    assert_eq!(cut, [("me".to_owned(), 4, 3), ("other".to_owned(), 0, 0)]);
    for _ in 0..2 {
        // The error is repeated until a reader says where to resume, and not given once to one that then dies.
        match strict(&process).map(|_| ()) {
            Err(Error::Rewound { epoch: 1, first: 0, end: 4 }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(reader(&process, Start::Here(4), true).unwrap().position(), 4);
    let mut again = strict(&process).unwrap();
    assert_eq!(again.position(), 4);
    // A position that a reader kept itself is refused in the same words.
    assert!(matches!(again.commit_identity(1, 7), Err(Error::Rewound { epoch: 1, first: 0, end: 4 })));
    again.commit_identity(1, 4).unwrap();
    again.commit_identity(2, 7).unwrap();
    assert_eq!(again.committed(), 7);
}

#[test]
fn the_reader_that_holds_a_stream_back_is_named() {
    let machine = Machine::new(1);
    let (a, b) = (machine.start(), machine.start());
    let media: Arc<dyn Media> = a.clone();
    let mut stream = Writer::open(&media, Path::new("/disk/m"), "m", &Options::memory(1 << 20)).unwrap();
    stream.origin("o").unwrap();
    let other: Arc<dyn Media> = b.clone();
    let named = ReadOptions { name: "slow".into(), kind: Kind::Counted, ..ReadOptions::default() };
    let reader = Reader::open(&other, Path::new("/disk/m"), named).unwrap();
    reader.commit(2);
    let mut fill = || loop {
        let meta = Meta { source_time: 0, origin: 0, origin_seq: 0, schema: SchemaId(*b"test"), flags: 0 };
        match stream.append(&meta, &[1; 4000]) {
            Ok(_) => {}
            Err(e) => return (e, stream.next_sequence()),
        }
    };
    let (error, count) = fill();
    let pid = b.process().pid;
    assert!(error.is_full());
    assert_eq!(
        error.to_string(),
        format!("no room: reader `slow` (process {pid}) has not moved on from message 2, {} behind", count - 2)
    );
    drop(reader);
    let (error, _) = fill();
    assert!(error.to_string().contains("`slow` (no process now)"), "{error}");
}

/// In another pid namespace a process that lives has no number, or that of another.
#[test]
fn life_is_a_lock_and_not_a_number() {
    let machine = Machine::new(1);
    let a = machine.start();
    let mut stream = writer(&a);
    append(&mut stream, 0..300);
    let mut first = strict(&a).unwrap();
    let view = first.read(10).unwrap().segments()[0].clone();
    first.commit(7);
    for like in [&a, &machine.start()] {
        let b = machine.start_elsewhere(like);
        for strict in [true, false] {
            let answer = reader(&b, Start::Committed, strict).map(|_| ());
            assert!(matches!(answer, Err(Error::Taken { .. })), "{answer:?}");
        }
        // A reader without a name takes no place of a living reader.
        let media: Arc<dyn Media> = b.clone();
        let anonymous =
            || Reader::open(&media, Path::new(FOLDER), ReadOptions { early: true, ..ReadOptions::default() });
        let others: Vec<Reader> = (0..200).map(|_| anonymous().unwrap()).collect();
        let seen = others[0].pins().readers().into_iter().find(|r| r.name == "me").unwrap();
        assert!(others[0].pins().lives(b.as_ref(), &seen));
    }
    assert!(stream.pins().pinned(true, 0) && first.committed() == 7);
    drop((first, view));
    let b = machine.start_elsewhere(&a);
    assert_eq!(strict(&b).unwrap().position(), 7);
}

#[test]
fn a_place_whose_name_is_removed_belongs_to_its_reader_until_it_ends() {
    let machine = Machine::new(1);
    let (a, b, c) = (machine.start(), machine.start(), machine.start());
    let mut stream = writer(&a);
    append(&mut stream, 0..300);
    let mut first = strict(&b).unwrap();
    let view = first.read(10).unwrap().segments()[0].clone();
    assert!(stream.pins().remove(a.as_ref(), "me"));
    assert_eq!(stream.pins().lowest_committed(), None, "a name that was removed holds something back");
    let mut second = strict(&c).unwrap();
    second.seek(250);
    let other = second.read(10).unwrap().segments()[0].clone();
    let pinned = |stream: &Writer| stream.pins().readers().iter().map(|r| r.segments).sum::<usize>();
    assert_eq!(pinned(&stream), 2);
    // The actions of the first still concern its own place alone.
    first.commit(10);
    assert_eq!(second.committed(), 0);
    drop((first, view));
    assert_eq!((pinned(&stream), stream.pins().readers().len()), (1, 1));
    drop((second, other));
    assert_eq!(stream.pins().lowest_committed(), Some(0));
}

/// A stream does not stand still for a reader that died: when it is known that nobody waits for it, it holds nothing.
#[test]
fn nothing_waits_for_a_dead_reader_that_is_given_up_until_it_comes_back() {
    let machine = Machine::new(1);
    let (a, b) = (machine.start(), machine.start());
    let mut stream = writer(&a);
    append(&mut stream, 0..10);
    let first = strict(&b).unwrap();
    first.commit(4);
    assert!(!stream.pins().stop_waiting(a.as_ref(), "me").unwrap(), "its process lives");
    // SAFETY: the reader is all that the process has mapped.
    unsafe { machine.kill(&b, first) };
    assert!(!stream.pins().stop_waiting(a.as_ref(), "you").unwrap());
    assert!(stream.pins().stop_waiting(a.as_ref(), "me").unwrap());
    assert_eq!(stream.pins().lowest_committed(), None);
    assert!(!stream.pins().stop_waiting(a.as_ref(), "me").unwrap(), "twice");
    let back = strict(&machine.start()).unwrap();
    assert_eq!((back.position(), stream.pins().lowest_committed()), (4, Some(4)));
}

/// Each slot that was ever tried has left a name.
#[test]
fn places_of_dead_readers_that_hold_nothing_are_given_again() {
    let machine = Machine::new(1);
    let a = machine.start();
    let mut stream = writer(&a);
    append(&mut stream, 0..10);
    let named = |media: &Arc<PretendMedia>, name: String, kind| {
        let media: Arc<dyn Media> = media.clone();
        Reader::open(&media, Path::new(FOLDER), ReadOptions { name, kind, early: true, ..ReadOptions::default() })
    };
    let (counted, living) = (machine.start(), machine.start());
    let mut dead = vec![named(&counted, "counts".into(), Kind::Counted).unwrap()];
    let mut lives = Vec::new();
    for slot in 0..limits::READERS_MAX - 1 {
        let (process, list) = if slot % 2 == 0 { (&counted, &mut dead) } else { (&living, &mut lives) };
        list.push(named(process, format!("w.slot{slot}"), Kind::Live).unwrap());
    }
    assert!(matches!(named(&a, "new".into(), Kind::Counted).map(|_| ()), Err(Error::ReadersFull)));
    // SAFETY: the readers are all that the process has mapped.
    unsafe { machine.kill(&counted, dead) };
    let new = named(&a, "new".into(), Kind::Counted).unwrap();
    let names: Vec<String> = stream.pins().readers().into_iter().map(|reader| reader.name).collect();
    assert!(names.contains(&"counts".into()) && names.contains(&"new".into()), "{names:?}");
    assert!(lives.iter().all(|reader| reader.is_here().is_ok()));
    assert!((1..limits::READERS_MAX - 1).step_by(2).all(|slot| names.contains(&format!("w.slot{slot}"))));
    drop((new, lives));
}

/// It was taken twice where one came between two stores of the other.
#[test]
fn a_place_that_somebody_is_about_to_take_is_not_taken() {
    let machine = Machine::new(1);
    let (a, b) = (machine.start(), machine.start());
    let mut stream = writer(&a);
    append(&mut stream, 0..10);
    let path = Path::new(FOLDER).join("pins");
    let pins = a.open(&path, beamport_store::media::Open::Write).unwrap();
    // Kind 1, and locks: what a process leaves that is killed there, in each of the places.
    for place in 0..255 {
        pins.write_at(&1_u32.to_le_bytes(), 256 * (1 + place)).unwrap();
        pins.write_at(&1_u32.to_le_bytes(), 256 * (1 + place) + 232).unwrap();
    }
    let at_it = a.locks(&path, true).unwrap();
    assert!(at_it.lock((1 << 40) + 1).unwrap());
    let media: Arc<dyn Media> = b.clone();
    let reader =
        Reader::open(&media, Path::new(FOLDER), ReadOptions { early: true, ..ReadOptions::default() }).unwrap();
    let mut kind = [0; 4];
    pins.read_at(&mut kind, 256).unwrap();
    assert_eq!(u32::from_le_bytes(kind), 1, "the place was taken twice");
    assert_eq!(reader.pins().readers().len(), 1, "the place of a process that was killed is not taken");
}
