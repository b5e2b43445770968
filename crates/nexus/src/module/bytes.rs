//! Messages whose content nobody looks into, as they came: `ar51` (raw readout) and `json` (text).
//!
//! The bytes of all messages stand in one dataset, one after the other; those of row `r` begin at `INDEX[r]` and end where
//! those of the next row begin. Datasets of texts of variable length would put them into libhdf5's heap, which no commit
//! can set back.

use super::{Order, Rows, SCHEMA, Target, UNFIT, design, ns_since};
use crate::column::Design;
use crate::limits::ROW_BYTES_MAX;
use store::Entry;
use wire::{DType, Message};

const BYTES: usize = 0;
const INDEX: usize = 1;
const TIME: usize = 2;
const ARRIVAL: usize = 3;
const ID: usize = 4;

const ORDER: Order = Order { time: TIME, lists: &[(INDEX, &[BYTES])], cues: None };

/// The messages name no time of their own: it is what their stream has.
fn designs(path: &str, name: &str, index: &str) -> Vec<Design> {
    vec![
        design(path, name, DType::UInt8, Vec::new()),
        design(path, index, DType::UInt64, Vec::new()),
        design(path, "time", DType::Int64, ns_since("start")),
        design(path, "arrival_time", DType::Int64, ns_since("start")),
    ]
}

pub(super) fn readout_designs(path: &str) -> Vec<Design> {
    let mut all = designs(path, "raw_data", "raw_data_index");
    all.push(design(path, "message_id", DType::Int64, Vec::new()));
    all
}

pub(super) fn text_designs(path: &str) -> Vec<Design> {
    designs(path, "text", "text_index")
}

fn add(place: &mut Target<'_>, bytes: &[u8], entry: &Entry) -> Result<(), &'static str> {
    if bytes.len() as u64 > ROW_BYTES_MAX {
        return Err(UNFIT);
    }
    let first = place.columns[BYTES].rows();
    place.columns[BYTES].extend(bytes);
    place.columns[INDEX].extend(&first.to_le_bytes());
    place.columns[TIME].extend(&entry.source_time.to_le_bytes());
    place.columns[ARRIVAL].extend(&entry.arrival_time.to_le_bytes());
    Ok(())
}

pub(super) struct Readouts;

impl Rows for Readouts {
    fn take(&mut self, place: &mut Target<'_>, message: &Message<'_>, entry: &Entry) -> Result<(), &'static str> {
        let Message::Ar51(message) = message else { return Err(SCHEMA) };
        add(place, message.raw_data.bytes(), entry)?;
        place.columns[ID].extend(&message.message_id.to_le_bytes());
        Ok(())
    }

    fn order(&self) -> Option<Order> {
        Some(ORDER)
    }
}

pub(super) struct Texts;

impl Rows for Texts {
    fn take(&mut self, place: &mut Target<'_>, message: &Message<'_>, entry: &Entry) -> Result<(), &'static str> {
        let Message::Json(message) = message else { return Err(SCHEMA) };
        add(place, message.json.as_bytes(), entry)
    }

    fn order(&self) -> Option<Order> {
        Some(ORDER)
    }
}
