//! Threads that run sources. A source that fails or panics is started again, alone, with growing pauses; what it had
//! published stays.

use super::replay::Replay;
use crate::file::{Clock, Instrument, Level, SourceKind, SourceSection, WhenFull};
use flow::{Data, Fault, Intake, IntakeOptions, Source, Step, StreamView};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longest pause between two looks at the stop flag.
const NAP: Duration = Duration::from_millis(20);
/// Longest pause before a failed source is started again.
const BACK_OFF_MAX: Duration = Duration::from_secs(10);
/// Least time between two warnings of one source: a full device may come and go many times a second.
const WARN_PAUSE: Duration = Duration::from_secs(10);

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

/// Makes the source of a section. `histogram`: for `from`, already loaded.
pub fn build(section: &SourceSection, histogram: Option<Vec<u8>>) -> Result<Box<dyn Source>, Fault> {
    match &section.kind {
        SourceKind::Sim(sim) => {
            let mut config = sim.config.clone();
            config.histogram = histogram.or(config.histogram);
            sim::build(&config)
        }
        SourceKind::Replay(replay) => Ok(Box::new(Replay::new(
            replay.from_data.value.clone(),
            replay.run.value.clone(),
            replay.stream.value.clone(),
            replay.speed.value,
        ))),
    }
}

/// A source thread as the mover sees it.
pub(super) struct SourceThread {
    /// What the keeper of runs needs to know; none until the stream is open.
    pub view: Arc<Mutex<Option<StreamView>>>,
    /// Why it cannot work at present.
    pub trouble: Arc<Mutex<Option<Fault>>>,
    handle: Option<std::thread::JoinHandle<()>>,
}

impl SourceThread {
    /// Starts the thread of a section.
    pub(super) fn start(
        instrument: &Instrument,
        section: &SourceSection,
        histogram: Option<Vec<u8>>,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, Fault> {
        let data = Data::on_disk(&instrument.data.value);
        let (view, trouble) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
        let handle = {
            let (section, stop, view, trouble) = (section.clone(), stop.clone(), view.clone(), trouble.clone());
            let name = format!("source {}", section.name);
            std::thread::Builder::new().name(name).spawn(move || {
                keep_running(&data, &section, histogram.as_deref(), &stop, &view, &trouble);
            })
        };
        let handle = handle.map_err(|e| Fault::new(format!("source `{}` cannot start", section.name), e))?;
        Ok(Self { view, trouble, handle: Some(handle) })
    }

    /// Waits for the end of the thread (after the stop flag was set): its stream is closed then.
    pub(super) fn join(&mut self) {
        if let Some(handle) = self.handle.take() {
            let _ = handle.join();
        }
    }
}

fn set<T>(place: &Mutex<Option<T>>, value: Option<T>) {
    *place.lock().unwrap_or_else(|p| p.into_inner()) = value;
}

fn keep_running(
    data: &Data,
    section: &SourceSection,
    histogram: Option<&[u8]>,
    stop: &AtomicBool,
    view: &Mutex<Option<StreamView>>,
    trouble: &Mutex<Option<Fault>>,
) {
    let mut pause = Duration::from_millis(100);
    while !stop.load(Ordering::Relaxed) {
        let answer = catch_unwind(AssertUnwindSafe(|| run(data, section, histogram, stop, view, trouble)));
        let fault = match answer {
            Ok(Ok(())) => return,
            Ok(Err(fault)) => fault,
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(ToString::to_string);
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
                Fault::new(format!("source `{}` broke", section.name), text)
                    .hint("this is a defect of the source; it is started again")
            }
        };
        tracing::warn!("{fault}");
        set(trouble, Some(fault));
        let mut left = pause;
        while !left.is_zero() && !stop.load(Ordering::Relaxed) {
            let nap = left.min(NAP);
            std::thread::sleep(nap);
            left -= nap;
        }
        pause = (pause * 2).min(BACK_OFF_MAX);
    }
}

fn run(
    data: &Data,
    section: &SourceSection,
    histogram: Option<&[u8]>,
    stop: &AtomicBool,
    view: &Mutex<Option<StreamView>>,
    trouble: &Mutex<Option<Fault>>,
) -> Result<(), Fault> {
    let source = build(section, histogram.map(<[u8]>::to_vec))?;
    let mut intake = Intake::start(data, &section.name, source, &options(section), data.media.now())?;
    set(view, Some(StreamView::from(&intake)));
    let writer = intake.writer();
    if let cut @ store::Recovery::Cut { .. } = writer.recovery() {
        tracing::warn!("stream `{}` ({}): {cut}", section.name, store::hex(&writer.header().uuid));
    }
    let (mut ended, mut warned) = (false, None);
    while !stop.load(Ordering::Relaxed) {
        let now = data.media.now();
        let step = if ended { Step::Ended } else { intake.step(now)? };
        set(view, Some(StreamView::from(&intake)));
        let fault = intake.trouble();
        if let Some(fault) = fault.as_ref().filter(|_| warned.is_none_or(|at: Instant| at.elapsed() > WARN_PAUSE)) {
            tracing::warn!("{fault}");
            warned = Some(Instant::now());
        }
        set(trouble, fault);
        match step {
            Step::Again => {}
            Step::At(when) => {
                let pause = Duration::from_nanos(when.saturating_sub(now).max(0) as u64);
                if pause <= Duration::from_millis(2) {
                    // A source that found no room asks for "soon": whoever makes room wakes us.
                    intake.wait_room(pause.max(Duration::from_micros(200)));
                } else {
                    std::thread::sleep(pause.min(NAP));
                }
            }
            Step::Ended => {
                ended = true;
                std::thread::sleep(NAP);
            }
        }
    }
    Ok(())
}
