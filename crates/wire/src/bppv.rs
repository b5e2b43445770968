//! `bppv`: a value of a PV that is a structure or a union of any form, as pvAccess sends it.

use crate::Array;

message!(b"bppv", PvValue);

table! {
    /// One value.
    pub struct PvValue<'a> {
        /// The process variable.
        0 source_name: &'a str [required];
        /// When it had the value, ns since 1970 UTC.
        1 timestamp: i64;
        /// The id of the structure, such as `facility:thing/1.0`; empty if it has none.
        2 type_id: &'a str;
        /// Its type, then its value, in the encoding of pvAccess, little-endian.
        3 data: Array<'a, u8> [required];
    }
}
