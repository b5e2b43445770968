//! The framing `hadaq` of HADES and the TRB boards: a transport unit with sub-events, each of which is a message.
//!
//! A datagram is a unit, padded to 8 bytes, and its first 32 bytes again. A unit is its size (u32), its decoding (u32)
//! and sub-events; a sub-event is its size (u32, with this header), decoding, id and trigger word, and data; each is
//! padded to 8 bytes. A word of decoding above `0xffffff`, read as little endian, says that what it belongs to is big
//! endian. The upper 24 bits of the trigger word are the number of the trigger, the lower 8 its tag. Source of the
//! format: DABC, `plugins/hadaq`.

use super::{Cut, Framing, FramingKind, Number, Outgoing, Read, Stamp, damaged, nearest};
use crate::limits::{
    HADAQ_ALIGN, HADAQ_ERROR, HADAQ_HEADER, HADAQ_MARK_BYTES, HADAQ_TRAILER, HADAQ_UNIT, HADAQ_WRAP as WRAP,
};
use crate::numbers::Counter;
use std::sync::Arc;
use store::{SchemaId, crc32c, flags};

/// Schema id of a sub-event.
pub(crate) const SUB_EVENT: SchemaId = SchemaId(*b"had0");

/// The kind.
pub(crate) static HADAQ: FramingKind = FramingKind {
    head: Some(head),
    ..FramingKind::new("hadaq", "a transport unit of HADES or of TRB boards; each sub-event is a message", |_, _| {
        Arc::new(|_| Box::new(Hadaq))
    })
};

/// Makes the head of a unit with one sub-event, whose trigger has the number of the message, and puts the first 32
/// bytes of the datagram behind the payload.
fn head(message: &mut Outgoing<'_>) -> usize {
    let Outgoing { head, payload, number, place, .. } = message;
    let (size, bytes) = (HADAQ_HEADER + payload.len(), HADAQ_UNIT + HADAQ_HEADER);
    payload.resize(size.next_multiple_of(HADAQ_ALIGN) - HADAQ_HEADER, 0);
    // All boards of a trigger have the same tag.
    let tag = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    let trigger = (*number % WRAP) << 8 | tag;
    let unit = (bytes + payload.len()) as u32;
    let words = [unit, 0x0003_0062, size as u32, 0x0002_0001, 0x8000 + *place as u32, trigger as u32];
    for (part, word) in head.chunks_exact_mut(4).zip(words) {
        part.copy_from_slice(&word.to_le_bytes());
    }
    let first: Vec<u8> = head[..bytes].iter().chain(&payload[..]).copied().take(HADAQ_TRAILER).collect();
    payload.extend(first);
    bytes
}

/// The framing.
struct Hadaq;

/// The number of a trigger as if numbers never began again: the nearest to the one before. `None`: it is below 0.
pub(crate) fn number(last: Option<u64>, trigger: u64) -> Option<u64> {
    let Some(last) = last else { return Some(trigger) };
    // An old central trigger board raises the upper part of its counter one trigger too late.
    let is_stale = trigger & 0xffff == 0 && last & 0xffff == 0xffff && (last & !0xffff) % WRAP == trigger;
    nearest(last, trigger + if is_stale { 0x1_0000 } else { 0 }, WRAP)
}

impl Framing for Hadaq {
    fn cut(&mut self, datagram: &[u8], cuts: &mut Vec<Cut>) -> Read {
        let Some(size) = unit(datagram) else { return damaged("length") };
        if datagram.first_chunk::<HADAQ_TRAILER>() != datagram.last_chunk() {
            return damaged("trailer");
        }
        let mut at = HADAQ_UNIT;
        while at < size {
            let Some(event) = SubEvent::read(&datagram[at..size]) else {
                cuts.clear();
                return damaged("length");
            };
            let payload = at..at + event.size;
            at += event.size.next_multiple_of(HADAQ_ALIGN);
            let mark = crc32c(&datagram[payload.start..payload.end.min(payload.start + HADAQ_MARK_BYTES)]);
            let number = Number::Board { shown: event.trigger(), mark };
            cuts.push(Cut {
                number,
                numbering: 0,
                stamp: Stamp::Arrival,
                schema: SUB_EVENT,
                flags: event.flags(),
                crc: None,
                payload,
            });
        }
        Read::Whole
    }

    fn counter(&self) -> Counter {
        Counter { wrap: Some(WRAP), is_checked: false }
    }

    fn number(&self, last: Option<u64>, shown: u64) -> Option<u64> {
        number(last, shown)
    }
}

/// The size of the unit in a datagram; `None` where the datagram does not have its length.
fn unit(datagram: &[u8]) -> Option<usize> {
    let [size, _] = words(datagram)?;
    let size = size as usize;
    // At most 2^32 + 32 + 7, which a `usize` holds.
    let length = size.checked_next_multiple_of(HADAQ_ALIGN)?.checked_add(HADAQ_TRAILER)?;
    (size >= HADAQ_UNIT && length == datagram.len()).then_some(size)
}

/// The header of a sub-event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubEvent {
    /// Bytes, with the header and without padding: at least 16.
    pub(crate) size: usize,
    decoding: u32,
    /// Its sender, and in bit 31 whether its data have errors.
    id: u32,
    /// Number and tag of the trigger.
    pub(crate) word: u32,
}

impl SubEvent {
    /// Reads the header of the sub-event that these bytes begin with; `None` where they are fewer than it says.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let [size, decoding, id, word] = words(bytes)?;
        let size = size as usize;
        (HADAQ_HEADER..=bytes.len()).contains(&size).then_some(Self { size, decoding, id, word })
    }

    /// The number of its trigger, 24 bits.
    pub(crate) fn trigger(self) -> u64 {
        u64::from(self.word >> 8)
    }

    /// The hub that sent it.
    pub(crate) fn hub(self) -> u16 {
        self.id as u16
    }

    /// The type of its trigger, 4 bits.
    pub(crate) fn kind(self) -> u32 {
        self.decoding >> 4 & 0xf
    }

    /// The flags of its message: the tag of its trigger, and whether its data have errors.
    pub(crate) fn flags(self) -> u16 {
        let error = if self.id & HADAQ_ERROR == 0 { 0 } else { flags::SUSPECT };
        flags::of_source(self.word as u8) | error
    }
}

/// The first words, in the byte order that the second of them says; `None` where there are fewer bytes.
pub(crate) fn words<const N: usize>(bytes: &[u8]) -> Option<[u32; N]> {
    let word = |at: usize| bytes.get(4 * at..)?.first_chunk().copied();
    let is_big = u32::from_le_bytes(word(1)?) > 0xff_ffff;
    let mut words = [0; N];
    for (at, place) in words.iter_mut().enumerate() {
        let bytes = word(at)?;
        *place = if is_big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::{cut, vectors};

    /// `tests/framings.py` made them.
    #[test]
    fn datagrams_made_by_another_implementation_are_cut_alike() {
        for (bytes, messages) in vectors("hadaq") {
            let (read, cuts) = cut(&mut Hadaq, &bytes);
            let Some(messages) = messages.as_array() else {
                assert_eq!((read, cuts.len()), (damaged(if messages == "length" { "length" } else { "trailer" }), 0));
                continue;
            };
            assert_eq!((read, cuts.len()), (Read::Whole, messages.len()));
            let mut last = None;
            for (cut, message) in cuts.iter().zip(messages) {
                let number = |name: &str| message[name].as_u64().unwrap();
                let Number::Board { shown, .. } = cut.number else { panic!("{cut:?}") };
                last = super::number(last, shown);
                assert_eq!(last, Some(number("number")), "{cut:?}");
                let start = number("offset") as usize;
                assert_eq!(cut.payload, start..start + number("length") as usize);
                assert_eq!(u64::from(flags::byte_of_source(cut.flags)), number("tag"));
                assert_eq!(cut.flags & !flags::of_source(255) == flags::SUSPECT, message["is_suspect"] == true);
                assert_eq!((cut.stamp, cut.schema), (Stamp::Arrival, SUB_EVENT));
            }
        }
    }

    #[test]
    fn numbers_go_on_where_they_begin_again() {
        let wrap = WRAP - 1;
        for (last, trigger, expected) in [
            (None, wrap, Some(wrap)),
            (Some(wrap - 1), wrap, Some(wrap)),
            (Some(wrap), 0, Some(WRAP)),
            (Some(WRAP), wrap - 1, Some(wrap - 1)),
            (Some(WRAP), 1, Some(WRAP + 1)),
            // A message that was sent before number 0 has none.
            (Some(5), wrap, None),
            (Some(3 * WRAP - 1), wrap - 2, Some(3 * WRAP - 3)),
            (Some(3 * WRAP - 1), 7, Some(3 * WRAP + 7)),
            (Some(u64::MAX), wrap, Some(u64::MAX)),
            (Some(u64::MAX), 0, None),
        ] {
            assert_eq!(number(last, trigger), expected, "{trigger} after {last:?}");
        }
    }

    #[test]
    fn a_number_whose_upper_part_is_late_is_corrected() {
        let of = |first: Option<u64>, triggers: [u64; 3]| {
            let mut last = first;
            triggers.map(|trigger| {
                last = number(last, trigger);
                last.unwrap()
            })
        };
        assert_eq!(of(Some(0x01_fffe), [0x01_ffff, 0x01_0000, 0x02_0001]), [0x01_ffff, 0x02_0000, 0x02_0001]);
        assert_eq!(of(None, [0xff_ffff, 0xff_0000, 1]), [0xff_ffff, WRAP, WRAP + 1]);
    }

    #[test]
    fn a_changed_beginning_is_seen() {
        let (bytes, _) = vectors("hadaq").remove(0);
        for bit in (0..8 * HADAQ_TRAILER).chain(8 * (bytes.len() - HADAQ_TRAILER)..8 * bytes.len()) {
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let (read, cuts) = cut(&mut Hadaq, &bytes);
            assert!(matches!(read, Read::Refused { is_damaged: true, .. }) && cuts.is_empty(), "bit {bit}");
        }
    }
}
