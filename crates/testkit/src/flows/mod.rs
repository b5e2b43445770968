//! A whole flow from a seed: makers of messages, their streams, runs that begin and end, a file, and everything that can
//! happen to the processes and the machine. One thread, a pretend clock; the same seed gives the same history.
//!
//! Some have stages between (`stages.rs`): a merge, a worker in slots, or both.
//!
//! What is checked at the end: the file of each sealed run holds the members of the run exactly once, in order, byte for
//! byte; what was lost is in the account, and the account closes; order per maker is kept; nothing marked is lost.

mod outside;
mod stages;

use crate::{Dice, Machine, PretendMedia};
use flow::commits::FinishedRuns;
use flow::{Data, Feed, Intake, IntakeOptions, RunKeeper, StreamView, ledger, runs};
use outside::{Numbered, Outside, Paper, Row, Shared, Writing, lock, payload};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::{Check, Drain, Level, Options, ReadOptions, WhenFull};

const STEPS: u64 = 160;
/// Steps after the last fault within which everything must come to its end.
const PATIENCE: u64 = 3000;
const SECOND: i64 = 1_000_000_000;
const SETTLE: i64 = SECOND;
const SINK: &str = "file";

/// The result of a check; the error says what is wrong and how to repeat it.
type Checked<T = ()> = Result<T, String>;

/// The native process: sources, stages, streams, runs.
struct Mover {
    intakes: Vec<Intake>,
    stages: stages::Running,
    keeper: RunKeeper,
    /// Where each stream stood at the beginning; none once its first step is done.
    begun: Vec<Option<u64>>,
}

/// The work of a process that writes a file.
struct Feeder {
    feed: Feed,
    sink: Writing,
}

struct Stream {
    name: &'static str,
    options: Options,
    outside: Shared<Outside>,
    /// Where a mover began that was not the first, and could say so.
    restarts: Vec<u64>,
}

/// The marked messages of a stream.
#[derive(Default)]
struct Noted {
    name: &'static str,
    /// Identity of every message below the mark: (origin, number) by sequence.
    marked: BTreeMap<u64, (u32, u64)>,
    /// Up to which sequence marks have been noted.
    upto: u64,
}

/// A run, its file and the process that writes it.
struct Plan {
    name: String,
    paper: Shared<Paper>,
    begun: bool,
    finished: bool,
    process: Arc<PretendMedia>,
    feeder: Option<Feeder>,
}

/// One simulated history.
pub struct Flow {
    seed: u64,
    machine: Machine,
    /// A clock that is never set, ns.
    clock: i64,
    /// The latest time that the machine had, ns since 1970 UTC.
    latest: i64,
    dice: Dice,
    folder: PathBuf,
    streams: Vec<Stream>,
    stages: stages::Plan,
    /// Streams of sources, then those of stages.
    noted: Vec<Noted>,
    plans: Vec<Plan>,
    aside_every: u64,
    mover: Option<Mover>,
    mover_process: Arc<PretendMedia>,
    /// Something is finished that the mover has not filed.
    to_file: bool,
    /// The process that reads from outside.
    witness: Arc<PretendMedia>,
    /// Power cuts are no part of a history in memory alone.
    disk: bool,
    /// No room is missing, no file is about to fail.
    has_room: bool,
    calm: bool,
    loud: bool,
    story: Vec<String>,
    deaths: u64,
}

/// What a history contained: so that a test can say it was one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Messages in the streams at the end.
    pub messages: u64,
    /// Rows in the files.
    pub rows: u64,
    /// Runs that were written.
    pub runs: u64,
    /// Kills and power cuts.
    pub deaths: u64,
    /// Messages lost and accounted for.
    pub lost: u64,
    /// Messages of the outputs of stages.
    pub made: u64,
}

impl Tally {
    /// Adds another history.
    pub fn add(&mut self, other: Self) {
        self.messages += other.messages;
        self.rows += other.rows;
        self.runs += other.runs;
        self.deaths += other.deaths;
        self.lost += other.lost;
        self.made += other.made;
    }
}

impl Flow {
    /// A history from a seed; `loud` tells it as it happens.
    pub fn new(seed: u64, loud: bool) -> Self {
        let machine = Machine::new(seed);
        let mut dice = Dice::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let disk = !dice.one_in(4);
        let folder = PathBuf::from(if disk { "/disk/data" } else { "/live/data" });
        let mut streams = Vec::new();
        for name in ["detector", "temperature"].into_iter().take(dice.range(1, 2) as usize) {
            let when_full = dice.pick(&[WhenFull::Wait, WhenFull::Wait, WhenFull::DropNewest, WhenFull::DropOldest]);
            // A feed of ours opens late and holds no place before: what is dropped until then nobody can count.
            let gaps = when_full == WhenFull::DropOldest;
            let retain_bytes = if disk && !gaps && dice.one_in(3) { Some(1 << 20) } else { None };
            let level = if disk { Level::Disk } else { Level::Memory };
            let options = Options { level, when_full, retain_bytes, ..Options::disk(1 << 20) };
            let outside = Outside::new(dice.word(), dice.clone().range(1, 3), dice.one_in(2));
            let outside = Arc::new(Mutex::new(outside));
            streams.push(Stream { name, options, outside, restarts: Vec::new() });
        }
        let level = if disk { Level::Disk } else { Level::Memory };
        let sources: Vec<&str> = streams.iter().map(|s| s.name).collect();
        let stages = stages::Plan::new(seed, &folder, level, &sources);
        for stream in streams.iter_mut().filter(|s| stages.is_any() && s.options.when_full == WhenFull::DropOldest) {
            // Messages that a stage had not read by then would be lost by policy, which is of no interest here.
            stream.options.when_full = WhenFull::Wait;
        }
        let noted =
            sources.into_iter().chain(stages.outputs()).map(|name| Noted { name, ..Noted::default() }).collect();
        let plans = (0..dice.range(1, 3))
            .map(|i| Plan {
                name: format!("run{i}"),
                paper: Shared::default(),
                begun: false,
                finished: false,
                process: machine.start(),
                feeder: None,
            })
            .collect();
        let aside_every = dice.pick(&[u64::MAX, 5, 50]);
        let (mover_process, witness) = (machine.start(), machine.start());
        let story = vec![format!(
            "{}, {}, stages {:?}",
            folder.display(),
            streams
                .iter()
                .map(|s| format!(
                    "{} {:?} retain {:?} patient {}",
                    s.name,
                    s.options.when_full,
                    s.options.retain_bytes,
                    lock(&s.outside).patient
                ))
                .collect::<Vec<_>>()
                .join(", "),
            stages.outputs().collect::<Vec<_>>()
        )];
        Self {
            seed,
            machine,
            clock: 0,
            latest: i64::MIN,
            dice,
            folder,
            streams,
            stages,
            noted,
            plans,
            aside_every,
            mover: None,
            mover_process,
            to_file: true,
            witness,
            disk,
            has_room: true,
            calm: false,
            loud,
            story,
            deaths: 0,
        }
    }

    fn say(&mut self, what: impl FnOnce() -> String) {
        let what = what();
        if self.loud {
            eprintln!("{what}");
        }
        self.story.push(what);
    }

    fn fail(&self, what: String) -> String {
        let last = self.story.len().saturating_sub(15).max(1);
        format!(
            "seed {}: {what}\n  {}\n  ...\n  {}\nreplay: cargo xtask simulate --seed {}",
            self.seed,
            self.story[0],
            self.story[last.min(self.story.len())..].join("\n  "),
            self.seed
        )
    }

    fn data(&self, process: &Arc<PretendMedia>) -> Data {
        Data { media: process.clone(), folder: self.folder.clone(), drain: Drain::Caller }
    }

    /// Lives the whole history and checks the promises.
    pub fn run(mut self) -> Checked<Tally> {
        for _ in 0..STEPS {
            self.step()?;
        }
        self.come_to_the_end()?;
        self.check()
    }

    fn advance(&mut self, ns: i64) {
        self.machine.advance(ns);
        self.clock += ns;
        self.latest = self.latest.max(self.machine.now());
    }

    fn step(&mut self) -> Checked {
        let pause = self.dice.below(200_000_000) as i64;
        self.advance(pause);
        if self.stages.is_any() {
            // They have much to do.
            for _ in 0..self.dice.below(6) {
                self.some_stage()?;
            }
        }
        match self.dice.below(100) {
            0..34 => self.sources()?,
            34..48 => self.drain()?,
            48..58 => self.keep_runs()?,
            58..78 => self.some_feed()?,
            78..86 => {
                let at = self.some_plan();
                self.flush(at)?;
            }
            86..88 => self.begin_or_end()?,
            88 => {
                let jump = self.dice.pick(&[3600 * SECOND, -3600 * SECOND, 10 * SECOND, -SECOND / 4]);
                self.say(|| format!("the clock jumps by {} ms", jump / 1_000_000));
                self.machine.set_wall_clock(jump);
            }
            89..91 => self.kill_mover(),
            91..93 => {
                let at = self.some_plan();
                self.kill_feeder(at);
            }
            93 if self.disk => self.cut(),
            94 => {
                // A death in the midst of something.
                let changes = self.dice.below(40);
                self.say(|| format!("stops after {changes} changes"));
                self.machine.stop_after(Some(changes));
                let had_room = std::mem::replace(&mut self.has_room, false);
                for _ in 0..self.dice.range(1, 4) {
                    match self.dice.below(4) {
                        _ if self.stages.is_any() && self.dice.one_in(2) => self.some_stage()?,
                        0 => self.sources()?,
                        1 => self.drain()?,
                        2 => self.keep_runs()?,
                        _ => {
                            let at = self.some_plan();
                            self.flush(at)?;
                        }
                    }
                }
                if self.disk && self.dice.one_in(2) {
                    self.cut();
                } else {
                    self.kill_mover();
                    self.kill_slots();
                    (0..self.plans.len()).for_each(|at| self.kill_feeder(at));
                }
                self.machine.stop_after(None);
                self.has_room = had_room;
            }
            95 => {
                let (disk, live) = self.machine.used();
                let room = self.dice.below(200_000);
                self.say(|| format!("room for {room} B"));
                self.machine.room(disk + room, live + room);
                self.has_room = false;
            }
            96 => {
                self.machine.room(u64::MAX, u64::MAX);
                self.has_room = true;
            }
            97 if self.disk => {
                let after = self.dice.below(8);
                self.say(|| format!("a sync fails after {after}"));
                self.machine.fail_sync_after(Some(after));
            }
            98 => {
                if let Some(plan) = self.plans.iter().find(|p| p.begun && !p.finished) {
                    lock(&plan.paper).fails_after = Some(self.dice.below(3));
                }
            }
            _ => {
                self.say(|| "the mover ends and begins".into());
                self.mover = None;
                self.kill_slots();
                self.note_marks()?;
            }
        }
        if self.dice.one_in(8)
            && let Some((path, at)) = self.machine.unallocated_write()
        {
            return Err(self.fail(format!("{} was written at {at} without being allocated", path.display())));
        }
        Ok(())
    }

    // --- the mover ---

    fn open_mover(&mut self) -> Checked<bool> {
        if self.mover.is_some() {
            return Ok(true);
        }
        let data = self.data(&self.mover_process);
        let now = self.machine.now();
        let mut intakes = Vec::new();
        let mut trouble = None;
        for stream in &self.streams {
            let options = IntakeOptions { stream: stream.options.clone(), ahead_max: 600 * SECOND };
            let source = Box::new(Numbered::new(stream.name, &stream.outside));
            match Intake::start(&data, stream.name, source, &options, now) {
                Ok(intake) => intakes.push(intake),
                Err(e) => trouble = Some(e),
            }
        }
        let stages = match trouble {
            None => self.stages.open(&data),
            Some(e) => Err(e),
        };
        let (stages, keeper) = match (stages, RunKeeper::open(&data)) {
            (Ok(stages), Ok(keeper)) => (stages, keeper),
            (Err(e), _) | (_, Err(e)) => {
                self.may_fail("the mover does not open", &e)?;
                // Slots of an earlier one may live, and are in the way.
                self.kill_slots();
                return Ok(false);
            }
        };
        let begun = intakes.iter_mut().map(|i| Some(i.writer().next_sequence()).filter(|next| *next > 0)).collect();
        self.mover = Some(Mover { intakes, stages, keeper, begun });
        self.to_file = true;
        self.say(|| "the mover is open".into());
        self.note_marks()?;
        Ok(true)
    }

    /// A fault is allowed where one was injected; in the calm at the end none is.
    fn may_fail(&mut self, what: &str, fault: &flow::Fault) -> Checked {
        let text = format!("{what}: {} ({})", fault.what, fault.cause);
        if self.calm {
            return Err(self.fail(text));
        }
        self.say(|| text);
        Ok(())
    }

    fn sources(&mut self) -> Checked {
        if !self.open_mover()? {
            return Ok(());
        }
        let now = self.machine.now();
        let Some(mover) = &mut self.mover else { return Ok(()) };
        let mut trouble = None;
        for (intake, (begun, stream)) in mover.intakes.iter_mut().zip(mover.begun.iter_mut().zip(&mut self.streams)) {
            match intake.step(now) {
                // Without room it cannot be written down.
                Ok(_) if self.has_room => stream.restarts.extend(begun.take()),
                Ok(_) => *begun = None,
                Err(e) => trouble = Some(e),
            }
        }
        if let Some(e) = trouble {
            self.may_fail("a source stops", &e)?;
            self.kill_mover();
        }
        Ok(())
    }

    fn drain(&mut self) -> Checked {
        let Some(mover) = &mut self.mover else { return Ok(()) };
        let mut failed = None;
        for intake in &mut mover.intakes {
            match intake.writer().drain() {
                Err(e) if !e.is_full() => failed = Some(e.to_string()),
                _ => {}
            }
        }
        self.note_marks()?;
        if let Some(e) = failed {
            if self.calm {
                return Err(self.fail(format!("drain: {e}")));
            }
            self.say(|| format!("drain: {e}"));
            self.kill_mover();
        }
        Ok(())
    }

    /// Remembers which message stands at each sequence below the mark, and that those remembered still stand there.
    fn note_marks(&mut self) -> Checked {
        let data = self.data(&self.witness);
        for at in 0..self.noted.len() {
            let name = self.noted[at].name;
            let options = ReadOptions { check: Check::Entries, ..ReadOptions::default() };
            let Ok(mut reader) = data.reader(name, options) else { continue };
            let (first, end) = (reader.bounds().first, reader.end());
            let mut from = self.noted[at].upto.max(first);
            while from < end {
                let entries = reader.entries(from, 4096).map_err(|e| self.fail(format!("{name}: {e}")))?;
                self.noted[at].marked.extend((from..).zip(entries.iter().map(|e| (e.origin, e.origin_seq))));
                from += entries.len() as u64;
            }
            self.noted[at].upto = from.max(end);
        }
        Ok(())
    }

    fn keep_runs(&mut self) -> Checked {
        let now = self.machine.now();
        if self.to_file && self.mover.is_some() {
            let inputs = self.inputs();
            let data = self.data(&self.mover_process);
            match FinishedRuns::open(&data, SINK).and_then(|mut finished| finished.file_away(&inputs)) {
                Ok(()) => self.to_file = false,
                Err(e) => {
                    self.may_fail("filing", &e)?;
                    self.kill_mover();
                }
            }
        }
        let Some(mover) = &mut self.mover else { return Ok(()) };
        let views: Vec<StreamView> = mover.intakes.iter().map(StreamView::from).chain(mover.stages.views()).collect();
        match mover.keeper.step(now, &views) {
            Ok(changed) => {
                for run in changed {
                    self.say(|| format!("{} is {} {:?}", run.name, run.state.name(), run.streams));
                }
            }
            Err(e) => {
                self.may_fail("runs", &e)?;
                self.kill_mover();
            }
        }
        Ok(())
    }

    fn begin_or_end(&mut self) -> Checked {
        if !self.open_mover()? {
            return Ok(());
        }
        let now = self.machine.now();
        let Some(mover) = &mut self.mover else { return Ok(()) };
        let open = mover.keeper.runs().iter().find(|r| r.state.name() == "open").cloned();
        // Runs may overlap.
        let another = self.plans.iter().any(|p| !p.begun) && self.dice.one_in(3);
        let answer = if let Some(run) = open.filter(|_| !another) {
            let stop = (now - self.dice.below(2 * SECOND as u64) as i64).max(run.start + 1).min(run.stop);
            mover.keeper.end(&run.name, stop, "asked", now).map(|r| format!("{} ends at {}", r.name, r.stop))
        } else {
            let Some(plan) = self.plans.iter_mut().find(|p| !p.begun) else { return Ok(()) };
            let start = now - self.dice.below(3 * SECOND as u64) as i64;
            let stop = if self.dice.one_in(4) { Some(start + 4 * SECOND) } else { None };
            let settle = Duration::from_nanos(SETTLE as u64);
            let answer = mover.keeper.begin(&plan.name, start, stop, settle, "{}", now);
            // Refused or not: after an error the answer is what the stream of runs says.
            plan.begun = true;
            answer.map(|r| format!("{} begins at {}", r.name, r.start))
        };
        match answer {
            Ok(what) => self.say(|| what),
            Err(e) => {
                self.may_fail("run", &e)?;
                self.kill_mover();
                // A run whose request failed may be there or not.
                if self.open_mover()? {
                    self.forget_unbegun()?;
                }
            }
        }
        Ok(())
    }

    /// Plans whose run never came to be, because the answer was an error, are begun again later.
    fn forget_unbegun(&mut self) -> Checked {
        // Only the keeper knows: what is not marked yet is not seen by others.
        let Some(mover) = self.mover.as_ref().filter(|m| m.keeper.trouble().is_none()) else { return Ok(()) };
        for plan in &mut self.plans {
            plan.begun &= mover.keeper.runs().iter().any(|r| r.name == plan.name);
        }
        Ok(())
    }

    // --- the processes that write the files, one a run ---

    fn inputs(&self) -> Vec<String> {
        self.noted.iter().map(|n| n.name.to_string()).collect()
    }

    fn some_plan(&mut self) -> usize {
        self.dice.below(self.plans.len() as u64) as usize
    }

    fn some_feed(&mut self) -> Checked {
        let at = self.some_plan();
        self.feed(at)
    }

    fn open_feeder(&mut self, at: usize) -> Checked<bool> {
        let plan = &self.plans[at];
        if plan.feeder.is_some() || !plan.begun || plan.finished {
            return Ok(plan.feeder.is_some());
        }
        let (name, paper) = (plan.name.clone(), plan.paper.clone());
        let data = self.data(&plan.process);
        let (mut feed, state) = match Feed::open(&data, SINK, &name, &self.inputs(), true) {
            Ok(opened) => opened,
            Err(e) => {
                // The run may not be there yet, or not any more.
                if !self.calm || !e.what.contains("no run ") {
                    self.may_fail("the feed does not open", &e)?;
                }
                self.forget_unbegun()?;
                return Ok(false);
            }
        };
        if feed.finished() {
            drop(feed);
            self.finished(at);
            return Ok(false);
        }
        let sink = match state.as_deref().map(|state| Writing::resume(&paper, state, self.aside_every)) {
            Some(Ok(sink)) => sink,
            None => Writing::anew(&paper, self.aside_every),
            Some(Err(why)) => {
                self.say(|| format!("{why}: it is made again"));
                let mut sink = Writing::anew(&paper, self.aside_every);
                let now = self.machine.now();
                if let Err(e) = feed.restart().and_then(|()| feed.flush(&mut sink, now)) {
                    self.may_fail("the feed cannot begin anew", &e)?;
                    // SAFETY: nothing else of this process maps.
                    unsafe { self.machine.kill(&self.plans[at].process, feed) };
                    self.plans[at].process = self.machine.start();
                    return Ok(false);
                }
                sink
            }
        };
        self.plans[at].feeder = Some(Feeder { feed, sink });
        self.say(|| format!("the feed of {name} is open from {state:?}"));
        Ok(true)
    }

    fn finished(&mut self, at: usize) {
        self.say(|| format!("run{at} is written"));
        self.plans[at].finished = true;
        self.to_file = true;
    }

    fn feed(&mut self, at: usize) -> Checked {
        if !self.open_feeder(at)? {
            return Ok(());
        }
        let now = self.machine.now();
        let data = self.data(&self.plans[at].process);
        let aside_every = self.aside_every;
        let plan = &mut self.plans[at];
        let paper = plan.paper.clone();
        let Some(Feeder { feed, sink }) = &mut plan.feeder else { return Ok(()) };
        let done = feed.step(sink).and_then(|fed| {
            if fed.overrun {
                // The commit first: from now on nothing rests on rows of the file that is made again.
                *sink = Writing::anew(&paper, aside_every);
                feed.restart()?;
                feed.flush(sink, now)?;
                return Ok(Some("overrun"));
            }
            if !fed.complete {
                return Ok(None);
            }
            feed.flush(sink, now)?;
            let account = feed.account(&data, SINK)?;
            let account = serde_json::to_string(&account).unwrap_or_default();
            feed.finish(sink, &account, now)?;
            Ok(Some("finished"))
        });
        match done {
            Ok(None) => {}
            Ok(Some("overrun")) => self.say(|| format!("run{at} is written anew")),
            Ok(Some(_)) => {
                self.plans[at].feeder = None;
                self.finished(at);
            }
            Err(e) => {
                self.may_fail("the feed stops", &e)?;
                self.kill_feeder(at);
            }
        }
        Ok(())
    }

    fn flush(&mut self, at: usize) -> Checked {
        let now = self.machine.now();
        let Some(Feeder { feed, sink }) = &mut self.plans[at].feeder else { return Ok(()) };
        if let Err(e) = feed.flush(sink, now) {
            self.may_fail("the feed cannot commit", &e)?;
            self.kill_feeder(at);
        }
        Ok(())
    }

    // --- deaths ---

    fn kill_mover(&mut self) {
        self.say(|| "the mover is killed".into());
        self.deaths += 1;
        // SAFETY: all maps of this process are in these objects.
        unsafe { self.machine.kill(&self.mover_process, self.mover.take()) };
        self.mover_process = self.machine.start();
        if self.stages.is_any() && !self.dice.one_in(3) {
            self.kill_slots();
        }
    }

    fn kill_feeder(&mut self, at: usize) {
        self.say(|| format!("the feed of run{at} is killed"));
        self.deaths += 1;
        let plan = &mut self.plans[at];
        // SAFETY: all maps of this process are in these objects.
        unsafe { self.machine.kill(&plan.process, plan.feeder.take()) };
        plan.process = self.machine.start();
    }

    fn cut(&mut self) {
        self.say(|| "power cut".into());
        self.deaths += 1;
        let feeders: Vec<Option<Feeder>> = self.plans.iter_mut().map(|p| p.feeder.take()).collect();
        // SAFETY: all maps of all processes are in these objects; readers of checks are dropped at once.
        unsafe { self.machine.power_cut((self.mover.take(), feeders, self.stages.take_slots())) };
        (self.mover_process, self.witness) = (self.machine.start(), self.machine.start());
        self.plans.iter_mut().for_each(|p| p.process = self.machine.start());
        // Restarts that were not marked yet may be missing from the book.
        self.streams.iter_mut().for_each(|s| s.restarts.clear());
        for plan in &self.plans {
            lock(&plan.paper).cut(&mut self.dice);
        }
    }

    // --- the end ---

    /// No more faults: everything must come to its end by itself.
    fn come_to_the_end(&mut self) -> Checked {
        self.say(|| "calm".into());
        self.machine.room(u64::MAX, u64::MAX);
        self.has_room = true;
        self.machine.fail_sync_after(None);
        self.machine.stop_after(None);
        for plan in &self.plans {
            lock(&plan.paper).fails_after = None;
        }
        // A writer that a failed sync has stopped starts anew, as `up` would.
        self.kill_mover();
        self.kill_slots();
        (0..self.plans.len()).for_each(|at| self.kill_feeder(at));
        self.calm = true;
        if self.stages.is_any() {
            // A merge shows nothing that is later than a wait before now: where the clock was set back, somebody sets it right.
            self.machine.advance((self.latest - self.machine.now()).max(0));
        }
        for step in 0..PATIENCE {
            self.advance(SECOND / 10);
            self.sources()?;
            self.drain()?;
            for _ in 0..if self.stages.is_any() { 4 } else { 0 } {
                self.stages()?;
                self.some_slot()?;
            }
            self.keep_runs()?;
            for at in 0..self.plans.len() {
                self.feed(at)?;
                if step % 3 == 0 {
                    self.flush(at)?;
                }
            }
            let open = self.mover.as_ref().is_some_and(|m| m.keeper.runs().iter().any(|r| r.state.name() == "open"));
            if open || self.plans.iter().any(|p| !p.begun) {
                self.begin_or_end()?;
            } else if self.plans.iter().all(|p| p.finished)
                && !self.to_file
                && (!self.stages.is_any() || self.mover.as_ref().is_some_and(|m| m.stages.rest()))
            {
                return Ok(());
            }
            if step == 200 {
                self.streams.iter().for_each(|s| lock(&s.outside).ended = true);
            }
        }
        let states: Vec<String> = match &self.mover {
            Some(mover) => mover.keeper.runs().iter().map(|r| format!("{} {}", r.name, r.state.name())).collect(),
            None => vec!["the mover is down".into()],
        };
        Err(self.fail(format!("it does not come to its end: {}", states.join(", "))))
    }

    fn check(&mut self) -> Checked<Tally> {
        self.note_marks()?;
        let data = self.data(&self.witness);
        self.check_books(&data)?;
        let mut tally = Tally { deaths: self.deaths, ..Tally::default() };
        for at in 0..self.streams.len() {
            tally.messages += self.check_stream(&data, at)?;
        }
        tally.made = self.check_stages(&data)?;
        for plan in 0..self.plans.len() {
            self.check_run(&data, plan, &mut tally)?;
        }
        Ok(tally)
    }

    /// A finished run leaves one message in one book, and no position in any stream.
    fn check_books(&self, data: &Data) -> Checked {
        let fault = |e: flow::Fault| self.fail(e.to_string());
        let books = data.streams(true).map_err(fault)?;
        if let Some(book) = books.iter().find(|b| b.starts_with(&format!("{SINK}.")) && **b != flow::commits_of(SINK)) {
            return Err(self.fail(format!("{book} is still there")));
        }
        for name in self.inputs() {
            let readers = data.reader_early(&name).map_err(fault)?.pins().readers();
            let of_sink = format!("{SINK}:");
            if let Some(reader) = readers.iter().find(|r| r.name.starts_with(&of_sink)) {
                return Err(self.fail(format!("{name}: the place of {} is still there", reader.name)));
            }
        }
        Ok(())
    }

    /// Order per maker, bytes, and that nothing marked is gone. Messages in the stream.
    fn check_stream(&self, data: &Data, at: usize) -> Checked<u64> {
        let (stream, noted) = (&self.streams[at], &self.noted[at]);
        let name = stream.name;
        let mut reader = data.reader_early(name).map_err(|e| self.fail(e.to_string()))?;
        let names = reader.origins().map_err(|e| self.fail(e.to_string()))?.to_vec();
        let bounds = reader.bounds();
        let outside = lock(&stream.outside);
        let mut newest: BTreeMap<u32, u64> = BTreeMap::new();
        loop {
            let batch = reader.read(1000).map_err(|e| self.fail(format!("{name}: {e}")))?;
            if batch.is_empty() {
                break;
            }
            for m in batch.iter() {
                let (row, number) = (m.entry.origin, m.entry.origin_seq);
                let made = names
                    .get(row as usize)
                    .and_then(|n| outside.made.iter().find(|o| o.0 == *n))
                    .and_then(|o| Some((&o.0, o.1.get(number as usize)?)));
                let good = made.is_some_and(|(origin, made)| {
                    made.time == m.entry.source_time && payload(name, origin, number, made.len) == m.payload
                });
                if !good {
                    return Err(self.fail(format!("{name}: message {} was never made", m.sequence)));
                }
                if newest.insert(row, number).is_some_and(|last| last >= number) {
                    return Err(self.fail(format!("{name}: message {} is out of order", m.sequence)));
                }
                if noted.marked.get(&m.sequence).is_some_and(|known| *known != (row, number)) {
                    return Err(self.fail(format!("{name}: marked message {} is another", m.sequence)));
                }
            }
        }
        if bounds.count < noted.upto {
            return Err(self.fail(format!("{name}: {} were marked, {} are there", noted.upto, bounds.count)));
        }
        // Each time that a mover was not there is written down.
        let absences = ledger::absences(data, name).map_err(|e| self.fail(e.to_string()))?;
        for next in &stream.restarts {
            if !absences.iter().any(|g| g.first == *next && g.count() == 0 && g.from <= g.to) {
                return Err(self.fail(format!("{name}: nobody says that a mover began at {next}: {absences:?}")));
            }
        }
        // An entry account closes; a patient maker whose stream waits loses nothing at all.
        let (entries, _) = ledger::entries(data, name).map_err(|e| self.fail(e.to_string()))?;
        for entry in entries {
            let lost: u64 = entry.lost.values().sum();
            if !entry.closed || (outside.patient && stream.options.when_full == WhenFull::Wait && lost > 0) {
                return Err(self.fail(format!("{name}: {entry:?}")));
            }
        }
        Ok(bounds.count - bounds.first)
    }

    /// The file of a run against the streams.
    fn check_run(&self, data: &Data, at: usize, tally: &mut Tally) -> Checked {
        let plan = &self.plans[at];
        let fault = |e: flow::Fault| self.fail(e.to_string());
        let run = runs::run(data, &plan.name).map_err(fault)?;
        let account = ledger::account(data, &plan.name, &[SINK.to_string()]).map_err(fault)?;
        let paper = lock(&plan.paper);
        let rows = &paper.rows;
        let end = |stream: &str| run.streams.iter().filter(|r| r.stream == stream).map(|r| r.next).max().unwrap_or(0);
        if !account.closed {
            return Err(self.fail(format!("the account of {} does not close: {account:#?}", plan.name)));
        }
        for (input, name) in self.noted.iter().map(|n| n.name).enumerate() {
            // The stream of a stage always waits.
            let waits = self.streams.get(input).is_none_or(|s| s.options.when_full == WhenFull::Wait);
            let here: Vec<&Row> = rows.iter().filter(|r| r.input == input).collect();
            if !here.is_sorted_by(|a, b| a.sequence < b.sequence) {
                return Err(self.fail(format!("{}: rows are out of order or there twice", plan.name)));
            }
            let Some(row) = account.rows.iter().find(|r| r.stream == name) else {
                return Err(self.fail(format!("{}: no account of {name}", plan.name)));
            };
            let lost: u64 = row.lost.values().sum();
            let done = here.iter().filter(|r| !r.aside).count() as u64;
            let aside: u64 = row.aside.values().sum();
            if row.done != done || done + aside != here.len() as u64 {
                return Err(self.fail(format!("{}: {} rows, {row:?}", plan.name, here.len())));
            }
            if waits && lost > 0 && self.held_back(&plan.name) {
                return Err(self.fail(format!("{}: lost though its stream waits: {row:?}", plan.name)));
            }
            let next = end(name);
            let here: Vec<&Row> = here.into_iter().filter(|r| r.sequence < next).collect();
            self.check_members(data, &run, name, next, &here, lost)?;
            tally.lost += lost;
        }
        tally.rows += rows.len() as u64;
        tally.runs += 1;
        Ok(())
    }

    /// Nothing promises messages to a run before its feed has been there once.
    fn held_back(&self, _run: &str) -> bool {
        self.streams.iter().all(|s| s.options.retain_bytes.is_none()) && self.disk
    }

    /// Every member that is still in the stream has its row, and each row its message.
    fn check_members(
        &self,
        data: &Data,
        run: &flow::records::Run,
        stream: &str,
        next: u64,
        rows: &[&Row],
        lost: u64,
    ) -> Checked {
        let mut reader = data.reader_early(stream).map_err(|e| self.fail(e.to_string()))?;
        let first = reader.bounds().first;
        let mut rows = rows.iter().skip_while(|r| r.sequence < first).peekable();
        let mut missing = Vec::new();
        loop {
            let batch = reader.read(1000).map_err(|e| self.fail(e.to_string()))?;
            if batch.is_empty() {
                break;
            }
            for m in batch.iter() {
                let member = m.entry.source_time >= run.start && m.entry.source_time < run.stop;
                let inside = m.sequence < next;
                if member && !inside && m.entry.arrival_time <= run.stop {
                    return Err(self.fail(format!("{}: {} came in time and is not in the seal", run.name, m.sequence)));
                }
                let due = member && inside;
                let row = rows.next_if(|r| r.sequence == m.sequence);
                match row {
                    Some(row) if !due || row.number != m.entry.origin_seq || row.crc != store::crc32c(m.payload) => {
                        return Err(self.fail(format!("{}: {row:?} is {:?}", run.name, m.entry)));
                    }
                    None if due => missing.push(m.sequence),
                    _ => {}
                }
            }
        }
        if missing.len() as u64 > lost {
            return Err(self.fail(format!("{}: rows {missing:?} are missing of {stream}, {lost} are known", run.name)));
        }
        match rows.next() {
            Some(row) => Err(self.fail(format!("{}: {row:?} has no message", run.name))),
            None => Ok(()),
        }
    }
}
