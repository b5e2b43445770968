//! The value of a field of any message.

use crate::*;

/// The value of a field.
#[derive(Debug, Clone, PartialEq)]
pub enum Field<'a> {
    /// An optional field that is absent.
    None,
    /// Yes or no.
    Bool(bool),
    /// A signed number; the name of an enum value is `Text`.
    Int(i64),
    /// An unsigned number.
    UInt(u64),
    /// A real number.
    Float(f64),
    /// A string.
    Text(&'a str),
    /// A uuid.
    Uuid([u8; 16]),
    /// Numbers that lie in the message; [`range_in`] says where.
    Array {
        /// Type of the elements.
        dtype: DType,
        /// The elements, little-endian, perhaps unaligned.
        bytes: &'a [u8],
        /// Lengths of the dimensions, slowest first; their product is the number of elements.
        shape: Vec<usize>,
    },
    /// Strings.
    Texts(Vec<&'a str>),
    /// Tables, each with its fields.
    List(Vec<Fields<'a>>),
    /// One table.
    Table(Fields<'a>),
}

/// Names and values of a table, in the order of the schema.
pub type Fields<'a> = Vec<(&'static str, Field<'a>)>;

impl<'a> From<Numbers<'a>> for Field<'a> {
    fn from(numbers: Numbers<'a>) -> Self {
        let shape = vec![numbers.len()];
        Field::Array { dtype: numbers.dtype(), bytes: numbers.bytes(), shape }
    }
}

impl<'a, T: Number> From<Array<'a, T>> for Field<'a> {
    fn from(array: Array<'a, T>) -> Self {
        Numbers::from(array).into()
    }
}

impl<'a> From<f144::Value<'a>> for Field<'a> {
    fn from(value: f144::Value<'a>) -> Self {
        match value {
            f144::Value::Scalar(scalar) => scalar.into(),
            f144::Value::Array(numbers) => numbers.into(),
        }
    }
}

impl From<Scalar> for Field<'_> {
    fn from(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Int8(value) => Field::Int(value.into()),
            Scalar::UInt8(value) => Field::UInt(value.into()),
            Scalar::Int16(value) => Field::Int(value.into()),
            Scalar::UInt16(value) => Field::UInt(value.into()),
            Scalar::Int32(value) => Field::Int(value.into()),
            Scalar::UInt32(value) => Field::UInt(value.into()),
            Scalar::Int64(value) => Field::Int(value),
            Scalar::UInt64(value) => Field::UInt(value),
            Scalar::Float32(value) => Field::Float(value.into()),
            Scalar::Float64(value) => Field::Float(value),
        }
    }
}
