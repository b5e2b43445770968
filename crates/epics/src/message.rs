//! From an update of a PV to the bytes of a message.

use crate::codec;
use crate::entry::Schema;
use crate::value::{Elements, Form, Frame, Kind, Named, Update, text};
use std::borrow::Cow;
use wire::ad00::{Ad00, Attribute, Head};
use wire::al00::{self, Al00, Severity};
use wire::bppv::{self, PvValue};
use wire::ep01::{self, ConnectionInfo, Ep01};
use wire::f142::{self, AlarmSeverity, AlarmStatus, F142};
use wire::f144::{self, F144};
use wire::se00::{self, Location, Se00};
use wire::senv::{self, Senv};
use wire::tdct::{self, Tdct};
use wire::un00::{self, Un00};
use wire::{Array, DType, Error, List, Numbers, Scalar};

/// The message of an update of a value.
#[derive(Debug, PartialEq)]
pub(crate) enum Made<'u> {
    /// The message in [`Maker::bytes`].
    Message { schema: [u8; 4], time: i64 },
    /// The frame whose head is [`Maker::head`]; without pixels they are [`Maker::pixels`].
    Frame { pixels: Option<&'u [u8]>, codec: Codec },
    /// It is empty.
    Nothing,
    /// The schema cannot hold it, for this reason.
    Unfit(&'static str),
}

/// The result of decompressing a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    /// It is decoded, or had none.
    Decoded,
    /// It stays, as the section asks.
    Kept,
    /// It cannot be decoded.
    Unknown,
}

/// Memory for messages, used again and again.
#[derive(Default)]
pub(crate) struct Maker {
    pub(crate) bytes: Vec<u8>,
    pub(crate) head: Head,
    /// Pixels of a frame that was compressed.
    pub(crate) pixels: Vec<u8>,
    /// Compressed frames stay compressed.
    keeps_codec: bool,
    words: Vec<u8>,
    times: Vec<i64>,
    rounded: Vec<i64>,
    counts: Vec<u64>,
    dims: Vec<i64>,
}

/// The schema that the values of an update become.
pub(crate) fn schema_of(schema: Schema, update: &Update<'_>) -> Schema {
    match (schema, update.form) {
        (Schema::Auto, Form::Table) => Schema::Se00,
        (Schema::Auto, Form::Image) => Schema::Ad00,
        (Schema::Auto, Form::Other) => Schema::Bppv,
        (Schema::Auto, _) if update.value.kind == Kind::Text => Schema::F142,
        (Schema::Auto, _) => Schema::F144,
        (schema, _) => schema,
    }
}

/// The bytes of a long text: `NAME$` names a field of a record as an array of characters, which ends with a NUL.
pub(crate) fn long_text<'a>(pv: &str, update: &Update<'a>) -> Option<&'a [u8]> {
    let is_characters = matches!(update.value.kind, Kind::Number(DType::Int8 | DType::UInt8));
    let is_text = pv.ends_with('$') && update.form == Form::Array && is_characters;
    is_text.then(|| update.value.bytes.split(|byte| *byte == 0).next().unwrap_or_default())
}

const TYPE: &str = "the schema cannot hold its type";

fn numbers<'a>(elements: &Elements<'a>) -> Option<Numbers<'a>> {
    match elements.kind {
        Kind::Number(dtype) => Numbers::new(dtype, elements.bytes),
        _ => None,
    }
}

/// The value as a number or as numbers.
fn value_of<'a>(update: &Update<'a>) -> Option<f144::Value<'a>> {
    let numbers = numbers(&update.value)?;
    match update.form {
        Form::Array => Some(f144::Value::Array(numbers)),
        Form::Scalar | Form::Enum => numbers.get(0).map(f144::Value::Scalar),
        _ => None,
    }
}

/// A whole number; `None` for what is none.
fn whole(scalar: Scalar) -> Option<i64> {
    Some(match scalar {
        Scalar::Int8(n) => n.into(),
        Scalar::Int16(n) => n.into(),
        Scalar::Int32(n) => n.into(),
        Scalar::Int64(n) => n,
        Scalar::UInt8(n) => n.into(),
        Scalar::UInt16(n) => n.into(),
        Scalar::UInt32(n) => n.into(),
        Scalar::UInt64(n) => i64::try_from(n).ok()?,
        Scalar::Float32(n) if n.is_finite() => n as i64,
        Scalar::Float64(n) if n.is_finite() => n as i64,
        Scalar::Float32(_) | Scalar::Float64(_) => return None,
    })
}

/// The nearest whole number, of two the even one; `None` for what has none.
fn nearest(scalar: Scalar) -> Option<i64> {
    whole(match scalar {
        Scalar::Float32(n) => Scalar::Float64(f64::from(n).round_ties_even()),
        Scalar::Float64(n) => Scalar::Float64(n.round_ties_even()),
        scalar => scalar,
    })
}

impl Maker {
    /// `decodes`: compressed frames are decoded.
    pub(crate) fn new(decodes: bool) -> Self {
        Self { keeps_codec: !decodes, ..Self::default() }
    }

    /// Makes the message of a value. `time`: of the PV; `number`: of the message.
    pub(crate) fn value<'u>(
        &mut self,
        pv: &str,
        schema: Schema,
        update: &Update<'u>,
        time: i64,
        number: u64,
    ) -> Made<'u> {
        if let Some(text) = long_text(pv, update).filter(|_| schema != Schema::F144) {
            return self.long_text(pv, schema, update, text, time);
        }
        let made = match schema_of(schema, update) {
            Schema::F144 => self.f144(pv, update, time),
            Schema::F142 => self.f142(pv, update, time),
            Schema::Se00 => self.table(pv, update, number, true),
            Schema::Senv => self.table(pv, update, number, false),
            Schema::Tdct => self.tdct(pv, update, time, number),
            Schema::Ad00 => self.ad00(pv, update, time, number),
            Schema::Bppv => self.bppv(pv, update, time),
            Schema::None | Schema::Auto => Ok(Made::Nothing),
        };
        made.unwrap_or(Made::Unfit(TYPE))
    }

    /// The message of a long text, which the servers of both protocols send as an array of characters.
    fn long_text<'u>(&mut self, pv: &str, schema: Schema, update: &Update<'_>, text: &[u8], time: i64) -> Made<'u> {
        match schema {
            Schema::Auto | Schema::F142 => {}
            Schema::None => return Made::Nothing,
            _ => return Made::Unfit(TYPE),
        }
        let mut words = std::mem::take(&mut self.words);
        words.clear();
        words.extend_from_slice(&(text.len() as u32).to_ne_bytes());
        words.extend_from_slice(text);
        let value = Elements { kind: Kind::Text, count: 1, bytes: &words };
        let made = match self.f142(pv, &Update { form: Form::Scalar, value, ..*update }, time) {
            Ok(Made::Message { schema, time }) => Made::Message { schema, time },
            _ => Made::Unfit(TYPE),
        };
        self.words = words;
        made
    }

    fn f144<'u>(&mut self, pv: &str, update: &Update<'u>, time: i64) -> Result<Made<'u>, Error> {
        let Some(value) = value_of(update) else { return Ok(Made::Unfit(TYPE)) };
        f144::write(&mut self.bytes, &F144 { source_name: pv, timestamp: time, value })?;
        Ok(Made::Message { schema: f144::ID, time })
    }

    fn f142<'u>(&mut self, pv: &str, update: &Update<'u>, time: i64) -> Result<Made<'u>, Error> {
        let texts: Vec<Cow<'_, str>>;
        let list: Vec<&str>;
        let value = match (value_of(update), update.value.kind, update.form) {
            (Some(value), ..) => f142::Value::Number(value),
            (None, Kind::Text, form) => {
                texts = update.value.texts().collect();
                list = texts.iter().map(|text| &**text).collect();
                match form {
                    Form::Array => f142::Value::Texts(List::Borrowed(&list)),
                    _ => f142::Value::Text(list.first().unwrap_or(&"")),
                }
            }
            _ => return Ok(Made::Unfit(TYPE)),
        };
        // The state of the alarm, also where it has not changed: a reader may begin with any message.
        let (status, severity) = old_alarm(update);
        let timestamp = u64::try_from(time).unwrap_or(0);
        f142::write(&mut self.bytes, &F142 { source_name: pv, value, timestamp, status, severity })?;
        Ok(Made::Message { schema: f142::ID, time })
    }

    /// A table with the columns `value` and `timestamp`, whose first time is that of the message.
    fn table<'u>(&mut self, pv: &str, update: &Update<'u>, number: u64, is_new: bool) -> Result<Made<'u>, Error> {
        let column = |name: &[u8]| update.columns.iter().find(|column| column.name == name);
        let (Some(values), Some(times)) = (column(b"value"), column(b"timestamp")) else {
            return Ok(Made::Unfit("it is not a table with the columns `value` and `timestamp`"));
        };
        let (Some(values), Some(times)) = (numbers(&values.values), numbers(&times.values)) else {
            return Ok(Made::Unfit(TYPE));
        };
        self.times.clear();
        for time in times.iter() {
            let Some(time) = whole(time) else { return Ok(Made::Unfit(TYPE)) };
            self.times.push(time);
        }
        let Some(&time) = self.times.first() else { return Ok(Made::Nothing) };
        let time_delta = self.times.get(1).map_or(0.0, |second| second.saturating_sub(time) as f64);
        let timestamp_location = Location::Unknown;
        if is_new {
            let message = Se00 {
                name: pv,
                channel: 0,
                packet_timestamp: time,
                time_delta,
                timestamp_location,
                values,
                timestamps: Some(Array::from(&self.times)),
                message_counter: number as i64,
            };
            se00::write(&mut self.bytes, &message)?;
            return Ok(Made::Message { schema: se00::ID, time });
        }
        let mut values = values;
        if matches!(values.dtype(), DType::Float32 | DType::Float64) {
            // `senv` holds integers only.
            self.rounded.clear();
            for value in values.iter() {
                let Some(value) = nearest(value) else { return Ok(Made::Unfit(TYPE)) };
                self.rounded.push(value);
            }
            values = (&self.rounded).into();
        }
        self.counts.clear();
        self.counts.extend(self.times.iter().map(|time| u64::try_from(*time).unwrap_or(0)));
        let message = Senv {
            name: pv,
            channel: 0,
            packet_timestamp: u64::try_from(time).unwrap_or(0),
            time_delta,
            timestamp_location,
            values,
            timestamps: Some(Array::from(&self.counts)),
            message_counter: number,
        };
        senv::write(&mut self.bytes, &message)?;
        Ok(Made::Message { schema: senv::ID, time })
    }

    /// Times after that of the PV.
    fn tdct<'u>(&mut self, pv: &str, update: &Update<'u>, time: i64, number: u64) -> Result<Made<'u>, Error> {
        let is_list = matches!(update.form, Form::Scalar | Form::Array);
        let Some(after) = numbers(&update.value).filter(|_| is_list) else { return Ok(Made::Unfit(TYPE)) };
        self.counts.clear();
        for one in after.iter() {
            let Some(one) = whole(one) else { return Ok(Made::Unfit(TYPE)) };
            self.counts.push(u64::try_from(time.saturating_add(one)).unwrap_or(0));
        }
        if self.counts.is_empty() {
            return Ok(Made::Nothing);
        }
        let timestamps = Array::from(&self.counts);
        tdct::write(&mut self.bytes, &Tdct { name: pv, timestamps, sequence_counter: number })?;
        Ok(Made::Message { schema: tdct::ID, time })
    }

    /// A structure as it came.
    fn bppv<'u>(&mut self, pv: &str, update: &Update<'u>, time: i64) -> Result<Made<'u>, Error> {
        let data = Numbers::new(DType::UInt8, update.value.bytes).and_then(|bytes| bytes.typed());
        let Some(data) = data.filter(|_| update.form == Form::Other) else { return Ok(Made::Unfit(TYPE)) };
        let type_id = text(update.type_id);
        bppv::write(&mut self.bytes, &PvValue { source_name: pv, timestamp: time, type_id: &type_id, data })?;
        Ok(Made::Message { schema: bppv::ID, time })
    }

    /// The head of a frame. One whose codec stays has its bytes in one dimension, and attributes say what they were.
    fn ad00<'u>(&mut self, pv: &str, update: &Update<'u>, time: i64, number: u64) -> Result<Made<'u>, Error> {
        if update.form != Form::Image {
            return Ok(Made::Unfit(TYPE));
        }
        let frame = &update.frame;
        if update.value.bytes.is_empty() {
            return Ok(Made::Nothing);
        }
        let sizes = frame.dims.iter().rev().map(|size| i64::try_from(*size).unwrap_or(i64::MAX));
        let sizes: Vec<i64> = sizes.collect();
        self.dims.clear();
        let dtype = frame.codec_type.unwrap_or(DType::UInt8);
        let result = match frame.codec.is_empty() {
            true => None,
            false => Some(self.decode(frame, update.value.bytes, dtype.size())),
        };
        let is_packed = result.is_some_and(|result| result != Codec::Decoded);
        let data = match result {
            None => numbers(&update.value),
            Some(Codec::Decoded) => Numbers::new(dtype, &self.pixels),
            Some(_) => Numbers::new(DType::UInt8, update.value.bytes),
        };
        let Some(data) = data else { return Ok(Made::Unfit(TYPE)) };
        if is_packed {
            self.dims.push(data.len() as i64);
        } else {
            self.dims.extend_from_slice(&sizes);
        }
        let owned: Vec<Texts<'_>> = update.columns.iter().map(|named| Texts::of(&named)).collect();
        let mut attributes: Vec<Attribute<'_>> =
            update.columns.iter().zip(&owned).filter_map(|(named, texts)| texts.attribute(&named)).collect();
        // Texts are there though they are empty: ess-streaming-data-types reads no attribute without them.
        let own = |name, data| Attribute { name, description: Some(""), source: Some(""), data };
        let taken = [frame.data_time];
        if frame.data_time != 0 {
            attributes.push(own("dataTimeStamp", (&taken).into()));
        }
        let codec = text(frame.codec);
        let bytes = [frame.uncompressed];
        // Of a clock that is wrong: the message has the time of its arrival.
        let wrong: Vec<i64> = update.time.filter(|own| *own != time).into_iter().collect();
        if !wrong.is_empty() {
            attributes.push(own("timeStamp", (&wrong).into()));
        }
        if is_packed {
            attributes.push(own("codec", Numbers::text(&codec)));
            attributes.push(own("codec.type", Numbers::text(dtype.name())));
            attributes.push(own("codec.dimensions", (&sizes).into()));
            attributes.push(own("codec.bytes", (&bytes).into()));
        }
        let message = Ad00 {
            source_name: pv,
            id: frame.unique_id.unwrap_or(number as i32),
            timestamp: time,
            dimensions: (&self.dims).into(),
            data,
            attributes: List::Borrowed(&attributes),
        };
        self.head.write(&message)?;
        let pixels = (result != Some(Codec::Decoded)).then_some(update.value.bytes);
        Ok(Made::Frame { pixels, codec: result.unwrap_or(Codec::Decoded) })
    }

    /// Decodes a compressed frame into [`Maker::pixels`]. `element`: bytes of a pixel.
    fn decode(&mut self, frame: &Frame<'_>, packed: &[u8], element: usize) -> Codec {
        if self.keeps_codec {
            return Codec::Kept;
        }
        let sizes = frame.dims.iter().try_fold(element as u64, |bytes, size| bytes.checked_mul(*size));
        let bytes = sizes.and_then(|bytes| usize::try_from(bytes).ok()).filter(|bytes| *bytes > 0);
        let decoded = bytes.and_then(|bytes| codec::decode(frame.codec, packed, bytes, element, &mut self.pixels));
        if decoded.is_some() { Codec::Decoded } else { Codec::Unknown }
    }

    /// The alarm of a PV.
    pub(crate) fn alarm(&mut self, pv: &str, time: i64, severity: i16, message: &[u8]) -> Result<[u8; 4], Error> {
        let severity = match severity {
            0 => Severity::Ok,
            1 => Severity::Minor,
            2 => Severity::Major,
            _ => Severity::Invalid,
        };
        let alarm = Al00 { source_name: pv, timestamp: time, severity, message: &text(message) };
        al00::write(&mut self.bytes, &alarm).map(|()| al00::ID)
    }

    /// The connection of a PV.
    pub(crate) fn connection(&mut self, pv: &str, time: i64, status: ConnectionInfo) -> Result<[u8; 4], Error> {
        let connection = Ep01 { timestamp: time, status, source_name: pv, service_id: None };
        ep01::write(&mut self.bytes, &connection).map(|()| ep01::ID)
    }

    /// The units of a PV.
    pub(crate) fn units(&mut self, pv: &str, time: i64, units: &[u8]) -> Result<[u8; 4], Error> {
        let units = text(units);
        let units = Un00 { source_name: pv, timestamp: time, units: Some(&*units).filter(|units| !units.is_empty()) };
        un00::write(&mut self.bytes, &units).map(|()| un00::ID)
    }
}

/// The texts of an attribute, as Rust has them.
struct Texts<'a> {
    name: Cow<'a, str>,
    description: Cow<'a, str>,
    source: Cow<'a, str>,
    /// Of an attribute that is text.
    value: Option<Cow<'a, str>>,
}

impl<'a> Texts<'a> {
    fn of(named: &Named<'a>) -> Self {
        let value = named.values.texts().next();
        Self { name: text(named.name), description: text(named.description), source: text(named.source), value }
    }

    /// `None` for one without a value.
    fn attribute<'t>(&'t self, named: &Named<'t>) -> Option<Attribute<'t>> {
        let data = match &self.value {
            Some(text) => Numbers::text(text),
            None => numbers(&named.values)?,
        };
        Some(Attribute { name: &self.name, description: Some(&self.description), source: Some(&self.source), data })
    }
}

/// Severity and status as `f142` has them.
fn old_alarm(update: &Update<'_>) -> (AlarmStatus, AlarmSeverity) {
    let severity = match update.severity {
        0 => return (AlarmStatus::NoAlarm, AlarmSeverity::NoAlarm),
        1 => AlarmSeverity::Minor,
        2 => AlarmSeverity::Major,
        _ => AlarmSeverity::Invalid,
    };
    // The words of the records of EPICS, which servers of pvData end in `_ALARM`.
    let status = match update.alarm.strip_suffix(b"_ALARM").unwrap_or(update.alarm) {
        b"READ" => AlarmStatus::Read,
        b"WRITE" => AlarmStatus::Write,
        b"HIHI" => AlarmStatus::HiHi,
        b"HIGH" => AlarmStatus::High,
        b"LOLO" => AlarmStatus::LoLo,
        b"LOW" => AlarmStatus::Low,
        b"STATE" => AlarmStatus::State,
        b"COS" => AlarmStatus::Cos,
        b"COMM" => AlarmStatus::Comm,
        b"TIMEOUT" | b"TIMED" => AlarmStatus::Timed,
        b"HWLIMIT" => AlarmStatus::HwLimit,
        b"CALC" => AlarmStatus::Calc,
        b"SCAN" => AlarmStatus::Scan,
        b"LINK" => AlarmStatus::Link,
        b"SOFT" => AlarmStatus::Soft,
        b"BAD_SUB" => AlarmStatus::BadSub,
        b"DISABLE" => AlarmStatus::Disable,
        b"SIMM" => AlarmStatus::Simm,
        b"READ_ACCESS" => AlarmStatus::ReadAccess,
        b"WRITE_ACCESS" => AlarmStatus::WriteAccess,
        _ => AlarmStatus::Udf,
    };
    (status, severity)
}
