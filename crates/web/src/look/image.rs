//! An image: the pixels of an `ad00`, reduced to those of the panel.
//!
//! The last two dimensions are rows and columns; of more dimensions the first plane is shown. An image whose last
//! dimension is 3 or 4 has colours (as areaDetector's RGB1 has): each pixel is the mean of its colours.

use super::Panel;
use crate::answer::Answer;
use flow::Fault;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use wire::{DType, ad00};

/// What stands for the pixels of the image that fall on one pixel of the panel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Reduce {
    /// Their mean.
    #[default]
    Mean,
    /// The largest.
    Max,
}

/// Where rows and columns lie in the bytes of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plane {
    rows: usize,
    columns: usize,
    /// Elements of a pixel.
    colours: usize,
}

impl Plane {
    fn of(shape: &[usize]) -> Option<Self> {
        let plane = match *shape {
            [] => return None,
            [columns] => Self { rows: 1, columns, colours: 1 },
            [.., rows, columns, colours @ (3 | 4)] if rows > 4 && columns > 4 => Self { rows, columns, colours },
            [.., rows, columns] => Self { rows, columns, colours: 1 },
        };
        (plane.rows > 0 && plane.columns > 0).then_some(plane)
    }
}

/// Adds an image. `size`: columns and rows of the panel.
pub(super) fn show(
    bytes: &[u8],
    panel: &Panel,
    size: (usize, usize),
    object: &mut Map<String, Value>,
    answer: &mut Answer,
) -> Result<(), Fault> {
    let unreadable = |cause: String| Fault::new(format!("no image of stream `{}`", panel.stream), cause);
    let frame = ad00::read(bytes).map_err(|e| unreadable(e.to_string()))?;
    let shape = frame.shape();
    let plane = Plane::of(&shape).ok_or_else(|| unreadable(format!("its shape is {shape:?}")))?;
    let [x0, y0, x1, y1] = panel.region.map_or([0, 0, plane.columns, plane.rows], |region| region.map(|x| x as usize));
    let (x1, y1) = (x1.min(plane.columns), y1.min(plane.rows));
    if x0 >= x1 || y0 >= y1 {
        let cause = format!("the image has {} columns and {} rows", plane.columns, plane.rows);
        return Err(Fault::new("the region is outside of the image", cause));
    }
    let (columns, rows) = (size.0.min(x1 - x0), size.1.min(y1 - y0));
    let dtype = frame.data.dtype();
    if dtype == DType::Text {
        return Err(unreadable("its pixels are text".into()));
    }
    let part = Part { bytes: frame.data.bytes(), plane, x: (x0, x1), y: (y0, y1), columns, rows };
    let is_whole = columns == x1 - x0 && rows == y1 - y0 && plane.colours == 1;
    answer.room(columns * rows, if is_whole { dtype.size() } else { 4 })?;
    let (values, low, high) = reduce(dtype, &part, panel.reduce);
    let array = if is_whole {
        let row = |y: usize| {
            let start = (y * plane.columns + x0) * dtype.size();
            part.bytes.get(start..start + columns * dtype.size()).unwrap_or_default().iter().copied()
        };
        answer.bytes(dtype.name(), &[rows, columns], (y0..y1).flat_map(row))
    } else {
        answer.array(&[rows, columns], &values)
    };
    let facts = json!({
        "shape": [plane.rows, plane.columns],
        "region": [x0, y0, x1, y1],
        "low": low,
        "high": high,
        "arrays": {"values": array},
    });
    if let Value::Object(facts) = facts {
        object.extend(facts);
    }
    Ok(())
}

/// A part of an image, and the pixels it becomes.
struct Part<'a> {
    bytes: &'a [u8],
    plane: Plane,
    x: (usize, usize),
    y: (usize, usize),
    columns: usize,
    rows: usize,
}

fn reduce(dtype: DType, part: &Part<'_>, how: Reduce) -> (Vec<f32>, Option<f32>, Option<f32>) {
    macro_rules! typed {
        ($($t:ty = $variant:ident),*) => {
            match dtype {
                $( DType::$variant => reduced(part, how, size_of::<$t>(), |b| {
                    <$t>::from_le_bytes(b.try_into().unwrap_or_default()) as f32
                }), )*
                DType::Text => (Vec::new(), None, None),
            }
        };
    }
    typed!(
        i8 = Int8,
        u8 = UInt8,
        i16 = Int16,
        u16 = UInt16,
        i32 = Int32,
        u32 = UInt32,
        i64 = Int64,
        u64 = UInt64,
        f32 = Float32,
        f64 = Float64
    )
}

/// The pixels of the panel, and their extremes without those that are not finite.
fn reduced(
    part: &Part<'_>,
    how: Reduce,
    element: usize,
    value: impl Fn(&[u8]) -> f32,
) -> (Vec<f32>, Option<f32>, Option<f32>) {
    let pixel = element * part.plane.colours;
    let edges: Vec<usize> = (0..=part.columns).map(|i| i * (part.x.1 - part.x.0) / part.columns).collect();
    let mut values = Vec::with_capacity(part.rows * part.columns);
    let mut line = vec![0.0_f32; part.columns];
    let share = 1.0 / part.plane.colours as f32;
    for row in 0..part.rows {
        let height = part.y.1 - part.y.0;
        let (first, end) = (part.y.0 + row * height / part.rows, part.y.0 + (row + 1) * height / part.rows);
        line.fill(if how == Reduce::Mean { 0.0 } else { f32::NEG_INFINITY });
        for y in first..end {
            let start = (y * part.plane.columns + part.x.0) * pixel;
            let Some(bytes) = part.bytes.get(start..start + (part.x.1 - part.x.0) * pixel) else { continue };
            for (into, edge) in line.iter_mut().zip(edges.windows(2)) {
                let cell = &bytes[edge[0] * pixel..edge[1] * pixel];
                match (how, part.plane.colours) {
                    (Reduce::Mean, _) => *into += cell.chunks_exact(element).map(&value).sum::<f32>() * share,
                    (Reduce::Max, 1) => *into = cell.chunks_exact(element).map(&value).fold(*into, f32::max),
                    (Reduce::Max, _) => {
                        let colours = |pixel: &[u8]| pixel.chunks_exact(element).map(&value).sum::<f32>() * share;
                        *into = cell.chunks_exact(pixel).map(colours).fold(*into, f32::max);
                    }
                }
            }
        }
        if how == Reduce::Mean {
            for (into, edge) in line.iter_mut().zip(edges.windows(2)) {
                *into /= ((end - first) * (edge[1] - edge[0])) as f32;
            }
        }
        values.extend_from_slice(&line);
    }
    let finite = || values.iter().copied().filter(|value| value.is_finite());
    let (low, high) = (finite().reduce(f32::min), finite().reduce(f32::max));
    (values, low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part<'a>(bytes: &'a [u8], shape: (usize, usize, usize), size: (usize, usize)) -> Part<'a> {
        let plane = Plane { rows: shape.0, columns: shape.1, colours: shape.2 };
        Part { bytes, plane, x: (0, shape.1), y: (0, shape.0), columns: size.0, rows: size.1 }
    }

    #[test]
    fn pixels_are_reduced_to_their_mean_or_largest() {
        let pixels = [1, 2, 3, 4, 5, 6, 7, 100_u8];
        let part = part(&pixels, (2, 4, 1), (2, 1));
        let (mean, low, high) = reduce(DType::UInt8, &part, Reduce::Mean);
        assert_eq!((mean, low, high), (vec![3.5, 28.5], Some(3.5), Some(28.5)));
        assert_eq!(reduce(DType::UInt8, &part, Reduce::Max).0, [6.0, 100.0]);
    }

    #[test]
    fn parts_of_unequal_width_cover_every_pixel_once() {
        let pixels: Vec<u8> = (0..7 * 5).collect();
        let (values, ..) = reduce(DType::UInt8, &part(&pixels, (5, 7, 1), (3, 2)), Reduce::Max);
        assert_eq!(values, [8.0, 10.0, 13.0, 29.0, 31.0, 34.0]);
    }

    #[test]
    fn colours_are_averaged() {
        let pixels = [3, 6, 9, 30, 60, 90_u8];
        let (values, ..) = reduce(DType::UInt8, &part(&pixels, (1, 2, 3), (2, 1)), Reduce::Mean);
        assert_eq!(values, [6.0, 60.0]);
        assert_eq!(Plane::of(&[480, 640, 3]), Some(Plane { rows: 480, columns: 640, colours: 3 }));
        assert_eq!(Plane::of(&[9, 480, 640]), Some(Plane { rows: 480, columns: 640, colours: 1 }));
        assert_eq!(Plane::of(&[]), None);
        assert_eq!(Plane::of(&[0, 5]), None);
    }

    #[test]
    fn values_that_are_not_finite_are_no_extremes() {
        let pixels: Vec<u8> = [f32::NAN, 1.0, f32::INFINITY, 2.0].into_iter().flat_map(f32::to_le_bytes).collect();
        let (_, low, high) = reduce(DType::Float32, &part(&pixels, (1, 4, 1), (4, 1)), Reduce::Mean);
        assert_eq!((low, high), (Some(1.0), Some(2.0)));
    }
}
