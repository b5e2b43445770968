//! `ep01` as the states of the connection to the origin of an NXlog.

use super::{Order, Rows, SCHEMA, Target, design, ns_since};
use crate::column::Design;
use store::Entry;
use wire::{DType, Message};

pub(super) fn designs(path: &str) -> Vec<Design> {
    vec![
        design(path, "connection_status_time", DType::Int64, ns_since("start")),
        design(path, "connection_status", DType::Int16, Vec::new()),
    ]
}

pub(super) struct Connections;

impl Rows for Connections {
    fn take(&mut self, place: &mut Target<'_>, message: &Message<'_>, _: &Entry) -> Result<(), &'static str> {
        let Message::Ep01(message) = message else { return Err(SCHEMA) };
        place.columns[0].extend(&message.timestamp.to_le_bytes());
        place.columns[1].extend(&(message.status as i16).to_le_bytes());
        Ok(())
    }

    fn order(&self) -> Option<Order> {
        Some(Order::of_rows(0, None))
    }
}
