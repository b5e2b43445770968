//! Events drawn from a measured histogram, and the bytes in which such a histogram is handed over.
//!
//! HDF5 files are read by the program that links libhdf5; it hands the histogram over as follows, little endian, so that this crate needs
//! no foreign library:
//!
//! ```text
//!  0  [u8;4]  "bphg"
//!  4  u32     version, 1
//!  8  u32     length of the slow pixel axis (AMOR: 128 columns x)
//! 12  u32     length of the fast pixel axis (AMOR: 256 rows y)
//! 16  u32     number of time bins n
//! 20  u32     zero
//! 24  f64     n + 1 edges of the time bins, ns after the pulse, rising
//!  .  u32     counts, [slow][fast][time]; they end with the buffer
//! ```
//!
//! Pixel numbers are 1 + slow * (length of fast) + fast. A bin without counts never produces an event. Whatever the bytes, reading
//! returns an error or a histogram whose parts fit together; its memory is bounded by the buffer's.

use crate::alias::Alias;
use crate::events::Drawing;
use crate::limits;
use crate::random::Generator;
use crate::train::Pulse;
use flow::Fault;

const MAGIC: &[u8; 4] = b"bphg";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 24;

/// Counts over pixels and time of flight.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// Lengths of the axes: slow pixel axis, fast pixel axis, time.
    pub shape: [u32; 3],
    /// Edges of the time bins in ns after the pulse, one more than there are bins.
    pub edges_ns: Vec<f64>,
    /// Counts in C order of `shape`.
    pub counts: Vec<u32>,
}

fn refused(cause: impl std::fmt::Display) -> Fault {
    Fault::new("the histogram cannot be used", cause)
}

impl Histogram {
    /// Reads a histogram from its bytes.
    pub fn read(bytes: &[u8]) -> Result<Self, Fault> {
        let word = |at: usize| bytes.get(at..).and_then(|b| b.first_chunk()).map(|b| u32::from_le_bytes(*b));
        if bytes.get(..4) != Some(MAGIC) {
            return Err(refused("it does not begin with \"bphg\""));
        }
        match word(4) {
            Some(VERSION) => (),
            Some(other) => {
                return Err(refused(format!("its version is {other}, and this program reads {VERSION}")));
            }
            None => return Err(refused("it ends inside its header")),
        }
        let (Some(slow), Some(fast), Some(bins), Some(0)) = (word(8), word(12), word(16), word(20)) else {
            return Err(refused("its header is short or its spare word is not zero"));
        };
        let shape = [slow, fast, bins];
        let cells = cells(shape).ok_or_else(|| refused(format!("its shape {shape:?} is empty or too large")))?;
        let counts_at = HEADER_BYTES + (bins as usize + 1) * 8;
        if bytes.len() != counts_at + cells * 4 {
            return Err(refused(format!("{} bytes are not what the shape {shape:?} needs", bytes.len())));
        }
        let (edges, counts) = bytes[HEADER_BYTES..].split_at(counts_at - HEADER_BYTES);
        let histogram = Self {
            shape,
            edges_ns: edges.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect(),
            counts: counts.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect(),
        };
        histogram.check()?;
        Ok(histogram)
    }

    /// The bytes that `read` reads.
    pub fn write(&self) -> Result<Vec<u8>, Fault> {
        self.check()?;
        let mut out = Vec::with_capacity(HEADER_BYTES + self.edges_ns.len() * 8 + self.counts.len() * 4);
        out.extend_from_slice(MAGIC);
        for word in [VERSION, self.shape[0], self.shape[1], self.shape[2], 0] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend(self.edges_ns.iter().flat_map(|e| e.to_le_bytes()));
        out.extend(self.counts.iter().flat_map(|c| c.to_le_bytes()));
        Ok(out)
    }

    /// Whether the parts fit together and something was counted.
    pub fn check(&self) -> Result<(), Fault> {
        let cells =
            cells(self.shape).ok_or_else(|| refused(format!("its shape {:?} is empty or too large", self.shape)))?;
        if self.counts.len() != cells || self.edges_ns.len() != self.shape[2] as usize + 1 {
            return Err(refused("counts or edges do not fit its shape"));
        }
        // A time of flight is an i32 of ns; 0 <= low < high < 2^31 also refuses what is not a number.
        let rising = |e: &[f64]| 0.0 <= e[0] && e[0] < e[1] && e[1] <= f64::from(i32::MAX);
        if !self.edges_ns.windows(2).all(rising) {
            return Err(refused("its time edges do not rise, or are not between 0 and 2^31 ns"));
        }
        if self.counts.iter().all(|c| *c == 0) {
            return Err(refused("nothing was counted in it"));
        }
        Ok(())
    }
}

/// Number of cells of a shape; None where it is empty or beyond the limit. Pixels must fit an i32 as well, which the limit says.
fn cells(shape: [u32; 3]) -> Option<usize> {
    let cells = shape.iter().try_fold(1_usize, |n, length| n.checked_mul(*length as usize))?;
    (1..=limits::HISTOGRAM_CELLS_MAX).contains(&cells).then_some(cells)
}

/// Where the events of a measured histogram fall.
pub(crate) struct Measured {
    /// Over the cells that are not empty.
    alias: Alias,
    /// Place of each of them: pixel number and time bin.
    cells: Vec<(i32, u32)>,
    /// First whole ns of each bin, and how many it has.
    times: Vec<(i32, u32)>,
}

impl Measured {
    pub(crate) fn new(histogram: &Histogram) -> Result<Self, Fault> {
        histogram.check()?;
        // Whole ns inside [low, high), so that an event never falls into a neighbour that may be empty.
        let times: Vec<(i32, u32)> =
            histogram.edges_ns.windows(2).map(|e| (e[0].ceil() as i32, (e[1].ceil() - e[0].ceil()) as u32)).collect();
        let bins = histogram.shape[2] as usize;
        let (mut cells, mut weights) = (Vec::new(), Vec::new());
        for (pixel, spectrum) in histogram.counts.chunks_exact(bins).enumerate() {
            for (bin, &count) in spectrum.iter().enumerate().filter(|(_, c)| **c > 0) {
                if times[bin].1 == 0 {
                    return Err(refused(format!("time bin {bin} has counts and no whole ns")));
                }
                cells.push((1 + pixel as i32, bin as u32));
                weights.push(f64::from(count));
            }
        }
        let alias = Alias::new(&weights).ok_or_else(|| refused("nothing was counted in it"))?;
        Ok(Self { alias, cells, times })
    }
}

impl Drawing for Measured {
    fn aim(&mut self, _: Pulse) {}

    fn draw(&self, generator: &mut Generator, count: usize, times: &mut Vec<i32>, pixels: &mut Vec<i32>) {
        for _ in 0..count {
            let (pixel, bin) = self.cells[self.alias.draw(generator)];
            let (first, length) = self.times[bin as usize];
            times.push(first + generator.below(u64::from(length)) as i32);
            pixels.push(pixel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::{agrees, chi_squared};

    pub(crate) fn small() -> Histogram {
        let edges_ns: Vec<f64> = (0..=5).map(|i| 1000.5 + 333.3 * f64::from(i)).collect();
        let counts = (0..3 * 4 * 5).map(|i| if i % 4 == 1 { 0 } else { i * i % 37 }).collect();
        Histogram { shape: [3, 4, 5], edges_ns, counts }
    }

    #[test]
    fn bytes_come_back() {
        let bytes = small().write().unwrap();
        assert_eq!(Histogram::read(&bytes).unwrap(), small());
    }

    #[test]
    fn hostile_bytes_are_errors() {
        let bytes = small().write().unwrap();
        for length in 0..bytes.len() {
            assert!(Histogram::read(&bytes[..length]).is_err(), "cut at {length}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(Histogram::read(&longer).is_err());
        // Every byte of the header set to every edge value: no panic, and an error unless it is what it was.
        for at in 0..HEADER_BYTES {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                assert_eq!(Histogram::read(&changed).is_ok(), changed == bytes, "byte {at} = {value}");
            }
        }
        for edge in [f64::NAN, f64::INFINITY, -1.0, 5000.0, 3e9] {
            let mut changed = bytes.clone();
            changed[HEADER_BYTES + 8..HEADER_BYTES + 16].copy_from_slice(&edge.to_le_bytes());
            assert!(Histogram::read(&changed).is_err(), "edge {edge}");
        }
        let mut empty = small();
        empty.counts.fill(0);
        assert!(empty.write().is_err());
        let mut narrow = small();
        narrow.edges_ns = vec![0.1, 0.2, 0.3, 0.4, 0.5, 0.6];
        assert!(Measured::new(&narrow).is_err());
    }

    #[test]
    fn draws_follow_the_histogram_and_empty_bins_stay_empty() {
        let histogram = small();
        let (mut times, mut pixels) = (Vec::new(), Vec::new());
        Measured::new(&histogram).unwrap().draw(&mut Generator::new(21), 500_000, &mut times, &mut pixels);
        let mut counts = vec![0_u64; histogram.counts.len()];
        for (time, pixel) in times.iter().zip(&pixels) {
            let bin = histogram.edges_ns.iter().filter(|e| **e <= f64::from(*time)).count() - 1;
            counts[(*pixel as usize - 1) * 5 + bin] += 1;
        }
        let weights: Vec<f64> = histogram.counts.iter().map(|c| f64::from(*c)).collect();
        assert!(counts.iter().zip(&weights).all(|(c, w)| *w > 0.0 || *c == 0));
        assert!(agrees(chi_squared(&counts, &weights)), "{:?}", chi_squared(&counts, &weights));
    }
}
