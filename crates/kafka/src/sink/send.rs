//! The sink: messages of streams to topics.
//!
//! Each message carries its identity in a header, and its origin in another. A commit contains, by partition, the
//! offset from which it may hold messages that the commit does not count as done; a new sink reads from there, and
//! sends only the missing messages ([`super::look`]). Sockets are reset when they close, so that unsent bytes of a
//! killed process never arrive.
//!
//! Constraint: librdkafka copies each message, because it may send it again when the stream memory is gone.
//!
//! Failure behaviour: brokers that are away and topics that are missing are the sink's trouble; nothing expires, unless
//! the section says that messages for missing topics are set aside. A message that a topic refuses for good is set
//! aside. Any other refusal is a fault: the sink restarts.

use super::look::{Look, Part, Present};
use super::state::State;
use super::topics::{OutTopic, Stage, Topics};
use crate::header;
use crate::librdkafka::{Kind, Queue, Unsent, Wrong};
use crate::limits::{ANSWER_PATIENCE, CAREFUL_TIME, HELD_MAX, INPUT_BITS, OPEN_REST, REST, ROUTES_MAX};
use crate::plan::SendPlan;
use crate::plan::is_topic;
use crate::producer::{Message, Producer, Report, pairs};
use flow::{Aside, Confirmed, Fault, InFlight, LiveBatch, LiveSink, Passes, Refused};
use serde_json::{Value, json};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A sink of kind `kafka`.
pub(crate) struct Kafka {
    plan: Arc<SendPlan>,
    inputs: Vec<String>,
    open: Option<Open>,
}

/// Where messages of an origin go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Route {
    /// Not known yet.
    #[default]
    Unknown,
    /// To a topic, by its place.
    Topic(usize),
    /// Nowhere: there is no topic of such a name.
    Nowhere,
}

/// Whether a commit holds the identity of a stream: before, nobody would know its messages in a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    No,
    /// It was reported for a commit.
    Reported,
    Yes,
}

/// One input.
struct Input {
    stream: String,
    uuid: Option<[u8; 16]>,
    known: Known,
    /// The topic of all its messages, where the section names it.
    topic: Option<usize>,
    /// By number of the origin, where origins name the topic.
    routes: Vec<Route>,
    flight: InFlight,
}

/// What there is after a start. Fields are dropped from above: queues before the producer's client.
struct Open {
    look: Option<Look>,
    topics: Topics,
    producer: Producer,
    plan: Arc<SendPlan>,
    inputs: Vec<Input>,
    /// The state of the newest commit of the sink before this one.
    kept: State,
    /// Unconfirmed messages that are in their topics already.
    present: Present,
    refused: Vec<Refused>,
    /// The header with the origin of the message that is sent.
    origin: Vec<u8>,
    /// Acknowledged messages that places hold.
    held: usize,
    sent: u64,
    /// Since when no broker has acknowledged anything, though something waits.
    silent: Option<i64>,
    /// Where messages are sent one by one: when batches are tried again, ns since 1970 UTC.
    careful_until: Option<i64>,
    /// The time of the last step, ns since 1970 UTC.
    now: i64,
    trouble: Option<Fault>,
    doom: Option<Fault>,
}

impl Kafka {
    pub(crate) fn new(plan: SendPlan, inputs: &[String]) -> Self {
        Self { plan: Arc::new(plan), inputs: inputs.to_vec(), open: None }
    }

    fn open(&mut self) -> Result<&mut Open, Fault> {
        let name = &self.plan.name;
        self.open.as_mut().ok_or_else(|| Fault::new(format!("sink `{name}` has not started"), ""))
    }
}

impl LiveSink for Kafka {
    fn start(&mut self, now: i64, state: &str) -> Result<(), Fault> {
        self.open = Some(Open::start(self.plan.clone(), &self.inputs, state, now)?);
        Ok(())
    }

    fn write(&mut self, input: usize, batch: &LiveBatch<'_>, aside: &mut Vec<Aside>) -> Result<usize, Fault> {
        self.open()?.write(input, batch, aside)
    }

    fn step(&mut self, now: i64) -> Result<i64, Fault> {
        self.open()?.step(now)
    }

    fn confirmed(&mut self) -> Result<Confirmed, Fault> {
        Ok(self.open()?.confirmed())
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.open.as_ref().map(|open| open.producer.descriptor())
    }

    fn status(&self) -> Value {
        self.open.as_ref().map_or(Value::Null, Open::status)
    }

    fn trouble(&self) -> Option<Fault> {
        self.open.as_ref()?.trouble.clone()
    }

    fn stop(&mut self, patience: Duration) -> Result<(), Fault> {
        self.open()?.stop(patience)
    }
}

/// What a message has as its mark: its input and its sequence.
fn mark(input: usize, sequence: u64) -> usize {
    input << (usize::BITS - INPUT_BITS) | sequence as usize
}

/// The key of a message: its origin. Where origins name topics, the part after the first `/`, the same in each life.
fn key(origin: &str, by_origin: bool) -> &str {
    let Some((_, rest)) = origin.split_once('/').filter(|_| by_origin) else { return origin };
    match rest.rsplit_once('#') {
        Some((base, life)) if !life.is_empty() && life.bytes().all(|b| b.is_ascii_digit()) => base,
        _ => rest,
    }
}

/// Kafka's time of a message, ns: a search by time finds a value that is sent again.
fn time_of(entry: &store::Entry) -> i64 {
    if entry.flags & store::flags::REPEAT != 0 { entry.arrival_time } else { entry.source_time }
}

/// The input and the sequence of a mark.
fn unmark(mark: usize) -> (usize, u64) {
    (mark >> (usize::BITS - INPUT_BITS), (mark << INPUT_BITS >> INPUT_BITS) as u64)
}

impl Open {
    fn start(plan: Arc<SendPlan>, inputs: &[String], state: &str, now: i64) -> Result<Self, Fault> {
        let kept = State::read(state)?;
        let producer = producer(&plan)?;
        let mut topics = Topics::new(Queue::new(producer.client(), producer.wake()));
        let mut all = Vec::new();
        for stream in inputs {
            let topic = plan.topic_of(stream).map(|name| topics.add(&name, true));
            let (uuid, known) = (None, Known::No);
            all.push(Input {
                stream: stream.clone(),
                uuid,
                known,
                topic,
                routes: Vec::new(),
                flight: InFlight::default(),
            });
        }
        if *plan.topic == "origin" {
            kept.topics.keys().for_each(|name| {
                topics.add(name, false);
            });
        }
        let mut open = Self {
            look: None,
            topics,
            producer,
            plan,
            inputs: all,
            kept,
            present: Present::new(),
            refused: Vec::new(),
            origin: Vec::new(),
            held: 0,
            sent: 0,
            silent: None,
            careful_until: None,
            now,
            trouble: None,
            doom: None,
        };
        open.careful_until = open.is_careful().then_some(now + CAREFUL_TIME);
        open.advance(now)?;
        Ok(open)
    }

    fn write(&mut self, number: usize, batch: &LiveBatch<'_>, aside: &mut Vec<Aside>) -> Result<usize, Fault> {
        let Some(first) = batch.iter().next() else { return Ok(0) };
        self.know(number, batch.uuid, first.sequence);
        // Once batches are tried again, nothing may be on the way.
        let is_draining = self.careful_until.is_some_and(|until| self.now >= until);
        let room = if is_draining { 0 } else { HELD_MAX.saturating_sub(self.held) };
        let by_origin = self.inputs[number].topic.is_none();
        for (took, message) in batch.iter().enumerate() {
            let sequence = message.sequence;
            let Some(route) = self.route(number, batch.origin(&message), message.entry.origin as usize) else {
                self.inputs[number].flight.pass(sequence);
                aside.push(Aside { sequence, reason: "topic" });
                continue;
            };
            if self.topics.all[route].stage == Stage::Gone {
                self.inputs[number].flight.pass(sequence);
                aside.push(Aside { sequence, reason: "topic" });
                continue;
            }
            if self.topics.all[route].stage != Stage::Ready || self.inputs[number].known != Known::Yes || took >= room {
                return Ok(took);
            }
            let identity = batch.identity(&message);
            let flight = &mut self.inputs[number].flight;
            if !self.present.is_empty() {
                let present = self.present.get_mut(&(identity.uuid, identity.epoch));
                if present.is_some_and(|present| present.remove(&sequence)) {
                    flight.pass(sequence);
                    continue;
                }
            }
            let (identity, origin) = (header::write(&identity), batch.origin(&message));
            header::write_origin(message.entry.origin_seq, origin, &mut self.origin);
            let outgoing = Message {
                partition: None,
                key: Some(key(origin, by_origin).as_bytes()),
                payload: message.payload,
                time_ms: Some(time_of(message.entry).div_euclid(1_000_000)).filter(|time| *time > 0),
                headers: &[(header::NAME, &identity), (header::ORIGIN, &self.origin)],
                mark: mark(number, sequence),
            };
            let topic = self.topics.number(route, &mut self.producer)?;
            match self.producer.send(topic, &outgoing) {
                Ok(()) => flight.send(sequence),
                // The queue is empty and still too small for the message.
                Err(Unsent::Full) if self.producer.waiting() == 0 => {
                    flight.pass(sequence);
                    aside.push(Aside { sequence, reason: "size" });
                }
                Err(Unsent::Full) => return Ok(took),
                Err(Unsent::Wrong(wrong)) if wrong.kind == Kind::TooLarge => {
                    flight.pass(sequence);
                    aside.push(Aside { sequence, reason: "size" });
                }
                Err(Unsent::Wrong(wrong)) => {
                    let fault = || self.plan.wrong(&self.topics.all[route].name, &wrong);
                    return Err(batch_refused(&self.plan, &self.producer).unwrap_or_else(fault));
                }
            }
        }
        Ok(batch.len())
    }

    fn is_careful(&self) -> bool {
        self.plan.is_careful.load(Ordering::Relaxed)
    }

    /// Sends batches again, if no message was refused for a while and none is on the way.
    fn relax(&mut self, now: i64) -> Result<(), Fault> {
        let is_due = self.careful_until.is_some_and(|until| now >= until);
        if is_due && self.producer.waiting() == 0 {
            self.plan.is_careful.store(false, Ordering::Relaxed);
            self.careful_until = None;
            let producer = producer(&self.plan)?;
            self.topics.renumber(Queue::new(producer.client(), producer.wake()));
            self.producer = producer;
        }
        Ok(())
    }

    /// Notes the identity of an input, and drops identities of messages before `first`.
    fn know(&mut self, number: usize, uuid: [u8; 16], first: u64) {
        let input = &mut self.inputs[number];
        if input.uuid != Some(uuid) {
            input.uuid = Some(uuid);
            let is_kept = self.kept.streams.get(&input.stream).is_some_and(|kept| kept.0 == uuid);
            input.known = if is_kept { Known::Yes } else { Known::No };
            if !is_kept {
                let places = self.topics.all.iter_mut().flat_map(|topic| &mut topic.places);
                self.held = self.held.saturating_sub(places.map(|place| place.forget(number)).sum());
            }
        }
        if !self.present.is_empty() && self.look.is_none() {
            self.present.retain(|(of, _), there| *of != uuid || there.iter().any(|sequence| *sequence >= first));
        }
    }

    /// The place of the topic of a message; none where there can be no such topic.
    fn route(&mut self, number: usize, origin: &str, row: usize) -> Option<usize> {
        let input = &mut self.inputs[number];
        if input.topic.is_some() {
            return input.topic;
        }
        let known = input.routes.get(row).copied().unwrap_or_default();
        let route = match known {
            Route::Unknown => {
                let name = origin.split('/').next().unwrap_or("");
                match is_topic(name) && self.topics.all.len() < ROUTES_MAX {
                    true => Route::Topic(self.topics.add(name, true)),
                    false => Route::Nowhere,
                }
            }
            route => route,
        };
        // The table of origins may be damaged: a row without a name is looked up again.
        if known == Route::Unknown && !origin.is_empty() && row < ROUTES_MAX {
            let input = &mut self.inputs[number];
            input.routes.resize(input.routes.len().max(row + 1), Route::Unknown);
            input.routes[row] = route;
        }
        if let Route::Topic(at) = route { Some(at) } else { None }
    }

    fn step(&mut self, now: i64) -> Result<i64, Fault> {
        self.now = now;
        let refused = self.refused.len();
        self.take_reports()?;
        if self.refused.len() > refused {
            self.careful_until = Some(now + CAREFUL_TIME);
        }
        self.relax(now)?;
        self.advance(now)?;
        if let Some(fault) = self.doom.take() {
            return Err(fault);
        }
        let waiting = self.producer.waiting() > 0;
        if !waiting {
            self.silent = None;
        } else if self.silent.is_none() {
            self.silent = Some(now);
        }
        let look = self.look.as_ref().and_then(|look| look.silent);
        let since = self.silent.into_iter().chain(self.topics.silent).chain(look).min();
        let late = since.filter(|since| now.saturating_sub(*since) > ANSWER_PATIENCE);
        let away = late.map(|_| {
            let said = self.producer.trouble().cloned().unwrap_or_else(Wrong::timed_out);
            self.plan.side().away(&said)
        });
        self.trouble = away.or_else(|| self.topics.trouble.clone());
        Ok(match self.topics.is_open() && self.look.is_none() {
            true if waiting => now + REST,
            true => self.careful_until.unwrap_or(i64::MAX),
            false => now + OPEN_REST,
        })
    }

    /// Takes what brokers have acknowledged or refused.
    fn take_reports(&mut self) -> Result<(), Fault> {
        let Self { producer, topics, inputs, refused, held, sent, doom, plan, silent, careful_until, .. } = self;
        let taken = producer.reports(&mut |report: Report| {
            let (number, sequence) = unmark(report.mark);
            let (Some(topic), Some(input)) = (topics.numbered(report.topic), inputs.get_mut(number)) else { return };
            *silent = None;
            match report.offset {
                Ok(offset) => {
                    input.flight.confirm(sequence);
                    topic.acknowledge(report.partition, offset, number, sequence);
                    *held += 1;
                    *sent += 1;
                }
                Err(wrong) => match refusal(&wrong).filter(|_| careful_until.is_some()) {
                    Some(reason) => {
                        input.flight.confirm(sequence);
                        refused.push(Refused { input: number, sequence, reason });
                    }
                    None => {
                        doom.get_or_insert_with(|| plan.wrong(&topic.name, &wrong));
                    }
                },
            }
        });
        if (taken.is_err() || doom.is_some())
            && let Some(fault) = batch_refused(plan, producer)
        {
            return Err(fault);
        }
        taken.map_err(|fault| Fault { passes: Passes::Soon, ..fault.of_stage("sink", &plan.name) })
    }

    /// Opens topics, and looks through those that may hold unconfirmed messages.
    fn advance(&mut self, now: i64) -> Result<(), Fault> {
        let Self { topics, producer, plan, kept, .. } = self;
        let asked = topics.step(plan, producer.client(), kept, now);
        asked.map_err(|wrong| plan.side().away(&wrong))?;
        if self.look.is_none() {
            let back = self.topics.all.iter_mut().filter(|topic| topic.stage == Stage::Back);
            let parts: Vec<Part> = back.flat_map(parts).collect();
            if !parts.is_empty() {
                let (user, streams) = (self.plan.side().pairs()?, self.kept.streams.clone());
                let look = Look::begin(&self.plan.brokers, user, self.producer.wake(), parts, streams, now);
                self.look = Some(look.map_err(|(name, text)| self.plan.side().refused(&name, text))?);
            }
        }
        if let Some(look) = &mut self.look {
            let looked = look.step(now);
            if looked.map_err(|wrong| self.plan.side().away(&wrong))? {
                self.end_look();
            }
        }
        Ok(())
    }

    /// Messages that were found are not sent again.
    fn end_look(&mut self) {
        let Some(mut look) = self.look.take() else { return };
        for part in &look.parts {
            let Some(topic) = self.topics.all.iter_mut().find(|topic| topic.name == part.topic) else { continue };
            topic.stage = Stage::Ready;
            let place = usize::try_from(part.number).ok().and_then(|number| topic.places.get_mut(number));
            let Some(place) = place else { continue };
            for (stream, (after, sequence)) in &part.found {
                let kept = self.kept.streams.get(stream).map(|kept| kept.0);
                let is_it = |input: &Input| input.stream == *stream && input.uuid.is_none_or(|uuid| Some(uuid) == kept);
                if let Some(number) = self.inputs.iter().position(is_it) {
                    place.find(*after, number, *sequence);
                    self.held += 1;
                }
            }
        }
        for (stream, there) in look.present.drain() {
            self.present.entry(stream).or_default().extend(there);
        }
    }

    fn confirmed(&mut self) -> Confirmed {
        let below: Vec<u64> = self.inputs.iter().map(|input| input.flight.below()).collect();
        let mut state = State { topics: self.topics.keep(&self.kept, &below, &mut self.held), ..State::default() };
        for (input, below) in self.inputs.iter_mut().zip(&below) {
            let kept = self.kept.streams.get(&input.stream);
            let Some(uuid) = input.uuid else {
                // Nothing has come of it yet.
                state.streams.extend(kept.map(|kept| (input.stream.clone(), *kept)));
                continue;
            };
            input.known = if input.known == Known::No { Known::Reported } else { Known::Yes };
            let before = kept.filter(|kept| kept.0 == uuid).map_or(0, |kept| kept.1);
            state.streams.insert(input.stream.clone(), (uuid, before.max(*below)));
        }
        Confirmed { below, refused: std::mem::take(&mut self.refused), state: state.text() }
    }

    fn stop(&mut self, patience: Duration) -> Result<(), Fault> {
        let until = std::time::Instant::now() + patience;
        while self.producer.waiting() > 0 {
            let left = until.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                break;
            }
            self.producer.rest(left);
            self.take_reports()?;
        }
        Ok(())
    }

    fn status(&self) -> Value {
        let topics = self.topics.all.iter().filter(|topic| topic.stage == Stage::Ready).count();
        let is_careful = self.careful_until.is_some();
        json!({"sent": self.sent, "waiting": self.producer.waiting(), "topics": topics, "one_by_one": is_careful})
    }
}

/// A producer for a section.
fn producer(plan: &SendPlan) -> Result<Producer, Fault> {
    let mut pairs = pairs(&plan.brokers, plan.side().pairs()?);
    let is_careful = plan.is_careful.load(Ordering::Relaxed);
    // The sink sends the messages of a refused batch again. No later message may reach the topic before them, so the
    // client ends with the batch. A client that sends messages one by one reports the refused message and goes on.
    pairs.push(("enable.gapless.guarantee".to_owned(), (!is_careful).to_string()));
    if is_careful {
        pairs.push(("batch.num.messages".to_owned(), "1".to_owned()));
    }
    Producer::with(&pairs).map_err(|(name, text)| plan.side().refused(&name, text))
}

/// A fault, if the client has ended because the cluster refused a batch: the next one sends messages one by one.
fn batch_refused(plan: &SendPlan, producer: &Producer) -> Option<Fault> {
    let end = producer.client().end().filter(|end| end.kind == Kind::BatchRefused)?;
    plan.is_careful.store(true, Ordering::Relaxed);
    let what = format!("the cluster refused a batch of sink `{}`", plan.name);
    let hint = "the sink sends messages one by one for a while, and sets aside those that are refused";
    Some(Fault { passes: Passes::Soon, ..Fault::new(what, &end.text).hint(hint) })
}

/// Partitions of a topic that is looked through.
fn parts(topic: &mut OutTopic) -> Vec<Part> {
    let mut held = 0;
    let numbers = topic.places.iter_mut().enumerate();
    let part = |(number, place): (usize, &mut super::state::Place)| {
        Part::new(&topic.name, i32::try_from(number).unwrap_or(i32::MAX), place.offset(&[], &mut held))
    };
    numbers.map(part).collect()
}

/// The reason to set a message aside, if the brokers will never accept it.
fn refusal(wrong: &Wrong) -> Option<&'static str> {
    match wrong.kind {
        Kind::TooLarge => Some("size"),
        Kind::NotTaken => Some("refused"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_holds_input_and_sequence() {
        for (input, sequence) in [(0, 0), (1023, (1 << 54) - 1), (3, 12)] {
            assert_eq!(unmark(mark(input, sequence)), (input, sequence));
        }
    }

    #[test]
    fn a_key_is_the_origin_or_what_follows_its_topic() {
        for (origin, rest) in [
            ("loki_motion/M:1.RBV", "M:1.RBV"),
            ("loki_motion/M:1.RBV#2", "M:1.RBV"),
            ("loki_motion/a/b#c", "a/b#c"),
            ("loki_motion/a#", "a#"),
            ("loki_motion", "loki_motion"),
        ] {
            assert_eq!((key(origin, true), key(origin, false)), (rest, origin));
        }
    }
}
