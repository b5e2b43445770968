//! Where a source stands, as it is kept beside its stream: of each topic its id, and of each partition the next offset,
//! the life of its origin and its lag in ns (0 in a state of an older program, which kept none). Where a sink of ours
//! has sent messages, a fourth value says how many offsets have become messages of other origins (`mirror`), the source
//! time of the newest message, and the newest message of each stream.
//!
//! `{"loki_detector": {"id": "Nx3...", "partitions": [[1200, 1, 0], [40, 1, 71000000, {"elsewhere": 40,
//! "time": 1772366400000000000, "seen": [["6f1c53f2...", 1, 39]]}]]}}`.
//! A life begins when a topic of the name is made again: its offsets begin at 0 again, in the origin
//! `TOPIC/PARTITION#2`. A topic without partitions was missing: it is read from its beginning.

use crate::limits::{LAG_MAX, SEEN_STREAMS_MAX};
use flow::{Fault, Identity, Resume};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Where a partition stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The offset of the next message.
    pub(crate) next: u64,
    /// The life of its origin, from 1.
    pub(crate) life: u32,
    /// The most by which a message of it came later than its source time, ns.
    pub(crate) lag: i64,
    /// Offsets below `next` whose messages belong to other origins. Those of the partition's own origin have numbers
    /// without these: the offset less this count.
    pub(crate) elsewhere: u64,
}

/// A partition as it is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Where it stands.
    pub(crate) place: Place,
    /// Source time of its newest message, where the state has it.
    pub(crate) time: Option<i64>,
    /// The newest message of each stream that a sink of ours has sent, below the next offset.
    pub(crate) seen: Vec<Identity>,
}

/// Where a topic stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TopicState {
    /// Its id; empty where the brokers give none.
    pub(crate) id: String,
    /// Its partitions, by number.
    pub(crate) partitions: Vec<Kept>,
}

/// Topics by name.
pub(crate) type State = BTreeMap<String, TopicState>;

/// The text of a state.
pub(crate) fn write<'a>(topics: impl Iterator<Item = (&'a str, TopicState)>) -> String {
    let row = |(name, TopicState { id, partitions }): (&str, TopicState)| {
        let partitions: Vec<Value> = partitions.iter().map(partition).collect();
        (name.to_owned(), json!({"id": id, "partitions": partitions}))
    };
    Value::Object(topics.map(row).collect::<Map<_, _>>()).to_string()
}

fn partition(Kept { place, time, seen }: &Kept) -> Value {
    let Place { next, life, lag, elsewhere } = place;
    if seen.is_empty() && *elsewhere == 0 {
        return json!([next, life, lag]);
    }
    let seen: Vec<Value> = seen.iter().map(|id| json!([store::hex(&id.uuid), id.epoch, id.sequence])).collect();
    json!([next, life, lag, {"elsewhere": elsewhere, "time": time, "seen": seen}])
}

fn read_partition(row: &Value) -> Option<Kept> {
    let life = u32::try_from(row[1].as_u64()?).ok().filter(|n| *n > 0)?;
    let lag = row[2].as_i64().unwrap_or(0).clamp(0, LAG_MAX);
    let (next, more) = (row[0].as_u64()?, &row[3]);
    let elsewhere = more["elsewhere"].as_u64().unwrap_or(0);
    let identity = |one: &Value| {
        let (uuid, epoch) = (store::unhex16(one[0].as_str()?)?, u32::try_from(one[1].as_u64()?).ok()?);
        Some(Identity { uuid, epoch, sequence: one[2].as_u64()? })
    };
    let seen = more["seen"].as_array().into_iter().flatten().take(SEEN_STREAMS_MAX).map(identity);
    let place = Place { next, life, lag, elsewhere };
    (elsewhere <= next).then_some(Kept { place, time: more["time"].as_i64(), seen: seen.collect::<Option<_>>()? })
}

/// Reads the text of a state; that of a new stream is empty.
pub(crate) fn read(text: &str) -> Result<State, Fault> {
    if text.is_empty() {
        return Ok(State::new());
    }
    let topic = |value: &Value| {
        let partitions = value["partitions"].as_array()?.iter().map(read_partition).collect::<Option<_>>()?;
        Some(TopicState { id: value["id"].as_str()?.to_owned(), partitions })
    };
    let value: Option<Value> = serde_json::from_str(text).ok();
    let rows = value.as_ref().and_then(Value::as_object);
    let state = rows.and_then(|rows| rows.iter().map(|(name, value)| Some((name.clone(), topic(value)?))).collect());
    state.ok_or_else(|| Fault::new("the offsets that were kept beside the stream cannot be read", text))
}

/// The name of the origin of a partition in a life.
pub(crate) fn origin(topic: &str, partition: usize, life: u32) -> String {
    flow::name_of_life(&format!("{topic}/{partition}"), life)
}

/// The state and the stream at a start.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) state: &'a State,
    /// The stream's own account.
    pub(crate) resume: &'a Resume,
    /// Messages may have gone to other origins: the numbers of a partition do not say where it stands.
    pub(crate) mirrors: bool,
}

/// A topic as the brokers describe it now.
#[derive(Clone, Copy)]
pub(crate) struct Now<'a> {
    pub(crate) name: &'a str,
    pub(crate) id: &'a str,
    pub(crate) partitions: usize,
}

/// Where a partition resumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resumed {
    /// Behind what the stream has.
    pub(crate) kept: Kept,
    /// It is read from here on: what it has brought since the state was committed is in its stream, and unknown to
    /// `seen`.
    pub(crate) from: u64,
}

impl Known<'_> {
    /// Where a partition of a topic resumes, from what was kept and what the stream has; `None` where neither knows it.
    /// `new`: where a partition begins that the topic did not have.
    pub(crate) fn partition(&self, topic: &Now<'_>, partition: usize, new: u64) -> Option<Resumed> {
        let known = self.state.get(topic.name);
        let at = |next, life| Place { next, life, ..Place::default() };
        let name = origin(topic.name, partition, 1);
        let origin = self.resume.origins.iter().find(|origin| origin.name == name);
        let kept = known.and_then(|known| known.partitions.get(partition));
        let is_other = known.is_some_and(|known| !known.id.is_empty() && !topic.id.is_empty() && known.id != topic.id);
        let (place, from) = match (kept.map(|kept| kept.place), origin) {
            // Messages of a later life came behind the newest state.
            (Some(kept), Some(origin)) if origin.life > kept.life => {
                (at(if self.mirrors { 0 } else { origin.next_seq }, origin.life), 0)
            }
            (Some(kept), Some(_)) if is_other => (at(0, kept.life + 1), 0),
            // No message of it came: its origin may begin anywhere.
            (Some(kept), None) if is_other => (Place { next: 0, elsewhere: 0, ..kept }, 0),
            (Some(kept), Some(origin)) if origin.life == kept.life && !self.mirrors => {
                let next = kept.next.max(origin.next_seq.saturating_add(kept.elsewhere));
                (Place { next, ..kept }, kept.next)
            }
            (Some(kept), _) => (kept, kept.next),
            (None, Some(origin)) => (at(origin.next_seq, origin.life), origin.next_seq),
            (None, None) if known.is_some() => (at(new, 1), new),
            (None, None) => return None,
        };
        // In a topic with another number of partitions, sinks put an origin elsewhere.
        let is_alike = !is_other || known.is_some_and(|known| known.partitions.len() == topic.partitions);
        let seen = kept.filter(|_| is_alike).map_or(Vec::new(), |kept| kept.seen.clone());
        Some(Resumed { kept: Kept { place, time: kept.and_then(|kept| kept.time), seen }, from })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::ResumeOrigin;

    fn stream(next_seq: u64, life: u32) -> Resume {
        let origin = ResumeOrigin { name: "a/0".into(), next_seq, last_time: 0, life };
        Resume { origins: vec![origin], ..Resume::default() }
    }

    fn seen() -> Vec<Identity> {
        vec![Identity { uuid: *b"0123456789abcdef", epoch: 7, sequence: 12 }]
    }

    fn one(place: Place) -> Kept {
        let seen = if place.life == 1 { seen() } else { Vec::new() };
        Kept { place, time: Some(-5), seen }
    }

    fn kept(id: &str, next: u64, life: u32) -> State {
        let partitions = vec![one(Place { next, life, lag: 5, elsewhere: 3 })];
        State::from([("a".into(), TopicState { id: id.into(), partitions })])
    }

    #[test]
    fn a_state_reads_back() {
        let text = |state: &State| write(state.iter().map(|(name, topic)| (name.as_str(), topic.clone())));
        for elsewhere in [0, 3] {
            let mut state = kept("id", 12, 1);
            let partition = &mut state.get_mut("a").unwrap().partitions[0];
            partition.place.elsewhere = elsewhere;
            assert_eq!(read(&text(&state)).unwrap(), state);
        }
        let state = State::from([("gone".to_owned(), TopicState::default())]);
        assert_eq!(text(&state), r#"{"gone":{"id":"","partitions":[]}}"#);
        assert_eq!(read("").unwrap(), State::new());
        let of_before = read(r#"{"a": {"id": "id", "partitions": [[12, 2]]}}"#).unwrap();
        let place = Place { next: 12, life: 2, ..Place::default() };
        assert_eq!(of_before["a"].partitions, [Kept { place, ..Kept::default() }]);
        let wrong = ["x", "[]", r#"{"a": 1}"#, r#"{"a": {"id": "", "partitions": [[1, 0]]}}"#];
        let more = [r#"{"elsewhere": 2}"#, r#"{"seen": [["0f", 1, 1]]}"#, r#"{"seen": [1]}"#];
        let more = more.map(|more| format!(r#"{{"a": {{"id": "", "partitions": [[1, 1, 0, {more}]]}}}}"#));
        for wrong in wrong.into_iter().chain(more.iter().map(String::as_str)) {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    /// Where partition `partition` of topic `a` resumes: its place, and from where it is read.
    fn resumed(
        state: &State,
        resume: &Resume,
        id: &str,
        (partition, new): (usize, u64),
        mirrors: bool,
    ) -> Option<(Place, u64)> {
        let topic = Now { name: "a", id, partitions: 1 };
        let resumed = Known { state, resume, mirrors }.partition(&topic, partition, new);
        resumed.map(|resumed| (resumed.kept.place, resumed.from))
    }

    #[test]
    fn a_partition_resumes_behind_what_the_stream_has() {
        let nothing = Resume::default();
        let place = |next, from| Some((Place { next, life: 1, lag: 5, elsewhere: 3 }, from));
        let at = |state: &State, resume: &Resume, partition, new| resumed(state, resume, "id", (partition, new), false);
        assert_eq!(at(&State::new(), &nothing, 0, 0), None);
        assert_eq!(at(&kept("id", 12, 1), &nothing, 0, 0), place(12, 12));
        // The messages since are known to the stream, and those of sinks are read again. Three have other origins.
        assert_eq!(at(&kept("id", 12, 1), &stream(20, 1), 0, 0), place(23, 12));
        assert_eq!(at(&kept("id", 30, 1), &stream(20, 1), 0, 0), place(30, 30));
        // Without a state no lag is known.
        let new = |next| Some((Place { next, life: 1, ..Place::default() }, next));
        assert_eq!(at(&State::new(), &stream(20, 1), 0, 0), new(20));
        assert_eq!(at(&kept("id", 12, 1), &nothing, 1, 0), new(0));
        assert_eq!(at(&kept("id", 12, 1), &nothing, 1, 7), new(7));
        // Where messages have numbers of other origins, the state alone says where it stands.
        assert_eq!(resumed(&kept("id", 12, 1), &stream(20, 1), "id", (0, 0), true), place(12, 12));
    }

    #[test]
    fn a_topic_that_was_made_again_begins_another_life_once() {
        let nothing = Resume::default();
        let at = |state: &State, resume: &Resume, id: &str| resumed(state, resume, id, (0, 0), false);
        let place = |next, life| Some((Place { next, life, ..Place::default() }, 0));
        assert_eq!(at(&kept("old", 12, 1), &stream(12, 1), "new"), place(0, 2));
        // The process was killed before it kept the new life.
        assert_eq!(at(&kept("old", 12, 1), &stream(3, 2), "new"), place(3, 2));
        assert_eq!(resumed(&kept("old", 12, 1), &stream(3, 2), "new", (0, 0), true), place(0, 2));
        // It was kept, and nothing has come.
        let still = |next, from| Some((Place { next, life: 2, lag: 5, elsewhere: 3 }, from));
        assert_eq!(at(&kept("new", 3, 2), &stream(12, 1), "new"), still(3, 3));
        assert_eq!(at(&kept("new", 5, 2), &stream(9, 2), "new"), still(12, 5));
        // All that it brought has other origins.
        let first = Place { life: 1, lag: 5, ..Place::default() };
        assert_eq!(at(&kept("old", 12, 1), &nothing, "new"), Some((first, 0)));
        // Brokers that give no ids.
        let place = Place { next: 12, elsewhere: 3, ..first };
        assert_eq!(at(&kept("", 12, 1), &stream(9, 1), ""), Some((place, 12)));
    }

    #[test]
    fn what_came_of_sinks_is_known_in_the_next_topic_unless_origins_lie_elsewhere_in_it() {
        for (id, partitions, is_known) in [("id", 1, true), ("id", 2, true), ("new", 1, true), ("new", 2, false)] {
            let (state, resume) = (kept("id", 12, 1), stream(12, 1));
            let known = Known { state: &state, resume: &resume, mirrors: true };
            let resumed = known.partition(&Now { name: "a", id, partitions }, 0, 0).unwrap();
            assert_eq!(resumed.kept.seen, if is_known { seen() } else { Vec::new() }, "{id} {partitions}");
        }
    }
}
