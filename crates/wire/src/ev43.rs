//! `ev43`: neutron events of several pulses, between `ev42` and `ev44`.

use crate::Array;

message!(b"ev43", Ev43);

table! {
    /// One message of events. Event `i` has `time_of_flight[i]` and `detector_id[i]`; pulse `p` covers the events from
    /// `pulse_index[p]` to the next index.
    pub struct Ev43<'a> {
        /// Detector that made the events; empty if the sender left it out.
        0 source_name: &'a str;
        /// Number given by the sender, consecutive per source.
        1 message_id: u64;
        /// Time of each pulse, ns since 1970 UTC.
        2 pulse_time: Array<'a, u64>;
        /// First event of each pulse.
        3 pulse_index: Array<'a, u32>;
        /// Time of each event after its pulse, ns.
        4 time_of_flight: Array<'a, u32>;
        /// Pixel of each event.
        5 detector_id: Array<'a, u32>;
    }
}
