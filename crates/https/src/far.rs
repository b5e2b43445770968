//! The far side: takes the blocks of a stream of another host and fills a mirror with their messages, as [`Unpacker`]
//! says.
//!
//! A task follows the stream and opens the connection again when it ends; another one sends the position. Blocks that
//! have come wait in memory up to a bound; then the task reads no more, and the window of TCP closes.
//!
//! The position that is sent has messages before it that are as safe as the level of the mirror promises. The frontier
//! is that of the near stream, which blocks carry: never the clock.
//!
//! Failure behaviour: a host that does not answer, or of which nothing comes, is the trouble of the source.

use crate::client::{Ask, Connection, Peer};
use crate::framing::Position;
use crate::lane::Wake;
use crate::limits::{
    ANSWER_PATIENCE, ARRIVED_BLOCKS, ARRIVED_BYTES, FULL_REST, POSITION_PAUSE, POSITION_REST, REST, RETRY_MAX,
    RETRY_MIN, STEP_BYTES, UNSAFE_MAX,
};
use crate::link::Link;
use flow::edge::Mirror;
use flow::limits::AWAY_PATIENCE;
use flow::mirror::{MirrorRequest, Place, Unpacker};
use flow::{Fault, Outlet, Pushed, Resume, Silence, Source, Step};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use store::Block;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{sleep, sleep_until};

/// The plan of the source.
#[derive(Clone, Debug)]
pub(crate) struct FarPlan {
    pub(crate) mirror: Mirror,
    pub(crate) instrument: String,
    pub(crate) link: Arc<Link>,
}

/// The source.
pub(crate) struct Far {
    plan: FarPlan,
    open: Option<Open>,
    kept: String,
}

impl Far {
    pub(crate) fn new(plan: FarPlan) -> Self {
        Self { plan, open: None, kept: String::new() }
    }
}

impl Source for Far {
    fn start(&mut self, now: i64, resume: &Resume) -> Result<(), Fault> {
        self.kept.clone_from(&resume.state);
        self.open = Some(Open::start(&self.plan, now, resume)?);
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        self.open.as_mut().map_or(Ok(Step::Ended), |open| open.step(now, out))
    }

    fn frontier(&self, _now: i64) -> i64 {
        self.reached()
    }

    fn reached(&self) -> i64 {
        self.open.as_ref().map_or(i64::MIN, |open| open.frontier)
    }

    fn state(&self) -> String {
        self.open.as_ref().map_or_else(|| self.kept.clone(), Open::state)
    }

    fn safe(&mut self, below: u64) -> Result<(), Fault> {
        if let Some(open) = &mut self.open {
            open.safe = below;
            open.report();
        }
        Ok(())
    }

    /// As [`flow::edge::CarrierPlan::far`] says.
    fn command(&mut self, request: &Value) -> Result<Value, Fault> {
        match (MirrorRequest::read(request)?, &mut self.open) {
            (MirrorRequest::IsAtEnd, open) => Ok(open.as_ref().is_some_and(|open| open.was_at_end).into()),
            (MirrorRequest::Absent(until), open) => {
                if let Some(open) = open {
                    open.absent = Some(until);
                }
                Ok(Value::Null)
            }
        }
    }

    /// Messages that the near stream gets meanwhile stay there.
    fn misses(&self) -> bool {
        false
    }

    fn trouble(&self) -> Option<Fault> {
        self.open.as_ref()?.trouble.clone()
    }

    fn status(&self) -> Value {
        self.open.as_ref().map_or(Value::Null, Open::status)
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.open.as_ref().map(|open| open.wake.descriptor())
    }
}

/// A block, and its part of the memory that blocks may have.
struct Arrived {
    block: Vec<u8>,
    _room: OwnedSemaphorePermit,
}

/// The errors of the two tasks.
#[derive(Default)]
struct Troubles {
    stream: Mutex<Option<Fault>>,
    position: Mutex<Option<Fault>>,
}

fn set(place: &Mutex<Option<Fault>>, fault: Option<Fault>) {
    *place.lock().unwrap_or_else(PoisonError::into_inner) = fault;
}

fn get(place: &Mutex<Option<Fault>>) -> Option<Fault> {
    place.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// A position that is to be sent, and the frontier there.
type Report = Option<(Position, i64)>;

/// State after a start.
struct Open {
    plan: FarPlan,
    wake: Arc<Wake>,
    blocks: mpsc::Receiver<Arrived>,
    /// The block that is taken now.
    present: Option<Arrived>,
    /// Its number, for its faults.
    number: u64,
    troubles: Arc<Troubles>,
    unpacker: Unpacker,
    was_at_end: bool,
    frontier: i64,
    /// Up to this time runs are sealed without the near host, ns since 1970 UTC.
    absent: Option<i64>,
    /// When the newest block came, ns since 1970 UTC.
    heard: i64,
    /// Positions whose messages are not safe yet, with the end of the mirror then.
    not_safe: VecDeque<(u64, Position)>,
    /// Messages of the mirror below are safe.
    safe: u64,
    reached: Option<Position>,
    reports: watch::Sender<Report>,
    trouble: Option<Fault>,
    tasks: [AbortHandle; 2],
}

impl Drop for Open {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Open {
    fn start(plan: &FarPlan, now: i64, resume: &Resume) -> Result<Self, Fault> {
        let FarPlan { mirror, instrument, link } = plan;
        let wake = Wake::new().map_err(|e| Fault::io(format!("source `{}` cannot start", mirror.name), &e))?;
        let (wake, handle, peer) = (Arc::new(wake), link.handle()?, link.peer(&mirror.host, instrument)?);
        let place = Place::read(&resume.state)?;
        let unpacker = Unpacker::new(resume, place.as_ref());
        let (sender, blocks) = mpsc::channel(ARRIVED_BLOCKS);
        let (reports, reported) = watch::channel(None);
        let troubles = Arc::new(Troubles::default());
        let room = Arc::new(Semaphore::new(ARRIVED_BYTES));
        let from = unpacker.newest().map(|newest| Position::behind(&newest));
        let follower = Follower { peer: peer.clone(), stream: mirror.stream.clone(), wake: wake.clone(), sender, room };
        let following = handle.spawn(follower.work(from, troubles.clone()));
        let reporting = handle.spawn(report(peer, mirror.stream.clone(), reported, troubles.clone()));
        Ok(Self {
            plan: plan.clone(),
            wake,
            blocks,
            present: None,
            number: 0,
            troubles,
            unpacker,
            was_at_end: false,
            frontier: i64::MIN,
            absent: None,
            heard: now,
            not_safe: VecDeque::new(),
            safe: 0,
            reached: None,
            reports,
            trouble: None,
            tasks: [following.abort_handle(), reporting.abort_handle()],
        })
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        self.wake.drain();
        let step = self.receive(now, out)?;
        self.report();
        // After what is there.
        if let Some(until) = self.absent.take().filter(|until| *until > self.frontier) {
            out.silent(self.frontier..=until, Silence::Absent);
            self.frontier = until;
        }
        let is_silent = now.saturating_sub(self.heard) > AWAY_PATIENCE;
        let away = || is_silent.then(|| self.away(now));
        self.trouble = get(&self.troubles.stream).or_else(|| get(&self.troubles.position)).or_else(away);
        Ok(step)
    }

    /// Nothing comes of the near host.
    fn away(&self, now: i64) -> Fault {
        let (mirror, seconds) = (&self.plan.mirror, now.saturating_sub(self.heard) / 1_000_000_000);
        let what =
            format!("nothing of stream `{}` has come from host `{}` for {seconds} s", mirror.stream, mirror.host);
        Fault::new(what, "")
            .hint(format!("see `beamport hosts FILE` whether host `{}` is up; the mirror waits", mirror.host))
    }

    /// Appends the blocks that have come.
    fn receive(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        let mut bytes = 0;
        loop {
            let Some(arrived) = self.present.take().or_else(|| self.blocks.try_recv().ok()) else {
                return Ok(Step::At(now + REST));
            };
            self.heard = now;
            let block = &arrived.block;
            if self.unpacker.append_record(block, self.number, &self.plan.mirror, now, out)? == Pushed::Full {
                self.present = Some(arrived);
                return Ok(Step::At(now + FULL_REST));
            }
            bytes += block.len();
            if let Ok(Block { head, .. }) = Block::read(block) {
                self.was_at_end |= head.count == 0;
                let position = Position { uuid: head.uuid, epoch: head.epoch, next: head.next() };
                self.keep_until_safe(out.next_sequence(), position);
            }
            self.frontier = self.frontier.max(self.unpacker.frontier());
            self.number += 1;
            if bytes > STEP_BYTES {
                return Ok(Step::Again);
            }
        }
    }

    /// Keeps a position of the near stream until the mirror is safe up to `end`.
    fn keep_until_safe(&mut self, end: u64, position: Position) {
        let is_full = self.not_safe.len() >= UNSAFE_MAX;
        match self.not_safe.back_mut() {
            Some(last) if last.0 == end || is_full => *last = (end, position),
            _ => self.not_safe.push_back((end, position)),
        }
    }

    /// Has the position sent whose messages are safe.
    fn report(&mut self) {
        while let Some((_, position)) = self.not_safe.front().copied().filter(|(end, _)| *end <= self.safe) {
            self.not_safe.pop_front();
            self.reached = Some(position);
        }
        let report = self.reached.map(|position| (position, self.frontier));
        self.reports.send_if_modified(|known| std::mem::replace(known, report) != report);
    }

    fn state(&self) -> String {
        Place { id: String::new(), offset: 0, kept: self.unpacker.kept() }.text()
    }

    fn status(&self) -> Value {
        let (messages, missing) = self.unpacker.counts();
        json!({"host": self.plan.mirror.host, "messages": messages, "missing": missing})
    }
}

/// The task that follows a stream.
struct Follower {
    peer: Peer,
    stream: String,
    wake: Arc<Wake>,
    sender: mpsc::Sender<Arrived>,
    room: Arc<Semaphore>,
}

impl Follower {
    async fn work(self, from: Option<Position>, troubles: Arc<Troubles>) {
        let at = Mutex::new(from);
        let mut pause = RETRY_MIN;
        loop {
            let (began, now) = (Instant::now(), *at.lock().unwrap_or_else(PoisonError::into_inner));
            let followed = self.peer.follow(&self.stream, now, |block| self.receive(block, &at, &troubles)).await;
            // Connections that lasted have ended for another reason than those before.
            if began.elapsed() > RETRY_MAX {
                pause = RETRY_MIN;
            }
            set(&troubles.stream, followed.err());
            self.wake.raise();
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    async fn receive(&self, block: Vec<u8>, at: &Mutex<Option<Position>>, troubles: &Troubles) {
        let head = Block::read(&block).ok().map(|block| block.head);
        let permits = u32::try_from(block.len().min(ARRIVED_BYTES)).unwrap_or(u32::MAX);
        let Ok(room) = self.room.clone().acquire_many_owned(permits).await else { return };
        if self.sender.send(Arrived { block, _room: room }).await.is_err() {
            return;
        }
        if let Some(head) = head {
            let position = Position { uuid: head.uuid, epoch: head.epoch, next: head.next() };
            *at.lock().unwrap_or_else(PoisonError::into_inner) = Some(position);
        }
        set(&troubles.stream, None);
        self.wake.raise();
    }
}

/// The task that sends positions: a new one soon, and the present one again and again.
async fn report(peer: Peer, stream: String, mut reports: watch::Receiver<Report>, troubles: Arc<Troubles>) {
    let (mut connection, mut sent, mut at) = (None, None::<Position>, Instant::now());
    loop {
        let report = *reports.borrow_and_update();
        let Some((position, frontier)) = report else {
            if reports.changed().await.is_err() {
                return;
            }
            continue;
        };
        let pause = if sent == Some(position) { POSITION_REST } else { POSITION_PAUSE };
        let due = at + pause;
        if Instant::now() < due {
            tokio::select! {
                changed = reports.changed() => if changed.is_err() { return },
                () = sleep_until(due.into()) => {}
            }
            continue;
        }
        let done = put(&peer, &mut connection, &stream, position, frontier).await;
        at = Instant::now();
        match done {
            Ok(()) => sent = Some(position),
            Err(_) => {
                connection = None;
                sleep(RETRY_MIN * 5).await;
            }
        }
        set(&troubles.position, done.err());
    }
}

async fn put(
    peer: &Peer,
    connection: &mut Option<Connection>,
    stream: &str,
    position: Position,
    frontier: i64,
) -> Result<(), Fault> {
    let open = match connection.take() {
        Some(open) => open,
        None => peer.connect().await?,
    };
    let open = connection.insert(open);
    let body = format!("{} {frontier}", position.text()).into();
    let ask = Ask { method: Method::PUT, path: format!("/streams/{stream}/position"), body };
    let response = peer.ask(open, ask, ANSWER_PATIENCE).await?;
    match peer.whole(response).await? {
        (status, _) if status.is_success() => Ok(()),
        // The near host has started again, or has another stream: the next block brings a position that it knows.
        (StatusCode::CONFLICT | StatusCode::NOT_FOUND, _) => Ok(()),
        (status, value) => Err(peer.refused(status, &value)),
    }
}
