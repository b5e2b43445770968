//! Threads that run live sinks. A sink that fails is built and started again with growing pauses, while its streams
//! keep the messages that it has not sent.

use super::poller::Poller;
use super::stage::{self, NAP, StageHandle, StageThread};
use crate::file::LiveSection;
use crate::limits::{SINK_CLOSE_PAUSE, SINK_STOP_PATIENCE, STATUS_PAUSE};
use flow::{Data, Fault, Relay, RelayOptions, Step};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Starts the thread of a section. `inputs`: the handles of the stages that fill them.
pub(super) fn start(
    data: &Data,
    section: &LiveSection,
    inputs: Vec<StageHandle>,
    stop: &Arc<AtomicBool>,
) -> Result<StageThread, Fault> {
    let (data, section, flag) = (data.clone(), section.clone(), stop.clone());
    StageThread::start("sink", &section.name.clone(), stop, move |handle| run(&data, &section, &inputs, &flag, handle))
}

fn run(
    data: &Data,
    section: &LiveSection,
    inputs: &[StageHandle],
    stop: &AtomicBool,
    handle: &StageHandle,
) -> Result<(), Fault> {
    if !stage::wait_for(inputs, stop) {
        return Ok(());
    }
    let sink = section.plan.build(&section.inputs)?;
    let options = RelayOptions { early: section.early.value };
    let mut relay = Relay::open(data, &section.name, &section.inputs, sink, options, data.media.now())?;
    let mut poller = poller(data).map_err(|e| Fault::io(format!("sink `{}` cannot wait", section.name), &e))?;
    let mut published: Option<Instant> = None;
    while !stop.load(Ordering::Relaxed) {
        step(data, &mut relay, handle, &mut poller)?;
        if published.is_none_or(|at| at.elapsed() >= STATUS_PAUSE) {
            published = Some(Instant::now());
            handle.publish_status(relay.status());
        }
    }
    // What the streams hold when all stages end is sent, as long as nothing keeps it from that.
    let end = Instant::now() + SINK_STOP_PATIENCE;
    while Instant::now() < end && !relay.is_idle() && relay.trouble().is_none() {
        step(data, &mut relay, handle, &mut poller)?;
    }
    let stopped = relay.stop(end.saturating_duration_since(Instant::now()));
    while !relay.close()? && Instant::now() < end {
        std::thread::sleep(SINK_CLOSE_PAUSE);
    }
    stopped
}

/// Waits for the descriptor of the sink.
fn poller(data: &Data) -> std::io::Result<Poller> {
    // Nobody else wakes it: a sink looks at the stop flag often enough.
    Poller::new(&Arc::new(File::from(data.media.event()?)))
}

/// One step of the relay, and the pause behind it.
fn step(data: &Data, relay: &mut Relay, handle: &StageHandle, poller: &mut Poller) -> Result<(), Fault> {
    let now = data.media.now();
    let step = relay.step(now)?;
    handle.set_fault(relay.trouble());
    if let Step::At(when) = step {
        let pause = Duration::from_nanos(when.saturating_sub(now).max(0) as u64).min(NAP);
        if !relay.wait(pause)? {
            let mut ready = Vec::new();
            if let Some(fd) = relay.descriptor() {
                poller.arm(0, fd);
            }
            poller.wait(Some(pause), &mut ready);
            // One in an error state is ready for ever, and it is for the sink to see why.
            if ready.iter().any(|ready| ready.is_broken) {
                std::thread::sleep(pause);
            }
        }
    }
    Ok(())
}
