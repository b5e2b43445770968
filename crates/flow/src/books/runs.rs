//! Runs and their states: `open -> settling -> sealed`, each step one message of the stream `runs`.
//!
//! Constraints: only the mover appends them, and answers a change after its mark. A run seals when each source has
//! delivered everything up to `stop + settle` (or has ended) and all published messages are marked; the seal lists the
//! sequence ranges that contain the members, per stream and epoch. From then on the run is a pure function of the
//! streams.
//!
//! A stream that deletes messages may have deleted those of a run before it seals. So the first step of a run lists
//! where its members can begin in each stream, and the keeper notes where they begin and end while the stream still has
//! them: the seal names the sequences of deleted members too.
//!
//! The wall clock may be set while a run is open: [`RunKeeper`] compares it with the clock that nobody sets. A run that
//! ends now ends no earlier than it would have by that clock, nor before the newest arrival in its streams, and every
//! run records how far the wall clock was set.
//!
//! Failure behaviour: a change without room in `runs` is refused or retried; a restarted mover resumes from the newest
//! message of each run.

mod view;

pub use view::RunsView;

use crate::book::{Book, Keeps, RunStep};
use crate::commits::{self, seen};
use crate::data::{Data, RUNS, not_written, stream_fault};
use crate::extent::{Extent, follow_stream};
use crate::limits::{CLOCK_SET, DESCRIBED_STEPS, FOLLOW_PAUSE, NAMED_RUNS};
use crate::records::{Range, Run, Stop};
use crate::{Fault, Passes};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use store::{Clock, Level};
use wire::bprn::{STOP_UNKNOWN, State};

/// All runs of a data folder, oldest first, each as its newest message says.
pub fn runs(data: &Data) -> Result<Vec<Run>, Fault> {
    let mut view = RunsView::new(data);
    view.refresh()?;
    Ok(view.runs)
}

/// One run by name.
pub fn run(data: &Data, name: &str) -> Result<Run, Fault> {
    let all = runs(data)?;
    let names: Vec<&str> = all.iter().map(|r| r.name.as_str()).collect();
    let hint = match names.split_at(names.len().saturating_sub(NAMED_RUNS)) {
        ([], []) => "there are no runs yet".into(),
        ([], all) => format!("runs: {}", all.join(", ")),
        (more, newest) => format!("newest runs: {}, and {} more: `beamport ls`", newest.join(", "), more.len()),
    };
    all.iter()
        .find(|r| r.name == name)
        .cloned()
        .ok_or_else(|| Fault::new(format!("no run `{name}`"), data.folder.display()).hint(hint))
}

/// A stream as the mover sees it at one moment.
#[derive(Clone, Debug, Default)]
pub struct StreamView {
    /// Name.
    pub name: String,
    /// The source has brought everything up to this time.
    pub frontier: i64,
    /// The source has ended.
    pub ended: bool,
    /// All that was published is marked.
    pub marked: bool,
    /// Of a worker: blocks of its inputs that it has begun; 0 of others.
    pub begun: u64,
    /// Of these, blocks before which all are done and committed.
    pub done: u64,
    /// Messages below are as safe as the stream's level promises.
    pub safe: u64,
    /// Source time of the newest message that its source lost.
    pub lost_to: Option<i64>,
    /// Its last message found no room; of a worker or a merge, this or an input of it.
    pub is_blocked: bool,
}

/// Keeps the stream of runs: the only one that appends to it.
///
/// A step of a run counts once it is marked. Where the disk has no room it stays pending, nothing else changes
/// meanwhile, and the life of runs goes on when there is room again.
pub struct RunKeeper {
    data: Data,
    book: Book,
    runs: Vec<Run>,
    /// Appended but not marked yet: the run and its sequence.
    pending: Option<(Run, u64)>,
    /// Runs whose sources have brought all, waiting for marks: how far each stream went at that moment.
    sealing: BTreeMap<String, BTreeMap<String, u64>>,
    /// The stream that could not be read at the last step.
    unread: Option<Fault>,
    /// Where the members of runs that are not sealed are, by run and stream.
    extents: BTreeMap<String, BTreeMap<String, Extent>>,
    /// When they were last followed, ns since 1970 UTC.
    followed: i64,
    /// The time of each run that is not sealed.
    times: BTreeMap<String, RunTime>,
    /// Metadata of the instrument in runs that begin from now on.
    instrument: Arc<str>,
    /// The newest step that has metadata of the instrument, and these.
    described: Option<(u64, Arc<str>)>,
}

/// How time goes on in a run, whoever sets the wall clock.
#[derive(Clone, Copy)]
struct RunTime {
    /// Wall clock and the clock that nobody sets at one moment, ns.
    time: i64,
    clock: i64,
    /// The largest step of the wall clock since then, ns.
    step: i64,
}

impl RunTime {
    /// The time in the run where the other clock says this.
    fn at(&self, clock: i64) -> i64 {
        self.time.saturating_add(clock.saturating_sub(self.clock))
    }
}

/// How long a command waits for the mark.
const COMMAND_PATIENCE: Duration = Duration::from_secs(5);
/// How long a step of a run's own life waits: longer, it is looked at again at the next.
const STEP_PATIENCE: Duration = Duration::from_millis(500);

impl RunKeeper {
    /// Opens the stream of runs for writing.
    pub fn open(data: &Data) -> Result<Self, Fault> {
        let book = Book::open_settled(data, RUNS, Keeps::All)?;
        let runs = runs(data)?;
        let (now, clock) = both_clocks(data);
        let mut times = BTreeMap::new();
        if runs.iter().any(|run| run.state != State::Sealed) {
            // Arrivals since the run began show how far time had come, whatever the wall clock shows now.
            let arrived = newest_arrival(data);
            for run in runs.iter().filter(|run| run.state != State::Sealed) {
                let reached = if run.clock_step == 0 { arrived.min(run.stop) } else { now };
                let behind = now.saturating_sub(reached).min(0);
                let step = if behind < -CLOCK_SET { behind } else { 0 };
                times.insert(run.name.clone(), RunTime { time: now.max(reached), clock, step });
            }
        }
        let (sealing, extents) = (BTreeMap::new(), BTreeMap::new());
        let (data, followed) = (data.clone(), i64::MIN);
        let (pending, unread, described, instrument) = (None, None, None, "".into());
        Ok(Self { data, book, runs, pending, sealing, unread, extents, followed, times, instrument, described })
    }

    /// Sets the metadata of the instrument in runs that begin from now on: a JSON object as text, or nothing.
    pub fn set_instrument(&mut self, metadata: &str) {
        if *self.instrument != *metadata {
            self.instrument = metadata.into();
        }
    }

    /// What opening the stream of runs found: where it was cut, runs are forgotten.
    pub fn recovery(&self) -> &store::Recovery {
        self.book.writer().recovery()
    }

    /// When the stream of runs was made, ns since 1970 UTC.
    pub fn created(&self) -> i64 {
        self.book.writer().header().created
    }

    /// Identity of the stream that holds them.
    pub fn stream(&self) -> [u8; 16] {
        self.book.writer().header().uuid
    }

    /// All runs.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// What keeps a run from moving on: its step is not recorded yet, or a stream cannot be read.
    pub fn trouble(&self) -> Option<Fault> {
        let Some((run, _)) = &self.pending else { return self.unread.clone() };
        Some(not_written(format!("run `{}` waits to be recorded", run.name), self.book.writer().trouble()))
    }

    /// Runs that are not sealed.
    pub fn unsealed(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|r| r.state != State::Sealed)
    }

    /// A step at `now` would change nothing, unless all streams of an open run have ended: no run settles, and none has
    /// come to its stop.
    pub fn rests(&mut self, now: i64) -> bool {
        self.see_clock();
        let is_begun = |run: &Run| {
            let extents = self.extents.get(&run.name);
            extents.is_some_and(|extents| extents.values().all(|extent| extent.first.is_some()))
        };
        let is_followed = (self.followed..self.followed.saturating_add(FOLLOW_PAUSE)).contains(&now);
        let rests = |run: &Run| {
            let is_before_stop = self.time_in(&run.name).unwrap_or(now) < run.stop;
            run.state == State::Open && is_before_stop && (now < run.start || is_followed || is_begun(run))
        };
        self.pending.is_none() && self.unsealed().all(rests)
    }

    /// Remembers how far the wall clock was set.
    fn see_clock(&mut self) {
        let (now, clock) = both_clocks(&self.data);
        for time in self.times.values_mut() {
            let step = now.saturating_sub(time.at(clock));
            if step.unsigned_abs() > CLOCK_SET as u64 && step.unsigned_abs() > time.step.unsigned_abs() {
                time.step = step;
            }
        }
    }

    /// The time in a run where the wall clock was set back: it goes on. None where the wall clock is right.
    fn time_in(&self, run: &str) -> Option<i64> {
        let (now, clock) = both_clocks(&self.data);
        let time = self.times.get(run)?.at(clock);
        (time > now.saturating_add(CLOCK_SET)).then_some(time)
    }

    /// The run as it ends now: what has arrived belongs to it.
    fn ending_now(&mut self, run: &Run, reason: &str, now: i64) -> Run {
        let time = self.time_in(&run.name);
        // Arrivals that were ahead of the clock when it began say nothing of it.
        let arrived = if run.clock_step == 0 { newest_arrival(&self.data).saturating_add(1) } else { i64::MIN };
        let stop = time.unwrap_or(now).max(arrived);
        if let Some(time) = self.times.get_mut(&run.name).filter(|_| stop > now.saturating_add(CLOCK_SET)) {
            // It settles from here on.
            (time.time, time.clock) = (stop, self.data.media.clock());
            self.see_clock();
        }
        self.ending(run, stop.max(run.start).into(), reason, now)
    }

    /// A run whose stop is known from now on, never later than was declared.
    fn ending(&self, run: &Run, stop: Stop, reason: &str, now: i64) -> Run {
        let (stop, inclusive) = if stop.first_outside < run.stop {
            (stop.first_outside, stop.inclusive)
        } else {
            (run.stop, run.inclusive)
        };
        let clock_step = self.clock_step(run);
        let reason = reason.to_string();
        Run { stop, inclusive, clock_step, state: State::Settling, time: now, reason, ..run.clone() }
    }

    /// The largest step of the wall clock that is recorded or was seen since.
    fn clock_step(&self, run: &Run) -> i64 {
        let seen = self.times.get(&run.name).map_or(0, |time| time.step);
        if seen.unsigned_abs() > run.clock_step.unsigned_abs() { seen } else { run.clock_step }
    }

    /// Begins a run. Asked again with the same name and start, the answer is the run that is there.
    pub fn begin(
        &mut self,
        name: &str,
        start: i64,
        stop: impl Into<Stop>,
        settle: Duration,
        metadata: &str,
        now: i64,
    ) -> Result<Run, Fault> {
        if let Some(known) = self.runs.iter().find(|r| r.name == name) {
            if known.start == start {
                return Ok(known.clone());
            }
            return Err(Fault::new(format!("cannot begin run `{name}`"), "a run of that name already exists")
                .hint("choose another name; `beamport ls` lists the runs"));
        }
        let Stop { first_outside: stop, inclusive } = stop.into();
        if stop <= start {
            return Err(Fault::new(format!("cannot begin run `{name}`"), "its stop is not after its start"));
        }
        let ahead = newest_arrival(&self.data).saturating_sub(now);
        let run = Run {
            name: name.to_string(),
            id: self.data.media.random(),
            state: State::Open,
            start,
            stop,
            settle: i64::try_from(settle.as_nanos()).unwrap_or(i64::MAX / 4),
            time: now,
            metadata: metadata.to_string(),
            streams: Vec::new(),
            reason: String::new(),
            inclusive,
            clock_step: if ahead > CLOCK_SET { -ahead } else { 0 },
            instrument: self.instrument.clone(),
            undescribed: None,
        };
        let run = Run { streams: self.beginnings(&run, now)?, ..run };
        let (time, clock) = both_clocks(&self.data);
        self.times.insert(name.to_string(), RunTime { time, clock, step: 0 });
        self.command(&run)?;
        Ok(run)
    }

    /// Ends a run: its stop is known from now on. One that is not known: now, or behind the newest arrival. Asked again
    /// with the same stop or none, the answer is the run as it ended. One that has not begun yet and ends now is empty.
    pub fn end(&mut self, name: &str, stop: impl Into<Stop>, reason: &str, now: i64) -> Result<Run, Fault> {
        let stop = Some(stop.into()).filter(|stop| stop.first_outside != STOP_UNKNOWN);
        let Some(at) = self.runs.iter().position(|r| r.name == name) else {
            return Err(
                Fault::new(format!("cannot end run `{name}`"), "no such run").hint("`beamport ls` lists the runs")
            );
        };
        let run = self.runs[at].clone();
        let refuse = |why: &str, hint: &str| Err(Fault::new(format!("cannot end run `{name}` then"), why).hint(hint));
        if run.state != State::Open {
            return match stop {
                Some(stop) if stop.first_outside != run.stop => {
                    refuse("it has another stop", "see `beamport ls`: a stop cannot be changed")
                }
                _ => Ok(run),
            };
        }
        match stop {
            Some(stop) if stop.first_outside <= run.start => {
                return refuse("its stop is not after its start", "omit the time to end it now");
            }
            Some(stop) if stop.first_outside > run.stop => {
                // Sinks have already skipped the messages behind the earlier stop.
                return refuse("it began with an earlier stop", "omit the time to end it now");
            }
            _ => {}
        }
        self.see_clock();
        let run = match stop {
            Some(stop) => self.ending(&run, stop, reason, now),
            None => self.ending_now(&run, reason, now),
        };
        self.follow_to_end(&run, now);
        self.command(&run)?;
        Ok(run)
    }

    /// Adopts a run of the host that leads: begins it here with the same identity, and ends it once its stop is known.
    /// True where that changed something. It is sealed here when the streams of this host have come so far.
    pub fn follow_lead(&mut self, lead: &Run, now: i64) -> Result<bool, Fault> {
        let known = self.runs.iter().find(|run| run.name == lead.name);
        if let Some(known) = known {
            if known.id != lead.id {
                let what = format!("run `{}` of the host that leads cannot be adopted", lead.name);
                let fault = Fault::new(what, "this host has another run of that name");
                return Err(fault.hint("remove the data folder of one of them, or choose another name"));
            }
            if known.state != State::Open || lead.state == State::Open {
                return Ok(false);
            }
            let run = self.ending(&known.clone(), lead.stops(), &lead.reason, now);
            self.follow_to_end(&run, now);
            self.command(&run)?;
            return Ok(true);
        }
        let run = Run {
            state: State::Open,
            time: now,
            streams: Vec::new(),
            reason: String::new(),
            clock_step: 0,
            instrument: self.instrument.clone(),
            undescribed: None,
            ..lead.clone()
        };
        let run = Run { streams: self.beginnings(&run, now)?, ..run };
        let (time, clock) = both_clocks(&self.data);
        self.times.insert(run.name.clone(), RunTime { time, clock, step: 0 });
        self.command(&run)?;
        Ok(true)
    }

    /// Ends all open runs, as far as they can be written down now. True once none is open.
    pub fn end_all(&mut self, reason: &str, now: i64) -> Result<bool, Fault> {
        self.see_clock();
        while self.pending.is_none() {
            let Some(run) = self.runs.iter().find(|r| r.state == State::Open).cloned() else { return Ok(true) };
            let run = self.ending_now(&run, reason, now);
            self.follow_to_end(&run, now);
            if !self.append(&run, STEP_PATIENCE)? {
                return Ok(false);
            }
        }
        Ok(false)
    }

    /// Moves runs on in their life. Returns those that changed.
    pub fn step(&mut self, now: i64, streams: &[StreamView]) -> Result<Vec<Run>, Fault> {
        let mut changed = Vec::new();
        self.see_clock();
        if let Some((run, sequence)) = &self.pending {
            if !self.book.is_safe(*sequence) {
                return Ok(changed);
            }
            let run = run.clone();
            self.adopt(&run);
            changed.push(run);
        }
        self.unread = None;
        self.extents.retain(|name, _| self.runs.iter().any(|run| run.name == *name && run.state != State::Sealed));
        let names: Vec<&str> = streams.iter().map(|stream| stream.name.as_str()).collect();
        for at in 0..self.runs.len() {
            if self.runs[at].state == State::Sealed {
                continue;
            }
            let run = self.runs[at].clone();
            self.follow(&run, now, &names);
            loop {
                match self.next_step(at, now, streams) {
                    Ok(None) => break,
                    Ok(Some(run)) => {
                        if !self.append(&run, STEP_PATIENCE)? {
                            return Ok(changed);
                        }
                        changed.push(run);
                    }
                    // One stream that cannot be read now keeps its run from moving on, and nothing else.
                    Err(fault) => {
                        self.unread = Some(fault.leads_to(format!("cannot advance run `{}`", self.runs[at].name)));
                        break;
                    }
                }
            }
        }
        Ok(changed)
    }

    /// Where the members of a run that begins can begin, in each stream that is there.
    fn beginnings(&self, run: &Run, now: i64) -> Result<Vec<Range>, Fault> {
        let mut ranges = Vec::new();
        for stream in self.data.streams(false)? {
            let mut reader = self.data.reader_early(&stream)?;
            let (header, bounds) = (reader.header().clone(), reader.bounds());
            let by_arrival = header.clock != Clock::Epoch;
            let first = match by_arrival {
                true if run.start >= now => bounds.count,
                true => bounds.first,
                false => reader.time_range(run.start, run.stop).map_err(|e| stream_fault(&stream, e))?.0,
            };
            let epoch = header.epoch_of(first);
            ranges.push(Range { stream, uuid: header.uuid, epoch, first, next: first, by_arrival, ended: false });
        }
        Ok(ranges)
    }

    /// Notes where the members of an unsealed run are in the streams that delete messages.
    fn follow(&mut self, run: &Run, now: i64, streams: &[&str]) {
        if run.state == State::Sealed || now < run.start {
            return;
        }
        self.followed = now;
        let extents = self.extents.entry(run.name.clone()).or_default();
        let has_begun = |extents: &BTreeMap<String, Extent>, name: &str| {
            run.state == State::Open && extents.get(name).is_some_and(|extent| extent.first.is_some())
        };
        for name in streams {
            if has_begun(extents, name) {
                continue;
            }
            if let Err(fault) = follow_stream(&self.data, run, name, extents) {
                self.unread = Some(fault.leads_to(format!("cannot follow run `{}`", run.name)));
            }
        }
    }

    /// The same at the moment in which its stop becomes known.
    fn follow_to_end(&mut self, run: &Run, now: i64) {
        let extents = self.extents.get(&run.name);
        let names = run.streams.iter().map(|range| &range.stream).chain(extents.into_iter().flat_map(BTreeMap::keys));
        let names: Vec<String> = names.cloned().collect::<BTreeSet<_>>().into_iter().collect();
        self.follow(run, now, &names.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// The next step of a run's life, if it is due. An error is one of a stream.
    fn next_step(&mut self, at: usize, now: i64, streams: &[StreamView]) -> Result<Option<Run>, Fault> {
        let run = &self.runs[at];
        let time = self.time_in(&run.name);
        let all_ended = || !streams.is_empty() && streams.iter().all(|s| s.ended && s.marked);
        match run.state {
            State::Open if time.unwrap_or(now) >= run.stop => {
                Ok(Some(self.ending(run, run.stops(), "its stop was reached", now)))
            }
            State::Open if all_ended() => {
                let stop = self.latest_member(run, streams, now)?.saturating_add(1).max(run.start + 1);
                Ok(Some(self.ending(run, stop.into(), "its sources ended", now)))
            }
            State::Settling => {
                // Nothing comes that would belong to an empty run, however far ahead it lies.
                let until = if run.stop > run.start { run.stop.saturating_add(run.settle) } else { run.time };
                // A wall clock that was set back comes so far in an hour: frontiers follow it.
                let is_late = time.is_some_and(|time| time >= until);
                let is_settled = is_late || streams.iter().all(|s| s.ended || s.frontier >= until);
                if is_settled { self.sealed(run.clone(), now, streams) } else { Ok(None) }
            }
            State::Open | State::Sealed => Ok(None),
        }
    }

    /// A settled run with the ranges of its members; none while these are not all marked.
    fn sealed(&mut self, run: Run, now: i64, streams: &[StreamView]) -> Result<Option<Run>, Fault> {
        // The seal falls at this moment: what arrives later is late, however busy the stream is.
        if !self.sealing.contains_key(&run.name) {
            let mut ends = BTreeMap::new();
            for stream in streams {
                ends.insert(stream.name.clone(), self.data.reader_early(&stream.name)?.bounds().count);
            }
            self.sealing.insert(run.name.clone(), ends);
        }
        let mut ranges = Vec::new();
        let mut marked = true;
        for stream in streams {
            marked &= self.add_ranges(&run, stream, &mut ranges)?;
        }
        if !marked {
            return Ok(None);
        }
        self.sealing.remove(&run.name);
        Ok(Some(Run { state: State::Sealed, time: now, clock_step: self.clock_step(&run), streams: ranges, ..run }))
    }

    /// The newest time among the members of a run that has no stop yet. Messages that were lost are members, too.
    fn latest_member(&self, run: &Run, streams: &[StreamView], now: i64) -> Result<i64, Fault> {
        let mut latest = run.start;
        for stream in streams {
            let mut reader = self.data.reader_early(&stream.name)?;
            let clock = reader.header().clock;
            let bounds = reader.bounds();
            let mut see = |entries: &[store::Entry]| {
                for entry in entries.iter().filter(|e| e.flags & store::flags::AHEAD == 0) {
                    let time = clock.time_of(entry);
                    if run.holds(time) {
                        latest = latest.max(time);
                    }
                }
            };
            reader.walk(bounds.first, bounds.count, &mut see).map_err(|e| stream_fault(&stream.name, e))?;
            let lost_to = stream.lost_to.filter(|time| *time <= now && run.holds(*time));
            latest = lost_to.map_or(latest, |time| latest.max(time));
        }
        Ok(latest)
    }

    /// Adds the ranges of a stream, one an epoch. False if they are not all marked yet.
    fn add_ranges(&self, run: &Run, stream: &StreamView, ranges: &mut Vec<Range>) -> Result<bool, Fault> {
        let mut reader = self.data.reader_early(&stream.name)?;
        let header = reader.header().clone();
        let bounds = reader.bounds();
        let known = self.sealing.get(&run.name).and_then(|ends| ends.get(&stream.name));
        let end = known.map_or(bounds.count, |end| bounds.count.min(*end));
        let marked = header.level == Level::Memory || bounds.disk >= end;
        let by_arrival = header.clock != Clock::Epoch;
        let (mut first, mut next) = if by_arrival {
            (bounds.first, end)
        } else {
            reader.time_range(run.start, run.stop).map_err(|e| stream_fault(&stream.name, e))?
        };
        let extent = self.extents.get(&run.name).and_then(|extents| extents.get(&stream.name));
        // Messages that retention took since are members all the same, where a sink has seen them.
        let taken = if bounds.first > 0 && !by_arrival {
            let known = commits::of_open_run(&self.data, &run.name)?;
            seen(&known, &stream.name, &header.uuid)
        } else {
            None
        };
        match (taken, extent.filter(|extent| extent.uuid == header.uuid)) {
            (Some(taken), _) => first = first.min(taken),
            (None, Some(Extent { first: Some(noted), next: after, .. })) if *noted < bounds.first => {
                if by_arrival || first >= next {
                    next = *after;
                }
                first = first.min(*noted);
            }
            _ => {}
        }
        let end = end.min(next.max(first));
        let first = first.min(end);
        let range = |epoch, first, next| {
            let stream_name = stream.name.clone();
            Range { stream: stream_name, uuid: header.uuid, epoch, first, next, by_arrival, ended: stream.ended }
        };
        let known = ranges.len();
        for (row, &(epoch, begins)) in header.epochs.iter().enumerate() {
            let ends = header.epochs.get(row + 1).map_or(end, |e| e.1);
            let (low, high) = (begins.max(first), ends.min(end));
            if low < high {
                ranges.push(range(epoch, low, high));
            }
        }
        if ranges.len() == known {
            // Nothing of the run is here: the stream was asked all the same.
            ranges.push(range(header.epoch_of(end), end, end));
        }
        Ok(marked)
    }

    /// A step that somebody asked for: who is answered knows that it is written down.
    fn command(&mut self, run: &Run) -> Result<(), Fault> {
        let waits = self.pending.is_some();
        if !waits && self.append(run, COMMAND_PATIENCE)? {
            return Ok(());
        }
        let is_taken = !waits && self.pending.is_some();
        let fault = not_written(format!("run `{}` is not recorded yet", run.name), self.book.writer().trouble());
        let then = if is_taken { "the run is recorded as soon as the disk takes it" } else { "then ask again" };
        Err(Fault { passes: Passes::WithRoom, hint: format!("{}; {then}", fault.hint), ..fault })
    }

    /// Appends a step of a run and waits for the mark. False if it is not marked yet, or there is no room for it.
    fn append(&mut self, run: &Run, patience: Duration) -> Result<bool, Fault> {
        let back = self.described_back(run);
        let sequence = match self.book.append(&RunStep(run, back)) {
            Ok(sequence) => {
                if back == 0 && !run.instrument.is_empty() {
                    self.described = Some((sequence, run.instrument.clone()));
                }
                sequence
            }
            Err(fault) if fault.passes == Passes::WithRoom => return Ok(false),
            Err(fault) => return Err(fault),
        };
        if !self.book.wait(sequence, patience)? {
            self.pending = Some((run.clone(), sequence));
            return Ok(false);
        }
        self.adopt(run);
        Ok(true)
    }

    /// How many messages before the next one has the metadata of the instrument of a run; 0 if they are to be written
    /// with it. They are written again from time to time, so that damage takes them from few runs, and always in
    /// memory, where the book discards its oldest messages.
    fn described_back(&self, run: &Run) -> u32 {
        if let Some(at) = run.undescribed {
            return u32::try_from(self.book.next_sequence().saturating_sub(at)).unwrap_or(u32::MAX);
        }
        let is_same = |(_, text): &&(u64, Arc<str>)| *text == run.instrument;
        let described =
            self.described.as_ref().filter(is_same).filter(|_| self.book.writer().header().level == Level::Disk);
        let back = described.map_or(0, |(at, _)| self.book.next_sequence().saturating_sub(*at));
        if back < DESCRIBED_STEPS { back as u32 } else { 0 }
    }

    /// A step that is written down.
    fn adopt(&mut self, run: &Run) {
        self.pending = None;
        if run.state == State::Sealed {
            self.times.remove(&run.name);
        }
        match self.runs.iter_mut().find(|known| known.name == run.name) {
            Some(known) => *known = run.clone(),
            None => self.runs.push(run.clone()),
        }
    }
}

/// The wall clock and the clock that nobody sets, ns, read at the same moment: on a busy machine that needs a few
/// tries.
fn both_clocks(data: &Data) -> (i64, i64) {
    for _ in 0..100 {
        let before = data.media.clock();
        let now = data.media.now();
        let clock = data.media.clock();
        if clock.saturating_sub(before) < CLOCK_SET / 10 {
            return (now, clock);
        }
    }
    (data.media.now(), data.media.clock())
}

/// The newest arrival in any stream of a folder, ns since 1970 UTC. One that cannot be read has none.
fn newest_arrival(data: &Data) -> i64 {
    let of = |name: &String| {
        let mut reader = data.reader_early(name).ok()?;
        let newest = reader.bounds().count.checked_sub(1)?;
        Some(reader.entries(newest, 1).ok()?.first()?.arrival_time)
    };
    data.streams(false).unwrap_or_default().iter().filter_map(of).max().unwrap_or(i64::MIN)
}
