//! Both sides of a mirror on pretend machines, with a pretend topic between them.

mod history;
mod sides;
mod topic;

use beamport_testkit::histories;
use history::History;

fn lives(test: &str, seeds: u64) {
    let sum = histories(test, seeds, |seed| History::new(seed).live());
    println!(
        "histories of mirrors: injected {} kills of near sides and {} of far sides, {} and {} power cuts, {} records \
         of topics deleted or changed, {} late ones into {}: {} messages, {} mirrored at the end, 0 wrong, 0 twice, {} \
         named as missing, 0 of them twice, {} that nothing in the topic speaks of any more",
        sum["kills of near sides"],
        sum["kills of far sides"],
        sum["cuts of near hosts"],
        sum["cuts of far hosts"],
        sum["harmed"],
        sum["late"],
        sum["histories"],
        sum["messages"],
        sum["mirrored"],
        sum["named"],
        sum["tails"],
    );
    // Histories in which nothing happens prove nothing.
    let n = sum["histories"];
    let kills = sum["kills of near sides"].min(sum["kills of far sides"]);
    let cuts = sum["cuts of near hosts"].min(sum["cuts of far hosts"]);
    let happens = kills > n && cuts > n / 4 && sum["harmed"] > n && sum["late"] > n && sum["named"] > n;
    assert!(n < 100 || happens && sum["mirrored"] > 10 * n, "{sum:?}");
}

#[test]
fn whatever_dies_a_mirror_has_each_message_once_and_names_each_that_it_lacks_once() {
    lives("mirror::whatever_dies_a_mirror_has_each_message_once_and_names_each_that_it_lacks_once", 300);
}

#[test]
#[ignore = "full counts: cargo xtask soak"]
fn soak_mirrors() {
    lives("mirror::soak_mirrors", 100_000);
}
