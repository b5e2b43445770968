//! The life of slots: they become ready, answer, die or are overdue.
//!
//! A dead slot's tasks are assigned again. Its position in the input identifies the message that it processed: that
//! message is retried alone, and set aside at the second death ([`DEATHS_MAX`]); a batch without a position is halved
//! instead. Of a slot whose output does not reach the disk, the oldest messages without an answer are retried alone.
//! With `blames = false` messages are retried without end, because state from one message to the next must not lose
//! one.
//!
//! Constraints: limits of time use the monotonic clock; the caller kills and reaps the processes.

use super::piece::{Answered, Piece, Todo};
use super::slot_entry::SlotEntry;
use super::{DEATHS_MAX, OVERDUE_LOOK, Overdue, START_MAX, SlotEnd, SlotState, Work};
use crate::Fault;
use crate::book::own_meta;
use crate::data::{stream_fault, tasks_of};
use crate::limits::{SLOT_ROOM_BYTES, SLOTS_MAX};
use crate::slot::{MORE, STOP, WAITS};
use store::SchemaId;

impl Work {
    /// Configured number of slots.
    pub fn slots(&self) -> u32 {
        self.options.slots
    }

    /// Changes the number of slots, from the next block on.
    pub fn set_slots(&mut self, slots: u32) -> Result<(), Fault> {
        let slots = slots.clamp(1, SLOTS_MAX);
        for number in self.places.len() as u32..slots {
            let place = SlotEntry::open(&self.data, &self.stage, number, &self.options, &mut self.output, 0)?;
            self.places.push(place);
        }
        self.options.slots = slots;
        (self.turn, self.turn_left) = (0, 0);
        self.is_changed = true;
        Ok(())
    }

    /// The present parameters, a JSON object.
    pub fn parameters(&self) -> &str {
        &self.options.parameters
    }

    /// Number of committed blocks after which the last change is safe; without a change, the present state.
    pub fn change(&self) -> u64 {
        self.block + u64::from(self.is_changed)
    }

    /// True if this number of blocks is committed at their mark: they survive a restart.
    pub fn is_safe(&self, blocks: u64) -> bool {
        self.block >= blocks && self.pending.front().is_none_or(|pending| pending.commit.block >= blocks)
    }

    /// A slot is about to start: it is given tasks as soon as it has opened them. `pid`: its process, 0 for a thread of this one. The answer is
    /// the first task that it shall look at.
    pub fn ready(&mut self, slot: u32, pid: u32) -> u64 {
        let from = self.tasks.next_sequence();
        if let Some(place) = self.places.get_mut(slot as usize) {
            (place.ready, place.pid, place.state.ready, place.stands) = (true, pid, true, None);
            (place.from, place.is_new) = (from, true);
            (place.is_there, place.since, place.command) = (false, self.data.media.clock(), None);
        }
        from
    }

    /// Finds slots that have opened their tasks.
    pub(super) fn look_who_came(&mut self) {
        for number in 0..self.places.len() {
            let place = &self.places[number];
            if place.ready && !place.is_there {
                self.places[number].is_there = self.at(number as u32).is_some_and(|at| at & !WAITS >= place.from);
            }
        }
    }

    /// Takes tasks back that were overwritten before their slot read them: they are given anew. True if there were any.
    ///
    /// A slot that is at a task stands at it, and one that finds tasks overwritten stands behind them.
    pub(super) fn take_back_overwritten(&mut self) -> bool {
        let first = self.tasks.first_sequence();
        let mut did = false;
        for number in 0..self.places.len() {
            if self.places[number].tasks.front().is_none_or(|task| *task >= first) {
                continue;
            }
            let at_work = self.at(number as u32).map(|at| at & !WAITS);
            let is_lost = |task: &u64| *task < first && Some(*task) != at_work;
            let tasks = std::mem::take(&mut self.places[number].tasks);
            let (lost, kept): (Vec<u64>, Vec<u64>) = tasks.into_iter().partition(is_lost);
            self.places[number].tasks = kept.into();
            for task in lost.into_iter().rev() {
                let Some((id, part)) = self.given.remove(&task) else { continue };
                let Some(part) = self.pieces.get_mut(&id).and_then(|piece| piece.parts.get_mut(part)) else { continue };
                let Some(given) = part.given.iter().position(|g| g.0 == task) else { continue };
                let (_, todo) = part.given.remove(given);
                part.todo.push_front(todo);
                did = true;
            }
        }
        did
    }

    /// Sends commands again that are in the older half of the tasks and that their slot has not read: they shall not be
    /// overwritten.
    pub(super) fn repeat_commands(&mut self) -> Result<(), Fault> {
        let (first, next) = (self.tasks.first_sequence(), self.tasks.next_sequence());
        // Where there are few tasks none of them is about to be overwritten.
        let half = (first + (next - first) / 2).saturating_sub(4 * u64::from(SLOTS_MAX));
        for number in 0..self.places.len() {
            let Some(command) = self.places[number].command.filter(|command| *command < half) else { continue };
            let slot = number as u32;
            match self.at(slot) {
                Some(at) if at & !WAITS > command => self.places[number].command = None,
                Some(_) if self.places[number].ready => self.send_parameters(slot)?,
                Some(_) => drop(self.send(slot, STOP, "")?),
                // It does not live, or has not come.
                None => {}
            }
        }
        Ok(())
    }

    /// The process of a slot that was made ready.
    pub fn started(&mut self, slot: u32, pid: u32) {
        if let Some(place) = self.places.get_mut(slot as usize) {
            place.pid = pid;
        }
    }

    /// Gives a slot the parameters of now: to be called after `ready`.
    pub fn send_parameters(&mut self, slot: u32) -> Result<(), Fault> {
        let arguments = self.options.parameters.clone();
        self.send(slot, "configure", &arguments).map(drop)
    }

    /// Changes the parameters (a JSON object): all blocks that are handed out from now on are worked on with them.
    pub fn configure(&mut self, parameters: &str) -> Result<(), Fault> {
        self.options.parameters = parameters.to_owned();
        self.is_changed = true;
        for slot in 0..self.options.slots {
            self.send_parameters(slot)?;
        }
        Ok(())
    }

    /// Tells a slot to end when it has done what it has.
    pub fn stop(&mut self, slot: u32) -> Result<(), Fault> {
        if let Some(place) = self.places.get_mut(slot as usize) {
            (place.ready, place.state.ready) = (false, false);
        }
        self.send(slot, STOP, "").map(drop)
    }

    /// The states of the slots.
    pub fn states(&self) -> Vec<SlotState> {
        let state = |p: &SlotEntry| SlotState { tasks: p.tasks.len(), ..p.state.clone() };
        self.places.iter().take(self.options.slots as usize).map(state).collect()
    }

    /// A slot is dead (its process has been reaped): its tasks are given to others. `text` has the exit status, the
    /// signal or the limit.
    pub fn died(&mut self, slot: u32, end: SlotEnd, text: &str) -> Result<(), Fault> {
        let reason = if end == SlotEnd::Overdue(Overdue::Code) { "time" } else { "killed" };
        let at = slot as usize;
        if at >= self.places.len() {
            return Ok(());
        }
        self.collect(at)?;
        let place = &mut self.places[at];
        place.answered = place.at;
        let was_ready = std::mem::take(&mut place.ready);
        (place.state.ready, place.stands, place.command) = (false, None, None);
        place.unmoved = None;
        // A slot that ends by command did not die.
        place.state.deaths += u64::from(was_ready);
        let stream = place.stream.clone();
        let tasks = std::mem::take(&mut place.tasks);
        // One that ended with an error has closed its places in order: they are nobody's, and say where it stood.
        let has_ended = end == SlotEnd::Exited && self.can_write();
        let pid = if has_ended && self.at(slot).is_none() { 0 } else { self.places[at].pid };
        let at_work = self.place_of(slot, pid);
        let oldest = tasks.front().copied();
        // Unstarted tasks return unchanged; the last is put in front first.
        for number in tasks.into_iter().rev() {
            let Some((id, part)) = self.given.remove(&number) else { continue };
            let Some(piece) = self.pieces.get_mut(&id) else { continue };
            let stood = self.sources[piece.input].stand(&stream, pid);
            let part = &mut piece.parts[part];
            let Some(given) = part.given.iter().position(|g| g.0 == number) else { continue };
            let (_, todo) = part.given.remove(given);
            // Answers reach the disk in order: what kept them from it is in the oldest task, or soon behind it. A slot
            // that ended by itself behind a task of which no answer is on the disk may have ended for that.
            let is_behind = has_ended && at_work.is_some_and(|at| at & !WAITS > number);
            let is_unsaved = (end == SlotEnd::Overdue(Overdue::Output) || is_behind) && oldest == Some(number);
            let blamed = match end {
                _ if is_unsaved => Some(todo.first),
                SlotEnd::Overdue(Overdue::Output) => None,
                _ => stood.filter(|at| at_work == Some(number) && (todo.first..todo.next).contains(at)),
            };
            // Time that has passed has no message.
            let blamed = blamed.filter(|_| self.options.blames && todo.first < todo.next);
            let rest = match blamed {
                None => vec![todo],
                Some(_) if todo.next - todo.first == 1 && todo.deaths + 1 >= DEATHS_MAX => {
                    part.answers.push(Answered::killed(&todo, reason, text));
                    part.answers.sort_by_key(|a| a.first);
                    Vec::new()
                }
                Some(_) if todo.next - todo.first == 1 => vec![Todo { deaths: todo.deaths + 1, ..todo }],
                // Where it stood says nothing: each is done alone.
                Some(_) if is_unsaved && self.options.code_traits.batch <= 1 => {
                    vec![Todo { is_suspect: true, ..todo }]
                }
                Some(at) if self.options.code_traits.batch <= 1 => {
                    let ranges = [(todo.first, at, 0), (at, at + 1, 1), (at + 1, todo.next, 0)];
                    let some = ranges.into_iter().filter(|r| r.0 < r.1);
                    some.map(|(first, next, deaths)| Todo { deaths, ..Todo::new(first, next) }).collect()
                }
                Some(_) if todo.deaths + 1 < DEATHS_MAX => vec![Todo { deaths: todo.deaths + 1, ..todo }],
                Some(_) => {
                    let half = todo.first + (todo.next - todo.first) / 2;
                    vec![Todo::new(todo.first, half), Todo::new(half, todo.next)]
                }
            };
            rest.into_iter().rev().for_each(|todo| part.todo.push_front(todo));
        }
        Ok(())
    }

    /// Slots that have been at one message for longer than `time_max`, or `first_time_max` at the first of a process:
    /// the caller kills them.
    pub fn overdue(&mut self) -> Vec<(u32, Overdue)> {
        let clock = self.data.media.clock();
        if clock.saturating_sub(self.looked) < OVERDUE_LOOK {
            return Vec::new();
        }
        self.looked = clock;
        let mut all = Vec::new();
        for number in 0..self.places.len() {
            let place = &self.places[number];
            let start_max = self.options.time_max.saturating_add(START_MAX);
            if place.ready && !place.is_there && clock.saturating_sub(place.since) > start_max {
                all.push((number as u32, Overdue::Code));
            }
            let is_unmoved = self.is_unmoved(number, clock);
            let place = &self.places[number];
            let Some(&front) = place.tasks.front().filter(|_| place.ready) else {
                self.places[number].stands = None;
                if is_unmoved {
                    all.push((number as u32, Overdue::Output));
                }
                continue;
            };
            let at = self.at(number as u32).unwrap_or(0);
            // Before its first task it starts, which may take long; behind its last its answer is on its way.
            let is_at_work = place.tasks.contains(&at);
            let limit = match (is_at_work, place.is_new) {
                (true, true) => self.options.first_time_max.max(self.options.time_max),
                (true, false) => self.options.time_max,
                (false, _) => start_max,
            };
            let task = if is_at_work { at } else { front };
            let input = self.given.get(&task).and_then(|(id, _)| self.pieces.get(id)).map(|p| p.input);
            let stood = input.and_then(|input| self.sources[input].stand(&place.stream, place.pid)).unwrap_or(at);
            let place = &mut self.places[number];
            match place.stands {
                // While it waits for room it stands behind the task.
                _ if at & WAITS != 0 => place.stands = None,
                Some((known, stand, since)) if (known, stand) == (task, stood) => {
                    if clock.saturating_sub(since) > limit {
                        all.push((number as u32, Overdue::Code));
                    }
                    // A process that is stopped writes no output either: the message that it stands at is to blame.
                    if is_at_work {
                        continue;
                    }
                }
                _ => place.stands = Some((task, stood, clock)),
            }
            if is_unmoved && all.last().is_none_or(|last| last.0 != number as u32) {
                all.push((number as u32, Overdue::Output));
            }
        }
        all
    }

    /// True if the disk takes what the runner writes, and has room: then a slot is to blame if its output is not there.
    fn can_write(&self) -> bool {
        let has_room = || self.data.media.free(&self.data.folder).is_ok_and(|free| free >= SLOT_ROOM_BYTES);
        self.trouble().is_none() && has_room()
    }

    /// True if what a slot made does not reach the disk for as long as it may take over a message. Code of a slot can
    /// close descriptors, or limit what its process writes. Where the runner cannot write either, or the disk has no
    /// room, the slot is not to blame.
    fn is_unmoved(&mut self, number: usize, clock: i64) -> bool {
        let can_write = self.can_write();
        let place = &mut self.places[number];
        let (mark, count) = (place.reader.end(), place.reader.bounds().count);
        place.unmoved = match place.unmoved {
            _ if !place.ready || !place.is_there || !can_write || mark >= count => None,
            Some((known, since)) if known == mark => Some((known, since)),
            _ => Some((mark, clock)),
        };
        place.unmoved.is_some_and(|(_, since)| clock.saturating_sub(since) > self.options.time_max)
    }

    pub(super) fn send(&mut self, slot: u32, command: &str, arguments: &str) -> Result<bool, Fault> {
        let task = wire::bptk::Task {
            command,
            number: self.tasks.next_sequence(),
            slot,
            input: 0,
            uuid: [0; 16],
            epoch: 0,
            block_first: 0,
            block_next: 0,
            first: 0,
            next: 0,
            part: 0,
            parts: 1,
            arguments,
        };
        if !self.append_task(&task)? {
            return Ok(false);
        }
        if let Some(place) = self.places.get_mut(slot as usize) {
            place.command = Some(task.number);
        }
        Ok(true)
    }

    pub(super) fn append_task(&mut self, task: &wire::bptk::Task<'_>) -> Result<bool, Fault> {
        wire::bptk::write(&mut self.bytes, task).map_err(|e| Fault::new("cannot encode a task", e))?;
        let meta = own_meta(0, task.number, SchemaId(wire::bptk::ID));
        match self.tasks.append(&meta, &self.bytes) {
            Ok(_) => Ok(true),
            Err(e) if e.is_full() => Ok(false),
            Err(e) => Err(stream_fault(&tasks_of(&self.stage), e)),
        }
    }

    /// Finds slots that wait for room.
    pub(super) fn look_for_full(&mut self) {
        for number in 0..self.places.len() {
            let waits = self.at(number as u32).is_some_and(|at| at & WAITS != 0);
            self.places[number].is_full |= waits && !self.places[number].tasks.is_empty();
        }
    }

    /// Where a slot stands in the tasks.
    pub(super) fn at(&self, slot: u32) -> Option<u64> {
        self.place_of(slot, self.places.get(slot as usize).map_or(0, |place| place.pid))
    }

    /// Where a slot stands or stood in the tasks. `pid`: its process, 0 for any.
    fn place_of(&self, slot: u32, pid: u32) -> Option<u64> {
        let name = format!("slot{slot}");
        let place = self.tasks.pins().readers().into_iter().find(|r| r.name == name)?;
        (pid == 0 || place.process.pid == pid).then_some(place.committed)
    }

    /// A slot's stream may be full of results behind messages that no slot can do without room in it. Discards its
    /// answers there, so that these messages are done again. True if there were any.
    pub(super) fn reclaim(&mut self) -> bool {
        let is_open = |piece: &&Piece| piece.answered() < piece.next;
        let Some(first) = self.pieces.iter().find(|(_, piece)| is_open(piece)).map(|(id, _)| *id) else { return false };
        let given = self.given.values().any(|(id, _)| *id == first);
        let mut did = false;
        for slot in 0..self.places.len() {
            let has_it = self.places[slot].tasks.iter().any(|n| self.given.get(n).is_some_and(|g| g.0 == first));
            // Where nobody has it, it is for any of them.
            if !self.places[slot].is_full || given && !has_it {
                continue;
            }
            self.places[slot].is_full = false;
            // Of the first block itself, what lies behind a message that nobody has answered.
            let behind = self.pieces.range_mut(first..);
            for (id, piece) in behind.filter(|(_, piece)| piece.pushed == 0 && piece.set_aside == 0) {
                let answered = if *id == first { piece.answered() } else { piece.first };
                for part in &mut piece.parts {
                    let is_behind = |a: &Answered| a.slot == slot && a.first >= answered;
                    let answers = std::mem::take(&mut part.answers);
                    let (gone, kept): (Vec<Answered>, _) = answers.into_iter().partition(is_behind);
                    part.answers = kept;
                    did |= !gone.is_empty();
                    part.todo.extend(gone.iter().map(|a| Todo::new(a.first, a.next)));
                    part.todo.make_contiguous().sort_by_key(|todo| todo.first);
                }
            }
        }
        did
    }

    /// Takes the new answers of a slot.
    pub(super) fn collect(&mut self, slot: usize) -> Result<bool, Fault> {
        let place = &mut self.places[slot];
        if place.reader.end() <= place.at && place.tasks.is_empty() {
            return Ok(false);
        }
        let mut did = false;
        for (answered, bytes) in place.new_answers(slot, &self.stage)? {
            let Ok(answer) = wire::bpdn::read(&bytes) else { continue };
            if answer.task.command == STOP && self.places[slot].command == Some(answer.task.number) {
                self.places[slot].state.statistics = answer.state.to_owned();
            }
            // Tasks are numbered anew by each runner: an answer to another's may have been on its way to the disk.
            let Some((id, part)) = self.given.get(&answer.task.number).copied() else { continue };
            let Some(piece) = self.pieces.get(&id) else { continue };
            let asked = piece.parts.get(part).and_then(|p| p.given.iter().find(|g| g.0 == answer.task.number));
            let block = piece.block;
            let place = &mut self.places[slot];
            let is_to_it = (answer.task.block_first, answer.task.block_next) == block
                && answer.task.part as usize == part
                && asked.is_some_and(|g| g.1.first == answer.task.first)
                && place.tasks.contains(&answer.task.number)
                && answer.task.uuid == self.sources[piece.input].account.uuid;
            if !is_to_it {
                continue;
            }
            did = true;
            let comes_more = answer.task.command == MORE;
            if !comes_more {
                self.given.remove(&answer.task.number);
                place.tasks.retain(|number| *number != answer.task.number);
            }
            // Of no messages nothing was made, as there was no room: it is asked for again.
            let is_undone = piece.time.is_some() && answer.outputs.is_empty();
            let n = answer.task.next - answer.task.first;
            place.state.messages += n;
            place.is_new &= n == 0;
            place.state.busy += answer.busy;
            place.stands = None;
            place.is_full = !comes_more && asked.is_some_and(|g| answer.task.next < g.1.next || is_undone);
            if !answer.state.is_empty() {
                place.state.statistics = answer.state.to_owned();
            }
            if let Some(each) = answer.busy.checked_div(n) {
                self.message_ns = if self.message_ns == 0 { each } else { (self.message_ns * 7 + each) / 8 };
            }
            let Some(part) = self.pieces.get_mut(&id).and_then(|piece| piece.parts.get_mut(part)) else { continue };
            let Some(at) = part.given.iter().position(|g| g.0 == answer.task.number) else { continue };
            let todo = part.given[at].1.clone();
            let next = answer.task.next.min(todo.next);
            if comes_more {
                part.given[at].1.first = next;
            } else {
                part.given.remove(at);
                if next < todo.next || is_undone {
                    part.todo.push_front(Todo { first: next, ..todo });
                }
            }
            if next > todo.first || next == todo.next && !is_undone {
                part.answers.push(answered);
                part.answers.sort_by_key(|a| a.first);
            }
        }
        Ok(did)
    }
}
