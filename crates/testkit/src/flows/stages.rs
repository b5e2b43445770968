//! Stages between the sources and the file: a merge by time of all sources, a worker of user code in slots, or both, one
//! behind the other. The mover runs them; each slot is a process of its own.
//!
//! The checks at the end: each message of an input is in the output, aside, or left out because it was to be, once; the
//! output stands in order; the account of each stage closes.

use super::{Checked, Flow, Mover, SECOND};
use crate::{Dice, Slots};
use flow::records::Apart;
use flow::{
    Data, Fault, Intake, Made, Merge, MergeBy, MergeInput, MergeOptions, Outputs, SlotEnd, Stepped, Stop, StreamView,
    UpstreamState, Work, WorkOptions, Worker, aside_of, ledger,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use store::{Batch, Level, Options, ReadOptions, SchemaId};

/// The output of the merge.
const MERGED: &str = "all";
/// The output of the worker.
const WORKED: &str = "peaks";
const MADE: [u8; 4] = *b"made";

/// Which stages a history has.
pub(super) struct Plan {
    merge: Option<(MergeOptions, Vec<MergeInput>)>,
    work: Option<(WorkOptions, &'static str)>,
    slots: Slots<Code>,
    /// Slots that died: a message at which two did is set aside.
    slots_dead: u64,
}

/// Those that run, in the mover.
#[derive(Default)]
pub(super) struct Running {
    merge: Option<Merge>,
    work: Option<Work>,
}

/// The result of a message.
enum Nature {
    Makes(u8),
    Same,
    Filtered,
    Aside,
}

fn nature(number: u64) -> Nature {
    match number % 8 {
        0 => Nature::Makes(2),
        1 => Nature::Filtered,
        2 => Nature::Aside,
        3 => Nature::Makes(1),
        _ => Nature::Same,
    }
}

/// User code: what it makes is the message, behind which one of several it is.
struct Code;

impl Worker for Code {
    fn work(&mut self, batch: &Batch<'_>, out: &mut Outputs<'_>) -> Result<(), Stop> {
        for message in batch.iter().collect::<Vec<_>>() {
            if !out.wants(&message) {
                continue;
            }
            out.begin(&message);
            match nature(message.entry.origin_seq) {
                Nature::Makes(count) => {
                    for which in 0..count {
                        out.push(message.entry, &Made::of(message.entry, MADE), &[&[which], message.payload])?;
                    }
                    out.done(&message);
                }
                Nature::Same => out.same(&message)?,
                Nature::Filtered => out.filtered(&message),
                Nature::Aside => out.aside(&message, "error", "as it was to be")?,
            }
        }
        Ok(())
    }

    fn looks_at_payloads(&self) -> bool {
        true
    }

    fn keeps(&self) -> bool {
        false
    }
}

/// What stands in a stream: source time, origin, number, bytes.
type Shown = (i64, String, u64, Vec<u8>);

impl Plan {
    /// Some histories have no stages, and are what they were before there were any.
    pub(super) fn new(seed: u64, folder: &Path, level: Level, sources: &[&'static str]) -> Self {
        let mut dice = Dice::new(seed.wrapping_mul(0xd6e8_feb8_6659_fd93));
        let output = Options { level, ..Options::disk(1 << 20) };
        let (merges, works) = (sources.len() > 1 && dice.one_in(3), dice.one_in(3));
        let by = MergeBy::Time { slice: SECOND / 100, ahead_max: 60 * SECOND };
        let input = |name: &&str| MergeInput { stream: (*name).into(), wait: SECOND / 5, ..MergeInput::default() };
        let merge = (MergeOptions { stream: output.clone(), by }, sources.iter().map(input).collect());
        let behind = if merges && dice.one_in(2) { MERGED } else { sources[0] };
        let slots = dice.range(1, 3) as u32;
        let work = (WorkOptions { output, ..WorkOptions::memory(slots, 1 << 20) }, behind);
        Self {
            merge: merges.then_some(merge),
            work: works.then_some(work),
            slots: Slots::new(folder, WORKED, &[behind]),
            slots_dead: 0,
        }
    }

    /// There is one at least.
    pub(super) fn is_any(&self) -> bool {
        self.merge.is_some() || self.work.is_some()
    }

    /// Streams that they fill.
    pub(super) fn outputs(&self) -> impl Iterator<Item = &'static str> {
        self.merge.iter().map(|_| MERGED).chain(self.work.iter().map(|_| WORKED))
    }

    /// Opens them, those behind others last.
    pub(super) fn open(&self, data: &Data) -> Result<Running, Fault> {
        let merge = |(options, inputs): &(MergeOptions, Vec<MergeInput>)| Merge::open(data, MERGED, inputs, options);
        let work = |(options, input): &(WorkOptions, &str)| Work::open(data, WORKED, &[(*input).into()], options);
        Ok(Running {
            merge: self.merge.as_ref().map(merge).transpose()?,
            work: self.work.as_ref().map(work).transpose()?,
        })
    }

    /// All that holds maps of the slots, for a power cut.
    pub(super) fn take_slots(&mut self) -> impl Sized {
        self.slots.take()
    }
}

impl Running {
    /// The outputs as the keeper of runs sees them.
    pub(super) fn views(&self) -> impl Iterator<Item = StreamView> {
        self.merge.iter().map(StreamView::from).chain(self.work.iter().map(Work::view))
    }

    /// A step of each; `clock` is never set.
    fn step(&mut self, intakes: &[Intake], now: i64, clock: i64) -> Result<(), Fault> {
        let sources: Vec<StreamView> = intakes.iter().map(StreamView::from).collect();
        let heard: Vec<UpstreamState> = sources.iter().map(UpstreamState::from).collect();
        let mut merged = None;
        if let Some(merge) = &mut self.merge {
            merged = Some(StreamView::from(&*merge));
            merge.step(now, clock, &heard)?;
            merge.drain()?;
        }
        if let Some(work) = &mut self.work {
            let of_merge = merged.filter(|_| work.accounts().all(|input| input.stream == MERGED));
            work.step(now, &[of_merge.as_ref().map_or(heard[0], UpstreamState::from)])?;
        }
        Ok(())
    }

    /// Everything is done that there ever will be.
    pub(super) fn rest(&self) -> bool {
        self.merge.as_ref().is_none_or(|merge| merge.ended() && merge.marked())
            && self.work.as_ref().is_none_or(|work| work.is_idle() && work.view().ended && work.view().marked)
    }
}

impl Flow {
    /// Something of the stages: a step of those in the mover, or of a slot; now and then one is killed.
    pub(super) fn some_stage(&mut self) -> Checked {
        match self.dice.below(20) {
            0..9 => self.stages(),
            9..19 => self.some_slot(),
            _ => {
                let numbers = self.stages.slots.numbers();
                let at = self.dice.below(numbers.len() as u64) as usize;
                numbers.get(at).map_or(Ok(()), |number| self.kill_slot(*number, "at random"))
            }
        }
    }

    /// A step of the stages that the mover runs; slots that do not live start.
    pub(super) fn stages(&mut self) -> Checked {
        let (now, clock) = (self.machine.now(), self.clock);
        let Some(Mover { intakes, stages, .. }) = &mut self.mover else { return Ok(()) };
        let mut stepped = stages.step(intakes, now, clock);
        let mut greeted = Vec::new();
        if let (Some(work), Some((options, _)), Ok(())) = (&mut stages.work, &self.stages.work, &stepped) {
            // Another number than was asked for is a change that a commit speaks of: there is none here.
            debug_assert_eq!(work.slots(), options.slots);
            match self.stages.slots.send_parameters(work) {
                Ok(missing) => greeted = missing,
                Err(e) => stepped = Err(e),
            }
        }
        if let Err(e) = stepped {
            self.may_fail("a stage stops", &e)?;
            self.kill_mover();
            return Ok(());
        }
        for one in greeted {
            let Some((options, _)) = &self.stages.work else { break };
            if let Err(e) = self.stages.slots.start(&self.machine, one, options, |_| Ok(Code)) {
                self.may_fail("a slot does not start", &e)?;
                self.kill_slot(one.0, "it did not start")?;
            }
        }
        Ok(())
    }

    /// A step of one of the slots.
    pub(super) fn some_slot(&mut self) -> Checked {
        let numbers = self.stages.slots.numbers();
        let at = self.dice.below(numbers.len() as u64) as usize;
        let Some(number) = numbers.get(at).copied() else { return Ok(()) };
        match self.stages.slots.step(number, &mut |_| false) {
            Ok(Stepped::Worked | Stepped::Idle | Stepped::Full) => Ok(()),
            Ok(Stepped::Ended) => Err(self.fail(format!("slot {number} ended, and nobody told it to"))),
            Err(e) => {
                self.may_fail("a slot stops", &e)?;
                self.kill_slot(number, &e.cause)
            }
        }
    }

    fn kill_slot(&mut self, number: u32, why: &str) -> Checked {
        self.say(|| format!("slot {number} is killed: {why}"));
        self.deaths += 1;
        self.stages.slots_dead += 1;
        self.stages.slots.kill(&self.machine, number);
        let work = self.mover.as_mut().and_then(|mover| mover.stages.work.as_mut());
        let Some(Err(e)) = work.map(|work| work.died(number, SlotEnd::Killed, why)) else { return Ok(()) };
        self.may_fail("the worker stops", &e)?;
        self.kill_mover();
        Ok(())
    }

    /// The mover is gone, and most slots with it; those that live on are waited for by the next.
    pub(super) fn kill_slots(&mut self) {
        let living = self.stages.slots.numbers();
        if !living.is_empty() {
            self.say(|| format!("slots {living:?} are killed"));
            self.stages.slots_dead += living.len() as u64;
            self.stages.slots.kill_all(&self.machine);
        }
    }

    /// Checks what the stages made. Messages of their outputs.
    pub(super) fn check_stages(&self, data: &Data) -> Checked<u64> {
        let mut made = 0;
        for name in self.stages.outputs() {
            self.check_marks(data, name)?;
            let rows = ledger::stage(data, name).map_err(|e| self.fail(e.to_string()))?;
            for row in &rows {
                if !row.closed || row.held > 0 || !row.lost.is_empty() {
                    return Err(self.fail(format!("{name} at its end: {row:?}")));
                }
            }
        }
        if let Some((_, inputs)) = &self.stages.merge {
            made += self.check_merge(data, inputs)?;
        }
        if let Some((_, input)) = &self.stages.work {
            made += self.check_work(data, input)?;
        }
        Ok(made)
    }

    /// Nothing marked is gone or another.
    fn check_marks(&self, data: &Data, name: &str) -> Checked {
        let Some(noted) = self.noted.iter().find(|noted| noted.name == name) else { return Ok(()) };
        let mut reader = data.reader_early(name).map_err(|e| self.fail(e.to_string()))?;
        let bounds = reader.bounds();
        if bounds.count < noted.upto {
            return Err(self.fail(format!("{name}: {} were marked, {} are there", noted.upto, bounds.count)));
        }
        for (sequence, known) in noted.marked.range(bounds.first..) {
            let entry = reader.entries(*sequence, 1).map_err(|e| self.fail(format!("{name}: {e}")))?.first().copied();
            if entry.is_none_or(|entry| (entry.origin, entry.origin_seq) != *known) {
                return Err(self.fail(format!("{name}: marked message {sequence} is another")));
            }
        }
        Ok(())
    }

    /// The output is in order, and each message of an input stands there or aside, once.
    fn check_merge(&self, data: &Data, inputs: &[MergeInput]) -> Checked<u64> {
        let fault = |e: Fault| self.fail(e.to_string());
        let place = |stream: &str| inputs.iter().position(|input| input.stream == stream);
        let (mut seen, mut all, mut is_whole) = (BTreeSet::new(), 0, true);
        for name in [MERGED.to_owned(), aside_of(MERGED)] {
            let mut reader = data.reader_early(&name).map_err(fault)?;
            let rows = reader.parents().map_err(|e| self.fail(e.to_string()))?;
            let bounds = reader.bounds();
            let (mut newest, mut at) = (None, bounds.first);
            while at < bounds.count {
                let entries = reader.entries(at, 4096).map_err(|e| self.fail(format!("{name}: {e}")))?;
                for entry in entries {
                    let row = rows.get(usize::from(entry.parent).wrapping_sub(1));
                    let Some(input) = row.and_then(|row| place(&row.name)) else {
                        return Err(self.fail(format!("{name}: {entry:?} points nowhere")));
                    };
                    let key = (entry.source_time, input, entry.parent_sequence);
                    if name == MERGED && newest.replace(key).is_some_and(|before| before >= key) {
                        return Err(self.fail(format!("{name}: {key:?} is out of order")));
                    }
                    if !seen.insert((input, entry.parent_sequence)) {
                        return Err(self.fail(format!("{name}: {key:?} is there twice")));
                    }
                }
                at += entries.len() as u64;
            }
            all += bounds.count;
            // Where an input needed room, the oldest were deleted: which of its messages these were is unknown.
            is_whole &= bounds.first == 0;
        }
        for (at, input) in inputs.iter().enumerate() {
            let bounds = data.reader_early(&input.stream).map_err(fault)?.bounds();
            let missing = (bounds.first..bounds.count).find(|sequence| is_whole && !seen.contains(&(at, *sequence)));
            if let Some(missing) = missing {
                return Err(self.fail(format!("message {missing} of {} is in no output", input.stream)));
            }
        }
        Ok(all)
    }

    /// The output is what was to be made of the input, in its order, as far as both are still there.
    fn check_work(&self, data: &Data, input: &str) -> Checked<u64> {
        let mut killed = BTreeMap::new();
        for bytes in data.book_messages(&aside_of(WORKED)).unwrap_or_default() {
            let aside = Apart::read(&bytes).map_err(|e| self.fail(e.to_string()))?;
            let twice = killed.insert(aside.sequence, aside.reason == "killed").is_some();
            if twice || aside.reason == "killed" && self.stages.slots_dead < 2 {
                return Err(self.fail(format!("message {} is aside: {} {}", aside.sequence, aside.reason, aside.text)));
            }
        }
        let mut wanted = Vec::new();
        for (sequence, (time, origin, number, payload)) in (self.first_of(data, input)?..).zip(self.shown(data, input)?)
        {
            let is_aside = killed.get(&sequence).copied();
            let made = |which: u8| (time, origin.clone(), number, [&[which][..], &payload].concat());
            match nature(number) {
                _ if is_aside == Some(true) => {}
                Nature::Makes(count) => wanted.extend((0..count).map(made)),
                Nature::Same => wanted.push((time, origin, number, payload)),
                Nature::Filtered => {}
                Nature::Aside if is_aside.is_some() => {}
                Nature::Aside => return Err(self.fail(format!("message {sequence} of {input} is not aside"))),
            }
        }
        let shown = self.shown(data, WORKED)?;
        // Of both the oldest may have been deleted.
        let count = shown.len().min(wanted.len());
        let (wanted, last) = (&wanted[wanted.len() - count..], &shown[shown.len() - count..]);
        if let Some(at) = (0..count).find(|at| wanted[*at] != last[*at]) {
            let near = |all: &[Shown]| {
                let some = &all[at.saturating_sub(2)..(at + 3).min(count)];
                some.iter().map(|m| (m.0, m.1.clone(), m.2, store::crc32c(&m.3))).collect::<Vec<_>>()
            };
            let (is, was_to_be) = (near(last), near(wanted));
            return Err(self.fail(format!("{WORKED}: {is:?} where {was_to_be:?} was to be, {at} of {count}")));
        }
        Ok(shown.len() as u64)
    }

    fn first_of(&self, data: &Data, stream: &str) -> Checked<u64> {
        data.reader_early(stream).map(|reader| reader.bounds().first).map_err(|e| self.fail(e.to_string()))
    }

    /// All that stands in a stream.
    fn shown(&self, data: &Data, stream: &str) -> Checked<Vec<Shown>> {
        let options = ReadOptions { early: true, ..ReadOptions::default() };
        let mut reader = data.reader(stream, options).map_err(|e| self.fail(e.to_string()))?;
        reader.seek(reader.bounds().first);
        let names = reader.origins().map_err(|e| self.fail(e.to_string()))?.to_vec();
        let mut all = Vec::new();
        loop {
            let batch = reader.read(1000).map_err(|e| self.fail(format!("{stream}: {e}")))?;
            if batch.is_empty() {
                return Ok(all);
            }
            for m in batch.iter() {
                debug_assert!([SchemaId(MADE), SchemaId(*b"test")].contains(&m.entry.schema));
                let origin = names.get(m.entry.origin as usize).cloned().unwrap_or_default();
                all.push((m.entry.source_time, origin, m.entry.origin_seq, m.payload.to_vec()));
            }
        }
    }
}
