//! The state of the forwarder in its data folder, `streams.json`: the streams, and the place in the topic of commands.
//!
//! A command counts once the file holds it; it is carried out afterwards, and again after a kill in between.

use super::topics::Unusable;
use super::{Given, Protocol, Streams};
use crate::command::Mistake;
use crate::journal;
use crate::limits::RECORD_BYTES_MAX;
use flow::Fault;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

/// The file.
const FILE: &str = "streams.json";
/// The file whose lock the owner of the folder holds.
const LOCK: &str = "forwarder.lock";

/// The state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The streams that are forwarded.
    pub(crate) streams: Streams,
    /// The topic of commands, and the next offset of each of its partitions; empty: none was read.
    pub(crate) topic: String,
    pub(crate) offsets: Vec<u64>,
    /// The storage topic has the streams.
    pub(crate) is_stored: bool,
    /// Topics of streams that exist, as the brokers have said.
    pub(crate) found: BTreeSet<String>,
}

impl Default for Kept {
    fn default() -> Self {
        let (streams, topic, offsets, found) = Default::default();
        Self { streams, topic, offsets, is_stored: true, found }
    }
}

/// The file, as JSON.
#[derive(Serialize, Deserialize)]
struct Record {
    topic: String,
    offsets: Vec<u64>,
    is_stored: bool,
    #[serde(default)]
    found: BTreeSet<String>,
    streams: Vec<Row>,
}

#[derive(Serialize, Deserialize)]
struct Row {
    channel: String,
    schema: String,
    topic: String,
    protocol: String,
    periodic: bool,
}

impl Kept {
    /// The streams whose topics exist: those that are forwarded.
    pub(crate) fn accepted(&self) -> Streams {
        let accepted = self.streams.forwarded.iter().filter(|stream| self.found.contains(&stream.topic));
        Streams { forwarded: accepted.cloned().collect(), ..Streams::default() }
    }

    /// The topics of streams of which the brokers have not said that they exist.
    pub(crate) fn unknown(&self) -> BTreeSet<String> {
        let topics = self.streams.forwarded.iter().map(|stream| &stream.topic);
        topics.filter(|topic| !self.found.contains(*topic)).cloned().collect()
    }

    /// Takes other streams; the topics of those that are gone are forgotten.
    pub(crate) fn change(&mut self, streams: Streams) {
        self.streams = streams;
        let topics: HashSet<&str> = self.streams.forwarded.iter().map(|stream| stream.topic.as_str()).collect();
        self.found.retain(|topic| topics.contains(topic.as_str()));
    }

    /// Enters topics that exist. False if no stream is accepted thereby.
    pub(crate) fn find(&mut self, topics: &BTreeSet<String>) -> bool {
        let before = self.found.len();
        self.found.extend(self.unknown().intersection(topics).cloned());
        self.found.len() > before
    }

    /// The streams of these topics, each with what keeps it from being forwarded.
    pub(crate) fn waiting(&self, unusable: &BTreeMap<String, Unusable>) -> Vec<Mistake> {
        let of = |stream: &super::Stream| Some(unusable.get(&stream.topic)?.mistake(&stream.channel, &stream.topic));
        self.streams.forwarded.iter().filter_map(of).collect()
    }

    fn to_record(&self) -> Record {
        let row = |Given { channel, schema, topic, protocol, is_periodic }: Given<'_>| Row {
            channel: channel.to_owned(),
            schema: schema.to_owned(),
            topic: topic.to_owned(),
            protocol: protocol.name().to_owned(),
            periodic: is_periodic,
        };
        Record {
            topic: self.topic.clone(),
            offsets: self.offsets.clone(),
            is_stored: self.is_stored,
            found: self.found.clone(),
            streams: self.streams.rows().map(row).collect(),
        }
    }

    fn of_record(record: Record) -> Self {
        let Record { topic, offsets, is_stored, found, streams: rows } = record;
        let mut streams = Streams::default();
        for Row { channel, schema, topic, protocol, periodic } in &rows {
            let Some(protocol) = Protocol::ALL.iter().find(|known| known.name() == protocol) else { continue };
            let given = Given { channel, schema, topic, protocol: *protocol, is_periodic: *periodic };
            // One of another version, or of another forwarder, stays on the list.
            let _ = streams.add(&given);
        }
        Self { streams, topic, offsets, is_stored, found }
    }
}

/// The data folder of a forwarder, which has no other owner as long as this lives.
pub(crate) struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Makes it where it is missing, and takes it.
    pub(crate) fn take(path: &Path) -> Result<Self, Fault> {
        let what = || format!("cannot use the data folder `{}`", path.display());
        let file = fs::create_dir_all(path)
            .and_then(|()| File::options().create(true).truncate(false).write(true).open(path.join(LOCK)))
            .map_err(|e| Fault::io(what(), &e))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: file }),
            Err(TryLockError::WouldBlock) => Err(Fault::new(what(), "another forwarder uses it")
                .hint("end that one, or name another folder with `--data`")),
            Err(TryLockError::Error(e)) => Err(Fault::io(what(), &e)),
        }
    }

    /// The stored state; empty at the first start, and where the file is damaged.
    pub(crate) fn read(&self) -> Kept {
        let path = self.path.join(FILE);
        if !path.exists() {
            return Kept::default();
        }
        let bytes = journal::read(&path, RECORD_BYTES_MAX).map_err(|e| e.to_string());
        match bytes.and_then(|bytes| serde_json::from_slice(&bytes).map_err(|e| e.to_string())) {
            Ok(record) => Kept::of_record(record),
            Err(cause) => {
                tracing::error!("cannot read `{}`: {cause}; the forwarder begins without it", path.display());
                Kept::default()
            }
        }
    }

    /// Puts it on disk.
    pub(crate) fn write(&self, kept: &Kept) -> Result<(), Fault> {
        let bytes = serde_json::to_vec(&kept.to_record()).unwrap_or_default();
        self.put(FILE, &bytes)
    }

    /// Puts a file in the folder, whole or not at all.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) -> Result<(), Fault> {
        let what = || format!("cannot write `{}`", self.path.join(name).display());
        journal::put(&self.path, name, bytes).map_err(|e| Fault::io(what(), &e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::{Foreign, Schema, Stream};

    fn streams(all: &[(&str, &str)]) -> Streams {
        let stream = |(channel, topic): &(&str, &str)| Stream {
            protocol: Protocol::Pva,
            channel: (*channel).to_owned(),
            topic: (*topic).to_owned(),
            schema: Schema::F144,
            is_periodic: false,
        };
        Streams { forwarded: all.iter().map(stream).collect(), ..Streams::default() }
    }

    #[test]
    fn a_stream_is_accepted_once_its_topic_is_found_and_stays_on_the_list_where_there_is_none() {
        let mut kept = Kept::default();
        let all = streams(&[("A", "motion"), ("B", "motoin"), ("C", "choppers"), ("D", "secret")]);
        kept.change(all.clone());
        assert_eq!(kept.accepted(), Streams::default());
        let asked: Vec<String> = kept.unknown().into_iter().collect();
        assert_eq!(asked, ["choppers", "motion", "motoin", "secret"]);
        assert!(kept.find(&["motion".to_owned(), "removed meanwhile".to_owned()].into()));
        let unusable = [("motoin", Unusable::Missing), ("secret", Unusable::Forbidden), ("other", Unusable::Missing)];
        let waiting = kept.waiting(&unusable.map(|(topic, why)| (topic.to_owned(), why)).into());
        let text: Vec<String> = waiting.iter().map(ToString::to_string).collect();
        assert_eq!(text.len(), 2, "{text:?}");
        assert!(text[0].contains("`B`: there is no topic `motoin`") && text[1].contains("`D`"), "{text:?}");
        assert_eq!((kept.accepted(), &kept.streams), (streams(&[("A", "motion")]), &all));
        assert_eq!(kept.found, ["motion".to_owned()].into());
        assert!(!kept.find(&["motion".to_owned()].into()));
        assert!(kept.find(&["motoin".to_owned()].into()), "it was created since");
        assert_eq!(kept.accepted(), streams(&[("A", "motion"), ("B", "motoin")]));
        // The topic is judged again when it gets its next stream.
        kept.change(streams(&[]));
        kept.change(streams(&[("A", "motion")]));
        assert_eq!(kept.accepted(), Streams::default());
    }

    #[test]
    fn what_was_kept_is_read_by_the_next_owner_alone() {
        let path = std::env::temp_dir().join(format!("beamport-forwarder-{}", std::process::id()));
        let folder = Folder::take(&path).unwrap();
        assert_eq!(folder.read(), Kept::default());
        let stream = |channel: &str| Stream {
            protocol: Protocol::Ca,
            channel: channel.into(),
            topic: "motion".into(),
            schema: Schema::Tdct,
            is_periodic: true,
        };
        let foreign = Foreign {
            protocol: Protocol::Pva,
            channel: "with a space".into(),
            topic: "motion".into(),
            schema: "f999".into(),
            is_periodic: false,
        };
        let streams = Streams { forwarded: [stream("A"), stream("B")].into(), foreign: [foreign].into() };
        let (topic, offsets) = ("commands".to_owned(), vec![3, 0]);
        let found = ["motion".to_owned()].into();
        let kept = Kept { streams, topic, offsets, is_stored: false, found };
        folder.write(&kept).unwrap();
        let fault = Folder::take(&path).map(|_| ()).unwrap_err();
        assert!(fault.cause.contains("another forwarder"), "{fault}");
        drop(folder);
        let folder = Folder::take(&path).unwrap();
        assert_eq!(folder.read(), kept);
        fs::write(path.join(FILE), "{").unwrap();
        assert_eq!(folder.read(), Kept::default());
        fs::remove_dir_all(&path).unwrap();
    }
}
