//! What an update of a PV says, whoever brought it: the library, or a simulated PV.

use crate::limits::NAMED_MAX;
use std::borrow::Cow;
use wire::DType;

/// The subject of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The channel is connected; `text` is the address of its server.
    Connected,
    /// The channel has lost its server.
    Disconnected,
    /// A value, or a change of the alarm.
    Value,
    /// The server refused the channel, or its data cannot be read: `text` says why.
    Refused,
    /// `count` updates were overwritten in the client's queue before the next one.
    Squashed,
    /// The server ended the subscription.
    Finished,
    /// The answer to a write; `text` says why it failed.
    Written { tag: i32, failed: Option<Failed> },
}

/// How a write has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    /// The server refused it, or the PV cannot take the value.
    Refused,
    /// No server has the PV, or the connection was lost.
    NoServer,
    /// There was no answer in time.
    NoAnswer,
}

/// The form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Scalar,
    Array,
    /// The index, of one element; `text` is its choice.
    Enum,
    Table,
    Image,
    /// Another structure, or a union: type and value in PVA's own encoding.
    Other,
}

/// The type of the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    None,
    Number(DType),
    /// Strings, each with its length before it, a u32 in the order of the machine.
    Text,
}

/// Elements of one type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Elements<'a> {
    pub(crate) kind: Kind,
    pub(crate) count: usize,
    pub(crate) bytes: &'a [u8],
}

impl Default for Elements<'_> {
    fn default() -> Self {
        Self { kind: Kind::None, count: 0, bytes: &[] }
    }
}

impl<'a> Elements<'a> {
    /// Strings of the elements. Bytes that are no strings end them.
    pub(crate) fn texts(&self) -> impl Iterator<Item = Cow<'a, str>> + use<'a> {
        let mut rest = if self.kind == Kind::Text { self.bytes } else { &[] };
        std::iter::from_fn(move || {
            let (length, behind) = rest.split_first_chunk::<4>()?;
            let (one, behind) = behind.split_at_checked(u32::from_ne_bytes(*length) as usize)?;
            rest = behind;
            Some(text(one))
        })
    }
}

/// A column of a table, or an attribute of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) description: &'a [u8],
    pub(crate) source: &'a [u8],
    pub(crate) values: Elements<'a>,
}

/// Columns of a table, or attributes of an image, where they are in memory.
pub(crate) trait NamedList {
    /// One of them; none behind the last.
    fn get(&self, at: usize) -> Option<Named<'_>>;
}

#[cfg(test)]
impl<const N: usize> NamedList for [Named<'_>; N] {
    fn get(&self, at: usize) -> Option<Named<'_>> {
        self.as_slice().get(at).copied()
    }
}

/// Columns of a table, or attributes of an image; by default none.
#[derive(Clone, Copy, Default)]
pub(crate) struct Columns<'a>(Option<&'a dyn NamedList>);

impl<'a> Columns<'a> {
    pub(crate) fn of(list: &'a dyn NamedList) -> Self {
        Self(Some(list))
    }

    /// The first of them, as many as are read.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Named<'a>> + use<'a> {
        let list = self.0;
        (0..NAMED_MAX).map_while(move |at| list?.get(at))
    }
}

impl std::fmt::Debug for Columns<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The parts of a frame alone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Frame<'a> {
    /// Sizes, the fastest first.
    pub(crate) dims: &'a [u64],
    pub(crate) unique_id: Option<i32>,
    /// When the data were taken, ns since 1970 UTC; 0 where that is unknown.
    pub(crate) data_time: i64,
    /// Name of the codec; empty without one.
    pub(crate) codec: &'a [u8],
    /// Bytes before the codec.
    pub(crate) uncompressed: u64,
    /// Parts of attributes that have no place in a message.
    pub(crate) dropped: u32,
    /// Element type before the codec.
    pub(crate) codec_type: Option<DType>,
}

/// One update.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Update<'a> {
    /// The subscription.
    pub(crate) id: u64,
    pub(crate) what: What,
    pub(crate) form: Form,
    /// Of `Squashed`: how many. Of a frame: how often its server has reported that it overwrote some.
    pub(crate) count: u64,
    /// Time of the PV, ns since 1970 UTC; `None` where it has none.
    pub(crate) time: Option<i64>,
    pub(crate) has_value: bool,
    pub(crate) has_alarm: bool,
    pub(crate) has_units: bool,
    pub(crate) severity: i16,
    pub(crate) text: &'a [u8],
    pub(crate) alarm: &'a [u8],
    pub(crate) units: &'a [u8],
    pub(crate) type_id: &'a [u8],
    pub(crate) value: Elements<'a>,
    /// Columns of a table, attributes of a frame.
    pub(crate) columns: Columns<'a>,
    pub(crate) frame: Frame<'a>,
}

impl Update<'_> {
    /// One without anything in it.
    pub(crate) fn of(id: u64, what: What) -> Self {
        Self {
            id,
            what,
            form: Form::Scalar,
            count: 0,
            time: None,
            has_value: false,
            has_alarm: false,
            has_units: false,
            severity: 0,
            text: &[],
            alarm: &[],
            units: &[],
            type_id: &[],
            value: Elements::default(),
            columns: Columns::default(),
            frame: Frame::default(),
        }
    }
}

/// Text from EPICS, which is UTF-8, or Latin-1 where it is older.
pub(crate) fn text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(bytes.iter().map(|byte| char::from(*byte)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_units_are_latin_1() {
        assert_eq!(text("°C".as_bytes()), "°C");
        assert_eq!(text(b"\xb0C"), "°C");
    }

    #[test]
    fn strings_that_are_cut_end_the_list() {
        let mut bytes = Vec::new();
        for one in ["a", "", "long"] {
            bytes.extend_from_slice(&(one.len() as u32).to_ne_bytes());
            bytes.extend_from_slice(one.as_bytes());
        }
        let list = |bytes: &[u8]| {
            let elements = Elements { kind: Kind::Text, count: 3, bytes };
            elements.texts().map(Cow::into_owned).collect::<Vec<_>>()
        };
        assert_eq!(list(&bytes), ["a", "", "long"]);
        assert_eq!(list(&bytes[..bytes.len() - 1]), ["a", ""]);
        assert_eq!(list(&bytes[..3]), [""; 0]);
    }
}
