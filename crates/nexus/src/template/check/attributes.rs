//! Attributes of groups, datasets and modules, and the versions, which become attributes of the root.

use super::Check;
use super::keys::{NAME_HINT, kind_of};
use super::values::infer;
use crate::hdf::names::{bad_name, join, short};
use crate::hdf::value::{Data, DataType, Values};
use crate::limits::ATTRIBUTE_BYTES_MAX;
use crate::static_file::TEMPLATE_VERSION;
use crate::template::json::{self, Object, Value, first_of};
use crate::template::{Attribute, words};
use std::collections::HashSet;

/// The value of an attribute, if it can be one.
pub(crate) fn attribute(value: &serde_json::Value) -> Option<Data> {
    let (value, _) = json::read(value.to_string().as_bytes()).ok()?;
    Check::default().attribute_value("", &value, None)
}

impl Check {
    pub(super) fn attributes(&mut self, at: &str, map: &Object) -> Vec<Attribute> {
        self.attributes_with(at, map, words::ATTRIBUTE)
    }

    /// Attributes, an object or a list of objects with the keys `known`.
    pub(super) fn attributes_with(&mut self, at: &str, map: &Object, known: &[&str]) -> Vec<Attribute> {
        let mut out: Vec<Attribute> = Vec::new();
        let at = join(at, "attributes");
        match map.get("attributes") {
            None | Some(Value::Null) => (),
            Some(Value::Object(pairs)) => {
                for name in &pairs.twice {
                    let cause = format!("the attribute `{}` appears twice", short(name));
                    self.wrong_but(&join(&at, name), cause, "remove one", "the last one is used");
                }
                for (name, value) in pairs.members() {
                    let at = join(&at, name);
                    if let Some(cause) = bad_name(name) {
                        self.wrong(&at, cause, NAME_HINT);
                    }
                    if let Some(value) = self.attribute_value(&at, value, None) {
                        out.push(Attribute { name: name.to_owned(), value });
                    }
                }
            }
            Some(Value::List(list)) => {
                let mut names = HashSet::new();
                for (i, one) in list.iter().enumerate() {
                    let at = join(&at, i);
                    let Some(one) = self.object(&at, one, "an attribute", known, words::OBSOLETE) else {
                        continue;
                    };
                    let name = self.name(&at, one);
                    // With an unknown type it is checked as if it had none.
                    let typed = if one.has("data_type") { ["data_type"; 2] } else { ["dtype", "type"] };
                    let dtype = self.data_type(&at, one, typed);
                    let found = first_of(one, ["values", "value"]);
                    let found = found.or_else(|| first_of(one, ["data"; 2]).filter(|(key, _)| known.contains(key)));
                    let Some((key, value)) = found else {
                        self.wrong(&at, "`values` is missing", "add \"values\": ...");
                        continue;
                    };
                    let what = format!("the attribute `{}`", short(name.as_deref().unwrap_or_default()));
                    let (numbers, dtype) = self.numbers_of(&join(&at, key), value, dtype, &what);
                    let value = self.attribute_value(&join(&at, key), numbers.as_ref().unwrap_or(value), dtype);
                    if let (Some(name), Some(value)) = (name, value) {
                        if !names.insert(name.clone()) {
                            let cause = format!("the attribute `{}` appears twice", short(&name));
                            self.wrong_but(&at, cause, "remove one", "the last one is used");
                            out.retain(|known| known.name != name);
                        }
                        out.push(Attribute { name, value });
                    }
                }
            }
            Some(other) => {
                let cause = format!("`attributes` is an object or a list, this is {}", kind_of(other));
                self.wrong(&at, cause, "write them as \"attributes\": {\"units\": \"m\"}");
            }
        }
        if out.iter().any(|one| one.name == "NX_class" && one.value.as_text().is_none()) {
            self.wrong(&at, "`NX_class` is one text", "write \"NX_class\": \"NXdetector\", or another class");
        }
        out
    }

    /// Adds the versions in a template to the attributes of the root. The version of the static file must be the same.
    pub(super) fn versions(
        &mut self,
        map: &Object,
        of_static: Option<Option<String>>,
        attributes: &mut Vec<Attribute>,
    ) {
        for key in [TEMPLATE_VERSION, "dynamic_version"] {
            let Some(value) = map.get(key) else { continue };
            let text = match value {
                Value::Text(text) if !text.contains('\0') => text.to_string(),
                Value::Number(_) => value.plain().to_string(),
                other => {
                    self.wrong(
                        &join("", key),
                        format!("`{key}` is a text, this is {}", kind_of(other)),
                        format!("write \"{key}\": \"...\""),
                    );
                    continue;
                }
            };
            if let Some(other) =
                of_static.as_ref().filter(|other| key == TEMPLATE_VERSION && other.as_ref() != Some(&text))
            {
                let cause = match other {
                    Some(other) => {
                        format!("the static file is of version `{}`, this is `{}`", short(other), short(&text))
                    }
                    None => "the `template_version` of the static file is not text".to_owned(),
                };
                self.wrong(&join("", key), cause, "use the static file of this template");
            }
            if !attributes.iter().any(|known| known.name == key) {
                attributes.push(Attribute { name: key.to_owned(), value: Data::text(text) });
            }
        }
    }

    fn attribute_value(&mut self, at: &str, value: &Value, dtype: Option<DataType>) -> Option<Data> {
        if !self.count(at) {
            return None;
        }
        let truths = self.truths_as_numbers(at, value, dtype, "an attribute");
        let value = truths.as_ref().unwrap_or(value);
        let inferred = dtype.unwrap_or_else(|| infer(value));
        let data = self.data(at, value, inferred)?;
        let bytes = match &data.values {
            Values::Texts(texts) => texts.iter().map(|t| t.len() + 32).sum(),
            Values::Bytes(bytes) => bytes.len(),
            _ => 0,
        };
        if bytes > ATTRIBUTE_BYTES_MAX {
            self.wrong(
                at,
                format!("an attribute of {bytes} bytes; the limit is {ATTRIBUTE_BYTES_MAX}"),
                "make it a dataset",
            );
            return None;
        }
        if data.shape.contains(&0) {
            self.wrong(at, "an attribute without values", "remove it, or give it a value");
            return None;
        }
        Some(data)
    }
}
