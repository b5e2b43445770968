//! Which messages of a log come again: an EPICS forwarder sends the last value of a channel again and again, with the time
//! that it had, so that who begins to listen late knows it.
//!
//! Constraint: an allocation for each origin, none for each message. From [`ORIGINS_MAX`] origins on further ones are not
//! looked after, and what they repeat is written.

use crate::limits::ORIGINS_MAX;
use serde_json::{Value, json};
use std::collections::HashMap;

/// Of each origin the time of its last message, ns since 1970 UTC.
#[derive(Default)]
pub(super) struct Repeats(HashMap<String, i64>);

impl Repeats {
    pub(super) fn has(&self, origin: &str, time: i64) -> bool {
        self.0.get(origin) == Some(&time)
    }

    pub(super) fn note(&mut self, origin: &str, time: i64) {
        if let Some(last) = self.0.get_mut(origin) {
            *last = time;
        } else if self.0.len() < ORIGINS_MAX {
            self.0.insert(origin.to_owned(), time);
        }
    }

    pub(super) fn state(&self) -> Value {
        json!(self.0)
    }

    /// A state of before there was this one says nothing.
    pub(super) fn take_up(&mut self, state: &Value) -> Option<()> {
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
        let mut repeats = Repeats::default();
        repeats.note("a", 5);
        repeats.note("b", 7);
        assert!(repeats.has("a", 5) && repeats.has("b", 7) && !repeats.has("a", 7) && !repeats.has("c", 5));
        repeats.note("a", 4);
        assert!(repeats.has("a", 4) && !repeats.has("a", 5), "only the last message counts, though it be older");
        let mut again = Repeats::default();
        again.take_up(&repeats.state()).unwrap();
        assert_eq!(again.0, repeats.0);
        assert!(again.take_up(&json!({"a": "x"})).is_none());
        again.take_up(&Value::Null).unwrap();
    }

    #[test]
    fn hostile_origins_do_not_grow_it_without_bound() {
        let mut repeats = Repeats::default();
        (0..2 * ORIGINS_MAX).for_each(|n| repeats.note(&n.to_string(), 1));
        assert_eq!(repeats.0.len(), ORIGINS_MAX);
        assert!(repeats.has("0", 1) && !repeats.has(&ORIGINS_MAX.to_string(), 1));
    }
}
