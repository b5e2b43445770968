//! `al00`: the alarm state of a process variable.

message!(b"al00", Al00);

table! {
    /// One alarm.
    #[derive(Copy)]
    pub struct Al00<'a> {
        /// The process variable; empty if the sender left it out.
        0 source_name: &'a str;
        /// When the state began, ns since 1970 UTC.
        1 timestamp: i64;
        /// How bad it is.
        2 severity: Severity;
        /// Text for people; empty if the sender left it out.
        3 message: &'a str;
    }
}

words! {
    /// How bad it is, as EPICS counts.
    pub enum Severity: i16 { Ok = "OK", Minor = "MINOR", Major = "MAJOR", Invalid = "INVALID" }
}
