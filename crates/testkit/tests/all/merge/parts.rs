//! Parts of a merge on several hosts: histories as those of merges by time, of which a part has the slices of its own.

use super::{Checked, MS, Outcome, Place, SECOND, WAIT, banks, history_of, lives};
use beamport_testkit::Dice;
use flow::{RunKeeper, TimeSlices};
use std::time::Duration;
use store::Level;

/// A history of a part, with slices from the seed.
fn history_of_part(seed: u64) -> Checked<Outcome> {
    let mut dice = Dice::new(seed ^ 0x3c6e_f372_fe94_f82b);
    let parts = dice.range(2, 4) as u32;
    let part = dice.below(u64::from(parts)) as u32;
    history_of(seed, Some(TimeSlices { length: 20 * MS, parts, part, overlap: dice.below(8) as i64 * MS }))
}

#[test]
fn a_part_of_a_merge_shows_each_message_of_its_slices_once_whatever_dies_when() {
    let test = "merge::parts::a_part_of_a_merge_shows_each_message_of_its_slices_once_whatever_dies_when";
    lives(test, 200, history_of_part);
}

#[test]
#[ignore = "full counts: cargo xtask soak"]
fn soak_parts_of_merges() {
    lives("merge::parts::soak_parts_of_merges", 20_000, history_of_part);
}

#[test]
fn slices_change_while_no_run_is_open_and_the_account_closes() {
    let slices = |part, overlap| Some(TimeSlices { length: 20 * MS, parts: 3, part, overlap });
    let mut place = Place { slices: slices(0, 0), ..Place::new(1, Level::Disk, banks(Level::Disk, 2)) };
    place.open().unwrap();
    let begin = place.machine.now();
    for at in 0..200 {
        place.say(at as usize % 2, begin + at * 3 * MS);
        place.live(3 * MS);
    }
    let shown = place.shown.len();
    place.kill();
    // Messages of both wait.
    place.slices = slices(1, 4 * MS);
    place.open().unwrap();
    for at in 200..400 {
        place.say(at as usize % 2, begin + at * 3 * MS);
        place.machine.advance(3 * MS);
        place.drain().unwrap();
        place.step(None).unwrap();
    }
    place.end().unwrap();
    for account in place.accounts() {
        let counted: u64 = account.counts.values().sum();
        assert_eq!(account.done + counted, account.next - account.first, "{account:?}");
        assert!(account.counts.keys().all(|name| name.starts_with("skipped.") || name == "waits"), "{account:?}");
    }
    assert!(place.shown.len() > shown + 60, "{shown} {}", place.shown.len());
    let data = place.data(&place.process);
    let mut keeper = RunKeeper::open(&data).unwrap();
    keeper.begin("r", begin, None, Duration::ZERO, "{}", begin + SECOND).unwrap();
    drop(keeper);
    place.kill();
    place.slices = slices(2, 0);
    let fault = place.open().unwrap_err();
    assert!(fault.what.contains("cannot change its hosts") && fault.cause.contains("run `r`"), "{fault}");
    place.slices = slices(1, 4 * MS);
    place.open().unwrap();
}

#[test]
fn skipped_messages_are_kept_until_a_commit_counts_them() {
    // An hour is one slice, which the other part has.
    let slices = Some(TimeSlices { length: 3600 * SECOND, parts: 2, part: 0, overlap: 0 });
    let mut place = Place { slices, ..Place::new(1, Level::Memory, banks(Level::Memory, 1)) };
    place.open().unwrap();
    let now = place.machine.now();
    let other = now.div_euclid(3600 * SECOND).rem_euclid(2) == 0;
    let time = if other { now - 3600 * SECOND } else { now };
    // Five times as much as the stream has room for; a hundred milliseconds would bring a commit.
    for number in 0..100 {
        place.banks[0].said.push((time, 50_000));
        place.bring(0, 1).unwrap();
        if number % 2 == 0 {
            place.step(None).unwrap();
        }
        if number % 5 == 4 {
            place.machine.advance(MS);
        }
        place.compare().unwrap();
    }
    place.kill();
    place.end().unwrap();
    let account = place.accounts().remove(0);
    assert_eq!((account.next, account.count("skipped.slice")), (100, 100), "{account:?}");
}

/// A place with inputs of other hosts.
fn of_hosts(inputs: usize) -> Place {
    let mut place = Place { by_frontier: true, ..Place::new(1, Level::Memory, banks(Level::Memory, inputs)) };
    place.open().unwrap();
    place
}

/// Steps of a second with this frontier of all inputs.
fn hear(place: &mut Place, frontier: i64) {
    for _ in 0..100 {
        place.machine.advance(10 * MS);
        place.step(Some(frontier)).unwrap();
    }
    place.compare().unwrap();
}

#[test]
fn a_host_that_is_away_is_waited_for_and_its_last_frontier_is_reached_exactly() {
    let mut place = of_hosts(2);
    let begin = place.machine.now() / SECOND * SECOND;
    place.say(0, begin);
    place.say(0, begin + 3 * MS);
    place.say(1, begin + 3 * MS);
    // Within a slice. The clock is far beyond.
    hear(&mut place, begin + 3 * MS + 1);
    assert_eq!(place.shown.len(), 3);
    assert_eq!(place.merge.as_ref().unwrap().frontier(), begin + 3 * MS + 1);
    place.live(60 * SECOND);
    // It is back, with what is older than the clock.
    place.say(1, begin + 5 * MS);
    hear(&mut place, begin + SECOND);
    assert_eq!((place.shown.len(), place.aside.len()), (4, 0));
}

#[test]
fn stages_that_have_ended_on_other_hosts_end_the_merge() {
    let mut place = of_hosts(2);
    let begin = place.machine.now();
    place.say(0, begin + 5 * MS);
    place.say(1, begin + 7 * MS);
    hear(&mut place, i64::MAX);
    let merge = place.merge.as_ref().unwrap();
    assert!(merge.ended() && place.shown.len() == 2, "{:?}", place.shown);
}

#[test]
fn a_backlog_without_a_frontier_is_merged_a_wait_behind_its_newest() {
    let mut place = of_hosts(2);
    let begin = place.machine.now();
    for at in 0..1000 {
        place.say(0, begin + at * MS);
        place.say(1, begin + at * MS);
    }
    hear(&mut place, i64::MIN);
    let shown = place.shown.len() as i64;
    assert!((2 * 1000 - 2 * (WAIT + 20 * MS) / MS..2000).contains(&shown), "{shown}");
}
