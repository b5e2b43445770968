//! Numbers over time, as least, largest and last value of each part of the time that is one pixel wide; with
//! alarms, lost connections and units.
//!
//! The values of messages are kept in blocks of messages in a row, so that a look reads only what came since the
//! one before. The blocks that were used longest ago make room.

use super::gaps::nearest;
use super::panel::Panel;
use super::stream::{Lost, Stream};
use crate::answer::Answer;
use crate::limits::{BLOCK, INTERVALS_MAX, LOOK_BACK, POINTS_MAX, SERIES_MAX, SKIPPED};
use flow::Fault;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use store::{Clock, Entry, hex};
use wire::f142::{self, AlarmSeverity};
use wire::{Message, f144};

/// A stream, and its epoch: where a recovery has cut messages, others have their numbers.
type Identity = ([u8; 16], u32);

/// Values of streams, by their identity.
#[derive(Default)]
pub(super) struct Trends {
    streams: BTreeMap<Identity, Kept>,
    /// Values of all blocks; a state and a block count as some.
    count: usize,
    /// Looks so far.
    looks: u64,
}

#[derive(Default)]
struct Kept {
    names: Names,
    /// By number: block N has the messages from N * BLOCK on.
    blocks: BTreeMap<u64, Block>,
    /// The stream has large messages too that a trend does not show: those are not read.
    is_mixed: bool,
}

/// Names of series, and their numbers.
#[derive(Default)]
struct Names {
    names: Vec<String>,
    numbers: HashMap<String, u32>,
    last: u32,
}

impl Names {
    fn number(&mut self, name: &str) -> u32 {
        if self.names.get(self.last as usize).is_none_or(|last| last != name) {
            self.last = match self.numbers.get(name) {
                Some(number) => *number,
                None => {
                    let number = self.names.len() as u32;
                    self.numbers.insert(name.to_owned(), number);
                    self.names.push(name.to_owned());
                    number
                }
            };
        }
        self.last
    }
}

/// Values of some messages in a row.
#[derive(Default)]
struct Block {
    /// One past the last message that was read.
    next: u64,
    /// False: only states were read, and of each series the newest value.
    has_values: bool,
    /// The look that used it last.
    used: u64,
    /// Of each value: the number of its series, its time, and itself.
    series: Vec<u32>,
    times: Vec<i64>,
    values: Vec<f64>,
    /// The series in it.
    present: BTreeSet<u32>,
    states: Vec<(u32, i64, State)>,
    /// Of a block without values: the newest of each series, and its time.
    newest: BTreeMap<u32, (i64, f64)>,
    /// Elements of the newest value of a series whose values are arrays.
    lengths: BTreeMap<u32, usize>,
    /// The messages that could not be read.
    lost: Lost,
}

/// A state of a series from a time on.
#[derive(Clone, Debug, PartialEq)]
enum State {
    Unit(Option<String>),
    /// Severity, and what the sender says of it.
    Alarm(&'static str, String),
    Connection(&'static str),
}

impl State {
    /// Severity of an alarm, and its text.
    fn alarm(&self) -> Option<(&'static str, &str)> {
        match self {
            State::Alarm(severity, text) => Some((severity, text)),
            _ => None,
        }
    }

    /// State of a connection, without a text.
    fn connection(&self) -> Option<(&'static str, &str)> {
        match self {
            State::Connection(status) => Some((status, "")),
            _ => None,
        }
    }
}

impl Block {
    /// What it counts for: in bytes, a state is some values, and so is a block.
    fn count(&self) -> usize {
        16 + self.values.len() + 4 * self.states.len() + 2 * self.newest.len()
    }

    fn value(&mut self, series: u32, time: i64, value: f64) {
        if !self.has_values {
            let newest = self.newest.entry(series).or_insert((time, value));
            if newest.0 <= time {
                *newest = (time, value);
            }
            return;
        }
        if self.series.last() != Some(&series) {
            self.present.insert(series);
        }
        self.series.push(series);
        self.times.push(time);
        self.values.push(value);
    }

    /// Adds what a message says. `time`: its source time.
    fn add(&mut self, bytes: &[u8], time: i64, names: &mut Names) {
        match wire::read(bytes) {
            Ok(Message::F144(m)) => self.one(names.number(m.source_name), time, m.value),
            Ok(Message::F142(m)) => {
                let series = names.number(m.source_name);
                let severity = match m.severity {
                    AlarmSeverity::NoChange => None,
                    AlarmSeverity::NoAlarm => Some("OK"),
                    severity => Some(severity.name()),
                };
                let text = m.status.name().to_owned();
                self.states.extend(severity.map(|severity| (series, time, State::Alarm(severity, text))));
                if let f142::Value::Number(value) = m.value {
                    self.one(series, time, value);
                }
            }
            Ok(Message::Se00(m)) => {
                let series = names.number(m.name);
                for (at, value) in m.values.iter().enumerate() {
                    let regular = m.packet_timestamp.saturating_add((m.time_delta * at as f64) as i64);
                    let time = m.timestamps.and_then(|times| times.get(at)).unwrap_or(regular);
                    self.value(series, time, value.to_f64());
                }
            }
            Ok(Message::Senv(m)) => {
                let series = names.number(m.name);
                let start = i64::try_from(m.packet_timestamp).unwrap_or(i64::MAX);
                for (at, value) in m.values.iter().enumerate() {
                    let regular = start.saturating_add((m.time_delta * at as f64) as i64);
                    let time = m.timestamps.and_then(|times| times.get(at)).and_then(|time| i64::try_from(time).ok());
                    self.value(series, time.unwrap_or(regular), value.to_f64());
                }
            }
            // Of a chopper: the time since its previous turn, in ms.
            Ok(Message::Tdct(m)) => {
                let series = names.number(m.name);
                let times: Vec<u64> = m.timestamps.iter().collect();
                for pair in times.windows(2) {
                    let time = i64::try_from(pair[1]).unwrap_or(i64::MAX);
                    self.value(series, time, pair[1].saturating_sub(pair[0]) as f64 * 1e-6);
                }
            }
            Ok(Message::Un00(m)) => {
                self.states.push((names.number(m.source_name), time, State::Unit(m.units.map(str::to_owned))));
            }
            Ok(Message::Al00(m)) => {
                let state = State::Alarm(m.severity.name(), m.message.to_owned());
                self.states.push((names.number(m.source_name), time, state));
            }
            Ok(Message::Ep01(m)) => {
                self.states.push((names.number(m.source_name), time, State::Connection(m.status.name())));
            }
            _ => {}
        }
    }

    /// A value; of an array its mean.
    fn one(&mut self, series: u32, time: i64, value: f144::Value<'_>) {
        match value {
            f144::Value::Scalar(scalar) => self.value(series, time, scalar.to_f64()),
            f144::Value::Array(numbers) if numbers.is_empty() => {}
            f144::Value::Array(numbers) => {
                let sum: f64 = numbers.iter().map(wire::Scalar::to_f64).sum();
                self.value(series, time, sum / numbers.len() as f64);
                self.lengths.insert(series, numbers.len());
            }
        }
    }
}

/// Whether messages of a schema hold numbers.
pub(super) fn has_values(schema: [u8; 4]) -> bool {
    matches!(&schema, b"f144" | b"f142" | b"se00" | b"senv" | b"tdct")
}

/// Messages that say how it is with values; they are looked for before the time of a trend too.
fn has_state(schema: [u8; 4]) -> bool {
    matches!(&schema, b"un00" | b"al00" | b"ep01" | b"f142")
}

impl Kept {
    /// Reads what a block does not have yet.
    fn fill(&mut self, stream: &mut Stream, number: u64, with_values: bool) -> Result<(), Fault> {
        let Self { names, blocks, is_mixed } = self;
        let block = blocks.entry(number).or_default();
        if with_values && !block.has_values {
            *block = Block { has_values: true, ..Block::default() };
        }
        let start = block.next.max(number * BLOCK).max(stream.reader.bounds().first);
        let end = ((number + 1) * BLOCK).min(stream.reader.end());
        if start >= end {
            return Ok(());
        }
        let with_values = block.has_values;
        // Of what is before the time only small messages are read for their values.
        let has_value = |entry: &Entry| has_values(entry.schema.0) && (with_values || entry.length <= SKIPPED);
        let is_wanted = |entry: &Entry| has_state(entry.schema.0) || has_value(entry);
        let mut at = start;
        stream.lost = Lost::default();
        // Most streams have values alone. Looking at their entries first takes time.
        while with_values && !*is_mixed && at < end {
            at = stream.batch((at, end), &mut |message| {
                if is_wanted(message.entry) {
                    block.add(message.payload, message.entry.source_time, names);
                } else {
                    *is_mixed |= message.entry.length > SKIPPED;
                }
            })?;
            block.next = at;
        }
        let mut wanted = Vec::new();
        stream.entries((at, end), &mut |sequence, entry| {
            if is_wanted(entry) {
                wanted.push(sequence);
            }
        })?;
        stream.each(&wanted, &mut |message| block.add(message.payload, message.entry.source_time, names))?;
        block.lost.join(&stream.lost);
        block.next = end;
        if end == (number + 1) * BLOCK {
            block.series.shrink_to_fit();
            block.times.shrink_to_fit();
            block.values.shrink_to_fit();
        }
        Ok(())
    }
}

impl Trends {
    /// Adds the trends of a stream between two times.
    pub(super) fn show(
        &mut self,
        stream: &mut Stream,
        panel: &Panel,
        (from, to): (i64, i64),
        object: &mut Map<String, Value>,
        answer: &mut Answer,
    ) -> Result<(), Fault> {
        let (width, _) = panel.size();
        if stream.reader.header().clock != Clock::Epoch {
            let cause = "its source times are not times since 1970";
            return Err(Fault::new(format!("no trend of stream `{}`", panel.stream), cause));
        }
        let (low, high) = stream.time_range((from, to))?;
        let until = stream.until();
        let identity = format!("{}/{low}/{high}/{from}/{to}/{until:?}", hex(&stream.uuid()));
        let is_same = panel.known.as_ref() == Some(&identity);
        object.insert("identity".into(), identity.into());
        if is_same {
            object.insert("same".into(), true.into());
            return Ok(());
        }
        let oldest = stream.reader.bounds().first;
        if low == high && oldest > 0 && stream.end_at(to)? <= oldest {
            return Err(stream.before(oldest));
        }
        let first = low / BLOCK;
        let blocks = (first.saturating_sub(LOOK_BACK), first, high.saturating_sub(1).max(low) / BLOCK);
        let kept = self.blocks(stream, blocks)?;
        let mut lost = Lost::default();
        kept.blocks.range(first..=blocks.2).for_each(|(_, block)| lost.join(&block.lost));
        object.extend(lost.fault().map(|fault| ("unreadable".to_owned(), fault.to_json())));
        let search: Option<String> = panel.option("search")?;
        let search = search.map(|search| search.to_lowercase()).unwrap_or_default();
        let is_wanted = |name: &str| match &panel.origin {
            Some(only) => only == name,
            None => search.is_empty() || name.to_lowercase().contains(&search),
        };
        let (lines, more) = kept.lines(&is_wanted, (from, to), width, blocks);
        answer.room(lines.len() * width * 3, 8)?;
        let (mut series, mut arrays) = (Vec::new(), Map::new());
        for (at, line) in lines.into_iter().enumerate() {
            let mut array = |name: &str, of: fn(&Cell) -> f64| {
                let values: Vec<f64> = line.cells.iter().map(of).collect();
                arrays.insert(format!("{name}{at}"), answer.array(&[width], &values));
            };
            array("min", |cell| cell.least);
            array("max", |cell| cell.largest);
            array("last", |cell| cell.last);
            series.push(line.facts);
        }
        let facts = json!({"from": from, "to": to, "until": until, "series": series, "more": more, "arrays": arrays});
        if let Value::Object(facts) = facts {
            object.extend(facts);
        }
        Ok(())
    }

    /// Adds the alarm, or lost connection, of a stream that began next after or before a moment, as the step says: of
    /// some blocks, which begin or end at the moment, or at the message that the panel names.
    pub(super) fn alarm(
        &mut self,
        stream: &mut Stream,
        panel: &Panel,
        at: i64,
        object: &mut Map<String, Value>,
    ) -> Result<(), Fault> {
        let (oldest, end) = (stream.reader.bounds().first, stream.reader.end());
        let mut facts = json!({"found": null, "reached": null, "sequence": null});
        if stream.reader.header().clock == Clock::Epoch && oldest < end {
            let start = match panel.sequence {
                Some(sequence) => sequence.clamp(oldest, end),
                None => stream.end_at(at)?,
            };
            let is_on = panel.step >= 0;
            let number = if is_on { start } else { start.saturating_sub(1).max(oldest) } / BLOCK;
            let (low, high) = match is_on {
                true => (number, (number + LOOK_BACK - 1).min((end - 1) / BLOCK)),
                false => (number.saturating_sub(LOOK_BACK - 1).max(oldest / BLOCK), number),
            };
            let before = low.saturating_sub(LOOK_BACK);
            let began = self.blocks(stream, (before, high + 1, high))?.began((before, low, high));
            let found = nearest(began.iter(), |began| began.0, at, is_on);
            let (edge, next) = match is_on {
                true => (((high + 1) * BLOCK).min(end) - 1, (high + 1) * BLOCK),
                false => ((low * BLOCK).max(oldest), low * BLOCK),
            };
            let goes_on = if is_on { next < end } else { next > oldest };
            let alarm =
                |alarm: &Began| json!({"from": alarm.0, "origin": alarm.1, "severity": alarm.2, "message": alarm.3});
            facts = json!({
                "found": found.map(alarm),
                "reached": stream.entry(edge).ok().flatten().map(|entry| entry.source_time),
                "sequence": goes_on.then_some(next),
            });
        }
        if let Value::Object(facts) = facts {
            object.extend(facts);
        }
        Ok(())
    }

    /// The blocks of a stream: states from the first number on, values from the second to the third.
    fn blocks(&mut self, stream: &mut Stream, (before, first, last): (u64, u64, u64)) -> Result<&Kept, Fault> {
        self.looks += 1;
        let identity = (stream.uuid(), stream.epoch(u64::MAX));
        for number in before..=last {
            let kept = self.streams.entry(identity).or_default();
            let known = kept.blocks.get(&number).map_or(0, Block::count);
            let filled = kept.fill(stream, number, number >= first);
            if let Some(block) = kept.blocks.get_mut(&number) {
                block.used = self.looks;
                self.count = self.count + block.count() - known;
            }
            filled?;
            if self.count > POINTS_MAX {
                self.make_room();
            }
            if self.count > POINTS_MAX {
                let cause = format!("the time holds more than {POINTS_MAX} values");
                return Err(Fault::new("the trend is too long", cause).hint("choose a shorter time"));
            }
        }
        Ok(self.streams.entry(identity).or_default())
    }

    /// Removes the blocks that were used longest ago, but none of this look.
    fn make_room(&mut self) {
        let mut all: Vec<(u64, Identity, u64)> = Vec::new();
        for (identity, kept) in &self.streams {
            all.extend(kept.blocks.iter().map(|(number, block)| (block.used, *identity, *number)));
        }
        all.sort_unstable();
        for (_, identity, number) in all.into_iter().take_while(|(used, ..)| *used < self.looks) {
            if self.count <= POINTS_MAX / 8 * 7 {
                break;
            }
            if let Some(kept) = self.streams.get_mut(&identity) {
                self.count -= kept.blocks.remove(&number).map_or(0, |block| block.count());
            }
        }
        let looks = self.looks;
        self.streams.retain(|_, kept| kept.blocks.values().any(|block| block.used == looks) || !kept.blocks.is_empty());
    }
}

/// Part of the time: least, largest and last value.
#[derive(Clone, Copy, Debug)]
struct Cell {
    least: f64,
    largest: f64,
    last: f64,
}

/// A series that is shown.
struct Line {
    facts: Value,
    cells: Vec<Cell>,
}

/// The cells of a series, as its values come.
struct Cells {
    cells: Vec<Cell>,
    /// The cell of the last value, and its times: those of the next value, as a rule.
    at: usize,
    start: i64,
    end: i64,
    count: u64,
    last: Option<(i64, f64)>,
}

impl Cells {
    fn new(width: usize) -> Self {
        let empty = Cell { least: f64::NAN, largest: f64::NAN, last: f64::NAN };
        Self { cells: vec![empty; width], at: 0, start: 0, end: 0, count: 0, last: None }
    }

    /// Adds a value between two times.
    fn add(&mut self, (from, to): (i64, i64), time: i64, value: f64) {
        if time < self.start || time >= self.end {
            let (span, width) = (i128::from(to) - i128::from(from) + 1, self.cells.len() as i128);
            let at = (i128::from(time) - i128::from(from)) * width / span;
            let edge = |at: i128| (i128::from(from) + (at * span + width - 1) / width).min(i128::from(i64::MAX)) as i64;
            (self.at, self.start, self.end) = (at as usize, edge(at), edge(at + 1));
        }
        let Some(cell) = self.cells.get_mut(self.at) else { return };
        // NaN gives way to any number.
        cell.least = cell.least.min(value);
        cell.largest = cell.largest.max(value);
        cell.last = value;
        self.count += 1;
        if self.last.is_none_or(|last| last.0 <= time) {
            self.last = Some((time, value));
        }
    }
}

impl Kept {
    /// The series with values or states up to the end of a time, by name, and how many more there are.
    fn lines(
        &self,
        is_wanted: &dyn Fn(&str) -> bool,
        times: (i64, i64),
        width: usize,
        (before, first, last): (u64, u64, u64),
    ) -> (Vec<Line>, usize) {
        let mut shown = self.present(before, last);
        shown.retain(|series| is_wanted(self.name(*series)));
        shown.sort_unstable_by_key(|series| self.name(*series));
        let more = shown.len().saturating_sub(SERIES_MAX);
        shown.truncate(SERIES_MAX);
        let all = self.cells(&shown, times, width, (first, last));
        let lines = shown.into_iter().zip(all).filter_map(|(series, cells)| {
            let facts = self.facts(series, &cells, times, (before, last))?;
            Some(Line { facts, cells: cells.cells })
        });
        (lines.collect(), more)
    }

    fn name(&self, series: u32) -> &str {
        self.names.names.get(series as usize).map_or("", String::as_str)
    }

    /// The newest value of a series before a time, in blocks of which those from the second number on have values.
    fn newest(&self, series: u32, from: i64, (before, last): (u64, u64)) -> Option<(i64, f64)> {
        self.blocks.range(before..=last).rev().find_map(|(_, block)| {
            let all = block.series.iter().zip(block.times.iter().zip(&block.values));
            let all = all.filter(|(one, _)| **one == series).map(|(_, (time, value))| (*time, *value));
            let all = all.chain(block.newest.get(&series).copied());
            all.filter(|(time, _)| *time < from).max_by_key(|(time, _)| *time)
        })
    }

    /// The series with values, alarms or connections in some blocks.
    fn present(&self, first: u64, last: u64) -> Vec<u32> {
        let mut present = BTreeSet::new();
        for block in self.blocks.range(first..=last).map(|(_, block)| block) {
            present.extend(block.present.iter().chain(block.newest.keys()).copied());
            let states = block.states.iter().filter(|state| !matches!(state.2, State::Unit(_)));
            present.extend(states.map(|state| state.0));
        }
        present.into_iter().collect()
    }

    /// The cells of series, of the values of some blocks between two times.
    fn cells(&self, shown: &[u32], (from, to): (i64, i64), width: usize, (first, last): (u64, u64)) -> Vec<Cells> {
        let mut all: Vec<Cells> = shown.iter().map(|_| Cells::new(width)).collect();
        let mut places = vec![usize::MAX; self.names.names.len()];
        shown.iter().enumerate().for_each(|(at, series)| places[*series as usize] = at);
        for block in self.blocks.range(first..=last).map(|(_, block)| block) {
            for ((series, time), value) in block.series.iter().zip(&block.times).zip(&block.values) {
                if (from..=to).contains(time)
                    && let Some(cells) = all.get_mut(places[*series as usize])
                {
                    cells.add((from, to), *time, *value);
                }
            }
        }
        all
    }

    /// The facts of a series; none where there is nothing in the time.
    fn facts(&self, series: u32, cells: &Cells, times: (i64, i64), (before, last): (u64, u64)) -> Option<Value> {
        let blocks = || self.blocks.range(before..=last).map(|(_, block)| block);
        let mut states: Vec<_> = blocks().flat_map(|block| &block.states).filter(|state| state.0 == series).collect();
        states.sort_by_key(|state| state.1);
        let alarms = intervals(&states, times, "OK", &State::alarm);
        let lost = intervals(&states, times, "CONNECTED", &State::connection);
        // A value holds until the next one.
        let held = self.newest(series, times.0, (before, last));
        if cells.count == 0 && held.is_none() && alarms.is_empty() && lost.is_empty() {
            return None;
        }
        let alarm = |alarm: &Interval| json!({"from": alarm.0, "to": alarm.1, "severity": alarm.2, "message": alarm.3});
        let loss = |(from, to, status, _): &Interval| json!({"from": from, "to": to, "status": status});
        let unit = states.iter().rev().filter(|state| state.1 <= times.1).find_map(|state| match &state.2 {
            State::Unit(unit) => Some(unit.as_deref()),
            _ => None,
        });
        let number =
            |value: f64| serde_json::Number::from_f64(value).map_or_else(|| value.to_string().into(), Value::Number);
        Some(json!({
            "origin": self.name(series),
            "count": cells.count,
            "last": cells.last.or(held).map(|(_, value)| number(value)),
            "last_time": cells.last.or(held).map(|(time, _)| time),
            "before": held.map(|(_, value)| number(value)),
            "length": blocks().filter_map(|block| block.lengths.get(&series)).next_back(),
            "unit": unit.flatten(),
            "alarms": alarms.iter().map(alarm).collect::<Vec<_>>(),
            "lost": lost.iter().map(loss).collect::<Vec<_>>(),
        }))
    }
}

/// When an alarm began or a connection was lost, of which series, with which word, and what was said.
type Began = (i64, String, &'static str, String);

impl Kept {
    /// The alarms that began in the blocks from the second number to the third. Earlier states are read from the first
    /// number on.
    fn began(&self, (before, low, high): (u64, u64, u64)) -> Vec<Began> {
        let mut all: BTreeMap<u32, Vec<&(u32, i64, State)>> = BTreeMap::new();
        let mut inside = BTreeSet::new();
        for (number, block) in self.blocks.range(before..=high) {
            for state in &block.states {
                all.entry(state.0).or_default().push(state);
                if *number >= low {
                    inside.insert((state.0, state.1));
                }
            }
        }
        let mut began = Vec::new();
        for (series, mut states) in all {
            states.sort_by_key(|state| state.1);
            let alarms = changes(&states, &State::alarm).into_iter().filter(|change| change.2 != "OK");
            let lost = changes(&states, &State::connection).into_iter().filter(|change| change.2 != "CONNECTED");
            for (from, _, word, text) in alarms.chain(lost).filter(|change| inside.contains(&(series, change.0))) {
                began.push((from, self.name(series).to_owned(), word, text.to_owned()));
            }
        }
        began
    }
}

/// From when to when (none: it lasts) which word held, and what was said.
type Interval<'a> = (i64, Option<i64>, &'static str, &'a str);

/// When which word held, in their order. `states` are sorted by time.
fn changes<'a>(
    states: &[&'a (u32, i64, State)],
    word: &dyn Fn(&'a State) -> Option<(&'static str, &'a str)>,
) -> Vec<Interval<'a>> {
    let mut all: Vec<Interval<'a>> = Vec::new();
    for (time, (word, text)) in states.iter().filter_map(|state| Some((state.1, word(&state.2)?))) {
        if let Some(last) = all.last_mut() {
            // A repeated state continues.
            if last.2 == word && last.3 == text {
                continue;
            }
            last.1 = Some(time);
        }
        all.push((time, None, word, text));
    }
    all
}

/// When a word other than `good` held within a time: the newest, in their order. `states` are sorted by time.
fn intervals<'a>(
    states: &[&'a (u32, i64, State)],
    (from, to): (i64, i64),
    good: &str,
    word: &dyn Fn(&'a State) -> Option<(&'static str, &'a str)>,
) -> Vec<Interval<'a>> {
    let mut all = changes(states, word);
    all.retain(|(start, end, word, _)| *word != good && *start <= to && end.is_none_or(|end| end > from));
    all.drain(..all.len().saturating_sub(INTERVALS_MAX));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_the_time_has_its_extremes() {
        let mut cells = Cells::new(2);
        for (time, value) in [(10, 1.0), (11, 5.0), (12, 2.0), (29, 4.0), (19, 0.5), (20, 7.0)] {
            cells.add((10, 29), time, value);
        }
        assert_eq!((cells.count, cells.last), (6, Some((29, 4.0))));
        let [first, second] = cells.cells[..] else { panic!("two cells") };
        assert_eq!((first.least, first.largest, first.last), (0.5, 5.0, 0.5));
        assert_eq!((second.least, second.largest, second.last), (4.0, 7.0, 7.0));
    }

    #[test]
    fn the_parts_are_those_of_whole_numbers_for_any_width() {
        for (from, to, width) in [(0, 9, 3), (-7, 12, 7), (5, 5, 4), (0, 6, 7), (0, 2, 5)] {
            let mut cells = Cells::new(width);
            for time in from..=to {
                cells.add((from, to), time, time as f64);
                assert_eq!(cells.at as i64, (time - from) * width as i64 / (to - from + 1), "{time} of {from}..={to}");
            }
        }
        let mut cells = Cells::new(4096);
        cells.add((i64::MIN, i64::MAX), i64::MAX, 1.0);
        assert_eq!(cells.at, 4095);
    }

    #[test]
    fn an_alarm_lasts_until_the_next_state() {
        let state = |time, severity| (0_u32, time, State::Alarm(severity, String::new()));
        let states = [state(1, "MAJOR"), state(3, "OK"), state(5, "MINOR"), state(6, "MINOR"), state(8, "MAJOR")];
        let states: Vec<_> = states.iter().collect();
        let of = |from, to| {
            let all = intervals(&states, (from, to), "OK", &State::alarm);
            all.into_iter().map(|(from, to, word, _)| (from, to, word)).collect::<Vec<_>>()
        };
        assert_eq!(of(2, 9), [(1, Some(3), "MAJOR"), (5, Some(8), "MINOR"), (8, None, "MAJOR")]);
        assert_eq!(of(3, 7), [(5, Some(8), "MINOR")]);
        assert_eq!(of(3, 4), []);
    }
}
