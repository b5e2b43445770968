//! `se00` and `senv` as NXlog: one row a sample. Times are the message's, or counted from the packet's time by `time_delta`.

use super::keys::{CUE_SECONDS, DTYPE, TYPE, UNIT, VALUE_UNITS};
use super::kind::{About, Module, ModuleKind, Plan, When};
use super::{BROKEN, Cues, Order, Rows, SCHEMA, Target, UNFIT, convert, log_designs};
use crate::hdf::column::{Column, Design};
use crate::hdf::h5::Cell;
use serde_json::Value;
use std::sync::Arc;
use store::Entry;
use wire::se00::Se00;
use wire::senv::Senv;
use wire::{DType, Message};

const VALUE: usize = 0;
const TIME: usize = 1;
const CUE: usize = 2;

pub(super) static SE00: ModuleKind = ModuleKind {
    synonyms: &["senv"],
    origin: Some(|message| match message {
        Message::Se00(m) => Some(m.name),
        Message::Senv(m) => Some(m.name),
        _ => None,
    }),
    keys: &[&DTYPE, &TYPE, &VALUE_UNITS, &UNIT, &CUE_SECONDS],
    holds_on: When::Always,
    repeats: When::Always,
    has_neighbours: true,
    about: About {
        rules_ess: &["Without `dtype`, integers of up to 32 bits are `int64`; other types stay unchanged, because \
            `int64` cannot hold all of their values."],
        typed_by_message: &["value"],
        ..About::NONE
    },
    ..ModuleKind::new("se00", &[wire::se00::ID, wire::senv::ID], "NXlog", |settings| {
        Some(Arc::new(SamplesPlan { dtype: settings.number(), units: settings.units().to_owned() }))
    })
};

#[derive(Debug)]
struct SamplesPlan {
    /// Type of the values in the file; that of the first message where `None`.
    dtype: Option<DType>,
    /// Their unit; empty where unknown.
    units: String,
}

impl Plan for SamplesPlan {
    fn datasets(&self, _module: &Module) -> Vec<&str> {
        vec!["value", "time", "cue_index", "cue_timestamp_zero"]
    }

    fn begin(&self, path: &str, module: &Module) -> (Vec<Design>, Box<dyn Rows>) {
        (log_designs(path, self.dtype, &self.units), Box::new(Samples::new(self.dtype, module.is_ess())))
    }

    fn units(&self) -> Option<&str> {
        Some(&self.units)
    }
}

struct Samples {
    /// Type in the file; the first message's where the template does not say.
    dtype: Option<DType>,
    /// Where the template does not say, whole numbers that an `int64` holds are that.
    wide: bool,
    cues: Cues,
    values: Vec<u8>,
    times: Vec<u8>,
}

impl Samples {
    fn new(dtype: Option<DType>, wide: bool) -> Self {
        Self { dtype, wide, cues: Cues::default(), values: Vec::new(), times: Vec::new() }
    }

    /// The type in the file of values that come in this one.
    fn default_of(&self, sent: DType) -> DType {
        match sent {
            DType::Int8 | DType::UInt8 | DType::Int16 | DType::UInt16 | DType::Int32 | DType::UInt32 if self.wide => {
                DType::Int64
            }
            // An `int64` would lose what they have more.
            _ => sent,
        }
    }

    fn add(&mut self, columns: &mut [Column], message: &Se00<'_>) -> Result<(), &'static str> {
        let dtype = match columns[VALUE].design.cell {
            Cell::Number(known) if columns[VALUE].rows() > 0 => known,
            _ => self.dtype.unwrap_or(self.default_of(message.values.dtype())),
        };
        let count = message.values.len();
        let first = match message.timestamps {
            Some(times) if times.len() == count => {
                self.times.clear();
                self.times.extend_from_slice(times.bytes());
                times.first()
            }
            Some(_) => return Err(BROKEN),
            None => {
                if !message.time_delta.is_finite() || message.time_delta < 0.0 {
                    return Err(BROKEN);
                }
                self.times.clear();
                for at in 0..count {
                    let after = (at as f64 * message.time_delta).round() as i64;
                    self.times.extend_from_slice(&message.packet_timestamp.saturating_add(after).to_le_bytes());
                }
                Some(message.packet_timestamp)
            }
        };
        let values = convert::all(&mut self.values, &message.values, dtype).ok_or(UNFIT)?;
        if !columns[VALUE].become_rows_of(Cell::Number(dtype), &[]) {
            return Err(UNFIT);
        }
        if let Some(first) = first {
            self.cues.see(columns, CUE, first, columns[TIME].rows());
        }
        columns[VALUE].extend(values);
        columns[TIME].extend(&self.times);
        Ok(())
    }

    fn add_older(&mut self, columns: &mut [Column], message: &Senv<'_>) -> Result<(), &'static str> {
        let timestamps = match message.timestamps {
            Some(times) => Some(convert::signed(times).ok_or(UNFIT)?),
            None => None,
        };
        let same = Se00 {
            name: message.name,
            channel: message.channel,
            packet_timestamp: i64::try_from(message.packet_timestamp).map_err(|_| UNFIT)?,
            time_delta: message.time_delta,
            timestamp_location: message.timestamp_location,
            values: message.values,
            timestamps,
            message_counter: 0,
        };
        self.add(columns, &same)
    }
}

impl Rows for Samples {
    fn take(&mut self, place: &mut Target<'_>, message: &Message<'_>, _: &Entry) -> Result<(), &'static str> {
        match message {
            Message::Se00(message) => self.add(place.columns, message),
            Message::Senv(message) => self.add_older(place.columns, message),
            _ => Err(SCHEMA),
        }
    }

    fn order(&self) -> Option<Order> {
        Some(Order::of_rows(TIME, Some(CUE)))
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
