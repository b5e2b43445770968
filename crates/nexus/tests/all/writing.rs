//! Files are written, resumed after a kill, and stay readable; checked by reading them again with another binding.

use crate::messages;
use crate::messages::{START, alarm, events, give, made, monitor, packed, second, value};
use beamport_nexus::template::{Layout, Template};
use beamport_nexus::{Job, Nexus};
use flow::Sink;
use hdf5_metno::types::VarLenUnicode;
use std::path::{Path, PathBuf};
use std::process::Command;

const ACCOUNT: &str = r#"{"run": "first", "closed": true, "lost": 3,
  "rows": [{"stage": "file", "stream": "detector", "read": 45, "done": 42, "aside": {}, "lost": {"full": 3}, "closed": true}],
  "gaps": [{"stream": "detector", "origin": "bank0", "first": 3, "last": 5, "from": 0, "to": 9, "reason": "full"}]}"#;

/// Packed where its folder's name says so.
fn job(file: &Path) -> Job {
    let plain = messages::job(file);
    if file.to_string_lossy().contains("-packed") { packed(plain, "deflate") } else { plain }
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nexus-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// What a reader sees: names of datasets with shape and a checksum of the values.
fn content(path: &Path) -> Vec<String> {
    let file = hdf5_metno::File::open(path).unwrap();
    let mut out = Vec::new();
    fn walk(group: &hdf5_metno::Group, out: &mut Vec<String>) {
        for dataset in group.datasets().unwrap() {
            let kind = dataset.dtype().unwrap().to_descriptor().unwrap();
            let shape = dataset.shape();
            let sum = match &kind {
                hdf5_metno::types::TypeDescriptor::Integer(_) | hdf5_metno::types::TypeDescriptor::Unsigned(_) => {
                    let values = dataset.read_raw::<i64>().unwrap();
                    values.iter().fold(0_u64, |sum, v| sum.wrapping_mul(1_000_003).wrapping_add(*v as u64))
                }
                hdf5_metno::types::TypeDescriptor::Float(_) => {
                    let values = dataset.read_raw::<f64>().unwrap();
                    values.iter().fold(0_u64, |sum, v| sum.wrapping_mul(1_000_003).wrapping_add(v.to_bits()))
                }
                _ => 0,
            };
            out.push(format!("{} {shape:?} {kind} {sum:x}", dataset.name()));
        }
        for inner in group.groups().unwrap() {
            walk(&inner, out);
        }
    }
    walk(&file, &mut out);
    out.sort();
    out
}

fn rows(path: &Path, dataset: &str) -> usize {
    hdf5_metno::File::open(path).unwrap().dataset(dataset).unwrap().shape()[0]
}

/// The content as a reader in another process sees it: libhdf5 shares what is open within one.
fn content_elsewhere(path: &Path) -> Vec<String> {
    assert!(child("a_reader_in_another_process", "read", path).success(), "{} does not open", path.display());
    let text = std::fs::read_to_string(path.with_extension("content")).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_reader_in_another_process() {
    if let Some((_, file)) = in_child() {
        std::fs::write(file.with_extension("content"), content(&file).join("\n")).unwrap();
        return;
    }
    let file = folder("live").join("live.nxs");
    let mut sink = Nexus::begin(job(&file), false).unwrap();
    let empty = content_elsewhere(&file);
    second(&mut sink, 0, 100).unwrap();
    assert_eq!(content_elsewhere(&file), empty, "nothing shows before a flush");
    sink.flush().unwrap();
    let shown = content_elsewhere(&file);
    assert_ne!(shown, empty);
    assert!(shown.iter().any(|l| l.starts_with("/entry/instrument/detector/events/event_id [1400]")), "{shown:?}");
}

fn finish(mut sink: Nexus) -> flow::Product {
    sink.set_stop(START + 60_000_000_000);
    sink.finish(ACCOUNT).unwrap()
}

/// Runs the test of that name in a process of its own, in which `BEAMPORT_CHILD` has the value.
fn child(test: &str, value: &str, file: &Path) -> std::process::ExitStatus {
    Command::new(std::env::current_exe().unwrap())
        .args([&format!("writing::{test}"), "--exact", "--nocapture", "--test-threads=1"])
        .env("BEAMPORT_CHILD", value)
        .env("BEAMPORT_FILE", file)
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap()
}

fn in_child() -> Option<(String, PathBuf)> {
    Some((std::env::var("BEAMPORT_CHILD").ok()?, std::env::var_os("BEAMPORT_FILE")?.into()))
}

fn kill_self() -> ! {
    // SAFETY: ends this process as `kill -9` does.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    unreachable!("killed")
}

#[test]
fn a_whole_file_holds_what_was_sent() {
    let file = folder("whole").join("sample.nxs");
    let mut sink = Nexus::begin(job(&file), false).unwrap();
    for n in 0..30 {
        second(&mut sink, n, 500).unwrap();
        if n % 10 == 0 {
            sink.flush().unwrap();
        }
    }
    let product = finish(sink);
    assert_eq!(product.size, std::fs::metadata(&file).unwrap().len());
    let read = hdf5_metno::File::open(&file).unwrap();
    let numbers = |path: &str| read.dataset(path).unwrap().read_raw::<i64>().unwrap();
    let at = "entry/instrument/detector/events";
    let (index, zero, id) = (
        numbers(&format!("{at}/event_index")),
        numbers(&format!("{at}/event_time_zero")),
        numbers(&format!("{at}/event_id")),
    );
    assert_eq!(index, (0..420).map(|i| i * 500).collect::<Vec<_>>());
    assert_eq!(zero, (0..420).map(|i| START + i * messages::PULSE).collect::<Vec<_>>());
    assert_eq!(id.len(), 420 * 500);
    assert_eq!(id[7 * 500 + 3], 1 + (7 * 31 + 3) % 128);
    assert_eq!(numbers(&format!("{at}/event_time_offset"))[500 * 419 + 499], 1000 + 499 * 7);
    let cue = numbers(&format!("{at}/cue_index"));
    assert_eq!(cue.len(), 3, "one every ten seconds");
    let reals = |path: &str| read.dataset(path).unwrap().read_raw::<f64>().unwrap();
    assert_eq!(reals("entry/sample/temperature/value").len(), 300);
    assert_eq!(reals("entry/sample/temperature/maximum_value")[0], 280.0 + 99.0 * 0.1);
    assert_eq!(reals("entry/values"), reals("entry/sample/temperature/value"), "the link names the dataset made anew");
    assert_eq!(reals("entry/sample/field/value").len(), 300);
    assert_eq!(numbers("entry/sample/field/time")[13], START + 1_000_000_000 + 300_000_000);
    assert_eq!(read.dataset("entry/instrument/monitor/data/signal").unwrap().shape(), [30, 5]);
    assert_eq!(reals("entry/instrument/monitor/data/tof"), [0.0, 1e3, 2e3, 3e3, 4e3, 5e3]);
    assert_eq!(numbers("entry/beamport/gaps/first"), [3]);
    assert_eq!(numbers("entry/beamport/rows/lost"), [3]);
    // Room that was allotted ahead was given back.
    let meta = std::fs::metadata(&file).unwrap();
    assert!(std::os::unix::fs::MetadataExt::blocks(&meta) * 512 < meta.len() + (256 << 10));
}

#[test]
fn a_file_says_of_itself_whether_it_is_finished() {
    if let Some((_, file)) = in_child() {
        let read = hdf5_metno::File::open(&file).unwrap();
        let state = read.dataset("entry/beamport/state").unwrap().read_scalar::<VarLenUnicode>().unwrap();
        std::fs::write(file.with_extension("state"), state.as_str()).unwrap();
        return;
    }
    let folder = folder("state");
    let file = folder.join("a.nxs");
    let state = || {
        assert!(child("a_file_says_of_itself_whether_it_is_finished", "read", &file).success());
        std::fs::read_to_string(file.with_extension("state")).unwrap()
    };
    let mut sink = Nexus::begin(job(&file), false).unwrap();
    assert_eq!(state(), "writing");
    second(&mut sink, 0, 10).unwrap();
    let kept = sink.flush().unwrap();
    assert_eq!(state(), "writing");
    sink.finish(ACCOUNT).unwrap();
    assert_eq!(state(), "complete");
    // A kill before the commit: the file is resumed.
    let mut sink = Nexus::resume(job(&file), &kept).unwrap();
    assert_eq!(state(), "writing");
    sink.set_snapshot(START);
    sink.finish(ACCOUNT).unwrap();
    assert_eq!(state(), "snapshot");
}

#[test]
fn times_in_the_layout_of_ess_have_milliseconds() {
    let folder = folder("times");
    for (layout, wanted) in [(Layout::Nexus, "05.000000001Z"), (Layout::Ess, "05.000Z")] {
        let mut job = job(&folder.join(format!("{layout:?}.nxs")));
        let text = r#"{"children": [{"module": "mdat", "config": {"items": ["start_time", "end_time"]}}]}"#;
        job.template = Template::parse_with(text.as_bytes(), &[], layout).unwrap();
        job.start = START + 5_000_000_001;
        let mut sink = Nexus::begin(job.clone(), false).unwrap();
        sink.set_stop(job.start);
        sink.finish(ACCOUNT).unwrap();
        let read = hdf5_metno::File::open(&job.file).unwrap();
        let text = |path: &str| read.dataset(path).unwrap().read_scalar::<VarLenUnicode>().unwrap();
        assert_eq!(
            ["start_time", "end_time"].map(|name| text(name).to_string()),
            ["2026-01-01T00:00:"; 2].map(|day| day.to_owned() + wanted)
        );
        let made = read.attr("file_time").unwrap().read_scalar::<VarLenUnicode>().unwrap();
        assert_eq!(made.len(), "2026-01-01T00:00:".len() + wanted.len());
    }
}

#[test]
fn a_link_to_what_comes_at_the_end_was_left_out_and_another_file_may_come_later() {
    let folder = folder("links");
    let mut job = job(&folder.join("a.nxs"));
    let links = r#"{"module": "link", "config": {"name": "ended", "source": "end_time"}},
        {"module": "link", "config": {"name": "hottest", "source": "sample/temperature/maximum_value"}},
        {"module": "link", "config": {"name": "raw", "source": "/entry/title", "file": "raw/b.nxs"}},
        {"module": "link", "config": {"name": "values","#;
    let text = messages::TEMPLATE.replace(r#"{"module": "link", "config": {"name": "values","#, links);
    job.template = beamport_nexus::template::Template::parse(text.as_bytes()).unwrap();
    let mut sink = Nexus::begin(job.clone(), false).unwrap();
    second(&mut sink, 0, 10).unwrap();
    finish(sink);
    std::fs::create_dir(folder.join("raw")).unwrap();
    finish(Nexus::begin(messages::job(&folder.join("raw/b.nxs")), false).unwrap());
    let read = hdf5_metno::File::open(&job.file).unwrap();
    let text = |path: &str| read.dataset(path).unwrap().read_scalar::<hdf5_metno::types::VarLenUnicode>().unwrap();
    assert_eq!(text("entry/ended"), text("entry/end_time"));
    assert_eq!(text("entry/raw").as_str(), "made by rule");
    assert_eq!(read.dataset("entry/hottest").unwrap().read_raw::<f64>().unwrap().len(), 1);
}

#[test]
fn one_event_costs_kilobytes() {
    let file = folder("small").join("one.nxs");
    let mut sink = Nexus::begin(job(&file), false).unwrap();
    give(&mut sink, 0, 0, &[events(0, 1)]).unwrap();
    assert!(finish(sink).size < 300 << 10, "{}", std::fs::metadata(&file).unwrap().len());
    assert_eq!(rows(&file, "entry/instrument/detector/events/event_id"), 1);
}

#[test]
fn what_cannot_be_written_goes_aside_with_its_reason() {
    let file = folder("aside").join("aside.nxs");
    let mut sink = Nexus::begin(job(&file), false).unwrap();
    let mut nobody = value(1);
    nobody.payload = {
        let mut bytes = Vec::new();
        let message = wire::f144::F144 { source_name: "nobody", timestamp: START, value: 1.0.into() };
        wire::f144::write(&mut bytes, &message).unwrap();
        bytes
    };
    let mut torn = value(1);
    torn.payload.truncate(20);
    let mut other = value(1);
    other.entry.schema = store::SchemaId(*b"ev44");
    let text = made(b"\x08\0\0\0pl72aaaaaaaaaaaa".to_vec(), START);
    let mut twisted = Vec::new();
    let message = wire::ev44::Ev44 {
        source_name: "bank0",
        message_id: 0,
        reference_time: (&[START]).into(),
        reference_time_index: (&[5_i32]).into(),
        time_of_flight: (&[1_i32]).into(),
        pixel_id: (&[1_i32]).into(),
    };
    wire::ev44::write(&mut twisted, &message).unwrap();
    let aside = give(&mut sink, 2, 10, &[value(0), nobody, torn, other, text]).unwrap();
    let told: Vec<_> = aside.iter().map(|a| (a.sequence, a.reason)).collect();
    assert_eq!(told, [(11, "unmatched"), (12, "broken"), (13, "schema"), (14, "schema")]);
    let aside = give(&mut sink, 0, 0, &[made(twisted, START)]).unwrap();
    assert_eq!(aside[0].reason, "broken");
    // A histogram under another axis.
    let aside = give(&mut sink, 1, 0, &[monitor(0, 1000.0), monitor(1, 999.0), monitor(2, 1000.0)]).unwrap();
    assert_eq!(aside.iter().map(|a| (a.sequence, a.reason)).collect::<Vec<_>>(), [(1, "unfit")]);
    finish(sink);
    assert_eq!(rows(&file, "entry/instrument/monitor/data/signal"), 2);
    assert_eq!(rows(&file, "entry/sample/temperature/value"), 1);
}

#[test]
fn another_file_is_not_overwritten_unless_asked() {
    let file = folder("taken").join("taken.nxs");
    std::fs::write(&file, b"precious").unwrap();
    let Err(fault) = Nexus::begin(job(&file), false) else { panic!("it was overwritten") };
    assert!(fault.what.contains("exists"), "{fault}");
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    finish(Nexus::begin(job(&file), true).unwrap());
    // A file of the same run is replaced without asking.
    finish(Nexus::begin(job(&file), false).unwrap());
    let mut other = job(&file);
    other.run_id = "ffff".into();
    assert!(Nexus::begin(other, false).is_err());
}

/// Killed at 12 moments, with and without rows after the last commit: the file opens, shows the committed rows and no
/// torn ones, and the resumed file has the content of one that was never killed.
#[test]
fn a_killed_writer_is_resumed_to_the_same_content() {
    if let Some((at, file)) = in_child() {
        let at: u64 = at.parse().unwrap();
        let mut sink = Nexus::begin(job(&file), false).unwrap();
        for n in 0..at / 4 {
            second(&mut sink, n, 5_000).unwrap();
        }
        std::fs::write(file.with_extension("state"), sink.flush().unwrap()).unwrap();
        // Rows that no commit speaks of: none, a few, enough for whole chunks, and those flushed.
        if !at.is_multiple_of(4) {
            for n in 0..[0, 1, 9, 9][(at % 4) as usize] {
                second(&mut sink, at / 4 + n, 5_000).unwrap();
            }
        }
        if at % 4 == 3 {
            sink.flush().unwrap();
        }
        kill_self();
    }
    kills("kill", &[0, 1, 2, 3, 5, 12, 13, 14, 15, 30, 31, 33]);
    kills("kill-packed", &[0, 1, 2, 3, 13, 14, 15, 31]);
}

#[test]
#[ignore = "soak"]
fn soak_a_killed_writer_is_resumed_to_the_same_content() {
    kills("kill-soak", &(0..100).collect::<Vec<_>>());
    kills("kill-soak-packed", &(0..100).collect::<Vec<_>>());
}

fn kills(name: &str, moments: &[u64]) {
    let folder = folder(name);
    let whole = folder.join("whole.nxs");
    let mut sink = Nexus::begin(job(&whole), false).unwrap();
    (0..30).for_each(|n| second(&mut sink, n, 5_000).unwrap());
    finish(sink);
    for &at in moments {
        let file = folder.join(format!("killed-{at}.nxs"));
        assert!(!child("a_killed_writer_is_resumed_to_the_same_content", &at.to_string(), &file).success());
        let state = std::fs::read_to_string(file.with_extension("state")).unwrap();
        let committed = at as usize / 4 * 14;
        let shown = rows(&file, "entry/instrument/detector/events/event_time_zero");
        assert!(shown == committed || at % 4 == 3 && shown == committed + 9 * 14, "{shown} of {committed}");
        content(&file);
        let mut sink = Nexus::resume(job(&file), &state).unwrap();
        for n in at / 4..30 {
            second(&mut sink, n, 5_000).unwrap();
        }
        finish(sink);
        assert_eq!(content(&file), content(&whole), "killed at {at}");
    }
    println!("injected {} kills of the writer: 0 rows lost", moments.len());
}

#[test]
fn what_is_not_the_file_of_the_state_is_not_resumed() {
    let folder = folder("other");
    let file = folder.join("a.nxs");
    let mut sink = Nexus::begin(job(&file), false).unwrap();
    second(&mut sink, 0, 100).unwrap();
    let state = sink.flush().unwrap();
    finish(sink);
    let bytes = std::fs::read(&file).unwrap();
    for (name, damaged) in [
        ("empty", Vec::new()),
        ("cut", bytes[..bytes.len() / 2].to_vec()),
        ("noise", (0..bytes.len()).map(|i| (i * 7 % 251) as u8).collect()),
    ] {
        let file = folder.join(format!("{name}.nxs"));
        std::fs::write(&file, damaged).unwrap();
        assert!(Nexus::resume(job(&file), &state).is_err(), "{name}");
        // Recreated, a valid file is there at once.
        let mut sink = Nexus::begin(job(&file), true).unwrap();
        assert!(content_elsewhere(&file).iter().any(|l| l.contains("event_id [0]")));
        second(&mut sink, 0, 100).unwrap();
        finish(sink);
        assert_eq!(content(&file), content(&folder.join("a.nxs")));
    }
    for state in [
        "",
        "{}",
        "[]",
        "null",
        r#"{"version": 1, "template": "x", "modules": []}"#,
        &state.replace("1400", "99999999"),
    ] {
        assert!(Nexus::resume(job(&file), state).is_err(), "{state}");
    }
    let mut other = job(&file);
    other.template =
        beamport_nexus::template::Template::parse(messages::TEMPLATE.replace("made by rule", "x").as_bytes()).unwrap();
    assert!(Nexus::resume(other, &state).is_err());
}

/// A file that may not grow: errors are values, the file stays readable, and when there is room the content is
/// complete.
#[test]
fn no_room_is_an_error_that_heals() {
    if let Some((limit, file)) = in_child() {
        let limit: u64 = limit.parse().unwrap();
        let mut sink = Nexus::begin(job(&file), false).unwrap();
        limit_files(limit);
        let (mut n, mut refused) = (0, 0);
        while n < 30 {
            // As the runner does: a refused batch is offered again.
            let pulses: Vec<_> = (0..14).map(|i| events(n * 14 + i, 5_000)).collect();
            let answer = give(&mut sink, 0, n * 14, &pulses).and_then(|_| {
                n += 1;
                sink.flush().map(|_| ())
            });
            if let Err(fault) = answer {
                assert!(sink.lacks_room() && !sink.is_broken(), "{fault}");
                assert!(fault.what.contains("no space"), "{fault}");
                content_elsewhere(&file);
                refused += 1;
                if refused == 3 {
                    limit_files(libc::RLIM_INFINITY);
                }
            }
        }
        assert!(refused >= 3, "the limit was never met");
        finish(sink);
        return;
    }
    rooms("room", 5);
    rooms("room-packed", 3);
}

#[test]
#[ignore = "soak"]
fn soak_no_room_is_an_error_that_heals() {
    rooms("room-soak", 20);
    rooms("room-soak-packed", 20);
}

fn rooms(name: &str, parts: u64) {
    let folder = folder(name);
    let whole = folder.join("whole.nxs");
    let mut sink = Nexus::begin(job(&whole), false).unwrap();
    for n in 0..30 {
        let pulses: Vec<_> = (0..14).map(|i| events(n * 14 + i, 5_000)).collect();
        give(&mut sink, 0, n * 14, &pulses).unwrap();
        sink.flush().unwrap();
    }
    let size = finish(sink).size;
    for part in 1..=parts {
        let file = folder.join(format!("room-{part}.nxs"));
        // The last fifth is what is written at the end.
        let limit = size * 4 / 5 * part / parts;
        assert!(child("no_room_is_an_error_that_heals", &limit.to_string(), &file).success(), "limit {limit}");
        assert_eq!(content(&file), content(&whole), "limit {limit}");
    }
    println!("injected {parts} full disks: 0 rows lost");
}

/// Rows that came late, on a disk that is full when they are sorted: the file stays what it was, and is sorted when there is
/// room.
#[test]
fn no_room_to_sort_is_an_error_that_heals() {
    let write = |file: &Path| {
        let mut sink = Nexus::begin(job(file), false).unwrap();
        for n in 0..3000 {
            let n = if n % 100 == 99 { n - 90 } else { n };
            give(&mut sink, 0, n, &[events(n, 50)]).unwrap();
            if n == 50 {
                sink.flush().unwrap();
            }
        }
        sink.flush().unwrap();
        sink
    };
    if let Some((limit, file)) = in_child() {
        let mut sink = write(&file);
        let before = content_elsewhere(&file);
        for _ in 0..3 {
            limit_files(limit.parse().unwrap());
            let Err(fault) = sink.finish(ACCOUNT) else { panic!("the limit was never met") };
            assert!(sink.lacks_room() && !sink.is_broken() && fault.what.contains("no space"), "{fault}");
            assert!(sink.flush().is_ok() || sink.lacks_room());
            limit_files(libc::RLIM_INFINITY);
            let beside =
                |ending: &str| file.with_file_name(format!(".{}.{ending}", file.file_name().unwrap().display()));
            assert!(!beside("sorting").exists(), "it holds room and is of no use");
            let seen = content_elsewhere(&file);
            assert!(seen == before || beside("sorted").exists(), "rows moved, and nothing says where to");
        }
        finish(sink);
        return;
    }
    for name in ["sort", "sort-packed"] {
        let folder = folder(name);
        let whole = folder.join("whole.nxs");
        finish(write(&whole));
        for limit in [0, 20_000, 200_000] {
            let file = folder.join(format!("sort-{limit}.nxs"));
            assert!(child("no_room_to_sort_is_an_error_that_heals", &limit.to_string(), &file).success(), "{limit}");
            assert_eq!(content(&file), content(&whole), "limit {limit}");
        }
    }
    println!("injected 6 full disks: 0 rows lost");
}

/// Files of this process may not be longer than so many bytes.
fn limit_files(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: a disposition and a limit of this process.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
    }
}

/// Beams come and go, so chunks become whole now at a flush, now between two; then the writer goes on in a new process.
#[test]
fn a_packed_file_holds_what_a_plain_one_does_and_is_smaller() {
    let write = |file: &Path| {
        let mut sink = Nexus::begin(job(file), false).unwrap();
        for n in 0..160 {
            second(&mut sink, n, [2_000, 900, 10, 0][n as usize / 10 % 4]).unwrap();
            if n % 12 == 0 {
                let state = sink.flush().unwrap();
                if n == 24 {
                    drop(sink);
                    sink = Nexus::resume(job(file), &state).unwrap();
                }
            }
        }
        finish(sink).size
    };
    let (plain, packed) = (folder("plain").join("a.nxs"), folder("small-packed").join("a.nxs"));
    let (raw, small) = (write(&plain), write(&packed));
    assert_eq!(content(&packed), content(&plain));
    let file = hdf5_metno::File::open(&packed).unwrap();
    let id = file.dataset("entry/instrument/detector/events/event_id").unwrap();
    assert_eq!(id.filters().len(), 2, "{:?}", id.filters());
    assert!(id.storage_size() * 2 < id.shape()[0] as u64 * 4, "{}", id.storage_size());
    assert!(small * 3 < raw * 2, "{small} of {raw} bytes");
}

/// Bytes of the event numbers as chunks lie in a file, each with its place: of packed chunks all, of a begun one the rows.
fn lying(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let file = hdf5_metno::File::open(path).unwrap();
    let ids = file.dataset("entry/instrument/detector/events/event_id").unwrap();
    let (bytes, rows) = (std::fs::read(path).unwrap(), ids.shape()[0]);
    let chunks = (0..ids.num_chunks().unwrap()).map(|at| ids.chunk_info(at).unwrap());
    let used = |chunk: &hdf5_metno::dataset::ChunkInfo| match chunk.filter_mask {
        0 => chunk.size as usize,
        _ => ((rows - chunk.offset[0] as usize) * 4).min(chunk.size as usize),
    };
    chunks.map(|chunk| (chunk.addr, bytes[chunk.addr as usize..][..used(&chunk)].to_vec())).collect()
}

#[test]
fn rows_that_a_reader_who_opened_a_packed_file_looks_for_are_still_there_when_it_has_grown() {
    let path = folder("held-packed").join("a.nxs");
    let mut sink = Nexus::begin(job(&path), false).unwrap();
    let mut seen = Vec::new();
    for n in 0..60 {
        second(&mut sink, n, 3_000).unwrap();
        sink.flush().unwrap();
        seen.extend(lying(&path));
    }
    let now = std::fs::read(&path).unwrap();
    for (place, bytes) in seen {
        assert!(now[place as usize..].starts_with(&bytes), "other rows at {place}");
    }
    // For a while the next rows lie before the end that such a reader knows; at last the file ends where it says.
    let end = |now: &[u8]| u64::from_le_bytes(now[28..36].try_into().unwrap());
    let used = now.iter().rposition(|byte| *byte != 0).unwrap() as u64;
    assert!(end(&now) > used + (256 << 10) && end(&now) <= now.len() as u64, "{used} {} {}", end(&now), now.len());
    finish(sink);
    let now = std::fs::read(&path).unwrap();
    assert_eq!(end(&now), now.len() as u64);
}

#[test]
fn arrays_and_types_are_what_the_first_message_says() {
    let folder = folder("types");
    let template = r#"{"children": [{"type": "group", "name": "entry", "attributes": {"NX_class": "NXentry"}, "children": [
        {"type": "group", "name": "log", "children": [{"module": "f144", "config": {"stream": "s", "dtype": "int16"}}]},
        {"type": "group", "name": "data", "children": [{"module": "da00", "config": {"stream": "s", "variables": [{"name": "signal"}]}}]}]}]}"#;
    let mut job = job(&folder.join("types.nxs"));
    job.template = beamport_nexus::template::Template::parse(template.as_bytes()).unwrap();
    job.inputs = vec!["s".into()];
    let mut sink = Nexus::begin(job.clone(), false).unwrap();
    let times = std::cell::Cell::new(START);
    let array = |values: &[i32]| {
        let mut bytes = Vec::new();
        let message = wire::f144::F144 { source_name: "a", timestamp: times.get(), value: values.into() };
        times.set(times.get() + 1);
        wire::f144::write(&mut bytes, &message).unwrap();
        made(bytes, START)
    };
    let all = [
        array(&[1, 2, 3]),
        array(&[1, 2]),
        value(0),
        array(&[4, 5, 70_000]),
        array(&[]),
        array(&[4, 5, 6]),
        monitor(3, 1.0),
    ];
    let aside = give(&mut sink, 0, 0, &all).unwrap();
    assert_eq!(aside.iter().map(|a| a.sequence).collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(aside.iter().all(|a| a.reason == "unfit"));
    let state = sink.flush().unwrap();
    finish(sink);
    let mut sink = Nexus::resume(job.clone(), &state).unwrap();
    give(&mut sink, 0, 7, &[array(&[7, 8, 9]), monitor(4, 1.0)]).unwrap();
    finish(sink);
    let read = hdf5_metno::File::open(&job.file).unwrap();
    assert_eq!(read.dataset("entry/log/value").unwrap().read_raw::<i16>().unwrap(), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(read.dataset("entry/data/signal").unwrap().shape(), [2, 5]);
    let axes = read.group("entry/data").unwrap().attr("axes").unwrap();
    assert_eq!(axes.shape(), [2], "time and tof");
}

#[test]
fn an_alarm_text_is_cut_at_a_letter() {
    let file = folder("alarm").join("alarm.nxs");
    let mut sink = Nexus::begin(job(&file), false).unwrap();
    let mut long = alarm(0);
    let message = "ß".repeat(200);
    let whole = wire::al00::Al00 {
        source_name: "T",
        timestamp: START,
        severity: wire::al00::Severity::Major,
        message: &message,
    };
    wire::al00::write(&mut long.payload, &whole).unwrap();
    give(&mut sink, 2, 0, &[long]).unwrap();
    finish(sink);
    let read = hdf5_metno::File::open(&file).unwrap();
    let texts = read.dataset("entry/sample/temperature/alarm_message").unwrap();
    let texts = texts.read_raw::<hdf5_metno::types::FixedUnicode<256>>().unwrap();
    assert_eq!(texts[0].as_str(), "ß".repeat(128));
}

/// A group: its number, first message, what is missing, and messages that lie in no row.
fn group(number: u64, first: u64, count: u32, missing: &[u32], members: &[u64]) -> messages::Made {
    let time = START + number as i64;
    let (missing, members) = (missing.into(), members.into());
    let mut bytes = Vec::new();
    wire::bpgr::write(&mut bytes, &wire::bpgr::Group { first, count, missing, time, members }).unwrap();
    let mut made = made(bytes, time);
    made.entry.origin_seq = number;
    made
}

#[test]
fn groups_are_rows_with_lists_that_begin_in_them() {
    let template = r#"{"children": [{"type": "group", "name": "entry", "attributes": {"NX_class": "NXentry"}, "children": [
        {"type": "group", "name": "groups", "children": [{"module": "bpgr", "config": {"stream": "groups"}}]}]}]}"#;
    let mut job = job(&folder("groups").join("groups.nxs"));
    job.template = beamport_nexus::template::Template::parse(template.as_bytes()).unwrap();
    job.inputs = vec!["groups".into()];
    let mut sink = Nexus::begin(job.clone(), false).unwrap();
    let all = [group(0, 10, 3, &[], &[]), group(7, 13, 2, &[1, 4], &[]), events(0, 3)];
    let aside = give(&mut sink, 0, 0, &all).unwrap();
    assert_eq!(aside.iter().map(|a| (a.sequence, a.reason)).collect::<Vec<_>>(), [(2, "unmatched")]);
    let state = sink.flush().unwrap();
    // A kill discards messages after the flush; they are delivered again.
    give(&mut sink, 0, 2, &[group(8, 15, 9, &[0], &[15, 17])]).unwrap();
    drop(sink);
    let mut sink = Nexus::resume(job.clone(), &state).unwrap();
    give(&mut sink, 0, 2, &[group(8, 15, 2, &[0], &[15, 17]), group(9, 18, 1, &[], &[])]).unwrap();
    finish(sink);
    let read = hdf5_metno::File::open(&job.file).unwrap();
    let column = |name: &str| read.dataset(&format!("entry/groups/{name}")).unwrap().read_raw::<i64>().unwrap();
    assert_eq!(column("number"), [0, 7, 8, 9]);
    assert_eq!(column("time"), [START, START + 7, START + 8, START + 9]);
    assert_eq!((column("first"), column("count")), (vec![10, 13, 15, 18], vec![3, 2, 2, 1]));
    assert_eq!((column("missing_index"), column("missing")), (vec![0, 0, 2, 3], vec![1, 4, 0]));
    assert_eq!((column("member_index"), column("member")), (vec![0, 0, 0, 2], vec![15, 17]));
}

#[test]
fn groups_that_come_late_take_their_lists_along() {
    let template = r#"{"children": [{"type": "group", "name": "entry", "children": [
        {"type": "group", "name": "groups", "children": [{"module": "bpgr", "config": {"stream": "groups"}}]}]}]}"#;
    let mut job = job(&folder("late-groups").join("groups.nxs"));
    job.template = beamport_nexus::template::Template::parse(template.as_bytes()).unwrap();
    job.inputs = vec!["groups".into()];
    let mut sink = Nexus::begin(job.clone(), false).unwrap();
    let all = [
        group(5, 13, 2, &[1, 4], &[]),
        group(2, 15, 2, &[0], &[15, 17]),
        group(9, 20, 1, &[], &[20]),
        group(3, 18, 1, &[], &[18, 19, 21]),
    ];
    assert!(give(&mut sink, 0, 0, &all).unwrap().is_empty());
    sink.flush().unwrap();
    finish(sink);
    let read = hdf5_metno::File::open(&job.file).unwrap();
    let column = |name: &str| read.dataset(&format!("entry/groups/{name}")).unwrap().read_raw::<i64>().unwrap();
    assert_eq!(column("number"), [2, 3, 5, 9]);
    assert_eq!(column("first"), [15, 18, 13, 20]);
    assert_eq!((column("missing_index"), column("missing")), (vec![0, 1, 1, 3], vec![0, 1, 4]));
    assert_eq!((column("member_index"), column("member")), (vec![0, 2, 5, 5], vec![15, 17, 18, 19, 21, 20]));
}
