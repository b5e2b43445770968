//! A pretend outside and the live sink that sends to it: the outside receives in order, acknowledges late, out of order and
//! twice, refuses some messages, loses connections and is away for a while. It outlives every process of the machine.

use beamport_testkit::Dice;
use flow::{Aside, Confirmed, Fault, Identity, InFlight, LiveBatch, LiveSink, Refused};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The fate of message `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nature {
    /// The outside takes it.
    Goes,
    /// The sink sees that it cannot be sent.
    Aside,
    /// The outside refuses it after some time.
    Refused,
    /// The sink leaves it out.
    Skipped,
}

pub(crate) fn nature(n: u64) -> Nature {
    match n {
        n if n % 13 == 7 => Nature::Aside,
        n if n % 17 == 3 => Nature::Refused,
        n if n % 11 == 5 => Nature::Skipped,
        _ => Nature::Goes,
    }
}

/// The number of a message, which its bytes begin with.
pub(crate) fn number(payload: &[u8]) -> u64 {
    u64::from_le_bytes(payload[..8].try_into().unwrap())
}

#[derive(Clone, Copy)]
struct Sent {
    input: usize,
    identity: Identity,
    n: u64,
}

/// A message as the outside has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    pub(crate) connection: u64,
    pub(crate) input: usize,
    pub(crate) identity: Identity,
    pub(crate) n: u64,
}

pub(crate) struct Outside {
    dice: Dice,
    /// Nobody gets a connection.
    pub(crate) is_away: bool,
    /// No connection is lost any more.
    pub(crate) is_calm: bool,
    /// Connections so far; the newest is the one that counts.
    pub(crate) connections: u64,
    /// On their way there, in order.
    wire: VecDeque<Sent>,
    /// Acknowledgements on their way back, in any order.
    answers: Vec<Sent>,
    pub(crate) received: Vec<Received>,
    pub(crate) losses: u64,
}

pub(crate) type Shared = Arc<Mutex<Outside>>;

pub(crate) fn lock(shared: &Shared) -> MutexGuard<'_, Outside> {
    shared.lock().unwrap_or_else(|p| p.into_inner())
}

impl Outside {
    pub(crate) fn new(seed: u64) -> Shared {
        Arc::new(Mutex::new(Self {
            dice: Dice::new(seed),
            is_away: false,
            is_calm: false,
            connections: 0,
            wire: VecDeque::new(),
            answers: Vec::new(),
            received: Vec::new(),
            losses: 0,
        }))
    }

    /// Ends the connection. Messages on their way may have arrived, but their acknowledgements are lost.
    pub(crate) fn lose_connection(&mut self) {
        let come = self.dice.below(self.wire.len() as u64 + 1);
        (0..come).for_each(|_| self.receive());
        self.wire.clear();
        self.answers.clear();
        self.connections += 1;
    }

    fn receive(&mut self) {
        let Some(sent) = self.wire.pop_front() else { return };
        let Sent { input, identity, n } = sent;
        if nature(n) == Nature::Goes {
            self.received.push(Received { connection: self.connections, input, identity, n });
        }
        self.answers.push(sent);
        if self.dice.one_in(5) {
            self.answers.push(sent);
        }
    }

    /// Some time passes: the answers that come to the sink.
    fn pass(&mut self) -> Vec<Sent> {
        (0..self.dice.below(8)).for_each(|_| self.receive());
        let mut heard = Vec::new();
        for _ in 0..self.dice.below(8) {
            if !self.answers.is_empty() {
                let at = self.dice.below(self.answers.len() as u64) as usize;
                heard.push(self.answers.swap_remove(at));
            }
        }
        heard
    }
}

/// Messages that are on their way at most, by input.
const FLIGHT_MAX: usize = 40;

/// The sink.
pub(crate) struct Sending {
    outside: Shared,
    connection: u64,
    flights: Vec<InFlight>,
    refused: Vec<Refused>,
    /// By input, what the state said that it had.
    had: Vec<u64>,
}

impl Sending {
    pub(crate) fn new(outside: &Shared, inputs: usize) -> Self {
        let flights = vec![InFlight::default(); inputs];
        Self { outside: outside.clone(), connection: 0, flights, refused: Vec::new(), had: vec![0; inputs] }
    }

    fn hear(&mut self, answers: Vec<Sent>) {
        for Sent { input, identity, n } in answers {
            let is_new = self.flights[input].confirm(identity.sequence);
            if is_new && nature(n) == Nature::Refused {
                self.refused.push(Refused { input, sequence: identity.sequence, reason: "size" });
            }
        }
    }

    fn lost() -> Fault {
        Fault::new("the connection is lost", "the outside is away")
    }
}

impl LiveSink for Sending {
    fn start(&mut self, _now: i64, state: &str) -> Result<(), Fault> {
        let mut outside = lock(&self.outside);
        if outside.is_away {
            return Err(Self::lost());
        }
        outside.lose_connection();
        self.connection = outside.connections;
        if !state.is_empty() {
            self.had = serde_json::from_str(state).unwrap();
        }
        Ok(())
    }

    fn write(&mut self, input: usize, batch: &LiveBatch<'_>, aside: &mut Vec<Aside>) -> Result<usize, Fault> {
        let mut outside = lock(&self.outside);
        if outside.is_away {
            return Ok(0);
        }
        let room = FLIGHT_MAX.saturating_sub(self.flights[input].len());
        let take = outside.dice.below(batch.len().min(room) as u64 + 1) as usize;
        for message in batch.iter().take(take) {
            let (n, sequence) = (number(message.payload), message.sequence);
            assert_eq!(batch.origin(&message), super::ORIGINS[message.entry.origin as usize]);
            assert!(sequence >= self.had[input], "what its state speaks of came again");
            match nature(n) {
                Nature::Goes | Nature::Refused => {
                    self.flights[input].send(sequence);
                    outside.wire.push_back(Sent { input, identity: batch.identity(&message), n });
                }
                Nature::Aside => {
                    self.flights[input].pass(sequence);
                    aside.push(Aside { sequence, reason: "broken" });
                }
                Nature::Skipped => {
                    self.flights[input].pass(sequence);
                    aside.push(Aside { sequence, reason: "skipped.choice" });
                }
            }
        }
        Ok(take)
    }

    fn step(&mut self, now: i64) -> Result<i64, Fault> {
        let mut outside = lock(&self.outside);
        if outside.is_away || !outside.is_calm && outside.dice.one_in(60) {
            outside.losses += 1;
            return Err(Self::lost());
        }
        assert!(!outside.dice.one_in(3000) || outside.is_calm, "a sink breaks");
        let answers = outside.pass();
        drop(outside);
        self.hear(answers);
        Ok(now + 1_000_000)
    }

    fn confirmed(&mut self) -> Result<Confirmed, Fault> {
        let below: Vec<u64> =
            self.flights.iter().zip(&self.had).map(|(flight, had)| flight.below().max(*had)).collect();
        let state = serde_json::to_string(&below).unwrap();
        self.had.clone_from(&below);
        Ok(Confirmed { below, refused: std::mem::take(&mut self.refused), state })
    }

    fn trouble(&self) -> Option<Fault> {
        lock(&self.outside).is_away.then(Self::lost)
    }

    fn stop(&mut self, _patience: Duration) -> Result<(), Fault> {
        while self.flights.iter().any(|flight| !flight.is_empty()) {
            let answers = lock(&self.outside).pass();
            self.hear(answers);
        }
        Ok(())
    }
}
