//! A trend: numbers over time, as least, largest and last value of each part of the time that is one pixel wide.
//!
//! The values of the streams that were asked for are kept, each with its time, so that the next look reads only what
//! came since.

use super::Panel;
use super::stream::Stream;
use crate::answer::Answer;
use crate::limits::{BATCH, POINTS_MAX, SERIES_MAX};
use flow::{Fault, stream_fault};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use store::{Clock, Stretch, hex};
use wire::{Message, f142, f144};

/// The values of streams, by identity.
#[derive(Default)]
pub(super) struct Trends {
    streams: BTreeMap<[u8; 16], Points>,
}

/// The values of the messages of a stream in a row.
#[derive(Default)]
struct Points {
    /// First sequence that was read, and one past the last.
    range: (u64, u64),
    /// By origin: times, ns since 1970 UTC, and values, in the order of the stream.
    series: BTreeMap<String, Series>,
    /// Values in all series.
    count: usize,
}

#[derive(Default)]
struct Series {
    points: Vec<(i64, f64)>,
    unit: Option<String>,
}

/// Part of the time: least, largest and last value.
#[derive(Clone, Copy)]
struct Cell {
    least: f64,
    largest: f64,
    last: f64,
}

impl Trends {
    /// Adds the trends of a stream between two times. `width`: parts of the time.
    pub(super) fn show(
        &mut self,
        stream: &mut Stream,
        panel: &Panel,
        (from, to): (i64, i64),
        width: usize,
        object: &mut Map<String, Value>,
        answer: &mut Answer,
    ) -> Result<(), Fault> {
        if stream.reader.header().clock != Clock::Epoch {
            let cause = "its source times are not times since 1970";
            return Err(Fault::new(format!("no trend of stream `{}`", panel.stream), cause));
        }
        let (low, high) = stream.reader.time_range(from, to.saturating_add(1)).map_err(|e| stream.fault(e))?;
        let identity = format!("{}/{low}/{high}/{from}/{to}", hex(&stream.uuid()));
        let is_same = panel.known.as_ref() == Some(&identity);
        object.insert("identity".into(), identity.into());
        if is_same {
            object.insert("same".into(), true.into());
            return Ok(());
        }
        let points = self.points(stream, (low, high))?;
        let shown = points.series.iter().filter(|(origin, _)| panel.origin.as_ref().is_none_or(|o| o == *origin));
        let mut all: Vec<_> = shown.filter_map(|(origin, series)| series.cells(origin, (from, to), width)).collect();
        let more = all.len().saturating_sub(SERIES_MAX);
        all.truncate(SERIES_MAX);
        answer.room(all.len() * width * 3, 8)?;
        let (mut series, mut arrays) = (Vec::new(), Map::new());
        for (at, (facts, cells)) in all.into_iter().enumerate() {
            series.push(facts);
            let mut array = |name: &str, of: fn(&Cell) -> f64| {
                let values: Vec<f64> = cells.iter().map(of).collect();
                arrays.insert(format!("{name}{at}"), answer.array(&[width], &values));
            };
            array("min", |cell| cell.least);
            array("max", |cell| cell.largest);
            array("last", |cell| cell.last);
        }
        let facts = json!({"from": from, "to": to, "series": series, "more": more, "arrays": arrays});
        if let Value::Object(facts) = facts {
            object.extend(facts);
        }
        Ok(())
    }

    /// The values of a range of a stream: what is missing of them is read.
    fn points(&mut self, stream: &mut Stream, (low, high): (u64, u64)) -> Result<&Points, Fault> {
        let uuid = stream.uuid();
        let kept: usize = self.streams.iter().filter(|(key, _)| **key != uuid).map(|(_, points)| points.count).sum();
        if kept > POINTS_MAX / 2 {
            self.streams.retain(|key, _| *key == uuid);
        }
        let points = self.streams.entry(uuid).or_default();
        if low < points.range.0 || low > points.range.1 || points.count > POINTS_MAX / 2 {
            *points = Points { range: (low, low), ..Points::default() };
        }
        points.read(stream, high)?;
        Ok(points)
    }
}

impl Points {
    /// Reads on up to `high`.
    fn read(&mut self, stream: &mut Stream, high: u64) -> Result<(), Fault> {
        let mut origins: BTreeMap<u32, String> = BTreeMap::new();
        while self.range.1 < high {
            stream.reader.seek(self.range.1);
            let most = usize::try_from(high - self.range.1).unwrap_or(BATCH).min(BATCH);
            let mut rows = Vec::new();
            match stream.reader.next(most).map_err(|e| stream_fault("trend", e))? {
                Stretch::Messages(batch) if batch.is_empty() => break,
                Stretch::Messages(batch) => {
                    for message in batch.iter() {
                        values(message.payload, message.entry.source_time, &mut |row| {
                            rows.push((message.entry.origin, row));
                        });
                    }
                    self.range.1 = batch.next();
                }
                Stretch::Missing(missing) => self.range.1 = missing.next,
            }
            for (origin, row) in rows {
                let name = origins.entry(origin).or_insert_with(|| stream.origin(origin));
                if !self.series.contains_key(name) {
                    self.series.insert(name.clone(), Series::default());
                }
                let Some(series) = self.series.get_mut(name) else { continue };
                match row {
                    Row::Value(time, value) => {
                        series.points.push((time, value));
                        self.count += 1;
                    }
                    Row::Unit(unit) => series.unit = unit,
                }
            }
            if self.count > POINTS_MAX {
                let cause = format!("the time holds more than {POINTS_MAX} values");
                *self = Self::default();
                return Err(Fault::new("the trend is too long", cause).hint("choose a shorter time"));
            }
        }
        Ok(())
    }
}

impl Series {
    /// What is known of the time, and its parts; none where there is no value in it.
    fn cells(&self, origin: &str, (from, to): (i64, i64), width: usize) -> Option<(Value, Vec<Cell>)> {
        let span = i128::from(to) - i128::from(from) + 1;
        let empty = Cell { least: f64::NAN, largest: f64::NAN, last: f64::NAN };
        let mut cells = vec![empty; width];
        let (mut count, mut last) = (0_u64, None::<(i64, f64)>);
        for &(time, value) in &self.points {
            if time < from || time > to {
                continue;
            }
            let at = ((i128::from(time) - i128::from(from)) * width as i128 / span) as usize;
            let Some(cell) = cells.get_mut(at) else { continue };
            // NaN gives way to any number.
            cell.least = cell.least.min(value);
            cell.largest = cell.largest.max(value);
            cell.last = value;
            count += 1;
            last = last.filter(|last| last.0 > time).or(Some((time, value)));
        }
        let (time, value) = last?;
        let value = serde_json::Number::from_f64(value).map_or_else(|| value.to_string().into(), Value::Number);
        let facts =
            json!({"origin": origin, "count": count, "last": value, "last_time": time, "unit": self.unit.as_deref()});
        Some((facts, cells))
    }
}

/// What a message adds to a trend.
enum Row {
    /// A value at a time.
    Value(i64, f64),
    /// The unit of the values.
    Unit(Option<String>),
}

/// The numbers of a message. Of an array that is one value, its first element.
fn values(bytes: &[u8], source_time: i64, see: &mut dyn FnMut(Row)) {
    match wire::read(bytes) {
        Ok(
            Message::F144(f144::F144 { value, .. })
            | Message::F142(f142::F142 { value: f142::Value::Number(value), .. }),
        ) => {
            let value = match value {
                f144::Value::Scalar(scalar) => Some(scalar.to_f64()),
                f144::Value::Array(numbers) => numbers.get(0).map(wire::Scalar::to_f64),
            };
            value.into_iter().for_each(|value| see(Row::Value(source_time, value)));
        }
        Ok(Message::Se00(m)) => {
            for (at, value) in m.values.iter().enumerate() {
                let regular = m.packet_timestamp.saturating_add((m.time_delta * at as f64) as i64);
                let time = m.timestamps.and_then(|times| times.get(at)).unwrap_or(regular);
                see(Row::Value(time, value.to_f64()));
            }
        }
        Ok(Message::Senv(m)) => {
            for (at, value) in m.values.iter().enumerate() {
                let start = i64::try_from(m.packet_timestamp).unwrap_or(i64::MAX);
                let regular = start.saturating_add((m.time_delta * at as f64) as i64);
                let time = m.timestamps.and_then(|times| times.get(at)).and_then(|time| i64::try_from(time).ok());
                see(Row::Value(time.unwrap_or(regular), value.to_f64()));
            }
        }
        // Of a chopper: the time since its previous turn, in ms.
        Ok(Message::Tdct(m)) => {
            let times: Vec<u64> = m.timestamps.iter().collect();
            for pair in times.windows(2) {
                let time = i64::try_from(pair[1]).unwrap_or(i64::MAX);
                see(Row::Value(time, pair[1].saturating_sub(pair[0]) as f64 * 1e-6));
            }
        }
        Ok(Message::Un00(m)) => see(Row::Unit(m.units.map(str::to_owned))),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_the_time_has_its_extremes() {
        let series =
            Series { points: vec![(9, 7.0), (10, 1.0), (11, 5.0), (12, 2.0), (29, 4.0), (30, 9.0)], unit: None };
        let (facts, cells) = series.cells("a", (10, 29), 2).unwrap();
        assert_eq!(facts["count"], 4);
        assert_eq!((facts["last"].as_f64(), facts["last_time"].as_i64()), (Some(4.0), Some(29)));
        assert_eq!((cells[0].least, cells[0].largest, cells[0].last), (1.0, 5.0, 2.0));
        assert_eq!((cells[1].least, cells[1].largest), (4.0, 4.0));
        assert!(series.cells("a", (100, 200), 2).is_none());
    }
}
