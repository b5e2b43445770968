//! `beamport ess writer`: the options of the crate `ess` as flags.

use clap::{ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};
use ess::{Given, OPTIONS};

const EXAMPLES: &str = "Examples:
  beamport ess writer --brokers localhost:9092 --job-pool-topic pool --command-status-topic status
  beamport ess writer --config-file writer.ini --data /var/lib/beamport";

/// `beamport ess`
#[derive(Debug, Args)]
pub struct Ess {
    /// The service.
    #[command(subcommand)]
    pub service: EssService,
}

/// The services.
#[derive(Debug, Subcommand)]
pub enum EssService {
    /// Write NeXus files of jobs from Kafka, with the flags, topics and commands of kafka-to-nexus
    #[command(version, display_name = "beamport", after_help = EXAMPLES)]
    Writer(EssWriter),
}

/// `beamport ess writer`: what was typed; the crate `ess` reads it.
#[derive(Debug)]
pub struct EssWriter {
    /// Values by option.
    pub given: Given,
}

impl Args for EssWriter {
    fn augment_args(command: Command) -> Command {
        let arg = |option: &ess::Opt| {
            let arg = clap::Arg::new(option.name).long(option.name).value_name(option.value).help(option.about);
            let arg = match option.short {
                Some(letter) => arg.short(letter),
                None => arg,
            };
            let arg = match option.default {
                "" => arg,
                default => arg.default_value(default),
            };
            match option.many {
                true => arg.num_args(1..).allow_negative_numbers(true).action(ArgAction::Append),
                false => arg.overrides_with(option.name),
            }
        };
        command.args(OPTIONS.iter().map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for EssWriter {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let typed = |name: &str| matches.value_source(name) == Some(clap::parser::ValueSource::CommandLine);
        let values = |name: &str| matches.get_many::<String>(name).into_iter().flatten().cloned().collect();
        let names = OPTIONS.iter().map(|option| option.name).filter(|name| typed(name));
        Ok(Self { given: names.map(|name| (name.to_owned(), values(name))).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
