//! The state of a sink in its commits: for each input its identity and how far it is acknowledged; for each topic its
//! id and, by partition, the offset from which it may hold messages that no commit counts as done.
//!
//! `{"streams": {"counts": ["0f3a...", 1200]}, "topics": {"loki_counts": {"id": "Nx3...", "offsets": [300, 310]}}}`

use flow::Fault;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

/// The kept state of a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Its id; empty where the brokers give none.
    pub(crate) id: String,
    /// By partition.
    pub(crate) offsets: Vec<u64>,
}

/// Identity of a stream, and below which sequence all is dealt with.
pub(crate) type Known = ([u8; 16], u64);

/// The state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// By stream.
    pub(crate) streams: BTreeMap<String, Known>,
    /// By topic.
    pub(crate) topics: BTreeMap<String, Kept>,
}

impl State {
    /// Its text.
    pub(crate) fn text(&self) -> String {
        let stream = |(name, (uuid, below)): (&String, &Known)| (name.clone(), json!([store::hex(uuid), below]));
        let topic =
            |(name, kept): (&String, &Kept)| (name.clone(), json!({"id": kept.id, "offsets": kept.offsets.clone()}));
        let streams: serde_json::Map<String, Value> = self.streams.iter().map(stream).collect();
        let topics: serde_json::Map<String, Value> = self.topics.iter().map(topic).collect();
        json!({"streams": streams, "topics": topics}).to_string()
    }

    /// Reads a text; that before the first commit is empty.
    pub(crate) fn read(text: &str) -> Result<Self, Fault> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let wrong = || Fault::new("the state of a Kafka sink cannot be read", "it is not one that beamport writes");
        serde_json::from_str(text).ok().and_then(|value: Value| Self::of(&value)).ok_or_else(wrong)
    }

    fn of(value: &Value) -> Option<Self> {
        let stream = |(name, pair): (&String, &Value)| {
            Some((name.clone(), (store::unhex16(pair.get(0)?.as_str()?)?, pair.get(1)?.as_u64()?)))
        };
        let topic = |(name, kept): (&String, &Value)| {
            let offsets = kept.get("offsets")?.as_array()?.iter().map(Value::as_u64).collect::<Option<_>>()?;
            Some((name.clone(), Kept { id: kept.get("id")?.as_str()?.to_owned(), offsets }))
        };
        let streams = value.get("streams")?.as_object()?.iter().map(stream).collect::<Option<_>>()?;
        let topics = value.get("topics")?.as_object()?.iter().map(topic).collect::<Option<_>>()?;
        Some(Self { streams, topics })
    }
}

/// Messages that are in a partition, and that the input is not past yet.
#[derive(Clone, Copy, Debug)]
struct There {
    /// Offset of the first.
    from: u64,
    /// One past the offset of the last.
    after: u64,
    input: usize,
    /// Sequence of the last.
    sequence: u64,
}

/// A partition: from which offset a new sink has to look for its messages.
#[derive(Debug, Default)]
pub(crate) struct Place {
    floor: u64,
    there: VecDeque<There>,
}

impl Place {
    /// All messages before this offset are dealt with.
    pub(crate) fn new(floor: u64) -> Self {
        Self { floor, there: VecDeque::new() }
    }

    /// Enters an acknowledged message. If a broker acknowledges a message that it had already, its offset is unknown, 0
    /// here; it is larger than that of the message before.
    pub(crate) fn acknowledge(&mut self, offset: u64, input: usize, sequence: u64) {
        let offset = offset.max(self.there.back().map_or(self.floor, |last| last.after));
        self.there.push_back(There { from: offset, after: offset + 1, input, sequence });
    }

    /// Enters messages of an input that were found from the floor on.
    pub(crate) fn find(&mut self, after: u64, input: usize, sequence: u64) {
        self.there.push_back(There { from: self.floor, after, input, sequence });
    }

    /// Drops the messages of an input that is another stream now; returns how many entries that were.
    pub(crate) fn forget(&mut self, input: usize) -> usize {
        let before = self.there.len();
        self.there.retain(|there| there.input != input);
        before - self.there.len()
    }

    /// The offset from which the partition may hold messages at or above `below` of their input. Removed entries are
    /// subtracted from `held`.
    pub(crate) fn offset(&mut self, below: &[u64], held: &mut usize) -> u64 {
        while let Some(front) = self.there.front() {
            if below.get(front.input).is_some_and(|below| front.sequence >= *below) {
                return front.from;
            }
            self.floor = self.floor.max(front.after);
            *held = held.saturating_sub(1);
            self.there.pop_front();
        }
        self.floor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_reads_back() {
        let kept = Kept { id: "Nx3".into(), offsets: vec![300, 310] };
        let state = State {
            streams: BTreeMap::from([("counts".into(), (*b"0123456789abcdef", 1200))]),
            topics: BTreeMap::from([("loki_counts".into(), kept)]),
        };
        assert_eq!(State::read(&state.text()).unwrap(), state);
        assert_eq!(State::read("").unwrap(), State::default());
        for wrong in
            ["x", "[]", r#"{"streams": {"a": ["0f", 1]}, "topics": {}}"#, r#"{"streams": {}, "topics": {"a": 1}}"#]
        {
            assert!(State::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_partition_is_searched_from_the_first_message_that_no_commit_counts() {
        let (mut place, mut held) = (Place::new(100), 3);
        assert_eq!(place.offset(&[0, 0], &mut held), 100);
        place.acknowledge(105, 0, 7);
        place.acknowledge(106, 1, 3);
        // A broker has not reported that it is 109.
        place.acknowledge(0, 0, 9);
        assert_eq!(place.offset(&[7, 3], &mut held), 105);
        assert_eq!(place.offset(&[8, 3], &mut held), 106);
        // The last one is done, and the one before it is not.
        assert_eq!(place.offset(&[10, 3], &mut held), 106);
        assert_eq!((place.offset(&[10, 4], &mut held), held), (108, 0));
        // Messages found after a restart are not counted from behind.
        place.find(150, 0, 20);
        place.find(140, 1, 9);
        place.acknowledge(160, 0, 21);
        assert_eq!(place.offset(&[21, 9], &mut held), 108);
        assert_eq!(place.offset(&[21, 10], &mut held), 160);
        assert_eq!(place.offset(&[22, 10], &mut held), 161);
        place.acknowledge(170, 0, 23);
        assert_eq!(place.forget(0), 1);
        assert_eq!(place.offset(&[0, 10], &mut held), 161);
    }
}
