//! The blocks that a host of a worker has, from the moment they are in its input to that when their results are kept.
//!
//! The source that fills the input and the sink that returns the results share it. A partition that goes to another
//! host takes its blocks along: their results are dropped.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::BlockHead;

/// A block of an input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its place in the topic.
    pub(crate) partition: i32,
    pub(crate) offset: u64,
    /// Which stay of the partition at this host it belongs to.
    pub(crate) stay: u64,
    /// The process that handed it out.
    pub(crate) life: u64,
    /// Its head: messages of the near stream.
    pub(crate) head: BlockHead,
    /// Its messages in the input of this host: the first, and one past the last.
    pub(crate) first: u64,
    pub(crate) next: u64,
    /// Messages that did not verify, and are not in the input.
    pub(crate) damaged: u64,
}

/// Counts of the worker's input, by `kind.reason`.
pub(crate) type Counts = BTreeMap<String, u64>;

/// The blocks of a host.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// In the order of the input.
    entries: VecDeque<Entry>,
    /// Those of `entries` whose results are with the thread that returns them.
    closed: usize,
    /// The partitions that are here, with the number of their stay.
    stays: BTreeMap<i32, u64>,
    newest: u64,
    /// Partitions of the transaction that is under way.
    under_way: BTreeSet<i32>,
    /// Where a source that has ended had begun a block, which it had not brought to its end.
    begun: Option<u64>,
    /// The two ends do not agree: the source is to restart.
    is_broken: bool,
    /// The newest commit of the worker of which the results were taken: how far it was in the input, and its counts.
    applied: (u64, Counts),
    /// There was a sink before this one.
    has_sink: bool,
    /// Blocks whose results are kept, and blocks that went to another host.
    pub(crate) returned: u64,
    pub(crate) dropped: u64,
}

impl Table {
    /// Partitions come to this host.
    pub(crate) fn assign(&mut self, partitions: &[i32]) {
        for partition in partitions {
            self.newest += 1;
            self.stays.insert(*partition, self.newest);
        }
    }

    /// Partitions leave it: results of their blocks are dropped from now on.
    pub(crate) fn revoke(&mut self, partitions: &[i32]) {
        self.stays.retain(|partition, _| !partitions.contains(partition));
    }

    /// All of them leave it.
    pub(crate) fn revoke_all(&mut self) {
        self.stays.clear();
    }

    /// The partitions that are here.
    pub(crate) fn partitions(&self) -> Vec<i32> {
        self.stays.keys().copied().collect()
    }

    /// The number of the stay of a partition; none where it is not here.
    pub(crate) fn stay(&self, partition: i32) -> Option<u64> {
        self.stays.get(&partition).copied()
    }

    /// Whether a block belongs to this host.
    pub(crate) fn is_here(&self, entry: &Entry) -> bool {
        self.stays.get(&entry.partition) == Some(&entry.stay)
    }

    /// A block is in the input.
    pub(crate) fn push(&mut self, entry: Entry) {
        self.entries.push_back(entry);
    }

    /// The oldest block whose results are not complete.
    pub(crate) fn front(&self) -> Option<Entry> {
        self.entries.get(self.closed).copied()
    }

    /// The results of that block are complete.
    pub(crate) fn close(&mut self) {
        self.closed += 1;
    }

    /// The oldest block is done: its results are kept, or dropped.
    pub(crate) fn finish(&mut self, is_kept: bool) {
        self.entries.pop_front();
        self.closed = self.closed.saturating_sub(1);
        *if is_kept { &mut self.returned } else { &mut self.dropped } += 1;
    }

    /// A sink starts. One before it has taken results of blocks that are not done: these blocks are given up. How far
    /// the worker was in the input with the newest commit that was applied, and its counts then.
    pub(crate) fn begin_sink(&mut self) -> (u64, Counts) {
        if std::mem::replace(&mut self.has_sink, true) {
            self.set_broken();
        }
        self.closed = 0;
        self.applied.clone()
    }

    /// The results of a commit of the worker are taken.
    pub(crate) fn apply(&mut self, input: u64, counts: &Counts) {
        self.applied.0 = input;
        self.applied.1.clone_from(counts);
    }

    /// A source ends within a block that began here.
    pub(crate) fn leave_begun(&mut self, first: u64) {
        self.begun = Some(first);
    }

    /// A source begins, and `next` is the next message of the input: what there is of the last block is nobody's.
    pub(crate) fn begin(&mut self, next: u64) {
        self.is_broken = false;
        if let Some(first) = self.begun.take().filter(|first| *first < next) {
            let entry = Entry { first, next, ..Entry::default() };
            self.entries.push_back(entry);
        }
    }

    /// The ends do not agree which results belong to which block: all blocks that are here go to whoever comes.
    pub(crate) fn set_broken(&mut self) {
        self.stays.clear();
        self.is_broken = true;
    }

    /// Whether the source is to restart.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// A transaction with offsets of these partitions begins, or, of none, has ended.
    pub(crate) fn set_under_way(&mut self, partitions: BTreeSet<i32>) {
        self.under_way = partitions;
    }

    /// Whether a transaction is under way that has offsets of one of these.
    pub(crate) fn is_under_way(&self, partitions: &[i32]) -> bool {
        partitions.iter().any(|partition| self.under_way.contains(partition))
    }

    /// Blocks that are not done.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(table: &Table, partition: i32, first: u64) -> Entry {
        let stay = table.stay(partition).unwrap_or(0);
        Entry {
            partition,
            offset: first,
            stay,
            life: 0,
            head: BlockHead::default(),
            first,
            next: first + 5,
            damaged: 0,
        }
    }

    #[test]
    fn a_block_belongs_to_the_stay_in_which_it_came() {
        let mut table = Table::default();
        table.assign(&[1, 2]);
        let (of_one, of_two) = (entry(&table, 1, 0), entry(&table, 2, 5));
        table.push(of_one);
        table.push(of_two);
        table.revoke(&[1]);
        assert_eq!((table.is_here(&of_one), table.is_here(&of_two)), (false, true));
        // It comes back: another host may have had its blocks meanwhile.
        table.assign(&[1]);
        assert!(!table.is_here(&of_one));
        assert_eq!(table.partitions(), [1, 2]);
        assert_eq!(table.front(), Some(of_one));
        table.close();
        assert_eq!(table.front(), Some(of_two));
        table.finish(false);
        assert_eq!((table.front(), table.len(), table.dropped, table.returned), (Some(of_two), 1, 1, 0));
    }

    #[test]
    fn the_beginning_of_a_block_whose_source_has_ended_belongs_to_nobody() {
        let mut table = Table::default();
        table.assign(&[1]);
        table.leave_begun(7);
        table.revoke_all();
        // Nothing of it is in the input.
        table.begin(7);
        assert_eq!(table.front(), None);
        table.leave_begun(7);
        table.begin(9);
        let front = table.front().unwrap();
        assert_eq!((front.first, front.next, table.is_here(&front)), (7, 9, false));
        table.assign(&[1]);
        table.set_broken();
        assert!(table.is_broken() && table.partitions().is_empty());
        table.begin(9);
        assert!(!table.is_broken());
    }

    #[test]
    fn a_second_sink_gives_up_the_blocks_that_are_here() {
        let mut table = Table::default();
        assert_eq!(table.begin_sink(), (0, Counts::new()));
        table.assign(&[1]);
        let block = entry(&table, 1, 0);
        table.push(block);
        let counts = Counts::from([("aside.error".to_owned(), 1)]);
        table.apply(5, &counts);
        table.close();
        assert_eq!(table.begin_sink(), (5, counts));
        assert!(table.is_broken() && !table.is_here(&block));
        assert_eq!(table.front(), Some(block));
    }
}
