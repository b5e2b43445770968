//! The framing `ess`: readouts of detectors of ESS, each datagram a message (`ar51`).
//!
//! Header, little endian: 0 (u8), version (u8, 0 or 1), `ESS`, type (u8), bytes of the datagram (u16), output queue
//! (u8), source of the time (u8), time of the pulse and of the one before it (each u32 seconds since 1970 UTC, u32
//! ticks of 88.0525 MHz), number (u32), and in version 1 two bytes more. Each output queue numbers its datagrams.
//! Source of the format: the event formation unit of ESS, `common/readout/ess/Parser.h`.

use super::{Cut, Framing, FramingKind, Number, Outgoing, Read, Stamp, damaged, foreign};
use crate::limits::{ESS_HEADERS, ESS_QUEUES, ESS_TICKS, ESS_WRAP as WRAP};
use crate::numbers::Counter;
use std::sync::Arc;
use store::{SchemaId, crc32c};
use wire::ar51;

/// The kind.
pub(crate) static ESS: FramingKind = FramingKind {
    head: Some(head),
    ..FramingKind::new(
        "ess",
        "a readout of a detector of ESS, which becomes an `ar51` with the name of the source",
        |_, _| Arc::new(|origin| Box::new(Ess::new(origin))),
    )
};

/// The framing.
pub(super) struct Ess {
    /// Name of the source, which the messages have.
    name: String,
    /// The header before the datagram in its message.
    head: Vec<u8>,
}

impl Ess {
    /// Of a source of this name.
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), head: Vec::new() }
    }
}

impl Framing for Ess {
    fn cut(&mut self, datagram: &[u8], cuts: &mut Vec<Cut>) -> Read {
        let Some(&[zero, version, ref magic @ ..]) = datagram.first_chunk::<5>() else { return damaged("length") };
        let header = ESS_HEADERS.get(usize::from(version)).filter(|_| zero == 0 && magic == b"ESS");
        let Some(header) = header else { return foreign("magic") };
        let length = u16::from_le_bytes(part(datagram, 6));
        if datagram.len() < *header || datagram.len() != usize::from(length) {
            return damaged("length");
        }
        let [queue, _] = part(datagram, 8);
        if usize::from(queue) >= ESS_QUEUES {
            return damaged("queue");
        }
        let word = |at| u64::from(u32::from_le_bytes(part(datagram, at)));
        let (seconds, ticks, shown) = (word(10), word(14), word(26));
        if ticks >= ESS_TICKS {
            return damaged("time");
        }
        // Both factors are below 2^32.
        let time = seconds * 1_000_000_000 + ticks * 1_000_000_000 / ESS_TICKS;
        cuts.push(Cut {
            number: Number::Board { shown, mark: crc32c(&datagram[..*header]) },
            numbering: queue.into(),
            stamp: Stamp::Epoch(time as i64),
            schema: SchemaId(ar51::ID),
            flags: 0,
            crc: None,
            payload: 0..datagram.len(),
        });
        Read::Whole
    }

    fn head(&mut self, number: u64, bytes: usize) -> &[u8] {
        // It fails on messages of more than a datagram alone.
        let _ = ar51::head(&mut self.head, &self.name, number as i64, bytes);
        &self.head
    }

    fn numbering_word(&self) -> &'static str {
        "q"
    }

    fn counter(&self) -> Counter {
        Counter { wrap: Some(WRAP), is_checked: false }
    }
}

fn head(message: &mut Outgoing<'_>) -> usize {
    let made = header(message.number, message.time, message.payload.len());
    message.head[..made.len()].copy_from_slice(&made);
    made.len()
}

/// The header, version 1, of a readout with this many bytes of data. `time`: of the pulse, ns since 1970 UTC.
pub(super) fn header(number: u64, time: u64, bytes: usize) -> [u8; 32] {
    let mut header = [0; 32];
    let mut put = |at: usize, part: &[u8]| header[at..at + part.len()].copy_from_slice(part);
    put(1, b"\x01ESS");
    put(6, &((32 + bytes) as u16).to_le_bytes());
    put(10, &((time / 1_000_000_000) as u32).to_le_bytes());
    put(14, &((time % 1_000_000_000 * ESS_TICKS / 1_000_000_000) as u32).to_le_bytes());
    put(26, &(number as u32).to_le_bytes());
    header
}

/// `N` bytes of a datagram; zeros where it has fewer.
fn part<const N: usize>(datagram: &[u8], at: usize) -> [u8; N] {
    datagram.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::{cut, vectors};

    /// `tests/framings.py` made them.
    #[test]
    fn datagrams_made_by_another_implementation_are_cut_alike() {
        for (bytes, messages) in vectors("ess") {
            let mut framing = Ess::new("d001");
            let (read, cuts) = cut(&mut framing, &bytes);
            let Some(messages) = messages.as_array() else {
                let is_foreign = messages == "magic";
                let Read::Refused { reason, is_damaged } = read else { panic!("{read:?}") };
                assert_eq!((messages == reason, is_damaged), (true, !is_foreign));
                assert!(cuts.is_empty());
                continue;
            };
            let ([cut], [message]) = (cuts.as_slice(), messages.as_slice()) else { panic!("{cuts:?}") };
            let number = |name: &str| message[name].as_u64().unwrap();
            assert!(matches!(cut.number, Number::Board { shown, .. } if shown == number("number")), "{cut:?}");
            assert_eq!(u64::from(cut.numbering), number("queue"));
            assert_eq!((read, cut.stamp), (Read::Whole, Stamp::Epoch(number("time") as i64)));
            let whole = [framing.head(number("number"), bytes.len()), &bytes[cut.payload.clone()]].concat();
            let made = ar51::read(&whole).unwrap();
            assert_eq!((made.source_name, made.message_id), ("d001", number("number") as i64));
            assert_eq!(made.raw_data.bytes(), bytes);
        }
    }

    #[test]
    fn numbers_go_on_where_they_begin_again() {
        let (most, ess) = (u64::from(u32::MAX), Ess::new("d001"));
        for (last, shown, expected) in [
            (None, 5, Some(5)),
            (Some(5), most, None),
            (Some(most), 0, Some(WRAP)),
            (Some(5 * WRAP - 1), most, Some(5 * WRAP - 1)),
            (Some(5 * WRAP - 1), 1, Some(5 * WRAP + 1)),
        ] {
            assert_eq!(ess.number(last, shown), expected, "{shown} after {last:?}");
        }
    }
}
