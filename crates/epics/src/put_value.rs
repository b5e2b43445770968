//! A value to be written, as the library has it.

use crate::value::{Elements, Kind};
use serde_json::{Value, json};
use settings::Refused;
use wire::{DType, f144};

/// A value to be written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PutValue {
    kind: Kind,
    count: usize,
    bytes: Vec<u8>,
    pub(crate) is_array: bool,
}

/// Adds a text as the library takes it.
fn add_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&(text.len() as u32).to_ne_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

impl PutValue {
    pub(crate) fn elements(&self) -> Elements<'_> {
        Elements { kind: self.kind, count: self.count, bytes: &self.bytes }
    }

    /// A value of a message. Its bytes are in the order of this machine, which is little-endian.
    pub(crate) fn of_f144(value: &f144::Value<'_>) -> Self {
        match value {
            f144::Value::Array(numbers) => Self {
                kind: Kind::Number(numbers.dtype()),
                count: numbers.len(),
                bytes: numbers.bytes().to_vec(),
                is_array: true,
            },
            f144::Value::Scalar(scalar) => {
                let bytes = scalar.bytes()[..scalar.dtype().size()].to_vec();
                Self { kind: Kind::Number(scalar.dtype()), count: 1, bytes, is_array: false }
            }
        }
    }

    /// A value of a request: a number, a text, true or false, or a list of them.
    pub(crate) fn of_json(value: &Value) -> Result<Self, Refused> {
        match value {
            Value::Array(list) => Self::of_list(list, true),
            one => Self::of_list(std::slice::from_ref(one), false),
        }
    }

    fn of_list(list: &[Value], is_array: bool) -> Result<Self, Refused> {
        let mut bytes = Vec::new();
        let number = |value: &Value| match value {
            Value::Bool(value) => Some(json!(i32::from(*value))),
            Value::Number(_) => Some(value.clone()),
            _ => None,
        };
        let kind = if !list.is_empty() && list.iter().all(Value::is_string) {
            list.iter().filter_map(Value::as_str).for_each(|text| add_text(&mut bytes, text));
            Kind::Text
        } else if let Some(numbers) = list.iter().map(number).collect::<Option<Vec<_>>>() {
            if let Some(numbers) = numbers.iter().map(Value::as_i64).collect::<Option<Vec<_>>>()
                && !numbers.is_empty()
            {
                numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_ne_bytes()));
                Kind::Number(DType::Int64)
            } else if let Some(numbers) = numbers.iter().map(Value::as_u64).collect::<Option<Vec<_>>>()
                && !numbers.is_empty()
            {
                numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_ne_bytes()));
                Kind::Number(DType::UInt64)
            } else {
                let numbers = numbers.iter().filter_map(Value::as_f64);
                numbers.for_each(|number| bytes.extend_from_slice(&number.to_ne_bytes()));
                Kind::Number(DType::Float64)
            }
        } else {
            return Err(Refused::new(
                "the value is not a number, a text, or a list of numbers or of texts",
                "write `5`, `open` or `[1, 2.5]`",
            ));
        };
        Ok(Self { kind, count: list.len(), bytes, is_array })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_the_type_of_its_json() {
        for (value, kind, count, is_array) in [
            (json!(5), Kind::Number(DType::Int64), 1, false),
            (json!(u64::MAX), Kind::Number(DType::UInt64), 1, false),
            (json!(2.5), Kind::Number(DType::Float64), 1, false),
            (json!(true), Kind::Number(DType::Int64), 1, false),
            (json!("open"), Kind::Text, 1, false),
            (json!([1, 2]), Kind::Number(DType::Int64), 2, true),
            (json!([1, 2.5]), Kind::Number(DType::Float64), 2, true),
            (json!([1, u64::MAX]), Kind::Number(DType::UInt64), 2, true),
            (json!([-1, u64::MAX]), Kind::Number(DType::Float64), 2, true),
            (json!(["a", "bc"]), Kind::Text, 2, true),
            (json!([]), Kind::Number(DType::Float64), 0, true),
        ] {
            let put = PutValue::of_json(&value).unwrap();
            assert_eq!((put.kind, put.count, put.is_array), (kind, count, is_array), "{value}");
        }
        let texts = PutValue::of_json(&json!(["a", "bc"])).unwrap();
        assert_eq!(texts.elements().texts().collect::<Vec<_>>(), ["a", "bc"]);
        for wrong in [json!(null), json!({}), json!([1, "a"]), json!([[1]]), json!([null])] {
            assert!(PutValue::of_json(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_value_of_a_message_keeps_its_type() {
        let put = PutValue::of_f144(&f144::Value::from(-2_i16));
        assert_eq!((put.kind, put.bytes.as_slice()), (Kind::Number(DType::Int16), &(-2_i16).to_ne_bytes()[..]));
        let put = PutValue::of_f144(&f144::Value::from(&[1.5_f32, 2.5][..]));
        assert_eq!((put.kind, put.count, put.bytes.len()), (Kind::Number(DType::Float32), 2, 8));
    }
}
