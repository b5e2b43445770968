//! Cuts blocks of the inputs and assigns them to slots as tasks.
//!
//! Constraints: a block is as many messages as took about 5 ms at the last measurement, at most 4,096, or exactly
//! `turn`. A slot has at most two tasks, one running and the next, so that a death returns little. Returned tasks are
//! assigned first, because later blocks wait for them.

use super::piece::{Piece, Todo};
use super::slot_entry::SlotEntry;
use super::source::Source;
use super::{BLOCK_MESSAGES_MAX, BLOCK_NS, Share, TASKS_EACH, Work};
use crate::Fault;
use crate::limits::{STATE_BLOCK_NS, STATE_NS_A_BYTE};
use crate::slot::{COPY, TIME};

impl Work {
    /// Gives slots what there is to do.
    pub(super) fn deal(&mut self) -> Result<bool, Fault> {
        let mut did = false;
        // What came back goes first: all that is behind waits for it.
        let open: Vec<u64> = self
            .pieces
            .iter()
            .filter(|(_, piece)| piece.parts.iter().any(|part| !part.todo.is_empty()))
            .map(|(id, _)| *id)
            .collect();
        for id in open {
            did |= self.give(id)?;
            // A message that is retried alone waits for a slot without tasks: nobody else fills it up.
            let is_there = |slot: usize| self.places.get(slot).is_some_and(|place| place.ready && place.is_there);
            if self.pieces.get(&id).is_some_and(|piece| piece.waits_alone(is_there)) {
                return Ok(did);
            }
        }
        self.passes_time &= !(self.pieces.is_empty() && self.pending.is_empty());
        if self.passes_time {
            return Ok(did);
        }
        let most = self.options.slots as usize * (TASKS_EACH + 2) + 4;
        let mut input = 0;
        while input < self.sources.len() && self.pieces.len() < most {
            // Before a cut-over, and before code sees that a run has ended, only what lies between messages that are
            // shown.
            let waits = self.rests()
                || self.options.code_traits.follows_runs && self.sources[input].run_due(&self.edges).is_some();
            if waits && !self.sources[input].has_ahead() {
                input += 1;
                continue;
            }
            let Some((first, next)) = self.next_block(input) else {
                input += 1;
                continue;
            };
            if !self.has_room() {
                break;
            }
            let id = self.add_piece(input, first, next);
            self.sources[input].compare(next - 1);
            self.sources[input].cut = next;
            self.cut_at = self.data.media.clock();
            did = true;
            self.give(id)?;
        }
        Ok(did | self.pass_time()?)
    }

    /// Gives the slot of messages that wait the time up to which the input is complete, once all before is committed.
    /// Nothing is cut until that is committed too, so that a runner that starts finds the outputs behind the last
    /// commit, or none.
    fn pass_time(&mut self) -> Result<bool, Fault> {
        let is_free = self.pieces.is_empty() && self.pending.is_empty() && !self.rests() && self.has_room();
        let mut due = self.sources.iter().enumerate().filter(|_| is_free);
        let follows = self.options.code_traits.follows_runs;
        let edges = &self.edges;
        let run_due = |source: &Source| source.run_due(edges).filter(|_| follows && source.is_quiet());
        let due = due.find_map(|(at, source)| Some((at, source.due_time().or_else(|| run_due(source))?)));
        let Some((input, time)) = due else { return Ok(false) };
        let at = self.sources[input].committed;
        self.sources[input].passed = Some((at, time));
        let id = self.add_piece(input, at, at);
        if let Some(piece) = self.pieces.get_mut(&id) {
            piece.time = Some(time);
        }
        self.passes_time = true;
        self.give(id)?;
        Ok(true)
    }

    /// True if a new block would find who takes it.
    pub(super) fn has_room(&self) -> bool {
        match self.options.share {
            Share::Balance => self.groups().any(|group| group.clone().all(|slot| self.is_free(slot))),
            Share::RoundRobin => self.group_in_turn().is_some(),
            Share::All | Share::Key => (0..self.options.slots as usize).any(|slot| self.is_free(slot)),
        }
    }

    pub(super) fn is_free(&self, slot: usize) -> bool {
        let has_room = |p: &SlotEntry| p.tasks.len() < if p.is_alone { 1 } else { TASKS_EACH };
        self.places.get(slot).is_some_and(|p| p.ready && p.is_there && has_room(p))
    }

    /// The sets of slots that see the same block.
    pub(super) fn groups(&self) -> impl Iterator<Item = std::ops::Range<usize>> {
        let (slots, set) = (self.options.slots as usize, self.options.set.clamp(1, self.options.slots) as usize);
        (0..slots / set).map(move |group| group * set..(group + 1) * set)
    }

    /// The set whose turn it is, if it can take a block; sets with a slot that is not there are passed over, unless all
    /// are.
    pub(super) fn group_in_turn(&self) -> Option<std::ops::Range<usize>> {
        let count = self.groups().count();
        let there = |group: &std::ops::Range<usize>| group.clone().all(|slot| self.places[slot].ready);
        let group = (0..count).map(|i| (self.turn + i) % count).filter_map(|g| self.groups().nth(g)).find(there)?;
        group.clone().all(|slot| self.is_free(slot)).then_some(group)
    }

    /// The next messages of an input that go together.
    pub(super) fn next_block(&mut self, input: usize) -> Option<(u64, u64)> {
        let source = &mut self.sources[input];
        source.cut = source.cut.max(source.account.next);
        source.cut = source.done_to(source.cut);
        let first = source.cut;
        let end = source.reader.end();
        let there = end.checked_sub(first).filter(|n| *n > 0)?;
        let each = self.message_ns.max(1);
        let saves = self.options.code_traits.saves_state;
        let state_bytes = self.places.first().map_or(0, |place| place.state_bytes);
        let block_ns = if saves { STATE_BLOCK_NS.max(state_bytes * STATE_NS_A_BYTE) } else { BLOCK_NS };
        let usual = if self.message_ns == 0 { 1 } else { (block_ns / each).clamp(1, BLOCK_MESSAGES_MAX) };
        let clock = self.data.media.clock();
        let is_early = clock.saturating_sub(self.cut_at).unsigned_abs() < block_ns;
        if saves && is_early && there < usual && !source.ended {
            return None;
        }
        let slots = u64::from(self.options.slots);
        let mut count = match (self.options.turn, self.options.share) {
            (0, Share::Balance) => usual.min(there.div_ceil(slots)),
            (0, _) => usual,
            (turn, _) if self.turn_left == 0 => turn,
            _ => self.turn_left,
        };
        count = count.min(there).min(BLOCK_MESSAGES_MAX);
        count = match self.options.code_traits.batch {
            0 => return None,
            // The host that makes the blocks of another host does not know of batches.
            batch if batch > 1 && !self.options.by_blocks => {
                source.batches(first, (count.next_multiple_of(batch).min(there), there), batch, &self.edges)?
            }
            _ => count,
        };
        // A block is of one epoch.
        let header = source.reader.header();
        let epoch_ends = header.epochs.iter().find(|e| e.1 > first).map_or(u64::MAX, |e| e.1);
        // What retention has taken is for a slot to find: it says how much was lost.
        let mut next = (first + count).min(epoch_ends);
        if self.options.by_blocks {
            next = source.block_begins(first + 1, next).unwrap_or(next);
        }
        Some((first, source.open_end(first, next)))
    }

    /// Gives the open parts of a block to slots that have room. True if any was given.
    pub(super) fn give(&mut self, id: u64) -> Result<bool, Fault> {
        let Some(mut piece) = self.pieces.remove(&id) else { return Ok(false) };
        let answer = self.give_parts(id, &mut piece);
        self.pieces.insert(id, piece);
        answer
    }

    pub(super) fn give_parts(&mut self, id: u64, piece: &mut Piece) -> Result<bool, Fault> {
        let is_free_set = matches!(self.options.share, Share::Balance | Share::RoundRobin);
        let is_new = piece.parts.iter().all(|p| p.slot.is_none());
        if is_free_set && is_new {
            let group = match self.options.share {
                Share::RoundRobin => self.group_in_turn(),
                _ => self
                    .groups()
                    .filter(|g| g.clone().all(|slot| self.is_free(slot)))
                    .min_by_key(|g| g.clone().map(|slot| self.places[slot].tasks.len()).max()),
            };
            let Some(group) = group else { return Ok(false) };
            if self.options.share == Share::RoundRobin {
                self.turn_on(&group, piece.next - piece.first);
            }
            piece.parts.iter_mut().zip(group).for_each(|(part, slot)| part.slot = Some(slot));
        }
        let mut did = false;
        for at in 0..piece.parts.len() {
            let count = piece.parts.len() as u32;
            let part = &mut piece.parts[at];
            while let Some(todo) = part.todo.front() {
                let slots = self.options.slots as usize;
                let is_alone = todo.is_alone();
                let takes = |slot: &usize| self.is_free(*slot) && (!is_alone || self.places[*slot].tasks.is_empty());
                let slot = match part.slot.filter(|slot| count > 1 && *slot < slots) {
                    // A slot that sees the same block as others has a part of its own in it.
                    Some(slot) => Some(slot).filter(takes),
                    None => part.slot.filter(takes).or_else(|| {
                        let free = (0..slots).filter(takes);
                        free.min_by_key(|slot| self.places[*slot].tasks.len())
                    }),
                };
                let Some(slot) = slot else { break };
                let next = if is_alone && self.options.code_traits.batch <= 1 { todo.first + 1 } else { todo.next };
                let number = self.tasks.next_sequence();
                let time = piece.time.map(|time| time.to_string());
                let copy = if self.sources[piece.input].parent.is_some() { "" } else { COPY };
                let task = wire::bptk::Task {
                    command: if time.is_some() { TIME } else { "" },
                    number,
                    slot: slot as u32,
                    input: piece.input as u32,
                    uuid: self.sources[piece.input].account.uuid,
                    epoch: piece.epoch,
                    block_first: piece.block.0,
                    block_next: piece.block.1,
                    first: todo.first,
                    next,
                    part: at as u32,
                    parts: count,
                    arguments: time.as_deref().unwrap_or(copy),
                };
                if !self.append_task(&task)? {
                    return Ok(did);
                }
                let Some(mut todo) = part.todo.pop_front() else { break };
                if next < todo.next {
                    part.todo.push_front(Todo { first: next, ..todo });
                    todo.next = next;
                }
                self.places[slot].is_alone = is_alone;
                self.places[slot].tasks.push_back(number);
                self.given.insert(number, (id, at));
                part.given.push((number, todo));
                did = true;
            }
        }
        Ok(did)
    }

    /// A set has had some messages of its turn.
    pub(super) fn turn_on(&mut self, group: &std::ops::Range<usize>, messages: u64) {
        let count = self.groups().count();
        let at = group.start / (group.end - group.start).max(1);
        if self.turn_left == 0 || self.turn != at {
            (self.turn, self.turn_left) = (at, self.options.turn.max(messages));
        }
        self.turn_left = self.turn_left.saturating_sub(messages);
        if self.turn_left == 0 {
            self.turn = (at + 1) % count.max(1);
        }
    }
}
