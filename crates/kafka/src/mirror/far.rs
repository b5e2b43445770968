//! The far side: takes blocks from the topic of a stream and fills a mirror with their messages, as [`Unpacker`] says.
//!
//! Its state is the offset of the next record, and holes that no message follows yet. The entries of the mirror say
//! which messages it has: those that come twice are dropped, however far behind the state is.
//!
//! The frontier is that of the near stream, which blocks carry: never the clock. A host that is away stops it.
//!
//! Failure behaviour: brokers that are away, and a near host of which nothing comes, are its trouble. Messages that are
//! not in the topic any more, or do not verify, are in the account with the sequences of the near stream.

use super::plan::{Carrier, FarPlan};
use super::topics::{bounds, ensure};
use crate::asking::Asking;
use crate::client::Claim;
use crate::librdkafka::{Batch, Content, Kind, Mark, Queue, Topic, TopicAnswer, Wake, Wrong};
use crate::limits::{
    ANSWER_PATIENCE, ANSWER_TIMEOUT_MS, BATCH_MESSAGES, FULL_REST, REST, START_PATIENCE_MS, STEP_BYTES, TOPICS_PAUSE,
};
use crate::plan::Plan;
use crate::source::reading;
use flow::limits::AWAY_PATIENCE;
use flow::mirror::{MirrorRequest, Place, Unpacker};
use flow::{Fault, Outlet, Passes, Pushed, Resume, Silence, Source, Step};
use serde_json::{Value, json};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

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

    /// `{"absent": TIME}`: runs are sealed without the near host up to this time, ns since 1970 UTC.
    /// `{"is_at_end": true}`: whether it has read all that was in the topic at some time since its start.
    fn command(&mut self, request: &Value) -> Result<Value, Fault> {
        match (MirrorRequest::read(request)?, &mut self.open) {
            (MirrorRequest::IsAtEnd, open) => Ok(open.as_ref().is_some_and(|open| open.was_at_end).into()),
            (MirrorRequest::Absent(until), open) => {
                if let Some(open) = open {
                    open.absent = Some(until);
                }
                Ok(Value::Null)
            }
        }
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
    unpacker: Unpacker,
    /// The end of the topic was reached.
    was_at_end: bool,
    frontier: i64,
    /// Up to this time runs are sealed without the near host, ns since 1970 UTC.
    absent: Option<i64>,
    /// When the newest block came, ns since 1970 UTC.
    heard: i64,
    /// When the topic is asked for again, and since when the question waits for its answer.
    due: i64,
    asked: Option<i64>,
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
        let place = Place::read(&resume.state)?;
        let offset = Place::begin(place.as_ref(), &id, first, end);
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
            unpacker: Unpacker::new(resume, place.as_ref()),
            was_at_end: false,
            frontier: i64::MIN,
            absent: None,
            heard: now,
            due: now + TOPICS_PAUSE,
            asked: None,
            trouble: None,
        })
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        self.wake.drain();
        self.ask(now)?;
        let step = self.receive(now, out)?;
        // After what is there.
        if let Some(until) = self.absent.take().filter(|until| *until > self.frontier) {
            out.silent(self.frontier..=until, Silence::Absent);
            self.frontier = until;
        }
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
            format!("nothing of stream `{}` has come from host `{}` for {seconds} s", mirror.stream, mirror.host);
        Fault::new(what, "its topic has had no block since then")
            .hint(format!("see `beamport hosts FILE` whether host `{}` is up; the mirror waits", mirror.host))
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
                        self.heard = now;
                        let mirror = &self.plan.mirror;
                        if self.unpacker.append_record(record.payload(), offset, mirror, now, out)? == Pushed::Full {
                            return Ok(Step::At(now + FULL_REST));
                        }
                        bytes += record.payload().len();
                        self.frontier = self.frontier.max(self.unpacker.frontier());
                        self.offset = offset + 1;
                    }
                    Some(wrong) if wrong.kind == Kind::PartitionEnd => self.was_at_end = true,
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
        Place { id: self.id.clone(), offset: self.offset, kept: self.unpacker.kept() }.text()
    }

    fn status(&self) -> Value {
        let (messages, missing) = self.unpacker.counts();
        json!({"host": self.plan.mirror.host, "messages": messages, "missing": missing})
    }
}
