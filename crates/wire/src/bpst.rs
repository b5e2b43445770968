//! `bpst`: how a stage is. Messages of the stream `status`; a cache for screens, never a fact of record.

use crate::Error;
use crate::flat::{Message, Writer};

/// The schema id.
pub const ID: [u8; 4] = *b"bpst";

/// How a stage is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Status<'a> {
    /// Name of the stage.
    pub stage: &'a str,
    /// When, ns since 1970 UTC.
    pub time: i64,
    /// The six metrics and what the stage adds, a JSON object.
    pub json: &'a str,
}

/// Verifies and reads a message.
pub fn read(bytes: &[u8]) -> Result<Status<'_>, Error> {
    let message = Message::open(bytes, ID)?;
    let table = message.root()?;
    Ok(Status {
        stage: table.text_required(0, "stage")?,
        time: table.number(1, 0, "time")?,
        json: table.text_or_empty(2, "json")?,
    })
}

/// Writes a message into `out`, replacing what was there.
pub fn write(out: &mut Vec<u8>, parts: &Status<'_>) -> Result<(), Error> {
    let mut writer = Writer::begin(out, ID);
    let [stage, time, json] = writer.root([4, 8, 4]);
    writer.put(time, parts.time);
    writer.text(stage, parts.stage);
    writer.text(json, parts.json);
    writer.finish()
}
