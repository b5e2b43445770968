//! The header of a numpy file, `.npy`: type and shape of the one array in it.
//!
//! ```text
//! 0  "\x93NUMPY"
//! 6  u8 major, u8 minor: 1.0, 2.0, 3.0
//! 8  u16 (from 2.0 on u32) bytes of the text
//!    text: {'descr': '<u2', 'fortran_order': False, 'shape': (100, 512, 512), }
//!    the numbers
//! ```
//!
//! Failure: whatever the bytes, an array that frames can be taken from, or a fault that says why not.

use flow::Fault;
use wire::DType;

const MAGIC: &[u8] = b"\x93NUMPY";

/// Bytes of the longest header that is looked at: the text of one array has some 80 bytes.
pub(crate) const HEADER_BYTES_MAX: usize = 12 + 4096;

/// An array in a file.
#[derive(Debug, PartialEq)]
pub(crate) struct Npy {
    pub(crate) dtype: DType,
    /// Lengths of its dimensions, slowest first.
    pub(crate) shape: Vec<u64>,
    /// First byte of its numbers.
    pub(crate) at: u64,
}

/// Reads the header at the beginning of a file; none where it is no numpy file.
pub(crate) fn read(bytes: &[u8]) -> Result<Option<Npy>, Fault> {
    if !bytes.starts_with(MAGIC) {
        return Ok(None);
    }
    let broken = || Fault::new("", "it is not a valid numpy file");
    let (text_at, length) = match (bytes.get(6), bytes.get(8..)) {
        (Some(1), Some([a, b, ..])) => (10, usize::from(u16::from_le_bytes([*a, *b]))),
        (Some(2 | 3), Some([a, b, c, d, ..])) => (12, u32::from_le_bytes([*a, *b, *c, *d]) as usize),
        _ => return Err(broken()),
    };
    let text = bytes.get(text_at..).and_then(|rest| rest.get(..length)).ok_or_else(broken)?;
    let text = std::str::from_utf8(text).map_err(|_| broken())?;
    let descr = value(text, "descr").ok_or_else(broken)?;
    let dtype = dtype(descr).ok_or_else(|| {
        let cause = format!("its numbers are {}", descr.chars().take(40).collect::<String>());
        Fault::new("", cause).hint("use little-endian int8 to uint64, float32 or float64: `a.astype(\"<u2\")`")
    })?;
    if value(text, "fortran_order").ok_or_else(broken)?.starts_with("True") {
        let fault = Fault::new("", "it is in Fortran order");
        return Err(fault.hint("save it again with `numpy.ascontiguousarray`"));
    }
    let list = value(text, "shape").and_then(|rest| rest.strip_prefix('(')).ok_or_else(broken)?;
    let (list, _) = list.split_once(')').ok_or_else(broken)?;
    let lengths = list.split(',').map(str::trim).filter(|word| !word.is_empty());
    let shape = lengths.map(str::parse).collect::<Result<Vec<u64>, _>>().map_err(|_| broken())?;
    Ok(Some(Npy { dtype, shape, at: (text_at + length) as u64 }))
}

/// The value behind a key.
fn value<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(&format!("'{key}'"))?;
    Some(rest.trim_start().strip_prefix(':')?.trim_start())
}

fn dtype(descr: &str) -> Option<DType> {
    let word = descr.strip_prefix('\'')?.split_once('\'')?.0;
    Some(match word {
        "|i1" | "<i1" => DType::Int8,
        "|u1" | "<u1" => DType::UInt8,
        "<i2" => DType::Int16,
        "<u2" => DType::UInt16,
        "<i4" => DType::Int32,
        "<u4" => DType::UInt32,
        "<i8" => DType::Int64,
        "<u8" => DType::UInt64,
        "<f4" => DType::Float32,
        "<f8" => DType::Float64,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of version 1.0 as numpy writes it.
    fn file(text: &str) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        bytes
    }

    #[test]
    fn headers_of_numpy_are_read() {
        for (descr, dtype) in [("|u1", DType::UInt8), ("<u2", DType::UInt16), ("<f8", DType::Float64)] {
            for (shape, expected) in [("()", vec![]), ("(7,)", vec![7]), ("(3, 4, 5)", vec![3, 4, 5])] {
                let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}      \n");
                let bytes = file(&text);
                let found = read(&bytes).unwrap().unwrap();
                assert_eq!(found, Npy { dtype, shape: expected, at: bytes.len() as u64 });
            }
        }
        let text = "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }\n";
        let mut later = b"\x93NUMPY\x03\x00".to_vec();
        later.extend_from_slice(&(text.len() as u32).to_le_bytes());
        later.extend_from_slice(text.as_bytes());
        assert_eq!(read(&later).unwrap().unwrap().at, later.len() as u64);
        assert_eq!(read(b"anything else").unwrap(), None);
        assert_eq!(read(b"").unwrap(), None);
    }

    #[test]
    fn other_arrays_and_broken_headers_are_errors() {
        let good = "{'descr': '<u2', 'fortran_order': False, 'shape': (2, 3), }\n";
        for (old, new) in [
            ("<u2", ">u2"),
            ("<u2", "|b1"),
            ("'<u2'", "[('a', '<u2')]"),
            ("False", "True"),
            ("(2, 3)", "(2, -3)"),
            ("(2, 3)", "2"),
            ("(2, 3)", "(99999999999999999999,)"),
            ("shape", "form"),
        ] {
            assert!(read(&file(&good.replace(old, new))).is_err(), "{new}");
        }
        let bytes = file(good);
        for end in MAGIC.len()..bytes.len() {
            assert!(read(&bytes[..end]).is_err(), "cut at {end}");
        }
        for at in MAGIC.len()..bytes.len() {
            for value in [0, 9, b'(', b')', b'\'', 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                let _ = read(&changed);
            }
        }
    }
}
