//! Sources: stages that bring messages from outside into a stream.
//!
//! A source owns no thread, no clock and no stream: a runner calls `step` with the time and an outlet. A step never
//! blocks and does at most about 10 ms of work, because other sources may share its thread.

use crate::records::{ABSENT, Input, THROTTLED};
use crate::{Fault, OriginAccounts, Pushed, Resume};
use serde_json::Value;
use std::ops::RangeInclusive;
use std::os::fd::RawFd;
use std::time::Duration;
use store::{Meta, Mirrored};

/// When a source wants to be called again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// At once: more is due already.
    Again,
    /// Not before this time, ns since 1970 UTC.
    At(i64),
    /// Never: the source has come to its end.
    Ended,
}

/// Why messages of some interval may be missing without a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// The source had no contact.
    Absent,
    /// The sender sent less than it had.
    Throttled,
}

impl Silence {
    /// The reason of its gap.
    pub fn word(self) -> &'static str {
        match self {
            Self::Absent => ABSENT,
            Self::Throttled => THROTTLED,
        }
    }
}

/// Where a source puts its messages. Everything pushed in one step becomes visible at its end, at once.
///
/// Numbers of an origin may be late by up to 4,096. A number further behind begins another life of the origin,
/// `NAME#2`, `NAME#3`: its device has restarted its numbers. The source still uses the row of `NAME`.
pub trait Outlet: OriginAccounts {
    /// Offers one message. The payload is copied into stream memory.
    fn push(&mut self, meta: &Meta, payload: &[u8]) -> Result<Pushed, Fault> {
        self.push_parts(meta, &[payload])
    }
    /// Offers one message whose checksum (CRC-32C) the source has compared with these bytes: it is not computed again.
    fn push_checked(&mut self, meta: &Meta, payload: &[u8], crc: u32) -> Result<Pushed, Fault> {
        let _ = crc;
        self.push(meta, payload)
    }
    /// Offers one message whose payload lies in parts, which are copied into stream memory one behind the other.
    fn push_parts(&mut self, meta: &Meta, parts: &[&[u8]]) -> Result<Pushed, Fault>;
    /// Offers one message of a stream of another host, which keeps its numbers, times and flags: a mirror appends it as
    /// it is. `mirrored.meta.origin` is a row of this stream.
    fn push_mirrored(&mut self, mirrored: &Mirrored, payload: &[u8]) -> Result<Pushed, Fault> {
        self.push_checked(&mirrored.meta, payload, mirrored.crc)
    }
    /// The sequence of the next message in the stream, as [`Source::safe`] counts.
    fn next_sequence(&self) -> u64;
    /// Whether all that was pushed and named as missing is as safe as the level of the stream promises. False in a step
    /// that has done so.
    fn is_settled(&self) -> bool {
        true
    }
    /// Counts messages of the near stream that a mirror lacks, by their sequences there, with the reason. Each call
    /// counts: see [`Outlet::is_settled`].
    fn missing_near(&mut self, sequences: RangeInclusive<u64>, reason: &str) {
        let _ = (sequences, reason);
    }
    /// Records an interval without full contact, ns since 1970 UTC. It counts no message.
    fn silent(&mut self, times: RangeInclusive<i64>, why: Silence);
    /// Keeps something that came from outside and is no message, with the reason (one word) and a text, in
    /// `NAME.aside`: a few of each reason, so that people find the cause. `time` in ns since 1970 UTC. Without room it
    /// is not kept, and an outlet without such a stream keeps none.
    fn aside(&mut self, reason: &str, text: &str, time: i64, bytes: &[u8]) {
        let _ = (reason, text, time, bytes);
    }
    /// How full stream memory is, 0 to 1: of a disk stream with what is not on the disk yet, of a memory stream with
    /// what the slowest counted reader has not read.
    fn fill(&self) -> f64;
}

/// Brings messages from outside into one stream.
pub trait Source: Send {
    /// Called once before the first step. `now` in ns since 1970 UTC. It may block for some seconds: no other source
    /// waits for it.
    fn start(&mut self, now: i64, resume: &Resume) -> Result<(), Fault>;
    /// Pushes the messages due at `now` (ns since 1970 UTC) and returns when to call again. Sources may share a thread
    /// (the key `receiver`), so a step never blocks and does a bounded amount of work: about 10 ms where the source has
    /// a thread of its own, at most 1 ms where it shares one. The runner measures shared steps and reports a source
    /// that takes longer. It may call again before the returned time.
    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault>;
    /// Called once behind the last step, where the source is ended in order: it puts into the account what it has
    /// waited with. It pushes no message and does not block.
    fn stop(&mut self, now: i64, out: &mut dyn Outlet) -> Result<(), Fault> {
        let _ = (now, out);
        Ok(())
    }
    /// The source time up to which all messages have been pushed, after a step at `now` that left nothing waiting.
    /// For a live source that is `now`; a replay returns how far it has come.
    fn frontier(&self, now: i64) -> i64 {
        now
    }
    /// The same after a step that left something waiting, where the outside says how far it has been read: a run in the
    /// past is sealed while the source still reads what came after it.
    fn reached(&self) -> i64 {
        i64::MIN
    }
    /// The text from which the source resumes after a restart: offsets, a cursor. The runner asks at the end of a step,
    /// at most once a second, and commits a changed state: see [`Resume::state`].
    fn state(&self) -> String {
        String::new()
    }
    /// The accounts of streams of other hosts that it makes its messages of, as commits of a worker have them: its
    /// messages entered the instrument there. Asked for with [`Source::state`], which they agree with.
    fn inputs(&self) -> Vec<Input> {
        Vec::new()
    }
    /// Whether its messages aside are those of a worker, of which as many are kept as of a worker on this host: input
    /// from outside may be anything, and little of it is kept.
    fn sets_aside_for_worker(&self) -> bool {
        false
    }
    /// Whether it needs [`Resume::tail`]: it reads again from its state on, and the numbers of its messages do not say
    /// which of them the stream has. Asked before the start.
    fn needs_tail(&self) -> bool {
        false
    }
    /// Messages below this number of the stream are as safe as its level promises: the source may acknowledge
    /// them to the sender. Called after a step in which the number has risen.
    fn safe(&mut self, below: u64) -> Result<(), Fault> {
        let _ = below;
        Ok(())
    }
    /// Whether the sender sends while the source is away, so that an interval without the source is a gap `absent`.
    fn misses(&self) -> bool {
        true
    }
    /// The present error of a source that keeps trying.
    fn trouble(&self) -> Option<Fault> {
        None
    }
    /// What it was to read and has had nothing of since it started: the account of the program is not closed then.
    fn absent(&self) -> Option<Fault> {
        None
    }
    /// Answers a request of a program; the source defines the form of both. Called between two steps, so it never
    /// blocks.
    fn command(&mut self, request: &Value) -> Result<Value, Fault> {
        let _ = request;
        Err(Fault::new("it takes no requests", "its kind has none"))
    }
    /// Figures for people and programs: a flat JSON object, or null. Read after a step, at most
    /// once a second.
    fn status(&self) -> Value {
        Value::Null
    }
    /// A descriptor that becomes readable when there is something to do: the runner waits for it and for the time that
    /// the step has named, whichever comes first. A library with threads of its own writes to an eventfd.
    fn descriptor(&self) -> Option<RawFd> {
        None
    }
    /// Least time between two wakes by descriptors, so that what comes meanwhile is taken at once; of the sources of
    /// one thread the shortest. With any but 0, the descriptor stays open until the source is dropped, and a step takes
    /// all that there is or returns [`Step::Again`]: the runner is not told again of what is left.
    fn pause(&self) -> Duration {
        Duration::ZERO
    }
}
