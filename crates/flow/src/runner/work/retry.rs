//! Messages of `W.aside` once more: they are copied to the stream `W.retry`, which is the last input of the worker.
//!
//! Constraints: each message aside is copied once. A commit names the messages of `W.aside` to copy and where the
//! copies begin in `W.retry`, and is safe before the first copy: a restarted runner counts the copies that are there.
//!
//! Failure behaviour: without room the copies come later. Messages that retention has deleted from `W.aside`, and those
//! that were gone when they were set aside, are not retried.

use super::Work;
use crate::data::{Data, aside_of, retry_of, stream_fault};
use crate::limits::{ASIDE_BYTES, BOOK_LIVE_BYTES, RETRY_STEP};
use crate::merge::UpstreamState;
use crate::{Fault, Passes};
use serde_json::{Value, json};
use store::{Level, Meta, Options, Reader, SchemaId, Stretch, WhenFull, Writer};

/// The stream `W.retry` and what is to be copied to it.
pub(super) struct Retry {
    data: Data,
    stage: String,
    writer: Writer,
    aside: Option<Reader>,
    wanted: Option<Wanted>,
}

/// Messages of `W.aside` that are to be copied, or were.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    /// Identity of `W.aside`, in hexadecimal digits.
    uuid: String,
    /// The first of them, and the message behind the last.
    first: u64,
    next: u64,
    /// The first copy in `W.retry`.
    at: u64,
    /// The next to look at.
    cursor: u64,
    /// Copies that were there when the runner started and are not yet counted.
    made: u64,
    /// The number of commits behind which it is safe.
    safe: u64,
}

impl Retry {
    pub(super) fn open(data: &Data, stage: &str, output: &Options, state: &Value) -> Result<Self, Fault> {
        let bounded = match output.level {
            Level::Memory => Options { when_full: WhenFull::Wait, ..Options::memory(ASIDE_BYTES) },
            Level::Disk => Options { retain_bytes: Some(ASIDE_BYTES), ..Options::disk(BOOK_LIVE_BYTES) },
        };
        let writer = data.writer(&retry_of(stage), &Options { clock: output.clock, ..bounded })?;
        let known = &state["retry"];
        let number = |name: &str| known[name].as_u64();
        let is_same = known["stream"].as_str() == Some(&store::hex(&writer.header().uuid));
        let wanted = || {
            let (first, next, at) = (number("first")?, number("next")?, number("at")?);
            // A recovery may have cut copies that the runner has not read: they are made again.
            let made = writer.next_sequence().saturating_sub(at);
            let uuid = known["aside"].as_str()?.to_owned();
            Some(Wanted { uuid, first, next, at, cursor: first, made, safe: 0 })
        };
        let wanted = if is_same { wanted() } else { None };
        Ok(Self { data: data.clone(), stage: stage.to_owned(), writer, aside: None, wanted })
    }

    /// Its state, for a commit.
    pub(super) fn state(&self) -> Value {
        self.wanted.as_ref().map_or(Value::Null, |wanted| {
            let Wanted { uuid, first, next, at, .. } = wanted;
            let stream = store::hex(&self.writer.header().uuid);
            json!({"stream": stream, "aside": uuid, "first": first, "next": next, "at": at})
        })
    }

    fn reader(&mut self) -> Result<Option<&mut Reader>, Fault> {
        let name = aside_of(&self.stage);
        if self.aside.is_none() && self.data.has(&name)? {
            self.aside = Some(self.data.reader_early(&name)?);
        }
        if let Some(reader) = &mut self.aside {
            reader.reattach().map_err(|e| stream_fault(&name, e))?;
        }
        Ok(self.aside.as_mut())
    }

    /// Wants the messages of `W.aside` that were not wanted before; how many are there. They are copied once `safe`
    /// blocks are committed.
    fn want(&mut self, safe: u64) -> Result<u64, Fault> {
        let at = self.writer.next_sequence();
        let before = self.wanted.clone();
        let Some(reader) = self.reader()? else { return Ok(0) };
        let uuid = store::hex(&reader.header().uuid);
        let bounds = reader.bounds();
        let first = before.filter(|wanted| wanted.uuid == uuid).map_or(bounds.first, |wanted| wanted.next);
        let (first, next) = (first.max(bounds.first), bounds.count.max(first));
        let mut there = 0;
        reader.seek(first);
        crate::data::each_batch(reader, next, &mut |batch| {
            there += batch.iter().filter(|message| is_whole(message.payload)).count() as u64;
            Ok(true)
        })?;
        self.wanted = Some(Wanted { uuid, first, next, at, cursor: first, made: 0, safe });
        Ok(there)
    }

    /// Copies what is wanted. True if anything was.
    fn copy(&mut self) -> Result<bool, Fault> {
        let Some(mut wanted) = self.wanted.take_if(|wanted| wanted.cursor < wanted.next) else { return Ok(false) };
        let copied = self.copy_from(&mut wanted);
        self.wanted = Some(wanted);
        self.writer.publish();
        if self.writer.header().level == Level::Disk {
            let end = self.writer.next_sequence();
            super::asked(&mut self.writer, end);
        }
        match copied {
            Err(fault) if fault.passes == Passes::WithRoom => Ok(false),
            other => other,
        }
    }

    fn copy_from(&mut self, wanted: &mut Wanted) -> Result<bool, Fault> {
        let name = aside_of(&self.stage);
        self.reader()?;
        let is_same = |reader: &Reader| store::hex(&reader.header().uuid) == wanted.uuid;
        let Some(mut reader) = self.aside.take_if(|reader| is_same(reader)) else {
            wanted.cursor = wanted.next;
            return Ok(true);
        };
        reader.seek(wanted.cursor);
        let answer = match reader.next(RETRY_STEP.min((wanted.next - wanted.cursor) as usize)) {
            Ok(Stretch::Messages(batch)) => batch.iter().try_for_each(|message| {
                if is_whole(message.payload) {
                    match wanted.made.checked_sub(1) {
                        Some(left) => wanted.made = left,
                        None => append(&mut self.writer, &self.stage, &message)?,
                    }
                }
                wanted.cursor = message.sequence + 1;
                Ok(())
            }),
            Ok(Stretch::Missing(missing)) => {
                // Copies of what is gone may be there: none is made twice.
                let next = missing.next.min(wanted.next);
                wanted.made = wanted.made.saturating_sub(next - wanted.cursor);
                wanted.cursor = next;
                Ok(())
            }
            Err(e) => Err(stream_fault(&name, e)),
        };
        self.aside = Some(reader);
        answer.map(|()| true)
    }

    /// True if all that was wanted is copied.
    fn is_idle(&self) -> bool {
        self.wanted.as_ref().is_none_or(|wanted| wanted.cursor >= wanted.next)
    }
}

impl Work {
    /// Retries the messages of `W.aside` that were not retried before; the answer is how many are there. It holds once
    /// the commit of [`Work::change`] is safe. The runner must have been opened with [`super::WorkOptions::retries`].
    pub fn retry(&mut self) -> Result<u64, Fault> {
        let safe = self.block + 1;
        let Some(retry) = &mut self.retry else {
            return Err(Fault::new(format!("worker `{}` cannot retry", self.stage), "it has no stream for that"));
        };
        if !retry.is_idle() {
            return Err(Fault::new(format!("worker `{}` cannot retry", self.stage), "another retry is under way")
                .hint("try again after its answer"));
        }
        if let Some(aside) = &mut self.aside {
            aside.publish();
        }
        let there = retry.want(safe)?;
        self.is_changed = true;
        Ok(there)
    }

    /// Copies messages that are to be retried, once the commit that says so is safe.
    pub(super) fn copy_retried(&mut self) -> Result<bool, Fault> {
        let safe = self.retry.as_ref().and_then(|retry| retry.wanted.as_ref()).map(|wanted| wanted.safe);
        match (safe.is_some_and(|safe| self.is_safe(safe)), &mut self.retry) {
            (true, Some(retry)) => retry.copy(),
            _ => Ok(false),
        }
    }

    /// The state of `W.retry` for the runner: nobody waits for a message to be retried, and what is retried has come
    /// before the time of its copy. `others`: the states of the other inputs.
    pub(super) fn retry_state(now: i64, others: &[UpstreamState]) -> UpstreamState {
        let frontier = others.iter().map(|other| other.frontier).min().unwrap_or(i64::MAX).max(now);
        UpstreamState { frontier, ended: true, ..UpstreamState::NOTHING }
    }
}

/// Whether a message aside has what it is retried with.
fn is_whole(payload: &[u8]) -> bool {
    wire::bpas::read(payload).is_ok_and(|aside| aside.kind.len() == 4 && !aside.payload.bytes().is_empty())
}

/// Appends the message that is in a message aside, as it was.
fn append(writer: &mut Writer, stage: &str, message: &store::Message<'_>) -> Result<(), Fault> {
    let fault = |e| stream_fault(&retry_of(stage), e);
    let Ok(aside) = wire::bpas::read(message.payload) else { return Ok(()) };
    let Ok(schema) = <[u8; 4]>::try_from(aside.kind.as_bytes()) else { return Ok(()) };
    let origin = writer.origin(if aside.origin.is_empty() { stage } else { aside.origin }).map_err(fault)?;
    let (source_time, origin_seq) = (aside.time, message.entry.origin_seq);
    let meta = Meta { source_time, origin, origin_seq, schema: SchemaId(schema), flags: 0 };
    writer.append(&meta, aside.payload.bytes()).map(drop).map_err(fault)
}
