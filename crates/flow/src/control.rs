//! The client of the control socket of a running `beamport up`: a JSON object on one line, and one answer.
//!
//! Failure behaviour: a process that is not there, is stopped, or answers without end is a fault within the patience.

use crate::fault::Fault;
use crate::limits::ANSWER_BYTES_MAX;
use serde_json::Value;
use settings::units::duration_text;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A path to the socket in a data folder that is short enough for the system (108 bytes), however long the folder's
/// name is: through the open folder, which must stay open meanwhile.
#[expect(clippy::disallowed_methods, reason = "the folder is opened for a path, and nothing in it is read")]
pub fn short_path(folder: &Path) -> io::Result<(File, PathBuf)> {
    let open = File::open(folder)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/control.sock", open.as_raw_fd()));
    Ok((open, path))
}

/// The error of a command that took too long.
#[must_use]
pub fn unanswered(patience: Duration) -> Fault {
    let cause = format!("its process is stopped, or was busy for more than {}", duration_text(patience));
    Fault::new("the instrument did not answer", cause)
        .hint("run `beamport ls` to see whether a run began or ended; a pending command is dropped")
}

/// Asks the process that runs the instrument of a data folder.
///
/// # Errors
/// Nobody runs it, there is no answer in time, or the answer is an error.
pub fn ask(folder: &Path, request: &Value, patience: Duration) -> Result<Value, Fault> {
    let nobody = |e: io::Error| match e.kind() {
        ErrorKind::PermissionDenied => {
            let what = format!("no permission to control the instrument in `{}`", folder.display());
            Fault::new(what, e)
                .hint("its owner may write `group = \"NAME\"` in the instrument file, with a group that you are in")
        }
        _ => Fault::new(format!("no instrument is running in `{}`", folder.display()), e)
            .hint("start it with `beamport up FILE` in another terminal"),
    };
    let broken = |e: io::Error| match e.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => unanswered(patience),
        _ => Fault::new("the instrument did not answer", e),
    };
    let (_folder, short) = short_path(folder).map_err(nobody)?;
    let mut stream = UnixStream::connect(short).map_err(nobody)?;
    stream.set_read_timeout(Some(patience)).and_then(|()| stream.set_write_timeout(Some(patience))).map_err(broken)?;
    stream.write_all(format!("{request}\n").as_bytes()).map_err(broken)?;
    let mut line = String::new();
    BufReader::new(stream.take(ANSWER_BYTES_MAX)).read_line(&mut line).map_err(broken)?;
    let mut answer: Value =
        serde_json::from_str(&line).map_err(|e| Fault::new("the instrument's answer is not JSON", e))?;
    match answer.get("fault") {
        Some(fault) => Err(Fault::of_json(fault)),
        None => Ok(answer["ok"].take()),
    }
}
