//! `ep01` as the states of the connection to the origin of an NXlog.

use super::alarms::ALONE;
use super::kind::{About, Module, ModuleKind, Plan, When};
use super::{Order, Rows, SCHEMA, Target, design, ns_since};
use crate::hdf::column::Design;
use std::sync::Arc;
use store::Entry;
use wire::{DType, Message};

pub(crate) static EP01: ModuleKind = ModuleKind {
    origin: Some(|message| match message {
        Message::Ep01(m) => Some(m.source_name),
        _ => None,
    }),
    holds_on: When::Always,
    repeats: When::Always,
    about: About { rules: &[ALONE], ..About::NONE },
    ..ModuleKind::new("ep01", &[wire::ep01::ID], "NXlog", |_| Some(Arc::new(ConnectionsPlan)))
};

#[derive(Debug)]
pub(super) struct ConnectionsPlan;

impl Plan for ConnectionsPlan {
    fn datasets(&self, _module: &Module) -> Vec<&str> {
        vec!["connection_status_time", "connection_status"]
    }

    fn begin(&self, path: &str, _module: &Module) -> (Vec<Design>, Box<dyn Rows>) {
        (designs(path), Box::new(Connections))
    }
}

fn designs(path: &str) -> Vec<Design> {
    vec![
        design(path, "connection_status_time", DType::Int64, ns_since("start")),
        design(path, "connection_status", DType::Int16, Vec::new()),
    ]
}

struct Connections;

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
