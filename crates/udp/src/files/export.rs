//! Writes messages of a run to a file of units.

use super::{Format, hld};
use crate::framing::geb;
use crate::framing::hadaq::SubEvent;
use crate::limits::{BLOCK_BYTES_MAX, HADAQ_ALIGN, HLD_DATA, HLD_HEADER, HLD_START, HLD_STOP};
use flow::Fault;
use flow::edge::{ExportFile, ExportKind};
use std::io::Write;
use store::Message;

/// Files of units of GRETINA and GRETA.
pub static GEB: ExportKind = ExportKind {
    name: "geb",
    about: "messages of framing `geb`",
    blocks: "units",
    begin: |out, run| Ok(Box::new(Export::new(Format::Geb, out, run)?)),
};

/// Files of events of HADES.
pub static HLD: ExportKind = ExportKind {
    name: "hld",
    about: "messages of framing `hadaq`",
    blocks: "events",
    begin: |out, run| Ok(Box::new(Export::new(Format::Hld, out, run)?)),
};

/// A file of units that is being written.
///
/// Of format `hld`, messages one behind the other that have the same number and tag of a trigger, and come from
/// different hubs, are one event.
#[derive(Debug)]
struct Export<W: Write> {
    format: Format,
    out: W,
    /// Start and stop of the run, ns since 1970 UTC.
    run: (i64, i64),
    event: Event,
    messages: u64,
    blocks: u64,
    bytes: u64,
}

/// The event that is being made.
#[derive(Debug, Default)]
struct Event {
    /// Its sub-events, padded.
    bytes: Vec<u8>,
    /// Number and tag of the trigger.
    word: u32,
    hubs: Vec<u16>,
    kind: u32,
    /// Source time of its first message, ns since 1970 UTC.
    time: i64,
}

impl<W: Write> Export<W> {
    /// Begins a file. `run`: its start and stop, ns since 1970 UTC.
    fn new(format: Format, out: W, run: (i64, i64)) -> Result<Self, Fault> {
        let mut export = Self { format, out, run, event: Event::default(), messages: 0, blocks: 0, bytes: 0 };
        if format == Format::Hld {
            export.put(&hld::header(HLD_HEADER, HLD_START, 0, run.0, run.0))?;
        }
        Ok(export)
    }

    /// Writes the event at hand, if there is one.
    fn end_event(&mut self) -> Result<(), Fault> {
        if self.event.hubs.is_empty() {
            return Ok(());
        }
        self.blocks += 1;
        let event = std::mem::take(&mut self.event);
        let size = HLD_HEADER + event.bytes.len();
        let id = HLD_DATA | event.kind;
        self.put(&hld::header(size, id, self.blocks as u32, event.time, self.run.0))?;
        self.put(&event.bytes)?;
        // Its memory is used again.
        self.event = Event { bytes: event.bytes, hubs: event.hubs, ..Event::default() };
        self.event.bytes.clear();
        self.event.hubs.clear();
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes).map_err(|e| Fault::io("cannot write the file", &e))
    }
}

impl<W: Write> ExportFile for Export<W> {
    fn push(&mut self, message: &Message<'_>, time: i64) -> Result<(), Fault> {
        let schema = message.entry.schema;
        let wrong = |cause: String| {
            let hint = "geb takes messages of framing `geb`, hld those of framing `hadaq`";
            Err(Fault::new(format!("cannot write message {} to the file", message.sequence), cause).hint(hint))
        };
        if schema != self.format.schema() {
            return wrong(format!("its schema id is `{schema}`, not `{}`", self.format.schema()));
        }
        let payload = message.payload;
        self.messages += 1;
        if self.format == Format::Geb {
            if geb::size(payload) != Some(Some(payload.len())) {
                return wrong("it is not one unit".into());
            }
            self.blocks += 1;
            return self.put(payload);
        }
        let Some(sub) = SubEvent::read(payload).filter(|sub| sub.size == payload.len()) else {
            return wrong("it is not one sub-event".into());
        };
        let size = sub.size.next_multiple_of(HADAQ_ALIGN);
        let is_other = sub.word != self.event.word || self.event.hubs.contains(&sub.hub());
        if is_other || HLD_HEADER + self.event.bytes.len() + size > BLOCK_BYTES_MAX {
            self.end_event()?;
        }
        let event = &mut self.event;
        if event.hubs.is_empty() {
            (event.word, event.kind, event.time) = (sub.word, sub.kind(), time);
        }
        event.hubs.push(sub.hub());
        event.bytes.extend_from_slice(payload);
        event.bytes.resize(event.bytes.len().next_multiple_of(HADAQ_ALIGN), 0);
        Ok(())
    }

    fn end(mut self: Box<Self>) -> Result<(u64, u64, u64), Fault> {
        self.end_event()?;
        if self.format == Format::Hld {
            let (start, stop) = self.run;
            self.put(&hld::header(HLD_HEADER, HLD_STOP, self.blocks as u32, stop, start))?;
        }
        self.out.flush().map_err(|e| Fault::io("cannot write the file", &e))?;
        Ok((self.messages, self.blocks, self.bytes))
    }
}
