//! `vc00`: which reasons not to count a pulse are in force at ISIS, and what the bits of `pu00` mean.

use crate::List;

message!(b"vc00", Vc00);

table! {
    /// The reasons.
    pub struct Vc00<'a> {
        /// Since when, ns since 1970 UTC.
        0 timestamp: i64;
        /// Those in force, one bit each.
        1 vetoes: u32;
        /// Name of each bit, the lowest first.
        2 veto_names: List<'a, &'a str>;
    }
}
