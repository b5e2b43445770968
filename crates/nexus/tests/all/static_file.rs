//! A template and a static file: what becomes one tree, and what is refused.

use crate::messages;
use crate::messages::{START, job, second};
use beamport_nexus::Nexus;
use beamport_nexus::template::{Layout, Mistake, Template};
use flow::Sink;
use std::path::{Path, PathBuf};

struct Made(PathBuf);

impl Drop for Made {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A folder with a static file.
fn made(name: &str, fill: impl FnOnce(&hdf5_metno::File)) -> Made {
    let folder = std::env::temp_dir().join(format!("beamport-static-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let file = hdf5_metno::File::create(folder.join("static.hdf")).unwrap();
    fill(&file);
    file.close().unwrap();
    Made(folder)
}

fn text(group: &hdf5_metno::Group, name: &str, value: &str) {
    let value: hdf5_metno::types::VarLenUnicode = value.parse().unwrap();
    group.new_attr::<hdf5_metno::types::VarLenUnicode>().create(name).unwrap().write_scalar(&value).unwrap();
}

fn number(group: &hdf5_metno::Group, name: &str, value: i32) {
    group.new_dataset::<i32>().create(name).unwrap().write_scalar(&value).unwrap();
}

fn open(folder: &Path, children: &str) -> Result<Template, Vec<Mistake>> {
    let path = folder.join("template.json");
    std::fs::write(&path, format!(r#"{{"template_version": 3, "children": {children}}}"#)).unwrap();
    Template::open(&path, Some(&folder.join("static.hdf")), &[], Layout::Nexus)
}

fn written(folder: &Path, template: Template) -> hdf5_metno::File {
    let mut job = job(&folder.join("run.nxs"));
    job.template = template;
    let mut sink = Nexus::begin(job.clone(), true).unwrap();
    sink.set_stop(START);
    sink.finish("{}").unwrap();
    hdf5_metno::File::open(&job.file).unwrap()
}

#[test]
fn one_tree_comes_of_both() {
    let made = made("tree", |file| {
        text(file, "template_version", "3");
        let entry = file.create_group("from_static").unwrap();
        text(&entry, "NX_class", "NXentry");
        number(&entry.create_group("inner").unwrap(), "number", 5);
        file.link_hard("from_static/inner", "same").unwrap();
        // A group in itself is nothing that can be shown.
        file.link_soft("/from_static/inner/number", "from_static/soft").unwrap();
        file.link_soft("nowhere", "from_static/dangling").unwrap();
    });
    let children = r#"[{"type": "group", "name": "from_static", "attributes": {"of_template": 1}, "children": [
        {"type": "group", "name": "inner", "children": [
            {"module": "dataset", "config": {"name": "more", "values": 6}},
            {"module": "link", "config": {"name": "through", "source": "../soft"}}]}]}]"#;
    let template = open(&made.0, children).unwrap();
    assert_eq!(template.entry(), "/from_static");
    assert!(template.digest.contains(" static "));
    let file = written(&made.0, template);
    let read = |path: &str| file.dataset(path).unwrap().read_scalar::<i32>().unwrap();
    let found = ["from_static/inner/number", "from_static/soft", "from_static/inner/through"].map(read);
    assert_eq!((found, read("same/more")), ([5, 5, 5], 6));
    let version = file.attr("template_version").unwrap();
    assert_eq!(version.read_scalar::<hdf5_metno::types::VarLenUnicode>().unwrap().as_str(), "3");
    assert!(file.dataset("from_static/beamport/run_id").is_ok());
    assert!(file.group("from_static").unwrap().link_exists("dangling"));
}

#[test]
fn what_stands_in_both_is_told_with_its_place_in_the_template() {
    let made = made("clash", |file| {
        let entry = file.create_group("entry").unwrap();
        number(&entry, "title", 1);
        number(&entry.create_group("log").unwrap(), "value", 1);
        entry.link_soft("log", "soft").unwrap();
        text(file, "template_version", "2");
    });
    let children = r#"[{"type": "group", "name": "entry", "children": [
        {"module": "dataset", "config": {"name": "title", "values": 6}},
        {"type": "group", "name": "log", "children": [{"module": "f144", "config": {"stream": "devices", "source": "T"}}]},
        {"module": "link", "config": {"name": "log", "source": "title"}},
        {"type": "group", "name": "soft", "children": []},
        {"module": "link", "config": {"name": "lost", "source": "none"}}]}]"#;
    let told: Vec<String> = open(&made.0, children).unwrap_err().iter().map(Mistake::told).collect();
    for part in [
        "/template_version: the static file is of version `2`, this is `3`",
        "/children/0/children/0: the static file has a dataset `/entry/title` already",
        "/children/0/children/1/children/0/config: the static file has a dataset `/entry/log/value` already",
        "/children/0/children/2: the static file has a group `/entry/log` already",
        "/children/0/children/3: the static file has a link `/entry/soft` already",
        "/children/0/children/4/config/source: there is no `/entry/none`",
    ] {
        assert!(told.iter().any(|told| told == part), "{part} is not in {told:#?}");
    }
}

#[test]
fn a_link_through_a_dangling_one_of_the_static_file_was_made() {
    let made = made("dangling", |file| {
        let entry = file.create_group("entry").unwrap();
        entry.link_soft("none", "soft").unwrap();
        entry.link_soft("/entry", "self").unwrap();
        number(&entry, "x", 1);
    });
    let children = r#"[{"type": "group", "name": "entry", "children": [
        {"module": "link", "config": {"name": "first", "source": "soft"}},
        {"module": "link", "config": {"name": "second", "source": "first"}},
        {"module": "link", "config": {"name": "third", "source": "fourth/soft"}},
        {"module": "link", "config": {"name": "fourth", "source": "self/group"}},
        {"type": "group", "name": "group", "children": [{"module": "link", "config": {"name": "soft", "source": "../x"}}]},
        {"type": "group", "name": "fifth", "attributes": {"depends_on": "soft"}, "children": []}]}]"#;
    let told: Vec<String> = open(&made.0, children).unwrap_err().iter().map(Mistake::told).collect();
    assert_eq!(
        told,
        [
            "/children/0/children/0/config/source: `/entry/soft` is a broken link",
            "/children/0/children/5/attributes: `depends_on` names `soft`, and there is no `/entry/soft`",
        ]
    );
}

#[test]
fn a_static_file_that_was_refused_hid_what_else_is_wrong() {
    let made = made("refused", |file| {
        file.create_group("entry/beamport").unwrap();
    });
    let children = r#"[{"type": "group", "name": "entry", "children": [
        {"module": "dataset", "config": {"name": "title", "values": "x", "dtype": "tring"}},
        {"module": "dataset", "config": {"name": "number", "values": 1}},
        {"module": "link", "config": {"name": "known", "source": "number/x"}},
        {"module": "link", "config": {"name": "perhaps", "source": "geometry"}}]}]"#;
    let told = open(&made.0, children).unwrap_err();
    assert!(told.iter().all(|mistake| !mistake.hint.is_empty()), "{told:#?}");
    let pointers: Vec<&str> = told.iter().map(|mistake| mistake.pointer.as_str()).collect();
    let expected = ["", "/children/0/children/0/config/dtype", "/children/0/children/2/config/source"];
    assert_eq!(pointers, expected, "{told:#?}");
}

#[test]
fn a_group_in_itself_was_followed_for_ever() {
    let made = made("circle", |file| {
        let inner = file.create_group("entry/inner").unwrap();
        drop(inner);
        file.link_hard("entry", "entry/inner/again").unwrap();
    });
    let told = open(&made.0, "[]").unwrap_err();
    assert_eq!((told.len(), told[0].pointer.as_str()), (1, ""), "{told:?}");
    for part in ["static.hdf", "`/entry/inner/again`", "`/entry`", "contain itself"] {
        assert!(told[0].cause.contains(part), "{told:?}");
    }
}

#[test]
fn a_link_of_the_static_file_that_closes_a_circle_was_told_at_a_place_that_is_not_in_the_template() {
    let made = made("circle-of-both", |file| {
        file.create_group("a").unwrap();
        file.create_group("b").unwrap();
        file.link_hard("a", "b/to_a").unwrap();
        file.link_hard("b", "c").unwrap();
    });
    let children = r#"[{"type": "group", "name": "a", "children": [
        {"module": "link", "config": {"name": "to_b", "source": "/b"}}]}]"#;
    let told = open(&made.0, children).unwrap_err();
    assert!(told[0].cause.contains("contain itself"), "{told:?}");
    let is_told = match told[0].pointer.as_str() {
        "" => told[0].cause.contains("the link `/b/to_a` of the static file"),
        pointer => pointer == "/children/0/children/0/config/source",
    };
    assert!(is_told, "{told:?}");
}

/// The report of `beamport-nexus check` on a static file, and its exit status.
fn checked(folder: &Path) -> (String, Option<i32>) {
    std::fs::write(folder.join("template.json"), r#"{"children": []}"#).unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_beamport-nexus"));
    command.arg("check").arg(folder.join("template.json")).arg("--static").arg(folder.join("static.hdf"));
    let output = command.output().unwrap();
    (String::from_utf8(output.stderr).unwrap(), output.status.code())
}

/// Changes the file's own bytes.
fn damage(folder: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let path = folder.join("static.hdf");
    let mut bytes = std::fs::read(&path).unwrap();
    change(&mut bytes);
    std::fs::write(&path, bytes).unwrap();
}

/// Where the texts of a file are kept.
fn heap(bytes: &[u8]) -> usize {
    bytes.windows(4).position(|four| four == b"GCOL").unwrap()
}

#[test]
fn a_static_file_that_sends_libhdf5_round_in_circles_was_told_by_nobody() {
    let made = made("spin", |file| text(&file.create_group("entry").unwrap(), "NX_class", "NXentry"));
    assert_eq!(checked(&made.0), (String::new(), Some(0)));
    damage(&made.0, |bytes| {
        // Behind the texts comes what is free, number 0: in what is cut off of that, each thing is free and has no bytes.
        let mut at = heap(bytes) + 16;
        while bytes[at..at + 2] != [0, 0] {
            let size = u64::from_le_bytes(bytes[at + 8..at + 16].try_into().unwrap());
            at += 16 + size.next_multiple_of(8) as usize;
        }
        bytes[at + 8] = 0;
    });
    let (told, status) = checked(&made.0);
    assert_eq!(status, Some(1), "{told}");
    for part in ["static.hdf", "`/entry`", "does not finish reading", "hint: "] {
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn damaged_texts_of_a_group_were_called_good() {
    let made = made("texts", |file| text(&file.create_group("entry").unwrap(), "NX_class", "NXentry"));
    damage(&made.0, |bytes| {
        // Its number in the heap.
        let at = heap(bytes) + 16;
        bytes[at] = 77;
    });
    let (told, status) = checked(&made.0);
    assert_eq!(status, Some(1), "{told}");
    assert!(told.contains("cannot read the attribute `NX_class` of `/entry`"), "{told}");
}

#[test]
fn damaged_chunks_were_called_good() {
    let mut place = 0;
    let made = made("chunks", |file| {
        let numbers: Vec<i32> = (0..10_000).map(|n| n * n).collect();
        let builder = file.new_dataset_builder().chunk(1000).shuffle().deflate(4).with_data(&numbers);
        let dataset = builder.create("numbers").unwrap();
        // Of texts of any length the numbers are packed: they are unpacked when they are copied, too.
        let texts: Vec<hdf5_metno::types::VarLenUnicode> = (0..9).map(|n| n.to_string().parse().unwrap()).collect();
        file.new_dataset_builder().chunk(3).deflate(4).with_data(&texts).create("texts").unwrap();
        file.new_dataset::<i32>().shape(10).chunk(5).deflate(4).create("never_filled").unwrap();
        let chunk = dataset.chunk_info(3).unwrap();
        assert_eq!(chunk.offset, [3000]);
        place = (chunk.addr + chunk.size / 2) as usize;
    });
    assert_eq!(checked(&made.0), (String::new(), Some(0)));
    damage(&made.0, |bytes| bytes[place] ^= 1);
    let (told, status) = checked(&made.0);
    assert_eq!(status, Some(1), "{told}");
    assert!(told.contains("`/numbers`: cannot unpack the chunk at [3000]"), "{told}");
}

#[test]
fn a_file_was_gone_on_with_after_its_static_file_was_another() {
    let made = made("other", |file| number(file, "a", 1));
    let mut job = job(&made.0.join("run.nxs"));
    let template = made.0.join("template.json");
    std::fs::write(&template, messages::TEMPLATE).unwrap();
    let of_static = made.0.join("static.hdf");
    let opened = || Template::open(&template, Some(&of_static), &[], Layout::Nexus).unwrap();
    job.template = opened();
    let mut sink = Nexus::begin(job.clone(), false).unwrap();
    second(&mut sink, 0, 3).unwrap();
    let state = sink.flush().unwrap();
    drop(sink);
    assert!(Nexus::resume(job.clone(), &state).is_ok());
    let file = hdf5_metno::File::create(&of_static).unwrap();
    number(&file, "b", 1);
    file.close().unwrap();
    // The file there is not the one that was read.
    assert!(Nexus::begin(job.clone(), true).is_err_and(|fault| fault.cause.contains("changed")));
    job.template = opened();
    assert!(Nexus::resume(job, &state).is_err_and(|fault| fault.cause.contains("not the one it began with")));
}
