//! The commits of sinks: where each stands in each run.
//!
//! While a sink works on a run, its commits go to a book of their own, `SINK.RUN.commits`, so that runs which overlap
//! are written side by side. Each commit says all (the account, the gaps, the state to go on from), so only the newest
//! matters and the book stays small. When the run is in the file, that commit is filed in `SINK.commits` and the book
//! is removed: the folder keeps one message for each finished run, and a book for each that is being written.
//!
//! The commits of a source, `SOURCE.commits`, hold its gaps; they are read by the ledger.

use crate::Fault;
use crate::data::{BOOK_NEWEST_BYTES, Data, settle, stream_fault};
use crate::feed::reader_name;
use crate::intake::book_meta;
use crate::records::{Commit, Run};
use std::collections::BTreeMap;
use std::time::Duration;
use store::{Error, Level, ReadOptions, SchemaId, Writer};
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

/// Opens the book of a sink for a run, and waits until what it holds is safe.
pub(crate) fn open(data: &Data, sink: &str, run: &str) -> Result<Writer, Fault> {
    let name = commits_of_run(sink, run);
    let mut book = data.book_of_newest(&name, BOOK_NEWEST_BYTES)?;
    settle(&mut book, &name)?;
    Ok(book)
}

/// The newest commit of a sink for a run.
pub fn last_commit(data: &Data, sink: &str, run: &str) -> Result<Option<Commit>, Fault> {
    // In this order: it is filed before its book is removed.
    let mut last = None;
    for book in [commits_of_run(sink, run), commits_of(sink)] {
        for message in data.book_messages(&book)? {
            let commit = Commit::read(&message)?;
            if commit.run == run {
                last = Some(commit);
            }
        }
    }
    Ok(last)
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

/// The newest commit of a book that verifies.
pub(crate) fn newest_commit(data: &Data, book: &str) -> Result<Option<Commit>, Fault> {
    let mut reader = data.reader(book, ReadOptions::default())?;
    for sequence in (reader.bounds().first..reader.end()).rev() {
        match reader.get(sequence) {
            Ok(Some((_, bytes))) => return Commit::read(&bytes).map(Some),
            Ok(None) | Err(Error::Corrupt { .. } | Error::Lost { .. } | Error::Gone { .. }) => {}
            Err(e) => return Err(stream_fault(book, e)),
        }
    }
    Ok(None)
}

/// The oldest commit of a book, if it can be read.
fn first_of(data: &Data, book: &str) -> Option<Commit> {
    let mut reader = data.reader(book, ReadOptions::default()).ok()?;
    let first = reader.bounds().first;
    Commit::read(&reader.get(first).ok()??.1).ok()
}

/// Runs of which it cannot be told whether a sink has finished them: sealed, without a commit, and some of what the sink
/// has filed does not verify.
pub fn untold(data: &Data, sink: &str, runs: &[Run]) -> Result<Vec<String>, Fault> {
    if data.book_and_lost(&commits_of(sink))?.1 == 0 {
        return Ok(Vec::new());
    }
    let known = last_commits(data)?;
    let has = |run: &str| known.get(run).is_some_and(|of_run| of_run.contains_key(sink));
    Ok(runs.iter().filter(|r| r.state == State::Sealed && !has(&r.name)).map(|r| r.name.clone()).collect())
}

/// Files what a sink has finished: lets go of its places in `inputs`, files its last commit and removes its book.
///
/// Only the keeper of runs may call it. What there is no room for now, or what its writer still holds, is filed at the
/// next call: until then the commit is found where it is.
pub fn file_away(data: &Data, sink: &str, inputs: &[String]) -> Result<(), Fault> {
    let names = data.media.list(&data.folder);
    let names = names.map_err(|e| Fault::new(format!("data folder `{}` cannot be read", data.folder.display()), e))?;
    // By name alone: one that was cut short while it was removed has no header any more.
    for book in names {
        let Some(run) = run_of(&book, sink) else { continue };
        let Some(commit) = last_commit(data, sink, run)?.filter(|c| c.finished) else { continue };
        for stream in inputs {
            data.release(stream, &reader_name(sink, run))?;
        }
        let filed = commits_of(sink);
        let known = data.book_messages(&filed)?;
        let is_known = known.iter().filter_map(|m| Commit::read(m).ok()).any(|c| c.run == run);
        if !is_known && !append(data, &filed, &commit)? {
            continue;
        }
        match store::remove(&data.media, &data.stream(&book)) {
            Ok(()) | Err(store::Error::Locked(_)) => {}
            Err(e) => return Err(stream_fault(&book, e)),
        }
    }
    Ok(())
}

/// Appends a commit to a book and waits until it is safe. False if there is no room for it now.
fn append(data: &Data, name: &str, commit: &Commit) -> Result<bool, Fault> {
    let mut bytes = Vec::new();
    commit.write(&mut bytes)?;
    let mut book = data.book(name)?;
    let fault = |e| stream_fault(name, e);
    let meta = book_meta(commit.time, book.next_sequence(), SchemaId(wire::bpcm::ID));
    let sequence = match book.append(&meta, &bytes) {
        Ok(sequence) => sequence,
        Err(e) if e.is_full() => return Ok(false),
        Err(e) => return Err(fault(e)),
    };
    Ok(book.header().level == Level::Memory || book.wait(sequence + 1, Level::Disk, FILING_PATIENCE).map_err(fault)?)
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
