//! The near side: packs the messages of streams into blocks and puts these into their topics.
//!
//! At its start it makes the topics that are missing and reads the newest block of each: what that block and those
//! before it hold is not sent again. Its own state is empty.
//!
//! Constraints: a payload is copied once, into its block, which librdkafka sends from where it is. Blocks under way
//! have a bound; then messages stay in their streams. A step never waits; a start waits some seconds for the brokers.
//!
//! Failure behaviour: brokers that are away are its trouble. A block that they refuse ends the client, because nothing
//! behind it may reach the partition before it: the sink starts again and reads where the partition ends.

use super::plan::{Carrier, NearPlan};
use super::topics::{bounds, ensure};
use crate::asking::Asking;
use crate::client::Claim;
use crate::librdkafka::{Batch, Kind, Queue, Topic, Unsent, Wake, Wrong};
use crate::limits::{
    ANSWER_PATIENCE, BATCH_MESSAGES, BEAT_PAUSE, BEAT_REST, BLOCK_BYTES, BLOCK_LINGER, CARRIED_BYTES_MAX, INPUT_BITS,
    REST, SPARE_BLOCKS_MAX, START_PATIENCE_MS, UNDER_WAY_MAX,
};
use crate::plan::Plan;
use crate::producer::{Producer, Report, pairs};
use crate::source::reading;
use flow::{Aside, Confirmed, Fault, LiveBatch, LiveSink};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Block, BlockBuilder, BlockHead, beat, crc32c};

/// The sink.
pub(crate) struct Near {
    plan: Arc<NearPlan>,
    inputs: Vec<String>,
    open: Option<Open>,
}

impl Near {
    pub(crate) fn new(plan: NearPlan, inputs: &[String]) -> Self {
        Self { plan: Arc::new(plan), inputs: inputs.to_vec(), open: None }
    }

    fn open(&mut self) -> Result<&mut Open, Fault> {
        let name = &self.plan.name;
        self.open.as_mut().ok_or_else(|| Fault::new(format!("sink `{name}` has not started"), ""))
    }
}

impl LiveSink for Near {
    fn start(&mut self, now: i64, _: &str) -> Result<(), Fault> {
        self.open = Some(Open::start(&self.plan, &self.inputs, now)?);
        Ok(())
    }

    fn write(&mut self, input: usize, batch: &LiveBatch<'_>, aside: &mut Vec<Aside>) -> Result<usize, Fault> {
        self.open()?.write(input, batch, aside)
    }

    fn follows_frontiers(&self) -> bool {
        true
    }

    fn reach(&mut self, input: usize, frontier: i64) {
        if let Some(lane) = self.open.as_mut().and_then(|open| open.lanes.get_mut(input)) {
            lane.frontier = lane.frontier.max(frontier);
        }
    }

    fn step(&mut self, now: i64) -> Result<i64, Fault> {
        self.open()?.step(now)
    }

    fn confirmed(&mut self) -> Result<Confirmed, Fault> {
        let below = self.open()?.lanes.iter().map(Lane::below).collect();
        Ok(Confirmed { below, ..Confirmed::default() })
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

/// A block that was made and is not acknowledged.
struct UnderWay {
    first: u64,
    next: u64,
    bytes: usize,
    is_acknowledged: bool,
}

/// One input and its topic.
#[derive(Default)]
struct Lane {
    /// Number of the topic at the producer.
    topic: usize,
    /// The stream and the epoch of the messages that were put last.
    of: Option<([u8; 16], u32)>,
    /// One past the sequence that the partition holds; 0 where it holds none of this stream.
    put: u64,
    /// One past the newest message that was taken.
    taken: u64,
    builder: BlockBuilder,
    /// When the block that is filled was begun, ns since 1970 UTC.
    begun: i64,
    /// A block for which the producer had no room.
    stuck: Option<(BlockHead, Vec<u8>)>,
    under_way: VecDeque<UnderWay>,
    /// All up to this source time was taken.
    frontier: i64,
    /// The frontier of the newest block, and when that was made.
    sent_frontier: i64,
    sent: i64,
    /// A block without messages is under way.
    is_beating: bool,
}

impl Lane {
    /// Whether the partition holds a message. One of a later epoch is new, though its sequence was used before.
    fn is_put(&self, uuid: [u8; 16], epoch: u32, sequence: u64) -> bool {
        self.of.is_some_and(|of| of.0 == uuid && epoch <= of.1 && sequence < self.put)
    }

    /// All below is acknowledged, or was in the partition.
    fn below(&self) -> u64 {
        let stuck = self.stuck.as_ref().map(|(head, _)| head.first);
        let filled = (!self.builder.is_empty()).then(|| self.builder.first());
        self.under_way.front().map(|block| block.first).or(stuck).or(filled).unwrap_or(self.taken)
    }

    /// When something is to be done for it.
    fn due(&self) -> i64 {
        if self.stuck.is_some() {
            return i64::MAX;
        }
        if !self.builder.is_empty() {
            return self.begun.saturating_add(BLOCK_LINGER);
        }
        if self.is_beating {
            return i64::MAX;
        }
        let pause = if self.frontier > self.sent_frontier { BEAT_PAUSE } else { BEAT_REST };
        self.sent.saturating_add(pause)
    }
}

/// State after a start.
struct Open {
    lanes: Vec<Lane>,
    producer: Producer,
    plan: Arc<NearPlan>,
    /// Memory of blocks that are acknowledged.
    spare: Vec<Vec<u8>>,
    /// Bytes of blocks that are not.
    under_way: usize,
    blocks: u64,
    messages: u64,
    /// Since when nothing was acknowledged, though something waits.
    silent: Option<i64>,
    now: i64,
    trouble: Option<Fault>,
}

/// The mark of a block: its input and its first sequence. A block without messages has the sequence of the next
/// one, and is not under way at the same time as a block with that.
fn mark(input: usize, first: u64, is_beat: bool) -> usize {
    input << (usize::BITS - INPUT_BITS) | (first as usize) << 1 | usize::from(is_beat)
}

/// The input of a mark, the first sequence, and whether it is of a block without messages.
fn unmark(mark: usize) -> (usize, u64, bool) {
    let input = mark >> (usize::BITS - INPUT_BITS);
    (input, (mark << INPUT_BITS >> INPUT_BITS >> 1) as u64, mark & 1 == 1)
}

impl Open {
    fn start(plan: &Arc<NearPlan>, inputs: &[String], now: i64) -> Result<Self, Fault> {
        let topics: Vec<String> = inputs.iter().map(|stream| Carrier::topic(&plan.instrument, stream)).collect();
        let reads = plan.carrier.reads(&plan.name, topics.clone());
        let ends = ends(plan, &reads)?;
        let pairs = pairs(&plan.carrier.brokers, reads.side().pairs()?);
        let gapless = ("enable.gapless.guarantee".to_owned(), "true".to_owned());
        let pairs = pairs.into_iter().chain([gapless]).collect();
        let mut producer = Producer::with(&pairs).map_err(|(name, text)| reads.side().refused(&name, text))?;
        let mut lanes = Vec::new();
        for (topic, end) in topics.iter().zip(ends) {
            let topic = producer.topic(topic)?;
            let (of, put) = end.map_or((None, 0), |head| (Some((head.uuid, head.epoch)), head.next()));
            let never = i64::MIN;
            lanes.push(Lane { topic, of, put, frontier: never, sent_frontier: never, sent: now, ..Lane::default() });
        }
        Ok(Self {
            lanes,
            producer,
            plan: plan.clone(),
            spare: Vec::new(),
            under_way: 0,
            blocks: 0,
            messages: 0,
            silent: None,
            now,
            trouble: None,
        })
    }

    fn write(&mut self, input: usize, batch: &LiveBatch<'_>, aside: &mut Vec<Aside>) -> Result<usize, Fault> {
        for (taken, message) in batch.iter().enumerate() {
            let (sequence, origin) = (message.sequence, batch.origin(&message));
            let epoch = batch.identity(&message).epoch;
            let lane = &mut self.lanes[input];
            if lane.is_put(batch.uuid, epoch, sequence) {
                lane.taken = sequence + 1;
                continue;
            }
            let payload = message.payload;
            if payload.len() + 2 * BLOCK_BYTES > CARRIED_BYTES_MAX {
                aside.push(Aside { sequence, reason: "size" });
                self.finish(input)?;
                self.lanes[input].taken = sequence + 1;
                continue;
            }
            let builder = &lane.builder;
            let continues = builder.of() == (batch.uuid, epoch) && builder.next() == sequence;
            if !(builder.is_empty() || continues && builder.has_room(payload.len(), origin, BLOCK_BYTES)) {
                self.finish(input)?;
            }
            let lane = &mut self.lanes[input];
            if lane.stuck.is_some() || self.under_way >= UNDER_WAY_MAX {
                return Ok(taken);
            }
            if lane.builder.is_empty() {
                lane.builder.begin(batch.uuid, epoch, sequence, self.spare.pop().unwrap_or_default());
                lane.begun = self.now;
            }
            let sum = match message.entry.parent {
                0 => message.entry.payload_sum(&batch.uuid, epoch, sequence),
                // Its checksum is salted for another stream.
                _ => crc32c(payload),
            };
            lane.builder.push(message.entry, sum, origin, payload);
            lane.taken = sequence + 1;
        }
        Ok(batch.len())
    }

    /// Ends the block of an input, if it has messages, and sends it.
    fn finish(&mut self, input: usize) -> Result<(), Fault> {
        let lane = &mut self.lanes[input];
        if lane.builder.is_empty() || lane.stuck.is_some() {
            return Ok(());
        }
        let (uuid, epoch) = lane.builder.of();
        let previous = if lane.of.is_some_and(|of| of.0 == uuid) { lane.put.min(lane.builder.first()) } else { 0 };
        let (head, bytes) = lane.builder.end(previous, lane.frontier);
        (lane.of, lane.put) = (Some((uuid, epoch)), head.next());
        lane.stuck = Some((head, bytes));
        self.send(input)
    }

    /// Sends the block that waits, if the producer has room.
    fn send(&mut self, input: usize) -> Result<(), Fault> {
        let lane = &mut self.lanes[input];
        let Some((head, bytes)) = lane.stuck.take() else { return Ok(()) };
        let (is_beat, len) = (head.count == 0, bytes.len());
        match self.producer.lend(lane.topic, 0, bytes, mark(input, head.first, is_beat)) {
            Ok(()) => {
                lane.sent = self.now;
                lane.sent_frontier = head.frontier;
                if !is_beat {
                    let (first, next) = (head.first, head.next());
                    lane.under_way.push_back(UnderWay { first, next, bytes: len, is_acknowledged: false });
                    self.under_way += len;
                    self.blocks += 1;
                    self.messages += u64::from(head.count);
                }
                Ok(())
            }
            Err((bytes, Unsent::Full)) => {
                lane.stuck = Some((head, bytes));
                Ok(())
            }
            Err((_, Unsent::Wrong(wrong))) => Err(self.away(&wrong)),
        }
    }

    fn step(&mut self, now: i64) -> Result<i64, Fault> {
        self.now = now;
        self.receive_reports()?;
        let mut next = now.saturating_add(REST);
        for input in 0..self.lanes.len() {
            self.send(input)?;
            if self.lanes[input].due() <= now {
                self.finish(input)?;
                self.beat(input)?;
            }
            next = next.min(self.lanes[input].due());
        }
        let waiting = self.producer.waiting() > 0;
        self.silent = if waiting { self.silent.or(Some(now)) } else { None };
        let is_late = self.silent.is_some_and(|since| now.saturating_sub(since) > ANSWER_PATIENCE);
        self.trouble = is_late.then(|| self.away(&self.producer.trouble().cloned().unwrap_or_else(Wrong::timed_out)));
        Ok(next.max(now + 1))
    }

    /// Sends the frontier alone, and that this host is there.
    fn beat(&mut self, input: usize) -> Result<(), Fault> {
        let lane = &mut self.lanes[input];
        if lane.stuck.is_some() || lane.due() > self.now {
            return Ok(());
        }
        let (uuid, epoch) = lane.of.unwrap_or_default();
        let head = BlockHead { uuid, epoch, count: 0, first: lane.put, previous: lane.put, frontier: lane.frontier };
        lane.stuck = Some((head, beat(&head)));
        lane.is_beating = true;
        self.send(input)
    }

    /// Receives the acknowledgements and refusals of brokers.
    fn receive_reports(&mut self) -> Result<(), Fault> {
        let mut reports = Vec::new();
        let taken = self.producer.reports(&mut |report| reports.push(report));
        for Report { mark, offset, .. } in reports {
            let bytes = self.producer.returned(mark);
            let (input, first, is_beat) = unmark(mark);
            let Some(lane) = self.lanes.get_mut(input) else { continue };
            if is_beat {
                lane.is_beating = false;
            }
            // A purge at the end reports messages too.
            if let Err(wrong) = offset {
                return Err(taken.err().unwrap_or_else(|| self.away(&wrong)));
            }
            self.silent = None;
            if let Some(block) = lane.under_way.iter_mut().find(|block| block.first == first && !is_beat) {
                block.is_acknowledged = true;
            }
            while lane.under_way.front().is_some_and(|block| block.is_acknowledged) {
                let Some(block) = lane.under_way.pop_front() else { break };
                self.under_way = self.under_way.saturating_sub(block.bytes);
                debug_assert!(block.next <= lane.put, "a block is put before it is acknowledged");
            }
            let is_usual = |bytes: &Vec<u8>| bytes.capacity() <= 2 * BLOCK_BYTES && !is_beat;
            self.spare.extend(bytes.filter(|bytes| is_usual(bytes) && self.spare.len() < SPARE_BLOCKS_MAX));
        }
        taken
    }

    fn away(&self, wrong: &Wrong) -> Fault {
        let reads = self.plan.carrier.reads(&self.plan.name, Vec::new());
        let side = crate::trouble::Side { kind: "sink", ..reads.side() };
        match wrong.kind {
            Kind::TooLarge => Fault::new("a block is above the limits of its topic", &wrong.text)
                .hint("raise `max.message.bytes` of the topic, or remove the topic: beamport makes it again"),
            _ => side.away(wrong),
        }
    }

    fn stop(&mut self, patience: Duration) -> Result<(), Fault> {
        let until = Instant::now() + patience;
        let mut is_told = false;
        loop {
            for input in 0..self.lanes.len() {
                self.send(input)?;
                self.finish(input)?;
                let lane = &mut self.lanes[input];
                if !is_told && lane.stuck.is_none() && lane.frontier > lane.sent_frontier {
                    lane.sent = i64::MIN;
                    self.beat(input)?;
                }
            }
            is_told = true;
            let left = until.saturating_duration_since(Instant::now());
            let is_done = self.lanes.iter().all(|lane| lane.stuck.is_none() && lane.builder.is_empty());
            if left.is_zero() || is_done && self.producer.waiting() == 0 {
                return Ok(());
            }
            self.producer.rest(left);
            self.receive_reports()?;
        }
    }

    fn status(&self) -> Value {
        json!({"blocks": self.blocks, "messages": self.messages, "waiting": self.producer.waiting()})
    }
}

/// The newest block of each topic; none where a topic has none.
fn ends(plan: &NearPlan, reads: &Plan) -> Result<Vec<Option<BlockHead>>, Fault> {
    let properties = reading(reads)?;
    let claim = Claim::new(properties, &reads.topics).map_err(|(name, text)| reads.side().refused(&name, text))?;
    let wake = Wake::new().map_err(|e| Fault::io(format!("sink `{}` cannot start", plan.name), &e))?;
    let answers = Queue::new(claim.client(), &Arc::new(wake));
    let until = Instant::now() + Duration::from_millis(START_PATIENCE_MS as u64);
    let asking = Asking { plan: reads, claim: &claim, answers: &answers, until };
    let topics = ensure(&asking, &plan.carrier)?;
    // Answers come in any order.
    let place = |name: &str| topics.iter().position(|topic| topic.name == name);
    let bounds = bounds(&asking, &topics)?;
    let mut heads: Vec<Option<BlockHead>> = vec![None; topics.len()];
    let records = Queue::polled(claim.client());
    let mut read = Vec::new();
    for (at, topic) in topics.iter().enumerate() {
        let (first, end) = bounds[at];
        if end > first {
            let open = Topic::new(claim.client(), &topic.name).map_err(|wrong| asking.away(&wrong))?;
            open.read(0, end - 1, &records).map_err(|wrong| asking.away(&wrong))?;
            read.push((open, at, false));
        }
    }
    let mut batch = Batch::default();
    while read.iter().any(|(.., is_done)| !is_done) {
        if Instant::now() >= until {
            break;
        }
        records.take_within(&mut batch, BATCH_MESSAGES, 100);
        while let Some(record) = batch.front() {
            if let Some((_, at, is_done)) = read.iter_mut().find(|(topic, ..)| topic.key() == record.place().0) {
                match record.error() {
                    None => heads[*at] = Block::read(record.payload()).ok().map(|block| block.head).or(heads[*at]),
                    Some(wrong) if wrong.kind == Kind::PartitionEnd => *is_done = true,
                    Some(_) => {}
                }
            }
            batch.pop();
        }
    }
    let is_late = read.iter().any(|(.., is_done)| !is_done);
    batch.clear();
    read.iter().for_each(|(topic, ..)| topic.leave(0));
    drop(read);
    if is_late {
        return Err(asking.away(&Wrong::timed_out()));
    }
    Ok(reads.topics.iter().map(|name| place(name).and_then(|at| heads[at])).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_holds_input_sequence_and_kind() {
        for (input, first, is_beat) in [(0, 0, true), (1023, (1 << 53) - 1, false), (3, 12, true)] {
            assert_eq!(unmark(mark(input, first, is_beat)), (input, first, is_beat));
        }
    }
}
