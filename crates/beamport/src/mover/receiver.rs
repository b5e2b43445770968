//! A receiver: one thread that steps any number of sources and restarts those that fail, each alone.
//!
//! Constraints: nothing slow happens in the thread, since other sources would wait for it. A source starts in a short-lived
//! thread beside it, and the stream of a source that failed is closed in one; how many there are at once is limited. The
//! receiver waits at one place for the descriptors of all its sources and for the earliest time that one of them is due, and
//! a round costs nothing for sources that have nothing to do. Where all its sources name a pause between two wakes by
//! descriptors, the thread sleeps that long after each wake: data of many sockets are then taken in one round. A source
//! without room is due when a reader of its stream or the disk has moved on; meanwhile its descriptor is not polled,
//! because it stays readable.
//!
//! The frontier of a source advances in its steps. Where a merge or a worker reads its stream, and while a run waits to be
//! sealed, a source is stepped at least every [`PACE`], however long it would rest.
//!
//! Failure behaviour: a fault or a panic ends one source. It is built again after a pause that doubles. A source that keeps
//! a shared thread for long is reported, and goes on.

use super::poller::{Poller, Ready, raise};
use super::sources;
use super::stage::{BACK_OFF_MAX, BACK_OFF_MIN, NAP as PACE, StageHandle, What, broke, log_restart};
use crate::file::SourceSection;
use crate::limits::{STARTS_MAX, STATISTICS_BYTES, STATUS_PAUSE, STEP_MAX};
use flow::{Data, Fault, Intake, Statistics, Step};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver as Inbox, Sender, channel};
use std::time::{Duration, Instant};
use wire::Scalar;

/// Least rest of a source without room that has its thread alone: a reader that moves on wakes it.
const ROOM_PAUSE: Duration = Duration::from_micros(200);
/// How often a shared thread looks whether sources without room may have some: readers wake a writer with a word in shared
/// memory, which is no descriptor.
const ROOM_LOOK: Duration = Duration::from_millis(1);
/// Longest rest of a source, however far ahead its time is: the clock of the machine may be set.
const REST_MAX: Duration = Duration::from_secs(60);
/// The mean of step times is that of about this number of steps.
const STEPS_OF_MEAN: u32 = 8;
/// A longer step counts as one of this length: a thread that lost its processor in one step is not reported.
const STEP_COUNTED_MAX: Duration = Duration::from_millis(4);

/// Requests of the mover to all receivers.
#[derive(Clone, Default)]
pub(super) struct Asked {
    /// To end.
    pub stop: Arc<AtomicBool>,
    /// Frontiers that advance: a run waits to be sealed.
    pub frontiers: Arc<AtomicBool>,
    /// Sources that wait after their start: the positions of declared runs that begin in the past are not held yet, and
    /// history that a stream could not keep until then would be lost.
    pub waits: Arc<AtomicBool>,
    /// The same of the mirrors of a host that adopts runs: those that began while it was away are not adopted yet.
    pub mirrors_wait: Arc<AtomicBool>,
}

/// A source of a receiver.
pub(super) struct ReceiverSource {
    section: Arc<SourceSection>,
    handle: StageHandle,
    /// A merge or a worker reads its stream.
    is_read: bool,
    state: State,
    /// Its entry in `Receiver::timers`: when to look whether there is something to do, perhaps too early.
    due: Option<Instant>,
    /// Before the next start.
    pause: Duration,
}

enum State {
    /// It is started at this time.
    Down(Instant),
    /// It waits for a thread beside the receiver, or one starts it or closes its stream.
    Changing,
    /// It is stepped.
    Up(Box<Running>),
}

impl ReceiverSource {
    /// Of a section, to be started at once.
    pub(super) fn new(section: &SourceSection, handle: StageHandle, is_read: bool) -> Self {
        let state = State::Down(Instant::now());
        Self { section: Arc::new(section.clone()), handle, is_read, state, due: None, pause: BACK_OFF_MIN }
    }

    /// When there is something to do for it. `wants`: frontiers are to advance; `waits`: it is not stepped yet.
    fn next(&self, wants: bool, waits: bool) -> Option<Instant> {
        match &self.state {
            State::Down(until) => Some(*until),
            State::Changing => None,
            State::Up(_) if waits => None,
            State::Up(running) if (self.is_read || wants) && !running.intake.ended() => {
                Some(running.next.min(running.stepped + PACE))
            }
            State::Up(running) => Some(running.next),
        }
    }
}

/// A source that is stepped.
struct Running {
    intake: Intake,
    since: Instant,
    stepped: Instant,
    /// When it is due by its own word.
    next: Instant,
    /// As the source named it in its newest step.
    descriptor: Option<RawFd>,
    /// Its descriptor is in an error state.
    is_broken: bool,
    /// Mean time of a step in a shared thread.
    mean: Duration,
    /// When its status is to be read again.
    status_due: Instant,
    /// It has a status.
    has_status: bool,
    /// The numbers of its status, and whether the statistics do not have them yet.
    numbers: BTreeMap<String, (Scalar, bool)>,
}

impl Running {
    fn new(intake: Intake) -> Self {
        let now = Instant::now();
        Self {
            intake,
            since: now,
            stepped: now,
            next: now,
            descriptor: None,
            is_broken: false,
            mean: Duration::ZERO,
            status_due: now,
            has_status: false,
            numbers: BTreeMap::new(),
        }
    }

    /// `room_pause`: least rest without room. The answer is the status of the source, where it is time to publish it.
    fn step(&mut self, data: &Data, room_pause: Duration) -> Result<Option<Value>, Fault> {
        let now = data.media.now();
        let step = if self.intake.ended() { Step::Ended } else { self.intake.step(now)? };
        self.stepped = Instant::now();
        let mut rest = match step {
            Step::Again => Duration::ZERO,
            Step::At(when) => nanoseconds(when.saturating_sub(now)).min(REST_MAX),
            Step::Ended => REST_MAX,
        };
        if let Some(most) = self.intake.rest_max() {
            rest = rest.min(nanoseconds(most));
        }
        if self.intake.is_blocked() {
            rest = rest.clamp(room_pause, PACE);
        } else if self.is_broken {
            rest = rest.min(PACE);
        }
        let status = (self.stepped >= self.status_due).then(|| self.intake.status());
        if let Some(status) = &status {
            (self.status_due, self.has_status) = (self.stepped + STATUS_PAUSE, !status.is_null());
            self.note_numbers(status);
        } else if self.has_status {
            // Or what this step has changed would not be seen before the source has more to do.
            rest = rest.min(self.status_due - self.stepped);
        }
        self.next = self.stepped + rest;
        Ok(status)
    }

    /// Answers what the source is asked.
    fn answer(&mut self, handle: &StageHandle) {
        while let Some(order) = handle.next_order() {
            if let What::Ask(request) = order.what {
                // Nobody may wait for it any more.
                let _ = order.answer.send(self.intake.command(&request));
            }
        }
    }

    /// The descriptor that wakes it until its next step.
    fn armed(&mut self) -> Option<RawFd> {
        // One in an error state would be ready again at once.
        let is_left_out = self.intake.is_blocked() || self.intake.ended() || std::mem::take(&mut self.is_broken);
        self.intake.descriptor().filter(|_| !is_left_out)
    }

    /// Notes the numbers of a status that have changed.
    fn note_numbers(&mut self, status: &Value) {
        for (name, value) in status.as_object().into_iter().flatten() {
            let number = value.as_i64().map(Scalar::Int64).or_else(|| value.as_f64().map(Scalar::Float64));
            let Some(number) = number else { continue };
            if self.numbers.get(name).is_none_or(|(known, _)| *known != number) {
                self.numbers.insert(name.clone(), (number, true));
            }
        }
    }

    fn note_time(&mut self, took: Duration) {
        self.mean = (self.mean * (STEPS_OF_MEAN - 1) + took.min(STEP_COUNTED_MAX)) / STEPS_OF_MEAN;
    }
}

/// The result of a thread beside the receiver, for the source of this place.
struct Done {
    at: usize,
    /// The started intake; none where the thread closed a stream.
    started: Option<Result<Intake, Fault>>,
}

/// The thread of a receiver.
pub(super) struct Receiver {
    data: Data,
    sources: Vec<ReceiverSource>,
    asked: Asked,
    /// Frontiers are to advance, as far as the timers know.
    wants: bool,
    /// Sources are not stepped yet, as far as the timers know.
    waits: bool,
    /// When there may be something to do for which source.
    timers: BTreeSet<(Instant, usize)>,
    /// Sources without room.
    blocked: BTreeSet<usize>,
    /// Sources for which there is something to do now.
    ready: Vec<usize>,
    /// Sources to be started once there is a thread for them.
    queue: VecDeque<usize>,
    poller: Poller,
    /// Least time between two wakes by descriptors, and when the last one was.
    pause: Duration,
    woken: Instant,
    /// Raised to make the thread look around.
    wake: Arc<File>,
    done: (Sender<Done>, Inbox<Done>),
    /// Threads beside it.
    beside: usize,
    /// The stream of its statistics, if it is shared, and when it is written again.
    statistics: Option<(Statistics, Instant)>,
}

impl Receiver {
    /// Of these sources; `wake` is an eventfd.
    pub(super) fn new(
        data: &Data,
        sources: Vec<ReceiverSource>,
        asked: Asked,
        wake: &Arc<File>,
    ) -> std::io::Result<Self> {
        // One that has a name may be shared.
        let name = sources.first().and_then(|source| source.section.receiver.as_deref());
        let statistics = name.map(|name| (Statistics::new(name, STATISTICS_BYTES), Instant::now() + STATUS_PAUSE));
        Ok(Self {
            statistics,
            data: data.clone(),
            sources,
            asked,
            wants: false,
            waits: false,
            timers: BTreeSet::new(),
            blocked: BTreeSet::new(),
            ready: Vec::new(),
            queue: VecDeque::new(),
            poller: Poller::new(wake)?,
            pause: Duration::ZERO,
            woken: Instant::now(),
            wake: wake.clone(),
            done: channel(),
            beside: 0,
        })
    }

    /// Runs until it is asked to stop; the streams are closed then.
    pub(super) fn run(mut self) {
        (0..self.sources.len()).for_each(|at| self.schedule(at));
        let (mut ready, mut polled) = (Vec::new(), Vec::new());
        while !self.asked.stop.load(Ordering::Relaxed) {
            while let Ok(done) = self.done.1.try_recv() {
                self.take(done);
            }
            let known = (self.wants, self.waits);
            (self.wants, self.waits) =
                (self.asked.frontiers.load(Ordering::Relaxed), self.asked.waits.load(Ordering::Relaxed));
            if (self.wants, self.waits) != known {
                (0..self.sources.len()).for_each(|at| self.schedule(at));
            }
            self.take_due();
            std::mem::swap(&mut ready, &mut self.ready);
            for at in ready.drain(..) {
                match &mut self.sources[at].state {
                    State::Down(_) => {
                        self.sources[at].state = State::Changing;
                        self.queue.push_back(at);
                    }
                    // Its descriptor may not be reported again.
                    State::Up(running) if self.waits => running.next = running.stepped,
                    State::Up(_) => self.step(at),
                    State::Changing => {}
                }
            }
            self.start_queued();
            self.publish_statistics();
            self.wait(&mut polled);
        }
        self.end();
    }

    /// Puts a source at its place among the timers, if it is not due before: a source that steps often has one change
    /// for many steps.
    fn schedule(&mut self, at: usize) {
        let source = &mut self.sources[at];
        let Some(next) = source.next(self.wants, self.waits) else { return };
        if source.due.is_none_or(|due| next < due) {
            if let Some(due) = source.due.replace(next) {
                self.timers.remove(&(due, at));
            }
            self.timers.insert((next, at));
        }
    }

    /// Adds the sources whose time has come to those that are ready, each once.
    fn take_due(&mut self) {
        let now = Instant::now();
        while let Some((_, at)) = self.timers.first().copied().filter(|(due, _)| *due <= now) {
            self.timers.pop_first();
            let source = &mut self.sources[at];
            source.due = None;
            match source.next(self.wants, self.waits) {
                Some(next) if next <= now => self.ready.push(at),
                _ => self.schedule(at),
            }
        }
        self.ready.sort_unstable();
        self.ready.dedup();
    }

    /// Takes what a thread beside has done.
    fn take(&mut self, Done { at, started }: Done) {
        self.beside -= 1;
        let source = &mut self.sources[at];
        match started {
            Some(Ok(intake)) => {
                source.handle.publish_view((&intake).into());
                source.state = State::Up(Box::new(Running::new(intake)));
                self.schedule(at);
                let pauses = self.sources.iter().filter_map(|source| match &source.state {
                    State::Up(running) => Some(running.intake.pause()),
                    State::Down(_) | State::Changing => None,
                });
                self.pause = pauses.min().unwrap_or_default();
            }
            Some(Err(fault)) => {
                source.handle.fail(fault);
                self.rest(at);
            }
            None => self.rest(at),
        }
    }

    /// The source is started again after a pause, which doubles.
    fn rest(&mut self, at: usize) {
        let source = &mut self.sources[at];
        source.state = State::Down(Instant::now() + source.pause);
        log_restart("source", &source.section.name, source.pause);
        source.pause = (source.pause * 2).min(BACK_OFF_MAX);
        self.schedule(at);
    }

    /// Publishes the numbers of the sources that have changed, once a second.
    fn publish_statistics(&mut self) {
        let now = Instant::now();
        let Some((statistics, due)) = self.statistics.as_mut().filter(|(_, due)| *due <= now) else { return };
        let numbers = self.sources.iter().flat_map(|source| {
            let running = if let State::Up(running) = &source.state { Some(running) } else { None };
            let numbers = running.into_iter().flat_map(|running| &running.numbers);
            let news = numbers.filter(|(_, (_, is_new))| *is_new);
            news.map(|(name, (value, _))| (&*source.section.name, &**name, *value))
        });
        let pushed = statistics.push(&self.data, self.data.media.now(), numbers);
        if matches!(pushed, Ok(false)) {
            return;
        }
        *due = now + STATUS_PAUSE;
        for source in &mut self.sources {
            if let State::Up(running) = &mut source.state {
                running.numbers.values_mut().for_each(|(_, is_new)| *is_new = false);
            }
        }
        if let Err(fault) = pushed {
            tracing::warn!("no more statistics of a receiver: {fault}");
            self.statistics = None;
        }
    }

    fn start_queued(&mut self) {
        while self.beside < STARTS_MAX
            && let Some(at) = self.queue.pop_front()
        {
            let (data, section) = (self.data.clone(), self.sources[at].section.clone());
            self.change(at, move || Some(sources::open(&data, &section)));
        }
    }

    /// Does something slow for a source in a thread beside.
    fn change(&mut self, at: usize, work: impl FnOnce() -> Option<Result<Intake, Fault>> + Send + 'static) {
        let (sender, wake) = (self.done.0.clone(), self.wake.clone());
        let section = self.sources[at].section.clone();
        let thread = std::thread::Builder::new().name(format!("start {}", section.name));
        let spawned = thread.spawn(move || {
            let started = catch_unwind(AssertUnwindSafe(work));
            let started = started.unwrap_or_else(|panic| Some(Err(broke("source", &section.name, &*panic))));
            // The receiver waits for it, also at its end.
            let _ = sender.send(Done { at, started });
            raise(&wake);
        });
        match spawned {
            Ok(_) => {
                self.sources[at].state = State::Changing;
                self.beside += 1;
            }
            Err(e) => {
                let source = &self.sources[at];
                source.handle.fail(Fault::new(format!("cannot start source `{}`", source.section.name), e));
                self.rest(at);
            }
        }
    }

    fn step(&mut self, at: usize) {
        let is_shared = self.sources.len() > 1;
        let room_pause = if is_shared { ROOM_LOOK } else { ROOM_PAUSE };
        let source = &mut self.sources[at];
        let State::Up(running) = &mut source.state else { return };
        let begun = Instant::now();
        let (data, handle) = (&self.data, &source.handle);
        let result = catch_unwind(AssertUnwindSafe(|| {
            running.answer(handle);
            if let Some(status) = running.step(data, room_pause)? {
                handle.publish_status(status);
                handle.set_silent(running.intake.absent());
            }
            if is_shared {
                running.note_time(running.stepped.saturating_duration_since(begun));
            }
            handle.update_view(|view| running.intake.show(view));
            let long = || (running.mean > STEP_MAX).then(|| delays(&source.section, running.mean));
            handle.set_fault(running.intake.trouble().or_else(long));
            Ok(running.armed())
        }));
        let fault = match result {
            Ok(Ok(descriptor)) => return self.stepped(at, descriptor),
            Ok(Err(fault)) => fault,
            Err(panic) => broke("source", &source.section.name, &*panic),
        };
        handle.fail(fault);
        if running.since.elapsed() > BACK_OFF_MAX {
            source.pause = BACK_OFF_MIN;
        }
        if let Some(known) = running.descriptor.take() {
            self.poller.remove(known);
        }
        self.blocked.remove(&at);
        if let State::Up(failed) = std::mem::replace(&mut source.state, State::Changing) {
            self.schedule(at);
            self.change(at, move || {
                drop(failed);
                None
            });
        }
    }

    /// Sees to it that a source is woken after a step: by its descriptor, by room, by its time.
    fn stepped(&mut self, at: usize, descriptor: Option<RawFd>) {
        let State::Up(running) = &mut self.sources[at].state else { return };
        match running.intake.is_blocked() {
            true => self.blocked.insert(at),
            false => self.blocked.remove(&at),
        };
        let known = running.descriptor.filter(|known| Some(*known) != descriptor);
        if let Some(known) = known {
            self.poller.remove(known);
        }
        // One that is kept is in the set already.
        let is_kept = !running.intake.pause().is_zero();
        if let Some(descriptor) = descriptor.filter(|_| !is_kept || running.descriptor != descriptor) {
            self.poller.arm(at, descriptor, is_kept);
        }
        running.descriptor = descriptor;
        self.schedule(at);
    }

    /// Waits until there is something to do for a source, or somebody raises `wake`.
    fn wait(&mut self, polled: &mut Vec<Ready>) {
        let now = Instant::now();
        let mut left = self.timers.first().map(|(due, _)| due.saturating_duration_since(now));
        if let [ReceiverSource { state: State::Up(running), .. }] = self.sources.as_slice() {
            if running.intake.is_blocked() {
                running.intake.wait_room(left.unwrap_or(ROOM_PAUSE));
                return self.ready.push(0);
            }
            if left == Some(Duration::ZERO) {
                return;
            }
        }
        if !self.blocked.is_empty() {
            left = Some(left.map_or(ROOM_LOOK, |left| left.min(ROOM_LOOK)));
        }
        let pause = self.pause.saturating_sub(now.saturating_duration_since(self.woken));
        let pause = left.map_or(pause, |left| pause.min(left));
        if !pause.is_zero() {
            std::thread::sleep(pause);
            left = left.map(|left| left.saturating_sub(pause));
        }
        if self.poller.wait(left, polled) {
            let asked = self.sources.iter().enumerate().filter(|(_, source)| source.handle.has_orders());
            self.ready.extend(asked.filter(|(_, source)| matches!(source.state, State::Up(_))).map(|(at, _)| at));
        }
        if !polled.is_empty() {
            self.woken = Instant::now();
        }
        for Ready { at, is_broken } in polled.drain(..) {
            if let State::Up(running) = &mut self.sources[at].state {
                running.is_broken = is_broken;
                self.ready.push(at);
            }
        }
        for at in &self.blocked {
            if matches!(&self.sources[*at].state, State::Up(running) if running.intake.may_have_room()) {
                self.ready.push(*at);
            }
        }
    }

    /// Commits what sources keep, and closes their streams.
    fn end(mut self) {
        let now = self.data.media.now();
        for source in self.sources.drain(..) {
            if let State::Up(mut running) = source.state {
                source.handle.set_silent(running.intake.absent());
                let stopped = catch_unwind(AssertUnwindSafe(|| running.intake.stop(now)));
                let stopped = stopped.unwrap_or_else(|panic| Err(broke("source", &source.section.name, &*panic)));
                if let Err(fault) = stopped {
                    source.handle.fail(fault);
                }
            }
        }
        while self.beside > 0 && self.done.1.recv().is_ok() {
            self.beside -= 1;
        }
    }
}

fn nanoseconds(count: i64) -> Duration {
    Duration::from_nanos(u64::try_from(count).unwrap_or(0))
}

fn delays(section: &SourceSection, mean: Duration) -> Fault {
    let receiver = section.receiver.as_ref().map(|receiver| receiver.value.as_str()).unwrap_or_default();
    let what = format!("source `{}` delays the others of receiver `{receiver}`", section.name);
    let cause = format!("its steps take {:.1} ms or more; the limit is 1 ms", mean.as_secs_f64() * 1e3);
    Fault::new(what, cause).hint("give it a `receiver` of its own")
}
