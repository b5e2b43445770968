//! The source: takes the datagrams of its ports, and makes messages of them.
//!
//! Constraints: of many ports one descriptor (`epoll`) says which have something; a step looks at these alone, and at
//! all of them every 50 ms.

use crate::account::NumberAccount;
use crate::framing::Cut;
use crate::limits::{BATCH as DATAGRAMS, FILE_PAUSE, FULL_PAUSE, IDLE_PAUSE, STEP_DATAGRAMS};
use crate::plan::{Address, Plan};
use crate::port::{ForeignDatagrams, Port, Turn};
use crate::socket::{Batch, Poll};
use crate::throttle::Control;
use flow::{Fault, Outlet, Resume, Source, Step};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::time::Duration;

thread_local! {
    /// Sources of one thread use it in turns.
    static BATCH: RefCell<Batch> = RefCell::new(Batch::new());
}

/// A source of kind `udp`.
pub(crate) struct Udp {
    plan: Plan,
    open: Option<Open>,
    /// What the next step fails with: the one before has still put into the account what was missing.
    fault: Option<Fault>,
}

impl Udp {
    pub(crate) fn new(plan: Plan) -> Self {
        Self { plan, open: None, fault: None }
    }
}

impl Source for Udp {
    fn start(&mut self, now: i64, resume: &Resume) -> Result<(), Fault> {
        self.open = Some(Open::start(&self.plan, now, resume)?);
        Ok(())
    }

    fn step(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let Some(open) = &mut self.open else { return Ok(Step::Ended) };
        open.step(&self.plan, now, out).or_else(|fault| {
            // The sockets are given up: nothing fills their holes any more.
            open.close(now, out)?;
            self.fault = Some(fault);
            Ok(Step::Again)
        })
    }

    fn stop(&mut self, now: i64, out: &mut dyn Outlet) -> Result<(), Fault> {
        self.open.as_mut().map_or(Ok(()), |open| open.close(now, out))
    }

    fn frontier(&self, now: i64) -> i64 {
        self.open.iter().flat_map(Open::missing).map(|(_, complete_to)| complete_to).fold(now, i64::min)
    }

    fn trouble(&self) -> Option<Fault> {
        let open = self.open.as_ref()?;
        let throttle = open.throttle.as_ref().and_then(Control::fault);
        let taken = open.closed.first().map(|(_, fault)| fault);
        open.wrong.as_ref().or(throttle).or(taken).or(open.trouble.as_ref()).cloned()
    }

    fn absent(&self) -> Option<Fault> {
        let open = self.open.as_ref()?;
        let taken = open.closed.first().map(|(_, fault)| fault.clone());
        open.ports.iter().find_map(Port::absent).or(taken)
    }

    fn status(&self) -> Value {
        self.open.as_ref().map_or(Value::Null, Open::status)
    }

    fn descriptor(&self) -> Option<RawFd> {
        let open = self.open.as_ref()?;
        match &open.poll {
            Some(poll) => Some(poll.descriptor()),
            None => open.ports.first().map(Port::descriptor),
        }
    }

    fn pause(&self) -> Duration {
        Duration::from_nanos(self.plan.drain.unsigned_abs())
    }
}

/// The state after a start.
struct Open {
    ports: Vec<Port>,
    /// Addresses at which it cannot listen, and why.
    closed: Vec<(Address, Fault)>,
    resume: Resume,
    /// Which of the ports have something; none where there is one port.
    poll: Option<Poll>,
    /// Places of ports that have something, and of those of which numbers are missing, each once.
    ready: Vec<usize>,
    waiting: Vec<usize>,
    trouble: Option<Fault>,
    throttle: Option<Control>,
    /// How full the memory of the stream was lately, 0 to 1, and when it was read, ns.
    fill: (f64, i64),
    /// Messages of one datagram.
    cuts: Vec<Cut>,
    foreign: ForeignDatagrams,
    /// The fault of the datagrams that come.
    wrong: Option<Fault>,
    /// When all ports were looked at, ns.
    looked: i64,
}

impl Open {
    fn start(plan: &Plan, now: i64, resume: &Resume) -> Result<Self, Fault> {
        let throttle = plan.throttle.map(|throttle| Control::open(&plan.name, throttle)).transpose()?;
        let mut open = Self {
            ports: Vec::new(),
            closed: Vec::new(),
            resume: resume.clone(),
            poll: None,
            ready: Vec::new(),
            waiting: Vec::new(),
            trouble: None,
            throttle,
            fill: (0.0, i64::MIN),
            cuts: Vec::new(),
            foreign: ForeignDatagrams::default(),
            wrong: None,
            looked: now,
        };
        if plan.ports.len() > 1 {
            let cannot = |error: std::io::Error| Fault::io(format!("source `{}` cannot start", plan.name), &error);
            open.poll = Some(Poll::new().map_err(cannot)?);
        }
        for address in &plan.ports {
            match open.listen(plan, address, now) {
                Ok(()) => {}
                Err(fault) if plan.needs_all => return Err(fault),
                Err(fault) => open.closed.push((address.clone(), fault)),
            }
        }
        match open.closed.first() {
            Some((_, fault)) if open.ports.is_empty() => Err(fault.clone()),
            _ => Ok(open),
        }
    }

    /// Listens at one more address.
    fn listen(&mut self, plan: &Plan, address: &Address, now: i64) -> Result<(), Fault> {
        let (port, got) = Port::listen(plan, address, now, &self.resume)?;
        if let Some(poll) = &self.poll {
            let cannot = |error: std::io::Error| Fault::io(format!("source `{}` cannot start", plan.name), &error);
            poll.add(port.descriptor(), self.ports.len()).map_err(cannot)?;
        }
        self.ports.push(port);
        if got < plan.buffer {
            let what = format!("source `{}` has a socket buffer of {got} bytes, not {}", plan.name, plan.buffer);
            let fault = Fault::new(what, "the kernel allows no larger one");
            self.trouble = Some(fault.hint(format!("sysctl -w net.core.rmem_max={}", plan.buffer)));
        }
        Ok(())
    }

    fn step(&mut self, plan: &Plan, now: i64, out: &mut dyn Outlet) -> Result<Step, Fault> {
        let since = now.saturating_sub(self.looked);
        // The clock of the machine may have been set.
        let looks = !(0..FILE_PAUSE).contains(&since);
        let most = self.most();
        let mut turn = Turn { plan, now, out, foreign: &mut self.foreign, cuts: &mut self.cuts, is_full: false };
        self.ready.clear();
        match &mut self.poll {
            Some(poll) => poll.ready(&mut self.ready),
            None => self.ready.push(0),
        }
        let (mut taken, mut is_drained) = (0, true);
        let received = BATCH.with_borrow_mut(|batch| {
            for at in &self.ready {
                if taken >= STEP_DATAGRAMS {
                    is_drained = false;
                    break;
                }
                let port = &mut self.ports[*at];
                let count = port.receive(batch, most, &mut turn)?;
                is_drained &= count < most;
                taken += count;
                if port.missing().is_some() && !self.waiting.contains(at) {
                    self.waiting.push(*at);
                }
            }
            Ok(())
        });
        let is_full = turn.is_full;
        for (reason, text, datagram) in turn.foreign.kept.drain(..) {
            turn.out.aside(reason, &text, now, &datagram);
        }
        received?;
        if looks {
            self.looked = now;
            for port in &mut self.ports {
                port.report_missing(is_drained, &mut turn)?;
            }
            self.refresh(plan, now, out);
        }
        let streams = || self.ports.iter().map(Port::stream);
        let held = self.throttle.as_mut().and_then(|throttle| throttle.step(streams(), now, out));
        if !is_drained {
            return Ok(Step::Again);
        }
        let pause = match self.missing().map(|(due, _)| due).min() {
            // No descriptor wakes it then.
            _ if is_full => FULL_PAUSE,
            Some(due) => due.saturating_sub(now).clamp(FILE_PAUSE, IDLE_PAUSE),
            None => IDLE_PAUSE,
        };
        let pause = held.map_or(pause, |held| pause.min(held));
        Ok(Step::At(now.saturating_add(pause)))
    }

    /// Datagrams of one port in one step: of many ports a few each, so that none waits for long.
    fn most(&self) -> usize {
        if self.poll.is_some() { DATAGRAMS } else { STEP_DATAGRAMS }
    }

    /// Of the ports of which numbers are missing: when one is lost, and the time up to which none is missing.
    fn missing(&self) -> impl Iterator<Item = (i64, i64)> {
        self.waiting.iter().filter_map(|at| self.ports.get(*at)?.missing())
    }

    /// Refreshes what changes slowly.
    fn refresh(&mut self, plan: &Plan, now: i64, out: &mut dyn Outlet) {
        let Self { ports, waiting, .. } = self;
        waiting.retain(|at| ports.get(*at).is_some_and(|port| port.missing().is_some()));
        if !(0..IDLE_PAUSE).contains(&now.saturating_sub(self.fill.1)) {
            self.fill = (out.fill(), now);
            // The program that had the port may have closed it.
            for (address, _) in std::mem::take(&mut self.closed) {
                if let Err(fault) = self.listen(plan, &address, now) {
                    self.closed.push((address, fault));
                }
            }
        }
        self.wrong = self.ports.iter().find_map(|port| port.fault(now));
    }

    /// Puts all that is missing into the account, and the dead time so far.
    fn close(&mut self, now: i64, out: &mut dyn Outlet) -> Result<(), Fault> {
        if let Some(throttle) = &mut self.throttle {
            throttle.report_dead_time(now, out);
        }
        self.ports.iter_mut().try_for_each(|port| port.close(out))
    }

    fn status(&self) -> Value {
        let mut status = status_of(&self.ports);
        if let Some(status) = status.as_object_mut() {
            status.insert("fill".into(), json!(self.fill.0));
            if let Some(throttle) = &self.throttle {
                status.insert("dead_time".into(), json!(throttle.dead() as f64 / 1e9));
                status.insert("throttle_frames".into(), json!(throttle.frames()));
            }
        }
        status
    }
}

/// Figures of all numberings together. Of one port `next` of each numbering, of several how many ports there are.
fn status_of(ports: &[Port]) -> Value {
    let all = || ports.iter().flat_map(Port::accounts);
    let sum = |of: fn(&NumberAccount) -> u64| all().map(of).sum::<u64>();
    let mut status = json!({"datagrams": sum(|account| account.datagrams), "bytes": sum(|account| account.bytes)});
    let mut counts = BTreeMap::<&str, u64>::new();
    if let Some(status) = status.as_object_mut() {
        for account in all() {
            if let [port] = ports {
                let origin = port.accounts().first().map_or("", |account| account.name.as_str());
                let next = format!("next{}", account.name.strip_prefix(origin).unwrap_or_default());
                status.insert(next, account.numbers.next().into());
            }
            account.counts.iter().for_each(|(word, n)| *counts.entry(word).or_default() += n);
        }
        if ports.len() > 1 {
            status.insert("ports".into(), ports.len().into());
        }
        status.extend(counts.iter().map(|(word, n)| ((*word).to_owned(), json!(n))));
    }
    status
}
