//! A field of a header: `u32 at 8`, `u24be at 5`, `u32 at 4 bits 8..31`, `u32 at -4` (from the end of the unit).

use crate::limits::FIELD_AT_MAX;
use settings::shortened;
use settings::units::Refused;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// An unsigned number at a place of a unit, or some of its bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// As it is written.
    text: String,
    /// First byte; negative: counted from the end.
    at: i64,
    /// 1 to 8.
    bytes: usize,
    /// The order that the field itself names.
    own_order: Option<bool>,
    is_big: bool,
    /// Lowest bit, and how many.
    low: u32,
    pub(super) bits: u32,
}

impl FromStr for Field {
    type Err = Refused;

    fn from_str(text: &str) -> Result<Self, Refused> {
        let refused = || {
            let hint = "write it like `u32 at 8`, `u16be at 0x10`, `u32 at 4 bits 8..31` or `u32 at -4`";
            Refused::new(format!("`{}` is not a field", shortened(text)), hint)
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let (kind, at, bits) = match words[..] {
            [kind, "at", at] => (kind, at, None),
            [kind, "at", at, "bits" | "bit", bits] => (kind, at, Some(bits)),
            _ => return Err(refused()),
        };
        let (kind, own_order) = match (kind.strip_suffix("be"), kind.strip_suffix("le")) {
            (Some(kind), _) => (kind, Some(true)),
            (_, Some(kind)) => (kind, Some(false)),
            _ => (kind, None),
        };
        let width: u32 = kind.strip_prefix('u').and_then(|width| width.parse().ok()).ok_or_else(refused)?;
        let bytes = usize::try_from(width / 8).unwrap_or(0);
        let at = number(at).filter(|at| at.abs() <= FIELD_AT_MAX).ok_or_else(refused)?;
        let (low, high) = match bits.map(|bits| bits.split_once("..").unwrap_or((bits, bits))) {
            None => (0, width.saturating_sub(1)),
            Some((low, high)) => match (low.parse(), high.parse()) {
                (Ok(low), Ok(high)) => (low, high),
                _ => return Err(refused()),
            },
        };
        let is_whole = width.is_multiple_of(8) && (1..=8).contains(&bytes);
        if !is_whole || low > high || high >= width || at < 0 && -at < bytes as i64 {
            return Err(refused());
        }
        let is_big = own_order.unwrap_or(false);
        Ok(Self { text: text.to_owned(), at, bytes, own_order, is_big, low, bits: high - low + 1 })
    }
}

/// A whole number, also hexadecimal.
fn number(text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl Field {
    /// A little-endian number of `bytes` bytes, 1 to 8, that begins at byte `at`.
    pub(super) fn new(at: usize, bytes: usize) -> Self {
        let bits = 8 * bytes as u32;
        let text = format!("u{bits} at {at}");
        Self { text, at: at as i64, bytes, own_order: None, is_big: false, low: 0, bits }
    }

    /// The same in the byte order of the table, where the field names none.
    pub(super) fn ordered(mut self, is_big: bool) -> Self {
        self.is_big = self.own_order.unwrap_or(is_big);
        self
    }

    /// Least bytes of a unit that has it.
    pub(super) fn least(&self) -> usize {
        let at = usize::try_from(self.at.unsigned_abs()).unwrap_or(usize::MAX);
        if self.at < 0 { at } else { at + self.bytes }
    }

    /// Whether its place is counted from the end of the unit.
    pub(super) fn is_from_end(&self) -> bool {
        self.at < 0
    }

    /// The bytes of a unit of this length that it takes; none where it lies before the unit.
    #[inline]
    pub(super) fn range(&self, length: usize) -> Option<Range<usize>> {
        let at = usize::try_from(self.at.unsigned_abs()).ok()?;
        let place = if self.at < 0 { length.checked_sub(at)? } else { at };
        Some(place..place + self.bytes)
    }

    fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// Its value; none where the unit is too short.
    #[inline]
    pub(super) fn of(&self, unit: &[u8]) -> Option<u64> {
        let range = self.range(unit.len())?;
        // One load and one bounds check, where the unit has eight bytes from here on.
        if let Some(eight) = unit.get(range.start..).and_then(|rest| rest.first_chunk()) {
            let word = match self.is_big {
                true => u64::from_be_bytes(*eight) >> (64 - 8 * self.bytes as u32 + self.low),
                false => u64::from_le_bytes(*eight) >> self.low,
            };
            return Some(word & self.mask());
        }
        let bytes = unit.get(range)?;
        let word = match self.is_big {
            true => bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)),
            false => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        Some(word >> self.low & self.mask())
    }

    /// Sets its value in a unit that has it; higher bits are cut.
    pub(super) fn set(&self, unit: &mut [u8], value: u64) {
        let range = self.range(unit.len());
        let Some(bytes) = range.and_then(|range| unit.get_mut(range)) else { return };
        let each = |at: usize| if self.is_big { self.bytes - 1 - at } else { at };
        let before = (0..self.bytes).fold(0, |word, at| word | u64::from(bytes[each(at)]) << (8 * at));
        let word = before & !(self.mask() << self.low) | (value & self.mask()) << self.low;
        (0..self.bytes).for_each(|at| bytes[each(at)] = (word >> (8 * at)) as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(text: &str) -> Field {
        text.parse().unwrap()
    }

    #[test]
    fn a_field_is_read_and_set_where_it_lies() {
        let unit: Vec<u8> = (0..16).map(|byte| byte * 0x11).collect();
        let of = |text: &str| field(text).of(&unit);
        assert_eq!([of("u8 at 3"), of("u16 at 1"), of("u16be at 1")], [0x33, 0x2211, 0x1122].map(Some));
        assert_eq!([of("u24be at -3"), of("u24 at -3")], [0xdd_eeff, 0xff_eedd].map(Some));
        assert_eq!(of("u64 at 0x8"), Some(0xffee_ddcc_bbaa_9988));
        assert_eq!([of("u32be at 4 bits 8..31"), of("u8 at 15 bit 7")], [0x44_5566, 1].map(Some));
        assert_eq!([of("u32 at 13"), of("u8 at 16"), of("u32 at -17")], [None; 3]);
        assert_eq!(field("u16 at 2").ordered(true).of(&unit), Some(0x2233));
        assert_eq!(field("u16le at 2").ordered(true).of(&unit), Some(0x3322));
        for text in ["u8 at 0", "u24be at 5", "u32 at 4 bits 3..20", "u64 at 8", "u16be at -2", "u48 at 10"] {
            let (field, mut changed) = (field(text), unit.clone());
            field.set(&mut changed, 0x0123_4567_89ab_cdef);
            assert_eq!(field.of(&changed), Some(0x0123_4567_89ab_cdef & field.mask()), "{text}");
            field.set(&mut changed, field.of(&unit).unwrap());
            assert_eq!(changed, unit, "{text}");
        }
    }

    #[test]
    fn what_is_no_field_is_refused() {
        let wrong = ["", "u32", "u32 8", "i32 at 1", "u12 at 0", "u72 at 0", "u0 at 0", "u8 at x", "u32 at -3"];
        for text in wrong.into_iter().chain(["u8 at 0 bits 3..8", "u8 at 0 bits 5..4", "u8 at 70000", "u8 at 0 bits"]) {
            assert!(text.parse::<Field>().is_err(), "{text}");
        }
    }
}
