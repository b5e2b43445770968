//! The hash of what a sink was given, on the pretend machine.

use crate::loss::{begin, sealed};
use beamport_testkit::Machine;
use flow::{Aside, Data, Fault, Feed, Product, Sink};
use store::{Message, Meta, Options, SchemaId, Writer};

/// A message: origin, number, source time, payload.
type One = (&'static str, u64, i64, &'static [u8]);

const ALL: [One; 6] = [
    ("t/0", 0, 10, b"a"),
    ("t/0", 1, 30, b"b"),
    ("t/0", 2, 50, b"c"),
    ("t/1", 0, 20, b"a"),
    ("t/1", 1, 40, b"b"),
    ("t/1", 2, 60, b""),
];

/// Takes all, after as many refusals for want of room.
struct Taker(u32);

impl Sink for Taker {
    fn write(&mut self, _: usize, _: &[Message<'_>], _: &mut Vec<Aside>) -> Result<(), Fault> {
        match self.0.checked_sub(1) {
            None => Ok(()),
            Some(left) => {
                self.0 = left;
                Err(Fault::new("there is no room", ""))
            }
        }
    }

    fn flush(&mut self) -> Result<String, Fault> {
        Ok("{}".into())
    }

    fn finish(&mut self, _: &str) -> Result<Product, Fault> {
        Ok(Product { file: "f".into(), size: 0, blake3: String::new(), files: 1, bytes: 0 })
    }
}

fn appended(writer: &mut Writer, messages: &[One]) {
    for (origin, origin_seq, source_time, payload) in messages {
        let origin = writer.origin(origin).unwrap();
        let meta =
            Meta { source_time: *source_time, origin, origin_seq: *origin_seq, schema: SchemaId(*b"test"), flags: 0 };
        writer.append(&meta, payload).unwrap();
    }
    writer.drain().unwrap();
}

/// A machine with these streams and a sealed run of times 0 to 1000.
fn machine(streams: &[(&str, &[One])]) -> (Machine, Data) {
    let (machine, data, mut keeper, now) = begin();
    for (name, messages) in streams {
        appended(&mut data.writer(name, &Options::disk(1 << 20)).unwrap(), messages);
    }
    sealed(&data, &mut keeper, now, &streams.iter().map(|stream| stream.0).collect::<Vec<_>>());
    (machine, data)
}

/// The content that a sink of these inputs reports at its end.
fn content(data: &Data, sink: &str, inputs: &[&str], mut taker: Taker) -> String {
    let inputs: Vec<String> = inputs.iter().map(|name| name.to_string()).collect();
    let (mut feed, _) = Feed::open(data, sink, "r", &inputs, true).unwrap();
    while !feed.step(&mut taker).is_ok_and(|step| step.complete) {}
    let product = feed.finish(&mut taker, "{}", 0).unwrap();
    let content = feed.content().unwrap();
    assert_eq!(product["content"], content.as_str());
    content
}

#[test]
fn the_same_messages_in_another_order_and_other_streams_have_one_content() {
    let mut other = ALL;
    other.reverse();
    let (_machine, data) = machine(&[("here", &ALL), ("there", &other), ("low", &ALL[..3]), ("high", &ALL[3..])]);
    let here = content(&data, "a", &["here"], Taker(0));
    assert_eq!(here.len(), 16);
    assert_eq!(here, content(&data, "b", &["there"], Taker(0)));
    assert_eq!(here, content(&data, "c", &["low", "high"], Taker(0)));
    assert_eq!(here, content(&data, "d", &["there"], Taker(3)), "a sink without room was given them once more");
}

#[test]
fn a_message_with_another_origin_number_time_or_payload_has_another_content() {
    let variants: [One; 5] =
        [("t/0", 2, 60, b""), ("t/1", 3, 60, b""), ("t/1", 2, 61, b""), ("t/1", 2, 60, b"\0"), ("t/1", 1, 40, b"b")];
    let with = |last: One| [ALL[0], ALL[1], ALL[2], ALL[3], ALL[4], last];
    let lists: Vec<[One; 6]> = variants.into_iter().map(with).collect();
    let names: Vec<String> = (0..lists.len()).map(|n| format!("s{n}")).collect();
    let mut streams: Vec<(&str, &[One])> = vec![("all", &ALL), ("fewer", &ALL[..5])];
    streams.extend(names.iter().zip(&lists).map(|(name, list)| (name.as_str(), &list[..])));
    let (_machine, data) = machine(&streams);
    let mut seen: Vec<String> =
        streams.iter().map(|(name, _)| content(&data, &format!("of-{name}"), &[name], Taker(0))).collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), streams.len());
}

#[test]
fn a_view_has_the_content_of_what_it_shows() {
    let (_machine, data, mut keeper, now) = begin();
    let mut parent = data.writer("parent", &Options::disk(1 << 20)).unwrap();
    let mut view = data.writer("view", &Options::disk(1 << 20)).unwrap();
    appended(&mut parent, &ALL);
    for n in (0..ALL.len() as u64).rev() {
        let of = view.parent("parent").unwrap();
        let entry = data.reader_early("parent").unwrap().entries(n, 1).unwrap()[0];
        view.push_view(of, n, &entry).unwrap();
    }
    view.publish();
    view.drain().unwrap();
    sealed(&data, &mut keeper, now, &["parent", "view"]);
    assert_eq!(content(&data, "a", &["view"], Taker(0)), content(&data, "b", &["parent"], Taker(0)));
}

#[test]
fn a_sink_that_is_killed_goes_on_with_its_content() {
    let many: Vec<One> = (0..5000).map(|n| ("t/0", n, 1 + n as i64 % 900, &b"payload"[..])).collect();
    let (machine, data) = machine(&[("s", &many)]);
    let inputs = ["s".to_string()];
    for flushed in [false, true] {
        let (mut feed, _) = Feed::open(&data, "killed", "r", &inputs, true).unwrap();
        feed.step(&mut Taker(0)).unwrap();
        if flushed {
            feed.flush(&mut Taker(0), machine.now()).unwrap();
        }
        feed.step(&mut Taker(0)).unwrap();
    }
    assert_eq!(content(&data, "killed", &["s"], Taker(0)), content(&data, "whole", &["s"], Taker(0)));
}
