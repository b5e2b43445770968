//! `se00` and `senv` as NXlog: one row a sample. Times are the message's, or counted from the packet's time by `time_delta`.

use super::{BROKEN, Cues, Order, Rows, SCHEMA, Target, UNFIT, convert};
use crate::column::Column;
use crate::h5::Cell;
use serde_json::Value;
use store::Entry;
use wire::se00::Se00;
use wire::senv::Senv;
use wire::{DType, Message};

const VALUE: usize = 0;
const TIME: usize = 1;
const CUE: usize = 2;

pub(super) struct Samples {
    /// Type in the file; the first message's where the template does not say.
    dtype: Option<DType>,
    /// Where the template does not say, whole numbers that an `int64` holds are that.
    wide: bool,
    cues: Cues,
    values: Vec<u8>,
    times: Vec<u8>,
}

impl Samples {
    pub(super) fn new(dtype: Option<DType>, wide: bool) -> Self {
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
