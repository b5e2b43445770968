//! The framing `geb` of GRETINA and GRETA: units one behind the other, each of a header of 16 bytes (type, i32; bytes
//! of the payload, i32; timestamp in ticks of 10 ns, i64; little endian) and its payload.
//!
//! A message is a unit with its header, so that a file is its messages one behind the other. Units have no numbers.

use super::{Cut, Framing, Number, Read, Stamp, damaged};
use crate::limits::GEB_HEADER;
use store::SchemaId;

/// Schema id of a unit.
pub(crate) const UNIT: SchemaId = SchemaId(*b"geb0");

/// The framing.
pub(crate) struct Geb;

impl Framing for Geb {
    fn cut(&mut self, datagram: &[u8], cuts: &mut Vec<Cut>) -> Read {
        let mut at = 0;
        while at < datagram.len() {
            let unit = unit(&datagram[at..]);
            let Some((length, ticks)) = unit else {
                cuts.clear();
                return damaged("length");
            };
            let stamp = Stamp::Ticks(ticks);
            cuts.push(Cut {
                number: Number::Arrival,
                queue: 0,
                stamp,
                schema: UNIT,
                flags: 0,
                crc: None,
                payload: at..at + length,
            });
            at += length;
        }
        if cuts.is_empty() { damaged("length") } else { Read::Whole }
    }
}

/// Bytes of the first unit, and its timestamp.
fn unit(bytes: &[u8]) -> Option<(usize, u64)> {
    let size = size(bytes)??;
    (size <= bytes.len()).then(|| (size, ticks(bytes)))
}

/// Bytes of the unit that begins here, with its header: `Some(None)` where its length is negative, `None` where there
/// are fewer bytes than a header.
pub(crate) fn size(bytes: &[u8]) -> Option<Option<usize>> {
    let head: &[u8; GEB_HEADER] = bytes.first_chunk()?;
    let payload = i32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    Some(usize::try_from(payload).ok().map(|payload| GEB_HEADER + payload))
}

/// The timestamp of the unit that begins here.
pub(crate) fn ticks(bytes: &[u8]) -> u64 {
    let ticks = bytes.get(8..).and_then(|rest| rest.first_chunk()).copied();
    u64::from_le_bytes(ticks.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::{cut, vectors};
    use testkit::Dice;

    fn unit_of(kind: i32, ticks: i64, payload: &[u8]) -> Vec<u8> {
        let head = [kind.to_le_bytes(), (payload.len() as i32).to_le_bytes()].concat();
        [head.as_slice(), &ticks.to_le_bytes(), payload].concat()
    }

    #[test]
    fn each_unit_is_a_message_with_its_header() {
        let bytes = [unit_of(1, 7, b"abc"), unit_of(0x2b, 8, b""), unit_of(3, 9, &[5; 464])].concat();
        let mut cuts = Vec::new();
        assert_eq!(Geb.cut(&bytes, &mut cuts), Read::Whole);
        let parts: Vec<_> = cuts.iter().map(|cut| (cut.payload.clone(), cut.stamp)).collect();
        let ticks = Stamp::Ticks;
        assert_eq!(parts, [(0..19, ticks(7)), (19..35, ticks(8)), (35..515, ticks(9))]);
    }

    /// `tests/framings.py` made them.
    #[test]
    fn datagrams_made_by_another_implementation_are_cut_alike() {
        for (bytes, messages) in vectors("geb") {
            let (read, cuts) = cut(&mut Geb, &bytes);
            let Some(messages) = messages.as_array() else {
                assert_eq!((read, cuts.len()), (damaged("length"), 0));
                continue;
            };
            assert_eq!((read, cuts.len()), (Read::Whole, messages.len()));
            for (cut, message) in cuts.iter().zip(messages) {
                let number = |name: &str| message[name].as_u64().unwrap();
                let start = number("offset") as usize;
                assert_eq!(cut.payload, start..start + number("length") as usize);
                assert_eq!(cut.stamp, Stamp::Ticks(number("ticks")));
            }
        }
    }

    #[test]
    fn units_that_do_not_fill_a_datagram_are_refused() {
        let bytes = [unit_of(1, 7, b"abc"), unit_of(3, 9, b"de")].concat();
        for length in (0..bytes.len()).filter(|length| *length != 19) {
            let mut cuts = Vec::new();
            assert_eq!((Geb.cut(&bytes[..length], &mut cuts), cuts.len()), (damaged("length"), 0), "{length}");
        }
        let mut dice = Dice::new(1);
        for _ in 0..50_000 {
            let mut bytes = unit_of(1, 7, &vec![0; dice.below(60) as usize]);
            let at = dice.below(bytes.len() as u64) as usize;
            bytes[at] = dice.word() as u8;
            let mut cuts = Vec::new();
            Geb.cut(&bytes, &mut cuts);
            assert!(cuts.iter().all(|cut| cut.payload.end <= bytes.len()));
        }
    }
}
