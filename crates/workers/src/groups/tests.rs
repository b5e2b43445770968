//! Finders, each with messages made by hand.

use super::finder::{Finder, Found};
use super::peak::Peak;
use super::trigger::Trigger;
use super::windows::{Gap, Window};
use super::*;

/// A message: time, member, number.
type Seen = (i64, u32, u64);

/// A group: which message closed it, its number, and its messages.
type Group = (usize, Option<u64>, Vec<usize>);

/// The groups that a finder makes, each message counted over all; and how many are pending at the end, late, and alone.
fn all_of(finder: &mut dyn Finder, seen: &[Seen]) -> (Vec<Group>, (usize, u64, u64)) {
    let (mut rows, mut first, mut groups) = (Rows::default(), 0, Vec::new());
    let (mut late, mut alone) = (0, 0);
    for (at, (time, member, number)) in seen.iter().enumerate() {
        rows.times.push(*time);
        rows.members.push(*member);
        rows.numbers.push(*number);
        rows.tags.push(tag_of(*time));
        let mut found = Found::default();
        let done = finder.find(rows.pending(), &mut found).unwrap();
        for group in 0..found.len() {
            let (number, places) = found.get(group).unwrap();
            groups.push((at, number, places.iter().map(|place| first + *place as usize).collect()));
        }
        (late, alone) = (late + found.late, alone + found.alone);
        rows.gone += done;
        first += done;
    }
    (groups, (seen.len() - first, late, alone))
}

/// The tag of a message, by its time.
fn tag_of(time: i64) -> u8 {
    u8::from(time % 7 == 0)
}

fn at_times(times: &[i64]) -> Vec<Seen> {
    times.iter().zip(0..).map(|(time, member)| (*time, member, 0)).collect()
}

/// Which message closed which.
fn closed(finder: &mut dyn Finder, times: &[i64]) -> Vec<(usize, Vec<usize>)> {
    let (groups, _) = all_of(finder, &at_times(times));
    groups.into_iter().map(|group| (group.0, group.2)).collect()
}

#[test]
fn a_gap_ends_a_group_only_where_it_is_longer() {
    let times = [0, 10, 20, 31, 31, 100];
    assert_eq!(closed(&mut Gap::new(10, i64::MAX), &times), [(3, vec![0, 1, 2]), (5, vec![3, 4])]);
    assert_eq!(closed(&mut Gap::new(11, i64::MAX), &times), [(5, vec![0, 1, 2, 3, 4])]);
    // Not longer than 20 from its first message to its last.
    assert_eq!(closed(&mut Gap::new(11, 20), &times), [(3, vec![0, 1, 2]), (5, vec![3, 4])]);
    // A late one belongs to the group that is open, and the gap is counted from the newest.
    assert_eq!(closed(&mut Gap::new(10, i64::MAX), &[0, 10, -50, 20, 31]), [(4, vec![0, 1, 2, 3])]);
    assert_eq!(closed(&mut Gap::new(10, i64::MAX), &[i64::MIN, i64::MAX, 0]), [(1, vec![0])]);
}

#[test]
fn a_window_has_what_is_later_by_less_and_a_grid_what_is_between_its_lines() {
    let times = [5, 14, 15, 20, 24, 25];
    assert_eq!(closed(&mut Window::new(10, false), &times), [(2, vec![0, 1]), (5, vec![2, 3, 4])]);
    assert_eq!(closed(&mut Window::new(10, true), &times), [(1, vec![0]), (3, vec![1, 2])]);
    assert_eq!(closed(&mut Window::new(10, true), &[-11, -10, -1, 0]), [(1, vec![0]), (3, vec![1, 2])]);
    assert_eq!(closed(&mut Window::new(10, false), &[0, 5, -3, 9, 10]), [(4, vec![0, 1, 2, 3])]);
}

/// Peaks of members at times.
fn peaks(least: u32, seen: &[(i64, u32)]) -> (Vec<Vec<usize>>, u64) {
    let seen: Vec<Seen> = seen.iter().map(|(time, member)| (*time, *member, 0)).collect();
    let (groups, (_, _, alone)) = all_of(&mut Peak::new(10, least), &seen);
    (groups.into_iter().map(|group| group.2).collect(), alone)
}

#[test]
fn a_peak_begins_where_most_different_members_are_in_the_window() {
    // The window of the first has two, that of the second three.
    let rising = [(0, 0), (5, 1), (10, 2), (14, 3), (15, 4), (40, 0)];
    assert_eq!(peaks(2, &rising), (vec![vec![1, 2, 3]], 2));
    // The fifth was in no window that has more, and begins none that has two.
    let falling = [(0, 0), (5, 1), (10, 2), (14, 3), (15, 4), (40, 0), (60, 0)];
    assert_eq!(peaks(2, &falling), (vec![vec![1, 2, 3]], 3));
    // Of equal ones the first.
    assert_eq!(peaks(2, &[(0, 0), (5, 1), (10, 2), (30, 0), (60, 0)]), (vec![vec![0, 1]], 2));
    // One member that fires often is no coincidence.
    assert_eq!(peaks(2, &[(0, 7), (1, 7), (2, 7), (3, 7), (30, 0), (60, 0)]), (vec![], 5));
    assert_eq!(peaks(2, &[(0, 7), (1, 7), (2, 8), (3, 7), (30, 0), (60, 0)]), (vec![vec![0, 1, 2, 3]], 1));
    // The window is shorter than 10 by the border.
    assert_eq!(peaks(2, &[(0, 0), (10, 1), (50, 0), (99, 0)]), (vec![], 3));
    assert_eq!(peaks(2, &[(0, 0), (9, 1), (50, 0), (99, 0)]), (vec![vec![0, 1]], 1));
    // A late one counts as if it came with the one before.
    assert_eq!(peaks(2, &[(0, 0), (9, 1), (2, 2), (50, 0), (99, 0)]), (vec![vec![0, 1, 2]], 1));
}

#[test]
fn a_peak_is_the_same_as_by_the_words_of_its_page() {
    let mut state = 5_u64;
    let mut below = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    for least in 1..4 {
        let mut time = 0;
        let seen: Vec<(i64, u32)> = (0..400)
            .map(|_| {
                time += below(9) as i64;
                (time, below(5) as u32)
            })
            .collect();
        let window =
            |at: usize| -> Vec<usize> { (at..seen.len()).take_while(|n| seen[*n].0 < seen[at].0 + 10).collect() };
        let many = |at: usize| {
            let mut members: Vec<u32> = window(at).into_iter().map(|n| seen[n].1).collect();
            members.sort_unstable();
            members.dedup();
            members.len() as u32
        };
        let (mut at, mut wanted) = (0, Vec::new());
        while at < seen.len() {
            let begins = many(at) >= least && window(at).into_iter().all(|n| many(n) <= many(at));
            match begins {
                true => {
                    wanted.push(window(at));
                    at = wanted.last().unwrap().last().unwrap() + 1;
                }
                false => at += 1,
            }
        }
        let (found, _) = peaks(least, &seen);
        assert!(found.len() > 20 && wanted.len() - found.len() <= 3, "{} of {}", found.len(), wanted.len());
        assert_eq!(found, wanted[..found.len()]);
    }
}

/// Groups by number: the number and the messages.
fn triggers(mut finder: Trigger, seen: &[Seen]) -> (Vec<(u64, Vec<usize>)>, u64) {
    let (groups, (_, late, _)) = all_of(&mut finder, seen);
    (groups.into_iter().map(|group| (group.1.unwrap(), group.2)).collect(), late)
}

#[test]
fn messages_of_one_trigger_belong_together_however_they_are_mixed() {
    let seen = [(0, 0, 5), (1, 0, 6), (2, 1, 6), (3, 1, 5), (4, 0, 7), (5, 0, 7), (6, 1, 7), (7, 1, 7)];
    // 6 is complete first, and does not wait for 5. Of 7 one member came twice; the message behind its group is late.
    let (groups, late) = triggers(Trigger::new((0, 8, 1000), Some(2), false), &seen);
    assert_eq!(groups, [(6, vec![1, 2]), (5, vec![0, 3]), (7, vec![4, 5, 6])]);
    assert_eq!(late, 1);
}

#[test]
fn a_trigger_that_misses_a_member_is_closed_by_time_or_by_others() {
    let seen = [(0, 0, 1), (10, 0, 2), (20, 1, 2), (110, 0, 3), (111, 0, 4)];
    let (groups, late) = triggers(Trigger::new((0, 8, 100), Some(2), false), &seen);
    assert_eq!((groups, late), (vec![(2, vec![1, 2]), (1, vec![0])], 0));
    let (groups, _) = triggers(Trigger::new((0, 2, 100_000), Some(2), false), &seen);
    assert_eq!(groups, [(2, vec![1, 2]), (1, vec![0])]);
    let (groups, _) = triggers(Trigger::new((0, 8, 100_000), None, false), &seen);
    assert_eq!(groups, []);
}

#[test]
fn a_trigger_number_that_wraps_goes_on() {
    let seen: Vec<Seen> = (0..40).map(|n| (n, (n % 2) as u32, (13 + n as u64 / 2) % 16)).collect();
    let (groups, late) = triggers(Trigger::new((16, 8, 1000), Some(2), false), &seen);
    assert_eq!(groups.iter().map(|group| group.0).collect::<Vec<_>>(), (13..33).collect::<Vec<_>>());
    assert_eq!(late, 0);
    // One that is behind the newest across the wrap.
    let (groups, late) =
        triggers(Trigger::new((16, 8, 1000), Some(2), false), &[(0, 0, 15), (1, 0, 0), (2, 1, 15), (3, 1, 0)]);
    assert_eq!((groups, late), (vec![(15, vec![0, 2]), (16, vec![1, 3])], 0));
    // One before the first is late.
    assert_eq!(triggers(Trigger::new((16, 8, 1000), Some(1), false), &[(0, 0, 0), (1, 0, 15), (2, 0, 1)]).1, 1);
}

#[test]
fn a_group_of_pieces_is_whole_with_all_pieces_of_all_members() {
    // Two members with three pieces each; the number counts pieces, and restarts at 9.
    let seen: Vec<Seen> = [(0, 6), (1, 8), (0, 7), (1, 6), (1, 7), (0, 0), (0, 8), (1, 0), (1, 1), (1, 2), (1, 1)]
        .iter()
        .zip(0..)
        .map(|((member, number), time)| (time, *member, *number))
        .collect();
    let (groups, late) = triggers(Trigger::new((9, 8, 1000), Some(6), false).of_pieces(3), &seen);
    // A second copy of a piece does not complete a group.
    assert_eq!((groups, late), (vec![(2, vec![0, 1, 2, 3, 4, 6])], 0));
}

#[test]
fn pieces_divide_the_part_of_their_member() {
    let layout = |text: &str| {
        let parameters = serde_json::from_str(text).unwrap();
        settings::read_json(&parameters, Plan::read).map(|plan| match plan.rules.make {
            Make::Frames(layout) => layout,
            other => panic!("{other:?}"),
        })
    };
    let text = |members: &str, pieces: u32, shape: &str| {
        format!(
            r#"{{"find": "trigger", "pieces": {pieces}, "members": {members}, "make": "frames", "shape": {shape}}}"#
        )
    };
    // 2 x 2 x 5 pixels of two bytes: a member has 20 bytes, of which the last piece has 4.
    let of_two = layout(&text(r#"["a", "b"]"#, 3, "[2, 2, 5]")).unwrap();
    let places: Vec<_> = (0..6).map(|part| of_two.place(part)).collect();
    assert_eq!(places, [0..8, 8..16, 16..20, 20..28, 28..36, 36..40]);
    assert_eq!(of_two.bytes(), 40);
    // A part of a pixel, pieces without pixels, no pixels, and too many.
    for (members, pieces, shape) in [
        (r#"["a", "b", "c"]"#, 1, "[2, 2, 5]"),
        (r#"["a"]"#, 7, "[5]"),
        (r#"["a"]"#, 1, "[0, 5]"),
        (r#"["a"]"#, 1, "[]"),
        (r#"["a"]"#, 1, "[4294967296, 4294967296, 4294967296]"),
        (r#"["a"]"#, 1, "[1, 1, 1, 1, 1, 1, 1, 1, 1]"),
    ] {
        assert!(layout(&text(members, pieces, shape)).is_err(), "{members} {pieces} {shape}");
    }
}

#[test]
fn messages_with_another_tag_than_most_belong_to_no_group() {
    let mut finder = Trigger::new((0, 8, 1000), Some(3), true);
    // At 7 and 14 is tag 1: one of 5 differs, two of 6 agree, and of 8 the first counts, as there are as many of each.
    let seen = [(1, 0, 5), (7, 1, 5), (2, 2, 5), (14, 0, 6), (3, 1, 6), (21, 2, 6), (28, 0, 8), (4, 1, 8), (5, 0, 9)];
    let (mut rows, mut groups, mut others) = (Rows::default(), Vec::new(), 0);
    let mut first = 0;
    for (time, member, number) in seen.into_iter().chain([(2000, 0, 10)]) {
        rows.times.push(time);
        rows.members.push(member);
        rows.numbers.push(number);
        rows.tags.push(tag_of(time));
        let mut found = Found::default();
        let done = finder.find(rows.pending(), &mut found).unwrap();
        for group in 0..found.len() {
            let (number, places) = found.get(group).unwrap();
            groups.push((number.unwrap(), places.iter().map(|place| first + *place as usize).collect::<Vec<_>>()));
        }
        others += found.tag;
        rows.gone += done;
        first += done;
    }
    assert_eq!(groups, [(5, vec![0, 2]), (6, vec![3, 5]), (8, vec![6]), (9, vec![8])]);
    assert_eq!(others, 3);
}

#[test]
fn numbers_that_begin_anew_or_are_wrong_cost_a_wait_and_not_the_rest() {
    // A wrong one far ahead is alone, and closed.
    let mut seen: Vec<Seen> = (0..10).map(|n| (n, 0, n as u64)).collect();
    seen.insert(5, (5, 0, 1 << 60));
    seen.extend((10..200).map(|n| (n, 0, n as u64)));
    let (groups, late) = triggers(Trigger::new((0, 8, 20), Some(1), false), &seen);
    assert_eq!(groups.len() as u64 + late, 201);
    assert!((15..=21).contains(&late), "{late}");
    assert_eq!(groups.last().map(|group| group.0), Some(199));
    // A new run counts from nought.
    let mut seen: Vec<Seen> = (0..100).map(|n| (n, 0, 1000 + n as u64)).collect();
    seen.extend((100..200).map(|n| (n, 0, n as u64 - 100)));
    let (groups, late) = triggers(Trigger::new((0, 8, 20), Some(1), false), &seen);
    assert_eq!((groups.len() as u64 + late, groups.last().map(|group| group.0)), (200, Some(99)));
    assert!((19..=21).contains(&late), "{late}");
}

#[test]
fn a_finder_goes_on_from_what_it_kept_and_what_was_pending() {
    let mut state = 11_u64;
    let mut below = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let mut time = 1000_i64;
    let seen: Vec<Seen> = (0..600)
        .map(|n| {
            time += below(8) as i64;
            // Now and then a late one.
            let late = if below(20) == 0 { 30 } else { 0 };
            (time - late, below(4) as u32, (n / 5 + below(3)) % 64)
        })
        .collect();
    let makes: [&dyn Fn() -> Box<dyn Finder>; 7] = [
        &|| Box::new(Gap::new(5, 40)),
        &|| Box::new(Window::new(25, false)),
        &|| Box::new(Window::new(25, true)),
        &|| Box::new(Peak::new(25, 3)),
        &|| Box::new(Trigger::new((64, 6, 60), Some(4), false)),
        &|| Box::new(Trigger::new((64, 6, 60), Some(4), true)),
        &|| Box::new(Trigger::new((64, 6, 60), Some(16), false).of_pieces(4)),
    ];
    for make in makes {
        let (whole, (pending, late, _)) = all_of(make().as_mut(), &seen);
        assert!(whole.len() > 20 && pending < 100, "{} {late}", whole.len());
        for cut in (1..600).step_by(7) {
            let mut before = make();
            let (_, (pending, ..)) = all_of(before.as_mut(), &seen[..cut]);
            let mut words = Vec::new();
            before.keep(&mut words);
            let mut after = make();
            after.resume(&words);
            let first = cut - pending;
            let (rest, _) = all_of(after.as_mut(), &seen[first..]);
            let rest: Vec<Group> = rest
                .into_iter()
                .filter(|group| group.0 + first >= cut)
                .map(|(at, number, all)| (at + first, number, all.into_iter().map(|n| n + first).collect()))
                .collect();
            let wanted: Vec<Group> = whole.iter().filter(|group| group.0 >= cut).cloned().collect();
            assert_eq!(rest, wanted, "cut at {cut}");
        }
    }
}

/// Groups of messages in the order of time, as sets of messages: by the messages alone, or also by the time up to which
/// they are complete, which is passed now and then. All are closed at the end.
fn closed_at_last(
    finder: &mut dyn Finder,
    seen: &[Seen],
    mut time_behind: impl FnMut(usize) -> Option<i64>,
) -> Vec<Vec<usize>> {
    let (mut rows, mut groups) = (Rows::default(), Vec::new());
    let mut add = |rows: &mut Rows, found: &Found, done: usize| {
        let first = rows.gone;
        for at in 0..found.len() {
            groups.push(found.get(at).unwrap().1.iter().map(|place| first + *place as usize).collect());
        }
        rows.gone += done;
    };
    for (at, (time, member, number)) in seen.iter().enumerate() {
        rows.times.push(*time);
        rows.members.push(*member);
        rows.numbers.push(*number);
        rows.tags.push(0);
        let mut found = Found::default();
        let done = finder.find(rows.pending(), &mut found).unwrap();
        add(&mut rows, &found, done);
        let Some(time) = time_behind(at).filter(|_| rows.len() > 0) else { continue };
        let (waiting, mut found) = (finder.waiting(rows.pending()), Found::default());
        let done = finder.pass_time(time, rows.pending(), &mut found).unwrap();
        // No group is closed before it is due, and none that is due is left.
        assert!(time >= waiting.due || done == 0 && found.is_empty(), "{waiting:?} at {time}");
        add(&mut rows, &found, done);
        let left = finder.waiting(rows.pending());
        assert!(left.messages == 0 || left.due > time, "{waiting:?} at {time}: {left:?}");
    }
    if rows.len() > 0 {
        let mut found = Found::default();
        let done = finder.pass_time(i64::MAX, rows.pending(), &mut found).unwrap();
        add(&mut rows, &found, done);
    }
    assert_eq!((rows.len(), finder.waiting(rows.pending()).messages), (0, 0));
    groups.sort();
    groups
}

#[test]
fn time_that_passes_closes_the_groups_that_the_next_message_would_close() {
    let makes: [&dyn Fn() -> Box<dyn Finder>; 5] = [
        &|| Box::new(Gap::new(5, 40)),
        &|| Box::new(Window::new(25, false)),
        &|| Box::new(Window::new(25, true)),
        &|| Box::new(Peak::new(25, 3)),
        &|| Box::new(Trigger::new((64, 6, 60), Some(4), false)),
    ];
    for seed in 0..40 {
        let mut dice = testkit::Dice::new(seed);
        let mut time = 1000;
        let mut all = Vec::new();
        for n in 0..400 {
            time += if dice.one_in(15) { dice.below(100) } else { dice.below(8) } as i64;
            all.push((time, dice.below(4) as u32, (n / 5 + dice.below(3)) % 64));
        }
        for (number, make) in makes.iter().enumerate() {
            let wanted = closed_at_last(make().as_mut(), &all, |_| None);
            let behind = |at: usize| {
                let next = all.get(at + 1).map_or(all[at].0 + 200, |seen| seen.0);
                dice.one_in(2).then(|| all[at].0 + dice.range(0, (next - all[at].0) as u64) as i64)
            };
            let found = closed_at_last(make().as_mut(), &all, behind);
            assert!(wanted.len() > 10, "{}", wanted.len());
            assert_eq!(found, wanted, "seed {seed}, finder {number}");
        }
    }
}

#[test]
fn a_closed_number_is_late_though_a_lower_one_is_open() {
    // 1 waits; 2 and 4 are complete. 2 again is late, and so is 3, which no board can send behind its 4.
    let seen = [(0, 0, 1), (1, 0, 2), (2, 1, 2), (3, 0, 4), (4, 1, 4), (5, 0, 2), (6, 0, 3), (7, 1, 1), (8, 1, 5)];
    let (groups, late) = triggers(Trigger::new((0, 1024, 1000), Some(2), false), &seen);
    assert_eq!(groups, [(2, vec![1, 2]), (4, vec![3, 4]), (1, vec![0, 7])]);
    assert_eq!(late, 2);
}

#[test]
fn groups_that_are_open_where_numbers_begin_anew_do_not_make_the_new_ones_late() {
    // 900 waits for its second member while numbers restart.
    let mut seen: Vec<Seen> = vec![(0, 0, 800), (1, 1, 800), (30, 0, 900), (45, 0, 1), (46, 1, 1), (47, 1, 900)];
    seen.extend((0..20).map(|n| (50 + n, (n % 2) as u32, 2 + n as u64 / 2)));
    let (groups, late) = triggers(Trigger::new((0, 8, 20), Some(2), false), &seen);
    let wanted: Vec<u64> = [800, 1, 900].into_iter().chain(2..12).collect();
    assert_eq!((groups.iter().map(|group| group.0).collect::<Vec<_>>(), late), (wanted, 0));
}
