//! The status of a data folder on the pretend machine: times come from the caller, rates from the machine's clock.

use beamport_testkit::Machine;
use flow::status::Watch;
use flow::{Data, RunKeeper};
use std::time::Duration;
use store::{Drain, Meta, Options, SchemaId};

const SECOND: i64 = 1_000_000_000;

#[test]
fn rates_are_of_the_time_between_two_looks() {
    let machine = Machine::new(1);
    let data = Data { media: machine.start(), folder: "/disk/data".into(), drain: Drain::Caller };
    let mut writer = data.writer("raw", &Options::disk(1 << 20)).unwrap();
    let mut watch = Watch::new(&data);
    let mut look = |now| watch.status(now, true).unwrap();
    let first = look(7);
    assert_eq!((first.time, first.streams[0].messages_per_s), (7, None));
    for (seconds, messages) in [(1, 100), (4, 100), (2, 0)] {
        machine.advance(seconds * SECOND);
        for number in 0..messages {
            let meta = Meta { source_time: 1, origin: 0, origin_seq: number, schema: SchemaId(*b"test"), flags: 0 };
            writer.append(&meta, &[0; 50]).unwrap();
        }
        let status = look(7 + seconds);
        let stream = &status.streams[0];
        let expected = messages as f64 / seconds as f64;
        let found = (status.time, stream.messages_per_s.unwrap(), stream.bytes_per_s.unwrap());
        assert_eq!(found, (7 + seconds, expected, 50.0 * expected));
    }
}

#[test]
fn a_stream_that_came_between_two_looks_had_no_rate() {
    let machine = Machine::new(1);
    let data = Data { media: machine.start(), folder: "/disk/data".into(), drain: Drain::Caller };
    let _old = data.writer("old", &Options::disk(1 << 20)).unwrap();
    let mut watch = Watch::new(&data);
    watch.status(7, false).unwrap();
    machine.advance(2 * SECOND);
    let mut writer = data.writer("raw", &Options::disk(1 << 20)).unwrap();
    for number in 0..10 {
        let meta = Meta { source_time: 1, origin: 0, origin_seq: number, schema: SchemaId(*b"test"), flags: 0 };
        writer.append(&meta, &[0; 50]).unwrap();
    }
    let status = watch.status(9, false).unwrap();
    let rates: Vec<_> = status.streams.iter().map(|stream| (stream.name.as_str(), stream.messages_per_s)).collect();
    assert_eq!(rates, [("old", Some(0.0)), ("raw", Some(5.0))]);
}

#[test]
fn the_bytes_of_a_stream_are_those_that_its_files_take() {
    let machine = Machine::new(1);
    let data = Data { media: machine.start(), folder: "/disk/data".into(), drain: Drain::Caller };
    let mut writer = data.writer("raw", &Options::disk(1 << 20)).unwrap();
    for number in 0..10 {
        let meta = Meta { source_time: 1, origin: 0, origin_seq: number, schema: SchemaId(*b"test"), flags: 0 };
        writer.append(&meta, &[0; 50_000]).unwrap();
    }
    writer.drain().unwrap();
    let stream = &Watch::new(&data).status(0, false).unwrap().streams[0];
    // Nothing else is on this machine but the folder of the stream and its live place.
    assert_eq!((stream.stored_bytes, stream.live_bytes), machine.used());
    assert!(stream.stored_bytes > 500_000, "{}", stream.stored_bytes);
}

#[test]
fn a_reader_that_keeps_messages_for_a_view_lagged_by_all_of_them() {
    let machine = Machine::new(1);
    let data = Data { media: machine.start(), folder: "/disk/data".into(), drain: Drain::Caller };
    let mut writer = data.writer("raw", &Options::memory(1 << 20)).unwrap();
    for number in 0..10 {
        let meta = Meta { source_time: 1, origin: 0, origin_seq: number, schema: SchemaId(*b"test"), flags: 0 };
        writer.append(&meta, &[0; 50_000]).unwrap();
    }
    let mut view = data.writer("view", &Options::memory(1 << 20)).unwrap();
    view.parent("raw").unwrap();
    let stream = || Watch::new(&data).status(0, false).unwrap().streams.remove(0);
    assert_eq!((stream().readers[0].lag, stream().lag), (Some(10), 0));
    assert!(stream().fill > 0.4, "what it keeps cannot be freed");
    data.hold("raw", "analysis", 7).unwrap();
    assert_eq!(stream().lag, 3);
}

#[test]
fn runs_of_a_folder_that_was_made_anew_are_those_that_are_shown() {
    let machine = Machine::new(1);
    let data = Data { media: machine.start(), folder: "/disk/data".into(), drain: Drain::Caller };
    let mut watch = Watch::new(&data).newest(1);
    let mut look = || {
        let status = watch.status(7, true).unwrap();
        let shown: Vec<_> = status.runs.iter().map(|run| (run.name.clone(), run.state)).collect();
        (shown, status.older_runs)
    };
    assert_eq!(look(), (Vec::new(), 0));
    let mut keeper = RunKeeper::open(&data).unwrap();
    let now = machine.now();
    for name in ["first", "second"] {
        keeper.begin(name, now, None, Duration::ZERO, "{}", now).unwrap();
        assert_eq!(look().0.last().unwrap(), &(name.to_owned(), "open"));
        keeper.end(name, now + 1, "asked", now + 1).unwrap();
        keeper.step(now + 2, &[]).unwrap();
    }
    assert_eq!(look(), (vec![("second".to_owned(), "sealed")], 1));
    drop(keeper);
    store::remove(&data.media, &data.stream(flow::RUNS)).unwrap();
    assert_eq!(look(), (Vec::new(), 0));
    let mut keeper = RunKeeper::open(&data).unwrap();
    keeper.begin("first", now, None, Duration::ZERO, "{}", now).unwrap();
    assert_eq!(look(), (vec![("first".to_owned(), "open")], 0));
}
