//! A producer: sends messages to topics, each once and in the order of its partition, however long brokers are away.
//!
//! It has no thread of its own and never waits, except where a function takes a patience. A message is copied once,
//! into librdkafka's queue, which is bounded. Reports come in batches, and a descriptor becomes readable with them.

use crate::client::{Pairs, merged, owned};
use crate::librdkafka::{Client, Content, Delivered, Event, Kind, Outgoing, Queue, Spare, Topic, Unsent, Wake, Wrong};
use crate::limits::{SEND_ALWAYS, SEND_PROPERTIES};
use crate::property::{self, NAMES, NOT_TAKEN};
use flow::{Fault, Passes};
use std::ffi::CStr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A message to send.
#[derive(Clone, Copy, Debug, Default)]
pub struct Message<'a> {
    /// `None`: by the key, as Kafka's own clients choose it; without a key, any.
    pub partition: Option<i32>,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its bytes.
    pub payload: &'a [u8],
    /// Milliseconds since 1970 UTC; `None`: now.
    pub time_ms: Option<i64>,
    /// At most eight.
    pub headers: &'a [(&'a CStr, &'a [u8])],
    /// The token of its report.
    pub mark: usize,
}

/// The fate of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// That of [`Message::mark`].
    pub mark: usize,
    /// The topic, as [`Producer::topic`] numbers it.
    pub topic: usize,
    /// The partition; below 0 where none was chosen.
    pub partition: i32,
    /// Its offset there; otherwise why the brokers do not have it.
    pub offset: Result<u64, Wrong>,
}

/// A client that sends.
pub struct Producer {
    // Events, topics and queues go before the client.
    /// An event that a rest has ended with.
    early: Option<Event>,
    topics: Vec<(String, Topic)>,
    reports: Queue,
    wake: Arc<Wake>,
    client: Arc<Client>,
    said: Option<Wrong>,
    spare: Spare,
}

impl Producer {
    /// A producer for the cluster of these brokers. Nothing is sent yet, and brokers may be away. A value of a property
    /// may be `env:NAME` or `file:PATH`; no value is ever shown.
    pub fn new(brokers: &str, properties: &[(String, String)]) -> Result<Self, Fault> {
        let cannot = |name: &str| format!("property `{name}` of Kafka cannot be used");
        let resolve = |(name, value): &(String, String)| match property::resolve(value) {
            Ok(value) => Ok((name.clone(), value)),
            Err(cause) => Err(Fault::new(cannot(name), cause)),
        };
        let user = properties.iter().map(resolve).collect::<Result<Pairs, Fault>>()?;
        Self::with(&pairs(brokers, user)).map_err(|(name, text)| match name.as_str() {
            "" => Fault::new("messages cannot be sent to Kafka", text),
            name => Fault::new(cannot(name), NOT_TAKEN).hint(NAMES),
        })
    }

    /// One with all these properties. The error is as that of [`Client::new`].
    pub(crate) fn with(pairs: &Pairs) -> Result<Self, (String, String)> {
        let client = Client::sends(pairs)?;
        let wake = Arc::new(Wake::new().map_err(|e| (String::new(), e.to_string()))?);
        Ok(Self {
            topics: Vec::new(),
            reports: Queue::main_with(&client, &wake),
            wake,
            client,
            said: None,
            early: None,
            spare: Spare::default(),
        })
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    pub(crate) fn wake(&self) -> &Arc<Wake> {
        &self.wake
    }

    /// The number of a topic, by which messages name it.
    pub fn topic(&mut self, name: &str) -> Result<usize, Fault> {
        if let Some(at) = self.topics.iter().position(|(known, _)| known == name) {
            return Ok(at);
        }
        let topic = Topic::new(&self.client, name);
        let topic = topic.map_err(|wrong| Fault::new(format!("topic `{name}` cannot be used"), wrong.text))?;
        self.topics.push((name.to_owned(), topic));
        Ok(self.topics.len() - 1)
    }

    /// Puts a message into the queue, which copies it. After [`Unsent::Full`] reports make room.
    pub fn send(&mut self, topic: usize, message: &Message<'_>) -> Result<(), Unsent> {
        let Some((_, topic)) = self.topics.get(topic) else {
            return Err(Unsent::Wrong(Wrong { kind: Kind::NoTopic, text: "there is no topic of this number".into() }));
        };
        let &Message { partition, key, payload, time_ms, headers, mark } = message;
        topic.send(&Outgoing { partition, key, payload: Some(payload), time_ms, headers, mark }, &mut self.spare)
    }

    /// Puts bytes into the queue without a copy: they belong to the producer until [`Producer::returned`] gives them
    /// back, after the report with their mark. Nothing else that is under way has that mark.
    pub(crate) fn lend(
        &mut self,
        topic: usize,
        partition: i32,
        key: &[u8],
        payload: Vec<u8>,
        mark: usize,
    ) -> Result<(), (Vec<u8>, Unsent)> {
        match self.topics.get(topic) {
            Some((_, topic)) => topic.lend(partition, key, payload, mark),
            None => {
                let wrong = Wrong { kind: Kind::NoTopic, text: "there is no topic of this number".into() };
                Err((payload, Unsent::Wrong(wrong)))
            }
        }
    }

    /// The bytes of a message that has its report.
    pub(crate) fn returned(&self, mark: usize) -> Option<Vec<u8>> {
        self.client.returned(mark)
    }

    /// Calls `each` for all messages of which the brokers have answered. An error: the producer sends nothing any more,
    /// make another.
    pub fn reports(&mut self, each: &mut dyn FnMut(Report)) -> Result<(), Fault> {
        self.wake.drain();
        while let Some(event) = self.early.take().or_else(|| self.reports.event(0)) {
            self.take(&event, each)?;
        }
        Ok(())
    }

    fn take(&mut self, event: &Event, each: &mut dyn FnMut(Report)) -> Result<(), Fault> {
        let (mut said, topics) = (self.said.take(), &self.topics);
        let mut last = (0, 0);
        let is_reports = event.reports(&mut self.spare, &mut |Delivered { mark, topic, partition, offset }| {
            if last.0 != topic {
                last = (topic, topics.iter().position(|(_, known)| known.key() == topic).unwrap_or(usize::MAX));
            }
            if offset.is_ok() {
                said = None;
            }
            each(Report { mark, topic: last.1, partition, offset });
        });
        self.said = said;
        if is_reports {
            return Ok(());
        }
        if let Content::Error(wrong) = event.content() {
            if let Some(end) = self.client.end() {
                let fault = Fault::new("nothing can be sent to Kafka any more", end.text);
                return Err(Fault { passes: Passes::Soon, ..fault });
            }
            if wrong.kind != Kind::AllDown {
                self.said = Some(wrong);
            }
        }
        Ok(())
    }

    /// Becomes readable when there are reports.
    #[must_use]
    pub fn descriptor(&self) -> RawFd {
        self.wake.descriptor()
    }

    /// Messages that brokers have not acknowledged, and reports that nobody has taken.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.client.waiting()
    }

    /// The newest error of its connections since the brokers last acknowledged something.
    #[must_use]
    pub fn trouble(&self) -> Option<&Wrong> {
        self.said.as_ref()
    }

    /// Waits until there are reports, for `patience` and a tenth of a second at most.
    pub(crate) fn rest(&mut self, patience: Duration) {
        let some = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX).clamp(1, 100);
        self.early = self.reports.event(some);
    }

    /// Waits until all is acknowledged, for `patience` at most. False if something is not.
    pub fn flush(&mut self, patience: Duration, each: &mut dyn FnMut(Report)) -> Result<bool, Fault> {
        let until = Instant::now() + patience;
        while self.waiting() > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            self.rest(left);
            self.reports(each)?;
        }
        Ok(true)
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        // Nobody waits for messages that are not acknowledged.
        self.client.give_up();
    }
}

/// All properties of a client that sends; `user`: those of a section, which win where both may stand.
pub(crate) fn pairs(brokers: &str, user: Pairs) -> Pairs {
    let brokers = [("bootstrap.servers", brokers)];
    merged(owned(&SEND_PROPERTIES).chain(user).chain(owned(&SEND_ALWAYS)).chain(owned(&brokers)))
}
