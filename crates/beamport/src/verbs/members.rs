//! The members of a run in its streams: what is there, what retention took, and one hash over all of it.
//!
//! A sealed run says in which sequences its members are; the index says which of those they are. Nothing is kept.

use flow::records::{Range, Run};
use flow::{Data, Fault, stream_fault};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use store::{Check, Clock, ReadOptions, Reader};
use wire::bprn::State;

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

/// A sealed run by name.
pub fn sealed(data: &Data, name: &str, verb: &str) -> Result<Run, Fault> {
    let run = flow::runs::run(data, name)?;
    if run.state != State::Sealed {
        return Err(Fault::new(format!("run `{name}` cannot be {verb}"), format!("it is {}", run.state.name()))
            .hint("wait until it is sealed: `beamport ls` shows its state, `beamport end` ends it"));
    }
    Ok(run)
}

/// A run that goes on, as if it were sealed at `now` (ns since 1970 UTC) with what its streams hold.
pub fn until_now(data: &Data, run: Run, now: i64) -> Result<Run, Fault> {
    let streams = flow::until_now(data, &run, &data.streams(false)?)?;
    Ok(Run { state: State::Sealed, time: now, streams, ..run })
}

fn ranges<'a>(run: &'a Run, stream: &'a str) -> impl Iterator<Item = &'a Range> {
    run.streams.iter().filter(move |r| r.stream == stream)
}

/// Where to look for the members of a run in a stream: sequences (first, one past the last) that may be members, those that
/// are gone, and how many were cut.
type Places = (Vec<(u64, u64)>, Option<(u64, u64)>, u64);

fn places(run: &Run, reader: &mut Reader) -> Result<Places, Fault> {
    let (first, next, gone) = span(run, reader)?;
    let (spans, cut) = run.spans(reader.header(), first, next);
    // What went with its stream is said as gone.
    let is_other = ranges(run, &reader.header().name).any(|r| r.uuid != reader.header().uuid);
    Ok((spans, gone, if is_other { 0 } else { cut }))
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
    let (spans, gone, cut) = places(run, &mut reader)?;
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

/// Refuses a run of which a stream with messages is no longer in the data folder: nothing took them, somebody removed it.
pub fn refuse_missing(data: &Data, run: &Run, verb: &str) -> Result<(), Fault> {
    let there = data.streams(true)?;
    let missing = run.streams.iter().find(|r| r.first < r.next && !there.contains(&r.stream));
    let Some(range) = missing else { return Ok(()) };
    let cause = format!("its stream `{}` is not in {}", range.stream, data.folder.display());
    Err(Fault::new(format!("run `{}` cannot be {verb}", run.name), cause)
        .hint("put its folder back, or name another with `--data DIR`"))
}

/// Refuses a run whose messages are gone, with their ranges.
pub fn refuse_gone(run: &str, verb: &str, members: &[Members]) -> Result<(), Fault> {
    let gone: Vec<String> = members
        .iter()
        .filter_map(|m| m.gone.map(|(first, next)| format!("{first} to {} of `{}`", next.saturating_sub(1), m.stream)))
        .collect();
    if gone.is_empty() {
        return Ok(());
    }
    let cause = format!("retention took messages {}", gone.join(", "));
    Err(Fault::new(format!("run `{run}` cannot be {verb}"), cause)
        .hint("its first file is all that is left of it; raise `retain` for runs to come"))
}

/// Refuses a run of which a recovery has cut messages: what is left is not the run.
pub fn refuse_cut(run: &str, verb: &str, members: &[Members]) -> Result<(), Fault> {
    let Some(cut) = members.iter().find(|members| members.cut > 0) else { return Ok(()) };
    let cause = format!("a recovery cut {} of its messages in `{}`", super::figures::thousands(cut.cut), cut.stream);
    Err(Fault::new(format!("run `{run}` cannot be {verb}"), cause)
        .hint(format!("`beamport write {run}` writes what is left of it")))
}

/// Bytes of the largest member of a sealed run in one stream.
pub fn largest(data: &Data, run: &Run, stream: &str) -> Result<u64, Fault> {
    let options = ReadOptions { early: true, check: Check::Entries, ..ReadOptions::default() };
    let mut reader = data.reader(stream, options)?;
    let (spans, ..) = places(run, &mut reader)?;
    let mut largest = 0;
    let mut see = |entries: &[store::Entry]| largest = entries.iter().map(|e| e.length).fold(largest, u32::max);
    for (at, next) in spans {
        reader.walk(at, next, &mut see).map_err(|e| stream_fault(stream, e))?;
    }
    Ok(largest.into())
}

/// Enters a message into a hash: number of the origin, source time, schema, length, payload, little-endian.
pub fn enter(sha: &mut Sha256, message: &store::Message<'_>) {
    let entry = message.entry;
    sha.update(entry.origin_seq.to_le_bytes());
    sha.update(entry.source_time.to_le_bytes());
    sha.update(entry.schema.0);
    sha.update(entry.length.to_le_bytes());
    sha.update(message.payload);
}

/// SHA-256 over the members of a run in one stream: for each origin, by name, its messages in order, each as
/// [`enter`] does. It does not depend on how messages
/// of several origins interleave, nor on sequences, so a replay has the same.
pub fn hash(data: &Data, run: &Run, stream: &str, seen: &mut dyn FnMut(u64)) -> Result<(u64, String), Fault> {
    let fault = |e| stream_fault(stream, e);
    let mut reader = data.reader_early(stream)?;
    let clock = reader.header().clock;
    let (spans, ..) = places(run, &mut reader)?;
    let (mut origins, mut messages): (BTreeMap<u32, Sha256>, u64) = (BTreeMap::new(), 0);
    for (at, next) in spans {
        reader.seek(at);
        while reader.position() < next {
            let batch = reader.read((next - reader.position()).min(1024) as usize).map_err(fault)?;
            if batch.is_empty() {
                break;
            }
            for message in batch.iter().filter(|message| run.holds(clock.time_of(message.entry))) {
                enter(origins.entry(message.entry.origin).or_default(), &message);
                messages += 1;
            }
            seen(messages);
        }
    }
    let names = reader.origins().map_err(fault)?;
    let by_name: BTreeMap<&str, Sha256> =
        origins.into_iter().map(|(row, sha)| (names.get(row as usize).map_or("", String::as_str), sha)).collect();
    let mut whole = Sha256::new();
    for (name, sha) in by_name {
        whole.update((name.len() as u64).to_le_bytes());
        whole.update(name);
        whole.update(sha.finalize());
    }
    Ok((messages, store::hex(&whole.finalize())))
}
