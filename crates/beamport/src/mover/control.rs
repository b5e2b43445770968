//! Commands from other terminals: a Unix socket in the data folder, mode 0600, one JSON object a line and one answer.
//!
//! Everything that changes a run goes this way, and the mover alone acts on it. Each command becomes a message of the
//! stream `control`. Limits: a line of 64 KiB, five seconds to say it; a client that says nonsense is told so.

use flow::Fault;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Bytes of a command: metadata of a run is text that people write.
const COMMAND_BYTES_MAX: u64 = 64 << 10;
/// Time to say a command or to take an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// One command and where its answer goes.
pub struct Command {
    /// What was asked: `{"command": "begin", ...}`.
    pub request: Value,
    /// Takes the answer.
    pub answer: Sender<Result<Value, Fault>>,
}

/// The socket of a running mover; removed when dropped.
pub struct Control {
    path: PathBuf,
    /// Commands as they come.
    pub commands: Receiver<Command>,
    stop: Arc<AtomicBool>,
    handle: Option<std::thread::JoinHandle<()>>,
}

/// A path to the socket that is short enough for the system (108 bytes), however long the folder's name is: through
/// the open folder itself.
fn short_path(folder: &Path) -> std::io::Result<(std::fs::File, PathBuf)> {
    use std::os::fd::AsRawFd;
    let open = std::fs::File::open(folder)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/control.sock", open.as_raw_fd()));
    Ok((open, path))
}

impl Control {
    /// Listens in the data folder. Only the holder of the stream `runs` may call it: a socket found there is stale.
    pub fn listen(folder: &Path) -> Result<Self, Fault> {
        let path = folder.join("control.sock");
        let fault = |e: std::io::Error| Fault::new(format!("control socket `{}` cannot be made", path.display()), e);
        let _ = std::fs::remove_file(&path);
        let (_folder, short) = short_path(folder).map_err(fault)?;
        let listener = UnixListener::bind(&short).map_err(fault)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).map_err(fault)?;
        listener.set_nonblocking(true).map_err(fault)?;
        let (sender, commands) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let handle = std::thread::Builder::new().name("control".into()).spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        if let Err(e) = serve(&stream, &sender) {
                            tracing::debug!("a command was not answered: {e}");
                        }
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(10)),
                }
            }
        });
        let handle = handle.map_err(fault)?;
        Ok(Self { path, commands, stop, handle: Some(handle) })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = std::fs::remove_file(&self.path);
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}

fn serve(stream: &UnixStream, sender: &Sender<Command>) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(COMMAND_BYTES_MAX)).read_line(&mut line)?;
    let answer = match serde_json::from_str::<Value>(&line) {
        Ok(request) => {
            let (answer, answered) = channel();
            match sender.send(Command { request, answer }) {
                Ok(()) => answered
                    .recv_timeout(Duration::from_secs(30))
                    .unwrap_or_else(|e| Err(Fault::new("the command was not answered", e))),
                Err(_) => Err(Fault::new("the command was not taken", "the instrument is being shut down")),
            }
        }
        Err(e) => Err(Fault::new("the command is not JSON", e)),
    };
    let answer = match answer {
        Ok(value) => json!({"ok": value}),
        Err(f) => json!({"fault": {"what": f.what, "cause": f.cause, "hint": f.hint}}),
    };
    let mut out = stream;
    writeln!(out, "{answer}")
}

/// Asks the mover of a data folder.
pub fn ask(folder: &Path, request: &Value) -> Result<Value, Fault> {
    let nobody = |e: std::io::Error| {
        Fault::new(format!("nobody runs the instrument of `{}`", folder.display()), e)
            .hint("start it with `beamport up FILE` in another terminal")
    };
    let (_folder, short) = short_path(folder).map_err(nobody)?;
    let mut stream = UnixStream::connect(short).map_err(nobody)?;
    let broken = |e: std::io::Error| Fault::new("the instrument did not answer", e);
    stream.set_read_timeout(Some(Duration::from_secs(35))).map_err(broken)?;
    writeln!(stream, "{request}").map_err(broken)?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).map_err(broken)?;
    let mut answer: Value =
        serde_json::from_str(&line).map_err(|e| Fault::new("the instrument's answer is not JSON", e))?;
    if let Some(fault) = answer.get("fault") {
        let text = |key: &str| fault[key].as_str().unwrap_or_default().to_string();
        return Err(Fault { what: text("what"), cause: text("cause"), hint: text("hint") });
    }
    Ok(answer["ok"].take())
}
