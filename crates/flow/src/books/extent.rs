//! Where the members of a run are in a stream that deletes messages, noted while the stream still has them.
//!
//! The keeper of runs follows each such stream of an unsealed run: until the first member is there, and again from the
//! stop on. Messages deleted between two looks count as members, because the run was open at both.

use crate::Fault;
use crate::data::{Data, stream_fault};
use crate::records::Run;
use std::collections::BTreeMap;
use store::{Level, Reader, Stretch};
use wire::bprn::State;

/// Where the members of a run are in a stream, noted before the stream deletes them.
pub(crate) struct Extent {
    pub(crate) uuid: [u8; 16],
    /// Sequence of the first member.
    pub(crate) first: Option<u64>,
    /// One past the last member; while the run is open, a sequence that is not behind it.
    pub(crate) next: u64,
    /// The sequence that was next when the extent was last followed.
    at: u64,
}

impl Extent {
    /// Follows the stream to its end: while the run is open only until its first member is there.
    fn follow(&mut self, run: &Run, reader: &mut Reader) -> store::Result<()> {
        let (bounds, clock) = (reader.bounds(), reader.header().clock);
        let is_open = run.state == State::Open;
        if bounds.first > self.at {
            // Deleted meanwhile: these came between two moments of the run.
            self.first.get_or_insert(self.at);
            (self.at, self.next) = (bounds.first, self.next.max(bounds.first));
        }
        let mut at = if is_open { self.at } else { self.next.max(bounds.first) };
        let mut found = None;
        while at < bounds.count {
            match reader.next_entries(at, usize::try_from(bounds.count - at).unwrap_or(usize::MAX))? {
                Stretch::Messages([]) => break,
                Stretch::Messages(entries) => {
                    for (sequence, entry) in (at..).zip(entries) {
                        if run.holds(clock.time_of(entry)) {
                            found = Some((found.map_or(sequence, |(first, _)| first), sequence + 1));
                        }
                    }
                    at += entries.len() as u64;
                }
                Stretch::Missing(missing) => at = missing.next,
            }
        }
        if let Some((first, next)) = found {
            self.first.get_or_insert(first);
            self.next = self.next.max(if is_open { first } else { next });
        }
        self.at = bounds.count.max(self.at);
        Ok(())
    }
}

/// Notes where the members of a run are in a stream, if that deletes messages.
pub(crate) fn follow_stream(
    data: &Data,
    run: &Run,
    name: &str,
    extents: &mut BTreeMap<String, Extent>,
) -> Result<(), Fault> {
    let fault = |e| stream_fault(name, e);
    let mut reader = data.reader_early(name)?;
    let (header, bounds) = (reader.header(), reader.bounds());
    if header.level == Level::Disk && bounds.first == 0 {
        return Ok(());
    }
    let uuid = header.uuid;
    if extents.get(name).is_none_or(|extent| extent.uuid != uuid) {
        let noted = run.streams.iter().find(|range| range.stream == *name && range.uuid == uuid);
        // A run may have been declared long before it began: what came between is not its own.
        let clock = header.clock;
        let oldest = reader.next_entries(bounds.first, 1).map_err(fault)?;
        let reaches_back = matches!(oldest, Stretch::Messages([oldest]) if clock.time_of(oldest) < run.start);
        let first = match noted {
            Some(range) if !reaches_back => range.first,
            noted => {
                let first = reader.time_range(run.start, run.stop).map_err(fault)?.0;
                noted.map_or(first, |range| first.max(range.first))
            }
        };
        extents.insert(name.to_owned(), Extent { uuid, first: None, next: first, at: first });
    }
    extents.get_mut(name).map_or(Ok(()), |extent| extent.follow(run, &mut reader).map_err(fault))
}
