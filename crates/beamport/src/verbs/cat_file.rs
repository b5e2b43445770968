//! `beamport cat FILE`: rows of a NeXus file by their times, read by `beamport-nexus cat`, which alone knows HDF5.
//!
//! The child prints to our own stdout and reports its faults on our stderr. A damaged file that crashes or hangs
//! libhdf5 does so in the child: here it is a fault.

use super::cat::Cat;
use super::{Answer, nanoseconds};
use crate::mover::program;
use flow::Fault;
use std::io::Write;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use store::{Media as _, Os};

/// Whether a file is named, not a stream: names of streams have no `/`.
pub(super) fn is_meant(asked: &Cat) -> bool {
    asked.data.data.is_none() && (asked.stream.contains('/') || Path::new(&asked.stream).is_file())
}

/// Has the rows printed.
pub(super) fn print(asked: &Cat, out: &mut dyn Write) -> Answer {
    let file = Path::new(&asked.stream);
    let refused = |cause: String| Fault::new(format!("cannot show {}", file.display()), cause);
    if asked.follow || asked.early {
        let fault = refused("`--follow` and `--early` are for streams".into());
        return Err(fault.hint("run the command again to see new rows").into());
    }
    // A pipe or a device might be waited for without end.
    match std::fs::metadata(file) {
        Ok(found) if found.is_file() => {}
        Ok(_) => return Err(refused("it is not a plain file".into()).into()),
        Err(e) => return Err(Fault::io(format!("cannot show {}", file.display()), &e).into()),
    }
    let now = Os.now();
    let mut command = Command::new(program()?);
    command.arg("cat");
    let times = [("--from", asked.from), ("--to", asked.to)];
    for (word, when) in times.into_iter().filter_map(|(word, when)| Some((word, when?))) {
        command.arg(word).arg(nanoseconds(when, now).to_string());
    }
    command.args(asked.paths.iter().map(|path| format!("--path={path}")));
    command.args(asked.count.map(|count| format!("--count={count}")));
    command.args(asked.events.then_some("--events")).args(asked.form.json.then_some("--json")).arg("--").arg(file);
    out.flush()?;
    let status = command.stdin(Stdio::null()).status();
    let status = status.map_err(|e| Fault::new("`beamport-nexus` does not start", e))?;
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(ExitCode::SUCCESS),
        // Its fault is on stderr.
        (Some(_), _) => Ok(ExitCode::from(2)),
        (None, Some(libc::SIGALRM)) => Err(refused("HDF5 finds no end in it".into())
            .hint("the file is damaged: write it again with `beamport write`")
            .into()),
        (None, _) => Err(refused(format!("HDF5 crashed: {status}"))
            .hint("the file is damaged: write it again with `beamport write`")
            .into()),
    }
}
