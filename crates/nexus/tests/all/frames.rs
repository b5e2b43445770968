//! Frames in NeXus files and in files of so many frames; read again with another binding.

use crate::messages::{Made, START, give, made, value};
use beamport_nexus::files::{Plan, SUMS};
use beamport_nexus::template::Template;
use beamport_nexus::{Files, Job, Nexus};
use flow::job::Compression;
use flow::{Aside, Fault, Product, Sink};
use hdf5_metno::File;
use hdf5_metno::types::FixedUnicode;
use std::path::{Path, PathBuf};
use store::Message;
use wire::ad00::{Ad00, Attribute};
use wire::{Array, Numbers};

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("frames-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn attribute<'a>(name: &'a str, data: Numbers<'a>) -> Attribute<'a> {
    Attribute { name, description: Some("what it is"), source: None, data }
}

fn frame_of(n: u64, shape: &[i64], data: Numbers<'_>, attributes: &[Attribute<'_>]) -> Made {
    let time = START + n as i64 * 1_000_000;
    let mut bytes = Vec::new();
    let dimensions = Array::from(shape);
    let frame =
        Ad00 { source_name: "camera", id: n as i32, timestamp: time, dimensions, data, attributes: attributes.into() };
    wire::ad00::write(&mut bytes, &frame).unwrap();
    let mut made = made(bytes, time);
    made.entry.arrival_time = time + 500;
    made
}

fn pixels(n: u64, count: i64) -> Vec<u16> {
    (0..count).map(|i| (n as u16).wrapping_mul(1000).wrapping_add(i as u16)).collect()
}

/// Frame `n`: 20 x 30 pixels by rule.
fn frame(n: u64) -> Made {
    let exposure = [n as f64 / 10.0];
    let attributes = [attribute("exposure", (&exposure).into()), attribute("mode", Numbers::text("mono"))];
    frame_of(n, &[20, 30], (&pixels(n, 600)).into(), &attributes)
}

/// A frame of another shape.
fn wide(n: u64) -> Made {
    frame_of(n, &[4, 5], (&pixels(n, 20)).into(), &[])
}

fn job(file: &Path) -> Job {
    let text = r#"{"children": [{"type": "group", "name": "entry", "attributes": {"NX_class": "NXentry"}, "children": [
        {"type": "group", "name": "data", "children": [{"module": "ad00", "config": {"stream": "camera"}}]}]}]}"#;
    let Plan { run, run_id, start, metadata, .. } = plan(Path::new(""), 1);
    let template = Template::parse(text.as_bytes()).unwrap();
    Job { file: file.to_path_buf(), template, inputs: vec!["camera".into()], run, run_id, start, metadata }
}

fn plan(folder: &Path, frames: u64) -> Plan {
    Plan {
        folder: folder.to_path_buf(),
        name: "{stream}_{number}.h5".into(),
        frames,
        compression: Compression::None,
        inputs: vec!["camera".into()],
        run: "first".into(),
        run_id: "00112233445566778899aabbccddeeff".into(),
        start: START,
        metadata: "{}".into(),
    }
}

/// The same, with chunks that every HDF5 unpacks.
fn packed(folder: &Path, frames: u64) -> Plan {
    Plan { compression: Compression::Deflate, ..plan(folder, frames) }
}

/// Where a dataset of the frames stands, or one of their attributes.
fn place(name: &str) -> String {
    name.strip_prefix("metadata/").map_or(format!("entry/data/{name}"), |name| format!("entry/data_metadata/{name}"))
}

fn numbers<T: hdf5_metno::H5Type>(file: &Path, path: &str) -> Vec<T> {
    File::open(file).unwrap().dataset(&place(path)).unwrap().read_raw().unwrap()
}

fn texts(file: &Path, path: &str) -> Vec<String> {
    numbers::<FixedUnicode<256>>(file, path).iter().map(|text| text.as_str().to_owned()).collect()
}

fn shape(file: &Path, path: &str) -> Vec<usize> {
    File::open(file).unwrap().dataset(&place(path)).unwrap().shape()
}

fn has(file: &Path, path: &str) -> bool {
    File::open(file).unwrap().dataset(&place(path)).is_ok()
}

fn hand(sink: &mut dyn Sink, first: u64, all: &[Made]) -> Result<Vec<Aside>, Fault> {
    let message = |(m, sequence)| -> Message<'_> {
        let Made { entry, payload }: &Made = m;
        Message { sequence, entry, payload }
    };
    let messages: Vec<Message<'_>> = all.iter().zip(first..).map(message).collect();
    let mut aside = Vec::new();
    sink.write(0, &messages, &mut aside)?;
    Ok(aside)
}

/// Frames `first` to `next`, as messages of these numbers.
fn run_of(first: u64, next: u64) -> Vec<Made> {
    (first..next).map(frame).collect()
}

fn names(folder: &Path) -> Vec<String> {
    let mut all: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    all.sort();
    all
}

/// The numbers of the frames in each file, after the list of hashes was checked against them.
fn ids(folder: &Path, product: &Product) -> Vec<Vec<i32>> {
    let list = std::fs::read_to_string(folder.join(SUMS)).unwrap();
    let mut listed = Vec::new();
    let mut out = Vec::new();
    let mut bytes = 0;
    for line in list.lines() {
        let (sum, name) = line.split_once("  ").unwrap();
        let content = std::fs::read(folder.join(name)).unwrap();
        bytes += content.len() as u64;
        let whole = blake3::hash(&content).to_hex();
        assert_eq!(sum, whole.as_str(), "{name}");
        listed.push(name.to_owned());
        let file = folder.join(name);
        let ids: Vec<i32> = numbers(&file, "id");
        let data: Vec<u16> = if ids.is_empty() { Vec::new() } else { numbers(&file, "data") };
        let each = data.len().checked_div(ids.len()).unwrap_or(1);
        for (id, row) in ids.iter().zip(data.chunks(each.max(1))) {
            assert_eq!(row, pixels(*id as u64, each as i64), "pixels of frame {id}");
        }
        out.push(ids);
    }
    listed.push(SUMS.into());
    listed.sort();
    assert_eq!(names(folder), listed, "files that are not in the list");
    assert_eq!((product.files, product.bytes), (out.len() as u64, bytes));
    out
}

fn finished(mut sink: Files) -> Product {
    sink.set_stop(START + 1_000_000_000);
    sink.finish(r#"{"closed": true, "lost": 0}"#).unwrap()
}

#[test]
fn frames_stand_in_a_file_as_they_came() {
    let file = folder("plain").join("a.nxs");
    let mut sink = Nexus::begin(job(&file), false).unwrap();
    assert!(give(&mut sink, 0, 0, &run_of(0, 7)).unwrap().is_empty());
    sink.flush().unwrap();
    assert!(give(&mut sink, 0, 7, &run_of(7, 10)).unwrap().is_empty());
    sink.finish("{}").unwrap();
    assert_eq!(shape(&file, "data"), [10, 20, 30]);
    let all: Vec<u16> = (0..10).flat_map(|n| pixels(n, 600)).collect();
    assert_eq!(numbers::<u16>(&file, "data"), all);
    assert_eq!(numbers::<i32>(&file, "id"), (0..10).collect::<Vec<i32>>());
    let times: Vec<i64> = (0..10).map(|n| START + n * 1_000_000).collect();
    assert_eq!(numbers::<i64>(&file, "time"), times);
    assert_eq!(numbers::<i64>(&file, "arrival_time"), times.iter().map(|t| t + 500).collect::<Vec<_>>());
    assert_eq!(numbers::<f64>(&file, "metadata/exposure"), (0..10).map(|n| f64::from(n) / 10.0).collect::<Vec<_>>());
    assert_eq!(texts(&file, "metadata/mode"), vec!["mono"; 10]);
    assert_eq!(texts(&file, "source"), vec!["camera"; 10]);
    let chunk = File::open(&file).unwrap().dataset("entry/data/data").unwrap().chunk();
    assert_eq!(chunk, Some(vec![3, 20, 30]), "frames of 1200 bytes share a page");
}

#[test]
fn a_frame_of_a_page_and_more_is_a_chunk() {
    let file = folder("chunk").join("a.nxs");
    let mut sink = Nexus::begin(job(&file), false).unwrap();
    let all: Vec<Made> = (0..20).map(|n| frame_of(n, &[50, 41], (&pixels(n, 2050)).into(), &[])).collect();
    assert!(give(&mut sink, 0, 0, &all).unwrap().is_empty());
    sink.finish("{}").unwrap();
    let chunk = File::open(&file).unwrap().dataset("entry/data/data").unwrap().chunk();
    assert_eq!(chunk, Some(vec![1, 50, 41]));
    assert_eq!(numbers::<u16>(&file, "data"), (0..20).flat_map(|n| pixels(n, 2050)).collect::<Vec<_>>());
}

#[test]
fn attributes_may_come_late_stay_away_and_change_their_type() {
    let file = folder("late").join("a.nxs");
    let mut sink = Nexus::begin(job(&file), false).unwrap();
    let (one, real, three) = ([7_i32], [0.5_f64], [1_u8, 2, 3]);
    let sets: [&[Attribute<'_>]; 6] = [
        &[attribute("gain", (&one).into())],
        &[],
        &[attribute("gain", (&real).into()), attribute("a/b", (&three).into())],
        &[attribute("gain", (&one).into()), attribute("gain", (&one).into())],
        &[attribute("note", Numbers::text("größer")), attribute("..", (&real).into())],
        &[attribute("empty", Numbers::empty(wire::DType::Float64))],
    ];
    for (n, set) in (0_u64..).zip(sets) {
        assert!(give(&mut sink, 0, n, &[frame_of(n, &[2], (&pixels(n, 2)).into(), set)]).unwrap().is_empty());
        // Some are in the file already when the next attribute comes, and some are not.
        if n % 2 == 1 {
            sink.flush().unwrap();
        }
    }
    sink.finish("{}").unwrap();
    assert_eq!(numbers::<i32>(&file, "metadata/gain"), [7, 0, 0, 7, 0, 0]);
    assert_eq!(numbers::<u8>(&file, "metadata/gain_missing"), [0, 1, 1, 0, 1, 1]);
    let gain: Vec<f64> = numbers(&file, "metadata/gain_2");
    assert!(gain[2] == 0.5 && gain.iter().filter(|v| v.is_nan()).count() == 5, "{gain:?}");
    assert_eq!(numbers::<i32>(&file, "metadata/gain_3"), [0, 0, 0, 7, 0, 0]);
    assert_eq!(shape(&file, "metadata/a_b"), [6, 3]);
    assert_eq!(numbers::<u8>(&file, "metadata/a_b_missing"), [1, 1, 0, 1, 1, 1]);
    assert_eq!(texts(&file, "metadata/note"), ["", "", "", "", "größer", ""]);
    assert_eq!(numbers::<f64>(&file, "metadata/_").iter().filter(|v| v.is_nan()).count(), 5);
    assert!(!has(&file, "metadata/empty"));
}

#[test]
fn attributes_that_came_late_are_resumed() {
    let file = folder("resumed").join("a.nxs");
    let mut sink = Nexus::begin(job(&file), false).unwrap();
    let one = [7_i32];
    let of = |n: u64| {
        let set = [attribute("gain", (&one).into()), attribute("note", Numbers::text("x"))];
        frame_of(n, &[2], (&pixels(n, 2)).into(), &set[..(n as usize / 3).min(2)])
    };
    let mut state = String::new();
    for n in 0..9 {
        give(&mut sink, 0, n, &[of(n)]).unwrap();
        if n == 4 {
            state = sink.flush().unwrap();
        }
    }
    sink.flush().unwrap();
    drop(sink);
    let mut sink = Nexus::resume(job(&file), &state).unwrap();
    (5..9).for_each(|n| assert!(give(&mut sink, 0, n, &[of(n)]).unwrap().is_empty()));
    sink.finish("{}").unwrap();
    assert_eq!(numbers::<i32>(&file, "id"), (0..9).collect::<Vec<i32>>());
    assert_eq!(numbers::<u8>(&file, "metadata/gain_missing"), [1, 1, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(texts(&file, "metadata/note"), ["", "", "", "", "", "", "x", "x", "x"]);
}

#[test]
fn what_is_no_frame_of_the_file_goes_aside() {
    let file = folder("aside").join("a.nxs");
    let mut sink = Nexus::begin(job(&file), false).unwrap();
    let mut torn = frame(2);
    torn.payload.truncate(100);
    let none: [u16; 0] = [];
    let empty = frame_of(4, &[0, 5], (&none).into(), &[]);
    let text = frame_of(5, &[3], Numbers::text("abc"), &[]);
    let aside = give(&mut sink, 0, 0, &[frame(0), wide(1), torn, value(3), empty, text, frame(6)]).unwrap();
    let told: Vec<(u64, &str)> = aside.iter().map(|a| (a.sequence, a.reason)).collect();
    assert_eq!(told, [(1, "unfit"), (2, "broken"), (3, "unmatched"), (4, "unfit"), (5, "unfit")]);
    sink.finish("{}").unwrap();
    assert_eq!(numbers::<i32>(&file, "id"), [0, 6]);
}

#[test]
fn a_file_takes_so_many_frames_and_the_next_begins_with_the_next() {
    for (frames, files) in [(4, vec![4]), (5, vec![4, 1]), (8, vec![4, 4]), (9, vec![4, 4, 1]), (0, vec![0])] {
        let folder = folder(&format!("roll-{frames}"));
        let mut sink = Files::begin(plan(&folder, 4), false).unwrap();
        assert!(hand(&mut sink, 0, &run_of(0, frames)).unwrap().is_empty());
        let product = finished(sink);
        let ids = ids(&folder, &product);
        assert_eq!(ids.iter().map(Vec::len).collect::<Vec<_>>(), files);
        assert_eq!(ids.concat(), (0..frames as i32).collect::<Vec<_>>());
        let account = |n: usize| {
            let file = File::open(folder.join(format!("camera_{n:06}.h5"))).unwrap();
            file.dataset("entry/beamport/account").is_ok() && file.dataset("entry/end_time").is_ok()
        };
        let with: Vec<usize> = (1..=files.len()).filter(|n| account(*n)).collect();
        assert_eq!(with, [files.len()], "the last file has the account");
    }
}

#[test]
fn packed_files_hold_the_frames_and_their_attributes() {
    let folder = folder("packed");
    let mut sink = Files::begin(packed(&folder, 40), false).unwrap();
    let frame = |n: u64| {
        let exposure = [n as f64 / 10.0];
        let attributes = [attribute("exposure", (&exposure).into()), attribute("mode", Numbers::text("mono"))];
        frame_of(n, &[50, 41], (&pixels(n, 2050)).into(), &attributes)
    };
    let all: Vec<Made> = (0..50).map(frame).collect();
    assert!(hand(&mut sink, 0, &all[..7]).unwrap().is_empty());
    sink.flush().unwrap();
    assert!(hand(&mut sink, 7, &all[7..]).unwrap().is_empty());
    let product = finished(sink);
    assert_eq!(ids(&folder, &product), [(0..40).collect::<Vec<_>>(), (40..50).collect()]);
    let file = folder.join("camera_000001.h5");
    let names = ["data", "id", "time", "arrival_time", "source", "metadata/exposure", "metadata/mode"];
    for name in names {
        let filters = File::open(&file).unwrap().dataset(&place(name)).unwrap().filters();
        assert_eq!(filters.len(), 2, "{name}: {filters:?}");
    }
    assert_eq!(numbers::<u16>(&file, "data"), (0..40).flat_map(|n| pixels(n, 2050)).collect::<Vec<_>>());
    assert_eq!(numbers::<f64>(&file, "metadata/exposure"), (0..40).map(|n| f64::from(n) / 10.0).collect::<Vec<_>>());
    assert_eq!(texts(&file, "metadata/mode"), vec!["mono"; 40]);
    let stored = File::open(&file).unwrap().dataset("entry/data/data").unwrap().storage_size();
    assert!(stored < 40 * 4100 * 3 / 4, "{stored} bytes of {}", 40 * 4100);
}

#[test]
fn files_that_began_with_another_compression_are_not_gone_on_with() {
    let folder = folder("other-compression");
    let mut sink = Files::begin(plan(&folder, 4), false).unwrap();
    hand(&mut sink, 0, &run_of(0, 2)).unwrap();
    let state = sink.flush().unwrap();
    drop(sink);
    let fault = Files::resume(packed(&folder, 4), &state).err().unwrap();
    assert!(fault.to_string().contains("the template is not the one it began with"), "{fault}");
}

#[test]
fn a_frame_of_another_shape_or_type_begins_a_file() {
    let folder = folder("shapes");
    let mut sink = Files::begin(plan(&folder, 100), false).unwrap();
    let bytes = [9_u8; 20];
    let narrow = frame_of(5, &[4, 5], (&bytes).into(), &[]);
    let aside = hand(&mut sink, 0, &[frame(0), frame(1), value(2), wide(3), wide(4), narrow]).unwrap();
    assert_eq!(aside, [Aside { sequence: 2, reason: "unmatched" }]);
    let product = finished(sink);
    assert_eq!(product.files, 3);
    let file = |n: usize| folder.join(format!("camera_{n:06}.h5"));
    assert_eq!(numbers::<i32>(&file(1), "id"), [0, 1]);
    assert_eq!((numbers::<i32>(&file(2), "id"), shape(&file(2), "data")), (vec![3, 4], vec![2, 4, 5]));
    assert_eq!(numbers::<u8>(&file(3), "data"), bytes);
}

#[test]
fn a_writer_that_starts_again_sets_back_what_no_commit_says() {
    // Committed within a file, at its last frame, and behind it; later files then are complete, begun, or missing.
    each_set_back(|folder| plan(folder, 4), "again");
}

#[test]
fn a_writer_that_starts_again_sets_back_packed_files_alike() {
    each_set_back(|folder| packed(folder, 4), "again-packed");
}

fn each_set_back(plan: impl Fn(&Path) -> Plan, name: &str) {
    for committed in [0, 2, 4, 5, 8, 9] {
        for then in [committed, committed + 1, committed + 3, committed + 9] {
            let folder = folder(&format!("{name}-{committed}-{then}"));
            let mut sink = Files::begin(plan(&folder), false).unwrap();
            hand(&mut sink, 0, &run_of(0, committed)).unwrap();
            let state = sink.flush().unwrap();
            hand(&mut sink, committed, &run_of(committed, then)).unwrap();
            sink.flush().unwrap();
            drop(sink);
            let mut sink = Files::resume(plan(&folder), &state).unwrap();
            let shown: usize = names(&folder)
                .iter()
                .filter(|name| name.ends_with(".h5"))
                .map(|name| numbers::<i32>(&folder.join(name), "id").len())
                .sum();
            assert_eq!(shown as u64, committed);
            assert!(hand(&mut sink, committed, &run_of(committed, 10)).unwrap().is_empty());
            let product = finished(sink);
            assert_eq!(ids(&folder, &product), [vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9]]);
        }
    }
}

#[test]
fn a_writer_killed_while_it_set_a_file_back_left_frames_behind_a_gap() {
    let folder = folder("gap");
    let mut sink = Files::begin(plan(&folder, 4), false).unwrap();
    hand(&mut sink, 0, &run_of(0, 2)).unwrap();
    let state = sink.flush().unwrap();
    hand(&mut sink, 2, &run_of(2, 6)).unwrap();
    sink.flush().unwrap();
    drop(sink);
    assert!(folder.join("camera_000002.h5").exists());
    // It comes no further than to the file that it would set back.
    std::fs::write(folder.join("camera_000001.h5"), b"damaged").unwrap();
    assert!(Files::resume(plan(&folder, 4), &state).is_err());
    assert!(!folder.join("camera_000002.h5").exists());
}

#[test]
fn a_writer_that_is_ended_while_it_ends_finishes() {
    let folder = folder("ended");
    let mut sink = Files::begin(plan(&folder, 4), false).unwrap();
    hand(&mut sink, 0, &run_of(0, 6)).unwrap();
    let state = sink.flush().unwrap();
    finished(sink);
    let sink = Files::resume(plan(&folder, 4), &state).unwrap();
    let product = finished(sink);
    assert_eq!(ids(&folder, &product), [vec![0, 1, 2, 3], vec![4, 5]]);
}

#[test]
fn files_of_others_are_not_replaced() {
    let folder = folder("others");
    std::fs::write(folder.join("camera_000002.h5"), "mine").unwrap();
    let mut sink = Files::begin(plan(&folder, 4), false).unwrap();
    let fault = hand(&mut sink, 0, &run_of(0, 5)).unwrap_err();
    assert!(sink.is_refused() && !sink.lacks_room() && fault.what.ends_with("camera_000002.h5 exists"), "{fault}");
    assert_eq!(std::fs::read(folder.join("camera_000002.h5")).unwrap(), b"mine");
    // Frames that were accepted are not written again when it is gone.
    std::fs::remove_file(folder.join("camera_000002.h5")).unwrap();
    assert!(hand(&mut sink, 0, &run_of(0, 5)).unwrap().is_empty());
    let product = finished(sink);
    assert_eq!(ids(&folder, &product), [vec![0, 1, 2, 3], vec![4]]);

    let folder = self::folder("sums");
    std::fs::write(folder.join(SUMS), "mine").unwrap();
    let fault = Files::begin(plan(&folder, 4), false).map(|_| ()).unwrap_err();
    assert!(fault.what.ends_with("B3SUMS exists"), "{fault}");
}

#[test]
fn a_link_in_place_of_the_folder_led_files_out_of_it() {
    let (folder, elsewhere) = (folder("link"), folder("elsewhere"));
    let link = folder.join("lab_first_images");
    let refused = |replace| Files::begin(plan(&link, 4), replace).map(|_| ()).unwrap_err();
    for target in [elsewhere.as_path(), Path::new("nowhere")] {
        std::os::unix::fs::symlink(target, &link).unwrap();
        let fault = refused(false);
        assert!(fault.what.ends_with("lab_first_images exists") && fault.cause == "it is a link", "{fault}");
        refused(true);
        std::fs::remove_file(&link).unwrap();
    }
    std::fs::write(&link, "mine").unwrap();
    assert_eq!(refused(false).cause, "it is not a folder");
    std::fs::remove_file(&link).unwrap();
    // One that comes while the files are written, and one that stands there when a writer goes on.
    let mut sink = Files::begin(plan(&link, 4), false).unwrap();
    hand(&mut sink, 0, &run_of(0, 2)).unwrap();
    let state = sink.flush().unwrap();
    std::fs::rename(&link, folder.join("moved")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
    hand(&mut sink, 2, &run_of(2, 5)).unwrap_err();
    assert!(sink.is_refused());
    assert!(Files::resume(plan(&link, 4), &state).is_err());
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
}

#[test]
fn streams_have_files_of_their_own() {
    let folder = folder("streams");
    let mut plan = plan(&folder, 2);
    plan.inputs = vec!["left".into(), "right".into()];
    let mut sink = Files::begin(plan.clone(), false).unwrap();
    let mut all = run_of(0, 3);
    hand(&mut sink, 0, &all).unwrap();
    let state = sink.flush().unwrap();
    drop(sink);
    let mut sink = Files::resume(plan, &state).unwrap();
    all.truncate(1);
    let Made { entry, payload } = &all[0];
    sink.write(1, &[Message { sequence: 40, entry, payload }], &mut Vec::new()).unwrap();
    let product = finished(sink);
    assert_eq!(names(&folder), ["B3SUMS", "left_000001.h5", "left_000002.h5", "right_000001.h5"]);
    assert_eq!(ids(&folder, &product).concat().len(), 4);
}

/// Frames of a file of frames stay as they came: a late one may be of the file before.
#[test]
fn frames_that_come_late_stand_in_the_order_of_their_times_with_what_is_beside_them() {
    let folder = folder("late");
    let order = [0, 1, 4, 2, 5, 3, 9, 6, 7, 8, 10, 11];
    for compression in ["", r#""compression": "deflate", "#] {
        let mut job = job(&folder.join(format!("late-{}.nxs", compression.len())));
        let text = r#"{"children": [{"type": "group", "name": "entry", "children": [{"type": "group", "name": "data",
            "children": [{"module": "ad00", "config": {COMPRESSION"stream": "camera"}}]}]}]}"#;
        job.template = Template::parse(text.replace("COMPRESSION", compression).as_bytes()).unwrap();
        let file = job.file.clone();
        let mut sink = Nexus::begin(job, false).unwrap();
        let of = |n: u64| {
            let gain = [n as i32];
            let attributes = [attribute("gain", (&gain).into())];
            // The fifth frame has no attribute, so that a column comes late.
            frame_of(n, &[40, 90], (&pixels(n, 3600)).into(), if n == 5 { &[] } else { &attributes })
        };
        for (at, n) in order.into_iter().enumerate() {
            assert!(give(&mut sink, 0, at as u64, &[of(n)]).unwrap().is_empty());
            if at % 5 == 2 {
                sink.flush().unwrap();
            }
        }
        sink.flush().unwrap();
        sink.finish("{}").unwrap();
        assert_eq!(numbers::<i32>(&file, "id"), (0..12).collect::<Vec<_>>());
        assert!(numbers::<i64>(&file, "time").is_sorted() && numbers::<i64>(&file, "arrival_time").is_sorted());
        let whole: Vec<u16> = (0..12).flat_map(|n| pixels(n, 3600)).collect();
        assert!(numbers::<u16>(&file, "data") == whole, "a frame stands beside another's id");
        assert_eq!(numbers::<i32>(&file, "metadata/gain"), [0, 1, 2, 3, 4, 0, 6, 7, 8, 9, 10, 11]);
        assert_eq!(numbers::<u8>(&file, "metadata/gain_missing"), [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    }
    let plan = plan(&folder, 100);
    let mut sink = Files::begin(plan, false).unwrap();
    let all: Vec<Made> = order.into_iter().map(frame).collect();
    hand(&mut sink, 0, &all).unwrap();
    sink.flush().unwrap();
    sink.finish("{}").unwrap();
    assert_eq!(numbers::<i32>(&folder.join("camera_000001.h5"), "id"), order.map(|n| n as i32));
}
