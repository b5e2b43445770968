//! Groups: the same whichever process is killed at any time, each once, in order.

use super::*;
use flow::{Merge, MergeBy, MergeInput, MergeOptions, Slot, SlotOptions};

/// One message: time, which origin, its number.
type Sent = (i64, usize, u64);

const DETECTORS: [&str; 6] = ["d1", "d2", "d3", "d4", "d5", "noise"];

/// Bytes of the payload of a message with this time: one in four has those of a piece of a frame.
fn length(time: i64) -> i64 {
    if time % 4 == 0 { 160 } else { 20 + time % 300 }
}

/// Appends a message of an origin, if there is room.
fn append(lab: &mut Lab, sent: &Sent) -> bool {
    append_of(lab, DETECTORS[sent.1], sent)
}

/// The same of another origin.
fn append_of(lab: &mut Lab, origin: &str, sent: &Sent) -> bool {
    let level = lab.level;
    let writer = lab.writer();
    let origin = writer.origin(origin).unwrap();
    let flags = store::flags::of_source(u8::from(sent.0 % 7 == 0));
    let meta = Meta { source_time: sent.0, origin, origin_seq: sent.2, schema: SchemaId(*b"f144"), flags };
    let payload: Vec<u8> = (0..length(sent.0)).map(|n| (n + sent.0) as u8).collect();
    let answer = writer.append(&meta, &payload);
    if level == Level::Disk {
        let _ = writer.drain();
    }
    match answer {
        Ok(_) => true,
        Err(e) if e.is_full() => false,
        Err(e) => panic!("{e}"),
    }
}

/// Groups of five detectors, some of them incomplete, with other messages between.
fn messages(dice: &mut Dice, count: usize) -> Vec<Sent> {
    let (mut all, mut time, mut number) = (Vec::new(), 1000, 65_530_u64);
    while all.len() < count {
        time += dice.range(20, 200) as i64;
        number += dice.range(1, 3);
        for detector in 0..6 {
            if !dice.one_in(5) {
                all.push((time + dice.below(25) as i64, detector, number % 65_536));
            }
        }
    }
    all.truncate(count);
    // As a merge by time has them, with a late one now and then.
    all.sort_by_key(|sent| sent.0 + if sent.2 % 17 == 0 { 15 } else { 0 });
    all
}

fn row(bytes: &[u8]) -> (u64, Vec<u32>, Vec<u64>) {
    let group = wire::bpgr::read(bytes).unwrap();
    let members: Vec<u64> = group.members.iter().collect();
    let all = if members.is_empty() { (group.first..group.first + u64::from(group.count)).collect() } else { members };
    (group.time as u64, group.missing.iter().collect(), all)
}

/// A message of the output: time, number, schema, payload.
type Shown = (i64, u64, [u8; 4], Vec<u8>);

/// The output of an undisturbed lab, for an input that continues or that `ends`.
fn undisturbed(parameters: &Value, input: &[Sent], ends: bool) -> (Vec<Shown>, Value) {
    let mut lab = Lab::new(1, Level::Memory, &GROUPS, parameters.clone());
    lab.live = 1 << 22;
    for sent in input {
        assert!(append(&mut lab, sent));
    }
    lab.heard.ended = ends;
    let out = lab.finish();
    (out, serde_json::from_str(&flow::Worker::statistics(lab.native().unwrap())).unwrap())
}

#[test]
fn groups_say_what_they_miss_and_only_those_that_are_wanted_go_on() {
    let input: Vec<Sent> = vec![
        // Whole; two of one; all but one with noise between; whole; one alone; and what closes it.
        (100, 0, 0),
        (101, 1, 0),
        (103, 2, 0),
        (200, 0, 1),
        (201, 0, 2),
        (300, 1, 1),
        (301, 5, 0),
        (302, 2, 1),
        (400, 0, 3),
        (401, 1, 2),
        (402, 2, 2),
        (500, 2, 3),
        (900, 0, 4),
    ];
    let of = |more: Value| {
        let mut parameters = json!({"find": "gap", "gap": "5 ns", "members": ["d{1..3}"]});
        more.as_object().unwrap().iter().for_each(|(key, value)| parameters[key] = value.clone());
        undisturbed(&parameters, &input, false)
    };
    let (all, said) = of(json!({}));
    let rows: Vec<_> = all.iter().map(|m| (m.1, row(&m.3))).collect();
    assert_eq!(
        rows,
        [
            (0, (100, vec![], vec![0, 1, 2])),
            (1, (200, vec![1, 2], vec![3, 4])),
            (2, (300, vec![0], vec![5, 7])),
            (3, (400, vec![], vec![8, 9, 10])),
            (4, (500, vec![0, 1], vec![11])),
        ]
    );
    assert!(all.iter().all(|m| m.0 as u64 == row(&m.3).0 && m.2 == *b"bpgr"));
    assert_eq!(said, json!({"groups": 5, "incomplete": 3, "few": 0, "prescaled": 0, "strange": 1}));
    let (all, said) = of(json!({"multiplicity": 2, "prescale": 2}));
    assert_eq!(all.iter().map(|m| m.1).collect::<Vec<_>>(), [0, 3]);
    assert_eq!(said, json!({"groups": 5, "incomplete": 3, "few": 2, "prescaled": 1, "strange": 1}));
    let (all, _) = of(json!({"complete": true}));
    assert_eq!(all.iter().map(|m| m.1).collect::<Vec<_>>(), [0, 3]);
    // The messages of whole groups, as they were.
    let (all, _) = of(json!({"complete": true, "make": "messages"}));
    let wanted: Vec<(i64, u64)> = [0, 1, 2, 8, 9, 10].iter().map(|at: &usize| (input[*at].0, input[*at].2)).collect();
    assert_eq!(all.iter().map(|m| (m.0, m.1)).collect::<Vec<_>>(), wanted);
    assert!(all.iter().all(|m| m.3.len() as i64 == length(m.0) && m.2 == *b"f144"));
}

fn kinds() -> [Value; 7] {
    [
        json!({"find": "gap", "gap": "8 ns", "longest": "60 ns"}),
        json!({"find": "window", "window": "30 ns", "multiplicity": 3}),
        json!({"find": "grid", "window": "100 ns", "prescale": 3}),
        json!({"find": "peak", "window": "25 ns", "multiplicity": 3, "prescale": 2}),
        json!({"find": "trigger", "wrap": 65536, "open": 4, "wait": "300 ns"}),
        json!({"find": "trigger", "wrap": 65536, "open": 4, "wait": "300 ns", "same": "tag"}),
        json!({"find": "trigger", "wrap": 65536, "open": 4, "wait": "300 ns", "pieces": 2}),
    ]
}

/// One history of groups.
fn of_groups(seed: u64) -> Counts {
    let mut dice = Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let level = dice.pick(&[Level::Memory, Level::Disk]);
    let mut parameters = kinds()[dice.below(7) as usize].clone();
    parameters["members"] = json!(["d{1..5}"]);
    parameters["pending"] = json!(dice.pick(&[12, 65536]));
    parameters["make"] = json!(dice.pick(&["rows", "messages", "frames"]));
    if parameters["make"] == "frames" {
        let pieces = parameters["pieces"].as_u64().unwrap_or(1);
        (parameters["shape"], parameters["dtype"]) = (json!([5, pieces * 160]), json!("uint8"));
    }
    let mut lab = Lab::new(seed, level, &GROUPS, parameters.clone());
    // Small ones are full now and then.
    lab.live = dice.pick(&[1 << 17, 1 << 20]);
    let count = dice.range(30, 400) as usize;
    let planned = messages(&mut dice, count);
    lab.live(&mut dice, 500, |lab, dice| {
        (0..dice.range(1, 8)).for_each(|_| {
            let given = lab.writer().next_sequence() as usize;
            if let Some(sent) = planned.get(given) {
                append(lab, sent);
            }
        });
        let given = lab.writer().next_sequence() as usize;
        // The input is complete up to what comes next, and at its end for ever.
        lab.heard.ended = given == planned.len();
        lab.heard.frontier = planned[given..].iter().map(|sent| sent.0).min().unwrap_or(i64::MAX);
        lab.heard.ended
    });
    let (mut out, account) = (lab.output(), lab.account());
    let (mut wanted, _) = undisturbed(&parameters, &planned, true);
    assert!(!account.contains_key("waits"), "seed {seed}, {parameters}: {account:?}");
    assert!(out.len() <= wanted.len(), "seed {seed}, {parameters}: {} of {}", out.len(), wanted.len());
    let (all, lost) = (wanted.len(), wanted.len() - out.len());
    if parameters["find"] == "trigger" {
        // Which of two groups waits for longer is not said by their numbers: the order is another, by a few.
        let there: BTreeSet<_> = out.iter().cloned().collect();
        let missing = wanted.iter().enumerate().filter(|(_, group)| !there.contains(*group)).map(|(at, _)| at);
        assert!(
            missing.clone().all(|at| at < lost + 30),
            "seed {seed}, {parameters}: {:?}",
            missing.collect::<Vec<_>>()
        );
        wanted.retain(|group| there.contains(group));
        out.sort();
        wanted.sort();
    } else {
        // Of the output the oldest are gone.
        wanted.drain(..lost);
    }
    let of = |all: &[Shown]| all.iter().map(|m| (m.0, m.1)).collect::<Vec<_>>();
    assert_eq!(of(&out), of(&wanted), "seed {seed}, {level:?}, {parameters}");
    assert!(out == wanted && (all == 0 || out.len() * 4 > all), "seed {seed}: {} of {all}", out.len());
    lab.counts("groups", out.len())
}

const OF_GROUPS: (&str, &str, &str) = ("groups", "groups", "or messages of groups, each once and in order");

#[test]
fn groups_are_the_same_whoever_is_killed_between_their_messages() {
    let test = "groups::groups_are_the_same_whoever_is_killed_between_their_messages";
    lives(test, HISTORIES, OF_GROUPS, of_groups);
}

#[test]
#[ignore = "full counts: cargo xtask soak"]
fn soak_groups() {
    lives("groups::soak_groups", SOAK, OF_GROUPS, of_groups);
}

/// A merge publishes its messages, and their time, before they are on the disk.
#[test]
fn time_passes_only_behind_messages_that_are_not_on_the_disk_yet() {
    let parameters = json!({"find": "trigger", "wait": "1 ms", "members": ["d1", "d2"]});
    let mut lab = Lab::new(1, Level::Disk, &GROUPS, parameters);
    assert!(append(&mut lab, &(1000, 0, 7)));
    (0..50).for_each(|_| lab.step());
    let writer = lab.writer();
    let origin = writer.origin("d2").unwrap();
    let meta = Meta { source_time: 1001, origin, origin_seq: 7, schema: SchemaId(*b"f144"), flags: 0 };
    writer.append(&meta, b"not drained").unwrap();
    lab.heard.frontier = 5_000_000;
    (0..50).for_each(|_| lab.step());
    assert!(lab.output().is_empty(), "it waits for a message that is there");
    lab.heard.ended = true;
    (0..50).for_each(|_| lab.step());
    assert!(lab.output().is_empty(), "the end of the input is behind that message");
    lab.writer().drain().unwrap();
    assert_eq!(lab.finish().iter().map(|m| row(&m.3)).collect::<Vec<_>>(), [(1000, vec![], vec![0, 1])]);
}

/// Two boards whose numbers begin at 0 again before the groups of the former numbers are closed, of which the first
/// misses a message; slots are killed between all messages.
#[test]
fn groups_of_boards_that_restart_have_messages_of_one_life() {
    let sent: Vec<(&str, i64, u64)> = vec![
        ("d1", 1000, 0),
        ("d1", 1010, 1),
        ("d2", 1011, 1),
        ("d1", 1020, 2),
        ("d2", 1021, 2),
        ("d1#2", 1100, 0),
        ("d2#2", 1101, 0),
        ("d1#2", 1110, 1),
        ("d2#2", 1111, 1),
        ("d1#2", 1120, 2),
        ("d2#2", 1121, 2),
    ];
    for kills in [false, true] {
        let parameters = json!({"find": "trigger", "wait": "1 s", "members": ["d1", "d2"]});
        let mut lab = Lab::new(1, Level::Memory, &GROUPS, parameters);
        for (origin, time, number) in &sent {
            assert!(append_of(&mut lab, origin, &(*time, 0, *number)));
            if kills {
                (0..60).for_each(|_| lab.step());
                lab.kill_slot();
            }
        }
        let out = lab.finish();
        let shown: Vec<_> = out.iter().map(|m| (m.0, m.1, row(&m.3).1)).collect();
        let whole = |time, number| (time, number, vec![]);
        let mut wanted = vec![whole(1010, 1), whole(1020, 2), (1000, 0, vec![1])];
        wanted.extend([whole(1100, 0), whole(1110, 1), whole(1120, 2)]);
        assert_eq!(shown, wanted, "kills: {kills}");
        assert!(!flow::Worker::statistics(lab.native().unwrap()).contains("late"));
    }
}

/// The time up to which the input is complete speaks of the messages of a writer that has just opened, too.
#[test]
fn time_passes_only_behind_the_messages_of_a_new_writer() {
    let wait = 1_000_000;
    for steps in 40..64 {
        let parameters = json!({"find": "trigger", "wait": "1 ms", "members": ["d1", "d2"]});
        let mut lab = Lab::new(1, Level::Disk, &GROUPS, parameters);
        assert!(append(&mut lab, &(1000, 0, 7)));
        (0..steps).for_each(|_| lab.step());
        assert!(lab.account().contains_key("waits"), "{:?}", lab.account());
        // It ends in order, and another one goes on: the reader of the worker looks for it now and then.
        lab.writer = None;
        assert!(append(&mut lab, &(1001, 1, 7)));
        lab.heard.frontier = 1001 + 2 * wait;
        lab.heard.ended = false;
        let out = lab.finish();
        assert_eq!(out.iter().map(|m| row(&m.3)).collect::<Vec<_>>(), [(1000, vec![], vec![0, 1])], "{steps} steps");
    }
}

/// The frontier of a live source is the time of the machine, and is known after the first message or, while the book of
/// the source waits for the disk, is older than the arrival of the next.
#[test]
fn members_of_boards_with_a_clock_behind_are_waited_for() {
    let parameters = json!({"find": "trigger", "wait": "100 ms", "members": ["d1", "d2"]});
    let mut lab = Lab::new(1, Level::Memory, &GROUPS, parameters);
    let months = 8_000_000_000_000_000;
    for trigger in 0..40 {
        let time = lab.machine.now() - months;
        assert!(append(&mut lab, &(time, 0, trigger)));
        (0..20).for_each(|_| lab.step());
        let said = lab.machine.now() - 300_000_000 * (trigger % 3) as i64;
        lab.heard.frontier = lab.heard.frontier.max(said);
        (0..20).for_each(|_| lab.step());
        assert!(append(&mut lab, &(time + 1, 1, trigger)));
        (0..20).for_each(|_| lab.step());
    }
    let missing: Vec<_> = lab.finish().iter().map(|m| row(&m.3).1.len()).collect();
    assert_eq!(missing, [0; 40]);
}

#[test]
fn what_waits_is_bounded_and_a_group_too_large_is_counted() {
    let input: Vec<Sent> = (0..3000).map(|n| (n, (n % 5) as usize, n as u64)).collect();
    let (all, said) = undisturbed(&json!({"gap": "1 s", "pending": 1000}), &input, false);
    assert_eq!(all.iter().map(|m| row(&m.3).2.len()).collect::<Vec<_>>(), [1001, 1001]);
    assert_eq!((said["cut"].clone(), said["groups"].clone()), (json!(2), json!(2)));
    // 1001 messages of 170 B on average are more than a quarter of 256 KiB.
    let mut lab = Lab::new(1, Level::Memory, &GROUPS, json!({"gap": "1 s", "pending": 1000, "make": "messages"}));
    lab.live = 1 << 18;
    input.iter().for_each(|sent| assert!(append(&mut lab, sent)));
    assert!(lab.finish().is_empty());
    assert!(flow::Worker::statistics(lab.native().unwrap()).contains("\"large\":2"));
}

/// Groups of an input that never pauses and does not fit into its memory; slots may be killed. First and count of each.
fn of_much(parameters: Value, kills: bool) -> (Vec<(u64, u64)>, Lab) {
    let mut lab = Lab::new(1, Level::Memory, &GROUPS, parameters);
    let mut dice = Dice::new(3);
    // The runner holds what it has not seen from here on.
    lab.step_runner();
    let mut given = 0;
    for turn in 0.. {
        assert!(turn < 20_000, "it stands still: {given} messages");
        while given < 8_000 && lab.append(given, *b"f144", &[given as u8; 1000]) {
            given += 1;
        }
        lab.step();
        if kills && dice.one_in(20) && lab.native().is_some() {
            lab.kill_slot();
        }
        if given == 8_000 && lab.native().is_some() && lab.runner.as_ref().is_some_and(Work::is_idle) {
            break;
        }
    }
    let rows =
        lab.output().iter().map(|m| wire::bpgr::read(&m.3).map(|g| (g.first, u64::from(g.count))).unwrap()).collect();
    (rows, lab)
}

#[test]
fn an_open_group_kept_all_memory_of_its_input_which_then_stood_still() {
    // 8 MB of one group; the input has 1 MiB.
    let parameters = json!({"gap": "1 s"});
    let (groups, mut lab) = of_much(parameters.clone(), false);
    let said: Value = serde_json::from_str(&flow::Worker::statistics(lab.native().unwrap())).unwrap();
    // The newest of them are there still.
    assert!(said["full"].as_u64().is_some_and(|full| (10..40).contains(&full)), "{said}");
    assert!(groups.len() > 2, "{groups:?}");
    assert!(groups.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0), "{groups:?}");
    // The slot that starts anew comes to the same.
    let (again, lab) = of_much(parameters, true);
    assert!(lab.slots_dead > 10, "{}", lab.slots_dead);
    let least = again.len().min(groups.len());
    assert!(least > 2, "{again:?}");
    assert_eq!(again[again.len() - least..], groups[groups.len() - least..]);
}

#[test]
fn an_open_group_kept_all_memory_of_what_its_input_shows_which_then_stood_still() {
    let machine = Machine::new(1);
    let process = machine.start();
    let data = Data { media: process, folder: "/live/data".into(), drain: Drain::Caller };
    let streams = ["a", "b"];
    let mut writers = streams.map(|name| data.writer(name, &Options::memory(1 << 20)).unwrap());
    let inputs: Vec<_> =
        streams.map(|name| MergeInput { stream: name.to_owned(), wait: 10, ..MergeInput::default() }).into();
    // The view has room for much more than what it shows.
    let options =
        MergeOptions { stream: Options::memory(1 << 24), by: MergeBy::Time { slice: 100, ahead_max: 600_000_000_000 } };
    let mut merge = Merge::open(&data, INPUT, &inputs, &options).unwrap();
    let parameters = json!({"gap": "1 s"});
    let options = WorkOptions { parameters: parameters.to_string(), ..WorkOptions::memory(1, 1 << 22) };
    let mut work = Work::open(&data, STAGE, &[INPUT.into()], &options).unwrap();
    let from = work.ready(0, 0);
    work.send_parameters(0).unwrap();
    let stream = options.slot_options();
    let asked = SlotOptions { number: 0, inputs: vec![INPUT.into()], stream, from, by_key: false };
    let mut slot = Slot::open(&data, STAGE, asked).unwrap();
    let mut native = Native::new(&GROUPS, place(&data), &parameters).unwrap();
    let payload = [7; 1000];
    let mut time = 0;
    for turn in 0.. {
        assert!(turn < 5_000, "it stands still: {time} messages");
        for (number, writer) in writers.iter_mut().enumerate() {
            let origin = writer.origin(streams[number]).unwrap();
            while time < 8_000 {
                let meta =
                    Meta { source_time: time, origin, origin_seq: time as u64, schema: SchemaId(*b"f144"), flags: 0 };
                match writer.append(&meta, &payload) {
                    Ok(_) => time += 1,
                    Err(e) if e.is_full() => break,
                    Err(e) => panic!("{e}"),
                }
            }
        }
        machine.advance(1_000_000);
        let heard = vec![UpstreamState { frontier: time, ended: false, ..UpstreamState::NOTHING }; 2];
        merge.step(machine.now(), machine.now(), &heard).unwrap();
        work.step(machine.now(), &[UpstreamState { frontier: time, ended: false, ..UpstreamState::NOTHING }]).unwrap();
        while slot.step(&mut native, &mut |_| false).unwrap() == Stepped::Worked {
            work.step(machine.now(), &[UpstreamState { frontier: time, ended: false, ..UpstreamState::NOTHING }])
                .unwrap();
        }
        if time == 8_000 {
            break;
        }
    }
    let said: Value = serde_json::from_str(&flow::Worker::statistics(&mut native)).unwrap();
    assert!(said["full"].as_u64().is_some_and(|full| (3..40).contains(&full)), "{said}");
}

#[test]
fn mistakes_in_parameters_of_groups_are_all_reported() {
    let wrong = |parameters: Value| mistakes(&GROUPS, parameters);
    assert_eq!(wrong(json!({})), ["`gap` is missing; ; add a time, like `gap = \"1 us\"`"]);
    assert_eq!(
        wrong(json!({"find": "gap", "gap": "0 s", "window": "1 us", "complete": true, "prescale": 0})),
        [
            "wrong value of `window`; `find = \"gap\"` does not take it; remove it, or write another `find`",
            "wrong value of `gap`; it is not above zero; write a time, like `\"1 us\"`",
            "wrong value of `prescale`; 0 is out of range; write 1 to 1099511627776",
            "wrong value of `complete`; without `members` nothing is missing; name the origins that a group should have: \
             `members = [\"a\", \"b\"]`",
        ]
    );
    assert_eq!(
        wrong(json!({"find": "peak", "window": "1 us", "members": ["a", "b", "a"], "multiplicity": 4})),
        [
            "wrong value of `members`; `a` is there twice; name each once",
            "wrong value of `multiplicity`; it is 4, and there are 3 members; write how many different members a group has \
             at least",
        ]
    );
    assert_eq!(
        wrong(json!({"find": "trigger", "wrap": 1, "open": 0, "wait": "-1 s", "members": ["d{3..1}"]})).len(),
        4
    );
    assert_eq!(
        wrong(json!({"find": "trigger", "same": "tags"})),
        ["wrong value of `same`; unknown word `tags`; did you mean `tag`?"]
    );
    assert_eq!(wrong(json!({"gap": "1 us", "same": "tag"})).len(), 1);
    assert_eq!(wrong(json!({"find": "mine.py:pairs", "arguments": 3, "gap": "1 s"})).len(), 2);
    assert_eq!(wrong(json!({"find": "peaks"})), ["wrong value of `find`; unknown word `peaks`; did you mean `peak`?"]);
    let own = needs(&GROUPS, &json!({"find": "mine.py:pairs", "arguments": {"a": 1}}));
    assert_eq!(own.code.as_deref(), Some("mine.py:pairs"));
    let gap = needs(&GROUPS, &json!({"gap": "1 us"}));
    assert!(gap.alone.is_some() && gap.whole && gap.code.is_none());
}
