//! Topics of commands: a consumer group whose members share them, a reader of one topic, and questions about topics.
//!
//! For services, not for data: messages are copied, and a call waits. A group never misses a message that was sent
//! after the first of its members began: a member notes where the topic ends before it joins, and the group commits
//! that where it has committed nothing.

use crate::client::{merged, owned};
use crate::librdkafka::{
    Batch, Client, Committed, Content, Group, GroupEvent, Kind, Mark, OffsetAnswer, Queue, Spec, Topic, TopicAnswer,
    Unsent, Wrong,
};
use crate::limits::{COMMAND_PROPERTIES, COMMANDS_BATCH, SEND_ALWAYS, START_PATIENCE_MS};
use crate::producer::{Message, Producer, Report};
use crate::property;
use flow::{Fault, Passes};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Names and values of librdkafka, secrets among them: never shown.
pub type Properties = Vec<(String, String)>;

/// Offsets of topics, by the number of the partition.
pub type Offsets = BTreeMap<String, Vec<u64>>;

/// Offsets of partitions, none where no message is so late, and the times of their messages.
type Found = BTreeMap<(String, i32), (Option<u64>, i64)>;

/// A message of a topic of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: u64,
    /// Kafka's time of it, ms since 1970 UTC.
    pub time_ms: i64,
    /// Its bytes.
    pub payload: Vec<u8>,
}

/// Why a topic cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// There is no such topic.
    Missing,
    /// The user may not read it.
    Forbidden,
    /// Something else, as the broker says it.
    Other(String),
}

/// Which offset is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// That of the oldest message.
    First,
    /// The one behind the newest message.
    End,
    /// That of the first message from this time on, ms since 1970 UTC; the one behind the newest where there is none.
    Time(i64),
}

/// The properties of a client of commands: ours, those of the user, and those that the purpose needs. A value of the
/// user may be `env:NAME` or `file:PATH`.
fn properties(brokers: &str, user: &[(String, String)], needed: &[(&str, &str)]) -> Result<Properties, Fault> {
    let resolved = user.iter().map(|(name, value)| match property::resolve(value) {
        Ok(value) => Ok((name.clone(), value)),
        Err(cause) => Err(Fault::new(format!("property `{name}` of Kafka has no value"), cause)
            .hint("set the variable, or make the file readable for this user")),
    });
    let user = resolved.collect::<Result<Properties, Fault>>()?;
    let brokers = [("bootstrap.servers", brokers)];
    Ok(merged(owned(&COMMAND_PROPERTIES).chain(user).chain(owned(needed)).chain(owned(&brokers))))
}

fn refused((name, text): (String, String)) -> Fault {
    if name.is_empty() {
        return Fault::new("cannot make a client of Kafka", text);
    }
    // The text may hold the value, which may be a secret.
    Fault::new(format!("cannot use property `{name}` of Kafka"), "librdkafka does not take its name or its value")
        .hint("the properties are those of librdkafka: its CONFIGURATION.md lists them")
}

fn away(brokers: &str, wrong: &Wrong) -> Fault {
    let cause = if wrong.kind == Kind::TimedOut { "no broker has answered".to_owned() } else { wrong.text.clone() };
    let fault = Fault::new(format!("no answer from {brokers}"), cause);
    Fault { passes: Passes::Soon, ..fault.hint("look whether the cluster is up and takes this user") }
}

fn milliseconds(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
}

/// A cluster of which questions are asked. Fields are dropped from above: queues before the client.
pub struct Cluster {
    answers: Queue,
    errors: Queue,
    client: Arc<Client>,
    properties: Properties,
    brokers: String,
}

impl Cluster {
    /// A client of these brokers.
    pub fn new(brokers: &str, user: &[(String, String)]) -> Result<Self, Fault> {
        let needed = [("enable.partition.eof", "false"), ("auto.offset.reset", "earliest")];
        let properties = properties(brokers, user, &needed)?;
        let client = Client::new(&properties).map_err(refused)?;
        let (answers, errors) = (Queue::polled(&client), Queue::main(&client));
        Ok(Self { answers, errors, client, properties, brokers: brokers.to_owned() })
    }

    /// The answer to the question that was asked last.
    fn answer(&self) -> Result<Content, Fault> {
        let until = Instant::now() + Duration::from_millis(START_PATIENCE_MS as u64 + 1000);
        let mut said = None;
        loop {
            let event = self.answers.event(50);
            said = self.errors.newest_error().or(said);
            match event.map(|event| event.content()) {
                Some(Content::Unanswered(mark, wrong)) if wrong.kind == Kind::Unsupported => {
                    return Ok(Content::Offsets(mark, Vec::new()));
                }
                Some(Content::Unanswered(_, wrong)) => return Err(away(&self.brokers, &said.unwrap_or(wrong))),
                Some(answers @ (Content::Topics(_) | Content::Offsets(..))) => return Ok(answers),
                _ if Instant::now() >= until => {
                    return Err(away(&self.brokers, &said.unwrap_or_else(Wrong::timed_out)));
                }
                _ => {}
            }
        }
    }

    /// Partitions of each topic, or why it cannot be read. Brokers describe topics that this user may not read:
    /// `must_read` asks for that right too.
    pub fn topics(
        &self,
        names: &[String],
        must_read: bool,
    ) -> Result<BTreeMap<String, Result<usize, Unreadable>>, Fault> {
        if names.is_empty() {
            return Ok(BTreeMap::new());
        }
        let asked = self.client.ask_topics(names, must_read, START_PATIENCE_MS, Mark::Start, &self.answers);
        asked.map_err(|wrong| away(&self.brokers, &wrong))?;
        let Content::Topics(answers) = self.answer()? else { return Err(away(&self.brokers, &Wrong::timed_out())) };
        let state = |topic: &TopicAnswer| match &topic.wrong {
            None if topic.partitions == 0 => Err(Unreadable::Missing),
            None if topic.is_unreadable => Err(Unreadable::Forbidden),
            None => Ok(topic.partitions),
            Some(wrong) => Err(unreadable(wrong)),
        };
        Ok(answers.iter().map(|topic| (topic.name.clone(), state(topic))).collect())
    }

    /// Offsets of all partitions of topics.
    pub fn offsets(&self, partitions: &BTreeMap<String, usize>, at: At) -> Result<Offsets, Fault> {
        let all: Vec<(String, i32)> = partitions
            .iter()
            .flat_map(|(topic, count)| (0..*count).map(|number| (topic.clone(), i32::try_from(number).unwrap_or(0))))
            .collect();
        let mut offsets = self.ask(&all, if at == At::First { Spec::First } else { Spec::End })?;
        if let At::Time(time) = at {
            // Asked for after the ends: what comes between the two is behind the time, or behind the end.
            let of_time = self.ask(&all, Spec::Time(time))?;
            let (found, missing): (Found, Found) = of_time.into_iter().partition(|(_, (offset, _))| offset.is_some());
            let doubted = self.doubted(&offsets, missing.into_keys().collect(), time)?;
            offsets.extend(found.into_iter().chain(doubted));
        }
        let mut rows: Offsets = partitions.iter().map(|(topic, count)| (topic.clone(), vec![0; *count])).collect();
        for ((topic, number), (offset, _)) in offsets {
            let row = rows.get_mut(&topic).zip(usize::try_from(number).ok());
            if let Some(place) = row.and_then(|(row, number)| row.get_mut(number)) {
                *place = offset.unwrap_or(0);
            }
        }
        Ok(rows)
    }

    /// First offsets of partitions that are said to have no message from a time on, and have one before their end.
    /// Compaction leaves segments with the times of messages that are gone, and a search ends in the first of them.
    fn doubted(&self, ends: &Found, missing: Vec<(String, i32)>, time: i64) -> Result<Found, Fault> {
        // Brokers before Kafka 3.0 have no answer: then the search has the last word.
        let latest = self.ask(&missing, Spec::Latest)?;
        let end = |place: &(String, i32)| ends.get(place).and_then(|(end, _)| *end);
        let is_wrong = |(place, (offset, at)): &(&(String, i32), &(Option<u64>, i64))| {
            *at >= time && offset.is_some_and(|offset| end(place).is_some_and(|end| offset < end))
        };
        let wrong: Vec<_> = latest.iter().filter(is_wrong).map(|(place, _)| place.clone()).collect();
        self.ask(&wrong, Spec::First)
    }

    /// The answers of the brokers about partitions.
    fn ask(&self, partitions: &[(String, i32)], spec: Spec) -> Result<Found, Fault> {
        if partitions.is_empty() {
            return Ok(Found::new());
        }
        let asked: Vec<_> = partitions.iter().map(|(topic, number)| (topic.as_str(), *number, spec)).collect();
        let sent = self.client.ask_offsets(&asked, true, START_PATIENCE_MS, Mark::Start, &self.answers);
        sent.map_err(|wrong| away(&self.brokers, &wrong))?;
        let Content::Offsets(_, rows) = self.answer()? else { return Err(away(&self.brokers, &Wrong::timed_out())) };
        let one = |OffsetAnswer { topic, partition, offset, time_ms }| match offset {
            Ok(offset) => Ok(((topic, partition), (offset, time_ms))),
            Err(wrong) => {
                let what = format!("cannot read partition `{topic}/{partition}`");
                Err(Fault { passes: Passes::Soon, ..Fault::new(what, wrong.text) })
            }
        };
        let is_supported = |row: &OffsetAnswer| !row.offset.as_ref().is_err_and(|w| w.kind == Kind::Unsupported);
        rows.into_iter().filter(is_supported).map(one).collect()
    }

    /// Reads a topic from these offsets on, one for each partition. It has connections of its own: a broker answers the
    /// requests of a connection in their order, and a fetch waits for messages.
    pub fn read(&self, topic: &str, from: &[u64]) -> Result<TopicReader, Fault> {
        let wrong = |wrong: Wrong| Fault::new(format!("cannot read topic `{topic}`"), wrong.text);
        let client = Client::new(&self.properties).map_err(refused)?;
        let reader = TopicReader {
            batch: Batch::default(),
            queue: Queue::polled(&client),
            errors: Queue::main(&client),
            topic: Topic::new(&client, topic).map_err(wrong)?,
            partitions: i32::try_from(from.len()).unwrap_or(i32::MAX),
        };
        for (number, offset) in from.iter().enumerate() {
            reader.topic.read(i32::try_from(number).unwrap_or(i32::MAX), *offset, &reader.queue).map_err(wrong)?;
        }
        Ok(reader)
    }
}

fn unreadable(wrong: &Wrong) -> Unreadable {
    match wrong.kind {
        Kind::NoTopic => Unreadable::Missing,
        Kind::Forbidden => Unreadable::Forbidden,
        _ => Unreadable::Other(wrong.text.clone()),
    }
}

/// All partitions of a topic, read without a group. Fields are dropped from above.
pub struct TopicReader {
    batch: Batch,
    queue: Queue,
    errors: Queue,
    topic: Topic,
    partitions: i32,
}

impl TopicReader {
    /// The next message; waits for it for so long. Errors of a partition pass: librdkafka tries again.
    pub fn next(&mut self, patience: Duration) -> Option<Received> {
        let until = Instant::now() + patience;
        // They pass, and must not gather.
        let _ = self.errors.newest_error();
        loop {
            while let Some(record) = self.batch.front() {
                let (_, partition) = record.place();
                let received = record.error().is_none().then(|| Received {
                    partition,
                    offset: record.offset(),
                    time_ms: record.time().unwrap_or(0) / 1_000_000,
                    payload: record.payload().to_vec(),
                });
                self.batch.pop();
                if received.is_some() {
                    return received;
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if self.queue.take_within(&mut self.batch, COMMANDS_BATCH, milliseconds(left)) == 0 && left.is_zero() {
                return None;
            }
        }
    }
}

impl Drop for TopicReader {
    fn drop(&mut self) {
        self.batch.clear();
        (0..self.partitions).for_each(|number| self.topic.leave(number));
    }
}

/// A member of a group that shares a topic of commands.
pub struct Pool {
    group: Group,
    /// Where the topic ended when the service began: the group begins there where it has committed nothing.
    begin: Vec<u64>,
    brokers: String,
    topic: String,
    /// Until the group answers again.
    doubt: Option<Wrong>,
}

/// Partitions with an offset each.
type Places = Vec<(i32, Option<u64>)>;

/// A message or event of a member.
#[derive(Debug)]
pub enum PoolEvent {
    /// Nothing in the time that it waited.
    Nothing,
    /// A command.
    Message(Received),
}

impl Pool {
    /// A group, with where the topic ended when the service began, by partition. The group notes that where nobody has
    /// joined it yet: whoever comes first takes what is sent from now on.
    pub fn new(
        brokers: &str,
        user: &[(String, String)],
        group: &str,
        topic: &str,
        begin: &[u64],
    ) -> Result<Self, Fault> {
        let needed = [
            ("group.id", group),
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            ("auto.offset.reset", "earliest"),
            ("enable.partition.eof", "false"),
            // Those of today's writers, which may be members too.
            ("partition.assignment.strategy", "range,roundrobin"),
        ];
        let group = Group::new(&properties(brokers, user, &needed)?, topic).map_err(refused)?;
        let (brokers, topic) = (brokers.to_owned(), topic.to_owned());
        let pool = Self { group, begin: begin.to_vec(), brokers, topic, doubt: None };
        let (_, new) = pool.places(&pool.all())?;
        if !new.is_empty() {
            // A group that has members, of another topic perhaps, takes it from members alone: see `is_noted`.
            let _ = pool.group.commit(&new, "");
        }
        Ok(pool)
    }

    fn all(&self) -> Vec<i32> {
        (0..self.begin.len()).filter_map(|number| i32::try_from(number).ok()).collect()
    }

    /// Whether the group has noted an offset of each partition: what is sent from now on is taken by whoever comes.
    pub fn is_noted(&self) -> Result<bool, Fault> {
        Ok(self.places(&self.all())?.1.is_empty())
    }

    /// Becomes a member, which gets commands.
    pub fn join(&self) -> Result<(), Fault> {
        self.group.join().map_err(|wrong| self.fault("read", wrong))
    }

    /// The next command; waits for it for so long. After a fault the member has to join again.
    pub fn next(&mut self, patience: Duration) -> Result<PoolEvent, Fault> {
        match self.group.poll(milliseconds(patience)) {
            Some(GroupEvent::Message(taken)) => {
                self.doubt = None;
                let (partition, offset, time_ms) = (taken.partition, taken.offset, taken.time_ms);
                let payload = taken.payload().to_vec();
                Ok(PoolEvent::Message(Received { partition, offset, time_ms, payload }))
            }
            Some(GroupEvent::Assigned(partitions)) => {
                self.doubt = None;
                self.begin(&partitions)?;
                Ok(PoolEvent::Nothing)
            }
            Some(GroupEvent::Wrong(wrong)) if wrong.kind != Kind::AllDown => {
                self.doubt = Some(wrong);
                Ok(PoolEvent::Nothing)
            }
            Some(GroupEvent::Revoked(_) | GroupEvent::Wrong(_)) | None => Ok(PoolEvent::Nothing),
        }
    }

    /// The reason why the member gets no commands, by the newest answer of the brokers.
    #[must_use]
    pub fn trouble(&self) -> Option<Fault> {
        self.doubt.as_ref().map(|wrong| away(&self.brokers, wrong))
    }

    fn fault(&self, what: &str, wrong: Wrong) -> Fault {
        let what = format!("cannot {what} offsets of topic `{}`", self.topic);
        Fault { passes: Passes::Soon, ..Fault::new(what, wrong.text) }
    }

    /// Reads partitions that are its own now. An offset that the group has not committed yet is committed at once, so
    /// that the next member does not begin later.
    fn begin(&self, partitions: &[i32]) -> Result<(), Fault> {
        if partitions.is_empty() {
            return self.group.assign(&[]).map_err(|wrong| self.fault("assign", wrong));
        }
        let (from, new) = self.places(partitions)?;
        self.group.assign(&from).map_err(|wrong| self.fault("assign", wrong))?;
        if !new.is_empty() {
            self.group.commit(&new, "").map_err(|wrong| self.fault("commit", wrong))?;
        }
        Ok(())
    }

    /// Where partitions are read from, and those of which the group has committed nothing.
    fn places(&self, partitions: &[i32]) -> Result<(Places, Places), Fault> {
        let committed = self.group.committed(partitions, START_PATIENCE_MS).map_err(|w| self.fault("read", w))?;
        let first = |number: i32| usize::try_from(number).ok().and_then(|number| self.begin.get(number)).copied();
        let place = |one: &Committed| one.offset.unwrap_or_else(|| first(one.partition).unwrap_or(0));
        let from = committed.iter().map(|one| (one.partition, Some(place(one))));
        let new = committed.iter().filter(|one| one.offset.is_none());
        Ok((from.collect(), new.map(|one| (one.partition, Some(place(one)))).collect()))
    }

    /// Commits that the group is past a message, with a note, and waits for the answer. A member that lost the
    /// partition meanwhile gets a fault: another one reads the message again.
    pub fn commit(&self, partition: i32, offset: u64, note: &str) -> Result<(), Fault> {
        let commit = self.group.commit(&[(partition, Some(offset + 1))], note);
        commit.map_err(|wrong| self.fault("commit", wrong))
    }

    /// The offset that the group has committed of a partition, and its note.
    pub fn committed(&self, partition: i32) -> Result<(Option<u64>, String), Fault> {
        let all = self.group.committed(&[partition], START_PATIENCE_MS);
        let one = all.map_err(|wrong| self.fault("read", wrong))?.pop();
        Ok(one.map_or((None, String::new()), |one| (one.offset, one.note)))
    }
}

/// Sends few messages, each once and in order. It keeps what brokers that are away do not take, for as long as they
/// are away.
pub struct Sender {
    producer: RefCell<Producer>,
    /// Why a message was not delivered, until somebody asks.
    fault: RefCell<Option<Fault>>,
}

impl Sender {
    /// A producer of these brokers.
    pub fn new(brokers: &str, user: &[(String, String)]) -> Result<Self, Fault> {
        // Beside what it answers with, a command comes back whole.
        let size = [("message.max.bytes", "1000000000"), ("queue.buffering.max.kbytes", "2097151")];
        // Answers to a topic that was deleted hold up those to others.
        let others = [("linger.ms", "0"), ("topic.metadata.propagation.max.ms", "2000")];
        let needed: Vec<_> = SEND_ALWAYS.into_iter().chain(others).chain(size).collect();
        let producer = Producer::with(&properties(brokers, user, &needed)?).map_err(refused)?;
        Ok(Self { producer: RefCell::new(producer), fault: RefCell::default() })
    }

    /// Hands over a message, which is copied.
    pub fn send(&self, topic: &str, payload: &[u8]) -> Result<(), Fault> {
        let cannot = |cause: String| Fault::new(format!("cannot send to topic `{topic}`"), cause);
        let mut producer = self.producer.borrow_mut();
        let number = producer.topic(topic).map_err(|fault| cannot(fault.cause))?;
        producer.send(number, &Message { payload, ..Message::default() }).map_err(|unsent| match unsent {
            Unsent::Full => cannot(Wrong::full().text),
            Unsent::Wrong(wrong) => cannot(wrong.text),
        })
    }

    /// Messages that are not delivered yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        // Reports and errors of connections that nobody has taken count as waiting.
        self.take(Duration::ZERO);
        self.producer.borrow().waiting()
    }

    /// Takes what the brokers have answered, and waits for so long until all is delivered. Whether it is.
    fn take(&self, patience: Duration) -> bool {
        let (mut producer, mut failed) = (self.producer.borrow_mut(), None);
        let mut each = |report: Report| failed = report.offset.err().or(failed.take());
        let flushed = producer.reports(&mut each).and_then(|()| producer.flush(patience, &mut each));
        let refused = failed.map(|wrong| Fault::new("the brokers do not take an answer", wrong.text));
        let mut kept = self.fault.borrow_mut();
        *kept = flushed.as_ref().err().cloned().or(refused).or(kept.take());
        flushed.unwrap_or(false)
    }

    /// Waits for so long until all is delivered. False if it is not; what brokers refused is an error.
    pub fn flush(&self, patience: Duration) -> Result<bool, Fault> {
        let is_all = self.take(patience);
        match self.fault.take() {
            Some(fault) => Err(fault),
            None => Ok(is_all),
        }
    }
}
