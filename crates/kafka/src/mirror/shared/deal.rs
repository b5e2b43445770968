//! The sink that hands out the inputs of a worker on several hosts: blocks go to the partitions of
//! `INSTRUMENT.WORKER.in` in turn, and one record for each to the order ([`super::order`]).
//!
//! A block is acknowledged before its record is sent, and its messages are confirmed with the record. So whatever dies,
//! a message is in the order once: what is in a partition without a record is nobody's.
//!
//! Constraints: as those of the near side of a mirror, whose [`Packer`] makes the blocks.
//!
//! Failure behaviour: as there. A start reads the order from its newest confirmed record on, or the whole of it.

use super::super::plan::DealPlan;
use super::super::topics::bounds_of;
use super::order::{Lane, OrderRecord, Says};
use super::{Names, Opened};
use crate::librdkafka::{Batch, Queue, Topic, Unsent, Wrong};
use crate::limits::{ANSWER_PATIENCE, BATCH_MESSAGES, START_PATIENCE_MS};
use crate::producer::{Message, Producer, Report};
use flow::mirror::{Packer, Post, Sizes};
use flow::{Aside, Confirmed, Fault, LiveBatch, LiveSink};
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Block;

/// The sink.
pub(crate) struct Deal {
    plan: Arc<DealPlan>,
    inputs: Vec<String>,
    open: Option<Open>,
}

impl Deal {
    pub(crate) fn new(plan: DealPlan, inputs: &[String]) -> Self {
        Self { plan: Arc::new(plan), inputs: inputs.to_vec(), open: None }
    }

    fn open(&mut self) -> Result<&mut Open, Fault> {
        let name = &self.plan.name;
        self.open.as_mut().ok_or_else(|| Fault::new(format!("sink `{name}` has not started"), ""))
    }
}

impl LiveSink for Deal {
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
        let open = self.open()?;
        let to = &open.to;
        let state = json!({"order": to.confirmed, "life": to.life, "lanes": open.packer.state(&inputs)});
        Ok(Confirmed { below: open.packer.below(), state: state.to_string(), ..Confirmed::default() })
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

/// A block or a frontier that has no record in the order yet, or one that is not acknowledged.
struct Dealt {
    /// The mark that the packer gave it.
    mark: usize,
    says: Says,
    input: usize,
    /// Its number, from which the marks of its messages are made.
    number: usize,
    /// The brokers have the block; a frontier has none.
    is_there: bool,
    bytes: Option<Vec<u8>>,
}

/// The partitions, the order, and the client that sends to them.
struct Parts {
    producer: Producer,
    plan: Arc<DealPlan>,
    inputs: Vec<String>,
    /// Numbers of the two topics at the producer.
    blocks: usize,
    order: usize,
    partitions: i32,
    /// The partition of the next block.
    turn: i32,
    life: u64,
    number: usize,
    /// In the order of their numbers: those without a record, and those whose record is under way.
    dealt: VecDeque<Dealt>,
    ordered: VecDeque<Dealt>,
    /// The offset of the newest record that is acknowledged.
    confirmed: Option<u64>,
}

/// The marks of the block and of the record of one number.
fn marks(number: usize) -> (usize, usize) {
    (number << 1, number << 1 | 1)
}

impl Post for Parts {
    fn post(&mut self, input: usize, bytes: Vec<u8>, mark: usize) -> Result<Option<Vec<u8>>, Fault> {
        let head = match Block::read(&bytes) {
            Ok(block) => block.head,
            Err(text) => return Err(Fault::new("a block that was made cannot be read", text)),
        };
        let number = self.number;
        let dealt = Dealt { mark, says: Says::Frontier(head), input, number, is_there: true, bytes: None };
        if head.count == 0 {
            self.dealt.push_back(dealt);
        } else {
            let partition = self.turn;
            match self.producer.lend(self.blocks, partition, &self.life.to_le_bytes(), bytes, marks(number).0) {
                Ok(()) => {}
                Err((bytes, Unsent::Full)) => return Ok(Some(bytes)),
                Err((_, Unsent::Wrong(wrong))) => return Err(self.away(&wrong)),
            }
            self.turn = (partition + 1) % self.partitions;
            self.dealt.push_back(Dealt { says: Says::Block(head, partition, 0), is_there: false, ..dealt });
        }
        self.number = number.wrapping_add(1) & (usize::MAX >> 1);
        self.send_records()?;
        Ok(None)
    }
}

impl Parts {
    fn away(&self, wrong: &Wrong) -> Fault {
        self.plan.carrier.unsent(&self.plan.name, wrong)
    }

    /// Sends the records of all blocks that the brokers have, up to the first that they have not.
    fn send_records(&mut self) -> Result<(), Fault> {
        while let Some(dealt) = self.dealt.front().filter(|dealt| dealt.is_there) {
            let payload = OrderRecord { life: self.life, says: dealt.says }.bytes();
            let (key, mark) = (Some(self.inputs[dealt.input].as_bytes()), marks(dealt.number).1);
            let message = Message { partition: Some(0), key, payload: &payload, mark, ..Message::default() };
            match self.producer.send(self.order, &message) {
                Ok(()) => self.ordered.extend(self.dealt.pop_front()),
                Err(Unsent::Full) => return Ok(()),
                Err(Unsent::Wrong(wrong)) => return Err(self.away(&wrong)),
            }
        }
        Ok(())
    }

    /// The brokers have something at this offset: a block, whose record can be sent, or a record, whose block is done.
    fn acknowledge(&mut self, mark: usize, offset: u64, packer: &mut Packer) {
        let number = mark >> 1;
        if mark & 1 == 0 {
            let bytes = self.producer.returned(mark);
            if let Some(dealt) = self.dealt.iter_mut().find(|dealt| dealt.number == number)
                && let Says::Block(head, partition, _) = dealt.says
            {
                (dealt.says, dealt.is_there, dealt.bytes) = (Says::Block(head, partition, offset), true, bytes);
            }
            return;
        }
        // Those of one partition come in order.
        self.confirmed = self.confirmed.max(Some(offset));
        if self.ordered.front().is_some_and(|dealt| dealt.number == number)
            && let Some(dealt) = self.ordered.pop_front()
        {
            packer.acknowledged(dealt.mark, dealt.bytes);
        }
    }
}

/// State after a start.
struct Open {
    packer: Packer,
    to: Parts,
    /// Since when nothing was acknowledged, though something waits.
    silent: Option<i64>,
    trouble: Option<Fault>,
}

impl Open {
    fn start(plan: &Arc<DealPlan>, inputs: &[String], now: i64, state: &str) -> Result<Self, Fault> {
        let opened = Opened::new(&plan.carrier, &plan.shared, (&plan.name, "sink"), &[])?;
        let until = Instant::now() + Duration::from_millis(START_PATIENCE_MS as u64);
        let partitions = opened.ensure(until)?.partitions;
        let mut producer = plan.carrier.producer(&opened.reads)?;
        let names = Names::of(&plan.shared);
        let (blocks, order) = (producer.topic(&names.blocks)?, producer.topic(&names.order)?);
        let kept: Value = serde_json::from_str(state).unwrap_or_default();
        let life = now as u64 | 1;
        let mut to = Parts {
            producer,
            plan: plan.clone(),
            inputs: inputs.to_vec(),
            blocks,
            order,
            partitions,
            // Of several hosts not all begin with the same.
            turn: (life >> 10) as i32 & 0xffff,
            life,
            number: 0,
            dealt: VecDeque::new(),
            ordered: VecDeque::new(),
            confirmed: kept["order"].as_u64(),
        };
        to.turn %= partitions;
        let announced = to.announce(until)?;
        let former = kept["life"].as_u64().unwrap_or(0);
        let former = inputs.iter().map(|input| (input.clone(), Lane { life: former, newest: None })).collect();
        let lanes = read_order(&opened, former, to.confirmed, announced)?;
        to.confirmed = Some(announced);
        let ends: Vec<_> = inputs.iter().map(|input| lanes.get(input).and_then(|lane| lane.newest)).collect();
        let lanes = kept["lanes"].as_str().unwrap_or_default();
        let packer = Packer::new(inputs, &ends, lanes, Sizes::default(), now)?;
        Ok(Self { packer, to, silent: None, trouble: None })
    }

    fn step(&mut self, now: i64) -> Result<i64, Fault> {
        self.receive_reports()?;
        let next = self.packer.step(now, &mut self.to)?;
        self.to.send_records()?;
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
            match offset {
                Ok(offset) => {
                    self.silent = None;
                    self.to.acknowledge(mark, offset, &mut self.packer);
                }
                // A purge at the end reports messages too.
                Err(wrong) => return Err(taken.err().unwrap_or_else(|| self.to.away(&wrong))),
            }
        }
        self.to.send_records()?;
        taken
    }

    fn stop(&mut self, patience: Duration) -> Result<(), Fault> {
        let until = Instant::now() + patience;
        let mut is_first = true;
        loop {
            let is_put = self.packer.close(is_first, &mut self.to)?;
            is_first = false;
            let is_all = self.to.dealt.is_empty() && self.to.producer.waiting() == 0;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || is_put && is_all {
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

impl Parts {
    /// Announces this process for each input; the offset of the last of these records.
    fn announce(&mut self, until: Instant) -> Result<u64, Fault> {
        let payload = OrderRecord { life: self.life, says: Says::Begin }.bytes();
        for (mark, input) in self.inputs.iter().enumerate() {
            let key = Some(input.as_bytes());
            let message = Message { partition: Some(0), key, payload: &payload, mark, ..Message::default() };
            self.producer.send(self.order, &message).map_err(|unsent| match unsent {
                Unsent::Full => self.away(&Wrong::full()),
                Unsent::Wrong(wrong) => self.away(&wrong),
            })?;
        }
        let (mut newest, mut count, mut refused) = (0, 0, None);
        let mut see = |report: Report| match report.offset {
            Ok(offset) => (newest, count) = (offset.max(newest), count + 1),
            Err(wrong) => refused = Some(wrong),
        };
        let left = until.saturating_duration_since(Instant::now());
        let is_sent = self.producer.flush(left, &mut see)?;
        match refused {
            Some(wrong) => Err(self.away(&wrong)),
            None if is_sent && count == self.inputs.len() => Ok(newest),
            None => Err(self.away(&self.producer.trouble().cloned().unwrap_or_else(Wrong::timed_out))),
        }
    }
}

/// How far the order has come in each input, from the record `from` on, or from its first, up to the record `to`.
/// `lanes`: how far it was then. The order of a long time takes long to be read, as long as records come.
fn read_order(
    opened: &Opened,
    mut lanes: HashMap<String, Lane>,
    from: Option<u64>,
    to: u64,
) -> Result<HashMap<String, Lane>, Fault> {
    let patience = Duration::from_millis(START_PATIENCE_MS as u64);
    let mut until = Instant::now() + patience;
    let asking = opened.asking(until);
    let (first, _) = bounds_of(&asking, &[(opened.names.order.clone(), 0)])?[0];
    let topic = Topic::new(opened.claim.client(), &opened.names.order).map_err(|wrong| asking.away(&wrong))?;
    let records = Queue::polled(opened.claim.client());
    // The record that is confirmed says how far the input had come.
    topic.read(0, from.unwrap_or(0).max(first).min(to), &records).map_err(|wrong| asking.away(&wrong))?;
    let mut batch = Batch::default();
    let mut is_done = false;
    while !is_done && Instant::now() < until {
        records.take_within(&mut batch, BATCH_MESSAGES, 100);
        while let Some(record) = batch.front() {
            if record.error().is_none() {
                let name = record.key().and_then(|key| std::str::from_utf8(key).ok());
                if let Some((name, said)) = name.zip(OrderRecord::read(record.payload())) {
                    let lane = lanes.entry(name.to_owned()).or_default();
                    if lane.accepts(&said) {
                        lane.follow(&said);
                    }
                }
                is_done |= record.offset() >= to;
                until = Instant::now() + patience;
            }
            batch.pop();
        }
    }
    batch.clear();
    topic.leave(0);
    if is_done { Ok(lanes) } else { Err(asking.away(&Wrong::timed_out())) }
}
