//! Ready-made workers on the pretend machine: their output, the messages set aside, and that a histogram since start
//! and frames stitched from tiles are exact, whichever process is killed at any time.

#[path = "native/groups.rs"]
mod groups;
#[path = "native/sum.rs"]
mod sum;

use beamport_workers::{ATTACH, FILTER, GROUPS, HISTOGRAM, SPLIT, STITCH};
use flow::edge::{Needs, WorkerKind, WorkerPlace};
use flow::records::Apart;
use flow::{Data, Native, SlotEnd, Stepped, UpstreamState, Work, WorkOptions, aside_of};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use store::{Drain, Level, Meta, Options, ReadOptions, SchemaId, Writer};
use testkit::{Counts, Dice, Machine, PretendMedia, Slots, histories};
use wire::DType;
use wire::ad00::{Ad00, Attribute};

const INPUT: &str = "raw";
const STAGE: &str = "made";
const HISTORIES: u64 = 150;
const SOAK: u64 = 5000;

/// Where slot 0 runs.
fn place(data: &Data) -> WorkerPlace {
    WorkerPlace { data: data.clone(), stage: STAGE.to_owned(), slot: 0, inputs: vec![INPUT.to_owned()] }
}

fn needs(kind: &WorkerKind, parameters: &Value) -> Needs {
    kind.plan(parameters).unwrap_or_else(|mistakes| panic!("{mistakes:#?}")).needs()
}

/// All mistakes in parameters: what, cause and hint of each.
fn mistakes(kind: &WorkerKind, parameters: Value) -> Vec<String> {
    let mistakes = kind.plan(&parameters).expect_err("wrong parameters were taken");
    mistakes.into_iter().map(|m| format!("{}; {}; {}", m.what, m.cause, m.hint)).collect()
}

/// A worker with one slot, of which everything may be killed.
struct Lab {
    machine: Machine,
    folder: &'static str,
    level: Level,
    kind: &'static WorkerKind,
    parameters: Value,
    live: u64,
    /// The state of the input's source.
    heard: UpstreamState,
    writer_process: Arc<PretendMedia>,
    writer: Option<Writer>,
    runner_process: Arc<PretendMedia>,
    runner: Option<Work>,
    slots: Slots<Native>,
    slots_dead: u64,
    runners_dead: u64,
    cuts: u64,
}

impl Lab {
    fn new(seed: u64, level: Level, kind: &'static WorkerKind, parameters: Value) -> Self {
        let machine = Machine::new(seed);
        let folder = if level == Level::Disk { "/disk/data" } else { "/live/data" };
        Self {
            folder,
            level,
            kind,
            parameters,
            live: 1 << 20,
            heard: UpstreamState::NOTHING,
            writer_process: machine.start(),
            writer: None,
            runner_process: machine.start(),
            runner: None,
            slots: Slots::new(folder, STAGE, &[INPUT]),
            machine,
            slots_dead: 0,
            runners_dead: 0,
            cuts: 0,
        }
    }

    fn data(&self, process: &Arc<PretendMedia>) -> Data {
        Data { media: process.clone(), folder: self.folder.into(), drain: Drain::Caller }
    }

    fn writer(&mut self) -> &mut Writer {
        if self.writer.is_none() {
            let options = Options { level: self.level, ..Options::memory(1 << 20) };
            let mut writer = self.data(&self.writer_process).writer(INPUT, &options).unwrap();
            writer.origin("bank0").unwrap();
            self.writer = Some(writer);
        }
        self.writer.as_mut().unwrap()
    }

    /// Appends a message, if there is room.
    fn append(&mut self, time: i64, schema: [u8; 4], payload: &[u8]) -> bool {
        let level = self.level;
        let writer = self.writer();
        let origin_seq = writer.next_sequence();
        let meta = Meta { source_time: time, origin: 0, origin_seq, schema: SchemaId(schema), flags: 0 };
        let answer = writer.append(&meta, payload);
        if level == Level::Disk {
            let _ = writer.drain();
        }
        match answer {
            Ok(_) => true,
            Err(e) if e.is_full() => false,
            Err(e) => panic!("{e}"),
        }
    }

    fn options(&self) -> WorkOptions {
        WorkOptions {
            output: Options { level: self.level, ..Options::memory(self.live) },
            parameters: self.parameters.to_string(),
            blames: !needs(self.kind, &self.parameters).whole,
            ..WorkOptions::memory(1, self.live)
        }
    }

    fn step(&mut self) {
        self.machine.advance(1_000_000);
        self.step_runner();
        self.step_slot();
    }

    fn step_runner(&mut self) {
        self.writer();
        if self.runner.is_none() {
            match Work::open(&self.data(&self.runner_process), STAGE, &[INPUT.into()], &self.options()) {
                Ok(work) => self.runner = Some(work),
                Err(_) if self.machine.stopped() => return self.kill_runner(),
                Err(e) => panic!("{e}"),
            }
        }
        let now = self.machine.now();
        let stepped = self.runner.as_mut().unwrap().step(now, &[self.heard]);
        if self.machine.stopped() {
            return self.kill_runner();
        }
        stepped.unwrap();
    }

    fn step_slot(&mut self) {
        let options = self.options();
        let Some(work) = &mut self.runner else { return };
        let greeted = self.slots.send_parameters(work);
        if self.machine.stopped() {
            return self.kill_runner();
        }
        for one in greeted.unwrap() {
            let (kind, parameters) = (self.kind, &self.parameters);
            let code = |data: &Data| Native::new(kind, place(data), parameters);
            let started = self.slots.start(&self.machine, one, &options, code);
            if self.machine.stopped() {
                return self.kill_slot();
            }
            started.unwrap();
        }
        let stepped = self.slots.step(0, &mut |_| false);
        if self.machine.stopped() {
            return self.kill_slot();
        }
        assert_ne!(stepped.unwrap(), Stepped::Ended);
    }

    /// The code of the slot.
    fn native(&mut self) -> Option<&mut Native> {
        self.slots.worker(0)
    }

    fn kill_slot(&mut self) {
        self.slots_dead += 1;
        self.slots.kill(&self.machine, 0);
        if let Some(work) = &mut self.runner {
            work.died(0, SlotEnd::Killed, "at random").unwrap();
        }
    }

    fn kill_runner(&mut self) {
        self.runners_dead += 1;
        self.slots.kill(&self.machine, 0);
        // SAFETY: all maps of this process are in the runner.
        unsafe { self.machine.kill(&self.runner_process, self.runner.take()) };
        self.runner_process = self.machine.start();
    }

    fn cut(&mut self) {
        self.cuts += 1;
        // The source sends earlier messages again.
        self.heard = UpstreamState::NOTHING;
        // SAFETY: all maps of all processes are in these.
        unsafe { self.machine.power_cut((self.runner.take(), self.writer.take(), self.slots.take())) };
        self.runner_process = self.machine.start();
        self.writer_process = self.machine.start();
    }

    /// Lives a history: things go wrong in its first `faulty` turns, then all comes to its end. `give` appends some of what
    /// is to come, where there is room, and says whether all of it is there: a power cut takes some back.
    fn live(&mut self, dice: &mut Dice, faulty: u32, mut give: impl FnMut(&mut Self, &mut Dice) -> bool) {
        // From here on the input waits for it.
        self.step_runner();
        let mut is_given = false;
        for turn in 0..40_000 {
            self.machine.advance(1_000_000);
            self.writer();
            let is_faulty = turn < faulty;
            if is_faulty && dice.one_in(10) {
                self.machine.stop_after(Some(dice.below(80)));
            }
            match dice.below(20) {
                0..=3 => {
                    self.machine.stop_after(None);
                    is_given = give(self, dice) && !is_faulty;
                }
                4..=10 => self.step_runner(),
                11..=17 => self.step_slot(),
                18 if is_faulty && self.native().is_some() => self.kill_slot(),
                19 if is_faulty && self.runner.is_some() && dice.one_in(3) => self.kill_runner(),
                19 if is_faulty && self.level == Level::Disk && dice.one_in(3) => self.cut(),
                _ => {}
            }
            self.machine.stop_after(None);
            if is_given && self.is_done() {
                return;
            }
        }
        panic!("it does not come to its end: {:?}", self.runner.as_ref().map(|work| (work.states(), self.account())));
    }

    /// All that is there is done, and where the input has ended, the output has too.
    fn is_done(&mut self) -> bool {
        let Some(work) = self.runner.as_ref().filter(|work| work.is_idle()) else { return false };
        (!self.heard.ended || work.view().ended) && self.native().is_some()
    }

    /// The counts of kills and power cuts, and `count` of `what`.
    fn counts(&self, what: &str, count: usize) -> Counts {
        [("slots", self.slots_dead), ("runners", self.runners_dead), ("cuts", self.cuts), (what, count as u64)].into()
    }

    /// Works until all is done; the output (time, number, schema, payload).
    fn finish(&mut self) -> Vec<(i64, u64, [u8; 4], Vec<u8>)> {
        for turn in 0.. {
            self.step();
            if self.is_done() {
                break;
            }
            assert!(turn < 20_000, "it does not come to its end");
        }
        self.output()
    }

    fn output(&self) -> Vec<(i64, u64, [u8; 4], Vec<u8>)> {
        let process = self.machine.start();
        let options = ReadOptions { early: true, ..ReadOptions::default() };
        let mut reader = self.data(&process).reader(STAGE, options).unwrap();
        let mut all = Vec::new();
        loop {
            let batch = reader.read(64).unwrap();
            if batch.is_empty() {
                return all;
            }
            all.extend(
                batch.iter().map(|m| (m.entry.source_time, m.entry.origin_seq, m.entry.schema.0, m.payload.to_vec())),
            );
        }
    }

    /// The messages set aside: sequence and reason.
    fn aside(&self) -> BTreeMap<u64, String> {
        let process = self.machine.start();
        let all = self.data(&process).book_messages(&aside_of(STAGE)).unwrap_or_default();
        all.iter().map(|bytes| Apart::read(bytes).unwrap()).map(|aside| (aside.sequence, aside.reason)).collect()
    }

    fn account(&self) -> BTreeMap<String, u64> {
        let input = self.runner.as_ref().unwrap().accounts().next().unwrap().clone();
        input.counts.into_iter().chain([("done".to_owned(), input.done)]).filter(|c| c.1 > 0).collect()
    }
}

/// Lives histories, and says what they held of `what` beside the deaths.
fn lives(test: &str, seeds: u64, (name, what, whole): (&str, &str, &str), history: fn(u64) -> Counts) {
    let sum = histories(test, seeds, history);
    let [all, slots, runners, cuts, count] = ["histories", "slots", "runners", "cuts", what].map(|name| sum[name]);
    println!(
        "{name}: injected {slots} deaths of slots, {runners} of runners, {cuts} power cuts into {all} histories: {count} \
         {what}, {whole}"
    );
    // Histories in which nothing happens prove nothing.
    assert!(all < 10 || slots > all && runners > all && count > all, "{sum:?}");
}

/// Events of pulses: (time, events of (time of flight, pixel)).
fn events(pulses: &[(i64, &[(i32, i32)])]) -> Vec<u8> {
    let times: Vec<i64> = pulses.iter().map(|p| p.0).collect();
    let mut index = Vec::new();
    let (mut tofs, mut pixels) = (Vec::new(), Vec::new());
    for (_, events) in pulses {
        index.push(tofs.len() as i32);
        tofs.extend(events.iter().map(|e| e.0));
        pixels.extend(events.iter().map(|e| e.1));
    }
    let parts = wire::ev44::Ev44 {
        source_name: "bank0",
        message_id: 0,
        reference_time: (&times).into(),
        reference_time_index: (&index).into(),
        time_of_flight: (&tofs).into(),
        pixel_id: (&pixels).into(),
    };
    let mut out = Vec::new();
    wire::ev44::write(&mut out, &parts).unwrap();
    out
}

/// Shape and counts of `signal`, the events outside, and edges.
fn histogram(bytes: &[u8]) -> (Vec<i64>, Vec<i64>, i64, Vec<f64>) {
    let array = wire::da00::read(bytes).unwrap();
    let of = |name: &str| array.data.iter().find(|v| v.name == name);
    let signal = of("signal").unwrap();
    assert_eq!((signal.unit, signal.axes.len()), (Some("counts"), signal.shape.len()));
    let edges = of("time_of_flight").map_or_else(Vec::new, |v| {
        assert_eq!(v.unit, Some("ns"));
        v.data.typed::<f64>().unwrap().to_vec()
    });
    let outside = of("outside").unwrap().data.typed::<i64>().unwrap().first().unwrap();
    (signal.shape.to_vec(), signal.data.typed::<i64>().unwrap().to_vec(), outside, edges)
}

const EV44: [u8; 4] = wire::ev44::ID;

#[test]
fn a_histogram_of_each_pulse_has_edges_that_belong_to_the_bin_above() {
    let mut lab = Lab::new(1, Level::Memory, &HISTOGRAM, json!({"from": "10 ns", "to": "40 ns", "bins": 3}));
    lab.append(0, EV44, &events(&[(100, &[(9, 1), (10, 1), (19, 1), (20, 1), (39, 1), (40, 1)]), (200, &[(25, 7)])]));
    lab.append(300, EV44, &events(&[]));
    lab.append(400, *b"f144", b"whatever");
    lab.append(500, EV44, b"no events");
    let out = lab.finish();
    assert_eq!(out.iter().map(|m| (m.0, m.2)).collect::<Vec<_>>(), [(100, *b"da00"), (200, *b"da00")]);
    assert_eq!(histogram(&out[0].3), (vec![3], vec![2, 1, 1], 2, vec![10.0, 20.0, 30.0, 40.0]));
    assert_eq!(histogram(&out[1].3), (vec![3], vec![0, 1, 0], 0, vec![10.0, 20.0, 30.0, 40.0]));
    assert_eq!(lab.aside(), [(2, "schema".to_owned()), (3, "unreadable".to_owned())].into());
    let account = [("aside.schema", 1), ("aside.unreadable", 1), ("done", 2)];
    assert_eq!(lab.account(), account.map(|(k, n)| (k.to_owned(), n)).into());
}

#[test]
fn a_histogram_counts_pixels_and_rows_of_them() {
    let parameters = json!({"to": "20 ns", "bins": 2, "pixels": 3, "first_pixel": 5});
    let mut lab = Lab::new(1, Level::Memory, &HISTOGRAM, parameters);
    lab.append(0, EV44, &events(&[(0, &[(0, 5), (19, 7), (10, 7), (1, 4), (1, 8), (20, 5)])]));
    let out = lab.finish();
    assert_eq!(histogram(&out[0].3), (vec![3, 2], vec![1, 0, 0, 0, 0, 2], 3, vec![0.0, 10.0, 20.0]));
    let mut lab = Lab::new(1, Level::Memory, &HISTOGRAM, json!({"shape": [2, 3]}));
    lab.append(0, EV44, &events(&[(0, &[(0, 1), (0, 3), (0, 4), (0, 6), (0, 6), (0, 0), (0, 7)])]));
    let out = lab.finish();
    assert_eq!(histogram(&out[0].3), (vec![2, 3], vec![1, 0, 1, 1, 0, 2], 2, vec![]));
    // A monitor has no pixels to be counted by.
    let mut bare = Vec::new();
    let none: [i32; 0] = [];
    let parts = wire::ev44::Ev44 {
        source_name: "monitor",
        message_id: 0,
        reference_time: (&[0_i64]).into(),
        reference_time_index: (&[0_i32]).into(),
        time_of_flight: (&[5_i32]).into(),
        pixel_id: (&none).into(),
    };
    wire::ev44::write(&mut bare, &parts).unwrap();
    lab.append(0, EV44, &bare);
    lab.finish();
    assert_eq!(lab.aside(), [(1, "pixels".to_owned())].into());
}

/// A message of a history: some events, or one that cannot be counted.
fn of_history(n: u64) -> Vec<u8> {
    if n % 7 == 3 {
        return b"not events".to_vec();
    }
    let all: Vec<(i32, i32)> = (0..n % 50).map(|k| (((n * 31 + k * 17) % 110) as i32, 1)).collect();
    events(&[(n as i64, &all)])
}

/// Bins and events outside of some messages.
fn counted<'a>(numbers: impl Iterator<Item = &'a u64>) -> (Vec<i64>, i64) {
    let (mut bins, mut outside) = (vec![0; 10], 0);
    for n in numbers.filter(|n| **n % 7 != 3) {
        for k in 0..n % 50 {
            match (n * 31 + k * 17) % 110 {
                t if t < 100 => bins[(t / 10) as usize] += 1,
                _ => outside += 1,
            }
        }
    }
    (bins, outside)
}

/// One history of a histogram since start.
fn of_start(seed: u64) -> Counts {
    let mut dice = Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let level = dice.pick(&[Level::Memory, Level::Disk]);
    let parameters = json!({"of": "start", "to": "100 ns", "bins": 10});
    let mut lab = Lab::new(seed, level, &HISTOGRAM, parameters);
    // Small ones turn round, so that what is needed must be held.
    lab.live = dice.pick(&[1 << 17, 1 << 20]);
    let most = dice.range(20, 300);
    let mut input: Vec<u64> = Vec::new();
    let mut next = 0;
    let faulty = dice.range(100, 400) as u32;
    lab.live(&mut dice, faulty, |lab, dice| {
        input.truncate(lab.writer().next_sequence() as usize);
        for _ in 0..dice.range(1, 8) {
            if (input.len() as u64) < most && lab.append(next as i64, EV44, &of_history(next)) {
                input.push(next);
                next += 1;
            }
        }
        input.len() as u64 == most
    });
    let aside = lab.aside();
    let output = lab.output();
    let kept: BTreeSet<u64> = (0..input.len() as u64).filter(|sequence| !aside.contains_key(sequence)).collect();
    // Each says what was counted up to the message that it was made of.
    for (_, number, _, bytes) in &output {
        let (_, bins, outside, _) = histogram(bytes);
        let until = kept.range(..=*number).map(|sequence| &input[*sequence as usize]);
        assert_eq!(
            (bins, outside),
            counted(until),
            "seed {seed}: {level:?}, at message {number}, from {:?}",
            output[0].1
        );
    }
    let (_, bins, outside, _) = output.last().map_or((vec![], vec![0; 10], 0, vec![]), |last| histogram(&last.3));
    let wanted = counted(kept.iter().map(|sequence| &input[*sequence as usize]));
    assert_eq!((bins, outside), wanted, "seed {seed}: {} messages, aside {aside:?}", input.len());
    let blamed = aside.values().filter(|reason| *reason == "killed").count();
    let bad = (0..input.len()).filter(|at| input[*at] % 7 == 3).count();
    assert!(aside.len() - blamed <= bad, "seed {seed}: {aside:?}");
    lab.counts("messages", input.len())
}

const OF_START: (&str, &str, &str) = ("histograms since start", "messages", "each event counted once");

#[test]
fn a_histogram_since_start_counts_each_event_once_whoever_is_killed() {
    lives("a_histogram_since_start_counts_each_event_once_whoever_is_killed", HISTORIES, OF_START, of_start);
}

#[test]
#[ignore = "full counts: cargo xtask soak"]
fn soak_histograms_since_start() {
    lives("soak_histograms_since_start", SOAK, OF_START, of_start);
}

/// A frame of some type, with attributes.
fn frame(id: i32, dtype: DType, shape: &[i64], pixels: &[u8]) -> Vec<u8> {
    let gain = [2.5_f64];
    let attributes = [Attribute { name: "gain", description: None, source: None, data: (&gain).into() }];
    let frame = Ad00 {
        source_name: "camera",
        id,
        timestamp: i64::from(id) * 10,
        dimensions: shape.into(),
        data: wire::Numbers::new(dtype, pixels).unwrap(),
        attributes: (&attributes).into(),
    };
    let mut out = Vec::new();
    wire::ad00::write(&mut out, &frame).unwrap();
    out
}

fn pixels(dtype: DType, shape: &[i64], id: i32) -> Vec<u8> {
    let count = shape.iter().product::<i64>() as usize * dtype.size();
    (0..count).map(|at| (at as i32 * 7 + id) as u8).collect()
}

const AD00: [u8; 4] = wire::ad00::ID;

#[test]
fn what_is_split_is_stitched_to_the_same_bytes_whatever_type_shape_and_order() {
    let mut dice = Dice::new(7);
    for dtype in DType::ALL.into_iter().filter(|dtype| *dtype != DType::Text) {
        for shape in [&[7_i64, 11][..], &[3, 5, 8], &[64, 1]] {
            let (rows, columns) = (dice.range(1, 5), if shape[1] == 1 { 1 } else { dice.range(1, 5) });
            let mut split = Lab::new(1, Level::Memory, &SPLIT, json!({"rows": rows, "columns": columns}));
            let frames: Vec<Vec<u8>> = (0..4).map(|id| frame(id, dtype, shape, &pixels(dtype, shape, id))).collect();
            for (id, bytes) in frames.iter().enumerate() {
                assert!(split.append(id as i64 * 10, AD00, bytes));
            }
            let mut tiles = split.finish();
            assert_eq!(tiles.len() as u64, 4 * rows * columns, "{shape:?} {rows} {columns}: {:?}", split.aside());
            // Any order of arrival.
            for at in (1..tiles.len()).rev() {
                tiles.swap(at, dice.below(at as u64 + 1) as usize);
            }
            let mut stitch = Lab::new(1, Level::Memory, &STITCH, json!({}));
            for (time, _, schema, bytes) in &tiles {
                assert!(stitch.append(*time, *schema, bytes));
            }
            let mut whole = stitch.finish();
            whole.sort_by_key(|m| m.0);
            assert_eq!(whole.iter().map(|m| &m.3).collect::<Vec<_>>(), frames.iter().collect::<Vec<_>>());
            assert!(stitch.aside().is_empty());
        }
    }
}

#[test]
fn tiles_that_do_not_belong_go_aside_and_frames_without_all_tiles_are_counted() {
    let mut split = Lab::new(1, Level::Memory, &SPLIT, json!({"rows": 2, "columns": 1}));
    for id in 0..4 {
        split.append(i64::from(id) * 10, AD00, &frame(id, DType::UInt8, &[4, 4], &pixels(DType::UInt8, &[4, 4], id)));
    }
    split.append(90, AD00, &frame(9, DType::UInt8, &[1, 4], &[0; 4]));
    split.append(90, AD00, &frame(9, DType::UInt8, &[4], &[0; 4]));
    split.append(90, AD00, b"no frame");
    split.append(90, EV44, &events(&[]));
    let tiles = split.finish();
    let misfit = |at, reason: &str| (at, reason.to_owned());
    assert_eq!(
        split.aside(),
        [misfit(4, "misfit"), misfit(5, "misfit"), misfit(6, "unreadable"), misfit(7, "schema")].into()
    );
    let mut stitch = Lab::new(1, Level::Memory, &STITCH, json!({"frames": 2}));
    let mut give = |tile: usize| assert!(stitch.append(tiles[tile].0, AD00, &tiles[tile].3));
    give(0);
    give(0); // 1: duplicate
    give(2);
    give(3); // frame 1
    give(2); // 4: late
    give(4);
    give(6); // gives frame 0 up
    give(1); // 7: late
    give(5); // frame 2
    assert!(stitch.append(5, AD00, &frame(5, DType::UInt8, &[4, 4], &[0; 16]))); // 9: no tile
    let whole = stitch.finish();
    assert_eq!(whole.iter().map(|m| m.0).collect::<Vec<_>>(), [10, 20]);
    assert_eq!(
        stitch.aside(),
        [misfit(1, "duplicate"), misfit(4, "late"), misfit(7, "late"), misfit(9, "misfit")].into()
    );
    stitch.machine.advance(2_000_000_000);
    stitch.append(30, AD00, &tiles[7].3);
    stitch.finish();
    stitch.machine.advance(2_000_000_000);
    stitch.step();
    let process = stitch.machine.start();
    let state = flow::WorkerState::newest(&stitch.data(&process), STAGE).unwrap().unwrap();
    assert_eq!(state.slots[&0]["incomplete"], 1, "{state:?}");
}

#[test]
fn tiles_of_whole_frames_were_kept_until_the_next_came_for_which_there_may_be_no_room() {
    let mut split = Lab::new(1, Level::Memory, &SPLIT, json!({"rows": 2, "columns": 1}));
    for id in 0..4 {
        split.append(i64::from(id) * 10, AD00, &frame(id, DType::UInt8, &[4, 4], &pixels(DType::UInt8, &[4, 4], id)));
    }
    let tiles = split.finish();
    let mut stitch = Lab::new(1, Level::Memory, &STITCH, json!({}));
    tiles.iter().for_each(|(time, _, schema, bytes)| assert!(stitch.append(*time, *schema, bytes)));
    stitch.finish();
    (0..3).for_each(|_| stitch.step());
    assert_eq!(kept_from(&stitch), 8);
}

/// The first message of the input that the worker keeps.
fn kept_from(lab: &Lab) -> u64 {
    let process = lab.machine.start();
    let reader = lab.data(&process).reader(INPUT, ReadOptions::default()).unwrap();
    let readers = reader.pins().readers();
    readers.iter().find(|reader| reader.name == format!("keeps {STAGE}")).unwrap().committed
}

/// Turns a bit of a message of a stream.
fn damage(lab: &Lab, stream: &str, sequence: u64) {
    let process = lab.machine.start();
    let entry = lab.data(&process).reader_early(stream).unwrap().entries(sequence, 1).unwrap()[0];
    let file = PathBuf::from(lab.folder).join(stream).join(format!("p-{:08x}", entry.segment));
    lab.machine.flip(&file, entry.offset() + 9).unwrap();
}

#[test]
fn a_stitch_that_began_anew_had_forgotten_the_tiles_before_a_damaged_one() {
    let mut split = Lab::new(1, Level::Memory, &SPLIT, json!({"rows": 2, "columns": 1}));
    for id in 0..2 {
        split.append(i64::from(id), AD00, &frame(id, DType::UInt8, &[4, 4], &pixels(DType::UInt8, &[4, 4], id)));
    }
    let tiles = split.finish();
    let mut stitch = Lab::new(1, Level::Memory, &STITCH, json!({}));
    for tile in [0, 2] {
        assert!(stitch.append(tiles[tile].0, AD00, &tiles[tile].3));
    }
    damage(&stitch, INPUT, 1);
    stitch.finish();
    stitch.kill_slot();
    assert!(stitch.append(tiles[1].0, AD00, &tiles[1].3));
    assert_eq!(stitch.finish().iter().map(|m| m.0).collect::<Vec<_>>(), [0]);
    assert_eq!(stitch.account(), [("done".to_owned(), 2), ("lost.corrupt".to_owned(), 1)].into());
}

#[test]
fn tiles_that_wait_for_others_are_held_until_the_input_ends() {
    let mut split = Lab::new(1, Level::Memory, &SPLIT, json!({"rows": 2, "columns": 1}));
    for id in 0..2 {
        split.append(i64::from(id), AD00, &frame(id, DType::UInt8, &[4, 4], &pixels(DType::UInt8, &[4, 4], id)));
    }
    let tiles = split.finish();
    let mut stitch = Lab::new(1, Level::Memory, &STITCH, json!({}));
    tiles[..3].iter().for_each(|(time, _, schema, bytes)| assert!(stitch.append(*time, *schema, bytes)));
    assert_eq!(stitch.finish().len(), 1);
    assert_eq!(stitch.account(), [("done".to_owned(), 2), ("waits".to_owned(), 1)].into());
    stitch.kill_slot();
    stitch.heard.ended = true;
    assert_eq!(stitch.finish().len(), 1);
    assert_eq!(stitch.account(), [("done".to_owned(), 3)].into());
    assert!(flow::Worker::statistics(stitch.native().unwrap()).contains("\"incomplete\":1"));
}

/// One history of frames that are put together of tiles.
fn of_tiles(seed: u64) -> Counts {
    let mut dice = Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let level = dice.pick(&[Level::Memory, Level::Disk]);
    let mut split = Lab::new(seed, Level::Memory, &SPLIT, json!({"rows": 2, "columns": 2}));
    let frames = 24_i32;
    let shape = [6, 6];
    for id in 0..frames {
        let bytes = frame(id, DType::UInt16, &shape, &pixels(DType::UInt16, &shape, id));
        split.append(i64::from(id), AD00, &bytes);
    }
    let mut tiles = split.finish();
    // Neighbours change places.
    for at in 0..tiles.len() {
        let other = (at + dice.below(12) as usize).min(tiles.len() - 1);
        tiles.swap(at, other);
    }
    let mut stitch = Lab::new(seed, level, &STITCH, json!({}));
    stitch.live(&mut dice, 400, |stitch, _| {
        let given = stitch.writer().next_sequence() as usize;
        match tiles.get(given) {
            Some(tile) => stitch.append(tile.0, AD00, &tile.3) && given + 1 == tiles.len(),
            None => true,
        }
    });
    let whole = stitch.output();
    // Killed twice at the same tile, that tile is aside and its frame is not whole.
    let aside = stitch.aside();
    let without: BTreeSet<i64> = aside.keys().map(|at| tiles[*at as usize].0).collect();
    let times: Vec<i64> = whole.iter().map(|m| m.0).collect();
    let set: BTreeSet<i64> = times.iter().copied().collect();
    assert_eq!(times.len(), set.len(), "seed {seed}: a frame came twice");
    let missing: Vec<i64> = (0..i64::from(frames)).filter(|t| !set.contains(t) && !without.contains(t)).collect();
    assert!(missing.is_empty(), "seed {seed}: {missing:?} are missing, aside {aside:?}");
    assert!(aside.values().all(|reason| reason == "killed"), "seed {seed}: {aside:?}");
    for (time, _, _, bytes) in &whole {
        let id = *time as i32;
        let wanted = pixels(DType::UInt16, &shape, id);
        assert_eq!(wire::ad00::read(bytes).unwrap().data.bytes(), wanted, "seed {seed}: frame {id}");
    }
    stitch.counts("frames", whole.len())
}

const OF_TILES: (&str, &str, &str) = ("frames of tiles", "frames", "each whole and once");

#[test]
fn frames_are_whole_once_whoever_is_killed_between_their_tiles() {
    lives("frames_are_whole_once_whoever_is_killed_between_their_tiles", HISTORIES / 2, OF_TILES, of_tiles);
}

#[test]
#[ignore = "full counts: cargo xtask soak"]
fn soak_frames_of_tiles() {
    lives("soak_frames_of_tiles", SOAK, OF_TILES, of_tiles);
}

fn f144(name: &str, time: i64, value: f64) -> Vec<u8> {
    let mut out = Vec::new();
    let value = wire::f144::F144 { source_name: name, timestamp: time, value: value.into() };
    wire::f144::write(&mut out, &value).unwrap();
    out
}

#[test]
fn a_filter_keeps_what_its_expression_is_true_of_and_counts_the_rest() {
    let parameters = json!({"keep": "events > 1 and source == 'bank0' or attribute('gain') == 2.5 or value < 0"});
    let mut lab = Lab::new(1, Level::Memory, &FILTER, parameters);
    let many = events(&[(5, &[(1, 1), (2, 2)])]);
    lab.append(1, EV44, &many);
    lab.append(2, EV44, &events(&[(5, &[(1, 1)])]));
    lab.append(3, AD00, &frame(1, DType::UInt8, &[1, 1], &[0]));
    lab.append(4, *b"f144", &f144("a", 4, -1.0));
    let out = lab.finish();
    // `or` evaluates its first operand first, and a message with a missing value is set aside.
    assert_eq!(out.iter().map(|m| (m.0, m.3.clone())).collect::<Vec<_>>(), [(1, many)]);
    assert_eq!(lab.aside().into_values().collect::<Vec<_>>(), ["unknown"; 3]);
    let mut lab = Lab::new(1, Level::Memory, &FILTER, json!({"keep": "schema == 'ev44' and events > 1"}));
    lab.append(1, EV44, &events(&[(5, &[(1, 1), (2, 2)])]));
    lab.append(2, EV44, &events(&[(5, &[(1, 1)])]));
    lab.append(3, *b"f144", &f144("a", 4, -1.0));
    assert_eq!(lab.finish().len(), 1);
    assert_eq!(lab.account(), [("done".to_owned(), 1), ("skipped.filtered".to_owned(), 2)].into());
}

#[test]
fn a_filter_takes_the_value_of_another_stream_at_the_time_of_the_message() {
    let parameters = json!({
        "keep": "abs(phase - 10) < 2",
        "values": {"phase": {"stream": "chopper", "source": "PHASE"}},
        "wait": "0 s",
    });
    let mut lab = Lab::new(1, Level::Memory, &FILTER, parameters);
    let process = lab.machine.start();
    let mut chopper = lab.data(&process).writer("chopper", &Options::memory(1 << 20)).unwrap();
    chopper.origin("c").unwrap();
    for (time, name, value) in
        [(100, "PHASE", 10.0), (150, "SPEED", 900.0), (200, "PHASE", 20.0), (300, "PHASE", 9.0), (400, "PHASE", 9.0)]
    {
        let meta = Meta { source_time: time, origin: 0, origin_seq: 0, schema: SchemaId(*b"f144"), flags: 0 };
        chopper.append(&meta, &f144(name, time, value)).unwrap();
    }
    for time in [50, 100, 199, 200, 299, 300, 350] {
        lab.append(time, EV44, &events(&[(time, &[])]));
    }
    let out = lab.finish();
    assert_eq!(out.iter().map(|m| m.0).collect::<Vec<_>>(), [100, 199, 300, 350]);
    assert_eq!(lab.aside(), [(0, "unknown".to_owned())].into());
    let account = [("aside.unknown", 1), ("done", 4), ("skipped.filtered", 2)];
    assert_eq!(lab.account(), account.map(|(k, n)| (k.to_owned(), n)).into());
}

#[test]
fn mistakes_in_parameters_are_all_reported() {
    assert_eq!(mistakes(&FILTER, json!({"kep": "events > 0"})), ["unknown key `kep`; ; did you mean `keep`?"],);
    assert_eq!(mistakes(&FILTER, json!({})), ["`keep` is missing; ; add `keep = ...` (expression)"]);
    assert_eq!(
        mistakes(&FILTER, json!({"keep": "events > phase", "values": {"p-h": "c", "q": 3}})),
        [
            "wrong value of `q` in values; it is a number; write the name of a stream, or `{ stream = \"devices\", source = \
             \"PHASE\" }`",
            "wrong value of `values`; `p-h` cannot be used in an expression; write a word of letters, digits and `_` that is \
             not one of a message's own",
            "wrong value of `keep`; character 10: there is no `phase`; known keys: time, arrival, number, bytes, flags, \
             schema, origin, source, events, pulses, value, id, pixels, p-h, attribute('NAME')",
        ]
    );
    assert_eq!(
        mistakes(
            &ATTACH,
            json!({"take": "first", "values": {"x": {"stream": "s", "tolerance": 3}, "y": {"source": "Y", "tak": 1}}})
        ),
        [
            "wrong value of `take`; unknown word `first`; write one of \"hold\", \"nearest\", \"interpolate\"",
            "wrong value of `tolerance` in values.x; `3` has no unit; write a text with a unit, like `\"3 s\"`",
            "`stream` is missing in values.y; ; add `stream = ...` (name of a stream)",
            "unknown key `tak` in values.y; ; did you mean `take`?",
        ]
    );
    assert_eq!(mistakes(&ATTACH, json!({"wait": "1 min", "tolerance": "-1 s"})).len(), 3);
    assert_eq!(
        mistakes(&HISTOGRAM, json!({})),
        ["wrong value of `bins`; there is nothing to count into; add `to` and `bins`, `pixels` or `shape`"]
    );
    let wide = "wrong value of `to`; a time of flight is a number of 32 bits, in ns; write times up to `\"2147 ms\"`";
    assert_eq!(mistakes(&HISTOGRAM, json!({"to": "3 s", "bins": 10})), [wide]);
    let missing = |key| {
        format!("`{key}` is missing; ; a time of flight has `to` and `bins`: write `to = \"71 ms\"` and `bins = 710`")
    };
    assert_eq!(mistakes(&HISTOGRAM, json!({"to": "71 ms"})), [missing("bins")]);
    assert_eq!(mistakes(&HISTOGRAM, json!({"from": "0 ms"})), [missing("to")]);
    let later = "wrong value of `to`; it is not after `from`; write a later time";
    assert_eq!(mistakes(&HISTOGRAM, json!({"from": "2 ms", "to": "1 ms", "bins": 3})), [later]);
    let many = "wrong value of `bins`; there are more than 16777216 bins; take larger ones";
    assert_eq!(mistakes(&HISTOGRAM, json!({"shape": [4096, 4096], "to": "1 ms", "bins": 10})), [many]);
    let twice = "wrong value of `shape`; `pixels` gives the axis already; remove one of them";
    assert_eq!(mistakes(&HISTOGRAM, json!({"shape": [2, 2], "pixels": 4})), [twice]);
    assert_eq!(mistakes(&HISTOGRAM, json!({"shape": [2, 0]})).len(), 1);
    assert_eq!(mistakes(&SPLIT, json!({"rows": 0})).len(), 2);
    let frames = "wrong value of `frames`; 0 is out of range; write 1 to 4096";
    assert_eq!(mistakes(&STITCH, json!({"frames": 0})), [frames]);
    let needs = needs(&HISTOGRAM, &json!({"of": "start", "shape": [10, 10]}));
    assert!(needs.alone.is_some() && needs.bytes > 6400);
}

/// A stream of values beside the input.
fn values(lab: &Lab) -> Writer {
    let options = Options { level: lab.level, ..Options::memory(1 << 20) };
    let mut writer = lab.data(&lab.writer_process).writer("values", &options).unwrap();
    writer.origin("ioc").unwrap();
    writer
}

fn say(writer: &mut Writer, source: &str, time: i64, value: wire::Scalar) -> bool {
    let mut bytes = Vec::new();
    let said = wire::f144::F144 { source_name: source, timestamp: time, value: wire::f144::Value::Scalar(value) };
    wire::f144::write(&mut bytes, &said).unwrap();
    append(writer, wire::f144::ID, time, &bytes)
}

fn append(writer: &mut Writer, schema: [u8; 4], time: i64, bytes: &[u8]) -> bool {
    let schema = SchemaId(schema);
    let meta = Meta { source_time: time, origin: 0, origin_seq: writer.next_sequence(), schema, flags: 0 };
    match writer.append(&meta, bytes) {
        Ok(_) => true,
        Err(e) if e.is_full() => false,
        Err(e) => panic!("{e}"),
    }
}

/// Names and numbers that a frame has.
fn attached(bytes: &[u8]) -> BTreeMap<String, f64> {
    let frame = wire::ad00::read(bytes).unwrap();
    let number = |a: Attribute<'_>| (a.name.to_owned(), a.data.get(0).unwrap().to_f64());
    frame.attributes.iter().cloned().map(number).collect()
}

#[test]
fn values_are_attached_to_the_frames_of_their_time_in_whatever_order_they_came() {
    for seed in 0..50 {
        let mut dice = Dice::new(seed);
        let parameters = json!({
            "take": "nearest", "tolerance": "100 ns", "wait": "2 ms", "unmatched": dice.pick(&["keep", "drop"]),
            "values": {
                "x": {"stream": "values", "source": "X"},
                "gain": {"stream": "values", "source": "G", "take": "hold", "tolerance": "1 s"},
                "line": {"stream": "values", "source": "X", "take": "interpolate", "tolerance": "1 s", "offset": "-40 ns"},
            },
        });
        let is_kept = parameters["unmatched"] == "keep";
        let mut lab = Lab::new(seed, dice.pick(&[Level::Memory, Level::Disk]), &ATTACH, parameters);
        let mut beside = values(&lab);
        // Frame n at 1000 n; X is n up to 90 ns behind it, and is missing for every seventh; G has one value.
        let mut coming: Vec<i64> = (0..40).collect();
        let first = say(&mut beside, "G", -5, wire::Scalar::Int32(3));
        assert!(first && say(&mut beside, "X", -1000, wire::Scalar::Float64(-1.0)));
        let (mut sent, mut later) = (0, BTreeMap::new());
        while sent < 40 || !coming.is_empty() || !later.is_empty() {
            if sent < 40 && dice.one_in(2) {
                let id = sent as i32;
                lab.append(sent * 1000, AD00, &frame(id, DType::UInt16, &[2, 2], &pixels(DType::UInt16, &[2, 2], id)));
                sent += 1;
            }
            // Up to two of them are overtaken by others.
            if !coming.is_empty() && (coming[0] < sent || dice.one_in(4)) {
                let n = coming.remove(dice.below(3.min(coming.len() as u64)) as usize);
                later.insert(n, n * 1000 + 40);
            }
            if let Some((n, time)) = later.pop_first()
                && n % 7 != 6
            {
                say(&mut beside, "X", time, wire::Scalar::Float64(n as f64));
            }
            let _ = beside.drain();
            lab.machine.advance(100_000);
        }
        say(&mut beside, "X", 1_000_000, wire::Scalar::Float64(1000.0));
        let _ = beside.drain();
        lab.machine.advance(5_000_000);
        let out = lab.finish();
        let wanted: Vec<u64> = (0..40).filter(|n| is_kept || n % 7 != 6).collect();
        assert_eq!(out.iter().map(|m| m.1).collect::<Vec<_>>(), wanted, "seed {seed}");
        for (_, n, _, bytes) in &out {
            let line = *n as f64;
            let mut all: BTreeMap<String, f64> = [("gain".to_owned(), 3.0), ("line".to_owned(), line)].into();
            if n % 7 != 6 {
                all.insert("x".to_owned(), line);
            }
            let found = attached(bytes);
            assert!((found["line"] - line).abs() < 1e-9, "seed {seed}, frame {n}: {found:?}");
            assert_eq!(found.keys().collect::<Vec<_>>(), all.keys().collect::<Vec<_>>(), "seed {seed}, frame {n}");
            assert_eq!((found.get("x"), found["gain"]), (all.get("x"), 3.0), "seed {seed}, frame {n}");
        }
        let said: Value = serde_json::from_str(&flow::Worker::statistics(lab.native().unwrap())).unwrap();
        assert_eq!(said, json!({"frames": 40, "unmatched": 5, "missing.x": 5}), "seed {seed}");
        let filtered = lab.account().get("skipped.filtered").copied().unwrap_or(0);
        assert_eq!(filtered, 40 - wanted.len() as u64, "seed {seed}: {:?}", lab.account());
    }
}

#[test]
fn texts_and_arrays_are_attached_as_numbers_are() {
    let values = json!({"state": {"stream": "values", "source": "S"}, "axis": {"stream": "values", "source": "A"}});
    let mut lab = Lab::new(1, Level::Memory, &ATTACH, json!({"wait": "0 s", "values": values}));
    let mut beside = self::values(&lab);
    let (mut text, mut array) = (Vec::new(), Vec::new());
    let (status, severity) = (wire::f142::AlarmStatus::NoAlarm, wire::f142::AlarmSeverity::NoAlarm);
    let value = wire::f142::Value::Text("open");
    let open = wire::f142::F142 { source_name: "S", value, timestamp: 5, status, severity };
    wire::f142::write(&mut text, &open).unwrap();
    let numbers = [1.5_f64, 2.5, -0.5];
    let axis = wire::f144::F144 { source_name: "A", timestamp: 6, value: (&numbers[..]).into() };
    wire::f144::write(&mut array, &axis).unwrap();
    assert!(append(&mut beside, wire::f142::ID, 5, &text) && append(&mut beside, wire::f144::ID, 6, &array));
    assert!(say(&mut beside, "other", 30, wire::Scalar::Int8(0)));
    lab.append(15, AD00, &frame(1, DType::UInt8, &[1, 1], &[0]));
    let out = lab.finish();
    let read = wire::ad00::read(&out[0].3).unwrap();
    let of = |name| read.attributes.iter().find(|a| a.name == name).map(|a| a.data);
    assert_eq!(of("state"), Some(wire::Numbers::text("open")));
    assert_eq!(of("axis"), Some((&numbers).into()));
    let said: Value = serde_json::from_str(&flow::Worker::statistics(lab.native().unwrap())).unwrap();
    assert_eq!(said, json!({"frames": 1, "unmatched": 0}));
}

#[test]
fn a_frame_missed_the_value_that_stood_before_a_damaged_one() {
    let mut lab = Lab::new(1, Level::Memory, &ATTACH, json!({"wait": "0 s", "values": {"x": "values"}}));
    let mut beside = values(&lab);
    for time in [10, 20, 30] {
        assert!(say(&mut beside, "X", time, wire::Scalar::Int64(time)));
    }
    damage(&lab, "values", 1);
    lab.append(15, AD00, &frame(1, DType::UInt8, &[1, 1], &[0]));
    let out = lab.finish();
    assert_eq!(out.iter().map(|m| attached(&m.3)["x"]).collect::<Vec<_>>(), [10.0]);
}

/// One history of frames with their values.
fn of_values(seed: u64) -> Counts {
    let mut dice = Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let parameters = json!({"take": "nearest", "tolerance": "100 ns", "wait": "10 s", "values": {"x": "values"}});
    let mut lab = Lab::new(seed, Level::Memory, &ATTACH, parameters);
    let mut beside = values(&lab);
    // More values than their stream holds at a time.
    let (frames, each) = (1500_i64, 10_i64);
    let (mut sent, mut said) = (0, 0);
    lab.live(&mut dice, 400, |lab, dice| {
        for _ in 0..dice.range(0, 150) {
            let id = sent as i32;
            let bytes = || frame(id, DType::UInt16, &[2, 2], &pixels(DType::UInt16, &[2, 2], id));
            // A frame without a value yet would wait, by the clock of the real machine.
            if sent < frames && sent * each < said && lab.append(sent * 1000, AD00, &bytes()) {
                sent += 1;
            }
        }
        // Before the first values have their reader, the stream must free none of them.
        for _ in 0..dice.range(0, if lab.native().is_some() { 2000 } else { 50 }) {
            let (n, k) = (said / each, said % each);
            if n <= frames && say(&mut beside, "X", n * 1000 + 10 * k, wire::Scalar::Int64(n)) {
                said += 1;
            }
        }
        sent == frames && said > frames * each
    });
    let aside = lab.aside();
    let out = lab.output();
    let wanted = (0..frames as u64).filter(|n| !aside.contains_key(n)).collect::<Vec<_>>();
    // Whatever was killed twice at a frame takes it for one that kills.
    assert!(aside.values().all(|reason| reason == "killed") && aside.len() < 100, "seed {seed}: {aside:?}");
    let first = out.first().map_or(0, |m| m.1);
    assert_eq!(out.iter().map(|m| m.1).collect::<Vec<_>>(), wanted[wanted.len() - out.len()..], "seed {seed}");
    for (_, n, _, bytes) in &out {
        assert_eq!(attached(bytes)["x"], *n as f64, "seed {seed} from {first}");
    }
    lab.counts("frames", out.len())
}

const OF_VALUES: (&str, &str, &str) = ("frames with values", "frames", "each once, none without its value");

#[test]
fn frames_have_their_values_once_whoever_is_killed_and_the_values_wait_for_them() {
    let test = "frames_have_their_values_once_whoever_is_killed_and_the_values_wait_for_them";
    lives(test, HISTORIES / 15, OF_VALUES, of_values);
}

#[test]
#[ignore = "full counts: cargo xtask soak"]
fn soak_frames_with_values() {
    lives("soak_frames_with_values", SOAK / 5, OF_VALUES, of_values);
}
