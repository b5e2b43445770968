//! `NDAr`: a frame as areaDetector has it, older than `ADAr`. Its pixels are bytes beside their type.

use crate::flat::{Out, Table, Writer};
use crate::part::{Column, Kind, Part};
use crate::{Array, DType, Error, Field, List};

message!(b"NDAr", Ndar);

table! {
    /// One frame.
    pub struct Ndar<'a> {
        /// Its number, from the camera.
        0 id: i32;
        /// When it was taken, in the sender's clock and unit: EPICS seconds, or milliseconds since 1970 UTC.
        1 time_stamp as "timeStamp": f64;
        /// When EPICS had it.
        2 epics_ts as "epicsTS": Option<EpicsTime>;
        /// Lengths of the dimensions as sent.
        3 dims: Array<'a, u64>;
        /// Type of the pixels.
        4 data_type as "dataType": DataType;
        /// The pixels, as bytes.
        5 data as "pData": Array<'a, u8>;
        /// Further properties, by name.
        6 attributes as "pAttributeList": List<'a, Attribute<'a>>;
    }
}

table! {
    /// Something known of a frame.
    pub struct Attribute<'a> {
        /// Its name.
        0 name as "pName": &'a str;
        /// Its meaning.
        1 description as "pDescription": &'a str;
        /// Where the value comes from.
        2 source as "pSource": &'a str;
        /// Type of the value.
        3 data_type as "dataType": DataType;
        /// The value, as bytes.
        4 data as "pData": Array<'a, u8>;
    }
}

words! {
    /// Type of numbers that are sent as bytes.
    pub enum DataType: i8 {
        Int8 = "Int8",
        UInt8 = "Uint8",
        Int16 = "Int16",
        UInt16 = "Uint16",
        Int32 = "Int32",
        UInt32 = "Uint32",
        Int64 = "Int64",
        UInt64 = "Uint64",
        Float32 = "Float32",
        Float64 = "Float64",
        Text = "c_string",
    }
}

/// A time as EPICS has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpicsTime {
    /// Seconds since 1990 UTC.
    pub seconds: i32,
    /// Nanoseconds besides.
    pub nanoseconds: i32,
}

/// The only struct of all schemas: its two numbers stand in the table as one of 8 bytes.
impl<'a> Part<'a> for EpicsTime {
    const KIND: Kind = Kind::Table(&[&[
        Column { name: "secPastEpoch", kind: Kind::Number(DType::Int32) },
        Column { name: "nsec", kind: Kind::Number(DType::Int32) },
    ]]);

    fn read(table: &Table<'_, 'a>, id: usize, field: &'static str) -> Result<Option<Self>, Error> {
        let both = table.number_if::<u64>(id, field)?;
        Ok(both.map(|both| EpicsTime { seconds: both as i32, nanoseconds: (both >> 32) as i32 }))
    }
    fn size(&self, sizes: &mut [u8], id: usize) {
        sizes[id] = 8;
    }
    fn put<O: Out>(&self, writer: &mut Writer<'_, O>, places: &[usize], id: usize) {
        writer.put(places[id], u64::from(self.seconds as u32) | u64::from(self.nanoseconds as u32) << 32);
    }
    fn field(&self) -> Field<'a> {
        let numbers = [("secPastEpoch", self.seconds), ("nsec", self.nanoseconds)];
        Field::Table(numbers.map(|(name, number)| (name, Field::Int(number.into()))).to_vec())
    }
    fn of_field(field: Field<'a>) -> Option<Self> {
        let Field::Table(numbers) = field else { return None };
        let mut numbers = numbers.into_iter().map(|(_, number)| i32::of_field(number));
        Some(EpicsTime { seconds: numbers.next()??, nanoseconds: numbers.next()?? })
    }
}
