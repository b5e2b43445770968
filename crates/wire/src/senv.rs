//! `senv`: samples of a sample environment device, the predecessor of `se00`; integers only.

use crate::{Array, DType, Numbers};

pub use crate::se00::Location;

message!(b"senv", Senv);

table! {
    /// One packet of samples.
    pub struct Senv<'a> {
        /// Name of the device or channel.
        0 name as "Name": &'a str [required];
        /// Channel of the device.
        1 channel as "Channel": i32;
        /// Time of the first sample, ns since 1970 UTC.
        2 packet_timestamp as "PacketTimestamp": u64;
        /// Time between samples, ns; 0 where unknown or where `timestamps` says.
        3 time_delta as "TimeDelta": f64;
        /// Which moment of a sample its time names.
        4 timestamp_location as "TimestampLocation": Location;
        /// The samples; integers.
        6 values as "Values": Numbers<'a> {TYPES} [required];
        /// Time of each sample, ns since 1970 UTC, if given.
        7 timestamps as "Timestamps": Option<Array<'a, u64>>;
        /// Number given by the sender, consecutive.
        8 message_counter as "MessageCounter": u64;
    }
}

/// Types by union tag, from tag 1.
const TYPES: [DType; 8] =
    [DType::Int8, DType::UInt8, DType::Int16, DType::UInt16, DType::Int32, DType::UInt32, DType::Int64, DType::UInt64];
