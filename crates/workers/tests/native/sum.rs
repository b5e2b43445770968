//! A sum of arrays is to the last bit that of its messages, whichever process is killed.

use super::*;
use beamport_workers::SUM;
use wire::da00::{Da00, Variable};

/// An array of a history: a signal with errors over an axis, or one that does not fit.
fn array(n: u64) -> Vec<u8> {
    let values: Vec<f64> = (0..4).map(|k| (n * 7 + k) as f64 / 10.0).collect();
    let edges = [0.0, 1.0, 2.0, if n % 7 == 3 { 9.0 } else { 3.0 }];
    let shape = [4_i64];
    let variable = |name, unit, data: &'static str| (name, unit, data);
    let of = [variable("signal", "counts", "v"), variable("errors", "counts", "v"), variable("q", "1/angstrom", "e")];
    let variables: Vec<Variable<'_>> = of
        .into_iter()
        .map(|(name, unit, data)| Variable {
            name,
            unit: Some(unit),
            label: Some("a label"),
            source: None,
            axes: (&["q"]).into(),
            shape: (&shape).into(),
            data: if data == "v" { (&values).into() } else { (&edges).into() },
        })
        .collect();
    let mut out = Vec::new();
    let parts = Da00 { source_name: "made", timestamp: n as i64, data: variables.as_slice().into() };
    wire::da00::write(&mut out, &parts).unwrap();
    out
}

fn numbers(bytes: &[u8], name: &str) -> Vec<f64> {
    let array = wire::da00::read(bytes).unwrap();
    let variable = array.data.iter().find(|v| v.name == name).unwrap();
    assert_eq!(variable.label, Some("a label"));
    variable.data.typed::<f64>().unwrap().to_vec()
}

fn history(seed: u64) -> Counts {
    let mut dice = Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let level = dice.pick(&[Level::Memory, Level::Disk]);
    let mut lab = Lab::new(seed, level, &SUM, json!({}));
    // Small ones turn round, so that what is needed must be held.
    lab.live = dice.pick(&[1 << 17, 1 << 20]);
    let most = dice.range(20, 200);
    let mut input: Vec<u64> = Vec::new();
    let mut next = 0;
    let faulty = dice.range(100, 400) as u32;
    lab.live(&mut dice, faulty, |lab, dice| {
        input.truncate(lab.writer().next_sequence() as usize);
        for _ in 0..dice.range(1, 8) {
            if (input.len() as u64) < most && lab.append(next as i64, wire::da00::ID, &array(next)) {
                input.push(next);
                next += 1;
            }
        }
        input.len() as u64 == most
    });
    let aside = lab.aside();
    let (mut signal, mut errors) = (vec![0.0; 4], vec![0.0_f64; 4]);
    for (_, n) in input.iter().enumerate().filter(|(at, _)| !aside.contains_key(&(*at as u64))) {
        for (k, v) in numbers(&array(*n), "signal").into_iter().enumerate() {
            signal[k] += v;
            errors[k] = (errors[k] * errors[k] + v * v).sqrt();
        }
    }
    let output = lab.output();
    let last = &output.last().unwrap().3;
    assert_eq!(numbers(last, "signal"), signal, "seed {seed}: {level:?}, aside {aside:?}");
    assert_eq!(numbers(last, "errors"), errors, "seed {seed}");
    assert_eq!(numbers(last, "q"), [0.0, 1.0, 2.0, 3.0], "seed {seed}");
    let misfits = aside.values().filter(|reason| *reason == "axes").count();
    let killed = aside.values().filter(|reason| *reason == "killed").count();
    assert_eq!(misfits + killed, aside.len(), "seed {seed}: {aside:?}");
    lab.counts("messages", input.len())
}

#[test]
fn a_sum_has_each_array_once_whoever_is_killed() {
    let what = ("sums since start", "messages", "each array added once");
    lives("sum::a_sum_has_each_array_once_whoever_is_killed", HISTORIES, what, history);
}
