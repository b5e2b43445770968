//! The near side: a live sink that offers the streams of this host to one other host, and is done with what that host
//! has safe.
//!
//! It takes every message and keeps none: it needs positions alone. The server reads the streams for its answers, and
//! verifies them. The counted reader of the relay stands behind the position that the far host has sent, so streams
//! keep what that host needs.
//!
//! Failure behaviour: a far host that is away is no trouble of the sink; a connection that was refused is.

use crate::lane::{Lane, Wake};
use crate::limits::{PAYLOAD_MAX, STOP_PAUSE};
use crate::link::Link;
use crate::server::Server;
use flow::{Aside, Confirmed, Fault, LiveBatch, LiveSink};
use serde_json::{Value, json};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The plan of the sink.
#[derive(Clone, Debug)]
pub(crate) struct NearPlan {
    /// Name of the sink.
    pub(crate) name: String,
    pub(crate) instrument: String,
    /// The other host.
    pub(crate) far: String,
    pub(crate) link: Arc<Link>,
}

/// The sink.
pub(crate) struct Near {
    plan: NearPlan,
    inputs: Vec<String>,
    open: Option<Open>,
}

struct Open {
    server: Arc<Server>,
    lanes: Vec<Arc<Lane>>,
    wake: Arc<Wake>,
}

impl Near {
    pub(crate) fn new(plan: NearPlan, inputs: &[String]) -> Self {
        Self { plan, inputs: inputs.to_vec(), open: None }
    }

    fn open(&self) -> Result<&Open, Fault> {
        self.open.as_ref().ok_or_else(|| Fault::new(format!("sink `{}` has not started", self.plan.name), ""))
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        if let Some(open) = &self.open {
            open.server.withdraw(&self.plan.far, &open.lanes);
        }
    }
}

impl LiveSink for Near {
    fn start(&mut self, _now: i64, _state: &str) -> Result<(), Fault> {
        let NearPlan { name, instrument, far, link } = &self.plan;
        let wake = Wake::new().map_err(|e| Fault::io(format!("sink `{name}` cannot start"), &e))?;
        let (server, wake) = (link.server(instrument)?, Arc::new(wake));
        let lanes = server.offer(far, &self.inputs, &wake);
        self.open = Some(Open { server, lanes, wake });
        Ok(())
    }

    fn write(&mut self, input: usize, batch: &LiveBatch<'_>, aside: &mut Vec<Aside>) -> Result<usize, Fault> {
        let large = batch.iter().filter(|message| message.payload.len() > PAYLOAD_MAX);
        aside.extend(large.map(|message| Aside { sequence: message.sequence, reason: "size" }));
        let next = batch.iter().last().map_or(0, |message| message.sequence + 1);
        if let Some(lane) = self.open()?.lanes.get(input) {
            lane.offer(next);
        }
        Ok(batch.len())
    }

    /// The server verifies them as it makes blocks.
    fn looks_at_payloads(&self) -> bool {
        false
    }

    fn follows_frontiers(&self) -> bool {
        true
    }

    fn reach(&mut self, input: usize, frontier: i64, next: u64) {
        if let Some(lane) = self.open.as_ref().and_then(|open| open.lanes.get(input)) {
            lane.reach(frontier, next);
        }
    }

    fn step(&mut self, _now: i64) -> Result<i64, Fault> {
        self.open()?.wake.drain();
        Ok(i64::MAX)
    }

    fn confirmed(&mut self) -> Result<Confirmed, Fault> {
        let below = self.open()?.lanes.iter().map(|lane| lane.below()).collect();
        Ok(Confirmed { below, ..Confirmed::default() })
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.open.as_ref().map(|open| open.wake.descriptor())
    }

    fn status(&self) -> Value {
        let Some(open) = &self.open else { return Value::Null };
        let reading = open.lanes.iter().filter(|lane| lane.is_open()).count();
        json!({"host": self.plan.far, "streams": open.lanes.len(), "read": reading})
    }

    fn trouble(&self) -> Option<Fault> {
        let open = self.open.as_ref()?;
        let refusal = open.server.refusal().filter(|_| !open.lanes.iter().all(|lane| lane.is_open()))?;
        let far = &self.plan.far;
        let fault =
            Fault::new(format!("host `{far}` does not read its streams, and a connection was refused"), refusal);
        Some(fault.hint(format!("check `tls`, `token` and `url` of host `{far}`")))
    }

    fn has_left(&self) -> bool {
        self.open.as_ref().is_none_or(|open| !open.lanes.iter().any(|lane| lane.is_open()))
    }

    fn stop(&mut self, patience: Duration) -> Result<(), Fault> {
        let until = Instant::now() + patience;
        // A far host that does not read now gets the rest when this one is back.
        let waits = |open: &Open| open.lanes.iter().any(|lane| lane.is_open() && !lane.is_done());
        while self.open().is_ok_and(waits) && Instant::now() < until {
            std::thread::sleep(STOP_PAUSE);
        }
        Ok(())
    }
}
