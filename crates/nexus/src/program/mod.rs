//! The program `beamport-nexus` as a function, to which a program of your own adds modules ([`Module`]).
//!
//! It is the only program of beamport that links libhdf5.
//!
//! ```text
//! beamport-nexus write < JOB.json
//! beamport-nexus check TEMPLATE [--static FILE] [--json] [MODULES]
//! beamport-nexus histogram FILE [--path DATASET]
//! beamport-nexus cat FILE [--from NS] [--to NS] [--path GROUP]... [--count N] [--events] [--json]
//! beamport-nexus hash FILE...
//! beamport-nexus bench --data DIR --output FILE [--messages N] [--events N] [--rounds N]
//! MODULES: [--module FILE.py:CLASS]... [--folder DIR] [--python PROGRAM] [--time-max-ms N]
//! ```
//!
//! Data on stdout, text for people on stderr. While `write` waits for room its newest line on stdout is
//! `{"trouble": {"what", "cause", "hint"}}`, and `{"trouble": null}` when it resumes; a transient error is the last
//! such line. Exit status: 0 success, 1 a template with mistakes, 2 a transient error, 3 a permanent error (`write`;
//! its last line on stdout is `{"fault": {"what", "cause", "hint"}}`), such as a job of another version; with
//! `"incomplete": true` where a job that is `whole` lacks messages. It dies with its parent and ignores Ctrl-C.

mod python;
pub mod serve;

use crate::file::product::product;
use crate::hdf::h5::version;
use crate::hdf::hash_tree::Tree;
use crate::hdf::place;
use crate::limits::JOB_BYTES_MAX;
use crate::module::user::Module;
use crate::pace;
use crate::read::{cat, search, watch};
use crate::template::{self, wrong_modules};
use clap::{Args, Parser, Subcommand};
use flow::checked::{Checked, Level, Mistake};
use flow::job::{Layout, Word as _, Writer};
use flow::{Fault, Product, WriterJob};
use python::Python;
use serve::Ended;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Parser)]
#[command(name = "beamport-nexus", about = "Writes NeXus files; started by beamport.", disable_version_flag = true)]
struct Arguments {
    /// Print the versions of beamport and HDF5
    #[arg(long, short = 'V')]
    version: bool,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
    /// Write the file of a run; the job is read from stdin
    ///
    /// The job is one JSON object with the fields of `flow::WriterJob`: data, sink, run, inputs, work, output, flush, hold,
    /// whole, detached, snapshot, elsewhere and writer. `beamport` of the same version makes it.
    Write,
    /// Report all mistakes of a template
    Check {
        /// The template
        template: PathBuf,
        /// HDF5 file to copy into each new file first
        #[arg(long = "static", value_name = "FILE")]
        static_file: Option<PathBuf>,
        /// Names and types of datasets: nexus, or ess as the ESS file writer makes them
        #[arg(long, default_value = "nexus", value_parser = layout)]
        layout: Layout,
        /// Print the answer as JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        modules: Modules,
    },
    /// Print a measured histogram in the form that simulations read
    Histogram {
        /// NeXus or HDF5 file
        file: PathBuf,
        /// Path of the counts [default: search for them]
        #[arg(long)]
        path: Option<String>,
    },
    /// Print rows of a NeXus file, by time
    Cat(cat::Asked),
    /// Print size and BLAKE3 of files, one line of JSON each
    Hash {
        /// Files
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Measure how fast a stream is written to a file; prints one line of JSON per round
    Bench {
        /// Empty folder for the stream, in /dev/shm
        #[arg(long)]
        data: PathBuf,
        /// The file; removed at the end
        #[arg(long)]
        output: PathBuf,
        /// Number of messages
        #[arg(long, default_value_t = 4000)]
        messages: u64,
        /// Events per message; 0 for logs with one value per message
        #[arg(long, default_value_t = 12_400)]
        events: u32,
        /// Number of logs, with `--events 0`
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
        logs: u32,
        /// Number of rounds
        #[arg(long, default_value_t = 1)]
        rounds: u32,
        /// `bitshuffle-lz4` or `deflate`
        #[arg(long)]
        compression: Option<String>,
        /// Bytes of a chunk [default: computed]
        #[arg(long)]
        chunk: Option<usize>,
        /// Print `ready` when the stream is filled, and start when a line arrives on stdin
        #[arg(long)]
        together: bool,
    },
}

/// Modules in Python.
#[derive(Args)]
struct Modules {
    /// A Python class of modules, `FILE.py:CLASS` or `PACKAGE.MODULE:CLASS`; once for each
    #[arg(long = "module")]
    classes: Vec<String>,
    /// Folder of the Python files
    #[arg(long, default_value = ".")]
    folder: PathBuf,
    /// Python interpreter
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Longest time for one message, in milliseconds
    #[arg(long, default_value_t = 30_000, value_parser = clap::value_parser!(u64).range(1..))]
    time_max_ms: u64,
}

/// The modules that a writer loads, and the program's own.
fn modules(own: &[&'static dyn Module], writer: &Writer) -> Result<Vec<&'static dyn Module>, Fault> {
    let mut all = own.to_vec();
    if !writer.modules.is_empty() {
        let python = writer.python.as_deref().unwrap_or(Path::new("python3"));
        all.extend(Python::start(python, &writer.folder, &writer.modules, writer.time_max)?);
    }
    match wrong_modules(&all) {
        Some(fault) => Err(fault),
        None => Ok(all),
    }
}

/// The `main` of a program: runs the command line of this process, with `own` modules beside the built-in ones.
pub fn program(own: &[&'static dyn Module]) -> ExitCode {
    let status = run(own);
    store::printed::settle();
    status
}

fn run(own: &[&'static dyn Module]) -> ExitCode {
    let parent = parent();
    let arguments = Arguments::try_parse().unwrap_or_else(|e| misread(&e));
    if arguments.version {
        println!("beamport-nexus {} (HDF5 {})", env!("CARGO_PKG_VERSION"), version());
        return ExitCode::SUCCESS;
    }
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_target(false).without_time().with_ansi(false).init();
    let answer = match arguments.verb {
        None => Err(Fault::new("nothing to do", "").hint("beamport-nexus --help")),
        Some(Verb::Check { template, static_file, layout, json, modules }) => {
            let Modules { classes: modules, folder, python, time_max_ms } = modules;
            let (python, time_max) = (Some(python), Duration::from_millis(time_max_ms));
            let writer = Writer { static_file, layout, modules, folder, python, time_max, ..Writer::default() };
            check(&template, &writer, json, own)
        }
        Some(Verb::Cat(asked)) => cat::run(&asked).map(|()| ExitCode::SUCCESS),
        Some(Verb::Hash { files }) => hash(&files),
        Some(Verb::Histogram { file, path }) => histogram(&file, path.as_deref()),
        Some(Verb::Bench { data, output, messages, events, logs, rounds, compression, chunk, together }) => {
            let way = pace::Way { compression, chunk, together };
            let load = if events > 0 { pace::Load::Events(events) } else { pace::Load::Logs(logs) };
            pace::run(&data, &output, load, messages, rounds, &way).map(|all| {
                all.iter().for_each(|pace| println!("{}", serde_json::json!(pace)));
                ExitCode::SUCCESS
            })
        }
        Some(Verb::Write) => {
            die_with_parent();
            match job() {
                Ok(job) => write(&job, own, parent),
                Err(fault) => Ok(ExitCode::from(never(&fault))),
            }
        }
    };
    answer.unwrap_or_else(|fault| {
        eprintln!("{fault}");
        ExitCode::from(2)
    })
}

fn layout(text: &str) -> Result<Layout, String> {
    Layout::of(text).ok_or_else(|| "write nexus or ess".to_owned())
}

/// The job on stdin.
fn job() -> Result<WriterJob, Fault> {
    serde_json::from_reader(std::io::stdin().lock().take(JOB_BYTES_MAX)).map_err(|e| misfit(&e.to_string()))
}

/// A `beamport` that asks `write` for what this program does not know is another one, and would ask again.
fn misread(error: &clap::Error) -> ! {
    if !error.use_stderr() || std::env::args_os().nth(1).is_none_or(|verb| verb != "write") {
        error.exit();
    }
    let text = error.to_string();
    let cause = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
    std::process::exit(i32::from(never(&misfit(cause))))
}

fn misfit(cause: &str) -> Fault {
    Fault::new("`beamport-nexus` does not fit the `beamport` that started it", cause)
        .hint("install both from the same source: `pip install .`")
}

/// Reports a permanent fault; the exit status.
fn never(fault: &Fault) -> u8 {
    println!("{}", serde_json::json!({"fault": fault.to_json()}));
    eprintln!("{fault}");
    3
}

fn die_with_parent() {
    // SAFETY: sets the disposition of signals of this process, before any thread or process is started.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        // Ctrl-C reaches the whole group; what it means is for beamport to say.
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        // A file that may not grow is an error value.
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

fn write(job: &WriterJob, own: &[&'static dyn Module], parent: libc::pid_t) -> Result<ExitCode, Fault> {
    let beside = place::beside(&job.output);
    watch::report_by(move |fault| {
        // Nothing resumes a file that is not laid out yet.
        let _ = beside.as_ref().map(std::fs::remove_file);
        never(fault)
    });
    let modules = match modules(own, &job.writer) {
        Ok(modules) => modules,
        Err(fault) => return Ok(ExitCode::from(never(&fault))),
    };
    // A parent that died before the call above left us to another.
    let alive = move || self::parent() == parent;
    match serve::write(job, &modules, &alive) {
        Ok(answer) => {
            println!("{answer}");
            Ok(ExitCode::SUCCESS)
        }
        Err(Ended::Fault(fault)) => {
            transient(&fault);
            Err(fault)
        }
        Err(Ended::Permanent(fault)) => Ok(ExitCode::from(never(&fault))),
        Err(Ended::Incomplete(fault)) => {
            println!("{}", serde_json::json!({"fault": fault.to_json(), "incomplete": true}));
            eprintln!("{fault}");
            Ok(ExitCode::from(3))
        }
        Err(Ended::Broken(fault)) => {
            transient(&fault);
            eprintln!("{fault}");
            // SAFETY: ends the process without the destructors of libhdf5, which would crash after a failed write.
            unsafe { libc::_exit(2) }
        }
    }
}

/// Reports a fault after which the writer is started again.
fn transient(fault: &Fault) {
    println!("{}", serde_json::json!({"trouble": fault.to_json()}));
}

fn parent() -> libc::pid_t {
    // SAFETY: always succeeds.
    unsafe { libc::getppid() }
}

fn check(path: &Path, writer: &Writer, json: bool, own: &[&'static dyn Module]) -> Result<ExitCode, Fault> {
    let modules = modules(own, writer);
    let static_file = writer.static_file.as_deref();
    if static_file.is_some() {
        // A damaged file from outside harms this process, and not a writer later.
        cat::bound_memory();
        let path = path.to_path_buf();
        watch::report_by(move |fault| tell_checked(&path, json, &wrong_as_a_whole(fault.clone())));
    }
    let checked = match modules {
        Ok(modules) => template::Template::checked(path, static_file, &modules, writer.layout),
        Err(fault) => wrong_as_a_whole(fault),
    };
    Ok(ExitCode::from(tell_checked(path, json, &checked)))
}

/// A fault that has no place in the template.
fn wrong_as_a_whole(fault: Fault) -> Checked {
    let cause = if fault.cause.is_empty() { fault.what } else { format!("{}: {}", fault.what, fault.cause) };
    Checked { mistakes: vec![Mistake { cause, hint: fault.hint, ..Mistake::default() }], ..Checked::default() }
}

/// Prints what a check found; the exit status: 1 where no file can be written.
fn tell_checked(path: &Path, json: bool, checked: &Checked) -> u8 {
    if json {
        println!("{}", serde_json::to_string(checked).unwrap_or_default());
    } else {
        for mistake in &checked.mistakes {
            let level = match mistake.level {
                Level::Error => "error",
                Level::Warning => "warning",
            };
            let line = if mistake.line > 0 { format!(":{}", mistake.line) } else { String::new() };
            let place = format!("{}{line}{}", path.display(), mistake.pointer);
            eprintln!("{level}: {place}\ncause: {}\nhint:  {}\n", mistake.cause, mistake.hint);
        }
    }
    u8::from(checked.mistakes.iter().any(|mistake| mistake.level == Level::Error))
}

fn hash(files: &[PathBuf]) -> Result<ExitCode, Fault> {
    for file in files {
        let Product { file, size, blake3, .. } = product(file, Tree::default())?;
        let line = serde_json::json!({"file": file, "size": size, "blake3": blake3});
        writeln!(std::io::stdout(), "{line}").map_err(|e| Fault::new("the hash cannot be printed", e))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn histogram(path: &Path, dataset: Option<&str>) -> Result<ExitCode, Fault> {
    let measured = search::histogram(path, dataset)?;
    for remark in &measured.remarks {
        tracing::info!("{remark}");
    }
    let written = std::io::stdout().lock().write_all(&measured.to_bytes());
    written.map_err(|e| Fault::new("the histogram cannot be printed", e))?;
    Ok(ExitCode::SUCCESS)
}
