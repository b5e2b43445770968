//! `beamport ess writer` and `beamport ess forwarder`: the options of the crate `ess` as flags.

use clap::{ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};
use ess::Given;

const WRITER_EXAMPLES: &str = "Examples:
  beamport ess writer --brokers localhost:9092 --job-pool-topic pool --command-status-topic status
  beamport ess writer --config-file writer.ini --data /var/lib/beamport";

const FORWARDER_EXAMPLES: &str = "Examples:
  beamport ess forwarder --config-topic k/commands --status-topic k/status --output-broker k
  beamport ess forwarder --config-file forwarder.ini --data /var/lib/beamport";

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
    #[command(version, display_name = "beamport", after_help = WRITER_EXAMPLES)]
    Writer(EssWriter),
    /// Send EPICS process variables to Kafka, with the flags, topics and commands of the ESS forwarder
    #[command(version, display_name = "beamport", after_help = FORWARDER_EXAMPLES)]
    Forwarder(EssForwarder),
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
