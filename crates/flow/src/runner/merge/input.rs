//! One input of a merge: the scanned messages, those of them that wait for their slice, and the progress in time.
//!
//! Constraints: scanning an entry costs its verification and a comparison; waiting entries are kept in blocks of 128
//! entries, 32 bytes per block, however long the wait is. No payload is touched.
//!
//! Failure behaviour: retired, damaged or missing entries become counts and gaps exactly once: unscanned ones when the
//! scan meets them, waiting ones when their slice is taken.

use super::again::Again;
use super::number::{Course, Numbers};
use super::plan::Share;
use super::{MergeInput, TimeSlices};
use crate::data::{Data, stream_fault};
use crate::limits::WRITER_LOOK;
use crate::records::{Gap, Input as Account, reason_of};
use crate::{Fault, UpstreamState};
use std::collections::VecDeque;
use store::{Check, Clock, Entry, Missing, ReadOptions, Reader, Stretch, Why};

/// The count of messages in slices that other parts have.
const SKIPPED: &str = "skipped.slice";
/// Entries of a block: a slice looks again at those that it shares with the next.
const BLOCK: u64 = 128;
/// Entries of one look: some blocks, so that inputs take turns.
pub(super) const LOOK: usize = 4096;

/// By what a merge orders.
pub(super) enum By {
    /// Source time, believed up to so far beyond arrival, ns.
    Time(i64),
    /// The number of the message.
    Number(Numbers),
}

/// Some entries in a row of which at least one waits for its slice.
pub(super) struct Block {
    first: u64,
    len: u32,
    /// How many wait.
    waiting: u32,
    /// The smallest key among them.
    oldest: i64,
}

/// A message that will not be in the output.
pub(super) struct Stray {
    /// Its sequence.
    pub(super) sequence: u64,
    /// Its entry.
    pub(super) entry: Entry,
}

/// The messages of a slice, in the order (input, sequence).
#[derive(Default)]
pub(super) struct Taken {
    /// The entries.
    pub(super) entries: Vec<Entry>,
    /// Their keys: sorting touches nothing else.
    pub(super) keys: Vec<i64>,
    /// Of each: which input, and its sequence there.
    pub(super) of: Vec<(u32, u64)>,
}

impl Taken {
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.keys.clear();
        self.of.clear();
    }
}

/// One input.
pub(super) struct Input {
    /// Its place and account: `next` is where the next look begins.
    pub(super) account: Account,
    /// The account is that of the last commit, carried on.
    pub(super) is_resumed: bool,
    /// How long it is waited for, ns.
    pub(super) wait: i64,
    /// Its messages that are merged; others are skipped.
    pub(super) slices: Option<TimeSlices>,
    /// See [`MergeInput::by_frontier`].
    by_frontier: bool,
    /// Where its stage made messages again; see [`MergeInput::is_made_again`].
    pub(super) is_made_again: bool,
    pub(super) again: Again,
    /// The near stream of the newest entry, and the sequence there.
    pub(super) near: (Option<[u8; 16]>, Option<u64>),
    /// Looks.
    pub(super) reader: Reader,
    /// Reads the slice, at its own position, so that neither reader maps segments for the other. Its entries were
    /// verified when they were looked at, and are verified again when they are pushed.
    back: Reader,
    /// Its source has said how far it has come: see `attach`.
    is_heard: bool,
    /// When it looked for a writer that started anew, ns of `Media::clock`.
    looked: i64,
    pub(super) blocks: VecDeque<Block>,
    /// How its numbers went, where they count.
    pub(super) course: Course,
    /// Largest key that is believed.
    pub(super) newest: i64,
    /// Below, retention took what was not in the output: it is counted, even if a power cut brings it back.
    gone: u64,
    /// By number: all that its source brought up to this time is in the output, and what will be next.
    pub(super) through: i64,
    coming: Option<(i64, u64)>,
    /// By frontier: all up to this time was looked at; the frontier that its stage reported since, and the end of the
    /// stream then.
    heard: i64,
    reported: Option<(i64, u64)>,
    /// `next` at the last commit.
    pub(super) before: u64,
    /// Late, or without a key, since then.
    pub(super) strays: Vec<Stray>,
    /// Missing since then.
    pub(super) gaps: Vec<Gap>,
}

/// The key of a message in a merge by time; none for a time too far beyond arrival to be believed.
#[inline]
fn time_of(entry: &Entry, ahead_max: i64) -> Option<i64> {
    (entry.source_time <= entry.arrival_time.saturating_add(ahead_max)).then_some(entry.source_time)
}

impl Input {
    /// Opens an input at its first message. `early`: also what is not on the medium yet.
    pub(super) fn open(data: &Data, input: &MergeInput, early: bool, by: &By) -> Result<Self, Fault> {
        let stream = &input.stream;
        let options = ReadOptions { early, check: Check::Entries, ..ReadOptions::default() };
        let reader = data.reader(stream, options.clone())?;
        let header = reader.header();
        if header.clock != Clock::Epoch && matches!(by, By::Time(_)) {
            return Err(Fault::new(
                format!("cannot merge stream `{stream}` by time"),
                "its times are not in ns since 1970 UTC",
            )
            .hint("merge streams whose source has `clock = \"epoch\"`, or by number"));
        }
        let course = Course::of(header.clock);
        let first = reader.bounds().first;
        let account = Account::begin(stream, header, first);
        // An entry that was looked at was safe, though after a start the mark may reach it a moment later.
        let back = data.reader(stream, ReadOptions { early: true, check: Check::Nothing, ..options })?;
        Ok(Self {
            account,
            is_resumed: false,
            wait: input.wait,
            slices: input.slices,
            by_frontier: input.by_frontier,
            is_made_again: input.is_made_again,
            again: Again::default(),
            near: (None, None),
            reader,
            back,
            is_heard: false,
            looked: i64::MIN,
            blocks: VecDeque::new(),
            course,
            newest: i64::MIN,
            gone: 0,
            through: i64::MIN,
            coming: None,
            heard: i64::MIN,
            reported: None,
            before: first,
            strays: Vec::new(),
            gaps: Vec::new(),
        })
    }

    /// Goes on from a commit, if it speaks of this stream and nothing of it was cut since. False: it stands where the
    /// messages of `from` on begin, or, by number, with its oldest.
    // Not `Account::resume` and `step_back`, as the other stages: what was cut may be in the output, so a merge never
    // counts it as done again but begins a new account behind the cut; and it needs the share of the slice beside the
    // account.
    pub(super) fn resume(&mut self, known: Option<(&Account, &Share)>, from: i64, by: &By) -> Result<bool, Fault> {
        let header = self.reader.header().clone();
        let same = known.filter(|k| k.0.uuid == header.uuid);
        if let Some((known, share)) = same.filter(|k| header.check_identity(k.0.epoch, k.0.next).is_ok()) {
            self.course.resume(&share.course, known.next);
            self.account = Account { stream: self.account.stream.clone(), ..known.clone() };
            (self.before, self.is_resumed) = (known.next, true);
            self.again = share.again.clone();
            let newest = known.next.checked_sub(1).and_then(|newest| header.near_of(newest));
            self.near = (newest.map(|near| near.uuid), None);
            return Ok(true);
        }
        if from > i64::MIN {
            let at = match by {
                By::Time(_) => {
                    self.reader.time_range(from, i64::MAX).map_err(|e| stream_fault(&self.account.stream, e))?.0
                }
                By::Number(_) => self.account.first,
            };
            let cut = same.and_then(|k| header.epochs.iter().find(|e| e.0 > k.0.epoch)).map_or(0, |e| e.1);
            if let Some((_, share)) = same {
                self.course.resume_cut(&share.course);
            }
            self.stand(at.max(cut));
        }
        Ok(false)
    }

    fn stand(&mut self, at: u64) {
        (self.account.first, self.before) = (at, at);
        self.account.stand_at(at, self.reader.header());
    }

    /// Looks again at `low..end`, which a commit speaks of: what lies at or past `from` waits, what came at `before` or
    /// later and is older or ahead is a stray. How many wait.
    pub(super) fn look_back(
        &mut self,
        data: &Data,
        (low, end): (u64, u64),
        from: i64,
        by: &mut By,
    ) -> Result<u64, Fault> {
        let account = self.account.clone();
        self.account.next = low;
        let options = ReadOptions { early: true, check: Check::Entries, ..ReadOptions::default() };
        let reader = std::mem::replace(&mut self.reader, data.reader(&account.stream, options)?);
        while self.account.next < end {
            let most = usize::try_from(end - self.account.next).unwrap_or(LOOK).min(LOOK);
            if !self.read_new(most, from, by)? {
                break;
            }
        }
        // What is missing now was looked at once: whoever knows what was there counts it.
        self.account = account;
        self.gaps.clear();
        self.reader = reader;
        Ok(self.waiting())
    }

    /// Corrects the count of skipped messages where the slices differ from those of the commit. `waited`, `waiting`:
    /// messages that waited by the slices of the commit, and those that wait by the present ones.
    pub(super) fn skip_anew(&mut self, waited: u64, waiting: u64) {
        let skipped = self.account.counts.entry(SKIPPED.into()).or_default();
        *skipped = skipped.saturating_add(waited).saturating_sub(waiting);
    }

    /// Messages that wait for their slice.
    pub(super) fn waiting(&self) -> u64 {
        self.blocks.iter().map(|b| u64::from(b.waiting)).sum()
    }

    /// The smallest key that waits.
    pub(super) fn oldest(&self) -> Option<i64> {
        self.blocks.iter().map(|b| b.oldest).min()
    }

    /// At most so many wait with keys before `to`.
    pub(super) fn waiting_before(&self, to: i64) -> u64 {
        self.blocks.iter().filter(|b| b.oldest < to).map(|b| u64::from(b.waiting)).sum()
    }

    /// The lowest sequence that may still be pointed to, or whose message is skipped and in no commit yet.
    pub(super) fn low(&self) -> u64 {
        let stray = self.strays.first().map_or(u64::MAX, |s| s.sequence);
        let skipped = if self.may_skip() { self.before } else { u64::MAX };
        self.blocks.front().map_or(self.account.next, |b| b.first).min(stray).min(skipped)
    }

    /// Messages were looked at, and maybe skipped, of which no commit speaks.
    pub(super) fn has_skipped(&self) -> bool {
        self.may_skip() && self.account.next > self.before
    }

    fn may_skip(&self) -> bool {
        self.slices.is_some() || self.is_made_again
    }

    /// `low`, without what is known to be gone.
    pub(super) fn still_there(&self, low: u64) -> u64 {
        low.max(self.gone)
    }

    /// All that was published has been looked at.
    pub(super) fn is_at_end(&self) -> bool {
        self.account.next >= self.reader.bounds().count
    }

    /// Nothing more can be looked at now.
    pub(super) fn has_seen_all(&self) -> bool {
        self.account.next >= self.reader.end()
    }

    /// The lowest sequence that waits.
    pub(super) fn low_waiting(&self) -> u64 {
        self.blocks.front().map_or(self.account.next, |block| block.first)
    }

    /// By frontier: the time up to which it has brought all.
    pub(super) fn brought(&self) -> i64 {
        // A backlog brings no frontier, and the stream may have no room for all of it.
        self.looked_through().max(self.newest.saturating_sub(self.wait))
    }

    /// Learns what its source says, and what of that the output shows: see `Merge::listen`.
    pub(super) fn listen(&mut self, upstream: UpstreamState, is_shown: bool) {
        let end = self.reader.bounds().count;
        if self.coming.is_none() && upstream.frontier > self.through {
            self.coming = Some((upstream.frontier, end));
        }
        let low = self.low();
        let is_through = |until: u64| is_shown && low >= until;
        match self.coming {
            Some((time, until)) if is_through(until) => (self.through, self.coming) = (time, None),
            _ => {}
        }
        if upstream.ended && is_through(end) {
            self.through = i64::MAX;
        }
    }

    /// By frontier: learns how far its stage has come. That counts once all is looked at that the stream had then.
    pub(super) fn hear(&mut self, frontier: i64) {
        if !self.by_frontier {
            return;
        }
        self.heard = self.looked_through();
        if self.reported.is_none_or(|(time, _)| time <= self.heard) {
            self.reported = (frontier > self.heard).then(|| (frontier, self.reader.bounds().count));
        }
    }

    fn looked_through(&self) -> i64 {
        let is_looked_at = |reported: &(i64, u64)| self.account.next >= reported.1;
        self.reported.filter(is_looked_at).map_or(self.heard, |reported| reported.0.max(self.heard))
    }

    /// Its stage has come to its end, and all of it was looked at.
    pub(super) fn is_over(&self, upstream: UpstreamState) -> bool {
        self.is_at_end() && (upstream.ended || self.by_frontier && self.looked_through() == i64::MAX)
    }

    /// By frontier: the time up to which nothing comes any more; none otherwise.
    pub(super) fn promise(&self) -> Option<i64> {
        self.by_frontier.then(|| self.looked_through())
    }

    /// Why a stray is aside.
    pub(super) fn reason(&self, stray: &Stray, by: &By) -> &'static str {
        let key = match by {
            By::Time(ahead_max) => time_of(&stray.entry, *ahead_max),
            By::Number(numbers) => numbers.key(&self.course, &stray.entry, stray.sequence),
        };
        match by {
            _ if key.is_some() => "aside.late",
            By::Time(_) => "aside.ahead",
            By::Number(_) => "aside.number",
        }
    }

    /// True if the mark covers all messages that commits count.
    pub(super) fn is_marked(&self) -> bool {
        self.before <= self.reader.end()
    }

    /// The time up to which it has brought all, ns since 1970 UTC. `time` and `passed`: see `Merge::reach`.
    pub(super) fn reach(&self, upstream: UpstreamState, time: i64, passed: i64, ahead_max: i64) -> i64 {
        let at_end = self.is_at_end();
        if self.is_over(upstream) {
            return i64::MAX;
        }
        if self.by_frontier {
            return self.brought();
        }
        let mut reach = self.newest;
        if at_end {
            reach = reach.max(upstream.frontier.min(time.saturating_add(ahead_max)));
        }
        reach = reach.saturating_sub(self.wait);
        if at_end { reach.max(passed.min(time.saturating_sub(self.wait))) } else { reach }
    }

    /// Looks for a writer that started anew, where all of the one before has been seen: a stream that was closed in
    /// order has another live place then.
    pub(super) fn look_for_writer(&mut self, clock: i64) -> Result<(), Fault> {
        if !self.has_seen_all() || clock.saturating_sub(self.looked) < WRITER_LOOK {
            return Ok(());
        }
        self.looked = clock;
        self.reattach()
    }

    /// Attaches the readers to the writer that has just opened, once its source says how far it has come: that is
    /// said of messages too which the writer before has not published.
    pub(super) fn attach(&mut self, upstream: UpstreamState) -> Result<(), Fault> {
        let was_heard = std::mem::replace(&mut self.is_heard, upstream.frontier > i64::MIN);
        if self.is_heard && !was_heard { self.reattach() } else { Ok(()) }
    }

    fn reattach(&mut self) -> Result<(), Fault> {
        let fault = |e| stream_fault(&self.account.stream, e);
        self.reader.reattach().map_err(fault)?;
        self.back.reattach().map_err(fault)
    }

    /// Looks at the next entries, at most `most`. False if there are none.
    pub(super) fn read_new(&mut self, most: usize, from: i64, by: &mut By) -> Result<bool, Fault> {
        let (at, before, slices) = (self.account.next, self.before, self.slices);
        let (blocks, strays, again) = (&mut self.blocks, &mut self.strays, &self.again);
        let (mut skipped, mut repeated) = (0, 0);
        match self.reader.next_entries(at, most.min(LOOK)).map_err(|e| stream_fault(&self.account.stream, e))? {
            Stretch::Messages([]) => return Ok(false),
            Stretch::Messages(entries) => {
                let newest = match by {
                    By::Time(ahead_max) => {
                        let key = |entry: &Entry, _| time_of(entry, *ahead_max);
                        let mut skips = |entry: &Entry, sequence| {
                            let is_of_others = is_skipped(slices, entry);
                            let is_twice = !is_of_others && again.skips(sequence, entry);
                            (skipped, repeated) = (skipped + u64::from(is_of_others), repeated + u64::from(is_twice));
                            is_of_others || is_twice
                        };
                        note(entries, at, before, from, (&key, &mut skips), blocks, strays)
                    }
                    By::Number(numbers) => {
                        let newest = entries.iter().map(|entry| entry.origin).max().unwrap_or(0);
                        if !self.course.knows(newest) {
                            let names = self.back.origins().map_err(|e| stream_fault(&self.account.stream, e))?;
                            self.course.learn(names, newest);
                        }
                        numbers.settle(&mut self.course, entries, at);
                        numbers.count(&self.course, entries, at, from);
                        let key = |entry: &Entry, sequence| numbers.key(&self.course, entry, sequence);
                        note(entries, at, before, from, (&key, &mut |_, _| false), blocks, strays)
                    }
                };
                if skipped > 0 {
                    *self.account.counts.entry(SKIPPED.into()).or_default() += skipped;
                }
                self.newest = self.newest.max(newest);
                self.account.next = at + entries.len() as u64;
                self.count_again(repeated);
            }
            Stretch::Missing(missing) => {
                self.note_gone(&missing);
                self.lose(at, missing.next - 1, missing.count(), reason_of(&missing));
                self.account.next = missing.next;
            }
        }
        self.account.stand_at(self.account.next, self.reader.header());
        Ok(true)
    }

    /// Retention took what it took for good.
    fn note_gone(&mut self, missing: &Missing) {
        if missing.why == Why::Retention {
            self.gone = self.gone.max(missing.next);
        }
    }

    /// Counts what is missing, `count` of `first..=last`.
    pub(super) fn lose(&mut self, first: u64, last: u64, count: u64, reason: &str) {
        *self.account.counts.entry(format!("lost.{reason}")).or_default() += count;
        Gap::sequences(&self.account.stream, first..=last, reason).add_to(&mut self.gaps);
    }

    /// Moves the waiting entries of `from..to` to `taken`, and returns their number.
    pub(super) fn take(&mut self, number: u32, span: (i64, i64), by: &By, taken: &mut Taken) -> Result<u64, Fault> {
        match by {
            By::Time(ahead_max) => {
                let (slices, again) = (self.slices, std::mem::take(&mut self.again));
                let skips = |entry: &Entry, sequence| is_skipped(slices, entry) || again.skips(sequence, entry);
                let key = |entry: &Entry, sequence| time_of(entry, *ahead_max).filter(|_| !skips(entry, sequence));
                let took = self.take_by(number, span, taken, key);
                self.again = again;
                took
            }
            By::Number(numbers) => {
                let course = std::mem::take(&mut self.course);
                let took = self.take_by(number, span, taken, |entry, sequence| numbers.key(&course, entry, sequence));
                self.course = course;
                took
            }
        }
    }

    fn take_by(
        &mut self,
        number: u32,
        (from, to): (i64, i64),
        taken: &mut Taken,
        key_of: impl Fn(&Entry, u64) -> Option<i64>,
    ) -> Result<u64, Fault> {
        let before = taken.entries.len();
        let mut blocks = std::mem::take(&mut self.blocks);
        for block in blocks.iter_mut().filter(|b| b.oldest < to) {
            let end = block.first + u64::from(block.len);
            let (mut at, mut left, mut low, mut oldest) = (block.first, 0, None, i64::MAX);
            let (was, held, mut why) = (block.waiting, taken.entries.len(), "");
            while at < end {
                let answer = self.back.next_entries(at, (end - at) as usize);
                match answer.map_err(|e| stream_fault(&self.account.stream, e))? {
                    Stretch::Messages([]) => break,
                    Stretch::Messages(entries) => {
                        for (entry, sequence) in entries.iter().zip(at..) {
                            let Some(key) = key_of(entry, sequence).filter(|&key| key >= from) else { continue };
                            if key < to {
                                taken.entries.push(*entry);
                                taken.keys.push(key);
                                taken.of.push((number, sequence));
                            } else {
                                (left, oldest) = (left + 1, key.min(oldest));
                                low.get_or_insert(sequence);
                            }
                        }
                        at += entries.len() as u64;
                    }
                    Stretch::Missing(missing) => {
                        self.note_gone(&missing);
                        (at, why) = (missing.next, reason_of(&missing));
                    }
                }
            }
            // Waiting messages that are gone, of this slice or a later one.
            let missing = u64::from(was).saturating_sub((taken.entries.len() - held) as u64 + u64::from(left));
            if missing > 0 {
                self.lose(block.first, end - 1, missing, if why.is_empty() { "missing" } else { why });
            }
            let first = low.unwrap_or(end);
            block.len -= (first - block.first) as u32;
            (block.first, block.waiting, block.oldest) = (first, left, oldest);
        }
        blocks.retain(|b| b.waiting > 0);
        self.blocks = blocks;
        Ok((taken.entries.len() - before) as u64)
    }
}

/// Whether a message is of a slice of another part.
#[inline]
fn is_skipped(slices: Option<TimeSlices>, entry: &Entry) -> bool {
    slices.is_some_and(|slices| !slices.contains(entry.source_time))
}

/// Sorts entries into what waits, what strays and what is skipped; the largest key.
#[inline]
fn note(
    entries: &[Entry],
    first: u64,
    before: u64,
    from: i64,
    (key_of, skips): (&impl Fn(&Entry, u64) -> Option<i64>, &mut impl FnMut(&Entry, u64) -> bool),
    blocks: &mut VecDeque<Block>,
    strays: &mut Vec<Stray>,
) -> i64 {
    let mut newest = i64::MIN;
    let mut at = first;
    for part in entries.chunks(BLOCK as usize) {
        let (mut waiting, mut oldest) = (0, i64::MAX);
        for (entry, sequence) in part.iter().zip(at..) {
            let key = key_of(entry, sequence);
            if skips(entry, sequence) {
                newest = newest.max(key.unwrap_or(i64::MIN));
                continue;
            }
            let Some(key) = key.filter(|&key| key >= from) else {
                if sequence >= before {
                    strays.push(Stray { sequence, entry: *entry });
                }
                continue;
            };
            (waiting, oldest, newest) = (waiting + 1, key.min(oldest), key.max(newest));
        }
        match blocks.back_mut() {
            Some(last)
                if last.first + u64::from(last.len) == at && u64::from(last.len) + part.len() as u64 <= BLOCK =>
            {
                last.len += part.len() as u32;
                (last.waiting, last.oldest) = (last.waiting + waiting, last.oldest.min(oldest));
            }
            _ if waiting > 0 => blocks.push_back(Block { first: at, len: part.len() as u32, waiting, oldest }),
            _ => {}
        }
        at += part.len() as u64;
    }
    newest
}
