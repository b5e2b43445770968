//! What a reader says of messages that cannot be read: each kind of damage, on the pretend machine.

use beamport_store::media::Open;
use beamport_store::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use testkit::Machine;

fn folder(name: &str) -> PathBuf {
    Path::new("/disk").join(name)
}

fn options(level: Level, when_full: WhenFull) -> Options {
    Options { level, when_full, drain: Drain::Caller, ..Options::memory(1 << 20) }
}

fn open(media: &Arc<dyn Media>, name: &str) -> Writer {
    Writer::open(media, &folder(name), name, &options(Level::Disk, WhenFull::Wait)).unwrap()
}

/// Appends messages of a stream, all of which are on the disk then.
fn append(writer: &mut Writer, count: u64, len: usize) {
    let origin = writer.origin("board").unwrap();
    for _ in 0..count {
        let n = writer.next_sequence();
        let meta = Meta { source_time: n as i64, origin, origin_seq: n, schema: SchemaId(*b"test"), flags: 0 };
        while let Err(e) = writer.append(&meta, &vec![n as u8; len]) {
            assert!(e.is_full(), "{e}");
            writer.drain().unwrap();
        }
    }
    writer.drain().unwrap();
}

fn reader(media: &Arc<dyn Media>, name: &str) -> Reader {
    Reader::open(media, &folder(name), ReadOptions::default()).unwrap()
}

/// Messages in a row that were read (none), or that are missing.
type Row = (u64, u64, Option<Why>);

fn add(rows: &mut Vec<Row>, first: u64, next: u64, why: Option<Why>) {
    match rows.last_mut() {
        Some(last) if (last.1, last.2) == (first, why) => last.1 = next,
        _ => rows.push((first, next, why)),
    }
}

/// All of a stream by [`Reader::next`], and how many calls that took.
fn read(reader: &mut Reader) -> (Vec<Row>, u64) {
    let (mut rows, mut calls) = (Vec::new(), 0);
    reader.seek(reader.bounds().first);
    loop {
        calls += 1;
        match reader.next(usize::MAX).unwrap() {
            Stretch::Messages(batch) if batch.is_empty() => return (rows, calls),
            Stretch::Messages(batch) => {
                let is_right = |m: &Message<'_>| m.payload.iter().all(|b| *b == m.entry.origin_seq as u8);
                assert!(batch.iter().all(|m| is_right(&m)));
                add(&mut rows, batch.first, batch.next(), None);
            }
            Stretch::Missing(missing) => {
                assert_eq!(missing.count(), missing.next - missing.first);
                add(&mut rows, missing.first, missing.next, Some(missing.why));
                reader.seek(missing.next);
            }
        }
    }
}

/// All of a stream by [`Reader::next_entries`].
fn entries(reader: &mut Reader) -> Vec<Row> {
    let (mut rows, mut at) = (Vec::new(), reader.bounds().first);
    loop {
        let (next, why) = match reader.next_entries(at, usize::MAX).unwrap() {
            Stretch::Messages([]) => return rows,
            Stretch::Messages(entries) => (at + entries.len() as u64, None),
            Stretch::Missing(missing) => (missing.next, Some(missing.why)),
        };
        add(&mut rows, at, next, why);
        at = next;
    }
}

/// Byte of the entry of a message in its index segment.
fn entry_at(header: &Header, sequence: u64) -> u64 {
    header.index_bytes() - 64 * (header.index_entries - sequence % header.index_entries)
}

#[test]
fn damage_in_the_middle_costs_one_message_and_no_smaller_batches() {
    let machine = Machine::new(1);
    let media: Arc<dyn Media> = machine.start();
    let mut writer = open(&media, "s");
    append(&mut writer, 100, 64);
    drop(writer);
    let header = Header::read(media.as_ref(), &folder("s")).unwrap();
    let place = reader(&media, "s").get(40).unwrap().unwrap().0.offset();
    machine.flip(&folder("s").join("p-00000000"), place + 7).unwrap();
    machine.flip(&folder("s").join("i-00000000"), entry_at(&header, 70) + 3).unwrap();
    let corrupt = Some(Why::Corrupt);
    let (rows, calls) = read(&mut reader(&media, "s"));
    assert_eq!(rows, [(0, 40, None), (40, 41, corrupt), (41, 70, None), (70, 71, corrupt), (71, 100, None)]);
    assert_eq!(calls, 6, "a call each, and one at the end");
    // Entries are good where payloads are not.
    assert_eq!(entries(&mut reader(&media, "s")), [(0, 70, None), (70, 71, corrupt), (71, 100, None)]);
    let mut shown = 0;
    let walked = reader(&media, "s").walk(0, 100, &mut |some| shown += some.len()).unwrap();
    assert_eq!((shown, walked), (99, Walked { gone: None, lost: vec![(70, 71)] }));
    assert_eq!(reader(&media, "s").time_range(60, 80).unwrap(), (60, 80));
    assert_eq!(reader(&media, "s").time_range(71, 80).unwrap(), (70, 80), "the damaged one may belong to it");
    let mut shown = Vec::new();
    let walked = reader(&media, "s").walk_times(0, &mut |span| shown.push((span.first, span.next))).unwrap();
    assert_eq!((shown, walked.lost), (vec![(0, 70), (71, 100)], vec![(70, 71)]));
    assert_eq!(reader(&media, "s").time_range(60, 70).unwrap(), (60, 71), "the same");
    let lost = verify(&media, &folder("s"), &mut |_, _| {}).unwrap().damage;
    assert_eq!(lost.iter().map(|d| (d.first, d.end)).collect::<Vec<_>>(), [(40, 41), (70, 71)]);
}

#[test]
fn a_missing_file_costs_what_the_index_says_was_in_it() {
    let machine = Machine::new(1);
    let media: Arc<dyn Media> = machine.start();
    let mut writer = open(&media, "s");
    let per = writer.header().index_entries;
    append(&mut writer, 3 * per, 200);
    drop(writer);
    let mut r = reader(&media, "s");
    let segments: Vec<u32> = (0..3 * per).map(|n| r.entries(n, 1).unwrap()[0].segment).collect();
    let of = |number| segments.iter().filter(|segment| **segment == number).count() as u64;
    drop(r);
    media.unlink(&folder("s").join("p-00000000")).unwrap();
    let file = Some(Why::File);
    assert_eq!(read(&mut reader(&media, "s")).0, [(0, of(0), file), (of(0), 3 * per, None)]);
    assert_eq!(entries(&mut reader(&media, "s")), [(0, 3 * per, None)]);
    media.unlink(&folder("s").join("i-00000001")).unwrap();
    let rows = [(0, of(0), file), (of(0), per, None), (per, 2 * per, file), (2 * per, 3 * per, None)];
    assert_eq!(read(&mut reader(&media, "s")).0, rows);
    assert_eq!(entries(&mut reader(&media, "s")), [(0, per, None), (per, 2 * per, file), (2 * per, 3 * per, None)]);
}

#[test]
fn what_retention_took_is_missing_up_to_the_oldest_that_is_left() {
    let machine = Machine::new(1);
    let media: Arc<dyn Media> = machine.start();
    let how = options(Level::Memory, WhenFull::DropOldest);
    let mut writer = Writer::open(&media, &folder("s"), "s", &how).unwrap();
    append(&mut writer, 10, 1000);
    let mut r = reader(&media, "s");
    append(&mut writer, 5000, 1000);
    let left = r.bounds().first;
    assert!(left > 10);
    match r.next(100).unwrap() {
        Stretch::Missing(Missing { first: 0, next, why: Why::Retention, .. }) => assert_eq!(next, left),
        _ => panic!("they are there"),
    }
    assert_eq!(r.walk(3, left + 1, &mut |_| {}).unwrap(), Walked { gone: Some((3, left)), lost: Vec::new() });
}

/// A view of five messages of `a` and five of `b`, in turn.
fn view_of_two(media: &Arc<dyn Media>) {
    let mut view = open(media, "view");
    let mut parents = Vec::new();
    for name in ["a", "b"] {
        append(&mut open(media, name), 5, 64);
        parents.push((view.parent(name).unwrap(), reader(media, name)));
    }
    for n in 0..5 {
        for (parent, from) in &mut parents {
            let entry = from.entries(n, 1).unwrap()[0];
            view.push_view(*parent, n, &entry).unwrap();
        }
    }
    view.drain().unwrap();
}

/// Every second of ten messages from the second on, of those from `from` on.
fn alternate(from: u64, why: Why) -> Vec<Row> {
    let mut rows = Vec::new();
    for n in 0..10 {
        add(&mut rows, n, n + 1, (n % 2 == 1 && n >= from).then_some(why));
    }
    rows
}

#[test]
fn a_message_of_a_view_is_missing_where_its_parent_is_gone_cut_or_another() {
    for what in ["removed", "made anew", "cut", "damaged", "table"] {
        let machine = Machine::new(1);
        let media: Arc<dyn Media> = machine.start();
        view_of_two(&media);
        let header = Header::read(media.as_ref(), &folder("b")).unwrap();
        let expected = match what {
            "removed" | "made anew" => {
                remove(&media, &folder("b")).unwrap();
                if what == "made anew" {
                    append(&mut open(&media, "b"), 5, 64);
                }
                alternate(0, Why::Parent)
            }
            "cut" => {
                let index = media.open(&folder("b").join("i-00000000"), Open::Write).unwrap();
                index.set_len(entry_at(&header, 3)).unwrap();
                append(&mut open(&media, "b"), 5, 64);
                alternate(6, Why::Parent)
            }
            "damaged" => {
                machine.flip(&folder("b").join("i-00000000"), entry_at(&header, 2) + 3).unwrap();
                vec![(0, 5, None), (5, 6, Some(Why::Corrupt)), (6, 10, None)]
            }
            _ => {
                machine.flip(&folder("view").join("parents"), 3).unwrap();
                vec![(0, 10, Some(Why::Parent))]
            }
        };
        let (rows, _) = read(&mut reader(&media, "view"));
        assert_eq!(rows, expected, "{what}");
        assert_eq!(entries(&mut reader(&media, "view")), [(0, 10, None)], "{what}");
        let wrong = expected.iter().filter(|row| row.2.is_some()).map(|row| row.1 - row.0).sum::<u64>();
        assert_eq!(verify(&media, &folder("view"), &mut |_, _| {}).unwrap().wrong, wrong, "{what}");
    }
}

#[test]
fn what_passes_or_is_of_the_system_is_an_error_and_costs_no_message() {
    let io = |kind: std::io::ErrorKind| Error::Io { doing: "map", path: folder("s"), source: kind.into() };
    let errors = [
        io(std::io::ErrorKind::PermissionDenied),
        Error::Missing(folder("s")),
        Error::Limit("too many".into()),
        Error::Format { path: folder("s"), what: "another stream is here now".into() },
        Error::Quota { name: String::new(), pid: 1, segments: 1, bytes: 2, quota: 1 },
        Error::Rewound { epoch: 1, first: 0, end: 7 },
    ];
    for error in errors {
        let text = error.to_string();
        assert_eq!(Missing::of(error, 5).unwrap_err().to_string(), text);
    }
}

#[test]
fn whatever_a_damaged_stream_says_reading_moves_on() {
    for error in [Error::Gone { first: 3 }, Error::Lost { path: folder("s"), first: 0, end: 0 }] {
        let missing = Missing::of(error, 5).unwrap();
        assert_eq!((missing.first, missing.next, missing.count()), (5, 6, 1));
    }
}
