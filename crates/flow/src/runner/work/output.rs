//! Answers become output, and output a commit.
//!
//! Order: an answer at its mark, its results pushed to the view `W` and published, messages set aside, then the commit
//! with the counts of the block. With `order = "keep"` answers are used in the order of the input.
//!
//! Failure behaviour: without room for the output or a message aside, nothing of the block is committed and the next
//! step retries; results that are already in the output are not pushed again.

use super::cutover::SLOW;
use super::piece::{Apart, Lies, Part, Piece, Row};
use super::retry::Retry;
use super::slot_entry::SlotEntry;
use super::source::Source;
use super::{ENTRIES, Pending, Work, asked};
use crate::aside::{self, Like, Unhandled};
use crate::data::stream_fault;
use crate::limits::ASIDE_BYTES;
use crate::records::{BEYOND, Commit, Gap, reason_of};
use crate::slot::{FILTERED, LOST, SAME, cut};
use crate::worker::Waiting;
use crate::{Fault, Passes};
use serde_json::{Map, json};
use std::collections::BTreeMap;
use std::time::Duration;
use store::{Level, Missing, Options, Stretch, Writer};

/// The result of pushing a row of messages to the output.
enum Rowed {
    /// The number of pushed messages.
    Pushed(u64),
    /// There is no room.
    Full,
    /// Those below are not there any more.
    Lost { next: u64, reason: &'static str },
}

impl Work {
    /// Puts what was answered into the output, and makes one commit of it.
    pub(super) fn show(&mut self, now: i64) -> Result<bool, Fault> {
        let mut did = false;
        let ids: Vec<u64> = self.pieces.keys().copied().collect();
        for id in ids {
            let is_uncommitted = did || self.pending.iter().any(|pending| pending.sequence.is_none());
            if is_uncommitted && self.pieces.get(&id).is_some_and(|piece| piece.begins) {
                // The commit of all before it is in the book before anything of it is shown.
                break;
            }
            let Some(mut piece) = self.pieces.remove(&id) else { continue };
            // As far as it goes: outputs of a block may be more than a slot's stream holds.
            let end = piece.answered();
            let mut has_room = true;
            // Time that has passed has no messages, and one answer.
            let has_passed = piece.time.is_some() && piece.parts.iter().any(|part| !part.answers.is_empty());
            if end > piece.first || has_passed {
                let mut tally = BTreeMap::new();
                let before = self.output.next_sequence();
                has_room = self.push(&mut piece, end, &mut tally, now)?;
                match self.output.next_sequence() - before {
                    0 => {}
                    pushed if self.tail.0 == id => self.tail.1 += pushed,
                    pushed => self.tail = (id, pushed),
                }
                if has_room {
                    did = true;
                    self.count(&mut piece, end, tally);
                }
            }
            let is_whole = piece.is_whole();
            if !is_whole {
                self.pieces.insert(id, piece);
            }
            if !has_room || !is_whole && self.options.keep_order {
                break;
            }
        }
        self.output.publish();
        if did || self.is_changed {
            let counted = self.counted();
            self.is_changed = counted.is_none();
            if let Some(output_next) = counted {
                self.prepare(output_next, now);
            }
        }
        Ok(did)
    }

    /// The end of the output of which all is counted. What is shown of a block that had no room for the rest lies behind it:
    /// a restarted runner looks for it there. None where others lie behind that: then the commit waits for the rest.
    fn counted(&self) -> Option<u64> {
        let next = self.output.next_sequence();
        let mut begun = self.pieces.iter().filter(|(_, piece)| piece.pushed > 0);
        match (begun.next(), begun.next()) {
            (None, _) => Some(next),
            (Some((id, piece)), None) if self.tail.0 == *id && self.tail.1 >= piece.pushed => Some(next - piece.pushed),
            _ => None,
        }
    }

    /// Pushes the outputs of the messages of a block up to `end`. False where there is no room for the rest.
    pub(super) fn push(
        &mut self,
        piece: &mut Piece,
        end: u64,
        tally: &mut BTreeMap<String, u64>,
        now: i64,
    ) -> Result<bool, Fault> {
        let aparts = self.rows_of(piece, end, tally);
        for apart in aparts.into_iter().skip(piece.set_aside) {
            let at = self.aside.as_ref().map_or(0, Writer::next_sequence);
            let Some(reason) = self.set_apart(piece, apart, now)? else { return Ok(false) };
            piece.set_aside += 1;
            piece.aside_from.get_or_insert(at);
            *piece.reasons.entry(reason).or_default() += 1;
        }
        // A restarted runner must know of them before it finds messages shown behind them.
        if let Some(aside) = self.aside.as_mut().filter(|_| piece.set_aside > 0) {
            let end = aside.next_sequence();
            if self.options.output.level == Level::Disk && !asked(aside, end) {
                return Ok(false);
            }
        }
        let mut at = 0;
        for row in 0..self.rows.len() {
            let Row { lies, first, count } = self.rows[row];
            let mut sequence = first + piece.pushed.saturating_sub(at).min(count);
            at += count;
            while sequence < first + count {
                match self.push_row(lies, sequence, first + count)? {
                    Rowed::Full => return Ok(false),
                    Rowed::Pushed(pushed) => {
                        piece.pushed += pushed;
                        sequence += pushed;
                    }
                    // Slots saw it, and it was gone before the output pointed to it. The caller retries.
                    Rowed::Lost { next, reason } => {
                        let stream = &self.sources[piece.input].account.stream;
                        piece.lose(stream, sequence, next, reason);
                        return Ok(false);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Pushes messages of a slot's stream, or of an input.
    fn push_row(&mut self, lies: Lies, first: u64, end: u64) -> Result<Rowed, Fault> {
        let (reader, parent, stream) = match lies {
            Lies::Slot(slot) => {
                let SlotEntry { reader, parent, stream, .. } = &mut self.places[slot];
                (reader, *parent, stream.as_str())
            }
            Lies::Input(input) => {
                let Source { reader, parent, account, .. } = &mut self.sources[input];
                let Some(parent) = *parent else {
                    let what = format!("cannot resume worker `{}`", self.stage);
                    let cause = format!("message {first} of `{}` is no longer available to its output", account.stream);
                    return Err(Fault::new(what, cause));
                };
                (reader, parent, account.stream.as_str())
            }
        };
        let max = usize::try_from(end - first).unwrap_or(ENTRIES).min(ENTRIES);
        let entries = match reader.next_entries(first, max) {
            Ok(Stretch::Messages(entries)) => entries,
            Ok(Stretch::Missing(missing)) if matches!(lies, Lies::Input(_)) => {
                return Ok(Rowed::Lost { next: missing.next.min(end), reason: reason_of(&missing) });
            }
            Ok(Stretch::Missing(Missing { error, .. })) | Err(error) => return Err(stream_fault(stream, error)),
        };
        let mut pushed = 0;
        for (entry, sequence) in entries.iter().zip(first..) {
            match self.output.push_view(parent, sequence, entry) {
                Ok(_) => pushed += 1,
                Err(e) if e.is_full() => break,
                Err(e) => return Err(stream_fault(&self.stage, e)),
            }
        }
        if pushed == 0 {
            // Readers must see the messages that are there, or nothing is ever freed.
            self.output.publish();
            return Ok(Rowed::Full);
        }
        Ok(Rowed::Pushed(pushed))
    }

    /// Where the outputs of the messages of a block up to `end` lie, in order, into `self.rows`; the answer is what goes
    /// aside. `tally`: the other messages that are not done, by `kind.reason`.
    pub(super) fn rows_of(&mut self, piece: &Piece, end: u64, tally: &mut BTreeMap<String, u64>) -> Vec<Apart> {
        let is_shadow = self.options.shadow.is_some();
        let rows = &mut self.rows;
        rows.clear();
        let mut add = |lies: Lies, first: u64, count: u64| match rows.last_mut() {
            Some(row) if row.lies == lies && row.first + row.count == first => row.count += count,
            _ if count > 0 => rows.push(Row { lies, first, count }),
            _ => {}
        };
        if piece.time.is_some() {
            for answer in piece.parts.iter().flat_map(|part| &part.answers) {
                answer.of_time().for_each(|at| add(Lies::Slot(answer.slot), at, 1));
            }
            return Vec::new();
        }
        let is_plain = |part: &Part| part.answers.iter().all(|a| a.is_plain() && (a.first >= end || a.next <= end));
        if let [part] = piece.parts.as_slice()
            && is_plain(part)
        {
            let answers = part.answers.iter().filter(|a| a.next <= end);
            answers.for_each(|a| add(Lies::Slot(a.slot), a.output_first, a.next - a.first));
            return Vec::new();
        }
        let mut aparts = Vec::new();
        // Of each part: its answer, the message in it that is next, and where that lies.
        let mut cursors = vec![(0, 0, 0); piece.parts.len()];
        for (part, cursor) in piece.parts.iter().zip(&mut cursors) {
            cursor.2 = part.answers.first().map_or(0, |a| a.output_first);
            // Messages of its first answer may have been shown.
            cursor.1 = part.answers.first().map_or(0, |a| a.first);
        }
        for sequence in piece.first.min(cursors.iter().map(|c| c.1).min().unwrap_or(0))..end {
            let is_shown = sequence < piece.first;
            // One fate for each message, the worst of what slots that saw it say.
            let (mut apart, mut filtered, mut lost) = (None, false, None);
            for (part, (at, next, made)) in piece.parts.iter().zip(&mut cursors) {
                if sequence < *next {
                    continue;
                }
                if part.answers.get(*at).is_some_and(|a| a.next <= sequence) {
                    *at += 1;
                    *made = part.answers.get(*at).map_or(0, |a| a.output_first);
                }
                let Some(answer) = part.answers.get(*at) else { continue };
                *next = sequence + 1;
                if let Some((reason, text)) = &answer.killed {
                    let (reason, text) = (reason.clone(), text.clone());
                    apart = apart.or(Some(Apart::Killed { sequence, reason, text }));
                    continue;
                }
                let place = (sequence - answer.first) as usize;
                let count = match answer.outputs.get(place) {
                    None => 1,
                    Some(&FILTERED) => {
                        filtered = true;
                        0
                    }
                    Some(&LOST) => {
                        let gap = answer.gaps.iter().find(|g| (g.first..=g.last).contains(&sequence));
                        lost = Some(gap.map_or("missing", |g| g.reason.as_str()));
                        0
                    }
                    Some(&SAME) => {
                        if !is_shown {
                            add(Lies::Input(piece.input), sequence, 1);
                        }
                        0
                    }
                    Some(&count) => u64::from(count),
                };
                let is_aside = answer.aside.binary_search(&(place as u32)).is_ok();
                for made_of_it in 0..count {
                    while answer.between.contains(made) {
                        *made += 1;
                    }
                    if !is_aside && !is_shown {
                        add(Lies::Slot(answer.slot), *made, 1);
                    } else if is_aside && made_of_it + 1 == count {
                        apart = apart.or(Some(Apart::Written { sequence, slot: answer.slot, at: *made }));
                    }
                    *made += 1;
                }
            }
            if is_shown {
                continue;
            }
            match (lost, apart) {
                (Some("full"), _) if is_shadow => *tally.entry(format!("skipped.{SLOW}")).or_default() += 1,
                (Some(reason), _) => *tally.entry(format!("lost.{reason}")).or_default() += 1,
                (None, Some(apart)) => aparts.push(apart),
                (None, None) if filtered => *tally.entry("skipped.filtered".to_owned()).or_default() += 1,
                (None, None) => {}
            }
        }
        aparts
    }

    /// Puts a message aside; the answer is the reason. None where there is no room.
    pub(super) fn set_apart(&mut self, piece: &Piece, apart: Apart, now: i64) -> Result<Option<String>, Fault> {
        let source = &mut self.sources[piece.input];
        let sequence = apart.sequence();
        let (row, reason) = match apart {
            Apart::Written { slot, at, .. } => {
                let SlotEntry { reader, stream, .. } = &mut self.places[slot];
                let Some((entry, bytes)) = reader.get(at).map_err(|e| stream_fault(stream, e))? else {
                    return Ok(None);
                };
                let reason = wire::bpas::read(&bytes).map_or("error", |aside| aside.reason).to_owned();
                (aside::Row { bytes, time: entry.source_time, number: entry.origin_seq }, reason)
            }
            Apart::Killed { reason, text, .. } => {
                let unhandled = Unhandled {
                    stage: &self.stage,
                    reason: &reason,
                    text: cut(&text),
                    stream: &source.account.stream,
                    uuid: source.account.uuid,
                    epoch: piece.epoch,
                    sequence,
                    origin: "",
                };
                (unhandled.read(&mut source.reader, now)?, reason)
            }
        };
        // Behind the last commit it may be there already.
        if self.known_aside.remove(&(source.account.stream.clone(), sequence)).is_some() {
            return Ok(Some(reason));
        }
        let like = self.like();
        match aside::append(&mut self.aside, &self.data, &self.stage, like, &row) {
            Ok(()) => Ok(Some(reason)),
            Err(fault) if fault.passes == Passes::WithRoom => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Level, clock and size of the stream of messages aside.
    pub(super) fn like(&self) -> Like {
        let Options { level, clock, .. } = self.options.output;
        Like { level, clock, bytes: ASIDE_BYTES }
    }

    /// Enters the messages of a block up to `end`, which are shown, into the account.
    pub(super) fn count(&mut self, piece: &mut Piece, end: u64, mut counts: BTreeMap<String, u64>) {
        let source = &mut self.sources[piece.input];
        let (first, messages) = (piece.first, end - piece.first);
        for (reason, value) in std::mem::take(&mut piece.reasons) {
            *counts.entry(format!("aside.{reason}")).or_default() += value;
        }
        let others: u64 = counts.values().sum();
        source.account.done += messages.saturating_sub(others);
        for (name, value) in counts {
            *source.account.counts.entry(name).or_default() += value;
        }
        // Slots that see the same block miss the same messages.
        if let Some(part) = piece.parts.first() {
            let gaps = part.answers.iter().flat_map(|a| &a.gaps).filter(|g| (first..end).contains(&g.first));
            let is_slow = |gap: &Gap| self.options.shadow.is_some() && gap.reason == "full";
            self.gaps.extend(gaps.cloned().map(|gap| match is_slow(&gap) {
                true => Gap { reason: SLOW.to_owned(), ..gap },
                false => gap,
            }));
        }
        for answer in piece.parts.iter_mut().flat_map(|p| &mut p.answers) {
            // Behind the same message is what time that has passed made of it.
            let is_newer = source.kept.as_ref().is_none_or(|kept| kept.0 <= answer.next);
            if !answer.kept.is_empty() && answer.next <= end && is_newer {
                source.kept = Some((answer.next, std::mem::take(&mut answer.kept)));
                source.wait(answer.waiting);
            }
        }
        source.enter(first, end);
        source.account.stand_at(source.account.next, source.reader.header());
        piece.shown_to(end, self.rows.iter().map(|row| row.count).sum());
    }

    /// Makes the commit of what is shown.
    pub(super) fn prepare(&mut self, output_next: u64, now: i64) {
        let aside_next = self.aside.as_ref().map_or(0, Writer::next_sequence);
        // Of blocks that are not shown yet some may be aside already: who starts anew looks for them from here.
        let begun = self.pieces.values().filter_map(|p| p.aside_from);
        let known = (!self.known_aside.is_empty()).then_some(self.known_from);
        let aside_known = begun.chain(known).fold(aside_next, u64::min);
        let passed = self.passed();
        let (mut ahead, mut kept) = (Map::new(), Map::new());
        for source in &mut self.sources {
            let beyond = source.ahead.iter().map(|(first, next)| next - first).sum();
            source.account.set_count(BEYOND, beyond);
            if let Some(known) = &source.kept {
                let Waiting { messages, oldest, due } = source.waiting;
                kept.insert(source.account.stream.clone(), json!([known.0, known.1, [messages, oldest, due]]));
            }
            if source.ahead.is_empty() {
                continue;
            }
            let header = source.reader.header();
            let ranges: Vec<_> =
                source.ahead.iter().map(|(first, next)| json!([first, next, header.epoch_of(next - 1)])).collect();
            ahead.insert(source.account.stream.clone(), ranges.into());
        }
        let state = json!({
            "output": store::hex(&self.output.header().uuid),
            "aside": aside_known,
            "slots": passed,
            "ahead": ahead,
            "kept": kept,
            "asked": self.asked,
            "now": super::asked_of(&self.options),
            "since": self.since,
            "shadow": self.options.shadow,
            "retry": self.retry.as_ref().map(Retry::state),
        });
        let output_first = self.committed_output;
        self.committed_output = output_next;
        let commit = Commit {
            stage: self.stage.clone(),
            run: String::new(),
            block: self.block,
            time: now,
            inputs: self.sources.iter().map(|s| s.account.clone()).collect(),
            gaps: self.cuts.repeated().into_iter().chain(self.gaps.drain(..)).collect(),
            output_first,
            output_next,
            state: state.to_string(),
            finished: false,
            totals: None,
        };
        self.block += 1;
        let done = self.pieces.keys().next().copied().unwrap_or(self.next_piece);
        self.pending.push_back(Pending { commit, output_next, aside_next, done, sequence: None });
    }

    /// Where slots' streams are needed no more: what was answered and is not shown begins there.
    pub(super) fn passed(&self) -> Vec<u64> {
        let mut passed: Vec<u64> = self.places.iter().map(|p| p.answered).collect();
        let answers = self.pieces.values().flat_map(|p| &p.parts).flat_map(|p| &p.answers);
        for answer in answers.filter(|a| a.killed.is_none()) {
            passed[answer.slot] = passed[answer.slot].min(answer.output_first);
        }
        passed
    }

    /// Moves commits on: to the book when what they speak of is safe, to the positions when they are.
    pub(super) fn settle(&mut self) -> Result<bool, Fault> {
        let mut did = false;
        let on_disk = self.options.output.level == Level::Disk;
        for pending in self.pending.iter_mut().filter(|p| p.sequence.is_none()) {
            let mut is_safe = !on_disk || asked(&mut self.output, pending.output_next);
            if let Some(aside) = &mut self.aside {
                aside.publish();
                is_safe &= !on_disk || asked(aside, pending.aside_next);
            }
            if !is_safe {
                break;
            }
            match self.commits.append(&pending.commit) {
                Ok(sequence) => pending.sequence = Some(sequence),
                Err(fault) if fault.passes == Passes::WithRoom => break,
                Err(fault) => return Err(fault),
            }
            did = true;
        }
        while let Some(sequence) = self.pending.front().and_then(|p| p.sequence) {
            if on_disk && !self.commits.wait(sequence, Duration::ZERO).unwrap_or(false) {
                break;
            }
            let Some(Pending { commit, done, .. }) = self.pending.pop_front() else { break };
            self.done = done;
            for (source, input) in self.sources.iter_mut().zip(&commit.inputs) {
                source.committed = input.next;
                source.reader.commit(input.next);
            }
            did = true;
        }
        for source in &self.sources {
            let Some(parent) = source.parent else { continue };
            self.output.passed(parent, source.committed).map_err(|e| stream_fault(&self.stage, e))?;
        }
        if self.pending.is_empty() {
            // What is on its way to a commit is needed until that is safe: a runner that starts looks for it.
            for (place, at) in self.places.iter().zip(self.passed()) {
                self.output.passed(place.parent, at).map_err(|e| stream_fault(&self.stage, e))?;
            }
        }
        Ok(did)
    }
}
