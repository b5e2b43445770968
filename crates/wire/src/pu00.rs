//! `pu00`: what is known of a pulse at ISIS, sent before its events.

message!(b"pu00", Pu00);

table! {
    /// One pulse.
    pub struct Pu00<'a> {
        /// Name of the sender.
        0 source_name: &'a str [required];
        /// Number given by the sender, consecutive per source.
        1 message_id: i64;
        /// Time of the pulse, ns since 1970 UTC.
        2 reference_time: i64;
        /// Reasons not to count it, one bit each; absent if the sender does not know.
        3 vetos: Option<u32>;
        /// Period that it belongs to; absent if the sender does not know.
        4 period_number: Option<u32>;
        /// Protons of the pulse, uAh; absent if the sender does not know.
        5 proton_charge: Option<f32>;
    }
}
