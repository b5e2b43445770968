//! What a source writes to a disk, found by running it for a moment of pretended time.

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
    let config = Config { duration_ns: None, ..config.clone() };
    let mut source = build(&config).ok()?;
    source.start(WRITTEN_FROM, &Resume::default()).ok()?;
    let (mut scale, mut now) = (Scale::default(), WRITTEN_FROM);
    // Pretended time and bytes when the last pulse was whole.
    let mut whole = (0, 0);
    loop {
        match source.step(now, &mut scale).ok()? {
            Step::Again => {}
            Step::At(at) => {
                whole = (at.max(now + 1) - WRITTEN_FROM, scale.bytes);
                now = at.max(now + 1);
            }
            Step::Ended => break,
        }
        let is_enough = whole.0 >= WRITTEN_SPAN_NS && scale.messages >= WRITTEN_MESSAGES;
        if is_enough || whole.0 >= WRITTEN_SPAN_MAX_NS || scale.bytes >= WRITTEN_BYTES_MAX {
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
