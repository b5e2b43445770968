//! The ledger: the account of every message, derived from the data on disk (decision 0003).
//!
//! * entry, per stream and origin: `sent + duplicate = appended + skipped.REASON + lost.REASON`; `sent` spans the
//!   origin's own numbers. Messages that never had one are counted outside the account, as `refused.REASON`.
//! * reader, per stage, input and run: `read = done + aside + skipped + lost + held`. Merges, workers and live sinks
//!   know no runs: theirs is per input, over all its messages.
//!
//! Constraints: no counter is kept. Entries come from the index, gaps and progress from commits. The account of a whole
//! stream begins from committed totals and counts only the messages after them ([`crate::totals`]). The same functions
//! feed the report, the file, `top` and `--json`, so these cannot disagree.
//!
//! Failure behaviour: a commit that cannot be read is a gap `unknown`, and the account does not close.

use super::hosts::{self, HostAccount, Mirrored};
use crate::book::newest_commit;
use crate::commits::{BySink, commits_of, last_commit};
use crate::data::{Data, stream_fault};
use crate::limits::UNEXPLAINED_MAX;
use crate::numbers::{Walked, numbers};
use crate::records::{ABSENT, BEYOND, CUT, Commit, Gap, Input, REFUSED, Run, THROTTLED, UNKNOWN, WAITS, unknown_of};
use crate::tally::Tally;
use crate::totals;
use crate::{Fault, ResumeOrigin, runs};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::Range;

/// One origin's account at the entry of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Stream.
    pub stream: String,
    /// Origin of the messages.
    pub origin: String,
    /// Last number - first number + 1, numbers in gaps counted.
    pub sent: u64,
    /// Messages in the stream.
    pub appended: u64,
    /// Numbers that came more than once.
    pub duplicate: u64,
    /// Numbers that the source left out by its settings, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Missing numbers by reason; `unexplained` without a gap.
    pub lost: BTreeMap<String, u64>,
    /// Rejected messages that never had a number, by reason: outside the account.
    pub refused: BTreeMap<String, u64>,
    /// `sent + duplicate = appended + skipped + lost`, and all that the source committed can be read.
    pub closed: bool,
}

impl Entry {
    fn new(stream: &str, origin: String) -> Self {
        let (skipped, lost, refused) = Default::default();
        Self {
            stream: stream.to_owned(),
            origin,
            sent: 0,
            appended: 0,
            duplicate: 0,
            skipped,
            lost,
            refused,
            closed: true,
        }
    }

    /// Counts messages under a reason: of one without a prefix they are lost.
    fn count(&mut self, reason: &str, n: u64) {
        let (of, word) = match (reason.strip_prefix("skipped."), reason.strip_prefix(REFUSED)) {
            (Some(word), _) => (&mut self.skipped, word),
            (_, Some(word)) => (&mut self.refused, word),
            _ => (&mut self.lost, reason.strip_prefix("lost.").unwrap_or(reason)),
        };
        let counted = of.entry(word.to_owned()).or_default();
        *counted = counted.saturating_add(n);
    }

    /// Closes the account if its sides are equal.
    fn close(&mut self) {
        let sum = |terms: &[u64]| terms.iter().map(|n| u128::from(*n)).sum::<u128>();
        let missing: Vec<u64> = self.skipped.values().chain(self.lost.values()).copied().collect();
        self.closed = sum(&[self.sent, self.duplicate]) == u128::from(self.appended) + sum(&missing);
    }

    fn of(stream: &str, origin: String, tally: &Tally) -> Self {
        let mut entry = Self::new(stream, origin);
        (entry.sent, entry.appended, entry.duplicate) = (tally.sent(), tally.appended, tally.duplicate);
        tally.counts().for_each(|(word, n)| entry.count(word, n));
        entry.close();
        entry
    }
}

/// One input's account at a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Stage.
    pub stage: String,
    /// Stream.
    pub stream: String,
    /// Members of the run, counted from the index, lost ones counted. Of a merge or a worker all messages.
    pub read: u64,
    /// Done.
    pub done: u64,
    /// Set aside, by reason.
    pub aside: BTreeMap<String, u64>,
    /// Skipped by declared policy, by name.
    pub skipped: BTreeMap<String, u64>,
    /// Lost, by reason.
    pub lost: BTreeMap<String, u64>,
    /// Not yet done.
    pub held: u64,
    /// `read = done + aside + skipped + lost + held`.
    pub closed: bool,
}

/// How long a source asked its senders to pause (gaps `throttled`), as far as it lies in a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadTime {
    /// Stream.
    pub stream: String,
    /// How often.
    pub intervals: u64,
    /// How long in all.
    pub nanoseconds: i64,
}

/// The account of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Run.
    pub run: String,
    /// Its state.
    pub state: String,
    /// Why it ended; empty while it is open.
    #[serde(default)]
    pub reason: String,
    /// Entry accounts of its streams, over the sequences of the run.
    pub entries: Vec<Entry>,
    /// Accounts of the stages.
    pub rows: Vec<Row>,
    /// Lists of what is missing, and of times in which a source was absent.
    pub gaps: Vec<Gap>,
    /// How long its sources asked their boards to pause; of each that did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dead_time: Vec<DeadTime>,
    /// Streams of other hosts that are mirrored here: their entries are in the accounts of those hosts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mirrors: Vec<Mirrored>,
    /// Accounts of the other hosts of the instrument.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostAccount>,
    /// How far the wall clock was set in the run, or ahead of which arrivals it began, ns: negative = back, 0 = not.
    pub clock_step_ns: i64,
    /// Messages lost, of all reasons, on all hosts.
    pub lost: u64,
    /// Sealed, every account closes on every host, nothing is held, and no recovery has cut messages of the run.
    pub closed: bool,
}

impl Account {
    /// Intervals of the run in which a stream had no source, or its source had no contact: the missing messages are
    /// unknown, and count neither as lost nor against `closed`.
    pub fn absences(&self) -> impl Iterator<Item = &Gap> {
        self.gaps.iter().filter(|g| g.reason == ABSENT)
    }

    /// Streams whose losses are unknown, because commits of their sources do not verify.
    pub fn unknown(&self) -> impl Iterator<Item = &str> {
        self.gaps.iter().filter(|g| g.reason == UNKNOWN).map(|g| g.stream.as_str())
    }
}

/// Gaps, absences and counts that the source of a stream has committed.
struct Committed {
    /// Its gaps: messages that it dropped.
    gaps: Vec<Gap>,
    /// When it was not there.
    absences: Vec<Gap>,
    /// Some commits do not verify.
    is_damaged: bool,
    /// Rejected messages that never had a number, by origin and full word.
    refused: Refused,
    /// The book has discarded commits before this time, ns since 1970 UTC.
    since: Option<i64>,
}

/// Messages without a number, by origin and full word.
type Refused = BTreeMap<String, BTreeMap<String, u64>>;

/// Counts of rejected messages in an interval. They have no number and no time of their own, so the interval has those
/// that a commit in it counts for the first time; a source commits them once a second.
struct Refusals {
    /// Commit times, ns since 1970 UTC.
    interval: Range<i64>,
    /// Counts of the commits so far.
    all: Refused,
    /// The part that commits in the interval added.
    inside: Refused,
    /// Commits before the first one are gone, so counts that are seen for the first time may be older.
    is_cut: bool,
}

impl Refusals {
    fn see(&mut self, commit: &Commit) {
        for (origin, tally) in commit.totals.iter().flat_map(|totals| &totals.rows) {
            for (word, n) in tally.counts().filter(|(word, _)| word.starts_with(REFUSED)) {
                let before = self.all.get(origin).and_then(|of| of.get(word)).copied();
                let before = before.unwrap_or(if self.is_cut { n } else { 0 });
                self.all.entry(origin.clone()).or_default().insert(word.to_owned(), n);
                if n > before && self.interval.contains(&commit.time) {
                    *self.inside.entry(origin.clone()).or_default().entry(word.to_owned()).or_default() += n - before;
                }
            }
        }
    }
}

/// Reads the commits of a source. `interval`: the commit times whose rejected messages are wanted, ns since 1970 UTC.
fn committed(data: &Data, stream: &str, interval: Range<i64>) -> Result<Committed, Fault> {
    let book = commits_of(stream);
    let is_cut = data.has(&book)? && data.reader_early(&book)?.bounds().first > 0;
    let (messages, lost) = data.book_and_lost(&book)?;
    let (mut gaps, mut since) = (Vec::new(), None);
    let mut refusals = Refusals { interval, all: Refused::new(), inside: Refused::new(), is_cut };
    for message in messages {
        let commit = Commit::read(&message)?;
        since = since.or(is_cut.then_some(commit.time));
        refusals.see(&commit);
        gaps.extend(commit.gaps.into_iter().filter(|g| g.stream == stream));
    }
    let (by_sequence, gaps): (Vec<Gap>, Vec<Gap>) = gaps.into_iter().partition(|g| g.by_sequence);
    let mut absences: Vec<Gap> = Vec::new();
    for gap in by_sequence.into_iter().filter(|g| [ABSENT, THROTTLED].contains(&g.reason.as_str())) {
        match absences.last_mut() {
            // A long interval is committed in parts.
            Some(last) if gap.reason == THROTTLED && last.reason == THROTTLED && last.to == gap.from => {
                last.to = gap.to
            }
            _ => absences.push(gap),
        }
    }
    Ok(Committed { gaps, absences, is_damaged: lost > 0, refused: refusals.inside, since })
}

/// The times of which not all is known, oldest first: a stream had no source, or its source did not hear all.
pub fn absences(data: &Data, stream: &str) -> Result<Vec<Gap>, Fault> {
    committed(data, stream, 0..0).map(|committed| committed.absences)
}

/// All gaps of a stream that its book still has, by time: missing messages, absences, and what recoveries cut.
pub fn gaps(data: &Data, stream: &str) -> Result<Vec<Gap>, Fault> {
    let Committed { mut gaps, absences, .. } = committed(data, stream, 0..0)?;
    gaps.extend(absences);
    gaps.extend(cuts(data, stream)?);
    gaps.sort_by_key(|gap| gap.from);
    Ok(gaps)
}

/// The messages of a stream that were marked and that a recovery has cut since, oldest first.
pub fn cuts(data: &Data, stream: &str) -> Result<Vec<Gap>, Fault> {
    totals::cuts(data, stream)
}

/// The last numbers of each origin of a stream: for a program that appends to it.
pub(crate) fn origin_tails(data: &Data, stream: &str) -> Result<Vec<ResumeOrigin>, Fault> {
    let tallies = totals::read(data, stream)?.tallies;
    let tail = |(name, tally): (String, Tally)| ResumeOrigin {
        name,
        next_seq: tally.next,
        last_time: tally.last_time,
        life: 1,
    };
    Ok(tallies.into_iter().map(tail).collect())
}

/// The entry accounts of a stream since it began, and the newest gaps in them: those since the newest table of totals.
pub fn entries(data: &Data, stream: &str) -> Result<(Vec<Entry>, Vec<Gap>), Fault> {
    let known = totals::read(data, stream)?;
    let of_origin = |(origin, tally)| Entry::of(stream, origin, &tally);
    let has_any = |of: &(String, Tally)| of.1.appended > 0 || of.1.counts().next().is_some();
    let mut accounts: Vec<Entry> = known.tallies.into_iter().filter(has_any).map(of_origin).collect();
    if known.retired > 0 {
        accounts.push(retired(stream, known.retired));
    }
    let gaps = known.commits.into_iter().flat_map(|commit| commit.gaps);
    let mut gaps: Vec<Gap> = gaps.filter(|gap| gap.stream == stream && !gap.by_sequence).collect();
    if known.is_unknown {
        accounts.iter_mut().for_each(|account| account.closed = false);
        gaps.push(unknown_of(stream));
    }
    Ok((accounts, gaps))
}

/// The account of messages that were appended and taken by retention, with the index that says who made them.
fn retired(stream: &str, n: u64) -> Entry {
    Entry { sent: n, appended: n, ..Entry::new(stream, String::new()) }
}

/// The entry accounts of a run over the sequences `from` to `to`. Gaps whose times lie in the run are counted although
/// no message after (or before) them is in the range.
fn entries_of(data: &Data, stream: &str, from: u64, to: u64, run: &Run) -> Result<(Vec<Entry>, Vec<Gap>), Fault> {
    let Committed { mut gaps, is_damaged, refused, since, .. } = committed(data, stream, run.start..run.stop)?;
    gaps.sort_by_key(|g| (g.first, g.last));
    let reader = data.reader_early(stream)?;
    let spans = run.spans(reader.header(), from, to).0;
    let inside = |gap: &Gap| gap.from < run.stop && gap.to >= run.start;
    let mut accounts = Vec::new();
    let mut used = Vec::new();
    let mut besides = BTreeMap::new();
    let gone = reader.bounds().first.min(to).saturating_sub(from);
    let mut unnamed = gone;
    for (origin, walked) in numbers(data, stream, &spans, run, !gaps.is_empty())? {
        besides.insert(origin.clone(), walked.beside);
        if walked.members.appended == 0 {
            continue;
        }
        let of_origin: Vec<&Gap> = gaps.iter().filter(|g| g.origin == origin).collect();
        accounts.push(entry_of(stream, origin, (walked, &mut unnamed), &of_origin, &inside, &mut used));
    }
    if gone > 0 {
        accounts.push(retired(stream, gone));
    }
    // Origins of which nothing at all was appended (or is there any more).
    gaps.retain(|gap| {
        let beside = besides.get(&gap.origin).copied().unwrap_or_default();
        let touches = gap.last >= beside.before && beside.after.is_none_or(|after| gap.first < after);
        touches && inside(gap) && !accounts.iter().any(|account| account.origin == gap.origin)
    });
    let mut absent = BTreeMap::new();
    for gap in gaps {
        let entry = absent.entry(gap.origin.clone()).or_insert_with(|| Entry::new(stream, gap.origin.clone()));
        entry.sent = entry.sent.saturating_add(gap.count());
        entry.count(&gap.reason, gap.count());
        used.push(gap);
    }
    accounts.extend(absent.into_values());
    for (origin, counts) in refused {
        let at = accounts.iter().position(|account| account.origin == origin).unwrap_or_else(|| {
            accounts.push(Entry::new(stream, origin));
            accounts.len() - 1
        });
        counts.iter().for_each(|(word, n)| accounts[at].count(word, *n));
    }
    // Only commits record the losses behind the last message of the run.
    if is_damaged || since.is_some_and(|since| run.start < since) {
        accounts.iter_mut().for_each(|account| account.closed = false);
        used.push(unknown_of(stream));
    }
    Ok((accounts, used))
}

/// The account of an origin over the numbers that a run has of it. `gaps`: of the origin. `unnamed`: messages of the
/// run that retention has deleted, and of which no origin is known to have had a number.
fn entry_of(
    stream: &str,
    origin: String,
    (mut walked, unnamed): (Walked, &mut u64),
    gaps: &[&Gap],
    inside: &dyn Fn(&Gap) -> bool,
    used: &mut Vec<Gap>,
) -> Entry {
    let n = &mut walked.members;
    let mut entry = Entry { appended: n.appended, duplicate: n.duplicate, ..Entry::new(stream, origin) };
    for gap in gaps {
        // A number that two gaps name is lost once.
        let explained = n.take(gap.first, gap.last, gap.count());
        if explained > 0 {
            entry.count(&gap.reason, explained);
            used.push((*gap).clone());
        }
    }
    *unnamed -= walked.explain_deleted(*unnamed);
    let Walked { members: n, beside, elsewhere, .. } = walked;
    let first = n.first.unwrap_or(0);
    let unexplained = n.holes.values().zip(n.holes.keys()).map(|(last, first)| (last - first).saturating_add(1));
    let unexplained = unexplained.fold(n.folded, u64::saturating_add);
    if unexplained > 0 {
        entry.count("unexplained", unexplained);
    }
    let hole = |numbers, count| Gap { count, ..Gap::numbers(stream, &entry.origin, numbers, "unexplained") };
    let joined = n.holes.len().saturating_sub(UNEXPLAINED_MAX);
    let listed = n.holes.iter().skip(joined).map(|(first, last)| hole(*first..=*last, 0));
    let (mut above, mut count) = (n.folded_below, n.folded);
    for (low, high) in n.holes.iter().take(joined) {
        (above, count) = (above.max(high + 1), count.saturating_add((high - low).saturating_add(1)));
    }
    if count > 0 {
        used.push(hole(first..=above.saturating_sub(1), count));
    }
    used.extend(listed);
    // What was lost at either end of a run: no message of the run is beyond it, and none outside the run is between.
    let mut beyond = 0;
    for gap in gaps.iter().filter(|g| inside(g)) {
        let end = gap.last.saturating_add(1);
        let before = end.min(first).saturating_sub(gap.first.max(beside.before));
        let after = end.min(beside.after.unwrap_or(u64::MAX)).saturating_sub(gap.first.max(n.next));
        let outside = (before + after).min(gap.count());
        if outside > 0 {
            beyond += outside;
            entry.count(&gap.reason, outside);
            if !used.contains(gap) {
                used.push((*gap).clone());
            }
        }
    }
    entry.sent = n.next - first - elsewhere + beyond;
    entry.close();
    entry
}

/// Members of a run in one stream, counted from the index, and the sequence from which they could be counted.
fn members(data: &Data, run: &Run, stream: &str, from: u64) -> Result<(u64, u64), Fault> {
    let mut reader = data.reader_early(stream)?;
    let clock = reader.header().clock;
    let bounds = reader.bounds();
    let from = from.max(bounds.first);
    let (mut count, mut lost) = (0, 0);
    let mut see = |entries: &[store::Entry]| {
        count += entries.iter().filter(|e| run.holds(clock.time_of(e))).count() as u64;
    };
    let (spans, _) = run.spans(&reader.header().clone(), from, u64::MAX);
    for (low, high) in spans {
        let walked = reader.walk(low, high.min(bounds.count), &mut see).map_err(|e| stream_fault(stream, e))?;
        lost += walked.lost();
    }
    // A message whose entry does not verify may be a member: it counts as one that is lost.
    Ok((count + lost, from))
}

/// The account of a run over the given sinks.
pub fn account(data: &Data, run_name: &str, sinks: &[String]) -> Result<Account, Fault> {
    account_of(data, &runs::run(data, run_name)?, sinks)
}

/// The same where the record of the run was read already.
pub fn account_of(data: &Data, run: &Run, sinks: &[String]) -> Result<Account, Fault> {
    account_of_commits(data, run, &last_commits(data, run, sinks)?, sinks)
}

/// The last commit of each sink for a run.
pub(super) fn last_commits(data: &Data, run: &Run, sinks: &[String]) -> Result<BySink, Fault> {
    let mut commits = BySink::new();
    for sink in sinks {
        commits.extend(last_commit(data, sink, &run.name)?.map(|commit| (sink.clone(), commit)));
    }
    Ok(commits)
}

/// The same where the commits were read already.
pub fn account_of_commits(data: &Data, run: &Run, commits: &BySink, sinks: &[String]) -> Result<Account, Fault> {
    hosts::with_others(data, run, local_account(data, run, commits, sinks)?)
}

/// The account of a run on this host alone, over the given sinks.
pub(super) fn local_account(data: &Data, run: &Run, commits: &BySink, sinks: &[String]) -> Result<Account, Fault> {
    let mut rows = Vec::new();
    let mut begins = Vec::new();
    let mut gaps = Vec::new();
    let mut finished = true;
    for sink in sinks {
        let Some(commit) = commits.get(sink) else {
            finished = false;
            continue;
        };
        finished &= commit.finished;
        for input in &commit.inputs {
            rows.push(row(data, run, sink, input, commit.finished)?);
            begins.push((input.stream.clone(), input.first));
        }
        gaps.extend(commit.gaps.iter().cloned());
    }
    finish_account(data, run, rows, gaps, &begins, finished)
}

/// The account of a run by the inputs and gaps of a sink that has not finished.
pub(crate) fn account_of_inputs<'a>(
    data: &Data,
    (run, sink): (&Run, &str),
    inputs: impl Iterator<Item = &'a Input>,
    gaps: &[Gap],
) -> Result<Account, Fault> {
    let mut rows = Vec::new();
    let mut begins = Vec::new();
    for input in inputs {
        rows.push(row(data, run, sink, input, false)?);
        begins.push((input.stream.clone(), input.first));
    }
    hosts::with_others(data, run, finish_account(data, run, rows, gaps.to_vec(), &begins, true)?)
}

fn finish_account(
    data: &Data,
    run: &Run,
    mut rows: Vec<Row>,
    mut gaps: Vec<Gap>,
    begins: &[(String, u64)],
    finished: bool,
) -> Result<Account, Fault> {
    // One order, whoever asked: a file that is written again holds the same account.
    rows.sort_by(|a, b| (&a.stage, &a.stream).cmp(&(&b.stage, &b.stream)));
    let Entered { entries: all, mirrors, gaps: found, is_cut } = entered(data, run, &rows, begins)?;
    gaps.extend(found);
    let lost = total(rows.iter().flat_map(|r| r.lost.values()).chain(all.iter().flat_map(|e| e.lost.values())));
    let closed = finished
        && !is_cut
        && run.state == wire::bprn::State::Sealed
        && rows.iter().all(|r| r.closed && r.held == 0)
        && all.iter().all(|e| e.closed)
        && gaps.iter().all(|g| g.reason != UNKNOWN);
    let dead_time = dead_time(run, &gaps);
    Ok(Account {
        run: run.name.clone(),
        state: run.state.name().into(),
        reason: run.reason.clone(),
        entries: all,
        rows,
        gaps,
        dead_time,
        mirrors,
        hosts: Vec::new(),
        clock_step_ns: run.clock_step,
        lost,
        closed,
    })
}

/// The account of a run at the entry of its streams.
#[derive(Default)]
struct Entered {
    entries: Vec<Entry>,
    mirrors: Vec<Mirrored>,
    gaps: Vec<Gap>,
    /// A recovery has cut messages of the run.
    is_cut: bool,
}

/// Accounts for the messages of a run at the entry of its streams. `begins`: where sinks began.
fn entered(data: &Data, run: &Run, rows: &[Row], begins: &[(String, u64)]) -> Result<Entered, Fault> {
    let mut entered = Entered::default();
    let Entered { entries, mirrors, gaps, is_cut } = &mut entered;
    let layout = hosts::layout_of(data, run)?;
    let host_of = |stream: &str| layout.as_ref().and_then(|layout| layout.mirrors.get(stream));
    let is_inside = |g: &Gap| g.from < run.stop && g.to >= run.start;
    // An absence that ends after the seal is not of the run, however early it began.
    let until = if run.state == wire::bprn::State::Sealed { run.time } else { i64::MAX };
    let mut streams: Vec<&str> = run.streams.iter().map(|r| r.stream.as_str()).collect();
    streams.dedup();
    for stream in streams {
        let (_, cut) = run.spans(data.reader_early(stream)?.header(), 0, u64::MAX);
        *is_cut |= cut > 0;
        let is_counted = rows.iter().any(|row| row.stream == stream && row.lost.contains_key(CUT));
        if cut > 0 && !is_counted {
            // They were in the stream; who made them was cut with the index.
            let mut entry = Entry { sent: cut, ..Entry::new(stream, String::new()) };
            entry.count(CUT, cut);
            entries.push(entry);
        }
        if let Some(host) = host_of(stream) {
            let (received, kept) = count(data, run, stream)?;
            let (stream, host) = (stream.to_owned(), host.clone());
            gaps.extend(absences(data, &stream)?.into_iter().filter(is_inside));
            mirrors.push(Mirrored { stream, host, sent: None, received, kept, missing: 0 });
            continue;
        }
        let is_gathered = layout.as_ref().is_some_and(|layout| layout.is_gathered(stream));
        if is_gathered || filled(data, stream)?.is_some() {
            // Its messages entered elsewhere: the stage that fills it has an account of each input.
            continue;
        }
        let ranges = || run.streams.iter().filter(|r| r.stream == stream);
        // The seal lists what was there then; a sink may have begun before, with what retention has taken since.
        let oldest = data.reader_early(stream)?.bounds().first;
        let begun = begins.iter().filter(|b| b.0 == stream && b.1 < oldest).map(|b| b.1);
        let from = ranges().map(|r| r.first).chain(begun).min().unwrap_or(0);
        let to = ranges().map(|r| r.next).max().unwrap_or(0);
        let (of_origins, found) = entries_of(data, stream, from, to, run)?;
        entries.extend(of_origins);
        gaps.extend(found);
        gaps.extend(absences(data, stream)?.into_iter().filter(|gap| is_inside(gap) && gap.to <= until));
    }
    Ok(entered)
}

/// Messages of a run in a stream: with those that retention has deleted, and without them.
pub(super) fn count(data: &Data, run: &Run, stream: &str) -> Result<(u64, u64), Fault> {
    let oldest = data.reader_early(stream)?.bounds().first;
    let ranges = || run.streams.iter().filter(|range| range.stream == stream);
    let first = ranges().map(|range| range.first).min().unwrap_or(oldest);
    let gone = oldest.min(ranges().map(|range| range.next).max().unwrap_or(first)).saturating_sub(first);
    let kept = members(data, run, stream, first)?.0;
    Ok((kept + gone, kept))
}

/// The dead time in a run of each stream that has some.
fn dead_time(run: &Run, gaps: &[Gap]) -> Vec<DeadTime> {
    let mut by_stream: BTreeMap<&str, (u64, i64)> = BTreeMap::new();
    for gap in gaps.iter().filter(|gap| gap.reason == THROTTLED) {
        let inside = gap.to.min(run.stop).saturating_sub(gap.from.max(run.start)).max(0);
        let (intervals, all) = by_stream.entry(&gap.stream).or_default();
        (*intervals, *all) = (*intervals + 1, all.saturating_add(inside));
    }
    let row = |(stream, (intervals, nanoseconds)): (&str, (u64, i64))| DeadTime {
        stream: stream.to_owned(),
        intervals,
        nanoseconds,
    };
    by_stream.into_iter().map(row).collect()
}

/// The newest commit of a merge, a worker or a live sink, by its name; none for another stage.
pub(crate) fn filled(data: &Data, stream: &str) -> Result<Option<Commit>, Fault> {
    let newest = newest_commit(data, &commits_of(stream), &mut |_| true)?;
    Ok(newest.filter(|commit| commit.run.is_empty() && !commit.inputs.is_empty()))
}

/// The accounts of a merge, a worker or a live sink, one an input, as its newest commit has them; none for another stage.
pub fn stage(data: &Data, name: &str) -> Result<Vec<Row>, Fault> {
    let Some(commit) = filled(data, name)? else { return Ok(Vec::new()) };
    let mut rows = Vec::new();
    // Looked up for streams of other hosts alone.
    let is_gathered = || Ok::<_, Fault>(hosts::layout(data)?.is_some_and(|layout| layout.is_gathered(name)));
    for input in &commit.inputs {
        let count = match data.reader_early(&input.stream) {
            Ok(reader) if reader.header().uuid == input.uuid => reader.bounds().count.max(input.next),
            // The stream is on another host: what is done of it is in the commit, and what is not done there.
            Ok(reader) if !reader.header().near.is_empty() && is_gathered()? => input.next,
            Err(_) if is_gathered()? => input.next,
            // The stream was recreated: the messages of this account are gone.
            _ => continue,
        };
        let (aside, skipped, lost) = (group(input, "aside"), group(input, "skipped"), group(input, "lost"));
        let (waits, beyond) = (input.count(WAITS), input.count(BEYOND));
        // The stream no longer holds the messages that a recovery cut after they were read.
        let read = count.saturating_sub(input.first) + input.count(CUT);
        // Messages not examined yet, and examined ones that wait.
        let held = (count - input.next + waits).saturating_sub(beyond);
        let known = input.done.saturating_add(total([&aside, &skipped, &lost].iter().flat_map(|map| map.values())));
        let closed = read == known + held;
        let (stage, stream, done) = (name.to_owned(), input.stream.clone(), input.done);
        rows.push(Row { stage, stream, read, done, aside, skipped, lost, held, closed });
    }
    Ok(rows)
}

/// Messages lost, of all reasons, in the accounts of inputs.
pub fn lost(rows: &[Row]) -> u64 {
    total(rows.iter().flat_map(|row| row.lost.values()))
}

/// The sum of counts, at most `u64::MAX`: numbers come from outside, so gaps between them may be as large as they like.
pub fn total<'a>(counts: impl IntoIterator<Item = &'a u64>) -> u64 {
    counts.into_iter().fold(0, |sum, n| sum.saturating_add(*n))
}

/// The accounts of all merges, workers and live sinks of a data folder.
pub fn stages(data: &Data) -> Result<Vec<Row>, Fault> {
    let mut rows = Vec::new();
    for name in names(data)? {
        rows.extend(stage(data, &name)?);
    }
    Ok(rows)
}

/// Names of stages that have a book and fill no stream: live sinks, and sinks that have finished files of runs.
pub fn live_sinks(data: &Data) -> Result<Vec<String>, Fault> {
    let streams = data.streams(false)?;
    let mut names = names(data)?;
    names.retain(|name| !streams.contains(name));
    Ok(names)
}

/// Names of the stages that have a book. That of a run, `SINK.RUN.commits`, is none of a stage.
fn names(data: &Data) -> Result<Vec<String>, Fault> {
    let of = |book: String| book.strip_suffix(".commits").filter(|name| !name.contains('.')).map(str::to_owned);
    Ok(data.streams(true)?.into_iter().filter_map(of).collect())
}

/// The counts of an input of one kind, by reason.
fn group(input: &Input, kind: &str) -> BTreeMap<String, u64> {
    let of_kind = |(name, n): (&String, &u64)| Some((name.strip_prefix(kind)?.strip_prefix('.')?.to_string(), *n));
    input.counts.iter().filter_map(of_kind).collect()
}

fn row(data: &Data, run: &Run, stage: &str, input: &Input, finished: bool) -> Result<Row, Fault> {
    let (aside, lost) = (group(input, "aside"), group(input, "lost"));
    let mut skipped = group(input, "skipped");
    // Messages of the stream that are not of the run are no part of the run's account.
    skipped.remove("outside");
    let (counted, from) = members(data, run, &input.stream, input.first)?;
    let sum = |map: &BTreeMap<String, u64>| total(map.values());
    let known = input.done.saturating_add(sum(&aside)).saturating_add(sum(&skipped));
    let held = if finished { 0 } else { members(data, run, &input.stream, input.next)?.0 };
    let is_cut = input.count(CUT) > 0 || run.spans(data.reader_early(&input.stream)?.header(), 0, u64::MAX).1 > 0;
    // What retention took after it was done, or a recovery cut, can no longer be counted: the commit is the only record of
    // it. Everything else has an entry in the index, or a place for one, also what is damaged or missing; of what came
    // while the clock was set back the entry does not say that it is a member.
    let in_index = || counted + lost.get("clock").copied().unwrap_or(0);
    let read = if from > input.first || is_cut { known + sum(&lost) + held } else { in_index() };
    let closed = read == known + sum(&lost) + held;
    Ok(Row {
        stage: stage.into(),
        stream: input.stream.clone(),
        read,
        done: input.done,
        aside,
        skipped,
        lost,
        held,
        closed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::Numbers;

    fn seen(numbers: &[u64]) -> Numbers {
        let mut n = Numbers::default();
        for &number in numbers {
            n.see(number);
        }
        n
    }

    fn holes(n: &Numbers) -> u64 {
        n.holes.iter().map(|(a, b)| (b - a).saturating_add(1)).sum()
    }

    #[test]
    fn losses_of_two_origins_with_the_largest_gaps_overflowed() {
        assert_eq!(total([u64::MAX - 1, 2, 3].iter()), u64::MAX);
        let mut entry = Entry::new("s", "a".into());
        entry.count("lost.network", u64::MAX - 1);
        entry.count("lost.network", 2);
        assert_eq!(entry.lost["network"], u64::MAX);
    }

    #[test]
    fn the_largest_numbers_do_not_overflow() {
        let n = seen(&[u64::MAX - 1, u64::MAX, u64::MAX, 0]);
        assert_eq!((n.first, n.next, n.appended), (Some(0), u64::MAX, 4));
    }

    #[test]
    fn sent_and_duplicates_equal_appended_and_holes_in_any_order() {
        let lists: [&[u64]; 7] = [
            &[0, 1, 2, 3],
            &[5, 7, 6],
            &[5, 6, 9, 7, 7, 8],
            &[9, 3, 5, 3],
            &[4, 4, 4],
            &[100, 0, 50, 50, 99, 1],
            &[7, 20, 10, 11, 9, 15, 12, 8],
        ];
        for list in lists {
            let n = seen(list);
            let mut distinct = list.to_vec();
            distinct.sort_unstable();
            distinct.dedup();
            let (first, last) = (distinct[0], distinct[distinct.len() - 1]);
            assert_eq!(n.first, Some(first), "{list:?}");
            assert_eq!(n.next, last + 1, "{list:?}");
            assert_eq!(n.duplicate, (list.len() - distinct.len()) as u64, "{list:?}");
            assert_eq!(holes(&n), last + 1 - first - distinct.len() as u64, "{list:?}");
        }
    }
}
