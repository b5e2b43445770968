//! Messages whose content nobody looks into, as they came: `ar51` (raw readout) and `json` (text).
//!
//! The bytes of all messages stand in one dataset, one after the other; those of row `r` begin at `INDEX[r]` and end where
//! those of the next row begin. Datasets of texts of variable length would put them into libhdf5's heap, which no commit
//! can set back.

use super::kind::{Module, ModuleKind, Plan};
use super::{Order, Rows, SCHEMA, Target, UNFIT, design, ns_since};
use crate::hdf::column::Design;
use crate::limits::ROW_BYTES_MAX;
use std::sync::Arc;
use store::Entry;
use wire::{DType, Message};

pub(super) static AR51: ModuleKind = ModuleKind {
    origin: Some(|message| match message {
        Message::Ar51(m) => Some(m.source_name),
        _ => None,
    }),
    ..ModuleKind::new("ar51", &[wire::ar51::ID], "NXcollection", |_| Some(Arc::new(ReadoutsPlan)))
};

pub(super) static JSON: ModuleKind =
    ModuleKind::new("json", &[wire::json::ID], "NXcollection", |_| Some(Arc::new(TextsPlan)));

#[derive(Debug)]
struct ReadoutsPlan;

impl Plan for ReadoutsPlan {
    fn datasets(&self, _module: &Module) -> Vec<&str> {
        vec!["raw_data", "raw_data_index", "time", "arrival_time", "message_id"]
    }

    fn begin(&self, path: &str, _module: &Module) -> (Vec<Design>, Box<dyn Rows>) {
        let mut all = designs(path, "raw_data", "raw_data_index");
        all.push(design(path, "message_id", DType::Int64, Vec::new()));
        (all, Box::new(Readouts))
    }
}

#[derive(Debug)]
struct TextsPlan;

impl Plan for TextsPlan {
    fn datasets(&self, _module: &Module) -> Vec<&str> {
        vec!["text", "text_index", "time", "arrival_time"]
    }

    fn begin(&self, path: &str, _module: &Module) -> (Vec<Design>, Box<dyn Rows>) {
        (designs(path, "text", "text_index"), Box::new(Texts))
    }
}

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

struct Readouts;

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

struct Texts;

impl Rows for Texts {
    fn take(&mut self, place: &mut Target<'_>, message: &Message<'_>, entry: &Entry) -> Result<(), &'static str> {
        let Message::Json(message) = message else { return Err(SCHEMA) };
        add(place, message.json.as_bytes(), entry)
    }

    fn order(&self) -> Option<Order> {
        Some(ORDER)
    }
}
