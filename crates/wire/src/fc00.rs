//! `fc00`: what the ESS forwarder is to forward.

use crate::List;

message!(b"fc00", ConfigUpdate);

table! {
    /// A change of what is forwarded.
    pub struct ConfigUpdate<'a> {
        /// The change to the streams.
        0 config_change: UpdateType;
        /// The streams.
        1 streams: List<'a, Stream<'a>>;
    }
}

table! {
    /// One process variable that is forwarded.
    pub struct Stream<'a> {
        /// Its name.
        0 channel: &'a str;
        /// Schema it is sent as.
        1 schema: &'a str;
        /// Topic it is sent to.
        2 topic: &'a str;
        /// How it is read.
        3 protocol: Protocol;
        /// Whether it is sent again and again without change; 0 = no.
        4 periodic: i32;
    }
}

words! {
    /// A change to streams.
    pub enum UpdateType: u16 { Add = "ADD", Remove = "REMOVE", RemoveAll = "REMOVEALL", Replace = "REPLACE" }
}

words! {
    /// How a process variable is read.
    pub enum Protocol: u16 { Pva = "PVA", Ca = "CA", Fake = "FAKE" }
}
