//! The accounts of a stream's origins: the newest totals that its source has committed, plus the messages after them.
//!
//! Constraints: a source commits totals of the origins that changed, and a table of all every 10 minutes or index
//! segment. So the book is read backwards only to the newest table, and the index only from the newest totals: the cost
//! does not grow with the stream. Without a table (streams of a program, older books) the whole index is read.
//!
//! Failure behaviour: totals name the message up to which they count. After a power cut the book may be ahead of the
//! stream: such totals are discarded, and the gaps beside them list the numbers that arrived and were dropped. A commit
//! that does not verify may hold totals, so later ones are accepted again only from the next table on.

use crate::commits::commits_of;
use crate::cuts::CUTS_MAX;
use crate::data::{Data, stream_fault};
use crate::origins::resume_of;
use crate::records::{CUT, Commit, Gap, UNKNOWN, unknown_of};
use crate::tally::Tally;
use crate::{Fault, Resume};
use std::collections::{BTreeMap, BTreeSet};
use store::{Entry, Error, ReadOptions, Reader, Writer};

/// The accounts at the entry of a stream, and how complete they are.
#[derive(Default)]
pub(crate) struct Entries {
    /// The accounts, by origin.
    pub(crate) tallies: BTreeMap<String, Tally>,
    /// Origins whose accounts are not as the newest totals say.
    pub(crate) changed: BTreeSet<String>,
    /// Messages behind the newest totals that retention deleted: their origins are unknown.
    pub(crate) retired: u64,
    /// The losses of the source are unknown: a commit does not verify, or the book has discarded it, or a table says
    /// so.
    pub(crate) is_unknown: bool,
    /// Index entries that were read.
    pub(crate) walked: u64,
    /// The totals speak of all messages below this.
    pub(crate) total_below: u64,
    /// The next totals have to be a table: there is none to add to, or some are not to be believed.
    pub(crate) needs_table: bool,
    /// Commits from the newest table on (all, where there is none), oldest first.
    pub(crate) commits: Vec<Commit>,
    /// Bytes of these.
    pub(crate) book_bytes: u64,
}

/// The commits of a source from the newest table on, and how far they are to be believed.
struct Book {
    /// Oldest first; `None` where a message does not verify.
    commits: Vec<Option<Commit>>,
    /// Totals of changed origins can be added to what the oldest commit begins with: a table, or nothing at all.
    has_base: bool,
    /// Bytes of these commits.
    bytes: u64,
}

/// Reads the accounts of a stream.
pub(crate) fn read(data: &Data, stream: &str) -> Result<Entries, Fault> {
    let mut reader = data.reader_early(stream)?;
    let bounds = reader.bounds();
    let nothing = Book { commits: Vec::new(), has_base: true, bytes: 0 };
    let book = if data.has(&commits_of(stream))? { read_book(data, stream, bounds.count)? } else { nothing };
    let mut entries = Entries::default();
    let behind = entries.believe(&book, bounds.count);
    let is_known = entries.total_below > 0;
    let mut tail = Tail::new(&mut entries, bounds.first);
    for commit in book.commits[behind..].iter().flatten() {
        let gaps: Vec<&Gap> = commit.gaps.iter().filter(|gap| gap.stream == stream && !gap.by_sequence).collect();
        tail.expect(&gaps);
        tail.walk(&mut reader, stream, commit.output_next.min(bounds.count))?;
        gaps.into_iter().for_each(|gap| tail.lose(gap));
    }
    tail.expect(&[]);
    tail.walk(&mut reader, stream, bounds.count)?;
    let retired = tail.retired;
    // Before the first totals nothing is known of what retention took, as of a stream without a book.
    entries.retired = if is_known { retired } else { 0 };
    entries.needs_table |= retired > 0;
    entries.book_bytes = book.bytes;
    entries.commits = book.commits.into_iter().flatten().collect();
    Ok(entries)
}

/// Where the source of a stream resumes.
pub(crate) fn resume(data: &Data, writer: &Writer, entries: &Entries, needs_tail: bool) -> Result<Resume, Fault> {
    // The newest state that speaks of no message beyond the stream.
    let believed = entries.commits.iter().rfind(|commit| commit.output_next <= writer.next_sequence());
    let (state, behind) = believed.map_or_else(Default::default, |commit| (commit.state.clone(), commit.output_next));
    let tail = if needs_tail { tail(data, &writer.header().name, behind)? } else { BTreeMap::new() };
    Ok(Resume { mirrored: writer.mirrored().to_vec(), tail, ..resume_of(&entries.tallies, state) })
}

/// The numbers of the messages from `from` on, by origin, in the order of the stream.
fn tail(data: &Data, stream: &str, from: u64) -> Result<BTreeMap<String, Vec<u64>>, Fault> {
    let mut reader = data.reader_early(stream)?;
    let bounds = reader.bounds();
    let names = reader.origins().map_err(|e| stream_fault(stream, e))?.to_vec();
    let mut rows: Vec<Vec<u64>> = vec![Vec::new(); names.len()];
    let mut add = |entries: &[Entry]| {
        for entry in entries {
            rows.get_mut(entry.origin as usize).into_iter().for_each(|row| row.push(entry.origin_seq));
        }
    };
    reader.walk(from.max(bounds.first), bounds.count, &mut add).map_err(|e| stream_fault(stream, e))?;
    Ok(names.into_iter().zip(rows).filter(|(_, row)| !row.is_empty()).collect())
}

/// The gaps that every table repeats, as the newest one has none of the commits before it: what recoveries cut, `new`
/// last, and whether something is unknown.
pub(crate) fn lasting(entries: &Entries, stream: &str, new: Option<Gap>) -> Vec<Gap> {
    let mut cuts = cuts_of(&entries.commits);
    cuts.extend(new);
    cuts.drain(..cuts.len().saturating_sub(CUTS_MAX));
    // Nobody knows who made what retention took behind the totals.
    let is_unknown = entries.is_unknown || entries.retired > 0;
    cuts.into_iter().chain(is_unknown.then(|| unknown_of(stream))).collect()
}

/// What recoveries cut of a stream: its commits from the newest table on say that.
pub(crate) fn cuts(data: &Data, stream: &str) -> Result<Vec<Gap>, Fault> {
    if !data.has(&commits_of(stream))? {
        return Ok(Vec::new());
    }
    let commits = read_book(data, stream, u64::MAX)?.commits;
    Ok(cuts_of(&commits.into_iter().flatten().collect::<Vec<_>>()))
}

/// Each cut once: merges, workers and tables repeat it.
fn cuts_of(commits: &[Commit]) -> Vec<Gap> {
    let mut cuts: Vec<Gap> = Vec::new();
    for gap in commits.iter().flat_map(|commit| &commit.gaps).filter(|gap| gap.by_sequence && gap.reason == CUT) {
        if !cuts.contains(gap) {
            cuts.push(gap.clone());
        }
    }
    cuts
}

/// Reads the book backwards, to the newest table whose totals the stream of `count` messages is not behind.
fn read_book(data: &Data, stream: &str, count: u64) -> Result<Book, Fault> {
    let name = commits_of(stream);
    let mut reader = data.reader(&name, ReadOptions::default())?;
    let first = reader.bounds().first;
    let mut book = Book { commits: Vec::new(), has_base: first == 0, bytes: 0 };
    // The parts of a table that were seen, with what it speaks of.
    let mut table: Option<(u64, u32)> = None;
    for sequence in (first..reader.end()).rev() {
        let commit = match reader.get(sequence) {
            Ok(Some((_, bytes))) => {
                book.bytes += (bytes.len() + store::ENTRY_BYTES) as u64;
                Some(Commit::read(&bytes)?)
            }
            Err(Error::Gone { .. }) => {
                book.has_base = false;
                break;
            }
            Ok(None) | Err(Error::Corrupt { .. } | Error::Lost { .. }) => None,
            Err(e) => return Err(stream_fault(&name, e)),
        };
        let next = commit.as_ref().map_or(0, |commit| commit.output_next);
        let totals = commit.as_ref().and_then(|commit| commit.totals.as_ref());
        table = match (totals.filter(|totals| totals.is_table && next <= count), table) {
            (Some(totals), _) if totals.part + 1 == totals.parts => Some((next, totals.part)),
            (Some(totals), Some((at, part))) if at == next && totals.part + 1 == part => Some((next, totals.part)),
            _ => None,
        };
        book.commits.push(commit);
        if table.is_some_and(|table| table.1 == 0) {
            book.has_base = true;
            break;
        }
    }
    book.commits.reverse();
    Ok(book)
}

impl Entries {
    /// Takes the totals of the book that a stream of `count` messages bears out. Commits from the answer on are not in
    /// them.
    fn believe(&mut self, book: &Book, count: u64) -> usize {
        let mut behind = 0;
        let mut is_based = book.has_base;
        // Rows of the parts so far of totals that are not complete, what they speak of, and the next part.
        let mut rows: Vec<(String, Tally)> = Vec::new();
        let mut expected = (0, 0);
        (self.needs_table, self.is_unknown) = (!book.has_base, !book.has_base);
        for (at, commit) in book.commits.iter().enumerate() {
            let Some(commit) = commit else {
                (is_based, self.needs_table, self.is_unknown) = (false, true, true);
                rows.clear();
                continue;
            };
            self.needs_table |= commit.output_next > count;
            self.is_unknown |= commit.gaps.iter().any(|gap| gap.reason == UNKNOWN);
            let Some(totals) = commit.totals.as_ref().filter(|_| commit.output_next <= count) else { continue };
            if totals.part == 0 {
                rows.clear();
            } else if expected != (commit.output_next, totals.part) {
                continue;
            }
            expected = (commit.output_next, totals.part + 1);
            rows.extend(totals.rows.iter().cloned());
            if totals.part + 1 < totals.parts || !(totals.is_table || is_based) {
                continue;
            }
            if totals.is_table {
                self.tallies.clear();
                is_based = true;
            }
            self.tallies.extend(rows.drain(..));
            self.total_below = commit.output_next;
            behind = at + 1;
        }
        behind
    }
}

/// The messages behind the newest totals.
struct Tail<'a> {
    entries: &'a mut Entries,
    next: u64,
    /// Messages that retention has taken between the totals and the oldest that is there, not yet attributed.
    retired: u64,
    /// Rows of origins, with their names, that were seen behind them.
    names: BTreeMap<u32, String>,
    /// Gaps of the next commit that list their numbers, by origin, in the order of the numbers.
    gaps: BTreeMap<&'a str, Vec<&'a Gap>>,
}

impl<'a> Tail<'a> {
    fn new(entries: &'a mut Entries, first: u64) -> Self {
        let next = entries.total_below;
        let (names, gaps) = Default::default();
        Self { entries, next, retired: first.saturating_sub(next), names, gaps }
    }

    /// Takes the gaps of the next commit, whose messages are walked next. The source named them while numbers came, and
    /// a tally takes no reason for numbers that have fallen below its window: those of a wide hole get it as the hole
    /// opens, those of a hole before get it now.
    fn expect(&mut self, gaps: &[&'a Gap]) {
        self.gaps.clear();
        for gap in gaps.iter().filter(|gap| !gap.is_joined() && gap.first <= gap.last) {
            self.gaps.entry(&gap.origin).or_default().push(gap);
            let Some(tally) = self.entries.tallies.get_mut(&gap.origin) else { continue };
            let (low, high) = (gap.first.max(tally.first), gap.last.min(tally.next.saturating_sub(1)));
            if tally.sent() > 0 && low <= high {
                tally.lose(low..=high, &gap.reason);
            }
        }
        self.gaps.values_mut().for_each(|gaps| gaps.sort_by_key(|gap| (gap.first, gap.last)));
    }

    /// Counts the messages below `end`.
    fn walk(&mut self, reader: &mut Reader, stream: &str, end: u64) -> Result<(), Fault> {
        if end <= self.next {
            return Ok(());
        }
        let names = reader.origins().map_err(|e| stream_fault(stream, e))?.to_vec();
        let from = self.next;
        let mut see = |entries: &[Entry]| entries.iter().for_each(|entry| self.see(entry, &names));
        reader.walk(from, end, &mut see).map_err(|e| stream_fault(stream, e))?;
        self.next = end;
        Ok(())
    }

    fn see(&mut self, entry: &Entry, names: &[String]) {
        self.entries.walked += 1;
        let is_first = !self.names.contains_key(&entry.origin);
        let name = self.names.entry(entry.origin).or_insert_with(|| {
            names.get(entry.origin as usize).cloned().unwrap_or_else(|| format!("#{}", entry.origin))
        });
        if is_first {
            self.entries.changed.insert(name.clone());
        }
        let tally = match self.entries.tallies.get_mut(name) {
            Some(tally) => tally,
            None => self.entries.tallies.entry(name.clone()).or_default(),
        };
        if is_first && tally.next > tally.first && entry.origin_seq > tally.next {
            // What retention took stands between: these numbers came.
            let taken = self.retired.min(entry.origin_seq - tally.next);
            tally.see_retired(taken);
            self.retired -= taken;
        }
        if entry.origin_seq > tally.next
            && tally.sent() > 0
            && let Some(gaps) = self.gaps.get(name.as_str())
        {
            let of_hole = gaps[gaps.partition_point(|gap| gap.last < tally.next)..].iter();
            for gap in of_hole.take_while(|gap| gap.first < entry.origin_seq) {
                let (low, high) = (gap.first.max(tally.next), gap.last.min(entry.origin_seq - 1));
                if low <= high {
                    tally.lose(low..=high, &gap.reason);
                }
            }
        }
        tally.see(entry.origin_seq, entry.source_time);
    }

    /// Counts a gap.
    fn lose(&mut self, gap: &Gap) {
        if gap.first > gap.last {
            return;
        }
        let tally = self.entries.tallies.entry(gap.origin.clone()).or_default();
        if gap.is_joined() {
            tally.lose_some(gap.first..=gap.last, gap.count(), &gap.reason);
        } else {
            tally.lose(gap.first..=gap.last, &gap.reason);
        }
        if tally.appended == 0 && gap.to < i64::MAX {
            tally.last_time = tally.last_time.max(gap.to);
        }
        self.entries.changed.insert(gap.origin.clone());
    }
}
