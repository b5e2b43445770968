//! The keys of a table.

use super::field::Field;
use super::sum::{Kind, Sum};
use super::{Table, Time};
use crate::limits::FIELD_AT_MAX;
use serde_json::{Map, Value as Json};
use settings::units::Refused;
use settings::{Key, Section, Setting, key};
use std::str::FromStr;
use store::SchemaId;

const FIELD: &str = "field, like `u32 at 8`";

static ORDER: Key = key("order", "`little` or `big`", "little", "Byte order of fields that do not name one (`u16be`).");
static HEADER: Key = key("header", "bytes", "0", "Bytes of a unit before the payload.");
static TRAILER: Key = key("trailer", "bytes", "0", "Bytes of a unit behind the payload.");
static MESSAGE: Key = key(
    "message",
    "`payload` or `unit`",
    "payload",
    "What a message is: the payload, or the whole unit with header and trailer.",
);
static CONSTANTS: Key = key(
    "constants",
    "table of fields",
    "{}",
    "Values that fields have in every unit, one or a list of them: `{ \"u16 at 0\" = 0xcafe, \"u8 at 2\" = [1, 2] }`. \
     Others are `refused.constant`.",
);
static NUMBER: Key = key("number", FIELD, "", "The number of a message. Default: counted on arrival.");
static PACKET: Key = key(
    "packet",
    FIELD,
    "",
    "Where several datagrams have one number (that of a frame): which of them it is, from 0. The number of a message \
     is then number x `packets` + packet.",
);
static PACKETS: Key = key("packets", "number, 1 or more", "", "How many datagrams have one number.");
static WRAP: Key = key(
    "wrap",
    "number, 2 or more",
    "",
    "Numbers begin again from 0 here. Default: behind the largest number that the field holds.",
);
static TIME: Key = key(
    "time",
    FIELD,
    "",
    "The time of a message: ns since 1970 UTC, or with `tick` of the source ticks since its `zero`. Default: arrival.",
);
static SECONDS: Key = key("seconds", FIELD, "", "Instead of `time`: seconds since 1970 UTC.");
static TICKS: Key = key("ticks", FIELD, "", "With `seconds`: the time within the second, in ticks of `rate`.");
static RATE: Key = key("rate", "number, 1/s", "1e9", "Ticks a second.");
static ORIGIN: Key = key(
    "origin",
    FIELD,
    "",
    "Which of several boards at one port sent it: each value but 0 is an origin of its own, `SOURCE.VALUE`, with its \
     own numbers; at most 256.",
);
static STREAM: Key =
    key("stream", FIELD, "", "The number of the board, which differs between two senders of one address.");
static LENGTH: Key =
    key("length", FIELD, "", "Bytes of a unit: then a datagram may have several. Default: the datagram is one unit.");
static LENGTH_ADDS: Key =
    key("length_adds", "number", "0", "What `length` does not count: bytes of the header, for example.");
static ALIGN: Key = key("align", "number, 1 to 4096", "1", "Units begin at multiples of this many bytes.");
static TYPE: Key = key("type", FIELD, "", "The kind of a message: `schemas` says which schema id each value has.");
static SCHEMAS: Key = key(
    "schemas",
    "table of schema ids",
    "{}",
    "Schema ids by the values of `type`: `{ 1 = \"ev44\", 2 = \"mon0\" }`. Others are `refused.type`. Without `type` \
     all have the source's `schema`.",
);
static SUSPECT: Key = key("suspect", FIELD, "", "Above 0: the message gets the flag `suspect`.");
static TAG: Key = key("tag", FIELD, "", "Bits 8 to 15 of the flags: the tag of a trigger, for example.");
static CHECKSUM: Key = key(
    "checksum",
    "`crc32c`, `crc32`, `crc16` (X.25), `internet` (RFC 1071) or `sum` (of bytes)",
    "",
    "How the checksum of a unit is made. Default: there is none.",
);
static CHECKSUM_AT: Key =
    key("checksum_at", FIELD, "", "Where it lies. Bytes of its own that it covers count as zeros.");
static CHECKSUM_FROM: Key = key("checksum_from", "bytes", "0", "First byte that it covers; negative: from the end.");
static CHECKSUM_TO: Key =
    key("checksum_to", "bytes", "0", "Behind the last byte that it covers; 0: the end; negative: from the end.");

/// All keys, in the order of the reference page.
static KEYS: [&Key; 26] = [
    &ORDER,
    &HEADER,
    &TRAILER,
    &MESSAGE,
    &CONSTANTS,
    &NUMBER,
    &PACKET,
    &PACKETS,
    &WRAP,
    &TIME,
    &SECONDS,
    &TICKS,
    &RATE,
    &ORIGIN,
    &STREAM,
    &LENGTH,
    &LENGTH_ADDS,
    &ALIGN,
    &TYPE,
    &SCHEMAS,
    &SUSPECT,
    &TAG,
    &CHECKSUM,
    &CHECKSUM_AT,
    &CHECKSUM_FROM,
    &CHECKSUM_TO,
];

/// The table of the reference page.
pub(crate) fn reference() -> String {
    let about = "The table `framing` of a source `udp`: [a header of your own](udp.md#a-header-of-your-own).";
    format!("## Framing\n\n{about}\n\n{}", settings::reference(&KEYS))
}

/// A value of a key that is a text, if there is one.
fn parsed<T: FromStr<Err = Refused>>(section: &mut Section<'_>, key: &'static Key) -> Option<T> {
    let text: Setting<String> = section.get(key)?;
    match text.value.parse() {
        Ok(value) => Some(value),
        Err(refused) => {
            section.refuse(key, refused);
            None
        }
    }
}

/// The schema id that a text is.
pub(crate) fn schema_of(text: &str) -> Option<SchemaId> {
    let id = <[u8; 4]>::try_from(text.as_bytes()).ok()?;
    id.iter().all(u8::is_ascii_alphanumeric).then_some(SchemaId(id))
}

impl Table {
    /// Reads a table. `schema`: of messages without a type. `has_ticks`: the source says the unit of times.
    pub(crate) fn read(section: &mut Section<'_>, (schema, has_ticks): (SchemaId, bool)) -> Option<Self> {
        let order = section.word(&ORDER, &[("little", false), ("big", true)]);
        let is_big = order.is_some_and(|order| order.value);
        let field = |section: &mut Section<'_>, key: &'static Key| {
            parsed::<Field>(section, key).map(|field| field.ordered(is_big))
        };
        let header = section.within(&HEADER, 0..=FIELD_AT_MAX).map_or(0, |bytes| bytes.value as usize);
        let trailer = section.within(&TRAILER, 0..=FIELD_AT_MAX).map_or(0, |bytes| bytes.value as usize);
        let message = section.word(&MESSAGE, &[("payload", false), ("unit", true)]);
        let constants = constants(section, is_big);
        let number = field(section, &NUMBER);
        let packet = field(section, &PACKET);
        let packet = packet_of(section, packet, number.is_some());
        let bits = number.as_ref().map_or(64, |number| number.bits);
        let own_wrap = 1_u64.checked_shl(bits).and_then(|wrap| wrap.checked_mul(packet.as_ref().map_or(1, |p| p.1)));
        let wrap = match section.has(&WRAP) {
            true => section.within(&WRAP, 2..=i64::MAX).map_or(0, |wrap| wrap.value as u64),
            false => own_wrap.unwrap_or(0),
        };
        let time = time(section, is_big, has_ticks);
        let [origin, stream] = [&ORIGIN, &STREAM].map(|key| field(section, key));
        let length = field(section, &LENGTH);
        let adds = section.within(&LENGTH_ADDS, -FIELD_AT_MAX..=FIELD_AT_MAX).map_or(0, |adds| adds.value);
        let align = section.within(&ALIGN, 1..=4096).map_or(1, |align| align.value as usize);
        for key in [&LENGTH_ADDS, &ALIGN] {
            if length.is_none() && section.has(key) {
                lacks(section, key, &LENGTH, "without it a datagram is one unit: add it, or remove this");
            }
        }
        let kinds = kinds(section, is_big);
        let [suspect, tag] = [&SUSPECT, &TAG].map(|key| field(section, key));
        let sum = checksum(section, is_big);
        let all = [&number, &origin, &stream, &suspect, &tag].into_iter().flatten();
        let all = all.chain(constants.iter().map(|(field, _)| field)).chain(length.as_ref());
        let all = all.chain(packet.as_ref().map(|(field, _)| field)).chain(kinds.as_ref().map(|(field, _)| field));
        let all = all.chain(sum.as_ref().map(|sum| &sum.field)).chain(time.fields());
        let least = all.map(Field::least).chain([header + trailer]).max().unwrap_or(0);
        Some(Self {
            header,
            trailer,
            with_header: message.is_some_and(|message| message.value),
            least,
            number,
            packet,
            wrap,
            time,
            origin,
            stream,
            length: length.map(|length| (length, adds)),
            align,
            schema,
            kinds,
            suspect,
            tag,
            sum,
            constants,
        })
    }
}

impl Time {
    /// The fields of a time.
    pub(super) fn fields(&self) -> impl Iterator<Item = &Field> {
        let [first, second] = match self {
            Self::Arrival => [None, None],
            Self::Ticks(field) | Self::Epoch(field) => [Some(field), None],
            Self::Seconds(field, ticks) => [Some(field), ticks.as_ref().map(|(field, _)| field)],
        };
        first.into_iter().chain(second)
    }
}

/// A key needs another one that is not there.
fn lacks(section: &mut Section<'_>, key: &'static Key, other: &Key, hint: &str) {
    section.refuse(key, Refused::new(format!("`{}` is missing", other.name), hint));
}

fn constants(section: &mut Section<'_>, is_big: bool) -> Vec<(Field, Vec<u64>)> {
    let table: Option<Setting<Map<String, Json>>> = section.get(&CONSTANTS);
    let mut all = Vec::new();
    for (text, value) in table.map(|table| table.value).unwrap_or_default() {
        let values: Option<Vec<u64>> = match &value {
            Json::Array(values) => values.iter().map(Json::as_u64).collect(),
            value => value.as_u64().map(|value| vec![value]),
        };
        match (text.parse::<Field>(), values.filter(|values| !values.is_empty())) {
            (Err(refused), _) => section.refuse(&CONSTANTS, refused),
            (Ok(field), None) => {
                let cause = format!("the value of `{field}` is not a number, or a list of numbers from 0");
                section.refuse(&CONSTANTS, Refused::new(cause, "write it like `{ \"u16 at 0\" = 0xcafe }`"));
            }
            (Ok(field), Some(values)) => {
                if values.iter().any(|value| value.checked_shr(field.bits).is_some_and(|more| more > 0)) {
                    let cause = format!("`{field}` has {} bits, the value needs more", field.bits);
                    section.refuse(&CONSTANTS, Refused::new(cause, "write a smaller value, or a wider field"));
                }
                all.push((field.ordered(is_big), values));
            }
        }
    }
    all
}

fn packet_of(section: &mut Section<'_>, packet: Option<Field>, has_number: bool) -> Option<(Field, u64)> {
    if packet.is_none() {
        if section.has(&PACKETS) {
            lacks(section, &PACKETS, &PACKET, "add where the number of a packet stands, like `packet = \"u8 at 3\"`");
        }
        return None;
    }
    if !has_number {
        lacks(section, &PACKET, &NUMBER, "add where the number of the frame stands");
    }
    if !section.has(&PACKETS) {
        lacks(section, &PACKET, &PACKETS, "add how many datagrams have one number, like `packets = 128`");
        return None;
    }
    let count = section.within(&PACKETS, 1..=1 << 20)?;
    packet.map(|packet| (packet, count.value as u64))
}

fn time(section: &mut Section<'_>, is_big: bool, has_ticks: bool) -> Time {
    let mut field = |key: &'static Key| parsed::<Field>(section, key).map(|field| field.ordered(is_big));
    let (time, seconds, ticks) = (field(&TIME), field(&SECONDS), field(&TICKS));
    let rate: f64 = section.get(&RATE).map_or(1e9, |rate| rate.value);
    if rate <= 0.0 {
        section.refuse(&RATE, Refused::new("it is not above zero", "write ticks a second, like `1e9`"));
    }
    if time.is_some() && seconds.is_some() {
        section.refuse(&SECONDS, Refused::new("`time` is there too", "write one of them"));
    }
    if ticks.is_some() && seconds.is_none() {
        lacks(
            section,
            &TICKS,
            &SECONDS,
            "add where the second stands, or write `time` for ticks that never begin again",
        );
    }
    match (time, seconds) {
        (Some(time), _) if has_ticks => Time::Ticks(time),
        (Some(time), _) => Time::Epoch(time),
        (None, Some(seconds)) => Time::Seconds(seconds, ticks.map(|ticks| (ticks, rate))),
        (None, None) => Time::Arrival,
    }
}

fn kinds(section: &mut Section<'_>, is_big: bool) -> Option<(Field, Vec<(u64, SchemaId)>)> {
    let field = parsed::<Field>(section, &TYPE).map(|field| field.ordered(is_big));
    let schemas: Option<Setting<Map<String, Json>>> = section.get(&SCHEMAS);
    let mut all = Vec::new();
    for (value, id) in schemas.map(|schemas| schemas.value).unwrap_or_default() {
        let number = match value.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => value.parse().ok(),
        };
        match (number, id.as_str().and_then(schema_of)) {
            (Some(number), Some(id)) => all.push((number, id)),
            _ => {
                let hint = "write values of `type` and four letters or digits, like `{ 1 = \"ev44\" }`";
                section.refuse(&SCHEMAS, Refused::new(format!("`{value} = {id}` is no schema id of a value"), hint));
            }
        }
    }
    match (&field, all.is_empty()) {
        (Some(_), true) => lacks(section, &TYPE, &SCHEMAS, "add a schema id for each value of `type`"),
        (None, false) => lacks(section, &SCHEMAS, &TYPE, "add where the kind of a message stands"),
        _ => {}
    }
    field.map(|field| (field, all))
}

fn checksum(section: &mut Section<'_>, is_big: bool) -> Option<Sum> {
    let kind: Option<Setting<Kind>> = section.get(&CHECKSUM);
    let field = parsed::<Field>(section, &CHECKSUM_AT).map(|field| field.ordered(is_big));
    let mut bytes = |key: &'static Key| section.within(key, -FIELD_AT_MAX..=FIELD_AT_MAX).map_or(0, |at| at.value);
    let (from, to) = (bytes(&CHECKSUM_FROM), bytes(&CHECKSUM_TO));
    match (kind, field) {
        (Some(kind), Some(field)) => Some(Sum { kind: kind.value, field, from, to }),
        (Some(_), None) => {
            lacks(section, &CHECKSUM, &CHECKSUM_AT, "add where it lies, like `checksum_at = \"u32 at -4\"`");
            None
        }
        (None, Some(_)) => {
            lacks(section, &CHECKSUM_AT, &CHECKSUM, "add how it is made, like `checksum = \"crc32c\"`");
            None
        }
        (None, None) => None,
    }
}
