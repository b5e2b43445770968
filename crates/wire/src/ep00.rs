//! `ep00`: whether a process variable can be reached, the predecessor of `ep01`.

message!(b"ep00", Ep00);

table! {
    /// A step in the life of a connection.
    pub struct Ep00<'a> {
        /// When, ns since 1970 UTC.
        0 timestamp: u64;
        /// The event.
        1 kind as "type": EventType;
        /// The process variable; empty if the sender left it out.
        2 source_name: &'a str;
        /// Name of the sender; empty if the sender left it out.
        3 service_id: &'a str;
    }
}

words! {
    /// An event of a connection.
    pub enum EventType: u16 {
        Unknown = "UNKNOWN",
        NeverConnected = "NEVER_CONNECTED",
        Connected = "CONNECTED",
        Disconnected = "DISCONNECTED",
        Destroyed = "DESTROYED",
    }
}
