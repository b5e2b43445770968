//! The command line: verbs, flags, their help and their values.
//!
//! Data go to stdout, all other text to stderr; [`EXIT`] explains the exit status. `docs/reference/cli.md` is generated
//! from these definitions; a test compares it.

mod ess;
mod reference;
mod values;

pub use ess::{Ess, EssForwarder, EssService, EssWriter};
pub use reference::{leaves, reference};

use crate::edges::Speed;
use clap::{Args, Parser, Subcommand};
use flow::Fault;
use flow::job::Layout;
use settings::units::{self, When};
use std::path::{Path, PathBuf};
use std::time::Duration;

const ABOUT: &str =
    "Moves data from scientific instruments to people, programs and NeXus files: live, complete, replayable.";
const EXIT: &str = "Exit status: 0 success; 1 completed, but loss, damage or a difference found; 2 error.\nEnvironment: BEAMPORT_DATA names the data folder, NO_COLOR turns colours off.";
/// Largest whole number of a TOML file, into which the seed is written.
const TOML_MAX: u64 = i64::MAX as u64;

/// The parsed command line.
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
    /// Run a demonstration: a simulated measurement, from events to a NeXus file
    #[command(
        after_help = "Examples:\n  beamport demo\n  beamport demo --rate 5e6 --duration '30 s'\n  beamport demo --from measured.nxs --json"
    )]
    Demo(Demo),
    /// Run an instrument until its runs are sealed or Ctrl-C is pressed (twice: stop at once); SIGTERM leaves runs open
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
    /// Show a running worker, change its parameters and slots, or change the PVs of a source
    #[command(
        after_help = "Examples:\n  beamport configure mean\n  beamport configure mean threshold=3 mode=fast\n  beamport configure mean --slots 4\n  beamport configure motors --add LAB:MOT:1.RBV ca:LAB:SE:T1 --remove 'LAB:OLD:*'"
    )]
    Configure(Configure),
    /// Read an EPICS PV, through the running instrument or without one
    #[command(after_help = "Examples:\n  beamport get LAB:SE:T1\n  beamport get ca:LAB:MOT:1.RBV --json")]
    Get(Get),
    /// Write a value to an EPICS PV, through the running instrument, which records it, or without one
    #[command(after_help = "Examples:\n  beamport put LAB:SE:T1:SETPOINT 4.2\n  beamport put ca:LAB:SHUTTER open\n  \
                      beamport put LAB:MOT:1.VAL -5 --timeout '2 min'\n  beamport put LAB:CURVE '[1, 2, 3.5]'")]
    Put(Put),
    /// Compare the outputs of a worker and its shadow, by message (status 1 if they differ)
    #[command(
        after_help = "Examples:\n  beamport compare mean mean-new\n  beamport compare mean mean-new --last 10000 --json"
    )]
    Compare(Compare),
    /// Switch a worker to its shadow's code; prints the first message affected
    #[command(after_help = "Examples:\n  beamport cutover mean-new")]
    Cutover(Cutover),
    /// Report all mistakes (status 2) and warnings (status 0) of an instrument file
    #[command(after_help = "Examples:\n  beamport check amor.toml\n  beamport check amor.toml --show")]
    Check(Check),
    /// List streams and runs, or print the report of a run
    #[command(after_help = "Examples:\n  beamport ls\n  beamport ls night\n  beamport ls --pins\n\
                      \x20 beamport ls --data beamport-data/amor --json")]
    Ls(Ls),
    /// Print messages of a stream, or rows of a NeXus file, by time
    #[command(
        after_help = "Examples:\n  beamport cat detector --from '-10 s'\n  beamport cat devices --follow --json\n  beamport cat first.nxs --path /entry/sample --from 2026-03-01T12:00:00Z --to 2026-03-01T12:00:10Z"
    )]
    Cat(Cat),
    /// Append messages in the form of `cat --json` to a stream; appends none if one is invalid
    #[command(
        after_help = "Examples:\n  beamport append devices messages.json --data beamport-data/amor\n  beamport cat devices --json | beamport append devices - --data /tmp/copy"
    )]
    Append(Append),
    /// Show streams, readers and runs, refreshed each second
    #[command(after_help = "Examples:\n  beamport top\n  beamport top --all\n  beamport top --once --json")]
    Top(Top),
    /// Make a NeXus file from a template and messages, without an instrument
    #[command(
        after_help = "Examples:\n  beamport make first.nexus.json messages.json --output first.nxs\n  beamport make nexus_structure.json messages.json --output ess.nxs --layout ess --start 2026-03-01T12:00:00Z"
    )]
    Make(Make),
    /// Write the file of a sealed run again, or a snapshot of an open run
    #[command(
        after_help = "Examples:\n  beamport write nickel-2 --output nickel-2.nxs\n  beamport write nickel-3 --output 'nickel-3-{snapshot}.nxs'"
    )]
    Write(Write),
    /// Write a stream of a sealed run to a file of GRETA (`.geb`) or HADES (`.hld`)
    #[command(after_help = "Examples:\n  beamport export first --stream d001 --output d001.geb")]
    Export(Export),
    /// Replay the streams of a run into another data folder, or one stream through code
    #[command(
        after_help = "Examples:\n  beamport replay nickel-2 --into /tmp/again --speed max\n  beamport replay nickel-2 --through mine.py:mean --speed max scale=2\n  beamport replay nickel-2 --through mean --file amor.toml --into /tmp/means"
    )]
    Replay(Replay),
    /// Read every byte of streams or of a file, and report damage
    #[command(
        after_help = "Examples:\n  beamport verify\n  beamport verify detector --json\n  beamport verify detector --repair\n  beamport verify ./amor_1.nxs"
    )]
    Verify(Verify),
    /// Delete a reader's saved position, so that sources stop waiting for it
    #[command(after_help = "Examples:\n  beamport forget detector analysis")]
    Forget(Forget),
    /// Report problems of this machine that would affect an instrument
    #[command(after_help = "Examples:\n  beamport doctor\n  beamport doctor amor.toml")]
    Doctor(Doctor),
    /// Send what the boards of an instrument's UDP sources would send; prints what they did as JSON
    #[command(after_help = "Examples:\n  beamport boards greta.toml --duration '10 s'")]
    Boards(Boards),
    /// Serve the page of a data folder: streams, runs, images and trends, also metrics; prints its URL
    #[command(after_help = "Examples:\n  beamport web\n  beamport web --data beamport-data/amor --listen 127.0.0.1:0")]
    Web(Web),
    /// Run a service in the place of one of ESS
    #[command(after_help = "Examples:\n  beamport ess writer --help")]
    Ess(Ess),
    /// Print the tables of the reference pages
    #[command(hide = true)]
    Reference(Reference),
    /// A slot of a ready-made worker, started by `up`
    #[command(hide = true)]
    Slot(Slot),
}

/// The output format.
#[derive(Clone, Copy, Debug, Args)]
pub struct Form {
    /// Print the answer as JSON
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
    /// The folder to use. The caller checks that it holds streams.
    pub fn resolve(&self) -> Result<PathBuf, Fault> {
        match (&self.data, std::env::var_os("BEAMPORT_DATA").filter(|value| !value.is_empty())) {
            (Some(folder), _) => Ok(folder.clone()),
            (None, Some(folder)) => Ok(folder.into()),
            (None, None) => only_folder(Path::new("beamport-data")),
        }
    }
}

impl DataFolder {
    /// Where nobody names a data folder: the one in which a file lies, if it lies in one.
    pub fn or_above(&self, file: &Path, is_data: &dyn Fn(&Path) -> bool) -> Self {
        if self.data.is_some() || std::env::var_os("BEAMPORT_DATA").is_some_and(|value| !value.is_empty()) {
            return self.clone();
        }
        // As it is named, and where links lead.
        let places = [std::path::absolute(file), file.canonicalize()].into_iter().flatten();
        let above = |place: PathBuf| place.ancestors().skip(1).find(|folder| is_data(folder)).map(Path::to_path_buf);
        Self { data: places.filter_map(above).next() }
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
        [] => Err(Fault::new("no data folder", format!("./{} holds none", parent.display()))
            .hint("add `--data DIR`, or make one with `beamport demo`")),
        [first, ..] => {
            let names: Vec<_> =
                folders.iter().filter_map(|path| path.file_name()).map(|name| name.to_string_lossy()).collect();
            let cause = format!("./{} holds {}", parent.display(), names.join(", "));
            Err(Fault::new("more than one data folder", cause).hint(format!("add `--data {}`", first.display())))
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
    /// Seed of the random numbers: equal seeds give equal events
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u64).range(..=TOML_MAX))]
    pub seed: u64,
    /// Draw the events from the histogram measured in this NeXus file
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    pub from: Option<PathBuf>,
    /// Instrument to simulate: amor, or one of ESS like loki, estia, cspec
    #[arg(long, value_name = "NAME", default_value = "amor", value_parser = values::profile)]
    pub profile: String,
    /// Factor on the profile's event rate
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = values::factor)]
    pub scale: f64,
    /// Folder for streams and file; removes an earlier demonstration there [default: ./beamport-data/demo]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport up`
#[derive(Debug, Args)]
pub struct Up {
    /// The instrument file
    pub file: PathBuf,
    /// Start no simulated boards: for those that `beamport boards` starts
    #[arg(long)]
    pub no_boards: bool,
    /// Delete what a changed `retain`, `retain_age` or `keep_free` deletes, without asking
    #[arg(long)]
    pub yes: bool,
    /// Have SIGTERM end the open runs, as Ctrl-C does; else they stay open, and the next start resumes them
    #[arg(long)]
    pub end_runs: bool,
    /// The process that started it, if that alone ends it: it dies with it, and takes no signals
    #[arg(long, hide = true)]
    pub parent: Option<u32>,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport begin`
#[derive(Debug, Args)]
pub struct Begin {
    /// Name of the run [default: the next number]
    #[arg(value_parser = values::run_name)]
    pub run: Option<String>,
    /// Metadata of the run for its file, as a JSON object
    #[arg(long, value_name = "JSON", value_parser = values::json_object)]
    pub metadata: Option<serde_json::Map<String, serde_json::Value>>,
    /// Start of the run: `now`, a time, or `-10 s` for 10 s ago
    #[arg(long, value_name = "TIME", default_value = "now", value_parser = units::when, allow_hyphen_values = true)]
    pub start: When,
    /// Length of the run [default: until `beamport end`]
    #[arg(long, value_name = "DURATION", value_parser = values::length)]
    pub duration: Option<Duration>,
    /// Include messages whose time is exactly the end of the run
    #[arg(long, requires = "duration")]
    pub inclusive: bool,
    /// New number of slots of a worker; once for each worker
    #[arg(long, value_name = "NAME=NUMBER", value_parser = values::slots)]
    pub slots: Vec<(String, u32)>,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport end`
#[derive(Debug, Args)]
pub struct End {
    /// Name of the run [default: the only open one]
    #[arg(value_parser = values::run_name)]
    pub run: Option<String>,
    /// End of the run: `now`, a time, or `-10 s` for 10 s ago
    #[arg(long, value_name = "TIME", default_value = "now", value_parser = units::when, allow_hyphen_values = true)]
    pub stop: When,
    /// Include messages whose time is exactly `--stop`
    #[arg(long)]
    pub inclusive: bool,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport configure`
#[derive(Debug, Args)]
pub struct Configure {
    /// Name of the worker or of the source
    pub stage: String,
    /// Parameters to change; a value is JSON, else text; `null` removes a parameter
    #[arg(value_name = "NAME=VALUE", value_parser = values::parameter)]
    pub parameters: Vec<(String, serde_json::Value)>,
    /// New number of slots
    #[arg(long, value_name = "NUMBER")]
    pub slots: Option<u32>,
    /// PVs that the source also reads, as in its key `pvs`; a table is JSON
    #[arg(long, value_name = "PV", num_args = 1.., conflicts_with_all = ["parameters", "slots"])]
    pub add: Vec<String>,
    /// Remove PVs of the source by name; `*` and `?` are wildcards
    #[arg(long, value_name = "PATTERN", num_args = 1.., conflicts_with_all = ["parameters", "slots"])]
    pub remove: Vec<String>,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport get`
#[derive(Debug, Args)]
pub struct Get {
    /// Name of the PV; a prefix `pva:` or `ca:` chooses the protocol, otherwise that of the source that lists it
    pub pv: String,
    /// How long to wait for the value
    #[arg(long, value_name = "DURATION", default_value = "5 s", value_parser = values::length)]
    pub timeout: Duration,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport put`
#[derive(Debug, Args)]
pub struct Put {
    /// Name of the PV; a prefix `pva:` or `ca:` chooses the protocol, otherwise that of the source that lists it
    pub pv: String,
    /// The value, read as the type of the PV asks; name or index of a choice; a list is JSON
    #[arg(allow_hyphen_values = true)]
    pub value: String,
    /// How long to wait until the record has processed; that of a motor takes as long as its motion
    #[arg(long, value_name = "DURATION", default_value = "5 s", value_parser = values::length)]
    pub timeout: Duration,
    /// Do not wait until the record has processed
    #[arg(long)]
    pub no_wait: bool,
    /// Print the value that the PV has then
    #[arg(long)]
    pub read: bool,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport compare`
#[derive(Debug, Args)]
pub struct Compare {
    /// Name of the worker
    pub old: String,
    /// Name of its shadow, or of another worker with the same inputs
    pub new: String,
    /// Compare only the newest N messages of the first worker
    #[arg(long, value_name = "NUMBER")]
    pub last: Option<u64>,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
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
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport check`
#[derive(Debug, Args)]
pub struct Check {
    /// The instrument file
    pub file: PathBuf,
    /// Print the resolved file, each value with the line that sets it
    #[arg(long)]
    pub show: bool,
    /// Print what a source reads in recorded datagrams: a capture (pcap, pcapng), or a text with hexadecimal digits, a
    /// datagram in each line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["show", "json"])]
    pub datagram: Option<PathBuf>,
    /// Source that reads the datagrams [default: all that can]
    #[arg(long, value_name = "NAME", requires = "datagram")]
    pub source: Option<String>,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport ls`
#[derive(Debug, Args)]
pub struct Ls {
    /// Print the report of this sealed run instead, as `up` does at its end
    #[arg(conflicts_with = "pins")]
    pub run: Option<String>,
    /// List readers instead: the position of each, and the data it keeps
    #[arg(long)]
    pub pins: bool,
    /// List all runs, and not only the newest 50 and those that are not done
    #[arg(long, conflicts_with_all = ["run", "pins"])]
    pub all: bool,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport forget`
#[derive(Debug, Args)]
pub struct Forget {
    /// Name of the stream
    pub stream: String,
    /// Name of the reader, as `beamport ls --pins` prints it
    pub reader: String,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport cat`
#[derive(Debug, Args)]
pub struct Cat {
    /// Name of a stream, or path of a file; with `--data` always a stream
    #[arg(value_name = "STREAM|FILE")]
    pub stream: String,
    /// Wait for new messages and print them
    #[arg(long)]
    pub follow: bool,
    /// First source time: a time, or `-10 s` for 10 s ago
    #[arg(long, value_name = "TIME", value_parser = units::when, allow_hyphen_values = true)]
    pub from: Option<When>,
    /// End of the source times (exclusive)
    #[arg(long, value_name = "TIME", value_parser = units::when, allow_hyphen_values = true)]
    pub to: Option<When>,
    /// Print at most this many messages or rows
    #[arg(long, value_name = "NUMBER")]
    pub count: Option<u64>,
    /// For a file: only this group and its members; once for each group
    #[arg(long = "path", value_name = "GROUP")]
    pub paths: Vec<String>,
    /// For a file: print each event, not only the number of events of each pulse
    #[arg(long)]
    pub events: bool,
    /// Also print messages that a power cut could still remove
    #[arg(long)]
    pub early: bool,
    /// With `--json`: print all values of arrays, not only the first 8 of long ones
    #[arg(long, requires = "json")]
    pub arrays: bool,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport append`
#[derive(Debug, Args)]
pub struct Append {
    /// Name of the stream, created if missing
    pub stream: String,
    /// JSON file, an array of messages or one message after another; `-` for stdin
    pub file: PathBuf,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport top`
#[derive(Debug, Args)]
pub struct Top {
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Show all streams, readers and sources, not only the twenty worst of each by loss, lag and fill
    #[arg(long)]
    pub all: bool,
    /// Print once and end, with the rates of one second; without it `--json` prints an object a second
    #[arg(long)]
    pub once: bool,
    /// Output format: JSON is one object a second.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport make`
#[derive(Debug, Args)]
pub struct Make {
    /// Template: structure of the file
    pub template: PathBuf,
    /// Messages in the form of `beamport append`, each with its `stream`; `-` for stdin
    pub data: PathBuf,
    /// The file to write; must not exist
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Names and types of datasets: nexus, or ess as the ESS file writer makes them
    #[arg(long, value_name = "LAYOUT", default_value = "nexus", value_parser = values::layout)]
    pub layout: Layout,
    /// Start of the run [default: at the first message]
    #[arg(long, value_name = "TIME", value_parser = units::when, allow_hyphen_values = true)]
    pub start: Option<When>,
    /// End of the run (exclusive) [default: after the last message]
    #[arg(long, value_name = "TIME", value_parser = units::when, allow_hyphen_values = true)]
    pub stop: Option<When>,
    /// Include messages whose time is exactly `--stop`
    #[arg(long, requires = "stop")]
    pub inclusive: bool,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport write`
#[derive(Debug, Args)]
pub struct Write {
    /// Name of the run
    #[arg(value_parser = values::run_name)]
    pub run: String,
    /// The file, or the folder of files of frames; must not exist. `{snapshot}` in the name stands for the time and allows an open run
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// Template of the file [default: that of the run's first file]
    #[arg(long, value_name = "FILE")]
    pub template: Option<PathBuf>,
    /// HDF5 file to copy into the new file first [default: that of the run's first file; with `--template` none]
    #[arg(long = "static", value_name = "FILE", requires = "template")]
    pub static_file: Option<PathBuf>,
    /// Sink whose file to write [default: the first with a template, else the first of files of frames]
    #[arg(long, value_name = "NAME", conflicts_with = "template")]
    pub sink: Option<String>,
    /// Instrument file whose sink gives the program, the modules and the template
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport export`
#[derive(Debug, Args)]
pub struct Export {
    /// Name of the run
    #[arg(value_parser = values::run_name)]
    pub run: String,
    /// Stream with messages of framing `geb` or `hadaq`
    #[arg(long, value_name = "NAME")]
    pub stream: String,
    /// The file, which must not exist: `NAME.geb` or `NAME.hld`
    #[arg(long, value_name = "FILE")]
    pub output: PathBuf,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport replay`
#[derive(Debug, Args)]
pub struct Replay {
    /// Name of the run
    #[arg(value_parser = values::run_name)]
    pub run: String,
    /// Data folder for the streams, which it must not hold yet; with `--through` it keeps the output
    #[arg(long, value_name = "DIR", required_unless_present = "through")]
    pub into: Option<PathBuf>,
    /// Code to run: FILE.py:NAME, PACKAGE.MODULE:NAME, a ready-made worker, or a worker of `--file`
    #[arg(long, value_name = "CODE")]
    pub through: Option<String>,
    /// Input of the code [default: the worker's input, or the only stream]
    #[arg(long, value_name = "STREAM", requires = "through")]
    pub input: Option<String>,
    /// Instrument file with the worker that `--through` names
    #[arg(long, value_name = "FILE", requires = "through")]
    pub file: Option<PathBuf>,
    /// Number of slots [default: that of the instrument file, or 1]
    #[arg(long, value_name = "NUMBER", requires = "through")]
    pub slots: Option<u32>,
    /// Parameters of the code; a value is JSON, else text
    #[arg(value_name = "NAME=VALUE", value_parser = values::parameter, requires = "through")]
    pub parameters: Vec<(String, serde_json::Value)>,
    /// Speed: 1x as recorded, 10x ten times faster, max as fast as possible
    #[arg(long, value_name = "SPEED", default_value = "1x")]
    pub speed: Speed,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport verify`
#[derive(Debug, Args)]
pub struct Verify {
    /// Name of a stream, or path of a sink's file or of its B3SUMS [default: all streams]
    #[arg(value_name = "STREAM|FILE")]
    pub stream: Option<String>,
    /// Repair what checksums can prove; keeps a copy of each damaged file
    #[arg(long)]
    pub repair: bool,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport doctor`
#[derive(Debug, Args)]
pub struct Doctor {
    /// Instrument file to check against this machine
    #[arg(conflicts_with = "data")]
    pub file: Option<PathBuf>,
    /// Data folder to check as well
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Remove live places of removed folders from shared memory: first bring back folders that were moved
    #[arg(long)]
    pub clean: bool,
    /// Output format.
    #[command(flatten)]
    pub form: Form,
}

/// `beamport boards`
#[derive(Debug, Args)]
pub struct Boards {
    /// Instrument file; its sources with a table `boards` are simulated
    pub file: PathBuf,
    /// How long they send [default: their key `duration`, else until Ctrl-C]
    #[arg(long, value_parser = values::length)]
    pub duration: Option<Duration>,
    /// The process that started it: it dies with it
    #[arg(long, hide = true)]
    pub parent: Option<u32>,
}

/// `beamport web`
#[derive(Debug, Args)]
pub struct Web {
    /// Address and port; with port 0 the system chooses one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8642")]
    pub listen: String,
    /// Allow an address that other machines reach, unencrypted
    #[arg(long)]
    pub insecure: bool,
    /// Let everybody view without a token
    #[arg(long)]
    pub open: bool,
    /// The process that started it: it dies with it, listens at stdin, and takes no SIGINT
    #[arg(long, hide = true)]
    pub parent: Option<u32>,
    /// Data folder.
    #[command(flatten)]
    pub data: DataFolder,
}

/// `beamport slot`
#[derive(Debug, Args)]
pub struct Slot {
    /// The mover's request, as JSON
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
        for (name, verb) in leaves() {
            // A service answers by Kafka, the page by HTTP; boards print nothing but JSON.
            let is_exempt = name.starts_with("ess ") || ["boards", "web"].contains(&name.as_str());
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
