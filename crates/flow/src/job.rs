//! The job of a writer process: one JSON object that `beamport-nexus write` reads from its stdin.
//!
//! Both programs use these types. An unknown or missing field is refused, because then the programs have two versions.

use serde::{Deserialize, Serialize};
pub use settings::Word;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

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
