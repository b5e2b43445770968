//! JSON as templates need it: read in one pass, with lists of numbers packed on the way.
//!
//! The largest structures have every pixel written out: hundreds of MB of text that are a few dozen arrays. So a list of
//! numbers under `values`, `value` or `data` is never a list of objects: it becomes 8 bytes a number while it is read, and
//! those bytes become the dataset's ([`Numbers::typed`]). The text itself is not kept.
//!
//! Failure: text that is not valid JSON, that is too long or that would take more memory than [`PARSED_BYTES_MAX`] is
//! an error of the reader; nesting ends where serde_json ends it (128 levels).

use crate::limits::{PARSED_BYTES_MAX, TEMPLATE_BYTES_MAX};
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use sha2::{Digest, Sha256};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::{self, BufReader, Read};

/// Keys below which lists of numbers are packed.
const PACKED: [&str; 3] = ["values", "value", "data"];
/// Whole numbers up to here are the same as f64.
const EXACT: u64 = 1 << 53;
/// Read at a time, bytes.
const BLOCK_BYTES: usize = 256 << 10;

/// A JSON value.
#[derive(Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(Number),
    Text(Box<str>),
    List(Vec<Value>),
    /// A list, perhaps of lists of one shape, of nothing but numbers. Taken out by the check, so that it is not there twice.
    Numbers(RefCell<Numbers>),
    Object(Object),
}

/// Members of an object, by name.
#[derive(Debug, Default)]
pub(super) struct Object {
    members: Vec<(Box<str>, Value)>,
    /// Names that stand twice.
    pub(super) twice: Box<[Box<str>]>,
}

/// Numbers of one shape, in C order.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    pub(super) shape: Vec<u64>,
    /// Whether they are f64; i64 otherwise.
    pub(super) real: bool,
    /// 8 bytes each, little-endian.
    bytes: Vec<u8>,
}

impl Value {
    pub(super) fn as_object(&self) -> Option<&Object> {
        if let Value::Object(object) = self { Some(object) } else { None }
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        if let Value::Text(text) = self { Some(text) } else { None }
    }

    pub(super) fn as_list(&self) -> Option<&[Value]> {
        if let Value::List(list) = self { Some(list) } else { None }
    }

    pub(super) fn as_number(&self) -> Option<&Number> {
        if let Value::Number(number) = self { Some(number) } else { None }
    }

    pub(super) fn as_u64(&self) -> Option<u64> {
        self.as_number()?.as_u64()
    }

    /// The same as others know it.
    pub(super) fn plain(&self) -> serde_json::Value {
        match self {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Number(number) => serde_json::Value::Number(number.clone()),
            Value::Text(text) => (**text).into(),
            Value::List(list) => list.iter().map(Value::plain).collect(),
            Value::Numbers(numbers) => {
                let Numbers { shape, real, bytes } = &*numbers.borrow();
                let numbers = Numbers { shape: shape.clone(), real: *real, bytes: bytes.clone() };
                numbers.unpacked().iter().map(Value::plain).collect()
            }
            Value::Object(object) => object
                .members()
                .map(|(name, value)| (name.to_owned(), value.plain()))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        }
    }

    pub(super) fn as_f64(&self) -> Option<f64> {
        self.as_number()?.as_f64()
    }
}

impl Object {
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        let at = self.members.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        Some(&self.members[at].1)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Members in the order of their names.
    pub(super) fn members(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.members.iter().map(|(name, value)| (&**name, value))
    }
}

/// The value under the first of two keys that is there, with that key.
pub(super) fn first_of<'v, 'k>(map: &'v Object, keys: [&'k str; 2]) -> Option<(&'k str, &'v Value)> {
    keys.into_iter().find_map(|key| map.get(key).map(|value| (key, value)))
}

impl Numbers {
    fn at(&self, index: usize) -> Number {
        let bytes = self.bytes.as_chunks().0[index];
        if self.real {
            // JSON has no others than finite ones.
            Number::from_f64(f64::from_le_bytes(bytes)).unwrap_or_else(|| 0.into())
        } else {
            i64::from_le_bytes(bytes).into()
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Number> {
        (0..self.bytes.len() / 8).map(|at| self.at(at))
    }

    /// The 8 bytes of each number, where they are of this kind already.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The bytes in another type of at most 8 bytes, in their old place; `put` appends those of one number or says why not.
    pub(super) fn typed<E>(mut self, put: impl Fn(&Number, &mut Vec<u8>) -> Result<(), E>) -> Result<Vec<u8>, E> {
        let (mut done, mut one) = (0, Vec::with_capacity(8));
        for at in 0..self.bytes.len() / 8 {
            one.clear();
            put(&self.at(at), &mut one)?;
            self.bytes[done..][..one.len()].copy_from_slice(&one);
            done += one.len();
        }
        self.bytes.truncate(done);
        self.bytes.shrink_to_fit();
        Ok(self.bytes)
    }

    /// Takes one more number; false where it would not stay what it is.
    fn push(&mut self, number: &Number) -> bool {
        let bytes = match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) if !self.real => whole.to_le_bytes(),
            (Some(whole), Some(real)) if whole.unsigned_abs() <= EXACT => real.to_le_bytes(),
            (None, Some(real)) if number.is_f64() && self.make_real() => real.to_le_bytes(),
            _ => return false,
        };
        self.bytes.extend_from_slice(&bytes);
        true
    }

    /// Takes the numbers of a list that stands beside those before it; false where one would not stay what it is.
    fn append(&mut self, row: &mut Numbers) -> bool {
        let alike = self.real == row.real || if self.real { row.make_real() } else { self.make_real() };
        if alike {
            self.bytes.extend_from_slice(&row.bytes);
        }
        alike
    }

    /// Whole numbers as f64; false, and nothing changed, where one would be another.
    fn make_real(&mut self) -> bool {
        if !self.real {
            let (all, _) = self.bytes.as_chunks_mut::<8>();
            if all.iter().any(|bytes| i64::from_le_bytes(*bytes).unsigned_abs() > EXACT) {
                return false;
            }
            all.iter_mut().for_each(|bytes| *bytes = (i64::from_le_bytes(*bytes) as f64).to_le_bytes());
            self.real = true;
        }
        true
    }

    /// The list again, of values.
    fn unpacked(self) -> Vec<Value> {
        let (rows, inner) = (self.shape.first().copied().unwrap_or(0), self.shape.get(1..).unwrap_or_default());
        if inner.is_empty() {
            return self.iter().map(Value::Number).collect();
        }
        let each = self.bytes.len() / (rows.max(1) as usize);
        let one = |bytes: &[u8]| Numbers { shape: inner.to_vec(), real: self.real, bytes: bytes.to_vec() };
        self.bytes.chunks(each.max(1)).map(|bytes| Value::Numbers(one(bytes).into())).collect()
    }
}

/// Why a text could not be read.
pub(super) enum Unread {
    /// It has more bytes than it may.
    TooLong,
    /// An error of the system.
    Io(io::Error),
    /// Invalid JSON, or JSON that takes too much memory.
    Json(serde_json::Error),
}

/// Reads a whole text: the value, and the SHA-256 of the text.
pub(super) fn read(from: impl Read) -> Result<(Value, String), Unread> {
    read_within(from, TEMPLATE_BYTES_MAX, PARSED_BYTES_MAX)
}

/// A text of so many bytes that takes so many.
fn read_within(from: impl Read, text_max: u64, parsed_max: u64) -> Result<(Value, String), Unread> {
    let mut text = Text { from, hash: Sha256::new(), left: Some(text_max) };
    let budget = Cell::new(parsed_max);
    let mut reader = serde_json::Deserializer::from_reader(BufReader::with_capacity(BLOCK_BYTES, &mut text));
    let value = Seed { budget: &budget, packs: false }.deserialize(&mut reader);
    let value = value.and_then(|value| reader.end().map(|()| value));
    drop(reader);
    match value {
        Ok(value) => Ok((value, text.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())),
        Err(_) if text.left.is_none() => Err(Unread::TooLong),
        Err(error) if error.is_io() => Err(Unread::Io(error.into())),
        Err(error) => Err(Unread::Json(error)),
    }
}

/// A text on its way through: hashed, and not endless.
struct Text<R> {
    from: R,
    hash: Sha256,
    /// Bytes that may still come; none once it was too long.
    left: Option<u64>,
}

impl<R: Read> Read for Text<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let bytes = self.from.read(out)?;
        self.left = self.left.and_then(|left| left.checked_sub(bytes as u64));
        if self.left.is_none() {
            return Err(io::Error::other("too long"));
        }
        self.hash.update(&out[..bytes]);
        Ok(bytes)
    }
}

/// How a value is read: what all of them may still take, and whether lists of numbers are packed.
#[derive(Clone, Copy)]
struct Seed<'b> {
    budget: &'b Cell<u64>,
    packs: bool,
}

impl Seed<'_> {
    fn spend<E: Error>(self, bytes: usize) -> Result<(), E> {
        match self.budget.get().checked_sub(bytes as u64) {
            Some(rest) => {
                self.budget.set(rest);
                Ok(())
            }
            None => Err(E::custom("it takes too much memory")),
        }
    }

    fn number<E: Error>(self, number: Number) -> Result<Value, E> {
        Ok(Value::Number(number))
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.number(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.number(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map_or_else(|| Err(E::custom("a number that is not finite")), |n| self.number(n))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.spend(value.len())?;
        Ok(Value::Text(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut list: Vec<Value> = Vec::new();
        let mut packed: Option<Numbers> = None;
        let mut rows = 0;
        while let Some(value) = from.next_element_seed(self)? {
            if self.packs && list.is_empty() {
                if pack(&mut packed, rows, &value) {
                    // Those of a row have been paid.
                    self.spend(if matches!(value, Value::Number(_)) { 8 } else { 0 })?;
                    rows += 1;
                    continue;
                }
                if let Some(mut numbers) = packed.take() {
                    numbers.shape.insert(0, rows);
                    self.spend(rows as usize * size_of::<Value>())?;
                    list = numbers.unpacked();
                }
            }
            self.spend(size_of::<Value>())?;
            list.push(value);
        }
        Ok(match packed {
            Some(mut numbers) => {
                numbers.shape.insert(0, rows);
                numbers.bytes.shrink_to_fit();
                Value::Numbers(numbers.into())
            }
            None => Value::List(list),
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut object = Object::default();
        while let Some(name) = from.next_key::<Box<str>>()? {
            self.spend(name.len() + size_of::<(Box<str>, Value)>())?;
            let packs = PACKED.contains(&&*name);
            let value = from.next_value_seed(Seed { packs, ..self })?;
            object.members.push((name, value));
        }
        // Of two members of a name the last holds: sorting keeps their order, and the first of a name stays.
        object.members.reverse();
        object.members.sort_by(|(a, _), (b, _)| a.cmp(b));
        let twice = object.members.windows(2).filter(|two| two[0].0 == two[1].0).map(|two| two[0].0.clone());
        object.twice = twice.collect();
        object.members.dedup_by(|later, first| later.0 == first.0);
        object.members.shrink_to_fit();
        Ok(Value::Object(object))
    }
}

/// Adds an element to a list of numbers, the first of which says what the others are; false where it is not of their kind.
fn pack(into: &mut Option<Numbers>, rows: u64, value: &Value) -> bool {
    if rows == 0 {
        *into = match value {
            Value::Number(_) => Some(Numbers::default()),
            Value::Numbers(first) => Some(Numbers { real: first.borrow().real, ..Numbers::default() }),
            _ => None,
        };
        if let (Some(into), Value::Numbers(first)) = (&mut *into, value) {
            into.shape.clone_from(&first.borrow().shape);
        }
    }
    match (into, value) {
        (Some(into), Value::Number(number)) => into.shape.is_empty() && into.push(number),
        (Some(into), Value::Numbers(row)) => into.shape == row.borrow().shape && into.append(&mut row.borrow_mut()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Value {
        read(text.as_bytes()).map(|(value, _)| value).unwrap_or_else(|_| panic!("{text}"))
    }

    /// Shape, whether real, and the numbers as text; nothing where they were not packed.
    fn packed(list: &str) -> Option<(Vec<u64>, bool, String)> {
        let value = of(&format!("{{\"values\": {list}}}"));
        let Some(Value::Numbers(numbers)) = value.as_object()?.get("values") else { return None };
        let numbers = numbers.take();
        let all: Vec<String> = numbers.iter().map(|n| n.to_string()).collect();
        Some((numbers.shape.clone(), numbers.real, all.join(" ")))
    }

    #[test]
    fn lists_of_numbers_are_packed_and_stay_what_they_are() {
        let is = |shape: &[u64], real, all: &str| Some((shape.to_vec(), real, all.to_owned()));
        assert_eq!(packed("[1, -2, 3]"), is(&[3], false, "1 -2 3"));
        assert_eq!(packed("[1, 2.5, 3]"), is(&[3], true, "1.0 2.5 3.0"));
        assert_eq!(packed("[[1, 2], [3, 4], [5, 6]]"), is(&[3, 2], false, "1 2 3 4 5 6"));
        assert_eq!(packed("[[1, 2], [0.5, 4]]"), is(&[2, 2], true, "1.0 2.0 0.5 4.0"));
        assert_eq!(packed("[[0.5, 2], [1, 4]]"), is(&[2, 2], true, "0.5 2.0 1.0 4.0"));
        assert_eq!(packed("[[[1]], [[2]]]"), is(&[2, 1, 1], false, "1 2"));
        // The nearest f64, which is what the program that wrote it had.
        assert_eq!(
            packed("[0.1, 1.7976931348623157e308, 5e-324]"),
            is(&[3], true, "0.1 1.7976931348623157e+308 5e-324")
        );
        for list in [
            "[]",
            "[[]]",
            "[1, \"a\"]",
            "[1, [2]]",
            "[[1], 2]",
            "[[1], [1, 2]]",
            "[[[1]], [2]]",
            "[18446744073709551615]",
            "[9007199254740993, 0.5]",
            "[0.5, 9007199254740993]",
            "[[9007199254740993], [0.5]]",
            "[1, null]",
        ] {
            assert_eq!(packed(list), None, "{list}");
            let value = of(&format!("{{\"values\": {list}}}"));
            let shown = value.as_object().and_then(|o| o.get("values")).map(shown).unwrap_or_default();
            assert_eq!(shown, list, "unpacked again");
        }
    }

    fn shown(value: &Value) -> String {
        match value {
            Value::Null => "null".into(),
            Value::Bool(is) => is.to_string(),
            Value::Number(number) => number.to_string(),
            Value::Text(text) => format!("{text:?}"),
            Value::List(list) => format!("[{}]", list.iter().map(shown).collect::<Vec<_>>().join(", ")),
            Value::Numbers(numbers) => {
                let again = Numbers {
                    shape: numbers.borrow().shape.clone(),
                    real: numbers.borrow().real,
                    bytes: numbers.borrow().bytes.clone(),
                };
                shown(&Value::List(again.unpacked()))
            }
            Value::Object(object) => format!("{:?}", object.members),
        }
    }

    #[test]
    fn a_text_that_takes_too_much_memory_or_never_ends_is_an_error() {
        struct Again(&'static [u8], usize);
        impl Read for Again {
            fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
                out.iter_mut().for_each(|byte| {
                    *byte = self.0[self.1 % self.0.len()];
                    self.1 += 1;
                });
                Ok(out.len())
            }
        }
        const MIB: u64 = 1 << 20;
        // Three letters each, and many times that in memory.
        let endless = std::io::Read::chain(&b"["[..], Again(b"{},", 0));
        let Err(Unread::Json(error)) = read_within(endless, 8 * MIB, MIB) else { panic!() };
        assert!(error.to_string().contains("memory"), "{error}");
        let packed = std::io::Read::chain(&b"{\"values\": ["[..], Again(b"1,", 0));
        assert!(matches!(read_within(packed, 8 * MIB, MIB), Err(Unread::Json(_))));
        assert!(matches!(read_within(Again(b" ", 0), MIB, MIB), Err(Unread::TooLong)));
    }

    #[test]
    fn the_digest_is_that_of_the_whole_text() {
        let digest = |text: &str| read(text.as_bytes()).map(|(_, digest)| digest).ok();
        // sha256sum
        assert_eq!(digest("{}").as_deref(), Some("44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"));
        assert_ne!(digest("{} "), digest("{}"));
    }
}
