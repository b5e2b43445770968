//! Views: streams whose entries point into other streams, on the pretend machine.

use beamport_store::*;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use testkit::{Dice, Machine, PretendMedia};

fn options(level: Level, when_full: WhenFull) -> Options {
    Options { level, when_full, drain: Drain::Caller, ..Options::memory(1 << 20) }
}

fn folder(name: &str) -> PathBuf {
    Path::new("/disk").join(name)
}

fn open(media: &Arc<dyn Media>, name: &str, options: &Options) -> Writer {
    Writer::open(media, &folder(name), name, options).unwrap()
}

fn reader(media: &Arc<dyn Media>, name: &str, early: bool) -> Reader {
    Reader::open(media, &folder(name), ReadOptions { early, ..Default::default() }).unwrap()
}

fn meta(n: u64, origin: u32) -> Meta {
    Meta { source_time: n as i64 * 1000, origin, origin_seq: n, schema: SchemaId(*b"test"), flags: (n % 3) as u16 }
}

fn payload(n: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (n as usize * 31 + i * 7) as u8).collect()
}

/// Points to all of a parent that the view has not seen yet, from `next` on.
fn take_all(view: &mut Writer, parent: Parent, from: &mut Reader) -> Result<u64> {
    let mut taken = 0;
    loop {
        let batch = from.read(100)?;
        if batch.is_empty() {
            return Ok(taken);
        }
        for m in batch.iter() {
            view.push_view(parent, m.sequence, m.entry)?;
            taken += 1;
        }
    }
}

/// All messages: (origin name, origin sequence, source time, flags, payload).
type All = Vec<(String, u64, i64, u16, Vec<u8>)>;

fn all(reader: &mut Reader) -> Result<All> {
    let names = reader.origins()?.to_vec();
    let mut all = Vec::new();
    loop {
        let batch = reader.read(1000)?;
        if batch.is_empty() {
            return Ok(all);
        }
        for (i, m) in batch.iter().enumerate() {
            let (segment, at) = batch.place(i);
            let bytes = batch.segments().get(segment).and_then(|s| s.bytes(at, m.entry.length.into()));
            assert_eq!(bytes.unwrap_or_default(), m.payload);
            let Entry { origin, origin_seq, source_time, flags, .. } = *m.entry;
            all.push((names[origin as usize].clone(), origin_seq, source_time, flags, m.payload.to_vec()));
        }
    }
}

#[test]
fn a_view_of_many_parents_is_read_like_any_stream_and_in_few_batches() {
    for level in [Level::Memory, Level::Disk] {
        let machine = Machine::new(1);
        let media: Arc<dyn Media> = machine.start();
        let how = options(level, WhenFull::Wait);
        let mut parents: Vec<Writer> = (0..120).map(|i| open(&media, &format!("bank{i}"), &how)).collect();
        let mut expected: All = Vec::new();
        for n in 0..20 {
            for (i, parent) in parents.iter_mut().enumerate() {
                // Origins have another row in each parent.
                for other in 0..i % 3 {
                    parent.origin(&format!("other{other}")).unwrap();
                }
                let row = parent.origin(&format!("pv{i}")).unwrap();
                let bytes = payload(n, (i * 37 + n as usize * 11) % 700);
                parent.append(&meta(n, row), &bytes).unwrap();
                expected.push((format!("pv{i}"), n, n as i64 * 1000, (n % 3) as u16, bytes));
            }
        }
        for parent in &mut parents {
            parent.drain().unwrap();
        }
        let mut view = open(&media, "all", &how);
        let known: Vec<Parent> = (0..120).map(|i| view.parent(&format!("bank{i}")).unwrap()).collect();
        let mut readers: Vec<Reader> = (0..120).map(|i| reader(&media, &format!("bank{i}"), false)).collect();
        for _ in 0..20 {
            for (parent, from) in known.iter().zip(&mut readers) {
                let batch = from.read(1).unwrap();
                let m = batch.iter().next().unwrap();
                view.push_view(*parent, m.sequence, m.entry).unwrap();
            }
        }
        // A message of its own among them.
        let row = view.origin("merge").unwrap();
        view.append(&meta(7, row), b"of its own").unwrap();
        expected.push(("merge".into(), 7, 7000, 1, b"of its own".to_vec()));
        view.drain().unwrap();
        assert_eq!(all(&mut reader(&media, "all", false)).unwrap(), expected, "{level:?}");
        let mut few = reader(&media, "all", false);
        assert!(few.read(2000).unwrap().len() >= 256, "segments of 120 parents in one batch");
        let names: Vec<String> = few.parents().unwrap().into_iter().map(|row| row.name).collect();
        assert_eq!(names, (0..120).map(|i| format!("bank{i}")).collect::<Vec<_>>());
        let seen = verify(&media, &folder("all"), &mut |_, _| {}).unwrap();
        assert_eq!((seen.first, seen.count), (0, 2401));
        // A view of the view, and one message by number.
        let mut again = open(&media, "again", &how);
        let parent = again.parent("all").unwrap();
        take_all(&mut again, parent, &mut reader(&media, "all", false)).unwrap();
        again.publish();
        again.drain().unwrap();
        assert_eq!(all(&mut reader(&media, "again", false)).unwrap(), expected, "{level:?}");
        assert_eq!(reader(&media, "again", false).get(2400).unwrap().unwrap().1, b"of its own");
        // All of it is there after a clean end, without shared memory.
        drop((view, again, parents));
        assert_eq!(all(&mut reader(&media, "again", false)).unwrap(), expected, "{level:?}");
    }
}

#[test]
fn a_view_takes_only_what_is_as_safe_as_itself_and_proves_itself() {
    let machine = Machine::new(2);
    let media: Arc<dyn Media> = machine.start();
    let mut memory = open(&media, "memory", &options(Level::Memory, WhenFull::Wait));
    let mut disk = open(&media, "disk", &options(Level::Disk, WhenFull::Wait));
    let mut view = open(&media, "view", &options(Level::Disk, WhenFull::Wait));
    memory.origin("a").unwrap();
    let error = view.parent("memory").unwrap_err().to_string();
    assert!(error.contains("/disk/memory") && error.contains("level memory"), "{error}");
    assert!(memory.pins().readers().is_empty(), "nothing waits for a view that was refused");
    let error = view.parent("nothing").unwrap_err().to_string();
    assert!(error.contains("/disk/nothing"), "{error}");
    for name in ["..", ".", "", "a/b", "view"] {
        assert!(view.parent(name).is_err(), "{name}");
    }
    disk.origin("a").unwrap();
    let mut early = reader(&media, "disk", true);
    for n in 0..3 {
        disk.append(&meta(n, 0), &payload(n, 100)).unwrap();
    }
    let entries: Vec<Entry> = early.entries(0, 3).unwrap().to_vec();
    let parent = view.parent("disk").unwrap();
    let error = view.push_view(parent, 0, &entries[0]).unwrap_err().to_string();
    assert!(error.contains("mark `disk` is 0"), "{error}");
    disk.drain().unwrap();
    view.push_view(parent, 0, &entries[0]).unwrap();
    let error = view.push_view(parent, 2, &entries[1]).unwrap_err().to_string();
    assert!(error.contains("another message 2"), "{error}");
    view.publish();
    view.drain().unwrap();
    assert_eq!(all(&mut reader(&media, "view", false)).unwrap().len(), 1);
    // A view in memory goes as far as its parent is published.
    let mut fast = open(&media, "fast", &options(Level::Memory, WhenFull::Wait));
    let parent = fast.parent("disk").unwrap();
    disk.append(&meta(3, 0), b"not safe yet").unwrap();
    let entry = early.entries(3, 1).unwrap()[0];
    fast.push_view(parent, 3, &entry).unwrap();
    fast.publish();
    assert_eq!(all(&mut reader(&media, "fast", false)).unwrap()[0].4, b"not safe yet");
    // A stream cannot point to a view that points to it.
    let error = disk.parent("view").unwrap_err().to_string();
    assert!(error.contains("the view itself"), "{error}");
}

#[test]
fn views_of_views_have_an_end() {
    let machine = Machine::new(3);
    let media: Arc<dyn Media> = machine.start();
    let how = options(Level::Memory, WhenFull::Wait);
    let mut base = open(&media, "v0", &how);
    base.origin("a").unwrap();
    base.append(&meta(1, 0), b"deep").unwrap();
    let mut writers = vec![base];
    for depth in 1..=limits::VIEW_DEPTH_MAX as usize + 2 {
        let mut view = open(&media, &format!("v{depth}"), &how);
        let below = format!("v{}", depth - 1);
        match view.parent(&below) {
            Ok(parent) => {
                take_all(&mut view, parent, &mut reader(&media, &below, false)).unwrap();
                view.publish();
                assert_eq!(all(&mut reader(&media, &format!("v{depth}"), false)).unwrap()[0].4, b"deep", "{depth}");
            }
            Err(e) => {
                assert_eq!(depth, limits::VIEW_DEPTH_MAX as usize + 1, "{e}");
                return;
            }
        }
        writers.push(view);
    }
    panic!("there was no end");
}

/// Appends until there is no room; how many went in.
fn fill(writer: &mut Writer, from: u64, len: usize) -> u64 {
    for n in from.. {
        match writer.append(&meta(n, 0), &payload(n, len)) {
            Ok(_) => {}
            Err(e) if e.is_full() => return n,
            Err(e) => panic!("{e}"),
        }
        assert!(n < from + 100_000, "nothing holds the parent");
    }
    0
}

#[test]
fn a_memory_stream_stood_still_once_a_segment_until_its_view_let_go_of_what_nobody_wanted() {
    let machine = Machine::new(5);
    let media: Arc<dyn Media> = machine.start();
    let how = options(Level::Memory, WhenFull::Wait);
    let mut parent = open(&media, "parent", &how);
    parent.origin("a").unwrap();
    let mut view = open(&media, "view", &how);
    let known = view.parent("parent").unwrap();
    let mut from = reader(&media, "parent", true);
    for sent in 0..4000 {
        // The ring turns round many times; between two messages the view does what a runner does.
        parent.append(&meta(sent, 0), &payload(sent, 3000)).unwrap();
        take_all(&mut view, known, &mut from).unwrap();
        view.publish();
        view.passed(known, from.position()).unwrap();
        view.relieve().unwrap();
    }
}

#[test]
fn a_parent_waits_for_what_its_view_keeps_and_the_view_lets_go_when_the_parent_needs_it() {
    for level in [Level::Memory, Level::Disk] {
        let machine = Machine::new(4);
        let media: Arc<dyn Media> = machine.start();
        let mut how = options(level, WhenFull::Wait);
        how.retain_bytes = Some(1 << 20);
        let mut parent = open(&media, "parent", &how);
        parent.origin("a").unwrap();
        let mut view = open(&media, "view", &how);
        let known = view.parent("parent").unwrap();
        let mut from = reader(&media, "parent", true);
        let mut sink = Reader::open(
            &media,
            &folder("view"),
            ReadOptions { name: "sink".into(), kind: Kind::Counted, ..Default::default() },
        )
        .unwrap();
        // Goes round many times: the parent has room for a few hundred messages.
        let (mut sent, mut seen) = (0, 0);
        for round in 0..40 {
            // The drainer makes room where the disk alone was behind.
            for _ in 0..3 {
                sent = fill(&mut parent, sent, 3000);
                parent.drain().unwrap();
            }
            take_all(&mut view, known, &mut from).unwrap();
            view.publish();
            view.drain().unwrap();
            view.passed(known, from.position()).unwrap();
            // As long as the sink has read nothing new, the view keeps all, and so does the parent.
            view.relieve().unwrap();
            let taken = from.position();
            sent = fill(&mut parent, sent, 3000);
            assert!(sink.bounds().first <= sink.committed(), "{level:?} {round}: the view waits for its reader");
            assert!(parent.first_sequence() <= sink.committed(), "{level:?} {round}: the parent waits for the view");
            while let batch = sink.read(100).unwrap()
                && !batch.is_empty()
            {
                for m in batch.iter() {
                    assert_eq!((m.entry.origin_seq, m.payload), (seen, &payload(seen, 3000)[..]), "{level:?}");
                    seen += 1;
                }
            }
            sink.commit(seen);
            view.relieve().unwrap();
            view.drain().unwrap();
            view.relieve().unwrap();
            assert_eq!(seen, taken, "{level:?} {round}");
        }
        take_all(&mut view, known, &mut from).unwrap();
        view.publish();
        view.drain().unwrap();
        assert!(sent > 1500, "{level:?}: {sent}");
        let position = parent.pins().readers()[0].clone();
        assert_eq!((position.name.as_str(), position.kind), ("view view", Kind::Counted));
        // All that the view keeps can be read.
        let mut again = reader(&media, "view", false);
        let first = again.bounds().first;
        assert!(first > 0, "{level:?}");
        assert_eq!(all(&mut again).unwrap().len() as u64, sent - first, "{level:?}");
        // A writer that starts anew learns what the view points to, a segment at a time.
        drop(view);
        let mut view = open(&media, "view", &how);
        let known = view.parent("parent").unwrap();
        for _ in 0..20 {
            view.passed(known, sent).unwrap();
            view.relieve().unwrap();
            view.drain().unwrap();
        }
        let held = parent.pins().readers()[0].committed;
        let mut again = reader(&media, "view", false);
        let first = again.bounds().first;
        let lowest = again.entries(first, 1).unwrap().first().map_or(sent, |e| e.parent_sequence);
        assert_eq!(held, lowest, "{level:?}");
        assert!(fill(&mut parent, sent, 3000) > sent, "{level:?}: the parent goes on");
    }
}

#[test]
fn a_parent_two_views_down_got_no_room_although_nobody_read_the_upper_one() {
    for level in [Level::Memory, Level::Disk] {
        let machine = Machine::new(4);
        let media: Arc<dyn Media> = machine.start();
        let how = Options { retain_bytes: Some(1 << 20), ..options(level, WhenFull::Wait) };
        let mut parent = open(&media, "parent", &how);
        parent.origin("a").unwrap();
        let (mut lower, mut upper) = (open(&media, "lower", &how), open(&media, "upper", &how));
        let (below, above) = (lower.parent("parent").unwrap(), upper.parent("lower").unwrap());
        let (mut from, mut on) = (reader(&media, "parent", true), reader(&media, "lower", true));
        let mut sent = 0;
        // The parent has room for a few hundred messages.
        for _ in 0..40 {
            sent = fill(&mut parent, sent, 3000);
            parent.drain().unwrap();
            take_all(&mut lower, below, &mut from).unwrap();
            lower.publish();
            lower.drain().unwrap();
            lower.passed(below, from.position()).unwrap();
            take_all(&mut upper, above, &mut on).unwrap();
            upper.publish();
            upper.drain().unwrap();
            upper.passed(above, on.position()).unwrap();
            for _ in 0..2 {
                upper.relieve().unwrap();
                upper.drain().unwrap();
                lower.relieve().unwrap();
                lower.drain().unwrap();
            }
        }
        assert!(sent > 1000, "{level:?}: {sent}");
        // All that the upper view keeps can be read.
        let mut again = reader(&media, "upper", false);
        let (first, end) = (again.bounds().first, again.bounds().count);
        assert!(first > 0, "{level:?}");
        assert_eq!(all(&mut again).unwrap().len() as u64, end - first, "{level:?}");
    }
}

#[test]
fn what_a_power_cut_brings_back_in_a_view_is_still_in_its_parent() {
    let machine = Machine::new(8);
    let media: Arc<dyn Media> = machine.start();
    let how = Options { retain_bytes: Some(1 << 20), ..options(Level::Disk, WhenFull::Wait) };
    let (mut parent, mut view) = (open(&media, "parent", &how), open(&media, "view", &how));
    parent.origin("a").unwrap();
    let known = view.parent("parent").unwrap();
    let mut sent = 0;
    for _ in 0..4 {
        sent = fill(&mut parent, sent, 3000);
        parent.drain().unwrap();
    }
    let mut from = reader(&media, "parent", false);
    take_all(&mut view, known, &mut from).unwrap();
    view.publish();
    view.drain().unwrap();
    view.passed(known, sent).unwrap();
    // The view releases it, and no record says so yet: a power cut would bring it back.
    view.relieve().unwrap();
    assert!(view.first_sequence() > 0);
    view.relieve().unwrap();
    assert_eq!(parent.pins().readers()[0].committed, 0);
    assert_eq!(fill(&mut parent, sent, 3000), sent);
    // SAFETY: these are all that hold maps.
    unsafe { machine.power_cut((parent, view, from)) };
    let media: Arc<dyn Media> = machine.start();
    let mut parent = open(&media, "parent", &how);
    let mut view = open(&media, "view", &how);
    assert_eq!(view.first_sequence(), 0);
    assert_eq!(all(&mut reader(&media, "view", false)).unwrap().len() as u64, sent);
    // With the record the parent's position moves.
    let known = view.parent("parent").unwrap();
    view.passed(known, sent).unwrap();
    sent = fill(&mut parent, sent, 3000);
    parent.drain().unwrap();
    sent = fill(&mut parent, sent, 3000);
    assert_eq!(parent.first_sequence(), 0);
    for _ in 0..3 {
        view.relieve().unwrap();
        view.drain().unwrap();
        sent = fill(&mut parent, sent, 3000);
        parent.drain().unwrap();
    }
    assert!(parent.pins().readers()[0].committed > 0 && parent.first_sequence() > 0);
}

#[test]
fn a_parent_keeps_what_a_power_cut_can_bring_back_in_a_view_whose_writer_was_killed() {
    let machine = Machine::new(9);
    let process = machine.start();
    let media: Arc<dyn Media> = process.clone();
    let how = Options { retain_bytes: Some(1 << 20), ..options(Level::Disk, WhenFull::Wait) };
    let (mut parent, mut view) = (open(&media, "parent", &how), open(&media, "view", &how));
    parent.origin("a").unwrap();
    let known = view.parent("parent").unwrap();
    let mut sent = 0;
    for _ in 0..4 {
        sent = fill(&mut parent, sent, 3000);
        parent.drain().unwrap();
    }
    let mut from = reader(&media, "parent", false);
    take_all(&mut view, known, &mut from).unwrap();
    view.publish();
    view.drain().unwrap();
    view.passed(known, sent).unwrap();
    // Retention of the view is ahead of its newest record when its writer dies.
    view.relieve().unwrap();
    assert!(view.first_sequence() > 0);
    // SAFETY: these are all that hold maps.
    unsafe { machine.kill(&process, (parent, view, from)) };
    let media: Arc<dyn Media> = machine.start();
    let (parent, mut view) = (open(&media, "parent", &how), open(&media, "view", &how));
    assert!(view.first_sequence() > 0, "memory survived the kill");
    let known = view.parent("parent").unwrap();
    for _ in 0..20 {
        view.passed(known, sent).unwrap();
        view.relieve().unwrap();
    }
    assert_eq!(parent.pins().readers()[0].committed, 0, "no record says yet that the view needs less");
    // SAFETY: these are all that hold maps.
    unsafe { machine.power_cut((parent, view)) };
    let media: Arc<dyn Media> = machine.start();
    let (_parent, view) = (open(&media, "parent", &how), open(&media, "view", &how));
    assert_eq!(view.first_sequence(), 0);
    assert_eq!(all(&mut reader(&media, "view", false)).unwrap().len() as u64, sent);
}

#[test]
fn what_a_parent_drops_is_a_named_gap_in_its_view_and_reading_goes_on_behind_it() {
    let machine = Machine::new(5);
    let media: Arc<dyn Media> = machine.start();
    let how = options(Level::Memory, WhenFull::DropOldest);
    let (mut a, mut b) = (open(&media, "a", &how), open(&media, "b", &how));
    let mut view = open(&media, "view", &how);
    let known = [view.parent("a").unwrap(), view.parent("b").unwrap()];
    let (mut from_a, mut from_b) = (reader(&media, "a", false), reader(&media, "b", false));
    a.origin("a").unwrap();
    b.origin("b").unwrap();
    for n in 0..100 {
        a.append(&meta(n, 0), &payload(n, 2000)).unwrap();
        b.append(&meta(n, 0), &payload(n, 10)).unwrap();
        take_all(&mut view, known[0], &mut from_a).unwrap();
        take_all(&mut view, known[1], &mut from_b).unwrap();
    }
    view.publish();
    assert_eq!(all(&mut reader(&media, "view", false)).unwrap().len(), 200);
    for n in 100..700 {
        a.append(&meta(n, 0), &payload(n, 2000)).unwrap();
    }
    assert!(a.first_sequence() > 0);
    let (mut late, mut read, mut gone) = (reader(&media, "view", false), 0, 0);
    while late.position() < 200 {
        let at = late.position();
        match late.read(1000) {
            Ok(batch) => {
                assert!(batch.iter().all(|m| m.payload == payload(m.entry.origin_seq, m.payload.len())));
                read += batch.len() as u64;
            }
            Err(Error::Gone { first }) => {
                assert!(first > at && first <= 200);
                gone += first - at;
                late.seek(first);
            }
            Err(e) => panic!("{e}"),
        }
    }
    let lost = a.first_sequence().min(100);
    assert_eq!((read, gone), (200 - lost, lost));
    let seen = verify(&media, &folder("view"), &mut |_, _| {}).unwrap();
    assert_eq!((seen.count - seen.first, seen.gone), (200, lost), "verify counts what a parent no longer has");
}

#[test]
fn a_parent_that_is_missing_or_another_is_named_and_never_read_as_something_else() {
    let machine = Machine::new(6);
    let process = machine.start();
    let media: Arc<dyn Media> = process.clone();
    let how = options(Level::Memory, WhenFull::Wait);
    let mut parent = open(&media, "parent", &how);
    parent.origin("a").unwrap();
    parent.append(&meta(0, 0), b"the first").unwrap();
    let mut view = open(&media, "view", &how);
    let known = view.parent("parent").unwrap();
    take_all(&mut view, known, &mut reader(&media, "parent", false)).unwrap();
    view.publish();
    drop(parent);
    for name in machine.names("/disk/parent").into_iter().chain(machine.names("/live")) {
        let of_view = view.header().live.clone();
        if !name.starts_with(&of_view) {
            media.unlink(&name).unwrap();
        }
    }
    let error = reader(&media, "view", false).read(1).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("/disk/parent") && error.contains("not there"), "{error}");
    let seen = verify(&media, &folder("view"), &mut |_, _| {}).unwrap();
    assert!(seen.wrong == 1 && seen.damage[0].why.contains("/disk/parent"), "{seen:?}");
    // Another stream in its place.
    let mut parent = open(&media, "parent", &how);
    parent.origin("a").unwrap();
    parent.append(&meta(0, 0), b"the other").unwrap();
    let error = reader(&media, "view", false).read(1).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("/disk/parent") && error.contains("recreated"), "{error}");
}

#[test]
fn a_sparse_view_is_read_within_the_quota_of_its_parent() {
    let machine = Machine::new(10);
    let media: Arc<dyn Media> = machine.start();
    let how = options(Level::Memory, WhenFull::Wait);
    let mut parent = open(&media, "parent", &how);
    parent.origin("a").unwrap();
    let count = 40;
    for n in 0..count {
        parent.append(&meta(n, 0), &payload(n, 20_000)).unwrap();
    }
    let mut view = open(&media, "view", &how);
    let known = view.parent("parent").unwrap();
    let mut from = reader(&media, "parent", false);
    let mut taken = 0;
    // One of each segment: a batch of all of them would keep the whole of the parent's memory.
    for n in (0..count).step_by(6) {
        let entry = from.get(n).unwrap().unwrap().0;
        view.push_view(known, n, &entry).unwrap();
        taken += 1;
    }
    view.publish();
    assert!(taken >= 6, "{taken} segments");
    let mut r = reader(&media, "view", false);
    let (mut read, mut most) = (0, 0);
    loop {
        let batch = r.read(100).unwrap();
        if batch.is_empty() {
            break;
        }
        assert!(batch.iter().all(|m| m.payload == payload(m.entry.origin_seq, 20_000)));
        (read, most) = (read + batch.len(), batch.len().max(most));
    }
    assert!(read == taken && most < taken, "{read} of {taken} in batches of {most} at most");
    // A reader that keeps its batches gets that error, and continues when it releases them.
    r.seek(0);
    let mut kept = Vec::new();
    let error = loop {
        match r.read(1) {
            Ok(batch) => kept.extend(batch.segments().to_vec()),
            Err(e) => break e,
        }
    };
    assert!(matches!(error, Error::Quota { .. }), "{error}");
    let at = r.position();
    kept.clear();
    assert_eq!(r.read(1).unwrap().first, at);
}

#[test]
fn who_kept_a_batch_of_a_view_could_not_read_the_next() {
    let machine = Machine::new(11);
    let media: Arc<dyn Media> = machine.start();
    let how = options(Level::Memory, WhenFull::Wait);
    let mut parent = open(&media, "parent", &how);
    parent.origin("a").unwrap();
    let mut view = open(&media, "view", &how);
    let known = view.parent("parent").unwrap();
    for n in 0..40 {
        parent.append(&meta(n, 0), &payload(n, 20_000)).unwrap();
    }
    take_all(&mut view, known, &mut reader(&media, "parent", false)).unwrap();
    view.publish();
    let mut r = reader(&media, "view", false);
    let (mut kept, mut read) = (Vec::new(), 0);
    while read < 40 {
        let batch = r.read(100).unwrap();
        read += batch.len();
        assert!(!batch.is_empty() && batch.segments().len() <= 2, "{} of {read}", batch.segments().len());
        kept = batch.segments().to_vec();
    }
    drop(kept);
}

/// A view of two streams, `a` and `b`, in turn: 40 messages.
fn in_turn(media: &Arc<dyn Media>) -> Writer {
    let how = options(Level::Disk, WhenFull::Wait);
    let mut view = open(media, "view", &how);
    let mut parents = ["a", "b"].map(|name| {
        let mut parent = open(media, name, &how);
        parent.origin(name).unwrap();
        for n in 0..20 {
            parent.append(&meta(n, 0), &payload(n, 300)).unwrap();
        }
        parent.drain().unwrap();
        (view.parent(name).unwrap(), reader(media, name, false))
    });
    for _ in 0..20 {
        for (parent, from) in &mut parents {
            let batch = from.read(1).unwrap();
            let m = batch.iter().next().unwrap();
            view.push_view(*parent, m.sequence, m.entry).unwrap();
        }
    }
    view.publish();
    view.drain().unwrap();
    view
}

#[test]
fn a_parent_that_was_missing_ended_the_verification_of_the_rest_of_a_view() {
    let machine = Machine::new(8);
    let media: Arc<dyn Media> = machine.start();
    drop(in_turn(&media));
    media.unlink(Path::new("/disk/b/stream")).unwrap();
    let seen = verify(&media, &folder("view"), &mut |_, _| {}).unwrap();
    assert_eq!((seen.count, seen.wrong, seen.schemas[0].1), (40, 20, 20));
    assert_eq!((seen.damage[0].first, seen.damage[0].end), (1, 2));
    assert_eq!(seen.damage[0].why, "the parent /disk/b of a view has lost its header");
}

#[test]
fn a_wrong_row_of_the_table_of_parents_costs_the_messages_of_that_row_and_is_named() {
    for (row, lost) in [(1, 40), (2, 20)] {
        let machine = Machine::new(9);
        let media: Arc<dyn Media> = machine.start();
        drop(in_turn(&media));
        let table = Path::new("/disk/view/parents");
        let length = media.open(table, media::Open::Read).unwrap().len().unwrap();
        machine.flip(table, (row - 1) * length / 2 + 12).unwrap();
        let seen = verify(&media, &folder("view"), &mut |_, _| {}).unwrap();
        assert_eq!((seen.wrong, seen.flaws), (lost, vec![format!("row {row} of /disk/view/parents does not verify")]));
        assert!(seen.damage[0].why.contains("/disk/view/parents"), "{:?}", seen.damage[0]);
    }
}

#[test]
fn a_wrong_byte_in_a_parent_is_a_wrong_message_of_the_view() {
    let machine = Machine::new(7);
    let media: Arc<dyn Media> = machine.start();
    let how = options(Level::Disk, WhenFull::Wait);
    let mut parent = open(&media, "parent", &how);
    parent.origin("a").unwrap();
    for n in 0..10 {
        parent.append(&meta(n, 0), &payload(n, 300)).unwrap();
    }
    parent.drain().unwrap();
    let mut view = open(&media, "view", &how);
    let known = view.parent("parent").unwrap();
    let row = view.origin("own").unwrap();
    view.append(&meta(0, row), b"own").unwrap();
    take_all(&mut view, known, &mut reader(&media, "parent", false)).unwrap();
    view.publish();
    drop((parent, view));
    let place = reader(&media, "parent", false).get(6).unwrap().unwrap().0.offset();
    machine.flip(Path::new("/disk/parent/p-00000000"), place + 7).unwrap();
    let header = Header::read(media.as_ref(), Path::new("/disk/parent")).unwrap();
    let table = header.index_bytes() - 64 * header.index_entries;
    machine.flip(Path::new("/disk/parent/i-00000000"), table + 64 * 8 + 3).unwrap();
    let mut r = reader(&media, "view", false);
    let (mut good, mut wrong) = (Vec::new(), Vec::new());
    while r.position() < 11 {
        match r.read(100) {
            Ok(batch) => good.extend(batch.iter().map(|m| m.sequence)),
            Err(Error::Corrupt { sequence, path, .. }) => {
                assert!(path.starts_with("/disk/parent"));
                wrong.push(sequence);
                let next = r.position() + 1;
                r.seek(next);
            }
            Err(e) => panic!("{e}"),
        }
    }
    assert_eq!((good, wrong), (vec![0, 1, 2, 3, 4, 5, 6, 8, 10], vec![7, 9]));
}

/// Parents, a view of them and a view of that, with kills and power cuts, against what was appended.
struct Web {
    machine: Machine,
    process: Arc<PretendMedia>,
    media: Arc<dyn Media>,
    dice: Dice,
    level: Level,
    when_full: WhenFull,
    /// Two parents, the view of them, the view of that.
    writers: Vec<Option<Writer>>,
    known: Vec<Parent>,
    readers: Vec<Option<Reader>>,
    /// What each stage has committed: (stream, next).
    passed: Vec<([u8; 16], u64)>,
    next: u64,
    gone: u64,
    read: u64,
    faults: u64,
}

const STREAMS: [&str; 4] = ["a", "b", "both", "deep"];

impl Web {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let machine = Machine::new(seed);
        let process = machine.start();
        Self {
            machine,
            media: process.clone(),
            process,
            level: dice.pick(&[Level::Disk, Level::Disk, Level::Memory]),
            when_full: dice.pick(&[WhenFull::Wait, WhenFull::DropOldest]),
            dice,
            writers: vec![None, None, None, None],
            known: Vec::new(),
            readers: vec![None, None, None],
            passed: vec![([0; 16], 0); 3],
            next: 0,
            gone: 0,
            read: 0,
            faults: 0,
        }
    }

    fn open(&mut self) {
        let mut how = options(self.level, self.when_full);
        how.retain_bytes = Some(600_000);
        for (i, name) in STREAMS.iter().enumerate() {
            self.writers[i] = Some(open(&self.media, name, &how));
        }
        for writer in &mut self.writers[..2] {
            writer.as_mut().unwrap().origin("x").unwrap();
        }
        let both = self.writers[2].as_mut().unwrap();
        self.known = vec![both.parent("a").unwrap(), both.parent("b").unwrap()];
        self.known.push(self.writers[3].as_mut().unwrap().parent("both").unwrap());
        // Each stage goes on behind its commit and behind what its output has.
        for (i, view) in [(0, "both"), (1, "both"), (2, "deep")] {
            let mut from = reader(&self.media, STREAMS[i], self.level == Level::Memory);
            let uuid = from.header().uuid;
            let mut out = reader(&self.media, view, true);
            let rows = out.parents().unwrap();
            let committed = self.passed[i].1 * u64::from(self.passed[i].0 == uuid);
            let mut next = from.bounds().first.max(committed);
            let (first, count) = (out.bounds().first, out.bounds().count);
            out.walk(first, count, &mut |entries| {
                for e in entries.iter().filter(|e| e.parent > 0 && rows[e.parent as usize - 1].uuid == uuid) {
                    next = next.max(e.parent_sequence + 1);
                }
            })
            .unwrap();
            from.seek(next);
            self.readers[i] = Some(from);
        }
    }

    fn append(&mut self) {
        let at = self.dice.below(2) as usize;
        for _ in 0..self.dice.range(1, 300) {
            let len = if self.dice.one_in(20) { 9000 } else { self.dice.below(600) } as usize;
            let bytes = payload(self.next, len);
            match self.writers[at].as_mut().unwrap().push(&meta(self.next, 0), &[&bytes]) {
                Ok(_) => self.next += 1,
                Err(e) if e.is_full() || matches!(e, Error::Dropped) => break,
                Err(e) => panic!("{e}"),
            }
        }
        self.writers[at].as_mut().unwrap().publish();
    }

    fn take(&mut self, at: usize) {
        let most = self.dice.range(1, 400) as usize;
        let view = self.writers[if at < 2 { 2 } else { 3 }].as_mut().unwrap();
        let from = self.readers[at].as_mut().unwrap();
        let before = from.position();
        match from.read(most) {
            Ok(batch) => {
                let mut done = before;
                for m in batch.iter() {
                    match view.push_view(self.known[at], m.sequence, m.entry) {
                        Ok(_) => done = m.sequence + 1,
                        Err(e) if e.is_full() || matches!(e, Error::Dropped) => break,
                        Err(e) => panic!("{at} {}: {e}", m.sequence),
                    }
                }
                from.seek(done);
                view.publish();
            }
            Err(Error::Gone { first }) => {
                assert!(at == 2 || self.when_full == WhenFull::DropOldest, "{at}: {before} to {first} is gone");
                from.seek(first);
            }
            Err(e) => panic!("{at}: {e}"),
        }
    }

    fn relieve(&mut self) {
        for at in 0..3 {
            let view = self.writers[if at < 2 { 2 } else { 3 }].as_mut().unwrap();
            // An entry that is not safe in the view would be pointed to again after a cut.
            view.drain().unwrap();
            let from = self.readers[at].as_ref().unwrap();
            view.passed(self.known[at], from.position()).unwrap();
            self.passed[at] = (from.header().uuid, from.position());
            view.relieve().unwrap();
        }
    }

    /// Whatever a view shows is what was appended; and what it keeps is in its parents, unless they drop.
    fn read(&mut self) {
        for name in &STREAMS[2..] {
            let mut r = reader(&self.media, name, self.dice.one_in(2));
            let (end, mut at) = (r.end(), r.bounds().first);
            r.seek(at);
            while at < end {
                match r.read(self.dice.range(1, 500) as usize) {
                    Ok(batch) if batch.is_empty() => break,
                    Ok(batch) => {
                        for m in batch.iter() {
                            assert_eq!(m.payload, payload(m.entry.origin_seq, m.payload.len()));
                            assert_eq!(m.entry.source_time, m.entry.origin_seq as i64 * 1000);
                        }
                        self.read += batch.len() as u64;
                        at = batch.next();
                    }
                    Err(Error::Gone { first }) => {
                        assert!(self.when_full == WhenFull::DropOldest, "{name}: {at} to {first} is gone");
                        assert!(first > at && first <= end);
                        self.gone += first - at;
                        at = first;
                        r.seek(at);
                    }
                    Err(e) => panic!("{name} {at}: {e}"),
                }
            }
        }
    }

    fn fault(&mut self) {
        self.faults += 1;
        let objects = (std::mem::take(&mut self.writers), std::mem::take(&mut self.readers));
        // SAFETY: these are all that hold maps.
        unsafe {
            if self.dice.one_in(2) {
                self.machine.kill(&self.process, objects);
            } else {
                self.machine.power_cut(objects);
            }
        }
        self.process = self.machine.start();
        self.media = self.process.clone();
        self.writers = vec![None, None, None, None];
        self.readers = vec![None, None, None];
        if self.dice.one_in(2) && self.level == Level::Disk {
            self.read();
        }
        self.open();
    }

    fn run(mut self, steps: u64) -> (u64, u64, u64) {
        self.open();
        for _ in 0..steps {
            match self.dice.below(20) {
                0..5 => self.append(),
                5..12 => {
                    let at = self.dice.below(3) as usize;
                    self.take(at);
                }
                12..15 => {
                    let at = self.dice.below(4) as usize;
                    self.writers[at].as_mut().unwrap().drain().unwrap();
                }
                15 | 16 => self.relieve(),
                17 | 18 => self.read(),
                _ => self.fault(),
            }
        }
        assert_eq!(self.machine.unallocated_write(), None);
        (self.faults, self.read, self.gone)
    }
}

#[test]
fn views_lose_nothing_and_show_nothing_wrong_through_kills_and_power_cuts() {
    webs(150);
}

#[test]
#[ignore = "minutes"]
fn soak_views() {
    webs(5000);
}

fn webs(seeds: u64) {
    let seeds = std::env::var("BEAMPORT_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(seeds);
    let (mut faults, mut read, mut gone) = (0, 0, 0);
    let one: Option<u64> = std::env::var("BEAMPORT_SEED").ok().and_then(|n| n.parse().ok());
    for seed in one.map_or(1..seeds + 1, |seed| seed..seed + 1) {
        let caught = std::panic::catch_unwind(|| Web::new(seed).run(120));
        let counts = caught.unwrap_or_else(|_| panic!("seed {seed}: BEAMPORT_SEED={seed} repeats it"));
        (faults, read, gone) = (faults + counts.0, read + counts.1, gone + counts.2);
    }
    println!(
        "injected {faults} kills and power cuts into views of views: {read} messages read, {gone} dropped by policy, 0 wrong"
    );
    assert!(one.is_some() || (faults > seeds && gone > 0));
}

/// Found by kills of a merge: what a view knows of a parent's epoch moves before its row is written.
#[test]
fn a_message_is_pushed_again_after_its_row_could_not_be_written() {
    let machine = Machine::new(1);
    let options = Options { drain: Drain::Caller, ..Options::disk(1 << 20) };
    let (at, view_at) = (Path::new("/disk/data/parent"), Path::new("/disk/data/view"));
    let meta = Meta { source_time: 0, origin: 0, origin_seq: 0, schema: SchemaId(*b"test"), flags: 0 };
    let media: Arc<dyn Media> = machine.start();
    let mut parent = Writer::open(&media, at, "parent", &options).unwrap();
    parent.origin("it").unwrap();
    parent.append(&meta, b"first").unwrap();
    parent.drain().unwrap();
    // SAFETY: no other object maps.
    unsafe { machine.power_cut(parent) };
    let media: Arc<dyn Media> = machine.start();
    let mut parent = Writer::open(&media, at, "parent", &options).unwrap();
    assert_eq!(parent.header().epoch(), 2);
    parent.append(&meta, b"second").unwrap();
    parent.drain().unwrap();
    let mut view = Writer::open(&media, view_at, "view", &options).unwrap();
    let place = view.parent("parent").unwrap();
    let mut reader = Reader::open(&media, at, ReadOptions::default()).unwrap();
    let entries = reader.entries(0, 2).unwrap().to_vec();
    view.push_view(place, 1, &entries[1]).unwrap();
    machine.fail_sync_after(Some(0));
    view.push_view(place, 0, &entries[0]).unwrap_err();
    view.push_view(place, 0, &entries[0]).unwrap();
    view.publish();
    let mut shown = Reader::open(&media, view_at, ReadOptions { early: true, ..ReadOptions::default() }).unwrap();
    let batch = shown.read(2).unwrap();
    assert_eq!(batch.iter().map(|m| m.payload).collect::<Vec<_>>(), [&b"second"[..], b"first"]);
}

/// Rows of parents that were, behind those of the view, until its table is full.
fn fill_table(media: &Arc<dyn Media>, rows: usize) {
    let file = media.open(Path::new("/disk/view/parents"), media::Open::Write).unwrap();
    let mut text = String::new();
    for row in rows..limits::PARENTS_MAX {
        let row = format!("{row:032x} 1 gone{row}");
        text += &format!("{:08x} {row}\n", crc32c(row.as_bytes()));
    }
    file.write_at(text.as_bytes(), file.len().unwrap()).unwrap();
}

/// A view that keeps little of many parents, one after the other, and a reader that has read of each.
#[test]
fn rows_of_parents_that_no_message_names_are_used_again() {
    for level in [Level::Memory, Level::Disk] {
        let machine = Machine::new(12);
        let media: Arc<dyn Media> = machine.start();
        let how = Options { retain_bytes: Some(100_000), ..options(level, WhenFull::DropOldest) };
        let mut view = open(&media, "view", &how);
        let mut shown = reader(&media, "view", true);
        let mut sent = 0;
        for round in 0..20 {
            let name = format!("parent{round}");
            let mut parent = open(&media, &name, &options(level, WhenFull::Wait));
            parent.origin("a").unwrap();
            let known = view.parent(&name).unwrap();
            let mut from = reader(&media, &name, level == Level::Memory);
            for _ in 0..3 {
                for _ in 0..2000 {
                    parent.append(&meta(sent, 0), &payload(sent, 5)).unwrap();
                    sent += 1;
                }
                parent.drain().unwrap();
                take_all(&mut view, known, &mut from).unwrap();
                view.publish();
                view.drain().unwrap();
                view.passed(known, from.position()).unwrap();
                let read = all(&mut shown).unwrap();
                assert_eq!((read.len(), read.last().unwrap().1), (2000, sent - 1));
            }
            drop(view);
            if round == 1 {
                fill_table(&media, 2);
            }
            view = open(&media, "view", &how);
            shown.reattach().unwrap();
        }
        let rows = shown.parents().unwrap();
        assert_eq!(rows.len(), limits::PARENTS_MAX);
        let used = rows.iter().rposition(|row| row.name.starts_with("parent")).unwrap();
        assert!(used < 8, "{level:?}: {used} rows");
    }
}

#[test]
fn a_full_table_of_parents_is_no_end_of_a_view() {
    let machine = Machine::new(13);
    let media: Arc<dyn Media> = machine.start();
    let how = options(Level::Disk, WhenFull::Wait);
    drop(in_turn(&media));
    fill_table(&media, 2);
    let mut view = open(&media, "view", &how);
    let mut parent = open(&media, "c", &how);
    parent.origin("c").unwrap();
    parent.append(&meta(7, 0), &payload(7, 300)).unwrap();
    parent.drain().unwrap();
    let known = view.parent("c").unwrap();
    // A failed write changes nothing.
    machine.fail_sync_after(Some(0));
    take_all(&mut view, known, &mut reader(&media, "c", false)).unwrap_err();
    take_all(&mut view, known, &mut reader(&media, "c", false)).unwrap();
    view.publish();
    view.drain().unwrap();
    // SAFETY: no other object maps.
    unsafe { machine.power_cut((view, parent)) };
    let media: Arc<dyn Media> = machine.start();
    let mut shown = reader(&media, "view", false);
    let rows = shown.parents().unwrap();
    assert_eq!((rows.len(), rows[2].name.as_str()), (limits::PARENTS_MAX, "c"));
    assert_eq!(all(&mut shown).unwrap().len(), 41);
    assert_eq!(verify(&media, &folder("view"), &mut |_, _| {}).unwrap().wrong, 0);
}
