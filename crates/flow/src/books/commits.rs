//! The commits of sinks: the position of each sink in each run.
//!
//! While a sink works on a run, its commits are in a book of their own, `SINK.RUN.commits`, so that overlapping runs
//! are written side by side. Each commit is complete (the account, the gaps, the state to resume from), so only the
//! newest matters and the book keeps 1 MiB. When the run is in the file, that commit is filed in `SINK.commits` and the
//! book is removed: the folder keeps one message per finished run, and a book per run being written.
//!
//! The commits of a source, `SOURCE.commits`, hold its gaps; the ledger reads them.

use crate::book::{Book, Keeps, newest_commit};
use crate::data::{Data, each_batch, stream_fault};
use crate::limits::BOOK_NEWEST_BYTES;
use crate::records::{Commit, Run};
use crate::{Fault, Passes};
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;
use store::{ReadOptions, Reader};
use wire::bprn::State;

/// The last commit of each sink, by name.
pub type BySink = BTreeMap<String, Commit>;

/// How long the disk may take for a commit that is filed: longer, and it is filed later.
const FILING_PATIENCE: Duration = Duration::from_secs(1);

/// The book of a source, or that of the finished runs of a sink.
pub fn commits_of(stage: &str) -> String {
    format!("{stage}.commits")
}

/// The book of a sink for a run that is not finished.
pub fn commits_of_run(sink: &str, run: &str) -> String {
    format!("{sink}.{run}.commits")
}

/// The run of a sink's book, if it is that of one run.
fn run_of<'a>(book: &'a str, sink: &str) -> Option<&'a str> {
    book.strip_prefix(sink)?.strip_prefix('.')?.strip_suffix(".commits")
}

/// Name under which a sink's position in a stream is kept while it writes a run.
pub fn reader_name(sink: &str, run: &str) -> String {
    let mut name = format!("{sink}:{run}");
    // A checksum distinguishes long names.
    if name.len() > store::limits::READER_NAME_MAX {
        let crc = store::crc32c(name.as_bytes());
        let mut cut = store::limits::READER_NAME_MAX - 9;
        while !name.is_char_boundary(cut) {
            cut -= 1;
        }
        name.truncate(cut);
        name += &format!("-{crc:08x}");
    }
    name
}

/// The stage that reads under a name, if a stage does: `W`, `W:RUN`, `W.slot1`, `view W`, `keeps W`.
pub fn stage_of_reader(name: &str) -> &str {
    let name = ["view ", "keeps "].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    name.find([':', '.']).map_or(name, |end| &name[..end])
}

/// Whether one of all streams of a data folder is a book of this stage, present or former.
pub fn has_books(stage: &str, streams: &[String]) -> bool {
    streams.iter().any(|stream| stream.strip_prefix(stage).is_some_and(|rest| rest.starts_with('.')))
}

/// Opens the book of a sink for a run, and waits until what it holds is safe.
pub(crate) fn open(data: &Data, sink: &str, run: &str) -> Result<Book, Fault> {
    Book::open_settled(data, &commits_of_run(sink, run), Keeps::Newest(BOOK_NEWEST_BYTES))
}

/// The first message of a stream that the sinks of a run have seen, by their newest commits.
pub(crate) fn seen(known: &BySink, stream: &str, uuid: &[u8; 16]) -> Option<u64> {
    let inputs = known.values().flat_map(|commit| &commit.inputs);
    inputs.filter(|input| input.stream == stream && input.uuid == *uuid).map(|input| input.first).min()
}

/// The newest commit of a sink for a run.
pub fn last_commit(data: &Data, sink: &str, run: &str) -> Result<Option<Commit>, Fault> {
    let mut of_run = |commit: &Commit| commit.run == run;
    // In this order: it is filed before its book is removed.
    let last = newest_commit(data, &commits_of_run(sink, run), &mut of_run)?;
    Ok(newest_commit(data, &commits_of(sink), &mut of_run)?.or(last))
}

/// The newest commits of all sinks for all runs, by run. Every book is read once.
pub fn last_commits(data: &Data) -> Result<BTreeMap<String, BySink>, Fault> {
    let mut view = CommitsView::new(data);
    view.refresh()?;
    Ok(view.of_runs)
}

/// The newest commits of sinks, followed: each look reads only what is new in the books of finished runs.
pub struct CommitsView {
    data: Data,
    /// Readers of books by name; none of a book of a source or a merge, which belong to no run and may be long.
    filed: BTreeMap<String, Option<Reader>>,
    of_runs: BTreeMap<String, BySink>,
}

impl CommitsView {
    /// Of this data folder.
    pub fn new(data: &Data) -> Self {
        Self { data: data.clone(), filed: BTreeMap::new(), of_runs: BTreeMap::new() }
    }

    /// Looks at the books.
    pub fn refresh(&mut self) -> Result<(), Fault> {
        let mut books = names(&self.data)?;
        books.retain(|name| name.ends_with(".commits"));
        // Those of single runs first: a commit is filed before its book is removed.
        books.sort_by_key(|name| std::cmp::Reverse(name.matches('.').count()));
        for book in &books {
            let is_of_one_run = book.matches('.').count() > 1;
            if is_of_one_run {
                let newest = newest_commit(&self.data, book, &mut |_| true)?;
                newest.into_iter().for_each(|commit| self.see(commit));
            } else {
                self.follow(book)?;
            }
        }
        self.filed.retain(|book, _| books.contains(book));
        Ok(())
    }

    fn see(&mut self, commit: Commit) {
        // None of a book of a source of which the first message does not verify.
        if !commit.run.is_empty() {
            self.of_runs.entry(commit.run.clone()).or_default().insert(commit.stage.clone(), commit);
        }
    }

    fn follow(&mut self, book: &str) -> Result<(), Fault> {
        let mut read = || {
            if !self.filed.contains_key(book) {
                let mut reader = self.data.reader(book, ReadOptions::default())?;
                let first = reader.bounds().first;
                if first >= reader.end() {
                    return Ok(Vec::new());
                }
                let is_of_stage = commit_at(&mut reader, first).is_some_and(|commit| commit.run.is_empty());
                reader.seek(first);
                self.filed.insert(book.to_owned(), (!is_of_stage).then_some(reader));
            }
            let Some(Some(reader)) = self.filed.get_mut(book) else { return Ok(Vec::new()) };
            reader.refresh().map_err(|e| stream_fault(book, e))?;
            let mut commits = Vec::new();
            each_batch(reader, u64::MAX, &mut |batch| {
                for message in batch.iter() {
                    commits.push(Commit::read(message.payload)?);
                }
                Ok(true)
            })?;
            Ok(commits)
        };
        match read() {
            Err(_) if self.data.is_removed(book) => Ok(()),
            Err(fault) => Err(fault),
            Ok(commits) => {
                commits.into_iter().for_each(|commit| self.see(commit));
                Ok(())
            }
        }
    }

    /// The newest commits for a run, by sink.
    pub fn of_run(&self, run: &str) -> Option<&BySink> {
        self.of_runs.get(run)
    }

    /// Forgets runs whose commits are asked for no more.
    pub fn forget(&mut self, is_done: impl Fn(&str) -> bool) {
        self.of_runs.retain(|run, _| !is_done(run));
    }
}

/// A commit of a book, if it can be read.
fn commit_at(reader: &mut Reader, sequence: u64) -> Option<Commit> {
    Commit::read(&reader.get(sequence).ok()??.1).ok()
}

/// Runs of which it is unknown whether a sink has finished them: sealed, without a commit, and some of what the sink
/// has filed does not verify.
pub fn unknown_outcome(data: &Data, sink: &str, runs: &[Run]) -> Result<Vec<String>, Fault> {
    if data.book_and_lost(&commits_of(sink))?.1 == 0 {
        return Ok(Vec::new());
    }
    let known = last_commits(data)?;
    let has = |run: &str| known.get(run).is_some_and(|of_run| of_run.contains_key(sink));
    Ok(runs.iter().filter(|r| r.state == State::Sealed && !has(&r.name)).map(|r| r.name.clone()).collect())
}

/// The newest commits of the sinks that work on a run: those that have finished it are filed.
pub(crate) fn of_open_run(data: &Data, run: &str) -> Result<BySink, Fault> {
    let suffix = format!(".{run}.commits");
    let mut all = BySink::new();
    for book in names(data)? {
        let Some(sink) = book.strip_suffix(&suffix) else { continue };
        if let Some(commit) = newest_commit(data, &book, &mut |_| true)? {
            all.insert(sink.to_owned(), commit);
        }
    }
    Ok(all)
}

fn names(data: &Data) -> Result<Vec<String>, Fault> {
    let names = data.media.list(&data.folder);
    names.map_err(|e| Fault::new(format!("cannot read data folder `{}`", data.folder.display()), e))
}

/// The runs that a sink has finished, whose last commits are filed. The keeper of runs alone opens it.
pub struct FinishedRuns {
    data: Data,
    sink: String,
    /// Open from the first run that is filed on: a book begins a segment whenever it is opened.
    book: Option<Book>,
    runs: HashSet<String>,
    /// Commits that are appended and not safe yet, by run.
    appended: BTreeMap<String, u64>,
}

impl FinishedRuns {
    /// Reads what is filed.
    pub fn open(data: &Data, sink: &str) -> Result<Self, Fault> {
        let (mut runs, book) = (HashSet::new(), commits_of(sink));
        if data.has(&book)? {
            // A commit behind the mark would be filed again.
            Book::settle_closed(data, &book, Keeps::All)?;
        }
        for message in data.book_messages(&book)? {
            runs.insert(Commit::read(&message)?.run);
        }
        Ok(Self { data: data.clone(), sink: sink.to_owned(), book: None, runs, appended: BTreeMap::new() })
    }

    /// The newest commit of the sink for a run that is not filed.
    pub fn newest(&self, run: &str) -> Result<Option<Commit>, Fault> {
        newest_commit(&self.data, &commits_of_run(&self.sink, run), &mut |_| true)
    }

    /// Whether the last commit of a run is filed.
    pub fn has(&self, run: &str) -> bool {
        self.runs.contains(run)
    }

    /// Files the runs that the sink has finished: releases their positions in `inputs`, files their last commits and
    /// removes their books.
    ///
    /// What there is no room for now, or what its writer still holds, is filed at the next call: until then the commit
    /// is found where it is.
    pub fn file_away(&mut self, inputs: &[String]) -> Result<(), Fault> {
        // By name alone: one that was cut short while it was removed has no header any more.
        for book in names(&self.data)? {
            let Some(run) = run_of(&book, &self.sink) else { continue };
            let commit = match self.has(run) {
                true => None,
                false => match self.newest(run)? {
                    Some(commit) if commit.finished => Some(commit),
                    _ => continue,
                },
            };
            // Also of a run that is filed: its sink may have been started again after a kill.
            for stream in inputs {
                self.data.release(stream, &reader_name(&self.sink, run))?;
            }
            if let Some(commit) = commit {
                if !self.append_commit(&commit)? {
                    continue;
                }
                self.appended.remove(run);
                self.runs.insert(run.to_owned());
            }
            match store::remove(&self.data.media, &self.data.stream(&book)) {
                Ok(()) | Err(store::Error::Locked(_)) => {}
                Err(e) => return Err(stream_fault(&book, e)),
            }
        }
        Ok(())
    }

    /// Appends a commit and waits until it is safe. False if there is no room for it now.
    fn append_commit(&mut self, commit: &Commit) -> Result<bool, Fault> {
        let mut book = match self.book.take() {
            Some(book) => book,
            None => Book::open(&self.data, &commits_of(&self.sink), Keeps::All)?,
        };
        // Commits of many runs are in this book: its numbers are not those of one run.
        let number = book.next_sequence();
        let appended = match self.appended.get(&commit.run) {
            Some(sequence) => Ok(*sequence),
            None => book.append_numbered(commit, number),
        };
        let filed = match appended {
            Ok(sequence) => {
                self.appended.insert(commit.run.clone(), sequence);
                book.wait(sequence, FILING_PATIENCE)
            }
            Err(fault) if fault.passes == Passes::WithRoom => Ok(false),
            Err(fault) => Err(fault),
        };
        match &filed {
            Ok(_) => self.book = Some(book),
            Err(_) => self.appended.clear(),
        }
        filed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_book_of_one_run_is_told_from_that_of_all() {
        assert_eq!(run_of("file.7.commits", "file"), Some("7"));
        assert_eq!(run_of(&commits_of_run("file", "a-b_c"), "file"), Some("a-b_c"));
        assert_eq!(run_of("file.commits", "file"), None);
        assert_eq!(run_of("file2.7.commits", "file"), None);
    }
}
