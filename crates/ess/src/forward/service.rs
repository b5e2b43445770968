//! The loop of the forwarder: commands from Kafka change the PVs of a `beamport up`, which does all else.
//!
//! All of it runs in the thread that calls [`run`], because the kernel ends `beamport up` with the thread that started
//! it.
//!
//! Failure behaviour: brokers that are away are waited for, and PVs are forwarded meanwhile: `beamport up` keeps what
//! Kafka does not take. Nothing that a message says ends the loop.

use super::entries::{FORWARDER_FILE, SOURCE, entries, instrument_file, request};
use super::kept::{Folder, Kept};
use super::status::{Figures, status};
use super::topics::{self, Found, Judge, Unusable};
use super::{Streams, read_change};
use crate::Programs;
use crate::command::Mistake;
use crate::limits::{
    ASK_PATIENCE, COMMANDS_A_TURN, DELIVERY_PATIENCE, PAUSE, PAUSE_MAX, PENDING_MAX, RETRY_PAUSE, SKIPPED_MAX,
    STATUS_PAUSE, STEADY, STOP_PATIENCE, TOPICS_PAUSE, TURN,
};
use crate::mover::{self, Mover};
use crate::options::{ForwarderOptions, Place};
use crate::plan::environment_of;
use crate::reply;
use crate::signals::Signals;
use flow::Fault;
use kafka::group::{Received, Sender, TopicReader};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Runs the forwarder until a signal ends it.
pub(crate) fn run(options: &ForwarderOptions, programs: &Programs) -> Result<ExitCode, Fault> {
    let signals = Signals::listen()?;
    let folder = Folder::take(&options.data)?;
    folder.put(FORWARDER_FILE, instrument_file(options).as_bytes())?;
    let sender = |place: &Place| {
        // A status of many streams is text that is much alike.
        let compressed = [("compression.type".to_owned(), "gzip".to_owned())];
        Sender::new(&place.brokers, &[&place.properties[..], &compressed].concat())
    };
    let storage = match &options.storage {
        Some(place) => Some(Storage { place, sender: sender(place)?, is_sent: false }),
        None => None,
    };
    let mut kept = folder.read();
    if options.skip_retrieval {
        // The storage topic stays as it is until the next command.
        kept = Kept::default();
        folder.write(&kept)?;
    }
    let now = Instant::now();
    let mut forwarder = Forwarder {
        me: identity(options),
        program: programs,
        signals,
        folder,
        found: topics::open(options, &kept)?,
        judge: Judge::new(&options.output)?,
        unknown: kept.unknown(),
        unusable: BTreeMap::new(),
        kept,
        reader: None,
        storage,
        sender: sender(&options.status)?,
        is_retrieved: false,
        mover: None,
        started: now,
        pause: PAUSE,
        is_applied: false,
        troubles: BTreeMap::new(),
        next: Next { start: now, apply: now, judge: now, store: now, status: now },
        options,
    };
    forwarder.work();
    Ok(ExitCode::SUCCESS)
}

/// The identity of this service in the status.
fn identity(options: &ForwarderOptions) -> reply::Service {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    let pid = std::process::id();
    let id = if options.service_id.is_empty() { pid.to_string() } else { options.service_id.clone() };
    reply::Service { id, host, pid, interval: STATUS_PAUSE }
}

/// The storage topic.
struct Storage<'a> {
    place: &'a Place,
    sender: Sender,
    /// The present streams are on their way.
    is_sent: bool,
}

/// When something is done next.
struct Next {
    start: Instant,
    apply: Instant,
    judge: Instant,
    store: Instant,
    status: Instant,
}

/// The parts that can have a fault, as the status has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Commands,
    Topics,
    Storage,
    Source,
    Folder,
}

struct Forwarder<'a> {
    options: &'a ForwarderOptions,
    program: &'a Programs,
    me: reply::Service,
    signals: Signals,
    folder: Folder,
    kept: Kept,
    /// Until the topic of commands is open.
    found: Receiver<Found>,
    judge: Judge,
    /// Topics of streams that were not found yet.
    unknown: BTreeSet<String>,
    /// Those of them that cannot be used, and why: they are asked for again.
    unusable: BTreeMap<String, Unusable>,
    reader: Option<TopicReader>,
    storage: Option<Storage<'a>>,
    sender: Sender,
    /// The storage topic was read.
    is_retrieved: bool,
    mover: Option<Mover>,
    /// When the mover was started, and the pause before the next start.
    started: Instant,
    pause: Duration,
    /// The source has the streams.
    is_applied: bool,
    troubles: BTreeMap<Part, String>,
    next: Next,
}

impl Forwarder<'_> {
    fn work(&mut self) {
        while !self.signals.is_ending() {
            self.supervise();
            self.apply();
            self.listen();
            self.judge();
            self.store();
            self.announce();
        }
        self.mover = None;
        // The newest message.
        let _ = self.sender.flush(DELIVERY_PATIENCE);
        if let Some(storage) = &self.storage {
            let _ = storage.sender.flush(DELIVERY_PATIENCE);
        }
    }

    /// Notes what keeps a part from its work, or that nothing does; a new trouble is logged.
    fn note(&mut self, part: Part, trouble: Option<String>) {
        match trouble {
            Some(text) if self.troubles.get(&part) != Some(&text) => {
                tracing::warn!("{text}");
                self.troubles.insert(part, text);
            }
            Some(_) => {}
            None => drop(self.troubles.remove(&part)),
        }
    }

    /// Puts what is kept on disk. Where that fails it is tried with the next change.
    fn save(&mut self) {
        let trouble = self.folder.write(&self.kept).err().map(|fault| fault.to_string());
        self.note(Part::Folder, trouble);
    }

    /// Starts `beamport up`, and starts it again when it has ended.
    fn supervise(&mut self) {
        let now = Instant::now();
        let Some(mover) = &mut self.mover else {
            if now < self.next.start {
                return;
            }
            let environment = environment_of(&self.options.output.properties);
            match Mover::serve(&self.program.beamport, &environment, &self.options.data.join(FORWARDER_FILE)) {
                Ok(mover) => {
                    (self.mover, self.started) = (Some(mover), now);
                    self.is_applied = false;
                }
                Err(fault) => {
                    self.note(Part::Source, Some(fault.to_string()));
                    self.next.start = now + PAUSE_MAX;
                }
            }
            return;
        };
        let ended = match mover.exited() {
            Ok(None) => return,
            Ok(Some(status)) => format!("`beamport up` of the forwarder ended with {status}: it is started again"),
            Err(fault) => fault.to_string(),
        };
        self.mover = None;
        self.pause = if now - self.started > STEADY { PAUSE } else { (self.pause * 2).min(PAUSE_MAX) };
        self.next.start = now + self.pause;
        self.note(Part::Source, Some(ended));
    }

    fn ask(&self, request: &Value, patience: Duration) -> Result<Value, Fault> {
        mover::ask(&self.options.data, request, patience)
    }

    /// Makes the PVs of the source those of the streams.
    fn apply(&mut self) {
        if self.mover.is_none() || self.is_applied || Instant::now() < self.next.apply {
            return;
        }
        let request = request(&entries(&self.kept.accepted()));
        let asked = self.ask(&json!({"command": "ask", "source": SOURCE, "request": request}), STOP_PATIENCE);
        if let Err(fault) = asked {
            tracing::debug!("{fault}");
            // It is starting, or busy; what was asked for is carried out once.
            let pause = if self.started.elapsed() > STEADY { RETRY_PAUSE } else { PAUSE };
            self.next.apply = Instant::now() + pause;
            if self.started.elapsed() > STEADY {
                self.note(Part::Source, Some(fault.to_string()));
            }
            return;
        }
        self.note(Part::Source, None);
        self.is_applied = true;
        self.next.status = Instant::now();
    }

    /// Takes commands, once the topic is open. Waits for the first one.
    fn listen(&mut self) {
        if self.reader.is_none() {
            return match self.found.recv_timeout(TURN) {
                Ok(found) => self.found(found),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(TURN),
            };
        }
        let mut streams: Option<Streams> = None;
        let (mut count, mut is_command) = (0, false);
        while count < COMMANDS_A_TURN {
            let patience = if count == 0 { TURN } else { Duration::ZERO };
            let Some(message) = self.reader.as_mut().and_then(|reader| reader.next(patience)) else { break };
            count += 1;
            is_command |= obey(streams.get_or_insert_with(|| self.kept.streams.clone()), &message);
            let place = usize::try_from(message.partition).ok().and_then(|at| self.kept.offsets.get_mut(at));
            if let Some(place) = place {
                *place = message.offset + 1;
            }
        }
        if let Some(streams) = streams.filter(|streams| *streams != self.kept.streams) {
            self.change(streams);
        }
        if count > 0 {
            self.save();
        }
        if is_command {
            self.next.status = Instant::now();
        }
    }

    /// Takes what the brokers have answered about the topics.
    fn found(&mut self, found: Found) {
        match found {
            Found::Trouble(fault) => return self.note(Part::Commands, Some(fault.to_string())),
            Found::Stored(stored) => {
                self.is_retrieved = true;
                if let Some((streams, skipped)) = stored {
                    warn("is skipped", &skipped);
                    // Another forwarder may have changed it since.
                    if streams != self.kept.streams {
                        self.change(streams);
                        self.kept.is_stored = true;
                    }
                }
            }
            Found::Open(reader, offsets) => {
                self.reader = Some(reader);
                (self.kept.topic, self.kept.offsets) = (self.options.config.topic.clone(), offsets);
            }
        }
        self.save();
        self.note(Part::Commands, None);
    }

    /// Accepts streams whose topics exist. The others stay on the list and are named, and their topics are asked for
    /// again: a message without a topic would hold up all behind it.
    fn judge(&mut self) {
        if Instant::now() < self.next.judge {
            return;
        }
        match self.judge.step(&self.unknown) {
            None => {}
            Some(Err(fault)) => {
                self.next.judge = Instant::now() + RETRY_PAUSE;
                self.note(Part::Topics, Some(fault.to_string()));
            }
            Some(Ok(judged)) => {
                let (found, unusable): (Vec<_>, Vec<_>) = judged.into_iter().partition(|(_, state)| state.is_ok());
                if self.kept.find(&found.into_iter().map(|(topic, _)| topic).collect()) {
                    tracing::info!("{} streams are forwarded", self.kept.accepted().forwarded.len());
                    self.is_applied = false;
                    self.save();
                }
                self.unknown = self.kept.unknown();
                let unusable = unusable.into_iter().filter_map(|(topic, state)| Some((topic, state.err()?)));
                self.wait_for(unusable.collect());
            }
        }
    }

    /// Names topics that cannot be used, and asks for them again later.
    fn wait_for(&mut self, unusable: BTreeMap<String, Unusable>) {
        let of_streams = |topic: &String| self.unknown.contains(topic);
        let unusable: BTreeMap<_, _> = unusable.into_iter().filter(|(topic, _)| of_streams(topic)).collect();
        let is_new = |topic: &String| !self.unusable.contains_key(topic);
        let new =
            unusable.iter().filter(|(topic, _)| is_new(topic)).map(|(topic, why)| (topic.clone(), *why)).collect();
        warn("waits", &self.kept.waiting(&new));
        let count = self.kept.waiting(&unusable).len();
        let texts: Vec<String> = unusable.iter().take(SKIPPED_MAX).map(|(topic, why)| why.text(topic)).collect();
        // A command may have named others meanwhile.
        let is_judged = self.unknown.iter().all(|topic| unusable.contains_key(topic));
        self.next.judge = Instant::now() + if is_judged { TOPICS_PAUSE } else { Duration::ZERO };
        self.unusable = unusable;
        let trouble = format!("streams that wait for their topics: {count}; {}", texts.join(", "));
        self.note(Part::Topics, (count > 0).then_some(trouble));
    }

    /// Notes other streams. They are judged, carried out, stored and told afterwards.
    fn change(&mut self, streams: Streams) {
        self.kept.change(streams);
        self.unknown = self.kept.unknown();
        self.is_applied = false;
        // Topics that no stream waits for any more are no trouble.
        self.wait_for(self.unusable.clone());
        self.unstore();
    }

    /// The storage topic is to get the streams.
    fn unstore(&mut self) {
        self.kept.is_stored = false;
        if let Some(storage) = &mut self.storage {
            storage.is_sent = false;
        }
    }

    /// Sends the streams to the storage topic, and notes when they have arrived.
    fn store(&mut self) {
        let is_due = !self.kept.is_stored && self.is_retrieved;
        let Some(storage) = self.storage.as_mut().filter(|_| is_due) else { return };
        let now = Instant::now();
        if !storage.is_sent && (now < self.next.store || storage.sender.pending() > PENDING_MAX) {
            return;
        }
        let sent = match storage.is_sent {
            true => Ok(()),
            false => storage.sender.send(&storage.place.topic, &self.kept.streams.stored()),
        };
        match sent.and_then(|()| storage.sender.flush(Duration::ZERO)) {
            Ok(is_delivered) => {
                storage.is_sent = true;
                if is_delivered {
                    self.kept.is_stored = true;
                    self.save();
                    self.note(Part::Storage, None);
                }
            }
            Err(fault) => {
                storage.is_sent = false;
                self.next.store = now + PAUSE_MAX;
                self.note(Part::Storage, Some(fault.to_string()));
            }
        }
    }

    /// Sends the status when it is due.
    fn announce(&mut self) {
        if Instant::now() < self.next.status {
            return;
        }
        self.next.status = Instant::now() + STATUS_PAUSE;
        let answer = self.ask(&json!({"command": "status"}), ASK_PATIENCE).unwrap_or_default();
        let figures = Figures::of_status(&answer["running"][SOURCE]["status"]);
        let said = answer["troubles"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let troubles: Vec<&str> = self.troubles.values().map(String::as_str).chain(said).collect();
        let trouble = (!troubles.is_empty()).then(|| troubles.join("\n"));
        if self.sender.pending() > PENDING_MAX {
            return;
        }
        let message = status(&self.me, &self.kept.accepted(), &figures, trouble.as_deref());
        let sent = self.sender.send(&self.options.status.topic, &message);
        if let Err(fault) = sent.and_then(|()| self.sender.flush(Duration::ZERO)) {
            tracing::warn!("{fault}");
        }
    }
}

/// Carries out a command on streams. False where the message is none.
fn obey(streams: &mut Streams, message: &Received) -> bool {
    match read_change(&message.payload) {
        Ok(Some((change, mut skipped))) => {
            skipped.extend(streams.apply(change));
            warn("is skipped", &skipped);
            true
        }
        Ok(None) => {
            tracing::debug!("message {}/{} is no command", message.partition, message.offset);
            false
        }
        Err(mistake) => {
            tracing::warn!("command {}/{} is ignored: {mistake}", message.partition, message.offset);
            false
        }
    }
}

/// Names streams that are not forwarded. `how`: a verb.
fn warn(how: &str, streams: &[Mistake]) {
    for mistake in streams.iter().take(SKIPPED_MAX) {
        tracing::warn!("a stream {how}: {mistake}");
    }
    if streams.len() > SKIPPED_MAX {
        tracing::warn!("the same of {} more streams", streams.len() - SKIPPED_MAX);
    }
}
