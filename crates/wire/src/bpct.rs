//! `bpct`: a command to the mover, with its answer. Messages of the stream `control`.

use crate::Error;
use crate::flat::{Message, Writer};

/// The schema id.
pub const ID: [u8; 4] = *b"bpct";

/// A command.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Control<'a> {
    /// The verb: `begin`, `end`...
    pub command: &'a str,
    /// Its arguments, a JSON object.
    pub arguments: &'a str,
    /// Its sender.
    pub from: &'a str,
    /// When it came, ns since 1970 UTC.
    pub time: i64,
    /// The answer of the mover, JSON; empty before it.
    pub answer: &'a str,
}

/// Verifies and reads a message.
pub fn read(bytes: &[u8]) -> Result<Control<'_>, Error> {
    let message = Message::open(bytes, ID)?;
    let table = message.root()?;
    Ok(Control {
        command: table.text_required(0, "command")?,
        arguments: table.text_or_empty(1, "arguments")?,
        from: table.text_or_empty(2, "from")?,
        time: table.number(3, 0, "time")?,
        answer: table.text_or_empty(4, "answer")?,
    })
}

/// Writes a message into `out`, replacing what was there.
pub fn write(out: &mut Vec<u8>, parts: &Control<'_>) -> Result<(), Error> {
    let mut writer = Writer::begin(out, ID);
    let [command, arguments, from, time, answer] = writer.root([4, 4, 4, 8, 4]);
    writer.put(time, parts.time);
    writer.text(command, parts.command);
    writer.text(arguments, parts.arguments);
    writer.text(from, parts.from);
    writer.text(answer, parts.answer);
    writer.finish()
}
