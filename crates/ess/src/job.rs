//! One job, from its acceptance to the delivery of its outcome.
//!
//! The data is moved by `beamport up` in a process of its own. This module takes the job's commands, keeps its stop,
//! supervises its process and sends its outcome.
//!
//! Failure behaviour: a process that was killed is started again and resumes. One whose streams are of another boot,
//! or whose file cannot be resumed, restarts from the pinned offsets, a few times at most; then the outcome is an
//! error.

use crate::command::{self, Command, Mistake, Refusal, StartJob, StopJob};
use crate::journal::{self, Entry, Step};
use crate::limits::{
    COMMANDS_A_TURN, FAILED_STARTS_MAX, GONE_PATIENCE, GONE_PAUSE, LATE_PATIENCE, NS_PER_MS, OTHERS_MAX, PAUSE,
    PAUSE_MAX, PENDING_MAX, RESTARTS_MAX, STATUS_DELAY_MAX, STOP_PATIENCE, TURN,
};
use crate::mover::{self, Ended, Figures, Mover};
use crate::options::WriterOptions;
use crate::plan::{self, JOB_FILE, Pins, TEMPLATE_FILE};
use crate::reply::{self, Answer, Dismissed, Writing, Written};
use crate::signals::{Signals, now_ms};
use flow::Fault;
use kafka::group::{Cluster, Received, Sender, TopicReader, Unreadable};
use serde_json::json;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use wire::answ::{self, ActionType};
use wire::{pl72, s6s4t, wrdn, x5f2};

/// The parts of the service that a job needs.
pub(crate) struct Host<'a> {
    pub(crate) options: &'a WriterOptions,
    pub(crate) service: &'a reply::Service,
    pub(crate) dismissed: &'a Cell<Dismissed>,
    pub(crate) cluster: &'a Cluster,
    pub(crate) sender: &'a Sender,
    pub(crate) signals: &'a Signals,
    /// Our own program.
    pub(crate) program: &'a Path,
    /// Jobs in the folder of the service, those of other writers among them.
    pub(crate) known: &'a dyn Fn() -> BTreeSet<String>,
}

/// A job that is worked at.
pub(crate) struct Job<'a> {
    host: Host<'a>,
    entry: Entry,
    start: StartJob,
    control: TopicReader,
    /// Where the control topic stands, by partition.
    control_next: Vec<u64>,
    /// Jobs of other writers that use the same control topic: their stops are not for us, even when they are over.
    others: BTreeSet<String>,
    figures: Figures,
    mover: Option<Mover>,
    next_start: Instant,
    /// Starts in a row that failed.
    failed_starts: u32,
    /// The mover knows the stop.
    has_ended: bool,
    next_end: Instant,
    next_status: Instant,
    last_status: Instant,
    next_gone: Instant,
    /// Since when one of its topics is missing.
    gone_since: Option<Instant>,
    /// Why it cannot continue, if the mover does not report it.
    trouble: Option<String>,
}

impl<'a> Job<'a> {
    pub(crate) fn new(host: Host<'a>, entry: Entry, start: StartJob) -> Result<Self, Fault> {
        let control = host.cluster.read(&start.control_topic, &entry.record.control)?;
        let topics: Vec<String> = entry.record.pins.keys().cloned().collect();
        let now = Instant::now();
        Ok(Self {
            control_next: entry.record.control.clone(),
            others: (host.known)(),
            figures: Figures::new(&entry.folder, &start.job_id, &topics),
            host,
            entry,
            start,
            control,
            mover: None,
            next_start: now,
            failed_starts: 0,
            has_ended: false,
            next_end: now,
            next_status: now,
            last_status: now,
            next_gone: now,
            gone_since: None,
            trouble: None,
        })
    }

    /// Works at it until its outcome is delivered and it is removed, or a signal ends the service: what comes for it
    /// later, if it ended here.
    pub(crate) fn run(mut self) -> Result<Option<Late>, Fault> {
        if self.entry.record.step == Step::Accepted {
            self.answer_start();
        }
        // Otherwise stops that were answered before may repeat.
        let is_heard = self.entry.record.step < Step::Finished;
        if is_heard && !self.write()? {
            return Ok(None);
        }
        if self.entry.record.step == Step::Finished {
            if !self.deliver()? {
                return Ok(None);
            }
            self.step(Step::Delivered)?;
        }
        mover::remove_streams(&self.entry.folder)?;
        self.entry.remove()?;
        let Self { start: StartJob { job_id, control_topic, .. }, control, .. } = self;
        Ok(is_heard.then(|| Late { job_id, control_topic, control, until: Instant::now() + LATE_PATIENCE }))
    }

    /// Delivers the outcome. False where a signal ended the service before.
    fn deliver(&self) -> Result<bool, Fault> {
        let outcome = self.entry.outcome()?;
        // Brokers may have refused what was sent before, such as a long command.
        while let Ok(false) | Err(_) = self.host.sender.flush(TURN) {
            if self.host.signals.is_ending() {
                return Ok(false);
            }
        }
        for message in [Some(outcome.clone()), reply::without_metadata(&outcome)].into_iter().flatten() {
            self.send(&message);
            loop {
                match self.host.sender.flush(TURN) {
                    Ok(true) => return Ok(true),
                    Ok(false) if self.host.signals.is_ending() => return Ok(false),
                    Ok(false) => {}
                    // The message may be too large, or the topic deleted: then nothing can be delivered.
                    Err(fault) => {
                        tracing::error!("job {}: its outcome is not delivered: {fault}", self.start.job_id);
                        break;
                    }
                }
            }
        }
        Ok(true)
    }

    fn send(&self, message: &[u8]) {
        if let Err(fault) = self.host.sender.send(&self.start.control_topic, message) {
            tracing::error!("job {}: {fault}", self.start.job_id);
        }
    }

    fn step(&mut self, step: Step) -> Result<(), Fault> {
        self.entry.record.step = step;
        self.entry.save()
    }

    /// The job is accepted: its command again, the answer, the first status.
    fn answer_start(&mut self) {
        self.send(&self.start.raw);
        self.answer(ActionType::StartJob, 201, &self.start.job_id, "the job is accepted");
        self.send_status();
    }

    fn answer(&self, action: ActionType, code: u16, command_id: &str, message: &str) {
        self.send(&reply::answer(&Answer {
            service_id: &self.host.service.id,
            action,
            code,
            job_id: &self.start.job_id,
            command_id,
            stop_ms: self.entry.record.stop_ms,
            message,
        }));
    }

    fn send_status(&mut self) {
        self.last_status = Instant::now();
        self.next_status = self.last_status + self.host.service.interval;
        if self.host.sender.pending() > PENDING_MAX {
            return;
        }
        let (topics, trouble) = self.figures.read(now_ms().saturating_mul(NS_PER_MS));
        let writing = Writing {
            job_id: self.start.job_id.clone(),
            file_name: self.start.given_name().to_owned(),
            start_ms: self.start.start_ms,
            stop_ms: self.entry.record.stop_ms,
            trouble: self.trouble.clone().or(trouble),
            topics,
        };
        self.send(&reply::status(self.host.service, self.host.dismissed.get(), Some(&writing)));
    }

    /// Delays the next status, since the outcome may come within an interval after the answer to a stop, and clients
    /// expect no status in between. A longer delay would have them take the writer for dead.
    fn delay_status(&mut self) {
        let interval = self.host.service.interval;
        self.next_status = (Instant::now() + interval).min(self.last_status + interval + STATUS_DELAY_MAX);
    }

    /// Until the outcome is on disk; false where a signal ended the service before.
    fn write(&mut self) -> Result<bool, Fault> {
        loop {
            if self.host.signals.is_ending() {
                return Ok(false);
            }
            self.listen();
            if self.is_cancelled() {
                if let Some(mover) = self.mover.take() {
                    drop(mover);
                    // It may have made the file since the last look.
                    self.note_file()?;
                }
                self.remove_file()?;
                return self.finish(None, Some("it was stopped before its start: there is no file".into()));
            }
            if self.supervise()? {
                return Ok(true);
            }
            if self.mover.is_some() {
                self.note_file()?;
            }
            self.end_at_stop();
            if let Some(topic) = self.gone_topic() {
                self.mover = None;
                let cause = format!("topic `{topic}` no longer exists; the file ends with what was written before");
                return self.finish(None, Some(cause));
            }
            if Instant::now() >= self.next_status {
                self.send_status();
            }
            // Takes the reports of the brokers too: without them a delivered status stays pending.
            let is_delivered = self.host.sender.flush(Duration::ZERO).unwrap_or_else(|fault| {
                tracing::warn!("job {}: {fault}", self.start.job_id);
                true
            });
            if self.entry.record.step == Step::Accepted && is_delivered {
                self.step(Step::Running)?;
            }
        }
    }

    /// Takes what came on the control topic.
    fn listen(&mut self) {
        let mut patience = TURN;
        for _ in 0..COMMANDS_A_TURN {
            let Some(message) = self.control.next(patience) else { return };
            patience = Duration::ZERO;
            let partition = usize::try_from(message.partition).unwrap_or(usize::MAX);
            if let Some(next) = self.control_next.get_mut(partition) {
                *next = (*next).max(message.offset + 1);
            }
            let end = self.entry.record.control_end.get(partition).copied().unwrap_or(0);
            self.obey(&message, message.offset >= end);
        }
    }

    /// `is_new`: it came after the job was accepted.
    fn obey(&mut self, message: &Received, is_new: bool) {
        match command::read(&message.payload, message.time_ms) {
            Ok(Some(Command::Stop(stop))) if stop.job_id == self.start.job_id => {
                self.move_stop(&stop, message.time_ms);
            }
            Ok(Some(Command::Stop(stop))) if is_new && !self.others.contains(&stop.job_id) => {
                let hint = format!("the job that is written is `{}`", self.start.job_id);
                self.refuse(400, &stop, Mistake::new("job_id", "no such job is written here", hint));
            }
            Err(refusal) if is_new && refusal.action == ActionType::SetStopTime => self.send_refusal(&refusal),
            other => {
                // A command to start is the echo of a writer.
                if let Ok(Some(Command::Start(start))) = other
                    && self.others.len() < OTHERS_MAX
                {
                    self.others.insert(start.job_id);
                }
                // Messages of writers, this one among them, are expected here.
                let schema = wire::schema_id(&message.payload);
                let is_of_writers =
                    schema.is_some_and(|id| [answ::ID, pl72::ID, s6s4t::ID, wrdn::ID, x5f2::ID].contains(&id));
                if is_new && !is_of_writers {
                    let count = self.host.dismissed.get();
                    self.host.dismissed.set(Dismissed { ignored: count.ignored + 1, ..count });
                }
            }
        }
    }

    fn refuse(&self, code: u16, stop: &StopJob, mistake: Mistake) {
        self.send_refusal(&refusal(code, stop, &self.start.control_topic, mistake));
    }

    fn send_refusal(&self, refusal: &Refusal) {
        let count = self.host.dismissed.get();
        self.host.dismissed.set(Dismissed { refused: count.refused + 1, ..count });
        self.send(&reply::refused(&self.host.service.id, refusal));
    }

    /// A new stop; on disk before it is answered.
    fn move_stop(&mut self, stop: &StopJob, sent_ms: i64) {
        let now = now_ms();
        let old = self.entry.record.stop_ms;
        if self.has_ended || old.is_some_and(|old| old <= now) {
            let what = "the stop of the job has passed";
            return self.refuse(500, stop, Mistake::new("stop_time", what, "send a stop while the job is written"));
        }
        // Now is when it was sent: the service may have been away.
        let asked = stop.stop_ms.unwrap_or_else(|| if sent_ms > 0 { sent_ms.min(now) } else { now });
        let record = &mut self.entry.record;
        let before = (record.stop_ms, record.control.clone());
        // A stop before the start cancels a job that has not begun.
        let new_stop = if now < self.start.start_ms { asked } else { asked.max(self.start.start_ms) };
        (record.stop_ms, record.control) = (Some(new_stop), self.control_next.clone());
        match self.entry.save() {
            Ok(()) => {
                self.answer(ActionType::SetStopTime, 201, &stop.command_id, "the stop is set");
                self.delay_status();
            }
            Err(fault) => {
                (self.entry.record.stop_ms, self.entry.record.control) = before;
                self.refuse(500, stop, Mistake::new("stop_time", fault.to_string(), "send it again later"));
            }
        }
    }

    /// Whether its stop was set before it began, to a time before its start.
    fn is_cancelled(&self) -> bool {
        self.entry.record.stop_ms.is_some_and(|stop| stop < self.start.start_ms)
    }

    /// Notes which file is that of the job. Its mover works, or did until now: it refuses a file of somebody else.
    fn note_file(&mut self) -> Result<(), Fault> {
        if self.entry.record.file.is_none()
            && let Ok(about) = fs::symlink_metadata(self.file())
        {
            self.entry.record.file = Some((about.dev(), about.ino()));
            self.entry.save()?;
        }
        Ok(())
    }

    /// A topic that has been missing for long, though the stop has passed: what it held cannot be waited for.
    fn gone_topic(&mut self) -> Option<String> {
        let now = Instant::now();
        if !self.has_ended || now < self.next_gone {
            return None;
        }
        self.next_gone = now + GONE_PAUSE;
        let names: Vec<String> = self.entry.record.pins.keys().cloned().collect();
        let topics = self.host.cluster.topics(&names, false).ok()?;
        let Some((topic, _)) = topics.into_iter().find(|(_, state)| *state == Err(Unreadable::Missing)) else {
            self.gone_since = None;
            return None;
        };
        let since = *self.gone_since.get_or_insert(now);
        (now.duration_since(since) >= GONE_PATIENCE).then_some(topic)
    }

    /// Tells the mover the stop, once it has passed.
    fn end_at_stop(&mut self) {
        let Some(stop) = self.entry.record.stop_ms else { return };
        if self.has_ended || self.mover.is_none() || now_ms() < stop || Instant::now() < self.next_end {
            return;
        }
        let stop = stop.saturating_mul(NS_PER_MS);
        let request = json!({"command": "end", "run": self.start.job_id, "stop": stop, "inclusive": true});
        match mover::ask(&self.entry.folder, &request, STOP_PATIENCE) {
            Ok(_) => self.has_ended = true,
            // It is starting, or busy.
            Err(fault) => tracing::debug!("job {}: {fault}", self.start.job_id),
        }
        self.next_end = Instant::now() + TURN;
    }

    /// Starts the mover, or looks whether it has ended. True once the outcome is on disk.
    fn supervise(&mut self) -> Result<bool, Fault> {
        let Some(mover) = &mut self.mover else {
            return if Instant::now() < self.next_start { Ok(false) } else { self.start_mover() };
        };
        let Some(ended) = mover.ended(&self.start.job_id)? else { return Ok(false) };
        self.mover = None;
        self.has_ended = false;
        match ended {
            Ended::Reported(report) => self.judge(&report),
            Ended::Killed => {
                tracing::warn!("job {}: its `beamport up` was killed; it is started again", self.start.job_id);
                self.next_start = Instant::now() + PAUSE;
                Ok(false)
            }
            Ended::Failed { said, is_full } => self.failed(said, is_full),
        }
    }

    fn judge(&mut self, report: &serde_json::Value) -> Result<bool, Fault> {
        match mover::given_up(report) {
            None => self.finish(Some(report), None),
            Some(cause) if cause.contains("is not a file of this run") => self.finish(None, Some(cause)),
            Some(cause) => self.restart(cause),
        }
    }

    /// `up` ended without a report: it is started again after a growing pause, and at last the job restarts from its
    /// pins. A lack of room is waited out.
    fn failed(&mut self, said: String, is_full: bool) -> Result<bool, Fault> {
        tracing::warn!("job {}: its `beamport up` failed: {said}", self.start.job_id);
        self.trouble = Some(said.clone());
        if !is_full {
            self.failed_starts += 1;
        }
        if self.failed_starts >= FAILED_STARTS_MAX {
            return self.restart(said);
        }
        self.next_start = Instant::now() + (PAUSE * 4_u32.pow(self.failed_starts.min(4))).min(PAUSE_MAX);
        Ok(false)
    }

    /// Removes streams and file, so that the next start begins with the pinned offsets; the outcome after too many.
    fn restart(&mut self, cause: String) -> Result<bool, Fault> {
        if self.entry.record.restarts >= RESTARTS_MAX {
            return self.finish(None, Some(cause));
        }
        tracing::warn!("job {}: it restarts from its first offsets: {cause}", self.start.job_id);
        self.entry.record.restarts += 1;
        self.entry.record.boot = journal::boot();
        self.entry.save()?;
        mover::remove_streams(&self.entry.folder)?;
        // Without the job's file, a file of this name is somebody else's.
        if self.entry.folder.join(JOB_FILE).exists() {
            if !self.remove_file()? {
                return self.finish(None, Some(format!("`{}` is not the file of this job", self.file().display())));
            }
            self.entry.record.file = None;
            self.entry.save()?;
            // Its stop may be known by now.
            self.put_files()?;
        }
        self.failed_starts = 0;
        self.next_start = Instant::now() + PAUSE;
        Ok(false)
    }

    /// Removes its file, if that is there. False where it is not that of the job.
    fn remove_file(&self) -> Result<bool, Fault> {
        let file = self.file();
        let Ok(about) = fs::symlink_metadata(&file) else { return Ok(true) };
        if self.entry.record.file != Some((about.dev(), about.ino())) {
            return Ok(false);
        }
        fs::remove_file(&file).map_err(|e| Fault::io(format!("cannot remove `{}`", file.display()), &e))?;
        Ok(true)
    }

    fn file(&self) -> PathBuf {
        plan::output(&self.start, self.host.options)
    }

    /// Starts the mover. True where there is nothing to start: the outcome is on disk then.
    fn start_mover(&mut self) -> Result<bool, Fault> {
        let folder = self.entry.folder.clone();
        if self.entry.record.boot != journal::boot() {
            return self.restart("the machine was started again".into());
        }
        if let Some(report) = mover::report(&folder, &self.start.job_id)
            && mover::given_up(&report).is_none()
        {
            return self.finish(Some(&report), None);
        }
        if !folder.join(JOB_FILE).exists() {
            // From here on a file of this name is ours.
            let prefix = &self.host.options.hdf_output_prefix;
            if let Some(mistake) = plan::wrong_place(prefix, &self.start.file_name)? {
                return self.finish(None, Some(format!("since the job was accepted: {}", mistake.what)));
            }
            self.put_files()?;
        }
        let environment = plan::environment(self.host.options);
        self.mover = Some(Mover::start(self.host.program, &environment, &folder)?);
        self.has_ended = false;
        Ok(false)
    }

    /// Writes the files from which `beamport up` runs the job.
    fn put_files(&self) -> Result<(), Fault> {
        let pins = self.entry.record.pins.iter();
        let number = |offset: &u64| i64::try_from(*offset).unwrap_or(i64::MAX);
        let pins = Pins(pins.map(|(topic, row)| (topic.clone(), row.iter().map(number).collect())).collect());
        let passed = self.entry.record.stop_ms.filter(|stop| *stop <= now_ms());
        let files = plan::files(&self.start, self.host.options, &pins, passed);
        self.entry.put(TEMPLATE_FILE, files.template_json.as_bytes())?;
        self.entry.put(JOB_FILE, files.job_toml.as_bytes())
    }

    /// Puts the outcome on disk.
    fn finish(&mut self, report: Option<&serde_json::Value>, error: Option<String>) -> Result<bool, Fault> {
        let mut written = Written {
            job_id: self.start.job_id.clone(),
            file_name: plan::answered_name(&self.start, self.host.options),
            metadata: self.start.metadata.clone(),
            begins: self.entry.record.begins.clone(),
            ..Written::default()
        };
        if let Some(report) = report {
            let topics: Vec<String> = self.entry.record.pins.keys().cloned().collect();
            mover::account(report, &topics, &mut written);
        }
        written.error = error.or(written.error);
        let id = &self.start.job_id;
        let lost = written.lost.len();
        match &written.error {
            None if lost == 0 => tracing::info!("job {id}: `{}` is complete", written.file_name),
            None => tracing::error!("job {id}: `{}` lacks messages: {lost} gaps", written.file_name),
            Some(error) => tracing::error!("job {id}: `{}` is not complete: {error}", written.file_name),
        }
        self.entry.set_outcome(&reply::written(&self.host.service.id, &written))?;
        self.step(Step::Finished)?;
        Ok(true)
    }
}

/// A job that has ended, for stops that were sent before its end was known.
pub(crate) struct Late {
    job_id: String,
    control_topic: String,
    control: TopicReader,
    until: Instant,
}

impl Late {
    /// Refusals of the stops that have come.
    pub(crate) fn refusals(&mut self) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        for _ in 0..COMMANDS_A_TURN {
            let Some(message) = self.control.next(Duration::ZERO) else { break };
            match command::read(&message.payload, message.time_ms) {
                Ok(Some(Command::Stop(stop))) if stop.job_id == self.job_id => {
                    let mistake = Mistake::new("job_id", "the job has ended", "its outcome was sent as `wrdn`");
                    refusals.push(refusal(400, &stop, &self.control_topic, mistake));
                }
                _ => {}
            }
        }
        refusals
    }

    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }
}

fn refusal(code: u16, stop: &StopJob, control_topic: &str, mistake: Mistake) -> Refusal {
    Refusal {
        code,
        action: ActionType::SetStopTime,
        job_id: stop.job_id.clone(),
        command_id: stop.command_id.clone(),
        control_topic: control_topic.to_owned(),
        mistakes: vec![mistake],
    }
}
