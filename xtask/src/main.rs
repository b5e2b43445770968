//! Everything a developer or CI runs, as one program: `cargo xtask WORD`.
//!
//! It needs Rust, Python 3.11+ and a C/C++ compiler; everything else it puts into `.venv` and `target`.
//! It reads as a story: a word is a function, a function runs [`step::Step`]s, and [`part::Parts`] keeps
//! what they took and how they ended.

mod build;
mod check;
mod count;
mod fuzz;
mod part;
mod setup;
mod soak;
mod step;
mod test;
mod tidy;
mod tree;

use std::process::ExitCode;

const HELP: &str = "\
usage: cargo xtask WORD

  setup            make or renew .venv with the pinned Python packages
  demo [ARGS]      build, then run `beamport demo ARGS`
  test             every test that needs no root: Rust, Python, command line, system
  check            what CI runs: lint, test, root-only tests, simulation (needs root)
  soak [WORD]      full fault counts, of tests whose names hold WORD; writes bench/runs/soak-DATE.md (needs root)
  simulate ARGS    whole flows from seeds: --seed N, or --seeds COUNT
  bench [ARGS]     build, then run `beamport-bench ARGS`
  fuzz [TARGET]    libFuzzer on one function, or a minute on each (needs a nightly toolchain)
  tidy [--write]   the rules of the house: crate map, names, lengths, reference pages (--write renews)
  fmt              format Rust and Python
";

/// What every word answers: done, or the text of what went wrong (empty: it has been said).
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
        "fuzz" => fuzz::run(&rest),
        "tidy" => tidy::run(&rest),
        "fmt" => build::format(),
        "" | "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        other => Err(format!("`{other}` is no word of xtask\n\n{HELP}")),
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
