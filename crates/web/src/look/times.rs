//! The source times of a stream: a map of them, and the lane of the time bar that is drawn from it.
//!
//! The map is made in one pass over the time table of the stream and then reads only what came since. It has a limited
//! number of spans: where there are more, neighbours are joined, and the map gets coarser.

use super::stream::Stream;
use super::{Panel, Streams};
use crate::answer::Answer;
use crate::limits::{GAPS_AGE, GAPS_MAX, GAPS_PAUSE, SPANS_MAX};
use flow::records::Gap;
use flow::{Data, Fault, aside_of, ledger};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use store::limits::TIME_BLOCK;
use store::{Reader, Stretch, TimeSpan};

/// Where the messages of a stream lie in time.
#[derive(Default)]
pub(super) struct Times {
    /// The newest epoch that was read: where a recovery has cut messages, others have their numbers.
    epoch: Option<u32>,
    spans: Vec<TimeSpan>,
}

impl Times {
    /// Reads what came since the last time, and forgets what retention has deleted.
    pub(super) fn refresh(&mut self, reader: &mut Reader) -> store::Result<()> {
        let bounds = reader.bounds();
        let epoch = reader.header().epochs.last().map(|(epoch, _)| *epoch);
        if epoch != self.epoch {
            *self = Self { epoch, spans: Vec::new() };
        }
        let gone = self.spans.partition_point(|span| span.next <= bounds.first);
        self.spans.drain(..gone);
        // The newest block may have been part of one.
        if self.spans.last().is_some_and(|last| !last.next.is_multiple_of(TIME_BLOCK)) {
            self.spans.pop();
        }
        let from = self.spans.last().map_or(bounds.first, |last| last.next);
        let spans = &mut self.spans;
        reader.walk_times(from, &mut |span| spans.push(span))?;
        while self.spans.len() > SPANS_MAX {
            self.coarsen();
        }
        Ok(())
    }

    /// Joins neighbours.
    fn coarsen(&mut self) {
        let joined = self.spans.chunks(2).map(|pair| TimeSpan {
            first: pair[0].first,
            next: pair[pair.len() - 1].next,
            earliest: pair.iter().map(|span| span.earliest).min().unwrap_or_default(),
            latest: pair.iter().map(|span| span.latest).max().unwrap_or_default(),
        });
        self.spans = joined.collect();
    }

    /// One past the newest message whose source time is not after `at`.
    pub(super) fn end_at(&self, reader: &mut Reader, at: i64) -> store::Result<u64> {
        for span in self.spans.iter().rev().filter(|span| span.earliest <= at) {
            if span.latest <= at {
                return Ok(span.next);
            }
            for block in blocks(span).rev() {
                if let Some((_, newest)) = ends(reader, block, (i64::MIN, at))? {
                    return Ok(newest + 1);
                }
            }
        }
        Ok(self.spans.first().map_or(0, |span| span.first))
    }

    /// The smallest range outside of which no message that can be read has a source time from `from` to `to`.
    pub(super) fn range(&self, reader: &mut Reader, (from, to): (i64, i64)) -> store::Result<(u64, u64)> {
        let touches = |span: &&TimeSpan| span.latest >= from && span.earliest <= to;
        let all = || self.spans.iter().filter(touches).flat_map(blocks);
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

    /// Messages in equal parts of the time from `from` to `to`: those of a span are spread evenly over its time.
    fn density(&self, (from, to): (i64, i64), width: usize) -> Vec<f32> {
        let mut counts = vec![0.0_f64; width];
        let scale = width as f64 / (to as f64 - from as f64 + 1.0);
        for span in self.spans.iter().filter(|span| span.latest >= from && span.earliest <= to) {
            let count = (span.next - span.first) as f64;
            let (begin, end) = ((span.earliest - from) as f64 * scale, (span.latest - from) as f64 * scale);
            let (low, high) = (begin.floor().max(0.0) as usize, (end.floor() as usize).min(width - 1));
            if end - begin < 1e-9 {
                counts[low.min(width - 1)] += count;
                continue;
            }
            for (at, part) in counts.iter_mut().enumerate().take(high + 1).skip(low) {
                let covered = end.min(at as f64 + 1.0) - begin.max(at as f64);
                *part += count * covered.max(0.0) / (end - begin);
            }
        }
        counts.into_iter().map(|count| count as f32).collect()
    }
}

/// The parts of a span in each block of the time table, as ranges of messages.
fn blocks(span: &TimeSpan) -> impl DoubleEndedIterator<Item = (u64, u64)> + use<> {
    let &TimeSpan { first, next, .. } = span;
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

/// Known gaps of streams, each asked for now and then.
#[derive(Default)]
pub(super) struct Gaps {
    known: HashMap<String, Known>,
}

struct Known {
    asked: Instant,
    took: Duration,
    gaps: Vec<Gap>,
}

impl Gaps {
    /// The gaps of a stream, from a moment ago.
    fn of(&mut self, data: &Data, stream: &str) -> Result<&[Gap], Fault> {
        let pause = |known: &Known| GAPS_AGE.max(known.took * GAPS_PAUSE);
        if self.known.get(stream).is_none_or(|known| known.asked.elapsed() > pause(known)) {
            let begun = Instant::now();
            let gaps = ledger::gaps(data, stream)?;
            let took = begun.elapsed();
            self.known.insert(stream.to_owned(), Known { asked: Instant::now(), took, gaps });
        }
        Ok(self.known.get(stream).map_or(&[], |known| &known.gaps))
    }
}

/// Adds the lane of a stream: its density, its gaps, and messages aside.
pub(super) fn show(
    (data, streams, gaps): (&Data, &mut Streams, &mut Gaps),
    panel: &Panel,
    (from, to): (i64, i64),
    width: usize,
    object: &mut Map<String, Value>,
    answer: &mut Answer,
) -> Result<(), Fault> {
    answer.room(width * 2, 4)?;
    let stream = streams.open(data, &panel.stream)?;
    let density = |stream: &mut Stream| {
        stream.refresh_times()?;
        let spans = &stream.times.spans;
        let held = spans.iter().map(|s| s.earliest).min().zip(spans.iter().map(|s| s.latest).max());
        Ok::<_, Fault>((stream.times.density((from, to), width), held))
    };
    let (counts, held) = density(stream)?;
    let mut arrays = Map::new();
    arrays.insert("counts".into(), answer.array(&[width], &counts));
    if let Ok(stream) = streams.open_book(data, &aside_of(&panel.stream)) {
        arrays.insert("aside".into(), answer.array(&[width], &density(stream)?.0));
    }
    let inside = |gap: &&Gap| gap.to >= from && gap.from <= to;
    let all: Vec<&Gap> = gaps.of(data, &panel.stream)?.iter().filter(inside).collect();
    let facts = json!({
        "from": from,
        "to": to,
        "earliest": held.map(|held| held.0),
        "latest": held.map(|held| held.1),
        "gaps": all[all.len().saturating_sub(GAPS_MAX)..],
        "more": all.len().saturating_sub(GAPS_MAX),
        "arrays": arrays,
    });
    if let Value::Object(facts) = facts {
        object.extend(facts);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::Folder;
    use super::*;

    fn span(first: u64, next: u64, earliest: i64, latest: i64) -> TimeSpan {
        TimeSpan { first, next, earliest, latest }
    }

    #[test]
    fn messages_are_spread_over_their_time() {
        let times = Times {
            epoch: None,
            spans: vec![span(0, 100, 0, 99), span(100, 110, 150, 150), span(110, 120, 1000, 2000)],
        };
        let counts = times.density((0, 199), 4);
        assert!((counts[0] - 50.0).abs() < 1.0 && (counts[1] - 50.0).abs() < 1.0, "{counts:?}");
        assert_eq!((counts[2], counts[3]), (0.0, 10.0));
        // A span that begins before the bar has its share in it.
        let counts = times.density((50, 99), 1);
        assert!((counts[0] - 50.0).abs() < 1.0, "{counts:?}");
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
