//! The bulletin of an instrument: a compacted topic `INSTRUMENT.hosts` of one partition, whose records are posts.
//!
//! The offsets of the partition are the one order in which all hosts read posts. A host posts in transactions under a
//! name of its own (`transactional.id`), so that a second process of the host shuts out the first. Readers do not wait
//! for the end of a transaction: a host that was killed in one would hide the posts of all others.
//!
//! Constraints: a call waits for some seconds at most. Only a post shows whether the name is still this client's.
//!
//! Failure behaviour: brokers that are away are a fault of each call, and the same bulletin resumes when they are back:
//! it need not be made again. A post that failed may have been kept all the same, where the brokers have not answered;
//! it is settled before the next one. A topic that was deleted is made again and read from its beginning.

use super::plan::Carrier;
use super::topics::{bounds, ensure_bulletins, refused};
use crate::asking::Asking;
use crate::client::{Claim, merged, owned};
use crate::librdkafka::{
    Batch, Client, Content, Failed, Kind, Mark, Outgoing, Queue, Record, Spare, Topic, TopicAnswer, Unsent, Wrong,
};
use crate::limits::{
    ANSWER_PATIENCE, ANSWER_TIMEOUT_MS, BATCH_MESSAGES, BULLETIN_ALWAYS, BULLETIN_KEY_BYTES_MAX, BULLETIN_PATIENCE_MS,
    BULLETIN_POSTS_MAX, BULLETIN_READ_ALWAYS, BULLETIN_READ_PATIENCE, BULLETIN_SLICE, BULLETIN_TEXT_BYTES_MAX,
    START_PATIENCE_MS, STEP_BYTES, TOPIC_PAUSE, TOPICS_PAUSE, TRANSACTION_TIMEOUT_MS,
};
use crate::plan::Plan;
use crate::producer::pairs;
use crate::source::reading;
use flow::edge::{Bulletin, Post, Posted};
use flow::{Fault, Passes};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// The part of the topic's name behind that of the instrument.
const HOSTS: &str = "hosts";

/// The bulletin.
pub(crate) struct TopicBulletin {
    carrier: Carrier,
    plan: Plan,
    /// The name of the client that posts; none where this bulletin is only read.
    name: Option<String>,
    poster: Option<Poster>,
    reader: Option<Reader>,
    /// Where a reader that has ended stood.
    place: Place,
    /// A newer client has the name.
    is_fenced: bool,
}

impl TopicBulletin {
    /// Makes the topic where it is missing, and gets the name of the host.
    pub(crate) fn open(carrier: &Carrier, instrument: &str, host: Option<&str>) -> Result<Self, Fault> {
        let topics = vec![Carrier::topic(instrument, HOSTS)];
        let mut bulletin = Self {
            plan: Plan { kind: "bulletin", ..carrier.reads(instrument, topics) },
            name: host.map(|host| format!("beamport.{instrument}.{host}")),
            carrier: carrier.clone(),
            poster: None,
            reader: None,
            place: Place::default(),
            is_fenced: false,
        };
        bulletin.reader = Some(Reader::open(&bulletin.plan, &bulletin.carrier, &bulletin.place)?);
        bulletin.poster = bulletin.open_poster()?;
        Ok(bulletin)
    }

    fn open_poster(&self) -> Result<Option<Poster>, Fault> {
        self.name.as_ref().map(|name| Poster::open(&self.plan, name)).transpose()
    }
}

impl Bulletin for TopicBulletin {
    fn post(&mut self, posts: &[(String, String)]) -> Result<Posted, Fault> {
        posts.iter().try_for_each(|(key, text)| check(&self.plan, key, text))?;
        if self.is_fenced {
            return Ok(Posted::Fenced);
        }
        if posts.is_empty() {
            return Ok(Posted::Kept);
        }
        if self.poster.is_none() {
            self.poster = self.open_poster()?;
        }
        let Some(poster) = &mut self.poster else {
            return Err(Fault::new(format!("bulletin `{}` is only read", self.plan.name), "no host was named"));
        };
        let failed = match poster.post(posts) {
            Ok(()) => return Ok(Posted::Kept),
            Err(failed) => failed,
        };
        if matches!(failed, Failed::Fenced(_)) && !poster.may_be_expired() {
            self.is_fenced = true;
        }
        let said = poster.said().or_else(|| self.reader.as_ref().and_then(|reader| reader.claim.said()));
        if matches!(failed, Failed::Fenced(_) | Failed::Ended(_)) {
            self.poster = None;
        }
        if self.is_fenced { Ok(Posted::Fenced) } else { Err(fault(&self.plan, said, failed)) }
    }

    fn read(&mut self, patience: Duration) -> Result<Vec<Post>, Fault> {
        // Errors of its connections do not pile up where nothing is posted.
        self.poster.iter().for_each(|poster| drop(poster.said()));
        let reader = match self.reader.take() {
            Some(reader) => reader,
            None => Reader::open(&self.plan, &self.carrier, &self.place)?,
        };
        let reader = self.reader.insert(reader);
        let posts = reader.read(&self.plan, patience);
        if let Some(place) = reader.ended.take() {
            (self.place, self.reader) = (place, None);
        }
        posts
    }
}

/// Refuses a post that brokers or readers would not take.
fn check(plan: &Plan, key: &str, text: &str) -> Result<(), Fault> {
    let cause = match (key.len(), text.len()) {
        (0, _) => "it has no key".to_owned(),
        (len, _) if len > BULLETIN_KEY_BYTES_MAX => {
            format!("its key has {len} bytes, more than {BULLETIN_KEY_BYTES_MAX}")
        }
        (_, len) if len > BULLETIN_TEXT_BYTES_MAX => {
            format!("its text has {len} bytes, more than {BULLETIN_TEXT_BYTES_MAX}")
        }
        _ => return Ok(()),
    };
    Err(Fault::new(format!("bulletin `{}` cannot have a post", plan.name), cause))
}

/// The fault of posts that failed. `said`: the newest error of a connection.
fn fault(plan: &Plan, said: Option<Wrong>, failed: Failed) -> Fault {
    let wrong = match failed {
        Failed::Unfinished(wrong) => return plan.side().away(&said.unwrap_or(wrong)),
        Failed::Fenced(wrong) => {
            let text = "its transaction was open for too long, or another process of this host has just started";
            Wrong { text: text.into(), ..wrong }
        }
        Failed::NeedsAbort(wrong) | Failed::Ended(wrong) => wrong,
    };
    match wrong.kind {
        Kind::TimedOut => plan.side().away(&said.unwrap_or(wrong)),
        Kind::Forbidden => {
            let hint = format!(
                "allow the user of {} to write topic `{}` and to use the transactional ids that begin with \
                 `beamport.{}.`",
                plan.brokers.as_str(),
                plan.topics.first().map_or("", String::as_str),
                plan.name
            );
            Fault { passes: Passes::Soon, ..cannot_post(plan, &wrong).hint(hint) }
        }
        Kind::TooLarge => cannot_post(plan, &wrong)
            .hint("raise `max.message.bytes` of the topic, or remove the topic: beamport makes it again"),
        _ => Fault { passes: Passes::Soon, ..cannot_post(plan, &wrong) },
    }
}

fn cannot_post(plan: &Plan, wrong: &Wrong) -> Fault {
    Fault::new(format!("bulletin `{}` did not keep a post", plan.name), &wrong.text)
}

/// The time by two clocks: one stands still while the machine sleeps, the other may be set.
struct Begun(Instant, SystemTime);

impl Begun {
    fn now() -> Self {
        Self(Instant::now(), SystemTime::now())
    }

    fn age(&self) -> Duration {
        self.0.elapsed().max(self.1.elapsed().unwrap_or_default())
    }
}

/// How far a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// There is none.
    Ready,
    /// It is to be aborted.
    Aborting,
    /// It is being committed.
    Committing,
}

/// The client that posts. Fields are dropped from above: all before the client.
struct Poster {
    topic: Topic,
    errors: Queue,
    client: Arc<Client>,
    stage: Stage,
    /// When the newest transaction began.
    begun: Begun,
}

impl Poster {
    /// Gets the name, and shuts out those that had it.
    fn open(plan: &Plan, name: &str) -> Result<Self, Fault> {
        let timeout = TRANSACTION_TIMEOUT_MS.to_string();
        let ours = [("transactional.id", name), ("transaction.timeout.ms", &timeout)];
        let all = pairs(plan.brokers.as_str(), plan.side().pairs()?);
        let all = merged(all.into_iter().chain(owned(&BULLETIN_ALWAYS)).chain(owned(&ours)));
        let client = Client::transacts(&all).map_err(|(name, text)| plan.side().refused(&name, text))?;
        let errors = Queue::main(&client);
        let topic = plan.topics.first().map_or("", String::as_str);
        let topic = Topic::new(&client, topic).map_err(|wrong| plan.side().away(&wrong))?;
        let poster = Self { topic, errors, client, stage: Stage::Ready, begun: Begun::now() };
        let until = Deadline::new();
        loop {
            match poster.client.claim_name(until.left_ms()) {
                Ok(()) => return Ok(poster),
                // The brokers still end a transaction of a client that had the name.
                Err(Failed::Unfinished(_)) if !until.is_over() => std::thread::sleep(TOPIC_PAUSE),
                Err(failed) => return Err(fault(plan, poster.said(), failed)),
            }
        }
    }

    /// Posts in one transaction, after the one before was settled.
    fn post(&mut self, posts: &[(String, String)]) -> Result<(), Failed> {
        let until = Deadline::new();
        self.settle(&until)?;
        self.begun = Begun::now();
        self.client.begin()?;
        self.stage = Stage::Aborting;
        for (key, text) in posts {
            let (key, payload) = (Some(key.as_bytes()), (!text.is_empty()).then_some(text.as_bytes()));
            let message = Outgoing { partition: Some(0), key, payload, ..Outgoing::default() };
            if let Err(unsent) = self.topic.send(&message, &mut Spare::default()) {
                let wrong = match unsent {
                    Unsent::Full => Wrong::full(),
                    Unsent::Wrong(wrong) => wrong,
                };
                return Err(self.given_up(&until, wrong));
            }
        }
        self.stage = Stage::Committing;
        match self.client.commit(until.left_ms()) {
            Ok(()) => self.stage = Stage::Ready,
            Err(Failed::NeedsAbort(wrong)) => {
                self.stage = Stage::Aborting;
                return Err(self.given_up(&until, wrong));
            }
            Err(failed) => return Err(failed),
        }
        Ok(())
    }

    /// Aborts the transaction that failed for this reason. Without an answer it is aborted before the next one.
    fn given_up(&mut self, until: &Deadline, wrong: Wrong) -> Failed {
        match self.settle(until) {
            Err(failed @ (Failed::Fenced(_) | Failed::Ended(_))) => failed,
            _ => Failed::NeedsAbort(wrong),
        }
    }

    /// Ends the transaction that is open.
    fn settle(&mut self, until: &Deadline) -> Result<(), Failed> {
        if self.stage == Stage::Committing {
            match self.client.commit(until.left_ms()) {
                Ok(()) => self.stage = Stage::Ready,
                Err(Failed::NeedsAbort(_)) => self.stage = Stage::Aborting,
                Err(failed) => return Err(failed),
            }
        }
        if self.stage == Stage::Aborting {
            self.client.abort(until.left_ms())?;
            self.stage = Stage::Ready;
        }
        Ok(())
    }

    /// Whether the brokers may have ended the transaction because of its age. They refuse the client then as if another
    /// one had its name.
    fn may_be_expired(&self) -> bool {
        self.begun.age() >= Duration::from_millis(TRANSACTION_TIMEOUT_MS as u64)
    }

    /// The newest error of its connections.
    fn said(&self) -> Option<Wrong> {
        self.errors.newest_error()
    }
}

impl Drop for Poster {
    fn drop(&mut self) {
        // Nobody waits for posts that are not acknowledged.
        self.client.give_up();
    }
}

/// The end of the patience of one call.
struct Deadline(Instant);

impl Deadline {
    fn new() -> Self {
        Self(Instant::now() + Duration::from_millis(BULLETIN_PATIENCE_MS as u64))
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.0
    }

    /// Milliseconds that are left; one at least, so that a step says how it stands.
    fn left_ms(&self) -> i32 {
        milliseconds(self.0.saturating_duration_since(Instant::now())).max(1)
    }
}

fn milliseconds(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
}

/// The identity of a topic, and the offset of the post that is read next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Place {
    id: String,
    next: u64,
}

/// The client that reads. Fields are dropped from above: messages before their queue, all before the client.
struct Reader {
    batch: Batch,
    topic: Topic,
    records: Queue,
    answers: Queue,
    claim: Claim,
    place: Place,
    /// When the topic is asked for again, and since when no question was answered.
    due: Instant,
    silent: Option<Instant>,
    /// A question is under way.
    is_asking: bool,
    /// An error in the place of a record, since the last record.
    wrong: Option<Wrong>,
    /// It reads nothing any more; the next reader of the topic begins at this place.
    ended: Option<Place>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.batch.clear();
        self.topic.leave(0);
    }
}

impl Reader {
    /// Reads from a place on, or from the beginning where the topic has no such place.
    fn open(plan: &Plan, carrier: &Carrier, place: &Place) -> Result<Self, Fault> {
        let properties = merged(reading(plan)?.into_iter().chain(owned(&BULLETIN_READ_ALWAYS)));
        let claim = Claim::new(properties, &plan.topics).map_err(|(name, text)| plan.side().refused(&name, text))?;
        let (records, answers) = (Queue::polled(claim.client()), Queue::polled(claim.client()));
        let until = Instant::now() + Duration::from_millis(START_PATIENCE_MS as u64);
        let asking = Asking { plan, claim: &claim, answers: &answers, until };
        let found = ensure_bulletins(&asking, carrier)?;
        let (first, end) = bounds(&asking, &found)?.first().copied().unwrap_or_default();
        let id = found.into_iter().next().map(|topic| topic.id).unwrap_or_default();
        let is_there = !id.is_empty() && id == place.id && (first..=end).contains(&place.next);
        let next = if is_there { place.next } else { first };
        let name = plan.topics.first().map_or("", String::as_str);
        let topic = Topic::new(claim.client(), name).map_err(|wrong| plan.side().away(&wrong))?;
        topic.read(0, next, &records).map_err(|wrong| plan.side().away(&wrong))?;
        Ok(Self {
            batch: Batch::default(),
            topic,
            records,
            answers,
            claim,
            place: Place { id, next },
            due: Instant::now() + Duration::from_nanos(TOPICS_PAUSE as u64),
            silent: None,
            is_asking: false,
            wrong: None,
            ended: None,
        })
    }

    fn read(&mut self, plan: &Plan, patience: Duration) -> Result<Vec<Post>, Fault> {
        let until = Instant::now() + patience.min(BULLETIN_READ_PATIENCE);
        let mut posts = Vec::new();
        let mut is_over = false;
        loop {
            // The rest of the last call, or the record that a wait has ended with, and all that is there behind it.
            if self.receive(&mut posts) {
                self.records.take(&mut self.batch, BATCH_MESSAGES);
                self.receive(&mut posts);
            }
            self.ask(plan)?;
            if !posts.is_empty() || self.ended.is_some() {
                return Ok(posts);
            }
            if is_over {
                return self.trouble(plan).map_or(Ok(posts), Err);
            }
            let left = until.saturating_duration_since(Instant::now());
            // librdkafka waits until it has as many records as it was asked for.
            self.records.take_within(&mut self.batch, 1, milliseconds(left.min(BULLETIN_SLICE)));
            is_over = left.is_zero();
        }
    }

    /// Asks whether the topic is still the same.
    fn ask(&mut self, plan: &Plan) -> Result<(), Fault> {
        self.claim.take_errors();
        while let Some(event) = self.answers.event(0) {
            match event.content() {
                Content::Unanswered(..) => self.is_asking = false,
                Content::Topics(topics) => {
                    (self.is_asking, self.silent) = (false, None);
                    self.claim.answered();
                    topics.iter().for_each(|topic| self.compare(topic));
                }
                _ => {}
            }
        }
        let now = Instant::now();
        if !self.is_asking && now >= self.due {
            let client = self.claim.client();
            let asked = client.ask_topics(&plan.topics, false, ANSWER_TIMEOUT_MS, Mark::Topics, &self.answers);
            asked.map_err(|wrong| plan.side().away(&wrong))?;
            self.due = now + Duration::from_nanos(TOPICS_PAUSE as u64);
            (self.is_asking, self.silent) = (true, self.silent.or(Some(now)));
        }
        Ok(())
    }

    /// A topic that was deleted, and perhaps made again, is read by another reader. It begins here if the topic is the
    /// same after all: a broker that has just started may not know it yet.
    fn compare(&mut self, topic: &TopicAnswer) {
        let is_gone = topic.wrong.as_ref().is_some_and(|wrong| wrong.kind == Kind::NoTopic);
        let is_other = !self.place.id.is_empty() && !topic.id.is_empty() && topic.id != self.place.id;
        if is_gone || is_other {
            self.ended = Some(self.place.clone());
        }
    }

    /// Appends the posts among the records that librdkafka has handed out, and skips others. False where a bound ends
    /// it.
    fn receive(&mut self, posts: &mut Vec<Post>) -> bool {
        let mut bytes: usize = posts.iter().map(|post| post.text.len()).sum();
        while let Some(record) = self.batch.front() {
            match record.error() {
                None => {
                    bytes += record.payload().len();
                    self.place.next = record.offset() + 1;
                    self.wrong = None;
                    posts.extend(post_of(&record));
                }
                Some(wrong) if wrong.kind == Kind::PartitionEnd => {}
                Some(wrong) if wrong.kind == Kind::OffsetGone => self.ended = Some(Place::default()),
                Some(wrong) => self.wrong = Some(wrong),
            }
            self.batch.pop();
            if posts.len() >= BULLETIN_POSTS_MAX || bytes > STEP_BYTES {
                return false;
            }
        }
        true
    }

    /// Why nothing comes, where that is known.
    fn trouble(&mut self, plan: &Plan) -> Option<Fault> {
        let is_silent = self.silent.is_some_and(|since| since.elapsed() > Duration::from_nanos(ANSWER_PATIENCE as u64));
        match self.wrong.take() {
            Some(wrong) if wrong.kind == Kind::Forbidden => {
                Some(refused(plan, plan.topics.first().map_or("", String::as_str), &wrong))
            }
            wrong if is_silent => Some(plan.side().away(&self.claim.said().or(wrong).unwrap_or_else(Wrong::timed_out))),
            Some(wrong) => Some(plan.side().away(&wrong)),
            None => None,
        }
    }
}

/// The post of a record; none where it is not one of beamport.
fn post_of(record: &Record<'_>) -> Option<Post> {
    let (key, text) = read_post(record.key()?, record.payload())?;
    Some(Post { key, text, time: record.time().unwrap_or_default() })
}

fn read_post(key: &[u8], text: &[u8]) -> Option<(String, String)> {
    if key.is_empty() || key.len() > BULLETIN_KEY_BYTES_MAX || text.len() > BULLETIN_TEXT_BYTES_MAX {
        return None;
    }
    Some((std::str::from_utf8(key).ok()?.to_owned(), std::str::from_utf8(text).ok()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Setting;

    fn plan() -> Plan {
        let carrier = Carrier {
            brokers: Setting::by_default("one:9092".to_owned()),
            replication: 1,
            keep: Duration::from_secs(60),
            properties: Vec::new(),
        };
        Plan { kind: "bulletin", ..carrier.reads("bench", vec!["bench.hosts".into()]) }
    }

    #[test]
    fn records_of_others_are_skipped() {
        let post = |key: &str, text: &str| Some((key.to_owned(), text.to_owned()));
        assert_eq!(read_post(b"host.a", b"up"), post("host.a", "up"));
        assert_eq!(read_post(b"host.a", b""), post("host.a", ""));
        let long = vec![b'x'; BULLETIN_KEY_BYTES_MAX + 1];
        assert_eq!(read_post(&long[1..], b"up").map(|(key, _)| key.len()), Some(BULLETIN_KEY_BYTES_MAX));
        for (key, text) in [(b"".as_slice(), b"up".as_slice()), (b"\xff", b"up"), (b"host", b"\xff"), (&long, b"up")] {
            assert_eq!(read_post(key, text), None);
        }
    }

    #[test]
    fn a_post_that_no_reader_would_take_is_refused_and_never_tried_again() {
        let plan = plan();
        assert_eq!(check(&plan, "host.a", ""), Ok(()));
        let (key, text) = ("k".repeat(BULLETIN_KEY_BYTES_MAX + 1), "t".repeat(BULLETIN_TEXT_BYTES_MAX + 1));
        for (key, text, cause) in [("", "up", "no key"), (&key, "up", "4097 bytes"), ("host", &text, "more than 67043")]
        {
            let fault = check(&plan, key, text).unwrap_err();
            assert!(fault.cause.contains(cause) && fault.passes == Passes::Never, "{fault}");
        }
    }

    #[test]
    fn a_fault_names_the_remedy_and_says_whether_it_passes() {
        let wrong = |kind: Kind| Wrong { kind, text: "cause".into() };
        let faults = [
            (Failed::Unfinished(wrong(Kind::TimedOut)), "gets no answer from one:9092", Passes::Soon),
            (Failed::NeedsAbort(wrong(Kind::TimedOut)), "gets no answer from one:9092", Passes::Soon),
            (Failed::NeedsAbort(wrong(Kind::TooLarge)), "max.message.bytes", Passes::Never),
            (Failed::NeedsAbort(wrong(Kind::Other)), "did not keep a post", Passes::Soon),
            (Failed::Ended(wrong(Kind::Forbidden)), "begin with `beamport.bench.`", Passes::Soon),
            (Failed::Fenced(wrong(Kind::Other)), "did not keep a post", Passes::Soon),
        ];
        for (failed, part, passes) in faults {
            let fault = fault(&plan(), None, failed);
            assert!(fault.to_string().contains(part) && fault.passes == passes, "{fault}");
        }
    }
}
