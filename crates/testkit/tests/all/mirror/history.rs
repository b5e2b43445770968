//! One history of a mirror from a seed: a stream on one pretend machine, its mirror on another, a pretend topic between
//! them, and everything that can happen to the three.
//!
//! Checked at its end: the mirror has the messages of the near stream in order, each once, with all their facts; every
//! message that it lacks is in its account once, and lacks for a reason. Checked at each step: the frontier passes no
//! message that is neither here nor there.

use super::sides::{Receiving, Sending};
use super::topic::{Shared, Topic, lock};
use beamport_testkit::{Counts, Dice, Machine, PretendMedia};
use flow::mirror::Sizes;
use flow::records::Commit;
use flow::{Data, Fault, Intake, IntakeOptions, Passes, Relay, RelayOptions, commits_of};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use store::{
    Drain, Header, Kind, Level, Meta, Options, ReadOptions, Reader, SchemaId, Stretch, WhenFull, Writer, flags,
};

const STREAM: &str = "events";
const SINK: &str = "hosts";
const ORIGINS: [&str; 3] = ["a", "b", ""];
const MS: i64 = 1_000_000;
/// Messages with which a history ends, so that each hole has one behind it.
const LAST: u64 = 3;
/// Steps within which all must come to its end.
const PATIENCE: u64 = 5000;

/// A message with all its facts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fact {
    epoch: u32,
    sequence: u64,
    times: (i64, i64),
    origin: String,
    number: u64,
    schema: SchemaId,
    flags: u16,
    payload: Vec<u8>,
}

/// All messages that a stream has had, in order, by sequence.
struct NearStream {
    uuid: [u8; 16],
    messages: Vec<Fact>,
    /// The ring had overwritten all below when the sink read the stream for the first time.
    unread: u64,
}

/// Where the data of a host are.
#[derive(Clone, Copy, Debug)]
struct Kept {
    level: Level,
    folder: &'static str,
}

impl Kept {
    fn some(dice: &mut Dice) -> Self {
        let all = [(Level::Memory, "/live/data"), (Level::Memory, "/disk/data"), (Level::Disk, "/disk/data")];
        let (level, folder) = dice.pick(&all);
        Self { level, folder }
    }

    fn data(self, process: &Arc<PretendMedia>) -> Data {
        Data { media: process.clone(), folder: self.folder.into(), drain: Drain::Caller }
    }
}

struct Near {
    machine: Machine,
    kept: Kept,
    /// Its source does not wait for the sink.
    drops: bool,
    writer_process: Arc<PretendMedia>,
    writer: Option<Writer>,
    relay_process: Arc<PretendMedia>,
    relay: Option<Relay>,
    streams: Vec<NearStream>,
    /// Messages that were made so far, and are to be made.
    made: u64,
    most: u64,
}

struct Far {
    machine: Machine,
    kept: Kept,
    process: Arc<PretendMedia>,
    intake: Option<Intake>,
    /// Reads a mirror in memory, which waits for it.
    eater: Option<Reader>,
    eater_process: Arc<PretendMedia>,
    /// Messages of the mirror, with the stream that they repeat.
    seen: Vec<([u8; 16], Fact)>,
    has_room: bool,
    /// Commits of an earlier life of a mirror in memory.
    commits_before: usize,
    frontier: i64,
}

pub(super) struct History {
    seed: u64,
    dice: Dice,
    topic: Shared,
    near: Near,
    far: Far,
    sizes: Sizes,
    room: usize,
    payload: u64,
    /// Of this many messages one is larger than the topic takes; of this many steps one fails.
    large: u64,
    fault: u64,
    kills: [u64; 2],
    cuts: [u64; 2],
    /// Nothing is injected any more.
    is_calm: bool,
    story: Vec<String>,
}

impl History {
    pub(super) fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (near, far) = (Machine::new(seed), Machine::new(!seed));
        let kept = [Kept::some(&mut dice), Kept::some(&mut dice)];
        // Large ones fill the rings, which turn many times.
        let payload = dice.pick(&[40, 40, 3000, 20_000]);
        let block = payload as usize * dice.range(1, 6) as usize + 600;
        Self {
            seed,
            topic: Topic::new(seed),
            sizes: Sizes { block, carried: 2 * block + 2 * payload as usize, under_way: block * 4 },
            room: dice.range(1, 6) as usize,
            payload,
            large: dice.pick(&[4, 20]),
            fault: dice.pick(&[8, 24]),
            near: Near {
                kept: kept[0],
                drops: kept[0].level == Level::Memory && dice.one_in(3),
                writer_process: near.start(),
                writer: None,
                relay_process: near.start(),
                relay: None,
                streams: Vec::new(),
                made: 0,
                most: dice.range(30, 150),
                machine: near,
            },
            far: Far {
                kept: kept[1],
                process: far.start(),
                intake: None,
                eater: None,
                eater_process: far.start(),
                seen: Vec::new(),
                has_room: true,
                commits_before: 0,
                frontier: i64::MIN,
                machine: far,
            },
            dice,
            kills: [0; 2],
            cuts: [0; 2],
            is_calm: false,
            story: Vec::new(),
        }
    }

    fn say(&mut self, what: impl Into<String>) {
        let what = what.into();
        if std::env::var_os("BEAMPORT_SEED").is_some() {
            println!("{what}");
        }
        self.story.push(what);
    }

    fn fail(&self, what: impl std::fmt::Display) -> ! {
        let last = self.story.len().saturating_sub(40);
        let (near, far) = (&self.near, &self.far);
        panic!(
            "seed {}: {what}\n{}\nnear {:?}, drops {}, far {:?}, {:?}, {} bytes",
            self.seed,
            self.story[last..].join("\n"),
            near.kept,
            near.drops,
            far.kept,
            self.sizes,
            self.payload
        )
    }

    /// Whether the topic takes messages of this size.
    fn is_too_large(&self, payload: usize) -> bool {
        payload + 2 * self.sizes.block > self.sizes.carried
    }

    fn near_data(&self, process: &Arc<PretendMedia>) -> Data {
        self.near.kept.data(process)
    }

    // --- the near host ---

    /// The source of the stream appends what there is room for.
    fn append(&mut self) {
        let mut writer = self.near.writer.take().unwrap_or_else(|| self.open_writer());
        for _ in 0..self.dice.below(8) {
            if self.near.made == self.near.most {
                break;
            }
            let n = self.near.made;
            let is_large = self.dice.one_in(self.large) && !self.is_calm;
            let bytes = if is_large { self.payload * 3 } else { self.dice.below(self.payload) + 8 };
            let meta = Meta {
                source_time: n as i64 * MS,
                origin: (n % 3) as u32,
                origin_seq: n / 3,
                schema: SchemaId(*b"test"),
                flags: if n.is_multiple_of(7) { flags::SUSPECT } else { 0 },
            };
            match writer.push(&meta, &[&n.to_le_bytes(), &vec![n as u8; bytes as usize - 8]]) {
                Ok(_) => self.near.made += 1,
                Err(e) if e.is_full() => break,
                Err(e) => self.fail(e),
            }
        }
        writer.publish();
        if !self.dice.one_in(3) {
            let _ = writer.drain();
        }
        self.near.writer = Some(writer);
        self.note();
    }

    /// Opens the stream. Messages that a power cut has taken were never sent: others get their sequences.
    fn open_writer(&mut self) -> Writer {
        let when_full = if self.near.drops { WhenFull::DropOldest } else { WhenFull::Wait };
        let options = Options { level: self.near.kept.level, when_full, ..Options::memory(1 << 20) };
        let data = self.near_data(&self.near.writer_process);
        let mut writer = data.writer(STREAM, &options).unwrap_or_else(|e| self.fail(e));
        for name in ORIGINS {
            writer.origin(name).unwrap();
        }
        let uuid = writer.header().uuid;
        let streams = &mut self.near.streams;
        match streams.last_mut().filter(|stream| stream.uuid == uuid) {
            Some(stream) => stream.messages.truncate(writer.next_sequence() as usize),
            None => streams.push(NearStream { uuid, messages: Vec::new(), unread: 0 }),
        }
        writer
    }

    /// Notes the facts of the messages that the stream has now.
    fn note(&mut self) {
        let data = self.near_data(&self.near.writer_process);
        let mut reader = data.reader_early(STREAM).unwrap_or_else(|e| self.fail(e));
        let mut new = Vec::new();
        let known = self.near.streams.last().map_or(0, |stream| stream.messages.len() as u64);
        reader.seek(known);
        loop {
            let header = reader.header().clone();
            let names = reader.origins().unwrap().to_vec();
            let batch = reader.read(1000).unwrap_or_else(|e| self.fail(e));
            if batch.is_empty() {
                break;
            }
            new.extend(batch.iter().map(|m| fact(&m, header.epoch_of(m.sequence), m.sequence, &names)));
        }
        let is_read = reader.pins().readers().iter().any(|place| place.name == SINK);
        let stream = self.near.streams.last_mut().unwrap();
        // The source waits for the sink from its first start on, which makes its place in this stream.
        if !is_read && self.near.kept.level == Level::Memory {
            stream.unread = reader.bounds().first;
        }
        stream.messages.extend(new);
        assert!(stream.messages.iter().zip(0..).all(|(fact, sequence)| fact.sequence == sequence));
    }

    fn step_relay(&mut self) {
        let now = self.near.machine.now();
        let frontier = self.near.streams.last().and_then(|stream| Some(stream.messages.last()?.times.0));
        let stepped = match self.near.relay.take() {
            None => self.open_relay(now),
            Some(mut relay) => match frontier
                .map_or(Ok(()), |frontier| relay.advance(STREAM, frontier))
                .and_then(|()| relay.step(now).map(drop))
            {
                // An error in a stopped process stays in its memory: the process is killed below.
                Err(_) if self.near.machine.stopped() => Ok(relay),
                stepped => stepped.map(|()| relay),
            },
        };
        match stepped {
            Ok(relay) => self.near.relay = Some(relay),
            Err(fault) => {
                if !self.near.machine.stopped() && !fault.cause.is_empty() {
                    self.fail(fault);
                }
                self.say(format!("near: {}", fault.what));
                lock(&self.topic).lose_producer();
            }
        }
        if self.near.machine.stopped() {
            self.kill_relay();
        }
    }

    fn open_relay(&mut self, now: i64) -> Result<Relay, Fault> {
        let sink = Box::new(Sending::new(&self.topic, STREAM, self.sizes, self.room));
        let data = self.near_data(&self.near.relay_process);
        Relay::open(&data, SINK, &[STREAM.to_owned()], sink, RelayOptions { early: false }, now)
    }

    fn kill_relay(&mut self) {
        self.say("the near side is killed");
        self.kills[0] += 1;
        // SAFETY: all maps of this process are in the relay.
        unsafe { self.near.machine.kill(&self.near.relay_process, self.near.relay.take()) };
        self.near.relay_process = self.near.machine.start();
        lock(&self.topic).lose_producer();
    }

    fn kill_writer(&mut self) {
        self.say("the source of the near stream is killed");
        // SAFETY: all maps of this process are in the writer.
        unsafe { self.near.machine.kill(&self.near.writer_process, self.near.writer.take()) };
        self.near.writer_process = self.near.machine.start();
        self.append();
    }

    fn cut_near(&mut self) {
        self.say("power cut of the near host");
        self.cuts[0] += 1;
        // SAFETY: all maps of all processes are in these.
        unsafe { self.near.machine.power_cut((self.near.relay.take(), self.near.writer.take())) };
        self.near.relay_process = self.near.machine.start();
        self.near.writer_process = self.near.machine.start();
        lock(&self.topic).lose_machine();
        self.append();
    }

    fn end_relay(&mut self) {
        self.say("the near side ends");
        if let Some(mut relay) = self.near.relay.take() {
            relay.stop(Duration::ZERO).unwrap_or_else(|e| self.fail(e));
            relay.close().unwrap_or_else(|e| self.fail(e));
            drop(relay);
            lock(&self.topic).lose_producer();
        }
    }

    // --- the far host ---

    fn step_far(&mut self) {
        let now = self.far.machine.now();
        let stepped = match self.far.intake.take() {
            None => self.open_far(now),
            Some(mut intake) => match intake.step(now) {
                // An error in a stopped process stays in its memory: the process is killed below.
                Err(_) if self.far.machine.stopped() => Ok(intake),
                stepped => stepped.map(|_| intake),
            },
        };
        match stepped {
            Ok(mut intake) => {
                if !self.dice.one_in(3) {
                    let _ = intake.writer().drain();
                }
                self.far.frontier = intake.frontier();
                self.far.intake = Some(intake);
            }
            Err(fault) => {
                let has_room = fault.passes != Passes::WithRoom;
                if !self.far.machine.stopped() && !fault.cause.is_empty() && has_room {
                    self.fail(fault);
                }
                self.say(format!("far: {}", fault.what));
            }
        }
        if self.far.machine.stopped() {
            self.kill_far();
        }
    }

    fn open_far(&mut self, now: i64) -> Result<Intake, Fault> {
        let data = self.far.kept.data(&self.far.process);
        let stream = Options { level: self.far.kept.level, drain: Drain::Caller, ..Options::memory(1 << 20) };
        let options = IntakeOptions { stream, ahead_max: i64::MAX };
        let source = Box::new(Receiving::new(&self.topic, STREAM));
        self.far.frontier = i64::MIN;
        Intake::start(&data, STREAM, source, &options, now)
    }

    fn kill_far(&mut self) {
        self.say("the far side is killed");
        self.kills[1] += 1;
        // SAFETY: all maps of this process are in the intake.
        unsafe { self.far.machine.kill(&self.far.process, self.far.intake.take()) };
        self.far.process = self.far.machine.start();
    }

    fn cut_far(&mut self) {
        self.say("power cut of the far host");
        self.cuts[1] += 1;
        // SAFETY: all maps of all processes are in these.
        unsafe { self.far.machine.power_cut((self.far.intake.take(), self.far.eater.take())) };
        self.far.process = self.far.machine.start();
        self.far.eater_process = self.far.machine.start();
        if self.far.kept.level == Level::Memory {
            // The mirror is another one.
            self.far.seen.clear();
            self.far.commits_before = self.commits().len();
        }
    }

    fn end_far(&mut self) {
        self.say("the far side ends");
        let now = self.far.machine.now();
        if let Some(mut intake) = self.far.intake.take() {
            intake.stop(now).unwrap_or_else(|e| self.fail(e));
        }
    }

    /// Reads messages of a mirror in memory, which it does not keep for ever.
    fn eat(&mut self, most: usize) {
        if self.far.kept.level == Level::Disk {
            return;
        }
        let data = self.far.kept.data(&self.far.eater_process);
        let mut reader = match self.far.eater.take() {
            Some(reader) => reader,
            // After a power cut the stream is another one, once its source has started.
            None if self.far.intake.is_some() && data.has(STREAM).unwrap_or_else(|e| self.fail(e)) => {
                let options =
                    ReadOptions { name: "eater".into(), kind: Kind::Counted, early: true, ..ReadOptions::default() };
                data.reader(STREAM, options).unwrap_or_else(|e| self.fail(e))
            }
            None => return,
        };
        let mut seen = std::mem::take(&mut self.far.seen);
        self.read(&data, &mut reader, most, &mut seen);
        reader.commit(seen.len() as u64);
        (self.far.seen, self.far.eater) = (seen, Some(reader));
    }

    /// Reads messages of the mirror behind those that were seen.
    fn read(&self, data: &Data, reader: &mut Reader, most: usize, seen: &mut Vec<([u8; 16], Fact)>) {
        reader.seek(seen.len() as u64);
        reader.refresh().unwrap_or_else(|e| self.fail(e));
        let header = Header::read(data.media.as_ref(), &data.folder.join(STREAM)).unwrap_or_else(|e| self.fail(e));
        let names = reader.origins().unwrap().to_vec();
        let batch = match reader.next(most).unwrap_or_else(|e| self.fail(e)) {
            Stretch::Messages(batch) => batch,
            Stretch::Missing(missing) => self.fail(format!("the mirror lacks messages of its own: {missing:?}")),
        };
        for m in batch.iter() {
            let near = header.near_of(m.sequence).unwrap();
            seen.push((near.uuid, fact(&m, near.epoch, m.entry.parent_sequence, &names)));
        }
    }

    /// All messages of the mirror.
    fn mirror(&mut self) -> &[([u8; 16], Fact)] {
        let data = self.far.kept.data(&self.far.eater_process);
        if self.far.kept.level == Level::Memory {
            self.eat(usize::MAX);
            let mut before = 0;
            // A batch ends with its segment.
            while std::mem::replace(&mut before, self.far.seen.len()) < self.far.seen.len() {
                self.eat(usize::MAX);
            }
        } else if data.has(STREAM).unwrap_or_else(|e| self.fail(e)) {
            let mut reader = data.reader_early(STREAM).unwrap_or_else(|e| self.fail(e));
            let mut seen = Vec::new();
            loop {
                let before = seen.len();
                self.read(&data, &mut reader, 1000, &mut seen);
                if seen.len() == before {
                    break;
                }
            }
            self.far.seen = seen;
        }
        &self.far.seen
    }

    /// The commits of the mirror's source that are safe.
    fn commits(&self) -> Vec<Commit> {
        let messages = self.far.kept.data(&self.far.eater_process).book_messages(&commits_of(STREAM));
        let messages = messages.unwrap_or_else(|e| self.fail(e));
        messages.iter().map(|bytes| Commit::read(bytes).unwrap_or_else(|e| self.fail(e))).collect()
    }

    /// How often each sequence is in the account as missing.
    fn named(&self) -> BTreeMap<u64, u64> {
        let mut named = BTreeMap::new();
        let commits = self.commits();
        let gaps = commits[self.far.commits_before.min(commits.len())..].iter().flat_map(|commit| &commit.gaps);
        for gap in gaps.filter(|gap| ["retention", "near", "damaged"].contains(&gap.reason.as_str())) {
            assert!(gap.by_sequence && gap.first <= gap.last, "{gap:?}");
            (gap.first..=gap.last).for_each(|sequence| *named.entry(sequence).or_default() += 1);
        }
        named
    }

    // --- what happens ---

    fn happens(&mut self) {
        match self.dice.below(18) {
            0..=1 => self.kill_relay(),
            2 => self.kill_writer(),
            3 => self.cut_near(),
            4 => self.end_relay(),
            5..=6 => self.kill_far(),
            7 => self.cut_far(),
            8 => self.end_far(),
            9..=10 => {
                self.say("retention of the topic");
                lock(&self.topic).expire();
            }
            11 => {
                self.say("the topic is made again");
                lock(&self.topic).make_again();
            }
            12 => {
                self.say("a byte of the topic changes");
                lock(&self.topic).damage();
            }
            13 => lock(&self.topic).refuses = true,
            14..=15 => {
                self.far.has_room = !self.far.has_room;
                self.say(if self.far.has_room { "room on the far disk" } else { "no room on the far disk" });
                let room = if self.far.has_room { u64::MAX } else { self.far.machine.used().0 };
                self.far.machine.room(room, u64::MAX);
            }
            _ => {
                let mut topic = lock(&self.topic);
                topic.is_away = !topic.is_away;
            }
        }
    }

    fn pass_time(&mut self) {
        let ns = self.dice.range(1, 80) as i64 * MS;
        self.near.machine.advance(ns);
        self.far.machine.advance(ns);
    }

    /// Lives it to its end.
    pub(super) fn live(mut self) -> Counts {
        self.append();
        for _ in 0..self.dice.range(150, 400) {
            self.pass_time();
            let steps = self.dice.one_in(10).then(|| self.dice.below(40));
            if self.dice.one_in(self.fault) {
                self.happens();
                continue;
            }
            match self.dice.below(23) {
                0..=3 => self.append(),
                4..=9 => {
                    self.near.machine.stop_after(steps);
                    self.step_relay();
                    self.near.machine.stop_after(None);
                }
                10..=14 => lock(&self.topic).pass(6),
                15..=20 => {
                    self.far.machine.stop_after(steps);
                    self.step_far();
                    self.far.machine.stop_after(None);
                    self.check_frontier();
                }
                _ => self.eat(10),
            }
        }
        self.come_to_the_end();
        self.check()
    }

    /// No more faults: the mirror gets all that there is.
    fn come_to_the_end(&mut self) {
        self.say("calm");
        self.is_calm = true;
        self.far.machine.room(u64::MAX, u64::MAX);
        lock(&self.topic).is_away = false;
        lock(&self.topic).refuses = false;
        // A stream at rest holds up no run, also when both sides start again.
        self.near.most = self.near.made;
        if self.dice.one_in(2) {
            self.kill_relay();
            self.kill_far();
        }
        self.wait("the frontier does not come", |history| {
            let newest = history.near.streams.last().and_then(|stream| stream.messages.last());
            newest.is_none_or(|newest| history.far.frontier >= newest.times.0)
        });
        self.near.most = self.near.made + LAST;
        self.wait("it does not come to its end", |history| history.is_sent() && history.is_read());
    }

    /// Lets all do their work until something is so.
    fn wait(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..PATIENCE {
            self.pass_time();
            self.append();
            if let Some(writer) = &mut self.near.writer {
                let _ = writer.drain();
            }
            self.step_relay();
            lock(&self.topic).pass(6);
            self.step_far();
            self.eat(10);
            self.check_frontier();
            if is_so(self) {
                return;
            }
        }
        let accounts: Vec<_> = self.near.relay.iter().flat_map(Relay::accounts).cloned().collect();
        self.fail(format!("{what}: {accounts:?}"));
    }

    /// The topic has got all that there is.
    fn is_sent(&self) -> bool {
        let topic = lock(&self.topic);
        let is_acknowledged = topic.requests.is_empty() && topic.answers.is_empty();
        let is_idle = self.near.relay.as_ref().is_some_and(Relay::is_idle);
        self.near.made == self.near.most && is_acknowledged && is_idle
    }

    /// The mirror has read the topic, and its account is safe.
    fn is_read(&self) -> bool {
        let end = format!("\"offset\":{}", lock(&self.topic).end());
        let is_kept = self.commits().last().is_some_and(|commit| commit.state.contains(&end));
        let newest = self.near.streams.last().and_then(|stream| stream.messages.last());
        is_kept && newest == self.far.seen.last().map(|(_, seen)| seen)
    }
}

/// The facts of a message. `sequence`: in the near stream.
fn fact(message: &store::Message<'_>, epoch: u32, sequence: u64, names: &[String]) -> Fact {
    let entry = message.entry;
    Fact {
        epoch,
        sequence,
        times: (entry.source_time, entry.arrival_time),
        origin: names[entry.origin as usize].clone(),
        number: entry.origin_seq,
        schema: entry.schema,
        flags: entry.flags,
        payload: message.payload.to_vec(),
    }
}

mod checks;
