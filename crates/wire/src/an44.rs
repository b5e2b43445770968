//! `an44`: neutron events as `ev44`, each with a weight.

use crate::Array;

message!(b"an44", An44);

table! {
    /// One message of events with weights; all else as in [`crate::ev44::Ev44`].
    pub struct An44<'a> {
        /// Detector or monitor that made the events.
        0 source_name: &'a str [required];
        /// Number given by the sender, consecutive per source.
        1 message_id: i64;
        /// Time of each pulse, ns since 1970 UTC.
        2 reference_time: Array<'a, i64> [required];
        /// First event of each pulse.
        3 reference_time_index: Array<'a, i32> [required];
        /// Time of each event after its reference time, ns.
        4 time_of_flight: Array<'a, i32>;
        /// Pixel of each event; empty for a monitor without pixels.
        5 pixel_id: Array<'a, i32>;
        /// Weight of each event.
        6 weight: Array<'a, i16>;
    }
}
