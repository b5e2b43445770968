//! From the type of a message to the type of a dataset.

use wire::{Array, DType, Number, Numbers, Scalar};

/// Appends a number in another type. False, and nothing is appended, where the type cannot hold it: a fraction or a
/// number out of bounds for a whole type, a finite number that a `float32` makes infinite. Whole numbers beyond 2^53
/// and fractions are rounded in real types.
pub(super) fn put(out: &mut Vec<u8>, value: Scalar, to: DType) -> bool {
    let whole: Option<i128> = match value {
        Scalar::Int8(v) => Some(v.into()),
        Scalar::UInt8(v) => Some(v.into()),
        Scalar::Int16(v) => Some(v.into()),
        Scalar::UInt16(v) => Some(v.into()),
        Scalar::Int32(v) => Some(v.into()),
        Scalar::UInt32(v) => Some(v.into()),
        Scalar::Int64(v) => Some(v.into()),
        Scalar::UInt64(v) => Some(v.into()),
        Scalar::Float32(_) | Scalar::Float64(_) => {
            let real = value.to_f64();
            // Beyond 2^100 no whole type reaches; the cast of what is not a number is not asked.
            (real.fract() == 0.0 && real.abs() < 1e30).then_some(real as i128)
        }
    };
    macro_rules! fit {
        ($t:ty) => {
            match whole.and_then(|w| <$t>::try_from(w).ok()) {
                Some(v) => out.extend_from_slice(&v.to_le_bytes()),
                None => return false,
            }
        };
    }
    match to {
        DType::Int8 => fit!(i8),
        DType::UInt8 => fit!(u8),
        DType::Int16 => fit!(i16),
        DType::UInt16 => fit!(u16),
        DType::Int32 => fit!(i32),
        DType::UInt32 => fit!(u32),
        DType::Int64 => fit!(i64),
        DType::UInt64 => fit!(u64),
        DType::Float32 => {
            let (wide, narrow) = (value.to_f64(), value.to_f64() as f32);
            if wide.is_finite() && !narrow.is_finite() {
                return false;
            }
            out.extend_from_slice(&narrow.to_le_bytes());
        }
        DType::Float64 => out.extend_from_slice(&value.to_f64().to_le_bytes()),
        DType::Text => return false,
    }
    true
}

/// The bytes of an array in a type; made in `out` unless it is the array's own.
pub(super) fn all<'a>(out: &'a mut Vec<u8>, values: &Numbers<'a>, to: DType) -> Option<&'a [u8]> {
    if values.dtype() == to {
        return Some(values.bytes());
    }
    out.clear();
    if values.dtype() == DType::Text || !values.iter().all(|value| put(out, value, to)) {
        return None;
    }
    Some(out)
}

/// The same bytes as numbers of another type of their size.
pub(super) fn of_bytes<T: Number>(bytes: &[u8]) -> Array<'_, T> {
    Numbers::new(T::DTYPE, bytes).and_then(|numbers| numbers.typed()).unwrap_or_default()
}

/// Numbers without sign, of an older schema, as those with a sign that came after; `None` where one is too large for that.
pub(super) fn signed<U: Number, T: Number + TryFrom<U>>(numbers: Array<'_, U>) -> Option<Array<'_, T>> {
    // A number that fits has the same bytes with a sign as without.
    numbers.iter().all(|number| T::try_from(number).is_ok()).then(|| of_bytes(numbers.bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut out = Vec::new();
        for (value, to) in [
            (Scalar::Float64(0.5), DType::Int32),
            (Scalar::Float64(f64::NAN), DType::Int64),
            (Scalar::Float64(f64::INFINITY), DType::UInt64),
            (Scalar::Float64(1e300), DType::Int64),
            (Scalar::Float64(1e300), DType::Float32),
            (Scalar::Int8(-1), DType::UInt64),
            (Scalar::UInt64(u64::MAX), DType::Int64),
            (Scalar::Int32(128), DType::Int8),
        ] {
            assert!(!put(&mut out, value, to) && out.is_empty(), "{value:?} as {to:?}");
        }
        assert!(put(&mut out, Scalar::Float64(f64::NAN), DType::Float32));
        assert!(put(&mut out, Scalar::Float64(-3.0), DType::Int8));
        assert!(put(&mut out, Scalar::UInt64(u64::MAX), DType::UInt64));
        assert_eq!(out[4..], [0xfd, 255, 255, 255, 255, 255, 255, 255, 255]);
    }
}
