//! The source: messages from the stream `NAME.yielded`, where the code yields, into the stream of the source.
//!
//! Order: messages are pushed, the runner publishes them at the end of the step, and only the next step gives their
//! room back to the code. A process that has ended is followed by another once all that it yielded is in the stream of
//! the source, which then says where the code begins.
//!
//! Failure behaviour: a process that is killed at any time leaves whole messages, and a state that agrees with those
//! before it; messages that the code yields again are known by their numbers (`account`). After a kill of the program
//! the same holds for the stream `NAME.yielded`.

use super::Plan;
use super::account::{Account, Place};
use super::process::Process;
use crate::code::ended;
use crate::limits::{
    SOURCE_CODE_BATCH, SOURCE_CODE_CLOSED_REST_NS, SOURCE_CODE_HELD_MAX, SOURCE_CODE_LOAD_PATIENCE,
    SOURCE_CODE_PAUSE_MAX_NS, SOURCE_CODE_PAUSE_NS, SOURCE_CODE_RECOVERED_NS, SOURCE_CODE_REST_NS, SOURCE_CODE_STEP,
};
use flow::job::{Note, SourceStart};
use flow::{Data, Fault, Outlet, Pushed, Resume, Silence, Source, SourceJob, Step, stream_fault, yielded_of};
use serde_json::{Value, json};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Header, Kind, Message, Meta, Options, ReadOptions, Reader, Stretch, WhenFull};

/// Name of the reader of the stream of what the code yields.
static READER: &str = "source";
/// Why a row is in `NAME.aside`: a value that no message can hold, or an exception of the code.
static REFUSED: &str = "refused";
static ERROR: &str = "error";

/// A source of kind `python`.
pub(super) struct PythonSource {
    plan: Arc<Plan>,
    open: Option<Open>,
}

impl PythonSource {
    pub(super) fn new(plan: Arc<Plan>) -> Self {
        Self { plan, open: None }
    }
}

/// A source that was started.
struct Open {
    plan: Arc<Plan>,
    job: SourceJob,
    reader: Reader,
    account: Account,
    progress: Progress,
    process: Option<Process>,
    /// When the code is started again, ns since 1970 UTC, and the pause before that.
    again: i64,
    pause: i64,
    /// When it was looked for edited files, ns since 1970 UTC.
    looked: i64,
    /// No process has written the stream of what the code yields since it was opened here.
    is_settled: bool,
    /// The code has come to its end.
    is_ended: bool,
}

/// How far a step has come.
enum Taken {
    /// Nothing is left.
    All,
    /// More is there.
    More,
    /// The stream of the source has no room.
    Full,
}

/// The state of the process and its code.
#[derive(Default)]
struct Progress {
    /// Names of the origins of what the code yields, each with its row in the stream of the source.
    rows: Vec<(String, Option<u32>)>,
    /// Since when no code runs, ns since 1970 UTC.
    away: Option<i64>,
    /// The newest process has yielded something.
    has_yielded: bool,
    /// When the newest process called the code, ns since 1970 UTC.
    begun: Option<i64>,
    /// Some process has called the code since this program began.
    was_here: bool,
    is_ended: bool,
    trouble: Option<Fault>,
    starts: u64,
    refused: u64,
}

impl Source for PythonSource {
    fn start(&mut self, now: i64, resume: &Resume) -> Result<(), Fault> {
        self.open = Some(Open::start(self.plan.clone(), now, resume)?);
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        self.open.as_mut().map_or(Ok(Step::Ended), |open| open.step(now, out))
    }

    fn stop(&mut self, _now: i64, _out: &mut dyn Outlet) -> Result<(), Fault> {
        // It ends while this source is dropped; what it has yielded is there for the next start.
        if let Some(process) = self.open.as_mut().and_then(|open| open.process.as_mut()) {
            process.ask_to_end();
        }
        Ok(())
    }

    /// Code with a state goes on where it was: what it yields then may be older.
    fn frontier(&self, now: i64) -> i64 {
        let away = self.open.as_ref().filter(|open| open.account.saved.is_some()).and_then(|open| open.progress.away);
        away.unwrap_or(now)
    }

    fn state(&self) -> String {
        self.open.as_ref().map_or_else(String::new, |open| open.account.state(open.place()))
    }

    fn needs_tail(&self) -> bool {
        true
    }

    /// Code with a state goes on where it was.
    fn misses(&self) -> bool {
        self.open.as_ref().is_none_or(|open| open.account.saved.is_none())
    }

    fn trouble(&self) -> Option<Fault> {
        self.open.as_ref().and_then(|open| open.progress.trouble.clone())
    }

    fn absent(&self) -> Option<Fault> {
        self.trouble().filter(|_| self.open.as_ref().is_some_and(|open| !open.progress.was_here))
    }

    fn status(&self) -> Value {
        let Some(open) = &self.open else { return Value::Null };
        json!({"starts": open.progress.starts, "refused": open.progress.refused})
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.open.as_ref()?.process.as_ref()?.descriptor()
    }
}

impl Open {
    fn start(plan: Arc<Plan>, now: i64, resume: &Resume) -> Result<Self, Fault> {
        let code = plan.copied_code()?;
        plan.load(Some(code.clone()), SOURCE_CODE_LOAD_PATIENCE)?;
        let data = Data::on_disk(plan.data());
        let header = Header::read(data.media.as_ref(), &data.stream(&plan.name));
        let header = header.map_err(|e| stream_fault(&plan.name, e))?;
        let stream = yielded_of(&plan.name);
        let live_bytes = header.segment_bytes.saturating_mul(8);
        make(&data, &stream, live_bytes)?;
        let mut reader = reader(&data, &stream)?;
        let (account, place) = Account::read(resume);
        if let Some((_, next)) = place.filter(|place| place.0 == reader.header().uuid) {
            // As far back as there is: the newest state may be behind the position.
            let bounds = reader.bounds();
            reader.seek(next.clamp(bounds.first, bounds.count.max(bounds.first)));
        }
        let job = SourceJob {
            parent: std::process::id(),
            data: plan.data().to_owned(),
            source: plan.name.clone(),
            stream,
            live_bytes,
            code,
        };
        let progress = Progress { away: Some(now), ..Progress::default() };
        let (process, again, pause, looked, is_ended) = (None, now, SOURCE_CODE_PAUSE_NS, now, false);
        let is_settled = true;
        Ok(Self { plan, job, reader, account, progress, process, again, pause, looked, is_settled, is_ended })
    }

    /// Where the source is in the stream of what the code yields.
    fn place(&self) -> Place {
        (self.reader.header().uuid, self.reader.position())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        // All messages of earlier steps are published.
        self.reader.commit(self.reader.position());
        if let Some(process) = &mut self.process {
            process.clear_wakes();
        }
        if self.is_ended {
            return Ok(Step::Ended);
        }
        // Asked before the stream is read: nothing comes behind the end.
        let status = self.process.as_mut().map(Process::ended);
        match self.take(now, out)? {
            Taken::All => {}
            Taken::More => return Ok(Step::Again),
            Taken::Full => return Ok(Step::At(now)),
        }
        self.look(now);
        if self.progress.is_ended {
            self.is_ended = true;
            return Ok(Step::Ended);
        }
        match status {
            Some(Ok(None)) => {}
            None if now < self.again => return Ok(Step::At(self.again)),
            None if self.is_settled => self.begin(now),
            None => {
                self.settle(now)?;
                return Ok(if self.is_settled { Step::Again } else { Step::At(self.again) });
            }
            Some(Ok(Some(status))) => self.rest(now, &ended(status)),
            Some(Err(e)) => self.rest(now, &format!("it is lost: {e}")),
        }
        let is_watched = self.process.as_ref().is_some_and(|process| process.descriptor().is_some());
        Ok(match &self.process {
            None => Step::At(self.again),
            Some(_) => Step::At(now + if is_watched { SOURCE_CODE_REST_NS } else { SOURCE_CODE_CLOSED_REST_NS }),
        })
    }

    /// Looks now and then whether the code was edited, and whether it has recovered.
    fn look(&mut self, now: i64) {
        if now < self.looked + SOURCE_CODE_REST_NS && now >= self.looked {
            return;
        }
        self.looked = now;
        let edited = self.plan.edited();
        if !edited.is_empty() {
            let (files, name) = (edited.join("`, `"), &self.plan.name);
            tracing::warn!(
                "`{files}` has changed since source `{name}` started, which keeps the code that it loaded: end \
                 `beamport up` and start it again to use it"
            );
        }
        if self.progress.begun.is_some_and(|begun| now.saturating_sub(begun) > SOURCE_CODE_RECOVERED_NS) {
            (self.progress.trouble, self.pause) = (None, SOURCE_CODE_PAUSE_NS);
        }
    }

    /// Takes what the code has yielded.
    fn take(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Taken, Fault> {
        let until = Instant::now() + SOURCE_CODE_STEP;
        loop {
            let at = self.reader.position();
            let fault = |e| stream_fault(&self.job.stream, e);
            let batch = match self.reader.next(SOURCE_CODE_BATCH).map_err(fault)? {
                Stretch::Messages(batch) if batch.is_empty() => return Ok(Taken::All),
                Stretch::Messages(batch) => batch,
                Stretch::Missing(missing) => {
                    self.reader.seek(missing.next);
                    continue;
                }
            };
            let rows = batch.entries.iter().map(|entry| entry.origin as usize + 1).max().unwrap_or(0);
            if rows > self.progress.rows.len() {
                let names = self.reader.origins().map_err(fault)?;
                for row in self.progress.rows.len()..rows.max(names.len()) {
                    let name = names.get(row).cloned().unwrap_or_else(|| format!("#{row}"));
                    self.progress.rows.push((name, None));
                }
                self.reader.seek(at);
                continue;
            }
            let mut full = None;
            for message in batch.iter() {
                if self.progress.pass(&self.plan, &mut self.account, &message, (now, out))? == Pushed::Full {
                    full = Some(message.sequence);
                    break;
                }
            }
            if let Some(sequence) = full {
                self.reader.seek(sequence);
                return Ok(Taken::Full);
            }
            if Instant::now() > until {
                return Ok(Taken::More);
            }
        }
    }

    /// Sees to it that all is in the stream that the process before has appended: opening it for writing restores what
    /// was not shown yet, and proves that nobody writes it.
    fn settle(&mut self, now: i64) -> Result<(), Fault> {
        let data = Data::on_disk(self.plan.data());
        match data.writer(&self.job.stream, &options(self.job.live_bytes)) {
            Ok(_) => {}
            // A process that the code started may hold it.
            Err(fault) if fault.passes == flow::Passes::Soon => {
                self.progress.trouble = Some(fault);
                self.again = now + self.pause;
                return Ok(());
            }
            Err(fault) => return Err(fault),
        }
        // The reader looks for a new writer now and then; another one sees all at once.
        let at = self.reader.position();
        self.reader = reader(&data, &self.job.stream)?;
        self.reader.seek(at);
        self.is_settled = true;
        Ok(())
    }

    /// Starts the process.
    fn begin(&mut self, now: i64) {
        self.is_settled = false;
        self.account.settle();
        self.progress.has_yielded = false;
        self.progress.starts += 1;
        let numbers = self.account.numbers();
        let begin = SourceStart { saved: self.account.saved.clone(), numbers };
        match Process::start(&self.plan, &self.job, &begin) {
            Ok(process) => self.process = Some(process),
            Err(fault) => {
                self.progress.trouble = Some(fault);
                self.again = now + self.pause;
                self.pause = (self.pause * 2).min(SOURCE_CODE_PAUSE_MAX_NS);
            }
        }
    }

    /// The process has ended: another is started after a pause, which doubles where it has yielded nothing.
    fn rest(&mut self, now: i64, text: &str) {
        (self.process, self.progress.begun) = (None, None);
        self.progress.away.get_or_insert(now);
        if self.progress.has_yielded {
            self.pause = SOURCE_CODE_PAUSE_NS;
        }
        self.again = now + self.pause;
        self.pause = (self.pause * 2).min(SOURCE_CODE_PAUSE_MAX_NS);
        tracing::warn!("the code of {}: {text}", self.plan.whose());
        if self.progress.trouble.is_none() {
            let what = format!("the code of {} ended", self.plan.whose());
            self.progress.trouble = Some(Fault::new(what, text).hint("see its output above; it is started again"));
        }
    }
}

impl Progress {
    /// Passes a message on, or does what a note says.
    fn pass(
        &mut self,
        plan: &Plan,
        account: &mut Account,
        message: &Message<'_>,
        (now, out): (i64, &mut dyn Outlet),
    ) -> Result<Pushed, Fault> {
        let entry = message.entry;
        if let Some(note) = Note::of_schema(entry.schema.0) {
            let text = String::from_utf8_lossy(message.payload);
            self.note(plan, account, (note, &text, entry.source_time), (now, out))?;
            return Ok(Pushed::Taken);
        }
        let Some((name, row)) = self.rows.get_mut(entry.origin as usize) else { return Ok(Pushed::Taken) };
        (self.has_yielded, self.trouble) = (true, None);
        if account.has(name, entry.origin_seq) {
            return Ok(Pushed::Taken);
        }
        let origin = match row {
            Some(row) => *row,
            None => *row.insert(out.origin(name)?),
        };
        let meta = Meta {
            source_time: entry.source_time,
            origin,
            origin_seq: entry.origin_seq,
            schema: entry.schema,
            flags: entry.flags,
        };
        let pushed = out.push(&meta, message.payload)?;
        if pushed == Pushed::Taken {
            account.note(name, entry.origin_seq);
        }
        Ok(pushed)
    }

    fn note(
        &mut self,
        plan: &Plan,
        account: &mut Account,
        (note, text, time): (Note, &str, i64),
        (now, out): (i64, &mut dyn Outlet),
    ) -> Result<(), Fault> {
        match note {
            Note::Begun => {
                account.begin();
                let away = self.away.take();
                // The runner has recorded the interval before its start.
                if let Some(since) = away.filter(|_| self.was_here && account.saved.is_none()) {
                    out.silent(since..=now.max(since), Silence::Absent);
                }
                (self.was_here, self.begun) = (true, Some(now));
            }
            Note::Saved => account.save(text),
            Note::Refused => {
                self.refused += 1;
                out.aside(REFUSED, text, time, &[]);
                let origin = out.origin(&plan.name)?;
                out.count(origin, "refused.value", 1)?;
            }
            Note::Raised => {
                out.aside(ERROR, text, time, &[]);
                let line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("an exception").trim();
                let what = format!("the code of {} failed", plan.whose());
                self.trouble = Some(Fault::new(what, line).hint("fix the code; its traceback is above"));
            }
            Note::Ended => self.is_ended = true,
        }
        Ok(())
    }
}

fn options(live_bytes: u64) -> Options {
    Options { when_full: WhenFull::Wait, ..Options::memory(live_bytes) }
}

/// Opens the stream of what the code yields where the source was in it.
fn reader(data: &Data, stream: &str) -> Result<Reader, Fault> {
    let options = ReadOptions { name: READER.into(), kind: Kind::Counted, early: true, ..ReadOptions::default() };
    data.reader(stream, options)
}

/// Makes the stream of what the code yields. Its writer of an earlier start dies with its program.
fn make(data: &Data, stream: &str, live_bytes: u64) -> Result<(), Fault> {
    let options = options(live_bytes);
    let until = Instant::now() + SOURCE_CODE_HELD_MAX;
    loop {
        match data.writer(stream, &options) {
            Ok(_) => return Ok(()),
            Err(fault) if fault.passes == flow::Passes::Soon && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(fault) => return Err(fault),
        }
    }
}
