//! `layout = "ess"`: names, types and attributes as the ESS file writer has them, for programs that were written for
//! its files. The content of the rows is the same; only their names and types differ.
//!
//! * Signs: `event_id` i4, `event_index` and `cue_index` i8, `cue_timestamp_zero` i8; other times u8. The bytes of a row
//!   are the same either way, so that modules need not know.
//! * Times have `start`, also those of pulses. Modules from outside give them with a sign all the same.
//! * `alarm_message` has 200 bytes, and says so where there is no text.
//! * Frames are `value` of an NXlog.

use super::{Module, ns_since};
use crate::hdf::column::Design;
use crate::hdf::h5::Cell;
use crate::hdf::value::Data;
use crate::module::user::Dataset;
use wire::DType;

/// Bytes of an alarm's text.
pub(super) const ALARM_BYTES: usize = 200;
/// The text of an alarm that has none.
pub(super) const NO_ALARM: &str = "NO ALARM MESSAGE";

/// The columns of a module, dressed.
pub(super) fn dress(designs: &mut [Design], module: &Module) {
    // Of a module from outside only what it said is times: nobody else knows what its names mean.
    if module.kind.user.is_some() {
        let times = Dataset::times("");
        let is_time = |design: &&mut Design| {
            design.cell == times.cell && times.attributes.iter().all(|one| design.attributes.contains(one))
        };
        designs.iter_mut().filter(is_time).for_each(|design| design.cell = Cell::Number(DType::UInt64));
        return;
    }
    for design in designs {
        let name = design.path.rsplit('/').next().unwrap_or_default();
        if module.kind.has_free_names && !matches!(name, "time" | "cue_index" | "cue_timestamp_zero") {
            continue;
        }
        let (dtype, is_time) = match name {
            "event_id" => (DType::Int32, false),
            "event_index" | "cue_index" => (DType::Int64, false),
            "cue_timestamp_zero" => (DType::Int64, true),
            "event_time_zero" | "time" | "arrival_time" | "alarm_time" | "connection_status_time" => {
                (DType::UInt64, true)
            }
            "alarm_message" => {
                design.cell = Cell::Chars(ALARM_BYTES);
                continue;
            }
            _ => continue,
        };
        design.cell = Cell::Number(dtype);
        if is_time {
            design.attributes = ns_since("start");
        }
    }
}

/// Attributes of the group, dressed.
pub(super) fn dress_group(attributes: &mut [(String, Data)]) {
    for (name, _) in attributes.iter_mut().filter(|(name, _)| name == "stream") {
        "topic".clone_into(name);
    }
}
