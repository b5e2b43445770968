//! Places in the stream of a slot from which its worker reads its state again.
//!
//! The worker is a named reader of that stream, which holds the oldest place that is needed: that of the newest state
//! that is committed in full.

use flow::{Data, Fault, slot_stream};
use std::collections::VecDeque;
use store::{Kind, ReadOptions, Reader};

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
