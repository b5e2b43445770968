//! The answer to a look: JSON and arrays in one body.
//!
//! ```text
//! 0  "BPL1"
//! 4  u32 bytes of the JSON
//! 8  the JSON, then zeros up to a multiple of 8
//!    the arrays, each at a multiple of 8 from the first one; all numbers little endian
//! ```

use crate::limits::ANSWER_BYTES_MAX;
use flow::Fault;
use serde_json::{Map, Value, json};

const MAGIC: &[u8; 4] = b"BPL1";

/// An answer that is being made.
#[derive(Default)]
pub(crate) struct Answer {
    panels: Vec<Value>,
    arrays: Vec<u8>,
}

/// A panel that was drawn, to be shown again.
pub(crate) struct Drawn {
    panel: Map<String, Value>,
    arrays: Vec<u8>,
    /// Where its arrays began.
    mark: usize,
    /// Letters of the panel as JSON.
    text: usize,
}

impl Drawn {
    /// Bytes that it takes, about: a value of JSON is an object in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.arrays.len() + 8 * self.text
    }
}

/// An array in an answer.
pub(crate) trait Element: Copy {
    /// As in numpy.
    const NAME: &'static str;
    /// Appends the bytes of such.
    fn put(values: &[Self], out: &mut Vec<u8>);
}

macro_rules! elements {
    ($($t:ty => $name:literal),*) => { $(
        impl Element for $t {
            const NAME: &'static str = $name;
            fn put(values: &[Self], out: &mut Vec<u8>) {
                let start = out.len();
                out.resize(start + size_of_val(values), 0);
                let (places, _) = out[start..].as_chunks_mut();
                places.iter_mut().zip(values).for_each(|(place, value)| *place = value.to_le_bytes());
            }
        }
    )* };
}
elements! { f32 => "float32", f64 => "float64" }

impl Answer {
    /// Reserves room for an array of these elements, if the answer may be so large.
    pub(crate) fn room(&self, elements: usize, size: usize) -> Result<(), Fault> {
        let bytes = elements.saturating_mul(size);
        if self.arrays.len().saturating_add(bytes) > ANSWER_BYTES_MAX {
            let cause = format!("the arrays of an answer have at most {} MiB", ANSWER_BYTES_MAX >> 20);
            return Err(Fault::new("the panel is too large", cause).hint("ask for fewer pixels, or fewer panels"));
        }
        Ok(())
    }

    /// Appends an array; what the JSON says of it.
    pub(crate) fn array<E: Element>(&mut self, shape: &[usize], values: &[E]) -> Value {
        let offset = self.align();
        E::put(values, &mut self.arrays);
        json!({"dtype": E::NAME, "shape": shape, "offset": offset})
    }

    /// The same for bytes of another type, given in parts.
    pub(crate) fn bytes<'a>(&mut self, dtype: &str, shape: &[usize], parts: impl Iterator<Item = &'a [u8]>) -> Value {
        let offset = self.align();
        parts.for_each(|part| self.arrays.extend_from_slice(part));
        json!({"dtype": dtype, "shape": shape, "offset": offset})
    }

    /// Where the arrays of the next panel begin.
    pub(crate) fn mark(&mut self) -> usize {
        self.align()
    }

    /// The drawing since a mark.
    pub(crate) fn drawn(&self, mark: usize, panel: &Map<String, Value>) -> Drawn {
        let text = panel.iter().map(|(key, value)| key.len() + value.to_string().len()).sum();
        Drawn { panel: panel.clone(), arrays: self.arrays[mark..].to_vec(), mark, text }
    }

    /// Appends arrays that were drawn before; what the JSON says of them.
    pub(crate) fn again(&mut self, drawn: &Drawn) -> Map<String, Value> {
        let start = self.align();
        self.arrays.extend_from_slice(&drawn.arrays);
        let mut panel = drawn.panel.clone();
        let arrays = panel.get_mut("arrays").and_then(Value::as_object_mut);
        for array in arrays.into_iter().flat_map(Map::values_mut) {
            if let Some(offset) = array["offset"].as_u64() {
                array["offset"] = (offset - drawn.mark as u64 + start as u64).into();
            }
        }
        panel
    }

    fn align(&mut self) -> usize {
        self.arrays.resize(self.arrays.len().next_multiple_of(8), 0);
        self.arrays.len()
    }

    /// Appends a panel.
    pub(crate) fn panel(&mut self, panel: Map<String, Value>) {
        self.panels.push(panel.into());
    }

    /// The whole body. `time`: ns since 1970 UTC.
    pub(crate) fn body(self, time: i64) -> Vec<u8> {
        let text = json!({"time": time, "panels": self.panels}).to_string();
        let mut body = Vec::with_capacity(16 + text.len() + self.arrays.len());
        body.extend_from_slice(MAGIC);
        body.extend_from_slice(&(text.len() as u32).to_le_bytes());
        body.extend_from_slice(text.as_bytes());
        body.resize(body.len().next_multiple_of(8), 0);
        body.extend_from_slice(&self.arrays);
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_its_arrays_at_multiples_of_8() {
        let mut answer = Answer::default();
        let first = answer.array(&[3], &[1.5_f32, 2.0, f32::NAN]);
        let second = answer.bytes("uint8", &[1, 2], [&[7_u8][..], &[8]].into_iter());
        assert_eq!(first, json!({"dtype": "float32", "shape": [3], "offset": 0}));
        assert_eq!(second["offset"], 16);
        answer.panel([("arrays".to_owned(), json!({"values": first}))].into_iter().collect());
        let body = answer.body(7);
        assert_eq!(&body[..4], b"BPL1");
        let length = u32::from_le_bytes(body[4..8].try_into().unwrap()) as usize;
        let text: Value = serde_json::from_slice(&body[8..8 + length]).unwrap();
        assert_eq!(text["time"], 7);
        let arrays = (8 + length).next_multiple_of(8);
        assert_eq!(body[arrays..arrays + 4], 1.5_f32.to_le_bytes());
        assert_eq!(&body[arrays + 16..], [7, 8]);
    }
}
