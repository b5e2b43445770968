//! How the sources of an instrument are opened, and which of them share a thread.

use super::appended;
use super::asks::Request;
use super::receiver::{Asked, Receiver, ReceiverSource};
use super::stage::{Order, StageHandle, StageThread, What};
use crate::file::{LEAD_RUNS, MIRROR, SourceSection, nearest};
use flow::{Data, Fault, Intake, IntakeOptions};
use serde_json::Value;
use settings::shortened;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::sync::Arc;
use std::sync::mpsc::channel;

/// The stream options of a section.
pub(super) fn options(section: &SourceSection) -> IntakeOptions {
    let stream = store::Options { clock: section.clock.value, ..section.stream.options() };
    IntakeOptions { stream, ahead_max: i64::try_from(section.ahead_max.as_nanos()).unwrap_or(i64::MAX) }
}

/// Starts the threads of sources: one for those that name the same receiver, and one for each that names none. `is_read`:
/// whether a merge or a worker reads the stream of this name. The answer is in the order of the sections.
pub(super) fn start<'a>(
    data: &Data,
    sections: impl Iterator<Item = &'a SourceSection>,
    is_read: impl Fn(&str) -> bool,
    asked: &Asked,
) -> Result<Vec<StageThread>, Fault> {
    // The sources of each thread, by their places.
    let mut receivers: Vec<Vec<(usize, &SourceSection)>> = Vec::new();
    let (mut shared, mut threads) = (HashMap::new(), BTreeMap::new());
    for (at, section) in sections.enumerate() {
        if !section.plan.fills_stream() {
            threads.insert(at, appended::start(data, section, &asked.stop)?);
            continue;
        }
        let own = receivers.len();
        let place = section.receiver.as_ref().map_or(own, |name| *shared.entry(name.value.as_str()).or_insert(own));
        if place == own {
            receivers.push(Vec::new());
        }
        receivers[place].push((at, section));
    }
    for sources in &receivers {
        let wake = data.media.event().map_err(|e| Fault::io("cannot start a source", &e))?;
        let wake = Arc::new(File::from(wake));
        let handles: Vec<StageHandle> = sources.iter().map(|_| StageHandle::default()).collect();
        let with_handles = sources.iter().zip(&handles);
        let of = |((_, section), handle): (&(usize, &SourceSection), &StageHandle)| {
            ReceiverSource::new(section, handle.clone(), is_read(&section.name))
        };
        // A mirror has a receiver of its own.
        let is_mirror = |(_, section): &(usize, &SourceSection)| section.kind == MIRROR && section.name != LEAD_RUNS;
        let waits = if sources.iter().any(is_mirror) { &asked.mirrors_wait } else { &asked.waits };
        let asked = Asked { waits: waits.clone(), ..asked.clone() };
        let receiver = Receiver::new(data, with_handles.map(of).collect(), asked, &wake);
        let receiver = receiver.map_err(|e| Fault::io("cannot start a source", &e))?;
        let name = sources.first().map(|(_, section)| section.receiver.as_deref().unwrap_or(&section.name));
        let thread = std::thread::Builder::new().name(format!("source {}", name.map_or("", |name| name)));
        let thread = thread.spawn(move || receiver.run()).map_err(|e| Fault::new("cannot start a source", e))?;
        let mut thread = Some(thread);
        for ((at, _), handle) in sources.iter().zip(handles) {
            threads.insert(*at, StageThread::shared(handle, thread.take(), &wake));
        }
    }
    Ok(threads.into_values().collect())
}

/// Builds a source and opens its stream, which may take long.
pub(super) fn open(data: &Data, section: &SourceSection) -> Result<Intake, Fault> {
    let source = section.plan.build()?;
    let mut intake = Intake::start(data, &section.name, source, &options(section), data.media.now())?;
    let writer = intake.writer();
    if let cut @ store::Recovery::Cut { .. } = writer.recovery() {
        tracing::warn!("stream `{}` ({}): {cut}", section.name, store::hex(&writer.header().uuid));
    }
    Ok(intake)
}

/// Asks a source that runs: see [`flow::Source::command`].
pub(super) fn ask(thread: &StageThread, name: &str, request: Value) -> Request {
    let (answer, answered) = channel();
    thread.order(Order { what: What::Ask(request), answer });
    Request { stage: format!("source `{name}`"), handle: thread.handle.clone(), answered, key: Some("answer") }
}

/// The fault of a request to a source that there is not.
pub(super) fn unknown<'a>(name: &str, sources: impl Iterator<Item = &'a SourceSection>) -> Fault {
    let names: Vec<&str> = sources.map(|section| section.name.as_str()).collect();
    let hint = match nearest(name, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("sources are {}", shortened(&names.join(", "))),
    };
    Fault::new(format!("cannot ask source `{}`", shortened(name)), "no such source").hint(hint)
}
