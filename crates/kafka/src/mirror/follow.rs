//! Which messages of a block a mirror lacks, and which came before them and are nowhere.
//!
//! Sequences of one near stream rise over its epochs, except after a recovery of the near side that cut messages: a
//! later epoch then begins at a sequence that an earlier one had used, and its messages are new ones.

use flow::Identity;
use std::ops::Range;
use store::BlockHead;

/// How far a mirror has come in each near stream that it repeats: a stream in memory is another one after each start of
/// its machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Follow {
    /// The newest message of each stream, the one that was appended last at the end.
    newest: Vec<Identity>,
}

/// The part of a block that a mirror lacks, and the gap before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Admission {
    /// Number of its messages that the mirror has already.
    pub(crate) doubles: usize,
    /// Sequences that were put before it to where it is read, and are not there any more.
    pub(crate) gone: Range<u64>,
    /// Sequences that the near side had lost before it could send them.
    pub(crate) unsent: Range<u64>,
}

impl Follow {
    /// `mirrored`: the newest message of each near stream, as the mirror's entries say.
    pub(crate) fn new(mirrored: &[Identity]) -> Self {
        Self { newest: mirrored.to_vec() }
    }

    /// Compares a block with what the mirror has.
    pub(crate) fn admit(&self, head: &BlockHead) -> Admission {
        let BlockHead { first, previous, .. } = *head;
        let known = self.newest.iter().find(|known| known.uuid == head.uuid);
        let expected = match known {
            Some(known) if head.epoch > known.epoch => (known.sequence + 1).min(first),
            // Late requests of a process that was killed.
            Some(known) => known.sequence + 1,
            // A mirror that has nothing begins with what is there.
            None if self.newest.is_empty() => first,
            // Another stream, whose beginning is not there any more; or one that was sent from here on.
            None if previous == 0 => first,
            None => 0,
        };
        let doubles = expected.saturating_sub(first).min(u64::from(head.count)) as usize;
        let missing = expected.min(first)..first;
        // Without a predecessor all of it was put where it was deleted with its topic.
        let split = if previous == 0 { first } else { previous.clamp(missing.start, first) };
        Admission { doubles, gone: missing.start..split, unsent: split..first }
    }

    /// A message was appended, or messages before this one are known to be missing.
    pub(crate) fn append(&mut self, message: Identity) {
        match self.newest.last_mut() {
            Some(last) if last.uuid == message.uuid => *last = message,
            _ => {
                self.newest.retain(|known| known.uuid != message.uuid);
                self.newest.push(message);
            }
        }
    }
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
        Follow::new(&[Identity { uuid, epoch, sequence }])
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
        let follow = at(A, 1, 99);
        assert_eq!(follow.admit(&head(B, 1, 0, 0..10)), admission(0, 0..0, 0..0));
        assert_eq!(follow.admit(&head(B, 1, 0, 70..80)), admission(0, 70..70, 70..70));
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
    }
}
