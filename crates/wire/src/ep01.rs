//! `ep01`: whether a process variable can be reached.

message!(b"ep01", Ep01);

table! {
    /// The state of a connection.
    pub struct Ep01<'a> {
        /// Since when, ns since 1970 UTC.
        0 timestamp: i64;
        /// The state.
        1 status: ConnectionInfo;
        /// The process variable.
        2 source_name: &'a str [required];
        /// Name of the sender.
        3 service_id: Option<&'a str>;
    }
}

words! {
    /// The state of a connection.
    pub enum ConnectionInfo: i16 {
        Unknown = "UNKNOWN",
        NeverConnected = "NEVER_CONNECTED",
        Connected = "CONNECTED",
        Disconnected = "DISCONNECTED",
        Destroyed = "DESTROYED",
        Cancelled = "CANCELLED",
        Finished = "FINISHED",
        RemoteError = "REMOTE_ERROR",
    }
}
