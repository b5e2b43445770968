//! Opens the topics of the forwarder: reads back what is stored, then opens the topic of commands. Asks whether the
//! topics of streams exist.
//!
//! Threads of their own ask the brokers, because questions wait long for brokers that are away; the loop looks after
//! `beamport up` meanwhile.

use super::Streams;
use super::kept::Kept;
use crate::command::Mistake;
use crate::limits::{NEW_TOPIC_PATIENCE, RETRY_PAUSE, STORED_BACK, STORED_PATIENCE};
use crate::options::{ForwarderOptions, Place};
use flow::Fault;
use kafka::group::{At, Cluster, TopicReader, Unreadable};
use settings::shortened;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

/// The results of the thread.
pub(crate) enum Found {
    /// It tries again.
    Trouble(Fault),
    /// The storage topic was read, if that was asked for: its streams, and those that were skipped.
    Stored(Option<(Streams, Vec<Mistake>)>),
    /// The topic of commands is open from these offsets on. Nothing comes behind it.
    Open(TopicReader, Vec<u64>),
}

/// Why streams cannot be sent to a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    Missing,
    Forbidden,
}

impl Unusable {
    /// The mistake of a stream.
    pub(crate) fn mistake(self, channel: &str, topic: &str) -> Mistake {
        let hint = match self {
            Self::Missing => "create the topic, or send the stream with another one",
            Self::Forbidden => "allow it",
        };
        Mistake::new("topic", format!("`{}`: {}", shortened(channel), self.text(topic)), hint)
    }

    /// The fault of a topic.
    pub(crate) fn text(self, topic: &str) -> String {
        match self {
            Self::Missing => format!("there is no topic `{topic}`"),
            Self::Forbidden => format!("this user may not describe topic `{topic}`"),
        }
    }
}

/// The answers of the brokers about topics, or why they have not answered.
pub(crate) type Judged = Result<BTreeMap<String, Result<(), Unusable>>, Fault>;

/// Asks brokers whether topics exist, one question after the other.
pub(crate) struct Judge {
    questions: SyncSender<Vec<String>>,
    answers: Receiver<Judged>,
    is_asked: bool,
}

impl Judge {
    pub(crate) fn new(output: &Place) -> Result<Self, Fault> {
        let cluster = Cluster::new(&output.brokers, &output.properties)?;
        let (questions, asked) = sync_channel::<Vec<String>>(1);
        let (said, answers) = sync_channel(1);
        let answer = move || {
            for names in asked {
                if said.send(judged(&cluster, &names)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("judge".into()).spawn(answer);
        thread.map_err(|e| Fault::io("cannot start a thread", &e))?;
        Ok(Self { questions, answers, is_asked: false })
    }

    /// The answer that has come, if any. Else asks for these topics, if nothing is asked and there are some.
    pub(crate) fn step(&mut self, unknown: &BTreeSet<String>) -> Option<Judged> {
        if self.is_asked {
            let judged = self.answers.try_recv().ok()?;
            self.is_asked = false;
            return Some(judged);
        }
        if !unknown.is_empty() {
            self.is_asked = self.questions.try_send(unknown.iter().cloned().collect()).is_ok();
        }
        None
    }
}

/// Asks until each of these topics exists or has been missing for a while.
fn judged(cluster: &Cluster, names: &[String]) -> Judged {
    let until = Instant::now() + NEW_TOPIC_PATIENCE;
    loop {
        let (mut all, mut doubt) = (BTreeMap::new(), None);
        for (name, state) in cluster.topics(names, false)? {
            let state = match state {
                Ok(_) => Ok(()),
                Err(Unreadable::Missing) => Err(Unusable::Missing),
                Err(Unreadable::Forbidden) => Err(Unusable::Forbidden),
                Err(Unreadable::Other(text)) => {
                    doubt = Some(Fault::new(format!("cannot send to topic `{name}`"), text));
                    continue;
                }
            };
            all.insert(name, state);
        }
        let is_late = Instant::now() > until;
        if doubt.is_none() && (is_late || all.values().all(Result::is_ok)) {
            return Ok(all);
        }
        // Those with an answer are judged, the others are asked for again.
        if let Some(fault) = doubt.filter(|_| is_late) {
            return if all.is_empty() { Err(fault) } else { Ok(all) };
        }
        std::thread::sleep(NEW_TOPIC_PATIENCE / 4);
    }
}

/// The topics that the thread has to open.
struct Opener {
    commands: Cluster,
    topic: String,
    /// Where each partition was read to; empty at the first start.
    offsets: Vec<u64>,
    storage: Option<(Cluster, String)>,
}

/// Opens the topics. `kept`: where commands were read to. Streams that the storage topic has not got yet count more
/// than what it has.
pub(crate) fn open(options: &ForwarderOptions, kept: &Kept) -> Result<Receiver<Found>, Fault> {
    let cluster = |place: &Place| Cluster::new(&place.brokers, &place.properties);
    let place = options.storage.as_ref().filter(|_| kept.is_stored && !options.skip_retrieval);
    let opener = Opener {
        commands: cluster(&options.config)?,
        topic: options.config.topic.clone(),
        offsets: if kept.topic == options.config.topic { kept.offsets.clone() } else { Vec::new() },
        storage: place.map(|place| Ok::<_, Fault>((cluster(place)?, place.topic.clone()))).transpose()?,
    };
    let (sender, found) = sync_channel(1);
    let thread = std::thread::Builder::new().name("topics".into()).spawn(move || opener.run(&sender));
    thread.map_err(|e| Fault::io("cannot start a thread", &e))?;
    Ok(found)
}

impl Opener {
    /// Ends when all is open, or nobody listens any more.
    fn run(&self, found: &SyncSender<Found>) {
        let all = [|opener: &Self| opener.stored().map(Found::Stored), Self::opened];
        for step in all {
            loop {
                let said = step(self);
                let is_done = said.is_ok();
                if found.send(said.unwrap_or_else(Found::Trouble)).is_err() {
                    return;
                }
                if is_done {
                    break;
                }
                std::thread::sleep(RETRY_PAUSE);
            }
        }
    }

    /// The topic of commands from where it was read to; from behind its newest message at the first start.
    fn opened(&self) -> Result<Found, Fault> {
        let topic = &self.topic;
        let missing = || Fault::new(format!("cannot read topic `{topic}`"), "there is no such topic").hint("create it");
        let partitions = partitions(&self.commands, topic)?.ok_or_else(missing)?;
        let partitions = BTreeMap::from([(topic.clone(), partitions)]);
        let of = |at: At| Ok::<_, Fault>(self.commands.offsets(&partitions, at)?.remove(topic).unwrap_or_default());
        let (first, end) = (of(At::First)?, of(At::End)?);
        let begin = |(number, (first, end)): (usize, (&u64, &u64))| match self.offsets.get(number) {
            _ if self.offsets.is_empty() => *end,
            Some(offset) if (first..=end).contains(&offset) => *offset,
            Some(offset) => {
                let place = format!("`{topic}/{number}` has the offsets {first} to {end}, not {offset}");
                tracing::warn!("commands may be missing: {place}; it is read from its first message");
                *first
            }
            // It is new.
            None => *first,
        };
        let offsets: Vec<u64> = first.iter().zip(&end).enumerate().map(begin).collect();
        Ok(Found::Open(self.commands.read(topic, &offsets)?, offsets))
    }

    /// The streams of the newest valid message in partition 0 of the storage topic.
    fn stored(&self) -> Result<Option<(Streams, Vec<Mistake>)>, Fault> {
        let Some((cluster, topic)) = &self.storage else { return Ok(None) };
        let one = BTreeMap::from([(topic.clone(), 1)]);
        if partitions(cluster, topic)?.is_none() {
            tracing::warn!("the storage topic `{topic}` is missing: nothing is stored yet");
            return Ok(None);
        }
        let of = |at: At| Ok::<_, Fault>(cluster.offsets(&one, at)?.remove(topic).and_then(|row| row.first().copied()));
        let (first, mut upper) = (of(At::First)?.unwrap_or(0), of(At::End)?.unwrap_or(0));
        let mut back = STORED_BACK;
        while upper > first {
            let lower = upper.saturating_sub(back).max(first);
            if let Some(found) = newest(cluster, topic, lower, upper)? {
                return Ok(Some(found));
            }
            (upper, back) = (lower, back * STORED_BACK);
        }
        Ok(None)
    }
}

/// The newest valid message among these offsets.
fn newest(cluster: &Cluster, topic: &str, lower: u64, upper: u64) -> Result<Option<(Streams, Vec<Mistake>)>, Fault> {
    let mut found = None;
    let mut reader = cluster.read(topic, &[lower])?;
    // The last offsets may have no message, as those of transactions: then the wait ends.
    while let Some(message) = reader.next(STORED_PATIENCE) {
        if message.offset < upper {
            found = Streams::of_stored(&message.payload).or(found);
        }
        if message.offset + 1 >= upper {
            break;
        }
    }
    Ok(found)
}

/// Partitions of a topic; none where it is missing.
fn partitions(cluster: &Cluster, topic: &str) -> Result<Option<usize>, Fault> {
    let what = || format!("cannot read topic `{topic}`");
    match cluster.topics(&[topic.to_owned()], true)?.remove(topic) {
        Some(Ok(count)) => Ok(Some(count)),
        Some(Err(Unreadable::Forbidden)) => Err(Fault::new(what(), "this user may not read it")),
        Some(Err(Unreadable::Other(text))) => Err(Fault::new(what(), text)),
        Some(Err(Unreadable::Missing)) | None => Ok(None),
    }
}
