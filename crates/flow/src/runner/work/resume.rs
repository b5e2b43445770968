//! Resumes a runner: finds the answers since the last commit, and which of their results the output shows already.
//!
//! The output identifies the used answers by itself: each of its entries points to a message of a slot's stream, and
//! the answer after that message names the input. So no result is pushed twice and none is cut.

use super::Work;
use super::piece::{Answered, Block, Lies, Part, Piece, Todo};
use crate::Fault;
use crate::aside;
use crate::data::{aside_of, each_batch, stream_fault};
use crate::limits::SLOTS_MAX;
use crate::records::epoch_end;
use crate::slot::SAME;
use std::collections::{BTreeMap, BTreeSet};
use store::ReadOptions;

/// An answer that was there when the runner started.
struct Found {
    answered: Answered,
    block: Block,
    part: usize,
    parts: u32,
    /// How many of its outputs are in the output behind the last commit.
    shown: u64,
    /// How many of those could be its.
    explained: u64,
}

impl Found {
    /// True if an entry of the output may come from it.
    fn explains(&self, lies: Lies, sequence: u64) -> bool {
        match lies {
            Lies::Slot(slot) => self.answered.slot == slot && self.answered.holds(sequence),
            Lies::Input(input) => self.block.0 == input && self.answered.lets_pass(sequence),
        }
    }
}

/// Blocks in the order of the output, and messages of inputs that it points to.
type Shown = (Vec<Block>, BTreeSet<(usize, u64)>);

impl Work {
    /// Finds what was answered since the last commit, and of that what is in the output already.
    pub(super) fn resume(&mut self, shown: u64) -> Result<(), Fault> {
        let mut found = Vec::new();
        for slot in 0..self.places.len() {
            let answers = self.places[slot].new_answers(slot, &self.stage)?;
            // Its slot is no more: what comes behind the last answer is nobody's.
            self.places[slot].answered = self.places[slot].at;
            for (answered, bytes) in answers {
                let Ok(answer) = wire::bpdn::read(&bytes) else { continue };
                let task = &answer.task;
                let Some(source) = self.sources.get(task.input as usize) else { continue };
                let header = source.reader.header();
                // A block of which a recovery has cut messages is done anew, as far as they are there.
                let is_of_now = task.uuid == header.uuid
                    && task.epoch == header.epoch_of(task.block_first)
                    && task.block_next <= epoch_end(header, task.epoch);
                // A message that was passed on unchanged, and no longer can be, is done again.
                let can_pass = source.parent.is_some() || !answered.outputs.contains(&SAME);
                let fits = can_pass && task.part < task.parts && task.parts <= SLOTS_MAX;
                let is_open = match task.block_first < task.block_next {
                    true => !source.open_ranges(answered.first, answered.next).is_empty(),
                    // Time has passed.
                    false => source.account.next == task.block_first && !answered.outputs.is_empty(),
                };
                if is_of_now && fits && is_open {
                    let block = (task.input as usize, task.block_first, task.block_next);
                    let (part, parts) = (task.part as usize, task.parts);
                    found.push(Found { answered, block, part, parts, shown: 0, explained: 0 });
                }
            }
        }
        let (order, passed) = self.shown_since(shown, &mut found)?;
        // Of time that has passed nothing depends on it before it is shown: it passes again.
        found.retain(|found| found.block.1 < found.block.2 || found.shown > 0);
        // Shown answers count; of the others those that fit between. An answer that was not safe when a runner started
        // may be superseded by another to the same messages.
        found.sort_by_key(|f| (f.shown == 0, f.answered.sequence));
        let mut pieces: BTreeMap<Block, Piece> = BTreeMap::new();
        for Found { answered, block, part, parts, shown, .. } in found {
            let (input, first, next) = block;
            let overlaps = |key: &Block| key.0 == input && key.1 < next && key.2 > first && *key != block;
            if pieces.keys().any(overlaps) {
                continue;
            }
            let source = &self.sources[input];
            let piece = pieces.entry(block).or_insert_with(|| {
                let epoch = source.reader.header().epoch_of(first);
                let mut piece = Piece::new(input, epoch, (first, next), (0..parts).map(|_| Part::default()).collect());
                // A part of it may be committed.
                (piece.first, piece.next) = source.open_ranges(first, next).first().copied().unwrap_or((next, next));
                piece.time = (first == next).then_some(i64::MIN);
                piece
            });
            piece.pushed += shown;
            let Some(part) = piece.parts.get_mut(part) else { continue };
            if part.answers.iter().all(|a| a.next <= answered.first || a.first >= answered.next) {
                part.answers.push(answered);
            }
        }
        for piece in pieces.values_mut() {
            piece.begins = self.begins_block(piece.input, piece.first);
            let stream = &self.sources[piece.input].account.stream;
            // Before one that went on as it is, those that did not were gone by then.
            let went = || passed.range((piece.input, piece.first)..(piece.input, piece.next)).map(|p| p.1);
            let (went, end) = (went().collect::<Vec<_>>(), went().next_back().unwrap_or(0));
            for sequence in piece.first..end {
                if went.binary_search(&sequence).is_err() {
                    piece.lose(stream, sequence, sequence + 1, "full");
                }
            }
            for part in &mut piece.parts {
                // A message that killed slots has no answer; it is aside before anything behind it is shown.
                for sequence in piece.first..piece.next {
                    let is_open = !part.answers.iter().any(|a| (a.first..a.next).contains(&sequence));
                    let known = self.known_aside.get(&(stream.clone(), sequence));
                    if let Some(reason) = known.filter(|_| is_open) {
                        let todo = Todo::new(sequence, sequence + 1);
                        part.answers.push(Answered::killed(&todo, reason, ""));
                    }
                }
                part.answers.sort_by_key(|a| a.first);
                let mut at = piece.first;
                for answer in &part.answers {
                    if at < answer.first {
                        part.todo.push_back(Todo::new(at, answer.first));
                    }
                    at = at.max(answer.next);
                }
                if at < piece.next {
                    part.todo.push_back(Todo::new(at, piece.next));
                }
            }
        }
        self.passes_time = pieces.values().any(|piece| piece.time.is_some());
        self.queue(pieces, order);
        Ok(())
    }

    /// Queues the blocks that are under way: first those in `order`, of which something is shown, then the others in
    /// their places. The messages between are cut again.
    fn queue(&mut self, mut pieces: BTreeMap<Block, Piece>, mut order: Vec<Block>) {
        let by_blocks = self.options.by_blocks;
        let mut rest: Vec<Block> = pieces.keys().copied().filter(|key| !order.contains(key)).collect();
        for (input, source) in self.sources.iter_mut().enumerate() {
            let mut at = source.account.next;
            for (_, first, next) in pieces.keys().filter(|key| key.0 == input) {
                for (mut first, next) in source.open_ranges(at, *first) {
                    // Several blocks of another host may lie between two that were answered.
                    while let Some(begins) = source.block_begins(first + 1, next).filter(|_| by_blocks) {
                        rest.push((input, first, begins));
                        first = begins;
                    }
                    rest.push((input, first, next));
                }
                at = at.max(*next);
            }
            source.cut = at;
        }
        for key in rest {
            let at = order.iter().position(|k| k.0 == key.0 && k.1 > key.1).unwrap_or(order.len());
            order.insert(at, key);
        }
        for key in order {
            match pieces.remove(&key) {
                Some(piece) => {
                    self.pieces.insert(self.next_piece, piece);
                    self.next_piece += 1;
                }
                None => drop(self.add_piece(key.0, key.1, key.2)),
            }
        }
    }

    /// Counts for each answer the entries of the output behind the last commit that are of it. The blocks of those, in
    /// the order of the output, and the messages of inputs that went on as they are.
    fn shown_since(&mut self, shown: u64, found: &mut [Found]) -> Result<Shown, Fault> {
        let end = self.output.next_sequence();
        let (mut order, mut passed, mut entries_of) = (Vec::new(), BTreeSet::new(), Vec::new());
        let fault = |e| stream_fault(&self.stage, e);
        let options = ReadOptions { early: true, ..ReadOptions::default() };
        let mut reader = self.data.reader(&self.stage, options)?;
        let rows = reader.parents().map_err(fault)?;
        let mut at = shown;
        while at < end {
            let entries = reader.entries(at, (end - at) as usize).map_err(fault)?;
            if entries.is_empty() {
                break;
            }
            for entry in entries {
                let name = rows.get(usize::from(entry.parent).wrapping_sub(1)).map(|row| row.name.as_str());
                let slot = self.places.iter().position(|p| Some(p.stream.as_str()) == name).map(Lies::Slot);
                let input = || self.sources.iter().position(|s| Some(s.account.stream.as_str()) == name);
                entries_of.push((slot.or_else(|| input().map(Lies::Input)), entry.parent_sequence));
            }
            at += entries.len() as u64;
        }
        // Of two answers to the same messages, the one was shown that explains more of what is there.
        for its in found.iter_mut() {
            let explained =
                entries_of.iter().filter(|(lies, sequence)| lies.is_some_and(|l| its.explains(l, *sequence)));
            its.explained = explained.count() as u64;
        }
        for (lies, sequence) in entries_of {
            let its = found.iter_mut().rev().filter(|f| lies.is_some_and(|l| f.explains(l, sequence)));
            let Some(its) = its.max_by_key(|f| f.explained) else {
                // Made of messages that a recovery has cut since.
                if self.sources.iter().any(|source| source.is_cut) {
                    continue;
                }
                return Err(Fault::new(
                    format!("cannot resume worker `{}`", self.stage),
                    format!("its output has a message behind {shown} of no answered block"),
                )
                .hint(format!("run `beamport verify {}` to look for damage", self.stage)));
            };
            its.shown += 1;
            if let Some(Lies::Input(input)) = lies {
                passed.insert((input, sequence));
            }
            if !order.contains(&its.block) {
                order.push(its.block);
            }
        }
        Ok((order, passed))
    }

    /// Finds the messages that were set aside behind the last commit.
    pub(super) fn resume_aside(&mut self, from: u64) -> Result<(), Fault> {
        let name = aside_of(&self.stage);
        if !self.data.has(&name)? {
            return Ok(());
        }
        self.aside = Some(aside::open(&self.data, &self.stage, self.like())?);
        let mut reader = self.data.reader_early(&name)?;
        reader.seek(from.max(reader.bounds().first));
        let mut known = BTreeMap::new();
        each_batch(&mut reader, u64::MAX, &mut |batch| {
            let asides = batch.iter().filter_map(|message| wire::bpas::read(message.payload).ok());
            known.extend(asides.map(|aside| ((aside.stream.to_owned(), aside.sequence), aside.reason.to_owned())));
            Ok(true)
        })?;
        (self.known_aside, self.known_from) = (known, from);
        Ok(())
    }
}
