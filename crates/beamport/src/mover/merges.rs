//! Threads that run merges: each has its inputs' frontiers from the threads that fill them.

use super::receiver::Asked;
use super::stage::{self, NAP, StageHandle, StageThread, ns};
use crate::file::{MergeKind, MergeSection};
use flow::{Data, Fault, Merge, MergeBy, MergeInput, MergeOptions, Step, UpstreamState};
use std::sync::atomic::Ordering;
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
    asked: &Asked,
) -> Result<StageThread, Fault> {
    let name = section.name.clone();
    let (data, section, flags) = (data.clone(), section.clone(), asked.clone());
    let run = move |handle: &StageHandle| run(&data, &section, &inputs, &flags, handle);
    StageThread::start("merge", &name, &asked.stop, run)
}

fn run(
    data: &Data,
    section: &MergeSection,
    inputs: &[StageHandle],
    asked: &Asked,
    handle: &StageHandle,
) -> Result<(), Fault> {
    let stop = &*asked.stop;
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
    // A run may have begun on another host while this one was away.
    while merge.has_other_slices() && asked.mirrors_wait.load(Ordering::Relaxed) {
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        std::thread::sleep(NAP);
    }
    merge.check_slices()?;
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
