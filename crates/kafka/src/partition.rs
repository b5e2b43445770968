//! A partition that is read: where it stands, and what its offsets say of messages that are not there.

use crate::header::{Sent, SentOrigin};
use crate::limits::LAG_MAX;
use crate::origins::{Origins, Retired};
use crate::seen::Seen;
use crate::state::{Kept, Place, Resumed};
use flow::{Fault, Outlet, Pushed};
use store::{Meta, SchemaId};

/// The reason of offsets that hold no message for a reader: compaction, markers of transactions, and messages of
/// transactions that were given up.
const SKIPPED: &str = "skipped.kafka";
/// The reason of offsets that retention removed before they were read.
const RETIRED: &str = "lost.retention";
/// The reason of offsets with a message of one of our sinks that an offset before has already.
const DOUBLE: &str = "skipped.double";

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
    /// The newest messages of sinks below `learned`, which is behind `place` after a start: then messages that the
    /// stream has are read once more.
    seen: Seen,
    learned: u64,
    /// Source time of the newest message below `learned` that was read once more.
    again: Option<i64>,
    /// The offset of the oldest message at the start: what was due before it is lost.
    first: u64,
    /// The stream may have messages below already, whatever `place` says: those that are repeated with numbers of
    /// their own.
    known_below: u64,
    /// The offsets that retention deleted last.
    retired: Retired,
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
#[derive(Clone, Copy)]
pub(crate) struct Given<'a> {
    pub(crate) offset: u64,
    pub(crate) payload: &'a [u8],
    /// Kafka's time of it, ns since 1970 UTC, where it has one.
    pub(crate) time: Option<i64>,
    /// Its headers, where a sink of ours has sent it.
    pub(crate) sent: Option<Sent<'a>>,
}

impl Partition {
    /// Where it resumes; `first` is the offset of its oldest message, `end` the one behind its newest, `time` that of
    /// its newest message in the stream.
    pub(crate) fn new(
        (topic, number): (usize, i32),
        origin: String,
        Resumed { kept, from }: Resumed,
        (first, end): (u64, u64),
        time: Option<i64>,
    ) -> Self {
        let (kafka_time, reached, frontier) = (i64::MIN, i64::MIN, i64::MIN);
        // Where messages belong to other origins, its own says little of the newest.
        let time = if kept.place.elsewhere > 0 { kept.time.or(time) } else { time.or(kept.time) };
        Self {
            topic,
            number,
            origin,
            row: None,
            place: kept.place,
            seen: Seen::new(&kept.seen),
            learned: from,
            again: None,
            first,
            known_below: end,
            retired: Retired::default(),
            time,
            end: 0,
            limit: None,
            kafka_time,
            reached,
            frontier,
        }
    }

    /// The offset from which it is read.
    pub(crate) fn from(&self) -> u64 {
        self.learned.min(self.place.next).max(self.first)
    }

    /// Its state. Until all that its stream has is read once more, that is where this has come.
    pub(crate) fn keep(&self) -> Kept {
        let next = self.place.next.min(self.learned);
        Kept { place: Place { next, ..self.place }, time: self.time, seen: self.seen.newest() }
    }

    /// The number that a message at this offset has in the origin of the partition.
    fn number_of(&self, offset: u64) -> u64 {
        offset.saturating_sub(self.place.elsewhere)
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
        let deleted = self.first.min(next);
        if deleted > self.place.next {
            let count = self.retired.count.saturating_add(deleted - self.place.next);
            self.retired = Retired { end: deleted, count };
        }
        self.skip(deleted, until, RETIRED, out)?;
        self.skip(next, until, SKIPPED, out)
    }

    /// Counts the offsets below `end` as missing.
    fn skip(&mut self, end: u64, until: Option<i64>, reason: &str, out: &mut dyn Outlet) -> Result<(), Fault> {
        if end > self.place.next {
            let (before, after) = (self.time.unwrap_or(i64::MIN), until.unwrap_or(i64::MAX));
            let numbers = self.number_of(self.place.next)..=self.number_of(end - 1);
            let row = self.row(out)?;
            out.missing(row, numbers, before.min(after)..=before.max(after), reason)?;
            self.place.next = end;
        }
        Ok(())
    }

    /// Takes a message at `now`. `origins`: those that are repeated.
    pub(crate) fn give(
        &mut self,
        given: &Given<'_>,
        now: i64,
        origins: Option<&mut Origins>,
        out: &mut dyn Outlet,
    ) -> Result<Pushed, Fault> {
        let offset = given.offset;
        if offset < self.place.next {
            self.read_again(given, now, out)?;
            return Ok(Pushed::Taken);
        }
        let (schema, time) = read(given.payload);
        let source_time = time.or(given.time).unwrap_or(now);
        self.pass(offset, Some(source_time), out)?;
        self.learned = self.learned.max(self.place.next);
        if self.limit.is_some_and(|limit| offset >= limit) {
            return Ok(Pushed::Taken);
        }
        if given.sent.is_some_and(|sent| self.seen.has(&sent)) {
            self.skip(offset + 1, Some(source_time), DOUBLE, out)?;
            self.learned = offset + 1;
            return Ok(Pushed::Taken);
        }
        let meta = Meta { source_time, origin: 0, origin_seq: self.number_of(offset), schema, flags: 0 };
        let pushed = match origins {
            Some(origins) => match given.sent.and_then(|sent| sent.origin) {
                Some(origin) => self.repeat(given, &origin, &meta, origins, out)?,
                None if self.has(origins, &meta, offset) => Pushed::Taken,
                None => self.push(given, &meta, out)?,
            },
            None => self.push(given, &meta, out)?,
        };
        if pushed == Pushed::Taken {
            (self.place.next, self.time) = (offset + 1, Some(source_time));
            self.reach_time(given.time, source_time, now);
            self.learn(given);
        }
        Ok(pushed)
    }

    /// Reads an offset that the source has read before. A process that was killed may not have written what is no
    /// message, although the stream has the messages behind it: it is counted again, and counts once.
    fn read_again(&mut self, given: &Given<'_>, now: i64, out: &mut dyn Outlet) -> Result<(), Fault> {
        let begin = self.learned.max(self.first);
        if given.offset < begin {
            return Ok(());
        }
        let time = read(given.payload).1.or(given.time).unwrap_or(now);
        let before = self.again.replace(time).unwrap_or(i64::MIN);
        let times = before.min(time)..=before.max(time);
        if begin < given.offset {
            let numbers = self.number_of(begin)..=self.number_of(given.offset - 1);
            let row = self.row(out)?;
            out.missing(row, numbers, times.clone(), SKIPPED)?;
        }
        if given.sent.is_some_and(|sent| self.seen.has(&sent)) {
            let number = self.number_of(given.offset);
            let row = self.row(out)?;
            out.missing(row, number..=number, times, DOUBLE)?;
            self.learned = given.offset + 1;
        } else {
            self.learn(given);
        }
        Ok(())
    }

    /// Notes a message that is in the stream.
    fn learn(&mut self, given: &Given<'_>) {
        if given.offset >= self.learned {
            self.learned = given.offset + 1;
            if let Some(sent) = &given.sent {
                self.seen.note(sent);
            }
        }
    }

    /// Whether the stream had a message with this number of the partition at the start.
    fn has(&self, origins: &mut Origins, meta: &Meta, offset: u64) -> bool {
        offset < self.known_below && origins.take(&self.origin, meta.origin_seq)
    }

    /// Gives a message to the stream, with the number of its offset.
    fn push(&mut self, given: &Given<'_>, meta: &Meta, out: &mut dyn Outlet) -> Result<Pushed, Fault> {
        let meta = Meta { origin: self.row(out)?, ..*meta };
        out.push(&meta, given.payload)
    }

    /// The same with the origin and the number that it has in the stream from which it was sent. `meta`: without.
    fn repeat(
        &mut self,
        given: &Given<'_>,
        SentOrigin { number, name }: &SentOrigin<'_>,
        meta: &Meta,
        origins: &mut Origins,
        out: &mut dyn Outlet,
    ) -> Result<Pushed, Fault> {
        let (offset, spot) = (given.offset, (self.topic, self.number, given.offset));
        let place = origins.place(name, out)?;
        if let Some(place) = place.filter(|_| offset < self.known_below)
            && origins.take(&String::from_utf8_lossy(name), *number)
        {
            origins.find(place, spot);
            self.place.elsewhere += 1;
            return Ok(Pushed::Taken);
        }
        // It came before the section had `mirror`.
        if self.has(origins, meta, offset) {
            return Ok(Pushed::Taken);
        }
        let Some(place) = place else { return self.push(given, meta, out) };
        let at = (spot, meta.source_time);
        origins.pass(place, *number, at, &mut self.retired, out)?;
        let meta = Meta { origin: origins.row(place), origin_seq: *number, ..*meta };
        let pushed = out.push(&meta, given.payload)?;
        if pushed == Pushed::Taken {
            origins.note(place, *number, at);
            self.place.elsewhere += 1;
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
        self.learned = self.learned.max(end);
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
    use flow::{OriginAccounts, Resume, Silence};
    use std::ops::RangeInclusive;

    /// Records every call.
    #[derive(Default)]
    struct Recorder {
        names: Vec<String>,
        origins: Vec<u32>,
        offsets: Vec<u64>,
        missing: Vec<(RangeInclusive<u64>, String)>,
        times: Vec<RangeInclusive<i64>>,
        is_full: bool,
    }

    impl Recorder {
        /// The messages: origin and number.
        fn rows(&self) -> Vec<String> {
            let row = |(origin, number): (&u32, &u64)| format!("{} {number}", self.names[*origin as usize]);
            self.origins.iter().zip(&self.offsets).map(row).collect()
        }
    }

    impl OriginAccounts for Recorder {
        fn origin(&mut self, name: &str) -> Result<u32, Fault> {
            let known = self.names.iter().position(|known| known == name);
            let row = known.unwrap_or_else(|| {
                self.names.push(name.to_owned());
                self.names.len() - 1
            });
            Ok(u32::try_from(row).unwrap())
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
            self.origins.push(meta.origin);
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
        Given { offset, payload: b"x", time: Some(10), sent: None }
    }

    /// Partition 0 of a topic, at an offset; `first` is the oldest that is there.
    fn begun(next: u64, first: u64, time: Option<i64>) -> Partition {
        let place = Place { next, life: 1, ..Place::default() };
        let resumed = Resumed { kept: Kept { place, ..Kept::default() }, from: next };
        Partition::new((0, 0), "a/0".into(), resumed, (first, 0), time)
    }

    #[test]
    fn offsets_without_a_message_are_skipped_and_those_that_retention_took_are_lost() {
        let (mut out, mut partition) = (Recorder::default(), begun(5, 8, Some(5)));
        // 8 and 9 were compacted; 11 is the marker of a transaction, as is 13, the last.
        for offset in [10, 12, 10] {
            assert_eq!(partition.give(&given(offset), 30, None, &mut out).unwrap(), Pushed::Taken);
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
        let mut partition = begun(0, 0, None);
        assert_eq!(partition.give(&given(3), 30, None, &mut out).unwrap(), Pushed::Full);
        out.is_full = false;
        assert_eq!(partition.give(&given(3), 30, None, &mut out).unwrap(), Pushed::Taken);
        assert_eq!((out.offsets.as_slice(), out.missing.len(), partition.place.next), ([3].as_slice(), 1, 4));
    }

    #[test]
    fn one_message_of_a_wrong_clock_does_not_move_the_frontier() {
        let (mut out, mut offset) = (Recorder::default(), 0);
        let mut partition = begun(0, 0, None);
        let mut give = |time: Option<i64>| {
            let given = Given { offset, payload: b"x", time, sent: None };
            assert_eq!(partition.give(&given, 1000, None, &mut out).unwrap(), Pushed::Taken);
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
            let given = Given { offset: offset as u64, payload: b"x", time: Some(time), sent: None };
            assert_eq!(partition.give(&given, 1000, None, &mut out).unwrap(), Pushed::Taken);
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
            let given = Given { offset, payload: &payload, time, sent: None };
            assert_eq!(partition.give(&given, i64::MAX, None, &mut out).unwrap(), Pushed::Taken);
            after.push(partition.frontier.div_euclid(SECOND));
        }
        after
    }

    fn partition(lag: i64) -> Partition {
        let mut partition = begun(0, 0, None);
        partition.place.lag = lag;
        partition
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
        let mut hole = begun(0, 5, None);
        // Retention removed all that the source was to read; then a message.
        hole.reach(5, &mut out).unwrap();
        assert_eq!(hole.give(&given(7), 30, None, &mut out).unwrap(), Pushed::Taken);
        hole.reach(9, &mut out).unwrap();
        assert_eq!(out.times, [i64::MIN..=i64::MAX, i64::MIN..=10, 10..=i64::MAX]);
    }

    #[test]
    fn nothing_behind_the_limit_is_taken_or_counted() {
        let mut out = Recorder::default();
        let mut partition = begun(0, 0, None);
        partition.limit = Some(2);
        assert!(!partition.is_done());
        for offset in [0, 5] {
            assert_eq!(partition.give(&given(offset), 30, None, &mut out).unwrap(), Pushed::Taken);
        }
        assert_eq!((out.offsets.as_slice(), out.missing.len()), ([0].as_slice(), 1));
        assert!(partition.is_done() && partition.is_even());
    }

    /// Offset, stream, sequence, and of the origin its number and name.
    type Row<'a> = (u64, u8, u64, Option<(u64, &'a str)>);

    fn sent_by((offset, stream, sequence, origin): Row<'_>) -> Given<'_> {
        let identity = flow::Identity { uuid: [stream; 16], epoch: 1, sequence };
        let origin = origin.map(|(number, name)| SentOrigin { number, name: name.as_bytes() });
        Given { sent: Some(Sent { identity, origin }), ..given(offset) }
    }

    fn give(partition: &mut Partition, origins: &mut Origins, out: &mut Recorder, rows: &[Row<'_>]) {
        for row in rows {
            let pushed = partition.give(&sent_by(*row), 30, Some(&mut *origins), out).unwrap();
            assert_eq!(pushed, Pushed::Taken);
        }
    }

    /// A partition whose messages are repeated, and whose oldest is at `first`.
    fn mirror(first: u64) -> (Recorder, Partition, Origins) {
        (Recorder::default(), begun(0, first, None), mirrors(&Resume::default()))
    }

    fn mirrors(resume: &Resume) -> Origins {
        Origins::new(resume, &["a".to_owned()])
    }

    /// The state of a partition, as a source that starts again resumes from it.
    fn resumed(partition: &Partition, next: u64) -> Resumed {
        let kept = partition.keep();
        let from = kept.place.next;
        Resumed { kept: Kept { place: Place { next: next.max(from), ..kept.place }, ..kept }, from }
    }

    #[test]
    fn a_message_of_a_sink_that_comes_twice_is_dropped_and_counted_by_its_offset() {
        let (mut out, mut partition) = (Recorder::default(), begun(0, 0, None));
        for (offset, (stream, sequence)) in (0..).zip([(1, 7), (1, 8), (1, 7), (1, 8), (1, 9), (2, 7)]) {
            let row = (offset, stream, sequence, None);
            assert_eq!(partition.give(&sent_by(row), 30, None, &mut out).unwrap(), Pushed::Taken);
        }
        assert_eq!(out.offsets, [0, 1, 4, 5]);
        assert_eq!(out.missing, [(2..=2, DOUBLE.to_owned()), (3..=3, DOUBLE.to_owned())]);
    }

    #[test]
    fn a_message_without_room_is_no_double_of_itself() {
        let (mut out, mut partition) = (Recorder { is_full: true, ..Recorder::default() }, begun(0, 0, None));
        assert_eq!(partition.give(&sent_by((0, 1, 7, None)), 30, None, &mut out).unwrap(), Pushed::Full);
        out.is_full = false;
        assert_eq!(partition.give(&sent_by((0, 1, 7, None)), 30, None, &mut out).unwrap(), Pushed::Taken);
        assert_eq!((out.offsets.as_slice(), out.missing.len()), ([0].as_slice(), 0));
    }

    #[test]
    fn what_came_after_the_state_is_read_again_to_know_its_doubles() {
        let (mut out, mut partition) = (Recorder::default(), begun(0, 0, None));
        let rows: [Row<'_>; 4] = [(0, 1, 7, None), (1, 1, 8, None), (2, 1, 9, None), (3, 1, 8, None)];
        assert_eq!(partition.give(&sent_by(rows[0]), 30, None, &mut out).unwrap(), Pushed::Taken);
        // The state is of then, and the stream has the next two. It is killed before the last one is counted.
        let resumed = resumed(&partition, 3);
        let mut again = Partition::new((0, 0), "a/0".into(), resumed, (0, 4), None);
        assert_eq!((again.from(), again.keep().place.next), (1, 1));
        for (row, next) in [(rows[1], 2), (rows[2], 3), (rows[3], 4)] {
            assert_eq!(again.give(&sent_by(row), 30, None, &mut out).unwrap(), Pushed::Taken);
            assert_eq!(again.keep().place.next, next);
        }
        assert_eq!((out.offsets, out.missing), (vec![0], vec![(3..=3, DOUBLE.to_owned())]));
    }

    #[test]
    fn what_was_skipped_before_a_kill_is_counted_again() {
        let (mut out, mut partition) = (Recorder::default(), begun(0, 0, None));
        let rows: [Row<'_>; 4] = [(0, 1, 7, None), (1, 1, 8, None), (2, 1, 8, None), (5, 1, 9, None)];
        assert_eq!(partition.give(&sent_by(rows[0]), 30, None, &mut out).unwrap(), Pushed::Taken);
        // The state is of then. The stream has offsets 1 and 5, and the process is killed before its account has the
        // double between them, and two offsets of a transaction.
        let mut again = Partition::new((0, 0), "a/0".into(), resumed(&partition, 6), (0, 6), None);
        for row in [rows[1], rows[2], rows[3], rows[2]] {
            assert_eq!(again.give(&sent_by(row), 30, None, &mut out).unwrap(), Pushed::Taken);
        }
        assert_eq!((out.offsets, again.keep().place.next), (vec![0], 6));
        assert_eq!(out.missing, [(2..=2, DOUBLE.to_owned()), (3..=4, SKIPPED.to_owned())]);
    }

    #[test]
    fn a_repeated_message_keeps_its_origin_and_number_and_offsets_count_the_others() {
        let (mut out, mut partition, mut origins) = mirror(3);
        // Retention has deleted three, 6 is compacted.
        let rows = [(3, 1, 0, (500, "cam")), (4, 2, 0, (9, "dog")), (5, 1, 1, (501, "cam"))];
        give(&mut partition, &mut origins, &mut out, &rows.map(|(a, b, c, origin)| (a, b, c, Some(origin))));
        assert_eq!(partition.give(&given(7), 30, Some(&mut origins), &mut out).unwrap(), Pushed::Taken);
        // One twice; one of an older sink.
        give(&mut partition, &mut origins, &mut out, &[(8, 1, 1, Some((501, "cam"))), (9, 3, 1, None)]);
        assert_eq!(out.rows(), ["cam 500", "dog 9", "cam 501", "a/0 4", "a/0 6"]);
        let missing = |numbers, reason: &str| (numbers, reason.to_owned());
        assert_eq!(out.missing, [missing(0..=2, RETIRED), missing(3..=3, SKIPPED), missing(5..=5, DOUBLE)]);
        assert_eq!((partition.place.next, partition.place.elsewhere), (10, 3));
    }

    #[test]
    fn holes_in_the_numbers_of_an_origin_are_those_of_retention_first_and_then_of_the_near_side() {
        let (mut out, mut partition, mut origins) = mirror(0);
        give(&mut partition, &mut origins, &mut out, &[(0, 1, 0, Some((10, "cam"))), (1, 1, 1, Some((12, "cam")))]);
        let near = |numbers| (numbers, "near".to_owned());
        assert_eq!(std::mem::take(&mut out.missing), [near(11..=11)]);
        // Retention deletes four, of which three are of this origin, and the near side has lost one of another.
        partition.first = 6;
        give(&mut partition, &mut origins, &mut out, &[(6, 1, 5, Some((16, "cam"))), (7, 1, 6, Some((20, "cam")))]);
        let skipped = |numbers| (numbers, "skipped.retention".to_owned());
        assert_eq!(out.missing, [(0..=3, RETIRED.to_owned()), skipped(13..=15), near(17..=19)]);
        // A late one, and one that begins another life, are no holes; nor is what comes behind that.
        out.missing.clear();
        let rows = [(8, 11), (9, 9000), (10, 3), (11, 4)];
        give(&mut partition, &mut origins, &mut out, &rows.map(|(n, number)| (n, 1, n, Some((number, "cam")))));
        assert_eq!(out.missing, [near(21..=8999)]);
    }

    #[test]
    fn after_a_kill_each_repeated_message_is_there_once_in_whatever_order_its_numbers_come() {
        let numbers = [(5, "cam"), (7, "cam"), (6, "cam"), (6, "cam"), (1, "dog"), (8, "cam#2")];
        let rows: Vec<Row<'_>> = (0..).zip(numbers).map(|(n, origin)| (n, 1, n, Some(origin))).collect();
        for (state, there) in [(0, 0), (0, 3), (1, 3), (2, 4), (2, 6), (3, 5)] {
            let (mut out, mut partition, mut origins) = mirror(0);
            give(&mut partition, &mut origins, &mut out, &rows[..state]);
            let resumed = resumed(&partition, 0);
            give(&mut partition, &mut origins, &mut out, &rows[state..there]);
            // The stream's own account at a start.
            let mut resume = Resume::default();
            for (number, name) in &numbers[state..there] {
                resume.tail.entry((*name).to_owned()).or_default().push(*number);
            }
            let mut again = Partition::new((0, 0), "a/0".into(), resumed, (0, 6), None);
            assert_eq!(again.from(), state as u64);
            let mut origins = mirrors(&resume);
            give(&mut again, &mut origins, &mut out, &rows[state..]);
            let all: Vec<String> = numbers.iter().map(|(number, name)| format!("{name} {number}")).collect();
            assert_eq!(out.rows(), all, "{state} {there}");
            assert_eq!(again.place.elsewhere, 6);
        }
    }

    #[test]
    fn a_name_that_no_origin_can_have_and_that_of_a_partition_are_of_the_partition() {
        let (mut out, mut partition, mut origins) = mirror(0);
        give(&mut partition, &mut origins, &mut out, &[(0, 1, 0, Some((7, "a/0"))), (1, 1, 1, Some((8, "b/0")))]);
        let origin = Some(SentOrigin { number: 9, name: &[0xff] });
        let identity = flow::Identity { uuid: [1; 16], epoch: 1, sequence: 2 };
        let odd = Given { sent: Some(Sent { identity, origin }), ..given(2) };
        assert_eq!(partition.give(&odd, 30, Some(&mut origins), &mut out).unwrap(), Pushed::Taken);
        assert_eq!(out.rows(), ["a/0 0", "b/0 8", "a/0 1"]);
    }
}
