//! `an44`: neutron events as `ev44`, each with a weight.

use crate::Array;
use crate::ev44::Ev44;

message!(b"an44", An44);

table! {
    /// One message of events with weights; [`An44::unweighted`] is the rest of it.
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

impl<'a> An44<'a> {
    /// The same events without their weights.
    pub fn unweighted(&self) -> Ev44<'a> {
        Ev44 {
            source_name: self.source_name,
            message_id: self.message_id,
            reference_time: self.reference_time,
            reference_time_index: self.reference_time_index,
            time_of_flight: self.time_of_flight,
            pixel_id: self.pixel_id,
        }
    }
}
