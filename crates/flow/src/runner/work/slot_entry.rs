//! A slot as its runner sees it: its stream, its tasks, its answers, and since when it has been at its present message.

use super::piece::Answered;
use super::{ENTRIES, RECENT, SlotState, WorkOptions};
use crate::Fault;
use crate::data::{Data, slot_stream, stream_fault};
use crate::slot::{MORE, STATE};
use std::collections::VecDeque;
use store::{Error, Level, Parent, ReadOptions, Reader, Writer};

pub(super) struct SlotEntry {
    pub(super) stream: String,
    pub(super) reader: Reader,
    pub(super) parent: Parent,
    /// Next entry of its stream to read.
    pub(super) at: u64,
    /// No later answer refers to entries below.
    pub(super) answered: u64,
    /// Its last answers: they may lie between outputs of the next.
    pub(super) recent: VecDeque<u64>,
    /// Tasks that it has not answered.
    pub(super) tasks: VecDeque<u64>,
    /// Its task is retried alone: it gets no other before it has answered.
    pub(super) is_alone: bool,
    pub(super) ready: bool,
    /// It has opened the tasks since it was made ready.
    pub(super) is_there: bool,
    /// It has answered no message since it was made ready.
    pub(super) is_new: bool,
    /// When it was made ready, ns of `Media::clock`.
    pub(super) since: i64,
    /// The newest command (`configure`, `stop`) for it that it may not have read.
    pub(super) command: Option<u64>,
    /// The first task that was for it when it was made ready.
    pub(super) from: u64,
    /// Its process; 0 for a thread of this one.
    pub(super) pid: u32,
    pub(super) state: SlotState,
    /// Bytes of the state that its code saved last.
    pub(super) state_bytes: u64,
    /// It has no room for its results.
    pub(super) is_full: bool,
    /// Up to where its stream is on the disk while there is more of it, and since when, ns of `Media::clock`.
    pub(super) unmoved: Option<(u64, i64)>,
    /// Task, place in the input, and since when, ns of `Media::clock`.
    pub(super) stands: Option<(u64, u64, i64)>,
}

impl SlotEntry {
    pub(super) fn open(
        data: &Data,
        stage: &str,
        number: u32,
        options: &WorkOptions,
        output: &mut Writer,
        at: u64,
    ) -> Result<Self, Fault> {
        let stream = slot_stream(stage, number);
        // Opening it for writing proves that no slot of an earlier runner writes it: all its answers are there.
        drop(data.writer(&stream, &options.slot_options())?);
        let early = options.output.level == Level::Memory;
        let reader = data.reader(&stream, ReadOptions { early, ..ReadOptions::default() })?;
        let parent = output.parent(&stream).map_err(|e| stream_fault(stage, e))?;
        // The output never shows messages that it has passed.
        let named = format!("view {stage}");
        let passed = reader.pins().readers().into_iter().find(|r| r.name == named).map_or(0, |r| r.committed);
        let at = at.max(passed).clamp(reader.bounds().first, reader.bounds().count.max(reader.bounds().first));
        let state = SlotState { ready: false, tasks: 0, messages: 0, busy: 0, deaths: 0, statistics: String::new() };
        Ok(Self {
            stream,
            reader,
            parent,
            at,
            answered: at,
            recent: VecDeque::new(),
            tasks: VecDeque::new(),
            is_alone: false,
            ready: false,
            is_there: false,
            is_new: true,
            since: 0,
            command: None,
            from: 0,
            pid: 0,
            state,
            state_bytes: 0,
            is_full: false,
            unmoved: None,
            stands: None,
        })
    }

    /// Answers behind the last that was looked at.
    pub(super) fn new_answers(&mut self, slot: usize, stage: &str) -> Result<Vec<(Answered, Vec<u8>)>, Fault> {
        let fault = |e| stream_fault(stage, e);
        let mut answers = Vec::new();
        loop {
            let entries = match self.reader.entries(self.at, ENTRIES) {
                Ok(entries) => entries,
                Err(Error::Gone { first }) => {
                    self.at = first;
                    continue;
                }
                Err(e) => return Err(fault(e)),
            };
            if entries.is_empty() {
                return Ok(answers);
            }
            let state = entries.iter().rfind(|entry| entry.schema.0 == STATE);
            self.state_bytes = state.map_or(self.state_bytes, |entry| u64::from(entry.length));
            let found: Vec<u64> = (self.at..)
                .zip(entries)
                .filter(|(_, entry)| entry.schema.0 == wire::bpdn::ID)
                .map(|(sequence, _)| sequence)
                .collect();
            self.at += entries.len() as u64;
            for sequence in found {
                let Some((_, bytes)) = self.reader.get(sequence).map_err(fault)? else { continue };
                let Ok(answer) = wire::bpdn::read(&bytes) else { continue };
                let answered = Answered::from_wire(slot, sequence, &answer, &self.recent);
                self.answered = if answer.task.command == MORE { answered.outputs_end() } else { sequence + 1 };
                if self.recent.len() == RECENT {
                    self.recent.pop_front();
                }
                self.recent.push_back(sequence);
                answers.push((answered, bytes));
            }
        }
    }
}
