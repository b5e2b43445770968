//! The keys of a template, without those of single kinds of modules. Other keys are refused.

use crate::module::{ALARMS, CONNECTION};

/// Keys of the whole.
pub(super) const TOP: &[&str] = &["children", "attributes", "template_version", "dynamic_version"];
/// Keys of a group.
pub(super) const GROUP: &[&str] = &["type", "name", "children", "attributes"];
/// Keys of a node with `module`.
pub(super) const NODE: &[&str] = &["module", "config", "attributes", "type"];
/// Keys of an attribute in list form.
pub(super) const ATTRIBUTE: &[&str] = &["name", "values", "value", "dtype", "type"];
/// Modules without a stream.
pub(crate) const WITHOUT_STREAM: [&str; 3] = ["dataset", "link", "mdat"];
/// Settings of `dataset`.
pub(super) const DATASET: &[&str] = &["name", "values", "value", "dtype", "type", "range", "linspace", "compression"];
/// Settings of `link`.
pub(super) const LINK: &[&str] = &["name", "source", "file"];
/// Settings of `mdat`.
pub(super) const TIMES: &[&str] = &["items"];
/// Settings of every module with a stream.
pub(super) const STREAM: &[&str] = &["stream", "topic", "source", "writer_module", "compression"];
/// Settings of a variable of `da00`.
pub(super) const VARIABLE: &[&str] = &["name", "unit", "label", "source", "data_type", "axes", "shape", "data"];

/// Keys of an attribute among those of `da00`, which ESS writes like a variable.
pub(super) const ARRAY_ATTRIBUTE: &[&str] =
    &["name", "values", "value", "dtype", "type", "data", "data_type", "unit", "label", "source", "axes", "shape"];

/// Keys that ESS writers once read and now ignore; we ignore them as well.
pub(super) const OBSOLETE: &[&str] = &["size", "string_size", "space", "stream"];
/// Settings that tune the ESS writer; ours chooses by itself.
pub(super) const TUNING: &[&str] =
    &["chunk_size", "cue_interval", "array_size", "meta_data", ALARMS.name, CONNECTION.name];
/// Modules that existed or exist at ESS and that beamport does not write, with what to use.
pub(crate) fn foreign(module: &str) -> Option<&'static str> {
    Some(match module {
        "ep00" => "use ep01, its successor since 2021",
        "ADAr" | "NDAr" => "use ad00, its successor",
        _ => return None,
    })
}
