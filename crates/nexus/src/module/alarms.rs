//! `al00` as the alarms of an NXlog.

use super::{design, ns_since};
use crate::column::{Column, Design};
use crate::h5::Cell;
use crate::limits::TEXT_BYTES;
use wire::DType;
use wire::al00::Al00;

pub(super) fn designs(path: &str) -> Vec<Design> {
    let mut message = design(path, "alarm_message", DType::UInt8, Vec::new());
    message.cell = Cell::Chars(TEXT_BYTES);
    vec![
        design(path, "alarm_time", DType::Int64, ns_since("start")),
        design(path, "alarm_severity", DType::Int16, Vec::new()),
        message,
    ]
}

pub(super) fn take(columns: &mut [Column], alarm: &Al00<'_>) {
    columns[0].extend(&alarm.timestamp.to_le_bytes());
    columns[1].extend(&(alarm.severity as i16).to_le_bytes());
    columns[2].extend(&cell(alarm.message));
}

/// A text as the file holds it: up to its first NUL, where HDF5 ends it, and cut at a letter.
pub(super) fn cell(text: &str) -> [u8; TEXT_BYTES] {
    let mut out = [0_u8; TEXT_BYTES];
    let whole = text.split('\0').next().unwrap_or_default();
    let mut length = whole.len().min(TEXT_BYTES);
    while !whole.is_char_boundary(length) {
        length -= 1;
    }
    out[..length].copy_from_slice(&whole.as_bytes()[..length]);
    out
}
