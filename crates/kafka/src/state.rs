//! Where a source stands, as it is kept beside its stream: of each topic its id, and of each partition the next offset,
//! the life of its origin and its lag in ns (0 in a state of an older program, which kept none).
//!
//! `{"loki_detector": {"id": "Nx3...", "partitions": [[1200, 1, 0], [0, 1, 71000000]]}}`.
//! A life begins when a topic of the name is made again: its offsets begin at 0 again, in the origin
//! `TOPIC/PARTITION#2`.

use crate::limits::LAG_MAX;
use flow::{Fault, Resume};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Where a partition stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The offset of the next message.
    pub(crate) next: u64,
    /// The life of its origin, from 1.
    pub(crate) life: u32,
    /// The most by which a message of it came later than its source time, ns.
    pub(crate) lag: i64,
}

/// Where a topic stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TopicState {
    /// Its id; empty where the brokers give none.
    pub(crate) id: String,
    /// Its partitions, by number.
    pub(crate) partitions: Vec<Place>,
}

/// Topics by name.
pub(crate) type State = BTreeMap<String, TopicState>;

/// The text of a state.
pub(crate) fn write<'a>(topics: impl Iterator<Item = (&'a str, &'a str, Vec<Place>)>) -> String {
    let row = |(name, id, places): (&str, &str, Vec<Place>)| {
        let places: Vec<Value> = places.iter().map(|place| json!([place.next, place.life, place.lag])).collect();
        (name.to_owned(), json!({"id": id, "partitions": places}))
    };
    Value::Object(topics.map(row).collect::<Map<_, _>>()).to_string()
}

/// Reads the text of a state; that of a new stream is empty.
pub(crate) fn read(text: &str) -> Result<State, Fault> {
    if text.is_empty() {
        return Ok(State::new());
    }
    let topic = |value: &Value| {
        let place = |pair: &Value| {
            let life = u32::try_from(pair[1].as_u64()?).ok().filter(|n| *n > 0)?;
            let lag = pair[2].as_i64().unwrap_or(0).clamp(0, LAG_MAX);
            Some(Place { next: pair[0].as_u64()?, life, lag })
        };
        let partitions = value["partitions"].as_array()?.iter().map(place).collect::<Option<_>>()?;
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

/// Where a partition of a topic resumes, from what was kept and what the stream has; `None` where neither knows it.
/// `id`: of the topic now; `new`: where a partition begins that the topic did not have.
pub(crate) fn resumed(
    state: &State,
    resume: &Resume,
    topic: &str,
    id: &str,
    partition: usize,
    new: u64,
) -> Option<Place> {
    let known = state.get(topic);
    let at = |next, life| Place { next, life, lag: 0 };
    let name = origin(topic, partition, 1);
    let origin = resume.origins.iter().find(|origin| origin.name == name);
    let kept = known.and_then(|known| known.partitions.get(partition).copied());
    let is_other = known.is_some_and(|known| !known.id.is_empty() && !id.is_empty() && known.id != id);
    match (kept, origin) {
        // Messages of a later life came behind the newest state.
        (Some(kept), Some(origin)) if origin.life > kept.life => Some(at(origin.next_seq, origin.life)),
        (Some(kept), Some(_)) if is_other => Some(at(0, kept.life + 1)),
        // No message of it came: its origin may begin anywhere.
        (Some(kept), None) if is_other => Some(Place { next: 0, ..kept }),
        (Some(kept), Some(origin)) if origin.life == kept.life => {
            Some(Place { next: kept.next.max(origin.next_seq), ..kept })
        }
        (Some(kept), _) => Some(kept),
        (None, Some(origin)) => Some(at(origin.next_seq, origin.life)),
        (None, None) if known.is_some() => Some(at(new, 1)),
        (None, None) => None,
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

    fn kept(id: &str, next: u64, life: u32) -> State {
        let topic = TopicState { id: id.into(), partitions: vec![Place { next, life, lag: 5 }] };
        State::from([("a".into(), topic)])
    }

    #[test]
    fn a_state_reads_back() {
        let state = kept("id", 12, 2);
        let rows = state.iter().map(|(name, topic)| (name.as_str(), topic.id.as_str(), topic.partitions.clone()));
        assert_eq!(read(&write(rows)).unwrap(), state);
        assert_eq!(read("").unwrap(), State::new());
        for wrong in ["x", "[]", r#"{"a": 1}"#, r#"{"a": {"id": "", "partitions": [[1, 0]]}}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_partition_resumes_behind_what_the_stream_has() {
        let nothing = Resume::default();
        let place = |next, life| Some(Place { next, life, lag: 5 });
        assert_eq!(resumed(&State::new(), &nothing, "a", "id", 0, 0), None);
        assert_eq!(resumed(&kept("id", 12, 1), &nothing, "a", "id", 0, 0), place(12, 1));
        assert_eq!(resumed(&kept("id", 12, 1), &stream(20, 1), "a", "id", 0, 0), place(20, 1));
        assert_eq!(resumed(&kept("id", 30, 1), &stream(20, 1), "a", "id", 0, 0), place(30, 1));
        // Without a state no lag is known.
        let new = |next| Some(Place { next, life: 1, lag: 0 });
        assert_eq!(resumed(&State::new(), &stream(20, 1), "a", "id", 0, 0), new(20));
        assert_eq!(resumed(&kept("id", 12, 1), &nothing, "a", "id", 1, 0), new(0));
        assert_eq!(resumed(&kept("id", 12, 1), &nothing, "a", "id", 1, 7), new(7));
    }

    #[test]
    fn a_topic_that_was_made_again_begins_another_life_once() {
        let place = |next, life| Some(Place { next, life, lag: if life == 1 { 5 } else { 0 } });
        assert_eq!(resumed(&kept("old", 12, 1), &stream(12, 1), "a", "new", 0, 0), place(0, 2));
        // The process was killed before it kept the new life.
        assert_eq!(resumed(&kept("old", 12, 1), &stream(3, 2), "a", "new", 0, 0), place(3, 2));
        // It was kept, and nothing has come.
        let still = |next| Some(Place { next, life: 2, lag: 5 });
        assert_eq!(resumed(&kept("new", 0, 2), &stream(12, 1), "a", "new", 0, 0), still(0));
        assert_eq!(resumed(&kept("new", 5, 2), &stream(9, 2), "a", "new", 0, 0), still(9));
        // Brokers that give no ids.
        assert_eq!(resumed(&kept("", 12, 1), &stream(12, 1), "a", "", 0, 0), place(12, 1));
    }
}
