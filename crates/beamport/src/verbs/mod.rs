//! The verbs that look at a data folder, change its runs, or make something from them.
//!
//! A verb is one file, with its arguments and its [`Verb`], and one line in `cli.rs`. It prints data to `out` and all
//! else to `err`, and returns the exit status: 0 done; 1 loss, damage or a difference was found; 2 a fault; 3 the
//! instrument still carries out the request. Nothing here keeps a figure of its own: all are derived from streams and
//! commits.

pub mod append;
pub mod begin_end;
pub mod boards;
pub mod cat;
mod cat_file;
pub mod check;
pub mod compare;
pub mod configure;
pub mod cutover;
pub mod doctor;
pub mod ess;
pub mod export;
pub(crate) mod forecast;
mod given;
pub mod hosts;
pub mod ls;
pub mod make;
pub mod members;
pub mod pins;
pub mod put;
pub mod replay;
pub mod slot;
pub mod table;
mod through;
pub mod top;
pub mod verify;
mod verify_file;
pub mod web;
pub mod worker;
pub mod write;

use crate::arguments::DataFolder;
use crate::edges::Registry;
use crate::{figures, log};
use flow::{Data, Fault, Interruption, Passes};
use settings::When;
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::level_filters::LevelFilter;

/// A verb with its arguments, which prints its answer.
pub trait Verb {
    /// Runs the verb: data go to `out`, all other text to `err`.
    fn run(&self, registry: &Registry, out: &mut dyn Write, err: &mut dyn Write) -> io::Result<ExitCode>;
}

/// A verb as the process that runs it. A verb whose threads print too implements this trait and not [`Verb`], so that no
/// thread waits for a lock of stdout; so does one that sets its log by its options.
pub trait Process {
    /// Begins the log and runs the verb, to its exit status.
    fn execute(&self, registry: &Registry) -> ExitCode;
}

impl<V: Verb> Process for V {
    fn execute(&self, registry: &Registry) -> ExitCode {
        log::begin(LevelFilter::WARN, None);
        // No lock on stderr: a stage that warns while the verb works would wait for it for ever.
        let (mut out, mut err) = (io::stdout().lock(), io::stderr());
        let result = self.run(registry, &mut out, &mut err);
        printed(result.and_then(|status| out.flush().map(|()| status)))
    }
}

/// The exit status of a verb; a fault is printed.
pub(crate) fn exit_status(answer: Result<ExitCode, Fault>) -> ExitCode {
    answer.unwrap_or_else(|fault| {
        log::print_warning(fault);
        ExitCode::from(2)
    })
}

/// The exit status of a verb that printed its answer, or could not.
pub(crate) fn printed(answer: io::Result<ExitCode>) -> ExitCode {
    match answer {
        Ok(status) => status,
        // The reader of the answer has closed the pipe (`beamport ls | head`).
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => exit_status(Err(unprinted(&error).hint("check where stdout goes"))),
    }
}

/// An answer that cannot be printed.
pub(crate) fn unprinted(error: &io::Error) -> Fault {
    Fault::new("cannot print the answer", error)
}

/// The result of a verb.
pub(crate) type Answer = Result<ExitCode, Interruption>;

/// Exit status where the instrument still carries out a request.
const PENDING: u8 = 3;

/// Prints the fault of an answer, if it is one.
pub(crate) fn ended(answer: Answer, err: &mut dyn Write) -> io::Result<ExitCode> {
    match answer {
        Ok(status) => Ok(status),
        Err(Interruption::Output(error)) => Err(error),
        Err(Interruption::Fault(fault)) => {
            // The exit status says it too, where nobody reads this.
            let _ = writeln!(err, "{fault}");
            Ok(ExitCode::from(if fault.passes == Passes::Pending { PENDING } else { 2 }))
        }
    }
}

/// The data folder that was meant, which must be there.
pub(crate) fn open(folder: &DataFolder) -> Result<Data, Fault> {
    let folder = folder.resolve()?;
    match std::fs::metadata(&folder) {
        Ok(found) if found.is_dir() => Ok(Data::on_disk(folder)),
        Ok(_) => Err(Fault::new(format!("`{}` is not a data folder", folder.display()), "it is a file")
            .hint("name the folder that holds the streams with `--data DIR`")),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            Err(Fault::new(format!("cannot read data folder `{}`", folder.display()), e)
                .hint("name another with `--data DIR`, or make one with `beamport demo`"))
        }
        Err(e) => Err(Fault::io(format!("cannot read data folder `{}`", folder.display()), &e)),
    }
}

/// Names what of the books cannot be read: the answer rests on the rest of them.
pub(crate) fn warn_of_damage(data: &Data, err: &mut dyn Write) -> Result<(), Interruption> {
    for damage in data.damage()? {
        writeln!(err, "warning: {damage}")?;
    }
    Ok(())
}

/// A point in time as ns since 1970 UTC.
pub(crate) fn nanoseconds(when: When, now: i64) -> i64 {
    match when {
        When::Now => now,
        When::At(time) => time.0,
        When::Ago(span) => now.saturating_sub(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)),
    }
}

/// One JSON value as one line.
pub(crate) fn json_line(out: &mut dyn Write, value: &impl serde::Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value).map_err(io::Error::from)?;
    out.write_all(b"\n")
}

/// Ctrl-C or a request to end: the first one sets the flag, a second one ends the program at once (with status 2): its
/// output may be stuck in a pipe that nobody empties.
pub(crate) struct Asked(Arc<AtomicBool>);

impl Asked {
    pub(crate) fn to_end() -> Result<Self, Fault> {
        Self::by(&[signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM])
    }

    /// Of a child of `up`, which asks it by SIGTERM. Ctrl-C in a terminal reaches all processes there.
    pub(crate) fn by_parent() -> Result<Self, Fault> {
        // SAFETY: sets the disposition of a signal; no handler runs.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
        Self::by(&[signal_hook::consts::SIGTERM])
    }

    fn by(signals: &[i32]) -> Result<Self, Fault> {
        let flag = Arc::new(AtomicBool::new(false));
        for &signal in signals {
            signal_hook::flag::register_conditional_shutdown(signal, 2, flag.clone())
                .and_then(|_| signal_hook::flag::register(signal, flag.clone()))
                .map_err(|e| Fault::new("cannot catch Ctrl-C", e))?;
        }
        crate::peer::unblock_stop_signals();
        Ok(Self(flag))
    }

    pub(crate) fn yes(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
