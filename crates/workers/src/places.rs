//! Places in the stream of a slot from which its worker reads its state again.
//!
//! The worker is a named reader of that stream, which holds the oldest place that is needed: that of the newest state
//! that is committed in full.

use flow::{Data, Fault, slot_stream};
use std::collections::VecDeque;
use store::{Entry, Error, Kind, ReadOptions, Reader};

/// Entries looked at in one go.
const ENTRIES: u64 = 1024;
/// Answers behind the one that is looked for: a runner that started anew may have asked for older messages again, and then
/// have found the answer all the same, when it was safe. It has a few tasks under way.
const OVERTAKEN: u64 = 256;

/// A place that may be needed again.
struct Place {
    at: u64,
    /// All messages of the input below are in the state there.
    next: u64,
}

/// The states of a worker in the stream of its only slot.
pub struct StatePlaces {
    data: Data,
    stage: String,
    input: String,
    hold: Reader,
    /// The input, for the position of the runner.
    beside: Option<Reader>,
    places: VecDeque<Place>,
}

impl StatePlaces {
    /// The states of a slot of worker `stage`, of the messages of an input.
    pub fn open(data: &Data, stage: &str, slot: u32, input: &str) -> Result<Self, Fault> {
        let options =
            ReadOptions { name: format!("keeps {stage}"), kind: Kind::Counted, early: true, ..Default::default() };
        let hold = data.reader(&slot_stream(stage, slot), options)?;
        let (data, stage, input) = (data.clone(), stage.to_owned(), input.to_owned());
        Ok(Self { data, stage, input, hold, beside: None, places: VecDeque::new() })
    }

    /// Restarts from the state at a place, which has all messages below `next`.
    pub fn restart(&mut self, at: u64, next: u64) {
        self.places.retain(|place| place.next <= next);
        self.push(at, next);
    }

    /// Adds a state behind all others.
    pub fn push(&mut self, at: u64, next: u64) {
        self.places.push_back(Place { at, next });
    }

    /// Releases the states before the newest that is committed in full: nothing reads them again.
    pub fn release(&mut self) {
        if self.beside.is_none() {
            self.beside = self.data.reader_early(&self.input).ok();
        }
        let Some(input) = &self.beside else { return };
        let runner = input.pins().readers().into_iter().find(|reader| reader.name == self.stage);
        let committed = runner.map_or(0, |reader| reader.committed);
        while self.places.get(1).is_some_and(|place| place.next <= committed) {
            self.places.pop_front();
        }
        if let Some(place) = self.places.front() {
            self.hold.commit(place.at);
        }
    }
}

/// Place and bytes of the last array of the answer that goes farthest below `before`.
pub(super) fn newest_array(
    data: &Data,
    stream: &str,
    input: &[u8; 16],
    before: u64,
) -> store::Result<Option<(u64, Vec<u8>)>> {
    let options = ReadOptions { early: true, ..ReadOptions::default() };
    let folder = data.stream(stream);
    let mut reader = Reader::open(&data.media, &folder, options)?;
    let bounds = reader.bounds();
    let is_there = |answer: store::Result<Option<(Entry, Vec<u8>)>>| match answer {
        Err(Error::Gone { .. } | Error::Corrupt { .. } | Error::Lost { .. }) => Ok(None),
        answer => answer,
    };
    // The last sequence of `from..to` whose entry is of a schema.
    let last = |reader: &mut Reader, from: u64, to: u64, schema: [u8; 4]| -> store::Result<Option<u64>> {
        let mut end = to;
        while end > from {
            let begin = from.max(end.saturating_sub(ENTRIES));
            let (mut at, mut found) = (begin, None);
            while at < end {
                let entries = reader.entries(at, (end - at) as usize)?;
                let newest = entries.iter().rposition(|entry| entry.schema.0 == schema);
                found = newest.map(|newest| at + newest as u64).or(found);
                at += entries.len().max(1) as u64;
            }
            if found.is_some() {
                return Ok(found);
            }
            end = begin;
        }
        Ok(None)
    };
    let (mut end, mut seen) = (bounds.count, 0);
    // (messages below are in it, its place in the stream, its bytes)
    let mut newest: Option<(u64, u64, Vec<u8>)> = None;
    while let Some(at) = last(&mut reader, bounds.first, end, wire::bpdn::ID)? {
        (end, seen) = (at, seen + u64::from(newest.is_some()));
        if seen > OVERTAKEN {
            break;
        }
        let Some((_, bytes)) = is_there(reader.get(at))? else { continue };
        let Ok(answer) = wire::bpdn::read(&bytes) else { continue };
        let next = answer.task.next;
        if answer.task.uuid != *input || next > before || newest.as_ref().is_some_and(|found| found.0 >= next) {
            continue;
        }
        let from = answer.output_first.max(bounds.first);
        if let Some(array) = last(&mut reader, from, at, wire::da00::ID)?
            && let Some((_, bytes)) = is_there(reader.get(array))?
        {
            newest = Some((next, array, bytes));
        }
    }
    Ok(newest.map(|(_, at, bytes)| (at, bytes)))
}
