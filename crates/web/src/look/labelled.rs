//! Labelled arrays (`da00`) and histograms (`hs00`, `hs01`): a curve of one dimension, an image of two.
//!
//! The values of a `da00` are the variable `signal`, else the first of those with the most dimensions that is not an
//! axis; their errors are `errors`. The axis of a dimension is the variable of its name, with an edge more than there
//! are values, or with as many numbers. Further dimensions are added up.

use super::panel::{Panel, Reduce};
use super::pixels::{self, Pixels};
use crate::answer::Answer;
use flow::Fault;
use serde_json::{Map, Value, json};
use wire::{DType, Message, Number as _, Numbers};

/// An array with its axes.
struct Labelled<'a> {
    name: &'a str,
    label: Option<&'a str>,
    unit: Option<&'a str>,
    /// Lengths of the dimensions, slowest first.
    shape: Vec<usize>,
    values: Numbers<'a>,
    errors: Option<Numbers<'a>>,
    /// One for each dimension.
    axes: Vec<Axis<'a>>,
}

/// The axis of a dimension.
#[derive(Clone, Copy, Default)]
struct Axis<'a> {
    name: Option<&'a str>,
    label: Option<&'a str>,
    unit: Option<&'a str>,
    /// Edges, one more than the dimension is long, or a number for each value.
    values: Option<Numbers<'a>>,
}

impl<'a> Axis<'a> {
    /// Numbers along an axis of some length, for equal parts of a range of it; whether they are edges.
    fn along(&self, length: usize, (from, to): (usize, usize), parts: usize) -> (bool, Vec<f64>) {
        let values = self.values.map(doubles).filter(|values| values.len() == length || values.len() == length + 1);
        let edge = |part: usize| from + part * (to - from) / parts;
        match values {
            Some(values) if values.len() > length => (true, (0..=parts).map(|part| values[edge(part)]).collect()),
            values => {
                let value = |at: usize| values.as_ref().map_or(at as f64, |values| values[at]);
                let mean = |part: usize| {
                    let range = edge(part)..edge(part + 1);
                    let count = range.len() as f64;
                    range.map(value).sum::<f64>() / count
                };
                (false, (0..parts).map(mean).collect())
            }
        }
    }

    fn facts(&self, has_edges: bool) -> Value {
        json!({"name": self.name, "label": self.label, "unit": self.unit, "edges": has_edges})
    }
}

impl<'a> Labelled<'a> {
    /// The array of a message that has one.
    fn read(bytes: &'a [u8]) -> Result<Self, String> {
        match wire::read(bytes).map_err(|e| e.to_string())? {
            Message::Da00(data) => Self::of_variables(&data).ok_or_else(|| "it has no variable with numbers".into()),
            Message::Hs00(m) => {
                let values = m.data.ok_or("it has no `data`")?;
                let axes = m.dim_metadata.iter().map(|d| Axis::of(d.label, d.unit, d.bin_boundaries)).collect();
                Ok(Self::histogram(m.extent(values), values, m.errors, axes))
            }
            Message::Hs01(m) => {
                let values = m.data.ok_or("it has no `data`")?;
                let axes = m.dim_metadata.iter().map(|d| Axis::of(d.label, d.unit, d.bin_boundaries)).collect();
                Ok(Self::histogram(m.extent(values), values, m.errors, axes))
            }
            _ => Err("the message is neither a labelled array nor a histogram".into()),
        }
    }

    fn of_variables(data: &wire::da00::Da00<'a>) -> Option<Self> {
        let of = |name: &str| data.data.iter().find(|variable| variable.name == name);
        let is_axis = |name: &str| data.data.iter().any(|variable| variable.axes.contains(&name));
        let candidates =
            || data.data.iter().filter(|v| v.data.dtype() != DType::Text && v.name != "errors" && !is_axis(v.name));
        let most = candidates().map(|variable| variable.extent().len()).max();
        let signal = of("signal").or_else(|| candidates().find(|variable| Some(variable.extent().len()) == most))?;
        let shape = signal.extent();
        let axis = |at: usize| {
            let name = signal.axes.get(at).copied().filter(|_| signal.axes.len() == shape.len())?;
            let variable = of(name).filter(|variable| variable.extent().len() == 1);
            let of = |text: Option<&'a str>| text.filter(|text| !text.is_empty());
            Some(Axis {
                name: Some(name),
                label: variable.and_then(|v| of(v.label)),
                unit: variable.and_then(|v| of(v.unit)),
                values: variable.map(|v| v.data).filter(|values| values.dtype() != DType::Text),
            })
        };
        Some(Self {
            name: signal.name,
            label: signal.label,
            unit: signal.unit,
            axes: (0..shape.len()).map(|at| axis(at).unwrap_or_default()).collect(),
            errors: of("errors").map(|errors| errors.data).filter(|errors| errors.len() == signal.data.len()),
            values: signal.data,
            shape,
        })
    }

    fn histogram(shape: Vec<usize>, values: Numbers<'a>, errors: Option<Numbers<'a>>, mut axes: Vec<Axis<'a>>) -> Self {
        if axes.len() != shape.len() {
            axes = vec![Axis::default(); shape.len()];
        }
        let errors = errors.filter(|errors| errors.len() == values.len());
        Self { name: "data", label: None, unit: Some("counts"), shape, values, errors, axes }
    }

    /// Values or their squares, added up over all dimensions but those that are kept, in C order.
    fn sums(&self, numbers: Numbers<'_>, keep: &[usize], square: bool) -> Vec<f64> {
        let mut values = doubles(numbers);
        if square {
            values.iter_mut().for_each(|value| *value *= *value);
        }
        if keep.iter().copied().eq(0..self.shape.len()) {
            return values;
        }
        let stride = |at: usize| self.shape[at + 1..].iter().product::<usize>().max(1);
        let kept: Vec<(usize, usize)> = keep.iter().map(|at| (stride(*at), self.shape[*at])).collect();
        let mut sums = vec![0.0; kept.iter().map(|(_, length)| length).product()];
        for (at, value) in values.into_iter().enumerate() {
            let place = kept.iter().fold(0, |place, (stride, length)| place * length + at / stride % length);
            sums[place] += value;
        }
        sums
    }

    /// Which dimensions are rows and columns: those with the names `y` and `x`, else the last two.
    fn plane(&self) -> Option<[usize; 2]> {
        let of = |name: &str| self.axes.iter().position(|axis| axis.name == Some(name));
        let last = self.shape.len().checked_sub(2)?;
        Some(of("y").zip(of("x")).map_or([last, last + 1], |(y, x)| [y, x]))
    }
}

impl<'a> Axis<'a> {
    fn of(label: &'a str, unit: &'a str, values: Option<Numbers<'a>>) -> Self {
        let text = |text: &'a str| Some(text).filter(|text| !text.is_empty());
        Self { name: text(label), label: text(label), unit: text(unit), values }
    }
}

/// The numbers as float64.
fn doubles(numbers: Numbers<'_>) -> Vec<f64> {
    macro_rules! first_of {
        ($($t:ty),*) => { $(
            if let Some(array) = numbers.typed::<$t>() {
                return array.iter().map(|value| value.to_f64()).collect();
            }
        )* };
    }
    first_of!(i8, u8, i16, u16, i32, u32, i64, u64, f32, f64);
    Vec::new()
}

/// Whether messages of a schema hold such an array.
pub(super) fn is_labelled(schema: [u8; 4]) -> bool {
    matches!(&schema, b"da00" | b"hs00" | b"hs01")
}

/// Dimensions of the array of a message; none where it has no array.
pub(super) fn dimensions(bytes: &[u8]) -> Option<usize> {
    Labelled::read(bytes).ok().map(|array| array.shape.len())
}

/// Adds a curve: the values along the last dimension.
pub(super) fn curve(
    bytes: &[u8],
    panel: &Panel,
    object: &mut Map<String, Value>,
    answer: &mut Answer,
) -> Result<(), Fault> {
    let none = |cause: String| Fault::new(format!("no curve of stream `{}`", panel.stream), cause);
    let array = Labelled::read(bytes).map_err(none)?;
    let Some((last, length)) = array.shape.len().checked_sub(1).map(|last| (last, array.shape[last])) else {
        return Err(none("it is a single number".into()));
    };
    let (from, to) = panel.region.map_or((0, length), |[from, _, to, _]| (from as usize, (to as usize).min(length)));
    if from >= to {
        return Err(Fault::new("the region is outside of the curve", format!("it has {length} values")));
    }
    let parts = panel.size().0.min(to - from);
    answer.room(3 * parts + 1, 8)?;
    let edges: Vec<usize> = (0..=parts).map(|part| from + part * (to - from) / parts).collect();
    let values = array.sums(array.values, &[last], false);
    let squares = array.errors.map(|errors| array.sums(errors, &[last], true));
    let (mut y, mut errors) = (Vec::with_capacity(parts), Vec::new());
    for edge in edges.windows(2) {
        let (value, error) = cell(&values, squares.as_deref(), (edge[0], edge[1]), panel.reduce);
        y.push(value);
        errors.extend(error);
    }
    let (has_edges, x) = array.axes[last].along(length, (from, to), parts);
    let finite = || y.iter().copied().filter(|value| value.is_finite());
    let mut arrays = Map::new();
    arrays.insert("x".into(), answer.array(&[x.len()], &x));
    arrays.insert("y".into(), answer.array(&[parts], &y));
    if squares.is_some() {
        arrays.insert("errors".into(), answer.array(&[parts], &errors));
    }
    let facts = json!({
        "shape": [length],
        "region": [from, 0, to, 0],
        "name": array.name,
        "label": array.label,
        "unit": array.unit,
        "axis": array.axes[last].facts(has_edges),
        "low": finite().reduce(f64::min),
        "high": finite().reduce(f64::max),
        "arrays": arrays,
    });
    if let Value::Object(facts) = facts {
        object.extend(facts);
    }
    Ok(())
}

/// The value that stands for some values in a row, and its error.
fn cell(values: &[f64], squares: Option<&[f64]>, (from, to): (usize, usize), how: Reduce) -> (f64, Option<f64>) {
    let sum = |of: &[f64]| of[from..to].iter().sum::<f64>();
    let share = match how {
        Reduce::Mean => 1.0 / (to - from) as f64,
        Reduce::Sum => 1.0,
        Reduce::Max => {
            let most = (from..to).reduce(|most, at| if values[at] > values[most] { at } else { most }).unwrap_or(from);
            return (values[most], squares.map(|squares| squares[most].sqrt()));
        }
    };
    (sum(values) * share, squares.map(|squares| sum(squares).sqrt() * share))
}

/// Adds an image.
pub(super) fn image(
    bytes: &[u8],
    panel: &Panel,
    object: &mut Map<String, Value>,
    answer: &mut Answer,
) -> Result<(), Fault> {
    let none = |cause: String| Fault::new(format!("no image of stream `{}`", panel.stream), cause);
    let array = Labelled::read(bytes).map_err(none)?;
    let plane = array.plane().ok_or_else(|| none("it has less than two dimensions".into()))?;
    let shape = plane.map(|at| array.shape[at]);
    let size = panel.size();
    let region = if plane == [0, 1] && array.shape.len() == 2 {
        pixels::put(&Pixels::new(array.values.dtype(), array.values.bytes(), &shape)?, panel, size, object, answer)?
    } else {
        let sums: Vec<u8> = array.sums(array.values, &plane, false).into_iter().flat_map(f64::to_le_bytes).collect();
        pixels::put(&Pixels::new(DType::Float64, &sums, &shape)?, panel, size, object, answer)?
    };
    let [x0, y0, x1, y1] = region;
    let [rows, columns] = plane.map(|at| array.axes[at]);
    let drawn = (size.0.min(x1 - x0), size.1.min(y1 - y0));
    let (has_row_edges, y) = rows.along(shape[0], (y0, y1), drawn.1);
    let (has_column_edges, x) = columns.along(shape[1], (x0, x1), drawn.0);
    answer.room(drawn.0 * drawn.1, 4)?;
    let errors = array.errors.map(|errors| {
        let (values, squares) = (array.sums(array.values, &plane, false), array.sums(errors, &plane, true));
        let part = |at: usize, parts: usize, (from, to): (usize, usize)| {
            (from + at * (to - from) / parts, from + (at + 1) * (to - from) / parts)
        };
        let cells = (0..drawn.1).flat_map(|row| (0..drawn.0).map(move |column| (row, column)));
        let of = |(row, column)| {
            let cell = (part(row, drawn.1, (y0, y1)), part(column, drawn.0, (x0, x1)));
            error(&values, &squares, shape[1], cell, panel.reduce)
        };
        cells.map(of).collect::<Vec<f32>>()
    });
    if let Some(Value::Object(arrays)) = object.get_mut("arrays") {
        if let Some(errors) = errors {
            arrays.insert("errors".into(), answer.array(&[drawn.1, drawn.0], &errors));
        }
        arrays.insert("y".into(), answer.array(&[y.len()], &y));
        arrays.insert("x".into(), answer.array(&[x.len()], &x));
    }
    let facts = json!({
        "name": array.name,
        "label": array.label,
        "unit": array.unit,
        "axes": [rows.facts(has_row_edges), columns.facts(has_column_edges)],
    });
    if let Value::Object(facts) = facts {
        object.extend(facts);
    }
    Ok(())
}

/// The error of a pixel of the panel: of rows and columns of the image, which has `width` columns.
fn error(
    values: &[f64],
    squares: &[f64],
    width: usize,
    ((top, bottom), (left, right)): ((usize, usize), (usize, usize)),
    how: Reduce,
) -> f32 {
    let places = || (top..bottom).flat_map(|row| (left..right).map(move |column| row * width + column));
    let sum = || places().map(|at| squares[at]).sum::<f64>().sqrt();
    let error = match how {
        Reduce::Mean => sum() / ((bottom - top) * (right - left)) as f64,
        Reduce::Sum => sum(),
        Reduce::Max => {
            let most = places().reduce(|most, at| if values[at] > values[most] { at } else { most });
            most.map_or(f64::NAN, |at| squares[at].sqrt())
        }
    };
    error as f32
}
