//! What of a run is lost: messages without a parent, cut by a recovery, or with their segment, on the pretend machine.

use beamport_testkit::{Machine, Slots};
use flow::{
    Aside, Data, Fault, Feed, Intake, IntakeOptions, Merge, MergeBy, MergeInput, MergeOptions, Outlet, Outputs,
    Product, Resume, RunKeeper, Sink, Source, Step, Stepped, Stop, StreamView, UpstreamState, Work, WorkOptions,
    Worker, ledger,
};
use std::collections::BTreeMap;
use std::time::Duration;
use store::{Batch, Drain, Kind, Message, Meta, Options, ReadOptions, SchemaId, WhenFull, Writer};

const SECOND: i64 = 1_000_000_000;

/// Takes what it is given.
#[derive(Default)]
struct Taker {
    payloads: Vec<Vec<u8>>,
}

impl Sink for Taker {
    fn write(&mut self, _: usize, messages: &[Message<'_>], _: &mut Vec<Aside>) -> Result<(), Fault> {
        self.payloads.extend(messages.iter().map(|message| message.payload.to_vec()));
        Ok(())
    }

    fn flush(&mut self) -> Result<String, Fault> {
        Ok("{}".into())
    }

    fn finish(&mut self, _: &str) -> Result<Product, Fault> {
        Ok(Product { file: "f".into(), size: 0, blake3: String::new(), files: 1, bytes: 0 })
    }
}

/// The data folder, as another process of a machine has it.
fn data_of(machine: &Machine) -> Data {
    Data { media: machine.start(), folder: "/disk/data".into(), drain: Drain::Caller }
}

/// A machine with a data folder, the keeper of its runs, and the time there.
pub(super) fn begin() -> (Machine, Data, RunKeeper, i64) {
    let machine = Machine::new(1);
    let data = data_of(&machine);
    let keeper = RunKeeper::open(&data).unwrap();
    let now = machine.now();
    (machine, data, keeper, now)
}

pub(super) fn appended(writer: &mut Writer, numbers: std::ops::Range<u64>, payload: &str) {
    let origin = writer.origin("board").unwrap();
    for n in numbers {
        let meta = Meta { source_time: n as i64 + 1, origin, origin_seq: n, schema: SchemaId(*b"test"), flags: 0 };
        writer.append(&meta, payload.as_bytes()).unwrap();
    }
    writer.drain().unwrap();
}

/// Times 0 to 1000, sealed with what these streams hold.
pub(super) fn sealed(data: &Data, keeper: &mut RunKeeper, now: i64, streams: &[&str]) {
    keeper.begin("r", 0, Some(1000), Duration::ZERO, "{}", now).unwrap();
    keeper.end("r", 1000, "asked", now).unwrap();
    let view = |name: &&str| StreamView {
        name: name.to_string(),
        frontier: i64::MAX,
        ended: false,
        marked: true,
        ..StreamView::default()
    };
    keeper.step(now, &streams.iter().map(view).collect::<Vec<_>>()).unwrap();
    assert_eq!(flow::runs::run(data, "r").unwrap().state.name(), "sealed");
}

/// Runs a feed until its run is complete, which it must be in a few steps; its account.
fn fed(data: &Data, feed: &mut Feed, sink: &mut Taker, now: i64) -> ledger::Account {
    let is_complete = (0..200).any(|_| feed.step(sink).unwrap().complete);
    assert!(is_complete, "the sink waits for what will not come");
    let account = feed.account(data, "file").unwrap();
    feed.finish(sink, "{}", now).unwrap();
    for row in &account.rows {
        let parts = [&row.aside, &row.skipped, &row.lost].iter().flat_map(|map| map.values()).sum::<u64>();
        assert_eq!(row.read, row.done + parts + row.held, "{row:?}");
    }
    account
}

/// A view of ten messages of `a` and ten of `b`, in turn.
fn view_of_two(data: &Data) -> Vec<Writer> {
    let mut writers: Vec<Writer> =
        ["v", "a", "b"].iter().map(|name| data.writer(name, &Options::disk(1 << 20)).unwrap()).collect();
    for (at, name) in ["a", "b"].into_iter().enumerate() {
        appended(&mut writers[at + 1], 0..10, name);
    }
    let view = &mut writers[0];
    for n in 0..10 {
        for name in ["a", "b"] {
            let parent = view.parent(name).unwrap();
            let entry = data.reader_early(name).unwrap().entries(n, 1).unwrap()[0];
            view.push_view(parent, n, &entry).unwrap();
        }
    }
    view.publish();
    view.drain().unwrap();
    writers
}

/// Somebody removes `b`.
fn remove_b(data: &Data, mut writers: Vec<Writer>) {
    drop(writers.pop());
    store::remove(&data.media, &data.stream("b")).unwrap();
}

/// A recovery cuts `b` behind four messages, and others come in place of those.
fn cut_b(data: &Data, mut writers: Vec<Writer>) {
    cut_to(data, writers.pop().unwrap(), "b", 4);
    let mut b = data.writer("b", &Options::disk(1 << 20)).unwrap();
    assert_eq!(b.next_sequence(), 4);
    appended(&mut b, 4..30, "another");
}

#[test]
fn what_came_before_the_start_of_an_open_run_and_is_gone_is_not_lost() {
    let (_machine, data, mut keeper, now) = begin();
    let options = Options { when_full: WhenFull::DropOldest, ..Options::memory(1 << 20) };
    let mut writer = data.writer("s", &options).unwrap();
    // The stream is empty when the run begins.
    keeper.begin("r", 1000, Some(2000), Duration::ZERO, "{}", now).unwrap();
    appended(&mut writer, 0..999, &"x".repeat(4096));
    appended(&mut writer, 999..1010, "member");
    assert!(data.reader_early("s").unwrap().bounds().first > 0, "the first are still there");
    let (mut feed, _) = Feed::open(&data, "file", "r", &["s".into()], true).unwrap();
    let mut sink = Taker::default();
    while feed.step(&mut sink).unwrap().messages > 0 {}
    assert_eq!(sink.payloads, vec![b"member".to_vec(); 11]);
    assert_eq!((feed.gaps(), feed.accounts().next().unwrap().done), (&[][..], 11));
}

#[test]
fn a_sink_of_a_view_counts_what_a_removed_parent_held_as_lost_and_finishes() {
    let (_machine, data, mut keeper, now) = begin();
    let writers = view_of_two(&data);
    sealed(&data, &mut keeper, now, &["v"]);
    remove_b(&data, writers);
    let (mut feed, _) = Feed::open(&data, "file", "r", &["v".into()], true).unwrap();
    let mut sink = Taker::default();
    let account = fed(&data, &mut feed, &mut sink, now);
    assert_eq!(sink.payloads, vec![b"a".to_vec(); 10]);
    let row = &account.rows[0];
    assert_eq!((row.read, row.done, row.lost["missing"], row.closed), (20, 10, 10, true));
    let gaps: Vec<_> = account.gaps.iter().map(|g| (g.origin.as_str(), g.first, g.from)).collect();
    assert_eq!(gaps, (0..10).map(|n| ("b", 2 * n + 1, n as i64 + 1)).collect::<Vec<_>>());
}

#[test]
fn a_sink_of_a_view_counts_what_a_recovery_cut_of_a_parent_as_lost_and_finishes() {
    let (_machine, data, mut keeper, now) = begin();
    let writers = view_of_two(&data);
    sealed(&data, &mut keeper, now, &["v"]);
    cut_b(&data, writers);
    let (mut feed, _) = Feed::open(&data, "file", "r", &["v".into()], true).unwrap();
    let mut sink = Taker::default();
    let account = fed(&data, &mut feed, &mut sink, now);
    assert_eq!(sink.payloads.len(), 14);
    assert!(sink.payloads.iter().all(|payload| payload != b"another"));
    assert_eq!((account.rows[0].read, account.rows[0].lost["missing"]), (20, 6));
}

/// Copies what it is given.
struct Copies;

impl Worker for Copies {
    fn work(&mut self, batch: &Batch<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        for message in batch.iter().collect::<Vec<_>>() {
            out.begin(&message);
            out.copy(&message)?;
        }
        Ok(())
    }

    fn looks_at_payloads(&self) -> bool {
        true
    }

    fn keeps(&self) -> bool {
        false
    }
}

/// All payloads of a stream.
fn payloads(data: &Data, stream: &str) -> Vec<Vec<u8>> {
    let mut reader = data.reader_early(stream).unwrap();
    let batch = reader.read(1000).unwrap();
    batch.iter().map(|message| message.payload.to_vec()).collect()
}

#[test]
fn slots_of_a_view_stood_still_at_a_message_whose_parent_is_gone() {
    for (harm, lost) in [(remove_b as fn(&Data, Vec<Writer>), 10), (cut_b, 6)] {
        let (machine, data, _, _) = begin();
        harm(&data, view_of_two(&data));
        let options = WorkOptions { output: Options::disk(1 << 20), ..WorkOptions::memory(1, 1 << 20) };
        let mut work = Work::open(&data_of(&machine), "w", &["v".into()], &options).unwrap();
        let mut slots = Slots::new("/disk/data", "w", &["v"]);
        for _ in 0..100 {
            machine.advance(SECOND / 100);
            for one in slots.send_parameters(&mut work).unwrap() {
                slots.start(&machine, one, &options, |_| Ok(Copies)).unwrap();
            }
            work.step(machine.now(), &[UpstreamState { frontier: 0, ..UpstreamState::NOTHING }]).unwrap();
            while slots.step(0, &mut |_| false).unwrap() == Stepped::Worked {}
        }
        let row = ledger::stage(&data, "w").unwrap().remove(0);
        assert_eq!((row.read, row.done, row.closed), (20, 20 - lost, true), "{row:?}");
        assert_eq!(row.lost, BTreeMap::from([("missing".into(), lost)]));
        assert_eq!(payloads(&data, "w").len() as u64, 20 - lost);
    }
}

#[test]
fn a_merge_of_a_view_goes_on_where_a_parent_is_gone_and_the_sink_counts_what_is_lost() {
    for (harm, lost) in [(remove_b as fn(&Data, Vec<Writer>), 10), (cut_b, 6)] {
        let (machine, data, mut keeper, now) = begin();
        harm(&data, view_of_two(&data));
        let options = MergeOptions {
            stream: Options::disk(1 << 20),
            by: MergeBy::Time { slice: SECOND, ahead_max: 60 * SECOND },
        };
        let input = MergeInput { stream: "v".into(), wait: 0, ..MergeInput::default() };
        let mut merge = Merge::open(&data_of(&machine), "m", &[input], &options).unwrap();
        for _ in 0..100 {
            machine.advance(SECOND / 100);
            merge
                .step(machine.now(), machine.now(), &[UpstreamState { ended: true, ..UpstreamState::NOTHING }])
                .unwrap();
            merge.drain().unwrap();
        }
        let row = ledger::stage(&data, "m").unwrap().remove(0);
        assert_eq!((row.read, row.done, row.held, row.closed), (20, 20, 0, true), "{row:?}");
        sealed(&data, &mut keeper, now, &["m"]);
        let (mut feed, _) = Feed::open(&data, "file", "r", &["m".into()], true).unwrap();
        let mut sink = Taker::default();
        let row = fed(&data, &mut feed, &mut sink, now).rows.remove(0);
        assert_eq!((sink.payloads.len() as u64, row.lost["missing"]), (20 - lost, lost));
    }
}

/// Ends a writer and cuts the index of its stream behind `messages` entries.
fn cut_to(data: &Data, writer: Writer, name: &str, messages: u64) {
    let header = writer.header().clone();
    drop(writer);
    let path = data.stream(name).join("i-00000000");
    let file = data.media.open(&path, store::media::Open::Write).unwrap();
    file.set_len(header.index_bytes() - (header.index_entries - messages) * 64).unwrap();
    assert!(data.media.open(&path, store::media::Open::Read).unwrap().len().unwrap() > 0);
}

#[test]
fn what_a_recovery_cut_of_a_sealed_run_is_lost_to_its_sink_and_nothing_else_takes_its_place() {
    for (after, opened) in [(0, false), (100, false), (2, true)] {
        let (_machine, data, mut keeper, now) = begin();
        let mut writer = data.writer("s", &Options::disk(1 << 20)).unwrap();
        appended(&mut writer, 0..20, "first");
        sealed(&data, &mut keeper, now, &["s"]);
        let mut sink = Taker::default();
        // A sink that had begun, and goes on after the restart.
        if opened {
            let (mut feed, _) = Feed::open(&data, "file", "r", &["s".into()], true).unwrap();
            feed.flush(&mut sink, now).unwrap();
        }
        cut_to(&data, writer, "s", 7);
        let mut writer = data.writer("s", &Options::disk(1 << 20)).unwrap();
        assert_eq!(writer.next_sequence(), 7);
        appended(&mut writer, 20..20 + after, "second");
        let (mut feed, _) = Feed::open(&data, "file", "r", &["s".into()], opened).unwrap();
        let account = fed(&data, &mut feed, &mut sink, now);
        assert_eq!(sink.payloads, vec![b"first".to_vec(); 7]);
        let row = &account.rows[0];
        assert_eq!((row.read, row.done, row.lost["cut"]), (20, 7, 13));
        assert_eq!((account.closed, account.lost), (false, 13));
        let entries: u64 = account.entries.iter().map(|e| e.appended).sum();
        assert_eq!(entries, 7, "messages of a later epoch are not of the run");
        // Without a sink the run tells the same.
        let alone = ledger::account(&data, "r", &[]).unwrap();
        assert_eq!((alone.closed, alone.lost), (false, 13));
    }
}

#[test]
fn a_payload_segment_that_is_missing_is_counted_once_with_its_origin_and_times() {
    let (_machine, data, mut keeper, now) = begin();
    let mut writer = data.writer("s", &Options::disk(1 << 20)).unwrap();
    appended(&mut writer, 0..20, "first");
    sealed(&data, &mut keeper, now, &["s"]);
    drop(writer);
    data.media.unlink(&data.stream("s").join("p-00000000")).unwrap();
    let (mut feed, _) = Feed::open(&data, "file", "r", &["s".into()], false).unwrap();
    let account = fed(&data, &mut feed, &mut Taker::default(), now);
    let row = &account.rows[0];
    assert_eq!((row.read, row.done, row.lost["missing"], row.closed), (20, 0, 20, true));
    let gap = &account.gaps[0];
    assert_eq!((gap.origin.as_str(), gap.from, gap.to, gap.first, gap.last), ("board", 1, 20, 0, 19));
}

#[test]
fn a_stream_that_cannot_be_read_is_the_trouble_of_its_run_and_the_keeper_goes_on() {
    let (_machine, data, mut keeper, now) = begin();
    keeper.begin("r", now, Some(now + SECOND), Duration::ZERO, "{}", now).unwrap();
    let view = StreamView { name: "s".into(), frontier: i64::MAX, ended: false, marked: true, ..StreamView::default() };
    let later = now + 5 * SECOND;
    let changed = keeper.step(later, std::slice::from_ref(&view)).unwrap();
    assert_eq!(changed.iter().map(|run| run.state.name()).collect::<Vec<_>>(), ["settling"]);
    let fault = keeper.trouble().expect("the stream is not there");
    assert!(fault.what.contains("run `r`") && fault.cause.contains("stream `s`"), "{fault}");
    let _writer = data.writer("s", &Options::disk(1 << 20)).unwrap();
    let changed = keeper.step(later, &[view]).unwrap();
    assert_eq!((changed[0].state.name(), keeper.trouble()), ("sealed", None));
}

/// Says nothing.
struct Silent;

impl Source for Silent {
    fn start(&mut self, _: i64, _: &Resume) -> Result<(), Fault> {
        Ok(())
    }

    fn step(&mut self, now: i64, _: &mut dyn Outlet) -> Result<Step, Fault> {
        Ok(Step::At(now + 1))
    }
}

#[test]
fn marked_messages_that_a_recovery_cuts_are_a_gap_in_the_book_of_their_source() {
    let (_machine, data, _, now) = begin();
    let mut writer = data.writer("s", &Options::disk(1 << 20)).unwrap();
    appended(&mut writer, 0..20, "first");
    cut_to(&data, writer, "s", 7);
    let options = IntakeOptions { stream: Options::disk(1 << 20), ahead_max: SECOND };
    for _ in 0..2 {
        // A start that cuts nothing adds nothing.
        Intake::start(&data, "s", Box::new(Silent), &options, now).unwrap().step(now).unwrap();
        let cuts: Vec<_> = ledger::cuts(&data, "s").unwrap().iter().map(|gap| (gap.first, gap.last)).collect();
        assert_eq!(cuts, [(7, 19)]);
    }
}

#[test]
fn a_place_that_its_reader_holds_keeps_its_position() {
    let machine = Machine::new(1);
    let (data, other) = (data_of(&machine), data_of(&machine));
    let mut writer = data.writer("s", &Options::disk(1 << 20)).unwrap();
    appended(&mut writer, 0..20, "first");
    let options = ReadOptions { name: "file:r".into(), kind: Kind::Counted, ..ReadOptions::default() };
    let reader = other.reader("s", options).unwrap();
    reader.commit(12);
    data.hold("s", "file:r", 3).unwrap();
    let readers = data.reader_early("s").unwrap().pins().readers();
    assert_eq!(readers.iter().find(|r| r.name == "file:r").unwrap().committed, 12);
}

/// A counter that falls is one that began anew: what is known of a run stays in the sums.
#[test]
fn losses_of_runs_that_are_no_longer_shown_stay_in_the_sums() {
    let (_machine, data, mut keeper, now) = begin();
    let mut writer = data.writer("s", &Options::disk(1 << 20)).unwrap();
    appended(&mut writer, 0..5, "first");
    appended(&mut writer, 7..10, "second");
    let mut watch = flow::status::Watch::new(&data).newest(2);
    for count in 1..=5_u64 {
        let name = format!("r{count}");
        keeper.begin(&name, 0, Some(1000), Duration::ZERO, "{}", now).unwrap();
        keeper.end(&name, 1000, "asked", now).unwrap();
        let view = StreamView { name: "s".into(), frontier: i64::MAX, marked: true, ..StreamView::default() };
        while keeper.unsealed().next().is_some() {
            keeper.step(now, std::slice::from_ref(&view)).unwrap();
        }
        let (mut feed, _) = Feed::open(&data, "file", &name, &["s".into()], true).unwrap();
        let mut sink = Taker::default();
        assert_eq!(fed(&data, &mut feed, &mut sink, now).lost, 2);
        let status = watch.status(now, false).unwrap();
        let mut totals = status.older_totals;
        status.runs.iter().for_each(|run| totals.add(run));
        assert_eq!((status.runs.len() as u64, status.older_runs), (count.min(2), count.saturating_sub(2)));
        assert_eq!(totals.lost, 2 * count);
    }
}
