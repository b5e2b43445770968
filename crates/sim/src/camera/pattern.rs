//! What a frame shows: the pixels of a few pictures, made once.
//!
//! The picture lies in the last two dimensions; what stands before them (colours, layers) repeats it, each with lots of
//! its own. Counts that do not fit the type of the pixels stop at its end.

use crate::keys::Pattern;
use crate::plan::Config;
use crate::random::Generator;
use std::f64::consts::TAU;
use wire::DType;

/// Random streams: of the counts, and of where the spots are.
const COUNTS_STREAM: u64 = 4;
const SPOTS_STREAM: u64 = 5;

/// Spots of a picture.
const SPOTS: usize = 64;

/// Background over the brightest counts.
const BACKGROUND: f64 = 0.01;

/// Of the brightest counts: amplitude of a betatron oscillation, and the resolution of a position monitor.
const OSCILLATION: f64 = 0.1;
const RESOLUTION: f64 = 0.01;
/// Oscillations a turn, and turns of the orbit and of the oscillation from one monitor to the next.
const TUNE: f64 = 0.2204;
const ORBIT_ADVANCE: f64 = 0.37;
const PHASE_ADVANCE: f64 = 0.61;

/// The pixels of all frames of a configuration, one behind the other. Form and number have been checked.
pub(super) fn make(config: &Config, shape: &[u64], dtype: DType, frames: u64) -> Vec<u8> {
    let (columns, rest) = shape.split_last().map_or((1, shape), |(last, rest)| (*last as usize, rest));
    let (rows, planes) = rest.split_last().map_or((1, rest), |(last, rest)| (*last as usize, rest));
    let planes = planes.iter().product::<u64>() as usize;
    let picture = Picture { rows, columns, counts: config.counts, spots: Spot::all(config.seed) };
    let mut bytes = Vec::with_capacity(rows * columns * planes * frames as usize * dtype.size());
    for frame in 0..frames {
        let part = frame as f64 / frames as f64;
        let expected = picture.expected(config.pattern, part);
        let mut generator = Generator::at(config.seed, COUNTS_STREAM, frame as i64);
        for _ in 0..planes {
            if config.pattern == Pattern::Turns {
                let noise = config.counts * RESOLUTION;
                append(&mut bytes, dtype, expected.iter().map(|mean| mean + noise * generator.normal()));
            } else if config.pattern.draws_lots() {
                append(&mut bytes, dtype, expected.iter().map(|mean| generator.poisson(*mean) as f64));
            } else {
                append(&mut bytes, dtype, expected.iter().copied());
            }
        }
    }
    bytes
}

/// Numbers as bytes of a type.
fn append(bytes: &mut Vec<u8>, dtype: DType, values: impl Iterator<Item = f64>) {
    macro_rules! each {
        ($t:ty) => {
            // `as` stops at the ends of the type.
            bytes.extend(values.flat_map(|value| (value as $t).to_le_bytes()))
        };
    }
    match dtype {
        DType::Int8 => each!(i8),
        DType::UInt8 | DType::Text => each!(u8),
        DType::Int16 => each!(i16),
        DType::UInt16 => each!(u16),
        DType::Int32 => each!(i32),
        DType::UInt32 => each!(u32),
        DType::Int64 => each!(i64),
        DType::UInt64 => each!(u64),
        DType::Float32 => each!(f32),
        DType::Float64 => each!(f64),
    }
}

/// One diffraction spot: where, how bright, and when, each of 0 to 1.
struct Spot {
    row: f64,
    column: f64,
    bright: f64,
    phase: f64,
}

impl Spot {
    fn all(seed: u64) -> Vec<Self> {
        let mut generator = Generator::at(seed, SPOTS_STREAM, 0);
        let mut lot = || generator.uniform();
        (0..SPOTS).map(|_| Self { row: lot(), column: lot(), bright: 0.1 + 0.9 * lot(), phase: lot() }).collect()
    }
}

struct Picture {
    rows: usize,
    columns: usize,
    counts: f64,
    spots: Vec<Spot>,
}

impl Picture {
    /// Mean counts of each pixel; `part` of the way round, 0 to 1.
    fn expected(&self, pattern: Pattern, part: f64) -> Vec<f64> {
        let (rows, columns, counts) = (self.rows, self.columns, self.counts);
        match pattern {
            Pattern::Noise | Pattern::Constant => vec![counts; rows * columns],
            Pattern::Gradient => {
                let moved = (part * columns as f64) as usize;
                let ramp = (0..columns).map(|at| counts * ((at + moved) % columns) as f64 / columns as f64);
                ramp.collect::<Vec<_>>().repeat(rows)
            }
            Pattern::Turns => {
                let row = |row: usize| {
                    let orbit = counts * (TAU * (ORBIT_ADVANCE * row as f64 + part)).sin();
                    let phase = PHASE_ADVANCE * row as f64;
                    (0..columns)
                        .map(move |turn| orbit + counts * OSCILLATION * (TAU * (TUNE * turn as f64 + phase)).sin())
                };
                (0..rows).flat_map(row).collect()
            }
            Pattern::Beam => {
                let profile = |length: usize, turn: f64| -> Vec<f64> {
                    let (middle, width) = ((length as f64 - 1.0) / 2.0, (length as f64 / 8.0).max(0.5));
                    let centre = middle + turn * length as f64 / 8.0;
                    (0..length).map(|at| (-0.5 * ((at as f64 - centre) / width).powi(2)).exp()).collect()
                };
                let (down, across) = (profile(rows, (TAU * part).sin()), profile(columns, (TAU * part).cos()));
                down.iter().flat_map(|r| across.iter().map(move |c| counts * (r * c + BACKGROUND))).collect()
            }
            Pattern::Spots => {
                let mut expected = vec![counts * BACKGROUND; rows * columns];
                let width = (rows.min(columns) as f64 / 256.0).max(1.0);
                for spot in &self.spots {
                    let bright = counts * spot.bright * (1.0 + (TAU * (part + spot.phase)).cos()) / 2.0;
                    let (row, column) = (spot.row * rows as f64, spot.column * columns as f64);
                    let near = |centre: f64, length: usize| {
                        let reach = 4.0 * width;
                        (centre - reach).max(0.0) as usize..((centre + reach) as usize + 1).min(length)
                    };
                    for r in near(row, rows) {
                        for c in near(column, columns) {
                            let distance = ((r as f64 - row).powi(2) + (c as f64 - column).powi(2)) / width.powi(2);
                            expected[r * columns + c] += bright * (-0.5 * distance).exp();
                        }
                    }
                }
                expected
            }
        }
    }
}
