//! Panels that were drawn, by what they show: several pages look at the same, and a page looks at the same again.

use crate::answer::{Answer, Drawn};
use crate::limits::CACHE_BYTES_MAX;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// Panels by key; those that were used longest ago make room.
#[derive(Default)]
pub(super) struct Cache {
    panels: HashMap<String, (Drawn, u64)>,
    bytes: usize,
    uses: u64,
}

impl Cache {
    /// Adds the panel of a key to an answer, if it is there. Fails where the answer has no room for it.
    pub(super) fn show(&mut self, key: &str, answer: &mut Answer) -> Option<Map<String, Value>> {
        self.uses += 1;
        let (drawn, used) = self.panels.get_mut(key)?;
        *used = self.uses;
        answer.room(drawn.bytes(), 1).ok()?;
        Some(answer.again(drawn))
    }

    /// Keeps a panel.
    pub(super) fn keep(&mut self, key: String, drawn: Drawn) {
        if drawn.bytes() > CACHE_BYTES_MAX / 4 {
            return;
        }
        self.bytes += drawn.bytes();
        if let Some((old, _)) = self.panels.insert(key, (drawn, self.uses)) {
            self.bytes -= old.bytes();
        }
        while self.bytes > CACHE_BYTES_MAX {
            let oldest = self.panels.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone());
            let Some((old, _)) = oldest.and_then(|key| self.panels.remove(&key)) else { break };
            self.bytes -= old.bytes();
        }
    }
}
