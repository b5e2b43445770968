//! `cargo xtask soak`: the full fault counts, and a report that is committed like a benchmark.
//!
//! Who takes part: Rust tests named `soak_*` and marked `#[ignore]`; every Python test, which finds `BEAMPORT_SOAK=1`
//! in its environment and uses its full counts; the simulation. A test prints one line that holds the word `injected`
//! with what it did and what was lost; those lines are the report. `soak WORD` runs those whose names hold the word: a
//! campaign alone, with a report of its own.

use std::fmt::Write;
use std::sync::Mutex;

use crate::build::{self, NEXUS};
use crate::part::Parts;
use crate::{Done, services, setup, test, tree};

/// Thirty times what `check` runs: about an hour of one core.
const SEEDS: &str = "10000";
/// A line of the report longer than this is a test that prints data.
const LINE_CHARS_MAX: usize = 300;

pub(crate) fn run(args: &[String]) -> Done {
    let word = match args {
        [] => None,
        [word] if !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') => {
            Some(word.as_str())
        }
        _ => return Err("soak takes at most one word, a part of the names of tests".into()),
    };
    services::need("soak")?;
    setup::run()?;
    services::fetch_kafka()?;
    services::fetch_web()?;
    let parts = Parts::default();
    let facts = Mutex::new(Vec::new());
    let note = |line: &str| {
        if line.contains("injected")
            && let Ok(mut facts) = facts.lock()
        {
            facts.push(line.trim().chars().take(LINE_CHARS_MAX).collect::<String>());
        }
    };

    let day = tree::ask("date", &["-u", "+%F"]);
    let path =
        tree::root().join(format!("bench/runs/soak-{day}{}.md", word.map(|w| format!("-{w}")).unwrap_or_default()));
    // After each part: hours that were stopped have said what they found.
    let save = || {
        let facts = facts.lock().unwrap_or_else(|broken| broken.into_inner());
        std::fs::create_dir_all(tree::root().join("bench/runs"))
            .and_then(|()| std::fs::write(&path, report(&day, &parts, &facts)))
            .map_err(|e| format!("{}: {e}", path.display()))
    };

    let built = parts.run("build", |_| build::programs_and_bench());
    let only = ["--", "--ignored", "--nocapture", word.unwrap_or("soak_")];
    let crates = || {
        parts.run("crates", |count| {
            let step = build::cargo(["test", "--no-fail-fast", "--profile", "soak"]).args(test::CRATES).args(only);
            test::cargo_tests(step, count, note)
        });
        save()?;
        parts.run("nexus", |count| {
            let step = build::cargo(["test", "--no-fail-fast", "--release", "-p", NEXUS]).args(only);
            test::cargo_tests(step, count, note)
        });
        save()
    };
    // Hours of one thread each: both have a core.
    let whole = || {
        if built && parts.run("wheel", |_| build::wheel()) {
            parts.run("python", |count| test::pytest("", Some(word.unwrap_or("")), count, note));
        }
        save()?;
        if word.is_none() {
            parts.run("simulate", |_| test::simulate(&["--seeds".into(), SEEDS.into()]));
        }
        save()
    };
    std::thread::scope(|scope| {
        let beside = scope.spawn(whole);
        let first = crates();
        first.and(beside.join().unwrap_or_else(|_| Err("a thread of the soak broke".into())))
    })?;

    eprintln!("report: {}", path.display());
    parts.finish("soak")
}

fn report(day: &str, parts: &Parts, facts: &[String]) -> String {
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let commit = tree::ask("git", &["describe", "--always", "--dirty"]);
    let kernel = tree::ask("uname", &["-srm"]);
    let mut text = format!("# Soak of {day}\n\n{}\n\nCommit {commit}, {kernel}, {cpus} cores.\n\n", parts.sum());
    text.push_str("| part | time | tests |\n|---|---|---|\n");
    for row in &*parts.rows() {
        let end =
            row.broken.as_deref().map(|why| format!("; {}", why.lines().next().unwrap_or(""))).unwrap_or_default();
        // Writing to a String does not fail.
        let _ = writeln!(text, "| {} | {:.0} s | {}{end} |", row.name, row.seconds, row.count);
    }
    text.push_str("\n## What was injected, and what was lost\n\n");
    if facts.is_empty() {
        text.push_str("No test said so.\n");
    }
    for fact in facts {
        let _ = writeln!(text, "* {fact}");
    }
    text
}
