//! The account of a task, from which its answers are made, and the row of messages that were set aside.

use super::task::{LOST, Task};
use crate::book::own_meta;
use crate::data::stream_fault;
use crate::records::Gap;
use crate::worker::Waiting;
use crate::{Fault, Pushed};
use std::time::Duration;
use store::{Level, SchemaId, Writer};

/// Messages (or batches) in a row that a slot which has done others puts aside: behind them a fresh slot tries the next.
/// Code that broke what it works with (a patched library, memory of a device that is used up) fails from then on
/// whatever comes, and each message that it puts aside is lost to the output; bad messages seldom come in such rows.
pub(super) const ASIDE_ROW_MAX: u32 = 16;

/// The account of the task that is worked on.
#[derive(Default)]
pub(super) struct Account {
    /// First message that is not answered for.
    pub(super) first: u64,
    /// Sequence after the last message that has its end.
    pub(super) next: u64,
    pub(super) output_first: u64,
    pub(super) outputs: Vec<u32>,
    pub(super) aside: Vec<u32>,
    pub(super) gaps: Vec<Gap>,
    /// When work on them began, ns of `Media::clock`.
    pub(super) began: i64,
    /// The state that user code keeps, as last reported, and the messages that wait.
    pub(super) kept: Vec<u64>,
    pub(super) waiting: Waiting,
    /// Bytes that were pushed for the messages, and answers come where the code says only.
    pub(super) bytes: u64,
    pub(super) has_state: bool,
    /// A state lies behind the results: these stand in a row, so that the next one comes behind an answer.
    pub(super) ends_row: bool,
    /// Pushed for messages that have no end yet.
    pub(super) open: u32,
    /// More than one message, or none, was made of one.
    pub(super) uneven: bool,
    /// There was no room: what was pushed last is nobody's, and the answer ends before it.
    pub(super) is_cut: bool,
}

/// The number of messages (or batches) in a row that were set aside.
#[derive(Default)]
pub(super) struct AsideRow {
    /// The message that was begun last.
    pub(super) begun: Option<u64>,
    /// The last one that was begun and set aside.
    pub(super) counted: Option<u64>,
    pub(super) count: u32,
    /// The slot has done a message since it started.
    pub(super) is_proven: bool,
}

impl AsideRow {
    /// Moves the message that was begun last to `NAME.aside`. False if a fresh slot should try it.
    pub(super) fn add(&mut self) -> bool {
        if self.begun.is_some() && self.counted == self.begun {
            return true;
        }
        if self.is_proven && self.count >= ASIDE_ROW_MAX {
            return false;
        }
        (self.count, self.counted) = (self.count + 1, self.begun);
        true
    }

    pub(super) fn end(&mut self) {
        (self.count, self.is_proven) = (0, true);
    }
}

impl Account {
    /// Starts over, with the memory that it has.
    pub(super) fn begin(&mut self, first: u64, output_first: u64, clock: i64) {
        let (mut outputs, mut aside) = (std::mem::take(&mut self.outputs), std::mem::take(&mut self.aside));
        outputs.clear();
        aside.clear();
        // It says itself behind which message: it stays true.
        let (kept, waiting) = (std::mem::take(&mut self.kept), self.waiting);
        let (began, has_state) = (clock, self.has_state);
        *self = Self {
            first,
            next: first,
            output_first,
            outputs,
            aside,
            kept,
            waiting,
            began,
            has_state,
            ..Self::default()
        };
    }

    /// Reports the part of a task that was done since the last answer, and restarts behind it. False if there is no
    /// room even for that.
    pub(super) fn answer(
        &mut self,
        writer: &mut Writer,
        task: &Task,
        media: &dyn store::Media,
        bytes: &mut Vec<u8>,
        command: &str,
        statistics: &str,
    ) -> Result<bool, Fault> {
        let gaps: Vec<wire::bpgp::Gap<'_>> = self.gaps.iter().map(Gap::as_wire).collect();
        let clock = media.clock();
        let answer = wire::bpdn::Answer {
            task: wire::bptk::Task {
                command,
                number: task.number,
                slot: task.slot,
                input: task.input,
                uuid: task.uuid,
                epoch: task.epoch,
                block_first: task.block.0,
                block_next: task.block.1,
                first: self.first,
                next: self.next,
                part: task.part,
                parts: task.parts,
                arguments: "",
            },
            output_first: self.output_first,
            outputs: if self.uneven { self.outputs.as_slice().into() } else { (&[]).into() },
            aside: self.aside.as_slice().into(),
            gaps: gaps.as_slice().into(),
            busy: clock.saturating_sub(self.began).max(0) as u64,
            state: statistics,
            kept: self.kept.as_slice().into(),
            waits: self.waiting.messages,
            oldest: self.waiting.oldest,
            due: self.waiting.due,
        };
        wire::bpdn::write(bytes, &answer).map_err(|e| Fault::new("cannot encode an answer", e))?;
        let open = self.open;
        // The first of the message that is not done yet lies before the answer.
        let output_first = writer.next_sequence() - u64::from(open);
        let meta = own_meta(media.now(), task.number, SchemaId(wire::bpdn::ID));
        let pushed = pushed(writer.push(&meta, &[bytes]), writer)?;
        let end = writer.publish();
        if pushed == Pushed::Full {
            return Ok(false);
        }
        if writer.header().level == Level::Disk {
            // Asked for, not waited for: the runner looks for the mark.
            writer.wait(end, Level::Disk, Duration::ZERO).map_err(|e| stream_fault(&writer.header().name, e))?;
        }
        self.begin(self.next, if open > 0 { output_first } else { end }, clock);
        (self.open, self.uneven) = (open, false);
        Ok(true)
    }

    /// Messages up to `end` are not there.
    pub(super) fn miss(&mut self, stream: &str, end: u64, reason: &'static str) {
        self.gaps.push(Gap { from: 0, to: 0, ..Gap::sequences(stream, self.next..=end - 1, reason) });
        self.uneven = true;
        self.outputs.resize((end - self.first) as usize, LOST);
        self.next = end;
    }
}

/// Whether the writer accepted a message.
pub(super) fn pushed(answer: store::Result<u64>, writer: &Writer) -> Result<Pushed, Fault> {
    match answer {
        Ok(_) => Ok(Pushed::Taken),
        Err(e) if e.is_full() => Ok(Pushed::Full),
        Err(e) => Err(stream_fault(&writer.header().name.clone(), e)),
    }
}
