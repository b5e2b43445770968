//! Cut-over: a worker changes to the code of its shadow, from an exact message on. Decision 0014.
//!
//! Two halves. In the thread of the worker ([`CutOver`]) the work under way is finished, the commit that names the new
//! code is awaited, and its slots are replaced. Before that, in a thread of its own ([`Underway`]), since code may take
//! long to load and runs must be supervised meanwhile, the shadow is asked for its code, that is loaded once, and the
//! outputs of both are compared.
//!
//! Failure behaviour: faults of the new code are reported before anything is changed. Old code that does not finish its
//! work in time stays. Old slots that die before they answer anything are not restarted: the new code begins with their
//! messages.

use super::stage::{NAP, Order, StageHandle, What};
use super::workers::{self, Slots};
use crate::compare::{self, Comparison};
use crate::file::{Code, WorkerSection, nearest};
use flow::{Boundary, Data, Fault, Work};
use serde_json::{Value, json};
use settings::shortened;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the old code may take for what it has, beyond the time for a message.
const PATIENCE: Duration = Duration::from_secs(30);
/// The same with that time: who asked waits for the answer.
const PATIENCE_MAX: Duration = Duration::from_secs(300);
/// How long slots may take to end before they are killed: they have nothing to do.
const FAREWELL: Duration = Duration::from_secs(5);
/// Messages that are compared at most: the newest.
const COMPARED: u64 = 10_000;

/// How far it is.
enum Phase {
    /// Blocks are under way.
    Draining { until: Instant },
    /// All is done by the old code; the commit that says so is not safe.
    Committing { block: u64, from: Vec<Boundary>, output: u64 },
    /// The slots of the old code end.
    Replacing { until: Instant },
}

/// A cut-over in the thread of the worker.
pub(super) struct CutOver {
    code: Code,
    parameters: Value,
    slots: u32,
    answer: Sender<Result<Value, Fault>>,
    phase: Phase,
}

impl CutOver {
    /// Of a worker that is held from now on. `time_max`: how long its code may take for a message.
    pub(super) fn new(
        (code, parameters, slots): (Code, Value, u32),
        time_max: Duration,
        answer: Sender<Result<Value, Fault>>,
    ) -> Self {
        let until = Instant::now() + (time_max + PATIENCE).min(PATIENCE_MAX);
        Self { code, parameters, slots, answer, phase: Phase::Draining { until } }
    }

    /// Slots may start: those of the old code, as long as they work.
    pub(super) fn starts(&self, slots: &Slots<'_>) -> bool {
        matches!(self.phase, Phase::Draining { .. }) && !slots.fail()
    }

    /// Goes on as far as it can; true when it is over, one way or the other. `ends`: the instrument does.
    pub(super) fn step(&mut self, work: &mut Work, slots: &mut Slots<'_>, ends: bool) -> Result<bool, Fault> {
        match &self.phase {
            Phase::Draining { until } => {
                if work.is_quiet() && !ends {
                    let code = self.code.to_json().to_string();
                    let from = work.cut_over(&code, &self.parameters.to_string(), self.slots)?;
                    let output = work.writer().next_sequence();
                    self.phase = Phase::Committing { block: work.change(), from, output };
                } else if ends || Instant::now() > *until {
                    work.hold(false);
                    let what = format!("worker `{}` was not cut over", work.name());
                    let cause = match ends {
                        true => "the instrument is ending".to_owned(),
                        false => "the old code has not finished its messages".to_owned(),
                    };
                    let hint = "the old code stays; run `beamport top` to see whether its slots or the readers of \
                                its output are slow";
                    let _ = self.answer.send(Err(Fault::new(what, cause).hint(hint)));
                    return Ok(true);
                } else if slots.fail() && !slots.live() {
                    work.give_back()?;
                }
            }
            Phase::Committing { block, from, output } => {
                if work.is_safe(*block) {
                    let answer = json!({
                        "worker": work.name(),
                        "code": self.code.to_json(),
                        "parameters": self.parameters,
                        "slots": work.slots(),
                        "from": from,
                        "output": output,
                    });
                    let _ = self.answer.send(Ok(answer));
                    slots.stop_all(work)?;
                    self.phase = Phase::Replacing { until: Instant::now() + FAREWELL };
                }
            }
            Phase::Replacing { .. } if !slots.live() => {
                slots.take_over(work)?;
                work.hold(false);
                return Ok(true);
            }
            Phase::Replacing { until } => {
                if Instant::now() > *until {
                    slots.kill_all();
                }
            }
        }
        Ok(false)
    }
}

/// The worker that is to be changed, and its shadow.
pub(super) struct Pair {
    /// The worker.
    pub old: (WorkerSection, StageHandle),
    /// Its shadow.
    pub new: (WorkerSection, StageHandle),
}

impl Pair {
    /// Finds it among the workers that run, by the name of the shadow.
    pub(super) fn of(workers: &[(&WorkerSection, &StageHandle)], name: &str) -> Result<Self, Fault> {
        let what = || format!("cannot cut over to `{}`", shortened(name));
        let find = |name: &str| workers.iter().find(|(section, _)| section.name == name);
        let of = |(section, handle): (&WorkerSection, &StageHandle)| (section.clone(), handle.clone());
        let shadows = || workers.iter().filter(|(w, _)| w.shadow.is_some()).map(|(w, _)| w.name.as_str());
        let hint = || match (nearest(name, shadows()), shadows().collect::<Vec<_>>().as_slice()) {
            (Some(near), _) => format!("did you mean `{near}`?"),
            (None, []) => "this instrument has no shadow: add one with `shadow = \"NAME\"`".to_owned(),
            (None, names) => format!("shadows are {}", shortened(&names.join(", "))),
        };
        let Some(new) = find(name) else {
            return Err(Fault::new(what(), "no such worker").hint(hint()));
        };
        let Some(old) = new.0.shadow.as_ref().and_then(|old| find(&old.value)) else {
            return Err(Fault::new(what(), "this worker is not a shadow").hint(hint()));
        };
        Ok(Self { old: of(*old), new: of(*new) })
    }

    /// Does it, and waits for it.
    fn cut_over(self, data: &Data, stop: &AtomicBool) -> Result<Value, Fault> {
        let (old, new) = (self.old.0, self.new.0);
        let what = || format!("worker `{}` was not cut over to `{}`", old.name, new.name);
        let as_it_is = What::Change { parameters: serde_json::Map::new(), slots: None };
        let now = ordered(&self.new.1, as_it_is, stop, PATIENCE).map_err(|fault| fault.leads_to(what()))?;
        let Some(code) = Code::from_json(&now["code"].to_string()) else {
            return Err(Fault::new(what(), "the code of its shadow is unknown"));
        };
        let (parameters, slots) = (now["parameters"].clone(), now["slots"].as_u64().unwrap_or(1));
        let slots = u32::try_from(slots.max(old.set.value)).unwrap_or(1);
        let mut next = old.clone();
        next.take_code(&code);
        next.parameters.value.0 = parameters.clone();
        next.check_change(&parameters, slots).map_err(|fault| fault.leads_to(what()))?;
        if let Some(why) = next.is_native().then(|| next.alone(&parameters)).flatten().filter(|_| old.inputs.len() > 1)
        {
            return Err(Fault::new(what(), why).hint("it takes one stream: merge them first, `[merge.NAME]`"));
        }
        // A mistake in the new code is reported here.
        let ends = || stop.load(Ordering::Relaxed);
        workers::declared(&data.folder, &next, false, &ends).map_err(|fault| fault.leads_to(what()))?;
        // The user has decided: a failed comparison is reported, and does not prevent the cut-over.
        let goes_on = || !stop.load(Ordering::Relaxed);
        let compared = match compare::compare(data, (&old.name, &new.name), Some(COMPARED), &goes_on) {
            Ok(compared) => serde_json::to_value::<Comparison>(compared).unwrap_or_default(),
            Err(fault) => json!({"fault": fault.to_string()}),
        };
        let order = What::CutOver { code, parameters, slots };
        let patience = PATIENCE_MAX + PATIENCE;
        let mut answer = ordered(&self.old.1, order, stop, patience)?;
        answer["shadow"] = new.name.as_str().into();
        answer["compared"] = compared;
        Ok(answer)
    }
}

/// Gives a worker a command, and waits for the answer.
fn ordered(worker: &StageHandle, what: What, stop: &AtomicBool, patience: Duration) -> Result<Value, Fault> {
    let (answer, answered) = channel();
    worker.order(Order { what, answer });
    let until = Instant::now() + patience;
    loop {
        match answered.recv_timeout(NAP) {
            Ok(answer) => return answer,
            Err(RecvTimeoutError::Timeout) if !stop.load(Ordering::Relaxed) && Instant::now() < until => {}
            Err(_) => {
                let cause = worker.trouble().map_or_else(|| "it is ending".to_owned(), |fault| fault.to_string());
                return Err(Fault::new("a worker does not respond", cause)
                    .hint("run `beamport top` to see which code runs; if it is the old, try again"));
            }
        }
    }
}

/// A cut-over that was asked for.
pub(super) struct Underway {
    result: Receiver<Result<Value, Fault>>,
    handle: Option<JoinHandle<()>>,
}

impl Underway {
    /// Begins it in a thread of its own.
    pub(super) fn begin(pair: Pair, data: &Data, stop: &Arc<AtomicBool>) -> Result<Self, Fault> {
        let (data, stop, (sender, result)) = (data.clone(), stop.clone(), channel());
        let thread = std::thread::Builder::new().name("cut-over".into());
        let handle = thread
            .spawn(move || drop(sender.send(pair.cut_over(&data, &stop))))
            .map_err(|e| Fault::new("the command was refused", e))?;
        Ok(Self { result, handle: Some(handle) })
    }

    /// Its result, once there is one.
    pub(super) fn result(&mut self) -> Option<Result<Value, Fault>> {
        match self.result.try_recv() {
            Ok(result) => Some(result),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                Some(Err(Fault::new("the cut-over panicked", "this is a bug of `beamport up`")))
            }
        }
    }

    /// Waits for its thread, which ends when the instrument does.
    pub(super) fn join(&mut self) {
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}
