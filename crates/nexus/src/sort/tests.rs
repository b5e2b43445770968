//! A file of rows that came late is that of rows that came in order, whoever was killed when.

use crate::hdf::h5::File;
use crate::hdf::look::set_look;
use crate::limits::LATE_ROWS_MAX;
use crate::template::Template;
use crate::tests::whole::folder;
use crate::tests::whole::messages::{
    self, Made, START, alarm, events, give, job, made, monitor, others, packed, samples, value,
};
use crate::{Job, Nexus};
use flow::Sink;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Every dataset: shape and bytes.
type Content = BTreeMap<String, (Vec<usize>, Vec<u64>)>;

fn content(path: &Path) -> Content {
    fn walk(group: &hdf5_metno::Group, out: &mut Content) {
        for dataset in group.datasets().unwrap() {
            use hdf5_metno::types::TypeDescriptor;
            let values = match dataset.dtype().unwrap().to_descriptor().unwrap() {
                TypeDescriptor::Integer(_) => {
                    dataset.read_raw::<i64>().unwrap().into_iter().map(|value| value as u64).collect()
                }
                TypeDescriptor::Unsigned(_) => dataset.read_raw::<u64>().unwrap(),
                TypeDescriptor::Float(_) => dataset.read_raw::<f64>().unwrap().into_iter().map(f64::to_bits).collect(),
                _ => Vec::new(),
            };
            out.insert(dataset.name(), (dataset.shape(), values));
        }
        group.groups().unwrap().iter().for_each(|inner| walk(inner, out));
    }
    let mut out = Content::new();
    walk(&hdf5_metno::File::open(path).unwrap(), &mut out);
    out
}

/// Cues are where rows came far from those before them, and a mean is a sum in some order.
fn without_cues(mut content: Content) -> Content {
    content.retain(|name, _| !name.contains("/cue_") && !name.ends_with("/average_value"));
    content
}

/// Times stand in order, and each cue at the first row of its time; no row is far from a cue.
fn check(content: &Content, least: usize) {
    let numbers = |group: &str, name: &str| content.get(&format!("{group}/{name}")).map(|(_, numbers)| numbers);
    let mut looked = 0;
    for (name, (_, times)) in content {
        let (group, name) = name.rsplit_once('/').unwrap();
        if !["time", "event_time_zero", "alarm_time", "connection_status_time", "cue_timestamp_zero"].contains(&name) {
            continue;
        }
        assert!(times.is_sorted(), "{group}/{name} is not in order");
        looked += 1;
        let is_of_cues = matches!(name, "time" | "event_time_zero");
        let Some(places) = numbers(group, "cue_index").filter(|_| is_of_cues) else { continue };
        let cues = numbers(group, "cue_timestamp_zero").unwrap();
        for (cue, place) in cues.iter().zip(places) {
            let row = times.partition_point(|time| time < cue);
            assert_eq!(times[row], *cue, "{group}: a cue of no row");
            assert_eq!(*place, numbers(group, "event_index").map_or(row as u64, |index| index[row]), "{group}");
        }
        assert!(
            times.iter().all(|time| cues.iter().any(|cue| cue.abs_diff(*time) < 10_000_000_000)),
            "{group}: a row is far from all cues"
        );
    }
    assert!(looked >= least, "{looked}");
}

/// The messages of the instrument in `seconds`, each with its input and its time.
fn all(seconds: u64) -> Vec<(usize, Made)> {
    let mut out = Vec::new();
    for n in 0..seconds {
        out.extend((0..14).map(|i| (0, events(n * 14 + i, [300, 0, 17][(n * 14 + i) as usize % 3]))));
        out.push((1, monitor(n, 1000.0)));
        out.extend((0..10).map(|i| (2, value(n * 1000 + i * 100))));
        out.extend([alarm(n), samples(n)].into_iter().chain(others(n)).map(|made| (2, made)));
    }
    out
}

/// The places of numbers that come late by up to `most` places, one in `each` of them.
fn shuffled(count: usize, each: u64, most: u64) -> Vec<usize> {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let mut all: Vec<(u64, usize)> =
        (0..count).map(|at| (at as u64 + if next() % each == 0 { next() % (most + 1) } else { 0 }, at)).collect();
    all.sort_unstable();
    all.into_iter().map(|(_, at)| at).collect()
}

/// Gives messages in this order, with a flush after each so many; the state behind the last.
fn written(job: &Job, all: &[(usize, Made)], order: &[usize]) -> (Nexus, String) {
    let mut sink = Nexus::begin(job.clone(), true).unwrap();
    for (n, at) in order.iter().enumerate() {
        let (input, message) = &all[*at];
        assert!(give(&mut sink, *input, n as u64, std::slice::from_ref(message)).unwrap().is_empty());
        if n % 400 == 100 {
            let state = sink.flush().unwrap();
            if n == 500 {
                // A new process knows from the state that rows were late.
                drop(sink);
                sink = Nexus::resume(job.clone(), &state).unwrap();
            }
        }
    }
    let state = sink.flush().unwrap();
    sink.set_stop(START);
    (sink, state)
}

fn finished(mut sink: Nexus, file: &Path) -> Content {
    sink.set_stop(START);
    let product = sink.finish(r#"{"closed": true, "lost": 0}"#).unwrap();
    let bytes = std::fs::read(file).unwrap();
    assert_eq!(product.size, bytes.len() as u64);
    assert_eq!(product.blake3, blake3::hash(&bytes).to_hex().to_string(), "the hash is of what stood there before");
    let names: Vec<_> = std::fs::read_dir(file.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().contains(".sort")), "{names:?}");
    content(file)
}

fn jobs(folder: &Path) -> [Job; 2] {
    [job(&folder.join("plain.nxs")), packed(job(&folder.join("packed.nxs")), "deflate")]
}

#[test]
fn rows_that_come_late_stand_where_they_had_come_in_order() {
    let folder = folder("late");
    let all = all(60);
    let in_order: Vec<usize> = (0..all.len()).collect();
    for job in jobs(&folder) {
        let wanted = finished(written(&job, &all, &in_order).0, &job.file);
        check(&wanted, 11);
        for (each, most) in [(2, 30), (100, 1200), (all.len() as u64 / 4, 1600), (1, 5000)] {
            let order = shuffled(all.len(), each, most);
            assert_ne!(order, in_order);
            let got = finished(written(&job, &all, &order).0, &job.file);
            check(&got, 11);
            assert!(without_cues(got) == without_cues(wanted.clone()), "one in {each} by up to {most}");
        }
    }
    const { assert!(LATE_ROWS_MAX < 100, "late rows are sorted in several goes here") };
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Another layout names and types the same rows otherwise.
#[test]
fn cues_of_the_layout_of_ess_were_not_found_as_their_times_have_another_sign() {
    let folder = folder("late-ess");
    let mut job = job(&folder.join("ess.nxs"));
    job.template = Template::parse_with(messages::TEMPLATE.as_bytes(), &[], crate::template::Layout::Ess).unwrap();
    let all = all(20);
    let got = finished(written(&job, &all, &shuffled(all.len(), 5, 200)).0, &job.file);
    check(&got, 11);
    // Of 280 pulses each third has no events, and at ESS no row.
    assert_eq!(got["/entry/instrument/detector/events/event_time_zero"].0, [187]);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The file beside, and what is being written there: as a kill at this moment would leave them.
fn snapshot(file: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(file.parent().unwrap()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
        }
    }
}

/// Events, a log and its alarms.
const FEW: &str = r#"{"children": [{"type": "group", "name": "entry", "children": [
  {"type": "group", "name": "events", "children": [{"module": "ev44", "config": {"stream": "detector"}}]},
  {"type": "group", "name": "log", "children": [
    {"module": "f144", "config": {"stream": "devices", "source": "T"}},
    {"module": "al00", "config": {"stream": "devices", "source": "T"}}]}]}]}"#;

/// Messages of these.
fn few(seconds: u64) -> Vec<(usize, Made)> {
    let wanted = |(_, made): &(usize, Made)| matches!(&made.entry.schema.0, b"ev44" | b"f144" | b"al00");
    all(seconds).into_iter().filter(wanted).collect()
}

/// Killed after each single write of the sort, and once more while that is repaired.
#[test]
fn a_writer_killed_at_any_moment_of_the_sort_ends_with_the_same_file() {
    let mut injected = 0;
    for at in 0..2 {
        let base = folder(&format!("late-kill-{at}"));
        let folder = base.join("now");
        std::fs::create_dir_all(&folder).unwrap();
        let mut job = jobs(&folder)[at].clone();
        let settings = if at == 0 { "" } else { r#""compression": "deflate", "# };
        let text = FEW.replace(r#""stream""#, &format!(r#"{settings}"stream""#));
        job.template = Template::parse(text.as_bytes()).unwrap();
        let all = few(20);
        let (sink, state) = written(&job, &all, &shuffled(all.len(), 9, 250));
        let shots: Rc<RefCell<Vec<PathBuf>>> = Rc::default();
        let (shots_too, to) = (shots.clone(), base.clone());
        set_look(Some(Box::new(move |file| {
            let mut shots = shots_too.borrow_mut();
            let shot = to.join(format!("shot-{}", shots.len()));
            snapshot(file, &shot);
            shots.push(shot);
        })));
        let wanted = finished(sink, &job.file);
        set_look(None);
        check(&wanted, 3);
        let shots = shots.take();
        assert!(shots.len() > 40, "{}", shots.len());
        for (number, shot) in shots.iter().enumerate() {
            let again = Job { file: shot.join(job.file.file_name().unwrap()), ..job.clone() };
            let seen = content(&again.file);
            assert!(seen.len() > 10, "a reader meets all datasets");
            if number % 7 == 3 && shot.join(format!(".{}.sorted", job.file.file_name().unwrap().display())).exists() {
                // The next one is killed as well, after its third write.
                let second = shot.join("second");
                let (count, to) = (Rc::new(RefCell::new(0)), second.clone());
                set_look(Some(Box::new(move |file| {
                    *count.borrow_mut() += 1;
                    if *count.borrow() == 3 {
                        snapshot(file, &to);
                    }
                })));
                drop(Nexus::resume(again.clone(), &state).unwrap());
                set_look(None);
                if second.exists() {
                    let again = Job { file: second.join(job.file.file_name().unwrap()), ..job.clone() };
                    let sink = Nexus::resume(again.clone(), &state).unwrap();
                    assert!(finished(sink, &again.file) == wanted, "killed after write {number}, and again");
                    injected += 1;
                }
            }
            let sink = Nexus::resume(again.clone(), &state).unwrap();
            assert!(finished(sink, &again.file) == wanted, "killed after write {number}");
            injected += 1;
        }
        std::fs::remove_dir_all(&base).unwrap();
    }
    println!("injected {injected} ends of a writer that sorts: 0 rows lost");
}

/// Chunks of a dataset: place and bytes.
fn chunks(path: &Path, dataset: &str) -> Vec<(u64, Vec<u8>)> {
    let file = File::open(path, false).unwrap();
    let (growing, _, _) = file.open_growing(dataset).unwrap();
    let bytes = std::fs::read(path).unwrap();
    let out = growing
        .chunks()
        .unwrap()
        .values()
        .map(|c| (c.place, bytes[c.place as usize..(c.place + c.bytes) as usize].to_vec()))
        .collect();
    drop(growing);
    file.close().unwrap();
    out
}

#[test]
fn only_chunks_in_which_a_row_moves_are_written() {
    let folder = folder("late-chunks");
    for job in jobs(&folder) {
        let mut sink = Nexus::begin(job.clone(), true).unwrap();
        for n in 0..6000 {
            // Two pulses change places, in the middle.
            let n = match n {
                3000 => 3001,
                3001 => 3000,
                n => n,
            };
            give(&mut sink, 0, n, &[events(n, 20)]).unwrap();
            give(&mut sink, 2, n, &[value(n)]).unwrap();
            if n == 100 {
                sink.flush().unwrap();
            }
        }
        sink.flush().unwrap();
        let before = folder.join("before.nxs");
        std::fs::copy(&job.file, &before).unwrap();
        check_few(&finished(sink, &job.file));
        for (dataset, changed) in [
            ("/entry/instrument/detector/events/event_time_zero", 1),
            ("/entry/instrument/detector/events/event_index", 0),
            ("/entry/instrument/detector/events/event_id", 1),
            ("/entry/instrument/detector/events/event_time_offset", 0),
            ("/entry/instrument/detector/events/cue_index", 0),
            ("/entry/sample/temperature/time", 1),
            ("/entry/sample/temperature/value", 1),
            ("/entry/sample/pressure/time", 0),
        ] {
            let (old, new) = (chunks(&before, dataset), chunks(&job.file, dataset));
            assert_eq!(old.len(), new.len());
            let others = old.iter().zip(&new).filter(|(old, new)| old != new).count();
            assert_eq!(others, changed, "{dataset} of {}", job.file.display());
            let is_plain = job.file.ends_with("plain.nxs");
            assert!(!is_plain || old.iter().zip(&new).all(|(old, new)| old.0 == new.0), "a chunk moved: {dataset}");
            assert!(
                dataset.contains("cue") || dataset.contains("pressure") || old.len() > 3,
                "{dataset}: {}",
                old.len()
            );
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

fn check_few(content: &Content) {
    for name in ["/entry/instrument/detector/events/event_time_zero", "/entry/sample/temperature/time"] {
        assert_eq!(content[name].1.len(), 6000);
        assert!(content[name].1.is_sorted(), "{name}");
    }
}

/// A pulse with a pixel of its own at this time.
fn pulses(times: &[i64], pixel: i32) -> Made {
    let indexes: Vec<i32> = (0..times.len() as i32).collect();
    let (offsets, pixels) = (vec![5; times.len() + 1], vec![pixel; times.len() + 1]);
    let mut bytes = Vec::new();
    let message = wire::ev44::Ev44 {
        source_name: "bank0",
        message_id: 0,
        reference_time: times.into(),
        reference_time_index: (&indexes).into(),
        time_of_flight: (&offsets).into(),
        pixel_id: (&pixels).into(),
    };
    wire::ev44::write(&mut bytes, &message).unwrap();
    made(bytes, times[0])
}

#[test]
fn pulses_of_one_time_stay_as_they_came_each_with_its_events() {
    let folder = folder("late-same");
    let job = job(&folder.join("same.nxs"));
    let mut sink = Nexus::begin(job.clone(), true).unwrap();
    let at = |n: i64| START + n;
    // The last pulse of each message has two events.
    let all = [pulses(&[at(5), at(7)], 1), pulses(&[at(5)], 2), pulses(&[at(2), at(7), at(7)], 3), pulses(&[at(2)], 4)];
    give(&mut sink, 0, 0, &all).unwrap();
    sink.flush().unwrap();
    let got = finished(sink, &job.file);
    let column = |name: &str| got[&format!("/entry/instrument/detector/events/{name}")].1.clone();
    let times: Vec<i64> = column("event_time_zero").iter().map(|time| *time as i64 - START).collect();
    assert_eq!(times, [2, 2, 5, 5, 7, 7, 7]);
    assert_eq!(column("event_index"), [0, 1, 3, 4, 6, 8, 9]);
    assert_eq!(column("event_id"), [3, 4, 4, 1, 2, 2, 1, 1, 3, 3, 3]);
    assert_eq!((column("cue_index"), column("cue_timestamp_zero")), (vec![3], vec![at(5) as u64]));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A state of an earlier version does not say whether rows are late.
#[test]
fn a_file_whose_state_does_not_tell_is_sorted() {
    let folder = folder("late-older");
    let job = job(&folder.join("older.nxs"));
    let all = all(5);
    let (sink, state) = written(&job, &all, &shuffled(all.len(), 5, 100));
    drop(sink);
    let mut older: serde_json::Value = serde_json::from_str(&state).unwrap();
    for module in older["modules"].as_array_mut().unwrap() {
        assert!(module.as_object_mut().unwrap().remove("order").is_some());
    }
    check(&finished(Nexus::resume(job.clone(), &older.to_string()).unwrap(), &job.file), 11);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// After a kill they would be cut off, with what was sorted between them.
#[test]
fn rows_that_no_commit_knows_stay_behind_the_others() {
    let folder = folder("late-open");
    let job = job(&folder.join("open.nxs"));
    let mut sink = Nexus::begin(job.clone(), true).unwrap();
    give(&mut sink, 2, 0, &[value(1), value(3)]).unwrap();
    let state = sink.flush().unwrap();
    give(&mut sink, 2, 2, &[value(2)]).unwrap();
    let times = |content: Content| -> Vec<u64> {
        content["/entry/sample/temperature/time"].1.iter().map(|time| (time - START as u64) / 1_000_000).collect()
    };
    assert_eq!(times(finished(sink, &job.file)), [1, 3, 2]);
    let mut sink = Nexus::resume(job.clone(), &state).unwrap();
    give(&mut sink, 2, 2, &[value(2)]).unwrap();
    sink.flush().unwrap();
    assert_eq!(times(finished(sink, &job.file)), [1, 2, 3]);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Then the file is made again from the streams.
#[test]
fn a_damaged_list_of_chunks_is_refused_and_never_panics() {
    let base = folder("late-damaged");
    let now = base.join("now");
    std::fs::create_dir_all(&now).unwrap();
    let mut job = job(&now.join("a.nxs"));
    job.template = Template::parse(FEW.as_bytes()).unwrap();
    let all = few(3);
    let (sink, state) = written(&job, &all, &shuffled(all.len(), 5, 40));
    let (shot, list) = (base.join("shot"), ".a.nxs.sorted");
    let (to, mut done) = (shot.clone(), false);
    set_look(Some(Box::new(move |file| {
        if !done && file.with_file_name(list).exists() {
            snapshot(file, &to);
            done = true;
        }
    })));
    finished(sink, &job.file);
    set_look(None);
    let (bytes, file) = (std::fs::read(shot.join(list)).unwrap(), std::fs::read(shot.join("a.nxs")).unwrap());
    let resumed = |list_bytes: &[u8]| {
        std::fs::write(shot.join(list), list_bytes).unwrap();
        std::fs::write(shot.join("a.nxs"), &file).unwrap();
        Nexus::resume(Job { file: shot.join("a.nxs"), ..job.clone() }, &state).map(|_| ())
    };
    resumed(&bytes).unwrap();
    for end in [0, 7, 8, 47, 60, bytes.len() - 41, bytes.len() - 1] {
        assert!(resumed(&bytes[..end]).is_err(), "cut at {end}");
    }
    for at in (0..100).chain((100..bytes.len()).step_by(499)) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x41;
        assert!(resumed(&damaged).is_err(), "byte {at}");
    }
    std::fs::remove_dir_all(&base).unwrap();
}
