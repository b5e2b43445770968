//! Merge by number: the key of a message, and which ids may be shown.
//!
//! The number is `origin_seq` of the index entry, so no payload is touched. An origin may restart from a small number;
//! each such *round* has keys of its own, 2^32 above those of the round before, so that otherwise numbers work like
//! times. The lives of a device (`NAME#2`) are one maker.
//!
//! Constraints: a message costs lookups in two small maps; waiting ids take 16 bytes each.
//!
//! Failure behaviour: a number of 2^63 or more has no key: the message is set aside as `number`.

use crate::records::Gap;
use crate::{Fault, device_of};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use store::{Clock, Entry};

/// Keys between the largest of a round and the first of the next: what of the old round is still to come finds its place.
const ROOM: i64 = 1 << 32;
/// A number that goes back by no more than this comes late, and begins no round: what slots have under way at once.
const LATE: u64 = 1000;
/// Rounds that are known at once: the oldest give way.
const ROUNDS_MAX: usize = 64;

/// A time from which a maker counts on, until it restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Round {
    /// The key of its number 0.
    base: i64,
    /// Source time of its first message.
    began: i64,
}

/// How the numbers of one maker in one input went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Line {
    /// From which sequence on which round: its base.
    rounds: Vec<(u64, i64)>,
    /// Largest number of the newest round, and the source time of its message.
    top: (u64, i64),
}

/// How the numbers of one input went, by device: the row of its first life in the table of origins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Course {
    lines: BTreeMap<u32, Line>,
    /// Of each row of the table of origins, the device.
    #[serde(skip)]
    devices: Vec<u32>,
    /// Below this sequence it is settled.
    #[serde(skip)]
    decided: u64,
    /// Source times say that time goes on.
    #[serde(skip)]
    has_times: bool,
}

impl Course {
    /// Of a stream with this clock.
    pub(super) fn of(clock: Clock) -> Self {
        Self { has_times: clock == Clock::Epoch, ..Self::default() }
    }

    /// Whether the device of a row is known.
    pub(super) fn knows(&self, row: u32) -> bool {
        (row as usize) < self.devices.len()
    }

    /// Enters the devices of the rows up to `row`. `names`: the table of origins, as far as it can be read.
    pub(super) fn learn(&mut self, names: &[String], row: u32) {
        for row in self.devices.len() as u32..=row {
            let first = names.get(row as usize).map(|name| device_of(name));
            let first = first.and_then(|device| names.iter().position(|name| name == device));
            self.devices.push(first.map_or(row, |first| first as u32));
        }
    }

    fn device(&self, row: u32) -> u32 {
        self.devices.get(row as usize).copied().unwrap_or(row)
    }

    /// Goes on from what a commit says, which speaks of the messages below `decided`.
    pub(super) fn resume(&mut self, known: &Self, decided: u64) {
        (self.lines, self.decided) = (known.lines.clone(), decided);
    }

    /// The same where the stream was cut since: only the newest rounds are known.
    pub(super) fn resume_cut(&mut self, known: &Self) {
        self.resume(known, 0);
        for line in self.lines.values_mut() {
            let newest = line.rounds.last().map(|round| (0, round.1));
            line.rounds = newest.into_iter().collect();
        }
    }

    /// Nothing is known of it.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Forgets what only messages below `low` need.
    pub(super) fn forget(&mut self, low: u64) {
        for line in self.lines.values_mut() {
            let needed = line.rounds.partition_point(|round| round.0 <= low).saturating_sub(1);
            line.rounds.drain(..needed);
        }
    }

    fn base(&self, entry: &Entry, sequence: u64) -> Option<i64> {
        let line = self.lines.get(&self.device(entry.origin))?;
        let at = line.rounds.partition_point(|round| round.0 <= sequence);
        Some(line.rounds[at.checked_sub(1)?].1)
    }
}

/// The gaps found in the order of a slice.
#[derive(Default)]
pub(super) struct Found {
    /// Ids of which nothing came, or not all.
    pub(super) gaps: Vec<Gap>,
    /// How many ids of which nothing came.
    pub(super) missing: u64,
    /// How many of which not all came, by how many did not.
    pub(super) incomplete: BTreeMap<u32, u64>,
}

/// The state of a merge by number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Numbers {
    /// Messages that make an id whole.
    parts: u32,
    /// Ids that may wait.
    #[serde(skip)]
    cache: u64,
    /// How long rounds that begin at one time may be apart, ns.
    #[serde(skip)]
    wait: i64,
    rounds: Vec<Round>,
    /// Largest key so far.
    high: i64,
    /// Ids of which nothing came, so far.
    pub(super) missing: u64,
    /// Ids of which not all came, so far, by how many did not.
    pub(super) incomplete: BTreeMap<u32, u64>,
    /// How many messages of each id wait.
    #[serde(skip)]
    ids: BTreeMap<i64, u32>,
}

impl Numbers {
    pub(super) fn new(parts: u32, cache: u64, wait: i64) -> Self {
        let rounds = vec![Round { base: 0, began: i64::MIN }];
        let (parts, cache) = (parts.max(1), cache.max(1));
        let incomplete = BTreeMap::new();
        Self { parts, cache, wait, rounds, high: 0, missing: 0, incomplete, ids: BTreeMap::new() }
    }

    /// Goes on from what a commit says.
    pub(super) fn resume(&mut self, known: &Self) {
        let (parts, cache, wait) = (self.parts, self.cache, self.wait);
        *self = Self { parts, cache, wait, ids: BTreeMap::new(), ..known.clone() };
    }

    /// The state for a commit, without the waiting ids.
    pub(super) fn without_ids(&self) -> Self {
        let (rounds, incomplete) = (self.rounds.clone(), self.incomplete.clone());
        Self { ids: BTreeMap::new(), rounds, incomplete, ..*self }
    }

    /// The key of a message; none if it has no number that can be ordered.
    pub(super) fn key(&self, course: &Course, entry: &Entry, sequence: u64) -> Option<i64> {
        let base = course.base(entry, sequence)?;
        let key = base.checked_add(i64::try_from(entry.origin_seq).ok()?)?;
        let next = self.rounds.partition_point(|round| round.base <= base);
        let end = self.rounds.get(next).map_or(i64::MAX - ROOM, |round| round.base);
        (key < end).then_some(key)
    }

    /// The key of a number that is in a slice, whose keys are `from..to`: rounds are far apart.
    pub(super) fn key_within(&self, number: u64, from: i64, to: i64) -> Option<i64> {
        let number = i64::try_from(number).ok()?;
        let keys = self.rounds.iter().filter_map(|round| round.base.checked_add(number));
        keys.into_iter().find(|key| (from..to).contains(key))
    }

    /// Settles the rounds of messages that were not looked at before.
    ///
    /// A number that goes back begins a round if time advances with it: to less than half, by more than [`LATE`], or
    /// where others have begun one. A late message has an older time. Where times do not count from 1970, a number that
    /// goes back by more than the cache begins a round.
    pub(super) fn settle(&mut self, course: &mut Course, entries: &[Entry], first: u64) {
        for (entry, sequence) in entries.iter().zip(first..) {
            if sequence < course.decided {
                continue;
            }
            let (number, time) = (entry.origin_seq, entry.source_time);
            if i64::try_from(number).is_err() {
                continue;
            }
            let device = course.device(entry.origin);
            match course.lines.get_mut(&device) {
                None => {
                    let began = if course.has_times { time } else { i64::MAX };
                    let line = Line { rounds: vec![(sequence, self.join(None, began))], top: (number, time) };
                    course.lines.insert(device, line);
                }
                Some(line) => {
                    let back = line.top.0.saturating_sub(number);
                    let base = line.rounds.last().map(|round| round.1);
                    let anew = match course.has_times {
                        true => {
                            let goes_on = back > 0 && time > line.top.1;
                            goes_on && (back > LATE || number < line.top.0 / 2 || self.known(base, time).is_some())
                        }
                        false => back > self.cache,
                    };
                    if anew {
                        let began = if course.has_times { time } else { i64::MAX };
                        let base = self.join(base, began);
                        line.rounds.push((sequence, base));
                    }
                    if anew || number > line.top.0 {
                        line.top = (number, time);
                    } else if number == line.top.0 {
                        line.top.1 = line.top.1.max(time);
                    }
                }
            }
            if let Some(key) = self.key(course, entry, sequence) {
                self.high = self.high.max(key);
            }
        }
    }

    /// The newest round behind `after` that began no later than a maker which begins to count at a time.
    fn known(&self, after: Option<i64>, time: i64) -> Option<i64> {
        let fits = |round: &&Round| {
            after.is_none_or(|after| round.base > after) && round.began.saturating_sub(self.wait) <= time
        };
        self.rounds.iter().rev().find(fits).map(|round| round.base)
    }

    /// The same, or, for a maker that counted in round `after` before, a new one.
    fn join(&mut self, after: Option<i64>, time: i64) -> i64 {
        if let Some(base) = self.known(after, time) {
            return base;
        }
        let Some(after) = after else { return self.rounds[0].base };
        let last = self.rounds.last().map_or(after, |round| round.base);
        let base = self.high.max(last).saturating_add(ROOM);
        if base >= i64::MAX - ROOM {
            // No keys are left: what comes has none.
            return last;
        }
        self.rounds.push(Round { base, began: if time == i64::MAX { i64::MIN } else { time } });
        if self.rounds.len() > ROUNDS_MAX {
            self.rounds.remove(0);
        }
        base
    }

    /// Counts messages that wait.
    pub(super) fn count(&mut self, course: &Course, entries: &[Entry], first: u64, from: i64) {
        for (entry, sequence) in entries.iter().zip(first..) {
            if let Some(key) = self.key(course, entry, sequence).filter(|&key| key >= from) {
                *self.ids.entry(key).or_default() += 1;
            }
        }
    }

    /// How far the output can go from `from` on, with `most` messages or a few more: past ids that are complete and
    /// follow one another, past all below `passed`, which were waited for long enough, and past those for which there
    /// is no place.
    pub(super) fn reach(&self, from: i64, passed: i64, most: u64) -> i64 {
        let (mut next, mut messages) = (from, 0);
        let mut over = (self.ids.len() as u64).saturating_sub(self.cache);
        for (&key, &count) in &self.ids {
            let follows = key == next || key == 0;
            let is_whole = count >= self.parts;
            if messages >= most || !(follows && is_whole || key < passed || over > 0) {
                break;
            }
            (next, messages, over) = (key + 1, messages + u64::from(count), over.saturating_sub(1));
        }
        next
    }

    /// Forgets ids below `to`.
    pub(super) fn forget(&mut self, to: i64) {
        self.ids = self.ids.split_off(&to);
    }

    /// Takes those out of an order that an id has too many of, and hands them to `surplus`. `keys` by index.
    pub(super) fn thin(&self, order: &mut Vec<u32>, keys: &[i64], mut surplus: impl FnMut(u32)) {
        let (mut of, mut count) = (None, 0);
        order.retain(|&at| {
            let key = keys[at as usize];
            count = if of == Some(key) { count + 1 } else { 1 };
            of = Some(key);
            let keeps = count <= self.parts;
            if !keeps {
                surplus(at);
            }
            keeps
        });
    }

    /// Finds the missing and incomplete ids of `from..to`. `keys`: those that came, sorted; `name`: the output.
    pub(super) fn missing(&self, name: &str, (from, to): (i64, i64), keys: impl Iterator<Item = i64>) -> Found {
        let mut found = Found::default();
        let mut keys = keys.peekable();
        let mut next = from;
        while let Some(key) = keys.next() {
            let mut count = 1;
            while keys.next_if_eq(&key).is_some() {
                count += 1;
            }
            self.list(name, &mut found, next, key);
            if count < self.parts {
                let number = (key - self.base_of(key)) as u64;
                let without = self.parts - count;
                *found.incomplete.entry(without).or_default() += 1;
                let reason = format!("incomplete.{without}");
                Gap::numbers(name, "", number..=number, &reason).add_to(&mut found.gaps);
            }
            next = key + 1;
        }
        self.list(name, &mut found, next, to);
        found
    }

    /// The key of number 0 in the round of a key.
    fn base_of(&self, key: i64) -> i64 {
        self.rounds.iter().rev().find(|round| round.base <= key).map_or(0, |round| round.base)
    }

    /// Lists ids `next..key`; not those before the first of a round, which may never have existed.
    fn list(&self, name: &str, found: &mut Found, next: i64, key: i64) {
        if key > next && next > self.base_of(key) {
            let base = self.base_of(key);
            found.missing += (key - next) as u64;
            let numbers = (next - base) as u64..=(key - 1 - base) as u64;
            Gap::numbers(name, "", numbers, "missing").add_to(&mut found.gaps);
        }
    }

    pub(super) fn check(&self) -> Result<(), Fault> {
        match self.rounds.is_empty() {
            true => Err(Fault::new("cannot read a commit of a merge", "it has no round")),
            false => Ok(()),
        }
    }
}
