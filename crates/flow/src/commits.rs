//! The commits of sinks: the position of each sink in each run.
//!
//! While a sink works on a run, its commits are in a book of their own, `SINK.RUN.commits`, so that overlapping runs
//! are written side by side. Each commit is complete (the account, the gaps, the state to resume from), so only the
//! newest matters and the book keeps 1 MiB. When the run is in the file, that commit is filed in `SINK.commits` and the
//! book is removed: the folder keeps one message per finished run, and a book per run being written.
//!
//! The commits of a source, `SOURCE.commits`, hold its gaps; the ledger reads them.

use crate::book::{Book, Keeps, newest_commit};
use crate::data::{Data, stream_fault};
use crate::limits::BOOK_NEWEST_BYTES;
use crate::records::{Commit, Run};
use crate::{Fault, Passes};
use std::collections::BTreeMap;
use std::time::Duration;
use store::ReadOptions;
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
    // A long name is told apart by its checksum.
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
    let mut all: BTreeMap<String, BySink> = BTreeMap::new();
    let mut books = data.streams(true)?;
    books.retain(|name| name.ends_with(".commits"));
    // Those of single runs first: a commit is filed before its book is removed.
    books.sort_by_key(|name| std::cmp::Reverse(name.matches('.').count()));
    for book in books {
        // Those of sources and merges belong to no run, and may be long.
        if first_of(data, &book).is_some_and(|commit| commit.run.is_empty()) {
            continue;
        }
        for message in data.book_messages(&book)? {
            let commit = Commit::read(&message)?;
            // A book of which the first message does not verify.
            if !commit.run.is_empty() {
                all.entry(commit.run.clone()).or_default().insert(commit.stage.clone(), commit);
            }
        }
    }
    Ok(all)
}

/// The oldest commit of a book, if it can be read.
fn first_of(data: &Data, book: &str) -> Option<Commit> {
    let mut reader = data.reader(book, ReadOptions::default()).ok()?;
    let first = reader.bounds().first;
    Commit::read(&reader.get(first).ok()??.1).ok()
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

/// Files a finished run of a sink: releases its positions in `inputs`, files its last commit and removes its book.
///
/// Only the keeper of runs may call it. What there is no room for now, or what its writer still holds, is filed at the
/// next call: until then the commit is found where it is.
pub fn file_away(data: &Data, sink: &str, inputs: &[String]) -> Result<(), Fault> {
    let names = data.media.list(&data.folder);
    let names = names.map_err(|e| Fault::new(format!("cannot read data folder `{}`", data.folder.display()), e))?;
    // By name alone: one that was cut short while it was removed has no header any more.
    for book in names {
        let Some(run) = run_of(&book, sink) else { continue };
        let Some(commit) = last_commit(data, sink, run)?.filter(|c| c.finished) else { continue };
        for stream in inputs {
            data.release(stream, &reader_name(sink, run))?;
        }
        let filed = commits_of(sink);
        let is_known = newest_commit(data, &filed, &mut |commit| commit.run == run)?.is_some();
        if !is_known && !file(data, &filed, &commit)? {
            continue;
        }
        match store::remove(&data.media, &data.stream(&book)) {
            Ok(()) | Err(store::Error::Locked(_)) => {}
            Err(e) => return Err(stream_fault(&book, e)),
        }
    }
    Ok(())
}

/// Appends a commit to the book of all runs of a sink and waits until it is safe. False if there is no room for it now.
fn file(data: &Data, name: &str, commit: &Commit) -> Result<bool, Fault> {
    let mut book = Book::open(data, name, Keeps::All)?;
    // Commits of many runs are in this book: its numbers are not those of one run.
    let number = book.next_sequence();
    match book.append_numbered(commit, number) {
        Ok(sequence) => book.wait(sequence, FILING_PATIENCE),
        Err(fault) if fault.passes == Passes::WithRoom => Ok(false),
        Err(fault) => Err(fault),
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
