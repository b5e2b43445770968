//! Events: how many came from each pixel, as an image, or at each time of flight, as a curve.
//!
//! Both show the messages of a window that ends with the newest one.

use super::Panel;
use super::detectors::{Detector, Detectors};
use super::image::{self, Pixels};
use super::stream::{Found, Stream};
use super::view::View;
use crate::answer::Answer;
use crate::limits::{DETECTOR_PIXELS_MAX, EVENTS_BYTES_MAX, EVENTS_TIME, GUESSED_PIXELS, SHAPES_MAX};
use flow::Fault;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use wire::{DType, Message};

/// Pixels that were seen of streams, by identity and origin: a guessed shape does not change with each look.
#[derive(Default)]
pub(super) struct Shapes {
    seen: BTreeMap<([u8; 16], Option<String>), (i32, i32)>,
    detectors: Detectors,
}

/// Where the pixels of a detector lie: `first` + row * columns + column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    rows: usize,
    columns: usize,
    first: i32,
    is_guessed: bool,
}

impl Shape {
    /// Of pixels from `low` to `high`: nearly a square, whose width is a power of two. Of too many pixels the lowest.
    fn guess((low, high): (i32, i32)) -> Self {
        let all = i64::from(high) - i64::from(low) + 1;
        let count = if all > DETECTOR_PIXELS_MAX { GUESSED_PIXELS } else { all };
        let high = i64::from(low) + count - 1;
        let columns = 1_i64 << ((count as f64).log2() / 2.0).round() as u32;
        // The first row begins at 0 or 1, or a whole number of rows later.
        let least = i64::from(low.min(1));
        let first = least + (i64::from(low) - least) / columns * columns;
        let rows = (high - first) / columns + 1;
        Self { rows: rows as usize, columns: columns as usize, first: first as i32, is_guessed: true }
    }

    /// The events of each pixel, and the number of those that lie in none.
    fn count(&self, ids: &[i32]) -> (Vec<u8>, u64) {
        let mut counts = vec![0_u32; self.rows * self.columns];
        let mut outside = 0;
        for id in ids {
            let at = usize::try_from(i64::from(*id) - i64::from(self.first)).ok();
            match at.and_then(|at| counts.get_mut(at)) {
                Some(count) => *count += 1,
                None => outside += 1,
            }
        }
        (counts.iter().flat_map(|count| count.to_le_bytes()).collect(), outside)
    }
}

impl Shapes {
    /// Adds the image of a detector.
    pub(super) fn show(
        &mut self,
        (folder, stream): (&Path, &mut Stream),
        panel: &Panel,
        found: &Found,
        size: (usize, usize),
        object: &mut Map<String, Value>,
        answer: &mut Answer,
    ) -> Result<(), Fault> {
        let ids = gather(stream, panel, found, View::Events, object)?;
        let shape = match panel.shape {
            Some([rows, columns]) if u64::from(rows) * u64::from(columns) <= DETECTOR_PIXELS_MAX as u64 => {
                Shape { rows: rows as usize, columns: columns as usize, first: panel.first_pixel, is_guessed: false }
            }
            Some(_) => {
                let cause = format!("it has more than {DETECTOR_PIXELS_MAX} pixels");
                return Err(Fault::new("the `shape` of the panel is too large", cause));
            }
            None => {
                let origin = stream.origin(found.entry.origin);
                let known = self.detectors.find(folder, &panel.stream, flow::device_of(&origin));
                let fits = |rows: usize, columns: usize| rows.saturating_mul(columns) <= DETECTOR_PIXELS_MAX as usize;
                match known.filter(|known| fits(known.rows, known.columns)) {
                    Some(&Detector { rows, columns, first, .. }) => Shape { rows, columns, first, is_guessed: false },
                    None => Shape::guess(self.seen(stream, panel, &ids)),
                }
            }
        };
        let (counts, outside) = shape.count(&ids);
        object.insert("outside".into(), outside.into());
        object.insert("first_pixel".into(), shape.first.into());
        object.insert("guessed".into(), shape.is_guessed.into());
        let pixels = Pixels::new(DType::UInt32, &counts, &[shape.rows, shape.columns])?;
        image::put(&pixels, panel, size, object, answer).map(drop)
    }

    /// The least and the largest pixel of a stream so far.
    fn seen(&mut self, stream: &Stream, panel: &Panel, ids: &[i32]) -> (i32, i32) {
        if self.seen.len() >= SHAPES_MAX {
            self.seen.clear();
        }
        let known = self.seen.entry((stream.uuid(), panel.origin.clone())).or_insert((i32::MAX, i32::MIN));
        // A negative number is no pixel.
        for id in ids.iter().filter(|id| **id >= 0) {
            *known = (known.0.min(*id), known.1.max(*id));
        }
        if known.0 > known.1 { (1, 1) } else { *known }
    }
}

/// Adds the number of events at each time of flight. `width`: bins.
pub(super) fn spectrum(
    stream: &mut Stream,
    panel: &Panel,
    found: &Found,
    width: usize,
    object: &mut Map<String, Value>,
    answer: &mut Answer,
) -> Result<(), Fault> {
    let times = gather(stream, panel, found, View::Spectrum, object)?;
    let largest = i64::from(times.iter().copied().max().unwrap_or(0)).max(1);
    let (from, to) = match panel.region {
        Some([from, _, to, _]) if from < to => (i64::from(from), i64::from(to)),
        Some(_) => return Err(Fault::new("the region of the spectrum is empty", "x1 is not larger than x0")),
        None => (0, rounded(largest + 1)),
    };
    let width = width.min((to - from) as usize);
    let (mut counts, mut outside) = (vec![0.0_f64; width], 0_u64);
    let scale = width as f64 / (to - from) as f64;
    for time in times {
        let at = i64::from(time) - from;
        match usize::try_from(at).ok().and_then(|at| counts.get_mut((at as f64 * scale) as usize)) {
            Some(count) => *count += 1.0,
            None => outside += 1,
        }
    }
    let edges: Vec<f64> = (0..=width).map(|at| from as f64 + at as f64 / scale).collect();
    answer.room(2 * width + 1, 8)?;
    let facts = json!({
        "outside": outside,
        "region": [from, 0, to, 0],
        "name": "events",
        "unit": "counts",
        "axis": {"name": "time_of_flight", "unit": "ns", "edges": true},
        "low": counts.iter().copied().reduce(f64::min),
        "high": counts.iter().copied().reduce(f64::max),
        "arrays": {"x": answer.array(&[width + 1], &edges), "y": answer.array(&[width], &counts)},
    });
    if let Value::Object(facts) = facts {
        object.extend(facts);
    }
    Ok(())
}

/// The next number with two digits that count, so that an axis is the same from look to look.
fn rounded(value: i64) -> i64 {
    let step = 10_i64.pow((value.max(1).ilog10()).saturating_sub(1));
    (value + step - 1) / step * step
}

/// Pixels or times of the events of the window. Says in `object` which messages these are.
fn gather(
    stream: &mut Stream,
    panel: &Panel,
    found: &Found,
    view: View,
    object: &mut Map<String, Value>,
) -> Result<Vec<i32>, Fault> {
    let to = stream.time(&found.entry);
    let from = to.saturating_sub(panel.window.unwrap_or(EVENTS_TIME));
    let messages = stream.window(panel, view, (from, to), (found.sequence + 1, EVENTS_BYTES_MAX))?;
    let numbers: Vec<u64> = messages.iter().map(|(sequence, _)| *sequence).collect();
    let (mut values, mut read) = (Vec::new(), 0_u64);
    stream.each(&numbers, &mut |message| read += u64::from(add(message.payload, view, &mut values)))?;
    object.insert("from".into(), messages.iter().map(|(_, time)| *time).min().unwrap_or(from).into());
    object.insert("to".into(), to.into());
    object.insert("messages".into(), read.into());
    object.insert("events".into(), values.len().into());
    Ok(values)
}

/// Appends the pixels, or the times, of the events of a message; whether it could be read.
fn add(bytes: &[u8], view: View, values: &mut Vec<i32>) -> bool {
    let is_pixels = view == View::Events;
    let unsigned = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
    match wire::read(bytes) {
        Ok(Message::Ev44(m)) => values.extend(if is_pixels { m.pixel_id.iter() } else { m.time_of_flight.iter() }),
        Ok(Message::An44(m)) => values.extend(if is_pixels { m.pixel_id.iter() } else { m.time_of_flight.iter() }),
        Ok(Message::Ev43(m)) => {
            values.extend(if is_pixels { m.detector_id.iter() } else { m.time_of_flight.iter() }.map(unsigned));
        }
        Ok(Message::Ev42(m)) => {
            values.extend(if is_pixels { m.detector_id.iter() } else { m.time_of_flight.iter() }.map(unsigned));
        }
        _ => return false,
    }
    true
}

/// A message with times alone comes from a monitor without pixels.
pub(super) fn view(bytes: &[u8]) -> View {
    let (mut ids, mut times) = (Vec::new(), Vec::new());
    let is_read = add(bytes, View::Events, &mut ids) && add(bytes, View::Spectrum, &mut times);
    if is_read && ids.is_empty() && !times.is_empty() { View::Spectrum } else { View::Events }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guessed_shape_is_nearly_a_square() {
        let shape = |low, high| {
            let shape = Shape::guess((low, high));
            (shape.rows, shape.columns, shape.first)
        };
        assert_eq!(shape(1, 16384), (128, 128, 1));
        assert_eq!(shape(0, 16383), (128, 128, 0));
        assert_eq!(shape(3, 16380), (128, 128, 1));
        assert_eq!(shape(1_000_001, 1_000_100), (13, 8, 1_000_001));
        assert_eq!(shape(7, 7), (1, 1, 7));
        assert_eq!(shape(0, i32::MAX), (1024, 1024, 0));
        assert_eq!(shape(i32::MAX, i32::MAX), (1, 1, i32::MAX));
    }

    #[test]
    fn events_outside_of_the_shape_are_counted() {
        let shape = Shape { rows: 2, columns: 2, first: 10, is_guessed: false };
        let (counts, outside) = shape.count(&[10, 13, 13, 14, 9, -1, i32::MIN, i32::MAX]);
        let counts: Vec<u8> = counts.chunks(4).map(|count| count[0]).collect();
        assert_eq!((counts, outside), (vec![1, 0, 0, 2], 5));
    }

    #[test]
    fn the_axis_ends_at_a_number_of_two_digits() {
        let ends = [1, 9, 10, 99, 100, 101, 71_400_001].map(rounded);
        assert_eq!(ends, [1, 9, 10, 99, 100, 110, 72_000_000]);
    }
}
