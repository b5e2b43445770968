//! Threads that run merges: each has its inputs' frontiers from the threads that fill them.

use super::stage::{self, NAP, StageHandle, StageThread, ns};
use crate::file::{MergeKind, MergeSection};
use flow::{Data, Fault, Merge, MergeBy, MergeInput, MergeOptions, Step, UpstreamState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How a section's merge works.
fn options(section: &MergeSection) -> MergeOptions {
    let stream = section.output.options();
    let by = match &section.kind {
        MergeKind::Time { slice, ahead_max, .. } => {
            MergeBy::Time { slice: ns(slice.value), ahead_max: ns(ahead_max.value) }
        }
        MergeKind::Number { parts, cache } => {
            MergeBy::Number { parts: u32::try_from(parts.value).unwrap_or(u32::MAX), cache: cache.value }
        }
    };
    MergeOptions { stream, by }
}

/// Starts the thread of a section. `inputs`: the handles of the stages that fill them, in the section's order.
pub(super) fn start(
    data: &Data,
    section: &MergeSection,
    inputs: Vec<StageHandle>,
    stop: &Arc<AtomicBool>,
) -> Result<StageThread, Fault> {
    let (data, section, flag) = (data.clone(), section.clone(), stop.clone());
    StageThread::start("merge", &section.name.clone(), stop, move |handle| run(&data, &section, &inputs, &flag, handle))
}

fn run(
    data: &Data,
    section: &MergeSection,
    inputs: &[StageHandle],
    stop: &AtomicBool,
    handle: &StageHandle,
) -> Result<(), Fault> {
    if !stage::wait_for(inputs, stop) {
        return Ok(());
    }
    let of = |input: &String| {
        let part = section.part_inputs.get(input);
        MergeInput {
            stream: input.clone(),
            wait: ns(section.wait_of(input)),
            slices: part.and_then(|part| part.slices),
            by_frontier: part.is_some_and(|part| part.by_frontier),
            is_made_again: part.is_some_and(|part| part.is_made_again),
        }
    };
    let streams: Vec<MergeInput> = section.inputs.iter().map(of).collect();
    let mut merge = Merge::open(data, &section.name, &streams, &options(section))?;
    let writer = merge.writer();
    if let cut @ store::Recovery::Cut { .. } = writer.recovery() {
        tracing::warn!("stream `{}` ({}): {cut}", section.name, store::hex(&writer.header().uuid));
    }
    handle.publish_view((&merge).into());
    let begin = Instant::now();
    let mut heard = vec![UpstreamState::NOTHING; inputs.len()];
    while !stop.load(Ordering::Relaxed) {
        // Read before the streams: a message that an input has reported is in its stream by then.
        for (heard, input) in heard.iter_mut().zip(inputs) {
            *heard = input.view().as_ref().map_or(UpstreamState::NOTHING, UpstreamState::from);
        }
        let now = data.media.now();
        let step = merge.step(now, ns(begin.elapsed()), &heard)?;
        handle.publish_view((&merge).into());
        handle.set_fault(merge.trouble());
        match step {
            Step::Again => {}
            Step::At(when) => {
                std::thread::sleep(Duration::from_nanos(when.saturating_sub(now).max(0) as u64).min(NAP));
            }
            Step::Ended => std::thread::sleep(NAP),
        }
    }
    Ok(())
}
