//! A reader that comes between any two writes to the file, as after a kill there, finds it whole.

#[path = "../../tests/all/messages.rs"]
pub(crate) mod messages;

use crate::hdf::look::set_look;
use crate::template::{Layout, Template};
use crate::{Job, Nexus};
use flow::Sink;
use messages::{START, events, give, job, packed, second};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("beamport-nexus-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Lengths of the columns of each module, after looking at every value.
fn look(path: &Path) -> Vec<usize> {
    let file = hdf5_metno::File::open(path).unwrap();
    let numbers = |path: &str| file.dataset(path).unwrap().read_raw::<i64>().unwrap();
    let at = |name: &str| numbers(&format!("entry/instrument/detector/events/{name}"));
    let (id, offset, zero, index) = (at("event_id"), at("event_time_offset"), at("event_time_zero"), at("event_index"));
    assert_eq!(id.len(), offset.len(), "events with and without a time");
    assert_eq!(zero.len(), index.len(), "pulses with and without a place");
    assert!(id.iter().all(|id| *id > 0) && offset.iter().all(|t| *t >= 1000), "rows that nobody wrote");
    assert!(zero.iter().all(|t| *t >= START), "rows that nobody wrote");
    assert!(
        index.is_sorted() && index.last().is_none_or(|last| *last as usize <= id.len()),
        "pulses beyond the events"
    );
    for (at, begin) in index.iter().enumerate() {
        let end = index.get(at + 1).map_or(offset.len(), |next| *next as usize);
        let pulse = offset[*begin as usize..end].iter().enumerate();
        assert!(pulse.into_iter().all(|(i, offset)| *offset == 1000 + i as i64 * 7), "events of another place");
    }
    let mut out = vec![id.len(), zero.len()];
    for (values, times) in [
        ("entry/sample/temperature/value", "entry/sample/temperature/time"),
        ("entry/sample/field/value", "entry/sample/field/time"),
        ("entry/sample/temperature/alarm_severity", "entry/sample/temperature/alarm_time"),
        ("entry/instrument/monitor/data/signal", "entry/instrument/monitor/data/time"),
        ("entry/older/image/data", "entry/older/image/time"),
        ("entry/older/raw/raw_data_index", "entry/older/raw/time"),
        ("entry/older/chopper/cue_index", "entry/older/chopper/cue_timestamp_zero"),
    ] {
        let dataset = file.dataset(values).unwrap();
        let rows = dataset.shape()[0];
        let _ = dataset.read_raw::<f64>().or_else(|_| dataset.read_raw::<i64>().map(|_| Vec::new())).unwrap();
        let times = numbers(times);
        assert_eq!(rows, times.len(), "{values}");
        assert!(times.iter().all(|t| *t >= START), "rows that nobody wrote");
        out.push(rows);
    }
    assert_eq!(file.dataset("entry/values").unwrap().shape()[0], out[2], "the link names another dataset");
    out
}

/// Writes a file with `write`, and looks at it after every write of the sink; how often it looked.
fn looked_at(job: &Job, mut write: impl FnMut(&mut Nexus)) -> usize {
    let mut sink = Nexus::begin(job.clone(), true).unwrap();
    let seen = Rc::new(RefCell::new((0, look(&job.file))));
    let seen_by_hook = seen.clone();
    set_look(Some(Box::new(move |path| {
        let rows = look(path);
        let (looks, before) = &mut *seen_by_hook.borrow_mut();
        assert!(rows.iter().zip(before.iter()).all(|(now, then)| now >= then), "rows went: {before:?}, {rows:?}");
        (*looks, *before) = (*looks + 1, rows);
    })));
    write(&mut sink);
    sink.set_stop(START);
    sink.finish(r#"{"closed": true, "lost": 0, "gaps": [{"stream": "detector", "first": 1}]}"#).unwrap();
    set_look(None);
    let (looks, rows) = &*seen.borrow();
    assert_eq!(*rows, look(&job.file));
    *looks
}

#[test]
fn a_writer_killed_at_any_write_leaves_a_whole_file() {
    let folder = folder("whole");
    let mut injected = 0;
    // Small chunks, so that their trees split and get roots above roots; and large ones.
    let plain = job(&folder.join("whole.nxs"));
    let deflated = packed(plain.clone(), "deflate");
    for (job, few, many) in
        [(&plain, 10, 5_000), (&plain, 3_000, 3_000), (&deflated, 10, 5_000), (&deflated, 3_000, 900)]
    {
        injected += looked_at(job, |sink| {
            for n in 0..20 {
                second(sink, n, if n == 0 { few } else { many }).unwrap();
                sink.flush().unwrap();
            }
        });
    }
    // Chunks that become whole between two flushes: the place of the begun one is free only behind the second.
    injected += looked_at(&deflated, |sink| {
        for n in 0..25 {
            second(sink, n, if n % 20 < 2 { 301 } else { 5_000 }).unwrap();
            if n % 20 == 0 {
                sink.flush().unwrap();
            }
        }
    });
    // A beam that is off at first.
    injected += looked_at(&job(&folder.join("dark.nxs")), |sink| {
        for n in 0..12 {
            let pulses: Vec<_> = (0..14).map(|i| events(n * 14 + i, if n < 4 { 0 } else { 2_000 })).collect();
            give(sink, 0, n * 14, &pulses).unwrap();
            sink.flush().unwrap();
        }
    });
    std::fs::remove_dir_all(&folder).unwrap();
    println!("injected {injected} ends of the writer, one after each write to the file: 0 torn");
}

/// A reader looks up each chunk when it comes to it, with the upper nodes of the tree as they were.
#[test]
fn a_reader_saw_zeros_where_a_node_lost_half_of_its_entries_meanwhile() {
    let folder = folder("split");
    let job = job(&folder.join("split.nxs"));
    let (mut rows, mut before) = (0, None);
    let (sink, _) = grown(&job, || {
        if let Some((_file, ids)) = before.take() {
            let ids: hdf5_metno::Dataset = ids;
            let all = ids.read_1d::<i64>().unwrap();
            rows = all.len();
            let zeros = all.iter().filter(|id| **id == 0).count();
            assert_eq!(zeros, 0, "zeros among {rows} rows");
        }
        let file = hdf5_metno::File::open(&job.file).unwrap();
        let ids = file.dataset(IDS).unwrap();
        // The root, and the first leaf.
        ids.read_slice_1d::<i64, _>(0..1).unwrap();
        before = Some((file, ids));
    });
    assert!(rows > 1_000_000, "{rows}");
    drop((before, sink));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_killed_writer_left_nodes_with_entries_that_had_moved() {
    let folder = folder("halves");
    let plain = job(&folder.join("halves.nxs"));
    for job in [&plain, &packed(plain.clone(), "deflate")] {
        let chunks = || {
            let ids = hdf5_metno::File::open(&job.file).unwrap().dataset(IDS).unwrap();
            (ids.num_chunks().unwrap(), ids.shape()[0].div_ceil(ids.chunk().unwrap()[0]))
        };
        let (sink, state) = grown(job, || ());
        drop(sink);
        let (found, wanted) = chunks();
        assert!(found > wanted, "{found} of {wanted} chunks: nothing was held back");
        let mut sink = Nexus::resume(job.clone(), &state).unwrap();
        sink.finish("{}").unwrap();
        let (found, wanted) = chunks();
        assert_eq!(found, wanted);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

const IDS: &str = "entry/instrument/detector/events/event_id";

/// A file whose trees have split, with its last state; `each` comes after each flush.
fn grown(job: &Job, mut each: impl FnMut()) -> (Nexus, String) {
    let mut sink = Nexus::begin(job.clone(), true).unwrap();
    let mut state = String::new();
    for n in 0..60 {
        second(&mut sink, n, 5_000).unwrap();
        state = sink.flush().unwrap();
        each();
    }
    (sink, state)
}

/// `end_time` and the least value of a log come last, and the axes of a histogram with its first message.
#[test]
fn names_that_came_late_tore_a_group_of_more_than_eight() {
    let folder = folder("names");
    for names in [9, 100] {
        let mut job = job(&folder.join(format!("names-{names}.nxs")));
        let many = |word: &str| {
            let one = |n| format!(r#"{{"module": "dataset", "config": {{"name": "{word}{n}", "values": {n}}}}}, "#);
            (0..names).map(one).collect::<String>()
        };
        let text = messages::TEMPLATE
            .replace(
                r#"{"module": "dataset", "config": {"name": "title""#,
                &(many("a") + r#"{"module": "dataset", "config": {"name": "title""#),
            )
            .replace(r#"{"module": "f144""#, &(many("b") + r#"{"module": "f144""#))
            .replace(r#"{"module": "hs01""#, &(many("c") + r#"{"module": "hs01""#));
        job.template = crate::template::Template::parse(text.as_bytes()).unwrap();
        let injected = looked_at(&job, |sink| {
            for n in 0..3 {
                second(sink, n, 100).unwrap();
                sink.flush().unwrap();
            }
        });
        println!("injected {injected} ends of the writer with {names} names in a group: 0 torn");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_writer_killed_while_it_takes_up_a_file_leaves_a_whole_file() {
    let folder = folder("cut");
    let plain = job(&folder.join("cut.nxs"));
    let injected = taken_up(&plain) + taken_up(&packed(plain, "deflate"));
    std::fs::remove_dir_all(&folder).unwrap();
    println!("injected {injected} ends of a writer that takes up a file: 0 torn");
}

fn taken_up(job: &Job) -> usize {
    let mut sink = Nexus::begin(job.clone(), false).unwrap();
    (0..3).for_each(|n| second(&mut sink, n, 5_000).unwrap());
    let state = sink.flush().unwrap();
    (3..12).for_each(|n| second(&mut sink, n, 5_000).unwrap());
    sink.flush().unwrap();
    drop(sink);
    let looks = Rc::new(RefCell::new(0));
    let counted = looks.clone();
    set_look(Some(Box::new(move |path| {
        look(path);
        *counted.borrow_mut() += 1;
    })));
    let mut sink = Nexus::resume(job.clone(), &state).unwrap();
    assert_eq!(look(&job.file)[1], 3 * 14);
    (3..12).for_each(|n| second(&mut sink, n, 5_000).unwrap());
    sink.flush().unwrap();
    assert_eq!(look(&job.file)[1], 12 * 14);
    set_look(None);
    assert!(*looks.borrow() > 3, "{}", looks.borrow());
    looks.take()
}

/// Groups of other writers are trees and heaps; those of the file are not, so that what is added leaves them whole.
#[test]
fn a_static_file_tore_the_groups_that_it_shared_with_the_template() {
    let folder = folder("static");
    let of_static = folder.join("static.hdf");
    let file = hdf5_metno::File::create(&of_static).unwrap();
    for group in ["entry/sample/temperature", "entry/instrument/detector/events", "entry/older/image"] {
        let group = file.create_group(group).unwrap();
        for n in 0..30 {
            group.new_dataset::<i32>().create(format!("of_static{n}").as_str()).unwrap().write_scalar(&n).unwrap();
        }
    }
    file.close().unwrap();
    let template = folder.join("template.json");
    std::fs::write(&template, messages::TEMPLATE).unwrap();
    let mut job = job(&folder.join("whole.nxs"));
    job.template = Template::open(&template, Some(&of_static), &[], Layout::Nexus).unwrap();
    let looks = looked_at(&job, |sink| {
        for n in 0..5 {
            second(sink, n, 100).unwrap();
            sink.flush().unwrap();
        }
    });
    assert!(looks > 20, "{looks}");
    let file = hdf5_metno::File::open(&job.file).unwrap();
    assert_eq!(file.dataset("entry/older/image/of_static29").unwrap().read_scalar::<i32>().unwrap(), 29);
    std::fs::remove_dir_all(&folder).unwrap();
}
