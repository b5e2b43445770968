//! The keys of a template. What is not here is refused.

/// Keys of the whole.
pub(super) const TOP: &[&str] = &["children", "attributes", "template_version", "dynamic_version"];
/// Keys of a group.
pub(super) const GROUP: &[&str] = &["type", "name", "children", "attributes"];
/// Keys of a node with `module`.
pub(super) const NODE: &[&str] = &["module", "config", "attributes", "type"];
/// Keys of an attribute in list form.
pub(super) const ATTRIBUTE: &[&str] = &["name", "values", "value", "dtype", "type"];
/// Modules.
pub(super) const MODULES: &[&str] =
    &["dataset", "link", "mdat", "ev44", "f144", "al00", "da00", "se00", "ad00", "bpgr"];
/// Settings of `dataset`.
pub(super) const DATASET: &[&str] = &["name", "values", "value", "dtype", "type", "range", "linspace"];
/// Settings of `link`.
pub(super) const LINK: &[&str] = &["name", "source", "file"];
/// Settings of `mdat`.
pub(super) const TIMES: &[&str] = &["items"];
/// Settings of every module with a stream.
pub(super) const STREAM: &[&str] = &["stream", "topic", "source", "writer_module", "compression"];
/// Settings of a variable of `da00`.
pub(super) const VARIABLE: &[&str] = &["name", "unit", "label", "source", "data_type", "axes", "shape", "data"];

/// Keys that ESS writers once read and now ignore; we ignore them as well.
pub(super) const OBSOLETE: &[&str] = &["size", "string_size", "space", "stream"];
/// Settings that tune the ESS writer; ours chooses by itself.
pub(super) const TUNING: &[&str] =
    &["chunk_size", "cue_interval", "array_size", "meta_data", "enable_epics_con_info", "enable_alarm_info"];

/// Settings of one module beside those of every one.
pub(super) fn settings(module: &str) -> &'static [&'static str] {
    match module {
        "f144" | "se00" => &["dtype", "type", "value_units", "unit"],
        "da00" => &["variables", "constants", "attributes"],
        _ => &[],
    }
}

/// Modules that existed or exist at ESS and that beamport does not write, with what to use.
pub(super) fn foreign(module: &str) -> Option<&'static str> {
    Some(match module {
        "ev42" => "ev42 ended in 2023; its successor is ev44",
        "f142" => "f142 ended in 2024; its successors are f144 and al00",
        "senv" => "senv ended in 2023; its successor is se00",
        "hs00" | "hs01" => "histograms come as da00",
        "ep00" | "ep01" | "tdct" | "ADAr" | "NDAr" | "ns10" => {
            "this version writes ev44, f144, al00, da00, se00, ad00 and bpgr"
        }
        _ => return None,
    })
}
