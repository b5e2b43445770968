//! `un00`: the unit of a process variable.

message!(b"un00", Un00);

table! {
    /// A unit.
    pub struct Un00<'a> {
        /// The process variable.
        0 source_name: &'a str [required];
        /// Since when, ns since 1970 UTC.
        1 timestamp: i64;
        /// The unit; absent if it has none.
        2 units: Option<&'a str>;
    }
}
