//! Framings: how a datagram becomes messages. A program of its own adds one of its own:
//!
//! ```no_run
//! use beamport_udp::framing::{Cut, Framing, FramingKind, Number, Read, Stamp};
//! use flow::edge::SourceKind;
//! use std::sync::Arc;
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
//! static MINE: FramingKind =
//!     FramingKind::new("mine", "a number and a payload", |_section, _schema| Arc::new(|_origin| Box::new(Mine)));
//! static UDP: SourceKind = beamport_udp::source(|name, section| beamport_udp::read(name, section, &[&MINE]));
//! // beamport::run(&beamport::Registry::builtin().source(&UDP))
//! ```
//!
//! Failure behaviour: any bytes may come; they are cut or refused with a word, and nothing panics.

mod beamport;
mod ess;
pub(crate) mod geb;
pub(crate) mod hadaq;
mod library;
mod raw;
mod table;

pub(crate) use beamport::{BEAMPORT, sign};
pub(crate) use library::{ByLibrary, Library};
pub(crate) use table::{ByTable, Table, reference, schema_of};

pub use crate::numbers::Counter;
use settings::{Key, Section};
use std::ops::Range;
use std::sync::Arc;
use store::SchemaId;
use wire::limits::HEADER_BYTES;

/// The framings of beamport. A file for each, and a line here.
pub(crate) static FRAMINGS: &[&FramingKind] = &[&BEAMPORT, &ess::ESS, &geb::GEB, &hadaq::HADAQ, &raw::RAW];

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
    /// The board. `mark`: recognises a repetition of the same datagram.
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

/// The kind of a datagram, beside the messages in it.
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

/// Makes the framing of a port, whose messages have this origin.
pub type MakeFraming = Arc<dyn Fn(&str) -> Box<dyn Framing> + Send + Sync>;

/// A framing that an instrument file can name.
#[derive(Debug)]
pub struct FramingKind {
    /// The word behind `framing`.
    pub word: &'static str,
    /// The content of a datagram, for the reference page.
    pub about: &'static str,
    /// Keys of the section that it reads beside those of every source of kind `udp`.
    pub keys: &'static [&'static Key],
    /// The clock of its boards, where they count ticks.
    pub ticks: Option<Ticks>,
    /// Reads its keys; `schema`: the key `schema`, of messages that have none of their own.
    pub build: fn(section: &mut Section<'_>, schema: SchemaId) -> MakeFraming,
    /// Writes the head of a message that a simulated board sends, and returns how many bytes of [`Outgoing::head`] it
    /// takes. `None`: there are no simulated boards of this framing.
    pub head: Option<fn(&mut Outgoing<'_>) -> usize>,
}

impl FramingKind {
    /// A framing without keys, ticks and simulated boards.
    #[must_use]
    pub const fn new(
        word: &'static str,
        about: &'static str,
        build: fn(&mut Section<'_>, SchemaId) -> MakeFraming,
    ) -> Self {
        Self { word, about, keys: &[], ticks: None, build, head: None }
    }

    /// The framing of a port whose section gives none of its keys; none where one of them must be given.
    pub(crate) fn plain(&self, origin: &str, schema: SchemaId) -> Option<Box<dyn Framing>> {
        let none = serde_json::json!({});
        let make = settings::read_json(&none, |section| Some((self.build)(section, schema)));
        make.ok().map(|make| make(origin))
    }
}

/// A clock that counts ticks.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    /// Bits of its counter.
    pub bits: u32,
    /// Unit, ns, where the key `tick` gives no other.
    pub unit: i64,
}

/// A message that a simulated board sends.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// Its number among the messages of the board, from 0.
    pub number: u64,
    /// Its time, ns since 1970 UTC.
    pub time: u64,
    /// The same in ticks of the source, from its zero.
    pub ticks: i64,
    /// The schema id of the payload.
    pub schema: [u8; 4],
    /// CRC-32C of the payload.
    pub crc: u32,
    /// The number of the board among all of the instrument file, from 0.
    pub place: usize,
    /// What is before the payload: zeros.
    pub head: &'a mut [u8; HEADER_BYTES],
    /// The payload; what is behind it in the datagram is added to it.
    pub payload: &'a mut Vec<u8>,
}

/// A framing of one port.
pub trait Framing: Send {
    /// Adds the messages in a datagram to `cuts`, which is empty.
    fn cut(&mut self, datagram: &[u8], cuts: &mut Vec<Cut>) -> Read;

    /// The header before the payload in a message of the last datagram. `number`: of the message; `bytes`: of its
    /// payload.
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

    /// The letters before the number of a numbering in the name of its origin.
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

/// The messages that a framing cuts from a datagram.
#[cfg(test)]
pub(crate) fn cut(framing: &mut dyn Framing, datagram: &[u8]) -> (Read, Vec<Cut>) {
    let mut cuts = Vec::new();
    let read = framing.cut(datagram, &mut cuts);
    (read, cuts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_framing_asks_for_the_keys_that_it_declares_and_has_its_row_in_the_page() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/udp.md");
        let page = std::fs::read_to_string(page).unwrap();
        for kind in FRAMINGS {
            let mut asked = BTreeSet::new();
            let read = settings::read_json(&serde_json::json!({}), |section| {
                let make = (kind.build)(section, SchemaId(*b"raw0"));
                asked.extend(section.asked.iter().copied());
                Some(make)
            });
            assert!(read.is_ok(), "{}: a key without a default", kind.word);
            assert_eq!(asked, kind.keys.iter().map(|key| key.name).collect(), "{}", kind.word);
            let row = format!("| `{}` | {} |", kind.word, kind.about);
            assert!(page.contains(&row), "no row of the page begins with {row}");
        }
    }
}
