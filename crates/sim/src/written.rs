//! The rate at which a source writes to a disk, found by running it for a moment of pretended time.

use crate::limits::{
    WRITTEN_BYTES_MAX, WRITTEN_FRAME_BYTES_MAX, WRITTEN_FROM, WRITTEN_MESSAGES, WRITTEN_SPAN_MAX_NS, WRITTEN_SPAN_NS,
};
use crate::{Config, build, camera};
use flow::{Fault, OriginAccounts, Outlet, Pushed, Resume, Silence, Step};
use std::ops::RangeInclusive;
use store::{ENTRY_BYTES, Meta};

/// Adds up what a stream would take.
#[derive(Default)]
struct Scale {
    origins: u32,
    messages: u64,
    bytes: u64,
    /// Events in them, where they are `ev44`.
    events: u64,
    payload: Vec<u8>,
}

impl OriginAccounts for Scale {
    fn origin(&mut self, _: &str) -> Result<u32, Fault> {
        self.origins += 1;
        Ok(self.origins - 1)
    }

    fn missing(&mut self, _: u32, _: RangeInclusive<u64>, _: RangeInclusive<i64>, _: &str) -> Result<(), Fault> {
        Ok(())
    }

    fn count(&mut self, _: u32, _: &str, _: u64) -> Result<(), Fault> {
        Ok(())
    }
}

impl Outlet for Scale {
    fn push_parts(&mut self, meta: &Meta, parts: &[&[u8]]) -> Result<Pushed, Fault> {
        let length: u64 = parts.iter().map(|part| part.len() as u64).sum();
        self.messages += 1;
        self.bytes += length.next_multiple_of(8) + ENTRY_BYTES as u64;
        if &meta.schema.0 == b"ev44" {
            self.payload.clear();
            parts.iter().for_each(|part| self.payload.extend_from_slice(part));
            self.events += wire::ev44::read(&self.payload).map_or(0, |read| read.events() as u64);
        }
        Ok(Pushed::Taken)
    }

    fn next_sequence(&self) -> u64 {
        self.messages
    }

    fn silent(&mut self, _: RangeInclusive<i64>, _: Silence) {}

    fn fill(&self) -> f64 {
        0.0
    }
}

/// Bytes a second on the disk, with envelopes and index; none where the source cannot be built yet.
pub(crate) fn bytes_per_second(config: &Config) -> Option<f64> {
    if camera::message_bytes(config).is_some_and(|bytes| bytes > WRITTEN_FRAME_BYTES_MAX) {
        return camera::bytes_per_second(config);
    }
    if config.model == "detector" {
        // Each hit is a message of its own: what a thousand take says what millions take.
        let few = Config { rate: 1000.0, scale: 1.0, coincidences: 0.0, ..config.clone() };
        let together = config.coincidences * f64::from(config.multiplicity) / f64::from(config.detectors.max(1));
        return measured(&few).map(|rate| rate / 1000.0 * (config.events_per_second() + together));
    }
    measured(config)
}

fn measured(config: &Config) -> Option<f64> {
    // One frame is as large as another.
    let config = Config { duration_ns: None, frames: config.frames.and(Some(1)), ..config.clone() };
    let mut source = build(&config).ok()?;
    source.start(WRITTEN_FROM, &Resume::default()).ok()?;
    let (mut scale, mut now) = (Scale::default(), WRITTEN_FROM);
    // Pretended time since the first pulse, and bytes, when the last pulse was whole.
    let (mut begin, mut whole) = (None, (0, 0));
    loop {
        match source.step(now, &mut scale).ok()? {
            Step::Again => {}
            Step::At(at) => {
                now = at.max(now + 1);
                whole = (now - *begin.get_or_insert(now), scale.bytes);
            }
            Step::Ended => break,
        }
        let is_enough = whole.0 >= WRITTEN_SPAN_NS && scale.messages >= WRITTEN_MESSAGES;
        let is_over = now - WRITTEN_FROM >= WRITTEN_SPAN_MAX_NS && scale.bytes == whole.1 && whole.0 > 0;
        if is_enough || is_over || scale.bytes >= WRITTEN_BYTES_MAX {
            break;
        }
    }
    match whole {
        (span, bytes) if bytes > 0 => Some(bytes as f64 * 1e9 / span as f64),
        // A pulse of this source alone has more: what an event takes says it too.
        _ if scale.events > 0 => Some(scale.bytes as f64 / scale.events as f64 * config.events_per_second()),
        _ => (scale.bytes == 0).then_some(0.0),
    }
}
