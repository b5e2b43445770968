//! Modules in Python: classes of the user, in a process of their own.
//!
//! One process has all classes of the program and all that they fill: `python -m beamport._modules JSON`. libhdf5 here and
//! that of h5py there never meet, and what user code does to its process does not reach the file. It is asked once for many
//! messages, over a socket, in frames of `length (u64), kind (u8), bytes`:
//!
//! ```text
//! to it    d  JSON {"class", "settings"}             what does it make?    d  JSON {"datasets"} or {"wrong"}
//!          o  JSON {"id", "class", "settings", "state"}  one more filler   o  JSON {} or {"wrong"}
//!          t  id (u32), then of each message: length of the rest, stream and origin (u32 each and text), sequence,
//!             source time, arrival time, number (u64 each), schema, flags (u32), bytes
//!                                      for each message   r  of each dataset: place (u32), length (u64), bytes
//!                                                    or   a  reason and text, a line each
//!                                      and at the end     s  JSON: the state
//!          c  id (u32)                               the filler is not needed any more; no answer
//! ```
//!
//! Exactly once: the state after the last answer is known here, and is in the commit with the rows of all messages
//! before it. A process that ends, or does not respond in time, is restarted; each filler resumes from its last state
//! and is given the messages since then again, up to the one at which the process ended; then that one alone; if the
//! process ends again, the message is set aside (`killed`, `time`). A class that cannot resume (it cannot be imported
//! any more, its state is not valid JSON) is a fault.

use crate::limits::{ANSWER_BYTES_MAX, ASKED_BYTES, STATE_BYTES_MAX};
use crate::module::UNFIT;
use crate::module::user::{Dataset, Filler, Given, Module, Rows, Wrong};
use crate::template::attribute;
use flow::Fault;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use wire::DType;

/// Longest time in which a process begins and classes are imported.
const LOAD: Duration = Duration::from_secs(60);
/// How often a process is started that ends before it answers.
const TRIES: u32 = 3;
/// How long a process may take to end by itself, or to take a word.
const ENDING: Duration = Duration::from_millis(200);
/// Bytes of a frame from it: an answer or a state, and a little more.
const FRAME_BYTES_MAX: u64 = ANSWER_BYTES_MAX + 4096;
/// Reason of a message that is set aside because its process crashed on it.
const KILLED: &str = "killed";
/// Reason of a message that is set aside because it took too long.
const TIME: &str = "time";

/// How the process did not answer.
enum Silent {
    /// It ended.
    Dead(String),
    /// It took too long, and was ended.
    Late,
}

impl Silent {
    fn told(self, what: String) -> Fault {
        match self {
            Silent::Dead(how) => Fault::new(what, how).hint("see its output above"),
            Silent::Late => Fault::new(what, "it does not respond"),
        }
    }
}

/// The process, started when it is needed.
pub(crate) struct Python {
    program: PathBuf,
    folder: PathBuf,
    classes: Vec<String>,
    time_max: Duration,
    running: Option<(Child, UnixStream)>,
    /// Processes so far: fillers of an earlier one must be made again.
    count: u64,
    fillers: u32,
}

type Shared = Arc<Mutex<Python>>;

fn lock(python: &Shared) -> MutexGuard<'_, Python> {
    python.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Python {
    /// Imports classes; the modules that they are, which live as long as this process.
    pub(crate) fn start(
        program: &Path,
        folder: &Path,
        classes: &[String],
        time_max: Duration,
    ) -> Result<Vec<&'static dyn Module>, Fault> {
        let python = Self {
            program: program.to_path_buf(),
            folder: folder.to_path_buf(),
            classes: classes.to_vec(),
            time_max,
            running: None,
            count: 0,
            fillers: 0,
        };
        let python = Arc::new(Mutex::new(python));
        let said = lock(&python).begin()?;
        let mut out: Vec<&'static dyn Module> = Vec::new();
        for (at, (class, said)) in classes.iter().zip(said.as_array().into_iter().flatten()).enumerate() {
            let class = Class::of(at, class, said, &python)?;
            out.push(Box::leak(Box::new(class)));
        }
        match out.len() == classes.len() {
            true => Ok(out),
            false => Err(Fault::new("cannot load the modules", "the interpreter has another version of beamport")),
        }
    }

    /// Starts a process; what it says of its classes. One that is killed meanwhile may have been somebody else's victim.
    fn begin(&mut self) -> Result<Value, Fault> {
        let what = format!("cannot load the modules {}", self.classes.join(", "));
        let hint = format!("its interpreter is {}; `python` of the sink sets another", self.program.display());
        let mut tries = 0;
        let said = loop {
            self.spawn().map_err(|e| Fault::new(&what, e).hint(&hint))?;
            tries += 1;
            match self.hear(LOAD) {
                Ok(said) => break said,
                Err(Silent::Dead(_)) if tries < TRIES => (),
                Err(silent) => return Err(silent.told(what).hint(hint)),
            }
        };
        let said: Value = serde_json::from_slice(said.get(1..).unwrap_or_default()).unwrap_or_default();
        match said["wrong"].as_str() {
            Some(wrong) => Err(Fault::new(what, wrong).hint("fix the code, or `modules` of the sink")),
            None => Ok(said["classes"].clone()),
        }
    }

    fn spawn(&mut self) -> std::io::Result<()> {
        let (ours, theirs) = UnixStream::pair()?;
        let asked = json!({"parent": std::process::id(), "folder": self.folder, "classes": self.classes,
                           "answer_bytes_max": ANSWER_BYTES_MAX, "state_bytes_max": STATE_BYTES_MAX});
        let mut command = Command::new(&self.program);
        command.args(["-m", "beamport._modules"]).arg(asked.to_string()).process_group(0);
        command.stdin(OwnedFd::from(theirs));
        // The output of user code is for people; stdout is for our answer.
        let child = store::printed::spawn(command, &format!("modules {}", self.classes.join(", ")), true)?;
        self.running = Some((child, ours));
        self.count += 1;
        Ok(())
    }

    /// A living process.
    fn wake(&mut self) -> Result<(), Fault> {
        if let Some((child, _)) = &mut self.running
            && let Ok(Some(status)) = child.try_wait()
        {
            tracing::warn!("the process of the modules {}: {}", self.classes.join(", "), ended(status));
            self.running = None;
        }
        match self.running {
            Some(_) => Ok(()),
            None => self.begin().map(drop),
        }
    }

    /// Ends it, where it has not ended. How it ended.
    fn end(&mut self) -> String {
        let Some((mut child, socket)) = self.running.take() else { return "it is gone".into() };
        drop(socket);
        // One that ends by itself closes its socket a moment before.
        let begun = Instant::now();
        while begun.elapsed() < ENDING {
            if let Ok(Some(status)) = child.try_wait() {
                return ended(status);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = child.kill();
        child.wait().map_or_else(|e| e.to_string(), ended)
    }

    /// Sends a frame.
    fn send(&mut self, kind: u8, parts: &[&[u8]], within: Duration) -> Result<(), Silent> {
        let length = 1 + parts.iter().map(|part| part.len() as u64).sum::<u64>();
        let begun = Instant::now();
        let Some((_, socket)) = &mut self.running else { return Err(Silent::Dead("it is gone".into())) };
        let mut send = |bytes: &[u8]| -> Result<(), ErrorKind> {
            let mut rest = bytes;
            while !rest.is_empty() {
                let left = within.saturating_sub(begun.elapsed()).max(Duration::from_millis(1));
                let written = socket.set_write_timeout(Some(left)).and_then(|()| socket.write(rest));
                match written {
                    Ok(bytes) => rest = &rest[bytes..],
                    Err(e) if e.kind() == ErrorKind::Interrupted => (),
                    Err(e) => return Err(e.kind()),
                }
            }
            Ok(())
        };
        let sent = send(&length.to_le_bytes()).and_then(|()| send(&[kind]));
        let sent = sent.and_then(|()| parts.iter().try_for_each(|part| send(part)));
        sent.map_err(|kind| self.silent(kind))
    }

    /// Waits for a frame: its kind and its bytes.
    fn hear(&mut self, within: Duration) -> Result<Vec<u8>, Silent> {
        let begun = Instant::now();
        let Some((_, socket)) = &mut self.running else { return Err(Silent::Dead("it is gone".into())) };
        let mut receive = |into: &mut [u8]| -> Result<(), ErrorKind> {
            let mut at = 0;
            while at < into.len() {
                let left = within.saturating_sub(begun.elapsed());
                if left.is_zero() {
                    return Err(ErrorKind::WouldBlock);
                }
                match socket.set_read_timeout(Some(left)).and_then(|()| socket.read(&mut into[at..])) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof),
                    Ok(bytes) => at += bytes,
                    Err(e) if e.kind() == ErrorKind::Interrupted => (),
                    Err(e) => return Err(e.kind()),
                }
            }
            Ok(())
        };
        let mut length = [0; 8];
        let mut frame = Vec::new();
        let heard = receive(&mut length).and_then(|()| match u64::from_le_bytes(length) {
            // Our half of the package never sends more; what user code writes to our socket is no frame.
            length @ 1..=FRAME_BYTES_MAX => {
                frame.resize(length as usize, 0);
                receive(&mut frame)
            }
            _ => Err(ErrorKind::InvalidData),
        });
        heard.map(|()| frame).map_err(|kind| self.silent(kind))
    }

    /// Ends a process with which nothing is exchanged any more, and returns how it failed.
    fn silent(&mut self, kind: ErrorKind) -> Silent {
        let how = self.end();
        match kind {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Silent::Late,
            ErrorKind::InvalidData => Silent::Dead("invalid response".into()),
            _ => Silent::Dead(how),
        }
    }

    /// Asks a living process for something and waits for the answer, both JSON.
    fn ask(&mut self, kind: u8, asked: &Value, what: &str) -> Result<Value, Fault> {
        let mut tries = 0;
        loop {
            self.wake()?;
            tries += 1;
            let answer = self.send(kind, &[asked.to_string().as_bytes()], LOAD).and_then(|()| self.hear(LOAD));
            match answer {
                Ok(answer) => {
                    return Ok(serde_json::from_slice(answer.get(1..).unwrap_or_default()).unwrap_or_default());
                }
                Err(Silent::Dead(_)) if tries < TRIES => (),
                Err(silent) => return Err(silent.told(what.to_owned())),
            }
        }
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        self.end();
    }
}

/// How a process ended, for people.
fn ended(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with status {code}"),
        (None, Some(signal)) => format!("signal {signal} ended it"),
        (None, None) => "it ended".to_owned(),
    }
}

/// A class of the user: a module.
struct Class {
    at: usize,
    /// As `modules` of the sink names it.
    name: String,
    word: String,
    schemas: Vec<[u8; 4]>,
    class: String,
    keys: Vec<&'static str>,
    python: Shared,
}

impl Class {
    fn of(at: usize, name: &str, said: &Value, python: &Shared) -> Result<Self, Fault> {
        let wrong = |cause: String| Fault::new(format!("`{name}` is not a module"), cause);
        let texts = |key: &str| -> Vec<String> {
            said[key].as_array().into_iter().flatten().filter_map(|t| t.as_str().map(str::to_owned)).collect()
        };
        let id = |text: &String| <[u8; 4]>::try_from(text.as_bytes()).map_err(|_| wrong(format!("schema `{text}`")));
        Ok(Self {
            at,
            name: name.to_owned(),
            word: said["word"].as_str().unwrap_or_default().to_owned(),
            schemas: texts("schemas").iter().map(id).collect::<Result<_, _>>()?,
            class: said["nx_class"].as_str().unwrap_or_default().to_owned(),
            keys: texts("keys").into_iter().map(known).collect(),
            python: python.clone(),
        })
    }
}

impl Module for Class {
    fn word(&self) -> &str {
        &self.word
    }

    fn schemas(&self) -> &[[u8; 4]] {
        &self.schemas
    }

    fn class(&self) -> &str {
        &self.class
    }

    fn keys(&self) -> &[&str] {
        &self.keys
    }

    fn filler(&self, settings: &Map<String, Value>) -> Result<Box<dyn Filler>, Vec<Wrong>> {
        let wrong = |cause: String, hint: &str| vec![Wrong::new("", format!("`{}`: {cause}", self.name), hint)];
        let mut python = lock(&self.python);
        let asked = json!({"class": self.at, "settings": settings});
        let said = python.ask(b'd', &asked, "its process does not answer");
        let said = said.map_err(|fault| wrong(format!("{}: {}", fault.what, fault.cause), &fault.hint))?;
        if let Some(cause) = said["wrong"].as_str() {
            return Err(wrong(cause.to_owned(), "fix the code, or the settings in `config`"));
        }
        let datasets = said["datasets"].as_array().into_iter().flatten().map(dataset);
        let datasets: Option<Vec<Dataset>> = datasets.collect();
        let datasets = datasets.ok_or_else(|| wrong("its datasets are invalid".into(), ""))?;
        python.fillers += 1;
        Ok(Box::new(Asking {
            class: self.at,
            name: self.name.clone(),
            settings: settings.clone(),
            datasets,
            id: python.fillers,
            made_in: 0,
            state: Value::Null,
            suspect: None,
            told: 0,
            python: self.python.clone(),
        }))
    }
}

/// A text that stays: there are as many as user code has names.
fn known(text: String) -> &'static str {
    static ALL: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    match all.get(text.as_str()) {
        Some(text) => text,
        None => {
            let text: &'static str = Box::leak(text.into_boxed_str());
            all.insert(text);
            text
        }
    }
}

/// A dataset as Python says it: `{"name", "dtype", "bytes", "row", "attributes"}`.
fn dataset(said: &Value) -> Option<Dataset> {
    let word = said["dtype"].as_str()?;
    let name = said["name"].as_str()?;
    let mut dataset = match word {
        "text" => Dataset::texts(name, usize::try_from(said["bytes"].as_u64()?).ok()?),
        number => Dataset::numbers(name, DType::ALL.into_iter().find(|dtype| dtype.name() == number)?),
    };
    dataset.row = said["row"].as_array()?.iter().map(Value::as_u64).collect::<Option<_>>()?;
    for (name, value) in said["attributes"].as_object()? {
        dataset.attributes.push((known(name.clone()), attribute(value)?));
    }
    Some(dataset)
}

/// A filler there, as it is known here.
struct Asking {
    class: usize,
    name: String,
    settings: Map<String, Value>,
    datasets: Vec<Dataset>,
    id: u32,
    /// The process that has it.
    made_in: u64,
    /// After the last message that was answered, JSON as it said it; null before the first.
    state: Value,
    /// The message that a process ended at, by its sequence.
    suspect: Option<u64>,
    /// Messages put aside, so that the log is not flooded.
    told: u64,
    python: Shared,
}

/// The result of a message.
enum Answer {
    Rows(Vec<u8>),
    Aside(&'static str),
}

/// Why there are no answers.
enum Failed {
    /// At which message, and how.
    At(usize, Silent),
    Fault(Fault),
}

impl Asking {
    fn what(&self) -> String {
        format!("cannot resume the module `{}`", self.name)
    }

    /// Has the process of now make it, where it has not.
    fn make(&mut self, python: &mut Python) -> Result<(), Fault> {
        python.wake()?;
        if self.made_in == python.count {
            return Ok(());
        }
        let Self { name, class, settings, state, id, .. } = self;
        let asked = json!({"id": id, "class": class, "settings": settings, "state": state});
        let said = python.ask(b'o', &asked, &format!("cannot resume the module `{name}`"))?;
        match said["wrong"].as_str() {
            Some(wrong) => Err(Fault::new(self.what(), wrong)),
            None => {
                self.made_in = python.count;
                Ok(())
            }
        }
    }

    /// Gives it messages. The answers, perhaps of fewer, and the state after them.
    fn ask(&mut self, python: &mut Python, messages: &[Given<'_>]) -> Result<(Vec<Answer>, Value), Failed> {
        self.make(python).map_err(Failed::Fault)?;
        let id = self.id.to_le_bytes();
        let heads: Vec<Vec<u8>> = messages.iter().map(head).collect();
        let mut parts: Vec<&[u8]> = vec![&id];
        for (head, message) in heads.iter().zip(messages) {
            parts.extend([head.as_slice(), message.bytes]);
        }
        let within = python.time_max;
        python.send(b't', &parts, LOAD).map_err(|silent| Failed::At(0, silent))?;
        let mut answers = Vec::new();
        loop {
            let frame =
                python.hear(within).map_err(|silent| Failed::At(answers.len().min(messages.len() - 1), silent))?;
            match frame.first() {
                Some(b'r') if answers.len() < messages.len() => {
                    answers.push(Answer::Rows(frame));
                }
                Some(b'a') if answers.len() < messages.len() => {
                    let text = String::from_utf8_lossy(&frame[1..]).into_owned();
                    let (reason, why) = text.split_once('\n').unwrap_or((&text, ""));
                    let message = &messages[answers.len()];
                    answers.push(Answer::Aside(self.tell(
                        message,
                        if reason == UNFIT { UNFIT } else { crate::module::user::ERROR },
                        why,
                    )));
                }
                Some(b's') if !answers.is_empty() => {
                    // As text: numbers that are read and written here would not be the same.
                    let state = Value::String(String::from_utf8_lossy(&frame[1..]).into_owned());
                    return Ok((answers, state));
                }
                Some(b'w') => {
                    let why = String::from_utf8_lossy(&frame[1..]).into_owned();
                    return Err(Failed::Fault(Fault::new(self.what(), why).hint("fix `state` of the class")));
                }
                _ => {
                    python.end();
                    return Err(Failed::Fault(Fault::new(self.what(), "its process sent an invalid response")));
                }
            }
        }
    }

    /// Logs why a message is set aside: of the first three, then of each whose count is a power of ten.
    fn tell(&mut self, message: &Given<'_>, reason: &'static str, why: &str) -> &'static str {
        self.told += 1;
        if self.told <= 3 || 10_u64.pow(self.told.ilog10()) == self.told {
            let (name, stream, sequence) = (&self.name, message.stream, message.sequence);
            tracing::warn!(
                "`{name}`: message {sequence} of `{stream}` goes aside ({reason}, {} so far): {why}",
                self.told
            );
        }
        reason
    }
}

/// The header before the bytes of a message.
fn head(message: &Given<'_>) -> Vec<u8> {
    let mut out = vec![0; 8];
    for text in [message.stream, message.origin] {
        out.extend((text.len() as u32).to_le_bytes());
        out.extend(text.as_bytes());
    }
    let entry = message.entry;
    out.extend(message.sequence.to_le_bytes());
    out.extend(entry.source_time.to_le_bytes());
    out.extend(entry.arrival_time.to_le_bytes());
    out.extend(entry.origin_seq.to_le_bytes());
    out.extend(entry.schema.0);
    out.extend(u32::from(entry.flags).to_le_bytes());
    let length = (out.len() - 8 + message.bytes.len()) as u64;
    out[..8].copy_from_slice(&length.to_le_bytes());
    out
}

/// Adds the rows of an answer; bytes that are not as they should be do not fit.
fn push(rows: &mut Rows<'_>, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let Some((head, rest)) = bytes.split_first_chunk::<12>() else { return rows.push_bytes(usize::MAX, None) };
        let (place, length) = head.split_at(4);
        let place = u32::from_le_bytes(place.try_into().unwrap_or_default()) as usize;
        let length = u64::from_le_bytes(length.try_into().unwrap_or_default());
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let Some((values, rest)) = rest.split_at_checked(length) else { return rows.push_bytes(usize::MAX, None) };
        rows.push_bytes(place, Some(values));
        bytes = rest;
    }
}

impl Filler for Asking {
    fn datasets(&self) -> Vec<Dataset> {
        self.datasets.clone()
    }

    fn take(&mut self, _: &Given<'_>, _: &mut Rows<'_>) -> Result<(), &'static str> {
        // They are taken many at once, below.
        Err(UNFIT)
    }

    fn take_all(&mut self, messages: &[Given<'_>], rows: &mut Rows<'_>) -> Result<usize, Fault> {
        let python = self.python.clone();
        let mut python = lock(&python);
        let mut bytes = 0;
        let fits = |message: &&Given<'_>| {
            bytes += message.bytes.len();
            bytes <= ASKED_BYTES
        };
        let most = messages.iter().take_while(fits).count().max(1);
        loop {
            let suspect = messages[..most].iter().position(|message| Some(message.sequence) == self.suspect);
            // Those before it first, then it alone.
            let count = suspect.map_or(most, |at| at.max(1));
            match self.ask(&mut python, &messages[..count]) {
                Ok((answers, state)) => {
                    self.state = state;
                    if suspect == Some(0) {
                        self.suspect = None;
                    }
                    let taken = answers.len();
                    for answer in answers {
                        match answer {
                            Answer::Rows(bytes) => {
                                push(rows, &bytes[1..]);
                                rows.answer(Ok(()));
                            }
                            Answer::Aside(reason) => rows.answer(Err(reason)),
                        }
                    }
                    return Ok(taken);
                }
                Err(Failed::Fault(fault)) => return Err(fault),
                Err(Failed::At(at, silent)) => {
                    let message = &messages[at];
                    let (reason, why) = match silent {
                        Silent::Dead(how) => (KILLED, how),
                        Silent::Late => (TIME, format!("it took longer than {} s", python.time_max.as_secs_f64())),
                    };
                    if suspect == Some(0) {
                        self.suspect = None;
                        rows.answer(Err(self.tell(message, reason, &why)));
                        return Ok(1);
                    }
                    tracing::warn!("`{}`: {why}, at message {} of `{}`", self.name, message.sequence, message.stream);
                    self.suspect = Some(message.sequence);
                }
            }
        }
    }

    fn state(&self) -> Value {
        self.state.clone()
    }

    fn resume(&mut self, state: &Value) -> Option<()> {
        self.state = state.clone();
        let python = self.python.clone();
        let made = self.make(&mut lock(&python));
        made.inspect_err(|fault| tracing::warn!("{}: {}", fault.what, fault.cause)).ok()
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let mut python = lock(&self.python);
        if self.made_in == python.count {
            let _ = python.send(b'c', &[&self.id.to_le_bytes()], ENDING);
        }
    }
}
