//! Merges on the pretend machine; by number: `merge/number.rs`. By time: any order of arrival within the wait, inputs that are idle, dead, late, ahead or
//! gone, and kills and power cuts at any moment, from seeds.
//!
//! What is checked: the output is in the order (time, input, sequence) for everybody who ever looked; what was shown stays
//! what it is; each message of an input is in the output, aside, or counted as lost, exactly once; the account of each
//! input closes.

mod again;
mod number;
mod parts;
mod rebuilt;

use beamport_testkit::{Dice, Machine, PretendMedia, histories};
use flow::records::{Commit, Input};
use flow::{
    Data, Merge, MergeBy, MergeInput, MergeOptions, Step, StreamView, TimeSlices, UpstreamState, aside_of, commits_of,
    ledger,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::{Check, Drain, Level, Meta, Options, ReadOptions, SchemaId, WhenFull, Writer};

const MS: i64 = 1_000_000;
const SECOND: i64 = 1000 * MS;
const WAIT: i64 = 200 * MS;
const NAME: &str = "all";
/// Steps after the last fault within which everything must come to its end.
const PATIENCE: u64 = 2000;

/// Where a message stands in the output: time or number, input, sequence.
type Key = (i64, usize, u64);
type Checked<T = ()> = Result<T, String>;

fn payload(input: usize, number: u64, len: usize) -> Vec<u8> {
    let word = (number << 8 | input as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..len).map(|i| word[i % 8] ^ (i / 8) as u8).collect()
}

/// An input as the world knows it: its messages in the order in which they are said.
struct Bank {
    options: Options,
    said: Vec<(i64, usize)>,
    /// Their numbers, where these are not just their places.
    ids: Vec<u64>,
    /// Where later lives of its board begin.
    lives: Vec<u64>,
    writer: Option<Writer>,
}

impl Bank {
    fn new(options: Options) -> Self {
        Self { options, said: Vec::new(), ids: Vec::new(), lives: Vec::new(), writer: None }
    }
}

/// A machine with some inputs and a merge.
struct Place {
    machine: Machine,
    process: Arc<PretendMedia>,
    witness: Arc<PretendMedia>,
    folder: &'static str,
    level: Level,
    banks: Vec<Bank>,
    by: MergeBy,
    /// The part of time that is merged.
    slices: Option<TimeSlices>,
    by_frontier: bool,
    merge: Option<Merge>,
    /// How often the numbers may restart.
    rounds: usize,
    ended: bool,
    /// By how much the clock was set, ns.
    set: i64,
    /// What was seen, by sequence: in the output and aside.
    shown: BTreeMap<u64, Key>,
    aside: BTreeMap<u64, Key>,
}

impl Place {
    fn new(seed: u64, level: Level, banks: Vec<Bank>) -> Self {
        let machine = Machine::new(seed);
        let (process, witness) = (machine.start(), machine.start());
        let folder = if level == Level::Disk { "/disk/data" } else { "/live/data" };
        let (shown, aside) = Default::default();
        let by = MergeBy::Time { slice: 10 * MS, ahead_max: 60 * SECOND };
        let (merge, rounds, ended, set) = (None, 0, false, 0);
        let (slices, by_frontier) = (None, false);
        Self {
            machine,
            process,
            witness,
            folder,
            level,
            banks,
            by,
            slices,
            by_frontier,
            merge,
            rounds,
            ended,
            set,
            shown,
            aside,
        }
    }

    fn data(&self, process: &Arc<PretendMedia>) -> Data {
        Data { media: process.clone(), folder: self.folder.into(), drain: Drain::Caller }
    }

    fn name(i: usize) -> String {
        format!("bank{i}")
    }

    fn stream(&self) -> Options {
        Options { level: self.level, ..Options::disk(8 << 20) }
    }

    fn open_bank(&mut self, i: usize) -> Result<(), flow::Fault> {
        if self.banks[i].writer.is_none() {
            let mut writer = self.data(&self.process).writer(&Self::name(i), &self.banks[i].options)?;
            writer.origin("board").map_err(|e| flow::Fault::new("origin", e))?;
            self.banks[i].writer = Some(writer);
        }
        Ok(())
    }

    fn open(&mut self) -> Result<(), flow::Fault> {
        for i in 0..self.banks.len() {
            self.open_bank(i)?;
        }
        if self.merge.is_none() {
            let (slices, by_frontier) = (self.slices, self.by_frontier);
            let input =
                |i| MergeInput { stream: Self::name(i), wait: WAIT, slices, by_frontier, ..MergeInput::default() };
            let inputs: Vec<MergeInput> = (0..self.banks.len()).map(input).collect();
            let options = MergeOptions { stream: self.stream(), by: self.by };
            self.merge = Some(Merge::open(&self.data(&self.process), NAME, &inputs, &options)?);
        }
        Ok(())
    }

    /// Brings what was said and is not in the stream, at most `most`; publishes it.
    fn bring(&mut self, i: usize, most: u64) -> Result<(), store::Error> {
        let Bank { said, ids, lives, writer: Some(writer), .. } = &mut self.banks[i] else { return Ok(()) };
        for _ in 0..most {
            let number = writer.next_sequence();
            let Some(&(source_time, len)) = said.get(number as usize) else { break };
            let origin_seq = ids.get(number as usize).copied().unwrap_or(number);
            let origin = match lives.partition_point(|begins| *begins <= number) {
                0 => writer.origin("board")?,
                before => writer.origin(&format!("board#{}", before + 1))?,
            };
            let meta = Meta { source_time, origin, origin_seq, schema: SchemaId(*b"test"), flags: 0 };
            match writer.push(&meta, &[&payload(i, number, len)]) {
                Err(e) if e.is_full() || matches!(e, store::Error::Dropped) => break,
                answer => answer.map(drop)?,
            }
        }
        writer.publish();
        Ok(())
    }

    fn say(&mut self, i: usize, time: i64) {
        self.banks[i].said.push((time, 16));
        self.bring(i, 1).unwrap();
    }

    fn drain(&mut self) -> Result<(), flow::Fault> {
        for bank in self.banks.iter_mut().filter_map(|b| b.writer.as_mut()) {
            match bank.drain() {
                Err(e) if !e.is_full() => return Err(flow::Fault::new("drain", e)),
                _ => {}
            }
        }
        self.merge.as_mut().map_or(Ok(()), Merge::drain)
    }

    fn step(&mut self, frontier: Option<i64>) -> Result<Option<Step>, flow::Fault> {
        let now = self.machine.now();
        let heard =
            UpstreamState { frontier: frontier.unwrap_or(i64::MIN), ended: self.ended, ..UpstreamState::NOTHING };
        let heard = vec![heard; self.banks.len()];
        let clock = now - self.set;
        self.merge.as_mut().map(|merge| merge.step(now, clock, &heard)).transpose()
    }

    /// Somebody sets the machine's clock: the one that is never set goes on.
    fn set_clock(&mut self, ns: i64) {
        self.machine.advance(ns);
        self.set += ns;
    }

    /// Time goes on in steps of 5 ms, of everything.
    fn live(&mut self, ns: i64) {
        let end = self.machine.now() + ns;
        while self.machine.now() < end {
            self.machine.advance(5 * MS);
            self.drain().unwrap();
            self.step(None).unwrap();
        }
        self.compare().unwrap();
    }

    /// Looks at the output and aside as anybody would.
    fn compare(&mut self) -> Checked {
        let data = self.data(&self.witness);
        let mut all = [(NAME.to_string(), &mut self.shown), (aside_of(NAME), &mut self.aside)];
        for (name, seen) in &mut all {
            let options =
                ReadOptions { early: self.level == Level::Memory, check: Check::Entries, ..ReadOptions::default() };
            let Ok(mut reader) = data.reader(name, options) else { continue };
            let rows = reader.parents().map_err(|e| e.to_string())?;
            let (first, end) = (reader.bounds().first, reader.end());
            let mut at = first.max(seen.last_key_value().map_or(0, |s| s.0 + 1));
            if let Some((last, _)) = seen.last_key_value().filter(|s| s.0 + 1 > end) {
                return Err(format!("{name}: {last} was shown, it ends at {end}"));
            }
            while at < end {
                for (entry, sequence) in reader.entries(at, 4096).map_err(|e| e.to_string())?.to_vec().iter().zip(at..)
                {
                    let row = rows.get(usize::from(entry.parent) - 1).ok_or("an entry without a parent")?;
                    let input = row.name.trim_start_matches("bank").parse().map_err(|_| "another parent")?;
                    let key = match self.by {
                        MergeBy::Time { .. } => entry.source_time,
                        MergeBy::Number { .. } => entry.origin_seq as i64,
                    };
                    seen.insert(sequence, (key, input, entry.parent_sequence));
                    at = sequence + 1;
                }
            }
        }
        Ok(())
    }

    /// Some steps of everything, in which things go wrong now and then. How often the merge died.
    fn misfortune(&mut self, dice: &mut Dice, now: i64) -> Checked<u64> {
        let level = self.level;
        let stops = dice.one_in(12);
        let mut deaths = 0;
        match dice.below(16) {
            _ if stops => self.machine.stop_after(Some(dice.below(40))),
            0 => {
                let (disk, live) = self.machine.used();
                let room = dice.below(400_000);
                self.machine.room(disk + room, live + room);
            }
            1 => self.machine.room(u64::MAX, u64::MAX),
            2 if level == Level::Disk => self.machine.fail_sync_after(Some(dice.below(6))),
            _ => {}
        }
        let mut dies = stops;
        for _ in 0..dice.range(1, 6) {
            let frontier = dice.one_in(2).then_some(now);
            let answer = match dice.below(4) {
                0 => self.drain(),
                1 => {
                    let i = dice.below(self.banks.len() as u64) as usize;
                    self.bring(i, dice.range(1, 20)).map_err(|e| flow::Fault::new("push", e))
                }
                _ => self.step(frontier).map(drop),
            };
            // Whoever runs a stage that failed ends it.
            dies |= answer.is_err();
            if dies {
                break;
            }
        }
        if !dies {
            self.compare()?;
            // With what is held it closes at any moment.
            let rows = ledger::stage(&self.data(&self.witness), NAME).unwrap_or_default();
            if let Some(row) = rows.iter().find(|row| !row.closed) {
                return Err(format!("in the midst of it: {row:?}"));
            }
        }
        if level == Level::Disk && (dice.one_in(14) || dies && dice.one_in(2)) {
            deaths += 1;
            self.cut();
        } else if dies || dice.one_in(10) {
            deaths += 1;
            self.kill();
        }
        if stops {
            self.machine.stop_after(None);
        }
        Ok(deaths)
    }

    fn kill(&mut self) {
        let writers: Vec<Option<Writer>> = self.banks.iter_mut().map(|b| b.writer.take()).collect();
        // SAFETY: all maps of this process are in these objects.
        unsafe { self.machine.kill(&self.process, (self.merge.take(), writers)) };
        self.process = self.machine.start();
    }

    fn cut(&mut self) {
        let writers: Vec<Option<Writer>> = self.banks.iter_mut().map(|b| b.writer.take()).collect();
        // SAFETY: all maps of all processes are in these objects; readers of checks were dropped.
        unsafe { self.machine.power_cut((self.merge.take(), writers)) };
        (self.process, self.witness) = (self.machine.start(), self.machine.start());
    }

    /// No more faults: everything that was said comes to its end.
    fn end(&mut self) -> Checked {
        self.machine.stop_after(None);
        self.machine.fail_sync_after(None);
        self.machine.room(u64::MAX, u64::MAX);
        self.kill();
        self.open().map_err(|e| e.to_string())?;
        for _ in 0..PATIENCE {
            self.machine.advance(10 * MS);
            for i in 0..self.banks.len() {
                self.bring(i, u64::MAX).map_err(|e| e.to_string())?;
            }
            self.drain().map_err(|e| e.to_string())?;
            let brought = |b: &Bank| b.writer.as_ref().is_some_and(|w| w.next_sequence() == b.said.len() as u64);
            self.ended = self.banks.iter().all(brought);
            self.step(None).map_err(|e| e.to_string())?;
            self.compare()?;
            let merge = self.merge.as_ref().ok_or("no merge")?;
            if self.ended && merge.ended() && merge.marked() {
                self.compare()?;
                return Ok(());
            }
        }
        let merge = self.merge.as_ref().ok_or("no merge")?;
        Err(format!("it does not come to its end: {:?} {:?}", StreamView::from(merge), merge.trouble()))
    }

    /// The account of each input, as its newest commit has it.
    fn accounts(&self) -> Vec<Input> {
        let book = self.data(&self.witness).book_messages(&commits_of(NAME)).unwrap();
        book.last().map_or_else(Vec::new, |bytes| Commit::read(bytes).unwrap().inputs)
    }

    /// Everything that was said is where the account says, once, in order. `whole`: the output still holds everything.
    fn check(&self, whole: bool) -> Checked<Outcome> {
        let order: Vec<&Key> = self.shown.values().collect();
        if let Some(pair) = order.windows(2).filter(|pair| pair[0] >= pair[1]).nth(self.rounds) {
            return Err(format!("{:?} stands before {:?}", pair[0], pair[1]));
        }
        let mut seen: BTreeSet<(usize, u64)> = BTreeSet::new();
        for key in order.iter().copied().chain(self.aside.values()) {
            if !seen.insert((key.1, key.2)) {
                return Err(format!("{key:?} is there twice"));
            }
            let bank = &self.banks[key.1];
            let said = match self.by {
                MergeBy::Time { .. } => bank.said.get(key.2 as usize).map(|said| said.0),
                MergeBy::Number { .. } => bank.ids.get(key.2 as usize).map(|&id| id as i64),
            };
            if self.slices.is_some_and(|slices| !slices.contains(key.0)) {
                return Err(format!("{key:?} is of another part"));
            }
            if said != Some(key.0) {
                return Err(format!("{key:?} was never said: {said:?}"));
            }
        }
        let mut outcome = Outcome::default();
        for (i, account) in self.accounts().iter().enumerate() {
            let count =
                |kind: &str| -> u64 { account.counts.iter().filter(|c| c.0.starts_with(kind)).map(|c| c.1).sum() };
            let (aside, lost) = (count("aside."), count("lost."));
            let shown = self.shown.values().filter(|k| k.1 == i).count() as u64;
            let away = self.aside.values().filter(|k| k.1 == i).count() as u64;
            let said = self.banks[i].said.len() as u64;
            let skipped = count("skipped.");
            let others = self.slices.map_or(0, |slices| {
                let of_others = |said: &&(i64, usize)| !slices.contains(said.0);
                self.banks[i].said[account.first as usize..].iter().filter(of_others).count() as u64
            });
            if skipped > others || skipped < others && lost == 0 {
                return Err(format!("bank{i}: {skipped} skipped of {others}: {account:?}"));
            }
            let fits = |known: u64, seen: u64| if whole { known == seen } else { known >= seen };
            if account.next != said || account.done + aside + skipped + lost != said - account.first {
                return Err(format!("bank{i} said {said}: {account:?}"));
            }
            if !fits(account.done, shown) || !fits(aside, away) {
                return Err(format!("bank{i}: {shown} shown, {away} aside: {account:?}"));
            }
            let row = ledger::stage(&self.data(&self.witness), NAME).map_err(|e| e.to_string())?.remove(i);
            if !row.closed || row.held > 0 || row.read != said - account.first {
                return Err(format!("the account of bank{i} does not close: {row:?}"));
            }
            outcome.done += account.done;
            outcome.aside += aside;
            outcome.lost += lost;
        }
        if whole {
            self.check_payloads()?;
        }
        Ok(outcome)
    }

    fn check_payloads(&self) -> Checked {
        let options = ReadOptions { early: true, ..ReadOptions::default() };
        let mut reader = self.data(&self.witness).reader(NAME, options).map_err(|e| e.to_string())?;
        loop {
            let batch = reader.read(1000).map_err(|e| e.to_string())?;
            if batch.is_empty() {
                return Ok(());
            }
            for message in batch.iter() {
                let Some(&(_, input, number)) = self.shown.get(&message.sequence) else {
                    return Err(format!("{} was not shown before", message.sequence));
                };
                if message.payload != payload(input, number, self.banks[input].said[number as usize].1) {
                    return Err(format!("message {} is another than {number} of bank{input}", message.sequence));
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Outcome {
    done: u64,
    aside: u64,
    lost: u64,
    deaths: u64,
}

fn bank(level: Level) -> Bank {
    Bank::new(Options { level, ..Options::disk(1 << 20) })
}

fn banks(level: Level, count: usize) -> Vec<Bank> {
    (0..count).map(|_| bank(level)).collect()
}

fn times(place: &Place) -> Vec<i64> {
    place.shown.values().map(|k| k.0).collect()
}

// ---- order -----------------------------------------------------------------------------------------------------------

/// Messages (input, time) that arrive in some order, each less than the wait behind its time.
fn arrive(
    seed: u64,
    level: Level,
    said: &[(usize, i64)],
    inputs: usize,
    slices: Option<TimeSlices>,
) -> Vec<(i64, usize)> {
    let mut dice = Dice::new(seed);
    let mut place = Place { slices, ..Place::new(seed, level, banks(level, inputs)) };
    place.open().unwrap();
    let begin = place.machine.now();
    let is_heard = dice.one_in(2);
    let slow = dice.below(WAIT as u64 - 10 * MS as u64);
    let mut coming: Vec<(i64, usize, i64)> = Vec::new();
    for &(input, time) in said {
        // One input late as a whole, or each message by itself.
        let late = if input as u64 == seed % 5 { slow } else { dice.below(WAIT as u64 - 10 * MS as u64) };
        coming.push((begin + time + late as i64, input, begin + time));
    }
    coming.sort_unstable();
    let mut coming = coming.into_iter().peekable();
    let end = begin + 2 * SECOND + 2 * WAIT;
    while place.machine.now() < end {
        place.machine.advance(dice.range(1, 8) as i64 * MS);
        let now = place.machine.now();
        while let Some((_, input, time)) = coming.next_if(|c| c.0 <= now) {
            place.say(input, time);
        }
        if dice.one_in(2) {
            place.drain().unwrap();
        }
        place.step(is_heard.then_some(now)).unwrap();
        place.compare().unwrap();
    }
    assert!(coming.peek().is_none());
    place.live(SECOND);
    assert_eq!(place.aside, BTreeMap::new(), "seed {seed}: nothing came later than the wait");
    place.check(true).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    place.shown.values().map(|k| (k.0 - begin, k.1)).collect()
}

#[test]
fn any_order_of_arrival_within_the_wait_gives_the_same_output() {
    let mut messages = 0;
    for seed in 0..60 {
        let mut dice = Dice::new(seed);
        let inputs = dice.range(1, 6) as usize;
        // The last input never says anything.
        let mut said: Vec<(usize, i64)> = (0..dice.range(1, 150))
            .map(|_| (dice.below(inputs as u64) as usize, dice.below(2 * SECOND as u64) as i64 / MS * MS))
            .collect();
        said.sort_unstable_by_key(|s| (s.1, s.0));
        said.dedup();
        let expected: Vec<(i64, usize)> = said.iter().map(|s| (s.1, s.0)).collect();
        for run in 0..3 {
            let level = if run == 0 { Level::Disk } else { Level::Memory };
            assert_eq!(arrive(seed * 10 + run, level, &said, inputs + 1, None), expected, "seed {seed}, run {run}");
        }
        // The parts of several hosts are the same messages, each in one of them.
        let parts = dice.range(1, 5) as u32;
        let mut all = Vec::new();
        for part in 0..parts {
            let slices = TimeSlices { length: 30 * MS, parts, part, overlap: 0 };
            let merged = arrive(seed * 10 + 5 + u64::from(part), Level::Memory, &said, inputs + 1, Some(slices));
            assert!(merged.is_sorted(), "seed {seed}, part {part}");
            all.extend(merged);
        }
        all.sort_unstable();
        assert_eq!(all, expected, "seed {seed}, {parts} parts");
        messages += expected.len();
    }
    assert!(messages > 1000, "{messages}");
}

// ---- inputs of every kind --------------------------------------------------------------------------------------------

#[test]
fn an_idle_input_and_a_dead_one_are_waited_for_once() {
    let mut place = Place::new(1, Level::Memory, banks(Level::Memory, 3));
    place.open().unwrap();
    let begin = place.machine.now();
    // Input 1 says one thing and dies, input 2 never says anything.
    place.say(1, begin);
    drop(place.banks[1].writer.take());
    for i in 1..100 {
        place.live(10 * MS);
        place.say(0, begin + i * 10 * MS);
    }
    // Messages older than the wait and a slice are there, whichever input is silent.
    place.live(20 * MS);
    let newest = *times(&place).last().unwrap();
    assert!(newest >= place.machine.now() - WAIT - 40 * MS, "{} ms behind", (place.machine.now() - newest) / MS);
    place.live(WAIT + 20 * MS);
    assert_eq!(place.shown.len(), 100);
    assert!(place.aside.is_empty());
}

#[test]
fn an_input_that_comes_back_is_late_with_what_is_old_and_merged_with_what_is_new() {
    let mut place = Place::new(1, Level::Memory, banks(Level::Memory, 2));
    place.open().unwrap();
    let begin = place.machine.now();
    for i in 0..100 {
        place.live(10 * MS);
        place.say(0, begin + i * 10 * MS);
    }
    place.live(WAIT);
    let frontier = place.merge.as_ref().unwrap().frontier();
    // All of its backlog at once.
    for i in 0..100 {
        place.say(1, begin + i * 10 * MS + 1);
    }
    let now = place.machine.now();
    place.say(1, now);
    place.say(0, now + 1);
    place.live(2 * WAIT);
    place.end().unwrap();
    let outcome = place.check(true).unwrap();
    let late = (0..100).filter(|i| begin + i * 10 * MS + 1 < frontier).count();
    assert_eq!((outcome.aside, place.aside.len()), (late as u64, late));
    assert!(late > 50 && place.shown.values().any(|k| *k == (now, 1, 100)), "{late}");
    assert_eq!(place.accounts()[1].counts["aside.late"], late as u64);
}

#[test]
fn a_clock_that_is_ahead_moves_nothing() {
    let mut place = Place::new(1, Level::Memory, banks(Level::Memory, 2));
    place.open().unwrap();
    let begin = place.machine.now();
    for i in 0..50 {
        place.live(10 * MS);
        place.say(0, begin + i * 10 * MS);
        place.say(1, begin + i * 10 * MS);
        if i == 10 {
            place.say(1, begin + 24 * 3600 * SECOND);
            place.say(1, i64::MAX);
        }
    }
    place.live(2 * WAIT);
    assert_eq!((place.shown.len(), place.aside.len()), (100, 2));
    assert!(place.merge.as_ref().unwrap().frontier() < place.machine.now());
    place.end().unwrap();
    place.check(true).unwrap();
    assert_eq!(place.accounts()[1].counts["aside.ahead"], 2);
}

/// For `ns`, each of the first two banks sends a message of now with `len` bytes every 10 ms. Without room it waits,
/// but not for long: merge and views release messages on request.
fn say_for(place: &mut Place, ns: i64, len: usize) {
    for _ in 0..ns / (10 * MS) {
        place.live(10 * MS);
        let now = place.machine.now();
        for i in 0..2 {
            place.banks[i].said.push((now + i as i64, len));
            let mut tries = 0..5;
            while place.banks[i].writer.as_ref().unwrap().next_sequence() < place.banks[i].said.len() as u64 {
                assert!(tries.next().is_some(), "bank{i} stands still: {:?}", place.accounts());
                place.bring(i, u64::MAX).unwrap();
                place.live(5 * MS);
            }
        }
    }
}

#[test]
fn a_clock_that_was_set_back_holds_nothing_and_what_is_old_then_is_late() {
    for (level, dies) in [(Level::Memory, false), (Level::Disk, false), (Level::Memory, true), (Level::Disk, true)] {
        let mut place = Place::new(1, level, banks(level, 3));
        place.open().unwrap();
        // The third never says anything.
        say_for(&mut place, SECOND, 100);
        place.set_clock(-3600 * SECOND);
        if dies {
            place.kill();
            place.open().unwrap();
        }
        // Much more than the streams hold in memory.
        say_for(&mut place, 4 * SECOND, 20_000);
        let accounts = place.accounts();
        assert_eq!(place.shown.len(), 200, "{level:?}: {accounts:?}");
        assert!(place.aside.len() > 700, "{level:?}: {}", place.aside.len());
        // It is set right: times go on where they were, and nothing of now is late.
        place.set_clock(3600 * SECOND);
        say_for(&mut place, SECOND, 100);
        place.live(2 * WAIT);
        assert_eq!((place.shown.len(), place.aside.len()), (400, 800), "{level:?}");
        place.end().unwrap();
        let outcome = place.check(false).unwrap();
        assert_eq!((outcome.done, outcome.aside, outcome.lost), (400, 800, 0), "{level:?}");
        assert_eq!(place.accounts()[1].counts["aside.late"], 400);
    }
}

#[test]
fn a_clock_that_was_set_forward_makes_nothing_late_that_was_under_way() {
    for (level, is_heard) in [(Level::Memory, false), (Level::Disk, false), (Level::Memory, true), (Level::Disk, true)]
    {
        let mut place = Place::new(1, level, banks(level, 3));
        place.open().unwrap();
        say_for(&mut place, SECOND, 100);
        let before = place.machine.now();
        place.set_clock(3600 * SECOND);
        // Messages made before it was set arrive meanwhile, within the wait.
        for i in 0..(WAIT - 40 * MS) / (10 * MS) {
            let now = place.machine.now();
            place.say(0, now);
            place.say(1, before - i * MS);
            for _ in 0..2 {
                place.machine.advance(5 * MS);
                place.drain().unwrap();
                place.step(is_heard.then_some(now)).unwrap();
            }
        }
        say_for(&mut place, SECOND, 100);
        place.live(2 * WAIT);
        assert_eq!((place.aside.len(), place.shown.len()), (0, 400 + 2 * 16), "{level:?} {is_heard}");
        place.end().unwrap();
        place.check(true).unwrap();
    }
}

#[test]
fn what_retention_took_before_it_was_merged_is_lost_and_counted() {
    for level in [Level::Memory, Level::Disk] {
        let mut list = banks(level, 2);
        list[0].options.when_full = WhenFull::DropOldest;
        if level == Level::Disk {
            list[0].options.retain_bytes = Some(1 << 20);
        }
        let mut place = Place::new(1, level, list);
        place.open().unwrap();
        let begin = place.machine.now();
        // Three times what the stream holds, in turns that a merge that stands still does not follow.
        for i in 0..600 {
            place.banks[0].said.push((begin + i * MS, 6000));
            place.bring(0, 1).unwrap();
            if i % 4 == 0 {
                place.drain().unwrap();
            }
            if i == 20 {
                // Some wait for their slice when they go.
                place.machine.advance(5 * MS);
                place.step(None).unwrap();
            }
        }
        place.live(SECOND);
        place.end().unwrap();
        let outcome = place.check(false).unwrap();
        let account = &place.accounts()[0];
        assert!(outcome.lost > 100 && account.counts["lost.full"] == outcome.lost, "{account:?}");
        assert_eq!(place.shown.values().filter(|k| k.1 == 0).count() as u64, account.done);
    }
}

// ---- histories -------------------------------------------------------------------------------------------------------

/// A history from a seed: messages of every kind, kills, power cuts, full disks, failing syncs.
fn history(seed: u64) -> Checked<Outcome> {
    history_of(seed, None)
}

fn history_of(seed: u64, slices: Option<TimeSlices>) -> Checked<Outcome> {
    let mut dice = Dice::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
    let level = if dice.one_in(3) { Level::Memory } else { Level::Disk };
    let tight = dice.one_in(4);
    let mut list = banks(level, dice.range(1, 5) as usize);
    let drops = tight && dice.one_in(2);
    for bank in &mut list {
        if drops && dice.one_in(2) {
            bank.options.when_full = WhenFull::DropOldest;
            bank.options.retain_bytes = (level == Level::Disk).then_some(1 << 20);
        }
    }
    let wild = dice.one_in(2);
    let mut place = Place { slices, ..Place::new(seed, level, list) };
    let mut deaths = 0;
    // Of their own, so that the rest of a history stays what it was.
    let mut clocks = Dice::new(seed ^ 0x6a09_e667_f3bc_c908);
    let is_set = clocks.one_in(4);
    for _ in 0..dice.range(20, 120) {
        place.machine.advance(dice.below(60 * MS as u64) as i64);
        if is_set && clocks.one_in(20) {
            let by = clocks.below(7200) as i64 - 3600;
            place.set_clock(by * SECOND);
        }
        if place.open().is_err() {
            place.kill();
            deaths += 1;
            place.machine.stop_after(None);
            continue;
        }
        let now = place.machine.now();
        for i in 0..place.banks.len() {
            for _ in 0..dice.below(8) {
                let time = match dice.below(30) {
                    0 if wild => now + 3600 * SECOND,
                    1 if wild => dice.word() as i64,
                    2..5 if wild => now - dice.below(2 * SECOND as u64) as i64,
                    5..10 => now / (20 * MS) * (20 * MS),
                    _ => now - dice.below(WAIT as u64 / 2) as i64,
                };
                let len = dice.below(if tight { 20_000 } else { 40 }) as usize;
                place.banks[i].said.push((time, len));
            }
        }
        deaths += place.misfortune(&mut dice, now)?;
    }
    place.end()?;
    let relieved = tight;
    let outcome = place.check(!relieved)?;
    if !drops && outcome.lost > 0 {
        return Err(format!("lost though all inputs wait: {:?}", place.accounts()));
    }
    Ok(Outcome { deaths, ..outcome })
}

/// Lives the histories of `test`, of which one is `history`.
fn lives(test: &str, seeds: u64, history: fn(u64) -> Checked<Outcome>) {
    let sum = histories(test, seeds, |seed| {
        let Outcome { done, aside, lost, deaths } = history(seed).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        [("done", done), ("aside", aside), ("lost", lost), ("deaths", deaths)].into()
    });
    let [all, deaths, done, aside, lost] = ["histories", "deaths", "done", "aside", "lost"].map(|name| sum[name]);
    println!(
        "{test}: injected {deaths} kills and power cuts into {all} histories, {done} messages merged, {aside} aside, {lost} \
         lost by policy and counted"
    );
    // Histories in which nothing happens prove nothing.
    assert!(all < 100 || deaths > 2 * all && done > 100 * all && aside > all && lost > 0, "{sum:?}");
}

#[test]
fn a_merge_shows_each_message_once_whatever_dies_when() {
    lives("merge::a_merge_shows_each_message_once_whatever_dies_when", 200, history);
}

#[test]
#[ignore = "full counts: cargo xtask soak"]
fn soak_merges_by_time() {
    lives("merge::soak_merges_by_time", 20_000, history);
}
