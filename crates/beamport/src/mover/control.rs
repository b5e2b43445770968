//! Commands from other terminals: a Unix socket in the data folder, mode 0600 (0660 where the
//! folder is shared with a group), one JSON object a line and one answer.
//!
//! Everything that changes a run goes this way, and the mover alone acts on it; a command of an edge is carried out by
//! the thread of its client. Each command becomes a message of the stream `control`. Limits: a line of 32 MiB, five
//! seconds to say it, 32 clients at once; a client that says nonsense gets an error, and one that says nothing delays
//! no other client. A command whose client hangs up before the command is carried out is dropped.

use crate::file::Instrument;
use crate::limits::{EDGE_MAX, FROM_CHARS_MAX, GLANCE_MAX};
use crate::peer;
use flow::Fault;
use flow::control::{ask as ask_within, short_path, unanswered};
use flow::edge::{CommandKind, SourcePlan};
use flow::records::Stop;
use flow::status::verdict::Report;
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Bytes of a command: a list of as many PVs as a source takes. Only the user of the instrument, and the group
/// that its folder is shared with, reach the socket.
const COMMAND_BYTES_MAX: u64 = 32 << 20;
/// Time to say a whole command, or to take an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time for the instrument to answer. A run is answered after its mark, which takes at most 10 s on a slow disk.
const ANSWER: Duration = Duration::from_secs(15);
/// The same for a cut-over: code is loaded, and what is under way is finished. It gives up by itself before.
const CUT_OVER: Duration = Duration::from_secs(600);
/// How much longer a client waits, for the answer to travel.
const ANSWER_COMES: Duration = Duration::from_secs(2);
/// Clients at once, a thread each: people and scripts, not crowds.
const CLIENTS_MAX: usize = 32;

/// Commands of edges, and the sources that they are given.
pub(super) struct EdgeCommands {
    kinds: Vec<&'static CommandKind>,
    sources: Vec<(String, Arc<dyn SourcePlan>)>,
}

impl EdgeCommands {
    pub(super) fn new(instrument: &Instrument) -> Self {
        let sources = instrument.sources().map(|section| (section.name.clone(), section.plan.clone()));
        Self { kinds: instrument.commands.clone(), sources: sources.collect() }
    }

    /// Carries out a request, which may take long; `None` where it is not one of an edge.
    fn run(&self, request: &Value) -> Option<Result<Value, Fault>> {
        let kind = self.kinds.iter().find(|kind| request["command"] == kind.name)?;
        let sources: Vec<(&str, &dyn SourcePlan)> =
            self.sources.iter().map(|(name, plan)| (name.as_str(), &**plan)).collect();
        Some((kind.run)(request, &sources))
    }
}

/// One command and where its answer goes.
pub(super) struct Command {
    /// What was asked: `{"command": "begin", ...}`.
    pub request: Value,
    /// Who asked, for the record: the user and process of the client, and the name that it gives itself.
    pub from: String,
    /// Takes the answer.
    pub answer: Sender<Result<Value, Fault>>,
    /// The answer, where an edge has carried it out: only to be recorded.
    pub done: Option<Result<Value, Fault>>,
    /// The client; none where the command came from another host.
    caller: Option<UnixStream>,
}

impl Command {
    /// A command that was given on another host, and what brings its answer.
    pub(super) fn of_host(request: Value, from: String) -> (Self, Receiver<Result<Value, Fault>>) {
        let (answer, answered) = channel();
        (Self { request, from, answer, done: None, caller: None }, answered)
    }

    /// Whether it was given on this host.
    pub(super) fn is_local(&self) -> bool {
        self.caller.is_some()
    }

    /// False once the client has hung up. It has been told that the command is then dropped.
    pub(super) fn is_wanted(&self) -> bool {
        self.caller.as_ref().is_none_or(|caller| !peer::is_gone(caller.as_fd()))
    }
}

/// The socket of a running mover; removed when dropped.
pub(super) struct Control {
    path: PathBuf,
    /// Commands as they come.
    pub commands: Receiver<Command>,
    listener: Arc<UnixListener>,
    stop: Arc<AtomicBool>,
    handle: Option<std::thread::JoinHandle<()>>,
}

impl Control {
    /// Listens in the data folder. Only the holder of the stream `runs` may call it: a socket found there is stale.
    pub(super) fn listen(folder: &Path, edges: EdgeCommands) -> Result<Self, Fault> {
        let path = folder.join("control.sock");
        let fault = |e: std::io::Error| Fault::io(format!("cannot create control socket `{}`", path.display()), &e);
        // Made where nobody else can come, then moved: at no moment can another user connect to it.
        let private = folder.join("control.sock.new");
        let _ = std::fs::remove_dir_all(&private);
        std::fs::DirBuilder::new().mode(0o700).create(&private).map_err(fault)?;
        let (_private, short) = short_path(&private).map_err(fault)?;
        let listener = UnixListener::bind(&short).map_err(fault)?;
        let made = private.join("control.sock");
        // It has the group of the folder that it was made in.
        let mode = if store::shared_with(folder).is_some() { 0o660 } else { 0o600 };
        std::fs::set_permissions(&made, std::fs::Permissions::from_mode(mode)).map_err(fault)?;
        std::fs::rename(&made, &path).map_err(fault)?;
        std::fs::remove_dir(&private).map_err(fault)?;
        let listener = Arc::new(listener);
        let waiting = listener.clone();
        let (sender, commands) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let (clients, edges) = (Arc::new(AtomicUsize::new(0)), Arc::new(edges));
        let handle = std::thread::Builder::new().name("control".into()).spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                match waiting.accept() {
                    Ok((stream, _)) => welcome(stream, &sender, &edges, &clients),
                    // There are no descriptors left, or it is to end.
                    Err(_) => std::thread::sleep(Duration::from_millis(10)),
                }
            }
        });
        let handle = handle.map_err(fault)?;
        Ok(Self { path, commands, listener, stop, handle: Some(handle) })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        peer::stop_listening(self.listener.as_fd());
        let _ = std::fs::remove_file(&self.path);
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}

/// A thread for one client, or a refusal where too many are there.
fn welcome(stream: UnixStream, sender: &Sender<Command>, edges: &Arc<EdgeCommands>, clients: &Arc<AtomicUsize>) {
    if clients.fetch_add(1, Ordering::SeqCst) >= CLIENTS_MAX {
        clients.fetch_sub(1, Ordering::SeqCst);
        let fault = Fault::new("the command was refused", format!("{CLIENTS_MAX} other clients are connected"))
            .hint("try again in a few seconds");
        // Its buffer is empty: these few bytes do not wait.
        let _ = stream.set_write_timeout(Some(Duration::from_millis(100)));
        let _ = answer(&stream, &Err(fault));
        return;
    }
    let (sender, edges, left) = (sender.clone(), edges.clone(), clients.clone());
    let thread = std::thread::Builder::new().name("control client".into()).spawn(move || {
        if let Err(e) = serve(&stream, &sender, &edges) {
            tracing::debug!("a command was not answered: {e}");
        }
        left.fetch_sub(1, Ordering::SeqCst);
    });
    if thread.is_err() {
        clients.fetch_sub(1, Ordering::SeqCst);
    }
}

fn serve(stream: &UnixStream, sender: &Sender<Command>, edges: &EdgeCommands) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let Some(line) = command_line(stream)? else { return Ok(()) };
    let said = match line
        .and_then(|line| serde_json::from_slice::<Value>(&line).map_err(|e| Fault::new("the command is not JSON", e)))
    {
        Ok(mut request) => {
            let from = client(stream, &mut request);
            let (answer, answered) = channel();
            let patience = patience(&request);
            let ended = || Fault::new("the command was refused", "the instrument is being shut down");
            let (done, caller) = (edges.run(&request), Some(stream.try_clone()?));
            match sender.send(Command { request, from, answer, done, caller }) {
                Ok(()) => match answered.recv_timeout(patience) {
                    Ok(said) => said,
                    Err(RecvTimeoutError::Timeout) => Err(unanswered(patience)),
                    Err(RecvTimeoutError::Disconnected) => Err(ended()),
                },
                Err(_) => Err(ended()),
            }
        }
        Err(fault) => Err(fault),
    };
    answer(stream, &said)
}

/// Who a client is: its user and process as the kernel has them, after the name in `from` of its request, which is
/// taken out.
fn client(stream: &UnixStream, request: &mut Value) -> String {
    let given = request.as_object_mut().and_then(|request| request.remove("from"));
    let name: String =
        given.as_ref().and_then(Value::as_str).unwrap_or_default().chars().take(FROM_CHARS_MAX).collect();
    match peer::credentials(stream.as_fd()) {
        Some((user, process)) if name.is_empty() => format!("uid {user}, pid {process}"),
        Some((user, process)) => format!("{name}, uid {user}, pid {process}"),
        None => name,
    }
}

/// The line of a client, however slowly it comes, within the time for all of it. None if there was nothing at all.
fn command_line(stream: &UnixStream) -> std::io::Result<Option<Result<Vec<u8>, Fault>>> {
    let end = Instant::now() + PATIENCE;
    let mut reader = BufReader::new(stream.take(COMMAND_BYTES_MAX));
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Some(Err(Fault::new(
                "no complete command arrived",
                format!("timeout after {} s", PATIENCE.as_secs()),
            ))));
        }
        stream.set_read_timeout(Some(left))?;
        let piece = match reader.fill_buf() {
            Ok(piece) => piece,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {
                continue;
            }
            Err(e) => return Err(e),
        };
        if piece.is_empty() {
            break;
        }
        let taken = piece.iter().position(|b| *b == b'\n').map_or(piece.len(), |at| at + 1);
        line.extend_from_slice(&piece[..taken]);
        reader.consume(taken);
    }
    if line.len() as u64 == COMMAND_BYTES_MAX && line.last() != Some(&b'\n') {
        let cause = format!("a command has at most {COMMAND_BYTES_MAX} bytes");
        return Ok(Some(Err(Fault::new("the command is too long", cause))));
    }
    Ok((!line.is_empty()).then_some(Ok(line)))
}

/// How long the answer to a command may take. A command of an edge names the time for the other system.
fn patience(request: &Value) -> Duration {
    let patience = if request["command"] == "cutover" { CUT_OVER } else { ANSWER };
    patience + Duration::from_nanos(request["timeout"].as_u64().unwrap_or(0)).min(EDGE_MAX)
}

fn answer(mut stream: &UnixStream, answer: &Result<Value, Fault>) -> std::io::Result<()> {
    let answer = match answer {
        Ok(value) => json!({"ok": value}),
        Err(fault) => json!({"fault": fault.to_json()}),
    };
    // One piece: a client that has read the end of the line has all of it.
    stream.write_all(format!("{answer}\n").as_bytes())
}

/// Asks the mover of a data folder.
pub fn ask(folder: &Path, request: &Value) -> Result<Value, Fault> {
    ask_within(folder, request, patience(request) + ANSWER_COMES)
}

/// Whether somebody runs the instrument of a data folder.
pub fn is_running(folder: &Path) -> bool {
    let connected = short_path(folder).and_then(|(_folder, short)| UnixStream::connect(short).map(drop));
    connected.is_ok()
}

/// The state that a running instrument reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Glance {
    /// The troubles of its stages.
    pub troubles: Vec<String>,
    /// Its stages by name: `{"kind", "status", "trouble"}`.
    pub running: serde_json::Map<String, Value>,
    /// All hosts of the instrument by name: `{"state", "is_here", "mirrors", "workers", "lost", "clock_ns",
    /// "troubles"}`.
    pub hosts: serde_json::Map<String, Value>,
}

impl Glance {
    /// The verdict on a state: the open run, and all faults and losses.
    pub fn verdict(&self, status: &flow::status::Status) -> Vec<flow::status::verdict::Part> {
        let Self { troubles, running, hosts } = self;
        flow::status::verdict::verdict(status, Report { running, faults: troubles.len(), hosts })
    }
}

/// Asks a running instrument for its state; empty where nobody runs it or it does not answer soon.
pub fn glance(folder: &Path) -> Glance {
    let mut answer = ask_within(folder, &json!({"command": "status"}), GLANCE_MAX).unwrap_or_default();
    let list = answer["troubles"].as_array().into_iter().flatten();
    let troubles = list.filter_map(Value::as_str).map(str::to_owned).collect();
    let mut map = |key: &str| answer[key].as_object_mut().map(std::mem::take).unwrap_or_default();
    Glance { troubles, running: map("running"), hosts: map("hosts") }
}

/// A whole number of a command, or nothing where it is absent.
pub(super) fn number(request: &Value, key: &str) -> Result<Option<i64>, Fault> {
    match &request[key] {
        Value::Null => Ok(None),
        value => value.as_i64().map(Some).ok_or_else(|| {
            Fault::new(format!("`{key}` is not a whole number of ns"), "a command has times in ns since 1970 UTC")
        }),
    }
}

/// `stop` of a command, and whether it is `inclusive`.
pub(super) fn stop(request: &Value) -> Result<Stop, Fault> {
    match (number(request, "stop")?, &request["inclusive"]) {
        (stop, Value::Null | Value::Bool(false)) => Ok(stop.into()),
        (Some(stop), Value::Bool(true)) => Ok(Stop::at(stop, true)),
        (None, Value::Bool(true)) => {
            Err(Fault::new("`inclusive` needs a stop", "the command has none").hint("add `--stop TIME`"))
        }
        _ => Err(Fault::new("`inclusive` is not `true` or `false`", "the command has another value")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data folder of one test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("beamport-control-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn an_instrument_that_is_stopped_was_a_resource_temporarily_unavailable() {
        let folder = Folder::new("stopped");
        // The kernel accepts the connection and the line; no process answers.
        let _listener = UnixListener::bind(folder.0.join("control.sock")).unwrap();
        let fault = ask_within(&folder.0, &json!({"command": "begin"}), Duration::from_millis(10)).unwrap_err();
        assert!(fault.cause.starts_with("its process is stopped, or was busy"), "{fault}");
        assert!(fault.hint.contains("`beamport ls`"), "{fault}");
    }

    #[test]
    fn a_command_whose_client_had_gone_was_carried_out() {
        let folder = Folder::new("gone");
        let edges = EdgeCommands { kinds: Vec::new(), sources: Vec::new() };
        let control = Control::listen(&folder.0, edges).unwrap();
        let gone = ask_within(&folder.0, &json!({"command": "begin", "run": "gone"}), Duration::from_millis(1));
        assert!(gone.is_err());
        let command = control.commands.recv().unwrap();
        assert_eq!(command.request["run"], "gone");
        assert!(!command.is_wanted());
        let there = folder.0.clone();
        let client = std::thread::spawn(move || ask(&there, &json!({"command": "begin", "run": "there"})));
        let command = control.commands.recv().unwrap();
        assert!(command.is_wanted());
        assert!(command.from.ends_with(&format!(", pid {}", std::process::id())), "{}", command.from);
        command.answer.send(Ok(json!({"run": "there"}))).unwrap();
        assert_eq!(client.join().unwrap().unwrap(), json!({"run": "there"}));
    }
}
