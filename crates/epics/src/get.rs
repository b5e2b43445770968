//! The value of a PV now, as JSON.

use crate::library::Client;
use crate::limits::{BATCH_UPDATES, GET_ELEMENTS_MAX, READ_NAP};
use crate::message::long_text;
use crate::plan::Subscription;
use crate::value::{Elements, Failed, Form, Kind, Update, What, text};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wire::{Numbers, Scalar};

/// The id of the next subscription.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Reads a PV: `{"value", "text", "time", "severity", "alarm", "units"}`, with `text` of a choice alone, and `time` in
/// ns since 1970 UTC or null.
pub(super) fn read(client: &mut Client, pv: &str, patience: Duration) -> Result<Value, (Failed, String)> {
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let how = Subscription { queue: 1, ..Subscription::default() };
    client.add(id, pv, how).map_err(|why| (Failed::Refused, why))?;
    let answer = first(client, pv, id, patience);
    client.remove(id);
    answer
}

/// The first value of a subscription.
fn first(client: &mut Client, pv: &str, id: u64, patience: Duration) -> Result<Value, (Failed, String)> {
    let (begin, mut is_connected) = (Instant::now(), false);
    loop {
        while client.poll(BATCH_UPDATES) > 0 {
            while let Some(update) = client.front() {
                let answer = match update.what {
                    _ if update.id != id => None,
                    What::Connected => {
                        is_connected = true;
                        None
                    }
                    What::Value => Some(value(pv, &update)),
                    What::Refused => Some(Err((Failed::Refused, text(update.text).into_owned()))),
                    _ => None,
                };
                client.pop();
                if let Some(answer) = answer {
                    return answer;
                }
            }
        }
        let left = patience.saturating_sub(begin.elapsed());
        if left.is_zero() {
            let why = if is_connected { "the PV is connected, and sends no value" } else { "no server has this PV" };
            return Err((Failed::NoServer, why.into()));
        }
        client.wait(left.min(READ_NAP));
    }
}

fn number(scalar: Scalar) -> Value {
    match scalar {
        Scalar::Int8(n) => n.into(),
        Scalar::Int16(n) => n.into(),
        Scalar::Int32(n) => n.into(),
        Scalar::Int64(n) => n.into(),
        Scalar::UInt8(n) => n.into(),
        Scalar::UInt16(n) => n.into(),
        Scalar::UInt32(n) => n.into(),
        Scalar::UInt64(n) => n.into(),
        // As the shortest text that says it; JSON has no NaN and no infinity.
        Scalar::Float32(n) if n.is_finite() => n.to_string().parse::<f64>().map_or(Value::Null, Value::from),
        Scalar::Float64(n) if n.is_finite() => n.into(),
        Scalar::Float32(n) => n.to_string().into(),
        Scalar::Float64(n) => n.to_string().into(),
    }
}

fn elements(of: &Elements<'_>) -> Option<Vec<Value>> {
    match of.kind {
        Kind::Text => Some(of.texts().map(|text| text.into_owned().into()).collect()),
        Kind::Number(dtype) => Some(Numbers::new(dtype, of.bytes)?.iter().map(number).collect()),
        Kind::None => None,
    }
}

fn value(pv: &str, update: &Update<'_>) -> Result<Value, (Failed, String)> {
    let refused = |why: &str| Err((Failed::Refused, why.to_owned()));
    let mut answer = json!({
        "time": update.time.filter(|time| *time != 0),
        "severity": update.severity,
        "alarm": text(update.alarm),
        "units": text(update.units),
    });
    if matches!(update.form, Form::Table | Form::Image | Form::Other) {
        return refused("it is an image, a table or another structure: a source stores those");
    }
    if update.value.count > GET_ELEMENTS_MAX {
        return refused("it has too many elements for an answer: a source stores them");
    }
    if let Some(bytes) = long_text(pv, update) {
        answer["value"] = text(bytes).into();
        return Ok(answer);
    }
    let Some(mut list) = elements(&update.value) else { return refused("its type is unknown") };
    answer["value"] = if update.form == Form::Array { list.into() } else { list.pop().unwrap_or(Value::Null) };
    if update.form == Form::Enum {
        answer["text"] = text(update.text).into();
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::DType;

    #[test]
    fn a_value_is_json_of_its_type() {
        let bytes: Vec<u8> = [1.5_f32, f32::NAN, 0.1].iter().flat_map(|n| n.to_ne_bytes()).collect();
        let value_of = |form, kind, count, bytes| {
            let value = Elements { kind, count, bytes };
            super::value("A", &Update { form, value, text: b"open", time: Some(0), ..Update::of(1, What::Value) })
        };
        let float = Kind::Number(DType::Float32);
        let array = value_of(Form::Array, float, 3, &bytes).unwrap();
        assert_eq!(array["value"], json!([1.5, "NaN", 0.1]));
        assert_eq!((&array["time"], array.get("text")), (&Value::Null, None));
        let index = 1_i32.to_ne_bytes();
        let choice = value_of(Form::Enum, Kind::Number(DType::Int32), 1, &index).unwrap();
        assert_eq!((&choice["value"], &choice["text"]), (&json!(1), &json!("open")));
        let mut word = 2_u32.to_ne_bytes().to_vec();
        word.extend_from_slice(b"ab");
        assert_eq!(value_of(Form::Scalar, Kind::Text, 1, &word).unwrap()["value"], json!("ab"));
        assert!(value_of(Form::Image, float, 3, &bytes).is_err());
        assert!(value_of(Form::Array, float, GET_ELEMENTS_MAX + 1, &bytes).is_err());
    }
}
