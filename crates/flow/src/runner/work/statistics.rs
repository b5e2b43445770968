//! The stream `W.statistics`: the state of a worker's slots and numbers from its code, as values (`f144`) once a
//! second.
//!
//! Other processes (`top`, plots) read streams only; as values these numbers can be printed and plotted like any other.
//! No account is derived from them.
//!
//! Constraints: in memory, the newest 4 MiB; all values of one moment have one source time; origin and source name tell
//! the slot and the name. A moment without a change is not written. The number and length of names from the code is
//! bounded.

use super::Work;
use crate::Fault;
use crate::data::{Data, stream_fault};
use crate::limits::{SLOTS_MAX, STATISTICS_PAUSE};
use crate::slot::RESET;
use crate::statistics::{Statistics as Stream, statistics_of};
use serde_json::Value;
use std::collections::BTreeMap;
use store::Error;
use wire::Scalar;

/// What is kept: ten minutes of a hundred numbers.
const BYTES: u64 = 4 << 20;
/// Numbers of one slot's code: more is data, and belongs into the output.
const NUMBERS_MAX: usize = 64;
/// Bytes of the name of one.
const NAME_BYTES_MAX: usize = 64;
/// Entries of a moment at most: all slots, and the worker's own.
const MOMENT: u64 = SLOTS_MAX as u64 * NUMBERS_MAX as u64 + 64;

/// A worker at one moment, as its stream of statistics says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkerState {
    /// ns since 1970 UTC.
    pub time: i64,
    /// `slots` that there should be; of these `living`, `starting` and `away` (dead, before the next start); `paused`,
    /// 1 while it is; `restarts` since the mover started; `messages`, `aside`, `filtered`, `slow` (what a shadow was too
    /// slow for) and `lost` since ever. [`Work::reset_statistics`] sets the counts to zero.
    pub numbers: BTreeMap<String, Value>,
    /// Statistics that the code of each slot reports.
    pub slots: BTreeMap<u32, BTreeMap<String, Value>>,
}

impl WorkerState {
    /// One of the worker's own numbers; 0 where it is not said.
    pub fn number(&self, name: &str) -> u64 {
        self.numbers.get(name).and_then(Value::as_u64).unwrap_or(0)
    }

    /// The newest moment of a worker; none where there is no such stream or nobody writes it.
    pub fn newest(data: &Data, stage: &str) -> Result<Option<Self>, Fault> {
        let name = statistics_of(stage);
        let fault = |e| stream_fault(&name, e);
        let mut reader = data.reader_early(&name)?;
        if reader.writer().is_none() {
            return Ok(None);
        }
        let bounds = reader.bounds();
        let Some(last) = bounds.count.checked_sub(1).filter(|last| *last >= bounds.first) else { return Ok(None) };
        let mut read = || -> store::Result<Option<Self>> {
            let Some((newest, _)) = reader.get(last)? else { return Ok(None) };
            let mut all = Self { time: newest.source_time, ..Self::default() };
            reader.seek(bounds.first.max((last + 1).saturating_sub(MOMENT)));
            let names = reader.origins()?.to_vec();
            while reader.position() <= last {
                let batch = reader.read((last + 1 - reader.position()) as usize)?;
                if batch.is_empty() {
                    break;
                }
                for message in batch.iter().filter(|m| m.entry.source_time == newest.source_time) {
                    let origin = names.get(message.entry.origin as usize).map_or("", String::as_str);
                    let Ok(value) = wire::f144::read(message.payload) else { continue };
                    let wire::f144::Value::Scalar(number) = value.value else { continue };
                    let into = match origin.strip_prefix("slot").map(str::parse) {
                        Some(Ok(slot)) => all.slots.entry(slot).or_default(),
                        _ => &mut all.numbers,
                    };
                    into.insert(value.source_name.to_owned(), as_json(number));
                }
            }
            Ok(Some(all))
        };
        match read() {
            // A writer that was faster.
            Err(Error::Gone { .. }) => Ok(None),
            answer => answer.map_err(fault),
        }
    }
}

/// The statistics of a worker.
#[derive(Default)]
pub(super) struct Statistics {
    stream: Option<Stream>,
    /// When they were last published, ns of `Media::clock`.
    at: Option<i64>,
    said: Vec<(Option<usize>, String, Scalar)>,
    /// Numbers of the worker at the last reset, by name.
    reset: BTreeMap<&'static str, u64>,
}

impl Work {
    /// Says how things are, where that is due.
    pub(super) fn publish_statistics(&mut self, now: i64, clock: i64) -> Result<(), Fault> {
        if self.statistics.at.is_some_and(|at| clock.saturating_sub(at) < STATISTICS_PAUSE) {
            return Ok(());
        }
        let numbers = self.numbers();
        if numbers == self.statistics.said {
            self.statistics.at = Some(clock);
            return Ok(());
        }
        let whose = |slot: Option<usize>| slot.map_or_else(|| self.stage.clone(), |slot| format!("slot{slot}"));
        let named: Vec<_> = numbers.iter().map(|(slot, number, value)| (whose(*slot), number, *value)).collect();
        let stream = self.statistics.stream.get_or_insert_with(|| Stream::new(&self.stage, BYTES));
        let numbers_of = named.iter().map(|(whose, number, value)| (&**whose, &***number, *value));
        if stream.push(&self.data, now, numbers_of)? {
            (self.statistics.said, self.statistics.at) = (numbers, Some(clock));
        }
        Ok(())
    }

    /// Counts messages and restarts from now on, and has the code of its slots reset what it counts. The account of
    /// messages is not touched.
    pub fn reset_statistics(&mut self) -> Result<(), Fault> {
        self.statistics.reset = self.counts().into_iter().collect();
        // Code at rest reports nothing before its next message.
        self.places.iter_mut().for_each(|place| place.state.statistics.clear());
        (0..self.options.slots).try_for_each(|slot| self.send(slot, RESET, "").map(drop))
    }

    /// Publishes the last statistics of slots that have ended, and returns what the code of each counted: a JSON object
    /// by slot.
    pub fn last_statistics(&mut self) -> Result<Value, Fault> {
        self.statistics.at = None;
        self.publish_statistics(self.data.media.now(), self.data.media.clock())?;
        let places = (0..self.options.slots).zip(&self.places);
        let of = |text: &str| said_by(text).into_iter().map(|(name, value)| (name, as_json(value)));
        let all = places.map(|(slot, place)| (slot.to_string(), of(&place.state.statistics).collect()));
        let counted = all.filter(|(_, numbers): &(_, serde_json::Map<_, _>)| !numbers.is_empty());
        Ok(counted.map(|(slot, numbers)| (slot, Value::Object(numbers))).collect())
    }

    /// Of whom (none: the worker), which, and how much.
    fn numbers(&self) -> Vec<(Option<usize>, String, Scalar)> {
        let slots = self.options.slots as usize;
        let ready = self.places.iter().take(slots).filter(|p| p.ready).count();
        let is_living = |slot: &usize| {
            // It stands at its first task until it is there.
            let place = &self.places[*slot];
            place.ready && self.at(*slot as u32).is_some_and(|at| at > place.from)
        };
        let living = (0..slots.min(self.places.len())).filter(is_living).count();
        let mut counts = self.counts();
        for (name, count) in &mut counts {
            *count = count.saturating_sub(self.statistics.reset.get(name).copied().unwrap_or(0));
        }
        let slots_now = [
            ("slots", slots as u64),
            ("living", living as u64),
            ("starting", (ready - living) as u64),
            ("away", (slots - ready) as u64),
            ("paused", u64::from(self.is_paused)),
        ];
        let loose = counts.iter().any(|(name, count)| *name == "loose" && *count == 0);
        let own = slots_now.into_iter().chain(counts).filter(|(name, _)| !loose || *name != "loose");
        let own = own.map(|(name, value)| (None, name.to_owned(), Scalar::Int64(value as i64)));
        let said = self.places.iter().take(slots).enumerate().flat_map(|(slot, place)| {
            said_by(&place.state.statistics).into_iter().map(move |(name, value)| (Some(slot), name, value))
        });
        own.chain(said).collect()
    }

    /// Its counts: `restarts` and `loose` since it was opened, messages since ever.
    fn counts(&self) -> [(&'static str, u64); 7] {
        let account = |name: &str| -> u64 {
            let of = |counts: &BTreeMap<String, u64>| -> u64 {
                counts.iter().filter(|(k, _)| k.split('.').next() == Some(name)).map(|(_, v)| v).sum()
            };
            self.accounts().map(|input| of(&input.counts)).sum()
        };
        let (aside, skipped, lost) = (account("aside"), account("skipped"), account("lost"));
        let slow: u64 = self.accounts().map(|input| input.count("skipped.slow")).sum();
        let filtered = skipped.saturating_sub(slow);
        let done: u64 = self.accounts().map(|input| input.done).sum();
        [
            ("restarts", self.places.iter().map(|p| p.state.deaths).sum()),
            ("messages", done + aside + skipped + lost),
            ("aside", aside),
            ("filtered", filtered),
            ("slow", slow),
            ("lost", lost),
            ("loose", self.loose.shown),
        ]
    }
}

fn as_json(number: Scalar) -> Value {
    match number {
        Scalar::Int64(number) => number.into(),
        other => other.to_f64().into(),
    }
}

/// The numbers and booleans of a JSON object. Other values, long names, and numbers beyond [`NUMBERS_MAX`] are skipped.
fn said_by(text: &str) -> Vec<(String, Scalar)> {
    let Ok(Value::Object(numbers)) = serde_json::from_str(text) else { return Vec::new() };
    let number = |value: &Value| match value {
        Value::Bool(yes) => Some(Scalar::Int64((*yes).into())),
        value => value.as_i64().map(Scalar::Int64).or_else(|| value.as_f64().map(Scalar::Float64)),
    };
    let fits = |name: &str| name.len() <= NAME_BYTES_MAX;
    let all = numbers.into_iter().filter(|(name, _)| fits(name));
    all.filter_map(|(name, value)| number(&value).map(|n| (name, n))).take(NUMBERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_code_says_numbers_are_taken_and_not_too_many() {
        let long = "n".repeat(NAME_BYTES_MAX + 1);
        let text = format!(r#"{{"a": 3, "b": 0.5, "c": "text", "d": [1], "e": true, "{long}": 1}}"#);
        let said = said_by(&text);
        let of = |name: &str| said.iter().find(|n| n.0 == name).map(|n| n.1);
        assert_eq!(said.len(), 3, "{said:?}");
        assert_eq!(of("a"), Some(Scalar::Int64(3)));
        assert_eq!(of("b"), Some(Scalar::Float64(0.5)));
        assert_eq!(of("e"), Some(Scalar::Int64(1)));
        let many: serde_json::Map<String, Value> = (0..1000).map(|n| (n.to_string(), n.into())).collect();
        assert_eq!(said_by(&Value::Object(many).to_string()).len(), NUMBERS_MAX);
        assert_eq!(said_by("no JSON"), Vec::new());
    }
}
