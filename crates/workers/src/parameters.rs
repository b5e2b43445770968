//! Parameters of ready-made workers: a JSON object, all of whose mistakes are told at once.

use super::Misfit;
use serde_json::{Map, Value};

/// An object that is being read.
pub(super) struct Parameters<'a> {
    map: &'a Map<String, Value>,
    asked: Vec<&'static str>,
    mistakes: Vec<Misfit>,
}

impl<'a> Parameters<'a> {
    pub(super) fn new(map: &'a Map<String, Value>) -> Self {
        Self { map, asked: Vec::new(), mistakes: Vec::new() }
    }

    pub(super) fn mistake(&mut self, key: &str, cause: impl Into<String>, hint: impl Into<String>) {
        self.mistakes.push(Misfit { key: key.to_owned(), cause: cause.into(), hint: hint.into() });
    }

    /// A value as it stands.
    pub(super) fn value(&mut self, key: &'static str) -> Option<&'a Value> {
        if !self.asked.contains(&key) {
            self.asked.push(key);
        }
        self.map.get(key)
    }

    /// A whole number in a range.
    pub(super) fn number(&mut self, key: &'static str, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
        let value = self.value(key)?;
        let number = value.as_i64().filter(|number| range.contains(number));
        if number.is_none() {
            let hint = format!("write a whole number from {} to {}", range.start(), range.end());
            self.mistake(key, format!("it is {value}"), hint);
        }
        number
    }

    /// The same where it must be there.
    pub(super) fn needed(&mut self, key: &'static str, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
        if !self.map.contains_key(key) {
            self.asked.push(key);
            let hint = format!("add `{key} = {}` to the worker's `parameters`", range.start().max(&2));
            self.mistake(key, "it is not there", hint);
            return None;
        }
        self.number(key, range)
    }

    /// One of some words; the first where it is not there.
    pub(super) fn word(&mut self, key: &'static str, words: &[&'static str]) -> &'static str {
        let Some(value) = self.value(key) else { return words[0] };
        let found = words.iter().find(|word| value.as_str() == Some(word));
        if found.is_none() {
            let all: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
            self.mistake(key, format!("it is {value}"), format!("write {}", all.join(" or ")));
        }
        found.unwrap_or(&words[0])
    }

    /// Text that is not empty.
    pub(super) fn text(&mut self, key: &'static str) -> Option<String> {
        let value = self.value(key)?;
        let text = value.as_str().filter(|text| !text.is_empty());
        if text.is_none() {
            self.mistake(key, format!("it is {value}"), "write text in quotes");
        }
        text.map(str::to_owned)
    }

    /// A time with its unit, in ns.
    pub(super) fn time(&mut self, key: &'static str) -> Option<i64> {
        let value = self.value(key)?;
        let time = value.as_str().and_then(ns);
        if time.is_none() {
            self.mistake(key, format!("it is {value}"), "write a time with its unit, like `\"71 ms\"`");
        }
        time
    }

    /// All mistakes, also those of keys that nobody asked for.
    pub(super) fn end(mut self) -> Vec<Misfit> {
        let unknown: Vec<&String> = self.map.keys().filter(|key| !self.asked.contains(&key.as_str())).collect();
        for key in unknown {
            let hint = match self.asked.as_slice() {
                [] => String::new(),
                known => format!("known here: {}", known.join(", ")),
            };
            self.mistakes.push(Misfit { key: key.clone(), cause: "there is no such parameter".into(), hint });
        }
        self.mistakes
    }
}

/// ns of a time with its unit.
fn ns(text: &str) -> Option<i64> {
    let text = text.trim();
    let at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let unit = match &text[at..] {
        "ns" => 1e0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        _ => return None,
    };
    let number: f64 = text[..at].trim().parse().ok()?;
    let time = (number * unit).round();
    (time.is_finite() && time.abs() < 9e18).then_some(time as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_have_units() {
        assert_eq!(ns("71 ms"), Some(71_000_000));
        assert_eq!(ns("-2.5us"), Some(-2500));
        assert_eq!(ns("0 s"), Some(0));
        for wrong in ["71", "71 furlongs", "", "ms", "1e300 s", "nan s"] {
            assert_eq!(ns(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn all_mistakes_are_told_with_what_to_write() {
        let value = json!({"rows": 0, "of": "year", "from": 3, "ros": 1});
        let mut given = Parameters::new(value.as_object().unwrap());
        assert_eq!(given.needed("rows", 1..=64), None);
        assert_eq!(given.needed("columns", 1..=64), None);
        assert_eq!(given.word("of", &["pulse", "start"]), "pulse");
        assert_eq!(given.time("from"), None);
        let told: Vec<String> = given.end().iter().map(|m| format!("{}: {}; {}", m.key, m.cause, m.hint)).collect();
        assert_eq!(
            told,
            [
                "rows: it is 0; write a whole number from 1 to 64",
                "columns: it is not there; add `columns = 2` to the worker's `parameters`",
                "of: it is \"year\"; write \"pulse\" or \"start\"",
                "from: it is 3; write a time with its unit, like `\"71 ms\"`",
                "ros: there is no such parameter; known here: rows, columns, of, from",
            ]
        );
    }
}
