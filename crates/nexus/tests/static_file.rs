//! A template and a static file: what becomes one tree, and what is refused.

mod messages;

use beamport_nexus::Nexus;
use beamport_nexus::template::{Layout, Mistake, Template};
use flow::Sink;
use messages::{START, job, second};
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
            "/children/0/children/0/config/source: `/entry/soft` is a link that leads to nothing",
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
    assert!(told[0].cause.contains("contain itself"), "{told:?}");
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
    // What was read before is not what is there.
    assert!(Nexus::begin(job.clone(), true).is_err_and(|fault| fault.cause.contains("changed")));
    job.template = opened();
    assert!(Nexus::resume(job, &state).is_err_and(|fault| fault.cause.contains("not the one it began with")));
}
