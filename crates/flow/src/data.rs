//! A data folder: one stream a folder, and the small streams that keep the books.
//!
//! Ours are `runs`, `control`, `status` and names with a dot: `STAGE.commits`, `SINK.RUN.commits`, `NAME.aside`. Only the
//! view of a merge that is copied, `NAME.view`, is as any stream.
//!
//! What a book keeps is bounded: `runs` and `SINK.commits` hold a few messages for each run; the others let the oldest
//! go. In memory all let the oldest go, since memory ends.

use crate::{Fault, Passes};
use serde::Serialize;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use store::{Batch, Drain, Kind, Level, Media, Missing, Options, ReadOptions, Reader, Stretch, Why, Writer};

/// How long the disk may take for a book.
const BOOK_PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);
/// What a book keeps that lies in memory alone, where nothing should be let go: 60,000 runs.
const BOOK_MEMORY_BYTES: u64 = 64 << 20;
/// What a book keeps in which only the newest message counts: a few of the largest.
pub(crate) const BOOK_NEWEST_BYTES: u64 = 1 << 20;
/// What a book keeps whose oldest messages matter least, gaps of sources and commands: half a million.
pub const BOOK_HISTORY_BYTES: u64 = 64 << 20;

/// A data folder on a media.
#[derive(Clone)]
pub struct Data {
    /// Where the bytes are.
    pub media: Arc<dyn Media>,
    /// The folder that holds a folder for each stream.
    pub folder: PathBuf,
    /// Who writes disk streams out.
    pub drain: Drain,
}

impl Data {
    /// Shared memory of a book-keeping stream at most: a few messages a second.
    pub const BOOK_LIVE_BYTES: u64 = 1 << 20;

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
            .map_err(|e| Fault::io(format!("data folder `{}` cannot be read", self.folder.display()), &e))?;
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
    pub(crate) fn has(&self, name: &str) -> Result<bool, Fault> {
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
                format!("`{}` is no name of a stream", name.escape_default()),
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

    /// Opens a book for writing of which everything is kept: on disk (in memory where the data folder is).
    pub fn book(&self, name: &str) -> Result<Writer, Fault> {
        let memory = self.media.in_memory(&self.folder);
        self.own(name, &if memory { Options::memory(BOOK_MEMORY_BYTES) } else { Options::disk(Self::BOOK_LIVE_BYTES) })
    }

    /// The same of which the newest `bytes` are kept.
    pub fn book_of_newest(&self, name: &str, bytes: u64) -> Result<Writer, Fault> {
        let disk = || Options { retain_bytes: Some(bytes), ..Options::disk(Self::BOOK_LIVE_BYTES) };
        self.own(name, &if self.media.in_memory(&self.folder) { Options::memory(bytes) } else { disk() })
    }

    /// A stream of which all messages are beamport's own. They have a name for who made them: without one a message that
    /// is waited for does not prove itself, and each mark costs one more flush.
    fn own(&self, name: &str, options: &Options) -> Result<Writer, Fault> {
        let mut writer = self.writer(name, options)?;
        match writer.origin("beamport") {
            Err(e) if !e.is_full() => Err(stream_fault(name, e)),
            _ => Ok(writer),
        }
    }

    /// Payloads of all messages of a book-keeping stream up to the mark, oldest first; none if there is no such stream.
    /// Those that do not verify are passed over: [`Data::damage`] names them.
    pub fn book_messages(&self, name: &str) -> Result<Vec<Vec<u8>>, Fault> {
        self.book_and_lost(name).map(|(messages, _)| messages)
    }

    /// The same, with how many do not verify.
    pub(crate) fn book_and_lost(&self, name: &str) -> Result<(Vec<Vec<u8>>, u64), Fault> {
        let read = || {
            let mut reader = self.reader(name, ReadOptions::default())?;
            let mut all = Vec::new();
            let lost = each_batch(&mut reader, u64::MAX, &mut |batch| {
                all.extend(batch.iter().map(|message| message.payload.to_vec()));
                Ok(true)
            })?;
            Ok((all, lost.iter().map(|l| l.end - l.start).sum()))
        };
        let gone =
            || matches!(store::Header::read(self.media.as_ref(), &self.stream(name)), Err(store::Error::Missing(_)));
        match read() {
            // Removed while it was read: what it held stands elsewhere.
            Err(_) if gone() => Ok((Vec::new(), 0)),
            answer => answer,
        }
    }

    /// What of the books cannot be read, by stream. Every other message of them counts as before.
    pub fn damage(&self) -> Result<Vec<BookDamage>, Fault> {
        let mut all = Vec::new();
        for book in self.streams(true)?.into_iter().filter(|name| name == RUNS || name.ends_with(".commits")) {
            match store::verify(&self.media, &self.stream(&book), &mut |_, _| ()) {
                Ok(seen) => all.extend(seen.damage.into_iter().map(|d| BookDamage {
                    book: book.clone(),
                    first: d.first,
                    last: d.end - 1,
                    why: d.why,
                })),
                // Removed while it was read: what it held stands elsewhere.
                Err(_) if store::Header::read(self.media.as_ref(), &self.stream(&book)).is_err() => {}
                Err(e) => return Err(stream_fault(&book, e)),
            }
        }
        Ok(all)
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
        reader.pins().remove(name);
        Ok(())
    }
}

/// Messages of a book that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BookDamage {
    /// The book.
    pub book: String,
    /// First sequence.
    pub first: u64,
    /// Last sequence.
    pub last: u64,
    /// File, place and check.
    pub why: String,
}

impl fmt::Display for BookDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { book, first, last, why } = self;
        match last - first {
            0 => write!(f, "message {first} of `{book}` is lost: {why}"),
            _ => write!(f, "messages {first} to {last} of `{book}` are lost: {why}"),
        }
    }
}

/// Gives what stands below `end` from where a reader stands on, in batches, until `see` says that it is enough; the answer is
/// what did not verify and was passed over. What was let go of meanwhile is passed over too: nobody can have it.
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

/// Behind the name of a merge whose output is a copy: what it is a copy of.
const VIEW: &str = ".view";

/// The view of a merge whose output is a copy.
pub fn view_of(stage: &str) -> String {
    format!("{stage}{VIEW}")
}

/// Streams of our own without a dot; no source may have these names.
const BOOKS: [&str; 3] = [RUNS, "control", "status"];

/// The stream of runs.
pub const RUNS: &str = "runs";

/// An error of the store as users see it.
pub fn stream_fault(name: &str, error: store::Error) -> Fault {
    use store::Error as E;
    let what = format!("stream `{name}` failed");
    let hint = match &error {
        E::Behind { name: reader, pid: None, .. } => {
            &format!("if nobody will read as it again: `beamport forget {name} '{reader}'`")
        }
        E::Behind { .. } => "`beamport ls --pins` shows who reads; the stream goes on when it has",
        E::Taken { .. } => "end that process, or take another name",
        E::Rewound { .. } => "a recovery cut what came behind: read on from where the epoch ends",
        E::Missing(_) => "`beamport ls` lists the streams of a data folder",
        E::Headless(_) => "put the file `stream` back from a copy, or move the folder away to begin a new stream",
        E::Locked(_) => "one process writes a stream: end the other `beamport up`, or use another data folder",
        E::Corrupt { .. } | E::Lost { .. } => "`beamport verify` reads everything and names each wrong byte",
        E::Parent { .. } => {
            "`beamport ls` lists the streams; a view shows what its parents still have, bring the parent back"
        }
        E::Gone { .. } => "retention took them: read from a later message, or raise `retain`",
        E::Quota { .. } => "let go of what was read, or copy what is kept",
        E::Failed(_) => "look at the disk, then start `beamport up` again: it recovers what was marked",
        E::Io { .. } if error.is_full() => "free space on the device; nothing that was marked is lost",
        E::Io { source, .. } => return Fault { cause: error.to_string(), ..Fault::io(what, source) },
        _ => "",
    };
    let passes = match &error {
        E::Locked(_) | E::Taken { .. } => Passes::Soon,
        E::Limit(why) if why.contains("readers") => Passes::Soon,
        _ if error.is_full() => Passes::WithRoom,
        _ => Passes::Never,
    };
    Fault { passes, ..Fault::new(what, error).hint(hint) }
}

/// Why what is in a stream does not come to the medium, where it does not. `meanwhile`: what is with the messages.
pub(crate) fn unwritten(writer: &Writer, meanwhile: &str) -> Option<Fault> {
    let why = writer.trouble()?;
    let what = format!("stream `{}` is not being written to disk", writer.header().name);
    Some(Fault::new(what, why).hint(format!("free space on the device; {meanwhile}")))
}

/// Waits until all of a book is as safe as its level promises: only then is it believed.
pub(crate) fn settle(book: &mut Writer, name: &str) -> Result<(), Fault> {
    if book.header().level == Level::Memory {
        return Ok(());
    }
    let end = book.next_sequence();
    if book.wait(end, Level::Disk, BOOK_PATIENCE).map_err(|e| stream_fault(name, e))? {
        return Ok(());
    }
    let why = book.trouble().unwrap_or_else(|| "the disk does not answer".into());
    let fault = Fault::new(format!("stream `{name}` is not written down"), why).hint("free space on the device");
    Err(Fault { passes: Passes::WithRoom, ..fault })
}
