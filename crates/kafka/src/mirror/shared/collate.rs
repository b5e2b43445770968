//! The output of a worker on several hosts, put together without a client: which results come next, which came early,
//! which are lost, and what the stream has already.
//!
//! Constraints: no client and no clock. Results are appended as they come, but those that came before their turn: where
//! several hosts hand out blocks, one may be behind another with its records of the order. They are no more than what
//! such a host has under way.
//!
//! Each loss is in the account once: it is named when all messages before it are safe, and the next message is appended
//! when the commit that names it is safe too.
//!
//! Failure behaviour: results of a block are lost where the next of its partition are of a later block, or do not begin
//! with its first, and where the caller says that none will come ([`Collator::lose`]). Those of blocks that a process
//! handed out without a record, before another took its place, are dropped.

use super::order::{Lane, OrderRecord, Says};
use super::record::{Content, ResultKey};
use crate::limits::{REPLACED_MAX, RESULT_BITS};
use flow::mirror::BlockOrigins;
use flow::records::Input;
use flow::{Fault, Identity, Outlet, Pushed};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::{Block, BlockHead, hex, unhex16};

/// The account of an input, and how far the order has come in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Followed {
    lane: Lane,
    /// The first message.
    first: Option<u64>,
    read: u64,
    counts: BTreeMap<String, u64>,
}

impl Followed {
    /// Follows a record of the order, whose block is done; messages that came before it and are nowhere.
    fn follow(&mut self, record: &OrderRecord) -> u64 {
        let before = self.lane.newest;
        self.lane.follow(record);
        if before.map(|head| head.uuid) != self.lane.newest.map(|head| head.uuid) {
            // Another stream of the name: with the messages of the former one their account is gone.
            (self.first, self.read) = (None, 0);
            self.counts.clear();
        }
        let known = before.zip(self.lane.newest).filter(|(a, b)| (a.uuid, a.epoch) == (b.uuid, b.epoch));
        let Some((before, head)) = known else { return 0 };
        let next = before.next().min(head.first);
        // Those before `previous` were in the order, and are not there any more.
        let split = head.previous.clamp(next, head.first);
        for (name, n) in [("lost.retention", split - next), ("lost.near", head.first - split)] {
            if n > 0 {
                *self.counts.entry(name.to_owned()).or_default() += n;
                self.read += n;
            }
        }
        head.first - next
    }
}

/// Where the source is: its state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The identity of the order.
    pub(crate) id: String,
    /// The offset of the record of the order that comes next.
    pub(crate) order: u64,
    inputs: BTreeMap<String, Followed>,
    /// Processes that handed out blocks, and were replaced by others: the newest.
    replaced: VecDeque<u64>,
    /// How far results are read, by partition.
    pub(crate) results: Vec<Reading>,
}

/// How far the results of a partition are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The offset of the record that comes next; at a start, that of the oldest record that is kept.
    pub(crate) offset: u64,
    /// The newest block of which all results were read.
    newest: Option<u64>,
    /// Blocks before it that were read, and whose turn has not come.
    early: BTreeSet<u64>,
}

impl Reading {
    /// Whether results of a block were read before, and are needed no more.
    fn is_past(&self, block: u64) -> bool {
        self.newest.is_some_and(|newest| block <= newest) && !self.early.contains(&block)
    }
}

impl Place {
    /// The state.
    pub(crate) fn text(&self) -> String {
        let input = |(name, followed): (&String, &Followed)| {
            let Followed { lane: Lane { life, newest }, first, read, counts } = followed;
            let head = newest.map(|BlockHead { uuid, epoch, count, first, previous, frontier }| {
                json!([hex(&uuid), epoch, count, first, previous, frontier])
            });
            (name.clone(), json!({"life": life, "head": head, "first": first, "read": read, "counts": counts}))
        };
        let inputs: Map<String, Value> = self.inputs.iter().map(input).collect();
        let results: Vec<Value> =
            self.results.iter().map(|reading| json!([reading.offset, reading.newest, reading.early])).collect();
        let replaced: Vec<u64> = self.replaced.iter().copied().collect();
        json!({"id": self.id, "order": self.order, "inputs": inputs, "replaced": replaced, "results": results})
            .to_string()
    }

    /// Reads a state; `None`: there is none yet.
    pub(crate) fn read(text: &str) -> Result<Option<Self>, Fault> {
        if text.is_empty() {
            return Ok(None);
        }
        let head = |value: &Value| {
            Some(BlockHead {
                uuid: unhex16(value[0].as_str()?)?,
                epoch: u32::try_from(value[1].as_u64()?).ok()?,
                count: u32::try_from(value[2].as_u64()?).ok()?,
                first: value[3].as_u64()?,
                previous: value[4].as_u64()?,
                frontier: value[5].as_i64()?,
            })
        };
        let followed = |value: &Value| {
            let newest = if value["head"].is_null() { None } else { Some(head(&value["head"])?) };
            let counts = value["counts"].as_object()?.iter();
            Some(Followed {
                lane: Lane { life: value["life"].as_u64()?, newest },
                first: value["first"].as_u64(),
                read: value["read"].as_u64()?,
                counts: counts.filter_map(|(name, n)| Some((name.clone(), n.as_u64()?))).collect(),
            })
        };
        let reading = |value: &Value| {
            let early = value[2].as_array()?.iter().map(Value::as_u64).collect::<Option<_>>()?;
            Some(Reading { offset: value[0].as_u64()?, newest: value[1].as_u64(), early })
        };
        let read = |value: Value| {
            let inputs = value["inputs"].as_object()?.iter();
            Some(Self {
                id: value["id"].as_str()?.to_owned(),
                order: value["order"].as_u64()?,
                inputs: inputs.map(|(name, of)| Some((name.clone(), followed(of)?))).collect::<Option<_>>()?,
                replaced: value["replaced"].as_array()?.iter().map(Value::as_u64).collect::<Option<_>>()?,
                results: value["results"].as_array()?.iter().map(reading).collect::<Option<_>>()?,
            })
        };
        let place = serde_json::from_str(text).ok().and_then(read);
        place.map(Some).ok_or_else(|| Fault::new("the state that was kept beside the stream cannot be read", text))
    }

    /// Whether a process hands out nothing any more.
    fn is_replaced(&self, life: u64) -> bool {
        self.replaced.contains(&life) && self.inputs.values().all(|followed| followed.lane.life != life)
    }

    /// Follows a record of an input, whose block is done; messages that its host has lost.
    fn follow(&mut self, name: &str, record: &OrderRecord) -> u64 {
        let followed = self.inputs.entry(name.to_owned()).or_default();
        let before = followed.lane.life;
        let lost = followed.follow(record);
        if before != 0 && before != record.life {
            self.replaced.push_back(before);
            if self.replaced.len() > REPLACED_MAX {
                self.replaced.pop_front();
            }
        }
        lost
    }

    /// The accounts of the inputs, as commits have them.
    pub(crate) fn accounts(&self) -> Vec<Input> {
        let account = |(name, followed): (&String, &Followed)| {
            // Of an input that nothing has come of there is no stream.
            let head = followed.lane.newest.filter(|head| head.uuid != [0; 16])?;
            let others = followed.counts.values().fold(0, |sum: u64, n| sum.saturating_add(*n));
            Some(Input {
                stream: name.clone(),
                uuid: head.uuid,
                epoch: head.epoch,
                first: followed.first.unwrap_or(head.first),
                next: head.next(),
                done: followed.read.saturating_sub(others),
                counts: followed.counts.iter().map(|(name, n)| (name.clone(), *n)).collect(),
            })
        };
        self.inputs.iter().filter_map(account).collect()
    }
}

/// A block whose results come next.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    said: OrderRecord,
    head: BlockHead,
    partition: usize,
    offset: u64,
    /// The number of the result that comes next.
    done: u64,
    /// The number of the record that comes next, where they came early.
    record: usize,
    /// Retention has taken its first records: it counts as lost, with what is left of its results.
    is_cut: bool,
}

/// Results that came before their turn: a host that hands out blocks may be behind another with its records.
#[derive(Default)]
struct Early {
    /// The offset of the first record.
    at: u64,
    records: Vec<(ResultKey, Vec<u8>)>,
    is_whole: bool,
}

/// The fate of a record of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordFate {
    /// It is dealt with.
    Done,
    /// The results of the wanted block are lost: it is of a later one, and is shown again when another is wanted.
    Later,
    /// The stream has no room: it is shown again.
    Full,
}

/// The output as a state machine over the records of the order and of the results.
pub(crate) struct Collator {
    pub(crate) place: Place,
    /// Names of the inputs.
    inputs: Vec<String>,
    /// Results that came early, by partition and block.
    early: Vec<BTreeMap<u64, Early>>,
    /// The offset of the record behind the newest that is dealt with, by partition.
    next: Vec<u64>,
    /// The sequence of the newest result that the stream had at the start; none where it had none of this order.
    had: Option<u64>,
    uuid: [u8; 16],
    wanted: Option<Wanted>,
    /// The input of the wanted block.
    name: String,
    /// Results are lost since the last message was appended: none is, before the account has them.
    holds: bool,
    origins: BlockOrigins,
    messages: u64,
    missing: u64,
}

#[cfg(feature = "client")]
impl Collator {
    /// The least frontier of the inputs, whose results are in the stream; none before each of them is known.
    pub(crate) fn frontier(&self) -> i64 {
        let of = |name: &String| self.place.inputs.get(name)?.lane.newest.map(|head| head.frontier);
        self.inputs.iter().map(|name| of(name).unwrap_or(i64::MIN)).min().unwrap_or(i64::MIN)
    }

    /// These inputs count as complete up to this time, ns since 1970 UTC.
    pub(crate) fn pass(&mut self, inputs: &[String], until: i64) {
        for name in inputs.iter().filter(|name| self.inputs.contains(name)) {
            let lane = &mut self.place.inputs.entry(name.clone()).or_default().lane;
            let head = lane.newest.get_or_insert_default();
            head.frontier = head.frontier.max(until);
        }
    }

    /// Messages that were appended, and messages of inputs whose results are missing.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.messages, self.missing)
    }
}

impl Collator {
    /// Goes on at `place`, whose offsets of results are those that are read next. `mirrored`: the newest messages of
    /// the stream.
    pub(crate) fn new(place: Place, inputs: &[String], mirrored: &[Identity]) -> Self {
        let uuid = uuid_of(&place.id);
        let had = mirrored.iter().find(|known| known.uuid == uuid).map(|known| known.sequence);
        Self {
            early: place.results.iter().map(|_| BTreeMap::new()).collect(),
            next: place.results.iter().map(|reading| reading.offset).collect(),
            had: had.filter(|sequence| *sequence < store::limits::NEAR_GONE),
            place,
            inputs: inputs.to_vec(),
            uuid,
            wanted: None,
            name: String::new(),
            holds: false,
            origins: BlockOrigins::default(),
            messages: 0,
            missing: 0,
        }
    }

    /// The partition and the block whose results come next; none where the next record of the order does.
    pub(crate) fn wants(&self) -> Option<(usize, u64)> {
        self.wanted.map(|wanted| (wanted.partition, wanted.offset))
    }

    /// Follows the next record of the order.
    pub(crate) fn see_order(&mut self, key: &[u8], payload: &[u8], offset: u64) {
        self.place.order = offset;
        let name = String::from_utf8_lossy(key).into_owned();
        let said = OrderRecord::read(payload).filter(|_| self.inputs.contains(&name));
        let known = self.place.inputs.get(&name);
        match said.filter(|said| known.is_none_or(|followed| followed.lane.accepts(said))) {
            Some(said @ OrderRecord { says: Says::Block(head, partition, offset), .. }) => {
                let partition = usize::try_from(partition).unwrap_or(usize::MAX);
                if partition < self.early.len() {
                    self.name = name;
                    self.wanted = Some(Wanted { said, head, partition, offset, done: 0, record: 0, is_cut: false });
                    return;
                }
            }
            Some(said) => {
                self.missing += self.place.follow(&name, &said);
                self.drop_replaced();
            }
            None => {}
        }
        self.place.order = offset + 1;
    }

    /// Whether messages may be appended: the account has all that is lost before them.
    fn may_append(&mut self, out: &dyn Outlet) -> bool {
        self.holds &= !out.is_settled();
        !self.holds
    }

    /// Appends the results of the wanted block where they came early; none where they did not. Full: the caller repeats
    /// it in a later step.
    pub(crate) fn append_early(&mut self, now: i64, out: &mut dyn Outlet) -> Result<Option<Pushed>, Fault> {
        let Some(mut wanted) = self.wanted else { return Ok(None) };
        if !self.may_append(out) {
            return Ok(Some(Pushed::Full));
        }
        let early = self.early[wanted.partition].get(&wanted.offset).filter(|early| early.is_whole);
        let Some(early) = early else { return Ok(None) };
        let (order, had, uuid) = (self.place.order, self.had, self.uuid);
        let mut pushing = Pushing { out, origins: &mut self.origins, messages: &mut self.messages, had, uuid, order };
        while let Some((key, payload)) = early.records.get(wanted.record) {
            if pushing.append(key, payload, &mut wanted, now)? == Pushed::Full {
                self.wanted = Some(wanted);
                return Ok(Some(Pushed::Full));
            }
            wanted.record += 1;
        }
        let counts = early.records.last().map(|(key, _)| key.counts.clone()).unwrap_or_default();
        self.wanted = Some(wanted);
        if !self.finish(&counts, now, out) {
            return Ok(Some(Pushed::Full));
        }
        self.early[wanted.partition].remove(&wanted.offset);
        self.place.results[wanted.partition].early.remove(&wanted.offset);
        self.keep_place(wanted.partition);
        Ok(Some(Pushed::Taken))
    }

    /// Deals with the next record of results of the wanted partition, at the offset `at`.
    pub(crate) fn see_result(
        &mut self,
        at: u64,
        key: &[u8],
        payload: &[u8],
        now: i64,
        out: &mut dyn Outlet,
    ) -> Result<RecordFate, Fault> {
        let Some(mut wanted) = self.wanted else { return Ok(RecordFate::Later) };
        if !self.may_append(out) {
            return Ok(RecordFate::Full);
        }
        let partition = wanted.partition;
        let reading = &self.place.results[partition];
        let Some(key) = ResultKey::read(key).filter(|key| !reading.is_past(key.offset)) else {
            self.pass_record(partition, at, None);
            return Ok(RecordFate::Done);
        };
        if key.offset > wanted.offset {
            self.wanted = Some(Wanted { is_cut: true, ..wanted });
            let is_named = self.finish(&BTreeMap::new(), now, out);
            return Ok(if is_named { RecordFate::Later } else { RecordFate::Full });
        }
        if self.early[partition].get(&key.offset).is_some_and(|early| early.is_whole) {
            // A second transaction with the results of a block whose turn has not come.
            self.pass_record(partition, at, None);
            return Ok(RecordFate::Done);
        }
        if key.offset < wanted.offset || self.early[partition].contains_key(&key.offset) {
            self.keep_early(partition, at, &key, payload);
            self.pass_record(partition, at, Some(&key));
            return Ok(RecordFate::Done);
        }
        let (order, had, uuid) = (self.place.order, self.had, self.uuid);
        let mut pushing = Pushing { out, origins: &mut self.origins, messages: &mut self.messages, had, uuid, order };
        let pushed = pushing.append(&key, payload, &mut wanted, now)?;
        self.wanted = Some(wanted);
        if pushed == Pushed::Full {
            return Ok(RecordFate::Full);
        }
        // Until the last record a start would begin with the first one of the block.
        if key.is_last {
            if !self.finish(&key.counts, now, out) {
                return Ok(RecordFate::Full);
            }
            self.pass_record(partition, at, Some(&key));
        }
        Ok(RecordFate::Done)
    }

    /// Counts the wanted block as lost: it was deleted before a host had it, and all results in the topic are read.
    /// Later ones are dropped. False: the caller repeats it in a later step.
    pub(crate) fn lose(&mut self, now: i64, out: &mut dyn Outlet) -> bool {
        let Some(wanted) = self.wanted else { return true };
        self.early[wanted.partition].remove(&wanted.offset);
        let reading = &mut self.place.results[wanted.partition];
        reading.early.remove(&wanted.offset);
        reading.newest = reading.newest.max(Some(wanted.offset));
        self.keep_place(wanted.partition);
        self.wanted = Some(Wanted { is_cut: true, ..wanted });
        self.finish(&BTreeMap::new(), now, out)
    }

    /// Keeps results whose turn has not come. Nobody waits for those that a process which was replaced has not put into
    /// the order.
    fn keep_early(&mut self, partition: usize, at: u64, key: &ResultKey, payload: &[u8]) {
        if self.place.is_replaced(key.life) {
            self.place.results[partition].early.remove(&key.offset);
            return;
        }
        let early = self.early[partition].entry(key.offset).or_insert_with(|| Early { at, ..Early::default() });
        early.is_whole = key.is_last;
        early.records.push((key.clone(), payload.to_vec()));
        self.place.results[partition].early.insert(key.offset);
    }

    /// Drops results that came early of processes that were replaced since: nobody waits for them.
    fn drop_replaced(&mut self) {
        for partition in 0..self.early.len() {
            let is_replaced = |early: &Early| early.records.iter().any(|(key, _)| self.place.is_replaced(key.life));
            let early = self.early[partition].iter().filter(|(_, early)| is_replaced(early));
            let dropped: Vec<u64> = early.map(|(block, _)| *block).collect();
            for block in &dropped {
                self.early[partition].remove(block);
                // Others in the state are read again.
                self.place.results[partition].early.remove(block);
            }
            if !dropped.is_empty() {
                self.keep_place(partition);
            }
        }
    }

    /// A record of results is dealt with.
    fn pass_record(&mut self, partition: usize, at: u64, key: Option<&ResultKey>) {
        if let Some(key) = key.filter(|key| key.is_last) {
            let reading = &mut self.place.results[partition];
            reading.newest = reading.newest.max(Some(key.offset));
        }
        self.next[partition] = at + 1;
        self.keep_place(partition);
    }

    /// A start reads a partition from the oldest record that came early, or from the next one.
    fn keep_place(&mut self, partition: usize) {
        let (next, oldest) = (self.next[partition], self.early[partition].values().map(|early| early.at).min());
        self.place.results[partition].offset = oldest.map_or(next, |oldest| oldest.min(next));
    }

    /// The block is done: its messages are in the account. False where its results are lost, and messages before them
    /// are not safe yet: the commit that names the loss must be of no fewer messages.
    fn finish(&mut self, counts: &BTreeMap<String, u64>, now: i64, out: &mut dyn Outlet) -> bool {
        let Some(wanted) = self.wanted else { return true };
        let Wanted { head, is_cut, .. } = wanted;
        if is_cut && !out.is_settled() {
            return false;
        }
        self.wanted = None;
        self.missing += self.place.follow(&self.name, &wanted.said);
        let followed = self.place.inputs.entry(self.name.clone()).or_default();
        followed.first.get_or_insert(head.first);
        followed.read += u64::from(head.count);
        let lost = BTreeMap::from([("lost.retention".to_owned(), u64::from(head.count))]);
        for (name, n) in if is_cut { &lost } else { counts } {
            let counted = followed.counts.entry(name.clone()).or_default();
            *counted = counted.saturating_add(*n);
            if name.starts_with("lost.") {
                self.missing = self.missing.saturating_add(*n);
            }
        }
        if is_cut {
            let (first, last) = (head.first, head.next().saturating_sub(1));
            let text =
                format!("results of messages {first} to {last} of stream `{}` are missing: retention", self.name);
            out.aside("hole", &text, now, &[]);
            out.missing_near(first..=last, "retention");
            self.holds = true;
        }
        self.place.order += 1;
        true
    }
}

/// The stream and the block whose results are appended.
struct Pushing<'a> {
    out: &'a mut dyn Outlet,
    origins: &'a mut BlockOrigins,
    messages: &'a mut u64,
    /// The sequence of the newest result that the stream had at the start.
    had: Option<u64>,
    uuid: [u8; 16],
    /// The offset of the block's record in the order.
    order: u64,
}

impl Pushing<'_> {
    /// The sequence that a result of the block has in the near stream, by its number.
    fn sequence(&self, number: u64) -> u64 {
        self.order << RESULT_BITS | number & ((1 << RESULT_BITS) - 1)
    }

    /// Whether the stream had a result of the block at the start.
    fn is_had(&self, number: u64) -> bool {
        self.had.is_some_and(|had| self.sequence(number) <= had)
    }

    /// Appends the messages of a record of the wanted block that are not done.
    fn append(&mut self, key: &ResultKey, payload: &[u8], wanted: &mut Wanted, now: i64) -> Result<Pushed, Fault> {
        let pushed = self.append_record(key, payload, wanted, now)?;
        let made = u64::from(key.made);
        let is_short = key.is_last && pushed == Pushed::Taken && wanted.done < made && !self.is_had(made - 1);
        wanted.is_cut |= is_short;
        Ok(pushed)
    }

    fn append_record(
        &mut self,
        key: &ResultKey,
        payload: &[u8],
        wanted: &mut Wanted,
        now: i64,
    ) -> Result<Pushed, Fault> {
        let Wanted { done, is_cut, .. } = wanted;
        if key.content == Content::Aside {
            // Those that the stream had at the start were kept then.
            if !self.is_had(*done) && !*is_cut {
                keep_aside(payload, now, self.out);
            }
            return Ok(Pushed::Taken);
        }
        let Ok(block) = Block::read(payload) else { return Ok(Pushed::Taken) };
        *is_cut |= block.head.first > *done && !self.is_had(block.head.first - 1);
        if *is_cut || block.is_empty() {
            return Ok(Pushed::Taken);
        }
        self.origins.learn(&block, self.out)?;
        let first = (*done).saturating_sub(block.head.first) as usize;
        for at in first..block.len() {
            let number = block.head.first + at as u64;
            // Kafka has compared its own checksum: only a program that writes other bytes gets here.
            if let Some(message) = block.message(at).filter(|_| !self.is_had(number)) {
                let near = Identity { uuid: self.uuid, epoch: 0, sequence: self.sequence(number) };
                let mirrored = self.origins.mirrored(&message, near);
                if self.out.push_mirrored(&mirrored, message.payload)? == Pushed::Full {
                    return Ok(Pushed::Full);
                }
                *self.messages += 1;
            }
            *done = number + 1;
        }
        Ok(Pushed::Taken)
    }
}

/// Keeps a message that a worker has set aside on its host.
fn keep_aside(payload: &[u8], now: i64, out: &mut dyn Outlet) {
    match wire::bpas::read(payload) {
        Ok(aside) => out.aside(aside.reason, aside.text, aside.time, aside.payload.bytes()),
        Err(_) => out.aside("damaged", "a message aside of another host does not verify", now, payload),
    }
}

/// The identity of an order as that of a near stream: that of its topic, or of its name where brokers give none.
fn uuid_of(id: &str) -> [u8; 16] {
    let mut uuid = [0u8; 16];
    for (at, byte) in id.bytes().enumerate() {
        uuid[at % 16] = uuid[at % 16].wrapping_mul(31).wrapping_add(byte);
    }
    uuid
}
