//! Everything a developer or CI runs, as one program: `cargo xtask WORD`.
//!
//! It needs Rust, Python 3.11+ and a C/C++ compiler, and installs everything else into `.venv` and `target`.
//! Each word is a function, which runs [`step::Step`]s; [`part::Parts`] records their duration and result.

mod build;
mod check;
mod count;
mod fuzz;
mod part;
mod services;
mod setup;
mod soak;
mod step;
mod test;
mod tidy;
mod tree;

use std::process::ExitCode;

const HELP: &str = "\
usage: cargo xtask WORD

  setup            create or update .venv with the pinned Python packages
  demo [ARGS]      build and run `beamport demo ARGS`
  test             run all tests that need no root, Java or browser: Rust, Python, command line, system
  check            run what CI runs: lint, all tests, simulation (needs root; installs Debian packages)
  soak [WORD]      inject all faults, in tests whose names contain WORD; writes bench/runs/soak-DATE.md (needs root)
  simulate ARGS    simulate whole flows from seeds: --seed N, or --seeds COUNT
  bench [ARGS]     build and run `beamport-bench ARGS`
  kafka            fetch the Apache Kafka of the tests into target (needs mvn)
  web              fetch what checks the page into target (needs npm)
  fuzz [TARGET]    fuzz one target, or each for a minute (needs a nightly toolchain)
  tidy [--write]   check crate map, names, words, lengths and reference pages (--write renews lists and pages)
  fmt              format Rust and Python
";

/// The result of a word: success, or the error text (empty if already printed).
type Done<T = ()> = Result<T, String>;

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let word = words.next().unwrap_or_default();
    let rest: Vec<String> = words.collect();

    let done = match word.as_str() {
        "setup" => setup::run(),
        "demo" => build::demo(&rest),
        "test" => test::run(),
        "check" => check::run(),
        "soak" => soak::run(&rest),
        "simulate" => test::simulate(&rest),
        "bench" => build::bench(&rest),
        "kafka" => services::fetch_kafka(),
        "web" => services::fetch_web(),
        "fuzz" => fuzz::run(&rest),
        "tidy" => tidy::run(&rest),
        "fmt" => build::format(),
        "" | "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        other => Err(format!("unknown word `{other}`\n\n{HELP}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            if !text.is_empty() {
                eprintln!("error: {text}");
            }
            ExitCode::FAILURE
        }
    }
}
