//! The newest messages of our own sinks in a partition: one that comes twice is recognised by the header `beamport`.
//!
//! A sink puts the messages of a stream into a partition in rising order, so one that is not above the newest of its
//! stream came before: late requests of a process that was killed (decision 0020). Where partitions were added
//! meanwhile, an origin may have moved to this one, and its first messages stand behind later ones of other origins: so
//! the newest of each origin decides, as far as it is known.
//!
//! Constraint: memory is bounded. The stream that was used longest ago goes; such messages would come in twice.

use crate::header::Sent;
use crate::limits::{SEEN_ORIGINS_MAX, SEEN_STREAMS_MAX};
use flow::Identity;
use std::hash::{DefaultHasher, Hasher};

/// Epoch and sequence of a message.
type At = (u32, u64);

/// The newest messages of a partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    streams: Vec<OfStream>,
    /// Place of the stream that was used last: most messages have the same.
    last: usize,
    /// Grows with each change of the stream.
    turn: u64,
}

/// The newest messages of a stream.
#[derive(Clone, Debug)]
struct OfStream {
    uuid: [u8; 16],
    newest: At,
    /// By hash of the name, of some origins.
    origins: Vec<(u64, At)>,
    /// Place of the origin that was used last.
    last: usize,
    /// No other origin has a message above this.
    others: At,
    /// When it was used.
    turn: u64,
}

fn at(identity: &Identity) -> At {
    (identity.epoch, identity.sequence)
}

fn hash(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(name);
    hasher.finish()
}

impl Seen {
    /// From the newest message of each stream, the one that was used longest ago first.
    pub(crate) fn new(newest: &[Identity]) -> Self {
        let mut seen = Self::default();
        for identity in newest {
            seen.note(&Sent { identity: *identity, origin: None });
        }
        seen
    }

    /// The same, of which [`Seen::new`] makes another.
    pub(crate) fn newest(&self) -> Vec<Identity> {
        let mut streams: Vec<&OfStream> = self.streams.iter().collect();
        streams.sort_unstable_by_key(|stream| stream.turn);
        let identity =
            |stream: &&OfStream| Identity { uuid: stream.uuid, epoch: stream.newest.0, sequence: stream.newest.1 };
        streams.iter().map(identity).collect()
    }

    fn place(&self, uuid: &[u8; 16]) -> Option<usize> {
        let is_last = self.streams.get(self.last).is_some_and(|stream| stream.uuid == *uuid);
        if is_last { Some(self.last) } else { self.streams.iter().position(|stream| stream.uuid == *uuid) }
    }

    /// Whether the partition has brought this message before.
    pub(crate) fn has(&self, sent: &Sent<'_>) -> bool {
        let Some(stream) = self.place(&sent.identity.uuid).map(|place| &self.streams[place]) else { return false };
        let at = at(&sent.identity);
        if at > stream.newest {
            return false;
        }
        let origin = sent.origin.map(|origin| hash(origin.name));
        let known = origin.and_then(|origin| stream.origins.iter().find(|known| known.0 == origin));
        at <= match (known, origin) {
            (Some(known), _) => known.1,
            (None, Some(_)) => stream.others,
            (None, None) => stream.newest,
        }
    }

    /// Notes a message that the partition has brought.
    pub(crate) fn note(&mut self, sent: &Sent<'_>) {
        let at = at(&sent.identity);
        let place = self.place(&sent.identity.uuid).unwrap_or_else(|| self.begin(sent.identity.uuid));
        if self.last != place {
            self.turn += 1;
            self.last = place;
        }
        let stream = &mut self.streams[place];
        stream.turn = self.turn;
        stream.newest = stream.newest.max(at);
        match sent.origin {
            Some(origin) => stream.note(hash(origin.name), at),
            None => stream.others = stream.others.max(at),
        }
    }

    /// The place of a new stream.
    fn begin(&mut self, uuid: [u8; 16]) -> usize {
        let stream = OfStream { uuid, newest: (0, 0), origins: Vec::new(), last: 0, others: (0, 0), turn: self.turn };
        self.turn += 1;
        let oldest = self.streams.iter().enumerate().min_by_key(|(_, stream)| stream.turn).map(|(place, _)| place);
        match oldest.filter(|_| self.streams.len() >= SEEN_STREAMS_MAX) {
            Some(place) => {
                self.streams[place] = stream;
                place
            }
            None => {
                self.streams.push(stream);
                self.streams.len() - 1
            }
        }
    }
}

impl OfStream {
    /// Notes a message of an origin.
    fn note(&mut self, origin: u64, at: At) {
        let is_last = self.origins.get(self.last).is_some_and(|known| known.0 == origin);
        if !is_last {
            self.last = self.origins.iter().position(|known| known.0 == origin).unwrap_or_else(|| self.begin(origin));
        }
        let newest = &mut self.origins[self.last].1;
        *newest = (*newest).max(at);
    }

    /// The place of an origin that is not known. That with the oldest message goes.
    fn begin(&mut self, origin: u64) -> usize {
        let oldest = self.origins.iter().enumerate().min_by_key(|(_, known)| known.1).map(|(place, _)| place);
        match oldest.filter(|_| self.origins.len() >= SEEN_ORIGINS_MAX) {
            Some(place) => {
                self.others = self.others.max(self.origins[place].1);
                self.origins[place] = (origin, self.others);
                place
            }
            None => {
                self.origins.push((origin, self.others));
                self.origins.len() - 1
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::SentOrigin;

    fn sent(stream: u8, at: At, origin: &str) -> Sent<'_> {
        let identity = Identity { uuid: [stream; 16], epoch: at.0, sequence: at.1 };
        let origin = (!origin.is_empty()).then_some(SentOrigin { number: 0, name: origin.as_bytes() });
        Sent { identity, origin }
    }

    /// Which of these messages are new, if one comes behind the other.
    fn new(seen: &mut Seen, all: &[Sent<'_>]) -> Vec<bool> {
        let take = |one: &Sent<'_>| {
            let is_new = !seen.has(one);
            if is_new {
                seen.note(one);
            }
            is_new
        };
        all.iter().map(take).collect()
    }

    #[test]
    fn what_came_before_is_recognised_with_and_without_an_origin() {
        for origin in ["", "cam"] {
            let one = |epoch, sequence| sent(1, (epoch, sequence), origin);
            let all = [one(1, 0), one(1, 5), one(1, 6), one(1, 5), one(1, 6), one(1, 7), one(1, 7)];
            assert_eq!(new(&mut Seen::default(), &all), [true, true, true, false, false, true, false], "{origin}");
        }
    }

    #[test]
    fn a_later_epoch_begins_below_and_late_messages_of_the_former_are_doubles() {
        let one = |epoch, sequence| sent(1, (epoch, sequence), "cam");
        let all = [one(1, 90), one(2, 50), one(1, 90), one(2, 51), one(2, 50)];
        assert_eq!(new(&mut Seen::default(), &all), [true, true, false, true, false]);
    }

    #[test]
    fn an_origin_that_moved_here_behind_others_is_not_taken_for_one_that_came() {
        let mut seen = Seen::default();
        let all = [sent(1, (1, 20), "b"), sent(1, (1, 10), "a"), sent(1, (1, 10), "a"), sent(1, (1, 11), "a")];
        assert_eq!(new(&mut seen, &all), [true, true, false, true]);
        assert_eq!(new(&mut seen, &[sent(1, (1, 20), "b"), sent(1, (1, 21), "b")]), [false, true]);
        // After a restart nobody knows which origins the stream has brought here.
        let mut seen = Seen::new(&seen.newest());
        let all = [sent(1, (1, 15), "c"), sent(1, (1, 21), "b"), sent(1, (1, 22), "c")];
        assert_eq!(new(&mut seen, &all), [false, false, true]);
        // A sink of an older program has sent the first.
        let mut seen = Seen::default();
        let all = [sent(1, (1, 9), ""), sent(1, (1, 9), "a"), sent(1, (1, 8), "a")];
        assert_eq!(new(&mut seen, &all), [true, false, false]);
    }

    #[test]
    fn more_origins_than_are_known_are_no_loss() {
        let names: Vec<String> = (0..3 * SEEN_ORIGINS_MAX).map(|n| format!("pv{n}")).collect();
        let all: Vec<Sent<'_>> = (0..).zip(&names).map(|(n, name)| sent(1, (1, n), name)).collect();
        let mut seen = Seen::default();
        assert!(new(&mut seen, &all).iter().all(|is_new| *is_new));
        assert!(new(&mut seen, &all).iter().all(|is_new| !is_new));
        assert_eq!(seen.streams[0].origins.len(), SEEN_ORIGINS_MAX);
    }

    #[test]
    fn streams_are_bounded_and_the_one_that_was_used_longest_ago_goes() {
        let most = u8::try_from(SEEN_STREAMS_MAX).unwrap();
        let mut seen = Seen::default();
        for stream in 0..most {
            seen.note(&sent(stream, (1, 7), "cam"));
        }
        seen.note(&sent(0, (1, 8), "cam"));
        seen.note(&sent(most, (1, 7), "cam"));
        assert_eq!(seen.streams.len(), SEEN_STREAMS_MAX);
        let has = |seen: &Seen, stream| seen.has(&sent(stream, (1, 7), "cam"));
        assert_eq!([0, 1, 2, most].map(|stream| has(&seen, stream)), [true, false, true, true]);
        let again = Seen::new(&seen.newest());
        assert_eq!(again.newest(), seen.newest());
        assert_eq!([0, 1, 2, most].map(|stream| has(&again, stream)), [true, false, true, true]);
    }
}
