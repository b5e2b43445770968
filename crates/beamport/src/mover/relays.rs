//! Threads that run live sinks. A sink that fails is built and started again with growing pauses, while its streams
//! keep the messages that it has not sent.

use super::poller::{Poller, Ready};
use super::stage::{self, NAP, StageHandle, StageThread};
use crate::file::LiveSection;
use crate::limits::{FRONTIER_PAUSE, SINK_CLOSE_PAUSE, SINK_STOP_PATIENCE, STATUS_PAUSE};
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
    let name = section.name.clone();
    let event = data.media.event().map_err(|e| Fault::io(format!("sink `{}` cannot start", section.name), &e))?;
    let wake = Arc::new(File::from(event));
    let (data, section, flag, of_thread) = (data.clone(), section.clone(), stop.clone(), wake.clone());
    let run = move |handle: &StageHandle| run(&data, &section, &inputs, &flag, handle, &of_thread);
    Ok(StageThread::start("sink", &name, stop, run)?.woken_by(wake))
}

fn run(
    data: &Data,
    section: &LiveSection,
    inputs: &[StageHandle],
    stop: &AtomicBool,
    handle: &StageHandle,
    wake: &Arc<File>,
) -> Result<(), Fault> {
    if !stage::wait_for(inputs, stop) {
        return Ok(());
    }
    let sink = section.plan.build(&section.inputs)?;
    let options = RelayOptions { early: section.early.value };
    let relay = Relay::open(data, &section.name, &section.inputs, sink, options, data.media.now())?;
    let poller = Poller::new(wake).map_err(|e| Fault::io(format!("sink `{}` cannot wait", section.name), &e))?;
    let frontiers = if relay.follows_frontiers() { inputs } else { &[] };
    let mut running = Running { relay, data: data.clone(), poller, ready: Vec::new(), frontiers, followed: None };
    let mut published: Option<Instant> = None;
    while !stop.load(Ordering::Relaxed) {
        running.step(handle, STATUS_PAUSE)?;
        if published.is_none_or(|at| at.elapsed() >= STATUS_PAUSE) {
            published = Some(Instant::now());
            handle.publish_status(running.relay.status());
        }
    }
    // When all stages end, the messages left in the streams are sent, as long as nothing prevents that.
    let end = Instant::now() + SINK_STOP_PATIENCE;
    let left = || end.saturating_duration_since(Instant::now());
    let waits = |relay: &Relay| !relay.is_idle() && !relay.has_left() && relay.trouble().is_none();
    while !left().is_zero() && waits(&running.relay) {
        running.step(handle, left())?;
    }
    // The stages have ended: the sink tells how far they came.
    running.followed = None;
    running.follow()?;
    running.step(handle, Duration::ZERO)?;
    let stopped = running.relay.stop(left());
    while !running.relay.close()? && !left().is_zero() {
        std::thread::sleep(SINK_CLOSE_PAUSE);
    }
    stopped
}

/// A relay and what wakes it.
struct Running<'a> {
    relay: Relay,
    data: Data,
    poller: Poller,
    ready: Vec<Ready>,
    /// The stages whose frontiers the sink follows, and when it was last told of them.
    frontiers: &'a [StageHandle],
    followed: Option<Instant>,
}

impl Running<'_> {
    /// Passes on how far the stages of the inputs have come.
    fn follow(&mut self) -> Result<(), Fault> {
        if self.frontiers.is_empty() || self.followed.is_some_and(|at| at.elapsed() < FRONTIER_PAUSE) {
            return Ok(());
        }
        self.followed = Some(Instant::now());
        for view in self.frontiers.iter().filter_map(StageHandle::view) {
            let frontier = if view.ended { i64::MAX } else { view.frontier };
            self.relay.advance(&view.name, frontier)?;
        }
        Ok(())
    }

    /// One step, and the sleep behind it, `most` at most.
    fn step(&mut self, handle: &StageHandle, most: Duration) -> Result<(), Fault> {
        self.follow()?;
        let Self { relay, data, poller, ready, .. } = self;
        let now = data.media.now();
        let step = relay.step(now)?;
        handle.set_fault(relay.trouble());
        let Step::At(when) = step else { return Ok(()) };
        let mut pause = Duration::from_nanos(when.saturating_sub(now).max(0) as u64).min(most);
        if !self.frontiers.is_empty() {
            pause = pause.min(FRONTIER_PAUSE);
        }
        relay.rest(&mut |at, descriptor| poller.arm(at, descriptor, false))?;
        poller.wait(Some(pause), ready);
        // A descriptor in an error state is ready again at once, and it is for the sink to see why.
        let is_broken = ready.iter().any(|ready| ready.is_broken);
        ready.drain(..).for_each(|ready| relay.woken(ready.at));
        if is_broken {
            std::thread::sleep(pause.min(NAP));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::{Aside, Confirmed, LiveBatch, LiveSink};
    use std::path::PathBuf;
    use store::{Header, Meta, Options, SchemaId, Writer};

    const INPUTS: usize = 10;
    /// A guard against hanging.
    const GUARD: Duration = Duration::from_secs(60);

    /// A data folder with empty memory streams.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> (Self, Data, Vec<Writer>) {
            let folder = std::env::temp_dir().join(format!("beamport-relays-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).unwrap();
            let data = Data::on_disk(&folder);
            let writer = |stream: &String| data.writer(stream, &Options::memory(1 << 20)).unwrap();
            let writers = streams().iter().map(writer).collect();
            (Self(folder), data, writers)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let data = Data::on_disk(&self.0);
            for name in data.streams(true).unwrap_or_default() {
                if let Ok(header) = Header::read(data.media.as_ref(), &data.stream(&name)) {
                    let _ = std::fs::remove_dir_all(header.live);
                }
            }
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn streams() -> Vec<String> {
        (0..INPUTS).map(|at| format!("in{at}")).collect()
    }

    fn append(writer: &mut Writer) {
        let meta = Meta { source_time: 0, origin: 0, origin_seq: 0, schema: SchemaId(*b"test"), flags: 0 };
        writer.append(&meta, b"bytes").unwrap();
    }

    /// Takes everything but what comes from input 9, and never names a time.
    #[derive(Default)]
    struct Sink(Vec<u64>);

    impl LiveSink for Sink {
        fn start(&mut self, _: i64, _: &str) -> Result<(), Fault> {
            self.0 = vec![0; INPUTS];
            Ok(())
        }

        fn write(&mut self, input: usize, batch: &LiveBatch<'_>, _: &mut Vec<Aside>) -> Result<usize, Fault> {
            let count = if input == 9 { 0 } else { batch.len() };
            self.0[input] += count as u64;
            Ok(count)
        }

        fn confirmed(&mut self) -> Result<Confirmed, Fault> {
            Ok(Confirmed { below: self.0.clone(), ..Confirmed::default() })
        }
    }

    /// Steps until the relay has nothing to do before the next message.
    fn run_until_idle(relay: &mut Relay, data: &Data) {
        let guard = Instant::now() + GUARD;
        while relay.step(data.media.now()).unwrap() != Step::At(i64::MAX) {
            assert!(Instant::now() < guard, "it does not come to rest");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_live_sink_of_several_inputs_looked_for_messages_a_thousand_times_a_second() {
        let (_place, data, mut writers) = Place::new("idle");
        let mut relay =
            Relay::open(&data, "out", &streams(), Box::new(Sink::default()), RelayOptions::default(), 0).unwrap();
        let wake = Arc::new(File::from(data.media.event().unwrap()));
        let mut poller = Poller::new(&wake).unwrap();
        let mut woken = |relay: &mut Relay, within: Duration| -> Vec<usize> {
            let mut ready = Vec::new();
            relay.rest(&mut |at, descriptor| poller.arm(at, descriptor, false)).unwrap();
            poller.wait(Some(within), &mut ready);
            let woken: Vec<usize> = ready.iter().map(|ready| ready.at).collect();
            woken.iter().for_each(|at| relay.woken(*at));
            woken
        };
        // Each input wakes it, and nothing else does.
        for at in [0, 5, 5, 8] {
            run_until_idle(&mut relay, &data);
            assert_eq!(woken(&mut relay, Duration::ZERO), [0; 0]);
            append(&mut writers[at]);
            assert_eq!(woken(&mut relay, GUARD), [at]);
        }
        // A message that the sink does not accept no longer wakes the relay; it is offered again after a pause.
        run_until_idle(&mut relay, &data);
        append(&mut writers[9]);
        assert_eq!(woken(&mut relay, GUARD), [9]);
        let now = data.media.now();
        assert!(matches!(relay.step(now).unwrap(), Step::At(when) if when > now && when < i64::MAX));
        assert_eq!(woken(&mut relay, Duration::ZERO), [0; 0]);
        append(&mut writers[1]);
        assert_eq!(woken(&mut relay, GUARD), [1]);
        let accounts: Vec<u64> = relay.accounts().map(|input| input.done).collect();
        assert_eq!(accounts, [1, 0, 0, 0, 0, 2, 0, 0, 1, 0]);
    }
}
