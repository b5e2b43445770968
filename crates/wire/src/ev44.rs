//! `ev44`: neutron events, grouped by reference times (pulses).

use std::ops::Range;

use crate::flat::{Message, Writer};
use crate::{Array, Error};

/// The schema id.
pub const ID: [u8; 4] = *b"ev44";

/// One message of events. Event `i` has `time_of_flight[i]` and `pixel_id[i]`; pulse `p` covers the events from
/// `reference_time_index[p]` to the next index.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ev44<'a> {
    /// Detector or monitor that made the events.
    pub source_name: &'a str,
    /// Number given by the sender, consecutive per source.
    pub message_id: i64,
    /// Time of each pulse, ns since 1970 UTC.
    pub reference_time: Array<'a, i64>,
    /// First event of each pulse.
    pub reference_time_index: Array<'a, i32>,
    /// Time of each event after its reference time, ns.
    pub time_of_flight: Array<'a, i32>,
    /// Pixel of each event; empty for a monitor without pixels.
    pub pixel_id: Array<'a, i32>,
}

/// Verifies and reads a message. What the arrays say about each other is for [`Ev44::check`].
pub fn read(bytes: &[u8]) -> Result<Ev44<'_>, Error> {
    let message = Message::open(bytes, ID)?;
    let table = message.root()?;
    Ok(Ev44 {
        source_name: table.text_required(0, "source_name")?,
        message_id: table.number(1, 0, "message_id")?,
        reference_time: table.array_required(2, "reference_time")?,
        reference_time_index: table.array_required(3, "reference_time_index")?,
        time_of_flight: table.array_or_empty(4, "time_of_flight")?,
        pixel_id: table.array_or_empty(5, "pixel_id")?,
    })
}

/// Writes a message into `out`, replacing what was there.
pub fn write(out: &mut Vec<u8>, parts: &Ev44<'_>) -> Result<(), Error> {
    let mut writer = Writer::begin(out, ID);
    let [source_name, message_id, reference_time, reference_time_index, time_of_flight, pixel_id] =
        writer.root([4, 8, 4, 4, 4, 4]);
    writer.put(message_id, parts.message_id);
    writer.text(source_name, parts.source_name);
    writer.array(reference_time, parts.reference_time);
    writer.array(reference_time_index, parts.reference_time_index);
    writer.array(time_of_flight, parts.time_of_flight);
    writer.array(pixel_id, parts.pixel_id);
    writer.finish()
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
