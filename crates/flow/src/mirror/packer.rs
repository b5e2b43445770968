//! The near side without its carrier: which messages are put into which blocks, which blocks are under way, and which
//! are acknowledged.
//!
//! Where a lane begins: behind the newest block of its partition, or behind the newest message that brokers have
//! acknowledged according to the sink's state, where that is further. The partition alone does not suffice: it may
//! have lost its end with its topic, and does not say which messages were set aside behind its end. A beat must still
//! name the next message, or the frontier would pass messages that the far side never got.
//!
//! Constraints: no carrier and no clock. A payload is copied once, into its block. Blocks under way have a bound; then
//! messages stay in their streams.
//!
//! Failure behaviour: a block for which there is no room is kept and offered again at each step. Any other fault is
//! that of the caller's [`Post`], and ends the packer: nothing behind a block may reach the partition before it.

use crate::limits::{
    BEAT_PAUSE, BEAT_REST, BLOCK_BYTES, BLOCK_LINGER, CARRIED_BYTES_MAX, MARK_INPUT_BITS, NEAR_REST, SPARE_BLOCKS_MAX,
    UNDER_WAY_MAX,
};
use crate::{Aside, Fault, LiveBatch};
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use store::{BlockBuilder, BlockHead, Message, beat, crc32c, hex, unhex16};

/// Where blocks are put: into the partition of their input, in the order of the calls.
pub trait Post {
    /// Puts a block, whose mark comes back with its acknowledgement. The bytes come back where there is no room now.
    fn post(&mut self, input: usize, bytes: Vec<u8>, mark: usize) -> Result<Option<Vec<u8>>, Fault>;
}

/// Bounds in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Of a block, unless it has one message alone.
    pub block: usize,
    /// Of the largest block.
    pub carried: usize,
    /// Of all blocks that are not acknowledged.
    pub under_way: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { block: BLOCK_BYTES, carried: CARRIED_BYTES_MAX, under_way: UNDER_WAY_MAX }
    }
}

/// A stream and an epoch.
type Of = ([u8; 16], u32);

/// How far brokers have the messages of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kept {
    of: Of,
    /// One past the newest message that is acknowledged, with all before it; 0: none is.
    put: u64,
    /// All below is acknowledged or set aside.
    next: u64,
}

impl Kept {
    fn value(&self) -> Value {
        json!([hex(&self.of.0), self.of.1, self.put, self.next])
    }

    fn read(value: &Value) -> Option<Self> {
        let epoch = u32::try_from(value.get(1)?.as_u64()?).ok()?;
        let of = (unhex16(value.get(0)?.as_str()?)?, epoch);
        let (put, next) = (value.get(2)?.as_u64()?, value.get(3)?.as_u64()?);
        (put <= next).then_some(Self { of, put, next })
    }
}

/// A block that was put and is not acknowledged.
struct UnderWay {
    number: u64,
    of: Of,
    first: u64,
    next: u64,
    bytes: usize,
    is_acknowledged: bool,
}

/// One input and its partition.
#[derive(Default)]
struct Lane {
    /// The stream and the epoch of the messages that were put last.
    of: Option<Of>,
    /// One past the sequence that the partition holds; 0 where it holds none of this stream.
    put: u64,
    /// The stream and the epoch of the newest message that was taken, and one past it.
    seen: Option<Of>,
    taken: u64,
    /// One past the newest message that was taken or is missing in the stream.
    passed: u64,
    kept: Option<Kept>,
    builder: BlockBuilder,
    /// When the block that is filled was begun, ns since 1970 UTC.
    begun: i64,
    /// A block for which there was no room.
    stuck: Option<(BlockHead, Vec<u8>)>,
    under_way: VecDeque<UnderWay>,
    /// The number of the next block.
    number: u64,
    /// All up to this source time was taken.
    frontier: i64,
    /// The frontier of the newest block, and when that was made.
    sent_frontier: i64,
    sent: i64,
    /// The number of the block without messages that is under way.
    beating: Option<u64>,
}

impl Lane {
    /// `end`: the newest block of the partition; `kept`: according to the state.
    fn new(end: Option<BlockHead>, kept: Option<Kept>, now: i64) -> Self {
        let end = end.filter(|head| head.uuid != [0; 16]).map(|head| ((head.uuid, head.epoch), head.next()));
        let kept = match (end, kept) {
            // Late requests of a process that was killed, or blocks of before its topic was made again, end earlier.
            (Some((of, put)), Some(kept)) if of.0 == kept.of.0 => {
                let (of, put) = (of, put).max((kept.of, kept.put));
                // A later epoch may use the sequences of messages that were set aside.
                let next = if of == kept.of { kept.next.max(put) } else { put };
                Some(Kept { of, put, next })
            }
            (Some((of, put)), None) => Some(Kept { of, put, next: put }),
            (_, kept) => kept,
        };
        let never = i64::MIN;
        let (of, put) = kept.map_or((None, 0), |kept| (Some(kept.of), kept.put));
        Self { of, put, kept, frontier: never, sent_frontier: never, sent: now, ..Self::default() }
    }

    /// Whether the partition holds a message. One of a later epoch is new, though its sequence was used before.
    fn is_put(&self, (uuid, epoch): Of, sequence: u64) -> bool {
        self.of.is_some_and(|of| of.0 == uuid && epoch <= of.1 && sequence < self.put)
    }

    /// All below is acknowledged, or was in the partition. A beat that is stuck is no message.
    fn below(&self) -> u64 {
        let stuck = self.stuck.as_ref().filter(|(head, _)| head.count > 0).map(|(head, _)| head.first);
        let filled = (!self.builder.is_empty()).then(|| self.builder.first());
        self.under_way.front().map(|block| block.first).or(stuck).or(filled).unwrap_or(self.taken)
    }

    /// When something is to be done for it.
    fn due(&self) -> i64 {
        if self.stuck.is_some() {
            return i64::MAX;
        }
        if !self.builder.is_empty() {
            // The first message after a pause is put at once, and those behind it together.
            return self.begun.min(self.sent).saturating_add(BLOCK_LINGER);
        }
        if self.beating.is_some() {
            return i64::MAX;
        }
        let pause = if self.frontier > self.sent_frontier { BEAT_PAUSE } else { BEAT_REST };
        self.sent.saturating_add(pause)
    }

    /// A message was taken.
    fn take(&mut self, of: Of, sequence: u64) {
        (self.seen, self.taken, self.passed) = (Some(of), sequence + 1, sequence + 1);
    }

    /// A block is acknowledged, with all before it.
    fn keep(&mut self, of: Of, next: u64) {
        let known = self.kept.filter(|kept| kept.of == of);
        self.kept = Some(Kept { of, put: next, next: known.map_or(next, |known| known.next.max(next)) });
    }

    /// How far brokers have its messages, for the state.
    fn kept(&self) -> Option<Kept> {
        let Some(of) = self.seen else { return self.kept };
        let put = self.kept.filter(|kept| kept.of == of).map_or(0, |kept| kept.put);
        let next = if self.below() == self.taken { self.passed } else { self.below() };
        Some(Kept { of, put, next: next.max(put) })
    }

    /// The head of a block without messages: it says which message comes next, and so which were set aside.
    fn beat(&self) -> BlockHead {
        let seen = self.seen.map(|of| (of, self.passed)).or(self.kept.map(|kept| (kept.of, kept.next)));
        let (uuid, epoch) = seen.map(|seen| seen.0).unwrap_or_default();
        let next = seen.map_or(0, |seen| seen.1);
        let (first, previous) = match self.of {
            Some(of) if of == (uuid, epoch) => (next.max(self.put), self.put),
            Some(of) if of.0 == uuid => (next, self.put.min(next)),
            _ => (next, 0),
        };
        BlockHead { uuid, epoch, count: 0, first, previous, frontier: self.frontier }
    }
}

/// Adds a message of a stream to a block, which is of this stream and epoch.
pub fn add_message(builder: &mut BlockBuilder, (uuid, epoch): ([u8; 16], u32), message: &Message<'_>, origin: &str) {
    builder.push(message.entry, payload_sum(message, (uuid, epoch)), origin, message.payload);
}

/// The checksum of a payload as blocks have it. `of`: the stream and the epoch of the message.
pub fn payload_sum(message: &Message<'_>, (uuid, epoch): ([u8; 16], u32)) -> u32 {
    match message.entry.parent {
        0 => message.entry.payload_sum(&uuid, epoch, message.sequence),
        // Its checksum is salted for another stream.
        _ => crc32c(message.payload),
    }
}

/// The mark of a block: its input and its number there.
fn mark(input: usize, number: u64) -> usize {
    input << (usize::BITS - MARK_INPUT_BITS) | number as usize
}

/// The input of a mark, and the number of the block.
fn unmark(mark: usize) -> (usize, u64) {
    (mark >> (usize::BITS - MARK_INPUT_BITS), (mark << MARK_INPUT_BITS >> MARK_INPUT_BITS) as u64)
}

/// Blocks of all inputs of a near side.
pub struct Packer {
    lanes: Vec<Lane>,
    sizes: Sizes,
    /// Memory of blocks that are acknowledged.
    spare: Vec<Vec<u8>>,
    /// Bytes of blocks that are not.
    under_way: usize,
    blocks: u64,
    messages: u64,
    /// ns since 1970 UTC.
    now: i64,
}

impl Packer {
    /// Inputs with the newest block of the partition of each, and the state of the sink's newest commit. `now` in ns
    /// since 1970 UTC.
    pub fn new(
        inputs: &[String],
        ends: &[Option<BlockHead>],
        state: &str,
        sizes: Sizes,
        now: i64,
    ) -> Result<Self, Fault> {
        let wrong = || Fault::new("the state of the sink cannot be read", state);
        let kept: Map<String, Value> = match state {
            "" => Map::new(),
            text => serde_json::from_str(text).map_err(|_| wrong())?,
        };
        let mut lanes = Vec::new();
        for (input, end) in inputs.iter().zip(ends) {
            let kept = kept.get(input).map(|value| Kept::read(value).ok_or_else(wrong)).transpose()?;
            lanes.push(Lane::new(*end, kept, now));
        }
        Ok(Self { lanes, sizes, spare: Vec::new(), under_way: 0, blocks: 0, messages: 0, now })
    }

    /// How far brokers have the messages of each input, as the text that [`Packer::new`] reads.
    pub fn state(&self, inputs: &[String]) -> String {
        let lanes = inputs.iter().zip(&self.lanes);
        let kept = lanes.filter_map(|(input, lane)| Some((input.clone(), lane.kept()?.value())));
        let kept: Map<String, Value> = kept.collect();
        if kept.is_empty() { String::new() } else { Value::from(kept).to_string() }
    }

    /// Takes the first messages of a batch, as many as there is room for; their number.
    pub fn write(
        &mut self,
        input: usize,
        batch: &LiveBatch<'_>,
        aside: &mut Vec<Aside>,
        to: &mut dyn Post,
    ) -> Result<usize, Fault> {
        for (taken, message) in batch.iter().enumerate() {
            let (sequence, origin, payload) = (message.sequence, batch.origin(&message), message.payload);
            let of = (batch.uuid, batch.identity(&message).epoch);
            // Also of one below those that the partition holds: the process that set it aside may not have committed
            // it.
            if payload.len() + 2 * self.sizes.block > self.sizes.carried {
                aside.push(Aside { sequence, reason: "size" });
                self.finish(input, to)?;
                self.lanes[input].take(of, sequence);
                continue;
            }
            let lane = &mut self.lanes[input];
            if lane.is_put(of, sequence) {
                lane.take(of, sequence);
                continue;
            }
            let builder = &lane.builder;
            let continues = builder.of() == of && builder.next() == sequence;
            if !(builder.is_empty() || continues && builder.has_room(payload.len(), origin, self.sizes.block)) {
                self.finish(input, to)?;
            }
            let lane = &mut self.lanes[input];
            if lane.stuck.is_some() || self.under_way >= self.sizes.under_way {
                return Ok(taken);
            }
            if lane.builder.is_empty() {
                lane.builder.begin(of.0, of.1, sequence, self.spare.pop().unwrap_or_default());
                lane.begun = self.now;
            }
            add_message(&mut lane.builder, of, &message, origin);
            lane.take(of, sequence);
        }
        Ok(batch.len())
    }

    /// All messages of an input up to this source time were taken: those below `next`, or they are missing in it.
    pub fn reach(&mut self, input: usize, frontier: i64, next: u64) {
        let Some(lane) = self.lanes.get_mut(input) else { return };
        match lane.seen {
            Some(_) => lane.passed = lane.passed.max(next),
            // The stream of missing messages is known with the next one that is there.
            None if lane.kept.map_or(0, |kept| kept.next) < next => return,
            None => {}
        }
        lane.frontier = lane.frontier.max(frontier);
    }

    /// Ends the block of an input, if it has messages, and puts it.
    fn finish(&mut self, input: usize, to: &mut dyn Post) -> Result<(), Fault> {
        let lane = &mut self.lanes[input];
        if lane.builder.is_empty() || lane.stuck.is_some() {
            return Ok(());
        }
        let (uuid, epoch) = lane.builder.of();
        let previous = if lane.of.is_some_and(|of| of.0 == uuid) { lane.put.min(lane.builder.first()) } else { 0 };
        // The block behind those that were set aside since, or are missing, brings the frontier that passes them.
        let is_newest = lane.seen == Some((uuid, epoch)) && lane.passed == lane.builder.next();
        let frontier = if is_newest { lane.frontier } else { lane.sent_frontier };
        let (head, bytes) = lane.builder.end(previous, frontier);
        (lane.of, lane.put) = (Some((uuid, epoch)), head.next());
        lane.stuck = Some((head, bytes));
        self.send(input, to)
    }

    /// Puts the block that waits, if there is room.
    fn send(&mut self, input: usize, to: &mut dyn Post) -> Result<(), Fault> {
        let lane = &mut self.lanes[input];
        let Some((head, bytes)) = lane.stuck.take() else { return Ok(()) };
        let (number, bytes_len) = (lane.number, bytes.len());
        if let Some(bytes) = to.post(input, bytes, mark(input, number))? {
            lane.stuck = Some((head, bytes));
            return Ok(());
        }
        (lane.number, lane.sent, lane.sent_frontier) = (number + 1, self.now, head.frontier);
        if head.count == 0 {
            lane.beating = Some(number);
            return Ok(());
        }
        let (of, first, next) = ((head.uuid, head.epoch), head.first, head.next());
        lane.under_way.push_back(UnderWay { number, of, first, next, bytes: bytes_len, is_acknowledged: false });
        self.under_way += bytes_len;
        self.blocks += 1;
        self.messages += u64::from(head.count);
        Ok(())
    }

    /// Puts the blocks that are due at `now`, ns since 1970 UTC; when the next are.
    pub fn step(&mut self, now: i64, to: &mut dyn Post) -> Result<i64, Fault> {
        self.now = now;
        let mut next = now.saturating_add(NEAR_REST);
        for input in 0..self.lanes.len() {
            self.send(input, to)?;
            if self.lanes[input].due() <= now {
                self.finish(input, to)?;
                self.beat(input, to)?;
            }
            next = next.min(self.lanes[input].due());
        }
        Ok(next.max(now + 1))
    }

    /// Puts the frontier alone, which also says that this host is there.
    fn beat(&mut self, input: usize, to: &mut dyn Post) -> Result<(), Fault> {
        let lane = &mut self.lanes[input];
        if lane.stuck.is_some() || lane.due() > self.now {
            return Ok(());
        }
        let head = lane.beat();
        lane.stuck = Some((head, beat(&head)));
        self.send(input, to)
    }

    /// The brokers have a block. `bytes`: its memory.
    pub fn acknowledged(&mut self, mark: usize, bytes: Option<Vec<u8>>) {
        let (input, number) = unmark(mark);
        let Some(lane) = self.lanes.get_mut(input) else { return };
        if lane.beating == Some(number) {
            lane.beating = None;
            return;
        }
        if let Some(block) = lane.under_way.iter_mut().find(|block| block.number == number) {
            block.is_acknowledged = true;
        }
        while lane.under_way.front().is_some_and(|block| block.is_acknowledged) {
            let Some(block) = lane.under_way.pop_front() else { break };
            self.under_way = self.under_way.saturating_sub(block.bytes);
            lane.keep(block.of, block.next);
        }
        let is_usual = |bytes: &Vec<u8>| bytes.capacity() <= 2 * self.sizes.block;
        self.spare.extend(bytes.filter(|bytes| is_usual(bytes) && self.spare.len() < SPARE_BLOCKS_MAX));
    }

    /// Of each input: all taken messages below are acknowledged.
    pub fn below(&self) -> Vec<u64> {
        self.lanes.iter().map(Lane::below).collect()
    }

    /// Puts all that was taken; `is_first`: and the frontiers, once. True if nothing waits for room.
    pub fn close(&mut self, is_first: bool, to: &mut dyn Post) -> Result<bool, Fault> {
        for input in 0..self.lanes.len() {
            self.send(input, to)?;
            self.finish(input, to)?;
            let lane = &mut self.lanes[input];
            if is_first && lane.stuck.is_none() && lane.frontier > lane.sent_frontier {
                lane.sent = i64::MIN;
                self.beat(input, to)?;
            }
        }
        Ok(self.lanes.iter().all(|lane| lane.stuck.is_none() && lane.builder.is_empty()))
    }

    /// Blocks and messages that were put.
    pub fn counts(&self) -> (u64, u64) {
        (self.blocks, self.messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::{Entry, SchemaId};

    const A: Of = ([1; 16], 1);
    const B: Of = ([2; 16], 1);

    fn end(of: Of, next: u64) -> Option<BlockHead> {
        Some(BlockHead { uuid: of.0, epoch: of.1, first: next, previous: next, ..BlockHead::default() })
    }

    #[test]
    fn a_beat_for_which_there_was_no_room_confirmed_messages_that_the_sink_did_not_have() {
        let mut lane = Lane::new(end(A, 5000), None, 0);
        let head = lane.beat();
        lane.stuck = Some((head, beat(&head)));
        lane.take(B, 2);
        assert_eq!(lane.below(), 3);
    }

    #[test]
    fn a_lane_begins_behind_what_the_partition_has_and_behind_what_was_acknowledged() {
        let kept = |of, put, next| Some(Kept { of, put, next });
        assert_eq!(Lane::new(None, None, 0).kept, None);
        assert_eq!(Lane::new(end(([0; 16], 0), 0), None, 0).kept, None);
        assert_eq!(Lane::new(end(A, 5), None, 0).kept, kept(A, 5, 5));
        // Its topic was made again.
        assert_eq!(Lane::new(None, kept(A, 5, 7), 0).kept, kept(A, 5, 7));
        assert_eq!(Lane::new(end(A, 3), kept(A, 5, 7), 0).kept, kept(A, 5, 7));
        // It was killed before it committed.
        assert_eq!(Lane::new(end(A, 9), kept(A, 5, 7), 0).kept, kept(A, 9, 9));
        assert_eq!(Lane::new(end((A.0, 2), 3), kept(A, 5, 7), 0).kept, kept((A.0, 2), 3, 3));
        assert_eq!(Lane::new(end(A, 9), kept(B, 1, 1), 0).kept, kept(B, 1, 1));
    }

    #[test]
    fn a_beat_names_the_next_message_behind_those_that_were_set_aside() {
        let mut lane = Lane::new(end(A, 5), None, 0);
        let heads = |lane: &Lane| (lane.beat().uuid, lane.beat().previous, lane.beat().first);
        assert_eq!(heads(&lane), (A.0, 5, 5));
        lane.take(A, 7);
        assert_eq!((heads(&lane), lane.kept()), ((A.0, 5, 8), Some(Kept { of: A, put: 5, next: 8 })));
        let again = Lane::new(end(A, 5), lane.kept(), 0);
        assert_eq!(heads(&again), (A.0, 5, 8));
        // A later epoch begins at a sequence that was used before.
        lane.take((A.0, 2), 3);
        assert_eq!(heads(&lane), (A.0, 4, 4));
        lane.take(B, 0);
        assert_eq!((heads(&lane), lane.kept()), ((B.0, 0, 1), Some(Kept { of: B, put: 0, next: 1 })));
        assert_eq!(heads(&Lane::new(None, None, 0)), ([0; 16], 0, 0));
    }

    #[test]
    fn the_first_message_after_a_pause_is_due_at_once_and_those_behind_it_together() {
        let entry = Entry {
            source_time: 1,
            arrival_time: 1,
            origin_seq: 0,
            parent_sequence: 0,
            origin: 0,
            schema: SchemaId(*b"f144"),
            segment: 0,
            offset8: 0,
            length: 0,
            payload_crc: 0,
            flags: 0,
            parent: 0,
            crc: 0,
        };
        let (second, mut lane) = (1_000_000_000, Lane::new(None, None, 0));
        for (sent, begun, due) in [
            (0, second, BLOCK_LINGER),
            (second, second + 1, second + BLOCK_LINGER),
            // The clock was set back.
            (9 * second, second, second + BLOCK_LINGER),
        ] {
            lane.builder.begin(A.0, A.1, 0, Vec::new());
            lane.builder.push(&entry, 0, "cam", &[]);
            (lane.sent, lane.begun) = (sent, begun);
            assert_eq!(lane.due(), due);
        }
    }

    #[test]
    fn a_state_reads_back_and_a_wrong_one_is_a_fault() {
        let inputs = ["a".to_owned(), "b".to_owned()];
        let packer = Packer::new(&inputs, &[end(A, 5), None], "", Sizes::default(), 0).unwrap();
        let state = packer.state(&inputs);
        assert_eq!(state, format!("{{\"a\":[\"{}\",1,5,5]}}", hex(&A.0)));
        let again = Packer::new(&inputs, &[None, None], &state, Sizes::default(), 0).unwrap();
        assert_eq!(again.state(&inputs), state);
        for wrong in ["[]", r#"{"a": []}"#, &state.replace("5,5", "5,4"), &state.replace("01", "0")] {
            assert!(Packer::new(&inputs, &[None, None], wrong, Sizes::default(), 0).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_mark_holds_input_and_number() {
        for (input, number) in [(0, 0), (1023, (1 << 54) - 1), (3, 12)] {
            assert_eq!(unmark(mark(input, number)), (input, number));
        }
    }
}
