//! The shapes of detectors, as the templates of the instrument's NeXus files have them: a group with events (`ev44`) in
//! it and a dataset `detector_number` whose numbers rise by one.
//!
//! Failure behaviour: a template that is not there, too large or unusual gives no shapes; the page then guesses.

use crate::books::{SETTINGS, text};
use serde_json::Value;
use std::path::Path;
use std::time::SystemTime;
use toml_edit::DocumentMut;

/// The detectors of an instrument.
#[derive(Default)]
pub(super) struct Detectors {
    /// When the settings were written that were read.
    written: Option<SystemTime>,
    known: Vec<Detector>,
}

/// Where the pixels of a detector lie, and whose events they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Detector {
    stream: Option<String>,
    source: Option<String>,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) first: i32,
}

impl Detectors {
    /// The detector whose events a stream has. `origin`: who made them.
    pub(super) fn find(&mut self, folder: &Path, stream: &str, origin: &str) -> Option<&Detector> {
        let path = folder.join(SETTINGS);
        let written = std::fs::metadata(&path).and_then(|meta| meta.modified()).ok();
        if written != self.written {
            self.written = written;
            self.known = text(&path).map(|settings| of_settings(&settings)).unwrap_or_default();
        }
        let fits = |given: &Option<String>, name: &str| given.as_deref().is_none_or(|given| given == name);
        let named = self.known.iter().find(|one| fits(&one.source, origin) && fits(&one.stream, stream));
        // In templates of a facility, a stream has the name of a topic.
        named.or_else(|| self.known.iter().find(|one| one.source.as_deref() == Some(origin)))
    }
}

/// Those in the templates that a resolved instrument file names.
fn of_settings(settings: &str) -> Vec<Detector> {
    let Ok(settings) = settings.parse::<DocumentMut>() else { return Vec::new() };
    let sinks = settings.get("sink").and_then(|sinks| sinks.as_table_like());
    let templates =
        sinks.into_iter().flat_map(|sinks| sinks.iter()).filter_map(|(_, sink)| sink.get("template")?.as_str());
    let trees = templates.filter_map(|path| serde_json::from_str(&text(Path::new(path)).ok()?).ok());
    trees.flat_map(|tree: Value| of_group(&tree).1).collect()
}

/// Stream and source of events.
type Events = (Option<String>, Option<String>);

/// The events in a group that have no shape yet, and the detectors.
fn of_group(group: &Value) -> (Vec<Events>, Vec<Detector>) {
    let (mut sources, mut all, mut shape) = (Vec::new(), Vec::new(), None);
    for child in group["children"].as_array().into_iter().flatten() {
        let config = &child["config"];
        match child["module"].as_str() {
            Some("ev44" | "ev42" | "ev43") => {
                let text = |key: &str| config[key].as_str().map(str::to_owned);
                sources.push((text("stream").or_else(|| text("topic")), text("source")));
            }
            Some("dataset") if config["name"] == "detector_number" => shape = shape_of(config),
            _ => {
                let (more, detectors) = of_group(child);
                sources.extend(more);
                all.extend(detectors);
            }
        }
    }
    if let Some((rows, columns, first)) = shape {
        all.extend(sources.drain(..).map(|(stream, source)| Detector { stream, source, rows, columns, first }));
    }
    (sources, all)
}

/// Rows, columns and first pixel of a dataset whose numbers rise by one.
fn shape_of(config: &Value) -> Option<(usize, usize, i32)> {
    let range = &config["range"];
    let (lengths, first) = if range.is_object() {
        let lengths = range["shape"].as_array()?.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>()?;
        (lengths, range["first"].as_i64()?)
    } else {
        let (mut lengths, mut numbers) = (Vec::new(), Vec::new());
        flatten(&config["values"], 0, &mut lengths, &mut numbers)?;
        let first = *numbers.first()?;
        let rise = numbers.iter().zip(first..).all(|(number, expected)| *number == expected);
        let whole = lengths.iter().product::<u64>() == numbers.len() as u64;
        (lengths, (rise && whole).then_some(first)?)
    };
    let (columns, rows) = lengths.split_last()?;
    let rows = rows.iter().try_fold(1_u64, |all, length| all.checked_mul(*length))?;
    let size = |length: u64| usize::try_from(length).ok().filter(|length| *length > 0);
    Some((size(rows)?, size(*columns)?, i32::try_from(first).ok()?))
}

/// The numbers in nested lists, and the length of the first list of each depth.
fn flatten(value: &Value, depth: usize, lengths: &mut Vec<u64>, numbers: &mut Vec<i64>) -> Option<()> {
    let Some(list) = value.as_array() else {
        numbers.push(value.as_i64()?);
        return Some(());
    };
    if lengths.len() == depth {
        lengths.push(list.len() as u64);
    }
    list.iter().try_for_each(|value| flatten(value, depth + 1, lengths, numbers))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_detector_of_the_reflectometer_has_its_shape() {
        let folder = std::env::temp_dir().join(format!("beamport-detectors-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let template = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/amor.nexus.json");
        std::fs::write(folder.join(SETTINGS), format!("[sink.file]\ntemplate = \"{template}\"\n")).unwrap();
        let mut detectors = Detectors::default();
        let found = detectors.find(&folder, "detector", "amor_detector").unwrap();
        assert_eq!((found.rows, found.columns, found.first), (128, 256, 1));
        assert!(detectors.find(&folder, "detector", "another").is_none());
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(detectors.find(&folder, "detector", "amor_detector").is_none());
    }

    #[test]
    fn numbers_that_do_not_rise_by_one_have_no_shape() {
        let of = |values: &str| shape_of(&serde_json::from_str(&format!("{{\"values\": {values}}}")).unwrap());
        assert_eq!(of("[[5, 6, 7], [8, 9, 10]]"), Some((2, 3, 5)));
        assert_eq!(of("[1, 2, 3]"), Some((1, 3, 1)));
        for values in ["[[1, 2], [4, 5]]", "[[1, 2], [3]]", "[]", "[[]]", "7.5", "[[1, \"x\"]]", "null"] {
            assert_eq!(of(values), None, "{values}");
        }
    }
}
