//! Random numbers from a seed: the same seed gives the same world on every machine.

/// splitmix64 (Steele, Lea, Flood 2014): small, and every seed is a good one.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed ^ 0x5851_f42d_4c95_7f2d)
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        store::splitmix64(&mut self.0)
    }

    /// A number in `0..below` (0 if `below` is 0).
    pub fn below(&mut self, below: u64) -> u64 {
        if below == 0 { 0 } else { self.word() % below }
    }

    /// A number in `low..=high`.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}
