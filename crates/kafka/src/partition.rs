//! A partition that is read: where it stands, and what its offsets say of messages that are not there.

use crate::state::Place;
use flow::{Fault, Outlet, Pushed};
use store::{Meta, SchemaId};

/// The reason of offsets that hold no message for a reader: compaction, markers of transactions, and messages of
/// transactions that were given up.
const SKIPPED: &str = "skipped.kafka";
/// The reason of offsets that retention took before they were read.
const RETIRED: &str = "lost.retention";

/// A partition of a topic.
#[derive(Debug)]
pub(crate) struct Partition {
    /// Its topic, by its place among those of the source.
    pub(crate) topic: usize,
    /// Its number.
    pub(crate) number: i32,
    /// Name of its origin.
    origin: String,
    /// Row of its origin, once it is asked for.
    row: Option<u32>,
    /// Where it stands.
    pub(crate) place: Place,
    /// The offset of the oldest message at the start: what was due before it is lost.
    first: u64,
    /// Source time of its newest message.
    time: i64,
    /// Behind its newest message when the ends were last asked for.
    pub(crate) end: u64,
    /// From here on nothing is taken.
    pub(crate) limit: Option<u64>,
    /// Kafka's time of its newest message.
    kafka_time: i64,
    /// All up to this time has been taken.
    pub(crate) frontier: i64,
}

/// A message of a partition.
pub(crate) struct Given<'a> {
    pub(crate) offset: u64,
    pub(crate) payload: &'a [u8],
    /// Kafka's time of it, ns since 1970 UTC, where it has one.
    pub(crate) time: Option<i64>,
}

impl Partition {
    /// At a place; `first` is the offset of its oldest message, `time` that of its newest message in the stream.
    pub(crate) fn new(topic: usize, number: i32, origin: String, place: Place, first: u64, time: i64) -> Self {
        let (kafka_time, frontier) = (i64::MIN, i64::MIN);
        Self { topic, number, origin, row: None, place, first, time, end: 0, limit: None, kafka_time, frontier }
    }

    fn row(&mut self, out: &mut dyn Outlet) -> Result<u32, Fault> {
        match self.row {
            Some(row) => Ok(row),
            None => Ok(*self.row.insert(out.origin(&self.origin)?)),
        }
    }

    /// Counts offsets below `next` that hold no message for us.
    fn pass(&mut self, next: u64, time: i64, reason: &str, out: &mut dyn Outlet) -> Result<(), Fault> {
        let next = self.limit.map_or(next, |limit| next.min(limit));
        if next > self.place.next {
            let row = self.row(out)?;
            let times = self.time.min(time)..=self.time.max(time);
            out.missing(row, self.place.next..=next - 1, times, reason)?;
            self.place.next = next;
        }
        Ok(())
    }

    /// Counts what retention took before the start.
    pub(crate) fn begin(&mut self, now: i64, out: &mut dyn Outlet) -> Result<(), Fault> {
        self.pass(self.first, now, RETIRED, out)
    }

    /// Takes a message at `now`.
    pub(crate) fn give(&mut self, given: &Given<'_>, now: i64, out: &mut dyn Outlet) -> Result<Pushed, Fault> {
        let offset = given.offset;
        if offset < self.place.next {
            return Ok(Pushed::Taken);
        }
        let (schema, time) = read(given.payload);
        let source_time = time.or(given.time).unwrap_or(now);
        self.pass(offset, source_time, SKIPPED, out)?;
        if self.limit.is_some_and(|limit| offset >= limit) {
            return Ok(Pushed::Taken);
        }
        let origin = self.row(out)?;
        let meta = Meta { source_time, origin, origin_seq: offset, schema, flags: 0 };
        let pushed = out.push(&meta, given.payload)?;
        if pushed == Pushed::Taken {
            (self.place.next, self.time) = (offset + 1, source_time);
            self.reach_time(given.time, now);
        }
        Ok(pushed)
    }

    /// A message of this time by Kafka's clock is taken. Producers set that time: one message alone, whose producer may
    /// have a wrong clock, does not move the frontier, and neither does a time after `now`.
    fn reach_time(&mut self, time: Option<i64>, now: i64) {
        let Some(time) = time else { return };
        let reached = time.min(std::mem::replace(&mut self.kafka_time, time));
        if reached <= now {
            self.frontier = self.frontier.max(reached);
        }
    }

    /// The partition has no message before this offset that was not given.
    pub(crate) fn reach(&mut self, end: u64, now: i64, out: &mut dyn Outlet) -> Result<(), Fault> {
        self.pass(end, now, SKIPPED, out)
    }

    /// Nothing more of it is taken.
    pub(crate) fn is_done(&self) -> bool {
        self.limit.is_some_and(|limit| self.place.next >= limit)
    }

    /// All that was there when the ends were last asked for has been taken.
    pub(crate) fn is_even(&self) -> bool {
        self.place.next >= self.limit.map_or(self.end, |limit| limit.min(self.end))
    }
}

/// The schema of a payload and its own time; no time where it is damaged or says none.
fn read(payload: &[u8]) -> (SchemaId, Option<i64>) {
    let id = wire::schema_id(payload).filter(|id| id.iter().all(u8::is_ascii_alphanumeric));
    match (id, wire::read(payload)) {
        (Some(id), Ok(message)) => (SchemaId(id), message.time()),
        (id, _) => (SchemaId(id.unwrap_or_default()), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::{OriginAccounts, Silence};
    use std::ops::RangeInclusive;

    /// Records every call.
    #[derive(Default)]
    struct Recorder {
        offsets: Vec<u64>,
        missing: Vec<(RangeInclusive<u64>, String)>,
        is_full: bool,
    }

    impl OriginAccounts for Recorder {
        fn origin(&mut self, _: &str) -> Result<u32, Fault> {
            Ok(0)
        }
        fn missing(
            &mut self,
            _: u32,
            numbers: RangeInclusive<u64>,
            times: RangeInclusive<i64>,
            reason: &str,
        ) -> Result<(), Fault> {
            assert!(!times.is_empty());
            self.missing.push((numbers, reason.to_owned()));
            Ok(())
        }
        fn count(&mut self, _: u32, _: &str, _: u64) -> Result<(), Fault> {
            Ok(())
        }
    }

    impl Outlet for Recorder {
        fn push_parts(&mut self, meta: &Meta, _: &[&[u8]]) -> Result<Pushed, Fault> {
            if self.is_full {
                return Ok(Pushed::Full);
            }
            self.offsets.push(meta.origin_seq);
            Ok(Pushed::Taken)
        }
        fn next_sequence(&self) -> u64 {
            0
        }
        fn silent(&mut self, _: RangeInclusive<i64>, _: Silence) {}
        fn fill(&self) -> f64 {
            0.0
        }
    }

    fn given(offset: u64) -> Given<'static> {
        Given { offset, payload: b"x", time: Some(10) }
    }

    #[test]
    fn offsets_without_a_message_are_skipped_and_those_that_retention_took_are_lost() {
        let (mut out, place) = (Recorder::default(), Place { next: 5, life: 1 });
        let mut partition = Partition::new(0, 0, "a/0".into(), place, 8, 20);
        partition.begin(30, &mut out).unwrap();
        // 8 and 9 were compacted; 11 is the marker of a transaction, as is 13, the last.
        for offset in [10, 12, 10] {
            assert_eq!(partition.give(&given(offset), 30, &mut out).unwrap(), Pushed::Taken);
        }
        partition.reach(14, 30, &mut out).unwrap();
        assert_eq!(out.offsets, [10, 12]);
        let skipped = |numbers| (numbers, SKIPPED.to_owned());
        assert_eq!(out.missing, [(5..=7, RETIRED.to_owned()), skipped(8..=9), skipped(11..=11), skipped(13..=13)]);
        assert_eq!(partition.place.next, 14);
    }

    #[test]
    fn a_message_without_room_is_given_again_and_its_hole_is_counted_once() {
        let mut out = Recorder { is_full: true, ..Recorder::default() };
        let mut partition = Partition::new(0, 0, "a/0".into(), Place { next: 0, life: 1 }, 0, 0);
        assert_eq!(partition.give(&given(3), 30, &mut out).unwrap(), Pushed::Full);
        out.is_full = false;
        assert_eq!(partition.give(&given(3), 30, &mut out).unwrap(), Pushed::Taken);
        assert_eq!((out.offsets.as_slice(), out.missing.len(), partition.place.next), ([3].as_slice(), 1, 4));
    }

    #[test]
    fn one_message_of_a_wrong_clock_does_not_move_the_frontier() {
        let (mut out, mut offset) = (Recorder::default(), 0);
        let mut partition = Partition::new(0, 0, "a/0".into(), Place { next: 0, life: 1 }, 0, 0);
        let mut give = |time: Option<i64>| {
            let given = Given { offset, payload: b"x", time };
            assert_eq!(partition.give(&given, 1000, &mut out).unwrap(), Pushed::Taken);
            offset += 1;
            partition.frontier
        };
        assert_eq!(give(Some(100)), i64::MIN);
        assert_eq!(give(Some(110)), 100);
        // One that is half an hour ahead, one without a time, late ones, and two from after now.
        assert_eq!([give(Some(900)), give(None), give(Some(50)), give(Some(120))], [110; 4]);
        assert_eq!([give(Some(130)), give(Some(2000)), give(Some(2000)), give(Some(140))], [120, 130, 130, 140]);
    }

    #[test]
    fn nothing_behind_the_limit_is_taken_or_counted() {
        let mut out = Recorder::default();
        let mut partition = Partition::new(0, 0, "a/0".into(), Place { next: 0, life: 1 }, 0, 0);
        partition.limit = Some(2);
        assert!(!partition.is_done());
        for offset in [0, 5] {
            assert_eq!(partition.give(&given(offset), 30, &mut out).unwrap(), Pushed::Taken);
        }
        assert_eq!((out.offsets.as_slice(), out.missing.len()), ([0].as_slice(), 1));
        assert!(partition.is_done() && partition.is_even());
    }
}
