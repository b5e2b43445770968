//! Drawing from a table of weights in constant time: the alias method.
//!
//! Walker 1977 with the numerically careful construction of Vose (IEEE Trans. Softw. Eng. 17 (1991) 972). One random number and one
//! look-up of 8 bytes for each draw, whatever the length of the table.

use crate::random::Generator;

/// One column: itself below the threshold, the other at and above it.
#[derive(Clone, Copy, Debug)]
struct Column {
    threshold: u32,
    other: u32,
}

/// A table from which indices are drawn with probability proportional to their weight.
#[derive(Clone, Debug)]
pub struct Alias {
    columns: Vec<Column>,
}

impl Alias {
    /// The table of some weights of any norm. None where there is no positive weight, one is negative or not finite, or there are 2^32 or more.
    pub fn new(weights: &[f64]) -> Option<Self> {
        let count = u32::try_from(weights.len()).ok()?;
        let sum: f64 = weights.iter().sum();
        if !(sum > 0.0 && sum.is_finite()) || weights.iter().any(|w| *w < 0.0) {
            return None;
        }
        let scale = f64::from(count) / sum;
        let mut parts: Vec<f64> = weights.iter().map(|w| w * scale).collect();
        let mut columns: Vec<Column> = (0..count).map(|i| Column { threshold: u32::MAX, other: i }).collect();
        let (mut small, mut large): (Vec<u32>, Vec<u32>) = (0..count).partition(|&i| parts[i as usize] < 1.0);
        while let (Some(&low), Some(&high)) = (small.last(), large.last()) {
            small.pop();
            columns[low as usize] = Column { threshold: (parts[low as usize] * 4_294_967_296.0) as u32, other: high };
            let left = (parts[high as usize] + parts[low as usize]) - 1.0;
            parts[high as usize] = left;
            if left < 1.0 {
                large.pop();
                small.push(high);
            }
        }
        // The remainder of rounding fills its own column, except that a weight of nothing must never be drawn.
        let heaviest = (0..count).max_by(|&a, &b| weights[a as usize].total_cmp(&weights[b as usize]))?;
        for i in small {
            if weights[i as usize] == 0.0 {
                columns[i as usize] = Column { threshold: 0, other: heaviest };
            }
        }
        Some(Self { columns })
    }

    /// Draws one index.
    #[inline]
    pub fn draw(&self, generator: &mut Generator) -> usize {
        // The high half of the product is the column, the top of the low half a fraction that is independent of it.
        let product = u128::from(generator.bits()) * self.columns.len() as u128;
        let index = (product >> 64) as usize;
        let column = self.columns[index];
        if ((product >> 32) as u32) < column.threshold { index } else { column.other as usize }
    }

    /// Number of weights.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Never: an empty table cannot be made.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::{agrees, chi_squared};

    #[test]
    fn draws_follow_the_weights_and_zero_is_never_drawn() {
        let mut generator = Generator::new(11);
        let weights: Vec<f64> =
            (0..1000).map(|i| if i % 3 == 0 { 0.0 } else { generator.exponential() * f64::from(i) }).collect();
        let alias = Alias::new(&weights).unwrap();
        let mut counts = vec![0_u64; weights.len()];
        for _ in 0..2_000_000 {
            counts[alias.draw(&mut generator)] += 1;
        }
        assert!(counts.iter().step_by(3).all(|&c| c == 0));
        assert!(agrees(chi_squared(&counts, &weights)), "{:?}", chi_squared(&counts, &weights));
    }

    #[test]
    fn zero_weights_are_never_drawn_whatever_rounding_leaves() {
        // One heavy weight among zeros and tenths, whose sums do not come out even.
        for heavy in [0.1, 0.3, 1e9] {
            let mut weights = vec![0.1; 7];
            weights.extend([0.0; 90]);
            weights.push(heavy);
            let alias = Alias::new(&weights).unwrap();
            let mut generator = Generator::new(12);
            assert!((0..200_000).all(|_| weights[alias.draw(&mut generator)] > 0.0));
        }
    }

    #[test]
    fn nonsense_weights_are_refused() {
        assert!(Alias::new(&[]).is_none());
        assert!(Alias::new(&[0.0, 0.0]).is_none());
        assert!(Alias::new(&[1.0, -0.5]).is_none());
        assert!(Alias::new(&[1.0, f64::NAN]).is_none());
        assert!(Alias::new(&[1.0, f64::INFINITY]).is_none());
        assert_eq!(Alias::new(&[2.0]).unwrap().draw(&mut Generator::new(1)), 0);
    }
}
