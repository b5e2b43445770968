//! The state that a worker keeps of messages it has done, read from its input again.
//!
//! The worker is a named reader there, which holds the first message that is needed, as of the last commit. A slot that
//! starts, or receives messages again, reads from there, and makes no output before its first message.
//!
//! Failure behaviour: a message that cannot be read is skipped, as it was the first time.

use flow::Fault;
use flow::{Data, each_batch, stream_fault};
use std::collections::VecDeque;
use store::{Check, Kind, Message, ReadOptions, Reader};

/// The messages of an input that a worker may need again.
pub(super) struct Again {
    data: Data,
    stage: String,
    input: String,
    hold: Option<Reader>,
    /// (message, the first that is needed from there on), for what is not committed.
    needed: VecDeque<(u64, u64)>,
}

/// Takes what is read again, with the names of the input's origins.
pub(super) type See<'a> = dyn FnMut(&[String], &Message<'_>) -> Result<(), Fault> + 'a;

impl Again {
    pub(super) fn new(data: &Data, stage: &str, input: &str) -> Self {
        let (stage, input) = (stage.to_owned(), input.to_owned());
        Self { data: data.clone(), stage, input, hold: None, needed: VecDeque::new() }
    }

    /// Restarts before a message. Returns the first message that was held, or this one.
    pub(super) fn begin(&mut self, before: u64) -> Result<u64, Fault> {
        let name = format!("keeps {}", self.stage);
        let options = ReadOptions { name, kind: Kind::Counted, early: true, ..Default::default() };
        let held = self.data.reader(&self.input, options)?;
        let from = if held.resumed() { held.committed().min(before) } else { before };
        held.commit(from);
        self.hold = Some(held);
        self.needed = [(before, from)].into();
        Ok(from)
    }

    /// From message `next` on, those from `first` on are needed. Releases the messages before those needed at the last
    /// commit: nothing reads them again.
    pub(super) fn need(&mut self, next: u64, first: u64) {
        let Some(hold) = &self.hold else { return };
        if self.needed.back().is_none_or(|newest| newest.0 < next) {
            self.needed.push_back((next, first));
        }
        let runner = hold.pins().readers().into_iter().find(|r| r.name == self.stage);
        let committed = runner.map_or(0, |r| r.committed);
        while self.needed.get(1).is_some_and(|needed| needed.0 <= committed) {
            self.needed.pop_front();
        }
        if let Some((_, first)) = self.needed.front() {
            hold.commit(*first);
        }
    }
}

/// Reads the messages of a range of a stream, of which so much is verified; `see` gets the names of their origins, too.
pub(super) fn read(
    data: &Data,
    stream: &str,
    range: std::ops::Range<u64>,
    check: Check,
    see: &mut See<'_>,
) -> Result<(), Fault> {
    let mut reader = data.reader(stream, ReadOptions { early: true, check, ..ReadOptions::default() })?;
    let names = reader.origins().map_err(|e| stream_fault(stream, e))?.to_vec();
    reader.seek(range.start);
    each_batch(&mut reader, range.end, &mut |batch| {
        batch.iter().try_for_each(|message| see(&names, &message))?;
        Ok(true)
    })?;
    Ok(())
}
