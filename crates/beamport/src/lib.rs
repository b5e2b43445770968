//! The beamport program: instrument file, command line, error text.

pub mod cli;
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
use cli::{Cli, Verb};
pub use edges::Registry;
use flow::Fault;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;
use tracing::level_filters::LevelFilter;

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
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(wrong) if wrong.use_stderr() => {
            let _ = wrong.print();
            return ExitCode::from(2);
        }
        // Help and version come here too.
        Err(asked) => return printed(asked.print().map(|()| ExitCode::SUCCESS)),
    };
    if let Verb::Ess(asked) = &cli.verb {
        return ended(match &asked.service {
            cli::EssService::Writer(asked) => ess_writer(asked),
            cli::EssService::Forwarder(asked) => ess_forwarder(asked),
        });
    }
    log::begin(level_of(&cli.verb), None);
    // These work with threads that write to stderr too: no lock is held meanwhile.
    match &cli.verb {
        Verb::Demo(asked) => return ended(demo::demo(asked, registry)),
        Verb::Up(asked) => return ended(up::up(asked, registry)),
        Verb::Web(asked) => return ended(verbs::web::run(asked)),
        Verb::Slot(slot) => return ended(mover::slot::run(&slot.asked, registry).map(|()| ExitCode::SUCCESS)),
        _ => {}
    }
    // No lock on stderr: a stage that warns while the verb works would wait for it for ever.
    let (mut out, mut err) = (io::stdout().lock(), io::stderr());
    let result = match cli.verb {
        Verb::Check(asked) => verbs::check::run(&asked, registry, &mover::template_check, &mut out, &mut err),
        Verb::Reference(reference) => {
            let page = match reference.page.as_str() {
                "cli" => cli::reference(),
                "workers" => file::workers_reference(registry),
                _ => file::reference(registry),
            };
            out.write_all(page.as_bytes()).map(|()| ExitCode::SUCCESS)
        }
        Verb::Begin(asked) => verbs::begin_end::begin(&asked, &mut out, &mut err),
        Verb::End(asked) => verbs::begin_end::end(&asked, &mut out, &mut err),
        Verb::Compare(asked) => verbs::compare::run(&asked, &mut out, &mut err),
        Verb::Cutover(asked) => verbs::cutover::run(&asked, &mut out, &mut err),
        Verb::Configure(asked) => verbs::configure::run(&asked, &mut out, &mut err),
        Verb::Get(asked) => verbs::put::get(&asked, registry, &mut out, &mut err),
        Verb::Put(asked) => verbs::put::put(&asked, registry, &mut out, &mut err),
        Verb::Ls(asked) => verbs::ls::run(&asked, &mut out, &mut err),
        Verb::Cat(asked) => verbs::cat::run(&asked, &mut out, &mut err),
        Verb::Append(asked) => verbs::append::run(&asked, &mut out, &mut err),
        Verb::Top(asked) => verbs::top::run(&asked, &mut out, &mut err),
        Verb::Make(asked) => verbs::make::run(&asked, &mut out, &mut err),
        Verb::Write(asked) => verbs::write::run(&asked, registry, &mut out, &mut err),
        Verb::Export(asked) => verbs::export::run(&asked, registry, &mut out, &mut err),
        Verb::Replay(asked) => verbs::replay::run(&asked, registry, &mut out, &mut err),
        Verb::Verify(asked) => verbs::verify::run(&asked, &mut out, &mut err),
        Verb::Forget(asked) => verbs::pins::forget(&asked, &mut out, &mut err),
        Verb::Boards(asked) => verbs::boards::run(&asked, registry, &mut out, &mut err),
        Verb::Doctor(asked) => verbs::doctor::run(&asked, registry, &mut out, &mut err),
        // Answered above.
        Verb::Demo(_) | Verb::Up(_) | Verb::Slot(_) | Verb::Web(_) | Verb::Ess(_) => Ok(ExitCode::SUCCESS),
    };
    printed(result.and_then(|status| out.flush().map(|()| status)))
}

/// `beamport ess writer`: its options also say how much is logged.
fn ess_writer(asked: &cli::EssWriter) -> Result<ExitCode, Fault> {
    let options = ess::WriterOptions::read(&asked.given, &here()?)?;
    log::begin(level_of_ess(options.level), None);
    options.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let programs = programs()?;
    if cfg!(feature = "kafka") {
        mover::version()?;
        warn_of_room(options.memory);
    }
    ess::writer(&options, &programs)
}

/// `beamport ess forwarder`: the same.
fn ess_forwarder(asked: &cli::EssForwarder) -> Result<ExitCode, Fault> {
    let options = ess::ForwarderOptions::read(&asked.given, &|name| std::env::var(name).ok(), &here()?)?;
    let open = |file: &std::path::PathBuf| {
        let opened = std::fs::File::options().create(true).append(true).open(file);
        opened.map_err(|error| Fault::io(format!("cannot write the log `{}`", file.display()), &error))
    };
    log::begin(level_of_ess(options.level), options.log_file.as_ref().map(open).transpose()?);
    options.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    ess::forwarder(&options, &programs()?)
}

fn here() -> Result<std::path::PathBuf, Fault> {
    std::env::current_dir().map_err(|error| Fault::io("cannot find the current folder", &error))
}

/// The programs that a service starts: those beside this one.
fn programs() -> Result<ess::Programs, Fault> {
    let me = std::env::current_exe().map_err(|error| Fault::io("our own program cannot be found", &error))?;
    Ok(ess::Programs { nexus: me.with_file_name("beamport-nexus"), beamport: me })
}

/// Warns where /dev/shm cannot hold what a job may take.
fn warn_of_room(memory: u64) {
    if let Some((free, _)) = room::shared().filter(|(free, _)| *free < memory) {
        let (free, needs) = (figures::bytes(free), figures::bytes(memory));
        tracing::warn!("/dev/shm has {free} free, a job takes up to {needs}: enlarge it, or lower --memory");
    }
}

/// What a verb logs where nobody asks for more: an instrument is a service.
fn level_of(verb: &Verb) -> LevelFilter {
    if matches!(verb, Verb::Up(_)) { log::level_of_service() } else { LevelFilter::WARN }
}

fn level_of_ess(asked: Option<ess::Level>) -> LevelFilter {
    match asked {
        Some(ess::Level::Error) => LevelFilter::ERROR,
        None | Some(ess::Level::Warn) => LevelFilter::WARN,
        Some(ess::Level::Info) => LevelFilter::INFO,
        Some(ess::Level::Debug) => LevelFilter::DEBUG,
        Some(ess::Level::Trace) => LevelFilter::TRACE,
    }
}

/// The exit status of a verb; a fault is printed.
fn ended(answer: Result<ExitCode, Fault>) -> ExitCode {
    answer.unwrap_or_else(|fault| {
        log::print_warning(fault);
        ExitCode::from(2)
    })
}

/// The exit status of a verb that printed its answer, or could not.
fn printed(answer: io::Result<ExitCode>) -> ExitCode {
    match answer {
        Ok(status) => status,
        // Whoever read the answer has seen enough (`beamport ls | head`).
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => ended(Err(unprinted(&error).hint("check where stdout goes"))),
    }
}

/// An answer that cannot be printed.
pub(crate) fn unprinted(error: &io::Error) -> Fault {
    Fault::new("cannot print the answer", error)
}
