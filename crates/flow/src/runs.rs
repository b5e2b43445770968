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
//! Failure behaviour: a change without room in `runs` is refused or retried; a restarted mover resumes from the newest
//! message of each run.

use crate::book::{Book, Keeps};
use crate::commits::{self, seen};
use crate::data::{Data, RUNS, each_batch, stream_fault};
use crate::records::{Range, Run, Stop};
use crate::{Fault, Passes};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use store::{Clock, Level, ReadOptions, Reader};
use wire::bprn::{STOP_UNKNOWN, State};

/// The runs of a data folder, followed: each look reads only what is new.
pub struct RunsView {
    data: Data,
    reader: Option<Reader>,
    runs: Vec<Run>,
    /// Sequence of the newest step of each run.
    steps: BTreeMap<String, u64>,
    /// Steps that do not verify.
    lost: Vec<std::ops::Range<u64>>,
}

impl RunsView {
    /// Opens the stream of runs, or waits for it to be there.
    pub fn new(data: &Data) -> Self {
        Self { data: data.clone(), reader: None, runs: Vec::new(), steps: BTreeMap::new(), lost: Vec::new() }
    }

    /// All runs, oldest first, each as its newest message says. A message that does not verify is passed over: the run
    /// stands as those before and after it say.
    pub fn refresh(&mut self) -> Result<&[Run], Fault> {
        if self.reader.is_none() {
            // Up to the mark: a step of a run that a power cut can take back has not happened.
            match Reader::open(&self.data.media, &self.data.stream(RUNS), ReadOptions::default()) {
                Ok(reader) => self.reader = Some(reader),
                Err(store::Error::Missing(_)) => return Ok(&self.runs),
                Err(e) => return Err(stream_fault(RUNS, e)),
            }
        }
        let Some(reader) = &mut self.reader else { return Ok(&self.runs) };
        reader.refresh().map_err(|e| stream_fault(RUNS, e))?;
        let mut read = Vec::new();
        let lost = each_batch(reader, u64::MAX, &mut |batch| {
            read.extend(batch.iter().map(|message| (message.sequence, Run::read(message.payload))));
            Ok(true)
        })?;
        self.lost.extend(lost);
        for (sequence, run) in read {
            let run = run?;
            self.steps.insert(run.name.clone(), sequence);
            match self.runs.iter_mut().find(|known| known.name == run.name) {
                Some(known) => *known = run,
                None => self.runs.push(run),
            }
        }
        Ok(&self.runs)
    }

    /// The first message behind the newest step of a run that does not verify: it may be a later step of the run. None
    /// where nothing later can come.
    pub fn doubt(&self, run: &Run) -> Option<u64> {
        let step = self.steps.get(&run.name).filter(|_| run.state != State::Sealed)?;
        self.lost.iter().map(|l| l.start).find(|at| at > step)
    }
}

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
    let hint = if names.is_empty() { "there are no runs yet".into() } else { format!("runs: {}", names.join(", ")) };
    all.iter()
        .find(|r| r.name == name)
        .cloned()
        .ok_or_else(|| Fault::new(format!("no run `{name}`"), data.folder.display()).hint(hint))
}

/// A stream as the keeper of runs sees it at one moment.
#[derive(Clone, Debug)]
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
}

/// Where the members of a run are in a stream, noted before the stream deletes them.
struct Extent {
    uuid: [u8; 16],
    /// Sequence of the first member.
    first: Option<u64>,
    /// One past the last member; while the run is open, a sequence that is not behind it.
    next: u64,
    /// The sequence that was next when the extent was last followed.
    at: u64,
}

impl Extent {
    /// Follows the stream to its end: while the run is open only until its first member is there.
    fn follow(&mut self, run: &Run, reader: &mut Reader) -> store::Result<()> {
        let (bounds, clock) = (reader.bounds(), reader.header().clock);
        let is_open = run.state == State::Open;
        if bounds.first > self.at {
            // Deleted meanwhile: these came between two moments of the run.
            self.first.get_or_insert(self.at);
            (self.at, self.next) = (bounds.first, self.next.max(bounds.first));
        }
        let from = if is_open { self.at } else { self.next.max(bounds.first) };
        let (mut at, mut found) = (from, None);
        let mut see = |entries: &[store::Entry]| {
            for entry in entries {
                if run.holds(clock.time_of(entry)) {
                    found = Some((found.map_or(at, |(first, _)| first), at + 1));
                }
                at += 1;
            }
        };
        reader.walk(from, bounds.count, &mut see)?;
        if let Some((first, next)) = found {
            self.first.get_or_insert(first);
            self.next = self.next.max(if is_open { first } else { next });
        }
        self.at = bounds.count.max(self.at);
        Ok(())
    }
}

/// While the first member of a run is awaited in a stream, the stream is looked at this often, ns.
const FOLLOW_PAUSE: i64 = 1_000_000_000;

/// How long a command waits for the mark.
const COMMAND_PATIENCE: Duration = Duration::from_secs(5);
/// How long a step of a run's own life waits: longer, it is looked at again at the next.
const STEP_PATIENCE: Duration = Duration::from_millis(500);

impl RunKeeper {
    /// Opens the stream of runs for writing.
    pub fn open(data: &Data) -> Result<Self, Fault> {
        let book = Book::open_settled(data, RUNS, Keeps::All)?;
        let runs = runs(data)?;
        let (sealing, extents) = (BTreeMap::new(), BTreeMap::new());
        Ok(Self { data: data.clone(), book, runs, pending: None, sealing, unread: None, extents, followed: i64::MIN })
    }

    /// What opening the stream of runs found: where it was cut, runs are forgotten.
    pub fn recovery(&self) -> &store::Recovery {
        self.book.writer().recovery()
    }

    /// All runs.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// What keeps a run from moving on: its step is not recorded yet, or a stream cannot be read.
    pub fn trouble(&self) -> Option<Fault> {
        let Some((run, _)) = &self.pending else { return self.unread.clone() };
        let why = self.book.writer().trouble().unwrap_or_else(|| "the disk does not answer".into());
        Some(Fault::new(format!("run `{}` waits to be recorded", run.name), why).hint("free space on the device"))
    }

    /// Runs that are not sealed.
    pub fn unsealed(&self) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(|r| r.state != State::Sealed)
    }

    /// A step at `now` would change nothing, unless all streams of an open run have ended: no run settles, and none has
    /// come to its stop.
    pub fn rests(&self, now: i64) -> bool {
        let is_begun = |run: &Run| {
            let extents = self.extents.get(&run.name);
            extents.is_some_and(|extents| extents.values().all(|extent| extent.first.is_some()))
        };
        let is_followed = (self.followed..self.followed.saturating_add(FOLLOW_PAUSE)).contains(&now);
        let rests =
            |run: &Run| run.state == State::Open && now < run.stop && (now < run.start || is_followed || is_begun(run));
        self.pending.is_none() && self.unsealed().all(rests)
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
        };
        let run = Run { streams: self.beginnings(&run, now)?, ..run };
        self.command(&run)?;
        Ok(run)
    }

    /// Ends a run: its stop is known from now on. One that is not known: now. Asked again with the same stop or none, the answer is the
    /// run as it ended. One that has not begun yet and ends now is empty.
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
                // What lies behind that, sinks have passed over already.
                return refuse("it began with an earlier stop", "omit the time to end it now");
            }
            _ => {}
        }
        let run = ending(&run, stop, reason, now);
        self.follow_to_end(&run, now);
        self.command(&run)?;
        Ok(run)
    }

    /// Ends all open runs, as far as they can be written down now. True once none is open.
    pub fn end_all(&mut self, reason: &str, now: i64) -> Result<bool, Fault> {
        while self.pending.is_none() {
            let Some(run) = self.runs.iter().find(|r| r.state == State::Open) else { return Ok(true) };
            let run = ending(run, None, reason, now);
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
        for at in 0..self.runs.len() {
            let run = self.runs[at].clone();
            self.follow(&run, now, &streams.iter().map(|stream| stream.name.as_str()).collect::<Vec<_>>());
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
        let all_ended = || !streams.is_empty() && streams.iter().all(|s| s.ended && s.marked);
        match run.state {
            State::Open if now >= run.stop => Ok(Some(ending(run, Some(run.stops()), "its stop was reached", now))),
            State::Open if all_ended() => {
                let stop = self.latest_member(run, streams)?.saturating_add(1).max(run.start + 1);
                Ok(Some(ending(run, Some(stop.into()), "its sources ended", now)))
            }
            State::Settling => {
                // Nothing comes that would belong to an empty run, however far ahead it lies.
                let until = if run.stop > run.start { run.stop.saturating_add(run.settle) } else { run.time };
                let is_settled = streams.iter().all(|s| s.ended || s.frontier >= until);
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
        Ok(Some(Run { state: State::Sealed, time: now, streams: ranges, ..run }))
    }

    /// The newest time among the members of a run that has no stop yet.
    fn latest_member(&self, run: &Run, streams: &[StreamView]) -> Result<i64, Fault> {
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
        // What retention took since is a member all the same, where a sink has seen it.
        let taken = if bounds.first > 0 && !by_arrival {
            let known = commits::last_commits(&self.data)?.remove(&run.name).unwrap_or_default();
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
        let why = self.book.writer().trouble().unwrap_or_else(|| "the disk does not answer".into());
        let hint = if is_taken {
            "free space on the device: the run is recorded as soon as there is space"
        } else {
            "free space on the device, then ask again"
        };
        let fault = Fault::new(format!("run `{}` is not recorded yet", run.name), why).hint(hint);
        Err(Fault { passes: Passes::WithRoom, ..fault })
    }

    /// Appends a step of a run and waits for the mark. False if it is not marked yet, or there is no room for it.
    fn append(&mut self, run: &Run, patience: Duration) -> Result<bool, Fault> {
        let sequence = match self.book.append(run) {
            Ok(sequence) => sequence,
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

    /// A step that is written down.
    fn adopt(&mut self, run: &Run) {
        self.pending = None;
        match self.runs.iter_mut().find(|known| known.name == run.name) {
            Some(known) => *known = run.clone(),
            None => self.runs.push(run.clone()),
        }
    }
}

/// Notes where the members of a run are in a stream, if that deletes messages.
fn follow_stream(data: &Data, run: &Run, name: &str, extents: &mut BTreeMap<String, Extent>) -> Result<(), Fault> {
    let fault = |e| stream_fault(name, e);
    let mut reader = data.reader_early(name)?;
    let (header, bounds) = (reader.header(), reader.bounds());
    if header.level == Level::Disk && bounds.first == 0 {
        return Ok(());
    }
    let uuid = header.uuid;
    if extents.get(name).is_none_or(|extent| extent.uuid != uuid) {
        let noted = run.streams.iter().find(|range| range.stream == *name && range.uuid == uuid);
        let first = match noted {
            Some(range) => range.first,
            None => reader.time_range(run.start, run.stop).map_err(fault)?.0,
        };
        extents.insert(name.to_owned(), Extent { uuid, first: None, next: first, at: first });
    }
    extents.get_mut(name).map_or(Ok(()), |extent| extent.follow(run, &mut reader).map_err(fault))
}

/// A run whose stop is known from now on, never later than was declared. None: now, and empty if it has not begun.
fn ending(run: &Run, stop: Option<Stop>, reason: &str, now: i64) -> Run {
    let stop = stop.unwrap_or_else(|| now.max(run.start).into());
    let (stop, inclusive) =
        if stop.first_outside < run.stop { (stop.first_outside, stop.inclusive) } else { (run.stop, run.inclusive) };
    Run { stop, inclusive, state: State::Settling, time: now, reason: reason.to_string(), ..run.clone() }
}
