//! `ev44`: neutron events, grouped by reference times (pulses).

use std::ops::Range;

use crate::{Array, Error};

message!(b"ev44", Ev44);

table! {
    /// One message of events. Event `i` has `time_of_flight[i]` and `pixel_id[i]`; pulse `p` covers the events from
    /// `reference_time_index[p]` to the next index. What the arrays say about each other is for [`Ev44::check`].
    #[derive(Copy)]
    pub struct Ev44<'a> {
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
    }
}

impl<'a> Ev44<'a> {
    /// Number of events.
    pub fn events(&self) -> usize {
        self.time_of_flight.len()
    }

    /// Whether the arrays fit together: a pixel for each event or none at all, an index for each reference time,
    /// indices that start at 0 or more, never step back and never pass the last event.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |what| Err(Error::Inconsistent { what });
        if !self.pixel_id.is_empty() && self.pixel_id.len() != self.time_of_flight.len() {
            return wrong("`pixel_id` and `time_of_flight` differ in length");
        }
        if self.reference_time.len() != self.reference_time_index.len() {
            return wrong("`reference_time` and `reference_time_index` differ in length");
        }
        if self.reference_time.is_empty() && self.events() > 0 {
            return wrong("events without a `reference_time`");
        }
        let mut least = 0;
        for index in self.reference_time_index.iter() {
            if index < least {
                return wrong("`reference_time_index` steps back or is negative");
            }
            least = index;
        }
        if least as usize > self.events() {
            return wrong("`reference_time_index` points past the last event");
        }
        Ok(())
    }

    /// Each reference time with the events that belong to it. Safe for messages that `check` refuses: ranges
    /// are then cut to the events there are.
    pub fn pulses(&self) -> impl Iterator<Item = (i64, Range<usize>)> + use<'a> {
        let events = self.events();
        let index = self.reference_time_index;
        let place = move |pulse: usize| match index.get(pulse) {
            Some(first) => usize::try_from(first).unwrap_or(0).min(events),
            None => events,
        };
        self.reference_time.iter().enumerate().map(move |(pulse, time)| {
            let first = place(pulse);
            (time, first..place(pulse + 1).max(first))
        })
    }
}
