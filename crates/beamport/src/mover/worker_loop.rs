//! The thread of a worker: it steps the runner, keeps the processes of its slots running, and carries out orders.
//!
//! An order is answered when what it changes is safe. Messages aside are retried through a stream of their own; the
//! runner is opened once more with that stream as an input at the first such order.

use super::code::Copies;
use super::cutover::CutOver;
use super::stage::{self, NAP, Order, StageHandle, What};
use super::workers::{Declared, Slots};
use crate::file::WorkerSection;
use flow::{Data, Fault, UpstreamState, Work, WorkOptions, commits};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

/// How long slots may take to end what they have when the worker ends.
const FAREWELL: Duration = Duration::from_secs(5);

/// Takes an answer.
type Answer = Sender<Result<Value, Fault>>;

/// Runs the worker of a section until `stop`, or until it is removed.
pub(super) fn run(
    data: &Data,
    (section, options): (&WorkerSection, &WorkOptions),
    copies: &mut Copies,
    inputs: &[StageHandle],
    stop: &Arc<AtomicBool>,
    handle: &StageHandle,
) -> Result<(), Fault> {
    if !stage::wait_for(inputs, stop) {
        return Ok(());
    }
    let mut retries = !options.by_blocks && options.shadow.is_none() && data.has(&flow::retry_of(&section.name))?;
    let mut first = None;
    loop {
        let options = WorkOptions { retries, ..options.clone() };
        let slots = Slots::new(data, section.clone(), &options, copies);
        let mut worker = WorkerLoop::open(data, slots, &options, (inputs, stop, handle), first.take())?;
        match worker.run()? {
            End::Stopped => return Ok(()),
            End::Removed(answer) => {
                drop(worker);
                section
                    .inputs
                    .value
                    .iter()
                    .chain(&section.side_inputs)
                    .try_for_each(|stream| release(data, stream, &section.name))?;
                handle.set_removed();
                let _ = answer.send(Ok(json!({"worker": section.name})));
                return Ok(());
            }
            End::Retries(order) => (first, retries) = (Some(order), true),
        }
    }
}

/// Has a stream wait no longer for a worker, its slots and its views.
fn release(data: &Data, stream: &str, worker: &str) -> Result<(), Fault> {
    let reader = data.reader_early(stream)?;
    let pins = reader.pins();
    let is_its = |name: &str| !name.is_empty() && commits::stage_of_reader(name) == worker;
    pins.readers().iter().filter(|its| is_its(&its.name)).for_each(|its| {
        pins.remove(data.media.as_ref(), &its.name);
    });
    Ok(())
}

/// Why the loop of a worker has ended.
enum End {
    Stopped,
    /// By command, which is answered when its inputs no longer wait for it.
    Removed(Answer),
    /// It begins again with its messages aside as an input, and this order.
    Retries(Order),
}

/// A change that waits for what the code says to it.
struct Asking {
    parameters: Map<String, Value>,
    count: Option<u32>,
    answer: Answer,
    said: Receiver<Result<(), Fault>>,
}

/// A worker at work.
struct WorkerLoop<'a> {
    data: &'a Data,
    slots: Slots<'a>,
    work: Work,
    inputs: &'a [StageHandle],
    stop: &'a Arc<AtomicBool>,
    handle: &'a StageHandle,
    retries: bool,
    /// It ends: why, and when slots are no longer waited for.
    ending: Option<(End, Instant)>,
    /// Answers that wait until the commit of their change is safe.
    promised: Vec<(u64, Answer, Value)>,
    cutting: Option<CutOver>,
    asking: Option<Asking>,
    declaring: Option<Receiver<Result<Declared, Fault>>>,
    /// Answers that wait for what the code declares.
    reports: Vec<Answer>,
    /// An order that this loop begins with.
    first: Option<Order>,
}

impl<'a> WorkerLoop<'a> {
    fn open(
        data: &'a Data,
        mut slots: Slots<'a>,
        options: &WorkOptions,
        (inputs, stop, handle): (&'a [StageHandle], &'a Arc<AtomicBool>, &'a StageHandle),
        first: Option<Order>,
    ) -> Result<Self, Fault> {
        let mut work = Work::open(data, &slots.section.name, &slots.section.inputs.value, options)?;
        work.pause(handle.is_paused());
        slots.begin(&mut work)?;
        handle.runs(slots.running_code());
        handle.publish_view(work.view());
        let declaring = (options.code_traits.batch == 0).then(|| slots.ask_code(stop));
        let (ending, cutting, asking) = (None, None, None);
        let (promised, reports, retries) = (Vec::new(), Vec::new(), options.retries);
        Ok(Self {
            data,
            slots,
            work,
            inputs,
            stop,
            handle,
            retries,
            ending,
            promised,
            cutting,
            asking,
            declaring,
            reports,
            first,
        })
    }

    fn run(&mut self) -> Result<End, Fault> {
        loop {
            self.obey_orders()?;
            self.answer()?;
            // Read before the streams: a message that an input has reported is in its stream by then.
            let heard = |input: &StageHandle| input.view().as_ref().map_or(UpstreamState::NOTHING, UpstreamState::from);
            let views: Vec<UpstreamState> = self.inputs.iter().map(heard).collect();
            let did = self.work.step(self.data.media.now(), &views)?;
            self.handle.publish_view(self.work.view());
            if self.stop.load(Ordering::Relaxed) && self.ending.is_none() {
                self.end(End::Stopped)?;
            }
            let left = self.supervise()?;
            if let Some((end, _)) = self.ending.take_if(|(_, until)| left == 0 || Instant::now() > *until) {
                // The last answers are published and committed.
                while self.work.step(self.data.media.now(), &views)? {}
                self.handle.publish_view(self.work.view());
                self.handle.publish_status(self.work.last_statistics()?);
                return Ok(end);
            }
            if !did {
                self.work.wait(NAP)?;
            }
        }
    }

    /// Ends all slots; the loop ends when they have.
    fn end(&mut self, end: End) -> Result<(), Fault> {
        self.ending = Some((end, Instant::now() + FAREWELL));
        (0..self.work.slots()).try_for_each(|slot| self.work.stop(slot))
    }

    /// Carries out orders, or begins to: none while one waits for the code, or the worker ends.
    fn obey_orders(&mut self) -> Result<(), Fault> {
        while self.cutting.is_none()
            && self.asking.is_none()
            && self.ending.is_none()
            && let Some(Order { what, answer }) = self.first.take().or_else(|| self.handle.next_order())
        {
            match what {
                // The mover asks sources alone.
                What::Ask(_) => {}
                What::Change { parameters, slots: count } => {
                    let said = self.slots.ask(&self.work, &parameters, self.stop);
                    self.asking = Some(Asking { parameters, count, answer, said });
                }
                What::CutOver { code, parameters, slots: count } => {
                    self.work.hold(true);
                    let time_max = self.slots.section.time_max.value;
                    self.cutting = Some(CutOver::new((code, parameters, count), time_max, answer));
                }
                What::Report => self.reports.push(answer),
                What::Pause(is_paused) => {
                    self.work.pause(is_paused);
                    self.handle.set_paused(is_paused);
                    self.say(&answer, &[("paused", is_paused.into())]);
                }
                What::Reset => {
                    self.work.reset_statistics()?;
                    self.say(&answer, &[]);
                }
                What::Retry => match (self.slots.keeps_order(self.work.code_traits()), self.retries) {
                    (Some(fault), _) => drop(answer.send(Err(fault))),
                    (None, true) => match self.work.retry() {
                        Ok(there) => {
                            let value = json!({"worker": self.slots.section.name, "retried": there});
                            self.promised.push((self.work.change(), answer, value));
                        }
                        Err(fault) => drop(answer.send(Err(fault))),
                    },
                    (None, false) => self.end(End::Retries(Order { what: What::Retry, answer }))?,
                },
                What::Remove => self.end(End::Removed(answer))?,
            }
        }
        Ok(())
    }

    /// Answers an order that is carried out.
    fn say(&self, answer: &Answer, more: &[(&str, Value)]) {
        let mut value = json!({"worker": self.slots.section.name});
        more.iter().for_each(|(name, more)| value[*name] = more.clone());
        let _ = answer.send(Ok(value));
    }

    /// Answers orders that wait for the code, or for a commit.
    fn answer(&mut self) -> Result<(), Fault> {
        if let Some(said) = self.asking.as_ref().and_then(|asking| asking.said.try_recv().ok())
            && let Some(asked) = self.asking.take()
        {
            match said.and_then(|()| self.slots.change(&mut self.work, &asked.parameters, asked.count)) {
                Ok(answer) => self.promised.push((self.work.change(), asked.answer, answer)),
                Err(fault) => drop(asked.answer.send(Err(fault))),
            }
            self.declaring = Some(self.slots.ask_code(self.stop));
        }
        if let Some(said) = self.declaring.as_ref().and_then(|declaring| declaring.try_recv().ok()) {
            let fault = said.as_ref().err().cloned();
            self.slots.learn(&mut self.work, said)?;
            self.declaring = None;
            let fault = fault.or_else(|| self.slots.trouble());
            for answer in std::mem::take(&mut self.reports) {
                match &fault {
                    Some(fault) => drop(answer.send(Err(fault.clone()))),
                    None => self.say(&answer, &[("slots", self.work.slots().into())]),
                }
            }
        } else if self.declaring.is_none() {
            let all = std::mem::take(&mut self.reports);
            all.iter().for_each(|answer| self.say(answer, &[("slots", self.work.slots().into())]));
        }
        // An answer must hold after a restart too: it waits until the change is safe.
        let work = &self.work;
        self.promised.retain(|(block, answer, value)| {
            let is_safe = work.is_safe(*block);
            if is_safe {
                let _ = answer.send(Ok(value.clone()));
            }
            !is_safe
        });
        Ok(())
    }

    /// Steps a cut-over, and keeps the slots running; how many live.
    fn supervise(&mut self) -> Result<usize, Fault> {
        let is_ending = self.ending.is_some();
        let is_done = match &mut self.cutting {
            Some(cutting) => cutting.step(&mut self.work, &mut self.slots, is_ending)?,
            None => false,
        };
        if is_done {
            self.cutting = None;
            self.declaring = Some(self.slots.ask_code(self.stop));
            self.handle.runs(self.slots.running_code());
        }
        let starts = !is_ending && self.cutting.as_ref().is_none_or(|cutting| cutting.starts(&self.slots));
        let left = self.slots.supervise(&mut self.work, starts)?;
        let trouble = self.slots.trouble().or_else(|| self.work.trouble());
        let is_silent = self.slots.fail() && self.work.states().iter().all(|state| state.messages == 0);
        self.handle.set_silent(trouble.clone().filter(|_| is_silent));
        self.handle.set_fault(trouble);
        Ok(left)
    }
}

/// The parameters of a worker with a change: `null` takes one away.
pub(super) fn changed_parameters(work: &Work, changed: &Map<String, Value>) -> Value {
    let mut parameters: Value = serde_json::from_str(work.parameters()).unwrap_or_default();
    if let Some(known) = parameters.as_object_mut() {
        for (name, value) in changed {
            match value {
                Value::Null => drop(known.remove(name)),
                value => drop(known.insert(name.clone(), value.clone())),
            }
        }
    }
    parameters
}
