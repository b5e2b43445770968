//! Streams of statistics: numbers of what runs, as values (`f144`), for programs that look on.
//!
//! `WORKER.statistics` has the state of a worker's slots, `RECEIVER.statistics` that of the sources of a receiver, each
//! once a second at most. Other processes (`top`, plots) read streams only; as values these numbers can be printed and
//! plotted like any other. No account is derived from them.
//!
//! Constraints: in memory, the newest messages; all values of one moment have one source time.

use crate::beside::Beside;
use crate::data::{Data, stream_fault};
use crate::fault::Fault;
use store::{Meta, Options, SchemaId, WhenFull, Writer};
use wire::Scalar;

/// The stream of statistics of a worker or a receiver.
pub fn statistics_of(stage: &str) -> String {
    format!("{stage}.statistics")
}

/// A stream of statistics.
pub struct Statistics {
    name: String,
    /// Bytes of the newest messages that are kept.
    live_bytes: u64,
    writer: Beside<Writer>,
    bytes: Vec<u8>,
}

impl Statistics {
    /// That of a worker or a receiver, which keeps the newest `live_bytes`. It is made with the first number.
    pub fn new(stage: &str, live_bytes: u64) -> Self {
        Self { name: statistics_of(stage), live_bytes, writer: Beside::default(), bytes: Vec::new() }
    }

    /// Appends the numbers of a moment, ns since 1970 UTC: origin, name and value of each. False: the stream is not
    /// open yet, and nothing was appended.
    pub fn push<'a>(
        &mut self,
        data: &Data,
        now: i64,
        numbers: impl IntoIterator<Item = (&'a str, &'a str, Scalar)>,
    ) -> Result<bool, Fault> {
        let mut numbers = numbers.into_iter().peekable();
        if numbers.peek().is_none() {
            return Ok(true);
        }
        let name = self.name.clone();
        let fault = |e| stream_fault(&self.name, e);
        let options = Options { when_full: WhenFull::DropOldest, ..Options::memory(self.live_bytes) };
        let opened = self.writer.open(data, false, move |data| data.writer(&name, &options))?;
        let Some(writer) = opened else { return Ok(false) };
        for (origin, number, value) in numbers {
            let origin = writer.origin(origin).map_err(fault)?;
            let value =
                wire::f144::F144 { source_name: number, timestamp: now, value: wire::f144::Value::Scalar(value) };
            wire::f144::write(&mut self.bytes, &value).map_err(|e| Fault::new("cannot encode a number", e))?;
            let schema = SchemaId(wire::f144::ID);
            let meta = Meta { source_time: now, origin, origin_seq: writer.next_sequence(), schema, flags: 0 };
            match writer.push(&meta, &[&self.bytes]) {
                Ok(_) => {}
                // They are worth less than the memory.
                Err(e) if e.is_full() => break,
                Err(e) => return Err(fault(e)),
            }
        }
        writer.publish();
        Ok(true)
    }
}
