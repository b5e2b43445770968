//! Merge by number: any order of arrival within the wait, ids that are missing, late or there twice, numbers that begin
//! anew, and kills and power cuts at any moment, from seeds.
//!
//! What is checked besides: each round is in the order of its numbers, and the commits list exactly the ids that are not
//! in the output.

use super::*;

/// A frame, or a part of one, that comes to an input at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Coming {
    at: i64,
    input: usize,
    id: u64,
    time: i64,
}

fn place(seed: u64, level: Level, list: Vec<Bank>, parts: u32, cache: u64) -> Place {
    Place { by: MergeBy::Number { parts, cache }, ..Place::new(seed, level, list) }
}

impl Place {
    fn frame(&mut self, input: usize, id: u64, time: i64, len: usize) {
        let bank = &mut self.banks[input];
        bank.said.push((time, len));
        bank.ids.push(id);
    }

    fn ids(&self) -> Vec<u64> {
        self.shown.values().map(|key| key.0 as u64).collect()
    }

    /// What the commits list: first id, last id, reason.
    fn listed(&self) -> Vec<(u64, u64, String)> {
        let book = self.data(&self.witness).book_messages(&commits_of(NAME)).unwrap();
        let gaps = book.iter().flat_map(|bytes| Commit::read(bytes).unwrap().gaps);
        gaps.filter(|gap| !gap.by_sequence).map(|gap| (gap.first, gap.last, gap.reason)).collect()
    }

    /// The list in the commits is what a look at the output finds.
    fn check_list(&self, parts: usize) -> Checked {
        let mut expected: BTreeMap<(u64, String), u64> = BTreeMap::new();
        let ids = self.ids();
        let mut last: Option<u64> = None;
        for run in ids.chunk_by(|a, b| a == b) {
            let id = run[0];
            for missing in last.filter(|last| *last < id).map_or(id..id, |last| last + 1..id) {
                *expected.entry((missing, "missing".into())).or_default() += 1;
            }
            if run.len() < parts {
                *expected.entry((id, format!("incomplete.{}", parts - run.len()))).or_default() += 1;
            }
            if run.len() > parts {
                return Err(format!("id {id} is there {} times", run.len()));
            }
            last = Some(id);
        }
        let mut listed: BTreeMap<(u64, String), u64> = BTreeMap::new();
        for (first, end, reason) in self.listed() {
            for id in first..=end {
                *listed.entry((id, reason.clone())).or_default() += 1;
            }
        }
        if listed == expected {
            return Ok(());
        }
        let differs = |a: &BTreeMap<(u64, String), u64>, b: &BTreeMap<(u64, String), u64>| {
            a.iter().filter(|(key, n)| b.get(key) != Some(n)).take(5).map(|(k, n)| (k.clone(), *n)).collect::<Vec<_>>()
        };
        Err(format!("listed {:?}, to be {:?}", differs(&listed, &expected), differs(&expected, &listed)))
    }
}

/// Brings what comes at its times, and steps between.
fn bring_all(place: &mut Place, dice: &mut Dice, mut coming: Vec<Coming>) {
    coming.sort_unstable();
    let end = coming.last().map_or(0, |c| c.at) + 2 * WAIT;
    let mut coming = coming.into_iter().peekable();
    while place.machine.now() < end {
        place.machine.advance(dice.range(1, 8) as i64 * MS);
        let now = place.machine.now();
        while let Some(c) = coming.next_if(|c| c.at <= now) {
            place.frame(c.input, c.id, c.time, 16);
        }
        for i in 0..place.banks.len() {
            place.bring(i, u64::MAX).unwrap();
        }
        if dice.one_in(2) {
            place.drain().unwrap();
        }
        place.step(None).unwrap();
        place.compare().unwrap();
    }
}

#[test]
fn frames_that_arrive_in_any_order_within_the_wait_come_out_by_their_ids() {
    for seed in 0..60 {
        let mut dice = Dice::new(seed);
        let level = if seed % 3 == 0 { Level::Disk } else { Level::Memory };
        let (inputs, count) = (dice.range(1, 5) as usize, dice.range(1, 400));
        let parts = if dice.one_in(2) { inputs as u32 } else { 1 };
        let mut place = place(seed, level, banks(level, inputs), parts, 1 << 16);
        place.open().unwrap();
        let begin = place.machine.now();
        let first = dice.below(3) * 1_000_000;
        let mut coming = Vec::new();
        for n in 0..count {
            let time = begin + n as i64 * 2 * MS;
            let whole = dice.below(inputs as u64) as usize;
            for input in if parts == 1 { whole..whole + 1 } else { 0..inputs } {
                let at = time + dice.below(WAIT as u64 - 20 * MS as u64) as i64;
                coming.push(Coming { at, input, id: first + n, time });
            }
        }
        bring_all(&mut place, &mut dice, coming);
        let expected: Vec<u64> = (0..count).flat_map(|n| vec![first + n; parts as usize]).collect();
        assert_eq!(place.ids(), expected, "seed {seed}");
        assert!(place.aside.is_empty() && place.listed().is_empty(), "seed {seed}: {:?}", place.listed());
        place.end().unwrap();
        place.check(true).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}

#[test]
fn an_id_that_is_missing_costs_one_wait_and_is_listed() {
    let mut place = place(1, Level::Memory, banks(Level::Memory, 2), 1, 1 << 16);
    place.open().unwrap();
    let begin = place.machine.now();
    for n in 0..100 {
        if !(40..45).contains(&n) {
            place.frame((n % 2) as usize, n, begin + n as i64, 16);
        }
    }
    (0..2).for_each(|i| place.bring(i, u64::MAX).unwrap());
    place.live(WAIT / 2);
    assert_eq!(place.ids(), (0..40).collect::<Vec<_>>());
    place.live(WAIT);
    assert_eq!(place.shown.len(), 95);
    assert_eq!(place.listed(), [(40, 44, "missing".to_owned())]);
    // One of them comes after all.
    place.frame(0, 42, begin + 42, 16);
    place.end().unwrap();
    place.check(true).unwrap();
    assert_eq!(place.accounts()[0].counts["aside.late"], 1);
    place.check_list(1).unwrap();
}

#[test]
fn a_slice_that_was_always_on_its_way_did_not_hold_back_what_the_output_is_complete_up_to() {
    let mut place = place(1, Level::Disk, banks(Level::Disk, 1), 1, 1 << 16);
    place.open().unwrap();
    // Frames without a pause: as soon as one slice is safe there is another.
    for n in 0..400 {
        place.machine.advance(MS);
        let now = place.machine.now();
        place.frame(0, n, now, 16);
        place.bring(0, u64::MAX).unwrap();
        place.drain().unwrap();
        place.step(Some(now)).unwrap();
        let behind = now.saturating_sub(place.merge.as_ref().unwrap().frontier());
        // 128 frames are looked at together.
        assert!(n < 200 || behind < 2 * WAIT, "frame {n}: {} ms behind", behind / MS);
    }
}

#[test]
fn no_more_ids_wait_than_there_is_room_for() {
    let mut place = place(1, Level::Memory, banks(Level::Memory, 1), 1, 10);
    place.open().unwrap();
    let begin = place.machine.now();
    for n in (0..20).chain(21..40) {
        place.frame(0, n, begin + n as i64, 16);
    }
    place.bring(0, u64::MAX).unwrap();
    place.live(10 * MS);
    assert_eq!(place.shown.len(), 39, "the cache is full: 20 is given up before its wait");
    assert_eq!(place.listed(), [(20, 20, "missing".to_owned())]);
}

#[test]
fn a_frame_of_which_a_tile_is_missing_is_shown_and_listed() {
    let mut place = place(1, Level::Memory, banks(Level::Memory, 3), 3, 1 << 16);
    place.open().unwrap();
    let begin = place.machine.now();
    for n in 0..30 {
        for input in (0..3).filter(|&input| n != 10 || input == 1) {
            place.frame(input, n, begin + n as i64, 16);
        }
    }
    // The same tile twice is too much, whoever is missing.
    for _ in 0..2 {
        place.frame(2, 20, begin + 20, 16);
    }
    (0..3).for_each(|i| place.bring(i, u64::MAX).unwrap());
    place.live(2 * WAIT);
    assert_eq!(place.shown.len(), 88);
    assert_eq!(place.listed(), [(10, 10, "incomplete.2".to_owned())]);
    place.end().unwrap();
    place.check(true).unwrap();
    assert_eq!(place.accounts()[2].counts["aside.duplicate"], 2);
}

#[test]
fn ids_beyond_those_that_a_commit_lists_were_not_counted() {
    let mut place = place(1, Level::Memory, banks(Level::Memory, 3), 3, 1 << 16);
    place.open().unwrap();
    let begin = place.machine.now();
    // All go at once when the first is given up: of 2,700 ids one in three is not there, and one lacks two parts.
    for n in 1..=2700 {
        for input in (0..3).filter(|&input| n % 3 == 0 || n % 3 == 1 && input == 1) {
            place.frame(input, n, begin + n as i64, 16);
        }
    }
    (0..3).for_each(|i| place.bring(i, u64::MAX).unwrap());
    place.live(2 * WAIT);
    assert_eq!(place.shown.len(), 3600);
    let missing = flow::status::missing(&place.data(&place.witness), NAME).unwrap().unwrap();
    assert_eq!((missing.missing, missing.incomplete), (900, 900));
    assert_eq!(missing.without, BTreeMap::from([(2, 900)]));
    assert_eq!(missing.gaps.len(), 1000, "the list is bounded");
    // A merge that opens again continues to count them.
    place.kill();
    place.open().unwrap();
    place.frame(0, 2701, begin, 16);
    place.end().unwrap();
    let missing = flow::status::missing(&place.data(&place.witness), NAME).unwrap().unwrap();
    assert_eq!(missing.without, BTreeMap::from([(2, 901)]));
}

#[test]
fn numbers_that_begin_anew_are_a_new_round_and_not_late() {
    begin_anew(false);
}

#[test]
fn a_life_of_a_board_goes_on_behind_the_one_before() {
    begin_anew(true);
}

/// Three rounds of two boards, each a life of its board where `is_life`.
fn begin_anew(is_life: bool) {
    let mut place = place(1, Level::Memory, banks(Level::Memory, 2), 1, 1 << 16);
    place.open().unwrap();
    let begin = place.machine.now();
    let mut time = begin;
    let mut expected = Vec::new();
    for count in [300, 20, 5000] {
        if is_life && count != 300 {
            place.banks.iter_mut().for_each(|bank| bank.lives.push(bank.said.len() as u64));
        }
        for n in 0..count {
            time += MS / 10;
            place.frame((n % 2) as usize, n, time, 16);
            expected.push(n);
            if n % 50 == 0 {
                (0..2).for_each(|i| place.bring(i, u64::MAX).unwrap());
                place.live(5 * MS);
            }
        }
        (0..2).for_each(|i| place.bring(i, u64::MAX).unwrap());
        // Where the camera was off for a wait; the second time it was not.
        if count == 300 {
            place.live(2 * WAIT);
            time = place.machine.now();
            place.kill();
            place.open().unwrap();
        }
    }
    place.rounds = 2;
    place.end().unwrap();
    assert_eq!(place.aside, BTreeMap::new());
    assert_eq!(place.ids(), expected);
    place.check(true).unwrap();
    assert!(place.listed().is_empty(), "{:?}", place.listed());
}

#[test]
fn a_number_that_cannot_be_ordered_goes_aside_and_moves_nothing() {
    let mut place = place(1, Level::Memory, banks(Level::Memory, 1), 1, 1 << 16);
    place.open().unwrap();
    let begin = place.machine.now();
    for n in [0, 1, u64::MAX, 2, 1 << 63, 3] {
        place.frame(0, n, begin, 16);
    }
    place.bring(0, u64::MAX).unwrap();
    place.live(2 * WAIT);
    assert_eq!((place.ids(), place.aside.len()), (vec![0, 1, 2, 3], 2));
    assert_eq!(place.accounts()[0].counts["aside.number"], 2);
}

/// A history from a seed: frames of every kind, kills, power cuts, full disks, failing syncs.
fn history(seed: u64) -> Checked<Outcome> {
    let mut dice = Dice::new(seed.wrapping_mul(0x9e6c_63d0_876a_3f6b));
    let level = if dice.one_in(3) { Level::Memory } else { Level::Disk };
    let tight = dice.one_in(4);
    let inputs = dice.range(1, 5) as usize;
    let parts = if dice.one_in(2) { inputs } else { 1 };
    let cache = if dice.one_in(4) { dice.range(1, 50) } else { 1 << 16 };
    let mut list = banks(level, inputs);
    let drops = tight && dice.one_in(2);
    for bank in &mut list {
        if drops && dice.one_in(2) {
            bank.options.when_full = WhenFull::DropOldest;
            bank.options.retain_bytes = (level == Level::Disk).then_some(1 << 20);
        }
    }
    let wild = dice.one_in(2);
    let mut place = place(seed, level, list, parts as u32, cache);
    let (mut deaths, mut id, mut coming) = (0, dice.below(2) * 100_000, BTreeSet::new());
    for _ in 0..dice.range(20, 120) {
        place.machine.advance(dice.below(60 * MS as u64) as i64);
        if place.open().is_err() {
            place.kill();
            deaths += 1;
            place.machine.stop_after(None);
            continue;
        }
        let now = place.machine.now();
        for n in 0..dice.below(12) as i64 {
            id += 1;
            if wild && dice.one_in(20) {
                continue;
            }
            let whole = dice.below(inputs as u64) as usize;
            for input in if parts == 1 { whole..whole + 1 } else { 0..inputs } {
                let delay = match dice.below(40) {
                    0 if wild => dice.below(4 * WAIT as u64),
                    1 if wild => continue,
                    _ => dice.below(WAIT as u64 / 4),
                };
                let frame = Coming { at: now + delay as i64, input, id, time: now + n * 1000 };
                coming.insert(frame);
                if wild && dice.one_in(40) {
                    coming.insert(Coming { at: frame.at + dice.below(WAIT as u64) as i64, ..frame });
                }
            }
        }
        while let Some(frame) = coming.first().filter(|frame| frame.at <= now).copied() {
            coming.remove(&frame);
            let len = dice.below(if tight { 20_000 } else { 40 }) as usize;
            place.frame(frame.input, frame.id, frame.time, len);
        }
        deaths += place.misfortune(&mut dice, now)?;
    }
    for frame in coming {
        place.frame(frame.input, frame.id, frame.time, 16);
    }
    place.end()?;
    let outcome = place.check(!tight)?;
    if !drops && outcome.lost > 0 {
        return Err(format!("lost though all inputs wait: {:?}", place.accounts()));
    }
    if !tight {
        place.check_list(parts)?;
    }
    Ok(Outcome { deaths, ..outcome })
}

/// Messages that retention deleted before their slice was taken are counted as lost; a power cut then brought them
/// back.
#[test]
fn what_a_power_cut_brings_back_was_shown_beyond_the_commit() {
    history(884).unwrap();
}

#[test]
fn a_merge_by_number_shows_each_message_once_whatever_dies_when() {
    lives("merge::number::a_merge_by_number_shows_each_message_once_whatever_dies_when", 200, history);
}

#[test]
#[ignore = "full counts: cargo xtask soak"]
fn soak_merges_by_number() {
    lives("merge::number::soak_merges_by_number", 20_000, history);
}
