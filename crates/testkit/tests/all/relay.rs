//! Live sinks on the pretend machine: histories from a seed in which the outside acknowledges late, out of order and twice, loses
//! connections and is away (`relay/outside.rs`), relays and sources are killed at any change of a byte, and the power goes.
//!
//! What is checked: the outside has every message, in the order of each origin but for what is sent again after a restart; no
//! position moves before the outside has acknowledged and the commit is safe; nothing that a power cut can take back is sent,
//! unless early; what cannot be sent is aside, once; the account closes.

mod outside;

use beamport_testkit::{Counts, Dice, Machine, PretendMedia, histories};
use flow::records::{Apart, Commit};
use flow::{
    Aside, Confirmed, Data, Fault, LiveBatch, LiveSink, Passes, Relay, RelayOptions, Step, aside_of, commits_of, ledger,
};
use outside::{Nature, Outside, Sending, Shared, lock, nature};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use store::{Drain, Level, Meta, Options, ReadOptions, SchemaId, WhenFull, Writer};

const SEEDS: u64 = 300;
const STAGE: &str = "out";
const STREAMS: [&str; 3] = ["alpha", "beta", "gamma"];
pub(crate) const ORIGINS: [&str; 3] = ["a", "b", "c"];
const MS: i64 = 1_000_000;

/// One history.
struct History {
    seed: u64,
    machine: Machine,
    dice: Dice,
    level: Level,
    /// A source that does not wait for the sink.
    drops: bool,
    early: bool,
    payload: usize,
    outside: Shared,
    writer_process: Arc<PretendMedia>,
    writers: Vec<Writer>,
    /// Numbers of the messages of each input, by sequence: a power cut takes some back.
    made: Vec<Vec<u64>>,
    most: usize,
    relay_process: Arc<PretendMedia>,
    relay: Option<Relay>,
    witness: Arc<PretendMedia>,
    deaths: u64,
    cuts: u64,
    panics: u64,
    story: Vec<String>,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let machine = Machine::new(seed);
        let level = dice.pick(&[Level::Memory, Level::Disk]);
        Self {
            seed,
            level,
            drops: level == Level::Memory && dice.one_in(4),
            early: level == Level::Disk && dice.one_in(3),
            // Large ones fill the rings, which turn many times.
            payload: dice.pick(&[8, 8, 3000, 20_000]),
            outside: Outside::new(seed),
            writer_process: machine.start(),
            writers: Vec::new(),
            made: vec![Vec::new(); dice.range(1, 3) as usize],
            most: dice.range(30, 150) as usize,
            relay_process: machine.start(),
            relay: None,
            witness: machine.start(),
            deaths: 0,
            cuts: 0,
            panics: 0,
            story: Vec::new(),
            dice,
            machine,
        }
    }

    fn data(&self, process: &Arc<PretendMedia>) -> Data {
        let folder = if self.level == Level::Disk { "/disk/data" } else { "/live/data" };
        Data { media: process.clone(), folder: folder.into(), drain: Drain::Caller }
    }

    fn inputs(&self) -> Vec<String> {
        STREAMS[..self.made.len()].iter().map(ToString::to_string).collect()
    }

    fn say(&mut self, what: impl Into<String>) {
        let what = what.into();
        if std::env::var_os("BEAMPORT_SEED").is_some() {
            println!("{what}");
        }
        self.story.push(what);
    }

    fn fail(&self, what: impl std::fmt::Display) -> ! {
        let Self { seed, level, drops, early, payload, story, .. } = self;
        let last = story.len().saturating_sub(40);
        let story = story[last..].join("\n");
        panic!("seed {seed}: {what}\n{story}\n{level:?}, drops {drops}, early {early}, {payload} bytes")
    }

    /// The sources: append what there is room for.
    fn append(&mut self) {
        if self.writers.is_empty() {
            let when_full = if self.drops { WhenFull::DropOldest } else { WhenFull::Wait };
            let options = Options { level: self.level, when_full, ..Options::memory(1 << 20) };
            for (at, stream) in self.inputs().iter().enumerate() {
                let mut writer =
                    self.data(&self.writer_process).writer(stream, &options).unwrap_or_else(|e| self.fail(e));
                for name in ORIGINS {
                    writer.origin(name).unwrap();
                }
                // Messages that a power cut removed are appended again, in another epoch.
                self.made[at].truncate(writer.next_sequence() as usize);
                self.writers.push(writer);
            }
        }
        for (at, writer) in self.writers.iter_mut().enumerate() {
            for _ in 0..self.dice.below(8) {
                let n = self.made[at].len() as u64;
                if n as usize == self.most {
                    break;
                }
                let schema = SchemaId(*b"test");
                let meta = Meta { source_time: n as i64, origin: (n % 3) as u32, origin_seq: n / 3, schema, flags: 0 };
                match writer.push(&meta, &[&n.to_le_bytes(), &vec![n as u8; self.payload]]) {
                    Ok(_) => self.made[at].push(n),
                    Err(e) if e.is_full() => break,
                    Err(e) => panic!("seed {}: {e}", self.seed),
                }
            }
            writer.publish();
            if self.level == Level::Disk && !self.dice.one_in(3) {
                let _ = writer.drain();
            }
        }
    }

    fn step_relay(&mut self) {
        let now = self.machine.now();
        let stepped = match self.relay.take() {
            None => self.open_relay(now).map(|relay| (relay, Step::Again)),
            Some(mut relay) => match catch_unwind(AssertUnwindSafe(|| relay.step(now))) {
                Ok(stepped) => match stepped {
                    Ok(step) => Ok((relay, step)),
                    // An error in a stopped process stays in its memory: the process is killed below.
                    Err(_) if self.machine.stopped() => Ok((relay, Step::Again)),
                    Err(fault) => Err(fault),
                },
                Err(_) => {
                    self.panics += 1;
                    Err(Fault::new("the sink broke", ""))
                }
            },
        };
        match stepped {
            Ok((relay, _)) => self.relay = Some(relay),
            Err(fault) => self.say(format!("{}: {}", fault.what, fault.cause)),
        }
        if self.machine.stopped() {
            self.kill_relay();
        }
    }

    fn open_relay(&mut self, now: i64) -> Result<Relay, Fault> {
        let sink = Box::new(Sending::new(&self.outside, self.made.len()));
        let data = self.data(&self.relay_process);
        let opened = Relay::open(&data, STAGE, &self.inputs(), sink, RelayOptions { early: self.early }, now);
        match opened {
            Err(fault) if !self.machine.stopped() && fault.what != "sink `out`: the connection is lost" => {
                self.fail(fault)
            }
            opened => opened,
        }
    }

    fn kill_relay(&mut self) {
        self.say("the relay dies");
        self.deaths += 1;
        // SAFETY: all maps of this process are in the relay.
        unsafe { self.machine.kill(&self.relay_process, self.relay.take()) };
        self.relay_process = self.machine.start();
        lock(&self.outside).lose_connection();
    }

    fn cut(&mut self) {
        self.say("power cut");
        self.cuts += 1;
        // SAFETY: all maps of all processes are in these.
        unsafe { self.machine.power_cut((self.relay.take(), std::mem::take(&mut self.writers))) };
        (self.relay_process, self.writer_process, self.witness) =
            (self.machine.start(), self.machine.start(), self.machine.start());
        lock(&self.outside).lose_connection();
        self.append();
        if self.early {
            return;
        }
        for (at, stream) in self.inputs().iter().enumerate() {
            let reader = self.data(&self.witness).reader_early(stream).unwrap_or_else(|e| self.fail(e));
            for received in lock(&self.outside).received.iter().filter(|received| received.input == at) {
                let identity = received.identity;
                if reader.header().check_identity(identity.epoch, identity.sequence + 1).is_err() {
                    self.fail(format!("the power cut took {identity:?} of `{stream}`, which was sent"));
                }
            }
        }
    }

    /// The newest commit that is safe.
    fn commit(&self) -> Option<Commit> {
        let mut reader = self.data(&self.witness).reader(&commits_of(STAGE), ReadOptions::default()).ok()?;
        let newest = reader.end().checked_sub(1)?;
        let (_, bytes) = reader.get(newest).unwrap_or_else(|e| self.fail(e))?;
        Some(Commit::read(&bytes).unwrap_or_else(|e| self.fail(e)))
    }

    /// No position is ahead of what a safe commit says, and no commit of what the outside has.
    fn check_positions(&self) {
        let commit = self.commit();
        let outside = lock(&self.outside);
        for (at, stream) in self.inputs().iter().enumerate() {
            let Ok(reader) = self.data(&self.witness).reader_early(stream) else { continue };
            let places = reader.pins().readers();
            let Some(place) = places.iter().find(|place| place.name == STAGE) else { continue };
            let input = commit.as_ref().and_then(|commit| commit.inputs.iter().find(|input| input.stream == *stream));
            let safe = input.map_or(0, |input| input.next);
            if place.committed > safe && !(self.drops && input.is_none()) {
                self.fail(format!("the position in `{stream}` is {}, and {safe} is committed", place.committed));
            }
            let Some(input) = input.filter(|_| !self.drops) else { continue };
            if self.level == Level::Disk && reader.header().epoch() == input.epoch && input.next > reader.bounds().disk
            {
                self.fail(format!("{safe} of `{stream}` is committed, and {} is marked", reader.bounds().disk));
            }
            let has: BTreeSet<u64> = outside
                .received
                .iter()
                .filter(|received| {
                    received.input == at
                        && received.n
                            == self.made[at].get(received.identity.sequence as usize).copied().unwrap_or(u64::MAX)
                })
                .map(|received| received.identity.sequence)
                .collect();
            for (sequence, n) in (0..input.next).zip(&self.made[at]) {
                if nature(*n) == Nature::Goes && !has.contains(&sequence) {
                    self.fail(format!(
                        "message {sequence} of `{stream}` is committed, and the outside does not have it"
                    ));
                }
            }
        }
    }

    /// Something happens.
    fn happens(&mut self) {
        match self.dice.below(9) {
            0..=1 if self.relay.is_some() => self.kill_relay(),
            2 if self.level == Level::Disk => self.cut(),
            3 => {
                self.say("a source dies");
                // SAFETY: all maps of this process are in the writers.
                unsafe { self.machine.kill(&self.writer_process, std::mem::take(&mut self.writers)) };
                self.writer_process = self.machine.start();
                self.append();
            }
            4 if self.relay.is_some() => {
                self.say("the relay ends");
                if let Some(mut relay) = self.relay.take() {
                    relay.stop(Duration::ZERO).unwrap_or_else(|e| self.fail(e));
                    relay.close().unwrap_or_else(|e| self.fail(e));
                }
            }
            _ => {
                let mut outside = lock(&self.outside);
                outside.is_away = !outside.is_away;
            }
        }
    }

    /// Lives it to its end.
    fn live(mut self) -> Counts {
        self.append();
        for _ in 0..self.dice.range(100, 300) {
            self.machine.advance(self.dice.range(1, 40) as i64 * MS);
            let may_stop = self.dice.one_in(10);
            match self.dice.below(20) {
                0..=4 => self.append(),
                5..=18 => {
                    if may_stop {
                        self.machine.stop_after(Some(self.dice.below(40)));
                    }
                    self.step_relay();
                    self.machine.stop_after(None);
                }
                _ => self.happens(),
            }
            self.check_positions();
        }
        let mut outside = lock(&self.outside);
        (outside.is_away, outside.is_calm) = (false, true);
        drop(outside);
        for turn in 0..20_000 {
            self.machine.advance(10 * MS);
            self.append();
            self.writers.iter_mut().for_each(|writer| drop(writer.drain()));
            self.step_relay();
            let is_made = self.made.iter().all(|made| made.len() == self.most);
            if is_made && self.relay.as_ref().is_some_and(Relay::is_idle) {
                break;
            }
            if turn == 19_999 {
                let accounts: Vec<_> = self.relay.iter().flat_map(Relay::accounts).collect();
                self.fail(format!("it does not come to its end: {accounts:?}"));
            }
        }
        self.check_positions();
        self.check()
    }

    fn check(self) -> Counts {
        let data = self.data(&self.witness);
        let rows = ledger::stage(&data, STAGE).unwrap_or_else(|e| self.fail(e));
        let mut apart: BTreeMap<(String, u64), (u32, String, Vec<u8>)> = BTreeMap::new();
        let mut lost = 0;
        for bytes in data.book_messages(&aside_of(STAGE)).unwrap_or_default() {
            let Apart { stream, epoch, sequence, reason, payload, .. } = Apart::read(&bytes).unwrap();
            let known = apart.insert((stream, sequence), (epoch, reason, payload));
            if known.is_some_and(|known| known.0 == epoch) {
                self.fail(format!("message {sequence} is aside twice"));
            }
        }
        for (at, stream) in self.inputs().iter().enumerate() {
            let row = rows.iter().find(|row| row.stream == *stream).unwrap_or_else(|| self.fail("no account"));
            lost += row.lost.values().sum::<u64>();
            self.check_row(at, row, &data, &apart);
            self.check_order(at);
        }
        let outside = lock(&self.outside);
        [
            ("deaths", self.deaths),
            ("cuts", self.cuts),
            ("panics", self.panics),
            ("connections", outside.connections),
            ("losses", outside.losses),
            ("messages", self.made.iter().map(|made| made.len() as u64).sum()),
            ("received", outside.received.len() as u64),
            ("aside", apart.len() as u64),
            ("lost", lost),
            ("early", u64::from(self.early)),
        ]
        .into()
    }

    /// All that could be sent is there, all else is aside or skipped, and the account says so.
    fn check_row(
        &self,
        at: usize,
        row: &ledger::Row,
        data: &Data,
        apart: &BTreeMap<(String, u64), (u32, String, Vec<u8>)>,
    ) {
        let header = data.reader_early(&row.stream).unwrap_or_else(|e| self.fail(e)).header().clone();
        let outside = lock(&self.outside);
        let mine = outside.received.iter().filter(|received| received.input == at);
        let has: BTreeSet<_> =
            mine.map(|received| (received.identity.epoch, received.identity.sequence, received.n)).collect();
        let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
        let mut missing = 0;
        for (sequence, n) in (0_u64..).zip(&self.made[at]) {
            let kept = apart.get(&(row.stream.clone(), sequence));
            let epoch = header.epoch_of(sequence);
            // Retention may take the bytes of a message before it is aside.
            let is_it = |bytes: &[u8]| self.drops && bytes.is_empty() || outside::number(bytes) == *n;
            let is_apart =
                |reason: &str| kept.is_some_and(|kept| kept.0 == epoch && kept.1 == reason && is_it(&kept.2));
            let (name, is_there) = match nature(*n) {
                Nature::Goes => ("done", has.contains(&(epoch, sequence, *n))),
                Nature::Aside => ("broken", is_apart("broken")),
                Nature::Refused => ("size", is_apart("size")),
                Nature::Skipped => ("choice", true),
            };
            *expected.entry(name).or_default() += 1;
            if !is_there {
                missing += 1;
                if !self.drops {
                    self.fail(format!("message {sequence} ({n}, {:?}) of `{}` is nowhere", nature(*n), row.stream));
                }
            }
        }
        let lost: u64 = row.lost.values().sum();
        // Messages that a sink had accepted, that retention then deleted and a restart did not find are lost in the
        // account.
        if !row.closed || row.held > 0 || missing > lost || !self.drops && lost > 0 {
            self.fail(format!("{missing} are missing, and the ledger says {row:?}"));
        }
        if self.drops {
            return;
        }
        let mut found: BTreeMap<&str, u64> = [("done", row.done)].into();
        found.extend(row.aside.iter().chain(&row.skipped).map(|(name, count)| (name.as_str(), *count)));
        // Messages that were sent early, or acknowledged by an earlier life, and cut since stay in the account.
        let is_cut = header.epochs.len() > 1;
        expected.retain(|_, count| *count > 0);
        found.retain(|_, count| *count > 0);
        let all = self.made[at].len() as u64;
        if !is_cut && (found != expected || row.read != all) {
            self.fail(format!("the account is {found:?} of {all}, not {expected:?}: {row:?}"));
        }
    }

    /// The outside receives each input in order; messages that repeat come over another connection.
    fn check_order(&self, at: usize) {
        let outside = lock(&self.outside);
        let (mut seen, mut newest, mut of_connection) = (BTreeSet::new(), None, (0, None));
        for received in outside.received.iter().filter(|received| received.input == at) {
            let identity = Some((received.identity.epoch, received.identity.sequence));
            if of_connection.0 == received.connection && identity <= of_connection.1 {
                self.fail(format!("{received:?} came behind {of_connection:?}"));
            }
            of_connection = (received.connection, identity);
            if seen.insert(identity) {
                if identity <= newest {
                    self.fail(format!("{received:?} came for the first time behind {newest:?}"));
                }
                newest = identity;
            }
        }
    }
}

/// Accepts all at once, and confirms as many as the test sets.
#[derive(Default)]
struct Taking {
    below: Vec<u64>,
    says_more: u64,
    sets_aside: bool,
    needs_positions_alone: bool,
}

impl LiveSink for Taking {
    fn start(&mut self, _: i64, _: &str) -> Result<(), Fault> {
        Ok(())
    }

    fn write(&mut self, input: usize, batch: &LiveBatch<'_>, aside: &mut Vec<Aside>) -> Result<usize, Fault> {
        if self.sets_aside {
            aside.extend(batch.iter().map(|message| Aside { sequence: message.sequence, reason: "broken" }));
        }
        self.below.resize(self.below.len().max(input + 1), 0);
        self.below[input] = batch.iter().last().map_or(0, |message| message.sequence + 1);
        Ok(batch.len())
    }

    fn looks_at_payloads(&self) -> bool {
        !self.needs_positions_alone
    }

    fn confirmed(&mut self) -> Result<Confirmed, Fault> {
        let below = self.below.iter().map(|below| below + self.says_more).collect();
        Ok(Confirmed { below, ..Confirmed::default() })
    }
}

/// A data folder with streams of ten messages each.
fn with_ten(machine: &Machine, streams: &[&str]) -> (Data, Vec<Writer>) {
    let data = Data { media: machine.start(), folder: "/disk/data".into(), drain: Drain::Caller };
    let of = |stream: &&str| {
        let mut writer = data.writer(stream, &Options::disk(1 << 20)).unwrap();
        let origin = writer.origin("a").unwrap();
        for n in 0..10 {
            let schema = SchemaId(*b"test");
            writer.append(&Meta { source_time: n, origin, origin_seq: n as u64, schema, flags: 0 }, b"bytes").unwrap();
        }
        writer.drain().unwrap();
        writer
    };
    let writers = streams.iter().map(of).collect();
    (data, writers)
}

fn relay_of(data: &Data, inputs: &[&str], sink: Taking) -> Relay {
    let inputs: Vec<String> = inputs.iter().map(ToString::to_string).collect();
    Relay::open(data, STAGE, &inputs, Box::new(sink), RelayOptions::default(), data.media.now()).unwrap()
}

#[test]
fn what_cannot_be_read_is_lost_to_a_live_sink_once_with_its_reason() {
    let machine = Machine::new(1);
    let (data, writers) = with_ten(&machine, &["alpha", "beta"]);
    drop(writers);
    data.media.unlink(&data.stream("alpha").join("p-00000000")).unwrap();
    for _ in 0..2 {
        let mut relay = relay_of(&data, &["alpha", "beta"], Taking::default());
        for _ in 0..10 {
            machine.advance(100 * MS);
            relay.step(machine.now()).unwrap();
        }
        assert!(relay.is_idle());
        let rows = ledger::stage(&data, STAGE).unwrap();
        assert_eq!(rows, ledger::stages(&data).unwrap());
        let of = |row: &ledger::Row| (row.read, row.done, row.lost.get("missing").copied(), row.closed);
        assert_eq!(rows.iter().map(of).collect::<Vec<_>>(), [(10, 0, Some(10), true), (10, 10, None, true)]);
    }
}

#[test]
fn payloads_are_verified_for_a_live_sink_that_looks_at_them() {
    for needs_positions_alone in [false, true] {
        let machine = Machine::new(1);
        let (data, writers) = with_ten(&machine, &["alpha"]);
        drop(writers);
        machine.flip(&data.stream("alpha").join("p-00000000"), 2).unwrap();
        let mut relay = relay_of(&data, &["alpha"], Taking { needs_positions_alone, ..Taking::default() });
        for _ in 0..10 {
            machine.advance(100 * MS);
            relay.step(machine.now()).unwrap();
        }
        let row = ledger::stage(&data, STAGE).unwrap().remove(0);
        let lost = row.lost.values().sum::<u64>();
        assert_eq!((row.done, lost), if needs_positions_alone { (10, 0) } else { (9, 1) }, "{:?}", row.lost);
    }
}

#[test]
fn a_stream_that_is_no_input_of_a_live_sink_any_more_is_not_held_back_by_it() {
    let machine = Machine::new(1);
    let (data, _writers) = with_ten(&machine, &["alpha", "beta"]);
    let is_held = |stream: &str| {
        let readers = data.reader_early(stream).unwrap().pins().readers();
        readers.iter().any(|reader| reader.name == STAGE)
    };
    let mut relay = relay_of(&data, &["alpha", "beta"], Taking::default());
    for _ in 0..10 {
        machine.advance(100 * MS);
        relay.step(machine.now()).unwrap();
    }
    drop(relay);
    assert!(is_held("alpha") && is_held("beta"));
    let _relay = relay_of(&data, &["beta"], Taking::default());
    assert!(!is_held("alpha") && is_held("beta"));
}

#[test]
fn a_sink_that_confirms_what_it_was_not_given_is_a_fault_and_nothing_is_committed() {
    let machine = Machine::new(1);
    let (data, _writers) = with_ten(&machine, &["alpha"]);
    let mut relay = relay_of(&data, &["alpha"], Taking { says_more: 1, ..Taking::default() });
    machine.advance(100 * MS);
    let fault = relay.step(machine.now()).unwrap_err();
    assert!(fault.what.contains("sink `out`") && fault.cause.contains("message 10 of `alpha`"), "{fault}");
    let row = ledger::stage(&data, STAGE).unwrap().remove(0);
    assert_eq!((row.read, row.done, row.held, row.closed), (10, 0, 10, true));
}

#[test]
fn a_live_sink_that_ended_without_room_for_a_message_aside_spun_until_its_time_was_over() {
    let machine = Machine::new(1);
    let (data, _writers) = with_ten(&machine, &["alpha"]);
    let mut relay = relay_of(&data, &["alpha"], Taking { sets_aside: true, ..Taking::default() });
    assert!(relay.close().unwrap(), "nothing is outstanding");
    relay.step(machine.now()).unwrap();
    machine.room(0, 0);
    for _ in 0..3 {
        assert!(!relay.close().unwrap());
        assert_eq!(relay.trouble().map(|fault| fault.passes), Some(Passes::WithRoom));
    }
    machine.room(u64::MAX, u64::MAX);
    assert!(relay.close().unwrap() && relay.trouble().is_none());
    let row = ledger::stage(&data, STAGE).unwrap().remove(0);
    assert_eq!((row.read, row.aside["broken"], row.closed), (10, 10, true));
}

fn lives(test: &str, seeds: u64) {
    let sum = histories(test, seeds, |seed| History::new(seed).live());
    println!(
        "histories of live sinks: injected {} deaths of relays, {} power cuts, {} panics of sinks, {} lost connections into {} ({} of \
         them early): {} messages, {} received over {} connections, {} aside, {} lost where the source drops, 0 lost where it \
         waits, 0 out of order, 0 acknowledged before they were safe",
        sum["deaths"],
        sum["cuts"],
        sum["panics"],
        sum["losses"],
        sum["histories"],
        sum["early"],
        sum["messages"],
        sum["received"],
        sum["connections"],
        sum["aside"],
        sum["lost"],
    );
    // Histories in which nothing happens prove nothing.
    let n = sum["histories"];
    let happens = sum["deaths"] > n && sum["cuts"] > n / 4 && sum["losses"] > n && sum["lost"] > 0 && sum["panics"] > 0;
    assert!(n < 100 || happens, "{sum:?}");
}

#[test]
fn whatever_dies_the_outside_has_each_message_in_order_and_none_is_acknowledged_before() {
    lives("relay::whatever_dies_the_outside_has_each_message_in_order_and_none_is_acknowledged_before", SEEDS);
}

#[test]
#[ignore = "full counts: cargo xtask soak"]
fn soak_live_sinks() {
    lives("relay::soak_live_sinks", 20_000);
}
