//! Random numbers that a seed repeats: generator and the distributions that counting needs.
//!
//! Everything is a pure function of the seed, so a pulse can be made again after a restart. Not for secrets.

use std::f64::consts::TAU;
use store::{mix, splitmix64};

/// xoshiro256++ 1.0 (Blackman and Vigna, ACM Trans. Math. Softw. 47 (2021) 36), period 2^256 - 1, seeded by splitmix64 as its authors advise.
#[derive(Clone, Debug)]
pub struct Generator {
    state: [u64; 4],
}

impl Generator {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        let mut words = seed;
        Self { state: std::array::from_fn(|_| splitmix64(&mut words)) }
    }

    /// An independent generator for each (seed, stream, position): what one pulse of one origin draws does not depend on any other.
    pub fn at(seed: u64, stream: u64, position: i64) -> Self {
        Self::new(mix(mix(mix(seed) ^ stream) ^ position as u64))
    }

    /// The next 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in [0, 1), 53 bits.
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// Uniform whole number in [0, n), and 0 for n = 0. The bias is below n / 2^64.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// Exponential with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.uniform()).ln()
    }

    /// Normal with mean 0 and standard deviation 1 (Box and Muller 1958; the second value is not kept, so that nothing depends on call parity).
    pub fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (TAU * self.uniform()).cos()
    }

    /// Poisson with the given mean: multiplication of uniforms (Knuth) below 10, transformed rejection PTRS (Hörmann, Insurance Math. Econ. 12 (1993) 39) above. A mean that is not positive gives 0.
    pub fn poisson(&mut self, mean: f64) -> u64 {
        if mean.is_nan() || mean <= 0.0 {
            return 0;
        }
        if mean < 10.0 { self.poisson_small(mean) } else { self.poisson_large(mean) }
    }

    fn poisson_small(&mut self, mean: f64) -> u64 {
        let limit = (-mean).exp();
        let mut product = self.uniform();
        let mut count = 0;
        while product > limit {
            product *= self.uniform();
            count += 1;
        }
        count
    }

    fn poisson_large(&mut self, mean: f64) -> u64 {
        let log_mean = mean.ln();
        let b = 0.931 + 2.53 * mean.sqrt();
        let a = -0.059 + 0.02483 * b;
        let log_inverse_alpha = (1.1239 + 1.1328 / (b - 3.4)).ln();
        let v_r = 0.9277 - 3.6224 / (b - 2.0);
        loop {
            let u = self.uniform() - 0.5;
            let v = self.uniform();
            let us = 0.5 - u.abs();
            let k = ((2.0 * a / us + b) * u + mean + 0.43).floor();
            if us >= 0.07 && v <= v_r {
                return k as u64;
            }
            if k < 0.0 || (us < 0.013 && v > us) {
                continue;
            }
            if v.ln() + log_inverse_alpha - (a / (us * us) + b).ln() <= k * log_mean - mean - ln_factorial(k) {
                return k as u64;
            }
        }
    }
}

/// ln(k!): the product below 10, Stirling's series above (error below 1e-12 there).
fn ln_factorial(k: f64) -> f64 {
    if k < 10.0 {
        return (2..=k as u64).map(|i| i as f64).product::<f64>().ln();
    }
    let x = k + 1.0;
    let x2 = x * x;
    (x - 0.5) * x.ln() - x
        + 0.5 * TAU.ln()
        + (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - 1.0 / (1680.0 * x2)) / x2) / x2) / x
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::{agrees, chi_squared};

    #[test]
    fn generator_gives_the_published_sequence() {
        // First outputs of xoshiro256++ for the state 1, 2, 3, 4, as the test vectors of the rand_xoshiro crate have them.
        let mut generator = Generator { state: [1, 2, 3, 4] };
        let expected =
            [41943041, 58720359, 3588806011781223, 3591011842654386, 9228616714210784205, 9973669472204895162];
        for value in expected {
            assert_eq!(generator.bits(), value);
        }
    }

    #[test]
    fn below_is_flat() {
        let mut generator = Generator::new(1);
        let mut counts = [0_u64; 97];
        for _ in 0..200_000 {
            counts[generator.below(97) as usize] += 1;
        }
        assert!(agrees(chi_squared(&counts, &[1.0; 97])));
    }

    #[test]
    fn neighbouring_positions_are_independent() {
        let mut counts = [0_u64; 64];
        for position in 0..100_000 {
            counts[Generator::at(5, 0, position).below(64) as usize] += 1;
        }
        assert!(agrees(chi_squared(&counts, &[1.0; 64])));
        assert_ne!(Generator::at(5, 0, 1).bits(), Generator::at(5, 1, 1).bits());
        assert_ne!(Generator::at(5, 0, 1).bits(), Generator::at(6, 0, 1).bits());
    }

    #[test]
    fn poisson_has_its_distribution_below_and_above_ten() {
        for (mean, seed) in [(0.3, 2), (4.5, 3), (9.99, 4), (10.0, 5), (37.0, 6), (900.0, 7)] {
            let mut generator = Generator::new(seed);
            let first = (mean - 6.0 * f64::sqrt(mean)).max(0.0) as usize;
            let bins = (12.0 * f64::sqrt(mean)) as usize + 8;
            let expected: Vec<f64> =
                (first..first + bins).map(|k| (k as f64 * mean.ln() - mean - ln_factorial(k as f64)).exp()).collect();
            let mut counts = vec![0_u64; bins];
            for _ in 0..200_000 {
                let k = generator.poisson(mean) as usize;
                counts[(k.max(first) - first).min(bins - 1)] += 1;
            }
            assert!(agrees(chi_squared(&counts, &expected)), "mean {mean}: {:?}", chi_squared(&counts, &expected));
        }
        assert_eq!(Generator::new(0).poisson(0.0), 0);
        assert_eq!(Generator::new(0).poisson(f64::NAN), 0);
    }

    #[test]
    fn poisson_of_a_large_mean_has_mean_and_variance() {
        let (mean, n) = (71_428.57, 50_000);
        let mut generator = Generator::new(8);
        let values: Vec<f64> = (0..n).map(|_| generator.poisson(mean) as f64).collect();
        let average = values.iter().sum::<f64>() / f64::from(n);
        let variance = values.iter().map(|v| (v - average).powi(2)).sum::<f64>() / f64::from(n);
        assert!((average - mean).abs() < 4.0 * (mean / f64::from(n)).sqrt());
        assert!((variance / mean - 1.0).abs() < 4.0 * (2.0 / f64::from(n)).sqrt());
    }

    #[test]
    fn normal_and_exponential_have_their_distributions() {
        let mut generator = Generator::new(9);
        // Edges at multiples of half a standard deviation; the expected probabilities by the trapezium rule on a fine grid.
        let density = |x: f64| (-0.5 * x * x).exp();
        let expected: Vec<f64> = (-6..6)
            .map(|i| (0..1000).map(|j| density((f64::from(i) + (f64::from(j) + 0.5) / 1000.0) / 2.0)).sum::<f64>())
            .collect();
        let mut counts = vec![0_u64; 12];
        for _ in 0..300_000 {
            let bin = (generator.normal() * 2.0).floor() + 6.0;
            if (0.0..12.0).contains(&bin) {
                counts[bin as usize] += 1;
            }
        }
        assert!(agrees(chi_squared(&counts, &expected)));
        let expected: Vec<f64> = (0..20).map(|i| (-0.25 * f64::from(i)).exp()).collect();
        let mut counts = vec![0_u64; 20];
        for _ in 0..300_000 {
            let bin = (generator.exponential() * 4.0) as usize;
            if bin < 20 {
                counts[bin] += 1;
            }
        }
        assert!(agrees(chi_squared(&counts, &expected)));
    }
}
