//! The runner of a worker: assigns blocks of its inputs to slots, makes the output from their answers, commits
//! (decision 0008).
//!
//! Constraints: no payload is touched; an output costs one index entry, a block one task, one answer and one commit. No
//! step waits. Order of each commit: the answer is safe, then the output, then the commit; then the position in the
//! input moves and the slots' streams may retire their messages.
//!
//! Failure behaviour: a restarted runner finds completed work in the last commit, shown output in `W`, and later
//! answers in the slots' streams; it resumes at the first unanswered message. A slot that dies returns its tasks
//! ([`Work::died`]); a message at which two slots died is set aside.

mod batches;
mod cutover;
mod deal;
mod loose;
mod members;
mod output;
mod piece;
mod resume;
mod retry;
mod slot_entry;
mod slots;
mod source;
pub(crate) mod statistics;

use self::batches::RunEdges;
pub use self::cutover::{Boundary, WorkerNow};
use self::loose::Loose;
use self::members::Members;
use self::piece::{Part, Piece, Row, Todo};
use self::retry::Retry;
use self::slot_entry::SlotEntry;
use self::source::Source;
use self::statistics::Statistics;
use crate::Fault;
use crate::aside;
use crate::book::{Book, Keeps, newest_commit};
use crate::commits::commits_of;
use crate::cuts::Cuts;
use crate::data::{Data, retry_of, stream_fault, tasks_of, unwritten};
use crate::limits::{BOOK_HISTORY_BYTES, SLOTS_MAX, WRITER_LOOK};
use crate::merge::UpstreamState;
use crate::records::{Commit, Gap, Input};
use crate::runs::StreamView;
use crate::worker::Waiting;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use store::{Error, Level, Options, WhenFull, Writer};

/// Tasks that a slot has at once: one that it does, and the next.
const TASKS_EACH: usize = 2;
/// How long a block should take, ns: short beside what a person notices, long beside a task and a commit.
const BLOCK_NS: u64 = 5_000_000;
/// Messages of a block at most: its answer lists what was made of each.
const BLOCK_MESSAGES_MAX: u64 = 4096;
/// Deaths after which a message is set aside: the first may have another cause (memory, a signal from outside).
const DEATHS_MAX: u32 = 2;
/// Shared memory of the tasks: a few thousand, of which some dozens matter. The oldest are overwritten: a slot that is
/// at one message while others do thousands blocks no other, and its unread tasks are issued again.
const TASKS_LIVE_BYTES: u64 = 1 << 20;
/// Answers of a slot that are remembered: a few at most lie between the outputs of one message.
const RECENT: usize = 1024;
/// Entries looked at in one go.
const ENTRIES: usize = 1024;
/// Interval between two checks of how long slots have been at a message, ns.
const OVERDUE_LOOK: i64 = 50_000_000;
/// How long a slot may take to reach its first task, beyond the time for a message, ns: imports of large libraries.
const START_MAX: i64 = 120_000_000_000;

/// Which slots get a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// The slot, or the set, that has least to do.
    Balance,
    /// Each in turn.
    RoundRobin,
    /// All of them.
    All,
    /// All of them, and each takes the messages of its origins.
    Key,
}

/// Properties of the code of slots that their runner uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeTraits {
    /// Messages that it takes together; 1 = each alone, 0 = not known yet: then it gets none.
    pub batch: u64,
    /// It sees each run end: [`crate::Worker::pass_time`] is called when the input is complete up to there.
    pub follows_runs: bool,
    /// It saves its state with each answer ([`crate::Outputs::push_state`]): blocks are longer then.
    pub saves_state: bool,
    /// It is given the messages of each group: they are held in the stream that the groups are of.
    pub takes_members: bool,
}

/// How a worker works.
#[derive(Clone, Debug)]
pub struct WorkOptions {
    /// The output, a view; its level is that of the slots' streams and of the messages aside.
    pub output: Options,
    /// Shared memory of each slot's stream.
    pub slot_live_bytes: u64,
    /// How many slots.
    pub slots: u32,
    /// Which slots get a block.
    pub share: Share,
    /// Slots that see the same block, where `share` is `Balance` or `RoundRobin`.
    pub set: u32,
    /// Messages of one turn; 0 = as many as take about 5 ms.
    pub turn: u64,
    /// Properties of the code; those of user code come with [`Work::declare`].
    pub code_traits: CodeTraits,
    /// Output in the order of the input.
    pub keep_order: bool,
    /// Longest time of user code on a message, ns.
    pub time_max: i64,
    /// The same for the first message of a process, whose code may compile or load then; `time_max` where that is more.
    pub first_time_max: i64,
    /// Parameters of the worker, a JSON object.
    pub parameters: String,
    /// The code of its slots, JSON for the process that starts them; empty: that process decides.
    pub code: String,
    /// The worker that it shadows, from that worker's present message on: no input waits for it, and messages for which
    /// it is too slow are skipped.
    pub shadow: Option<String>,
    /// Whether a message at which slots die is set aside. Otherwise it is retried without end, because the state that
    /// the code keeps must not miss a message.
    pub blames: bool,
    /// The input has blocks of another host, each of which begins with [`store::flags::BLOCK`]: one commit ends with
    /// each of them, and the stream of messages aside is there from the start.
    pub by_blocks: bool,
    /// `W.retry` is its last input ([`Work::retry`]).
    pub retries: bool,
}

impl WorkOptions {
    /// Slots that share what comes, output in order, nothing survives a power cut.
    pub fn memory(slots: u32, live_bytes: u64) -> Self {
        Self {
            output: Options::memory(live_bytes),
            slot_live_bytes: live_bytes,
            slots,
            share: Share::Balance,
            set: 1,
            turn: 0,
            code_traits: CodeTraits { batch: 1, ..CodeTraits::default() },
            keep_order: true,
            time_max: 30_000_000_000,
            first_time_max: 0,
            parameters: "{}".into(),
            code: String::new(),
            shadow: None,
            blames: true,
            by_blocks: false,
            retries: false,
        }
    }

    /// The stream of a slot.
    pub fn slot_options(&self) -> Options {
        Options {
            live_bytes: self.slot_live_bytes,
            when_full: WhenFull::Wait,
            retain_bytes: None,
            ..self.output.clone()
        }
    }
}

/// Why a slot is to be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    /// Its code is at one message (or batch) for too long, or does not come to its first.
    Code,
    /// Its results do not reach the disk, while those of the runner do.
    Output,
}

/// How the process of a slot ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotEnd {
    /// Its caller killed it.
    Overdue(Overdue),
    /// By itself: with an exit status, or by a fault like SIGSEGV.
    Exited,
    /// By a signal of somebody else, or unknown.
    Killed,
}

/// The present state of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotState {
    /// It takes tasks.
    pub ready: bool,
    /// Tasks that it has.
    pub tasks: usize,
    /// Messages that it has answered since the runner started.
    pub messages: u64,
    /// Time in user code, ns.
    pub busy: u64,
    /// How often it has died.
    pub deaths: u64,
    /// Statistics that its user code reports, a JSON object; empty if none.
    pub statistics: String,
}

/// A commit that is on its way.
struct Pending {
    commit: Commit,
    output_next: u64,
    aside_next: u64,
    /// All blocks below are in it or in those before.
    done: u64,
    /// Its sequence in the book, once it is there.
    sequence: Option<u64>,
}

/// A worker's runner.
pub struct Work {
    data: Data,
    stage: String,
    options: WorkOptions,
    sources: Vec<Source>,
    places: Vec<SlotEntry>,
    tasks: Writer,
    output: Writer,
    aside: Option<Writer>,
    /// Messages that stand in `W.aside` behind the last commit.
    known_aside: BTreeMap<(String, u64), String>,
    /// The first of them.
    known_from: u64,
    commits: Book,
    block: u64,
    pieces: BTreeMap<u64, Piece>,
    next_piece: u64,
    /// All blocks below are committed.
    done: u64,
    /// Which piece and part a task is of.
    given: BTreeMap<u64, (u64, usize)>,
    pending: VecDeque<Pending>,
    /// Since the last commit.
    gaps: Vec<Gap>,
    cuts: Cuts,
    is_changed: bool,
    /// Whose messages the last ones of the output are, and how many.
    tail: (u64, u64),
    committed_output: u64,
    /// Mean time of a message, ns.
    message_ns: u64,
    turn: usize,
    turn_left: u64,
    /// When `overdue` looked last, ns of `Media::clock`.
    looked: i64,
    /// When it looked for writers last, ns of `Media::clock`.
    looked_for_writers: i64,
    statistics: Statistics,
    bytes: Vec<u8>,
    rows: Vec<Row>,
    /// Slots, parameters and code as it was started with.
    asked: Value,
    /// From which messages on it runs the code of now, where that was changed while it ran.
    since: Value,
    /// Results that its code sends outside of its calls.
    loose: Loose,
    /// Messages of groups that its code is given.
    members: Option<Members>,
    /// When a block was cut last, ns of `Media::clock`.
    cut_at: i64,
    /// No block is cut.
    holds: bool,
    /// The same, by the wish of the user.
    is_paused: bool,
    /// None where it retries nothing.
    retry: Option<Retry>,
    /// Where batches are cut short.
    edges: RunEdges,
    /// Time has passed for an input, and the commit of it is not safe: until then no block is cut.
    passes_time: bool,
}

impl Work {
    /// Starts or resumes the worker `stage` on its inputs.
    pub fn open(data: &Data, stage: &str, inputs: &[String], options: &WorkOptions) -> Result<Self, Fault> {
        let book = commits_of(stage);
        let mut commits = Book::open_settled(data, &book, Keeps::Newest(BOOK_HISTORY_BYTES))?;
        let mut last = newest_commit(data, &book, &mut |_| true)?;
        let state: Value = last.as_ref().and_then(|c| serde_json::from_str(&c.state).ok()).unwrap_or_default();
        let mut output = data.writer(stage, &options.output)?;
        let mut options = options.clone();
        options.slots = options.slots.clamp(1, SLOTS_MAX);
        // Changes made while it ran stay in force until it is started with other settings.
        let asked = asked_of(&options);
        if state["asked"] == asked {
            options.parameters = state["now"]["parameters"].to_string();
            options.slots = state["now"]["slots"].as_u64().map_or(options.slots, |n| n as u32).clamp(1, SLOTS_MAX);
            options.code = cutover::code_of(&state["now"]["code"]);
        }
        let since = if state["asked"] == asked { state["since"].clone() } else { Value::Null };
        let beside = cutover::beside(data, options.shadow.as_deref())?;
        let tasks = fresh_tasks(data, stage)?;
        let retry = options.retries.then(|| Retry::open(data, stage, &options.output, &state)).transpose()?;
        let retried = options.retries.then(|| retry_of(stage));
        let mut sources = Vec::new();
        for name in inputs.iter().chain(&retried) {
            let known = (last.as_ref().map_or(&[][..], |commit| &commit.inputs), beside.as_ref());
            sources.push(Source::open(data, stage, name, known, &state, &mut output)?);
        }
        // Slots that are to be gone may have answered, and the output points into their streams.
        let known_slots = state["slots"].as_array().map_or(0, Vec::len);
        let mut places = Vec::new();
        for number in 0..SLOTS_MAX.min(options.slots.max(known_slots as u32)) {
            let at = state["slots"][number as usize].as_u64().unwrap_or(0);
            places.push(SlotEntry::open(data, stage, number, &options, &mut output, at)?);
        }
        // Of an output that no commit speaks of, nothing is committed.
        let is_same = state["output"].as_str() == Some(&store::hex(&output.header().uuid));
        let cuts = match last.as_mut().filter(|_| is_same) {
            Some(commit) => Cuts::open(&mut commits, commit, &output, 0, data.media.now())?,
            None => Cuts::default(),
        };
        let known = last.as_ref().filter(|_| is_same);
        // Messages of the output that a recovery has cut are not shown again.
        let shown = known.map_or_else(|| output.first_sequence(), |c| c.output_next.min(output.next_sequence()));
        let mut work = Self {
            data: data.clone(),
            stage: stage.to_owned(),
            sources,
            places,
            tasks,
            aside: None,
            known_aside: BTreeMap::new(),
            known_from: 0,
            commits,
            block: last.as_ref().map_or(0, |c| c.block + 1),
            pieces: BTreeMap::new(),
            next_piece: 0,
            done: 0,
            given: BTreeMap::new(),
            pending: VecDeque::new(),
            gaps: Vec::new(),
            is_changed: false,
            cuts,
            tail: (u64::MAX, 0),
            committed_output: shown,
            message_ns: 0,
            turn: 0,
            turn_left: 0,
            looked: i64::MIN,
            looked_for_writers: i64::MIN,
            statistics: Statistics::default(),
            bytes: Vec::new(),
            rows: Vec::new(),
            asked,
            since,
            loose: Loose::new(data, stage, &options.output),
            members: None,
            cut_at: 0,
            holds: false,
            is_paused: false,
            retry,
            edges: RunEdges::new(data),
            passes_time: false,
            output,
            options,
        };
        work.resume_aside(state["aside"].as_u64().filter(|_| is_same).unwrap_or(0))?;
        if work.options.by_blocks && work.aside.is_none() {
            work.aside = Some(aside::open(data, stage, work.like())?);
        }
        work.resume(shown)?;
        Ok(work)
    }

    /// Does what there is to do at `now` (ns since 1970 UTC). `inputs` as their own stages see them, in order. True if
    /// anything was done.
    pub fn step(&mut self, now: i64, inputs: &[UpstreamState]) -> Result<bool, Fault> {
        // Pauses and time-outs go by a clock that is never set; `now` is what commits and statistics say.
        let clock = self.data.media.clock();
        let looks = clock.saturating_sub(self.looked_for_writers) >= WRITER_LOOK;
        if looks {
            self.looked_for_writers = clock;
            for place in self.places.iter_mut().filter(|p| !p.tasks.is_empty() && p.reader.end() <= p.at) {
                place.reader.reattach().map_err(|e| stream_fault(&place.stream, e))?;
            }
            self.look_for_full();
            self.repeat_commands()?;
        }
        self.look_who_came();
        let of_retry = self.retry.as_ref().map(|_| Self::retry_state(now, inputs));
        for (source, view) in self.sources.iter_mut().zip(inputs.iter().chain(&of_retry)) {
            source.refresh(view, looks)?;
        }
        let mut did = self.copy_retried()?;
        for slot in 0..self.places.len() {
            did |= self.collect(slot)?;
        }
        did |= looks && self.take_back_overwritten();
        did |= self.reclaim();
        // Before the batch is known, too: then the first one ends where a run does.
        if self.options.code_traits.batch != 1 || self.options.code_traits.follows_runs {
            self.edges.refresh(looks)?;
        }
        did |= self.deal()?;
        did |= self.show(now)?;
        let is_settled = self.settle()?;
        if let Some(members) = self.members.as_mut().filter(|_| is_settled || looks) {
            members.hold(&mut self.sources)?;
        }
        did |= is_settled;
        did |= self.loose.show(self.options.slots)?;
        self.publish_statistics(now, clock)?;
        self.output.relieve().map_err(|e| stream_fault(&self.stage, e))?;
        Ok(did)
    }

    /// Sets what user code declares, once that is known.
    pub fn declare(&mut self, declared: CodeTraits) -> Result<(), Fault> {
        self.members = match declared.takes_members {
            true => Some(Members::new(&self.data, &self.stage, self.sources.len())),
            false => {
                Members::release(&self.data, &self.stage, &self.sources)?;
                None
            }
        };
        self.options.code_traits = CodeTraits { batch: declared.batch.max(1), ..declared };
        Ok(())
    }

    /// Properties of the code.
    pub fn code_traits(&self) -> CodeTraits {
        self.options.code_traits
    }

    /// The words that the code of a worker with one slot and one input keeps behind all answered messages, for the next
    /// process of its slot; empty: none.
    pub fn kept(&self) -> Vec<u64> {
        let answers = self.pieces.values().flat_map(|piece| &piece.parts).flat_map(|part| &part.answers);
        let newest = answers.filter(|answer| !answer.kept.is_empty()).max_by_key(|a| (a.next, a.sequence));
        let committed = self.sources.first().and_then(|source| source.kept.as_ref());
        newest.map(|answer| &answer.kept).or(committed.map(|kept| &kept.1)).cloned().unwrap_or_default()
    }

    fn add_piece(&mut self, input: usize, first: u64, next: u64) -> u64 {
        let parts = match self.options.share {
            Share::Balance | Share::RoundRobin => self.options.set.clamp(1, self.options.slots) as usize,
            Share::All | Share::Key => self.options.slots as usize,
        };
        let part = || Part { todo: VecDeque::from([Todo::new(first, next)]), ..Part::default() };
        let mut parts: Vec<Part> = (0..parts).map(|_| part()).collect();
        if parts.len() > 1 && matches!(self.options.share, Share::All | Share::Key) {
            parts.iter_mut().enumerate().for_each(|(at, part)| part.slot = Some(at));
        }
        let epoch = self.sources[input].reader.header().epoch_of(first);
        let id = self.next_piece;
        self.next_piece += 1;
        let mut piece = Piece::new(input, epoch, (first, next), parts);
        piece.begins = self.begins_block(input, first);
        self.pieces.insert(id, piece);
        id
    }

    /// Whether a block of another host begins with a message.
    fn begins_block(&mut self, input: usize, sequence: u64) -> bool {
        self.options.by_blocks && self.sources[input].block_begins(sequence, sequence + 1).is_some()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.stage
    }

    /// The accounts so far, one an input.
    pub fn accounts(&self) -> impl Iterator<Item = &Input> {
        self.sources.iter().map(|s| &s.account)
    }

    /// The output's writer, for marks and its header.
    pub fn writer(&mut self) -> &mut Writer {
        &mut self.output
    }

    /// Why what it makes is not marked, where that is no ordinary course: a device without room.
    pub fn trouble(&self) -> Option<Fault> {
        let all = [Some(&self.output), Some(self.commits.writer()), self.aside.as_ref()];
        all.into_iter().flatten().find_map(|writer| unwritten(writer, "the inputs keep what is not done"))
    }

    /// The stream as the keeper of runs, and stages behind, see it: what was not committed has not come.
    pub fn view(&self) -> StreamView {
        let sees_end = |s: &Source| !self.options.code_traits.follows_runs || s.run_due(&self.edges).is_none();
        let has_ended = |s: &Source| s.has_ended() && sees_end(s);
        let ended = self.sources.iter().all(has_ended) && self.pieces.is_empty() && self.pending.is_empty();
        // Results of waiting messages are no older than these messages.
        let follows = self.options.code_traits.follows_runs;
        let runs_hold = |s: &Source| if follows { s.runs_hold(&self.edges) } else { i64::MAX };
        let frontier = |s: &Source| s.frontier.min(s.waiting.holds_at()).min(runs_hold(s));
        let frontier = self.sources.iter().map(frontier).min().unwrap_or(i64::MAX);
        let safe = match self.output.header().level {
            Level::Memory => self.output.next_sequence(),
            Level::Disk => self.output.mark(Level::Disk),
        };
        let marked = safe >= self.output.next_sequence();
        let is_full = self.output.is_pressed() || self.places.iter().any(|place| place.is_full);
        let is_blocked = is_full || self.sources.iter().any(|source| source.is_blocked);
        let done = if self.pieces.is_empty() && self.pending.is_empty() { self.next_piece } else { self.done };
        let (name, begun) = (self.stage.clone(), self.next_piece);
        StreamView { name, frontier, ended, marked, begun, done, safe, lost_to: None, is_blocked }
    }

    /// All that the inputs have now is done and committed.
    pub fn is_idle(&self) -> bool {
        self.pieces.is_empty() && self.pending.is_empty() && self.sources.iter().all(|s| s.cut >= s.reader.end())
    }

    /// Waits until there may be something to do, or the time is over.
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Fault> {
        /// Between two looks where two sides may have something.
        const BOTH: Duration = Duration::from_micros(500);
        let has_room = self.has_room() && !self.rests();
        let busy = self.places.iter().position(|p| !p.tasks.is_empty());
        let waits = busy.is_some() && self.output.is_pressed();
        let both = busy.is_some() && has_room || waits || !self.pending.is_empty() || self.sources.len() > 1;
        let timeout = if both { timeout.min(BOTH) } else { timeout };
        match busy {
            Some(slot) => {
                let place = &mut self.places[slot];
                place.reader.seek(place.at);
                place.reader.wait(timeout).map(drop).map_err(|e| stream_fault(&place.stream, e))
            }
            None if has_room => {
                let Some(source) = self.sources.first_mut() else { return Ok(()) };
                // Messages that are there and in no block wait for others, or for a moment.
                let there = source.reader.end();
                let timeout = if there > source.cut { timeout.min(BOTH * 10) } else { timeout };
                source.reader.seek(source.cut.max(there));
                let name = &source.account.stream;
                source.reader.wait(timeout).map(drop).map_err(|e| stream_fault(name, e))
            }
            None => {
                self.output.wait_room(timeout.min(BOTH * 20));
                Ok(())
            }
        }
    }
}

/// True if all below `end` is safe on disk. If not it is asked for, and written out here where it is little, but not
/// waited for.
fn asked(writer: &mut Writer, end: u64) -> bool {
    writer.mark(Level::Disk) >= end || writer.wait(end, Level::Disk, Duration::ZERO).unwrap_or(false)
}

/// What the code of a worker kept behind the messages of an input at its newest commit: the message behind them, and the
/// words.
pub fn kept(data: &Data, stage: &str, input: &str, uuid: &[u8; 16]) -> Result<Option<(u64, Vec<u64>)>, Fault> {
    let Some(commit) = newest_commit(data, &commits_of(stage), &mut |_| true)? else { return Ok(None) };
    let is_of_it = commit.inputs.iter().any(|i| i.stream == input && i.uuid == *uuid);
    let state: Value = serde_json::from_str(&commit.state).unwrap_or_default();
    Ok(kept_of(&state, input).filter(|_| is_of_it))
}

/// The accounts of the inputs of a worker at its newest commit.
pub fn inputs_of(data: &Data, stage: &str) -> Result<Vec<Input>, Fault> {
    Ok(newest_commit(data, &commits_of(stage), &mut |_| true)?.map(|commit| commit.inputs).unwrap_or_default())
}

/// The state kept of an input, from the state of a commit.
fn kept_of(state: &Value, input: &str) -> Option<(u64, Vec<u64>)> {
    let known = &state["kept"][input];
    let words: Option<Vec<u64>> = known[1].as_array()?.iter().map(Value::as_u64).collect();
    Some((known[0].as_u64()?, words?))
}

/// The waiting messages, from beside that state.
fn waiting_of(state: &Value, input: &str) -> Option<Waiting> {
    let known = &state["kept"][input][2];
    let (messages, oldest) = (known[0].as_u64()?, known[1].as_i64()?);
    Some(Waiting { messages, oldest, due: known[2].as_i64()? })
}

/// The settings that may change while it runs.
fn asked_of(options: &WorkOptions) -> Value {
    let parameters: Value = serde_json::from_str(&options.parameters).unwrap_or_default();
    let code: Value = serde_json::from_str(&options.code).unwrap_or_default();
    serde_json::json!({"parameters": parameters, "slots": options.slots, "code": code})
}

/// The stream of tasks, created again: tasks of an earlier runner are void.
fn fresh_tasks(data: &Data, stage: &str) -> Result<Writer, Fault> {
    let name = tasks_of(stage);
    match store::remove(&data.media, &data.stream(&name)) {
        Ok(()) | Err(Error::Missing(_)) => {}
        Err(e) => return Err(stream_fault(&name, e)),
    }
    let options = Options { when_full: WhenFull::DropOldest, ..Options::memory(TASKS_LIVE_BYTES) };
    data.writer(&name, &options)
}
