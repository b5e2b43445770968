//! Whole flows from seeds: `simulate --seed N` tells one history, `simulate --seeds COUNT` lives many.

use beamport_testkit::{Flow, Tally};
use std::process::ExitCode;
use std::time::Instant;

const HELP: &str = "usage: simulate --seed N | --seeds COUNT [--from N]";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let value = |flag: &str| -> Option<u64> {
        let at = words.iter().position(|w| w == flag)?;
        words.get(at + 1)?.parse().ok()
    };
    match (value("--seed"), value("--seeds")) {
        (Some(seed), None) => one(Flow::new(seed, true).run()),
        (None, Some(count)) => many(value("--from").unwrap_or(0), count),
        _ => {
            eprintln!("{HELP}");
            ExitCode::from(2)
        }
    }
}

fn one(answer: Result<Tally, String>) -> ExitCode {
    match answer {
        Ok(tally) => {
            println!("{tally:?}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn many(from: u64, count: u64) -> ExitCode {
    let begin = Instant::now();
    let mut sum = Tally::default();
    for seed in from..from + count {
        match Flow::new(seed, false).run() {
            Ok(tally) => sum.add(tally),
            Err(e) => {
                eprintln!("{e}");
                return ExitCode::FAILURE;
            }
        }
    }
    let rate = count as f64 / begin.elapsed().as_secs_f64();
    println!(
        "{count} seeds, {rate:.0} seeds/s: {} messages, {} more made by workers and merges, {} runs, {} rows, {} kills and power cuts; {} messages lost by policy, all accounted for",
        sum.messages, sum.made, sum.runs, sum.rows, sum.deaths, sum.lost
    );
    ExitCode::SUCCESS
}
