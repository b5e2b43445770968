//! `bptk`: a task: what a worker's runner asks of a slot (stream `WORKER.tasks`, decision 0008).

use crate::flat::{Message, Table, Writer};
use crate::{Array, Error};

/// The schema id.
pub const ID: [u8; 4] = *b"bptk";

/// One task, as it is asked, or as an answer says what of it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task<'a> {
    /// Empty: work. `time`: the input is complete up to the time in `arguments` (ns since 1970 UTC), and `first` and
    /// `next` are its end. `configure`: continue with the parameters in `arguments`. `stop`: end.
    pub command: &'a str,
    /// Sequence of the task in its stream.
    pub number: u64,
    /// For whom.
    pub slot: u32,
    /// Place of the input among those of the worker.
    pub input: u32,
    /// Identity of the input.
    pub uuid: [u8; 16],
    /// Epoch of the messages.
    pub epoch: u32,
    /// First sequence of the block of which it is a part.
    pub block_first: u64,
    /// Sequence after the last of that block.
    pub block_next: u64,
    /// First sequence to be done.
    pub first: u64,
    /// Sequence after the last to be done.
    pub next: u64,
    /// Which of several slots that see the same block.
    pub part: u32,
    /// How many they are.
    pub parts: u32,
    /// Parameters, a JSON object; empty where there are none.
    pub arguments: &'a str,
}

/// Verifies and reads a message.
pub fn read(bytes: &[u8]) -> Result<Task<'_>, Error> {
    let message = Message::open(bytes, ID)?;
    read_table(message.root()?)
}

/// Writes a message into `out`, replacing what was there.
pub fn write(out: &mut Vec<u8>, parts: &Task<'_>) -> Result<(), Error> {
    let mut writer = Writer::begin(out, ID);
    write_table(&mut writer, 0, parts);
    writer.finish()
}

/// The same table stands in answers.
pub(crate) fn read_table<'a>(table: Table<'_, 'a>) -> Result<Task<'a>, Error> {
    Ok(Task {
        command: table.text_or_empty(0, "task.command")?,
        number: table.number(1, 0, "task.number")?,
        slot: table.number(2, 0, "task.slot")?,
        input: table.number(3, 0, "task.input")?,
        uuid: table.uuid(4, "task.uuid")?,
        epoch: table.number(5, 0, "task.epoch")?,
        block_first: table.number(6, 0, "task.block_first")?,
        block_next: table.number(7, 0, "task.block_next")?,
        first: table.number(8, 0, "task.first")?,
        next: table.number(9, 0, "task.next")?,
        part: table.number(10, 0, "task.part")?,
        parts: table.number(11, 0, "task.parts")?,
        arguments: table.text_or_empty(12, "task.arguments")?,
    })
}

pub(crate) fn write_table(writer: &mut Writer<'_>, slot: usize, parts: &Task<'_>) {
    let [command, number, of, input, uuid, epoch, block_first, block_next, first, next, part, of_parts, arguments] =
        writer.table(slot, [4, 8, 4, 4, 4, 4, 8, 8, 8, 8, 4, 4, 4]);
    writer.put(number, parts.number);
    writer.put(of, parts.slot);
    writer.put(input, parts.input);
    writer.put(epoch, parts.epoch);
    writer.put(block_first, parts.block_first);
    writer.put(block_next, parts.block_next);
    writer.put(first, parts.first);
    writer.put(next, parts.next);
    writer.put(part, parts.part);
    writer.put(of_parts, parts.parts);
    writer.text(command, parts.command);
    writer.array(uuid, Array::from(&parts.uuid));
    writer.text(arguments, parts.arguments);
}
