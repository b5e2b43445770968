//! The code of a slot: what a worker implements, and the values that it exchanges with its slot.

use crate::Fault;
use crate::slot::Outputs;
use store::{Batch, Entry, SchemaId};

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

    /// Resets its statistics, and what else it counts for people, between two tasks.
    fn reset(&mut self) -> Result<(), Fault> {
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

/// How one of several messages ends that were done together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// This number of the pushed messages was made of it.
    Made(u32),
    /// It passes unchanged: the output points to it in the input.
    Same,
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
