//! The members of a run in its streams: how many are available, and how many retention deleted.
//!
//! A sealed run lists the sequence ranges of its members; the index tells which messages of a range are members.
//! Nothing is cached.

use crate::records::{Range, Run};
use crate::{Data, Fault, stream_fault};
use store::{Check, Clock, ReadOptions, Reader};

/// The members of a run in one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Stream.
    pub stream: String,
    /// Messages that are there.
    pub messages: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// Sequences (first, one past the last) of the run that retention took, or that went with their stream.
    pub gone: Option<(u64, u64)>,
    /// Messages of the run that a recovery has cut.
    pub cut: u64,
}

/// Names of the streams of a run, each once.
#[must_use]
pub fn streams(run: &Run) -> Vec<String> {
    let mut names: Vec<String> = run.streams.iter().map(|r| r.stream.clone()).collect();
    names.sort();
    names.dedup();
    names
}

fn ranges<'a>(run: &'a Run, stream: &'a str) -> impl Iterator<Item = &'a Range> {
    run.streams.iter().filter(move |r| r.stream == stream)
}

/// Where to look for the members of a run in a stream. Ranges are (first, one past the last).
pub struct Places {
    /// Sequences that may be members.
    pub spans: Vec<(u64, u64)>,
    /// Sequences that retention took, or that went with their stream.
    pub gone: Option<(u64, u64)>,
    /// Messages that a recovery has cut.
    pub cut: u64,
}

/// Where to look for the members of a sealed run in the stream of a reader.
pub fn places(run: &Run, reader: &mut Reader) -> Result<Places, Fault> {
    let (first, next, gone) = span(run, reader)?;
    let (spans, cut) = run.spans(reader.header(), first, next);
    // Messages that were removed with their stream count as gone.
    let is_other = ranges(run, &reader.header().name).any(|r| r.uuid != reader.header().uuid);
    Ok(Places { spans, gone, cut: if is_other { 0 } else { cut } })
}

/// First sequence and one past the last, and those that are gone.
type Span = (u64, u64, Option<(u64, u64)>);

fn span(run: &Run, reader: &mut Reader) -> Result<Span, Fault> {
    let header = reader.header().clone();
    let first = ranges(run, &header.name).map(|r| r.first).min().unwrap_or(0);
    let next = ranges(run, &header.name).map(|r| r.next).max().unwrap_or(0);
    if let Some(other) = ranges(run, &header.name).find(|r| r.uuid != header.uuid && r.first < r.next) {
        // A stream of the same name stands in its place: all of the run's messages are gone.
        return Ok((0, 0, Some((other.first, next))));
    }
    let bounds = reader.bounds();
    if first >= bounds.first || first >= next {
        return Ok((first, next.min(bounds.count), None));
    }
    // By arrival, times only rise: if what is left begins before the run, nothing of the run was taken.
    if header.clock != Clock::Epoch {
        let oldest = reader.entries(bounds.first, 1).map_err(|e| stream_fault(&header.name, e))?;
        if oldest.first().is_some_and(|e| e.arrival_time < run.start) {
            return Ok((bounds.first, next.min(bounds.count), None));
        }
    }
    Ok((bounds.first.min(next), next.min(bounds.count), Some((first, next.min(bounds.first)))))
}

/// Counts the members of a sealed run in one stream, from its index.
pub fn count(data: &Data, run: &Run, stream: &str) -> Result<Members, Fault> {
    let fault = |e| stream_fault(stream, e);
    let options = ReadOptions { early: true, check: Check::Entries, ..ReadOptions::default() };
    let mut reader = data.reader(stream, options)?;
    let clock = reader.header().clock;
    let Places { spans, gone, cut } = places(run, &mut reader)?;
    let mut members = Members { stream: stream.to_owned(), gone, cut, ..Members::default() };
    let mut see = |entries: &[store::Entry]| {
        for entry in entries {
            if run.holds(clock.time_of(entry)) {
                members.messages += 1;
                members.bytes += u64::from(entry.length);
            }
        }
    };
    let mut taken: Option<(u64, u64)> = None;
    for (at, next) in spans {
        if let Some((first, end)) = reader.walk(at, next, &mut see).map_err(fault)?.gone {
            taken = Some((taken.map_or(first, |t| t.0), end));
        }
    }
    if let Some((first, end)) = taken {
        members.gone = Some((members.gone.map_or(first, |g| g.0), end));
    }
    Ok(members)
}

/// The members of all streams of a sealed run. A stream that is no longer there has lost all of its range.
pub fn all(data: &Data, run: &Run) -> Result<Vec<Members>, Fault> {
    let there = data.streams(true)?;
    streams(run)
        .into_iter()
        .map(|stream| {
            if there.contains(&stream) {
                return count(data, run, &stream);
            }
            let first = ranges(run, &stream).map(|r| r.first).min().unwrap_or(0);
            let next = ranges(run, &stream).map(|r| r.next).max().unwrap_or(0);
            let gone = (first < next).then_some((first, next));
            Ok(Members { stream, gone, ..Members::default() })
        })
        .collect()
}

/// A run that is not sealed, with ranges up to the newest message of each of its streams.
pub(super) fn up_to_now(data: &Data, run: &Run) -> Result<Run, Fault> {
    let mut whole = Run { streams: Vec::new(), ..run.clone() };
    for begun in &run.streams {
        let reader = data.reader_early(&begun.stream)?;
        let (header, count) = (reader.header(), reader.bounds().count);
        let next = if begun.uuid == header.uuid { count.max(begun.next) } else { begun.next };
        whole.streams.push(Range { next, ..begun.clone() });
    }
    Ok(whole)
}

/// Bytes of the largest member of a sealed run in one stream.
pub fn largest(data: &Data, run: &Run, stream: &str) -> Result<u64, Fault> {
    let options = ReadOptions { early: true, check: Check::Entries, ..ReadOptions::default() };
    let mut reader = data.reader(stream, options)?;
    let Places { spans, .. } = places(run, &mut reader)?;
    let mut largest = 0;
    let mut see = |entries: &[store::Entry]| largest = entries.iter().map(|e| e.length).fold(largest, u32::max);
    for (at, next) in spans {
        reader.walk(at, next, &mut see).map_err(|e| stream_fault(stream, e))?;
    }
    Ok(largest.into())
}
