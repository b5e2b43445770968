//! The beamport program: instrument file, command line, error text.

pub mod bench;
pub mod cli;
pub mod demo;
pub mod file;
pub mod limits;
pub mod mover;
pub mod report;
pub mod units;
pub mod verbs;

use clap::Parser as _;
use cli::{Cli, Verb};
use flow::Fault;
use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

/// Runs the program: what was typed, to its exit status.
#[must_use]
pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(asked) => {
            // Help and version come here too, for stdout and with status 0; that nobody reads them is no error.
            let _ = asked.print();
            return ExitCode::from(if asked.use_stderr() { 2 } else { 0 });
        }
    };
    log();
    // These work with threads that write to stderr too: no lock is held meanwhile.
    match &cli.verb {
        Verb::Demo(asked) => return ended(demo::demo(asked)),
        Verb::Up(asked) => return ended(demo::run_file(&asked.file, asked.form.json)),
        _ => {}
    }
    let (mut out, mut err) = (std::io::stdout().lock(), std::io::stderr().lock());
    let result = match cli.verb {
        Verb::Bench(asked) => bench::run(&asked, &mut out, &mut err),
        Verb::Check(check) => {
            file::check(&check.file, check.show, check.form.json, &demo::template_check, &mut out, &mut err)
        }
        Verb::Reference(reference) => {
            let page = if reference.page == "cli" { cli::reference() } else { file::reference() };
            out.write_all(page.as_bytes()).map(|()| ExitCode::SUCCESS)
        }
        Verb::Begin(asked) => verbs::begin_end::begin(&asked, &mut out, &mut err),
        Verb::End(asked) => verbs::begin_end::end(&asked, &mut out, &mut err),
        Verb::Ls(asked) => verbs::ls::run(&asked, &mut out, &mut err),
        Verb::Cat(asked) => verbs::cat::run(&asked, &mut out, &mut err),
        Verb::Top(asked) => verbs::top::run(&asked, &mut out, &mut err),
        Verb::Write(asked) => verbs::write::run(&asked, &mut out, &mut err),
        Verb::Replay(asked) => verbs::replay::run(&asked, &mut out, &mut err),
        Verb::Verify(asked) => verbs::verify::run(&asked, &mut out, &mut err),
        Verb::Doctor(asked) => verbs::doctor::run(&asked, &mut out, &mut err),
        // Answered above.
        Verb::Demo(_) | Verb::Up(_) => Ok(ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| match error.kind() {
        // Whoever read the answer has seen enough (`beamport ls | head`).
        std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        _ => ExitCode::from(2),
    })
}

/// Text for people goes to stderr; `RUST_LOG` chooses how much.
fn log() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(colours);
    let _ = log.with_target(false).try_init();
}

/// The exit status of a verb; a fault is printed.
fn ended(answer: Result<ExitCode, Fault>) -> ExitCode {
    answer.unwrap_or_else(|fault| {
        eprintln!("{fault}");
        ExitCode::from(2)
    })
}
