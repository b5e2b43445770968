//! `tdct`: times at which something turned or ticked, as choppers report it.

use crate::Array;

message!(b"tdct", Tdct);

table! {
    /// Some times.
    pub struct Tdct<'a> {
        /// The chopper.
        0 name: &'a str [required];
        /// The times, ns since 1970 UTC.
        1 timestamps: Array<'a, u64> [required];
        /// Number given by the sender, consecutive.
        2 sequence_counter: u64;
    }
}
