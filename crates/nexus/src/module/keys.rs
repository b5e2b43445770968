//! Keys of `config` that several kinds of modules have.

use settings::{Key, key};

pub(crate) static DTYPE: Key = key(
    "dtype",
    "a type",
    "`double` (`f144`); that of the first message (`se00`, `ad00`)",
    "Type of `value` (`data` of frames) in the file; values out of its range are `unfit`.",
);
pub(crate) static TYPE: Key = key("type", "a type", "-", "Synonym of `dtype`.");
pub(crate) static VALUE_UNITS: Key = key("value_units", "text", "none", "Attribute `units` of `value`.");
pub(crate) static UNIT: Key = key("unit", "text", "-", "Synonym of `value_units`.");
pub(crate) static CUE_SECONDS: Key =
    key("cue_seconds", "number above 0", "`10`", "Source time between two cues, in s, if the layout has cues.");
/// Asks for the alarms of the same origin in the group of a log.
pub(crate) static ALARMS: Key = key(
    "enable_alarm_info",
    "`true` or `false`",
    "`false`; `true` with `layout = \"ess\"`",
    "Whether to add `al00` of the same origin.",
);
pub(crate) static CONNECTION: Key = key(
    "enable_epics_con_info",
    "`true` or `false`",
    "`false`; `true` with `layout = \"ess\"`",
    "Whether to add `ep01` of the same origin.",
);
