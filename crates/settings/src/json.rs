//! Values as JSON, and sections that come as a JSON object instead of a file: parameters that a command changes.

use crate::mistake::{Mistake, Mistakes};
use crate::page::Page;
use crate::section::{Section, Take, noun};
use crate::units::{Refused, shortened};
use serde_json::{Map, Value as Json};
use std::path::Path;
use toml_edit::{Array, InlineTable, Item, Value};

/// A value of the file as JSON; `None` where it holds a date or a number that is not finite.
#[must_use]
pub fn json_of(item: &Item) -> Option<Json> {
    if let Some(table) = item.as_table_like() {
        let rows = table.iter().map(|(name, item)| json_of(item).map(|value| (name.to_owned(), value)));
        return rows.collect::<Option<Map<_, _>>>().map(Json::Object);
    }
    if let Some(array) = item.as_array() {
        let all = array.iter().map(|value| json_of(&Item::Value(value.clone())));
        return all.collect::<Option<Vec<_>>>().map(Json::Array);
    }
    let number = || item.as_float().and_then(serde_json::Number::from_f64).map(Json::Number);
    let text = item.as_str().map(Json::from);
    text.or_else(|| item.as_bool().map(Json::from)).or_else(|| item.as_integer().map(Json::from)).or_else(number)
}

/// The inverse; `None` where the value holds a `null`.
fn value_of(json: &Json) -> Option<Value> {
    Some(match json {
        Json::Null => return None,
        Json::Bool(value) => (*value).into(),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => whole.into(),
            None => number.as_f64()?.into(),
        },
        Json::String(text) => text.as_str().into(),
        Json::Array(all) => Value::Array(all.iter().map(value_of).collect::<Option<Array>>()?),
        Json::Object(rows) => {
            let mut table = InlineTable::new();
            for (name, value) in rows {
                table.insert(name, value_of(value)?);
            }
            Value::InlineTable(table)
        }
    })
}

/// Reads a JSON object as if it were a section of a file, with the same mistakes, but for their lines. Anything else than
/// an object counts as an empty one.
pub fn read_json<T>(object: &Json, read: impl FnOnce(&mut Section<'_>) -> Option<T>) -> Result<T, Vec<Mistake>> {
    let page = Page::new(String::new(), "");
    let mut mistakes = Mistakes::default();
    let mut table = InlineTable::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        match value_of(value) {
            Some(value) => drop(table.insert(name, value)),
            None => {
                let what = format!("wrong value of `{}`", shortened(name));
                mistakes.push(page.mistake(0, what, "it is or holds `null`", "leave it out"));
            }
        }
    }
    let mut section = Section {
        page: &page,
        folder: Path::new(""),
        elsewhere: &|_| None,
        title: String::new(),
        line: 0,
        table: &table,
        mistakes: &mut mistakes,
        has_holes: false,
        shown: Vec::new(),
        asked: Vec::new(),
    };
    let value = read(&mut section);
    section.end();
    value.filter(|_| mistakes.list.is_empty()).ok_or(mistakes.list)
}

impl Take for Map<String, Json> {
    fn take(item: &Item) -> Result<Self, Refused> {
        if item.as_table_like().is_none() {
            return Err(Refused::new(format!("expected a table, found {}", noun(item)), ""));
        }
        match json_of(item) {
            Some(Json::Object(rows)) => Ok(rows),
            _ => Err(Refused::new("a value is not a number, text, list or table", "")),
        }
    }
    fn default_of(text: &str) -> Option<Self> {
        (text == "{}").then(Self::new)
    }
    fn show(&self) -> Json {
        Json::Object(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Key, key, required};
    use serde_json::json;

    static COUNT: Key = required("count", "number, 1 to 9", "How many.");
    static MORE: Key = key("more", "table", "{}", "What else.");

    fn read(object: &Json) -> Result<(i64, Json), Vec<String>> {
        let pair = read_json(object, |section| {
            let count = section.within(&COUNT, 1..=9).map(|count| count.value);
            let more: Option<crate::Setting<Map<String, Json>>> = section.get(&MORE);
            Some((count?, Json::Object(more?.value)))
        });
        pair.map_err(|mistakes| mistakes.iter().map(|m| format!("{}; {}; {}", m.what, m.cause, m.hint)).collect())
    }

    #[test]
    fn an_object_is_read_as_a_section_and_back() {
        let more = json!({"a": [1, 2.5, "x"], "b": {"c": true}});
        assert_eq!(read(&json!({"count": 3, "more": more})), Ok((3, more)));
        assert_eq!(read(&json!({"count": 9})), Ok((9, json!({}))));
    }

    #[test]
    fn all_mistakes_of_an_object_are_reported() {
        assert_eq!(
            read(&json!({"count": 10, "mor": 1, "other": {"a": null}})).unwrap_err(),
            [
                "wrong value of `other`; it is or holds `null`; leave it out",
                "wrong value of `count`; 10 is out of range; write 1 to 9",
                "unknown key `mor`; ; did you mean `more`?",
            ]
        );
        assert_eq!(read(&json!({})).unwrap_err(), ["`count` is missing; ; add `count = ...` (number, 1 to 9)"]);
        assert!(read(&json!([1])).is_err());
    }
}
