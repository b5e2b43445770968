//! Arrays and lists that borrow from a message.
//!
//! A message may start at any address, so its numbers may be unaligned: [`Array`] keeps bytes and hands out
//! a slice only where the address allows it. The same types serve for writing, made from a slice with `into()`.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

// FlatBuffers is little-endian, and arrays are handed out without conversion.
#[cfg(target_endian = "big")]
compile_error!("beamport-wire runs on little-endian machines only");

mod sealed {
    pub trait Sealed {}
}

/// Type of the elements of an array, in the order in which `f144`, `da00` and `ad00` number them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names say it")]
pub enum DType {
    Int8,
    UInt8,
    Int16,
    UInt16,
    Int32,
    UInt32,
    Int64,
    UInt64,
    Float32,
    Float64,
    /// UTF-8 text, one byte an element (`c_string` of da00 and ad00).
    Text,
}

impl DType {
    /// All, in order.
    pub const ALL: [DType; 11] = [
        DType::Int8,
        DType::UInt8,
        DType::Int16,
        DType::UInt16,
        DType::Int32,
        DType::UInt32,
        DType::Int64,
        DType::UInt64,
        DType::Float32,
        DType::Float64,
        DType::Text,
    ];

    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            DType::Int8 | DType::UInt8 | DType::Text => 1,
            DType::Int16 | DType::UInt16 => 2,
            DType::Int32 | DType::UInt32 | DType::Float32 => 4,
            DType::Int64 | DType::UInt64 | DType::Float64 => 8,
        }
    }

    /// The numpy name: `int8` ... `float64`; `text` for text.
    pub fn name(self) -> &'static str {
        match self {
            DType::Int8 => "int8",
            DType::UInt8 => "uint8",
            DType::Int16 => "int16",
            DType::UInt16 => "uint16",
            DType::Int32 => "int32",
            DType::UInt32 => "uint32",
            DType::Int64 => "int64",
            DType::UInt64 => "uint64",
            DType::Float32 => "float32",
            DType::Float64 => "float64",
            DType::Text => "text",
        }
    }
}

/// A number that a message can hold: the ten of [`DType`] without text.
pub trait Number: bytemuck::Pod + PartialEq + fmt::Debug + sealed::Sealed {
    /// Its type.
    const DTYPE: DType;
    /// As a double; 64-bit integers beyond 2^53 are rounded.
    fn to_f64(self) -> f64;
    /// As a scalar with its type.
    fn scalar(self) -> Scalar;
    /// From a whole number; `None` where it does not fit. A real type rounds.
    fn from_whole(value: i128) -> Option<Self>;
    /// From a real number; `None` for the whole types.
    fn from_real(value: f64) -> Option<Self>;
}

/// One number with its type.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Scalar {
    Int8(i8),
    UInt8(u8),
    Int16(i16),
    UInt16(u16),
    Int32(i32),
    UInt32(u32),
    Int64(i64),
    UInt64(u64),
    Float32(f32),
    Float64(f64),
}

macro_rules! numbers {
    ($($t:ty => $d:ident $from_whole:expr, $from_real:expr;)*) => {
        $(
            impl sealed::Sealed for $t {}
            impl Number for $t {
                const DTYPE: DType = DType::$d;
                #[inline]
                fn to_f64(self) -> f64 { self as f64 }
                #[inline]
                fn scalar(self) -> Scalar { Scalar::$d(self) }
                fn from_whole(value: i128) -> Option<Self> { $from_whole(value) }
                fn from_real(value: f64) -> Option<Self> { $from_real(value) }
            }
            impl From<$t> for Scalar {
                fn from(value: $t) -> Scalar { Scalar::$d(value) }
            }
        )*
        impl Scalar {
            /// Its type.
            pub fn dtype(self) -> DType {
                match self { $(Scalar::$d(_) => DType::$d,)* }
            }
            /// A whole number as this type; `None` where it does not fit. A real type rounds.
            pub fn of_whole(dtype: DType, value: i128) -> Option<Scalar> {
                match dtype {
                    $(DType::$d => <$t>::from_whole(value).map(Scalar::$d),)*
                    DType::Text => None,
                }
            }
            /// A real number as this type; `None` for the whole types.
            pub fn of_real(dtype: DType, value: f64) -> Option<Scalar> {
                match dtype {
                    $(DType::$d => <$t>::from_real(value).map(Scalar::$d),)*
                    DType::Text => None,
                }
            }
            /// Its bytes as they stand in a message, little-endian: the first `dtype().size()` of these.
            pub fn bytes(self) -> [u8; 8] {
                let mut bytes = [0; 8];
                match self {
                    $(Scalar::$d(value) => bytes[..size_of::<$t>()].copy_from_slice(&value.to_le_bytes()),)*
                }
                bytes
            }
            /// As a double; 64-bit integers beyond 2^53 are rounded.
            pub fn to_f64(self) -> f64 {
                match self { $(Scalar::$d(value) => value as f64,)* }
            }
        }
        impl<'a> Numbers<'a> {
            /// Element `at`, or `None` past the end; text gives its bytes.
            pub fn get(&self, at: usize) -> Option<Scalar> {
                let size = self.dtype.size();
                let bytes = self.bytes.get(at.checked_mul(size)?..)?.get(..size)?;
                Some(match self.dtype {
                    $(DType::$d => Scalar::$d(bytemuck::pod_read_unaligned(bytes)),)*
                    DType::Text => Scalar::UInt8(bytes[0]),
                })
            }
        }
    };
}
numbers! {
    i8 => Int8 |value| <i8>::try_from(value).ok(), |_| None;
    u8 => UInt8 |value| <u8>::try_from(value).ok(), |_| None;
    i16 => Int16 |value| <i16>::try_from(value).ok(), |_| None;
    u16 => UInt16 |value| <u16>::try_from(value).ok(), |_| None;
    i32 => Int32 |value| <i32>::try_from(value).ok(), |_| None;
    u32 => UInt32 |value| <u32>::try_from(value).ok(), |_| None;
    i64 => Int64 |value| <i64>::try_from(value).ok(), |_| None;
    u64 => UInt64 |value| <u64>::try_from(value).ok(), |_| None;
    f32 => Float32 |value| Some(value as f32), |value| Some(value as f32);
    f64 => Float64 |value| Some(value as f64), Some;
}

/// A borrowed array of numbers, perhaps unaligned.
#[derive(Clone, Copy)]
pub struct Array<'a, T> {
    /// A whole number of elements; little-endian.
    bytes: &'a [u8],
    element: PhantomData<T>,
}

impl<'a, T: Number> Array<'a, T> {
    /// Over bytes that hold a whole number of elements; trailing bytes of a broken element are left out.
    pub(crate) fn over(bytes: &'a [u8]) -> Self {
        let whole = bytes.len() - bytes.len() % size_of::<T>();
        Array { bytes: &bytes[..whole], element: PhantomData }
    }

    /// Number of elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.bytes.len() / size_of::<T>()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes, little-endian.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// As a slice, where the bytes are aligned for `T`. They are if the message starts on 8 bytes and was
    /// written by us or by a FlatBuffers library.
    #[inline]
    pub fn as_slice(&self) -> Option<&'a [T]> {
        bytemuck::try_cast_slice(self.bytes).ok()
    }

    /// Element `at`, or `None` past the end.
    #[inline]
    pub fn get(&self, at: usize) -> Option<T> {
        let from = at.checked_mul(size_of::<T>())?;
        self.bytes.get(from..)?.get(..size_of::<T>()).map(bytemuck::pod_read_unaligned)
    }

    /// The first element.
    #[inline]
    pub fn first(&self) -> Option<T> {
        self.get(0)
    }

    /// The last element.
    #[inline]
    pub fn last(&self) -> Option<T> {
        self.get(self.len().checked_sub(1)?)
    }

    /// All elements, by value.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = T> + DoubleEndedIterator + Clone + use<'a, T> {
        self.bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned)
    }

    /// A copy.
    pub fn to_vec(&self) -> Vec<T> {
        match self.as_slice() {
            Some(slice) => slice.to_vec(),
            None => self.iter().collect(),
        }
    }
}

impl Array<'_, i64> {
    /// Number of elements of a shape; `None` if a length is negative or the number too large.
    pub(crate) fn product(&self) -> Option<usize> {
        elements(self.iter().map(|length| usize::try_from(length).ok()))
    }
}

impl<T: Number> Default for Array<'_, T> {
    fn default() -> Self {
        Array { bytes: &[], element: PhantomData }
    }
}

impl<T: Number> PartialEq for Array<'_, T> {
    /// By value, as numbers compare (so NaN differs from itself).
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl<T: Number> fmt::Debug for Array<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, T: Number> From<&'a [T]> for Array<'a, T> {
    #[inline]
    fn from(slice: &'a [T]) -> Self {
        Array { bytes: bytemuck::cast_slice(slice), element: PhantomData }
    }
}

impl<'a, T: Number, const N: usize> From<&'a [T; N]> for Array<'a, T> {
    #[inline]
    fn from(slice: &'a [T; N]) -> Self {
        Array::from(slice.as_slice())
    }
}

impl<'a, T: Number> From<&'a Vec<T>> for Array<'a, T> {
    #[inline]
    fn from(slice: &'a Vec<T>) -> Self {
        Array::from(slice.as_slice())
    }
}

/// A borrowed array whose element type is known only when it is read.
#[derive(Clone, Copy, PartialEq)]
pub struct Numbers<'a> {
    dtype: DType,
    /// A whole number of elements; little-endian.
    bytes: &'a [u8],
}

impl<'a> Numbers<'a> {
    /// Over bytes of a type; `None` where they are not a whole number of elements, or text is not UTF-8.
    pub fn new(dtype: DType, bytes: &'a [u8]) -> Option<Self> {
        if !bytes.len().is_multiple_of(dtype.size()) {
            return None;
        }
        if dtype == DType::Text && std::str::from_utf8(bytes).is_err() {
            return None;
        }
        Some(Numbers { dtype, bytes })
    }

    /// Of a type, without elements.
    pub fn empty(dtype: DType) -> Self {
        Numbers { dtype, bytes: &[] }
    }

    /// Over text.
    pub fn text(text: &'a str) -> Self {
        Numbers { dtype: DType::Text, bytes: text.as_bytes() }
    }

    /// Type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Number of elements (of bytes, for text).
    pub fn len(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes, little-endian.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// As an array of `T`, if that is the type.
    pub fn typed<T: Number>(&self) -> Option<Array<'a, T>> {
        (T::DTYPE == self.dtype).then(|| Array::over(self.bytes))
    }

    /// As text, if that is the type.
    pub fn as_text(&self) -> Option<&'a str> {
        if self.dtype != DType::Text {
            return None;
        }
        std::str::from_utf8(self.bytes).ok()
    }

    /// All elements, each with its type; for display and conversion, not for speed.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Scalar> + use<'a> {
        let all = *self;
        // `get` is `Some` for every index below `len`.
        (0..all.len()).map(move |at| all.get(at).unwrap_or(Scalar::UInt8(0)))
    }
}

impl fmt::Debug for Numbers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.dtype.name())?;
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, T: Number> From<Array<'a, T>> for Numbers<'a> {
    fn from(array: Array<'a, T>) -> Self {
        Numbers { dtype: T::DTYPE, bytes: array.bytes }
    }
}

impl<'a, T: Number> From<&'a [T]> for Numbers<'a> {
    fn from(slice: &'a [T]) -> Self {
        Array::from(slice).into()
    }
}

impl<'a, T: Number, const N: usize> From<&'a [T; N]> for Numbers<'a> {
    fn from(slice: &'a [T; N]) -> Self {
        Array::from(slice).into()
    }
}

impl<'a, T: Number> From<&'a Vec<T>> for Numbers<'a> {
    fn from(slice: &'a Vec<T>) -> Self {
        Array::from(slice).into()
    }
}

/// A list of tables or strings: owned when read, borrowed when written, a slice in both cases.
///
/// Not `Cow`, because that ties the lifetimes of the list and of its entries together.
#[derive(Debug, Clone)]
pub enum List<'a, T> {
    /// The caller's.
    Borrowed(&'a [T]),
    /// Made by the reader.
    Owned(Vec<T>),
}

impl<T> Deref for List<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match self {
            List::Borrowed(slice) => slice,
            List::Owned(vec) => vec,
        }
    }
}

impl<T: PartialEq> PartialEq for List<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T> Default for List<'_, T> {
    fn default() -> Self {
        List::Borrowed(&[])
    }
}

impl<'a, T> From<&'a [T]> for List<'a, T> {
    fn from(slice: &'a [T]) -> Self {
        List::Borrowed(slice)
    }
}

impl<'a, T, const N: usize> From<&'a [T; N]> for List<'a, T> {
    fn from(slice: &'a [T; N]) -> Self {
        List::Borrowed(slice)
    }
}

impl<'a, T> From<&'a Vec<T>> for List<'a, T> {
    fn from(slice: &'a Vec<T>) -> Self {
        List::Borrowed(slice)
    }
}

impl<T> From<Vec<T>> for List<'_, T> {
    fn from(vec: Vec<T>) -> Self {
        List::Owned(vec)
    }
}

impl<'l, T> IntoIterator for &'l List<'_, T> {
    type Item = &'l T;
    type IntoIter = std::slice::Iter<'l, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
/// Elements of an array of these lengths. None where one is none, or those above 0 are together more than an address
/// space has, in elements of 8 bytes: beside a length of 0 as well, since numpy has no such array.
pub(crate) fn elements(lengths: impl Iterator<Item = Option<usize>>) -> Option<usize> {
    let (mut count, mut bytes) = (1, 8usize);
    for length in lengths {
        let length = length?;
        bytes = bytes.checked_mul(length.max(1)).filter(|bytes| isize::try_from(*bytes).is_ok())?;
        count *= length;
    }
    Some(count)
}
