//! `bpgr`: a group, messages that belong together: a row over a merged view.

use crate::flat::{Message, Writer};
use crate::{Array, Error};

/// The schema id.
pub const ID: [u8; 4] = *b"bpgr";

/// One group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group<'a> {
    /// Sequence of its first message in the view.
    pub first: u64,
    /// Number of its messages.
    pub count: u32,
    /// Inputs that have none in it, by their place in the merge.
    pub missing: Array<'a, u32>,
    /// Its time, ns since 1970 UTC.
    pub time: i64,
}

/// Verifies and reads a message.
pub fn read(bytes: &[u8]) -> Result<Group<'_>, Error> {
    let message = Message::open(bytes, ID)?;
    let table = message.root()?;
    Ok(Group {
        first: table.number(0, 0, "first")?,
        count: table.number(1, 0, "count")?,
        missing: table.array_or_empty(2, "missing")?,
        time: table.number(3, 0, "time")?,
    })
}

/// Writes a message into `out`, replacing what was there.
pub fn write(out: &mut Vec<u8>, parts: &Group<'_>) -> Result<(), Error> {
    let mut writer = Writer::begin(out, ID);
    let [first, count, missing, time] = writer.root([8, 4, 4, 8]);
    writer.put(first, parts.first);
    writer.put(count, parts.count);
    writer.put(time, parts.time);
    writer.array(missing, parts.missing);
    writer.finish()
}
