//! Whole flows from seeds in CI; `cargo xtask simulate` runs more.

use beamport_testkit::{Flow, Tally};

const SEEDS: u64 = 500;

#[test]
fn five_hundred_histories_keep_every_promise() {
    let mut sum = Tally::default();
    for seed in 0..SEEDS {
        sum.add(Flow::new(seed, false).run().unwrap_or_else(|e| panic!("{e}")));
    }
    // Histories in which nothing happens prove nothing.
    assert!(sum.runs >= SEEDS && sum.rows > 20 * SEEDS && sum.deaths > 5 * SEEDS && sum.made > 20 * SEEDS, "{sum:?}");
}
