//! Events by pixel: how many came from each, as an image, in a window that ends with the newest message. Where nothing
//! says how the pixels lie, they are counted by their numbers: a picture of a wrong shape would look like a right one.

use super::super::detectors::Detectors;
use super::super::grid::Grid;
use super::super::panel::Panel;
use super::super::pixels::{self, Pixels};
use super::super::stream::{Found, Stream};
use super::super::view::{Object, Scene, View, ViewKind};
use super::by_number::{self, Known};
use crate::answer::Answer;
use crate::limits::{DETECTOR_PIXELS_MAX, EVENTS_BYTES_MAX, EVENTS_TIME};
use flow::Fault;
use serde_json::{Value, json};
use std::sync::Arc;
use wire::{DType, Message};

pub(super) static EVENTS: ViewKind = ViewKind {
    options: &["shape", "first_pixel"],
    ..ViewKind::new("events", has_events, || Box::new(Events::default()))
};

#[derive(Default)]
struct Events {
    detectors: Detectors,
    known: Known,
}

impl View for Events {
    /// Adds the image of a detector.
    fn show(&mut self, scene: Scene<'_>, object: &mut Object, answer: &mut Answer) -> Result<(), Fault> {
        let (panel, data) = (scene.panel, scene.data);
        let asked = asked(panel)?;
        let (stream, found) = scene.message()?;
        let ids = gather(stream, panel, &found, Field::Pixels, object)?;
        let origin = stream.origin(found.entry.origin);
        let of_template = || self.detectors.find(&data.folder, &panel.stream, flow::device_of(&origin));
        match asked.or_else(of_template) {
            Some(grid) => draw(&grid, &ids, panel, object, answer),
            None => {
                let range = self.known.range(stream, panel, &ids);
                by_number::draw(range, &ids, panel, object, answer)
            }
        }
    }
}

/// The pixels that a panel asks for.
fn asked(panel: &Panel) -> Result<Option<Arc<Grid>>, Fault> {
    // As of the worker `histogram`.
    let first = panel.option("first_pixel")?.unwrap_or(1);
    let Some(shape) = panel.option::<[u32; 2]>("shape")? else { return Ok(None) };
    let grid = Grid::by_rows(shape.map(|length| length as usize), first);
    let cause = format!("it has no pixels, or more than {DETECTOR_PIXELS_MAX}");
    grid.map(|grid| Some(Arc::new(grid))).ok_or_else(|| Fault::new("the `shape` of the panel is not one", cause))
}

/// Adds the picture, and where its pixels lie.
fn draw(grid: &Grid, ids: &[i32], panel: &Panel, object: &mut Object, answer: &mut Answer) -> Result<(), Fault> {
    let (counts, outside) = grid.count(ids);
    object.insert("outside".into(), outside.into());
    object.insert("first_pixel".into(), grid.lowest().into());
    object.insert("numbers".into(), json!(grid.steps().map(|[down, right]| [i64::from(grid.first()), down, right])));
    let dtype = if grid.is_masked() { DType::Float32 } else { DType::UInt32 };
    let pixels = Pixels::new(dtype, &counts, &grid.shape())?;
    let [x0, y0, x1, y1] = pixels::put(&pixels, panel, panel.size(), object, answer)?;
    let (Some([rows, columns]), Some(Value::Object(arrays))) = (grid.axes(), object.get_mut("arrays")) else {
        return Ok(());
    };
    let (width, height) = panel.size();
    for (name, axis, from, to, most) in [("y", rows, y0, y1, height), ("x", columns, x0, x1, width)] {
        let values = axis.along((from, to), most.min(to - from));
        answer.room(values.len(), 8)?;
        arrays.insert(name.into(), answer.array(&[values.len()], &values));
    }
    object.insert("axes".into(), json!([rows.facts(), columns.facts()]));
    Ok(())
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
