//! A slot of a worker: reads tasks, runs the code, writes an answer after the results (decision 0008).
//!
//! A slot is a process, of this program or of Python; both call [`Slot::step`]. It reads `W.tasks` and the inputs,
//! writes `W.slotK`, and keeps no other state.
//!
//! Constraints: inputs are not copied; results of user code are copied once, into stream memory. One answer per task,
//! however many messages the task has.
//!
//! Failure behaviour: a killed slot leaves results without an answer, which are ignored. A message that the code
//! refuses is set aside with its reason; a missing message (retention, damage) is a gap in the answer. Without room the
//! message is started again later, and the answer reports how far the task is done.

mod account;
mod input;
mod outputs;
mod task;

pub use outputs::Outputs;
pub(crate) use outputs::cut;
pub(crate) use task::{COPY, FILTERED, LOST, MORE, RESET, SAME, STATE, STOP, TIME, WAITS};

use crate::data::{Data, slot_stream, stream_fault, tasks_of};
use crate::limits::{SLOTS_MAX, STATISTICS_PAUSE};
use crate::records::reason_of;
use crate::worker::{Stop, Worker};
use crate::{Fault, SlotJob};
use account::{Account, AsideRow};
use input::{CodeInput, NOWHERE, Source};
use std::time::Duration;
use store::{Check, Error, Kind, Options, ReadOptions, Reader, Stretch, WhenFull, Writer};
use task::Task;

/// Tasks read at once. Those behind the first one of this slot are read and verified again with the next step.
const TASKS: usize = 8;

/// The configuration of a slot, with any stream. That of a process is in its [`SlotJob`].
#[derive(Clone, Debug)]
pub struct SlotOptions {
    /// Number of the slot.
    pub number: u32,
    /// Names of the inputs, as the runner has them.
    pub inputs: Vec<String>,
    /// The stream that it writes.
    pub stream: Options,
    /// First task that is for it.
    pub from: u64,
    /// How a message is given to one of several parts: by its origin.
    pub by_key: bool,
}

/// The result of one step of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stepped {
    /// Something: call again.
    Worked,
    /// There was no task: [`Slot::wait`].
    Idle,
    /// There is no room for its results: [`Slot::wait_room`].
    Full,
    /// It has received the command to end.
    Ended,
}

/// A slot at work.
pub struct Slot {
    data: Data,
    stage: String,
    /// Origin of messages that its code makes.
    maker: String,
    options: SlotOptions,
    tasks: Reader,
    sources: Vec<Option<Source>>,
    writer: Writer,
    task: Option<Task>,
    account: Account,
    bytes: Vec<u8>,
    parameters: Option<String>,
    row: AsideRow,
    /// There was no task at the last step.
    is_idle: bool,
    /// When it was asked for its statistics, ns of `Media::clock`.
    asked: Option<i64>,
    /// Input and message for which there was no room.
    stopped: Option<([u8; 16], u64)>,
}

impl Slot {
    /// Opens the streams of slot `options.number` of worker `stage`.
    pub fn open(data: &Data, stage: &str, options: SlotOptions) -> Result<Self, Fault> {
        if options.number >= SLOTS_MAX {
            return Err(Fault::new(format!("worker `{stage}` has no slot {}", options.number), "too many slots"));
        }
        let writer = data.writer(&slot_stream(stage, options.number), &options.stream)?;
        let name = format!("slot{}", options.number);
        let live = ReadOptions { name, kind: Kind::Live, early: true, ..ReadOptions::default() };
        let mut tasks = data.reader(&tasks_of(stage), live)?;
        tasks.seek(options.from);
        tasks.commit(options.from);
        // At once: the places may be those of a slot that died, and say where that was.
        let open = |name: &String| Source::open(data, stage, options.number, name).map(Some);
        let sources = options.inputs.iter().map(open).collect::<Result<_, Fault>>()?;
        Ok(Self {
            data: data.clone(),
            stage: stage.to_owned(),
            maker: stage.to_owned(),
            sources,
            options,
            tasks,
            writer,
            task: None,
            account: Account::default(),
            bytes: Vec::new(),
            parameters: None,
            row: AsideRow::default(),
            is_idle: false,
            asked: None,
            stopped: None,
        })
    }

    /// Opens the streams of the slot of a job.
    pub fn of_job(data: &Data, job: &SlotJob) -> Result<Self, Fault> {
        let stream = Options { level: job.level, when_full: WhenFull::Wait, ..Options::memory(job.live_bytes) };
        let (number, inputs, from, by_key) = (job.number, job.inputs.clone(), job.from, job.by_key);
        let slot = Self::open(data, &job.stage, SlotOptions { number, inputs, stream, from, by_key })?;
        Ok(Self { maker: job.maker.clone(), ..slot })
    }

    /// The stream that it writes.
    pub fn writer(&mut self) -> &mut Writer {
        &mut self.writer
    }

    /// Waits for a task. False if the time was over first.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool, Fault> {
        self.tasks.wait(timeout).map_err(|e| stream_fault(&tasks_of(&self.stage), e))
    }

    /// Waits for room, or until the time is over.
    pub fn wait_room(&self, timeout: Duration) {
        self.writer.wait_room(timeout);
    }

    /// Does one task, as far as it can. Without room for results it calls `wait`, which waits and returns whether to
    /// retry; if not, a later step restarts the message.
    pub fn step(&mut self, worker: &mut dyn Worker, wait: &mut dyn FnMut(&Writer) -> bool) -> Result<Stepped, Fault> {
        if self.task.is_none() && !self.take()? {
            // Not between two tasks: it waited in vain.
            if std::mem::replace(&mut self.is_idle, true) {
                worker.rest();
            }
            return Ok(Stepped::Idle);
        }
        self.is_idle = false;
        let Some(task) = self.task.clone() else { return Ok(Stepped::Idle) };
        match task.command.as_str() {
            STOP => {
                // The last one may be a second old. Without room it stays the last.
                let (media, statistics) = (self.data.media.as_ref(), worker.statistics());
                self.account.answer(&mut self.writer, &task, media, &mut self.bytes, STOP, &statistics)?;
                return Ok(Stepped::Ended);
            }
            "configure" => {
                if self.parameters.as_deref() != Some(&task.arguments) {
                    worker.configure(&task.arguments)?;
                    self.parameters = Some(task.arguments);
                }
                self.task = None;
                self.tasks.commit(task.number + 1);
                return Ok(Stepped::Worked);
            }
            RESET => {
                worker.reset()?;
                // Of a code that is at rest the next answer may be far away.
                self.asked = None;
                self.task = None;
                self.tasks.commit(task.number + 1);
                return Ok(Stepped::Worked);
            }
            _ => {}
        }
        self.tasks.commit(task.number);
        // Tasks from before the runner knew of the lack of room get an empty answer, and the runner repeats them.
        let is_behind = |stopped: &([u8; 16], u64)| stopped.0 == task.uuid && task.first > stopped.1;
        let comes_later = worker.keeps() && self.stopped.as_ref().is_some_and(is_behind);
        if !self.account.is_cut && !comes_later {
            self.account.is_cut = !self.work(&task, worker, wait)?;
            self.stopped = self.account.is_cut.then_some((task.uuid, self.account.next));
        }
        self.account.is_cut |= comes_later;
        let is_done = !self.account.is_cut;
        // Whoever kills it now, no message is to blame.
        if let Some(Some(source)) = self.sources.get(task.input as usize) {
            source.stand.commit(NOWHERE);
        }
        self.tasks.commit(task.number + 1);
        let media = self.data.media.as_ref();
        let clock = media.clock();
        let is_due = self.asked.is_none_or(|at| clock.saturating_sub(at) >= STATISTICS_PAUSE);
        let statistics = if is_due { worker.statistics() } else { String::new() };
        if is_due {
            self.asked = Some(clock);
        }
        if !self.account.answer(&mut self.writer, &task, media, &mut self.bytes, "", &statistics)? {
            return Ok(Stepped::Full);
        }
        self.task = None;
        Ok(if is_done { Stepped::Worked } else { Stepped::Full })
    }

    /// The next task for this slot. False if there is none.
    fn take(&mut self) -> Result<bool, Fault> {
        let name = tasks_of(&self.stage);
        loop {
            let at = self.tasks.position();
            let (mut found, mut next) = (None, at);
            {
                let batch = match self.tasks.read(TASKS) {
                    Ok(batch) => batch,
                    // It was busy for long, and they were overwritten. The runner sees by its place that it did not read
                    // them, and gives them anew.
                    Err(Error::Gone { first }) => {
                        self.tasks.seek(first);
                        self.tasks.commit(first);
                        continue;
                    }
                    Err(e) => return Err(stream_fault(&name, e)),
                };
                if batch.is_empty() {
                    return Ok(false);
                }
                for message in batch.iter() {
                    next = message.sequence + 1;
                    found = Task::of(&message, self.options.number);
                    if found.is_some() {
                        break;
                    }
                }
            }
            self.tasks.seek(next);
            if let Some(task) = found {
                self.account.begin(task.first, self.writer.next_sequence(), self.data.media.clock());
                self.task = Some(task);
                return Ok(true);
            }
        }
    }

    /// Opens the input of a task, if it is not open, and sets how much of a message is verified. Returns its name.
    fn open_input(&mut self, task: &Task, check: Check) -> Result<String, Fault> {
        let at = task.input as usize;
        let Some(name) = self.options.inputs.get(at).cloned() else {
            return Err(Fault::new(format!("worker `{}` has no input {at}", self.stage), "a task names it"));
        };
        let source = &mut self.sources[at];
        if source.as_ref().is_none_or(|source| source.reader.header().uuid != task.uuid) {
            *source = Some(Source::open(&self.data, &self.stage, self.options.number, &name)?);
        }
        source.as_mut().map_or(Ok(()), |source| source.verify(&self.data, check))?;
        Ok(name)
    }

    /// Does what is left of a task. False where there was no room.
    fn work(
        &mut self,
        task: &Task,
        worker: &mut dyn Worker,
        wait: &mut dyn FnMut(&Writer) -> bool,
    ) -> Result<bool, Fault> {
        let check = if worker.looks_at_payloads() { Check::All } else { Check::Entries };
        let name = self.open_input(task, check)?;
        let Some(source) = &mut self.sources[task.input as usize] else { return Ok(true) };
        while self.account.next < task.next || task.time.is_some() {
            let from = self.account.next;
            source.reader.seek(from);
            let max = usize::try_from(task.next - from).unwrap_or(usize::MAX);
            let names = source.names(from, max)?;
            let mut beside = None;
            // Of no messages none is read.
            let given = match source.reader.next(max) {
                Ok(_) if task.time.is_some() => CodeInput::Time(task.time.unwrap_or_default()),
                Ok(Stretch::Messages(batch)) if !batch.is_empty() => CodeInput::Batch(batch),
                Ok(Stretch::Messages(_)) => {
                    if source.reattach()? <= from {
                        let what = format!("cannot resume slot {} of worker `{}`", self.options.number, self.stage);
                        return Err(Fault::new(what, format!("message {from} of `{name}` is missing")));
                    }
                    continue;
                }
                Ok(Stretch::Missing(missing)) => {
                    self.account.miss(&name, missing.next.min(task.next), reason_of(&missing));
                    continue;
                }
                Err(e @ (Error::Quota { .. } | Error::Limit(_))) => source.refused(&self.data, from, &mut beside, e)?,
                Err(e) => return Err(stream_fault(&name, e)),
            };
            let key = (self.options.by_key && task.parts > 1).then_some((task.part, task.parts));
            let mut out = Outputs {
                stage: &self.stage,
                maker: &self.maker,
                writer: &mut self.writer,
                account: &mut self.account,
                row: (!worker.keeps()).then_some(&mut self.row),
                stand: &source.stand,
                tasks: &self.tasks,
                task,
                source: &name,
                origins: &mut source.origins,
                names: &names,
                key,
                bytes: &mut self.bytes,
                media: self.data.media.as_ref(),
                wait,
                from,
                live_bytes: self.options.stream.live_bytes,
            };
            let did = match given {
                CodeInput::Time(time) => worker.pass_time(time, &mut out).map(|()| out.end_time()),
                CodeInput::Batch(batch) => worker.work(&batch, &mut out).map(|()| out.pass(batch.next())),
                CodeInput::Refused(batch, cause) => out.refuse(&batch, cause).map(|()| out.pass(batch.next())),
            };
            match did {
                Ok(()) if task.time.is_some() => break,
                Ok(()) => {}
                Err(Stop::Full) => {
                    out.account.open = 0;
                    return Ok(false);
                }
                Err(Stop::Fault(fault)) => return Err(fault),
            }
        }
        Ok(true)
    }
}
