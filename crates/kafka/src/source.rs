//! The source: topics of a cluster into a stream.
//!
//! At its start it asks which partitions there are and where each begins and ends, which may take seconds. A step takes
//! what librdkafka has fetched, in batches, and never waits.
//!
//! The frontier is a source time, and messages come later than theirs. A partition is complete up to the later of two
//! times: what its messages show (Kafka's time of the newest, less half again the longest lag seen between source time
//! and Kafka's), and, where all that was there when the ends were asked for has been received, the time of the question
//! less `wait`. The frontier of the source is the least over its partitions. For `wait` after brokers were away the
//! question shows nothing: producers still retry.
//!
//! The source asks ten times a second where the partitions end. Brokers that do not answer stop the frontier, so that
//! no run seals without their messages. So does a topic that is not there yet, and a partition whose end has fallen,
//! until the brokers say that its topic is still the same: a topic that was deleted and made again begins at 0, and its
//! messages are not received yet.

use crate::asking::{Asking, Offsets};
use crate::client::{Claim, Pairs};
use crate::header::{self, Sent};
use crate::librdkafka::{
    Batch, Client, Content, Kind, Mark, OffsetAnswer, Queue, Record, Spec, Topic, TopicAnswer, Wake, Wrong,
};
use crate::limits::{
    ANSWER_PATIENCE, ANSWER_TIMEOUT_MS, BATCH_MESSAGES, ENDS_PAUSE, FULL_REST, OUTAGE_MIN, PARTITIONS_MAX, PROPERTIES,
    REST, START_PATIENCE_MS, STEP_BYTES, STEP_MESSAGES, TOPICS_PAUSE,
};
use crate::origins::Origins;
use crate::partition::{Given, Partition};
use crate::plan::{Plan, Start};
use crate::state::{self, Kept, Known, Now, Place, Resumed, State, TopicState};
use crate::trouble::Trouble;
use flow::{Fault, Outlet, Passes, Pushed, Resume, Source, Step};
use serde_json::{Value, json};
use settings::units::When;
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A source of kind `kafka`.
pub(crate) struct Kafka {
    plan: Arc<Plan>,
    open: Option<Open>,
    /// Brokers did not answer at the start: the first step fails, so that the source is started again after a pause,
    /// and nobody waits for it.
    away: Option<Fault>,
    /// The state at the start, which stays until the source has asked the brokers.
    kept: String,
}

impl Kafka {
    pub(crate) fn new(plan: Plan) -> Self {
        Self { plan: Arc::new(plan), open: None, away: None, kept: String::new() }
    }
}

impl Source for Kafka {
    fn start(&mut self, now: i64, resume: &Resume) -> Result<(), Fault> {
        self.kept.clone_from(&resume.state);
        match Open::start(self.plan.clone(), now, resume) {
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

    /// Messages that are sent while the source is away stay in the topics.
    fn misses(&self) -> bool {
        false
    }

    /// The numbers of messages that are repeated do not say where their partitions stand.
    fn needs_tail(&self) -> bool {
        self.plan.mirror
    }

    fn trouble(&self) -> Option<Fault> {
        let open = self.open.as_ref()?;
        open.trouble.clone().or_else(|| open.missing.clone())
    }

    fn status(&self) -> Value {
        self.open.as_ref().map_or(Value::Null, Open::status)
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.open.as_ref().map(|open| open.wake.descriptor())
    }
}

/// A topic that is read.
struct OpenTopic {
    name: String,
    id: String,
    /// None of a topic that is not there: it has no partitions then.
    topic: Option<Topic>,
    /// Its partitions, by number: their places among those of the source.
    partitions: Vec<usize>,
    /// Of a topic that is not there, where it stood.
    stood: TopicState,
}

impl OpenTopic {
    fn new(client: &Arc<Client>, plan: &Plan, answer: &TopicAnswer, state: &State) -> Result<Self, Fault> {
        let name = answer.name.clone();
        let is_there = answer.wrong.is_none() && answer.partitions > 0;
        let open = || Topic::new(client, &name).map_err(|wrong| plan.wrong(&name, None, &wrong));
        let topic = is_there.then(open).transpose()?;
        let stood = state.get(&name).filter(|_| !is_there).cloned().unwrap_or_default();
        let id = if is_there { answer.id.clone() } else { String::new() };
        Ok(Self { name, id, topic, partitions: Vec::new(), stood })
    }

    /// As it is kept.
    fn keep(&self, partitions: &[Partition]) -> TopicState {
        match &self.topic {
            Some(_) => {
                let partitions = self.partitions.iter().map(|at| partitions[*at].keep()).collect();
                TopicState { id: self.id.clone(), partitions }
            }
            None => self.stood.clone(),
        }
    }
}

/// A question that is asked again and again.
#[derive(Default)]
struct Question {
    /// When the one that waits for its answer was asked.
    asked: Option<i64>,
    /// When the next is due.
    due: i64,
}

impl Question {
    /// Whether it is to be asked now. The clock of the machine may have been set back.
    fn ask(&mut self, now: i64) -> bool {
        let is_due = self.asked.is_none() && (now >= self.due || self.due.saturating_sub(now) > TOPICS_PAUSE);
        if is_due {
            self.asked = Some(now);
        }
        is_due
    }

    /// It was answered, or will not be.
    fn close(&mut self, due: i64) -> Option<i64> {
        self.due = due;
        self.asked.take()
    }
}

/// What there is after a start. Fields are dropped from above: messages before their queue, all before the client.
struct Open {
    batch: Batch,
    topics: Vec<OpenTopic>,
    records: Queue,
    answers: Queue,
    wake: Arc<Wake>,
    claim: Claim,
    plan: Arc<Plan>,
    partitions: Vec<Partition>,
    /// Places of partitions by what their messages say.
    by_place: HashMap<(usize, i32), usize>,
    /// That of the newest message, with what it says: most have the same.
    last: ((usize, i32), usize),
    ends: Question,
    which: Question,
    /// When the ends were asked for that the partitions have.
    known: Option<i64>,
    /// When all ends were last answered.
    answered: Option<i64>,
    /// The newest time in which brokers were away: its begin and its end.
    outage: Option<(i64, i64)>,
    /// When an end was seen to fall; until the topics are known to be the same.
    fallen: Option<i64>,
    /// Since when no question was answered.
    silent: Option<i64>,
    /// The clock has passed `stop`.
    stop: Stop,
    frontier: i64,
    trouble: Option<Fault>,
    /// A topic is not there, or a partition that `start` names.
    missing: Option<Fault>,
    /// Origins that are repeated, with `mirror`.
    origins: Option<Origins>,
    /// Ends the source once it has taken what librdkafka has fetched.
    doom: Option<Fault>,
}

/// Where the source ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// Nowhere, or not yet.
    Ahead,
    /// It is asked for the offsets; nothing is taken meanwhile.
    Asked,
    /// Each partition has its limit.
    Known,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.batch.clear();
        for OpenTopic { topic, partitions, .. } in &self.topics {
            topic.iter().for_each(|topic| (0..partitions.len()).for_each(|number| topic.leave(number as i32)));
        }
    }
}

/// How a step ended.
enum Taken {
    /// Nothing is left.
    All,
    /// More is there.
    More,
    /// The stream has no room.
    Full,
}

/// The properties of the client: ours, and those of the section, which win.
pub(crate) fn reading(plan: &Plan) -> Result<Pairs, Fault> {
    let ours = [
        ("bootstrap.servers", plan.brokers.as_str()),
        ("enable.partition.eof", "true"),
        ("auto.offset.reset", "error"),
    ];
    let mut pairs: Pairs =
        PROPERTIES.iter().chain(&ours).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    for (name, value) in plan.side().pairs()? {
        match pairs.iter_mut().find(|(known, _)| *known == name) {
            Some(pair) => pair.1 = value,
            None => pairs.push((name, value)),
        }
    }
    Ok(pairs)
}

impl Open {
    fn start(plan: Arc<Plan>, now: i64, resume: &Resume) -> Result<Self, Fault> {
        let state = state::read(&resume.state)?;
        let claim =
            Claim::new(reading(&plan)?, &plan.topics).map_err(|(name, text)| plan.side().refused(&name, text))?;
        let wake = Wake::new().map_err(|e| Fault::io(format!("source `{}` cannot start", plan.name), &e))?;
        let wake = Arc::new(wake);
        let (records, answers) = (Queue::new(claim.client(), &wake), Queue::new(claim.client(), &wake));
        let until = Instant::now() + Duration::from_millis(START_PATIENCE_MS as u64);
        let asking = Asking { plan: &plan, claim: &claim, answers: &answers, until };
        let found = asking.topics()?;
        let mut all = Vec::new();
        for topic in &found {
            match &topic.wrong {
                Some(wrong) if wrong.kind != Kind::NoTopic => return Err(plan.wrong(&topic.name, None, wrong)),
                // It is asked for again.
                Some(_) => {}
                None => all.extend((0..topic.partitions).map(|number| (topic.name.clone(), number as i32))),
            }
        }
        if all.len() > PARTITIONS_MAX {
            return Err(plan.too_many(all.len()));
        }
        let known = Known { state: &state, resume, mirrors: plan.mirror };
        let partitions = places(&asking, &known, &found, &all, now)?;
        let topics = found.iter().map(|topic| OpenTopic::new(claim.client(), &plan, topic, &state));
        let topics = topics.collect::<Result<Vec<_>, Fault>>()?;
        let origins = plan.mirror.then(|| Origins::new(resume, &plan.topics));
        let mut open = Self {
            batch: Batch::default(),
            topics,
            records,
            answers,
            wake,
            claim,
            plan,
            partitions: Vec::new(),
            by_place: HashMap::new(),
            last: ((0, 0), 0),
            ends: Question::default(),
            which: Question { asked: None, due: now + TOPICS_PAUSE },
            known: None,
            answered: None,
            outage: None,
            fallen: None,
            silent: None,
            stop: Stop::Ahead,
            frontier: i64::MIN,
            trouble: None,
            missing: None,
            origins,
            doom: None,
        };
        partitions.into_iter().try_for_each(|partition| open.read(partition))?;
        open.missing = open.missing();
        Ok(open)
    }

    /// The fault of the first topic that is not there, or of the first partition that `start` names and no topic has;
    /// both may come later.
    fn missing(&self) -> Option<Fault> {
        if let Some(topic) = self.topics.iter().find(|topic| topic.topic.is_none()) {
            return Some(self.plan.no_topic(&topic.name));
        }
        let Start::Offsets(offsets) = &self.plan.start.value else { return None };
        offsets.keys().find_map(|origin| {
            let (name, number) = origin.rsplit_once('/')?;
            let topic = self.topics.iter().find(|topic| topic.name == name)?;
            let is_there = number.parse().is_ok_and(|number: usize| number < topic.partitions.len());
            (!is_there).then(|| self.plan.no_partition(name, number, topic.partitions.len()))
        })
    }

    /// Reads a partition, the next of its topic, from where it resumes.
    fn read(&mut self, partition: Partition) -> Result<(), Fault> {
        let topic = &mut self.topics[partition.topic];
        let Some(open) = &topic.topic else { return Ok(()) };
        let begun = open.read(partition.number, partition.from(), &self.records);
        begun.map_err(|wrong| self.plan.wrong(&topic.name, Some(partition.number), &wrong))?;
        let at = self.partitions.len();
        topic.partitions.push(at);
        self.by_place.insert((open.key(), partition.number), at);
        self.partitions.push(partition);
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        self.wake.drain();
        self.take_answers(now)?;
        self.ask(now)?;
        // Past the time of the stop nothing is taken before it is known which messages are.
        let holds = self.stop != Stop::Known && self.plan.stop.is_some_and(|stop| now >= stop);
        let taken = if holds { Taken::All } else { self.take(now, out)? };
        if matches!(taken, Taken::All)
            && let Some(fault) = self.doom.take()
        {
            return Err(fault);
        }
        self.advance();
        let late = self.silent.filter(|since| now.saturating_sub(*since) > ANSWER_PATIENCE);
        self.trouble = late.map(|_| self.plan.side().away(&self.claim.said().unwrap_or_else(Wrong::timed_out)));
        if self.stop == Stop::Known && self.partitions.iter().all(Partition::is_done) {
            return Ok(Step::Ended);
        }
        Ok(match taken {
            Taken::More => Step::Again,
            Taken::Full => Step::At(now + FULL_REST),
            Taken::All => {
                let due = |question: &Question| question.asked.map_or(question.due, |_| i64::MAX);
                let ends = if self.partitions.is_empty() { i64::MAX } else { due(&self.ends) };
                Step::At((now + REST).min(ends).min(due(&self.which)).max(now + 1))
            }
        })
    }

    /// Advances the frontiers of the partitions, and that of the source.
    fn advance(&mut self) {
        if let Some(asked) = self.known {
            let wait = self.plan.wait;
            let shown = match self.outage {
                Some((begin, end)) if asked < end.saturating_add(wait) => begin,
                _ => asked,
            };
            let even = self.partitions.iter_mut().filter(|partition| partition.is_even());
            even.for_each(|partition| partition.frontier = partition.frontier.max(shown.saturating_sub(wait)));
        }
        let least = self.partitions.iter().map(|partition| partition.frontier).min();
        if let Some(least) = least.filter(|_| self.are_there()) {
            self.frontier = self.frontier.max(least);
        }
    }

    /// Whether all topics are there.
    fn are_there(&self) -> bool {
        self.topics.iter().all(|topic| topic.topic.is_some())
    }

    /// Takes the answers of brokers.
    fn take_answers(&mut self, now: i64) -> Result<(), Fault> {
        self.claim.take_errors();
        while let Some(event) = self.answers.event(0) {
            let answers = event.content();
            match &answers {
                Content::Unanswered(Mark::Topics, _) => drop(self.which.close(now + TOPICS_PAUSE)),
                Content::Unanswered(Mark::Stop, _) => self.stop = Stop::Ahead,
                Content::Unanswered(_, _) => drop(self.ends.close(now + ENDS_PAUSE)),
                Content::Topics(topics) => {
                    let asked = self.which.close(now + TOPICS_PAUSE);
                    self.take_topics(topics)?;
                    self.fallen = self.fallen.filter(|since| asked.is_none_or(|asked| asked < *since));
                }
                Content::Offsets(Mark::Stop, rows) => self.take_stop(rows),
                Content::Offsets(_, rows) => self.take_ends(rows, now),
                Content::Error(_) | Content::Created(_) | Content::Nothing => {}
            }
            if matches!(answers, Content::Topics(_) | Content::Offsets(..)) {
                self.silent = None;
                self.claim.answered();
            }
        }
        Ok(())
    }

    /// Finds partitions that are new, and topics that are not those of the start.
    fn take_topics(&mut self, answers: &[TopicAnswer]) -> Result<(), Fault> {
        for answer @ TopicAnswer { name, id, partitions, wrong, .. } in answers {
            let Some(at) = self.topics.iter().position(|topic| topic.name == *name) else { continue };
            let topic = &self.topics[at];
            if let Some(wrong) = wrong {
                let is_known = wrong.kind == Kind::NoTopic && topic.topic.is_none();
                let lasting = || self.plan.lasting(name, wrong).filter(|_| !is_known);
                self.doom = self.doom.take().or_else(lasting);
                continue;
            }
            if topic.topic.is_none() && *partitions > 0 {
                if !topic.stood.partitions.is_empty() {
                    self.doom = self.doom.take().or_else(|| Some(self.plan.came_back(name)));
                    continue;
                }
                self.topics[at] = OpenTopic::new(self.claim.client(), &self.plan, answer, &State::new())?;
            } else if !topic.id.is_empty() && !id.is_empty() && topic.id != *id {
                self.doom = self.doom.take().or_else(|| Some(self.plan.made_again(name)));
                continue;
            }
            for number in self.topics[at].partitions.len()..*partitions {
                self.add(at, number)?;
            }
            self.missing = self.missing();
        }
        Ok(())
    }

    /// Reads a partition that a topic has got, from its first message or from the offset that `start` names.
    fn add(&mut self, topic: usize, number: usize) -> Result<(), Fault> {
        if self.partitions.len() >= PARTITIONS_MAX {
            return Err(self.plan.too_many(self.partitions.len() + 1));
        }
        let name = &self.topics[topic].name;
        let place = Place { next: self.plan.declared(name, number).unwrap_or(0), life: 1, ..Place::default() };
        let resumed = Resumed { kept: Kept { place, ..Kept::default() }, from: place.next };
        let origin = state::origin(name, number, place.life);
        self.read(Partition::new((topic, number as i32), origin, resumed, (0, 0), None))
    }

    fn partition_of(&mut self, topic: &str, number: i32) -> Option<&mut Partition> {
        let topic = self.topics.iter().find(|known| known.name == topic)?;
        let at = *topic.partitions.get(usize::try_from(number).ok()?)?;
        self.partitions.get_mut(at)
    }

    fn take_ends(&mut self, rows: &[OffsetAnswer], now: i64) {
        let asked = self.ends.close(now + ENDS_PAUSE);
        let mut is_whole = rows.len() == self.partitions.len();
        for OffsetAnswer { topic, partition: number, offset, .. } in rows {
            match offset {
                Ok(end) => {
                    let Some(partition) = self.partition_of(topic, *number) else { continue };
                    let end = end.unwrap_or(0);
                    if std::mem::replace(&mut partition.end, end) > end {
                        self.fallen.get_or_insert(now);
                        self.which.due = now;
                    }
                }
                Err(wrong) => {
                    self.doom = self.doom.take().or_else(|| self.plan.lasting(topic, wrong));
                    is_whole = false;
                }
            }
        }
        self.known = asked.filter(|_| is_whole && self.fallen.is_none() && self.are_there());
        if let Some(asked) = self.known
            && let Some(before) = self.answered.replace(asked)
            && asked.saturating_sub(before) > OUTAGE_MIN
        {
            self.outage = Some((before, asked));
        }
    }

    /// Takes the offsets at which the source ends; the end is one that was asked for after the time of the stop.
    fn take_stop(&mut self, rows: &[OffsetAnswer]) {
        let mut limits = Vec::new();
        for OffsetAnswer { topic, partition: number, offset, .. } in rows {
            match offset {
                Ok(offset) => limits.push((topic, *number, *offset)),
                Err(wrong) => {
                    self.stop = Stop::Ahead;
                    self.doom = self.doom.take().or_else(|| self.plan.lasting(topic, wrong));
                    return;
                }
            }
        }
        for (topic, number, offset) in limits {
            if let Some(partition) = self.partition_of(topic, number) {
                partition.limit = Some(offset.unwrap_or(partition.end));
            }
        }
        self.stop =
            if self.partitions.iter().all(|partition| partition.limit.is_some()) { Stop::Known } else { Stop::Ahead };
    }

    /// Asks brokers what is due to be asked.
    fn ask(&mut self, now: i64) -> Result<(), Fault> {
        let plan = self.plan.clone();
        let fault = |wrong| plan.side().away(&wrong);
        if self.which.ask(now) {
            self.silent.get_or_insert(now);
            let client = self.claim.client();
            client.ask_topics(&plan.topics, false, ANSWER_TIMEOUT_MS, Mark::Topics, &self.answers).map_err(fault)?;
        }
        if !self.partitions.is_empty() && self.ends.ask(now) {
            self.silent.get_or_insert(now);
            self.ask_offsets(Spec::End, Mark::Ends)?;
        }
        // The ends that the partitions have then are later than the stop.
        if let Some(stop) = plan.stop
            && self.stop == Stop::Ahead
            && self.ends.asked.is_none()
            && self.known.is_some_and(|asked| asked > stop)
        {
            self.ask_offsets(Spec::Time(milliseconds(stop)), Mark::Stop)?;
            self.stop = Stop::Asked;
        }
        Ok(())
    }

    fn ask_offsets(&self, spec: Spec, mark: Mark) -> Result<(), Fault> {
        let asked: Vec<_> = self
            .partitions
            .iter()
            .map(|partition| (self.topics[partition.topic].name.as_str(), partition.number, spec))
            .collect();
        let (client, is_committed) = (self.claim.client(), self.claim.is_committed());
        let asked = client.ask_offsets(&asked, is_committed, ANSWER_TIMEOUT_MS, mark, &self.answers);
        asked.map_err(|wrong| self.plan.side().away(&wrong))
    }

    /// Takes what librdkafka has.
    fn take(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Taken, Fault> {
        let (mut messages, mut bytes) = (0, 0);
        loop {
            while let Some(record) = self.batch.front() {
                let at = match record.place() == self.last.0 {
                    true => Some(self.last.1),
                    false => self.by_place.get(&record.place()).copied(),
                };
                if let Some(at) = at {
                    self.last = (record.place(), at);
                    let partition = &mut self.partitions[at];
                    let topic = &self.topics[partition.topic].name;
                    let origins = self.origins.as_mut();
                    if give(&self.plan, topic, partition, &record, (now, origins), out)? == Pushed::Full {
                        return Ok(Taken::Full);
                    }
                }
                messages += 1;
                bytes += record.payload().len();
                self.batch.pop();
                if bytes > STEP_BYTES || messages >= STEP_MESSAGES {
                    return Ok(Taken::More);
                }
            }
            if self.records.take(&mut self.batch, BATCH_MESSAGES) == 0 {
                return Ok(Taken::All);
            }
        }
    }

    fn state(&self) -> String {
        state::write(self.topics.iter().map(|topic| (topic.name.as_str(), topic.keep(&self.partitions))))
    }

    fn status(&self) -> Value {
        let topics = self.topics.iter().map(|topic| {
            let behind = |at: &usize| self.partitions[*at].end.saturating_sub(self.partitions[*at].place.next);
            let behind: u64 = topic.partitions.iter().map(behind).sum();
            (topic.name.clone(), json!({"partitions": topic.partitions.len(), "behind": behind}))
        });
        json!({"topics": topics.collect::<serde_json::Map<_, _>>()})
    }
}

/// Gives a message to the stream, or handles the error in the place of one.
fn give(
    plan: &Plan,
    topic: &str,
    partition: &mut Partition,
    record: &Record<'_>,
    (now, origins): (i64, Option<&mut Origins>),
    out: &mut dyn Outlet,
) -> Result<Pushed, Fault> {
    match record.error() {
        None => {
            let sent = Sent::read(record.header(header::NAME), || record.header(header::ORIGIN));
            let given = Given { offset: record.offset(), payload: record.payload(), time: record.time(), sent };
            partition.give(&given, now, origins, out)
        }
        Some(wrong) if wrong.kind == Kind::PartitionEnd => {
            partition.reach(record.offset(), out).map(|()| Pushed::Taken)
        }
        Some(wrong) => plan.lasting_at(topic, partition.number, &wrong).map_or(Ok(Pushed::Taken), Err),
    }
}

/// Where partitions are read from.
fn places(
    asking: &Asking<'_>,
    known: &Known<'_>,
    answers: &[TopicAnswer],
    all: &[(String, i32)],
    now: i64,
) -> Result<Vec<Partition>, Fault> {
    let plan = asking.plan;
    let first = asking.offsets(all, Spec::First)?;
    let end = asking.offsets(all, Spec::End)?;
    let time = match &plan.start.value {
        Start::At(When::At(time)) => asking.since_time(all, milliseconds(time.0), &first, &end)?,
        Start::At(When::Ago(ago)) => {
            let ago = i64::try_from(ago.as_nanos()).unwrap_or(i64::MAX);
            asking.since_time(all, milliseconds(now.saturating_sub(ago)), &first, &end)?
        }
        _ => Offsets::new(),
    };
    let mut places = Vec::new();
    for partition @ (topic, number) in all {
        let of = |offsets: &Offsets| offsets.get(partition).copied().flatten();
        let (first, end) = (of(&first).unwrap_or(0), of(&end).unwrap_or(0));
        let begin = match &plan.start.value {
            Start::Begin => first,
            Start::End | Start::At(When::Now) => end,
            Start::At(_) => of(&time).unwrap_or(end),
            Start::Offsets(_) => plan.declared(topic, *number as usize).unwrap_or(end),
        };
        let at = answers.iter().position(|known| known.name == *topic).unwrap_or(0);
        let number = *number as usize;
        let new = plan.declared(topic, number).unwrap_or(0);
        let here = Now { name: topic, id: &answers[at].id, partitions: answers[at].partitions };
        let begun = || {
            let place = Place { next: begin, life: 1, ..Place::default() };
            Resumed { kept: Kept { place, ..Kept::default() }, from: begin }
        };
        let resumed = known.partition(&here, number, new).unwrap_or_else(begun);
        let place = resumed.kept.place;
        if place.next > end {
            return Err(plan.beyond(topic, number, place.next, end));
        }
        let name = state::origin(topic, number, 1);
        let of_stream = known.resume.origins.iter().find(|origin| origin.name == name);
        let last = of_stream.map(|origin| origin.last_time);
        let origin = state::origin(topic, number, place.life);
        places.push(Partition::new((at, number as i32), origin, resumed, (first, end), last));
    }
    Ok(places)
}

/// Time as Kafka has it: ms, of which none is before this.
fn milliseconds(time: i64) -> i64 {
    time.saturating_add(999_999).div_euclid(1_000_000)
}
