//! A message as fields and bytes.

use crate::limits::HEX_BYTES;
use serde_json::{Map, Value};
use store::hex;

/// Adds the fields of a message, as `cat --json` prints them, and its first bytes.
pub(super) fn show(bytes: &[u8], object: &mut Map<String, Value>) {
    let fields = wire::to_json(bytes).unwrap_or(Value::Null);
    object.insert("fields".into(), fields);
    object.insert("bytes".into(), bytes.len().into());
    object.insert("first".into(), hex(&bytes[..bytes.len().min(HEX_BYTES)]).into());
}
