//! The lane of a stream in the time bar: its messages, and how late they were, in equal parts of a time.
//!
//! A lane is drawn from the map of [`Times`]. It reads the entries of spans that are longer than its parts, so that a
//! message is shown at its own time.

use super::stream::Stream;
use super::times::{Span, Times, position, shares};
use crate::limits::{GAPS_AGE, GAPS_PAUSE, LANE_MAX};
use flow::records::Gap;
use flow::{Data, Fault, RunsView, ledger, stream_fault};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use store::{Clock, Entry, Reader, Stretch, TimeSpan};
use wire::bprn::State;

/// Adds the messages of the stream to a lane, the newest first. Messages beyond the entries that a lane may read are
/// spread evenly over the time of its span.
fn fill(times: &mut Times, reader: &mut Reader, seals: &Seals, lane: &mut Lane) -> store::Result<()> {
    let mut left = LANE_MAX;
    for at in (0..times.spans.len()).rev() {
        let Span { times: span, lateness } = times.spans[at];
        if span.latest < lane.from || span.earliest > lane.to {
            continue;
        }
        let is_long = lane.place(span.latest).floor() - lane.place(span.earliest).floor() > 1.0;
        let is_unread = lane.lateness.is_some() && lateness.is_none();
        let count = span.next - span.first;
        if (is_long || is_unread || seals.stop_before(span.next) > span.earliest) && count <= left {
            left -= count;
            times.spans[at].lateness = read(reader, (span.first, span.next), seals, lane)?;
        } else {
            lane.spread(span, lateness);
        }
    }
    Ok(())
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

/// The messages of a stream, in equal parts of the time from `from` to `to`.
pub(super) struct Lane {
    from: i64,
    to: i64,
    clock: Clock,
    pub(super) counts: Vec<f64>,
    /// The longest time from a source time to the arrival, ns; NaN where it is not known. None: not asked for.
    pub(super) lateness: Option<Vec<f64>>,
    /// Messages that came behind the seal of their run.
    pub(super) late: Vec<f64>,
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
pub(super) struct Seals {
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
    pub(super) fn of(runs: &[flow::records::Run], reader: &Reader) -> Self {
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

/// The losses of streams and the runs, as their books have them; each is read now and then.
pub(super) struct Books {
    gaps: HashMap<String, GapsOfStream>,
    pub(super) runs: RunsView,
}

/// The gaps of a stream, as the ledger had them.
struct GapsOfStream {
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
    pub(super) fn gaps(&mut self, data: &Data, stream: &str, times: &Times) -> Result<(&[Gap], i64), Fault> {
        let pause = |known: &GapsOfStream| GAPS_AGE.max(known.took * GAPS_PAUSE);
        if self.gaps.get(stream).is_none_or(|known| known.asked.elapsed() > pause(known)) {
            let (begun, at) = (Instant::now(), data.media.now());
            let mut gaps = ledger::gaps(data, stream)?;
            place(&mut gaps, times);
            let took = begun.elapsed();
            self.gaps.insert(stream.to_owned(), GapsOfStream { asked: Instant::now(), took, gaps, at });
        }
        Ok(self.gaps.get(stream).map_or((&[], 0), |known| (&known.gaps, known.at)))
    }
}

/// The lane of a stream.
pub(super) fn lane(
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
        let filled = fill(&mut stream.times, &mut stream.reader, seals, &mut lane);
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
}
