//! `f144`: one value of a process variable, a number or an array of numbers.

use crate::flat::{Message, Out, Table, Writer};
use crate::{DType, Error, Number, Numbers, Scalar};

/// The schema id.
pub const ID: [u8; 4] = *b"f144";

/// A value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// One number.
    Scalar(Scalar),
    /// An array of numbers; never text.
    Array(Numbers<'a>),
}

impl<T: Number> From<T> for Value<'_> {
    fn from(value: T) -> Self {
        Value::Scalar(value.scalar())
    }
}

impl<'a, T: Number> From<&'a [T]> for Value<'a> {
    fn from(value: &'a [T]) -> Self {
        Value::Array(value.into())
    }
}

impl Value<'_> {
    /// Type of the number or of the elements.
    pub fn dtype(&self) -> DType {
        match self {
            Value::Scalar(scalar) => scalar.dtype(),
            Value::Array(numbers) => numbers.dtype(),
        }
    }
}

/// One value with its time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct F144<'a> {
    /// The process variable.
    pub source_name: &'a str,
    /// When it had the value, ns since 1970 UTC.
    pub timestamp: i64,
    /// The value.
    pub value: Value<'a>,
}

/// The union tags: 1..=10 are the numbers in the order of [`DType`], 11..=20 arrays of them.
const ARRAY_TAG: u8 = 11;

/// Verifies and reads a message.
pub fn read(bytes: &[u8]) -> Result<F144<'_>, Error> {
    let message = Message::open(bytes, ID)?;
    let table = message.root()?;
    let boxed = table.table(3, "value")?.ok_or(Error::Missing { field: "value" })?;
    Ok(F144 {
        source_name: table.text_required(0, "source_name")?,
        timestamp: table.number(1, 0, "timestamp")?,
        value: value_in(table.number(2, 0u8, "value_type")?, &boxed)?,
    })
}

/// The value in a box of the union.
pub(crate) fn value_in<'a>(tag: u8, boxed: &Table<'_, 'a>) -> Result<Value<'a>, Error> {
    match tag {
        1..=10 => scalar_in(boxed, DType::ALL[usize::from(tag) - 1]).map(Value::Scalar),
        11..=20 => {
            let dtype = DType::ALL[usize::from(tag - ARRAY_TAG)];
            Ok(Value::Array(boxed.numbers(0, dtype, "value")?.unwrap_or(Numbers::empty(dtype))))
        }
        _ => Err(Error::UnknownKind { field: "value_type", value: tag.into() }),
    }
}

/// Writes a message into `out`, replacing what was there.
pub fn write(out: &mut Vec<u8>, parts: &F144<'_>) -> Result<(), Error> {
    write_to(out, parts)
}

/// The same, to wherever it goes.
pub(crate) fn write_to<O: Out>(out: &mut O, parts: &F144<'_>) -> Result<(), Error> {
    let mut writer = Writer::begin(out, ID);
    let [source_name, timestamp, value_type, value] = writer.root([4, 8, 1, 4]);
    writer.put(timestamp, parts.timestamp);
    put_value(parts.value, &mut writer, value_type, value);
    writer.text(source_name, parts.source_name);
    writer.finish()
}

/// Writes a value of the union: its tag at `tag`, its box for the slot at `slot`.
pub(crate) fn put_value<O: Out>(value: Value<'_>, writer: &mut Writer<'_, O>, tag: usize, slot: usize) {
    match value {
        Value::Scalar(scalar) => {
            writer.put(tag, scalar.dtype() as u8 + 1);
            let [place] = writer.table(slot, [scalar.dtype().size() as u8]);
            match scalar {
                Scalar::Int8(number) => writer.put(place, number),
                Scalar::UInt8(number) => writer.put(place, number),
                Scalar::Int16(number) => writer.put(place, number),
                Scalar::UInt16(number) => writer.put(place, number),
                Scalar::Int32(number) => writer.put(place, number),
                Scalar::UInt32(number) => writer.put(place, number),
                Scalar::Int64(number) => writer.put(place, number),
                Scalar::UInt64(number) => writer.put(place, number),
                Scalar::Float32(number) => writer.put(place, number),
                Scalar::Float64(number) => writer.put(place, number),
            }
        }
        Value::Array(numbers) => {
            if numbers.dtype() == DType::Text {
                writer.refuse(Error::Inconsistent { what: "an f144 or f142 cannot hold an array of type text" });
            }
            // Text is refused above, and its tag with it.
            writer.put(tag, numbers.dtype() as u8 + ARRAY_TAG);
            let [place] = writer.table(slot, [4]);
            writer.bytes(place, numbers.len(), numbers.bytes());
        }
    }
}

/// The number in a one-field box of the type.
fn scalar_in(boxed: &Table<'_, '_>, dtype: DType) -> Result<Scalar, Error> {
    fn one<T: Number>(boxed: &Table<'_, '_>, zero: T) -> Result<Scalar, Error> {
        boxed.number(0, zero, "value").map(T::scalar)
    }
    match dtype {
        DType::Int8 => one(boxed, 0i8),
        DType::UInt8 => one(boxed, 0u8),
        DType::Int16 => one(boxed, 0i16),
        DType::UInt16 => one(boxed, 0u16),
        DType::Int32 => one(boxed, 0i32),
        DType::UInt32 => one(boxed, 0u32),
        DType::Int64 => one(boxed, 0i64),
        DType::UInt64 => one(boxed, 0u64),
        DType::Float32 => one(boxed, 0f32),
        DType::Float64 => one(boxed, 0f64),
        DType::Text => Err(Error::UnknownKind { field: "value_type", value: 0 }),
    }
}
