//! A framing by a table: which bytes of a datagram are constants, numbers, times and lengths.
//!
//! ```toml
//! [source.array.framing]
//! order = "big"
//! header = 16                        # bytes before the payload
//! constants = { "u16 at 0" = 0xcafe }
//! number = "u32 at 4"
//! time = "u64 at 8"
//! ```
//!
//! Constraints: the table is compiled when the file is read; of a message a handful of fields is looked at, and
//! nothing is allocated.
//!
//! Failure behaviour: a datagram that does not have the constants is foreign; one with a wrong length or checksum is
//! damaged.

mod explain;
mod field;
mod read;
mod sum;

pub(crate) use read::{reference, schema_of};

use super::{Counter, Cut, Framing, Number, Read, Stamp, damaged, foreign, geb};
use crate::limits::{GEB_HEADER, MARK_BYTES};
use field::Field;
use std::sync::Arc;
use store::{SchemaId, flags};
use sum::Sum;

/// Where a time stands.
#[derive(Clone, Debug)]
enum Time {
    /// Nowhere: it is that of arrival.
    Arrival,
    /// Ticks, whose unit and zero the source says.
    Ticks(Field),
    /// ns since 1970 UTC.
    Epoch(Field),
    /// Seconds since 1970 UTC, and ticks of a rate a second in them.
    Seconds(Field, Option<(Field, f64)>),
}

/// The table, compiled.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// Bytes before and behind the payload.
    header: usize,
    trailer: usize,
    /// A message is the whole unit.
    with_header: bool,
    /// Least bytes of a unit: all fields are in it.
    least: usize,
    constants: Vec<(Field, Vec<u64>)>,
    number: Option<Field>,
    /// The number of a datagram among those of one number, and how many these are.
    packet: Option<(Field, u64)>,
    /// Numbers begin again here; 0: never.
    wrap: u64,
    time: Time,
    origin: Option<Field>,
    stream: Option<Field>,
    /// Bytes of a unit, with what is to be added to them.
    length: Option<(Field, i64)>,
    /// Units begin at multiples of this.
    align: usize,
    schema: SchemaId,
    /// Which schema id a message has by the value of a field.
    kinds: Option<(Field, Vec<(u64, SchemaId)>)>,
    suspect: Option<Field>,
    tag: Option<Field>,
    sum: Option<Sum>,
}

/// The framing of one port.
pub(crate) struct ByTable {
    table: Arc<Table>,
    stream: u16,
}

impl ByTable {
    pub(crate) fn new(table: Arc<Table>) -> Self {
        Self { table, stream: 0 }
    }
}

impl Framing for ByTable {
    fn cut(&mut self, datagram: &[u8], cuts: &mut Vec<Cut>) -> Read {
        let mut at = 0;
        loop {
            match self.table.unit(&datagram[at..]) {
                Ok((length, mut cut)) => {
                    if at == 0 {
                        let field = self.table.stream.as_ref();
                        self.stream = field.and_then(|field| field.of(datagram)).map_or(0, |stream| stream as u16);
                    }
                    cut.payload = at + cut.payload.start..at + cut.payload.end;
                    cuts.push(cut);
                    at += length.next_multiple_of(self.table.align);
                }
                Err(read) => {
                    cuts.clear();
                    return read;
                }
            }
            // Padding behind the last unit may be missing.
            if at >= datagram.len() {
                return Read::Whole;
            }
        }
    }

    fn counter(&self) -> Counter {
        let wrap = Some(self.table.wrap).filter(|wrap| *wrap > 0);
        Counter { wrap, is_checked: self.table.sum.is_some() }
    }

    fn stream(&self) -> u16 {
        self.stream
    }
}

impl Table {
    /// A datagram is a message, as it came.
    pub(crate) fn raw(schema: SchemaId) -> Self {
        Self {
            header: 0,
            trailer: 0,
            with_header: false,
            least: 0,
            constants: Vec::new(),
            number: None,
            packet: None,
            wrap: 0,
            time: Time::Arrival,
            origin: None,
            stream: None,
            length: None,
            align: 1,
            schema,
            kinds: None,
            suspect: None,
            tag: None,
            sum: None,
        }
    }

    /// Units of GRETINA and GRETA one behind the other, each of a header of 16 bytes (type, i32; bytes of the
    /// payload, i32; timestamp in ticks of 10 ns, i64; little endian) and its payload. A message is a unit with its
    /// header, so that a file is its messages one behind the other. Units have no numbers.
    pub(crate) fn geb() -> Self {
        Self {
            header: GEB_HEADER,
            with_header: true,
            least: GEB_HEADER,
            length: Some((Field::new(4, 4), GEB_HEADER as i64)),
            time: Time::Ticks(Field::new(8, 8)),
            ..Self::raw(geb::UNIT)
        }
    }

    /// Bits of the counter of ticks; none where times are no ticks.
    pub(crate) fn tick_bits(&self) -> Option<u32> {
        match &self.time {
            Time::Ticks(field) => Some(field.bits),
            _ => None,
        }
    }

    /// The first unit: its bytes, and the message in it.
    fn unit(&self, bytes: &[u8]) -> Result<(usize, Cut), Read> {
        if bytes.len() < self.least {
            return Err(foreign("size"));
        }
        self.check_constants(bytes, false)?;
        let length = match &self.length {
            None => bytes.len(),
            Some((field, adds)) => {
                let length = field.of(bytes).and_then(|length| i64::try_from(length).ok()?.checked_add(*adds));
                let length = length.and_then(|length| usize::try_from(length).ok());
                length.filter(|n| (self.least.max(1)..=bytes.len()).contains(n)).ok_or(damaged("length"))?
            }
        };
        let unit = &bytes[..length];
        self.check_constants(unit, true)?;
        if let Some(sum) = &self.sum
            && sum.field.of(unit) != sum.of(unit)
        {
            return Err(damaged("checksum"));
        }
        let schema = match &self.kinds {
            None => self.schema,
            Some((field, kinds)) => {
                let kind = field.of(unit).unwrap_or_default();
                let known = kinds.iter().find(|(value, _)| *value == kind);
                known.map(|(_, schema)| *schema).ok_or(foreign("type"))?
            }
        };
        let payload = if self.with_header { 0..length } else { self.header..length - self.trailer };
        let of = |field: &Option<Field>| field.as_ref().and_then(|field| field.of(unit));
        let suspect = if of(&self.suspect).is_some_and(|bits| bits > 0) { flags::SUSPECT } else { 0 };
        let tag = flags::of_source(of(&self.tag).unwrap_or(0) as u8);
        Ok((
            length,
            Cut {
                number: self.number_of(unit),
                numbering: of(&self.origin).map_or(0, |origin| origin as u32),
                stamp: self.stamp(unit),
                schema,
                flags: suspect | tag,
                crc: None,
                payload,
            },
        ))
    }

    /// Whether the constants are those of the framing: `from_end` those that are counted from the end, or the others.
    fn check_constants(&self, unit: &[u8], from_end: bool) -> Result<(), Read> {
        let mut those = self.constants.iter().filter(|(field, _)| field.is_from_end() == from_end);
        match those.all(|(field, values)| field.of(unit).is_some_and(|value| values.contains(&value))) {
            true => Ok(()),
            false => Err(foreign("constant")),
        }
    }

    fn number_of(&self, unit: &[u8]) -> Number {
        let Some(number) = self.number.as_ref().and_then(|field| field.of(unit)) else { return Number::Arrival };
        let shown = match &self.packet {
            None => number,
            Some((packet, count)) => {
                number.saturating_mul(*count).saturating_add(packet.of(unit).unwrap_or(0).min(count - 1))
            }
        };
        Number::Board { shown, mark: store::crc32c(&unit[..unit.len().min(MARK_BYTES)]) }
    }

    fn stamp(&self, unit: &[u8]) -> Stamp {
        match &self.time {
            Time::Arrival => Stamp::Arrival,
            Time::Ticks(field) => Stamp::Ticks(field.of(unit).unwrap_or_default()),
            Time::Epoch(field) => {
                let time = field.of(unit).unwrap_or_default();
                i64::try_from(time).map_or(Stamp::Ticks(time), Stamp::Epoch)
            }
            Time::Seconds(seconds, ticks) => {
                let seconds = seconds.of(unit).unwrap_or_default();
                let within = ticks
                    .as_ref()
                    .map_or(0.0, |(field, rate)| (field.of(unit).unwrap_or_default() as f64 * 1e9 / rate).round());
                let time = i64::try_from(seconds).ok().and_then(|seconds| seconds.checked_mul(1_000_000_000));
                time.and_then(|time| time.checked_add(within as i64)).map_or(Stamp::Ticks(seconds), Stamp::Epoch)
            }
        }
    }

    /// What a simulated board sends: a unit with this number, time (ns since 1970 UTC, and ticks of the source),
    /// schema id and payload.
    pub(crate) fn datagram(&self, number: u64, (time, ticks): (i64, u64), schema: [u8; 4], payload: &[u8]) -> Vec<u8> {
        let header = if self.with_header { self.least } else { self.header };
        let mut unit = vec![0; header];
        unit.extend_from_slice(payload);
        unit.resize((unit.len() + self.trailer).max(self.least), 0);
        let length = unit.len() as i64;
        let mut set = |field: Option<&Field>, value: u64| {
            if let Some(field) = field {
                field.set(&mut unit, value);
            }
        };
        self.constants.iter().for_each(|(field, values)| set(Some(field), values.first().copied().unwrap_or(0)));
        match &self.packet {
            Some((packet, count)) => {
                set(self.number.as_ref(), number / count);
                set(Some(packet), number % count);
            }
            None => set(self.number.as_ref(), number),
        }
        match &self.time {
            Time::Arrival => {}
            Time::Ticks(field) => set(Some(field), ticks),
            Time::Epoch(field) => set(Some(field), time as u64),
            Time::Seconds(field, within) => {
                set(Some(field), time.div_euclid(1_000_000_000) as u64);
                if let Some((field, rate)) = within {
                    set(Some(field), (time.rem_euclid(1_000_000_000) as f64 * rate / 1e9) as u64);
                }
            }
        }
        if let Some((field, adds)) = &self.length {
            set(Some(field), (length - adds) as u64);
        }
        if let Some((field, kinds)) = &self.kinds {
            let kind = kinds.iter().find(|(_, id)| id.0 == schema).or(kinds.first());
            set(Some(field), kind.map_or(0, |(value, _)| *value));
        }
        if let Some(sum) = &self.sum {
            let value = sum.of(&unit).unwrap_or_default();
            sum.field.set(&mut unit, value);
        }
        unit
    }
}

#[cfg(test)]
mod tests;
