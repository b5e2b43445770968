//! What the verbs need of the members of a run ([`flow::status::members`]): refusals, and one hash over all of them.

pub use flow::status::members::{Members, all, count, largest, streams};

use flow::records::Run;
use flow::status::members;
use flow::{Data, Fault, stream_fault};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use wire::bprn::State;

/// A sealed run by name.
pub fn sealed(data: &Data, name: &str, verb: &str) -> Result<Run, Fault> {
    let run = flow::runs::run(data, name)?;
    if run.state != State::Sealed {
        return Err(Fault::new(format!("cannot {verb} run `{name}`"), format!("it is {}", run.state.name()))
            .hint("wait until it is sealed: `beamport ls` shows its state, `beamport end` ends it"));
    }
    Ok(run)
}

/// A run that goes on, as if it were sealed at `now` (ns since 1970 UTC) with what its streams hold.
pub fn until_now(data: &Data, run: Run, now: i64) -> Result<Run, Fault> {
    let streams = flow::until_now(data, &run, &data.streams(false)?)?;
    Ok(Run { state: State::Sealed, time: now, streams, ..run })
}

/// Refuses a run of which a stream with messages is no longer in the data folder: nothing took them, somebody removed it.
pub fn refuse_missing(data: &Data, run: &Run, verb: &str) -> Result<(), Fault> {
    let there = data.streams(true)?;
    let missing = run.streams.iter().find(|r| r.first < r.next && !there.contains(&r.stream));
    let Some(range) = missing else { return Ok(()) };
    let cause = format!("its stream `{}` is not in {}", range.stream, data.folder.display());
    Err(Fault::new(format!("cannot {verb} run `{}`", run.name), cause)
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
    Err(Fault::new(format!("cannot {verb} run `{run}`"), cause)
        .hint("keep its first file; raise `retain` for future runs"))
}

/// Refuses a run of which a recovery has cut messages: what is left is not the run.
pub fn refuse_cut(run: &str, verb: &str, members: &[Members]) -> Result<(), Fault> {
    let Some(cut) = members.iter().find(|members| members.cut > 0) else { return Ok(()) };
    let cause = format!("a recovery cut {} of its messages in `{}`", super::figures::thousands(cut.cut), cut.stream);
    Err(Fault::new(format!("cannot {verb} run `{run}`"), cause).hint(format!("`beamport write {run}` writes the rest")))
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
    let members::Places { spans, .. } = members::places(run, &mut reader)?;
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
