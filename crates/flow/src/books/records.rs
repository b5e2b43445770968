//! The records of the books as owned values: runs, commits, gaps, and the reasons that several modules share.
//!
//! Bytes: `wire::bprn` (runs) and `wire::bpcm` (commits). Values are owned because a record outlives the batch in which
//! it was read.

use crate::Fault;
use crate::tally::Tally;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use store::{Missing, Why};
use wire::bpcm::{CommitInput, Count, Open, Total};
use wire::bprn::{RunStream, STOP_UNKNOWN, State};

/// A run according to its newest message.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// Its name.
    pub name: String,
    /// Its identity.
    #[serde(serialize_with = "as_hex")]
    pub id: [u8; 16],
    /// Where it is in its life.
    #[serde(serialize_with = "as_word")]
    pub state: State,
    /// First source time that belongs to it, ns since 1970 UTC.
    pub start: i64,
    /// First source time after it; `i64::MAX` while unknown.
    pub stop: i64,
    /// How long it waits for late messages, ns.
    pub settle: i64,
    /// When this state began, ns since 1970 UTC.
    pub time: i64,
    /// Metadata of this run alone, a JSON object as text; see [`Run::all_metadata`].
    pub metadata: String,
    /// Ranges of its members; complete when sealed. A stream has a row for each of its epochs.
    pub streams: Vec<Range>,
    /// The person or the condition that ended it.
    pub reason: String,
    /// The time that was asked for as its end belongs to it: see [`Run::end`].
    pub inclusive: bool,
    /// How far the wall clock was set in the run, or ahead of which arrivals it began, ns: negative = back, 0 = not.
    pub clock_step: i64,
    /// Metadata of the instrument, a JSON object as text, or empty. Its runs share the text.
    #[serde(serialize_with = "as_text")]
    pub instrument: Arc<str>,
    /// The message of the stream `runs` that had them, where it does not verify: they are not known.
    pub undescribed: Option<u64>,
}

/// Where a run is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// First source time that belongs no more, ns since 1970 UTC; `i64::MAX` while not known.
    pub first_outside: i64,
    /// The time that was asked for is the one before, and its messages belong to the run.
    pub inclusive: bool,
}

impl Stop {
    /// At a source time, ns since 1970 UTC; `inclusive`: messages of this very time belong to the run.
    pub fn at(time: i64, inclusive: bool) -> Self {
        Self { first_outside: time.saturating_add(i64::from(inclusive)), inclusive }
    }
}

impl From<i64> for Stop {
    fn from(time: i64) -> Self {
        Self::at(time, false)
    }
}

/// None: not known.
impl From<Option<i64>> for Stop {
    fn from(time: Option<i64>) -> Self {
        time.unwrap_or(STOP_UNKNOWN).into()
    }
}

/// A range of one stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Range {
    /// Name of the stream.
    pub stream: String,
    /// Its identity.
    #[serde(serialize_with = "as_hex")]
    pub uuid: [u8; 16],
    /// Epoch of the range.
    pub epoch: u32,
    /// First sequence.
    pub first: u64,
    /// One past the last sequence.
    pub next: u64,
    /// Membership by arrival: the stream's clock is not `epoch`.
    pub by_arrival: bool,
    /// Its source had ended.
    pub ended: bool,
}

impl Range {
    /// One past the last message of the range that the stream still holds in the epoch of the range: the rest was cut
    /// by a recovery, and other messages may have its numbers now. Another stream of the name holds nothing of it.
    pub fn kept(&self, header: &store::Header) -> u64 {
        let row = header.epochs.iter().position(|epoch| epoch.0 == self.epoch);
        match row.filter(|_| header.uuid == self.uuid) {
            Some(row) => {
                let ends = header.epochs.get(row + 1).map_or(self.next, |next| next.1);
                ends.clamp(self.first, self.next)
            }
            None => self.first,
        }
    }
}

fn as_hex<S: serde::Serializer>(id: &[u8; 16], s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(&store::hex(id))
}

fn as_text<S: serde::Serializer>(text: &Arc<str>, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(text)
}

fn as_word<S: serde::Serializer>(state: &State, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(state.name())
}

fn wire_fault(what: &str) -> impl FnOnce(wire::Error) -> Fault + '_ {
    move |e| Fault::new(format!("{what} cannot be coded"), e)
}

impl Run {
    /// True if a message of this time is a member: source time, or arrival where the stream says so.
    pub fn holds(&self, time: i64) -> bool {
        time >= self.start && time < self.stop
    }

    /// Where messages of the run are in a stream, `(first, one past the last)`, from `from` on and below `end`; and how
    /// many messages of its sealed ranges a recovery has cut since.
    pub fn spans(&self, header: &store::Header, from: u64, end: u64) -> (Vec<(u64, u64)>, u64) {
        if self.state != State::Sealed {
            return (vec![(from, end)], 0);
        }
        let (mut spans, mut cut, mut from) = (Vec::new(), 0, from);
        for range in self.streams.iter().filter(|r| r.stream == header.name) {
            // A sink may have begun before the sealed range, with what retention has taken since.
            let kept = range.kept(header);
            if from < kept.min(end) {
                spans.push((from, kept.min(end)));
            }
            cut += range.next - kept;
            from = from.max(range.next);
        }
        (spans, cut)
    }

    /// Where it ends.
    pub fn stops(&self) -> Stop {
        Stop { first_outside: self.stop, inclusive: self.inclusive }
    }

    /// The end that was asked for, ns since 1970 UTC: of an inclusive run its last time, of any other its stop.
    pub fn end(&self) -> i64 {
        self.stop - i64::from(self.inclusive)
    }

    /// Names of the sinks that were to write it when it began, as its metadata say.
    pub fn sinks(&self) -> Vec<String> {
        #[derive(serde::Deserialize)]
        struct Sinks {
            #[serde(default)]
            sinks: BTreeMap<String, serde::de::IgnoredAny>,
        }
        // It is asked of many runs: nothing else of the text is kept.
        let found: Option<Sinks> = serde_json::from_str(self.description()).ok();
        found.map_or_else(Vec::new, |found| found.sinks.into_keys().collect())
    }

    /// Where sinks and workers of its instrument stand. Runs of earlier versions have them beside what the user said.
    pub fn description(&self) -> &str {
        match self.undescribed {
            Some(_) => "{}",
            None if self.instrument.is_empty() => &self.metadata,
            None => &self.instrument,
        }
    }

    /// Returns the metadata of the run and of its instrument as one object, for sinks and the code of workers.
    pub fn all_metadata(&self) -> serde_json::Value {
        let mut all: serde_json::Value = serde_json::from_str(&self.metadata).unwrap_or_default();
        let of_instrument: serde_json::Map<_, _> = serde_json::from_str(&self.instrument).unwrap_or_default();
        match all.as_object_mut() {
            Some(all) => all.extend(of_instrument),
            None => all = of_instrument.into(),
        }
        all
    }

    /// Writes the message. `back`: the distance to the earlier message that has the metadata of the instrument; 0: this
    /// message has them.
    pub fn write(&self, out: &mut Vec<u8>, back: u32) -> Result<(), Fault> {
        let streams: Vec<RunStream<'_>> = self
            .streams
            .iter()
            .map(|r| RunStream {
                name: &r.stream,
                uuid: r.uuid,
                epoch: r.epoch,
                first: r.first,
                next: r.next,
                clock: if r.by_arrival { "none" } else { "epoch" },
                ended: r.ended,
            })
            .collect();
        let run = wire::bprn::Run {
            name: &self.name,
            id: self.id,
            state: self.state,
            start: self.start,
            stop: self.stop,
            settle: self.settle,
            time: self.time,
            metadata: &self.metadata,
            streams: streams.as_slice().into(),
            reason: &self.reason,
            inclusive: self.inclusive,
            clock_step: self.clock_step,
            instrument: if back == 0 { &self.instrument } else { "" },
            instrument_back: back,
        };
        wire::bprn::write(out, &run).map_err(wire_fault("a run"))
    }

    /// Reads a message; also returns the distance to the earlier message that has the metadata of the instrument, or 0.
    pub fn read(bytes: &[u8]) -> Result<(Self, u32), Fault> {
        let run = wire::bprn::read(bytes).map_err(wire_fault("a run"))?;
        let back = run.instrument_back;
        let run = Self {
            name: run.name.to_string(),
            id: run.id,
            state: run.state,
            start: run.start,
            stop: run.stop,
            settle: run.settle,
            time: run.time,
            metadata: run.metadata.to_string(),
            streams: run
                .streams
                .iter()
                .map(|r| Range {
                    stream: r.name.to_string(),
                    uuid: r.uuid,
                    epoch: r.epoch,
                    first: r.first,
                    next: r.next,
                    by_arrival: r.clock != "epoch",
                    ended: r.ended,
                })
                .collect(),
            reason: run.reason.to_string(),
            inclusive: run.inclusive,
            clock_step: run.clock_step,
            instrument: run.instrument.into(),
            undescribed: None,
        };
        Ok((run, back))
    }
}

/// Messages known to be missing, or a time of which nothing is known ([`ABSENT`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Stream.
    pub stream: String,
    /// Their origin; empty if not known. Of messages of a view whose parent does not have them: the parent.
    pub origin: String,
    /// First missing number.
    pub first: u64,
    /// Last missing number.
    pub last: u64,
    /// Missing from this source time on, ns since 1970 UTC; `i64::MIN` where that is unknown, `null` in JSON.
    #[serde(serialize_with = "known_time", deserialize_with = "time_or_first")]
    pub from: i64,
    /// Missing to this source time; `i64::MAX` where that is unknown, `null` in JSON.
    #[serde(serialize_with = "known_time", deserialize_with = "time_or_last")]
    pub to: i64,
    /// One word.
    pub reason: String,
    /// Numbers are sequences of the stream, not of the origin.
    pub by_sequence: bool,
    /// How many of the numbers are missing, where it is not all of them; 0: all.
    pub count: u64,
}

fn known_time<S: serde::Serializer>(time: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    Some(*time).filter(|time| ![i64::MIN, i64::MAX].contains(time)).serialize(serializer)
}

fn time_or_first<'a, D: serde::Deserializer<'a>>(deserializer: D) -> Result<i64, D::Error> {
    Option::<i64>::deserialize(deserializer).map(|time| time.unwrap_or(i64::MIN))
}

fn time_or_last<'a, D: serde::Deserializer<'a>>(deserializer: D) -> Result<i64, D::Error> {
    Option::<i64>::deserialize(deserializer).map(|time| time.unwrap_or(i64::MAX))
}

/// Reason of a gap in which a source did not run: the number of missing messages is unknown. It lies before message
/// `first` of the stream, `last` is the one before it, and `from` and `to` are times of the mover's clock: the last
/// sign of life before, and the start after.
pub const ABSENT: &str = "absent";

/// Reason of a gap in which the sender sent less than it had; it counts nothing.
pub const THROTTLED: &str = "throttled";

/// Prefix of the reasons of messages that never had a number: they are outside the account.
pub const REFUSED: &str = "refused.";

/// The reason under which the ledger counts messages that a reader misses.
pub(crate) fn reason_of(missing: &Missing) -> &'static str {
    match missing.why {
        Why::Retention => "full",
        Why::Corrupt => "corrupt",
        Why::File | Why::Parent => "missing",
    }
}

/// Reason of what a recovery has cut off a stream: messages that were marked and that the stream does not hold any
/// more.
pub const CUT: &str = "cut";

/// Reason of a gap for messages of `SOURCE.commits` that do not verify: they may hold losses of the source. It names no
/// number (`last` is before `first`) and no time.
pub const UNKNOWN: &str = "unknown";

/// The gap for commits of a source that can no longer be read.
pub(crate) fn unknown_of(stream: &str) -> Gap {
    Gap::interval(stream, 1, i64::MIN..=i64::MAX, UNKNOWN)
}

impl Gap {
    /// Missing numbers of an origin, whose name is empty if it is not known, from an unknown time.
    pub fn numbers(stream: &str, origin: &str, numbers: RangeInclusive<u64>, reason: &str) -> Self {
        let (first, last) = numbers.into_inner();
        Self {
            stream: stream.to_owned(),
            origin: origin.to_owned(),
            first,
            last,
            from: i64::MIN,
            to: i64::MAX,
            reason: reason.to_owned(),
            by_sequence: false,
            count: 0,
        }
    }

    /// Missing sequences of a stream, from an unknown time and origin.
    pub fn sequences(stream: &str, sequences: RangeInclusive<u64>, reason: &str) -> Self {
        Self { by_sequence: true, ..Self::numbers(stream, "", sequences, reason) }
    }

    /// An interval, in ns since 1970 UTC, before message `next` of a stream. It names no number.
    pub fn interval(stream: &str, next: u64, times: RangeInclusive<i64>, reason: &str) -> Self {
        let (from, to) = times.into_inner();
        // No range of numbers that begins at `next` is empty, except one that ends before it.
        Self { from, to, ..Self::sequences(stream, next..=next.wrapping_sub(1), reason) }
    }

    /// How many messages are missing.
    pub fn count(&self) -> u64 {
        let numbers = self.last.saturating_add(1).saturating_sub(self.first);
        if self.count == 0 { numbers } else { self.count.min(numbers) }
    }

    /// Whether it was joined: not all of its numbers are missing, or it is unknown which.
    pub fn is_joined(&self) -> bool {
        self.count != 0 && self.count <= self.last - self.first.min(self.last)
    }

    /// Adds a gap to a list; to its last entry if it has the same reason and follows that directly.
    pub(crate) fn add_to(self, gaps: &mut Vec<Self>) {
        match gaps.last_mut() {
            Some(gap) if gap.reason == self.reason && gap.last.checked_add(1) == Some(self.first) => {
                gap.last = self.last;
            }
            _ => gaps.push(self),
        }
    }

    /// As messages have it.
    pub(crate) fn as_wire(&self) -> wire::bpgp::Gap<'_> {
        wire::bpgp::Gap {
            stream: &self.stream,
            origin: &self.origin,
            first: self.first,
            last: self.last,
            from: self.from,
            to: self.to,
            reason: &self.reason,
            by_sequence: self.by_sequence,
            count: self.count,
        }
    }

    pub(crate) fn from_wire(gap: &wire::bpgp::Gap<'_>) -> Self {
        Self {
            stream: gap.stream.to_owned(),
            origin: gap.origin.to_owned(),
            first: gap.first,
            last: gap.last,
            from: gap.from,
            to: gap.to,
            reason: gap.reason.to_owned(),
            by_sequence: gap.by_sequence,
            count: gap.count,
        }
    }
}

/// A message that a worker could not handle, from the stream `WORKER.aside`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Apart {
    /// Stream that it is in.
    pub stream: String,
    /// Epoch of it.
    pub epoch: u32,
    /// Its sequence.
    pub sequence: u64,
    /// One word: `error`, `killed`, `time`.
    pub reason: String,
    /// Traceback, signal.
    pub text: String,
    /// Its schema id.
    pub kind: String,
    /// Its bytes.
    #[serde(skip)]
    pub payload: Vec<u8>,
}

impl Apart {
    /// From its message.
    pub fn read(bytes: &[u8]) -> Result<Self, Fault> {
        let aside = wire::bpas::read(bytes).map_err(wire_fault("a message aside"))?;
        Ok(Self {
            stream: aside.stream.to_owned(),
            epoch: aside.epoch,
            sequence: aside.sequence,
            reason: aside.reason.to_owned(),
            text: aside.text.to_owned(),
            kind: aside.kind.to_owned(),
            payload: aside.payload.bytes().to_vec(),
        })
    }
}

/// A stage's place in one input and its account so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Input {
    /// Stream.
    pub stream: String,
    /// Its identity.
    #[serde(serialize_with = "as_hex")]
    pub uuid: [u8; 16],
    /// Epoch of the message before `next`, as in the positions of readers: the place is good as long as that message
    /// is.
    pub epoch: u32,
    /// First sequence that was looked at.
    pub first: u64,
    /// Next sequence to look at.
    pub next: u64,
    /// Messages done.
    pub done: u64,
    /// The others by `kind.reason`; and [`WAITS`] and [`BEYOND`].
    pub counts: BTreeMap<String, u64>,
}

/// Where an epoch of a stream ends: the sequence with which the next one begins.
pub(crate) fn epoch_end(header: &store::Header, epoch: u32) -> u64 {
    header.epochs.iter().find(|row| row.0 > epoch).map_or(u64::MAX, |row| row.1)
}

/// Count of an input of which the messages are below `next` and not dealt with: they wait.
pub const WAITS: &str = "waits";

/// Count of an input of which the messages are dealt with and not below `next`.
pub const BEYOND: &str = "beyond";

impl Input {
    /// The account of the input `stream`, of which nothing below `first` is looked at.
    pub(crate) fn begin(stream: &str, header: &store::Header, first: u64) -> Self {
        Self {
            stream: stream.to_owned(),
            uuid: header.uuid,
            epoch: header.epoch_of(first.saturating_sub(1)),
            first,
            next: first,
            done: 0,
            counts: BTreeMap::new(),
        }
    }

    /// The account of the input `stream` in the newest commit of its stage, from which the stage resumes. `None` if the
    /// commit does not name this very stream: another of the same name is a new input.
    pub(crate) fn resume<'a>(inputs: &'a [Self], stream: &str, header: &store::Header) -> Option<&'a Self> {
        inputs.iter().find(|input| input.stream == stream && input.uuid == header.uuid)
    }

    /// A count by its name.
    pub fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// Whether the messages from `first` to `next` are those that are accounted for, by the equation of the ledger:
    /// `read = done + aside + skipped + lost + held`. Holds for stages without runs, which account for all messages.
    fn is_balanced(&self) -> bool {
        let is_accounted = |name: &str| ["aside.", "skipped.", "lost."].iter().any(|kind| name.starts_with(kind));
        let counts = self.counts.iter().filter(|(name, _)| is_accounted(name)).map(|(_, n)| u128::from(*n));
        let counts = counts.sum::<u128>() + u128::from(self.count(WAITS));
        u128::from(self.next) + u128::from(self.count(CUT)) + u128::from(self.count(BEYOND))
            == u128::from(self.first) + u128::from(self.done) + counts
    }

    /// Steps back to where the epoch of `next` ends now, if a recovery has cut messages before it. Those that were read
    /// are done and count as [`CUT`]; messages in their place are read. False if nothing was cut.
    pub fn step_back(&mut self, header: &store::Header) -> bool {
        let end = epoch_end(header, self.epoch);
        if self.next <= end {
            return false;
        }
        *self.counts.entry(CUT.into()).or_default() += self.next - end;
        self.stand_at(end, header);
        true
    }

    /// Everything before `next` is looked at.
    pub(crate) fn stand_at(&mut self, next: u64, header: &store::Header) {
        (self.next, self.epoch) = (next, header.epoch_of(next.saturating_sub(1)));
    }

    /// Sets a count; one of nothing is not written.
    pub fn set_count(&mut self, name: &str, value: u64) {
        match value {
            0 => self.counts.remove(name),
            value => self.counts.insert(name.to_owned(), value),
        };
    }
}

/// A commit of a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Commit {
    /// Stage.
    pub stage: String,
    /// Run; empty if the stage knows no runs.
    pub run: String,
    /// Number of the commit within stage and run.
    pub block: u64,
    /// When, ns since 1970 UTC.
    pub time: i64,
    /// Inputs: totals since the work began.
    pub inputs: Vec<Input>,
    /// Gaps: of a sink all since the work began, of a source those found since the last commit.
    pub gaps: Vec<Gap>,
    /// First sequence of the stage's output that this commit speaks of; of a stage without a stream of output 0.
    pub output_first: u64,
    /// One past the last; as `output_first` where there is none.
    pub output_next: u64,
    /// The text from which the stage resumes.
    pub state: String,
    /// No further commit follows.
    pub finished: bool,
    /// Of a source: the accounts of its origins.
    #[serde(skip)]
    pub totals: Option<Totals>,
}

/// Accounts of origins, over all messages of a stream below the `output_next` of their commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Totals {
    /// They may take several commits, one behind the other: which part this is, from 0.
    pub part: u32,
    /// How many parts there are.
    pub parts: u32,
    /// They are of all origins of the stream; else of those that changed since the totals before.
    pub is_table: bool,
    /// Origins and their accounts.
    pub(crate) rows: Vec<(String, Tally)>,
}

/// The parts of a total that must live while its message is written.
struct TotalParts<'a> {
    counts: Vec<Count<'a>>,
    open: Vec<(&'a str, Vec<u8>)>,
}

impl Commit {
    /// Asserts what a restart and the ledger believe of a commit. The sums are asserted in debug builds only: a stage
    /// resumes from sums of an older program, and an account that does not balance is reported, not fatal.
    fn assert_sound(&self) {
        debug_assert!(self.output_first <= self.output_next, "{}: the output goes back", self.stage);
        for input in self.inputs.iter().filter(|_| self.run.is_empty()) {
            debug_assert!(input.is_balanced(), "{}: {input:?}", self.stage);
        }
        if let Some(totals) = &self.totals {
            assert!(totals.part < totals.parts, "{}: part {} of {}", self.stage, totals.part, totals.parts);
            for (origin, tally) in &totals.rows {
                debug_assert!(tally.is_balanced(), "{}: {origin}: {tally:?}", self.stage);
            }
        }
    }

    /// The message.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), Fault> {
        self.assert_sound();
        let counts: Vec<Vec<Count<'_>>> = self
            .inputs
            .iter()
            .map(|i| i.counts.iter().map(|(name, value)| Count { name, value: *value }).collect())
            .collect();
        let inputs: Vec<CommitInput<'_>> = self
            .inputs
            .iter()
            .zip(&counts)
            .map(|(i, counts)| CommitInput {
                stream: &i.stream,
                uuid: i.uuid,
                epoch: i.epoch,
                first: i.first,
                next: i.next,
                done: i.done,
                counts: counts.as_slice().into(),
            })
            .collect();
        let gaps: Vec<wire::bpgp::Gap<'_>> = self.gaps.iter().map(Gap::as_wire).collect();
        let rows = self.totals.as_ref().map_or(&[][..], |totals| &totals.rows);
        let parts: Vec<TotalParts<'_>> = rows
            .iter()
            .map(|(_, tally)| TotalParts {
                counts: tally.counts().map(|(name, value)| Count { name, value }).collect(),
                open: tally.open(),
            })
            .collect();
        let open: Vec<Vec<Open<'_>>> = parts
            .iter()
            .map(|parts| {
                parts.open.iter().map(|(reason, bits)| Open { reason, bits: bits.as_slice().into() }).collect()
            })
            .collect();
        let totals: Vec<Total<'_>> = rows
            .iter()
            .zip(parts.iter().zip(&open))
            .map(|((origin, tally), (parts, open))| Total {
                origin,
                first: tally.first,
                next: tally.next,
                last_time: tally.last_time,
                appended: tally.appended,
                duplicate: tally.duplicate,
                counts: parts.counts.as_slice().into(),
                open: open.as_slice().into(),
            })
            .collect();
        let commit = wire::bpcm::Commit {
            stage: &self.stage,
            run: &self.run,
            block: self.block,
            time: self.time,
            inputs: inputs.as_slice().into(),
            gaps: gaps.as_slice().into(),
            output_first: self.output_first,
            output_next: self.output_next,
            state: &self.state,
            finished: self.finished,
            totals: totals.as_slice().into(),
            part: self.totals.as_ref().map_or(0, |totals| totals.part),
            parts: self.totals.as_ref().map_or(0, |totals| totals.parts),
            is_table: self.totals.as_ref().is_some_and(|totals| totals.is_table),
        };
        wire::bpcm::write(out, &commit).map_err(wire_fault("a commit"))
    }

    /// From its message.
    pub fn read(bytes: &[u8]) -> Result<Self, Fault> {
        let c = wire::bpcm::read(bytes).map_err(wire_fault("a commit"))?;
        Ok(Self {
            stage: c.stage.to_string(),
            run: c.run.to_string(),
            block: c.block,
            time: c.time,
            inputs: c
                .inputs
                .iter()
                .map(|i| Input {
                    stream: i.stream.to_string(),
                    uuid: i.uuid,
                    epoch: i.epoch,
                    first: i.first,
                    next: i.next,
                    done: i.done,
                    counts: i.counts.iter().map(|c| (c.name.to_string(), c.value)).collect(),
                })
                .collect(),
            gaps: c.gaps.iter().map(Gap::from_wire).collect(),
            output_first: c.output_first,
            output_next: c.output_next,
            state: c.state.to_string(),
            finished: c.finished,
            totals: (c.parts > 0).then(|| Totals {
                part: c.part,
                parts: c.parts,
                is_table: c.is_table,
                rows: c.totals.iter().map(|total| (total.origin.to_owned(), Tally::read(total))).collect(),
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_that_began_where_an_epoch_does_named_another_epoch_than_one_that_came_there() {
        let header = store::Header {
            format: store::FORMAT,
            uuid: [7; 16],
            name: "bank0".into(),
            level: store::Level::Disk,
            clock: store::Clock::Epoch,
            index_entries: 1024,
            segment_bytes: 4096,
            created: 0,
            boot: [0; 16],
            live: "".into(),
            home: None,
            shared_memory: None,
            epochs: vec![(1, 0), (2, 10)],
            near: Vec::new(),
        };
        let begun = Input::begin("bank0", &header, 10);
        let mut came = Input::begin("bank0", &header, 4);
        came.stand_at(10, &header);
        assert_eq!((begun.epoch, came.epoch), (1, 1));
        // A recovery cuts messages 8 and 9: both step back to one place.
        let header = store::Header { epochs: vec![(1, 0), (3, 8)], ..header };
        for mut input in [begun, came] {
            assert!(input.step_back(&header));
            assert_eq!((input.next, input.epoch, input.count(CUT)), (8, 1, 2));
            assert!(header.check_identity(input.epoch, input.next).is_ok() && !input.step_back(&header));
        }
        assert_eq!(Input::begin("bank0", &header, 0).epoch, 1);
    }

    #[test]
    fn a_commit_comes_back_as_it_was_written() {
        let input = Input {
            stream: "bank0".into(),
            uuid: [7; 16],
            epoch: 2,
            first: 3,
            next: 9,
            done: 4,
            counts: BTreeMap::from([("aside.late".into(), 1), ("lost.full".into(), 1)]),
        };
        let commit = Commit {
            stage: "all".into(),
            run: String::new(),
            block: 11,
            time: 12,
            inputs: vec![input],
            gaps: Vec::new(),
            output_first: 13,
            output_next: 17,
            state: "{}".into(),
            finished: true,
            totals: None,
        };
        let mut bytes = Vec::new();
        commit.write(&mut bytes).unwrap();
        assert_eq!(Commit::read(&bytes).unwrap(), commit);
    }
    #[test]
    fn neighbours_of_one_reason_become_one_gap_and_an_interval_has_no_number() {
        let mut gaps = Vec::new();
        for (number, reason) in [(3, "full"), (4, "full"), (5, "missing"), (7, "missing")] {
            Gap::sequences("bank0", number..=number, reason).add_to(&mut gaps);
        }
        let named: Vec<_> = gaps.iter().map(|gap| (gap.first, gap.last, gap.count())).collect();
        assert_eq!(named, [(3, 4, 2), (5, 5, 1), (7, 7, 1)]);
        let all = Gap::numbers("bank0", "north", 0..=u64::MAX, "network");
        assert!(!all.by_sequence && all.count() == u64::MAX && !all.is_joined());
        for next in [1, 7, u64::MAX] {
            let gap = Gap::interval("bank0", next, 10..=20, ABSENT);
            assert_eq!((gap.first, gap.last, gap.from, gap.to, gap.count()), (next, next - 1, 10, 20, 0));
        }
        let unknown = unknown_of("bank0");
        assert!(unknown.by_sequence && (unknown.first, unknown.last) == (1, 0));
        assert_eq!((unknown.from, unknown.to), (i64::MIN, i64::MAX));
    }
}
