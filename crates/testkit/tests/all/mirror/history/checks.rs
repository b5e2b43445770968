//! The checks of a history.

use super::{Fact, History, NearStream, SINK, lock};
use beamport_testkit::Counts;
use flow::aside_of;
use flow::records::Apart;
use std::collections::{BTreeMap, BTreeSet};

/// Where a message is in all streams that the near host has had: number of the stream, sequence.
type Position = (usize, u64);

/// The sequences that the account of the mirror has to name, and may name.
#[derive(Default)]
struct Holes {
    must: BTreeMap<u64, u64>,
    may: BTreeMap<u64, u64>,
    /// Messages of `may` alone that the topic has had: the tails of former streams.
    tails: BTreeSet<Position>,
}

impl History {
    /// The positions of the messages of the mirror, each of which has all the facts of its message.
    fn positions(&mut self) -> Vec<Position> {
        self.mirror();
        let mut positions = Vec::new();
        for (at, (uuid, seen)) in self.far.seen.iter().enumerate() {
            let stream = self.near.streams.iter().position(|stream| stream.uuid == *uuid);
            let Some(stream) = stream else { self.fail(format!("message {at} is of an unknown stream")) };
            let made = self.near.streams[stream].messages.get(seen.sequence as usize);
            if made != Some(seen) {
                self.fail(format!("message {at} is {}, not {}", short(Some(seen)), short(made)));
            }
            let position = (stream, seen.sequence);
            if positions.last().is_some_and(|last| *last >= position) {
                self.fail(format!("message {at} is {position:?}, which stands behind {:?}", positions.last()));
            }
            positions.push(position);
        }
        positions
    }

    /// The holes of a mirror that has these messages, among all that were made up to a source time.
    fn holes(&self, positions: &[Position], until: i64) -> Holes {
        let mut holes = Holes::default();
        // A mirror that has nothing begins with what is there.
        let Some(first) = positions.first() else { return holes };
        let has: BTreeSet<Position> = positions.iter().copied().collect();
        for (number, stream) in self.near.streams.iter().enumerate() {
            let is_former = number + 1 < self.near.streams.len();
            // No account of another host counts the messages that a stream in memory had not sent when it ended.
            let put = lock(&self.topic).put.get(&stream.uuid).copied().unwrap_or(0);
            let newest = positions.iter().rfind(|position| position.0 == number).map(|newest| newest.1);
            for fact in stream.messages.iter().filter(|fact| fact.times.0 <= until) {
                let position = (number, fact.sequence);
                if has.contains(&position) {
                    continue;
                }
                *holes.may.entry(fact.sequence).or_default() += 1;
                // Where the end of a former stream is not in the topic any more, nothing says how far it went.
                if is_former && (newest.is_none_or(|newest| fact.sequence > newest) || fact.sequence >= put) {
                    if fact.sequence < put {
                        holes.tails.insert(position);
                    }
                } else if position > *first {
                    self.check_reason(stream, fact);
                    *holes.must.entry(fact.sequence).or_default() += 1;
                }
            }
        }
        holes
    }

    /// A message that is missing was lost by its stream or by the topic, or was never sent because it is too large.
    ///
    /// A stream in memory overwrites its oldest messages until the sink has a place in it. The sink has never read
    /// these: they were in no block, and the far side names them once a later message of their stream comes.
    fn check_reason(&self, stream: &NearStream, fact: &Fact) {
        let is_lost = lock(&self.topic).lost.contains(&(stream.uuid, fact.sequence));
        let is_lost = is_lost || fact.sequence < stream.unread;
        if !is_lost && !self.near.drops && !self.is_too_large(fact.payload.len()) {
            self.fail(format!("message {} is missing for no reason", fact.sequence));
        }
    }

    /// All messages up to the frontier are in the mirror or in its account.
    pub(super) fn check_frontier(&mut self) {
        let frontier = self.far.frontier;
        if frontier == i64::MIN {
            return;
        }
        let positions = self.positions();
        let (holes, named) = (self.holes(&positions, frontier), self.named());
        for (sequence, count) in holes.must {
            if named.get(&sequence).is_none_or(|named| *named < count) {
                self.fail(format!("the frontier is {frontier}, and message {sequence} is neither here nor there"));
            }
        }
    }

    /// Each message is there or in the account, once.
    pub(super) fn check(mut self) -> Counts {
        let positions = self.positions();
        let (holes, named) = (self.holes(&positions, i64::MAX), self.named());
        let all: BTreeSet<u64> = holes.may.keys().chain(named.keys()).copied().collect();
        for sequence in all {
            let of = |counts: &BTreeMap<u64, u64>| counts.get(&sequence).copied().unwrap_or(0);
            let (must, named, may) = (of(&holes.must), of(&named), of(&holes.may));
            if named < must || named > may {
                self.fail(format!("message {sequence} is named {named} times, not {must} to {may} times"));
            }
        }
        self.check_aside();
        let topic = lock(&self.topic);
        [
            ("kills of near sides", self.kills[0]),
            ("kills of far sides", self.kills[1]),
            ("cuts of near hosts", self.cuts[0]),
            ("cuts of far hosts", self.cuts[1]),
            ("harmed", topic.harmed),
            ("late", topic.came_late),
            ("messages", self.near.streams.iter().map(|stream| stream.messages.len() as u64).sum()),
            ("mirrored", positions.len() as u64),
            ("named", named.values().sum()),
            ("tails", holes.tails.len() as u64),
        ]
        .into()
    }
}

impl History {
    /// Messages that the topic does not take are aside on the near host, each once. The sink cannot set aside what the
    /// ring had overwritten before it first read the stream.
    fn check_aside(&self) {
        let data = self.near_data(&self.near.writer_process);
        let mut aside: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        let stream = self.near.streams.last().unwrap();
        for bytes in data.book_messages(&aside_of(SINK)).unwrap_or_else(|e| self.fail(e)) {
            let apart = Apart::read(&bytes).unwrap_or_else(|e| self.fail(e));
            *aside.entry(apart.payload).or_default() += 1;
        }
        let is_too_large = |fact: &&Fact| self.is_too_large(fact.payload.len());
        for fact in stream.messages.iter().filter(is_too_large) {
            let count = aside.get(&fact.payload).copied().unwrap_or(0);
            let may_lack = self.near.drops || fact.sequence < stream.unread;
            if count > 1 || count == 0 && !may_lack {
                self.fail(format!("message {} is aside {count} times", fact.sequence));
            }
        }
    }
}

/// A fact without its bytes.
fn short(fact: Option<&Fact>) -> String {
    let Some(fact) = fact else { return "nothing".into() };
    let Fact { epoch, sequence, times, origin, number, flags, payload, .. } = fact;
    format!("{epoch}/{sequence} {times:?} {origin:?} {number} {flags} {} B", payload.len())
}
