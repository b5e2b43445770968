//! The pixels of an image, or of what is counted, reduced to those of the panel.
//!
//! The last two dimensions are rows and columns; of more dimensions the first plane is shown. An image whose last
//! dimension is 3 or 4 has colours (as areaDetector's RGB1 has): each pixel is the mean of its colours.
//!
//! Masked pixels, NaN and 2^32-1 of `uint32` (as EIGER and JUNGFRAU mark them), have no part in what is made of others.

use super::panel::{Panel, Reduce};
use crate::answer::Answer;
use crate::limits::MASKED;
use flow::Fault;
use serde_json::{Map, Value, json};
use wire::DType;

/// The pixels of an image, as they lie in memory.
pub(super) struct Pixels<'a> {
    dtype: DType,
    bytes: &'a [u8],
    plane: Plane,
}

impl<'a> Pixels<'a> {
    /// Pixels in C order.
    pub(super) fn new(dtype: DType, bytes: &'a [u8], shape: &[usize]) -> Result<Self, Fault> {
        let none = |cause: String| Fault::new("there is no image", cause);
        let plane = Plane::of(shape).ok_or_else(|| none(format!("its shape is {shape:?}")))?;
        if dtype == DType::Text {
            return Err(none("its pixels are text".into()));
        }
        Ok(Self { dtype, bytes, plane })
    }
}

/// Where rows and columns lie in the bytes of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plane {
    rows: usize,
    columns: usize,
    /// Elements of a pixel.
    colours: usize,
    /// Planes of the image, of which this is the first.
    planes: usize,
}

impl Plane {
    fn of(shape: &[usize]) -> Option<Self> {
        let of = |further: &[usize], rows, columns, colours| {
            let planes = further.iter().fold(1, |all: usize, one| all.saturating_mul(*one));
            Self { rows, columns, colours, planes }
        };
        let plane = match *shape {
            [] => return None,
            [columns] => of(&[], 1, columns, 1),
            [ref further @ .., rows, columns, colours @ (3 | 4)] if rows > 4 && columns > 4 => {
                of(further, rows, columns, colours)
            }
            [ref further @ .., rows, columns] => of(further, rows, columns, 1),
        };
        (plane.rows > 0 && plane.columns > 0).then_some(plane)
    }
}

/// Adds an image: the region of the panel, reduced to its pixels. Says which region that is.
pub(super) fn put(
    pixels: &Pixels<'_>,
    panel: &Panel,
    size: (usize, usize),
    object: &mut Map<String, Value>,
    answer: &mut Answer,
) -> Result<[usize; 4], Fault> {
    let &Pixels { dtype, bytes, plane } = pixels;
    let [x0, y0, x1, y1] = panel.region.map_or([0, 0, plane.columns, plane.rows], |region| region.map(|x| x as usize));
    let (x1, y1) = (x1.min(plane.columns), y1.min(plane.rows));
    if x0 >= x1 || y0 >= y1 {
        let cause = format!("the image has {} columns and {} rows", plane.columns, plane.rows);
        return Err(Fault::new("the region is outside of the image", cause));
    }
    let (columns, rows) = (size.0.min(x1 - x0), size.1.min(y1 - y0));
    let part = Part { bytes, plane, x: (x0, x1), y: (y0, y1), columns, rows };
    let is_masked = part.is_masked(dtype);
    // Marks are no values: whole numbers have none that says so.
    let is_whole =
        columns == x1 - x0 && rows == y1 - y0 && plane.colours == 1 && !(is_masked && dtype == DType::UInt32);
    answer.room(columns * rows, if is_whole { dtype.size() } else { 4 })?;
    let values = match is_masked {
        true => reduce_valid(dtype, &part, panel.reduce),
        false => reduce(dtype, &part, panel.reduce),
    };
    let (low, high) = extremes(&values);
    let array = if is_whole {
        let row = |y: usize| {
            let start = (y * plane.columns + x0) * dtype.size();
            bytes.get(start..start + columns * dtype.size()).unwrap_or_default()
        };
        answer.bytes(dtype.name(), &[rows, columns], (y0..y1).map(row))
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
    if plane.planes > 1 {
        object.insert("planes".into(), plane.planes.into());
    }
    Ok([x0, y0, x1, y1])
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

impl Part<'_> {
    /// The elements of a row of the image that are in the part.
    fn elements<const N: usize>(&self, y: usize) -> &[[u8; N]] {
        let start = (y * self.plane.columns + self.x.0) * N * self.plane.colours;
        let length = (self.x.1 - self.x.0) * N * self.plane.colours;
        self.bytes.get(start..start + length).unwrap_or_default().as_chunks::<N>().0
    }

    /// True if a pixel is masked.
    fn is_masked(&self, dtype: DType) -> bool {
        // Without a branch for each element the compiler makes vector instructions of it.
        let any = |y: usize| match dtype {
            DType::UInt32 => self.elements(y).iter().fold(false, |any, e| any | (u32::from_le_bytes(*e) == MASKED)),
            DType::Float32 => self.elements(y).iter().fold(false, |any, e| any | f32::from_le_bytes(*e).is_nan()),
            DType::Float64 => self.elements(y).iter().fold(false, |any, e| any | f64::from_le_bytes(*e).is_nan()),
            _ => false,
        };
        matches!(dtype, DType::UInt32 | DType::Float32 | DType::Float64) && (self.y.0..self.y.1).any(any)
    }
}

/// The same without masked pixels; NaN where all are masked.
fn reduce_valid(dtype: DType, part: &Part<'_>, how: Reduce) -> Vec<f32> {
    let unmasked = |value: u32| if value == MASKED { f64::NAN } else { f64::from(value) };
    match dtype {
        DType::UInt32 => valid(part, how, |bytes| unmasked(u32::from_le_bytes(bytes))),
        DType::Float32 => valid(part, how, |bytes| f64::from(f32::from_le_bytes(bytes))),
        _ => valid(part, how, f64::from_le_bytes),
    }
}

fn valid<const N: usize>(part: &Part<'_>, how: Reduce, value: impl Fn([u8; N]) -> f64) -> Vec<f32> {
    let (width, height, colours) = (part.x.1 - part.x.0, part.y.1 - part.y.0, part.plane.colours);
    let edges: Vec<usize> = (0..=part.columns).map(|i| i * width / part.columns).collect();
    let mut values = Vec::with_capacity(part.rows * part.columns);
    for row in 0..part.rows {
        // Of each cell: the sum, the largest value, and how many have one.
        let mut cells = vec![(0.0, f64::NEG_INFINITY, 0_usize); part.columns];
        for y in part.y.0 + row * height / part.rows..part.y.0 + (row + 1) * height / part.rows {
            let elements = part.elements::<N>(y);
            for (cell, edge) in cells.iter_mut().zip(edges.windows(2)) {
                let pixels = elements.get(edge[0] * colours..edge[1] * colours).unwrap_or_default();
                for pixel in pixels.chunks_exact(colours) {
                    let mean = pixel.iter().map(|element| value(*element)).sum::<f64>() / colours as f64;
                    if !mean.is_nan() {
                        *cell = (cell.0 + mean, cell.1.max(mean), cell.2 + 1);
                    }
                }
            }
        }
        values.extend(cells.into_iter().map(|(sum, most, count)| match how {
            _ if count == 0 => f32::NAN,
            Reduce::Mean => (sum / count as f64) as f32,
            Reduce::Sum => sum as f32,
            Reduce::Max => most as f32,
        }));
    }
    values
}

fn reduce(dtype: DType, part: &Part<'_>, how: Reduce) -> Vec<f32> {
    macro_rules! typed {
        ($($t:ty = $variant:ident as $sum:ty),*) => {
            match dtype {
                $( DType::$variant => {
                    reduced::<{ size_of::<$t>() }, $sum>(part, how, |bytes| <$t>::from_le_bytes(bytes) as $sum)
                } )*
                DType::Text => Vec::new(),
            }
        };
    }
    typed!(
        i8 = Int8 as f32,
        u8 = UInt8 as f32,
        i16 = Int16 as f32,
        u16 = UInt16 as f32,
        i32 = Int32 as f64,
        u32 = UInt32 as f64,
        i64 = Int64 as f64,
        u64 = UInt64 as f64,
        f32 = Float32 as f32,
        f64 = Float64 as f64
    )
}

/// A number in which pixels are added.
trait Sum: Copy + Into<f64> {
    const ZERO: Self;
    const LEAST: Self;
    fn plus(self, other: Self) -> Self;
    /// The larger; a NaN gives way.
    fn larger(self, other: Self) -> Self;
}

macro_rules! sums {
    ($($t:ty),*) => { $(
        impl Sum for $t {
            const ZERO: Self = 0.0;
            const LEAST: Self = Self::NEG_INFINITY;
            fn plus(self, other: Self) -> Self { self + other }
            fn larger(self, other: Self) -> Self { if other > self { other } else { self } }
        }
    )* };
}
sums!(f32, f64);

/// The pixels of the panel. The rows of one are first added to one line, number by number, which the compiler makes
/// vector instructions of; then the line is cut into pixels.
fn reduced<const N: usize, S: Sum>(part: &Part<'_>, how: Reduce, value: impl Fn([u8; N]) -> S) -> Vec<f32> {
    let (width, height, colours) = (part.x.1 - part.x.0, part.y.1 - part.y.0, part.plane.colours);
    // Elements of the line that are one column: the largest is sought among pixels, not among colours.
    let across = if how == Reduce::Max { 1 } else { colours };
    let edges: Vec<usize> = (0..=part.columns).map(|i| i * width / part.columns * across).collect();
    let mut values = Vec::with_capacity(part.rows * part.columns);
    let mut line = vec![S::ZERO; width * across];
    for row in 0..part.rows {
        let (first, end) = (part.y.0 + row * height / part.rows, part.y.0 + (row + 1) * height / part.rows);
        line.fill(if how == Reduce::Max { S::LEAST } else { S::ZERO });
        for y in first..end {
            let start = (y * part.plane.columns + part.x.0) * N * colours;
            let Some(bytes) = part.bytes.get(start..start + width * N * colours) else { continue };
            let (elements, _) = bytes.as_chunks::<N>();
            match (how, colours) {
                (Reduce::Mean | Reduce::Sum, _) => {
                    line.iter_mut().zip(elements).for_each(|(sum, element)| *sum = sum.plus(value(*element)));
                }
                (Reduce::Max, 1) => {
                    line.iter_mut().zip(elements).for_each(|(most, element)| *most = most.larger(value(*element)));
                }
                (Reduce::Max, _) => {
                    for (most, pixel) in line.iter_mut().zip(elements.chunks_exact(colours)) {
                        *most = most.larger(pixel.iter().fold(S::ZERO, |sum, element| sum.plus(value(*element))));
                    }
                }
            }
        }
        let rows = (end - first) as f64;
        values.extend(edges.windows(2).map(|edge| {
            let cell = &line[edge[0]..edge[1]];
            let share = match how {
                Reduce::Mean => 1.0 / (rows * cell.len() as f64),
                Reduce::Max | Reduce::Sum => 1.0 / colours as f64,
            };
            let whole = match how {
                Reduce::Max => cell.iter().fold(S::LEAST, |most, value| most.larger(*value)),
                Reduce::Mean | Reduce::Sum => cell.iter().fold(S::ZERO, |sum, value| sum.plus(*value)),
            };
            (whole.into() * share) as f32
        }));
    }
    values
}

/// The least and the largest value, without those that are not finite.
fn extremes(values: &[f32]) -> (Option<f32>, Option<f32>) {
    let (mut low, mut high) = (f32::INFINITY, f32::NEG_INFINITY);
    for value in values.iter().copied() {
        let is_finite = value.abs() < f32::INFINITY;
        low = if is_finite && value < low { value } else { low };
        high = if is_finite && value > high { value } else { high };
    }
    if low > high { (None, None) } else { (Some(low), Some(high)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part<'a>(bytes: &'a [u8], shape: (usize, usize, usize), size: (usize, usize)) -> Part<'a> {
        let plane = Plane { rows: shape.0, columns: shape.1, colours: shape.2, planes: 1 };
        Part { bytes, plane, x: (0, shape.1), y: (0, shape.0), columns: size.0, rows: size.1 }
    }

    #[test]
    fn pixels_are_reduced_to_their_mean_or_largest() {
        let pixels = [1, 2, 3, 4, 5, 6, 7, 100_u8];
        let part = part(&pixels, (2, 4, 1), (2, 1));
        assert_eq!(reduce(DType::UInt8, &part, Reduce::Mean), [3.5, 28.5]);
        assert_eq!(reduce(DType::UInt8, &part, Reduce::Max), [6.0, 100.0]);
        assert_eq!(reduce(DType::UInt8, &part, Reduce::Sum), [14.0, 114.0]);
    }

    #[test]
    fn parts_of_unequal_width_cover_every_pixel_once() {
        let pixels: Vec<u8> = (0..7 * 5).collect();
        let values = reduce(DType::UInt8, &part(&pixels, (5, 7, 1), (3, 2)), Reduce::Max);
        assert_eq!(values, [8.0, 10.0, 13.0, 29.0, 31.0, 34.0]);
    }

    #[test]
    fn colours_are_averaged() {
        let pixels = [3, 6, 9, 30, 60, 90_u8];
        let part = part(&pixels, (1, 2, 3), (2, 1));
        assert_eq!(reduce(DType::UInt8, &part, Reduce::Mean), [6.0, 60.0]);
        assert_eq!(reduce(DType::UInt8, &part, Reduce::Max), [6.0, 60.0]);
        assert_eq!(Plane::of(&[480, 640, 3]), Some(Plane { rows: 480, columns: 640, colours: 3, planes: 1 }));
        assert_eq!(Plane::of(&[9, 480, 640]), Some(Plane { rows: 480, columns: 640, colours: 1, planes: 9 }));
        assert_eq!(Plane::of(&[]), None);
        assert_eq!(Plane::of(&[0, 5]), None);
    }

    #[test]
    fn masked_pixels_have_no_part_in_others() {
        let pixels = [1, MASKED, 2, 3, MASKED, MASKED, 4, 5_u32];
        let bytes: Vec<u8> = pixels.into_iter().flat_map(u32::to_le_bytes).collect();
        let part = part(&bytes, (2, 4, 1), (2, 1));
        assert!(part.is_masked(DType::UInt32));
        assert_eq!(reduce_valid(DType::UInt32, &part, Reduce::Mean), [1.0, 3.5]);
        assert_eq!(reduce_valid(DType::UInt32, &part, Reduce::Max), [1.0, 5.0]);
        assert_eq!(reduce_valid(DType::UInt32, &part, Reduce::Sum), [1.0, 14.0]);
        let whole = Part { columns: 4, rows: 2, ..part };
        let values = reduce_valid(DType::UInt32, &whole, Reduce::Mean);
        assert_eq!((values[0], values[1].is_nan(), values[7]), (1.0, true, 5.0));
        assert_eq!(extremes(&values), (Some(1.0), Some(5.0)));
        let bytes: Vec<u8> = [f32::NAN, 1.0, 3.0, f32::NAN].into_iter().flat_map(f32::to_le_bytes).collect();
        let part = self::part(&bytes, (1, 4, 1), (2, 1));
        assert!(part.is_masked(DType::Float32));
        assert_eq!(reduce_valid(DType::Float32, &part, Reduce::Mean), [1.0, 3.0]);
        assert!(!self::part(&bytes, (1, 8, 1), (2, 1)).is_masked(DType::UInt16));
    }

    #[test]
    fn values_that_are_not_finite_are_no_extremes() {
        let pixels: Vec<u8> = [f32::NAN, 1.0, f32::INFINITY, 2.0].into_iter().flat_map(f32::to_le_bytes).collect();
        let values = reduce(DType::Float32, &part(&pixels, (1, 4, 1), (4, 1)), Reduce::Mean);
        assert_eq!(extremes(&values), (Some(1.0), Some(2.0)));
        assert_eq!(extremes(&[f32::NAN]), (None, None));
    }
}
