//! Where the pixels of a detector lie in its picture: rows from top to bottom, columns from left to right.

use crate::limits::DETECTOR_PIXELS_MAX;
use serde_json::{Value, json};
use std::ops::Range;

/// The pixels of a picture.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Grid {
    rows: usize,
    columns: usize,
    /// The number of each pixel, row by row; a negative one is of no pixel.
    ids: Vec<i32>,
    /// From the lowest number of a pixel to behind the highest.
    range: Range<i64>,
    /// How much the number rises from row to row and from column to column; none where that is not the same everywhere.
    steps: Option<[i64; 2]>,
    /// The pixels that are not to be trusted; empty: none.
    mask: Vec<bool>,
    /// Of rows and of columns, where they are known.
    axes: Option<[Axis; 2]>,
}

/// A side of a picture: the places of its rows or columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Axis {
    pub(super) name: String,
    pub(super) unit: Option<String>,
    /// One for each row or column, else none.
    pub(super) values: Vec<f64>,
}

impl Grid {
    /// Pixels that are numbered row by row.
    pub(super) fn by_rows([rows, columns]: [usize; 2], first: i32) -> Option<Self> {
        let count = rows.checked_mul(columns).filter(|count| *count <= DETECTOR_PIXELS_MAX as usize)?;
        let ids = (0..count as i64).map(|at| i32::try_from(i64::from(first) + at).unwrap_or(-1)).collect();
        Self::of_numbers([rows, columns], ids)
    }

    /// Pixels of these numbers; none where there are no pixels, or their numbers are too far apart to be counted.
    pub(super) fn of_numbers(shape: [usize; 2], ids: Vec<i32>) -> Option<Self> {
        let [rows, columns] = shape;
        let known = || ids.iter().filter(|id| **id >= 0).map(|id| i64::from(*id));
        let range = known().min()?..known().max()? + 1;
        let is_fit = rows > 0 && columns > 0 && ids.len() == rows * columns;
        if !is_fit || range.end - range.start > DETECTOR_PIXELS_MAX {
            return None;
        }
        let steps = steps(shape, &ids);
        Some(Self { rows, columns, ids, range, steps, mask: Vec::new(), axes: None })
    }

    pub(super) fn shape(&self) -> [usize; 2] {
        [self.rows, self.columns]
    }

    /// The lowest number of a pixel.
    pub(super) fn lowest(&self) -> i64 {
        self.range.start
    }

    /// The number of the pixel at the top left.
    pub(super) fn first(&self) -> i32 {
        self.ids.first().copied().unwrap_or(0)
    }

    /// Names the pixels that are not to be trusted, if there is one answer for each.
    pub(super) fn set_mask(&mut self, mask: Vec<bool>) {
        if mask.len() == self.ids.len() && mask.contains(&true) {
            self.mask = mask;
        }
    }

    /// Sets the axes of rows and columns, if either is known.
    pub(super) fn set_axes(&mut self, axes: [Axis; 2]) {
        self.axes = Some(axes).filter(|axes| axes.iter().any(|axis| !axis.name.is_empty()));
    }

    /// Makes rows of the columns.
    pub(super) fn transpose(&mut self) {
        let (rows, columns) = (self.rows, self.columns);
        let turned = || (0..columns).flat_map(|column| (0..rows).map(move |row| row * columns + column));
        self.ids = turned().map(|at| self.ids[at]).collect();
        if !self.mask.is_empty() {
            self.mask = turned().map(|at| self.mask[at]).collect();
        }
        (self.rows, self.columns) = (columns, rows);
        self.steps = self.steps.map(|[down, right]| [right, down]);
        self.axes = self.axes.take().map(|[rows, columns]| [columns, rows]);
    }

    /// Turns the picture over so that what its sides show rises to the right, and upwards.
    pub(super) fn raise_up(&mut self) {
        let rises = |axis: &Axis| Some(axis.values.last()? > axis.values.first()?);
        let Some([of_rows, of_columns]) = &mut self.axes else { return };
        let (flips_rows, flips_columns) = (rises(of_rows) == Some(true), rises(of_columns) == Some(false));
        if flips_rows {
            of_rows.values.reverse();
        }
        if flips_columns {
            of_columns.values.reverse();
        }
        let (columns, count) = (self.columns, self.ids.len());
        let turn = |at: usize| {
            let (row, column) = (at / columns, at % columns);
            let row = if flips_rows { count / columns - 1 - row } else { row };
            row * columns + if flips_columns { columns - 1 - column } else { column }
        };
        self.ids = (0..count).map(|at| self.ids[turn(at)]).collect();
        let sign = |flips: bool| if flips { -1 } else { 1 };
        self.steps = self.steps.map(|[down, right]| [down * sign(flips_rows), right * sign(flips_columns)]);
        if !self.mask.is_empty() {
            self.mask = (0..count).map(|at| self.mask[turn(at)]).collect();
        }
    }

    /// Whether some pixels are not to be trusted.
    pub(super) fn is_masked(&self) -> bool {
        !self.mask.is_empty()
    }

    /// The events of each pixel, and the number of those that are in none: uint32; where pixels are masked, float32
    /// with NaN for these.
    pub(super) fn count(&self, events: &[i32]) -> (Vec<u8>, u64) {
        let low = self.range.start;
        let place = |id: i32| usize::try_from(i64::from(id) - low).ok().filter(|_| id >= 0);
        let mut of_id = vec![0_u32; (self.range.end - low) as usize];
        for id in events {
            if let Some(count) = place(*id).and_then(|at| of_id.get_mut(at)) {
                *count += 1;
            }
        }
        let (mut inside, mut bytes) = (0_u64, Vec::with_capacity(self.ids.len() * 4));
        for (at, id) in self.ids.iter().enumerate() {
            let count = place(*id).and_then(|at| of_id.get(at).copied()).unwrap_or(0);
            inside += u64::from(count);
            bytes.extend(match self.mask.get(at) {
                None => count.to_le_bytes(),
                Some(true) => f32::NAN.to_le_bytes(),
                Some(false) => (count as f32).to_le_bytes(),
            });
        }
        (bytes, (events.len() as u64).saturating_sub(inside))
    }

    /// How much the number rises from row to row and from column to column, where that is the same everywhere.
    pub(super) fn steps(&self) -> Option<[i64; 2]> {
        self.steps
    }

    /// The axes of rows and columns, with names and units.
    pub(super) fn axes(&self) -> Option<&[Axis; 2]> {
        self.axes.as_ref()
    }
}

/// The steps of [`Grid::steps`].
fn steps([rows, columns]: [usize; 2], ids: &[i32]) -> Option<[i64; 2]> {
    let id = |at: usize| ids.get(at).map_or(0, |id| i64::from(*id));
    let down = if rows > 1 { id(columns) - id(0) } else { 0 };
    let right = if columns > 1 { id(1) - id(0) } else { 0 };
    let fits = |at: usize| id(at) == id(0) + (at / columns) as i64 * down + (at % columns) as i64 * right;
    (0..ids.len()).all(fits).then_some([down, right])
}

impl Axis {
    /// Values along the axis, for equal parts of a range of it: the mean of each part.
    pub(super) fn along(&self, (from, to): (usize, usize), parts: usize) -> Vec<f64> {
        let value = |at: usize| self.values.get(at).copied().unwrap_or(at as f64);
        let edge = |part: usize| from + part * (to - from) / parts;
        (0..parts)
            .map(|part| {
                let range = edge(part)..edge(part + 1);
                let count = range.len().max(1) as f64;
                range.map(value).sum::<f64>() / count
            })
            .collect()
    }

    /// The facts of an answer.
    pub(super) fn facts(&self) -> Value {
        // Without values there are the numbers of rows and columns.
        let name = Some(&self.name).filter(|_| !self.values.is_empty());
        json!({"name": name, "label": null, "unit": self.unit, "edges": false})
    }
}
