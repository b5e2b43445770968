//! After a restart: which messages, of those that no commit counts, topics hold already.
//!
//! Each partition is read from its kept offset to its end. A broker may still complete requests of a killed process, so
//! the partitions are read until no message of this sink has arrived for a second. Messages of other producers do not
//! extend this.

use super::state::Known;
use crate::client::{Pairs, owned};
use crate::header;
use crate::librdkafka::{Batch, Client, Content, Kind, Mark, OffsetAnswer, Queue, Spec, Topic, Wake, Wrong};
use crate::limits::{ANSWER_TIMEOUT_MS, BATCH_MESSAGES, ENDS_PAUSE, LOOK_PATIENCE, PROPERTIES, TOPICS_PAUSE};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// One partition.
pub(crate) struct Part {
    /// Its topic.
    pub(crate) topic: String,
    /// Its number.
    pub(crate) number: i32,
    /// The offset of its next message.
    pub(crate) next: u64,
    /// Where it ended when that was last asked.
    end: Option<u64>,
    /// By stream: one past the last offset of its messages, and the last sequence.
    pub(crate) found: BTreeMap<String, (u64, u64)>,
}

impl Part {
    pub(crate) fn new(topic: &str, number: i32, from: u64) -> Self {
        Self { topic: topic.to_owned(), number, next: from, end: None, found: BTreeMap::new() }
    }
}

/// Messages that are in topics, by identity and epoch of the stream.
pub(crate) type Present = HashMap<([u8; 16], u32), HashSet<u64>>;

/// A reader of some partitions. Fields are dropped from above: messages before their queue, all before the client.
pub(crate) struct Look {
    batch: Batch,
    topics: Vec<Topic>,
    records: Queue,
    answers: Queue,
    client: Arc<Client>,
    pub(crate) parts: Vec<Part>,
    by_place: HashMap<(usize, i32), usize>,
    streams: BTreeMap<String, Known>,
    pub(crate) present: Present,
    /// When the ends are asked for that nobody has answered yet.
    asked: Option<i64>,
    /// When the ends of the parts were asked for.
    known: Option<i64>,
    /// When they are to be asked for.
    due: i64,
    /// Since when no message of this sink has arrived.
    quiet: i64,
    /// Since when the brokers have not answered.
    pub(crate) silent: Option<i64>,
}

impl Drop for Look {
    fn drop(&mut self) {
        self.batch.clear();
        for place in self.by_place.keys() {
            let topic = self.topics.iter().find(|topic| topic.key() == place.0);
            topic.into_iter().for_each(|topic| topic.leave(place.1));
        }
    }
}

impl Look {
    /// Begins to read. `user`: properties of the section. The error names the property that it is about.
    pub(crate) fn begin(
        brokers: &str,
        user: Pairs,
        wake: &Arc<Wake>,
        parts: Vec<Part>,
        streams: BTreeMap<String, Known>,
        now: i64,
    ) -> Result<Self, (String, String)> {
        let ours = [
            ("bootstrap.servers", brokers),
            ("enable.partition.eof", "true"),
            ("auto.offset.reset", "error"),
            ("isolation.level", "read_uncommitted"),
        ];
        let pairs: Pairs = owned(&PROPERTIES).chain(user).chain(owned(&ours)).collect();
        let client = Client::new(&pairs)?;
        let mut look = Self {
            batch: Batch::default(),
            topics: Vec::new(),
            records: Queue::new(&client, wake),
            answers: Queue::new(&client, wake),
            client,
            parts: Vec::new(),
            by_place: HashMap::new(),
            streams,
            present: Present::new(),
            asked: None,
            known: None,
            due: now,
            quiet: now,
            silent: None,
        };
        let mut last = String::new();
        for (at, part) in parts.into_iter().enumerate() {
            if last != part.topic {
                last.clone_from(&part.topic);
                let topic = Topic::new(&look.client, &part.topic).map_err(|wrong| (String::new(), wrong.text))?;
                look.topics.push(topic);
            }
            if let Some(topic) = look.topics.last() {
                let begun = topic.read(part.number, part.next, &look.records);
                begun.map_err(|wrong| (String::new(), wrong.text))?;
                look.by_place.insert((topic.key(), part.number), at);
            }
            look.parts.push(part);
        }
        Ok(look)
    }

    /// Reads what has been fetched. True when no message of this sink arrives any more.
    pub(crate) fn step(&mut self, now: i64) -> Result<bool, Wrong> {
        while let Some(event) = self.answers.event(0) {
            match event.content() {
                Content::Offsets(_, rows) => {
                    self.known = self.asked.take();
                    self.silent = None;
                    rows.into_iter().for_each(|row| self.take_offset(row));
                }
                Content::Unanswered(..) => {
                    self.asked = None;
                    self.due = now + TOPICS_PAUSE;
                }
                _ => {}
            }
        }
        while self.records.take(&mut self.batch, BATCH_MESSAGES) > 0 {
            self.read(now)?;
        }
        let is_read = self.parts.iter().all(|part| part.end.is_some_and(|end| part.next >= end));
        if let Some(known) = self.known.filter(|_| is_read) {
            if known.saturating_sub(self.quiet) >= LOOK_PATIENCE {
                return Ok(true);
            }
            // The clock of the machine may have been set back.
            self.quiet = self.quiet.min(now);
            self.due = (self.quiet + LOOK_PATIENCE).max(known.min(now) + ENDS_PAUSE);
            self.known = None;
        }
        if self.asked.is_none() && self.known.is_none() && now >= self.due {
            let asked: Vec<_> = self.parts.iter().map(|part| (part.topic.as_str(), part.number, Spec::End)).collect();
            self.client.ask_offsets(&asked, false, ANSWER_TIMEOUT_MS, Mark::Ends, &self.answers)?;
            self.asked = Some(now);
            self.silent.get_or_insert(now);
        }
        Ok(false)
    }

    /// Takes the end of a partition. If it is unavailable now, the sink asks again.
    fn take_offset(&mut self, OffsetAnswer { topic, partition, offset, .. }: OffsetAnswer) {
        let part = self.parts.iter_mut().find(|part| part.number == partition && part.topic == topic);
        match (part, offset) {
            (Some(part), Ok(Some(end))) => part.end = Some(end),
            _ => self.known = None,
        }
    }

    fn read(&mut self, now: i64) -> Result<(), Wrong> {
        while let Some(record) = self.batch.front() {
            let part = self.by_place.get(&record.place()).and_then(|at| self.parts.get_mut(*at));
            match (part, record.error()) {
                (Some(part), None) => {
                    part.next = part.next.max(record.offset() + 1);
                    let identity = record.header(header::NAME).and_then(header::read);
                    let stream = identity.and_then(|id| self.streams.iter().find(|(_, known)| known.0 == id.uuid));
                    if let (Some(id), Some((name, (_, below)))) = (identity, stream) {
                        if part.end.is_some_and(|end| record.offset() >= end) {
                            self.quiet = now;
                        }
                        if id.sequence >= *below {
                            let found = part.found.entry(name.clone()).or_default();
                            *found = (part.next, found.1.max(id.sequence));
                            self.present.entry((id.uuid, id.epoch)).or_default().insert(id.sequence);
                        }
                    }
                }
                (Some(part), Some(wrong)) => match wrong.kind {
                    Kind::PartitionEnd => part.next = part.next.max(record.offset()),
                    Kind::OffsetGone | Kind::NoTopic | Kind::Forbidden => return Err(wrong),
                    // librdkafka tries again.
                    _ => {}
                },
                (None, _) => {}
            }
            self.batch.pop();
        }
        Ok(())
    }
}
