//! A data folder: one folder per stream, and the names that beamport reserves.
//!
//! Reserved are `runs`, `control`, `status` and names with a dot: `STAGE.commits`, `SINK.RUN.commits`, `NAME.aside`.
//! Only `NAME.view`, the view of a merge that is copied, is an ordinary stream.

use crate::{Fault, Passes};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use store::{Batch, Drain, Kind, Media, Missing, Options, ReadOptions, Reader, Stretch, Trouble, Why, Writer};

/// A data folder on a media.
#[derive(Clone)]
pub struct Data {
    /// Where the bytes are.
    pub media: Arc<dyn Media>,
    /// The folder that holds a folder for each stream.
    pub folder: PathBuf,
    /// The thread that writes disk streams out.
    pub drain: Drain,
}

impl Data {
    /// A data folder on this machine.
    pub fn on_disk(folder: impl Into<PathBuf>) -> Self {
        Self { media: store::Os::shared(), folder: folder.into(), drain: Drain::Thread }
    }

    /// The folder of a stream.
    pub fn stream(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Names of the streams that are there, sorted. `books`: with those that keep the books.
    pub fn streams(&self, books: bool) -> Result<Vec<String>, Fault> {
        let names = self
            .media
            .list(&self.folder)
            .map_err(|e| Fault::io(format!("cannot read data folder `{}`", self.folder.display()), &e))?;
        Ok(names
            .into_iter()
            .filter(|name| {
                (books || !Self::is_book(name)) && store::Header::read(self.media.as_ref(), &self.stream(name)).is_ok()
            })
            .collect())
    }

    /// Whether a stream of this name is one in which beamport keeps its books.
    pub fn is_book(name: &str) -> bool {
        name.contains('.') && !name.ends_with(VIEW) || BOOKS.contains(&name)
    }

    /// True if there is a stream of this name; an error where it is damaged so that this cannot be told.
    pub fn has(&self, name: &str) -> Result<bool, Fault> {
        match store::Header::read(self.media.as_ref(), &self.stream(name)) {
            Ok(_) => Ok(true),
            Err(store::Error::Missing(_)) => Ok(false),
            Err(e) => Err(stream_fault(name, e)),
        }
    }

    /// Opens a stream for reading.
    pub fn reader(&self, name: &str, options: ReadOptions) -> Result<Reader, Fault> {
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            return Err(Fault::new(
                format!("`{}` is not a stream name", name.escape_default()),
                "it leads out of the data folder",
            )
            .hint("`beamport ls` lists the streams; `--data DIR` names another folder"));
        }
        Reader::open(&self.media, &self.stream(name), options).map_err(|e| stream_fault(name, e))
    }

    /// Opens a stream for reading anonymously, up to the newest message.
    pub fn reader_early(&self, name: &str) -> Result<Reader, Fault> {
        self.reader(name, ReadOptions { early: true, ..ReadOptions::default() })
    }

    /// Opens a stream for writing.
    pub fn writer(&self, name: &str, options: &Options) -> Result<Writer, Fault> {
        let options = Options { drain: self.drain, ..options.clone() };
        Writer::open(&self.media, &self.stream(name), name, &options).map_err(|e| stream_fault(name, e))
    }

    /// Sets the position of a named reader to `at` without reading: from now on `wait` waits for it. A reader that has the
    /// name already keeps its own position.
    pub fn hold(&self, stream: &str, name: &str, at: u64) -> Result<(), Fault> {
        let options =
            ReadOptions { name: name.to_string(), kind: Kind::Counted, early: true, ..ReadOptions::default() };
        match Reader::open(&self.media, &self.stream(stream), options) {
            Ok(reader) => reader.commit(at),
            Err(store::Error::Taken { .. }) => {}
            Err(e) => return Err(stream_fault(stream, e)),
        }
        Ok(())
    }

    /// Lets a named reader go for good.
    pub fn release(&self, stream: &str, name: &str) -> Result<(), Fault> {
        let reader = self.reader_early(stream)?;
        reader.pins().remove(self.media.as_ref(), name);
        Ok(())
    }
}

/// Calls `see` with batches of the messages from the reader's position to `end`, until it returns that it has enough;
/// returns the skipped messages that did not verify. Messages retired meanwhile are skipped too.
pub fn each_batch(
    reader: &mut Reader,
    end: u64,
    see: &mut dyn FnMut(&Batch<'_>) -> Result<bool, Fault>,
) -> Result<Vec<Range<u64>>, Fault> {
    const MOST: u64 = 1024;
    let mut lost = Vec::new();
    while reader.position() < end {
        match reader.next(MOST.min(end - reader.position()) as usize) {
            Ok(Stretch::Messages(batch)) if batch.is_empty() || !see(&batch)? => break,
            Ok(Stretch::Messages(_)) => {}
            Ok(Stretch::Missing(Missing { first, next, why, .. })) => {
                let next = next.min(end);
                if why != Why::Retention {
                    lost.push(first..next);
                }
                reader.seek(next);
            }
            Err(e) => return Err(stream_fault(&reader.header().name, e)),
        }
    }
    Ok(lost)
}

/// The stream of messages that a stage could not handle.
pub fn aside_of(stage: &str) -> String {
    format!("{stage}.aside")
}

/// The stream of messages aside that a worker retries.
pub fn retry_of(stage: &str) -> String {
    format!("{stage}.retry")
}

/// The stream of tasks of a worker.
pub fn tasks_of(stage: &str) -> String {
    format!("{stage}.tasks")
}

/// The stream of a slot.
pub fn slot_stream(stage: &str, number: u32) -> String {
    format!("{stage}.slot{number}")
}

/// The stream of results that the code of a worker sends outside of its calls.
pub fn loose_of(stage: &str) -> String {
    format!("{stage}.loose")
}

/// Those of a slot, which the stream of its worker shows.
pub fn loose_stream(stage: &str, number: u32) -> String {
    format!("{stage}.loose{number}")
}

/// The stream of what the Python code of a source yields, from which the source takes it.
pub fn yielded_of(source: &str) -> String {
    format!("{source}.yielded")
}

/// Behind the name of a merge whose output is a copy: what it is a copy of.
const VIEW: &str = ".view";

/// The view of a merge whose output is a copy.
pub fn view_of(stage: &str) -> String {
    format!("{stage}{VIEW}")
}

/// Streams of our own without a dot; no source may have these names.
const BOOKS: [&str; 3] = [RUNS, "control", "status"];

/// The file of a stream with its commit records.
const COMMIT: &str = "commit";

/// The stream of runs.
pub const RUNS: &str = "runs";

/// An error of the store as users see it.
pub fn stream_fault(name: &str, error: store::Error) -> Fault {
    use store::Error as E;
    let what = format!("stream `{name}` failed");
    let hint = match &error {
        E::Behind { name: reader, pid: None, .. } => {
            &format!("if this reader will not return: `beamport forget {name} '{reader}'`")
        }
        E::Behind { .. } => "run `beamport ls --pins` to see the readers; the stream continues when they have read",
        E::Taken { .. } => "end that process, or use another name",
        E::Rewound { .. } => "a recovery cut the rest: read from the end of the epoch",
        E::Missing(_) => "`beamport ls` lists the streams of a data folder",
        E::Headless(_) => "restore the file `stream` from a copy, or move the folder away to start a new stream",
        E::Elsewhere(_) => "run this where its instrument runs, or give both containers one /dev/shm (`--ipc`)",
        E::Locked(_) => "end the other `beamport up`, or use another data folder: a stream has one writer",
        E::Corrupt { .. } | E::Lost { .. } => "run `beamport verify` to list each wrong byte",
        E::Parent { .. } => "restore the parent: a view shows only what its parents have (`beamport ls`)",
        E::Gone { .. } => "read from a later message, or raise `retain`: retention deleted them",
        E::Quota { .. } => "release batches that were read, or copy what you keep",
        E::ReadersFull => &format!(
            "`beamport ls --pins` lists the readers; delete one that will not return: `beamport forget {name} NAME`"
        ),
        E::Format { path, .. } if path.ends_with(COMMIT) => {
            "run `beamport verify --repair`: it restores the record from what checksums prove"
        }
        E::Failed(_) => "check the disk, then restart `beamport up`: it recovers marked messages",
        E::Io { .. } if error.is_full() => "free space on the device; nothing that was marked is lost",
        E::Io { source, .. } => return Fault { cause: error.to_string(), ..Fault::io(what, source) },
        _ => "",
    };
    let passes = match &error {
        E::Locked(_) | E::Taken { .. } | E::ReadersFull => Passes::Soon,
        _ if error.is_full() => Passes::WithRoom,
        _ => Passes::Never,
    };
    Fault { passes, ..Fault::new(what, error).hint(hint) }
}

/// Why what is in a stream does not come to the medium, where it does not. `meanwhile`: what is with the messages.
pub(crate) fn unwritten(writer: &Writer, meanwhile: &str) -> Option<Fault> {
    let why = writer.trouble()?;
    let what = format!("stream `{}` is not written to disk", writer.header().name);
    let fault = not_written(what, Some(why));
    Some(Fault { hint: format!("{}; {meanwhile}", fault.hint), ..fault })
}

/// What is not written to disk, `why` it is not (none: the disk does not answer), and what can be done.
pub fn not_written(what: impl Into<String>, why: Option<Trouble>) -> Fault {
    let device = "check the device: `dmesg` says what is wrong with it";
    let Some(Trouble { text, errno }) = why else {
        return Fault::new(what, "the disk does not answer").hint(device);
    };
    let hint = match errno.map(|errno| Fault::remedy(&io::Error::from_raw_os_error(errno))) {
        // It is no error of the system: a bound of our own.
        None => "free space on the device",
        Some("") => device,
        Some(remedy) => remedy,
    };
    Fault::new(what, text).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_stream_without_a_place_for_a_reader_may_have_one_soon() {
        let fault = stream_fault("a", store::Error::ReadersFull);
        assert_eq!(fault.passes, Passes::Soon);
        assert!(fault.hint.contains("beamport ls --pins"), "{fault}");
        let other = stream_fault("a", store::Error::Limit("it has too many readers".into()));
        assert_eq!(other.passes, Passes::Never, "no text decides it");
    }

    #[test]
    fn a_damaged_commit_record_has_the_hint_that_restores_it() {
        let damaged = |file: &str| store::Error::Format { path: Path::new("data/a").join(file), what: "x".into() };
        assert!(stream_fault("a", damaged("commit")).hint.contains("`beamport verify --repair`"));
        assert_eq!(stream_fault("a", damaged("stream")).hint, "");
    }
}
