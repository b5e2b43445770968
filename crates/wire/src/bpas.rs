//! `bpas`: a message that a worker or a live sink could not handle, with the reason (stream `STAGE.aside`).

use crate::flat::{Message, Writer};
use crate::{Array, Error};

/// The schema id.
pub const ID: [u8; 4] = *b"bpas";

/// One message aside.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Aside<'a> {
    /// Name of the worker or the live sink.
    pub stage: &'a str,
    /// One word: `error` (an exception), `killed`, `time`.
    pub reason: &'a str,
    /// For people: the traceback, the signal.
    pub text: &'a str,
    /// Name of the stream that the message is in.
    pub stream: &'a str,
    /// Identity of that stream.
    pub uuid: [u8; 16],
    /// Epoch of the message.
    pub epoch: u32,
    /// Its sequence.
    pub sequence: u64,
    /// Its schema id, four letters.
    pub kind: &'a str,
    /// Its source time, ns since 1970 UTC.
    pub time: i64,
    /// Its bytes.
    pub payload: Array<'a, u8>,
    /// Name of its origin; empty in older messages.
    pub origin: &'a str,
}

/// Verifies and reads a message.
pub fn read(bytes: &[u8]) -> Result<Aside<'_>, Error> {
    let message = Message::open(bytes, ID)?;
    let table = message.root()?;
    Ok(Aside {
        stage: table.text_required(0, "stage")?,
        reason: table.text_or_empty(1, "reason")?,
        text: table.text_or_empty(2, "text")?,
        stream: table.text_or_empty(3, "stream")?,
        uuid: table.uuid(4, "uuid")?,
        epoch: table.number(5, 0, "epoch")?,
        sequence: table.number(6, 0, "sequence")?,
        kind: table.text_or_empty(7, "kind")?,
        time: table.number(8, 0, "time")?,
        payload: table.array_or_empty(9, "payload")?,
        origin: table.text_or_empty(10, "origin")?,
    })
}

/// Writes a message into `out`, replacing what was there.
pub fn write(out: &mut Vec<u8>, parts: &Aside<'_>) -> Result<(), Error> {
    let mut writer = Writer::begin(out, ID);
    let [stage, reason, text, stream, uuid, epoch, sequence, kind, time, payload, origin] =
        writer.root([4, 4, 4, 4, 4, 4, 8, 4, 8, 4, 4]);
    writer.put(epoch, parts.epoch);
    writer.put(sequence, parts.sequence);
    writer.put(time, parts.time);
    writer.text(stage, parts.stage);
    writer.text(reason, parts.reason);
    writer.text(text, parts.text);
    writer.text(stream, parts.stream);
    writer.array(uuid, Array::from(&parts.uuid));
    writer.text(kind, parts.kind);
    writer.array(payload, parts.payload);
    writer.text(origin, parts.origin);
    writer.finish()
}
