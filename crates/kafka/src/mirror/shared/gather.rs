//! The source that fills the output of a worker on several hosts: it follows the order ([`super::order`]), and appends
//! the results of each block when its turn comes.
//!
//! All hosts that read the output get the same messages in the same order, that of one host with the same inputs.
//!
//! Its state is the record of the order that comes next, how far the order had come in each input, where the results of
//! each partition are read, and the account of the inputs. The entries of the stream say how many results of which
//! block it has: each has the offset of its block's record in the order, and its number there.
//!
//! The frontier is the least of the inputs, which the order carries.
//!
//! Failure behaviour: results that are not in the topic any more are lost, and counted by the messages of their block;
//! so is a record that does not verify. Where nothing of a block comes for a minute, the brokers are asked whether the
//! block is still there: without it no host will return anything. Results of blocks that are in no order are skipped.

use super::super::plan::GatherPlan;
use super::super::topics::bounds_of;
use super::collate::{Collator, Place, Reading, RecordFate};
use super::{Opened, WorkerTopics};
use crate::librdkafka::{Batch, Kind, Queue, Topic, Wrong};
use crate::limits::{
    BATCH_MESSAGES, BLOCK_ANSWERS, BLOCK_PATIENCE, BLOCK_PAUSE, BLOCK_TIMEOUT, FULL_REST, GATHER_KBYTES,
    GATHER_KBYTES_MIN, REST, RESULTS_BATCH, START_PATIENCE_MS, STEP_BYTES,
};
use flow::limits::AWAY_PATIENCE;
use flow::mirror::MirrorRequest;
use flow::records::Input;
use flow::{Fault, Outlet, Passes, Pushed, Resume, Silence, Source, Step};
use serde_json::{Value, json};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The source.
pub(crate) struct Gather {
    plan: Arc<GatherPlan>,
    open: Option<Open>,
    away: Option<Fault>,
    kept: String,
}

impl Gather {
    pub(crate) fn new(plan: GatherPlan) -> Self {
        Self { plan: Arc::new(plan), open: None, away: None, kept: String::new() }
    }
}

impl Source for Gather {
    fn start(&mut self, now: i64, resume: &Resume) -> Result<(), Fault> {
        self.kept.clone_from(&resume.state);
        match Open::start(&self.plan, now, resume) {
            Ok(open) => self.open = Some(open),
            Err(fault) if fault.passes == Passes::Soon => self.away = Some(fault),
            Err(fault) => return Err(fault),
        }
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        if let Some(fault) = self.away.take() {
            return Err(fault);
        }
        self.open.as_mut().map_or(Ok(Step::Ended), |open| open.step(now, out))
    }

    fn frontier(&self, _now: i64) -> i64 {
        self.reached()
    }

    fn reached(&self) -> i64 {
        self.open.as_ref().map_or(i64::MIN, |open| open.collator.frontier())
    }

    fn state(&self) -> String {
        self.open.as_ref().map_or_else(|| self.kept.clone(), |open| open.collator.place.text())
    }

    fn inputs(&self) -> Vec<Input> {
        self.open.as_ref().map_or_else(Vec::new, |open| open.collator.place.accounts())
    }

    fn sets_aside_for_worker(&self) -> bool {
        true
    }

    fn command(&mut self, request: &Value) -> Result<Value, Fault> {
        match (MirrorRequest::read(request)?, &mut self.open) {
            (MirrorRequest::IsAtEnd, open) => Ok(open.as_ref().is_some_and(|open| open.was_at_end).into()),
            (MirrorRequest::Absent(until), open) => {
                if let Some(open) = open {
                    let inputs = request["inputs"].as_array().into_iter().flatten().filter_map(Value::as_str);
                    open.absent = Some((until, inputs.map(str::to_owned).collect()));
                }
                Ok(Value::Null)
            }
        }
    }

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
        self.open.as_ref().map(|open| open.opened.wake.descriptor())
    }
}

/// The results of one partition. Fields are dropped from above: messages before their queue.
struct Part {
    batch: Batch,
    queue: Queue,
}

/// State after a start. Fields are dropped from above: messages before queues, all before the client.
struct Open {
    batch: Batch,
    parts: Vec<Part>,
    order: Topic,
    results: Topic,
    records: Queue,
    opened: Opened,
    plan: Arc<GatherPlan>,
    collator: Collator,
    /// Up to this time runs are sealed without the hosts of these inputs, ns since 1970 UTC.
    absent: Option<(i64, Vec<String>)>,
    was_at_end: bool,
    /// When the newest record of the order came, and since when the results of a block are awaited.
    heard: i64,
    since: Option<i64>,
    /// When the brokers were asked last whether that block is there; how often they have said in turn that it is not.
    asked: i64,
    gone: u32,
    trouble: Option<Fault>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.batch.clear();
        self.order.leave(0);
        for (at, part) in self.parts.iter_mut().enumerate() {
            part.batch.clear();
            self.results.leave(i32::try_from(at).unwrap_or(0));
        }
    }
}

impl Open {
    fn start(plan: &Arc<GatherPlan>, now: i64, resume: &Resume) -> Result<Self, Fault> {
        let kbytes = (GATHER_KBYTES / plan.shared.parts.max(1) as usize).max(GATHER_KBYTES_MIN).to_string();
        let ours = [("isolation.level", "read_committed"), ("queued.max.messages.kbytes", kbytes.as_str())];
        let opened = Opened::new(&plan.carrier, &plan.shared, (&plan.shared.name, "source"), &ours)?;
        let until = Instant::now() + Duration::from_millis(START_PATIENCE_MS as u64);
        let WorkerTopics { partitions, order: found } = opened.ensure(until)?;
        let asking = opened.asking(until);
        let mut all = vec![(opened.names.order.clone(), 0)];
        all.extend((0..partitions).map(|number| (opened.names.results.clone(), number)));
        let bounds = bounds_of(&asking, &all)?;
        let mut place = Place::read(&resume.state)?.filter(|place| place.id == found).unwrap_or_default();
        place.id.clone_from(&found);
        place.order = place.order.clamp(bounds[0].0, bounds[0].1);
        place.results.resize(bounds.len() - 1, Reading::default());
        for (Reading { offset, .. }, (first, end)) in place.results.iter_mut().zip(&bounds[1..]) {
            *offset = if *offset > *end { *first } else { (*offset).max(*first) };
        }
        let wrong = |wrong: Wrong| asking.away(&wrong);
        let client = opened.claim.client();
        let (order, results) = (
            Topic::new(client, &opened.names.order).map_err(wrong)?,
            Topic::new(client, &opened.names.results).map_err(wrong)?,
        );
        let records = Queue::new(client, &opened.wake);
        order.read(0, place.order, &records).map_err(wrong)?;
        let mut parts = Vec::new();
        for (number, reading) in (0..partitions).zip(&place.results) {
            let queue = Queue::new(client, &opened.wake);
            results.read(number, reading.offset, &queue).map_err(wrong)?;
            parts.push(Part { batch: Batch::default(), queue });
        }
        Ok(Self {
            batch: Batch::default(),
            parts,
            order,
            results,
            records,
            collator: Collator::new(place, &plan.shared.inputs, &resume.mirrored),
            plan: plan.clone(),
            absent: None,
            was_at_end: false,
            heard: now,
            since: None,
            asked: now,
            gone: 0,
            trouble: None,
            opened,
        })
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        self.opened.wake.drain();
        self.opened.claim.take_errors();
        let step = self.receive(now, out)?;
        let frontier = self.collator.frontier();
        if let Some((until, inputs)) = self.absent.take().filter(|(until, _)| *until > frontier) {
            out.silent(frontier..=until, Silence::Absent);
            self.collator.pass(&inputs, until);
        }
        self.ask_block(now, out);
        self.note_silence(now);
        Ok(step)
    }

    /// Asks the brokers whether the block is still there whose results have not come for long; counts it as lost once
    /// they have said twice that it is not, and nothing came between.
    fn ask_block(&mut self, now: i64, out: &mut dyn Outlet) {
        let (Some(since), Some((partition, block))) = (self.since, self.collator.wants()) else {
            self.gone = 0;
            return;
        };
        if self.gone >= BLOCK_ANSWERS {
            // A block that is lost is named in a commit, which may have to wait for room.
            if self.collator.lose(now, out) {
                (self.gone, self.since) = (0, None);
            }
            return;
        }
        if now.saturating_sub(since) < BLOCK_PATIENCE || now.saturating_sub(self.asked) < BLOCK_PAUSE {
            return;
        }
        self.asked = now;
        let asking = self.opened.asking(Instant::now() + BLOCK_TIMEOUT);
        let place = (self.opened.names.blocks.clone(), i32::try_from(partition).unwrap_or(0));
        let bounds = bounds_of(&asking, &[place]);
        let is_gone = bounds.is_ok_and(|bounds| bounds.first().is_some_and(|(first, _)| *first > block));
        self.gone = if is_gone { self.gone + 1 } else { 0 };
    }

    /// Notes where nothing comes any more.
    fn note_silence(&mut self, now: i64) {
        let is_late = |since: i64| now.saturating_sub(since) > AWAY_PATIENCE;
        let worker = &self.plan.shared.name;
        self.trouble = match (self.since, self.collator.wants()) {
            (Some(since), Some((partition, block))) if is_late(since) => {
                let what =
                    format!("results of worker `{worker}` have not come for {} s", (now - since) / 1_000_000_000);
                let cause = format!("block {block} of partition {partition} waits for a host");
                let hint =
                    "see `beamport hosts FILE` whether hosts of this worker are up; what they have not done waits";
                Some(Fault { passes: Passes::Soon, ..Fault::new(what, cause).hint(hint) })
            }
            _ if is_late(self.heard) => {
                let what = format!("nothing of the inputs of worker `{worker}` has come for some seconds");
                let fault = Fault::new(what, "their order has had no record since then");
                let hint = "see `beamport hosts FILE` whether the hosts of these streams are up";
                Some(Fault { passes: Passes::Soon, ..fault.hint(hint) })
            }
            _ => None,
        };
    }

    /// Follows the order, and appends results.
    fn receive(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        let mut bytes = 0;
        while bytes <= STEP_BYTES {
            let Some((partition, _)) = self.collator.wants() else {
                if !self.follow(now)? {
                    self.since = None;
                    return Ok(Step::At(now + REST));
                }
                continue;
            };
            match self.collator.append_early(now, out)? {
                Some(Pushed::Full) => return Ok(Step::At(now + FULL_REST)),
                Some(_) => continue,
                None => {}
            }
            let Part { batch, queue } = &mut self.parts[partition];
            let Some(record) = batch.front() else {
                if queue.take(batch, RESULTS_BATCH) == 0 {
                    self.since.get_or_insert(now);
                    return Ok(Step::At(now + REST));
                }
                continue;
            };
            if let Some(wrong) = record.error() {
                if wrong.kind == Kind::OffsetGone {
                    return Err(self.gone(&wrong));
                }
                batch.pop();
                continue;
            }
            self.since = None;
            let (at, key, payload) = (record.offset(), record.key().unwrap_or_default(), record.payload());
            bytes += payload.len();
            match self.collator.see_result(at, key, payload, now, out)? {
                RecordFate::Done => batch.pop(),
                RecordFate::Later => {}
                RecordFate::Full => return Ok(Step::At(now + FULL_REST)),
            }
        }
        Ok(Step::Again)
    }

    /// Reads the next record of the order. False where there is none now.
    fn follow(&mut self, now: i64) -> Result<bool, Fault> {
        let Some(record) = self.batch.front() else {
            return Ok(self.records.take(&mut self.batch, BATCH_MESSAGES) > 0);
        };
        match record.error() {
            None => {
                self.heard = now;
                self.collator.see_order(record.key().unwrap_or_default(), record.payload(), record.offset());
            }
            Some(wrong) if wrong.kind == Kind::PartitionEnd => self.was_at_end = true,
            Some(wrong) if wrong.kind == Kind::OffsetGone => return Err(self.gone(&wrong)),
            Some(_) => {}
        }
        self.batch.pop();
        Ok(true)
    }

    fn gone(&self, wrong: &Wrong) -> Fault {
        let what = format!("topic `{}` has lost its oldest messages", self.opened.names.order);
        Fault { passes: Passes::Soon, ..Fault::new(what, &wrong.text) }
    }

    fn status(&self) -> Value {
        let (messages, missing) = self.collator.counts();
        json!({"messages": messages, "missing": missing, "partitions": self.parts.len()})
    }
}
