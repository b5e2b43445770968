//! The near side: puts streams into their topics, in the blocks that [`Packer`] makes of them.
//!
//! At its start it makes the topics that are missing and reads the newest block of each: what that block and those
//! before it hold is not sent again.
//!
//! Constraints: a payload is copied once, into its block, which librdkafka sends from where it is. A step never waits;
//! a start waits some seconds for the brokers.
//!
//! Failure behaviour: brokers that are away are its trouble. A block that they refuse ends the client, because nothing
//! behind it may reach the partition before it: the sink starts again and reads where the partition ends.

use super::plan::{Carrier, NearPlan};
use super::topics::{bounds, ensure};
use crate::asking::Asking;
use crate::client::Claim;
use crate::librdkafka::{Batch, Kind, Queue, Topic, Unsent, Wake, Wrong};
use crate::limits::{ANSWER_PATIENCE, BATCH_MESSAGES, START_PATIENCE_MS};
use crate::plan::Plan;
use crate::producer::{Producer, Report};
use crate::source::reading;
use flow::mirror::{Packer, Post, Sizes};
use flow::{Aside, Confirmed, Fault, LiveBatch, LiveSink};
use serde_json::{Value, json};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Block, BlockHead};

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
    fn start(&mut self, now: i64, state: &str) -> Result<(), Fault> {
        self.open = Some(Open::start(&self.plan, &self.inputs, now, state)?);
        Ok(())
    }

    fn write(&mut self, input: usize, batch: &LiveBatch<'_>, aside: &mut Vec<Aside>) -> Result<usize, Fault> {
        let Open { packer, to, .. } = self.open()?;
        packer.write(input, batch, aside, to)
    }

    fn follows_frontiers(&self) -> bool {
        true
    }

    fn reach(&mut self, input: usize, frontier: i64, next: u64) {
        if let Some(open) = &mut self.open {
            open.packer.reach(input, frontier, next);
        }
    }

    fn step(&mut self, now: i64) -> Result<i64, Fault> {
        self.open()?.step(now)
    }

    fn confirmed(&mut self) -> Result<Confirmed, Fault> {
        let inputs = self.inputs.clone();
        let packer = &self.open()?.packer;
        let (below, state) = (packer.below(), packer.state(&inputs));
        Ok(Confirmed { below, state, ..Confirmed::default() })
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.open.as_ref().map(|open| open.to.producer.descriptor())
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

/// State after a start.
struct Open {
    packer: Packer,
    to: Topics,
    /// Since when nothing was acknowledged, though something waits.
    silent: Option<i64>,
    trouble: Option<Fault>,
}

/// The topics of the inputs, and the client that sends to them.
struct Topics {
    producer: Producer,
    /// Numbers of the topics at the producer, by input.
    numbers: Vec<usize>,
    plan: Arc<NearPlan>,
}

impl Post for Topics {
    fn post(&mut self, input: usize, bytes: Vec<u8>, mark: usize) -> Result<Option<Vec<u8>>, Fault> {
        match self.producer.lend(self.numbers[input], 0, &[], bytes, mark) {
            Ok(()) => Ok(None),
            Err((bytes, Unsent::Full)) => Ok(Some(bytes)),
            Err((_, Unsent::Wrong(wrong))) => Err(self.away(&wrong)),
        }
    }
}

impl Topics {
    fn away(&self, wrong: &Wrong) -> Fault {
        self.plan.carrier.unsent(&self.plan.name, wrong)
    }
}

impl Open {
    fn start(plan: &Arc<NearPlan>, inputs: &[String], now: i64, state: &str) -> Result<Self, Fault> {
        let topics: Vec<String> = inputs.iter().map(|stream| Carrier::topic(&plan.instrument, stream)).collect();
        let reads = plan.carrier.reads(&plan.name, topics.clone());
        let ends = ends(plan, &reads)?;
        let mut producer = plan.carrier.producer(&reads)?;
        let numbers = topics.iter().map(|topic| producer.topic(topic)).collect::<Result<_, _>>()?;
        let packer = Packer::new(inputs, &ends, state, Sizes::default(), now)?;
        Ok(Self { packer, to: Topics { producer, numbers, plan: plan.clone() }, silent: None, trouble: None })
    }

    fn step(&mut self, now: i64) -> Result<i64, Fault> {
        self.receive_reports()?;
        let next = self.packer.step(now, &mut self.to)?;
        let waiting = self.to.producer.waiting() > 0;
        self.silent = if waiting { self.silent.or(Some(now)) } else { None };
        let is_late = self.silent.is_some_and(|since| now.saturating_sub(since) > ANSWER_PATIENCE);
        let away = || self.to.away(&self.to.producer.trouble().cloned().unwrap_or_else(Wrong::timed_out));
        self.trouble = is_late.then(away);
        Ok(next)
    }

    /// Receives the acknowledgements and refusals of brokers.
    fn receive_reports(&mut self) -> Result<(), Fault> {
        let mut reports = Vec::new();
        let taken = self.to.producer.reports(&mut |report| reports.push(report));
        for Report { mark, offset, .. } in reports {
            let bytes = self.to.producer.returned(mark);
            // A purge at the end reports messages too.
            if let Err(wrong) = offset {
                return Err(taken.err().unwrap_or_else(|| self.to.away(&wrong)));
            }
            self.silent = None;
            self.packer.acknowledged(mark, bytes);
        }
        taken
    }

    fn stop(&mut self, patience: Duration) -> Result<(), Fault> {
        let until = Instant::now() + patience;
        let mut is_first = true;
        loop {
            let is_put = self.packer.close(is_first, &mut self.to)?;
            is_first = false;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || is_put && self.to.producer.waiting() == 0 {
                return Ok(());
            }
            self.to.producer.rest(left);
            self.receive_reports()?;
        }
    }

    fn status(&self) -> Value {
        let (blocks, messages) = self.packer.counts();
        json!({"blocks": blocks, "messages": messages, "waiting": self.to.producer.waiting()})
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
