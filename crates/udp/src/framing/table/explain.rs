//! The fields that a table reads in a datagram, for people.

use super::field::Field;
use super::{Table, Time};

/// A field of a datagram as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// The key of the table, and where the field lies.
    pub(crate) key: &'static str,
    pub(crate) field: String,
    /// Its value; none where the datagram is too short.
    pub(crate) value: Option<u64>,
    /// The fault in it.
    pub(crate) wrong: Option<String>,
}

impl Table {
    /// The fields of the first unit of a datagram, in the order of the reference page.
    pub(crate) fn explain(&self, datagram: &[u8]) -> Vec<Shown> {
        let length = self.length.as_ref().and_then(|(field, adds)| {
            let length = i64::try_from(field.of(datagram)?).ok()?.checked_add(*adds)?;
            usize::try_from(length).ok()
        });
        let unit = length.and_then(|length| datagram.get(..length)).unwrap_or(datagram);
        let mut all = Vec::new();
        let mut show = |key: &'static str, field: &Field, wrong: Option<String>| {
            let value = field.of(unit);
            let wrong = wrong.or_else(|| value.is_none().then(|| format!("the unit has {} bytes", unit.len())));
            all.push(Shown { key, field: field.to_string(), value, wrong });
        };
        for (field, values) in &self.constants {
            let is_one = field.of(unit).is_none_or(|value| values.contains(&value));
            let wanted: Vec<String> = values.iter().map(|value| format!("{value:#x}")).collect();
            show("constants", field, (!is_one).then(|| format!("it should be {}", wanted.join(" or "))));
        }
        let mut field = |key: &'static str, field: Option<&Field>| {
            if let Some(field) = field {
                show(key, field, None);
            }
        };
        field("number", self.number.as_ref());
        field("packet", self.packet.as_ref().map(|(packet, _)| packet));
        match &self.time {
            Time::Arrival => {}
            Time::Ticks(time) | Time::Epoch(time) => field("time", Some(time)),
            Time::Seconds(seconds, ticks) => {
                field("seconds", Some(seconds));
                field("ticks", ticks.as_ref().map(|(ticks, _)| ticks));
            }
        }
        field("origin", self.origin.as_ref());
        field("stream", self.stream.as_ref());
        if let Some((at, adds)) = &self.length {
            let is_wrong = length.is_none_or(|length| length < self.least.max(1) || length > datagram.len());
            let wrong = is_wrong.then(|| {
                let length = length.map_or_else(|| "no length".to_owned(), |length| format!("{length} bytes"));
                format!("with {adds} it is {length}; {} are left, {} are the least", datagram.len(), self.least)
            });
            show("length", at, wrong);
        }
        if let Some((kind, kinds)) = &self.kinds {
            let is_known = kind.of(unit).is_none_or(|value| kinds.iter().any(|(known, _)| *known == value));
            show("type", kind, (!is_known).then(|| "`schemas` does not have it".to_owned()));
        }
        for (key, at) in [("suspect", &self.suspect), ("tag", &self.tag)] {
            if let Some(at) = at {
                show(key, at, None);
            }
        }
        if let Some(sum) = &self.sum {
            let (found, made) = (sum.field.of(unit), sum.of(unit));
            let wrong = (found.is_some() && found != made).then(|| match made {
                Some(made) => format!("of these bytes it is {made:#x}"),
                None => "the bytes that it covers are not there".to_owned(),
            });
            show("checksum", &sum.field, wrong);
        }
        all
    }
}
