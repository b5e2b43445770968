//! A pretend topic of one partition and the way to it: requests of the near side are in order, some arrive after their
//! process was killed, and acknowledgements come late or never. The topic outlives all processes; retention deletes its
//! beginning, people delete all of it, and bytes in it may change.

use beamport_testkit::Dice;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use store::Block;

/// Requests of an idempotent producer that a broker may have at once.
const REQUESTS_MAX: u64 = 5;

pub(super) type Shared = Arc<Mutex<Topic>>;

pub(super) fn lock(shared: &Shared) -> MutexGuard<'_, Topic> {
    shared.lock().unwrap_or_else(|p| p.into_inner())
}

pub(super) struct Topic {
    dice: Dice,
    /// How often it was made.
    pub(super) id: u64,
    /// The offset of the oldest record.
    pub(super) first: u64,
    pub(super) records: VecDeque<Vec<u8>>,
    /// Requests of the producer that lives: bytes and mark.
    pub(super) requests: VecDeque<(Vec<u8>, usize)>,
    /// Acknowledgements on their way to it.
    pub(super) answers: Vec<(Vec<u8>, usize)>,
    /// Requests of producers that were killed, in order, oldest producer first.
    late: VecDeque<VecDeque<Vec<u8>>>,
    pub(super) is_away: bool,
    /// The next call of the sink fails.
    pub(super) refuses: bool,
    /// One past the newest message of each stream that ever was in it.
    pub(super) put: BTreeMap<[u8; 16], u64>,
    /// Records that were deleted or changed, and their messages.
    pub(super) harmed: u64,
    pub(super) lost: BTreeSet<([u8; 16], u64)>,
    pub(super) came_late: u64,
}

impl Topic {
    pub(super) fn new(seed: u64) -> Shared {
        Arc::new(Mutex::new(Self {
            dice: Dice::new(seed ^ 0x70_71c0),
            id: 1,
            first: 0,
            records: VecDeque::new(),
            requests: VecDeque::new(),
            answers: Vec::new(),
            late: VecDeque::new(),
            is_away: false,
            refuses: false,
            put: BTreeMap::new(),
            harmed: 0,
            lost: BTreeSet::new(),
            came_late: 0,
        }))
    }

    /// One past its newest offset.
    pub(super) fn end(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    fn append(&mut self, bytes: Vec<u8>) {
        let head = Block::read(&bytes).unwrap().head;
        if head.count > 0 {
            let put = self.put.entry(head.uuid).or_default();
            *put = head.next().max(*put);
        }
        self.records.push_back(bytes);
    }

    /// Some requests arrive.
    pub(super) fn pass(&mut self, most: u64) {
        for _ in 0..if self.is_away { 0 } else { self.dice.below(most + 1) } {
            let which = self.dice.below(self.late.len() as u64 + 2) as usize;
            if let Some(late) = self.late.get_mut(which) {
                if let Some(bytes) = late.pop_front() {
                    self.came_late += 1;
                    self.append(bytes);
                }
                self.late.retain(|late| !late.is_empty());
            } else if let Some((bytes, mark)) = self.requests.pop_front() {
                self.append(bytes.clone());
                self.answers.push((bytes, mark));
            }
        }
    }

    /// Some acknowledgements arrive at the producer.
    pub(super) fn answers(&mut self) -> Vec<(Vec<u8>, usize)> {
        let mut all = Vec::new();
        for _ in 0..self.dice.below(6) {
            if !self.answers.is_empty() {
                let at = self.dice.below(self.answers.len() as u64) as usize;
                all.push(self.answers.remove(at));
            }
        }
        all
    }

    /// The producer is killed: its newest requests were never sent, others may arrive later.
    pub(super) fn lose_producer(&mut self) {
        let sent = self.dice.below(REQUESTS_MAX + 1) as usize;
        let late: VecDeque<_> = self.requests.drain(..).take(sent).map(|(bytes, _)| bytes).collect();
        if !late.is_empty() {
            self.late.push_back(late);
        }
        self.answers.clear();
    }

    /// A machine that starts again takes longer than any request.
    pub(super) fn lose_machine(&mut self) {
        self.lose_producer();
        for bytes in std::mem::take(&mut self.late).into_iter().flatten() {
            self.came_late += 1;
            self.append(bytes);
        }
    }

    /// Retention deletes some of the oldest records.
    pub(super) fn expire(&mut self) {
        for _ in 0..self.dice.below(self.records.len() as u64 + 1) {
            self.harm(0);
            self.records.pop_front();
            self.first += 1;
        }
    }

    /// Somebody deletes the topic, and a host makes it again.
    pub(super) fn make_again(&mut self) {
        (0..self.records.len()).for_each(|at| self.harm(at));
        (self.id, self.first) = (self.id + 1, 0);
        self.records.clear();
    }

    /// A byte of a record changes.
    pub(super) fn damage(&mut self) {
        let at = self.dice.below(self.records.len() as u64) as usize;
        let place = self.dice.word() as usize;
        self.harm(at);
        if let Some(record) = self.records.get_mut(at) {
            let place = place % record.len();
            record[place] ^= 1 << (place % 8);
        }
    }

    /// Notes what is lost with a record.
    fn harm(&mut self, at: usize) {
        let Some(record) = self.records.get(at) else { return };
        self.harmed += 1;
        if let Ok(Block { head, .. }) = Block::read(record) {
            self.lost.extend((head.first..head.next()).map(|sequence| (head.uuid, sequence)));
        }
    }
}
