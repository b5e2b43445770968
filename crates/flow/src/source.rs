//! Sources: what brings messages from outside into a stream.
//!
//! A source owns no thread, no clock and no stream: a runner calls `step` with the time and an outlet.

use crate::Fault;
use store::Meta;

/// Where a source stands when it starts: what its stream already holds of each origin, so that numbers go on without a gap after a restart.
#[derive(Clone, Debug, Default)]
pub struct Resume {
    /// Origins that the stream knows.
    pub origins: Vec<ResumeOrigin>,
}

/// One origin of a stream at a restart.
#[derive(Clone, Debug)]
pub struct ResumeOrigin {
    /// Its name.
    pub name: String,
    /// The number its next message should have: one past the highest in the stream or in a recorded gap.
    pub next_seq: u64,
    /// The source time of its newest message, ns since 1970 UTC.
    pub last_time: i64,
}

impl Resume {
    /// The number that the next message of `name` should have; 0 for an origin never seen.
    pub fn next_seq(&self, name: &str) -> u64 {
        self.origins.iter().find(|o| o.name == name).map_or(0, |o| o.next_seq)
    }
}

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

/// What `Outlet::push` did with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Pushed {
    /// It is in the stream, or counted as lost by the stream's declared policy: go on with the next.
    Taken,
    /// No room (`when_full = "wait"`): return `Step::At(now)` soon and offer the same message again.
    Full,
}

/// Where a source puts its messages. Everything pushed in one step becomes visible at its end, at once.
pub trait Outlet {
    /// The row of an origin in the stream's origin table, made on first use.
    fn origin(&mut self, name: &str) -> Result<u32, Fault>;
    /// Offers one message. The payload is copied into stream memory.
    fn push(&mut self, meta: &Meta, payload: &[u8]) -> Result<Pushed, Fault> {
        self.push_parts(meta, &[payload])
    }
    /// Offers one message whose payload lies in parts, which are copied into stream memory one behind the other.
    fn push_parts(&mut self, meta: &Meta, parts: &[&[u8]]) -> Result<Pushed, Fault>;
}

/// Brings messages from outside into one stream.
pub trait Source: Send {
    /// Called once before the first step. `now` in ns since 1970 UTC.
    fn start(&mut self, now: i64, resume: &Resume) -> Result<(), Fault>;
    /// Pushes what is due at `now` (ns since 1970 UTC), a bounded amount of work (about 10 ms), and says when to call again.
    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault>;
    /// The source time up to which everything has been brought, after a step at `now` that left nothing waiting.
    /// For what happens now that is `now`; a recording says how far it has been played.
    fn frontier(&self, now: i64) -> i64 {
        now
    }
}
