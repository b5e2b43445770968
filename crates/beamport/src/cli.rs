//! The command line: the list of verbs. The file of a verb has its flags, their help, and what it does.
//!
//! Data go to stdout, all other text to stderr; [`EXIT`] explains the exit status. `docs/reference/cli.md` is generated
//! from these definitions; a test compares it.

mod reference;
mod shell;

pub use reference::{Reference, leaves, reference};
pub use shell::{Completion, Man};

use crate::verbs::{
    Process, append, begin_end, boards, cat, check, compare, configure, cutover, doctor, ess, export, hosts, ls, make,
    pins, put, replay, slot, top, verify, web, worker, write,
};
use crate::{demo, up};
use clap::{Parser, Subcommand};

const ABOUT: &str =
    "Moves data from scientific instruments to people, programs and NeXus files: live, complete, replayable.";
const EXIT: &str = "Exit status: 0 success; 1 completed, but loss, damage or a difference found; 2 error.\nEnvironment: BEAMPORT_DATA names the data folder, NO_COLOR turns colours off.";

/// The parsed command line.
#[derive(Debug, Parser)]
#[command(name = "beamport", version, about = ABOUT, after_help = EXIT, max_term_width = 100)]
pub struct Cli {
    /// The verb.
    #[command(subcommand)]
    pub verb: Verbs,
}

/// Makes the enum of verbs from their list: a variant is the word of a verb, and has its arguments.
macro_rules! verbs {
    ($($word:ident($arguments:ty),)+) => {
        /// The verbs, in the order of `--help`.
        // The comment of a variant would replace the help of its verb.
        #[allow(missing_docs)]
        #[derive(Debug, Subcommand)]
        pub enum Verbs {
            $($word($arguments),)+
        }

        impl Verbs {
            /// The verb as the process that runs it.
            #[must_use]
            pub fn process(&self) -> &dyn Process {
                match self {
                    $(Self::$word(verb) => verb,)+
                }
            }
        }
    };
}

verbs! {
    Demo(demo::Demo),
    Up(up::Up),
    Begin(begin_end::Begin),
    End(begin_end::End),
    Configure(configure::Configure),
    Get(put::Get),
    Put(put::Put),
    Compare(compare::Compare),
    Cutover(cutover::Cutover),
    Worker(worker::Worker),
    Retry(worker::Retry),
    Check(check::Check),
    Ls(ls::Ls),
    Cat(cat::Cat),
    Append(append::Append),
    Top(top::Top),
    Hosts(hosts::Hosts),
    Make(make::Make),
    Write(write::WriteFile),
    Export(export::Export),
    Replay(replay::Replay),
    Verify(verify::Verify),
    Forget(pins::Forget),
    Doctor(doctor::Doctor),
    Boards(boards::Boards),
    Web(web::Web),
    Ess(ess::Ess),
    Completion(Completion),
    Man(Man),
    Reference(Reference),
    Slot(slot::Slot),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;
    use settings::When;
    use std::time::Duration;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn all_verbs_answer_in_json_and_have_an_example() {
        for (name, verb) in leaves() {
            // A service answers by Kafka, the page by HTTP; boards print nothing but JSON; shells and `man` read none.
            let exempt = ["boards", "completion", "man", "web"];
            let is_exempt = name.starts_with("ess ") || exempt.contains(&name.as_str());
            assert!(
                is_exempt || verb.get_arguments().any(|arg| arg.get_long() == Some("json")),
                "{name} has no --json"
            );
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Examples:\n"), "{name} has no example");
        }
    }

    #[test]
    fn flags_are_long() {
        for verb in Cli::command().get_subcommands() {
            let short: Vec<_> =
                verb.get_arguments().filter_map(clap::Arg::get_short).filter(|short| *short != 'h').collect();
            assert!(
                short.is_empty() || ["make", "write"].contains(&verb.get_name()),
                "{} has -{short:?}",
                verb.get_name()
            );
        }
    }

    #[test]
    fn times_and_units_are_read() {
        let cli = Cli::try_parse_from(["beamport", "cat", "detector", "--from", "-10 s", "--to", "now"]).unwrap();
        let Verbs::Cat(cat) = cli.verb else { panic!("{cli:?}") };
        assert_eq!((cat.from, cat.to), (Some(When::Ago(Duration::from_secs(10))), Some(When::Now)));
        assert!(Cli::try_parse_from(["beamport", "demo", "--duration", "10"]).is_err());
        assert!(Cli::try_parse_from(["beamport", "begin", "../up"]).is_err());
        assert!(Cli::try_parse_from(["beamport", "begin", "--metadata", "[1]"]).is_err());
    }
}
