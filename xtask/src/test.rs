//! `cargo xtask test`: every test that needs no root; also the parts that `check` and `soak` share with it.
//!
//! The tests of crates are cargo's; `tests/python` and `tests/system` are pytest's and use the wheel that was just
//! installed. A compiler warning fails the part it appears in.

use std::ffi::OsString;
use std::path::Path;

use crate::build::{self, EPICS, NEXUS, PYTHON};
use crate::count::{self, Count};
use crate::part::Parts;
use crate::step::Step;
use crate::{Done, setup, tree};

/// Tests of Python and of the whole system.
const FOLDERS: [&str; 2] = ["tests/python", "tests/system"];

/// Markers of tests that `test` leaves out; pyproject.toml says what they mean.
pub(crate) const NEED_NOTHING: &str = "not root and not services and not soak";
/// Markers of tests that `check` runs together with those; `services` is a part of its own.
pub(crate) const NO_SERVICES: &str = "not services and not soak";
pub(crate) const SERVICES: &str = "services and not soak";

/// Why Python tests did not run.
pub(crate) const NO_WHEEL: &str = "not run: there is no wheel to test";

/// The crates that are tested in the dev profile.
pub(crate) const CRATES: [&str; 5] = ["--workspace", "--exclude", NEXUS, "--exclude", PYTHON];

/// Processes of pytest: a test waits for other processes most of its time.
const WORKERS: &str = "6";

/// The most tests that failed beside others and are run again, alone. Of some thousand, load makes one or two late on a
/// machine with two cores; more than these have another cause.
const AGAIN_MAX: usize = 3;

pub(crate) fn run() -> Done {
    setup::run()?;
    let parts = Parts::default();
    all(&parts, NEED_NOTHING);
    parts.finish("test")
}

/// Builds and tests everything, with the Python tests that `markers` select. True if there is a wheel.
pub(crate) fn all(parts: &Parts, markers: &str) -> bool {
    // The programs come first: tests of crates start them.
    let built = parts.run("build", |_| build::programs_and_bench());
    parts.run("crates", |count| {
        let step = build::cargo(["test", "--no-fail-fast"]).args(CRATES).args(["--exclude", EPICS]);
        cargo_tests(step, count, |_| ())
    });
    // Clients of Kafka wait for brokers while the compiler works. A wheel of yesterday must not pass the tests of
    // today.
    let wheel = std::thread::scope(|scope| {
        let wheel = scope.spawn(|| built && parts.run("wheel", |_| build::wheel()));
        parts.run("nexus, kafka, epics", |count| {
            let step = build::cargo_release(&["test", "--no-fail-fast"])?;
            let mut again = Vec::new();
            cargo_tests(step, count, |line| again.extend(count::compiled(line).filter(|_| built).map(str::to_owned)))?;
            compiled_once(&again)
        });
        wheel.join().unwrap_or(false)
    });
    parts.run("python", |count| match wheel {
        true => pytest(markers, None, count, |_| ()),
        false => Err(NO_WHEEL.into()),
    });
    wheel
}

/// An error where dependencies were compiled again after the build. HDF5 alone takes minutes.
fn compiled_once(again: &[String]) -> Done {
    match again {
        [] => Ok(()),
        names => Err(format!(
            "compiled twice, because the build has other features of it or of what it uses: {}; `cargo tree -e \
             features` of both shows which; Cargo.toml says how `smallvec` was mended, xtask/src/build.rs `cc`",
            names.join(", ")
        )),
    }
}

/// Runs cargo's tests, adds up what they say, and refuses warnings.
pub(crate) fn cargo_tests(mut step: Step, count: &mut Count, mut also: impl FnMut(&str) + Send) -> Done {
    let mut warnings = 0_u64;
    let status = step.watch(|line| {
        if let Some(one) = count::of_cargo_line(line) {
            *count += one;
        }
        warnings += u64::from(count::is_warning(line));
        also(line);
    })?;
    step.judge(status)?;
    if warnings > 0 {
        return Err("the compiler warned; a warning is an error here".into());
    }
    Ok(())
}

/// Runs the Python tests that `markers` select (empty: all); `full` asks those whose names hold
/// its word for the counts of `soak`.
pub(crate) fn pytest(markers: &str, full: Option<&str>, count: &mut Count, mut also: impl FnMut(&str) + Send) -> Done {
    let report = tree::target().join("pytest.xml");
    let mut step = pytest_step(markers, &report)?.args(FOLDERS);
    if !markers.is_empty() {
        step = step.args(["-m", markers]);
    }
    if let Some(word) = full {
        // -rP prints what tests that passed said, at the beginning of lines: that is the report.
        step = step.args(["-v", "-rP", "-k", word]).env("BEAMPORT_SOAK", "1");
    } else {
        step = step.args(["-n", WORKERS, "--dist", "worksteal"]);
    }
    let status = step.watch(|line| also(line))?;
    // Status 5: every test was left out by its marker.
    if status == Some(5) {
        return Ok(());
    }
    let text = std::fs::read_to_string(&report).unwrap_or_default();
    *count = count::of_junit(&text).ok_or_else(|| format!("pytest wrote no report (status {status:?})"))?;
    let failed = count::failed_of_junit(&text);
    if full.is_none() && count.failed == failed.len() as u64 && (1..=AGAIN_MAX).contains(&failed.len()) {
        return pytest_again(markers, &failed, count);
    }
    step.judge(status)
}

/// pytest, which writes its report there.
fn pytest_step(markers: &str, report: &Path) -> Done<Step> {
    // A report of an earlier run must not be counted.
    let _ = std::fs::remove_file(report);
    let mut junit = OsString::from("--junitxml=");
    junit.push(report);
    let step = Step::new(tree::venv("python"))
        .args(["-m", "pytest", "-p", "no:cacheprovider"])
        .args([junit])
        .env("PATH", build::path()?)
        .env("VIRTUAL_ENV", tree::root().join(".venv"));
    // A part of beamport that could not be built is a failure, not a test left out.
    Ok(if markers == NEED_NOTHING { step } else { step.env("BEAMPORT_CHECK", "1") })
}

/// Runs tests that failed beside others once more, alone and one after the other. Those that pass now are counted as
/// passed, and named.
fn pytest_again(markers: &str, failed: &[String], count: &mut Count) -> Done {
    eprintln!("\n== {} failed beside others, and run again alone", failed.len());
    let report = tree::target().join("pytest-alone.xml");
    let mut step = pytest_step(markers, &report)?.args(failed);
    let status = step.watch(|_| ())?;
    let text = std::fs::read_to_string(&report).unwrap_or_default();
    let alone = count::of_junit(&text).ok_or_else(|| format!("pytest wrote no report (status {status:?})"))?;
    let again = count::failed_of_junit(&text);
    failed.iter().filter(|name| !again.contains(name)).for_each(|name| eprintln!("unsteady: {name}"));
    *count += Count { passed: alone.passed, unsteady: alone.passed, ..Count::default() };
    count.failed = count.failed.saturating_sub(alone.passed);
    step.judge(status)
}

/// Whole flows from seeds: `--seed N` repeats one, `--seeds COUNT` runs many.
pub(crate) fn simulate(args: &[String]) -> Done {
    // Cargo compiles nothing for it after the tests of the same crates.
    build::cargo(["build", "--quiet"]).args(CRATES).args(["--bin", "simulate"]).run()?;
    Step::new(tree::target().join("debug/simulate")).args(args).run()
}
