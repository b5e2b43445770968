//! Beats: the signs of life that hosts post each second, as people and programs see them.

use serde_json::{Value, json};

/// The state of a host, of a beat that is its newest.
pub(crate) fn state(is_up: bool, beat: &Value) -> &'static str {
    match (is_up, beat["ended"] == true) {
        (true, _) => "up",
        (false, true) => "ended",
        (false, false) => "away",
    }
}

/// The mirrors of a host: of each its stream, the host of that, and by how many messages the mirror is behind; null
/// where that host has not said how far it is. `newest`: the newest beat of a host.
pub(crate) fn mirrors<'a>(beat: &Value, newest: impl Fn(&str) -> Option<&'a Value>) -> Vec<Value> {
    let of_mirror = |(stream, mirror): (&String, &Value)| {
        let near = mirror["host"].as_str().and_then(&newest).map(|near| &near["streams"][stream]);
        let there = mirror["next"].as_u64().unwrap_or(0);
        let lag = near.and_then(|near| near["next"].as_u64()).map(|next| next.saturating_sub(there));
        json!({"stream": stream, "of": mirror["host"], "lag": lag})
    };
    beat["mirrors"].as_object().into_iter().flatten().map(of_mirror).collect()
}
