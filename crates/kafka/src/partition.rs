//! A partition that is read: where it stands, and what its offsets say of messages that are not there.

use crate::limits::LAG_MAX;
use crate::state::Place;
use flow::{Fault, Outlet, Pushed};
use store::{Meta, SchemaId};

/// The reason of offsets that hold no message for a reader: compaction, markers of transactions, and messages of
/// transactions that were given up.
const SKIPPED: &str = "skipped.kafka";
/// The reason of offsets that retention removed before they were read.
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
    /// Source time of its newest message; none where the stream has no message of it.
    time: Option<i64>,
    /// Behind its newest message when the ends were last asked for.
    pub(crate) end: u64,
    /// From here on nothing is taken.
    pub(crate) limit: Option<u64>,
    /// Kafka's time of its newest message.
    kafka_time: i64,
    /// Kafka's time up to which the partition has been read.
    reached: i64,
    /// Source time up to which the partition has brought all messages.
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
    pub(crate) fn new(topic: usize, number: i32, origin: String, place: Place, first: u64, time: Option<i64>) -> Self {
        let (kafka_time, reached, frontier) = (i64::MIN, i64::MIN, i64::MIN);
        Self {
            topic,
            number,
            origin,
            row: None,
            place,
            first,
            time,
            end: 0,
            limit: None,
            kafka_time,
            reached,
            frontier,
        }
    }

    fn row(&mut self, out: &mut dyn Outlet) -> Result<u32, Fault> {
        match self.row {
            Some(row) => Ok(row),
            None => Ok(*self.row.insert(out.origin(&self.origin)?)),
        }
    }

    /// Counts offsets below `next` that hold no message for the reader: below `first` retention removed them. Their
    /// time lies between that of the message before them and `until`, that of the message after them.
    fn pass(&mut self, next: u64, until: Option<i64>, out: &mut dyn Outlet) -> Result<(), Fault> {
        let next = self.limit.map_or(next, |limit| next.min(limit));
        let before = self.time.unwrap_or(i64::MIN);
        let after = until.unwrap_or(i64::MAX);
        for (end, reason) in [(self.first.min(next), RETIRED), (next, SKIPPED)] {
            if end > self.place.next {
                let row = self.row(out)?;
                out.missing(row, self.place.next..=end - 1, before.min(after)..=before.max(after), reason)?;
                self.place.next = end;
            }
        }
        Ok(())
    }

    /// Takes a message at `now`.
    pub(crate) fn give(&mut self, given: &Given<'_>, now: i64, out: &mut dyn Outlet) -> Result<Pushed, Fault> {
        let offset = given.offset;
        if offset < self.place.next {
            return Ok(Pushed::Taken);
        }
        let (schema, time) = read(given.payload);
        let source_time = time.or(given.time).unwrap_or(now);
        self.pass(offset, Some(source_time), out)?;
        if self.limit.is_some_and(|limit| offset >= limit) {
            return Ok(Pushed::Taken);
        }
        let origin = self.row(out)?;
        let meta = Meta { source_time, origin, origin_seq: offset, schema, flags: 0 };
        let pushed = out.push(&meta, given.payload)?;
        if pushed == Pushed::Taken {
            (self.place.next, self.time) = (offset + 1, Some(source_time));
            self.reach_time(given.time, source_time, now);
        }
        Ok(pushed)
    }

    /// Advances the frontier for a message with these times. Kafka's time orders a partition, but a message may come
    /// long after its source time: the frontier is Kafka's time less half again the longest lag seen so far.
    ///
    /// Producers set Kafka's time: one message alone, whose producer may have a wrong clock, does not move the
    /// frontier, and neither does a time after `now`.
    fn reach_time(&mut self, kafka_time: Option<i64>, source_time: i64, now: i64) {
        let Some(time) = kafka_time else { return };
        let lag = self.reached.max(time).saturating_sub(source_time);
        if lag <= LAG_MAX {
            self.place.lag = self.place.lag.max(lag);
        }
        let reached = time.min(std::mem::replace(&mut self.kafka_time, time));
        if reached <= now {
            self.reached = self.reached.max(reached);
            let lag = self.place.lag;
            self.frontier = self.frontier.max(self.reached.saturating_sub(lag + lag / 2));
        }
    }

    /// The partition has no message before this offset that the source has not received.
    pub(crate) fn reach(&mut self, end: u64, out: &mut dyn Outlet) -> Result<(), Fault> {
        self.pass(end, None, out)
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
        times: Vec<RangeInclusive<i64>>,
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
            self.times.push(times);
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
        let (mut out, place) = (Recorder::default(), Place { next: 5, life: 1, lag: 0 });
        let mut partition = Partition::new(0, 0, "a/0".into(), place, 8, Some(5));
        // 8 and 9 were compacted; 11 is the marker of a transaction, as is 13, the last.
        for offset in [10, 12, 10] {
            assert_eq!(partition.give(&given(offset), 30, &mut out).unwrap(), Pushed::Taken);
        }
        partition.reach(14, &mut out).unwrap();
        assert_eq!(out.offsets, [10, 12]);
        let skipped = |numbers| (numbers, SKIPPED.to_owned());
        assert_eq!(out.missing, [(5..=7, RETIRED.to_owned()), skipped(8..=9), skipped(11..=11), skipped(13..=13)]);
        assert_eq!(partition.place.next, 14);
    }

    #[test]
    fn a_message_without_room_is_given_again_and_its_hole_is_counted_once() {
        let mut out = Recorder { is_full: true, ..Recorder::default() };
        let mut partition = Partition::new(0, 0, "a/0".into(), Place { next: 0, life: 1, lag: 0 }, 0, None);
        assert_eq!(partition.give(&given(3), 30, &mut out).unwrap(), Pushed::Full);
        out.is_full = false;
        assert_eq!(partition.give(&given(3), 30, &mut out).unwrap(), Pushed::Taken);
        assert_eq!((out.offsets.as_slice(), out.missing.len(), partition.place.next), ([3].as_slice(), 1, 4));
    }

    #[test]
    fn one_message_of_a_wrong_clock_does_not_move_the_frontier() {
        let (mut out, mut offset) = (Recorder::default(), 0);
        let mut partition = Partition::new(0, 0, "a/0".into(), Place { next: 0, life: 1, lag: 0 }, 0, None);
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
        // The late one has shown a lag of 60 by Kafka's own times: half again of it is waited for.
        assert_eq!([give(Some(130)), give(Some(2000)), give(Some(2000)), give(Some(140))], [110; 4]);
        assert_eq!([give(Some(300)), give(Some(310)), give(Some(320))], [110, 210, 220]);
    }

    #[test]
    fn a_time_ahead_of_now_does_not_move_the_frontier() {
        let mut out = Recorder::default();
        let mut partition = partition(0);
        let mut frontiers = Vec::new();
        for (offset, time) in [100, 120, 130, 2000, 2000, 140].into_iter().enumerate() {
            let given = Given { offset: offset as u64, payload: b"x", time: Some(time) };
            assert_eq!(partition.give(&given, 1000, &mut out).unwrap(), Pushed::Taken);
            frontiers.push(partition.frontier);
        }
        assert_eq!(frontiers, [i64::MIN, 100, 120, 130, 130, 140]);
    }

    /// A value with this source time.
    fn value(time: i64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let value = wire::f144::F144 { source_name: "x", timestamp: time, value: 1.5.into() };
        wire::f144::write(&mut bytes, &value).unwrap();
        bytes
    }

    /// The frontier after each message of (source time, Kafka's time), in seconds.
    fn frontiers(partition: &mut Partition, messages: &[(i64, i64)]) -> Vec<i64> {
        const SECOND: i64 = 1_000_000_000;
        let mut out = Recorder::default();
        let mut after = Vec::new();
        for (source, kafka) in messages {
            let payload = value(source * SECOND);
            let (offset, time) = (partition.place.next, Some(kafka * SECOND));
            let given = Given { offset, payload: &payload, time };
            assert_eq!(partition.give(&given, i64::MAX, &mut out).unwrap(), Pushed::Taken);
            after.push(partition.frontier.div_euclid(SECOND));
        }
        after
    }

    fn partition(lag: i64) -> Partition {
        Partition::new(0, 0, "a/0".into(), Place { next: 0, life: 1, lag }, 0, None)
    }

    #[test]
    fn the_frontier_is_a_source_time_whatever_the_lag_of_the_topic() {
        for lag in [0, 1, 9, 30, 60] {
            let messages: Vec<(i64, i64)> = (1000..1200).map(|time| (time, time + lag)).collect();
            let after = frontiers(&mut partition(0), &messages);
            assert!(after[1..].iter().zip(&messages[1..]).all(|(frontier, (time, _))| frontier < time), "{lag}");
            assert!(after[199] >= 1199 - 1 - (lag + 1) / 2, "{lag}: {}", after[199]);
        }
    }

    #[test]
    fn the_slowest_of_several_producers_moves_the_frontier() {
        // One sends at once, one 40 s later.
        let messages: Vec<(i64, i64)> = (1000..1400).flat_map(|time| [(time, time), (time - 40, time)]).collect();
        let after = frontiers(&mut partition(0), &messages);
        assert!(after[4..].iter().zip(&messages[4..]).all(|(frontier, (_, kafka))| *frontier <= kafka - 40));
        // Kafka's time is that of the source, and messages of one producer come later than the others.
        let messages: Vec<(i64, i64)> = (1000..1400).flat_map(|t| [(t, t), (t, t), (t - 40, t - 40)]).collect();
        let after = frontiers(&mut partition(0), &messages);
        assert!(after[6..].iter().zip(&messages[6..]).all(|(frontier, _)| *frontier <= 1360));
    }

    #[test]
    fn values_that_are_repeated_for_hours_do_not_stop_the_frontier() {
        let messages: Vec<(i64, i64)> = (10_000..10_100).flat_map(|time| [(time, time), (5, time)]).collect();
        assert!(*frontiers(&mut partition(0), &messages).last().unwrap() >= 10_090);
    }

    #[test]
    fn the_lag_survives_a_restart() {
        let lag = 20_000_000_000;
        assert_eq!(*frontiers(&mut partition(lag), &[(1000, 1000), (1001, 1001)]).last().unwrap(), 970);
    }

    #[test]
    fn a_hole_lies_between_the_times_of_its_neighbours_and_has_no_other() {
        let mut out = Recorder::default();
        let mut hole = Partition::new(0, 0, "a/0".into(), Place { next: 0, life: 1, lag: 0 }, 5, None);
        // Retention removed all that the source was to read; then a message.
        hole.reach(5, &mut out).unwrap();
        assert_eq!(hole.give(&given(7), 30, &mut out).unwrap(), Pushed::Taken);
        hole.reach(9, &mut out).unwrap();
        assert_eq!(out.times, [i64::MIN..=i64::MAX, i64::MIN..=10, 10..=i64::MAX]);
    }

    #[test]
    fn nothing_behind_the_limit_is_taken_or_counted() {
        let mut out = Recorder::default();
        let mut partition = Partition::new(0, 0, "a/0".into(), Place { next: 0, life: 1, lag: 0 }, 0, None);
        partition.limit = Some(2);
        assert!(!partition.is_done());
        for offset in [0, 5] {
            assert_eq!(partition.give(&given(offset), 30, &mut out).unwrap(), Pushed::Taken);
        }
        assert_eq!((out.offsets.as_slice(), out.missing.len()), ([0].as_slice(), 1));
        assert!(partition.is_done() && partition.is_even());
    }
}
