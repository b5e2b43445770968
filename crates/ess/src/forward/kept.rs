//! What the forwarder keeps in its data folder, in `streams.json`: the streams, and the place in the topic of commands.
//!
//! A command counts once the file holds it; it is carried out afterwards, and again after a kill in between.

use super::{Given, Protocol, Streams};
use crate::journal;
use crate::limits::RECORD_BYTES_MAX;
use flow::Fault;
use serde::{Deserialize, Serialize};
use settings::Word as _;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

/// The file.
const FILE: &str = "streams.json";
/// The file whose lock the owner of the folder holds.
const LOCK: &str = "forwarder.lock";

/// What is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    /// What is forwarded.
    pub(crate) streams: Streams,
    /// The topic of commands, and the next offset of each of its partitions; empty: none was read.
    pub(crate) topic: String,
    pub(crate) offsets: Vec<u64>,
    /// The storage topic has the streams.
    pub(crate) is_stored: bool,
    /// The source has the streams.
    pub(crate) is_applied: bool,
}

impl Default for Kept {
    fn default() -> Self {
        let (streams, topic, offsets) = Default::default();
        Self { streams, topic, offsets, is_stored: true, is_applied: true }
    }
}

/// The file, as JSON.
#[derive(Serialize, Deserialize)]
struct Record {
    topic: String,
    offsets: Vec<u64>,
    is_stored: bool,
    is_applied: bool,
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
    fn to_record(&self) -> Record {
        let row = |stream: &super::Stream| Row {
            channel: stream.channel.clone(),
            schema: stream.schema.word().to_owned(),
            topic: stream.topic.clone(),
            protocol: stream.protocol.name().to_owned(),
            periodic: stream.is_periodic,
        };
        Record {
            topic: self.topic.clone(),
            offsets: self.offsets.clone(),
            is_stored: self.is_stored,
            is_applied: self.is_applied,
            streams: self.streams.0.iter().map(row).collect(),
        }
    }

    /// Streams that this version does not know are left out.
    fn of_record(record: Record) -> Self {
        let Record { topic, offsets, is_stored, is_applied, streams } = record;
        let stream = |row: &Row| {
            let protocol = *Protocol::ALL.iter().find(|known| known.name() == row.protocol)?;
            let Row { channel, schema, topic, periodic, .. } = row;
            Given { channel, schema, topic, protocol, is_periodic: *periodic }.stream().ok()
        };
        Self { streams: Streams(streams.iter().filter_map(stream).collect()), topic, offsets, is_stored, is_applied }
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

    /// What was kept; nothing at the first start, and where the file is damaged.
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
    use crate::forward::{Schema, Stream};

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
        let streams = Streams([stream("A"), stream("B")].into());
        let (topic, offsets) = ("commands".to_owned(), vec![3, 0]);
        let kept = Kept { streams, topic, offsets, is_stored: false, is_applied: true };
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
