//! Origins of the streams from which sinks have sent messages, where a source repeats them (`mirror`): their rows, the
//! numbers that come next, and which of the messages that are read again after a start the stream has already.
//!
//! Constraint: nothing is allocated for a message, but for the first of an origin.

use crate::limits::REPEATED_ORIGINS_MAX;
use flow::limits::REORDER_WINDOW;
use flow::{Fault, OriginAccounts, Resume, device_of, name_of_life};
use std::collections::{BTreeMap, HashMap};

/// Numbers that the near side has not sent: it lost, filtered or set aside these messages.
const NEAR: &str = "near";
/// Numbers of messages that the account of their partition has as lost.
const RETIRED: &str = "skipped.retention";

/// A place in a topic: its topic and its partition, as the source counts them, and an offset.
pub(crate) type Spot = (usize, i32, u64);

/// An origin that is repeated.
#[derive(Debug)]
struct Origin {
    row: u32,
    /// The number that comes next; none before its first message.
    next: Option<u64>,
    /// Source time of its newest message.
    time: Option<i64>,
    /// Where its newest message was, since the start.
    spot: Option<Spot>,
}

/// Messages that retention has deleted from a partition, and that no hole in the numbers of an origin shows yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retired {
    /// They were before this offset.
    pub(crate) end: u64,
    pub(crate) count: u64,
}

/// The origins.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    all: Vec<Origin>,
    by_name: HashMap<String, usize>,
    /// The name that was asked for last, and its place: most messages have the same.
    last: (Vec<u8>, usize),
    /// By origin without its life, how often each number came after the state with which the source started.
    tail: HashMap<String, HashMap<u64, u32>>,
    /// The origins of the stream at the start: life, next number and time.
    resume: BTreeMap<String, (u32, u64, i64)>,
    /// The names of the partitions begin with these and `/`.
    topics: Vec<String>,
}

impl Origins {
    pub(crate) fn new(resume: &Resume, topics: &[String]) -> Self {
        let mut tail: HashMap<String, HashMap<u64, u32>> = HashMap::new();
        for (origin, numbers) in &resume.tail {
            let counts = tail.entry(device_of(origin).to_owned()).or_default();
            numbers.iter().for_each(|number| *counts.entry(*number).or_default() += 1);
        }
        let known = resume.origins.iter().map(|one| (one.name.clone(), (one.life, one.next_seq, one.last_time)));
        Self { tail, resume: known.collect(), topics: topics.to_vec(), ..Self::default() }
    }

    /// The place of an origin; none of one that a source has in its own name, or where there are too many.
    pub(crate) fn place(&mut self, name: &[u8], out: &mut dyn OriginAccounts) -> Result<Option<usize>, Fault> {
        if self.last.0 == name {
            return Ok(Some(self.last.1));
        }
        let Ok(text) = str::from_utf8(name) else { return Ok(None) };
        let place = match self.by_name.get(text) {
            Some(place) => *place,
            None if self.all.len() >= REPEATED_ORIGINS_MAX || self.is_partition(text) => return Ok(None),
            None => {
                let row = out.origin(text)?;
                let known = self.resumed(text);
                let (next, time) = (known.map(|known| known.0), known.map(|known| known.1));
                self.all.push(Origin { row, next, time, spot: None });
                self.by_name.insert(text.to_owned(), self.all.len() - 1);
                self.all.len() - 1
            }
        };
        self.last.0.clear();
        self.last.0.extend_from_slice(name);
        self.last.1 = place;
        Ok(Some(place))
    }

    /// Whether a partition of this source may have the name: its numbers are other ones.
    fn is_partition(&self, name: &str) -> bool {
        let topic = name.rsplit_once('/').map(|(topic, _)| topic);
        topic.is_some_and(|topic| self.topics.iter().any(|known| known == topic))
    }

    /// The next number and the newest time of an origin that the stream knew at the start.
    fn resumed(&self, name: &str) -> Option<(u64, i64)> {
        let device = device_of(name);
        let (life, next, time) = self.resume.get(device).or_else(|| self.resume.get(name))?;
        // A life that is not the newest has no numbers any more.
        let is_newest = device == name || name == name_of_life(device, *life) || !self.resume.contains_key(device);
        is_newest.then_some((*next, *time))
    }

    pub(crate) fn row(&self, place: usize) -> u32 {
        self.all[place].row
    }

    /// Whether the stream had this message at the start. Each is asked for once.
    pub(crate) fn take(&mut self, origin: &str, number: u64) -> bool {
        let Some(counts) = self.tail.get_mut(device_of(origin)) else { return false };
        let Some(count) = counts.get_mut(&number) else { return false };
        *count -= 1;
        if *count == 0 {
            counts.remove(&number);
        }
        true
    }

    /// Counts the numbers of an origin between its newest message and this one, which comes at `spot` with this source
    /// time, as missing: as many as retention has deleted from the partition since, and others as not sent.
    pub(crate) fn pass(
        &mut self,
        place: usize,
        number: u64,
        (spot, time): (Spot, i64),
        retired: &mut Retired,
        out: &mut dyn OriginAccounts,
    ) -> Result<(), Fault> {
        let origin = &mut self.all[place];
        let Some(next) = origin.next.filter(|next| number > *next) else { return Ok(()) };
        let is_behind = origin.spot.is_some_and(|at| (at.0, at.1) == (spot.0, spot.1) && at.2 >= retired.end);
        let deleted = if is_behind { 0 } else { retired.count.min(number - next) };
        let before = origin.time.unwrap_or(i64::MIN);
        let times = before.min(time)..=before.max(time);
        for (first, end, reason) in [(next, next + deleted, RETIRED), (next + deleted, number, NEAR)] {
            if end > first {
                out.missing(origin.row, first..=end - 1, times.clone(), reason)?;
            }
        }
        retired.count -= deleted;
        // Where there is no room now, the message is offered again.
        origin.next = Some(number);
        Ok(())
    }

    /// Notes where a message is that the stream had at the start.
    pub(crate) fn find(&mut self, place: usize, spot: Spot) {
        self.all[place].spot = Some(spot);
    }

    /// Notes a message that was appended.
    pub(crate) fn note(&mut self, place: usize, number: u64, (spot, time): (Spot, i64)) {
        let origin = &mut self.all[place];
        let next = origin.next.unwrap_or(0);
        // A number that falls so far begins another life.
        if number >= next || next - number > REORDER_WINDOW {
            origin.next = Some(number.saturating_add(1));
        }
        (origin.spot, origin.time) = (Some(spot), Some(time));
    }
}
