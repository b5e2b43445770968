//! `ev44` and `ev42` as NXevent_data.
//!
//! `event_id` u4, `event_time_offset` i4 ns, `event_time_zero` u8 ns with `offset`, `event_index` u8: the widths that
//! both scippnexus and Mantid read. Events of a monitor without pixels have id 0: a shorter `event_id` than
//! `event_time_offset` loads nowhere. Pulses without events are kept: that nothing was counted is a result. In the
//! layout of ESS a message without any is taken and leaves no row, as its file writer does.
//! An `ev42` is an `ev44` of one pulse; what a facility adds to it is not written.

use super::keys::CUE_SECONDS;
use super::kind::{About, Module, ModuleKind, Plan};
use super::{BROKEN, Cues, Order, Rows, SCHEMA, Target, UNFIT, convert, design, ns_since};
use crate::hdf::column::{Column, Design};
use crate::hdf::value::Data;
use serde_json::Value;
use std::sync::Arc;
use store::Entry;
use wire::ev42::Ev42;
use wire::ev44::Ev44;
use wire::{DType, Message};

const ID: usize = 0;
const OFFSET: usize = 1;
const ZERO: usize = 2;
const INDEX: usize = 3;
const CUE: usize = 4;

/// Smallest chunk of events: 4096 of them.
const EVENTS_CHUNK_BYTES: usize = 16 << 10;

pub(super) static EV44: ModuleKind = ModuleKind {
    synonyms: &["ev42"],
    origin: Some(|message| match message {
        Message::Ev44(m) => Some(m.source_name),
        Message::Ev42(m) => Some(m.source_name),
        _ => None,
    }),
    keys: &[&CUE_SECONDS],
    about: About {
        rules_ess: &[
            "A message without events adds no row.",
            "Events without pixels have `event_id` 0 (the ESS file writer makes `event_id` shorter than \
             `event_time_offset`, which no tool can load).",
        ],
        ..About::NONE
    },
    ..ModuleKind::new("ev44", &[wire::ev44::ID, wire::ev42::ID], "NXevent_data", |_| Some(Arc::new(EventsPlan)))
};

#[derive(Debug)]
struct EventsPlan;

impl Plan for EventsPlan {
    fn datasets(&self, _module: &Module) -> Vec<&str> {
        vec!["event_id", "event_time_offset", "event_time_zero", "event_index", "cue_index", "cue_timestamp_zero"]
    }

    fn begin(&self, path: &str, module: &Module) -> (Vec<Design>, Box<dyn Rows>) {
        (designs(path), Box::new(Events::new(module.is_ess())))
    }
}

fn designs(path: &str) -> Vec<Design> {
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

struct Events {
    /// Messages without events leave no row.
    without_empty: bool,
    cues: Cues,
    /// Used again: the zeros of events without pixels.
    zeros: Vec<u8>,
}

impl Events {
    fn new(without_empty: bool) -> Self {
        Self { without_empty, cues: Cues::default(), zeros: Vec::new() }
    }

    fn add(&mut self, columns: &mut [Column], message: &Ev44<'_>) -> Result<(), &'static str> {
        message.check().map_err(|_| BROKEN)?;
        if self.without_empty && message.events() == 0 {
            return Ok(());
        }
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

    fn add_pulse(&mut self, columns: &mut [Column], message: &Ev42<'_>) -> Result<(), &'static str> {
        let time = [i64::try_from(message.pulse_time).map_err(|_| UNFIT)?];
        // The column of pixels has no sign: any number of a pixel stands in it as it came.
        let pixel_id = convert::of_bytes(message.detector_id.bytes());
        let same = Ev44 {
            source_name: message.source_name,
            message_id: 0,
            reference_time: (&time).into(),
            reference_time_index: (&[0]).into(),
            time_of_flight: convert::signed(message.time_of_flight).ok_or(UNFIT)?,
            pixel_id,
        };
        self.add(columns, &same)
    }
}

impl Rows for Events {
    fn take(&mut self, place: &mut Target<'_>, message: &Message<'_>, _: &Entry) -> Result<(), &'static str> {
        match message {
            Message::Ev44(message) => self.add(place.columns, message),
            Message::Ev42(message) => self.add_pulse(place.columns, message),
            _ => Err(SCHEMA),
        }
    }

    fn order(&self) -> Option<Order> {
        Some(Order { time: ZERO, lists: &[(INDEX, &[ID, OFFSET])], cues: Some(CUE) })
    }

    fn cues(&mut self) -> Option<&mut Cues> {
        Some(&mut self.cues)
    }

    fn state(&self) -> Value {
        self.cues.state()
    }

    fn resume(&mut self, state: &Value) -> Option<()> {
        self.cues.resume(state)
    }
}
