//! Fixed values: what a template writes out, or how to make it.

use wire::DType;

/// Type of a dataset or attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataType {
    /// A number; never `DType::Text`.
    Number(DType),
    /// UTF-8 of variable length.
    Text,
}

/// Types with the words that name them; the first word of each is ours, the others are ESS's.
pub(crate) const TYPES: [(&str, DataType); 17] = [
    ("int8", DataType::Number(DType::Int8)),
    ("int16", DataType::Number(DType::Int16)),
    ("int32", DataType::Number(DType::Int32)),
    ("int64", DataType::Number(DType::Int64)),
    ("uint8", DataType::Number(DType::UInt8)),
    ("uint16", DataType::Number(DType::UInt16)),
    ("uint32", DataType::Number(DType::UInt32)),
    ("uint64", DataType::Number(DType::UInt64)),
    ("float", DataType::Number(DType::Float32)),
    ("double", DataType::Number(DType::Float64)),
    ("string", DataType::Text),
    ("float32", DataType::Number(DType::Float32)),
    ("float64", DataType::Number(DType::Float64)),
    ("short", DataType::Number(DType::Int16)),
    ("int", DataType::Number(DType::Int32)),
    ("long", DataType::Number(DType::Int64)),
    ("c_string", DataType::Text),
];

/// Values with their type and shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Data {
    /// Type in the file.
    pub dtype: DataType,
    /// Lengths of the dimensions; empty for one value.
    pub shape: Vec<u64>,
    /// The values in C order.
    pub values: Values,
}

/// Values of one type.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Numbers as little-endian bytes of the type.
    Bytes(Vec<u8>),
    /// Texts.
    Texts(Vec<String>),
    /// `first`, `first + step`, ...
    Range {
        /// The first.
        first: i128,
        /// From one to the next.
        step: i128,
    },
    /// Evenly spaced from `first` to `last`, both included.
    Linspace {
        /// The first.
        first: f64,
        /// The last.
        last: f64,
    },
}

impl Data {
    /// One text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { dtype: DataType::Text, shape: Vec::new(), values: Values::Texts(vec![text.into()]) }
    }

    /// A list of texts.
    pub fn texts(texts: Vec<String>) -> Self {
        Self { dtype: DataType::Text, shape: vec![texts.len() as u64], values: Values::Texts(texts) }
    }

    /// One number.
    pub fn number(dtype: DType, bytes: &[u8]) -> Self {
        Self { dtype: DataType::Number(dtype), shape: Vec::new(), values: Values::Bytes(bytes.to_vec()) }
    }

    /// A list of numbers.
    pub fn numbers(dtype: DType, bytes: Vec<u8>) -> Self {
        Self {
            dtype: DataType::Number(dtype),
            shape: vec![(bytes.len() / dtype.size()) as u64],
            values: Values::Bytes(bytes),
        }
    }

    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match &self.values {
            Values::Texts(texts) if self.shape.is_empty() => texts.first().map(String::as_str),
            _ => None,
        }
    }

    /// Number of values. Shapes were checked, so the product is small.
    pub fn count(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Numbers as bytes, made where they are a rule; `None` for texts.
    pub fn bytes(&self) -> Option<std::borrow::Cow<'_, [u8]>> {
        let DataType::Number(dtype) = self.dtype else {
            return None;
        };
        let count = self.count();
        let mut out = Vec::new();
        match &self.values {
            Values::Bytes(bytes) => return Some(bytes.into()),
            Values::Texts(_) => return None,
            Values::Range { first, step } => {
                out.reserve_exact(count as usize * dtype.size());
                for at in 0..count {
                    // Fits: the check computed the last value.
                    put_whole(&mut out, dtype, first + step * i128::from(at));
                }
            }
            Values::Linspace { first, last } => {
                out.reserve_exact(count as usize * dtype.size());
                let step = (last - first) / (count.max(2) - 1) as f64;
                for at in 0..count {
                    let value = if at + 1 == count { *last } else { first + step * at as f64 };
                    put_real(&mut out, dtype, value);
                }
            }
        }
        Some(out.into())
    }
}

/// Least and greatest whole number of a type; `None` for reals, which take any.
pub(crate) fn bounds(dtype: DType) -> Option<(i128, i128)> {
    Some(match dtype {
        DType::Int8 => (i8::MIN.into(), i8::MAX.into()),
        DType::UInt8 | DType::Text => (0, u8::MAX.into()),
        DType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        DType::UInt16 => (0, u16::MAX.into()),
        DType::Int32 => (i32::MIN.into(), i32::MAX.into()),
        DType::UInt32 => (0, u32::MAX.into()),
        DType::Int64 => (i64::MIN.into(), i64::MAX.into()),
        DType::UInt64 => (0, u64::MAX.into()),
        DType::Float32 | DType::Float64 => return None,
    })
}

/// Appends a whole number in a type that it fits.
pub(crate) fn put_whole(out: &mut Vec<u8>, dtype: DType, value: i128) {
    match dtype {
        DType::Float32 => out.extend_from_slice(&(value as f32).to_le_bytes()),
        DType::Float64 => out.extend_from_slice(&(value as f64).to_le_bytes()),
        // Two's complement: the low bytes of a number that fits are the number.
        _ => out.extend_from_slice(&value.to_le_bytes()[..dtype.size()]),
    }
}

/// Appends a real number; for an integer type only one that is integral and fits (the caller's check).
pub(crate) fn put_real(out: &mut Vec<u8>, dtype: DType, value: f64) {
    match dtype {
        DType::Float32 => out.extend_from_slice(&(value as f32).to_le_bytes()),
        DType::Float64 => out.extend_from_slice(&value.to_le_bytes()),
        _ => put_whole(out, dtype, value as i128),
    }
}
