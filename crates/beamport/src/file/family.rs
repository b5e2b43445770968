//! Sections for many stages of one kind: `[source."d{001..120}"]` stands for 120 sections, each with its own item of every
//! range that a text of the section has. In any section an entry of a list with a range stands for as many entries.

use crate::limits;
use settings::{Family, Refused, expanded, is_family};
use toml_edit::{Array, Item, Value};

/// The names that a header stands for.
pub(super) fn names(header: &str) -> Result<Vec<String>, Refused> {
    expanded(header, limits::SECTIONS_MAX)
}

/// The section of member `at` of `count`; and what is wrong with ranges in it, by key. A header without a range has one
/// member, whose texts are left as they are.
/// `entries`: how many entries ranges in lists of the file may still stand for.
pub(super) fn member(
    section: &Item,
    (at, count): (usize, usize),
    is_many: bool,
    entries: &mut usize,
) -> (Item, Vec<(String, Refused)>) {
    let mut own = section.clone();
    let mut wrong = Vec::new();
    let keys: Vec<String> =
        own.as_table_like().into_iter().flat_map(|table| table.iter()).map(|(key, _)| key.to_owned()).collect();
    for key in keys {
        let Some(item) = own.as_table_like_mut().and_then(|table| table.get_mut(&key)) else { continue };
        let result = match item {
            Item::Value(Value::String(text)) if is_many && is_family(text.value()) => {
                let text = text.value().clone();
                let family = Family::of(&text);
                // Any item will do after a mistake, which is then the only one.
                let any = family.iter().flatten().next().map(|family| family.item(0)).unwrap_or_default();
                *item = Item::Value(any.into());
                one_of(family, at, count).map(Value::from)
            }
            Item::Value(Value::Array(list)) if list.iter().any(|entry| entry.as_str().is_some_and(is_family)) => {
                all_of(list, entries).map(Value::Array)
            }
            _ => continue,
        };
        match result {
            Ok(value) => *item = Item::Value(value),
            Err(refused) => wrong.push((key, refused)),
        }
    }
    (own, wrong)
}

/// The item of a range that belongs to a member.
fn one_of(family: Option<Result<Family<'_>, Refused>>, at: usize, count: usize) -> Result<String, Refused> {
    let family = family.transpose()?;
    match family {
        Some(family) if family.count == count => Ok(family.item(at)),
        other => {
            let items = other.map_or(0, |family| family.count);
            let cause = format!("its range has {items} items, that of the section has {count}");
            Err(Refused::new(cause, "write ranges of the same length"))
        }
    }
}

/// A list with its ranges written out.
fn all_of(list: &Array, entries: &mut usize) -> Result<Array, Refused> {
    let mut out = Array::new();
    for entry in list {
        match entry.as_str().filter(|text| is_family(text)) {
            Some(text) => {
                let items = expanded(text, *entries)?;
                *entries -= items.len();
                out.extend(items);
            }
            None => out.push(entry.clone()),
        }
    }
    Ok(out)
}
