//! `se00`: samples of a sample environment device, an array with a time for the packet or for each value.

use crate::flat::{Message, Writer};
use crate::{Array, DType, Error, Numbers};

/// The schema id.
pub const ID: [u8; 4] = *b"se00";

/// Which moment of a sample its time names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(i8)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Location {
    #[default]
    Unknown,
    Start,
    Middle,
    End,
}

impl Location {
    /// The word of the schema.
    pub fn name(self) -> &'static str {
        match self {
            Location::Unknown => "Unknown",
            Location::Start => "Start",
            Location::Middle => "Middle",
            Location::End => "End",
        }
    }
}

/// One packet of samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Se00<'a> {
    /// Name of the device or channel.
    pub name: &'a str,
    /// Channel of the device.
    pub channel: i32,
    /// Time of the first sample, ns since 1970 UTC.
    pub packet_timestamp: i64,
    /// Time between samples, ns; 0 where unknown or where `timestamps` says.
    pub time_delta: f64,
    /// Which moment of a sample its time names.
    pub timestamp_location: Location,
    /// The samples; never text.
    pub values: Numbers<'a>,
    /// Time of each sample, ns since 1970 UTC, if given.
    pub timestamps: Option<Array<'a, i64>>,
    /// Number given by the sender, consecutive.
    pub message_counter: i64,
}

/// Types by union tag, from tag 1.
const TAGS: [DType; 10] = [
    DType::Int8,
    DType::UInt8,
    DType::Int16,
    DType::UInt16,
    DType::Int32,
    DType::UInt32,
    DType::Int64,
    DType::UInt64,
    DType::Float64, // the schema has double before float
    DType::Float32,
];

/// Verifies and reads a message.
pub fn read(bytes: &[u8]) -> Result<Se00<'_>, Error> {
    let message = Message::open(bytes, ID)?;
    let table = message.root()?;
    let timestamp_location = match table.number(4, 0i8, "timestamp_location")? {
        0 => Location::Unknown,
        1 => Location::Start,
        2 => Location::Middle,
        3 => Location::End,
        value => {
            return Err(Error::UnknownKind { field: "timestamp_location", value: value.into() });
        }
    };
    let tag = table.number(5, 0u8, "values_type")?;
    let dtype = usize::from(tag).checked_sub(1).and_then(|at| TAGS.get(at)).copied();
    let dtype = dtype.ok_or(Error::UnknownKind { field: "values_type", value: tag.into() })?;
    let missing = Error::Missing { field: "values" };
    let boxed = table.table(6, "values")?.ok_or(missing)?;
    Ok(Se00 {
        name: table.text_required(0, "name")?,
        channel: table.number(1, 0, "channel")?,
        packet_timestamp: table.number(2, 0, "packet_timestamp")?,
        time_delta: table.number(3, 0.0, "time_delta")?,
        timestamp_location,
        values: boxed.numbers(0, dtype, "values")?.ok_or(missing)?,
        timestamps: table.array(7, "timestamps")?,
        message_counter: table.number(8, 0, "message_counter")?,
    })
}

/// Writes a message into `out`, replacing what was there.
pub fn write(out: &mut Vec<u8>, parts: &Se00<'_>) -> Result<(), Error> {
    let mut writer = Writer::begin(out, ID);
    let times = if parts.timestamps.is_some() { 4 } else { 0 };
    let [name, channel, packet, delta, location, values_type, values, timestamps, counter] =
        writer.root([4, 4, 8, 8, 1, 1, 4, times, 8]);
    writer.put(channel, parts.channel);
    writer.put(packet, parts.packet_timestamp);
    writer.put(delta, parts.time_delta);
    writer.put(location, parts.timestamp_location as i8);
    match TAGS.iter().position(|dtype| *dtype == parts.values.dtype()) {
        Some(at) => writer.put(values_type, at as u8 + 1),
        None => writer.refuse(Error::Inconsistent { what: "an se00 cannot hold text" }),
    }
    writer.put(counter, parts.message_counter);
    writer.text(name, parts.name);
    let [vector] = writer.table(values, [4]);
    writer.bytes(vector, parts.values.len(), parts.values.bytes());
    if let Some(times) = parts.timestamps {
        writer.array(timestamps, times);
    }
    writer.finish()
}
