//! The topics that a sink sends to: whether they exist, their partitions, and from which offset they may hold messages
//! of this sink that no commit counts.
//!
//! A topic is opened by three questions to the brokers: its partitions, their first offsets, their ends. If its offsets
//! were kept, it is looked through ([`super::look`]). A new topic gets no message before a commit contains its offsets,
//! because a restarted sink would not know where to look.

use super::state::{Kept, Place, State};
use crate::librdkafka::{Client, Content, Kind, Mark, OffsetAnswer, Queue, Spec, TopicAnswer, Wrong};
use crate::limits::{ANSWER_TIMEOUT_MS, ENDS_PAUSE, GONE_PATIENCE, TOPICS_PAUSE};
use crate::plan::{Create, SendPlan};
use crate::producer::Producer;
use crate::trouble::{Side, key};
use flow::Fault;
use std::collections::BTreeMap;

/// How far a topic is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It is not known whether it is there.
    Unknown,
    /// It is not there, and to be made.
    Missing,
    /// It is not there, or not for this user, and messages for it are set aside. It is asked for again.
    Gone,
    /// It has partitions; where they begin is to be asked.
    Found,
    /// Where they end is to be asked.
    Begun,
    /// It is to be looked through.
    Back,
    /// Its offsets are to be kept.
    New,
    /// Its offsets were reported for a commit.
    Reported,
    /// Messages may be sent.
    Ready,
}

/// One topic.
pub(crate) struct OutTopic {
    pub(crate) name: String,
    /// Its number at the producer, which gets it only when it exists: a broker may make a topic that a producer
    /// asks for.
    number: Option<usize>,
    pub(crate) stage: Stage,
    id: String,
    /// By partition.
    pub(crate) places: Vec<Place>,
    /// Where its partitions begin and end.
    bounds: Vec<(u64, u64)>,
    /// A message waits for it; else it is looked through because it was kept.
    is_wanted: bool,
    /// Since when it is known not to be there, ns since 1970 UTC.
    gone: Option<i64>,
}

/// All topics of a sink.
pub(crate) struct Topics {
    answers: Queue,
    pub(crate) all: Vec<OutTopic>,
    /// The question that waits for its answer.
    asked: Option<Mark>,
    /// Places by the number at the producer.
    by_number: Vec<usize>,
    /// When topics may be asked for, or made, again.
    due: i64,
    /// When their offsets may be asked for again.
    offsets_due: i64,
    /// Why a topic cannot be opened.
    pub(crate) trouble: Option<Fault>,
    /// Since when the brokers have not answered.
    pub(crate) silent: Option<i64>,
}

impl Topics {
    pub(crate) fn new(answers: Queue) -> Self {
        Self {
            answers,
            all: Vec::new(),
            asked: None,
            by_number: Vec::new(),
            due: i64::MIN,
            offsets_due: i64::MIN,
            trouble: None,
            silent: None,
        }
    }

    /// The place of a topic; one that is new is opened.
    pub(crate) fn add(&mut self, name: &str, is_wanted: bool) -> usize {
        if let Some(at) = self.all.iter().position(|topic| topic.name == name) {
            let topic = &mut self.all[at];
            if is_wanted && topic.is_idle() {
                topic.stage = Stage::Unknown;
            }
            topic.is_wanted |= is_wanted;
            return at;
        }
        self.all.push(OutTopic {
            name: name.to_owned(),
            number: None,
            stage: Stage::Unknown,
            id: String::new(),
            places: Vec::new(),
            bounds: Vec::new(),
            is_wanted,
            gone: None,
        });
        self.all.len() - 1
    }

    /// The number of a topic at the producer.
    pub(crate) fn number(&mut self, at: usize, producer: &mut Producer) -> Result<usize, Fault> {
        if let Some(number) = self.all[at].number {
            return Ok(number);
        }
        let number = producer.topic(&self.all[at].name)?;
        self.by_number.resize(self.by_number.len().max(number + 1), usize::MAX);
        self.by_number[number] = at;
        self.all[at].number = Some(number);
        Ok(number)
    }

    /// There is another producer, whose client answers to this queue.
    pub(crate) fn renumber(&mut self, answers: Queue) {
        self.answers = answers;
        self.asked = None;
        self.by_number.clear();
        self.all.iter_mut().for_each(|topic| topic.number = None);
    }

    /// The topic with this number at the producer.
    pub(crate) fn numbered(&mut self, number: usize) -> Option<&mut OutTopic> {
        self.by_number.get(number).and_then(|at| self.all.get_mut(*at))
    }

    /// Every topic that messages wait for is open.
    pub(crate) fn is_open(&self) -> bool {
        self.all.iter().all(|topic| topic.stage == Stage::Ready || topic.is_idle())
    }

    fn in_stage(&self, stage: Stage) -> Vec<String> {
        let all = self.all.iter().filter(|topic| topic.stage == stage && !topic.is_idle());
        all.map(|topic| topic.name.clone()).collect()
    }

    /// Hears answers, and asks the next question.
    pub(crate) fn step(&mut self, plan: &SendPlan, client: &Client, kept: &State, now: i64) -> Result<(), Wrong> {
        while let Some(event) = self.answers.event(0) {
            match event.content() {
                Content::Topics(topics) => self.take_topics(plan, topics, now),
                Content::Created(wrongs) => self.take_created(plan, &wrongs, now),
                Content::Offsets(mark, rows) => self.take_offsets(kept, mark, rows, now),
                Content::Unanswered(..) => {
                    (self.due, self.offsets_due) = (now + TOPICS_PAUSE, now + TOPICS_PAUSE);
                    self.asked = None;
                    continue;
                }
                Content::Error(_) | Content::Nothing => continue,
            }
            self.asked = None;
            self.silent = None;
        }
        // The clock of the machine may have been set back.
        self.due = self.due.min(now + TOPICS_PAUSE);
        self.offsets_due = self.offsets_due.min(now + TOPICS_PAUSE);
        if self.asked.is_some() {
            return Ok(());
        }
        // Offsets first: a topic that is missing is asked for again and again.
        if now >= self.offsets_due {
            self.asked = self.ask_offsets(client)?;
        }
        if self.asked.is_none() && now >= self.due {
            self.asked = self.ask_topics(plan.create, client)?;
        }
        if self.asked.is_some() {
            self.silent.get_or_insert(now);
        }
        Ok(())
    }

    fn ask_topics(&self, create: Option<Create>, client: &Client) -> Result<Option<Mark>, Wrong> {
        let (mut unknown, missing) = (self.in_stage(Stage::Unknown), self.in_stage(Stage::Missing));
        unknown.extend(self.in_stage(Stage::Gone));
        if let (false, Some(Create { partitions, replication })) = (missing.is_empty(), create) {
            client.ask_create(&missing, (partitions, replication), &[], ANSWER_TIMEOUT_MS, &self.answers)?;
            return Ok(Some(Mark::Create));
        }
        if !unknown.is_empty() {
            client.ask_topics(&unknown, false, ANSWER_TIMEOUT_MS, Mark::Topics, &self.answers)?;
            return Ok(Some(Mark::Topics));
        }
        Ok(None)
    }

    fn ask_offsets(&self, client: &Client) -> Result<Option<Mark>, Wrong> {
        for (stage, spec, mark) in [(Stage::Found, Spec::First, Mark::Start), (Stage::Begun, Spec::End, Mark::Ends)] {
            let topics = self.all.iter().filter(|topic| topic.stage == stage);
            let partitions = |topic: &OutTopic| 0..i32::try_from(topic.bounds.len()).unwrap_or(0);
            let asked: Vec<(&str, i32, Spec)> =
                topics.flat_map(|topic| partitions(topic).map(|number| (topic.name.as_str(), number, spec))).collect();
            if !asked.is_empty() {
                client.ask_offsets(&asked, false, ANSWER_TIMEOUT_MS, mark, &self.answers)?;
                return Ok(Some(mark));
            }
        }
        Ok(None)
    }

    fn take_topics(&mut self, plan: &SendPlan, answers: Vec<TopicAnswer>, now: i64) {
        self.trouble = None;
        for TopicAnswer { name, id, partitions, wrong, .. } in answers {
            let Some(topic) = self.all.iter_mut().find(|topic| topic.name == name) else { continue };
            match wrong {
                None if partitions > 0 => {
                    (topic.stage, topic.gone) = (Stage::Found, None);
                    topic.id = id;
                    topic.bounds = vec![(0, 0); partitions];
                }
                Some(wrong) if wrong.kind == Kind::NoTopic && topic.is_wanted && plan.create.is_some() => {
                    topic.stage = Stage::Missing;
                }
                // It was kept, and is no more: nothing is to be found there.
                Some(wrong) if wrong.kind == Kind::NoTopic && !topic.is_wanted => topic.stage = Stage::Missing,
                wrong => {
                    let wrong = wrong.unwrap_or_else(Wrong::timed_out);
                    if plan.sets_aside && matches!(wrong.kind, Kind::NoTopic | Kind::Forbidden) {
                        let since = *topic.gone.get_or_insert(now);
                        // Brokers may need a moment until they tell of a topic that was just made.
                        if now.saturating_sub(since).unsigned_abs() >= GONE_PATIENCE {
                            topic.stage = Stage::Gone;
                        }
                    }
                    self.trouble = Some(plan.wrong(&name, &wrong));
                    self.due = now + TOPICS_PAUSE;
                }
            }
        }
    }

    fn take_created(&mut self, plan: &SendPlan, wrongs: &[Option<Wrong>], now: i64) {
        let wrong = wrongs.iter().flatten().find(|wrong| wrong.kind != Kind::Exists);
        for topic in self.all.iter_mut().filter(|topic| topic.stage == Stage::Missing && topic.is_wanted) {
            if let Some(wrong) = wrong {
                self.trouble = Some(plan.not_made(&topic.name, wrong));
            }
            topic.stage = Stage::Unknown;
        }
        // A broker may need a moment until it tells of a topic that another one has made.
        self.due = now + if wrong.is_some() { TOPICS_PAUSE } else { ENDS_PAUSE };
    }

    fn take_offsets(&mut self, kept: &State, mark: Mark, rows: Vec<OffsetAnswer>, now: i64) {
        let mut answers: BTreeMap<String, usize> = BTreeMap::new();
        for OffsetAnswer { topic: name, partition, offset, .. } in rows {
            let topic = self.all.iter_mut().find(|topic| topic.name == name);
            let place = topic.and_then(|topic| topic.bounds.get_mut(usize::try_from(partition).ok()?));
            // One that has no answer now is asked for again.
            if let (Some(place), Ok(Some(offset))) = (place, offset) {
                *(if mark == Mark::Start { &mut place.0 } else { &mut place.1 }) = offset;
                *answers.entry(name).or_default() += 1;
            }
        }
        let stage = if mark == Mark::Start { Stage::Found } else { Stage::Begun };
        for topic in self.all.iter_mut().filter(|topic| topic.stage == stage) {
            match answers.get(&topic.name) {
                Some(count) if *count < topic.bounds.len() => self.offsets_due = now + ENDS_PAUSE,
                Some(_) if stage == Stage::Found => topic.stage = Stage::Begun,
                Some(_) => topic.begin(kept.topics.get(&topic.name)),
                None => self.offsets_due = now + ENDS_PAUSE,
            }
        }
    }

    /// The state of topics for a commit, by what is acknowledged of the inputs. Topics that are not open keep theirs.
    pub(crate) fn keep(&mut self, kept: &State, below: &[u64], held: &mut usize) -> BTreeMap<String, Kept> {
        let mut all = kept.topics.clone();
        for topic in &mut self.all {
            topic.stage = match topic.stage {
                Stage::New => Stage::Reported,
                Stage::Reported => Stage::Ready,
                stage => stage,
            };
            if matches!(topic.stage, Stage::Reported | Stage::Ready) {
                let offsets = topic.places.iter_mut().map(|place| place.offset(below, held)).collect();
                all.insert(topic.name.clone(), Kept { id: topic.id.clone(), offsets });
            }
        }
        all
    }
}

impl OutTopic {
    /// It was kept, does not exist any more, and no message is for it.
    fn is_idle(&self) -> bool {
        self.stage == Stage::Missing && !self.is_wanted
    }

    /// Its bounds are known.
    fn begin(&mut self, kept: Option<&Kept>) {
        let is_other = |kept: &Kept| !kept.id.is_empty() && !self.id.is_empty() && kept.id != self.id;
        let from = |(at, (first, end)): (usize, &(u64, u64))| match kept {
            None => *end,
            // A topic that was made again, and a partition that it did not have, are looked through from the beginning.
            Some(kept) if is_other(kept) => *first,
            Some(kept) => kept.offsets.get(at).copied().unwrap_or(0).clamp(*first, (*end).max(*first)),
        };
        self.places = self.bounds.iter().enumerate().map(from).map(Place::new).collect();
        self.stage = if kept.is_some() { Stage::Back } else { Stage::New };
    }

    /// Enters an acknowledged message. A partition that is new begins with its first message.
    pub(crate) fn acknowledge(&mut self, partition: i32, offset: u64, input: usize, sequence: u64) {
        let Ok(at) = usize::try_from(partition) else { return };
        if at >= self.places.len() {
            self.places.resize_with(at + 1, Place::default);
        }
        self.places[at].acknowledge(offset, input, sequence);
    }
}

impl SendPlan {
    pub(crate) fn side(&self) -> Side<'_> {
        Side { kind: "sink", name: &self.name, brokers: &self.brokers, properties: &self.properties }
    }

    /// A topic cannot be sent to.
    pub(crate) fn wrong(&self, topic: &str, wrong: &Wrong) -> Fault {
        let what = format!("sink `{}` cannot send to topic `{topic}`", self.name);
        let setting = key("topic", self.topic.origin);
        let hint = match wrong.kind {
            Kind::NoTopic if self.sets_aside => "make the topic; messages for it are set aside until then".into(),
            Kind::NoTopic => {
                format!("correct {setting}, make the topic, or add `create = {{ partitions = 4, replication = 1 }}`")
            }
            Kind::Forbidden => format!("allow this user to describe, read and write the topic, or correct {setting}"),
            Kind::TooLarge => format!("raise `max.message.bytes` of the topic, or correct {setting}"),
            _ => String::new(),
        };
        Fault::new(what, &wrong.text).hint(hint)
    }

    /// A topic cannot be made.
    fn not_made(&self, topic: &str, wrong: &Wrong) -> Fault {
        let what = format!("sink `{}` cannot make topic `{topic}`", self.name);
        Fault::new(what, &wrong.text).hint("correct `create`, allow this user to make topics, or make it yourself")
    }
}
