//! Sources as threads run them.

use super::stage::{NAP, StageHandle, StageThread};
use crate::file::{Clock, Level, SourceSection, WhenFull};
use flow::{Data, Fault, Intake, IntakeOptions, Step};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The stream options of a section.
pub(super) fn options(section: &SourceSection) -> IntakeOptions {
    let level = match section.level.value {
        Level::Disk => store::Level::Disk,
        Level::Memory => store::Level::Memory,
    };
    let when_full = match section.when_full.value {
        WhenFull::Wait => store::WhenFull::Wait,
        WhenFull::DropOldest => store::WhenFull::DropOldest,
        WhenFull::DropNewest => store::WhenFull::DropNewest,
    };
    let clock = match section.clock.value {
        Clock::Epoch => store::Clock::Epoch,
        Clock::Ticks => store::Clock::Ticks,
        Clock::None => store::Clock::None,
    };
    let live_bytes = section.live.0;
    let retain_bytes = section.retain.as_ref().map(|r| r.0);
    let stream = store::Options {
        level,
        clock,
        when_full,
        retain_bytes,
        retain_age_ns: section.retain_age.as_ref().map(|age| i64::try_from(age.as_nanos()).unwrap_or(i64::MAX)),
        keep_free_bytes: section.keep_free.as_ref().map(|room| room.0),
        ..store::Options::memory(live_bytes)
    };
    IntakeOptions { stream, ahead_max: i64::try_from(section.ahead_max.as_nanos()).unwrap_or(i64::MAX) }
}

/// Starts the thread of a section.
pub(super) fn start(data: &Data, section: &SourceSection, stop: &Arc<AtomicBool>) -> Result<StageThread, Fault> {
    let (data, section, flag) = (data.clone(), section.clone(), stop.clone());
    StageThread::start("source", &section.name.clone(), stop, move |handle| run(&data, &section, &flag, handle))
}

fn run(data: &Data, section: &SourceSection, stop: &AtomicBool, handle: &StageHandle) -> Result<(), Fault> {
    let source = section.plan.build()?;
    let mut intake = Intake::start(data, &section.name, source, &options(section), data.media.now())?;
    handle.publish_view((&intake).into());
    let writer = intake.writer();
    if let cut @ store::Recovery::Cut { .. } = writer.recovery() {
        tracing::warn!("stream `{}` ({}): {cut}", section.name, store::hex(&writer.header().uuid));
    }
    let mut ended = false;
    while !stop.load(Ordering::Relaxed) {
        let now = data.media.now();
        let step = if ended { Step::Ended } else { intake.step(now)? };
        handle.publish_view((&intake).into());
        handle.set_fault(intake.trouble());
        match step {
            Step::Again => {}
            Step::At(when) => {
                let pause = Duration::from_nanos(when.saturating_sub(now).max(0) as u64);
                if pause <= Duration::from_millis(2) {
                    // A source that found no room asks for "soon": whoever makes room wakes us.
                    intake.wait_room(pause.max(Duration::from_micros(200)));
                } else {
                    wait(intake.descriptor(), pause.min(NAP));
                }
            }
            Step::Ended => {
                ended = true;
                std::thread::sleep(NAP);
            }
        }
    }
    intake.stop(data.media.now())
}

/// Waits until a descriptor is readable, or for this long. A call that fails waits for no event, so it sleeps instead.
fn wait(descriptor: Option<RawFd>, pause: Duration) {
    let Some(fd) = descriptor else { return std::thread::sleep(pause) };
    let mut event = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let timeout = i32::try_from(pause.as_millis().max(1)).unwrap_or(i32::MAX);
    // SAFETY: one pollfd that lives until the call returns.
    let ready = unsafe { libc::poll(&raw mut event, 1, timeout) };
    // A descriptor that is closed or in an error state is ready for ever.
    if ready < 0 || event.revents & (libc::POLLNVAL | libc::POLLERR) != 0 {
        std::thread::sleep(pause);
    }
}
