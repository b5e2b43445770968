//! Hooks of code that follows runs, or saves its state.
//!
//! Constraints: for code that does neither nothing of this happens. The state of the code lies in the slot's stream
//! before the answer that speaks of the messages in it ([`flow::Outputs::push_state`]), so that both are there or
//! neither. Between processes the code keeps words: the message behind it, the place of the state, the time up
//! to which runs have ended for it, and the runs that it has begun (three words each: identity, newest member).
//!
//! Failure behaviour: a process that starts restores the state of the last answer that counts. Code with an instance
//! for each run that saves no state is given the earlier members of its runs again, as are members from before the run
//! was known; their results are dropped, because they were answered.

use crate::block::Block;
use crate::limits::{AGAIN_MAX, AGAIN_TIME, NO_PLACE, READ, STATE_SHARE, UNANSWERED_SHARE};
use crate::results::Undone;
use flow::records::Run;
use flow::{Data, Fault, OF_WORKER, Outputs, RunsView, slot_stream, stream_fault};
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::Instant;
use store::{Clock, Entry, ReadOptions, SchemaId};
use wire::bprn::State;
use workers::StatePlaces;

/// The wishes of code beyond being called.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wishes {
    /// It has `begin` or `end`, or an instance for each run.
    pub(crate) follows_runs: bool,
    /// It has an instance for each run.
    pub(crate) per_run: bool,
    /// It has `save` and `restore`.
    pub(crate) saves_state: bool,
    /// It is a class: an instance that starts lacks what earlier ones saw.
    pub(crate) is_class: bool,
    /// It sees a run end, by `end` or by its own instance.
    pub(crate) ends_runs: bool,
}

/// A run that the code has begun.
struct Begun {
    id: [u8; 16],
    /// Time of its newest member that the code was given.
    newest: i64,
}

/// Runs and state of the code of one slot.
pub(crate) struct Hooks {
    data: Data,
    stage: String,
    slot: u32,
    /// It is the only one of its worker.
    is_only: bool,
    input: String,
    wishes: Wishes,
    clock: Clock,
    runs: RunsView,
    /// Steps of runs at the last look.
    steps: u64,
    /// Runs of messages with a time in the range.
    around: Option<(std::ops::Range<i64>, Vec<[u8; 16]>)>,
    /// The runs that the code works for at the moment.
    present: Vec<[u8; 16]>,
    begun: Vec<Begun>,
    /// All runs up to this time have ended for the code.
    passed: i64,
    kept: Vec<u64>,
    /// The message behind the state; none before the first.
    next: Option<u64>,
    places: Option<StatePlaces>,
}

impl Hooks {
    pub(crate) fn new(data: &Data, job: &flow::SlotJob, wishes: Wishes) -> Result<Self, Fault> {
        let input = job.inputs.first().cloned().unwrap_or_default();
        let clock = data.reader_early(&input)?.header().clock;
        let stream = slot_stream(&job.stage, job.number);
        let places = match wishes.saves_state {
            true => Some(StatePlaces::open(data, &job.stage, job.number, &input)?),
            false => {
                // States that earlier code saved would be held for ever.
                data.release(&stream, &format!("keeps {}", job.stage))?;
                None
            }
        };
        Ok(Self {
            data: data.clone(),
            stage: job.stage.clone(),
            slot: job.number,
            is_only: job.slots == 1 && job.inputs.len() == 1,
            input,
            wishes,
            clock,
            runs: RunsView::early(data),
            steps: 0,
            around: None,
            present: Vec::new(),
            begun: Vec::new(),
            passed: i64::MIN,
            kept: job.kept.clone(),
            next: None,
            places,
        })
    }

    /// True if what the code does depends on the messages before.
    pub(crate) fn keeps(&self) -> bool {
        self.wishes.per_run || self.wishes.saves_state
    }

    /// True if the code begins and ends runs.
    pub(crate) fn follows_runs(&self) -> bool {
        self.wishes.follows_runs
    }

    /// Before the first message or time of a process: restores what the code has kept.
    pub(crate) fn prepare(&mut self, code: &Bound<'_, PyAny>, out: &mut Outputs<'_>) -> Result<(), Undone> {
        if self.wishes.saves_state {
            out.answers_with_state();
        }
        if self.wishes.follows_runs {
            self.refresh()?;
        }
        let from = out.next();
        match self.next {
            None => {}
            Some(next) if next > from && self.keeps() => {
                let what = format!("a slot of worker `{}` ends", self.stage);
                let cause = format!("its code has already seen message {from}");
                return Err(Fault::new(what, cause).hint("another process restores the state before it").into());
            }
            Some(_) => return Ok(()),
        }
        self.next = Some(from);
        let words = std::mem::take(&mut self.kept);
        let state = match words.as_slice() {
            [next, place, passed, runs @ ..] if *next <= from => {
                self.passed = *passed as i64;
                self.begun = begun_of(runs);
                self.state_at(*place, *next)?
            }
            _ => None,
        };
        let infos: Vec<String> = self.begun.iter().filter_map(|begun| self.info(&begun.id)).collect();
        let is_restored = match &state {
            Some(bytes) => code.call_method1("restore", (bytes.as_slice(), infos))?.extract()?,
            None => false,
        };
        if is_restored {
            return Ok(());
        }
        if self.wishes.is_class && self.is_only && !self.wishes.per_run {
            code.call_method1("miss", (self.missed(from)?,))?;
        }
        for Begun { id, newest } in std::mem::take(&mut self.begun) {
            self.begin(code, &id, from)?;
            self.begun.push(Begun { id, newest });
        }
        Ok(())
    }

    /// Messages of the input that earlier processes were given.
    fn missed(&self, from: u64) -> Result<u64, Fault> {
        let input = flow::inputs_of(&self.data, &self.stage)?.into_iter().find(|input| input.stream == self.input);
        Ok(input.map_or(0, |input| from.saturating_sub(input.first)))
    }

    /// The state at a place of the slot's stream, which has all messages below `next`.
    fn state_at(&mut self, place: u64, next: u64) -> Result<Option<Vec<u8>>, Fault> {
        let Some(places) = self.places.as_mut().filter(|_| place != NO_PLACE) else { return Ok(None) };
        let stream = slot_stream(&self.stage, self.slot);
        let (_, bytes) = match self.data.reader_early(&stream)?.get(place) {
            Ok(Some(message)) => message,
            Ok(None) | Err(store::Error::Gone { .. } | store::Error::Corrupt { .. } | store::Error::Lost { .. }) => {
                return Ok(None);
            }
            Err(e) => return Err(stream_fault(&stream, e)),
        };
        places.restart(place, next);
        Ok(Some(bytes))
    }

    /// Reads new steps of runs.
    fn refresh(&mut self) -> Result<(), Fault> {
        self.runs.refresh()?;
        if self.runs.steps() != self.steps {
            (self.steps, self.around) = (self.runs.steps(), None);
            if !self.wishes.ends_runs {
                // Nothing else says that it is over.
                let runs = &self.runs;
                let is_open = |run: &Run| run.state != State::Sealed;
                self.begun.retain(|begun| runs.runs().iter().any(|run| run.id == begun.id && is_open(run)));
            }
        }
        Ok(())
    }

    fn run(&self, id: &[u8; 16]) -> Option<&Run> {
        self.runs.runs().iter().find(|run| run.id == *id)
    }

    /// A run as JSON.
    fn info(&self, id: &[u8; 16]) -> Option<String> {
        serde_json::to_string(self.run(id)?).ok()
    }

    /// The time of a message, by which it belongs to runs.
    pub(crate) fn time(&self, entry: &Entry) -> i64 {
        self.clock.time_of(entry)
    }

    /// The runs, oldest first, to which a message of a time belongs.
    pub(crate) fn runs_at(&mut self, time: i64) -> &[[u8; 16]] {
        if self.around.as_ref().is_none_or(|(range, _)| !range.contains(&time)) {
            let mut range = i64::MIN..i64::MAX;
            let passed = self.passed;
            for edge in self.runs.runs().iter().flat_map(|run| [run.start, run.stop]) {
                match edge <= time {
                    true => range.start = range.start.max(edge),
                    false => range.end = range.end.min(edge),
                }
            }
            let is_of = |run: &&Run| run.holds(time) && run.stop > passed;
            let ids = self.runs.runs().iter().filter(is_of).map(|run| run.id).collect();
            self.around = Some((range, ids));
        }
        self.around.as_ref().map_or(&[], |(_, ids)| ids)
    }

    /// Before the code is called with messages of these runs, the first of them at `sequence`: begins those that have
    /// not begun. False: they are of no run, and the code has an instance for each run alone.
    pub(crate) fn enter(&mut self, code: &Bound<'_, PyAny>, (time, sequence): (i64, u64)) -> Result<bool, Undone> {
        if !self.wishes.follows_runs {
            return Ok(true);
        }
        let ids = self.runs_at(time).to_vec();
        for id in &ids {
            if self.begun.iter().all(|begun| begun.id != *id) {
                self.begin(code, id, sequence)?;
                self.begun.push(Begun { id: *id, newest: time });
            }
        }
        if ids != self.present {
            let names: Vec<String> = ids.iter().map(|id| store::hex(id)).collect();
            code.call_method1("enter", (names,))?;
            self.present = ids;
        }
        for begun in self.begun.iter_mut().filter(|begun| self.present.contains(&begun.id)) {
            begun.newest = begun.newest.max(time);
        }
        Ok(!self.wishes.per_run || !self.present.is_empty())
    }

    /// Begins a run; code with an instance for it is given its members before a message.
    fn begin(&mut self, code: &Bound<'_, PyAny>, id: &[u8; 16], before: u64) -> Result<(), Undone> {
        let Some(run) = self.run(id).cloned() else { return Ok(()) };
        let info = self.info(id).unwrap_or_default();
        code.call_method1("begin", (info,))?;
        self.present.clear();
        if self.wishes.per_run {
            let missed = self.again(code, &run, before)?;
            if missed > 0 {
                code.call_method1("miss", (missed,))?;
            }
        }
        Ok(())
    }

    /// Gives the code the members of a run before a message. Returns how many it could not be given.
    fn again(&mut self, code: &Bound<'_, PyAny>, run: &Run, before: u64) -> Result<u64, Undone> {
        let fault = |e| Undone::from(stream_fault(&self.input, e));
        let mut reader = self.data.reader(&self.input, ReadOptions { early: true, ..ReadOptions::default() })?;
        let bounds = reader.bounds();
        let known = run.streams.iter().find(|range| range.stream == self.input && range.uuid == reader.header().uuid);
        // Where its members can begin, as was noted when it began.
        let begins = known.map_or(bounds.first, |range| range.first.min(before));
        let mut missed = bounds.first.saturating_sub(begins);
        let mut at = begins.max(bounds.first);
        if self.clock == Clock::Epoch {
            let (first, next) = reader.time_range(run.start, run.stop).map_err(fault)?;
            at = if first < next { first } else { before };
        }
        let id = store::hex(&run.id);
        let (began, mut given) = (Instant::now(), 0);
        code.call_method1("enter", (vec![id],))?;
        while at < before {
            let max = usize::try_from(before - at).unwrap_or(READ).min(READ);
            let (sequences, clock) = (at, self.clock);
            let entries = reader.entries(at, max).map_err(fault)?.to_vec();
            if entries.is_empty() {
                break;
            }
            let is_member = |entry: &Entry| run.holds(clock.time_of(entry));
            at += entries.len() as u64;
            if given >= AGAIN_MAX || began.elapsed() > AGAIN_TIME {
                missed += entries.iter().filter(|entry| is_member(entry)).count() as u64;
                continue;
            }
            let origins: Arc<[Arc<str>]> =
                reader.origins().map_err(fault)?.iter().map(|name| name.as_str().into()).collect();
            for (sequence, _) in (sequences..at).zip(&entries).filter(|(_, entry)| is_member(entry)) {
                reader.seek(sequence);
                let Ok(batch) = reader.read(1) else {
                    missed += 1;
                    continue;
                };
                let mut block = Block::new(origins.clone());
                block.add(&batch);
                let Some(message) = Arc::new(block).message(0) else { continue };
                code.call_method1("again", (message,))?;
                given += 1;
            }
        }
        Ok(missed)
    }

    /// The input is complete up to a time: runs that have ended by then. The answer is their results, each with the
    /// entry in place of a message.
    pub(crate) fn pass_time<'py>(
        &mut self,
        code: &Bound<'py, PyAny>,
        time: i64,
        number: u64,
    ) -> PyResult<Vec<(Entry, Bound<'py, PyAny>)>> {
        let mut results = Vec::new();
        for Begun { id, newest } in std::mem::take(&mut self.begun) {
            let stop = self.run(&id).map_or(i64::MAX, |run| run.stop);
            if stop > time && time < i64::MAX {
                self.begun.push(Begun { id, newest });
                continue;
            }
            let info = self.info(&id).unwrap_or_default();
            let value = code.call_method1("end", (store::hex(&id), info))?;
            // A member of the run, so that it is in its file.
            let at = if stop < i64::MAX { stop - 1 } else { newest };
            results.push((entry_of(at, number + results.len() as u64), value));
        }
        // Where the input has ended, runs without a stop may still get one.
        let stops = self.runs.runs().iter().map(|run| run.stop).filter(|stop| *stop < i64::MAX);
        self.passed = self.passed.max(if time < i64::MAX { time } else { stops.max().unwrap_or(i64::MIN) });
        (self.around, self.present) = (None, Vec::new());
        Ok(results)
    }

    /// Saves the state where results without an answer fill much of the slot's stream, and answers.
    pub(crate) fn relieve(&mut self, code: &Bound<'_, PyAny>, out: &mut Outputs<'_>) -> Result<(), Undone> {
        if self.wishes.saves_state && out.unanswered_bytes() > out.live_bytes() / UNANSWERED_SHARE {
            self.save(code, out, false)?;
            out.answer().map_err(Undone::Stop)?;
        }
        Ok(())
    }

    /// Saves what the code keeps behind all messages that have their end. `always`: also where none has ended since.
    pub(crate) fn save(&mut self, code: &Bound<'_, PyAny>, out: &mut Outputs<'_>, always: bool) -> Result<(), Undone> {
        let next = out.ended();
        if !self.wishes.ends_runs && !self.wishes.saves_state || !always && self.next == Some(next) {
            return Ok(());
        }
        let mut place = NO_PLACE;
        if let Some(places) = &mut self.places {
            let began = Instant::now();
            let bytes: Vec<u8> = code.call_method0("save")?.extract()?;
            let most = out.live_bytes() / STATE_SHARE;
            if bytes.len() as u64 > most {
                let what = format!("the state of worker `{}` is too large", self.stage);
                let cause = format!("`save` returned {} B, and its slot has room for {most} B", bytes.len());
                let mib = (bytes.len() as u64 * STATE_SHARE).div_ceil(1 << 20);
                return Err(Fault::new(what, cause).hint(format!("write `slot_live = \"{mib} MiB\"`")).into());
            }
            let spent = i64::try_from(began.elapsed().as_nanos()).unwrap_or(i64::MAX);
            place = out.push_state(&bytes, spent).map_err(Undone::Stop)?;
            // Behind time that has passed: that it is committed is known with the next message.
            places.push(place, next + u64::from(always));
            places.release();
        }
        let runs = self.begun.iter().flat_map(|begun| {
            let (low, high) = halves(&begun.id);
            [low, high, begun.newest as u64]
        });
        out.keep(&[next, place, self.passed as u64].into_iter().chain(runs).collect::<Vec<_>>());
        self.next = Some(next);
        Ok(())
    }
}

/// The entry of the end of a run.
fn entry_of(time: i64, number: u64) -> Entry {
    Entry {
        source_time: time,
        arrival_time: time,
        origin_seq: number,
        parent_sequence: 0,
        origin: OF_WORKER,
        schema: SchemaId([0; 4]),
        segment: 0,
        offset8: 0,
        length: 0,
        payload_crc: 0,
        flags: 0,
        parent: 0,
        crc: 0,
    }
}

fn halves(id: &[u8; 16]) -> (u64, u64) {
    let all = u128::from_le_bytes(*id);
    (all as u64, (all >> 64) as u64)
}

/// Runs from the words of a state.
fn begun_of(words: &[u64]) -> Vec<Begun> {
    let begun = |words: &[u64]| match *words {
        [low, high, newest] => {
            Some(Begun { id: (u128::from(low) | u128::from(high) << 64).to_le_bytes(), newest: newest as i64 })
        }
        _ => None,
    };
    words.chunks(3).filter_map(begun).collect()
}
