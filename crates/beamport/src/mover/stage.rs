//! A thread that runs one stage. A stage that fails or panics is started again, alone, with growing pauses; what it had
//! published stays.

use super::poller::raise;
use crate::file::Code;
use flow::{Fault, StreamView};
use serde_json::{Value, json};
use std::any::Any;
use std::collections::VecDeque;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest pause between two looks at the stop flag.
pub(super) const NAP: Duration = Duration::from_millis(20);
/// First pause before a failed stage is started again.
pub(super) const BACK_OFF_MIN: Duration = Duration::from_millis(100);
/// Longest such pause. A stage that worked for as long before it failed begins with the shortest.
pub(super) const BACK_OFF_MAX: Duration = Duration::from_secs(10);
/// Least time between two warnings of one stage: a full device may come and go many times a second.
const WARN_PAUSE: Duration = Duration::from_secs(10);

/// How a stage and the mover speak to each other: the stage publishes its view and its fault, the mover gives orders.
#[derive(Clone, Default)]
pub(super) struct StageHandle(Arc<Shared>);

/// State that both sides of a [`StageHandle`] share.
#[derive(Default)]
struct Shared {
    view: Mutex<Option<StreamView>>,
    /// There is a fault. The stage alone sets it, and mostly there is none.
    is_troubled: AtomicBool,
    trouble: Mutex<Option<Fault>>,
    warned: Mutex<Option<Instant>>,
    /// The present fault is in the log, and its end belongs there too.
    is_logged: AtomicBool,
    /// Why it has processed nothing since it started, or what a source has had nothing of.
    silent: Mutex<Option<Fault>>,
    /// There are orders: a receiver asks for each source after each step.
    has_orders: AtomicBool,
    /// Of a worker: it is paused by command.
    is_paused: AtomicBool,
    /// Of a worker: it has ended by command.
    is_removed: AtomicBool,
    orders: Mutex<VecDeque<Order>>,
    code: Mutex<Option<Value>>,
    status: Mutex<Option<Value>>,
}

/// A command to a stage that runs.
pub(super) struct Order {
    pub what: What,
    /// Takes the answer, once what was changed survives what the worker's commits survive.
    pub answer: Sender<Result<Value, Fault>>,
}

/// A command to a running stage.
pub(super) enum What {
    /// A source: to answer a request, see [`flow::Source::command`].
    Ask(Value),
    /// A worker: other parameters (`null` takes one away), and so many slots.
    Change { parameters: serde_json::Map<String, Value>, slots: Option<u32> },
    /// A worker: other code, with all its parameters and so many slots.
    CutOver { code: Code, parameters: Value, slots: u32 },
    /// A worker: to answer when its code is loaded, or cannot be.
    Report,
    /// A worker: to begin no message, or to go on.
    Pause(bool),
    /// A worker: to reset its statistics.
    Reset,
    /// A worker: to process once more what it has set aside.
    Retry,
    /// A worker: to end.
    Remove,
}

fn of<T: Clone>(place: &Mutex<Option<T>>) -> Option<T> {
    place.lock().unwrap_or_else(|p| p.into_inner()).clone()
}

fn set<T>(place: &Mutex<Option<T>>, value: Option<T>) {
    *place.lock().unwrap_or_else(|p| p.into_inner()) = value;
}

impl StageHandle {
    /// The state that the keeper of runs needs; none until the stream is open.
    pub(super) fn view(&self) -> Option<StreamView> {
        of(&self.0.view)
    }

    /// Why it cannot work at present.
    pub(super) fn trouble(&self) -> Option<Fault> {
        of(&self.0.trouble)
    }

    /// Records why the code of a worker has not answered since it started, or why a source has received nothing.
    pub(super) fn set_silent(&self, silent: Option<Fault>) {
        set(&self.0.silent, silent);
    }

    /// Why the code of a worker never started, or why a source has received nothing.
    pub(super) fn silence(&self) -> Option<Fault> {
        of(&self.0.silent)
    }

    /// Gives it a command.
    pub(super) fn order(&self, order: Order) {
        let mut orders = self.0.orders.lock().unwrap_or_else(|p| p.into_inner());
        orders.push_back(order);
        self.0.has_orders.store(true, Ordering::Release);
    }

    /// Whether there are commands.
    pub(super) fn has_orders(&self) -> bool {
        self.0.has_orders.load(Ordering::Acquire)
    }

    /// Takes the oldest command.
    pub(super) fn next_order(&self) -> Option<Order> {
        if !self.has_orders() {
            return None;
        }
        let mut orders = self.0.orders.lock().unwrap_or_else(|p| p.into_inner());
        let order = orders.pop_front();
        self.0.has_orders.store(!orders.is_empty(), Ordering::Release);
        order
    }

    /// Whether a worker is paused.
    pub(super) fn is_paused(&self) -> bool {
        self.0.is_paused.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub(super) fn set_paused(&self, is_paused: bool) {
        self.0.is_paused.store(is_paused, Ordering::Relaxed);
    }

    /// Whether a worker has ended by command.
    pub(super) fn is_removed(&self) -> bool {
        self.0.is_removed.load(Ordering::Acquire)
    }

    /// Sets it.
    pub(super) fn set_removed(&self) {
        self.0.is_removed.store(true, Ordering::Release);
    }

    /// Which code a worker runs now.
    pub(super) fn code(&self) -> Option<Value> {
        of(&self.0.code)
    }

    /// Sets it.
    pub(super) fn runs(&self, code: Value) {
        set(&self.0.code, Some(code));
    }

    /// Publishes the status of its source or live sink; of a worker that has ended, what its slots counted.
    pub(super) fn publish_status(&self, status: Value) {
        set(&self.0.status, Some(status));
    }

    /// The status that was published last.
    pub(super) fn status(&self) -> Option<Value> {
        of(&self.0.status)
    }

    /// What `status` answers about the stage: `{"kind", "status", "trouble", "blocked", "paused"}`, null where there is
    /// nothing.
    pub(super) fn to_json(&self, kind: &str) -> Value {
        let trouble = of(&self.0.trouble).as_ref().map(Fault::to_json);
        let is_blocked = self.view().is_some_and(|view| view.is_blocked);
        let is_paused = self.is_paused();
        json!({
            "kind": kind, "status": of(&self.0.status), "trouble": trouble, "blocked": is_blocked, "paused": is_paused,
        })
    }

    /// Publishes how far its stream is.
    pub(super) fn publish_view(&self, view: StreamView) {
        set(&self.0.view, Some(view));
    }

    /// Lets `show` bring that up to date.
    pub(super) fn update_view(&self, show: impl FnOnce(&mut Option<StreamView>)) {
        show(&mut self.0.view.lock().unwrap_or_else(|p| p.into_inner()));
    }

    /// Sets or clears its present fault, and logs a fault at most every 10 s.
    pub(super) fn set_fault(&self, fault: Option<Fault>) {
        if fault.is_none() && !self.0.is_troubled.load(Ordering::Relaxed) {
            return;
        }
        self.0.is_troubled.store(fault.is_some(), Ordering::Relaxed);
        if fault.is_none()
            && self.0.is_logged.swap(false, Ordering::Relaxed)
            && let Some(passed) = self.trouble()
        {
            tracing::info!(fault = passed.what, "a fault has passed");
        }
        let is_due = of(&self.0.warned).is_none_or(|at| at.elapsed() > WARN_PAUSE);
        if let Some(fault) = fault.as_ref().filter(|_| is_due) {
            tracing::warn!("{fault}");
            set(&self.0.warned, Some(Instant::now()));
            self.0.is_logged.store(true, Ordering::Relaxed);
        }
        set(&self.0.trouble, fault);
    }

    /// Sets the fault that ended it until it is started again, and logs it. The status was that of what has ended.
    pub(super) fn fail(&self, fault: Fault) {
        tracing::warn!("{fault}");
        set(&self.0.status, None);
        self.0.is_troubled.store(true, Ordering::Relaxed);
        self.0.is_logged.store(true, Ordering::Relaxed);
        set(&self.0.trouble, Some(fault));
    }
}

/// A duration as the streams count it.
pub(super) fn ns(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

/// Waits until the streams of all inputs are there. False: the stage is to end.
pub(super) fn wait_for(inputs: &[StageHandle], stop: &AtomicBool) -> bool {
    while inputs.iter().any(|input| input.view().is_none()) {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

/// A stage's thread as the mover sees it.
pub(super) struct StageThread {
    /// Of its stage.
    pub(super) handle: StageHandle,
    /// None of a stage that shares the thread of one before it.
    thread: Option<JoinHandle<()>>,
    /// The eventfd that wakes the thread, where it sleeps for longer than [`NAP`].
    wake: Option<Arc<File>>,
}

impl StageThread {
    /// Starts a thread that calls `run` until it ends in order. `kind` and `name` as in the section's header.
    pub(super) fn start(
        kind: &'static str,
        name: &str,
        stop: &Arc<AtomicBool>,
        run: impl FnMut(&StageHandle) -> Result<(), Fault> + Send + 'static,
    ) -> Result<Self, Fault> {
        let handle = StageHandle::default();
        let (stop, of_thread, name_of_thread) = (stop.clone(), handle.clone(), name.to_owned());
        let thread = std::thread::Builder::new().name(format!("{kind} {name}"));
        let thread = thread.spawn(move || keep_running((kind, &name_of_thread), &stop, &of_thread, run));
        let thread = thread.map_err(|e| Fault::new(format!("cannot start {kind} `{name}`"), e))?;
        Ok(Self { handle, thread: Some(thread), wake: None })
    }

    /// The same with an eventfd that wakes the thread.
    pub(super) fn woken_by(self, wake: Arc<File>) -> Self {
        Self { wake: Some(wake), ..self }
    }

    /// A stage in the thread of a receiver, which its first source has.
    pub(super) fn shared(handle: StageHandle, thread: Option<JoinHandle<()>>, wake: &Arc<File>) -> Self {
        Self { handle, thread, wake: Some(wake.clone()) }
    }

    /// Makes the thread look at what is asked of it.
    pub(super) fn wake(&self) {
        if let Some(wake) = self.wake.as_ref().filter(|_| self.thread.is_some()) {
            raise(wake);
        }
    }

    /// Gives the stage a command, and wakes its thread.
    pub(super) fn order(&self, order: Order) {
        self.handle.order(order);
        if let Some(wake) = &self.wake {
            raise(wake);
        }
    }

    /// Waits for the end of the thread (after the stop flag was set): its stream is closed then.
    pub(super) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn keep_running(
    (kind, name): (&'static str, &str),
    stop: &AtomicBool,
    handle: &StageHandle,
    mut run: impl FnMut(&StageHandle) -> Result<(), Fault>,
) {
    let mut pause = BACK_OFF_MIN;
    while !stop.load(Ordering::Relaxed) {
        let begin = Instant::now();
        let fault = match catch_unwind(AssertUnwindSafe(|| run(handle))) {
            Ok(Ok(())) => return,
            Ok(Err(fault)) => fault,
            Err(panic) => broke(kind, name, &*panic),
        };
        handle.fail(fault);
        log_restart(kind, name, pause);
        if begin.elapsed() >= BACK_OFF_MAX {
            pause = BACK_OFF_MIN;
        }
        nap(pause, stop);
        pause = (pause * 2).min(BACK_OFF_MAX);
    }
}

/// Logs that a stage which has failed is started again after a pause.
pub(super) fn log_restart(kind: &str, name: &str, pause: Duration) {
    tracing::info!(kind, name, pause_s = pause.as_secs_f64(), "a stage will be started again");
}

/// The fault for a panic of a stage.
pub(super) fn broke(kind: &str, name: &str, panic: &(dyn Any + Send)) -> Fault {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    Fault::new(format!("{kind} `{name}` panicked"), text).hint(format!("this is a bug of the {kind}; it is restarted"))
}

/// Sleeps, but for the stop flag.
pub(super) fn nap(mut left: Duration, stop: &AtomicBool) {
    while !left.is_zero() && !stop.load(Ordering::Relaxed) {
        let nap = left.min(NAP);
        std::thread::sleep(nap);
        left -= nap;
    }
}
