//! Repeated messages of a log: an EPICS forwarder sends the last value of a channel again and again, with its old time,
//! so that a late listener gets it.
//!
//! Constraint: an allocation for each origin, none for each message. Origins beyond the first [`ORIGINS_MAX`] are not
//! tracked, and their repetitions are written.

use crate::limits::ORIGINS_MAX;
use serde_json::{Value, json};
use std::collections::HashMap;

/// Of each origin the time of its last message, ns since 1970 UTC.
pub(super) enum Repeats {
    /// Of a module with a `source`: no other origin reaches it, and nothing is searched for a message.
    One(String, Option<i64>),
    /// Of any other module.
    Any(HashMap<String, i64>),
}

impl Repeats {
    pub(super) fn of(source: Option<&String>) -> Self {
        source.map_or_else(|| Self::Any(HashMap::new()), |source| Self::One(source.clone(), None))
    }

    pub(super) fn has(&self, origin: &str, time: i64) -> bool {
        match self {
            Self::One(_, last) => *last == Some(time),
            Self::Any(all) => all.get(origin) == Some(&time),
        }
    }

    pub(super) fn note(&mut self, origin: &str, time: i64) {
        match self {
            Self::One(_, last) => *last = Some(time),
            Self::Any(all) => {
                if let Some(last) = all.get_mut(origin) {
                    *last = time;
                } else if all.len() < ORIGINS_MAX {
                    all.insert(origin.to_owned(), time);
                }
            }
        }
    }

    pub(super) fn state(&self) -> Value {
        match self {
            Self::One(source, Some(last)) => json!({ source: last }),
            Self::One(..) => json!({}),
            Self::Any(all) => json!(all),
        }
    }

    /// A state of before there was this one says nothing.
    pub(super) fn resume(&mut self, state: &Value) -> Option<()> {
        for (origin, time) in state.as_object().into_iter().flatten() {
            self.note(origin, time.as_i64()?);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_origin_repeats_itself_only() {
        let mut repeats = Repeats::of(None);
        repeats.note("a", 5);
        repeats.note("b", 7);
        assert!(repeats.has("a", 5) && repeats.has("b", 7) && !repeats.has("a", 7) && !repeats.has("c", 5));
        repeats.note("a", 4);
        assert!(repeats.has("a", 4) && !repeats.has("a", 5), "only the last message counts, though it be older");
        let mut again = Repeats::of(None);
        again.resume(&repeats.state()).unwrap();
        assert_eq!(again.state(), repeats.state());
        assert!(again.resume(&json!({"a": "x"})).is_none());
        again.resume(&Value::Null).unwrap();
    }

    #[test]
    fn a_module_with_a_source_keeps_the_state_that_others_keep() {
        let (mut one, mut any) = (Repeats::of(Some(&"a".to_owned())), Repeats::of(None));
        assert_eq!(one.state(), any.state());
        for repeats in [&mut one, &mut any] {
            repeats.note("a", 5);
            assert!(repeats.has("a", 5) && !repeats.has("a", 6));
        }
        assert_eq!(one.state(), any.state());
        let mut again = Repeats::of(Some(&"a".to_owned()));
        again.resume(&any.state()).unwrap();
        assert!(again.has("a", 5));
    }

    #[test]
    fn hostile_origins_do_not_grow_it_without_bound() {
        let mut repeats = Repeats::of(None);
        (0..2 * ORIGINS_MAX).for_each(|n| repeats.note(&n.to_string(), 1));
        assert_eq!(repeats.state().as_object().unwrap().len(), ORIGINS_MAX);
        assert!(repeats.has("0", 1) && !repeats.has(&ORIGINS_MAX.to_string(), 1));
    }
}
