//! The jobs of processes that the mover starts, one JSON object each.
//!
//! `beamport-nexus write` reads the job of a writer from its stdin, a slot of a worker its own from its argument. Both
//! programs use these types. An unknown or missing field is refused, because then the programs have two versions.

use serde::{Deserialize, Serialize};
use serde_json::Value;
pub use settings::Word;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use store::Level;

/// The job of a writer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriterJob {
    /// Data folder.
    pub data: PathBuf,
    /// Name of the sink.
    pub sink: String,
    /// Name of the run.
    pub run: String,
    /// Names of the streams; none where the template has no stream.
    pub inputs: Vec<String>,
    /// The files that the run becomes.
    pub work: Work,
    /// The file to write; of files of frames with `{stream}` and `{number}` in its name, in a folder of the run.
    pub output: PathBuf,
    /// Time between flushes.
    pub flush: Duration,
    /// While the run is open, messages that are newer than this are not written yet.
    pub hold: Duration,
    /// Write no file of a part: where the streams no longer hold what the file needs, the job ends as incomplete.
    pub whole: bool,
    /// Keep no positions and no commits, and replace the file at `output`: it is not the sink's own.
    pub detached: bool,
    /// Only what an open run has at a time; with `detached`, not for files of frames.
    pub snapshot: Option<Snapshot>,
    /// The part of the run that other writers have.
    pub elsewhere: Elsewhere,
    /// The program that writes it.
    pub writer: Writer,
}

/// The files that a run becomes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// One file, as this template says.
    Template(PathBuf),
    /// Files of frames.
    Frames {
        /// Frames of a file, at most; 1 or more.
        max: u64,
        /// How their chunks are packed.
        compression: Compression,
    },
}

/// The program that writes files from templates, with the modules of the user that it loads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Writer {
    /// The file that each new file begins as a copy of.
    pub static_file: Option<PathBuf>,
    /// How streams become datasets.
    pub layout: Layout,
    /// The name of each stream in the template, where the stream has another.
    pub topics: BTreeMap<String, String>,
    /// The program; `None`: `beamport-nexus` beside our own. It is not part of the JSON: the program knows itself.
    #[serde(skip)]
    pub program: Option<PathBuf>,
    /// Modules in Python, `FILE.py:CLASS` or `PACKAGE.MODULE:CLASS`.
    pub modules: Vec<String>,
    /// Where a FILE is: the folder of the instrument file.
    pub folder: PathBuf,
    /// The interpreter; `None`: the one beside `beamport`, else `python3`.
    pub python: Option<PathBuf>,
    /// Longest time of a module in Python on a message.
    pub time_max: Duration,
}

impl Writer {
    /// The name of a stream in the template.
    #[must_use]
    pub fn topic_of<'a>(&'a self, stream: &'a str) -> &'a str {
        self.topics.get(stream).map_or(stream, String::as_str)
    }
}

/// How streams become datasets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// As scippnexus and Mantid read them.
    #[default]
    Nexus,
    /// As the ESS file writer names and types them.
    Ess,
}

impl Word for Layout {
    const ALL: &'static [(&'static str, Self)] = &[("nexus", Self::Nexus), ("ess", Self::Ess)];
}

/// How chunks are packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compression {
    /// Not.
    #[default]
    None,
    /// Bit planes and LZ4.
    BitshuffleLz4,
    /// Byte planes and zlib.
    Deflate,
}

impl Word for Compression {
    const ALL: &'static [(&'static str, Self)] =
        &[("none", Self::None), ("bitshuffle-lz4", Self::BitshuffleLz4), ("deflate", Self::Deflate)];
}

/// Up to where an open run is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// When, ns since 1970 UTC.
    pub time: i64,
    /// Of each input one past the last sequence.
    pub ends: Vec<u64>,
}

/// The part of a run that other writers have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Elsewhere {
    /// Streams that another has, each with the name of its file.
    pub streams: Vec<(String, String)>,
    /// Name of the run's file, where this is that of another writer.
    pub run_file: Option<String>,
}

impl Elsewhere {
    /// True where one writer has it all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty() && self.run_file.is_none()
    }
}

/// The job of a slot of a worker: `beamport slot JSON`, or `python -m beamport._slot JSON`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotJob {
    /// Process of the mover: the slot dies with it.
    pub parent: u32,
    /// Data folder.
    pub data: PathBuf,
    /// Name of the worker.
    pub stage: String,
    /// Name of its section in the instrument file: the source and origin of what it makes.
    pub maker: String,
    /// Number of the slot, from 0.
    pub number: u32,
    /// Names of the inputs: a task names its input by the index in this list.
    pub inputs: Vec<String>,
    /// Level of the slot's stream.
    #[serde(with = "LevelWord")]
    pub level: Level,
    /// Shared memory of the slot's stream.
    pub live_bytes: u64,
    /// First task of the slot.
    pub from: u64,
    /// How a message is given to one of several parts: by its origin.
    pub by_key: bool,
    /// How many slots its worker has.
    pub slots: u32,
    /// What its code keeps behind the messages that are answered, as it said itself with [`crate::Outputs::keep`].
    pub kept: Vec<u64>,
    /// The processor that it is bound to.
    pub cpu: Option<u64>,
    /// Its code.
    pub code: SlotCode,
}

/// The code of a slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlotCode {
    /// A ready-made worker, or Python: `FILE.py:NAME` or `PACKAGE.MODULE:NAME`.
    pub call: String,
    /// Where a FILE is: the folder of the instrument file.
    pub folder: PathBuf,
    /// The copy of its files that is loaded; `None`: the files themselves.
    pub copied: Option<CodeCopy>,
    /// Parameters, a JSON object.
    pub parameters: Value,
}

/// A copy of files of Python code in the data folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodeCopy {
    /// Its folder.
    pub folder: PathBuf,
    /// The folder of the files that were copied.
    pub root: PathBuf,
    /// SHA-256 of the list of files with their SHA-256, in hexadecimal digits.
    pub hash: String,
}

/// The job of a process of Python that only loads the code of a worker: `python -m beamport._slot JSON` prints what the
/// code declares, or why it cannot be loaded.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LoadJob {
    /// Process of the mover: this one dies with it.
    pub parent: u32,
    /// The code.
    pub code: SlotCode,
    /// It finds groups, for a ready-made worker.
    pub finds: bool,
    /// A running worker is to take these parameters.
    pub changes: bool,
}

/// The job of the process that runs the Python code of a source: `python -m beamport._source JSON`. On its stdin, a
/// socket, comes a [`SourceStart`]; it writes a byte there when there is something new in the stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourceJob {
    /// Process of the mover: this one dies with it.
    pub parent: u32,
    /// Data folder.
    pub data: PathBuf,
    /// Name of the source: the origin of messages that name none.
    pub source: String,
    /// The stream for what the code yields.
    pub stream: String,
    /// Shared memory of this stream.
    pub live_bytes: u64,
    /// Its code.
    pub code: SlotCode,
}

/// Where the Python code of a source begins: a line of JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceStart {
    /// Its newest note [`Note::Saved`].
    pub saved: Option<String>,
    /// The next number of each origin, where there is none.
    pub numbers: BTreeMap<String, u64>,
}

/// The job of a process that only loads the code of a source: `python -m beamport._source JSON` prints its mistakes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourceLoadJob {
    /// Process of the mover: this one dies with it.
    pub parent: u32,
    /// The code.
    pub code: SlotCode,
}

/// A word of the process of a source's code, between its messages and with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// The code was loaded, and yields its first value next.
    Begun,
    /// State of the code, with which all messages before agree.
    Saved,
    /// A value that no message can hold: why, and where it was yielded.
    Refused,
    /// The code raised an exception: its traceback.
    Raised,
    /// The code has come to its end.
    Ended,
}

impl Note {
    const ALL: [(&'static str, [u8; 4], Self); 5] = [
        ("begun", *b"pybg", Self::Begun),
        ("saved", *b"pysv", Self::Saved),
        ("refused", *b"pyrf", Self::Refused),
        ("raised", *b"pyex", Self::Raised),
        ("ended", *b"pyen", Self::Ended),
    ];

    /// By the word that the process uses.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|one| one.0 == word).map(|one| one.2)
    }

    /// The note behind a schema of the stream; `None`: it is that of a message.
    #[must_use]
    pub fn of_schema(schema: [u8; 4]) -> Option<Self> {
        Self::ALL.iter().find(|one| one.1 == schema).map(|one| one.2)
    }

    /// The schema in the stream; no other message has it.
    #[must_use]
    pub fn schema(self) -> [u8; 4] {
        Self::ALL.iter().find(|one| one.2 == self).map_or([0; 4], |one| one.1)
    }
}

/// [`Level`] in JSON, by the words of [`Level::as_str`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "Level", rename_all = "kebab-case")]
enum LevelWord {
    Memory,
    Disk,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> SlotJob {
        SlotJob {
            parent: 12,
            data: "/data".into(),
            stage: "scale".into(),
            maker: "scale".into(),
            number: 1,
            inputs: vec!["bank0".into(), "bank1".into()],
            level: Level::Disk,
            live_bytes: 1 << 20,
            from: 7,
            by_key: true,
            slots: 2,
            kept: vec![3, 1],
            cpu: None,
            code: SlotCode {
                call: "mine.py:one".into(),
                folder: "/instrument".into(),
                copied: Some(CodeCopy {
                    folder: "/data/.code/ab".into(),
                    root: "/instrument".into(),
                    hash: "ab".into(),
                }),
                parameters: serde_json::json!({"factor": 2}),
            },
        }
    }

    #[test]
    fn a_slot_reads_the_job_that_the_mover_writes() {
        let text = serde_json::to_string(&job()).unwrap();
        assert_eq!(serde_json::from_str::<SlotJob>(&text).unwrap(), job());
        // Tests of programs find the slots of a worker by this part of their command line.
        assert!(text.contains(r#""stage":"scale""#) && text.contains(r#""level":"disk""#), "{text}");
    }

    #[test]
    fn the_job_of_another_version_is_refused() {
        let mut job = serde_json::to_value(job()).unwrap();
        job["code"]["module"] = "x".into();
        let error = serde_json::from_value::<SlotJob>(job.clone()).unwrap_err().to_string();
        assert!(error.contains("unknown field `module`"), "{error}");
        job["code"].as_object_mut().unwrap().remove("module");
        job.as_object_mut().unwrap().remove("from");
        let error = serde_json::from_value::<SlotJob>(job).unwrap_err().to_string();
        assert!(error.contains("missing field `from`"), "{error}");
    }
}
