//! The far side: takes blocks from the topic of a stream and fills a mirror with their messages.
//!
//! Its state is the offset of the next record. The entries of the mirror say which messages it has: those that come
//! twice are dropped, however far behind the state is.
//!
//! The frontier is that of the near stream, which blocks carry: never the clock. A host that is away stops it.
//!
//! Failure behaviour: brokers that are away, and a near host of which nothing comes, are its trouble. Messages that are
//! not in the topic any more, or do not verify, are in the account with the sequences of the near stream.

use super::follow::{Admission, Follow};
use super::plan::{Carrier, FarPlan};
use super::topics::{bounds, ensure};
use crate::asking::Asking;
use crate::client::Claim;
use crate::librdkafka::{Batch, Content, Kind, Mark, Queue, Topic, TopicAnswer, Wake, Wrong};
use crate::limits::{
    ANSWER_PATIENCE, ANSWER_TIMEOUT_MS, AWAY_PATIENCE, BATCH_MESSAGES, FULL_REST, REST, START_PATIENCE_MS, STEP_BYTES,
    TOPICS_PAUSE,
};
use crate::plan::Plan;
use crate::source::reading;
use flow::{Fault, Identity, Outlet, Passes, Pushed, Resume, Source, Step};
use serde_json::{Value, json};
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Block, Meta, Mirrored};

/// The source.
pub(crate) struct Far {
    plan: Arc<FarPlan>,
    open: Option<Open>,
    /// Brokers did not answer at the start: the first step fails, so that the source is started again after a pause,
    /// and nobody waits for it.
    away: Option<Fault>,
    kept: String,
}

impl Far {
    pub(crate) fn new(plan: FarPlan) -> Self {
        Self { plan: Arc::new(plan), open: None, away: None, kept: String::new() }
    }
}

impl Source for Far {
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
        self.open.as_ref().map_or(i64::MIN, |open| open.frontier)
    }

    fn state(&self) -> String {
        self.open.as_ref().map_or_else(|| self.kept.clone(), Open::state)
    }

    /// Messages that are sent while it is away stay in the topic.
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
        self.open.as_ref().map(|open| open.wake.descriptor())
    }
}

/// The progress in the block that is received.
#[derive(Default)]
struct Current {
    /// Messages that are done.
    done: usize,
    admission: Option<Admission>,
}

/// State after a start. Fields are dropped from above: messages before their queue, all before the client.
struct Open {
    batch: Batch,
    topic: Topic,
    records: Queue,
    answers: Queue,
    wake: Arc<Wake>,
    claim: Claim,
    plan: Arc<FarPlan>,
    reads: Plan,
    /// The topic's identity.
    id: String,
    /// The offset of the record that is taken next.
    offset: u64,
    follow: Follow,
    current: Current,
    /// Names of origins of the newest block, and their rows in the mirror.
    origins: (Vec<String>, Vec<u32>),
    frontier: i64,
    /// When the newest block came, ns since 1970 UTC.
    heard: i64,
    /// When the topic is asked for again, and since when the question waits for its answer.
    due: i64,
    asked: Option<i64>,
    missing: u64,
    messages: u64,
    trouble: Option<Fault>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.batch.clear();
        self.topic.leave(0);
    }
}

impl Open {
    fn start(plan: &Arc<FarPlan>, now: i64, resume: &Resume) -> Result<Self, Fault> {
        let name = Carrier::topic(&plan.instrument, &plan.mirror.stream);
        let reads = plan.carrier.reads(&plan.mirror.name, vec![name.clone()]);
        let properties = reading(&reads)?;
        let claim = Claim::new(properties, &reads.topics).map_err(|(name, text)| reads.side().refused(&name, text))?;
        let wake = Wake::new().map_err(|e| Fault::io(format!("source `{}` cannot start", reads.name), &e))?;
        let wake = Arc::new(wake);
        let (records, answers) = (Queue::new(claim.client(), &wake), Queue::new(claim.client(), &wake));
        let until = Instant::now() + Duration::from_millis(START_PATIENCE_MS as u64);
        let asking = Asking { plan: &reads, claim: &claim, answers: &answers, until };
        let found = ensure(&asking, &plan.carrier)?;
        let (first, end) = bounds(&asking, &found)?.first().copied().unwrap_or_default();
        let id = found.into_iter().next().map(|topic| topic.id).unwrap_or_default();
        let offset = match read_state(&resume.state)? {
            // Another topic, or one that has lost its end: the mirror drops what it has.
            Some((known, _)) if known != id && !known.is_empty() && !id.is_empty() => first,
            Some((_, offset)) if offset > end => first,
            Some((_, offset)) => offset.max(first),
            None => first,
        };
        let topic = Topic::new(claim.client(), &name).map_err(|wrong| reads.side().away(&wrong))?;
        topic.read(0, offset, &records).map_err(|wrong| reads.side().away(&wrong))?;
        Ok(Self {
            batch: Batch::default(),
            topic,
            records,
            answers,
            wake,
            claim,
            plan: plan.clone(),
            reads,
            id,
            offset,
            follow: Follow::new(&resume.mirrored),
            current: Current::default(),
            origins: Default::default(),
            frontier: i64::MIN,
            heard: now,
            due: now + TOPICS_PAUSE,
            asked: None,
            missing: 0,
            messages: 0,
            trouble: None,
        })
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        self.wake.drain();
        self.ask(now)?;
        let step = self.receive(now, out)?;
        let is_silent = self.asked.is_some_and(|since| now.saturating_sub(since) > ANSWER_PATIENCE);
        self.trouble = if is_silent {
            Some(self.reads.side().away(&self.claim.said().unwrap_or_else(Wrong::timed_out)))
        } else {
            (now.saturating_sub(self.heard) > AWAY_PATIENCE).then(|| self.away(now))
        };
        Ok(step)
    }

    /// Nothing comes of the near host.
    fn away(&self, now: i64) -> Fault {
        let (mirror, seconds) = (&self.plan.mirror, now.saturating_sub(self.heard) / 1_000_000_000);
        let what =
            format!("host `{}` is away: nothing of stream `{}` has come for {seconds} s", mirror.host, mirror.stream);
        Fault::new(what, "neither messages nor beats are in its topic")
            .hint(format!("start it: `beamport up FILE --host {}`; the mirror waits", mirror.host))
    }

    /// Asks whether the topic is still the same.
    fn ask(&mut self, now: i64) -> Result<(), Fault> {
        self.claim.take_errors();
        while let Some(event) = self.answers.event(0) {
            match event.content() {
                Content::Unanswered(..) => self.asked = None,
                Content::Topics(topics) => {
                    self.asked = None;
                    self.claim.answered();
                    topics.into_iter().next().map_or(Ok(()), |topic| self.compare(&topic))?;
                }
                _ => {}
            }
        }
        if self.asked.is_none() && (now >= self.due || self.due.saturating_sub(now) > TOPICS_PAUSE) {
            let asked = self.claim.client().ask_topics(
                &self.reads.topics,
                false,
                ANSWER_TIMEOUT_MS,
                Mark::Topics,
                &self.answers,
            );
            asked.map_err(|wrong| self.reads.side().away(&wrong))?;
            (self.asked, self.due) = (Some(now), now + TOPICS_PAUSE);
        }
        Ok(())
    }

    /// A topic that was deleted, and perhaps made again, is opened again.
    fn compare(&self, topic: &TopicAnswer) -> Result<(), Fault> {
        let is_gone = topic.wrong.as_ref().is_some_and(|wrong| wrong.kind == Kind::NoTopic);
        let is_other = !self.id.is_empty() && !topic.id.is_empty() && topic.id != self.id;
        if is_gone || is_other {
            let what = format!("topic `{}` was deleted", topic.name);
            let fault = Fault::new(what, "somebody has removed it, with the messages that it held");
            return Err(Fault { passes: Passes::Soon, ..fault.hint("beamport makes it again") });
        }
        Ok(())
    }

    /// Appends the records that librdkafka has fetched.
    fn receive(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        let mut bytes = 0;
        loop {
            while let Some(record) = self.batch.front() {
                match record.error() {
                    None => {
                        let offset = record.offset();
                        let block = Block::read(record.payload());
                        bytes += record.payload().len();
                        self.heard = now;
                        let Current { done, admission } = &mut self.current;
                        let mut state = MirrorState {
                            follow: &mut self.follow,
                            origins: &mut self.origins,
                            missing: &mut self.missing,
                            messages: &mut self.messages,
                            plan: &self.plan,
                            now,
                        };
                        match block {
                            Ok(block) => {
                                if state.append(&block, done, admission, out)? == Pushed::Full {
                                    return Ok(Step::At(now + FULL_REST));
                                }
                                self.frontier = self.frontier.max(block.head.frontier);
                            }
                            Err(text) => {
                                let text = format!("record {offset} of the topic is no block: {text}");
                                out.aside("damaged", &text, now, record.payload());
                            }
                        }
                        self.current = Current::default();
                        self.offset = offset + 1;
                    }
                    Some(wrong) if wrong.kind == Kind::PartitionEnd => {}
                    Some(wrong) if wrong.kind == Kind::OffsetGone => {
                        let fault = Fault::new(
                            format!("topic `{}` has lost its oldest messages", self.reads.topics[0]),
                            wrong.text,
                        );
                        return Err(Fault { passes: Passes::Soon, ..fault });
                    }
                    Some(wrong) => self.trouble = Some(self.reads.side().away(&wrong)),
                }
                self.batch.pop();
                if bytes > STEP_BYTES {
                    return Ok(Step::Again);
                }
            }
            if self.records.take(&mut self.batch, BATCH_MESSAGES) == 0 {
                return Ok(Step::At((now + REST).min(self.due).max(now + 1)));
            }
        }
    }

    fn state(&self) -> String {
        json!({"id": self.id, "offset": self.offset}).to_string()
    }

    fn status(&self) -> Value {
        json!({"host": self.plan.mirror.host, "messages": self.messages, "missing": self.missing})
    }
}

/// The parts of the state that a block changes.
struct MirrorState<'a> {
    follow: &'a mut Follow,
    origins: &'a mut (Vec<String>, Vec<u32>),
    missing: &'a mut u64,
    messages: &'a mut u64,
    plan: &'a FarPlan,
    /// ns since 1970 UTC.
    now: i64,
}

impl MirrorState<'_> {
    /// Appends the messages that the mirror has not, from the first that is not done. Full: the same block again.
    fn append(
        &mut self,
        block: &Block<'_>,
        done: &mut usize,
        admission: &mut Option<Admission>,
        out: &mut dyn Outlet,
    ) -> Result<Pushed, Fault> {
        let head = &block.head;
        if block.is_empty() && head.uuid == [0; 16] {
            return Ok(Pushed::Taken);
        }
        if admission.is_none() {
            let new = self.follow.admit(head);
            self.miss(head.uuid, head.epoch, &new.gone, "retention", out);
            self.miss(head.uuid, head.epoch, &new.unsent, "near", out);
            *done = new.doubles;
            *admission = Some(new);
        }
        if self.origins.0.iter().map(String::as_str).ne(block.origins.iter().copied()) {
            let rows = block.origins.iter().map(|name| out.origin(name)).collect::<Result<Vec<_>, _>>()?;
            *self.origins = (block.origins.iter().map(|name| (*name).to_owned()).collect(), rows);
        }
        while *done < block.len() {
            let sequence = head.first + *done as u64;
            let near = Identity { uuid: head.uuid, epoch: head.epoch, sequence };
            let Some(message) = block.message(*done) else {
                self.miss(head.uuid, head.epoch, &(sequence..sequence + 1), "damaged", out);
                *done += 1;
                continue;
            };
            let entry = &message.entry;
            let meta = Meta {
                source_time: entry.source_time,
                origin: self.origins.1[entry.origin as usize],
                origin_seq: entry.origin_seq,
                schema: entry.schema,
                flags: entry.flags,
            };
            let mirrored = Mirrored { meta, arrival_time: entry.arrival_time, near, crc: message.sum };
            if out.push_mirrored(&mirrored, message.payload)? == Pushed::Full {
                return Ok(Pushed::Full);
            }
            *done += 1;
            *self.messages += 1;
            self.follow.append(near);
        }
        Ok(Pushed::Taken)
    }

    /// Enters messages that are missing into the account.
    fn miss(&mut self, uuid: [u8; 16], epoch: u32, sequences: &Range<u64>, reason: &str, out: &mut dyn Outlet) {
        if sequences.is_empty() {
            return;
        }
        let (first, last) = (sequences.start, sequences.end - 1);
        let flow::edge::Mirror { stream, host, .. } = &self.plan.mirror;
        let text = format!("messages {first} to {last} of stream `{stream}` of host `{host}` are missing: {reason}");
        out.aside("hole", &text, self.now, &[]);
        *self.missing += sequences.end - sequences.start;
        out.missing_near(first..=last, reason);
        self.follow.append(Identity { uuid, epoch, sequence: last });
    }
}

/// The identity of the topic and the next offset in it; nothing before the first state.
fn read_state(text: &str) -> Result<Option<(String, u64)>, Fault> {
    if text.is_empty() {
        return Ok(None);
    }
    let value: Option<Value> = serde_json::from_str(text).ok();
    let read = value.and_then(|value| Some((value["id"].as_str()?.to_owned(), value["offset"].as_u64()?)));
    let wrong = || Fault::new("the state that was kept beside the mirror cannot be read", text);
    read.map(Some).ok_or_else(wrong)
}
