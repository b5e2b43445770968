//! Conditions on values that end runs, `stop_when` of `[run.NAME]`.
//!
//! Constraints: only values with a time in the run count, so that the last value of the run before ends nothing. After
//! a kill they are read again from its start. Of a stream that does not have the name nothing is read but its names.
//!
//! Failure behaviour: a stream that cannot be read now is opened again at the next look.

use crate::file::{RunSection, StopWhen};
use crate::limits::{STOP_ENTRIES, STOP_LOOK};
use flow::records::Run;
use flow::{Data, Fault, stream_fault};
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;
use store::{Reader, Stretch};
use wire::bprn::{STOP_UNKNOWN, State};

/// The conditions of the runs that are open.
#[derive(Default)]
pub(super) struct StopConditions {
    looked: Option<Instant>,
    /// By name of the run.
    runs: BTreeMap<String, Condition>,
}

/// A condition, and how far the streams were read for it.
struct Condition {
    when: StopWhen,
    /// The newest value for each of its terms.
    values: Vec<Option<f64>>,
    streams: HashMap<String, Tail>,
}

/// A stream, and the first message that was not looked at.
struct Tail {
    reader: Reader,
    next: u64,
}

impl StopConditions {
    /// The runs that end now, with the reason, if it is time to look.
    pub(super) fn met<'a>(
        &mut self,
        data: &Data,
        sections: &[RunSection],
        runs: &[Run],
        streams: impl Iterator<Item = &'a str> + Clone,
    ) -> Vec<(String, String)> {
        let now = Instant::now();
        if self.looked.is_some_and(|looked| now < looked + STOP_LOOK) {
            return Vec::new();
        }
        self.looked = Some(now);
        let is_open = |name: &str| runs.iter().find(|run| run.name == name && run.state == State::Open);
        self.runs.retain(|name, _| is_open(name).is_some());
        let mut met = Vec::new();
        for section in sections {
            let (Some(when), Some(run)) = (&section.stop_when, is_open(&section.name)) else { continue };
            let condition = self.runs.entry(run.name.clone()).or_insert_with(|| Condition::new(&when.value));
            for stream in streams.clone() {
                // Values stay as they are once they end the run.
                if condition.holds() {
                    break;
                }
                // A stream that cannot be read now is read at the next look.
                if condition.read(data, run, stream).is_err() {
                    condition.streams.remove(stream);
                }
            }
            if condition.holds() {
                met.push((run.name.clone(), condition.reason()));
            }
        }
        met
    }
}

impl Condition {
    fn new(when: &StopWhen) -> Self {
        Self { when: when.clone(), values: vec![None; when.0.len()], streams: HashMap::new() }
    }

    /// Whether all terms hold.
    fn holds(&self) -> bool {
        all_hold(&self.when, &self.values)
    }

    /// The condition with its values.
    fn reason(&self) -> String {
        let known = self.when.0.iter().zip(&self.values).filter_map(|(term, value)| Some((term, (*value)?)));
        let known: Vec<String> = known.map(|(term, value)| format!("{} = {value}", term.name)).collect();
        format!("{}: {}", self.when, known.join(", "))
    }

    /// Reads the new values of a stream, until all terms hold.
    fn read(&mut self, data: &Data, run: &Run, stream: &str) -> Result<(), Fault> {
        if !self.streams.contains_key(stream) {
            if !data.has(stream)? {
                return Ok(());
            }
            let mut reader = data.reader_early(stream)?;
            let (next, _) = reader.time_range(run.start, STOP_UNKNOWN).map_err(|e| stream_fault(stream, e))?;
            self.streams.insert(stream.to_owned(), Tail { reader, next });
        }
        let Some(Tail { reader, next }) = self.streams.get_mut(stream) else { return Ok(()) };
        let end = reader.bounds().count;
        if *next >= end {
            return Ok(());
        }
        let origins = reader.origins().map_err(|e| stream_fault(stream, e))?;
        // By row of the table of origins.
        let is_named = |name: &String| self.when.0.iter().any(|term| term.name == *name);
        let named: Vec<bool> = origins.iter().map(is_named).collect();
        if !named.contains(&true) {
            *next = end;
            return Ok(());
        }
        let clock = reader.header().clock;
        let end = end.min(next.saturating_add(STOP_ENTRIES));
        let (mut sequence, mut found) = (*next, Vec::new());
        let mut see = |entries: &[store::Entry]| {
            for entry in entries {
                if entry.schema.0 == wire::f144::ID
                    && run.holds(clock.time_of(entry))
                    && named.get(entry.origin as usize) == Some(&true)
                {
                    found.push((sequence, entry.origin as usize));
                }
                sequence += 1;
            }
        };
        reader.walk(*next, end, &mut see).map_err(|e| stream_fault(stream, e))?;
        for (sequence, row) in found {
            *next = sequence + 1;
            let Some(value) = value_at(reader, stream, sequence)? else { continue };
            let name = &reader.origins().map_err(|e| stream_fault(stream, e))?[row];
            for (term, known) in self.when.0.iter().zip(&mut self.values) {
                if term.name == *name {
                    *known = Some(value);
                }
            }
            if all_hold(&self.when, &self.values) {
                return Ok(());
            }
        }
        *next = end;
        Ok(())
    }
}

fn all_hold(when: &StopWhen, values: &[Option<f64>]) -> bool {
    when.0.iter().zip(values).all(|(term, value)| value.is_some_and(|value| term.holds(value)))
}

/// The number in a message; none where it is gone, damaged, or no single number.
fn value_at(reader: &mut Reader, stream: &str, sequence: u64) -> Result<Option<f64>, Fault> {
    reader.seek(sequence);
    let Stretch::Messages(batch) = reader.next(1).map_err(|e| stream_fault(stream, e))? else { return Ok(None) };
    let value = batch.get(sequence).and_then(|message| wire::f144::read(message.payload).ok()).map(|read| read.value);
    Ok(match value {
        Some(wire::f144::Value::Scalar(number)) => Some(number.to_f64()),
        _ => None,
    })
}
