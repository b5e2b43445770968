//! Random numbers that a seed repeats.

/// splitmix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    /// Of a seed, for one of many uses of it.
    pub(super) fn new(seed: u64, number: u64) -> Self {
        let mut dice = Self(seed);
        dice.0 = dice.word() ^ number;
        dice
    }

    /// The next 64 bits.
    pub(super) fn word(&mut self) -> u64 {
        store::splitmix64(&mut self.0)
    }

    /// A number in `0..below`.
    pub(super) fn below(&mut self, below: u64) -> u64 {
        ((u128::from(self.word()) * u128::from(below)) >> 64) as u64
    }

    /// True with this probability.
    pub(super) fn chance(&mut self, share: f64) -> bool {
        ((self.word() >> 11) as f64) < share * (1_u64 << 53) as f64
    }
}
