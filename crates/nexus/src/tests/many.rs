//! Files of many logs: what a message and a flush cost, and how large they are.

use crate::hdf::column::LOOKED_AT;
use crate::hdf::look::set_look;
use crate::template::Template;
use crate::tests::whole::folder;
use crate::tests::whole::messages::{Made, START, give, made};
use crate::{Job, Nexus};
use flow::Sink;
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

/// A file of so many logs of the stream `devices`.
fn job(file: &Path, logs: u64) -> Job {
    let log = |n| {
        format!(
            r#"{{"type": "group", "name": "pv{n}", "children": [
                {{"module": "f144", "config": {{"stream": "devices", "source": "pv{n}", "value_units": "K"}}}}]}}"#
        )
    };
    let logs: Vec<String> = (0..logs).map(log).collect();
    let text = format!(
        r#"{{"children": [{{"type": "group", "name": "entry", "attributes": {{"NX_class": "NXentry"}}, "children": [
            {}]}}]}}"#,
        logs.join(",")
    );
    Job {
        file: file.to_path_buf(),
        template: Template::parse(text.as_bytes()).unwrap(),
        inputs: vec!["devices".into()],
        run: "many".into(),
        run_id: "00112233445566778899aabbccddeeff".into(),
        start: START,
        metadata: String::new(),
    }
}

/// The value of a log after so many tenths of a second.
fn value(log: u64, turn: u64) -> Made {
    let timestamp = START + turn as i64 * 100_000_000;
    let (source, value) = (format!("pv{log}"), wire::f144::Value::from(turn as f64));
    let mut bytes = Vec::new();
    wire::f144::write(&mut bytes, &wire::f144::F144 { source_name: &source, timestamp, value }).unwrap();
    made(bytes, timestamp)
}

fn turn(sink: &mut Nexus, logs: u64, turn: u64) {
    let all: Vec<Made> = (0..logs).map(|log| value(log, turn)).collect();
    assert_eq!(give(sink, 0, turn * logs, &all).unwrap(), []);
}

#[test]
fn a_message_cost_a_look_at_every_log() {
    let folder = folder("many-looks");
    let logs = 300;
    let mut sink = Nexus::begin(job(&folder.join("many.nxs"), logs), false).unwrap();
    turn(&mut sink, logs, 0);
    let before = LOOKED_AT.get();
    turn(&mut sink, logs, 1);
    // Each has four datasets.
    assert!(LOOKED_AT.get() - before <= 4 * logs, "{}", LOOKED_AT.get() - before);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_flush_writes_only_the_logs_that_grew() {
    let folder = folder("many-writes");
    let logs = 300;
    let mut sink = Nexus::begin(job(&folder.join("many.nxs"), logs), false).unwrap();
    turn(&mut sink, logs, 0);
    sink.flush().unwrap();
    let writes = Rc::new(Cell::new(0));
    let counted = writes.clone();
    give(&mut sink, 0, logs, &[value(7, 1)]).unwrap();
    set_look(Some(Box::new(move |_| counted.set(counted.get() + 1))));
    sink.flush().unwrap();
    set_look(None);
    // Its value, its time, the headers of its datasets and the superblock.
    assert!((1..=4).contains(&writes.get()), "{}", writes.get());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_log_of_few_values_took_36_kib() {
    let folder = folder("many-small");
    let (logs, file) = (100, folder.join("many.nxs"));
    let mut sink = Nexus::begin(job(&file, logs), false).unwrap();
    for n in 0..200 {
        turn(&mut sink, logs, n);
        if n % 10 == 0 {
            sink.flush().unwrap();
        }
    }
    sink.finish("{}").unwrap();
    let bytes = std::fs::metadata(&file).unwrap().len();
    assert!(bytes / logs < 14_000, "{bytes}");
    let read = hdf5_metno::File::open(&file).unwrap();
    let values = read.dataset("entry/pv99/value").unwrap().read_raw::<f64>().unwrap();
    assert!(values.iter().zip(0..200).all(|(value, n)| *value == f64::from(n)) && values.len() == 200);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_log_of_400_values_was_made_again_at_its_first_flush() {
    let folder = folder("many-made-again");
    let (logs, file) = (20, folder.join("many.nxs"));
    let mut sink = Nexus::begin(job(&file, logs), false).unwrap();
    for n in 0..400 {
        turn(&mut sink, logs, n);
    }
    sink.finish("{}").unwrap();
    let read = hdf5_metno::File::open(&file).unwrap();
    for log in 0..logs {
        let values = read.dataset(&format!("entry/pv{log}/value")).unwrap();
        // The chunk of the empty dataset, not one that suits the rows better by a little.
        assert_eq!(values.chunk(), Some(vec![256]));
        let values = values.read_raw::<f64>().unwrap();
        assert!(values.iter().zip(0..400).all(|(value, n)| *value == f64::from(n)) && values.len() == 400);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_log_that_fills_many_small_chunks_has_larger_ones() {
    let folder = folder("many-larger");
    let (logs, file) = (2, folder.join("many.nxs"));
    let mut sink = Nexus::begin(job(&file, logs), false).unwrap();
    for n in 0..4096 {
        turn(&mut sink, logs, n);
    }
    sink.finish("{}").unwrap();
    let read = hdf5_metno::File::open(&file).unwrap();
    // A quarter of the rows of the first flush.
    assert_eq!(read.dataset("entry/pv1/value").unwrap().chunk(), Some(vec![1024]));
    std::fs::remove_dir_all(&folder).unwrap();
}
