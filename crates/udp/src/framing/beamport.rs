//! The framing `beamport`: a header of 64 bytes, and one message.

use super::{Cut, Framing, FramingKind, Number, Outgoing, Read, Stamp, damaged, foreign};
use crate::numbers::Counter;
use std::sync::Arc;
use store::{SchemaId, crc32c};
use wire::datagram::{Flag, Header, Refusal, Type};
use wire::limits::HEADER_BYTES;

/// The kind.
pub(crate) static BEAMPORT: FramingKind = FramingKind {
    head: Some(head),
    ..FramingKind::new("beamport", "a header and one payload", |_, _| Arc::new(|_| Box::<Beamport>::default()))
};

/// The framing.
#[derive(Default)]
struct Beamport {
    stream: u16,
}

impl Framing for Beamport {
    fn cut(&mut self, datagram: &[u8], cuts: &mut Vec<Cut>) -> Read {
        let header = match Header::read(datagram, crc32c) {
            Ok(header) => header,
            Err(Refusal::Length) => return foreign("length"),
            Err(Refusal::Magic) => return foreign("magic"),
            Err(Refusal::Checksum) => return damaged("checksum"),
        };
        let stamp = match header.is_epoch() {
            true => Stamp::Epoch(i64::try_from(header.timestamp).unwrap_or(i64::MAX)),
            false => Stamp::Ticks(header.timestamp),
        };
        let payload = &datagram[HEADER_BYTES..];
        if payload.len() != header.payload_bytes as usize {
            return damaged("length");
        }
        self.stream = header.stream;
        match header.kind {
            Type::Data if crc32c(payload) != header.payload_crc => return damaged("checksum"),
            Type::Data => cuts.push(Cut {
                number: Number::Board { shown: header.sequence, mark: header.header_crc },
                numbering: 0,
                stamp,
                schema: SchemaId(header.schema),
                flags: 0,
                crc: Some(header.payload_crc),
                payload: HEADER_BYTES..datagram.len(),
            }),
            Type::End | Type::Beat => return Read::Next(header.sequence, stamp),
            Type::Throttle => {}
            Type::Other(_) => return foreign("type"),
        }
        Read::Whole
    }

    fn stream(&self) -> u16 {
        self.stream
    }

    fn counter(&self) -> Counter {
        Counter { wrap: None, is_checked: true }
    }
}

fn head(message: &mut Outgoing<'_>) -> usize {
    let header = Header {
        kind: Type::Data,
        payload_bytes: message.payload.len() as u32,
        payload_crc: message.crc,
        schema: message.schema,
        ..header(message.place, message.number, message.time)
    };
    *message.head = header.to_bytes(crc32c);
    HEADER_BYTES
}

/// A datagram without payload of a simulated board, which names the number of its next message. `place`: the number of
/// the board among all of the instrument file, from 0; `time`: ns since 1970 UTC.
pub(crate) fn sign(kind: Type, place: usize, number: u64, time: u64) -> [u8; HEADER_BYTES] {
    Header { kind, ..header(place, number, time) }.to_bytes(crc32c)
}

fn header(place: usize, number: u64, time: u64) -> Header {
    let stream = u16::try_from(place + 1).unwrap_or(u16::MAX);
    Header { stream, flags: Flag::Epoch as u32, timestamp: time, sequence: number, ..Header::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Dice;
    use wire::datagram::Flag;

    fn datagram(kind: Type, payload: &[u8]) -> Vec<u8> {
        let header = Header {
            kind,
            flags: Flag::Epoch as u32,
            timestamp: 7,
            sequence: 9,
            payload_bytes: payload.len() as u32,
            payload_crc: crc32c(payload),
            schema: *b"ev44",
            ..Header::default()
        };
        [header.to_bytes(crc32c).as_slice(), payload].concat()
    }

    fn cut(bytes: &[u8]) -> (Read, Option<Cut>) {
        let mut cuts = Vec::new();
        let read = Beamport::default().cut(bytes, &mut cuts);
        assert!(cuts.len() <= 1);
        (read, cuts.pop())
    }

    #[test]
    fn a_datagram_is_a_message_or_names_the_next_number() {
        let bytes = datagram(Type::Data, b"payload");
        let (Read::Whole, Some(cut)) = cut(&bytes) else { panic!() };
        assert!(matches!(cut.number, Number::Board { shown: 9, .. }));
        assert_eq!((cut.stamp, cut.schema, cut.payload), (Stamp::Epoch(7), SchemaId(*b"ev44"), 64..71));
        for kind in [Type::End, Type::Beat] {
            assert_eq!(self::cut(&datagram(kind, b"")), (Read::Next(9, Stamp::Epoch(7)), None));
        }
        assert_eq!(self::cut(&datagram(Type::Throttle, b"12345678")), (Read::Whole, None));
        let other = self::cut(&datagram(Type::Other(5), b""));
        assert_eq!(other, (Read::Refused { reason: "type", is_damaged: false }, None));
    }

    /// `tests/datagrams.py` made them.
    #[test]
    fn datagrams_made_by_another_implementation_are_read_and_written_alike() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/datagrams.json");
        let vectors: Vec<serde_json::Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        assert!(vectors.len() >= 16);
        for vector in vectors {
            let (hex, fields) = (vector["hex"].as_str().unwrap(), &vector["fields"]);
            let bytes: Vec<u8> =
                (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect();
            let (read, cut) = cut(&bytes);
            if let Some(why) = fields.as_str() {
                let Read::Refused { reason, .. } = read else { panic!("{hex}: {read:?}") };
                assert_eq!(reason, why, "{hex}");
                continue;
            }
            let number = |name: &str| fields[name].as_u64().unwrap();
            let header = Header::read(&bytes, crc32c).unwrap();
            let expected = [
                ("subtype", u64::from(header.subtype)),
                ("stream", u64::from(header.stream)),
                ("flags", u64::from(header.flags)),
                ("timestamp", header.timestamp),
                ("sequence", header.sequence),
                ("payload_bytes", u64::from(header.payload_bytes)),
                ("payload_crc", u64::from(header.payload_crc)),
                ("run", u64::from(header.run)),
                ("header_crc", u64::from(header.header_crc)),
            ];
            expected.iter().for_each(|(name, value)| assert_eq!(number(name), *value, "{hex}: {name}"));
            assert_eq!(fields["schema"].as_str().unwrap().as_bytes(), header.schema);
            assert_eq!(header.to_bytes(crc32c), bytes[..HEADER_BYTES]);
            match number("type") {
                1 => assert_eq!(cut.map(|cut| cut.payload), Some(HEADER_BYTES..bytes.len())),
                2 | 4 => assert!(matches!(read, Read::Next(next, _) if next == header.sequence)),
                3 => assert_eq!((read, cut), (Read::Whole, None)),
                _ => assert!(matches!(read, Read::Refused { reason: "type", .. })),
            }
        }
    }

    #[test]
    fn each_flipped_bit_that_a_checksum_covers_is_seen() {
        let bytes = datagram(Type::Data, b"payload");
        // Without its beginning it is nobody's.
        for bit in (48..8 * 48).chain(8 * HEADER_BYTES..8 * bytes.len()) {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(cut(&bytes), (Read::Refused { is_damaged: true, .. }, None)), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(matches!(cut(&bytes[..length]), (Read::Refused { .. }, None)), "{length} bytes");
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        let mut dice = Dice::new(3);
        for _ in 0..200_000 {
            let kind = Type::Other(dice.below(6) as u16);
            let mut bytes = datagram(kind, &vec![1; dice.below(100) as usize]);
            for _ in 0..dice.below(4) {
                let at = dice.below(bytes.len() as u64) as usize;
                bytes[at] = dice.word() as u8;
            }
            bytes.truncate(dice.below(2 * bytes.len() as u64) as usize);
            if let (_, Some(cut)) = cut(&bytes) {
                assert_eq!(cut.payload, HEADER_BYTES..bytes.len());
            }
        }
    }
}
