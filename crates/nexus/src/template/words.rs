//! The keys of a template. What is not here is refused.

use super::MODULES;

/// Keys of the whole.
pub(super) const TOP: &[&str] = &["children", "attributes", "template_version", "dynamic_version"];
/// Keys of a group.
pub(super) const GROUP: &[&str] = &["type", "name", "children", "attributes"];
/// Keys of a node with `module`.
pub(super) const NODE: &[&str] = &["module", "config", "attributes", "type"];
/// Keys of an attribute in list form.
pub(super) const ATTRIBUTE: &[&str] = &["name", "values", "value", "dtype", "type"];
/// Modules, those with a stream last.
pub(super) fn modules() -> impl Iterator<Item = &'static str> {
    ["dataset", "link", "mdat"].into_iter().chain(MODULES.iter().map(|(word, _)| *word))
}
/// Whether a module of ours has this word, or had it.
pub(crate) fn is_word(word: &str) -> bool {
    modules().any(|known| known == word) || foreign(word).is_some()
}
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
pub(super) const TUNING: &[&str] = &["chunk_size", "cue_interval", "array_size", META_DATA, ALARMS, CONNECTION];
/// Seconds between two cues.
pub(super) const CUES: &str = "cue_seconds";
/// Whether least, greatest and mean stand at the end of a log.
pub(super) const META_DATA: &str = "meta_data";
/// Whether the alarms of its origin stand beside a log.
pub(super) const ALARMS: &str = "enable_alarm_info";
/// Whether the states of the connection to its origin stand beside a log.
pub(super) const CONNECTION: &str = "enable_epics_con_info";

/// Settings of one module beside those of every one.
pub(super) fn settings(module: &str) -> &'static [&'static str] {
    match module {
        "ev44" | "ev42" | "tdct" | "hs01" | "hs00" => &[CUES],
        "f144" | "f142" => &["dtype", "type", "value_units", "unit", CUES, META_DATA],
        "se00" | "senv" => &["dtype", "type", "value_units", "unit", CUES],
        "da00" => &["variables", "constants", "attributes", CUES],
        "ad00" => &["dtype", "type", CUES],
        _ => &[],
    }
}

/// Modules that existed or exist at ESS and that beamport does not write, with what to use.
pub(super) fn foreign(module: &str) -> Option<&'static str> {
    Some(match module {
        "ep00" => "use ep01, its successor since 2021",
        "ADAr" | "NDAr" => "use ad00, its successor",
        _ => return None,
    })
}
