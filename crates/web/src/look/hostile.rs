//! Requests that no page would send.

use super::tests::{all_views, all_views_and_auto};
use super::*;

const KEYS: [&str; 14] = [
    "width",
    "height",
    "region",
    "reduce",
    "window",
    "shape",
    "first_pixel",
    "origin",
    "sequence",
    "step",
    "known",
    "view",
    "stream",
    "colour",
];

/// Values that a key has or has not.
fn values() -> Vec<Value> {
    vec![
        json!(0),
        json!(1),
        json!(-1),
        json!(255),
        json!(4096),
        json!(i32::MAX),
        json!(u32::MAX),
        json!(i64::MIN),
        json!(i64::MAX),
        json!(u64::MAX),
        json!(1e300),
        json!(0.5),
        json!(null),
        json!(true),
        json!("max"),
        json!("T"),
        json!("x".repeat(300)),
        json!([0, 0, 1, 1]),
        json!([3, 2]),
        json!([u32::MAX, 0, 1, u32::MAX]),
        json!([[1], {}]),
        json!({"a": 1}),
    ]
}

#[test]
fn any_request_is_answered_or_refused() {
    let folder = all_views("hostile");
    let mut looker = Looker::new(&folder.0, 16);
    let mut dice = testkit::Dice::new(3);
    let mut below = |count: usize| dice.below(count as u64) as usize;
    let streams = ["detector", "devices", "monitor", "camera", "built", "none", "", "../x", "runs"];
    let (values, views) = (values(), all_views_and_auto());
    let (mut drawn, mut faults, mut refused) = (0, 0, 0);
    for _ in 0..6000 {
        let mut panel = json!({"stream": streams[below(streams.len())], "view": views[below(views.len())],
            "width": 30, "height": 30});
        for _ in 0..below(4) {
            panel[KEYS[below(KEYS.len())]] = values[below(values.len())].clone();
        }
        let at = [json!(null), json!(0), json!(i64::MAX), json!(1_772_366_401_000_000_000_i64), json!("now")];
        let mut bytes = json!({"at": at[below(at.len())], "panels": [panel]}).to_string().into_bytes();
        // Some are no JSON, or of another form.
        if below(5) == 0 {
            let at = below(bytes.len());
            bytes[at] = below(256) as u8;
        }
        let Ok(request) = Request::read(&bytes) else {
            refused += 1;
            continue;
        };
        let body = looker.look(&request).unwrap();
        let length = u32::from_le_bytes(body[4..8].try_into().unwrap()) as usize;
        let text: Value = serde_json::from_slice(&body[8..8 + length]).unwrap();
        match text["panels"][0].get("fault") {
            Some(fault) => {
                assert!(fault["what"].as_str().is_some_and(|what| !what.is_empty()), "{text}");
                faults += 1;
            }
            None => drawn += 1,
        }
    }
    assert!(drawn > 200 && faults > 500 && refused > 500, "{drawn} drawn, {faults} faults, {refused} refused");
}
