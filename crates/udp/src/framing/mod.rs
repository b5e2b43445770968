//! Framings: how a datagram becomes messages. A program of its own adds one of its own:
//!
//! ```no_run
//! use beamport_udp::framing::{Cut, Framing, FramingKind, Number, Read, Stamp};
//! use flow::edge::SourceKind;
//!
//! struct Mine;
//!
//! impl Framing for Mine {
//!     fn cut(&mut self, datagram: &[u8], cuts: &mut Vec<Cut>) -> Read {
//!         let Some((head, payload)) = datagram.split_first_chunk::<8>() else { return Read::foreign("size") };
//!         let number = Number::Board { shown: u64::from_be_bytes(*head), mark: store::crc32c(head) };
//!         cuts.push(Cut::new(number, Stamp::Arrival, *b"mine", 8..8 + payload.len()));
//!         Read::Whole
//!     }
//! }
//!
//! static MINE: FramingKind = FramingKind { name: "mine", build: |_origin| Box::new(Mine) };
//! static UDP: SourceKind = beamport_udp::source(|name, section| beamport_udp::read(name, section, &[&MINE]));
//! // beamport::run(&beamport::Registry::builtin().source(&UDP))
//! ```
//!
//! Failure behaviour: any bytes may come; they are cut or refused with a word, and nothing panics.

mod beamport;
pub(crate) mod ess;
pub(crate) mod geb;
pub(crate) mod hadaq;
mod library;
mod table;

pub(crate) use beamport::Beamport;
pub(crate) use ess::Ess;
pub(crate) use hadaq::Hadaq;
pub(crate) use library::{ByLibrary, Library};
pub(crate) use table::{ByTable, Table, reference, schema_of};

pub use crate::numbers::Counter;
use std::ops::Range;
use store::SchemaId;

/// A time that a board gives a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// ns since 1970 UTC.
    Epoch(i64),
    /// Ticks of the board.
    Ticks(u64),
    /// None: the time of arrival.
    Arrival,
}

/// Where a message gets its number from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// The board. `mark`: by which the same datagram is recognised when it comes again.
    Board {
        /// As the board shows it: [`Framing::number`].
        shown: u64,
        /// A checksum of what is around it.
        mark: u32,
    },
    /// The receiver counts: what was sent is not known.
    Arrival,
}

/// A message in a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Where its number is from.
    pub number: Number,
    /// Which of the numberings of the board the number belongs to; 0 where it has one.
    pub numbering: u32,
    /// Its time.
    pub stamp: Stamp,
    /// How its bytes are to be read.
    pub schema: SchemaId,
    /// `store::flags` that the board gives it.
    pub flags: u16,
    /// CRC-32C of its bytes, if it has been checked.
    pub crc: Option<u32>,
    /// Its bytes in the datagram.
    pub payload: Range<usize>,
}

/// What a datagram is, beside the messages in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// Nothing else.
    Whole,
    /// It says the number of the next message.
    Next(u64, Stamp),
    /// It is refused for this reason; `is_damaged`: it may have been a message.
    Refused {
        /// One word.
        reason: &'static str,
        /// A checksum or a length is wrong.
        is_damaged: bool,
    },
}

impl Read {
    /// It is nothing that this framing sends; `reason` is one word.
    #[must_use]
    pub const fn foreign(reason: &'static str) -> Self {
        Self::Refused { reason, is_damaged: false }
    }

    /// It is refused and may have been a message: it explains a missing number. `reason` is one word.
    #[must_use]
    pub const fn damaged(reason: &'static str) -> Self {
        Self::Refused { reason, is_damaged: true }
    }
}

/// Shorter, for the framings here.
const fn foreign(reason: &'static str) -> Read {
    Read::foreign(reason)
}

const fn damaged(reason: &'static str) -> Read {
    Read::damaged(reason)
}

impl Cut {
    /// A message without flags of the board that the port has. `payload`: its bytes in the datagram.
    #[must_use]
    pub const fn new(number: Number, stamp: Stamp, schema: [u8; 4], payload: Range<usize>) -> Self {
        Self { number, numbering: 0, stamp, schema: SchemaId(schema), flags: 0, crc: None, payload }
    }
}

/// A framing that a program adds to those of beamport.
#[derive(Debug)]
pub struct FramingKind {
    /// The word behind `framing`.
    pub name: &'static str,
    /// Makes the framing of a port, whose messages have this origin.
    pub build: fn(&str) -> Box<dyn Framing>,
}

/// A framing of one port.
pub trait Framing: Send {
    /// Adds the messages in a datagram to `cuts`, which is empty.
    fn cut(&mut self, datagram: &[u8], cuts: &mut Vec<Cut>) -> Read;

    /// What is before the payload in a message of the last datagram. `number`: of the message; `bytes`: of its payload.
    fn head(&mut self, _number: u64, _bytes: usize) -> &[u8] {
        &[]
    }

    /// The number that a board shows, as if its counter never began again. `last`: the highest one before. `None`: it
    /// is below 0.
    fn number(&self, last: Option<u64>, shown: u64) -> Option<u64> {
        match (self.counter().wrap, last) {
            (Some(wrap), Some(last)) => nearest(last, shown, wrap),
            _ => Some(shown),
        }
    }

    /// How boards count.
    fn counter(&self) -> Counter {
        Counter::default()
    }

    /// What is before the number of a numbering in the name of its origin.
    fn numbering_word(&self) -> &'static str {
        ""
    }

    /// The number of the detector in the newest datagram; 0 where the framing has none.
    fn stream(&self) -> u16 {
        0
    }
}

/// The number nearest to `last` that a counter shows as `shown` which begins again at `wrap`. `None`: it is below 0.
pub(crate) fn nearest(last: u64, shown: u64, wrap: u64) -> Option<u64> {
    let ahead = (shown % wrap + wrap - last % wrap) % wrap;
    if ahead <= wrap / 2 { last.checked_add(ahead) } else { last.checked_sub(wrap - ahead) }
}

/// Datagrams that `tests/framings.py` made, of one framing: the bytes, and the messages in them or the reason why there
/// are none.
#[cfg(test)]
pub(crate) fn vectors(framing: &str) -> Vec<(Vec<u8>, serde_json::Value)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/framings.json");
    let all: Vec<serde_json::Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let of_framing: Vec<_> = all
        .iter()
        .filter(|one| one["framing"] == framing)
        .map(|one| (unhex(&one["hex"]), one["messages"].clone()))
        .collect();
    assert!(of_framing.len() >= 9, "{framing}");
    of_framing
}

/// Bytes from hexadecimal digits.
#[cfg(test)]
pub(crate) fn unhex(hex: &serde_json::Value) -> Vec<u8> {
    let hex = hex.as_str().unwrap();
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
}

/// What a framing makes of a datagram.
#[cfg(test)]
pub(crate) fn cut(framing: &mut dyn Framing, datagram: &[u8]) -> (Read, Vec<Cut>) {
    let mut cuts = Vec::new();
    let read = framing.cut(datagram, &mut cuts);
    (read, cuts)
}
