//! A map of the source times of a stream.
//!
//! It is made in one pass over the time table of the stream and then reads only what came since. It has a limited
//! number of spans: where there are more, neighbours are joined, and the map gets coarser.

use crate::limits::SPANS_MAX;
use store::limits::TIME_BLOCK;
use store::{Reader, Stretch, TimeSpan};

/// Where the messages of a stream lie in time.
#[derive(Default)]
pub(super) struct Times {
    /// The newest epoch that was read: where a recovery has cut messages, others have their numbers.
    epoch: Option<u32>,
    pub(super) spans: Vec<Span>,
}

/// Messages that follow each other.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) times: TimeSpan,
    /// The longest time from a source time to the arrival, ns; none where the entries were not read yet.
    pub(super) lateness: Option<i64>,
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
    pub(super) fn around(&self, sequence: u64) -> Option<(i64, i64)> {
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

/// Where a time lies among `width` equal parts of the time from `from` to `to`.
pub(super) fn position(time: i64, (from, to): (i64, i64), width: usize) -> f64 {
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

#[cfg(test)]
mod tests {
    use super::super::tests::Folder;
    use super::*;
    use flow::Data;

    fn span(first: u64, next: u64, earliest: i64, latest: i64) -> TimeSpan {
        TimeSpan { first, next, earliest, latest }
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
