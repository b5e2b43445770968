//! The order of a worker on several hosts: a topic `INSTRUMENT.WORKER.order` of one partition, with one small record
//! for each block of an input, in the order in which blocks were handed out.
//!
//! All readers of the results follow it, so that all see one order, whichever host is slow or dead. A record says which
//! block comes next and where it lies: its partition and its offset in `INSTRUMENT.WORKER.in`. The key is the name of
//! the input.
//!
//! Exactly once: a block counts with its record. A host that starts announces itself with a record of its own for each
//! input, and reads the order up to there: what a former process still sends comes behind the announcement, and nobody
//! follows it.

use crate::limits::{ORDER_BYTES, ORDER_MAGIC};
use store::BlockHead;

/// A record of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OrderRecord {
    /// Names the process that handed it out.
    pub(crate) life: u64,
    pub(crate) says: Says,
}

/// The news of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// The process hands out the input from here on.
    Begin,
    /// A block was handed out. Its head says which messages it has, its partition and offset where it lies.
    Block(BlockHead, i32, u64),
    /// There is no message: the input has come to the frontier of the head.
    Frontier(BlockHead),
}

impl OrderRecord {
    /// Its bytes.
    pub(crate) fn bytes(&self) -> [u8; ORDER_BYTES] {
        let (kind, head, partition, offset) = match self.says {
            Says::Begin => (0u16, BlockHead::default(), 0, 0),
            Says::Block(head, partition, offset) => (1, head, partition, offset),
            Says::Frontier(head) => (2, head, 0, 0),
        };
        let mut bytes = [0; ORDER_BYTES];
        bytes[..4].copy_from_slice(&ORDER_MAGIC.0);
        bytes[4..6].copy_from_slice(&ORDER_MAGIC.1.to_le_bytes());
        bytes[6..8].copy_from_slice(&kind.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.life.to_le_bytes());
        bytes[16..32].copy_from_slice(&head.uuid);
        bytes[32..36].copy_from_slice(&head.epoch.to_le_bytes());
        bytes[36..40].copy_from_slice(&head.count.to_le_bytes());
        bytes[40..48].copy_from_slice(&head.first.to_le_bytes());
        bytes[48..56].copy_from_slice(&head.previous.to_le_bytes());
        bytes[56..64].copy_from_slice(&head.frontier.to_le_bytes());
        bytes[64..72].copy_from_slice(&offset.to_le_bytes());
        bytes[72..76].copy_from_slice(&partition.to_le_bytes());
        bytes
    }

    /// Reads a record; none where these bytes are none.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; ORDER_BYTES] = bytes.try_into().ok()?;
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if bytes[..4] != ORDER_MAGIC.0 || u16::from_le_bytes([bytes[4], bytes[5]]) != ORDER_MAGIC.1 {
            return None;
        }
        let mut head = BlockHead {
            epoch: word(32),
            count: word(36),
            first: long(40),
            previous: long(48),
            frontier: long(56) as i64,
            ..BlockHead::default()
        };
        head.uuid.copy_from_slice(&bytes[16..32]);
        head.first.checked_add(u64::from(head.count))?;
        let says = match u16::from_le_bytes([bytes[6], bytes[7]]) {
            0 => Says::Begin,
            1 if head.count > 0 => Says::Block(head, i32::try_from(word(72)).ok()?, long(64)),
            2 => Says::Frontier(BlockHead { count: 0, ..head }),
            _ => return None,
        };
        Some(Self { life: long(8), says })
    }
}

/// How far the order has come in one input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lane {
    /// The process whose records count.
    pub(crate) life: u64,
    /// Head of the newest record; none before the first.
    pub(crate) newest: Option<BlockHead>,
}

impl Lane {
    /// Whether a record counts: not if it comes of a process that another one has replaced.
    pub(crate) fn accepts(&self, record: &OrderRecord) -> bool {
        record.says == Says::Begin || self.life == 0 || self.life == record.life
    }

    /// Follows a record that counts.
    pub(crate) fn follow(&mut self, record: &OrderRecord) {
        self.life = record.life;
        if let Says::Block(head, ..) | Says::Frontier(head) = record.says {
            self.newest = Some(head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(life: u64, first: u64) -> OrderRecord {
        let head = BlockHead { uuid: [7; 16], epoch: 2, count: 10, first, previous: first, frontier: -5 };
        OrderRecord { life, says: Says::Block(head, 3, 1 << 40) }
    }

    #[test]
    fn a_record_reads_back_and_other_bytes_are_none() {
        let head = BlockHead { count: 0, ..BlockHead { uuid: [1; 16], first: 9, frontier: 4, ..BlockHead::default() } };
        for record in [
            block(1, 5),
            OrderRecord { life: 9, says: Says::Begin },
            OrderRecord { life: 2, says: Says::Frontier(head) },
        ] {
            assert_eq!(OrderRecord::read(&record.bytes()), Some(record));
        }
        let bytes = block(1, 5).bytes();
        for (at, value) in [(0, b'x'), (4, 2), (6, 3), (75, 0x80)] {
            let mut bytes = bytes;
            bytes[at] = value;
            assert_eq!(OrderRecord::read(&bytes), None, "{at}");
        }
        let mut beyond = bytes;
        beyond[40..48].fill(0xff);
        assert_eq!(OrderRecord::read(&beyond), None);
        assert_eq!(OrderRecord::read(&bytes[1..]), None);
    }

    #[test]
    fn records_of_a_process_that_was_replaced_do_not_count() {
        let mut lane = Lane::default();
        let mut follow = |record: OrderRecord| {
            let accepted = lane.accepts(&record);
            if accepted {
                lane.follow(&record);
            }
            accepted
        };
        assert!(follow(block(1, 0)));
        assert!(follow(OrderRecord { life: 2, says: Says::Begin }));
        assert!(!follow(block(1, 10)));
        assert!(follow(block(2, 10)));
        assert_eq!(lane.newest.map(|head| head.next()), Some(20));
    }
}
