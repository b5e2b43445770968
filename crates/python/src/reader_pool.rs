//! The readers that this process has of one stream.
//!
//! A reader takes one of the 255 places of a stream for as long as it or any view made through it lives, so readers
//! are used again: an iteration borrows one and gives it back. Locks are taken under the GIL and held for a push or
//! a pop, so that no fork can see one taken.

use crate::limits::READERS_KEPT_MAX;
use crate::owned::Ours;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use store::{Check, Header, Kind, Media, Os, ReadOptions, Reader, Start};

/// The readers of one stream that wait for work.
pub(crate) struct ReaderPool {
    media: Arc<dyn Media>,
    pub(crate) folder: PathBuf,
    free: Mutex<Vec<(bool, Ours<Reader>)>>,
}

impl ReaderPool {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { media: Os::shared(), folder, free: Mutex::new(Vec::new()) }
    }

    /// Nanoseconds since 1970 UTC.
    pub(crate) fn now(&self) -> i64 {
        self.media.now()
    }

    /// The header as it stands in the folder now.
    pub(crate) fn header(&self) -> store::Result<Header> {
        Header::read(self.media.as_ref(), &self.folder)
    }

    /// A reader that knows the stream as it is now.
    pub(crate) fn take(&self, early: bool) -> store::Result<Ours<Reader>> {
        let header = self.header()?;
        loop {
            let kept = {
                let mut free = self.free.lock().unwrap_or_else(|p| p.into_inner());
                free.iter().position(|(e, _)| *e == early).map(|at| free.swap_remove(at).1)
            };
            let Some(mut reader) = kept else { break };
            // Readers of a parent process are left as they are; those of a recreated stream are of no use.
            if reader.is_ours() && reader.header().uuid == header.uuid && reader.header().live == header.live {
                // At the end, because a reader looks for a new writer only where it has nothing to read.
                reader.seek(u64::MAX);
                reader.refresh()?;
                return Ok(reader);
            }
        }
        let options = ReadOptions { early, kind: Kind::Anonymous, check: Check::All, ..ReadOptions::default() };
        self.open(options)
    }

    /// A reader that keeps its position under a name, for one iteration.
    pub(crate) fn named(&self, name: &str, early: bool, start: Start) -> store::Result<Ours<Reader>> {
        let options = ReadOptions {
            name: name.to_owned(),
            kind: Kind::Counted,
            start,
            strict: true,
            early,
            check: Check::All,
            ..ReadOptions::default()
        };
        self.open(options)
    }

    fn open(&self, options: ReadOptions) -> store::Result<Ours<Reader>> {
        let reader = Reader::open(&self.media, &self.folder, options)?;
        reader.is_here()?;
        Ok(Ours::new(reader))
    }

    /// Takes a reader back.
    pub(crate) fn give(&self, early: bool, reader: Ours<Reader>) {
        let mut free = self.free.lock().unwrap_or_else(|p| p.into_inner());
        if reader.is_ours() && free.len() < READERS_KEPT_MAX {
            free.push((early, reader));
        }
    }

    /// Lends a reader for one question.
    pub(crate) fn ask<T>(&self, early: bool, ask: impl FnOnce(&mut Reader) -> store::Result<T>) -> store::Result<T> {
        let mut reader = self.take(early)?;
        let answer = ask(&mut reader);
        self.give(early, reader);
        answer
    }

    /// Its path as text.
    pub(crate) fn path(&self) -> &Path {
        &self.folder
    }
}
