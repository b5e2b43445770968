//! `beamport ess writer` and `beamport ess forwarder`: the services of the crate `ess`, with its options as flags.
//!
//! An option sets what is logged: a service begins its log after it has read its options.

use super::{Process, exit_status};
use crate::edges::Registry;
use crate::{figures, log, mover, room};
use clap::{ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};
use ess::Given;
use flow::Fault;
use std::process::ExitCode;
use tracing::level_filters::LevelFilter;

const WRITER_EXAMPLES: &str = "Examples:
  beamport ess writer --brokers localhost:9092 --job-pool-topic pool --command-status-topic status
  beamport ess writer --config-file writer.ini --data /var/lib/beamport";

const FORWARDER_EXAMPLES: &str = "Examples:
  beamport ess forwarder --config-topic k/commands --status-topic k/status --output-broker k
  beamport ess forwarder --config-file forwarder.ini --data /var/lib/beamport";

/// `beamport ess`
#[derive(Debug, Args)]
#[command(about = "Run a service in the place of one of ESS", after_help = "Examples:\n  beamport ess writer --help")]
pub struct Ess {
    /// The service.
    #[command(subcommand)]
    pub service: EssService,
}

/// The services.
#[derive(Debug, Subcommand)]
pub enum EssService {
    /// Write NeXus files of jobs from Kafka, with the flags, topics and commands of kafka-to-nexus
    #[command(version, display_name = "beamport", after_help = WRITER_EXAMPLES)]
    Writer(EssWriter),
    /// Send EPICS process variables to Kafka, with the flags, topics and commands of the ESS forwarder
    #[command(version, display_name = "beamport", after_help = FORWARDER_EXAMPLES)]
    Forwarder(EssForwarder),
}

impl Process for Ess {
    fn execute(&self, _: &Registry) -> ExitCode {
        exit_status(match &self.service {
            EssService::Writer(asked) => ess_writer(asked),
            EssService::Forwarder(asked) => ess_forwarder(asked),
        })
    }
}

/// Makes the arguments of a service from its table of options: what was typed is read by the crate `ess`.
macro_rules! service {
    ($(#[$about:meta])* $name:ident, $options:ident) => {
        $(#[$about])*
        #[derive(Debug)]
        pub struct $name {
            /// Values by option.
            pub given: Given,
        }

        impl Args for $name {
            fn augment_args(command: Command) -> Command {
                command.args(ess::$options.iter().map(arg))
            }

            fn augment_args_for_update(command: Command) -> Command {
                Self::augment_args(command)
            }
        }

        impl FromArgMatches for $name {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
                Ok(Self { given: given(matches, &ess::$options) })
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
                *self = Self::from_arg_matches(matches)?;
                Ok(())
            }
        }
    };
}

service!(
    /// `beamport ess writer`
    EssWriter, OPTIONS
);
service!(
    /// `beamport ess forwarder`
    EssForwarder, FORWARDER_OPTIONS
);

fn arg(option: &ess::Opt) -> clap::Arg {
    let arg = clap::Arg::new(option.name).long(option.name).help(option.about);
    let arg = match option.short {
        Some(letter) => arg.short(letter),
        None => arg,
    };
    if option.value.is_empty() {
        return arg.action(ArgAction::SetTrue);
    }
    let arg = arg.value_name(option.value);
    let arg = match option.default {
        "" => arg,
        default => arg.default_value(default),
    };
    match option.many {
        true => arg.num_args(1..).allow_negative_numbers(true).action(ArgAction::Append),
        false => arg.overrides_with(option.name),
    }
}

/// The typed values by option; `true` for an option without a value.
fn given(matches: &ArgMatches, options: &[ess::Opt]) -> Given {
    let typed = options
        .iter()
        .filter(|option| matches.value_source(option.name) == Some(clap::parser::ValueSource::CommandLine));
    let values = |option: &ess::Opt| match option.value {
        "" => vec!["true".to_owned()],
        _ => matches.get_many::<String>(option.name).into_iter().flatten().cloned().collect(),
    };
    typed.map(|option| (option.name.to_owned(), values(option))).collect()
}

/// `beamport ess writer`: its options also say how much is logged.
fn ess_writer(asked: &EssWriter) -> Result<ExitCode, Fault> {
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
fn ess_forwarder(asked: &EssForwarder) -> Result<ExitCode, Fault> {
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

fn level_of_ess(asked: Option<ess::Level>) -> LevelFilter {
    match asked {
        Some(ess::Level::Error) => LevelFilter::ERROR,
        None | Some(ess::Level::Warn) => LevelFilter::WARN,
        Some(ess::Level::Info) => LevelFilter::INFO,
        Some(ess::Level::Debug) => LevelFilter::DEBUG,
        Some(ess::Level::Trace) => LevelFilter::TRACE,
    }
}
