//! The command line: verbs, flags and their help. What was typed becomes what it means here, once.
//!
//! Data go to stdout and all else to stderr; the exit status is that of [`EXIT`]. `docs/reference/cli.md` is made from
//! these definitions; a test compares it.

mod reference;
mod values;

pub use reference::reference;

use crate::edges::Speed;
use clap::{Args, Parser, Subcommand};
use flow::Fault;
use flow::job::Layout;
use settings::units::{self, When};
use std::path::{Path, PathBuf};
use std::time::Duration;

const ABOUT: &str =
    "Moves data from scientific instruments to people, programs and NeXus files: live, complete, replayable.";
const EXIT: &str = "Exit status: 0 done; 1 done, and the answer is no (loss, damage); 2 an error (also a wrong file).\nEnvironment: BEAMPORT_DATA the data folder, NO_COLOR no colours.";
/// Largest whole number of a TOML file, into which the seed is written.
const TOML_MAX: u64 = i64::MAX as u64;

/// What was typed.
#[derive(Debug, Parser)]
#[command(name = "beamport", version, about = ABOUT, after_help = EXIT, max_term_width = 100, disable_help_subcommand = true)]
pub struct Cli {
    /// The verb.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show everything at once: a simulated measurement, from events to a NeXus file
    #[command(
        after_help = "Examples:\n  beamport demo\n  beamport demo --rate 5e6 --duration '30 s'\n  beamport demo --from measured.nxs --json"
    )]
    Demo(Demo),
    /// Run an instrument until its runs are sealed, or Ctrl-C (once: finish; twice: at once)
    #[command(after_help = "Examples:\n  beamport up amor.toml")]
    Up(Up),
    /// Begin a run
    #[command(
        after_help = "Examples:\n  beamport begin\n  beamport begin nickel-2 --metadata '{\"title\": \"Ni on glass\"}' --duration '10 min'"
    )]
    Begin(Begin),
    /// End a run
    #[command(after_help = "Examples:\n  beamport end\n  beamport end nickel-2 --stop 2026-03-01T12:00:00Z")]
    End(End),
    /// Change a worker while it runs, or say how it is
    #[command(
        after_help = "Examples:\n  beamport configure mean\n  beamport configure mean threshold=3 mode=fast\n  beamport configure mean --slots 4"
    )]
    Configure(Configure),
    /// Compare what a worker and its shadow made of the same messages (status 1 if it differs)
    #[command(
        after_help = "Examples:\n  beamport compare mean mean-new\n  beamport compare mean mean-new --last 10000 --json"
    )]
    Compare(Compare),
    /// Have a worker go on with the code of its shadow, and say from which message on
    #[command(after_help = "Examples:\n  beamport cutover mean-new")]
    Cutover(Cutover),
    /// Report every mistake of an instrument file (status 2), and warnings (status 0)
    #[command(after_help = "Examples:\n  beamport check amor.toml\n  beamport check amor.toml --show")]
    Check(Check),
    /// List streams and runs
    #[command(
        after_help = "Examples:\n  beamport ls\n  beamport ls --pins\n  beamport ls --data beamport-data/amor --json"
    )]
    Ls(Ls),
    /// Print the messages of a stream, or rows of a NeXus file by their times
    #[command(
        after_help = "Examples:\n  beamport cat detector --from '-10 s'\n  beamport cat devices --follow --json\n  beamport cat first.nxs --path /entry/sample --from 2026-03-01T12:00:00Z --to 2026-03-01T12:00:10Z"
    )]
    Cat(Cat),
    /// Append messages to a stream, as `cat --json` prints them: all, or none if one is wrong
    #[command(
        after_help = "Examples:\n  beamport append devices messages.json --data beamport-data/amor\n  beamport cat devices --json | beamport append devices - --data /tmp/copy"
    )]
    Append(Append),
    /// Watch streams, readers and runs live
    #[command(after_help = "Examples:\n  beamport top")]
    Top(Top),
    /// Make a NeXus file of a template and messages, without an instrument
    #[command(
        after_help = "Examples:\n  beamport make first.nexus.json messages.json --output first.nxs\n  beamport make nexus_structure.json messages.json --output ess.nxs --layout ess --start 2026-03-01T12:00:00Z"
    )]
    Make(Make),
    /// Write the file of a sealed run again, or a snapshot of one that goes on
    #[command(
        after_help = "Examples:\n  beamport write nickel-2 --output nickel-2.nxs\n  beamport write nickel-3 --output 'nickel-3-{snapshot}.nxs'"
    )]
    Write(Write),
    /// Play the streams of a run into another data folder, or one of them through code
    #[command(
        after_help = "Examples:\n  beamport replay nickel-2 --into /tmp/again --speed max\n  beamport replay nickel-2 --through mine.py:mean --speed max scale=2\n  beamport replay nickel-2 --through mean --file amor.toml --into /tmp/means"
    )]
    Replay(Replay),
    /// Read every byte of streams, or of a file, and name what is wrong
    #[command(
        after_help = "Examples:\n  beamport verify\n  beamport verify detector --json\n  beamport verify detector --repair\n  beamport verify ./amor_1.nxs"
    )]
    Verify(Verify),
    /// Let go of a reader that will not come back: nothing waits for it any more
    #[command(after_help = "Examples:\n  beamport forget detector analysis")]
    Forget(Forget),
    /// Look at this machine and say what would go wrong
    #[command(after_help = "Examples:\n  beamport doctor\n  beamport doctor amor.toml")]
    Doctor(Doctor),
    /// Print the tables of the reference pages
    #[command(hide = true)]
    Reference(Reference),
    /// A slot of a ready-made worker, started by `up`
    #[command(hide = true)]
    Slot(Slot),
}

/// The form of the answer.
#[derive(Clone, Copy, Debug, Args)]
pub struct Form {
    /// Answer as JSON on stdout, for programs
    #[arg(long)]
    pub json: bool,
}

/// The data folder.
#[derive(Clone, Debug, Args)]
pub struct DataFolder {
    /// Data folder of the instrument [default: BEAMPORT_DATA, else the only folder in ./beamport-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
}

impl DataFolder {
    /// The folder that is meant. That it holds streams is for the caller to see.
    pub fn resolve(&self) -> Result<PathBuf, Fault> {
        match (&self.data, std::env::var_os("BEAMPORT_DATA").filter(|value| !value.is_empty())) {
            (Some(folder), _) => Ok(folder.clone()),
            (None, Some(folder)) => Ok(folder.into()),
            (None, None) => only_folder(Path::new("beamport-data")),
        }
    }
}

/// The only folder in `parent`.
fn only_folder(parent: &Path) -> Result<PathBuf, Fault> {
    let mut folders: Vec<PathBuf> = match std::fs::read_dir(parent) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect(),
        Err(_) => Vec::new(),
    };
    folders.sort();
    match folders.as_slice() {
        [folder] => Ok(folder.clone()),
        [] => Err(Fault::new("no data folder is named", format!("there is none in ./{}", parent.display()))
            .hint("add `--data DIR`, or make one with `beamport demo`")),
        [first, ..] => {
            let names: Vec<_> =
                folders.iter().filter_map(|path| path.file_name()).map(|name| name.to_string_lossy()).collect();
            let cause = format!("./{} holds {}", parent.display(), names.join(", "));
            Err(Fault::new("it is not clear which data folder is meant", cause)
                .hint(format!("add `--data {}`", first.display())))
        }
    }
}

/// `beamport demo`
#[derive(Debug, Args)]
pub struct Demo {
    /// Events per second [default: the profile's own, 1e6 for amor]
    #[arg(long, value_name = "NUMBER", value_parser = values::rate)]
    pub rate: Option<f64>,
    /// Length of the run
    #[arg(long, value_name = "DURATION", default_value = "10 s", value_parser = values::length)]
    pub duration: Duration,
    /// Start of the random numbers: the same seed gives the same events
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=TOML_MAX))]
    pub seed: u64,
    /// Draw the events from the histogram measured in this NeXus file
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    pub from: Option<PathBuf>,
    /// Instrument to simulate: amor, or an ESS one like loki, estia, cspec
    #[arg(long, value_name = "NAME", default_value = "amor", value_parser = values::profile)]
    pub profile: String,
    /// Factor on the profile's event rate
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = values::factor)]
    pub scale: f64,
    /// Folder for streams and file; an earlier demonstration there is removed [default: ./beamport-data/demo]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Form of the report.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport up`
#[derive(Debug, Args)]
pub struct Up {
    /// The instrument file
    pub file: PathBuf,
    /// Form of the report.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport begin`
#[derive(Debug, Args)]
pub struct Begin {
    /// Name of the run [default: the next number]
    #[arg(value_parser = values::run_name)]
    pub run: Option<String>,
    /// What the file should say about the run, as a JSON object
    #[arg(long, value_name = "JSON", value_parser = values::json_object)]
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// Begin: `now`, a time, or `-10 s` for so long ago
    #[arg(long, value_name = "TIME", default_value = "now", value_parser = units::when, allow_hyphen_values = true)]
    pub start: When,
    /// Length of the run [default: until `beamport end`]
    #[arg(long, value_name = "DURATION", value_parser = values::length)]
    pub duration: Option<Duration>,
    /// Messages of the very time of its end belong to the run
    #[arg(long, requires = "duration")]
    pub inclusive: bool,
    /// Slots that a worker has from now on, `NAME=NUMBER`; once for each worker
    #[arg(long, value_name = "NAME=NUMBER", value_parser = values::slots)]
    pub slots: Vec<(String, u32)>,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Form of the answer.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport end`
#[derive(Debug, Args)]
pub struct End {
    /// Name of the run [default: the only open one]
    #[arg(value_parser = values::run_name)]
    pub run: Option<String>,
    /// End: `now`, a time, or `-10 s` for so long ago
    #[arg(long, value_name = "TIME", default_value = "now", value_parser = units::when, allow_hyphen_values = true)]
    pub stop: When,
    /// Messages of the very time of `--stop` belong to the run
    #[arg(long)]
    pub inclusive: bool,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Form of the answer.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport configure`
#[derive(Debug, Args)]
pub struct Configure {
    /// Name of the worker
    pub worker: String,
    /// Parameters to change; a value is JSON, or text; `null` takes one away
    #[arg(value_name = "NAME=VALUE", value_parser = values::parameter)]
    pub parameters: Vec<(String, serde_json::Value)>,
    /// How many slots it has from now on
    #[arg(long, value_name = "NUMBER")]
    pub slots: Option<u32>,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Form of the answer.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport compare`
#[derive(Debug, Args)]
pub struct Compare {
    /// Name of a worker, and of its stream
    pub old: String,
    /// Name of another with the same inputs
    pub new: String,
    /// Look only at so many of the newest messages of the first
    #[arg(long, value_name = "NUMBER")]
    pub last: Option<u64>,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Form of the answer.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport cutover`
#[derive(Debug, Args)]
pub struct Cutover {
    /// Name of the shadow
    pub shadow: String,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Form of the answer.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport check`
#[derive(Debug, Args)]
pub struct Check {
    /// The instrument file
    pub file: PathBuf,
    /// Print the resolved file, every value with the line it comes from
    #[arg(long)]
    pub show: bool,
    /// Form of the answer.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport ls`
#[derive(Debug, Args)]
pub struct Ls {
    /// List who reads instead: what each one keeps, and where it stands
    #[arg(long)]
    pub pins: bool,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Form of the answer.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport forget`
#[derive(Debug, Args)]
pub struct Forget {
    /// Name of the stream
    pub stream: String,
    /// Name of the reader, as `beamport ls --pins` has it
    pub reader: String,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Form of the answer.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport cat`
#[derive(Debug, Args)]
pub struct Cat {
    /// Name of the stream, or path of a file; with `--data` always a stream
    #[arg(value_name = "STREAM|FILE")]
    pub stream: String,
    /// Go on with new messages as they come
    #[arg(long)]
    pub follow: bool,
    /// First source time: a time, or `-10 s` for so long ago
    #[arg(long, value_name = "TIME", value_parser = units::when, allow_hyphen_values = true)]
    pub from: Option<When>,
    /// End of the source times, itself left out
    #[arg(long, value_name = "TIME", value_parser = units::when, allow_hyphen_values = true)]
    pub to: Option<When>,
    /// Print at most this many messages or rows
    #[arg(long, value_name = "NUMBER")]
    pub count: Option<u64>,
    /// Of a file: only this group and what is in it; once for each
    #[arg(long = "path", value_name = "GROUP")]
    pub paths: Vec<String>,
    /// Of a file: print each event, not only how many a pulse has
    #[arg(long)]
    pub events: bool,
    /// Print also messages that a power cut could still take back
    #[arg(long)]
    pub early: bool,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Form of the output.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport append`
#[derive(Debug, Args)]
pub struct Append {
    /// Name of the stream; it is made if it is not there
    pub stream: String,
    /// JSON: an array of messages, or one message after the other; `-` for stdin
    pub file: PathBuf,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Form of the answer.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport top`
#[derive(Debug, Args)]
pub struct Top {
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Form of the output: one object a second.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport make`
#[derive(Debug, Args)]
pub struct Make {
    /// Structure of the file
    pub template: PathBuf,
    /// Messages, as `beamport append` takes them, each with its `stream`; `-` for stdin
    pub data: PathBuf,
    /// The file to write; it must not exist
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Names and types of its datasets: nexus, or ess for those of the ESS file writer
    #[arg(long, value_name = "LAYOUT", default_value = "nexus", value_parser = values::layout)]
    pub layout: Layout,
    /// Start of the run [default: the first message]
    #[arg(long, value_name = "TIME", value_parser = units::when, allow_hyphen_values = true)]
    pub start: Option<When>,
    /// End of the run, itself left out [default: behind the last message]
    #[arg(long, value_name = "TIME", value_parser = units::when, allow_hyphen_values = true)]
    pub stop: Option<When>,
    /// Messages of the very time of `--stop` belong to the run
    #[arg(long, requires = "stop")]
    pub inclusive: bool,
    /// Form of the answer.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport write`
#[derive(Debug, Args)]
pub struct Write {
    /// Name of the run
    #[arg(value_parser = values::run_name)]
    pub run: String,
    /// The file to write, or the folder of files of frames; it must not exist. With `{snapshot}` in its name, filled in with the time: of a run that goes on what there is now
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Structure of the file [default: that of the run's first file]
    #[arg(long, value_name = "FILE")]
    pub template: Option<PathBuf>,
    /// HDF5 file that the file begins with a copy of [default: that of the run's first file; with `--template` none]
    #[arg(long = "static", value_name = "FILE", requires = "template")]
    pub static_file: Option<PathBuf>,
    /// What this sink of the run made [default: the first with a template, else the first of files of frames]
    #[arg(long, value_name = "NAME", conflicts_with = "template")]
    pub sink: Option<String>,
    /// Instrument file whose sink names the program, the modules and the template
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Form of the answer.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport replay`
#[derive(Debug, Args)]
pub struct Replay {
    /// Name of the run
    #[arg(value_parser = values::run_name)]
    pub run: String,
    /// Data folder to play into; it must not hold these streams [with --through: where the output stays]
    #[arg(long, value_name = "DIR", required_unless_present = "through")]
    pub into: Option<PathBuf>,
    /// Code that a stream goes through: FILE.py:NAME, PACKAGE.MODULE:NAME, a ready-made worker, or one of --file
    #[arg(long, value_name = "CODE")]
    pub through: Option<String>,
    /// The stream that goes through it [default: the worker's input, or the only stream]
    #[arg(long, value_name = "STREAM", requires = "through")]
    pub input: Option<String>,
    /// Instrument file that has --through as a worker
    #[arg(long, value_name = "FILE", requires = "through")]
    pub file: Option<PathBuf>,
    /// How many slots it has [default: as the instrument file says, or 1]
    #[arg(long, value_name = "NUMBER", requires = "through")]
    pub slots: Option<u32>,
    /// Parameters of the code; a value is JSON, or text
    #[arg(value_name = "NAME=VALUE", value_parser = values::parameter, requires = "through")]
    pub parameters: Vec<(String, serde_json::Value)>,
    /// How fast: 1x as it was, 10x ten times so, max as fast as the machine can
    #[arg(long, value_name = "SPEED", default_value = "1x")]
    pub speed: Speed,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Form of the report.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport verify`
#[derive(Debug, Args)]
pub struct Verify {
    /// Name of the stream, or a file that a sink made, or its list B3SUMS [default: all streams]
    #[arg(value_name = "STREAM|FILE")]
    pub stream: Option<String>,
    /// Make good what can be proven; damaged files are copied beside first
    #[arg(long)]
    pub repair: bool,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Form of the answer.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport doctor`
#[derive(Debug, Args)]
pub struct Doctor {
    /// Instrument file: whether this machine has what it asks for
    #[arg(conflicts_with = "data")]
    pub file: Option<PathBuf>,
    /// Data folder to look at as well
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Form of the report.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport slot`
#[derive(Debug, Args)]
pub struct Slot {
    /// What the mover says to it
    pub asked: String,
}

/// `beamport reference`
#[derive(Debug, Args)]
pub struct Reference {
    /// Which page: cli, instrument-file or workers
    #[arg(value_parser = ["cli", "instrument-file", "workers"], hide_possible_values = true)]
    pub page: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn all_verbs_answer_in_json_and_have_an_example() {
        for verb in Cli::command().get_subcommands().filter(|verb| !verb.is_hide_set()) {
            assert!(
                verb.get_arguments().any(|arg| arg.get_long() == Some("json")),
                "{} has no --json",
                verb.get_name()
            );
            assert!(
                verb.get_after_help().is_some_and(|help| help.to_string().starts_with("Examples:\n")),
                "{} has no example",
                verb.get_name()
            );
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
        let Verb::Cat(cat) = cli.verb else { panic!("{cli:?}") };
        assert_eq!((cat.from, cat.to), (Some(When::Ago(Duration::from_secs(10))), Some(When::Now)));
        assert!(Cli::try_parse_from(["beamport", "demo", "--duration", "10"]).is_err());
        assert!(Cli::try_parse_from(["beamport", "begin", "../up"]).is_err());
        assert!(Cli::try_parse_from(["beamport", "begin", "--metadata", "[1]"]).is_err());
    }

    #[test]
    fn the_only_data_folder_is_found() {
        let parent = std::env::temp_dir().join(format!("beamport-only-{}", std::process::id()));
        assert!(only_folder(&parent).is_err());
        std::fs::create_dir_all(parent.join("amor")).unwrap();
        assert_eq!(only_folder(&parent), Ok(parent.join("amor")));
        std::fs::create_dir_all(parent.join("loki")).unwrap();
        let fault = only_folder(&parent).unwrap_err();
        assert!(fault.cause.ends_with("holds amor, loki"), "{fault}");
        std::fs::remove_dir_all(&parent).unwrap();
    }
}
