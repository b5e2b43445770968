//! The framing `ess`: readouts of detectors of ESS, each datagram a message (`ar51`).
//!
//! Header, little endian: 0 (u8), version (u8, 0 or 1), `ESS`, type (u8), bytes of the datagram (u16), output queue
//! (u8), source of the time (u8), time of the pulse and of the one before it (each u32 seconds since 1970 UTC, u32
//! ticks of 88.0525 MHz), number (u32), and in version 1 two bytes more. Each output queue numbers its datagrams.
//! Source of the format: the event formation unit of ESS, `common/readout/ess/Parser.h`.

use super::{Cut, Framing, Number, Read, Stamp, damaged, nearest};
use crate::limits::{ESS_HEADERS, ESS_QUEUES, ESS_TICKS, ESS_WRAP as WRAP};
use store::{SchemaId, crc32c};
use wire::ar51;

/// The framing.
pub(crate) struct Ess {
    /// Name of the source, which the messages have.
    name: String,
    /// The number before, of each queue, as if numbers never began again.
    last: [Option<u64>; ESS_QUEUES],
    /// What is before the datagram in its message.
    head: Vec<u8>,
}

impl Ess {
    /// Of a source of this name. `next`: the next number of each queue.
    pub(crate) fn new(name: &str, next: impl Fn(u8) -> Option<u64>) -> Self {
        let last = std::array::from_fn(|queue| next(queue as u8).map(|next| next.saturating_sub(1)));
        Self { name: name.to_owned(), last, head: Vec::new() }
    }
}

impl Framing for Ess {
    fn cut(&mut self, datagram: &[u8], cuts: &mut Vec<Cut>) -> Read {
        let Some(&[zero, version, ref magic @ ..]) = datagram.first_chunk::<5>() else { return damaged("length") };
        let header = ESS_HEADERS.get(usize::from(version)).filter(|_| zero == 0 && magic == b"ESS");
        let Some(header) = header else { return damaged("magic") };
        let length = u16::from_le_bytes(part(datagram, 6));
        if datagram.len() < *header || datagram.len() != usize::from(length) {
            return damaged("length");
        }
        let [queue, _] = part(datagram, 8);
        let Some(last) = self.last.get_mut(usize::from(queue)) else { return damaged("queue") };
        let word = |at| u64::from(u32::from_le_bytes(part(datagram, at)));
        let (seconds, ticks, number) = (word(10), word(14), word(26));
        if ticks >= ESS_TICKS {
            return damaged("time");
        }
        // Both factors are below 2^32.
        let time = seconds * 1_000_000_000 + ticks * 1_000_000_000 / ESS_TICKS;
        let Some(number) = last.map_or(Some(number), |last| nearest(last, number, WRAP)) else {
            return Read::Refused { reason: "late", is_damaged: false };
        };
        *last = Some(number);
        // It fails on messages of more than a datagram alone.
        let _ = ar51::head(&mut self.head, &self.name, number as i64, datagram.len());
        cuts.push(Cut {
            number: Number::Board { number, mark: crc32c(&datagram[..*header]) },
            queue,
            stamp: Stamp::Epoch(time as i64),
            schema: SchemaId(ar51::ID),
            flags: 0,
            crc: None,
            payload: 0..datagram.len(),
        });
        Read::Whole
    }

    fn head(&self) -> &[u8] {
        &self.head
    }
}

/// The header, version 1, of a readout with this many bytes of data. `time`: of the pulse, ns since 1970 UTC.
pub(crate) fn header(number: u64, time: u64, bytes: usize) -> [u8; 32] {
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

    fn fresh() -> Ess {
        Ess::new("d001", |_| None)
    }

    /// `tests/framings.py` made them.
    #[test]
    fn datagrams_made_by_another_implementation_are_cut_alike() {
        for (bytes, messages) in vectors("ess") {
            let mut framing = fresh();
            let (read, cuts) = cut(&mut framing, &bytes);
            let Some(messages) = messages.as_array() else {
                assert!(matches!(read, Read::Refused { reason, is_damaged: true } if messages == reason), "{read:?}");
                assert!(cuts.is_empty());
                continue;
            };
            let ([cut], [message]) = (cuts.as_slice(), messages.as_slice()) else { panic!("{cuts:?}") };
            let number = |name: &str| message[name].as_u64().unwrap();
            assert!(matches!(cut.number, Number::Board { number: n, .. } if n == number("number")), "{cut:?}");
            assert_eq!(u64::from(cut.queue), number("queue"));
            assert_eq!((read, cut.stamp), (Read::Whole, Stamp::Epoch(number("time") as i64)));
            let whole = [framing.head(), &bytes[cut.payload.clone()]].concat();
            let made = ar51::read(&whole).unwrap();
            assert_eq!((made.source_name, made.message_id), ("d001", number("number") as i64));
            assert_eq!(made.raw_data.bytes(), bytes);
        }
    }

    #[test]
    fn each_queue_counts_on_its_own_and_goes_on_where_numbers_begin_again() {
        let (mut bytes, _) = vectors("ess").remove(0);
        let mut framing = Ess::new("d001", |queue| (queue == 2).then_some(5 * WRAP));
        let mut number = |queue: u8, number: u32| {
            bytes[8] = queue;
            bytes[26..30].copy_from_slice(&number.to_le_bytes());
            match cut(&mut framing, &bytes).1.pop()?.number {
                Number::Board { number, .. } => Some(number),
                Number::Arrival => None,
            }
        };
        let most = u32::MAX;
        let cases = [(0, 5, Some(5)), (0, most, None), (1, most, Some(WRAP - 1)), (1, 0, Some(WRAP)), (0, 6, Some(6))];
        for (queue, given, expected) in cases {
            assert_eq!(number(queue, given), expected, "queue {queue}, {given}");
        }
        assert_eq!([number(2, most), number(2, 1)], [Some(5 * WRAP - 1), Some(5 * WRAP + 1)]);
    }
}
