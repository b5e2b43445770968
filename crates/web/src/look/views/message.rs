//! A message as fields and bytes.

use super::super::view::{Object, Scene, View, ViewKind};
use crate::answer::Answer;
use crate::limits::{HEX_BYTES, LIST_MAX, TEXT_MAX};
use flow::Fault;
use serde_json::Value;
use store::hex;

/// The view of what has no other.
pub(in super::super) static MESSAGE: ViewKind = ViewKind::new("message", |_| true, || Box::new(Message));

struct Message;

impl View for Message {
    fn show(&mut self, scene: Scene<'_>, object: &mut Object, _answer: &mut Answer) -> Result<(), Fault> {
        let (stream, found) = scene.message()?;
        stream.payload(found.sequence, &mut |bytes| {
            describe(bytes, object);
            Ok(())
        })
    }
}

/// Adds the fields of a message, as `cat --json` prints them, and its first bytes.
fn describe(bytes: &[u8], object: &mut Object) {
    let mut fields = wire::to_json(bytes).unwrap_or(Value::Null);
    shorten(&mut fields);
    object.insert("fields".into(), fields);
    object.insert("bytes".into(), bytes.len().into());
    object.insert("first".into(), hex(&bytes[..bytes.len().min(HEX_BYTES)]).into());
}

/// Cuts texts and lists that nobody reads on a page.
fn shorten(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > TEXT_MAX => {
            let end = (0..=TEXT_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            *text = format!("{}... ({} bytes)", &text[..end], text.len());
        }
        Value::Array(entries) => {
            let more = entries.len().saturating_sub(LIST_MAX);
            entries.truncate(LIST_MAX);
            entries.iter_mut().for_each(shorten);
            if more > 0 {
                entries.push(format!("... ({more} more)").into());
            }
        }
        Value::Object(fields) => fields.values_mut().for_each(shorten),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_and_lists_are_cut() {
        let mut value = serde_json::json!({"a": "ä".repeat(TEXT_MAX), "b": vec!["x"; LIST_MAX + 2], "c": "short"});
        shorten(&mut value);
        assert_eq!(value["a"], format!("{}... ({} bytes)", "ä".repeat(TEXT_MAX / 2), 2 * TEXT_MAX));
        assert_eq!((value["b"][LIST_MAX].as_str(), value["b"][LIST_MAX + 1].as_str()), (Some("... (2 more)"), None));
        assert_eq!(value["c"], "short");
    }
}
