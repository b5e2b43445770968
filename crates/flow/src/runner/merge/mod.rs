//! Merges: many streams become one view, in the order (key, input, sequence). The key is the source time (decision
//! 0009) or the number of the message (decision 0010).
//!
//! Constraints: a step does a bounded amount of work and waits for nothing, not even the disk. A message costs one
//! access to its entry, an element of its slice's sort, and `push_view`: no payload, no lock, no allocation.
//!
//! Bytes: `NAME` and `NAME.aside` (views that only this merge writes), and `NAME.commits`: a commit (`bpcm`) per slice,
//! written before the slice, with its `Plan` as state.
//!
//! Failure behaviour: a merge that was killed anywhere finishes the slice of its last commit behind the newest message
//! of the output: no message appears twice, none is withdrawn. Retired and damaged messages are counted. Without room
//! it keeps its state and retries at the next step.

mod again;
mod input;
mod number;
mod pace;
mod plan;
mod resume;
mod slices;

use crate::book::{Book, Keeps, newest_commit};
use crate::commits::commits_of;
use crate::cuts::Cuts;
use crate::data::{Data, aside_of, stream_fault, unwritten};
use crate::limits::{BOOK_HISTORY_BYTES, BOOK_LIVE_BYTES};
use crate::records::{Commit, WAITS};
use crate::{Fault, Passes, Step, StreamView};
use input::{By, Input, Stray, Taken};
use number::Numbers;
use pace::Pace;
use plan::{Plan, Share};
pub use slices::TimeSlices;
use std::collections::{BTreeMap, VecDeque};
use store::{Error, Level, Options, Parent, WhenFull, Writer};

/// Streams of one merge: each has a place in the table of parents for each of its epochs, and a row in each commit.
pub const INPUTS_MAX: usize = 1024;
/// Entries that one step looks at: some milliseconds.
const LOOK_MAX: usize = 1 << 16;
/// Messages of one slice in memory: what is sorted stays in the caches.
const SLICE_MESSAGES: u64 = 1 << 14;
/// Messages of one slice on disk, where each waits for the medium twice.
const SLICE_MESSAGES_DISK: u64 = 1 << 20;
/// Messages of one slice by number: its commit names those of which an id has too many.
const SLICE_MESSAGES_NUMBER: u64 = 1 << 13;
/// Strays of one input that are kept until a commit speaks of them: then it is looked at no further.
const STRAYS_MAX: usize = 1 << 14;
/// Strays alone wait so long for a commit, ns: a late input shall not write one a message.
const STRAYS_PAUSE: i64 = 100_000_000;
/// Gaps that a commit lists: beyond it the counts alone say how many are missing.
const GAPS_MAX: usize = 1000;
/// Messages that are pushed between two looks at the room.
const PUSH: usize = 1 << 17;
/// Moments of which it is known what had come: four times what an ordinary wait needs. While a slot holds something, no
/// more are added.
const SEEN_MAX: usize = 4096;
/// The longest pause between two steps, ns: a message that comes meanwhile waits so long.
const PAUSE_MAX: i64 = 5_000_000;
/// The shortest, ns.
const PAUSE_MIN: i64 = 1_000_000;

/// A stream that goes into a merge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergeInput {
    /// Its name.
    pub stream: String,
    /// How long its messages, and the whole of it, are waited for, ns.
    pub wait: i64,
    /// By time: the messages that are merged; all others are skipped. None: all are merged.
    pub slices: Option<TimeSlices>,
    /// By time: its messages are waited for until its stage reports a later frontier, or has brought one that is newer
    /// by more than `wait`, however long that takes.
    pub by_frontier: bool,
    /// By time, of a mirror: a stage that has lost its data folder makes the same messages again. The merge skips those
    /// that the mirror had before.
    pub is_made_again: bool,
}

/// How a merge works.
#[derive(Clone, Debug)]
pub struct MergeOptions {
    /// How the output is kept.
    pub stream: Options,
    /// By what it orders.
    pub by: MergeBy,
}

/// By what a merge orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeBy {
    /// Source time.
    Time {
        /// Least length of a slice, ns of source time.
        slice: i64,
        /// A source time further than this beyond arrival is not believed, ns.
        ahead_max: i64,
    },
    /// The number that its maker gave a message.
    Number {
        /// So many messages make an id whole.
        parts: u32,
        /// So many ids may wait.
        cache: u64,
    },
}

/// By number: ids of which nothing came, and of which not all came by how many parts did not, as a commit says. None by
/// time, or of another stage.
pub(crate) fn missing(commit: &Commit) -> Option<(u64, BTreeMap<u32, u64>)> {
    let numbers = Plan::read(&commit.state).ok()?.numbers?;
    Some((numbers.missing, numbers.incomplete))
}

/// The state of an input's source, from before the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamState {
    /// It has brought everything up to this time, ns since 1970 UTC.
    pub frontier: i64,
    /// It has come to its end.
    pub ended: bool,
    /// Of a worker: blocks of its inputs that it has begun, and of these those before which all are in its stream.
    pub begun: u64,
    /// See `begun`.
    pub done: u64,
    /// See [`StreamView::is_blocked`].
    pub is_blocked: bool,
}

impl UpstreamState {
    /// Nothing is known.
    pub const NOTHING: Self = Self { frontier: i64::MIN, ended: false, begun: 0, done: 0, is_blocked: false };
}

impl From<&StreamView> for UpstreamState {
    fn from(view: &StreamView) -> Self {
        let StreamView { frontier, ended, begun, done, is_blocked, .. } = *view;
        Self { frontier, ended, begun, done, is_blocked }
    }
}

/// The largest key that was known at a moment.
struct Seen {
    /// ns of a clock that is never set.
    clock: i64,
    key: i64,
    /// What each input had begun by then ([`UpstreamState::begun`]); by time, or where none is of a worker, empty.
    begun: Vec<u64>,
}

impl Seen {
    /// All that inputs had begun is in their streams: an id that is missing is not with a slot.
    fn is_done(&self, upstream: &[UpstreamState]) -> bool {
        self.begun.iter().zip(upstream).all(|(begun, upstream)| upstream.done >= *begun)
    }
}

/// A slice on its way: taken from the inputs, not yet in the output.
struct Slice {
    /// The commit that speaks of it.
    commit: SliceCommit,
    /// How many of `order` are in the output.
    shown: usize,
    /// Strays by place of their input, and how many are aside.
    strays: Vec<(u32, Stray)>,
    aside: usize,
}

/// The commit of a slice: it is in the book before anything of the slice is in the output.
enum SliceCommit {
    /// There was no room for it yet.
    Made(Commit),
    /// It is in the book, with this sequence.
    Written(u64),
}

/// A merge at work.
pub struct Merge {
    data: Data,
    name: String,
    /// Least length of a slice, in keys.
    grid: i64,
    by: By,
    out: Writer,
    aside: Writer,
    book: Book,
    /// Number of the next commit.
    block: u64,
    cuts: Cuts,
    inputs: Vec<Input>,
    /// The input whose writer was looked for last.
    looked_at: usize,
    /// Inputs in the output and aside, those of now first.
    places: Vec<(Parent, Parent)>,
    /// Where those that are inputs no more are not needed any more.
    former: Vec<u64>,
    /// What has a smaller key has been dealt with: it comes late.
    from: i64,
    /// The output is complete up to this time, ns since 1970 UTC.
    frontier: i64,
    slice: Option<Slice>,
    taken: Taken,
    /// Indexes into `taken` in the order of the output.
    order: Vec<u32>,
    words: Vec<u64>,
    /// Largest key of all inputs, by the clock.
    seen: VecDeque<Seen>,
    pace: Pace,
    committed_at: i64,
    /// The time up to which inputs were complete at the last look, and since when.
    reached: (i64, i64),
    moved_at: i64,
    ended: bool,
    has_other_slices: bool,
    no_room: Option<Fault>,
    /// A source of it has no room for its next message.
    is_blocked: bool,
}

impl Merge {
    /// Opens the output `name` and all that belongs to it, and goes on where the last commit stands.
    pub fn open(data: &Data, name: &str, inputs: &[MergeInput], options: &MergeOptions) -> Result<Self, Fault> {
        if inputs.is_empty() || inputs.len() > INPUTS_MAX {
            let cause = format!("it has {} inputs, the limit is {INPUTS_MAX}", inputs.len());
            return Err(Fault::new(format!("cannot start merge `{name}`"), cause));
        }
        let book_name = commits_of(name);
        let book = Book::open_settled(data, &book_name, Keeps::Newest(BOOK_HISTORY_BYTES))?;
        let last = newest_commit(data, &book_name, &mut |_| true)?;
        let plan = last.as_ref().map(|commit| Plan::read(&commit.state)).transpose()?;
        let longest = inputs.iter().map(|input| input.wait).max().unwrap_or(0);
        let (grid, by) = match options.by {
            MergeBy::Time { slice, ahead_max } => (slice.max(1), By::Time(ahead_max)),
            MergeBy::Number { parts, cache } => (1, By::Number(Numbers::new(parts, cache, longest))),
        };
        let mut out = data.writer(name, &options.stream)?;
        let mut aside = data.writer(
            &aside_of(name),
            &Options {
                live_bytes: BOOK_LIVE_BYTES,
                when_full: WhenFull::Wait,
                retain_bytes: (options.stream.level == Level::Disk).then_some(BOOK_HISTORY_BYTES),
                ..options.stream.clone()
            },
        )?;
        let early = options.stream.level == Level::Memory;
        let (mut open, mut places) = (Vec::new(), Vec::new());
        for input in inputs {
            // The place first: from now on the input keeps what may be pointed to.
            places.push(places_of(&mut out, &mut aside, name, &input.stream)?);
            open.push(Input::open(data, input, early, &by)?);
        }
        let mut merge = Self {
            data: data.clone(),
            name: name.to_string(),
            grid,
            by,
            out,
            aside,
            block: last.as_ref().map_or(0, |c| c.block + 1),
            cuts: Cuts::default(),
            book,
            inputs: open,
            looked_at: 0,
            places,
            from: i64::MIN,
            frontier: i64::MIN,
            slice: None,
            taken: Taken::default(),
            order: Vec::new(),
            words: Vec::new(),
            former: Vec::new(),
            seen: VecDeque::new(),
            pace: Pace::default(),
            committed_at: i64::MIN,
            reached: (i64::MIN, i64::MIN),
            moved_at: i64::MIN,
            ended: false,
            has_other_slices: false,
            no_room: None,
            is_blocked: false,
        };
        match (last, plan) {
            (Some(mut commit), Some(plan)) => {
                if plan.output == merge.out.header().uuid {
                    let slice = commit.output_next - commit.output_first;
                    merge.cuts = Cuts::open(&mut merge.book, &mut commit, &merge.out, slice, data.media.now())?;
                    merge.block = commit.block + 1;
                }
                merge.resume(&commit, &plan)?;
            }
            // Nobody knows what of the inputs is in it.
            _ if merge.out.next_sequence() + merge.aside.next_sequence() > 0 => {
                let what = format!("cannot resume merge `{name}`");
                return Err(Fault::new(what, format!("it has messages, but `{book_name}` has no commit"))
                    .hint(format!("restore the book, or move `{name}` away to start a new stream")));
            }
            _ => {}
        }
        merge.keep_former()?;
        Ok(merge)
    }

    /// Brings what is due into the output: a bounded amount of work. `now` in ns since 1970 UTC, `clock` in ns of a clock
    /// that is never set; `upstream` of each input, in the order of opening.
    pub fn step(&mut self, now: i64, clock: i64, upstream: &[UpstreamState]) -> Result<Step, Fault> {
        self.no_room = None;
        self.is_blocked = upstream.iter().any(|upstream| upstream.is_blocked);
        let mut due = self.show()?;
        self.inputs.iter_mut().zip(upstream).try_for_each(|(input, upstream)| input.attach(*upstream))?;
        // Between two slices, of which the next may be on its way when this step ends.
        if matches!(self.by, By::Number(_)) {
            self.listen(upstream);
            // What an input has begun is known later than what it shows: it goes with the keys of the look before.
            self.remember(clock, upstream);
        }
        self.inputs.iter_mut().zip(upstream).for_each(|(input, upstream)| input.hear(upstream.frontier));
        // One a step: that of many inputs costs nothing.
        self.looked_at = (self.looked_at + 1) % self.inputs.len().max(1);
        self.inputs.get_mut(self.looked_at).map_or(Ok(()), |input| input.look_for_writer(clock))?;
        let more = self.read_inputs()?;
        if matches!(self.by, By::Time(_)) {
            self.remember(clock, &[]);
        }
        let longest = self.longest();
        let time = self.pace.step(now, clock, longest);
        if self.slice.is_none() && self.is_safe() {
            self.move_on(clock)?;
            due = self.take_slice((now, time, clock), upstream)?;
            due |= self.show()?;
        }
        let is_settled = |i: &Input| i.waiting() == 0 && i.strays.is_empty() && !i.has_skipped();
        let settled = self.slice.is_none() && self.inputs.iter().all(is_settled);
        let is_over =
            |(i, input): (usize, &Input)| input.is_over(upstream.get(i).copied().unwrap_or(UpstreamState::NOTHING));
        self.ended = settled && self.inputs.iter().enumerate().all(is_over);
        Ok(if (more || due) && self.no_room.is_none() {
            Step::Again
        } else {
            Step::At(now.saturating_add(self.grid.clamp(PAUSE_MIN, PAUSE_MAX)))
        })
    }

    /// Looks at the inputs, those that are behind first. True if there is more than one step may look at.
    fn read_inputs(&mut self) -> Result<bool, Fault> {
        let mut left = LOOK_MAX;
        // Once round, as far as there is something: most of the time that is all.
        let mut open: Vec<usize> = (0..self.inputs.len()).filter(|&i| !self.inputs[i].has_seen_all()).collect();
        while left > 0 && !open.is_empty() {
            let Some(at) = (0..open.len()).min_by_key(|&at| self.inputs[open[at]].newest) else { break };
            let input = &mut self.inputs[open[at]];
            let before = input.account.next;
            let is_full = input.strays.len() >= STRAYS_MAX;
            let is_read = match input.is_made_again && !is_full {
                true => {
                    let most = input.up_to_again(&self.data, left, self.from, &mut self.by)?;
                    input.read_new(most, self.from, &mut self.by)?
                }
                false => !is_full && input.read_new(left, self.from, &mut self.by)?,
            };
            if !is_read || input.has_seen_all() {
                open.swap_remove(at);
            }
            left = left.saturating_sub((input.account.next - before) as usize);
        }
        Ok(!open.is_empty())
    }

    /// By number: learns up to which time each input is in the output. A time of its source counts once the output has
    /// all messages before the end that the stream had then.
    fn listen(&mut self, upstream: &[UpstreamState]) {
        let is_shown = self.slice.is_none();
        for (input, upstream) in self.inputs.iter_mut().zip(upstream) {
            input.listen(*upstream, is_shown);
        }
        self.frontier = self.inputs.iter().map(|input| input.through).min().unwrap_or(i64::MIN);
    }

    /// Keeps what was the largest key when: an input that brings nothing is passed over by it.
    fn remember(&mut self, clock: i64, upstream: &[UpstreamState]) {
        let newest = self.inputs.iter().map(|i| i.newest).max().unwrap_or(i64::MIN);
        let longest = self.longest();
        // A worker that began anew counts its blocks anew.
        let is_less = |last: &Seen| last.begun.iter().zip(upstream).any(|(begun, upstream)| upstream.begun < *begun);
        if self.seen.back().is_some_and(is_less) {
            for seen in &mut self.seen {
                seen.begun.iter_mut().zip(upstream).for_each(|(begun, upstream)| *begun = upstream.begun.min(*begun));
            }
        }
        let last = self.seen.back().map_or((i64::MIN, i64::MIN), |seen| (seen.clock, seen.key));
        // A thousandth of the wait is no matter, and the list stays short.
        let is_due = newest > last.1 && clock >= last.0.saturating_add(longest / 1000);
        if is_due && self.seen.len() < SEEN_MAX {
            let is_of_worker = upstream.iter().any(|upstream| upstream.begun > 0);
            let begun =
                if is_of_worker { upstream.iter().map(|upstream| upstream.begun).collect() } else { Vec::new() };
            self.seen.push_back(Seen { clock, key: newest, begun });
        }
        let is_over = |seen: &Seen| seen.clock <= clock.saturating_sub(longest) && seen.is_done(upstream);
        while self.seen.get(1).is_some_and(is_over) {
            self.seen.pop_front();
        }
    }

    /// How long the input is waited for that is waited for longest, ns.
    fn longest(&self) -> i64 {
        self.inputs.iter().map(|i| i.wait).max().unwrap_or(0)
    }

    /// The time up to which each input has brought all, or has been waited for long enough:
    /// * its newest time, or the frontier of its source where all of it has been looked at, less its wait;
    /// * where all of it has been looked at: behind what was the newest time of all inputs a wait ago, but no later than a
    ///   wait before `time`, which goes on though the machine's clock is set;
    /// * for ever, once its source has ended.
    ///
    /// An input by frontier is waited for as long as that takes.
    fn reach(&self, time: i64, clock: i64, upstream: &[UpstreamState], ahead_max: i64) -> i64 {
        let reach = (0..self.inputs.len()).map(|i| self.reach_of(i, (time, clock), upstream, ahead_max)).min();
        self.pace.limit(reach.unwrap_or(i64::MIN), self.longest())
    }

    fn reach_of(&self, i: usize, (time, clock): (i64, i64), upstream: &[UpstreamState], ahead_max: i64) -> i64 {
        let passed = self.passed(clock.saturating_sub(self.inputs[i].wait), &[]);
        let upstream = upstream.get(i).copied().unwrap_or(UpstreamState::NOTHING);
        self.inputs[i].reach(upstream, time, passed, ahead_max)
    }

    /// Whether the output can be complete up to this time, which is within a slice: stages of other hosts have reported
    /// it, and the slices of the other inputs have passed it.
    fn is_promised(&self, to: i64, now: (i64, i64), upstream: &[UpstreamState], ahead_max: i64) -> bool {
        let passed = |i| self.reach_of(i, now, upstream, ahead_max).div_euclid(self.grid).saturating_mul(self.grid);
        let is_promised = |i: usize| match self.inputs[i].promise() {
            Some(promise) => promise >= to,
            None => passed(i) >= to,
        };
        self.inputs.iter().any(|input| input.promise().is_some()) && (0..self.inputs.len()).all(is_promised)
    }

    /// Behind the largest key that was known at a moment, and before which no slot of an input holds anything.
    fn passed(&self, clock: i64, upstream: &[UpstreamState]) -> i64 {
        let known = self.seen.partition_point(|seen| seen.clock <= clock && seen.is_done(upstream));
        known.checked_sub(1).map_or(i64::MIN, |at| self.seen[at].key.saturating_add(1))
    }

    /// Takes the next slice, if one is due. True if another may be. The times are those of the machine, of the merge
    /// (`Pace`), and of a clock that is never set.
    fn take_slice(&mut self, (now, time, clock): (i64, i64, i64), upstream: &[UpstreamState]) -> Result<bool, Fault> {
        let grid = self.grid;
        let most = match self.by {
            By::Number(_) => SLICE_MESSAGES_NUMBER,
            By::Time(_) if self.is_on_disk() => SLICE_MESSAGES_DISK,
            By::Time(_) => SLICE_MESSAGES,
        };
        // If nothing newer is waited for, all that is there is the slice.
        let newest = self.inputs.iter().map(|i| i.newest).max().unwrap_or(i64::MIN).saturating_add(1);
        let (to, all) = match &self.by {
            By::Time(ahead_max) => {
                let reach = self.reach(time, clock, upstream, *ahead_max);
                if self.reached.0 != reach {
                    self.reached = (reach, clock);
                }
                let is_still = clock.saturating_sub(self.reached.1) >= STRAYS_PAUSE;
                let to = match reach {
                    i64::MAX => newest,
                    to if to == newest => newest,
                    // A host that is away brings no later one.
                    to if is_still && self.is_promised(to, (time, clock), upstream, *ahead_max) => to,
                    to => to.div_euclid(grid).saturating_mul(grid),
                };
                (to, to)
            }
            By::Number(numbers) => {
                let is_over =
                    |(i, input): (usize, &Input)| upstream.get(i).is_some_and(|h| h.ended) && input.is_at_end();
                let over = self.inputs.iter().enumerate().all(is_over);
                let passed = if over { i64::MAX } else { self.passed(clock.saturating_sub(self.longest()), upstream) };
                (numbers.reach(self.from, passed, most), numbers.reach(self.from, passed, u64::MAX))
            }
        };
        let (mut to, all) = (to.max(self.from), all.max(self.from));
        let oldest = self.inputs.iter().filter_map(Input::oldest).min().unwrap_or(i64::MAX);
        let strays: usize = self.inputs.iter().map(|i| i.strays.len()).sum();
        let strays_due = strays >= STRAYS_MAX || clock >= self.committed_at.saturating_add(STRAYS_PAUSE);
        let lost = self.inputs.iter().any(|i| !i.gaps.is_empty());
        let skipped = self.inputs.iter().any(Input::has_skipped);
        if oldest >= to && !((strays > 0 || lost || skipped) && strays_due) {
            self.stand(to);
            return Ok(false);
        }
        while matches!(self.by, By::Time(_)) && self.inputs.iter().map(|i| i.waiting_before(to)).sum::<u64>() > most {
            // Half as long, as long as that is a slice.
            let half = oldest.saturating_add(to.saturating_sub(oldest) / 2).div_euclid(grid).saturating_mul(grid);
            if half <= oldest || half >= to {
                break;
            }
            to = half;
        }
        let span = (self.from, to);
        self.taken.clear();
        let mut shares = Vec::with_capacity(self.inputs.len());
        for (i, input) in self.inputs.iter_mut().enumerate() {
            let (low, before) = (input.low(), input.before);
            let took = input.take(i as u32, span, &self.by, &mut self.taken)?;
            let low = input.still_there(low);
            input.course.forget(low);
            let (strays, course) = (input.strays.len() as u64, input.course.clone());
            shares.push(Share {
                low,
                before,
                took,
                strays,
                surplus: Vec::new(),
                course,
                slices: input.slices,
                again: input.again.clone(),
            });
        }
        self.sort();
        let mut kept = Vec::with_capacity(strays);
        let mut gaps = self.cuts.repeated();
        if let By::Number(numbers) = &self.by {
            let taken = &self.taken;
            numbers.thin(&mut self.order, &taken.keys, |at| {
                let ((input, sequence), entry) = (taken.of[at as usize], taken.entries[at as usize]);
                kept.push((input, Stray { sequence, entry }));
            });
        }
        for (input, stray) in &kept {
            let share = &mut shares[*input as usize];
            share.surplus.push(stray.sequence);
            (share.took, share.strays) = (share.took - 1, share.strays + 1);
            *self.inputs[*input as usize].account.counts.entry("aside.duplicate".into()).or_default() += 1;
        }
        shares.iter_mut().for_each(|share| share.surplus.sort_unstable());
        for (i, input) in self.inputs.iter_mut().enumerate() {
            for stray in std::mem::take(&mut input.strays) {
                let reason = input.reason(&stray, &self.by);
                *input.account.counts.entry(reason.into()).or_default() += 1;
                kept.push((i as u32, stray));
            }
        }
        if let By::Number(numbers) = &mut self.by {
            // By input and sequence, so that a restart knows which of them are aside.
            kept.sort_unstable_by_key(|(input, stray)| (*input, stray.sequence));
            let keys = self.order.iter().map(|&at| self.taken.keys[at as usize]);
            let found = numbers.missing(&self.name, span, keys);
            numbers.missing += found.missing;
            for (without, count) in found.incomplete {
                *numbers.incomplete.entry(without).or_default() += count;
            }
            gaps.extend(found.gaps);
        }
        let (ahead_max, numbers) = match &self.by {
            By::Time(ahead_max) => (Some(*ahead_max), None),
            By::Number(numbers) => (None, Some(numbers.without_ids())),
        };
        let aside = (self.aside.next_sequence(), self.aside.next_sequence() + kept.len() as u64);
        let plan = Plan { output: self.out.header().uuid, from: span.0, to, ahead_max, numbers, aside, shares };
        for (i, input) in self.inputs.iter_mut().enumerate() {
            input.account.done += plan.shares[i].took;
            let waiting = input.waiting();
            input.account.set_count(WAITS, waiting);
            input.before = input.account.next;
            gaps.append(&mut input.gaps);
        }
        gaps.truncate(GAPS_MAX);
        let output_first = self.out.next_sequence();
        let commit = Commit {
            stage: self.name.clone(),
            run: String::new(),
            block: self.block,
            time: now,
            inputs: self.inputs.iter().map(|i| i.account.clone()).collect(),
            gaps,
            output_first,
            output_next: output_first + self.order.len() as u64,
            state: plan.write()?,
            finished: false,
            totals: None,
        };
        self.slice = Some(Slice { commit: SliceCommit::Made(commit), shown: 0, strays: kept, aside: 0 });
        self.from = to;
        if let By::Number(numbers) = &mut self.by {
            numbers.forget(to);
        }
        self.committed_at = clock;
        Ok(to < all && !self.is_on_disk())
    }

    /// All below `to` is in the output.
    fn stand(&mut self, to: i64) {
        self.from = to;
        match &mut self.by {
            By::Time(_) => self.frontier = to,
            By::Number(numbers) => numbers.forget(to),
        }
    }

    /// Brings what was taken into the order (key, input, sequence). It lies in the order (input, sequence).
    fn sort(&mut self) {
        let keys = &self.taken.keys;
        let oldest = keys.iter().copied().min().unwrap_or(0);
        let newest = keys.iter().copied().max().unwrap_or(0);
        let bits = usize::BITS - keys.len().leading_zeros();
        self.order.clear();
        if (newest.wrapping_sub(oldest) as u64).leading_zeros() >= bits {
            // Key and index in one word.
            let word = |(i, key): (usize, &i64)| (key.wrapping_sub(oldest) as u64) << bits | i as u64;
            self.words.clear();
            self.words.extend(keys.iter().enumerate().map(word));
            self.words.sort_unstable();
            let mask = (1u64 << bits) - 1;
            self.order.extend(self.words.iter().map(|word| (word & mask) as u32));
        } else {
            self.order.extend(0..keys.len() as u32);
            self.order.sort_by_key(|&i| keys[i as usize]);
        }
    }

    fn is_on_disk(&self) -> bool {
        self.out.header().level == Level::Disk
    }

    /// All that is in the output and aside is as safe as the output's level promises.
    fn is_safe(&self) -> bool {
        !self.is_on_disk()
            || self.out.mark(Level::Disk) >= self.out.next_sequence()
                && self.aside.mark(Level::Disk) >= self.aside.next_sequence()
    }

    /// Writes the commit of the slice that is on its way and, once it is safe, the slice. True if more of it can be shown
    /// at once.
    fn show(&mut self) -> Result<bool, Fault> {
        let Some(slice) = &mut self.slice else { return Ok(false) };
        let written = match &slice.commit {
            SliceCommit::Written(written) => *written,
            SliceCommit::Made(commit) => match self.book.append(commit) {
                Ok(sequence) => {
                    self.block += 1;
                    slice.commit = SliceCommit::Written(sequence);
                    sequence
                }
                Err(fault) if fault.passes == Passes::WithRoom => {
                    self.no_room = Some(fault);
                    return Ok(false);
                }
                Err(fault) => return Err(fault),
            },
        };
        // On disk nothing may be in the output that no commit speaks of after a power cut.
        if self.out.header().level == Level::Disk && !self.book.is_safe(written) {
            return Ok(false);
        }
        // Just after a start the mark of an input may be behind what was taken.
        if !self.inputs.iter().all(Input::is_marked) {
            return Ok(false);
        }
        let end = self.order.len().min(slice.shown.saturating_add(PUSH));
        let (shown, full) = push(&mut self.out, &self.order[slice.shown..end], &self.taken, &self.places);
        slice.shown += shown;
        if let Some(e) = full {
            self.no_room = Some(refused(&self.name, e)?);
            return Ok(false);
        }
        while let Some((input, Stray { sequence, entry })) = slice.strays.get(slice.aside) {
            if let Err(e) = self.aside.push_view(self.places[*input as usize].1, *sequence, entry) {
                self.aside.publish();
                self.no_room = Some(refused(&aside_of(&self.name), e)?);
                return Ok(false);
            }
            slice.aside += 1;
        }
        self.aside.publish();
        if slice.shown < self.order.len() {
            return Ok(true);
        }
        self.slice = None;
        self.stand(self.from);
        Ok(false)
    }

    /// Moves the positions in the inputs behind what is in the output, all of which is safe, and releases messages
    /// where inputs need room.
    fn move_on(&mut self, clock: i64) -> Result<(), Fault> {
        // Each position that moves is a look at all of them: not more often than that is worth.
        let pause = (self.places.len() * self.places.len()) as i64 * 10_000;
        if (self.moved_at..self.moved_at.saturating_add(pause)).contains(&clock) {
            return Ok(());
        }
        self.moved_at = clock;
        for (i, (out, aside)) in self.places.iter().enumerate() {
            let low = self.inputs.get(i).map(Input::low).or_else(|| self.former.get(i - self.inputs.len()).copied());
            let low = low.unwrap_or(0);
            self.out.passed(*out, low).map_err(|e| stream_fault(&self.name, e))?;
            self.aside.passed(*aside, low).map_err(|e| stream_fault(&aside_of(&self.name), e))?;
        }
        self.out.relieve().map_err(|e| stream_fault(&self.name, e))?;
        self.aside.relieve().map_err(|e| stream_fault(&aside_of(&self.name), e))
    }

    /// Its name, and that of its output.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The writer of the output, for marks and its header.
    pub fn writer(&mut self) -> &mut Writer {
        &mut self.out
    }

    /// The output is complete up to this time, ns since 1970 UTC; what comes later and is older is late.
    pub fn frontier(&self) -> i64 {
        self.frontier
    }

    /// All inputs have come to their end, and all of them is in the output.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// All that was published is as safe as the output's level promises.
    pub fn marked(&self) -> bool {
        self.is_safe()
    }

    /// Messages below are as safe as the output's level promises.
    fn safe(&self) -> u64 {
        if self.is_on_disk() { self.out.mark(Level::Disk) } else { self.out.next_sequence() }
    }

    /// What was looked at, by input: place and account, of which the newest commit knows all but the last looks.
    pub fn accounts(&self) -> impl Iterator<Item = &crate::records::Input> {
        self.inputs.iter().map(|i| &i.account)
    }

    /// Why it does not go on, where that is no ordinary course.
    pub fn trouble(&self) -> Option<Fault> {
        let unwritten = |writer| unwritten(writer, "the inputs keep what is not merged");
        self.no_room.clone().or_else(|| [&self.out, self.book.writer(), &self.aside].into_iter().find_map(unwritten))
    }

    /// One group commit of each of its streams, in a machine of one thread (`Drain::Caller`).
    pub fn drain(&mut self) -> Result<(), Fault> {
        for writer in [self.book.writer_mut(), &mut self.out, &mut self.aside] {
            match writer.drain() {
                Err(e) if !e.is_full() => return Err(stream_fault(&writer.header().name.clone(), e)),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Pushes entries in order; how many, and why no more.
fn push(out: &mut Writer, order: &[u32], taken: &Taken, places: &[(Parent, Parent)]) -> (usize, Option<Error>) {
    let mut shown = 0;
    let mut full = None;
    for &at in order {
        let (input, sequence) = taken.of[at as usize];
        if let Err(e) = out.push_view(places[input as usize].0, sequence, &taken.entries[at as usize]) {
            full = Some(e);
            break;
        }
        shown += 1;
    }
    out.publish();
    (shown, full)
}

/// Returns an error that is only a lack of room; every other one ends this merge, and the next one resumes. A device
/// without room ends it too: how much a view has learned of a parent while it failed is unknown.
fn refused(name: &str, error: Error) -> Result<Fault, Fault> {
    match error {
        Error::Full(_) | Error::Behind { .. } | Error::Dropped => Ok(stream_fault(name, error)),
        error => Err(stream_fault(name, error)),
    }
}

/// The places of an input in the output and aside.
fn places_of(out: &mut Writer, aside: &mut Writer, name: &str, stream: &str) -> Result<(Parent, Parent), Fault> {
    let of = |writer: &mut Writer, name: &str| writer.parent(stream).map_err(|e| stream_fault(name, e));
    Ok((of(out, name)?, of(aside, &aside_of(name))?))
}

impl From<&Merge> for StreamView {
    fn from(merge: &Merge) -> Self {
        Self {
            name: merge.name().to_string(),
            frontier: merge.frontier(),
            ended: merge.ended(),
            marked: merge.marked(),
            safe: merge.safe(),
            is_blocked: merge.is_blocked,
            ..Self::default()
        }
    }
}
