//! `se00`: samples of a sample environment device, an array with a time for the packet or for each value.

use crate::{Array, DType, Numbers};

message!(b"se00", Se00);

table! {
    /// One packet of samples.
    #[derive(Copy)]
    pub struct Se00<'a> {
        /// Name of the device or channel.
        0 name: &'a str [required];
        /// Channel of the device.
        1 channel: i32;
        /// Time of the first sample, ns since 1970 UTC.
        2 packet_timestamp: i64;
        /// Time between samples, ns; 0 where unknown or where `timestamps` says.
        3 time_delta: f64;
        /// Which moment of a sample its time names.
        4 timestamp_location: Location;
        /// The samples; never text.
        6 values: Numbers<'a> {TYPES} [required];
        /// Time of each sample, ns since 1970 UTC, if given.
        7 timestamps: Option<Array<'a, i64>>;
        /// Number given by the sender, consecutive.
        8 message_counter: i64;
    }
}

words! {
    /// Which moment of a sample its time names.
    pub enum Location: i8 { Unknown = "Unknown", Start = "Start", Middle = "Middle", End = "End" }
}

/// Types by union tag, from tag 1.
const TYPES: [DType; 10] = [
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
