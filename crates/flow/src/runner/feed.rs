//! The runner of a sink: one run, some streams, commits.
//!
//! Order at each commit: the sink flushes (what it wrote is durable), then the commit is appended to the book of the run
//! (see `commits`) and waited for, then the named positions move and the streams may free messages. A feed that
//! restarts reads the last commit and resumes behind it with the sink's own `state`: nothing is done twice, nothing
//! left out.
//!
//! The sink reads disk streams up to the mark `disk` only, so a power cut cannot take back what a file shows.

use crate::book::Book;
use crate::commits::{self, commits_of_run, last_commit, reader_name, seen};
use crate::content::Content;
use crate::data::{Data, not_written, stream_fault};
use crate::records::{CUT, Commit, Gap, Input, Range, Run, reason_of};
use crate::{Aside, Fault, Sink, ledger, runs};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use store::{Check, Clock, Error, Kind, Level, Message, ReadOptions, Reader, Stretch, Why};
use wire::bprn::State;

/// Messages offered to the sink at once.
const BATCH_MESSAGES: usize = 1024;
/// Messages of a stream among which values from before a run are looked for, before those that have been read: a second of
/// work at most, for what was not said for so long.
const BEFORE_MESSAGES: u64 = 1 << 20;

/// How long the disk may take for a commit.
const COMMIT_PATIENCE: Duration = Duration::from_secs(30);

struct FeedInput {
    reader: Reader,
    account: Input,
    /// The sink has seen what was there before.
    looked_back: bool,
    /// Bytes of the payloads read since the last commit.
    uncommitted: u64,
    content: Content,
}

/// The result of one step of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedStep {
    /// Messages taken from the streams.
    pub messages: u64,
    /// The run is sealed and all its members have been given to the sink: `finish` may come.
    pub complete: bool,
    /// The stop of the run was fixed before messages already written: the sink must restart, see [`Feed::restart`].
    pub overrun: bool,
}

/// A sink's work on one run.
pub struct Feed {
    data: Data,
    sink: String,
    run: Run,
    runs: runs::RunsView,
    inputs: Vec<FeedInput>,
    /// None where nothing is kept (a file written by hand), or nothing more will be.
    commits: Option<Book>,
    block: u64,
    /// All that were found since the beginning.
    gaps: Vec<Gap>,
    aside: Vec<Aside>,
    /// Newest time given to the sink.
    newest: i64,
    /// While the run is open, messages that are newer than this are not given to the sink.
    hold: Duration,
    finished: bool,
}

impl Feed {
    /// Starts or goes on: the feed and the state from which the sink goes on (none: from the beginning).
    /// `keep`: positions and commits are kept under the sink's name; without, the streams are only read.
    pub fn open(
        data: &Data,
        sink: &str,
        run_name: &str,
        inputs: &[String],
        keep: bool,
    ) -> Result<(Self, Option<String>), Fault> {
        let run = runs::run(data, run_name)?;
        let known = || last_commit(data, sink, run_name);
        let finished = |last: &Option<Commit>| last.as_ref().is_some_and(|c| c.finished);
        let mut last = if keep { known()? } else { None };
        let mut commits = None;
        if keep && !finished(&last) {
            commits = Some(commits::open(data, sink, run_name)?);
            // Once more: now all of it is safe.
            last = known()?;
        }
        let mut feed = Self {
            data: data.clone(),
            sink: sink.to_string(),
            run,
            runs: runs::RunsView::new(data),
            inputs: Vec::new(),
            commits,
            block: last.as_ref().map_or(0, |c| c.block + 1),
            gaps: last.as_ref().map_or_else(Vec::new, |c| c.gaps.clone()),
            aside: Vec::new(),
            newest: i64::MIN,
            hold: Duration::ZERO,
            finished: finished(&last),
        };
        let known = last.as_ref().map_or(&[][..], |commit| &commit.inputs);
        for stream in inputs {
            feed.inputs.push(feed.input(stream, known, keep)?);
        }
        if let Some(commit) = &last {
            // The overrun rule needs the newest time written; it is kept in the counts, as all else is.
            feed.newest =
                commit.inputs.iter().filter_map(|i| i.counts.get(NEWEST)).map(|t| *t as i64).max().unwrap_or(i64::MIN);
        }
        Ok((feed, last.map(|c| c.state)))
    }

    fn input(&self, stream: &str, known: &[Input], keep: bool) -> Result<FeedInput, Fault> {
        let (name, kind) = if keep {
            (reader_name(&self.sink, &self.run.name), Kind::Counted)
        } else {
            (String::new(), Kind::Anonymous)
        };
        let options = ReadOptions { name, kind, check: Check::All, ..ReadOptions::default() };
        let mut reader = self.data.reader(stream, options)?;
        let header = reader.header().clone();
        let account = match Input::resume(known, stream, &header) {
            Some(known) => gone_on(&self.run, known, &header),
            None => {
                // A place that was held since the run began says more than what is left: what was taken since is lost.
                let held = if keep { reader.position() } else { u64::MAX };
                Input::begin(stream, &header, beginning(&self.run, &mut reader)?.min(held))
            }
        };
        reader.seek(account.next);
        if keep {
            reader.commit(account.next);
        }
        Ok(FeedInput { reader, account, looked_back: false, uncommitted: 0, content: Content::default() })
    }

    /// The feed ends at these sequences, one an input, whatever becomes of the run: what is in the streams at `time`, ns since
    /// 1970 UTC, of a run that goes on.
    pub fn end_at(&mut self, ends: &[u64], time: i64) {
        let range = |(input, next): (&FeedInput, &u64)| {
            let FeedInput { reader, account, .. } = input;
            let header = reader.header();
            Range {
                stream: account.stream.clone(),
                uuid: account.uuid,
                epoch: header.epoch_of(next.saturating_sub(1)),
                first: account.first,
                next: account.first.max(*next),
                by_arrival: header.clock != Clock::Epoch,
                ended: false,
            }
        };
        self.run.streams = self.inputs.iter().zip(ends).map(range).collect();
        // As if it were sealed now: nobody is asked for it again.
        (self.run.state, self.run.time) = (State::Sealed, time);
    }

    /// While the run is open, a message is given to the sink only when its source time or its arrival is older than
    /// this: a stop that is not longer ago causes no [`FeedStep::overrun`].
    pub fn hold(&mut self, hold: Duration) {
        self.hold = hold;
    }

    /// The run as it was known at the last step.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// True if an earlier feed finished the work: there is nothing to do.
    pub fn finished(&self) -> bool {
        self.finished
    }

    /// The account of the run as it is just before the feed finishes: what the file says.
    pub fn account(&self, data: &Data, sink: &str) -> Result<ledger::Account, Fault> {
        ledger::account_of_inputs(data, (self.run(), sink), self.accounts(), self.gaps())
    }

    /// The accounts so far, one an input.
    pub fn accounts(&self) -> impl Iterator<Item = &Input> {
        self.inputs.iter().map(|i| &i.account)
    }

    /// The gaps found so far.
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// Takes what is there, at most one batch from each input, and gives the members of the run to the sink.
    pub fn step(&mut self, sink: &mut dyn Sink) -> Result<FeedStep, Fault> {
        if self.run.state != State::Sealed {
            let known = self.runs.refresh()?.iter().find(|r| r.name == self.run.name);
            self.run = known.cloned().unwrap_or_else(|| self.run.clone());
        }
        let mut fed = FeedStep { messages: 0, complete: self.run.state == State::Sealed, overrun: false };
        for at in 0..self.inputs.len() {
            fed.messages += self.step_input(at, sink)?;
            let input = &self.inputs[at];
            let end = sealed_end(&self.run, &input.account);
            fed.complete &= end.is_none_or(|end| input.account.next >= end);
            let last = input.account.count(LAST);
            fed.overrun |= end.is_some_and(|end| last > end);
            // A power cut brings back what retention had only begun to take: it is of the run again.
            let sealed = self.run.streams.iter().filter(|r| r.stream == input.account.stream).map(|r| r.first).min();
            fed.overrun |= end.is_some() && sealed.is_some_and(|first| first < input.account.first);
        }
        fed.overrun |= self.run.state != State::Open && self.newest >= self.run.stop;
        Ok(fed)
    }

    fn step_input(&mut self, at: usize, sink: &mut dyn Sink) -> Result<u64, Fault> {
        let keeps = self.commits.is_some();
        let Self { data, run, inputs, aside, newest, gaps, hold, .. } = self;
        let FeedInput { reader, account, looked_back, uncommitted, content } = &mut inputs[at];
        if !std::mem::replace(looked_back, true) {
            look_back(run, reader, account.next, &mut |message| {
                message.into_iter().for_each(|message| sink.before(at, message, false));
                sink.wants_before(at)
            });
        }
        let header = reader.header().clone();
        let from = account.next;
        let limit = match ahead(run, &header, account) {
            Ahead::Kept(end) => end,
            Ahead::Cut(end) => {
                let known = Known { members: end - from, ..Known::default() };
                lose(account, gaps, end, known, CUT);
                account.epoch = header.epoch();
                return Ok(end - from);
            }
            Ahead::End => return Ok(0),
        };
        let mut max = (limit - from).min(BATCH_MESSAGES as u64) as usize;
        if run.state == State::Open && !hold.is_zero() {
            let hold = i64::try_from(hold.as_nanos()).unwrap_or(i64::MAX);
            let latest = data.media.now().saturating_sub(hold);
            match old(reader, from, max, latest).map_err(|e| stream_fault(&account.stream, e))? {
                Some(0) => return Ok(0),
                Some(count) => max = count,
                None => {}
            }
        }
        reader.seek(from);
        let batch = match reader.next(max).map_err(|e| stream_fault(&account.stream, e))? {
            Stretch::Messages(batch) => batch,
            Stretch::Missing(missing) => {
                let end = missing.next.min(limit);
                let mut known = match missing.why {
                    Why::Retention => Known { members: end - from, ..Known::default() },
                    // Where the payloads are missing, the index still tells.
                    _ => known(run, reader, from, end).map_err(|e| stream_fault(&account.stream, e))?,
                };
                if let Error::Parent { folder, .. } = &missing.error {
                    known.origin = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
                }
                lose(account, gaps, end, known, reason_of(&missing));
                account.stand_at(end, &header);
                return Ok(end - from);
            }
        };
        if batch.is_empty() {
            reader.refresh().map_err(|e| stream_fault(&account.stream, e))?;
            // A sealed run was marked to its end: nobody writes what is missing of it now.
            if keeps || run.state != State::Sealed || reader.bounds().written || reader.end() > from {
                return Ok(0);
            }
            lose(account, gaps, limit, Known { members: limit - from, ..Known::default() }, CUT);
            return Ok(limit - from);
        }
        let next = batch.next();
        let mut members: Vec<Message<'_>> = Vec::with_capacity(batch.len());
        let mut unknown: Option<(u64, u64, u64)> = None;
        for message in batch.iter() {
            *uncommitted += message.payload.len() as u64;
            let time = header.clock.time_of(message.entry);
            if run.holds(time) {
                *newest = (*newest).max(time);
                members.push(message);
            } else if time < run.start {
                sink.before(at, &message, true);
            } else if header.clock != Clock::Epoch && message.entry.flags & store::flags::CLOCK != 0 {
                // It arrived before the time that it bears, perhaps in the run.
                let (first, _, count) = unknown.unwrap_or((message.sequence, 0, 0));
                unknown = Some((first, message.sequence, count + 1));
            }
        }
        aside.clear();
        if let Some(last) = members.last() {
            sink.write(at, &members, aside)?;
            // Not before: a sink without room is given them once more.
            members.iter().for_each(|message| content.add(message));
            account.counts.insert(LAST.into(), last.sequence + 1);
            let bytes: u64 = members.iter().map(|message| message.payload.len() as u64).sum();
            *account.counts.entry(BYTES.into()).or_default() += bytes;
        }
        let total = next - account.next;
        let given = members.len() as u64;
        let sum = content.sum(reader);
        // Not a count of messages.
        if account.done == 0 || account.counts.contains_key("content") {
            let all = account.counts.entry("content".into()).or_default();
            *all = all.wrapping_add(sum);
        }
        account.done += given - aside.len() as u64;
        let outside = total - given - unknown.map_or(0, |u| u.2);
        if let Some((first, last, count)) = unknown {
            add_gap(gaps, &Input { next: first, ..account.clone() }, last, Known::default(), "clock");
            *account.counts.entry("lost.clock".into()).or_default() += count;
        }
        if outside > 0 {
            *account.counts.entry("skipped.outside".into()).or_default() += outside;
        }
        for one in aside.iter() {
            *account.counts.entry(format!("aside.{}", one.reason)).or_default() += 1;
        }
        account.stand_at(next, &header);
        Ok(total)
    }

    /// Whether what no commit covers yet takes a quarter of a memory stream or more: its source may have to wait for the next
    /// commit. A segment is an eighth of such a stream, or less.
    pub fn holds_much(&self) -> bool {
        self.inputs.iter().any(|input| {
            let header = input.reader.header();
            header.level == Level::Memory && input.uncommitted >= header.segment_bytes * 2
        })
    }

    /// Makes what the sink has durable and commits it. `now` in ns since 1970 UTC.
    pub fn flush(&mut self, sink: &mut dyn Sink, now: i64) -> Result<(), Fault> {
        let state = sink.flush()?;
        self.commit(state, false, now)
    }

    /// Ends the work of a complete feed: the sink closes its product, the last commit says so.
    /// `account` is written into the product: the ledger of the run as JSON. The places of the feed stay until its commit
    /// is filed. The answer is the product as the commit has it.
    pub fn finish(&mut self, sink: &mut dyn Sink, account: &str, now: i64) -> Result<Value, Fault> {
        let mut product = sink.finish(account)?.json();
        product["content"] = json!(self.content());
        self.finished = true;
        self.commit(product.to_string(), true, now)?;
        Ok(product)
    }

    /// The hash of all messages that were given to the sink, hexadecimal: equal for two sinks that were given the same
    /// messages, in whatever order. None where an earlier version began.
    pub fn content(&self) -> Option<String> {
        let is_known = |account: &Input| account.counts.contains_key("content") || account.done == 0;
        let sum = self.accounts().map(|account| account.count("content")).fold(0, u64::wrapping_add);
        self.accounts().all(is_known).then(|| format!("{sum:016x}"))
    }

    /// Whether the streams still hold everything that was read, so that a sink that restarts loses nothing.
    pub fn has_all(&self) -> bool {
        self.inputs.iter().all(|input| input.reader.bounds().first <= input.account.first)
    }

    /// Restarts with a new sink: everything is read again from the beginning of the run. The caller calls `flush` next,
    /// so that nothing resumes from the state of the old sink.
    pub fn restart(&mut self) -> Result<(), Fault> {
        for FeedInput { reader, account, looked_back, .. } in &mut self.inputs {
            *looked_back = false;
            let first = beginning(&self.run, reader)?.min(account.first);
            account.stand_at(first, reader.header());
            (account.first, account.done, account.counts) = (first, 0, BTreeMap::new());
        }
        (self.newest, self.gaps) = (i64::MIN, Vec::new());
        Ok(())
    }

    /// Gives up a file that had more than the run: no account counts that. `now` in ns since 1970 UTC.
    pub fn give_up(&mut self, now: i64) -> Result<(), Fault> {
        self.restart()?;
        self.commit(String::new(), false, now)
    }

    fn commit(&mut self, state: String, finished: bool, now: i64) -> Result<(), Fault> {
        let Some(book) = &mut self.commits else { return Ok(()) };
        let mut inputs: Vec<Input> = self.inputs.iter().map(|i| i.account.clone()).collect();
        if let Some(first) = inputs.first_mut().filter(|_| self.newest != i64::MIN) {
            first.counts.insert(NEWEST.into(), self.newest as u64);
        }
        let commit = Commit {
            stage: self.sink.clone(),
            run: self.run.name.clone(),
            block: self.block,
            time: now,
            inputs,
            gaps: self.gaps.clone(),
            output_first: 0,
            output_next: 0,
            state,
            finished,
            totals: None,
        };
        let sequence = book.append(&commit)?;
        if !book.wait(sequence, COMMIT_PATIENCE)? {
            let name = commits_of_run(&self.sink, &self.run.name);
            return Err(not_written(format!("stream `{name}` is not recorded"), book.writer().trouble()));
        }
        self.block += 1;
        for input in &mut self.inputs {
            input.reader.commit(input.account.next);
            input.uncommitted = 0;
        }
        Ok(())
    }
}

/// Makes the places of a sink stand where a run begins, before its feed opens: from now on `wait` waits for them, and
/// what a drop policy takes is counted as lost.
pub fn hold(data: &Data, sink: &str, run: &Run, inputs: &[String]) -> Result<(), Fault> {
    for stream in inputs {
        let mut reader = data.reader_early(stream)?;
        let at = if reader.header().clock == Clock::Epoch {
            reader.time_range(run.start, run.stop).map_err(|e| stream_fault(stream, e))?.0
        } else {
            reader.bounds().count
        };
        data.hold(stream, &reader_name(sink, &run.name), at)?;
    }
    Ok(())
}

/// Key of the newest time given to the sink, among the counts of the first input (not a count of messages).
pub(crate) const NEWEST: &str = "newest";
/// Key of one past the last sequence given to the sink, among the counts of an input.
const LAST: &str = "last";

/// Key of the bytes of payload given to the sink, among the counts of an input: a stream in memory may have released
/// them since.
pub const BYTES: &str = "bytes";

/// What is in streams of a run that is not sealed: names, and the ranges in which its members are until now. A range begins
/// with what retention has taken, where a sink has seen that it was of the run.
pub fn until_now(data: &Data, run: &Run, streams: &[String]) -> Result<Vec<Range>, Fault> {
    let known = commits::of_open_run(data, &run.name)?;
    let mut ranges = Vec::new();
    for stream in streams {
        let mut reader = data.reader(stream, ReadOptions::default())?;
        let header = reader.header().clone();
        let found = beginning(run, &mut reader)?;
        let first = seen(&known, stream, &header.uuid).map_or(found, |seen| seen.min(found));
        let next = reader.end().max(first);
        ranges.push(Range {
            stream: stream.clone(),
            uuid: header.uuid,
            epoch: header.epoch_of(next.saturating_sub(1)),
            first,
            next,
            by_arrival: header.clock != Clock::Epoch,
            ended: false,
        });
    }
    Ok(ranges)
}

/// How many of the next messages, `max` at most, have a time or an arrival before `latest`; `None` where the index
/// does not say, or has no next message. The payloads of messages that are held are not read again and again.
fn old(reader: &mut Reader, from: u64, max: usize, latest: i64) -> store::Result<Option<usize>> {
    let clock = reader.header().clock;
    Ok(match reader.next_entries(from, max)? {
        Stretch::Messages([]) | Stretch::Missing(_) => None,
        Stretch::Messages(entries) => {
            let is_old = |entry: &&store::Entry| clock.time_of(entry).min(entry.arrival_time) < latest;
            Some(entries.iter().take_while(is_old).count())
        }
    })
}

/// Where the members of the run may begin: the sealed range, else what the streams hold now. Where an open run began is
/// no answer: messages from before its start came after it, and may be gone. The seal says which members were deleted.
fn beginning(run: &Run, reader: &mut Reader) -> Result<u64, Fault> {
    let name = reader.header().name.clone();
    let sealed = run.streams.iter().filter(|r| run.state == State::Sealed && r.stream == name).map(|r| r.first).min();
    if let Some(first) = sealed {
        return Ok(first);
    }
    if reader.header().clock != Clock::Epoch {
        return Ok(reader.bounds().first);
    }
    reader.time_range(run.start, run.stop).map(|r| r.0).map_err(|e| stream_fault(&name, e))
}

/// Shows messages from before a run, those before `next`, from the newest on, as long as `see` says that more are wanted (asked
/// first of all without one). What cannot be read is passed over: they are no members, and nobody counts on them.
fn look_back(run: &Run, reader: &mut Reader, next: u64, see: &mut dyn FnMut(Option<&Message<'_>>) -> bool) {
    let clock = reader.header().clock;
    let least = next.saturating_sub(BEFORE_MESSAGES).max(reader.bounds().first);
    let mut end = next;
    let mut goes_on = see(None);
    while goes_on && end > least {
        let begin = end.saturating_sub(BATCH_MESSAGES as u64).max(least);
        let (mut at, mut wanted) = (begin, Vec::new());
        while at < end {
            match reader.next_entries(at, (end - at) as usize) {
                Ok(Stretch::Messages([])) => break,
                Ok(Stretch::Messages(entries)) => {
                    let before = entries.iter().zip(at..).filter(|(entry, _)| clock.time_of(entry) < run.start);
                    wanted.extend(before.map(|(_, sequence)| sequence));
                    at += entries.len() as u64;
                }
                Ok(Stretch::Missing(missing)) => at = missing.next,
                Err(_) => return,
            }
        }
        for sequence in wanted.into_iter().rev() {
            reader.seek(sequence);
            let read = reader.read(1);
            if let Some(message) = read.as_ref().ok().and_then(|batch| batch.get(sequence)) {
                goes_on = see(Some(&message));
            }
            if !goes_on {
                return;
            }
        }
        end = begin;
    }
}

/// Where a feed goes on in a stream after a restart. What was read is done, also where a recovery has cut it since: a run
/// that is not sealed goes on where the epoch of the commit ends now, with the messages that came in place of those.
fn gone_on(run: &Run, known: &Input, header: &store::Header) -> Input {
    let mut account = known.clone();
    if run.state != State::Sealed && account.step_back(header) {
        let end = account.next;
        account.counts.entry(LAST.into()).and_modify(|last| *last = end.min(*last));
    }
    account
}

/// The next part of a run in one stream, from the position of an input on.
enum Ahead {
    /// Messages that are there or may come, up to this sequence.
    Kept(u64),
    /// Sealed messages that a recovery has cut, up to this sequence: they will not come.
    Cut(u64),
    /// Nothing.
    End,
}

fn ahead(run: &Run, header: &store::Header, account: &Input) -> Ahead {
    if run.state != State::Sealed {
        return Ahead::Kept(u64::MAX);
    }
    for range in run.streams.iter().filter(|r| r.stream == account.stream) {
        let kept = range.kept(header);
        if account.next < kept {
            return Ahead::Kept(kept);
        }
        if account.next < range.next {
            return Ahead::Cut(range.next);
        }
    }
    Ahead::End
}

/// The known properties of lost messages.
struct Known {
    /// How many of them are, or may be, members of the run.
    members: u64,
    /// Their origin, where it is only one.
    origin: String,
    /// Their first time.
    from: i64,
    /// Their last time.
    to: i64,
}

impl Default for Known {
    fn default() -> Self {
        Self { members: 0, origin: String::new(), from: i64::MIN, to: i64::MAX }
    }
}

/// The members of a run in `first..end`, from the index. An entry that does not verify may be a member.
fn known(run: &Run, reader: &mut Reader, first: u64, end: u64) -> store::Result<Known> {
    let clock = reader.header().clock;
    let (mut members, mut rows, mut times) = (0, Vec::new(), (i64::MAX, i64::MIN));
    let mut see = |entries: &[store::Entry]| {
        for entry in entries {
            let time = clock.time_of(entry);
            if run.holds(time) {
                members += 1;
                times = (times.0.min(time), times.1.max(time));
                if rows.len() < 2 && !rows.contains(&entry.origin) {
                    rows.push(entry.origin);
                }
            }
        }
    };
    let lost = reader.walk(first, end, &mut see)?.lost();
    if members == 0 || lost > 0 {
        return Ok(Known { members: members + lost, ..Known::default() });
    }
    let origin = if let [row] = rows[..] { reader.origin(row).to_owned() } else { String::new() };
    Ok(Known { members, origin, from: times.0, to: times.1 })
}

/// Counts `account.next..end` as lost, as far as these are members.
fn lose(account: &mut Input, gaps: &mut Vec<Gap>, end: u64, known: Known, reason: &str) {
    let outside = end - account.next - known.members;
    if known.members > 0 {
        *account.counts.entry(format!("lost.{reason}")).or_default() += known.members;
        add_gap(gaps, account, end - 1, known, reason);
    }
    if outside > 0 {
        *account.counts.entry("skipped.outside".into()).or_default() += outside;
    }
    account.next = end;
}

/// Gaps that a commit lists for one input.
const GAPS_MAX: usize = 1000;

/// Adds what is missing from the place of an input up to `last`. Neighbours of one reason become one gap; where a
/// commit would list too many, the newest one reaches on: the counts alone say how many are missing.
fn add_gap(gaps: &mut Vec<Gap>, account: &Input, last: u64, known: Known, reason: &str) {
    let Known { origin, from, to, .. } = known;
    let listed = gaps.iter().filter(|g| g.stream == account.stream).count();
    let newest = gaps.iter_mut().rev().find(|g| g.stream == account.stream && g.reason == reason);
    match newest {
        Some(gap) if gap.last.checked_add(1) == Some(account.next) || listed >= GAPS_MAX => {
            (gap.last, gap.from, gap.to) = (last, gap.from.min(from), gap.to.max(to));
            if gap.origin != origin {
                gap.origin.clear();
            }
        }
        _ => {
            let gap = Gap::sequences(&account.stream, account.next..=last, reason);
            gaps.push(Gap { origin, from, to, ..gap });
        }
    }
}

/// Where the sealed run ends in this stream; none while it is not sealed.
fn sealed_end(run: &Run, account: &Input) -> Option<u64> {
    let ranges = run.streams.iter().filter(|r| r.stream == account.stream);
    (run.state == State::Sealed).then(|| ranges.map(|r| r.next).max().unwrap_or(0))
}
