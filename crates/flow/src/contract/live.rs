//! Live sinks: stages that send the messages of streams to the outside as they arrive, with or without a run.
//!
//! A live sink owns no stream, no position and no clock: its runner, the relay ([`crate::Relay`]), calls it with the
//! time and with messages, commits what the outside has acknowledged, and resumes it from that commit after a restart.

use crate::{Aside, Fault};
use serde_json::Value;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::time::Duration;
use store::{Batch, Identity, Message};

/// Messages of one input that are offered to a live sink, in the order of their sequences and without a break. Payloads
/// lie in stream memory as long as the call lasts.
#[derive(Clone, Copy)]
pub struct LiveBatch<'a> {
    /// Name of the stream.
    pub stream: &'a str,
    /// Identity of the stream.
    pub uuid: [u8; 16],
    pub(crate) messages: &'a Batch<'a>,
    pub(crate) epochs: &'a [(u32, u64)],
    pub(crate) origins: &'a [String],
}

impl<'a> LiveBatch<'a> {
    /// The messages.
    pub fn iter(&self) -> impl Iterator<Item = Message<'a>> + '_ {
        self.messages.iter()
    }

    /// How many there are, at least one.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Never true: a sink is offered messages.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The origin of a message; empty if the table of origins lacks it.
    pub fn origin(&self, message: &Message<'_>) -> &'a str {
        self.origins.get(message.entry.origin as usize).map_or("", String::as_str)
    }

    /// The identity of a message.
    pub fn identity(&self, message: &Message<'_>) -> Identity {
        let epoch = self.epochs.iter().rev().find(|epoch| epoch.1 <= message.sequence).map_or(0, |epoch| epoch.0);
        Identity { uuid: self.uuid, epoch, sequence: message.sequence }
    }
}

/// The messages that the outside has acknowledged, of those that a live sink has taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confirmed {
    /// By input: all taken messages below this sequence are acknowledged, set aside or skipped. A value that is not
    /// above the previous one, such as 0, changes nothing.
    pub below: Vec<u64>,
    /// Messages that the outside has refused since the last call, none of them below the `below` of that call.
    pub refused: Vec<Refused>,
    /// The text from which a new sink resumes behind these messages.
    pub state: String,
}

/// A message that the outside rejects permanently. It is appended to the stream `SINK.aside`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Number of the input.
    pub input: usize,
    /// Its sequence there.
    pub sequence: u64,
    /// One word.
    pub reason: &'static str,
}

/// Sends the messages of streams to the outside. The relay reads, commits and moves the positions.
///
/// A fault ends the sink, not its streams: a new one is built after a pause that grows while faults repeat, and gets
/// the messages behind the last commit again. So the outside may see messages twice after a restart, always in the
/// order of each input; a sink that can query the outside skips messages that it has ([`LiveBatch::identity`]).
pub trait LiveSink: Send {
    /// Called once, before all else: connects to the outside. `now` in ns since 1970 UTC; `state`: that of the last
    /// commit, empty at the very first start. It may wait some seconds; a sink that needs longer takes no messages
    /// meanwhile.
    fn start(&mut self, now: i64, state: &str) -> Result<(), Fault>;

    /// Takes the first messages of a batch of input number `input`, as many as there is room for, and returns their
    /// number. The others are offered again after the next `step`, at the latest after 20 ms: a sink without room names
    /// the time of that step, or its descriptor becomes readable, when it has room again.
    ///
    /// Taken messages that cannot be sent are added to `aside`: they are appended to `SINK.aside` with the reason. A
    /// message whose reason is `skipped.WORD` is left out by the sink's own policy: it is counted under that name and
    /// kept nowhere.
    fn write(&mut self, input: usize, batch: &LiveBatch<'_>, aside: &mut Vec<Aside>) -> Result<usize, Fault>;

    /// Whether it reads payloads. Unread payloads are not verified.
    fn looks_at_payloads(&self) -> bool {
        true
    }

    /// Whether it needs the frontiers of its inputs: see [`LiveSink::reach`].
    fn follows_frontiers(&self) -> bool {
        false
    }

    /// All messages of input number `input` up to this source time (ns since 1970 UTC) have been offered, and taken:
    /// those below sequence `next`, except where they are missing in the input. Called when that has moved on, for
    /// inputs whose stage says how far it has come.
    fn reach(&mut self, input: usize, frontier: i64, next: u64) {
        let _ = (input, frontier, next);
    }

    /// Reads acknowledgements and sends pending data, with or without new messages. Never blocks. Returns the latest
    /// time of the next call, ns since 1970 UTC; `now` means at once.
    fn step(&mut self, now: i64) -> Result<i64, Fault> {
        let _ = now;
        Ok(i64::MAX)
    }

    /// The present acknowledgements. Called about ten times a second; a message is done once it is below.
    fn confirmed(&mut self) -> Result<Confirmed, Fault>;

    /// A descriptor that becomes readable when there is something to do: the runner waits for it, for messages and for
    /// the time that `step` has named, whichever comes first. A library with threads of its own writes to an eventfd; a
    /// sink that waits for a socket to become writable gives an epoll.
    fn descriptor(&self) -> Option<RawFd> {
        None
    }

    /// Figures for people and programs: a flat JSON object, or null. Read after a step, at most
    /// once a second.
    fn status(&self) -> Value {
        Value::Null
    }

    /// The present error of a sink that keeps trying.
    fn trouble(&self) -> Option<Fault> {
        None
    }

    /// Whether the outside has left: nothing is acknowledged before it is back, and a program that ends does not wait.
    fn has_left(&self) -> bool {
        false
    }

    /// The program ends: sends taken messages and reads acknowledgements, for `patience` at most, and returns as soon
    /// as nothing is left to wait for. Unconfirmed messages are sent again at the next start.
    fn stop(&mut self, patience: Duration) -> Result<(), Fault> {
        let _ = patience;
        Ok(())
    }
}

/// Messages of one input that were sent and not acknowledged yet, for an outside that acknowledges late, out of order
/// or twice.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    /// Sequences in order, and whether they are acknowledged.
    sent: VecDeque<(u64, bool)>,
    /// One past the newest that was sent or passed over.
    next: u64,
}

impl InFlight {
    /// The next message is sent.
    pub fn send(&mut self, sequence: u64) {
        self.sent.push_back((sequence, false));
        self.next = sequence + 1;
    }

    /// The next message is not sent: it is set aside, or skipped.
    pub fn pass(&mut self, sequence: u64) {
        self.next = sequence + 1;
    }

    /// A message is acknowledged. False if it was acknowledged before, or never sent.
    pub fn confirm(&mut self, sequence: u64) -> bool {
        // Most come in order.
        let at = match self.sent.front() {
            Some(first) if first.0 == sequence => 0,
            _ => match self.sent.binary_search_by_key(&sequence, |sent| sent.0) {
                Ok(at) => at,
                Err(_) => return false,
            },
        };
        let is_new = !std::mem::replace(&mut self.sent[at].1, true);
        while self.sent.front().is_some_and(|sent| sent.1) {
            self.sent.pop_front();
        }
        is_new
    }

    /// All messages below this sequence are acknowledged or passed; 0 before the first. For [`Confirmed::below`].
    pub fn below(&self) -> u64 {
        self.sent.front().map_or(self.next, |sent| sent.0)
    }

    /// How many messages wait, with those that are acknowledged behind one that is not.
    pub fn len(&self) -> usize {
        self.sent.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_in_any_order_and_twice_move_the_boundary_once_all_before_are_there() {
        let mut flight = InFlight::default();
        assert_eq!((flight.below(), flight.is_empty()), (0, true));
        for sequence in [5, 6, 8, 9] {
            flight.send(sequence);
        }
        assert_eq!((flight.below(), flight.len()), (5, 4));
        assert!(flight.confirm(6) && !flight.confirm(6));
        assert_eq!(flight.below(), 5);
        assert!(!flight.confirm(7), "never sent");
        assert!(flight.confirm(5));
        // 7 was never on its way: it is lost or skipped, and nobody waits for it.
        assert_eq!(flight.below(), 8);
        assert!(!flight.confirm(5));
        flight.pass(10);
        assert_eq!(flight.below(), 8);
        assert!(flight.confirm(9) && flight.confirm(8));
        assert_eq!((flight.below(), flight.len()), (11, 0));
        flight.send(20);
        assert_eq!(flight.below(), 20);
    }
}
