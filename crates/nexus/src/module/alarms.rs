//! `al00` as the alarms of an NXlog, and the alarms that stand in `f142`.
//!
//! An `f142` says beside its value that an alarm changed, or that none did; only the former is a row, with the word of its
//! status as text.

use super::ess::{ALARM_BYTES, NO_ALARM};
use super::kind::{About, Module, ModuleKind, Plan, When};
use super::{Order, Rows, SCHEMA, Target, UNFIT, design, ns_since};
use crate::hdf::column::{Column, Design};
use crate::hdf::h5::Cell;
use crate::limits::TEXT_BYTES;
use std::sync::Arc;
use store::Entry;
use wire::al00::{Al00, Severity};
use wire::f142::{AlarmSeverity, AlarmStatus, F142};
use wire::{DType, Message};

pub(crate) static AL00: ModuleKind = ModuleKind {
    origin: Some(|message| match message {
        Message::Al00(m) => Some(m.source_name),
        Message::F142(m) => Some(m.source_name),
        _ => None,
    }),
    holds_on: When::Always,
    repeats: When::Always,
    about: About { rules: &[ALONE], ..About::NONE },
    ..ModuleKind::new("al00", &[wire::al00::ID, wire::f142::ID], "NXlog", |_| Some(Arc::new(AlarmsPlan)))
};

/// A rule of the reference page, for `ep01` too.
pub(super) const ALONE: &str = "Put it in the group of the log of its origin: alone it is an `NXlog` without `value`, \
    which scippnexus loads as a plain group.";

#[derive(Debug)]
pub(super) struct AlarmsPlan;

impl Plan for AlarmsPlan {
    fn datasets(&self, _module: &Module) -> Vec<&str> {
        vec!["alarm_time", "alarm_severity", "alarm_message"]
    }

    fn begin(&self, path: &str, module: &Module) -> (Vec<Design>, Box<dyn Rows>) {
        let (bytes, empty) = if module.is_ess() { (ALARM_BYTES, NO_ALARM) } else { (TEXT_BYTES, "") };
        (designs(path), Box::new(Alarms { bytes, empty }))
    }
}

fn designs(path: &str) -> Vec<Design> {
    let mut message = design(path, "alarm_message", DType::UInt8, Vec::new());
    message.cell = Cell::Chars(TEXT_BYTES);
    vec![
        design(path, "alarm_time", DType::Int64, ns_since("start")),
        design(path, "alarm_severity", DType::Int16, Vec::new()),
        message,
    ]
}

struct Alarms {
    /// Bytes of a text.
    bytes: usize,
    /// The text where a message has none.
    empty: &'static str,
}

impl Rows for Alarms {
    fn take(&mut self, place: &mut Target<'_>, message: &Message<'_>, _: &Entry) -> Result<(), &'static str> {
        match message {
            Message::Al00(alarm) => self.add(place.columns, alarm),
            Message::F142(message) => {
                if let Some(alarm) = alarm_of(message)? {
                    self.add(place.columns, &alarm);
                }
            }
            _ => return Err(SCHEMA),
        }
        Ok(())
    }

    fn order(&self) -> Option<Order> {
        Some(Order::of_rows(0, None))
    }

    fn is_beside(&self, message: &Message<'_>) -> bool {
        matches!(message, Message::F142(_))
    }
}

/// The alarm that a value came with, if it changed.
fn alarm_of<'a>(message: &F142<'a>) -> Result<Option<Al00<'a>>, &'static str> {
    let timestamp = i64::try_from(message.timestamp).map_err(|_| UNFIT)?;
    let severity = match message.severity {
        AlarmSeverity::NoAlarm => Severity::Ok,
        AlarmSeverity::Minor => Severity::Minor,
        AlarmSeverity::Major => Severity::Major,
        AlarmSeverity::Invalid => Severity::Invalid,
        AlarmSeverity::NoChange => return Ok(None),
    };
    let text = if message.status == AlarmStatus::NoChange { "" } else { message.status.name() };
    Ok(Some(Al00 { source_name: message.source_name, timestamp, severity, message: text }))
}

impl Alarms {
    fn add(&self, columns: &mut [Column], alarm: &Al00<'_>) {
        columns[0].extend(&alarm.timestamp.to_le_bytes());
        columns[1].extend(&(alarm.severity as i16).to_le_bytes());
        let text = if alarm.message.is_empty() { self.empty } else { alarm.message };
        columns[2].extend(&cell(cut(text, self.bytes))[..self.bytes]);
    }
}

/// A text as a cell of so many bytes holds it: up to its first NUL, where HDF5 ends it, and cut at a letter.
pub(crate) fn cut(text: &str, bytes: usize) -> &str {
    let whole = text.split('\0').next().unwrap_or_default();
    let mut length = whole.len().min(bytes);
    while !whole.is_char_boundary(length) {
        length -= 1;
    }
    &whole[..length]
}

/// A text as the file holds it.
pub(super) fn cell(text: &str) -> [u8; TEXT_BYTES] {
    let mut out = [0_u8; TEXT_BYTES];
    let cut = cut(text, TEXT_BYTES);
    out[..cut.len()].copy_from_slice(cut.as_bytes());
    out
}
