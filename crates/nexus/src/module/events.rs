//! `ev44` as NXevent_data.
//!
//! `event_id` u4, `event_time_offset` i4 ns, `event_time_zero` u8 ns with `offset`, `event_index` u8: the widths that
//! both scippnexus and Mantid read. Events of a monitor without pixels have id 0: a shorter `event_id` than
//! `event_time_offset` loads nowhere. Pulses without events are kept: that nothing was counted is a result.

use super::{BROKEN, Cues, design, ns_since};
use crate::column::{Column, Design};
use crate::template::Data;
use serde_json::Value;
use wire::DType;
use wire::ev44::Ev44;

const ID: usize = 0;
const OFFSET: usize = 1;
const ZERO: usize = 2;
const INDEX: usize = 3;
const CUE: usize = 4;

/// Smallest chunk of events: 4096 of them.
const EVENTS_CHUNK_BYTES: usize = 16 << 10;

pub(super) fn designs(path: &str) -> Vec<Design> {
    let mut all = vec![
        design(path, "event_id", DType::UInt32, Vec::new()),
        design(path, "event_time_offset", DType::Int32, vec![("units", Data::text("ns"))]),
        design(path, "event_time_zero", DType::UInt64, ns_since("offset")),
        design(path, "event_index", DType::UInt64, Vec::new()),
        design(path, "cue_index", DType::UInt64, Vec::new()),
        design(path, "cue_timestamp_zero", DType::UInt64, ns_since("offset")),
    ];
    all[ID].least = EVENTS_CHUNK_BYTES;
    all[OFFSET].least = EVENTS_CHUNK_BYTES;
    all
}

#[derive(Default)]
pub(super) struct Events {
    cues: Cues,
    /// Used again: the zeros of events without pixels.
    zeros: Vec<u8>,
}

impl Events {
    pub(super) fn take(&mut self, columns: &mut [Column], message: &Ev44<'_>) -> Result<(), &'static str> {
        message.check().map_err(|_| BROKEN)?;
        let first = columns[OFFSET].rows();
        // Events before the first pulse of a message belong to none; ESS has none such.
        if message.reference_time_index.first().is_some_and(|i| i > 0) {
            return Err(BROKEN);
        }
        for (pulse, (time, index)) in message.reference_time.iter().zip(message.reference_time_index.iter()).enumerate()
        {
            // `check` saw that it is not negative.
            let row = first + index as u64;
            columns[INDEX].extend(&row.to_le_bytes());
            if pulse == 0 {
                self.cues.see(columns, CUE, time, row);
            }
        }
        columns[ZERO].extend(message.reference_time.bytes());
        columns[OFFSET].extend(message.time_of_flight.bytes());
        if message.pixel_id.is_empty() {
            self.zeros.resize(message.events() * 4, 0);
            columns[ID].extend(&self.zeros);
        } else {
            columns[ID].extend(message.pixel_id.bytes());
        }
        Ok(())
    }

    pub(super) fn state(&self) -> Value {
        self.cues.state()
    }

    pub(super) fn take_up(&mut self, state: &Value) -> Option<()> {
        self.cues.take_up(state)
    }
}
