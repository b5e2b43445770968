//! `f142`: one value of a process variable with its alarm, the predecessor of `f144` and `al00`.
//!
//! The numbers are those of `f144`, tag for tag; text and lists of texts follow them, as the Python library sends
//! them.

use crate::flat::{Out, Table, Writer};
use crate::part::{Kind, Part, numbers_of};
use crate::{Error, Field, List, Numbers, f144};

message!(b"f142", F142);

table! {
    /// One value with its time and alarm.
    pub struct F142<'a> {
        /// The process variable; empty if the sender left it out.
        0 source_name: &'a str;
        /// The value.
        2 value: Value<'a> [required];
        /// When it had the value, ns since 1970 UTC.
        3 timestamp: u64;
        /// The cause of the alarm.
        4 status: AlarmStatus = AlarmStatus::NoChange;
        /// How bad it is.
        5 severity: AlarmSeverity = AlarmSeverity::NoChange;
    }
}

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    /// One number or an array of them.
    Number(f144::Value<'a>),
    /// Text.
    Text(&'a str),
    /// Texts.
    Texts(List<'a, &'a str>),
}

words! {
    /// The cause of an alarm, with the numbers of EPICS.
    pub enum AlarmStatus: u16 {
        NoAlarm = "NO_ALARM",
        Read = "READ",
        Write = "WRITE",
        HiHi = "HIHI",
        High = "HIGH",
        LoLo = "LOLO",
        Low = "LOW",
        State = "STATE",
        Cos = "COS",
        Comm = "COMM",
        Timed = "TIMED",
        HwLimit = "HWLIMIT",
        Calc = "CALC",
        Scan = "SCAN",
        Link = "LINK",
        Soft = "SOFT",
        BadSub = "BAD_SUB",
        Udf = "UDF",
        Disable = "DISABLE",
        Simm = "SIMM",
        ReadAccess = "READ_ACCESS",
        WriteAccess = "WRITE_ACCESS",
        NoChange = "NO_CHANGE",
    }
}

words! {
    /// How bad an alarm is. Not in the order of EPICS, and not in that of `al00`.
    pub enum AlarmSeverity: u16 {
        Minor = "MINOR",
        Major = "MAJOR",
        NoAlarm = "NO_ALARM",
        Invalid = "INVALID",
        NoChange = "NO_CHANGE",
    }
}

/// Tags behind those of `f144`.
const TEXT: u8 = 21;
const TEXTS: u8 = 22;

impl<'a> Part<'a> for Value<'a> {
    const KIND: Kind = Kind::Value;

    fn read(table: &Table<'_, 'a>, id: usize, field: &'static str) -> Result<Option<Self>, Error> {
        let missing = Error::Missing { field };
        let Some(boxed) = table.table(id, field)? else { return Ok(None) };
        Ok(Some(match table.number(id - 1, 0u8, "value_type")? {
            TEXT => Value::Text(boxed.text(0, field)?.ok_or(missing)?),
            TEXTS => Value::Texts(boxed.texts(0, field)?.into()),
            tag => Value::Number(f144::value_in(tag, &boxed)?),
        }))
    }
    fn size(&self, sizes: &mut [u8], id: usize) {
        (sizes[id - 1], sizes[id]) = (1, 4);
    }
    fn put<O: Out>(&self, writer: &mut Writer<'_, O>, places: &[usize], id: usize) {
        let (tag, slot) = (places[id - 1], places[id]);
        match self {
            Value::Number(value) => f144::put_value(*value, writer, tag, slot),
            Value::Text(text) => {
                writer.put(tag, TEXT);
                let [place] = writer.table(slot, [4]);
                writer.text(place, text);
            }
            Value::Texts(texts) => {
                writer.put(tag, TEXTS);
                let [place] = writer.table(slot, [4]);
                writer.texts(place, texts, "value");
            }
        }
    }
    fn field(&self) -> Field<'a> {
        match self {
            Value::Number(value) => (*value).into(),
            Value::Text(text) => Field::Text(text),
            Value::Texts(texts) => Field::Texts(texts.to_vec()),
        }
    }
    fn of_field(field: Field<'a>) -> Option<Self> {
        match field {
            Field::Text(text) => Some(Value::Text(text)),
            Field::Texts(texts) => Some(Value::Texts(texts.into())),
            Field::Table(mut boxed) => match boxed.pop() {
                Some((_, Field::Array { dtype, bytes, .. })) if boxed.is_empty() => {
                    Numbers::new(dtype, bytes)?.get(0).map(f144::Value::Scalar).map(Value::Number)
                }
                _ => None,
            },
            array => numbers_of(array).map(f144::Value::Array).map(Value::Number),
        }
    }
}
