//! The sources as a runner sees them: counts, numbers, times, restarts and a stream without room.

use crate::tape::{Recorder, START, config, record, record_from};
use beamport_sim as sim;
use flow::{Resume, Step};
use serde_json::json;
use sim::pulse::{pulse_at, pulse_time};
use sim::{Building, ClockFault, Config};
use store::flags;

const SECOND: i64 = 1_000_000_000;

/// Events per pulse, whatever the messages.
fn pulses(tape: &Recorder) -> Vec<(i64, usize)> {
    let mut pulses: Vec<(i64, usize)> = Vec::new();
    for (meta, payload) in tape.of(b"ev44") {
        let message = wire::ev44::read(payload).unwrap();
        message.check().unwrap();
        assert_eq!(message.message_id as u64, meta.origin_seq);
        assert_eq!(message.reference_time.to_vec(), [meta.source_time]);
        match pulses.last_mut() {
            Some((time, events)) if *time == meta.source_time => *events += message.events(),
            _ => pulses.push((meta.source_time, message.events())),
        }
    }
    pulses
}

#[test]
fn every_pulse_is_there_and_its_events_are_poisson() {
    let config = config("amor", &[("rate", json!(20_000)), ("angles", json!([1.0]))]);
    let tape = record(&config, 100);
    let pulses = pulses(&tape);
    assert_eq!(pulses.len(), 1400);
    let first = pulse_at(START) + 1;
    assert!(pulses.iter().zip(first..).all(|((time, _), n)| *time == pulse_time(n)));
    let mean = 20_000.0 / 14.0;
    let total: usize = pulses.iter().map(|p| p.1).sum();
    assert!((total as f64 - mean * 1400.0).abs() < 4.0 * (mean * 1400.0).sqrt(), "{total}");
    // The dispersion of Poisson counts: sum (n - mean)^2 / mean is chi-squared with 1400 degrees of freedom.
    let chi: f64 = pulses.iter().map(|p| (p.1 as f64 - mean).powi(2) / mean).sum();
    assert!((chi - 1400.0).abs() < 4.0 * 2800_f64.sqrt(), "{chi}");
    for (_, payload) in tape.of(b"ev44") {
        let message = wire::ev44::read(payload).unwrap();
        assert!(message.pixel_id.iter().all(|p| (1..=32_768).contains(&p)));
        assert!(message.time_of_flight.iter().all(|t| (7_000_000..32_000_000).contains(&t)));
    }
}

#[test]
fn messages_end_with_the_pulse_or_with_their_size() {
    let keys = [("rate", json!(1_000_000)), ("message", json!("size")), ("angles", json!([1.0]))];
    let by_size = record(&config("amor", &keys), 2);
    let sizes: Vec<(i64, usize)> =
        by_size.of(b"ev44").map(|(m, p)| (m.source_time, wire::ev44::read(p).unwrap().events())).collect();
    for (i, (time, events)) in sizes.iter().enumerate() {
        let last_of_pulse = sizes.get(i + 1).is_none_or(|next| next.0 != *time);
        assert!(if last_of_pulse { *events <= 12_400 } else { *events == 12_400 });
    }
    let by_pulse = record(&config("amor", &[("angles", json!([1.0]))]), 2);
    assert_eq!(by_pulse.of(b"ev44").count(), 28);
    assert_eq!(pulses(&by_size), pulses(&by_pulse), "the same events, dealt out otherwise");
    let small = record(&config("loki", &[("scale", json!(0.001)), ("events_max", json!(100))]), 2);
    assert!(small.of(b"ev44").all(|(_, p)| wire::ev44::read(p).unwrap().events() <= 100));
}

#[test]
fn every_profile_has_its_rate() {
    for profile in sim::ess::PROFILES {
        // About 14,000 events a pulse: enough that 1 % is seven standard deviations of the sum.
        let mut config = Config::new(profile.name).unwrap();
        assert_eq!(config.rate, profile.events_per_second);
        config.scale = 200_000.0 / profile.events_per_second;
        let tape = record(&config, 20);
        let events: usize = pulses(&tape).iter().map(|p| p.1).sum();
        let rate = events as f64 / 20.0 / config.scale;
        assert!((rate / profile.events_per_second - 1.0).abs() < 0.01, "{}: {rate}", profile.name);
        let megabytes = tape.bytes() as f64 / 20.0 / config.scale / 1e6;
        assert!((megabytes / profile.megabytes_per_second - 1.0).abs() < 0.03, "{}: {megabytes} MB/s", profile.name);
        for (_, payload) in tape.of(b"ev44") {
            let message = wire::ev44::read(payload).unwrap();
            assert!(message.pixel_id.iter().all(|p| (1..=profile.pixels as i32).contains(&p)));
            assert!(message.time_of_flight.iter().all(|t| (0..71_428_571).contains(&t)));
        }
    }
}

#[test]
fn each_model_says_what_its_stream_takes_on_the_disk() {
    let cases: &[(&str, &[(&str, serde_json::Value)])] = &[
        ("amor", &[("angles", json!([1.0]))]),
        ("amor", &[("angles", json!([1.0])), ("rate", json!(20))]),
        ("amor-monitor", &[]),
        ("amor-devices", &[]),
        ("loki", &[("scale", json!(0.01)), ("events_max", json!(1))]),
        ("freia", &[("scale", json!(0.002)), ("metadata", json!(1.0))]),
        ("detector", &[("coincidences", json!(2000)), ("detectors", json!(4))]),
        ("cspec", &[("scale", json!(1.0))]),
        ("loki", &[("scale", json!(1.0))]),
        ("field", &[]),
        ("camera", &[("shape", json!([1, 1])), ("fps", json!(10_000))]),
        ("camera", &[("shape", json!([8, 8])), ("fps", json!(100))]),
        ("camera", &[("shape", json!([512, 512])), ("fps", json!(20))]),
        ("camera", &[("shape", json!([8, 8])), ("fps", json!(0.5))]),
        ("camera-metadata", &[]),
    ];
    for (model, keys) in cases {
        let config = config(model, keys);
        let seconds = if config.events_per_second() > 1e5 && *model != "camera" { 2 } else { 20 };
        let tape = record(&config, seconds);
        let taken: usize = tape.messages.iter().map(|(_, p)| p.len().next_multiple_of(8) + store::ENTRY_BYTES).sum();
        let rate = taken as f64 / seconds as f64;
        let said = sim::bytes_per_second(&config).unwrap();
        assert!((said / rate - 1.0).abs() < 0.2, "{model} {keys:?}: {said} B/s said, {rate} taken");
    }
}

#[test]
fn metadata_has_the_volume_that_is_asked_for() {
    for ratio in [0.0, 0.25, 1.0] {
        let tape = record(&config("freia", &[("scale", json!(0.002)), ("metadata", json!(ratio))]), 10);
        let events: usize = pulses(&tape).iter().map(|p| p.1).sum();
        let metadata: usize = tape.of(b"f144").map(|(_, p)| p.len()).sum();
        assert!(
            (metadata as f64 / (8 * events) as f64 - ratio).abs() <= 0.01 * ratio,
            "{ratio}: {metadata} of {events}"
        );
    }
}

#[test]
fn fast_pulses_are_made_in_bounded_steps() {
    // 500 million events a second: 35 million in each pulse, in messages of 1 Mi events.
    let config = Config::new("estia").unwrap();
    let mut source = sim::build(&config).unwrap();
    source.start(START, &Resume::default()).unwrap();
    let mut tape = Recorder::new();
    for _ in 0..3 {
        let before = tape.bytes();
        assert_eq!(source.step(START + SECOND / 10, &mut tape).unwrap(), Step::Again);
        assert!(
            tape.bytes() - before
                <= sim::limits::BYTES_PER_STEP + 8 * sim::limits::EVENTS_PER_MESSAGE_MAX as usize + 4096
        );
        tape.messages.retain(|_| false);
    }
}

#[test]
fn a_stream_without_room_loses_and_changes_nothing() {
    for model in ["amor", "amor-devices", "amor-monitor", "loki", "field", "camera", "camera-metadata"] {
        let mut config = Config::new(model).unwrap();
        (config.scale, config.metadata) = (0.01, 0.5);
        let free = record(&config, 5);
        let mut source = sim::build(&config).unwrap();
        source.start(START, &Resume::default()).unwrap();
        let mut narrow = Recorder::new();
        let (mut now, mut refused) = (START, 0);
        let mut reached = Vec::new();
        while now <= START + 5 * SECOND {
            // Room for one more message in two of three steps only.
            narrow.room = Some(usize::from(refused % 3 != 0));
            let step = source.step(now, &mut narrow).unwrap();
            reached.push((narrow.messages.len(), source.reached()));
            match step {
                Step::Again => (),
                Step::At(at) => {
                    if at - now == sim::limits::OFFER_AGAIN_NS {
                        refused += 1;
                    }
                    now = at;
                }
                Step::Ended => break,
            }
        }
        assert!(refused > 0, "{model}");
        // Time passed while it waited: what is there is the beginning of the same tape.
        assert!(!narrow.messages.is_empty() && narrow.messages.len() <= free.messages.len());
        assert_eq!(narrow.messages[..], free.messages[..narrow.messages.len()], "{model}");
        // Nothing comes from before the time that it has reached, and a source that never rests comes far.
        for (have, reached) in &reached {
            assert!(narrow.messages[*have..].iter().all(|(meta, _)| meta.source_time > *reached), "{model}");
        }
        assert!(reached.last().unwrap().1 > START, "{model}");
    }
}

#[test]
fn the_tape_does_not_depend_on_the_steps() {
    for model in ["amor", "amor-devices", "nmx", "camera", "camera-metadata"] {
        let mut config = Config::new(model).unwrap();
        config.scale = 0.01;
        let prompt = record(&config, 6);
        let mut source = sim::build(&config).unwrap();
        source.start(START, &Resume::default()).unwrap();
        let mut late = Recorder::new();
        source.step(START + SECOND / 2, &mut late).unwrap();
        // Five and a half seconds without a step: the pulses are made up for.
        while source.step(START + 6 * SECOND, &mut late).unwrap() == Step::Again {}
        assert_eq!(late.messages, prompt.messages, "{model}");
    }
}

#[test]
fn a_source_that_begins_late_begins_at_its_own_time() {
    let config = config("amor", &[("rate", json!(1000))]);
    let mut source = sim::build(&config).unwrap();
    source.start(START, &Resume::default()).unwrap();
    let mut tape = Recorder::new();
    let now = START + 3600 * SECOND;
    let next = source.step(now, &mut tape).unwrap();
    assert_eq!(next, Step::At(pulse_time(pulse_at(now) + 1)));
    assert_eq!(pulses(&tape).iter().map(|p| p.0).collect::<Vec<_>>(), [pulse_time(pulse_at(now))]);
}

#[test]
fn a_restart_goes_on_with_the_numbers_and_the_same_pulses() {
    for model in ["amor", "amor-monitor", "cspec", "field"] {
        let mut config = Config::new(model).unwrap();
        (config.scale, config.metadata) = (0.001, 0.2);
        let whole = record(&config, 9);
        let mut parts = record(&config, 4);
        let resume = parts.resume();
        let again = record_from(&config, START + 4 * SECOND, 5, &resume);
        assert!(!again.messages.is_empty());
        parts.append(again);
        assert_eq!(parts.by_name(), whole.by_name(), "{model}");
    }
}

#[test]
fn a_source_ends_when_it_was_told_to() {
    let config = config("loki", &[("scale", json!(0.001)), ("duration", json!("2 s"))]);
    let mut source = sim::build(&config).unwrap();
    source.start(START, &Resume::default()).unwrap();
    let mut tape = Recorder::new();
    assert_eq!(source.step(START + SECOND, &mut tape).unwrap(), Step::At(pulse_time(pulse_at(START + SECOND) + 1)));
    assert_eq!(source.step(START + 10 * SECOND, &mut tape).unwrap(), Step::Ended);
    assert_eq!(pulses(&tape).len(), 28);
    assert_eq!(source.step(START + 11 * SECOND, &mut tape).unwrap(), Step::Ended);
}

#[test]
fn equal_seeds_give_equal_data_and_others_do_not() {
    for model in ["amor", "skadi", "amor-monitor", "amor-devices", "field"] {
        let mut config = Config::new(model).unwrap();
        config.scale = 0.001;
        let first = record(&config, 3);
        assert_eq!(first.messages, record(&config, 3).messages, "{model}");
        config.seed += 1;
        assert_ne!(first.messages, record(&config, 3).messages, "{model}");
    }
}

#[test]
fn clock_faults_come_as_often_as_asked_and_numbers_stay_whole() {
    for (word, kind) in
        [("backward", ClockFault::Backward), ("repeat", ClockFault::Repeat), ("future", ClockFault::Future)]
    {
        let config =
            config("trex", &[("scale", json!(0.0001)), ("clock_fault", json!(word)), ("clock_fault_every", json!(10))]);
        assert_eq!(config.clock_fault, kind);
        let tape = record(&config, 20);
        let metas: Vec<_> = tape.of(b"ev44").map(|(m, _)| *m).collect();
        assert!(metas.iter().zip(0..).all(|(m, n)| m.origin_seq == n && m.flags & flags::SUSPECT == 0));
        let faults = metas
            .windows(2)
            .filter(|pair| match kind {
                ClockFault::Backward => pair[1].source_time < pair[0].source_time,
                ClockFault::Repeat => pair[1].source_time == pair[0].source_time,
                _ => pair[1].source_time == 1 << 62,
            })
            .count();
        assert_eq!(faults, 28, "{word}");
        // The payload tells the same time as the entry.
        assert!(
            tape.of(b"ev44").all(|(m, p)| wire::ev44::read(p).unwrap().reference_time.first() == Some(m.source_time))
        );
    }
}

#[test]
fn building_says_what_was_set() {
    let config = config("amor", &[("message", json!("size"))]);
    assert_eq!(config.message, Building::Size);
    assert_eq!(config.events_per_message(), 12_400);
}
