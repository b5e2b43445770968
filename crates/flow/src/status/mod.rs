//! The state of the streams, workers and runs of a data folder, for `ls`, `top` and the progress line of `demo`.
//!
//! * `messages`, `bytes`: in the stream now (payloads, without index and spare space).
//! * `lost`: known missing messages at the entry; of a stream that a merge or a worker fills, the losses of that stage.
//! * `lag`: published messages that the slowest counted reader has not committed; not of `view NAME` and `keeps NAME`,
//!   which only keep messages.
//! * `fill`: share of the live place that cannot be freed: not on disk yet (disk streams), or unread (memory streams).
//! * `late`: messages of a sealed run that arrived after its seal.
//!
//! Constraints: all is derived from index, pins and commits; a [`Watch`] reads only new data at each call, and asks the
//! ledger at most 5 % of the time. Time is an argument; nothing is written and nothing waits.
//!
//! Failure behaviour: a stream that cannot be read is listed as unreadable, and the others are shown.

mod alarms;
mod history;
pub mod members;
mod missing;
pub mod verdict;

pub use alarms::Alarm;
pub use missing::{Missing, missing};

use crate::commits::{self, BySink, CommitsView};
use crate::limits::{LEDGER_PAUSE, STATISTICS_STALE_NS};
use crate::records::{Gap, Run};
use crate::{BookDamage, Data, Fault, RUNS, RunsView, WorkerNow, WorkerState, ledger, stream_fault};
use history::History;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::ErrorKind;
use store::{Check, Kind, Level, ReadOptions, Reader};
use wire::bprn::State;

/// A reader of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReaderStatus {
    /// Its name; empty for an anonymous one.
    pub name: String,
    /// `counted`, `live` or `anonymous`.
    pub kind: &'static str,
    /// Messages that it has not committed yet; none for one that keeps no position.
    pub lag: Option<u64>,
    /// Its process, while it lives.
    pub pid: Option<u32>,
    /// The stream waits for it, but its process has ended, and it is not the reader of a stage.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
}

impl ReaderStatus {
    /// It reads nothing, and keeps messages for a view or for a worker: its position is not behind.
    fn keeps(&self) -> bool {
        self.name.starts_with("view ") || self.name.starts_with("keeps ")
    }
}

/// A stream at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StreamStatus {
    /// Name.
    pub name: String,
    /// `memory` or `disk`.
    pub level: &'static str,
    /// The meaning of its source times.
    pub clock: &'static str,
    /// Oldest sequence that is there.
    pub first: u64,
    /// One past the newest.
    pub count: u64,
    /// Messages below are safe on disk; none for a memory stream.
    pub disk: Option<u64>,
    /// Messages that are there.
    pub messages: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// Bytes that its folder takes, on disk (or in memory, where the folder is).
    pub stored_bytes: u64,
    /// Bytes that its live place takes in shared memory.
    pub live_bytes: u64,
    /// Messages a second since the last look; none at the first.
    pub messages_per_s: Option<f64>,
    /// Bytes of payload a second since the last look.
    pub bytes_per_s: Option<f64>,
    /// Messages known to be missing at the entry, or lost by the merge or worker that fills it.
    pub lost: u64,
    /// The reason of most of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_reason: Option<String>,
    /// There were more of them less than a minute ago than before, as this watch saw.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub losing: bool,
    /// Alarms that last, while a process writes the stream.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub alarms: Vec<Alarm>,
    /// Messages that the slowest counted reader has not committed yet. Readers that only keep messages do not count.
    pub lag: u64,
    /// Share of the live place that cannot be freed, 0 to 1.
    pub fill: f64,
    /// Messages of sealed runs that came after the seal.
    pub late: u64,
    /// Process that writes, while it lives.
    pub writer: Option<u32>,
    /// A writer was killed and has not come back: the stream is recovered when the next one opens it.
    pub orphaned: bool,
    /// Its messages lie in the shared memory of another container: none of them is seen here.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub elsewhere: bool,
    /// How far its newest arrival is ahead of now, ns, where the machine's clock was ahead by more than 1 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrival_ahead_ns: Option<i64>,
    /// Messages that were marked and that a recovery has cut since.
    pub cut: Vec<Gap>,
    /// Streams that this one points into, if it is a view.
    pub parents: Vec<String>,
    /// Its readers.
    pub readers: Vec<ReaderStatus>,
}

/// A worker that runs, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WorkerStatus {
    /// Name.
    pub name: String,
    /// Slots that it should have.
    pub slots: u64,
    /// Slots that work, or wait for work.
    pub living: u64,
    /// Slots whose process has not come to its first task.
    pub starting: u64,
    /// Slots that died and wait to be started again.
    pub away: u64,
    /// How often slots died since `up`.
    pub restarts: u64,
    /// Messages that have their end, since ever.
    pub messages: u64,
    /// The same per second, between its last two published moments.
    pub messages_per_s: Option<f64>,
    /// Messages of its inputs that it has not committed.
    pub lag: u64,
    /// Messages aside, since ever.
    pub aside: u64,
    /// Messages filtered, since ever.
    pub filtered: u64,
    /// Messages lost, since ever.
    pub lost: u64,
    /// Messages that a shadow was too slow for, since ever.
    pub slow: u64,
    /// Which code it runs now; empty before its first commit.
    pub call: String,
    /// The hash of the copy of its files that its slots load; none of what is installed or ready-made.
    pub hash: Option<String>,
    /// From which messages on, where it was cut over to it: stream, epoch, sequence; else null.
    pub since: serde_json::Value,
    /// The worker beside which it runs as a shadow.
    pub shadow: Option<String>,
    /// Statistics that the code of each slot reports.
    pub statistics: BTreeMap<u32, BTreeMap<String, serde_json::Value>>,
}

/// A folder that says it is a stream and cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// Name.
    pub name: String,
    /// Why.
    pub why: String,
}

/// A run at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RunStatus {
    /// Name.
    pub name: String,
    /// `open`, `settling` or `sealed`.
    pub state: &'static str,
    /// First source time, ns since 1970 UTC.
    pub start: i64,
    /// End of the source times; none while it is not known.
    pub stop: Option<i64>,
    /// Its messages; before it is sealed those so far.
    pub messages: Option<u64>,
    /// Bytes of their payloads.
    pub bytes: Option<u64>,
    /// Finished files.
    pub files: Vec<String>,
    /// Every account of it closes and nothing is held; none if that was not asked.
    pub closed: Option<bool>,
    /// Messages lost.
    pub lost: Option<u64>,
    /// Its messages that came after the seal.
    pub late: u64,
    /// Times of it in which a stream had no source, once it is sealed.
    pub absent: Vec<Gap>,
    /// How long sources asked their boards to pause.
    pub dead_time: Vec<ledger::DeadTime>,
    /// How far the wall clock was set in the run, or ahead of which arrivals it began, ns: negative = back, 0 = not.
    pub clock_step_ns: i64,
    /// The person or the condition that ended it.
    pub reason: String,
    /// Why it lacks an account that it should have, or may differ from what is shown.
    pub trouble: Option<String>,
}

/// A data folder at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// ns since 1970 UTC.
    pub time: i64,
    /// The data folder.
    pub data: String,
    /// Streams by name, without those that keep the books.
    pub streams: Vec<StreamStatus>,
    /// Workers that run, by name.
    pub workers: Vec<WorkerStatus>,
    /// Runs, oldest first: all, or those of [`Watch::newest`].
    pub runs: Vec<RunStatus>,
    /// How many further runs there are, all of them done.
    pub older_runs: u64,
    /// Sums over those of them whose accounts this [`Watch`] has shown before.
    #[serde(skip)]
    pub older_totals: RunTotals,
    /// The accounts of merges, workers and live sinks, one an input, over all that they were given.
    pub stages: Vec<ledger::Row>,
    /// The ids that merges by number did not have; only looked for with the accounts.
    pub missing: Vec<Missing>,
    /// Streams that cannot be read.
    pub unreadable: Vec<Unreadable>,
    /// Messages of books that cannot be read; only looked for with the accounts.
    pub damaged: Vec<BookDamage>,
}

/// Sums over runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunTotals {
    /// Messages lost.
    pub lost: u64,
    /// Messages that came after the seal of their run.
    pub late: u64,
    /// Runs whose account does not close.
    pub not_closed: u64,
}

impl RunTotals {
    /// With a run more.
    pub fn add(&mut self, run: &RunStatus) {
        self.lost += run.lost.unwrap_or(0);
        self.late += run.late;
        self.not_closed += u64::from(run.closed == Some(false));
    }
}

/// Looks at a data folder again and again.
pub struct Watch {
    data: Data,
    /// The stream of runs that it follows, by its identity; none before there is one.
    of_stream: Option<[u8; 16]>,
    runs: RunsView,
    commits: CommitsView,
    seen: BTreeMap<String, History>,
    /// When it was looked at, ns of `Media::clock`.
    looked: Option<i64>,
    /// By worker: time, ns since 1970 UTC, and messages at its last two published moments.
    moments: BTreeMap<String, [(i64, u64); 2]>,
    /// Runs that are sealed and written: they change no more but for late messages.
    done: HashMap<String, RunStatus>,
    /// Runs that are done and not shown, and what was known of those that were shown before.
    older: HashSet<String>,
    older_totals: RunTotals,
    /// Runs of which it shows the newest, and those that are not done.
    most_runs: usize,
    /// The newest look at each run that is not sealed.
    open: HashMap<String, OpenRun>,
}

/// A run that is not sealed.
#[derive(Clone, Copy)]
struct OpenRun {
    /// When it was looked at, ns of `Media::clock`.
    asked: i64,
    /// How long that took, ns.
    took: i64,
    /// Messages in its streams, their bytes, and lost messages; none where they cannot be read.
    so_far: Option<[u64; 3]>,
}

impl Watch {
    /// Of this data folder.
    #[must_use]
    pub fn new(data: &Data) -> Self {
        let (of_stream, seen, looked, moments, done, older, older_totals) = Default::default();
        let (data, runs, commits) = (data.clone(), RunsView::new(data), CommitsView::new(data));
        Self {
            data,
            of_stream,
            runs,
            commits,
            seen,
            looked,
            moments,
            done,
            older,
            older_totals,
            most_runs: usize::MAX,
            open: HashMap::new(),
        }
    }

    /// Looks at the newest `most` runs, and at those that are not done: a look costs what it shows, and not what a year
    /// of runs does.
    #[must_use]
    pub fn newest(mut self, most: usize) -> Self {
        self.most_runs = most;
        self
    }

    /// Looks at `now`, ns since 1970 UTC. `accounts`: with the ledger of runs that are not finished, a pass over the
    /// index of each.
    pub fn status(&mut self, now: i64, accounts: bool) -> Result<Status, Fault> {
        let clock = self.data.media.clock();
        let since = self.looked.replace(clock).map(|last| clock.saturating_sub(last) as f64 * 1e-9);
        self.follow_runs()?;
        let all = self.shown();
        self.open.retain(|name, _| all.iter().any(|run| run.name == *name && run.state != State::Sealed));
        let older_runs = (self.runs.runs().len() - all.len()) as u64;
        let mut status = Status {
            time: now,
            data: self.data.folder.display().to_string(),
            streams: Vec::new(),
            workers: Vec::new(),
            runs: Vec::new(),
            older_runs,
            older_totals: self.older_totals,
            stages: Vec::new(),
            missing: Vec::new(),
            unreadable: unreadable(&self.data)?,
            damaged: if accounts { self.data.damage()? } else { Vec::new() },
        };
        let names = self.data.streams(false)?;
        // By name alone: books are not opened for that.
        let books = self.data.media.list(&self.data.folder).unwrap_or_default();
        self.seen.retain(|name, _| names.contains(name));
        for name in names {
            let seen = self.seen.entry(name.clone()).or_default();
            let looked = ledger::stage(&self.data, &name).and_then(|rows| {
                Ok((look_at(&self.data, &name, &all, seen, &Look { now, since, filled: &rows, books: &books })?, rows))
            });
            match looked {
                Ok((stream, rows)) => {
                    status.streams.push(stream);
                    status.stages.extend(rows);
                    if accounts {
                        status.missing.extend(missing(&self.data, &name)?);
                    }
                }
                Err(fault) => status.unreadable.push(Unreadable { name, why: fault.cause }),
            }
        }
        self.look_at_live_sinks(&mut status)?;
        self.look_at_workers(&mut status)?;
        for run in &all {
            let commits = self.commits.of_run(&run.name).cloned().unwrap_or_default();
            let mut stands = self.look_at_run(run, commits, accounts);
            if let Some(why) = self.runs.doubt(run) {
                stands.trouble.get_or_insert(why);
            }
            status.runs.push(stands);
        }
        self.commits.forget(|run| self.older.contains(run) || self.done.contains_key(run));
        Ok(status)
    }

    /// Reads what is new of runs, and of their commits as long as a run is not done.
    fn follow_runs(&mut self) -> Result<(), Fault> {
        let header = store::Header::read(self.data.media.as_ref(), &self.data.stream(RUNS));
        let stream = header.ok().map(|header| header.uuid);
        if self.of_stream != stream {
            // Runs of another folder of that name may have the names of these.
            (self.done, self.older, self.older_totals) = Default::default();
            (self.runs, self.commits) = (RunsView::new(&self.data), CommitsView::new(&self.data));
            self.of_stream = stream;
        }
        let runs = self.runs.refresh()?;
        if runs.iter().all(|run| self.older.contains(&run.name) || self.done.contains_key(&run.name)) {
            return Ok(());
        }
        self.commits.refresh()
    }

    /// Live sinks fill no stream: their books name them.
    fn look_at_live_sinks(&self, status: &mut Status) -> Result<(), Fault> {
        let is_stream = |name: &str| status.streams.iter().any(|stream| stream.name == name);
        for name in ledger::live_sinks(&self.data)?.into_iter().filter(|name| !is_stream(name)) {
            match ledger::stage(&self.data, &name) {
                Ok(rows) => status.stages.extend(rows),
                Err(fault) => status.unreadable.push(Unreadable { name, why: fault.cause }),
            }
        }
        Ok(())
    }

    fn look_at_workers(&mut self, status: &mut Status) -> Result<(), Fault> {
        for book in self.data.streams(true)? {
            let Some(name) = book.strip_suffix(".statistics") else { continue };
            // Skips a stream that was removed or recreated meanwhile.
            let Ok(Some(state)) = WorkerState::newest(&self.data, name) else { continue };
            // Receivers have such streams too.
            if !state.numbers.contains_key("slots") {
                continue;
            }
            let messages = state.number("messages");
            let moments = self.moments.entry(name.to_owned()).or_insert([(state.time, messages); 2]);
            if moments[1].0 != state.time {
                *moments = [moments[1], (state.time, messages)];
            }
            let [before, now] = *moments;
            let seconds = (now.0 - before.0) as f64 * 1e-9;
            let readers = status.streams.iter().flat_map(|s| &s.readers);
            let lags = readers.filter(|r| r.kind != "anonymous" && r.name == name).filter_map(|r| r.lag);
            let now_runs = WorkerNow::newest(&self.data, name).ok().flatten().unwrap_or_default();
            status.workers.push(WorkerStatus {
                name: name.to_owned(),
                slots: state.number("slots"),
                living: state.number("living"),
                starting: state.number("starting"),
                away: state.number("away"),
                restarts: state.number("restarts"),
                messages,
                messages_per_s: match seconds > 0.0 {
                    // It tells nothing where nothing changes.
                    true if status.time - now.0 > STATISTICS_STALE_NS => Some(0.0),
                    true => Some(now.1.saturating_sub(before.1) as f64 / seconds),
                    false => None,
                },
                lag: lags.sum(),
                aside: state.number("aside"),
                filtered: state.number("filtered"),
                lost: state.number("lost"),
                slow: state.number("slow"),
                call: now_runs.code["call"].as_str().unwrap_or_default().to_owned(),
                hash: now_runs.code["hash"].as_str().map(str::to_owned),
                since: now_runs.since,
                shadow: now_runs.shadow,
                statistics: state.slots,
            });
        }
        Ok(())
    }

    /// The newest runs, and those before that are not done, oldest first.
    fn shown(&mut self) -> Vec<Run> {
        let runs = self.runs.runs();
        let newest = runs.len().saturating_sub(self.most_runs);
        let commits = &self.commits;
        let is_finished = |run: &Run| match commits.of_run(&run.name) {
            Some(commits) => commits.values().all(|commit| commit.finished),
            None => run.sinks().is_empty(),
        };
        let mut shown = Vec::new();
        for (at, run) in runs.iter().enumerate() {
            if at < newest {
                if self.older.contains(&run.name) {
                    continue;
                }
                let known = self.done.remove(&run.name);
                if known.is_some() || run.state == State::Sealed && is_finished(run) {
                    let late = self.seen.values_mut().filter_map(|seen| seen.late.remove(&run.name));
                    let late = late.map(|(_, late)| late).sum();
                    known.into_iter().for_each(|run| self.older_totals.add(&RunStatus { late, ..run }));
                    self.older.insert(run.name.clone());
                    continue;
                }
            }
            shown.push(run.clone());
        }
        shown
    }

    fn look_at_run(&mut self, run: &Run, commits: BySink, accounts: bool) -> RunStatus {
        let late = self.seen.values().filter_map(|s| s.late.get(&run.name)).map(|l| l.1).sum();
        if let Some(done) = self.done.get(&run.name) {
            return RunStatus { late, ..done.clone() };
        }
        let mut status = RunStatus {
            name: run.name.clone(),
            state: run.state.name(),
            start: run.start,
            stop: (run.stop != wire::bprn::STOP_UNKNOWN).then_some(run.stop),
            messages: None,
            bytes: None,
            files: Vec::new(),
            closed: None,
            lost: None,
            late,
            absent: Vec::new(),
            dead_time: Vec::new(),
            clock_step_ns: run.clock_step,
            reason: run.reason.clone(),
            trouble: None,
        };
        // Sinks that wrote nothing yet, or never will, are asked for too.
        let mut sinks = run.sinks();
        sinks.extend(commits.keys().cloned());
        sinks.sort();
        sinks.dedup();
        let finished = !sinks.is_empty() && sinks.iter().all(|s| commits.get(s).is_some_and(|c| c.finished));
        status.files = commits.values().filter(|c| c.finished).filter_map(|c| file_of(&c.state)).collect();
        if !(accounts || finished) {
            if run.state != State::Sealed {
                self.look_at_open(run, &commits, &sinks, &mut status);
            }
            return status;
        }
        // A stream that cannot be read takes the account of its runs, not the list of all the others.
        match self.account(run, &commits, &sinks, &mut status) {
            Ok(()) if finished && run.state == State::Sealed => {
                self.done.insert(run.name.clone(), status.clone());
            }
            Ok(()) => {}
            Err(fault) => status.trouble = Some(format!("{}: {}", fault.what, fault.cause)),
        }
        status
    }

    /// What a run that is not sealed holds so far: a pass over its index, at most 5 % of the time.
    fn look_at_open(&mut self, run: &Run, commits: &BySink, sinks: &[String], status: &mut RunStatus) {
        let clock = || self.data.media.clock();
        let known = self.open.get(&run.name).copied();
        let is_due = |open: OpenRun| clock().saturating_sub(open.asked) >= open.took.saturating_mul(LEDGER_PAUSE);
        if known.is_none_or(is_due) {
            let began = clock();
            // Without an account of what cannot be read: `ls` says why.
            let so_far = members::up_to_now(&self.data, run).and_then(|run| {
                let members = members::all(&self.data, &run)?;
                let lost = ledger::account_of_commits(&self.data, &run, commits, sinks)?.lost;
                let sum = |of: fn(&members::Members) -> u64| members.iter().map(of).sum();
                Ok([sum(|m| m.messages), sum(|m| m.bytes), lost])
            });
            let (asked, so_far) = (clock(), so_far.ok());
            self.open.insert(run.name.clone(), OpenRun { asked, took: asked.saturating_sub(began), so_far });
        }
        let so_far = self.open.get(&run.name).and_then(|open| open.so_far);
        (status.messages, status.bytes) = (so_far.map(|so_far| so_far[0]), so_far.map(|so_far| so_far[1]));
        status.lost = so_far.map(|so_far| so_far[2]);
    }

    fn account(&self, run: &Run, commits: &BySink, sinks: &[String], status: &mut RunStatus) -> Result<(), Fault> {
        let account = ledger::account_of_commits(&self.data, run, commits, sinks)?;
        (status.closed, status.lost) = (Some(account.closed), Some(account.lost));
        status.absent = account.absences().cloned().collect();
        status.dead_time = account.dead_time;
        if run.state != State::Sealed {
            return Ok(());
        }
        let members = members::all(&self.data, run)?;
        if members.iter().all(|m| m.gone.is_none()) {
            status.messages = Some(members.iter().map(|m| m.messages).sum());
            status.bytes = Some(members.iter().map(|m| m.bytes).sum());
        } else {
            // What retention took can no longer be counted: the commits of the stages stand for it.
            let mut read: BTreeMap<&str, u64> = BTreeMap::new();
            for row in &account.rows {
                let most = read.entry(&row.stream).or_default();
                *most = row.read.max(*most);
            }
            status.messages = (!read.is_empty()).then(|| read.values().sum());
        }
        Ok(())
    }
}

/// The file that a finished sink left behind.
fn file_of(state: &str) -> Option<String> {
    let state: serde_json::Value = serde_json::from_str(state).ok()?;
    state["file"].as_str().map(str::to_owned)
}

/// Folders that hold a header which cannot be read.
pub fn unreadable(data: &Data) -> Result<Vec<Unreadable>, Fault> {
    let names = data
        .media
        .list(&data.folder)
        .map_err(|e| Fault::new(format!("cannot read data folder `{}`", data.folder.display()), e))?;
    let mut all = Vec::new();
    for name in names {
        match store::Header::read(data.media.as_ref(), &data.stream(&name)) {
            Ok(_) | Err(store::Error::Missing(_)) => {}
            // Files beside the streams, a template for example, hold no header.
            Err(store::Error::Io { source, .. }) if source.kind() == ErrorKind::NotADirectory => {}
            Err(e) => all.push(Unreadable { name, why: e.to_string() }),
        }
    }
    Ok(all)
}

/// How far the newest arrival of a stream is ahead of now, ns: the machine's clock was ahead when it was given.
pub fn arrival_ahead(reader: &mut Reader, now: i64) -> Option<i64> {
    let newest = reader.bounds().count.checked_sub(1)?;
    let ahead = reader.entries(newest, 1).ok()?.first()?.arrival_time.saturating_sub(now);
    (ahead > store::limits::CLOCK_STEP_NS).then_some(ahead)
}

/// The context of a look at a stream.
struct Look<'a> {
    /// ns since 1970 UTC.
    now: i64,
    /// Seconds since the last look.
    since: Option<f64>,
    /// Accounts of the stage that fills the stream from others; none of another stream.
    filled: &'a [ledger::Row],
    /// Names in the data folder, of which some are books.
    books: &'a [String],
}

fn look_at(data: &Data, name: &str, runs: &[Run], seen: &mut History, look: &Look<'_>) -> Result<StreamStatus, Fault> {
    let fault = |e| stream_fault(name, e);
    let options = ReadOptions { early: true, check: Check::Nothing, ..ReadOptions::default() };
    let mut reader = data.reader(name, options)?;
    let header = reader.header().clone();
    // A recovery may have cut the end of what was looked at.
    let first_look = seen.uuid != header.uuid || seen.next > reader.bounds().count;
    // At the last look it was not there: all of it has come since.
    let is_new = seen.uuid == [0; 16];
    if first_look {
        *seen = History::new(header.uuid);
    }
    seen.catch_up(&mut reader).map_err(fault)?;
    seen.count_late(&mut reader, runs).map_err(fault)?;
    seen.ask_ledger(data, name, look.filled)?;
    let bounds = reader.bounds();
    let readers = readers(data, &reader, bounds.count, look.books);
    let slowest = |is_of: fn(&ReaderStatus) -> bool| {
        readers.iter().filter(|r| r.kind == "counted" && is_of(r)).filter_map(|r| r.lag).max().unwrap_or(0)
    };
    let lag = slowest(|reader| !reader.keeps());
    let needed_from = match header.level {
        Level::Disk => bounds.disk,
        Level::Memory => bounds.count - slowest(|_| true).min(bounds.count - bounds.first),
    };
    // A folder that goes away meanwhile takes nothing.
    let occupied = |folder| data.media.occupied(folder).unwrap_or(0);
    let live_bytes = if header.live == reader.folder() { 0 } else { occupied(&header.live) };
    let stored_bytes = occupied(reader.folder());
    // The size asked for is not recorded: a segment is an eighth of it, up to the largest segment; a live place
    // that has turned round takes all of it.
    let room = (header.segment_bytes * 8).max(live_bytes);
    let rate = |n: u64| look.since.filter(|s| *s > 0.0 && (is_new || !first_look)).map(|s| n as f64 / s);
    let writer = reader.writer();
    let mut parents: Vec<String> = reader.parents().map_err(fault)?.into_iter().map(|row| row.name).collect();
    parents.dedup();
    // The bytes that a view shows lie in its parents: of its own it has the index.
    let needed = match parents.is_empty() {
        true => seen.bytes_from(needed_from),
        false => bounds.count.saturating_sub(needed_from) * store::ENTRY_BYTES as u64,
    };
    Ok(StreamStatus {
        name: name.to_owned(),
        level: header.level.as_str(),
        clock: header.clock.as_str(),
        first: bounds.first,
        count: bounds.count,
        disk: (header.level == Level::Disk).then_some(bounds.disk),
        messages: bounds.count - bounds.first.min(bounds.count),
        bytes: seen.bytes_from(0),
        stored_bytes,
        live_bytes,
        messages_per_s: rate(seen.came.0),
        bytes_per_s: rate(seen.came.1),
        lost: seen.lost.as_ref().map_or(0, |lost| lost.count),
        lost_reason: seen.lost.as_ref().and_then(|lost| lost.reason.clone()),
        losing: seen.loses(data.media.clock()),
        alarms: if writer.is_some() { seen.alarms.lasting() } else { Vec::new() },
        lag,
        fill: (needed as f64 / room as f64).min(1.0),
        late: seen.late.values().map(|l| l.1).sum(),
        writer: writer.map(|p| p.pid),
        elsewhere: reader.is_here().is_err(),
        orphaned: bounds.written && writer.is_none(),
        arrival_ahead_ns: arrival_ahead(&mut reader, look.now),
        cut: seen.cut.clone(),
        parents,
        readers,
    })
}

/// Names of readers from outside that a stream waits for although their process has ended. `streams`: all of the data
/// folder.
pub fn gone_readers(data: &Data, reader: &Reader, streams: &[String]) -> Vec<String> {
    let all = readers(data, reader, reader.bounds().count, streams);
    all.into_iter().filter(|reader| reader.gone).map(|reader| reader.name).collect()
}

/// Readers that live or keep a position, without the one that looks.
fn readers(data: &Data, reader: &Reader, count: u64, streams: &[String]) -> Vec<ReaderStatus> {
    let me = data.media.process();
    let pins = reader.pins();
    let mut all: Vec<ReaderStatus> = pins
        .readers()
        .into_iter()
        .filter_map(|r| {
            let kind = match r.kind {
                Kind::Anonymous => "anonymous",
                Kind::Counted => "counted",
                Kind::Live => "live",
            };
            let pid = pins.lives(data.media.as_ref(), &r).then_some(r.process.pid);
            let anonymous = r.kind == Kind::Anonymous;
            let lag = (!anonymous).then(|| count.saturating_sub(r.committed));
            let is_outside = || !commits::has_books(commits::stage_of_reader(&r.name), streams);
            let gone = r.kind == Kind::Counted && pid.is_none() && is_outside();
            let is_shown = !anonymous || (pid.is_some() && r.process != me);
            is_shown.then_some(ReaderStatus { name: r.name, kind, lag, pid, gone })
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}
