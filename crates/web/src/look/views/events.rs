//! Events by pixel: how many came from each, as an image, in a window that ends with the newest message.

use super::super::detectors::{Detector, Detectors};
use super::super::panel::Panel;
use super::super::pixels::{self, Pixels};
use super::super::stream::{Found, Stream};
use super::super::view::{Object, Scene, View, ViewKind};
use crate::answer::Answer;
use crate::limits::{DETECTOR_PIXELS_MAX, EVENTS_BYTES_MAX, EVENTS_TIME, GUESSED_PIXELS, SHAPES_MAX};
use flow::Fault;
use std::collections::BTreeMap;
use wire::{DType, Message};

pub(super) static EVENTS: ViewKind = ViewKind {
    options: &["shape", "first_pixel"],
    ..ViewKind::new("events", has_events, || Box::new(Events::default()))
};

/// Pixels that were seen of streams, by identity and origin: a guessed shape does not change with each look.
#[derive(Default)]
struct Events {
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

impl View for Events {
    /// Adds the image of a detector.
    fn show(&mut self, scene: Scene<'_>, object: &mut Object, answer: &mut Answer) -> Result<(), Fault> {
        let (panel, data) = (scene.panel, scene.data);
        // As of the worker `histogram`.
        let first = panel.option("first_pixel")?.unwrap_or(1);
        let asked: Option<[u32; 2]> = panel.option("shape")?;
        let (stream, found) = scene.message()?;
        let ids = gather(stream, panel, &found, Field::Pixels, object)?;
        let shape = match asked {
            Some([rows, columns]) if u64::from(rows) * u64::from(columns) <= DETECTOR_PIXELS_MAX as u64 => {
                Shape { rows: rows as usize, columns: columns as usize, first, is_guessed: false }
            }
            Some(_) => {
                let cause = format!("it has more than {DETECTOR_PIXELS_MAX} pixels");
                return Err(Fault::new("the `shape` of the panel is too large", cause));
            }
            None => {
                let origin = stream.origin(found.entry.origin);
                let known = self.detectors.find(&data.folder, &panel.stream, flow::device_of(&origin));
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
        pixels::put(&pixels, panel, panel.size(), object, answer).map(drop)
    }
}

impl Events {
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

/// Whether messages of a schema hold events.
pub(super) fn has_events(schema: [u8; 4]) -> bool {
    matches!(&schema, b"ev44" | b"ev43" | b"ev42" | b"an44")
}

/// The field of events that is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Pixels,
    /// Times of flight.
    Times,
}

/// Pixels or times of the events of the window. Says in `object` which messages these are.
pub(super) fn gather(
    stream: &mut Stream,
    panel: &Panel,
    found: &Found,
    field: Field,
    object: &mut Object,
) -> Result<Vec<i32>, Fault> {
    let to = stream.time(&found.entry);
    let from = to.saturating_sub(panel.window.unwrap_or(EVENTS_TIME));
    let messages = stream.window(panel, &has_events, (from, to), (found.sequence + 1, EVENTS_BYTES_MAX))?;
    let numbers: Vec<u64> = messages.iter().map(|(sequence, _)| *sequence).collect();
    let (mut values, mut read) = (Vec::new(), 0_u64);
    stream.each(&numbers, &mut |message| read += u64::from(add(message.payload, field, &mut values)))?;
    object.insert("from".into(), messages.iter().map(|(_, time)| *time).min().unwrap_or(from).into());
    object.insert("to".into(), to.into());
    object.insert("messages".into(), read.into());
    object.insert("events".into(), values.len().into());
    Ok(values)
}

/// Appends the pixels, or the times, of the events of a message; whether it could be read.
pub(super) fn add(bytes: &[u8], field: Field, values: &mut Vec<i32>) -> bool {
    let is_pixels = field == Field::Pixels;
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
}
