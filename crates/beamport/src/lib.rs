//! The beamport program: instrument file, command line, error text.

pub mod arguments;
mod beats;
pub mod cli;
pub mod code;
pub mod compare;
pub mod demo;
pub mod edges;
pub mod figures;
pub mod file;
pub mod limits;
mod log;
pub mod mover;
mod page;
mod peer;
pub mod report;
pub mod retention;
pub mod room;
mod simulated;
pub mod up;
pub mod verbs;

use clap::Parser as _;
use cli::Cli;
pub use edges::Registry;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// Runs the program with these kinds of sources and sinks: what was typed, to its exit status.
#[must_use]
pub fn run(registry: &Registry) -> ExitCode {
    if let Some(ended) = peer::serve_as_first() {
        return ended.unwrap_or_else(|e| {
            let _ = writeln!(io::stderr(), "{}", flow::Fault::io("cannot start", &e));
            ExitCode::from(2)
        });
    }
    room::raise_open_files();
    let status = run_verb(registry);
    store::printed::settle();
    status
}

fn run_verb(registry: &Registry) -> ExitCode {
    match Cli::try_parse() {
        Ok(cli) => cli.verb.process().execute(registry),
        Err(wrong) if wrong.use_stderr() => {
            let _ = wrong.print();
            ExitCode::from(2)
        }
        // Help and version come here too.
        Err(asked) => verbs::printed(asked.print().map(|()| ExitCode::SUCCESS)),
    }
}
