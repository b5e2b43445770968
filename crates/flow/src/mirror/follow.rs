//! Which messages of a block a mirror lacks, and which came before them and are nowhere.
//!
//! Sequences of one near stream rise over its epochs, except after a recovery of the near side that cut messages: a
//! later epoch then begins at a sequence that an earlier one had used, and its messages are new ones.

use crate::Identity;
use crate::limits::KEPT_HOLES_MAX;
use serde_json::{Value, json};
use std::ops::Range;
use store::limits::NEAR_GONE;
use store::{BlockHead, hex, unhex16};

/// How far a mirror has come in each near stream that it repeats: a stream in memory is another one after each start of
/// its machine.
#[derive(Clone, Debug, Default)]
pub struct Follow {
    /// The newest message of each stream, the one that was appended last at the end.
    newest: Vec<Identity>,
    /// Those of `newest` that are no message of the mirror: ends of holes in the account, and where a mirror begins.
    holes: Vec<Identity>,
}

/// The part of a block that a mirror lacks, and the gap before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// Number of its messages that the mirror has already.
    pub doubles: usize,
    /// Sequences that were put before it to where it is read, and are not there any more.
    pub gone: Range<u64>,
    /// Sequences that the near side had lost before it could send them.
    pub unsent: Range<u64>,
}

impl Follow {
    /// `mirrored`: the newest message of each near stream, as the mirror's entries say. `kept`: [`Follow::kept`] of the
    /// newest commit: the account may have come further than the entries, or retention has taken these.
    pub fn resume(mirrored: &[Identity], kept: &[Identity]) -> Self {
        let mut follow = Self { newest: mirrored.to_vec(), holes: Vec::new() };
        for kept in kept {
            let known = mirrored.iter().find(|known| known.uuid == kept.uuid);
            let is_further = known.is_none_or(|known| {
                known.sequence == NEAR_GONE || (kept.epoch, kept.sequence) > (known.epoch, known.sequence)
            });
            if is_further {
                follow.miss(*kept);
            }
        }
        follow
    }

    /// Positions that the entries of the mirror do not have, or may have no more after a while: the ends of holes that
    /// no message follows yet, and the newest message.
    pub fn kept(&self) -> Vec<Identity> {
        let newest = self.newest.last().filter(|newest| !self.holes.contains(newest));
        self.holes.iter().chain(newest).copied().collect()
    }

    /// The newest message of the stream that came last; none where there is none, or nobody knows which it was.
    pub fn newest(&self) -> Option<Identity> {
        self.newest.last().copied().filter(|newest| newest.sequence < NEAR_GONE)
    }

    /// Compares a block with what the mirror has.
    pub fn admit(&self, head: &BlockHead) -> Admission {
        let BlockHead { first, previous, .. } = *head;
        let known = self.newest.iter().find(|known| known.uuid == head.uuid);
        let expected = match known {
            Some(known) if head.epoch > known.epoch => (known.sequence + 1).min(first),
            // Late requests of a process that was killed, before its stream was recovered.
            Some(known) if head.epoch < known.epoch => u64::MAX,
            // Late requests of a process that was killed.
            Some(known) => known.sequence + 1,
            // A mirror that has nothing begins with what is there.
            None if self.newest.is_empty() => first,
            None => 0,
        };
        let doubles = expected.saturating_sub(first).min(u64::from(head.count)) as usize;
        let missing = expected.min(first)..first;
        // Without a predecessor all of it was put where it was deleted with its topic.
        let split = if previous == 0 { first } else { previous.clamp(missing.start, first) };
        Admission { doubles, gone: missing.start..split, unsent: split..first }
    }

    /// A mirror that has nothing begins with the first message of this block: late requests with earlier ones are
    /// dropped, because the frontier of the block has passed these.
    pub fn begin(&mut self, head: &BlockHead) {
        if let Some(sequence) = head.first.checked_sub(1).filter(|_| self.newest.is_empty()) {
            self.miss(Identity { uuid: head.uuid, epoch: head.epoch, sequence });
        }
    }

    /// A message was appended.
    pub fn append(&mut self, message: Identity) {
        self.holes.retain(|hole| hole.uuid != message.uuid);
        self.reach(message);
    }

    /// Messages up to this one are known to be missing.
    pub fn miss(&mut self, last: Identity) {
        self.holes.retain(|hole| hole.uuid != last.uuid);
        self.holes.push(last);
        let rest = self.holes.len().saturating_sub(KEPT_HOLES_MAX);
        self.holes.drain(..rest);
        self.reach(last);
    }

    fn reach(&mut self, message: Identity) {
        match self.newest.last_mut() {
            Some(last) if last.uuid == message.uuid => *last = message,
            _ => {
                self.newest.retain(|known| known.uuid != message.uuid);
                self.newest.push(message);
            }
        }
    }
}

/// A message as states have it.
pub(super) fn value_of(message: &Identity) -> Value {
    json!([hex(&message.uuid), message.epoch, message.sequence])
}

/// Reads what [`value_of`] has made. A sequence has a successor.
pub(super) fn identity_of(value: &Value) -> Option<Identity> {
    let uuid = unhex16(value.get(0)?.as_str()?)?;
    let epoch = u32::try_from(value.get(1)?.as_u64()?).ok()?;
    let sequence = value.get(2)?.as_u64().filter(|sequence| *sequence < u64::MAX)?;
    Some(Identity { uuid, epoch, sequence })
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: [u8; 16] = [1; 16];
    const B: [u8; 16] = [2; 16];

    fn head(uuid: [u8; 16], epoch: u32, previous: u64, messages: Range<u64>) -> BlockHead {
        let count = (messages.end - messages.start) as u32;
        BlockHead { uuid, epoch, count, first: messages.start, previous, frontier: 0 }
    }

    fn at(uuid: [u8; 16], epoch: u32, sequence: u64) -> Follow {
        Follow::resume(&[Identity { uuid, epoch, sequence }], &[])
    }

    fn admission(doubles: usize, gone: Range<u64>, unsent: Range<u64>) -> Admission {
        Admission { doubles, gone, unsent }
    }

    #[test]
    fn what_the_mirror_has_is_dropped_and_what_is_missing_is_named() {
        let follow = at(A, 1, 99);
        assert_eq!(follow.admit(&head(A, 1, 100, 100..110)), admission(0, 100..100, 100..100));
        assert_eq!(follow.admit(&head(A, 1, 90, 90..110)), admission(10, 90..90, 90..90));
        assert_eq!(follow.admit(&head(A, 1, 80, 80..90)), admission(10, 80..80, 80..80));
        // Retention of the topic took ten, and the near side had lost five.
        assert_eq!(follow.admit(&head(A, 1, 110, 115..120)), admission(0, 100..110, 110..115));
        // The near side alone.
        assert_eq!(follow.admit(&head(A, 1, 100, 115..120)), admission(0, 100..100, 100..115));
        // The topic was deleted and made again.
        assert_eq!(follow.admit(&head(A, 1, 0, 115..120)), admission(0, 100..115, 115..115));
        // A block without messages shows a hole too.
        assert_eq!(follow.admit(&head(A, 1, 130, 130..130)), admission(0, 100..130, 130..130));
    }

    #[test]
    fn a_new_stream_begins_at_its_beginning_and_an_empty_mirror_anywhere() {
        assert_eq!(Follow::default().admit(&head(A, 1, 500, 500..510)), admission(0, 500..500, 500..500));
        let mut follow = Follow::default();
        follow.begin(&head(A, 1, 500, 500..500));
        assert_eq!(follow.admit(&head(A, 1, 490, 490..510)), admission(10, 490..490, 490..490));
        follow.begin(&head(A, 1, 700, 700..700));
        assert_eq!(follow.admit(&head(A, 1, 500, 500..510)), admission(0, 500..500, 500..500));
        let follow = at(A, 1, 99);
        assert_eq!(follow.admit(&head(B, 1, 0, 0..10)), admission(0, 0..0, 0..0));
        // Nothing says why its beginning is not there.
        assert_eq!(follow.admit(&head(B, 1, 0, 70..80)), admission(0, 0..70, 70..70));
        assert_eq!(follow.admit(&head(B, 1, 70, 70..80)), admission(0, 0..70, 70..70));
        // An old one comes late.
        let mut follow = follow;
        follow.append(Identity { uuid: B, epoch: 1, sequence: 9 });
        assert_eq!(follow.admit(&head(A, 1, 90, 90..100)).doubles, 10);
        assert_eq!(follow.admit(&head(B, 1, 10, 10..20)).doubles, 0);
    }

    #[test]
    fn messages_of_a_later_epoch_are_new_though_their_sequences_were_used() {
        let follow = at(A, 1, 99);
        assert_eq!(follow.admit(&head(A, 2, 95, 95..110)), admission(0, 95..95, 95..95));
        assert_eq!(follow.admit(&head(A, 2, 100, 100..110)), admission(0, 100..100, 100..100));
        assert_eq!(follow.admit(&head(A, 2, 105, 110..120)), admission(0, 100..105, 105..110));
        // Late requests of before are not.
        assert_eq!(at(A, 2, 99).admit(&head(A, 1, 100, 100..110)), admission(10, 100..100, 100..100));
    }

    #[test]
    fn a_hole_is_kept_until_a_message_follows_it() {
        let mut follow = at(A, 1, 99);
        let hole = Identity { uuid: A, epoch: 1, sequence: 109 };
        follow.miss(hole);
        assert_eq!(follow.kept(), [hole]);
        let other = Identity { uuid: B, epoch: 1, sequence: 0 };
        follow.append(other);
        assert_eq!(follow.kept(), [hole, other]);
        let resumed = Follow::resume(&[Identity { uuid: A, epoch: 1, sequence: 99 }, other], &follow.kept());
        assert_eq!(resumed.admit(&head(A, 1, 110, 110..111)), admission(0, 110..110, 110..110));
        // Messages came after the commit.
        let later = Identity { uuid: A, epoch: 1, sequence: 120 };
        let resumed = Follow::resume(&[other, later], &follow.kept());
        assert_eq!(resumed.admit(&head(A, 1, 110, 110..130)).doubles, 11);
        // Retention has taken all of them.
        let gone = Identity { uuid: A, epoch: 1, sequence: NEAR_GONE };
        let resumed = Follow::resume(&[gone], &[later]);
        assert_eq!(resumed.admit(&head(A, 1, 110, 110..130)).doubles, 11);
        follow.append(later);
        assert_eq!(follow.kept(), [later]);
    }

    #[test]
    fn a_message_reads_back_from_a_state() {
        let message = Identity { uuid: B, epoch: 7, sequence: 1 << 60 };
        assert_eq!(identity_of(&value_of(&message)), Some(message));
        for text in ["null", "[]", r#"["02", 1, 2]"#, r#"["02020202020202020202020202020202", 1]"#] {
            assert_eq!(identity_of(&serde_json::from_str(text).unwrap()), None, "{text}");
        }
    }
}
