//! The source times of a stream: a map of them, and the lane of the time bar that is drawn from it.
//!
//! The map is made in one pass over the time table of the stream and then reads only what came since. It has a limited
//! number of spans: where there are more, neighbours are joined, and the map gets coarser. A lane reads the entries of
//! spans that are longer than its parts, so that a message is shown at its own time.

use super::stream::Stream;
use super::{Panel, Streams};
use crate::answer::Answer;
use crate::limits::{GAPS_AGE, GAPS_MAX, GAPS_PAUSE, LANE_MAX, SPANS_MAX};
use flow::records::Gap;
use flow::{Data, Fault, RunsView, aside_of, ledger, stream_fault};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use store::limits::TIME_BLOCK;
use store::{Clock, Entry, Reader, Stretch, TimeSpan};
use wire::bprn::State;

/// Where the messages of a stream lie in time.
#[derive(Default)]
pub(super) struct Times {
    /// The newest epoch that was read: where a recovery has cut messages, others have their numbers.
    epoch: Option<u32>,
    spans: Vec<Span>,
}

/// Messages that follow each other.
#[derive(Clone, Copy)]
struct Span {
    times: TimeSpan,
    /// The longest time from a source time to the arrival, ns; none where the entries were not read yet.
    lateness: Option<i64>,
}

impl Span {
    fn joined(self, next: Self) -> Self {
        let times = TimeSpan {
            first: self.times.first,
            next: next.times.next,
            earliest: self.times.earliest.min(next.times.earliest),
            latest: self.times.latest.max(next.times.latest),
        };
        Self { times, lateness: self.lateness.zip(next.lateness).map(|(one, other)| one.max(other)) }
    }
}

impl Times {
    /// Reads what came since the last time, and forgets what retention has deleted.
    pub(super) fn refresh(&mut self, reader: &mut Reader) -> store::Result<()> {
        let bounds = reader.bounds();
        let epoch = reader.header().epochs.last().map(|(epoch, _)| *epoch);
        if epoch != self.epoch {
            *self = Self { epoch, spans: Vec::new() };
        }
        let gone = self.spans.partition_point(|span| span.times.next <= bounds.first);
        self.spans.drain(..gone);
        // The newest block may have been part of one.
        if self.spans.last().is_some_and(|last| !last.times.next.is_multiple_of(TIME_BLOCK)) {
            self.spans.pop();
        }
        let from = self.spans.last().map_or(bounds.first, |last| last.times.next);
        let spans = &mut self.spans;
        reader.walk_times(from, &mut |times| spans.push(Span { times, lateness: None }))?;
        while self.spans.len() > SPANS_MAX {
            self.coarsen();
        }
        Ok(())
    }

    /// Joins neighbours.
    fn coarsen(&mut self) {
        let joined = self.spans.chunks(2).map(|pair| pair[1..].iter().fold(pair[0], |one, next| one.joined(*next)));
        self.spans = joined.collect();
    }

    /// One past the newest message whose source time is not after `at`.
    pub(super) fn end_at(&self, reader: &mut Reader, at: i64) -> store::Result<u64> {
        for span in self.spans.iter().rev().map(|span| span.times).filter(|span| span.earliest <= at) {
            if span.latest <= at {
                return Ok(span.next);
            }
            for block in blocks(span).rev() {
                if let Some((_, newest)) = ends(reader, block, (i64::MIN, at))? {
                    return Ok(newest + 1);
                }
            }
        }
        Ok(self.spans.first().map_or(0, |span| span.times.first))
    }

    /// The smallest range outside of which no message that can be read has a source time from `from` to `to`.
    pub(super) fn range(&self, reader: &mut Reader, (from, to): (i64, i64)) -> store::Result<(u64, u64)> {
        let touches = |span: &TimeSpan| span.latest >= from && span.earliest <= to;
        let all = || self.spans.iter().map(|span| span.times).filter(touches).flat_map(blocks);
        let mut low = None;
        for block in all() {
            low = ends(reader, block, (from, to))?.map(|(oldest, _)| oldest);
            if low.is_some() {
                break;
            }
        }
        if let Some(low) = low {
            for block in all().rev() {
                if let Some((_, newest)) = ends(reader, block, (from, to))? {
                    return Ok((low, newest + 1));
                }
            }
        }
        let end = reader.end();
        Ok((end, end))
    }

    /// Between which source times a message lies that is not in the stream: those of its neighbours.
    fn around(&self, sequence: u64) -> Option<(i64, i64)> {
        let next = self.spans.partition_point(|span| span.times.next <= sequence);
        let after = self.spans.get(next).map(|span| span.times);
        if let Some(span) = after.filter(|span| span.first < sequence) {
            return Some((span.earliest, span.latest));
        }
        let after = after.map(|span| span.earliest);
        let before = next.checked_sub(1).map(|at| self.spans[at].times.latest);
        let (before, after) = (before.or(after)?, after.or(before)?);
        Some((before.min(after), after))
    }

    /// Adds the messages of the stream to a lane, the newest first. What is more than the lane may read of entries is
    /// spread evenly over the time of its span.
    fn fill(&mut self, reader: &mut Reader, seals: &Seals, lane: &mut Lane) -> store::Result<()> {
        let mut left = LANE_MAX;
        for at in (0..self.spans.len()).rev() {
            let Span { times, lateness } = self.spans[at];
            if times.latest < lane.from || times.earliest > lane.to {
                continue;
            }
            let is_long = lane.place(times.latest).floor() - lane.place(times.earliest).floor() > 1.0;
            let is_unread = lane.lateness.is_some() && lateness.is_none();
            let count = times.next - times.first;
            if (is_long || is_unread || seals.stop_before(times.next) > times.earliest) && count <= left {
                left -= count;
                self.spans[at].lateness = read(reader, (times.first, times.next), seals, lane)?;
            } else {
                lane.spread(times, lateness);
            }
        }
        Ok(())
    }
}

/// The parts of a span in each block of the time table, as ranges of messages.
fn blocks(span: TimeSpan) -> impl DoubleEndedIterator<Item = (u64, u64)> + use<> {
    let TimeSpan { first, next, .. } = span;
    let numbers = first / TIME_BLOCK..next.div_ceil(TIME_BLOCK);
    numbers.map(move |number| ((number * TIME_BLOCK).max(first), ((number + 1) * TIME_BLOCK).min(next)))
}

/// The oldest and the newest message of `low..high` with a source time from `from` to `to`, of those that can be read.
fn ends(reader: &mut Reader, (low, high): (u64, u64), (from, to): (i64, i64)) -> store::Result<Option<(u64, u64)>> {
    let mut found = None;
    let mut at = low;
    while at < high {
        match reader.next_entries(at, (high - at) as usize)? {
            Stretch::Messages([]) => break,
            Stretch::Messages(entries) => {
                for (sequence, entry) in (at..).zip(entries) {
                    if (from..=to).contains(&entry.source_time) {
                        found = Some((found.map_or(sequence, |(oldest, _)| oldest), sequence));
                    }
                }
                at += entries.len() as u64;
            }
            Stretch::Missing(missing) => at = missing.next,
        }
    }
    Ok(found)
}

/// Adds messages to a lane by their entries. Their longest time from source to arrival.
fn read(reader: &mut Reader, (low, high): (u64, u64), seals: &Seals, lane: &mut Lane) -> store::Result<Option<i64>> {
    let (mut at, mut latest) = (low, None);
    while at < high {
        match reader.next_entries(at, usize::try_from(high - at).unwrap_or(usize::MAX))? {
            Stretch::Messages([]) => break,
            Stretch::Messages(entries) => {
                for (entry, sequence) in entries.iter().zip(at..) {
                    lane.add(entry, seals.is_behind(sequence, entry.source_time));
                    latest = latest.max(Some(lateness(entry)));
                }
                at += entries.len() as u64;
            }
            Stretch::Missing(missing) => at = missing.next,
        }
    }
    Ok(latest)
}

/// Time from the source time of a message to its arrival, ns.
fn lateness(entry: &Entry) -> i64 {
    entry.arrival_time.saturating_sub(entry.source_time)
}

/// Where a time lies among `width` equal parts of the time from `from` to `to`.
fn position(time: i64, (from, to): (i64, i64), width: usize) -> f64 {
    let (time, from, to) = (i128::from(time), i128::from(from), i128::from(to));
    time.saturating_sub(from) as f64 * width as f64 / ((to - from) as f64 + 1.0)
}

/// The parts of a time that a stretch of time touches, each with its share of the stretch; a moment is in one part. The
/// shares add up to 1 where the stretch lies inside.
pub(super) fn shares(
    (begin, end): (i64, i64),
    times: (i64, i64),
    width: usize,
) -> impl Iterator<Item = (usize, f64)> + use<> {
    let (begin, end) = (position(begin, times, width), position(end, times, width));
    let part = |place: f64| (place.max(0.0) as usize).min(width - 1);
    let low = part(begin);
    let is_moment = end - begin < 1e-9;
    let high = if is_moment { low } else { part(end).max(low) };
    (low..=high).map(move |part| {
        let covered = end.min(part as f64 + 1.0) - begin.max(part as f64);
        (part, if is_moment { 1.0 } else { covered.max(0.0) / (end - begin) })
    })
}

/// The messages of a stream, in equal parts of the time from `from` to `to`.
struct Lane {
    from: i64,
    to: i64,
    clock: Clock,
    counts: Vec<f64>,
    /// The longest time from a source time to the arrival, ns; NaN where it is not known. None: not asked for.
    lateness: Option<Vec<f64>>,
    /// Messages that came behind the seal of their run.
    late: Vec<f64>,
}

impl Lane {
    fn new((from, to): (i64, i64), width: usize, clock: Clock, has_lateness: bool) -> Self {
        let lateness = has_lateness.then(|| vec![f64::NAN; width]);
        Self { from, to, clock, counts: vec![0.0; width], lateness, late: vec![0.0; width] }
    }

    /// Where a time lies, in parts.
    fn place(&self, time: i64) -> f64 {
        position(time, (self.from, self.to), self.counts.len())
    }

    fn add(&mut self, entry: &Entry, is_late: bool) {
        let time = self.clock.time_of(entry);
        if time < self.from || time > self.to {
            return;
        }
        let part = (self.place(time) as usize).min(self.counts.len() - 1);
        self.counts[part] += 1.0;
        self.late[part] += f64::from(u8::from(is_late));
        if let Some(parts) = &mut self.lateness {
            parts[part] = parts[part].max(lateness(entry) as f64);
        }
    }

    /// Spreads messages evenly over their time.
    fn spread(&mut self, times: TimeSpan, lateness: Option<i64>) {
        let count = (times.next - times.first) as f64;
        for (part, share) in shares((times.earliest, times.latest), (self.from, self.to), self.counts.len()) {
            self.counts[part] += count * share;
            if let (Some(parts), Some(lateness)) = (&mut self.lateness, lateness) {
                parts[part] = parts[part].max(lateness as f64);
            }
        }
    }

    /// Adds the messages of a stream whose source times are ticks, by their arrival: the newest ones that may be read.
    fn fill_by_arrival(&mut self, stream: &mut Stream) -> Result<(), Fault> {
        let (low, high) = (stream.end_at(self.from.saturating_sub(1))?, stream.end_at(self.to)?);
        let start = low.max(high.saturating_sub(LANE_MAX));
        if start > low {
            let latest = stream.entry(start)?.map_or(self.to, |entry| entry.arrival_time);
            self.spread(TimeSpan { first: low, next: start, earliest: self.from, latest }, None);
        }
        stream.entries((start, high), &mut |_, entry| self.add(entry, false))
    }
}

/// Where runs were sealed in a stream.
#[derive(Default)]
struct Seals {
    /// By the number of the first message behind the seal.
    seals: Vec<Seal>,
}

struct Seal {
    /// One past the last message of the run.
    next: u64,
    start: i64,
    stop: i64,
    /// The latest stop of this one and those before.
    latest: i64,
}

impl Seals {
    fn of(runs: &[flow::records::Run], reader: &Reader) -> Self {
        let header = reader.header();
        let sealed = runs.iter().filter(|run| run.state == State::Sealed && header.clock == Clock::Epoch);
        let mut seals: Vec<Seal> = sealed
            .filter_map(|run| {
                let ranges = run.streams.iter().filter(|r| r.stream == header.name && r.uuid == header.uuid);
                let next = ranges.map(|range| range.next).max()?;
                Some(Seal { next, start: run.start, stop: run.stop, latest: run.stop })
            })
            .collect();
        seals.sort_unstable_by_key(|seal| seal.next);
        for at in 1..seals.len() {
            seals[at].latest = seals[at].latest.max(seals[at - 1].latest);
        }
        Self { seals }
    }

    /// The latest stop of the runs whose seal is before message `next - 1`.
    fn stop_before(&self, next: u64) -> i64 {
        let sealed = self.seals.partition_point(|seal| seal.next < next);
        sealed.checked_sub(1).map_or(i64::MIN, |at| self.seals[at].latest)
    }

    /// Whether a message came behind the seal of a run that it belongs to.
    fn is_behind(&self, sequence: u64, time: i64) -> bool {
        let sealed = self.seals.partition_point(|seal| seal.next <= sequence);
        let is_old = sealed.checked_sub(1).is_some_and(|at| self.seals[at].latest > time);
        is_old && self.seals[..sealed].iter().any(|seal| seal.start <= time && time < seal.stop)
    }
}

/// What books say of streams, each asked now and then.
pub(super) struct Books {
    gaps: HashMap<String, Known>,
    runs: RunsView,
}

struct Known {
    asked: Instant,
    took: Duration,
    gaps: Vec<Gap>,
    /// When they were asked for: later ones are not known.
    at: i64,
}

impl Books {
    pub(super) fn new(data: &Data) -> Self {
        Self { gaps: HashMap::new(), runs: RunsView::new(data) }
    }

    /// The gaps of a stream, from a moment ago, and this moment.
    fn gaps(&mut self, data: &Data, stream: &str, times: &Times) -> Result<(&[Gap], i64), Fault> {
        let pause = |known: &Known| GAPS_AGE.max(known.took * GAPS_PAUSE);
        if self.gaps.get(stream).is_none_or(|known| known.asked.elapsed() > pause(known)) {
            let (begun, at) = (Instant::now(), data.media.now());
            let mut gaps = ledger::gaps(data, stream)?;
            place(&mut gaps, times);
            let took = begun.elapsed();
            self.gaps.insert(stream.to_owned(), Known { asked: Instant::now(), took, gaps, at });
        }
        Ok(self.gaps.get(stream).map_or((&[], 0), |known| (&known.gaps, known.at)))
    }
}

/// Adds the lane of a stream: its density, its lateness, its gaps, and messages aside.
pub(super) fn show(
    (data, streams, books): (&Data, &mut Streams, &mut Books),
    panel: &Panel,
    (from, to): (i64, i64),
    width: usize,
    object: &mut Map<String, Value>,
    answer: &mut Answer,
) -> Result<(), Fault> {
    answer.room(width * 5, 4)?;
    let stream = streams.open(data, &panel.stream)?;
    let seals = Seals::of(books.runs.refresh()?, &stream.reader);
    let lane = lane(stream, &seals, (from, to), width, true)?;
    let arrived = stream.newest().map(|entry| entry.arrival_time);
    let (gaps, known_to) = books.gaps(data, &panel.stream, &stream.times)?;
    let gaps: Vec<&Gap> = gaps.iter().filter(|gap| super::gaps::overlaps(gap, (from, to))).collect();
    let earliest = stream.times.spans.iter().map(|span| span.times.earliest).min();
    let mut arrays = Map::new();
    let mut put = |name: &str, values: &[f64]| {
        let values: Vec<f32> = values.iter().map(|value| *value as f32).collect();
        arrays.insert(name.into(), answer.array(&[width], &values));
    };
    put("counts", &lane.counts);
    if let Some(lateness) = &lane.lateness {
        put("lateness", lateness);
    }
    if lane.late.iter().any(|count| *count > 0.0) {
        put("late", &lane.late);
    }
    put("lost", &super::gaps::loss(&gaps, (from, to), width));
    if let Ok(stream) = streams.open_book(data, &aside_of(&panel.stream)) {
        put("aside", &self::lane(stream, &Seals::default(), (from, to), width, false)?.counts);
    }
    let more = gaps.len().saturating_sub(GAPS_MAX);
    let facts = json!({
        "from": from,
        "to": to,
        "earliest": earliest,
        "arrived": arrived,
        "gaps": gaps[more..],
        "more": more,
        "known_to": known_to,
        "arrays": arrays,
    });
    if let Value::Object(facts) = facts {
        object.extend(facts);
    }
    Ok(())
}

/// Adds the gap of a stream that begins next after or before a moment, as the step says.
pub(super) fn next_gap(
    (data, streams, books): (&Data, &mut Streams, &mut Books),
    panel: &Panel,
    at: i64,
    object: &mut Map<String, Value>,
) -> Result<(), Fault> {
    let stream = streams.open(data, &panel.stream)?;
    stream.refresh_times()?;
    let (gaps, _) = books.gaps(data, &panel.stream, &stream.times)?;
    object.insert("found".into(), json!(super::gaps::next(gaps, at, panel.step >= 0)));
    Ok(())
}

/// The lane of a stream.
fn lane(
    stream: &mut Stream,
    seals: &Seals,
    times: (i64, i64),
    width: usize,
    has_lateness: bool,
) -> Result<Lane, Fault> {
    let clock = stream.reader.header().clock;
    // The source time of a message that came in ticks says nothing of its arrival.
    let mut lane = Lane::new(times, width, clock, has_lateness && clock == Clock::Epoch);
    stream.refresh_times()?;
    if clock == Clock::Epoch {
        let filled = stream.times.fill(&mut stream.reader, seals, &mut lane);
        filled.map_err(|e| stream_fault(&stream.reader.header().name, e))?;
    } else {
        lane.fill_by_arrival(stream)?;
    }
    Ok(lane)
}

/// Gives gaps whose times are unknown the time at which their messages are missing in the stream, where they are named
/// by their place in it.
fn place(gaps: &mut [Gap], times: &Times) {
    for gap in gaps.iter_mut().filter(|gap| gap.by_sequence && (gap.from, gap.to) == (i64::MIN, i64::MAX)) {
        (gap.from, gap.to) = times.around(gap.first).unwrap_or((gap.from, gap.to));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Folder;
    use super::*;

    fn span(first: u64, next: u64, earliest: i64, latest: i64) -> TimeSpan {
        TimeSpan { first, next, earliest, latest }
    }

    fn spread(times: (i64, i64), width: usize) -> Lane {
        let mut lane = Lane::new(times, width, Clock::Epoch, true);
        for one in [span(0, 100, 0, 99), span(100, 110, 150, 150), span(110, 120, 1000, 2000)] {
            if one.latest >= times.0 && one.earliest <= times.1 {
                lane.spread(one, Some(one.earliest));
            }
        }
        lane
    }

    #[test]
    fn messages_are_spread_over_their_time() {
        let lane = spread((0, 199), 4);
        let counts = &lane.counts;
        assert!((counts[0] - 50.0).abs() < 1.0 && (counts[1] - 50.0).abs() < 1.0, "{counts:?}");
        assert_eq!((counts[2], counts[3]), (0.0, 10.0));
        let lateness = lane.lateness.unwrap();
        assert_eq!((lateness[1], lateness[3]), (0.0, 150.0));
        assert!(lateness[2].is_nan());
        // A span that begins before the bar has its share in it.
        let counts = spread((50, 99), 1).counts;
        assert!((counts[0] - 50.0).abs() < 1.0, "{counts:?}");
    }

    #[test]
    fn times_far_off_have_a_place() {
        let mut lane = Lane::new((0, 9), 10, Clock::Epoch, true);
        lane.spread(span(0, 10, i64::MIN, i64::MAX), None);
        assert!(lane.counts.iter().all(|count| *count < 1.0), "{:?}", lane.counts);
    }

    #[test]
    fn a_gap_without_a_time_is_between_its_neighbours() {
        let spans = [span(0, 256, 10, 20), span(256, 300, 30, 40)].map(|times| Span { times, lateness: None });
        let times = Times { epoch: None, spans: spans.to_vec() };
        assert_eq!((times.around(256), times.around(270)), (Some((20, 30)), Some((30, 40))));
        assert_eq!((times.around(0), times.around(300)), (Some((10, 10)), Some((40, 40))));
        assert_eq!(Times::default().around(0), None);
    }

    /// A stream whose times rise by 20, shuffled within each 300 messages.
    fn shuffled(data: &Data, count: i64) -> Reader {
        let mut writer = data.writer("s", &store::Options::memory(64 << 20)).unwrap();
        let origin = writer.origin("o").unwrap();
        for number in 0..count {
            let source_time = 20 * (number / 300 * 300 + number * 77 % 300);
            let schema = store::SchemaId(*b"test");
            let meta = store::Meta { source_time, origin, origin_seq: number as u64, schema, flags: 0 };
            writer.append(&meta, b"x").unwrap();
        }
        data.reader_early("s").unwrap()
    }

    #[test]
    fn the_map_finds_what_a_pass_over_the_stream_finds() {
        let folder = Folder::new("times");
        let mut reader = shuffled(&folder.0, 3000);
        let mut times = Times::default();
        times.refresh(&mut reader).unwrap();
        for _ in 0..4 {
            for (from, to) in
                [(0, 0), (1, 19), (5, 5990), (5990, 6010), (17_001, 41_000), (-9, 70_000), (60_000, 70_000)]
            {
                let pass = reader.time_range(from, to + 1).unwrap();
                assert_eq!(times.range(&mut reader, (from, to)).unwrap(), pass, "{from} to {to}");
                let before = reader.time_range(i64::MIN, to + 1).unwrap().1;
                assert_eq!(times.end_at(&mut reader, to).unwrap(), before, "to {to}");
            }
            times.coarsen();
        }
    }
}
