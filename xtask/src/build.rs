//! Building: which profile, and what goes where.
//!
//! HDF5 takes minutes and cargo keeps it per profile, so `beamport-nexus` is built, tested and linted in the release
//! profile alone; every other crate is tested in the dev profile, with its checks. librdkafka is a ready library, or
//! compiled once, in the release profile too: what speaks to Kafka is built and tested there. The client of EPICS is a
//! library of its own, made without cargo and loaded at run time.

use crate::step::Step;
use crate::{Done, setup, tree};

/// The crate that links HDF5.
pub(crate) const NEXUS: &str = "beamport-nexus";
/// The crate whose services need librdkafka.
const ESS: &str = "beamport-ess";
/// The crate that links Blosc.
pub(crate) const EPICS: &str = "beamport-epics";
/// The crates that link HDF5, librdkafka or Blosc. Cargo compiles the same for all of these as for the programs: with
/// fewer of them it would choose fewer features of `syn` and `cc`, and compile HDF5 and each crate with a derived type
/// once more.
const RELEASE: [&str; 9] = ["--release", "-p", NEXUS, "-p", "beamport-kafka", "-p", ESS, "-p", EPICS];
/// The crate that measures; it is not shipped.
pub(crate) const BENCH: &str = "beamport-bench";
/// The crate that is a Python module: built by maturin, tested through Python.
pub(crate) const PYTHON: &str = "beamport-python";

/// The cargo that runs us, with `args`.
pub(crate) fn cargo<'a>(args: impl IntoIterator<Item = &'a str>) -> Step {
    Step::new("cargo").args(args)
}

/// Arguments with which cargo builds a package that speaks to Kafka. Fetches librdkafka, where it is not there.
fn with_kafka(package: &str) -> Done<Vec<String>> {
    let script = ["packaging/librdkafka.py".into(), tree::target().display().to_string(), package.to_owned()];
    Step::new(tree::venv("python")).args(script).lines()
}

/// Runs `cargo WORDS` for the crates that are built, tested and linted in the release profile.
pub(crate) fn cargo_release(words: &[&str]) -> Done<Step> {
    Ok(cargo(words.iter().copied()).args(RELEASE).args(with_kafka(ESS)?))
}

/// Makes the client of EPICS, which programs load when they need it; says so where this machine cannot have it.
fn with_epics() -> Done {
    let script = ["packaging/epics.py".into(), tree::target().display().to_string()];
    Step::new(tree::venv("python")).args(script).run()
}

/// The programs that are shipped, in `target/release`.
fn programs() -> Done {
    cargo(["build", "--release", "-p", "beamport", "-p", NEXUS]).args(with_kafka("beamport")?).run()?;
    with_epics()?;
    stand_beside()
}

/// The programs that are shipped and the one that measures them, in `target/release`.
pub(crate) fn programs_and_bench() -> Done {
    let args = with_kafka("beamport")?;
    cargo(["build", "--release", "-p", "beamport", "-p", NEXUS, "-p", BENCH]).args(args).run()?;
    with_epics()?;
    stand_beside()
}

/// `beamport` looks for `beamport-nexus` beside itself, the one built for tests too.
fn stand_beside() -> Done {
    let debug = tree::target().join("debug");
    let link = debug.join(NEXUS);
    if std::fs::read_link(&link).is_ok() {
        return Ok(());
    }
    let made = std::fs::create_dir_all(&debug).and_then(|()| match std::fs::remove_file(&link) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => std::os::unix::fs::symlink(format!("../release/{NEXUS}"), &link),
    });
    made.map_err(|e| format!("{}: {e}", link.display()))
}

/// The wheel, made and installed into `.venv` as a user would, but with the tools that are already there.
pub(crate) fn wheel() -> Done {
    let install = ["-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--force-reinstall", "."];
    Step::new(tree::venv("python")).args(install).env("PATH", path()?).run()
}

/// `cargo xtask demo`: builds, then becomes `beamport demo ARGS`.
pub(crate) fn demo(args: &[String]) -> Done {
    setup::run()?;
    programs()?;
    // A check of the tree ends with the report; `beamport demo` shows its page.
    let ends = ["--no-page"].into_iter().filter(|flag| !args.iter().any(|arg| arg == flag));
    Step::new(tree::program("beamport")).args(["demo"]).args(ends).args(args).become_it()
}

/// `cargo xtask bench`: builds, then becomes `beamport-bench ARGS`.
pub(crate) fn bench(args: &[String]) -> Done {
    setup::run()?;
    programs_and_bench()?;
    Step::new(tree::program(BENCH)).args(args).become_it()
}

/// Formats everything.
pub(crate) fn format() -> Done {
    setup::run()?;
    cargo(["fmt", "--all"]).run()?;
    Step::new(tree::venv("ruff")).args(["format", "--quiet", "."]).run()
}

/// PATH with the repository's own environment first.
pub(crate) fn path() -> Done<std::ffi::OsString> {
    let before = std::env::var_os("PATH").unwrap_or_default();
    let parts = std::iter::once(tree::root().join(".venv/bin")).chain(std::env::split_paths(&before));
    std::env::join_paths(parts).map_err(|e| format!("PATH: {e}"))
}

/// Whether `cargo deny` is there; it is not worth compiling on every machine.
pub(crate) fn has_deny() -> bool {
    let asked = std::process::Command::new("cargo-deny").arg("--version").output();
    asked.is_ok_and(|answer| answer.status.success())
}
