//! The output of a worker on several hosts, put together of pretend topics: hosts that hand out blocks are behind each
//! other and die, results come twice and are deleted, and the reader is killed at any time.

use super::collate::{Collator, Place, RecordFate};
use super::order::{OrderRecord, Says};
use super::record::{Content, ResultKey};
use flow::{Fault, Identity, OriginAccounts, Outlet, Pushed, Silence};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::RangeInclusive;
use store::{BlockBuilder, BlockHead, Entry, Mirrored, SchemaId, beat, crc32c};
use testkit::{Counts, Dice, histories};

const INPUTS: [&str; 3] = ["left", "right", "top"];

/// A stream with little room.
#[derive(Default)]
struct Stream {
    messages: Vec<(Identity, Vec<u8>)>,
    room: usize,
    aside: u64,
    /// A loss was named, and is in no commit yet.
    is_pending: bool,
}

impl OriginAccounts for Stream {
    fn origin(&mut self, _: &str) -> Result<u32, Fault> {
        Ok(0)
    }
    fn missing(&mut self, _: u32, _: RangeInclusive<u64>, _: RangeInclusive<i64>, _: &str) -> Result<(), Fault> {
        Ok(())
    }
    fn count(&mut self, _: u32, _: &str, _: u64) -> Result<(), Fault> {
        Ok(())
    }
}

impl Outlet for Stream {
    fn push_parts(&mut self, _: &store::Meta, _: &[&[u8]]) -> Result<Pushed, Fault> {
        unreachable!("a mirror appends messages as they are")
    }
    fn push_mirrored(&mut self, mirrored: &Mirrored, payload: &[u8]) -> Result<Pushed, Fault> {
        if self.room == 0 {
            return Ok(Pushed::Full);
        }
        self.room -= 1;
        self.messages.push((mirrored.near, payload.to_vec()));
        Ok(Pushed::Taken)
    }
    fn next_sequence(&self) -> u64 {
        self.messages.len() as u64
    }
    fn is_settled(&self) -> bool {
        !self.is_pending
    }
    fn missing_near(&mut self, _: RangeInclusive<u64>, reason: &str) {
        assert_eq!(reason, "retention");
        self.is_pending = true;
    }
    fn silent(&mut self, _: RangeInclusive<i64>, _: Silence) {}
    fn aside(&mut self, _: &str, _: &str, _: i64, _: &[u8]) {
        self.aside += 1;
    }
    fn fill(&self) -> f64 {
        0.0
    }
}

/// How many results a message has: some have none, and some are set aside.
fn results_of(sequence: u64) -> u64 {
    sequence % 4
}

fn payload_of(input: usize, sequence: u64, number: u64) -> Vec<u8> {
    format!("{} {sequence} {number}", INPUTS[input]).into_bytes()
}

/// A process that hands out one input.
struct Dealer {
    life: u64,
    next: u64,
    /// Blocks without a record.
    under_way: VecDeque<(i32, u64, BlockHead)>,
}

/// A record of results: key and value.
type Record = (Vec<u8>, Vec<u8>);

struct History {
    dice: Dice,
    order: Vec<(usize, OrderRecord)>,
    /// By partition: who handed a block out, its input and its head.
    blocks: Vec<Vec<(u64, usize, BlockHead)>>,
    /// By partition: records, and how many of the oldest were deleted.
    results: Vec<(Vec<Record>, usize)>,
    /// Blocks of each partition that are worked on.
    worked: Vec<usize>,
    /// Blocks of each partition that were deleted: some of them before a host had them.
    low: Vec<usize>,
    /// Those of them that no host has returned.
    forgotten: Vec<(usize, usize)>,
    dealers: Vec<Dealer>,
    newest_life: u64,
    turn: usize,
    stream: Stream,
    state: String,
    counts: BTreeMap<&'static str, u64>,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let partitions = dice.range(1, 6) as usize;
        let dealer = |at: usize| Dealer { life: at as u64 + 1, next: 0, under_way: VecDeque::new() };
        let mut history = Self {
            dice,
            order: Vec::new(),
            blocks: vec![Vec::new(); partitions],
            results: vec![(Vec::new(), 0); partitions],
            worked: vec![0; partitions],
            low: vec![0; partitions],
            forgotten: Vec::new(),
            dealers: (0..INPUTS.len()).map(dealer).collect(),
            newest_life: INPUTS.len() as u64,
            turn: 0,
            stream: Stream::default(),
            state: String::new(),
            counts: BTreeMap::new(),
        };
        for (input, life) in (0..INPUTS.len()).zip(1..) {
            history.order.push((input, OrderRecord { life, says: Says::Begin }));
        }
        history
    }

    fn note(&mut self, name: &'static str, n: u64) {
        *self.counts.entry(name).or_default() += n;
    }

    /// Puts a block into the partition whose turn it is.
    fn deal(&mut self, input: usize) {
        let count = self.dice.range(1, 6) as u32;
        let Dealer { life, next, under_way } = &mut self.dealers[input];
        let head = BlockHead {
            uuid: [input as u8 + 1; 16],
            epoch: 0,
            count,
            first: *next,
            previous: *next,
            frontier: (*next + u64::from(count)) as i64,
        };
        *next += u64::from(count);
        let partition = self.turn % self.blocks.len();
        self.turn += 1;
        under_way.push_back((partition as i32, self.blocks[partition].len() as u64, head));
        self.blocks[partition].push((*life, input, head));
        self.note("blocks", 1);
    }

    /// Puts the oldest block without a record into the order.
    fn record(&mut self, input: usize) {
        let Dealer { life, under_way, .. } = &mut self.dealers[input];
        if let Some((partition, offset, head)) = under_way.pop_front() {
            self.order.push((input, OrderRecord { life: *life, says: Says::Block(head, partition, offset) }));
        }
    }

    /// A process dies, and another takes its place; what it had sent may come behind the announcement of that.
    fn replace(&mut self, input: usize) {
        // Some of its records came in time.
        while self.dice.one_in(2) && !self.dealers[input].under_way.is_empty() {
            self.record(input);
        }
        self.newest_life += 1;
        let life = self.newest_life;
        let former = std::mem::replace(&mut self.dealers[input].life, life);
        self.order.push((input, OrderRecord { life, says: Says::Begin }));
        for (partition, offset, head) in std::mem::take(&mut self.dealers[input].under_way) {
            if self.dice.one_in(2) {
                self.order.push((input, OrderRecord { life: former, says: Says::Block(head, partition, offset) }));
                self.note("late", 1);
            }
        }
        let ordered = self.ordered();
        let newest = ordered.iter().rev().find(|(of, ..)| *of == input);
        self.dealers[input].next = newest.map_or(0, |(_, head, ..)| head.next());
        self.note("replaced", 1);
    }

    /// The blocks of the order that count: by the rule, and not by the code under test.
    fn ordered(&self) -> Vec<(usize, BlockHead, usize, u64)> {
        let mut lives = HashMap::new();
        let mut blocks = Vec::new();
        for (input, record) in &self.order {
            match record.says {
                Says::Begin => drop(lives.insert(*input, record.life)),
                Says::Block(head, partition, offset) if lives.get(input) == Some(&record.life) => {
                    blocks.push((*input, head, partition as usize, offset));
                }
                Says::Block(..) | Says::Frontier(_) => {}
            }
        }
        blocks
    }

    /// A host works on the next block of a partition, or once more on earlier ones.
    fn work(&mut self, partition: usize) {
        let at = self.worked[partition];
        let from = if self.dice.one_in(20) { at.saturating_sub(3) } else { at };
        self.note("twice", (at - from) as u64);
        let end = (at + 1).min(self.blocks[partition].len());
        for at in from..end {
            self.give_back(partition, at);
        }
        self.worked[partition] = end;
    }

    fn give_back(&mut self, partition: usize, at: usize) {
        let (life, input, head) = self.blocks[partition][at];
        let mut records: Vec<(Content, Vec<u8>)> = Vec::new();
        let mut builder = BlockBuilder::default();
        let (mut number, mut aside) = (0, 0);
        let mut is_begun = false;
        for sequence in head.first..head.next() {
            if results_of(sequence) == 0 {
                aside += 1;
                records.push((Content::Aside, b"no message aside".to_vec()));
            }
            for result in 0..results_of(sequence) {
                if is_begun && self.dice.one_in(3) {
                    records.push((Content::Output, builder.end(0, 0).1));
                    is_begun = false;
                }
                if !is_begun {
                    builder.begin([0; 16], 0, number, Vec::new());
                    is_begun = true;
                }
                let payload = payload_of(input, sequence, result);
                builder.push(&entry_of(&payload), crc32c(&payload), "origin", &payload);
                number += 1;
            }
        }
        if is_begun {
            let first = builder.first();
            records.push((Content::Output, builder.end(first, 0).1));
        }
        if records.is_empty() {
            records.push((Content::Output, beat(&BlockHead::default())));
        }
        let last = records.len() - 1;
        for (at_record, (content, value)) in records.into_iter().enumerate() {
            let is_last = at_record == last;
            let counts = if is_last && aside > 0 {
                BTreeMap::from([("aside.error".to_owned(), aside)])
            } else {
                BTreeMap::new()
            };
            let made = number as u32;
            let key = ResultKey { content, is_last, offset: at as u64, life, read: head.count, made, counts };
            self.results[partition].0.push((key.bytes(), value));
        }
    }

    /// Retention takes the oldest records of a partition.
    fn delete(&mut self) {
        let partition = self.dice.below(self.results.len() as u64) as usize;
        let (records, first) = &mut self.results[partition];
        let most = (records.len() - *first) as u64;
        let taken = self.dice.below(most.min(6) + 1) as usize;
        *first += taken;
        self.note("deleted", taken as u64);
    }

    /// Retention takes blocks of a partition before a host has them; one that has been cut off still returns some.
    fn forget(&mut self) {
        let partition = self.dice.below(self.blocks.len() as u64) as usize;
        let from = self.worked[partition];
        let end = (from + self.dice.range(1, 4) as usize).min(self.blocks[partition].len());
        (self.worked[partition], self.low[partition]) = (end, end);
        self.forgotten.extend((from..end).map(|at| (partition, at)));
        self.note("deleted", (end - from) as u64);
        self.note("forgotten", (end - from) as u64);
    }

    fn return_late(&mut self) {
        if !self.forgotten.is_empty() {
            let at = self.dice.below(self.forgotten.len() as u64) as usize;
            let (partition, at) = self.forgotten.swap_remove(at);
            self.give_back(partition, at);
        }
    }

    fn start(&self) -> Collator {
        let mut place = Place::read(&self.state).unwrap().unwrap_or_default();
        place.id = "order".to_owned();
        place.results.resize_with(self.results.len(), Default::default);
        for (reading, (_, first)) in place.results.iter_mut().zip(&self.results) {
            reading.offset = reading.offset.max(*first as u64);
        }
        let mirrored: Vec<Identity> = self.stream.messages.last().map(|(near, _)| *near).into_iter().collect();
        Collator::new(place, &INPUTS.map(str::to_owned), &mirrored)
    }

    /// Reads some records. `next`: of each partition, the record that comes next. False where nothing is there.
    fn read(&mut self, collator: &mut Collator, next: &mut (u64, Vec<u64>)) -> bool {
        let Some((partition, block)) = collator.wants() else {
            let Some((input, record)) = self.order.get(next.0 as usize) else { return false };
            collator.see_order(INPUTS[*input].as_bytes(), &record.bytes(), next.0);
            next.0 += 1;
            return true;
        };
        match collator.append_early(0, &mut self.stream).unwrap() {
            Some(Pushed::Full) => {
                self.make_room(collator);
                return true;
            }
            Some(Pushed::Taken) => return true,
            None => {}
        }
        let at = next.1[partition];
        let Some((key, value)) = self.results[partition].0.get(at as usize) else {
            let is_gone = block < self.low[partition] as u64;
            if is_gone && !collator.lose(0, &mut self.stream) {
                self.make_room(collator);
            }
            return is_gone;
        };
        match collator.see_result(at, key, value, 0, &mut self.stream).unwrap() {
            RecordFate::Done => next.1[partition] += 1,
            RecordFate::Later => {}
            RecordFate::Full => self.make_room(collator),
        }
        true
    }

    fn make_room(&mut self, collator: &Collator) {
        self.stream.room = self.dice.range(1, 4) as usize;
        if self.stream.is_pending && self.dice.one_in(3) {
            self.commit(collator);
        }
    }

    fn commit(&mut self, collator: &Collator) {
        self.state = collator.place.text();
        self.stream.is_pending = false;
    }

    fn live(mut self) -> Counts {
        let deletes = self.dice.one_in(3);
        let mut collator = self.start();
        let mut next = (collator.place.order, offsets(&collator));
        for _ in 0..self.dice.range(50, 400) {
            let input = self.dice.below(INPUTS.len() as u64) as usize;
            match self.dice.below(12) {
                0..3 => self.deal(input),
                3..6 => self.record(input),
                6..9 => {
                    let partition = self.dice.below(self.blocks.len() as u64) as usize;
                    self.work(partition);
                }
                9 if self.dice.one_in(6) => self.replace(input),
                10 if self.dice.one_in(4) => {
                    // Killed: the state is that of the last commit, or of one before.
                    if self.dice.one_in(2) {
                        self.commit(&collator);
                        self.read(&mut collator, &mut next);
                    }
                    if deletes && self.dice.one_in(2) {
                        self.delete();
                    }
                    if deletes && self.dice.one_in(3) {
                        self.forget();
                    }
                    if self.dice.one_in(3) {
                        self.return_late();
                    }
                    self.stream.is_pending = false;
                    collator = self.start();
                    next = (collator.place.order, offsets(&collator));
                    self.note("killed", 1);
                }
                _ => {
                    for _ in 0..self.dice.below(10) {
                        self.read(&mut collator, &mut next);
                    }
                    if self.dice.one_in(3) {
                        self.commit(&collator);
                    }
                }
            }
        }
        self.end(collator, next)
    }

    /// Everything comes to its end: the output has what it must have.
    fn end(mut self, mut collator: Collator, mut next: (u64, Vec<u64>)) -> Counts {
        for input in 0..INPUTS.len() {
            while !self.dealers[input].under_way.is_empty() {
                self.record(input);
            }
        }
        for partition in 0..self.blocks.len() {
            while self.worked[partition] < self.blocks[partition].len() {
                self.work(partition);
            }
        }
        while self.read(&mut collator, &mut next) {}
        // The last blocks of a partition may be deleted, with nothing behind them that shows it.
        let is_cut = collator.wants().is_some();
        assert!(!is_cut || self.counts.contains_key("deleted"), "it waits for {:?}", collator.wants());
        let ordered = self.ordered();
        let mut found = self.stream.messages.iter().map(|(_, payload)| payload.clone()).peekable();
        let (mut lost, mut read) = (0, 0);
        for (input, head, ..) in &ordered {
            let all: Vec<Vec<u8>> = (head.first..head.next())
                .flat_map(|sequence| (0..results_of(sequence)).map(move |n| payload_of(*input, sequence, n)))
                .collect();
            if is_cut && read + lost >= accounted(&collator) {
                break;
            }
            let mut here = 0;
            while found.peek().is_some() && found.peek() == all.get(here) {
                (here, _) = (here + 1, found.next());
            }
            // Retention may take the rest of what a reader that was killed had begun with.
            *if here == all.len() { &mut read } else { &mut lost } += u64::from(head.count);
        }
        assert_eq!(found.next(), None, "results of no block, or twice");
        let missing: u64 =
            collator.place.accounts().iter().filter_map(|input| input.counts.get("lost.retention")).sum();
        assert!(lost <= missing, "{lost} are not there, and {missing} are named");
        assert!(missing == 0 || self.counts.contains_key("deleted"), "{missing} are named as lost, and none is");
        let identities: Vec<u64> = self.stream.messages.iter().map(|(near, _)| near.sequence).collect();
        assert!(identities.is_sorted_by(|a, b| a < b));
        let mut counts =
            Counts::from([("histories", 1), ("results", self.stream.messages.len() as u64), ("lost", lost)]);
        for (name, n) in self.counts {
            counts += Counts::from([(name, n)]);
        }
        counts
    }
}

/// Messages of inputs that are in the account.
fn accounted(collator: &Collator) -> u64 {
    let of = |input: &flow::records::Input| input.done + input.counts.values().sum::<u64>();
    collator.place.accounts().iter().map(of).sum()
}

fn offsets(collator: &Collator) -> Vec<u64> {
    collator.place.results.iter().map(|reading| reading.offset).collect()
}

/// The entry of a result, before it has a place.
fn entry_of(payload: &[u8]) -> Entry {
    Entry {
        source_time: 0,
        arrival_time: 0,
        origin_seq: 0,
        parent_sequence: 0,
        origin: 0,
        schema: SchemaId(*b"test"),
        segment: 0,
        offset8: 0,
        length: payload.len() as u32,
        payload_crc: 0,
        flags: 0,
        parent: 0,
        crc: 0,
    }
}

fn lives(test: &str, seeds: u64) {
    let sum = histories(test, seeds, |seed| History::new(seed).live());
    println!(
        "histories of workers on several hosts: {} blocks, {} processes replaced, {} late records of theirs, {} blocks \
         returned twice, {} readers killed, {} records deleted, {} blocks deleted that no host had: {} results, {} \
         messages named as lost, 0 wrong, 0 twice",
        sum["blocks"],
        sum["replaced"],
        sum["late"],
        sum["twice"],
        sum["killed"],
        sum["deleted"] - sum["forgotten"],
        sum["forgotten"],
        sum["results"],
        sum["lost"],
    );
    let n = sum["histories"];
    let happens =
        ["replaced", "late", "twice", "killed", "deleted", "forgotten", "lost"].iter().all(|name| sum[*name] > n / 8);
    assert!(n < 100 || happens && sum["results"] > 10 * n, "{sum:?}");
}

#[test]
fn whatever_dies_the_output_has_each_result_once_and_in_the_order() {
    lives("mirror::shared::tests::whatever_dies_the_output_has_each_result_once_and_in_the_order", 300);
}

#[test]
#[ignore = "full counts: cargo xtask soak"]
fn soak_shared_workers() {
    lives("mirror::shared::tests::soak_shared_workers", 100_000);
}
