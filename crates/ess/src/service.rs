//! The loop of the file writer: it waits for a job in the pool, writes it, and waits again.
//!
//! All of it runs in the thread that calls [`run`], because the kernel ends a job's process with the thread that
//! started it.
//!
//! Failure behaviour: brokers that are away are waited for. A job that cannot be worked at now is tried again. Nothing
//! that a message says ends the loop.

use crate::Programs;
use crate::command::{self, Command, Mistake, Refusal, StartJob};
use crate::job::{Host, Job, Late};
use crate::journal::{self, Entry, Journal, PoolPlace, Record, Step};
use crate::limits::{
    COMMAND_SLACK_MS, DELIVERY_PATIENCE, GROUP, NEW_TOPIC_PATIENCE, PAUSE, PAUSE_MAX, PENDING_MAX, RETRY_PAUSE,
    SCAN_PAUSE, TURN,
};
use crate::options::WriterOptions;
use crate::plan;
use crate::reply::{self, Dismissed, Written};
use crate::signals::{Signals, now_ms};
use flow::{Fault, Passes};
use kafka::group::{At, Cluster, Pool, PoolEvent, Received, Sender, Unreadable};
use kafka::wrong_topic;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wire::answ::ActionType;

/// Partitions of topics, or why they cannot be read.
type Topics = BTreeMap<String, Result<usize, Unreadable>>;

/// Runs the file writer until a signal ends it.
pub(crate) fn run(options: &WriterOptions, programs: &Programs) -> Result<ExitCode, Fault> {
    let signals = Signals::listen()?;
    plan::check_prefix(&options.hdf_output_prefix)?;
    let journal = Journal::open(&options.data)?;
    let cluster = Cluster::new(&options.brokers, &options.kafka_config)?;
    let sender = Sender::new(&options.brokers, &options.kafka_config)?;
    let mut service = Service {
        me: identity(options),
        dismissed: Cell::default(),
        begin: Vec::new(),
        options,
        programs,
        signals,
        journal,
        cluster,
        sender,
        pool: None,
        late: None,
        next_join: Instant::now(),
        next_scan: Instant::now(),
        next_status: Instant::now(),
        strange: BTreeSet::new(),
        failing: BTreeMap::new(),
    };
    if service.begin()? {
        service.work();
    }
    Ok(ExitCode::SUCCESS)
}

/// Who we are in answers: `NAME-pid:N-HEX`.
fn identity(options: &WriterOptions) -> reply::Service {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    let name = if options.service_name.is_empty() { &host } else { &options.service_name };
    let pid = std::process::id();
    let some = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos() & 0xffff;
    reply::Service { id: format!("{name}-pid:{pid}-{some:04x}"), host, pid, interval: options.status_interval }
}

struct Service<'a> {
    options: &'a WriterOptions,
    me: reply::Service,
    dismissed: Cell<Dismissed>,
    programs: &'a Programs,
    signals: Signals,
    journal: Journal,
    cluster: Cluster,
    sender: Sender,
    pool: Option<Pool>,
    /// The newest job that has ended here, for a moment.
    late: Option<Late>,
    /// Where the pool ended when the service began.
    begin: Vec<u64>,
    next_join: Instant,
    next_scan: Instant,
    next_status: Instant,
    /// Folders that are no jobs, and those of jobs that this version cannot read: said once.
    strange: BTreeSet<PathBuf>,
    /// Folders of jobs that met a fault, and when each is tried again: the others come first.
    failing: BTreeMap<PathBuf, Instant>,
}

impl Service<'_> {
    /// Notes where the pool ends, once brokers answer. False where a signal came first.
    fn begin(&mut self) -> Result<bool, Fault> {
        while !self.signals.takes_none() {
            match self.pool_end() {
                Ok(offsets) => {
                    self.begin = offsets;
                    return Ok(true);
                }
                Err(fault) if fault.passes == Passes::Soon => tracing::warn!("{fault}"),
                Err(fault) => return Err(fault),
            }
        }
        Ok(false)
    }

    fn pool_end(&self) -> Result<Vec<u64>, Fault> {
        let pool = &self.options.job_pool_topic;
        let names = [pool.clone(), self.options.command_status_topic.clone()];
        let mut partitions = BTreeMap::new();
        for (topic, state) in self.topics(&names, false, self.options.metadata_timeout)? {
            let count =
                state.map_err(|why| Fault::new(format!("cannot use topic `{topic}`"), cause(&why)).hint(hint(&why)))?;
            if topic == *pool {
                partitions.insert(topic, count);
            }
        }
        let end = self.cluster.offsets(&partitions, At::End)?.remove(pool).unwrap_or_default();
        self.note(&end)?;
        Ok(end)
    }

    /// The group knows where the pool ends before the first status is sent. Messages that come meanwhile are read
    /// again.
    fn note(&self, end: &[u64]) -> Result<(), Fault> {
        let (brokers, topic) = (&self.options.brokers, &self.options.job_pool_topic);
        let mut pool = Pool::new(brokers, &self.options.kafka_config, GROUP, topic, end)?;
        if pool.is_noted()? {
            return Ok(());
        }
        pool.join()?;
        while !pool.is_noted()? && !self.signals.takes_none() {
            pool.next(PAUSE)?;
        }
        Ok(())
    }

    /// Partitions of topics. One that is missing is asked for again: brokers learn of a new topic one after the other.
    fn topics(&self, names: &[String], must_read: bool, patience: Duration) -> Result<Topics, Fault> {
        let until = Instant::now() + patience;
        loop {
            let topics = self.cluster.topics(names, must_read)?;
            let is_whole = topics.values().all(|state| *state != Err(Unreadable::Missing));
            if is_whole || Instant::now() >= until || self.signals.is_ending() {
                return Ok(topics);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn work(&mut self) {
        while !self.signals.takes_none() {
            if let Some(entry) = self.left() {
                self.write(entry);
                continue;
            }
            if Instant::now() >= self.next_status {
                self.announce(&reply::status(&self.me, self.dismissed.get(), None));
                self.next_status = Instant::now() + self.me.interval;
            }
            self.answer_late();
            match self.listen() {
                Ok(Some(entry)) => self.write(entry),
                Ok(None) => {}
                Err(fault) => {
                    tracing::warn!("{fault}");
                    // Whatever was not committed is read again.
                    self.pool = None;
                    self.next_join = Instant::now() + RETRY_PAUSE;
                }
            }
        }
        self.pool = None;
        // The newest message.
        let _ = self.sender.flush(DELIVERY_PATIENCE);
    }

    /// Sends a status to the command-status topic, unless the brokers take none.
    fn announce(&self, message: &[u8]) {
        if self.sender.pending() > PENDING_MAX {
            return;
        }
        let sent = self.sender.send(&self.options.command_status_topic, message);
        if let Err(fault) = sent.and_then(|()| self.sender.flush(Duration::ZERO)) {
            tracing::warn!("{fault}");
        }
    }

    /// Refuses stops of the job that has just ended.
    fn answer_late(&mut self) {
        let Some(late) = &mut self.late else { return };
        let refusals = late.refusals();
        if late.is_over() {
            self.late = None;
        }
        for refusal in refusals {
            self.count_refused();
            let answer = reply::refused(&self.me.id, &refusal);
            if let Err(fault) = self.sender.send(&refusal.control_topic, &answer) {
                tracing::warn!("{fault}");
            }
        }
    }

    fn count_refused(&self) {
        let count = self.dismissed.get();
        self.dismissed.set(Dismissed { refused: count.refused + 1, ..count });
    }

    /// A job that another service, or this one before it was killed, has left.
    fn left(&mut self) -> Option<Entry> {
        if Instant::now() < self.next_scan {
            return None;
        }
        self.next_scan = Instant::now() + SCAN_PAUSE;
        self.failing.retain(|_, again| *again > Instant::now());
        let skipped = self.strange.iter().chain(self.failing.keys()).cloned().collect();
        let (entry, strange) = self.journal.take(&skipped);
        for (folder, why) in strange {
            tracing::warn!("`{}` is left alone: {why}", folder.display());
            self.strange.insert(folder);
        }
        let entry = entry?;
        match self.is_ours(&entry) {
            Ok(true) => Some(entry),
            Ok(false) => {
                let id = &entry.record.job_id;
                tracing::warn!("job `{id}` was never accepted: it comes from the pool again");
                if let Err(fault) = entry.remove() {
                    tracing::warn!("{fault}");
                }
                None
            }
            Err(fault) => {
                tracing::warn!("{fault}");
                None
            }
        }
    }

    /// Whether the group is past the command of a job. It may have been recorded by a service that was killed before it
    /// committed: then the command repeats, here or elsewhere.
    fn is_ours(&mut self, entry: &Entry) -> Result<bool, Fault> {
        if entry.record.step > Step::Accepted {
            return Ok(true);
        }
        let place = entry.record.pool;
        let (committed, note) = self.pool()?.committed(place.partition)?;
        let next = place.offset + 1;
        Ok(committed.is_some_and(|offset| offset > next || offset == next && note == entry.record.job_id))
    }

    fn pool(&mut self) -> Result<&mut Pool, Fault> {
        if self.pool.is_none() {
            let (brokers, topic) = (&self.options.brokers, &self.options.job_pool_topic);
            let pool = Pool::new(brokers, &self.options.kafka_config, GROUP, topic, &self.begin)?;
            pool.join()?;
            self.pool = Some(pool);
        }
        self.pool.as_mut().ok_or_else(|| Fault::new("there is no pool", ""))
    }

    /// Waits for a command in the pool, and accepts or refuses it.
    fn listen(&mut self) -> Result<Option<Entry>, Fault> {
        if Instant::now() < self.next_join {
            std::thread::sleep(TURN);
            return Ok(None);
        }
        let PoolEvent::Message(message) = self.pool()?.next(TURN)? else { return Ok(None) };
        let place = PoolPlace { partition: message.partition, offset: message.offset };
        let accepted = match command::read(&message.payload, message.time_ms) {
            Ok(Some(Command::Start(start))) => self.judge(&start, &message)?,
            Ok(Some(Command::Stop(_)) | None) => Verdict::NotForUs,
            Err(refusal) => Verdict::Refused(refusal),
        };
        match accepted {
            Verdict::Accepted(entry) => return self.commit_accepted(*entry).map(Some),
            Verdict::Wait => {
                return Err(Fault::new(
                    "a job waits",
                    "a service that was killed recorded it, and has not said whether it was accepted",
                ));
            }
            Verdict::Refused(refusal) => self.refuse(&refusal)?,
            Verdict::NotForUs => {
                let size = message.payload.len();
                tracing::debug!("message {} of the pool ({size} bytes) starts no job", message.offset);
                let count = self.dismissed.get();
                self.dismissed.set(Dismissed { ignored: count.ignored + 1, ..count });
            }
        }
        self.pool()?.commit(place.partition, place.offset, "")?;
        Ok(None)
    }

    /// Commits the pool's offset behind a job that is on disk. If that fails, the job is left, and is looked at again.
    fn commit_accepted(&mut self, entry: Entry) -> Result<Entry, Fault> {
        let (place, note) = (entry.record.pool, entry.record.job_id.clone());
        self.pool()?.commit(place.partition, place.offset, &note)?;
        Ok(entry)
    }

    /// Checks a job; on disk where it is accepted.
    fn judge(&mut self, start: &StartJob, message: &Received) -> Result<Verdict, Fault> {
        let place = PoolPlace { partition: message.partition, offset: message.offset };
        match self.journal.state(&start.job_id) {
            Some((Step::Accepted, known)) if known == place => return Ok(Verdict::Wait),
            None if !self.journal.knows(&start.job_id) => {}
            _ => {
                let mistake = Mistake::new("job_id", "a job of this id is being written", "give each job its own id");
                return Ok(Verdict::refused(start, 400, vec![mistake]));
            }
        }
        let checked = match plan::check(start, self.options, &self.programs.nexus) {
            Ok(checked) => checked,
            // Our own fault.
            Err(fault) => {
                let mistake = Mistake::new("writer", fault.to_string(), "");
                return Ok(Verdict::refused(start, 500, vec![mistake]));
            }
        };
        for warning in &checked.warnings {
            tracing::warn!("job {}: {warning}", start.job_id);
        }
        let mut names = checked.topics.clone();
        names.push(start.control_topic.clone());
        let states = self.topics(&names, true, NEW_TOPIC_PATIENCE)?;
        let mut mistakes = checked.mistakes;
        let mut partitions = BTreeMap::new();
        for (topic, state) in states {
            match state {
                Ok(count) => drop(partitions.insert(topic, count)),
                Err(why) => {
                    let field = if topic == start.control_topic { "control_topic" } else { "nexus_structure" };
                    mistakes.push(Mistake::new(field, format!("topic `{topic}`: {}", cause(&why)), hint(&why)));
                }
            }
        }
        if !mistakes.is_empty() {
            return Ok(Verdict::refused(start, 400, mistakes));
        }
        let record = self.record(start, message, &checked.topics, partitions)?;
        let id = start.job_id.clone();
        Ok(match self.journal.accept(record, &start.raw)? {
            Some(entry) => Verdict::Accepted(Box::new(entry)),
            // Another service was faster.
            None => {
                let mistake =
                    Mistake::new("job_id", format!("job `{id}` is being written"), "give each job its own id");
                Verdict::refused(start, 400, vec![mistake])
            }
        })
    }

    /// A job with its pinned offsets.
    fn record(
        &self,
        start: &StartJob,
        message: &Received,
        topics: &[String],
        mut partitions: BTreeMap<String, usize>,
    ) -> Result<Record, Fault> {
        let topic = &start.control_topic;
        let control: BTreeMap<String, usize> =
            partitions.get(topic).map(|count| (topic.clone(), *count)).into_iter().collect();
        partitions.retain(|topic, _| topics.contains(topic));
        let before = i64::try_from(self.options.time_before_start.as_millis()).unwrap_or(i64::MAX);
        let from = start.start_ms.saturating_sub(before);
        // A stop of the job was sent behind its start, by clocks that differ a little.
        let commands = message.time_ms.saturating_sub(COMMAND_SLACK_MS);
        let of = |at: At| Ok::<_, Fault>(self.cluster.offsets(&control, at)?.remove(topic).unwrap_or_default());
        let pins = self.cluster.offsets(&partitions, At::Time(from))?;
        // Asked for behind the pins: what retention takes between the two is counted.
        let first = self.cluster.offsets(&partitions, At::First)?;
        let end = self.cluster.offsets(&partitions, At::End)?;
        let is_past = start.stop_ms.is_some_and(|stop| stop <= now_ms());
        Ok(Record {
            job_id: start.job_id.clone(),
            step: Step::Accepted,
            pool: PoolPlace { partition: message.partition, offset: message.offset },
            command_ms: message.time_ms,
            control_topic: topic.clone(),
            begins: journal::late_begins(&pins, &first, &end, is_past),
            pins,
            control: of(At::Time(commands))?,
            control_end: of(At::End)?,
            stop_ms: start.stop_ms,
            boot: journal::boot(),
            restarts: 0,
            file: None,
        })
    }

    /// Tells a refusal on the command-status topic, as today, and on the control topic. It is delivered then.
    fn refuse(&mut self, refusal: &Refusal) -> Result<(), Fault> {
        let mistakes: Vec<String> = refusal.mistakes.iter().map(ToString::to_string).collect();
        tracing::warn!("job {} is refused: {}", refusal.job_id, mistakes.join("; "));
        self.count_refused();
        let answer = reply::refused(&self.me.id, refusal);
        self.sender.send(&self.options.command_status_topic, &answer)?;
        let control = &refusal.control_topic;
        let is_other = *control != self.options.command_status_topic && wrong_topic(control).is_none();
        if is_other && self.cluster.topics(std::slice::from_ref(control), false)?.values().all(Result::is_ok) {
            self.sender.send(control, &answer)?;
        }
        match self.sender.flush(DELIVERY_PATIENCE) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Fault::new("the refusal of a job is not delivered", "no broker has answered")),
            // Brokers do not take it, and never will.
            Err(fault) => {
                tracing::warn!("{fault}");
                Ok(())
            }
        }
    }

    /// The command of a job. One that is damaged, or whose record is, has an error as its outcome from here on; `None`
    /// where nothing says for whom that would be.
    fn command_of(&self, entry: &mut Entry) -> Result<Option<StartJob>, Fault> {
        let id = entry.record.job_id.clone();
        let start = match command::read(&entry.command, entry.record.command_ms) {
            Ok(Some(Command::Start(start))) if start.job_id == id => Some(*start),
            _ => None,
        };
        let damage = match (&start, entry.damage.take()) {
            (Some(_), None) => return Ok(start),
            (None, None) => "its command cannot be read".to_owned(),
            (_, Some(damage)) => damage,
        };
        let start = start.or_else(|| StartJob::of_damaged(&id, &entry.record.control_topic));
        let Some(start) = start else { return Ok(None) };
        tracing::error!("job {id} is given up: {damage}");
        let file_name = plan::answered_name(&start, self.options);
        let error = Some(format!("{damage}; its file may be incomplete: send the job again, with another file name"));
        let (job_id, metadata) = (id, start.metadata.clone());
        let written = Written { job_id, file_name, metadata, error, ..Written::default() };
        entry.end_damaged(&reply::written(&self.me.id, &written))?;
        Ok(Some(start))
    }

    /// Writes a job. The pool is for others meanwhile.
    fn write(&mut self, mut entry: Entry) {
        self.pool = None;
        // The control topic of the next job may be the same.
        self.late = None;
        let (folder, id) = (entry.folder.clone(), entry.record.job_id.clone());
        let start = match self.command_of(&mut entry) {
            Ok(Some(start)) => start,
            Ok(None) => {
                tracing::error!("`{}` is left alone: its command cannot be read", folder.display());
                self.strange.insert(folder);
                return;
            }
            Err(fault) => {
                tracing::error!("job `{id}` is tried again: {fault}");
                self.failing.insert(folder, Instant::now() + PAUSE_MAX);
                return;
            }
        };
        tracing::info!("job {id}: `{}` is being written", start.file_name);
        let known = || self.journal.ids();
        let host = Host {
            options: self.options,
            service: &self.me,
            dismissed: &self.dismissed,
            cluster: &self.cluster,
            sender: &self.sender,
            signals: &self.signals,
            program: &self.programs.beamport,
            known: &known,
        };
        let done = Job::new(host, entry, start).and_then(Job::run);
        (self.next_status, self.next_scan) = (Instant::now(), Instant::now());
        match done {
            Ok(late) => self.late = late,
            Err(fault) => {
                tracing::error!("job `{id}` is tried again: {fault}");
                self.failing.insert(folder, Instant::now() + PAUSE_MAX);
            }
        }
    }
}

/// The verdict on a command in the pool.
enum Verdict {
    Accepted(Box<Entry>),
    Refused(Refusal),
    /// Another process has it, and has not said yet whether it was accepted.
    Wait,
    NotForUs,
}

impl Verdict {
    fn refused(start: &StartJob, code: u16, mistakes: Vec<Mistake>) -> Self {
        Self::Refused(Refusal {
            code,
            action: ActionType::StartJob,
            job_id: start.job_id.clone(),
            command_id: start.job_id.clone(),
            control_topic: start.control_topic.clone(),
            mistakes,
        })
    }
}

fn cause(why: &Unreadable) -> String {
    match why {
        Unreadable::Missing => "there is no such topic".into(),
        Unreadable::Forbidden => "this user may not read it".into(),
        Unreadable::Other(text) => text.clone(),
    }
}

fn hint(why: &Unreadable) -> &'static str {
    match why {
        Unreadable::Missing => "make the topic, or correct its name",
        Unreadable::Forbidden => "allow this user to describe and read the topic",
        Unreadable::Other(_) => "look at the brokers",
    }
}
