//! `bpgr`: a group, messages that belong together: a row over a view (stream of a worker `groups`, decision 0013).

use crate::flat::{Message, Writer};
use crate::{Array, Error};

/// The schema id.
pub const ID: [u8; 4] = *b"bpgr";

/// One group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group<'a> {
    /// Sequence of its first message in the stream that was looked at.
    pub first: u64,
    /// Number of its messages.
    pub count: u32,
    /// Members that have no message in it, by their place in the worker's parameter `members`.
    pub missing: Array<'a, u32>,
    /// Source time of its first message, ns since 1970 UTC.
    pub time: i64,
    /// Sequences of its messages, where they do not lie in a row from `first` on; else empty.
    pub members: Array<'a, u64>,
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
        members: table.array_or_empty(4, "members")?,
    })
}

/// Writes a message into `out`, replacing what was there.
pub fn write(out: &mut Vec<u8>, parts: &Group<'_>) -> Result<(), Error> {
    let mut writer = Writer::begin(out, ID);
    let [first, count, missing, time, members] = writer.root([8, 4, 4, 8, 4]);
    writer.put(first, parts.first);
    writer.put(count, parts.count);
    writer.put(time, parts.time);
    writer.array(missing, parts.missing);
    writer.array(members, parts.members);
    writer.finish()
}
