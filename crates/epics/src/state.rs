//! What a source keeps beside its stream: the list of PVs once it was changed, the times of the newest values, and
//! which origins hold frames. The numbers are in the stream itself.
//!
//! `{"file": "9d3c...", "pvs": [...], "times": {"pva:A:B auto ": 1772366400000000000}, "frames": ["cam:Image"]}`

use crate::entry::{Entry, Protocol};
use flow::Fault;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// A state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// The list in the instrument file, as a number.
    pub(crate) file: String,
    /// The list that took its place; `None` if it was not changed.
    pub(crate) list: Option<Vec<Entry>>,
    /// The times of the newest values, by `Identity::key`.
    pub(crate) times: HashMap<String, i64>,
    /// Names of the origins with frames.
    pub(crate) frames: Vec<String>,
}

/// A number for a list of entries (FNV-1a), by which a changed file is known.
pub(crate) fn number_of(entries: &[Entry]) -> String {
    let mut number = 0xcbf2_9ce4_8422_2325_u64;
    for entry in entries {
        for byte in entry.to_json().to_string().bytes().chain([b'\n']) {
            number = (number ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    format!("{number:016x}")
}

/// The text of a state.
pub(crate) fn write<'a>(
    file: &str,
    list: Option<Vec<Value>>,
    times: impl Iterator<Item = (String, i64)>,
    frames: impl Iterator<Item = &'a str>,
) -> String {
    let times: Map<String, Value> = times.map(|(key, time)| (key, time.into())).collect();
    let mut state = json!({"file": file, "times": times, "frames": frames.collect::<Vec<_>>()});
    if let Some(list) = list {
        state["pvs"] = list.into();
    }
    state.to_string()
}

/// Reads the text of a state; that of a new stream is empty.
pub(crate) fn read(text: &str) -> Result<State, Fault> {
    if text.is_empty() {
        return Ok(State::default());
    }
    let state = || {
        let value: Value = serde_json::from_str(text).ok()?;
        let entry = |value: &Value| Entry::of_json(value, Protocol::Pva).ok();
        let list = match value.get("pvs") {
            Some(list) => Some(list.as_array()?.iter().map(entry).collect::<Option<_>>()?),
            None => None,
        };
        let times = value["times"].as_object()?.iter().map(|(key, time)| Some((key.clone(), time.as_i64()?)));
        let frames = value["frames"].as_array()?.iter().map(|name| name.as_str().map(str::to_owned));
        Some(State {
            file: value["file"].as_str()?.to_owned(),
            list,
            times: times.collect::<Option<_>>()?,
            frames: frames.collect::<Option<_>>()?,
        })
    };
    state().ok_or_else(|| Fault::new("the list of PVs that was kept beside the stream cannot be read", text))
}

impl State {
    /// The PVs of the source: those of the file, or those that took their place since the file has had these.
    pub(crate) fn entries(&self, of_file: &[Entry]) -> Vec<Entry> {
        let is_same = self.file == number_of(of_file);
        self.list.as_ref().filter(|_| is_same).map_or_else(|| of_file.to_vec(), Clone::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(names: &[&str]) -> Vec<Entry> {
        names.iter().map(|name| Entry::of_json(&json!(name), Protocol::Pva).unwrap()).collect()
    }

    #[test]
    fn a_state_reads_back() {
        let list = entries(&["A", "ca:B"]);
        let json: Vec<Value> = list.iter().map(Entry::to_json).collect();
        let times = [("pva:A auto ".to_owned(), 7)];
        let text = write("12", Some(json), times.clone().into_iter(), ["cam"].into_iter());
        let expected = State { file: "12".into(), list: Some(list), times: times.into(), frames: vec!["cam".into()] };
        assert_eq!(read(&text).unwrap(), expected);
        assert_eq!(read("").unwrap(), State::default());
        for wrong in ["x", "[]", "{}", r#"{"file": "", "times": {}, "frames": [], "pvs": [1]}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_changed_file_takes_the_place_of_a_changed_list() {
        let (old, new, list) = (entries(&["A"]), entries(&["A", "B"]), entries(&["C"]));
        let state = State { file: number_of(&old), list: Some(list.clone()), ..State::default() };
        assert_eq!(state.entries(&old), list);
        assert_eq!(state.entries(&new), new);
        assert_eq!(State { file: number_of(&old), ..State::default() }.entries(&old), old);
    }
}
