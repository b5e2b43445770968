//! Units of GRETINA and GRETA in files. As a framing they are a table: [`Table::geb`](super::Table::geb).

use super::{ByTable, FramingKind, Outgoing, Table, Ticks};
use crate::limits::{GEB_BITS, GEB_HEADER, GEB_TICK};
use std::sync::Arc;
use store::SchemaId;

/// Schema id of a unit.
pub(crate) const UNIT: SchemaId = SchemaId(*b"geb0");

/// The kind.
pub(crate) static GEB: FramingKind = FramingKind {
    ticks: Some(Ticks { bits: GEB_BITS, unit: GEB_TICK }),
    head: Some(head),
    ..FramingKind::new("geb", "units of GRETINA and GRETA, each a message with its header", |_, _| {
        let table = Arc::new(Table::geb());
        Arc::new(move |_| Box::new(ByTable::new(table.clone())))
    })
};

fn head(message: &mut Outgoing<'_>) -> usize {
    message.head[..4].copy_from_slice(&1_i32.to_le_bytes());
    message.head[4..8].copy_from_slice(&(message.payload.len() as i32).to_le_bytes());
    message.head[8..16].copy_from_slice(&message.ticks.to_le_bytes());
    GEB_HEADER
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
    use crate::framing::{ByTable, Read, Stamp, Table, cut, damaged, foreign, vectors};
    use testkit::Dice;

    fn framing() -> ByTable {
        ByTable::new(Table::geb().into())
    }

    fn unit_of(kind: i32, ticks: i64, payload: &[u8]) -> Vec<u8> {
        let head = [kind.to_le_bytes(), (payload.len() as i32).to_le_bytes()].concat();
        [head.as_slice(), &ticks.to_le_bytes(), payload].concat()
    }

    #[test]
    fn each_unit_is_a_message_with_its_header() {
        let bytes = [unit_of(1, 7, b"abc"), unit_of(0x2b, 8, b""), unit_of(3, 9, &[5; 464])].concat();
        let (read, cuts) = cut(&mut framing(), &bytes);
        assert_eq!(read, Read::Whole);
        let parts: Vec<_> = cuts.iter().map(|cut| (cut.payload.clone(), cut.stamp)).collect();
        let ticks = Stamp::Ticks;
        assert_eq!(parts, [(0..19, ticks(7)), (19..35, ticks(8)), (35..515, ticks(9))]);
    }

    /// `tests/framings.py` made them.
    #[test]
    fn datagrams_made_by_another_implementation_are_cut_alike() {
        for (bytes, messages) in vectors("geb") {
            let (read, cuts) = cut(&mut framing(), &bytes);
            let Some(messages) = messages.as_array() else {
                assert!([damaged("length"), foreign("size")].contains(&read) && cuts.is_empty(), "{read:?}");
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
            let (read, cuts) = cut(&mut framing(), &bytes[..length]);
            assert!([damaged("length"), foreign("size")].contains(&read) && cuts.is_empty(), "{length}: {read:?}");
        }
        let mut dice = Dice::new(1);
        for _ in 0..50_000 {
            let mut bytes = unit_of(1, 7, &vec![0; dice.below(60) as usize]);
            let at = dice.below(bytes.len() as u64) as usize;
            bytes[at] = dice.word() as u8;
            let (_, cuts) = cut(&mut framing(), &bytes);
            assert!(cuts.iter().all(|cut| cut.payload.end <= bytes.len()));
        }
    }
}
