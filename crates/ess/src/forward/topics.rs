//! Opens the topics of the forwarder: reads back what is stored, then opens the topic of commands.
//!
//! A thread of its own asks the brokers, because questions wait long for brokers that are away; the loop looks after
//! `beamport up` meanwhile.

use super::Streams;
use super::kept::Kept;
use crate::command::Mistake;
use crate::limits::{RETRY_PAUSE, STORED_BACK, STORED_PATIENCE};
use crate::options::{ForwarderOptions, Place};
use flow::Fault;
use kafka::group::{At, Cluster, TopicReader, Unreadable};
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// What the thread has found.
pub(crate) enum Found {
    /// It tries again.
    Trouble(Fault),
    /// The storage topic was read, if that was asked for: its streams, and those that were skipped.
    Stored(Option<(Streams, Vec<Mistake>)>),
    /// The topic of commands is open from these offsets on. Nothing comes behind it.
    Open(TopicReader, Vec<u64>),
}

/// What the thread has to open.
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
