//! One key of an object: which keys are known, and the texts, names and types under them.

use super::Check;
use crate::hdf::names::{bad_name, join, short};
use crate::hdf::value::{DataType, TYPES};
use crate::template::json::{Object, Value, first_of};
use settings::nearest;

/// The rule for names.
pub(super) const NAME_HINT: &str = "a name is one step of a path, such as `detector`";

impl Check {
    /// An object, with a mistake for each key that is neither known nor ignored.
    pub(super) fn object<'v>(
        &mut self,
        at: &str,
        value: &'v Value,
        what: &str,
        known: &[&str],
        ignored: &[&str],
    ) -> Option<&'v Object> {
        let Some(map) = value.as_object() else {
            self.wrong(at, format!("{what} is an object, this is {}", kind_of(value)), "write it as {...}");
            return None;
        };
        for key in &map.twice {
            self.wrong_but(
                &join(at, key),
                format!("the key `{}` appears twice", short(key)),
                "remove one",
                "the last one is used",
            );
        }
        for (key, _) in map.members() {
            if known.contains(&key) || ignored.contains(&key) {
                continue;
            }
            let hint = match nearest(key, known.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("{what} has: {}", known.join(", ")),
            };
            let cause = format!("unknown key `{}` of {what}", short(key));
            if !self.is_lenient() {
                self.wrong(&join(at, key), format!("unknown key `{}`", short(key)), hint);
            } else {
                let perhaps = if hint.starts_with("did you mean") { format!("; {hint}") } else { String::new() };
                self.warn(&join(at, key), cause, &format!("it is ignored{perhaps}"));
            }
        }
        Some(map)
    }

    /// A text under one of two keys.
    pub(super) fn text<'v>(&mut self, at: &str, map: &'v Object, keys: [&str; 2]) -> Option<&'v str> {
        let (key, value) = first_of(map, keys)?;
        if value.as_str().is_none() {
            let hint = format!("write a text in quotes: \"{key}\": \"...\"");
            self.wrong(&join(at, key), format!("`{key}` is a text, this is {}", kind_of(value)), hint);
        }
        let text = value.as_str()?;
        if text.contains('\0') {
            self.wrong(&join(at, key), "a text with a NUL byte, where HDF5 would cut it", "remove it");
            return None;
        }
        Some(text)
    }

    /// The name of a node. A node without one is checked under a unique name, and the target of any link into its group
    /// may be that node.
    pub(super) fn name_or_any(&mut self, at: &str, map: &Object) -> String {
        self.name(at, map).unwrap_or_else(|| {
            self.lost.insert(self.here.clone());
            format!("?{}", self.nodes)
        })
    }

    /// A name that must be there and must be one name.
    pub(super) fn name(&mut self, at: &str, map: &Object) -> Option<String> {
        if !map.has("name") {
            self.wrong(at, "`name` is missing", "add \"name\": \"...\"");
            return None;
        }
        let name = self.text(at, map, ["name", "name"])?;
        match bad_name(name) {
            None => Some(name.to_owned()),
            Some(cause) => {
                self.wrong(&join(at, "name"), cause, NAME_HINT);
                None
            }
        }
    }

    /// The type under one of two keys.
    pub(super) fn data_type(&mut self, at: &str, map: &Object, keys: [&str; 2]) -> Option<DataType> {
        let (key, _) = first_of(map, keys)?;
        let word = self.text(at, map, keys)?;
        let found = TYPES.iter().find(|(name, _)| *name == word).map(|(_, t)| *t);
        if found.is_none() {
            let hint = match nearest(word, TYPES.iter().map(|(name, _)| *name)) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("types are: {}", TYPES[..11].iter().map(|(n, _)| *n).collect::<Vec<_>>().join(", ")),
            };
            self.wrong(&join(at, key), format!("unknown type `{}`", short(word)), hint);
        }
        found
    }
}

/// The kind of a value, with its article.
pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::Text(_) => "a text",
        Value::List(_) | Value::Numbers(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A value as text: a number as it is, of another value its kind.
pub(super) fn said(value: &Value) -> String {
    value.as_number().map_or_else(|| kind_of(value).to_owned(), ToString::to_string)
}
