//! Passes one recorded stream through a worker, to its end: for `beamport replay --through`.
//!
//! Purpose: the runner and the slots are those of `beamport up`, in a data folder of their own, so that the output is
//! that of an instrument. Constraints: the input waits for the worker and the worker for the reader of its output, so a
//! run of any length takes the memory of its live ends; blocks are complete batches from the first message on, however
//! fast messages come and whichever process is killed. Failure behaviour: code that dies repeatedly before it has
//! answered anything is a fault, not a wait without end.

use super::stage::StageHandle;
use super::workers::{self, Declared};
use crate::file::WorkerSection;
use flow::ledger::Row;
use flow::records::Run;
use flow::{Data, Fault, Intake, IntakeOptions, RunKeeper, Source, Step, WorkOptions, WorkerState, stream_fault};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use store::{Kind, ReadOptions};

/// Longest pause between two looks.
const NAP: Duration = Duration::from_millis(20);
/// Messages of the output read at once.
const READ: usize = 1024;
/// Deaths of each slot without any message done after which the code is given up; a message alone is allowed two.
const DEATHS: u64 = 6;
/// Between two looks at how many died.
const LOOK: Duration = Duration::from_secs(1);

/// A stream and the worker that it passes through.
pub struct Passing<'a> {
    /// The data folder of input and output, which is not that of the run.
    pub data: &'a Data,
    /// The code, and how it runs: one input.
    pub section: &'a WorkerSection,
    /// The run, which code that follows runs sees as it did live.
    pub run: &'a Run,
    /// The declaration of the code.
    pub declared: Declared,
    /// The source of the input, and how its stream is kept.
    pub source: (Box<dyn Source>, IntakeOptions),
}

impl Passing<'_> {
    /// Asks the code of a section what it declares; `ends` is looked at meanwhile.
    pub fn declared(section: &WorkerSection, ends: &dyn Fn() -> bool) -> Result<Declared, Fault> {
        workers::declared(Path::new(""), section, false, ends)
    }
}

/// Plays the source to its end through the code. `see` gets each message of the output in order; `goes_on` is called all
/// the time with how many messages are in the input, and says whether to go on. The answer is the worker's account.
pub fn pass(
    passing: Passing<'_>,
    see: &mut dyn FnMut(&store::Message<'_>),
    goes_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Row, Fault> {
    let Passing { data, section, run, declared, source: (source, options) } = passing;
    let stage = section.name.as_str();
    let fault = |e| stream_fault(stage, e);
    let input = section.inputs.value.first().ok_or_else(|| Fault::new(format!("worker `{stage}` has no input"), ""))?;
    let mut intake = Intake::start(data, input, source, &options, data.media.now())?;
    begin(data, run, &declared)?;
    let handle = StageHandle::default();
    handle.publish_view((&intake).into());
    let stop = Arc::new(AtomicBool::new(false));
    let work = WorkOptions { code_traits: declared.traits, ..workers::options(section) };
    let mut worker = workers::start(data, section, work, (vec![handle.clone()], Vec::new()), &stop)?;
    let played = (|| {
        // Nothing comes before the worker stands in the input, and we in the output: all that comes waits for both.
        while worker.handle.view().is_none() {
            if let Some(trouble) = worker.handle.trouble() {
                return Err(trouble);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let place = ReadOptions { name: "replay".into(), kind: Kind::Counted, early: true, ..ReadOptions::default() };
        let mut output = data.reader(stage, place)?;
        let mut deaths = Deaths::new(section, declared.traits.batch);
        loop {
            let now = data.media.now();
            let step = if intake.ended() { Step::Ended } else { intake.step(now)? };
            if let Some(trouble) = intake.trouble() {
                return Err(trouble);
            }
            handle.publish_view((&intake).into());
            // In this order: what was shown before it ended is read below.
            let has_ended = intake.ended() && worker.handle.view().is_some_and(|view| view.ended);
            let batch = output.read(READ).map_err(fault)?;
            batch.iter().for_each(|message| see(&message));
            let (did, next) = (!batch.is_empty(), batch.next());
            if did {
                output.seek(next);
                output.commit(next);
            }
            if has_ended && !did {
                return Ok(());
            }
            if !goes_on(intake.writer().next_sequence()) {
                return Err(Fault::new(format!("worker `{stage}` has not done all"), "interrupted"));
            }
            deaths.refresh(data, &worker.handle)?;
            match step {
                Step::Again => {}
                _ if did => {}
                Step::At(when) => {
                    let pause = Duration::from_nanos(when.saturating_sub(now).max(0) as u64);
                    intake.wait_room(pause.min(NAP));
                }
                Step::Ended => drop(output.wait(NAP).map_err(fault)?),
            }
        }
    })();
    stop.store(true, Ordering::Relaxed);
    worker.join();
    played?;
    let row = flow::ledger::stage(data, stage)?.pop();
    row.ok_or_else(|| Fault::new(format!("worker `{stage}` has no account"), "it has committed nothing"))
}

/// Begins a run as it was live, for code that follows runs.
fn begin(data: &Data, run: &Run, declared: &Declared) -> Result<(), Fault> {
    if !declared.traits.follows_runs {
        return Ok(());
    }
    let mut runs = RunKeeper::open(data)?;
    runs.set_instrument(&run.instrument);
    runs.begin(&run.name, run.start, run.stops(), Duration::ZERO, &run.metadata, data.media.now()).map(drop)
}

/// How often slots died since a message was done.
struct Deaths {
    stage: String,
    most: u64,
    looked: Instant,
    /// Messages that were done at the last look at which there were more than before, and deaths until then.
    known: (u64, u64),
}

impl Deaths {
    fn new(section: &WorkerSection, batch: u64) -> Self {
        // A batch that kills is halved until it is known which message does, two deaths at a time.
        let each = DEATHS + 2 * u64::from(batch.max(1).ilog2());
        let most = each * section.slots.value;
        Self { stage: section.name.clone(), most, looked: Instant::now(), known: (0, 0) }
    }

    /// Looks whether it is time to give up.
    fn refresh(&mut self, data: &Data, worker: &StageHandle) -> Result<(), Fault> {
        if self.looked.elapsed() < LOOK {
            return Ok(());
        }
        self.looked = Instant::now();
        let Some(trouble) = worker.trouble() else { return Ok(()) };
        // Before it says anything there is nothing to count.
        let Ok(Some(state)) = WorkerState::newest(data, &self.stage) else { return Ok(()) };
        let (messages, deaths) = (state.number("messages"), state.number("restarts"));
        if messages > self.known.0 {
            self.known = (messages, deaths);
        }
        if deaths.saturating_sub(self.known.1) >= self.most { Err(trouble) } else { Ok(()) }
    }
}
