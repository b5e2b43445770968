//! `ar51`: raw readout of a detector, as it came over the wire.

use crate::Array;

message!(b"ar51", Ar51);

table! {
    /// Some raw data.
    pub struct Ar51<'a> {
        /// Detector it came from.
        0 source_name: &'a str [required];
        /// Number given by the sender, consecutive per source.
        1 message_id: i64;
        /// The bytes.
        2 raw_data: Array<'a, u8>;
    }
}
