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

use crate::aside::Unhandled;
use crate::book::own_meta;
use crate::data::{Data, slot_stream, stream_fault, tasks_of};
use crate::limits::{SLOTS_MAX, STATISTICS_PAUSE};
use crate::records::{Gap, reason_of};
use crate::{Fault, Pushed};
use std::sync::Arc;
use std::time::Duration;
use store::{
    Batch, Check, Entry, Error, Kind, Level, Message, Meta, Options, ReadOptions, Reader, SchemaId, Stretch, Writer,
};

/// Tasks read at once. Those behind the first one of this slot are read and verified again with the next step.
const TASKS: usize = 8;
/// Command of an answer behind which more of the same task comes.
pub(crate) const MORE: &str = "more";
/// Command of a task: the slot is to end. Its answer has the last statistics.
pub(crate) const STOP: &str = "stop";
/// In its position in the tasks: it waits for room.
pub(crate) const WAITS: u64 = 1 << 63;
/// Position of a slot that is not in user code.
const NOWHERE: u64 = u64::MAX;
/// In the place of how many messages were made of one: it was filtered.
pub(crate) const FILTERED: u32 = u32::MAX;
/// The same: it was not there.
pub(crate) const LOST: u32 = u32::MAX - 1;
/// The same: what was made is the message itself.
pub(crate) const SAME: u32 = u32::MAX - 2;
/// In the arguments of a task: the output cannot point into the input.
pub(crate) const COPY: &str = "copy";
/// Command of a task: the input is complete up to a time.
pub(crate) const TIME: &str = "time";
/// Messages (or batches) in a row that a slot which has done others puts aside: behind them a fresh slot tries the next.
/// Code that broke what it works with (a patched library, memory of a device that is used up) fails from then on
/// whatever comes, and each message that it puts aside is lost to the output; bad messages seldom come in such rows.
const ASIDE_ROW_MAX: u32 = 16;
/// Bytes of a reason's text: a traceback of a deep recursion is of no more use.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// The code of a slot. Properties have no default, because a worker that wraps another would forget to pass them on.
pub trait Worker {
    /// Processes the messages of a batch in order. For each: [`Outputs::begin`], any number of [`Outputs::push`], and
    /// one of [`Outputs::done`], [`Outputs::same`], [`Outputs::copy`], [`Outputs::filtered`], [`Outputs::aside`]. Of
    /// several that are done together the first is begun, and the last ended. An error stops the slot.
    fn work(&mut self, batch: &Batch<'_>, out: &mut Outputs<'_>) -> Result<(), Stop>;

    /// Whether it reads payloads. Unread payloads are not verified.
    fn looks_at_payloads(&self) -> bool;

    /// True if its results depend on earlier messages: then the order of messages is kept.
    fn keeps(&self) -> bool;

    /// The input is complete up to `time`: messages that come later have this source time or a later one. `i64::MAX`:
    /// the input has ended. Makes what messages that wait ([`Outputs::wait`]) become without another one.
    fn pass_time(&mut self, _time: i64, _out: &mut Outputs<'_>) -> Result<(), Stop> {
        Ok(())
    }

    /// There is no task, and all work is answered. A worker that keeps messages releases those that the runner has
    /// committed since: the next message may wait for their memory.
    fn rest(&mut self) {}

    /// Takes new parameters (a JSON object), between two tasks.
    fn configure(&mut self, _parameters: &str) -> Result<(), Fault> {
        Ok(())
    }

    /// Its own statistics, asked for once a second: a JSON object of numbers, empty for none.
    fn statistics(&mut self) -> String {
        String::new()
    }
}

/// Messages that a worker has seen and that wait for others, of which something is made together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// How many.
    pub messages: u64,
    /// Source time of the oldest, ns since 1970 UTC: what is made of them is no older.
    pub oldest: i64,
    /// When the input is complete up to this time, [`Worker::pass_time`] makes something of them; `i64::MAX`: only
    /// its end does.
    pub due: i64,
}

impl Default for Waiting {
    /// None.
    fn default() -> Self {
        Self { messages: 0, oldest: i64::MAX, due: i64::MAX }
    }
}

impl Waiting {
    /// The source time before which nothing more is made of them; `i64::MAX` where time alone makes nothing.
    pub(crate) fn holds_at(&self) -> i64 {
        if self.messages > 0 && self.due < i64::MAX { self.oldest } else { i64::MAX }
    }
}

/// Why a batch was not done to its end.
#[derive(Debug)]
pub enum Stop {
    /// [`Outputs::push`] found no room. The message is started again.
    Full,
    /// The slot cannot continue.
    Fault(Fault),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// The configuration of a slot.
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

/// A task as it is worked on.
#[derive(Clone, Debug, Default)]
struct Task {
    command: String,
    number: u64,
    slot: u32,
    input: u32,
    uuid: [u8; 16],
    epoch: u32,
    block: (u64, u64),
    first: u64,
    next: u64,
    part: u32,
    parts: u32,
    arguments: String,
    /// Of the command `time`.
    time: Option<i64>,
}

/// The input of the code.
enum Given<'b> {
    Batch(Batch<'b>),
    /// The state that it keeps leaves no room for this message.
    Refused(Batch<'b>, Error),
    /// The input is complete up to this time.
    Time(i64),
}

/// One input of a slot.
struct Source {
    name: String,
    reader: Reader,
    check: Check,
    /// Says how far the user code is: what the runner looks at when the slot dies.
    stand: Reader,
    /// Rows of the slot's stream for origins of the input.
    origins: Vec<u32>,
    /// Names of the origins of the input.
    names: Arc<[String]>,
}

/// The account of the task that is worked on.
#[derive(Default)]
struct Account {
    /// First message that is not answered for.
    first: u64,
    /// Sequence after the last message that has its end.
    next: u64,
    output_first: u64,
    outputs: Vec<u32>,
    aside: Vec<u32>,
    gaps: Vec<Gap>,
    /// When work on them began, ns of `Media::clock`.
    began: i64,
    /// The state that user code keeps, as last reported, and the messages that wait.
    kept: Vec<u64>,
    waiting: Waiting,
    /// Pushed for messages that have no end yet.
    open: u32,
    /// More than one message, or none, was made of one.
    uneven: bool,
    /// There was no room: what was pushed last is nobody's, and the answer ends before it.
    is_cut: bool,
}

/// The number of messages (or batches) in a row that were set aside.
#[derive(Default)]
struct AsideRow {
    /// The message that was begun last.
    begun: Option<u64>,
    /// The last one that was begun and set aside.
    counted: Option<u64>,
    count: u32,
    /// The slot has done a message since it started.
    is_proven: bool,
}

impl AsideRow {
    /// Moves the message that was begun last to `NAME.aside`. False if a fresh slot should try it.
    fn add(&mut self) -> bool {
        if self.begun.is_some() && self.counted == self.begun {
            return true;
        }
        if self.is_proven && self.count >= ASIDE_ROW_MAX {
            return false;
        }
        (self.count, self.counted) = (self.count + 1, self.begun);
        true
    }

    fn end(&mut self) {
        (self.count, self.is_proven) = (0, true);
    }
}

/// A slot at work.
pub struct Slot {
    data: Data,
    stage: String,
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

/// Where user code puts what it makes of a message.
pub struct Outputs<'a> {
    stage: &'a str,
    writer: &'a mut Writer,
    account: &'a mut Account,
    /// None where what the code keeps must not be lost with the slot.
    row: Option<&'a mut AsideRow>,
    stand: &'a Reader,
    tasks: &'a Reader,
    task: &'a Task,
    source: &'a str,
    origins: &'a mut Vec<u32>,
    names: &'a [String],
    /// Only messages of this origin hash are this part's.
    key: Option<(u32, u32)>,
    bytes: &'a mut Vec<u8>,
    media: &'a dyn store::Media,
    wait: &'a mut dyn FnMut(&Writer) -> bool,
    /// First message that is to be done.
    from: u64,
    /// Of the slot's stream.
    live_bytes: u64,
}

/// What is made: an index entry without the places.
#[derive(Clone, Copy, Debug)]
pub struct Made {
    /// ns since 1970 UTC.
    pub source_time: i64,
    /// Four letters.
    pub schema: SchemaId,
    /// The number of the message that it was made of, or one of its own.
    pub origin_seq: u64,
    /// Quality flags.
    pub flags: u16,
}

impl Made {
    /// As the message that it is made of, but for its schema.
    pub fn of(entry: &Entry, schema: [u8; 4]) -> Self {
        Self {
            source_time: entry.source_time,
            schema: SchemaId(schema),
            origin_seq: entry.origin_seq,
            flags: entry.flags,
        }
    }
}

impl Outputs<'_> {
    /// True if a message is for this slot; the others are passed over without a call of `begin`.
    pub fn wants(&self, message: &Message<'_>) -> bool {
        message.sequence >= self.from && self.is_ours(message.entry)
    }

    fn is_ours(&self, entry: &Entry) -> bool {
        self.key.is_none_or(|(part, parts)| {
            let name = self.names.get(entry.origin as usize).map_or("", String::as_str);
            store::crc32c(name.as_bytes()) % parts == part
        })
    }

    /// The first message of the block that the task is of: batches are counted from there, however it was divided.
    pub fn block_first(&self) -> u64 {
        self.task.block.0
    }

    /// User code begins with a message. One store, from which the runner learns which message killed a slot.
    pub fn begin(&mut self, message: &Message<'_>) {
        self.stand.commit(message.sequence);
        if let Some(row) = &mut self.row {
            row.begun = Some(message.sequence);
        }
    }

    /// Messages below have an end: they were of other slots, or done together with one behind them.
    fn pass(&mut self, sequence: u64) {
        let account = &mut *self.account;
        if account.next < sequence {
            account.uneven = true;
            account.outputs.resize((sequence - account.first) as usize, 0);
            account.next = sequence;
        }
    }

    /// The pushed messages were made because time has passed, and from no message.
    fn end_time(&mut self) {
        self.account.outputs = vec![std::mem::take(&mut self.account.open)];
        self.account.uneven = true;
    }

    /// Appends a message made of `of`, whose origin it has. `parts` are its payload, one behind the other.
    pub fn push(&mut self, of: &Entry, made: &Made, parts: &[&[u8]]) -> Result<(), Stop> {
        let origin = self.origin(of.origin)?;
        self.append(origin, made, parts)
    }

    /// Appends a message that was made of several: its origin is the worker.
    pub fn push_own(&mut self, made: &Made, parts: &[&[u8]]) -> Result<(), Stop> {
        let origin = self.writer.origin(self.stage).map_err(|e| Stop::Fault(stream_fault(self.stage, e)))?;
        self.append(origin, made, parts)
    }

    /// As [`Outputs::push_own`]: a message of `len` bytes that `write` puts into stream memory itself, whose content
    /// before is unknown. If `write` returns false, no message is appended; it may be called again after a wait for
    /// room.
    pub fn push_own_written(
        &mut self,
        made: &Made,
        len: usize,
        mut write: impl FnMut(&mut [u8]) -> Result<bool, Stop>,
    ) -> Result<bool, Stop> {
        let origin = self.writer.origin(self.stage).map_err(|e| Stop::Fault(stream_fault(self.stage, e)))?;
        let mut is_written = false;
        self.append_by(origin, made, |writer, meta| {
            let answer = match writer.reserve(len) {
                Ok(mut room) => {
                    let (at, bytes) = room.rest();
                    is_written = write(bytes)?;
                    if !is_written {
                        return Ok(None);
                    }
                    room.commit(meta, at..at + len)
                }
                Err(e) => Err(e),
            };
            Ok(Some(pushed(answer, writer)?))
        })?;
        Ok(is_written)
    }

    fn append(&mut self, origin: u32, made: &Made, parts: &[&[u8]]) -> Result<(), Stop> {
        self.append_by(origin, made, |writer, meta| Ok(Some(pushed(writer.push(meta, parts), writer)?)))
    }

    /// Calls `offer` until there is room. `None`: it offers no message after all.
    fn append_by(
        &mut self,
        origin: u32,
        made: &Made,
        mut offer: impl FnMut(&mut Writer, &Meta) -> Result<Option<Pushed>, Stop>,
    ) -> Result<(), Stop> {
        let Made { source_time, schema, origin_seq, flags } = *made;
        if schema.0 == wire::bpdn::ID {
            return Err(Fault::new("a worker cannot make messages of schema bpdn", "slots answer with them").into());
        }
        let meta = Meta { source_time, origin, origin_seq, schema, flags };
        loop {
            let Some(pushed) = offer(self.writer, &meta)? else { return Ok(()) };
            match pushed {
                Pushed::Taken => {
                    self.account.open += 1;
                    return Ok(());
                }
                // A reader of the runner must see the new messages, or the view never releases those before them.
                Pushed::Full => {
                    self.writer.publish();
                    if self.account.next > self.account.first {
                        // An answer shows the runner what is done, so that its room can be freed.
                        self.account.answer(self.writer, self.task, self.media, self.bytes, MORE, "")?;
                    }
                    if !self.wait_for_room() {
                        return Err(Stop::Full);
                    }
                }
            }
        }
    }

    fn origin(&mut self, row: u32) -> Result<u32, Stop> {
        let at = row as usize;
        match self.origins.get(at) {
            Some(&known) if known != u32::MAX => Ok(known),
            _ => {
                let name = self.names.get(at).map_or("", String::as_str);
                let known = self.writer.origin(name).map_err(|e| Stop::Fault(stream_fault(self.stage, e)))?;
                if self.origins.len() <= at {
                    self.origins.resize(at + 1, u32::MAX);
                }
                self.origins[at] = known;
                Ok(known)
            }
        }
    }

    /// Discards results pushed since the last message ended, and started messages, which are started again.
    pub fn undo(&mut self) -> Result<(), Stop> {
        if std::mem::take(&mut self.account.open) == 0 {
            return Ok(());
        }
        // Outputs stand in a row behind the last answer: this one ends the row.
        while !self.account.answer(self.writer, self.task, self.media, self.bytes, MORE, "")? {
            if !self.wait_for_room() {
                return Err(Stop::Full);
            }
        }
        Ok(())
    }

    /// While it waits no time is counted against the user code. False: do not try again.
    fn wait_for_room(&mut self) -> bool {
        self.tasks.commit(self.task.number | WAITS);
        let goes_on = (self.wait)(self.writer);
        self.tasks.commit(self.task.number);
        goes_on
    }

    /// The message has its end: what was pushed since the last that had is what was made of it, and of those between,
    /// which were done together with it or are of other slots.
    pub fn done(&mut self, message: &Message<'_>) {
        if let Some(row) = &mut self.row {
            row.end();
        }
        self.finish(message);
    }

    fn finish(&mut self, message: &Message<'_>) {
        self.pass(message.sequence);
        let account = &mut *self.account;
        account.uneven |= account.open != 1;
        account.outputs.push(account.open);
        account.open = 0;
        account.next += 1;
    }

    /// The message ends, and passes unchanged: the output points to it in the input, and nothing is copied unless
    /// the output is to survive what the input does not. To be called before anything was pushed.
    pub fn same(&mut self, message: &Message<'_>) -> Result<(), Stop> {
        if self.task.arguments == COPY {
            return self.copy(message);
        }
        self.done(message);
        self.end_as(SAME);
        Ok(())
    }

    /// The message ends, and passes as a copy. Call it before any push.
    pub fn copy(&mut self, message: &Message<'_>) -> Result<(), Stop> {
        let Entry { source_time, schema, origin_seq, flags, .. } = *message.entry;
        self.push(message.entry, &Made { source_time, schema, origin_seq, flags }, &[message.payload])?;
        self.done(message);
        Ok(())
    }

    fn end_as(&mut self, what: u32) {
        self.account.uneven = true;
        if let Some(last) = self.account.outputs.last_mut() {
            *last = what;
        }
    }

    /// The message has its end, and nothing is made of it because it is not wanted: it is counted as `filtered`. To be called before
    /// anything was pushed.
    pub fn filtered(&mut self, message: &Message<'_>) {
        self.done(message);
        self.end_as(FILTERED);
    }

    /// The message could not be handled. Its pushed results are discarded; its bytes are set aside with the reason, one
    /// word, and a text for people.
    pub fn aside(&mut self, message: &Message<'_>, reason: &str, text: &str) -> Result<(), Stop> {
        if self.row.as_mut().is_some_and(|row| !row.add()) {
            self.stand.commit(NOWHERE);
            let what = format!("a slot of worker `{}` ends", self.stage);
            let cause =
                format!("{ASIDE_ROW_MAX} messages in a row were set aside, the last as {reason}: {}", cut(text));
            return Err(Fault::new(what, cause).hint("a fresh slot tries the next message").into());
        }
        let entry = message.entry;
        let kind = entry.schema.as_text();
        let unhandled = Unhandled {
            stage: self.stage,
            reason,
            text: cut(text),
            stream: self.source,
            uuid: self.task.uuid,
            epoch: self.task.epoch,
            sequence: message.sequence,
        };
        let mut bytes = std::mem::take(self.bytes);
        let written = unhandled.encode(&mut bytes, &kind, entry.source_time, message.payload);
        let made = Made::of(entry, wire::bpas::ID);
        let answer = match written {
            Ok(()) => self.origin(entry.origin).and_then(|origin| self.append(origin, &made, &[&bytes])),
            Err(fault) => Err(fault.into()),
        };
        *self.bytes = bytes;
        answer?;
        self.pass(message.sequence);
        self.account.aside.push((message.sequence - self.account.first) as u32);
        self.account.uneven = true;
        self.finish(message);
        Ok(())
    }

    /// Sets these messages aside: the code keeps so much of the stream's memory that they cannot be mapped.
    fn refuse(&mut self, batch: &Batch<'_>, cause: Error) -> Result<(), Stop> {
        let what = format!("cannot give a message of `{}` to the code of worker `{}`", self.source, self.stage);
        let hint = format!("keep copies, `m.array.copy()`, or raise `live` of `{}`", self.source);
        let text = Fault::new(what, cause).hint(hint).to_string();
        for message in batch.iter().filter(|message| self.wants(message)).collect::<Vec<_>>() {
            self.begin(&message);
            self.aside(&message, "quota", &text)?;
        }
        Ok(())
    }

    /// Sets the state of the code, numbers of its own, among them the message that it follows: all later answers and
    /// their commits have it ([`crate::kept`]), so that the next slot resumes from it.
    pub fn keep(&mut self, words: &[u64]) {
        self.account.kept.clear();
        self.account.kept.extend_from_slice(words);
    }

    /// Sets which messages wait for others behind the last that has its end: they are in the account of the input as
    /// held, and the output is complete up to the oldest of them only.
    pub fn wait(&mut self, waiting: Waiting) {
        self.account.waiting = waiting;
    }

    /// True if all ended messages are answered.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        self.account.first == self.account.next
    }

    /// Bytes that the slot's stream has in memory.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// The first message that is to be done: all before have their end.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.from
    }

    /// The uuid of the input.
    #[must_use]
    pub fn input(&self) -> [u8; 16] {
        self.task.uuid
    }

    /// Where in the slot's stream the next message comes to stand, or behind it.
    #[must_use]
    pub fn place(&self) -> u64 {
        self.writer.next_sequence()
    }

    /// Names of the origins of the input, by row.
    pub fn origin_names(&self) -> &[String] {
        self.names
    }
}

/// The beginning of a text that is not too long.
pub(crate) fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Whether the writer accepted a message.
fn pushed(answer: store::Result<u64>, writer: &Writer) -> Result<Pushed, Fault> {
    match answer {
        Ok(_) => Ok(Pushed::Taken),
        Err(e) if e.is_full() => Ok(Pushed::Full),
        Err(e) => Err(stream_fault(&writer.header().name.clone(), e)),
    }
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
                    let Ok(task) = wire::bptk::read(message.payload) else { continue };
                    if task.slot == self.options.number {
                        found = Some(Task {
                            slot: task.slot,
                            command: task.command.to_owned(),
                            number: message.sequence,
                            input: task.input,
                            uuid: task.uuid,
                            epoch: task.epoch,
                            block: (task.block_first, task.block_next),
                            first: task.first,
                            next: task.next,
                            part: task.part,
                            parts: task.parts,
                            arguments: task.arguments.to_owned(),
                            time: (task.command == TIME).then(|| task.arguments.parse().unwrap_or(i64::MIN)),
                        });
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

    /// Does what is left of a task. False where there was no room.
    fn work(
        &mut self,
        task: &Task,
        worker: &mut dyn Worker,
        wait: &mut dyn FnMut(&Writer) -> bool,
    ) -> Result<bool, Fault> {
        let at = task.input as usize;
        let Some(name) = self.options.inputs.get(at).cloned() else {
            return Err(Fault::new(format!("worker `{}` has no input {at}", self.stage), "a task names it"));
        };
        if self.sources[at].as_ref().is_none_or(|s| s.reader.header().uuid != task.uuid) {
            self.sources[at] = Some(Source::open(&self.data, &self.stage, self.options.number, &name)?);
        }
        let Some(source) = &mut self.sources[at] else { return Ok(true) };
        source.verify(&self.data, if worker.looks_at_payloads() { Check::All } else { Check::Entries })?;
        while self.account.next < task.next || task.time.is_some() {
            let from = self.account.next;
            source.reader.seek(from);
            let max = usize::try_from(task.next - from).unwrap_or(usize::MAX);
            let names = source.names(from, max)?;
            let mut beside = None;
            // Of no messages none is read.
            let given = match source.reader.next(max) {
                Ok(_) if task.time.is_some() => Given::Time(task.time.unwrap_or_default()),
                Ok(Stretch::Messages(batch)) if !batch.is_empty() => Given::Batch(batch),
                Ok(Stretch::Messages(_)) => {
                    // The runner has seen it: a writer that started anew has another live place.
                    source.reader.reattach().map_err(|e| stream_fault(&name, e))?;
                    if source.reader.end() <= from {
                        let what = format!("cannot resume slot {} of worker `{}`", self.options.number, self.stage);
                        return Err(Fault::new(what, format!("message {from} of `{name}` is missing")));
                    }
                    continue;
                }
                Ok(Stretch::Missing(missing)) => {
                    self.account.miss(&name, missing.next.min(task.next), reason_of(&missing));
                    continue;
                }
                // What the code keeps leaves no room for this message: a reader that keeps nothing gives its bytes.
                Err(e @ (Error::Quota { .. } | Error::Limit(_))) => {
                    let other = beside.insert(source.open_beside(&self.data, from)?);
                    match other.read(1) {
                        Ok(batch) if !batch.is_empty() => Given::Refused(batch, e),
                        _ => return Err(stream_fault(&name, e)),
                    }
                }
                Err(e) => return Err(stream_fault(&name, e)),
            };
            let key = (self.options.by_key && task.parts > 1).then_some((task.part, task.parts));
            let mut out = Outputs {
                stage: &self.stage,
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
                Given::Time(time) => worker.pass_time(time, &mut out).map(|()| out.end_time()),
                Given::Batch(batch) => worker.work(&batch, &mut out).map(|()| out.pass(batch.next())),
                Given::Refused(batch, cause) => out.refuse(&batch, cause).map(|()| out.pass(batch.next())),
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

impl Account {
    /// Starts over, with the memory that it has.
    fn begin(&mut self, first: u64, output_first: u64, clock: i64) {
        let (mut outputs, mut aside) = (std::mem::take(&mut self.outputs), std::mem::take(&mut self.aside));
        outputs.clear();
        aside.clear();
        // It says itself behind which message: it stays true.
        let (kept, waiting) = (std::mem::take(&mut self.kept), self.waiting);
        let began = clock;
        *self = Self { first, next: first, output_first, outputs, aside, kept, waiting, began, ..Self::default() };
    }

    /// Reports the part of a task that was done since the last answer, and restarts behind it. False if there is no
    /// room even for that.
    fn answer(
        &mut self,
        writer: &mut Writer,
        task: &Task,
        media: &dyn store::Media,
        bytes: &mut Vec<u8>,
        command: &str,
        statistics: &str,
    ) -> Result<bool, Fault> {
        let gaps: Vec<wire::bpgp::Gap<'_>> = self.gaps.iter().map(Gap::as_wire).collect();
        let clock = media.clock();
        let answer = wire::bpdn::Answer {
            task: wire::bptk::Task {
                command,
                number: task.number,
                slot: task.slot,
                input: task.input,
                uuid: task.uuid,
                epoch: task.epoch,
                block_first: task.block.0,
                block_next: task.block.1,
                first: self.first,
                next: self.next,
                part: task.part,
                parts: task.parts,
                arguments: "",
            },
            output_first: self.output_first,
            outputs: if self.uneven { self.outputs.as_slice().into() } else { (&[]).into() },
            aside: self.aside.as_slice().into(),
            gaps: gaps.as_slice().into(),
            busy: clock.saturating_sub(self.began).max(0) as u64,
            state: statistics,
            kept: self.kept.as_slice().into(),
            waits: self.waiting.messages,
            oldest: self.waiting.oldest,
            due: self.waiting.due,
        };
        wire::bpdn::write(bytes, &answer).map_err(|e| Fault::new("cannot encode an answer", e))?;
        let open = self.open;
        // The first of the message that is not done yet lies before the answer.
        let output_first = writer.next_sequence() - u64::from(open);
        let meta = own_meta(media.now(), task.number, SchemaId(wire::bpdn::ID));
        let pushed = pushed(writer.push(&meta, &[bytes]), writer)?;
        let end = writer.publish();
        if pushed == Pushed::Full {
            return Ok(false);
        }
        if writer.header().level == Level::Disk {
            // Asked for, not waited for: the runner looks for the mark.
            writer.wait(end, Level::Disk, Duration::ZERO).map_err(|e| stream_fault(&writer.header().name, e))?;
        }
        self.begin(self.next, if open > 0 { output_first } else { end }, clock);
        (self.open, self.uneven) = (open, false);
        Ok(true)
    }

    /// Messages up to `end` are not there.
    fn miss(&mut self, stream: &str, end: u64, reason: &'static str) {
        self.gaps.push(Gap {
            stream: stream.to_owned(),
            origin: String::new(),
            first: self.next,
            last: end - 1,
            from: 0,
            to: 0,
            reason: reason.to_owned(),
            by_sequence: true,
            count: 0,
        });
        self.uneven = true;
        self.outputs.resize((end - self.first) as usize, LOST);
        self.next = end;
    }
}

impl Source {
    fn open(data: &Data, stage: &str, number: u32, name: &str) -> Result<Self, Fault> {
        let stand =
            ReadOptions { name: slot_stream(stage, number), kind: Kind::Live, early: true, ..ReadOptions::default() };
        let options = ReadOptions { early: true, check: Check::All, ..ReadOptions::default() };
        let check = options.check;
        let stand = data.reader(name, stand)?;
        // The place may be that of a slot that died.
        stand.commit(NOWHERE);
        Ok(Self {
            name: name.to_owned(),
            reader: data.reader(name, options)?,
            check,
            stand,
            origins: Vec::new(),
            names: Arc::new([]),
        })
    }

    /// Another reader at a message, which keeps nothing yet.
    fn open_beside(&self, data: &Data, sequence: u64) -> Result<Reader, Fault> {
        let options = ReadOptions { early: true, check: self.check, ..ReadOptions::default() };
        let mut reader = data.reader(&self.name, options)?;
        reader.seek(sequence);
        Ok(reader)
    }

    /// From now on so much of a message is verified.
    fn verify(&mut self, data: &Data, check: Check) -> Result<(), Fault> {
        if self.check != check {
            self.reader = data.reader(&self.name, ReadOptions { early: true, check, ..ReadOptions::default() })?;
            self.check = check;
        }
        Ok(())
    }

    /// Names of origins by row: read again where one of the messages has a row that is not known.
    fn names(&mut self, from: u64, max: usize) -> Result<Arc<[String]>, Fault> {
        let highest = match self.reader.entries(from, max) {
            Ok(entries) => entries.iter().map(|e| e.origin).max(),
            // Reading says what is wrong.
            Err(_) => None,
        };
        if highest.is_some_and(|row| row as usize >= self.names.len()) {
            self.names = self.reader.origins().map_err(|e| stream_fault(&self.name, e))?.into();
        }
        Ok(self.names.clone())
    }
}
