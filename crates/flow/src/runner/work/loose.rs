//! Results that code sends outside of its calls: `W.loose`, a view of the streams `W.looseK` of its slots.
//!
//! Constraints: nothing is copied, and there are no commits: the view itself says how far it shows each stream.
//!
//! Failure behaviour: a restarted runner resumes behind the last message that the view shows of each stream.

use super::ENTRIES;
use crate::Fault;
use crate::data::{Data, loose_of, loose_stream, stream_fault};
use crate::limits::LOOSE_LOOK;
use std::collections::BTreeMap;
use store::{Level, Options, Parent, ReadOptions, Reader, Stretch, Writer};

/// The stream of loose results of a worker.
pub(super) struct Loose {
    data: Data,
    stage: String,
    options: Options,
    writer: Option<Writer>,
    slots: BTreeMap<u32, LooseSlot>,
    /// Shown since the runner started.
    pub(super) shown: u64,
    /// When it was looked for streams of slots last, ns of `Media::clock`.
    looked: i64,
}

struct LooseSlot {
    stream: String,
    reader: Reader,
    parent: Parent,
    /// Next message to show.
    at: u64,
}

impl Loose {
    /// `output`: how the output of the worker is kept, and so this.
    pub(super) fn new(data: &Data, stage: &str, output: &Options) -> Self {
        Self {
            data: data.clone(),
            stage: stage.to_owned(),
            options: output.clone(),
            writer: None,
            slots: BTreeMap::new(),
            shown: 0,
            looked: i64::MIN,
        }
    }

    /// Shows the messages that came since the last call. True if there were any.
    pub(super) fn show(&mut self, slots: u32) -> Result<bool, Fault> {
        let clock = self.data.media.clock();
        if clock.saturating_sub(self.looked) >= LOOSE_LOOK {
            self.looked = clock;
            self.find(slots)?;
        }
        let Some(writer) = &mut self.writer else { return Ok(false) };
        let before = self.shown;
        for slot in self.slots.values_mut() {
            self.shown += slot.show(writer)?;
        }
        if self.shown > before {
            writer.publish();
        }
        let is_safe = self.options.level == Level::Memory || writer.mark(Level::Disk) >= writer.next_sequence();
        let fault = |e| stream_fault(&loose_of(&self.stage), e);
        for slot in self.slots.values().filter(|_| is_safe) {
            writer.passed(slot.parent, slot.at).map_err(fault)?;
        }
        writer.relieve().map_err(fault)?;
        Ok(self.shown > before)
    }

    /// Looks for streams of slots, and for writers that have started again.
    fn find(&mut self, slots: u32) -> Result<(), Fault> {
        for slot in self.slots.values_mut() {
            slot.reader.reattach().map_err(|e| stream_fault(&slot.stream, e))?;
        }
        for number in 0..slots {
            let stream = loose_stream(&self.stage, number);
            if self.slots.contains_key(&number) || !self.data.has(&stream)? {
                continue;
            }
            let name = loose_of(&self.stage);
            let writer = match &mut self.writer {
                Some(writer) => writer,
                None => self.writer.insert(self.data.writer(&name, &self.options)?),
            };
            let parent = writer.parent(&stream).map_err(|e| stream_fault(&name, e))?;
            let early = self.options.level == Level::Memory;
            let reader = self.data.reader(&stream, ReadOptions { early, ..ReadOptions::default() })?;
            let named = format!("view {name}");
            let passed = reader.pins().readers().into_iter().find(|r| r.name == named).map_or(0, |r| r.committed);
            let at = shown_to(&self.data, &name, &stream)?.max(passed).max(reader.bounds().first);
            self.slots.insert(number, LooseSlot { stream, reader, parent, at });
        }
        Ok(())
    }
}

impl LooseSlot {
    /// Pushes its new messages to the view, as far as there is room. Returns how many.
    fn show(&mut self, writer: &mut Writer) -> Result<u64, Fault> {
        let before = self.at;
        let mut gone = 0;
        loop {
            let entries = match self.reader.next_entries(self.at, ENTRIES) {
                Ok(Stretch::Messages(entries)) => entries,
                // Nothing deletes what the view has not shown: a recovery has cut it.
                Ok(Stretch::Missing(missing)) => {
                    gone += missing.next.saturating_sub(self.at);
                    self.at = missing.next;
                    continue;
                }
                Err(e) => return Err(stream_fault(&self.stream, e)),
            };
            let mut pushed = 0;
            for (entry, sequence) in entries.iter().zip(self.at..) {
                match writer.push_view(self.parent, sequence, entry) {
                    Ok(_) => pushed += 1,
                    Err(e) if e.is_full() => break,
                    Err(e) => return Err(stream_fault(&self.stream, e)),
                }
            }
            let is_all = pushed == entries.len() as u64;
            self.at += pushed;
            if pushed == 0 || !is_all {
                return Ok(self.at - before - gone);
            }
        }
    }
}

/// Behind the last message of a stream that the view `name` shows; 0 where it shows none.
fn shown_to(data: &Data, name: &str, stream: &str) -> Result<u64, Fault> {
    let fault = |e| stream_fault(name, e);
    let mut view = data.reader_early(name)?;
    let parents = view.parents().map_err(fault)?;
    let bounds = view.bounds();
    let mut end = bounds.count;
    while end > bounds.first {
        let begin = bounds.first.max(end.saturating_sub(ENTRIES as u64));
        let entries = view.entries(begin, (end - begin) as usize).map_err(fault)?;
        let is_of = |row: u16| parents.get(usize::from(row).wrapping_sub(1)).is_some_and(|known| known.name == stream);
        if let Some(entry) = entries.iter().rfind(|entry| is_of(entry.parent)) {
            return Ok(entry.parent_sequence + 1);
        }
        end = begin;
    }
    Ok(0)
}
