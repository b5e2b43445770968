//! `al00`: the alarm state of a process variable.

use crate::Error;
use crate::flat::{Message, Writer};

/// The schema id.
pub const ID: [u8; 4] = *b"al00";

/// How bad it is, as EPICS counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i16)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Severity {
    Ok,
    Minor,
    Major,
    Invalid,
}

impl Severity {
    /// The word of the schema.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Ok => "OK",
            Severity::Minor => "MINOR",
            Severity::Major => "MAJOR",
            Severity::Invalid => "INVALID",
        }
    }
}

/// One alarm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Al00<'a> {
    /// The process variable; empty if the sender left it out.
    pub source_name: &'a str,
    /// When the state began, ns since 1970 UTC.
    pub timestamp: i64,
    /// How bad it is.
    pub severity: Severity,
    /// Text for people; empty if the sender left it out.
    pub message: &'a str,
}

/// Verifies and reads a message.
pub fn read(bytes: &[u8]) -> Result<Al00<'_>, Error> {
    let message = Message::open(bytes, ID)?;
    let table = message.root()?;
    let severity = match table.number(2, 0i16, "severity")? {
        0 => Severity::Ok,
        1 => Severity::Minor,
        2 => Severity::Major,
        3 => Severity::Invalid,
        value => {
            return Err(Error::UnknownKind { field: "severity", value: value.into() });
        }
    };
    Ok(Al00 {
        source_name: table.text_or_empty(0, "source_name")?,
        timestamp: table.number(1, 0, "timestamp")?,
        severity,
        message: table.text_or_empty(3, "message")?,
    })
}

/// Writes a message into `out`, replacing what was there.
pub fn write(out: &mut Vec<u8>, parts: &Al00<'_>) -> Result<(), Error> {
    let mut writer = Writer::begin(out, ID);
    let [source_name, timestamp, severity, message] = writer.root([4, 8, 2, 4]);
    writer.put(timestamp, parts.timestamp);
    writer.put(severity, parts.severity as i16);
    writer.text(source_name, parts.source_name);
    writer.text(message, parts.message);
    writer.finish()
}
