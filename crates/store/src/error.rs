//! Errors of the store. Each variant names the file or stream; its text tells the caller what to do.

use crate::limits::READERS_MAX;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Errors of the store.
#[derive(Debug)]
pub enum Error {
    /// The operating system refused something.
    Io {
        /// What was being done: "map", "write", ...
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// Its answer.
        source: io::Error,
    },
    /// No room now: the ring is full and `when_full = "wait"`, or the disk is full. Try again later.
    Full(&'static str),
    /// The message was dropped by `when_full = "drop-newest"`: count it.
    Dropped,
    /// Another process writes this stream.
    Locked(PathBuf),
    /// There is no stream in this folder.
    Missing(PathBuf),
    /// The folder holds messages, but its header `stream` is not there: without it no checksum can be verified, and
    /// nothing is changed.
    Headless(PathBuf),
    /// Bytes that do not verify: file and position of the first wrong one.
    Corrupt {
        /// File.
        path: PathBuf,
        /// Byte in the file.
        at: u64,
        /// Sequence of the message it belongs to.
        sequence: u64,
        /// Which check failed.
        what: &'static str,
    },
    /// A file that the index speaks of is not there: the messages in it are lost.
    Lost {
        /// File.
        path: PathBuf,
        /// First message that is lost with it.
        first: u64,
        /// One past the last that is known to be.
        end: u64,
    },
    /// The messages of a memory stream lie in shared memory that this process does not have.
    Elsewhere(PathBuf),
    /// These messages are gone (of a view: no longer in a parent); the next one that is follows.
    Gone {
        /// Next sequence that is still there.
        first: u64,
    },
    /// An identity whose epoch ended before it: what it named was cut by a recovery.
    Rewound {
        /// The epoch.
        epoch: u32,
        /// Its first sequence.
        first: u64,
        /// One past its last.
        end: u64,
    },
    /// A stream that a view points into is not what the view takes it for.
    Parent {
        /// Its folder.
        folder: PathBuf,
        /// What is wrong: the end of a sentence that begins with the parent.
        what: String,
    },
    /// A header or record of an unknown version or form.
    Format {
        /// File.
        path: PathBuf,
        /// The fault in it.
        what: String,
    },
    /// A value beyond a limit of `limits.rs`.
    Limit(String),
    /// Every place for a reader of the stream is in use: one is free when a reader ends.
    ReadersFull,
    /// No room, because a counted reader has not advanced: messages that it needs are not retired.
    Behind {
        /// Its name.
        name: String,
        /// Its process; none if it is dead.
        pid: Option<u32>,
        /// Next sequence that it needs.
        at: u64,
        /// Messages that it has not committed.
        lag: u64,
    },
    /// Another reader has the name: two readers cannot share one position.
    Taken {
        /// The name.
        name: String,
        /// Its process.
        pid: u32,
    },
    /// A reader keeps more of the stream's memory than its quota: drop views, or copy what is kept.
    Quota {
        /// Its name; empty for an anonymous one.
        name: String,
        /// Its process.
        pid: u32,
        /// Segments that it keeps.
        segments: usize,
        /// Their bytes in stream memory.
        bytes: u64,
        /// Most bytes that it may keep.
        quota: u64,
    },
    /// An fdatasync failed: nothing more is marked or appended until the stream is opened again.
    Failed(String),
}

/// Result of the store.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { doing, path, source } => write!(f, "cannot {doing} {}: {source}", path.display()),
            Self::Full(why) => write!(f, "no room: {why}"),
            Self::Dropped => f.write_str("dropped: the stream is full and `when_full = \"drop-newest\"`"),
            Self::Locked(path) => write!(f, "another process writes the stream {}", path.display()),
            Self::Missing(path) => write!(f, "no stream in {}", path.display()),
            Self::Headless(path) => {
                write!(f, "{} has messages, but its header `stream` is missing; nothing was changed", path.display())
            }
            Self::Corrupt { path, at, sequence, what } => {
                write!(f, "wrong byte in {} at {at}: {what} of message {sequence} has a wrong checksum", path.display())
            }
            Self::Lost { path, first, end } => {
                write!(f, "{} is missing, with messages {first} to {end} (exclusive)", path.display())
            }
            Self::Elsewhere(live) => {
                write!(f, "its messages were in {} of another /dev/shm: that of another container", live.display())
            }
            Self::Gone { first } => write!(f, "no longer in the stream; the oldest message is {first}"),
            Self::Rewound { epoch, first, end } => {
                write!(f, "rewound: epoch {epoch} has only messages {first} to {end} (exclusive)")
            }
            Self::Format { path, what } => write!(f, "{} is not readable: {what}", path.display()),
            Self::Parent { folder, what } => write!(f, "the parent {} of a view {what}", folder.display()),
            Self::Limit(what) => f.write_str(what),
            Self::ReadersFull => write!(f, "all places for readers are taken: a stream has {READERS_MAX}"),
            Self::Quota { name, pid, segments, bytes, quota } => {
                let name = if name.is_empty() { String::new() } else { format!("`{name}` of ") };
                let kept = format!("keeps {segments} segments, {bytes} B of stream memory");
                write!(f, "a reader, {name}process {pid}, {kept}; its quota is {quota} B")
            }
            Self::Behind { name, pid, at, lag } => {
                let who = match pid {
                    Some(pid) => format!("process {pid}"),
                    None => "no process now".to_owned(),
                };
                write!(f, "no room: reader `{name}` ({who}) has not moved on from message {at}, {lag} behind")
            }
            Self::Taken { name, pid } => write!(f, "process {pid} reads as `{name}`"),
            Self::Failed(what) => write!(f, "the stream stopped: {what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Why a disk does not take messages, as long as it does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// The text of the error.
    pub text: String,
    /// Its number, where the operating system refused something.
    pub errno: Option<i32>,
}

impl From<&Error> for Trouble {
    fn from(error: &Error) -> Self {
        let errno = match error {
            Error::Io { source, .. } => source.raw_os_error(),
            _ => None,
        };
        Self { text: error.to_string(), errno }
    }
}

impl Error {
    /// For `map_err`: an I/O error with what was being done to which file.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, path: path.to_path_buf(), source }
    }

    /// The error of reading the parent of a view in `folder`: names the parent where there is no stream, or one without
    /// its header.
    pub(crate) fn of_parent(self, folder: &Path) -> Self {
        let folder = || folder.to_path_buf();
        match self {
            Self::Missing(_) => Self::Parent { folder: folder(), what: "is not there".into() },
            Self::Headless(_) => Self::Parent { folder: folder(), what: "has lost its header".into() },
            Self::Format { what, .. } => Self::Parent { folder: folder(), what: format!("is another: {what}") },
            other => other,
        }
    }

    /// True if this user may not do it.
    pub fn is_denied(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }

    /// True if there may be room later.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Full(_) | Self::Behind { .. } => true,
            Self::Io { source, .. } => {
                matches!(source.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG))
            }
            _ => false,
        }
    }
}
