//! `cargo xtask check`: what CI runs, cheap parts first. It needs root, because full disks are real ones here.

use crate::build;
use crate::part::Parts;
use crate::step::Step;
use crate::{Done, services, setup, test, tidy, tree};

/// Optimisation over the borders of crates takes two fifths of the time of all builds, and no test asks for it. All of
/// `check` is built alike, so HDF5 is compiled once.
const LTO: (&str, &str) = ("CARGO_PROFILE_RELEASE_LTO", "off");

pub(crate) fn run() -> Done {
    if std::env::var_os(LTO.0).is_none() {
        let own = std::env::current_exe().map_err(|e| format!("the path of xtask is not known: {e}"))?;
        return Step::new(own).args(["check"]).env(LTO.0, LTO.1).become_it();
    }
    services::need("check")?;
    let parts = Parts::default();
    if parts.run("setup", |_| setup::run()) {
        lint(&parts);
        let wheel = test::all(&parts, test::NO_SERVICES);
        parts.run("services", |count| {
            services::fetch_kafka()?;
            services::fetch_web()?;
            match wheel {
                true => test::pytest(test::SERVICES, None, count, |_| ()),
                false => Err(test::NO_WHEEL.into()),
            }
        });
        parts.run("reference", |_| tidy::check_reference(&tree::program("beamport")));
    }
    parts.finish("check")
}

fn lint(parts: &Parts) {
    parts.run("lock", |_| build::cargo(["fetch", "--quiet", "--locked"]).run());
    parts.run("format", |_| {
        build::cargo(["fmt", "--all", "--check"]).run()?;
        Step::new(tree::venv("ruff")).args(["format", "--quiet", "--check", "."]).run()
    });
    parts.run("tidy", |_| tidy::sources(tree::root()));
    parts.run("lint Python", |_| Step::new(tree::venv("ruff")).args(["check", "--quiet", "."]).run());
    parts.run("lint Rust", |_| {
        // In one profile, so that each dependency is checked once: the one for which HDF5 is compiled anyway.
        let strict = ["--workspace", "--all-targets", "--", "-D", "warnings"];
        build::cargo_release(&["clippy", "--quiet"])?.args(strict).run()
    });
    if build::has_deny() {
        parts.run("licences", |_| {
            // It looks at crates of all systems, also at those that are never compiled here.
            build::cargo(["fetch", "--locked"]).run()?;
            build::cargo(["deny", "--offline", "check", "licenses", "bans", "sources"]).run()
        });
    } else {
        parts.leave_out("licences", "cargo-deny is not installed");
    }
}
