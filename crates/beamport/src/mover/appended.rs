//! The thread of a source whose stream another process fills: it makes the stream where it is missing, and says how
//! far it goes.
//!
//! What was appended up to now is there: a merge waits for later messages by its `wait`, a run by its `settle`.
//!
//! Failure behaviour: the process that fills the stream may end and begin again at any time. If none has appended
//! anything since the start, the report says so.

use super::sources;
use super::stage::{NAP, StageHandle, StageThread, What};
use crate::file::SourceSection;
use crate::limits::APPENDED_PATIENCE;
use flow::{Data, Fault, StreamView, stream_fault};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use store::{Header, Level};

/// Starts the thread of a section in a data folder.
pub(super) fn start(data: &Data, section: &SourceSection, stop: &Arc<AtomicBool>) -> Result<StageThread, Fault> {
    let (data, section, flag) = (data.clone(), section.clone(), stop.clone());
    StageThread::start("source", &section.name.clone(), stop, move |handle| run(&data, &section, &flag, handle))
}

fn run(data: &Data, section: &SourceSection, stop: &AtomicBool, handle: &StageHandle) -> Result<(), Fault> {
    let name = &section.name;
    if Header::read(data.media.as_ref(), &data.stream(name)).is_err() {
        // The process that fills the stream opens it as it is made here.
        drop(data.writer(name, &sources::options(section).stream)?);
    }
    let mut reader = data.reader_early(name)?;
    let first = reader.bounds().count;
    // Up to where messages were not safe, and since when.
    let mut unsafe_to: Option<(u64, Instant)> = None;
    while !stop.load(Ordering::Relaxed) {
        while let Some(order) = handle.next_order() {
            if let What::Ask(_) = order.what {
                let fault =
                    Fault::new(format!("source `{name}` takes no commands"), "another process fills its stream");
                let _ = order.answer.send(Err(fault));
            }
        }
        // Before the look: what was appended until then is seen.
        let frontier = data.media.now();
        reader.reattach().map_err(|e| stream_fault(name, e))?;
        let bounds = reader.bounds();
        let marked = reader.header().level == Level::Memory || bounds.disk >= bounds.count;
        unsafe_to = match unsafe_to {
            _ if marked => None,
            Some((count, since)) if count == bounds.count => Some((count, since)),
            _ => Some((bounds.count, Instant::now())),
        };
        if unsafe_to.is_some_and(|(_, since)| since.elapsed() >= APPENDED_PATIENCE) {
            // Their writer has died: they become safe when the next one opens the stream, if none has it open.
            if let Ok(mut writer) = data.writer(name, &sources::options(section).stream) {
                let _ = writer.wait(bounds.count, Level::Disk, APPENDED_PATIENCE);
            }
            unsafe_to = None;
        }
        handle.publish_view(StreamView {
            name: name.clone(),
            frontier,
            ended: false,
            marked,
            safe: bounds.disk,
            ..StreamView::default()
        });
        let absent = || {
            let what = format!("source `{name}` has no messages");
            let hint = format!("`beamport append {name}` or Python's `create(\"{name}\")` fill it");
            Fault::new(what, "no process has appended any since the start").hint(hint)
        };
        handle.set_silent((bounds.count == first).then(absent));
        std::thread::sleep(NAP);
    }
    Ok(())
}
